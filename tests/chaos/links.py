"""A network for processes that does what it is told: relays before every listener.

Each server (broker or ZooKeeper) is reached through a relay on 127.0.0.1, and each end of the cluster
has a name: a broker id, `ZOOKEEPER`, or `CLIENTS` for everybody else.  A *way* is one direction between
two ends, whoever opened the connection.  On a blocked way nothing moves: bytes wait in the sockets, as
they do while a network is partitioned, and whoever sends learns nothing.  New connections are
accepted, as nobody can tell a slow server from one behind a cut, and then nothing comes through.

Who opened a connection to a broker stands in its first request: brokers name themselves there
("2" or "broker-2-fetcher-0").  Before ZooKeeper every broker has a relay of its own.
"""

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")

End = int | str
CLIENTS: Final = "clients"
ZOOKEEPER: Final = "zookeeper"

CHUNK_BYTES: Final = 1 << 16
FIRST_REQUEST_LIMIT_S: Final = 30.0
CALL_LIMIT_S: Final = 30.0
_HEAD: Final = struct.Struct(">ihhih")
_BROKER: Final = re.compile(r"(?:broker-)?(\d+)(?:-fetcher-\d+)?")


def opener_of(first_bytes: bytes) -> End | None:
    """Who sent these first bytes to a broker; None when there must be more of them."""
    if len(first_bytes) < _HEAD.size:
        return None
    _, _, _, _, length = _HEAD.unpack_from(first_bytes)
    if length <= 0:
        return CLIENTS
    if len(first_bytes) < _HEAD.size + length:
        return None
    name = first_bytes[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace")
    found = _BROKER.fullmatch(name)
    return int(found[1]) if found else CLIENTS


@dataclass(slots=True, eq=False)
class _Connection:
    opener: End
    owner: End
    streams: tuple[asyncio.StreamWriter, asyncio.StreamWriter]


@dataclass(slots=True)
class _Way:
    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0


class Network:
    """All relays, on an event loop in a thread of its own.  Methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ways: dict[tuple[End, End], _Way] = {}
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()

    def close(self) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_LIMIT_S)

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relay(self, owner: End, target: tuple[str, int], opener: End | None = None) -> int:
        """The port of a new relay before `owner`, who listens at `target`.

        `opener`: who connects to it; None: find out from the first request.
        """

        async def start() -> int:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._tasks.add(task)
                try:
                    await self._serve(reader, writer, owner, target, opener)
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    pass
                finally:
                    self._tasks.discard(task)
                    _end(writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            port: int = server.sockets[0].getsockname()[1]
            return port

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result(CALL_LIMIT_S)

    def block(self, ways: Iterable[tuple[End, End]]) -> None:
        """Nothing moves on these ways any more."""
        wanted = list(ways)

        def block() -> None:
            for way in wanted:
                self._way(*way).open.clear()

        self._call(block)

    def delay(self, ways: Iterable[tuple[End, End]], delay_s: float) -> None:
        """What moves on these ways takes so much longer; 0 ends it."""
        wanted = list(ways)

        def delay() -> None:
            for way in wanted:
                self._way(*way).delay_s = delay_s

        self._call(delay)

    def unblock(self, ways: Iterable[tuple[End, End]], *, reset: bool) -> None:
        """Bytes move again.  With `reset` the connections break instead, and what waited is lost."""
        wanted = list(ways)

        def unblock() -> None:
            if reset:
                self._break(wanted)
            for way in wanted:
                self._way(*way).open.set()

        self._call(unblock)

    def reset(self, ways: Iterable[tuple[End, End]]) -> None:
        """Break the connections on these ways."""
        wanted = list(ways)
        self._call(lambda: self._break(wanted))

    # On the loop.

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(CALL_LIMIT_S)

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()

    def _way(self, source: End, target: End) -> _Way:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = _Way()
            way.open.set()
        return way

    def _break(self, ways: list[tuple[End, End]]) -> None:
        pairs = {frozenset(way) for way in ways}
        for connection in list(self._connections):
            if frozenset((connection.opener, connection.owner)) in pairs:
                for stream in connection.streams:
                    stream.transport.abort()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        owner: End,
        target: tuple[str, int],
        opener: End | None,
    ) -> None:
        first = b""
        while opener is None:
            more = await asyncio.wait_for(reader.read(CHUNK_BYTES), FIRST_REQUEST_LIMIT_S)
            if not more:
                return
            first += more
            opener = opener_of(first)
        there, back = self._way(opener, owner), self._way(owner, opener)
        await there.open.wait()
        await back.open.wait()
        server_reader, server_writer = await asyncio.open_connection(*target)
        connection = _Connection(opener, owner, (writer, server_writer))
        self._connections.add(connection)
        for stream in (writer, server_writer):
            sock: Any = stream.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pumps = [
            asyncio.ensure_future(_pump(reader, server_writer, there, first)),
            asyncio.ensure_future(_pump(server_reader, writer, back, b"")),
        ]
        try:
            # An end that closes its side has gone: no peer here half-closes.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.gather(*pumps, return_exceptions=True)
            self._connections.discard(connection)
            _end(server_writer)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way, first: bytes
) -> None:
    data = first
    with contextlib.suppress(OSError):
        while True:
            if data:
                if way.delay_s:
                    await asyncio.sleep(way.delay_s)
                await way.open.wait()
                writer.write(data)
                await writer.drain()
            await way.open.wait()
            data = await reader.read(CHUNK_BYTES)
            if not data:
                await way.open.wait()
                return


def _end(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(Exception):
        writer.close()
