"""What a coordinator finds when it becomes leader, and what it answers meanwhile."""

import logging
import random
from typing import Any

import pytest

from kafkalike.broker.coordinator.groups import abs_java_hash
from kafkalike.broker.coordinator.records import (
    group_key,
    group_record,
    key_values,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
    tombstone,
)
from kafkalike.broker.coordinator.values import Caller, MemberIdentity, OffsetAndMetadata
from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    NotCoordinator,
    RebalanceInProgress,
)
from kafkalike.messages.stored import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_versioned,
)
from kafkalike.records.batch import RecordBatch, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.control import EndTransactionMarker, encode_marker
from kafkalike.records.record import MalformedRecord, Record
from kafkalike.types import TopicPartition

from .support import GROUP, World, join_call

T0 = TopicPartition("t", 0)


def offset_record(offset: int, group: str = GROUP, partition: TopicPartition = T0) -> Record:
    return Record(offset_key(group, partition), offset_value(OffsetAndMetadata(offset)), 1)


def loaded(*batches: bytearray, **settings: Any) -> World:
    world = World(lead=False, **settings)
    for batch in batches:
        world.replicas.log(0).append(batch)
    world.lead()
    return world


def test_group_survives_with_members_offsets_and_generation() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.commit(7, leader, metadata="note", leader_epoch=3)
    before = world.coordinator.describe(GROUP)
    world.fail_over()
    assert world.coordinator.describe(GROUP) == before
    assert world.beat(leader) == world.beat(follower) == NONE
    assert world.commit(8, follower).value == NONE
    assert world.fetched() == 8
    assert world.sync(follower).value.assignment == b"1"


def test_loaded_members_have_a_whole_session() -> None:
    world = World()
    (joined,) = world.stable()
    world.clock.advance(9)
    world.fail_over()
    world.clock.advance(9.5)
    assert world.beat(joined) == NONE
    world.clock.advance(10.5)
    assert world.state() == "Empty"


def test_group_that_was_rebalancing_comes_back_as_it_was_stored() -> None:
    world = World()
    (joined,) = world.stable()
    waiting = world.enter()
    world.fail_over()
    assert waiting.value.error_code == NotCoordinator.code
    assert world.state() == "Stable"
    assert world.beat(joined) == NONE


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_coordinator_dies_in_each_state(state: str) -> None:
    world = World()
    joined = world.enter().value
    world.commit(4)
    if state in ("Stable", "PreparingRebalance"):
        world.sync(joined, {joined.member_id: b"a"})
        world.commit(5, joined)
    if state == "PreparingRebalance":
        world.enter()
    if state == "Empty":
        world.leave(joined.member_id)
    assert world.state() == state
    world.fail_over()
    # Only what was stored is known: a group that never was complete has no members.
    known = state in ("Stable", "PreparingRebalance")
    assert world.state() == ("Stable" if known else "Empty" if state == "Empty" else "Dead")
    assert world.fetched() == (5 if known else -1)
    again = world.join(joined.member_id if known else "").value
    assert again.error_code == NONE
    assert world.sync(again, {again.member_id: b"b"}).value.assignment == b"b"


def test_what_is_answered_while_loading() -> None:
    world = World()
    (joined,) = world.stable()
    world.commit(3, joined)
    world.lose()
    world.lead(load=False)
    coordinator = world.coordinator
    loading = CoordinatorLoadInProgress.code
    assert world.join().value.error_code == loading
    assert world.sync(joined).value.error_code == RebalanceInProgress.code
    assert world.beat(joined) == NONE
    assert coordinator.leave(GROUP, [MemberIdentity("x", None)]) == (loading, [])
    assert coordinator.commit(GROUP, Caller(), {T0: OffsetAndMetadata(9)}) == {T0: loading}
    assert coordinator.fetch(GROUP, [T0]) == (loading, {})
    assert coordinator.describe(GROUP).error_code == loading
    assert coordinator.list_groups() == (loading, [])
    assert coordinator.delete_group(GROUP) == loading
    assert coordinator.delete_offsets(GROUP, [T0]).error_code == loading
    world.clock.advance(0.1)
    assert world.fetched() == 3


