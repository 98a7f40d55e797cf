"""The ZooKeeper port over kazoo.  The only file that imports kazoo, and where its threads end.

kazoo finds a server, opens the session (TLS, SASL), pings, and reconnects; one thread of its does
that per session.  Requests and answers are our own (`wire.py`), sent and read on that thread.  What
it learns crosses to the loop through `call_from_thread`, in the order in which it happened.  The rest
of the client is `session_client.py`.

What differs from plain kazoo, and why:

- One kazoo client is one session.  It ends when its session has expired, so kazoo cannot begin a new
  one by itself.
- The session lives only as long as the loop does.  While the loop's last sign of life is older than
  a third of the session timeout, no ping is sent and no connection opened.  A loop blocked for less
  than the session timeout keeps its session; one blocked for more than 4/3 of it has lost it, as a
  stopped process would.
- kazoo forgets watches when the connection breaks and calls them on a thread of its own, after
  answers that already show the change; ours never reach kazoo.
"""

import logging
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, ReplyHeader
from kazoo.protocol.serialization import Watch as WatchRecord
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError, KazooRetry

from kafkalike.runtime.ports import Clock

from . import wire
from .client import AuthFailed, ConnectionLost, MarshallingError, SessionExpired, ZkError, error_for
from .link import (
    Answer,
    Call,
    Connected,
    Ended,
    Event,
    Item,
    Lost,
    Over,
    ZkOptions,
    ZkTls,
    split_connect,
)
from .session_client import RECONNECT_S, SessionClient

__all__ = ["KazooZkClient", "ZkOptions", "ZkTls", "split_connect"]

CallFromThread = Callable[..., None]
"""Run `function(*args)` soon on the loop; called on kazoo's thread, keeps the order of calls."""

MAX_FRAME_BYTES: Final = 64 << 20
"""An answer above this closes the connection."""

_RECV_BYTES: Final = 256 << 10
_LOOP_WAIT_S: Final = 0.05


class KazooZkClient(SessionClient):
    """A `ZkClient` on a real ensemble; made and used on the loop."""

    def __init__(
        self,
        options: ZkOptions,
        *,
        clock: Clock,
        call_from_thread: CallFromThread,
        logger: logging.Logger,
    ) -> None:
        def new_link(hosts: str, take: Callable[["_Session", list[Item]], None]) -> _Session:
            def post(session: _Session, items: list[Item]) -> None:
                call_from_thread(take, session, items)

            return _Session(hosts, options, post, logger)

        super().__init__(options, clock=clock, new_link=new_link, logger=logger)


class _Outcome:
    """What kazoo tells the outcome of a call to when it gives the call up itself."""

    __slots__ = ("call", "session")

    def __init__(self, call: Call, session: "_Session") -> None:
        self.call = call
        self.session = session

    def set_exception(self, error: BaseException) -> None:
        path = self.call.request.path
        if isinstance(error, SessionExpiredError):
            outcome: ZkError = SessionExpired(path)
        elif isinstance(error, AuthFailedError):
            outcome = AuthFailed(path)
        else:
            outcome = ConnectionLost(path)
        self.session.post([Answer(self.call, outcome, 0)])


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's thread factory without its two worker threads: nothing is dispatched through them."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self.connect_timeout_s = connect_timeout_s

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: object) -> None:
        """kazoo's own watches are not used."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A host that does not answer must not use up the whole session timeout."""
        timeout_s = kwargs.get("timeout")
        if timeout_s is None or timeout_s > self.connect_timeout_s:
            kwargs["timeout"] = self.connect_timeout_s
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
        self.client.post([Ended()])

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
        # Only now, not when the session is open: whoever is told may rely on being authenticated.
        self.client.announce()
        return read_timeout_ms, connect_timeout_ms

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        # A starting server can swallow a handshake: leave time for another within the session.
        limit_s = self.handler.connect_timeout_s
        result = super()._invoke(min(timeout, limit_s), request, xid)
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
            request, outcome = client._queue.popleft()
            if outcome is not None and outcome.call.connection != client.number:
                outcome.set_exception(ConnectionDropped("made for an earlier connection"))
                continue
            xid = self._xid = (self._xid % 2147483647) + 1
            client._pending.append((request, outcome, xid))
            self._submit(request, connect_timeout, xid)

    def _read_socket(self, read_timeout: float) -> Any:
        """Take what has arrived; all whole answers cross to the loop together."""
        with self._socket_error_handling():
            self._receive()
        items: list[Item] = []
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

    def _read_frame(self, frame: bytes, items: list[Item]) -> Any:
        if len(frame) < 16:
            raise ConnectionDropped(f"an answer of {len(frame)} bytes has no header")
        header, position = ReplyHeader.deserialize(frame, 0)
        if header.xid == -2:
            self.ping_outstanding.clear()
            return None
        if header.xid == -1:
            event, _ = WatchRecord.deserialize(frame, position)
            items.append(Event(event.type, event.path))
            return None
        client = self.client
        if not client._pending:
            raise ConnectionDropped(f"an answer to no request (number {header.xid})")
        request, outcome, xid = client._pending.popleft()
        if header.xid != xid:
            client._pending.appendleft((request, outcome, xid))
            raise ConnectionDropped(f"answer {header.xid} to request {xid}")
        if header.zxid > 0:
            client.last_zxid = header.zxid
        if request is CloseInstance:
            return CloseInstance.type
        items.append(
            Answer(outcome.call, _value(request, header.err, frame, position), header.zxid)
        )
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
        post: Callable[["_Session", list[Item]], None],
        logger: logging.Logger,
    ) -> None:
        self._post_items = post
        self.number = 0
        """Counts connections within the session; written on kazoo's thread."""
        self._is_over = False
        timeout_s = options.session_timeout_ms / 1000
        handler = _Handler(max(1.0, timeout_s / max(3, len(hosts.split(",")))))
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

    def post(self, items: list[Item]) -> None:
        self._post_items(self, items)

    def over(self, reason: str, *, auth_failed: bool = False) -> None:
        """Tell the loop, once, that this session is gone."""
        if not self._is_over:
            self._is_over = True
            self.post([Over(reason, auth_failed)])

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
            self.post([Lost()])
        elif state in connected:
            self.number += 1
        super()._session_callback(state)

    def announce(self) -> None:
        """Tell the loop that this connection can be used."""
        timeout_ms = self._connection.negotiated_timeout_ms
        self.post(
            [
                Connected(
                    self.number,
                    self._session_id or 0,
                    self._session_passwd,
                    timeout_ms,
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

    def submit(self, call: Call) -> None:
        self._queue.append((call.request, _Outcome(call, self)))
        self._wake()

    def drop_connection(self) -> None:
        self._connection.drop_requested = True
        self._wake()

    def begin_close(self) -> None:
        """Say goodbye after what is queued; `Ended` follows."""
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
