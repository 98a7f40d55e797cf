"""One partition's log: append, read, truncate, roll (reference: log-store 4, 6, 9; record-format 7).

A `Log` is synchronous and lives on the loop's thread: appends go to the page cache at once, whatever
waits for the device (fsync, checkpoints, removal of files) is handed to the log directory as a job
and runs through Threads.  An error of the disk takes the whole directory offline, and from then on
every append fails (KAFKA-10778).
"""

import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.config import LogConfig
from kafkalike.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnsupportedVersion,
)
from kafkalike.records.batch import LOG_APPEND_TIME, CorruptBatch, RecordBatch
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import Buffer, Disk, FileRange, NoSuchFile, StorageError
from kafkalike.types import TopicPartition

from . import checkpoints, leader_epochs
from .deep_check import DeepResult, deep_check
from .directory import LogDirectory
from .index import MAX_RELATIVE_OFFSET
from .leader_epochs import LeaderEpochs
from .names import SNAPSHOT, file_stem
from .producer_state import CorruptSnapshot, ProducerState, VerificationGuard
from .retention import deletable_segments
from .segment import BatchFacts, LogSegment, read_facts
from .time_lookup import find_by_timestamp, find_max_timestamp
from .validation import AppendRules, analyse, check_batch, needs_deep_check, needs_offload
from .values import (
    AbortedTransaction,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    OffsetsOutOfOrder,
    Origin,
    ProducerSummary,
    RangeSummary,
    TimestampOffset,
    UnexpectedAppendOffset,
)

__all__ = [
    "AbortedTransaction",
    "DeepResult",
    "FetchDataInfo",
    "FetchIsolation",
    "FlushPlan",
    "Log",
    "LogAppendInfo",
    "OffsetsOutOfOrder",
    "Origin",
    "ProducerSummary",
    "RangeSummary",
    "TimestampOffset",
    "UnexpectedAppendOffset",
    "VerificationGuard",
]

_logger = logging.getLogger(__name__)

MAX_OFFSET: Final = 0x7FFFFFFFFFFFFFFF
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
_SYNC_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")


@dataclass(slots=True)
class FlushPlan:
    """What has to be synced so that the log is on the device up to `offset`.

    Made on the loop, run in Threads, reported back to `Log.flushed`.
    """

    offset: int
    paths: list[str]
    dir: str
    epochs: tuple[str, bytes] | None
    truncations: int

    def run(self, disk: Disk) -> "FlushPlan":
        """Sync the files, the epochs, then the directory.  Blocks.  Files that are gone need none."""
        for path in self.paths:
            try:
                file = disk.open(path)
            except NoSuchFile:
                continue
            try:
                file.sync()
            finally:
                file.close()
        if disk.is_dir(self.dir):
            if self.epochs is not None:
                disk.write_atomic(*self.epochs)
            disk.sync_dir(self.dir)
        return self


