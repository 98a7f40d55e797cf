"""Contexts for tests of the pure parts."""

from collections.abc import Iterable, Mapping

from kafkalike.controller.context import Broker, ControllerContext
from kafkalike.types import Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import BrokerInfo, PartitionState

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TOPIC_ID = bytes(range(16))


def broker(broker_id: int, epoch: int = 0, listener: str = "PLAINTEXT") -> Broker:
    endpoint = Endpoint(listener, "PLAINTEXT", f"host{broker_id}", 9000 + broker_id)
    return Broker(broker_id, epoch or 100 + broker_id, BrokerInfo((endpoint,)))


def context_of(
    brokers: Iterable[int] = (1, 2, 3),
    assignments: Mapping[TopicPartition, ReplicaAssignment | tuple[int, ...]] | None = None,
    states: Mapping[TopicPartition, LeaderAndIsr] | None = None,
    *,
    shutting_down: Iterable[int] = (),
) -> ControllerContext:
    context = ControllerContext()
    for broker_id in brokers:
        context.brokers[broker_id] = broker(broker_id)
    context.shutting_down.update(shutting_down)
    for partition, assignment in (assignments or {}).items():
        if isinstance(assignment, tuple):
            assignment = ReplicaAssignment(assignment)
        context.set_assignment(partition, assignment)
        context.set_topic_id(partition.topic, partition.topic.encode().ljust(16, b"\1"))
    for partition, state in (states or {}).items():
        context.leadership[partition] = PartitionState(state, 1)
    return context
