"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords: refusals, waiting, answers."""

import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.awaiting import MetadataWaiter
from kafkalike.broker.cluster.dynamic_config import DynamicConfig
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.cluster.topic_admin import TopicAdmin
from kafkalike.broker.handlers.topics import DeleteRecordsApi, TopicsApi
from kafkalike.broker.replica.values import DeleteRecordsResult
from kafkalike.config import BrokerConfig
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import LEADER_DURING_DELETE, ZERO_UUID, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import TopicInfo
from tests.fakes import result_of
from tests.unit.cluster.support import update_metadata
from tests.unit.cluster.zk_world import ZkWorld
from tests.unit.handlers.support import PickyAuthorizer, answer, context

CLUSTER_CREATE = (Operation.CREATE, ResourceType.CLUSTER, None)
ID_KNOWN = b"k" * 16


class FakeController:
    def __init__(self, is_active: bool) -> None:
        self.is_active = is_active

    def topic_name(self, topic_id: bytes) -> str | None:
        return "known" if topic_id == ID_KNOWN else None


class World(ZkWorld):
    def __init__(
        self,
        authorizer: Authorizer | None = None,
        *,
        active: bool = True,
        properties: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.metadata = MetadataCache(1)
        self.metadata.update(update_metadata({"known": [(0, 1, [1, 2])]}, ids={"known": ID_KNOWN}))
        info = TopicInfo({0: ReplicaAssignment((1, 2))}, ID_KNOWN)
        self.zookeeper.create("/brokers/topics/known", info.encode())
        config = BrokerConfig.parse(
            {"zookeeper.connect": "z:1", "broker.id": "1", **(properties or {})}
        )
        dynamic = DynamicConfig(config, 1, logging.getLogger("test"))
        self.waiter = MetadataWaiter(self.metadata, self.clock)
        controller: Any = FakeController(active)
        self.api = TopicsApi(
            controller,
            TopicAdmin(self.zk, self.metadata, dynamic, self.random),
            self.metadata,
            self.waiter,
            dynamic,
            authorizer or PermissiveAuthorizer(),
        )

    def start(self, handler: Any, request: Any, version: int) -> "Deferred[Any]":
        work: Deferred[Any] = as_deferred(handler(request, context(version)))
        work.addCallback(lambda response: response.encode(version) and response)
        self.settle(0.5)
        return work


_New = CreateTopicsRequest.CreatableTopic


def create(*topics: Any, timeout_ms: int = 10_000, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            t if isinstance(t, _New) else _New(name=t, num_partitions=2, replication_factor=1)
            for t in topics
        ],
        timeout_ms=timeout_ms,
        **fields,
    )


def created_codes(response: CreateTopicsResponse) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_only_the_controller_creates() -> None:
    world = World(active=False)
    response = result_of(world.start(world.api.create_topics, create("a", "b"), 7))
    assert created_codes(response) == [("a", 41), ("b", 41)]
    assert world.zookeeper.children("/brokers/topics") == ["known"]


