"""Reads for Fetch: sizes, errors, divergence, what a waiting request is waiting for.

Reference: replication 8, 10.  Errors of one partition never disturb the others.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kafkalike.errors import (
    NONE,
    InconsistentTopicId,
    KafkaError,
    UnknownServerError,
)
from kafkalike.messages.fetch import FetchResponse
from kafkalike.types import ZERO_UUID

from ..log.log import FetchIsolation, Log
from .fetch_session import FetchContext
from .hosted import HostedPartitions
from .partition import Partition
from .quota import ReplicationQuota
from .values import FUTURE_REPLICA, READ_COMMITTED, EpochEndOffset, FetchParams, FetchPartition

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

_FIRST_RACK_VERSION: Final = 11
"""From this version on consumers may read from followers and be sent to them (KIP-392)."""
_FIRST_WHOLE_BATCH_VERSION: Final = 3
"""From this version on the first batch comes whole, whatever the limits."""


class Selector(Protocol):
    """Which replica a consumer should read from (KIP-392)."""

    def select(self, partition: Partition, params: FetchParams, fetch_offset: int) -> int | None:
        """The broker to read from instead of this one, None to read here."""


Answered = tuple[FetchPartition, PartitionData]


class ReadPass:
    """What one look at the partitions of a Fetch found."""

    __slots__ = ("answer_now", "refused", "results", "size_bytes")

    def __init__(self) -> None:
        self.results: list[Answered] = []
        self.size_bytes = 0
        self.refused = 0
        """Partitions that the handler had refused already."""
        self.answer_now = False
        """An error, a divergence or another replica to read from: waiting makes no sense."""


class Reader:
    """Reads partitions for consumers and followers."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        throttle: ReplicationQuota,
        selector: Selector | None = None,
    ) -> None:
        self._hosted = hosted
        self.throttle = throttle
        """Limits what followers out of the ISR may fetch from here."""
        self.selector = selector

    def read(
        self, params: FetchParams, context: FetchContext, *, record_progress: bool
    ) -> ReadPass:
        """Read the partitions of `context` in order, within the limits of `params`.

        `record_progress`: note followers' offsets (the first read of a request, not the one after
        waiting).  Takes the `dirty` flag off entries that a session need not look at again.
        """
        found = ReadPass()
        isolation = isolation_of(params)
        only_leader = _only_leader(params)
        session = context.session
        left = params.max_bytes
        min_one_message = params.version >= _FIRST_WHOLE_BATCH_VERSION
        refused: list[tuple[FetchPartition, PartitionData]] = []
        for entry in context.partitions():
            if entry.error_code != NONE:
                refused.append((entry, error_data(entry, entry.error_code, refused=True)))
                continue
            partition = self._hosted.get(entry.topic_partition)
            if session is not None and partition is not None and entry.partition is not partition:
                entry.attach(partition)
            data, is_quiet = self._read_one(
                found,
                params,
                entry,
                partition,
                isolation,
                entry.max_bytes if entry.max_bytes < left else left,
                min_one_message,
                only_leader,
                record_progress,
            )
            entry.dirty = not is_quiet or left <= 0
            size = len(data.records) if data.records else 0
            if size:
                min_one_message = False
                left = max(0, left - size)
                found.size_bytes += size
            found.results.append((entry, data))
        if refused:
            found.refused = len(refused)
            found.results += refused  # behind what was read, as in Kafka
        return found

    def _read_one(
        self,
        found: ReadPass,
        params: FetchParams,
        entry: FetchPartition,
        partition: Partition | None,
        isolation: FetchIsolation,
        max_bytes: int,
        min_one_message: bool,
        only_leader: bool,
        record_progress: bool,
    ) -> tuple[PartitionData, bool]:
        """The answer for one partition, and whether only a change can make it another one."""
        try:
            if partition is None:
                raise self._hosted.absence(entry.topic_partition)
            if entry.topic_id != ZERO_UUID:
                _check_topic_id(partition, entry.topic_id)
            if self.selector is not None and may_be_sent_elsewhere(params):
                preferred = self.selector.select(partition, params, entry.fetch_offset)
                if preferred is not None:
                    found.answer_now = True
                    return self._elsewhere(partition, entry, preferred), False
            if max_bytes < 0:
                raise UnknownServerError(f"cannot read {max_bytes} bytes of {partition}")
            info = partition.read(
                entry,
                max_bytes,
                isolation,
                min_one_message=min_one_message,
                only_leader=only_leader,
                follower_id=params.replica_id,
                follower_epoch=params.replica_epoch,
                update_follower=record_progress,
            )
        except KafkaError as error:
            found.answer_now = True
            return error_data(entry, error.code), False
        if isinstance(info, EpochEndOffset):
            found.answer_now = True
            return self._fork(partition, entry, info), False
        data = PartitionData(
            partition_index=entry.topic_partition.partition,
            high_watermark=info.high_watermark,
            last_stable_offset=info.last_stable_offset,
            log_start_offset=info.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if info.aborted_transactions is not None:
            data.aborted_transactions = [
                PartitionData.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in info.aborted_transactions
            ]
        records = info.records
        is_quiet = not records
        if records:
            if self._holds_back(params, partition) or (
                info.first_batch_is_cut and params.version >= _FIRST_WHOLE_BATCH_VERSION
            ):
                records = b""
            data.records = records
        if params.replica_id >= 0 and params.replica_id not in partition.isr:
            # Each of its fetches may bring it into the ISR.
            is_quiet = False
        return data, is_quiet

    def _elsewhere(
        self, partition: Partition, entry: FetchPartition, preferred: int
    ) -> PartitionData:
        epoch = entry.current_leader_epoch
        log = partition.local_log(epoch if epoch >= 0 else None, only_leader=False)
        data = _offsets_data(log, entry)
        data.preferred_read_replica = preferred
        return data

    def _fork(
        self, partition: Partition, entry: FetchPartition, fork: EpochEndOffset
    ) -> PartitionData:
        log = partition.log
        assert log is not None
        data = _offsets_data(log, entry)
        data.diverging_epoch = PartitionData.EpochEndOffset(
            epoch=fork.leader_epoch, end_offset=fork.end_offset
        )
        return data

    def _holds_back(self, params: FetchParams, partition: Partition) -> bool:
        """Whether the quota of this leader keeps records from a follower that lags anyway."""
        throttle = self.throttle
        return (
            throttle.limit is not None
            and params.replica_id >= 0
            and params.replica_id not in partition.isr
            and throttle.is_throttled(partition.topic_partition)
            and throttle.is_exceeded()
        )

    def count_sent(self, params: FetchParams, results: Sequence[Answered]) -> None:
        """Count what an answer sends to a follower against the leader's throttle."""
        throttle = self.throttle
        if params.replica_id < 0 or throttle.limit is None:
            return
        size_bytes = sum(
            len(data.records)
            for entry, data in results
            if data.records and throttle.is_throttled(entry.topic_partition)
        )
        if size_bytes:
            throttle.record(size_bytes)

    # -- waiting -------------------------------------------------------------------------------

    def has_enough(self, params: FetchParams, entries: Sequence[FetchPartition]) -> bool:
        """Whether a waiting fetch should be answered now."""
        isolation = isolation_of(params)
        only_leader = _only_leader(params)
        size_bytes = 0
        for entry in entries:
            if entry.error_code != NONE:
                continue
            partition = self._hosted.get(entry.topic_partition)
            if partition is None:
                return True
            available = self._available(params, entry, partition, isolation, only_leader)
            if available < 0:
                return True
            size_bytes += available
            if size_bytes >= params.min_bytes:
                return True
        return False

    def _available(
        self,
        params: FetchParams,
        entry: FetchPartition,
        partition: Partition,
        isolation: FetchIsolation,
        only_leader: bool,
    ) -> int:
        """Bytes that a read would give now; -1 when it would give an error or a divergence."""
        epoch = entry.current_leader_epoch
        try:
            log = partition.local_log(epoch if epoch >= 0 else None, only_leader=only_leader)
            if entry.fetch_offset > log.log_end_offset or partition.divergence(entry) is not None:
                return -1
            if entry.fetch_offset >= log.bound_of(isolation):
                return 0
            if self._holds_back(params, partition):
                return 0
            return min(log.readable_bytes(entry.fetch_offset, isolation), entry.max_bytes)
        except KafkaError:
            return -1


def isolation_of(params: FetchParams) -> FetchIsolation:
    """How far the sender of a Fetch may read."""
    if not params.reads_committed:
        return FetchIsolation.LOG_END
    if params.isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def _only_leader(params: FetchParams) -> bool:
    if params.replica_id == FUTURE_REPLICA:
        return False
    return params.replica_id >= 0 or params.version < _FIRST_RACK_VERSION


def may_be_sent_elsewhere(params: FetchParams) -> bool:
    """Whether KIP-392 applies: a consumer of a version that knows it."""
    return params.replica_id < 0 and params.version >= _FIRST_RACK_VERSION


def error_data(entry: FetchPartition, code: int, *, refused: bool = False) -> PartitionData:
    """The answer for a partition with an error; `refused`: by the handler, before any read."""
    return PartitionData(
        partition_index=entry.topic_partition.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if refused else None,
        records=b"",
    )


def _offsets_data(log: Log, entry: FetchPartition) -> PartitionData:
    """An answer without records."""
    return PartitionData(
        partition_index=entry.topic_partition.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _check_topic_id(partition: Partition, topic_id: bytes) -> None:
    known = partition.topic_id
    if known is not None and known != topic_id:
        raise InconsistentTopicId(f"{partition} has another topic id here")
