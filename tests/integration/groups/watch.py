"""A consumer group of processes under observation: who owned what when, what was read and committed.

`Party` starts and stops members, writes records all the while, and asks for committed offsets through
a client of its own.  `check` says what must have held at every moment.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.cimpl import NewPartitions

from kafkalike.messages.catalog import response_class
from kafkalike.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
)
from kafkalike.messages.offsets import OffsetFetchRequest
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.struct import Request
from tests.differential.case import frame
from tests.differential.wire import Closed, Connection, Silence
from tests.integration import clients
from tests.integration.brokers import ROOT, BrokerCluster, eventually
from tests.integration.client_matrix.programs import member_command
from tests.integration.groups.member import (
    HEARTBEAT_MS,
    PARTITIONS_OF_A_TOPIC,
    REBALANCE_MS,
    SESSION_MS,
    place_of,
)
from tests.reference_kafka import die_with_parent

STEADY_S: Final = 60.0
"""Within this time a group must have come to rest after anything."""
TOLERANCE_MS: Final = 50
"""Between what a member does and when it says so."""


MEMBERS_IN_OTHER_LANGUAGES: Final = ("java", "franz-go", "sarama", "kafkajs")
SETTINGS: Final = {
    "MEMBER_HEARTBEAT_MS": str(HEARTBEAT_MS),
    "MEMBER_REBALANCE_MS": str(REBALANCE_MS),
}
"""Of members in other languages; the session is told to all."""


class NoAnswer(Exception):
    """Nobody knows, or says, what was asked."""


def ask(port: int, request: Request, version: int) -> Any:
    """One request on a connection of its own."""
    connection = Connection(port)
    try:
        connection.send(frame(request, version))
        received = connection.receive(10)
    finally:
        connection.close()
    _, position = decode_response_header(received, request.api_key, version)
    return response_class(request.api_key).decode(received, version, position)


@dataclass(slots=True)
class Interval:
    """One member owned one partition from `since` until `until` (ms; None: still)."""

    member: str
    partition: int
    since: int
    until: int | None = None


@dataclass
class Member:
    """A member process and what it has said so far."""

    name: str
    process: "subprocess.Popen[str]"
    owned: set[int] = field(default_factory=set)
    intervals: list[Interval] = field(default_factory=list)
    read: dict[int, set[int]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    changes: int = 0

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            time_ms, word, *rest = line.split()
            if word == "owns":
                self._owns(
                    int(time_ms), set() if rest[0] == "-" else {int(p) for p in rest[0].split(",")}
                )
            elif word == "read":
                self.read.setdefault(int(rest[0]), set()).add(int(rest[1]))
            elif word == "committed":
                partition, offset = int(rest[0]), int(rest[1])
                self.committed[partition] = max(self.committed.get(partition, -1), offset)

    def _owns(self, time_ms: int, partitions: set[int]) -> None:
        self.changes += 1
        for partition in self.owned - partitions:
            self.end(time_ms, partition)
        for partition in partitions - self.owned:
            self.intervals.append(Interval(self.name, partition, time_ms))
        self.owned = partitions

    def end(self, time_ms: int, partition: int | None = None) -> None:
        """What it owned counts no longer (it was killed or frozen, or gave it up)."""
        for interval in self.intervals:
            if interval.until is None and partition in (None, interval.partition):
                interval.until = time_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Party:
    """A group named `group` on `topic` of a cluster."""

    def __init__(
        self,
        cluster: BrokerCluster,
        library: str,
        *,
        partitions: int = 12,
        group: str = "party",
        by_expression: bool = False,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.cluster = cluster
        self._settings = SETTINGS | {"MEMBER_SESSION_MS": str(session_ms)}
        self.library = library
        self.group = group
        self.topic = f"{group}-topic-0"
        self.partitions = partitions
        self.places = list(range(partitions))
        """All partitions that the group should read, as members tell them (`place_of`)."""
        self.subscription = f"^{group}-topic-.*" if by_expression else self.topic
        self.members: dict[str, Member] = {}
        self.all_members: list[Member] = []
        self.written: dict[int, int] = {}
        self._stop = threading.Event()
        self.regressions: list[str] = []
        clients.create_topic(
            cluster.bootstrap, self.topic, partitions, 3, {"min.insync.replicas": "2"}
        )
        self._threads = [
            threading.Thread(target=self._write, daemon=True),
            threading.Thread(target=self._watch_offsets, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # -- members -------------------------------------------------------------------------------

    def command(self, library: str) -> list[str]:
        """What runs a member, without cluster, group and topic.  Raises ClientMissing."""
        if library.removesuffix("-cooperative") in MEMBERS_IN_OTHER_LANGUAGES:
            return member_command(library)
        return [sys.executable, "-m", "tests.integration.groups.member", library]

    def start(
        self, name: str, *, library: str | None = None, instance: str | None = None
    ) -> Member:
        words = [self.cluster.bootstrap, self.group, self.subscription]
        errors = (self.cluster.folder / f"member-{name}.err").open("ab")
        with errors:
            process = subprocess.Popen(
                [*self.command(library or self.library), *words]
                + ([] if instance is None else [instance]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **self._settings},
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        member = Member(name, process)
        self.members[name] = member
        self.all_members.append(member)
        threading.Thread(target=member.listen, daemon=True).start()
        return member

    def leave(self, name: str) -> None:
        """In good order."""
        member = self.members.pop(name)
        assert member.process.stdin is not None
        member.process.stdin.close()
        member.process.wait(30)
        member.end(now_ms())

    def kill(self, name: str) -> None:
        member = self.members.pop(name)
        member.process.kill()
        member.process.wait()
        member.end(now_ms())

    def freeze(self, name: str) -> None:
        member = self.members[name]
        os.kill(member.process.pid, signal.SIGSTOP)
        member.end(now_ms())

    def thaw(self, name: str) -> None:
        os.kill(self.members[name].process.pid, signal.SIGCONT)

    # -- topics --------------------------------------------------------------------------------

    def add_partitions(self, count: int) -> None:
        """So that the topic has `count`."""
        admin = clients.admin(self.cluster.bootstrap)
        admin.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(30)
        self.places += range(self.partitions, count)
        self.partitions = count

    def add_topic(self, partitions: int) -> None:
        """Another one that the subscription's expression matches."""
        settings = {"min.insync.replicas": "2"}
        clients.create_topic(
            self.cluster.bootstrap, f"{self.group}-topic-1", partitions, 3, settings
        )
        self.places += range(PARTITIONS_OF_A_TOPIC, PARTITIONS_OF_A_TOPIC + partitions)

    # -- waiting -------------------------------------------------------------------------------

    def settle(self, limit_s: float = STEADY_S) -> float:
        """Until the group is stable and its members own every partition once; how long it took."""
        begin_s = time.monotonic()

        def at_rest() -> bool:
            owned = sorted(p for member in self.members.values() for p in member.owned)
            if owned != sorted(self.places):
                return False
            described = self.describe()
            return described.group_state == "Stable" and len(described.members) == len(self.members)

        def state() -> str:
            return str({name: sorted(member.owned) for name, member in self.members.items()})

        try:
            eventually(at_rest, limit_s, pause_s=0.2, what=f"{len(self.members)} members at rest")
        except AssertionError as error:
            logs = "\n".join(broker.tail() for broker in self.cluster.brokers)
            kept = self._keep_logs()
            raise AssertionError(f"{error}; {state()}; {self._errors()}\n{kept}\n{logs}") from None
        return time.monotonic() - begin_s

    def _keep_logs(self) -> str:
        """Logs of brokers and members whole, where `KAFKALIKE_KEEP_LOGS` names a folder for them."""
        place = os.environ.get("KAFKALIKE_KEEP_LOGS")
        if not place:
            return ""
        target = Path(place) / f"{self.cluster.folder.name}-{self.library}"
        for path in (*self.cluster.folder.glob("*.err"), *self.cluster.folder.glob("*/*.log")):
            kept = target / path.relative_to(self.cluster.folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)
        return f"logs are in {target}"

    def describe(self) -> DescribeGroupsResponse.DescribedGroup:
        """The group as its coordinator shows it.  Raises NoAnswer."""
        request = DescribeGroupsRequest(groups=[self.group])
        groups: list[DescribeGroupsResponse.DescribedGroup]
        groups = self._ask_coordinator(request, 5).groups
        if groups[0].error_code:
            raise NoAnswer(f"error {groups[0].error_code}")
        return groups[0]

    def coordinator(self) -> int:
        """Id of the broker that coordinates the group.  Raises NoAnswer."""
        for broker in self.cluster.brokers:
            with contextlib.suppress(OSError, Closed, Silence):
                request = FindCoordinatorRequest(coordinator_keys=[self.group])
                found = ask(broker.port, request, 4).coordinators[0]
                if found.error_code == 0:
                    return int(found.node_id)
        raise NoAnswer("no coordinator")

    def _ask_coordinator(self, request: Request, version: int) -> Any:
        try:
            return ask(self.cluster[self.coordinator()].port, request, version)
        except (OSError, Closed, Silence) as error:
            raise NoAnswer(str(error)) from error

    def progress(self, limit_s: float = STEADY_S) -> None:
        """Until every partition was committed beyond where it stands now."""
        before = eventually(lambda: (self.committed(),), what="committed offsets")[0]

        def moved() -> bool:
            now = self.committed()
            return len(now) == len(self.places) and all(
                offset > before.get(partition, -1) for partition, offset in now.items()
            )

        eventually(moved, limit_s, what=f"commits of {self.group} go on")

    def _errors(self) -> str:
        return " ".join(
            path.read_text()[-300:] for path in sorted(self.cluster.folder.glob("member-*.err"))
        )

    # -- what happens beside -------------------------------------------------------------------

    def _write(self) -> None:
        producer: Any = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 2000,
            }
        )

        def done(error: Any, message: Any) -> None:
            if error is None:
                partition = place_of(message.topic(), message.partition())
                self.written[partition] = max(self.written.get(partition, -1), message.offset())

        number = 0
        while not self._stop.is_set():
            # Full, or a partition that it has not heard of yet.
            with contextlib.suppress(BufferError, KafkaException):
                place = self.places[number % len(self.places)]
                topic = f"{self.group}-topic-{place // PARTITIONS_OF_A_TOPIC}"
                partition = place % PARTITIONS_OF_A_TOPIC
                producer.produce(topic, b"%d" % number, partition=partition, on_delivery=done)
            number += 1
            producer.poll(0.005)
        producer.flush(60)

    def committed(self) -> dict[int, int]:
        """Offsets by partition.  Raises NoAnswer."""
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=None)
        group = self._ask_coordinator(OffsetFetchRequest(groups=[wanted]), 8).groups[0]
        if group.error_code:
            raise NoAnswer(f"error {group.error_code}")
        return {
            place_of(t.name, p.partition_index): p.committed_offset
            for t in group.topics
            for p in t.partitions
        }

    def _watch_offsets(self) -> None:
        """Committed offsets are never seen to go back."""
        highest: dict[int, int] = {}
        while not self._stop.wait(0.3):
            try:
                now = self.committed()
            except NoAnswer:
                continue  # the coordinator is on its way
            for partition, offset in now.items():
                if offset < highest.get(partition, -1):
                    self.regressions.append(f"{partition}: {highest[partition]} -> {offset}")
                highest[partition] = max(highest.get(partition, -1), offset)

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop writing, let the members read everything, and check."""
        self._stop.set()
        for thread in self._threads:
            thread.join(70)

        def all_read() -> bool:
            return not any(self.unread().values())

        try:
            eventually(all_read, STEADY_S, what="everything is read")
        except AssertionError:
            raise AssertionError(f"never read: {self.unread()}") from None
        self.check()

    def unread(self) -> dict[int, list[int]]:
        """Offsets of acknowledged records that no member has read."""
        missing = {}
        for partition, last in self.written.items():
            seen: set[int] = set()
            for member in self.all_members:
                seen |= member.read.get(partition, set())
            missing[partition] = sorted(set(range(last + 1)) - seen)[:5]
        return missing

    def check(self) -> None:
        assert not self.regressions, self.regressions
        self.check_ownership()
        told: dict[int, int] = {}
        for member in self.all_members:
            for partition, offset in member.committed.items():
                told[partition] = max(told.get(partition, -1), offset)
        (now,) = eventually(lambda: (self.committed(),), what="committed offsets")
        behind = {p: (offset, now.get(p)) for p, offset in told.items() if now.get(p, -1) < offset}
        assert not behind, f"acknowledged commits are gone: {behind}"

    def check_ownership(self) -> None:
        """No partition belonged to two working members at a time."""
        intervals = sorted(
            (i for member in self.all_members for i in member.intervals), key=lambda i: i.since
        )
        for place, one in enumerate(intervals):
            for other in intervals[place + 1 :]:
                if one.partition != other.partition or one.member == other.member:
                    continue
                end = one.until if one.until is not None else now_ms()
                assert end <= other.since + TOLERANCE_MS, f"two owners: {one} {other}"

    def close(self) -> None:
        self._stop.set()
        for member in self.all_members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.process.pid, signal.SIGCONT)
            member.process.kill()
            member.process.wait()
        for thread in self._threads:
            thread.join(5)  # before the brokers go


@contextlib.contextmanager
def party(make: Callable[..., BrokerCluster], library: str, **more: Any) -> Iterator[Party]:
    """Three brokers with replicated groups, and a party on them."""
    cluster = make(3, offsets_topic_replication_factor="3", min_insync_replicas="2")
    found = Party(cluster, library, **more)
    try:
        yield found
    finally:
        found.close()
