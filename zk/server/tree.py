"""The coordination state machine: znodes, sessions, watches and access control of one ZooKeeper.

Synchronous and pure: time arrives as `now_ms` (what a znode records) or `mono_ms` (what a session's
lease is measured by: any clock that does not jump), session passwords as bytes, replies are return
values or `TreeError`, watch events go to the `Caller` that set the watch, and every change goes to
`journal` as a `Txn` that `apply` can replay.  The embedded server (`server.py`), the in-process
client of tests and simulator (`local.py`) and recovery (`storage.py`) share this one class, so
there is one truth about what ZooKeeper does.

Behaviour is that of ZooKeeper 3.8/3.9, as recorded by `tests/contract/test_coordination.py`, which
asks both.  Not modelled: containers, TTL nodes, quotas, reconfiguration, SASL (docs/coordination.md).
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike.zk.client import ANY_VERSION, EventType, Stat

from .access import allowed, checked_acl, identity_of
from .model import (
    ADMIN,
    CREATE,
    DELETE,
    EPHEMERAL,
    OPEN_ACL,
    READ,
    READ_ONLY_ACL,
    ROOT,
    SEQUENTIAL,
    WRITE,
    Acl,
    Change,
    CheckOp,
    Code,
    Created,
    CreateOp,
    DeleteOp,
    Id,
    NodeAclSet,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeImage,
    SessionClosed,
    SessionOpened,
    SetDataOp,
    TreeError,
    TreeImage,
    Txn,
    WriteOp,
    WriteResult,
    name_of,
    parent_of,
    validate_path,
)
from .watches import WATCHER_MASKS, Caller, WatcherType, WatchMode, WatchTable

_LAST_PLAIN_FLAG: Final = 3
_LAST_KNOWN_FLAG: Final = 6
_NEVER_MS: Final = 1 << 62

SPECIAL_PATHS: Final = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})


@dataclass(slots=True)
class Node:
    """A znode.  `creates` counts children ever created: the next sequence number.

    The cversion that clients see is `2 * creates - number of children`: it also counts deletions.
    """

    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    creates: int = 0
    aversion: int = 0
    owner: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        children = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            _int32(2 * self.creates - children),
            self.aversion,
            self.owner,
            0 if self.data is None else len(self.data),
            children,
            self.pzxid,
        )


@dataclass(slots=True)
class Session:
    """A client's lease.  `ephemerals` holds its nodes in order of creation."""

    session_id: int
    timeout_ms: int
    password: bytes
    deadline_ms: int
    ephemerals: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class _Event:
    """A watch event that waits for its transaction to be complete."""

    type: EventType
    path: str
    acl: tuple[Acl, ...]


