"""The ZooKeeper port over kazoo.  The only file that imports kazoo, and where its threads end.

kazoo finds a server, opens the session (TLS, SASL), pings, and reconnects; one thread of its does
that per session.  Requests and answers are our own (`wire.py`), sent and read on that thread.  What
it learns crosses to the loop through `call_from_thread`, in the order in which it happened: answers,
watch events, changes of the session.  Everything else in this file runs on the loop.

What differs from plain kazoo, and why:

- One kazoo client is one session.  It ends when its session has expired, so nothing that was meant
  for the old session can be applied in a new one, and no new session begins before the product has
  asked for it (`reconnect`; reference: zookeeper 5.4).
- A request carries the number of the connection it was made for and is refused, not sent, on any
  other: what a caller was told is lost is not applied later by a reconnect.
- Watches survive a reconnect within the session: they are set again with the last transaction seen,
  and the server tells what changed in between (kazoo forgets them).
- The session lives only as long as the loop does.  The loop leaves a time stamp at short intervals;
  while that is older than a third of the session timeout, no ping is sent and no connection opened.
  A loop blocked for less than the session timeout keeps its session; one blocked for more than 4/3
  of it has lost it, as a stopped process would.
- At most `max_in_flight` requests are outstanding, the rest wait here in order (performance 7).
- A request not answered in time breaks the connection: all outstanding ones fail as ConnectionLost.
"""

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, ReplyHeader
from kazoo.protocol.serialization import Watch as WatchRecord
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError, KazooRetry
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
    error_for,
)

CallFromThread = Callable[..., None]
"""Run `function(*args)` soon on the loop; called on kazoo's thread, keeps the order of calls."""

MAX_FRAME_BYTES: Final = 64 << 20
"""An answer above this closes the connection."""

SERVER_PACKET_BYTES: Final = 0xFFFFF
"""A server with default `jute.maxbuffer` closes the connection on a larger request."""

MAX_REQUEST_BYTES: Final = 4 << 20
MULTI_READ_FIRST_OPS: Final = 100
MULTI_READ_OPS: Final = 500
MULTI_READ_BYTES: Final = 256 << 10
"""Answers to one multi_read request are kept near this size, well below the server's 1 MiB."""

RECONNECT_S: Final = 1.0
CLOSE_LIMIT_S: Final = 5.0
_RECV_BYTES: Final = 256 << 10
_REARM_BYTES: Final = 256 << 10
_LOOP_WAIT_S: Final = 0.05


