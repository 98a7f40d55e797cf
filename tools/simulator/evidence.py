"""What is there when a run has ended: the history, the disks, the znodes and how they came about.

Checkers judge from this alone.  Nothing in here uses the broker's own code to read a log directory or
a znode: segments are walked batch by batch, payloads are plain JSON.
"""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kafkalike.records.scan import iterate_batches
from kafkalike.types import TopicPartition
from kafkalike.zk.server.model import NodeCreated, NodeDataSet, NodeDeleted, Txn

from .history import DeleteRecords, DeleteTopic, History

if TYPE_CHECKING:
    from .world import World

_SEGMENT: Final = re.compile(r"^(.*)/([^/]+)-(\d+)/(\d{20})\.log$")
_STATE: Final = re.compile(r"^/brokers/topics/([^/]+)/partitions/(\d+)/state$")
BROKER: Final = "/brokers/ids/"
_LEDGER: Final = re.compile(r"/kafkalike-losses(\.1)?\.jsonl$")
_ID: Final = re.compile(r"topic_id: *(\S+)")
CONTROLLER_EPOCH: Final = "/controller_epoch"


@dataclass(slots=True, frozen=True)
class StoredBatch:
    """One batch on a disk, with its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    intact: bool
    data: bytes
    records: tuple[tuple[int, bytes], ...]
    """(offset, value) of each data record."""


@dataclass
class ReplicaLog:
    """A partition's directory on one broker's disk."""

    broker: int
    partition: TopicPartition
    path: str
    topic_id: bytes | None = None
    batches: list[StoredBatch] = field(default_factory=list)
    trailing: int = 0
    """Bytes at the end of segments that are no whole batch."""

    @property
    def start(self) -> int | None:
        """First offset on the disk, None when there is no record."""
        return self.batches[0].base_offset if self.batches else None

    @property
    def end(self) -> int:
        """Offset of the next record; 0 for an empty log."""
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @cached_property
    def values(self) -> dict[int, bytes]:
        """Values of data records by offset."""
        return {offset: value for batch in self.batches for offset, value in batch.records}


@dataclass(slots=True, frozen=True)
class StateWrite:
    """A partition's state as it was written to the coordination service."""

    time_ms: int
    partition: TopicPartition
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int
    epoch_then: int
    """What /controller_epoch held just then; -1 when it was not there."""
    former: tuple[int, ...] = ()
    """Who left the ISR last and may lead when the one that is left has lost records (ADR 0008)."""


@dataclass(slots=True, frozen=True)
class LedgerEntry:
    """A loss that a broker admits: offsets [first_offset, end_offset) of a partition."""

    broker: int
    partition: TopicPartition
    first_offset: int
    end_offset: int
    time_ms: int


