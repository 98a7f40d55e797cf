"""One TCP connection of length-prefixed frames: few system calls, few copies, no joins.

Receiving: `recv_into` one buffer that all connections of a loop share; whole frames are handed out
as views of it.  A frame that is not complete moves into a pooled buffer of its own, into which the
kernel then writes directly.  A buffer of which somebody still holds a view after its frames were
handled is not used again, so a handler that keeps a view costs memory, never a mixed-up record.

Sending: at once while the queue is empty, but small parts wait for the end of a turn in which there is
more to do (see `SharedOutput`).  What the peer does not take waits in one deque of views and file
ranges (`sendfile`, preceded by MSG_MORE), at most `TURN_BYTES` per turn.  A range that is not in the
page cache is read by a thread first, so that the loop does not wait for the device.

While more than `HIGH_WATER_BYTES` are unsent no frame is delivered: a client that does not read its
answers gets no further ones computed.

The class speaks to a Twisted reactor as a plain descriptor (`doRead`, `doWrite`, `connectionLost`), so
it runs on every reactor that has `addReader`.
"""

import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Final

from .ports import Buffer, Clock, File, FileRange, FrameProtocol, StorageError, Threads

SHARED_BYTES: Final = 256 << 10
TURN_BYTES: Final = 4 << 20
HIGH_WATER_BYTES: Final = 256 << 10
SMALL_BYTES: Final = 4 << 10
SMALL_PARTS: Final = 32
SENDERS: Final = 32
WARM_STEP_BYTES: Final = 1 << 20
EAGER_BYTES: Final = 64 << 20
POOL_BYTES: Final = 64 << 20
SMALLEST_BYTES: Final = 20 << 10
EAGER_FRAME_BYTES: Final = 1280 << 10

_PREFIX = struct.Struct(">i")
_MSG_MORE: Final[int] = socket.MSG_MORE

# Why no frames are delivered; a connection may have several reasons at once.
_PAUSED: Final = 1
_FULL: Final = 2
_ENDED: Final = 4


class BufferPool:
    """Buffers for frames that come in pieces, in sizes of 20 KiB times a power of four.

    Free buffers are kept up to `POOL_BYTES`.  While less than `EAGER_BYTES` are lent out, a frame of up
    to `EAGER_FRAME_BYTES` gets its whole buffer at once; otherwise the buffer follows the bytes that
    really came, so that a length prefix alone never takes much memory.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self.free_bytes = 0
        self.lent_bytes = 0

    def take(self, frame_bytes: int, have_bytes: int) -> bytearray:
        """A buffer with room for more than `have_bytes` of a frame of `frame_bytes`."""
        wanted = have_bytes + 1
        if frame_bytes <= EAGER_FRAME_BYTES and self.lent_bytes < EAGER_BYTES:
            wanted = frame_bytes
        size = SMALLEST_BYTES
        while size < wanted:
            size *= 4
        self.lent_bytes += size
        free = self._free.get(size)
        if free:
            self.free_bytes -= size
            return free.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer; one that is still seen through some view is left to its viewers.

        The caller must hold exactly one reference to it and no view.
        """
        size = len(buffer)
        self.lent_bytes -= size
        # the caller's variable, our parameter, getrefcount's parameter
        if getrefcount(buffer) <= 3 and self.free_bytes + size <= POOL_BYTES:
            self.free_bytes += size
            self._free.setdefault(size, []).append(buffer)


class SharedInput:
    """What all connections of one loop receive into, and the pool for incomplete frames."""

    __slots__ = ("buffer", "pool")

    def __init__(self) -> None:
        self.buffer = bytearray(SHARED_BYTES)
        self.pool = BufferPool()

    def renew_if_seen(self) -> None:
        """Leave the buffer to whoever still holds a view of it."""
        if getrefcount(self.buffer) > 2:
            self.buffer = bytearray(SHARED_BYTES)


