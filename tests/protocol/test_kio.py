"""Every message in every version against kio, a codec written by others from the same schemas."""

import dataclasses
import datetime
import importlib
import io
import re
import typing
import uuid
from typing import Any

import pytest

from kafkalike.messages.catalog import APIS
from kafkalike.messages.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkalike.protocol.primitives import STRUCT
from kafkalike.protocol.struct import Message, Request, Response, Struct, fields_of
from tests.protocol.instances import Instances, versions_of

kio_serial = pytest.importorskip("kio.serial")

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MS = datetime.timedelta(milliseconds=1)
LATEST_MS = 4_000_000_000_000  # later times lose milliseconds in kio's floats

MESSAGES: list[type[Message]] = [
    *(cls for api in APIS for cls in (api.request, api.response)),
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]


def kio_class(message: type[Message], version: int) -> Any:
    """The class of kio for one of ours."""
    stem, kind = message.__name__, "data"
    if issubclass(message, Request):
        stem, kind = stem.removesuffix("Request"), "request"
    elif issubclass(message, Response):
        stem, kind = stem.removesuffix("Response"), "response"
    folder = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", stem).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}")
    return getattr(module, message.__name__)


def paired(struct: Struct, kio: Any, version: int) -> list[tuple[Any, Any, Any]]:
    """Our fields beside kio's: same order, and the same names but for kio's habits."""
    ours = [field for field in fields_of(type(struct)) if field.present(version)]
    hints = typing.get_type_hints(kio)
    theirs = dataclasses.fields(kio)
    assert [plain(field.name) for field in ours] == [plain(field.name) for field in theirs]
    return [(field, other, hints[other.name]) for field, other in zip(ours, theirs)]


def plain(name: str) -> str:
    return re.sub(
        r"(time|timeout|timestamp|period|wait|lifetime|interval)_ms$", r"\1", name
    ).replace("_", "")


def fit(struct: Struct, kio: Any, version: int) -> None:
    """Bring values into the ranges that kio's stricter types can hold."""
    for field, other, hint in paired(struct, kio, version):
        value = getattr(struct, field.name)
        kind = other.metadata.get("kafka_type")
        if field.wire is STRUCT and value is not None:
            inner = element_type(hint)
            for item in value if field.is_array else [value]:
                fit(item, inner, version)
        elif kind == "error_code":
            setattr(struct, field.name, value % 121 - 1 if value % 121 - 1 not in (94,) else 0)
        elif kind == "datetime_i64":
            optional = type(None) in typing.get_args(hint)
            setattr(struct, field.name, -1 if optional and value < 0 else value % LATEST_MS)
        elif kind == "timedelta_i64":
            setattr(struct, field.name, value % LATEST_MS)


def element_type(hint: Any) -> Any:
    """The dataclass inside `tuple[X, ...]`, `X | None`, or both."""
    while not dataclasses.is_dataclass(hint):
        hint = next(arg for arg in typing.get_args(hint) if arg not in (type(None), Ellipsis))
    return hint


def to_kio(struct: Struct, kio: Any, version: int) -> Any:
    """The same message as an object of kio."""
    values = {}
    for field, other, hint in paired(struct, kio, version):
        value = getattr(struct, field.name)
        kind = other.metadata.get("kafka_type")
        if value is None:
            converted: Any = None
        elif field.wire is STRUCT:
            inner = element_type(hint)
            converted = (
                tuple(to_kio(item, inner, version) for item in value)
                if field.is_array
                else to_kio(value, inner, version)
            )
        elif field.is_array:
            converted = tuple(single_to_kio(item, kind) for item in value)
        else:
            converted = single_to_kio(value, kind)
        values[other.name] = converted
    return kio(**values)


def single_to_kio(value: Any, kind: str | None) -> Any:
    match kind:
        case "uuid":
            return uuid.UUID(bytes=value) if value != bytes(16) else None
        case "error_code":
            return importlib.import_module("kio.schema.errors").ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + value * MS
        case _:
            return bytes(value) if isinstance(value, memoryview) else value


CASES = [(message, version) for message in MESSAGES for version in versions_of(message)]


@pytest.mark.parametrize(
    ("message", "version"),
    CASES,
    ids=[f"{message.__name__}-{version}" for message, version in CASES],
)
def test_both_codecs_write_the_same_bytes_and_read_them_back(
    message: type[Message], version: int
) -> None:
    kio = kio_class(message, version)
    write, read = kio_serial.entity_writer(kio), kio_serial.entity_reader(kio)
    for round_number in range(6):
        original = Instances((message.__name__, version, round_number)).message(message, version)
        fit(original, kio, version)
        expected = to_kio(original, kio, version)

        ours = original.encode(version)
        buffer = io.BytesIO()
        write(buffer, expected)
        assert ours == buffer.getvalue()

        decoded, end = message.decode_prefix(ours, version)
        assert end == len(ours)
        assert decoded == original

        theirs, used = read(ours, 0)
        assert used == len(ours)
        assert theirs == expected


def test_all_messages_are_compared() -> None:
    assert len(MESSAGES) == 2 * 62 + 2
    assert len(CASES) == sum(2 * len(versions_of(api.request)) for api in APIS) + 8
