"""Brokers of Apache Kafka 3.9.2 and ours in one cluster, with traffic that must not suffer."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataResponse
from tests.chaos.checker import Evidence, Outcomes, check
from tests.chaos.field import Worker
from tests.chaos.histories import lines_of
from tests.chaos.logs import Replica
from tests.chaos.reader import write_marks
from tests.differential.run import look_at
from tests.integration.brokers import FAST, ROOT, BrokerProcess, eventually
from tests.integration.groups.watch import ask
from tests.reference_kafka import ReferenceKafka

OURS: Final = "kafkalike"
KAFKA: Final = "kafka"
CALM_S: Final = 120.0
"""Within this time all replicas are in sync again after anything."""

SETTINGS: Final = {
    **FAST,
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "3",
    "inter.broker.protocol.version": "3.9",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "transaction.partition.verification.enable": "false",
}
LATEST: Final = -1


class MixedCluster:
    """`kinds`: broker id -> whose program runs; both run on the same data, with the same settings."""

    def __init__(self, folder: Path, zookeeper: str, kinds: Mapping[int, str]) -> None:
        self.zookeeper = zookeeper
        self.kinds = dict(kinds)
        self.ports: dict[int, int] = {}
        self._ours: dict[int, BrokerProcess] = {}
        self._kafka: dict[int, ReferenceKafka] = {}
        self.running: set[int] = set()
        for broker_id in kinds:
            kafka = ReferenceKafka(
                folder / "kafka",
                first_id=broker_id,
                zookeeper=zookeeper,
                settings=SETTINGS,
                heap="256M",
            )
            kafka.folder.mkdir(parents=True, exist_ok=True)
            ours = BrokerProcess(folder / "ours", broker_id, zookeeper, base=SETTINGS)
            port = self.ports[broker_id] = ours.port = kafka.ports[broker_id]
            ours.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
            ours.settings["log.dirs"] = str(kafka.data(broker_id).resolve())
            self._ours[broker_id] = ours
            self._kafka[broker_id] = kafka

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def data(self, broker_id: int) -> Path:
        return self._kafka[broker_id].data(broker_id).resolve()

    def of(self, kind: str) -> list[int]:
        return [broker_id for broker_id, whose in self.kinds.items() if whose == kind]

    # -- life ----------------------------------------------------------------------------------

    def launch(self, broker_id: int) -> None:
        self.running.add(broker_id)
        if self.kinds[broker_id] == OURS:
            self._ours[broker_id].launch()
        else:
            self._kafka[broker_id].launch(broker_id)

    def wait_ready(self, broker_id: int) -> None:
        if self.kinds[broker_id] == OURS:
            self._ours[broker_id].wait_ready()
        else:
            self._kafka[broker_id].wait_ready(broker_id)

    def start(self, *broker_ids: int) -> None:
        """Kafka stops when its former self is still registered, so that is waited for."""
        for broker_id in broker_ids:
            eventually(lambda: broker_id not in self.registered(), 60, what="session is over")  # noqa: B023
            self.launch(broker_id)
        for broker_id in broker_ids:
            self.wait_ready(broker_id)

    def kill(self, broker_id: int) -> None:
        self.running.discard(broker_id)
        if self.kinds[broker_id] == OURS:
            self._ours[broker_id].kill()
        else:
            self._kafka[broker_id].kill(broker_id)

    def stop(self, broker_id: int) -> None:
        self.running.discard(broker_id)
        if self.kinds[broker_id] == OURS:
            assert self._ours[broker_id].terminate() == 0
        else:
            self._kafka[broker_id].terminate(broker_id)

    def close(self) -> None:
        for broker_id in self.kinds:
            self._ours[broker_id].kill()
            self._kafka[broker_id].close()

    def complaints(self) -> list[str]:
        """What ours called an error."""
        return [
            line
            for broker in self._ours.values()
            if broker.log_path.exists()
            for line in broker.log().splitlines()
            if "] ERROR" in line or "] CRITICAL" in line
        ]

    # -- ZooKeeper -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def tree(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def registered(self) -> set[int]:
        with self.tree() as tree:
            try:
                return {int(name) for name in tree.get_children("/brokers/ids")}
            except NoNodeError:
                return set()

    def controller(self) -> int:
        """-1: there is none."""
        with self.tree() as tree:
            try:
                return int(json.loads(tree.get("/controller")[0])["brokerid"])
            except NoNodeError:
                return -1

    def move_controller(self, kind: str) -> int:
        """The office falls vacant until one of these has it."""

        def moved() -> bool:
            controller = self.controller()
            if controller >= 0 and self.kinds[controller] == kind:
                return True
            with self.tree() as tree, contextlib.suppress(NoNodeError):
                tree.delete("/controller")
            return False

        eventually(moved, CALM_S, pause_s=0.3, what=f"a controller of {kind}")
        return self.controller()

    # -- clients' view -------------------------------------------------------------------------

    def metadata(self, broker_id: int, *topics: str) -> MetadataResponse:
        answer: MetadataResponse = ask(self.ports[broker_id], look_at(*topics), 12)
        return answer

    def calm(self, *topics: str, what: str = "") -> None:
        """Until every broker that runs knows all of them, and all replicas in sync."""

        def still() -> bool:
            for broker_id in self.running:
                answer = self.metadata(broker_id, *topics)
                assert {node.node_id for node in answer.brokers} == self.running
                for topic in answer.topics:
                    assert topic.error_code == 0, topic
                    for part in topic.partitions:
                        assert part.error_code == 0 and part.leader_id >= 0, (topic.name, part)
                        assert set(part.isr_nodes) == set(part.replica_nodes), (topic.name, part)
            return True

        eventually(still, CALM_S, what=f"calm {what}")

    def gone(self, topic: str) -> None:
        """Until no broker knows the topic nor has a directory of it."""

        def probe() -> bool:
            for broker_id in self.running:
                code = self.metadata(broker_id, topic).topics[0].error_code
                left = [
                    p for p in self.data(broker_id).glob(f"{topic}-*") if "-delete" not in p.name
                ]
                if code != 3 or left:
                    return False
            return True

        eventually(probe, CALM_S, what=f"{topic} is gone")

    def partitions(self, topic: str) -> dict[int, Any]:
        answer = self.metadata(min(self.running), topic)
        return {part.partition_index: part for part in answer.topics[0].partitions}

    def end_offset(self, topic: str, partition: int) -> int:
        leader = self.partitions(topic)[partition].leader_id
        kind = ListOffsetsRequest.ListOffsetsTopic
        asked = kind.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=topic, partitions=[asked])])
        answer = ask(self.ports[leader], request, 7).topics[0].partitions[0]
        assert answer.error_code == 0
        return int(answer.offset)


def admin(*words: str, code: int = 0, limit_s: float = 120.0) -> str:
    """`kafkalike-admin`; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.admin.main", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def longest_silence_s(history: Path) -> float:
    last_s: dict[str, float] = {}
    longest_s = 0.0
    for kind, at_s, fields in lines_of(history):
        if kind == "A":
            longest_s = max(longest_s, at_s - last_s.get(fields[0], at_s))
            last_s[fields[0]] = at_s
    return longest_s


