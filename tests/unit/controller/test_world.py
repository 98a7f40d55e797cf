"""The controller in a cluster of fake brokers: requests, oddities, and what must never happen."""

import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.controller.api import PREFERRED_ELECTION, UNCLEAN_ELECTION
from kafkalike.controller.journal import Elected, LeadershipChanged, Resigned
from kafkalike.errors import (
    BrokerIdNotRegistered,
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopicException,
    KafkaError,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from kafkalike.messages.cluster import (
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.messages.transactions import AllocateProducerIdsRequest
from kafkalike.metrics import Metrics
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.znodes import (
    ControllerInfo,
    FeatureInfo,
    FinalizedFeature,
    PartitionState,
    ProducerIdBlock,
    TopicInfo,
    encode_reassignments,
)

from .stories import T0, T1, alter_isr, assert_deleted, catch_up, with_topic
from .world import NETWORK_DELAY_S, FakeBroker, World, reassignment_request

INVALID_REPLICA_ASSIGNMENT = 39
NO_REASSIGNMENT_IN_PROGRESS = 85
STEP_S = 0.0005


def cluster(count: int = 3, **settings: Any) -> World:
    world = World(count, **settings)
    with_topic(world)
    return world


def failure_of(deferred: "Deferred[Any]") -> BaseException | None:
    found: list[BaseException] = []

    def keep(failure: Any) -> None:
        found.append(failure.value)

    deferred.addErrback(keep)
    return found[0] if found else None


# -- the office -----------------------------------------------------------------------------------


def test_one_controller_and_the_others_know_it() -> None:
    world = cluster()
    assert world.active.id == 1
    assert [b.controller.active_controller_id for b in world.brokers.values()] == [1, 1, 1]
    assert [b.controller.epoch for b in world.brokers.values()] == [1, 0, 0]
    metrics = world.controller.metrics()
    assert metrics.active_controller_count == 1
    assert metrics.global_partition_count == 2
    assert metrics.active_broker_count == 3
    assert world.brokers[2].controller.metrics().active_controller_count == 0


@pytest.mark.parametrize("steps", range(1, 60))
def test_zombie_changes_nothing(steps: int) -> None:
    """Frozen at some moment of its work; another is elected; thawed, its session still alive."""
    world = cluster(4)
    zombie = world.active
    world.brokers[3].kill()
    world.create_topic("u", [[1, 2], [2, 4]])
    pending = zombie.controller.alter_partition_reassignments(
        reassignment_request({T0: (2, 4), T1: (1, 2)})
    )
    world.clock.advance(steps * STEP_S)
    zombie.zk.freeze()
    world.coordination.delete(paths.CONTROLLER)
    world.settle(2.0)
    successor = world.brokers[2]
    assert successor.controller.is_active or world.brokers[4].controller.is_active
    before = {p: (n.data, n.version) for p, n in world.coordination.tree.nodes.items()}
    mark = len(world.transactions)
    obeyed: list[Any] = []

    def watch(broker: FakeBroker, request: Any) -> None:
        if request.controller_epoch == 1 and broker.controller_epoch == 1:
            obeyed.append(request)

    world.observers.append(watch)
    zombie.zk.thaw()
    world.settle(3.0)
    assert [txn for txn in world.transactions[mark:] if txn.changes] == []
    assert {p: (n.data, n.version) for p, n in world.coordination.tree.nodes.items()} == before
    assert not zombie.controller.is_active
    assert zombie.controller.active_controller_id == world.active.id
    assert obeyed == []
    error = failure_of(pending)
    assert pending.called
    assert error is None or isinstance(error, NotController)
    world.check_agreement()


def test_what_waits_is_refused_when_the_session_ends() -> None:
    world = cluster()
    controller = world.controller
    world.brokers[3].kill()
    world.clock.advance(0.002)
    shutdown = controller.controlled_shutdown(ControlledShutdownRequest(broker_id=2))
    reassignment = controller.alter_partition_reassignments(reassignment_request({T0: (1,)}))
    election = controller.elect_leaders(PREFERRED_ELECTION, [T0])
    listing = controller.list_partition_reassignments(ListPartitionReassignmentsRequest())
    proposal = controller.alter_partition(AlterPartitionRequest(broker_id=1), 3)
    ids = controller.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1))
    features = controller.update_features(UpdateFeaturesRequest(), 1)
    controller.before_session_expired()
    assert not controller.is_active
    assert controller.active_controller_id == -1
    assert isinstance(failure_of(shutdown), StaleControllerEpoch)
    for request in (reassignment, listing, proposal, ids, features):
        assert isinstance(failure_of(request), NotController)
    results: list[Any] = []
    election.addCallback(results.append)
    assert isinstance(results[0][T0].error, NotController)


