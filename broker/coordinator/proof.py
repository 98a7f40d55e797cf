"""Whether a snapshot may be believed: the log it lies beside must prove it.

A snapshot says what the records up to an offset add up to.  That is true of this log when

- it is the same topic, and the log begins where it began then (DeleteRecords forgets);
- the last batch it counts is here with the same offsets, leader epoch and checksum.  A log that was
  cut, by an unclean election or a lost disk cache, and grew again has another batch there: one that
  was written in another epoch, or at another time;
- from there on no offset is missing.  Compaction leaves gaps, and may have taken a tombstone that
  ended a key which the snapshot still holds.

What is not proven is read from the log from its beginning.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kafkalike.errors import OffsetOutOfRange
from kafkalike.records.batch import CorruptBatch, RecordBatch
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import Disk, File, FileRange, NoSuchFile, StorageError

from ..log.log import FetchIsolation, Log
from .replay import BatchMark, Replay
from .snapshot import (
    FILE_NAME,
    HEADER_BYTES,
    NO_TOPIC_ID,
    SECTION_HEAD_BYTES,
    DamagedSnapshot,
    Header,
    SnapshotReader,
    read_header,
)

T = TypeVar("T")
Steps = Generator[Callable[[], Any] | None, Any, T]
"""Work in slices: None is a chance to pause, a function is to be run where it may block and its
result sent (or its exception thrown) back in."""


class SnapshotVoid(Exception):
    """The log does not prove the snapshot; the text says why."""


def snapshot_path(log: Log) -> str:
    """Where the snapshot of a log lies."""
    return f"{log.dir}/{FILE_NAME}"


def read_range(records: Any) -> Steps[bytes]:
    """The bytes of what `Log.read` found.  Raises StorageError."""
    if not isinstance(records, FileRange):
        return bytes(records)
    file = records.file
    file.retain()
    try:
        data: bytes = yield records.read
        return data
    finally:
        file.release()


def prove(log: Log, header: Header) -> Steps[None]:
    """Check a header against its log; what follows the last batch is checked with `check_follows`.
    Raises SnapshotVoid, StorageError."""
    mark = header.mark
    if header.topic_id != (log.topic_id or NO_TOPIC_ID):
        raise SnapshotVoid("it is of another topic of that name")
    if header.partition != log.topic_partition.partition:
        raise SnapshotVoid(f"it is of partition {header.partition}")
    if header.log_start_offset != log.log_start_offset:
        raise SnapshotVoid(
            f"the log began at {header.log_start_offset} then, at {log.log_start_offset} now"
        )
    if not log.log_start_offset <= mark.base_offset < mark.next_offset <= log.log_end_offset:
        raise SnapshotVoid(f"it goes to {mark.next_offset}, the log to {log.log_end_offset}")
    found: BatchMark | None = None
    try:
        info = log.read(mark.base_offset, 1, FetchIsolation.LOG_END, True)
        data = yield from read_range(info.records)
        for batch in iterate_batches(data):
            if isinstance(batch, RecordBatch):
                found = BatchMark.of(batch)
            break
    except (OffsetOutOfRange, CorruptBatch) as error:
        raise SnapshotVoid(f"its last batch cannot be read: {error}") from error
    if found != mark:
        raise SnapshotVoid(f"its last batch was {mark}, here is {found}")


def check_follows(batch: AnyBatch, position: int) -> None:
    """Raise SnapshotVoid unless the batch begins at `position` and has all its records."""
    whole = (
        isinstance(batch, RecordBatch)
        and batch.base_offset == position
        and batch.count == batch.last_offset_delta + 1
    )
    if not whole:
        raise SnapshotVoid(f"records are missing from offset {position} on")


class FoundSnapshot(NamedTuple):
    """An open snapshot whose header the log proves."""

    file: File
    size: int
    header: Header
    crc: int


def open_snapshot(log: Log, disk: Disk, logger: logging.Logger) -> Steps[FoundSnapshot | None]:
    """The snapshot of `log`, None where there is none that can be used; the caller closes it."""
    path = snapshot_path(log)
    file: File | None = None
    try:
        file = yield partial(disk.open, path)
        size, head = yield partial(_size_and_header, file)
        header, crc = read_header(head)
        yield from prove(log, header)
        found = FoundSnapshot(file, size, header, crc)
        file = None
        return found
    except NoSuchFile:
        return None
    except SnapshotVoid as error:
        logger.info("snapshot %s is not used: %s", path, error)
    except (DamagedSnapshot, StorageError) as error:
        logger.warning("snapshot %s is not used: %s", path, error)
    finally:
        if file is not None:
            file.close()
    return None


def read_snapshot(found: FoundSnapshot, replay: Replay) -> Steps[None]:
    """Put it into an empty replay.  Raises DamagedSnapshot, StorageError."""
    reader = SnapshotReader(replay, found.size, found.crc)
    position = HEADER_BYTES
    while not reader.is_complete:
        head, body = yield partial(_read_section, found.file, position, reader)
        yield from reader.read(head, body)
        position += len(head) + len(body)
        yield None
    replay.begin_at(found.header.mark)


def begin_with_snapshot(log: Log, disk: Disk, logger: logging.Logger) -> Steps[Replay]:
    """A replay that holds the snapshot of `log`, or an empty one (`last` is None) where there is
    none that can be used."""
    name = str(log.topic_partition)
    found = yield from open_snapshot(log, disk, logger)
    if found is None:
        return Replay(name, logger)
    try:
        replay = Replay(name, logger)
        yield from read_snapshot(found, replay)
        return replay
    except (DamagedSnapshot, StorageError) as error:
        logger.warning("snapshot %s is not used: %s", found.file.path, error)
        return Replay(name, logger)
    finally:
        found.file.close()


def _size_and_header(file: File) -> tuple[int, bytes]:
    return file.size(), file.pread(HEADER_BYTES, 0)


def _read_section(file: File, position: int, reader: SnapshotReader) -> tuple[bytes, bytes]:
    head = file.pread(SECTION_HEAD_BYTES, position)
    length = reader.body_length(head)
    return head, file.pread(length, position + len(head))
