"""Brokers that leave, in order or not, as producers with their default retries see it."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.chaos.field import Worker, failures_of, progress_since, wait_for
from tests.integration import clients
from tests.integration.brokers import (
    SESSION_TIMEOUT_MS,
    BrokerCluster,
    ClusterMaker,
    eventually,
    make_cluster,
)
from tests.integration.test_three_brokers import wait_in_sync, zookeeper_of
from tests.integration.zookeeper import chroot, zookeeper_address

__all__ = ["chroot", "make_cluster", "zookeeper_address"]

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

TOPIC = "leaving"
PARTITIONS = 3
GENEROUS_S = 60.0
STUCK = "its request was not done in time"


def make_topic(cluster: BrokerCluster) -> None:
    config = {"min.insync.replicas": "2"}
    clients.create_topic(cluster.bootstrap, TOPIC, PARTITIONS, 3, config=config)


@contextlib.contextmanager
def producing(cluster: BrokerCluster, folder: Path) -> Iterator[list[Worker]]:
    """A producer of each library at work."""
    workers = []
    for kind in ("confluent", "kafka-python"):
        words = [kind, kind, "--bootstrap", cluster.bootstrap, "--topic", TOPIC]
        words += ["--partitions", str(PARTITIONS), "--rate", "100"]
        history, output = folder / f"{kind}.history", folder / f"{kind}.out"
        workers.append(Worker(kind, "producers", history, output, *words))
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop(GENEROUS_S)


def wait_progress(workers: list[Worker]) -> None:
    since_s = time.monotonic()
    wait_for(lambda: progress_since(workers, since_s, PARTITIONS), GENEROUS_S)


def test_a_rolling_restart_fails_no_produce(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    cluster = make_cluster(3)
    make_topic(cluster)
    with zookeeper_of(cluster) as zk, producing(cluster, tmp_path) as workers:
        wait_progress(workers)
        for broker in cluster.brokers:
            assert broker.terminate() == 0
            assert all(zk.state(TOPIC, p)["leader"] != broker.id for p in range(PARTITIONS))
            wait_progress(workers)
            broker.start()
            for partition in range(PARTITIONS):
                wait_in_sync(zk, TOPIC, partition)
            wait_progress(workers)
    for worker in workers:
        worker.look()
        assert failures_of(worker) == []
        assert worker.acks > 100
        assert worker.history.read_text().splitlines()[-1].startswith("E ")
    assert cluster.errors() == []


def test_a_killed_leader_is_replaced_and_produce_goes_on(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    make_topic(cluster)
    producer: Any = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    with zookeeper_of(cluster) as zk:
        controller, _ = zk.controller()
        states = {p: zk.state(TOPIC, p)["leader"] for p in range(PARTITIONS)}
        partition = next(p for p, leader in states.items() if leader != controller)
        cluster[states[partition]].kill()
        problems: list[Any] = []
        producer.produce(
            TOPIC, b"x", partition=partition, on_delivery=lambda error, _: problems.append(error)
        )
        assert producer.flush(SESSION_TIMEOUT_MS / 1000 + GENEROUS_S) == 0
        assert problems == [None]
        state = zk.state(TOPIC, partition)
        assert state["leader"] not in (states[partition], -1)
        assert states[partition] not in state["isr"]


def test_a_stop_does_not_wait_for_producers_that_wait_for_replicas(
    make_cluster: ClusterMaker,
) -> None:
    cluster = make_cluster(
        2,
        controlled_shutdown_enable="false",
        replica_lag_time_max_ms="60000",
        zookeeper_session_timeout_ms="60000",
    )
    clients.create_topic(cluster.bootstrap, TOPIC, 1, 2, config={"min.insync.replicas": "2"})
    with zookeeper_of(cluster) as zk:
        leader = cluster[zk.state(TOPIC)["leader"]]
        clients.produce(cluster.bootstrap, TOPIC, [b"first"], partition=0)
        follower = cluster[3 - leader.id]
        follower.freeze()
        producer: Any = Producer({"bootstrap.servers": leader.address, "acks": "all"})
        producer.produce(TOPIC, b"waits", partition=0)
        end = leader.data / f"{TOPIC}-0" / f"{0:020d}.log"

        def appended() -> bool:
            producer.poll(0.05)
            return b"waits" in end.read_bytes()

        eventually(appended, GENEROUS_S)
        leader.terminate()
        assert STUCK not in leader.log()
        producer.purge()
        producer.flush(GENEROUS_S)
        follower.thaw()
