"""The snapshot of one partition of `__consumer_offsets`: a file beside its segments.

It holds what the records up to an offset add up to, so that loading reads only those behind it.  It
is a shortcut and never a source: the log alone decides, and a snapshot counts only while the log
proves it (`Header`, and `shard.ShardLoad` for the proof).  The name is none that Kafka looks at, so
that a Kafka broker leaves the file alone; what it does to the log makes the snapshot void.

    header:  magic 8 bytes, version u16, topic id 16 bytes, partition i32, log start offset i64,
             base offset i64, next offset i64, leader epoch i32 and crc u32 of the last batch, crc u32
    section: kind u8, length u32, crc u32 of kind, length and body, begun with the crc before it

    1 records    (length u32, key, length u32, value, base offset i64) each
    2 offsets    (length u16, group, length u16, topic, count u32, oldest commit i64,
                 expires u8, length u32, block) each; blocks as in `packed`
    3 open       producer id i64, then as records: a transaction without marker
    4 end        sections before it u32; nothing follows
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from .offsets import GroupOffsets
from .packed import PackedOffsets
from .replay import BatchMark, Replay, Stored

FILE_NAME: Final = "group-state"
TEMPORARY_NAME: Final = "group-state.new"
MAGIC: Final = b"grpstate"
VERSION: Final = 1
NO_TOPIC_ID: Final = bytes(16)

RECORDS: Final = 1
OFFSETS: Final = 2
OPEN: Final = 3
END: Final = 4

SECTION_BYTES: Final = 128 << 10
"""A section is closed when it has grown to this."""
_HEADER: Final = Struct(">8sH16siqqqiII")
_HEADER_CRC: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size
_SECTION: Final = Struct(">BII")
SECTION_HEAD_BYTES: Final = _SECTION.size
_KIND: Final = Struct(">BI")
_LENGTH: Final = Struct(">I")
_NAME: Final = Struct(">H")
_OFFSET: Final = Struct(">q")
_BLOCK: Final = Struct(">IqBI")


class DamagedSnapshot(Exception):
    """The file is not a whole snapshot; the text says what is wrong."""


class Header(NamedTuple):
    """What a snapshot is of.  It counts for a log with the same id and start whose batch at
    `mark.base_offset` is the very same."""

    topic_id: bytes
    partition: int
    log_start_offset: int
    mark: BatchMark

    def encode(self) -> bytes:
        mark = self.mark
        head = _HEADER.pack(
            MAGIC,
            VERSION,
            self.topic_id,
            self.partition,
            self.log_start_offset,
            mark.base_offset,
            mark.next_offset,
            mark.leader_epoch,
            mark.crc,
            0,
        )[: -_HEADER_CRC.size]
        return head + _HEADER_CRC.pack(zlib.crc32(head))


def read_header(data: bytes) -> tuple[Header, int]:
    """The header and its crc, which the first section's begins with.  Raises DamagedSnapshot."""
    if len(data) < HEADER_BYTES:
        raise DamagedSnapshot(f"{len(data)} bytes, the header alone has {HEADER_BYTES}")
    magic, version, topic_id, partition, start, base, following, epoch, batch_crc, crc = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC or version != VERSION:
        raise DamagedSnapshot(f"begins with {data[:10].hex()}: no snapshot of version {VERSION}")
    if crc != zlib.crc32(data[: HEADER_BYTES - _HEADER_CRC.size]):
        raise DamagedSnapshot("the header's checksum is wrong")
    mark = BatchMark(base, following, epoch, batch_crc)
    return Header(topic_id, partition, start, mark), crc


# -- writing -----------------------------------------------------------------------------------


class _Sections:
    """Collects a file's bytes; `write` gets them section by section."""

    def __init__(self, write: Callable[[bytes], object], crc: int) -> None:
        self._write = write
        self._crc = crc
        self._count = 0
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, *parts: bytes) -> None:
        self._parts += parts
        self._size += sum(map(len, parts))

    @property
    def is_full(self) -> bool:
        return self._size >= SECTION_BYTES

    def close(self, kind: int) -> None:
        """End the section, if anything is in it."""
        if not self._parts:
            return
        body = b"".join(self._parts)
        self._parts, self._size = [], 0
        self._crc = _section_crc(kind, body, self._crc)
        self._write(_SECTION.pack(kind, len(body), self._crc) + body)
        self._count += 1

    def end(self) -> None:
        self.add(_LENGTH.pack(self._count))
        self.close(END)


def write_snapshot(
    replay: Replay, header: Header, write: Callable[[bytes], object]
) -> Iterator[None]:
    """Write a settled replay with `write`, which appends; may be paused at each step."""
    head = header.encode()
    write(head)
    sections = _Sections(write, _HEADER_CRC.unpack_from(head, len(head) - _HEADER_CRC.size)[0])
    for key, stored in replay.others.items():
        sections.add(*_record(key, stored))
        if sections.is_full:
            sections.close(RECORDS)
            yield
    sections.close(RECORDS)
    for group_id, offsets in replay.offsets.items():
        for block in offsets.packed():
            sections.add(*_block(group_id, block))
            if sections.is_full:
                sections.close(OFFSETS)
                yield
    sections.close(OFFSETS)
    for producer_id, records in replay.open.items():
        sections.add(_OFFSET.pack(producer_id))
        for key, stored in records.items():
            sections.add(*_record(key, stored))
            if sections.is_full:
                sections.close(OPEN)
                yield
                sections.add(_OFFSET.pack(producer_id))
        sections.close(OPEN)
    sections.end()