@dataclass
class Evidence:
    """`disks`: files by path for each broker; `znodes`: data by path; `znode_log`: every change."""

    history: History
    disks: Mapping[int, Mapping[str, bytes]] = field(default_factory=dict)
    znodes: Mapping[str, bytes | None] = field(default_factory=dict)
    znode_log: Sequence[Txn] = ()
    power_losses: Sequence[int] = ()
    """Brokers whose machines lost power, perhaps with records that nobody else has: members of an ISR
    at a moment that Kafka cannot bear."""
    harmless_power_losses: Sequence[int] = ()
    """Brokers whose machines lost power while others in the ISR had all that they had."""
    start_ms: int = 0
    """Wall-clock time of virtual second 0."""

    @property
    def all_power_losses(self) -> set[int]:
        """Brokers whose machines lost power, whatever that could cost."""
        return {*self.power_losses, *self.harmless_power_losses}

    @cached_property
    def registrations(self) -> Mapping[int, Sequence[int]]:
        """When each broker registered, in virtual milliseconds, ascending."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for txn in self.znode_log:
            for change in txn.changes:
                if isinstance(change, NodeCreated) and change.path.startswith(BROKER):
                    broker = int(change.path.removeprefix(BROKER))
                    found[broker].append(txn.time_ms - self.start_ms)
        return found

    # -- znodes ----------------------------------------------------------------------------------

    def json(self, path: str) -> Any:
        """A znode's payload; None when it is not there or empty."""
        data = self.znodes.get(path)
        return None if not data else json.loads(data)

    def children(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(
            name[len(prefix) :]
            for name in self.znodes
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def assignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Replicas of every partition, as the coordination service has them in the end."""
        found = {}
        for topic in self.children("/brokers/topics"):
            for number, replicas in (
                (self.json(f"/brokers/topics/{topic}") or {}).get("partitions", {}).items()
            ):
                found[TopicPartition(topic, int(number))] = tuple(replicas)
        return found

    def topic_id(self, topic: str) -> bytes | None:
        text = (self.json(f"/brokers/topics/{topic}") or {}).get("topic_id")
        return None if text is None else decode_id(text)

    def topic_config(self, topic: str) -> dict[str, str]:
        return dict((self.json(f"/config/topics/{topic}") or {}).get("config", {}))

    def leader(self, partition: TopicPartition) -> int:
        """The last leader on record, -1 when there is none."""
        state = self.json(
            f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"
        )
        return -1 if state is None else int(state["leader"])

    def state_writes(self) -> Iterator[StateWrite]:
        """Every state of every partition that was ever written, in order."""
        epoch = -1
        for txn in self.znode_log:
            for change in txn.changes:
                if not isinstance(change, (NodeCreated, NodeDataSet)):
                    continue
                if change.path == CONTROLLER_EPOCH and change.data:
                    epoch = int(change.data)
                found = _STATE.match(change.path)
                if found is None or not change.data:
                    continue
                state = json.loads(change.data)
                yield StateWrite(
                    txn.time_ms,
                    TopicPartition(found[1], int(found[2])),
                    int(state["controller_epoch"]),
                    int(state["leader"]),
                    int(state["leader_epoch"]),
                    tuple(state["isr"]),
                    int(state.get("leader_recovery_state", 0)),
                    epoch,
                    tuple(int(broker) for broker in state.get("kafkalike_former_isr", ())),
                )

    @cached_property
    def deleted_topics(self) -> set[str]:
        """Topics whose znode was taken away at some time."""
        prefix = "/brokers/topics/"
        return {
            change.path[len(prefix) :]
            for txn in self.znode_log
            for change in txn.changes
            if isinstance(change, NodeDeleted)
            and change.path.startswith(prefix)
            and "/" not in change.path[len(prefix) :]
        }

    @cached_property
    def trimmed(self) -> set[TopicPartition]:
        """Partitions whose records somebody asked to delete from the front."""
        return {what.partition for _, what in self.history.operations(DeleteRecords)}

    @cached_property
    def unsteady_topics(self) -> set[str]:
        """Topics that somebody asked to delete, or that were: their records may go at any time."""
        asked = {what.topic for _, what in self.history.operations(DeleteTopic)}
        return asked | self.deleted_topics

    # -- disks -----------------------------------------------------------------------------------

    @cached_property
    def logs(self) -> dict[tuple[int, TopicPartition], ReplicaLog]:
        """The log of each partition directory, by broker and partition.

        Directories on their way out (`-delete`, `-stray`, `-future`) are not looked at.
        """
        known: dict[bytes, StoredBatch] = {}
        return {
            (broker, log.partition): log
            for broker, files in sorted(self.disks.items())
            for log in read_logs(broker, files, known)
        }

    def final_log(self, partition: TopicPartition) -> ReplicaLog | None:
        """The log of the partition's last leader; None when it has none."""
        return self.logs.get((self.leader(partition), partition))

    @cached_property
    def uncleanly_led(self) -> set[TopicPartition]:
        """Partitions whose leader was once not of the ISR before."""
        found = set()
        last: dict[TopicPartition, StateWrite] = {}
        for write in self.state_writes():
            before = last.get(write.partition)
            last[write.partition] = write
            if before is not None and write.leader >= 0 and write.leader not in before.isr:
                found.add(write.partition)
        return found

    def may_be_lost(self, entry: LedgerEntry) -> bool:
        """Whether something happened to the partition that Kafka cannot bear either."""
        replicas = {*self.assignment().get(entry.partition, ()), entry.broker}
        for write in self.state_writes():  # those too that have been replaced since
            if write.partition == entry.partition:
                replicas.update(write.isr)
        return (
            entry.partition in self.uncleanly_led
            or entry.partition.topic in self.unsteady_topics
            or bool(replicas & set(self.power_losses))
        )

    @cached_property
    def ledger(self) -> list[LedgerEntry]:
        """Every loss by truncation that any broker wrote down.

        Not those by a broker that had lost power while others had all that it had: it tells of what it
        had lost itself, and of what a damaged batch claimed to be.  Nothing may be missing for that.

        What a leader found missing at its start is not among them: that it had lost something says
        nothing about why it was elected all the same.
        """
        found = []
        for broker, files in sorted(self.disks.items()):
            for path, data in sorted(files.items()):
                if _LEDGER.search(path):
                    found += [
                        _ledger_entry(broker, line)
                        for line in _lines(data)
                        if line.get("bytes", 0) is not None
                    ]
        harmless = set(self.harmless_power_losses)
        return [e for e in found if e.broker not in harmless or self.may_be_lost(e)]

    def ledger_of(self, partition: TopicPartition) -> list[LedgerEntry]:
        """Losses of one partition."""
        return [entry for entry in self.ledger if entry.partition == partition]

    def lost(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the ledger names this offset."""
        return any(
            entry.first_offset <= offset < entry.end_offset for entry in self.ledger_of(partition)
        )


def read_logs(
    broker: int, files: Mapping[str, bytes], known: dict[bytes, StoredBatch] | None = None
) -> list[ReplicaLog]:
    """The logs in one broker's files.  `known`: batches that were read before, by their bytes, as
    replicas hold the same ones."""
    known = {} if known is None else known
    found: dict[str, ReplicaLog] = {}
    for path, data in sorted(files.items()):
        match = _SEGMENT.match(path)
        if match is None:
            continue
        directory = path.rpartition("/")[0]
        log = found.get(directory)
        if log is None:
            partition = TopicPartition(match[2], int(match[3]))
            log = found[directory] = ReplicaLog(broker, partition, directory)
            log.topic_id = _read_id(files.get(f"{directory}/partition.metadata"))
        end = 0
        for batch in iterate_batches(data, 0, len(data)):
            content = bytes(batch.view())
            stored = known.get(content)
            if stored is None:
                stored = known[content] = _stored(batch, content)
            log.batches.append(stored)
            end += batch.size
        log.trailing += len(data) - end
    return list(found.values())


def _stored(batch: Any, content: bytes) -> StoredBatch:
    """Format 2 only: simulated clients write no other."""
    intact = batch.crc_is_valid()
    records: tuple[tuple[int, bytes], ...] = ()
    if intact and not batch.is_control:
        records = tuple((record.offset, record.value or b"") for record in batch.records())
    return StoredBatch(
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_control,
        intact,
        content,
        records,
    )


def _read_id(data: bytes | None) -> bytes | None:
    found = None if data is None else _ID.search(data.decode("utf-8", "replace"))
    return None if found is None else decode_id(found[1])


def decode_id(text: str) -> bytes:
    """A topic id as ZooKeeper and `partition.metadata` have it."""
    return base64.urlsafe_b64decode(text + "==")


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue  # empty, or torn by a crash
        if isinstance(value, dict) and value.get("kind") == "Loss":
            yield value


def _ledger_entry(broker: int, line: Mapping[str, Any]) -> LedgerEntry:
    """Up to the end of the log: a high watermark known late hides that more was acknowledged."""
    return LedgerEntry(
        broker,
        TopicPartition(line["topic"], line["partition"]),
        line["first_offset"],
        max(line["end_offset"], line["log_end_offset"]),
        line["time_ms"],
    )


class ZnodeLog:
    """Keeps every transaction of a world's coordination service."""

    def __init__(self, world: "World") -> None:
        self.txns: list[Txn] = []
        tree = world.zk.tree
        before = tree.journal

        def journal(txn: Txn) -> None:
            if txn.changes:
                self.txns.append(txn)
            if before is not None:
                before(txn)

        tree.journal = journal


def collect(
    world: "World",
    history: History,
    znode_log: ZnodeLog,
    power_losses: Sequence[int] = (),
    harmless_power_losses: Sequence[int] = (),
) -> Evidence:
    """The evidence of a world that has come to rest."""
    return Evidence(
        history,
        {broker.id: broker.disk.dump() for broker in world.brokers.values()},
        {path: node.data for path, node in world.zk.tree.nodes.items()},
        znode_log.txns,
        power_losses,
        harmless_power_losses,
        world.clock.now_ms() - int(world.clock.now_s * 1000),
    )
