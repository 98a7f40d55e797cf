"""stored."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Message, Struct, field


class OffsetCommitKey(Message, versions=(0, 1), flexible=None):
    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: int64 = 0
    leader_epoch: int32 = field(since=3, default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(since=1, until=1, default=-1, ignorable=True)


class GroupMetadataKey(Message, versions=(2, 2), flexible=None):
    group: str = ""


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    class MemberMetadata(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(since=3, default=None, ignorable=True)
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: int32 = field(since=1, default=-1, ignorable=True)
        session_timeout: int32 = 0
        subscription: bytes = b""
        assignment: bytes = b""

    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = field(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = []


class TransactionLogKey(Message, versions=(0, 0), flexible=None):
    transactional_id: str = ""


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    class PartitionsSchema(Struct):
        topic: str = ""
        partition_ids: list[int32] = []

    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0


class ConsumerProtocolSubscription(Message, versions=(0, 3), flexible=None):
    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(since=1, default=[], ignorable=True)
    generation_id: int32 = field(since=2, default=-1, ignorable=True)
    rack_id: str | None = field(since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3), flexible=None):
    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    assigned_partitions: list[TopicPartition] = []
    user_data: bytes | None = None
