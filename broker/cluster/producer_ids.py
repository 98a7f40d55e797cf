"""Producer ids for this broker's clients, taken in blocks from the controller (reference:
inter-broker 8).

The next block is asked for when 90 % of the current one are used; ids are never given back.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.errors import NONE, CoordinatorLoadInProgress, error_name
from kafkalike.messages.transactions import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalike.net.client import PeerError
from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import Tasks, TimedOut, sleep, timeout

PREFETCH_AT: Final = 0.9
RETRY_PAUSE_S: Final = 0.05
PATIENCE_S: Final = 0.5
"""How long `next` waits for a block; a client that hears no earlier waits longer before its retry."""


class ProducerIds:
    """Hands out producer ids.

    `send(request, timeout_s=...)` reaches the controller; `broker_epoch()` is this broker's current
    epoch.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: "Callable[..., Awaitable[Any]]",
        clock: Clock,
        tasks: Tasks,
        logger: logging.Logger,
        *,
        request_timeout_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._clock = clock
        self._tasks = tasks
        self._logger = logger
        self._request_timeout_s = request_timeout_s
        self._block = range(0)
        self._next_id = 0
        self._following: range | None = None
        self._asking = False
        self._waiting: list[Deferred[None]] = []

    def generate(self) -> int:
        """A producer id that nobody had before.

        Raises CoordinatorLoadInProgress while a block is on its way: the client tries again.
        """
        if self._next_id >= self._block.stop:
            if self._following is None:
                self._ask()
                raise CoordinatorLoadInProgress("A block of producer ids is on its way")
            self._block, self._following = self._following, None
            self._next_id = self._block.start
        producer_id = self._next_id
        self._next_id += 1
        if self._next_id - self._block.start >= PREFETCH_AT * len(self._block):
            self._ask()
        return producer_id

    async def next(self) -> int:
        """As `generate`, but waits a moment for a block that is on its way."""
        try:
            return self.generate()
        except CoordinatorLoadInProgress:
            arrived: Deferred[None] = Deferred()
            self._waiting.append(arrived)
            with contextlib.suppress(TimedOut):
                await timeout(self._clock, arrived, PATIENCE_S, "a block of producer ids")
        return self.generate()

    def _ask(self) -> None:
        if self._asking or self._following is not None:
            return
        self._asking = True
        self._tasks.spawn(self._fetch(), "producer id block")

    async def _fetch(self) -> None:
        try:
            while self._following is None:
                if not await self._try_fetch():
                    await sleep(self._clock, RETRY_PAUSE_S)
        finally:
            self._asking = False

    async def _try_fetch(self) -> bool:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            response: AllocateProducerIdsResponse = await self._send(
                request, timeout_s=self._request_timeout_s
            )
        except PeerError as error:
            self._logger.warning("no block of producer ids: %s", error)
            return False
        if response.error_code != NONE:
            name = error_name(response.error_code)
            self._logger.warning("no block of producer ids: controller answered %s", name)
            return False
        start, length = response.producer_id_start, response.producer_id_len
        if start < 0 or length <= 0:
            self._logger.error(
                "controller gave an impossible block of producer ids start=%d length=%d",
                start,
                length,
            )
            return False
        self._following = range(start, start + length)
        waiting, self._waiting = self._waiting, []
        for arrived in waiting:
            if not arrived.called:  # else nobody waits any more
                arrived.callback(None)
        return True
