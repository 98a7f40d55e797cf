"""The last replica standing (ADR 0008), with processes: the last member of an ISR loses the end of its
log over a power cut, and a former member has all of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.integration import clients
from tests.integration.brokers import (
    FAST,
    ROOT,
    BrokerCluster,
    BrokerProcess,
    ClusterMaker,
    eventually,
)
from tests.reference_kafka import ReferenceKafka, ReferenceMissing

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

TOPIC = "kept"
COUNT = 100
SETTINGS = {
    "replica_high_watermark_checkpoint_interval_ms": "200",
    "min_insync_replicas": "2",
    "offsets_topic_replication_factor": "1",
}


@pytest.fixture
def zookeeper(request: pytest.FixtureRequest) -> Iterator[KazooClient]:
    """A look into the cluster's chroot."""
    address = request.getfixturevalue("zookeeper_address")
    client = KazooClient(f"{address}{request.getfixturevalue('chroot')}")
    client.start(30)
    yield client
    client.stop()
    client.close()


def znode(zookeeper: KazooClient, path: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(zookeeper.get(path)[0])
    return value


def state(zookeeper: KazooClient) -> dict[str, Any]:
    return znode(zookeeper, f"/brokers/topics/{TOPIC}/partitions/0/state")


def admin(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.admin.main", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(cluster: BrokerCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        admin("losses", "--dir", str(cluster.folder), "--output", "json")
    )["losses"]
    return found


def make_topic(cluster: BrokerCluster) -> None:
    """On brokers 2 and 3, and a hundred records, each of them acknowledged by both."""
    words = ("--topic", TOPIC, "--replica-assignment", "2:3")
    admin("topics", "create", "--bootstrap-server", cluster.bootstrap, *words)
    for value in clients.payloads(COUNT):
        clients.produce(cluster.bootstrap, TOPIC, [value], partition=0, linger_ms=0)
    paths = [cluster[n].data / "replication-offset-checkpoint" for n in (2, 3)]
    entry = f"{TOPIC} 0 {COUNT}"
    eventually(lambda: all(entry in path.read_text() for path in paths), 60, what="checkpoints")


def lose_power(broker: BrokerProcess) -> None:
    """Killed, and half of the log was not on the device yet."""
    broker.kill()
    path = Path(broker.data) / f"{TOPIC}-0" / f"{0:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def until_offline(zookeeper: KazooClient) -> None:
    eventually(lambda: state(zookeeper)["leader"] == -1, 60, what="nobody leads")


def run_story(cluster: BrokerCluster, zookeeper: KazooClient) -> None:
    """Broker 3 leaves in order, broker 2 loses power, 3 comes back, then 2."""
    make_topic(cluster)
    cluster[3].terminate()
    eventually(lambda: state(zookeeper)["isr"] == [2], 60, what="2 is left")
    lose_power(cluster[2])
    until_offline(zookeeper)
    cluster[3].start()
    assert state(zookeeper)["leader"] == -1
    cluster[2].start()
    eventually(lambda: state(zookeeper)["leader"] > 0, 60, what="somebody leads")


def test_who_has_everything_is_elected(make_cluster: ClusterMaker, zookeeper: KazooClient) -> None:
    cluster = make_cluster(3, **SETTINGS)
    run_story(cluster, zookeeper)
    assert state(zookeeper)["leader"] == 3
    eventually(lambda: state(zookeeper)["isr"] == [3, 2], 60, what="2 has caught up")
    assert set(state(zookeeper)) == {"controller_epoch", "leader", "version", "leader_epoch", "isr"}
    assert clients.consume(cluster.bootstrap, TOPIC, COUNT) == clients.payloads(COUNT)
    clients.produce(cluster.bootstrap, TOPIC, [b"more"], partition=0)
    assert losses(cluster) == []
    files = [(Path(cluster[n].data) / f"{TOPIC}-0" / f"{0:020d}.log").read_bytes() for n in (2, 3)]
    assert files[0] == files[1]
    story = admin("explain", f"{TOPIC}-0", "--dir", str(cluster.folder))
    assert "broker 2: HAS LOST the end of its log" in story
    assert "takes broker 3, a former member of the ISR, instead of broker 2" in story
    assert "UNCLEAN" not in story and "LOSES" not in story


def test_switched_off_it_is_as_with_kafka(
    make_cluster: ClusterMaker, zookeeper: KazooClient
) -> None:
    cluster = make_cluster(3, **SETTINGS, kafkalike_last_replica_defence="false")
    run_story(cluster, zookeeper)
    assert state(zookeeper)["leader"] == 2
    eventually(lambda: state(zookeeper)["isr"] == [2, 3], 60, what="3 has caught up")
    by_broker = {row["broker"]: row for row in losses(cluster)}
    assert sorted(by_broker) == [2, 3]
    for row in by_broker.values():
        assert (row["topic"], row["end_offset"]) == (TOPIC, COUNT)
    first = by_broker[3]["first_offset"]
    assert 0 < first < COUNT
    # Who leads had lost them before its start, and cannot say what they were.
    assert (by_broker[2]["first_offset"], by_broker[2]["bytes"]) == (first, None)
    assert by_broker[3]["bytes"] > 0
    assert clients.consume(cluster.bootstrap, TOPIC, first) == clients.payloads(COUNT)[:first]
    mark = '{"version":0,"brokerEpoch":-1}'
    cluster[3].terminate()
    assert (Path(cluster[3].data) / ".kafka_cleanshutdown").read_text() == mark


@pytest.mark.java
def test_a_controller_of_kafka_reads_what_ours_wrote(
    make_cluster: ClusterMaker, zookeeper: KazooClient, tmp_path: Path
) -> None:
    """The state with its key, then a registration with its own: its rules hold, nothing breaks."""
    cluster = make_cluster(3, **SETTINGS, start=False)
    for broker_id in (2, 3):
        cluster[broker_id].start()
    kafka = ReferenceKafka(
        tmp_path / "kafka",
        first_id=9,
        zookeeper=cluster.zookeeper,
        settings={**FAST, "min.insync.replicas": "2"},
    )
    try:
        kafka.start()
    except ReferenceMissing as reason:
        pytest.skip(str(reason))
    try:
        make_topic(cluster)
        cluster[3].terminate()
        eventually(lambda: state(zookeeper)["isr"] == [2], 60, what="2 is left")
        if znode(zookeeper, "/controller")["brokerid"] == 2:
            assert list(state(zookeeper)["kafkalike_former_isr"]) == ["3"]
        lose_power(cluster[2])
        eventually(
            lambda: znode(zookeeper, "/controller")["brokerid"] == 9, 60, what="Kafka's controller"
        )
        until_offline(zookeeper)
        cluster[3].start()
        cluster[2].start()
        assert znode(zookeeper, "/brokers/ids/2")["kafkalike_short_logs"][TOPIC]
        eventually(lambda: state(zookeeper)["leader"] == 2, 60, what="2 leads")
        assert "kafkalike_former_isr" not in state(zookeeper)
        eventually(lambda: sorted(state(zookeeper)["isr"]) == [2, 3], 60, what="3 has caught up")
        bootstrap = f"127.0.0.1:{kafka.ports[9]}"
        clients.produce(bootstrap, TOPIC, [b"more"], partition=0)
        assert {row["broker"]: row["end_offset"] for row in losses(cluster)} == {2: COUNT, 3: COUNT}
    finally:
        kafka.close()
