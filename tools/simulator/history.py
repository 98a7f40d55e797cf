"""What clients of a simulated cluster saw: every request begun, and how it ended, in one order.

An operation is begun by `invoke` and ended once: OK (it happened), FAIL (it certainly did not), UNKNOWN
(nobody can say: no answer came).  What a client learns without asking is a `note`.  `what` is one of
the dataclasses below, or one of your own: checkers choose by type.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

from kafkalike.runtime.ports import Clock
from kafkalike.types import TopicPartition

T = TypeVar("T")

NO_OPERATION: Final = -1


class Phase(Enum):
    """Where in an operation's life an event stands."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(slots=True, frozen=True)
class Entry:
    """One line of the history.  `number` orders all events; `time_s` is virtual seconds."""

    number: int
    time_s: float
    client: str
    phase: Phase
    operation: int
    what: Any

    def __str__(self) -> str:
        operation = "" if self.operation == NO_OPERATION else f" #{self.operation}"
        return f"{self.time_s:10.4f} {self.client}{operation} {self.phase.value} {self.what}"


@dataclass(slots=True)
class Operation:
    """An `invoke` and its end; `end` is None while nothing came (counts as UNKNOWN)."""

    invoke: Entry
    end: Entry | None = None

    @property
    def client(self) -> str:
        return self.invoke.client

    @property
    def begun(self) -> int:
        """Number of the invoke event."""
        return self.invoke.number

    @property
    def ended(self) -> int:
        """Number of the ending event; beyond all events when there is none."""
        return self.end.number if self.end is not None else 1 << 60

    @property
    def phase(self) -> Phase:
        return self.end.phase if self.end is not None else Phase.UNKNOWN

    @property
    def is_ok(self) -> bool:
        return self.phase is Phase.OK


