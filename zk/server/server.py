"""The embedded coordination service: one node that speaks ZooKeeper's protocol.

For development, tests and clusters on one host (production points at an ensemble).  The state is the
`CoordinationTree`; this file gives it sockets, time and a disk:

- answers and watch events leave only when everything they show is on disk (with `fsync`), many
  transactions sharing one sync;
- a session ends when its client was silent for its timeout, measured by a clock that does not jump,
  and not counting time in which this process stood still;
- when the disk fails the service stops at once: an answer it cannot keep is never given.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from kafkalike.runtime.ports import Clock, Disk, Random, StorageError, Threads, Timer

from .connection import ClientConnection
from .export import export_tree, import_tree
from .four_letter import WORDS, Latency, ServerFacts, answer
from .jute import PASSWORD_BYTES
from .model import Txn
from .storage import Storage
from .tree import CoordinationTree

DEFAULT_TICK_MS: Final = 2000
DEFAULT_MAX_BUFFER_BYTES: Final = 4 << 20
_BACKLOG: Final = 100
_HANDSHAKE_MS: Final = 10_000
"""A connection that has no session after this long is closed."""
_SNAPSHOT_LOG_BYTES: Final = 64 << 20
_STOP_PATIENCE_S: Final = 5.0

_log = logging.getLogger(__name__)


class ListenTcp(Protocol):
    """`reactor.listenTCP`."""

    def __call__(
        self, port: int, factory: Factory, backlog: int = 50, interface: str = ""
    ) -> Any: ...


class CoordinationServer:
    """One coordination service.  `await start()`, use `port`, `await stop()`."""

    def __init__(
        self,
        *,
        listen: ListenTcp,
        clock: Clock,
        random: Random,
        threads: Threads,
        disk: Disk | None = None,
        data_dir: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        fsync: bool = True,
        tick_time_ms: int = DEFAULT_TICK_MS,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
        max_buffer_bytes: int = DEFAULT_MAX_BUFFER_BYTES,
        max_client_connections: int = 0,
        snapshot_every: int = 20_000,
        super_digest: str | None = None,
        four_letter_words: frozenset[str] = WORDS,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """`data_dir` None keeps everything in memory; else `disk` is needed.

        Session timeouts default to 2 and 20 ticks at least and at most.  `max_buffer_bytes` is the
        largest request (jute.maxbuffer), `max_client_connections` per client address, 0 for no
        limit.  `super_digest` is `user:base64(sha1(user:password))` of who may do everything.
        `on_failure` hears once why the service stopped by itself; it has let go of its port then.
        """
        if data_dir is not None and disk is None:
            raise ValueError("data_dir needs a disk")
        if tick_time_ms < 1:
            raise ValueError(f"tick_time_ms: {tick_time_ms}, expected 1 or more")
        self.tree = CoordinationTree(super_digest=super_digest)
        self.host = host
        self.port = port
        self.max_buffer_bytes = max_buffer_bytes
        self.packets_received = 0
        self.packets_sent = 0
        self._listen = listen
        self._clock = clock
        self._random = random
        self._threads = threads
        self._super_digest = super_digest
        self._fsync = fsync and data_dir is not None
        self._storage = None
        if disk is not None and data_dir is not None:
            self._storage = Storage(disk, data_dir, fsync=fsync)
        self._tick_time_ms = tick_time_ms
        self._min_timeout_ms = min_session_timeout_ms or 2 * tick_time_ms
        self._max_timeout_ms = max_session_timeout_ms or 20 * tick_time_ms
        if self._min_timeout_ms > self._max_timeout_ms:
            raise ValueError(
                f"min_session_timeout_ms: {self._min_timeout_ms},"
                f" expected at most the maximum, {self._max_timeout_ms}"
            )
        self._max_client_connections = max_client_connections
        self._snapshot_every = snapshot_every
        self._words = four_letter_words
        self._on_failure = on_failure
        self._listening: Any = None
        self._tick_timer: Timer | None = None
        self._next_tick_ms = 0
        self._connections: dict[ClientConnection, None] = {}
        self._by_session: dict[int, ClientConnection] = {}
        self._by_host: dict[str, int] = {}
        self._with_output: dict[ClientConnection, None] = {}
        self._appended = 0
        self._synced = 0
        """Transactions appended to the log, and how many of them are on the device."""
        self._held: deque[tuple[int, ClientConnection, bytes, int]] = deque()
        """(appended count to wait for, connection, output, since when)"""
        self._syncing = False
        self._snapshotting = False
        self._running = False
        self._failed = False
        self._idle: Deferred[None] | None = None
        self._latency = Latency()

    # -- life ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the state and serve.  StorageError for an unusable or damaged directory, OSError
        (CannotListenError) for an address that is taken.
        """
        tree = CoordinationTree(super_digest=self._super_digest)
        if self._storage is not None:
            await self._threads.run(self._storage.recover, tree)
            tree.journal = self._journal
        # Ids of different lives of a server without a disk must not meet.
        tree.next_session_id = max(
            tree.next_session_id, (self._clock.now_ms() & 0xFF_FFFF_FFFF) << 16
        )
        tree.renew_sessions(self.mono_ms())
        self.tree = tree
        try:
            listening = self._listen(self.port, _Factory(self._accept), _BACKLOG, self.host)
        except Exception:
            if self._storage is not None:
                self._storage.close()
            raise
        self._listening = listening
        self.port = listening.getHost().port
        self._running = True
        self._next_tick_ms = self.mono_ms() + self._tick_ms()
        self._tick_timer = self._clock.call_later(self._tick_ms() / 1000, self._tick)
        _log.info(
            "coordination service started address=%s:%d zxid=%#x znodes=%d sessions=%d",
            self.host,
            self.port,
            tree.zxid,
            len(tree.nodes),
            len(tree.sessions),
        )

    async def stop(self) -> None:
        """Close everything.  Sessions stay in the data directory and may be resumed after a start."""
        self._running = False
        await self._let_go()
        if self._syncing or self._snapshotting:
            self._idle = Deferred()
            timer = self._clock.call_later(_STOP_PATIENCE_S, self._become_idle)
            await self._idle
            timer.cancel()
        for connection in list(self._connections):
            connection.abort()
        self._held.clear()
        if self._storage is not None and not self._failed:
            self._storage.close()

    def export_tree(self) -> dict[str, Any]:
        """All persistent znodes as JSON values (docs/coordination.md, "Export")."""
        return export_tree(self.tree)

    async def import_tree(self, dump: Mapping[str, Any]) -> int:
        """Fill an empty service from an export; how many znodes came.  The result is on disk then.

        ValueError when the service holds znodes already or the export is malformed.
        """
        image, count = import_tree(dump, self.tree)
        sessions = self.tree.sessions
        self.tree.load(image)
        self.tree.sessions = sessions
        if self._storage is not None:
            self._snapshotting = True
            try:
                self._storage.roll(self.tree.zxid + 1)
                await self._threads.run(self._storage.write_snapshot, image)
            except StorageError as error:
                self._fail(error)
                raise
            finally:
                self._snapshotting = False
                self._become_idle()
        return count

    # -- what a connection needs --------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def mono_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def new_password(self) -> bytes:
        return self._random.bytes(PASSWORD_BYTES)

    def session_timeout_ms(self, wanted_ms: int) -> int:
        return max(self._min_timeout_ms, min(self._max_timeout_ms, wanted_ms))

    def four_letter_answer(self, word: bytes) -> str | None:
        text = word.decode("latin-1")
        if text not in WORDS:
            return None
        if text not in self._words:
            return f"{text} is not executed because it is not in the whitelist.\n"
        return answer(
            text,
            ServerFacts(
                self.tree,
                list(self._connections),
                self._latency,
                self.packets_received,
                self.packets_sent,
                len(self._held),
                {
                    "clientPort": self.port,
                    "tickTime": self._tick_time_ms,
                    "maxClientCnxns": self._max_client_connections,
                    "minSessionTimeout": self._min_timeout_ms,
                    "maxSessionTimeout": self._max_timeout_ms,
                    "jute.maxbuffer": self.max_buffer_bytes,
                    "fsync": str(self._fsync).lower(),
                },
            ),
        )

    def own_session(self, connection: ClientConnection) -> None:
        assert connection.caller is not None
        session_id = connection.caller.session_id
        before = self._by_session.get(session_id)
        self._by_session[session_id] = connection
        if before is not None:
            if before.caller is not None:
                self.tree.detach(before.caller)
            before.abort()

    def has_output(self, connection: ClientConnection) -> None:
        self._with_output[connection] = None

    def flush(self) -> None:
        if self._failed:
            return
        if self._fsync and self._appended > self._synced:
            since_ms = self.mono_ms()
            for connection in self._with_output:
                data = connection.take_output()
                self._held.append((self._appended, connection, data, since_ms))
            self._with_output.clear()
            self._start_sync()
        else:
            ready, self._with_output = self._with_output, {}
            for connection in ready:
                connection.release(connection.take_output())
        self._consider_snapshot()

    def gone(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        self._with_output.pop(connection, None)
        left = self._by_host.get(connection.host, 1) - 1
        if left:
            self._by_host[connection.host] = left
        else:
            self._by_host.pop(connection.host, None)
        caller = connection.caller
        if caller is not None:
            self.tree.detach(caller)
            if self._by_session.get(caller.session_id) is connection:
                del self._by_session[caller.session_id]

    # -- sessions -----------------------------------------------------------------------------------

    def _accept(self, address: Any) -> ClientConnection | None:
        host: str = address.host
        count = self._by_host.get(host, 0)
        if self._max_client_connections and count >= self._max_client_connections:
            _log.warning(
                "connection refused, too many from one address client=%s limit=%d",
                host,
                self._max_client_connections,
            )
            return None
        self._by_host[host] = count + 1
        connection = ClientConnection(self, host, address.port)
        self._connections[connection] = None
        return connection

    def _tick_ms(self) -> int:
        return max(50, min(1000, self._tick_time_ms // 2))

    def _tick(self) -> None:
        mono_ms = self.mono_ms()
        late_ms = mono_ms - self._next_tick_ms
        self._next_tick_ms = mono_ms + self._tick_ms()
        self._tick_timer = self._clock.call_later(self._tick_ms() / 1000, self._tick)
        if late_ms > self._tick_ms():
            # Signs of life wait unread in the sockets: nobody else was silent but this process.
            _log.warning("stood still, sessions get more time ms=%d", late_ms)
            self.tree.postpone(late_ms)
        self._end_silent_sessions(mono_ms)
        for connection in list(self._connections):
            if connection.caller is None and mono_ms - connection.opened_ms > _HANDSHAKE_MS:
                connection.abort()
        self.flush()

    def _end_silent_sessions(self, mono_ms: int) -> None:
        for session_id in self.tree.expired(mono_ms):
            _log.info("session expired session=%#x", session_id)
            self.tree.close_session(session_id, self.now_ms())
            connection = self._by_session.pop(session_id, None)
            if connection is not None:
                connection.close_when_sent()

    # -- disk ----------------------------------------------------------------------------------------

    def _journal(self, txn: Txn) -> None:
        if self._failed:
            return
        assert self._storage is not None
        try:
            self._storage.append(txn)
        except StorageError as error:
            self._fail(error)
            return
        self._appended += 1

    def _start_sync(self) -> None:
        if self._syncing or self._storage is None or self._appended == self._synced:
            return
        self._syncing = True
        until = self._appended
        self._threads.run(self._storage.syncer()).addCallbacks(
            lambda _: self._sync_done(until), self._sync_failed
        )

    def _sync_done(self, until: int) -> None:
        self._syncing = False
        if self._failed:
            return
        self._synced = until
        now_ms = self.mono_ms()
        while self._held and self._held[0][0] <= until:
            _, connection, data, since_ms = self._held.popleft()
            self._latency.add(now_ms - since_ms)
            connection.release(data)
        self._start_sync()
        self._become_idle()

    def _sync_failed(self, failure: Failure) -> None:
        """What was not synced may be lost even if a later sync succeeds: there is no second try."""
        self._syncing = False
        error = failure.value
        self._fail(error if isinstance(error, Exception) else StorageError(str(error)))
        self._become_idle()

    def _consider_snapshot(self) -> None:
        storage = self._storage
        if storage is None or self._snapshotting or not self._running:
            return
        if storage.log_txns < self._snapshot_every and storage.log_bytes < _SNAPSHOT_LOG_BYTES:
            return
        self._snapshotting = True
        image = self.tree.image()
        try:
            storage.roll(image.zxid + 1)
        except StorageError as error:
            self._fail(error)
            return
        self._threads.run(storage.write_snapshot, image).addBoth(self._snapshot_done)

    def _snapshot_done(self, result: object) -> None:
        self._snapshotting = False
        if isinstance(result, Failure):
            # Nothing is lost: the older snapshot and the logs since then are still there.
            _log.error("snapshot could not be written error=%s", result.value)
        self._become_idle()

    def _become_idle(self) -> None:
        if self._idle is not None and not self._idle.called:
            self._idle.callback(None)

    def _fail(self, error: Exception) -> None:
        """The disk cannot be trusted: stop without another answer."""
        if self._failed:
            return
        self._failed = True
        self._running = False
        _log.error("coordination service stops, its disk failed error=%s", error)
        self._held.clear()
        self._with_output.clear()
        for connection in list(self._connections):
            connection.abort()
        if self._storage is not None:
            self._storage.close()
        self._let_go().addBoth(self._report, error)

    def _report(self, _: object, error: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(error)

    def _let_go(self) -> "Deferred[None]":
        """Stop the clock and the listening socket."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        listening, self._listening = self._listening, None

        def stop_listening() -> Any:
            return None if listening is None else listening.stopListening()

        return maybeDeferred(stop_listening)


class _Factory(Factory):
    """Makes a connection per client."""

    noisy = False

    def __init__(self, accept: Callable[[Any], ClientConnection | None]) -> None:
        self._accept = accept

    def buildProtocol(self, addr: Any) -> ClientConnection | None:
        return self._accept(addr)
