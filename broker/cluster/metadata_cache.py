"""This broker's view of the cluster, as the controller last told it.

Only UpdateMetadata changes it (reference: inter-broker 9): brokers and controller are replaced as a
whole, partitions are merged, leader -2 removes a partition, topic ids are kept in both directions.
Each update makes a new immutable `MetadataSnapshot`, so that a request answered from one snapshot
never sees half of an update.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalike.errors import (
    CoordinatorLoadInProgress,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import UpdateMetadataRequest
from kafkalike.types import LEADER_DURING_DELETE, ZERO_UUID, Endpoint, Node, TopicPartition

NO_CONTROLLER: Final = -1

_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(slots=True, frozen=True)
class PartitionMetadata:
    """What the controller says of one partition; `partition_epoch` is the state znode's version."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class BrokerMetadata:
    """A registered broker and where each of its listeners can be reached."""

    id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None

    def node(self, listener: str) -> Node | None:
        """The broker as seen through one listener, or None when it has no such listener."""
        endpoint = self.endpoints.get(listener)
        if endpoint is None:
            return None
        return Node(self.id, endpoint.host, endpoint.port, self.rack)


@dataclass(slots=True, frozen=True)
class MetadataSnapshot:
    """One state of the cluster.  `version` grows by one with every accepted update."""

    version: int = 0
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerMetadata] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, PartitionMetadata]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)

    def nodes(self, listener: str) -> list[Node]:
        """The live brokers that have `listener`, by id."""
        found = (self.brokers[broker_id].node(listener) for broker_id in sorted(self.brokers))
        return [node for node in found if node is not None]

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic, ZERO_UUID when it has none here."""
        return self.topic_ids.get(topic, ZERO_UUID)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        """All partitions known."""
        for topic, partitions in self.topics.items():
            for number, state in partitions.items():
                yield TopicPartition(topic, number), state


@dataclass(slots=True, frozen=True)
class MetadataUpdate:
    """What an accepted UpdateMetadata touched: for those who wait and for the coordinators."""

    snapshot: MetadataSnapshot
    topics: tuple[str, ...]
    removed: tuple[TopicPartition, ...]


MetadataListener = Callable[[MetadataUpdate], None]


class MetadataCache:
    """Holds the current snapshot.

    The caller of `update` (the control handler) has already checked broker and controller epochs.
    Listeners run synchronously after the new snapshot is in place.
    """

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.snapshot = MetadataSnapshot()
        self.lacks_topics = False
        """There are topics in ZooKeeper, and no controller has told of any yet: that one is not here
        says nothing.  Clients take "unknown topic" at its word: librdkafka gives up all records it
        holds for the topic, and begins to read where it should not."""
        self._listeners: list[MetadataListener] = []

    def add_listener(self, listener: MetadataListener) -> None:
        """Be told of every update from now on, after earlier listeners."""
        self._listeners.append(listener)

    # -- questions -----------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """The controller as of the last update, NO_CONTROLLER when unknown."""
        return self.snapshot.controller_id

    def has_topic(self, topic: str) -> bool:
        return topic in self.snapshot.topics

    def contains(self, partition: TopicPartition) -> bool:
        """Whether the partition exists in the cluster as far as this broker knows."""
        partitions = self.snapshot.topics.get(partition.topic)
        return partitions is not None and partition.partition in partitions

    @property
    def unknown(self) -> type[NotLeaderOrFollower] | type[UnknownTopicOrPartition]:
        """What a client is told of a partition that is not here: ask for metadata again, as long as
        `lacks_topics`."""
        return NotLeaderOrFollower if self.lacks_topics else UnknownTopicOrPartition

    @property
    def unknown_to_coordinator(
        self,
    ) -> type[CoordinatorLoadInProgress] | type[UnknownTopicOrPartition]:
        """The same where a coordinator is asked: it is not ready yet, as long as `lacks_topics`."""
        return CoordinatorLoadInProgress if self.lacks_topics else UnknownTopicOrPartition

    @property
    def unknown_to_admin(self) -> type[LeaderNotAvailable] | type[UnknownTopicOrPartition]:
        """The same for a topic as a whole: to be asked again, as long as `lacks_topics`."""
        return LeaderNotAvailable if self.lacks_topics else UnknownTopicOrPartition

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        partitions = self.snapshot.topics.get(partition.topic)
        return None if partitions is None else partitions.get(partition.partition)

    def topic_id(self, topic: str) -> bytes:
        """ZERO_UUID when unknown."""
        return self.snapshot.topic_ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.snapshot.topic_names.get(topic_id)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller listed the broker as registered."""
        return broker_id in self.snapshot.brokers

    def alive_brokers(self) -> list[int]:
        return sorted(self.snapshot.brokers)

    def node(self, broker_id: int, listener: str) -> Node | None:
        """A live broker on one of its listeners, or None."""
        broker = self.snapshot.brokers.get(broker_id)
        return None if broker is None else broker.node(listener)

    # -- change --------------------------------------------------------------------------------

    def update(self, request: UpdateMetadataRequest) -> MetadataUpdate:
        """Merge one UpdateMetadata and tell the listeners."""
        old = self.snapshot
        topics = dict(old.topics)
        topic_ids = dict(old.topic_ids)
        topic_names = dict(old.topic_names)
        touched: dict[str, None] = {}
        removed: list[TopicPartition] = []

        for name, topic_id, states in _topic_states(request):
            if topic_id is not None:
                _set_topic_id(name, topic_id, topic_ids, topic_names)
            partitions = dict(topics.get(name, ()))
            if _is_another(topic_id, old.topic_ids.get(name), states):
                partitions.clear()
            for state in states:
                if state.leader == LEADER_DURING_DELETE:
                    if partitions.pop(state.partition_index, None) is not None:
                        removed.append(TopicPartition(name, state.partition_index))
                else:
                    partitions[state.partition_index] = _partition(state)
            touched[name] = None
            if partitions:
                topics[name] = partitions
            else:
                topics.pop(name, None)
                _set_topic_id(name, ZERO_UUID, topic_ids, topic_names)

        self.snapshot = MetadataSnapshot(
            version=old.version + 1,
            controller_id=request.controller_id if request.controller_id >= 0 else NO_CONTROLLER,
            brokers=_brokers(request),
            topics=topics,
            topic_ids=topic_ids,
            topic_names=topic_names,
        )
        if touched:
            self.lacks_topics = False
        update = MetadataUpdate(self.snapshot, tuple(touched), tuple(removed))
        for listener in self._listeners:
            listener(update)
        return update


