"""Record batch format 2 as a view over bytes: parse, check, stamp, build.

    base_offset q | length i | partition_leader_epoch i | magic b | crc I | attributes H |
    last_offset_delta i | base_timestamp q | max_timestamp q | producer_id q | producer_epoch h |
    base_sequence i | count i | records

The CRC-32C covers everything from the attributes on, so that a leader stamps offset and epoch without
touching it.  Only the records are compressed (reference: record-format 2, 5).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from kafkalike.runtime.ports import Buffer

from .compression import DECOMPRESSED_LIMIT, Codec, compress, decompress
from .record import NO_TIMESTAMP, Record, encode_record, iterate_records

LOG_OVERHEAD: Final = 12
"""Base offset and length, in front of every batch and message of any format."""
HEADER_BYTES: Final = 61
MAGIC_POSITION: Final = 16
CRC_START: Final = 21
"""Where the bytes that the CRC covers begin."""
MIN_PREFIX_BYTES: Final = 17
"""Bytes needed to know a batch's size and format."""
MIN_LEGACY_BYTES: Final = 14

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
MAX_SEQUENCE: Final = 0x7FFFFFFF

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

HEADER: Final = struct.Struct(">qiibIHiqqqhii")
PREFIX: Final = struct.Struct(">qiib")
_STAMP: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">H")
_TIMESTAMP: Final = struct.Struct(">q")


class CorruptBatch(ValueError):
    """Bytes that cannot be a batch: size, format or checksum."""


class RecordBatch:
    """The header of one batch of format 2, and where its bytes are.

    Built from `buffer` at `position` (the base offset); the records are not looked at.  The buffer
    must hold at least the header; `size` is the whole batch including the 12 bytes of log overhead.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "size",
    )

    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buffer, position)
        self.size: int = length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go (KIP-534), None while not yet set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2147483647 to 0; -1 without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    def view(self) -> memoryview:
        """The whole batch."""
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def payload(self) -> memoryview:
        """The records as they are stored (perhaps compressed)."""
        return memoryview(self.buffer)[self.position + HEADER_BYTES : self.position + self.size]

    def crc_is_valid(self) -> bool:
        """Whether the stored CRC-32C matches the bytes."""
        if self.size < HEADER_BYTES:
            return False
        start, buffer = self.position, self.buffer
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        computed: int = crc32c(view[start + CRC_START : start + self.size])
        return self.crc == computed

    def stamp_offsets(self, base_offset: int, leader_epoch: int) -> None:
        """Write base offset and leader epoch into the buffer, which must be writable."""
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch
        length = self.size - LOG_OVERHEAD
        _STAMP.pack_into(self.buffer, self.position, base_offset, length, leader_epoch)

    def stamp_timestamp(self, *, log_append_time: bool, max_timestamp: int) -> None:
        """Set timestamp type and maximum; the CRC is computed again when something changed."""
        attributes = self.attributes & ~LOG_APPEND_TIME
        if log_append_time:
            attributes |= LOG_APPEND_TIME
        if attributes == self.attributes and max_timestamp == self.max_timestamp:
            return
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        _ATTRIBUTES.pack_into(self.buffer, self.position + CRC_START, attributes)
        _TIMESTAMP.pack_into(self.buffer, self.position + 35, max_timestamp)
        self.crc = _write_crc(self.buffer, self.position, self.size)

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
        """The decoded records.  Raises MalformedRecord or DecompressionError while iterating."""
        return iterate_records(
            decompress(self.codec, self.payload(), limit),
            self.count,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            append_timestamp=self.max_timestamp if self.is_log_append_time else None,
        )

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, count={self.count}, "
            f"size={self.size}, attributes={self.attributes:#x}, "
            f"producer={self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


def add_sequence(sequence: int, increment: int) -> int:
    """A later sequence number, staying within 0..2147483647."""
    return (sequence + increment) & MAX_SEQUENCE


def _write_crc(buffer: Buffer, position: int, size: int) -> int:
    crc: int = crc32c(memoryview(buffer)[position + CRC_START : position + size])
    _CRC.pack_into(buffer, position + 17, crc)
    return crc


def parse_batch(buffer: Buffer, position: int = 0) -> RecordBatch:
    """One whole batch of format 2.  Raises CorruptBatch when size or format do not fit the buffer."""
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise CorruptBatch(f"{available} bytes are no batch, a header alone has {HEADER_BYTES}")
    batch = RecordBatch(buffer, position)
    if batch.magic != 2:
        raise CorruptBatch(f"format {batch.magic} where 2 was expected")
    if batch.size < HEADER_BYTES or batch.size > available:
        raise CorruptBatch(f"the batch declares {batch.size} bytes, {available} are there")
    return batch


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Build one batch.

    Records with offset -1 are numbered from `base_offset`.  `append_time_ms` makes it a LogAppendTime
    batch.  `delete_horizon_ms`, `last_offset` and `max_timestamp` are for the cleaner, which keeps a
    batch's range while records go; an empty batch needs `last_offset`.
    """
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    payload = bytearray()
    highest = NO_TIMESTAMP
    last = base_offset - 1
    for number, record in enumerate(records):
        last = record.offset if record.offset >= 0 else base_offset + number
        highest = max(highest, record.timestamp)
        encode_record(payload, record, record.timestamp - base_timestamp, last - base_offset)
    attributes = int(codec) if records else 0
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        highest = append_time_ms
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    attributes |= DELETE_HORIZON if delete_horizon_ms is not None else 0
    packed = compress(codec, payload, level) if records else b""
    batch = bytearray(HEADER_BYTES)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        partition_leader_epoch,
        2,
        0,
        attributes,
        (last if last_offset is None else last_offset) - base_offset,
        base_timestamp,
        highest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    _write_crc(batch, 0, len(batch))
    return batch
