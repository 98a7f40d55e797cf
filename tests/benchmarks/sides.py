"""The two clusters of a comparison: Apache Kafka and kafkalike, each beside a ZooKeeper of its own.

Both get the same ZooKeeper (the version that Kafka brings) and the same broker settings: defaults
but for addresses, folders and replication factors (`tests/reference_kafka.py`).
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkalike.properties import format_properties
from tests.integration.testing.processes import descendants
from tests.metadata import ask_metadata
from tests.ports import free_port
from tests.reference_kafka import ReferenceKafka, die_with_parent

ROOT: Final = Path(__file__).resolve().parents[2]
UNIT_FILE: Final = ROOT / "deploy" / "kafkalike@.service"
START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 30.0
TOPIC_LIMIT_S: Final = 60.0
HEAP: Final = "1G"
"""What Kafka's own start script gives a broker."""

TOPIC_SETTINGS: Final = {"file.delete.delay.ms": "1000"}
"""Memory of deleted topics comes back at once, for both."""

SETTLE_S: Final = 1.5


def service_environment() -> dict[str, str]:
    """What the unit file of a broker sets."""
    found: dict[str, str] = {}
    for line in UNIT_FILE.read_text().splitlines():
        if line.startswith("Environment="):
            name, _, value = line.removeprefix("Environment=").partition("=")
            found[name] = value
    return found


class KafkalikeBroker:
    """One `kafkalike broker` process."""

    def __init__(self, folder: Path, broker_id: int, zookeeper: str, factor: int) -> None:
        self.port = free_port()
        self.folder = folder / f"broker-{broker_id}"
        self._settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": zookeeper,
            "log.dirs": str((self.folder / "data").resolve()),
            "offsets.topic.replication.factor": str(factor),
            "transaction.state.log.replication.factor": str(factor),
            "transaction.state.log.min.isr": str(min(2, factor)),
            "group.initial.rebalance.delay.ms": "0",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "server.properties"
        path.write_text(format_properties(self._settings), encoding="iso-8859-1")
        program = Path(sys.executable).with_name("kafkalike")
        command = (
            [str(program)] if program.exists() else [sys.executable, "-m", "kafkalike.tools.main"]
        )
        with (self.folder / "broker.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "broker", str(path)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **service_environment()},
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Cluster:
    """Brokers that serve."""

    bootstrap: str
    pids: list[int]


class Side:
    """One of the two: starts ZooKeeper once and clusters in places of their own on it."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._zookeeper = ReferenceKafka(folder / "zookeeper", brokers=0)
        self._number = 0
        self.present_zookeeper = ""
        """Address and chroot of the newest cluster."""

    def __enter__(self) -> "Side":
        self._zookeeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._zookeeper.close()

    @contextlib.contextmanager
    def cluster(self, count: int) -> Iterator[tuple[Cluster, float]]:
        """A new cluster and the seconds from its start until all brokers are known and answer."""
        self._number += 1
        folder = self.folder / f"cluster-{self._number}"
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            begin = time.monotonic()
            zookeeper = f"{self._zookeeper.zookeeper}/cluster-{self._number}"
            self.present_zookeeper = zookeeper
            addresses, pids = self._launch(stack, folder, zookeeper, count)
            for port in addresses:
                wait_until_answers(port, count, pids, folder)
            took_s = time.monotonic() - begin
            bootstrap = ",".join(f"127.0.0.1:{port}" for port in addresses)
            yield Cluster(bootstrap, pids), took_s

    def _launch(
        self, stack: contextlib.ExitStack, folder: Path, zookeeper: str, count: int
    ) -> tuple[list[int], list[int]]:
        """Ports and process ids."""
        raise NotImplementedError


class KafkaSide(Side):
    name = "Kafka"

    def _launch(
        self, stack: contextlib.ExitStack, folder: Path, zookeeper: str, count: int
    ) -> tuple[list[int], list[int]]:
        folder.mkdir(parents=True)
        kafka = ReferenceKafka(folder, brokers=count, zookeeper=zookeeper, heap=HEAP)
        stack.callback(kafka.close)
        for broker_id in kafka.ports:
            kafka.launch(broker_id)
        return list(kafka.ports.values()), [kafka.pid(broker_id) for broker_id in kafka.ports]


class KafkalikeSide(Side):
    name = "kafkalike"

    def _launch(
        self, stack: contextlib.ExitStack, folder: Path, zookeeper: str, count: int
    ) -> tuple[list[int], list[int]]:
        brokers = [
            KafkalikeBroker(folder, number + 1, zookeeper, min(3, count)) for number in range(count)
        ]
        for broker in brokers:
            stack.callback(broker.close)
            broker.launch()
        return [broker.port for broker in brokers], [broker.pid for broker in brokers]


# Probes.


def wait_until_answers(port: int, count: int, pids: list[int], folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        with contextlib.suppress(OSError, struct.error):
            if len(ask_metadata(f"127.0.0.1:{port}").brokers) >= count:
                return
        if time.monotonic() > deadline or not all(Path(f"/proc/{pid}").exists() for pid in pids):
            raise RuntimeError(f"a cluster in {folder} did not start: {last_output(folder)}")
        time.sleep(0.005)


def last_output(folder: Path) -> str:
    logs = [*folder.glob("*.out"), *folder.glob("*/broker.log")]
    return "\n".join(path.read_text(errors="replace")[-1500:] for path in logs)


def cpu_seconds(pids: list[int]) -> float:
    """CPU time that these processes and their children have had."""
    ticks = 0
    for pid in family(pids):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pids: list[int]) -> float:
    """Resident memory of these processes and their children, shared pages counted in each."""
    total = 0
    for pid in family(pids):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


def family(pids: list[int]) -> list[int]:
    return [one for pid in pids for one in descendants(pid)]


# Topics.


@dataclass(frozen=True)
class Topic:
    name: str
    targets: list[str]
    """`HOST:PORT/PARTITION` of every partition's leader."""


@contextlib.contextmanager
def topic(bootstrap: str, name: str, partitions: int, factor: int) -> Iterator[Topic]:
    """A new topic with all replicas in sync, deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(
        name, num_partitions=partitions, replication_factor=factor, config=dict(TOPIC_SETTINGS)
    )
    admin.create_topics([new], request_timeout=30)[name].result(TOPIC_LIMIT_S)
    try:
        yield Topic(name, _leaders(bootstrap, name, partitions, factor))
    finally:
        admin.delete_topics([name], request_timeout=30)[name].result(TOPIC_LIMIT_S)
        time.sleep(SETTLE_S)


def _leaders(bootstrap: str, name: str, partitions: int, factor: int) -> list[str]:
    """Once every broker knows the whole topic: a leader that knows it serves it."""
    deadline = time.monotonic() + TOPIC_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, struct.error):
            told = [ask_metadata(address, name) for address in bootstrap.split(",")]
            found = told[0].partitions
            if (
                all(one == told[0] for one in told)
                and len(found) == partitions
                and all(
                    leader in told[0].brokers and in_sync == factor
                    for leader, in_sync in found.values()
                )
            ):
                return [
                    f"{told[0].brokers[leader]}/{index}"
                    for index, (leader, _) in sorted(found.items())
                ]
        time.sleep(0.05)
    raise RuntimeError(f"topic {name} has no leaders after {TOPIC_LIMIT_S:g} s")


def client_version() -> str:
    library = confluent_kafka.libversion()[0]
    return f"confluent-kafka {confluent_kafka.__version__}, librdkafka {library}"


def stop_on_signals() -> None:
    """SIGTERM and SIGHUP end the program as Ctrl-C does, so that everything is cleaned up."""

    def stop(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
