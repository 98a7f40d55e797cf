"""What happened to the partitions of this broker, kept in files that are readable without a cluster.

Two files of JSON lines, each with one older generation beside it (`.1`), so that they are bounded:

- `kafkalike-journal.jsonl`: every decision of this broker's controller, every change of leadership or
  ISR on this broker, its starts and stops.  Written in batches through Threads; what cannot be written
  is counted and reported, and the broker goes on.
- `kafkalike-losses.jsonl`: every truncation below a high watermark that this replica had reached.
  Written before the records go, into the page cache, and synced soon after.

They lie in the first usable log directory, where Kafka's own broker leaves plain files alone, or in
`kafkalike.journal.dir`.  A line torn by a crash is skipped by readers; the next write starts a new one.

A line holds `time_ms`, `broker` (who wrote it), `kind` (the class of the record) and the record's
fields.  Records of one kind that differ in their partition only share a line: `columns` names what
differs and `rows` maps a topic to one row a partition.  `parse` undoes that.
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock, Disk, File, StorageError, Threads, Timer
from kafkalike.types import ReplicaAssignment, TopicPartition, uuid_to_text
from kafkalike.zk.znodes import PartitionState

JOURNAL: Final = "kafkalike-journal"
LOSSES: Final = "kafkalike-losses"
_SUFFIX: Final = ".jsonl"

FLUSH_DELAY_S: Final = 0.05
"""How long records wait for others to be written with."""
BATCH_RECORDS: Final = 5_000
PENDING_LIMIT: Final = 200_000
"""Records that wait for the disk; further ones are dropped and counted."""
LEDGER_BYTES: Final = 8 << 20
ROW_LIMIT: Final = 500
"""Rows of a line."""

_DOMAIN: Final = "kafkalike"

Entry = dict[str, Any]


def file_names(stem: str) -> tuple[str, str]:
    """The older generation and the present file of `JOURNAL` or `LOSSES`."""
    return f"{stem}.1{_SUFFIX}", f"{stem}{_SUFFIX}"


@dataclass(slots=True, frozen=True)
class BrokerStarted:
    """This broker serves; `clean` tells whether it had stopped in order before."""

    broker_epoch: int
    clean: bool


@dataclass(slots=True, frozen=True)
class LogIsShorter:
    """At its start a log of this broker ends below the high watermark that it had: records are lost.
    This broker is the whole ISR of `leader_epoch`, and says so when it registers (ADR 0008)."""

    partition: TopicPartition
    leader_epoch: int
    log_end_offset: int
    high_watermark: int


@dataclass(slots=True, frozen=True)
class BrokerStopped:
    """This broker stops in order: its listeners are closed."""


@dataclass(slots=True, frozen=True)
class RecordsDropped:
    """So many records of the journal did not reach the file."""

    count: int


# -- writing ---------------------------------------------------------------------------------------


class LineFile:
    """A file of lines that moves over to `<stem>.1.jsonl` when it is full, replacing that.

    Not safe for concurrent use.  Methods raise StorageError; the next `append` then opens anew.
    """

    def __init__(self, disk: Disk, directory: str, stem: str, max_bytes: int) -> None:
        """`max_bytes` bounds both generations together."""
        self._disk = disk
        self._older, self._path = (f"{directory}/{name}" for name in file_names(stem))
        self._directory = directory
        self._limit = max_bytes // 2
        self._file: File | None = None

    def append(self, lines: bytes) -> None:
        """Add whole lines, the last one ended too."""
        file = self._file
        if file is not None and file.size() + len(lines) > self._limit and file.size():
            self.close()
            self._disk.rename(self._path, self._older)
            file = None
        if file is None:
            file = self._open()
        try:
            file.append(lines)
        except StorageError:
            self.close()
            raise

    def _open(self) -> File:
        if not self._disk.is_dir(self._directory):
            self._disk.make_dirs(self._directory)
        file = self._file = self._disk.open(self._path, create=True)
        size = file.size()
        if size and file.pread(1, size - 1) != b"\n":
            file.append(b"\n")
        return file

    def sync(self) -> None:
        """Make it durable, the names too."""
        if self._file is not None:
            self._file.sync()
            self._disk.sync_dir(self._directory)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Journal:
    """The journal and the loss ledger of one broker.

    `note` and `lost` are what controller and replica manager are given.  Neither raises.
    """

    def __init__(
        self,
        broker_id: int,
        directory: str,
        *,
        disk: Disk,
        clock: Clock,
        threads: Threads,
        metrics: Metrics,
        logger: logging.Logger,
        max_bytes: int,
    ) -> None:
        """`max_bytes` bounds the journal's two files together; 0 keeps no journal, only losses."""
        self._broker_id = broker_id
        self._clock = clock
        self._threads = threads
        self._logger = logger
        self._enabled = max_bytes > 0
        self._lines = LineFile(disk, directory, JOURNAL, max_bytes)
        self._ledger = LineFile(disk, directory, LOSSES, LEDGER_BYTES)
        self._pending: deque[tuple[int, object]] = deque()
        self._timer: Timer | None = None
        self._writing: Deferred[None] | None = None
        self._dropped_now = 0
        self._failing = False
        self._stopping = False
        self._stopped = False
        self._written = metrics.counter(_DOMAIN, "Journal", "Records")
        self._dropped = metrics.counter(_DOMAIN, "Journal", "DroppedRecords")
        self._losses = metrics.counter(_DOMAIN, "LossLedger", "Losses")
        self._lost_offsets = metrics.counter(_DOMAIN, "LossLedger", "LostOffsets")
        self._lost_bytes = metrics.counter(_DOMAIN, "LossLedger", "LostBytes")
        self._unwritten = metrics.counter(_DOMAIN, "LossLedger", "UnwrittenLosses")

    # -- journal ---------------------------------------------------------------------------------

    def note(self, record: object) -> None:
        """Keep a record: a dataclass of `controller/journal.py`, of this file, or a StateChange."""
        if not self._enabled or self._stopped:
            return
        if len(self._pending) >= PENDING_LIMIT:
            self._drop(1)
            return
        self._pending.append((self._clock.now_ms(), record))
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._writing is None and not self._stopping:
            self._timer = self._clock.call_later(FLUSH_DELAY_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if not self._pending or self._writing is not None:
            return
        count = min(len(self._pending), BATCH_RECORDS)
        records = [self._pending.popleft() for _ in range(count)]
        dropped = self._dropped_now
        if dropped:
            records.append((self._clock.now_ms(), RecordsDropped(dropped)))
        self._writing = Deferred()
        self._threads.run(self._write, records).addBoth(self._settle, count, dropped)

    def _write(self, records: list[tuple[int, object]]) -> None:
        """Runs in Threads, one call at a time."""
        self._lines.append(encode(self._broker_id, records))

    def _settle(self, result: object, count: int, dropped: int) -> None:
        writing, self._writing = self._writing, None
        if isinstance(result, Failure):
            self._drop(count)
            if not self._failing:
                self._logger.error("journal is not written: %s", result.value)
            self._failing = True
        else:
            self._written.mark(count)
            self._dropped_now -= dropped
            if self._failing:
                self._logger.info("journal is written again")
            self._failing = False
        if self._pending:
            self._schedule()
        assert writing is not None
        writing.callback(None)

    def _drop(self, count: int) -> None:
        self._dropped.mark(count)
        self._dropped_now += count

    # -- ledger ----------------------------------------------------------------------------------

    def lost(self, loss: Any) -> None:
        """Keep a Loss (`replica/values.py`): it is in the page cache when this returns."""
        self._losses.mark()
        self._lost_offsets.mark(loss.end_offset - loss.first_offset)
        self._lost_bytes.mark(loss.bytes or 0)
        try:
            self._ledger.append(encode(self._broker_id, [(loss.time_ms, loss)]))
        except StorageError as error:
            self._unwritten.mark()
            self._logger.error("loss is not in the ledger: %s problem=%s", loss, error)
            return
        self._threads.run(self._ledger.sync).addErrback(self._ledger_not_synced)

    def _ledger_not_synced(self, failure: Failure) -> None:
        self._logger.error("loss ledger is not synced: %s", failure.value)

    # -- end -------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Write what waits, then close; later records are ignored."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending or self._writing is not None:
            self._flush()
            if self._writing is not None:
                await self._writing
        self._stopped = True
        self._lines.close()
        self._ledger.close()


# -- the form of a line ------------------------------------------------------------------------------

_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "PartitionMoved": (),
    "ReplicaMoved": ("broker_id",),
    "LeadershipChanged": ("new",),
    "AssignmentChanged": ("new",),
}
"""Kind -> fields of a row, for kinds that come by the thousand."""
_NOTHING_BEFORE: Final[dict[str, object]] = {
    "LeadershipChanged": None,
    "AssignmentChanged": ReplicaAssignment(()),
}
"""Of these kinds only what a controller finds when it takes office shares lines: its `old`."""
_UNCHANGED: Final = frozenset((int, str, bool, float, type(None)))


