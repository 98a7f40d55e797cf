"""The verbs against clients: each fault does what it says, in processes and in one process."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalike.testing import DISCONNECT, ZOOKEEPER, Cluster, ClusterError, WaitTimeout
from tests.integration.testing.processes import until

confluent_kafka = pytest.importorskip("confluent_kafka")

FAST = {"zookeeper.session.timeout.ms": 2000, "replica.lag.time.max.ms": 1500}


MODES = ["processes", "single", pytest.param("ensemble", marks=pytest.mark.real_zookeeper)]


@pytest.fixture(scope="module", params=MODES)
def shared(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Brokers as processes, in one process, and as processes on a real ZooKeeper."""
    zookeeper = None
    if request.param == "ensemble":
        address = request.getfixturevalue("zookeeper_address")
        zookeeper = f"{address}/verbs-{os.getpid()}"
    single = request.param == "single"
    with Cluster(3, config=FAST, single_process=single, zookeeper=zookeeper) as cluster:
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest, shared: Cluster) -> Iterator[Cluster]:
    if getattr(request.node, "execution_count", 1) > 1:
        # Run again by pytest-rerunfailures: what the first try made is in the way.
        shared.reset()
    yield shared
    shared.mend()


class Producing:
    """A producer whose outcomes are kept."""

    def __init__(self, cluster: Cluster, **settings: object) -> None:
        self.errors: list[Any] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def send(self, topic: str, *values: bytes, limit_s: float = 30) -> list[Any]:
        """The errors (None: delivered), one a value."""
        self.errors.clear()
        for value in values:
            self._producer.produce(
                topic, value, callback=lambda error, _: self.errors.append(error)
            )
        assert self._producer.flush(limit_s) == 0
        return list(self.errors)


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        message = consumer.poll(0.1)
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_a_killed_leader_is_replaced_and_comes_back(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    producer = Producing(cluster)
    assert producer.send("killed", b"1") == [None]
    leader = cluster.leader("killed")
    begin = time.monotonic()
    cluster.kill(leader, at_once=True)
    assert cluster.wait_leader("killed", other_than=leader) != leader
    assert time.monotonic() - begin < 1.9, "the session was not ended at once"
    assert cluster.brokers[leader].state == "stopped"
    assert producer.send("killed", b"2") == [None]
    cluster.start_broker(leader)
    cluster.wait_isr_full("killed")
    assert read(cluster, "killed", 2) == [b"1", b"2"]


def test_a_killed_leader_is_noticed_by_its_session(cluster: Cluster) -> None:
    cluster.create_topic("noticed")
    leader = cluster.leader("noticed")
    begin = time.monotonic()
    cluster.kill(leader)
    cluster.wait_leader("noticed", other_than=leader)
    assert time.monotonic() - begin > 1.0


def test_a_paused_broker_loses_its_session_and_finds_back(cluster: Cluster) -> None:
    cluster.create_topic("paused")
    leader = cluster.leader("paused")
    cluster.pause(leader)
    assert cluster.brokers[leader].state == "paused"
    new = cluster.wait_leader("paused", other_than=leader)
    assert Producing(cluster).send("paused", b"1") == [None]
    cluster.resume(leader)
    cluster.wait_isr_full("paused")
    assert cluster.leader("paused") == new


def test_isolation_from_zookeeper(cluster: Cluster) -> None:
    cluster.create_topic("noquorum")
    leader = cluster.leader("noquorum")
    cluster.isolate(leader, ZOOKEEPER)
    cluster.wait_leader("noquorum", other_than=leader)
    cluster.heal()
    cluster.wait_isr_full("noquorum")


def test_isolation_from_one_peer_shrinks_the_isr(cluster: Cluster) -> None:
    cluster.create_topic("peers", assignment=[[1, 2, 3]])
    cluster.move_controller(1)
    cluster.isolate(3, 1)
    assert Producing(cluster).send("peers", b"1") == [None]
    cluster.wait_isr("peers", [1, 2])
    cluster.heal(3)
    cluster.wait_isr_full("peers")
    assert read(cluster, "peers", 1) == [b"1"]


def test_an_isolated_broker_is_not_asked(cluster: Cluster) -> None:
    """Not even when it was controller and leader, and asking it first would be the usual order."""
    cluster.create_topic("island", assignment=[[1, 2, 3]], config={"min.insync.replicas": 1})
    cluster.move_controller(1)
    cluster.isolate(1)
    assert cluster.wait_controller(other_than=1) in (2, 3)
    assert cluster.wait_leader("island", other_than=1) == 2
    cluster.wait_isr("island", [2, 3])
    assert cluster.leader("island") == 2
    assert cluster.controller() in (2, 3)
    cluster.wait_brokers([2, 3])
    cluster.heal()
    cluster.wait_isr_full("island")


def test_who_keeps_zookeeper_is_asked_where_all_have_lost_brokers() -> None:
    """Of two brokers cut from each other, and of four with two isolated ones."""
    with Cluster(2, config=FAST | {"min.insync.replicas": 1}, single_process=True) as pair:
        pair.create_topic("pair", assignment=[[1, 2]])
        pair.move_controller(1)
        pair.isolate(1)
        assert pair.wait_controller(other_than=1) == 2
        assert pair.wait_leader("pair", other_than=1) == 2
    with Cluster(4, config=FAST, single_process=True) as four:
        four.create_topic("four", assignment=[[1, 2, 3]])
        four.move_controller(1)
        four.isolate(1)
        four.isolate(4)
        assert four.wait_controller(other_than=1) in (2, 3)
        four.wait_isr("four", [2, 3])


def test_two_brokers_cut_from_each_other_only() -> None:
    """The controller's side goes on; the other one hears of nothing, and what waits says why."""
    config = FAST | {"min.insync.replicas": 1}
    with Cluster(2, config=config, single_process=True) as pair:
        pair.create_topic("here", assignment=[[1, 2]])
        pair.create_topic("there", assignment=[[2, 1]])
        pair.move_controller(1)
        pair.isolate(1, 2)
        assert Producing(pair).send("here", b"1") == [None]
        (error,) = Producing(pair, delivery_timeout_ms=4000).send("there", b"1")
        assert error is not None
        with pytest.raises(WaitTimeout, match=r"says broker-2 \(waited 0\.5 s; cut: 1\|2\)"):
            pair.wait_isr("here", [1], timeout_s=0.5)
        pair.heal()
        pair.wait_isr_full("here")
        pair.wait_isr_full("there")
        assert Producing(pair).send("there", b"2") == [None]


def test_the_end_of_a_new_leader_is_waited_for(cluster: Cluster) -> None:
    """It has a record above its high watermark, and the follower that could confirm it is cut off."""
    cluster.create_topic("newly", assignment=[[1, 2, 3]], config={"min.insync.replicas": 1})
    cluster.move_controller(2)
    cluster.isolate(3, 1)
    cluster.isolate(3, 2)
    assert Producing(cluster, acks=1).send("newly", b"1") == [None]
    (log,) = cluster.directory.glob("broker-2/data/newly-0/*.log")
    until(lambda: log.stat().st_size > 0, "the record did not reach 2")
    cluster.kill(1, at_once=True)
    until(lambda: cluster.leader("newly") == 2, "2 does not lead")
    assert cluster.end_offset("newly") == 1
    with pytest.raises(ClusterError, match="newly-0 has no leader"):
        cluster.kill(2, at_once=True)
        cluster.heal()
        cluster.wait_brokers([3])
        cluster.end_offset("newly")


def test_a_link_cut_one_way(cluster: Cluster) -> None:
    """Fetch requests of the follower vanish: to the leader it is silent."""
    cluster.create_topic("oneway", assignment=[[1, 2, 3]])
    cluster.move_controller(1)
    cluster.cut(3, 1)
    Producing(cluster).send("oneway", b"1")
    cluster.wait_isr("oneway", [1, 2])
    cluster.heal()
    cluster.wait_isr_full("oneway")
    # The other way: what the leader answers does not arrive.
    cluster.cut(1, 3)
    Producing(cluster).send("oneway", b"2")
    cluster.wait_isr("oneway", [1, 2])
    cluster.heal()
    cluster.wait_isr_full("oneway")


def test_a_delayed_link_makes_acknowledgements_late(cluster: Cluster) -> None:
    cluster.create_topic("slow", assignment=[[1, 2]])
    producer = Producing(cluster)
    producer.send("slow", b"1")
    cluster.delay(2, 1, 300)
    producer.send("slow", b"2")  # the fetch under way was sent before
    begin = time.monotonic()
    assert producer.send("slow", b"3") == [None]
    assert time.monotonic() - begin >= 0.29
    cluster.heal()


def test_pushed_errors_are_met_once_each(cluster: Cluster) -> None:
    cluster.create_topic("pushed")
    leader = cluster.leader("pushed")
    not_leader, timed_out, too_large = 6, 7, 10
    cluster.push_errors("Produce", [not_leader, timed_out], broker=leader, topic="pushed")
    cluster.push_errors("Produce", [too_large], broker=leader, topic="other")
    assert cluster.pending_errors() == {"Produce": 3}
    assert Producing(cluster).send("pushed", b"1") == [None]
    assert cluster.pending_errors() == {"Produce": 1}
    assert cluster.end_offset("pushed") == 1
    cluster.clear_errors()
    assert cluster.pending_errors() == {}
    cluster.push_errors("produce", [too_large], broker=leader)
    (error,) = Producing(cluster).send("pushed", b"2")
    assert error.code() == too_large


def test_a_lost_acknowledgement_does_not_duplicate(cluster: Cluster) -> None:
    cluster.create_topic("lost")
    cluster.push_errors("Produce", [DISCONNECT], broker=cluster.leader("lost"), applied=True)
    assert Producing(cluster, enable_idempotence=True).send("lost", b"1", b"2") == [None, None]
    assert cluster.pending_errors() == {}
    assert cluster.wait_offset("lost", 2) == 2


def test_latency_holds_answers_back(cluster: Cluster) -> None:
    cluster.create_topic("late")
    producer = Producing(cluster)
    producer.send("late", b"1")
    cluster.latency("Produce", 1500)
    begin = time.monotonic()
    assert producer.send("late", b"2") == [None]
    assert time.monotonic() - begin >= 1.49
    cluster.latency("Produce", 0)
    begin = time.monotonic()
    producer.send("late", b"3")
    assert time.monotonic() - begin < 1.49


def test_an_expired_session_is_replaced(cluster: Cluster) -> None:
    cluster.create_topic("expired")
    controller = cluster.controller()
    cluster.expire_session(controller)
    cluster.wait_brokers([1, 2, 3])
    cluster.wait_controller()
    cluster.wait_isr_full("expired")
    assert Producing(cluster).send("expired", b"1") == [None]


def test_a_full_disk_ends_the_broker(cluster: Cluster) -> None:
    cluster.create_topic("full")
    leader = cluster.leader("full")
    cluster.fill_disk(leader)
    assert Producing(cluster).send("full", b"1", limit_s=60) == [None]
    assert cluster.wait_leader("full", other_than=leader) != leader
    deadline = time.monotonic() + 30
    while cluster.brokers[leader].state != "stopped":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert cluster.brokers[leader].exit_code == 1
    cluster.free_disk(leader)
    cluster.start_broker(leader)
    cluster.wait_isr_full("full")
    assert read(cluster, "full", 1) == [b"1"]


@pytest.mark.parametrize("how", ["truncate", "flip"])
def test_a_damaged_tail_is_replaced_from_the_leader(cluster: Cluster, how: str) -> None:
    topic = f"damaged-{how}"
    cluster.create_topic(topic, assignment=[[1, 2]])
    values = [b"%d" % i for i in range(20)]
    producer = Producing(cluster)
    for value in values:
        assert producer.send(topic, value) == [None]
    cluster.stop_broker(2)
    done = cluster.corrupt_tail(2, topic, bytes=100, how=how)
    assert done["size_after"] == done["size_before"] - (100 if how == "truncate" else 0)
    cluster.start_broker(2)
    cluster.wait_isr_full(topic)
    cluster.move_leader(topic, 2)
    assert read(cluster, topic, 20) == values


def test_elections(cluster: Cluster) -> None:
    cluster.create_topic("elected", assignment=[[1, 2, 3]])
    assert cluster.leader("elected") == 1
    cluster.move_leader("elected", 3)
    assert cluster.replicas("elected")[0] == 3
    cluster.stop_broker(3)
    assert cluster.wait_leader("elected", other_than=3) in (1, 2)
    cluster.start_broker(3)
    cluster.wait_isr_full("elected")
    assert cluster.elect("elected") == 3
    assert cluster.elect("elected") == 3, "an election that is not needed is none"


def test_an_unclean_election_takes_who_is_there(cluster: Cluster) -> None:
    cluster.create_topic("unclean", assignment=[[1, 2]], config={"min.insync.replicas": 1})
    producer = Producing(cluster)
    producer.send("unclean", b"1")
    cluster.kill(2, at_once=True)
    cluster.wait_isr("unclean", [1])
    assert producer.send("unclean", b"2") == [None]
    cluster.kill(1, at_once=True)
    cluster.wait_brokers([3])
    cluster.start_broker(2)
    with pytest.raises(WaitTimeout, match="has no leader"):
        cluster.wait_leader("unclean", timeout_s=0.5)
    assert cluster.elect("unclean", unclean=True) == 2
    assert cluster.end_offset("unclean") == 1


def test_the_controller_goes_where_it_is_sent(cluster: Cluster) -> None:
    for broker in (2, 3, 1):
        assert cluster.move_controller(broker) == broker
        assert cluster.controller() == broker
    assert cluster.move_controller() != 1
    cluster.kill(2, at_once=True)
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="broker-2 is stopped, expected running"):
        cluster.move_controller(2)
    assert time.monotonic() - begin < 10


