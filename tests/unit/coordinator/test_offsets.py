"""Committed offsets: who may commit, when they count, when they go."""

import pytest

from kafkalike.broker.coordinator.offsets import GroupOffsets
from kafkalike.broker.coordinator.records import read_key
from kafkalike.broker.coordinator.values import Caller, OffsetAndMetadata
from kafkalike.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from kafkalike.types import TopicPartition

from .support import GROUP, World, subscription

T0 = TopicPartition("t", 0)
DAY_S = 86_400.0
UNSTABLE = -UnstableOffsetCommit.code


def tombstones(world: World) -> list[object]:
    """What the records without value were about, in order."""
    return [
        read_key(record.key)
        for record in world.replicas.log(0).records()
        if record.value is None and record.key is not None
    ]


def test_offset_counts_when_it_is_replicated() -> None:
    world = World()
    world.replicas.held = True
    first = world.commit(5)
    assert first.is_waiting
    assert (world.fetched(), world.fetched(stable=True)) == (-1, UNSTABLE)
    second = world.commit(7)
    world.replicas.release()
    assert (first.value, second.value) == (NONE, NONE)
    assert world.fetched() == world.fetched(stable=True) == 7
    assert world.replicas.required_acks == [-1, -1]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (NotEnoughReplicas.code, CoordinatorNotAvailable.code),
        (20, CoordinatorNotAvailable.code),
        (3, CoordinatorNotAvailable.code),
        (6, NotCoordinator.code),
        (56, NotCoordinator.code),
        (10, InvalidCommitOffsetSize.code),
        (RequestTimedOut.code, RequestTimedOut.code),
        (13, 14),
    ],
)
def test_commit_that_fails_changes_nothing(code: int, told: int) -> None:
    world = World()
    assert world.commit(5).value == NONE
    world.replicas.held = True
    call = world.commit(9)
    world.replicas.release(code)
    assert call.value == told
    assert world.fetched() == world.fetched(stable=True) == 5


def test_later_record_wins_whichever_is_confirmed_first() -> None:
    offsets = GroupOffsets()
    old, new = OffsetAndMetadata(1), OffsetAndMetadata(2)
    offsets.begin({T0: old})
    offsets.begin({T0: new})
    offsets.confirm({T0: new}, 11)
    offsets.confirm({T0: old}, 10)
    assert offsets.get(T0) is new
    assert not offsets.is_unstable(T0)


def test_equal_commits_are_told_apart() -> None:
    offsets = GroupOffsets()
    one, other = OffsetAndMetadata(1), OffsetAndMetadata(1)
    offsets.begin({T0: one})
    offsets.begin({T0: other})
    offsets.confirm({T0: one}, 10)
    assert offsets.is_unstable(T0)
    offsets.fail({T0: other})
    assert not offsets.is_unstable(T0)


def test_metadata_is_counted_in_characters() -> None:
    world = World(offset_metadata_max_bytes="4")
    assert world.commit(1, metadata="\u00e4" * 4).value == NONE
    assert world.commit(1, metadata="\U0001f600" * 2).value == NONE
    assert world.commit(1, metadata="\U0001f600" * 2 + "x").value == OffsetMetadataTooLarge.code
    values = {
        T0: OffsetAndMetadata(8, metadata="12345"),
        TopicPartition("t", 1): OffsetAndMetadata(9),
    }
    codes = world.coordinator.commit(GROUP, Caller(), values)
    assert codes == {T0: OffsetMetadataTooLarge.code, TopicPartition("t", 1): NONE}
    assert (world.fetched(0), world.fetched(1)) == (1, 9)