def test_a_standby_refuses_everything() -> None:
    world = cluster()
    standby = world.brokers[2].controller
    with pytest.raises(StaleControllerEpoch):
        world.ask(standby.controlled_shutdown(ControlledShutdownRequest(broker_id=2)))
    with pytest.raises(NotController):
        world.ask(standby.alter_partition(AlterPartitionRequest(broker_id=1), 3))
    with pytest.raises(NotController):
        world.ask(standby.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1)))
    assert isinstance(
        world.ask(standby.elect_leaders(UNCLEAN_ELECTION, [T0]))[T0].error, NotController
    )


def test_session_expiry_makes_a_new_broker_epoch_and_another_controller() -> None:
    world = cluster()
    old = world.active
    epoch = old.epoch
    old.zk.expire_session()
    world.settle(5.0)
    assert old.epoch > epoch
    assert world.active is not old
    assert world.controller.epoch == 2
    world.check_agreement()
    records = [r for broker_id, r in world.journal if broker_id == old.id]
    assert [type(r) for r in records if isinstance(r, Elected | Resigned)] == [Elected, Resigned]


def test_leftover_of_a_lost_resignation_does_not_block_the_cluster() -> None:
    """`/controller` of this very session, but no office behind it."""
    world = cluster()
    controller = world.controller
    controller._resign("test")  # as after a resignation whose deletion was lost
    assert world.exists(paths.CONTROLLER)
    controller.after_new_session()
    world.settle(10.0)
    assert world.active is not None
    assert world.controller.epoch == 2
    world.check_agreement()


def test_unexpected_error_in_an_event_moves_the_office_on() -> None:
    world = cluster()
    old = world.controller
    office = old._office
    assert office is not None

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    office.partitions.to_new = broken  # type: ignore[assignment,method-assign]
    logging.getLogger("test.controller.1").setLevel(logging.CRITICAL)
    world.create_topic("u", [[1, 2, 3]])
    world.settle(5.0)
    assert world.controller.epoch == 2
    assert world.leader("u") == 1
    world.check_agreement()


def test_an_only_broker_stands_again_after_a_failure() -> None:
    world = World(1)
    world.start_all()
    office = world.controller._office
    assert office is not None

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    office.topics.topic_change = broken  # type: ignore[assignment,method-assign]
    logging.getLogger("test.controller.1").setLevel(logging.CRITICAL)
    world.create_topic("u", [[1]])
    world.settle(0.5)
    assert not world.brokers[1].controller.is_active
    world.settle(2.0)
    assert world.controller.epoch == 2
    assert world.leader("u") == 1


def test_controller_epoch_overwritten_by_somebody() -> None:
    """The guard fails though `/controller` is still ours: a new election heals it."""
    world = cluster()
    world.coordination.set(paths.CONTROLLER_EPOCH, b"7")
    world.create_topic("u", [[1, 2]])
    world.settle(10.0)
    assert world.controller.epoch == 8
    assert world.leader("u") == 1
    world.check_agreement()


def test_kraft_controller_is_a_controller_like_any_other() -> None:
    world = cluster()
    world.coordination.delete(paths.CONTROLLER)
    world.coordination.create(paths.CONTROLLER, ControllerInfo(3000, 0, 1).encode())
    world.settle(5.0)
    assert not any(b.controller.is_active for b in world.brokers.values())
    assert {b.controller.active_controller_id for b in world.brokers.values()} == {3000}


def test_stop_leaves_office_without_a_write() -> None:
    world = cluster()
    mark = len(world.transactions)
    stopped = world.active.controller.stop()
    world.settle(1.0)
    assert stopped.called
    assert world.transactions[mark:] == []


def test_journal_tells_old_and_new_state() -> None:
    world = cluster()
    world.journal.clear()
    world.brokers[2].kill()
    world.settle()
    changes = [r for _, r in world.journal if isinstance(r, LeadershipChanged)]
    first = next(r for r in changes if r.partition == T1)
    assert first.cause == "BrokerChange"
    assert first.old == PartitionState(LeaderAndIsr(2, 0, (2, 3, 1)), 1)
    assert first.new == PartitionState(LeaderAndIsr(3, 1, (3, 1), partition_epoch=1), 1)


# -- requests -------------------------------------------------------------------------------------


def test_controlled_shutdown_errors() -> None:
    world = cluster()

    def ask(broker_id: int, epoch: int) -> Any:
        return world.ask(
            world.controller.controlled_shutdown(
                ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
            )
        )

    with pytest.raises(UnknownServerError):
        ask(9, 5)
    with pytest.raises(BrokerNotAvailable):
        ask(9, -1)
    with pytest.raises(StaleBrokerEpoch):
        ask(2, world.brokers[2].epoch - 1)
    assert ask(2, world.brokers[2].epoch + 1).remaining_partitions == []
    assert ask(2, -1).remaining_partitions == []


def test_controlled_shutdown_of_the_last_in_sync_replica_remains() -> None:
    world = cluster()
    alter_isr(world, "t", (1,))
    answer = world.ask(world.controller.controlled_shutdown(ControlledShutdownRequest(broker_id=1)))
    assert [(p.topic_name, p.partition_index) for p in answer.remaining_partitions] == [("t", 0)]
    assert world.leader("t") == 1


