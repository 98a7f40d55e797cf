"""Committed offsets of one topic as a snapshot stores them, unpacked when somebody asks for them.

A block is `count` entries of fixed size, then, unless all metadata is empty, the lengths of the
metadata in bytes (i16 each) and the metadata themselves:

    entry: partition i32, offset i64, leader epoch i32, commit timestamp i64, expiry timestamp i64,
           offset of the batch in the log i64
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import Final

from kafkalike.types import TopicPartition

from .values import NO_TIMESTAMP, OffsetAndMetadata

ENTRY: Final = Struct(">iqiqqq")
BLOCK_ENTRIES: Final = 2000
"""Entries of one block at most: unpacking one is done within a few milliseconds."""
_LENGTHS: Final = "H"


class PackedOffsets:
    """One block.  `count` entries, the earliest commit at `oldest_ms`; `expires` when an entry has an
    expiry time of its own."""

    __slots__ = ("count", "data", "expires", "oldest_ms", "topic")

    def __init__(self, topic: str, count: int, oldest_ms: int, expires: bool, data: bytes) -> None:
        self.topic = topic
        self.count = count
        self.oldest_ms = oldest_ms
        self.expires = expires
        self.data = data

    @property
    def is_sound(self) -> bool:
        """Whether `data` holds what `count` says, so that unpacking cannot fail."""
        size = self.count * ENTRY.size
        rest = len(self.data) - size
        if rest == 0:
            return True
        lengths = Struct(f">{self.count}{_LENGTHS}")
        if rest < lengths.size:
            return False
        return bool(sum(lengths.unpack_from(self.data, size)) == rest - lengths.size)

    def unpack(self) -> Iterator[tuple[TopicPartition, OffsetAndMetadata, int]]:
        """(partition, value, offset of its batch in the log) of each entry."""
        topic, data = self.topic, self.data
        size = self.count * ENTRY.size
        texts: Iterator[str] = repeat("") if len(data) == size else self._texts(size)
        for entry, text in zip(ENTRY.iter_unpack(memoryview(data)[:size]), texts, strict=False):
            partition, offset, epoch, committed_ms, expires_ms, log_offset = entry
            yield (
                TopicPartition(topic, partition),
                OffsetAndMetadata(offset, epoch, text, committed_ms, expires_ms),
                log_offset,
            )

    def _texts(self, position: int) -> Iterator[str]:
        lengths = Struct(f">{self.count}{_LENGTHS}")
        at = position + lengths.size
        for length in lengths.unpack_from(self.data, position):
            yield self.data[at : at + length].decode(errors="replace")
            at += length


Row = tuple[bytes, bytes, int, int]
"""An entry on its way into a block: entry, metadata, commit timestamp, expiry timestamp."""


def row(partition: int, value: OffsetAndMetadata, log_offset: int) -> Row:
    """One offset as a row."""
    entry = ENTRY.pack(
        partition,
        value.offset,
        value.leader_epoch,
        value.commit_timestamp,
        value.expire_timestamp,
        log_offset,
    )
    return entry, value.metadata.encode(), value.commit_timestamp, value.expire_timestamp


def blocks(topic: str, rows: Sequence[Row]) -> Iterator[PackedOffsets]:
    """Rows of different partitions as blocks."""
    for start in range(0, len(rows), BLOCK_ENTRIES):
        entries, texts, committed_ms, expires_ms = zip(
            *rows[start : start + BLOCK_ENTRIES], strict=True
        )
        parts = list(entries)
        if any(texts):
            parts.append(Struct(f">{len(texts)}{_LENGTHS}").pack(*map(len, texts)))
            parts += texts
        yield PackedOffsets(
            topic,
            len(entries),
            min(committed_ms),
            any(at != NO_TIMESTAMP for at in expires_ms),
            b"".join(parts),
        )
