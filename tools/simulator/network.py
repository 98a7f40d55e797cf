"""The Network port in memory: byte pipes between named hosts, over any Clock.

Real frame protocols run over these pipes.  Each direction holds at most `WINDOW_BYTES` that the
receiver has not taken, as a kernel does, so slow readers, pauses and half-closed connections behave
as on a real machine.  A frame's memory is overwritten after `frame_received`, so that a protocol
which keeps a view fails loudly.

A machine's kernel and its process are apart: bytes arrive and connections are accepted while a process
is frozen; it hears of them when it runs again.  Where a link is cut, bytes wait in order until it is
healed, as TCP sends them again and again; a connection itself ends by `cut` or with its machine.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from twisted.internet.defer import Deferred, succeed

from kafkalike.runtime.ports import (
    Buffer,
    Clock,
    ConnectionTimeout,
    FileRange,
    FrameProtocol,
    ListeningPort,
    Random,
    SocketBuffers,
    UnknownHost,
)

LOGGER: Final = logging.getLogger("kafkalike.simulator")
WINDOW_BYTES: Final = 256 << 10
HIGH_WATER_BYTES: Final = 256 << 10
FIRST_PORT: Final = 20000
POISON: Final = b"\xdd"

RETRY_CONNECT_S: Final = 1.0
"""How long after a lost packet a connection is tried again."""

Accept = Callable[[str], FrameProtocol | None]
Carried = Callable[[str, str, bytes], object]
"""`(from_host, to_host, bytes)` as they arrive."""
Delay = Callable[[str, str, int], float | None]
"""`(from_host, to_host, byte_count) -> seconds`, or None when these bytes do not arrive for now."""


class Surroundings(Protocol):
    """What a simulated network needs to know of the process that uses it."""

    @property
    def clock(self) -> Clock: ...

    def enter(self, callback: Callable[..., object], *args: object) -> None:
        """Call now, later, or never, as the state of the process has it."""


class _Unprotected:
    """The surroundings of a process that always runs."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def enter(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)


