"""The server without sockets: what is answered when, which sessions live, what a bad disk does."""

import pathlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import Buffer, StorageError
from kafkalike.zk.server.connection import ClientConnection
from kafkalike.zk.server.jute import (
    JuteReader,
    OpCode,
    write_acl,
    write_buffer,
    write_int,
    write_long,
    write_string,
)
from kafkalike.zk.server.model import EPHEMERAL, OPEN_ACL, Code
from kafkalike.zk.server.server import CoordinationServer
from tests.fakes import FakeClock, FakeRandom, ManualThreads, failure_of, result_of


class FakeSocket:
    """What Twisted's transport is to a connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.connected = 1
        self.sent = b""
        self.paused = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def loseConnection(self) -> None:
        if self.connected:
            self.connected = 0
            self.connection.connectionLost()

    abortConnection = loseConnection

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert streaming

    def unregisterProducer(self) -> None:
        pass


class Client:
    """Frames to and from one connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.socket = FakeSocket(connection)
        connection.makeConnection(self.socket)  # type: ignore[no-untyped-call]
        self.session_id = 0
        self.password = b""
        self.timeout_ms = 0

    @property
    def closed(self) -> bool:
        return not self.socket.connected

    def frames(self) -> list[bytes]:
        data, self.socket.sent = self.socket.sent, b""
        found = []
        while data:
            length = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + length])
            data = data[4 + length :]
        return found

    def replies(self) -> list[tuple[int, int]]:
        """(xid, error) of what has arrived."""
        readers = [JuteReader(frame) for frame in self.frames()]
        return [(r.int32("xid"), r.int64("zxid") * 0 + r.int32("err")) for r in readers]

    def send(self, frame: bytes) -> None:
        self.connection.dataReceived(write_int(len(frame)) + frame)

    def connect(
        self, timeout_ms: int = 10_000, session_id: int = 0, password: bytes = bytes(16)
    ) -> None:
        record = write_int(0) + write_long(0) + write_int(timeout_ms) + write_long(session_id)
        self.send(record + write_buffer(password) + b"\0")

    def connected(self) -> None:
        """Take the handshake's answer."""
        reader = JuteReader(self.frames()[0])
        reader.int32("protocol")
        self.timeout_ms, self.session_id = reader.int32("timeout"), reader.int64("session")
        self.password = reader.buffer("password") or b""

    def create(self, xid: int, path: str, data: bytes = b"", flags: int = 0) -> None:
        record = write_string(path) + write_buffer(data) + write_acl(OPEN_ACL) + write_int(flags)
        self.send(write_int(xid) + write_int(OpCode.CREATE) + record)

    def get(self, xid: int, path: str, *, watch: bool = False) -> None:
        flag = b"\1" if watch else b"\0"
        self.send(write_int(xid) + write_int(OpCode.GET_DATA) + write_string(path) + flag)

    def ping(self) -> None:
        self.send(write_int(-2) + write_int(OpCode.PING))


