"""Leader election rules, pure (reference: controller 7).

Each rule looks at a partition's assignment, its stored state and who is online, and proposes the
next state or none.  Every proposal raises the leader epoch by one.
"""

from dataclasses import dataclass, replace
from enum import Enum

from kafkalike.types import RECOVERING, LeaderAndIsr, TopicPartition

from .context import ControllerContext


class ElectionStrategy(Enum):
    """Why a leader is being chosen."""

    OFFLINE = "offline"
    """The leader is gone."""
    OFFLINE_UNCLEAN = "offline, unclean on request"
    """The same, and an administrator accepts the loss of records."""
    REASSIGN = "reassign"
    """The leader must be one of the target replicas."""
    PREFERRED = "preferred"
    """Back to the first replica of the assignment."""
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    """Away from brokers that are shutting down."""


@dataclass(slots=True, frozen=True)
class Election:
    """The outcome for one partition; `proposal` None means nobody can lead."""

    proposal: LeaderAndIsr | None
    recipients: tuple[int, ...] = ()
    """Who gets the LeaderAndIsr."""
    unclean: bool = False
    instead_of: int | None = None
    """The member of the ISR that is passed over, as its log is shorter than it was (ADR 0008)."""


def needs_unclean(
    context: ControllerContext, partition: TopicPartition, isr: tuple[int, ...]
) -> bool:
    """Whether only a replica outside the ISR could lead: no member of it is online."""
    return not any(context.is_online(replica, partition) for replica in isr)


def elect(
    strategy: ElectionStrategy,
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    *,
    unclean_allowed: bool = False,
    safer: int | None = None,
) -> Election:
    """Apply a strategy to one partition.

    `unclean_allowed` counts for OFFLINE only, `safer` (who has all that the only member of the ISR
    has lost) also for OFFLINE_UNCLEAN.
    """
    match strategy:
        case ElectionStrategy.OFFLINE:
            return elect_offline(context, partition, state, unclean_allowed, safer)
        case ElectionStrategy.OFFLINE_UNCLEAN:
            return elect_offline(context, partition, state, True, safer)
        case ElectionStrategy.REASSIGN:
            return elect_reassigned(context, partition, state)
        case ElectionStrategy.PREFERRED:
            return elect_preferred(context, partition, state)
        case ElectionStrategy.CONTROLLED_SHUTDOWN:
            return elect_for_shutdown(context, partition, state)


def elect_offline(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    unclean_allowed: bool,
    safer: int | None = None,
) -> Election:
    """The first replica online and in the ISR; failing that, if allowed, the first one online."""
    online = context.online_replicas(partition, context.assignment(partition).replicas)
    if safer is not None:
        return Election(state.with_leader(safer, (safer,)), online, instead_of=state.isr[0])
    leader = next((replica for replica in online if replica in state.isr), None)
    if leader is not None:
        isr = context.online_replicas(partition, state.isr)
        return Election(state.with_leader(leader, isr), online)
    if unclean_allowed and online and needs_unclean(context, partition, state.isr):
        proposal = replace(state.with_leader(online[0], online[:1]), recovery_state=RECOVERING)
        return Election(proposal, online, unclean=True)
    return Election(None, online)


def elect_reassigned(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr
) -> Election:
    """The first target replica online and in the ISR; the ISR stays."""
    target = context.assignment(partition).target
    return _first_in_isr(context, partition, state, target, target)


def elect_preferred(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr
) -> Election:
    """The first replica of the assignment, if it is online and in the ISR; the ISR stays."""
    replicas = context.assignment(partition).replicas
    return _first_in_isr(context, partition, state, replicas[:1], replicas)


def _first_in_isr(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    candidates: tuple[int, ...],
    recipients: tuple[int, ...],
) -> Election:
    for replica in candidates:
        if replica in state.isr and context.is_online(replica, partition):
            return Election(state.with_leader(replica, state.isr), recipients)
    return Election(None, recipients)


def elect_for_shutdown(
    context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr
) -> Election:
    """The first replica in the ISR on a broker that stays; all that leave also leave the ISR."""
    recipients = context.online_replicas(
        partition, context.assignment(partition).replicas, or_shutting_down=True
    )
    leaving = context.shutting_down
    for replica in recipients:
        if replica in state.isr and replica not in leaving:
            isr = tuple(member for member in state.isr if member not in leaving)
            return Election(state.with_leader(replica, isr), recipients)
    return Election(None, recipients)
