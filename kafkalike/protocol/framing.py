"""Frames on a byte stream: a length of four bytes, big-endian, then that many bytes."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from kafkalike.runtime.ports import Buffer, FileRange

PREFIX: Final = Struct(">i")


class InvalidFrameSize(ValueError):
    """A length below zero or above the limit: the connection cannot go on."""


class FrameSplitter:
    """Cuts a stream of chunks into frames.

    Chunks may begin and end anywhere.  What waits for the rest of its frame is kept as a list of
    chunks and joined once, so a frame of many chunks costs one copy.  A frame is a view of the
    chunk it came in, or of that one copy: chunks belong to the splitter, their memory must not be
    used again.
    """

    __slots__ = ("_max_frame_bytes", "_need", "_pending", "_pending_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._need = PREFIX.size

    def feed(self, chunk: Buffer) -> list[memoryview]:
        """The frames that are whole now, without their prefix, in order.

        Raises InvalidFrameSize as soon as a prefix is out of bounds, before any memory is taken
        for its frame; frames before it in the same chunk are lost with the connection.
        """
        if self._pending:
            self._pending.append(chunk)
            self._pending_bytes += len(chunk)
            if self._pending_bytes < self._need:
                return []
            chunk = b"".join(self._pending)
            self._pending.clear()
        view = memoryview(chunk)
        frames = []
        position, end = 0, len(view)
        self._need = PREFIX.size
        while end - position >= PREFIX.size:
            (size,) = PREFIX.unpack_from(view, position)
            if not 0 <= size <= self._max_frame_bytes:
                raise InvalidFrameSize(
                    f"a frame of {size} bytes, expected 0 to {self._max_frame_bytes}"
                )
            if end - position - PREFIX.size < size:
                self._need = PREFIX.size + size
                break
            position += PREFIX.size
            frames.append(view[position : position + size])
            position += size
        if position < end:
            self._pending.append(view[position:])
        self._pending_bytes = end - position
        return frames

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return self._pending_bytes


def frame(header: bytes, parts: Sequence[Buffer | FileRange]) -> list[Buffer | FileRange]:
    """Prefix, header and body as a transport sends them, the first piece of the body joined on."""
    size = len(header) + sum(map(len, parts))
    start = PREFIX.pack(size) + header
    if parts and isinstance(parts[0], bytes):
        return [start + parts[0], *parts[1:]]
    return [start, *parts]