def test_create_answers_when_all_partitions_have_leaders() -> None:
    world = World()
    work = world.start(world.api.create_topics, create("t"), 7)
    assert not work.called
    world.metadata.update(update_metadata({"t": [(0, 1, [1])]}))
    assert not work.called
    world.metadata.update(update_metadata({"t": [(1, -1, [1])]}))
    assert not work.called
    world.metadata.update(update_metadata({"t": [(1, 1, [1])]}))
    (topic,) = result_of(work).topics
    assert (topic.error_code, topic.error_message) == (0, None)
    assert (topic.num_partitions, topic.replication_factor) == (2, 1)
    path = "/brokers/topics/t"
    assert topic.topic_id == TopicInfo.decode(world.zookeeper.get(path), path).topic_id
    retention = next(c for c in topic.configs if c.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("604800000", 5)


def test_create_that_takes_too_long_says_so_and_the_topic_stays() -> None:
    world = World()
    work = world.start(world.api.create_topics, create("t", "u", timeout_ms=3000), 7)
    world.metadata.update(update_metadata({"u": [(0, 1, [1]), (1, 1, [1])]}))
    world.settle(5)
    response = result_of(work)
    assert created_codes(response) == [("t", 7), ("u", 0)]
    assert response.topics[0].num_partitions == -1
    assert "t" in world.zookeeper.children("/brokers/topics")
    assert len(world.waiter) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_create_without_time_times_out_at_once(timeout_ms: int) -> None:
    world = World()
    response = result_of(
        world.start(world.api.create_topics, create("t", timeout_ms=timeout_ms), 7)
    )
    assert created_codes(response) == [("t", 7)]


def test_validate_only_answers_at_once_without_an_id() -> None:
    world = World()
    response = result_of(world.start(world.api.create_topics, create("t", validate_only=True), 7))
    assert created_codes(response) == [("t", 0)]
    assert response.topics[0].topic_id == ZERO_UUID
    assert world.zookeeper.children("/brokers/topics") == ["known"]


def test_each_topic_is_refused_for_its_own_reason() -> None:
    refused = (Operation.CREATE, ResourceType.TOPIC, "secret")
    world = World(PickyAuthorizer(CLUSTER_CREATE, refused))
    assignment = _New.CreatableReplicaAssignment
    response = result_of(
        world.start(
            world.api.create_topics,
            create(
                "twice",
                "twice",
                "__cluster_metadata",
                "secret",
                "known",
                _New(
                    name="negative",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[assignment(partition_index=-1, broker_ids=[1])],
                ),
            ),
            7,
        )
    )
    assert created_codes(response) == [
        ("twice", 42),
        ("twice", 42),
        ("__cluster_metadata", 42),
        ("secret", 29),
        ("known", 36),
        ("negative", -1),
    ]


def test_configs_are_shown_to_those_who_may_see_them() -> None:
    refuse = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t")
    world = World(PickyAuthorizer(refuse))
    work = world.start(world.api.create_topics, create("t", validate_only=True), 7)
    (topic,) = result_of(work).topics
    assert (topic.error_code, topic.topic_config_error_code) == (0, 29)
    assert topic.num_partitions == -1


# -- DeleteTopics ------------------------------------------------------------------------------


def delete(*names: str, timeout_ms: int = 10_000) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(
        topics=[state(name=name) for name in names], topic_names=list(names), timeout_ms=timeout_ms
    )


def deleted_codes(response: DeleteTopicsResponse) -> list[tuple[str | None, int]]:
    return [(result.name, result.error_code) for result in response.responses]


@pytest.mark.parametrize("version", [1, 6])
def test_delete_answers_when_the_topic_is_gone(version: int) -> None:
    world = World()
    work = world.start(world.api.delete_topics, delete("known", "nowhere"), version)
    assert not work.called
    assert world.zookeeper.children("/admin/delete_topics") == ["known"]
    world.metadata.update(update_metadata({"known": [(0, LEADER_DURING_DELETE, [1])]}))
    assert deleted_codes(result_of(work)) == [("known", 0), ("nowhere", 3)]


def test_delete_that_takes_too_long() -> None:
    world = World()
    work = world.start(world.api.delete_topics, delete("known", "known", timeout_ms=100), 6)
    assert deleted_codes(result_of(work)) == [("known", 7), ("known", 7)]


def test_delete_by_id() -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    world = World()
    request = DeleteTopicsRequest(
        topics=[state(topic_id=b"x" * 16), state(), state(topic_id=ID_KNOWN)], timeout_ms=0
    )
    response = result_of(world.start(world.api.delete_topics, request, 6))
    assert deleted_codes(response) == [(None, 100), (None, 29), ("known", 7)]
    hidden = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.TOPIC, "known")))
    response = result_of(hidden.start(hidden.api.delete_topics, request, 6))
    assert deleted_codes(response)[2] == (None, 29)


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73)])
def test_delete_switched_off(version: int, code: int) -> None:
    world = World(properties={"delete.topic.enable": "false"})
    response = result_of(world.start(world.api.delete_topics, delete("known"), version))
    assert deleted_codes(response) == [("known", code)]
    other = World(active=False, properties={"delete.topic.enable": "false"})
    response = result_of(other.start(other.api.delete_topics, delete("known"), version))
    assert deleted_codes(response) == [("known", 41)]