class SimSocket:
    """One end of a byte pipe.  Test clients use it as it is; brokers see a SimTransport on top."""

    __slots__ = (
        "_arrives_s",
        "_coming",
        "_held_count",
        "_in_flight_bytes",
        "_internet",
        "_sender_waits",
        "_write_ended",
        "closed",
        "ended",
        "host",
        "inbox",
        "on_readable",
        "on_writable",
        "peer",
        "port",
    )

    def __init__(self, internet: "SimInternet", host: str, port: int) -> None:
        self._internet = internet
        self.host = host
        self.port = port
        self.peer: SimSocket
        self.inbox = bytearray()
        self._coming: deque[bytes | None] = deque()
        """What is on its way to this end; None is the end of the stream."""
        self._held_count = 0
        """How many of the last of these wait for their link to be healed."""
        self._in_flight_bytes = 0
        self._arrives_s = 0.0
        self.ended = False
        self.closed = False
        self.on_readable: Callable[[], object] = _nothing
        self.on_writable: Callable[[], object] = _nothing
        self._write_ended = False
        self._sender_waits = False

    def send(self, data: Buffer) -> int:
        """Hand over as many bytes as the other end has room for.  ConnectionError once it is closed."""
        if self.closed or self._write_ended:
            raise ConnectionError("this end of the pipe is closed")
        peer = self.peer
        if peer.closed and not self._internet.is_apart(self.host, peer.host):
            raise ConnectionError("the other end of the pipe is closed")
        room = WINDOW_BYTES - len(peer.inbox) - peer._in_flight_bytes
        taken = bytes(data) if len(data) <= room else bytes(memoryview(data)[: max(0, room)])
        if taken:
            peer._in_flight_bytes += len(taken)
            self._internet.carry(self, peer, taken)
        if len(taken) < len(data):
            peer._sender_waits = True
        return len(taken)

    def arrive(self) -> None:
        """The oldest of what is on its way is here."""
        if not self._coming:
            return  # lost with the connection
        data = self._coming.popleft()
        if data is None:
            if not self.closed:
                self.ended = True
                self.on_readable()
            return
        self._in_flight_bytes -= len(data)
        if not self.closed:
            self._internet.carried(self.peer.host, self.host, data)
            self.inbox += data
            self.on_readable()

    def recv(self, count: int) -> bytes:
        """Up to `count` bytes that have arrived; empty when there are none (see `ended`)."""
        inbox = self.inbox
        if count >= len(inbox):
            data = bytes(inbox)
            inbox.clear()
        else:
            data = bytes(inbox[:count])
            del inbox[:count]
        if self._sender_waits and data:
            self._sender_waits = False
            self._internet.clock.call_soon(self.peer._may_send)
        return data

    def _may_send(self) -> None:
        if not self.closed:
            self.on_writable()

    def end_write(self) -> None:
        """Half-close: the other end sees the end of the stream after all bytes sent before."""
        if not self._write_ended:
            self._write_ended = True
            self._internet.carry(self, self.peer, None)

    def close(self) -> None:
        """Close both directions."""
        if not self.closed:
            self.end_write()
            self._let_go()
            self._internet.clock.call_soon(self.peer._may_send)

    def _let_go(self) -> None:
        self.closed = True
        self.inbox.clear()
        self.on_readable = self.on_writable = _nothing
        self._internet.sockets.pop(id(self), None)

    def vanish(self) -> None:
        """The machine of this end is gone: nobody tells the other end."""
        self._write_ended = True
        self._let_go()

    def cut(self, random: Random | None = None) -> None:
        """Lose the connection for both ends at once, with all bytes on the way.

        With chance, some of the bytes on the way still arrive: a frame may be cut in its middle.
        """
        for end in (self, self.peer):
            arriving = b"".join(data for data in end._coming if data is not None)
            end._coming.clear()
            end._held_count = 0
            end._in_flight_bytes = 0
            if random is None:
                end.inbox.clear()
            elif arriving and not end.closed:
                end.inbox += arriving[: random.randrange(len(arriving) + 1)]
            end._write_ended = True
            if not end.closed:
                end.ended = True
                self._internet.clock.call_soon(_readable, end)


def _readable(end: SimSocket) -> None:
    end.on_readable()


def _nothing() -> None:
    return None


