"""Three brokers beside a real ZooKeeper: replication, failover, frozen brokers, rolling restart."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.integration import clients
from tests.integration.brokers import (
    SESSION_TIMEOUT_MS,
    BrokerCluster,
    BrokerProcess,
    ClusterMaker,
    eventually,
)

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

SESSION_S = SESSION_TIMEOUT_MS / 1000


class Zk:
    """What a cluster keeps in ZooKeeper, seen from outside."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._client.get(path)[0])
        return found

    def controller(self) -> tuple[int, int]:
        """(broker id, epoch)."""
        return self.json("/controller")["brokerid"], int(self._client.get("/controller_epoch")[0])

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        return self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def registered(self) -> list[int]:
        return sorted(int(name) for name in self._client.get_children("/brokers/ids"))

    def czxid(self, broker_id: int) -> int:
        czxid: int = self._client.get(f"/brokers/ids/{broker_id}")[1].czxid
        return czxid


@contextlib.contextmanager
def zookeeper_of(cluster: BrokerCluster) -> Iterator[Zk]:
    client = KazooClient(hosts=cluster.zookeeper)
    client.start(timeout=20)
    try:
        yield Zk(client)
    finally:
        client.stop()
        client.close()


def files_of(broker: BrokerProcess, topic: str, partition: int = 0) -> dict[str, str]:
    """Content of a replica's segments by name."""
    folder = broker.data / f"{topic}-{partition}"
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.log"))
    }


def wait_in_sync(zk: Zk, topic: str, partition: int = 0, count: int = 3) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        state = zk.state(topic, partition)
        return state if len(state["isr"]) == count else None

    return eventually(probe, 60, what=f"{count} replicas of {topic}-{partition} in sync") or {}


def wait_equal(cluster: BrokerCluster, topic: str) -> None:
    """Wait until every broker has the same segments of partition 0."""

    def probe() -> bool:
        return all(files_of(b, topic) == files_of(cluster[1], topic) for b in cluster.brokers)

    assert eventually(probe, what="equal replicas")