def encode(broker_id: int, records: Iterable[tuple[int, object]]) -> bytes:
    """Lines for (time in ms, record) pairs, in their order.

    What a controller sets its state machines to when it takes office is left out: it decides nothing.
    """
    return _Encoder(broker_id).encode(records)


class _Encoder:
    """One batch of records on its way to the file."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._lines: list[Entry] = []
        self._names: dict[type, tuple[str, ...]] = {}
        self._open: dict[tuple[object, ...], tuple[Entry, set[tuple[object, ...]]]] = {}
        """Shared lines by what their rows have in common, with the rows they hold."""

    def encode(self, records: Iterable[tuple[int, object]]) -> bytes:
        for time_ms, record in records:
            kind = type(record).__name__
            columns = _COLUMNS.get(kind)
            if columns is None:
                self._add(time_ms, kind, record)
                continue
            old = record.old  # type: ignore[attr-defined]
            if kind in _NOTHING_BEFORE:
                if old == _NOTHING_BEFORE[kind]:
                    self._add_row(time_ms, kind, record, columns)
                else:
                    self._add(time_ms, kind, record)
            elif not _is_first_status(record):
                self._add_row(time_ms, kind, record, columns)
        dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
        return "".join([dumps(line) + "\n" for line in self._lines]).encode()

    def _fields(self, record: object) -> tuple[str, ...]:
        names = self._names.get(type(record))
        if names is None:
            names = tuple(field.name for field in fields(record))  # type: ignore[arg-type]
            self._names[type(record)] = names
        return names

    def _add(self, time_ms: int, kind: str, record: object) -> None:
        """A line of its own; a partition becomes `topic` and `partition`, a `kind` `change`."""
        entry: Entry = {"time_ms": time_ms, "broker": self._broker_id, "kind": kind}
        for name in self._fields(record):
            value = getattr(record, name)
            if type(value) is TopicPartition:
                entry["topic"], entry["partition"] = value
            elif name == "kind":
                entry["change"] = value
            elif name != "time_ms":
                entry[name] = _plain(value)
        self._lines.append(entry)

    def _add_row(self, time_ms: int, kind: str, record: object, columns: tuple[str, ...]) -> None:
        """Put a record into the open line of its like, or begin one."""
        topic_partition: TopicPartition = record.partition  # type: ignore[attr-defined]
        own = tuple([getattr(record, name) for name in columns])
        shared = [
            getattr(record, name)
            for name in self._fields(record)
            if name != "partition" and name not in columns
        ]
        found = self._open.get((kind, *shared))
        if found is None or len(found[1]) >= ROW_LIMIT or (topic_partition, own) in found[1]:
            line: Entry = {"time_ms": time_ms, "broker": self._broker_id, "kind": kind}
            names = [n for n in self._fields(record) if n != "partition" and n not in columns]
            line.update(zip(names, map(_plain, shared), strict=True))
            line["columns"] = ["partition", *columns]
            line["rows"] = {}
            self._lines.append(line)
            found = self._open[(kind, *shared)] = (line, set())
        found[1].add((topic_partition, own))
        row = [topic_partition.partition, *map(_plain, own)]
        found[0]["rows"].setdefault(topic_partition.topic, []).append(row)


def _is_first_status(record: Any) -> bool:
    states: tuple[str, str, str] = (record.cause, record.old.name, record.new.name)
    return states == ("failover", "NON_EXISTENT", "ONLINE")


def _plain(value: object) -> Any:
    if type(value) in _UNCHANGED:
        return value
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, PartitionState):
        state = value.leader_and_isr
        plain = {
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "recovery_state": state.recovery_state,
            "partition_epoch": state.partition_epoch,
            "controller_epoch": value.controller_epoch,
        }
        if value.former is not None:
            plain["former_isr"] = [broker_id for broker_id, _ in value.former.epochs]
        return plain
    if isinstance(value, ReplicaAssignment):
        return {
            "replicas": list(value.replicas),
            "adding": list(value.adding),
            "removing": list(value.removing),
        }
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return uuid_to_text(value)
    return value


# -- reading ---------------------------------------------------------------------------------------


def parse(data: bytes) -> Iterator[Entry | None]:
    """The entries of a file in their order, one a record; None for each line that is none.

    Every entry has `time_ms`, `broker` and `kind`; those of a partition `topic` and `partition`.
    """
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            entry = json.loads(line)
            yield from _expanded(entry)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield None


def _expanded(entry: Any) -> list[Entry]:
    if not (
        isinstance(entry, dict)
        and isinstance(entry["time_ms"], int)
        and isinstance(entry["broker"], int)
        and isinstance(entry["kind"], str)
    ):
        raise ValueError("no entry of a journal")
    if "rows" not in entry:
        return [entry]
    columns, rows = entry.pop("columns"), entry.pop("rows")
    return [
        entry | {"topic": topic} | dict(zip(columns, row, strict=True))
        for topic, rows_of_topic in rows.items()
        for row in rows_of_topic
    ]
