"""The journal and the loss ledger: what reaches the files, what a crash and a bad disk leave of it."""

import json
import logging
from typing import Any

from twisted.internet.defer import Deferred

from kafkalike.broker import journal as journals
from kafkalike.broker.journal import (
    BrokerStarted,
    Entry,
    Journal,
    LineFile,
    encode,
    file_names,
    parse,
)
from kafkalike.broker.replica.values import Loss, StateChange
from kafkalike.controller.journal import (
    AssignmentChanged,
    Elected,
    LeadershipChanged,
    PartitionMoved,
    ReplicaMoved,
    TopicForgotten,
)
from kafkalike.controller.status import PartitionStatus, ReplicaStatus
from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import StorageError
from kafkalike.tools.simulator.disk import MemoryDisk
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import PartitionState
from tests.fakes import START_MS, FakeClock, FakeRandom, InlineThreads, ManualThreads, result_of

TP = TopicPartition("t", 0)
DIR = "/logs"
JOURNAL_PATH = f"{DIR}/kafkalike-journal.jsonl"
LOSS_PATH = f"{DIR}/kafkalike-losses.jsonl"
LOSS = Loss(TP, 4, 5, 100, 120, 2048, (7, 9), START_MS, 130)


class World:
    def __init__(self, threads: Any = None, max_bytes: int = 1 << 20) -> None:
        self.clock = FakeClock()
        self.disk = MemoryDisk(self.clock.now_ms)
        self.disk.make_dirs(DIR)
        self.disk.sync_dir("/")
        self.metrics = Metrics()
        self.threads: Any = threads or InlineThreads()
        self.max_bytes = max_bytes
        self.journal = self.make()

    def make(self) -> Journal:
        return Journal(
            3,
            DIR,
            disk=self.disk,
            clock=self.clock,
            threads=self.threads,
            metrics=self.metrics,
            logger=logging.getLogger("test"),
            max_bytes=self.max_bytes,
        )

    def entries(self, path: str = JOURNAL_PATH) -> list[Entry]:
        return [entry for entry in parse(self.disk.read_file(path)) if entry is not None]

    def metric(self, type_: str, name: str) -> float:
        return self.metrics.value("kafkalike", type_, name)


def state(leader: int, epoch: int, isr: tuple[int, ...], version: int) -> PartitionState:
    return PartitionState(LeaderAndIsr(leader, epoch, isr, partition_epoch=version), 8)


def decoded(*records: object) -> list[Entry | None]:
    return list(parse(encode(3, [(START_MS, record) for record in records])))


def test_a_record_is_told_with_its_time_and_its_writer() -> None:
    (entry,) = decoded(Elected("election", 3, 8, 7))
    assert entry == {
        "time_ms": START_MS,
        "broker": 3,
        "kind": "Elected",
        "cause": "election",
        "controller_id": 3,
        "controller_epoch": 8,
        "epoch_zk_version": 7,
    }


def test_a_leadership_change_names_both_states() -> None:
    (entry,) = decoded(
        LeadershipChanged(
            "BrokerChange", 8, TP, state(1, 4, (1, 2), 6), state(2, 5, (2,), 7), unclean=True
        )
    )
    assert entry is not None
    assert (entry["topic"], entry["partition"], entry["unclean"]) == ("t", 0, True)
    assert entry["old"]["isr"] == [1, 2]
    assert entry["new"] == {
        "leader": 2,
        "leader_epoch": 5,
        "isr": [2],
        "recovery_state": 0,
        "partition_epoch": 7,
        "controller_epoch": 8,
    }


