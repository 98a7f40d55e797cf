"""Varints and lengths at their limits, as Kafka computes them in 32 bits."""

import pytest

from kafkalike.protocol.primitives import (
    REPLACE,
    MalformedMessage,
    UnencodableMessage,
    finish_length,
    finish_string_length,
    long_string_length,
    read_uvarint,
    records_size,
    uvarint,
)

VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**28, "8080808001"),
    (2**31 - 1, "ffffffff07"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_varints(value: int, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert uvarint(value) == raw
    assert read_uvarint(b"x" + raw + b"y", 1) == (value, 1 + len(raw))
    for end in range(len(raw)):
        with pytest.raises(IndexError):
            read_uvarint(raw[:end], 0)


def test_varints_may_be_longer_than_needed() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)


def test_bits_beyond_the_32nd_fall_away() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x70", 0) == (1, 5)


def test_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="five bytes"):
        read_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)


def test_too_large_a_value_is_not_written() -> None:
    with pytest.raises(UnencodableMessage, match="4294967296"):
        uvarint(2**32)


def finish(reader: object, value: int) -> int:
    raw = uvarint(value)
    assert callable(reader)
    result, position = reader(raw, 1, raw[0])
    assert position == len(raw)
    assert isinstance(result, int)
    return result


def test_lengths_that_are_negative_in_32_bits_are_null() -> None:
    assert finish(finish_length, 200) == 200
    assert finish(finish_length, 2**31) == 2**31  # length 2**31 - 1, refused where it is used
    assert finish(finish_length, 2**31 + 1) == 0
    assert finish(finish_length, 2**32 - 1) == 0


def test_string_lengths_end_at_32767() -> None:
    assert finish(finish_string_length, 32768) == 32768
    with pytest.raises(MalformedMessage, match="32768 bytes, expected at most 32767"):
        finish(finish_string_length, 32769)
    assert long_string_length(32768) == uvarint(32768)
    with pytest.raises(UnencodableMessage, match="32768 bytes"):
        long_string_length(32769)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("ü☃𝄞".encode(), "ü☃𝄞"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3", "\ufffd"),
        (b"\xe2\x98", "\ufffd"),
        (b"\xed\xa0\x80x", "\ufffdx"),
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xf0\x9d\x84", "\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
    ],
)
def test_broken_text_reads_as_in_java(raw: bytes, text: str) -> None:
    assert raw.decode("utf-8", REPLACE) == text


def test_size_of_records_in_all_their_forms() -> None:
    assert records_size(b"abc") == 3
    assert records_size(memoryview(b"abcd")) == 4
    assert records_size([b"abc", memoryview(b"de")]) == 5
    assert records_size((b"abc",)) == 3
    assert records_size([]) == 0
