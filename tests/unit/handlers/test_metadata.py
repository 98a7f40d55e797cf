"""Metadata and DescribeCluster: versions, listeners, hidden topics, automatic creation."""

from typing import Any

import pytest

from kafkalike import errors
from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.awaiting import FirstUpdate
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.handlers.metadata import MetadataApi
from kafkalike.config import BrokerConfig
from kafkalike.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataResponse
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import ZERO_UUID
from tests.fakes import FakeClock, result_of
from tests.unit.cluster.support import update_metadata
from tests.unit.handlers.support import PickyAuthorizer, answer, context

ID_T = b"t" * 16
ID_U = b"u" * 16
_Topic = MetadataRequest.MetadataRequestTopic
CLUSTER = "kafka-cluster"


class FakeAutoTopics:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def create(self, names: list[str]) -> dict[str, int]:
        self.asked.append(list(names))
        return dict.fromkeys(names, errors.LeaderNotAvailable.code)


class World:
    def __init__(self, authorizer: Authorizer | None = None, *, auto_create: bool = True) -> None:
        self.cache = MetadataCache(1)
        self.cache.update(
            update_metadata(
                {"t": [(1, 2, [2, 1]), (0, 1, [1, 9])], "u": [(0, 9, [9])]},
                brokers=[2, 1],
                controller=2,
                ids={"t": ID_T, "u": ID_U},
            )
        )
        self.auto = FakeAutoTopics()
        auto: Any = self.auto
        config = BrokerConfig.parse(
            {
                "zookeeper.connect": "z:1",
                "broker.id": "1",
                "auto.create.topics.enable": str(auto_create).lower(),
            }
        )
        self.api = MetadataApi(
            self.cache, authorizer or PermissiveAuthorizer(), auto, "cluster", config
        )

    def ask(
        self,
        version: int,
        topics: list[Any] | None,
        *,
        listener: str = "PLAINTEXT",
        **fields: Any,
    ) -> MetadataResponse:
        wanted = None
        if topics is not None:
            wanted = [
                _Topic(topic_id=t, name=None) if isinstance(t, bytes) else _Topic(name=t)
                for t in topics
            ]
        ctx = context(version)
        ctx.session.listener = listener
        response: MetadataResponse = answer(
            self.api.metadata(MetadataRequest(topics=wanted, **fields), ctx)
        )
        MetadataResponse.decode(response.encode(version), version)
        return response


def codes(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def test_brokers_controller_topics_and_partitions_in_order() -> None:
    response = World().ask(12, ["t"])
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, "h1", 9001),
        (2, "h2", 9002),
    ]
    assert (response.controller_id, response.cluster_id) == (2, "cluster")
    (topic,) = response.topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("t", ID_T, 0)
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 2)]
    assert topic.partitions[0].replica_nodes == [1, 9]


@pytest.mark.parametrize(
    ("version", "topics", "names"),
    [(0, [], {"t", "u"}), (1, [], set()), (1, None, {"t", "u"}), (12, None, {"t", "u"})],
)
def test_all_or_none(version: int, topics: list[str] | None, names: set[str]) -> None:
    assert {topic.name for topic in World().ask(version, topics).topics} == names


def test_a_dead_leader_is_no_leader() -> None:
    (topic,) = World().ask(12, ["u"]).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (5, -1)


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72)])
def test_a_listener_that_brokers_lack(version: int, code: int) -> None:
    response = World().ask(version, ["t"], listener="OTHER")
    assert response.brokers == []
    assert {p.error_code for p in response.topics[0].partitions} == {code}


@pytest.mark.parametrize(("version", "code", "replicas"), [(0, 9, [1]), (1, 0, [1, 9])])
def test_only_version_zero_minds_dead_replicas(
    version: int, code: int, replicas: list[int]
) -> None:
    partition = World().ask(version, ["t"]).topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes) == (code, replicas)


