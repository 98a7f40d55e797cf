"""The pure parts: what follows from facts."""

import itertools

import pytest

from kafkalike.controller.balance import imbalance_count, plan_rebalance, refuse_election
from kafkalike.controller.brokers import plan_broker_change, plan_offline_dirs
from kafkalike.controller.context import Replica
from kafkalike.controller.controller import deletion_errors
from kafkalike.controller.deletion import has_offline_replica, plan_replica_results
from kafkalike.controller.features import judge_update, supports, upgraded
from kafkalike.controller.reassignment import check_target, is_complete, plan_assignment
from kafkalike.controller.replicas import plan_isr_removal, without_replica
from kafkalike.controller.requests import ControlRequest
from kafkalike.controller.shutdown import plan_shutdown, still_led
from kafkalike.controller.status import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    PartitionStatus,
    ReplicaStatus,
)
from kafkalike.controller.topics import plan_partition_change, plan_topic_change
from kafkalike.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidTopicException,
    UnknownTopicOrPartition,
)
from kafkalike.messages.cluster import UpdateFeaturesRequest
from kafkalike.messages.control import (
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import (
    BrokerInfo,
    FeatureInfo,
    FeatureRange,
    FinalizedFeature,
    TopicInfo,
)

from .contexts import T0, T1, broker, context_of

# -- states ---------------------------------------------------------------------------------------


def test_legal_partition_states() -> None:
    table = {
        "NEW": "NON_EXISTENT",
        "ONLINE": "NEW ONLINE OFFLINE",
        "OFFLINE": "NEW ONLINE OFFLINE",
        "NON_EXISTENT": "OFFLINE",
    }
    assert {
        target.name: {s.name for s in sources} for target, sources in PARTITION_PREDECESSORS.items()
    } == {target: set(sources.split()) for target, sources in table.items()}
    assert [status.value for status in PartitionStatus] == [0, 1, 2, 3]


def test_legal_replica_states() -> None:
    table = {
        "NEW": "NON_EXISTENT",
        "ONLINE": "NEW ONLINE OFFLINE DELETION_INELIGIBLE",
        "OFFLINE": "NEW ONLINE OFFLINE DELETION_INELIGIBLE",
        "DELETION_STARTED": "OFFLINE",
        "DELETION_SUCCESSFUL": "DELETION_STARTED",
        "DELETION_INELIGIBLE": "OFFLINE DELETION_STARTED",
        "NON_EXISTENT": "DELETION_SUCCESSFUL",
    }
    assert {
        target.name: {s.name for s in sources} for target, sources in REPLICA_PREDECESSORS.items()
    } == {target: set(sources.split()) for target, sources in table.items()}
    assert [status.value for status in ReplicaStatus] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("leader", "isr", "gone", "expected"),
    [
        (1, (1, 2, 3), 3, (1, (1, 2))),
        (1, (1, 2, 3), 1, (-1, (2, 3))),
        (1, (1,), 1, (-1, (1,))),
        (-1, (1,), 1, (-1, (1,))),
        (1, (1, 2), 3, None),
    ],
)
def test_isr_removal(
    leader: int, isr: tuple[int, ...], gone: int, expected: tuple[int, tuple[int, ...]] | None
) -> None:
    state = LeaderAndIsr(leader, 4, isr, 0, 9)
    planned = plan_isr_removal(state, gone)
    if expected is None:
        assert planned is None
    else:
        assert planned == LeaderAndIsr(expected[0], 5, expected[1], 0, 9)


def test_replica_ceases_to_exist() -> None:
    moving = ReplicaAssignment((3, 1, 2), (3,), (2,))
    assert without_replica(moving, 2) == ReplicaAssignment((3, 1), (3,), ())
    assert without_replica(moving, 3) == ReplicaAssignment((1, 2), (), (2,))


# -- brokers --------------------------------------------------------------------------------------


def test_new_bounced_and_dead_brokers() -> None:
    context = context_of((1, 2, 3, 4))
    registered = {1: broker(1), 2: broker(2, 999), 5: broker(5), 4: broker(4, 50)}
    changes = plan_broker_change(context, registered)
    assert (changes.new, changes.bounced, changes.dead) == ((5,), (2,), (3,))


