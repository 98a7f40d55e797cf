"""Apache Kafka itself on the embedded service: topics, killed controllers, expired sessions."""

import json
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from tests.metadata import knows
from tests.ports import free_port

from .servers import Server, kafka_libs, start_embedded

pytestmark = [pytest.mark.java, pytest.mark.slow]

PATIENCE_S = 120.0
SESSION_TIMEOUT_MS = 4000


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)


class KafkaBroker:
    """One broker of the original."""

    def __init__(
        self, directory: pathlib.Path, libs: pathlib.Path, broker_id: int, zookeeper: str
    ) -> None:
        self.id = broker_id
        self.port = free_port()
        self._directory = directory / f"broker-{broker_id}"
        self._directory.mkdir()
        self._libs = libs
        self._properties = self._directory / "server.properties"
        self._properties.write_text(
            f"broker.id={broker_id}\nlisteners=PLAINTEXT://127.0.0.1:{self.port}\n"
            f"zookeeper.connect={zookeeper}\nlog.dirs={self._directory}/data\n"
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}\n"
            "offsets.topic.replication.factor=3\noffsets.topic.num.partitions=3\n"
            "group.initial.rebalance.delay.ms=0\nmin.insync.replicas=2\n"
            "replica.lag.time.max.ms=5000\nnum.io.threads=2\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log4j = self._directory / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=INFO, stdout\n"
            "log4j.appender.stdout=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.stdout.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        with (self._directory / "out").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *(f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{self._libs}/*"),
                    *("kafka.Kafka", str(self._properties)),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def tell(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.tell(signal.SIGCONT)
            self.tell(number)
            self.process.wait(PATIENCE_S)
            self.process = None


class Cluster:
    def __init__(self, directory: pathlib.Path, libs: pathlib.Path) -> None:
        self._directory = directory
        self._options = ("--data-dir", str(directory / "zookeeper"), "--tick", "500")
        self.zookeeper: Server = start_embedded(directory, *self._options)
        hosts = f"{self.zookeeper.hosts}/kafka"
        self.brokers = {i: KafkaBroker(directory, libs, i, hosts) for i in (1, 2, 3)}
        self.client = KazooClient(hosts, timeout=10.0)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{b.port}" for b in self.brokers.values())

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self.client.start(PATIENCE_S)
        self.wait_for({1, 2, 3})

    def restart_zookeeper(self) -> None:
        """As by `kill -9`, then again on the same port and data."""
        self.zookeeper.kill()
        self.zookeeper = start_embedded(self._directory, *self._options, port=self.zookeeper.port)

    def registered(self) -> set[int]:
        if not self.client.exists("/brokers/ids"):
            return set()
        return {int(name) for name in self.client.get_children("/brokers/ids")}

    def wait_for(self, brokers: set[int]) -> None:
        """Until these are registered and know it: that comes later than the former."""
        until(lambda: self.registered() == brokers, f"brokers {sorted(brokers)} are registered")
        for one in brokers:
            address = f"127.0.0.1:{self.brokers[one].port}"
            until(partial(knows, address, brokers), f"broker {one} knows {sorted(brokers)}")

    def controller(self) -> int:
        """0 while there is none."""
        if not self.client.exists("/controller"):
            return 0
        return int(json.loads(self.client.get("/controller")[0])["brokerid"])

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        state: dict[str, Any] = json.loads(self.client.get(path)[0])
        return state

    def wait_for_isr(self, topic: str, size: int) -> None:
        until(
            lambda: all(len(self.state(topic, p)["isr"]) == size for p in range(3)),
            f"all partitions have {size} replicas in sync",
        )

    def create_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=3, replication_factor=3)
        admin.create_topics([topic], operation_timeout=60)[name].result(PATIENCE_S)
        until(
            lambda: all(
                self.client.exists(f"/brokers/topics/{name}/partitions/{p}/state") for p in range(3)
            ),
            f"topic {name} has leaders",
        )

    def produce(self, topic: str, values: range) -> None:
        """All acknowledged by all replicas in sync, else an error."""
        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 100_000,
            }
        )
        for value in values:
            producer.produce(
                topic,
                str(value).encode(),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert failures == []

    def consume(self, topic: str, count: int) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-of-{topic}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        values: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(int(message.value() or b""))
        consumer.close()
        return sorted(values)


@contextmanager
def running(directory: pathlib.Path, libs: pathlib.Path) -> Iterator[Cluster]:
    cluster = Cluster(directory, libs)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.client.stop()
        cluster.client.close()
        for broker in cluster.brokers.values():
            broker.end()
        cluster.zookeeper.stop()


def test_kafka_brokers_live_on_it(tmp_path: pathlib.Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    libs = kafka_libs()
    if libs is None or not list(libs.glob("kafka_*.jar")):
        pytest.skip("needs Kafka's jars below KAFKA39_HOME")
    with running(tmp_path, libs) as cluster:
        cluster.create_topic("first")
        cluster.produce("first", range(1000))
        cluster.wait_for_isr("first", 3)

        # The controller is killed: its session expires, another takes over, leaders move.
        epoch = int(cluster.client.get("/controller_epoch")[0])
        old = cluster.controller()
        cluster.brokers[old].end()
        cluster.produce("first", range(1000, 2000))
        until(lambda: cluster.controller() not in (0, old), "another broker is controller")
        cluster.wait_for({1, 2, 3} - {old})
        assert int(cluster.client.get("/controller_epoch")[0]) > epoch
        assert all(cluster.state("first", p)["leader"] != old for p in range(3))
        cluster.brokers[old].start()
        cluster.wait_for({1, 2, 3})
        cluster.wait_for_isr("first", 3)

        # A frozen broker outlives its session: it registers again, with a new broker epoch.
        frozen = next(i for i in (1, 2, 3) if i != cluster.controller())
        before = cluster.client.get(f"/brokers/ids/{frozen}")[1].czxid
        cluster.brokers[frozen].tell(signal.SIGSTOP)
        cluster.wait_for({1, 2, 3} - {frozen})
        cluster.brokers[frozen].tell(signal.SIGCONT)
        cluster.wait_for({1, 2, 3})
        assert cluster.client.get(f"/brokers/ids/{frozen}")[1].czxid > before
        cluster.wait_for_isr("first", 3)

        # The service itself is killed: sessions go on, nobody loses its place.
        epochs = {i: cluster.client.get(f"/brokers/ids/{i}")[1].czxid for i in (1, 2, 3)}
        controller = cluster.controller()
        cluster.restart_zookeeper()
        cluster.client.retry(cluster.client.get, "/controller")
        time.sleep(SESSION_TIMEOUT_MS / 1000 * 1.5)
        assert cluster.controller() == controller
        assert {i: cluster.client.get(f"/brokers/ids/{i}")[1].czxid for i in (1, 2, 3)} == epochs
        cluster.create_topic("second")
        cluster.produce("second", range(500))
        assert cluster.consume("first", 2000) == list(range(2000))
        assert cluster.consume("second", 500) == list(range(500))

        # A clean stop hands leadership over and leaves at once.
        leaver = cluster.controller()
        cluster.brokers[leaver].end(signal.SIGTERM)
        assert cluster.registered() == {1, 2, 3} - {leaver}
        until(lambda: cluster.controller() not in (0, leaver), "the next controller")
