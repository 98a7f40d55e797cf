"""One segment of a log: its file and its indexes (reference: log-store 2, 4, 5.1, 9).

Positions are bytes in the `.log` file, offsets are absolute.  A segment knows the positions of the
batches appended last (`_tail_*`), so that readers near the end need no index and no disk.
"""

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafkalike.records.batch import HEADER_BYTES, MIN_PREFIX_BYTES, CorruptBatch, RecordBatch
from kafkalike.records.legacy import LegacyBatch
from kafkalike.records.scan import AnyBatch, batch_at, batch_size
from kafkalike.runtime.ports import Buffer, Disk, File, NoSuchFile, StorageError

from .directory import LogDirectory
from .index import CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex
from .names import DELETED, LOG, SEGMENT_SUFFIXES, file_stem

_logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
_TAIL_LIMIT: Final = 128
_SCAN_BYTES: Final = 4096
_READ_BYTES: Final = 1 << 20
_REPAIR_INTERVAL_BYTES: Final = 4096
LARGEST_BATCH_BYTES: Final = 1 << 28
"""What a walk takes into memory for one batch; no request could have brought a larger one."""


class BatchFacts(NamedTuple):
    """What a segment needs to know of a batch that is appended."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int


class Located(NamedTuple):
    """A batch in the file."""

    position: int
    batch: AnyBatch


class LogSegment:
    """A `.log` file with its indexes.

    Only the newest segment of a log is written.  `max_timestamp` and the offset that carries it are
    read from the time index when first asked for; `size` is what has been appended or found valid.
    """

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_log_suffix",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_repair",
        "_tail_from",
        "_tail_next",
        "_tail_positions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "index",
        "indexes_are_full",
        "jitter_ms",
        "recently_used",
        "size",
        "stem",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: LogDirectory,
        log_dir: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        has_txn_index: bool = False,
        log_suffix: str = "",
    ) -> None:
        self._log_suffix = log_suffix
        self.directory = directory
        self.stem = f"{log_dir}/{file_stem(base_offset)}"
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.bytes_since_index = 0
        self.index = OffsetIndex(directory, self.stem, base_offset)
        self.time_index = TimeIndex(directory, self.stem, base_offset)
        self.txn_index = TransactionIndex(directory, self.stem, exists=has_txn_index)
        self.indexes_are_full = False
        self.recently_used = False
        self._file: File | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = NO_TIMESTAMP if size == 0 else None
        self._max_timestamp_offset = base_offset
        self._repair: IndexRepair | None = None
        # The tail knows nothing of batches that were there before.
        self._tail_from = base_offset if size == 0 else -1
        self._tail_next: array[int] | None = None
        self._tail_positions: array[int] | None = None

    # -- files ---------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.stem + LOG + self._log_suffix

    @property
    def file(self) -> File:
        """The `.log` file, opened when needed.  Retain it to keep it beyond this turn."""
        self.recently_used = True
        return self._file or self._open()

    def _open(self) -> File:
        file = self._file = self.directory.disk.open(self.path, create=True)
        self.directory.files.opened(self)
        return file

    def close_file(self) -> File | None:
        file, self._file = self._file, None
        return file

    def create_files(self, index_bytes: int) -> None:
        """Begin as an empty segment with empty indexes; leftovers of the same name are emptied."""
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.truncate(0)
        finally:
            file.close()
        self.index.create(index_bytes)
        self.time_index.create(index_bytes)
        self.indexes_are_full = self.index.is_full or self.time_index.is_full
        if self.txn_index.exists:
            self.txn_index.rewrite([])

    def prepare_append(self, index_bytes: int) -> None:
        """Make the indexes of a loaded segment writable."""
        if not self.index.is_writable:
            self.index.prepare_append(index_bytes)
        if not self.time_index.is_writable:
            self.time_index.prepare_append(index_bytes)
        self.indexes_are_full = self.index.is_full or self.time_index.is_full

    def become_inactive(self) -> None:
        """Write the closing time entry and trim the indexes: no more appends (roll, close)."""
        if self.time_index.is_writable:
            timestamp = self.max_timestamp
            if timestamp >= 0:
                self.time_index.maybe_append(timestamp, self._max_timestamp_offset, closing=True)
            self.time_index.trim()
            self.index.trim()

    def forget_tail(self) -> None:
        """Give back the memory that speeds up reads near the end."""
        self._tail_next = self._tail_positions = None
        self._tail_from = self.base_offset if self.size == 0 else -1

    def close(self) -> None:
        """Trim the indexes and let go of all descriptors."""
        self.become_inactive()
        self.release_files()

    def release_files(self) -> None:
        """Let go of descriptors and cached entries without writing anything."""
        self._repair = None
        self.index.forget()
        self.time_index.forget()
        file = self.close_file()
        if file is not None:
            self.directory.files.forget(self)
            # A range read in this turn may still be on its way to a socket.
            self.directory.files.close_soon(file)

    def rename_stem(self, log_dir: str) -> None:
        """The partition directory was renamed."""
        self.stem = f"{log_dir}/{file_stem(self.base_offset)}"
        self.index.stem = self.time_index.stem = self.txn_index.stem = self.stem

    def rename_to_deleted(self) -> list[str]:
        """Mark all files `.deleted` and let go of them; returns the new paths, to be removed."""
        self.release_files()
        disk = self.directory.disk
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.stem + suffix
            if disk.exists(path):
                disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    # -- appending -----------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[BatchFacts], index_interval: int) -> None:
        """Write `data`, which holds exactly `batches`, at the end.

        A sparse index entry comes before a batch once more than `index_interval` bytes went by
        without one; entries are per batch also where several are appended at once (log-store 11).
        """
        file = self._file
        self.recently_used = True
        position = (file or self._open()).append(data)
        assert position == self.size, f"{self.path} ends at {position}, expected {self.size}"
        tail_next, tail_positions = self._tail_next, self._tail_positions
        if tail_next is None or tail_positions is None:
            tail_next = self._tail_next = array("q")
            tail_positions = self._tail_positions = array("i")
            if self._tail_from < 0:
                self._tail_from = batches[0][0]
        highest = self._max_timestamp
        if highest is None:
            highest = self.max_timestamp
        since_index = self.bytes_since_index
        for _, last_offset, size, timestamp in batches:
            if timestamp > highest:
                highest = self._max_timestamp = timestamp
                self._max_timestamp_offset = last_offset
            if position == 0:
                self._first_timestamp = timestamp
            if since_index > index_interval:
                self.index.append(last_offset, position)
                self.time_index.maybe_append(highest, self._max_timestamp_offset)
                self.indexes_are_full = self.index.is_full or self.time_index.is_full
                since_index = 0
            since_index += size
            tail_next.append(last_offset + 1)
            tail_positions.append(position)
            position += size
        self.bytes_since_index = since_index
        self.size = position
        if len(tail_next) > _TAIL_LIMIT:
            drop = len(tail_next) - _TAIL_LIMIT // 2
            self._tail_from = tail_next[drop - 1]
            del tail_next[:drop], tail_positions[:drop]

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record, -1 when there is none."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the batch with the largest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    def _load_max_timestamp(self) -> None:
        """From the last time entry if the log bears it out, else from a walk over all batches."""
        timestamp, offset = self.time_index.last_entry()
        if self.time_index.count == 0 or not self._bears_out(timestamp, offset):
            if self.time_index.count > 0:
                self._contradicted(self.time_index.path, timestamp, offset)
            timestamp, offset = self._highest_timestamp(0, NO_TIMESTAMP, self.base_offset)
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    def _highest_timestamp(self, position: int, timestamp: int, offset: int) -> tuple[int, int]:
        """The largest timestamp with its batch's last offset: `timestamp`, unless one of the batches
        from `position` on is above it.

        Where batches cannot be read the file's age counts too: nothing may be taken for older than
        it is.
        """
        try:
            for located in self.iterate(position, headers_only=True):
                batch = located.batch
                if batch.max_timestamp > timestamp:
                    timestamp, offset = batch.max_timestamp, batch.last_offset
        except CorruptBatch as error:
            _logger.warning("timestamps cannot be read segment=%s: %s", self.path, error)
            timestamp = max(timestamp, self.last_modified_ms)
        return timestamp, offset

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """What a recovery found."""
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    @property
    def largest_timestamp(self) -> int:
        """For retention: the largest timestamp, or the file's age where records carry none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.last_modified_ms

    @property
    def last_modified_ms(self) -> int:
        try:
            return self.directory.disk.mtime_ms(self.path)
        except NoSuchFile:  # nothing has been written yet
            return self.directory.clock.now_ms()

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, which starts the clock of segment.ms."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            for located in self.iterate(0, headers_only=True):
                self._first_timestamp = located.batch.max_timestamp
                break
            else:
                return NO_TIMESTAMP
        return self._first_timestamp

    # -- finding -------------------------------------------------------------------------------

    def position_for(self, offset: int) -> int:
        """Position of the first batch whose last offset is at least `offset`, else `size`."""
        if self._tail_next is not None and offset >= self._tail_from:
            assert self._tail_positions is not None
            index = bisect_right(self._tail_next, offset)
            return self._tail_positions[index] if index < len(self._tail_positions) else self.size
        if offset <= self.base_offset:
            return 0
        for entry_offset, position in self.index.steps_back_from(offset):
            found = self._walk_to(offset, position)
            if found is not None:
                return found
            self._contradicted(self.index.path, entry_offset, position)
        found = self._walk_to(offset, 0)
        if found is None:
            raise CorruptBatch(f"{self.path}: no batches in the order of offsets up to {offset}")
        return found

    def _walk_to(self, offset: int, position: int) -> int | None:
        """As `position_for`, from the batch that an index entry promises at `position`.

        None when the log does not bear the entry out: no batch is there, or one that begins above
        `offset`, so that what is looked for may lie before it.  Position 0 needs no promise: there
        CorruptBatch is raised.
        """
        if not 0 <= position < max(self.size, 1):
            return None
        end, first = position, position > 0
        try:
            for located in self.iterate(position, headers_only=True):
                batch = located.batch
                last_offset = batch.last_offset
                if first:
                    base_offset = read_facts(batch).base_offset
                    if not self.base_offset <= base_offset <= min(offset, last_offset):
                        return None
                    first = False
                if last_offset >= offset:
                    return located.position
                end = located.position + batch.size
        except CorruptBatch:
            if position > 0:
                return None
            raise
        if end == self.size and not first:
            return end
        if position > 0:
            return None
        raise CorruptBatch(f"{self.path}: no whole batch at byte {end} of {self.size}")

    def position_for_time(self, timestamp: int, offset: int) -> int:
        """Position of a batch at or before the first that has records of at least `timestamp` and
        reaches `offset`."""
        for entry_timestamp, entry_offset in self.time_index.steps_back_from(timestamp):
            if entry_timestamp <= timestamp and self._bears_out(entry_timestamp, entry_offset):
                return self.position_for(max(entry_offset, offset))
            self._contradicted(self.time_index.path, entry_timestamp, entry_offset)
        return self.position_for(offset)

    def _bears_out(self, timestamp: int, offset: int) -> bool:
        """Whether the batch with `offset` has `timestamp` for its largest, as a time entry says."""
        try:
            position = self.position_for(offset)
            for located in self.iterate(position, headers_only=True):
                batch = located.batch
                return read_facts(batch).base_offset <= offset and batch.max_timestamp == timestamp
        except CorruptBatch:
            pass  # whoever reads there is told
        return False

    def offset_behind(self, position: int) -> int | None:
        """An offset above those of all batches that begin before `position`, by the index; None
        when it knows none."""
        entry = self.index.entry_from_position(position)
        if entry is None:
            return None
        try:
            for located in self.iterate(max(entry[1], position), headers_only=True):
                if self.base_offset < read_facts(located.batch).base_offset <= entry[0]:
                    return entry[0]
                break
        except CorruptBatch:
            pass  # no batch begins there: the entry is wrong
        self._contradicted(self.index.path, *entry)
        return None

    def _contradicted(self, path: str, key: int, value: int) -> None:
        """An entry leads where it cannot: have both indexes made anew, once."""
        if self._repair is not None:
            return
        _logger.warning(
            "index entry contradicts the log, making the indexes anew index=%s entry=%d,%d",
            path,
            key,
            value,
        )
        repair = self._repair = IndexRepair(
            self.path,
            self.base_offset,
            self.size,
            (len(self.index.entries()), len(self.time_index.entries())),
        )
        disk = self.directory.disk
        if self.directory.is_loading:
            self._repaired(repair.run(disk))
        else:
            self.directory.later(
                lambda: repair.run(disk), f"indexes of {self.path}", self._repaired
            )

    def _repaired(self, repair: "IndexRepair") -> None:
        """Take over indexes made anew, unless the segment was cut or removed meanwhile."""
        if repair is not self._repair:
            return
        if repair.problem:  # and so it stays
            _logger.warning("indexes cannot be made anew segment=%s: %s", self.path, repair.problem)
            return
        self._repair = None
        try:
            offsets_known, timestamps_known = repair.known_counts
            self.index.replace(repair.offsets, offsets_known)
            self.time_index.replace(repair.timestamps, timestamps_known, repair.highest)
        except StorageError as error:
            self.directory.fail(error)

    def first_batch_size(self, position: int) -> int:
        """Size of the batch at `position`, 0 at the end."""
        head = self.file.pread(12, position)
        if len(head) < 12:
            return 0
        return int.from_bytes(head[8:12], "big") + 12

    def iterate(
        self, position: int = 0, end: int | None = None, *, headers_only: bool = False
    ) -> Iterator[Located]:
        """The batches from `position` up to `end` (default: the segment's size).

        With `headers_only` the batches' payloads must not be touched.  A batch that does not fit
        ends the walk.  Raises CorruptBatch at bytes that are none.
        """
        stop = self.size if end is None else end
        return walk(self.file, position, stop, headers_only=headers_only)

    def next_offset(self) -> int:
        """The offset behind the last batch, found by the index and a walk from its last entry."""
        if self.size == 0:
            return self.base_offset
        _, position = self.index.last_entry()
        if position >= self.size:
            position = 0  # the index contradicts the log: do not use it
        found = self.base_offset
        for located in self.iterate(position, headers_only=True):
            found = located.batch.next_offset
        return found

    def checked_next_offset(self) -> int:
        """As `next_offset`, of a file that nobody has looked at yet.

        Raises CorruptIndex when the index's last entry does not lead to the batch it names,
        CorruptBatch when whole batches do not fill the file.  A wrong entry that was believed would
        put the end of the log below records that are there.
        """
        offset, position = self.index.last_entry()
        has_entry = self.index.count > 0
        if has_entry and not (offset >= self.base_offset and 0 <= position < self.size):
            raise CorruptIndex(
                f"{self.index.path}: the last entry leads from offset {offset} to byte {position} "
                f"of {self.size}"
            )
        found, end = self.base_offset, position
        for located in self.iterate(position, headers_only=True):
            facts = read_facts(located.batch)
            if has_entry and end == position and facts.last_offset > offset:
                raise CorruptIndex(
                    f"{self.index.path}: the last entry leads from offset {offset} to a batch that "
                    f"ends at {facts.last_offset}"
                )
            found, end = facts.last_offset + 1, located.position + facts.size
        if end != self.size:
            raise CorruptBatch(f"{self.path}: no whole batch at byte {end} of {self.size}")
        if has_entry and found <= offset:
            raise CorruptIndex(
                f"{self.index.path}: the last entry names offset {offset}, the file ends at {found}"
            )
        return found

    # -- cutting -------------------------------------------------------------------------------

    def truncate_to(self, offset: int, index_bytes: int) -> int:
        """Remove the batches from the first whose last offset is at least `offset`.

        Returns the bytes removed.  The segment is then writable.
        """
        self.prepare_append(index_bytes)
        position = self.position_for(offset)
        self._repair = None
        removed = self.size - position
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.indexes_are_full = self.index.is_full or self.time_index.is_full
        if removed == 0:
            return 0
        self.file.truncate(position)
        self.size = position
        self.bytes_since_index = 0
        self._tail_next = self._tail_positions = None
        self._tail_from = self.base_offset if position == 0 else -1
        if position == 0:
            self.created_ms = self.directory.clock.now_ms()
            self._first_timestamp = None
            self._max_timestamp = NO_TIMESTAMP
            self._max_timestamp_offset = self.base_offset
        else:
            highest, at = self.time_index.last_entry()
            start = 0
            if self.time_index.count and self._bears_out(highest, at):
                # The time index is sparse: what is above its last entry must be looked at.
                start = self.position_for(at)
            else:
                highest, at = NO_TIMESTAMP, self.base_offset
            self._max_timestamp, self._max_timestamp_offset = self._highest_timestamp(
                start, highest, at
            )
        return removed

    def cut_file(self, size: int) -> None:
        """Recovery found nothing of use from `size` on."""
        self._repair = None
        self.file.truncate(size)
        self.size = size
        self._first_timestamp = None
        if size == 0:
            self.set_max_timestamp(NO_TIMESTAMP, self.base_offset)
            self._tail_from = self.base_offset

    def sanity_check(self) -> None:
        """What a clean load looks at: raises CorruptIndex when the transaction index is wrong."""
        if self.txn_index.exists:
            for txn in self.txn_index.entries():
                if txn.last_offset < self.base_offset:
                    raise CorruptIndex(
                        f"{self.txn_index.path}: a transaction ends at {txn.last_offset}, below "
                        f"the base offset {self.base_offset}"
                    )


