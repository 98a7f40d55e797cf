"""ZooKeeper inside the process: the coordination tree under a Clock, and clients without sockets.

For unit tests and the simulator.  `LocalCoordination` is the service, `LocalZkClient` implements
the `ZkClient` port on it.  A request travels to the tree and its reply travels back, each for
`delay_s` of clock time, in order; a watch event takes its place between the replies, so it arrives
before any reply that was made after it.  No heartbeats are sent (a fake clock can become idle): a
session's time runs only while its client is cut off or frozen.

Faults: `drop_connection`, `restore_connection`, `expire_session`, `freeze`, `thaw`, `isolate`,
`heal` and `fail_next` of a client; `stop_serving` and `start_serving` of the service.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import Clock, Timer
from kafkalike.zk.client import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    GetData,
    Op,
    OperationTimeout,
    OpResult,
    ReadOp,
    ReadResult,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    UnknownZkError,
    Watch,
    WatchEvent,
    ZkError,
)

from .model import (
    EPHEMERAL,
    OPEN_ACL,
    SEQUENTIAL,
    CheckOp,
    Code,
    Created,
    CreateOp,
    DeleteOp,
    SetDataOp,
    TreeError,
    WriteOp,
    WriteResult,
)
from .tree import CoordinationTree
from .watches import Caller

T = TypeVar("T")

_RECONNECT_DELAY_S: Final = 1.0
_CLIENT_PATIENCE: Final = 2 / 3
"""A client gives a silent connection up after this part of its session timeout."""
_PASSWORD_BYTES: Final = 16

_ERRORS: Final = {error.code: error for error in ZkError.__subclasses__()}


class LocalCoordination:
    """One coordination service in memory, driven by a Clock.

    The short synchronous methods (`get`, `set`, `children`...) act at once, as somebody outside
    would: for arranging and looking at state in tests.  They raise `TreeError`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        delay_s: float | Callable[[], float] = 0.0005,
        tree: CoordinationTree | None = None,
    ) -> None:
        """`delay_s`: each leg of a round trip, or a function drawing it (order is kept anyway)."""
        self.clock = clock
        self.tree = tree or CoordinationTree(first_session_id=0x1000000000000)
        self.serving = True
        self._delay_s = delay_s
        self._clients: list[LocalZkClient] = []
        self._opened: dict[int, None] = {}
        """Sessions that clients of ours opened."""
        outside = self.tree.create_session(0, clock.now_ms(), bytes(_PASSWORD_BYTES))
        self._outside = Caller(outside.session_id, "127.0.0.1", lambda *_: None)

    def client(
        self,
        *,
        session_timeout_ms: int = 6000,
        chroot: str = "",
        host: str = "127.0.0.1",
        enter: Callable[..., object] | None = None,
    ) -> "LocalZkClient":
        """A new client, not connected yet.  Its owner is called through `enter(callback, *args)`."""
        client = LocalZkClient(self, session_timeout_ms, chroot, host, enter or _at_once)
        self._clients.append(client)
        return client

    def forget(self, client: "LocalZkClient") -> None:
        """The client will never be used again."""
        if client in self._clients:
            self._clients.remove(client)

    def stop_serving(self, *, applied: bool = False) -> None:
        """The service is away: all connections break, none can be made.  Sessions do not age."""
        self.serving = False
        for client in self._clients:
            client.drop_connection(applied=applied)
            client.stop_aging()

    def start_serving(self) -> None:
        """Back with the state it had; sessions get their full time again; clients reconnect."""
        self.serving = True
        for client in self._clients:
            client.restore_connection()
        owned = {client.session_id for client in self._clients}
        for session_id in [one for one in self._opened if one in self.tree.sessions]:
            if session_id not in owned:
                timeout_s = self.tree.sessions[session_id].timeout_ms / 1000
                self.clock.call_later(timeout_s, self._end, session_id)

    def opened(self, session_id: int) -> None:
        """A client has opened a session."""
        self._opened = {one: None for one in self._opened if one in self.tree.sessions}
        self._opened[session_id] = None

    def _end(self, session_id: int) -> None:
        """A session that nobody owns any more is over."""
        if session_id in self.tree.sessions:
            self.tree.close_session(session_id, self.clock.now_ms())

    def get(self, path: str) -> bytes | None:
        return self.tree.get_data(self._outside, path)[0]

    def stat(self, path: str) -> Stat | None:
        """None when the node is not there."""
        node = self.tree.nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        return self.tree.get_children(self._outside, path)[0]

    def create(self, path: str, data: bytes | None = None, flags: int = 0) -> str:
        """Make a node, parents included; the path created."""
        self.make_parents(path)
        result = self._write(CreateOp(path, data, OPEN_ACL, flags))
        assert isinstance(result, Created)
        return result.path

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        result = self._write(SetDataOp(path, data, version))
        assert isinstance(result, Stat)
        return result

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._write(DeleteOp(path, version))

    def make_parents(self, path: str) -> None:
        """Create what is missing above `path`, with null data."""
        names = path.strip("/").split("/")
        for count in range(1, len(names)):
            above = "/" + "/".join(names[:count])
            if above not in self.tree.nodes:
                self._write(CreateOp(above, None))

    def delay_s(self) -> float:
        """The next leg's duration."""
        return self._delay_s() if callable(self._delay_s) else self._delay_s

    def _write(self, op: WriteOp) -> WriteResult:
        return self.tree.write(self._outside, op, self.clock.now_ms())


