"""The cluster under test, its ZooKeeper and its network, as the faults see them."""

import contextlib
import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from kafkalike.broker.journal import JOURNAL, LOSSES, file_names, parse
from tests.chaos.checker import Leadership, journal_leaders
from tests.chaos.disks import Disk, program
from tests.chaos.histories import lines_of
from tests.chaos.links import CLIENTS, ZOOKEEPER, End, Network
from tests.chaos.logs import Replica
from tests.chaos.observer import METADATA_VERSION, Wire, metadata_request
from tests.integration.brokers import FAST, ROOT, BrokerProcess
from tests.integration.zookeeper import ZooKeeperServer

TOPIC: Final = "chaos"
CHROOT: Final = "/chaos"
READY_LIMIT_S: Final = 90.0
STOP_LIMIT_S: Final = 60.0
ABORT_LIMIT_S: Final = 5.0
LAST_WORDS_BYTES: Final = 4000
SETTINGS: Final = {
    "min_insync_replicas": "2",
    "default_replication_factor": "3",
    "offsets_topic_replication_factor": "3",
    "log_segment_bytes": "262144",
    "replica_lag_time_max_ms": "3000",
    "replica_socket_timeout_ms": "6000",
    "replica_high_watermark_checkpoint_interval_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "1000",
    "controller_socket_timeout_ms": "6000",
    "auto_create_topics_enable": "false",
    "auto_leader_rebalance_enable": "true",
    "log_cleaner_enable": "false",
    "log_retention_ms": "-1",
    "unclean_leader_election_enable": "false",
    "zookeeper_connection_timeout_ms": "30000",
}

FAILED: Final = "request failed request="
ALL_DISKS_FULL: Final = "all log directories have failed"

Way = tuple[End, End]


