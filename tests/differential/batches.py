"""Record batches for cases: good ones, and ones bent in one place."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from crc32c import crc32c

from kafkalike.records.batch import HEADER, HEADER_BYTES, encode_batch
from kafkalike.records.compression import Codec, compress
from kafkalike.records.record import Record, write_varint

T0: Final = 1_700_000_000_000
FIELDS: Final = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
"""Header fields in the order of the wire."""


def records(count: int, *, size: int = 3, key: bool = True) -> list[Record]:
    return [
        Record(b"k%d" % n if key else None, (b"v%d" % n).ljust(size, b"."), T0 + n, offset=n)
        for n in range(count)
    ]


def batch(count: int = 1, codec: int = 0, *, size: int = 3, key: bool = True, **more: Any) -> bytes:
    """A good batch of `count` records."""
    return bytes(encode_batch(records(count, size=size, key=key), codec=Codec(codec), **more))


def sequenced(producer_id: int, epoch: int, sequence: int, count: int = 1, **more: Any) -> bytes:
    """A batch of an idempotent producer."""
    return bytes(
        encode_batch(
            records(count),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **more,
        )
    )


def bend(good: bytes, *, fix_crc: bool = True, **changes: Any) -> bytes:
    """A batch with other header fields, in the bits that fit into them."""
    values = list(HEADER.unpack_from(good))
    for name, value in changes.items():
        values[FIELDS.index(name)] = value
    bent = bytearray(good)
    HEADER.pack_into(bent, 0, *values)
    return seal(bent) if fix_crc and "crc" not in changes else bytes(bent)


def seal(bent: bytearray) -> bytes:
    struct.pack_into(">I", bent, 17, crc32c(bytes(bent[21:])))
    return bytes(bent)


def with_payload(payload: bytes, count: int, *, codec: int = 0, deltas: int | None = None) -> bytes:
    """A batch around records given as bytes; `deltas` is the last offset delta."""
    packed = compress(Codec(codec), payload, None)
    head = bytearray(HEADER_BYTES)
    last = count - 1 if deltas is None else deltas
    size = HEADER_BYTES + len(packed) - 12
    HEADER.pack_into(head, 0, 0, size, -1, 2, 0, codec, last, T0, T0, -1, -1, -1, count)
    return seal(head + packed)


def record(
    *,
    length: int | None = None,
    attributes: int = 0,
    time: int = 0,
    offset: int = 0,
    key: bytes | None = b"k",
    key_length: int | None = None,
    value: bytes | None = b"v",
    value_length: int | None = None,
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    header_count: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """One record as bytes; lengths may lie."""
    body = bytearray((attributes & 0xFF,))
    write_varint(body, time)
    write_varint(body, offset)
    _part(body, key, key_length)
    _part(body, value, value_length)
    write_varint(body, len(headers) if header_count is None else header_count)
    for name, content in headers:
        _part(body, name, None)
        _part(body, content, None)
    body += tail
    out = bytearray()
    write_varint(out, len(body) if length is None else length)
    return bytes(out + body)


def _part(body: bytearray, data: bytes | None, length: int | None) -> None:
    if length is None:
        length = -1 if data is None else len(data)
    write_varint(body, length)
    body += data or b""
