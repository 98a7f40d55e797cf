"""What messages are made of: wire types, varints, and the errors of both directions.

The annotations below (`int32`, `uuid`, `Records` ...) give a declared field its wire type and its
Python type at once.  `bool`, `str` and `bytes` stand for themselves.
"""

import codecs
from collections.abc import Sequence
from struct import Struct
from typing import Annotated, Final, NamedTuple, TypeAlias

from kafkalike.runtime.ports import Buffer, FileRange

MAX_STRING_BYTES: Final = 0x7FFF
"""A string may not be longer, whichever encoding carries its length."""


class MalformedMessage(ValueError):
    """Bytes that are no such message; names message, field, what was found and what was expected."""


class UnencodableMessage(ValueError):
    """A message object that no bytes can stand for; names message, field and the value at fault."""


def _replace_like_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what Java takes as one piece of broken UTF-8.

    Kafka accepts such strings and sends them back with replacements.  Java and Python agree on what
    one piece is, except that an encoded surrogate is three pieces to Python and one to Java.
    """
    assert isinstance(error, UnicodeDecodeError)
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[start + 1 : start + 2]) <= 0xBF:
        third = int.from_bytes(data[start + 2 : start + 3])
        end = start + (3 if third & 0xC0 == 0x80 else 2)
    return "\ufffd", end


REPLACE: Final = "kafkalike.replace"
"""Error handler of string decoding."""

codecs.register_error(REPLACE, _replace_like_java)


class WireType(NamedTuple):
    """How one value travels: `code` is its struct format, empty for types of variable length."""

    name: str
    code: str = ""
    size: int = 0


BOOL: Final = WireType("bool", "?", 1)
STRING: Final = WireType("string")
BYTES: Final = WireType("bytes")
RECORDS: Final = WireType("records")
STRUCT: Final = WireType("struct")
UUID: Final = WireType("uuid", "16s", 16)

int8: TypeAlias = Annotated[int, WireType("int8", "b", 1)]
int16: TypeAlias = Annotated[int, WireType("int16", "h", 2)]
uint16: TypeAlias = Annotated[int, WireType("uint16", "H", 2)]
int32: TypeAlias = Annotated[int, WireType("int32", "i", 4)]
uint32: TypeAlias = Annotated[int, WireType("uint32", "I", 4)]
int64: TypeAlias = Annotated[int, WireType("int64", "q", 8)]
float64: TypeAlias = Annotated[float, WireType("float64", "d", 8)]
uuid: TypeAlias = Annotated[bytes, UUID]
"""16 raw bytes; all zero (`kafkalike.types.ZERO_UUID`) means "no id"."""

Records: TypeAlias = Annotated[
    Buffer | FileRange | Sequence[bytes | bytearray | memoryview | FileRange], RECORDS
]
"""Record batches, never looked into: bytes, a range of a file, or several of those in a row.

Decoding yields a memoryview into the decoded buffer: valid as long as that buffer is.
"""

SMALL_VARINTS: Final = tuple(bytes((value,)) for value in range(128))
"""Unsigned varints of one byte."""

SMALL_ARRAY: Final = 33
"""Integer arrays shorter than this use precompiled structs."""

_INTEGER_CODES: Final = "bhHiIqd"
UNPACK_ARRAY: Final = {
    code: tuple(Struct(f">{count}{code}").unpack_from for count in range(SMALL_ARRAY))
    for code in _INTEGER_CODES
}
PACK_ARRAY: Final = {
    code: tuple(Struct(f">i{count}{code}").pack for count in range(SMALL_ARRAY))
    for code in _INTEGER_CODES
}
PACK_COMPACT_ARRAY: Final = {
    code: tuple(Struct(f">B{count}{code}").pack for count in range(SMALL_ARRAY))
    for code in _INTEGER_CODES
}


def uvarint(value: int) -> bytes:
    """An unsigned 32-bit integer, 7 bits a byte, least significant first."""
    if value < 128:
        return SMALL_VARINTS[value]
    if value > 0xFFFFFFFF:
        raise UnencodableMessage(f"{value} does not fit an unsigned varint of 32 bits")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position` and the position after it.

    Raises IndexError when the data ends first, MalformedMessage when a fifth byte continues.
    """
    value = data[position]
    if value < 128:
        return value, position + 1
    return finish_uvarint(data, position + 1, value)


def finish_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte (128 or more) has been taken already."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value & 0xFFFFFFFF, position
    raise MalformedMessage("a varint of more than five bytes, expected at most five")


def finish_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Like `finish_uvarint` for a compact length (value is length + 1, 0 is null).

    Kafka computes in 32-bit signed integers: what comes out negative there is null too.
    """
    value, position = finish_uvarint(data, position, first)
    return (0 if value > 0x80000000 else value), position


def finish_string_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Like `finish_length`, refusing what is too long for a string."""
    value, position = finish_length(data, position, first)
    if value > MAX_STRING_BYTES + 1:
        raise MalformedMessage(
            f"a string of {value - 1} bytes, expected at most {MAX_STRING_BYTES}"
        )
    return value, position


def long_string_length(length_and_one: int) -> bytes:
    """The compact length of a string of 127 bytes or more."""
    if length_and_one > MAX_STRING_BYTES + 1:
        raise UnencodableMessage(
            f"a string of {length_and_one - 1} bytes, expected at most {MAX_STRING_BYTES}"
        )
    return uvarint(length_and_one)


def records_size(records: Buffer | FileRange | Sequence[Buffer | FileRange]) -> int:
    """Bytes of a records field, whichever form it has."""
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return len(records)