class GroupReader(threading.Thread):
    """A member of a group that commits what it has taken."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._ending = threading.Event()
        self.seen: set[tuple[int, int]] = set()
        self.problems: list[str] = []
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 5000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._ending.is_set():
            messages = self._consumer.consume(500, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    self.seen.add((message.partition(), message.offset()))
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.problems.append(str(error))
            if messages:
                # Refused while the group is moved to another member or coordinator: read again.
                with contextlib.suppress(Exception):
                    self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def finish(self) -> None:
        self._ending.set()
        self.join(60)
        assert not self.is_alive()


@dataclass
class Traffic:
    """Producers with acks=all, a careful reader and a group, from `start` to `finish`."""

    cluster: MixedCluster
    topic: str
    partitions: int
    folder: Path
    rate: float = 150.0
    producers: list[Worker] = field(default_factory=list)
    readers: list[Worker] = field(default_factory=list)
    members: list[GroupReader] = field(default_factory=list)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        common = ["--bootstrap", self.cluster.bootstrap, "--topic", self.topic]
        common += ["--partitions", str(self.partitions)]
        for kind in ("confluent", "kafka-python"):
            history, output = self.folder / f"{kind}.history", self.folder / f"{kind}.out"
            words = [kind, kind, *common, "--rate", str(self.rate)]
            self.producers.append(Worker(kind, "producers", history, output, *words))
        history, output = self.folder / "reader.history", self.folder / "reader.out"
        self.readers.append(Worker("reader", "reader", history, output, *common))
        for _ in range(2):
            member = GroupReader(self.cluster.bootstrap, self.topic, "mixed-group")
            member.start()
            self.members.append(member)

    def wait_flowing(self) -> None:
        """Until every producer has had an acknowledgement in every partition, from now on."""
        begun = time.monotonic()

        def flows() -> bool:
            for worker in self.producers:
                worker.look()
                late = [
                    number
                    for number in range(self.partitions)
                    if worker.last_ack_s.get(number, 0.0) < begun
                ]
                assert not late, (worker.name, late)
            return True

        eventually(flows, CALM_S, what="acknowledgements")

    def silences(self) -> dict[str, float]:
        """Of each producer, the longest time without an acknowledgement in some partition."""
        return {
            worker.name: round(longest_silence_s(worker.history), 1) for worker in self.producers
        }

    def finish(self, replicas: Mapping[int, Sequence[int]]) -> Outcomes:
        """Everything that was said must be so, on all of these replicas."""
        for worker in self.producers:
            worker.tell_to_end()
        for worker in self.producers:
            worker.stop(180.0)
            worker.look()
        self.cluster.calm(self.topic, what="before the end")
        marks = {n: self.cluster.end_offset(self.topic, n) for n in range(self.partitions)}
        wanted = {(number, offset) for number, end in marks.items() for offset in range(end)}

        def read_all() -> bool:
            left = wanted.difference(*(member.seen for member in self.members))
            assert not left, (len(left), sorted(left)[:5])
            return True

        eventually(read_all, 60, what="the group has read all")
        for member in self.members:
            member.finish()
            assert not member.problems
        for worker in self.readers:
            write_marks(worker.history, marks)
            worker.stop(180.0)

        found = {
            number: {
                broker: Replica.read(self.cluster.data(broker) / f"{self.topic}-{number}")
                for broker in brokers
            }
            for number, brokers in replicas.items()
        }
        evidence = Evidence(
            self.topic,
            producers={worker.name: worker.history for worker in self.producers},
            idempotent={worker.name for worker in self.producers},
            reader=self.readers[0].history,
            high_watermarks=marks,
            replicas=found,
        )
        return check(evidence)

    def close(self) -> None:
        for worker in (*self.producers, *self.readers):
            worker.stop(1.0)
        for member in self.members:
            member._ending.set()
