"""Groups of the newer protocol: what is told when, what time does, what is stored, migration."""

from collections.abc import Mapping
from typing import Any

import pytest

from kafkalike.broker.coordinator.consumer_groups import ConsumerGroups
from kafkalike.broker.coordinator.consumer_records import read_key
from kafkalike.broker.coordinator.consumer_values import HeartbeatCall, HeartbeatResult
from kafkalike.broker.coordinator.records import read_key as read_classic_key
from kafkalike.broker.coordinator.values import (
    Caller,
    JoinResult,
    OffsetAndMetadata,
)
from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from kafkalike.messages.stored import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerProtocolSubscription,
    encode_versioned,
)
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.settings import ConfigError
from kafkalike.types import TopicPartition

from .support import GROUP, Call, World, subscription, topic_id

Owned = Mapping[str, list[int]]


def make(**settings: str) -> World:
    properties: dict[str, Any] = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    world = World(**properties)
    world.topics.set("t", 4)
    return world


def groups(world: World) -> ConsumerGroups:
    assert world.coordinator.consumers is not None
    return world.coordinator.consumers


def beat(
    world: World,
    member: str,
    epoch: int,
    *,
    owned: Owned | None = None,
    group: str = GROUP,
    version: int = 1,
    sees: str = "",
    **more: Any,
) -> Call[HeartbeatResult]:
    parts = None
    if owned is not None:
        parts = {topic_id(topic): frozenset(numbers) for topic, numbers in owned.items()}
    return Call(
        groups(world).heartbeat(
            HeartbeatCall(
                group,
                member,
                epoch,
                version,
                "client",
                "/127.0.0.1",
                lambda topic: topic.startswith(sees),
                owned=parts,
                **more,
            )
        )
    )


def join(world: World, member: str, *topics: str, **more: Any) -> HeartbeatResult:
    more = {"topics": list(topics or ("t",)), "rebalance_timeout_ms": 10_000, **more}
    return beat(world, member, 0, owned={}, **more).value


def shown(result: HeartbeatResult) -> tuple[int, int, dict[str, list[int]] | None]:
    """(code, epoch, assignment) of an answer."""
    assigned = None
    if result.assigned is not None:
        assigned = {
            topic.rstrip(b"\0").decode(): sorted(numbers)
            for topic, numbers in result.assigned.items()
        }
    return result.error_code, result.member_epoch, assigned


def state(world: World, group: str = GROUP) -> str:
    return groups(world).describe(group).state


def two(world: World) -> None:
    """Members a and b with two partitions each, in epoch 2."""
    join(world, "a")
    join(world, "b")
    kept = shown(beat(world, "a", 1).value)[2]
    assert kept is not None
    assert shown(beat(world, "a", 1, owned=kept).value)[:2] == (NONE, 2)
    assert shown(beat(world, "b", 2).value)[2] is not None
    assert state(world) == "Stable"


def kinds(world: World) -> list[tuple[int, bool]]:
    """(kind of key, is it a tombstone) of all records."""
    return [
        (int.from_bytes((record.key or b"")[:2], "big"), record.value is None)
        for record in world.replicas.log(0).records()
    ]


# -- configuration -----------------------------------------------------------------------------


def test_is_off_unless_named() -> None:
    world = World()
    assert world.coordinator.consumers is None
    assert not parsed(**{"group.coordinator.rebalance.protocols": "classic"})
    assert parsed(**{"group.coordinator.rebalance.protocols": "consumer,classic"})


def parsed(**settings: str) -> bool:
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "z", **settings})
    return config.serves_consumer_protocol


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.coordinator.rebalance.protocols", "consumer"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,share"),
        ("group.consumer.assignors", "sticky"),
        ("group.consumer.migration.policy", "sideways"),
        ("group.consumer.session.timeout.ms", "1000"),
        ("group.consumer.heartbeat.interval.ms", "60000"),
        ("group.consumer.max.session.timeout.ms", "100"),
    ],
)
def test_settings_that_cannot_be(key: str, value: str) -> None:
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with pytest.raises(ConfigError, match=key):
        parsed(**{**protocols, key: value})


