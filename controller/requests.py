"""Groups what brokers must be told into one request of each kind per broker (controller 16).

A batch collects who must hear of which partition; the requests themselves are built from the
context when the batch is taken, so several changes of one partition within a batch cost one entry
and show its latest state.  Order of sending: all LeaderAndIsr, then UpdateMetadata, then
StopReplica.  The work is linear in the number of entries: partition states are built once and
shared between brokers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkalike.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.types import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    ZERO_UUID,
    Endpoint,
    TopicPartition,
)

from .context import Broker, ControllerContext

LEADER_AND_ISR_VERSION: Final = 7
UPDATE_METADATA_VERSION: Final = 8
STOP_REPLICA_VERSION: Final = 4

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch of a StopReplica that no broker may refuse: the topic goes away."""

SECURITY_PROTOCOL_IDS: Final[Mapping[str, int]] = {
    "PLAINTEXT": 0,
    "SSL": 1,
    "SASL_PLAINTEXT": 2,
    "SASL_SSL": 3,
}

STEP: Final = 1000

S = TypeVar("S")


class BatchNotEmpty(Exception):
    """A new batch was begun while requests of the one before had not been sent."""


@dataclass(slots=True, frozen=True)
class ControlRequest:
    """One request for one broker, stamped with its epoch of the moment it was built."""

    broker_id: int
    broker_epoch: int
    message: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
    version: int
    deleting: tuple[TopicPartition, ...] = ()
    """Partitions that a StopReplica asks to delete."""


def endpoint_of(broker: Broker, listener: str) -> Endpoint | None:
    """Where a broker is reached on the named listener, None when it has no such listener."""
    return next((e for e in broker.info.endpoints if e.listener == listener), None)


