"""Requests of this broker to whichever broker is controller (reference: inter-broker 6).

The controller is the sender of the last UpdateMetadata.  A request is sent again, after a short pause
and to whoever is controller then, when nobody is controller, the connection breaks, or the answer
says NOT_CONTROLLER at any level; every other answer belongs to the caller.
"""

import logging
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.errors import NotController
from kafkalike.messages.control import AlterPartitionRequest, AlterPartitionResponse
from kafkalike.net.client import PeerDisconnected, PeerError, PeerTimeout
from kafkalike.net.peers import Peers
from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import as_deferred, sleep
from kafkalike.types import ZERO_UUID

from .metadata_cache import NO_CONTROLLER, MetadataCache

LOOK_UP_PAUSE_S: Final = 0.1
LAST_WITH_TOPIC_NAMES: Final = 1
"""Version of AlterPartition."""


class ControllerChannel:
    """Finds the controller and talks to it; `peers` reach brokers on the control-plane listener.

    Bound: callers have one request of a kind in flight (ISR changes, producer ids), and a request
    with a timeout ends with it.
    """

    def __init__(
        self,
        peers: Peers,
        metadata: MetadataCache,
        clock: Clock,
        logger: logging.Logger,
        *,
        request_timeout_s: float,
    ) -> None:
        self._peers = peers
        self._metadata = metadata
        self._clock = clock
        self._logger = logger
        self._request_timeout_s = request_timeout_s
        self._pending: set[Deferred[Any]] = set()
        self._closed = False

    def send(self, request: Any, *, timeout_s: float | None = None) -> "Deferred[Any]":
        """The controller's answer.

        Without `timeout_s` it is tried until `stop`.  Fails with PeerTimeout when the time is over,
        PeerDisconnected after `stop`, or another PeerError that trying again would not change.
        """
        work: Deferred[Any] = as_deferred(self._send(request, timeout_s))
        if not work.called:
            self._pending.add(work)
            work.addBoth(self._forget, work)
        return work

    def stop(self) -> None:
        """Fail what is under way; later requests fail at once."""
        self._closed = True
        for work in list(self._pending):
            work.cancel()

    def _forget(self, result: Any, work: "Deferred[Any]") -> Any:
        self._pending.discard(work)
        return result

    async def _send(self, request: Any, timeout_s: float | None) -> Any:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not self._closed:
            limit = self._request_timeout_s
            if deadline is not None:
                limit = min(limit, deadline - self._clock.monotonic())
                if limit <= 0:
                    raise PeerTimeout(f"no controller answered within {timeout_s:g} s")
            controller = self._metadata.controller_id
            if controller != NO_CONTROLLER:
                try:
                    response = await self._peers.send(
                        controller, request, version=version_of(request), timeout_s=limit
                    )
                except (PeerDisconnected, PeerTimeout) as error:
                    self._logger.info("controller %s did not answer: %s", controller, error)
                else:
                    if not says_not_controller(response):
                        return response
                    self._peers.disconnect(controller, "it is not the controller")
            await sleep(self._clock, LOOK_UP_PAUSE_S)
        raise PeerDisconnected("this broker stops")


def version_of(request: Any) -> int | None:
    """The version it must have, or None: the newest that both sides know.

    A topic that has no id, as an older controller left it, can only be told by its name.
    """
    if isinstance(request, AlterPartitionRequest) and any(
        topic.topic_id == ZERO_UUID for topic in request.topics
    ):
        return LAST_WITH_TOPIC_NAMES
    return None


def says_not_controller(response: Any) -> bool:
    """Whether NOT_CONTROLLER stands anywhere in an answer of the controller."""
    if getattr(response, "error_code", 0) == NotController.code:
        return True
    return isinstance(response, AlterPartitionResponse) and any(
        partition.error_code == NotController.code
        for topic in response.topics
        for partition in topic.partitions
    )


__all__ = ["ControllerChannel", "PeerError", "says_not_controller"]