def test_replicas_are_equal_byte_for_byte(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    clients.create_topic(
        cluster.bootstrap,
        "t",
        partitions=3,
        replicas=3,
        config={"min.insync.replicas": "2", "segment.bytes": "200000"},
    )
    values = clients.payloads(5000)
    for codec in clients.CODECS:
        clients.produce(cluster.bootstrap, "t", values, partition=0, compression_type=codec)
    with zookeeper_of(cluster) as zk:
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
    found = clients.consume(cluster.bootstrap, "t", 5 * len(values))
    assert found == values * len(clients.CODECS)
    first = files_of(cluster[1], "t")
    assert len(first) > 1
    wait_equal(cluster, "t")
    assert cluster.errors() == []


def test_a_killed_controller_is_replaced_and_nothing_is_lost(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    clients.create_topic(
        cluster.bootstrap, "t", partitions=6, replicas=3, config={"min.insync.replicas": "2"}
    )
    values = clients.payloads(900)
    with zookeeper_of(cluster) as zk:
        for partition in range(6):
            wait_in_sync(zk, "t", partition)
        clients.produce(cluster.bootstrap, "t", values[:300], partition=0)
        old_id, old_epoch = zk.controller()
        cluster[old_id].kill()

        def replaced() -> bool:
            new_id, new_epoch = zk.controller()
            return new_id != old_id and new_epoch > old_epoch

        assert eventually(replaced, 30)

        def all_led() -> bool:
            return all(zk.state("t", p)["leader"] not in (old_id, -1) for p in range(6))

        assert eventually(all_led)
        clients.produce(cluster.bootstrap, "t", values[300:600], partition=0)
        clients.create_topic(cluster.bootstrap, "later", partitions=2, replicas=2)
        cluster[old_id].start()
        for partition in range(6):
            wait_in_sync(zk, "t", partition)
        clients.produce(cluster.bootstrap, "t", values[600:], partition=0)
        wait_in_sync(zk, "t")
    assert clients.consume(cluster.bootstrap, "t", 900) == values
    wait_equal(cluster, "t")


def test_a_frozen_controller_wakes_up_as_an_ordinary_broker(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    clients.create_topic(
        cluster.bootstrap, "t", partitions=3, replicas=3, config={"min.insync.replicas": "2"}
    )
    with zookeeper_of(cluster) as zk:
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
        old_id, old_epoch = zk.controller()
        old_czxid = zk.czxid(old_id)
        cluster[old_id].freeze()
        assert eventually(lambda: zk.controller()[0] != old_id, SESSION_S + 30)
        values = clients.payloads(300)
        others = ",".join(b.address for b in cluster.brokers if b.id != old_id)
        assert eventually(lambda: zk.state("t")["leader"] != old_id)
        clients.produce(others, "t", values, partition=0)
        cluster[old_id].thaw()
        assert eventually(lambda: zk.registered() == [1, 2, 3])
        assert zk.czxid(old_id) > old_czxid
        for partition in range(3):
            wait_in_sync(zk, "t", partition)
        new_id, new_epoch = zk.controller()
        assert new_epoch == old_epoch + 1 and new_id != old_id
        more = clients.produce(cluster.bootstrap, "t", values, partition=0)
        assert more[0] == 300
        assert cluster[old_id].log().count("registered broker=") == 2
    assert clients.consume(cluster.bootstrap, "t", 600) == values * 2


def test_a_lost_session_is_replaced_once(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    clients.create_topic(cluster.bootstrap, "t", replicas=3)
    with zookeeper_of(cluster) as zk:
        wait_in_sync(zk, "t")
        controller_id, _ = zk.controller()
        victim = next(b for b in cluster.brokers if b.id != controller_id)
        before = zk.czxid(victim.id)
        victim.freeze()
        assert eventually(lambda: victim.id not in zk.registered(), SESSION_S + 30)
        victim.thaw()
        assert eventually(lambda: zk.registered() == [1, 2, 3])
        assert zk.czxid(victim.id) > before
        assert zk.controller()[0] == controller_id
        wait_in_sync(zk, "t")
        values = clients.payloads(200)
        clients.produce(cluster.bootstrap, "t", values)
        assert victim.log().count("registered broker=") == 2
    assert clients.consume(cluster.bootstrap, "t", 200) == values


def test_a_rolling_restart_loses_nothing_and_always_has_a_leader(
    make_cluster: ClusterMaker,
) -> None:
    cluster = make_cluster(3)
    clients.create_topic(
        cluster.bootstrap, "t", partitions=3, replicas=3, config={"min.insync.replicas": "2"}
    )
    values = clients.payloads(1200)
    done = 0
    with zookeeper_of(cluster) as zk:
        for broker in cluster.brokers:
            for partition in range(3):
                wait_in_sync(zk, "t", partition)
            clients.produce(cluster.bootstrap, "t", values[done : done + 200], partition=0)
            begun = time.monotonic()
            assert broker.terminate() == 0
            # leadership was moved away before the broker went
            for partition in range(3):
                assert zk.state("t", partition)["leader"] not in (broker.id, -1)
            assert time.monotonic() - begun < 30
            assert broker.id not in zk.registered()
            clients.produce(cluster.bootstrap, "t", values[done + 200 : done + 400], partition=0)
            broker.start()
            done += 400
        wait_in_sync(zk, "t")
    assert clients.consume(cluster.bootstrap, "t", 1200) == values
    assert cluster.errors() == []


def test_deletion_waits_for_a_broker_that_is_away(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3)
    clients.create_topic(cluster.bootstrap, "t", replicas=3)
    with zookeeper_of(cluster) as zk:
        wait_in_sync(zk, "t")
        controller_id, _ = zk.controller()
        away = next(b for b in cluster.brokers if b.id != controller_id)
        away.kill()
        assert eventually(lambda: away.id not in zk.registered(), SESSION_S + 30)
        admin = clients.admin(cluster.bootstrap)
        admin.delete_topics(["t"])["t"].result(30)
        # any broker may answer, and the controller tells the others a little later
        assert eventually(lambda: "t" not in admin.list_topics(timeout=10).topics)
        away.start()

        def gone() -> bool:
            try:
                zk.json("/brokers/topics/t")
            except Exception as error:
                return type(error).__name__ == "NoNodeError"
            return False

        assert eventually(gone, 30)
    clients.create_topic(cluster.bootstrap, "t", replicas=3)
    clients.produce(cluster.bootstrap, "t", [b"new"])
    assert clients.consume(cluster.bootstrap, "t", 1) == [b"new"]