class ChaosBroker(BrokerProcess):
    """A broker with two log directories, reached through a relay."""

    def __init__(
        self, folder: Path, broker_id: int, zookeeper: str, network: Network, *, mounts: bool
    ) -> None:
        base = folder / f"broker-{broker_id}"
        super().__init__(folder, broker_id, zookeeper, base=FAST, **SETTINGS)
        self.disks = [Disk(base / name, mounts=mounts) for name in ("data-1", "data-2")]
        self.relay_port = network.relay(broker_id, ("127.0.0.1", self.port))
        self.settings |= {
            "log.dirs": ",".join(str(disk.path) for disk in self.disks),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.relay_port}",
            "kafkalike.journal.dir": str(base / "journal"),
        }
        self.started_s = 0.0
        self._log_bytes = 0
        self.ready_after_s: float | None = None
        """How long the last start took, once that is known."""
        self.wanted = False
        """It should be running: nobody stopped or killed it."""

    def program(self) -> list[str]:
        return program(self.disks)

    def launch(self) -> None:
        self._reap()
        self.started_s = time.monotonic()
        self.ready_after_s = None
        self._log_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.wanted = True
        super().launch()

    @property
    def has_begun(self) -> bool:
        """Its program has been loaded: before its first line there is nothing but the machine."""
        return self.log_path.exists() and self.log_path.stat().st_size > self._log_bytes

    def _reap(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._process = None

    def kill(self) -> None:
        self.wanted = False
        super().kill()

    def replicas(self, topic: str) -> dict[int, Replica]:
        """Partition -> files."""
        return {
            partition: Replica.read(folder)
            for disk in self.disks
            for partition, folder in partitions_in(disk.path, topic)
        }

    def entries(self, stem: str) -> Iterator[Any]:
        for name in file_names(stem):
            path = Path(self.settings["kafkalike.journal.dir"]) / name
            if path.exists():
                yield from parse(path.read_bytes())


class Worker:
    """A producer, reader or observer process and its history."""

    def __init__(self, name: str, module: str, history: Path, output: Path, *words: str) -> None:
        self.name = name
        self.history = history
        self.output = output
        self._position = 0
        self.last_ack_s: dict[int, float] = {}
        """Partition -> time."""
        self.acks = 0
        self.longest_gap: tuple[float, float] = (0.0, 0.0)
        """(seconds, when it ended) without any acknowledgement."""
        self._last_s = time.monotonic()
        self._told = False
        command = [sys.executable, "-m", f"tests.chaos.{module}", *words]
        with output.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--history", str(history)], stdout=out, stderr=out, cwd=ROOT
            )

    def look(self) -> None:
        """Take in what was acknowledged since the last look."""
        if not self.history.exists():
            return
        with self.history.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._position += end
        for line in data[:end].split(b"\n"):
            if line.startswith(b"A "):
                _, at, partition, _, _ = line.split()
                at_s = float(at)
                self.last_ack_s[int(partition)] = at_s
                self.acks += 1
                if at_s - self._last_s > self.longest_gap[0]:
                    self.longest_gap = (at_s - self._last_s, at_s)
                self._last_s = max(self._last_s, at_s)

    def tell_to_end(self) -> None:
        """Once: at the end of a Python program nobody handles signals any more."""
        if not self._told:
            self._told = True
            self.process.terminate()

    def stop(self, limit_s: float) -> None:
        if self.process.poll() is None:
            self.tell_to_end()
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                # By this one it says where it stands, if it can.
                self.process.send_signal(signal.SIGABRT)
                try:
                    self.process.wait(ABORT_LIMIT_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()

    def last_words(self) -> str | None:
        """How it ended and what it wrote, when that was not in order."""
        code = self.process.poll()
        if not code:
            return None
        text = self.output.read_text(errors="replace")[-LAST_WORDS_BYTES:].strip()
        return f"{self.name} ended with {code}: {text}"


class Field:
    """Everything that a run breaks and mends."""

    def __init__(self, folder: Path, brokers: int, partitions: int, *, mounts: bool) -> None:
        self.folder = folder
        self.partitions = partitions
        self.network = Network()
        self.zookeeper = ZooKeeperServer()
        self.zookeeper.start()
        target = ("127.0.0.1", self.zookeeper.port)
        self.brokers: dict[int, ChaosBroker] = {}
        for broker_id in range(1, brokers + 1):
            port = self.network.relay(ZOOKEEPER, target, broker_id)
            self.brokers[broker_id] = ChaosBroker(
                folder,
                broker_id,
                f"127.0.0.1:{port}{CHROOT}",
                self.network,
                mounts=mounts,
            )
        self.unasked_exits: list[str] = []
        self.slowest_start_s = 0.0
        self._client: Any = None

    @property
    def ids(self) -> list[int]:
        return sorted(self.brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{b.relay_port}" for b in self.brokers.values())

    @property
    def ends(self) -> list[End]:
        return [*self.ids, ZOOKEEPER, CLIENTS]

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.stop()
                self._client.close()
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.close()
        self.network.close()

    # What ZooKeeper says.  Only while it is well.

    def zk(self) -> Any:
        if self._client is None:
            self._client = KazooClient(hosts=self.zookeeper.address + CHROOT, timeout=20.0)
            self._client.start(timeout=30)
        return self._client

    def json(self, path: str) -> Any:
        return json.loads(self.zk().get(path)[0])

    def registered(self) -> list[int]:
        return sorted(int(name) for name in self.zk().get_children("/brokers/ids"))

    def controller(self) -> int | None:
        with contextlib.suppress(Exception):
            return int(self.json("/controller")["brokerid"])
        return None

    def state(self, partition: int) -> dict[str, Any]:
        found: dict[str, Any] = self.json(f"/brokers/topics/{TOPIC}/partitions/{partition}/state")
        return found

    def assignment(self) -> dict[int, list[int]]:
        found = self.json(f"/brokers/topics/{TOPIC}")["partitions"]
        return {int(partition): list(replicas) for partition, replicas in found.items()}

    def in_an_isr(self, broker: int) -> bool:
        return any(broker in self.state(p)["isr"] for p in range(self.partitions))

    # Health.

    def starved(self) -> bool:
        """The machine does not get round to loading the programs of brokers."""
        return any(b.runs and not b.has_begun for b in self.brokers.values())

    def revive(self) -> None:
        """Start again what ended by itself, and keep it in mind."""
        for broker in self.brokers.values():
            if broker.ready_after_s is None and broker.is_ready:
                broker.ready_after_s = time.monotonic() - broker.started_s
                self.slowest_start_s = max(self.slowest_start_s, broker.ready_after_s)
            if broker.wanted and not broker.runs:
                self.unasked_exits.append(f"broker {broker.id} at {time.monotonic():.1f}")
                broker.launch()

    def trouble(self) -> str | None:
        """What is not as it should be when nothing is broken; None when all is well."""
        self.revive()
        for broker in self.brokers.values():
            if not broker.is_ready:
                return f"broker {broker.id} does not serve"
        try:
            return self._trouble()
        except Exception as error:
            return f"cannot look: {error!r}"

    def _trouble(self) -> str | None:
        if self.registered() != self.ids:
            return f"registered are {self.registered()}"
        controller = self.controller()
        if controller is None:
            return "there is no controller"
        for partition, replicas in self.assignment().items():
            state = self.state(partition)
            if state["leader"] < 0:
                return f"partition {partition} has no leader"
            if sorted(state["isr"]) != sorted(replicas):
                return f"partition {partition} has ISR {state['isr']} of {replicas}"
        for broker in self.brokers.values():
            answer = self.metadata(broker)
            if answer.controller_id != controller:
                return f"broker {broker.id} names controller {answer.controller_id}"
            if sorted(b.node_id for b in answer.brokers) != self.ids:
                return f"broker {broker.id} does not know all brokers"
            for found in answer.topics[0].partitions:
                state = self.state(found.partition_index)
                known = (found.leader_id, found.leader_epoch, sorted(found.isr_nodes))
                if known != (state["leader"], state["leader_epoch"], sorted(state["isr"])):
                    return f"broker {broker.id} says partition {found.partition_index} is {known}"
        return None

    def metadata(self, broker: ChaosBroker) -> Any:
        wire = Wire(broker.port)
        try:
            return wire.ask(metadata_request(TOPIC), METADATA_VERSION)
        finally:
            wire.close()

    # Evidence.

    def losses(self) -> list[Any]:
        return [e for b in self.brokers.values() for e in b.entries(LOSSES) if e is not None]

    def leaderships(self) -> list[Leadership]:
        found: list[Leadership] = []
        for broker in self.brokers.values():
            found += journal_leaders(broker.entries(JOURNAL), TOPIC)
        return found

    def tracebacks(self) -> list[str]:
        """Unexpected errors in the brokers' logs, each with the line before it."""
        found: list[str] = []
        for broker in self.brokers.values():
            lines = broker.log().splitlines()
            for number, line in enumerate(lines):
                bad = "] CRITICAL" in line and ALL_DISKS_FULL not in line
                if line.startswith("Traceback") or bad or FAILED in line:
                    text = " / ".join(lines[max(0, number - 1) : number + 1])
                    rest = lines[number + 1 :]
                    end = next((after for after in rest if after[:1] not in ("", " ", "\t")), "")
                    found.append(f"broker {broker.id}: {text} ... {end}")
        return found


def wait_for(
    probe: Callable[[], str | None],
    limit_s: float,
    pause_s: float = 0.1,
    *,
    stands_still: Callable[[], bool] = lambda: False,
) -> float:
    """Seconds until `probe` has nothing to say any more.  Raises TimeoutError with its last word.

    Time in which the machine `stands_still` does not count.
    """
    begun = time.monotonic()
    spent_s, before = 0.0, begun
    while True:
        last = probe()
        now = time.monotonic()
        if last is None:
            return now - begun
        if not stands_still():
            spent_s += now - before
        before = now
        if spent_s > limit_s:
            raise TimeoutError(f"after {limit_s:g} s: {last}")
        time.sleep(pause_s)


def partitions_in(path: Path, topic: str) -> list[tuple[int, Path]]:
    """The partitions of a topic in a log directory; what is being deleted or moved is left out."""
    found = []
    for folder in path.glob(f"{topic}-*"):
        name, _, partition = folder.name.rpartition("-")
        if name == topic and partition.isdigit() and folder.is_dir():
            found.append((int(partition), folder))
    return sorted(found)


def tear(broker: ChaosBroker, choose: Any) -> str:
    """Damage the ends of a killed broker's logs as a power cut does; what was done.

    Nothing at or below a recovery point is touched: the broker had synced that.
    """
    from tests.chaos.logs import offsets_in

    done: list[str] = []
    for disk in broker.disks:
        recovery = offsets_in(disk.path / "recovery-point-offset-checkpoint")
        for partition, folder in partitions_in(disk.path, TOPIC):
            segments = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
            if not segments or choose.random() < 0.3:
                continue
            last = segments[-1]
            safe = _position_of(last, recovery.get((TOPIC, partition), 0))
            size = last.stat().st_size
            if safe >= size:
                continue
            cut = choose.randrange(safe, size)
            how = choose.choice(("cut", "zeros", "garbage", "flipped"))
            with last.open("r+b") as file:
                if how == "flipped":
                    file.seek(cut)
                    byte = file.read(1)
                    file.seek(cut)
                    file.write(bytes([byte[0] ^ (1 << choose.randrange(8))]))
                else:
                    file.truncate(cut)
                    file.seek(cut)
                    rest = size - cut
                    if how == "zeros":
                        file.write(bytes(rest))
                    elif how == "garbage":
                        file.write(choose.randbytes(min(rest, 5000)))
            if choose.random() < 0.3:
                index = last.with_suffix(choose.choice((".index", ".timeindex")))
                if index.exists():
                    index.write_bytes(choose.randbytes(choose.randrange(200)))
            done.append(f"{partition}:{how}@{cut}/{size}")
    return " ".join(done)


def _position_of(segment: Path, offset: int) -> int:
    """Where the batch with this offset begins, or the end of what can be read before it."""
    data, position = segment.read_bytes(), 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        if base >= offset or length < 49 or position + 12 + length > len(data):
            break
        position += 12 + length
    return position


def progress_since(workers: list[Worker], since_s: float, partitions: int) -> str | None:
    """None once every producer has had an acknowledgement from every partition since then."""
    for worker in workers:
        worker.look()
        if worker.process.poll() is not None:
            return f"{worker.name} has ended with {worker.process.returncode}"
        late = [p for p in range(partitions) if worker.last_ack_s.get(p, 0.0) < since_s]
        if late:
            return f"{worker.name} hears nothing from partitions {late}"
    return None


def failures_of(worker: Worker) -> list[str]:
    return [" ".join(fields) for kind, _, fields in lines_of(worker.history) if kind == "F"]
