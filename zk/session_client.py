"""The ZooKeeper port on the loop: order, bounds, watches, and the life of sessions.

Knows nothing of sockets and threads: a session over the network is a `Link` (`link.py`), one link a
session.  What this file promises beside the port (`client.py`):

- At most `max_in_flight` requests are outstanding, the rest wait here in order (performance 7).
- A request carries the number of the connection it was made for and is refused, not sent, on any
  other: what a caller was told is lost is not applied later by a reconnect.
- No session begins before the product has asked for it (`connect`, `reconnect`; reference:
  zookeeper 5.4), and nothing meant for an old session reaches a new one.
- Watches survive a reconnect within the session: they are set again with the last transaction seen,
  and the server tells what changed in between.
- The loop leaves signs of life at short intervals; a link keeps its session only with them.
- A request not answered in time breaks the connection: all outstanding ones fail as ConnectionLost.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed

from kafkalike.runtime.ports import Clock, Timer

from . import wire
from .client import (
    ANY_VERSION,
    AuthFailed,
    BadArguments,
    ConnectionLost,
    Create,
    EventType,
    GetData,
    MarshallingError,
    NodeExists,
    NoNode,
    Op,
    OperationTimeout,
    OpResult,
    ReadOp,
    ReadResult,
    SessionExpired,
    SessionState,
    Stat,
    TooManyRequests,
    Watch,
    WatchEvent,
    ZkError,
)
from .link import Answer, Call, Connected, Event, Item, Link, Lost, Over, ZkOptions, split_connect

SERVER_PACKET_BYTES: Final = 0xFFFFF
"""A server with default `jute.maxbuffer` closes the connection on a larger request."""

MULTI_READ_FIRST_OPS: Final = 100
MULTI_READ_OPS: Final = 500
MULTI_READ_BYTES: Final = 256 << 10
"""Answers to one multi_read request are kept near this size, well below the server's 1 MiB."""

RECONNECT_S: Final = 1.0
CLOSE_LIMIT_S: Final = 5.0
_REARM_BYTES: Final = 256 << 10

_DATA: Final = 0
_ABSENT: Final = 1
_CHILDREN: Final = 2

Batch = tuple[list[str], list[str], list[str]]
"""Paths by kind of watch."""

_FIRES: Final = {
    EventType.CREATED: (_DATA, _ABSENT),
    EventType.DATA_CHANGED: (_DATA, _ABSENT),
    EventType.DELETED: (_DATA, _ABSENT, _CHILDREN),
    EventType.CHILDREN_CHANGED: (_CHILDREN,),
}


class Watches:
    """The one-shot watches of a session, by kind and path within the chroot."""

    def __init__(self) -> None:
        self._tables: tuple[dict[str, dict[Watch, None]], ...] = ({}, {}, {})

    def add(self, kind: int, path: str, watch: Watch) -> None:
        self._tables[kind].setdefault(path, {})[watch] = None

    def take(self, event: WatchEvent) -> list[Watch]:
        """Who is to be told, each once; they are no longer watching."""
        found: dict[Watch, None] = {}
        for kind in _FIRES[event.type]:
            found |= self._tables[kind].pop(event.path, {})
        return list(found)

    def paths(self, kind: int) -> list[str]:
        return list(self._tables[kind])

    def clear(self) -> None:
        for table in self._tables:
            table.clear()


