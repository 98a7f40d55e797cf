"""The outside world as seen by a broker: time, chance, files, threads, sockets.

Everything that a node needs from its surroundings enters through these protocols, so that the same
code runs on a real machine (`runtime/reactor.py`) and inside the simulator.  A class takes the two
or three ports it uses, never the whole `Runtime`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class StorageError(Exception):
    """A Disk or File could not do what it was asked: the log directory behind it is not usable."""


class NoSuchFile(StorageError):
    """The path does not exist."""


class LockHeld(StorageError):
    """Another process holds the lock."""


class UnknownHost(ConnectionError):
    """The name of a host has no address."""


class ConnectionTimeout(ConnectionError):
    """A connection was not established in time."""


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Forget the call; harmless when it already ran or was cancelled."""


class Clock(Protocol):
    """Time.  Wall-clock milliseconds go into records and znodes; monotonic seconds measure waits."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call once after `delay_s` seconds (0 = on a later turn) on the loop that owns the node."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call once when the events of the present turn are done, before the loop waits again.

        Cheaper than `call_later(0, ...)` and not cancellable: for work put together per turn (one
        write for many appends, fetchers woken after the producer has its answer).
        """


class Random(Protocol):
    """Chance."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop)."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""


class File(Protocol):
    """One open file.  Reads and writes go to the page cache; only `sync` waits for the device.

    Every method raises StorageError when the operating system refuses.
    """

    path: str

    def size(self) -> int:
        """Length in bytes."""

    def append(self, *buffers: Buffer) -> int:
        """Write all buffers at the end, in order; returns the position of the first byte."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to exactly `size` bytes."""

    def sync(self) -> None:
        """Return when all content is on the device.  Blocks: call it through Threads."""

    def is_cached(self, length: int, position: int) -> bool:
        """Whether a read of that range would not wait for the device (best effort)."""

    def fileno(self) -> int:
        """Descriptor for sendfile, or -1 where there is none (simulator)."""

    def retain(self) -> None:
        """One more user: `close` is put off until all have called `release`."""

    def release(self) -> None:
        """Undo one `retain`."""

    def close(self) -> None:
        """Let go of the descriptor once no user is left."""


@dataclass(slots=True, frozen=True)
class FileRange:
    """Bytes of a file that travel to a socket without passing through Python.

    Whoever queues a range retains the file; whoever has sent or dropped it releases the file.
    """

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves, for tests, TLS and the simulator."""
        return self.file.pread(self.length, self.position)


class DiskLock(Protocol):
    """An exclusive hold on a directory."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system.  Paths are absolute strings.  All methods raise StorageError (or NoSuchFile)."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Create the directory and its parents where missing."""

    def rename(self, source: str, target: str) -> None:
        """Atomic replacement within one file system."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None: ...

    def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        """Whole content; StorageError when it is larger than `limit`."""

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write `path + ".tmp"`, sync it, rename it over `path`, sync the directory.  Blocks."""

    def sync_dir(self, path: str) -> None:
        """Make renames and creations in the directory durable.  Blocks."""

    def lock(self, path: str) -> DiskLock:
        """Take the exclusive lock file; LockHeld when another process has it."""

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds `path`."""


class Threads(Protocol):
    """Where blocking calls go.  The result fires on the loop that owns the node."""

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run `function(*args)` elsewhere; errors arrive as failures."""


class Transport(Protocol):
    """The sending side of one connection."""

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    @property
    def local_host(self) -> str: ...

    @property
    def local_port(self) -> int: ...

    def write(self, parts: "Sequence[Buffer | FileRange]") -> None:
        """Send all parts in order, at once as far as the peer takes them.

        Takes over one `retain` of each range's file, also when the connection is already gone.
        The buffers belong to the transport from now on: they must not change any more.
        """

    def pause(self) -> None:
        """Deliver no further frames until `resume`; bytes stay in the kernel (backpressure)."""

    def resume(self) -> None:
        """Deliver frames again.  Never calls the protocol itself: frames come on a later turn."""

    def limit_frames(self, max_frame_bytes: int) -> None:
        """Another limit for the frames to come (smaller before authentication)."""

    def unsent_bytes(self) -> int:
        """What is still queued here."""

    def close(self) -> None:
        """Deliver no further frames and close once all that is queued has been sent."""

    def abort(self) -> None:
        """Deliver no further frames and close now, dropping what is queued."""


class FrameProtocol(Protocol):
    """The receiving side of one connection of length-prefixed frames (4 bytes, big-endian).

    No method of Transport calls back into the protocol: `frame_received` and `disconnected` always
    come from the loop.  When the peer ends its sending side, all whole frames are delivered first
    (also those held back by `pause`), then the queue is sent, then the connection is closed.  An
    exception out of any of these methods aborts the connection.
    """

    def connected(self, transport: Transport) -> None:
        """The connection is there; nothing else is called before this."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its prefix.

        The view is writable and valid only during this call: its memory is used again afterwards.
        """

    def disconnected(self, reason: str) -> None:
        """Called once, whoever closed; nothing is called after it."""


class ListeningPort(Protocol):
    host: str
    port: int

    def pause(self) -> None:
        """Leave new connections in the kernel's backlog."""

    def resume(self) -> None:
        """Accept again."""

    def stop(self) -> "Deferred[None]":
        """Accept no more; existing connections stay."""


class SocketBuffers(NamedTuple):
    """Bytes that the kernel may hold for a connection in each direction; -1 leaves that to it.

    Left to itself it lets a fast local sender run megabytes ahead of its reader, and everything then
    passes through memory instead of the processor's cache: a third less throughput.
    """

    send_bytes: int = -1
    receive_bytes: int = -1


class Network(Protocol):
    """Connections.  `tls` is an opaque context made by the real runtime, or None."""

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
        buffers: "SocketBuffers | None" = None,
    ) -> ListeningPort:
        """Serve; `accept(peer_host)` makes the protocol of a new connection or refuses with None.

        An empty host means all addresses, port 0 any free port.  Raises OSError when the address
        cannot be bound.  A frame of more than `max_frame_bytes`, or of size zero or below, closes
        its connection.  With `raw` there are no frames: bytes are delivered as they come.
        """

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
        """Open a connection; fires after `protocol.connected`.

        `host` may be a name: its addresses, IPv4 or IPv6, are tried in the resolver's order within
        `timeout_s` together.  Fails with ConnectionError (ConnectionTimeout, UnknownHost); the
        protocol is then never called, except that a failed TLS handshake, which comes after
        `connected`, reaches `disconnected` too.
        """


class Worker(Protocol):
    """A helper process for long CPU work, named by job, path and range (compaction, recovery)."""

    def run(self, job: str, argument: dict[str, Any]) -> "Deferred[dict[str, Any]]": ...


@dataclass(slots=True, frozen=True)
class Runtime:
    """One of each port; made once by the entry point and handed on piece by piece."""

    clock: Clock
    random: Random
    disk: Disk
    threads: Threads
    network: Network
    worker: Worker | None = None
