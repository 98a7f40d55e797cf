"""Fetch, ListOffsets, OffsetForLeaderEpoch, elections, control: what handlers decide themselves."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from kafkalike import errors
from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.awaiting import MetadataWaiter
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.handlers.cluster import ClusterApi
from kafkalike.broker.handlers.control import ControlApi
from kafkalike.broker.handlers.fetch import FetchApi
from kafkalike.broker.handlers.leaders import CurrentLeaders
from kafkalike.broker.handlers.list_offsets import ListOffsetsApi
from kafkalike.broker.replica.fetch_session import FetchContext, FetchSessions
from kafkalike.broker.replica.values import EpochEndOffset, FetchParams, ListedOffset
from kafkalike.controller.api import ElectionResult
from kafkalike.messages.cluster import ElectLeadersRequest
from kafkalike.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, result_of
from tests.unit.cluster.support import update_metadata
from tests.unit.handlers.support import FakePartition, PickyAuthorizer, answer, context

ID_T = b"t" * 16
CLUSTER_ACTION = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None)


class FakeReplicas:
    """Answers every partition that was not refused before; errors by partition from a table."""

    def __init__(self, codes: dict[TopicPartition, int] | None = None) -> None:
        self.codes = codes or {}
        self.params: FetchParams | None = None
        self.waits = False
        self.parked: list[Deferred[FetchResponse]] = []
        self.listed: list[tuple[TopicPartition, int]] = []

    def partition(self, topic_partition: TopicPartition) -> FakePartition | None:
        return FakePartition(leader=2, leader_epoch=9)

    def fetch(
        self, params: FetchParams, fetch_context: FetchContext
    ) -> "FetchResponse | Deferred[FetchResponse]":
        self.params = params
        data = FetchResponse.FetchableTopicResponse.PartitionData
        response = fetch_context.respond(
            [
                (
                    entry,
                    data(
                        partition_index=entry.topic_partition.partition,
                        error_code=entry.error_code or self.codes.get(entry.topic_partition, 0),
                        high_watermark=-1 if entry.error_code else 7,
                        records=b"",
                    ),
                )
                for entry in fetch_context.partitions()
            ]
        )
        if not self.waits:
            return response
        parked: Deferred[FetchResponse] = Deferred()
        self.parked.append(parked)
        return parked.addCallback(lambda _: response)

    def list_offset(
        self, topic_partition: TopicPartition, timestamp: int, **_: Any
    ) -> ListedOffset:
        self.listed.append((topic_partition, timestamp))
        return ListedOffset(1, 2, 3)

    def offset_for_leader_epoch(self, topic_partition: TopicPartition, **_: Any) -> EpochEndOffset:
        if topic_partition.partition == 1:
            raise errors.UnknownLeaderEpoch()
        return EpochEndOffset(4, 5)


class World:
    def __init__(
        self,
        authorizer: Authorizer | None = None,
        codes: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.cache = MetadataCache(1)
        self.cache.update(update_metadata({"t": [(0, 1, [1]), (1, 2, [2])]}, ids={"t": ID_T}))
        self.replicas = FakeReplicas(codes)
        replicas: Any = self.replicas
        chosen = authorizer or PermissiveAuthorizer()
        self.fetch_api = FetchApi(
            replicas,
            FetchSessions(self.clock, FakeRandom()),
            self.cache,
            chosen,
            CurrentLeaders(replicas, self.cache),
            max_bytes=1000,
        )
        self.offsets_api = ListOffsetsApi(replicas, chosen)

    def fetch(self, version: int, *wanted: tuple[str, int], **fields: Any) -> FetchResponse:
        topic = FetchRequest.FetchTopic
        request = FetchRequest(
            topics=[
                topic(
                    topic=name,
                    topic_id=ID_T if name == "t" else b"?" * 16,
                    partitions=[topic.FetchPartition(partition=number, partition_max_bytes=50)],
                )
                for name, number in wanted
            ],
            **fields,
        )
        response: FetchResponse = answer(self.fetch_api.fetch(request, context(version)))
        response.encode(version)
        return response


def fetch_codes(response: FetchResponse) -> list[int]:
    return [p.error_code for topic in response.responses for p in topic.partitions]


def test_unknown_partitions_are_refused_without_reading() -> None:
    response = World().fetch(12, ("t", 0), ("t", 7), ("nowhere", 0))
    assert fetch_codes(response) == [0, 3, 3]


def test_unknown_ids_are_told_apart() -> None:
    assert fetch_codes(World().fetch(13, ("t", 0), ("nowhere", 0))) == [0, 100]


def test_consumers_need_read_followers_need_cluster_action() -> None:
    world = World(PickyAuthorizer((Operation.READ, ResourceType.TOPIC, "t")))
    assert fetch_codes(world.fetch(12, ("t", 0), ("nowhere", 0))) == [29, 3]
    follower = World(PickyAuthorizer(CLUSTER_ACTION))
    state = FetchRequest.ReplicaState(replica_id=2, replica_epoch=8)
    assert fetch_codes(follower.fetch(17, ("t", 0), replica_state=state)) == [29]
    assert fetch_codes(follower.fetch(12, ("t", 0), replica_id=2)) == [29]


def test_a_session_error_stands_alone() -> None:
    response = World().fetch(12, ("t", 0), session_id=5, session_epoch=3)
    assert (response.error_code, response.responses) == (70, [])


def test_limits_of_the_broker() -> None:
    world = World()
    world.fetch(12, ("t", 0), max_bytes=5000, min_bytes=3000, max_wait_ms=9, isolation_level=1)
    params = world.replicas.params
    assert params is not None
    assert (params.max_bytes, params.min_bytes, params.max_wait_ms) == (1000, 1000, 9)
    assert (params.isolation_level, params.replica_id) == (1, -1)


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
def test_old_clients_do_not_know_storage_errors(version: int, code: int) -> None:
    world = World(codes={TopicPartition("t", 0): 56})
    assert fetch_codes(world.fetch(version, ("t", 0))) == [code]


@pytest.mark.parametrize(
    ("version", "code", "leader"), [(15, 6, -1), (16, 6, 2), (16, 74, 2), (16, 1, -1)]
)
def test_who_leads_now_is_told_from_version_sixteen(version: int, code: int, leader: int) -> None:
    world = World(codes={TopicPartition("t", 0): code})
    response = world.fetch(version, ("t", 0))
    partition = response.responses[0].partitions[0]
    assert partition.current_leader.leader_id == leader
    assert [node.node_id for node in response.node_endpoints] == ([2] if leader == 2 else [])


def test_a_fetch_may_wait() -> None:
    world = World(codes={TopicPartition("t", 0): 56})
    world.replicas.waits = True
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")])
    request.topics[0].partitions = [FetchRequest.FetchTopic.FetchPartition(partition=0)]
    waiting: Any = world.fetch_api.fetch(request, context(4))
    assert not waiting.called
    world.replicas.parked[0].callback(FetchResponse())
    assert fetch_codes(answer(waiting)) == [6]


# -- offsets -----------------------------------------------------------------------------------

_ListTopic = ListOffsetsRequest.ListOffsetsTopic


def list_offsets(world: World, version: int, *wanted: tuple[str, int, int]) -> list[int]:
    request = ListOffsetsRequest(
        topics=[
            _ListTopic(
                name=name,
                partitions=[
                    _ListTopic.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                ],
            )
            for name, number, timestamp in wanted
        ]
    )
    response = world.offsets_api.list_offsets(request, context(version))
    response.encode(version)
    return [p.error_code for topic in response.topics for p in topic.partitions]


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 99), (0, 1)]
)
def test_special_timestamps_have_a_first_version(timestamp: int, since: int) -> None:
    for version in range(1, 10):
        expected = 0 if version >= since else 35
        assert list_offsets(World(), version, ("t", 0, timestamp)) == [expected], version


def test_listed_twice_and_not_allowed() -> None:
    world = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.TOPIC, "secret")))
    codes = list_offsets(
        world, 5, ("t", 0, -1), ("t", 1, -1), ("t", 0, -2), ("secret", 0, -9), ("secret", 0, -1)
    )
    assert codes == [42, 0, 42, 29, 29]
    assert world.replicas.listed == [(TopicPartition("t", 1), -1)]


def test_epoch_ends() -> None:
    world = World(PickyAuthorizer(CLUSTER_ACTION, (Operation.DESCRIBE, ResourceType.TOPIC, "s")))
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    request = OffsetForLeaderEpochRequest(
        topics=[
            topic(
                topic=name,
                partitions=[topic.OffsetForLeaderPartition(partition=n) for n in (0, 1)],
            )
            for name in ("t", "s")
        ]
    )
    response = world.offsets_api.offset_for_leader_epoch(request, context(4))
    found = [
        (p.error_code, p.leader_epoch, p.end_offset)
        for result in response.topics
        for p in result.partitions
    ]
    assert found == [(0, 4, 5), (75, -1, -1), (29, -1, -1), (29, -1, -1)]


# -- elections ---------------------------------------------------------------------------------


class FakeController:
    def __init__(self, results: dict[TopicPartition, ElectionResult]) -> None:
        self.results = results
        self.asked: list[TopicPartition] = []

    def elect_leaders(
        self, election_type: int, partitions: list[TopicPartition]
    ) -> "Deferred[dict[TopicPartition, ElectionResult]]":
        self.asked = list(partitions)
        return succeed(self.results)


def elect(
    results: dict[TopicPartition, ElectionResult], *, everything: bool = False
) -> tuple[World, FakeController, "Deferred[Any]"]:
    world = World()
    controller: Any = FakeController(results)
    replicas: Any = world.replicas
    waiter = MetadataWaiter(world.cache, world.clock)
    api = ClusterApi(controller, replicas, world.cache, waiter, PermissiveAuthorizer())
    topics = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        topic_partitions=None if everything else [topics(topic="t", partitions=[0, 1])],
        timeout_ms=1000,
    )
    return world, controller, as_deferred(api.elect_leaders(request, context(2)))


def elected(work: "Deferred[Any]") -> dict[int, int]:
    return {
        p.partition_id: p.error_code
        for topic in result_of(work).replica_election_results
        for p in topic.partition_result
    }


def test_an_election_is_answered_when_the_metadata_shows_it() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    results = {
        zero: ElectionResult(leader=3),
        one: ElectionResult(error=errors.ElectionNotNeeded()),
    }
    world, controller, work = elect(results)
    assert controller.asked == [zero, one]
    assert not work.called
    world.cache.update(update_metadata({"t": [(0, 3, [3])]}))
    assert elected(work) == {0: 0, 1: 84}

    world, controller, work = elect(results, everything=True)
    world.clock.advance(1)
    assert elected(work) == {0: 7}


# -- control -----------------------------------------------------------------------------------


class FakeRoles:
    """Takes orders and notes their sequence."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.hosted: set[TopicPartition] = set()
        self.epoch_code = 0

    def partition(self, topic_partition: TopicPartition) -> object | None:
        return object() if topic_partition in self.hosted else None

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        self.done.append("leader-and-isr")
        return LeaderAndIsrResponse()

    def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        self.done.append("stop-replica")
        return StopReplicaResponse()

    def check_controller_epoch(self, controller_epoch: int, broker_epoch: int) -> int:
        return self.epoch_code

    def metadata_updated(self) -> None:
        self.done.append("metadata")