def test_not_here_and_not_yet() -> None:
    world = World(lead=False)
    assert world.join().value.error_code == NotCoordinator.code
    world.lead()
    assert world.join().is_waiting is False
    world.coordinator.stop()
    assert world.join().value.error_code == CoordinatorNotAvailable.code
    assert world.coordinator.list_groups() == (CoordinatorNotAvailable.code, [])


def test_nothing_is_served_before_the_partition_count_is_known() -> None:
    world = World(lead=False)
    world.count = None
    world.coordinator = world._make()
    world.lead()
    assert world.join().value.error_code == NotCoordinator.code
    world.count = 1
    world.lose()
    world.lead()
    assert world.join().value.error_code == NONE


def test_last_record_of_a_key_wins_and_tombstones_remove() -> None:
    other = TopicPartition("t", 1)
    world = loaded(
        encode_batch([offset_record(1), offset_record(2, partition=other)]),
        encode_batch([offset_record(5)]),
        encode_batch([tombstone(offset_key(GROUP, other), 1)], codec=Codec.GZIP),
    )
    assert (world.fetched(0), world.fetched(1)) == (5, -1)
    assert world.group().protocol_type is None


def test_group_without_offsets_that_was_removed_is_gone() -> None:
    world = World()
    (joined,) = world.stable()
    world.leave(joined.member_id)
    record = group_record(world.group(), {}, 1)
    world = loaded(encode_batch([record]), encode_batch([tombstone(group_key(GROUP), 1)]))
    assert world.group() is None


def transactional(*records: Record, producer_id: int = 9) -> bytearray:
    return encode_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(*, commit: bool, producer_id: int = 9) -> bytearray:
    return encode_marker(
        EndTransactionMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=1
    )


def test_open_transactions_stay_open_until_their_marker() -> None:
    world = loaded(encode_batch([offset_record(1)]), transactional(offset_record(5)))
    assert (world.fetched(), world.fetched(stable=True)) == (1, -88)
    world.coordinator.end_transaction(0, 9, commit=True)
    assert world.fetched(stable=True) == 5


def test_markers_in_the_log_decide() -> None:
    world = loaded(
        transactional(offset_record(5)),
        transactional(offset_record(6, partition=TopicPartition("t", 1)), producer_id=8),
        marker(commit=True),
        marker(commit=False, producer_id=8),
    )
    assert (world.fetched(0), world.fetched(1)) == (5, -1)


def test_plain_commit_behind_a_transactional_one_stays() -> None:
    world = loaded(
        transactional(offset_record(5)), encode_batch([offset_record(8)]), marker(commit=True)
    )
    assert world.fetched() == 8


def test_marker_that_comes_while_loading_is_read() -> None:
    world = World(lead=False)
    log = world.replicas.log(0)
    log.append(transactional(offset_record(5)))
    for number in range(3000):
        log.append(encode_batch([offset_record(number, partition=TopicPartition("x", number))]))
    world.lead(load=False)
    log.append(marker(commit=True))
    world.coordinator.end_transaction(0, 9, commit=True)
    world.clock.advance(0.1)
    assert world.fetched(stable=True) == 5


def test_loading_gives_way_to_the_loop() -> None:
    world = World(lead=False)
    log = world.replicas.log(0)
    for number in range(2000):
        log.append(encode_batch([offset_record(number, group=f"g{number}")]))
    reads = turns = 0
    real = world.clock.monotonic

    def slow() -> float:
        nonlocal reads
        reads += 1
        return real() + reads * 0.001

    def turn() -> None:
        nonlocal turns
        if world.coordinator.list_groups()[0]:
            turns += 1
            world.clock.call_later(0, turn)

    world.clock.monotonic = slow  # type: ignore[method-assign]
    world.lead(load=False)
    turn()
    world.clock.advance(0)
    assert turns > 20
    assert len(world.coordinator.list_groups()[1]) == 2000