def test_failed_directories_from_an_answer() -> None:
    context = context_of((1,), {T0: (1,), T1: (1,), TopicPartition("t", 2): (1,)})
    context.offline_dirs[1] = {T0: None, TopicPartition("t", 2): None}
    Error = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    Topic = LeaderAndIsrResponse.LeaderAndIsrTopicError
    response = LeaderAndIsrResponse(
        topics=[
            Topic(
                topic_id=context.topic_ids["t"],
                partition_errors=[
                    Error(partition_index=0, error_code=0),
                    Error(partition_index=1, error_code=56),
                    Error(partition_index=2, error_code=11),
                ],
            ),
            Topic(topic_id=b"?" * 16, partition_errors=[Error(partition_index=0, error_code=56)]),
        ]
    )
    now, newly = plan_offline_dirs(context, 1, response)
    assert list(now) == [TopicPartition("t", 2), T1]
    assert newly == [T1]


def test_shutdown_concerns_what_has_other_replicas_and_a_leader() -> None:
    u = [TopicPartition("u", n) for n in range(4)]
    context = context_of(
        (1, 2),
        {u[0]: (1, 2), u[1]: (2, 1), u[2]: (1,), u[3]: (1, 2), T0: (1, 2)},
        {
            u[0]: LeaderAndIsr(1, 0, (1, 2)),
            u[1]: LeaderAndIsr(2, 0, (1, 2)),
            u[2]: LeaderAndIsr(1, 0, (1,)),
            T0: LeaderAndIsr(1, 0, (1,)),
        },
    )
    context.to_delete["t"] = None
    assert plan_shutdown(context, 1) == ([u[0]], [u[1]])
    assert still_led(context, 1) == [u[0]]


# -- topics ---------------------------------------------------------------------------------------


def test_topics_that_came_and_went() -> None:
    context = context_of((), {T0: (1,), TopicPartition("gone", 0): (1,)})
    changes = plan_topic_change(context, ["a", "t"])
    assert (changes.added, changes.vanished) == (("a",), ("gone",))


def test_only_new_partitions_are_taken_from_a_topic_node() -> None:
    context = context_of((), {T0: (1, 2)})
    info = TopicInfo({0: ReplicaAssignment((3,)), 1: ReplicaAssignment((2, 1))})
    assert plan_partition_change(context, "t", info) == {1: ReplicaAssignment((2, 1))}


def test_removed_topic_leaves_nothing() -> None:
    context = context_of((1,), {T0: (1,)}, {T0: LeaderAndIsr(1, 0, (1,))})
    context.partition_statuses[T0] = PartitionStatus.ONLINE
    context.set_replica_status(Replica(T0, 1), ReplicaStatus.ONLINE)
    context.offline_dirs[1] = {T0: None}
    for queue in (context.to_delete, context.deletion_started, context.ineligible):
        queue["t"] = None
    context.reassigning[T0] = None
    context.remove_topic("t")
    empty = context_of((1,))
    empty.offline_dirs[1] = {}
    assert context == empty


def test_what_a_deletion_answer_says() -> None:
    deleted, failed = plan_replica_results(3, {T0: 0, T1: 56})
    assert (deleted, failed) == ([Replica(T0, 3)], [Replica(T1, 3)])
    request = ControlRequest(3, 1, StopReplicaRequest(), 4, (T0, T1))
    Error = StopReplicaResponse.StopReplicaPartitionError
    listed = [Error(topic_name="t", partition_index=0, error_code=0)]
    assert deletion_errors(request, StopReplicaResponse(partition_errors=listed)) == {
        T0: 0,
        T1: -1,
    }
    refused = StopReplicaResponse(error_code=77)
    assert deletion_errors(request, refused) == {T0: 77, T1: 77}


def test_replica_offline_by_broker_or_directory() -> None:
    context = context_of((1, 2), {T0: (1, 2)})
    assert not has_offline_replica(context, "t")
    context.offline_dirs[2] = {T0: None}
    assert has_offline_replica(context, "t")


# -- reassignment ---------------------------------------------------------------------------------


def test_targets() -> None:
    context = context_of((1, 2, 3), {T0: (1, 2, 9)}, shutting_down=(3,))
    assert check_target(context, T0, (2, 1)) is None
    assert check_target(context, T0, (9, 1)) is None  # dead, but it has its replica already
    for target in ((), (1, 1), (1, -1), (1, 3), (1, 7)):
        assert isinstance(check_target(context, T0, target), InvalidReplicaAssignment)


def test_planned_assignments() -> None:
    context = context_of((), {T0: (1, 2, 3), T1: ReplicaAssignment((4, 1, 2), (4,), (2,))})
    assert plan_assignment(context, T0, (2, 3, 4)) == ReplicaAssignment(
        (2, 3, 4, 1), adding=(4,), removing=(1,)
    )
    assert plan_assignment(context, T0, (3, 2, 1)) == ReplicaAssignment((3, 2, 1))
    assert plan_assignment(context, T0, None) is None
    assert plan_assignment(context, T1, None) == ReplicaAssignment((1, 2))
    assert plan_assignment(context, T1, (5, 1)) == ReplicaAssignment((5, 1, 2), (5,), (2,))