class _Request:
    """A request on its way to the tree, or its reply on the way back."""

    __slots__ = ("deferred", "error", "kind", "paths", "run", "value")

    def __init__(
        self, kind: str, paths: tuple[str, ...], run: Callable[[Caller], Any], deferred: Any
    ) -> None:
        self.kind = kind
        self.paths = paths
        self.run = run
        self.deferred: Deferred[Any] = deferred
        self.value: Any = None
        self.error: ZkError | None = None


class _Link:
    """One connection: requests going one way, replies and events coming the other."""

    __slots__ = ("arriving", "caller", "coming", "cut")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.arriving: deque[_Request] = deque()
        self.coming: deque[_Delivery] = deque()
        self.cut = False


class LocalZkClient:
    """A `ZkClient` over a `LocalCoordination`; see the port for what its methods promise."""

    def __init__(
        self,
        coordination: LocalCoordination,
        session_timeout_ms: int,
        chroot: str,
        host: str,
        enter: Callable[..., object],
    ) -> None:
        self.coordination = coordination
        self.session_timeout_ms = session_timeout_ms
        self.chroot = chroot.rstrip("/")
        self._host = host
        self._enter = enter
        self._abandoned = False
        self._tree = coordination.tree
        self._clock = coordination.clock
        self._state = SessionState.CLOSED
        self._session_id = 0
        self._password = b""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._link: _Link | None = None
        self._last_zxid = 0
        self._frozen = False
        self._isolated = False
        self._down = False
        """Kept away by `drop_connection` until `restore_connection`."""
        self._expiry_timer: Timer | None = None
        self._patience_timer: Timer | None = None
        self._connecting: Deferred[None] | None = None
        self._connect_timer: Timer | None = None
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._exist_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}
        self._fault: tuple[Callable[[str, tuple[str, ...]], bool], bool, bool] | None = None

    # -- the ZkClient port -----------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[SessionState], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def connect(self, timeout_s: float) -> "Deferred[None]":
        if self._link is not None or self._connecting is not None:
            raise RuntimeError("connect: the client is connected or connecting already")
        waiting: Deferred[None] = Deferred()
        self._connecting = waiting

        def give_up() -> None:
            if self._connecting is waiting:
                self._connecting = None
                self._age()
                self._lose_link()
                self._enter(waiting.errback, OperationTimeout())

        self._connect_timer = self._clock.call_later(timeout_s, give_up)
        self._clock.call_later(self._delay(), self._open_session, waiting)
        return waiting

    def reconnect(self) -> "Deferred[None]":
        if self._connecting is not None:
            raise RuntimeError("reconnect: the client is connecting already")
        waiting: Deferred[None] = Deferred()
        self._connecting = waiting
        self._clock.call_later(self._delay(), self._open_session, waiting)
        return waiting

    def get(self, path: str, watch: Watch | None = None) -> "Deferred[tuple[bytes | None, Stat]]":
        def run(caller: Caller) -> tuple[bytes | None, Stat]:
            return self._tree.get_data(caller, self._full(path), watch is not None)

        deferred = self._call("get", (path,), run)
        if watch is not None:
            deferred.addCallback(_then(self._keep, self._data_watches, path, watch))
        return deferred

    def exists(self, path: str, watch: Watch | None = None) -> "Deferred[Stat | None]":
        def run(caller: Caller) -> Stat | None:
            try:
                return self._tree.exists(caller, self._full(path), watch is not None)
            except TreeError as error:
                if error.code is Code.NO_NODE:
                    return None
                raise

        deferred = self._call("exists", (path,), run)

        def keep(stat: Stat | None) -> Stat | None:
            if watch is not None:
                table = self._exist_watches if stat is None else self._data_watches
                self._keep(table, path, watch)
            return stat

        return deferred.addCallback(keep)

    def get_children(
        self, path: str, watch: Watch | None = None
    ) -> "Deferred[tuple[list[str], Stat]]":
        def run(caller: Caller) -> tuple[list[str], Stat]:
            return self._tree.get_children(caller, self._full(path), watch is not None)

        deferred = self._call("get_children", (path,), run)
        if watch is not None:
            deferred.addCallback(_then(self._keep, self._child_watches, path, watch))
        return deferred

    def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> "Deferred[str]":
        op = self._tree_op(Create(path, data, ephemeral, sequential))

        def run(caller: Caller) -> str:
            result = self._tree.write(caller, op, self._clock.now_ms())
            assert isinstance(result, Created)
            return self._own(result.path)

        return self._call("create", (path,), run)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> "Deferred[Stat]":
        op = self._tree_op(SetData(path, data, version))

        def run(caller: Caller) -> Stat:
            result = self._tree.write(caller, op, self._clock.now_ms())
            assert isinstance(result, Stat)
            return result

        return self._call("set", (path,), run)

    def delete(self, path: str, version: int = ANY_VERSION) -> "Deferred[None]":
        op = self._tree_op(Delete(path, version))

        def run(caller: Caller) -> None:
            self._tree.write(caller, op, self._clock.now_ms())

        return self._call("delete", (path,), run)

    def multi(self, ops: Sequence[Op]) -> "Deferred[list[OpResult]]":
        tree_ops = [self._tree_op(op) for op in ops]

        def run(caller: Caller) -> list[OpResult]:
            results = self._tree.multi(caller, tree_ops, self._clock.now_ms())
            return [self._op_result(result) for result in results]

        return self._call("multi", tuple(op.path for op in ops), run)

    def multi_read(
        self, ops: Sequence[ReadOp], watch: Watch | None = None
    ) -> "Deferred[list[ReadResult]]":
        wanted = list(ops)
        watched = watch is not None

        def read(caller: Caller, op: ReadOp) -> ReadResult:
            try:
                if isinstance(op, GetData):
                    return self._tree.get_data(caller, self._full(op.path), watched)
                return self._tree.get_children(caller, self._full(op.path), watched)[0]
            except TreeError as error:
                return self._zk_error(error)

        def run(caller: Caller) -> list[ReadResult]:
            return [read(caller, op) for op in wanted]

        def keep(results: list[ReadResult]) -> list[ReadResult]:
            for op, result in zip(wanted, results, strict=True):
                if watch is not None and not isinstance(result, ZkError):
                    data = isinstance(op, GetData)
                    self._keep(self._data_watches if data else self._child_watches, op.path, watch)
            return results

        deferred = self._call("multi_read", tuple(op.path for op in wanted), run)
        return deferred.addCallback(keep)

    def close(self) -> "Deferred[None]":
        done: Deferred[None] = Deferred()
        link = self._link

        def finish(_: object = None, *, told: bool = False) -> None:
            self._lose_link()
            if not told:
                self._age()
            self._cancel_timers(keep_expiry=not told)
            self._session_id = 0
            self._drop_watches()
            self._set_state(SessionState.CLOSED)
            done.callback(None)

        if link is None or self._state is not SessionState.CONNECTED:
            # Nobody can be told: the session, if any, stays behind until it expires.
            self._clock.call_later(self._delay(), finish)
            return done

        def run(caller: Caller) -> None:
            self._tree.close_session(caller.session_id, self._clock.now_ms())

        self._call("close", (), run).addCallbacks(partial(finish, told=True), finish)
        return done

    # -- faults --------------------------------------------------------------------------------

    def drop_connection(
        self, *, applied: bool = False, reconnect_after_s: float | None = None
    ) -> None:
        """Cut the connection: SUSPENDED, and what is under way fails with ConnectionLost.

        `applied`: whether requests still on their way reach the tree first; replies are lost either
        way.  The client stays cut off until `restore_connection`, or for `reconnect_after_s`.
        """
        self._down = True
        self._sever(applied)
        if reconnect_after_s is not None:
            self._clock.call_later(reconnect_after_s, self.restore_connection)

    def restore_connection(self) -> None:
        """Let the client reattach: CONNECTED, or EXPIRED when its session is gone meanwhile."""
        self._down = False
        if self._frozen or self._isolated:
            self._age()  # it cannot use the chance
        if self._state is SessionState.SUSPENDED:
            self._clock.call_later(self._delay(), self._reattach)

    def expire_session(self) -> None:
        """The service ends the session now; the client learns it: SUSPENDED, then EXPIRED."""
        if self._session_id:
            self._tree.close_session(self._session_id, self._clock.now_ms())
            self._server_cut()

    def freeze(self) -> None:
        """The client's process stands still: nothing is sent or delivered; the session ages."""
        self._frozen = True
        self._age()

    def abandon(self) -> None:
        """The client's process is dead: nothing of it is heard any more, the session ages."""
        self._abandoned = self._frozen = True
        self._connecting = None
        if self._connect_timer is not None:
            self._connect_timer.cancel()
        self._age()
        self._lose_link()
        self._drop_watches()
        self._listeners.clear()
        if not self._session_id:
            self.coordination.forget(self)

    def thaw(self) -> None:
        """Go on: what waited is delivered; then the client finds out what became of its session."""
        self._frozen = False
        self._resume()

    def isolate(self) -> None:
        """Packets vanish both ways.  The client notices after two thirds of its timeout."""
        self._isolated = True
        self._age()
        link = self._link
        if link is not None and self._patience_timer is None:
            patience_s = self.session_timeout_ms / 1000 * _CLIENT_PATIENCE
            self._patience_timer = self._clock.call_later(patience_s, self._sever, False)

    def heal(self) -> None:
        """Packets pass again."""
        self._isolated = False
        self._resume()

    def stop_aging(self) -> None:
        """The service stands still: a session that was cut off does not come closer to its end."""
        self._cancel_timers()

    def fail_next(
        self,
        match: Callable[[str, tuple[str, ...]], bool],
        *,
        applied: bool,
        reconnect: bool = True,
    ) -> None:
        """Lose the connection in place of the reply to the next request for which
        `match(kind, paths)` holds; kinds are the port's method names.  `applied`: whether the
        request takes effect.  With `reconnect` the client comes back by itself.
        """
        self._fault = (match, applied, reconnect)

    # -- requests and replies ------------------------------------------------------------------

    def _call(self, kind: str, paths: tuple[str, ...], run: Callable[[Caller], T]) -> "Deferred[T]":
        deferred: Deferred[T] = Deferred()
        link = self._link
        if link is None or self._state is not SessionState.CONNECTED:
            gone = self._state in (SessionState.EXPIRED, SessionState.CLOSED)
            error = (SessionExpired if gone else ConnectionLost)(paths[0] if paths else "")
            if not self._abandoned:
                self._clock.call_later(self._delay(), self._enter, _fail, deferred, error)
            return deferred
        link.arriving.append(_Request(kind, paths, run, deferred))
        self._clock.call_later(self._delay(), self._arrive, link)
        return deferred

    def _arrive(self, link: _Link) -> None:
        """The oldest request reaches the tree."""
        if link.cut or self._isolated or self._frozen or not link.arriving:
            return
        request = link.arriving.popleft()
        fault = self._fault
        if fault is not None and fault[0](request.kind, request.paths):
            self._fault = None
            if fault[1]:
                self._execute(link, request)
            link.arriving.appendleft(request)
            self._sever(False)
            if fault[2]:
                self.restore_connection()
            return
        self._execute(link, request)
        zxid = self._tree.zxid
        self._send(link, lambda: self._settle(request, zxid), request)

    def _execute(self, link: _Link, request: _Request) -> None:
        try:
            request.value = request.run(link.caller)
        except TreeError as error:
            request.error = self._zk_error(error)

    def _send(
        self, link: _Link, delivery: Callable[[], None], request: _Request | None = None
    ) -> None:
        """Put a reply or event on its way to the client."""
        link.coming.append(_Delivery(delivery, request))
        self._clock.call_later(self._delay(), self._deliver, link)

    def _deliver(self, link: _Link) -> None:
        if link.cut or self._isolated or self._frozen or not link.coming:
            return
        self._enter(link.coming.popleft())

    def _settle(self, request: _Request, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)
        if request.error is not None:
            _fail(request.deferred, request.error)
        elif not request.deferred.called:
            request.deferred.callback(request.value)

    # -- connection and session ----------------------------------------------------------------

    def _open_session(self, waiting: "Deferred[None]") -> None:
        if self._connecting is not waiting or waiting.called:
            return
        if not self.coordination.serving or self._down or self._isolated or self._frozen:
            self._clock.call_later(_RECONNECT_DELAY_S, self._open_session, waiting)
            return
        now_ms = self._clock.now_ms()
        password = self._tree.next_session_id.to_bytes(_PASSWORD_BYTES, "big")
        session = self._tree.create_session(self.session_timeout_ms, now_ms, password)
        self._session_id, self._password = session.session_id, password
        self.coordination.opened(session.session_id)
        self._expiry_timer = None  # a session left behind keeps its own countdown
        link = self._new_link()
        for count in range(1, len(self.chroot.split("/"))):
            above = "/".join(self.chroot.split("/")[: count + 1])
            if above not in self._tree.nodes:
                self._tree.write(link.caller, CreateOp(above, None), now_ms)

        def connected() -> None:
            self._connecting = None
            if self._connect_timer is not None:
                self._connect_timer.cancel()
                self._connect_timer = None
            self._set_state(SessionState.CONNECTED)
            if not waiting.called:
                waiting.callback(None)

        self._send(link, connected)

    def _reattach(self) -> None:
        """The client's attempt to go on with its session reaches the service."""
        if self._state is not SessionState.SUSPENDED or self._link is not None:
            return
        if not self.coordination.serving or self._down or self._isolated or self._frozen:
            return
        session = self._tree.reattach(
            self._session_id, self._password, self.session_timeout_ms, self._clock.now_ms()
        )
        if session is None:
            self._clock.call_later(self._delay(), self._expired)
            return
        self._cancel_timers()
        link = self._new_link()
        self._send(link, lambda: self._set_state(SessionState.CONNECTED))
        self._tree.set_watches(
            link.caller,
            self._last_zxid,
            data=[self._full(path) for path in self._data_watches],
            exist=[self._full(path) for path in self._exist_watches],
            child=[self._full(path) for path in self._child_watches],
        )

    def _new_link(self) -> _Link:
        def deliver(type_: EventType, path: str, zxid: int) -> None:
            self._send(link, lambda: self._on_event(WatchEvent(type_, self._own(path)), zxid))

        link = _Link(Caller(self._session_id, self._host, deliver))
        self._link = link
        return link

    def _lose_link(self) -> _Link | None:
        link, self._link = self._link, None
        if link is not None:
            link.cut = True
            self._tree.detach(link.caller)
        return link

    def _sever(self, applied: bool) -> None:
        """The client sees its connection break."""
        link = self._link
        if link is None:
            return
        if applied:
            for request in link.arriving:
                self._execute(link, request)
        self._lose_link()
        self._age()
        if self._connecting is None:
            self._set_state(SessionState.SUSPENDED)
        else:
            # The handshake's answer was lost: the new session stays behind, another is tried.
            self._clock.call_later(_RECONNECT_DELAY_S, self._open_session, self._connecting)
        answered = [d.request for d in link.coming if d.request is not None]
        for lost in [*answered, *link.arriving]:
            error = ConnectionLost(lost.paths[0] if lost.paths else "")
            self._enter(_fail, lost.deferred, error)

    def _server_cut(self) -> None:
        """The service closed the connection of an expired session."""
        if self._frozen or self._isolated:
            return  # found out by `_resume`
        self._sever(False)
        self._clock.call_later(self._delay(), self._reattach)

    def _expired(self) -> None:
        if self._state is not SessionState.SUSPENDED or self._frozen or self._isolated:
            return
        self._cancel_timers()
        self._session_id = 0
        self._last_zxid = 0
        self._drop_watches()
        self._set_state(SessionState.EXPIRED)

    def _age(self) -> None:
        """Start the session's countdown at the service, unless it runs."""
        if self._session_id and self._expiry_timer is None and self.coordination.serving:
            self._expiry_timer = self._clock.call_later(
                self.session_timeout_ms / 1000, self._time_is_up, self._session_id
            )

    def _time_is_up(self, session_id: int) -> None:
        self._expiry_timer = None
        if session_id in self._tree.sessions:
            self._tree.close_session(session_id, self._clock.now_ms())
        if self._abandoned:
            self.coordination.forget(self)
        elif session_id == self._session_id and self._link is not None:
            self._server_cut()

    def _resume(self) -> None:
        """After `thaw` or `heal`: what waited goes on; an expired session shows itself last."""
        if self._frozen or self._isolated:
            return
        link = self._link
        if link is None:
            if self._state is SessionState.SUSPENDED and not self._down:
                self._clock.call_later(self._delay(), self._reattach)
            return
        if self._session_id in self._tree.sessions:
            self._cancel_timers()
            for _ in range(len(link.arriving)):
                self._clock.call_later(self._delay(), self._arrive, link)
        for _ in range(len(link.coming)):
            self._clock.call_later(self._delay(), self._deliver, link)
        if self._session_id not in self._tree.sessions:
            self._send(link, self._server_cut)

    def _cancel_timers(self, *, keep_expiry: bool = False) -> None:
        if self._expiry_timer is not None and not keep_expiry:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        if self._patience_timer is not None:
            self._patience_timer.cancel()
            self._patience_timer = None

    def _set_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in list(self._listeners):
            self._enter(listener, state)

    # -- watches -------------------------------------------------------------------------------

    def _keep(self, table: dict[str, dict[Watch, None]], path: str, watch: Watch) -> None:
        table.setdefault(path, {})[watch] = None

    def _drop_watches(self) -> None:
        for table in (self._data_watches, self._exist_watches, self._child_watches):
            table.clear()

    def _on_event(self, event: WatchEvent, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)
        if event.type is EventType.CHILDREN_CHANGED:
            tables = [self._child_watches]
        elif event.type is EventType.DELETED:
            tables = [self._data_watches, self._exist_watches, self._child_watches]
        else:
            tables = [self._data_watches, self._exist_watches]
        watches: dict[Watch, None] = {}
        for table in tables:
            watches.update(table.pop(event.path, {}))
        for watch in watches:
            watch(event)

    # -- translation ---------------------------------------------------------------------------

    def _delay(self) -> float:
        return self.coordination.delay_s()

    def _full(self, path: str) -> str:
        if not self.chroot:
            return path
        return self.chroot if path == "/" else self.chroot + path

    def _own(self, path: str) -> str:
        return path[len(self.chroot) :] or "/"

    def _tree_op(self, op: Op) -> WriteOp:
        path = self._full(op.path)
        if isinstance(op, Create):
            flags = (EPHEMERAL if op.ephemeral else 0) | (SEQUENTIAL if op.sequential else 0)
            return CreateOp(path, op.data, OPEN_ACL, flags)
        if isinstance(op, SetData):
            return SetDataOp(path, op.data, op.version)
        if isinstance(op, Check):
            return CheckOp(path, op.version)
        return DeleteOp(path, op.version)

    def _op_result(self, result: WriteResult | TreeError) -> OpResult:
        if isinstance(result, Created):
            return self._own(result.path)
        if isinstance(result, TreeError):
            return None if result.code is Code.OK else self._zk_error(result)
        return result

    def _zk_error(self, error: TreeError) -> ZkError:
        return _ERRORS.get(error.code, UnknownZkError)(error.path[len(self.chroot) :])


class _Delivery:
    """What the client does when a reply or event arrives; `request` when it answers one."""

    __slots__ = ("_action", "request")

    def __init__(self, action: Callable[[], None], request: _Request | None) -> None:
        self._action = action
        self.request = request

    def __call__(self) -> None:
        self._action()


def _then(function: Callable[..., object], *args: object) -> Callable[[T], T]:
    """A callback that does something and passes the result on."""

    def callback(result: T) -> T:
        function(*args)
        return result

    return callback


def _at_once(callback: Callable[..., object], *args: object) -> None:
    callback(*args)


def _fail(deferred: "Deferred[Any]", error: ZkError) -> None:
    if not deferred.called:
        deferred.errback(error)
