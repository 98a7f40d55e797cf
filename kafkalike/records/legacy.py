"""Message formats 0 and 1, from before Kafka 0.11 (reference: record-format 4).

A "batch" here is one message, or one wrapper message whose value is the compressed concatenation of
others.  A wrapper carries the offset of its last inner message; inner offsets are absolute in format
0 and relative in format 1.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from kafkalike.runtime.ports import Buffer

from .batch import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, CorruptBatch
from .compression import DECOMPRESSED_LIMIT, Codec, compress, decompress
from .record import NO_TIMESTAMP, MalformedRecord, Record

_HEAD: Final = struct.Struct(">qiIbB")
_LENGTH: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
_CRC_START: Final = 16
_BODY: Final = {0: 18, 1: 26}
"""Where the key length begins, by format."""
_LZ4_OLD_HEADER_CHECK: Final = 0x1A
_LZ4_HEADER_CHECK: Final = 0x82


class LegacyBatch:
    """One message or wrapper of format 0 or 1, seen through the same names as a `RecordBatch`."""

    __slots__ = (
        "attributes",
        "buffer",
        "crc",
        "last_offset",
        "magic",
        "max_timestamp",
        "position",
        "size",
    )

    partition_leader_epoch: ClassVar[int] = -1
    producer_id: ClassVar[int] = -1
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = -1
    last_sequence: ClassVar[int] = -1
    is_transactional: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    has_producer_id: ClassVar[bool] = False
    delete_horizon_ms: ClassVar[None] = None

    last_offset: int
    magic: int
    crc: int
    attributes: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.last_offset, length, self.crc, self.magic, self.attributes = _HEAD.unpack_from(
            buffer, position
        )
        self.size: int = length + LOG_OVERHEAD
        if self.size < _BODY[self.magic] + 8:
            raise CorruptBatch(
                f"a format {self.magic} message at byte {position} has {self.size} bytes"
            )
        self.max_timestamp: int = NO_TIMESTAMP
        if self.magic == 1:
            (self.max_timestamp,) = _TIMESTAMP.unpack_from(buffer, position + 18)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and bool(self.attributes & LOG_APPEND_TIME)

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_offset(self) -> int:
        """Offset of the first message; a wrapper is unpacked for it."""
        if self.codec == Codec.NONE:
            return self.last_offset
        return next(iter(self.records())).offset

    def view(self) -> memoryview:
        """The whole message."""
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def crc_is_valid(self) -> bool:
        """Whether the stored CRC-32 matches the bytes."""
        start, end = self.position + _CRC_START, self.position + self.size
        return self.crc == zlib.crc32(memoryview(self.buffer)[start:end])

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
        """The messages as records, with absolute offsets.

        Raises MalformedRecord for nested compression, mixed formats, an empty wrapper or bad lengths.
        """
        key, value = self._key_and_value()
        if self.codec == Codec.NONE:
            yield Record(key, value, self.max_timestamp, (), self.last_offset)
            return
        if value is None:
            raise MalformedRecord("a compressed message has no value")
        if self.codec == Codec.ZSTD:
            raise MalformedRecord("zstd is not allowed in formats 0 and 1")
        if self.magic == 0 and self.codec == Codec.LZ4:
            value = _repair_old_lz4(value)
        inner = list(_inner_messages(decompress(self.codec, value, limit), self.magic))
        if not inner:
            raise MalformedRecord("a compressed message holds no messages")
        # Old clients send a wrapper offset of 0: its messages are then numbered from 0.
        shift = 0
        if self.magic == 1 and self.last_offset >= inner[-1].last_offset:
            shift = self.last_offset - inner[-1].last_offset
        for message in inner:
            key, value = message._key_and_value()
            timestamp = message.max_timestamp
            if self.is_log_append_time:
                timestamp = self.max_timestamp
            yield Record(key, value, timestamp, (), message.last_offset + shift)

    def _key_and_value(self) -> tuple[bytes | None, bytes | None]:
        end = self.position + self.size
        key, position = self._nullable(self.position + _BODY[self.magic], end)
        value, position = self._nullable(position, end)
        if position != end:
            raise MalformedRecord(f"{end - position} bytes are left in a message")
        return key, value

    def _nullable(self, position: int, end: int) -> tuple[bytes | None, int]:
        if position + 4 > end:
            raise MalformedRecord("a message ends inside a length")
        (length,) = _LENGTH.unpack_from(self.buffer, position)
        position += 4
        if length < 0:
            return None, position
        if length > end - position:
            raise MalformedRecord(f"a field declares {length} bytes, {end - position} are left")
        return bytes(self.buffer[position : position + length]), position + length


def _inner_messages(payload: Buffer, magic: int) -> Iterator[LegacyBatch]:
    position, end = 0, len(payload)
    while position < end:
        if end - position < _BODY[magic] + 8:
            raise MalformedRecord("a compressed message ends inside an inner message")
        if payload[position + 16] != magic:
            raise MalformedRecord("an inner message has another format than its wrapper")
        message = LegacyBatch(payload, position)
        if message.size > end - position:
            raise MalformedRecord("a compressed message ends inside an inner message")
        if message.codec != Codec.NONE:
            raise MalformedRecord("an inner message is compressed again")
        yield message
        position += message.size


def _repair_old_lz4(value: bytes) -> bytes:
    """Format 0 froze a wrong header checksum: put the right one for `60 40`, which Kafka writes."""
    if value[4:7] == bytes((0x60, 0x40, _LZ4_OLD_HEADER_CHECK)):
        return value[:6] + bytes((_LZ4_HEADER_CHECK,)) + value[7:]
    return value


def encode_message(
    magic: int,
    key: bytes | None,
    value: bytes | None,
    *,
    offset: int,
    timestamp: int = NO_TIMESTAMP,
    attributes: int = 0,
) -> bytes:
    """One message of format 0 or 1."""
    body = bytearray((magic, attributes))
    if magic == 1:
        body += _TIMESTAMP.pack(timestamp)
    for field in (key, value):
        body += _LENGTH.pack(-1 if field is None else len(field))
        body += field or b""
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def encode_legacy(
    records: Sequence[Record],
    magic: int,
    codec: Codec = Codec.NONE,
    *,
    append_time_ms: int | None = None,
) -> bytes:
    """Records as messages of format 0 or 1: single ones, or one wrapper when `codec` compresses.

    Offsets are taken from the records; headers are lost, timestamps too in format 0.
    """
    append_bit = LOG_APPEND_TIME if magic == 1 and append_time_ms is not None else 0
    relative_to = records[0].offset if codec != Codec.NONE and magic == 1 and records else 0
    messages = b"".join(
        encode_message(
            magic,
            record.key,
            record.value,
            offset=record.offset - relative_to,
            timestamp=record.timestamp if append_time_ms is None else append_time_ms,
            attributes=append_bit if codec == Codec.NONE else 0,
        )
        for record in records
    )
    if codec == Codec.NONE or not records:
        return messages
    packed = compress(codec, messages)
    if magic == 0 and codec == Codec.LZ4:
        packed = packed[:6] + bytes((_LZ4_OLD_HEADER_CHECK,)) + packed[7:]
    highest = max(record.timestamp for record in records)
    return encode_message(
        magic,
        None,
        packed,
        offset=records[-1].offset,
        timestamp=highest if append_time_ms is None else append_time_ms,
        attributes=codec | append_bit,
    )
