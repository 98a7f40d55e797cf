"""Apache Kafka 3.9.2 in ZooKeeper mode, run as processes: the reference to compare with.

`ReferenceKafka(folder, brokers=3)` runs ZooKeeper 3.8.4 and brokers of its own, or joins a given
ensemble; `tool(...)` runs one of Kafka's command line programs.  The jars come through Maven once and
stay in the user's cache.  Every process dies with the one that started it.

By hand:  python -m tests.reference_kafka FOLDER [--brokers N] [--zookeeper HOSTS] [KEY=VALUE ...]
"""

import argparse
import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

from tests.metadata import knows
from tests.ports import free_port

POM: Final = Path(__file__).with_name("reference_kafka.pom.xml")
STARTED: Final = b"started (kafka.server.KafkaServer)"
START_LIMIT_S: Final = 180.0
STOP_LIMIT_S: Final = 60.0
PR_SET_PDEATHSIG: Final = 1
LOG4J: Final = """log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.Target={target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
TOOLS: Final = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "acls": "kafka.admin.AclCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leaders": "org.apache.kafka.tools.LeaderElectionCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf": "org.apache.kafka.tools.ConsumerPerformance",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
}


class ReferenceMissing(Exception):
    """The original cannot run here; the text says what is missing."""


def missing() -> str | None:
    """Why the original cannot run here, or None."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH"
    return None


def jars(pom: Path = POM) -> Path:
    """The folder with Kafka's jars, fetched on first use.  Raises ReferenceMissing."""
    reason = missing()
    if reason is not None:
        raise ReferenceMissing(reason)
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "kafkalike" / f"reference-kafka-{key}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "made"
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            done = subprocess.run(
                [*command, f"-DoutputDirectory={made}"],
                capture_output=True,
                timeout=900,
                check=False,
            )
            if done.returncode != 0:
                said = (done.stdout + done.stderr).decode(errors="replace")[-2000:]
                raise ReferenceMissing(f"Maven could not fetch Kafka: {said}")
            with contextlib.suppress(OSError):
                made.rename(folder)  # another run may have been faster
    return folder


