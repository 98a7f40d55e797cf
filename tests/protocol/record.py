"""Records golden frames: a proxy between clients and brokers that keeps what passes.

    python tests/protocol/record.py OUT PORT:TARGET [PORT:TARGET ...]

Brokers advertise the proxy's ports, so brokers talk to each other through it too.  Until it is
stopped (Ctrl-C or SIGTERM) it keeps, for every API, version and direction, the two shortest
different frames of at most 1,500 bytes; then it asks Kafka's own codec what each means and writes
one file for each API into OUT, beside what is there already.
"""

import json
import select
import signal
import socket
import struct
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from kafkalike.messages.catalog import APIS, find_api
from kafkalike.protocol.framing import FrameSplitter
from kafkalike.protocol.headers import decode_request_header, decode_response_header
from tests.protocol.golden import Golden, read_golden, write_golden
from tests.protocol.oracle import Question, build_oracle

LIMIT = 1500
KEEP = 2


@dataclass
class Recorder:
    kept: dict[tuple[int, int, str], dict[bytes, str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, key: int, version: int, kind: str, frame: bytes, client: str) -> None:
        if len(frame) > LIMIT or find_api(key) is None:
            return
        with self.lock:
            frames = self.kept.setdefault((key, version, kind), {})
            frames.setdefault(frame, client)
            while len(frames) > KEEP:
                del frames[max(frames, key=len)]


def serve(recorder: Recorder, port: int, target: int) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=50)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=relay, args=(recorder, client, target), daemon=True).start()


def relay(recorder: Recorder, client: socket.socket, target: int) -> None:
    """Pass bytes both ways until either side closes."""
    asked: dict[int, tuple[int, int, str]] = {}
    try:
        broker = socket.create_connection(("127.0.0.1", target))
    except ConnectionRefusedError:
        client.close()
        return
    with client, broker:
        splitters = {client: FrameSplitter(1 << 30), broker: FrameSplitter(1 << 30)}
        while True:
            for source in select.select([client, broker], [], [])[0]:
                chunk = source.recv(1 << 16)
                if not chunk:
                    return
                (broker if source is client else client).sendall(chunk)
                for view in splitters[source].feed(chunk):
                    frame = bytes(view)
                    if source is client:
                        header, _ = decode_request_header(frame)
                        origin = (header.api_key, header.api_version, header.client_id)
                        asked[header.correlation_id] = origin
                        recorder.keep(*origin[:2], "request", frame, origin[2])
                    else:
                        (correlation_id,) = struct.unpack_from(">i", frame)
                        key, version, client_id = asked.pop(correlation_id)
                        recorder.keep(key, version, "response", frame, client_id)


def write(recorder: Recorder, out: Path) -> None:
    """Frames with Kafka's own reading of them."""
    goldens, questions = [], []
    for (key, version, kind), frames in sorted(recorder.kept.items()):
        api = find_api(key)
        assert api is not None
        for frame, client in frames.items():
            message = api.request if kind == "request" else api.response
            body = (
                decode_request_header(frame)[1]
                if kind == "request"
                else decode_response_header(frame, key, version)[1]
            )
            name = f"org.apache.kafka.common.message.{message.__name__}Data"
            if version > api.max_version:
                continue
            goldens.append(Golden(message.__name__, version, client, frame, None))
            questions.append(Question("j", name, version, frame[body:]))
    answers = build_oracle().ask(questions)
    for api in APIS:
        path = out / f"{api.name}.txt"
        mine = [
            Golden(
                golden.message, golden.version, golden.client, golden.frame, json.loads(answer.body)
            )
            for golden, answer in zip(goldens, answers)
            if golden.message in (api.request.__name__, api.response.__name__)
            and answer.body is not None
        ]
        before = read_golden(path) if path.exists() else []
        have = {(golden.message, golden.version) for golden in before}
        added = [golden for golden in mine if (golden.message, golden.version) not in have]
        if added:
            write_golden(path, sorted([*before, *added], key=lambda g: (g.message, g.version)))


def main() -> None:
    out, *pairs = sys.argv[1:]
    recorder = Recorder()
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before the threads, which inherit it
    for pair in pairs:
        port, target = map(int, pair.split(":"))
        threading.Thread(target=serve, args=(recorder, port, target), daemon=True).start()
    signal.sigwait(stops)
    write(recorder, Path(out))


if __name__ == "__main__":
    main()
