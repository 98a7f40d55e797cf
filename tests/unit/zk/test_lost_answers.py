"""Every typed write, with its connection lost or its session ended at every single request.

A lost connection must not be visible in the outcome or in what is left in the tree, whether or not
the request had been applied; an ended session must be told as SessionExpired, and the next try in a
new session must come to the same end.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkalike.errors import DuplicateBrokerRegistration, TopicAlreadyExists
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import admin, brokers, configs, election, paths, producer_ids, security, topics
from kafkalike.zk.client import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    Op,
    SessionExpired,
    SessionState,
    SetData,
    ZkClient,
    ZkError,
)
from kafkalike.zk.election import ControllerMoved
from kafkalike.zk.server.local import LocalCoordination, LocalZkClient
from kafkalike.zk.znodes import BrokerInfo, PartitionState, TopicInfo
from tests.fakes import FakeClock, FakeRandom

LOG = logging.getLogger("test.zk")
INFO = TopicInfo({n: ReplicaAssignment((1, 2)) for n in range(3)}, bytes(range(16)))
BROKER = BrokerInfo((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),))
ENTRY = security.AclEntry("User:a", "Allow", "Read", "*")
TPS = [TopicPartition("old", n) for n in range(3)]


def state(leader_epoch: int, partition_epoch: int = 0) -> PartitionState:
    leadership = LeaderAndIsr(1, leader_epoch, (1, 2), partition_epoch=partition_epoch)
    return PartitionState(leadership, 1)


class Cluster:
    """A fake ZooKeeper with a controller (another client's) and one topic `old`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.random = FakeRandom(1)
        self.service = LocalCoordination(self.clock)
        self.controller = self.client()
        self.run(brokers.precreate(self.controller))
        self.fence = self.run(election.elect(self.controller, 1, 1)).epoch_zk_version
        self.run(topics.create_topic(self.controller, "old", INFO, {"a": "b"}))
        states = {tp: state(0) for tp in TPS}
        self.run(topics.create_partition_states(self.controller, self.fence, states))
        self.run(admin.request_topic_deletion(self.controller, "old"))
        self.zk = self.client()

    def client(self) -> LocalZkClient:
        zk = self.service.client()
        self.run(zk.connect(5.0))
        return zk

    def run(self, work: Awaitable[Any]) -> Any:
        outcome: list[Any] = []
        as_deferred(work).addBoth(outcome.append)
        for _ in range(60_000):
            if outcome:
                break
            self.clock.advance(0.001)
        (result,) = outcome
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def tree(self) -> dict[str, tuple[bytes | None, int, bool]]:
        """Data, version and kind of every node."""
        return {
            path: (node.data, node.stat().version, node.stat().ephemeral_owner != 0)
            for path, node in self.service.tree.nodes.items()
        }


async def create_and_fail(c: Cluster, zk: ZkClient) -> Any:
    """A batch in which some operations fail by themselves, in every fault the same ones."""
    ops: list[Op] = [
        Create("/a", None),
        Create("/brokers", None),
        SetData(paths.topic("old"), b"1", 5),
        SetData(paths.topic("old"), b"2", 0),
        Create("/a/b", b"x"),
        Delete("/nothing"),
        Delete(paths.topic_config("old")),
    ]
    results = await election.guarded_batch(zk, c.fence, ops)
    return [type(result).__name__ if isinstance(result, ZkError) else "ok" for result in results]


async def register(c: Cluster, zk: ZkClient) -> Any:
    registration = await brokers.register(zk, c.clock, 9, BROKER, wait_s=20.0, logger=LOG)
    stat = c.service.stat(paths.broker(9))
    assert stat is not None
    assert (stat.czxid, stat.ephemeral_owner) == (registration.epoch, zk.session_id)
    assert registration.session_id == zk.session_id


async def elect(c: Cluster, zk: ZkClient) -> Any:
    """The other controller is gone; this client must win, whatever happens to its answers."""
    if c.controller.session_id and c.controller.state.value == "connected":
        await c.controller.close()
    elected = await election.elect(zk, 2, 77)
    epoch = c.service.get(paths.CONTROLLER_EPOCH)
    stat = c.service.stat(paths.CONTROLLER_EPOCH)
    assert stat is not None
    assert epoch == b"%d" % elected.epoch
    assert stat.version == elected.epoch_zk_version


async def resign(c: Cluster, zk: ZkClient) -> Any:
    return await election.resign(zk, c.fence)


async def make_topic(c: Cluster, zk: ZkClient) -> Any:
    return await topics.create_topic(zk, "new", INFO, {"k": "v"})


async def make_states(c: Cluster, zk: ZkClient) -> Any:
    states = {TopicPartition("old", n): state(0) for n in (7, 8, 9)}
    return await topics.create_partition_states(zk, c.fence, states)


async def change_states(c: Cluster, zk: ZkClient) -> Any:
    outcomes = await topics.set_partition_states(zk, c.fence, {tp: state(1) for tp in TPS})
    return {
        tp: outcome if isinstance(outcome, LeaderAndIsr) else 0 for tp, outcome in outcomes.items()
    }


async def change_topic(c: Cluster, zk: ZkClient) -> Any:
    return await topics.set_topics(zk, c.fence, {"old": INFO})


async def delete_topic(c: Cluster, zk: ZkClient) -> Any:
    await topics.delete_topic_tree(zk, c.fence, "old")
    await configs.delete_topic_configs(zk, c.fence, ["old"])
    await admin.delete_topic_deletions(zk, c.fence, ["old"])


async def change_config(c: Cluster, zk: ZkClient) -> Any:
    return await configs.set_config(zk, "brokers/1", {"k": "v"})


async def drop_config(c: Cluster, zk: ZkClient) -> Any:
    await configs.set_config(zk, "users/u/clients/c", {"k": "v"})
    await configs.change_config(zk, "users/u/clients/c", {})


async def allocate(c: Cluster, zk: ZkClient) -> Any:
    block = await producer_ids.allocate_block(zk, 5)
    assert c.service.get(paths.PRODUCER_ID_BLOCK) == block.encode()
    return block.start


async def make_cluster_id(c: Cluster, zk: ZkClient) -> Any:
    made = await brokers.cluster_id(zk, c.random.bytes)
    assert made.encode() in (c.service.get(paths.CLUSTER_ID) or b"")


async def change_acls(c: Cluster, zk: ZkClient) -> Any:
    resource = security.AclResource("Topic", "t")
    await security.update_acls(zk, c.clock, c.random, resource, lambda old: old | {ENTRY})
    return await security.update_acls(zk, c.clock, c.random, resource, lambda old: old - {ENTRY})


async def reassign(c: Cluster, zk: ZkClient) -> Any:
    await admin.set_reassignments(zk, c.fence, {TPS[0]: (1,), TPS[1]: (2,)})
    await admin.set_reassignments(zk, c.fence, {TPS[1]: (2,)})
    await admin.delete_reassignments(zk, c.fence)


async def ask_for_deletion(c: Cluster, zk: ZkClient) -> Any:
    await admin.request_topic_deletion(zk, "other")


OPERATIONS: list[Callable[[Cluster, ZkClient], Awaitable[Any]]] = [
    create_and_fail,
    register,
    elect,
    resign,
    make_topic,
    make_states,
    change_states,
    change_topic,
    delete_topic,
    change_config,
    drop_config,
    allocate,
    make_cluster_id,
    change_acls,
    reassign,
    ask_for_deletion,
]

# Sent twice when the answer is lost, which Kafka's readers expect: notifications.
REPEATED = ("config_change_", "acl_changes_", paths.CONFIG_CHANGES, paths.ACL_CHANGES)
# The last writer writes again, so the version may be higher.
REWRITTEN = (
    paths.topic("old"),
    "/config/brokers/1",
    "/config/topics/new",
    paths.REASSIGN_PARTITIONS,
)
# Free to be different: random, or skipped on purpose.
DIFFERENT = (paths.CLUSTER_ID, paths.PRODUCER_ID_BLOCK)


def comparable(tree: dict[str, tuple[bytes | None, int, bool]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, (data, version, ephemeral) in tree.items():
        if any(word in path for word in REPEATED):
            continue
        if path in DIFFERENT:
            found[path] = "there"
        elif path in REWRITTEN:
            found[path] = (data, ephemeral)
        else:
            found[path] = (data, version, ephemeral)
    return found


def requests_of(operation: Callable[[Cluster, ZkClient], Awaitable[Any]]) -> int:
    """How many requests the operation makes when nothing goes wrong."""
    cluster = Cluster()
    count = 0

    def counting(kind: str, _: tuple[str, ...]) -> bool:
        nonlocal count
        count += 1
        return False

    cluster.zk.fail_next(counting, applied=False)
    cluster.run(operation(cluster, cluster.zk))
    return count


def fault_at(number: int) -> Callable[[str, tuple[str, ...]], bool]:
    seen = -1

    def match(_: str, __: tuple[str, ...]) -> bool:
        nonlocal seen
        seen += 1
        return seen == number

    return match


@pytest.mark.parametrize("applied", [False, True], ids=["unapplied", "applied"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_a_lost_connection_does_not_show(
    operation: Callable[[Cluster, ZkClient], Awaitable[Any]], applied: bool
) -> None:
    calm = Cluster()
    expected = calm.run(operation(calm, calm.zk))
    count = requests_of(operation)
    assert count > 0
    for number in range(count):
        cluster = Cluster()
        cluster.zk.fail_next(fault_at(number), applied=applied)
        outcome = cluster.run(operation(cluster, cluster.zk))
        where = f"request {number} of {count}"
        if operation is not allocate:
            assert outcome == expected, where
        assert comparable(cluster.tree()) == comparable(calm.tree()), where


def expire_with_connection(zk: LocalZkClient) -> None:
    """When its connection is lost, the session has ended."""

    def end() -> None:
        zk.expire_session()
        zk.restore_connection()

    def heard(state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            zk.coordination.clock.call_later(0.0, end)

    zk.add_listener(heard)


@pytest.mark.parametrize("applied", [False, True], ids=["unapplied", "applied"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_an_ended_session_is_told_and_the_next_try_comes_to_the_same_end(
    operation: Callable[[Cluster, ZkClient], Awaitable[Any]], applied: bool
) -> None:
    calm = Cluster()
    calm.run(operation(calm, calm.zk))
    count = requests_of(operation)
    for number in range(count):
        cluster = Cluster()
        zk = cluster.zk
        expire_with_connection(zk)
        zk.fail_next(fault_at(number), applied=applied, reconnect=False)
        with pytest.raises(SessionExpired):
            cluster.run(operation(cluster, zk))
        cluster.run(zk.reconnect())
        try:
            cluster.run(operation(cluster, zk))
        except (TopicAlreadyExists, ControllerMoved):
            # The first try had reached the tree; nobody but the caller can know.
            assert operation in (make_topic, elect)
        where = f"request {number} of {count}"
        left, wanted = comparable(cluster.tree()), comparable(calm.tree())
        assert set(left) == set(wanted), where


def test_somebody_elses_write_is_not_taken_for_ours() -> None:
    """The connection breaks before our write was applied, and another client writes meanwhile."""
    cluster = Cluster()
    zk, other = cluster.zk, cluster.controller
    zk.fail_next(lambda kind, _: kind == "multi", applied=False, reconnect=False)
    outcome: list[Any] = []
    work = topics.set_partition_states(zk, cluster.fence, {TPS[0]: state(1)})
    as_deferred(work).addBoth(outcome.append)
    cluster.clock.advance(0.1)
    assert outcome == []
    cluster.run(other.set(paths.partition_state("old", 0), state(5).encode()))
    zk.restore_connection()
    cluster.clock.advance(1.0)
    assert isinstance(outcome[0][TPS[0]], BadVersion)

    zk.fail_next(lambda kind, _: kind == "multi", applied=False, reconnect=False)
    work2 = topics.create_partition_states(zk, cluster.fence, {TopicPartition("old", 9): state(0)})
    outcome.clear()
    as_deferred(work2).addBoth(outcome.append)
    cluster.clock.advance(0.1)
    cluster.run(
        topics.create_partition_states(other, cluster.fence, {TopicPartition("old", 9): state(3)})
    )
    zk.restore_connection()
    cluster.clock.advance(1.0)
    assert isinstance(outcome[0][TopicPartition("old", 9)], NodeExists)


def test_two_creators_of_one_topic_with_lost_answers() -> None:
    """Exactly one is told that it made the topic."""
    cluster = Cluster()
    mine = TopicInfo(INFO.partitions, b"m" * 16)
    theirs = TopicInfo(INFO.partitions, b"t" * 16)
    creates = lambda kind, at: kind == "multi" and paths.topic("new") in at  # noqa: E731
    cluster.zk.fail_next(creates, applied=False, reconnect=False)
    outcome: list[Any] = []
    work = topics.create_topic(cluster.zk, "new", mine, {})
    as_deferred(work).addBoth(outcome.append)
    cluster.clock.advance(0.1)
    assert cluster.zk.state.value == "suspended"
    cluster.run(topics.create_topic(cluster.controller, "new", theirs, {}))
    cluster.zk.restore_connection()
    cluster.clock.advance(1.0)
    assert outcome[0].type is TopicAlreadyExists
    assert cluster.service.get(paths.topic("new")) == theirs.encode()


def test_a_lost_election_is_not_taken_for_a_won_one() -> None:
    """The multi is lost before it is applied and another broker wins meanwhile."""
    cluster = Cluster()
    cluster.run(election.resign(cluster.controller, cluster.fence))
    cluster.zk.fail_next(lambda kind, _: kind == "multi", applied=False, reconnect=False)
    outcome: list[Any] = []
    as_deferred(election.elect(cluster.zk, 2, 5)).addBoth(outcome.append)
    cluster.clock.advance(0.1)
    cluster.run(election.elect(cluster.controller, 1, 6))
    cluster.zk.restore_connection()
    cluster.clock.advance(1.0)
    assert outcome[0].type is ControllerMoved


def test_a_won_election_of_an_earlier_life_is_not_ours() -> None:
    """Same broker id and time, but the node belongs to the session before."""
    cluster = Cluster()
    cluster.run(election.resign(cluster.controller, cluster.fence))
    earlier = cluster.client()
    cluster.run(election.elect(earlier, 2, 5))
    with pytest.raises(ControllerMoved):
        cluster.run(election.elect(cluster.zk, 2, 5))


def test_the_fence_holds_when_the_controller_changes_during_a_reconnect() -> None:
    """KAFKA-6082: frozen before its write, replaced, thawed: nothing is changed."""
    cluster = Cluster()
    zk = cluster.zk
    zk.freeze()
    outcome: list[Any] = []
    as_deferred(topics.set_partition_states(zk, cluster.fence, {TPS[0]: state(1)})).addBoth(
        outcome.append
    )
    cluster.run(election.resign(cluster.controller, cluster.fence))
    cluster.run(election.elect(cluster.controller, 3, 9))
    before = cluster.tree()
    zk.thaw()
    cluster.clock.advance(30.0)
    assert outcome[0].type in (ControllerMoved, SessionExpired, ConnectionLost)
    assert cluster.tree() == before


def test_a_registration_behind_a_dead_session_comes_through() -> None:
    """The process was killed and restarted: its old session runs out while the new one waits."""
    cluster = Cluster()
    dead = cluster.client()
    cluster.run(brokers.register(dead, cluster.clock, 9, BROKER, wait_s=1.0, logger=LOG))
    dead.isolate()
    begin = cluster.clock.monotonic()
    cluster.run(brokers.register(cluster.zk, cluster.clock, 9, BROKER, wait_s=20.0, logger=LOG))
    assert 1.0 < cluster.clock.monotonic() - begin < 7.0
    stat = cluster.service.stat(paths.broker(9))
    assert stat is not None
    assert stat.ephemeral_owner == cluster.zk.session_id


def test_waiting_for_a_dead_session_ends_with_ours() -> None:
    cluster = Cluster()
    stranger = cluster.client()
    cluster.run(brokers.register(stranger, cluster.clock, 9, BROKER, wait_s=1.0, logger=LOG))
    cluster.clock.call_later(2.0, cluster.zk.expire_session)
    with pytest.raises(SessionExpired):
        cluster.run(brokers.register(cluster.zk, cluster.clock, 9, BROKER, wait_s=60.0, logger=LOG))
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.run(cluster.zk.reconnect())
        cluster.run(brokers.register(cluster.zk, cluster.clock, 9, BROKER, wait_s=3.0, logger=LOG))
