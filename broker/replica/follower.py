"""One partition as its fetch loop sees it, and where its log must be cut (reference: replication 13).

Pure state and rules; the loop is in `fetcher`.
"""

from typing import Final, NamedTuple

from kafkalike.types import ZERO_UUID, TopicPartition, java_hash

from ..log.log import Log
from .partition import Partition

NOT_DELAYED: Final = -1.0
UNKNOWN_LAG: Final = -1


class FetchPosition(NamedTuple):
    """What a Fetch says of a partition; compared to find out what a session does not know yet."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    topic_id: bytes


class FollowedPartition:
    """A partition that follows a leader in one leader epoch."""

    __slots__ = (
        "delayed_until_s",
        "fetch_offset",
        "lag",
        "leader_epoch",
        "partition",
        "refusals",
        "told",
        "uses_topic_id",
    )

    def __init__(self, partition: Partition, fetch_offset: int) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.fetch_offset = fetch_offset
        self.delayed_until_s = NOT_DELAYED
        self.refusals = 0
        """How often in a row the leader could not serve it; a new leader may not know its role yet."""
        self.lag = UNKNOWN_LAG
        """Records that the leader has committed and this replica lacks."""
        self.told: FetchPosition | None = None
        """What the last request said; None: the leader's session does not have the partition."""
        self.uses_topic_id = True

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def topic_id(self) -> bytes:
        return (self.partition.topic_id or ZERO_UUID) if self.uses_topic_id else ZERO_UUID

    def position(self) -> FetchPosition:
        """What the next Fetch should say."""
        log = self.log()
        epoch = log.latest_epoch
        return FetchPosition(
            self.fetch_offset,
            log.log_start_offset,
            self.leader_epoch,
            -1 if epoch is None else epoch,
            self.topic_id,
        )

    def log(self) -> Log:
        """The replica's log; a partition without one is followed by nobody."""
        log = self.partition.log
        assert log is not None, self.topic_partition
        return log


class Truncation(NamedTuple):
    """Where to cut; `is_final` is False when the leader must be asked once more (KIP-279)."""

    offset: int
    is_final: bool


def initial_offset(log: Log) -> int:
    """Where a new follower begins: its end when it knows epochs, else what was committed."""
    return log.high_watermark if log.latest_epoch is None else log.log_end_offset


def truncation_target(log: Log, fetch_offset: int, epoch: int, end_offset: int) -> Truncation:
    """Where this log forks from the leader's, which says that `epoch` ends at `end_offset` there."""
    if end_offset < 0:
        return Truncation(fetch_offset, True)
    log_end_offset = log.log_end_offset
    if epoch < 0:
        return Truncation(min(end_offset, log_end_offset), True)
    own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
    if own_epoch < 0 or own_end_offset < 0:
        return Truncation(min(end_offset, log_end_offset), True)
    if own_epoch != epoch:
        # The leader's epoch is unknown here: everything above the next older one must go, and
        # with that one the leader can say where the histories really part.
        return Truncation(min(own_end_offset, log_end_offset), False)
    return Truncation(min(own_end_offset, end_offset, log_end_offset), True)


def fetcher_index(topic_partition: TopicPartition, count: int) -> int:
    """Which of `count` loops to one leader a partition belongs to; as Kafka spreads them."""
    value = java_hash(topic_partition.topic) * 31 + topic_partition.partition
    value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return 0 if value == -(1 << 31) else abs(value) % count