def test_who_may_commit() -> None:
    world = World()
    assert world.coordinator.commit(GROUP, Caller(3), {T0: OffsetAndMetadata(1)}) == {
        T0: IllegalGeneration.code
    }
    assert world.commit(1).value == NONE
    joined = world.enter().value
    assert world.commit(2).value == UnknownMemberId.code
    assert world.commit(2, joined).value == RebalanceInProgress.code
    world.sync(joined, {})
    assert world.commit(2, joined).value == NONE
    newcomer = world.enter()
    assert world.commit(3, joined).value == NONE
    again = world.join(joined.member_id).value
    world.sync(newcomer.value)
    world.sync(again, {})
    assert world.commit(4, joined).value == IllegalGeneration.code
    assert world.fetched() == 3


def test_commit_keeps_the_session() -> None:
    world = World()
    (joined,) = world.stable()
    for offset in range(20):
        world.clock.advance(9)
        assert world.commit(offset, joined).value == NONE
    assert world.state() == "Stable"


# -- expiry ------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_protocol_expire_by_their_commit() -> None:
    world = World()
    world.commit(1)
    world.clock.advance(6 * DAY_S)
    world.commit(2, partition=1)
    world.clock.advance(DAY_S + 700)
    assert (world.fetched(0), world.fetched(1)) == (-1, 2)
    world.clock.advance(6 * DAY_S)
    assert world.group() is None
    assert tombstones(world) == [(GROUP, T0), (GROUP, TopicPartition("t", 1))]


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty() -> None:
    world = World()
    (joined,) = world.stable(session_ms=1_000_000)
    world.commit(1, joined)
    for _ in range(2000):
        world.clock.advance(500)
        world.beat(joined)
    world.leave(joined.member_id)
    world.clock.advance(6.9 * DAY_S)
    assert world.fetched() == 1
    world.clock.advance(0.2 * DAY_S)
    assert world.fetched() == -1
    assert tombstones(world) == [(GROUP, T0), (GROUP, None)]


def test_offsets_of_topics_that_nobody_reads_any_more_expire() -> None:
    world = World(offsets_retention_minutes="60", offsets_retention_check_interval_ms="60000")
    (joined,) = world.stable(session_ms=600_000, protocols=(("range", subscription("t")),))
    old = TopicPartition("old", 0)
    caller = Caller(joined.generation, joined.member_id)
    value = OffsetAndMetadata(3, commit_timestamp=world.clock.now_ms())
    assert world.coordinator.commit(GROUP, caller, {old: value, T0: value}) == {old: 0, T0: 0}
    for _ in range(14):
        world.clock.advance(300)
        world.beat(joined)
    assert (world.fetched(topic="old"), world.fetched()) == (-1, 3)


def test_own_expiry_time_goes_before_the_rule() -> None:
    world = World(offsets_retention_check_interval_ms="1000")
    world.commit(1, expire_timestamp=world.clock.now_ms() + 5000)
    world.commit(2, partition=1)
    world.clock.advance(4)
    assert world.fetched() == 1
    world.clock.advance(2.5)
    assert (world.fetched(0), world.fetched(1)) == (-1, 2)


def test_nothing_expires_while_it_is_being_committed() -> None:
    world = World(offsets_retention_check_interval_ms="1000", offsets_retention_minutes="1")
    world.commit(1)
    world.clock.advance(50)
    world.replicas.held = True
    call = world.commit(2)
    world.clock.advance(20)
    assert world.fetched() == 1
    world.replicas.release()
    assert call.value == NONE
    assert world.fetched() == 2


def test_loaded_offsets_keep_their_age() -> None:
    """KAFKA-8069: they neither expire on load nor become young again."""
    world = World()
    world.commit(1)
    world.clock.advance(6 * DAY_S)
    world.fail_over()
    world.clock.advance(700)
    assert world.fetched() == 1
    world.clock.advance(DAY_S)
    assert world.fetched() == -1


# -- removal -----------------------------------------------------------------------------------


def test_deleted_topics_take_their_offsets_with_them() -> None:
    world = World()
    world.commit(1)
    world.commit(2, partition=1)
    world.coordinator.partitions_removed([T0])
    world.clock.advance(0.1)
    assert (world.fetched(0), world.fetched(1)) == (-1, 2)
    assert tombstones(world) == [(GROUP, T0)]