class SharedOutput:
    """The small writes of one turn of a loop, sent one after the other when it is over.

    A send wakes the peer's process, which costs the sender several microseconds, more in a virtual
    machine.  When answers go out between computations, each wakes a peer that has gone back to
    sleep; when they go out together, the first one does.  Sixteen connections with small requests
    got 1.3 times the rate and 0.7 times the p99 by it (docs/benchmarks.md).

    `crowded` tells that this turn has more than one event or frame; the loop says so at its start.
    In a turn that is not, nothing waits.  At most `SENDERS` connections with `SMALL_PARTS` parts each
    wait, and nobody waits while a large frame is handled.

    With `polled`, the loop itself calls `flush`, once it has asked which sockets are to be read next:
    whoever has just got an answer then takes part in the turn after the next one, and nobody is
    overtaken by others that ask again quickly (p99 0.8 times).  Else a turn's end flushes.
    """

    __slots__ = ("_polled", "_senders", "crowded")

    def __init__(self, *, polled: bool = False) -> None:
        self.crowded = False
        self._polled = polled
        self._senders: list[FrameTransport] = []

    @property
    def waiting(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._senders)

    def add(self, sender: "FrameTransport", clock: Clock) -> None:
        """Have `sender.send_small` called before the loop sleeps."""
        senders = self._senders
        senders.append(sender)
        if len(senders) == SENDERS:
            self.flush()
        elif len(senders) == 1 and not self._polled:
            clock.call_soon(self.flush)

    def flush(self) -> None:
        """Let all who wait send now."""
        if self._senders:
            senders, self._senders = self._senders, []
            for sender in senders:
                sender.send_small()


class _Range:
    """A file range on its way out; `warm_until` is the position up to which it may be sent."""

    __slots__ = ("end", "file", "position", "warm_until")

    def __init__(self, range_: FileRange) -> None:
        self.file: File = range_.file
        self.position = range_.position
        self.end = range_.position + range_.length
        self.warm_until = range_.position


def read_ahead(file: File, length: int, position: int) -> None:
    """Bring a range into the page cache; runs in a thread."""
    end = position + length
    while position < end:
        got = len(file.pread(min(SHARED_BYTES, end - position), position))
        if got == 0:
            return
        position += got