def test_producer_ids() -> None:
    world = cluster()

    def ask(broker_id: int, epoch: int) -> tuple[int, int]:
        answer = world.ask(
            world.controller.allocate_producer_ids(
                AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
            )
        )
        return answer.producer_id_start, answer.producer_id_len

    assert ask(2, world.brokers[2].epoch) == (0, 1000)
    assert ask(3, world.brokers[3].epoch) == (1000, 1000)
    stored = world.coordination.get(paths.PRODUCER_ID_BLOCK)
    assert ProducerIdBlock.decode(stored, "") == ProducerIdBlock(3, 1000, 1999)
    with pytest.raises(BrokerIdNotRegistered):
        ask(9, 1)
    for epoch in (world.brokers[2].epoch - 1, world.brokers[2].epoch + 1):
        with pytest.raises(StaleBrokerEpoch):
            ask(2, epoch)


def test_alter_partition_checks_the_broker() -> None:
    world = cluster()
    for broker_id, epoch in ((9, 1), (1, 1), (1, world.brokers[1].epoch + 1)):
        request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(StaleBrokerEpoch):
            world.ask(world.controller.alter_partition(request, 3))


def test_alter_partition_of_unknown_topics_by_id_and_by_name() -> None:
    world = cluster()
    broker = world.brokers[1]
    Topic = AlterPartitionRequest.TopicData
    partition = Topic.PartitionData(partition_index=0)
    for version, topic, code in (
        (3, Topic(topic_id=b"x" * 16, partitions=[partition]), 100),
        (1, Topic(topic_name="x", partitions=[partition]), 3),
    ):
        request = AlterPartitionRequest(broker_id=1, broker_epoch=broker.epoch, topics=[topic])
        answer = world.ask(world.controller.alter_partition(request, version))
        assert answer.topics[0].partitions[0].error_code == code
        assert answer.topics[0].topic_id == topic.topic_id


def test_alter_partition_told_to_all_without_leader_and_isr() -> None:
    world = cluster()
    seen: list[tuple[int, Any]] = []
    world.observers.append(lambda broker, request: seen.append((broker.id, request)))
    answer = world.alter_isr("t", (1, 2))
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2], 1)
    assert (answer.leader_id, answer.leader_epoch) == (1, 0)
    assert sorted(broker_id for broker_id, _ in seen) == [1, 2, 3]
    assert all(isinstance(request, UpdateMetadataRequest) for _, request in seen)
    again = world.alter_isr("t", (1, 2))
    assert (again.error_code, again.partition_epoch) == (0, 1)


def test_state_changed_behind_the_controllers_back_is_published() -> None:
    """Kafka leaves the leader pending until something else happens to the partition."""
    world = cluster()
    path = paths.partition_state("t", 0)
    stored = PartitionState(LeaderAndIsr(1, 0, (1, 3)), 1)
    world.coordination.set(path, stored.encode())
    state = LeaderAndIsr(1, 0, (1, 2), partition_epoch=0)
    broker = world.brokers[1]
    Topic = AlterPartitionRequest.TopicData
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=broker.epoch,
        topics=[
            Topic(
                topic_id=world.topic("t").topic_id or b"",
                partitions=[
                    Topic.PartitionData(
                        partition_index=0,
                        leader_epoch=state.leader_epoch,
                        partition_epoch=state.partition_epoch,
                        new_isr_with_epochs=[
                            Topic.PartitionData.BrokerState(broker_id=member)
                            for member in state.isr
                        ],
                    )
                ],
            )
        ],
    )
    answer = world.ask(world.controller.alter_partition(request, 3))
    assert answer.topics[0].partitions[0].error_code == 95
    assert world.state("t").leader_and_isr == LeaderAndIsr(1, 1, (1, 3), partition_epoch=2)
    assert broker.hosted[T0].isr == (1, 3)
    assert broker.hosted[T0].partition_epoch == 2
    world.check_agreement()


def test_election_results() -> None:
    world = cluster()
    unknown = TopicPartition("x", 0)
    results = world.elect(PREFERRED_ELECTION, [T0, unknown])
    assert isinstance(results[T0].error, ElectionNotNeeded)
    assert isinstance(results[unknown].error, UnknownTopicOrPartition)
    world.brokers[2].kill()
    world.settle()
    results = world.elect(PREFERRED_ELECTION, [T1])
    assert isinstance(results[T1].error, PreferredLeaderNotAvailable)
    results = world.elect(UNCLEAN_ELECTION, [T1])
    assert isinstance(results[T1].error, ElectionNotNeeded)
    world.create_topic("u", [[2]])
    world.settle()
    results = world.elect(UNCLEAN_ELECTION, [TopicPartition("u", 0)])
    assert isinstance(results[TopicPartition("u", 0)].error, EligibleLeadersNotAvailable)
    world.delete_topic("u")
    world.settle()
    results = world.elect(PREFERRED_ELECTION, [TopicPartition("u", 0)])
    assert isinstance(results[TopicPartition("u", 0)].error, InvalidTopicException)


