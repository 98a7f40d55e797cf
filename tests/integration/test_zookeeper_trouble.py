"""What brokers do while ZooKeeper is away, and what they never do."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import clients
from tests.integration.brokers import SESSION_TIMEOUT_MS, BrokerCluster, eventually
from tests.integration.test_three_brokers import Zk, wait_in_sync, zookeeper_of
from tests.integration.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

NO_ID = {"enable_idempotence": False}
"""A new producer id may take a block from ZooKeeper."""


@pytest.fixture
def cluster(own_zookeeper: ZooKeeperServer) -> Iterator[BrokerCluster]:
    """Three brokers on a ZooKeeper that the test may stop."""
    made = BrokerCluster(own_zookeeper.address, 3)
    try:
        made.start()
        made.wait_known()
        yield made
    finally:
        made.close()


def wait_settled(cluster: BrokerCluster, zk: Zk) -> None:
    """Until all brokers name the controller that ZooKeeper names, and each other.

    Znodes outlive a restart of ZooKeeper, and the sessions behind them may still end.
    """

    def settled() -> bool:
        controller, _ = zk.controller()
        return zk.registered() == [b.id for b in cluster.brokers] and cluster.is_known(controller)

    assert eventually(settled, 60, what="every broker names the controller")


def test_leaders_serve_on_while_zookeeper_is_away(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    clients.create_topic(cluster.bootstrap, "t", replicas=3, config={"min.insync.replicas": "2"})
    values = clients.payloads(300)
    with zookeeper_of(cluster) as zk:
        wait_in_sync(zk, "t")
    own_zookeeper.kill()
    clients.produce(cluster.bootstrap, "t", values[:100], **NO_ID)
    # longer than the session timeout: nobody can say that the sessions have ended
    time.sleep(SESSION_TIMEOUT_MS / 1000 + 2)
    clients.produce(cluster.bootstrap, "t", values[100:200], **NO_ID)
    own_zookeeper.start()
    with zookeeper_of(cluster) as zk:
        assert eventually(lambda: zk.registered() == [1, 2, 3], 60)
        wait_settled(cluster, zk)
        clients.create_topic(cluster.bootstrap, "later", partitions=3, replicas=3)
        wait_in_sync(zk, "t")
        wait_in_sync(zk, "later")
        # every broker follows the controller again
        victim = cluster[zk.controller()[0] % 3 + 1]
        assert victim.terminate() == 0
        assert eventually(lambda: len(zk.state("later", 0)["isr"]) == 2)
    clients.produce(cluster.bootstrap, "t", values[200:])
    assert clients.consume(cluster.bootstrap, "t", 300) == values


def test_sessions_that_end_while_zookeeper_is_frozen_are_replaced_once(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    clients.create_topic(cluster.bootstrap, "t", partitions=3, replicas=3)
    values = clients.payloads(200)
    with zookeeper_of(cluster) as zk:
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
    own_zookeeper.freeze()
    time.sleep(SESSION_TIMEOUT_MS / 1000 + 3)
    clients.produce(cluster.bootstrap, "t", values[:100], partition=0, **NO_ID)
    own_zookeeper.thaw()
    with zookeeper_of(cluster) as zk:
        assert eventually(lambda: zk.registered() == [1, 2, 3], 60)
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
        wait_settled(cluster, zk)
        clients.create_topic(cluster.bootstrap, "later", replicas=3)
    clients.produce(cluster.bootstrap, "t", values[100:], partition=0)
    assert clients.consume(cluster.bootstrap, "t", 200) == values
    for broker in cluster.brokers:
        assert broker.log().count("registered broker=") <= 2


def test_a_broker_stops_without_zookeeper_in_bounded_time_and_keeps_its_data(
    cluster: BrokerCluster, own_zookeeper: ZooKeeperServer
) -> None:
    clients.create_topic(cluster.bootstrap, "t", replicas=1)
    values = clients.payloads(100)
    clients.produce(cluster.bootstrap, "t", values)
    with zookeeper_of(cluster) as zk:
        leader = cluster[zk.state("t")["leader"]]
    own_zookeeper.kill()
    begun = time.monotonic()
    assert leader.terminate() == 0
    assert time.monotonic() - begun < 20
    assert (Path(leader.data) / ".kafka_cleanshutdown").exists()
    own_zookeeper.start()
    leader.start()
    assert clients.consume(cluster.bootstrap, "t", 100) == values


def test_a_second_signal_skips_the_controlled_shutdown(cluster: BrokerCluster) -> None:
    clients.create_topic(cluster.bootstrap, "t", partitions=3, replicas=3)
    with zookeeper_of(cluster) as zk:
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
        controller_id, _ = zk.controller()
        victim = next(b for b in cluster.brokers if b.id != controller_id)
        # the controller cannot answer, so the controlled shutdown would take all its time
        cluster[controller_id].freeze()
        victim.signal(signal.SIGTERM)
        time.sleep(0.5)
        begun = time.monotonic()
        assert victim.terminate() == 0
        assert time.monotonic() - begun < 15
        assert (Path(victim.data) / ".kafka_cleanshutdown").exists()
        cluster[controller_id].thaw()
