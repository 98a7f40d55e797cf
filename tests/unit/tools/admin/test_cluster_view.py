"""Views of a cluster and their differences, from znodes and from Metadata answers."""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from kafkalike.messages.metadata import MetadataResponse
from kafkalike.runtime.tasks import as_deferred
from kafkalike.tools.admin.cluster_view import (
    ClusterView,
    Difference,
    PartitionView,
    compare,
    compare_moves,
    compare_placement,
    view_metadata,
    view_zookeeper,
)
from kafkalike.types import Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.server.local import LocalCoordination
from kafkalike.zk.znodes import BrokerInfo, ControllerInfo, PartitionState, TopicInfo
from tests.fakes import FakeClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = bytes(range(16))


def reference() -> ClusterView:
    return ClusterView(
        "ZooKeeper",
        2,
        frozenset({1, 2, 3}),
        {"t": ID},
        {
            T0: PartitionView((1, 2), 1, 5, (1, 2)),
            T1: PartitionView((2, 3), 2, 7, (2, 3)),
        },
    )


def same() -> ClusterView:
    other = reference()
    other.source = "broker 9"
    return other


def differences(other: ClusterView) -> list[tuple[str, str, object, object]]:
    found = compare(reference(), other)
    assert all(difference.where == "broker 9" for difference in found)
    return [(d.subject, d.what, d.expected, d.found) for d in found]


def test_equal_views_have_no_difference() -> None:
    other = same()
    other.partitions[T0] = replace(other.partitions[T0], isr=(2, 1))
    assert differences(other) == [], "the order of an ISR does not matter"


def test_every_field_counts() -> None:
    other = same()
    other.controller = 1
    other.brokers = frozenset({1, 2})
    other.topic_ids["t"] = bytes(16)
    other.partitions[T0] = PartitionView((2, 1), 2, 6, (2,))
    assert differences(other) == [
        ("cluster", "controller", 2, 1),
        ("cluster", "brokers", [1, 2, 3], [1, 2]),
        ("t", "topic id", "AAECAwQFBgcICQoLDA0ODw", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("t-0", "replicas", [1, 2], [2, 1]),
        ("t-0", "leader", 1, 2),
        ("t-0", "leader epoch", 5, 6),
        ("t-0", "isr", [1, 2], [2]),
    ]


def test_topics_and_partitions_that_only_one_knows() -> None:
    other = same()
    del other.partitions[T1]
    other.topic_ids["ghost"] = ID
    other.partitions[TopicPartition("ghost", 0)] = PartitionView((1,), 1, 0, (1,))
    assert differences(other) == [
        ("ghost", "topic exists", False, True),
        ("t-1", "partition exists", True, False),
    ]


def test_topics_that_are_being_deleted_do_not_count() -> None:
    mine, other = reference(), same()
    mine.deleting = frozenset({"t"})
    other.topic_ids.clear()
    other.partitions.clear()
    assert compare(mine, other) == []


def test_a_dead_leader_is_no_leader() -> None:
    mine, other = reference(), same()
    mine.brokers = other.brokers = frozenset({2, 3})
    other.partitions[T0] = replace(other.partitions[T0], leader=-1)
    assert compare(mine, other) == []


def test_a_partition_that_was_never_led() -> None:
    mine, other = reference(), same()
    mine.partitions[T0] = PartitionView((8, 9))
    del other.partitions[T0]
    assert compare(mine, other) == [], "no replica is alive"
    mine.partitions[T0] = PartitionView((1, 9))
    assert [d.what for d in compare(mine, other)] == ["partition exists"]
    other.partitions[T0] = PartitionView((1, 9), 1, 0, (1,))
    assert [d.what for d in compare(mine, other)] == ["leadership"]


def test_moves_and_placement() -> None:
    mine = reference()
    mine.moves[T0] = ReplicaAssignment((3, 1, 2), (3,), (2,))
    assert compare_moves(mine, 2, dict(mine.moves)) == []
    assert compare_moves(mine, 2, {}) == [
        Difference(
            "controller 2", "t-0", "reassignment", "replicas 3,1,2 adding 3 removing 2", "none"
        )
    ]
    assert compare_placement(mine, 2, [T0, T1]) == []
    found = compare_placement(mine, 1, [T1])
    assert [(d.subject, d.expected, d.found) for d in found] == [
        ("t-0", True, False),
        ("t-1", False, True),
    ]
    assert compare_placement(mine, 1, [], failed=[T0]) == []


def test_zookeeper_and_metadata_of_one_cluster_agree() -> None:
    clock = FakeClock()
    service = LocalCoordination(clock)
    broker = BrokerInfo((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),))
    nodes = {
        paths.broker(1): broker.encode(),
        paths.CONTROLLER: ControllerInfo(1).encode(),
        paths.topic("t"): TopicInfo(
            {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1), (2,), (1,))}, ID
        ).encode(),
        paths.partition_state("t", 0): PartitionState(LeaderAndIsr(1, 5, (1,)), 3).encode(),
        paths.topic("bad"): b"{",
        paths.delete_topic("gone"): None,
    }
    for path, data in nodes.items():
        service.create(path, data)
    zk = service.client()

    def run(work: Awaitable[Any]) -> Any:
        outcome: list[Any] = []
        as_deferred(work).addBoth(outcome.append)
        clock.advance(1.0)
        return outcome[0]

    run(zk.connect(1.0))
    view: ClusterView = run(view_zookeeper(zk))
    assert (view.controller, view.brokers) == (1, frozenset({1}))
    assert view.deleting == frozenset({"gone"})
    assert view.partitions[T0] == PartitionView((1, 2), 1, 5, (1,))
    assert view.partitions[T1] == PartitionView((2, 1)), "no state yet"
    assert list(view.moves) == [T1]
    assert [(d.subject, d.what) for d in view.problems] == [("bad", "payload")]

    topic = MetadataResponse.MetadataResponseTopic
    metadata = MetadataResponse(
        controller_id=1,
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1)],
        topics=[
            topic(
                name="t",
                topic_id=ID,
                partitions=[
                    topic.MetadataResponsePartition(
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=5,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                    )
                ],
            ),
            topic(name="x", error_code=3),
        ],
    )
    found = compare(view, view_metadata("broker 1", metadata))
    assert [(d.subject, d.what) for d in found] == [("t-1", "partition exists")]
