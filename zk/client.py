"""The ZooKeeper port: what the rest of the product may ask of a coordination service.

Real: `kazoo_client.py`.  Fake for unit tests and the simulator: the tree of `zk/server/`.  Paths are
absolute within the chroot.  Every method's Deferred fires on the loop that owns the node; while the
connection is lost it fails with ConnectionLost (outcome unknown) or, once the session is gone, with
SessionExpired.  Callers decide about retries (reference: zookeeper 5.1, 5.2): `retrying` is Kafka's
policy, `create_recursive` and `ensure_path` build on it.

Requests of one session are executed in the order in which they were made, and a watch is called
before the answer to any request that already reflects the change.  A session listener hears of a
lost connection or session before the Deferreds of the requests lost with it fail.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred

ANY_VERSION: Final = -1

T = TypeVar("T")


class ZkError(Exception):
    """A ZooKeeper operation failed; `code` is ZooKeeper's own number."""

    code: ClassVar[int] = -1

    def __init__(self, path: str = "", detail: str = "") -> None:
        text = f"{type(self).__name__} {path}".rstrip()
        super().__init__(f"{text}: {detail}" if detail else text)
        self.path = path


class ConnectionLost(ZkError):
    """The connection broke while the request was under way: it may or may not have been applied."""

    code = -4


class RuntimeInconsistency(ZkError):
    """This operation of a multi was not tried because an earlier or later one failed."""

    code = -2


class MarshallingError(ZkError):
    """A request or answer that cannot be put into, or taken from, ZooKeeper's wire form."""

    code = -5


class Unimplemented(ZkError):
    """The server does not know this kind of request."""

    code = -6


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


class TooManyRequests(ZkError):
    """This client's own queue is full; nothing was sent."""

    code = -1000


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
OpResult: TypeAlias = str | Stat | ZkError | None
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

    def remove_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Tell it no more; harmless when it is not known."""

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

    def multi_read(
        self, ops: Sequence[ReadOp], watch: Watch | None = None
    ) -> "Deferred[list[ReadResult]]":
        """Many reads in few round trips; each has its own result.

        With `watch`, every read that succeeded leaves a watch on its node, as `get` and
        `get_children` would; changes made since the read call it at once.
        """

    def close(self) -> "Deferred[None]":
        """End the session; its ephemeral nodes disappear."""


_ERRORS: Final[dict[int, type[ZkError]]] = {
    cls.code: cls
    for cls in (
        RuntimeInconsistency,
        ConnectionLost,
        MarshallingError,
        Unimplemented,
        OperationTimeout,
        BadArguments,
        NoNode,
        NoAuth,
        BadVersion,
        NoChildrenForEphemerals,
        NodeExists,
        NotEmpty,
        SessionExpired,
        InvalidAcl,
        AuthFailed,
        SessionMoved,
    )
}


def error_for(code: int, path: str = "") -> ZkError:
    """The exception for one of ZooKeeper's error numbers."""
    cls = _ERRORS.get(code)
    return cls(path) if cls else UnknownZkError(path, f"error code {code}")


async def wait_connected(zk: ZkClient) -> None:
    """Return once `zk` is connected; raise SessionExpired when its session ends instead.

    Without time limit, as in Kafka: only a server can say whether the session is still alive.  A
    caller that cannot wait cancels.
    """
    if zk.state is SessionState.SUSPENDED:
        await _next_state(zk)
    if zk.state is not SessionState.CONNECTED:
        raise SessionExpired()


def _next_state(zk: ZkClient) -> "Deferred[None]":
    changed: Deferred[None] = Deferred(lambda _: zk.remove_listener(heard))

    def heard(state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            zk.remove_listener(heard)
            changed.callback(None)

    zk.add_listener(heard)
    return changed


async def retrying(zk: ZkClient, operation: Callable[[], Awaitable[T]]) -> T:
    """Do `operation`, again after each lost connection; every other error is the caller's.

    The operation may therefore have been applied more than once or, when the caller is cancelled
    or the session ends (SessionExpired), may have been applied without anyone knowing: reference
    zookeeper 5.2 says for each kind of write how that is told apart.
    """
    session = zk.session_id
    while True:
        try:
            return await operation()
        except ConnectionLost:
            await wait_connected(zk)
            if zk.session_id != session:
                raise SessionExpired() from None


async def ensure_path(zk: ZkClient, path: str, data: bytes | None = None) -> None:
    """Create `path` with `data`, and its parents with null data, where they are missing."""
    try:
        await create_recursive(zk, path, data)
    except NodeExists:
        return


async def create_recursive(zk: ZkClient, path: str, data: bytes | None) -> None:
    """Create `path`, and missing parents with null data; raises NodeExists when `path` is there.

    That error also comes when an earlier try of ours created the node but its answer was lost
    (reference: zookeeper 5.2).
    """
    missing = [(path, data)]
    while missing:
        target, payload = missing[-1]
        try:
            await retrying(zk, partial(zk.create, target, payload))
        except NoNode:
            parent = target.rpartition("/")[0]
            if not parent:
                raise
            missing.append((parent, None))
            continue
        except NodeExists:
            if target == path:
                raise
        missing.pop()
