"""The APIs of groups and offsets: who is refused what, and where the coordinator is looked for."""

from typing import Any

import pytest

from kafkalike import errors
from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.coordinator.old_offsets import OldOffsets
from kafkalike.broker.handlers.groups import GroupsApi
from kafkalike.broker.handlers.offsets import OffsetsApi
from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafkalike.types import TopicPartition
from kafkalike.zk import consumers
from kafkalike.zk.client import BadArguments
from kafkalike.zk.znodes import CorruptZnode
from tests.unit.cluster.support import update_metadata
from tests.unit.cluster.zk_world import ZkWorld
from tests.unit.coordinator.support import GROUP
from tests.unit.coordinator.support import World as GroupWorld
from tests.unit.handlers.support import PickyAuthorizer, answer, context

_Commit = OffsetCommitRequest.OffsetCommitRequestTopic
_Fetch = OffsetFetchRequest.OffsetFetchRequestTopic
_Delete = OffsetDeleteRequest.OffsetDeleteRequestTopic
NO_READ = (Operation.READ, ResourceType.GROUP, None)
NO_DESCRIBE = (Operation.DESCRIBE, ResourceType.GROUP, None)


class FakeAutoTopics:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def create(self, names: list[str]) -> dict[str, int]:
        self.asked.append(list(names))
        return dict.fromkeys(names, errors.LeaderNotAvailable.code)


class World:
    def __init__(self, authorizer: Authorizer | None = None, *, topic: bool = True) -> None:
        self.groups = GroupWorld(1)
        self.zk = ZkWorld()
        self.metadata = MetadataCache(1)
        topics = {"t": [(0, 1, [1]), (1, 1, [1])], "secret": [(0, 1, [1])]}
        if topic:
            topics["__consumer_offsets"] = [(0, 2, [2])]
        self.metadata.update(update_metadata(topics, brokers=[1, 2], controller=1))
        self.auto = FakeAutoTopics()
        auto: Any = self.auto
        self.authorizer = authorizer or PermissiveAuthorizer()
        self.api = GroupsApi(self.groups.coordinator, self.metadata, auto, self.authorizer)
        self.offsets = OffsetsApi(
            self.groups.coordinator,
            OldOffsets(self.zk.zk),
            self.metadata,
            self.authorizer,
            self.groups.clock,
            self.groups.config,
        )

    def commit(self, version: int, *topics: tuple[str, int], group: str = GROUP) -> dict[Any, int]:
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                _Commit(
                    name=name,
                    partitions=[
                        _Commit.OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=5
                        )
                    ],
                )
                for name, number in topics
            ],
        )
        result = self.offsets.offset_commit(request, context(version))
        response: Any = self.zk.run(result) if hasattr(result, "__await__") else result
        return {
            (t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions
        }

    def fetch(self, version: int, *topics: tuple[str, int], group: str = GROUP) -> Any:
        request = OffsetFetchRequest(
            group_id=group,
            topics=[_Fetch(name=name, partition_indexes=[number]) for name, number in topics],
        )
        result = self.offsets.offset_fetch(request, context(version))
        return self.zk.run(result) if hasattr(result, "__await__") else result


def codes(response: Any) -> dict[Any, tuple[int, int]]:
    return {
        (t.name, p.partition_index): (p.committed_offset, p.error_code)
        for t in response.topics
        for p in t.partitions
    }


# -- FindCoordinator ---------------------------------------------------------------------------


def test_coordinator_is_the_leader_of_the_partition() -> None:
    world = World()
    found = answer(world.api.find_coordinator(FindCoordinatorRequest(key="g"), context(3)))
    assert (found.error_code, found.node_id, found.host) == (0, 2, "h2")
    assert world.auto.asked == []


def test_partition_without_leader_has_no_coordinator() -> None:
    world = World()
    topics = {"__consumer_offsets": [(0, -1, [2])]}
    world.metadata.update(update_metadata(topics, brokers=[1, 2], controller=1))
    found = answer(world.api.find_coordinator(FindCoordinatorRequest(key="g"), context(3)))
    assert (found.error_code, found.node_id) == (errors.CoordinatorNotAvailable.code, -1)
    assert world.auto.asked == []


def test_first_question_creates_the_topic() -> None:
    world = World(topic=False)
    request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
    found = answer(world.api.find_coordinator(request, context(4)))
    assert [c.error_code for c in found.coordinators] == [errors.CoordinatorNotAvailable.code] * 2
    assert [(c.key, c.node_id, c.port) for c in found.coordinators] == [
        ("g", -1, -1),
        ("h", -1, -1),
    ]
    assert world.auto.asked == [["__consumer_offsets"]]


def test_topic_is_not_created_for_those_who_may_not_see_the_group() -> None:
    world = World(PickyAuthorizer(NO_DESCRIBE), topic=False)
    found = answer(world.api.find_coordinator(FindCoordinatorRequest(key="g"), context(1)))
    assert found.error_code == errors.GroupAuthorizationFailed.code
    assert world.auto.asked == []


def test_each_key_has_its_own_permission() -> None:
    world = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.GROUP, "hidden")))
    request = FindCoordinatorRequest(coordinator_keys=["g", "hidden"])
    found = answer(world.api.find_coordinator(request, context(5)))
    assert [c.error_code for c in found.coordinators] == [0, errors.GroupAuthorizationFailed.code]


