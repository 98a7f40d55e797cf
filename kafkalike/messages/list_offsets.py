"""list_offsets."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ListOffsetsRequest(Request, key=2, versions=(0, 9), flexible=6):
    class ListOffsetsTopic(Struct):
        class ListOffsetsPartition(Struct):
            partition_index: int32 = 0
            current_leader_epoch: int32 = field(since=4, default=-1, ignorable=True)
            timestamp: int64 = 0
            max_num_offsets: int32 = field(until=0, default=1)

        name: str = ""
        partitions: list[ListOffsetsPartition] = []

    replica_id: int32 = 0
    isolation_level: int8 = field(since=2, default=0)
    topics: list[ListOffsetsTopic] = []


class ListOffsetsResponse(Response, key=2, versions=(0, 9), flexible=6):
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
    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: int32 = 0
            current_leader_epoch: int32 = field(since=2, default=-1, ignorable=True)
            leader_epoch: int32 = 0

        topic: str = ""
        partitions: list[OffsetForLeaderPartition] = []

    replica_id: int32 = field(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderEpochResponse(Response, key=23, versions=(0, 4), flexible=4):
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