def assert_settled(cluster: Cluster, topic: str) -> None:
    """Without waiting: any question can be asked at once."""
    for partition in (0, 1):
        assert cluster.leader(topic, partition) in (1, 2, 3)
        assert sorted(cluster.isr(topic, partition)) == [1, 2, 3]
        assert cluster.end_offset(topic, partition) in (0, 1)
    assert cluster.controller() in (1, 2, 3)


def test_a_snapshot_brings_everything_back(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    if "ensemble" in request.node.name:
        with pytest.raises(ClusterError, match="needs the embedded coordination service"):
            cluster.snapshot()
        return
    cluster.create_topic("kept", partitions=2)
    producer = Producing(cluster)
    producer.send("kept", b"1")
    cluster.snapshot("before")
    assert_settled(cluster, "kept")
    producer.send("kept", b"2")
    cluster.create_topic("later")
    cluster.restore("before")
    assert_settled(cluster, "kept")
    assert "later" not in cluster.topics()
    assert [cluster.end_offset("kept", partition) for partition in (0, 1)].count(0) == 1
    with pytest.raises(ClusterError, match="there is no snapshot 'other'"):
        cluster.restore("other")


def test_reset_leaves_nothing(cluster: Cluster) -> None:
    cluster.create_topic("gone", partitions=3)
    cluster.pause(2)
    cluster.push_errors("Fetch", [1], broker=1)
    cluster.reset()
    assert cluster.topics() == []
    assert cluster.pending_errors() == {}
    assert {one.state for one in cluster.brokers.values()} == {"running"}
    cluster.create_topic("gone", partitions=1)
    assert cluster.end_offset("gone") == 0


def test_what_is_not_possible_is_said(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="no broker 9; there are 1, 2, 3"):
        cluster.kill(9)
    with pytest.raises(ClusterError, match="broker-1 is running already"):
        cluster.start_broker(1)
    with pytest.raises(ClusterError, match="expected stopped"):
        cluster.corrupt_tail(1, "none")
    with pytest.raises(ClusterError, match="api: 'Sing' is none of Kafka's"):
        cluster.push_errors("Sing", [6])
    with pytest.raises(ClusterError, match="12345 is no error code"):
        cluster.push_errors("Produce", [12345])
    with pytest.raises(ClusterError, match="topic bad!: INVALID_TOPIC_EXCEPTION"):
        cluster.create_topic("bad!")
    with pytest.raises(ClusterError, match="there is no partition none-0"):
        cluster.leader("none")
    with pytest.raises(ClusterError, match="from 1 to itself"):
        cluster.cut(1, 1)
    with pytest.raises(WaitTimeout, match="is at 0 of 5"):
        cluster.create_topic("empty")
        cluster.wait_offset("empty", 5, timeout_s=0.2)
