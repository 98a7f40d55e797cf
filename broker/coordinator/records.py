"""Groups and offsets as records of `__consumer_offsets`, and back (reference: group-coordinator 10).

Written are offset keys of version 1 with values of version 3 (1 where a commit named its own expiry),
group keys of version 2 with values of version 3.  Everything that any Kafka wrote is read.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Final

from kafkalike.messages.stored import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_versioned,
    encode_versioned,
    stored_version,
)
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.records.record import MalformedRecord, Record, read_varint
from kafkalike.runtime.ports import Buffer
from kafkalike.types import TopicPartition

from .group import Group, GroupState, Member
from .values import NO_TIMESTAMP, OffsetAndMetadata

OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3

_PREFIX: Final = Struct(">hh")
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_VALUE_3: Final = Struct(">hqih")
_TIMESTAMP: Final = Struct(">q")


# -- keys --------------------------------------------------------------------------------------


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Key of a committed offset."""
    group, topic = group_id.encode(), partition.topic.encode()
    return b"".join(
        (
            _PREFIX.pack(OFFSET_KEY_VERSION, len(group)),
            group,
            _LENGTH.pack(len(topic)),
            topic,
            _PARTITION.pack(partition.partition),
        )
    )


def group_key(group_id: str) -> bytes:
    """Key of a group."""
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


# -- values ------------------------------------------------------------------------------------


def offset_value(value: OffsetAndMetadata) -> bytes:
    """Value of a committed offset."""
    if value.expire_timestamp == NO_TIMESTAMP:
        metadata = value.metadata.encode()
        return b"".join(
            (
                _VALUE_3.pack(
                    OFFSET_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata)
                ),
                metadata,
                _TIMESTAMP.pack(value.commit_timestamp),
            )
        )
    return encode_versioned(
        OffsetCommitValue(
            offset=value.offset,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
            expire_timestamp=value.expire_timestamp,
        ),
        EXPIRING_OFFSET_VALUE_VERSION,
    )


def offset_records(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
) -> list[Record]:
    """One record for each partition."""
    return [
        Record(offset_key(group_id, partition), offset_value(value), now_ms)
        for partition, value in offsets.items()
    ]


def group_record(group: Group, assignments: Mapping[str, bytes], now_ms: int) -> Record:
    """The group with the given assignments; members without one get none."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.stored_state_timestamp,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return Record(group_key(group.group_id), encode_versioned(value, GROUP_VALUE_VERSION), now_ms)


def tombstone(key: bytes, now_ms: int) -> Record:
    """The record that ends a key."""
    return Record(key, None, now_ms)


# -- reading -----------------------------------------------------------------------------------


def key_values(payload: Buffer, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record of an uncompressed payload; headers are passed over.

    A load reads a million of them: lengths of one and two bytes are read in place.  Raises
    MalformedRecord.
    """
    data = bytes(payload)
    position = 0
    try:
        for _ in range(count):
            length, position = _length(data, position)
            end = position + length
            position += 1  # attributes
            while data[position] & 0x80:  # timestamp
                position += 1
            position += 1
            while data[position] & 0x80:  # offset
                position += 1
            size, position = _length(data, position + 1)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            size, position = _length(data, position)
            value = None
            if size >= 0:
                value = data[position : position + size]
                position += size
            if length < 0 or position > end or end > len(data):
                raise MalformedRecord(f"a record does not end at byte {end}")
            position = end
            yield key, value
    except IndexError:
        raise MalformedRecord(f"a record runs out of the data at byte {position}") from None


def _length(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        byte = byte & 0x7F | second << 7
        return (byte >> 1) ^ -(byte & 1), position + 2
    return read_varint(data, position)


def read_key(data: bytes) -> tuple[str, TopicPartition | None] | None:
    """(group, partition) of an offset key, (group, None) of a group key, None for other kinds.

    Raises MalformedMessage.
    """
    version = stored_version(data)
    if version == OFFSET_KEY_VERSION:
        return _read_offset_key(data)
    if 0 <= version <= OFFSET_KEY_VERSION:
        key = decode_versioned(OffsetCommitKey, data)
        return key.group, TopicPartition(key.topic, key.partition)
    if version == GROUP_KEY_VERSION:
        return decode_versioned(GroupMetadataKey, data).group, None
    return None


def _read_offset_key(data: bytes) -> tuple[str, TopicPartition]:
    """The key that is written, without the detour of a message."""
    try:
        _, size = _PREFIX.unpack_from(data)
        topic_at = _PREFIX.size + size + _LENGTH.size
        (topic_size,) = _LENGTH.unpack_from(data, topic_at - _LENGTH.size)
        (partition,) = _PARTITION.unpack_from(data, topic_at + topic_size)
    except StructError:
        raise MalformedMessage(f"offset key of {len(data)} bytes is cut") from None
    if size < 0 or topic_size < 0 or topic_at + topic_size + _PARTITION.size > len(data):
        raise MalformedMessage(f"offset key with names of {size} and {topic_size} bytes")
    group = data[_PREFIX.size : _PREFIX.size + size].decode(errors="replace")
    topic = data[topic_at : topic_at + topic_size].decode(errors="replace")
    return group, TopicPartition(topic, partition)


def read_offset(data: bytes) -> OffsetAndMetadata:
    """A committed offset.  Raises MalformedMessage."""
    if len(data) >= _VALUE_3.size + _TIMESTAMP.size:
        version, offset, leader_epoch, size = _VALUE_3.unpack_from(data)
        end = _VALUE_3.size + size
        if version == OFFSET_VALUE_VERSION and size >= 0 and end + _TIMESTAMP.size <= len(data):
            (timestamp,) = _TIMESTAMP.unpack_from(data, end)
            metadata = data[_VALUE_3.size : end].decode(errors="replace")
            return OffsetAndMetadata(offset, leader_epoch, metadata, timestamp)
    value = decode_versioned(OffsetCommitValue, data)
    return OffsetAndMetadata(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


def read_group(group_id: str, data: bytes) -> Group:
    """A group as it was stored: Stable with members, Empty without.  Raises MalformedMessage."""
    version = stored_version(data)
    value = decode_versioned(GroupMetadataValue, data)
    group = Group(group_id, 0)
    timestamp = value.current_state_timestamp
    group.state_timestamp_ms = None if timestamp == NO_TIMESTAMP else timestamp
    group.generation = value.generation
    for member in _members(value, version):
        if member.member_id in group.members:
            raise MalformedMessage(f"group {group_id}: member {member.member_id} is listed twice")
        group.add(member, value.protocol_type, None)
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader = value.leader
    if group.members:
        group.state = GroupState.STABLE
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
    group.compute_subscribed_topics()
    return group


def _members(value: GroupMetadataValue, version: int) -> Iterator[Member]:
    for stored in value.members:
        yield Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout if version == 0 else stored.rebalance_timeout,
            stored.session_timeout,
            ((value.protocol or "", bytes(stored.subscription)),),
            bytes(stored.assignment),
        )
