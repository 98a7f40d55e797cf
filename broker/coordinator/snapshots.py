"""Keeps the snapshots of the partitions of `__consumer_offsets` that are on this broker.

Leaders and followers alike: whoever becomes leader finds its own.  A snapshot is made of the log
alone, up to the high watermark, by reading the last one and what came since; it never asks the
coordinator.  One at a time, in slices that run in Threads, with pauses, as compaction does.

Written is a file of another name, synced, and then renamed; a crash leaves the old one or the new one.
Losing one costs a longer load and nothing else, so trouble with the disk here takes no log directory
offline.
"""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, succeed

from kafkalike.errors import KafkaError
from kafkalike.records.batch import CorruptBatch
from kafkalike.runtime.ports import Clock, Disk, NoSuchFile, StorageError, Threads
from kafkalike.runtime.tasks import Tasks, sleep
from kafkalike.types import TopicPartition

from ..cluster.topic_names import GROUP_METADATA_TOPIC
from ..log.log import Log
from ..log.segment import LogSegment, walk
from ..replica.partition import Partition
from ..replica.roles import RoleChanges
from .proof import SnapshotVoid, Steps, check_follows, open_snapshot, read_snapshot
from .replay import Replay
from .snapshot import (
    FILE_NAME,
    NO_TOPIC_ID,
    TEMPORARY_NAME,
    DamagedSnapshot,
    Header,
    write_snapshot,
)

T = TypeVar("T")

CHECK_S: Final = 10.0
"""Between two looks at all partitions."""
PAUSE_FACTOR: Final = 2.0
"""A slice is followed by a pause of so many times its length."""
SLICE_STEPS: Final = 200
"""Chances to pause that a slice lets pass."""
SLICE_S: Final = 0.005
"""How long work on the loop goes on."""
BYTES_OF_KEY: Final = 48
"""A little more than an offset takes in a snapshot: tells about how many there are by its size."""
GROWTH: Final = 0.5
"""A snapshot is made anew when the records behind it are this share of those in it."""

_logger = logging.getLogger(__name__)


class _Range(NamedTuple):
    """Batches of one segment."""

    path: str
    position: int
    stop: int


class SnapshotKeeper:
    """Makes snapshots of the partitions that `partition(key)` finds.

    One is due when `min_records` offsets lie behind the last one, and `growth` times as many as it
    holds keys.  With 0 records none is made.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        disk: Disk,
        threads: Threads,
        partition: Callable[[TopicPartition], Partition | None],
        min_records: int,
        growth: float = GROWTH,
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._threads = threads
        self._partition = partition
        self._min_records = min_records
        self._growth = growth
        self._hosted: dict[int, None] = {}
        self._kept: dict[int, tuple[str, int, int]] = {}
        """Partition -> directory, end offset and keys of its snapshot; missing: not looked at yet."""
        self._tasks = Tasks(_logger)
        self._sleeping: Deferred[None] | None = None
        self._ended: Deferred[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Look every `CHECK_S` for what is due."""
        if self._min_records:
            self._ended = self._tasks.spawn(self._run(), "snapshots of groups")

    def stop(self) -> "Deferred[None]":
        """Fires when nothing of it runs any more; work under way is thrown away."""
        self._is_stopping = True
        if self._sleeping is not None:
            self._sleeping.cancel()
        return self._ended or succeed(None)

    def roles_changed(self, changes: RoleChanges) -> None:
        """Partitions that are on this broker, or no longer."""
        for partition in (*changes.leaders, *changes.followers):
            key = partition.topic_partition
            if key.topic == GROUP_METADATA_TOPIC:
                self._hosted[key.partition] = None
        for stopped in changes.stopped:
            key = stopped.topic_partition
            if key.topic == GROUP_METADATA_TOPIC:
                self._hosted.pop(key.partition, None)
                self._kept.pop(key.partition, None)

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._sleep(CHECK_S)
            for number in list(self._hosted):
                if self._is_stopping:
                    return
                await self.look(number)

    async def _sleep(self, delay_s: float) -> None:
        self._sleeping = sleep(self._clock, delay_s)
        try:
            await self._sleeping
        finally:
            self._sleeping = None

    async def look(self, number: int) -> bool:
        """Make a snapshot of one partition if it is due; True when one was made."""
        log = self._log(number)
        if log is None or not self._is_due(number, log):
            return False
        try:
            return await self._make(number, log)
        except SnapshotVoid as error:
            _logger.info("no snapshot of %s: %s", log.topic_partition, error)
        except (KafkaError, StorageError, CorruptBatch) as error:
            if self._log(number) is log:
                _logger.warning("no snapshot of %s: %s", log.topic_partition, error)
        return False

    def _log(self, number: int) -> Log | None:
        partition = self._partition(TopicPartition(GROUP_METADATA_TOPIC, number))
        log = None if partition is None else partition.log
        if log is None or log.is_closed or not log.directory.is_online:
            return None
        return log

    def _is_due(self, number: int, log: Log) -> bool:
        folder, end, count = self._kept.get(number, ("", 0, 0))
        if folder != log.dir or end > log.high_watermark:
            end, count = log.log_start_offset, 0  # none yet, or the log was cut
        return log.high_watermark - end >= max(self._min_records, int(count * self._growth))

    # -- making one ----------------------------------------------------------------------------

    async def _make(self, number: int, log: Log) -> bool:
        began_s = self._clock.monotonic()
        segments = list(log.segments)
        truncations = log.truncations
        start_offset = log.log_start_offset
        bound = log.high_watermark

        def is_void() -> bool:
            same = log.segments[: len(segments)] == segments and log.truncations == truncations
            return (
                self._is_stopping
                or log.is_closed
                or not same
                or log.log_start_offset != start_offset
            )

        replay = await self._begin(number, log, bound)
        if replay is None or is_void():
            return False
        ranges = _ranges(log, segments, max(replay.position, start_offset), bound)
        target = f"{log.dir}/{TEMPORARY_NAME}"
        job = _write(self._disk, log, ranges, replay, bound, target)
        worker = _Worker(job, self._clock.monotonic)
        try:
            while not await self._threads.run(worker.advance):
                await self._sleep(worker.took_s * PAUSE_FACTOR)
                if is_void():
                    return False
            if is_void():
                return False
            await self._threads.run(partial(_publish, self._disk, log.dir))
        finally:
            worker.close()
            await self._threads.run(partial(_remove, self._disk, target))
        count = _count(replay)
        self._kept[number] = (log.dir, replay.position, count)
        _logger.info(
            "snapshot partition=%s offset=%d groups=%d keys=%d bytes=%d seconds=%.3f",
            log.topic_partition,
            replay.position,
            len(replay.offsets),
            count,
            worker.result,
            self._clock.monotonic() - began_s,
        )
        return True

    async def _begin(self, number: int, log: Log, bound: int) -> Replay | None:
        """What the last snapshot holds, or nothing; None when that one is good enough."""
        found = await self._drive(open_snapshot(log, self._disk, _logger))
        if found is not None:
            try:
                end, about = found.header.mark.next_offset, found.size // BYTES_OF_KEY
                self._kept[number] = (log.dir, end, about)
                if not self._is_due(number, log):
                    return None
                replay = Replay(str(log.topic_partition), _logger)
                await self._drive(read_snapshot(found, replay))
                return replay
            except (DamagedSnapshot, StorageError) as error:
                _logger.warning("snapshot %s is not used: %s", found.file.path, error)
            finally:
                found.file.close()
        return Replay(str(log.topic_partition), _logger)

    async def _drive(self, steps: Steps[T]) -> T:
        """Work that looks at the log: here, in slices, what may block in Threads."""
        received: Any = None
        deadline_s = self._clock.monotonic() + SLICE_S
        while True:
            try:
                if isinstance(received, Exception):
                    wanted = steps.throw(received)
                else:
                    wanted = steps.send(received)
            except StopIteration as stop:
                result: T = stop.value
                return result
            received = None
            if wanted is not None:
                try:
                    received = await self._threads.run(wanted)
                except StorageError as error:
                    received = error
                deadline_s = self._clock.monotonic() + SLICE_S
            elif self._clock.monotonic() >= deadline_s:
                await self._sleep(0)
                deadline_s = self._clock.monotonic() + SLICE_S


