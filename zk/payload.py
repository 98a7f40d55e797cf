"""JSON objects as znode payloads: compact writing, tolerant reading with errors that name the znode."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kafkalike.types import TopicPartition

T = TypeVar("T")

_MISSING: Final = object()
INT32: Final = (-(1 << 31), (1 << 31) - 1)
INT64: Final = (-(1 << 63), (1 << 63) - 1)
_KINDS: Final[dict[type, str]] = {dict: "an object", list: "a list", str: "a string"}


class CorruptZnode(ValueError):
    """A znode's payload is not what its path promises; the message names path, field and value."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"znode {path or '(unnamed)'}: {detail}")
        self.path = path
        self.detail = detail


def encode(value: object) -> bytes:
    """Compact UTF-8 JSON, keys in the order of the dict."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class Fields:
    """One JSON object of a payload; each reader checks type and range and names what is wrong.

    Unknown keys are ignored, as Kafka does.
    """

    __slots__ = ("_items", "_path", "_where")

    def __init__(self, items: dict[str, Any], path: str, where: str = "") -> None:
        self._items = items
        self._path = path
        self._where = where

    @classmethod
    def parse(cls, data: bytes | None, path: str) -> "Fields":
        """Raises CorruptZnode unless `data` is one JSON object."""
        if data is None:
            raise CorruptZnode(path, "null data where a JSON object was expected")
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptZnode(path, f"not JSON ({error}): {data[:80]!r}") from error
        if not isinstance(value, dict):
            raise CorruptZnode(path, f"expected a JSON object, found {data[:80]!r}")
        return cls(value, path)

    def fail(self, detail: str) -> CorruptZnode:
        """The error for this object, to be raised by the caller."""
        return CorruptZnode(self._path, f"{self._where}{detail}")

    def has(self, key: str) -> bool:
        """Whether the key is there with a value other than null."""
        return self._items.get(key) is not None

    def names(self) -> list[str]:
        return list(self._items)

    def _value(self, key: str, kind: type[T], default: object) -> T:
        value = self._items.get(key)
        if value is None:
            value = default
        if value is _MISSING:
            raise self.fail(f"{key!r} is missing, expected {_KINDS[kind]}")
        if not isinstance(value, kind):
            raise self.fail(f"{key!r} is {value!r}, expected {_KINDS[kind]}")
        return value

    def text(self, key: str, default: object = _MISSING) -> str:
        return self._value(key, str, default)

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def int32(
        self, key: str, default: int | None = None, *, bounds: tuple[int, int] = INT32
    ) -> int:
        """A number, or a number in a string: Kafka writes some longs that way."""
        value = self._items.get(key)
        if value is None:
            if default is None:
                raise self.fail(f"{key!r} is missing, expected a number")
            return default
        return self._number(value, repr(key), bounds)

    def int64(self, key: str, default: int | None = None) -> int:
        return self.int32(key, default, bounds=INT64)

    def _number(self, value: object, what: str, bounds: tuple[int, int]) -> int:
        number: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
            number = int(value) if len(value) <= 20 else None
        if number is None:
            raise self.fail(f"{what} is {value!r}, expected a whole number")
        if not bounds[0] <= number <= bounds[1]:
            raise self.fail(f"{what} is {number}, expected {bounds[0]} to {bounds[1]}")
        return number

    def child(self, key: str, default: object = _MISSING) -> "Fields":
        items: dict[str, Any] = self._value(key, dict, default)
        return Fields(items, self._path, f"{self._where}{key}: ")

    def objects(self, key: str) -> "list[Fields]":
        """A list of objects."""
        found = []
        for number, item in enumerate(self._value(key, list, _MISSING)):
            if not isinstance(item, dict):
                raise self.fail(f"{key!r} item {number} is {item!r}, expected an object")
            found.append(Fields(item, self._path, f"{self._where}{key}[{number}]: "))
        return found

    def texts(self, key: str) -> list[str]:
        items: list[Any] = self._value(key, list, _MISSING)
        for item in items:
            if not isinstance(item, str):
                raise self.fail(f"{key!r} holds {item!r}, expected only strings")
        return items

    def ints(self, key: str) -> tuple[int, ...]:
        """A list of broker ids or partition numbers."""
        return self._numbers(key, INT32)

    def int64s(self, key: str) -> tuple[int, ...]:
        """A list of long numbers."""
        return self._numbers(key, INT64)

    def _numbers(self, key: str, bounds: tuple[int, int]) -> tuple[int, ...]:
        items: list[Any] = self._value(key, list, _MISSING)
        return tuple(self._number(item, f"item of {key!r}", bounds) for item in items)

    def text_map(self, key: str) -> dict[str, str]:
        """An object whose values are all strings (numbers and booleans in old files are spelt out)."""
        return self.child(key).mapped(_config_text)

    def int_lists(self, key: str) -> dict[int, tuple[int, ...]]:
        """An object from partition number (as text) to a list of broker ids; missing = empty."""
        fields = self.child(key, {})
        return {
            fields._number(name, "partition", INT32): fields.ints(name) for name in fields.names()
        }

    def mapped(self, read: Callable[[Any], T | None]) -> dict[str, T]:
        """Every value through `read`, which answers None for what it cannot take."""
        result: dict[str, T] = {}
        for key, value in self._items.items():
            taken = read(value)
            if taken is None:
                raise self.fail(f"{key!r} is {value!r}, expected a string")
            result[key] = taken
        return result


def _config_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value if isinstance(value, str) else None


def encode_partitions(partitions: "list[TopicPartition] | tuple[TopicPartition, ...]") -> bytes:
    """`{"version":1,"partitions":[{"topic":..,"partition":..}]}`."""
    items = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return encode({"version": 1, "partitions": items})


def decode_partitions(data: bytes | None, path: str) -> tuple[TopicPartition, ...]:
    """The reverse of `encode_partitions`, in the order written."""
    return tuple(
        TopicPartition(item.text("topic"), item.int32("partition"))
        for item in Fields.parse(data, path).objects("partitions")
    )
