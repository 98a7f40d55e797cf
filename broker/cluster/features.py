"""Finalized features of the cluster: the `/feature` znode (reference: zookeeper 2.5).

A broker on ZooKeeper supports no feature, so the node only gives its data version to ApiVersions; a
finalized feature means that this broker must not take part.
"""

import logging
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred

from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import Tasks, sleep
from kafkalike.zk import paths
from kafkalike.zk.client import NoNode, SessionExpired, ZkClient, retrying
from kafkalike.zk.payload import CorruptZnode
from kafkalike.zk.watches import WatchSet
from kafkalike.zk.znodes import FeatureInfo

NO_EPOCH: Final = -1
RETRY_S: Final = 1.0


class Features:
    """Follows `/feature`; `on_unsupported(text)` is told when the cluster demands what is not here."""

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        tasks: Tasks,
        logger: logging.Logger,
        on_unsupported: Callable[[str], object],
    ) -> None:
        self._zk = zk
        self._clock = clock
        self._tasks = tasks
        self._logger = logger
        self._on_unsupported = on_unsupported
        self._watches = WatchSet(zk, logger)
        self._reading = False
        self._again = False
        self.epoch = NO_EPOCH
        """Data version of the node, -1 when it is absent or says nothing."""
        self._waiting: list[tuple[int, Deferred[None]]] = []

    async def wait_for(self, version: int) -> None:
        """Return once `epoch` has reached `version`; whoever cannot wait for ever cancels."""
        while self.epoch < version:
            seen: Deferred[None] = Deferred()
            self._waiting.append((version, seen))
            try:
                await seen
            finally:
                self._waiting = [item for item in self._waiting if item[1] is not seen]

    def start(self) -> None:
        self._watches.on_change(paths.FEATURE, self._changed)
        self._changed()

    def stop(self) -> None:
        self._watches.close()

    def _changed(self) -> None:
        self._again = True
        if not self._reading:
            self._reading = True
            self._tasks.spawn(self._read_all(), "features")

    async def _read_all(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    await self._read()
                except SessionExpired:
                    return  # the watch set calls again in the new session
                except CancelledError:
                    raise  # the broker stops: nothing went wrong
                except Exception:
                    self._logger.exception("cannot read %s", paths.FEATURE)
                    self._again = True
                    await sleep(self._clock, RETRY_S)
        finally:
            self._reading = False

    async def _read(self) -> None:
        watch = self._watches.arm(paths.FEATURE)
        stat = await retrying(self._zk, lambda: self._zk.exists(paths.FEATURE, watch))
        if stat is None:
            self._set(NO_EPOCH)
            return
        try:
            data, found = await retrying(self._zk, lambda: self._zk.get(paths.FEATURE))
            info = FeatureInfo.decode(data, paths.FEATURE)
        except NoNode:
            self._set(NO_EPOCH)
            return
        except CorruptZnode as error:
            self._logger.error("features cannot be read: %s", error)
            self._set(NO_EPOCH)
            return
        if not info.enabled:
            self._set(NO_EPOCH)
            return
        if info.features:
            names = ", ".join(sorted(info.features))
            self._on_unsupported(f"the cluster has finalized features that are not served: {names}")
            return
        self._set(found.version)

    def _set(self, epoch: int) -> None:
        self.epoch = epoch
        for version, seen in self._waiting:
            if version <= epoch and not seen.called:
                seen.callback(None)
