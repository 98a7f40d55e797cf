"""Broker processes for tests: started, killed, frozen, restarted on their data.

Every process is told by the kernel to die with the test process, listens on a free port of 127.0.0.1,
keeps its data and its log (`broker.log`) in a folder of its own, and is killed at the end.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from kafkalike.properties import format_properties
from tests.metadata import knows
from tests.ports import free_port
from tests.reference_kafka import die_with_parent

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 60.0
SESSION_TIMEOUT_MS: Final = 3000

FAST: Final = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "20000",
    "controlled.shutdown.retry.backoff.ms": "300",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "replica.lag.time.max.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    # Five seconds after each change of controller leaders would move, in the midst of something else.
    "auto.leader.rebalance.enable": "false",
}
"""Settings that make faults heal in seconds."""


class BrokerProcess:
    """One broker: `python -m kafkalike.tools.main broker server.properties`.

    `base` are its settings beside those of its place; keywords are more of them.
    """

    def __init__(
        self,
        folder: Path,
        broker_id: int,
        zookeeper: str,
        *,
        base: Mapping[str, str] = FAST,
        **settings: str,
    ) -> None:
        self.id = broker_id
        self.port = free_port()
        self.folder = folder / f"broker-{broker_id}"
        self.folder.mkdir(parents=True)
        self.log_path = self.folder / "broker.log"
        self._ready_path = self.folder / "ready"
        self.settings = {
            **base,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.folder / "data"),
            "zookeeper.connect": zookeeper,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        return Path(self.settings["log.dirs"].split(",")[0])

    def program(self) -> list[str]:
        """What is started; it takes what `kafkalike broker` takes."""
        return [sys.executable, "-m", "kafkalike.tools.main", "broker"]

    @property
    def runs(self) -> bool:
        """It was started, and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        return self._ready_path.exists()

    def launch(self) -> None:
        """Start the process without waiting."""
        assert self._process is None
        path = self.folder / "server.properties"
        path.write_text(format_properties(self.settings), encoding="iso-8859-1")
        self._ready_path.unlink(missing_ok=True)
        command = [*self.program(), str(path), "--ready-file", str(self._ready_path)]
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )

    def wait_ready(self, limit_s: float = START_LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not self._ready_path.exists():
            assert self._process is not None
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                raise AssertionError(f"broker {self.id} is not up (exit {code}): {self.tail()}")
            time.sleep(0.02)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def terminate(self, limit_s: float = STOP_LIMIT_S) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(limit_s)

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """The exit code of a process that ends by itself."""
        process = self._process
        assert process is not None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"broker {self.id} does not end: {self.tail()}") from None
        self._process = None
        return code

    def kill(self) -> None:
        """As a power cut would; harmless when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def tail(self) -> str:
        return self.log()[-3000:]

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


class BrokerCluster:
    """Brokers 1 to n beside one ZooKeeper (address with chroot)."""

    def __init__(self, zookeeper: str, count: int, **settings: str) -> None:
        self.zookeeper = zookeeper
        self.folder = Path(tempfile.mkdtemp(prefix="kafkalike-brokers-"))
        self.brokers = [
            BrokerProcess(self.folder, broker_id, zookeeper, base=FAST, **settings)
            for broker_id in range(1, count + 1)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id - 1]

    def start(self) -> None:
        """Until all brokers are registered."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def is_known(self, controller: int | None = None) -> bool:
        """All brokers have been told of each other, and of that controller."""
        ids = {broker.id for broker in self.brokers}
        return all(knows(broker.address, ids, controller) for broker in self.brokers)

    def wait_known(self) -> None:
        eventually(self.is_known, START_LIMIT_S, what="all brokers know each other")

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def errors(self) -> list[str]:
        """What a person must see in the logs, each with its traceback."""
        found: list[str] = []
        for broker in self.brokers:
            lines = iter(broker.log().splitlines())
            collecting = False
            for line in lines:
                starts = line.startswith("[")
                if "] ERROR" in line or "] CRITICAL" in line:
                    found.append(f"broker {broker.id}: {line}")
                    collecting = True
                elif starts:
                    collecting = False
                elif collecting:
                    found[-1] += f"\n{line}"
        return found


def eventually(
    probe: Callable[[], T], limit_s: float = 30.0, *, pause_s: float = 0.1, what: str = ""
) -> T:
    """The first true result of `probe`, which may raise while it is too early."""
    deadline = time.monotonic() + limit_s
    last: Any = None
    while True:
        try:
            found = probe()
            if found:
                return found
            last = found
        except Exception as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s} s: {what} (last: {last!r})")
        time.sleep(pause_s)


ClusterMaker = Callable[..., BrokerCluster]


@pytest.fixture
def make_cluster(zookeeper_address: str, chroot: str) -> Iterator[ClusterMaker]:
    """`make_cluster(count, **settings)`: a started cluster of its own on the shared ZooKeeper.

    Dots of setting names are written as underscores.  `start=False` leaves the start to the test,
    `known=False` does not wait until the controller has told the brokers of each other.
    """
    made: list[BrokerCluster] = []

    def make(
        count: int, *, start: bool = True, known: bool = True, **settings: str
    ) -> BrokerCluster:
        cluster = BrokerCluster(f"{zookeeper_address}{chroot}", count, **settings)
        made.append(cluster)
        if start:
            cluster.start()
            if known:
                cluster.wait_known()
        return cluster

    yield make
    for cluster in made:
        cluster.close()