def test_offset_on_its_way_goes_with_its_topic() -> None:
    world = World()
    world.commit(2, partition=1)
    world.replicas.held = True
    call = world.commit(1)
    world.coordinator.partitions_removed([T0])
    world.clock.advance(0.1)
    world.replicas.release()
    assert call.value == NONE
    assert world.fetched() == -1
    world.fail_over()
    assert (world.fetched(0), world.fetched(1)) == (-1, 2)


def test_delete_offsets() -> None:
    world = World()
    assert world.coordinator.delete_offsets(GROUP, [T0]).error_code == GroupIdNotFound.code
    (joined,) = world.stable()
    world.commit(1, joined)
    assert world.coordinator.delete_offsets(GROUP, [T0]).codes == {T0: 86}
    world.leave(joined.member_id)
    assert world.coordinator.delete_offsets(GROUP, [T0]).codes == {T0: NONE}
    assert world.fetched() == -1
    world.fail_over()
    assert world.fetched() == -1


def test_delete_group() -> None:
    world = World()
    (joined,) = world.stable()
    world.commit(1, joined)
    assert world.coordinator.delete_group(GROUP) == NonEmptyGroup.code
    world.leave(joined.member_id)
    assert world.coordinator.delete_group(GROUP) == NONE
    assert world.coordinator.delete_group(GROUP) == GroupIdNotFound.code
    assert world.state() == "Dead"
    world.fail_over()
    assert world.group() is None


def test_commit_under_way_does_not_bring_a_deleted_group_back() -> None:
    world = World()
    world.commit(1)
    world.replicas.held = True
    call = world.commit(2)
    assert world.coordinator.delete_group(GROUP) == NONE
    world.replicas.release()
    assert call.value == NONE
    world.fail_over()
    assert world.group() is None


# -- transactions ------------------------------------------------------------------------------


def transactional(world: World, offset: int, *, producer_id: int = 9) -> object:
    return world.coordinator.commit_transactional(
        GROUP,
        Caller(),
        {T0: OffsetAndMetadata(offset, commit_timestamp=world.clock.now_ms())},
        producer_id=producer_id,
        producer_epoch=0,
    )


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    world = World()
    world.commit(1)
    assert transactional(world, 5) == {T0: NONE}
    assert (world.fetched(), world.fetched(stable=True)) == (1, UNSTABLE)
    world.coordinator.end_transaction(0, 9, commit=True)
    assert world.fetched() == world.fetched(stable=True) == 5


def test_offsets_of_an_aborted_transaction_are_forgotten() -> None:
    world = World()
    world.commit(1)
    transactional(world, 5)
    world.coordinator.end_transaction(0, 9, commit=False)
    assert world.fetched() == world.fetched(stable=True) == 1


def test_plain_commit_after_that_of_an_open_transaction_stays() -> None:
    world = World()
    transactional(world, 5)
    world.commit(8)
    world.coordinator.end_transaction(0, 9, commit=True)
    assert world.fetched() == 8


def test_group_with_an_open_transaction_does_not_expire() -> None:
    world = World()
    transactional(world, 5)
    world.clock.advance(8 * DAY_S)
    assert world.fetched(stable=True) == UNSTABLE


def test_commit_that_fails_takes_no_earlier_one_with_it() -> None:
    """Two commits of a partition are on their way; the later one is refused at once."""
    world = World()
    world.replicas.held = True
    first = world.commit(1)
    world.replicas.code = NotEnoughReplicas.code
    assert world.commit(2).value != NONE
    world.replicas.code = 0
    assert world.fetched(stable=True) == -UnstableOffsetCommit.code
    world.replicas.release()
    assert first.value == NONE
    assert world.fetched(stable=True) == 1