class World:
    """Servers one after the other on one directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.threads = ManualThreads()
        self.random = FakeRandom()
        self.failures: list[Exception] = []
        self.factory: Any = None
        self.listening = False
        self.servers: list[CoordinationServer] = []

    def listen(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        self.factory = factory
        self.listening = True

        def stop() -> "Deferred[None]":
            self.listening = False
            return succeed(None)

        return SimpleNamespace(
            getHost=lambda: SimpleNamespace(port=port or 4711), stopListening=stop
        )

    def server(self, *, disk: Any = None, **options: Any) -> CoordinationServer:
        server = CoordinationServer(
            listen=self.listen,
            clock=self.clock,
            random=self.random,
            threads=self.threads,
            disk=disk or RealDisk(),
            on_failure=self.failures.append,
            **{"data_dir": str(self.directory), **options},
        )
        starting = Deferred.fromCoroutine(server.start())
        self.threads.run_all()
        result_of(starting)
        self.servers.append(server)
        return server

    def client(self, host: str = "10.0.0.1", *, connect: bool = True) -> Client:
        connection = self.factory.buildProtocol(SimpleNamespace(host=host, port=5000))
        assert connection is not None, "refused"
        client = Client(connection)
        if connect:
            client.connect()
            self.threads.run_all()
            client.connected()
        return client

    def stop(self, server: CoordinationServer) -> None:
        stopping = Deferred.fromCoroutine(server.stop())
        self.threads.run_all()
        result_of(stopping)
        self.servers.remove(server)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    yield world
    for server in list(world.servers):
        world.stop(server)


def test_a_write_is_answered_when_it_is_on_disk_and_reads_wait_behind_it(world: World) -> None:
    world.server()
    writer, reader = world.client(), world.client()
    writer.create(1, "/a", b"x")
    reader.get(2, "/a")
    assert writer.replies() == []
    assert reader.replies() == []  # it would show what may still be lost
    world.threads.run_all()
    assert writer.replies() == [(1, 0)]
    assert reader.replies() == [(2, 0)]
    reader.get(3, "/a")
    assert reader.replies() == [(3, 0)]  # nothing to wait for


def test_writes_share_a_sync(world: World) -> None:
    world.server()
    clients = [world.client() for _ in range(10)]
    for number, client in enumerate(clients):
        client.create(number, f"/n{number}")
    assert len(world.threads.waiting) == 1
    world.threads.step()  # what had been written when it began: the first
    assert [client.replies() for client in clients] == [[(0, 0)]] + [[]] * 9
    assert len(world.threads.waiting) == 1
    world.threads.step()
    assert [client.replies() for client in clients[1:]] == [[(n, 0)] for n in range(1, 10)]
    assert not world.threads.waiting


def test_without_fsync_answers_leave_at_once(world: World) -> None:
    world.server(fsync=False)
    client = world.client()
    client.create(1, "/a")
    assert client.replies() == [(1, 0)]
    assert not world.threads.waiting


def test_a_watch_event_waits_for_the_disk_too(world: World) -> None:
    world.server()
    writer, watcher = world.client(), world.client()
    watcher.get(1, "/", watch=True)
    assert watcher.replies() == [(1, 0)]
    record = write_string("/") + write_buffer(b"new") + write_int(-1)
    writer.send(write_int(2) + write_int(OpCode.SET_DATA) + record)
    assert watcher.replies() == []
    world.threads.run_all()
    assert watcher.replies() == [(-1, 0)]


def test_a_failed_sync_stops_the_service_without_an_answer(world: World) -> None:
    class Disk(RealDisk):
        broken = False

        def open(self, path: str, *, create: bool = False) -> Any:
            file = super().open(path, create=create)

            class Broken(type(file)):  # type: ignore[misc]
                __slots__ = ()

                def sync(self) -> None:
                    if Disk.broken:
                        raise StorageError(f"{path}: input/output error")
                    super().sync()

            file.__class__ = Broken
            return file

    world.server(disk=Disk())
    client, other = world.client(), world.client()
    Disk.broken = True
    client.create(1, "/a")
    world.threads.run_all()
    assert client.replies() == []
    assert client.closed
    assert other.closed
    assert not world.listening
    assert [str(e).endswith("input/output error") for e in world.failures] == [True]
    Disk.broken = False
    again = world.server()
    assert "/a" in again.tree.nodes  # never answered: either outcome is right
    world.servers.pop(0)


def test_a_full_disk_stops_the_service_without_an_answer(world: World) -> None:
    class Disk(RealDisk):
        full = False

        def open(self, path: str, *, create: bool = False) -> Any:
            file = super().open(path, create=create)

            class Full(type(file)):  # type: ignore[misc]
                __slots__ = ()

                def append(self, *buffers: Buffer) -> int:
                    if Disk.full:
                        raise StorageError(f"{path}: no space left on device")
                    return int(super().append(*buffers))

            file.__class__ = Full
            return file

    world.server(disk=Disk())
    client = world.client()
    client.create(1, "/before")
    world.threads.run_all()
    assert client.replies() == [(1, 0)]
    Disk.full = True
    client.create(2, "/a")
    client.create(3, "/b")
    world.threads.run_all()
    assert client.replies() == []
    assert client.closed
    assert ["no space left" in str(e) for e in world.failures] == [True]
    Disk.full = False
    again = world.server()
    assert "/before" in again.tree.nodes
    assert "/a" not in again.tree.nodes
    world.servers.pop(0)


def test_a_session_goes_on_after_a_restart(world: World) -> None:
    first = world.server()
    client = world.client()
    client.create(1, "/e", flags=EPHEMERAL)
    world.threads.run_all()
    world.stop(first)
    assert client.closed
    world.clock.advance(3600)
    second = world.server()
    assert "/e" in second.tree.nodes
    world.clock.advance(5)
    again = world.client(connect=False)
    again.connect(10_000, client.session_id, client.password)
    world.threads.run_all()
    again.connected()
    assert again.session_id == client.session_id
    other = world.client()
    assert other.session_id > client.session_id
    for _ in range(6):
        again.ping()
        world.clock.advance(2)
    assert "/e" in second.tree.nodes
    world.clock.advance(12)
    world.threads.run_all()
    assert "/e" not in second.tree.nodes
    assert again.closed


def test_silence_ends_a_session(world: World) -> None:
    server = world.server()
    silent, alive = world.client(), world.client()
    silent.create(1, "/e", flags=EPHEMERAL)
    world.threads.run_all()
    alive.get(2, "/e", watch=True)
    assert (silent.replies(), alive.replies()) == ([(1, 0)], [(2, 0)])
    for _ in range(12):
        alive.ping()
        world.clock.advance(1)
        world.threads.run_all()
    assert silent.closed
    assert not alive.closed
    assert "/e" not in server.tree.nodes
    assert (-1, 0) in alive.replies()


def test_time_in_which_the_process_stood_still_does_not_count(world: World) -> None:
    server = world.server()
    client = world.client()
    world.clock._now_s += 100  # no timer ran, no byte was read
    world.clock.advance(0)
    assert client.session_id in server.tree.sessions
    world.clock.advance(8)
    assert client.session_id in server.tree.sessions
    world.clock.advance(3)
    assert client.session_id not in server.tree.sessions


def test_a_reattached_session_leaves_its_old_connection(world: World) -> None:
    world.server()
    client = world.client()
    client.get(1, "/", watch=True)
    again = world.client(connect=False)
    again.connect(10_000, client.session_id, client.password)
    again.connected()
    assert client.closed
    again.create(2, "/a")
    world.threads.run_all()
    assert again.replies() == [(2, 0)]


def test_a_wrong_password_does_not_disturb_the_owner(world: World) -> None:
    world.server()
    client = world.client()
    thief = world.client(connect=False)
    thief.connect(10_000, client.session_id, b"x" * 16)
    thief.connected()
    assert thief.session_id == 0
    assert thief.closed
    assert not client.closed


def test_connections_per_address_are_limited(world: World) -> None:
    world.server(max_client_connections=2)
    first, _ = world.client("10.0.0.1"), world.client("10.0.0.1")
    assert world.factory.buildProtocol(SimpleNamespace(host="10.0.0.1", port=1)) is None
    world.client("10.0.0.2")
    first.socket.loseConnection()
    world.client("10.0.0.1")


def test_a_connection_that_says_nothing_is_closed(world: World) -> None:
    world.server()
    mute = world.client(connect=False)
    world.clock.advance(9)
    assert not mute.closed
    world.clock.advance(3)
    assert mute.closed


def test_input_stops_while_answers_wait(world: World) -> None:
    world.server(max_buffer_bytes=8 << 20)
    client = world.client()
    client.create(1, "/big", b"x" * (5 << 20))
    world.threads.run_all()
    assert client.replies() == [(1, 0)]
    client.create(2, "/a")
    for xid in range(3, 9):
        client.get(xid, "/big")
    assert client.socket.paused
    assert client.replies() == []
    while world.threads.waiting:
        world.threads.step()
    assert not client.socket.paused
    assert client.replies() == [(xid, 0) for xid in range(2, 9)]


def test_a_burst_of_large_answers_is_served_in_parts(world: World) -> None:
    world.server(max_buffer_bytes=8 << 20, data_dir=None)
    client = world.client()
    client.create(1, "/big", b"x" * (3 << 20))
    burst = b""
    for xid in range(2, 12):
        frame = write_int(xid) + write_int(OpCode.GET_DATA) + write_string("/big") + b"\0"
        burst += write_int(len(frame)) + frame
    client.connection.dataReceived(burst)
    assert client.replies() == [(xid, 0) for xid in range(1, 12)]


def test_a_full_socket_stops_the_client_and_a_dead_one_is_cut(world: World) -> None:
    server = world.server(data_dir=None, max_buffer_bytes=32 << 20)
    slow, writer = world.client(), world.client()
    record = write_string("/") + write_int(0)
    slow.send(write_int(1) + write_int(OpCode.ADD_WATCH) + record)
    slow.connection.pauseProducing()
    slow.get(2, "/")
    assert [xid for xid, _ in slow.replies()] == [1]
    assert slow.socket.paused
    slow.connection.resumeProducing()
    assert slow.replies() == [(2, 0)]
    slow.connection.pauseProducing()
    slow.connection._unsent_bytes = (256 << 20) - 10
    writer.create(3, "/a")
    assert slow.closed
    assert len(server.tree.data_watches.by_caller) == 0


def test_snapshots_are_made_on_the_way(world: World) -> None:
    server = world.server(snapshot_every=10)
    client = world.client()
    for number in range(35):
        client.create(number, f"/n{number}", b"x")
        world.threads.run_all()
    names = sorted(p.name[:9] for p in world.directory.iterdir())
    assert names.count("snapshot-") == 3
    image = server.tree.image()
    world.stop(server)
    assert world.server().tree.image() == image


def test_an_import_is_durable(world: World) -> None:
    first = world.server()
    client = world.client()
    client.create(1, "/a", b"data")
    client.create(2, "/a/b")
    world.threads.run_all()
    dump = first.export_tree()
    world.stop(first)
    other = World(world.directory.with_name("other"))
    server = other.server()
    other.client()
    importing = Deferred.fromCoroutine(server.import_tree(dump))
    other.threads.run_all()
    assert result_of(importing) == 2
    assert server.export_tree() == dump
    failure_of(Deferred.fromCoroutine(server.import_tree(dump)), ValueError)
    image = server.tree.image()
    other.stop(server)
    again = other.server()
    assert again.tree.image() == image
    client = other.client()
    client.create(1, "/a/c")
    other.threads.run_all()
    assert client.replies() == [(1, 0)]
    other.stop(again)


def test_session_ids_of_two_lives_in_memory_differ(world: World) -> None:
    first = world.server(data_dir=None)
    before = world.client().session_id
    world.stop(first)
    world.clock.advance(1)
    world.server(data_dir=None)
    assert world.client().session_id > before


def test_timeouts_are_negotiated_within_bounds(world: World) -> None:
    world.server(data_dir=None, tick_time_ms=100)
    granted = []
    for wanted in (1, 1000, 10_000):
        client = world.client(connect=False)
        client.connect(wanted)
        client.connected()
        granted.append(client.timeout_ms)
    assert granted == [200, 1000, 2000]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tick_time_ms": 0}, "tick_time_ms: 0, expected 1 or more"),
        ({"min_session_timeout_ms": 50, "max_session_timeout_ms": 40}, "expected at most"),
        ({"data_dir": "/x", "disk": None}, "data_dir needs a disk"),
    ],
)
def test_settings_are_checked(world: World, options: dict[str, Any], message: str) -> None:
    ports: dict[str, Any] = {"clock": world.clock, "random": world.random, "threads": world.threads}
    with pytest.raises(ValueError, match=message):
        CoordinationServer(listen=world.listen, **ports, **options)


def test_words_not_allowed_are_refused_politely(world: World) -> None:
    world.server(data_dir=None, four_letter_words=frozenset({"ruok"}))
    allowed, forbidden = world.client(connect=False), world.client(connect=False)
    allowed.connection.dataReceived(b"ruok")
    forbidden.connection.dataReceived(b"mntr")
    assert allowed.socket.sent == b"imok"
    assert forbidden.socket.sent == b"mntr is not executed because it is not in the whitelist.\n"
    assert allowed.closed
    assert forbidden.closed


def test_a_request_behind_an_error_is_still_served(world: World) -> None:
    world.server(data_dir=None)
    client = world.client()
    client.get(1, "/missing")
    client.get(2, "/")
    assert client.replies() == [(1, Code.NO_NODE), (2, 0)]
