"""AlterPartition row by row (reference: controller 14)."""

from dataclasses import replace

import pytest

from kafkalike.controller.isr import Accepted, AlreadyDone, Proposal, judge
from kafkalike.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    OperationNotAttempted,
    UnknownTopicOrPartition,
)
from kafkalike.types import RECOVERED, RECOVERING, LeaderAndIsr, TopicPartition

from .contexts import T0, context_of

CURRENT = LeaderAndIsr(1, 5, (1, 2), RECOVERED, 9)

# What the request says, where it differs from the stored state; the request's version.
ROWS: list[tuple[str, dict[str, object], int, type[KafkaError] | type]] = [
    ("newer partition epoch", {"partition_epoch": 10}, 3, NotController),
    ("newer leader epoch", {"leader_epoch": 6}, 3, NotController),
    ("newer leader epoch wins over older partition epoch",
     {"leader_epoch": 6, "partition_epoch": 8}, 3, NotController),
    ("older leader epoch", {"leader_epoch": 4, "isr": (1,)}, 3, FencedLeaderEpoch),
    ("older leader epoch, same ISR", {"leader_epoch": 4}, 3, FencedLeaderEpoch),
    ("identical", {}, 3, AlreadyDone),
    ("identical but for an older partition epoch", {"partition_epoch": 7}, 3, AlreadyDone),
    ("same members in another order is a change", {"isr": (2, 1)}, 3, Accepted),
    ("older partition epoch", {"isr": (1,), "partition_epoch": 8}, 3, InvalidUpdateVersion),
    ("not the leader", {"leader": 2, "isr": (2,)}, 3, InvalidRequest),
    ("nobody is in sync", {"isr": ()}, 3, InvalidRequest),
    ("the leader is not in sync", {"isr": (2,)}, 3, InvalidRequest),
    ("recovering with two in sync", {"recovery_state": RECOVERING}, 3, InvalidRequest),
    ("back to recovering", {"recovery_state": RECOVERING, "isr": (1,)}, 3, InvalidRequest),
    ("shrink", {"isr": (1,)}, 3, Accepted),
    ("expand", {"isr": (1, 2, 3)}, 3, Accepted),
    ("a member that is down", {"isr": (1, 2, 4)}, 3, IneligibleReplica),
    ("a member that is down, old request", {"isr": (1, 2, 4)}, 1, OperationNotAttempted),
    ("a member that is shutting down", {"isr": (1, 2, 5)}, 2, IneligibleReplica),
    ("a member without a replica", {"isr": (1, 2, 6)}, 3, IneligibleReplica),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "version", "expected"), ROWS, ids=[r[0] for r in ROWS])
def test_row(name: str, changes: dict[str, object], version: int, expected: type) -> None:
    context = context_of((1, 2, 3, 5, 6), {T0: (1, 2, 3, 4, 5)}, {T0: CURRENT}, shutting_down=(5,))
    proposal = Proposal(T0, replace(CURRENT, **changes))  # type: ignore[arg-type]
    judgement = judge(context, proposal, version)
    assert type(judgement) is expected
    if isinstance(judgement, Accepted):
        assert judgement.state == proposal.state
    if isinstance(judgement, AlreadyDone):
        assert judgement.state == CURRENT


def test_partition_without_leadership() -> None:
    context = context_of((1,), {T0: (1,)})
    judgement = judge(context, Proposal(TopicPartition("x", 0), CURRENT), 3)
    assert type(judgement) is UnknownTopicOrPartition


def test_recovery_ends_with_a_proposal_of_the_leader() -> None:
    stored = replace(CURRENT, isr=(1,), recovery_state=RECOVERING)
    context = context_of((1, 2), {T0: (1, 2)}, {T0: stored})
    proposal = replace(stored, recovery_state=RECOVERED)
    assert judge(context, Proposal(T0, proposal), 3) == Accepted(proposal)


def test_a_stray_member_may_stay_until_it_is_shrunk_out() -> None:
    stored = replace(CURRENT, isr=(1, 2, 3))
    context = context_of((1, 2, 3), {T0: (1, 2)}, {T0: stored})
    kept = replace(stored, isr=(1, 3))
    assert judge(context, Proposal(T0, kept), 3) == Accepted(kept)


@pytest.mark.parametrize(
    ("members", "epochs", "expected"),
    [
        ((1, 2, 3), {3: 103}, Accepted),
        ((1, 2, 3), {3: 102}, IneligibleReplica),
        ((1, 2, 3), {3: 104}, IneligibleReplica),
        ((1, 2, 3), {}, Accepted),
        ((2, 1), {2: 101}, Accepted),
    ],
    ids=["its life", "restarted since", "not seen here yet", "an older leader", "a member stays"],
)
def test_who_is_added_must_have_caught_up_in_its_present_life(
    members: tuple[int, ...], epochs: dict[int, int], expected: type
) -> None:
    """KIP-903: in its former life it may have had what it has lost."""
    context = context_of((1, 2, 3), {T0: (1, 2, 3)}, {T0: CURRENT})
    proposal = Proposal(T0, replace(CURRENT, isr=members), epochs)
    assert type(judge(context, proposal, 3)) is expected
