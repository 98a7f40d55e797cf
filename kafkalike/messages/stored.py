"""What coordinators store, and what consumers put into their group membership.

Records of `__consumer_offsets` and `__transaction_state` (reference: group-coordinator 10,
transactions 4): key and value each are a version, two bytes, and the message in that version.  The
consumer protocol has the same form inside JoinGroup and SyncGroup.
"""

from struct import Struct as Packing
from typing import Final, TypeVar

from kafkalike.protocol.primitives import (
    MalformedMessage,
    int8,
    int16,
    int32,
    int64,
    uuid,
)
from kafkalike.protocol.struct import Message, Struct, field
from kafkalike.runtime.ports import Buffer
from kafkalike.types import ZERO_UUID

T = TypeVar("T", bound=Message)

_VERSION: Final = Packing(">h")


class OffsetCommitKey(Message, versions=(0, 1), flexible=None):
    """Key of a committed offset; 1 is written, both mean the same."""

    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    """A committed offset.

    v1: expiry time, for commits with their own retention.  v3: leader epoch; the one written.  v4:
    flexible, read only.
    """

    offset: int64 = 0
    leader_epoch: int32 = field(since=3, default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(since=1, until=1, default=-1, ignorable=True)


class GroupMetadataKey(Message, versions=(2, 2), flexible=None):
    """Key of a group.  Its versions begin where those of offset keys end."""

    group: str = ""


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    """A group between rebalances: generation, protocol, leader, members.

    v1: rebalance timeout.  v2: time of the last change.  v3: instance ids; the one written.  v4:
    flexible, read only.
    """

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


class ConsumerGroupMetadataKey(Message, versions=(3, 3), flexible=None):
    """Key of a group of the newer protocol (KIP-848).  Keys of its parts follow; their numbers are
    their versions."""

    group_id: str = ""


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    """Epoch of the group; the hash tells whether topics it reads have changed (Kafka 4.1)."""

    epoch: int32 = 0
    metadata_hash: int64 = field(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, versions=(4, 4), flexible=None):
    """Key of what Kafka before 4.1 knew of the topics of a group."""

    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Message, versions=(0, 0), flexible=0):
    """Topics of a group; no longer written, a hash in the group's own record has replaced it."""

    class TopicMetadata(Struct):
        class PartitionMetadata(Struct):
            partition: int32 = 0
            racks: list[str] = []

        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        num_partitions: int32 = 0
        partition_metadata: list[PartitionMetadata] = []

    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Message, versions=(5, 5), flexible=None):
    """Key of a member."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    """What a member said of itself; the last part only of members that speak the classic protocol."""

    class ClassicMemberMetadata(Struct):
        class ClassicProtocol(Struct):
            name: str = ""
            metadata: bytes = b""

        session_timeout_ms: int32 = 0
        supported_protocols: list[ClassicProtocol] = []

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(6, 6), flexible=None):
    """Key of the epoch of a group's target assignment."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    """The group epoch for which the target assignment was computed."""

    assignment_epoch: int32 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(7, 7), flexible=None):
    """Key of what a member is to own."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    """What a member is to own."""

    class TopicPartition(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    topic_partitions: list[TopicPartition] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(8, 8), flexible=None):
    """Key of what a member owns."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    """What a member owns and what it has still to give up, with its epochs."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class ConsumerGroupRegularExpressionKey(Message, versions=(16, 16), flexible=None):
    """Key of a regular expression that members of a group subscribe to."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message, versions=(0, 0), flexible=0):
    """The topics that it was found to match, when (ms), and in which version of the metadata."""

    topics: list[str] = []
    version: int64 = 0
    timestamp: int64 = 0


class TransactionLogKey(Message, versions=(0, 0), flexible=None):
    """Key of a transaction."""

    transactional_id: str = ""


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    """State of a transaction; null partitions when it is empty.

    v0 is written.  v1: flexible.
    """

    class PartitionsSchema(Struct):
        topic: str = ""
        partition_ids: list[int32] = []

    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_timeout_ms: int32 = 0
    # 0: Empty; 1: Ongoing; 2: PrepareCommit; 3: PrepareAbort; 4: CompleteCommit; 5: CompleteAbort;
    # 6: Dead; 7: PrepareEpochFence.
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0


class ConsumerProtocolSubscription(Message, versions=(0, 3), flexible=None):
    """Metadata of a member in JoinGroup: the topics it wants.

    v1: what it owns now (KIP-429).  v2: generation of that (KIP-792).  v3: rack (KIP-881).
    """

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(since=1, default=[], ignorable=True)
    generation_id: int32 = field(since=2, default=-1, ignorable=True)
    rack_id: str | None = field(since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3), flexible=None):
    """Assignment of a member in SyncGroup.  All versions are alike."""

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    assigned_partitions: list[TopicPartition] = []
    user_data: bytes | None = None


def encode_versioned(message: Message, version: int) -> bytes:
    """The message behind its version, as it is stored."""
    return _VERSION.pack(version) + message.encode(version)


def stored_version(data: Buffer) -> int:
    """The version that stored bytes begin with.  Raises MalformedMessage when there is none."""
    if len(data) < _VERSION.size:
        raise MalformedMessage(f"stored version: {len(data)} bytes, expected at least 2")
    return int(_VERSION.unpack_from(data)[0])


def decode_versioned(message: type[T], data: Buffer, *, newer_as_newest: bool = False) -> T:
    """The reverse of `encode_versioned`.

    A version that the message does not have raises MalformedMessage.  With `newer_as_newest` a
    version above the highest reads as the highest: what the consumer protocol promises of its
    future versions.
    """
    version = stored_version(data)
    if newer_as_newest:
        version = min(version, message.max_version)
    if not message.min_version <= version <= message.max_version:
        raise MalformedMessage(
            f"{message.__name__}: version {version},"
            f" expected {message.min_version} to {message.max_version}"
        )
    return message.decode(data, version, _VERSION.size)


def decode_offsets_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key of a record of `__consumer_offsets`; None for a kind of record not known here."""
    version = stored_version(data)
    if 0 <= version <= OffsetCommitKey.max_version:
        return decode_versioned(OffsetCommitKey, data)
    if version == GroupMetadataKey.max_version:
        return decode_versioned(GroupMetadataKey, data)
    return None


def decode_transaction_key(data: Buffer) -> TransactionLogKey | None:
    """The key of a record of `__transaction_state`; None for a kind of record not known here."""
    if stored_version(data) != TransactionLogKey.max_version:
        return None
    return decode_versioned(TransactionLogKey, data)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """What a consumer of the protocol type `consumer` told about itself."""
    return decode_versioned(ConsumerProtocolSubscription, data, newer_as_newest=True)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """What a consumer of the protocol type `consumer` was given."""
    return decode_versioned(ConsumerProtocolAssignment, data, newer_as_newest=True)