def test_reassignment_errors() -> None:
    world = cluster(4)
    world.brokers[4].kill()
    world.settle()
    unknown = TopicPartition("x", 0)
    assert world.reassign({T0: ()}) == {T0: INVALID_REPLICA_ASSIGNMENT}
    assert world.reassign({T0: (1, 1)}) == {T0: INVALID_REPLICA_ASSIGNMENT}
    assert world.reassign({T0: (1, -1)}) == {T0: INVALID_REPLICA_ASSIGNMENT}
    assert world.reassign({T0: (1, 4)}) == {T0: INVALID_REPLICA_ASSIGNMENT}
    assert world.reassign({T0: None}) == {T0: NO_REASSIGNMENT_IN_PROGRESS}
    assert world.reassign({unknown: (1,)}) == {unknown: 3}
    assert world.topic("t").partitions[0] == ReplicaAssignment((1, 2, 3))


def test_reassignment_to_the_same_brokers_in_another_order() -> None:
    world = cluster()
    assert world.reassign({T0: (3, 2, 1)}) == {T0: 0}
    assert world.topic("t").partitions[0] == ReplicaAssignment((3, 2, 1))
    assert world.leader("t") == 1
    world.check_agreement()


def test_listing_reassignments() -> None:
    world = cluster(4)
    world.reassign({T0: (2, 3, 4)})

    def listed(topics: Any) -> list[tuple[str, int, list[int], list[int], list[int]]]:
        answer = world.ask(
            world.controller.list_partition_reassignments(
                ListPartitionReassignmentsRequest(topics=topics)
            )
        )
        return [
            (t.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
            for t in answer.topics
            for p in t.partitions
        ]

    Topics = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    row = ("t", 0, [2, 3, 4, 1], [4], [1])
    assert listed(None) == [row]
    assert listed([Topics(name="t", partition_indexes=[0, 1])]) == [row]
    assert listed([Topics(name="t", partition_indexes=[1])]) == []
    catch_up(world, "t", 4)
    assert listed(None) == []


def test_a_second_target_replaces_the_first() -> None:
    world = World(5)
    with_topic(world)
    world.reassign({T0: (2, 3, 4)})
    assert T0 in world.brokers[4].hosted
    assert world.reassign({T0: (2, 3, 5)}) == {T0: 0}
    assert T0 not in world.brokers[4].hosted
    assert world.topic("t").partitions[0] == ReplicaAssignment((2, 3, 5, 1), (5,), (1,))
    catch_up(world, "t", 5)
    assert world.topic("t").partitions[0] == ReplicaAssignment((2, 3, 5))
    world.check_agreement()


def test_replacing_a_target_whose_replica_leads() -> None:
    """The dropped replica is the leader: another takes over at once, not when the move is done."""
    world = World(5)
    with_topic(world)
    world.reassign({T0: (4, 5, 1)})
    world.alter_isr("t", (1, 4))
    world.brokers[2].kill()
    world.brokers[1].kill()
    world.settle()
    assert world.leader("t") == 4
    world.brokers[1].start()
    world.settle()
    world.alter_isr("t", (4, 1))
    assert world.reassign({T0: (5, 1, 3)}) == {T0: 0}
    assert world.leader("t") == 1
    world.check_agreement()


def test_cancelling_may_not_delete_the_only_copy() -> None:
    """The origin was never led; its new replicas hold all there is."""
    world = cluster(4)
    world.brokers[3].kill()
    world.settle()
    world.create_topic("u", [[3]])
    world.settle()
    moved = TopicPartition("u", 0)
    assert world.reassign({moved: (2, 4, 3)}) == {moved: 0}
    world.settle()
    world.elect(UNCLEAN_ELECTION, [moved])
    assert world.isr("u") == (2, 4)
    assert world.reassign({moved: None}) == {moved: INVALID_REPLICA_ASSIGNMENT}
    assert world.isr("u") == (2, 4)
    assert moved in world.brokers[2].hosted
    world.brokers[3].start()
    world.settle()
    assert world.alter_isr("u", (2, 4, 3)).error_code == 0
    world.settle()
    assert world.topic("u").partitions[0] == ReplicaAssignment((2, 4, 3))
    world.check_agreement()


def test_the_origin_stays_while_no_target_is_online() -> None:
    """The target is in sync, but at this moment all of it is down: nothing is taken away."""
    world = cluster(4)
    world.reassign({T0: (4,)})
    world.brokers[4].up = False  # goes down while it is being taken into the ISR
    world.brokers[4].controller.stop()
    state = world.state("t").leader_and_isr
    grown = PartitionState(
        LeaderAndIsr(1, state.leader_epoch, (*state.isr, 4)), world.controller.epoch
    )
    world.coordination.set(paths.partition_state("t", 0), grown.encode())
    world.brokers[4].zk.expire_session()
    world.settle()
    assert world.leader("t") == 1
    assert T0 in world.brokers[2].hosted
    assert world.topic("t").partitions[0].is_reassigning


def test_partitions_added_during_a_reassignment_are_kept() -> None:
    """A broker rewrites the topic node just before the controller does."""
    world = cluster(4)
    info = world.topic("t")
    asked = world.controller.alter_partition_reassignments(reassignment_request({T0: (2, 3, 4)}))
    more = dict(info.partitions) | {2: ReplicaAssignment((3, 1))}
    world.coordination.set(paths.topic("t"), TopicInfo(more, info.topic_id).encode())
    world.settle(5.0)
    assert asked.called
    assert world.leader("t", 2) == 3
    assert world.topic("t").partitions[2].replicas == (3, 1)
    assert world.topic("t").partitions[0].adding == (4,)


def test_partitions_added_during_deletion_are_taken_away() -> None:
    world = cluster()
    world.brokers[3].kill()
    world.settle()
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    info = world.topic("t")
    more = dict(info.partitions) | {2: ReplicaAssignment((1, 2))}
    world.coordination.set(paths.topic("t"), TopicInfo(more, info.topic_id).encode())
    world.settle()
    assert sorted(world.topic("t").partitions) == [0, 1]
    assert world.topic("t").topic_id == info.topic_id
    world.brokers[3].start()
    world.settle(5.0)
    assert_deleted(world, "t")


def test_deletion_ends_a_reassignment() -> None:
    """Its leader is gone as well: waiting for the move would be waiting for ever."""
    world = cluster(4)
    world.coordination.create(paths.REASSIGN_PARTITIONS, encode_reassignments({T1: (4,)}))
    world.settle()
    alter_isr(world, "t", (2,), 1)
    world.brokers[2].kill()
    world.settle()
    assert world.leader("t", 1) == -1
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert not world.exists(paths.REASSIGN_PARTITIONS)
    assert world.exists(paths.topic("t"))
    world.active.kill()
    world.settle()
    for broker_id in (1, 2):
        world.brokers[broker_id].start()
    world.settle(10.0)
    assert_deleted(world, "t")
    assert T1 not in world.brokers[4].hosted


def test_nothing_is_moved_any_more_once_a_topic_is_to_be_deleted() -> None:
    """The new replica's broker was away, and deletion waits for it: nobody else hears of its return."""
    world = cluster(4)
    assert world.reassign({T1: (2, 4)}) == {T1: 0}
    world.brokers[4].kill()
    world.settle()
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert world.exists(paths.topic("t"))
    told: list[int] = []

    def watch(broker: FakeBroker, request: Any) -> None:
        if isinstance(request, LeaderAndIsrRequest) and any(
            topic.topic_name == "t" for topic in request.topic_states
        ):
            told.append(broker.id)

    world.observers.append(watch)
    world.brokers[4].start()
    world.settle(10.0)
    # As any broker that comes back it is told once what it holds.
    assert told == [4]
    assert_deleted(world, "t")


def test_deletion_disabled() -> None:
    world = cluster(delete_topic_enable=False)
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert world.exists(paths.topic("t"))
    assert not world.exists(paths.delete_topic("t"))


def test_deletion_of_a_topic_that_is_not_there() -> None:
    world = cluster()
    world.coordination.create(paths.delete_topic("x"))
    world.settle()
    assert not world.exists(paths.delete_topic("x"))


def test_a_broker_that_refuses_deletion_delays_it_until_it_restarts() -> None:
    world = cluster()
    world.brokers[2].refuse_deletion = 56
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert world.exists(paths.topic("t"))
    world.brokers[2].refuse_deletion = 0
    world.brokers[2].kill()
    world.settle()
    world.brokers[2].start()
    world.settle(5.0)
    assert_deleted(world, "t")


def test_topic_recreated_after_deletion_is_another_topic() -> None:
    world = cluster()
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert_deleted(world, "t")
    world.create_topic("t", [[3, 2]], topic_id=b"\7" * 16)
    world.settle()
    assert world.brokers[3].hosted[T0].topic_id == b"\7" * 16
    world.check_agreement()


def test_topic_removed_from_zookeeper_by_hand_is_forgotten() -> None:
    world = cluster()
    for path in sorted(
        (p for p in world.coordination.tree.nodes if p.startswith(paths.topic("t"))), reverse=True
    ):
        world.coordination.delete(path)
    world.settle()
    assert world.controller.metrics().global_topic_count == 0


# -- brokers and their words ----------------------------------------------------------------------


def test_unclean_election_when_a_topic_comes_to_allow_it() -> None:
    world = World(4)
    for broker_id in (4, 1, 2, 3):
        world.brokers[broker_id].start()
        world.settle()
    world.create_topic("t", [[1, 2, 3]])
    world.settle()
    alter_isr(world, "t", (1,))
    world.brokers[1].kill()
    world.settle()
    assert world.leader("t") == -1
    assert world.controller.metrics().offline_partitions_count == 1
    world.controller.on_topic_config_changed("t", False)
    world.settle()
    assert world.leader("t") == -1
    world.coordination.set(
        paths.topic_config("t"),
        b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}',
    )
    world.controller.on_topic_config_changed("t", True)
    world.settle()
    assert world.leader("t") == 2
    assert world.controller.metrics().unclean_leader_elections_total == 1


