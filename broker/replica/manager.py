"""All partitions hosted by this broker (reference: replication 2-12, 15).

`ReplicaManager` takes what the controller orders (LeaderAndIsr, StopReplica), what clients send
(Produce, Fetch, ListOffsets, ...) and what followers fetch, finds the partition, and lets requests
wait where they must.  A method that may wait returns its plain result when nothing waits and a
Deferred of the same result otherwise: callers ask `isinstance(result, Deferred)`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred

from kafkalike.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalike.messages.fetch import FetchResponse
from kafkalike.types import NO_EPOCH, TopicPartition

from .fetch_session import FetchContext
from .partition import Partition
from .values import (
    AppendEntry,
    AppendResult,
    DeleteRecordsResult,
    EpochEndOffset,
    FetchParams,
    ListedOffset,
    LogDirDescription,
)


class ReplicaManager:
    """The hosted partitions of one broker."""

    # -- lookup --------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The hosted partition when it is online, else None."""

    def leader_partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition led by this broker.

        Raises KafkaStorageError (offline), NotLeaderOrFollower (known to the cluster, not led here)
        or UnknownTopicOrPartition.
        """

    def online_partitions(self) -> Iterable[Partition]:
        """All hosted partitions whose log directory works."""

    # -- orders of the controller --------------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        """Take on the roles of a LeaderAndIsr, any version 0-7; answers every partition."""

    def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Stop and perhaps delete replicas, any version 0-4; answers every partition."""

    def check_controller_epoch(self, controller_epoch: int, broker_epoch: int) -> int:
        """For UpdateMetadata: the error code (STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH) or NONE.

        Remembers the highest controller epoch.
        """

    def metadata_updated(self) -> None:
        """Call after the metadata cache took an UpdateMetadata."""

    # -- clients and followers -----------------------------------------------------------------

    def append(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: str = "client",
        request_version: int = 11,
        internal_topics_allowed: bool = False,
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]":
        """Append records as leader; one result an entry, in order.  Never raises KafkaError.

        acks -1 waits until the high watermark covers the records or `timeout_ms` passed (then
        REQUEST_TIMED_OUT, data stays).  Record buffers may be changed in place (offsets, epochs)
        and are not kept.
        """

    def fetch(
        self, params: FetchParams, context: FetchContext
    ) -> "FetchResponse | Deferred[FetchResponse]":
        """Read for a consumer or a follower; waits up to `max_wait_ms` for `min_bytes`.

        `context` comes from `FetchSessions.begin`.  Partitions whose `error_code` the handler set
        are answered with it and not read.
        """

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        version: int,
        replica_id: int,
        isolation_level: int,
        current_leader_epoch: int = NO_EPOCH,
    ) -> ListedOffset:
        """ListOffsets for one partition.  Raises KafkaError (reference: broker-errors 5)."""

    def offset_for_leader_epoch(
        self,
        topic_partition: TopicPartition,
        *,
        current_leader_epoch: int,
        leader_epoch: int,
        replica_id: int,
    ) -> EpochEndOffset:
        """OffsetForLeaderEpoch for one partition.  Raises KafkaError."""

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> "dict[TopicPartition, DeleteRecordsResult] | Deferred[dict[TopicPartition, DeleteRecordsResult]]":  # noqa: E501
        """Move log starts; waits until all live replicas have followed or `timeout_ms` passed."""

    def describe_log_dirs(
        self, partitions: set[TopicPartition] | None = None
    ) -> list[LogDirDescription]:
        """Every log directory with its logs (all, or only those asked for)."""

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the ISR timer."""

    def stop(self) -> "Deferred[None]":
        """Stop fetchers and timers, complete what waits, write high watermarks."""

    def on_leadership_change(
        self,
        listener: Callable[[Sequence[Partition], Sequence[Partition], Sequence[TopicPartition]], None],
    ) -> None:
        """Be told after each LeaderAndIsr / StopReplica: (new leaders, new followers, deleted)."""
