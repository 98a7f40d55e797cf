"""The ports of a broker with faults that can be switched on: links, disk, answers.

Wrapped around the real ports of a broker that runs for tests (`kafkalike up --control-port`).  The
broker itself is the same code and cannot tell these from a bad network or a full disk.

A link is one direction between two brokers.  Every connection between brokers is opened by one of
them, and faults act at the side that opened it, on both directions; bytes that a cut link holds back
are delivered when it is healed, in order, as TCP would after a network partition.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred

from kafkalike.broker.handlers.request import Handler, RequestContext, Route
from kafkalike.errors import KafkaError, error_class
from kafkalike.runtime.ports import (
    Clock,
    ConnectionTimeout,
    Disk,
    File,
    FrameProtocol,
    ListeningPort,
    Network,
    Runtime,
    SocketBuffers,
    StorageError,
    Transport,
)
from kafkalike.runtime.tasks import as_deferred, sleep

from .forwarding import ForwardingTransport
from .lane import Lane
from .links import OPEN, SUPERVISOR_CLIENT_ID, Direction


class _Connection(ForwardingTransport):
    """A connection that this broker opened to another; stands between transport and protocol."""

    def __init__(self, network: "FaultNetwork", peer: int, protocol: FrameProtocol) -> None:
        super().__init__()
        self._network = network
        self._peer = peer
        self._protocol = protocol
        self._out = Lane(network.clock, self._depart)
        self._in = Lane(network.clock, self._arrive)
        self._closing = False
        self._ended = False

    def set(self, send: Direction, receive: Direction) -> None:
        self._out.set(send)
        self._in.set(receive)

    # The protocol of the real transport.

    def connected(self, transport: Transport) -> None:
        self._transport = transport
        self._network.add(self, self._peer)
        self._protocol.connected(self)

    def frame_received(self, frame: memoryview) -> None:
        if self._in.is_clear and not self._paused:
            self._protocol.frame_received(frame)
        elif not self._closing:
            # The view ends with this call.
            self._in.put(memoryview(bytearray(frame)))

    def disconnected(self, reason: str) -> None:
        """Whoever is behind a cut link does not learn that the other side has gone."""
        for parts in self._out.drain():
            self._transport.write(parts)  # lets go of the files behind them
        if self._closing:
            self._end(reason)
        else:
            self._in.put(reason)

    def _depart(self, parts: Any) -> None:
        self._transport.write(parts)

    def _arrive(self, item: Any) -> None:
        if self._ended:
            return
        if isinstance(item, str):
            self._end(item)
        elif not self._closing:
            self._protocol.frame_received(item)

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._in.drain()
            self._network.remove(self, self._peer)
            self._protocol.disconnected(reason)

    # The transport of the real protocol.

    def write(self, parts: Any) -> None:
        if self._out.is_clear or self._closing:
            self._transport.write(parts)
        else:
            self._out.put(parts)

    def close(self) -> None:
        self._leave(self._transport.close)

    def abort(self) -> None:
        self._leave(self._transport.abort)

    def _leave(self, leave: Callable[[], object]) -> None:
        waiting_end = [item for item in self._in.drain() if isinstance(item, str)]
        self._closing = True
        for parts in self._out.drain():
            self._transport.write(parts)
        leave()
        if waiting_end:
            self._network.clock.call_soon(self._end, waiting_end[0])


class FaultNetwork:
    """A Network whose connections to other brokers obey the state of their links."""

    def __init__(self, network: Network, clock: Clock, own_id: int) -> None:
        self.clock = clock
        self._network = network
        self._own_id = own_id
        self._peers: dict[tuple[str, int], int] = {}
        self._links: dict[int, tuple[Direction, Direction]] = {}
        self._connections: dict[int, dict[_Connection, None]] = {}
        self._opening: dict[int, dict[Callable[[], None], None]] = {}

    def set_peers(self, peers: Mapping[tuple[str, int], int]) -> None:
        """Which broker listens at which address."""
        self._peers = dict(peers)

    def set_link(self, peer: int, *, send: Direction, receive: Direction) -> None:
        """From now on, towards `peer` and back, on present and future connections."""
        self._links[peer] = (send, receive)
        for connection in list(self._connections.get(peer, ())):
            connection.set(send, receive)
        if not send.cut and not receive.cut:
            for go_on in list(self._opening.pop(peer, ())):
                go_on()

    def link(self, peer: int) -> tuple[Direction, Direction]:
        """(send, receive)"""
        return self._links.get(peer, (OPEN, OPEN))

    def add(self, connection: _Connection, peer: int) -> None:
        self._connections.setdefault(peer, {})[connection] = None
        connection.set(*self.link(peer))

    def remove(self, connection: _Connection, peer: int) -> None:
        self._connections.get(peer, {}).pop(connection, None)

    def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[str], FrameProtocol | None],
        *,
        max_frame_bytes: int,
        backlog: int = 50,
        tls: object | None = None,
        raw: bool = False,
        buffers: SocketBuffers | None = None,
    ) -> ListeningPort:
        return self._network.listen(
            host,
            port,
            accept,
            max_frame_bytes=max_frame_bytes,
            backlog=backlog,
            tls=tls,
            raw=raw,
            buffers=buffers,
        )

    def connect(
        self,
        host: str,
        port: int,
        protocol: FrameProtocol,
        *,
        timeout_s: float,
        max_frame_bytes: int,
        tls: object | None = None,
    ) -> "Deferred[None]":
        peer = self._peers.get((host, port))
        if peer is None or peer == self._own_id:
            return self._network.connect(
                host,
                port,
                protocol,
                timeout_s=timeout_s,
                max_frame_bytes=max_frame_bytes,
                tls=tls,
            )
        broker = peer

        def go(left_s: float) -> "Deferred[None]":
            return self._network.connect(
                host,
                port,
                _Connection(self, broker, protocol),
                timeout_s=left_s,
                max_frame_bytes=max_frame_bytes,
                tls=tls,
            )

        send, receive = self.link(peer)
        if not send.cut and not receive.cut:
            return go(timeout_s)
        return Deferred.fromCoroutine(self._connect_later(peer, go, host, port, timeout_s))

    async def _connect_later(
        self,
        peer: int,
        go: Callable[[float], "Deferred[None]"],
        host: str,
        port: int,
        timeout_s: float,
    ) -> None:
        """The handshake is lost on a cut link and tried again until it heals or time is up."""
        healed: Deferred[bool] = Deferred()

        def settle(value: bool) -> None:
            if not healed.called:
                healed.callback(value)

        def heal() -> None:
            settle(True)

        deadline_s = self.clock.monotonic() + timeout_s
        timer = self.clock.call_later(timeout_s, settle, False)
        waiting = self._opening.setdefault(peer, {})
        waiting[heal] = None
        try:
            in_time = await healed
        finally:
            timer.cancel()
            waiting.pop(heal, None)
        if not in_time:
            raise ConnectionTimeout(f"no connection to {host}:{port} within {timeout_s:g} s")
        await go(max(0.001, deadline_s - self.clock.monotonic()))


class FaultFile:
    """A File on a disk that may be full."""

    __slots__ = ("_disk", "_file", "fileno", "is_cached", "path", "pread", "release", "retain")

    def __init__(self, file: File, disk: "FaultDisk") -> None:
        self._file = file
        self._disk = disk
        self.path = file.path
        self.pread = file.pread
        self.is_cached = file.is_cached
        self.fileno = file.fileno
        self.retain = file.retain
        self.release = file.release

    def size(self) -> int:
        return self._file.size()

    def append(self, *buffers: Any) -> int:
        self._disk.check(self.path)
        return self._file.append(*buffers)

    def pwrite(self, data: Any, position: int) -> None:
        self._disk.check(self.path)
        self._file.pwrite(data, position)

    def truncate(self, size: int) -> None:
        if size > self._file.size():
            self._disk.check(self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FaultDisk:
    """A Disk that refuses every write while `full`, as a device without space does."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.full = False
        self.exists = disk.exists
        self.is_dir = disk.is_dir
        self.list = disk.list
        self.rename = disk.rename
        self.remove = disk.remove
        self.remove_tree = disk.remove_tree
        self.size = disk.size
        self.mtime_ms = disk.mtime_ms
        self.set_mtime_ms = disk.set_mtime_ms
        self.read_file = disk.read_file
        self.sync_dir = disk.sync_dir
        self.lock = disk.lock

    def check(self, path: str) -> None:
        """Raises StorageError while the disk is full."""
        if self.full:
            raise StorageError(f"{path}: No space left on device")

    def open(self, path: str, *, create: bool = False) -> FaultFile:
        if create and not self._disk.exists(path):
            self.check(path)
        return FaultFile(self._disk.open(path, create=create), self)

    def make_dirs(self, path: str) -> None:
        if not self._disk.is_dir(path):
            self.check(path)
        self._disk.make_dirs(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check(path)
        self._disk.write_atomic(path, data)

    def space(self, path: str) -> tuple[int, int]:
        total, usable = self._disk.space(path)
        return total, 0 if self.full else usable


@dataclass(slots=True)
class _PushedError:
    code: int | None
    """None: close the connection instead of answering."""
    applied: bool
    topic: str | None


class AnswerFaults:
    """Errors in place of answers, and answers that come late, per API."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._errors: dict[int, deque[_PushedError]] = {}
        self._delays: dict[int, float] = {}

    def push(
        self, api_key: int, codes: list[int | None], *, applied: bool, topic: str | None
    ) -> None:
        """The next requests of this API fail with these codes, one each, in order.

        With `applied` the request is carried out first, so that only its answer is wrong.  `topic`
        narrows it to requests that name the topic.
        """
        queue = self._errors.setdefault(api_key, deque())
        queue.extend(_PushedError(code, applied, topic) for code in codes)

    def delay(self, api_key: int, delay_s: float) -> None:
        """Hold every answer of this API back for so long; 0 ends it."""
        if delay_s > 0:
            self._delays[api_key] = delay_s
        else:
            self._delays.pop(api_key, None)

    def clear(self) -> None:
        self._errors.clear()
        self._delays.clear()

    def pending(self) -> dict[int, int]:
        """API key -> how many pushed errors nobody has met so far."""
        return {key: len(queue) for key, queue in self._errors.items() if queue}

    def wrap(self, route: Route) -> Route:
        """The same route, answering as told here; replication is left alone."""
        api_key, handler = route.api_key, route.handler

        def handle(request: Any, ctx: RequestContext) -> Any:
            if not (self._errors or self._delays) or _is_spared(ctx):
                return handler(request, ctx)
            error = self._take(api_key, request)
            delay_s = self._delays.get(api_key, 0.0)
            if error is None and not delay_s:
                return handler(request, ctx)
            return self._handle(handler, request, ctx, error, delay_s)

        return replace(route, handler=handle)

    def _take(self, api_key: int, request: Any) -> _PushedError | None:
        queue = self._errors.get(api_key)
        if not queue:
            return None
        if queue[0].topic is not None and queue[0].topic not in topics_of(request):
            return None
        error = queue.popleft()
        if not queue:
            del self._errors[api_key]
        return error

    async def _handle(
        self,
        handler: Handler,
        request: Any,
        ctx: RequestContext,
        error: _PushedError | None,
        delay_s: float,
    ) -> Any:
        answer = None
        if error is None or error.applied:
            # At once: the bytes of the request are gone when this call has returned.
            answer = handler(request, ctx)
            if hasattr(answer, "__await__"):
                answer = await as_deferred(answer)
        if delay_s:
            await sleep(self._clock, delay_s)
        if error is None:
            return answer
        if error.code is None:
            ctx.close_connection("a test wants it so")
            return None
        raise _as_exception(error.code)


def topics_of(request: Any) -> set[str]:
    """Names of the topics that a request is about, as far as it names any."""
    found: set[str] = set()
    for field in ("topic_data", "topics", "topic_names"):
        for topic in getattr(request, field, None) or ():
            name = topic if isinstance(topic, str) else getattr(topic, "name", None)
            name = name or getattr(topic, "topic", None)
            if isinstance(name, str):
                found.add(name)
    return found


def _is_spared(ctx: RequestContext) -> bool:
    """Replication and the supervisor's own questions: pushed errors are meant for clients."""
    client_id = ctx.client_id or ""
    return client_id == SUPERVISOR_CLIENT_ID or "-fetcher-" in client_id


def _as_exception(code: int) -> KafkaError:
    return error_class(code)("pushed by a test")


class BrokerFaults:
    """All faults of one broker, and the commands that switch them.

    Commands are mappings with a `do` and what it needs; `obey` answers with a mapping, and raises
    ValueError for what it does not understand.
    """

    def __init__(
        self, runtime: Runtime, own_id: int, session: Callable[[], tuple[int, bytes]]
    ) -> None:
        """`session` gives id and password of the broker's ZooKeeper session."""
        self.network = FaultNetwork(runtime.network, runtime.clock, own_id)
        self.disk = FaultDisk(runtime.disk)
        self.answers = AnswerFaults(runtime.clock)
        self.runtime = replace(runtime, network=self.network, disk=self.disk)
        self._session = session

    def obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        do = command["do"]
        if do == "peers":
            self.network.set_peers(
                {(host, port): peer for host, port, peer in command["addresses"]}
            )
        elif do == "link":
            self.network.set_link(
                command["peer"],
                send=Direction(*command["send"]),
                receive=Direction(*command["receive"]),
            )
        elif do == "disk":
            self.disk.full = command["full"]
        elif do == "push_errors":
            self.answers.push(
                command["api_key"],
                command["codes"],
                applied=command["applied"],
                topic=command["topic"],
            )
        elif do == "latency":
            self.answers.delay(command["api_key"], command["delay_s"])
        elif do == "clear_answers":
            self.answers.clear()
        elif do == "pending_errors":
            return {"pending": {str(k): n for k, n in self.answers.pending().items()}}
        elif do == "session":
            session_id, password = self._session()
            return {"session_id": session_id, "password": password.hex()}
        else:
            raise ValueError(f"unknown command {do!r}")
        return {}
