"""Logs of a stopped or running broker, read without the broker's own code.

Only what a chaos run writes is understood: batches of magic 2 without compression.  The layout is
that of the message format (reference: record-format); nothing here is shared with `kafkalike`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import crc32c

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LOG_OVERHEAD: Final = 12
_CRC_START: Final = 21
CONTROL: Final = 0x20
CODEC: Final = 0x07


class BadLog(Exception):
    """Bytes that are no log; the text says where."""


@dataclass(slots=True, frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    position: int
    """In the replica's bytes, all segments one behind the other."""
    size: int


@dataclass(slots=True)
class Replica:
    """One partition's files on one broker."""

    folder: Path
    data: bytes

    @staticmethod
    def read(folder: Path) -> "Replica":
        segments = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
        return Replica(folder, b"".join(path.read_bytes() for path in segments))

    def batches(self) -> Iterator[Batch]:
        """All whole batches with a right checksum and growing offsets.

        Raises BadLog at the first that is not; a cut one at the very end is left out.
        """
        data, position, expected = self.data, 0, None
        while position + _HEADER.size <= len(data):
            fields = _HEADER.unpack_from(data, position)
            base, length, epoch, magic, crc, attributes, delta = fields[:7]
            size = _LOG_OVERHEAD + length
            where = f"{self.folder} byte {position}"
            if magic != 2 or length < _HEADER.size - _LOG_OVERHEAD:
                raise BadLog(f"{where}: magic {magic}, length {length}")
            if position + size > len(data):
                return
            if crc32c.crc32c(data[position + _CRC_START : position + size]) != crc:
                raise BadLog(f"{where}: wrong checksum of the batch at offset {base}")
            if attributes & CODEC:
                raise BadLog(f"{where}: compressed, which nobody asked for")
            if expected is not None and base != expected:
                raise BadLog(f"{where}: offset {base} follows {expected - 1}")
            yield Batch(
                base, base + delta, epoch, fields[9], fields[10], fields[11], position, size
            )
            expected = base + delta + 1
            position += size

    def values(self, batch: Batch) -> Iterator[tuple[int, bytes]]:
        """(offset, value) of each record."""
        (attributes,) = struct.unpack_from(">h", self.data, batch.position + _CRC_START)
        if attributes & CONTROL:
            return
        position, end = batch.position + _HEADER.size, batch.position + batch.size
        (count,) = struct.unpack_from(">i", self.data, batch.position + _HEADER.size - 4)
        for _ in range(count):
            length, position = self._varint(position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise BadLog(f"{self.folder}: record of {length} bytes at byte {position}")
            position += 1  # attributes
            _, position = self._varint(position)
            delta, position = self._varint(position)
            key_length, position = self._varint(position)
            position += max(key_length, 0)
            value_length, position = self._varint(position)
            yield batch.base_offset + delta, self.data[position : position + max(value_length, 0)]
            position = record_end

    def _varint(self, position: int) -> tuple[int, int]:
        raw = shift = 0
        while True:
            byte = self.data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1), position
            shift += 7

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of the leader epoch file."""
        path = self.folder / "leader-epoch-checkpoint"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")[2:]
        return [(int(a), int(b)) for a, b in (line.split() for line in lines if line)]


def offsets_in(path: Path) -> dict[tuple[str, int], int]:
    """A checkpoint file: (topic, partition) -> offset; empty when it is not there."""
    if not path.exists():
        return {}
    found: dict[tuple[str, int], int] = {}
    for line in path.read_text().split("\n")[2:]:
        if line:
            topic, partition, offset = line.rsplit(" ", 2)
            found[topic, int(partition)] = int(offset)
    return found
