"""A group changes from the classic protocol to the newer one and back, while its members go on
(KIP-848).

Members keep what they own: the last assignment of the one protocol is what they are to own in the
other.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from kafkalike.errors import GroupIdNotFound
from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_subscription,
    decode_versioned,
    encode_versioned,
    stored_version,
)
from kafkalike.protocol.primitives import MalformedMessage

from .consumer_group import ConsumerGroup, Draft
from .consumer_values import ClassicSide, ConsumerMember, Partitions
from .group import Group, GroupState, Member
from .records import group_key, group_record
from .topics import Topics, hash_of
from .values import CONSUMER_PROTOCOL

NEWEST_ASSIGNMENT: Final = ConsumerProtocolAssignment.max_version
_Named = ConsumerProtocolAssignment.TopicPartition


def by_id(named: Iterable[Any], topics: Topics) -> Partitions:
    """Partitions named with their topics; topics that do not exist are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for one in named:
        topic_id = topics.id_of(one.topic)
        if topic_id is not None and one.partitions:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(one.partitions)
    return found


def assignment_bytes(partitions: Partitions, classic: ClassicSide, topics: Topics) -> bytes:
    """What a classic member is told that it owns, in the version of its subscription."""
    named = [
        _Named(topic=name, partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    try:
        version = max(0, min(stored_version(classic.protocols[0][1]), NEWEST_ASSIGNMENT))
    except MalformedMessage:
        version = 0
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), version)


# -- classic to newer --------------------------------------------------------------------------


def to_consumer(classic: Group, topics: Topics) -> ConsumerGroup:
    """The group with the same members, each on the assignment that it has.

    Raises GroupIdNotFound where it cannot be: what members said cannot be read, or an assignor of
    theirs keeps data of its own in assignments.
    """
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation
    protocol = classic.protocol_name
    if protocol is None and classic.members:
        protocol = classic.select_protocol()
    for member in classic.members.values():
        try:
            assigned = _assigned(member, topics)
            said = decode_subscription(member.metadata(protocol))
        except MalformedMessage as error:
            raise GroupIdNotFound(
                f"Cannot upgrade classic group {classic.group_id} to consumer group because the"
                " embedded consumer protocol is malformed."
            ) from error
        if assigned is None:
            raise GroupIdNotFound(
                f"Cannot upgrade classic group {classic.group_id} to consumer group because an"
                " unsupported custom assignor is in use. Please refer to the documentation or switch"
                " to a default assignor before re-attempting the upgrade."
            )
        group.targets[member.member_id] = assigned
        group.put_member(_consumer_member(member, classic.generation, said, assigned))
    group.metadata_hash = hash_of(topics, group.names)
    return group


def _assigned(member: Member, topics: Topics) -> Partitions | None:
    """None where the assignment holds data that would be lost.  Raises MalformedMessage."""
    if not member.assignment:
        return {}
    value = decode_versioned(ConsumerProtocolAssignment, member.assignment, newer_as_newest=True)
    return None if value.user_data else by_id(value.assigned_partitions, topics)


def _consumer_member(
    member: Member, epoch: int, said: ConsumerProtocolSubscription, assigned: Partitions
) -> ConsumerMember:
    return ConsumerMember(
        member.member_id,
        epoch,
        epoch,
        instance_id=member.instance_id,
        rack_id=said.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(said.topics),
        assigned=assigned,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def end_classic(draft: Draft, classic: Group) -> None:
    """The classic group's record ends."""
    draft.record(group_key(classic.group_id), None)


# -- newer to classic --------------------------------------------------------------------------


def to_classic(
    group: ConsumerGroup, leaving: Collection[str], topics: Topics, now_ms: int
) -> Group:
    """The group without `leaving`, all of whose members speak the classic protocol, each with its
    target assignment."""
    classic = Group(group.group_id, now_ms)
    classic.generation = group.epoch
    for member in group.members.values():
        if member.member_id in leaving:
            continue
        side = member.classic
        assert side is not None
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                side.session_timeout_ms,
                side.protocols,
                assignment_bytes(group.target(member.member_id), side, topics),
            ),
            CONSUMER_PROTOCOL,
            None,
        )
    classic.protocol_name = classic.select_protocol()
    classic.compute_subscribed_topics()
    classic.state = GroupState.STABLE
    return classic


def record_classic(draft: Draft, classic: Group) -> None:
    """The record of the classic group as it is now."""
    assignments = {m.member_id: m.assignment for m in classic.members.values()}
    draft.records.append(group_record(classic, assignments, classic.state_timestamp_ms or 0))
