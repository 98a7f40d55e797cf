"""The values of the coordination tree: error codes, requests, changes, images, paths.

What a request asks (`...Op`), what it changes (`Change`, `Txn`: the journal), and what the whole state
looks like at one moment (`TreeImage`: snapshots).  All immutable; `tree.py` gives them meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kafkalike.zk.client import ANY_VERSION, Stat

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31

EPHEMERAL: Final = 1
"""Flag bit of a create: the node lives as long as its session."""
SEQUENTIAL: Final = 2
"""Flag bit of a create: the parent's creation counter is appended, ten digits."""

ROOT: Final = "/"


class Code(IntEnum):
    """ZooKeeper's error numbers, as far as this server answers them."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class TreeError(Exception):
    """A request was refused; `code` is what goes on the wire."""

    def __init__(self, code: Code, path: str = "") -> None:
        super().__init__(f"{code.name} {path}".rstrip())
        self.code = code
        self.path = path


class Id(NamedTuple):
    """An identity: `("world", "anyone")`, `("digest", "user:hash")`, `("ip", "10.0.0.1")`."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """Permission bits granted to an identity."""

    perms: int
    id: Id


OPEN_ACL: Final = (Acl(ALL, Id("world", "anyone")),)
READ_ONLY_ACL: Final = (Acl(READ, Id("world", "anyone")),)


# -- requests -----------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class CreateOp:
    """Create a node; the result is `Created`.  `data` None stores a null buffer."""

    path: str
    data: bytes | None
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 0


@dataclass(slots=True, frozen=True)
class DeleteOp:
    """Delete a node without children; the result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(slots=True, frozen=True)
class SetDataOp:
    """Replace a node's data; the result is the new Stat."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(slots=True, frozen=True)
class CheckOp:
    """Require a node and its data version; the result is None."""

    path: str
    version: int


@dataclass(slots=True, frozen=True)
class SetAclOp:
    """Replace a node's access list, conditional on its ACL version; the result is the new Stat."""

    path: str
    acl: Sequence[Acl]
    version: int = ANY_VERSION


WriteOp: TypeAlias = CreateOp | DeleteOp | SetDataOp | CheckOp | SetAclOp


@dataclass(slots=True, frozen=True)
class Created:
    """Where a create put its node (with the number of a sequential one), and its metadata."""

    path: str
    stat: Stat


WriteResult: TypeAlias = Created | Stat | None


# -- what changes, for the journal ----------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class NodeCreated:
    """`creates` is the parent's creation counter afterwards."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int
    creates: int


@dataclass(slots=True, frozen=True)
class NodeDeleted:
    path: str


@dataclass(slots=True, frozen=True)
class NodeDataSet:
    path: str
    data: bytes | None
    version: int


@dataclass(slots=True, frozen=True)
class NodeAclSet:
    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(slots=True, frozen=True)
class SessionOpened:
    session_id: int
    timeout_ms: int
    password: bytes


@dataclass(slots=True, frozen=True)
class SessionClosed:
    """The session's ephemeral nodes are deleted by `NodeDeleted` changes of the same Txn."""

    session_id: int


Change: TypeAlias = (
    NodeCreated | NodeDeleted | NodeDataSet | NodeAclSet | SessionOpened | SessionClosed
)


@dataclass(slots=True, frozen=True)
class Txn:
    """One step of the state machine.  A refused write is one too, with no changes: it has a zxid."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


# -- the whole state -----------------------------------------------------------------------------


class NodeImage(NamedTuple):
    """A znode without its children, for snapshots and exports."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    creates: int
    aversion: int
    owner: int


@dataclass(slots=True, frozen=True)
class TreeImage:
    """All state that outlives a process.  Nodes come parents first."""

    zxid: int
    next_session_id: int
    sessions: tuple[tuple[int, int, bytes], ...]
    """(session id, timeout in ms, password)"""
    nodes: tuple[NodeImage, ...]


# -- paths ---------------------------------------------------------------------------------------


def parent_of(path: str) -> str:
    """`/a/b` -> `/a`, `/a` -> `/`."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """`/a/b` -> `b`."""
    return path[path.rindex("/") + 1 :]


def validate_path(path: str) -> None:
    """TreeError BAD_ARGUMENTS unless ZooKeeper accepts the path.

    Absolute, no empty, `.` or `..` names, no trailing slash, no control characters, surrogates,
    private-use or special characters.
    """
    if path == ROOT:
        return
    if not path.startswith("/") or path.endswith("/"):
        raise TreeError(Code.BAD_ARGUMENTS, path)
    if any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise TreeError(Code.BAD_ARGUMENTS, path)
    if not path.isascii() or not path.isprintable():
        for character in path:
            code = ord(character)
            if code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or code >= 0xFFF0:
                raise TreeError(Code.BAD_ARGUMENTS, path)
