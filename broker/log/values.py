"""What a log is asked with and answers: isolation, results of appends and reads."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from kafkalike.runtime.ports import FileRange

Origin: TypeAlias = Literal["client", "coordinator", "replication"]


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
    `aborted_transactions` is None unless the isolation was TXN_COMMITTED.  `first_batch_is_cut` tells
    that not even the first batch fits, which only happens without `min_one_message`.
    """

    fetch_offset: int
    records: FileRange | bytes
    aborted_transactions: list[AbortedTransaction] | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    log_end_offset: int = -1
    first_batch_is_cut: bool = False


class TimestampOffset(NamedTuple):
    """Answer of an offset lookup; all -1 when no record qualifies."""

    timestamp: int
    offset: int
    leader_epoch: int


class RangeSummary(NamedTuple):
    """What lies between two offsets: bytes on disk and the producers that wrote there."""

    size_bytes: int
    producer_ids: tuple[int, ...]


class ProducerSummary(NamedTuple):
    """One producer as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class UnexpectedAppendOffset(Exception):
    """A follower got records from below its log end: its state is not what its leader assumes."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrder(Exception):
    """A follower got batches whose offsets do not increase."""