def test_assignors_are_named_in_two_ways() -> None:
    world = make(group_consumer_assignors="range")
    join(world, "a")
    assert groups(world).describe(GROUP).assignor == "range"
    assert join(world, "b", assignor="uniform").error_code == UnsupportedAssignor.code


# -- what is told when -------------------------------------------------------------------------


def test_members_hear_what_is_replicated() -> None:
    world = make()
    join(world, "a")
    world.replicas.held = True
    joining = beat(world, "b", 0, owned={}, topics=["t"], rebalance_timeout_ms=1000)
    assert joining.is_waiting
    repeated = beat(world, "b", 0, owned={}, topics=["t"], rebalance_timeout_ms=1000)
    unchanged = beat(world, "b", 2)
    assert repeated.is_waiting
    assert unchanged.is_waiting
    world.replicas.release()
    assert shown(joining.value)[:2] == (NONE, 2)
    assert shown(repeated.value)[:2] == (NONE, 2)
    assert shown(unchanged.value) == (NONE, 2, None)
    world.replicas.held = False
    assert not beat(world, "b", 2).is_waiting


def test_what_timed_out_is_not_told_until_it_is_replicated() -> None:
    world = make()
    world.replicas.held = True
    joining = beat(world, "a", 0, owned={}, topics=["t"], rebalance_timeout_ms=1000)
    world.replicas.release(RequestTimedOut.code)
    assert joining.value.error_code == CoordinatorNotAvailable.code
    in_vain, later = beat(world, "a", 1), beat(world, "a", 1)
    world.clock.advance(4)
    late = beat(world, "a", 1)
    world.clock.advance(2)
    assert in_vain.value.error_code == later.value.error_code == CoordinatorNotAvailable.code
    assert late.is_waiting
    world.replicas.log(0).high_watermark = world.replicas.log(0).log_end_offset
    world.clock.advance(0.1)
    assert shown(late.value)[:2] == (NONE, 1)
    assert not beat(world, "a", 1).is_waiting


def test_new_coordinator_tells_what_is_replicated() -> None:
    world = make()
    world.replicas.held = True
    joining = beat(world, "a", 0, owned={}, topics=["t"], rebalance_timeout_ms=1000)
    world.fail_over()
    assert joining.value.error_code == NotCoordinator.code
    waiting = beat(world, "a", 1)
    assert waiting.is_waiting
    world.lose()
    world.clock.advance(0.1)
    assert waiting.value.error_code == NotCoordinator.code


def test_what_is_not_written_did_not_happen() -> None:
    world = make()
    two(world)
    before = groups(world).describe(GROUP)
    world.replicas.code = NotEnoughReplicas.code
    assert join(world, "c").error_code == CoordinatorNotAvailable.code
    assert beat(world, "a", -1).value.error_code == CoordinatorNotAvailable.code
    assert beat(world, "a", 2, topics=["x"]).value.error_code == CoordinatorNotAvailable.code
    world.clock.advance(44)
    assert beat(world, "a", 2).value.error_code == NONE
    world.clock.advance(2)  # b's time is over, but that cannot be written
    assert groups(world).describe(GROUP) == before
    world.replicas.code = 0
    world.clock.advance(1)
    assert [m.member.member_id for m in groups(world).describe(GROUP).members] == ["a"]


def test_new_group_that_is_not_written_does_not_exist() -> None:
    world = make()
    world.replicas.code = NotEnoughReplicas.code
    assert join(world, "a").error_code == CoordinatorNotAvailable.code
    assert groups(world).describe(GROUP).error_code == GroupIdNotFound.code
    world.replicas.code = 0
    assert shown(join(world, "a")) == (NONE, 1, {"t": [0, 1, 2, 3]})


def test_leadership_goes_while_a_member_waits() -> None:
    world = make()
    world.replicas.held = True
    joining = beat(world, "a", 0, owned={}, topics=["t"], rebalance_timeout_ms=1000)
    world.fail_over(loses=True)
    assert joining.value.error_code == NotCoordinator.code
    assert groups(world).describe(GROUP).error_code == GroupIdNotFound.code


