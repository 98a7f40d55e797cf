"""Log directories that can be full.

As root each is a small file system in memory whose size shrinks to what is in it: writes then fail in
the middle, as they do on a device.  Mounts are private to this process and its children and end with
them.  Otherwise brokers run behind a disk that refuses to write while a mark lies beside the directory
(`tests.chaos.broker`).
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
ROOM_BYTES: Final = 1 << 30
PAGE_BYTES: Final = 4096
MARK: Final = ".full"
LIMIT_S: Final = 30.0


def own_mounts() -> bool:
    """Give this process mounts of its own; False when it may not."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return False
    return _mount("--make-rprivate", "/")


def _mount(*words: str) -> bool:
    done = subprocess.run(
        ["mount", *words], capture_output=True, timeout=LIMIT_S, check=False, cwd="/"
    )
    return done.returncode == 0


class Disk:
    """One log directory."""

    def __init__(self, path: Path, *, mounts: bool) -> None:
        self.path = path
        path.mkdir(parents=True)
        self._mark = path.with_name(path.name + MARK)
        self.is_device = mounts and _mount(
            "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "chaos", str(path)
        )
        self.full = False

    def fill(self, left_bytes: int) -> None:
        """From now on only so much more fits, about."""
        self.full = True
        if self.is_device:
            space = os.statvfs(self.path)
            used = (space.f_blocks - space.f_bfree) * space.f_frsize
            room = used + max(PAGE_BYTES, left_bytes)
            _mount("-o", f"remount,size={room}", str(self.path))
        else:
            self._mark.touch()

    def free(self) -> None:
        self.full = False
        if self.is_device:
            _mount("-o", f"remount,size={ROOM_BYTES}", str(self.path))
        else:
            self._mark.unlink(missing_ok=True)


def program(disks: list[Disk]) -> list[str]:
    """What a broker on these disks is started with."""
    if all(disk.is_device for disk in disks):
        return [sys.executable, "-m", "kafkalike.tools.main", "broker"]
    return [sys.executable, "-m", "tests.chaos.broker"]
