"""Batches of control requests (reference: controller 16)."""

import pytest

from kafkalike.controller.context import ControllerContext
from kafkalike.controller.requests import BatchNotEmpty, ControlRequest, RequestBatch
from kafkalike.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import PartitionState

from .contexts import T0, T1, broker, context_of

U0 = TopicPartition("u", 0)


def arranged() -> tuple[ControllerContext, RequestBatch]:
    context = context_of(
        (1, 2, 3),
        {T0: (1, 2), T1: ReplicaAssignment((3, 1, 2), (3,), (2,)), U0: (4, 3)},
        {
            T0: LeaderAndIsr(1, 5, (1, 2), partition_epoch=7),
            T1: LeaderAndIsr(2, 6, (2, 1), 1, partition_epoch=8),
        },
        shutting_down=(3,),
    )
    return context, RequestBatch(1, 9, context, "PLAINTEXT")


def kinds(requests: list[ControlRequest]) -> list[tuple[int, str]]:
    return [(r.broker_id, type(r.message).__name__.removesuffix("Request")) for r in requests]


def test_order_and_recipients() -> None:
    _, batch = arranged()
    batch.add_stop_replica((2, 3, -1), T0, delete=False)
    batch.add_leader_and_isr((2, 1, 4, -1), T0, is_new=False)
    assert kinds(batch.take()) == [
        (2, "LeaderAndIsr"),
        (1, "LeaderAndIsr"),
        (1, "UpdateMetadata"),
        (2, "UpdateMetadata"),
        (3, "UpdateMetadata"),
        (2, "StopReplica"),
        (3, "StopReplica"),
    ]
    assert not batch
    assert batch.take() == []


def test_leader_and_isr_content() -> None:
    context, batch = arranged()
    batch.add_leader_and_isr((2,), T1, is_new=False)
    batch.add_leader_and_isr((2,), T0, is_new=True)
    request = batch.take()[0]
    assert request.broker_epoch == 102
    assert request.version == 7
    message = request.message
    assert isinstance(message, LeaderAndIsrRequest)
    Live = LeaderAndIsrRequest.LeaderAndIsrLiveLeader
    State = LeaderAndIsrRequest.LeaderAndIsrPartitionState
    assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (1, 9, 102)
    assert not message.is_kraft_controller and message.type == 0
    assert message.live_leaders == [Live(broker_id=2, host_name="host2", port=9002),
                                    Live(broker_id=1, host_name="host1", port=9001)]  # fmt: skip
    (topic,) = message.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", context.topic_ids["t"])
    assert topic.partition_states == [
        State(partition_index=1, controller_epoch=1, leader=2, leader_epoch=6, isr=[2, 1],
              partition_epoch=8, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2],
              leader_recovery_state=1),
        State(partition_index=0, controller_epoch=1, leader=1, leader_epoch=5, isr=[1, 2],
              partition_epoch=7, replicas=[1, 2], is_new=True),
    ]  # fmt: skip


def test_new_and_delete_stick_within_a_batch_and_the_latest_state_is_sent() -> None:
    context, batch = arranged()
    batch.add_leader_and_isr((1,), T0, is_new=True)
    context.leadership[T0] = PartitionState(LeaderAndIsr(2, 6, (2,)), 9)
    batch.add_leader_and_isr((1,), T0, is_new=False)
    batch.add_stop_replica((1,), T1, delete=True)
    batch.add_stop_replica((1,), T1, delete=False)
    first, *_, last = batch.take()
    assert isinstance(first.message, LeaderAndIsrRequest)
    (state,) = first.message.topic_states[0].partition_states
    assert (state.is_new, state.leader, state.leader_epoch) == (True, 2, 6)
    assert isinstance(last.message, StopReplicaRequest)
    assert last.message.topic_states[0].partition_states[0].delete_partition
    assert last.deleting == (T1,)


def test_update_metadata_content() -> None:
    _, batch = arranged()
    batch.add_update_metadata((2,), (T0, T1, U0))
    (request,) = batch.take()
    message = request.message
    assert isinstance(message, UpdateMetadataRequest)
    assert request.version == 8
    assert [b.id for b in message.live_brokers] == [1, 2, 3]
    endpoint = message.live_brokers[0].endpoints[0]
    assert (endpoint.host, endpoint.port, endpoint.listener, endpoint.security_protocol) == (
        "host1",
        9001,
        "PLAINTEXT",
        0,
    )
    (topic,) = message.topic_states  # u-0 has no leadership yet
    first, second = topic.partition_states
    assert (first.leader, first.leader_epoch, first.zk_version) == (1, 5, 7)
    assert first.offline_replicas == []
    assert second.replicas == [3, 1, 2]
    assert second.offline_replicas == [3]


def test_a_topic_being_deleted_has_no_epochs() -> None:
    context, batch = arranged()
    context.to_delete["t"] = None
    batch.add_update_metadata((1,), (T0,))
    batch.add_stop_replica((1,), T0, delete=True)
    metadata, stop = batch.take()
    assert isinstance(metadata.message, UpdateMetadataRequest)
    state = metadata.message.topic_states[0].partition_states[0]
    assert (state.leader, state.leader_epoch, state.zk_version, state.isr) == (-2, 0, 0, [1, 2])
    assert isinstance(stop.message, StopReplicaRequest)
    assert stop.message.topic_states[0].partition_states[0].leader_epoch == -2


def test_stop_replica_carries_the_epoch_of_its_moment() -> None:
    context, batch = arranged()
    batch.add_stop_replica((1,), T0, delete=False)
    batch.add_stop_replica((1,), U0, delete=False)
    context.leadership[T0] = PartitionState(LeaderAndIsr(2, 6, (2,)), 9)
    (request,) = batch.take()
    assert isinstance(request.message, StopReplicaRequest)
    epochs = [s.leader_epoch for t in request.message.topic_states for s in t.partition_states]
    assert epochs == [5, -1]


def test_epoch_of_a_broker_that_came_back_in_the_meantime() -> None:
    context, batch = arranged()
    batch.add_update_metadata((2,))
    context.brokers[2] = broker(2, epoch=777)
    assert batch.take()[0].broker_epoch == 777


def test_an_unsent_batch_is_an_error() -> None:
    _, batch = arranged()
    batch.begin()
    batch.add_update_metadata((1,))
    with pytest.raises(BatchNotEmpty):
        batch.begin()
    batch.clear()
    batch.begin()


def test_requests_survive_the_wire() -> None:
    _, batch = arranged()
    batch.add_leader_and_isr((2,), T1, is_new=True)
    batch.add_stop_replica((2,), T0, delete=True)
    for request in batch.take():
        encoded = request.message.encode(request.version)
        assert type(request.message).decode(encoded, request.version) == request.message
