"""Requests that families about several brokers share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.messages.metadata import MetadataRequest

from ..case import Ask, Names
from .fetch import topic_id

_Move = AlterPartitionReassignmentsRequest.ReassignableTopic
_Isr = AlterPartitionRequest.TopicData
_Lisr = LeaderAndIsrRequest
_Stop = StopReplicaRequest
_Update = UpdateMetadataRequest

SHUFFLED = (
    "brokers",
    "configs",
    "isr",
    "isr_nodes",
    "partition_responses",
    "partition_result",
    "partitions",
    "remaining_partitions",
    "replica_election_results",
    "responses",
    "results",
    "topics",
)
"""Arrays in whose order brokers and chance have a say."""


def metadata(
    *names: str, version: int = 12, to: int = 1, until: Callable[[Any], bool] | None = None
) -> Ask:
    message = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=version < 4,
    )
    return Ask(message, version, to=to, until=until)


def part_of(answer: Any, number: int = 0) -> Any:
    """A partition of the first topic in a Metadata answer."""
    return next(p for p in answer.topics[0].partitions if p.partition_index == number)


def led_by(leader: int, number: int = 0) -> Callable[[Any], bool]:
    return lambda answer: bool(part_of(answer, number).leader_id == leader)


def in_epoch(epoch: int, number: int = 0) -> Callable[[Any], bool]:
    return lambda answer: bool(part_of(answer, number).leader_epoch == epoch)


def seen(
    *, isr: Sequence[int] | None = None, replicas: Sequence[int] | None = None, epoch: int = -1
) -> Callable[[Any], bool]:
    """Where this ISR, these replicas and at least this leader epoch of partition 0 are told."""

    def holds(answer: Any) -> bool:
        part = part_of(answer)
        return (
            part.leader_epoch >= epoch
            and (isr is None or sorted(part.isr_nodes) == sorted(isr))
            and (replicas is None or sorted(part.replica_nodes) == sorted(replicas))
        )

    return holds


def on(replicas: Sequence[int], number: int = 0) -> Callable[[Any], bool]:
    """Where exactly these replicas are there, all in sync."""

    def holds(answer: Any) -> bool:
        part = part_of(answer, number)
        return sorted(part.replica_nodes) == sorted(part.isr_nodes) == sorted(replicas)

    return holds


def reassign(
    *wanted: tuple[str, int, Sequence[int] | None], to: int = 1, timeout_ms: int = 30_000
) -> Ask:
    topics: dict[str, Any] = {}
    for name, number, replicas in wanted:
        topic = topics.setdefault(name, _Move(name=name))
        topic.partitions.append(
            _Move.ReassignablePartition(
                partition_index=number, replicas=None if replicas is None else list(replicas)
            )
        )
    message = AlterPartitionReassignmentsRequest(
        topics=list(topics.values()), timeout_ms=timeout_ms
    )
    return Ask(message, 0, to=to)


def listed(
    name: str, *numbers: int, to: int = 1, until: Callable[[Any], bool] | None = None
) -> Ask:
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
        name=name, partition_indexes=list(numbers)
    )
    return Ask(ListPartitionReassignmentsRequest(topics=[topic]), 0, to=to, until=until)


def done(answer: Any) -> bool:
    """No reassignment is under way."""
    return not answer.topics


def elect(
    version: int,
    kind: int,
    *wanted: tuple[str, Sequence[int]],
    to: int = 1,
    timeout_ms: int = 30_000,
) -> Ask:
    topics = [
        ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(numbers))
        for name, numbers in wanted
    ]
    message = ElectLeadersRequest(
        election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms
    )
    return Ask(message, version, to=to)


def log_dirs(
    version: int, *names: str, to: int = 1, until: Callable[[Any], bool] | None = None
) -> Ask:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0, 1])
        for name in names
    ]
    return Ask(DescribeLogDirsRequest(topics=topics), version, to=to, until=until)


def move_dir(version: int, path: str | int, *wanted: tuple[str, Sequence[int]], to: int = 1) -> Ask:
    """To a path, or to the first or second directory of the broker."""

    def make(names: Names) -> AlterReplicaLogDirsRequest:
        target = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        return AlterReplicaLogDirsRequest(
            dirs=[
                target(
                    path=names.dirs[to][path - 1] if isinstance(path, int) else path,
                    topics=[
                        target.AlterReplicaLogDirTopic(name=name, partitions=list(numbers))
                        for name, numbers in wanted
                    ],
                )
            ]
        )

    return Ask(make, version, to=to)


def fetch_as(
    version: int,
    replica: int,
    name: str,
    *parts: Any,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
    to: int = 1,
) -> Ask:
    """A Fetch of a follower, or of a consumer (-1)."""

    def make(names: Names) -> FetchRequest:
        message = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            session_id=names.last.session_id if session[0] < 0 else session[0],
            session_epoch=session[1],
            topics=[
                FetchRequest.FetchTopic(
                    topic=name, topic_id=topic_id(names, name), partitions=list(parts)
                )
            ]
            if parts
            else [],
        )
        if version >= 15:
            message.replica_state = FetchRequest.ReplicaState(replica_id=replica)
        else:
            message.replica_id = replica
        return message

    return Ask(make, version, to=to)


def offsets_of(
    version: int,
    name: str,
    number: int,
    time: int,
    *,
    replica: int = -1,
    epoch: int = -1,
    to: int = 1,
    until: Callable[[Any], bool] | None = None,
) -> Ask:
    topic = ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition(
        partition_index=number, timestamp=time, current_leader_epoch=epoch
    )
    message = ListOffsetsRequest(replica_id=replica, topics=[topic(name=name, partitions=[part])])
    return Ask(message, version, to=to, until=until)


def epoch_end(
    version: int,
    name: str,
    number: int,
    epoch: int,
    *,
    current: int = -1,
    replica: int = -2,
    to: int = 1,
) -> Ask:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topic.OffsetForLeaderPartition(
        partition=number, leader_epoch=epoch, current_leader_epoch=current
    )
    message = OffsetForLeaderEpochRequest(
        replica_id=replica, topics=[topic(topic=name, partitions=[part])]
    )
    return Ask(message, version, to=to)


# -- what a leader asks --------------------------------------------------------------------------


def propose(
    version: int,
    name: str,
    isr: Sequence[int],
    *,
    number: int = 0,
    leader: int = 1,
    epoch: int = 0,
    partition_epoch: int = 0,
    recovery: int = 0,
    broker_epoch: int | None = None,
    to: int = 1,
) -> Ask:
    """AlterPartition as the leader would send it; epochs are added to the present ones."""

    def make(names: Names) -> AlterPartitionRequest:
        try:
            state: Mapping[str, Any] = names.tree.state(name, number)
        except LookupError:
            state = {"leader_epoch": 0, "version": 0}
        part = _Isr.PartitionData(
            partition_index=number,
            leader_epoch=state["leader_epoch"] + epoch,
            new_isr=list(isr),
            new_isr_with_epochs=[_Isr.PartitionData.BrokerState(broker_id=n) for n in isr],
            partition_epoch=state["version"] + partition_epoch,
        )
        if version >= 1:
            part.leader_recovery_state = recovery
        return AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=names.tree.broker_epoch(leader) if broker_epoch is None else broker_epoch,
            topics=[_Isr(topic_name=name, topic_id=topic_id(names, name), partitions=[part])],
        )

    return Ask(make, version, to=to)


# -- what the controller asks --------------------------------------------------------------------


def lead(
    version: int,
    name: str,
    *,
    number: int = 0,
    leader: int = 1,
    epoch: int = 0,
    isr: Sequence[int] = (1, 2, 3),
    replicas: Sequence[int] = (1, 2, 3),
    is_new: bool = False,
    id_of: str | None = None,
    controller_epoch: int = 0,
    broker_epoch: int = 0,
    kraft: bool = False,
    kind: int = 0,
    to: int = 2,
) -> Ask:
    """LeaderAndIsr; epochs of controller and broker are added to the present ones.

    `id_of` is the topic whose id is said ("zero": none).
    """

    def make(names: Names) -> LeaderAndIsrRequest:
        state = _Lisr.LeaderAndIsrPartitionState(
            topic_name=name,
            partition_index=number,
            controller_epoch=names.tree.controller_epoch(),
            leader=leader,
            leader_epoch=epoch,
            isr=list(isr),
            replicas=list(replicas),
            is_new=is_new,
        )
        topic = _Lisr.LeaderAndIsrTopicState(
            topic_name=name, topic_id=topic_id(names, id_of or name), partition_states=[state]
        )
        request = _Lisr(
            controller_id=1,
            controller_epoch=names.tree.controller_epoch() + controller_epoch,
            broker_epoch=names.tree.broker_epoch(to) + broker_epoch,
            ungrouped_partition_states=[state] if version < 2 else [],
            topic_states=[topic] if version >= 2 else [],
        )
        if version >= 5:
            request.type = kind
        if version >= 7:
            request.is_kraft_controller = kraft
        return request

    return Ask(make, version, to=to)


def stop(
    version: int,
    *wanted: tuple[str, int, int, bool],
    controller_epoch: int = 0,
    broker_epoch: int = 0,
    to: int = 2,
) -> Ask:
    """StopReplica of (topic, partition, leader epoch, delete)."""

    def make(names: Names) -> StopReplicaRequest:
        request = _Stop(
            controller_id=1,
            controller_epoch=names.tree.controller_epoch() + controller_epoch,
            broker_epoch=names.tree.broker_epoch(to) + broker_epoch,
        )
        for name, number, epoch, delete in wanted:
            if version < 3:
                request.delete_partitions = delete
            if version == 0:
                request.ungrouped_partitions.append(
                    _Stop.StopReplicaPartitionV0(topic_name=name, partition_index=number)
                )
            elif version < 3:
                request.topics.append(
                    _Stop.StopReplicaTopicV1(name=name, partition_indexes=[number])
                )
            else:
                part = _Stop.StopReplicaTopicState.StopReplicaPartitionState(
                    partition_index=number, leader_epoch=epoch, delete_partition=delete
                )
                request.topic_states.append(
                    _Stop.StopReplicaTopicState(topic_name=name, partition_states=[part])
                )
        return request

    return Ask(make, version, to=to)


def inform(
    version: int,
    name: str,
    *,
    number: int = 0,
    leader: int = 1,
    epoch: int = 0,
    replicas: Sequence[int] = (1, 2),
    controller_epoch: int = 0,
    broker_epoch: int = 0,
    to: int = 2,
) -> Ask:
    """UpdateMetadata of one partition, with all brokers."""

    def make(names: Names) -> UpdateMetadataRequest:
        state = _Update.UpdateMetadataPartitionState(
            topic_name=name,
            partition_index=number,
            controller_epoch=names.tree.controller_epoch(),
            leader=leader,
            leader_epoch=epoch,
            isr=list(replicas),
            zk_version=3,
            replicas=list(replicas),
        )
        broker = _Update.UpdateMetadataBroker
        topic = _Update.UpdateMetadataTopicState(
            topic_name=name, topic_id=b"\x22" * 16, partition_states=[state]
        )
        return _Update(
            controller_id=1,
            controller_epoch=names.tree.controller_epoch() + controller_epoch,
            broker_epoch=names.tree.broker_epoch(to) + broker_epoch,
            ungrouped_partition_states=[state] if version < 5 else [],
            topic_states=[topic] if version >= 5 else [],
            live_brokers=[
                broker(
                    id=broker_id,
                    v0_host="127.0.0.1",
                    v0_port=port,
                    endpoints=[
                        broker.UpdateMetadataEndpoint(
                            port=port, host="127.0.0.1", listener="PLAINTEXT"
                        )
                    ],
                    rack=None,
                )
                for broker_id, port in names.ports.items()
            ],
        )

    return Ask(make, version, to=to)