def die_with_parent() -> None:
    """For a child between fork and exec: the kernel kills it when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class _JavaProcess:
    """One program of the original with its output in a file."""

    def __init__(self, folder: Path, name: str, main: str, argument: Path, heap: str) -> None:
        self.name = name
        self.output = folder / f"{name}.out"
        self._seen = self.output.stat().st_size if self.output.exists() else 0
        log4j = folder / "log4j.properties"
        log4j.write_text(LOG4J.format(level="INFO", target="System.out"))
        command = ["java", f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-Xshare:auto"]
        command += ["-Djava.awt.headless=true", f"-Dlog4j.configuration=file:{log4j}"]
        command += ["-cp", f"{jars()}/*", main, str(argument)]
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> bytes:
        """Output of this run."""
        with self.output.open("rb") as text:
            text.seek(self._seen)
            return text.read()

    def check(self, deadline: float) -> None:
        """Raise unless it runs and there is time left."""
        if self._process.poll() is not None or time.monotonic() > deadline:
            tail = self.said()[-3000:].decode(errors="replace")
            raise RuntimeError(f"{self.name} did not start: {tail}")
        time.sleep(0.02)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()


class ReferenceKafka:
    """Brokers of the original with ids from `first_id` on; a context manager.

    `zookeeper` is the connection string of an ensemble to join, None starts a server.  `settings`
    are broker settings, the same for all, `dirs` the number of log directories
    of each, 1 or 2.  Data and
    output stay in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        first_id: int = 1,
        zookeeper: str | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "512M",
        dirs: int = 1,
        tick_ms: int = 500,
    ) -> None:
        """`tick_ms` is that of the ZooKeeper: sessions last 2 to 20 ticks at most."""
        self.folder = folder
        self.zookeeper = zookeeper or ""
        self.ports = {first_id + number: free_port() for number in range(brokers)}
        self._settings = dict(settings or {})
        self._heap = heap
        self._dirs = dirs
        self._tick_ms = tick_ms
        self._own_zookeeper: _JavaProcess | None = None
        self._brokers: dict[int, _JavaProcess] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def data(self, broker_id: int) -> Path:
        """The first log directory of one broker."""
        return self.folder / f"data-{broker_id}"

    def log_dirs(self, broker_id: int) -> list[Path]:
        first = self.data(broker_id).resolve()
        return [first, first.with_name(f"{first.name}-second")][: self._dirs]

    def start(self) -> None:
        """Start everything and return when all brokers serve.  Raises ReferenceMissing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.zookeeper:
            self.start_zookeeper()
        for broker_id in self.ports:
            self.launch(broker_id)
        for broker_id in self.ports:
            self.wait_ready(broker_id, known=set(self.ports))

    def start_zookeeper(self) -> None:
        """The first part of `start`: a ZooKeeper of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        path = self.folder / "zookeeper.properties"
        path.write_text(
            f"dataDir={self.folder.resolve()}/zookeeper\nclientPort={port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            f"tickTime={self._tick_ms}\n4lw.commands.whitelist=*\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._own_zookeeper = _JavaProcess(self.folder, "zookeeper", main, path, "192M")
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            self._own_zookeeper.check(deadline)
        self.zookeeper = f"127.0.0.1:{port}"

    def launch(self, broker_id: int) -> None:
        """Start one broker, on the data it has, without waiting."""
        count = str(min(3, len(self.ports)))
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker_id]}",
            "zookeeper.connect": self.zookeeper,
            "log.dirs": ",".join(str(path) for path in self.log_dirs(broker_id)),
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": str(min(2, len(self.ports))),
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        path = self.folder / f"broker-{broker_id}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        name = f"broker-{broker_id}"
        self._brokers[broker_id] = _JavaProcess(self.folder, name, "kafka.Kafka", path, self._heap)

    def wait_ready(self, broker_id: int, known: Set[int] = frozenset()) -> None:
        """Return when this broker serves and a controller has told it of itself and of `known`.

        It says that it has started some 100 ms before the latter.
        """
        broker = self._brokers[broker_id]
        deadline = time.monotonic() + START_LIMIT_S
        address = f"127.0.0.1:{self.ports[broker_id]}"
        while STARTED not in broker.said() or not knows(address, known | {broker_id}):
            broker.check(deadline)

    def pid(self, broker_id: int) -> int:
        return self._brokers[broker_id].pid

    def signal(self, broker_id: int, number: int) -> None:
        self._brokers[broker_id].signal(number)

    def kill(self, broker_id: int) -> None:
        """As a power cut would."""
        self._brokers.pop(broker_id).kill()

    def terminate(self, broker_id: int) -> None:
        """An orderly stop."""
        self._brokers.pop(broker_id).terminate()

    def close(self) -> None:
        """Kill everything.  The folder stays."""
        for broker_id in list(self._brokers):
            self.kill(broker_id)
        if self._own_zookeeper is not None:
            self._own_zookeeper.kill()
            self._own_zookeeper = None

    def __enter__(self) -> "ReferenceKafka":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tool(name: str, *arguments: str, given: str | None = None, limit_s: float = 120.0) -> str:
    """Run one of Kafka's programs (a name in TOOLS, or a class) and return what it printed.

    Raises subprocess.CalledProcessError when it fails.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as log4j:
        log4j.write(LOG4J.format(level="WARN", target="System.err"))
        log4j.flush()
        command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j.configuration=file:{log4j.name}", "-cp", f"{jars()}/*"]
        command += [TOOLS.get(name, name), *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=limit_s, check=True
        )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reference_kafka", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--first-id", type=int, default=1)
    parser.add_argument("--zookeeper")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    args = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in args.settings)
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with ReferenceKafka(
        args.folder,
        brokers=args.brokers,
        first_id=args.first_id,
        zookeeper=args.zookeeper,
        settings=settings,
    ) as kafka:
        print("ready", kafka.bootstrap, kafka.zookeeper, flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