class RequestBatch:
    """Collects entries; `take` turns them into requests and leaves the batch empty."""

    def __init__(
        self, controller_id: int, epoch: int, context: ControllerContext, listener: str
    ) -> None:
        """`listener`: name of the inter-broker listener, whose addresses go into LiveLeaders."""
        self._controller_id = controller_id
        self._epoch = epoch
        self._context = context
        self._listener = listener
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self._metadata_brokers: dict[int, None] = {}
        self._metadata_partitions: dict[TopicPartition, None] = {}

    def __bool__(self) -> bool:
        return bool(
            self._leader_and_isr
            or self._stop_replica
            or self._metadata_brokers
            or self._metadata_partitions
        )

    def begin(self) -> None:
        """Start a batch.  Raises BatchNotEmpty when the one before was not taken."""
        if self:
            raise BatchNotEmpty("requests of an earlier step were not sent")

    def clear(self) -> None:
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._metadata_brokers.clear()
        self._metadata_partitions.clear()

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool
    ) -> None:
        """Tell brokers a partition's leadership, and everybody its metadata.

        `is_new` sticks within the batch: the replica may be created on a broker that has a failed
        log directory.
        """
        for broker_id in broker_ids:
            if broker_id >= 0:
                entries = self._leader_and_isr.setdefault(broker_id, {})
                entries[partition] = entries.get(partition, False) or is_new
        self.add_update_metadata(self._context.brokers, (partition,))

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Tell brokers who is alive, and all partitions of this batch that have leadership."""
        self._metadata_brokers.update((b, None) for b in broker_ids if b >= 0)
        self._metadata_partitions.update((p, None) for p in partitions)

    def add_stop_replica(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool
    ) -> None:
        """Have brokers stop a replica; `delete` sticks within the batch.

        The leader epoch sent is that of this moment, before a change made in the same batch.
        """
        leader_epoch = self._stop_epoch(partition)
        for broker_id in broker_ids:
            if broker_id >= 0:
                entries = self._stop_replica.setdefault(broker_id, {})
                deleting = partition in entries and entries[partition][1]
                entries[partition] = (leader_epoch, deleting or delete)

    def take(self) -> list[ControlRequest]:
        """The requests in sending order.  Brokers that are not registered get none."""
        return [request for request in self.take_in_steps() if request is not None]

    def take_in_steps(self) -> Iterator[ControlRequest | None]:
        """Like `take`, with a None after every thousand partition states or so: there the caller
        may let others run, as long as nothing is added to the batch meanwhile."""
        yield from self._take_leader_and_isr()
        yield from self._take_metadata()
        yield from self._take_stops()
        self.clear()

    # -- LeaderAndIsr ----------------------------------------------------------------------------

    def _take_leader_and_isr(self) -> Iterator[ControlRequest | None]:
        states: dict[
            tuple[TopicPartition, bool], LeaderAndIsrRequest.LeaderAndIsrPartitionState
        ] = {}
        built = 0
        for broker_id, entries in self._leader_and_isr.items():
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            leaders: dict[int, None] = {}
            known: list[tuple[TopicPartition, LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = []
            for partition, is_new in entries.items():
                if partition not in self._context.leadership:
                    continue
                key = (partition, is_new)
                state = states.get(key)
                if state is None:
                    state = states[key] = self._leader_state(partition, is_new)
                    built += 1
                    if built % STEP == 0:
                        yield None
                leaders[state.leader] = None
                known.append((partition, state))
            message = LeaderAndIsrRequest(
                controller_id=self._controller_id,
                controller_epoch=self._epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=topic,
                        topic_id=self._context.topic_ids.get(topic, ZERO_UUID),
                        partition_states=of_topic,
                    )
                    for topic, of_topic in _by_topic(known).items()
                ],
                live_leaders=self._live_leaders(leaders),
            )
            yield ControlRequest(broker_id, broker.epoch, message, LEADER_AND_ISR_VERSION)
            if len(entries) > STEP:
                yield None

    def _leader_state(
        self, partition: TopicPartition, is_new: bool
    ) -> LeaderAndIsrRequest.LeaderAndIsrPartitionState:
        stored = self._context.leadership[partition]
        state = stored.leader_and_isr
        assignment = self._context.assignment(partition)
        return LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=stored.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=state.recovery_state,
        )

    def _live_leaders(
        self, leaders: Iterable[int]
    ) -> list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        found = []
        for leader in leaders:
            broker = self._context.brokers.get(leader)
            endpoint = broker and endpoint_of(broker, self._listener)
            if endpoint:
                found.append(
                    LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                        broker_id=leader, host_name=endpoint.host, port=endpoint.port
                    )
                )
        return found

    # -- UpdateMetadata --------------------------------------------------------------------------

    def _take_metadata(self) -> Iterator[ControlRequest | None]:
        recipients = [
            broker
            for broker_id in self._metadata_brokers
            if (broker := self._context.brokers.get(broker_id)) is not None
        ]
        if not recipients:
            return
        known = []
        for partition in self._metadata_partitions:
            if partition in self._context.leadership:
                known.append((partition, self._metadata_state(partition)))
                if len(known) % STEP == 0:
                    yield None
        topic_states = [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=self._context.topic_ids.get(topic, ZERO_UUID),
                partition_states=of_topic,
            )
            for topic, of_topic in _by_topic(known).items()
        ]
        live_brokers = [_live_broker(broker) for broker in self._context.brokers.values()]
        for broker in recipients:
            message = UpdateMetadataRequest(
                controller_id=self._controller_id,
                controller_epoch=self._epoch,
                broker_epoch=broker.epoch,
                topic_states=topic_states,
                live_brokers=live_brokers,
            )
            yield ControlRequest(broker.id, broker.epoch, message, UPDATE_METADATA_VERSION)

    def _metadata_state(
        self, partition: TopicPartition
    ) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
        stored = self._context.leadership[partition]
        state = stored.leader_and_isr
        deleting = self._context.is_queued_for_deletion(partition.topic)
        replicas = self._context.assignment(partition).replicas
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=stored.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=0 if deleting else state.leader_epoch,
            isr=list(state.isr),
            zk_version=0 if deleting else state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[r for r in replicas if not self._context.is_online(r, partition)],
        )

    # -- StopReplica -----------------------------------------------------------------------------

    def _take_stops(self) -> Iterator[ControlRequest | None]:
        for broker_id, entries in self._stop_replica.items():
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            states = [
                (
                    partition,
                    StopReplicaRequest.StopReplicaTopicState.StopReplicaPartitionState(
                        partition_index=partition.partition,
                        leader_epoch=leader_epoch,
                        delete_partition=delete,
                    ),
                )
                for partition, (leader_epoch, delete) in entries.items()
            ]
            message = StopReplicaRequest(
                controller_id=self._controller_id,
                controller_epoch=self._epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    StopReplicaRequest.StopReplicaTopicState(
                        topic_name=topic, partition_states=of_topic
                    )
                    for topic, of_topic in _by_topic(states).items()
                ],
            )
            deleting = tuple(partition for partition, (_, delete) in entries.items() if delete)
            yield ControlRequest(broker_id, broker.epoch, message, STOP_REPLICA_VERSION, deleting)
            if len(entries) > STEP:
                yield None

    def _stop_epoch(self, partition: TopicPartition) -> int:
        if self._context.is_queued_for_deletion(partition.topic):
            return EPOCH_DURING_DELETE
        stored = self._context.leadership.get(partition)
        return NO_EPOCH if stored is None else stored.leader_and_isr.leader_epoch


def _by_topic(states: "Iterable[tuple[TopicPartition, S]]") -> dict[str, list[S]]:
    grouped: dict[str, list[S]] = {}
    for partition, state in states:
        grouped.setdefault(partition.topic, []).append(state)
    return grouped


def _live_broker(broker: Broker) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
            )
            for endpoint in broker.info.endpoints
        ],
        rack=broker.info.rack,
    )