class FrameTransport:
    """See the module; implements the Transport port over one connected, non-blocking socket."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_closing",
        "_fd",
        "_filled",
        "_head",
        "_held",
        "_held_position",
        "_hold",
        "_logger",
        "_lost_called",
        "_max_frame_bytes",
        "_need",
        "_on_ready",
        "_output",
        "_partial",
        "_protocol",
        "_queue",
        "_queued_bytes",
        "_reactor",
        "_reading",
        "_shared",
        "_small",
        "_socket",
        "_threads",
        "_warming",
        "_writing",
        "peer_host",
        "peer_port",
    )

    def __init__(
        self,
        sock: socket.socket,
        protocol: FrameProtocol,
        *,
        reactor: Any,
        clock: Clock,
        threads: Threads,
        shared: SharedInput,
        output: SharedOutput,
        max_frame_bytes: int,
        peer: tuple[str, int],
        logger: logging.Logger,
        on_ready: Callable[[ConnectionError | None], object] | None = None,
    ) -> None:
        """`on_ready` is called once: with None when frames can flow, with an error when they never
        will (a TLS handshake that failed)."""
        self._socket = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._reactor = reactor
        self._clock = clock
        self._threads = threads
        self._shared = shared
        self._output = output
        self._max_frame_bytes = max_frame_bytes
        self._logger = logger
        self._on_ready = on_ready
        self.peer_host, self.peer_port = peer
        self._hold = 0
        self._reading = False
        self._writing = False
        self._closing: str | None = None
        self._lost_called = False
        self._warming = False
        self._queue: deque[memoryview | _Range] = deque()
        self._queued_bytes = 0
        self._small: list[bytes] = []
        self._head = b""
        self._held: bytearray | None = None
        self._held_position = 0
        self._partial: bytearray | None = None
        self._need = 0
        self._filled = 0

    def start(self) -> None:
        """Introduce the protocol and begin to receive."""
        self._introduce()
        if not self._hold:
            self._start_reading()
        self._ready(None)

    def _introduce(self) -> None:
        try:
            self._protocol.connected(self)
        except Exception:
            self._protocol_failed()

    def _ready(self, error: ConnectionError | None) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready(error)

    # What the reactor asks for.

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "kafkalike"

    def doRead(self) -> None:
        if self._hold or self._held is not None:
            # Paused without a system call; only a peer that goes on sending makes it cost one.
            self._stop_reading()
        elif self._partial is not None:
            self._read_partial()
        else:
            self._read_shared()

    def doWrite(self) -> None:
        self._pump()
        if not self._queue and self._closing is not None:
            self._lost(self._closing)

    def connectionLost(self, failure: Any) -> None:
        """The reactor saw an error or hang-up on the descriptor."""
        self._lost(f"connection lost: {failure.getErrorMessage()}")

    # Receiving.

    def _receive_into(self, buffer: "bytearray | memoryview") -> int:
        """Bytes received; 0 at the end of the stream, -1 when there is nothing now."""
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return -1

    def _read_shared(self) -> None:
        shared = self._shared
        view = memoryview(shared.buffer)
        head = self._head
        start = len(head)
        try:
            if start:
                view[:start] = head
                self._head = b""
                count = self._receive_into(view[start:])
            else:
                count = self._receive_into(shared.buffer)
        except OSError as error:
            self._lost(f"receiving failed: {error}")
            return
        if count <= 0:
            self._head = head
            if count == 0:
                self._end_of_stream()
            return
        end = start + count
        position = self._parse(shared.buffer, view, 0, end)
        if position < end and not self._hold & _ENDED:
            self._held = bytearray(view[position:end])
            self._held_position = 0
        del view
        shared.renew_if_seen()

    def _parse(self, buffer: bytearray, view: memoryview, position: int, end: int) -> int:
        """Deliver whole frames; returns where it stopped because delivery is on hold, else `end`."""
        protocol = self._protocol
        while not self._hold:
            start = position + 4
            if start > end:
                self._head = bytes(view[position:end])
                position = end
                break
            (size,) = _PREFIX.unpack_from(buffer, position)
            if not 0 < size <= self._max_frame_bytes:
                self._bad_size(size)
                break
            position = start + size
            if position > end:
                self._begin_partial(view, start, end, size)
                position = end
                break
            if position < end:
                self._output.crowded = True
            try:
                protocol.frame_received(view[start:position])
            except Exception:
                self._protocol_failed()
                break
            if position == end:
                break
        return position

    def _begin_partial(self, view: memoryview, start: int, end: int, size: int) -> None:
        have = end - start
        partial = self._shared.pool.take(size, have)
        partial[:have] = view[start:end]
        self._partial = partial
        self._need = size
        self._filled = have

    def _read_partial(self) -> None:
        if self._partial is not None and self._filled == len(self._partial):
            self._grow()
        partial = self._partial
        assert partial is not None
        need = self._need
        limit = min(need, len(partial))
        view = memoryview(partial)
        try:
            count = self._receive_into(view[self._filled : limit])
        except OSError as error:
            self._lost(f"receiving failed: {error}")
            return
        if count <= 0:
            if count == 0:
                self._end_of_stream()
            return
        self._filled += count
        if self._filled < need:
            return
        self._partial = None
        self._output.flush()
        try:
            self._protocol.frame_received(view[:need])
        except Exception:
            self._protocol_failed()
        if self._small:
            self.send_small()
        del view
        self._shared.pool.give(partial)

    def _grow(self) -> None:
        full = self._partial
        assert full is not None
        larger = self._shared.pool.take(self._need, self._filled)
        larger[: self._filled] = full
        self._partial = larger
        self._shared.pool.give(full)

    def _bad_size(self, size: int) -> None:
        self._logger.warning(
            "closing connection: frame size out of range peer=%s:%d size=%d allowed=1..%d",
            self.peer_host,
            self.peer_port,
            size,
            self._max_frame_bytes,
        )
        self._end(f"frame size {size} is not within 1 to {self._max_frame_bytes}")

    def _protocol_failed(self) -> None:
        self._logger.exception(
            "closing connection: its protocol failed peer=%s:%d", self.peer_host, self.peer_port
        )
        self._give_up("the protocol failed")

    def _end_of_stream(self) -> None:
        """The peer sends no more: what is queued still goes out, then the connection ends."""
        self._stop_reading()
        self._hold |= _ENDED
        if self._small:
            self.send_small()
        if self._queue:
            self._closing = "closed by the peer"
        else:
            self._lost("closed by the peer")

    def pause(self) -> None:
        self._hold |= _PAUSED

    def resume(self) -> None:
        if self._hold & _PAUSED:
            self._hold &= ~_PAUSED
            self._go_on()

    def _go_on(self) -> None:
        if self._hold:
            return
        if self._held is not None:
            self._clock.call_soon(self._deliver_held)
        else:
            self._start_reading()

    def _deliver_held(self) -> None:
        held = self._held
        if self._hold or held is None:
            return
        end = len(held)
        position = self._parse(held, memoryview(held), self._held_position, end)
        if position < end:
            self._held_position = position
        else:
            self._held = None
            if not self._hold:
                self._start_reading()

    def _start_reading(self) -> None:
        if not self._reading and not self._lost_called:
            self._reading = True
            self._reactor.addReader(self)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._reactor.removeReader(self)

    # Sending.

    def write(self, parts: "Sequence[Buffer | FileRange]") -> None:
        queue = self._queue
        if self._closing is not None or self._lost_called:
            for part in parts:
                if isinstance(part, FileRange):
                    part.file.release()
            return
        if len(parts) == 1 and type(data := parts[0]) is bytes and not queue:
            if self._output.crowded and len(data) <= SMALL_BYTES:
                small = self._small
                small.append(data)
                if len(small) == 1:
                    self._output.add(self, self._clock)
                elif len(small) == SMALL_PARTS:
                    self.send_small()
                return
            if self._small:
                self.send_small()
            if queue:
                self._enqueue(parts)
            else:
                self._send_one(data)
        else:
            if self._small:
                self.send_small()
            was_empty = not queue
            self._enqueue(parts)
            if was_empty:
                self._pump()
        if self._queued_bytes > HIGH_WATER_BYTES:
            self._hold |= _FULL

    def send_small(self) -> None:
        """Send the small parts that waited for the end of the turn."""
        small = self._small
        if small:
            data = small[0] if len(small) == 1 else b"".join(small)
            small.clear()
            self._send_one(data)

    def _send_one(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._give_up(f"sending failed: {error}")
            return
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:])
            self._queued_bytes += len(data) - sent
            self._start_writing()

    def _enqueue(self, parts: "Sequence[Buffer | FileRange]") -> None:
        for part in parts:
            length = len(part)
            if isinstance(part, FileRange):
                if length == 0:
                    part.file.release()
                    continue
                self._queue.append(_Range(part))
            elif length:
                self._queue.append(memoryview(part).cast("B"))
            self._queued_bytes += length

    def _pump(self) -> None:
        """Send until the queue is empty, the peer takes no more, or the turn's share is used up."""
        if self._warming or self._lost_called:
            return
        queue = self._queue
        budget = TURN_BYTES
        try:
            while queue and budget > 0:
                part = queue[0]
                if isinstance(part, memoryview):
                    sent = self._send_buffer(part, len(queue) > 1)
                    wanted = len(part)
                    if sent == wanted:
                        queue.popleft()
                    elif sent > 0:
                        queue[0] = part[sent:]
                else:
                    if part.position >= part.warm_until and not self._is_warm(part):
                        if self._warming:
                            self._stop_writing()
                        return
                    wanted = min(part.warm_until - part.position, budget)
                    sent = self._send_range(part, wanted)
                    if sent == 0:
                        self._file_cut_short(part)
                        return
                    if sent > 0:
                        part.position += sent
                        if part.position == part.end:
                            queue.popleft()
                            part.file.release()
                if sent > 0:
                    budget -= sent
                    self._queued_bytes -= sent
                if sent < wanted:
                    break
        except (OSError, StorageError) as error:
            self._give_up(f"sending failed: {error}")
            return
        if queue:
            self._start_writing()
        else:
            self._stop_writing()
        if self._hold & _FULL and self._queued_bytes <= HIGH_WATER_BYTES:
            self._hold &= ~_FULL
            self._go_on()

    def _send_buffer(self, data: memoryview, more: bool) -> int:
        """Bytes taken, or -1 when the peer takes none now."""
        try:
            return self._socket.send(data, _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return -1

    def _send_range(self, part: _Range, wanted: int) -> int:
        """Bytes taken, 0 when the file has no such bytes, -1 when the peer takes none now."""
        try:
            return os.sendfile(self._fd, part.file.fileno(), part.position, wanted)
        except (BlockingIOError, InterruptedError):
            return -1

    def _is_warm(self, part: _Range) -> bool:
        """Allow the next step of a range to be sent, or have it read by a thread first."""
        length = min(part.end - part.position, WARM_STEP_BYTES)
        if part.file.is_cached(length, part.position):
            part.warm_until = part.position + length
            return True
        self._warming = True
        part.file.retain()

        def warmed(_: object) -> None:
            self._warming = False
            part.file.release()
            if self._lost_called:
                return
            part.warm_until = part.position + length
            self.doWrite()

        def failed(failure: Any) -> None:
            self._warming = False
            part.file.release()
            self._give_up(f"reading ahead failed: {failure.getErrorMessage()}")

        self._threads.run(read_ahead, part.file, length, part.position).addCallbacks(warmed, failed)
        return False

    def _file_cut_short(self, part: _Range) -> None:
        self._logger.warning(
            "closing connection: file is shorter than the range being sent"
            " peer=%s:%d file=%s position=%d end=%d",
            self.peer_host,
            self.peer_port,
            part.file.path,
            part.position,
            part.end,
        )
        self._give_up("a file was cut short while it was being sent")

    def limit_frames(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes

    def unsent_bytes(self) -> int:
        return self._queued_bytes + sum(map(len, self._small))

    def _start_writing(self) -> None:
        if not self._writing and not self._lost_called:
            self._writing = True
            self._reactor.addWriter(self)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)

    # The end.

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._give_up("aborted")

    def _give_up(self, reason: str) -> None:
        """End without sending what is queued; the protocol hears of it on a later turn."""
        self._drop_queue()
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        if self._small:
            self.send_small()
        self._hold |= _ENDED
        self._held = None
        if self._closing is None:
            self._closing = reason or "closed"
            self._stop_reading()
        if not self._queue:
            self._clock.call_soon(self._lost, self._closing)

    def _drop_queue(self) -> None:
        for part in self._queue:
            if isinstance(part, _Range):
                part.file.release()
        self._queue.clear()
        self._queued_bytes = 0
        self._small.clear()

    def _lost(self, reason: str) -> None:
        if self._lost_called:
            return
        self._lost_called = True
        self._hold |= _ENDED
        self._held = None
        self._stop_reading()
        self._stop_writing()
        self._drop_queue()
        partial = self._partial
        if partial is not None:
            self._partial = None
            self._shared.pool.give(partial)
        self._fd = -1
        self._close_socket()
        self._ready(ConnectionError(reason))
        try:
            self._protocol.disconnected(reason)
        except Exception:
            self._logger.exception(
                "protocol failed after its connection ended peer=%s:%d",
                self.peer_host,
                self.peer_port,
            )

    def _close_socket(self) -> None:
        self._socket.close()

    # Addresses.

    @property
    def local_host(self) -> str:
        return str(self._socket.getsockname()[0]) if self._fd >= 0 else ""

    @property
    def local_port(self) -> int:
        return int(self._socket.getsockname()[1]) if self._fd >= 0 else 0


class RawTransport(FrameTransport):
    """The same without frames: the protocol gets bytes as they come."""

    __slots__ = ()

    def _parse(self, buffer: bytearray, view: memoryview, position: int, end: int) -> int:
        if self._hold:
            return position
        try:
            self._protocol.frame_received(view[position:end])
        except Exception:
            self._protocol_failed()
        return end