class Log:
    """The records of one partition.  Loaded by `loader.load_log`, owned by `LogManager`.

    Attributes to read: `topic_partition`, `topic_id` (16 bytes or None), `dir` (the partition
    directory), `directory` (the log directory that holds it), `config`, `log_start_offset`,
    `log_end_offset`, `high_watermark`, `recovery_point`, `is_future`.
    """

    __slots__ = (
        "_active",
        "_bases",
        "_epochs",
        "_epochs_dirty",
        "_epochs_writing",
        "_first_unstable",
        "_producers",
        "_rules",
        "_segments",
        "_snapshots",
        "config",
        "dir",
        "directory",
        "high_watermark",
        "is_closed",
        "is_future",
        "is_metadata_pending",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "lowest_truncation",
        "recovery_point",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: list[LogSegment],
        *,
        log_end_offset: int,
        log_start_offset: int,
        recovery_point: int,
        topic_id: bytes | None = None,
        is_future: bool = False,
        epochs: list[tuple[int, int]] | None = None,
        producers: ProducerState | None = None,
        snapshots: list[int] | None = None,
        high_watermark: int = 0,
    ) -> None:
        assert segments, f"{topic_partition} needs a segment"
        self.directory = directory
        self.dir = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.is_future = is_future
        self.is_closed = False
        self.is_metadata_pending = False
        """`partition.metadata` is not written yet; it must be before the first append."""
        self.last_flush_ms = directory.clock.now_ms()
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        self.recovery_point = recovery_point
        self._rules = AppendRules.of(config)
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._epochs = LeaderEpochs(self._epochs_changed)
        self._epochs_dirty = False
        self._epochs_writing = False
        if epochs:
            self._epochs.load(epochs)
        self._producers = producers or ProducerState(str(topic_partition))
        self._snapshots = snapshots or []
        self.truncations = 0
        self.lowest_truncation = MAX_OFFSET
        """Lowest offset this log was cut to since the cleaner looked."""
        self._first_unstable: int | None = None
        self._producers.on_high_watermark(self.high_watermark)
        self._refresh_unstable()

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, "
            f"high watermark {self.high_watermark}, {len(self._segments)} segments)"
        )

    # -- what it is ----------------------------------------------------------------------------

    @property
    def parent_dir(self) -> str:
        """The log directory that holds this partition's directory."""
        return self.directory.path

    @property
    def segments(self) -> Sequence[LogSegment]:
        """Oldest first; the last one is active."""
        return self._segments

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """min(high watermark, first offset of the oldest open or unreplicated transaction)."""
        unstable = self._first_unstable
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch this log knows, None when it knows none."""
        return self._epochs.latest_epoch

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return self._epochs.entries

    @property
    def producer_state(self) -> ProducerState:
        """Sequences and transactions; changed by this log only."""
        return self._producers

    # -- appending -----------------------------------------------------------------------------

    def needs_offload(self, records: Buffer) -> bool:
        """Whether an append of these bytes must look into so many records that it should be checked
        off the loop first: copy the bytes, run `deep_check(bytes, log.append_rules, now_ms)` there,
        pass the result as `deep`."""
        return needs_offload(records, self._rules)

    @property
    def append_rules(self) -> AppendRules:
        """The topic's rules for records; plain values that another process understands."""
        return self._rules

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = "client",
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
        deep: DeepResult | None = None,
    ) -> LogAppendInfo:
        """Validate, stamp and append one batch (or old messages, which become one).

        It gets the offsets from `log_end_offset` on.  A writable buffer is stamped in place;
        `records` is not kept.  `deep` is the result of a check made before (`needs_offload`).
        Raises the KafkaError that fits (reference: record-format 7, 8); then nothing was appended.
        """
        if self.directory.failure is not None:
            self.directory.check_online()
        rules = self._rules
        from_client = origin == "client"
        batches = analyse(records, rules.max_message_bytes, from_client=from_client)
        if not batches:
            return LogAppendInfo(-1, -1, -1, -1, self.log_start_offset)
        first = batches[0]
        if isinstance(first, RecordBatch):
            if len(batches) > 1:
                raise InvalidRecord("A record batch must be appended alone")
            if from_client:
                check_batch(first)
                if deep is None and needs_deep_check(first, rules):
                    deep = deep_check(first.view(), rules, now_ms)
        elif deep is None:
            deep = deep_check(records, rules, now_ms)
        batch = self._stamped(first, deep, leader_epoch, now_ms)
        return self._append_stamped(batch, from_client, verification_guard, leader_epoch, now_ms)

    def _stamped(
        self, sent: AnyBatch, deep: DeepResult | None, leader_epoch: int, now_ms: int
    ) -> RecordBatch:
        """The batch to be written, its offsets, epoch and timestamps final."""
        if deep is not None and deep.replacement is not None:
            batch = RecordBatch(bytearray(deep.replacement))
        else:
            assert isinstance(sent, RecordBatch)
            batch = sent
            buffer = batch.buffer
            view = buffer if type(buffer) is memoryview else memoryview(buffer)
            if view.readonly:
                batch = RecordBatch(bytearray(batch.view()))
        if self._rules.log_append_time:
            batch.stamp_timestamp(log_append_time=True, max_timestamp=now_ms)
        elif deep is not None:
            batch.stamp_timestamp(log_append_time=False, max_timestamp=deep.max_timestamp)
        elif batch.attributes & LOG_APPEND_TIME:
            batch.stamp_timestamp(log_append_time=False, max_timestamp=batch.max_timestamp)
        batch.stamp_offsets(self.log_end_offset, leader_epoch)
        return batch

    def _append_stamped(
        self,
        batch: RecordBatch,
        from_client: bool,
        guard: VerificationGuard | None,
        leader_epoch: int,
        now_ms: int,
    ) -> LogAppendInfo:
        size = batch.size
        if leader_epoch >= 0 and leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, batch.base_offset)
        config = self.config
        if size > config.segment_bytes:
            raise RecordListTooLarge(
                f"Message batch size is {size} bytes in append, which exceeds the maximum "
                f"configured segment size of {config.segment_bytes}."
            )
        base_offset = batch.base_offset
        last_offset = base_offset + batch.last_offset_delta
        max_timestamp = batch.max_timestamp
        facts = BatchFacts(base_offset, last_offset, size, max_timestamp)
        producers = self._producers
        has_producer = batch.producer_id > -1
        try:
            self._maybe_roll(facts, now_ms)
            if has_producer:
                if from_client and (known := producers.find_duplicate(batch)) is not None:
                    return LogAppendInfo(
                        known.first_offset,
                        known.last_offset,
                        known.timestamp,
                        known.timestamp,  # whatever the topic's kind of timestamps, as in Kafka
                        self.log_start_offset,
                        duplicate=True,
                    )
                producers.check(batch, from_client=from_client, guard=guard)
            data = batch.buffer if len(batch.buffer) == size else batch.view()
            self._active.append(data, (facts,), config.index_interval_bytes)
            end_offset = self.log_end_offset = last_offset + 1
            if has_producer:
                self._update_producers([batch])
        except StorageError as error:
            raise self.directory.fail(error) from error
        producers.map_end_offset = end_offset
        return LogAppendInfo(
            base_offset,
            last_offset,
            max_timestamp,
            max_timestamp if self._rules.log_append_time else -1,
            self.log_start_offset,
            False,
            end_offset - self.recovery_point >= config.flush_messages,
            size,
        )

    def append_as_follower(self, records: Buffer) -> LogAppendInfo:
        """Append what a leader sent, byte for byte; a trailing partial batch is dropped.

        Raises CorruptMessage, UnexpectedAppendOffset (below the log end) or OffsetsOutOfOrder; then
        nothing was appended.
        """
        self.directory.check_online()
        batches: list[AnyBatch] = []
        facts: list[BatchFacts] = []
        last_offset = self.log_end_offset - 1
        try:
            for batch in iterate_batches(records):
                if not batch.crc_is_valid():
                    raise CorruptMessage(
                        f"A batch at {batch.last_offset} of {self.topic_partition} is corrupt"
                    )
                fact = read_facts(batch)
                if fact.base_offset <= last_offset or fact.last_offset < fact.base_offset:
                    self._refuse_order(fact, last_offset, is_first=not facts)
                last_offset = fact.last_offset
                batches.append(batch)
                facts.append(fact)
        except CorruptBatch as error:
            raise CorruptMessage(f"{self.topic_partition}: {error}") from error
        if not batches:
            return LogAppendInfo(-1, -1, -1, -1, self.log_start_offset)
        try:
            self._append_block(memoryview(records), batches, facts)
        except StorageError as error:
            raise self.directory.fail(error) from error
        return LogAppendInfo(
            facts[0].base_offset,
            last_offset,
            max(fact.max_timestamp for fact in facts),
            -1,
            self.log_start_offset,
            needs_flush=self.log_end_offset - self.recovery_point >= self.config.flush_messages,
            size=sum(fact.size for fact in facts),
        )

    def _refuse_order(self, fact: BatchFacts, last_offset: int, *, is_first: bool) -> None:
        if is_first and fact.base_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"{self.topic_partition}: records from {fact.base_offset} on, the log ends at "
                f"{self.log_end_offset}",
                fact.base_offset,
                fact.last_offset,
            )
        raise OffsetsOutOfOrder(
            f"{self.topic_partition}: a batch {fact.base_offset}..{fact.last_offset} follows "
            f"offset {last_offset}"
        )

    def _append_block(
        self, data: memoryview, batches: list[AnyBatch], facts: list[BatchFacts]
    ) -> None:
        """Write batches in as few writes as segments allow: one, unless a roll lies within."""
        for batch in batches:
            self._note_epoch(batch)
        interval = self.config.index_interval_bytes
        total = sum(fact.size for fact in facts)
        whole = BatchFacts(
            facts[0].base_offset,
            facts[-1].last_offset,
            total,
            max(fact.max_timestamp for fact in facts),
        )
        room = self.config.segment_bytes - self._active.size
        if total <= room and not self._must_roll(whole, None):
            self._maybe_roll(whole, None)
            self._active.append(data[:total], facts, interval)
            self._appended(batches)
            return
        position = 0
        for batch, fact in zip(batches, facts):
            self._maybe_roll(fact, None)
            self._active.append(data[position : position + fact.size], [fact], interval)
            self._appended([batch])
            position += fact.size

    def _appended(self, batches: list[AnyBatch]) -> None:
        self.log_end_offset = batches[-1].next_offset
        with_producer = [
            batch for batch in batches if batch.producer_id > -1 and isinstance(batch, RecordBatch)
        ]
        if with_producer:
            self._update_producers(with_producer)
        self._producers.map_end_offset = self.log_end_offset

    def _note_epoch(self, batch: AnyBatch) -> None:
        if batch.magic < 2:
            self._epochs.clear()
        elif batch.partition_leader_epoch >= 0 and (
            batch.partition_leader_epoch != self._epochs.latest_epoch
        ):
            self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)

    def _update_producers(self, batches: list[RecordBatch]) -> None:
        producers = self._producers
        for batch in batches:
            completed = producers.update(batch)
            if completed is not None and completed.aborted:
                segment = self._segments[self._segment_index(completed.last_offset)]
                segment.txn_index.append(producers.aborted_entry(completed))
        if producers.open_txns or producers.unreplicated or self._first_unstable is not None:
            self._refresh_unstable()

    def _refresh_unstable(self) -> None:
        self._first_unstable = self._producers.first_unstable_offset

    # -- rolling -------------------------------------------------------------------------------

    def _must_roll(self, fact: BatchFacts, now_ms: int | None) -> bool:
        active, config = self._active, self.config
        size = active.size
        if size > 0:
            if size > config.segment_bytes - fact.size:
                return True
            first = active.first_timestamp
            if first >= 0:
                age_ms = fact.max_timestamp - first
            else:
                age_ms = self.directory.clock.now_ms() if now_ms is None else now_ms
                age_ms -= active.created_ms
            if age_ms > config.segment_ms - active.jitter_ms:
                return True
        return (
            active.indexes_are_full or fact.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        )

    def _maybe_roll(self, fact: BatchFacts, now_ms: int | None) -> None:
        if self._must_roll(fact, now_ms):
            self._roll(max(fact.base_offset, self.log_end_offset))
        elif self._active.index.capacity == 0:
            if self.is_metadata_pending:
                self.write_metadata()
            self._active.prepare_append(self.config.segment_index_bytes)

    def roll(self) -> None:
        """Start a new segment at the log end, unless the active one is empty."""
        if self._active.size > 0:
            try:
                self._roll(self.log_end_offset)
            except StorageError as error:
                raise self.directory.fail(error) from error

    def _roll(self, base_offset: int) -> None:
        """Close the active segment, remember the producers, begin a new one, have the old synced."""
        active = self._active
        if base_offset == active.base_offset:
            assert active.size == 0, f"{active.path} exists and is not empty"
            active.prepare_append(self.config.segment_index_bytes)
            return
        active.become_inactive()
        active.forget_tail()
        self._producers.map_end_offset = base_offset
        self._take_snapshot()
        self._add_segment(self._new_segment(base_offset))
        self.request_flush(base_offset)
        _logger.info(
            "rolled partition=%s base_offset=%d segments=%d",
            self.topic_partition,
            base_offset,
            len(self._segments),
        )

    def _new_segment(self, base_offset: int) -> LogSegment:
        jitter = self.config.segment_jitter_ms
        segment = LogSegment(
            self.directory,
            self.dir,
            base_offset,
            size=0,
            created_ms=self.directory.clock.now_ms(),
            jitter_ms=self.directory.random.randrange(jitter) if jitter > 0 else 0,
        )
        segment.create_files(self.config.segment_index_bytes)
        return segment

    def _add_segment(self, segment: LogSegment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment

    # -- producer snapshots --------------------------------------------------------------------

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.dir}/{file_stem(offset)}{SNAPSHOT}"

    def _take_snapshot(self) -> bool:
        """Write the producer state at its end offset; synced with the next flush."""
        offset = self._producers.map_end_offset
        if self._snapshots and self._snapshots[-1] >= offset:
            return False
        file = self.directory.disk.open(self._snapshot_path(offset), create=True)
        try:
            file.truncate(0)
            file.append(self._producers.snapshot())
        finally:
            file.close()
        insort(self._snapshots, offset)
        return True

    def _drop_snapshots(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._snapshots.remove(offset)
            path = self._snapshot_path(offset)
            if self.directory.disk.exists(path):
                self.directory.disk.remove(path)

    # -- reading -------------------------------------------------------------------------------

    def _segment_index(self, offset: int) -> int:
        """Index of the segment whose range holds `offset`."""
        if offset >= self._active.base_offset:
            return len(self._segments) - 1
        return max(bisect_right(self._bases, offset) - 1, 0)

    def bound_of(self, isolation: FetchIsolation) -> int:
        """The offset below which a reader of this isolation sees records."""
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.last_stable_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_message: bool = False,
    ) -> FetchDataInfo:
        """At most `max_bytes` from the batch that holds `offset`, within one segment.

        With `min_one_message` at least that one batch.  The range never goes beyond what the
        isolation allowed when the call came (KAFKA-9807).  Raises OffsetOutOfRange.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.topic_partition}, but we "
                f"only have log segments in the range {self.log_start_offset} to {end_offset}."
            )
        info = FetchDataInfo(
            offset,
            b"",
            [] if isolation is FetchIsolation.TXN_COMMITTED else None,
            self.high_watermark,
            self.log_start_offset,
            self.last_stable_offset,
            end_offset,
        )
        bound = self.bound_of(isolation)
        if offset >= bound:
            return info
        try:
            self._read_into(info, bound, max_bytes, min_one_message)
        except StorageError as error:
            raise self.directory.fail(error) from error
        except CorruptBatch as error:
            raise CorruptMessage(f"{self.topic_partition}: {error}") from error
        return info

    def _read_into(
        self, info: FetchDataInfo, bound: int, max_bytes: int, min_one_message: bool
    ) -> None:
        """Find the range; segments that hold nothing from the offset on (compaction) are skipped."""
        for index in range(self._segment_index(info.fetch_offset), len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= bound:
                return
            start = segment.position_for(info.fetch_offset)
            limit = segment.size
            if index == len(self._segments) - 1:
                if bound < self.log_end_offset:
                    limit = segment.position_for(bound)
            elif bound < self._bases[index + 1]:
                limit = segment.position_for(bound)
            if start >= limit:
                continue
            length = limit - start
            if length > max_bytes:
                first = segment.first_batch_size(start)
                if first > max_bytes:
                    info.first_batch_is_cut = not min_one_message
                    length = min(length, first) if min_one_message else max_bytes
                else:
                    length = max_bytes
            if length > 0:
                info.records = FileRange(segment.file, start, length)
            if info.aborted_transactions is not None:
                upper = segment.offset_behind(start + length)
                if upper is None:
                    last = index == len(self._segments) - 1
                    upper = self.log_end_offset if last else self._bases[index + 1]
                info.aborted_transactions = self._aborted(info.fetch_offset, upper, index)
            return

    def _aborted(self, fetch_offset: int, upper: int, index: int) -> list[AbortedTransaction]:
        found = []
        for segment in self._segments[index:]:
            for txn in segment.txn_index.entries():
                if txn.last_offset >= fetch_offset and txn.first_offset < upper:
                    found.append(AbortedTransaction(txn.producer_id, txn.first_offset))
                if txn.last_stable_offset >= upper:
                    return found
        return found

    def readable_bytes(self, offset: int, isolation: FetchIsolation) -> int:
        """Bytes from `offset` up to the bound of `isolation`, over segments; 0 when out of range."""
        bound = self.bound_of(isolation)
        if offset >= bound or offset < self.log_start_offset:
            return 0
        try:
            first, last = self._segment_index(offset), self._segment_index(bound)
            total = -self._segments[first].position_for(offset)
            for index in range(first, last):
                total += self._segments[index].size
            segment = self._segments[last]
            if bound >= self.log_end_offset:
                return total + segment.size
            return total + segment.position_for(bound)
        except StorageError as error:
            raise self.directory.fail(error) from error
        except CorruptBatch as error:
            raise CorruptMessage(f"{self.topic_partition}: {error}") from error

    def summarize(self, first_offset: int, end_offset: int) -> RangeSummary:
        """Bytes and producer ids of the batches in [first, end): for reports, reads headers."""
        size = 0
        producer_ids: dict[int, None] = {}
        try:
            for batch in self._headers_between(first_offset, end_offset):
                size += batch.size
                if batch.producer_id > -1:
                    producer_ids[batch.producer_id] = None
        except CorruptBatch as error:
            _logger.warning("summary ends early partition=%s: %s", self.topic_partition, error)
        return RangeSummary(size, tuple(producer_ids))

    def _headers_between(self, first_offset: int, end_offset: int) -> Iterator[AnyBatch]:
        for index in range(self._segment_index(first_offset), len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= end_offset:
                return
            for located in segment.iterate(segment.position_for(first_offset), headers_only=True):
                if read_facts(located.batch).base_offset >= end_offset:
                    return
                yield located.batch

    # -- watermarks ----------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, bounded to [log start, log end]; returns what it became."""
        low, high = self.log_start_offset, self.log_end_offset
        self.high_watermark = offset = low if offset < low else high if offset > high else offset
        if self._producers.unreplicated:
            self._producers.on_high_watermark(offset)
            self._refresh_unstable()
        return offset

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start; True when it moved.  OffsetOutOfRange above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._producers.drop_below(offset)
        self._refresh_unstable()
        return True

    # -- leader epochs -------------------------------------------------------------------------

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that leader epoch `epoch` starts at `offset` (becoming leader)."""
        self._epochs.assign(epoch, offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset), (-1, -1) undefined (reference: replication 9)."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch in which the record at `offset` was written."""
        return self._epochs.epoch_for_offset(offset)

    def _epochs_changed(self) -> None:
        self._epochs_dirty = True
        self._write_epochs()

    def epochs_file(self) -> tuple[str, bytes]:
        """(path, content) of the leader epoch checkpoint as it should be now."""
        path = f"{self.dir}/{leader_epochs.FILE_NAME}"
        return path, checkpoints.format_epochs(self._epochs.entries)

    def _write_epochs(self) -> None:
        """Have the checkpoint written soon; changes meanwhile go into one further write."""
        if self._epochs_writing or not self._epochs_dirty or self.is_closed:
            return
        self._epochs_dirty = False
        self._epochs_writing = True
        path, content = self.epochs_file()
        disk = self.directory.disk

        def write() -> None:
            try:
                disk.write_atomic(path, content)
            except NoSuchFile:
                if disk.is_dir(path.rpartition("/")[0]):
                    raise
                # The partition was deleted or renamed meanwhile.

        self.directory.later(
            write, f"leader epochs of {self.topic_partition}", self._epochs_written
        )

    def _epochs_written(self, _: None) -> None:
        self._epochs_writing = False
        self._write_epochs()

    # -- truncation ----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove whole batches so that the log ends at or below `offset`; True when bytes went.

        It then ends where its last batch ends.  Where that is below `offset`, going on at `offset`
        would leave a hole that looks like records: what a batch across the cut held, or what stood
        where a damaged base offset (no checksum covers it) was taken for a later one.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        self.directory.check_online()
        if offset >= self.log_end_offset:
            # An epoch that was assigned here but never got records must not survive.
            self._epochs.truncate_from_end(offset)
            return False
        if self._bases[0] > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self._truncate(offset)
        except StorageError as error:
            raise self.directory.fail(error) from error
        except CorruptBatch as error:  # where to cut cannot be found
            raise self.directory.fail(StorageError(str(error))) from error
        return True

    def _truncate(self, offset: int) -> None:
        self.truncations += 1
        self.lowest_truncation = min(self.lowest_truncation, offset)
        touches_producers = self._has_producers_above(offset)
        keep = bisect_right(self._bases, offset)
        removed = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self._active = self._segments[-1]
        # The newest first: a crash in between leaves no hole.
        self._remove_segments(removed[::-1], 0.0)
        self._active.truncate_to(offset, self.config.segment_index_bytes)
        offset = max(min(offset, self._active.next_offset()), min(offset, self.log_start_offset))
        _logger.info("truncated partition=%s offset=%d", self.topic_partition, offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._lower_recovery_point(offset)
        self._epochs.truncate_from_end(offset)
        self._drop_snapshots([o for o in self._snapshots if o > offset])
        if touches_producers:
            self.rebuild_producers(offset)
        else:
            self._producers.map_end_offset = offset
        self.update_high_watermark(min(self.high_watermark, offset))
        self._refresh_unstable()

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.directory.on_recovery_point_lowered()

    def _has_producers_above(self, offset: int) -> bool:
        """Whether a batch from `offset` on could have changed the producer state."""
        if not self._producers.producers:
            return False
        for index in range(self._segment_index(offset), len(self._segments)):
            segment = self._segments[index]
            for located in segment.iterate(segment.position_for(offset), headers_only=True):
                if located.batch.producer_id > -1:
                    return True
        return False

    def rebuild_producers(self, end_offset: int) -> None:
        """Producer state from the newest usable snapshot and the batches behind it."""
        self._drop_snapshots(
            [o for o in self._snapshots if o > end_offset or o <= self.log_start_offset]
        )
        producers = self._producers
        producers.clear(self.log_start_offset)
        now_ms = self.directory.clock.now_ms()
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                data = self.directory.disk.read_file(self._snapshot_path(offset))
                producers.load(data, now_ms)
            except (CorruptSnapshot, NoSuchFile) as error:
                _logger.warning(
                    "unusable producer snapshot partition=%s offset=%d problem=%s",
                    self.topic_partition,
                    offset,
                    error,
                )
                self._drop_snapshots([offset])
                continue
            producers.map_end_offset = offset
            break
        self.replay_producers(producers.map_end_offset, end_offset)

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the producer snapshots on disk, ascending."""
        return list(self._snapshots)

    def take_snapshot(self) -> None:
        """Write the producer state as of the log end, unless that is on disk."""
        self._take_snapshot()

    def replay_producers(self, start_offset: int, end_offset: int) -> None:
        """Feed the batches of [start, end) into the producer state.

        What cannot be read is left out, here and by every reader.
        """
        for index in range(self._segment_index(start_offset), len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= end_offset:
                break
            try:
                self._replay_segment(segment, start_offset, end_offset)
            except CorruptBatch as error:
                _logger.error(
                    "producers of damaged batches are unknown partition=%s: %s",
                    self.topic_partition,
                    error,
                )
        self._producers.map_end_offset = end_offset
        self._producers.on_high_watermark(self.high_watermark)
        self._refresh_unstable()

    def _replay_segment(self, segment: LogSegment, start_offset: int, end_offset: int) -> None:
        for located in segment.iterate(segment.position_for(start_offset), headers_only=True):
            batch = located.batch
            if read_facts(batch).base_offset >= end_offset:
                return
            if batch.producer_id > -1 and isinstance(batch, RecordBatch):
                if batch.is_control:
                    batch = RecordBatch(segment.file.pread(batch.size, located.position))
                self._producers.update(batch)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start an empty log at `offset`."""
        self.directory.check_online()
        self.truncations += 1
        self.lowest_truncation = min(self.lowest_truncation, offset)
        try:
            removed = self._segments[::-1]
            self._segments, self._bases = [], []
            self._remove_segments(removed, 0.0)
            self._drop_snapshots(list(self._snapshots))
            self._add_segment(self._new_segment(offset))
        except StorageError as error:
            raise self.directory.fail(error) from error
        self._epochs.clear()
        self._producers.clear(offset)
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._lower_recovery_point(offset)
        self._refresh_unstable()
        _logger.info("emptied partition=%s offset=%d", self.topic_partition, offset)

    # -- removing segments ---------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; returns how many segments went."""
        self.directory.check_online()
        try:
            gone = deletable_segments(
                self._segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if gone:
                self._delete_oldest(gone)
        except StorageError as error:
            raise self.directory.fail(error) from error
        return len(gone)

    def _delete_oldest(self, gone: list[LogSegment]) -> None:
        if len(gone) == len(self._segments):
            self._roll(self.log_end_offset)
        del self._segments[: len(gone)], self._bases[: len(gone)]
        self._drop_snapshots([s.base_offset for s in gone if s.base_offset in self._snapshots])
        self._remove_segments(gone, self.config.file_delete_delay_ms / 1000)
        _logger.info(
            "deleted old segments partition=%s count=%d log_start_offset=%d",
            self.topic_partition,
            len(gone),
            max(self.log_start_offset, self._bases[0]),
        )
        if self._bases[0] > self.log_start_offset:
            self.maybe_increment_log_start_offset(self._bases[0])

    def _remove_segments(self, segments: list[LogSegment], delay_s: float) -> None:
        """Rename to `.deleted` now; the files go later, off the loop."""
        paths = [path for segment in segments for path in segment.rename_to_deleted()]
        if not paths:
            return
        disk = self.directory.disk

        def remove() -> None:
            for path in paths:
                try:
                    disk.remove(path)
                except NoSuchFile:
                    continue  # the whole partition was deleted or moved

        what = f"removal of {len(paths)} files of {self.topic_partition}"
        if delay_s > 0:
            self.directory.clock.call_later(delay_s, self.directory.later, remove, what)
        else:
            self.directory.later(remove, what)

    def replace_segments(self, old: list[LogSegment], new: list[LogSegment]) -> None:
        """Compaction: `new` takes the place of `old`, whose files are renamed away."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == old
        assert old[-1] is not self._active
        kept = {segment.base_offset for segment in new}
        gone = {segment.base_offset for segment in old} - kept
        self._drop_snapshots([offset for offset in self._snapshots if offset in gone])
        self._remove_segments(old, self.config.file_delete_delay_ms / 1000)
        self._segments[first : first + len(old)] = new
        self._bases = [segment.base_offset for segment in self._segments]

    # -- time ----------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> TimestampOffset:
        """ListOffsets: -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, >= 0 lookup.

        Results at or above the bound of `isolation` count as not found.  Raises UnsupportedVersion
        for other negative values.
        """
        if timestamp == LATEST_TIMESTAMP:
            return TimestampOffset(-1, self.bound_of(isolation), self._epoch_or_none(None))
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            epoch = -1
            if self._epochs.first_entry_covers(self.log_start_offset):
                epoch = self._epoch_or_none(self.log_start_offset)
            return TimestampOffset(-1, self.log_start_offset, epoch)
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return TimestampOffset(-1, -1, -1)
        try:
            if timestamp == MAX_TIMESTAMP:
                found = find_max_timestamp(self._segments)
            elif timestamp >= 0:
                found = find_by_timestamp(self._segments, timestamp, self.log_start_offset)
            else:
                raise UnsupportedVersion(f"timestamp {timestamp} has no meaning")
        except StorageError as error:
            raise self.directory.fail(error) from error
        except CorruptBatch as error:
            raise CorruptMessage(f"{self.topic_partition}: {error}") from error
        if found is None or found.offset >= self.bound_of(isolation):
            return TimestampOffset(-1, -1, -1)
        return TimestampOffset(found.timestamp, found.offset, self._epoch_or_none(found.offset))

    def _epoch_or_none(self, offset: int | None) -> int:
        epoch = self.latest_epoch if offset is None else self._epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def legacy_offsets_before(self, timestamp: int, max_count: int) -> list[int]:
        """ListOffsets v0: the log end and segment bases no newer than `timestamp`, newest first.

        Goes by the files' time of change; -1 means all, -2 only the oldest.  The caller bounds it by
        the high watermark.
        """
        marks = [
            (max(segment.base_offset, self.log_start_offset), segment.last_modified_ms)
            for segment in self._segments
        ]
        if self._active.size > 0:
            marks.append((self.log_end_offset, self.directory.clock.now_ms()))
        if timestamp == LATEST_TIMESTAMP:
            count = len(marks)
        elif timestamp == EARLIEST_TIMESTAMP:
            count = 1
        else:
            count = next((n for n in range(len(marks), 0, -1) if marks[n - 1][1] <= timestamp), 0)
        chosen = [offset for offset, _ in marks[:count]][::-1][:max_count]
        return sorted(chosen, reverse=True)

    # -- producers -----------------------------------------------------------------------------

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int
    ) -> VerificationGuard | None:
        """A guard for the coming append, None when the transaction is already open here."""
        now_ms = self.directory.clock.now_ms()
        return self._producers.start_verification(producer_id, sequence, epoch, now_ms)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open on this partition in this epoch."""
        entry = self._producers.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.epoch == epoch

    def active_producers(self) -> list[ProducerSummary]:
        """For DescribeProducers."""
        return [
            ProducerSummary(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for entry in self._producers.producers.values()
        ]

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers silent for producer.id.expiration.ms, never those in a transaction."""
        self._producers.remove_expired(now_ms)

    # -- settings, flushing, closing -----------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Use new settings from now on."""
        self.config = config
        self._rules = AppendRules.of(config, always_deep=self._rules.always_deep)

    def request_flush(self, offset: int) -> None:
        """Have everything below `offset` synced off the loop; moves the recovery point."""
        plan = self.flush_plan(offset)
        if plan is not None:
            disk = self.directory.disk
            self.directory.later(
                lambda: plan.run(disk), f"flush of {self.topic_partition}", self.flushed
            )

    def flush_plan(self, offset: int | None = None) -> FlushPlan | None:
        """What to sync so that everything below `offset` (default: all) is on the device."""
        end = self.log_end_offset if offset is None else offset
        if end <= self.recovery_point and not self._epochs_dirty:
            return None
        return self._make_plan(end)

    def _make_plan(self, end: int) -> FlushPlan:
        first = self._segment_index(min(self.recovery_point, end))
        last = bisect_left(self._bases, end)
        paths: list[str] = []
        for segment in self._segments[first : max(last, first + 1)]:
            paths.extend(segment.stem + suffix for suffix in _SYNC_SUFFIXES)
        paths.extend(
            self._snapshot_path(o) for o in self._snapshots if self.recovery_point <= o <= end
        )
        epochs = self.epochs_file() if self._epochs_dirty else None
        self._epochs_dirty = False
        return FlushPlan(end, paths, self.dir, epochs, self.truncations)

    def flushed(self, plan: FlushPlan) -> None:
        """A flush plan was run: the recovery point moves, unless the log was cut meanwhile."""
        self.last_flush_ms = self.directory.clock.now_ms()
        if plan.truncations == self.truncations and plan.offset > self.recovery_point:
            self.recovery_point = plan.offset

    def flush(self) -> None:
        """Sync everything.  Blocks: for tests; else `LogManager.flush(log)`."""
        plan = self.flush_plan()
        if plan is not None:
            self.flushed(plan.run(self.directory.disk))

    def metadata_file(self) -> tuple[str, bytes] | None:
        """(path, content) of `partition.metadata`, None without a topic id."""
        if self.topic_id is None:
            return None
        path = f"{self.dir}/{checkpoints.PARTITION_METADATA_FILE}"
        return path, checkpoints.format_partition_metadata(self.topic_id)

    def write_metadata(self) -> None:
        """Write `partition.metadata` now, without syncing it."""
        self.is_metadata_pending = False
        found = self.metadata_file()
        if found is not None:
            file = self.directory.disk.open(found[0], create=True)
            try:
                file.truncate(0)
                file.append(found[1])
            finally:
                file.close()

    def metadata_written(self) -> None:
        """Somebody wrote `partition.metadata`."""
        self.is_metadata_pending = False

    def close(self) -> FlushPlan | None:
        """Write the closing index entries and the producers, let go of descriptors.

        Returns what is still to be synced for a clean shutdown.  A log of a failed directory is only
        let go of.
        """
        if self.is_closed:
            return None
        self.is_closed = True
        plan = None
        try:
            if self.directory.is_online:
                # Trimming changes sizes only: the mark of the clean stop, synced later, orders it.
                self._active.become_inactive()
                wrote = False
                if self.log_end_offset > 0:
                    self._producers.map_end_offset = self.log_end_offset
                    wrote = self._take_snapshot()
                if wrote or self._epochs_dirty or self.recovery_point < self.log_end_offset:
                    plan = self._make_plan(self.log_end_offset)
        except StorageError as error:
            self.directory.fail(error)
        finally:
            for segment in self._segments:
                segment.release_files()
        return plan

    def discard(self) -> None:
        """Let go of descriptors without writing: the log is deleted or its directory failed."""
        self.is_closed = True
        for segment in self._segments:
            segment.release_files()

    def renamed(self, path: str) -> None:
        """The partition directory got another name: open files go on, paths change."""
        self.dir = path
        for segment in self._segments:
            segment.rename_stem(path)