def test_large_group_record_is_read() -> None:
    """KAFKA-7286: it is larger than the load buffer."""
    world = World(offsets_load_buffer_size="100")
    leader, follower = world.stable(2)
    world.sync(leader, {})
    assert len(world.replicas.log(0).batches[-1]) > 300
    world.fail_over()
    assert world.beat(follower) == NONE


def test_leadership_that_goes_and_comes_while_loading() -> None:
    world = World()
    world.commit(3)
    world.lose()
    world.lead(load=False)
    world.lose()
    world.lead(load=False)
    world.clock.advance(0.1)
    assert world.fetched() == 3


def test_log_that_cannot_be_read_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.commit(3)
    world.lose()
    log = world.replicas.log(0)
    log.failure = CorruptMessage("torn")
    world.lead(load=False)
    with caplog.at_level(logging.ERROR):
        world.clock.advance(0.5)
    assert "torn" in caplog.text
    assert world.join().value.error_code == CoordinatorLoadInProgress.code
    log.failure = None
    world.clock.advance(1.1)
    assert world.fetched() == 3


def test_odd_records_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    world = loaded(
        encode_batch(
            [
                Record(None, b"x", 1),
                Record(b"", b"x", 1),
                Record(b"\0\1\0", b"x", 1),
                Record(b"\0\x09\0\0", b"x", 1),
                Record(offset_key(GROUP, T0), b"\0\x09", 1),
                Record(offset_key(GROUP, TopicPartition("t", 1)), b"\0\3\0", 1),
                Record(group_key("h"), b"\0\3\0\1", 1),
                offset_record(5, partition=TopicPartition("t", 2)),
            ]
        )
    )
    assert [world.fetched(number) for number in range(3)] == [-1, -1, 5]
    assert caplog.text.count("skipped") == 7


def test_directory_that_failed_is_not_served() -> None:
    world = World()
    (joined,) = world.stable()
    world.replicas.gone.add(0)
    world.coordinator.drop_offline()
    assert world.beat(joined) == NotCoordinator.code


# -- formats -----------------------------------------------------------------------------------


def test_key_of_the_reference() -> None:
    key = offset_key("g", TopicPartition("t", 5))
    assert key.hex() == "0001000167000174" + "00000005"
    assert read_key(key) == ("g", TopicPartition("t", 5))
    assert read_key(encode_versioned(OffsetCommitKey(group="g", topic="t", partition=5), 0)) == (
        "g",
        TopicPartition("t", 5),
    )
    assert read_key(group_key("\u00e4")) == ("\u00e4", None)
    assert read_key(b"\0\3\0\0") is None


