"""Records for clients that know old message formats only: Fetch v0-1 format 0, v2-3 format 1.

Reference: record-format 9.  The answer is as long as what was read, as in Kafka, which announces the
size before it converts: what conversion leaves over is filled with the head of a message that does
not fit, which every client takes for a cut one.  Pure functions of bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from kafkalike.errors import UnsupportedCompressionType
from kafkalike.records.batch import RecordBatch
from kafkalike.records.compression import Codec
from kafkalike.records.legacy import encode_legacy
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import Buffer

NEWEST_CONVERTED_VERSION: Final = 3
CHUNK_BYTES: Final = 128 << 10
"""Kafka converts so much at a time; a batch that cannot be converted spoils its whole chunk."""
CONVERTED_BYTES: Final = 1 << 20
"""Of one answer no more is converted, so that an old client cannot hold up the others."""

_FILLER: Final = struct.Struct(">qi")
_SMALLEST_BATCH: Final = 61


def magic_for(version: int) -> int:
    """The newest message format that a Fetch version up to 3 may carry."""
    return 0 if version <= 1 else 1


def down_convert(records: Buffer, magic: int, fetch_offset: int) -> bytes:
    """Stored batches as messages of format `magic`, without control batches and headers.

    Uncompressed records below `fetch_offset` are left out; batches of an old format stay.  Raises
    UnsupportedCompressionType when the first batch is compressed with zstd.
    """
    batches = iterate_batches(records)
    first = next(batches, None)
    if first is None:
        return b""  # not even one whole batch
    converted = bytearray(_convert(first, magic, fetch_offset))
    size = max(len(records), len(converted))
    try:
        for chunk in _chunks(batches):
            if len(converted) >= size:
                break
            converted += b"".join([_convert(batch, magic, fetch_offset) for batch in chunk])
    except UnsupportedCompressionType:
        pass  # the size is settled: the client comes back for the rest and is told then
    if len(converted) < size:
        rest = size - len(converted)
        filler = _FILLER.pack(-1, max(rest + 1, _SMALLEST_BATCH))
        converted += filler[:rest].ljust(rest, b"\0")
    return bytes(converted[:size])


def _chunks(batches: Iterator[AnyBatch]) -> Iterator[Sequence[AnyBatch]]:
    chunk: list[AnyBatch] = []
    size = 0
    for batch in batches:
        if chunk and size + batch.size > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(batch)
        size += batch.size
    if chunk:
        yield chunk


def _convert(batch: AnyBatch, magic: int, fetch_offset: int) -> Buffer:
    if batch.magic <= magic:
        return batch.view()
    if batch.is_control:
        return b""
    if batch.codec == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd cannot be converted to an old message format")
    records = list(batch.records())
    if batch.codec == Codec.NONE:
        records = [record for record in records if record.offset >= fetch_offset]
    marked = isinstance(batch, RecordBatch) and batch.is_log_append_time
    return encode_legacy(
        records,
        magic,
        Codec(batch.codec),
        append_time_ms=batch.max_timestamp if marked else None,
    )
