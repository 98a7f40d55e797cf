"""This broker's registration, and its orderly departure.

The epoch of the registration (the czxid of its znode) tells apart the lives of one broker id
(reference: zookeeper 2.2, controller 9 and 17).
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig
from kafkalike.errors import NONE, error_name
from kafkalike.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalike.net.client import BrokerClient, PeerError
from kafkalike.runtime.ports import Clock, Network
from kafkalike.runtime.tasks import TimedOut, sleep, timeout
from kafkalike.types import NO_BROKER_EPOCH, Endpoint
from kafkalike.zk import brokers as zk_brokers
from kafkalike.zk import election as zk_election
from kafkalike.zk.client import SessionExpired, SessionState, ZkClient, ZkError
from kafkalike.zk.payload import CorruptZnode
from kafkalike.zk.znodes import BrokerInfo

from .standing import NOTHING_TO_SAY, Standing

CONTROLLED_SHUTDOWN_VERSION: Final = 3
LOOK_UP_S: Final = 3.0
"""How long ZooKeeper may take to say who is controller; it may have gone without our knowing."""
FOREIGN_SESSION_GRACE_S: Final = 5.0
"""On top of the session timeout: how long the node of an earlier life of this broker is awaited."""


START_SESSIONS: Final = 5
"""Sessions that may be lost in one step of a start."""

T = TypeVar("T")


async def across_sessions(
    zk: ZkClient,
    clock: Clock,
    limit_s: float,
    logger: logging.Logger,
    step: Callable[[], Awaitable[T]],
) -> T:
    """The result of a step of the start, done anew when the session expires in the middle of it.

    While ZooKeeper is away for longer than a session lasts, a broker that starts waits for it as one
    that runs does.  Only for steps that can be repeated.  Raises TimedOut when there is no new
    session within `limit_s`, SessionExpired after `START_SESSIONS` of them.
    """
    for _ in range(START_SESSIONS):
        try:
            return await step()
        except SessionExpired:
            logger.warning("the ZooKeeper session expired during the start, opening a new one")
            await timeout(clock, zk.reconnect(), limit_s, "a new ZooKeeper session")
    return await step()


class Presence:
    """Registers the broker, again after each new session, and says goodbye."""

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        broker_id: int,
        config: BrokerConfig,
        logger: logging.Logger,
    ) -> None:
        self._zk = zk
        self._clock = clock
        self._broker_id = broker_id
        self._config = config
        self._logger = logger
        self._session_id = 0
        self.broker_epoch = NO_BROKER_EPOCH
        """Epoch of the present registration; -1 before the first."""
        self.endpoints: Sequence[Endpoint] = ()
        """What is advertised, with real ports."""
        self.standing = NOTHING_TO_SAY
        """What the first registration tells of the logs."""
        self._waiting: list[Deferred[None]] = []

    def epoch(self) -> int:
        """`broker_epoch` as a callable, for those who need it anew for every request."""
        return self.broker_epoch

    def wait_registered(self) -> "Deferred[None] | None":
        """None once the broker has its first epoch, else a Deferred that fires then.

        Orders that arrive earlier may be meant for this broker's previous life (its session need
        not have ended yet): only the epoch tells (KIP-380).
        """
        if self.broker_epoch != NO_BROKER_EPOCH:
            return None
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    async def wait_for_place(self) -> None:
        """Return once no other session holds this broker's id, which `register` would wait for too.

        Raises as `register`.
        """
        await zk_brokers.wait_for_place(
            self._zk,
            self._clock,
            self._broker_id,
            wait_s=self._place_wait_s,
            logger=self._logger,
        )

    @property
    def _place_wait_s(self) -> float:
        return self._config.zookeeper_session_timeout_ms / 1000 + FOREIGN_SESSION_GRACE_S

    async def register(self) -> int:
        """Announce the broker under the present session; returns its epoch.

        Raises DuplicateBrokerRegistration, SessionExpired or another ZkError.
        """
        info = BrokerInfo(
            tuple(self.endpoints),
            rack=self._config.broker_rack,
            timestamp_ms=self._clock.now_ms(),
            short_logs=self.standing.short_logs,
            whole_logs=self.standing.whole_logs,
        )
        registration = await zk_brokers.register(
            self._zk,
            self._clock,
            self._broker_id,
            info,
            wait_s=self._place_wait_s,
            logger=self._logger,
            previous_session_id=self._session_id,
        )
        # Once it follows others again, no log need be as it was.  What was lost stays lost, until an
        # election makes the remark void.
        self.standing = Standing(short_logs=self.standing.short_logs)
        self._session_id = registration.session_id
        self.broker_epoch = registration.epoch
        self._logger.info(
            "registered broker=%d epoch=%d endpoints=%s",
            self._broker_id,
            registration.epoch,
            ",".join(f"{e.listener}://{e.host}:{e.port}" for e in self.endpoints),
        )
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)
        return registration.epoch


class Departure:
    """Asks the controller to move leadership away before this broker stops."""

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        network: Network,
        broker_id: int,
        broker_epoch: Callable[[], int],
        config: BrokerConfig,
        logger: logging.Logger,
    ) -> None:
        self._zk = zk
        self._clock = clock
        self._network = network
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._config = config
        self._logger = logger

    async def run(self) -> bool:
        """Try `controlled.shutdown.max.retries` times; whether no leader is left here.

        Bounded: each try by a look-up of `LOOK_UP_S`, then controller.socket.timeout.ms to connect
        and as long for the answer, with a pause between tries.  Cancelling ends it.
        """
        tries = self._config.controlled_shutdown_max_retries
        for attempt in range(tries):
            if await self._try():
                return True
            if attempt + 1 < tries:
                await sleep(self._clock, self._config.controlled_shutdown_retry_backoff_ms / 1000)
        self._logger.warning("controlled shutdown did not succeed tries=%d", tries)
        return False

    async def _try(self) -> bool:
        if self._zk.state is not SessionState.CONNECTED:
            self._logger.warning("controlled shutdown: ZooKeeper is not connected")
            return False
        try:
            endpoint = await timeout(
                self._clock, self._find_controller(), LOOK_UP_S, "asking ZooKeeper"
            )
        except (TimedOut, ZkError, CorruptZnode) as error:
            self._logger.warning("controlled shutdown: cannot find the controller: %s", error)
            return False
        if endpoint is None:
            self._logger.info("controlled shutdown: there is no controller")
            return False
        timeout_s = self._config.controller_socket_timeout_ms / 1000
        client = BrokerClient(
            self._network,
            self._clock,
            endpoint.host,
            endpoint.port,
            client_id=str(self._broker_id),
            connect_timeout_s=timeout_s,
            request_timeout_s=timeout_s,
        )
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            await client.connect()
            response: ControlledShutdownResponse = await client.send(
                request, version=CONTROLLED_SHUTDOWN_VERSION
            )
        except PeerError as error:
            self._logger.warning("controlled shutdown: no answer of the controller: %s", error)
            return False
        finally:
            client.close()
        if response.error_code != NONE:
            name = error_name(response.error_code)
            self._logger.warning("controlled shutdown: controller answered %s", name)
            return False
        if response.remaining_partitions:
            self._logger.warning(
                "controlled shutdown: %d partitions are still led here",
                len(response.remaining_partitions),
            )
            return False
        return True

    async def _find_controller(self) -> Endpoint | None:
        """The controller's address for brokers, as ZooKeeper knows it."""
        holder = await zk_election.read_controller(self._zk)
        if holder is None:
            return None
        controller_id = holder[0].broker_id
        found = (await zk_brokers.read_some(self._zk, [controller_id])).get(controller_id)
        if found is None:
            return None
        wanted = self._config.inter_broker_listener
        return next((e for e in found.info.endpoints if e.listener == wanted), None)
