"""Request and response headers (reference: inter-broker 2)."""

import struct

import pytest

from kafkalike.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from kafkalike.protocol.primitives import MalformedMessage


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (17, 1, 1, 0),
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (18, 5, 2, 0),
        (18, -1, 1, 0),
        (47, 0, 1, 0),
        (60, 0, 2, 1),
    ],
)
def test_header_versions(
    key: int, version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(key, version) == request_version
    assert response_header_version(key, version) == response_version


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (RequestHeader(7, 0, 258), "0007 0000 00000102"),
        (RequestHeader(3, 1, -1, "me"), "0003 0001 ffffffff 0002 6d65"),
        (RequestHeader(3, 12, 5, ""), "0003 000c 00000005 0000 00"),
    ],
)
def test_request_header_bytes(header: RequestHeader, expected: str) -> None:
    raw = bytes.fromhex(expected)
    assert encode_request_header(header) == raw
    assert decode_request_header(raw + b"body") == (header, len(raw))
    assert decode_request_header(memoryview(b"xx" + raw + b"body"), 2) == (header, len(raw) + 2)


@pytest.mark.parametrize("length", [-1, -2, -32768])
def test_null_client_id_reads_as_empty(length: int) -> None:
    raw = struct.pack(">hhih", 3, 1, 9, length) + b"rest"
    assert decode_request_header(raw) == (RequestHeader(3, 1, 9, ""), 10)


def test_broken_client_id_is_accepted() -> None:
    raw = struct.pack(">hhih", 3, 1, 9, 3) + b"a\xffb"
    assert decode_request_header(raw)[0].client_id == "a\ufffdb"


def test_unknown_tags_of_a_header_are_skipped() -> None:
    raw = struct.pack(">hhih", 3, 9, 9, 0) + b"\x02\x07\x03abc\x00\x00"
    assert decode_request_header(raw + b"body")[1] == len(raw)


def test_negative_tag_count_reads_as_none() -> None:
    raw = struct.pack(">hhih", 3, 9, 9, 0) + b"\xff\xff\xff\xff\x0f"
    assert decode_request_header(raw + b"body")[1] == len(raw)


def test_unknown_api_key_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="api key 71"):
        decode_request_header(struct.pack(">hhih", 71, 0, 1, 0))


def test_every_prefix_of_a_header_is_refused() -> None:
    raw = struct.pack(">hhih", 3, 9, 9, 2) + b"me" + b"\x01\x07\x03abc"
    for end in range(len(raw)):
        with pytest.raises(MalformedMessage, match="request header"):
            decode_request_header(raw[:end])


def test_tag_longer_than_the_frame_is_refused() -> None:
    raw = struct.pack(">hhih", 3, 9, 9, 0) + b"\x01\x07\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedMessage, match="4294967295 bytes"):
        decode_request_header(raw)


@pytest.mark.parametrize(
    ("key", "version", "expected"), [(3, 8, "00000009"), (3, 9, "0000000900"), (18, 3, "00000009")]
)
def test_response_header_bytes(key: int, version: int, expected: str) -> None:
    raw = bytes.fromhex(expected)
    assert encode_response_header(9, key, version) == raw
    assert decode_response_header(raw + b"body", key, version) == (9, len(raw))
    for end in range(len(raw)):
        with pytest.raises(MalformedMessage, match="response header"):
            decode_response_header(raw[:end], key, version)