def test_nothing_is_decided_before_the_topics_are_known() -> None:
    world = make()
    world.topics.is_known = False
    assert join(world, "a").error_code == CoordinatorLoadInProgress.code


def test_nothing_is_decided_for_classic_members_before_the_topics_are_known() -> None:
    world = make()
    classic = classic_member(world)
    join(world, "n")
    again = world.join(classic.member_id, protocols=(("range", subscription("t")),)).value
    world.topics.is_known = False
    assert world.join(classic.member_id).value.error_code == CoordinatorLoadInProgress.code
    assert world.sync(again, {}).value.error_code == RebalanceInProgress.code
    world.topics.is_known = True
    assert world.sync(again, {}).value.error_code == NONE


# -- time --------------------------------------------------------------------------------------


def test_silent_member_is_removed() -> None:
    world = make()
    two(world)
    for _ in range(8):
        world.clock.advance(5)
        assert shown(beat(world, "a", 2).value) == (NONE, 2, None)
    world.clock.advance(6)
    assert [m.member.member_id for m in groups(world).describe(GROUP).members] == ["a"]
    code, epoch, owned = shown(beat(world, "a", 2).value)
    assert (code, epoch, owned) == (NONE, 3, {"t": [0, 1, 2, 3]})
    assert beat(world, "b", 2).value.error_code == UnknownMemberId.code


def test_member_that_keeps_its_partitions_is_removed() -> None:
    world = make()
    join(world, "a", rebalance_timeout_ms=8000)
    join(world, "b")
    everything = {"t": [0, 1, 2, 3]}
    beat(world, "a", 1)
    for _ in range(3):
        world.clock.advance(2.5)
        assert shown(beat(world, "a", 1, owned=everything).value)[:2] == (NONE, 1)
    world.clock.advance(1)
    assert beat(world, "a", 1, owned=everything).value.error_code == UnknownMemberId.code
    assert shown(beat(world, "b", 2).value)[2] == everything


def test_revocation_goes_on_after_a_fail_over() -> None:
    world = make()
    join(world, "a", rebalance_timeout_ms=8000)
    join(world, "b")
    beat(world, "a", 1)
    world.fail_over()
    world.clock.advance(7)
    assert shown(beat(world, "a", 1).value)[:2] == (NONE, 1)
    world.clock.advance(2)
    assert beat(world, "a", 1).value.error_code == UnknownMemberId.code


def test_static_member_is_waited_for_until_its_session_ends() -> None:
    world = make()
    join(world, "a", instance_id="i")
    join(world, "b")
    kept = shown(beat(world, "a", 1, instance_id="i").value)[2]
    beat(world, "a", 1, owned=kept, instance_id="i")
    beat(world, "b", 2)
    assert beat(world, "a", -2, instance_id="i").value.error_code == NONE
    world.clock.advance(20)
    assert shown(beat(world, "b", 2).value) == (NONE, 2, None)
    world.clock.advance(26)
    assert shown(beat(world, "b", 2).value) == (NONE, 3, {"t": [0, 1, 2, 3]})


def test_sessions_of_groups_end_only_once() -> None:
    """Timers of a coordinator that was replaced do nothing."""
    world = make()
    two(world)
    world.fail_over()
    world.clock.advance(44)
    assert beat(world, "a", 2).value.error_code == NONE
    assert beat(world, "b", 2).value.error_code == NONE
    world.clock.advance(44)
    assert len(groups(world).describe(GROUP).members) == 2


# -- limits and errors -------------------------------------------------------------------------


def test_largest_group() -> None:
    world = make(group_consumer_max_size="1")
    join(world, "a")
    assert join(world, "b").error_code == GroupMaxSizeReached.code
    assert beat(world, "a", 1).value.error_code == NONE


def test_errors_have_their_words() -> None:
    world = make()
    join(world, "a")
    assert beat(world, "a", 7).value.error_message is not None
    assert beat(world, "a", 7).value.error_code == FencedMemberEpoch.code
    assert beat(world, "", 1).value.error_code == InvalidRequest.code
    answer = join(world, "b", regex="(", topics=None)
    assert answer.error_code == InvalidRegularExpression.code
    assert answer.error_message is not None
    assert "missing closing )" in answer.error_message
    assert len(groups(world).describe(GROUP).members) == 1


