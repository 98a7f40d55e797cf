"""Frames on a byte stream, however it is cut."""

import random
import struct

import pytest

from kafkalike.protocol.framing import FrameSplitter, InvalidFrameSize, frame

FRAMES = [b"", b"a", b"hello", bytes(range(256)) * 5, b"", b"end"]
STREAM = b"".join(struct.pack(">i", len(one)) + one for one in FRAMES)


@pytest.mark.parametrize("seed", range(30))
def test_any_cut_gives_the_same_frames(seed: int) -> None:
    chance = random.Random(seed)
    splitter = FrameSplitter(10_000)
    found: list[bytes] = []
    position = 0
    while position < len(STREAM):
        size = chance.choice((1, 2, 3, 7, 100, 2000))
        found += map(bytes, splitter.feed(STREAM[position : position + size]))
        position += size
    assert found == FRAMES
    assert splitter.pending_bytes == 0


def test_one_byte_at_a_time() -> None:
    splitter = FrameSplitter(10_000)
    found = [bytes(one) for byte in STREAM for one in splitter.feed(bytes((byte,)))]
    assert found == FRAMES


def test_frame_at_the_limit_passes_and_above_is_refused() -> None:
    splitter = FrameSplitter(5)
    assert [bytes(one) for one in splitter.feed(b"\0\0\0\x05hello")] == [b"hello"]
    with pytest.raises(InvalidFrameSize, match="6 bytes, expected 0 to 5"):
        splitter.feed(b"\0\0\0\x06")


def test_negative_size_is_refused() -> None:
    with pytest.raises(InvalidFrameSize, match="-1 bytes"):
        FrameSplitter(5).feed(b"\xff\xff\xff\xff")


def test_a_cut_prefix_is_judged_only_when_whole() -> None:
    splitter = FrameSplitter(5)
    assert splitter.feed(b"\x7f\xff\xff") == []
    assert splitter.pending_bytes == 3
    with pytest.raises(InvalidFrameSize):
        splitter.feed(b"\xff")


def test_frame_puts_size_and_header_before_the_body() -> None:
    assert frame(b"head", [b"body"]) == [b"\0\0\0\x08headbody"]
    records = memoryview(b"records")
    start, second, third = frame(b"head", [b"b", records, b"c"])
    assert (start, third) == (b"\0\0\0\x0dheadb", b"c")
    assert second is records
    assert frame(b"head", []) == [b"\0\0\0\x04head"]
    assert frame(b"head", [records]) == [b"\0\0\0\x0bhead", records]
