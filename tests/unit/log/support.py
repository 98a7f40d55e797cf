"""A log on a disk in memory, and batches as producers and leaders send them."""

from collections.abc import Sequence

from kafkalike.broker.log.directory import FilePool, IndexCache, LogDirectory
from kafkalike.broker.log.loader import LoadRequest, load_log
from kafkalike.broker.log.log import Log
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.config import LogConfig
from kafkalike.records.batch import encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.control import EndTransactionMarker, encode_marker
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.ports import FileRange, StorageError
from kafkalike.tools.simulator.disk import MemoryDisk
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, InlineThreads

T0 = TopicPartition("t", 0)
ROOT = "/data"
PATH = "/data/t-0"
NOW = 1_700_000_000_000


def config(**settings: object) -> LogConfig:
    """Topic settings by attribute name: `config(segment_bytes=1000)`."""
    return LogConfig().with_overrides(
        {name.replace("_", "."): str(value) for name, value in settings.items()}
    )


def records(*values: str | None, timestamp: int = NOW, key: bytes | None = None) -> list[Record]:
    return [
        Record(key, None if value is None else value.encode(), timestamp + number)
        for number, value in enumerate(values)
    ]


def batch(
    *values: str | None,
    timestamp: int = NOW,
    key: bytes | None = None,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    epoch: int = -1,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """One batch; `producer` is (id, epoch, base sequence)."""
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        records(*values, timestamp=timestamp, key=key),
        base_offset=base_offset,
        codec=codec,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    producer: tuple[int, int], *, commit: bool, coordinator_epoch: int = 0, timestamp: int = NOW
) -> bytearray:
    return encode_marker(
        EndTransactionMarker(commit, coordinator_epoch),
        producer_id=producer[0],
        producer_epoch=producer[1],
        timestamp=timestamp,
    )


class Crash(Exception):
    """The process ends here."""


class CrashAt:
    """The `before` of a disk: the process ends ahead of operation number `at` and does nothing more."""

    def __init__(self, at: int, error: type[BaseException] = Crash) -> None:
        self._left = at
        self._error = error

    def __call__(self, operation: str, path: str) -> None:
        if self._left == 0:
            raise self._error
        self._left -= 1


class World:
    """One log directory on one disk, over several lives of the process."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.clock = FakeClock(NOW)
        self.disk = disk or MemoryDisk(self.clock.now_ms)
        self.failures: list[StorageError] = []
        if not self.disk.exists(PATH):
            self.disk.make_dirs(PATH)
            self.disk.sync_dir("/")
            self.disk.sync_dir(ROOT)
        self.directory = self.new_directory()

    def new_directory(self) -> LogDirectory:
        return LogDirectory(
            ROOT,
            disk=self.disk,
            clock=self.clock,
            random=FakeRandom(),
            threads=InlineThreads(),
            files=FilePool(self.clock, 1000),
            indexes=IndexCache(),
            on_failure=lambda directory, error: self.failures.append(error),
        )

    def load(
        self,
        settings: LogConfig | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        cleaned_offset: int = 0,
    ) -> Log:
        """The log as a new process finds it."""
        self.directory = self.new_directory()
        return load_log(
            self.directory,
            PATH,
            LoadRequest(
                T0,
                settings or config(),
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                cleaned_offset=cleaned_offset,
                is_clean=clean,
            ),
        )


def contents(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, read through the log's own read path."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, FetchIsolation.LOG_END, min_one_message=True)
        if not isinstance(data.records, FileRange):
            break
        before = offset
        for one in iterate_batches(data.records.read()):
            found.extend((r.offset, r.value) for r in one.records() if r.offset >= before)
            offset = max(offset, one.next_offset)
        assert offset > before, f"a read at {before} brought nothing"
    return found


def values_of(log: Log) -> list[str]:
    return [(value or b"").decode() for _, value in contents(log)]


def append(log: Log, *values: str, epoch: int = 1, **fields: object) -> int:
    """Append one batch as leader; returns its first offset."""
    data = batch(*values, **fields)  # type: ignore[arg-type]
    return log.append_as_leader(data, epoch, now_ms=NOW).first_offset


def names(world: World, suffix: str = "") -> Sequence[str]:
    return [name for name in world.disk.list(PATH) if name.endswith(suffix)]