def _record(key: bytes, stored: Stored) -> tuple[bytes, ...]:
    value, base_offset = stored
    size = _LENGTH.pack(len(value))
    return _LENGTH.pack(len(key)), key, size, value, _OFFSET.pack(base_offset)


def _block(group_id: str, block: PackedOffsets) -> tuple[bytes, ...]:
    group, topic = group_id.encode(), block.topic.encode()
    facts = _BLOCK.pack(block.count, block.oldest_ms, block.expires, len(block.data))
    return _NAME.pack(len(group)), group, _NAME.pack(len(topic)), topic, facts, block.data


def _section_crc(kind: int, body: bytes, before: int) -> int:
    return zlib.crc32(body, zlib.crc32(_KIND.pack(kind, len(body)), before))


# -- reading -----------------------------------------------------------------------------------


class SnapshotReader:
    """Puts the sections of a snapshot into a replay.

    Every method raises DamagedSnapshot; the replay must then be thrown away.  `size` is that of the
    whole file.
    """

    def __init__(self, replay: Replay, size: int, crc: int) -> None:
        self._replay = replay
        self._left = size - HEADER_BYTES
        self._crc = crc
        self._count = 0
        self.is_complete = False

    def body_length(self, head: bytes) -> int:
        """Bytes of the section that follow its head."""
        if len(head) < SECTION_HEAD_BYTES:
            raise DamagedSnapshot("ends without its last section")
        _, length, _ = _SECTION.unpack_from(head)
        if length > self._left - SECTION_HEAD_BYTES:
            raise DamagedSnapshot(f"a section declares {length} bytes, {self._left} are left")
        return int(length)

    def read(self, head: bytes, body: bytes) -> Iterator[None]:
        """One section; may be paused at each step."""
        kind, length, crc = _SECTION.unpack_from(head)
        if len(body) != length or _section_crc(kind, body, self._crc) != crc:
            raise DamagedSnapshot(f"the checksum of section {self._count} is wrong")
        self._crc = crc
        self._left -= SECTION_HEAD_BYTES + length
        try:
            if kind == RECORDS:
                yield from self._read_records(body, 0, self._replay.others)
            elif kind == OFFSETS:
                yield from self._read_offsets(body)
            elif kind == OPEN:
                (producer_id,) = _OFFSET.unpack_from(body)
                target = self._replay.open.setdefault(producer_id, {})
                yield from self._read_records(body, _OFFSET.size, target)
            elif kind == END:
                self._end(body)
            else:
                raise DamagedSnapshot(f"a section is of kind {kind}")
        except (StructError, UnicodeDecodeError) as error:
            raise DamagedSnapshot(f"section {self._count}: {error}") from None
        self._count += 1

    def _read_records(
        self, body: bytes, position: int, target: dict[bytes, Stored]
    ) -> Iterator[None]:
        number = 0
        while position < len(body):
            key, position = _text(body, position, _LENGTH)
            value, position = _text(body, position, _LENGTH)
            (base_offset,) = _OFFSET.unpack_from(body, position)
            position += _OFFSET.size
            target[key] = (value, base_offset)
            number += 1
            if number % 256 == 0:
                yield

    def _read_offsets(self, body: bytes) -> Iterator[None]:
        position = number = 0
        groups = self._replay.offsets
        while position < len(body):
            name, position = _text(body, position, _NAME)
            topic, position = _text(body, position, _NAME)
            count, oldest_ms, expires, size = _BLOCK.unpack_from(body, position)
            position += _BLOCK.size
            data = body[position : position + size]
            position += size
            block = PackedOffsets(topic.decode(), count, oldest_ms, bool(expires), data)
            if len(data) != size or not count or not block.is_sound:
                raise DamagedSnapshot(f"a block of {count} offsets in {len(data)} bytes")
            group_id = name.decode()
            offsets = groups.get(group_id)
            if offsets is None:
                offsets = groups[group_id] = GroupOffsets()
            offsets.load_packed(block)
            number += 1
            if number % 8 == 0:
                yield

    def _end(self, body: bytes) -> None:
        (count,) = _LENGTH.unpack(body)
        if count != self._count or self._left:
            raise DamagedSnapshot(
                f"{self._count} sections, {count} expected, and {self._left} bytes behind the end"
            )
        self.is_complete = True


def _text(body: bytes, position: int, length: Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(body, position)
    position += length.size
    end = position + size
    if end > len(body):
        raise DamagedSnapshot(f"{size} bytes at {position} do not fit the section")
    return body[position:end], end
