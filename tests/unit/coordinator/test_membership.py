"""How members join, stay and leave, in virtual time."""

import pytest

from kafkalike.broker.coordinator.values import CONSUMER_PROTOCOL, Caller
from kafkalike.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnknownServerError,
)

from .support import GROUP, World, subscription

SESSION_S = 10.0
OTHER = (("range", subscription("other")),)


def test_first_member_waits_for_the_initial_delay() -> None:
    world = World(group_initial_rebalance_delay_ms="3000")
    first = world.enter()
    world.clock.advance(2.9)
    assert first.is_waiting
    world.clock.advance(0.2)
    joined = first.value
    assert (joined.error_code, joined.generation, joined.leader) == (NONE, 1, joined.member_id)
    assert joined.protocol_type == CONSUMER_PROTOCOL
    assert [member.member_id for member in joined.members] == [joined.member_id]


def test_initial_delay_is_prolonged_by_newcomers_up_to_the_rebalance_timeout() -> None:
    world = World(group_initial_rebalance_delay_ms="3000")
    calls = [world.enter(rebalance_ms=7000)]
    for _ in range(3):
        world.clock.advance(2.0)
        calls.append(world.enter(rebalance_ms=7000))
    world.clock.advance(0.5)
    # 3 s, 3 s more, then the 1 s that is left of 7: the first timer ended with newcomers.
    assert all(call.is_waiting for call in calls)
    world.clock.advance(0.6)
    assert [call.value.generation for call in calls] == [1] * 4
    assert len(calls[0].value.members) == 4
    assert all(not call.value.members for call in calls[1:])


def test_pending_member_holds_up_the_join_phase_until_its_session_ends() -> None:
    world = World()
    (leader,) = world.stable()
    required = world.join(needs_known_id=True).value
    assert required.error_code == MemberIdRequired.code
    again = world.join(leader.member_id)
    assert again.is_waiting
    world.clock.advance(SESSION_S + 0.1)
    assert again.value.generation == 2
    assert world.join(required.member_id).value.error_code == UnknownMemberId.code


def test_rebalance_ends_without_those_who_do_not_come() -> None:
    world = World()
    leader, follower, silent = world.stable(3, rebalance_ms=15_000, session_ms=60_000)
    again = world.join(leader.member_id, rebalance_ms=15_000)
    other = world.join(follower.member_id, rebalance_ms=15_000)
    assert world.beat(silent) == RebalanceInProgress.code
    world.clock.advance(14.9)
    assert again.is_waiting
    world.clock.advance(0.2)
    assert again.value.generation == 3
    assert {m.member_id for m in again.value.members} == {leader.member_id, follower.member_id}
    assert other.value.generation == 3
    assert world.beat(silent) == UnknownMemberId.code


def test_leader_that_does_not_come_is_replaced() -> None:
    world = World()
    leader, follower = world.stable(2, rebalance_ms=15_000, session_ms=60_000)
    again = world.join(follower.member_id, protocols=OTHER, rebalance_ms=15_000)
    world.clock.advance(15.1)
    assert again.value.leader == follower.member_id
    assert world.beat(leader) == UnknownMemberId.code


def test_session_of_a_silent_member_ends_and_the_others_rebalance() -> None:
    world = World()
    leader, silent = world.stable(2)
    for _ in range(4):
        world.clock.advance(SESSION_S / 4 + 0.01)
        code = world.beat(leader)
    assert code == RebalanceInProgress.code
    assert world.beat(silent) == UnknownMemberId.code
    joined = world.join(leader.member_id).value
    assert [member.member_id for member in joined.members] == [leader.member_id]
    assert world.sync(joined, {joined.member_id: b"all"}).value.assignment == b"all"


def test_heartbeats_keep_a_member_for_ever() -> None:
    world = World()
    (joined,) = world.stable()
    for _ in range(100):
        world.clock.advance(SESSION_S * 0.9)
        assert world.beat(joined) == NONE
    assert world.state() == "Stable"
    world.clock.advance(SESSION_S * 0.9)
    assert world.state() == "Stable"
    world.clock.advance(SESSION_S * 0.2)
    assert world.state() == "Empty"


def test_last_member_leaves_an_empty_group_of_the_next_generation() -> None:
    world = World()
    (joined,) = world.stable()
    assert world.leave(joined.member_id) == NONE
    assert (world.state(), world.group().generation) == ("Empty", 2)
    assert world.group().protocol_type == CONSUMER_PROTOCOL