def test_unclean_election_when_the_default_comes_to_allow_it() -> None:
    world = World(4)
    for broker_id in (4, 1, 2, 3):
        world.brokers[broker_id].start()
        world.settle()
    world.create_topic("t", [[1, 2, 3]])
    world.settle()
    alter_isr(world, "t", (1,))
    world.brokers[1].kill()
    world.settle()
    world.active.unclean_default = True
    world.controller.on_broker_default_unclean_changed(True)
    world.settle()
    assert world.leader("t") == 2


def test_leaders_are_balanced_by_timer() -> None:
    world = cluster(auto_leader_rebalance_enable=True, leader_imbalance_check_interval_s=60.0)
    world.brokers[2].kill()
    world.settle()
    world.brokers[2].start()
    world.settle()
    world.alter_isr("t", (*world.isr("t", 1), 2), 1)
    assert world.leader("t", 1) == 3
    assert world.controller.metrics().preferred_replica_imbalance_count == 1
    world.settle(61.0)
    assert world.leader("t", 1) == 2
    world.check_agreement()


def test_changed_endpoints_are_told_to_all() -> None:
    world = cluster()
    seen: list[Any] = []
    world.observers.append(lambda broker, request: seen.append(request))
    path = paths.broker(2)
    data = world.coordination.get(path)
    assert data is not None
    world.coordination.set(path, data.replace(b"host2", b"elsewhere"))
    world.settle()
    hosts = {b.endpoints[0].host for r in seen for b in r.live_brokers}
    assert hosts == {"host1", "elsewhere", "host3"}
    seen.clear()
    rewritten = world.coordination.get(path)
    assert rewritten is not None
    world.coordination.set(path, rewritten.replace(b"{", b'{"rack":"r",', 1))
    world.settle()
    assert seen == []


def test_broker_without_the_inter_broker_listener_is_ignored() -> None:
    world = cluster()
    world.coordination.create(
        paths.broker(9),
        b'{"version":5,"endpoints":["OTHER://h:1"],"jmx_port":-1,"timestamp":"0",'
        b'"listener_security_protocol_map":{"OTHER":"PLAINTEXT"},"host":null,"port":-1}',
    )
    world.settle()
    assert world.brokers[1].alive == [1, 2, 3]
    data = world.coordination.get(paths.broker(9))
    assert data is not None
    world.brokers[9] = world.add_broker(9)
    world.coordination.set(
        paths.broker(9), data.replace(b"OTHER", b"PLAINTEXT").replace(b"h:1", b"h:9009")
    )
    world.settle()
    assert world.brokers[1].alive == [1, 2, 3, 9]


def test_corrupt_znodes_stop_nobody_else() -> None:
    world = cluster()
    logging.getLogger("test.controller.1").setLevel(logging.CRITICAL)
    world.coordination.create(paths.topic("bad"), b"{")
    world.coordination.create(paths.broker(7), b"no json")
    world.coordination.create(f"{paths.BROKER_IDS}/x", b"")
    world.coordination.create(paths.REASSIGN_PARTITIONS, b"[]")
    world.coordination.create(paths.PREFERRED_REPLICA_ELECTION, b"")
    world.coordination.create(f"{paths.ISR_CHANGE_NOTIFICATION}/isr_change_", b"?", 2)
    world.coordination.create(f"{paths.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_", b"?", 2)
    world.create_topic("good", [[1, 2, 3]])
    world.settle(5.0)
    assert world.leader("good") == 1
    assert world.controller.epoch == 1
    for path in (paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION):
        assert not world.exists(path)
    assert world.coordination.children(paths.ISR_CHANGE_NOTIFICATION) == []
    world.coordination.set(paths.partition_state("t", 0), b"{}")
    world.coordination.set(paths.topic_config("t"), b"{")
    world.brokers[3].kill()
    world.settle()
    assert 3 not in world.isr("t", 1)
    logging.getLogger("test.controller.2").setLevel(logging.CRITICAL)
    world.brokers[1].kill()
    world.settle()
    assert world.controller.epoch == 2
    assert world.leader("good") == 2