# -- storage -----------------------------------------------------------------------------------


def test_records_of_a_group_that_comes_and_goes() -> None:
    world = make()
    join(world, "a")
    assert kinds(world) == [(5, False), (3, False), (7, False), (6, False), (8, False)]
    beat(world, "a", 1)
    beat(world, "a", -1)
    assert kinds(world)[5:] == [(8, True), (7, True), (5, True), (3, False)]
    assert world.coordinator.delete_group(GROUP) == NONE
    assert kinds(world)[9:] == [(6, True), (4, True), (3, True)]
    world.fail_over()
    assert groups(world).describe(GROUP).error_code == GroupIdNotFound.code


def test_everything_survives_a_fail_over() -> None:
    world = make()
    two(world)
    join(world, "c", "x", instance_id="i", rack_id="r", assignor="range")
    commit(world, "a", 2, 5)
    before = groups(world).describe(GROUP)
    assert {m.member.member_id for m in before.members} == {"a", "b", "c"}
    world.fail_over()
    after = groups(world).describe(GROUP)
    after.members.sort(key=lambda m: m.member.member_id)
    before.members.sort(key=lambda m: m.member.member_id)
    assert after == before
    assert world.fetched() == 5


def test_record_of_an_older_kafka_is_taken_over() -> None:
    world = make()
    join(world, "a")
    key = encode_versioned(ConsumerGroupPartitionMetadataKey(group_id=GROUP), 4)
    value = encode_versioned(ConsumerGroupPartitionMetadataValue(), 0)
    world.replicas.log(0).append(bytearray(encode_batch([Record(key, value, 0)])))
    world.replicas.log(0).high_watermark = world.replicas.log(0).log_end_offset
    world.fail_over()
    assert beat(world, "a", 1).value.error_code == NONE
    assert kinds(world)[-1] == (4, True)


def test_switched_off_the_records_are_passed_over() -> None:
    world = make()
    join(world, "a")
    commit(world, "a", 1, 5)
    off = World(lead=False)
    off.replicas = world.replicas
    off.coordinator = off._make()
    off.lead()
    assert off.coordinator.describe(GROUP).state == "Empty"
    assert off.fetched() == 5


# -- offsets -----------------------------------------------------------------------------------


def commit(
    world: World, member: str, epoch: int, offset: int, *, version: int = 9, topic: str = "t"
) -> int:
    key = TopicPartition(topic, 0)
    value = OffsetAndMetadata(offset, commit_timestamp=world.clock.now_ms())
    caller = Caller(epoch, member)
    result = world.coordinator.commit(GROUP, caller, {key: value}, version=version)
    assert isinstance(result, dict)
    return result[key]


def test_commits_need_the_epoch() -> None:
    world = make()
    join(world, "a")
    assert commit(world, "a", 1, 1) == NONE
    assert commit(world, "a", 0, 2) == StaleMemberEpoch.code
    assert commit(world, "b", 1, 2) == UnknownMemberId.code
    assert commit(world, "a", 1, 2, version=8) == UnsupportedVersion.code
    assert commit(world, "", -1, 2) == UnknownMemberId.code
    assert world.fetched() == 1
    code, _ = world.coordinator.fetch(GROUP, None, member_id="a", member_epoch=7)
    assert code == StaleMemberEpoch.code


@pytest.mark.parametrize("member_id", [None, ""])
def test_fetch_with_an_epoch_needs_a_member(member_id: str | None) -> None:
    """Kafka has an exception of its own in the way here (docs/differences.md)."""
    world = make()
    join(world, "a")
    code, _ = world.coordinator.fetch(GROUP, None, member_id=member_id, member_epoch=1)
    assert code == UnknownMemberId.code


def test_offsets_of_topics_that_nobody_reads_expire() -> None:
    world = make(offsets_retention_minutes="10")
    join(world, "a")
    commit(world, "a", 1, 1)
    commit(world, "a", 1, 1, topic="old")
    for _ in range(60):
        world.clock.advance(40)
        assert beat(world, "a", 1).value.error_code == NONE
    assert world.fetched(topic="old") == -1
    assert world.fetched() == 1