_State = UpdateMetadataRequest.UpdateMetadataPartitionState


def _topic_states(
    request: UpdateMetadataRequest,
) -> Iterator[tuple[str, bytes | None, list[_State]]]:
    """Topics of the request, whichever of the two layouts (up to v4, from v5) they came in.

    The id is None where the version carries none, so that a known id is not wiped by it.
    """
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states
    ungrouped: dict[str, list[_State]] = {}
    for state in request.ungrouped_partition_states:
        ungrouped.setdefault(state.topic_name, []).append(state)
    for name, states in ungrouped.items():
        yield name, None, states


def _is_another(topic_id: bytes | None, known: bytes | None, states: list[_State]) -> bool:
    """Whether a topic was made anew and its deletion was missed here, so that partitions of the old one
    would stay for ever: nobody speaks of them again."""
    return (
        topic_id not in (None, ZERO_UUID)
        and known is not None
        and topic_id != known
        and any(state.leader != LEADER_DURING_DELETE for state in states)
    )


def _set_topic_id(
    name: str, topic_id: bytes, ids: dict[str, bytes], names: dict[bytes, str]
) -> None:
    old = ids.get(name)
    if old == topic_id:
        return
    if old is not None:
        del ids[name]
        names.pop(old, None)
    if topic_id != ZERO_UUID:
        ids[name] = topic_id
        names[topic_id] = name


def _partition(state: _State) -> PartitionMetadata:
    return PartitionMetadata(
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        partition_epoch=state.zk_version,
        replicas=tuple(state.replicas),
        offline_replicas=tuple(state.offline_replicas),
    )


def _brokers(request: UpdateMetadataRequest) -> dict[int, BrokerMetadata]:
    brokers: dict[int, BrokerMetadata] = {}
    for broker in request.live_brokers:
        endpoints: dict[str, Endpoint] = {}
        for endpoint in broker.endpoints:
            code = endpoint.security_protocol
            protocol = _SECURITY_PROTOCOLS[code] if 0 <= code < 4 else "PLAINTEXT"
            listener = endpoint.listener or protocol
            endpoints[listener] = Endpoint(listener, protocol, endpoint.host, endpoint.port)
        if not broker.endpoints and broker.v0_host:
            endpoints["PLAINTEXT"] = Endpoint(
                "PLAINTEXT", "PLAINTEXT", broker.v0_host, broker.v0_port
            )
        brokers[broker.id] = BrokerMetadata(broker.id, endpoints, broker.rack)
    return brokers