def test_member_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    """KAFKA-12890: it sends heartbeats and nothing else."""
    world = World()
    joined = world.enter(rebalance_ms=20_000).value
    for _ in range(3):
        world.clock.advance(6)
        assert world.beat(joined) == NONE
    world.clock.advance(2.1)
    assert world.beat(joined) == UnknownMemberId.code
    assert world.state() == "Empty"


def test_follower_that_never_syncs_does_not_hold_up_the_others() -> None:
    world = World()
    first = world.enter(rebalance_ms=20_000)
    leader = first.value
    late = world.enter(rebalance_ms=20_000)
    leader = world.join(leader.member_id, rebalance_ms=20_000).value
    assert world.sync(leader, {}).value.error_code == NONE
    silent = late.value
    for _ in range(3):
        world.clock.advance(6)
        assert world.beat(silent) == NONE
        assert world.beat(leader) == NONE
    world.clock.advance(2.1)
    assert world.beat(leader) == RebalanceInProgress.code
    assert world.beat(silent) == UnknownMemberId.code


def test_new_member_waits_at_most_five_minutes() -> None:
    """KAFKA-9752: it may be gone, and nobody would notice."""
    world = World()
    (leader,) = world.stable(rebalance_ms=900_000, session_ms=20_000)
    waiting = world.enter(session_ms=6_000, rebalance_ms=900_000)
    for _ in range(29):
        world.clock.advance(10)
        assert world.beat(leader) == RebalanceInProgress.code
    assert waiting.is_waiting
    world.clock.advance(10.1)
    assert waiting.value.error_code == UnknownMemberId.code
    world.beat(leader)
    assert len(world.join(leader.member_id).value.members) == 1


def test_who_waits_for_a_rebalance_is_alive() -> None:
    world = World()
    leader, slow = world.stable(2, rebalance_ms=60_000)
    waiting = world.join(leader.member_id, rebalance_ms=60_000)
    for _ in range(6):
        world.clock.advance(5)
        assert world.beat(slow) == RebalanceInProgress.code
    assert waiting.is_waiting
    other = world.join(slow.member_id, rebalance_ms=60_000)
    assert {waiting.value.generation, other.value.generation} == {3}
    world.clock.advance(9.9)
    assert world.beat(waiting.value) == NONE


def test_answer_begins_a_new_session() -> None:
    world = World()
    leader, slow = world.stable(2, rebalance_ms=60_000)
    waiting = world.join(leader.member_id, rebalance_ms=60_000)
    for _ in range(6):
        world.clock.advance(5)
        world.beat(slow)
    world.join(slow.member_id, rebalance_ms=60_000)
    world.clock.advance(SESSION_S + 0.1)
    assert world.beat(waiting.value) == UnknownMemberId.code  # it never came back


def test_assignment_is_given_when_it_is_stored_and_not_before() -> None:
    world = World()
    joined = world.enter().value
    world.replicas.held = True
    synced = world.sync(joined, {joined.member_id: b"mine"})
    assert synced.is_waiting
    assert world.state() == "CompletingRebalance"
    world.replicas.release()
    assert synced.value.assignment == b"mine"
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (NotEnoughReplicas.code, CoordinatorNotAvailable.code),
        (6, NotCoordinator.code),
        (RequestTimedOut.code, RebalanceInProgress.code),
        (10, UnknownServerError.code),
        (18, UnknownServerError.code),
        (3, CoordinatorNotAvailable.code),
        (56, NotCoordinator.code),
    ],
)
def test_assignment_that_cannot_be_stored(code: int, told: int) -> None:
    world = World()
    joined = world.enter().value
    world.replicas.held = True
    synced = world.sync(joined, {joined.member_id: b"mine"})
    world.replicas.release(code)
    assert synced.value.error_code == told
    assert world.state() == "PreparingRebalance"
    again = world.join(joined.member_id).value
    assert again.generation == 2
    synced = world.sync(again, {joined.member_id: b"mine"})
    world.replicas.release()
    assert synced.value.assignment == b"mine"


def test_assignment_of_a_past_generation_is_not_given() -> None:
    world = World()
    joined = world.enter().value
    world.replicas.held = True
    synced = world.sync(joined, {joined.member_id: b"old"})
    newcomer = world.enter()
    assert synced.value.error_code == RebalanceInProgress.code
    again = world.join(joined.member_id)
    world.replicas.release()
    assert world.state() == "CompletingRebalance"
    synced = world.sync(again.value, {joined.member_id: b"1", newcomer.value.member_id: b"2"})
    other = world.sync(newcomer.value)
    world.replicas.release()
    assert (synced.value.assignment, other.value.assignment) == (b"1", b"2")