@dataclass(slots=True, frozen=True)
class ZkTls:
    """How to speak TLS to ZooKeeper; PEM files."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_certs: bool = True
    check_hostname: bool = True


@dataclass(slots=True, frozen=True)
class ZkOptions:
    """How to reach ZooKeeper (Kafka's `zookeeper.*` settings).

    `connect` is `host1:port1,host2:port2[/chroot]`.  `acl` decides what created nodes carry;
    `auth` holds (scheme, credential) pairs, `sasl` kazoo's SASL options.
    """

    connect: str
    session_timeout_ms: int = 18_000
    max_in_flight: int = 10
    request_timeout_s: float | None = None
    """How long an answer may take; None: the session timeout."""
    max_queued: int = 10_000
    max_request_bytes: int = MAX_REQUEST_BYTES
    tls: ZkTls | None = None
    auth: Sequence[tuple[str, str]] = ()
    sasl: Mapping[str, str] | None = None
    acl: wire.AclPolicy = field(default=lambda path: wire.OPEN_ACL)


def split_connect(connect: str) -> tuple[str, str]:
    """Hosts and chroot ("" when there is none) of a connect string.  Raises ValueError."""
    hosts, slash, rest = connect.partition("/")
    chroot = f"/{rest.rstrip('/')}" if slash and rest.strip("/") else ""
    if not hosts.strip():
        raise ValueError(f"zookeeper.connect {connect!r} names no host")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"zookeeper.connect {connect!r}: {chroot!r} is no valid path")
    return hosts, chroot


# --- kazoo's thread ------------------------------------------------------------------------------


class _Call:
    """One request on its way.  Handed to kazoo as the thing to be told the outcome."""

    __slots__ = ("connection", "deferred", "request", "sent_s", "session", "then")

    def __init__(
        self, request: wire.WireRequest, then: "Callable[[_Answer], Any] | None" = None
    ) -> None:
        self.request = request
        self.then = then
        """On the loop, turns the answer into the result; runs even if nobody waits any more."""
        self.connection = 0
        self.sent_s = 0.0
        self.session: _Session | None = None
        self.deferred: Deferred[Any] = Deferred()

    def set_exception(self, error: BaseException) -> None:
        """kazoo gives the request up (its thread, or the loop when the client is stopped)."""
        session = self.session
        assert session is not None
        path = self.request.path
        if isinstance(error, SessionExpiredError):
            outcome: ZkError = SessionExpired(path)
        elif isinstance(error, AuthFailedError):
            outcome = AuthFailed(path)
        else:
            outcome = ConnectionLost(path)
        session.post([_Answer(self, outcome, 0)])


@dataclass(slots=True, frozen=True)
class _Answer:
    call: _Call
    value: Any
    zxid: int


@dataclass(slots=True, frozen=True)
class _Event:
    type: int
    path: str


@dataclass(slots=True, frozen=True)
class _Connected:
    number: int
    session_id: int
    password: bytes
    negotiated_timeout_ms: int
    last_zxid: int


@dataclass(slots=True, frozen=True)
class _Lost:
    """The connection is gone, the session perhaps not."""


@dataclass(slots=True, frozen=True)
class _Over:
    """The session is gone: it expired, was closed, refused (auth), or its thread failed."""

    reason: str
    auth_failed: bool = False


@dataclass(slots=True, frozen=True)
class _Ended:
    """The session's thread has ended."""


_Item = _Answer | _Event | _Connected | _Lost | _Over | _Ended


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's thread factory without its two worker threads: nothing is dispatched through them."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: object) -> None:
        """kazoo's own watches are not used."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A host that does not answer must not use up the whole session timeout."""
        timeout_s = kwargs.get("timeout")
        if timeout_s is None or timeout_s > self._connect_timeout_s:
            kwargs["timeout"] = self._connect_timeout_s
        return super().create_connection(*args, **kwargs)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection loop with our own requests, and pings that the loop must have earned."""

    def __init__(self, client: "_Session", **kwargs: Any) -> None:
        super().__init__(client, client._conn_retry.copy(), **kwargs)
        self.silence_limit_s = client._session_timeout / 3000.0
        self.negotiated_timeout_ms = 0
        self.last_beat_s = time.monotonic()
        self.ping_missed = False
        self.drop_requested = False
        self._input = bytearray()
        self._xid: int

    def zk_loop(self) -> None:
        reason = "its thread ended"
        try:
            super().zk_loop()
        except Exception as error:
            self.logger.exception("the ZooKeeper connection failed in an unforeseen way")
            reason = f"{type(error).__name__}: {error}"
        for sock in (self._read_sock, self._write_sock):
            sock.close()
        self.client.over(reason)
        self.client.post([_Ended()])

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except ForceRetryError:
            if self.client._stopped.is_set():
                return STOP_CONNECTING
            raise

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        # A reconnect would keep the session of a frozen loop alive.
        while self._loop_is_silent() and not self.client._stopped.is_set():
            self.handler.sleep_func(_LOOP_WAIT_S)
        self._input.clear()
        self.drop_requested = False
        self.ping_missed = False
        return super()._connect_attempt(host, hostip, port, retry)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        # kazoo reads for 2/3 of the negotiated timeout and pings at half of that.
        self.silence_limit_s = read_timeout_ms / 2000.0
        return read_timeout_ms, connect_timeout_ms

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        result = super()._invoke(timeout, request, xid)
        if xid is None and isinstance(result, tuple):
            self.negotiated_timeout_ms = result[0].time_out
        return result

    def _loop_is_silent(self) -> bool:
        return bool(time.monotonic() - self.last_beat_s > self.silence_limit_s)

    def _send_ping(self, connect_timeout: float) -> None:
        if self._loop_is_silent():
            self.ping_missed = True
            return
        super()._send_ping(connect_timeout)

    def _read(self, length: int, timeout: float) -> Any:
        self._check_length(length)
        return super()._read(length, timeout)

    def _check_length(self, length: int) -> None:
        if not 0 <= length <= MAX_FRAME_BYTES:
            raise ConnectionDropped(
                f"the server announced an answer of {length} bytes, limit {MAX_FRAME_BYTES}"
            )

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """The loop has woken us: send what is queued, or do what its flags ask for."""
        client = self.client
        self._read_sock.recv(4096)
        if self.drop_requested:
            raise ConnectionDropped("an answer was overdue")
        if self.ping_missed and not self._loop_is_silent():
            self.ping_missed = False
            super()._send_ping(connect_timeout)
        while client._queue:
            request, call = client._queue.popleft()
            if call is not None and call.connection != client.number:
                call.set_exception(ConnectionDropped("made for an earlier connection"))
                continue
            xid = self._xid = (self._xid % 2147483647) + 1
            client._pending.append((request, call, xid))
            self._submit(request, connect_timeout, xid)

    def _read_socket(self, read_timeout: float) -> Any:
        """Take what has arrived; all whole answers cross to the loop together."""
        with self._socket_error_handling():
            self._receive()
        items: list[_Item] = []
        position = 0
        result = None
        data = self._input
        try:
            while len(data) - position >= 4:
                length = int.from_bytes(data[position : position + 4], "big", signed=True)
                self._check_length(length)
                end = position + 4 + length
                if end > len(data):
                    break
                frame = bytes(data[position + 4 : end])
                position = end
                result = self._read_frame(frame, items)
        except (struct.error, ValueError) as error:
            raise ConnectionDropped(f"unreadable frame: {error}") from error
        finally:
            del data[:position]
            if items:
                self.client.post(items)
        return result

    def _receive(self) -> None:
        sock = self._socket
        while True:
            try:
                chunk = sock.recv(_RECV_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    return
                raise
            if not chunk:
                raise ConnectionDropped("the server closed the connection")
            self._input += chunk
            if not (hasattr(sock, "pending") and sock.pending()):
                return

    def _read_frame(self, frame: bytes, items: list[_Item]) -> Any:
        if len(frame) < 16:
            raise ConnectionDropped(f"an answer of {len(frame)} bytes has no header")
        header, position = ReplyHeader.deserialize(frame, 0)
        if header.xid == -2:
            self.ping_outstanding.clear()
            return None
        if header.xid == -1:
            event, _ = WatchRecord.deserialize(frame, position)
            items.append(_Event(event.type, event.path))
            return None
        client = self.client
        if not client._pending:
            raise ConnectionDropped(f"an answer to no request (number {header.xid})")
        request, call, xid = client._pending.popleft()
        if header.xid != xid:
            client._pending.appendleft((request, call, xid))
            raise ConnectionDropped(f"answer {header.xid} to request {xid}")
        if header.zxid > 0:
            client.last_zxid = header.zxid
        if request is CloseInstance:
            return CloseInstance.type
        items.append(_Answer(call, _value(request, header.err, frame, position), header.zxid))
        return None


def _value(request: wire.WireRequest, code: int, frame: bytes, position: int) -> Any:
    """The answer's value, or the ZkError that it is."""
    if code:
        return error_for(code, request.path)
    try:
        return request.decode(frame, position)
    except (ValueError, struct.error) as error:
        return MarshallingError(request.path, f"unreadable answer: {error}")


class _Session(KazooClient):  # type: ignore[misc]
    """One kazoo client for one session."""

    def __init__(
        self,
        hosts: str,
        options: ZkOptions,
        post: Callable[["_Session", list[_Item]], None],
        logger: logging.Logger,
    ) -> None:
        self._post_items = post
        self.number = 0
        """Counts connections within the session; written on kazoo's thread."""
        self._is_over = False
        timeout_s = options.session_timeout_ms / 1000
        handler = _Handler(timeout_s / max(1, len(hosts.split(","))))
        tls = options.tls
        super().__init__(
            hosts=hosts,
            timeout=timeout_s,
            handler=handler,
            auth_data=set(options.auth),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=0.05,
                backoff=2,
                max_delay=RECONNECT_S,
                sleep_func=handler.sleep_func,
            ),
            logger=logger,
            use_ssl=tls is not None,
            ca=tls.ca_file if tls else None,
            certfile=tls.cert_file if tls else None,
            keyfile=tls.key_file if tls else None,
            keyfile_password=tls.key_password if tls else None,
            verify_certs=tls.verify_certs if tls else True,
            check_hostname=tls.check_hostname if tls else False,
        )
        sasl = dict(options.sasl) if options.sasl else None
        self._connection = _Connection(self, logger=logger, sasl_options=sasl)

    def post(self, items: list[_Item]) -> None:
        self._post_items(self, items)

    def over(self, reason: str, *, auth_failed: bool = False) -> None:
        """Tell the loop, once, that this session is gone."""
        if not self._is_over:
            self._is_over = True
            self.post([_Over(reason, auth_failed)])

    def _session_callback(self, state: Any) -> None:
        """On kazoo's thread: tell the loop of a loss before kazoo fails what was under way."""
        was = self._state
        if state == was:
            return
        connected = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)
        if state in (KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED):
            # This client has had its session; `_stopped` keeps kazoo from opening another.
            self._stopped.set()
            refused = state == KeeperState.AUTH_FAILED
            self.over("authentication failed" if refused else "expired", auth_failed=refused)
        elif state == KeeperState.CONNECTING and was in connected:
            self.post([_Lost()])
        elif state in connected:
            self.number += 1
        super()._session_callback(state)
        if state in connected:
            self.post(
                [
                    _Connected(
                        self.number,
                        self._session_id or 0,
                        self._session_passwd,
                        self._connection.negotiated_timeout_ms,
                        self.last_zxid,
                    )
                ]
            )

    # Called on the loop; none of these blocks.

    def open(self) -> None:
        self.beat()
        self.start_async()
        self._connection._write_sock.setblocking(False)

    def beat(self) -> None:
        """The loop is alive."""
        connection = self._connection
        connection.last_beat_s = time.monotonic()
        if connection.ping_missed:
            self._wake()

    def submit(self, call: _Call) -> None:
        call.session = self
        self._queue.append((call.request, call))
        self._wake()

    def drop_connection(self) -> None:
        self._connection.drop_requested = True
        self._wake()

    def begin_close(self) -> None:
        """Say goodbye after what is queued; `_Ended` follows."""
        self._stopped.set()
        self._queue.append((CloseInstance, None))
        self._wake()

    def _wake(self) -> None:
        sock = self._connection._write_sock
        if sock is None:
            return
        try:
            sock.send(b"\0")
        except OSError:
            # Full: the thread has plenty to wake it.  Closed: it has ended and told us.
            return