def test_transactions_have_no_coordinator_here() -> None:
    world = World()
    request = FindCoordinatorRequest(key="x", key_type=1)
    found = answer(world.api.find_coordinator(request, context(2)))
    assert (found.error_code, found.node_id) == (errors.CoordinatorNotAvailable.code, -1)


# -- permissions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("join_group", JoinGroupRequest(group_id=GROUP)),
        ("sync_group", SyncGroupRequest(group_id=GROUP, protocol_type="c", protocol_name="p")),
        ("heartbeat", HeartbeatRequest(group_id=GROUP)),
        ("leave_group", LeaveGroupRequest(group_id=GROUP)),
    ],
)
def test_members_need_to_read_the_group(method: str, request_: Any) -> None:
    world = World(PickyAuthorizer(NO_READ))
    with pytest.raises(errors.GroupAuthorizationFailed):
        getattr(world.api, method)(request_, context(5))


def test_describe_tells_each_group_apart() -> None:
    world = World(PickyAuthorizer((Operation.DESCRIBE, ResourceType.GROUP, "hidden")))
    request = DescribeGroupsRequest(groups=["g", "hidden"], include_authorized_operations=True)
    found = answer(world.api.describe_groups(request, context(5)))
    assert [(g.group_id, g.error_code, g.group_state) for g in found.groups] == [
        ("hidden", 30, ""),
        ("g", 0, "Dead"),
    ]
    assert found.groups[1].authorized_operations == (1 << 3) | (1 << 6) | (1 << 8)
    assert found.groups[0].authorized_operations == -(1 << 31)


def test_list_shows_what_may_be_described() -> None:
    picky = PickyAuthorizer(
        (Operation.DESCRIBE, ResourceType.CLUSTER, None),
        (Operation.DESCRIBE, ResourceType.GROUP, "hidden"),
    )
    world = World(picky)
    for group in ("g", "hidden"):
        world.commit(5, ("t", 0), group=group)
    listed = world.api.list_groups(ListGroupsRequest(), context(5))
    assert [group.group_id for group in listed.groups] == ["g"]


def test_delete_needs_permission_for_each_group() -> None:
    world = World(PickyAuthorizer((Operation.DELETE, ResourceType.GROUP, "kept")))
    world.commit(5, ("t", 0))
    world.commit(5, ("t", 0), group="kept")
    request = DeleteGroupsRequest(groups_names=["kept", GROUP, GROUP])
    found = world.api.delete_groups(request, context(2))
    assert [(r.group_id, r.error_code) for r in found.results] == [(GROUP, 0), ("kept", 30)]


def test_commits_need_the_topic_too() -> None:
    world = World(PickyAuthorizer((Operation.READ, ResourceType.TOPIC, "secret")))
    found = world.commit(9, ("secret", 0), ("t", 0), ("t", 7), ("none", 0))
    assert found == {("secret", 0): 29, ("t", 0): 0, ("t", 7): 3, ("none", 0): 3}
    world = World(PickyAuthorizer(NO_READ))
    with pytest.raises(errors.GroupAuthorizationFailed):
        world.commit(9, ("t", 0))