def test_topic_that_is_repaired_is_taken_up_and_its_old_state_too() -> None:
    """A leftover state node: Kafka would leave the partition without a leader."""
    world = cluster()
    logging.getLogger("test.controller.1").setLevel(logging.CRITICAL)
    leftover = PartitionState(LeaderAndIsr(9, 4, (9, 2)), 1)
    world.coordination.create(paths.partition_state("u", 0), leftover.encode())
    world.settle()
    info = TopicInfo({0: ReplicaAssignment((1, 2))}, b"u" * 16)
    world.coordination.set(paths.topic("u"), info.encode())
    world.settle()
    assert world.state("u").leader_and_isr == LeaderAndIsr(2, 5, (2,), partition_epoch=1)
    assert world.brokers[2].hosted[TopicPartition("u", 0)].leader == 2
    world.check_agreement()


def test_replica_taken_away_while_its_broker_is_down_is_deleted_later() -> None:
    world = cluster()
    world.brokers[3].kill()
    world.settle()
    assert world.reassign({T0: (1, 2)}) == {T0: 0}
    assert T0 in world.brokers[3].hosted
    world.brokers[3].start()
    world.settle()
    assert T0 not in world.brokers[3].hosted
    assert T1 in world.brokers[3].hosted
    world.check_agreement()


def test_topic_without_id_gets_one() -> None:
    world = cluster()
    world.coordination.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1,2]}}')
    world.settle()
    topic_id = world.topic("old").topic_id
    assert topic_id is not None and len(topic_id) == 16
    assert world.brokers[2].hosted[TopicPartition("old", 0)].topic_id == topic_id


def test_old_leaders_isr_changes_are_taken_over() -> None:
    world = cluster()
    stored = PartitionState(LeaderAndIsr(1, 0, (1, 2)), 1)
    world.coordination.set(paths.partition_state("t", 0), stored.encode())
    world.coordination.create(
        f"{paths.ISR_CHANGE_NOTIFICATION}/{paths.ISR_CHANGE_PREFIX}",
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        2,
    )
    world.settle()
    assert world.coordination.children(paths.ISR_CHANGE_NOTIFICATION) == []
    assert world.alter_isr("t", (1,)).error_code == 0


def test_state_written_by_a_later_controller_is_not_touched() -> None:
    world = cluster()
    stored = PartitionState(LeaderAndIsr(2, 3, (2, 3)), 9)
    world.coordination.set(paths.partition_state("t", 0), stored.encode())
    world.brokers[2].kill()
    world.settle()
    assert world.state("t").controller_epoch == 9
    assert world.leader("t") == 2


def test_failed_directory_of_a_follower() -> None:
    world = cluster()
    broker = world.brokers[3]
    broker.failed_dirs.add(T0)
    path = f"{paths.LOG_DIR_EVENT_NOTIFICATION}/{paths.LOG_DIR_EVENT_PREFIX}"
    world.coordination.create(path, b'{"version":1,"broker":3,"event":1}', 2)
    world.settle()
    assert world.isr("t", 0) == (1, 2)
    assert world.isr("t", 1) == (2, 3, 1)
    broker.kill()
    world.settle()
    broker.failed_dirs.clear()
    broker.start()
    world.settle()
    assert world.alter_isr("t", (1, 2, 3)).error_code == 0


# -- sending --------------------------------------------------------------------------------------


def test_requests_wait_for_a_broker_that_does_not_listen_yet() -> None:
    world = cluster()
    broker = world.brokers[3]
    broker.up = False
    world.create_topic("u", [[3, 1]])
    world.settle(5.0)
    assert world.leader("u") == 3
    broker.up = True
    world.settle(1.0)
    assert broker.hosted[TopicPartition("u", 0)].leader == 3
    world.check_agreement()


def test_unanswered_request_is_sent_again() -> None:
    world = cluster(request_timeout_s=5.0)
    broker = world.brokers[3]
    seen: list[Any] = []
    world.observers.append(
        lambda b, r: seen.append(r) if b is broker and isinstance(r, LeaderAndIsrRequest) else None
    )
    broker.answering = False
    world.create_topic("u", [[3, 1]])
    world.settle(12.0)
    assert len(seen) == 3
    broker.answering = True
    world.settle(12.0)
    assert len(seen) == 4
    assert seen[0] == seen[3]


def test_order_of_requests_per_broker_is_kept() -> None:
    world = cluster()
    seen: dict[int, list[Any]] = {1: [], 2: [], 3: []}
    world.observers.append(lambda broker, request: seen[broker.id].append(request))
    world.create_topic("u", [[1, 2, 3]])
    world.coordination.create(paths.delete_topic("u"))
    world.settle(5.0)
    for requests in seen.values():
        kinds = [type(r) for r in requests if not isinstance(r, UpdateMetadataRequest)]
        assert kinds == [LeaderAndIsrRequest, StopReplicaRequest, StopReplicaRequest]


def test_a_broker_hears_who_is_alive_before_it_hears_of_leaders() -> None:
    world = cluster()
    first: dict[tuple[int, int], type] = {}

    def watch(broker: FakeBroker, request: Any) -> None:
        first.setdefault((broker.id, request.controller_epoch), type(request))

    world.observers.append(watch)
    world.brokers[1].kill()
    world.settle()
    assert first[2, 2] is first[3, 2] is UpdateMetadataRequest


