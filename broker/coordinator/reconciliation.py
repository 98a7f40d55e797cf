"""How a member gets from what it owns to what it is to own (KIP-848, reference: group-coordinator
14).

It first gives up what it must not keep, says so, and only then gets what is new, of which only what
nobody else owns.  So no partition is ever with two members.
"""

from collections.abc import Callable
from dataclasses import replace

from kafkalike.errors import FencedMemberEpoch

from .consumer_values import ConsumerMember, MemberState, Partitions

IsFree = Callable[[bytes, int], bool]


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: IsFree,
) -> ConsumerMember:
    """The next step of a member; the same object when it cannot take one.

    `owned` is what the member says that it owns, None when it did not say.  Raises FencedMemberEpoch
    for a member in a state that is not known here and that still owns something.
    """
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return member
        return _next(member, member.epoch, target_epoch, target, owned, is_free)
    if member.state is MemberState.UNREVOKED:
        if _holds(owned, member.revoking):
            return member
        return _next(member, member.epoch + 1, target_epoch, target, owned, is_free)
    if member.state is MemberState.UNRELEASED:
        return _next(member, member.epoch, target_epoch, target, owned, is_free)
    if owned is None or owned:
        raise FencedMemberEpoch(
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin."
        )
    return _next(member, target_epoch, target_epoch, target, owned, is_free)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: IsFree,
) -> ConsumerMember:
    kept: dict[bytes, frozenset[int]] = {}
    revoked: dict[bytes, frozenset[int]] = {}
    gained: dict[bytes, frozenset[int]] = {}
    unreleased = False
    nothing: frozenset[int] = frozenset()
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, nothing)
        has = member.assigned.get(topic_id, nothing)
        # What it is giving up is its own still: it may have it back.
        own = member.revoking.get(topic_id, nothing)
        missing = wanted - has
        free = frozenset(p for p in missing if p in own or is_free(topic_id, p))
        unreleased = unreleased or len(free) < len(missing)
        for parts, numbers in ((kept, has & wanted), (revoked, has - wanted), (gained, free)):
            if numbers:
                parts[topic_id] = numbers
    if revoked and _holds(owned, revoked):
        return _moved(member, epoch, MemberState.UNREVOKED, kept, revoked)
    state = MemberState.UNRELEASED if unreleased else MemberState.STABLE
    for topic_id, numbers in gained.items():
        kept[topic_id] = kept.get(topic_id, nothing) | numbers
    return _moved(member, target_epoch, state, kept, {})


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether a member may still own one of the partitions."""
    if owned is None:
        return True
    return any(
        owned.get(topic_id, frozenset()) & numbers for topic_id, numbers in partitions.items()
    )
