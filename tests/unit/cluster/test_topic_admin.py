"""Creating, growing and deleting topics: what is written, and which error comes first."""

import logging
from collections.abc import Mapping

import pytest

from kafkalike import errors
from kafkalike.broker.cluster.auto_topics import AutoTopics
from kafkalike.broker.cluster.dynamic_config import DynamicConfig
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.cluster.topic_admin import NewTopic, TopicAdmin
from kafkalike.config import BrokerConfig
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import Endpoint, ReplicaAssignment
from kafkalike.zk.znodes import BrokerInfo, TopicInfo, decode_config
from tests.fakes import failure_of, result_of
from tests.unit.cluster.support import update_metadata
from tests.unit.cluster.zk_world import ZkWorld


class World(ZkWorld):
    def __init__(self, **properties: str) -> None:
        super().__init__()
        self.metadata = MetadataCache(1)
        self.metadata.update(update_metadata({"known": [(0, 1, [1])]}))
        given = {"zookeeper.connect": "z:2181", "broker.id": "1"}
        given.update({name.replace("_", "."): value for name, value in properties.items()})
        self.config = BrokerConfig.parse(given)
        self.dynamic = DynamicConfig(self.config, 1, logging.getLogger("test"))
        self.admin = TopicAdmin(self.zk, self.metadata, self.dynamic, self.random)
        for broker_id in (1, 2, 3):
            info = BrokerInfo((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9000 + broker_id),))
            self.zookeeper.create(f"/brokers/ids/{broker_id}", info.encode())

    def topic(self, name: str) -> TopicInfo:
        path = f"/brokers/topics/{name}"
        return TopicInfo.decode(self.zookeeper.get(path), path)

    def put_topic(self, name: str, partitions: Mapping[int, ReplicaAssignment]) -> None:
        self.zookeeper.create(f"/brokers/topics/{name}", TopicInfo(partitions, b"i" * 16).encode())

    def refusal(self, new: NewTopic) -> errors.KafkaError:
        work = as_deferred(self.admin.create(new))
        self.settle()
        error = failure_of(work, errors.KafkaError)
        assert isinstance(error, errors.KafkaError)
        return error


def test_create_writes_config_and_topic_with_an_id() -> None:
    world = World(num_partitions="4", default_replication_factor="2")
    created = world.run(
        world.admin.create(
            NewTopic("t", configs={"retention.ms": "5", "cleanup.policy": "compact"})
        )
    )
    info = world.topic("t")
    assert info.topic_id == created.topic_id
    assert sorted(info.partitions) == [0, 1, 2, 3]
    assert all(len(set(a.replicas)) == 2 for a in info.partitions.values())
    assert decode_config(world.zookeeper.get("/config/topics/t"), "") == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
    }
    assert world.zookeeper.children("/config/changes") == []


def test_validate_only_writes_nothing() -> None:
    world = World()
    created = world.run(world.admin.create(NewTopic("t", 3, 1), validate_only=True))
    assert len(created.assignment) == 3
    assert world.zookeeper.children("/brokers/topics") == []
    assert world.zookeeper.children("/config/topics") == []


def test_a_manual_assignment_may_name_unknown_brokers() -> None:
    world = World()
    world.run(world.admin.create(NewTopic("t", assignment={0: (7, 8), 1: (8, 9)})))
    assert world.topic("t").partitions[1].replicas == (8, 9)


# Each case breaks its own rule and rules that are checked later, so the order shows.
REFUSALS = [
    (NewTopic("known", 0, configs={"k": None}), errors.TopicAlreadyExists),
    (NewTopic("..", 1, 1, {0: (1,)}, {"k": None}), errors.InvalidConfig),
    (NewTopic("..", 1, -1, {0: (1,)}), errors.InvalidRequest),
    (NewTopic("..", -1, 1, {0: (1,)}), errors.InvalidRequest),
    (NewTopic("..", 0, 9), errors.InvalidPartitions),
    (NewTopic("..", -2, 9), errors.InvalidPartitions),
    (NewTopic("..", 1, 0), errors.InvalidReplicationFactor),
    (NewTopic("..", 1, 4), errors.InvalidReplicationFactor),
    (NewTopic("", 1, 1), errors.InvalidTopicException),
    (NewTopic("a b", 1, 1), errors.InvalidTopicException),
    (NewTopic("x" * 250, 1, 1), errors.InvalidTopicException),
    (NewTopic("dying", configs={"no.such": "1"}), errors.TopicAlreadyExists),
    (NewTopic("stored", configs={"no.such": "1"}), errors.TopicAlreadyExists),
    (NewTopic("with.dots", configs={"no.such": "1"}), errors.InvalidTopicException),
    (NewTopic("t", assignment={0: (1, 2), 1: (1,)}), errors.InvalidReplicaAssignment),
    (NewTopic("t", assignment={0: (1, 1)}), errors.InvalidReplicaAssignment),
    (NewTopic("t", assignment={0: ()}), errors.InvalidReplicaAssignment),
    (NewTopic("t", assignment={1: (1,), 2: (1,)}), errors.InvalidReplicaAssignment),
    (NewTopic("t", 1, 1, configs={"no.such": "1"}), errors.InvalidConfig),
    (NewTopic("t", 1, 1, configs={"segment.bytes": "1"}), errors.InvalidConfig),
]