class SimTransport:
    """The Transport port over a SimSocket."""

    def __init__(
        self,
        sock: SimSocket,
        protocol: FrameProtocol,
        surroundings: Surroundings,
        max_frame_bytes: int,
        raw: bool = False,
    ) -> None:
        self.socket = sock
        self._protocol = protocol
        self._enter = surroundings.enter
        self._clock = surroundings.clock
        self._max_frame_bytes = max_frame_bytes
        self._raw = raw
        self._input = bytearray()
        self._queue: deque[memoryview | FileRange] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._closing: str | None = None
        self._lost_called = False
        self.peer_host = sock.peer.host
        self.peer_port = sock.peer.port
        self.local_host = sock.host
        self.local_port = sock.port

    def start(self) -> None:
        self.socket.on_readable = partial(self._enter, self._read)
        self.socket.on_writable = partial(self._enter, self._pump)
        try:
            self._protocol.connected(self)
        except Exception:
            LOGGER.exception("protocol failed host=%s peer=%s", self.local_host, self.peer_host)
            self._give_up("the protocol failed")
        self._clock.call_soon(self._read)

    @property
    def _held(self) -> bool:
        return (
            self._paused
            or self._closing is not None
            or self._lost_called
            or self._queued_bytes > HIGH_WATER_BYTES
        )

    def _read(self) -> None:
        sock, data = self.socket, self._input
        while not (
            self._paused
            or self._closing is not None
            or self._lost_called
            or self._queued_bytes > HIGH_WATER_BYTES
        ):
            there = len(data)
            if there < 4 and not (self._raw and there):
                if not sock.inbox:
                    break
                data += sock.recv(WINDOW_BYTES)
                continue
            if self._raw:
                self._deliver(0, there)
                continue
            size = int.from_bytes(data[:4], "big", signed=True)
            if not 0 < size <= self._max_frame_bytes:
                self._closing = f"frame size {size} is not within 1 to {self._max_frame_bytes}"
                self.close()
            elif there >= 4 + size:
                self._deliver(4, 4 + size)
            elif sock.inbox:
                data += sock.recv(WINDOW_BYTES)
            else:
                break
        if sock.ended and not sock.inbox and not self._held:
            self._closing = "closed by the peer"
            if not self._queue:
                self._lost(self._closing)

    def _deliver(self, start: int, end: int) -> None:
        """Take these bytes from the front of the input as a frame."""
        frame = self._input[start:end]
        del self._input[:end]
        try:
            self._protocol.frame_received(memoryview(frame))
        except Exception:
            LOGGER.exception("protocol failed host=%s peer=%s", self.local_host, self.peer_host)
            self._give_up("the protocol failed")
        frame[:] = POISON * (end - start)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._clock.call_soon(self._read)

    def write(self, parts: Sequence[Buffer | FileRange]) -> None:
        if self._closing is not None or self._lost_called:
            for part in parts:
                if isinstance(part, FileRange):
                    part.file.release()
            return
        whole: list[Buffer] = []
        for part in parts:
            self._queued_bytes += len(part)
            if isinstance(part, FileRange):
                if whole:
                    self._queue.append(memoryview(b"".join(whole)))
                    whole = []
                self._queue.append(part)
            else:
                whole.append(part)
        if whole:
            self._queue.append(memoryview(b"".join(whole)))
        if not self._lost_called:
            self._pump()

    def _pump(self) -> None:
        if self._lost_called:
            return
        was_held = self._held
        if len(self._queue) > 1:
            self._gather()
        while self._queue:
            part = self._queue[0]
            if isinstance(part, FileRange):
                data = memoryview(part.read())
                if len(data) < len(part):
                    self._give_up("a file was cut short while it was being sent")
                    return
                part.file.release()
                part = self._queue[0] = data
            try:
                sent = self.socket.send(part)
            except ConnectionError as error:
                self._give_up(f"sending failed: {error}")
                return
            self._queued_bytes -= sent
            if sent < len(part):
                self._queue[0] = part[sent:]
                break
            self._queue.popleft()
        if not self._queue and self._closing is not None:
            self._clock.call_soon(self._lost, self._closing)
        elif was_held and not self._held:
            self._clock.call_soon(self._read)

    def _gather(self) -> None:
        """Let small ranges of files travel with what is around them, as one segment does."""
        if self._queued_bytes > WINDOW_BYTES:
            return
        parts: list[Buffer] = []
        for part in self._queue:
            if isinstance(part, FileRange):
                data = part.read()
                if len(data) < len(part):
                    return  # found out again where it is sent
                parts.append(data)
            else:
                parts.append(part)
        for part in self._queue:
            if isinstance(part, FileRange):
                part.file.release()
        self._queue.clear()
        self._queue.append(memoryview(b"".join(parts)))

    def limit_frames(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes

    def unsent_bytes(self) -> int:
        return self._queued_bytes

    def close(self) -> None:
        if self._closing is None:
            self._closing = "closed"
        if not self._queue:
            self._clock.call_soon(self._lost, self._closing)

    def abort(self) -> None:
        self._give_up("aborted")

    def _give_up(self, reason: str) -> None:
        self._drop_queue()
        self._closing = self._closing or reason
        self._clock.call_soon(self._lost, self._closing)

    def _drop_queue(self) -> None:
        for part in self._queue:
            if isinstance(part, FileRange):
                part.file.release()
        self._queue.clear()
        self._queued_bytes = 0

    def _lost(self, reason: str) -> None:
        if not self._lost_called:
            self._lost_called = True
            self._drop_queue()
            self._input.clear()
            self.socket.close()
            self._protocol.disconnected(reason)


class SimListeningPort:
    """A listening address; connections that come while it is paused wait, up to `backlog`."""

    def __init__(
        self,
        internet: "SimInternet",
        host: str,
        port: int,
        accept: Accept,
        max_frame_bytes: int,
        backlog: int,
        raw: bool,
        surroundings: Surroundings,
    ) -> None:
        self._internet = internet
        self._surroundings = surroundings
        self.host = host
        self.port = port
        self._accept = accept
        self._max_frame_bytes = max_frame_bytes
        self._backlog = backlog
        self._raw = raw
        self._waiting: deque[SimSocket] = deque()
        self._paused = False

    def arrive(self, sock: SimSocket) -> bool:
        """A new connection; False when the backlog is full."""
        if len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(sock)
        self._surroundings.enter(self._accept_waiting)
        return True

    def _accept_waiting(self) -> None:
        while self._waiting and not self._paused:
            sock = self._waiting.popleft()
            protocol = self._accept(sock.peer.host)
            if protocol is None:
                sock.close()
            else:
                SimTransport(
                    sock, protocol, self._surroundings, self._max_frame_bytes, raw=self._raw
                ).start()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._surroundings.clock.call_soon(self._accept_waiting)

    def stop(self) -> "Deferred[None]":
        if self._internet.ports.get((self.host, self.port)) is self:
            del self._internet.ports[self.host, self.port]
        while self._waiting:
            self._waiting.popleft().close()
        return succeed(None)


class SimInternet:
    """All hosts of a simulated world and the pipes between them.

    `carried` hears of all bytes as they arrive.
    """

    def __init__(
        self,
        clock: Clock,
        delay: Delay = lambda source, target, count: 0.0,
        carried: Carried = lambda source, target, data: None,
    ) -> None:
        self.clock = clock
        self.delay = delay
        self.carried = carried
        self.ports: dict[tuple[str, int], SimListeningPort] = {}
        self.sockets: dict[int, SimSocket] = {}
        self._next_port = FIRST_PORT
        self._hosts: set[str] = set()

    def host(self, name: str, surroundings: Surroundings | None = None) -> "SimNetwork":
        """The Network port of one machine, for one process on it."""
        self._hosts.add(name)
        return SimNetwork(self, name, surroundings or _Unprotected(self.clock))

    def knows(self, name: str) -> bool:
        return name in self._hosts

    def is_apart(self, source: str, target: str) -> bool:
        """Whether what `source` sends does not arrive at `target` for now."""
        return self.delay(source, target, 0) is None

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def carry(self, source: SimSocket, target: SimSocket, data: bytes | None) -> None:
        """Put bytes, or the end of the stream, on their way; they arrive after what is before them."""
        target._coming.append(data)
        if target._held_count:
            target._held_count += 1
            return
        delay_s = self.delay(source.host, target.host, len(data) if data is not None else 0)
        if delay_s is None:
            target._held_count = 1
        else:
            self._schedule(target, delay_s)

    def _schedule(self, target: SimSocket, delay_s: float) -> None:
        now_s = self.clock.monotonic()
        arrives_s = now_s + delay_s
        if arrives_s < target._arrives_s:
            arrives_s = target._arrives_s
        else:
            target._arrives_s = arrives_s
        if arrives_s <= now_s:
            self.clock.call_soon(target.arrive)
        else:
            self.clock.call_later(arrives_s - now_s, target.arrive)

    def resume(self) -> None:
        """Links were healed: what waited for them goes on its way.

        Call it after `delay` has begun to give a time where it gave None before.
        """
        for source in self._every_end():
            target = source.peer
            if not target._held_count:
                continue
            delay_s = self.delay(source.host, target.host, 0)
            if delay_s is not None:
                count, target._held_count = target._held_count, 0
                for _ in range(count):
                    self._schedule(target, delay_s)

    def _every_end(self) -> list[SimSocket]:
        """Ends that may have sent something, also those closed since."""
        ends: dict[int, SimSocket] = {}
        for end in self.sockets.values():
            ends[id(end)] = end
            ends[id(end.peer)] = end.peer
        return list(ends.values())

    def sockets_of(self, host: str) -> list[SimSocket]:
        """Open ends on one machine, oldest first."""
        return [end for end in self.sockets.values() if end.host == host]

    def close_host(self, host: str, *, silently: bool = False) -> None:
        """The process on a machine has ended: its kernel closes all, or, `silently`, nobody does."""
        for key in [key for key in self.ports if key[0] == host]:
            self.ports.pop(key).stop()
        for end in self.sockets_of(host):
            if silently:
                end.vanish()
            else:
                end.cut()
                end._let_go()

    def reset_orphans(self, host: str) -> None:
        """A machine is back: what others still take for connections to it is refused."""
        for end in list(self.sockets.values()):
            if end.peer.host == host and end.peer.closed and not end.ended:
                end.cut()

    def clear(self) -> None:
        """Forget everything."""
        for end in list(self.sockets.values()):
            end._let_go()
        self.ports.clear()

    def pipe(self, source: str, target: str, port: int) -> tuple[SimSocket, SimSocket]:
        """Two connected ends."""
        client = SimSocket(self, source, self.next_port())
        server = SimSocket(self, target, port)
        client.peer, server.peer = server, client
        self.sockets[id(client)] = client
        self.sockets[id(server)] = server
        return client, server

    def connect_raw(self, source: str, target: str, port: int) -> SimSocket:
        """A bare connection for a test client.  ConnectionError when nobody listens there."""
        listening = self.ports.get((target, port))
        if listening is None:
            raise ConnectionError(f"cannot connect to {target}:{port}: connection refused")
        client, server = self.pipe(source, target, port)
        if not listening.arrive(server):
            client.close()
            raise ConnectionError(f"cannot connect to {target}:{port}: backlog is full")
        return client


class SimNetwork:
    """The Network port of one process on a simulated machine."""

    def __init__(self, internet: SimInternet, name: str, surroundings: Surroundings) -> None:
        self._internet = internet
        self._name = name
        self._surroundings = surroundings

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        max_frame_bytes: int,
        backlog: int = 50,
        tls: object | None = None,
        raw: bool = False,
        buffers: SocketBuffers | None = None,
    ) -> ListeningPort:
        port = port or self._internet.next_port()
        key = (self._name, port)
        if key in self._internet.ports:
            raise OSError(f"cannot bind {self._name}:{port}: address already in use")
        listening = SimListeningPort(
            self._internet,
            self._name,
            port,
            accept,
            max_frame_bytes,
            backlog,
            raw,
            self._surroundings,
        )
        self._internet.ports[key] = listening
        return listening

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
        internet, surroundings = self._internet, self._surroundings
        clock = surroundings.clock
        result: Deferred[None] = Deferred()

        def fail(error: ConnectionError) -> None:
            if not result.called:
                result.errback(error)

        def attempt() -> None:
            if result.called:
                return
            there_s = internet.delay(self._name, host, 0)
            if there_s is None or internet.is_apart(host, self._name):
                clock.call_later(RETRY_CONNECT_S, attempt)
            else:
                clock.call_later(there_s, arrive)

        def arrive() -> None:
            if result.called:
                return
            try:
                sock = internet.connect_raw(self._name, host, port)
            except ConnectionError as error:
                fail(error)
                return
            timer.cancel()
            SimTransport(sock, protocol, surroundings, max_frame_bytes).start()
            result.callback(None)

        timer = clock.call_later(
            timeout_s,
            fail,
            ConnectionTimeout(f"no connection to {host}:{port} within {timeout_s:g} s"),
        )
        if not internet.knows(host):
            clock.call_soon(fail, UnknownHost(f"{host}: no such host"))
        else:
            attempt()
        return result
