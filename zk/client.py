"""The ZooKeeper port: what the rest of the product may ask of a coordination service.

Real: `kazoo_client.py`.  Fake for unit tests and the simulator: the tree of `zk/server/`.  Paths are
absolute within the chroot.  Every method's Deferred fires on the loop that owns the node; while the
connection is lost it fails with ConnectionLost (outcome unknown) or, once the session is gone, with
SessionExpired.  Callers decide about retries (reference: zookeeper 5.1, 5.2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Protocol, TypeAlias

from twisted.internet.defer import Deferred

ANY_VERSION: Final = -1


class ZkError(Exception):
    """A ZooKeeper operation failed; `code` is ZooKeeper's own number."""

    code: ClassVar[int] = -1

    def __init__(self, path: str = "") -> None:
        super().__init__(f"{type(self).__name__} {path}".rstrip())
        self.path = path


class ConnectionLost(ZkError):
    """The connection broke while the request was under way: it may or may not have been applied."""

    code = -4


class RuntimeInconsistency(ZkError):
    """This operation of a multi was not tried because an earlier or later one failed."""

    code = -2


class MarshallingError(ZkError):
    code = -5


class BadArguments(ZkError):
    code = -8


class OperationTimeout(ZkError):
    code = -7


class UnknownZkError(ZkError):
    """A code this client has no class for."""

    code = -1


class NoNode(ZkError):
    code = -101


class NoAuth(ZkError):
    code = -102


class BadVersion(ZkError):
    code = -103


class NoChildrenForEphemerals(ZkError):
    code = -108


class NodeExists(ZkError):
    code = -110


class NotEmpty(ZkError):
    code = -111


class SessionExpired(ZkError):
    code = -112


class InvalidAcl(ZkError):
    code = -114


class AuthFailed(ZkError):
    code = -115


class SessionMoved(ZkError):
    code = -118


@dataclass(slots=True, frozen=True)
class Stat:
    """A znode's metadata.  `czxid` of a broker's registration is its broker epoch."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


@dataclass(slots=True, frozen=True)
class Create:
    """`data` None writes a null buffer, as Kafka's parent nodes have."""

    path: str
    data: bytes | None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(slots=True, frozen=True)
class SetData:
    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(slots=True, frozen=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(slots=True, frozen=True)
class Check:
    path: str
    version: int


Op: TypeAlias = Create | SetData | Delete | Check
OpResult: TypeAlias = str | Stat | None | ZkError
"""Created path, new stat, nothing (Delete, Check), or why this operation failed."""


@dataclass(slots=True, frozen=True)
class GetData:
    """A read inside `multi_read`; the result is (data, stat) or a ZkError."""

    path: str


@dataclass(slots=True, frozen=True)
class GetChildren:
    """A read inside `multi_read`; the result is a sorted list of names or a ZkError."""

    path: str


ReadOp: TypeAlias = GetData | GetChildren
ReadResult: TypeAlias = tuple[bytes | None, Stat] | list[str] | ZkError


class SessionState(Enum):
    """What a session listener is told."""

    CONNECTED = "connected"
    """Connected with the session it had before, or with the first one."""
    SUSPENDED = "suspended"
    """Connection lost; the session may still be alive."""
    EXPIRED = "expired"
    """The session and its ephemeral nodes and watches are gone.  Requests fail until `reconnect`."""
    CLOSED = "closed"


class EventType(Enum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


@dataclass(slots=True, frozen=True)
class WatchEvent:
    type: EventType
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]
"""Called at most once, on the loop; a watch dies with its session without being called."""


class ZkClient(Protocol):
    """One session with a coordination service."""

    @property
    def session_id(self) -> int:
        """The current session's id, 0 when there is none."""

    @property
    def state(self) -> SessionState: ...

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Be told of each change of state, on the loop, in order."""

    def connect(self, timeout_s: float) -> "Deferred[None]":
        """Open the first session (creating the chroot when missing); fails with OperationTimeout."""

    def reconnect(self) -> "Deferred[None]":
        """After EXPIRED: open a new session, retrying every second for ever."""

    def get(
        self, path: str, watch: Watch | None = None
    ) -> "Deferred[tuple[bytes | None, Stat]]": ...

    def exists(self, path: str, watch: Watch | None = None) -> "Deferred[Stat | None]": ...

    def get_children(
        self, path: str, watch: Watch | None = None
    ) -> "Deferred[tuple[list[str], Stat]]":
        """Sorted names."""

    def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> "Deferred[str]":
        """The path created (with its number when sequential)."""

    def set(
        self, path: str, data: bytes | None, version: int = ANY_VERSION
    ) -> "Deferred[Stat]": ...

    def delete(self, path: str, version: int = ANY_VERSION) -> "Deferred[None]": ...

    def multi(self, ops: Sequence[Op]) -> "Deferred[list[OpResult]]":
        """All or nothing.  When one fails the list holds its ZkError and RuntimeInconsistency for
        the rest (earlier ones None): the Deferred itself fails only for connection or session loss.
        """

    def multi_read(self, ops: Sequence[ReadOp]) -> "Deferred[list[ReadResult]]":
        """Many reads in few round trips; each has its own result.  Sets no watches."""

    def close(self) -> "Deferred[None]":
        """End the session; its ephemeral nodes disappear."""