def test_other_records_of_controller_and_broker() -> None:
    change = StateChange("isr", TP, 8, 1, 4, 6, (1, 2), 90, 100, START_MS + 5)
    forgotten, moved, told = decoded(
        TopicForgotten("TopicDeletion", 8, "t", bytes(16)),
        AssignmentChanged(
            "reassign", 8, TP, ReplicaAssignment((1,)), ReplicaAssignment((2, 1), (2,), (1,))
        ),
        change,
    )
    assert forgotten is not None and forgotten["topic"] == "t"
    assert forgotten["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert moved is not None
    assert moved["new"] == {"replicas": [2, 1], "adding": [2], "removing": [1]}
    assert told is not None
    assert (told["kind"], told["change"], told["isr"]) == ("StateChange", "isr", [1, 2])
    assert told["high_watermark"] == 90


def test_what_a_new_controller_finds_shares_lines() -> None:
    records: list[object] = []
    for number in range(1200):
        tp = TopicPartition("many", number)
        records.append(LeadershipChanged("failover", 8, tp, None, state(1, 0, (1,), 0)))
        records.append(
            PartitionMoved("failover", 8, tp, PartitionStatus.NON_EXISTENT, PartitionStatus.OFFLINE)
        )
        records.extend(
            ReplicaMoved(
                "failover", 8, tp, broker, ReplicaStatus.NON_EXISTENT, ReplicaStatus.OFFLINE
            )
            for broker in (1, 2)
        )
    data = encode(3, [(START_MS, record) for record in records])
    assert data.count(b"\n") == 3 + 3 + 5, "500 rows a line"
    entries = [entry for entry in parse(data) if entry is not None]
    assert len(entries) == len(records)
    replicas = [e for e in entries if e["kind"] == "ReplicaMoved" and e["partition"] == 1199]
    assert [(e["broker_id"], e["old"], e["new"]) for e in replicas] == [
        (1, "NON_EXISTENT", "OFFLINE"),
        (2, "NON_EXISTENT", "OFFLINE"),
    ]
    found = next(e for e in entries if e["kind"] == "LeadershipChanged" and e["partition"] == 7)
    assert found["old"] is None and found["new"]["leader"] == 1


def test_what_a_new_controller_sets_its_machines_to_is_no_decision() -> None:
    status = (PartitionStatus.NON_EXISTENT, PartitionStatus.ONLINE)
    replica = (ReplicaStatus.NON_EXISTENT, ReplicaStatus.ONLINE)
    assert decoded(PartitionMoved("failover", 8, TP, *status)) == []
    assert decoded(ReplicaMoved("failover", 8, TP, 1, *replica)) == []
    assert len(decoded(PartitionMoved("TopicChange", 8, TP, *status))) == 1
    assert len(decoded(ReplicaMoved("TopicChange", 8, TP, 1, *replica))) == 1


def test_a_replica_that_moves_to_and_fro_keeps_its_order() -> None:
    there = ReplicaMoved("x", 8, TP, 1, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE)
    back = ReplicaMoved("x", 8, TP, 1, ReplicaStatus.OFFLINE, ReplicaStatus.ONLINE)
    entries = decoded(there, back, there)
    assert [entry["new"] for entry in entries if entry] == ["OFFLINE", "ONLINE", "OFFLINE"]


def test_records_are_written_together_after_a_moment() -> None:
    world = World(ManualThreads())
    for epoch in range(3):
        world.journal.note(BrokerStarted(epoch, clean=True))
    assert not world.threads.waiting, "the loop has not been held up"
    world.clock.advance(journals.FLUSH_DELAY_S)
    assert len(world.threads.waiting) == 1
    world.journal.note(BrokerStarted(3, clean=False))
    world.clock.advance(1)
    assert len(world.threads.waiting) == 1, "one write at a time"
    world.threads.step()
    world.clock.advance(1)
    world.threads.step()
    assert [entry["broker_epoch"] for entry in world.entries()] == [0, 1, 2, 3]
    assert world.metric("Journal", "Records") == 4


def test_stop_writes_what_waits_and_closes() -> None:
    world = World(ManualThreads())
    world.journal.note(BrokerStarted(1, clean=True))
    world.clock.advance(1)
    world.journal.note(BrokerStarted(2, clean=True))
    stopped = Deferred.fromCoroutine(world.journal.stop())
    world.threads.run_all()
    result_of(stopped)
    assert [entry["broker_epoch"] for entry in world.entries()] == [1, 2]
    assert world.disk.open_files == 0
    world.journal.note(BrokerStarted(3, clean=True))
    assert world.clock.pending() == 0


def test_a_bad_disk_costs_records_and_is_told_once_it_works() -> None:
    world = World()

    def refuse(operation: str, path: str) -> None:
        if operation in ("append", "open"):
            raise StorageError(f"{path}: No space left on device")

    world.journal.note(BrokerStarted(1, clean=True))
    world.clock.advance(1)
    world.disk.before = refuse
    for epoch in (2, 3):
        world.journal.note(BrokerStarted(epoch, clean=True))
        world.clock.advance(1)
    world.disk.before = None
    world.journal.note(BrokerStarted(4, clean=True))
    world.clock.advance(1)
    assert world.metric("Journal", "DroppedRecords") == 2
    assert [entry.get("broker_epoch", entry.get("count")) for entry in world.entries()] == [1, 4, 2]
    result_of(Deferred.fromCoroutine(world.journal.stop()))
    assert world.disk.open_files == 0


def test_records_beyond_the_bound_are_dropped_and_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(journals, "PENDING_LIMIT", 10)
    world = World(ManualThreads())
    for epoch in range(15):
        world.journal.note(BrokerStarted(epoch, clean=True))
    world.clock.advance(1)
    world.threads.run_all()
    assert world.metric("Journal", "DroppedRecords") == 5
    assert world.entries()[-1]["kind"] == "RecordsDropped"
    assert world.entries()[-1]["count"] == 5


def test_a_line_torn_by_a_crash_is_skipped() -> None:
    world = World()
    world.journal.note(BrokerStarted(1, clean=True))
    world.clock.advance(1)
    file = world.disk.open(JOURNAL_PATH)
    file.append(b'{"time_ms":17000000000')
    file.close()
    world.disk.kill()
    world.journal = world.make()
    world.journal.note(BrokerStarted(2, clean=False))
    world.clock.advance(1)
    entries = list(parse(world.disk.read_file(JOURNAL_PATH)))
    assert [entry and entry["broker_epoch"] for entry in entries] == [1, None, 2]


def test_lines_that_are_no_entries_do_not_stop_the_reader() -> None:
    good = encode(3, [(START_MS, BrokerStarted(1, clean=True))])
    rows = {
        "time_ms": 1,
        "broker": 1,
        "kind": "x",
        "columns": ["partition"],
        "rows": {"t": [[1, 2]]},
    }
    bad = [b"[]", b"17", b'{"time_ms":1}', b"\xff\xfe", json.dumps(rows).encode(), b"[" * 100_000]
    entries = list(parse(b"\n".join([*bad, good])))
    assert [entry is not None for entry in entries] == [False] * len(bad) + [True]


def test_both_generations_together_stay_in_the_bound() -> None:
    world = World(max_bytes=4000)
    for epoch in range(200):
        world.journal.note(BrokerStarted(epoch, clean=True))
        world.clock.advance(1)
    sizes = [world.disk.size(f"{DIR}/{name}") for name in file_names(journals.JOURNAL)]
    assert sum(sizes) <= 4000
    older, present = file_names(journals.JOURNAL)
    epochs = [
        entry["broker_epoch"]
        for name in (older, present)
        for entry in world.entries(f"{DIR}/{name}")
    ]
    assert epochs == list(range(epochs[0], 200)), "the newest ones, without a gap"
    assert len(epochs) > 30


def test_without_bytes_there_is_no_journal_but_losses_are_kept() -> None:
    world = World(max_bytes=0)
    world.journal.note(BrokerStarted(1, clean=True))
    world.journal.lost(LOSS)
    world.clock.advance(1)
    assert not world.disk.exists(JOURNAL_PATH)
    assert len(world.entries(LOSS_PATH)) == 1


def test_a_loss_is_in_the_file_before_the_records_go_and_survives_power_loss() -> None:
    world = World(ManualThreads())
    world.journal.lost(LOSS)
    (entry,) = world.entries(LOSS_PATH)
    assert entry == {
        "time_ms": START_MS,
        "broker": 3,
        "kind": "Loss",
        "topic": "t",
        "partition": 0,
        "old_leader_epoch": 4,
        "new_leader_epoch": 5,
        "first_offset": 100,
        "end_offset": 120,
        "bytes": 2048,
        "producer_ids": [7, 9],
        "log_end_offset": 130,
    }
    world.threads.run_all()
    world.disk.crash(FakeRandom(1))
    assert len(world.entries(LOSS_PATH)) == 1
    assert world.metric("LossLedger", "Losses") == 1
    assert world.metric("LossLedger", "LostOffsets") == 20
    assert world.metric("LossLedger", "LostBytes") == 2048


def test_a_loss_that_cannot_be_written_is_counted_and_does_not_stop_the_broker() -> None:
    world = World()

    def refuse(operation: str, path: str) -> None:
        raise StorageError(f"{path}: Input/output error")

    world.disk.before = refuse
    world.journal.lost(LOSS)
    assert world.metric("LossLedger", "UnwrittenLosses") == 1
    world.disk.before = None
    world.journal.lost(LOSS)
    assert len(world.entries(LOSS_PATH)) == 1


def test_a_directory_that_is_missing_is_made() -> None:
    disk = MemoryDisk()
    lines = LineFile(disk, "/elsewhere/journal", journals.JOURNAL, 1000)
    lines.append(b"{}\n")
    lines.sync()
    assert disk.list("/elsewhere/journal") == ["kafkalike-journal.jsonl"]
