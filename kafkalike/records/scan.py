"""Walk the batches of any format in a buffer (reference: record-format 5)."""

from collections.abc import Iterator
from typing import TypeAlias

from kafkalike.runtime.ports import Buffer

from .batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    MIN_LEGACY_BYTES,
    MIN_PREFIX_BYTES,
    PREFIX,
    CorruptBatch,
    RecordBatch,
)
from .legacy import LegacyBatch

AnyBatch: TypeAlias = RecordBatch | LegacyBatch


def batch_size(buffer: Buffer, position: int, end: int) -> int:
    """Size of the batch at `position` by its own word, 0 when not even its prefix is there.

    Raises CorruptBatch at a size or format that no batch can have.
    """
    if end - position < MIN_PREFIX_BYTES:
        return 0
    _, length, _, magic = PREFIX.unpack_from(buffer, position)
    if length < MIN_LEGACY_BYTES:
        raise CorruptBatch(f"a batch at byte {position} declares {length} bytes")
    if magic == 2:
        if length < HEADER_BYTES - LOG_OVERHEAD:
            raise CorruptBatch(f"a batch at byte {position} declares only {length} bytes")
    elif magic not in (0, 1):
        raise CorruptBatch(f"a batch at byte {position} has format {magic}, expected 0 to 2")
    return int(length) + LOG_OVERHEAD


def batch_at(buffer: Buffer, position: int) -> AnyBatch:
    """The batch at `position`; the buffer holds all of it (see `batch_size`)."""
    if buffer[position + 16] == 2:
        return RecordBatch(buffer, position)
    return LegacyBatch(buffer, position)


def iterate_batches(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[AnyBatch]:
    """The batches in a buffer; a partial batch at the end ends the walk silently.

    Raises CorruptBatch at a size or format that no batch can have.
    """
    stop = len(buffer) if end is None else end
    while stop - position >= HEADER_BYTES and buffer[position + 16] == 2:
        batch = RecordBatch(buffer, position)
        size = batch.size
        if size < HEADER_BYTES:
            raise CorruptBatch(f"a batch at byte {position} declares {size - LOG_OVERHEAD} bytes")
        if size > stop - position:
            return
        yield batch
        position += size
    # The end of the data, or old messages.
    while True:
        size = batch_size(buffer, position, stop)
        if not size or size > stop - position:
            return
        yield batch_at(buffer, position)
        position += size
