"""One log directory as its logs see it: files, ordered background work, the end when the disk fails.

Logs run on the loop and never wait for the device.  What must wait (fsync, checkpoints, removal) is
handed to `LogDirectory.run` or `later`: jobs of one directory run one after the other through
Threads, in the order given, so that a newer checkpoint is never overwritten by an older one
(reference: log-store 10).
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kafkalike.errors import KafkaStorageError
from kafkalike.runtime.ports import Clock, Disk, File, Random, StorageError, Threads

T = TypeVar("T")

_logger = logging.getLogger(__name__)

INDEX_CACHE_BYTES: Final = 64 << 20


def make_lasting(disk: Disk, path: str) -> None:
    """Create a log directory where it is missing, so that a power loss does not take it away again
    with all that is synced in it.  Raises StorageError."""
    if not disk.is_dir(path):
        disk.make_dirs(path)
        disk.sync_dir(path.rpartition("/")[0] or "/")


class PooledFile(Protocol):
    """Somebody who keeps a file open through a FilePool."""

    recently_used: bool

    def close_file(self) -> File | None:
        """Give up the open file, to be opened again when needed."""


class FilePool:
    """Bounds the descriptors of a broker: files are opened when used, the idle ones closed again.

    A file is really closed at the end of the loop's turn: until then a range of it may be on its way
    to a socket, whose transport then holds its own `retain`.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock = clock
        self._limit = limit
        self._holders: dict[PooledFile, None] = {}

    def opened(self, holder: PooledFile) -> None:
        """`holder` has just opened its file."""
        self._holders[holder] = None
        if len(self._holders) > self._limit:
            self._make_room()

    def _make_room(self) -> None:
        # The clock algorithm: whoever was used since the last look gets another round.
        for _ in range(2 * len(self._holders)):
            holder = next(iter(self._holders))
            del self._holders[holder]
            if holder.recently_used:
                holder.recently_used = False
                self._holders[holder] = None
                continue
            file = holder.close_file()
            if file is not None:
                self.close_soon(file)
                return

    def forget(self, holder: PooledFile) -> None:
        """`holder` has closed its file itself."""
        self._holders.pop(holder, None)

    def close_soon(self, file: File) -> None:
        """Close when nothing of this turn can still need it."""
        self._clock.call_soon(file.close)

    def __len__(self) -> int:
        return len(self._holders)


class CachedIndex(Protocol):
    """An index whose entries can be read again from its file."""

    def drop_entries(self) -> None:
        """Let go of the entries in memory."""


class IndexCache:
    """Bounds the memory of the indexes of old segments; the least recently used go first."""

    def __init__(self, limit_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._sizes: OrderedDict[CachedIndex, int] = OrderedDict()
        self._total = 0

    def used(self, index: CachedIndex, size_bytes: int) -> None:
        """`index` holds `size_bytes` of entries and was looked at."""
        known = self._sizes.get(index)
        if known is not None:
            self._sizes.move_to_end(index)
            return
        self._sizes[index] = size_bytes
        self._total += size_bytes
        while self._total > self._limit_bytes and len(self._sizes) > 1:
            oldest, size = self._sizes.popitem(last=False)
            self._total -= size
            oldest.drop_entries()

    def forget(self, index: CachedIndex) -> None:
        """`index` is no longer kept or no longer evictable."""
        self._total -= self._sizes.pop(index, 0)


def _nobody_cares() -> None: ...


class LogDirectory:
    """One of log.dirs."""

    def __init__(
        self,
        path: str,
        *,
        disk: Disk,
        clock: Clock,
        random: Random,
        threads: Threads,
        files: FilePool,
        indexes: IndexCache,
        on_failure: Callable[["LogDirectory", StorageError], None],
    ) -> None:
        self.path = path
        self.disk = disk
        self.clock = clock
        self.random = random
        self.files = files
        self.indexes = indexes
        self.is_loading = False
        """Its logs are being loaded, in Threads: what needs repair is repaired at once."""
        self.on_recovery_point_lowered: Callable[[], None] = _nobody_cares
        """A log was cut below what its checkpoint calls synced: that has to be written soon, or what is
        appended there passes for synced after a power loss."""
        self.failure: StorageError | None = None
        self._threads = threads
        self._on_failure = on_failure
        self._jobs: deque[tuple[Callable[[], object], Deferred[Any], str]] = deque()
        self._running = False

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def fail(self, error: StorageError) -> KafkaStorageError:
        """Take the directory offline, once; returns what callers raise to their callers."""
        if self.failure is None:
            self.failure = error
            _logger.error("log directory failed dir=%s problem=%s", self.path, error)
            self._on_failure(self, error)
        return KafkaStorageError(f"Log directory {self.path} is offline")

    def check_online(self) -> None:
        """Raise KafkaStorageError when the directory has failed (KAFKA-10778)."""
        if self.failure is not None:
            raise KafkaStorageError(f"Log directory {self.path} is offline")

    def run(self, job: Callable[[], T], what: str) -> "Deferred[T]":
        """Run `job` through Threads after the jobs given before; fires on the loop.

        A StorageError takes the directory offline and comes as KafkaStorageError.
        """
        done: Deferred[Any] = Deferred()
        self._jobs.append((job, done, what))
        self._pump()
        return done

    def later(
        self, job: Callable[[], T], what: str, then: Callable[[T], object] | None = None
    ) -> None:
        """Like `run` for whoever does not wait: `then` gets the result; errors were logged here."""
        done = self.run(job, what)
        if then is not None:
            done.addCallback(then)
        done.addErrback(self._report, what)

    def _report(self, failure: Failure, what: str) -> None:
        if not failure.check(KafkaStorageError):
            _logger.error("job failed dir=%s job=%s", self.path, what, exc_info=failure.value)

    @property
    def pending_jobs(self) -> int:
        return len(self._jobs) + self._running

    def _pump(self) -> None:
        while self._jobs and not self._running:
            job, done, _ = self._jobs.popleft()
            if self.failure is not None:
                done.errback(KafkaStorageError(f"Log directory {self.path} is offline"))
                continue
            self._running = True
            self._threads.run(job).addBoth(self._settle, done)

    def _settle(self, value: object, done: "Deferred[Any]") -> None:
        self._running = False
        if isinstance(value, Failure) and isinstance(value.value, StorageError):
            value = Failure(self.fail(value.value))
        done.callback(value)  # a Failure takes the error path
        self._pump()
