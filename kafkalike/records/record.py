"""Single records of batch format 2: encode, iterate, check (reference: record-format 2).

Brokers look at records only where a rule demands it; everything here costs time per record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalike.runtime.ports import Buffer

NO_TIMESTAMP: Final = -1
MIN_RECORD_BYTES: Final = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count."""
MAX_RECORD_OVERHEAD: Final = 21
_MAX_VARINT: Final = 5
_MAX_VARLONG: Final = 10


class MalformedRecord(ValueError):
    """The bytes are no record; the text says what was wrong and where."""


class _OverlongVarint(MalformedRecord):
    """A varint goes on for too many bytes."""


class OverlongLength(MalformedRecord):
    """The length in front of a record is a varint of too many bytes."""


class Record(NamedTuple):
    """One record.  Header keys are the raw bytes on the wire (Kafka stores them unchecked).

    `offset` and `timestamp` (milliseconds) are absolute; -1 lets the batch builder number the
    offset, and means "no timestamp".
    """

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    offset: int = -1


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint; serves 32 and 64 bit values alike."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: Buffer, position: int, limit: int = _MAX_VARLONG) -> tuple[int, int]:
    """(value, position behind it) of a zigzag varint of at most `limit` bytes.

    Raises MalformedRecord when it is too long or runs out of the data.
    """
    result = shift = 0
    try:
        for _ in range(limit):
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1), position
            shift += 7
    except IndexError:
        raise MalformedRecord(f"a varint runs out of the data at byte {position}") from None
    raise _OverlongVarint(f"a varint before byte {position} is longer than {limit} bytes")


def varint_size(value: int) -> int:
    """Bytes that `write_varint` would append."""
    value = (value << 1) ^ (value >> 63)
    return max(1, (value.bit_length() + 6) // 7)


def encode_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append one record with its length prefix."""
    body = bytearray(b"\0")
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        write_varint(body, len(key))
        body += key
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _write_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        write_varint(out, len(data))
        out += data


@dataclass(slots=True)
class RawRecord:
    """One record as it lies in an uncompressed payload: where it is, and what rules ask about.

    `start`..`end` covers the length prefix too; key and value are -1 lengths when null.
    """

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_length: int
    value_length: int
    body_start: int
    """Where the key length begins: all behind it is independent of timestamp and offset."""


def iterate_raw(payload: Buffer, count: int) -> Iterator[RawRecord]:
    """Walk `count` records of an uncompressed payload without copying keys or values.

    Checks every length, and that the payload ends with the last record.  Raises MalformedRecord.
    """
    end = len(payload)
    position = 0
    for number in range(count):
        start = position
        try:
            length, position = read_varint(payload, position, _MAX_VARINT)
        except _OverlongVarint as error:
            raise OverlongLength(f"the length of record {number}: {error}") from error
        stop = position + length
        if length < 0 or stop > end:
            raise MalformedRecord(
                f"record {number} declares {length} bytes, {end - position} are left"
            )
        position += 1  # attributes, unused
        timestamp_delta, position = read_varint(payload, position)
        offset_delta, position = read_varint(payload, position, _MAX_VARINT)
        body_start = position
        key_length, position = read_varint(payload, position, _MAX_VARINT)
        key_start = position
        if key_length > 0:
            position += key_length
        value_length, position = read_varint(payload, position, _MAX_VARINT)
        if value_length > 0:
            position += value_length
        position = _skip_headers(payload, position, stop, number)
        if position != stop:
            raise MalformedRecord(
                f"record {number} declares to end at byte {stop} but ends at {position}"
            )
        yield RawRecord(
            start,
            stop,
            timestamp_delta,
            offset_delta,
            key_start,
            key_length,
            value_length,
            body_start,
        )
    if position != end:
        raise MalformedRecord(f"{end - position} bytes are left behind {count} records")


def _skip_headers(payload: Buffer, position: int, stop: int, number: int) -> int:
    count, position = read_varint(payload, position, _MAX_VARINT)
    if count == 0:
        return position
    if count < 0 or count > stop - position:
        raise MalformedRecord(f"record {number} declares {count} headers")
    for _ in range(count):
        length, position = read_varint(payload, position, _MAX_VARINT)
        if length < 0:
            raise MalformedRecord(f"record {number} has a header key of length {length}")
        position += length
        length, position = read_varint(payload, position, _MAX_VARINT)
        position += max(length, 0)
        if position > stop:
            raise MalformedRecord(f"record {number} has a header beyond its end")
    return position


def iterate_records(
    payload: Buffer,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp: int = 0,
    append_timestamp: int | None = None,
) -> Iterator[Record]:
    """Decode `count` records of an uncompressed payload.

    `append_timestamp` replaces all timestamps (LogAppendTime).  Raises MalformedRecord.
    """
    for raw in iterate_raw(payload, count):
        key, position = _read_nullable(payload, raw.body_start)
        value, position = _read_nullable(payload, position)
        header_count, position = read_varint(payload, position)
        headers: Sequence[tuple[bytes, bytes | None]] = ()
        if header_count:
            found = []
            for _ in range(header_count):
                name, position = _read_nullable(payload, position)
                content, position = _read_nullable(payload, position)
                found.append((name or b"", content))
            headers = found
        timestamp = append_timestamp
        if timestamp is None:
            timestamp = base_timestamp + raw.timestamp_delta
        yield Record(key, value, timestamp, tuple(headers), base_offset + raw.offset_delta)


def _read_nullable(payload: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    return bytes(payload[position : position + length]), position + length
