"""The indexes of one segment: offset -> position, timestamp -> offset, aborted transactions.

Reference: log-store 2, 2.1.  The indexes of the active segment live in memory and are written entry
by entry into files that are sparse and as long as segment.index.bytes allows; a roll or a close trims
them.  Those of old segments are read when first asked for and may be dropped again (`IndexCache`).
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import ClassVar, Final

from kafkalike.runtime.ports import File, NoSuchFile

from .directory import LogDirectory
from .names import INDEX, TIME_INDEX, TXN_INDEX
from .producer_state import AbortedTxn

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
TXN_ENTRY: Final = struct.Struct(">hqqqq")
TXN_VERSION: Final = 0
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
_STEPS_BACK: Final = 16
"""How many entries one lookup tries before it reads the segment from its beginning."""


class CorruptIndex(ValueError):
    """An index file contradicts itself or its segment."""


class _Index:
    """What offset and time index share: the file, its preallocation, loading and dropping."""

    __slots__ = ("_file", "base_offset", "capacity", "count", "directory", "recently_used", "stem")

    ENTRY: ClassVar[struct.Struct]
    SUFFIX: ClassVar[str]

    def __init__(self, directory: LogDirectory, stem: str, base_offset: int) -> None:
        self.directory = directory
        self.stem = stem
        self.base_offset = base_offset
        self.count = -1
        """Entries; -1 while unknown."""
        self.capacity = 0
        """Entries for which the file has room; 0 for an index that only reads."""
        self._file: File | None = None
        self.recently_used = False

    @property
    def path(self) -> str:
        return self.stem + self.SUFFIX

    def close_file(self) -> File | None:
        file, self._file = self._file, None
        return file

    def _open(self) -> File:
        file = self._file = self.directory.disk.open(self.path, create=True)
        self.directory.files.opened(self)
        return file

    @property
    def is_writable(self) -> bool:
        return self.capacity > 0

    def create(self, max_bytes: int) -> None:
        """Start empty, with room for `max_bytes`, whatever the file holds."""
        self.directory.indexes.forget(self)
        self.release_file()
        self.capacity = max_bytes // self.ENTRY.size
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.truncate(0)
            file.truncate(self.capacity * self.ENTRY.size)
        finally:
            file.close()
        self._set_entries(b"")

    def prepare_append(self, max_bytes: int) -> None:
        """Make an existing index writable: entries into memory, room into the file."""
        self._ensure_loaded()
        self.directory.indexes.forget(self)
        self.capacity = max(max_bytes // self.ENTRY.size, self.count)
        self._resize(self.capacity)

    def _resize(self, count: int) -> None:
        """Give the file room for exactly `count` entries; leaves no descriptor open."""
        self.release_file()
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.truncate(count * self.ENTRY.size)
        finally:
            file.close()

    def trim(self) -> None:
        """Cut the file to its entries and become read-only."""
        if self.capacity:
            self._resize(self.count)
            self.capacity = 0
            self.directory.indexes.used(self, self.memory_bytes())
        self.release_file()

    def release_file(self) -> None:
        """Close the descriptor."""
        file = self.close_file()
        if file is not None:
            self.directory.files.forget(self)
            file.close()

    def forget(self) -> None:
        """Let go of descriptor and, where they can be read again, entries."""
        self.directory.indexes.forget(self)
        self.release_file()
        if not self.capacity:
            self.drop_entries()

    def drop_entries(self) -> None:
        self._clear_memory()

    def _ensure_loaded(self) -> None:
        if self._is_loaded():
            if not self.capacity:
                self.directory.indexes.used(self, self.memory_bytes())
            return
        try:
            data = self.directory.disk.read_file(self.path, limit=1 << 31)
        except NoSuchFile:
            data = b""
        self._set_entries(data[: len(data) - len(data) % self.ENTRY.size])
        if not self.capacity:
            self.directory.indexes.used(self, self.memory_bytes())

    def _last_raw(self) -> tuple[int, ...] | None:
        """The last entry straight from the file of an index that is not in memory."""
        try:
            size = self.directory.disk.size(self.path)
        except NoSuchFile:
            size = 0
        self.count = size // self.ENTRY.size
        if self.count == 0:
            return None
        file = self.directory.disk.open(self.path)
        try:
            return self.ENTRY.unpack(
                file.pread(self.ENTRY.size, (self.count - 1) * self.ENTRY.size)
            )
        finally:
            file.close()

    def _write_all(self, data: bytes) -> None:
        """Replace all entries, in the file too; the room it has stays."""
        room = self.capacity * self.ENTRY.size
        if room:
            data = data[:room]
        self.directory.indexes.forget(self)
        self.release_file()
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.truncate(0)
            file.append(data)
            if room:
                file.truncate(room)
        finally:
            file.close()
        self._set_entries(data)
        if not room:
            self.directory.indexes.used(self, self.memory_bytes())

    def memory_bytes(self) -> int:
        """What the entries take in memory, with some overhead."""
        return self.count * 16 + 256

    def _is_loaded(self) -> bool:
        raise NotImplementedError

    def _set_entries(self, data: bytes) -> None:
        raise NotImplementedError

    def _clear_memory(self) -> None:
        raise NotImplementedError

    def truncate_entries(self, count: int) -> None:
        raise NotImplementedError


class OffsetIndex(_Index):
    """Sparse map from offsets to file positions."""

    __slots__ = ("_offsets", "_positions")

    ENTRY = OFFSET_ENTRY
    SUFFIX = INDEX

    def __init__(self, directory: LogDirectory, stem: str, base_offset: int) -> None:
        super().__init__(directory, stem, base_offset)
        self._offsets: array[int] | None = None
        self._positions: array[int] | None = None

    def _is_loaded(self) -> bool:
        return self._offsets is not None

    def _set_entries(self, data: bytes) -> None:
        words = array("i", data)
        if sys.byteorder == "little":
            words.byteswap()
        self._offsets = words[0::2]
        self._positions = words[1::2]
        self.count = len(self._offsets)

    def _clear_memory(self) -> None:
        self._offsets = self._positions = None

    @property
    def is_full(self) -> bool:
        return 0 < self.capacity <= self.count

    def append(self, offset: int, position: int) -> None:
        """Add an entry above the last one; ignored when the index is full."""
        offsets, positions = self._offsets, self._positions
        assert offsets is not None and positions is not None, "prepare_append comes first"
        relative = offset - self.base_offset
        if self.count >= self.capacity or (offsets and relative <= offsets[-1]):
            return
        self.recently_used = True
        file = self._file or self._open()
        file.pwrite(OFFSET_ENTRY.pack(relative, position), self.count * 8)
        offsets.append(relative)
        positions.append(position)
        self.count += 1

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the largest entry at or below `offset`, else (base offset, 0)."""
        self._ensure_loaded()
        offsets, positions = self._offsets, self._positions
        assert offsets is not None and positions is not None
        index = bisect_right(offsets, offset - self.base_offset) - 1
        if index < 0:
            return self.base_offset, 0
        return self.base_offset + offsets[index], positions[index]

    def steps_back_from(self, offset: int) -> Iterator[tuple[int, int]]:
        """(offset, position) of the largest entry at or below `offset`, then of those before it: one
        that the log does not bear out is no reason to read all of it."""
        self._ensure_loaded()
        offsets, positions = self._offsets, self._positions
        assert offsets is not None and positions is not None
        index = bisect_right(offsets, offset - self.base_offset) - 1
        for number in range(index, max(index - _STEPS_BACK, -1), -1):
            yield self.base_offset + offsets[number], positions[number]

    def entry_from_position(self, position: int) -> tuple[int, int] | None:
        """(offset, position) of the first entry whose position is at least `position`."""
        self._ensure_loaded()
        offsets, positions = self._offsets, self._positions
        assert offsets is not None and positions is not None
        index = bisect_left(positions, position)
        if index == len(offsets):
            return None
        return self.base_offset + offsets[index], positions[index]

    def replace(self, entries: list[tuple[int, int]], known_count: int) -> None:
        """Take over `entries`, made anew, in place of the first `known_count`."""
        last = entries[-1][0] if entries else -1
        later = [entry for entry in self.entries()[known_count:] if entry[0] > last]
        self._write_all(
            b"".join(
                OFFSET_ENTRY.pack(offset - self.base_offset, position)
                for offset, position in entries + later
            )
        )

    def last_entry(self) -> tuple[int, int]:
        """(offset, position) of the last entry, else (base offset, 0)."""
        if self._offsets is None or self._positions is None:
            raw = self._last_raw()
            return (self.base_offset, 0) if raw is None else (self.base_offset + raw[0], raw[1])
        if not self._offsets:
            return self.base_offset, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or above `offset`."""
        self._ensure_loaded()
        assert self._offsets is not None
        self.truncate_entries(bisect_left(self._offsets, offset - self.base_offset))

    def truncate_entries(self, count: int) -> None:
        assert self._offsets is not None and self._positions is not None
        del self._offsets[count:], self._positions[count:]
        self.count = count

    def entries(self) -> list[tuple[int, int]]:
        """All entries, absolute offsets."""
        self._ensure_loaded()
        assert self._offsets is not None and self._positions is not None
        return [(self.base_offset + o, p) for o, p in zip(self._offsets, self._positions)]


class TimeIndex(_Index):
    """Sparse map from timestamps to offsets."""

    __slots__ = ("_offsets", "_timestamps")

    ENTRY = TIME_ENTRY
    SUFFIX = TIME_INDEX

    def __init__(self, directory: LogDirectory, stem: str, base_offset: int) -> None:
        super().__init__(directory, stem, base_offset)
        self._timestamps: array[int] | None = None
        self._offsets: array[int] | None = None

    def _is_loaded(self) -> bool:
        return self._timestamps is not None

    def _set_entries(self, data: bytes) -> None:
        timestamps, offsets = array("q"), array("i")
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            timestamps.append(timestamp)
            offsets.append(offset)
        self._timestamps, self._offsets = timestamps, offsets
        self.count = len(timestamps)

    def _clear_memory(self) -> None:
        self._timestamps = self._offsets = None

    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that closes the segment."""
        return 0 < self.capacity <= self.count + 1

    def maybe_append(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Add an entry when its timestamp is above the last one and its offset not below it."""
        timestamps, offsets = self._timestamps, self._offsets
        assert timestamps is not None and offsets is not None, "prepare_append comes first"
        relative = offset - self.base_offset
        if timestamps and (timestamp <= timestamps[-1] or relative < offsets[-1]):
            return
        if timestamp < 0 or self.count + (not closing) >= self.capacity:
            return
        self.recently_used = True
        file = self._file or self._open()
        file.pwrite(TIME_ENTRY.pack(timestamp, relative), self.count * TIME_ENTRY.size)
        timestamps.append(timestamp)
        offsets.append(relative)
        self.count += 1

    def steps_back_from(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """(timestamp, offset) of the largest entry at or below `timestamp`, then of those before."""
        self._ensure_loaded()
        timestamps, offsets = self._timestamps, self._offsets
        assert timestamps is not None and offsets is not None
        index = bisect_right(timestamps, timestamp) - 1
        for number in range(index, max(index - _STEPS_BACK, -1), -1):
            yield timestamps[number], self.base_offset + offsets[number]

    def replace(
        self, entries: list[tuple[int, int]], known_count: int, highest: tuple[int, int]
    ) -> None:
        """Take over `entries`, made anew, in place of the first `known_count`.

        `highest` closes an index that is not written any more.
        """
        last = entries[-1][0] if entries else -1
        later = [entry for entry in self.entries()[known_count:] if entry[0] > last]
        if not later and not self.capacity and highest[0] > last:
            later = [highest]
        self._write_all(
            b"".join(
                TIME_ENTRY.pack(timestamp, offset - self.base_offset)
                for timestamp, offset in entries + later
            )
        )

    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, else (-1, base offset)."""
        if self._timestamps is None or self._offsets is None:
            raw = self._last_raw()
            return (-1, self.base_offset) if raw is None else (raw[0], self.base_offset + raw[1])
        if not self._timestamps:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or above `offset`."""
        self._ensure_loaded()
        assert self._offsets is not None
        self.truncate_entries(bisect_left(self._offsets, offset - self.base_offset))

    def truncate_entries(self, count: int) -> None:
        assert self._timestamps is not None and self._offsets is not None
        del self._timestamps[count:], self._offsets[count:]
        self.count = count

    def entries(self) -> list[tuple[int, int]]:
        """All entries, absolute offsets."""
        self._ensure_loaded()
        assert self._timestamps is not None and self._offsets is not None
        return [(t, self.base_offset + o) for t, o in zip(self._timestamps, self._offsets)]


class TransactionIndex:
    """The aborted transactions of one segment; the file exists only once there was one."""

    __slots__ = ("_entries", "directory", "exists", "stem")

    def __init__(self, directory: LogDirectory, stem: str, *, exists: bool) -> None:
        self.directory = directory
        self.stem = stem
        self.exists = exists
        self._entries: list[AbortedTxn] | None = None

    @property
    def path(self) -> str:
        return self.stem + TXN_INDEX

    def append(self, txn: AbortedTxn) -> None:
        """Add an aborted transaction; their markers come in the order of offsets."""
        entries = self.entries()
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.append(TXN_ENTRY.pack(TXN_VERSION, *txn))
        finally:
            file.close()
        self.exists = True
        entries.append(txn)

    def entries(self) -> list[AbortedTxn]:
        """All entries.  Raises CorruptIndex."""
        if self._entries is None:
            data = b""
            if self.exists:
                data = self.directory.disk.read_file(self.path, limit=1 << 31)
            self._entries = parse_txn_index(data, self.path)
        return self._entries

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at or above `offset`."""
        if not self.exists:
            return
        kept = [txn for txn in self.entries() if txn.last_offset < offset]
        self.rewrite(kept)

    def rewrite(self, entries: list[AbortedTxn]) -> None:
        """Replace all entries."""
        if not self.exists and not entries:
            self._entries = []
            return
        file = self.directory.disk.open(self.path, create=True)
        try:
            file.truncate(0)
            if entries:
                file.append(b"".join(TXN_ENTRY.pack(TXN_VERSION, *txn) for txn in entries))
        finally:
            file.close()
        self.exists = True
        self._entries = list(entries)


def parse_txn_index(data: bytes, path: str) -> list[AbortedTxn]:
    """The entries of a `.txnindex` file.  Raises CorruptIndex."""
    if len(data) % TXN_ENTRY.size:
        raise CorruptIndex(f"{path}: {len(data)} bytes are no multiple of {TXN_ENTRY.size}")
    entries = []
    for version, *fields in TXN_ENTRY.iter_unpack(data):
        if version != TXN_VERSION:
            raise CorruptIndex(f"{path}: entry version {version}, expected {TXN_VERSION}")
        entries.append(AbortedTxn(*fields))
    return entries
