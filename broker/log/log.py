"""One partition's log: append, read, truncate, roll (reference: log-store 4, 6, 9; record-format 7).

A `Log` is synchronous and lives on the loop's thread: appends go to the page cache at once, whatever
waits for the device (fsync, checkpoints, removal of files) is handed to `LogContext.defer` as a plain
callable and runs through Threads.  An error of the disk takes the whole directory offline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from kafkalike.config import LogConfig
from kafkalike.runtime.ports import Buffer, FileRange
from kafkalike.types import TopicPartition

Origin = Literal["client", "coordinator", "replication"]


class FetchIsolation(Enum):
    """What a read may see."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


@dataclass(slots=True)
class LogAppendInfo:
    """What an append did.

    For a duplicate (idempotent producer) nothing was written and the offsets and timestamp are those
    of the original batch.  `needs_flush` tells that flush.messages is reached: whoever acknowledges
    awaits `LogManager.flush(log)` first.  Offsets are -1 when there was nothing to append.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    needs_flush: bool = False
    size: int = 0


class AbortedTransaction(NamedTuple):
    """A transaction that a read_committed consumer must skip."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchDataInfo:
    """What a read found.

    `records` is a FileRange into a segment (the last batch may be cut) or b"".  The range's file is
    not retained: it is good for this turn of the loop; retain it to queue it.
    `aborted_transactions` is None unless the isolation was TXN_COMMITTED.
    """

    fetch_offset: int
    records: FileRange | bytes
    aborted_transactions: list[AbortedTransaction] | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    log_end_offset: int = -1


class TimestampOffset(NamedTuple):
    """Answer of an offset lookup; all -1 when no record qualifies."""

    timestamp: int
    offset: int
    leader_epoch: int


class VerificationGuard:
    """Identity that ties a transaction check with the coordinator to one append (KIP-890)."""

    __slots__ = ()


class RangeSummary(NamedTuple):
    """What lies between two offsets: bytes on disk and the producers that wrote there."""

    size_bytes: int
    producer_ids: tuple[int, ...]


class Log:
    """The records of one partition.  Created and loaded by `LogManager`."""

    topic_partition: TopicPartition
    topic_id: bytes | None
    dir: str
    """The partition directory; `parent_dir` is the log directory that holds it."""
    parent_dir: str
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    is_future: bool

    @property
    def last_stable_offset(self) -> int:
        """min(high watermark, first offset of the oldest open or unreplicated transaction)."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        raise NotImplementedError

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch this log knows, None when it knows none."""
        raise NotImplementedError

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = "client",
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
        request_version: int = 11,
    ) -> LogAppendInfo:
        """Validate, stamp and append record batches; offsets are given from `log_end_offset`.

        A writable buffer is stamped in place; `records` is not kept.  Raises the KafkaError that
        fits (reference: record-format 7, 8); then nothing was appended.
        """
        raise NotImplementedError

    def append_as_follower(self, records: Buffer) -> LogAppendInfo:
        """Append what a leader sent, byte for byte; a trailing partial batch is dropped.

        Raises CorruptMessage, UnexpectedAppendOffset (below the log end) or OffsetsOutOfOrder.
        """
        raise NotImplementedError

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_message: bool = False,
    ) -> FetchDataInfo:
        """Bytes from the batch that holds `offset`.  Raises OffsetOutOfRange."""
        raise NotImplementedError

    def readable_bytes(self, offset: int, isolation: FetchIsolation) -> int:
        """Bytes from `offset` up to the bound of `isolation`, over segments; 0 when out of range."""
        raise NotImplementedError

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, bounded to [log start, log end]; returns what it became."""
        raise NotImplementedError

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start; True when it moved.  OffsetOutOfRange above the high watermark."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        """Remove whole batches so that the log ends at or below `offset`; True when bytes went."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start an empty log at `offset`."""
        raise NotImplementedError

    def summarize(self, first_offset: int, end_offset: int) -> RangeSummary:
        """Bytes and producer ids of the batches in [first, end): for reports, reads headers."""
        raise NotImplementedError

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that leader epoch `epoch` starts at `offset` (becoming leader)."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset), (-1, -1) undefined (reference: replication 9)."""
        raise NotImplementedError

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch in which the record at `offset` was written."""
        raise NotImplementedError

    def offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> TimestampOffset:
        """ListOffsets: -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, >= 0 lookup."""
        raise NotImplementedError

    def legacy_offsets_before(self, timestamp: int, max_count: int) -> list[int]:
        """ListOffsets v0: segment bases by time, newest first."""
        raise NotImplementedError

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int
    ) -> VerificationGuard | None:
        """A guard for the coming append, None when the transaction is already open here."""
        raise NotImplementedError

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open on this partition."""
        raise NotImplementedError

    def active_producers(self) -> "Sequence[ProducerSummary]":
        """For DescribeProducers."""
        raise NotImplementedError

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; returns how many segments went."""
        raise NotImplementedError

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for `expiration_ms`, never those in a transaction."""
        raise NotImplementedError

    def update_config(self, config: LogConfig) -> None:
        """Use new settings from now on."""
        raise NotImplementedError

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end."""
        raise NotImplementedError

    def flush(self) -> None:
        """Sync everything.  Blocks: tests and shutdown in Threads; else `LogManager.flush(log)`."""
        raise NotImplementedError

    def close(self) -> None:
        """Write closing index entries, trim indexes, let go of descriptors.  Does not sync."""
        raise NotImplementedError


class ProducerSummary(NamedTuple):
    """One producer as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