def test_vacant_group_ends() -> None:
    world = make(offsets_retention_minutes="10")
    join(world, "a")
    commit(world, "a", 1, 1)
    beat(world, "a", -1)
    assert state(world) == "Empty"
    for _ in range(4):
        world.clock.advance(601)
    assert world.fetched() == -1
    assert groups(world).describe(GROUP).error_code == GroupIdNotFound.code
    assert kinds(world)[-1] == (3, True)
    assert world.coordinator.list_groups() == (NONE, [])


def test_deletion() -> None:
    world = make()
    join(world, "a")
    commit(world, "a", 1, 1)
    assert world.coordinator.delete_group(GROUP) == NonEmptyGroup.code
    beat(world, "a", -1)
    assert world.coordinator.delete_group(GROUP) == NONE
    assert world.fetched() == -1
    assert world.coordinator.delete_group(GROUP) == GroupIdNotFound.code


# -- regular expressions -----------------------------------------------------------------------


def test_topics_by_regular_expression() -> None:
    world = make()
    for topic in ("t1", "t2", "u1"):
        world.topics.set(topic, 1)
    assert shown(join(world, "a", regex="t.+", topics=None)) == (NONE, 1, {})
    world.clock.advance(0.1)
    assert shown(beat(world, "a", 1).value) == (NONE, 2, {"t1": [0], "t2": [0]})
    world.topics.set("t3", 1)
    assert shown(beat(world, "a", 2).value) == (NONE, 2, None)
    world.clock.advance(11)
    beat(world, "a", 2)
    world.clock.advance(0.1)
    assert shown(beat(world, "a", 2).value) == (NONE, 3, {"t1": [0], "t2": [0], "t3": [0]})


def test_topics_that_may_not_be_seen_do_not_match() -> None:
    world = make()
    world.topics.set("t1", 1)
    join(world, "a", regex=".*", topics=None, sees="t1")
    world.clock.advance(0.1)
    assert shown(beat(world, "a", 1).value)[2] == {"t1": [0]}


def test_expressions_survive_a_fail_over_and_are_looked_for_anew() -> None:
    world = make()
    join(world, "a", regex="t.*", topics=None)
    world.clock.advance(0.1)
    assert shown(beat(world, "a", 1).value)[:2] == (NONE, 2)
    world.fail_over()
    world.topics.set("t9", 1)
    world.clock.advance(11)
    beat(world, "a", 2)
    world.clock.advance(0.1)
    assert shown(beat(world, "a", 2).value)[:2] == (NONE, 3)
    beat(world, "a", -1)
    assert (16, True) in kinds(world)


# -- migration ---------------------------------------------------------------------------------


def classic_member(world: World, **more: Any) -> JoinResult:
    """The only member of a classic group, with two partitions."""
    from kafkalike.messages.stored import ConsumerProtocolAssignment

    part = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1, 2, 3])
    assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[part]), 1)
    joined = world.enter(**more).value
    assert joined.error_code == NONE
    assert world.sync(joined, {joined.member_id: assignment}).value.error_code == NONE
    return joined


def test_classic_group_becomes_one_of_the_newer_protocol_and_back() -> None:
    world = make()
    classic = classic_member(world)
    commit_classic = world.commit(7, classic)
    assert commit_classic.value == NONE
    assert shown(join(world, "n"))[:2] == (NONE, 2)
    assert [g.group_type for g in world.coordinator.list_groups()[1]] == ["consumer"]
    assert world.fetched() == 7
    assert world.beat(classic) == RebalanceInProgress.code
    again = world.join(classic.member_id, protocols=(("range", subscription("t")),)).value
    assert (again.error_code, again.generation) == (NONE, 2)
    assert beat(world, "n", -1).value.error_code == NONE
    assert [g.group_type for g in world.coordinator.list_groups()[1]] == ["classic"]
    assert world.state() == "PreparingRebalance"
    last = world.join(classic.member_id).value
    assert last.generation > 2
    assert world.fetched() == 7
    assert kinds(world).count((2, True)) == 1


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0\0\5"])
def test_subscription_of_a_classic_member_that_cannot_be_read(data: bytes) -> None:
    """Kafka has an exception of its own in the way here (docs/differences.md)."""
    world = make()
    join(world, "a")
    refused = world.join(protocols=(("range", data),)).value
    assert refused.error_code == InconsistentGroupProtocol.code
    assert [m.member.member_id for m in groups(world).describe(GROUP).members] == ["a"]
    assert shown(beat(world, "a", 1).value)[:2] == (NONE, 1)


