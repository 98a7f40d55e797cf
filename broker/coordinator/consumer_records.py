"""Groups of the newer protocol as records of `__consumer_offsets`, and back (reference:
group-coordinator 16), as Kafka 4.1 writes them: the number of a kind of record is the version of its
key, values are of version 0.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kafkalike.messages.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    decode_versioned,
    encode_versioned,
    stored_version,
)

from .consumer_values import ClassicSide, ConsumerMember, Partitions, ResolvedRegex

GROUP: Final = 3
TOPICS: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16

VALUE_VERSION: Final = 0

_MemberValue = ConsumerGroupMemberMetadataValue
_Classic = _MemberValue.ClassicMemberMetadata
_Target = ConsumerGroupTargetAssignmentMemberValue
_Current = ConsumerGroupCurrentMemberAssignmentValue

_KEYS: Final[dict[int, tuple[Any, Callable[[Any], str]]]] = {
    GROUP: (ConsumerGroupMetadataKey, lambda key: ""),
    TOPICS: (ConsumerGroupPartitionMetadataKey, lambda key: ""),
    MEMBER: (ConsumerGroupMemberMetadataKey, lambda key: key.member_id),
    TARGET_EPOCH: (ConsumerGroupTargetAssignmentMetadataKey, lambda key: ""),
    TARGET: (ConsumerGroupTargetAssignmentMemberKey, lambda key: key.member_id),
    CURRENT: (ConsumerGroupCurrentMemberAssignmentKey, lambda key: key.member_id),
    REGEX: (ConsumerGroupRegularExpressionKey, lambda key: key.regular_expression),
}


class Current(NamedTuple):
    """What a member owns, as it is stored."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    revoking: Partitions


def read_key(data: bytes) -> tuple[int, str, str] | None:
    """(kind, group, member or regular expression); None for other kinds.  Raises MalformedMessage."""
    kind = stored_version(data)
    known = _KEYS.get(kind)
    if known is None:
        return None
    key = decode_versioned(known[0], data)
    return kind, key.group_id, known[1](key)


# -- keys --------------------------------------------------------------------------------------


def group_key(group_id: str) -> bytes:
    return encode_versioned(ConsumerGroupMetadataKey(group_id=group_id), GROUP)


def topics_key(group_id: str) -> bytes:
    return encode_versioned(ConsumerGroupPartitionMetadataKey(group_id=group_id), TOPICS)


def member_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, MEMBER)


def target_epoch_key(group_id: str) -> bytes:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return encode_versioned(key, TARGET_EPOCH)


def target_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, TARGET)


def current_key(group_id: str, member_id: str) -> bytes:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, CURRENT)


def regex_key(group_id: str, regex: str) -> bytes:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return encode_versioned(key, REGEX)


# -- values ------------------------------------------------------------------------------------


def group_value(epoch: int, metadata_hash: int) -> bytes:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return encode_versioned(value, VALUE_VERSION)


def read_group(data: bytes) -> tuple[int, int]:
    """(epoch, hash of the topics)."""
    value = decode_versioned(ConsumerGroupMetadataValue, data)
    return value.epoch, value.metadata_hash


def member_value(member: ConsumerMember) -> bytes:
    classic = None
    if member.classic is not None:
        classic = _Classic(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                _Classic.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = _MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return encode_versioned(value, VALUE_VERSION)


def read_member(member_id: str, data: bytes) -> ConsumerMember:
    """A member that owns nothing yet."""
    value = decode_versioned(_MemberValue, data)
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
        ),
    )


def target_epoch_value(epoch: int) -> bytes:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return encode_versioned(value, VALUE_VERSION)


def read_target_epoch(data: bytes) -> int:
    return decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, data).assignment_epoch


def target_value(partitions: Partitions) -> bytes:
    value = _Target(
        topic_partitions=[
            _Target.TopicPartition(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in in_order(partitions)
        ]
    )
    return encode_versioned(value, VALUE_VERSION)


def read_target(data: bytes) -> Partitions:
    return partitions_of(decode_versioned(_Target, data).topic_partitions)


def current_value(member: ConsumerMember) -> bytes:
    value = _Current(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_current_parts(member.assigned),
        partitions_pending_revocation=_current_parts(member.revoking),
    )
    return encode_versioned(value, VALUE_VERSION)


def _current_parts(partitions: Partitions) -> list[_Current.TopicPartitions]:
    return [
        _Current.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in in_order(partitions)
    ]


def read_current(data: bytes) -> Current:
    value = decode_versioned(_Current, data)
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        partitions_of(value.assigned_partitions),
        partitions_of(value.partitions_pending_revocation),
    )


def regex_value(resolved: ResolvedRegex) -> bytes:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return encode_versioned(value, VALUE_VERSION)


def read_regex(data: bytes) -> ResolvedRegex:
    value = decode_versioned(ConsumerGroupRegularExpressionValue, data)
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def in_order(partitions: Partitions) -> list[tuple[bytes, list[int]]]:
    """Topics and partitions by number, so that the same assignment is always the same bytes."""
    return [(topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions)]


def partitions_of(topics: Iterable[Any]) -> Partitions:
    """From a list of messages with `topic_id` and `partitions`; a topic may stand there twice."""
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            known = found.get(topic.topic_id, frozenset())
            found[bytes(topic.topic_id)] = known | frozenset(topic.partitions)
    return found
