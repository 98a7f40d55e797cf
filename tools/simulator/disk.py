"""A disk in memory that can lose power: the Disk and File ports with a page cache of their own.

What is written is visible at once and durable after `sync`; names are durable after `sync_dir` of
their directory.  `crash` keeps what is durable and, where it is given chance, some prefix of the rest:
unsynced writes of a file survive in their order, the last of them torn or damaged; unsynced names of a
directory survive all or not at all.  `before` is called ahead of every operation and may raise: a
full device, a broken one, or the end of the process at exactly that point.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kafkalike.runtime.ports import Buffer, LockHeld, NoSuchFile, Random, StorageError

Hook: TypeAlias = Callable[[str, str], None]

_UNLIMITED: Final = 1 << 62
_COVERED_FROM: Final = 17
"""Bytes of a record batch before what its checksum says something about."""


@dataclass(slots=True, eq=False)
class _Content:
    """One file: what processes see, what the device holds, and the writes in between."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes written), or (size, None) for a truncation."""
    mtime_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        _apply(self.data, position, data)
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        _apply(self.data, size, None)
        self.unsynced.append((size, None))

    def sync(self) -> None:
        for position, data in self.unsynced:
            _apply(self.durable, position, data)
        self.unsynced.clear()

    def crash(self, random: Random | None, flipped: bool) -> None:
        keep = 0 if random is None else random.randrange(len(self.unsynced) + 1)
        for position, data in self.unsynced[:keep]:
            _apply(self.durable, position, data)
        if random is not None and keep < len(self.unsynced):
            position, data = self.unsynced[keep]
            if data and flipped:
                _apply(self.durable, position, _with_flipped_bit(data, random))
            elif data:
                there = random.randrange(len(data))
                # The length may have come to the device without the bytes.
                zeros = bytes(len(data) - there) if random.randrange(3) == 0 else b""
                _apply(self.durable, position, data[:there] + zeros)
        self.unsynced.clear()
        self.data = bytearray(self.durable)


def _with_flipped_bit(data: bytes, random: Random) -> bytes:
    """In a record batch the bit is one of its base offset, which no checksum covers, or one that a
    checksum covers.  The lowest 16 bits of the offset stay: the gap that they could leave is one that
    compaction may leave too."""
    wrong = bytearray(data)
    covered = len(data) > _COVERED_FROM and random.randrange(2) == 0
    at = (
        random.randrange(len(data) - _COVERED_FROM) + _COVERED_FROM
        if covered
        else random.randrange(min(len(data), 6))
    )
    wrong[at] ^= 1 << random.randrange(7)  # never to a negative offset
    return bytes(wrong)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


@dataclass(slots=True, eq=False)
class _Directory:
    entries: "dict[str, _Content | _Directory]" = field(default_factory=dict)
    durable: "dict[str, _Content | _Directory]" = field(default_factory=dict)

    def crash(self, random: Random | None, flipped: bool) -> None:
        if random is None or random.randrange(2) == 0:
            self.entries = dict(self.durable)
        else:
            self.durable = dict(self.entries)
        for entry in self.entries.values():
            entry.crash(random, flipped)