def test_rack_of_a_classic_member_that_is_empty_is_none() -> None:
    world = make()
    join(world, "a")
    said = encode_versioned(ConsumerProtocolSubscription(topics=["t"], rack_id=""), 3)
    assert world.join(protocols=(("range", said),)).value.error_code == NONE
    assert [m.member.rack_id for m in groups(world).describe(GROUP).members] == [None, None]


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1"])
def test_group_with_an_assignment_that_cannot_be_read_stays_classic(data: bytes) -> None:
    """Kafka has an exception of its own in the way here (docs/differences.md)."""
    world = make()
    joined = world.enter().value
    assert world.sync(joined, {joined.member_id: data}).value.error_code == NONE
    assert join(world, "n").error_code == GroupIdNotFound.code
    assert world.beat(joined) == NONE


def test_migration_survives_a_fail_over_at_each_step() -> None:
    world = make()
    classic = classic_member(world)
    world.fail_over()
    assert shown(join(world, "n"))[:2] == (NONE, 2)
    world.fail_over()
    assert world.beat(classic) == RebalanceInProgress.code
    beat(world, "n", -1)
    world.fail_over()
    assert world.state() == "Stable"
    assert groups(world).describe(GROUP).error_code == GroupIdNotFound.code


def test_upgrade_that_is_not_written_leaves_the_classic_group() -> None:
    world = make()
    classic = classic_member(world)
    world.replicas.code = NotEnoughReplicas.code
    assert join(world, "n").error_code == CoordinatorNotAvailable.code
    world.replicas.code = 0
    assert world.beat(classic) == NONE
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("Upgrade", True, False),
        ("downgrade", False, True),
        ("DISABLED", False, False),
    ],
)
def test_policy(policy: str, up: bool, down: bool) -> None:
    world = make(group_consumer_migration_policy=policy)
    classic_member(world)
    code = join(world, "n").error_code
    assert code == (NONE if up else GroupIdNotFound.code)
    other = make(group_consumer_migration_policy=policy)
    join(other, "n")
    joined = other.enter().value
    assert joined.error_code == NONE
    beat(other, "n", -1)
    kind = other.coordinator.list_groups()[1][0].group_type
    assert kind == ("classic" if down else "consumer")


def test_classic_member_that_is_silent_or_does_not_sync_is_removed() -> None:
    world = make()
    join(world, "n", rebalance_timeout_ms=60_000)
    joined = world.enter(session_ms=50_000, rebalance_ms=5000).value
    assert joined.error_code == NONE
    for _ in range(3):
        world.clock.advance(2)
        beat(world, "n", 1)
    assert [m.member.member_id for m in groups(world).describe(GROUP).members] == ["n"]
    joined = world.enter(session_ms=8000, rebalance_ms=60_000).value
    world.sync(joined)
    for _ in range(3):
        world.clock.advance(3)
        beat(world, "n", 1)
    assert [m.member.member_id for m in groups(world).describe(GROUP).members] == ["n"]


def test_removal_by_an_administrator() -> None:
    world = make()
    join(world, "n")
    joined = world.join(instance_id="i").value
    assert world.leave("", "i") == NONE
    assert world.beat(joined, "i") == UnknownMemberId.code


def test_keys_are_told_apart() -> None:
    world = make()
    join(world, "a")
    commit(world, "a", 1, 1)
    for record in world.replicas.log(0).records():
        assert record.key is not None
        is_consumer = read_key(record.key) is not None
        assert is_consumer == (read_classic_key(record.key) is None)
