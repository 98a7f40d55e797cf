"""One suite for the Network port: over sockets on three reactors, over TLS, and in memory."""

import os
import random
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.pollreactor import PollReactor

from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import (
    Buffer,
    ConnectionTimeout,
    FileRange,
    FrameProtocol,
    ListeningPort,
    SocketBuffers,
    Transport,
    UnknownHost,
)
from kafkalike.runtime.reactor import SlimReactor
from kafkalike.tools.simulator.network import SimInternet
from tests.fakes import failure_of
from tests.worlds import RealClient, RealWorld, SimulatedWorld, World, framed

MAX_FRAME = 8 << 20


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl program to make a certificate with")
    both = folder / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


@pytest.fixture(params=["simulated", "slim", "epoll", "poll", "tls"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "simulated":
        made = SimulatedWorld()
    else:
        makers: dict[str, Any] = {"epoll": EPollReactor, "poll": PollReactor}
        made = RealWorld(makers.get(request.param, SlimReactor)())
    if request.param == "tls":
        assert isinstance(made, RealWorld)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(request.getfixturevalue("certificate"))
        made.tls_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.tls_client.check_hostname = False
        made.tls_client.verify_mode = ssl.CERT_NONE
        listen = made.network.listen

        def listen_tls(*arguments: Any, **options: Any) -> ListeningPort:
            return listen(*arguments, **options, tls=server)

        made.network.listen = listen_tls  # type: ignore[method-assign]
    yield made
    made.close()


class Recorder:
    """A protocol that writes down what happens and does what the test wants with each frame."""

    def __init__(self, on_frame: "Callable[[Recorder, bytes], object] | None" = None) -> None:
        self.frames: list[bytes] = []
        self.ended: list[str] = []
        self.connections = 0
        self.on_frame = on_frame
        self.transport: Transport

    def connected(self, transport: Transport) -> None:
        assert not self.frames and not self.ended
        self.connections += 1
        self.transport = transport

    def frame_received(self, frame: memoryview) -> None:
        assert not frame.readonly
        assert not self.ended
        self.frames.append(bytes(frame))
        if self.on_frame is not None:
            self.on_frame(self, self.frames[-1])

    def disconnected(self, reason: str) -> None:
        self.ended.append(reason)


def echo(recorder: Recorder, frame: bytes) -> None:
    recorder.transport.write([framed(frame)])


class Listening:
    """A listening port whose connections all become Recorders."""

    def __init__(
        self,
        world: World,
        on_frame: Callable[[Recorder, bytes], object] | None = None,
        **options: Any,
    ) -> None:
        self.accepted: list[Recorder] = []
        self.hosts: list[str] = []
        self.on_frame = on_frame
        options.setdefault("max_frame_bytes", MAX_FRAME)
        self.port = world.network.listen("", 0, self._accept, **options)

    def _accept(self, peer_host: str) -> FrameProtocol | None:
        self.hosts.append(peer_host)
        recorder = Recorder(self.on_frame)
        self.accepted.append(recorder)
        return recorder

    def until_frames(self, world: World, count: int) -> None:
        world.until(lambda: bool(self.accepted) and len(self.only.frames) >= count)

    @property
    def only(self) -> Recorder:
        assert len(self.accepted) == 1
        return self.accepted[0]


@pytest.fixture
def listening(world: World) -> Iterator[Listening]:
    made = Listening(world)
    yield made
    made.port.stop()


def test_a_frame_arrives_whole_and_its_answer_goes_back(world: World, listening: Listening) -> None:
    listening.on_frame = echo
    client = world.client(listening.port.port)
    client.send(framed(b"hello"))
    assert client.read(9) == framed(b"hello")
    assert listening.only.frames == [b"hello"]
    assert listening.hosts[0] in ("127.0.0.1", "client")
    client.close()


def test_addresses_of_both_ends_are_known(world: World, listening: Listening) -> None:
    client = world.client(listening.port.port)
    world.until(lambda: bool(listening.accepted) and listening.only.connections == 1)
    transport = listening.only.transport
    assert transport.local_port == listening.port.port
    assert transport.peer_host == listening.hosts[0]
    assert transport.peer_port > 0
    client.close()


def test_one_byte_at_a_time(world: World, listening: Listening) -> None:
    listening.on_frame = echo
    client = world.client(listening.port.port)
    stream = framed(b"a", b"bcd" * 10, b"e" * 100)
    for byte in stream:
        client.send(bytes((byte,)))
        world.settle()
    assert client.read(len(stream)) == stream
    client.close()


def test_a_wake_up_without_bytes_loses_nothing(world: World, listening: Listening) -> None:
    client = world.client(listening.port.port)
    world.until(lambda: bool(listening.accepted))
    for piece in (b"\0\0", b"\0\x05he", b"llo"):
        client.send(piece)
        world.settle()
        transport: Any = listening.only.transport
        if isinstance(world, RealWorld):
            transport.doRead()
    world.until(lambda: bool(listening.only.frames))
    assert listening.only.frames == [b"hello"]
    client.close()


def test_many_frames_in_one_piece_keep_their_order(world: World, listening: Listening) -> None:
    client = world.client(listening.port.port)
    payloads = [b"%d" % number * (number % 50 + 1) for number in range(5000)]
    client.send(framed(*payloads))
    world.until(lambda: bool(listening.accepted) and len(listening.only.frames) == 5000)
    assert listening.only.frames == payloads
    client.close()


def test_answers_of_a_turn_with_many_connections_each_reach_their_peer(
    world: World, listening: Listening
) -> None:
    large = random.Random(3).randbytes(100_000)

    def answer(recorder: Recorder, frame: bytes) -> None:
        number = int(frame)
        recorder.transport.write([framed(frame)])
        if number % 5 == 1:
            recorder.transport.write([framed(large)])
            recorder.transport.write([framed(b"after")])
        elif number % 5 == 2:
            recorder.transport.close()
        elif number % 5 == 3:
            assert recorder.transport.unsent_bytes() in (0, len(frame) + 4)
            recorder.transport.abort()

    listening.on_frame = answer
    clients = [world.client(listening.port.port) for _ in range(50)]
    world.until(lambda: len(listening.accepted) == 50)
    for round_ in range(3):
        for number, client in enumerate(clients):
            if round_ == 0 or number % 5 not in (2, 3):
                client.send(framed(b"%d" % number))
        for number, client in enumerate(clients):
            sort = number % 5
            if sort == 3:
                # Aborted: nothing or all of its answer arrives.
                continue
            if sort != 2 or round_ == 0:
                expected = framed(b"%d" % number, *((large, b"after") if sort == 1 else ()))
                assert client.read(len(expected)) == expected
            if sort == 2 and round_ == 0:
                assert client.at_end()
    for client in clients:
        client.close()


def test_a_peer_that_sends_no_more_still_gets_its_small_answers(
    world: World, listening: Listening
) -> None:
    if not isinstance(world, RealWorld) or world.tls_client is not None:
        pytest.skip("only plain TCP has half-closed connections here")
    listening.on_frame = echo
    clients = [world.client(listening.port.port) for _ in range(3)]
    world.until(lambda: len(listening.accepted) == 3)
    for client in clients:
        assert isinstance(client, RealClient)
        client.send(framed(b"last"))
        client.end_write()
    for client in clients:
        assert client.read(8) == framed(b"last")
        assert client.at_end()
        client.close()


@pytest.mark.parametrize("piece", [1000, 65_537, 1 << 20])
def test_big_and_small_frames_mixed_in_any_pieces(
    world: World, listening: Listening, piece: int
) -> None:
    chance = random.Random(piece)
    sizes = [1, 1_048_700, 7, 300_000, 4_000_000, 2, 262_144, 262_140, 20_480, 20_481, 3]
    payloads = [chance.randbytes(size) for size in sizes]
    stream = framed(*payloads)
    client = world.client(listening.port.port)
    for start in range(0, len(stream), piece):
        client.send(stream[start : start + piece])
    world.until(lambda: bool(listening.accepted) and len(listening.only.frames) == len(sizes))
    assert [len(frame) for frame in listening.only.frames] == sizes
    assert listening.only.frames == payloads
    client.close()


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, MAX_FRAME + 1])
def test_a_frame_size_out_of_range_ends_the_connection(
    world: World, listening: Listening, size: int
) -> None:
    listening.on_frame = echo
    client = world.client(listening.port.port)
    client.send(framed(b"good") + struct.pack(">i", size) + b"x" * 100)
    assert client.read(8) == framed(b"good")
    world.until(lambda: bool(listening.accepted) and bool(listening.only.ended))
    assert listening.only.frames == [b"good"]
    assert len(listening.only.ended) == 1
    assert str(size) in listening.only.ended[0]
    assert client.at_end()
    client.close()