class Control:
    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self.roles = FakeRoles()
        self.cache = MetadataCache(1)
        self.loading: list[tuple[list[str], Deferred[None]]] = []
        roles: Any = self.roles
        self.unregistered: Deferred[None] | None = None
        self.api = ControlApi(
            roles,
            self.cache,
            authorizer or PermissiveAuthorizer(),
            self.load,
            lambda: self.unregistered,
        )

    def load(self, topics: Any) -> "Deferred[None]":
        loaded: Deferred[None] = Deferred()
        self.loading.append((list(topics), loaded))
        return loaded


def leader_and_isr(*partitions: tuple[str, int], **fields: Any) -> LeaderAndIsrRequest:
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState
    return LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=name, partition_states=[state(partition_index=number)]
            )
            for name, number in partitions
        ],
        **fields,
    )


def test_orders_wait_for_one_another_while_settings_are_read() -> None:
    control = Control()
    control.roles.hosted.add(TopicPartition("old", 0))
    first = as_deferred(
        control.api.leader_and_isr(leader_and_isr(("old", 0), ("new", 0)), context(7))
    )
    second = as_deferred(control.api.stop_replica(StopReplicaRequest(), context(4)))
    third = as_deferred(control.api.update_metadata(update_metadata({}), context(8)))
    assert control.roles.done == []
    ((topics, loaded),) = control.loading
    assert topics == ["new"]
    loaded.callback(None)
    assert control.roles.done == ["leader-and-isr", "stop-replica", "metadata"]
    assert all(work.called for work in (first, second, third))