class History:
    """Events in the order in which they happened.  One for a whole run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._operations = 0
        self.entries: list[Entry] = []
        self._looked_up: dict[tuple[str, type], tuple[int, list[Any]]] = {}
        """What was found for a question, and how many entries there were."""

    def invoke(self, client: str, what: object) -> int:
        """Begin an operation; its number is for `ok`, `fail` or `unknown`."""
        self._operations += 1
        self._add(client, Phase.INVOKE, self._operations, what)
        return self._operations

    def ok(self, client: str, operation: int, what: object = None) -> None:
        """It happened; `what` is what was learned."""
        self._add(client, Phase.OK, operation, what)

    def fail(self, client: str, operation: int, what: object = None) -> None:
        """It certainly had no effect."""
        self._add(client, Phase.FAIL, operation, what)

    def unknown(self, client: str, operation: int, what: object = None) -> None:
        """It may have happened, or may still happen."""
        self._add(client, Phase.UNKNOWN, operation, what)

    def note(self, client: str, what: object) -> None:
        """Something a client learned."""
        self._add(client, Phase.NOTE, NO_OPERATION, what)

    def _add(self, client: str, phase: Phase, operation: int, what: object) -> None:
        entry = Entry(len(self.entries), self._clock.monotonic(), client, phase, operation, what)
        self.entries.append(entry)

    def operations(self, kind: type[T]) -> Iterator["tuple[Operation, T]"]:
        """Operations whose invoke carries a `kind`, in the order of their beginning."""
        return iter(self._look_up("operations", kind, self._operations_of))

    def notes(self, kind: type[T]) -> Iterator["tuple[Entry, T]"]:
        """Notes of one kind."""
        return iter(self._look_up("notes", kind, self._notes_of))

    def _look_up(
        self, question: str, kind: type, look: "Callable[[Any], Iterator[Any]]"
    ) -> "list[Any]":
        """Many checks ask the same of a history that is at its end."""
        count, found = self._looked_up.get((question, kind), (-1, []))
        if count != len(self.entries):
            found = list(look(kind))
            self._looked_up[question, kind] = (len(self.entries), found)
        return found

    def _operations_of(self, kind: type[T]) -> Iterator["tuple[Operation, T]"]:
        found: dict[int, Operation] = {}
        for entry in self.entries:
            if entry.phase is Phase.INVOKE:
                if isinstance(entry.what, kind):
                    found[entry.operation] = Operation(entry)
            elif entry.operation in found:
                found[entry.operation].end = entry
        for operation in found.values():
            yield operation, operation.invoke.what

    def _notes_of(self, kind: type[T]) -> Iterator["tuple[Entry, T]"]:
        for entry in self.entries:
            if entry.phase is Phase.NOTE and isinstance(entry.what, kind):
                yield entry, entry.what

    def __len__(self) -> int:
        return len(self.entries)


# -- producing -----------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Produce:
    """Values to append to a partition.  Values are never used twice within a run.

    `sequence` counts the operations of one idempotent producer and partition; -1 for a plain one.
    A plain producer's operation is one attempt; an idempotent one's lasts over all its attempts.
    """

    partition: TopicPartition
    values: tuple[bytes, ...]
    acks: int = -1
    sequence: int = -1

    @property
    def idempotent(self) -> bool:
        return self.sequence >= 0


@dataclass(slots=True, frozen=True)
class Produced:
    """Acknowledged by `broker` at these offsets; `base_offset` -1 when the broker did not say."""

    broker: int
    base_offset: int
    log_start_offset: int = -1


@dataclass(slots=True, frozen=True)
class SequenceRefused:
    """An idempotent producer was told that its next sequence does not follow (codes 45, 59)."""

    partition: TopicPartition
    broker: int
    error: str
    behind_s: float | None = None
    """When a newer batch without an answer was begun: a broker that has started since may remember
    that one only (the snapshot's format, as in Kafka)."""


@dataclass(slots=True, frozen=True)
class Slow:
    """An acknowledgement took longer than the producer was told to have patience for."""

    partition: TopicPartition
    broker: int
    seconds: float
    limit_s: float


# -- consuming -----------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Read:
    """One record as a consumer got it."""

    offset: int
    leader_epoch: int
    value: bytes


@dataclass(slots=True, frozen=True)
class Fetch:
    """A consumer asks `broker` for records from `offset`."""

    partition: TopicPartition
    broker: int
    offset: int


@dataclass(slots=True, frozen=True)
class Fetched:
    """The answer: high watermark, log start and records as they were sent.

    `leader_epoch`: the epoch the consumer asked with, -1 without one.  `from_follower`: not the leader
    answered (KIP-392).  `topic_id`: the topic's id as the consumer knew it.
    """

    partition: TopicPartition
    broker: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    records: tuple[Read, ...]
    from_follower: bool = False
    topic_id: bytes = b""


@dataclass(slots=True, frozen=True)
class ListOffset:
    """A client asks the leader for an end of the log: -1 the latest offset, -2 the earliest."""

    partition: TopicPartition
    timestamp: int


@dataclass(slots=True, frozen=True)
class ListedOffset:
    """The answer."""

    broker: int
    offset: int
    leader_epoch: int


@dataclass(slots=True, frozen=True)
class Truncated:
    """A consumer was told that records it had read are not in the log any more (KIP-320)."""

    partition: TopicPartition
    broker: int
    position: int
    end_offset: int


@dataclass(slots=True, frozen=True)
class OutOfRange:
    """A consumer's position was refused as out of range; it goes on at `reset_to` (-1: not known)."""

    partition: TopicPartition
    broker: int
    position: int
    reset_to: int = -1


@dataclass(slots=True, frozen=True)
class EpochIgnored:
    """A broker served a Fetch that named a leader epoch which nobody has heard of yet (KIP-320)."""

    partition: TopicPartition
    broker: int
    leader_epoch: int


@dataclass(slots=True, frozen=True)
class LeaderSeen:
    """Some broker named this leader, with its epoch, in a metadata answer."""

    partition: TopicPartition
    topic_id: bytes
    leader: int
    leader_epoch: int


# -- groups --------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Join:
    """A member asks to join, or to stay for the next generation."""

    group: str
    member_id: str


@dataclass(slots=True, frozen=True)
class Joined:
    """The answer to a Join: in which generation, who leads."""

    group: str
    member_id: str
    generation: int
    leader: str
    protocol: str
    members: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Sync:
    """A member asks for its assignment in a generation."""

    group: str
    member_id: str
    generation: int


@dataclass(slots=True, frozen=True)
class Assigned:
    """The answer to a Sync: what the member owns in this generation."""

    group: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A member says that it is alive in a generation."""

    group: str
    member_id: str
    generation: int


@dataclass(slots=True, frozen=True)
class Commit:
    """Offsets to keep for a group; generation -1 from outside a group."""

    group: str
    member_id: str
    generation: int
    offsets: tuple[tuple[TopicPartition, int], ...]


@dataclass(slots=True, frozen=True)
class AskCommitted:
    """A question for committed offsets."""

    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True, frozen=True)
class Committed:
    """The answer: offsets, -1 where there is none."""

    offsets: tuple[tuple[TopicPartition, int], ...]


# -- administration ------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class CreateTopic:
    topic: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, frozen=True)
class DeleteTopic:
    topic: str


@dataclass(slots=True, frozen=True)
class AddPartitions:
    topic: str
    count: int


@dataclass(slots=True, frozen=True)
class Reassign:
    """Move a partition to these replicas; empty cancels."""

    partition: TopicPartition
    replicas: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Elect:
    """Ask for an election: preferred or unclean."""

    partition: TopicPartition
    unclean: bool


@dataclass(slots=True, frozen=True)
class DeleteRecords:
    partition: TopicPartition
    before_offset: int


@dataclass(slots=True, frozen=True)
class DeletedRecords:
    low_watermark: int


@dataclass(slots=True, frozen=True)
class Refused:
    """An error as the broker named it."""

    error: str


@dataclass(slots=True, frozen=True)
class NoAnswer:
    """Why nothing is known: the connection ended, or time ran out."""

    reason: str


@dataclass(slots=True)
class Tally:
    """How often operations of each kind ended how: for reports, and to see that a run did something."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History) -> "Tally":
        tally = cls()
        for operation, what in history.operations(object):
            key = (type(what).__name__, operation.phase.value)
            tally.counts[key] = tally.counts.get(key, 0) + 1
        return tally

    def ok(self, kind: type) -> int:
        """Operations of this kind that ended OK."""
        return self.counts.get((kind.__name__, Phase.OK.value), 0)
