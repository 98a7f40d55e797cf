"""Kafka requests from the supervisor to the brokers of its cluster, one connection each."""

from collections.abc import Callable
from typing import Any, Final

from kafkalike.errors import NotController, error_name
from kafkalike.messages.groups import FindCoordinatorRequest
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.net.client import BrokerClient, PeerError, UnsupportedByPeer
from kafkalike.runtime.tasks import sleep

from .. import cli
from ..local_cluster import LocalCluster
from .broker import BrokerState
from .layout import HOST
from .links import SUPERVISOR_CLIENT_ID

REQUEST_TIMEOUT_S: Final = 60.0
RETRY_S: Final = 0.01


class Questions:
    """Clients of the brokers; a broken connection is made anew for the next request."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._clock = cluster.runtime.clock
        self._clients: dict[int, BrokerClient] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def ask(self, broker_id: int, request: Any) -> Any:
        """The broker's answer.  Raises PeerError, or CommandError for one that is not running."""
        client = await self._client(broker_id)
        return await client.send(request)

    async def serves(self, broker_id: int, request_class: Any) -> bool:
        """Whether the broker serves an API at all."""
        client = await self._client(broker_id)
        try:
            client.version_for(request_class)
        except UnsupportedByPeer:
            return False
        return True

    async def _client(self, broker_id: int) -> BrokerClient:
        broker = self._cluster.broker(broker_id)
        if broker.state is not BrokerState.RUNNING:
            raise cli.CommandError(f"{broker.name} is {broker.state.value}, expected running")
        client = self._clients.get(broker_id)
        if client is None or not client.connected:
            client = BrokerClient(
                self._cluster.runtime.network,
                self._clock,
                HOST,
                broker.port,
                client_id=SUPERVISOR_CLIENT_ID,
                request_timeout_s=REQUEST_TIMEOUT_S,
                negotiate=True,
            )
            await client.connect()
            self._clients[broker_id] = client
        return client

    async def metadata(
        self, topics: list[str] | None, broker_id: int | None = None
    ) -> MetadataResponse:
        """Of all topics (None) or some; of one broker or of any that is well connected."""
        wanted = None
        if topics is not None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        if broker_id is not None:
            response: MetadataResponse = await self.ask(broker_id, request)
            return response
        problem = "no broker is running"
        for one in self._cluster.witnesses():
            try:
                response = await self.ask(one.id, request)
            except PeerError as error:
                problem = str(error)
            else:
                return response
        raise cli.CommandError(problem)

    async def ask_controller(
        self, request: Any, codes: Callable[[Any], list[int]], timeout_s: float
    ) -> Any:
        """The controller's answer; looked for again while it moves.  Raises CommandError."""
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            problem = "there is no controller"
            controller = (await self.metadata([])).controller_id
            if controller >= 0:
                try:
                    response = await self.ask(controller, request)
                except (PeerError, cli.CommandError) as error:
                    problem = str(error)
                else:
                    if NotController.code not in codes(response):
                        return response
                    problem = f"broker {controller} is not controller any more"
            if self._clock.monotonic() > deadline_s:
                raise cli.CommandError(problem)
            await sleep(self._clock, RETRY_S)

    async def group_coordinator(self, group: str) -> int:
        """Broker id.  Raises CommandError while there is none."""
        for broker in self._cluster.witnesses():
            request = FindCoordinatorRequest(coordinator_keys=[group])
            response = await self.ask(broker.id, request)
            found = response.coordinators[0]
            if found.error_code:
                raise cli.CommandError(f"group {group}: {error_name(found.error_code)}")
            return int(found.node_id)
        raise cli.CommandError("no broker is running")