def test_the_largest_frame_allowed_passes(world: World, listening: Listening) -> None:
    payload = random.Random(1).randbytes(MAX_FRAME)
    client = world.client(listening.port.port)
    client.send(framed(payload))
    world.until(lambda: bool(listening.accepted) and bool(listening.only.frames))
    assert listening.only.frames == [payload]
    client.close()


def test_a_paused_connection_gets_no_frames_until_it_is_resumed(
    world: World, listening: Listening
) -> None:
    listening.on_frame = lambda recorder, frame: recorder.transport.pause()
    client = world.client(listening.port.port)
    client.send(framed(b"1", b"2", b"3"))
    for count in (1, 2, 3):
        listening.until_frames(world, count)
        world.settle()
        assert len(listening.only.frames) == count
        listening.only.transport.resume()
        assert len(listening.only.frames) == count, "resume must not call back"
    client.send(framed(b"4"))
    world.until(lambda: len(listening.only.frames) == 4)
    assert listening.only.frames == [b"1", b"2", b"3", b"4"]
    client.close()


def test_resume_within_the_same_frame_delivers_the_next(world: World, listening: Listening) -> None:
    def touch(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.pause()
        recorder.transport.resume()

    listening.on_frame = touch
    client = world.client(listening.port.port)
    client.send(framed(b"1", b"2") + b"\0\0")
    world.until(lambda: bool(listening.accepted) and len(listening.only.frames) == 2)
    client.send(b"\0\1x")
    world.until(lambda: len(listening.only.frames) == 3)
    client.close()


def test_frames_held_back_arrive_although_the_peer_has_ended(
    world: World, listening: Listening
) -> None:
    def answer_later(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.pause()

        def answer() -> None:
            recorder.transport.write([framed(b"re:" + frame)])
            recorder.transport.resume()

        world.call_later(0.02, answer)

    listening.on_frame = answer_later
    client = world.client(listening.port.port)
    client.send(framed(b"1", b"2", b"3"))
    if isinstance(client, RealClient) and isinstance(client.sock, ssl.SSLSocket):
        pytest.skip("TLS knows no half-closed connection")
    client.end_write()
    expected = framed(b"re:1", b"re:2", b"re:3")
    assert client.read(len(expected)) == expected
    assert client.at_end()
    world.until(lambda: bool(listening.only.ended))
    client.close()


def test_a_peer_that_leaves_is_noticed_once(world: World, listening: Listening) -> None:
    client = world.client(listening.port.port)
    client.send(framed(b"1") + b"\0\0\0\x08half")
    world.until(lambda: bool(listening.accepted) and bool(listening.only.frames))
    client.close()
    world.until(lambda: bool(listening.only.ended))
    world.settle()
    assert len(listening.only.ended) == 1
    assert listening.only.frames == [b"1"]


def test_close_sends_what_is_queued_and_delivers_nothing_more(
    world: World, listening: Listening
) -> None:
    answer = random.Random(2).randbytes(3 << 20)

    def answer_and_close(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.write([framed(answer)])
        recorder.transport.close()
        recorder.transport.write([b"too late"])
        assert not recorder.ended, "close must not call back"

    listening.on_frame = answer_and_close
    client = world.client(listening.port.port)
    client.send(framed(b"1", b"2"))
    assert client.read(len(answer) + 4) == framed(answer)
    assert client.at_end()
    world.until(lambda: bool(listening.only.ended))
    assert listening.only.frames == [b"1"]
    client.close()


def test_abort_drops_what_is_queued(world: World, listening: Listening) -> None:
    def answer_and_abort(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.write([framed(b"x" * (30 << 20))])
        assert recorder.transport.unsent_bytes() > 0
        recorder.transport.abort()
        assert not recorder.ended, "abort must not call back"
        assert recorder.transport.unsent_bytes() == 0

    listening.on_frame = answer_and_abort
    client = world.client(listening.port.port)
    client.send(framed(b"1", b"2"))
    world.until(lambda: bool(listening.accepted) and bool(listening.only.ended))
    assert listening.only.frames == [b"1"]
    client.close()


def test_a_slow_reader_gets_every_byte_and_no_further_answers_are_computed(
    world: World, listening: Listening
) -> None:
    # More than the kernel's buffers of both ends can hold.
    answers = [random.Random(number).randbytes(2 << 20) for number in range(25)]

    def answer(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.write([framed(answers[int(frame)])])

    listening.on_frame = answer
    client = world.client(listening.port.port)
    client.send(framed(*(b"%d" % number for number in range(25))))
    world.until(lambda: bool(listening.accepted) and bool(listening.only.frames))
    for _ in range(20):
        world.settle()
    assert len(listening.only.frames) < 25
    assert 0 < listening.only.transport.unsent_bytes() <= (2 << 20) + (256 << 10)
    expected = framed(*answers)
    got = bytearray()
    while len(got) < len(expected):
        # 7 KB at first, then larger pieces, so that it does not take all day.
        size = 7168 if len(got) < 10 << 20 else 1 << 20
        piece = client.read(min(size, len(expected) - len(got)))
        assert piece, "the connection ended early"
        got += piece
    assert got == expected
    assert listening.only.transport.unsent_bytes() == 0
    client.close()


class CountedFile:
    """A real file whose retain and release are counted, and whose cache can be told to be cold."""

    def __init__(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        self.file = RealDisk().open(str(path))
        self.path = str(path)
        self.users = 0
        self.cold: set[int] = set()
        self.cold_asked = 0
        self.thread_reads = 0

    def retain(self) -> None:
        self.users += 1
        self.file.retain()

    def release(self) -> None:
        self.users -= 1
        self.file.release()

    def is_cached(self, length: int, position: int) -> bool:
        if position in self.cold:
            self.cold_asked += 1
            self.cold.remove(position)
            return False
        return self.file.is_cached(length, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def range(self, position: int, length: int) -> FileRange:
        self.retain()
        return FileRange(self, position, length)


CONTENT = random.Random(7).randbytes(5 << 20)


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[CountedFile]:
    made = CountedFile(tmp_path / "00000000000000000000.log", CONTENT)
    yield made
    assert made.users == 0, "a range was not released exactly once"
    made.close()


def with_ranges(counted: CountedFile) -> "tuple[list[Buffer | FileRange], bytes]":
    """A frame of buffers and ranges, and the same as bytes."""
    parts: list[Buffer | FileRange] = [
        b"header",
        counted.range(100, 3 << 20),
        memoryview(b"-between-"),
        counted.range(0, 0),
        counted.range(4 << 20, 1 << 20),
        bytearray(b"trailer"),
    ]
    whole = b"header" + CONTENT[100 : 100 + (3 << 20)] + b"-between-"
    whole += CONTENT[4 << 20 : 5 << 20] + b"trailer"
    return [struct.pack(">i", len(whole)), *parts], framed(whole)


def test_file_ranges_go_out_between_buffers(
    world: World, listening: Listening, counted: CountedFile
) -> None:
    expected = b""

    def answer(recorder: Recorder, frame: bytes) -> None:
        nonlocal expected
        parts, expected = with_ranges(counted)
        recorder.transport.write(parts)

    listening.on_frame = answer
    client = world.client(listening.port.port)
    for _ in range(3):
        client.send(framed(b"fetch"))
        world.until(lambda: bool(expected))
        assert client.read(len(expected)) == expected
    client.close()


def test_a_reader_that_leaves_in_mid_response_leaves_no_file_held(
    world: World, listening: Listening, counted: CountedFile
) -> None:
    def answer(recorder: Recorder, frame: bytes) -> None:
        for _ in range(5):
            recorder.transport.write(with_ranges(counted)[0])

    listening.on_frame = answer
    client = world.client(listening.port.port)
    client.send(framed(b"fetch"))
    assert len(client.read(100_000)) == 100_000
    client.close()
    world.until(lambda: bool(listening.only.ended))
    assert counted.users == 0
    listening.only.transport.write(with_ranges(counted)[0])
    assert counted.users == 0, "a write after the end must release too"


def test_a_file_cut_short_under_a_queued_range_ends_the_connection(
    world: World, listening: Listening, counted: CountedFile
) -> None:
    def answer(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.write([struct.pack(">i", 5 << 20), counted.range(0, 5 << 20)])

    listening.on_frame = answer
    counted.truncate(100_000)
    client = world.client(listening.port.port)
    client.send(framed(b"fetch"))
    got = client.read(4 + (5 << 20))
    assert len(got) < 5 << 20
    world.until(lambda: bool(listening.only.ended))
    assert "cut short" in listening.only.ended[0]
    client.close()


def test_a_protocol_that_raises_loses_its_connection_only(
    world: World, listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(recorder: Recorder, frame: bytes) -> None:
        if frame == b"bad":
            raise RuntimeError("a mistake")
        echo(recorder, frame)

    listening.on_frame = fail
    good, bad = world.client(listening.port.port), world.client(listening.port.port)
    bad.send(framed(b"bad", b"never"))
    assert bad.at_end()
    good.send(framed(b"fine"))
    assert good.read(8) == framed(b"fine")
    world.until(lambda: any(recorder.ended for recorder in listening.accepted))
    bad.close()
    good.close()


def test_refused_connections_are_closed(world: World) -> None:
    port = world.network.listen("", 0, lambda host: None, max_frame_bytes=100)
    if isinstance(world, RealWorld) and world.tls_client is not None:
        world.tls_client = None
    client = world.client(port.port)
    assert client.at_end()
    client.close()
    port.stop()


def test_a_paused_listener_leaves_connections_waiting(world: World, listening: Listening) -> None:
    if isinstance(world, RealWorld) and world.tls_client is not None:
        pytest.skip("a TLS client waits for the handshake")
    listening.port.pause()
    client = world.client(listening.port.port)
    client.send(framed(b"1"))
    world.settle()
    assert not listening.accepted
    listening.port.resume()
    world.until(lambda: bool(listening.accepted) and bool(listening.only.frames))
    client.close()


def test_a_stopped_listener_frees_its_address_and_leaves_connections(world: World) -> None:
    first = Listening(world, echo)
    client = world.client(first.port.port)
    world.until(lambda: bool(first.accepted) and first.only.connections == 1)
    first.port.stop()
    second = world.network.listen("", first.port.port, lambda host: None, max_frame_bytes=100)
    client.send(framed(b"still here"))
    assert client.read(14) == framed(b"still here")
    client.close()
    second.stop()


def test_an_address_in_use_is_an_os_error(world: World, listening: Listening) -> None:
    with pytest.raises(OSError, match=str(listening.port.port)):
        world.network.listen("", listening.port.port, lambda host: None, max_frame_bytes=100)


def outgoing(world: World, port: int, protocol: FrameProtocol, **options: Any) -> Any:
    options.setdefault("timeout_s", 20.0)
    options.setdefault("max_frame_bytes", MAX_FRAME)
    if isinstance(world, RealWorld) and world.tls_client is not None:
        options.setdefault("tls", world.tls_client)
    return world.network.connect(options.pop("host", world.host), port, protocol, **options)


def test_both_ends_speak_frames(world: World, listening: Listening) -> None:
    listening.on_frame = echo
    ours = Recorder()
    done = outgoing(world, listening.port.port, ours)
    world.until(lambda: bool(done.called))
    assert ours.connections == 1
    ours.transport.write([framed(b"ping"), framed(b"pong" * 1_000_000)])
    world.until(lambda: len(ours.frames) == 2)
    assert ours.frames == [b"ping", b"pong" * 1_000_000]
    ours.transport.close()
    world.until(lambda: bool(ours.ended) and bool(listening.only.ended))
    assert len(ours.ended) == len(listening.only.ended) == 1


def test_connecting_to_nobody_fails(world: World, listening: Listening) -> None:
    listening.port.stop()
    ours = Recorder()
    done = outgoing(world, listening.port.port, ours)
    world.until(lambda: bool(done.called))
    error = failure_of(done, ConnectionError)
    assert str(listening.port.port) in str(error)
    assert ours.connections == 0


def test_connecting_to_an_unknown_name_fails(world: World) -> None:
    done = outgoing(world, 9092, Recorder(), host="no-such-host.invalid")
    world.until(lambda: bool(done.called))
    assert "no-such-host.invalid" in str(failure_of(done, UnknownHost))


def test_connecting_to_silence_times_out() -> None:
    world = SimulatedWorld()
    silent = SimInternet(world.clock, lambda source, target, count: None)
    silent.host("far")
    done = silent.host("near").connect("far", 9092, Recorder(), timeout_s=5.0, max_frame_bytes=100)
    world.fake_clock.advance(4.9)
    assert not done.called
    world.fake_clock.advance(0.2)
    failure_of(done, ConnectionTimeout)


def test_connecting_to_a_full_backlog_times_out() -> None:
    world = RealWorld(SlimReactor())
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    done = outgoing(world, full.getsockname()[1], Recorder(), timeout_s=0.1)
    world.until(lambda: bool(done.called))
    failure_of(done, ConnectionTimeout)
    for sock in (full, *fillers):
        sock.close()
    world.close()


def test_a_connect_may_be_cancelled(world: World, listening: Listening) -> None:
    if isinstance(world, SimulatedWorld):
        pytest.skip("nothing to let go of")
    ours = Recorder()
    done = outgoing(world, listening.port.port, ours)
    done.addErrback(lambda failure: None)
    done.cancel()
    world.settle()
    assert ours.connections == 0


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_and_both_families_reach_a_listener_on_all_addresses(host: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    world = RealWorld(SlimReactor())
    listening = Listening(world, echo)
    ours = Recorder()
    outgoing(world, listening.port.port, ours, host=host)
    world.until(lambda: ours.connections == 1)
    ours.transport.write([framed(b"ping")])
    world.until(lambda: ours.frames == [b"ping"])
    ours.transport.abort()
    listening.port.stop()
    world.until(lambda: bool(listening.only.ended))
    world.close()


@pytest.mark.parametrize("kind", [SlimReactor, EPollReactor])
def test_cold_ranges_are_read_by_a_thread_first(tmp_path: Path, kind: Any) -> None:
    world = RealWorld(kind())
    counted = CountedFile(tmp_path / "cold.log", CONTENT)
    counted.cold = {0, 1 << 20, 4 << 20}

    def answer(recorder: Recorder, frame: bytes) -> None:
        recorder.transport.write([struct.pack(">i", len(CONTENT)), counted.range(0, len(CONTENT))])

    listening = Listening(world, answer)
    client = world.client(listening.port.port)
    for _ in range(2):
        client.send(framed(b"fetch"))
        assert client.read(4 + len(CONTENT)) == framed(CONTENT)
    assert counted.cold_asked == 3
    assert counted.users == 0
    client.close()
    listening.port.stop()
    world.until(lambda: bool(listening.only.ended))
    world.close()


def _holds(kept: list[memoryview], count: int) -> bool:
    return len(kept) == count


def test_a_view_that_is_kept_stays_as_it_was() -> None:
    """Against the contract, but it must cost memory only, not another client's records."""
    world = RealWorld(SlimReactor())
    kept: list[memoryview] = []

    class Keeper(Recorder):
        def frame_received(self, frame: memoryview) -> None:
            kept.append(frame)

    listening = world.network.listen("", 0, lambda host: Keeper(), max_frame_bytes=MAX_FRAME)
    payloads = [bytes((65 + number,)) * size for number, size in enumerate([10, 300_000] * 8)]
    client = world.client(listening.port)
    for number, payload in enumerate(payloads):
        client.send(framed(payload))
        world.until(partial(_holds, kept, number + 1))
    assert [bytes(view) for view in kept] == payloads
    client.close()
    listening.stop()
    world.settle()
    world.close()


def test_descriptors_running_out_does_not_spin_or_kill_the_listener() -> None:
    import resource

    world = RealWorld(SlimReactor())
    listening = Listening(world, echo)
    clients = [socket.create_connection((world.host, listening.port.port)) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        # Fill the holes below the limit so that nothing is left for accept.
        holes = []
        while True:
            try:
                holes.append(os.dup(0))
            except OSError:
                break
        world.settle()
        world.settle()
        for hole in holes:
            os.close(hole)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    late = world.client(listening.port.port)
    late.send(framed(b"alive"))
    assert late.read(9) == framed(b"alive")
    for client in clients:
        client.close()
    late.close()
    listening.port.stop()
    world.settle()
    world.close()


@pytest.mark.parametrize("size", [100_000, 400_000])
def test_accepted_sockets_have_the_buffers_asked_for(world: World, size: int) -> None:
    if not isinstance(world, RealWorld) or world.tls_client is not None:
        pytest.skip("plain sockets of the real network")
    listening = Listening(world, buffers=SocketBuffers(size, size + 2000))
    client = world.client(listening.port.port)
    client.send(framed(b"here"))
    listening.until_frames(world, 1)
    sock: Any = listening.only.transport
    # The kernel doubles what it is asked for, up to a limit of the machine.
    limits = [int(Path(f"/proc/sys/net/core/{name}_max").read_text()) for name in ("wmem", "rmem")]
    found = [
        sock._socket.getsockopt(socket.SOL_SOCKET, option)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    ]
    assert found == [2 * min(size, limits[0]), 2 * min(size + 2000, limits[1])]
    client.close()
    listening.port.stop()