def test_too_long_a_queue_moves_the_office_on() -> None:
    world = World(3)
    for broker in world.brokers.values():
        broker.queue_limit = 5
    with_topic(world)
    world.brokers[3].answering = False
    for isr in [(1, 2), (1, 2, 3)] * 4:
        world.run(swallow(world.alter_isr, "t", isr))
        world.settle(1.0)
    world.brokers[3].answering = True
    world.settle(60.0)
    assert max(b.controller.epoch for b in world.brokers.values()) > 1
    world.check_agreement()


async def swallow(function: Any, *args: Any) -> None:
    try:
        function(*args)
    except (KafkaError, AssertionError):
        return


# -- features -------------------------------------------------------------------------------------


def test_feature_node_is_made_and_upgraded() -> None:
    world = World(1)
    world.start_all()
    assert FeatureInfo.decode(world.coordination.get(paths.FEATURE), "") == FeatureInfo()
    old = FeatureInfo(True, {"f": FinalizedFeature(2, 1)}, 1)
    for stored, expected in (
        (old.encode(), FeatureInfo(True, {"f": FinalizedFeature(2)})),
        (FeatureInfo(False).encode(), FeatureInfo()),
        (b"no json", FeatureInfo()),
    ):
        world = World(1)
        world.coordination.create(paths.FEATURE, stored)
        world.coordination.create(paths.CONTROLLER_EPOCH, b"4")
        logging.getLogger("test.controller.1").setLevel(logging.CRITICAL)
        world.start_all()
        assert FeatureInfo.decode(world.coordination.get(paths.FEATURE), "") == expected
        assert world.brokers[1].controller.epoch == 5


def test_update_features() -> None:
    world = cluster()
    Update = UpdateFeaturesRequest.FeatureUpdateKey
    request = UpdateFeaturesRequest(
        feature_updates=[
            Update(feature="f", max_version_level=1, upgrade_type=1),
            Update(feature="", max_version_level=1, upgrade_type=1),
            Update(feature="g", max_version_level=0, upgrade_type=1),
            Update(feature="g", max_version_level=0, upgrade_type=2),
            Update(feature="g", max_version_level=1, upgrade_type=7),
        ]
    )
    answer = world.ask(world.controller.update_features(request, 1))
    assert [result.error_code for result in answer.results] == [42] * 5
    assert answer.error_code == 0


def test_metrics_registry() -> None:
    world = World(3)
    registry = Metrics()
    world.brokers[1].metrics = registry
    with_topic(world)
    world.brokers[2].kill()
    world.settle()

    def value(type_: str, name: str, **tags: str) -> float:
        return registry.value("kafka.controller", type_, name, **tags)

    assert value("KafkaController", "ActiveControllerCount") == 1
    assert value("KafkaController", "GlobalPartitionCount") == 2
    assert value("KafkaController", "PreferredReplicaImbalanceCount") == 1
    assert value("KafkaController", "ActiveBrokerCount") == 2
    assert value("ControllerStats", "LeaderElectionRateAndTimeMs") >= 3
    assert value("ControllerEventManager", "EventQueueTimeMs") > 3
    tags = {"broker-id": "3"}
    assert value("ControllerChannelManager", "QueueSize", **tags) == 0
    assert value("ControllerChannelManager", "RequestRateAndQueueTimeMs", **tags) > 3
    world.brokers[1].kill()
    world.settle()
    assert value("KafkaController", "ActiveControllerCount") == 0
    assert not [name for name, _ in registry if name.tags]


# -- size -----------------------------------------------------------------------------------------


def test_many_partitions_need_few_round_trips() -> None:
    """2,000 partitions: creation, a dead broker and a failover each take tens of operations."""
    world = World(3)
    world.start_all()
    operations: list[str] = []

    def count(kind: str, _: tuple[str, ...]) -> bool:
        operations.append(kind)
        return False

    for broker in world.brokers.values():
        broker.zk.fail_next(count, applied=False)
    world.create_topic("big", [[(n + k) % 3 + 1 for k in range(3)] for n in range(2000)])
    world.settle()
    assert len(operations) < 30
    operations.clear()
    world.brokers[3].kill()
    world.settle()
    assert len(operations) < 40
    operations.clear()
    world.brokers[1].kill()
    world.settle()
    assert len(operations) < 80
    world.check_agreement()
    assert all(world.leader("big", n) == 2 for n in range(2000))


def test_delays_add_up_to_little() -> None:
    """A topic is there a few network delays after its creation: nothing polls."""
    world = cluster()
    world.create_topic("u", [[1, 2, 3]])
    world.clock.advance(20 * NETWORK_DELAY_S)
    assert all(TopicPartition("u", 0) in broker.hosted for broker in world.brokers.values())