def test_completion() -> None:
    moving = ReplicaAssignment((3, 4, 1), (3, 4), (1,))
    context = context_of((1, 3), {T0: moving, T1: (1,)})
    assert is_complete(context, T1, ())
    assert not is_complete(context, T0, (1, 3))
    assert is_complete(context, T0, (4, 1, 3))
    assert not is_complete(context_of((1,), {T0: moving}), T0, (4, 1, 3))


def test_assignment_algebra() -> None:
    for origin in itertools.permutations((1, 2, 3), 2):
        for target in itertools.permutations((1, 2, 3, 4), 3):
            moving = ReplicaAssignment(origin).reassign_to(target)
            assert moving.target == target
            assert set(moving.origin) == set(origin)
            assert set(moving.replicas) == {*origin, *target}


# -- balance --------------------------------------------------------------------------------------


def test_when_an_election_is_not_held() -> None:
    context = context_of(
        (1, 2),
        {T0: (1, 2), T1: (3, 2)},
        {T0: LeaderAndIsr(1, 0, (1,)), T1: LeaderAndIsr(3, 0, (3,))},
    )
    unknown = TopicPartition("x", 0)
    for unclean in (True, False):
        assert isinstance(
            refuse_election(context, unknown, unclean=unclean), UnknownTopicOrPartition
        )
        assert isinstance(refuse_election(context, T0, unclean=unclean), ElectionNotNeeded)
    assert refuse_election(context, T1, unclean=True) is None
    assert isinstance(refuse_election(context, T1, unclean=False), ElectionNotNeeded)
    context.to_delete["t"] = None
    assert isinstance(refuse_election(context, T0, unclean=True), InvalidTopicException)


def test_rebalance_above_the_threshold_only() -> None:
    parts = [TopicPartition("t", n) for n in range(10)]
    states = {p: LeaderAndIsr(1, 0, (1, 2)) for p in parts}
    states[parts[0]] = LeaderAndIsr(2, 0, (1, 2))
    context = context_of((1, 2), dict.fromkeys(parts, (1, 2)), states)
    assert plan_rebalance(context, 10) == []
    assert plan_rebalance(context, 9) == [parts[0]]
    assert imbalance_count(context) == 1
    context.shutting_down.add(1)
    assert plan_rebalance(context, 9) == []
    context.shutting_down.clear()
    context.to_delete["t"] = None
    assert plan_rebalance(context, 0) == []


# -- features -------------------------------------------------------------------------------------


def test_feature_node_of_a_3_9_controller() -> None:
    assert upgraded(None) == FeatureInfo(True, {}, 2)
    assert upgraded(FeatureInfo(False, {"f": FinalizedFeature(1)})) == FeatureInfo()
    assert upgraded(FeatureInfo(True, {"f": FinalizedFeature(3, 1)}, 1)) == FeatureInfo(
        True, {"f": FinalizedFeature(3)}, 2
    )


def test_broker_must_support_finalized_levels() -> None:
    info = BrokerInfo((), features={"f": FeatureRange(1, 3)})
    assert supports(info, {})
    assert supports(info, {"f": FinalizedFeature(3)})
    assert not supports(info, {"f": FinalizedFeature(4)})
    assert not supports(info, {"g": FinalizedFeature(1)})


@pytest.mark.parametrize(
    ("feature", "level", "version", "upgrade_type", "allow_downgrade", "accepted"),
    [
        ("f", 0, 1, 2, False, True),
        ("f", 0, 1, 3, False, True),
        ("f", 0, 0, 1, True, True),
        ("f", 0, 0, 1, False, False),
        ("f", 0, 1, 1, False, False),
        ("f", 2, 1, 2, False, False),
        ("g", 0, 1, 2, False, False),
        ("", 0, 1, 2, False, False),
        ("f", 0, 1, 4, False, False),
    ],
)
def test_only_removal_of_a_finalized_feature_is_accepted(
    feature: str, level: int, version: int, upgrade_type: int, allow_downgrade: bool, accepted: bool
) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=feature,
        max_version_level=level,
        upgrade_type=upgrade_type,
        allow_downgrade=allow_downgrade,
    )
    error = judge_update({"f": FinalizedFeature(2)}, update, version)
    assert (error is None) is accepted
