"""Requests that are almost right: valid frames of every API and version, damaged in known ways.

A run is its seed: the same seed gives the same frames, on every machine.  Frames come without their
length prefix; `stream` gives bytes for a connection, where prefixes may lie too.
"""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final

from kafkalike.messages.catalog import APIS
from kafkalike.protocol.headers import RequestHeader, encode_request_header
from kafkalike.protocol.struct import Request
from tests.protocol.instances import Instances, versions_of

_EXTREMES: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x10\x00\x00",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\x07",
)
"""Lengths and counts that decoders trip over: fixed integers and varints at their limits."""

_TEXTS: Final = (b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"../../etc", b"a" * 300, "ü☃".encode())


class FrameMutator:
    """Draws damaged frames from a seed."""

    def __init__(self, seed: object, apis: tuple[type[Request], ...] | None = None) -> None:
        """`apis`: only requests of these classes are drawn (default: all of the catalog)."""
        self.random = random.Random(repr(seed))
        self._requests = apis or tuple(api.request for api in APIS)
        self._count = 0
        self._seed = seed
        self._ways: tuple[tuple[int, Callable[[bytearray], None]], ...] = (
            (8, self._flip_bits),
            (6, self._overwrite),
            (6, self._extreme),
            (4, self._cut),
            (3, self._insert),
            (3, self._remove),
            (2, self._repeat),
            (2, self._swap),
            (2, self._append),
            (1, self._text),
            (1, self._change_header),
        )

    def valid(self) -> tuple[type[Request], int, bytes]:
        """A frame that a broker can read: its class, version and bytes."""
        request_class = self.random.choice(self._requests)
        version = self.random.choice(versions_of(request_class))
        self._count += 1
        drawn = Instances((self._seed, self._count)).message(request_class, version)
        header = RequestHeader(
            request_class.api_key, version, self._count & 0x7FFFFFFF, "fuzz"[: self._count % 5]
        )
        return request_class, version, encode_request_header(header) + drawn.encode(version)

    def frame(self) -> bytes:
        """A frame with one to four kinds of damage; one in twenty is left whole, one is noise."""
        chance = self.random.random()
        if chance < 0.05:
            return self.valid()[2]
        if chance < 0.10:
            return self.random.randbytes(self.random.choice((1, 4, 8, 10, 14, 40, 500)))
        frame = bytearray(self.valid()[2])
        weights = [weight for weight, _ in self._ways]
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 4))):
            ((_, way),) = self.random.choices(self._ways, weights)
            way(frame)
        return bytes(frame) or b"\0"

    def frames(self, count: int) -> Iterator[bytes]:
        """That many frames."""
        for _ in range(count):
            yield self.frame()

    def stream(self) -> bytes:
        """Bytes for one connection: frames whose prefix is right most of the time."""
        parts = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            frame = self.frame()
            size = len(frame)
            if self.random.random() < 0.1:
                size = self.random.choice(
                    (0, -1, 2**31 - 1, -(2**31), size + 7, size // 2, 104857601)
                )
            parts.append(struct.pack(">i", size) + frame)
        whole = b"".join(parts)
        if self.random.random() < 0.1:
            whole = whole[: self.random.randrange(1, len(whole) + 1)]
        return whole

    def _place(self, frame: bytearray) -> int:
        """A position; more often behind the fixed header, where the lengths are."""
        if len(frame) > 14 and self.random.random() < 0.85:
            return self.random.randrange(8, len(frame))
        return self.random.randrange(len(frame)) if frame else 0

    def _flip_bits(self, frame: bytearray) -> None:
        if frame:
            for _ in range(self.random.choice((1, 1, 2, 8))):
                frame[self._place(frame)] ^= 1 << self.random.randrange(8)

    def _overwrite(self, frame: bytearray) -> None:
        place = self._place(frame)
        count = self.random.choice((1, 2, 4, 8))
        frame[place : place + count] = self.random.randbytes(count)

    def _extreme(self, frame: bytearray) -> None:
        place = self._place(frame)
        value = self.random.choice(_EXTREMES)
        frame[place : place + len(value)] = value

    def _cut(self, frame: bytearray) -> None:
        del frame[self._place(frame) :]

    def _insert(self, frame: bytearray) -> None:
        place = self._place(frame)
        frame[place:place] = self.random.randbytes(self.random.choice((1, 2, 4, 16)))

    def _remove(self, frame: bytearray) -> None:
        place = self._place(frame)
        del frame[place : place + self.random.choice((1, 2, 4, 16))]

    def _repeat(self, frame: bytearray) -> None:
        start, end = sorted((self._place(frame), self._place(frame)))
        frame[end:end] = frame[start:end] * self.random.choice((1, 2, 10))

    def _swap(self, frame: bytearray) -> None:
        first, second = sorted((self._place(frame), self._place(frame)))
        frame[first:] = frame[second:] + frame[first:second]

    def _append(self, frame: bytearray) -> None:
        frame += self.random.randbytes(self.random.choice((1, 5, 100)))

    def _text(self, frame: bytearray) -> None:
        place = self._place(frame)
        value = self.random.choice(_TEXTS)
        frame[place : place + len(value)] = value

    def _change_header(self, frame: bytearray) -> None:
        if len(frame) >= 4:
            if self.random.random() < 0.5:
                frame[2:4] = struct.pack(">h", self.random.randrange(-2, 20))
            else:
                frame[0:2] = struct.pack(">h", self.random.randrange(-2, 80))
