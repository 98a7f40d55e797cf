"""Rewriting segments of a compacted log: the work itself (reference: log-store 8.2, 8.3; KIP-534).

A job is plain values in and plain values out, so that it may run in Threads or in a helper process.
It is a generator that stops after every slice of records: whoever drives it decides how much of the
processor it gets.  It reads segments that nobody changes any more and writes `.cleaned` files beside
them; making those the log's own is the caller's part.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from kafkalike.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, RecordBatch, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.control import ABORT, COMMIT, control_type
from kafkalike.records.legacy import LegacyBatch, encode_legacy
from kafkalike.records.record import Record
from kafkalike.records.scan import AnyBatch
from kafkalike.runtime.ports import Disk, File, NoSuchFile

from .index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, TXN_VERSION
from .names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, file_stem
from .producer_state import AbortedTxn
from .segment import read_facts, walk

SLICE_RECORDS: Final = 1000
SLICE_BYTES: Final = 256 << 10
_MAP_ENTRY_BYTES: Final = 150
"""What a key costs in memory beside its own length."""
_WRITE_BYTES: Final = 1 << 20


class CleaningError(Exception):
    """The log cannot be cleaned: it is marked and left alone."""


class CleaningInterrupted(Exception):
    """Segments went away while they were read: the log was deleted or retention took them."""


@dataclass(slots=True, frozen=True)
class SourceSegment:
    """A segment to be cleaned."""

    base_offset: int
    next_base_offset: int
    size: int
    index_size: int
    time_index_size: int
    mtime_ms: int


@dataclass(slots=True, frozen=True)
class LastOfProducer:
    """Which batch keeps a producer's sequence or epoch: the one that ends at `data_offset`, or where
    that is -1 the last marker of `epoch`."""

    data_offset: int
    epoch: int


@dataclass(slots=True, frozen=True)
class CleanJob:
    """Everything that decides what is kept."""

    dir: str
    segments: tuple[SourceSegment, ...]
    """All segments below `first_uncleanable`, oldest first."""
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """Memory for the map of keys."""
    aborted: tuple[AbortedTxn, ...] = ()
    """Of all segments of the log, also those not cleaned: a marker may lie above its data's range."""
    producers: dict[int, LastOfProducer] = field(default_factory=dict)


@dataclass(slots=True)
class CleanedGroup:
    """A `.cleaned` segment and what it stands for.  An empty one (`size` 0) is written too."""

    base_offset: int
    sources: list[int]
    """Base offsets of the segments it replaces."""
    size: int = 0
    has_txn_index: bool = False


@dataclass(slots=True)
class CleanResult:
    """What a job did."""

    end_offset: int = 0
    """The new first dirty offset."""
    groups: list[CleanedGroup] = field(default_factory=list)
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


def run_job(disk: Disk, job: CleanJob, result: CleanResult) -> Generator[None, None, None]:
    """Do the job slice by slice; `result` is complete when the iterator ends.

    Raises CleaningError, CorruptBatch, MalformedRecord, DecompressionError for a log that cannot be
    cleaned; CleaningInterrupted when its files went away; StorageError.
    """
    offsets = _OffsetMap(job)
    yield from offsets.build(disk, result)
    result.end_offset = offsets.latest + 1
    legacy_horizon_ms = _legacy_horizon(job)
    transactions = _Transactions(job.aborted, 0)
    for group in _groups(job, result.end_offset):
        cleaned = _Output(disk, job, group[0].base_offset)
        entry = CleanedGroup(group[0].base_offset, [source.base_offset for source in group])
        result.groups.append(entry)
        transactions.output = cleaned
        for source in group:
            keep_legacy = source.mtime_ms > legacy_horizon_ms
            yield from _clean_segment(
                disk, job, source, offsets, transactions, cleaned, result, keep_legacy
            )
        cleaned.finish(group[-1].mtime_ms)
        entry.size = cleaned.size
        entry.has_txn_index = bool(cleaned.aborted)
        result.bytes_written += cleaned.size
        yield


def remove_output(disk: Disk, job: CleanJob, result: CleanResult) -> None:
    """Take away what an abandoned job has written, whatever state its files are in."""
    for group in result.groups:
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            for state in (CLEANED, SWAP):
                path = f"{job.dir}/{file_stem(group.base_offset)}{suffix}{state}"
                if disk.exists(path):
                    disk.remove(path)


