"""Compaction: which log is cleaned next, and how the result becomes the log (reference: log-store 8).

One log at a time.  The work runs in Threads in slices of some milliseconds with pauses between them, so
that the loop keeps most of the processor (`clean_job` could as well run in a helper process).  Between
any two slices the log may be truncated, deleted or lose its directory: then the work is thrown away.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from twisted.internet.defer import Deferred, succeed

from kafkalike.config import BrokerConfig
from kafkalike.errors import KafkaStorageError
from kafkalike.records.batch import CorruptBatch
from kafkalike.records.compression import DecompressionError
from kafkalike.records.record import MalformedRecord
from kafkalike.runtime.ports import Clock, Disk, NoSuchFile, StorageError
from kafkalike.runtime.tasks import Tasks, sleep
from kafkalike.types import TopicPartition

from . import checkpoints
from .clean_job import (
    CleanedGroup,
    CleaningError,
    CleaningInterrupted,
    CleanJob,
    CleanResult,
    LastOfProducer,
    SourceSegment,
    remove_output,
    run_job,
)
from .log import MAX_OFFSET, Log
from .names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, file_stem
from .segment import LogSegment

_logger = logging.getLogger(__name__)

PAUSE_FACTOR: Final = 4.0
"""A slice is followed by a pause this many times as long."""
_MIN_PAUSE_S: Final = 0.002
_MAP_SHARE: Final = 0.9


@dataclass(slots=True)
class _Candidate:
    log: Log
    first_dirty: int
    first_uncleanable: int
    ratio: float
    cleanable_bytes: int
    must_clean: bool


class LogCleaner:
    """Cleans the compacted logs of a broker.

    `logs()` gives the current logs; `offsets` holds the first dirty offset of each log as read from
    the checkpoint files and is kept up to date here.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        disk: Disk,
        logs: Callable[[], Iterable[Log]],
    ) -> None:
        self.config = config
        self.offsets: dict[TopicPartition, int] = {}
        self._clock = clock
        self._disk = disk
        self._logs = logs
        self._tasks = Tasks(_logger)
        self._ended: Deferred[None] | None = None
        self._sleeping: Deferred[None] | None = None
        self._uncleanable: set[TopicPartition] = set()
        self._cleaning: Log | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Begin to look for work every log.cleaner.backoff.ms."""
        self._ended = self._tasks.spawn(self._run(), "log cleaner")

    def stop(self) -> "Deferred[None]":
        """Fires when nothing of it runs any more; work under way is thrown away.

        A slice that runs in Threads is waited for.
        """
        self._is_stopping = True
        if self._sleeping is not None:
            self._sleeping.cancel()
        return self._ended or succeed(None)

    async def _sleep(self, delay_s: float) -> None:
        self._sleeping = sleep(self._clock, delay_s)
        try:
            await self._sleeping
        finally:
            self._sleeping = None

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log was deleted."""
        self.offsets.pop(topic_partition, None)
        self._uncleanable.discard(topic_partition)

    @property
    def uncleanable(self) -> frozenset[TopicPartition]:
        """Logs over which a cleaning has failed; left alone until the next start."""
        return frozenset(self._uncleanable)

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._sleep(self.config.log_cleaner_backoff_ms / 1000)
            while not self._is_stopping and await self.clean_one():
                pass
            self._delete_old_segments()

    def _delete_old_segments(self) -> None:
        """Retention of compacted logs, which the log manager leaves to the cleaner."""
        now_ms = self._clock.now_ms()
        for log in list(self._logs()):
            if log.config.is_compacted and not log.is_closed and log is not self._cleaning:
                try:
                    log.delete_old_segments(now_ms)
                except KafkaStorageError:
                    continue

    # -- choosing ------------------------------------------------------------------------------

    def dirty_range(self, log: Log) -> tuple[int, int]:
        """(first dirty offset, first uncleanable offset)."""
        key = log.topic_partition
        first_dirty = min(self.offsets.get(key, 0), log.lowest_truncation)
        if first_dirty < log.log_start_offset or first_dirty > log.log_end_offset:
            first_dirty = log.log_start_offset
        uncleanable = min(log.last_stable_offset, log.segments[-1].base_offset)
        lag_ms = log.config.min_compaction_lag_ms
        if lag_ms > 0:
            youngest_ms = self._clock.now_ms() - lag_ms
            for segment in _from_offset(log, first_dirty):
                if segment.largest_timestamp > youngest_ms:
                    uncleanable = min(uncleanable, segment.base_offset)
                    break
        return first_dirty, max(first_dirty, uncleanable)

    def _candidate(self, log: Log) -> _Candidate:
        first_dirty, first_uncleanable = self.dirty_range(log)
        clean = sum(s.size for s in log.segments if s.base_offset < first_dirty)
        dirty = [s for s in _from_offset(log, first_dirty) if s.base_offset < first_uncleanable]
        cleanable = sum(segment.size for segment in dirty if segment.base_offset >= first_dirty)
        if dirty and dirty[0].base_offset < first_dirty:
            part = dirty[0].size - dirty[0].position_for(first_dirty)
            cleanable += part
            clean -= part
        ratio = cleanable / (clean + cleanable) if clean + cleanable else 0.0
        lag_ms = log.config.max_compaction_lag_ms
        oldest_ms = min(
            (segment.first_timestamp for segment in dirty if segment.first_timestamp > 0),
            default=None,
        )
        overdue = oldest_ms is not None and self._clock.now_ms() - oldest_ms > lag_ms
        return _Candidate(log, first_dirty, first_uncleanable, ratio, cleanable, overdue)

    def _choose(self) -> _Candidate | None:
        best: _Candidate | None = None
        for log in list(self._logs()):
            usable = (
                log.config.is_compacted
                and not log.is_future
                and not log.is_closed
                and log.directory.is_online
                and log.topic_partition not in self._uncleanable
                and len(log.segments) > 1
            )
            if not usable:
                continue
            try:
                found = self._candidate(log)
            except CorruptBatch as error:
                self._uncleanable.add(log.topic_partition)
                _logger.error("log cannot be cleaned partition=%s: %s", log.topic_partition, error)
                continue
            eligible = found.cleanable_bytes > 0 and (
                found.must_clean or found.ratio > log.config.min_cleanable_dirty_ratio
            )
            if eligible and (best is None or found.ratio > best.ratio):
                best = found
        return best

    # -- cleaning ------------------------------------------------------------------------------

    async def clean_one(self) -> bool:
        """Clean the log that needs it most; False when none does."""
        try:
            chosen = self._choose()
        except StorageError as error:
            _logger.warning("cannot look for logs to clean: %s", error)
            return False
        if chosen is None:
            return False
        log = chosen.log
        self._cleaning = log
        try:
            await self._clean(chosen)
        except (CleaningError, CorruptBatch, MalformedRecord, DecompressionError) as error:
            self._uncleanable.add(log.topic_partition)
            _logger.error("log cannot be cleaned partition=%s: %s", log.topic_partition, error)
        except CleaningInterrupted as error:
            _logger.info("cleaning was interrupted partition=%s: %s", log.topic_partition, error)
            return False
        except StorageError as error:
            log.directory.fail(error)
        except KafkaStorageError:
            pass  # the directory has failed and everybody was told
        finally:
            self._cleaning = None
        return True

    async def _clean(self, chosen: _Candidate) -> None:
        log = chosen.log
        job = self._job(chosen)
        result = CleanResult()
        truncations = log.truncations
        steps = run_job(self._disk, job, result)

        def is_void() -> bool:
            return self._is_stopping or log.is_closed or log.truncations != truncations

        try:
            done = False
            while not done:
                before_s = self._clock.monotonic()
                work = (result.bytes_read, result.bytes_written)
                done = await log.directory.run(partial(_advance, steps), "cleaning")
                if is_void():
                    return
                if not done:
                    await self._sleep(self._pause_s(before_s, result, work))
                    if is_void():
                        return
            self._rename(log, result.groups, CLEANED, SWAP)
            await log.directory.run(partial(_sync_dir, self._disk, log.dir), "swap of segments")
            if is_void():
                return
            self._swap(log, result)
        finally:
            steps.close()
            if log.directory.is_online:
                self._remove_leftovers(job, result)
        _logger.info(
            "cleaned partition=%s offsets=%d..%d records=%d kept=%d bytes=%d written=%d",
            log.topic_partition,
            job.first_dirty,
            result.end_offset,
            result.records_read,
            result.records_kept,
            result.bytes_read,
            result.bytes_written,
        )

    def _pause_s(self, before_s: float, result: CleanResult, work: tuple[int, int]) -> float:
        """Give the loop its share; keep within log.cleaner.io.max.bytes.per.second."""
        moved = result.bytes_read + result.bytes_written - sum(work)
        rate = self.config.log_cleaner_io_max_bytes_per_second
        pause_s = (self._clock.monotonic() - before_s) * PAUSE_FACTOR
        return max(_MIN_PAUSE_S, pause_s, moved / rate if rate > 0 else 0.0)

    def _job(self, chosen: _Candidate) -> CleanJob:
        log, config = chosen.log, chosen.log.config
        segments = list(log.segments)
        sources = [
            SourceSegment(
                base_offset=segment.base_offset,
                next_base_offset=following.base_offset,
                size=segment.size,
                index_size=_size(self._disk, segment.stem + INDEX),
                time_index_size=_size(self._disk, segment.stem + TIME_INDEX),
                mtime_ms=segment.last_modified_ms,
            )
            for segment, following in pairwise(segments)
            if segment.base_offset < chosen.first_uncleanable
        ]
        return CleanJob(
            dir=log.dir,
            segments=tuple(sources),
            first_dirty=chosen.first_dirty,
            first_uncleanable=chosen.first_uncleanable,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=int(
                self.config.log_cleaner_dedupe_buffer_size
                * _MAP_SHARE
                / max(self.config.log_cleaner_threads, 1)
            ),
            aborted=tuple(txn for segment in segments for txn in segment.txn_index.entries()),
            producers={
                entry.producer_id: LastOfProducer(entry.last_offset, entry.epoch)
                for entry in log.producer_state.producers.values()
            },
        )

    def _rename(self, log: Log, groups: list[CleanedGroup], old: str, new: str) -> None:
        """Highest base first, so that an interruption can be told from the end of it."""
        for group in reversed(groups):
            suffixes = [INDEX, TIME_INDEX, LOG]
            if group.has_txn_index:
                suffixes.insert(0, TXN_INDEX)
            for suffix in suffixes:
                path = f"{log.dir}/{file_stem(group.base_offset)}{suffix}"
                self._disk.rename(path + old, path + new)

    def _remove_leftovers(self, job: CleanJob, result: CleanResult) -> None:
        """Nothing of an abandoned job may stay: a later start would take it for the log's."""
        if self._disk.is_dir(job.dir):
            remove_output(self._disk, job, result)

    def _swap(self, log: Log, result: CleanResult) -> None:
        """The new segments become the log's; the first dirty offset moves."""
        by_base = {segment.base_offset: segment for segment in log.segments}
        for group in result.groups:
            old = [by_base[base] for base in group.sources if base in by_base]
            if len(old) != len(group.sources):
                continue  # retention took some of them: what is left is good as it is
            new = LogSegment(
                log.directory,
                log.dir,
                group.base_offset,
                size=group.size,
                created_ms=self._clock.now_ms(),
                has_txn_index=group.has_txn_index,
            )
            log.replace_segments(old, [new])
            self._rename(log, [group], SWAP, "")
        log.lowest_truncation = MAX_OFFSET
        self.offsets[log.topic_partition] = result.end_offset
        self.checkpoint(log)

    def checkpoint(self, log: Log) -> None:
        """Have the cleaner checkpoint of the log's directory written."""
        directory = log.directory
        offsets = {
            other.topic_partition: self.offsets[other.topic_partition]
            for other in self._logs()
            if other.directory is directory and other.topic_partition in self.offsets
        }
        directory.later(
            partial(_write_checkpoint, self._disk, directory.path, log.dir, offsets),
            checkpoints.CLEANER_FILE,
        )


def _from_offset(log: Log, offset: int) -> Iterator[LogSegment]:
    """The segments that hold `offset` or later ones, without the active one."""
    segments = log.segments
    for segment, following in pairwise(segments):
        if following.base_offset > offset:
            yield segment


def _advance(steps: Iterator[None]) -> bool:
    """One slice; True at the end of the work."""
    try:
        next(steps)
    except StopIteration:
        return True
    return False


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except NoSuchFile:
        return 0


def _sync_dir(disk: Disk, path: str) -> None:
    if disk.is_dir(path):
        disk.sync_dir(path)


def _write_checkpoint(
    disk: Disk, path: str, log_dir: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """First the names of the swapped segments, then the offset that counts on them."""
    _sync_dir(disk, log_dir)
    disk.write_atomic(f"{path}/{checkpoints.CLEANER_FILE}", checkpoints.format_offsets(offsets))