# --- the loop ------------------------------------------------------------------------------------

_DATA: Final = 0
_ABSENT: Final = 1
_CHILDREN: Final = 2

_Batch = tuple[list[str], list[str], list[str]]
"""Paths by kind of watch."""

_FIRES: Final = {
    EventType.CREATED: (_DATA, _ABSENT),
    EventType.DATA_CHANGED: (_DATA, _ABSENT),
    EventType.DELETED: (_DATA, _ABSENT, _CHILDREN),
    EventType.CHILDREN_CHANGED: (_CHILDREN,),
}


class _Watches:
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


class KazooZkClient:
    """A `ZkClient` on a real ensemble.

    Made and used on the loop.  `call_from_thread` is how kazoo's thread reaches it.
    """

    def __init__(
        self,
        options: ZkOptions,
        *,
        clock: Clock,
        call_from_thread: CallFromThread,
        logger: logging.Logger,
    ) -> None:
        self._options = options
        self._hosts, self._chroot = split_connect(options.connect)
        self._clock = clock
        self._call_from_thread = call_from_thread
        self._logger = logger
        self._state = SessionState.CLOSED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._session: _Session | None = None
        self._session_id = 0
        self._password = b""
        self._connection = 0
        self._link_up = False
        self._chroot_ready = not self._chroot
        self._queue: deque[_Call] = deque()
        self._in_flight: dict[_Call, None] = {}
        self._watches = _Watches()
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
        if self._session is not None or self._session_id:
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
        if self._session is None and "reopen" not in self._timers:
            self._open_session()
        return waiting

    def close(self) -> "Deferred[None]":
        if self._state is SessionState.CLOSED and self._session is None:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closing.append(closed)
        if len(self._closing) > 1:
            return closed
        self._cancel_timer("connect")
        self._cancel_timer("reopen")
        if self._session is None:
            self._finish_close()
        else:
            self._pump()
            self._session.begin_close()
            self._start_timer("close", CLOSE_LIMIT_S, self._close_overdue)
        return closed

    def _open_session(self) -> None:
        self._cancel_timer("reopen")
        self._session = session = _Session(
            self._hosts, self._options, self._from_thread, self._logger
        )
        session.open()
        self._beat()

    def _connect_failed(self, error: ZkError | None) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        self._cancel_timer("connect")
        session, self._session = self._session, None
        if session is not None:
            session.begin_close()
        self._link_up = False
        self._cancel_timer("beat")
        if error is not None:
            opening.errback(error)
        self._set_state(SessionState.CLOSED)
        self._fail_all(SessionExpired)

    def _close_overdue(self) -> None:
        self._logger.warning("ZooKeeper did not confirm the end of the session in time")
        if self._session is not None:
            self._session.drop_connection()
        self._finish_close()

    def _finish_close(self) -> None:
        self._session = None
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
        session = self._session
        if session is None:
            return
        session.beat()
        oldest = next(iter(self._in_flight), None)
        if oldest is not None:
            waited_s = self._clock.monotonic() - oldest.sent_s
            if waited_s > self._request_timeout_s:
                self._logger.warning(
                    "no answer from ZooKeeper, dropping the connection path=%s waited_s=%.1f",
                    oldest.request.path,
                    waited_s,
                )
                session.drop_connection()
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

    # What comes from kazoo's thread.

    def _from_thread(self, session: _Session, items: list[_Item]) -> None:
        """On kazoo's thread (or the loop, for a request refused at once)."""
        self._call_from_thread(self._take, session, items)

    def _take(self, session: _Session, items: list[_Item]) -> None:
        for item in items:
            if isinstance(item, _Answer):
                self._answered(item)
            elif session is not self._session:
                continue  # a session given up long ago
            elif isinstance(item, _Event):
                self._fire(item)
            elif isinstance(item, _Connected):
                self._connected(session, item)
            elif isinstance(item, _Lost):
                self._lost()
            elif isinstance(item, _Over):
                self._over(session, item)
            elif self._closing:
                self._finish_close()
        self._pump()

    def _answered(self, answer: _Answer) -> None:
        call = answer.call
        if call not in self._in_flight:
            return  # failed already, with its connection or session
        del self._in_flight[call]
        value = answer.value
        if call.then is not None:
            value = call.then(answer)
        self._settle(call, value)

    def _settle(self, call: _Call, value: Any) -> None:
        if call.deferred.called:
            return
        if isinstance(value, ZkError):
            call.deferred.errback(value)
        else:
            call.deferred.callback(value)

    def _fire(self, item: _Event) -> None:
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

    def _connected(self, session: _Session, item: _Connected) -> None:
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
        batch: _Batch = ([], [], [])
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

    def _send_rearm(self, zxid: int, batch: _Batch) -> None:
        call = _Call(wire.set_watches(self._chroot, zxid, *batch))
        call.deferred.addErrback(self._rearm_failed, batch)
        self._send(call)

    def _rearm_failed(self, failure: Any, batch: _Batch) -> None:
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

    def _over(self, session: _Session, item: _Over) -> None:
        if self._closing:
            return  # the end we asked for; `_Ended` follows
        self._link_up = False
        self._session = None
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
        then: Callable[[_Answer], Any] | None = None,
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
        call = _Call(request, then)
        self._queue.append(call)
        self._pump()
        return call.deferred

    def _pump(self) -> None:
        queue = self._queue
        while queue and self._link_up and len(self._in_flight) < self._options.max_in_flight:
            call = queue.popleft()
            if not call.deferred.called:  # cancelled while it waited
                self._send(call)

    def _send(self, call: _Call) -> None:
        session = self._session
        assert session is not None and self._link_up
        call.connection = self._connection
        call.sent_s = self._clock.monotonic()
        self._in_flight[call] = None
        session.submit(call)

    def get(self, path: str, watch: Watch | None = None) -> "Deferred[tuple[bytes | None, Stat]]":
        request = wire.get_data(self._chroot, path, watch is not None)
        return self._request(request, self._watching(_DATA, path, watch))

    def exists(self, path: str, watch: Watch | None = None) -> "Deferred[Stat | None]":
        def then(answer: _Answer) -> Any:
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
    ) -> Callable[[_Answer], Any] | None:
        if watch is None:
            return None

        def then(answer: _Answer) -> Any:
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
        batch: _Batch = ([], [], [])
        for op, result in zip(chunk, found, strict=True):
            if not isinstance(result, ZkError):
                kind = _DATA if isinstance(op, GetData) else _CHILDREN
                self._watches.add(kind, op.path, watch)
                batch[kind].append(op.path)
        if batch[_DATA] or batch[_CHILDREN]:
            await self._request(wire.set_watches(self._chroot, zxid, *batch))


def _with_zxid(answer: _Answer) -> Any:
    if isinstance(answer.value, ZkError):
        return answer.value
    results, taken_bytes = answer.value
    return results, taken_bytes, answer.zxid