def _legacy_horizon(job: CleanJob) -> int:
    """Old tombstones stay in segments younger than this (formats 0 and 1 carry no horizon)."""
    clean = [source for source in job.segments if source.next_base_offset <= job.first_dirty]
    return clean[-1].mtime_ms - job.delete_retention_ms if clean else 0


def _groups(job: CleanJob, end_offset: int) -> list[list[SourceSegment]]:
    """Neighbours that fit one segment together: by all three files and by the span of offsets."""
    groups: list[list[SourceSegment]] = []
    sizes = [0, 0, 0]
    limits = (job.segment_bytes, job.segment_index_bytes, job.segment_index_bytes)
    for source in job.segments:
        if source.base_offset >= end_offset:
            break
        own = (source.size, source.index_size, source.time_index_size)
        fits = groups and all(s + o <= limit for s, o, limit in zip(sizes, own, limits))
        if fits:
            span = source.next_base_offset - 1 - groups[-1][0].base_offset
            fits = span <= MAX_RELATIVE_OFFSET
        if fits:
            groups[-1].append(source)
            sizes = [s + o for s, o in zip(sizes, own)]
        else:
            groups.append([source])
            sizes = list(own)
    return groups


def _source_batches(disk: Disk, job: CleanJob, source: SourceSegment) -> Iterator[AnyBatch]:
    """The whole batches of a segment; a damaged one stops the cleaning."""
    path = f"{job.dir}/{file_stem(source.base_offset)}{LOG}"
    try:
        file = disk.open(path)
    except NoSuchFile as error:
        raise CleaningInterrupted(str(error)) from error
    try:
        end = 0
        for located in walk(file, 0, source.size):
            if not located.batch.crc_is_valid():
                raise CleaningError(f"{path}: the batch at {located.position} is corrupt")
            end = located.position + located.batch.size
            yield located.batch
        if end != source.size:
            raise CleaningError(f"{path}: {source.size - end} bytes behind the last batch")
    finally:
        file.close()


class _Slices:
    """Counts work until a slice is full."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def add(self, records: int, size: int) -> bool:
        self._records += records
        self._bytes += size
        if self._records < SLICE_RECORDS and self._bytes < SLICE_BYTES:
            return False
        self._records = self._bytes = 0
        return True


class _OffsetMap:
    """The newest offset of every key from the first dirty offset on."""

    def __init__(self, job: CleanJob) -> None:
        self._job = job
        self._offsets: dict[bytes, int] = {}
        self._room = job.map_bytes
        self.latest = job.first_dirty - 1
        """The last offset that was taken into account."""

    def newest(self, key: bytes) -> int:
        """The newest known offset of a key, -1 when it is not in the dirty part."""
        return self._offsets.get(key, -1)

    def build(self, disk: Disk, result: CleanResult) -> Iterator[None]:
        """Read the dirty segments; stops early when the memory is used up."""
        job = self._job
        transactions = _Transactions(job.aborted, job.first_dirty)
        slices = _Slices()
        for source in job.segments:
            if source.next_base_offset <= job.first_dirty:
                continue
            for batch in _source_batches(disk, job, source):
                if batch.last_offset < job.first_dirty:
                    continue
                if read_facts(batch).base_offset >= job.first_uncleanable:
                    return
                discarded = (
                    transactions.on_control(batch)
                    if batch.is_control
                    else transactions.on_data(batch)
                )
                if not batch.is_control and not discarded:
                    for record in batch.records():
                        if record.offset < job.first_dirty or record.key is None:
                            continue
                        if not self._put(record.key, record.offset):
                            self._check_progress()
                            return
                self.latest = batch.last_offset
                if slices.add(getattr(batch, "count", 1), batch.size):
                    yield
        # Gaps at the end count as looked at.
        if job.segments:
            self.latest = max(self.latest, job.first_uncleanable - 1)

    def _put(self, key: bytes, offset: int) -> bool:
        if key not in self._offsets:
            self._room -= len(key) + _MAP_ENTRY_BYTES
            if self._room < 0:
                return False
        self._offsets[key] = offset
        self.latest = offset
        return True

    def _check_progress(self) -> None:
        if self.latest < self._job.first_dirty:
            raise CleaningError(f"{self._job.dir}: not one key fits log.cleaner.dedupe.buffer.size")


class _Transactions:
    """Which transactions have data left below a marker; fed with batches in the order of offsets."""

    def __init__(self, aborted: tuple[AbortedTxn, ...], start_offset: int) -> None:
        self._waiting = sorted(
            (txn for txn in aborted if txn.last_offset >= start_offset),
            key=lambda txn: txn.first_offset,
            reverse=True,
        )
        """Aborted transactions that did not begin yet, the next one last."""
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Open aborted transactions by producer, and whether a batch of theirs was met."""
        self._committed: set[int] = set()
        self.output: "_Output | None" = None

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            txn = self._waiting.pop()
            self._aborted.setdefault(txn.producer_id, (txn, False))

    def on_data(self, batch: AnyBatch) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        known = self._aborted.get(batch.producer_id)
        if known is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = (known[0], True)
        return True

    def on_control(self, batch: AnyBatch) -> bool:
        """Whether the marker stands for a transaction without data below it."""
        self._begin_up_to(batch.last_offset)
        for record in batch.records():
            kind = control_type(record.key)
            if kind == ABORT:
                known = self._aborted.pop(batch.producer_id, None)
                if known is not None and known[1]:
                    if self.output is not None:
                        self.output.aborted.append(known[0])
                    return False
                return True
            if kind == COMMIT:
                had_data = batch.producer_id in self._committed
                self._committed.discard(batch.producer_id)
                return not had_data
            return False
        return True  # emptied by an earlier pass