class SessionClient:
    """A `ZkClient` over links.

    `new_link(hosts, take)` makes the link of one session; the link gives what happens to
    `take(link, items)`, on the loop.
    """

    def __init__(
        self,
        options: ZkOptions,
        *,
        clock: Clock,
        new_link: Callable[[str, "Callable[[Any, list[Item]], None]"], Link],
        logger: logging.Logger,
    ) -> None:
        self._options = options
        self._hosts, self._chroot = split_connect(options.connect)
        self._clock = clock
        self._new_link = new_link
        self._logger = logger
        self._state = SessionState.CLOSED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._link: Link | None = None
        self._session_id = 0
        self._password = b""
        self._connection = 0
        self._link_up = False
        self._chroot_ready = not self._chroot
        self._queue: deque[Call] = deque()
        self._in_flight: dict[Call, None] = {}
        self._watches = Watches()
        self._opening: Deferred[None] | None = None
        self._reconnecting: list[Deferred[None]] = []
        self._closing: list[Deferred[None]] = []
        self._timers: dict[str, Timer] = {}
        self._request_timeout_s = options.request_timeout_s or options.session_timeout_ms / 1000
        self._beat_s = min(1.0, options.session_timeout_ms / 1000 / 20)
        self.negotiated_timeout_ms = 0
        """The session timeout that the server granted."""

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_password(self) -> bytes:
        """What, with the id, lets another connection take the session over."""
        return self._password

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[SessionState], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # Sessions.

    def connect(self, timeout_s: float) -> "Deferred[None]":
        """Open the first session; OperationTimeout when no server lets us in, AuthFailed."""
        if self._link is not None or self._session_id:
            raise RuntimeError("connect: the client has been connected already")

        def give_up() -> None:
            self._connect_failed(
                OperationTimeout(
                    "", f"no session with ZooKeeper at {self._options.connect} in {timeout_s:g} s"
                )
            )

        opening: Deferred[None] = Deferred(lambda _: self._connect_failed(None))
        self._opening = opening
        self._start_timer("connect", timeout_s, give_up)
        self._open_session()
        return opening

    def reconnect(self) -> "Deferred[None]":
        """After EXPIRED: open a new session, trying for ever.  Connected already: fires at once."""
        if self._state is SessionState.CONNECTED:
            return succeed(None)
        if self._state is not SessionState.EXPIRED:
            return fail(SessionExpired("", f"cannot reconnect a client that is {self._state}"))
        waiting: Deferred[None] = Deferred()
        self._reconnecting.append(waiting)
        if self._link is None and "reopen" not in self._timers:
            self._open_session()
        return waiting

    def close(self) -> "Deferred[None]":
        if self._state is SessionState.CLOSED and self._link is None:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closing.append(closed)
        if len(self._closing) > 1:
            return closed
        self._cancel_timer("connect")
        self._cancel_timer("reopen")
        if self._link is None:
            self._finish_close()
        else:
            self._pump()
            self._link.begin_close()
            self._start_timer("close", CLOSE_LIMIT_S, self._close_overdue)
        return closed

    def _open_session(self) -> None:
        self._cancel_timer("reopen")
        self._link = link = self._new_link(self._hosts, self._take)
        link.open()
        self._beat()

    def _connect_failed(self, error: ZkError | None) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        self._cancel_timer("connect")
        link, self._link = self._link, None
        if link is not None:
            link.begin_close()
        self._session_id = 0
        self._link_up = False
        self._cancel_timer("beat")
        if error is not None:
            opening.errback(error)
        self._set_state(SessionState.CLOSED)
        self._fail_all(SessionExpired)

    def _close_overdue(self) -> None:
        self._logger.warning("ZooKeeper did not confirm the end of the session in time")
        if self._link is not None:
            self._link.drop_connection()
        self._finish_close()

    def _finish_close(self) -> None:
        self._link = None
        self._link_up = False
        for name in ("close", "beat", "connect", "reopen"):
            self._cancel_timer(name)
        self._watches.clear()
        self._set_state(SessionState.CLOSED)
        self._fail_all(SessionExpired)
        opening, self._opening = self._opening, None
        waiting = [d for d in (opening, *self._reconnecting) if d is not None]
        self._reconnecting = []
        for deferred in waiting:
            if not deferred.called:
                deferred.errback(SessionExpired("", "the client was closed"))
        closing, self._closing = self._closing, []
        for deferred in closing:
            deferred.callback(None)

    def _beat(self) -> None:
        """Leave the loop's sign of life, and look for answers that are overdue."""
        link = self._link
        if link is None:
            return
        link.beat()
        oldest = next(iter(self._in_flight), None)
        if oldest is not None:
            waited_s = self._clock.monotonic() - oldest.sent_s
            if waited_s > self._request_timeout_s:
                self._logger.warning(
                    "no answer from ZooKeeper, dropping the connection path=%s waited_s=%.1f",
                    oldest.request.path,
                    waited_s,
                )
                link.drop_connection()
        self._start_timer("beat", self._beat_s, self._beat)

    def _start_timer(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer(name)

        def run() -> None:
            del self._timers[name]
            callback()

        self._timers[name] = self._clock.call_later(delay_s, run)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    # What comes from the link.

    def _take(self, link: Link, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Answer):
                self._answered(item)
            elif link is not self._link:
                continue  # a session given up long ago
            elif isinstance(item, Event):
                self._fire(item)
            elif isinstance(item, Connected):
                self._connected(item)
            elif isinstance(item, Lost):
                self._lost()
            elif isinstance(item, Over):
                self._over(item)
            elif self._closing:
                self._finish_close()
        self._pump()

    def _answered(self, answer: Answer) -> None:
        call = answer.call
        if call not in self._in_flight:
            return  # failed already, with its connection or session
        del self._in_flight[call]
        value = answer.value
        if call.then is not None:
            value = call.then(answer)
        self._settle(call, value)

    def _settle(self, call: Call, value: Any) -> None:
        if call.deferred.called:
            return
        if isinstance(value, ZkError):
            call.deferred.errback(value)
        else:
            call.deferred.callback(value)

    def _fire(self, item: Event) -> None:
        try:
            type_ = EventType(item.type)
        except ValueError:
            self._logger.warning("unknown watch event type=%d path=%s", item.type, item.path)
            return
        self._tell(WatchEvent(type_, wire.own_path(self._chroot, item.path)))

    def _tell(self, event: WatchEvent) -> None:
        for watch in self._watches.take(event):
            try:
                watch(event)
            except Exception:
                self._logger.exception("watch failed path=%s", event.path)

    def _connected(self, item: Connected) -> None:
        self._link_up = True
        self._connection = item.number
        self._password = item.password
        self.negotiated_timeout_ms = item.negotiated_timeout_ms
        self._session_id = item.session_id
        if item.number > 1:
            self._rearm(item.last_zxid)
        if self._chroot_ready:
            self._announce()
        else:
            Deferred.fromCoroutine(self._make_chroot()).addErrback(self._chroot_failed)

    def _announce(self) -> None:
        self._cancel_timer("connect")
        self._set_state(SessionState.CONNECTED)
        waiting = [d for d in (self._opening, *self._reconnecting) if d is not None]
        self._opening = None
        self._reconnecting = []
        for deferred in waiting:
            if not deferred.called:
                deferred.callback(None)

    async def _make_chroot(self) -> None:
        """Create the chroot and its parents; runs before anybody else may use the connection."""
        try:
            await self._request(wire.exists("", self._chroot, False), internal=True)
        except NoNode:
            parts = self._chroot[1:].split("/")
            for count in range(1, len(parts) + 1):
                path = "/" + "/".join(parts[:count])
                op = Create(path, None)
                try:
                    request = wire.create("", op, self._options.acl("/"))
                    await self._request(request, internal=True)
                except NodeExists:
                    continue
        self._chroot_ready = True
        if self._link_up:
            self._announce()

    def _chroot_failed(self, failure: Any) -> None:
        if failure.check(ConnectionLost, SessionExpired):
            return  # the next connection tries again
        error = failure.value
        self._logger.error("cannot create the chroot %s: %s", self._chroot, error)
        self._connect_failed(error if isinstance(error, ZkError) else ZkError(self._chroot))

    def _rearm(self, zxid: int) -> None:
        """Set all watches on the new connection, before any other request."""
        batch: Batch = ([], [], [])
        size = 0
        for kind in (_DATA, _ABSENT, _CHILDREN):
            for path in self._watches.paths(kind):
                batch[kind].append(path)
                size += len(self._chroot) + len(path) + 4
                if size > _REARM_BYTES:
                    self._send_rearm(zxid, batch)
                    batch, size = ([], [], []), 0
        if size:
            self._send_rearm(zxid, batch)

    def _send_rearm(self, zxid: int, batch: Batch) -> None:
        call = Call(wire.set_watches(self._chroot, zxid, *batch))
        call.deferred.addErrback(self._rearm_failed, batch)
        self._send(call)

    def _rearm_failed(self, failure: Any, batch: Batch) -> None:
        if failure.check(ConnectionLost, SessionExpired):
            return  # the next connection arms again, or all watches are gone
        # Not knowing what changed, say that everything did: watchers read again and arm anew.
        self._logger.error("cannot set watches again: %s", failure.value)
        for kind, type_ in (
            (_DATA, EventType.DATA_CHANGED),
            (_ABSENT, EventType.CREATED),
            (_CHILDREN, EventType.CHILDREN_CHANGED),
        ):
            for path in batch[kind]:
                self._tell(WatchEvent(type_, path))

    def _lost(self) -> None:
        self._link_up = False
        if self._state is SessionState.CONNECTED:
            self._set_state(SessionState.SUSPENDED)
        self._fail_all(ConnectionLost)

    def _over(self, item: Over) -> None:
        if self._closing:
            return  # the end we asked for; `Ended` follows
        self._link_up = False
        self._link = None
        self._cancel_timer("beat")
        self._watches.clear()
        if self._opening is not None:
            error = AuthFailed("", item.reason) if item.auth_failed else None
            self._connect_failed(error or SessionExpired("", item.reason))
            return
        self._logger.warning(
            "ZooKeeper session is over session=0x%x reason=%s", self._session_id, item.reason
        )
        if self._state is SessionState.EXPIRED:
            self._retry_later()  # a new session that never came to life
            return
        self._set_state(SessionState.EXPIRED)
        self._fail_all(SessionExpired)

    def _retry_later(self) -> None:
        if self._reconnecting:
            self._start_timer("reopen", RECONNECT_S, self._open_session)

    def _set_state(self, state: SessionState) -> None:
        if self._state is state:
            return
        self._state = state
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                self._logger.exception("session listener failed state=%s", state)

    def _fail_all(self, error: type[ZkError]) -> None:
        """Fail what is outstanding and what waits behind it."""
        outstanding = list(self._in_flight)
        waiting = list(self._queue)
        self._in_flight.clear()
        self._queue.clear()
        for call in outstanding:
            size = len(call.request.body)
            if error is ConnectionLost and size > SERVER_PACKET_BYTES:
                # Sending it again would most likely break every connection: do not invite that.
                detail = f"connection lost with a request of {size} bytes, jute.maxbuffer exceeded?"
                self._settle(call, MarshallingError(call.request.path, detail))
            else:
                self._settle(call, error(call.request.path))
        for call in waiting:
            self._settle(call, error(call.request.path))

    # Requests.

    def _request(
        self,
        request: wire.WireRequest,
        then: Callable[[Answer], Any] | None = None,
        *,
        internal: bool = False,
    ) -> "Deferred[Any]":
        size = len(request.body)
        if size > self._options.max_request_bytes:
            limit = self._options.max_request_bytes
            return fail(BadArguments(request.path, f"request of {size} bytes, limit {limit}"))
        if self._closing or self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            if not internal:
                return fail(SessionExpired(request.path))
        elif self._state is not SessionState.CONNECTED and not internal:
            return fail(ConnectionLost(request.path))
        if len(self._queue) >= self._options.max_queued:
            return fail(TooManyRequests(request.path, f"{len(self._queue)} requests are waiting"))
        call = Call(request, then)
        self._queue.append(call)
        self._pump()
        return call.deferred

    def _pump(self) -> None:
        queue = self._queue
        while queue and self._link_up and len(self._in_flight) < self._options.max_in_flight:
            call = queue.popleft()
            if not call.deferred.called:  # cancelled while it waited
                self._send(call)

    def _send(self, call: Call) -> None:
        link = self._link
        assert link is not None and self._link_up
        call.connection = self._connection
        call.sent_s = self._clock.monotonic()
        self._in_flight[call] = None
        link.submit(call)

    def get(self, path: str, watch: Watch | None = None) -> "Deferred[tuple[bytes | None, Stat]]":
        request = wire.get_data(self._chroot, path, watch is not None)
        return self._request(request, self._watching(_DATA, path, watch))

    def exists(self, path: str, watch: Watch | None = None) -> "Deferred[Stat | None]":
        def then(answer: Answer) -> Any:
            absent = isinstance(answer.value, NoNode)
            if watch is not None and (absent or not isinstance(answer.value, ZkError)):
                self._watches.add(_ABSENT if absent else _DATA, path, watch)
            return None if absent else answer.value

        return self._request(wire.exists(self._chroot, path, watch is not None), then)

    def get_children(
        self, path: str, watch: Watch | None = None
    ) -> "Deferred[tuple[list[str], Stat]]":
        request = wire.get_children(self._chroot, path, watch is not None)
        return self._request(request, self._watching(_CHILDREN, path, watch))

    def _watching(
        self, kind: int, path: str, watch: Watch | None
    ) -> Callable[[Answer], Any] | None:
        if watch is None:
            return None

        def then(answer: Answer) -> Any:
            if not isinstance(answer.value, ZkError):
                self._watches.add(kind, path, watch)
            return answer.value

        return then

    def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> "Deferred[str]":
        op = Create(path, data, ephemeral, sequential)
        return self._request(wire.create(self._chroot, op, self._options.acl(path)))

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> "Deferred[Stat]":
        return self._request(wire.set_data(self._chroot, path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> "Deferred[None]":
        return self._request(wire.delete(self._chroot, path, version))

    def multi(self, ops: Sequence[Op]) -> "Deferred[list[OpResult]]":
        if not ops:
            return succeed([])
        return self._request(wire.multi(self._chroot, ops, self._options.acl))

    def multi_read(
        self, ops: Sequence[ReadOp], watch: Watch | None = None
    ) -> "Deferred[list[ReadResult]]":
        return Deferred.fromCoroutine(self._multi_read(list(ops), watch))

    async def _multi_read(self, ops: list[ReadOp], watch: Watch | None) -> list[ReadResult]:
        results: list[ReadResult] = []
        size = MULTI_READ_FIRST_OPS
        while len(results) < len(ops):
            chunk = ops[len(results) : len(results) + size]
            request = wire.multi_read(self._chroot, chunk)
            found, taken_bytes, zxid = await self._request(request, _with_zxid)
            if watch is not None:
                await self._watch_read(chunk, found, zxid, watch)
            results += found
            average = taken_bytes // len(chunk) + 1
            size = max(1, min(MULTI_READ_OPS, MULTI_READ_BYTES // average))
        return results

    async def _watch_read(
        self, chunk: list[ReadOp], found: list[ReadResult], zxid: int, watch: Watch
    ) -> None:
        """Watch what was read at `zxid`.

        The watches are known here before the server is asked: it tells of changes made since the
        read before it answers.
        """
        batch: Batch = ([], [], [])
        for op, result in zip(chunk, found, strict=True):
            if not isinstance(result, ZkError):
                kind = _DATA if isinstance(op, GetData) else _CHILDREN
                self._watches.add(kind, op.path, watch)
                batch[kind].append(op.path)
        if batch[_DATA] or batch[_CHILDREN]:
            await self._request(wire.set_watches(self._chroot, zxid, *batch))


def _with_zxid(answer: Answer) -> Any:
    if isinstance(answer.value, ZkError):
        return answer.value
    results, taken_bytes = answer.value
    return results, taken_bytes, answer.zxid
