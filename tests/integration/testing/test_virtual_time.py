"""The clock of a single-process cluster moves past timeouts at once."""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalike.testing import Cluster, ClusterError

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3, single_process=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest, shared: Cluster) -> Cluster:
    if getattr(request.node, "execution_count", 1) > 1:
        # Run again by pytest-rerunfailures: what the first try made is in the way.
        shared.reset()
    return shared


def send(cluster: Cluster, topic: str, *values: bytes) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, callback=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def test_a_session_times_out_at_once(cluster: Cluster) -> None:
    cluster.create_topic("session")
    leader = cluster.leader("session")
    cluster.kill(leader)
    begin = time.monotonic()
    cluster.advance(10)
    assert cluster.wait_leader("session", other_than=leader) != leader
    assert time.monotonic() - begin < 5
    cluster.start_broker(leader)
    cluster.wait_isr_full("session")


def test_a_week_passes_and_records_with_it(cluster: Cluster) -> None:
    settings = {
        "retention.ms": 3 * 86_400_000,
        "segment.ms": 86_400_000,
        "message.timestamp.type": "LogAppendTime",  # producers stamp with the real time
    }
    cluster.create_topic("retention", config=settings)
    send(cluster, "retention", b"old")
    cluster.advance(2 * 86_400)
    send(cluster, "retention", b"newer")
    assert cluster.end_offset("retention") == 2
    cluster.advance(2 * 86_400)
    cluster.wait_isr_full("retention")
    leader = cluster.brokers[cluster.leader("retention")]
    folder = leader.directory / "data" / "retention-0"
    cluster.advance(600)
    assert [path.name for path in sorted(folder.glob("*.log"))] == [f"{1:020}.log"]
    send(cluster, "retention", b"newest")
    assert cluster.end_offset("retention") == 3


def test_an_idle_cluster_is_whole_after_a_year(cluster: Cluster) -> None:
    cluster.create_topic("year", partitions=3)
    send(cluster, "year", b"1")
    begin = time.monotonic()
    cluster.advance(365 * 86_400)
    assert time.monotonic() - begin < 30
    cluster.wait_isr_full("year")
    cluster.wait_brokers([1, 2, 3])
    send(cluster, "year", b"2")


def test_records_carry_the_time_of_their_producer(cluster: Cluster) -> None:
    cluster.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    cluster.advance(86_400)
    send(cluster, "stamped", b"1")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "stamped"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("stamped", 0, 0)])
    message = consumer.poll(30)
    assert message.timestamp()[1] > (time.time() + 80_000) * 1000
    consumer.close()


def test_processes_have_no_clock_of_their_own(tmp_path: pathlib.Path) -> None:
    with (
        Cluster(1) as cluster,
        pytest.raises(ClusterError, match="only a cluster in a single process"),
    ):
        cluster.advance(1)