@pytest.mark.parametrize(("new", "expected"), REFUSALS)
def test_create_refuses_in_order(new: NewTopic, expected: type[errors.KafkaError]) -> None:
    world = World()
    for name in ("known", "stored", "with_dots"):
        world.put_topic(name, {0: ReplicaAssignment((1,))})
    world.zookeeper.create("/admin/delete_topics/dying")
    before = len(world.zookeeper.children("/brokers/topics"))
    assert type(world.refusal(new)) is expected
    assert len(world.zookeeper.children("/brokers/topics")) == before


def test_a_topic_whose_deletion_was_missed_here_can_be_made_anew() -> None:
    world = World()
    assert world.metadata.has_topic("known")
    world.run(world.admin.create(NewTopic("known", 1, 1)))
    assert list(world.topic("known").partitions) == [0]


def test_create_without_a_controller_is_refused_as_stale_controller() -> None:
    world = World()
    world.zookeeper.delete("/controller")
    assert world.refusal(NewTopic("t", 1, 1)).code == errors.StaleControllerEpoch.code


def test_growth_keeps_id_and_goes_on_placing_where_it_ended() -> None:
    world = World()
    world.put_topic("t", {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))})
    numbers = world.run(world.admin.create_partitions("t", 4, None))
    assert numbers == [0, 1, 2, 3]
    info = world.topic("t")
    assert info.topic_id == b"i" * 16
    assert info.partitions[0].replicas == (2, 3)
    # start index 1 (broker 2), so partition 2 begins at index (2 + 1) % 3 = 0
    assert info.partitions[2].replicas[0] == 1
    assert info.partitions[3].replicas[0] == 2


GROWTH_REFUSALS = [
    ("dying", 5, None, errors.InvalidTopicException),
    ("moving", 5, None, errors.ReassignmentInProgress),
    ("nowhere", 5, None, errors.UnknownTopicOrPartition),
    ("t", 2, None, errors.InvalidPartitions),
    ("t", 1, None, errors.InvalidPartitions),
    ("t", 3, [[9, 9]], errors.InvalidReplicaAssignment),
    ("t", 3, [[1, 2], [1, 2]], errors.InvalidReplicaAssignment),
    ("t", 3, [[1]], errors.InvalidReplicaAssignment),
    ("t", 3, [[1, 1]], errors.InvalidReplicaAssignment),
    ("wide", 2, None, errors.InvalidReplicationFactor),
]


@pytest.mark.parametrize(("name", "count", "assignments", "expected"), GROWTH_REFUSALS)
def test_growth_refuses_in_order(
    name: str,
    count: int,
    assignments: list[list[int]] | None,
    expected: type[errors.KafkaError],
) -> None:
    world = World()
    world.put_topic("t", {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3))})
    world.put_topic("dying", {0: ReplicaAssignment((1, 2))})
    world.put_topic("moving", {0: ReplicaAssignment((1, 2), adding=(2,))})
    world.put_topic("wide", {0: ReplicaAssignment((1, 2, 3, 4))})
    world.zookeeper.create("/admin/delete_topics/dying")
    work = as_deferred(world.admin.create_partitions(name, count, assignments))
    world.settle()
    assert type(failure_of(work, errors.KafkaError)) is expected


def test_deletion_is_asked_for_once_and_twice_is_no_error() -> None:
    world = World()
    world.put_topic("t", {0: ReplicaAssignment((1,))})
    world.run(world.admin.delete("t"))
    world.run(world.admin.delete("t"))
    assert world.zookeeper.children("/admin/delete_topics") == ["t"]
    work = as_deferred(world.admin.delete("nowhere"))
    world.settle()
    failure_of(work, errors.UnknownTopicOrPartition)


def test_automatic_topics_answer_try_again_and_are_created_once() -> None:
    world = World(num_partitions="2")
    auto = AutoTopics(world.admin, world.config)
    first = as_deferred(auto.create(["t", "bad name", "known"]))
    second = as_deferred(auto.create(["t"]))
    world.settle()
    assert result_of(first) == {
        "t": errors.LeaderNotAvailable.code,
        "bad name": errors.InvalidTopicException.code,
        "known": errors.LeaderNotAvailable.code,
    }
    assert result_of(second) == {"t": errors.UnknownTopicOrPartition.code}
    assert len(world.topic("t").partitions) == 2
    # later: it exists, so again "no leader yet"
    assert world.run(auto.create(["t"])) == {"t": errors.LeaderNotAvailable.code}


def test_an_internal_topic_that_cannot_be_placed_says_so() -> None:
    world = World(offsets_topic_replication_factor="4")
    auto = AutoTopics(world.admin, world.config)
    assert world.run(auto.create(["__consumer_offsets"])) == {
        "__consumer_offsets": errors.InvalidReplicationFactor.code
    }
    assert auto.describe("__transaction_state").configs["min.insync.replicas"] == "2"
