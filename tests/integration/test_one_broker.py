"""One broker beside a real ZooKeeper: real clients, restarts, clear errors, clean stop."""

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from tests.integration import clients
from tests.integration.brokers import ClusterMaker, eventually
from tests.ports import free_port

pytestmark = pytest.mark.real_zookeeper


@pytest.mark.parametrize("codec", clients.CODECS)
def test_four_clients_bring_back_what_they_sent(make_cluster: ClusterMaker, codec: str) -> None:
    cluster = make_cluster(1)
    values = clients.payloads(2000)
    expected = clients.digest(values)

    clients.create_topic(cluster.bootstrap, "confluent")
    offsets = clients.produce(cluster.bootstrap, "confluent", values, compression_type=codec)
    assert offsets == list(range(len(values)))
    assert clients.digest(clients.consume(cluster.bootstrap, "confluent", 2000)) == expected

    clients.create_topic(cluster.bootstrap, "kcat")
    clients.kcat_produce(cluster.bootstrap, "kcat", values, codec)
    assert clients.digest(clients.kcat_consume(cluster.bootstrap, "kcat", 2000)) == expected

    trips: dict[str, Callable[..., list[bytes]]] = {
        "python": clients.python_round_trip,
        "aio": clients.aiokafka_round_trip,
    }
    for topic, trip in trips.items():
        clients.create_topic(cluster.bootstrap, topic)
        assert clients.digest(trip(cluster.bootstrap, topic, values, codec)) == expected, topic
    assert cluster.errors() == []


def test_what_was_acknowledged_survives_a_kill_and_a_clean_stop(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    broker = cluster[1]
    clients.create_topic(cluster.bootstrap, "t", config={"segment.bytes": "100000"})
    values = clients.payloads(3000)
    clients.produce(cluster.bootstrap, "t", values[:1000])
    broker.kill()
    broker.start()
    offsets = clients.produce(cluster.bootstrap, "t", values[1000:2000])
    assert offsets[0] == 1000
    assert broker.terminate() == 0
    broker.start()
    clients.produce(cluster.bootstrap, "t", values[2000:])
    assert clients.consume(cluster.bootstrap, "t", 3000) == values
    assert cluster.errors() == []


def test_topics_appear_by_themselves_grow_and_go(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    clients.produce(cluster.bootstrap, "auto", [b"x"])
    admin = clients.admin(cluster.bootstrap)

    def partitions() -> int:
        metadata = admin.list_topics("auto", timeout=10).topics["auto"]
        assert metadata.error is None
        return len(metadata.partitions)

    assert partitions() == 1
    admin.create_partitions([NewPartitions("auto", 3)])["auto"].result(30)
    assert eventually(lambda: partitions() == 3)
    resource = ConfigResource(ResourceType.TOPIC, "auto", set_config={"retention.ms": "7777"})
    admin.alter_configs([resource])[resource].result(30)

    def retention() -> bool:
        described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "auto")])
        (entries,) = [future.result(30) for future in described.values()]
        return bool(entries["retention.ms"].value == "7777")

    assert eventually(retention)
    admin.delete_topics(["auto"])["auto"].result(30)
    assert "auto" not in admin.list_topics(timeout=10).topics

    def gone() -> bool:
        return not any((cluster[1].data / f"auto-{number}").exists() for number in range(3))

    assert eventually(gone)
    # the name is free again, with nothing of the old topic in it
    clients.create_topic(cluster.bootstrap, "auto")
    clients.produce(cluster.bootstrap, "auto", [b"new"])
    assert clients.consume(cluster.bootstrap, "auto", 1) == [b"new"]
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        clients.create_topic(cluster.bootstrap, "auto")
    assert cluster.errors() == []


def test_an_idempotent_producer_gets_an_id(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    clients.create_topic(cluster.bootstrap, "t")
    values = clients.payloads(500)
    offsets = clients.produce(cluster.bootstrap, "t", values, enable_idempotence=True)
    assert offsets == list(range(500))
    assert clients.consume(cluster.bootstrap, "t", 500) == values


def test_it_stays_small(make_cluster: ClusterMaker) -> None:
    broker = make_cluster(1)[1]
    time.sleep(1)
    rss = broker.rss_bytes()
    assert rss < 80 << 20, rss


def run_to_failure(cluster: object, broker: object) -> str:
    from tests.integration.brokers import BrokerProcess

    assert isinstance(broker, BrokerProcess)
    broker.launch()
    assert broker.wait() == 1
    lines = [line for line in broker.log().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, broker.tail()
    assert "Traceback" not in broker.log()
    return lines[0]


def test_no_zookeeper_is_a_clear_error(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1, start=False)
    broker = cluster[1]
    address = f"127.0.0.1:{free_port()}"
    broker.settings["zookeeper.connect"] = address
    broker.settings["zookeeper.connection.timeout.ms"] = "1000"
    line = run_to_failure(cluster, broker)
    assert address in line and "zookeeper.connection.timeout.ms" in line


def test_directories_of_others_are_refused(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    broker = cluster[1]
    meta = broker.data / "meta.properties"
    assert "broker.id=1" in meta.read_text()

    other = make_cluster(1, start=False)[1]
    other.settings["log.dirs"] = str(broker.data)
    other.settings["broker.id"] = "1"
    # another cluster: its own chroot
    other.settings["zookeeper.connect"] += "-other"
    assert "cluster" in run_to_failure(cluster, other)

    assert broker.terminate() == 0
    broker.settings["broker.id"] = "5"
    line = run_to_failure(cluster, broker)
    assert "broker.id" in line and "5" in line


def test_a_directory_in_use_is_refused(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(2, start=False)
    first, second = cluster[1], cluster[2]
    first.start()
    second.settings["log.dirs"] = str(first.data)
    second.settings["broker.id"] = "1"
    line = run_to_failure(cluster, second)
    assert str(first.data) in line


def test_a_port_in_use_is_refused(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1, start=False)
    broker = cluster[1]
    with socket.create_server(("127.0.0.1", broker.port)):
        line = run_to_failure(cluster, broker)
    assert str(broker.port) in line


def test_a_generated_broker_id_is_kept(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1, start=False)
    broker = cluster[1]
    broker.settings["broker.id"] = "-1"
    broker.start()
    meta: Path = broker.data / "meta.properties"
    assert "broker.id=1001" in meta.read_text()
    assert broker.terminate() == 0
    broker.start()
    assert list(clients.admin(cluster.bootstrap).list_topics(timeout=10).brokers) == [1001]


def test_garbage_closes_the_connection_and_nothing_else(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    clients.create_topic(cluster.bootstrap, "t")
    for frame in (b"\x00\x00\x00\x04junk", struct.pack(">i", -5), struct.pack(">i", 1 << 30)):
        with socket.create_connection(("127.0.0.1", cluster[1].port), 10) as connection:
            connection.sendall(frame)
            assert connection.recv(100) == b""
    assert clients.produce(cluster.bootstrap, "t", [b"v"]) == [0]


def test_a_signal_during_the_start_ends_it(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1, start=False)
    broker = cluster[1]
    broker.settings["zookeeper.connect"] = f"127.0.0.1:{free_port()}"
    broker.settings["zookeeper.connection.timeout.ms"] = "60000"
    broker.launch()
    assert eventually(lambda: "Connecting to" in broker.log())
    assert broker.terminate(15) == 0

    second = make_cluster(1, zookeeper_session_timeout_ms="12000")[1]
    second.kill()
    second.launch()  # waits for the session of its earlier life
    assert eventually(lambda: "waiting for the session" in second.log())
    assert second.terminate(15) == 0
    second.start()
