"""Typed ZooKeeper operations, on a real server and on the fake."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from kafkalike.errors import DuplicateBrokerRegistration, TopicAlreadyExists
from kafkalike.types import Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import admin, brokers, configs, election, paths, producer_ids, security, topics
from kafkalike.zk.client import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZkClient,
    ensure_path,
)
from kafkalike.zk.election import ControllerMoved, Elected
from kafkalike.zk.notifications import CHANGE_EXPIRATION_MS, NotificationListener
from kafkalike.zk.watches import WatchSet
from kafkalike.zk.znodes import BrokerInfo, ControllerInfo, CorruptZnode, PartitionState, TopicInfo
from tests.fakes import FakeRandom
from tests.zk_worlds import World

LOG = logging.getLogger("test.zk")
RANDOM = FakeRandom(7)


def broker_info(port: int, timestamp_ms: int = 1) -> BrokerInfo:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port)
    return BrokerInfo((endpoint,), rack="r", timestamp_ms=timestamp_ms)


@pytest.fixture
def zk(world: World) -> ZkClient:
    """A client of a cluster in which broker 1 is controller."""
    client = world.client()
    world.run(client.connect(10.0))
    world.run(brokers.precreate(client))
    return client


@pytest.fixture
def elected(world: World, zk: ZkClient) -> Elected:
    return world.run(election.elect(zk, 1, 1000))


def register(
    world: World, zk: ZkClient, broker_id: int, info: BrokerInfo, previous: int = 0
) -> brokers.Registration:
    return world.run(
        brokers.register(
            zk,
            world.clock,
            broker_id,
            info,
            wait_s=60.0,
            logger=LOG,
            previous_session_id=previous,
        )
    )


def test_parents_are_made_with_null_data(world: World, zk: ZkClient) -> None:
    for path in paths.PRECREATED:
        assert world.run(zk.get(path))[0] is None, path
    world.run(zk.set(paths.BROKER_SEQID, b""))
    world.run(brokers.precreate(zk))
    assert world.run(zk.get(paths.BROKER_SEQID))[0] == b""


def test_the_first_broker_makes_the_cluster_id(world: World, zk: ZkClient) -> None:
    assert world.run(brokers.read_cluster_id(zk)) is None
    made = world.run(brokers.cluster_id(zk, RANDOM.bytes))
    assert len(made) == 22
    assert world.run(brokers.cluster_id(zk, RANDOM.bytes)) == made
    assert world.run(brokers.read_cluster_id(zk)) == made
    data, _ = world.run(zk.get(paths.CLUSTER_ID))
    assert data == b'{"version":"1","id":"%s"}' % made.encode()


def test_generated_broker_ids_differ(world: World, zk: ZkClient) -> None:
    assert [world.run(brokers.generate_broker_id(zk, 1000)) for _ in range(3)] == [1001, 1002, 1003]


def test_registration_and_reading(world: World, zk: ZkClient) -> None:
    registration = register(world, zk, 5, broker_info(9092))
    stat = world.run(zk.exists(paths.broker(5)))
    assert stat is not None
    assert stat.version == 1
    assert registration == brokers.Registration(stat.czxid, zk.session_id)
    found = world.run(brokers.read_all(zk))
    assert found == {5: brokers.RegisteredBroker(5, stat.czxid, broker_info(9092))}
    again = register(world, zk, 5, broker_info(9092))
    assert again == registration
    changed = broker_info(9099)
    world.run(brokers.update(zk, 5, changed))
    found = world.run(brokers.read_all(zk))
    assert found == {5: brokers.RegisteredBroker(5, registration.epoch, changed)}
    with pytest.raises(NoNode):
        world.run(brokers.update(zk, 6, changed))


def test_registration_is_one_step_for_everybody_else(world: World, zk: ZkClient) -> None:
    """A watcher of the parent that reads at once never sees a broker without data."""
    other = world.client()
    world.run(other.connect(10.0))
    sightings: list[int] = []

    def look(_: WatchEvent) -> None:
        def note(answer: tuple[bytes | None, Stat]) -> None:
            sightings.append(len(answer[0] or b""))

        zk.get(paths.broker(7)).addCallback(note)

    world.run(zk.get_children(paths.BROKER_IDS, look))
    register(world, other, 7, broker_info(1))
    world.run_until(lambda: bool(sightings))
    assert sightings[0] > 0


def test_a_shared_address_is_refused(world: World, zk: ZkClient) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    register(world, zk, 1, broker_info(9092))
    with pytest.raises(DuplicateBrokerRegistration, match=r"127\.0\.0\.1:9092.*broker 1"):
        register(world, other, 2, broker_info(9092))
    assert world.run(zk.exists(paths.broker(2))) is None


def test_our_own_earlier_session_is_replaced(world: World, zk: ZkClient) -> None:
    """The old session is still alive on the server when the new one registers."""
    earlier = world.client()
    world.run(earlier.connect(10.0))
    first = register(world, earlier, 3, broker_info(9092))
    second = register(world, zk, 3, broker_info(9092, 2), previous=earlier.session_id)
    assert second.epoch > first.epoch
    stat = world.run(zk.exists(paths.broker(3)))
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id


def test_a_stranger_with_our_id_is_waited_for(
    world: World, zk: ZkClient, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = world.client()
    world.run(stranger.connect(10.0))
    first = register(world, stranger, 3, broker_info(9092))
    world.clock.call_later(0.7, lambda: world.expire(stranger))
    with caplog.at_level(logging.WARNING):
        second = register(world, zk, 3, broker_info(9092))
    assert second.epoch > first.epoch
    assert "waiting for the session of another broker" in caplog.text


def test_a_stranger_with_our_id_that_stays_is_an_error(world: World, zk: ZkClient) -> None:
    stranger = world.client()
    world.run(stranger.connect(10.0))
    register(world, stranger, 3, broker_info(9092))
    begin = world.clock.monotonic()
    with pytest.raises(DuplicateBrokerRegistration, match="is held by session"):
        world.run(brokers.register(zk, world.clock, 3, broker_info(9092), wait_s=0.5, logger=LOG))
    assert world.clock.monotonic() - begin > 0.4


def test_unreadable_registrations_are_named(world: World, zk: ZkClient) -> None:
    world.run(zk.create(paths.broker(9), b"{"))
    with pytest.raises(CorruptZnode, match="/brokers/ids/9"):
        world.run(brokers.read_all(zk))


def test_the_first_election_and_the_next(world: World, zk: ZkClient) -> None:
    assert world.run(election.read_controller(zk)) is None
    assert world.run(election.read_controller_epoch(zk)) is None
    first = world.run(election.elect(zk, 1, 123))
    assert first == Elected(1, 1)
    holder = world.run(election.read_controller(zk))
    assert holder is not None
    assert holder[0] == ControllerInfo(1, 123)
    assert world.run(zk.get(paths.CONTROLLER_EPOCH))[0] == b"1"
    other = world.client()
    world.run(other.connect(10.0))
    with pytest.raises(ControllerMoved, match="broker 1 is controller"):
        world.run(election.elect(other, 2, 124))
    world.run(election.resign(zk, first.epoch_zk_version))
    second = world.run(election.elect(other, 2, 125))
    assert second == Elected(2, 2)
    with pytest.raises(ControllerMoved):
        world.run(election.resign(zk, first.epoch_zk_version))
    holder = world.run(election.read_controller(zk))
    assert holder is not None
    assert holder[0].broker_id == 2


def test_exactly_one_of_many_candidates_wins(world: World, zk: ZkClient) -> None:
    candidates = [world.client() for _ in range(4)]
    for candidate in candidates:
        world.run(candidate.connect(10.0))
    won: list[int] = []
    lost: list[int] = []

    async def run_for(broker_id: int, candidate: ZkClient) -> None:
        try:
            await election.elect(candidate, broker_id, 5)
            won.append(broker_id)
        except ControllerMoved:
            lost.append(broker_id)

    from twisted.internet.defer import Deferred, gatherResults

    world.run(
        gatherResults([Deferred.fromCoroutine(run_for(i, c)) for i, c in enumerate(candidates)])
    )
    assert len(won) == 1
    assert len(lost) == 3


def test_a_controller_watch_sees_the_first_election(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    assert world.run(election.read_controller(zk, events.append)) is None
    world.run(election.elect(zk, 1, 1))
    world.run(zk.exists("/"))
    assert [event.path for event in events] == [paths.CONTROLLER]


def test_fenced_writes_by_a_replaced_controller_change_nothing(
    world: World, zk: ZkClient, elected: Elected
) -> None:
    world.run(zk.create("/n", b"0"))
    fence = elected.epoch_zk_version
    assert isinstance(world.run(election.guarded(zk, fence, SetData("/n", b"1"))), Stat)
    world.run(zk.set(paths.CONTROLLER_EPOCH, b"2"))
    for op in (SetData("/n", b"2"), Create("/m", b""), Delete("/n")):
        with pytest.raises(ControllerMoved):
            world.run(election.guarded(zk, fence, op))
    assert world.run(zk.get("/n"))[0] == b"1"
    assert world.run(zk.exists("/m")) is None


def test_a_fence_that_cannot_be_checked_is_an_error(world: World, zk: ZkClient) -> None:
    with pytest.raises(NoNode):
        world.run(election.guarded(zk, 0, Create("/n", b"")))


@pytest.mark.parametrize("group_ops", [1, 2, 3, 7, 500])
def test_a_batch_has_the_outcomes_of_single_writes(
    world: World, zk: ZkClient, elected: Elected, group_ops: int
) -> None:
    for number in range(12):
        world.run(zk.create(f"/n{number}", b"old"))
    bad = {0, 3, 4, 5, 9, 11}
    ops: list[Op] = []
    for number in range(12):
        ops.append(SetData(f"/n{number}", b"new", 5 if number in bad else 0))
    ops += [
        Create("/p", None),
        Create("/p/c", b""),
        Create("/p/c", b"twice"),
        Create("/q/c", b"no parent"),
        Delete("/p"),
        Delete("/p/c"),
        Delete("/p"),
        Delete("/missing"),
    ]
    results = world.run(
        election.guarded_batch(zk, elected.epoch_zk_version, ops, group_ops=group_ops)
    )
    for number in range(12):
        data, _ = world.run(zk.get(f"/n{number}"))
        if number in bad:
            assert isinstance(results[number], BadVersion)
            assert data == b"old"
        else:
            stat = results[number]
            assert isinstance(stat, Stat)
            assert stat.version == 1
            assert data == b"new"
    kinds = [result if isinstance(result, str) else type(result) for result in results[12:]]
    expected: list[object] = ["/p", "/p/c", NodeExists, NoNode]
    kinds_of_deletes = kinds[4:]
    assert kinds[:4] == expected
    assert [k.__name__ for k in kinds_of_deletes if isinstance(k, type)] == [
        "NotEmpty",
        "NoneType",
        "NoneType",
        "NoNode",
    ]


def test_large_batches_stay_below_the_packet_limit(
    world: World, zk: ZkClient, elected: Elected
) -> None:
    ops = [Create(f"/n{i}", b"x" * 200_000) for i in range(12)]
    results = world.run(election.guarded_batch(zk, elected.epoch_zk_version, ops))
    assert results == [f"/n{i}" for i in range(12)]


def state(
    leader: int, leader_epoch: int, isr: Sequence[int], partition_epoch: int = 0
) -> PartitionState:
    leadership = LeaderAndIsr(leader, leader_epoch, tuple(isr), partition_epoch=partition_epoch)
    return PartitionState(leadership, 1)


def topic_info(count: int, topic_id: bytes | None = b"0123456789abcdef") -> TopicInfo:
    return TopicInfo({n: ReplicaAssignment((1, 2)) for n in range(count)}, topic_id)


def test_topics_from_creation_to_deletion(world: World, zk: ZkClient, elected: Elected) -> None:
    fence = elected.epoch_zk_version
    world.run(topics.create_topic(zk, "t", topic_info(3), {"retention.ms": "1"}))
    assert world.run(topics.list_topics(zk)) == ["t"]
    assert world.run(configs.read_config(zk, "topics/t")) == {"retention.ms": "1"}
    assert world.run(zk.get_children(paths.CONFIG_CHANGES))[0] == []
    assert world.run(topics.read_topic(zk, "t")) == topic_info(3)
    with pytest.raises(TopicAlreadyExists):
        world.run(topics.create_topic(zk, "t", topic_info(1), {}))
    assert world.run(configs.read_config(zk, "topics/t")) == {"retention.ms": "1"}

    tps = [TopicPartition("t", n) for n in range(3)]
    first = {tp: state(1, 0, (1, 2)) for tp in tps}
    created = world.run(topics.create_partition_states(zk, fence, first))
    assert created == {tp: LeaderAndIsr(1, 0, (1, 2)) for tp in tps}
    assert world.run(topics.read_partition_states(zk, [*tps, TopicPartition("u", 0)])) == first
    again = world.run(topics.create_partition_states(zk, fence, first))
    assert [type(outcome) for outcome in again.values()] == [NodeExists] * 3

    second = {
        tps[0]: state(2, 1, (2,), partition_epoch=0),
        tps[1]: state(2, 1, (2,), partition_epoch=7),
        TopicPartition("u", 0): state(2, 1, (2,)),
    }
    outcomes = world.run(topics.set_partition_states(zk, fence, second))
    assert outcomes[tps[0]] == LeaderAndIsr(2, 1, (2,), partition_epoch=1)
    assert isinstance(outcomes[tps[1]], BadVersion)
    assert isinstance(outcomes[TopicPartition("u", 0)], NoNode)

    world.run(topics.add_partitions(zk, "t", topic_info(4)))
    assert world.run(topics.read_topic(zk, "t")) == topic_info(4)
    moving = TopicInfo(
        {0: ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,))}, b"0123456789abcdef"
    )
    world.run(topics.set_topic(zk, fence, "t", moving))
    assert world.run(topics.read_topic(zk, "t")) == moving
    results = world.run(topics.set_topics(zk, fence, {"t": topic_info(2), "u": topic_info(1)}))
    assert results["t"] is None
    assert isinstance(results["u"], NoNode)

    world.run(topics.delete_topic_tree(zk, fence, "t"))
    world.run(configs.delete_topic_configs(zk, fence, ["t"]))
    assert world.run(topics.list_topics(zk)) == []
    assert world.run(zk.exists(paths.topic_config("t"))) is None
    world.run(topics.delete_topic_tree(zk, fence, "t"))
    with pytest.raises(NoNode):
        world.run(topics.add_partitions(zk, "t", topic_info(4)))


def test_a_topic_cannot_be_made_without_a_controller(world: World, zk: ZkClient) -> None:
    with pytest.raises(ControllerMoved):
        world.run(topics.create_topic(zk, "t", topic_info(1), {}))
    assert world.run(topics.list_topics(zk)) == []


def test_an_unreadable_topic_does_not_hide_the_others(
    world: World, zk: ZkClient, elected: Elected
) -> None:
    world.run(zk.create(paths.topic("bad"), b"[]"))
    world.run(topics.create_topic(zk, "good", topic_info(1), {}))
    found = world.run(topics.read_topics(zk, ["bad", "good", "absent"]))
    assert list(found) == ["bad", "good"]
    assert isinstance(found["bad"], CorruptZnode)
    assert found["good"] == topic_info(1)
    world.run(ensure_path(zk, paths.partition("bad", 0)))
    world.run(zk.create(paths.partition_state("bad", 0), b'{"leader":"x"}'))
    states = world.run(topics.read_partition_states(zk, [TopicPartition("bad", 0)]))
    assert isinstance(states[TopicPartition("bad", 0)], CorruptZnode)
    with pytest.raises(CorruptZnode, match="/brokers/topics/bad"):
        world.run(topics.read_topic(zk, "bad"))


def test_a_thousand_partitions_at_once(world: World, zk: ZkClient, elected: Elected) -> None:
    fence = elected.epoch_zk_version
    world.run(topics.create_topic(zk, "t", topic_info(1000), {}))
    tps = [TopicPartition("t", n) for n in range(1000)]
    first = {tp: state(1, 0, (1, 2)) for tp in tps}
    created = world.run(topics.create_partition_states(zk, fence, first))
    assert all(isinstance(outcome, LeaderAndIsr) for outcome in created.values())
    world.run(zk.set(paths.partition_state("t", 500), state(2, 9, (2,)).encode()))
    second = {tp: state(2, 1, (2, 1)) for tp in tps}
    outcomes = world.run(topics.set_partition_states(zk, fence, second))
    assert [tp.partition for tp, o in outcomes.items() if isinstance(o, BadVersion)] == [500]
    assert sum(isinstance(outcome, LeaderAndIsr) for outcome in outcomes.values()) == 999
    world.run(topics.delete_topic_tree(zk, fence, "t"))
    assert world.run(topics.list_topics(zk)) == []


def test_entity_configs(world: World, zk: ZkClient, elected: Elected) -> None:
    world.run(configs.set_config(zk, "brokers/1", {"a": "1"}))
    world.run(configs.set_config(zk, "brokers/1", {"a": "2", "b": "ü"}))
    world.run(configs.set_config(zk, f"brokers/{paths.DEFAULT_ENTITY}", {"c": "3"}))
    assert world.run(configs.read_all_configs(zk, "brokers")) == {
        "1": {"a": "2", "b": "ü"},
        "<default>": {"c": "3"},
    }
    assert world.run(configs.read_config(zk, "brokers/2")) == {}
    world.run(zk.create("/config/brokers/3", b'{"version":2}'))
    found = world.run(configs.read_configs(zk, ["brokers/1", "brokers/3", "brokers/4"]))
    assert found["brokers/1"] == {"a": "2", "b": "ü"}
    assert isinstance(found["brokers/3"], CorruptZnode)
    assert "brokers/4" not in found


def test_changing_a_config_tells_everybody(world: World, zk: ZkClient, elected: Elected) -> None:
    world.run(configs.change_config(zk, "topics/t", {"k": "v"}))
    data, _ = world.run(zk.get("/config/changes/config_change_0000000000"))
    assert configs.decode_change(data, "") == "topics/t"
    assert world.run(configs.read_config(zk, "topics/t")) == {"k": "v"}
    world.run(configs.change_config(zk, "topics/t", {}))
    assert world.run(zk.exists("/config/topics/t")) is not None


def test_emptied_client_and_user_configs_vanish(
    world: World, zk: ZkClient, elected: Elected
) -> None:
    change = configs.change_config
    world.run(change(zk, "users/u/clients/c", {"k": "v"}))
    world.run(change(zk, "users/u", {"k": "v"}))
    world.run(change(zk, "users/w/clients/c", {"k": "v"}))
    world.run(change(zk, "clients/c", {"k": "v"}))
    assert world.run(configs.list_user_clients(zk)) == ["users/u/clients/c", "users/w/clients/c"]
    world.run(change(zk, "users/u", {}))
    assert world.run(configs.read_config(zk, "users/u")) == {}
    assert world.run(zk.exists("/config/users/u/clients/c")) is not None
    world.run(change(zk, "users/u/clients/c", {}))
    world.run(change(zk, "users/w/clients/c", {}))
    world.run(change(zk, "clients/c", {}))
    world.run(change(zk, "clients/never-there", {}))
    assert world.run(configs.list_entities(zk, "users")) == []
    assert world.run(configs.list_entities(zk, "clients")) == []


def test_configs_need_a_zookeeper_controller(world: World, zk: ZkClient) -> None:
    with pytest.raises(ControllerMoved):
        world.run(configs.set_config(zk, "topics/t", {}))
    world.run(zk.create(paths.CONTROLLER, ControllerInfo(3000, 1, 5).encode()))
    with pytest.raises(ControllerMoved):
        world.run(configs.set_config(zk, "topics/t", {}))
    assert world.run(zk.exists("/config/topics/t")) is None


def test_producer_ids_are_never_given_twice(world: World, zk: ZkClient) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    blocks = [
        world.run(producer_ids.allocate_block(client, broker_id))
        for _ in range(3)
        for broker_id, client in ((1, zk), (2, other))
    ]
    assert [(b.broker_id, b.start, b.end) for b in blocks][:3] == [
        (1, 0, 999),
        (2, 1000, 1999),
        (1, 2000, 2999),
    ]
    assert sum(len(block) for block in blocks) == 6000


def test_racing_for_producer_ids(world: World, zk: ZkClient) -> None:
    from twisted.internet.defer import Deferred, gatherResults

    other = world.client()
    world.run(other.connect(10.0))
    work = [
        Deferred.fromCoroutine(producer_ids.allocate_block(client, 1))
        for _ in range(10)
        for client in (zk, other)
    ]
    blocks = world.run(gatherResults(work))
    assert sorted(block.start for block in blocks) == [n * 1000 for n in range(20)]


def test_producer_ids_without_their_node_or_at_their_end(world: World, zk: ZkClient) -> None:
    world.run(zk.delete(paths.PRODUCER_ID_BLOCK))
    assert world.run(producer_ids.allocate_block(zk, 1)).start == 0
    last = b'{"version":1,"broker":1,"block_start":"0","block_end":"9223372036854775000"}'
    world.run(zk.set(paths.PRODUCER_ID_BLOCK, last))
    with pytest.raises(CorruptZnode, match="used up"):
        world.run(producer_ids.allocate_block(zk, 1))
    world.run(zk.set(paths.PRODUCER_ID_BLOCK, b""))
    with pytest.raises(CorruptZnode, match="not JSON"):
        world.run(producer_ids.allocate_block(zk, 1))


def test_requests_to_the_controller(world: World, zk: ZkClient, elected: Elected) -> None:
    fence = elected.epoch_zk_version
    assert world.run(admin.request_topic_deletion(zk, "b"))
    assert world.run(admin.request_topic_deletion(zk, "a"))
    assert not world.run(admin.request_topic_deletion(zk, "a"))
    assert world.run(admin.list_topic_deletions(zk)) == ["a", "b"]
    world.run(admin.delete_topic_deletions(zk, fence, ["a", "b", "never"]))
    assert world.run(admin.list_topic_deletions(zk)) == []

    targets = {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (3,)}
    assert world.run(admin.read_reassignments(zk)) is None
    world.run(admin.set_reassignments(zk, fence, targets))
    assert world.run(admin.read_reassignments(zk)) == targets
    del targets[TopicPartition("t", 0)]
    world.run(admin.set_reassignments(zk, fence, targets))
    assert world.run(admin.read_reassignments(zk)) == targets
    world.run(admin.set_reassignments(zk, fence, {}))
    world.run(admin.delete_reassignments(zk, fence))
    assert world.run(admin.read_reassignments(zk)) is None

    events: list[WatchEvent] = []
    assert world.run(admin.read_preferred_election(zk, events.append)) is None
    wanted = b'{"version":1,"partitions":[{"topic":"t","partition":4}]}'
    world.run(zk.create(paths.PREFERRED_REPLICA_ELECTION, wanted))
    assert world.run(admin.read_preferred_election(zk)) == (TopicPartition("t", 4),)
    assert len(events) == 1
    world.run(admin.delete_preferred_election(zk, fence))
    world.run(admin.delete_preferred_election(zk, fence))
    assert world.run(admin.read_preferred_election(zk)) is None
    world.run(zk.create(paths.PREFERRED_REPLICA_ELECTION, None))
    with pytest.raises(CorruptZnode):
        world.run(admin.read_preferred_election(zk))


def test_notifications_for_the_controller(world: World, zk: ZkClient, elected: Elected) -> None:
    fence = elected.epoch_zk_version
    world.run(admin.notify_log_dir_failure(zk, 4))
    world.run(admin.notify_log_dir_failure(zk, 4))
    world.run(zk.create("/log_dir_event_notification/log_dir_event_", b"junk", sequential=True))
    names, failed = world.run(admin.read_log_dir_events(zk))
    assert len(names) == 3
    assert failed == [4]
    world.run(admin.delete_log_dir_events(zk, fence, [*names, "log_dir_event_0000000099"]))
    assert world.run(admin.read_log_dir_events(zk)) == ([], [])

    for partition in (1, 2, 1):
        data = b'{"version":1,"partitions":[{"topic":"t","partition":%d}]}' % partition
        prefix = f"{paths.ISR_CHANGE_NOTIFICATION}/{paths.ISR_CHANGE_PREFIX}"
        world.run(zk.create(prefix, data, sequential=True))
    names, changed = world.run(admin.read_isr_changes(zk))
    assert changed == [TopicPartition("t", 1), TopicPartition("t", 2)]
    world.run(admin.delete_isr_changes(zk, fence, names))
    assert world.run(admin.read_isr_changes(zk)) == ([], [])


READ = security.AclEntry("User:a", "Allow", "Read", "*")
WRITE = security.AclEntry("User:a", "Allow", "Write", "*")


def change_acls(
    world: World,
    zk: ZkClient,
    resource: security.AclResource,
    add: Sequence[security.AclEntry] = (),
    remove: Sequence[security.AclEntry] = (),
) -> frozenset[security.AclEntry]:
    return world.run(
        security.update_acls(
            zk, world.clock, RANDOM, resource, lambda old: (old | set(add)) - set(remove)
        )
    )


def test_acls(world: World, zk: ZkClient) -> None:
    world.run(security.precreate_acls(zk))
    literal = security.AclResource("TransactionalId", "x")
    prefixed = security.AclResource("Topic", "pre", True)
    assert change_acls(world, zk, literal, add=[READ, WRITE]) == {READ, WRITE}
    assert change_acls(world, zk, literal, add=[READ]) == {READ, WRITE}
    assert change_acls(world, zk, prefixed, add=[WRITE]) == {WRITE}
    assert world.run(security.read_all_acls(zk)) == {
        literal: frozenset((READ, WRITE)),
        prefixed: frozenset((WRITE,)),
    }
    assert change_acls(world, zk, literal, remove=[READ]) == {WRITE}
    assert change_acls(world, zk, literal, remove=[WRITE]) == frozenset()
    assert world.run(zk.exists(literal.path)) is None
    assert change_acls(world, zk, literal, remove=[WRITE]) == frozenset()
    names, _ = world.run(zk.get_children(paths.ACL_CHANGES))
    assert len(names) == 3
    for name in names:
        path = f"{paths.ACL_CHANGES}/{name}"
        assert security.decode_acl_change(world.run(zk.get(path))[0], path) == literal
    (name,), _ = world.run(zk.get_children(paths.EXTENDED_ACL_CHANGES))
    path = f"{paths.EXTENDED_ACL_CHANGES}/{name}"
    assert security.decode_extended_acl_change(world.run(zk.get(path))[0], path) == prefixed


def test_acl_changes_of_two_brokers_add_up(world: World, zk: ZkClient) -> None:
    from twisted.internet.defer import Deferred, gatherResults

    other = world.client()
    world.run(other.connect(10.0))
    resource = security.AclResource("Topic", "t")

    async def add(client: ZkClient, entry: security.AclEntry) -> None:
        await security.update_acls(client, world.clock, RANDOM, resource, lambda old: old | {entry})

    entries = [security.AclEntry(f"User:{n}", "Allow", "Read", "*") for n in range(6)]
    work = [
        Deferred.fromCoroutine(add((zk, other)[n % 2], entry)) for n, entry in enumerate(entries)
    ]
    world.run(gatherResults(work))
    found, _ = world.run(security.read_acls(zk, resource))
    assert found == set(entries)


def test_scram_credentials(world: World, zk: ZkClient, elected: Elected) -> None:
    credential = security.ScramCredential(b"salt", b"stored", b"server", 4096)
    world.run(security.alter_scram(zk, "al ice*", {"SCRAM-SHA-256": credential}))
    entity = "users/al%20ice%2A"
    config = world.run(configs.read_config(zk, entity))
    assert security.scram_credentials(config) == {"SCRAM-SHA-256": credential}
    world.run(security.alter_scram(zk, "al ice*", {"SCRAM-SHA-512": credential}))
    world.run(security.alter_scram(zk, "al ice*", {"SCRAM-SHA-256": None}))
    config = world.run(configs.read_config(zk, entity))
    assert list(security.scram_credentials(config)) == ["SCRAM-SHA-512"]
    world.run(security.alter_scram(zk, "al ice*", {"SCRAM-SHA-512": None}))
    assert world.run(configs.list_entities(zk, "users")) == []


def test_delegation_tokens(world: World, zk: ZkClient) -> None:
    assert world.run(security.read_tokens(zk)) == {}
    world.run(security.precreate_tokens(zk))
    token = security.DelegationToken("id", "User:a b", "User:c", ("User:d",), 1, 2, 3)
    world.run(security.write_token(zk, token))
    world.run(security.write_token(zk, replace(token, expiry_ms=9)))
    assert world.run(security.read_token(zk, "id")) == replace(token, expiry_ms=9)
    assert list(world.run(security.read_tokens(zk))) == ["id"]
    world.run(security.delete_token(zk, "id"))
    world.run(security.delete_token(zk, "id"))
    assert world.run(security.read_token(zk, "id")) is None
    names, _ = world.run(zk.get_children(paths.DELEGATION_TOKEN_CHANGES))
    assert len(names) == 4


def test_watch_sets_coalesce_and_rearm(world: World, zk: ZkClient) -> None:
    calls: list[str] = []
    watches = WatchSet(zk, LOG)
    watches.on_children("/brokers/ids", lambda: calls.append("ids"))
    watches.on_change("/controller", lambda: calls.append("controller"))
    world.run(zk.get_children("/brokers/ids", watches.arm("/brokers/ids")))
    world.run(zk.exists("/controller", watches.arm("/controller")))
    world.run(zk.create("/brokers/ids/1", b""))
    world.run(zk.create("/controller", b""))
    world.run(zk.create("/brokers/ids/2", b""))
    assert sorted(calls) == ["controller", "ids"]
    calls.clear()
    # Somebody else's read with the same watch does not call a handler that has not read yet.
    world.run(zk.get_children("/brokers/ids", watches._fired))
    world.run(zk.create("/brokers/ids/3", b""))
    world.run(zk.exists("/"))
    assert calls == []
    world.run(zk.get_children("/brokers/ids", watches.arm("/brokers/ids")))
    world.run(zk.create("/brokers/ids/4", b""))
    world.run(zk.exists("/"))
    assert calls == ["ids"]
    watches.forget("/controller")
    world.run(zk.exists("/controller", watches.arm("/controller")))
    world.run(zk.delete("/controller"))
    world.run(zk.exists("/"))
    assert calls == ["ids"]
    watches.close()


def test_watch_sets_lose_nothing(world: World, zk: ZkClient) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    calls: list[str] = []
    watches = WatchSet(zk, LOG)
    watches.on_children("/brokers/ids", lambda: calls.append("ids"))
    world.run(zk.get_children("/brokers/ids", watches.arm("/brokers/ids")))
    world.lose_connection(zk)
    world.run(other.create("/brokers/ids/1", b""))
    world.restore_connection(zk)
    world.run_until(lambda: calls == ["ids"])
    world.run(zk.get_children("/brokers/ids", watches.arm("/brokers/ids")))
    world.expire(zk)
    world.run_until(lambda: zk.state is SessionState.EXPIRED)
    assert calls == ["ids"]
    world.run(zk.reconnect())
    assert calls == ["ids", "ids"]
    world.run(zk.get_children("/brokers/ids", watches.arm("/brokers/ids")))
    world.run(other.create("/brokers/ids/2", b""))
    world.run_until(lambda: calls == ["ids", "ids", "ids"])
    watches.clear()
    world.run(other.create("/brokers/ids/3", b""))
    world.run(zk.exists("/"))
    assert len(calls) == 3


def test_a_watch_set_made_while_the_session_is_gone_hears_of_the_next(
    world: World, zk: ZkClient
) -> None:
    """A broker whose session ends during its start makes what it follows with before it has another."""
    world.expire(zk)
    world.run_until(lambda: zk.state is SessionState.EXPIRED)
    calls: list[str] = []
    watches = WatchSet(zk, LOG)
    watches.on_change("/feature", lambda: calls.append("feature"))
    world.run(zk.reconnect())
    world.run_until(lambda: calls == ["feature"])
    watches.close()


def test_notification_listener(world: World, zk: ZkClient, elected: Elected) -> None:
    seen: list[str] = []

    async def process(data: bytes | None, path: str) -> None:
        if data == b"boom":
            raise ValueError("boom")
        seen.append(configs.decode_change(data, path))

    world.run(configs.notify_change(zk, "topics/a"))
    world.run(configs.notify_change(zk, "topics/b"))
    other = world.client()
    world.run(other.connect(10.0))
    listener = NotificationListener(
        other, world.clock, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, process, LOG
    )
    world.run(listener.start())
    assert seen == ["topics/a", "topics/b"]
    prefix = f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}"
    world.run(configs.create_notification(zk, prefix, b"boom"))
    world.run(zk.create(f"{paths.CONFIG_CHANGES}/foreign", b""))
    for name in "cde":
        world.run(configs.notify_change(zk, f"topics/{name}"))
    world.run_until(lambda: len(seen) == 5)
    world.expire(other)
    world.run_until(lambda: other.state is SessionState.EXPIRED)
    world.run(configs.notify_change(zk, "topics/f"))
    world.run(other.reconnect())
    world.run_until(lambda: len(seen) == 6)
    assert seen == [f"topics/{name}" for name in "abcdef"]
    world.run(listener.stop())
    world.run(configs.notify_change(zk, "topics/g"))
    world.run(other.exists("/"))
    assert len(seen) == 6


def test_a_listener_that_starts_while_the_session_is_gone_waits_for_the_next(
    world: World, zk: ZkClient, elected: Elected
) -> None:
    seen: list[str] = []

    async def process(data: bytes | None, path: str) -> None:
        seen.append(configs.decode_change(data, path))

    other = world.client()
    world.run(other.connect(10.0))
    world.run(configs.notify_change(zk, "topics/a"))
    world.expire(other)
    world.run_until(lambda: other.state is SessionState.EXPIRED)
    listener = NotificationListener(
        other, world.clock, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, process, LOG
    )
    started = Deferred.fromCoroutine(listener.start())
    world.run(other.reconnect())
    world.run(started)
    assert seen == ["topics/a"]
    world.run(listener.stop())


def test_old_notifications_are_purged(world: World, zk: ZkClient, elected: Elected) -> None:
    class LateClock:
        """The world's clock, 16 minutes ahead of ZooKeeper's."""

        def __getattr__(self, name: str) -> object:
            return getattr(world.clock, name)

        def now_ms(self) -> int:
            return world.clock.now_ms() + CHANGE_EXPIRATION_MS + 60_000

    seen: list[str] = []

    async def process(data: bytes | None, path: str) -> None:
        seen.append(path)

    for name in "abc":
        world.run(configs.notify_change(zk, f"topics/{name}"))
    for clock, left in ((world.clock, 3), (LateClock(), 0)):
        listener = NotificationListener(
            zk,
            clock,  # type: ignore[arg-type]
            paths.CONFIG_CHANGES,
            paths.CONFIG_CHANGE_PREFIX,
            process,
            LOG,
        )
        world.run(listener.start())
        world.run(listener.stop())
        assert len(world.run(zk.get_children(paths.CONFIG_CHANGES))[0]) == left
    assert len(seen) == 6
