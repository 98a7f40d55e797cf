"""Frames that real clients and Kafka 3.9.2 exchanged: read, compared, written, cut and changed."""

import base64
import random
from typing import Any

import pytest

from kafkalike.messages.catalog import APIS
from kafkalike.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from kafkalike.protocol.primitives import BYTES, RECORDS, STRUCT, UUID, MalformedMessage
from kafkalike.protocol.struct import Field, Message, Request, Struct, fields_of
from tests.protocol.golden import FOLDER, Golden, read_golden

CLASSES = {cls.__name__: cls for api in APIS for cls in (api.request, api.response)}
GOLDEN = [golden for path in sorted(FOLDER.glob("*.txt")) for golden in read_golden(path)]


def ids(golden: Golden) -> str:
    return f"{golden.message}-{golden.version}-{golden.client}"


def body_of(golden: Golden) -> tuple[type[Message], int]:
    """The class and where the body begins."""
    cls = CLASSES[golden.message]
    if issubclass(cls, Request):
        return cls, decode_request_header(golden.frame)[1]
    return cls, decode_response_header(golden.frame, cls.api_key, golden.version)[1]


def test_most_apis_were_recorded() -> None:
    assert len({golden.message for golden in GOLDEN}) >= 2 * 55
    assert len(GOLDEN) >= 300


@pytest.mark.parametrize("golden", GOLDEN, ids=ids)
def test_header(golden: Golden) -> None:
    cls, position = body_of(golden)
    if issubclass(cls, Request):
        header, _ = decode_request_header(golden.frame)
        assert (header.api_key, header.api_version) == (cls.api_key, golden.version)
        assert header.client_id == golden.client
        written = encode_request_header(header)
    else:
        correlation_id, _ = decode_response_header(golden.frame, cls.api_key, golden.version)
        written = encode_response_header(correlation_id, cls.api_key, golden.version)
    assert written == golden.frame[:position]


@pytest.mark.parametrize("golden", GOLDEN, ids=ids)
def test_body_means_what_kafka_reads_and_is_written_alike(golden: Golden) -> None:
    cls, position = body_of(golden)
    message, end = cls.decode_prefix(golden.frame, golden.version, position)
    assert end == len(golden.frame)
    compare(message, golden.meaning, golden.version)
    assert message.encode(golden.version) == golden.frame[position:]
    parts = message.encode_parts(golden.version)
    assert (
        b"".join(bytes(part) for part in parts if not hasattr(part, "file"))
        == (golden.frame[position:])
    )


def compare(struct: Struct, meaning: dict[str, Any], version: int) -> None:
    """Every value of ours is Kafka's; Kafka's JSON leaves out tagged fields at their default."""
    theirs = {name.lower(): value for name, value in meaning.items()}
    seen = set()
    for field in fields_of(type(struct)):
        if not field.present(version):
            continue
        name = field.name.replace("_", "")
        value = getattr(struct, field.name)
        if name not in theirs and field.tag is not None:
            assert value == field.default
            continue
        if field.wire is RECORDS and name not in theirs:
            seen.add(f"{name}sizeinbytes")
            assert len(value or b"") == theirs[f"{name}sizeinbytes"]
            continue
        seen.add(name)
        if value is None or not field.is_array:
            compare_value(field, value, theirs[name], version)
        else:
            for ours, item in zip(value, theirs[name], strict=True):
                compare_value(field, ours, item, version)
    assert seen == set(theirs)


def compare_value(field: Field, value: Any, meaning: Any, version: int) -> None:
    if value is None:
        assert meaning is None
    elif field.wire is STRUCT:
        compare(value, meaning, version)
    elif field.wire is UUID:
        assert value == base64.urlsafe_b64decode(meaning + "==")
    elif field.wire in (BYTES, RECORDS):
        assert value == base64.b64decode(meaning)
    else:
        assert value == meaning, field.name


@pytest.mark.parametrize("golden", GOLDEN, ids=ids)
def test_every_prefix_is_refused(golden: Golden) -> None:
    cls, position = body_of(golden)
    for end in range(position, len(golden.frame)):
        with pytest.raises(MalformedMessage, match=f"^{cls.__name__} v{golden.version}: "):
            cls.decode(golden.frame[:end], golden.version, position)


@pytest.mark.parametrize("golden", GOLDEN, ids=ids)
def test_changed_frames_are_read_or_refused_and_nothing_else(golden: Golden) -> None:
    cls, position = body_of(golden)
    if position == len(golden.frame):
        return  # nothing to change
    chance = random.Random(ids(golden))
    for _ in range(60):
        frame = bytearray(golden.frame)
        for _ in range(chance.choice((1, 1, 1, 3))):
            frame[chance.randrange(position, len(frame))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        try:
            message, end = cls.decode_prefix(memoryview(frame), golden.version, position)
        except MalformedMessage as malformed:
            assert str(malformed).startswith(f"{cls.__name__} v{golden.version}: ")
            continue
        assert end <= len(frame)
        again = message.encode(golden.version)
        assert cls.decode(again, golden.version).encode(golden.version) == again