def test_wrong_calls_are_told_apart() -> None:
    world = World()
    (joined,) = world.stable()
    assert world.join(group_id="").value.error_code == InvalidGroupId.code
    assert world.join(session_ms=5999).value.error_code == InvalidSessionTimeout.code
    assert world.join("nobody").value.error_code == UnknownMemberId.code
    assert world.join(protocols=()).value.error_code == InconsistentGroupProtocol.code
    assert world.sync(joined, generation=9).value.error_code == IllegalGeneration.code
    assert world.sync(joined, instance_id="i").value.error_code == UnknownMemberId.code
    assert world.join(group_id="none", protocol_type="").value.error_code == 23


def test_group_takes_no_more_than_its_limit() -> None:
    world = World(group_max_size="2")
    leader, follower = world.stable(2)
    assert world.enter().value.error_code == GroupMaxSizeReached.code
    assert world.join(leader.member_id).is_waiting
    assert world.join(follower.member_id).value.generation == 3


def test_last_to_join_leaves_a_group_that_became_too_large() -> None:
    world = World(group_max_size="3")
    joined = world.stable(3)
    world.config.group_max_size = 2
    world.coordinator = world._make()
    world.lead()
    assert world.state() == "PreparingRebalance"
    calls = [world.join(one.member_id) for one in joined]
    assert calls[2].value.error_code == GroupMaxSizeReached.code
    assert [call.value.generation for call in calls[:2]] == [3, 3]


def test_most_wanted_protocol_wins() -> None:
    world = World()
    calls = []
    first = world.enter(protocols=(("a", b""), ("b", b""), ("c", b""))).value
    for wants in ((("b", b""), ("c", b"")), (("c", b""), ("b", b"")), (("c", b""), ("b", b""))):
        calls.append(world.enter(protocols=wants))
    again = world.join(first.member_id, protocols=(("a", b""), ("b", b""), ("c", b"")))
    assert again.value.protocol_name in ("b", "c")
    assert {call.value.protocol_name for call in calls} == {again.value.protocol_name}
    votes = {"b": 2, "c": 2}  # "a" is not spoken by all, so the first one votes for "b"
    assert again.value.protocol_name in votes


def test_mixed_versions_in_one_group() -> None:
    """KAFKA-14422: members that know instance ids beside such that do not."""
    world = World()
    old = world.join().value
    static = world.join(instance_id="i")
    modern = world.enter()
    leader = world.join(old.member_id).value
    assert [m.instance_id for m in leader.members] == [None, "i", None]
    parts = {m.member_id: m.member_id.encode() for m in leader.members}
    waiting = [world.sync(static.value, instance_id="i"), world.sync(modern.value)]
    world.sync(leader, parts)
    assert [call.value.assignment for call in waiting] == list(parts.values())[1:]


def test_same_call_through_another_connection_ends_the_first() -> None:
    world = World()
    leader, follower = world.stable(2)
    first = world.join(follower.member_id, protocols=OTHER)
    second = world.join(follower.member_id, protocols=OTHER)
    assert first.value.error_code == RebalanceInProgress.code
    world.join(leader.member_id)
    assert second.value.generation == 3
    one = world.sync(second.value)
    two = world.sync(second.value)
    assert one.value.error_code == RebalanceInProgress.code
    assert two.is_waiting


def test_removed_member_hears_it_in_its_parked_calls() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower.member_id, protocols=OTHER)
    assert world.leave(follower.member_id) == NONE
    assert waiting.value.error_code == UnknownMemberId.code
    joined = world.join(leader.member_id).value
    newcomer = world.enter()
    joined = world.join(joined.member_id).value
    waiting_sync = world.sync(newcomer.value)
    assert world.leave(newcomer.value.member_id) == NONE
    assert waiting_sync.value.error_code == UnknownMemberId.code


def test_group_that_dies_answers_everybody() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower.member_id, protocols=OTHER)
    world.lose()
    assert waiting.value.error_code == NotCoordinator.code
    assert world.beat(leader) == NotCoordinator.code
    world.clock.advance(0)  # its memory is let go of
    assert world.clock.pending() <= 2  # the wheel and the expiry of offsets


# -- static members --------------------------------------------------------------------------


