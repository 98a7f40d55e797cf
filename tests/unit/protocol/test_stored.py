"""What coordinators store (reference: group-coordinator 10, transactions 4)."""

import pytest

from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_assignment,
    decode_offsets_key,
    decode_subscription,
    decode_transaction_key,
    decode_versioned,
    encode_versioned,
    stored_version,
)
from kafkalike.protocol.primitives import MalformedMessage


def test_offset_key_is_the_example_of_the_reference() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=5)
    raw = bytes.fromhex("0001 0001 67 0001 74 00000005")
    assert encode_versioned(key, 1) == raw
    assert decode_offsets_key(raw) == key
    assert decode_offsets_key(b"\0\0" + raw[2:]) == key
    assert stored_version(raw) == 1


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "0000 0000000000000007 0001 6d 0000000000000009"),
        (1, "0001 0000000000000007 0001 6d 0000000000000009 000000000000000b"),
        (2, "0002 0000000000000007 0001 6d 0000000000000009"),
        (3, "0003 0000000000000007 00000003 0001 6d 0000000000000009"),
        (4, "0004 0000000000000007 00000003 02 6d 0000000000000009 00"),
    ],
)
def test_offset_values(version: int, expected: str) -> None:
    value = OffsetCommitValue(
        offset=7, leader_epoch=3, metadata="m", commit_timestamp=9, expire_timestamp=11
    )
    raw = bytes.fromhex(expected)
    assert encode_versioned(value, version) == raw
    decoded = decode_versioned(OffsetCommitValue, raw)
    assert (decoded.offset, decoded.metadata, decoded.commit_timestamp) == (7, "m", 9)
    assert decoded.leader_epoch == (3 if version >= 3 else -1)
    assert decoded.expire_timestamp == (11 if version == 1 else -1)


def test_group_record() -> None:
    key = GroupMetadataKey(group="g")
    assert encode_versioned(key, 2) == bytes.fromhex("0002 0001 67")
    assert decode_offsets_key(encode_versioned(key, 2)) == key
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=5,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/10.0.0.1",
                rebalance_timeout=1,
                session_timeout=2,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )
    expected = (
        "0003 0008 636f6e73756d6572 00000002 ffff ffff 0000000000000005 00000001"
        "0001 6d ffff 0001 63 0009 2f31302e302e302e31 00000001 00000002 00000001 73 00000001 61"
    )
    assert encode_versioned(value, 3) == bytes.fromhex(expected)
    for version in range(5):
        assert (
            decode_versioned(GroupMetadataValue, encode_versioned(value, version))
            .members[0]
            .assignment
            == b"a"
        )


def test_transaction_record() -> None:
    key = TransactionLogKey(transactional_id="t")
    assert encode_versioned(key, 0) == bytes.fromhex("0000 0001 74")
    assert decode_transaction_key(encode_versioned(key, 0)) == key
    empty = TransactionLogValue(
        producer_id=1, transaction_timeout_ms=2, transaction_partitions=None
    )
    raw = encode_versioned(empty, 0)
    assert raw == bytes.fromhex(
        "0000 0000000000000001 0000 00000002 00 ffffffff 0000000000000000 0000000000000000"
    )
    assert decode_versioned(TransactionLogValue, raw) == empty


@pytest.mark.parametrize("version", [3, 8, 9, 100, -1])
def test_unknown_kinds_of_key_are_none(version: int) -> None:
    raw = version.to_bytes(2, "big", signed=True) + b"\0\1g"
    assert decode_offsets_key(raw) is None
    assert decode_transaction_key(raw) is None


def test_unknown_version_of_a_value_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="OffsetCommitValue: version 5, expected 0 to 4"):
        decode_versioned(OffsetCommitValue, b"\0\5")
    with pytest.raises(MalformedMessage, match="1 bytes, expected at least 2"):
        decode_versioned(OffsetCommitValue, b"\0")


def test_newer_consumer_protocol_reads_as_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["t"],
        user_data=b"u",
        owned_partitions=[ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[1])],
        generation_id=4,
        rack_id="r",
    )
    raw = encode_versioned(subscription, 3)
    assert decode_subscription(raw) == subscription
    assert decode_subscription(b"\0\x09" + raw[2:] + b"new fields") == subscription
    old = decode_subscription(encode_versioned(subscription, 0))
    assert old == ConsumerProtocolSubscription(topics=["t"], user_data=b"u")
    with pytest.raises(MalformedMessage, match="version -1"):
        decode_subscription(b"\xff\xff" + raw[2:])


def test_assignment() -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 2])
        ]
    )
    raw = encode_versioned(assignment, 1)
    assert raw == bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000002 ffffffff")
    assert decode_assignment(raw) == assignment