# -- CreatePartitions --------------------------------------------------------------------------


def test_partitions_grow_and_wait_for_leaders() -> None:
    world = World()
    info = {"known": [(0, 1, [1, 2])]}
    world.metadata.update(update_metadata(info))
    from kafkalike.types import Endpoint
    from kafkalike.zk.znodes import BrokerInfo

    for broker_id in (1, 2):
        registration = BrokerInfo((Endpoint("PLAINTEXT", "PLAINTEXT", "h", broker_id),))
        world.zookeeper.create(f"/brokers/ids/{broker_id}", registration.encode())
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[
            topic(name="known", count=2, assignments=None),
            topic(name="nowhere", count=2, assignments=None),
            topic(name="twice", count=1, assignments=None),
            topic(name="twice", count=2, assignments=None),
        ],
        timeout_ms=10_000,
    )
    work = world.start(world.api.create_partitions, request, 3)
    assert not work.called
    world.metadata.update(update_metadata({"known": [(1, 2, [2, 1])]}))
    results = result_of(work).results
    assert [(r.name, r.error_code) for r in results] == [
        ("known", 0),
        ("nowhere", 3),
        ("twice", 42),
    ]


# -- DeleteRecords -----------------------------------------------------------------------------


class FakeLogs:
    def __init__(self) -> None:
        self.asked: dict[TopicPartition, int] = {}

    def delete_records(
        self, offsets: dict[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        self.asked = dict(offsets)
        return {tp: DeleteRecordsResult(offset, 0) for tp, offset in offsets.items()}


def test_delete_records_refuses_before_it_asks_the_logs() -> None:
    metadata = MetadataCache(1)
    metadata.update(
        update_metadata(
            {
                "t": [(0, 1, [1])],
                "__consumer_offsets": [(0, 1, [1])],
                "secret": [(0, 1, [1])],
            }
        )
    )
    logs: Any = FakeLogs()
    api = DeleteRecordsApi(
        logs, metadata, PickyAuthorizer((Operation.DELETE, ResourceType.TOPIC, "secret"))
    )
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = [("t", 0), ("t", 1), ("__consumer_offsets", 0), ("secret", 0)]
    request = DeleteRecordsRequest(
        topics=[
            topic(
                name=name,
                partitions=[topic.DeleteRecordsPartition(partition_index=number, offset=5)],
            )
            for name, number in wanted
        ],
        timeout_ms=5,
    )
    response = answer(api.delete_records(request, context(2)))
    found = {
        (t.name, p.partition_index): (p.low_watermark, p.error_code)
        for t in response.topics
        for p in t.partitions
    }
    assert found == {
        ("t", 0): (5, 0),
        ("t", 1): (-1, 3),
        ("__consumer_offsets", 0): (-1, 17),
        ("secret", 0): (-1, 29),
    }
    assert logs.asked == {TopicPartition("t", 0): 5}


def test_delete_records_is_asked_again_while_nobody_has_told_of_topics() -> None:
    metadata = MetadataCache(1)
    metadata.lacks_topics = True
    logs: Any = FakeLogs()
    api = DeleteRecordsApi(logs, metadata, PickyAuthorizer())
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=0, offset=5)
    request = DeleteRecordsRequest(topics=[topic(name="t", partitions=[partition])], timeout_ms=5)
    response = answer(api.delete_records(request, context(2)))
    assert [p.error_code for t in response.topics for p in t.partitions] == [6]
    assert logs.asked == {}
