"""Random instances of declared messages, from a seed."""

import random
import string
from typing import Any, Final, TypeVar

from kafkalike.protocol.primitives import BOOL, BYTES, RECORDS, STRING, STRUCT, UUID
from kafkalike.protocol.struct import Field, Message, Struct, fields_of

T = TypeVar("T", bound=Struct)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_TEXTS = ("", "a", "topic-1", "ünïcödé ☃ 𝄞", "x" * 126, "y" * 127, "z" * 128, "w" * 300)
NEWEST_OF_39: Final = {68: 0, 69: 0}
"""APIs of which we have versions of Kafka 4, and their last version in 3.9."""


class Instances:
    """Draws messages that use only what one version can carry.

    Lengths around the limits of one-byte varints, null beside empty, and integers at both ends of
    their range come up often.  `alphabet` limits strings, where an oracle cannot take them all.
    """

    def __init__(self, seed: object) -> None:
        self.random = random.Random(repr(seed))

    def message(self, cls: type[T], version: int) -> T:
        """A struct or message with every present field drawn; the others keep their defaults."""
        values = {
            field.name: self.value(field, version)
            for field in fields_of(cls)
            if field.present(version) and (field.tag is None or self.random.random() < 0.6)
        }
        return cls(**values)

    def value(self, field: Field, version: int) -> Any:
        if field.nullable_in(version) and self.random.random() < 0.2:
            return None
        if not field.is_array:
            return self.single(field, version)
        sizes = (0, 1, 2, 3) if field.wire is STRUCT else (0, 1, 3, 32, 33, 126, 127, 128)
        return [self.single(field, version) for _ in range(self.random.choice(sizes))]

    def single(self, field: Field, version: int) -> Any:
        chance = self.random
        wire = field.wire
        if wire is STRUCT:
            assert field.struct is not None
            return self.message(field.struct, version)
        if wire is STRING:
            if chance.random() < 0.5:
                return chance.choice(_TEXTS)
            return "".join(chance.choices(string.ascii_letters, k=chance.randrange(40)))
        if wire in (BYTES, RECORDS):
            return chance.randbytes(chance.choice((0, 1, 5, 126, 127, 128, 1000)))
        if wire is UUID:
            return chance.choice((bytes(16), chance.randbytes(16)))
        if wire is BOOL:
            return chance.random() < 0.5
        if wire.name == "float64":
            return chance.choice((0.0, -1.5, 1e300, chance.random()))
        bits = _BITS[wire.name]
        low, high = (
            (0, 2**bits - 1)
            if wire.name.startswith("u")
            else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return chance.choice((low, high, 0, 1, min(127, high), chance.randint(low, high)))


def versions_of(cls: type[Message]) -> range:
    """The versions that Kafka 3.9 has too: those of the codecs to compare with."""
    last = NEWEST_OF_39.get(getattr(cls, "api_key", -1), cls.max_version)
    return range(cls.min_version, last + 1)