def test_orders_wait_until_the_broker_has_an_epoch() -> None:
    """An order for an earlier life must not be taken for one of this life (KIP-380)."""
    control = Control()
    control.unregistered = Deferred()
    control.roles.hosted.add(TopicPartition("t", 0))
    first = as_deferred(control.api.leader_and_isr(leader_and_isr(("t", 0)), context(7)))
    second = as_deferred(control.api.stop_replica(StopReplicaRequest(), context(4)))
    assert control.roles.done == []
    released, control.unregistered = control.unregistered, None
    released.callback(None)
    assert control.roles.done == ["leader-and-isr", "stop-replica"]
    assert first.called and second.called


def test_known_partitions_need_no_settings() -> None:
    control = Control()
    control.roles.hosted.add(TopicPartition("t", 0))
    answer(control.api.leader_and_isr(leader_and_isr(("t", 0)), context(7)))
    assert control.roles.done == ["leader-and-isr"]
    assert control.loading == []


def test_stale_metadata_changes_nothing() -> None:
    control = Control()
    control.roles.epoch_code = 11
    request = update_metadata({"t": [(0, 1, [1])]})
    response: UpdateMetadataResponse = answer(control.api.update_metadata(request, context(8)))
    assert response.error_code == 11
    assert control.cache.snapshot.version == 0


@pytest.mark.parametrize("name", ["leader_and_isr", "stop_replica", "update_metadata"])
def test_only_brokers_of_this_cluster_give_orders(name: str) -> None:
    classes: dict[str, Any] = {
        "leader_and_isr": LeaderAndIsrRequest,
        "stop_replica": StopReplicaRequest,
        "update_metadata": type(update_metadata({})),
    }
    refused = Control(PickyAuthorizer(CLUSTER_ACTION))
    with pytest.raises(errors.ClusterAuthorizationFailed):
        answer(getattr(refused.api, name)(classes[name](), context(4)))
    with pytest.raises(errors.UnknownServerError):
        answer(getattr(Control().api, name)(classes[name](is_kraft_controller=True), context(8)))