def _count(replay: Replay) -> int:
    """Keys in a settled replay."""
    return len(replay.others) + sum(map(len, replay.offsets.values()))


class _Worker:
    """Drives steps where they may block."""

    def __init__(self, steps: Steps[Any], monotonic: Callable[[], float]) -> None:
        self._steps = steps
        self._monotonic = monotonic
        self.result: Any = None
        self.took_s = 0.0
        """How long the last slice was."""

    def advance(self) -> bool:
        """A slice; True when the work is done."""
        began_s = self._monotonic()
        try:
            for _ in range(SLICE_STEPS):
                next(self._steps)
        except StopIteration as stop:
            self.result = stop.value
            return True
        self.took_s = self._monotonic() - began_s
        return False

    def close(self) -> None:
        """Give the work up, if it has not ended; its files are closed."""
        self._steps.close()


def _ranges(log: Log, segments: list[LogSegment], first: int, bound: int) -> list[_Range]:
    """Where the batches from `first` up to `bound` lie."""
    found = []
    for place, segment in enumerate(segments):
        is_last = place + 1 == len(segments)
        if segment.base_offset >= bound:
            break
        if not is_last and segments[place + 1].base_offset <= first:
            continue
        start = segment.position_for(first) if segment.base_offset < first else 0
        stop = segment.size
        end = log.log_end_offset if is_last else segments[place + 1].base_offset
        if bound < end:
            stop = segment.position_for(bound)
        if start < stop:
            found.append(_Range(segment.path, start, stop))
    return found


def _write(
    disk: Disk, log: Log, ranges: list[_Range], replay: Replay, bound: int, target: str
) -> Steps[int]:
    """Read on and write what it adds up to; the size of the file.  Touches nothing of `log` that
    changes.  Raises SnapshotVoid, StorageError, CorruptBatch."""
    topic_id, start_offset = log.topic_id or NO_TOPIC_ID, log.log_start_offset
    partition = log.topic_partition.partition
    strict = replay.last is not None
    for place in ranges:
        position = place.position
        file = disk.open(place.path)
        try:
            for located in walk(file, place.position, place.stop):
                batch = located.batch
                if strict:
                    check_follows(batch, replay.position)
                yield from replay.apply(batch)
                position = located.position + batch.size
                yield None
        finally:
            file.close()
        if position != place.stop:
            raise SnapshotVoid(f"{place.path} ends at byte {position}, not {place.stop}")
    if replay.last is None:
        raise SnapshotVoid(f"the batch before offset {replay.position} is of an old format")
    yield from replay.settle()
    header = Header(topic_id, partition, start_offset, replay.last)
    _remove(disk, target)
    output = disk.open(target, create=True)
    try:
        yield from write_snapshot(replay, header, output.append)
        output.sync()
        return output.size()
    finally:
        output.close()


def _remove(disk: Disk, path: str) -> None:
    with contextlib.suppress(NoSuchFile):
        disk.remove(path)


def _publish(disk: Disk, folder: str) -> None:
    disk.rename(f"{folder}/{TEMPORARY_NAME}", f"{folder}/{FILE_NAME}")
    disk.sync_dir(folder)