class _Output:
    """A `.cleaned` segment being written, with its indexes."""

    def __init__(self, disk: Disk, job: CleanJob, base_offset: int) -> None:
        self._disk = disk
        self._job = job
        self._base_offset = base_offset
        self._stem = f"{job.dir}/{file_stem(base_offset)}"
        self._file = self._create(LOG)
        self._buffer = bytearray()
        self._index = bytearray()
        self._times = bytearray()
        self._since_index = 0
        self._last_time = -1
        self._highest = -1
        self._highest_offset = base_offset
        self.size = 0
        self.aborted: list[AbortedTxn] = []

    def _create(self, suffix: str) -> File:
        try:
            file = self._disk.open(self._stem + suffix + CLEANED, create=True)
        except NoSuchFile as error:
            raise CleaningInterrupted(str(error)) from error
        file.truncate(0)
        return file

    def append(self, data: bytes | bytearray | memoryview, batch: AnyBatch) -> None:
        """Add a kept batch; `batch` tells its offsets and timestamp."""
        facts = read_facts(batch)
        if facts.max_timestamp > self._highest:
            self._highest, self._highest_offset = facts.max_timestamp, facts.last_offset
        if self._since_index > self._job.index_interval_bytes:
            self._index += OFFSET_ENTRY.pack(facts.last_offset - self._base_offset, self.size)
            self._note_time()
            self._since_index = 0
        self._since_index += len(data)
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= _WRITE_BYTES:
            self._flush()

    def _note_time(self) -> None:
        if self._highest > self._last_time:
            self._last_time = self._highest
            self._times += TIME_ENTRY.pack(self._highest, self._highest_offset - self._base_offset)

    def _flush(self) -> None:
        if self._buffer:
            self._file.append(self._buffer)
            self._buffer = bytearray()

    def finish(self, mtime_ms: int) -> None:
        """Write what is left, sync everything, take over the age of the sources."""
        self._flush()
        self._file.sync()
        self._file.close()
        self._note_time()
        files = [(INDEX, bytes(self._index)), (TIME_INDEX, bytes(self._times))]
        if self.aborted:
            entries = b"".join(TXN_ENTRY.pack(TXN_VERSION, *txn) for txn in self.aborted)
            files.append((TXN_INDEX, entries))
        for suffix, content in files:
            file = self._create(suffix)
            if content:
                file.append(content)
            file.sync()
            file.close()
        try:
            self._disk.set_mtime_ms(self._stem + LOG + CLEANED, mtime_ms)
            self._disk.sync_dir(self._job.dir)
        except NoSuchFile as error:
            raise CleaningInterrupted(str(error)) from error


