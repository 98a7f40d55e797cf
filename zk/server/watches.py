"""Who watches which path, and for how long."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from kafkalike.zk.client import EventType

from .model import ROOT, Id, parent_of


@dataclass(slots=True, eq=False)
class Caller:
    """One connection of a session: who asks, and where its watch events go.

    Watches and identities belong to the connection, not to the session.  `deliver(type, path,
    zxid)` is called while the change is made, before the changing request returns, and must not
    call the tree.
    """

    session_id: int
    host: str
    deliver: Callable[[EventType, str, int], None]
    identities: list[Id] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identities.append(Id("ip", self.host))


class WatchMode(IntEnum):
    """How long a watch lives and how far it sees; the values are bits."""

    STANDARD = 1
    PERSISTENT = 2
    PERSISTENT_RECURSIVE = 4


class WatcherType(IntEnum):
    """What removeWatches and checkWatches name."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


_STANDARD: Final = int(WatchMode.STANDARD)
_PERSISTENT: Final = int(WatchMode.PERSISTENT)
_RECURSIVE: Final = int(WatchMode.PERSISTENT_RECURSIVE)
WATCHER_MASKS: Final = {
    WatcherType.CHILDREN: (0, _STANDARD),
    WatcherType.DATA: (_STANDARD, 0),
    WatcherType.ANY: (7, 7),
    WatcherType.PERSISTENT: (_PERSISTENT, _PERSISTENT),
    WatcherType.PERSISTENT_RECURSIVE: (_RECURSIVE, 0),
}
"""Watcher type -> modes meant in (data table, child table)."""


class WatchTable:
    """Watches of one kind (data or children) by path and by caller."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[Caller, int]] = {}
        self.by_caller: dict[Caller, dict[str, None]] = {}
        self._recursive_count = 0

    def add(self, path: str, caller: Caller, mode: WatchMode = WatchMode.STANDARD) -> None:
        watchers = self.by_path.setdefault(path, {})
        modes = watchers.get(caller, 0)
        if mode & WatchMode.PERSISTENT_RECURSIVE & ~modes:
            self._recursive_count += 1
        watchers[caller] = modes | mode
        self.by_caller.setdefault(caller, {})[path] = None

    def contains(self, path: str, caller: Caller, mode: int) -> bool:
        return bool(self.by_path.get(path, {}).get(caller, 0) & mode)

    def remove(self, path: str, caller: Caller, mode: int) -> bool:
        """Take away the modes in the bit mask `mode`; whether any was there."""
        modes = self.by_path.get(path, {}).get(caller, 0)
        if not modes & mode:
            return False
        self._set_modes(path, caller, modes, modes & ~mode)
        return True

    def drop(self, caller: Caller) -> None:
        """Forget everything of a caller."""
        for path in list(self.by_caller.get(caller, ())):
            self._set_modes(path, caller, self.by_path[path][caller], 0)

    def triggered(self, path: str) -> list[Caller]:
        """Who watches `path`, itself or recursively from above; one-shot watches are used up."""
        found: dict[Caller, None] = {}
        for caller, modes in list(self.by_path.get(path, {}).items()):
            found[caller] = None
            if modes & WatchMode.STANDARD:
                self._set_modes(path, caller, modes, modes & ~WatchMode.STANDARD)
        above = path
        while self._recursive_count and above != ROOT:
            above = parent_of(above)
            for caller, modes in self.by_path.get(above, {}).items():
                if modes & WatchMode.PERSISTENT_RECURSIVE:
                    found[caller] = None
        return list(found)

    def _set_modes(self, path: str, caller: Caller, before: int, after: int) -> None:
        if before & ~after & WatchMode.PERSISTENT_RECURSIVE:
            self._recursive_count -= 1
        if after:
            self.by_path[path][caller] = after
            return
        watchers = self.by_path[path]
        del watchers[caller]
        if not watchers:
            del self.by_path[path]
        paths = self.by_caller[caller]
        del paths[path]
        if not paths:
            del self.by_caller[caller]
