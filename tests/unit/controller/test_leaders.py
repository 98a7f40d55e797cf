"""The table of elections (reference: controller 7)."""

import pytest

from kafkalike.controller.leaders import ElectionStrategy, elect, needs_unclean
from kafkalike.controller.partitions import allows_unclean, plan_first_state
from kafkalike.types import RECOVERED, RECOVERING, LeaderAndIsr, ReplicaAssignment
from kafkalike.zk.znodes import CorruptZnode

from .contexts import T0, context_of

OFFLINE = ElectionStrategy.OFFLINE
FORCED = ElectionStrategy.OFFLINE_UNCLEAN
REASSIGN = ElectionStrategy.REASSIGN
PREFERRED = ElectionStrategy.PREFERRED
SHUTDOWN = ElectionStrategy.CONTROLLED_SHUTDOWN

# strategy, live, shutting down, assignment, leader, isr, unclean allowed
#   -> new leader (None: nobody), isr, recovery, recipients
CASES = {
    "first of the assignment that is online and in sync": (
        OFFLINE, (2, 3), (), (1, 2, 3), 1, (3, 1, 2), False, 2, (3, 2), RECOVERED, (2, 3),
    ),
    "in the order of the assignment, not of the ISR": (
        OFFLINE, (2, 3), (), (3, 2, 1), 1, (1, 2, 3), False, 3, (2, 3), RECOVERED, (3, 2),
    ),
    "nobody in sync is online": (
        OFFLINE, (2, 3), (), (1, 2, 3), 1, (1,), False, None, (), RECOVERED, (2, 3),
    ),
    "nobody in sync is online, unclean allowed": (
        OFFLINE, (2, 3), (), (1, 3, 2), 1, (1,), True, 3, (3,), RECOVERING, (3, 2),
    ),
    "unclean allowed but not needed": (
        OFFLINE, (2, 3), (), (3, 2, 1), 1, (1, 2), True, 2, (2,), RECOVERED, (3, 2),
    ),
    "unclean allowed, nobody is online": (
        OFFLINE, (), (), (1, 2), 1, (1,), True, None, (), RECOVERED, (),
    ),
    "a broker shutting down does not count as online": (
        OFFLINE, (2, 3), (2,), (1, 2, 3), 1, (1, 2, 3), False, 3, (3,), RECOVERED, (3,),
    ),
    "an administrator's unclean election": (
        FORCED, (2, 3), (), (1, 2, 3), -1, (1,), False, 2, (2,), RECOVERING, (2, 3),
    ),
    "an administrator's unclean election with somebody in sync": (
        FORCED, (2, 3), (), (1, 2, 3), -1, (1, 3), False, 3, (3,), RECOVERED, (2, 3),
    ),
    "not unclean while a stray member of the ISR is online": (
        FORCED, (2, 3), (), (1, 2), -1, (3,), False, None, (), RECOVERED, (2,),
    ),
    "the preferred replica": (
        PREFERRED, (1, 2, 3), (), (1, 2, 3), 2, (2, 1), False, 1, (2, 1), RECOVERED, (1, 2, 3),
    ),
    "the preferred replica is not in sync": (
        PREFERRED, (1, 2, 3), (), (1, 2, 3), 2, (2, 3), False, None, (), RECOVERED, (1, 2, 3),
    ),
    "the preferred replica is down": (
        PREFERRED, (2, 3), (), (1, 2, 3), 2, (1, 2, 3), False, None, (), RECOVERED, (1, 2, 3),
    ),
    "shutting down: away, and out of the ISR": (
        SHUTDOWN, (1, 2, 3), (1,), (1, 2, 3), 1, (1, 3, 2), False, 2, (3, 2), RECOVERED, (1, 2, 3),
    ),
    "shutting down: all that leave are out of the ISR": (
        SHUTDOWN, (1, 2, 3), (1, 2), (1, 2, 3), 1, (1, 2, 3), False, 3, (3,), RECOVERED, (1, 2, 3),
    ),
    "shutting down: nobody else in sync": (
        SHUTDOWN, (1, 2, 3), (1,), (1, 2, 3), 1, (1,), False, None, (), RECOVERED, (1, 2, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_election(name: str) -> None:
    strategy, live, leaving, assignment, leader, isr, unclean, new, new_isr, recovery, told = CASES[
        name
    ]
    state = LeaderAndIsr(leader, 7, isr, RECOVERED, 4)
    context = context_of(live, {T0: assignment}, {T0: state}, shutting_down=leaving)
    election = elect(strategy, context, T0, state, unclean_allowed=unclean)
    assert election.recipients == told
    if new is None:
        assert election.proposal is None
    else:
        assert election.proposal == LeaderAndIsr(new, 8, new_isr, recovery, 4)
    assert election.unclean is (recovery == RECOVERING)


def test_recovery_state_is_kept_by_a_clean_election() -> None:
    state = LeaderAndIsr(1, 7, (1, 2), RECOVERING)
    context = context_of((2,), {T0: (1, 2)}, {T0: state})
    election = elect(OFFLINE, context, T0, state)
    assert election.proposal is not None
    assert election.proposal.recovery_state == RECOVERING


def test_reassignment_elects_among_the_target() -> None:
    moving = ReplicaAssignment((4, 3, 1, 2), adding=(4, 3), removing=(1, 2))
    state = LeaderAndIsr(1, 7, (1, 2, 3))
    context = context_of((1, 2, 3, 4), {T0: moving}, {T0: state})
    election = elect(REASSIGN, context, T0, state)
    assert election.proposal == LeaderAndIsr(3, 8, (1, 2, 3))
    assert election.recipients == (4, 3)


def test_a_failed_log_directory_is_not_online() -> None:
    state = LeaderAndIsr(1, 7, (1, 2))
    context = context_of((1, 2), {T0: (1, 2)}, {T0: state})
    context.offline_dirs[1] = {T0: None}
    election = elect(OFFLINE, context, T0, state)
    assert election.proposal == LeaderAndIsr(2, 8, (2,))
    assert needs_unclean(context, T0, (1,))


def test_first_state_names_those_online() -> None:
    context = context_of((2, 3), {T0: (1, 3, 2)})
    assert plan_first_state(context, T0) == LeaderAndIsr(3, 0, (3, 2))
    assert plan_first_state(context_of((), {T0: (1, 3, 2)}), T0) is None


@pytest.mark.parametrize(
    ("overrides", "default", "allowed"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"unclean.leader.election.enable": "true"}, False, True),
        ({"unclean.leader.election.enable": " TRUE "}, False, True),
        ({"unclean.leader.election.enable": "false"}, True, False),
        ({"unclean.leader.election.enable": "yes"}, True, False),
        ({"retention.ms": "1"}, True, True),
        (CorruptZnode("/config/topics/t", "not JSON"), True, False),
    ],
)
def test_whose_word_counts_for_unclean(
    overrides: dict[str, str] | CorruptZnode, default: bool, allowed: bool
) -> None:
    assert allows_unclean(overrides, default) is allowed
