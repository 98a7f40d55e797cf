"""Follows sequential notifications: config, ACL and token changes (reference: zookeeper 3).

Every broker reads all of them, in order, each at least once: at start-up from the oldest there is,
after each new child, and after each new session.  Notifications are triggers only; processing one
twice must do no harm.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from twisted.internet.defer import CancelledError, Deferred

from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import Tasks, sleep

from . import paths
from .client import NoNode, SessionExpired, ZkClient, ensure_path, retrying
from .watches import WatchSet

CHANGE_EXPIRATION_MS: Final = 15 * 60 * 1000
"""A notification older than this (by ZooKeeper's clock) is deleted by whoever notices."""

RETRY_S: Final = 1.0


class NotificationListener:
    """Calls `process(data, path)` for each notification below `parent`, in order of sequence number.

    `process` may be a coroutine function; an error in it is logged and the notification counts as
    processed.  One round runs at a time; a trigger during a round starts one more.
    """

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        parent: str,
        prefix: str,
        process: Callable[[bytes | None, str], Awaitable[None]],
        logger: logging.Logger,
    ) -> None:
        self._zk = zk
        self._clock = clock
        self._parent = parent
        self._prefix = prefix
        self._process = process
        self._logger = logger
        self._tasks = Tasks(logger)
        self._watches = WatchSet(zk, logger)
        self._last_executed = -1
        self._running = False
        self._again = False
        self._started: Deferred[None] | None = None

    async def start(self) -> None:
        """Begin; returns when everything that was there has been processed.

        Errors of ZooKeeper are waited out.  Raises CancelledError when `stop` comes first.
        """
        while True:
            try:
                await ensure_path(self._zk, self._parent)
            except SessionExpired:
                await sleep(self._clock, RETRY_S)
                continue
            break
        self._watches.on_children(self._parent, self._trigger)
        started: Deferred[None] = Deferred()
        self._started = started
        self._trigger()
        await started

    async def stop(self) -> None:
        """End; a round under way is cancelled."""
        self._watches.close()
        await self._tasks.stop()
        if self._started is not None and not self._started.called:
            self._started.errback(CancelledError())

    def _trigger(self) -> None:
        self._again = True
        if not self._running:
            self._running = True
            self._tasks.spawn(self._rounds(), f"notifications of {self._parent}")

    async def _rounds(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    await self._round()
                except SessionExpired:
                    # All watches died; the watch set triggers (or has triggered) a new round.
                    continue
                except CancelledError:
                    raise
                except Exception:
                    self._logger.exception("cannot read notifications parent=%s", self._parent)
                    self._again = True
                    await sleep(self._clock, RETRY_S)
                    continue
                if self._started is not None and not self._started.called:
                    self._started.callback(None)
        finally:
            self._running = False

    async def _round(self) -> None:
        zk = self._zk
        watch = self._watches.arm(self._parent)
        names, _ = await retrying(zk, lambda: zk.get_children(self._parent, watch))
        changes = sorted(self._numbered(names))
        for number, name in changes:
            if number > self._last_executed:
                await self._execute(f"{self._parent}/{name}")
                self._last_executed = number
        await self._purge([name for _, name in changes])

    def _numbered(self, names: list[str]) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for name in names:
            try:
                found.append((paths.sequence_number(name, self._prefix), name))
            except ValueError as error:
                self._logger.warning("foreign node below %s: %s", self._parent, error)
        return found

    async def _execute(self, path: str) -> None:
        try:
            data, _ = await retrying(self._zk, lambda: self._zk.get(path))
        except NoNode:
            return
        try:
            await self._process(data, path)
        except CancelledError:
            raise
        except Exception:
            self._logger.exception("cannot process notification path=%s", path)

    async def _purge(self, names: list[str]) -> None:
        """Delete what is older than 15 minutes; the oldest come first, so stop at a young one."""
        now_ms = self._clock.now_ms()
        for name in names:
            path = f"{self._parent}/{name}"
            stat = await retrying(self._zk, partial(self._zk.exists, path))
            if stat is None:
                continue
            if now_ms - stat.ctime_ms <= CHANGE_EXPIRATION_MS:
                return
            try:
                await retrying(self._zk, partial(self._zk.delete, path))
            except NoNode:
                continue
