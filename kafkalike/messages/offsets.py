"""Committed offsets of consumer groups."""

from kafkalike.protocol.primitives import int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class OffsetCommitRequest(Request, key=8, versions=(0, 9), flexible=8):
    """Commit consumed offsets.  v0 keeps them in ZooKeeper.

    v1: member and generation; a commit timestamp, only here.  v2: retention time, until v4.  v6:
    leader epoch of the last record.  v7: static membership.  v9: usable with KIP-848 groups.
    """

    class OffsetCommitRequestTopic(Struct):
        class OffsetCommitRequestPartition(Struct):
            partition_index: int32 = 0
            committed_offset: int64 = 0
            committed_leader_epoch: int32 = field(since=6, default=-1, ignorable=True)
            commit_timestamp: int64 = field(since=1, until=1, default=-1)
            committed_metadata: str | None = ""

        name: str = ""
        partitions: list[OffsetCommitRequestPartition] = []

    group_id: str = ""
    generation_id_or_member_epoch: int32 = field(since=1, default=-1, ignorable=True)
    member_id: str = field(since=1, default="", ignorable=True)
    group_instance_id: str | None = field(since=7, default=None)
    # -1: what the broker is set to.
    retention_time_ms: int64 = field(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponse(Response, key=8, versions=(0, 9), flexible=8):
    """One result for each partition.

    v3: throttle time.
    """

    class OffsetCommitResponseTopic(Struct):
        class OffsetCommitResponsePartition(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0

        name: str = ""
        partitions: list[OffsetCommitResponsePartition] = []

    throttle_time_ms: int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = []


class OffsetFetchRequest(Request, key=9, versions=(0, 9), flexible=6):
    """Ask for committed offsets.  v0 reads ZooKeeper.

    v2: null topics ask for all.  v7: wait out pending transactional commits (KIP-447).  v8: several
    groups at once (KIP-709).  v9: member and its epoch (KIP-848).
    """

    class OffsetFetchRequestTopic(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    class OffsetFetchRequestGroup(Struct):
        class OffsetFetchRequestTopics(Struct):
            name: str = ""
            partition_indexes: list[int32] = []

        group_id: str = ""
        member_id: str | None = field(since=9, default=None, ignorable=True)
        member_epoch: int32 = field(since=9, default=-1, ignorable=True)
        topics: list[OffsetFetchRequestTopics] | None = []

    group_id: str = field(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable_since=2, default=[])
    groups: list[OffsetFetchRequestGroup] = field(since=8, default=[])
    require_stable: bool = field(since=7, default=False)


class OffsetFetchResponse(Response, key=9, versions=(0, 9), flexible=6):
    """Committed offsets, -1 where there is none.

    v2: an error for the whole group.  v3: throttle time.  v5: leader epoch.  v8: one entry for each
    group.
    """

    class OffsetFetchResponseTopic(Struct):
        class OffsetFetchResponsePartition(Struct):
            partition_index: int32 = 0
            committed_offset: int64 = 0
            committed_leader_epoch: int32 = field(since=5, default=-1, ignorable=True)
            metadata: str | None = ""
            error_code: int16 = 0

        name: str = ""
        partitions: list[OffsetFetchResponsePartition] = []

    class OffsetFetchResponseGroup(Struct):
        class OffsetFetchResponseTopics(Struct):
            class OffsetFetchResponsePartitions(Struct):
                partition_index: int32 = 0
                committed_offset: int64 = 0
                committed_leader_epoch: int32 = -1
                metadata: str | None = ""
                error_code: int16 = 0

            name: str = ""
            partitions: list[OffsetFetchResponsePartitions] = []

        group_id: str = ""
        topics: list[OffsetFetchResponseTopics] = []
        error_code: int16 = 0

    throttle_time_ms: int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(until=7, default=[])
    error_code: int16 = field(since=2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(since=8, default=[])


class OffsetDeleteRequest(Request, key=47, versions=(0, 0), flexible=None):
    """Forget committed offsets of partitions nobody in the group reads (KIP-496)."""

    class OffsetDeleteRequestTopic(Struct):
        class OffsetDeleteRequestPartition(Struct):
            partition_index: int32 = 0

        name: str = ""
        partitions: list[OffsetDeleteRequestPartition] = []

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponse(Response, key=47, versions=(0, 0), flexible=None):
    """One result for each partition, and one for the group."""

    class OffsetDeleteResponseTopic(Struct):
        class OffsetDeleteResponsePartition(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0

        name: str = ""
        partitions: list[OffsetDeleteResponsePartition] = []

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