def static_pair(world: World) -> tuple[str, str]:
    """A stable group of `a` (leading) and `b`; their member ids."""
    first = world.join(instance_id="a").value
    other = world.join(instance_id="b")
    first = world.join(first.member_id, instance_id="a").value
    parts = {first.member_id: b"0", other.value.member_id: b"1"}
    waiting = world.sync(other.value, instance_id="b")
    world.sync(first, parts, instance_id="a")
    assert waiting.value.assignment == b"1"
    return first.member_id, other.value.member_id


def test_static_member_that_restarts_keeps_its_place_without_a_rebalance() -> None:
    world = World()
    leader_id, old_id = static_pair(world)
    back = world.join(instance_id="b").value
    assert (back.error_code, back.generation, back.leader) == (NONE, 2, leader_id)
    assert not back.skip_assignment and not back.members
    assert back.member_id != old_id
    assert world.state() == "Stable"
    assert world.sync(back, instance_id="b").value.assignment == b"1"
    for fenced in (
        world.join(old_id, instance_id="b").value.error_code,
        world.leave(old_id, "b"),
        world.coordinator.heartbeat(GROUP, Caller(2, old_id, "b")),
    ):
        assert fenced == FencedInstanceId.code
    assert world.coordinator.heartbeat(GROUP, Caller(2, old_id, None)) == UnknownMemberId.code


def test_static_leader_that_restarts_need_not_assign() -> None:
    world = World()
    old_id, _ = static_pair(world)
    back = world.join(instance_id="a", may_skip_assignment=True).value
    assert back.skip_assignment and back.leader == back.member_id and len(back.members) == 2
    older = world.join(instance_id="a", may_skip_assignment=False).value
    assert older.leader == back.member_id != older.member_id
    assert not older.members and not older.skip_assignment
    assert old_id not in world.group().members


def test_static_replacement_is_stored_before_it_is_told() -> None:
    world = World()
    _, old_id = static_pair(world)
    world.replicas.held = True
    back = world.join(instance_id="b")
    assert back.is_waiting
    world.replicas.release()
    assert back.value.error_code == NONE
    world.fail_over()
    assert back.value.member_id in world.group().members
    assert old_id not in world.group().members


def test_static_replacement_that_cannot_be_stored_is_taken_back() -> None:
    world = World()
    _, old_id = static_pair(world)
    world.replicas.held = True
    back = world.join(instance_id="b", protocols=(("range", b"\0\0new"),))
    world.replicas.release(NotEnoughReplicas.code)
    assert back.value.error_code == CoordinatorNotAvailable.code
    assert back.value.member_id == ""
    assert world.coordinator.heartbeat(GROUP, Caller(2, old_id, "b")) == NONE
    assert world.group().members[old_id].metadata("range") == subscription("t")


def test_static_member_that_speaks_other_protocols_brings_a_rebalance() -> None:
    world = World()
    first = world.join(instance_id="a", protocols=(("x", b""), ("y", b""))).value
    world.sync(first, {first.member_id: b"0"}, instance_id="a")
    back = world.join(instance_id="a", protocols=(("y", b""),)).value
    assert (back.generation, back.protocol_name) == (2, "y")


def test_static_members_stay_until_their_sessions_end() -> None:
    world = World()
    leader_id, _ = static_pair(world)
    waiting = world.join(leader_id, instance_id="a", rebalance_ms=6000)
    for _ in range(9):
        world.clock.advance(1)
    assert waiting.is_waiting  # b still has a session and a rebalance timeout of 30 s
    world.clock.advance(1.5)
    assert len(waiting.value.members) == 1


def test_administrator_removes_a_static_member() -> None:
    world = World()
    leader_id, _ = static_pair(world)
    assert world.leave("", "nobody") == UnknownMemberId.code
    assert world.leave("", "b") == NONE
    assert world.coordinator.heartbeat(GROUP, Caller(2, leader_id, "a")) == (
        RebalanceInProgress.code
    )


def test_two_with_one_instance_id_fence_each_other_while_they_wait() -> None:
    world = World()
    leader_id, _ = static_pair(world)
    world.join(leader_id, instance_id="a")
    first = world.join(instance_id="b")
    assert first.value.generation == 3
    world.join(leader_id, instance_id="a")  # starts another round
    waiting = world.sync(first.value, instance_id="b")
    second = world.join(instance_id="b")
    assert waiting.value.error_code in (FencedInstanceId.code, RebalanceInProgress.code)
    assert not second.is_waiting or world.state() == "PreparingRebalance"


def test_members_share_one_timer_of_the_clock() -> None:
    world = World()
    world.stable(50, session_ms=30_000)
    assert len(world.group().members) == 50
    assert world.clock.pending() <= 3
