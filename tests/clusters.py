"""The two clusters of a comparison, run as processes with the same settings: ours and the original.

Each has a ZooKeeper of its own (ours: the embedded service as a process) and brokers 1 to n, which a
test kills, freezes and starts again.  Broker 1 starts first, so that it is the controller.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from tests.integration.brokers import ROOT, BrokerProcess
from tests.ports import free_port
from tests.reference_kafka import ReferenceKafka, die_with_parent

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
TICK_MS: Final = 500


class Cluster(Protocol):
    """Brokers that serve."""

    zookeeper: str
    """Where their coordination service is."""

    ports: dict[int, int]
    """Broker id -> port of 127.0.0.1."""

    def dirs(self, broker_id: int) -> list[Path]:
        """Log directories."""

    def kill(self, broker_id: int) -> None:
        """As a power cut would; its session lives on."""

    def start(self, broker_id: int) -> None:
        """Again, on its data."""

    def signal(self, broker_id: int, number: int) -> None: ...


class _Ours:
    def __init__(
        self, folder: Path, brokers: int, settings: Mapping[str, str], dirs: int, tick_ms: int
    ) -> None:
        port = free_port()
        self.zookeeper = f"127.0.0.1:{port}"
        self._service = [sys.executable, "-m", "kafkalike.tools.main", "zookeeper"]
        self._service += ["--port", str(port), "--tick-time-ms", str(tick_ms)]
        self._folder = folder
        self._brokers = {
            broker_id: BrokerProcess(folder, broker_id, self.zookeeper, base=settings)
            for broker_id in range(1, brokers + 1)
        }
        for broker in self._brokers.values():
            names = ("data", "data-second")[:dirs]
            paths = [str((broker.folder / name).resolve()) for name in names]
            broker.settings["log.dirs"] = ",".join(paths)
        self.ports = {broker_id: broker.port for broker_id, broker in self._brokers.items()}

    def dirs(self, broker_id: int) -> list[Path]:
        return [Path(path) for path in self._brokers[broker_id].settings["log.dirs"].split(",")]

    def kill(self, broker_id: int) -> None:
        self._brokers[broker_id].kill()

    def launch(self, broker_id: int) -> None:
        self._brokers[broker_id].launch()

    def wait_ready(self, broker_id: int) -> None:
        self._brokers[broker_id].wait_ready()

    def start(self, broker_id: int) -> None:
        self._brokers[broker_id].start()

    def signal(self, broker_id: int, number: int) -> None:
        self._brokers[broker_id].signal(number)

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        with (self._folder / "zookeeper.out").open("ab") as out:
            process = subprocess.Popen(
                self._service,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        """All stop in order, at once where that takes too long."""
        running = [broker for broker in self._brokers.values() if broker.runs]
        for broker in running:
            broker.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        for broker in running:
            with contextlib.suppress(AssertionError):
                broker.wait(max(0.0, deadline - time.monotonic()))
        for broker in self._brokers.values():
            broker.kill()


@contextlib.contextmanager
def ours(
    folder: Path,
    *,
    brokers: int = 1,
    settings: Mapping[str, str],
    dirs: int = 1,
    tick_ms: int = TICK_MS,
) -> Iterator[Cluster]:
    """Brokers of ours.  `settings` are those of all, `dirs` the number of log directories
    of each, 1 or 2.

    Sessions last 2 to 20 ticks at most.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cluster = _Ours(folder, brokers, settings, dirs, tick_ms)
    with cluster.service():
        try:
            _start(cluster)
            yield cluster
        finally:
            cluster.close()


class _Original:
    def __init__(self, kafka: ReferenceKafka) -> None:
        self.zookeeper = kafka.zookeeper
        self.ports = kafka.ports
        self.dirs = kafka.log_dirs
        self.kill = kafka.kill
        self.signal = kafka.signal
        self.launch = kafka.launch
        self.wait_ready = kafka.wait_ready

    def start(self, broker_id: int) -> None:
        self.launch(broker_id)
        self.wait_ready(broker_id)


@contextlib.contextmanager
def original(
    folder: Path,
    *,
    brokers: int = 1,
    settings: Mapping[str, str],
    dirs: int = 1,
    tick_ms: int = TICK_MS,
    heap: str = "512M",
) -> Iterator[Cluster]:
    """Brokers of Apache Kafka.  Raises ReferenceMissing."""
    kafka = ReferenceKafka(
        folder, brokers=brokers, settings=settings, heap=heap, dirs=dirs, tick_ms=tick_ms
    )
    try:
        kafka.start_zookeeper()
        cluster = _Original(kafka)
        _start(cluster)
        yield cluster
    finally:
        kafka.close()


def _start(cluster: _Ours | _Original) -> None:
    first, *others = cluster.ports
    cluster.launch(first)
    cluster.wait_ready(first)
    for broker_id in others:
        cluster.launch(broker_id)
    for broker_id in others:
        cluster.wait_ready(broker_id)