class IndexRepair:
    """The entries of both indexes of one segment, made anew from its batches.

    `run` blocks and belongs into Threads: it looks only at the first `size` bytes.
    """

    __slots__ = (
        "base_offset",
        "highest",
        "known_counts",
        "offsets",
        "path",
        "problem",
        "size",
        "timestamps",
    )

    def __init__(
        self, path: str, base_offset: int, size: int, known_counts: tuple[int, int]
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.known_counts = known_counts
        """Entries of both indexes when this began; later ones were written meanwhile."""
        self.offsets: list[tuple[int, int]] = []
        self.timestamps: list[tuple[int, int]] = []
        self.highest = (NO_TIMESTAMP, base_offset)
        self.problem = ""

    def run(self, disk: Disk) -> "IndexRepair":
        """Read the headers of all batches.  Raises StorageError."""
        try:
            file = disk.open(self.path)
        except NoSuchFile as error:
            self.problem = str(error)
            return self
        since_index = end = 0
        try:
            for position, batch in walk(file, 0, self.size, headers_only=True):
                facts = read_facts(batch)
                if facts.max_timestamp > self.highest[0]:
                    self.highest = (facts.max_timestamp, facts.last_offset)
                if since_index > _REPAIR_INTERVAL_BYTES:
                    self.offsets.append((facts.last_offset, position))
                    if not self.timestamps or self.highest[0] > self.timestamps[-1][0] >= 0:
                        self.timestamps.append(self.highest)
                    since_index = 0
                since_index += facts.size
                end = position + facts.size
            if end != self.size:
                self.problem = f"no whole batch at byte {end} of {self.size}"
        except CorruptBatch as error:
            self.problem = str(error)
        finally:
            file.close()
        return self


def read_facts(batch: AnyBatch) -> BatchFacts:
    """The facts of a v2 batch, or of an old message without looking inside a wrapper."""
    if isinstance(batch, RecordBatch):
        return BatchFacts(batch.base_offset, batch.last_offset, batch.size, batch.max_timestamp)
    assert isinstance(batch, LegacyBatch)
    return BatchFacts(batch.last_offset, batch.last_offset, batch.size, batch.max_timestamp)


def walk(file: File, position: int, stop: int, *, headers_only: bool = False) -> Iterator[Located]:
    """The batches of an open log file from `position` up to `stop`.

    With `headers_only` the batches' payloads must not be touched.  A batch that does not fit ends the
    walk.  Raises CorruptBatch at bytes that are none.
    """
    window = _SCAN_BYTES if headers_only else _READ_BYTES
    while position < stop:
        chunk = file.pread(min(window, stop - position), position)
        at, available = 0, len(chunk)
        if available < MIN_PREFIX_BYTES:
            return
        while True:
            size = batch_size(chunk, at, available)
            if size > stop - position - at:
                return
            if size == 0:
                break  # the prefix lies beyond the chunk
            if headers_only and chunk[at + 16] == 2:
                if at + HEADER_BYTES > available:
                    break
            elif at + size > available:
                break
            yield Located(position + at, batch_at(chunk, at))
            at += size
            if at >= available:
                break
        if at == 0:
            # Not even one batch fits the window (or the file is shorter than it should be).
            if size == 0 or available < min(window, stop - position):
                return
            if size > LARGEST_BATCH_BYTES:
                raise CorruptBatch(f"{file.path}: a batch at {position} declares {size} bytes")
            chunk = file.pread(size, position)
            if len(chunk) < size:
                return
            yield Located(position, batch_at(chunk, 0))
            at = size
        position += at