def test_no_topic_is_unknown_before_a_controller_has_told_of_topics() -> None:
    world = World()
    world.metadata.lacks_topics = True
    not_ready, unknown = (
        errors.CoordinatorLoadInProgress.code,
        errors.UnknownTopicOrPartition.code,
    )
    assert world.commit(8, ("x", 0), ("t", 9)) == {("x", 0): not_ready, ("t", 9): not_ready}
    world.metadata.lacks_topics = False
    assert world.commit(8, ("x", 0), ("t", 9)) == {("x", 0): unknown, ("t", 9): unknown}


def test_fetch_hides_topics() -> None:
    picky = PickyAuthorizer((Operation.DESCRIBE, ResourceType.TOPIC, "secret"))
    world = World(picky)
    world.commit(5, ("secret", 0), ("t", 0))
    assert codes(world.fetch(5, ("secret", 0), ("t", 0))) == {
        ("secret", 0): (-1, 29),
        ("t", 0): (5, 0),
    }
    everything = OffsetFetchRequest(group_id=GROUP, topics=None)
    found = answer(world.offsets.offset_fetch(everything, context(7)))
    assert codes(found) == {("t", 0): (5, 0)}


@pytest.mark.parametrize(("version", "top"), [(1, 0), (2, 30), (7, 30)])
def test_fetch_without_permission(version: int, top: int) -> None:
    world = World(PickyAuthorizer(NO_DESCRIBE))
    found = world.fetch(version, ("t", 0))
    assert found.error_code == top
    assert codes(found) == ({("t", 0): (-1, 30)} if version < 2 else {})


def test_delete_offsets_needs_both() -> None:
    world = World(PickyAuthorizer((Operation.READ, ResourceType.TOPIC, "secret")))
    world.groups.commit(1)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            _Delete(
                name=name,
                partitions=[_Delete.OffsetDeleteRequestPartition(partition_index=number)],
            )
            for name, number in (("secret", 0), ("t", 0), ("t", 9))
        ],
    )
    found = world.offsets.offset_delete(request, context(0))
    got = {(t.name, p.partition_index): p.error_code for t in found.topics for p in t.partitions}
    assert got == {("secret", 0): 29, ("t", 0): 0, ("t", 9): 3}
    world = World(PickyAuthorizer((Operation.DELETE, ResourceType.GROUP, None)))
    with pytest.raises(errors.GroupAuthorizationFailed):
        world.offsets.offset_delete(request, context(0))


# -- version 0 ---------------------------------------------------------------------------------


def test_version_0_keeps_offsets_in_zookeeper() -> None:
    world = World()
    assert codes(world.fetch(0, ("t", 0))) == {("t", 0): (-1, 3)}
    assert world.commit(0, ("t", 0), ("t", 9)) == {("t", 0): 0, ("t", 9): 3}
    assert world.commit(0, ("t", 0)) == {("t", 0): 0}
    data, _ = world.zk.run(world.zk.zk.get(f"/consumers/{GROUP}/offsets/t/0"))
    assert data == b"5"
    assert codes(world.fetch(0, ("t", 0))) == {("t", 0): (5, 0)}
    assert codes(world.fetch(1, ("t", 0))) == {("t", 0): (-1, 0)}


@pytest.mark.parametrize("group", ["", ".", "a//b", "a/../b", "\n"])
def test_names_that_are_no_paths(group: str) -> None:
    world = World()
    assert world.commit(0, ("t", 0), group=group) == {("t", 0): -1}
    with pytest.raises(BadArguments):
        world.zk.run(consumers.read_offset(world.zk.zk, group, TopicPartition("t", 0)))


def test_offset_that_is_no_number() -> None:
    world = World()
    world.commit(0, ("t", 0))
    world.zk.run(world.zk.zk.set(f"/consumers/{GROUP}/offsets/t/0", b"x"))
    assert codes(world.fetch(0, ("t", 0))) == {("t", 0): (-1, -1)}
    with pytest.raises(CorruptZnode):
        world.zk.run(consumers.read_offset(world.zk.zk, GROUP, TopicPartition("t", 0)))
