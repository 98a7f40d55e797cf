"""Control requests on their way: one ordered queue per broker (reference: controller 16).

One request is in flight per broker; after a lost connection or a missing answer it is sent again
every 100 ms until it is answered or the broker's registration is gone.  So brokers see requests in
the order in which they were queued, each at least once.  A broker that refuses connections is not
dead: it may still be starting (zookeeper 8).
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.metrics import Histogram
from kafkalike.net.client import PeerError
from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import Tasks, sleep
from kafkalike.types import Endpoint

from .gauges import ControllerGauges
from .requests import ControlRequest

RETRY_DELAY_S: Final = 0.1
QUEUE_LIMIT: Final = 20_000
"""Requests that may wait for one broker.  It is reached only while a registered broker answers
nothing for long; the controller then leaves office, and its successor starts with fresh queues."""


class BrokerConnection(Protocol):
    """The part of `net.client.BrokerClient` that a channel uses."""

    @property
    def connected(self) -> bool: ...

    def connect(self) -> "Deferred[None]": ...

    def send(
        self, request: Any, *, version: int | None = None, timeout_s: float | None = None
    ) -> "Deferred[Any]": ...

    def close(self, reason: str = ...) -> None: ...


Connect = Callable[[Endpoint], BrokerConnection]
"""Makes a connection, not yet connected, to a broker's control endpoint."""


class BrokerChannel:
    """The queue and connection for one registration of one broker."""

    def __init__(
        self,
        broker_id: int,
        endpoint: Endpoint,
        connect: Connect,
        clock: Clock,
        logger: logging.Logger,
        on_answer: Callable[[ControlRequest, Any], None],
        on_failure: Callable[[str, BaseException], None],
        *,
        request_timeout_s: float,
        queue_limit: int = QUEUE_LIMIT,
        queue_times_ms: Histogram | None = None,
    ) -> None:
        """`on_answer(request, response)` is called once per request, in order, while open.

        `on_failure` hears of what must not happen (a request that cannot be encoded).
        """
        self.broker_id = broker_id
        self.endpoint = endpoint
        self._connect = connect
        self._clock = clock
        self._logger = logger
        self._on_answer = on_answer
        self._request_timeout_s = request_timeout_s
        self._queue_limit = queue_limit
        self._queue_times_ms = queue_times_ms
        self._queue: deque[tuple[ControlRequest, float]] = deque()
        self._connection: BrokerConnection | None = None
        self._tasks = Tasks(logger, on_failure)
        self._running = False
        self._closed = False

    def __len__(self) -> int:
        """Requests that have no answer yet."""
        return len(self._queue)

    def send(self, request: ControlRequest) -> bool:
        """Queue a request.  False when there is no room: it was not taken."""
        if self._closed:
            return True
        if len(self._queue) >= self._queue_limit:
            return False
        self._queue.append((request, self._clock.monotonic()))
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), f"controller-to-broker-{self.broker_id}")
        return True

    def close(self) -> None:
        """Drop what waits.  An answer still on its way is not reported."""
        self._closed = True
        self._queue.clear()
        self._tasks.stop()
        self._drop_connection("broker is gone")

    async def _run(self) -> None:
        attempt = 0
        while self._queue and not self._closed:
            request, queued_s = self._queue[0]
            if attempt == 0 and self._queue_times_ms is not None:
                self._queue_times_ms.update((self._clock.monotonic() - queued_s) * 1000)
            try:
                response = await self._attempt(request)
            except (PeerError, OSError) as error:
                self._drop_connection("request failed")
                if self._closed:
                    return
                attempt += 1
                if attempt == 1:
                    self._logger.warning(
                        "control request not answered, trying again broker=%d request=%s error=%s",
                        self.broker_id,
                        type(request.message).__name__,
                        error,
                    )
                await sleep(self._clock, RETRY_DELAY_S)
                continue
            if self._closed:
                return
            if attempt:
                self._logger.info(
                    "control request answered broker=%d attempts=%d", self.broker_id, attempt + 1
                )
            attempt = 0
            self._queue.popleft()
            self._on_answer(request, response)
        self._running = False

    async def _attempt(self, request: ControlRequest) -> Any:
        connection = self._connection
        if connection is None or not connection.connected:
            self._drop_connection("connection lost")
            connection = self._connection = self._connect(self.endpoint)
            await connection.connect()
        return await connection.send(
            request.message, version=request.version, timeout_s=self._request_timeout_s
        )

    def _drop_connection(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)


class Channels:
    """The channels of one term in office."""

    def __init__(
        self,
        connect: Connect,
        clock: Clock,
        logger: logging.Logger,
        *,
        request_timeout_s: float,
        on_answer: Callable[[ControlRequest, Any], None],
        on_overflow: Callable[[int], None],
        on_failure: Callable[[str, BaseException], None],
        queue_limit: int = QUEUE_LIMIT,
        gauges: ControllerGauges | None = None,
    ) -> None:
        self._gauges = gauges
        self._connect = connect
        self._clock = clock
        self._logger = logger
        self._request_timeout_s = request_timeout_s
        self._on_answer = on_answer
        self._on_overflow = on_overflow
        self._on_failure = on_failure
        self._queue_limit = queue_limit
        self._channels: dict[int, BrokerChannel] = {}

    def open(self, broker_id: int, endpoint: Endpoint) -> None:
        """Start a fresh channel; one that is there already is closed first."""
        self.close(broker_id)
        queue_times_ms = None
        if self._gauges is not None:

            def queued() -> int:
                return len(self._channels.get(broker_id, ()))

            queue_times_ms = self._gauges.channel_opened(broker_id, queued)
        self._channels[broker_id] = BrokerChannel(
            broker_id,
            endpoint,
            self._connect,
            self._clock,
            self._logger,
            self._on_answer,
            self._on_failure,
            request_timeout_s=self._request_timeout_s,
            queue_limit=self._queue_limit,
            queue_times_ms=queue_times_ms,
        )

    def move(self, broker_id: int, endpoint: Endpoint) -> None:
        """The broker's address changed: the next connection goes there."""
        if broker_id in self._channels:
            self._channels[broker_id].endpoint = endpoint

    def close(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()
            if self._gauges is not None:
                self._gauges.channel_closed(broker_id)

    def close_all(self) -> None:
        for broker_id in list(self._channels):
            self.close(broker_id)

    def send(self, request: ControlRequest) -> None:
        channel = self._channels.get(request.broker_id)
        if channel is None:
            self._logger.error(
                "control request for a broker without channel broker=%d dropped", request.broker_id
            )
        elif not channel.send(request):
            self._on_overflow(request.broker_id)

    @property
    def queued(self) -> int:
        """Requests without answer, all brokers together."""
        return sum(len(channel) for channel in self._channels.values())
