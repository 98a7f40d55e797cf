"""The Network port in memory: byte pipes between named hosts, over any Clock.

Real frame protocols run over these pipes.  Each direction holds at most `WINDOW_BYTES` that the
receiver has not taken, as a kernel does, so slow readers, pauses and half-closed connections behave
as on a real machine.  A frame's memory is overwritten after `frame_received`, so that a protocol
which keeps a view fails loudly.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred, succeed

from kafkalike.runtime.ports import (
    Buffer,
    Clock,
    ConnectionTimeout,
    FileRange,
    FrameProtocol,
    ListeningPort,
    UnknownHost,
)

LOGGER: Final = logging.getLogger("kafkalike.simulator")
WINDOW_BYTES: Final = 256 << 10
HIGH_WATER_BYTES: Final = 256 << 10
FIRST_PORT: Final = 20000
POISON: Final = 0xDD

Accept = Callable[[str], FrameProtocol | None]
Delay = Callable[[str, str, int], float | None]
"""`(from_host, to_host, byte_count) -> seconds`, or None when these bytes do not arrive for now."""


class SimSocket:
    """One end of a byte pipe.  Test clients use it as it is; brokers see a SimTransport on top."""

    def __init__(self, internet: "SimInternet", host: str, port: int) -> None:
        self._internet = internet
        self.host = host
        self.port = port
        self.peer: SimSocket
        self.inbox = bytearray()
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
        if peer.closed:
            raise ConnectionError("the other end of the pipe is closed")
        room = WINDOW_BYTES - len(peer.inbox) - peer._in_flight_bytes
        taken = bytes(memoryview(data)[: max(0, room)])
        if taken:
            peer._in_flight_bytes += len(taken)
            self._internet.carry(self, peer, len(taken), peer._arrived, taken)
        if len(taken) < len(data):
            peer._sender_waits = True
        return len(taken)

    def _arrived(self, data: bytes) -> None:
        self._in_flight_bytes -= len(data)
        if not self.closed:
            self.inbox += data
            self.on_readable()

    def recv(self, count: int) -> bytes:
        """Up to `count` bytes that have arrived; empty when there are none (see `ended`)."""
        data = bytes(self.inbox[:count])
        del self.inbox[:count]
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
            self._internet.carry(self, self.peer, 0, self.peer._end_arrived)

    def _end_arrived(self) -> None:
        if not self.closed:
            self.ended = True
            self.on_readable()

    def close(self) -> None:
        """Close both directions."""
        if not self.closed:
            self.end_write()
            self.closed = True
            self.inbox.clear()
            self._internet.sockets.pop(id(self), None)
            self._internet.clock.call_soon(self.peer._may_send)

    def cut(self) -> None:
        """Lose the connection for both ends at once, with all bytes on the way."""
        for end in (self, self.peer):
            end.inbox.clear()
            end._write_ended = True
            if not end.closed:
                end.ended = True
                self._internet.clock.call_soon(end.on_readable)


def _nothing() -> None:
    return None


class SimTransport:
    """The Transport port over a SimSocket."""

    def __init__(
        self,
        sock: SimSocket,
        protocol: FrameProtocol,
        clock: Clock,
        max_frame_bytes: int,
        raw: bool = False,
    ) -> None:
        self.socket = sock
        self._protocol = protocol
        self._clock = clock
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
        self.socket.on_readable = self._read
        self.socket.on_writable = self._pump
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
        while not self._held:
            if not self._deliver_one():
                data = self.socket.recv(WINDOW_BYTES)
                if not data:
                    break
                self._input += data
        if self.socket.ended and not self.socket.inbox and not self._held:
            self._closing = "closed by the peer"
            if not self._queue:
                self._lost(self._closing)

    def _deliver_one(self) -> bool:
        """Deliver one frame if there is a whole one."""
        if self._raw and self._input:
            return self._deliver(len(self._input))
        if len(self._input) < 4:
            return False
        size = int.from_bytes(self._input[:4], "big", signed=True)
        if not 0 < size <= self._max_frame_bytes:
            self._closing = f"frame size {size} is not within 1 to {self._max_frame_bytes}"
            self.close()
            return False
        if len(self._input) < 4 + size:
            return False
        del self._input[:4]
        return self._deliver(size)

    def _deliver(self, size: int) -> bool:
        frame = bytearray(self._input[:size])
        del self._input[:size]
        try:
            self._protocol.frame_received(memoryview(frame))
        except Exception:
            LOGGER.exception("protocol failed host=%s peer=%s", self.local_host, self.peer_host)
            self._give_up("the protocol failed")
        frame[:] = bytes((POISON,)) * size
        return True

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
        for part in parts:
            self._queued_bytes += len(part)
            self._queue.append(part if isinstance(part, FileRange) else memoryview(part).cast("B"))
        self._pump()

    def _pump(self) -> None:
        if self._lost_called:
            return
        was_held = self._held
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
    ) -> None:
        self._internet = internet
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
        if self._paused and len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(sock)
        self._accept_waiting()
        return True

    def _accept_waiting(self) -> None:
        while self._waiting and not self._paused:
            sock = self._waiting.popleft()
            protocol = self._accept(sock.peer.host)
            if protocol is None:
                sock.close()
            else:
                SimTransport(
                    sock, protocol, self._internet.clock, self._max_frame_bytes, raw=self._raw
                ).start()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._internet.clock.call_soon(self._accept_waiting)

    def stop(self) -> "Deferred[None]":
        self._internet.ports.pop((self.host, self.port), None)
        while self._waiting:
            self._waiting.popleft().close()
        return succeed(None)


class SimInternet:
    """All hosts of a simulated world and the pipes between them."""

    def __init__(self, clock: Clock, delay: Delay = lambda source, target, count: 0.0) -> None:
        self.clock = clock
        self.delay = delay
        self.ports: dict[tuple[str, int], SimListeningPort] = {}
        self.sockets: dict[int, SimSocket] = {}
        self._next_port = FIRST_PORT
        self._hosts: set[str] = set()

    def host(self, name: str) -> "SimNetwork":
        """The Network port of one machine."""
        self._hosts.add(name)
        return SimNetwork(self, name)

    def knows(self, name: str) -> bool:
        return name in self._hosts

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def carry(
        self,
        source: SimSocket,
        target: SimSocket,
        count: int,
        deliver: Callable[..., object],
        *args: object,
    ) -> None:
        """Call `deliver` when bytes sent now arrive; never before what was sent earlier."""
        delay_s = self.delay(source.host, target.host, count)
        if delay_s is None:
            return
        now_s = self.clock.monotonic()
        target._arrives_s = max(target._arrives_s, now_s + delay_s)
        if target._arrives_s <= now_s:
            self.clock.call_soon(deliver, *args)
        else:
            self.clock.call_later(target._arrives_s - now_s, deliver, *args)

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
    """The Network port of one simulated machine."""

    def __init__(self, internet: SimInternet, name: str) -> None:
        self._internet = internet
        self._name = name

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
    ) -> ListeningPort:
        port = port or self._internet.next_port()
        key = (self._name, port)
        if key in self._internet.ports:
            raise OSError(f"cannot bind {self._name}:{port}: address already in use")
        listening = SimListeningPort(
            self._internet, self._name, port, accept, max_frame_bytes, backlog, raw
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
        clock = self._internet.clock
        result: Deferred[None] = Deferred()

        def fail(error: ConnectionError) -> None:
            if not result.called:
                result.errback(error)

        def arrive() -> None:
            if result.called:
                return
            try:
                sock = self._internet.connect_raw(self._name, host, port)
            except ConnectionError as error:
                fail(error)
                return
            timer.cancel()
            SimTransport(sock, protocol, clock, max_frame_bytes).start()
            result.callback(None)

        timer = clock.call_later(
            timeout_s,
            fail,
            ConnectionTimeout(f"no connection to {host}:{port} within {timeout_s:g} s"),
        )
        delay_s = self._internet.delay(self._name, host, 0)
        if not self._internet.knows(host):
            clock.call_soon(fail, UnknownHost(f"{host}: no such host"))
        elif delay_s is not None:
            clock.call_later(delay_s, arrive)
        return result
