"""Did the cluster keep its word?  Reads every history and every replica of a chaos run.

`check(Evidence)` returns what is wrong, each with the rule it breaks:

lost          an acknowledged record is not at its offset, or another one is there
reordered     records of one producer and partition are not in the order they were sent in
duplicate     a record of an idempotent producer is there twice under one producer id and epoch (a
              client that has moved to a new leader while records were on their way to the dead one
              gives itself a new epoch, and what it sends again is new to the brokers)
invented      a record that nobody sent, or damaged bytes
differ        replicas are not equal byte for byte below the high watermark
leaders       two leaders of one partition in one epoch; a state that went back
watermark     a high watermark went back for a reader, or a reader's position was refused
read          somebody read what is not, or not any more, in the log
epochs        leader epochs in a log fall, or contradict the leader epoch file
producer      a producer broke, or ended with records that have no outcome
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.histories import lines_of, parse_value
from tests.chaos.logs import BadLog, Replica

EXAMPLES: Final = 5
"""Findings of one rule that are told one by one; the rest is counted."""


@dataclass(slots=True, frozen=True)
class Finding:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(slots=True, frozen=True)
class Leadership:
    """Somebody says that `leader` leads this partition in this epoch."""

    partition: int
    epoch: int
    leader: int
    source: str


@dataclass(slots=True)
class Evidence:
    topic: str
    producers: dict[str, Path] = field(default_factory=dict)
    """Producer -> history."""
    idempotent: set[str] = field(default_factory=set)
    reader: Path | None = None
    observer: Path | None = None
    replicas: dict[int, dict[int, Replica]] = field(default_factory=dict)
    """Partition -> broker -> its files; at least those of the present replicas."""
    high_watermarks: dict[int, int] = field(default_factory=dict)
    """Partition -> offset; what lies above it is not looked at."""
    leaderships: list[Leadership] = field(default_factory=list)
    """From the brokers' journals."""


@dataclass(slots=True)
class Outcomes:
    """What the check saw, for the summary."""

    findings: list[Finding]
    remarks: list[str] = field(default_factory=list)
    """What a client did against its own rules: no broker can make a call outlast its own time limit."""
    acknowledged: int = 0
    records: int = 0
    unacknowledged: int = 0
    """In the log, though the producer never heard so."""
    reads: int = 0
    epochs: int = 0


def check(evidence: Evidence) -> Outcomes:
    outcomes = Outcomes([])
    told: dict[str, int] = {}

    def tell(rule: str, text: str) -> None:
        told[rule] = told.get(rule, 0) + 1
        if told[rule] <= EXAMPLES:
            outcomes.findings.append(Finding(rule, text))

    logs: dict[int, dict[int, tuple[str, int, int]]] = {}
    for partition, replicas in sorted(evidence.replicas.items()):
        where = f"{evidence.topic}-{partition}"
        mark = evidence.high_watermarks.get(partition)
        if mark is None:
            tell("differ", f"{where}: nobody knows its high watermark")
            continue
        for rule, text in compare(where, replicas, mark):
            tell(rule, text)
        log, lives, problems = read_log(where, best_of(replicas, mark), mark)
        for rule, text in problems:
            tell(rule, text)
        logs[partition] = log
        outcomes.records += len(log)
        for rule, text in check_order(where, log, lives, evidence.idempotent):
            tell(rule, text)
    acknowledged: dict[int, set[int]] = {}
    for name, path in sorted(evidence.producers.items()):
        for rule, text in check_producer(name, path, logs, acknowledged, outcomes.remarks):
            tell(rule, text)
    outcomes.acknowledged = sum(len(offsets) for offsets in acknowledged.values())
    outcomes.unacknowledged = outcomes.records - sum(
        len(offsets & logs.get(partition, {}).keys()) for partition, offsets in acknowledged.items()
    )
    if evidence.reader is not None:
        marks = evidence.high_watermarks
        for rule, text in check_reader(evidence.reader, logs, marks, outcomes):
            tell(rule, text)
    leaderships = list(evidence.leaderships)
    if evidence.observer is not None:
        observed = list(lines_of(evidence.observer))
        leaderships += observed_leaders(observed)
        for rule, text in (*check_watermarks(observed), *check_states(observed)):
            tell(rule, text)
    outcomes.epochs = len({(one.partition, one.epoch) for one in leaderships})
    for rule, text in check_leaders(leaderships):
        tell(rule, text)
    for rule, count in told.items():
        if count > EXAMPLES:
            outcomes.findings.append(Finding(rule, f"... and {count - EXAMPLES} more"))
    return outcomes


