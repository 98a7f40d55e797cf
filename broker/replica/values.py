"""What callers hand to the replica manager and get back: appends, fetches, offsets.

Small slots objects, made once per request and partition; nothing in them outlives its request except
`FetchPartition`, which a fetch session keeps (reference: replication 7, 8, 11).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.errors import NONE
from kafkalike.runtime.ports import Buffer
from kafkalike.types import NO_EPOCH, ZERO_UUID, TopicPartition

from ..log.log import DeepResult, VerificationGuard

if TYPE_CHECKING:
    from .fetch_session import FetchSession
    from .partition import Partition

NO_OFFSET: Final = -1
CONSUMER: Final = -1
"""Replica id of ordinary consumers."""
DEBUGGING_CONSUMER: Final = -2
"""Replica id of a tool that may ask any replica."""
FUTURE_REPLICA: Final = -3
"""Replica id of the mover that fills a future log from the current one."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class AppendEntry(NamedTuple):
    """Records for one partition.  `records` is used during the call only and never kept."""

    topic_partition: TopicPartition
    records: Buffer
    verification: VerificationGuard | None = None
    """Proof that the coordinator knows the transaction (KIP-890), as the log's verify call gave it."""
    deep: DeepResult | None = None
    """What a look at the records off the loop found, where there was one."""


@dataclass(slots=True)
class AppendResult:
    """How one partition of a Produce ended.  Offsets are -1 where there is an error."""

    topic_partition: TopicPartition
    error_code: int = NONE
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    """(index in the batch, what is wrong) of each refused record."""
    leader_epoch: int = NO_EPOCH
    """The epoch in which the records were appended."""


@dataclass(slots=True)
class FetchParams:
    """What holds for all partitions of one Fetch.

    `max_bytes` and `min_bytes` are already limited by fetch.max.bytes and the quota; `rack_id` and
    `listener` matter to KIP-392 only.
    """

    version: int
    replica_id: int = CONSUMER
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = READ_UNCOMMITTED
    client_id: str = ""
    rack_id: str = ""
    listener: str = ""
    replica_epoch: int = -1

    @property
    def reads_committed(self) -> bool:
        """Bounded by the high watermark or below: everybody but replicas."""
        return self.replica_id < 0 and self.replica_id != FUTURE_REPLICA


class FetchPartition:
    """One partition that a Fetch asks for; inside a session it lives as long as the session.

    `error_code` is set by the handler for a partition it refuses (no permission, unknown id) before
    the read and is cleared on the next request.  The cached fields are what the session last
    answered, so that an incremental response can leave out what did not change.
    """

    __slots__ = (
        "cached_high_watermark",
        "cached_log_start_offset",
        "current_leader_epoch",
        "dirty",
        "error_code",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "session",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        fetch_offset: int,
        max_bytes: int,
        *,
        topic_id: bytes = ZERO_UUID,
        log_start_offset: int = NO_OFFSET,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.error_code = NONE
        self.cached_high_watermark = NO_OFFSET
        self.cached_log_start_offset = NO_OFFSET
        self.partition: "Partition | None" = None
        """The hosted partition that this entry watches."""
        self.session: "FetchSession | None" = None
        self.dirty = True
        """Whether the session must look at it."""

    def update(self, request: "FetchPartition") -> None:
        """Take over what a later request of the session says.

        In a new leader epoch everything is told again: the reader may have dropped an answer that
        reached it in between, as it belonged to its past role.
        """
        if request.current_leader_epoch != self.current_leader_epoch:
            self.cached_high_watermark = self.cached_log_start_offset = NO_OFFSET
        self.fetch_offset = request.fetch_offset
        self.log_start_offset = request.log_start_offset
        self.max_bytes = request.max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch

    def attach(self, partition: "Partition") -> None:
        """Watch a partition: it marks this entry dirty when it changes."""
        self.detach()
        self.partition = partition
        if partition.watchers is None:
            partition.watchers = {}
        partition.watchers[self] = None

    def detach(self) -> None:
        """Watch no more."""
        partition, self.partition = self.partition, None
        if partition is not None and partition.watchers is not None:
            partition.watchers.pop(self, None)
            if not partition.watchers:
                partition.watchers = None


class ListedOffset(NamedTuple):
    """Answer of ListOffsets for one partition; all -1 when no record qualifies."""

    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = NO_EPOCH


class EpochEndOffset(NamedTuple):
    """Answer of OffsetForLeaderEpoch: the largest epoch not above the one asked for, and its end."""

    leader_epoch: int = NO_EPOCH
    end_offset: int = NO_OFFSET


class DeleteRecordsResult(NamedTuple):
    """How DeleteRecords ended for one partition.

    The low watermark is -1 where there is an error, and the one before where time ran out.
    """

    low_watermark: int = NO_OFFSET
    error_code: int = NONE


class LogDirPartition(NamedTuple):
    """One log of DescribeLogDirs."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class LogDirDescription:
    """One directory of DescribeLogDirs; -1 bytes = unknown."""

    path: str
    error_code: int
    partitions: list[LogDirPartition]
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(slots=True, frozen=True)
class StateChange:
    """One change of leadership or ISR on this broker, for the journal.

    `kind` is one of "leader", "follower", "isr", "isr-proposed", "isr-refused", "stopped",
    "deleted", "offline", "closed" (the broker stops in order), and, around the removal of records at
    the end of the log, "truncating" and "truncated".
    """

    kind: str
    topic_partition: TopicPartition
    controller_epoch: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    high_watermark: int
    log_end_offset: int
    time_ms: int


@dataclass(slots=True, frozen=True)
class Loss:
    """Records that were once below the high watermark of this replica and are gone.

    Offsets are [first_offset, end_offset), the end being the high watermark; `bytes` is what these
    take on disk, `producer_ids` those whose batches are in the range (without -1).  The log ended at
    `log_end_offset`.  A replica that leads with a log which its start found too short does not know
    what was there: `bytes` is None, no producer is named.  After an unclean stop the replica knows
    a high watermark of up to replica.high.watermark.checkpoint.interval.ms before: records from
    there to the end of the log may have been acknowledged too.
    """

    topic_partition: TopicPartition
    old_leader_epoch: int
    new_leader_epoch: int
    first_offset: int
    end_offset: int
    bytes: int | None
    producer_ids: tuple[int, ...]
    time_ms: int
    log_end_offset: int = NO_OFFSET
