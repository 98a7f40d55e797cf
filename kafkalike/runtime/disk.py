"""The Disk and File ports over the operating system.

Plain blocking calls: reads and writes meet the page cache.  Every OSError becomes a StorageError that
names the path.
"""

import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from .ports import Buffer, LockHeld, NoSuchFile, StorageError

P = ParamSpec("P")
R = TypeVar("R")

IOV_LIMIT: Final = 1024
TAIL_BYTES: Final = 8 << 20
"""What this process wrote that recently is taken for cached without asking."""

PROBES: Final = 4

_WHOLE_FILE: Final = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _storage_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Turn OSError into StorageError (NoSuchFile for a missing path)."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except FileNotFoundError as error:
            raise NoSuchFile(f"{error.filename or args[1]}: {error.strerror}") from error
        except OSError as error:
            raise StorageError(f"{error.filename or args[1]}: {error.strerror}") from error

    return guarded


class RealFile:
    """One open file.  Only this object appends to it, so it knows the end without asking."""

    __slots__ = ("_appended_from", "_closing", "_end", "_fd", "_users", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._appended_from = self._end
        self._users = 0
        self._closing = False

    def _error(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path}: {error.strerror}")

    def size(self) -> int:
        return self._end

    def append(self, *buffers: Buffer) -> int:
        start = self._end
        try:
            if len(buffers) == 1:
                length = len(buffers[0])
                written = os.pwrite(self._fd, buffers[0], start)
            else:
                length = sum(map(len, buffers))
                written = os.pwritev(self._fd, buffers[:IOV_LIMIT], start)
            if written != length:
                self._append_rest(buffers, written, start)
        except OSError as error:
            self._undo_append(start)
            raise self._error(error) from error
        self._end = start + length
        return start

    def _append_rest(self, buffers: Sequence[Buffer], written: int, start: int) -> None:
        """Go on after a write that took only part (many buffers, or a signal, or a full device)."""
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            skip = min(len(view), max(0, written - done))
            done += skip
            view = view[skip:]
            while view:
                count = os.pwrite(self._fd, view, start + done)
                if count == 0:
                    raise OSError(errno.EIO, "the device takes no more bytes")
                done += count
                written = done
                view = view[count:]

    def _undo_append(self, start: int) -> None:
        """Leave no torn bytes behind; a device that refuses this too has already failed the append."""
        try:
            os.ftruncate(self._fd, start)
        except OSError:
            return

    def pread(self, length: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            if len(data) == length or position + len(data) >= self._end:
                return data
            parts = [data]
            position += len(data)
            length -= len(data)
            while length and (data := os.pread(self._fd, length, position)):
                parts.append(data)
                position += len(data)
                length -= len(data)
            return b"".join(parts)
        except OSError as error:
            raise self._error(error) from error

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        try:
            while view:
                count = os.pwrite(self._fd, view, position)
                position += count
                view = view[count:]
        except OSError as error:
            raise self._error(error) from error
        self._end = max(self._end, position)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise self._error(error) from error
        self._end = size
        self._appended_from = min(self._appended_from, size)

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._error(error) from error

    def is_cached(self, length: int, position: int) -> bool:
        if position >= self._appended_from and position >= self._end - TAIL_BYTES:
            return True
        last = min(position + length, self._end) - 1
        if last < position:
            return True
        byte = bytearray(1)
        step = max(1, (last - position) // (PROBES - 1))
        try:
            for probe in range(position, last, step):
                os.preadv(self._fd, [byte], probe, os.RWF_NOWAIT)
            os.preadv(self._fd, [byte], last, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return True  # the file system cannot tell: do as if there were no guard
            raise self._error(error) from error
        return True

    def fileno(self) -> int:
        return self._fd

    def retain(self) -> None:
        assert self._fd >= 0, f"{self.path} is closed"
        self._users += 1

    def release(self) -> None:
        assert self._users > 0, f"{self.path} was released more often than retained"
        self._users -= 1
        if self._closing and self._users == 0:
            self._close_now()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if self._users == 0:
                self._close_now()

    def _close_now(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)
        except OSError as error:
            raise self._error(error) from error


class RealDiskLock:
    """A held lock file."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The machine's file systems."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return RealFile(path, os.open(path, flags, 0o644))
        except FileNotFoundError as error:
            raise NoSuchFile(f"{path}: {error.strerror}") from error
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    @_storage_errors
    def list(self, path: str) -> "list[str]":
        return sorted(os.listdir(path))

    @_storage_errors
    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    @_storage_errors
    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    @_storage_errors
    def remove(self, path: str) -> None:
        os.remove(path)

    @_storage_errors
    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    @_storage_errors
    def size(self, path: str) -> int:
        return os.stat(path).st_size

    @_storage_errors
    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    @_storage_errors
    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    @_storage_errors
    def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise StorageError(f"{path}: larger than the limit of {limit} bytes")
        return data

    @_storage_errors
    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    @_storage_errors
    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @_storage_errors
    def lock(self, path: str) -> RealDiskLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A lock of the open file, not of the process: two brokers in one process exclude each
            # other too, and it meets the process locks that a Java program takes on the same file.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            os.close(fd)
            raise LockHeld(f"{path}: another process holds this lock") from None
        except OSError:
            os.close(fd)
            raise
        return RealDiskLock(fd)

    @_storage_errors
    def space(self, path: str) -> tuple[int, int]:
        facts: Any = os.statvfs(path)
        return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