class CoordinationTree:
    """One ZooKeeper's state.  Every method is complete when it returns.

    `journal` receives each transaction after it was made and before its watch events and answer go
    out; an exception from it leaves the tree ahead of the journal, so the owner must then stop.
    """

    def __init__(
        self,
        *,
        journal: Callable[[Txn], None] | None = None,
        super_digest: str | None = None,
        first_session_id: int = 1,
    ) -> None:
        self.journal = journal
        self.super_digest = super_digest
        self.zxid = 0
        self.next_session_id = first_session_id
        self.sessions: dict[int, Session] = {}
        self.nodes: dict[str, Node] = {}
        self.data_watches = WatchTable()
        self.child_watches = WatchTable()
        self._events: list[_Event] = []
        for path in sorted(SPECIAL_PATHS):
            acl = READ_ONLY_ACL if path == "/zookeeper/config" else OPEN_ACL
            self.nodes[path] = Node(b"", acl, 0, 0, 0, 0, 0)
            if path != ROOT:
                self.nodes[parent_of(path)].children[name_of(path)] = None

    # -- sessions ------------------------------------------------------------------------------

    def create_session(self, timeout_ms: int, now_ms: int, password: bytes) -> Session:
        """Open a session that lives `timeout_ms` from the last `touch` (for ever if never touched)."""
        session_id = self.next_session_id
        self._commit(now_ms, [SessionOpened(session_id, timeout_ms, password)])
        return self.sessions[session_id]

    def reattach(
        self, session_id: int, password: bytes | None, timeout_ms: int, mono_ms: int
    ) -> Session | None:
        """The live session of that id when the password is right; its timeout is renewed."""
        session = self.sessions.get(session_id)
        if session is None or password is None:
            return None
        if not hmac.compare_digest(session.password, password):
            return None
        session.timeout_ms = timeout_ms
        session.deadline_ms = mono_ms + timeout_ms
        return session

    def touch(self, session_id: int, mono_ms: int) -> bool:
        """A sign of life; False when the session is gone."""
        session = self.sessions.get(session_id)
        if session is None:
            return False
        session.deadline_ms = mono_ms + session.timeout_ms
        return True

    def expired(self, mono_ms: int) -> list[int]:
        """Sessions whose time is up, the longest overdue first; end them by `close_session`."""
        due = [s for s in self.sessions.values() if s.deadline_ms <= mono_ms]
        return [s.session_id for s in sorted(due, key=lambda s: (s.deadline_ms, s.session_id))]

    def postpone(self, late_ms: int) -> None:
        """Give every session more time: its sign of life could not be read while we stood still."""
        for session in self.sessions.values():
            session.deadline_ms += late_ms

    def close_session(self, session_id: int, now_ms: int) -> None:
        """End a session: its ephemeral nodes go, watches of others fire, all in one transaction.

        For a session that is not there only a zxid passes.
        """
        session = self.sessions.get(session_id)
        changes: list[Change] = []
        if session is not None:
            changes.extend(NodeDeleted(path) for path in session.ephemerals)
            changes.append(SessionClosed(session_id))
        self._commit(now_ms, changes)

    def detach(self, caller: Caller) -> None:
        """The connection is gone: its watches go with it."""
        self.data_watches.drop(caller)
        self.child_watches.drop(caller)

    def authenticate(self, caller: Caller, scheme: str, credentials: bytes) -> bool:
        """Add an identity to the connection (`digest` "user:password" or `ip`); False = refused."""
        identity = identity_of(scheme, credentials, caller.host)
        if identity is None:
            return False
        if scheme == "digest" and identity.id == self.super_digest:
            _add_once(caller.identities, Id("super", ""))
        _add_once(caller.identities, identity)
        return True

    # -- writes --------------------------------------------------------------------------------

    def write(self, caller: Caller, op: WriteOp, now_ms: int) -> WriteResult:
        """One write.  A refusal (TreeError) also takes a zxid."""
        changes: list[Change] = []
        zxid = self.zxid + 1
        try:
            change, result = self._prepare(caller, op, zxid, now_ms)
        except TreeError:
            self._finish(Txn(zxid, now_ms, ()))
            raise
        if change is not None:
            self._apply_change(change, zxid, now_ms)
            changes.append(change)
        self._finish(Txn(zxid, now_ms, tuple(changes)))
        return result()

    def multi(
        self, caller: Caller, ops: Sequence[WriteOp], now_ms: int
    ) -> list[WriteResult | TreeError]:
        """All or nothing, under one zxid.

        When one is refused nothing is changed; the list then holds TreeError OK for the operations
        before it, its own error, and RUNTIME_INCONSISTENCY for those after it.
        """
        zxid = self.zxid + 1
        results: list[WriteResult | TreeError] = []
        changes: list[Change] = []
        undo: list[Callable[[], None]] = []
        for position, op in enumerate(ops):
            try:
                change, result = self._prepare(caller, op, zxid, now_ms)
            except TreeError as error:
                for step in reversed(undo):
                    step()
                self._events.clear()
                self._finish(Txn(zxid, now_ms, ()))
                before = [TreeError(Code.OK, o.path) for o in ops[:position]]
                after = [TreeError(Code.RUNTIME_INCONSISTENCY, o.path) for o in ops[position + 1 :]]
                return [*before, error, *after]
            if change is not None:
                undo.append(self._undo_of(change))
                self._apply_change(change, zxid, now_ms)
                changes.append(change)
            results.append(result())
        self._finish(Txn(zxid, now_ms, tuple(changes)))
        return results

    def refuse_write(self, now_ms: int) -> None:
        """A write that could not even be decoded or is not supported still takes a zxid."""
        self._finish(Txn(self.zxid + 1, now_ms, ()))

    def _prepare(
        self, caller: Caller, op: WriteOp, zxid: int, now_ms: int
    ) -> tuple[Change | None, Callable[[], WriteResult]]:
        """Validate one write against the current state: what it changes, and its later result."""
        if isinstance(op, CreateOp):
            return self._prepare_create(caller, op)
        self._require_session(caller)
        if isinstance(op, DeleteOp):
            return self._prepare_delete(caller, op), lambda: None
        validate_path(op.path)
        path = op.path
        if isinstance(op, SetDataOp):
            node = self._node(path)
            self._require(caller, node.acl, WRITE, path)
            version = _next_version(node.version, op.version, path)
            return NodeDataSet(path, op.data, version), node.stat
        if isinstance(op, CheckOp):
            node = self._node(path)
            self._require(caller, node.acl, READ, path)
            _next_version(node.version, op.version, path)
            return None, lambda: None
        acl = checked_acl(caller.identities, op.acl, path)
        node = self._node(path)
        self._require(caller, node.acl, ADMIN, path)
        version = _next_version(node.aversion, op.version, path)
        return NodeAclSet(path, acl, version), node.stat

    def _prepare_create(
        self, caller: Caller, op: CreateOp
    ) -> tuple[Change, Callable[[], WriteResult]]:
        if not 0 <= op.flags <= _LAST_KNOWN_FLAG:
            raise TreeError(Code.BAD_ARGUMENTS, op.path)
        if op.flags > _LAST_PLAIN_FLAG:
            raise TreeError(Code.UNIMPLEMENTED, op.path)
        self._require_session(caller)
        path = op.path
        if "/" not in path or "\0" in path:
            raise TreeError(Code.BAD_ARGUMENTS, path)
        acl = checked_acl(caller.identities, op.acl, path)
        parent = self._node(parent_of(path))
        self._require(caller, parent.acl, CREATE, path)
        if op.flags & SEQUENTIAL:
            path += f"{parent.creates:010d}"
        validate_path(path)
        if path in self.nodes:
            raise TreeError(Code.NODE_EXISTS, path)
        if parent.owner:
            raise TreeError(Code.NO_CHILDREN_FOR_EPHEMERALS, path)
        owner = caller.session_id if op.flags & EPHEMERAL else 0
        change = NodeCreated(path, op.data, acl, owner, _int32(parent.creates + 1))
        return change, lambda: Created(path, self.nodes[path].stat())

    def _prepare_delete(self, caller: Caller, op: DeleteOp) -> Change:
        path = op.path
        if "/" not in path or "\0" in path or path in SPECIAL_PATHS:
            raise TreeError(Code.BAD_ARGUMENTS, path)
        parent = self._node(parent_of(path))
        self._require(caller, parent.acl, DELETE, path)
        node = self._node(path)
        _next_version(node.version, op.version, path)
        if node.children:
            raise TreeError(Code.NOT_EMPTY, path)
        return NodeDeleted(path)

    # -- reads ---------------------------------------------------------------------------------

    def get_data(self, caller: Caller, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Data and metadata.  On a node that is not there no watch is set."""
        node = self._readable(caller, path)
        if watch:
            self.data_watches.add(path, caller)
        return node.data, node.stat()

    def exists(self, caller: Caller, path: str, watch: bool = False) -> Stat:
        """Metadata; TreeError NO_NODE when it is not there, and then the watch waits for it."""
        self._require_session(caller)
        if "\0" in path:
            raise TreeError(Code.BAD_ARGUMENTS, path)
        node = self.nodes.get(path or ROOT)
        if node is not None:
            self._require(caller, node.acl, READ, path)
        if watch:
            self.data_watches.add(path, caller)
        if node is None:
            raise TreeError(Code.NO_NODE, path)
        return node.stat()

    def get_children(
        self, caller: Caller, path: str, watch: bool = False
    ) -> tuple[list[str], Stat]:
        """Names in ascending order, and the parent's metadata."""
        node = self._readable(caller, path)
        if watch:
            self.child_watches.add(path, caller)
        return sorted(node.children), node.stat()

    def get_acl(self, caller: Caller, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """The access list; digests are blanked for who may not administrate the node."""
        self._require_session(caller)
        node = self._node(path)
        self._require(caller, node.acl, READ | ADMIN, path)
        if allowed(caller.identities, node.acl, ADMIN):
            return node.acl, node.stat()
        blanked = tuple(
            Acl(a.perms, Id(a.id.scheme, a.id.id.partition(":")[0] + ":x"))
            if a.id.scheme == "digest" and ":" in a.id.id
            else a
            for a in node.acl
        )
        return blanked, node.stat()

    def get_ephemerals(self, caller: Caller, prefix: str | None) -> list[str]:
        """The session's own ephemeral nodes below a prefix, ascending."""
        self._require_session(caller)
        own = self.sessions[caller.session_id].ephemerals
        wanted = (prefix or "").strip()
        if wanted in ("", ROOT):
            return sorted(own)
        return sorted(path for path in own if path.startswith(prefix or ""))

    def count_descendants(self, caller: Caller, path: str) -> int:
        """How many nodes lie below `path`, at any depth."""
        self._readable(caller, path)
        if path in ("", ROOT):
            return len(self.nodes) - 1
        count = 0
        pending = [path]
        while pending:
            above = pending.pop()
            names = self.nodes[above].children
            count += len(names)
            pending.extend(f"{above}/{name}" for name in names)
        return count

    # -- watches -------------------------------------------------------------------------------

    def add_watch(self, caller: Caller, path: str, mode: WatchMode) -> None:
        """A watch that stays; a recursive one also reports everything below (not child lists)."""
        self._require_session(caller)
        self.data_watches.add(path, caller, mode)
        if mode != WatchMode.PERSISTENT_RECURSIVE:
            self.child_watches.add(path, caller, mode)

    def check_watches(self, caller: Caller, path: str, kind: WatcherType) -> None:
        """TreeError NO_WATCHER unless the caller has such a watch there."""
        self._require_session(caller)
        data_mask, child_mask = WATCHER_MASKS[kind]
        if not (
            self.data_watches.contains(path, caller, data_mask)
            or self.child_watches.contains(path, caller, child_mask)
        ):
            raise TreeError(Code.NO_WATCHER, path)

    def remove_watches(self, caller: Caller, path: str, kind: WatcherType) -> None:
        """Drop the caller's watches of that kind; TreeError NO_WATCHER when there are none."""
        self._require_session(caller)
        data_mask, child_mask = WATCHER_MASKS[kind]
        removed_data = self.data_watches.remove(path, caller, data_mask)
        removed_child = self.child_watches.remove(path, caller, child_mask)
        if not removed_data and not removed_child:
            raise TreeError(Code.NO_WATCHER, path)

    def set_watches(
        self,
        caller: Caller,
        seen_zxid: int,
        *,
        data: Iterable[str] = (),
        exist: Iterable[str] = (),
        child: Iterable[str] = (),
        persistent: Iterable[str] = (),
        persistent_recursive: Iterable[str] = (),
    ) -> None:
        """After a reconnect: set watches again, firing at once those that missed their event.

        `seen_zxid` is the last zxid the client saw; what changed later counts as missed.
        """
        self._require_session(caller)
        for path in data:
            node = self.nodes.get(path or ROOT)
            if node is None:
                caller.deliver(EventType.DELETED, path, self.zxid)
            elif node.mzxid > seen_zxid:
                caller.deliver(EventType.DATA_CHANGED, path, self.zxid)
            else:
                self.data_watches.add(path, caller)
        for path in exist:
            if (path or ROOT) in self.nodes:
                caller.deliver(EventType.CREATED, path, self.zxid)
            else:
                self.data_watches.add(path, caller)
        for path in child:
            node = self.nodes.get(path or ROOT)
            if node is None:
                caller.deliver(EventType.DELETED, path, self.zxid)
            elif node.pzxid > seen_zxid:
                caller.deliver(EventType.CHILDREN_CHANGED, path, self.zxid)
            else:
                self.child_watches.add(path, caller)
        for path in persistent:
            self.add_watch(caller, path, WatchMode.PERSISTENT)
        for path in persistent_recursive:
            self.add_watch(caller, path, WatchMode.PERSISTENT_RECURSIVE)

    # -- replay, snapshots -----------------------------------------------------------------------

    def apply(self, txn: Txn) -> None:
        """Replay a journalled transaction (no watches, no journal).  ValueError on a gap or one
        that does not fit the state."""
        if txn.zxid != self.zxid + 1:
            raise ValueError(f"transaction {txn.zxid:#x} does not follow {self.zxid:#x}")
        try:
            for change in txn.changes:
                self._apply_change(change, txn.zxid, txn.time_ms)
        except KeyError as missing:
            raise ValueError(f"transaction {txn.zxid:#x} names unknown {missing}") from None
        self.zxid = txn.zxid
        self._events.clear()

    def image(self) -> TreeImage:
        """The present state as immutable values."""
        sessions = tuple((s.session_id, s.timeout_ms, s.password) for s in self.sessions.values())
        return TreeImage(
            self.zxid,
            self.next_session_id,
            sessions,
            tuple(
                NodeImage(
                    path,
                    n.data,
                    n.acl,
                    n.czxid,
                    n.mzxid,
                    n.pzxid,
                    n.ctime_ms,
                    n.mtime_ms,
                    n.version,
                    n.creates,
                    n.aversion,
                    n.owner,
                )
                for path, n in self.nodes.items()
            ),
        )

    def load(self, image: TreeImage) -> None:
        """Become `image`.  ValueError when a node has no parent or an ephemeral no session."""
        nodes: dict[str, Node] = {}
        sessions = {
            session_id: Session(session_id, timeout_ms, password, _NEVER_MS)
            for session_id, timeout_ms, password in image.sessions
        }
        for i in image.nodes:
            nodes[i.path] = Node(
                i.data,
                i.acl,
                i.czxid,
                i.mzxid,
                i.pzxid,
                i.ctime_ms,
                i.mtime_ms,
                i.version,
                i.creates,
                i.aversion,
                i.owner,
            )
            if i.path != ROOT:
                parent = nodes.get(parent_of(i.path))
                if parent is None:
                    raise ValueError(f"node {i.path} comes before its parent")
                parent.children[name_of(i.path)] = None
            if i.owner:
                if i.owner not in sessions:
                    raise ValueError(f"ephemeral {i.path} belongs to unknown {i.owner:#x}")
                sessions[i.owner].ephemerals[i.path] = None
        missing = SPECIAL_PATHS.difference(nodes)
        if missing:
            raise ValueError(f"nodes missing: {', '.join(sorted(missing))}")
        self.zxid = image.zxid
        self.next_session_id = max(self.next_session_id, image.next_session_id)
        self.nodes = nodes
        self.sessions = sessions

    def renew_sessions(self, mono_ms: int) -> None:
        """After a restart every session gets its full timeout again."""
        for session in self.sessions.values():
            session.deadline_ms = mono_ms + session.timeout_ms

    # -- inside ----------------------------------------------------------------------------------

    def _commit(self, now_ms: int, changes: list[Change]) -> None:
        zxid = self.zxid + 1
        for change in changes:
            self._apply_change(change, zxid, now_ms)
        self._finish(Txn(zxid, now_ms, tuple(changes)))

    def _finish(self, txn: Txn) -> None:
        """Make the transaction the last one, hand it to the journal, then fire its watches."""
        self.zxid = txn.zxid
        events, self._events = self._events, []
        if self.journal is not None:
            self.journal(txn)
        for event in events:
            self._fire(event, txn.zxid)

    def _fire(self, event: _Event, zxid: int) -> None:
        type_, path = event.type, event.path
        told: list[Caller] = []
        if type_ is not EventType.CHILDREN_CHANGED:
            told = self.data_watches.triggered(path)
        if type_ is EventType.DELETED or type_ is EventType.CHILDREN_CHANGED:
            told += [c for c in self.child_watches.triggered(path) if c not in told]
        for caller in told:
            if allowed(caller.identities, event.acl, READ):
                caller.deliver(type_, path, zxid)

    def _apply_change(self, change: Change, zxid: int, now_ms: int) -> None:
        """Make one validated change and note its events."""
        events = self._events
        if isinstance(change, NodeDataSet):
            node = self.nodes[change.path]
            node.data = change.data
            node.version = change.version
            node.mzxid = zxid
            node.mtime_ms = now_ms
            events.append(_Event(EventType.DATA_CHANGED, change.path, node.acl))
        elif isinstance(change, NodeCreated):
            path = change.path
            above = parent_of(path)
            parent = self.nodes[above]
            if change.owner:
                self.sessions[change.owner].ephemerals[path] = None
            parent.children[name_of(path)] = None
            parent.creates = change.creates
            parent.pzxid = zxid
            self.nodes[path] = Node(
                change.data, change.acl, zxid, zxid, zxid, now_ms, now_ms, owner=change.owner
            )
            events.append(_Event(EventType.CREATED, path, change.acl))
            events.append(_Event(EventType.CHILDREN_CHANGED, above, parent.acl))
        elif isinstance(change, NodeDeleted):
            path = change.path
            above = parent_of(path)
            node = self.nodes.pop(path)
            parent = self.nodes[above]
            del parent.children[name_of(path)]
            parent.pzxid = zxid
            if node.owner:
                del self.sessions[node.owner].ephemerals[path]
            events.append(_Event(EventType.DELETED, path, node.acl))
            events.append(_Event(EventType.CHILDREN_CHANGED, above, parent.acl))
        elif isinstance(change, NodeAclSet):
            node = self.nodes[change.path]
            node.acl = change.acl
            node.aversion = change.version
        elif isinstance(change, SessionOpened):
            self.sessions[change.session_id] = Session(
                change.session_id, change.timeout_ms, change.password, _NEVER_MS
            )
            self.next_session_id = max(self.next_session_id, change.session_id + 1)
        else:
            del self.sessions[change.session_id]

    def _undo_of(self, change: Change) -> Callable[[], None]:
        """How to take back a change that is about to be made inside a multi."""
        if isinstance(change, NodeDataSet):
            node = self.nodes[change.path]
            data, version, mzxid, mtime_ms = node.data, node.version, node.mzxid, node.mtime_ms

            def undo_data() -> None:
                node.data, node.version, node.mzxid, node.mtime_ms = data, version, mzxid, mtime_ms

            return undo_data
        if isinstance(change, NodeAclSet):
            node = self.nodes[change.path]
            acl, aversion = node.acl, node.aversion

            def undo_acl() -> None:
                node.acl, node.aversion = acl, aversion

            return undo_acl
        assert isinstance(change, NodeCreated | NodeDeleted)
        path = change.path
        parent = self.nodes[parent_of(path)]
        before = self.nodes.get(path)
        owner = change.owner if isinstance(change, NodeCreated) else self.nodes[path].owner
        creates, pzxid = parent.creates, parent.pzxid

        def undo_node() -> None:
            parent.creates, parent.pzxid = creates, pzxid
            if before is None:
                del self.nodes[path]
                del parent.children[name_of(path)]
                if owner:
                    del self.sessions[owner].ephemerals[path]
            else:
                self.nodes[path] = before
                parent.children[name_of(path)] = None
                if owner:
                    self.sessions[owner].ephemerals[path] = None

        return undo_node

    def _node(self, path: str) -> Node:
        node = self.nodes.get(path or ROOT)
        if node is None:
            raise TreeError(Code.NO_NODE, path)
        return node

    def _readable(self, caller: Caller, path: str) -> Node:
        self._require_session(caller)
        node = self._node(path)
        self._require(caller, node.acl, READ, path)
        return node

    def _require_session(self, caller: Caller) -> None:
        if caller.session_id not in self.sessions:
            raise TreeError(Code.SESSION_EXPIRED)

    def _require(self, caller: Caller, acl: tuple[Acl, ...], perms: int, path: str) -> None:
        if not allowed(caller.identities, acl, perms):
            raise TreeError(Code.NO_AUTH, path)


def _next_version(current: int, expected: int, path: str) -> int:
    """The version after a conditional change.  -1 is skipped: it would mean "any"."""
    if expected not in (ANY_VERSION, current):
        raise TreeError(Code.BAD_VERSION, path)
    following = _int32(current + 1)
    return 0 if following == -1 else following


def _int32(value: int) -> int:
    """Counters wrap around as 32-bit integers do."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def _add_once(identities: list[Id], identity: Id) -> None:
    if identity not in identities:
        identities.append(identity)