Problems = Iterator[tuple[str, str]]


# -- logs ------------------------------------------------------------------------------------------


def compare(where: str, replicas: Mapping[int, Replica], mark: int) -> Problems:
    """Every replica holds the same bytes below `mark`."""
    ends: dict[int, int] = {}
    for broker, replica in sorted(replicas.items()):
        try:
            ends[broker] = end_below(replica, mark)
        except BadLog as error:
            yield "invented", f"{where} on broker {broker}: {error}"
            continue
        except Short as error:
            yield "lost", f"{where} on broker {broker} ends at {error} below {mark}"
    if not ends:
        return
    model = min(ends)
    expected = replicas[model].data[: ends[model]]
    for broker, end in ends.items():
        found = replicas[broker].data[:end]
        if found != expected:
            at = next(
                (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
                min(len(found), len(expected)),
            )
            yield (
                "differ",
                f"{where}: brokers {model} and {broker} differ from byte {at} on, "
                f"batch {_batch_at(replicas[model], at)} and {_batch_at(replicas[broker], at)}",
            )


def best_of(replicas: Mapping[int, Replica], mark: int) -> Replica:
    """The one to hold histories against: whole if there is such a one, for clear findings."""
    for _, replica in sorted(replicas.items()):
        try:
            end_below(replica, mark)
        except (Short, BadLog):
            continue
        return replica
    return replicas[min(replicas)]


class Short(Exception):
    """The log ends too early; the text says where."""


def end_below(replica: Replica, mark: int) -> int:
    """How many bytes the batches below the offset `mark` take.  Raises Short, BadLog."""
    end = reached = 0
    for batch in replica.batches():
        if batch.base_offset >= mark:
            break
        end, reached = batch.position + batch.size, batch.last_offset + 1
    if reached < mark:
        raise Short(str(reached))
    return end


def _batch_at(replica: Replica, position: int) -> str:
    try:
        for batch in replica.batches():
            if batch.position <= position < batch.position + batch.size:
                return f"offset {batch.base_offset} epoch {batch.leader_epoch}"
    except BadLog as error:
        return str(error)
    return "none"


def read_log(
    where: str, replica: Replica, mark: int
) -> tuple[dict[int, tuple[str, int, int]], dict[int, tuple[int, int]], list[tuple[str, str]]]:
    """Offset -> (producer, partition, sequence) below `mark`, offset -> (producer id, producer epoch),
    and what is wrong with them."""
    log: dict[int, tuple[str, int, int]] = {}
    lives: dict[int, tuple[int, int]] = {}
    problems: list[tuple[str, str]] = []
    epoch = -1
    epochs = dict(replica.epochs())
    try:
        for batch in replica.batches():
            if batch.base_offset >= mark:
                break
            at = f"{where} offset {batch.base_offset}"
            if batch.leader_epoch < epoch:
                problems.append(("epochs", f"{at}: epoch {batch.leader_epoch} follows {epoch}"))
            if batch.leader_epoch > epoch:
                start = epochs.get(batch.leader_epoch)
                if start is None or start > batch.base_offset:
                    text = f"the epoch file starts {batch.leader_epoch} at {start}"
                    problems.append(("epochs", f"{at}: {text}"))
            epoch = batch.leader_epoch
            for offset, value in replica.values(batch):
                found = parse_value(value)
                if found is None:
                    problems.append(("invented", f"{where} offset {offset}: {value[:60]!r}"))
                else:
                    log[offset] = found
                    lives[offset] = (batch.producer_id, batch.producer_epoch)
    except BadLog as error:
        problems.append(("invented", str(error)))
    return log, lives, problems


def check_order(
    where: str,
    log: Mapping[int, tuple[str, int, int]],
    lives: Mapping[int, tuple[int, int]],
    idempotent: Iterable[str],
) -> Problems:
    """Idempotent producers: each record once in a life of theirs, in order.  (Others, and the order
    from life to life: see `check_producer`.)"""
    careful = frozenset(idempotent)
    last: dict[tuple[str, tuple[int, int]], int] = {}
    for offset, (producer, _, sequence) in sorted(log.items()):
        if producer not in careful:
            continue
        life = (producer, lives[offset])
        before = last.get(life, -1)
        if sequence == before:
            yield "duplicate", f"{where} offset {offset}: {producer} {sequence} once more"
        elif sequence < before:
            yield "reordered", f"{where} offset {offset}: {producer} {sequence} after {before}"
        last[life] = max(before, sequence)


# -- producers and readers ---------------------------------------------------------------------------


def check_producer(
    name: str,
    path: Path,
    logs: Mapping[int, Mapping[int, tuple[str, int, int]]],
    acknowledged: dict[int, set[int]],
    remarks: list[str],
) -> Problems:
    """Every acknowledged record is where it was said to be, and they are in order."""
    newest: dict[int, tuple[int, int]] = {}
    acks: dict[int, list[tuple[int, int]]] = {}
    ended = False
    closing = None
    for kind, _, fields in lines_of(path):
        if kind == "A":
            partition, offset, sequence = map(int, fields[:3])
            acks.setdefault(partition, []).append((sequence, offset))
        elif kind == "X":
            yield "producer", f"{name}: {' '.join(fields)}"
            ended = True
        elif kind == "C":
            closing = f"{name} never came back from a close of at most {fields[0]} s"
        elif kind == "E":
            ended = True
    if not ended and closing is not None:
        remarks.append(closing)
    elif not ended:
        yield "producer", f"{name} did not end"
    for partition, pairs in sorted(acks.items()):
        log = logs.get(partition, {})
        taken = acknowledged.setdefault(partition, set())
        places: dict[tuple[str, int, int], int] = {}
        if any(offset < 0 for _, offset in pairs):
            places = {sent: offset for offset, sent in log.items()}
        for sequence, said in sorted(pairs):
            sent = (name, partition, sequence)
            # -1: a duplicate, of which the broker no longer knew where it is.
            offset = said if said >= 0 else places.get(sent, -1)
            at = f"{name} {sequence} acknowledged at {partition}/{said}"
            found = log.get(offset)
            if found != sent:
                there = "nothing" if found is None else "{0} {2}".format(*found)
                yield "lost", f"{at}: there is {there}"
            if offset in taken:
                yield "lost", f"{at}: so was another record"
            taken.add(offset)
            before = newest.get(partition)
            if before is not None and offset <= before[1]:
                yield "reordered", f"{at}, {before[0]} at {before[1]}"
            newest[partition] = (sequence, offset)


def check_reader(
    path: Path,
    logs: Mapping[int, Mapping[int, tuple[str, int, int]]],
    marks: Mapping[int, int],
    outcomes: Outcomes,
) -> Problems:
    """What was read is in the log, each offset once and in order, up to the end."""
    position: dict[int, int] = {}
    for kind, _, fields in lines_of(path):
        if kind == "O":
            yield "watermark", f"reader of partition {fields[0]} refused: {' '.join(fields[1:])}"
        if kind != "R":
            continue
        outcomes.reads += 1
        partition, offset, head = int(fields[0]), int(fields[1]), fields[2]
        expected = position.get(partition, 0)
        if offset != expected:
            yield "read", f"partition {partition}: offset {offset} where {expected} was next"
        position[partition] = offset + 1
        found = logs.get(partition, {}).get(offset)
        if found is None or "|".join(map(str, found)) != head:
            there = "nothing" if found is None else "|".join(map(str, found))
            yield "read", f"partition {partition} offset {offset}: read {head}, there is {there}"
    for partition, mark in marks.items():
        if position.get(partition, 0) < mark:
            yield (
                "read",
                f"partition {partition}: read to {position.get(partition, 0)} of {mark} only",
            )


# -- what was observed -------------------------------------------------------------------------------


def check_watermarks(observed: Iterable[tuple[str, float, list[str]]]) -> Problems:
    """Never lower than one that had been answered when this one was asked for."""
    known: dict[int, list[tuple[float, int]]] = {}
    for kind, at_s, fields in observed:
        if kind == "W":
            yield "watermark", f"reader at {fields[0]}/{fields[1]} refused by {fields[2]}"
        if kind != "H":
            continue
        broker, partition, epoch, offset = map(int, fields[:4])
        asked_s = float(fields[4])
        marks = known.setdefault(partition, [])
        highest = max((mark for answered_s, mark in marks if answered_s < asked_s), default=-1)
        if offset < highest:
            yield (
                "watermark",
                f"partition {partition}: broker {broker} in epoch {epoch} shows {offset} "
                f"at {at_s:.3f}, {highest} was shown before",
            )
        # Answers arrive within seconds: all but the newest collapse into their highest.
        marks.append((at_s, offset))
        if len(marks) > 200:
            older = marks[:100]
            top = max(mark for _, mark in older)
            marks[:100] = [(older[-1][0], top)]


def observed_leaders(observed: Iterable[tuple[str, float, list[str]]]) -> list[Leadership]:
    found: list[Leadership] = []
    for kind, _, fields in observed:
        if kind == "M":
            broker, partition, leader, epoch = map(int, fields[:4])
            found.append(Leadership(partition, epoch, leader, f"metadata of broker {broker}"))
        elif kind == "Z":
            partition, leader, epoch = map(int, fields[:3])
            found.append(Leadership(partition, epoch, leader, "ZooKeeper"))
    return found


def check_leaders(leaderships: Iterable[Leadership]) -> Problems:
    """At most one leader of a partition in an epoch, whoever says so."""
    known: dict[tuple[int, int], Leadership] = {}
    for one in leaderships:
        if one.leader < 0:
            continue
        before = known.setdefault((one.partition, one.epoch), one)
        if before.leader != one.leader:
            yield (
                "leaders",
                f"partition {one.partition} epoch {one.epoch}: {before.leader} ({before.source}), "
                f"{one.leader} ({one.source})",
            )


def check_states(observed: Iterable[tuple[str, float, list[str]]]) -> Problems:
    """Epochs of partitions and of the controller only grow in ZooKeeper."""
    epochs: dict[int, int] = {}
    controllers: dict[int, int] = {}
    last = -1
    for kind, _, fields in observed:
        if kind == "Z":
            partition, _, epoch = map(int, fields[:3])
            if epoch < epochs.get(partition, -1):
                yield "leaders", f"partition {partition}: epoch {epoch} after {epochs[partition]}"
            epochs[partition] = epoch
        elif kind == "C":
            broker, epoch = map(int, fields[:2])
            if epoch < last:
                yield "leaders", f"controller epoch {epoch} after {last}"
            last = epoch
            if controllers.setdefault(epoch, broker) != broker:
                yield "leaders", f"controller epoch {epoch}: {controllers[epoch]} and {broker}"


def journal_leaders(entries: Iterable[Any], topic: str) -> Iterator[Leadership]:
    """What brokers wrote down when they took or followed a leader."""
    for entry in entries:
        if entry is None or entry.get("topic") != topic or entry.get("kind") != "StateChange":
            continue
        if entry["change"] in ("leader", "follower"):
            yield Leadership(
                entry["partition"],
                entry["leader_epoch"],
                entry["leader"],
                f"journal of broker {entry['broker']}",
            )