def test_topics_by_id() -> None:
    response = World().ask(12, [ID_T, b"x" * 16, ID_T])
    assert [(t.name, t.error_code) for t in response.topics] == [(None, 100), ("t", 0)]


def test_missing_topics_are_created_when_both_sides_want_it() -> None:
    world = World()
    response = world.ask(4, ["t", "new"])
    assert codes(response) == {"t": 0, "new": 5}
    assert world.auto.asked == [["new"]]
    world.ask(3, ["new"])
    assert len(world.auto.asked) == 2


@pytest.mark.parametrize(("auto_create", "allowed"), [(False, True), (True, False)])
def test_missing_topics_are_not_created_against_either_will(
    auto_create: bool, allowed: bool
) -> None:
    world = World(auto_create=auto_create)
    response = world.ask(
        12, ["new", "bad name", "__consumer_offsets"], allow_auto_topic_creation=allowed
    )
    assert codes(response) == {"new": 3, "bad name": 17, "__consumer_offsets": 3}
    assert [t.is_internal for t in response.topics] == [False, False, True]
    assert world.auto.asked == []


def test_an_id_is_never_created() -> None:
    world = World()
    world.ask(12, [b"x" * 16])
    assert world.auto.asked == []


def test_hidden_topics() -> None:
    world = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.TOPIC, "t")))
    assert codes(world.ask(12, None)) == {"u": 0}
    (by_name,) = world.ask(12, ["t"]).topics
    assert (by_name.name, by_name.error_code, by_name.topic_id) == ("t", 29, ZERO_UUID)
    (by_id,) = world.ask(12, [ID_T]).topics
    assert (by_id.name, by_id.error_code, by_id.topic_id) == (None, 29, ID_T)


def test_creation_needs_create_on_cluster_or_topic() -> None:
    cluster = (Operation.CREATE, ResourceType.CLUSTER, CLUSTER)
    world = World(PickyAuthorizer(cluster, (Operation.CREATE, ResourceType.TOPIC, "no")))
    assert codes(world.ask(12, ["yes", "no"])) == {"no": 29, "yes": 5}
    assert world.auto.asked == [["yes"]]


@pytest.mark.parametrize(
    ("version", "topics", "error"),
    [
        (10, [ID_T], errors.InvalidRequest),
        (11, [_Topic(topic_id=ID_T, name="t")], errors.InvalidRequest),
        (12, [ZERO_UUID], errors.UnknownServerError),
    ],
)
def test_what_a_version_cannot_mean(
    version: int, topics: list[Any], error: type[errors.KafkaError]
) -> None:
    wanted = [t if isinstance(t, _Topic) else _Topic(topic_id=t, name=None) for t in topics]
    with pytest.raises(error):
        answer(World().api.metadata(MetadataRequest(topics=wanted), context(version)))


def test_authorised_operations_only_when_asked() -> None:
    world = World(PickyAuthorizer((Operation.DELETE, ResourceType.TOPIC, "t")))
    plain = world.ask(8, ["t"])
    assert plain.topics[0].topic_authorized_operations == -(1 << 31)
    assert plain.cluster_authorized_operations == -(1 << 31)
    full = world.ask(
        8,
        ["t"],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    expected = sum(1 << op for op in (3, 4, 5, 7, 8, 10, 11))
    assert full.topics[0].topic_authorized_operations == expected
    assert full.cluster_authorized_operations == sum(1 << op for op in (5, 7, 8, 9, 10, 11, 12))
    blind = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.CLUSTER, None)))
    assert (
        blind.ask(8, [], include_cluster_authorized_operations=True).cluster_authorized_operations
        == 0
    )