def test_quick_reading_of_records_agrees_with_the_careful_one() -> None:
    chance = random.Random(5)
    for _ in range(300):
        records = [
            Record(
                None
                if chance.random() < 0.1
                else chance.randbytes(chance.choice((0, 5, 63, 64, 9000))),
                None
                if chance.random() < 0.3
                else chance.randbytes(chance.choice((0, 9, 70, 20_000))),
                chance.choice((0, 1, 1 << 40)),
                ((b"h", b"v"),) if chance.random() < 0.2 else (),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        payload = RecordBatch(encode_batch(records)).payload()
        found = list(key_values(payload, len(records)))
        assert found == [(record.key, record.value) for record in records]
        cut = payload[: chance.randrange(len(payload))]
        with pytest.raises(MalformedRecord):
            list(key_values(cut, len(records)))


def test_negative_and_too_long_lengths_are_refused() -> None:
    for payload in (b"\x01", b"\x0e\0\0\0\x10\0\0", b"\xff" * 11, b"\x08\0\0\0\x01\x01"):
        with pytest.raises(MalformedRecord):
            list(key_values(payload, 1))


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_is_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=5, metadata="m", commit_timestamp=7, expire_timestamp=9, leader_epoch=2
    )
    found = read_offset(encode_versioned(value, version))
    assert found == OffsetAndMetadata(
        5, 2 if version >= 3 else -1, "m", 7, 9 if version == 1 else -1
    )


def test_written_offsets() -> None:
    plain = OffsetAndMetadata(5, 2, "\u00e4", 7)
    assert offset_value(plain)[:2] == b"\0\3"
    assert read_offset(offset_value(plain)) == plain
    expiring = OffsetAndMetadata(5, 2, "m", 7, 9)
    assert offset_value(expiring)[:2] == b"\0\1"
    assert read_offset(offset_value(expiring)) == expiring._replace(leader_epoch=-1)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="a",
        current_state_timestamp=8,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="a",
                group_instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout=5,
                session_timeout=6,
                subscription=b"s",
                assignment=b"p",
            )
        ],
    )
    group = read_group("g", encode_versioned(value, version))
    member = group.members["a"]
    assert (group.generation, group.leader, group.state.value) == (3, "a", "Stable")
    assert group.state_timestamp_ms == (8 if version >= 2 else None)
    assert member.rebalance_timeout_ms == (5 if version >= 1 else 6)
    assert member.instance_id == ("i" if version >= 3 else None)
    assert (member.metadata("range"), member.assignment) == (b"s", b"p")


def test_member_listed_twice_spoils_its_group_only(caplog: pytest.LogCaptureFixture) -> None:
    member = GroupMetadataValue.MemberMetadata(member_id="a")
    value = encode_versioned(GroupMetadataValue(protocol="", members=[member, member]), 3)
    world = loaded(encode_batch([Record(group_key("h"), value, 1), offset_record(5)]))
    assert world.fetched() == 5
    assert "listed twice" in caplog.text


@pytest.mark.parametrize(
    ("text", "partition"),
    [("test-group", 12), ("my-group", 12), ("", 0), ("polygenelubricants", 0)],
)
def test_partition_of_a_group(text: str, partition: int) -> None:
    assert abs_java_hash(text) % 50 == partition


def test_hash_is_that_of_java() -> None:
    assert abs_java_hash("test-group") == 627841412
    assert abs_java_hash("my-group") == 1906497762
    assert abs_java_hash("polygenelubricants") == 0  # its hash is -2**31
    assert abs_java_hash("\U0001f600") == 1772899  # two surrogates


def test_only_groups_of_the_right_partition_are_served() -> None:
    world = World(50, lead=False)
    world.lead(12)
    for group_id, code in (("test-group", NONE), ("my-group", NONE), ("g", NotCoordinator.code)):
        assert world.coordinator.check(group_id) == code
    answer = world.coordinator.join(join_call(group_id="test-group"))
    del answer
    world.clock.advance(0.02)
    assert [g.group_id for g in world.coordinator.list_groups()[1]] == ["test-group"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_versions_of_a_key_are_one_partition(order: tuple[int, int]) -> None:
    """Whichever was written last counts, for each of many groups, topics and partitions."""
    places = [(f"g{n % 7}", TopicPartition(f"t{n % 5}", n)) for n in range(300)]

    def batch(version: int, offset: int) -> bytearray:
        return encode_batch(
            [
                Record(
                    encode_versioned(
                        OffsetCommitKey(group=group, topic=at.topic, partition=at.partition),
                        version,
                    ),
                    offset_value(OffsetAndMetadata(offset + at.partition)),
                    1,
                )
                for group, at in places
            ]
        )

    world = loaded(*(batch(version, 1000 * n) for n, version in enumerate(order, 1)))
    for group, at in places:
        code, found = world.coordinator.fetch(group, [at])
        assert (code, found[at].offset) == (NONE, 2000 + at.partition)