class MemoryFile:
    """One open file of a MemoryDisk."""

    __slots__ = ("_closing", "_content", "_disk", "_life", "_open", "_users", "path")

    def __init__(self, disk: "MemoryDisk", path: str, content: _Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._life = disk.lives
        self._users = 0
        self._closing = False
        self._open = True

    def _use(self, operation: str) -> _Content:
        assert self._life == self._disk.lives, f"{self.path} was opened before the crash"
        assert self._open, f"{self.path} is closed"
        self._disk.operation(operation, self.path)
        return self._content

    def size(self) -> int:
        return len(self._content.data)

    def append(self, *buffers: Buffer) -> int:
        content = self._use("append")
        start = len(content.data)
        data = b"".join(buffers)
        self._disk.take_room(self.path, len(data))
        content.write(start, data)
        content.mtime_ms = self._disk.now_ms()
        return start

    def pread(self, length: int, position: int) -> bytes:
        content = self._use("pread")
        return bytes(content.data[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        content = self._use("pwrite")
        self._disk.take_room(self.path, max(0, position + len(data) - len(content.data)))
        content.write(position, bytes(data))
        content.mtime_ms = self._disk.now_ms()

    def truncate(self, size: int) -> None:
        content = self._use("truncate")
        content.truncate(size)
        content.mtime_ms = self._disk.now_ms()

    def sync(self) -> None:
        self._use("sync").sync()

    def is_cached(self, length: int, position: int) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    def retain(self) -> None:
        assert self._open, f"{self.path} is closed"
        self._users += 1

    def release(self) -> None:
        assert self._users > 0, f"{self.path} was released more often than retained"
        self._users -= 1
        if self._closing and self._users == 0:
            self._shut()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if self._users == 0:
                self._shut()

    def _shut(self) -> None:
        self._open = False
        if self._life == self._disk.lives:
            self._disk.open_files -= 1


class MemoryLock:
    """A held lock of a MemoryDisk."""

    def __init__(self, disk: "MemoryDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)


class MemoryDisk:
    """A file system in memory.

    `before(operation, path)` runs ahead of every operation.  `capacity` bounds the bytes in all files
    (sparse ends made by `truncate` do not count).
    """

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        capacity: int = _UNLIMITED,
        before: Hook | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.before = before
        self.lives = 0
        self.open_files = 0
        self.locks: dict[str, MemoryLock] = {}
        self._root = _Directory()

    def operation(self, name: str, path: str) -> None:
        if self.before is not None:
            self.before(name, path)

    def crash(self, random: Random | None = None, *, flipped: bool = False) -> None:
        """Lose power: what is not durable is gone, but for what chance lets through; with `flipped`
        the last write of a file that comes through is not torn but has a wrong bit."""
        self._end_life()
        self._root.crash(random, flipped)

    def kill(self) -> None:
        """End the process only: everything written stays."""
        self._end_life()

    def _end_life(self) -> None:
        self.lives += 1
        self.open_files = 0
        self.locks.clear()

    def take_room(self, path: str, size: int) -> None:
        if size and self.used() + size > self.capacity:
            raise StorageError(f"{path}: No space left on device")

    def used(self) -> int:
        """Bytes in all files."""
        if self.capacity == _UNLIMITED:
            return 0
        return sum(len(content.data) for _, content in self._files(self._root, ""))

    def _files(self, directory: _Directory, path: str) -> Iterator[tuple[str, _Content]]:
        for name, entry in sorted(directory.entries.items()):
            if isinstance(entry, _Directory):
                yield from self._files(entry, f"{path}/{name}")
            else:
                yield f"{path}/{name}", entry

    def dump(self) -> dict[str, bytes]:
        """Every file and its visible content, for comparisons."""
        return {path: bytes(content.data) for path, content in self._files(self._root, "")}

    def names(self, path: str) -> "list[str]":
        """Like `list`, but no operation of the process: `before` does not hear of it."""
        directory = self._find(path)
        return sorted(directory.entries) if isinstance(directory, _Directory) else []

    def _find(self, path: str) -> "_Content | _Directory | None":
        assert path.startswith("/"), f"{path} is not absolute"
        entry: _Content | _Directory | None = self._root
        for name in path.split("/")[1:]:
            if not name:
                continue
            if not isinstance(entry, _Directory):
                return None
            entry = entry.entries.get(name)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        directory = self._find(parent or "/")
        if not isinstance(directory, _Directory):
            raise NoSuchFile(f"{path}: No such file or directory")
        return directory, name

    def _content(self, path: str) -> _Content:
        entry = self._find(path)
        if entry is None:
            raise NoSuchFile(f"{path}: No such file or directory")
        if isinstance(entry, _Directory):
            raise StorageError(f"{path}: Is a directory")
        return entry

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.operation("open", path)
        if create and self._find(path) is None:
            directory, name = self._parent(path)
            directory.entries[name] = _Content(mtime_ms=self.now_ms())
        self.open_files += 1
        try:
            return MemoryFile(self, path, self._content(path))
        except StorageError:
            self.open_files -= 1
            raise

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def list(self, path: str) -> "list[str]":
        self.operation("list", path)
        directory = self._find(path)
        if directory is None:
            raise NoSuchFile(f"{path}: No such file or directory")
        if not isinstance(directory, _Directory):
            raise StorageError(f"{path}: Not a directory")
        return sorted(directory.entries)

    def make_dirs(self, path: str) -> None:
        self.operation("make_dirs", path)
        entry: _Directory = self._root
        for name in path.split("/")[1:]:
            if not name:
                continue
            child = entry.entries.get(name)
            if child is None:
                child = entry.entries[name] = _Directory()
            if not isinstance(child, _Directory):
                raise StorageError(f"{path}: File exists")
            entry = child

    def rename(self, source: str, target: str) -> None:
        self.operation("rename", source)
        old_parent, old_name = self._parent(source)
        entry = old_parent.entries.get(old_name)
        if entry is None:
            raise NoSuchFile(f"{source}: No such file or directory")
        new_parent, new_name = self._parent(target)
        replaced = new_parent.entries.get(new_name)
        if isinstance(replaced, _Directory) and replaced.entries and replaced is not entry:
            raise StorageError(f"{target}: Directory not empty")
        del old_parent.entries[old_name]
        new_parent.entries[new_name] = entry

    def remove(self, path: str) -> None:
        self.operation("remove", path)
        self._content(path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def remove_tree(self, path: str) -> None:
        self.operation("remove_tree", path)
        directory, name = self._parent(path)
        if not isinstance(directory.entries.get(name), _Directory):
            raise NoSuchFile(f"{path}: No such file or directory")
        del directory.entries[name]

    def size(self, path: str) -> int:
        self.operation("size", path)
        return len(self._content(path).data)

    def mtime_ms(self, path: str) -> int:
        self.operation("mtime_ms", path)
        return self._content(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self.operation("set_mtime_ms", path)
        self._content(path).mtime_ms = mtime_ms

    def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        self.operation("read_file", path)
        data = self._content(path).data
        if len(data) > limit:
            raise StorageError(f"{path}: larger than the limit of {limit} bytes")
        return bytes(data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """The same steps as on a real disk, so that a crash may come between any two of them."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0] or "/")

    def sync_dir(self, path: str) -> None:
        self.operation("sync_dir", path)
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            raise NoSuchFile(f"{path}: No such file or directory")
        directory.durable = dict(directory.entries)

    def lock(self, path: str) -> MemoryLock:
        self.operation("lock", path)
        if path in self.locks:
            raise LockHeld(f"{path}: another process holds this lock")
        if self._find(path) is None:
            directory, name = self._parent(path)
            directory.entries[name] = _Content(mtime_ms=self.now_ms())
        held = self.locks[path] = MemoryLock(self, path)
        return held

    def space(self, path: str) -> tuple[int, int]:
        self.operation("space", path)
        return self.capacity, max(0, self.capacity - self.used())
