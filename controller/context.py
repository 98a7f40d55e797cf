"""The controller's picture of the cluster (reference: controller 1).

Plain state with the questions asked of it everywhere.  It belongs to one term in office, is changed
by the active controller's own steps only, and never awaits.  All containers keep insertion order,
so that the same history gives the same requests.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalike.types import (
    NO_BROKER_EPOCH,
    ReplicaAssignment,
    TopicPartition,
)
from kafkalike.zk.znodes import BrokerInfo, PartitionState

from .status import PartitionStatus, ReplicaStatus

NO_ASSIGNMENT: Final = ReplicaAssignment(())


class Replica(NamedTuple):
    """One copy of a partition on one broker."""

    partition: TopicPartition
    broker_id: int


@dataclass(slots=True, frozen=True)
class Broker:
    """A registered broker; `epoch` is the czxid of its registration."""

    id: int
    epoch: int
    info: BrokerInfo


@dataclass(slots=True)
class ControllerContext:
    """What the active controller knows.  Leadership is the stored state, epochs included."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    """Registered brokers, those shutting down included."""
    last_epochs: dict[int, int] = field(default_factory=dict)
    """The newest life seen of each broker, also of those that are gone."""
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    """Every topic read from ZooKeeper and where its partitions live."""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    leadership: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    reassigning: dict[TopicPartition, None] = field(default_factory=dict)
    offline_dirs: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    """Per broker the partitions it answered with KAFKA_STORAGE_ERROR."""
    strays: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    """Per broker that is down the replicas that reassignments have taken from it meanwhile."""
    to_delete: dict[str, None] = field(default_factory=dict)
    deletion_started: dict[str, None] = field(default_factory=dict)
    ineligible: dict[str, None] = field(default_factory=dict)
    """Topics of `to_delete` whose deletion cannot go on now."""
    partition_statuses: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    replica_statuses: dict[TopicPartition, dict[int, ReplicaStatus]] = field(default_factory=dict)

    # -- brokers ---------------------------------------------------------------------------------

    @property
    def live(self) -> set[int]:
        """Registered brokers that have not asked to shut down."""
        return self.brokers.keys() - self.shutting_down

    def broker_epoch(self, broker_id: int) -> int:
        broker = self.brokers.get(broker_id)
        return broker.epoch if broker else NO_BROKER_EPOCH

    def remove_broker(self, broker_id: int) -> None:
        """Forget a registration, and that the broker was shutting down."""
        self.brokers.pop(broker_id, None)

    def is_online(
        self, broker_id: int, partition: TopicPartition, *, or_shutting_down: bool = False
    ) -> bool:
        """Whether the broker is alive and its log directory for the partition has not failed."""
        if broker_id not in self.brokers:
            return False
        if not or_shutting_down and broker_id in self.shutting_down:
            return False
        failed = self.offline_dirs.get(broker_id)
        return not failed or partition not in failed

    def online_replicas(
        self,
        partition: TopicPartition,
        replicas: Iterable[int],
        *,
        or_shutting_down: bool = False,
    ) -> tuple[int, ...]:
        """Those of `replicas` that are online, in the same order."""
        return tuple(
            replica
            for replica in replicas
            if self.is_online(replica, partition, or_shutting_down=or_shutting_down)
        )

    # -- assignments -----------------------------------------------------------------------------

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The partition's replicas; none for a partition that is not known."""
        topic = self.topics.get(partition.topic)
        return NO_ASSIGNMENT if topic is None else topic.get(partition.partition, NO_ASSIGNMENT)

    def knows(self, partition: TopicPartition) -> bool:
        return partition.partition in self.topics.get(partition.topic, ())

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.topics.setdefault(partition.topic, {})[partition.partition] = assignment

    def partitions(self) -> Iterator[TopicPartition]:
        for topic, assignments in self.topics.items():
            for number in assignments:
                yield TopicPartition(topic, number)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in self.topics.get(topic, ())]

    def replicas_of(self, topic: str) -> list[Replica]:
        return [
            Replica(TopicPartition(topic, number), broker_id)
            for number, assignment in self.topics.get(topic, {}).items()
            for broker_id in assignment.replicas
        ]

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        """Every replica that lives on one of the brokers."""
        wanted = set(broker_ids)
        return [
            Replica(TopicPartition(topic, number), broker_id)
            for topic, assignments in self.topics.items()
            for number, assignment in assignments.items()
            for broker_id in assignment.replicas
            if broker_id in wanted
        ]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        return [replica.partition for replica in self.replicas_on((broker_id,))]

    # -- topics ----------------------------------------------------------------------------------

    def add_topic(
        self, topic: str, assignments: Mapping[int, ReplicaAssignment], topic_id: bytes | None
    ) -> None:
        self.topics[topic] = dict(assignments)
        if topic_id is not None:
            self.set_topic_id(topic, topic_id)

    def set_topic_id(self, topic: str, topic_id: bytes) -> None:
        old = self.topic_ids.get(topic)
        if old is not None:
            self.topic_names.pop(old, None)
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def remove_topic(self, topic: str) -> None:
        """Forget a topic and everything that hangs on it."""
        for number in self.topics.pop(topic, {}):
            partition = TopicPartition(topic, number)
            self.leadership.pop(partition, None)
            self.partition_statuses.pop(partition, None)
            self.replica_statuses.pop(partition, None)
            self.reassigning.pop(partition, None)
            for failed in self.offline_dirs.values():
                failed.pop(partition, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        self.to_delete.pop(topic, None)
        self.deletion_started.pop(topic, None)
        self.ineligible.pop(topic, None)

    def is_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.to_delete

    # -- leadership and states -------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader's id, -1 when nobody leads, None when there is no state yet."""
        state = self.leadership.get(partition)
        return None if state is None else state.leader_and_isr.leader

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """Led by nobody who is online; topics being deleted do not count."""
        return [
            partition
            for partition, state in self.leadership.items()
            if not self.is_online(state.leader_and_isr.leader, partition)
            and partition.topic not in self.to_delete
        ]

    def partitions_with_leadership(self) -> list[TopicPartition]:
        """Those that have a state and whose topic is not being deleted."""
        return [tp for tp in self.leadership if tp.topic not in self.to_delete]

    def partition_status(self, partition: TopicPartition) -> PartitionStatus:
        return self.partition_statuses.get(partition, PartitionStatus.NON_EXISTENT)

    def replica_status(self, replica: Replica) -> ReplicaStatus:
        return self.replica_statuses.get(replica.partition, {}).get(
            replica.broker_id, ReplicaStatus.NON_EXISTENT
        )

    def set_replica_status(self, replica: Replica, status: ReplicaStatus) -> None:
        if status is ReplicaStatus.NON_EXISTENT:
            self.replica_statuses.get(replica.partition, {}).pop(replica.broker_id, None)
        else:
            self.replica_statuses.setdefault(replica.partition, {})[replica.broker_id] = status

    def replicas_in_status(self, topic: str, status: ReplicaStatus) -> list[Replica]:
        return [
            replica for replica in self.replicas_of(topic) if self.replica_status(replica) is status
        ]
