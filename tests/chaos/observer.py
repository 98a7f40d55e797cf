"""Watches a cluster from outside, as a process: metadata of every broker, high watermarks, ZooKeeper.

It asks brokers at their own ports, not through the relays, so that it also sees those that are cut
off.  High watermarks are asked for as a careful client does: from the leader of the newest epoch it
has heard of, with that epoch, so that a leader of the past cannot answer.
"""

import argparse
import contextlib
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from kafkalike.messages.catalog import response_class
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from tests.chaos.ending import Ending
from tests.chaos.histories import History

ASK_LIMIT_S: Final = 3.0
PAUSE_S: Final = 0.15
METADATA_VERSION: Final = 9
LIST_OFFSETS_VERSION: Final = 6
FETCH_VERSION: Final = 12
LATEST: Final = -1
OFFSET_OUT_OF_RANGE: Final = 1


class Wire:
    """One connection, one request at a time."""

    def __init__(self, port: int, limit_s: float = ASK_LIMIT_S) -> None:
        self._port = port
        self._limit_s = limit_s
        self._socket: socket.socket | None = None
        self._number = 0

    def ask(self, request: Any, version: int) -> Any:
        """Raises OSError."""
        try:
            return self._ask(request, version)
        except (OSError, EOFError) as error:
            self.close()
            raise OSError(str(error)) from error

    def _ask(self, request: Any, version: int) -> Any:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._limit_s)
        self._number += 1
        header = RequestHeader(request.api_key, version, self._number, "observer")
        body = encode_request_header(header) + request.encode(version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (length,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(length)
        _, position = decode_response_header(answer, request.api_key, version)
        return response_class(request.api_key).decode(answer, version, position)

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        parts = []
        while count:
            part = self._socket.recv(count)
            if not part:
                raise EOFError("closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def metadata_request(topic: str) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)


@dataclass(slots=True)
class Newest:
    """Leaders of the newest epochs heard of."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> (epoch, broker)"""

    def hear(self, partition: int, epoch: int, leader: int) -> None:
        with self.lock:
            if epoch > self.leaders.get(partition, (-1, -1))[0]:
                self.leaders[partition] = (epoch, leader)

    def led_by(self, broker: int) -> dict[int, int]:
        with self.lock:
            return {p: epoch for p, (epoch, leader) in self.leaders.items() if leader == broker}


class BrokerWatch(threading.Thread):
    """Asks one broker again and again."""

    def __init__(
        self, broker: int, port: int, topic: str, history: History, newest: Newest
    ) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self._broker = broker
        self._wire = Wire(port)
        self._topic = topic
        self._history = history
        self._newest = newest
        self._seen: dict[int, tuple[int, int, str]] = {}
        self._marks: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        while not self.ending.wait(PAUSE_S):
            with contextlib.suppress(OSError):
                self._metadata()
                self._high_watermarks()
        self._wire.close()

    def _metadata(self) -> None:
        response = self._wire.ask(metadata_request(self._topic), METADATA_VERSION)
        for topic in response.topics:
            for found in topic.partitions:
                index = found.partition_index
                isr = ",".join(map(str, found.isr_nodes))
                state = (found.leader_id, found.leader_epoch, isr)
                if self._seen.get(index) != state:
                    self._seen[index] = state
                    self._history.add("M", self._broker, index, *state)
                if found.leader_id >= 0:
                    self._newest.hear(index, found.leader_epoch, found.leader_id)

    def _high_watermarks(self) -> None:
        asked_s = time.monotonic()
        led = self._newest.led_by(self._broker)
        if not led:
            return
        kind = ListOffsetsRequest.ListOffsetsTopic
        partitions = [
            kind.ListOffsetsPartition(
                partition_index=p, current_leader_epoch=epoch, timestamp=LATEST
            )
            for p, epoch in led.items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[kind(name=self._topic, partitions=partitions)]
        )
        response = self._wire.ask(request, LIST_OFFSETS_VERSION)
        for topic in response.topics:
            for found in topic.partitions:
                if found.error_code:
                    continue
                index = found.partition_index
                mark = (led[index], found.offset)
                if self._marks.get(index) != mark:
                    self._marks[index] = mark
                    self._history.add("H", self._broker, index, *mark, f"{asked_s:.3f}")
        self._read_at_the_end({p: self._marks[p][1] for p in led if p in self._marks}, led)

    def _read_at_the_end(self, offsets: dict[int, int], epochs: dict[int, int]) -> None:
        """Nobody who stands at a high watermark that was shown to him may be refused."""
        if not offsets:
            return
        kind = FetchRequest.FetchTopic
        partitions = [
            kind.FetchPartition(
                partition=p,
                current_leader_epoch=epochs[p],
                fetch_offset=offset,
                partition_max_bytes=1,
            )
            for p, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            topics=[kind(topic=self._topic, partitions=partitions)],
        )
        response = self._wire.ask(request, FETCH_VERSION)
        for topic in response.responses:
            for found in topic.partitions:
                if found.error_code == OFFSET_OUT_OF_RANGE:
                    index = found.partition_index
                    text = f"broker_{self._broker}_epoch_{epochs[index]}"
                    self._history.add("W", index, offsets[index], text)


class ZooKeeperWatch(threading.Thread):
    """Reads partition states and the controller a few times a second."""

    def __init__(self, connect: str, topic: str, partitions: int, history: History) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self._connect = connect
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._seen: dict[str, Any] = {}

    def run(self) -> None:
        client = KazooClient(hosts=self._connect, timeout=10.0)
        with contextlib.suppress(Exception):
            client.start(timeout=20)
        while not self.ending.wait(PAUSE_S):
            with contextlib.suppress(Exception):
                self._look(client)
        with contextlib.suppress(Exception):
            client.stop()
            client.close()

    def _look(self, client: Any) -> None:
        base = f"/brokers/topics/{self._topic}/partitions"
        for partition in range(self._partitions):
            data, stat = client.get(f"{base}/{partition}/state")
            if self._seen.get(str(partition)) != stat.version:
                self._seen[str(partition)] = stat.version
                state = json.loads(data)
                isr = ",".join(map(str, state["isr"]))
                self._history.add(
                    "Z", partition, state["leader"], state["leader_epoch"], isr, stat.version
                )
        data, before = client.get("/controller")
        epoch = int(client.get("/controller_epoch")[0])
        if client.get("/controller")[1].czxid != before.czxid:
            return
        broker = json.loads(data)["brokerid"]
        if self._seen.get("controller") != (broker, epoch):
            self._seen["controller"] = (broker, epoch)
            self._history.add("C", broker, epoch)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", action="append", required=True, metavar="ID:PORT")
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    args = parser.parse_args(arguments)
    ending = Ending()
    history = History(args.history)
    newest = Newest()
    watches: list[BrokerWatch | ZooKeeperWatch] = [
        ZooKeeperWatch(args.zookeeper, args.topic, args.partitions, history)
    ]
    for pair in args.broker:
        broker, _, port = pair.partition(":")
        watches.append(BrokerWatch(int(broker), int(port), args.topic, history, newest))
    for watch in watches:
        watch.start()
    ending.wait()
    for watch in watches:
        watch.ending.set()
    for watch in watches:
        watch.join(2 * ASK_LIMIT_S)
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
