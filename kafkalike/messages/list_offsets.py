"""Looking up offsets: by timestamp or as an end of the log, and by leader epoch (KIP-101, KIP-279)."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ListOffsetsRequest(Request, key=2, versions=(0, 9), flexible=6):
    """Find the offset for a timestamp, or an end of the log for a special timestamp.

    v0: several offsets of segments.  v1: one offset, by record timestamp (KIP-79).  v2: isolation
    level.  v4: leader epoch the client knows.  v7: timestamp -3, the highest timestamp (KIP-734).
    v8: -4, the earliest local offset (KIP-405).  v9: -5, the last tiered offset (KIP-1005).
    """

    class ListOffsetsTopic(Struct):
        class ListOffsetsPartition(Struct):
            partition_index: int32 = 0
            current_leader_epoch: int32 = field(since=4, default=-1, ignorable=True)
            # -1: the end; -2: the beginning; -3 to -5: see above; else the first record not older.
            timestamp: int64 = 0
            max_num_offsets: int32 = field(until=0, default=1)

        name: str = ""
        partitions: list[ListOffsetsPartition] = []

    replica_id: int32 = 0
    # 0: read uncommitted; 1: read committed.
    isolation_level: int8 = field(since=2, default=0)
    topics: list[ListOffsetsTopic] = []


class ListOffsetsResponse(Response, key=2, versions=(0, 9), flexible=6):
    """The offsets found, -1 where there is none.

    v0: a list of offsets.  v1: one offset with its timestamp.  v2: throttle time.  v4: leader epoch
    of the record.
    """

    class ListOffsetsTopicResponse(Struct):
        class ListOffsetsPartitionResponse(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0
            old_style_offsets: list[int64] = field(until=0, default=[])
            timestamp: int64 = field(since=1, default=-1)
            offset: int64 = field(since=1, default=-1)
            leader_epoch: int32 = field(since=4, default=-1)

        name: str = ""
        partitions: list[ListOffsetsPartitionResponse] = []

    throttle_time_ms: int32 = field(since=2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = []


class OffsetForLeaderEpochRequest(Request, key=23, versions=(0, 4), flexible=4):
    """Ask where a leader epoch ends, to find out how far two logs agree.

    v2: leader epoch the asker knows (KIP-320).  v3: who asks.
    """

    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: int32 = 0
            current_leader_epoch: int32 = field(since=2, default=-1, ignorable=True)
            leader_epoch: int32 = 0

        topic: str = ""
        partitions: list[OffsetForLeaderPartition] = []

    # -2 from a consumer.
    replica_id: int32 = field(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderEpochResponse(Response, key=23, versions=(0, 4), flexible=4):
    """The largest epoch not above the asked one, and its end offset; -1 and -1 if unknown.

    v1: the epoch.  v2: throttle time.
    """

    class OffsetForLeaderTopicResult(Struct):
        class EpochEndOffset(Struct):
            error_code: int16 = 0
            partition: int32 = 0
            leader_epoch: int32 = field(since=1, default=-1, ignorable=True)
            end_offset: int64 = -1

        topic: str = ""
        partitions: list[EpochEndOffset] = []

    throttle_time_ms: int32 = field(since=2, default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = []
