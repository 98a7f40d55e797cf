"""Which process listens on a port of this machine, for the message that the port is taken."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Final

_LISTEN: Final = "0A"
_PROC: Final = pathlib.Path("/proc")


def who_listens(port: int) -> str:
    """` (process 12, java)` for whoever listens on `port`, nothing where that cannot be seen."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return ""
    for process in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or belongs to somebody else
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) in inodes:
                    name = (process / "comm").read_text().strip()
                    return f" (process {process.name}, {name})"
    return ""


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