def _clean_segment(
    disk: Disk,
    job: CleanJob,
    source: SourceSegment,
    offsets: _OffsetMap,
    transactions: _Transactions,
    cleaned: _Output,
    result: CleanResult,
    keep_legacy: bool,
) -> Iterator[None]:
    """Copy what is to be kept of one segment."""
    slices = _Slices()
    result.bytes_read += source.size
    for batch in _source_batches(disk, job, source):
        if isinstance(batch, RecordBatch):
            _clean_batch(job, batch, offsets, transactions, cleaned, result)
            count = batch.count
        else:
            count = _clean_legacy(batch, offsets, cleaned, result, keep_legacy)
        if slices.add(count, batch.size):
            yield


def _clean_batch(
    job: CleanJob,
    batch: RecordBatch,
    offsets: _OffsetMap,
    transactions: _Transactions,
    cleaned: _Output,
    result: CleanResult,
) -> None:
    horizon = batch.delete_horizon_ms
    expired = horizon is not None and job.now_ms >= horizon
    if batch.is_control:
        marks_empty = transactions.on_control(batch)
        drop_all = marks_empty and expired
    else:
        marks_empty = False
        drop_all = transactions.on_data(batch)
    result.records_read += batch.count
    if batch.base_offset >= job.first_uncleanable:
        # It shares a segment with what is cleaned.  Nothing up here is decided yet, not even an
        # abort: its marker may still be truncated.
        result.records_kept += batch.count
        cleaned.append(batch.view(), batch)
        return
    kept: list[Record] = []
    has_tombstone = False
    if not drop_all:
        for record in batch.records():
            if not batch.is_control and not _is_kept(record, offsets, keep_tombstones=not expired):
                continue
            kept.append(record)
            has_tombstone = has_tombstone or (record.value is None and not batch.is_control)
    result.records_kept += len(kept)
    if not kept:
        if batch.has_producer_id and _is_last_of_producer(job, batch):
            empty = _empty_batch(batch)
            cleaned.append(empty, RecordBatch(empty))
        return
    needs_horizon = horizon is None and (has_tombstone or marks_empty)
    if len(kept) == batch.count and not needs_horizon:
        cleaned.append(batch.view(), batch)
        return
    if needs_horizon:
        horizon = job.now_ms + job.delete_retention_ms
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    rebuilt = encode_batch(
        kept,
        base_offset=batch.base_offset,
        codec=Codec(batch.codec),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
        append_time_ms=append_time,
        delete_horizon_ms=horizon,
        last_offset=batch.last_offset,
    )
    cleaned.append(rebuilt, RecordBatch(rebuilt))


def _is_kept(record: Record, offsets: _OffsetMap, *, keep_tombstones: bool) -> bool:
    if record.offset > offsets.latest:
        return True
    if record.key is None:
        return False
    if record.offset < offsets.newest(record.key):
        return False
    return record.value is not None or keep_tombstones


def _is_last_of_producer(job: CleanJob, batch: RecordBatch) -> bool:
    last = job.producers.get(batch.producer_id)
    if last is None:
        return False
    if last.data_offset >= 0:
        return batch.last_offset == last.data_offset
    return batch.is_control and batch.producer_epoch == last.epoch


def _empty_batch(batch: RecordBatch) -> bytearray:
    """A header without records that keeps offsets, sequence and producer (record-format 2)."""
    empty = encode_batch(
        [],
        base_offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
        append_time_ms=batch.max_timestamp if batch.is_log_append_time else None,
        last_offset=batch.last_offset,
        max_timestamp=batch.max_timestamp,
    )
    assert len(empty) == HEADER_BYTES == HEADER.size and LOG_OVERHEAD < HEADER_BYTES
    return empty


def _clean_legacy(
    batch: LegacyBatch,
    offsets: _OffsetMap,
    cleaned: _Output,
    result: CleanResult,
    keep_legacy: bool,
) -> int:
    """Old messages keep their format; returns how many there were."""
    records = list(batch.records())
    kept = [record for record in records if _is_kept(record, offsets, keep_tombstones=keep_legacy)]
    result.records_read += len(records)
    result.records_kept += len(kept)
    if len(kept) == len(records):
        cleaned.append(batch.view(), batch)
    elif kept:
        append_time = batch.max_timestamp if batch.is_log_append_time else None
        data = encode_legacy(kept, batch.magic, Codec(batch.codec), append_time_ms=append_time)
        cleaned.append(data, LegacyBatch(data))
    return len(records)