def test_equal_questions_share_an_answer_until_the_metadata_changes() -> None:
    world = World()
    first = world.ask(12, ["t"])
    first.throttle_time_ms = 99  # as the dispatcher does for a throttled client
    again = world.ask(12, ["t"])
    assert again.throttle_time_ms == 0
    assert codes(again) == {"t": 0}
    assert codes(world.ask(12, ["t", "u"])) == {"t": 0, "u": 0}
    assert world.ask(1, ["t"]).topics[0].partitions[0].leader_id == 1
    world.cache.update(update_metadata({"t": [(0, 2, [2])]}, brokers=[1, 2]))
    assert world.ask(12, ["t"]).topics[0].partitions[0].leader_id == 2
    assert world.ask(12, ["t"], listener="OTHER").topics[0].partitions[0].leader_id == -1


@pytest.mark.parametrize("told", [True, False])
def test_the_first_answer_waits_for_the_controller(told: bool) -> None:
    clock = FakeClock()
    world = World()
    cache = MetadataCache(1)
    auto: Any = world.auto
    config = BrokerConfig.parse({"zookeeper.connect": "z:1", "broker.id": "1"})
    first = FirstUpdate(cache, clock, 5.0)
    api = MetadataApi(cache, PermissiveAuthorizer(), auto, "cluster", config, first)
    wanted = MetadataRequest(topics=[_Topic(name="t")])
    work = as_deferred(api.metadata(wanted, context(12)))  # type: ignore[arg-type]
    assert not work.called
    if told:
        cache.update(update_metadata({"t": [(0, 1, [1])]}))
        assert codes(result_of(work)) == {"t": 0}
        assert isinstance(api.metadata(wanted, context(12)), MetadataResponse)
        assert auto.asked == []
    else:
        clock.advance(5)
        assert codes(result_of(work)) == {"t": 5}
    assert clock.pending() == 0


def first_update(*, expects_topics: bool) -> tuple[FirstUpdate, MetadataCache, FakeClock]:
    cache, clock = MetadataCache(1), FakeClock()
    cache.lacks_topics = expects_topics
    first = FirstUpdate(cache, clock, 5.0)
    return first, cache, clock


def test_who_is_alive_is_no_picture_of_a_cluster_with_topics() -> None:
    first, cache, clock = first_update(expects_topics=True)
    waiting = first.wait()
    cache.update(update_metadata({}))
    later = first.wait()
    assert waiting is not None and later is not None
    assert not waiting.called and not later.called
    cache.update(update_metadata({"t": [(0, 1, [1])]}))
    assert waiting.called and later.called and first.wait() is None
    cache.update(update_metadata({"t": [(0, -2, [1])]}))
    assert first.wait() is None, "the last topic may go"
    assert clock.pending() == 0


def test_a_cluster_without_topics_is_told_at_once() -> None:
    first, cache, _ = first_update(expects_topics=False)
    waiting = first.wait()
    cache.update(update_metadata({}))
    assert waiting is not None and waiting.called and first.wait() is None


def test_topics_of_which_nobody_tells_are_waited_for_once() -> None:
    first, cache, clock = first_update(expects_topics=True)
    waiting = first.wait()
    assert waiting is not None
    clock.advance(5)
    assert waiting.called and first.wait() is not None, "no controller has spoken"
    cache.update(update_metadata({}))
    clock.advance(5)
    assert first.wait() is None and clock.pending() == 0


def test_topics_of_which_nobody_tells_count_as_known_though_nobody_waits() -> None:
    first, cache, clock = first_update(expects_topics=True)
    cache.update(update_metadata({}))
    clock.advance(4)
    cache.update(update_metadata({}))
    assert cache.lacks_topics
    clock.advance(1)
    assert not cache.lacks_topics and first.wait() is None and clock.pending() == 0


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"), [(1, 1, 0), (1, 2, 114), (1, 3, 115), (0, 1, 0)]
)
def test_describe_cluster(version: int, endpoint_type: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = answer(World().api.describe_cluster(request, context(version)))
    assert response.error_code == code
    if not code:
        assert [b.broker_id for b in response.brokers] == [1, 2]
        assert response.controller_id == 2
