"""Reading record batches, by consumers and by followers, with or without a session (KIP-227)."""

from kafkalike.protocol.primitives import Records, int8, int16, int32, int64, uuid
from kafkalike.protocol.struct import Request, Response, Struct, field
from kafkalike.types import ZERO_UUID


class FetchRequest(Request, key=1, versions=(0, 17), flexible=12):
    """Read from partitions; waits until `min_bytes` are there or `max_wait_ms` have passed.

    v3: `max_bytes`, and the order of partitions counts (KIP-74).  v4: isolation level.  v5: log start
    offset of the follower.  v7: sessions (KIP-227).  v9: leader epoch the client knows (KIP-320).
    v10: zstd.  v11: rack of the consumer (KIP-392).  v12: epoch of the last record (KIP-595).
    v13: topic ids instead of names (KIP-516).  v15: follower state replaces `replica_id` (KIP-903).
    v17: directory id of the follower (KIP-853).
    """

    class ReplicaState(Struct):
        """Who follows: -1 and -1 from a consumer."""

        replica_id: int32 = -1
        replica_epoch: int64 = -1

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            partition: int32 = 0
            current_leader_epoch: int32 = field(since=9, default=-1, ignorable=True)
            fetch_offset: int64 = 0
            last_fetched_epoch: int32 = field(since=12, default=-1)
            log_start_offset: int64 = field(since=5, default=-1, ignorable=True)
            partition_max_bytes: int32 = 0
            replica_directory_id: uuid = field(since=17, tag=0, default=ZERO_UUID, ignorable=True)

        topic: str = field(until=12, default="", ignorable=True)
        topic_id: uuid = field(since=13, default=ZERO_UUID, ignorable=True)
        partitions: list[FetchPartition] = []

    class ForgottenTopic(Struct):
        topic: str = field(until=12, default="", ignorable=True)
        topic_id: uuid = field(since=13, default=ZERO_UUID, ignorable=True)
        partitions: list[int32] = []

    cluster_id: str | None = field(since=12, tag=0, default=None, ignorable=True)
    # -1 from a consumer, -2 from one that may read everything.
    replica_id: int32 = field(until=14, default=-1)
    replica_state: ReplicaState = field(since=15, tag=1, default_factory=ReplicaState)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = field(since=3, default=0x7FFFFFFF, ignorable=True)
    # 0: read uncommitted; 1: read committed.
    isolation_level: int8 = field(since=4, default=0, ignorable=True)
    session_id: int32 = field(since=7, default=0, ignorable=True)
    # -1: no session; 0: begin one; else the next request of one.
    session_epoch: int32 = field(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = field(since=7, default=[])
    rack_id: str = field(since=11, default="", ignorable=True)


class FetchResponse(Response, key=1, versions=(0, 17), flexible=12):
    """Record batches as they lie on disk; the last one may be cut.

    v1: throttle time.  v4: last stable offset and aborted transactions.  v5: log start offset.
    v7: session (KIP-227).  v11: a replica to read from instead (KIP-392).  v12: where logs diverge,
    current leader (KIP-595).  v13: topic ids.  v16: addresses of current leaders (KIP-951).
    """

    class FetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class EpochEndOffset(Struct):
                """The last epoch both logs share, and where it ends in the leader's log."""

                epoch: int32 = -1
                end_offset: int64 = -1

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            class SnapshotId(Struct):
                """Used by KRaft only."""

                end_offset: int64 = -1
                epoch: int32 = -1

            class AbortedTransaction(Struct):
                producer_id: int64 = 0
                first_offset: int64 = 0

            partition_index: int32 = 0
            error_code: int16 = 0
            high_watermark: int64 = 0
            last_stable_offset: int64 = field(since=4, default=-1, ignorable=True)
            log_start_offset: int64 = field(since=5, default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = field(since=12, tag=0, default_factory=EpochEndOffset)
            current_leader: LeaderIdAndEpoch = field(
                since=12, tag=1, default_factory=LeaderIdAndEpoch
            )
            snapshot_id: SnapshotId = field(since=12, tag=2, default_factory=SnapshotId)
            # Null unless records are read committed.
            aborted_transactions: list[AbortedTransaction] | None = field(
                since=4, default=[], ignorable=True
            )
            preferred_read_replica: int32 = field(since=11, default=-1)
            records: Records | None = None

        topic: str = field(until=12, default="", ignorable=True)
        topic_id: uuid = field(since=13, default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = field(since=7, default=0, ignorable=True)
    session_id: int32 = field(since=7, default=0)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = field(since=16, tag=0, default=[])
