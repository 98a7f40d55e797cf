"""Small clients of a simulated cluster.  They are ours, so that the history misses nothing.

Each client has a name, a host of its own on the simulated network, and runs until `stopping`; then it
finishes what it has begun and returns from `run`.  Nothing in here judges: what was asked and what was
answered goes into the history, checkers do the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from kafkalike.errors import NONE, error_name
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.net.client import BrokerClient, PeerError
from kafkalike.runtime.ports import Clock, Network, Random
from kafkalike.runtime.tasks import sleep
from kafkalike.types import ZERO_UUID, TopicPartition

from .history import History, LeaderSeen

CONNECT_S: Final = 2.0
REQUEST_S: Final = 4.0
METADATA_VERSION: Final = 12
RETRY_S: Final = 0.1


@dataclass(slots=True, frozen=True)
class ClientPorts:
    """What a client gets from its world.  `network` is that of the client's own host."""

    clock: Clock
    random: Random
    network: Network
    bootstrap: tuple[tuple[str, int], ...]
    history: History


@dataclass(slots=True, frozen=True)
class PartitionView:
    """A partition as the last metadata answer had it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class NotKnown(Exception):
    """There is no broker to ask: the cluster's metadata has no leader or address at present."""


class SimClient:
    """Connections, metadata and patience.  Subclasses implement `run`."""

    def __init__(self, name: str, ports: ClientPorts) -> None:
        self.name = name
        self.clock = ports.clock
        self.random = ports.random
        self.history = ports.history
        self.stopping = False
        self._network = ports.network
        self._bootstrap = ports.bootstrap
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], BrokerClient] = {}
        self._opening: dict[tuple[str, int], list[Deferred[None]]] = {}
        self._newest: dict[TopicPartition, tuple[bytes, PartitionView]] = {}
        """The view with the highest leader epoch so far, and the topic's id then."""
        self._seen: dict[TopicPartition, tuple[bytes, int, int]] = {}
        self.controller_id = -1
        self.partitions: dict[TopicPartition, PartitionView] = {}
        self.topic_ids: dict[str, bytes] = {}

    async def run(self) -> None:
        """The client's life; returns some time after `stopping` was set."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask `run` to come to its end."""
        self.stopping = True

    def close(self) -> None:
        """Drop all connections.  Call it when `run` has returned or was cancelled."""
        self.stopping = True
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()

    # -- asking ------------------------------------------------------------------------------------

    async def ask(
        self, broker: int, request: Any, version: int, *, timeout_s: float = REQUEST_S
    ) -> Any:
        """The answer of one broker.  Raises PeerError when none came, NotKnown without an address."""
        address = self._brokers.get(broker)
        if address is None:
            raise NotKnown(f"no address of broker {broker}")
        return await self.ask_at(address, request, version, timeout_s=timeout_s)

    async def ask_at(
        self,
        address: tuple[str, int],
        request: Any,
        version: int,
        *,
        timeout_s: float = REQUEST_S,
        expect_answer: bool = True,
    ) -> Any:
        """Like `ask`, at an address."""
        connection = await self._connection(address)
        return await connection.send(
            request, version=version, timeout_s=timeout_s, expect_answer=expect_answer
        )

    async def send_now(self, broker: int) -> BrokerClient:
        """An open connection to a broker, for requests that are sent without waiting in between."""
        address = self._brokers.get(broker)
        if address is None:
            raise NotKnown(f"no address of broker {broker}")
        return await self._connection(address)

    async def _connection(self, address: tuple[str, int]) -> BrokerClient:
        connection = self._connections.get(address)
        if connection is not None and connection.connected:
            return connection
        waiting = self._opening.get(address)
        if waiting is not None:
            turn: Deferred[None] = Deferred()
            waiting.append(turn)
            await turn
            connection = self._connections.get(address)
            if connection is None or not connection.connected:
                raise PeerError(f"no connection to {address[0]}:{address[1]}")
            return connection
        self._opening[address] = []
        connection = BrokerClient(
            self._network,
            self.clock,
            address[0],
            address[1],
            client_id=self.name,
            connect_timeout_s=CONNECT_S,
            request_timeout_s=REQUEST_S,
        )
        try:
            await connection.connect()
            self._connections[address] = connection
        finally:
            for turn in self._opening.pop(address):
                turn.callback(None)
        return connection

    def forget(self, broker: int) -> None:
        """Drop the connection to a broker: the next request opens another."""
        address = self._brokers.get(broker)
        connection = self._connections.pop(address, None) if address is not None else None
        if connection is not None:
            connection.close()

    # -- knowing -----------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = None) -> bool:
        """Ask some broker for metadata (None: of all topics); whether an answer came."""
        addresses = sorted({*self._bootstrap, *self._brokers.values()})
        address = addresses[self.random.randrange(len(addresses))]
        wanted = None
        if topics is not None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=t) for t in sorted(set(topics))]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        try:
            response = await self.ask_at(address, request, METADATA_VERSION)
        except PeerError:
            return False
        self._learn(response, whole=topics is None)
        return True

    def _learn(self, response: MetadataResponse, whole: bool) -> None:
        self._brokers.update({b.node_id: (b.host, b.port) for b in response.brokers})
        self.controller_id = response.controller_id
        if whole:
            self.partitions.clear()
            self.topic_ids.clear()
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code != NONE:
                self._forget_topic(name)
                continue
            self.topic_ids[name] = topic.topic_id
            for partition in topic.partitions:
                topic_partition = TopicPartition(name, partition.partition_index)
                view = PartitionView(
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.replica_nodes),
                    tuple(partition.isr_nodes),
                )
                known = self._newest.get(topic_partition)
                if (
                    known is not None
                    and known[0] == topic.topic_id
                    and known[1].leader_epoch > view.leader_epoch
                ):
                    view = known[1]  # the broker is behind: going back undoes fencing (KIP-320)
                self._newest[topic_partition] = (topic.topic_id, view)
                self.partitions[topic_partition] = view
                self._note_leader(
                    topic_partition, topic.topic_id, partition.leader_id, partition.leader_epoch
                )

    def _note_leader(
        self, topic_partition: TopicPartition, topic_id: bytes, leader: int, epoch: int
    ) -> None:
        seen = (topic_id, leader, epoch)
        if leader >= 0 and self._seen.get(topic_partition) != seen:
            self._seen[topic_partition] = seen
            self.history.note(self.name, LeaderSeen(topic_partition, topic_id, leader, epoch))

    def _forget_topic(self, name: str) -> None:
        self.topic_ids.pop(name, None)
        for topic_partition in [tp for tp in self.partitions if tp.topic == name]:
            del self.partitions[topic_partition]

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Every broker this client ever heard of, with its last address."""
        return self._brokers

    def topic_id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, ZERO_UUID)

    def leader_of(self, topic_partition: TopicPartition) -> int:
        """Raises NotKnown when the last metadata answer had none."""
        view = self.partitions.get(topic_partition)
        if view is None or view.leader < 0:
            raise NotKnown(f"no leader of {topic_partition}")
        return view.leader

    # -- waiting -----------------------------------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        """Let virtual time pass: a little more or less than `seconds`."""
        await sleep(self.clock, seconds * (0.5 + self.random.random()))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability


async def together(works: Sequence[Any]) -> None:
    """Run coroutines side by side until all have ended; the first error comes out then."""
    started = [Deferred.fromCoroutine(work) for work in works]
    results = await DeferredList(started, fireOnOneErrback=False, consumeErrors=True)
    for succeeded, value in results:
        if not succeeded:
            value.raiseException()


def refusal(code: int) -> str:
    """Kafka's name of an error code."""
    return error_name(code)
