"""How members join, stay in and leave a group of the newer protocol (KIP-848, reference:
group-coordinator 14).

Each method works out one call completely: it changes the group through the `Draft` it is given and
returns the answer, or raises KafkaError, whereupon the caller takes the draft back.  Nothing waits in
here; the caller writes the draft, and answers once it is replicated.
"""

import logging
from dataclasses import replace
from typing import Final

from kafkalike.errors import (
    NONE,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidRequest,
    StaleMemberEpoch,
    UnsupportedAssignor,
    UnsupportedVersion,
    error_name,
)

from .classic_members import ClassicMembers
from .consumer_clocks import MemberClocks
from .consumer_group import ConsumerGroup, Draft
from .consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    HeartbeatCall,
    HeartbeatResult,
    Partitions,
)
from .group import Group, GroupState
from .member_steps import ConsumerHost, ConsumerRules, MemberSteps
from .topics import Topics
from .values import NO_MEMBER, Caller

RETRY_S: Final = 0.5
"""Before a member whose time is over is removed again, where that could not be written."""
MEMBER_BRINGS_ID_SINCE: Final = 1
COMMIT_WITH_EPOCH_SINCE: Final = 9


class ConsumerMembership:
    """The rules, for all groups of one broker; what they change is in the `ConsumerGroup`."""

    def __init__(
        self, host: ConsumerHost, topics: Topics, rules: ConsumerRules, logger: logging.Logger
    ) -> None:
        self._host = host
        self._rules = rules
        self._logger = logger
        self._clocks = MemberClocks(host, self._expel)
        self._steps = MemberSteps(host, topics, rules, self._clocks, logger)
        self.classic = ClassicMembers(self._steps, topics)
        """The rules for members of the classic protocol."""

    @property
    def default_assignor(self) -> str:
        return self._steps.default_assignor

    # -- members of the newer protocol ---------------------------------------------------------

    def check(self, call: HeartbeatCall) -> None:
        """A ConsumerGroupHeartbeat by itself.  Raises InvalidRequest or UnsupportedAssignor."""
        epoch = call.member_epoch
        if call.version >= MEMBER_BRINGS_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
            _check_text(call.member_id, "MemberId")
        _check_text(call.group_id, "GroupId")
        _check_text(call.instance_id, "InstanceId")
        _check_text(call.rack_id, "RackId")
        if epoch == JOIN_EPOCH:
            if call.rebalance_timeout_ms == -1:
                raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
            if call.owned is None or call.owned:
                raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
            if call.topics is None and call.regex is None:
                raise InvalidRequest(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                    " (re-)joining."
                )
        elif epoch == STATIC_LEAVE_EPOCH:
            if call.instance_id is None:
                raise InvalidRequest("InstanceId can't be null.")
        elif epoch < STATIC_LEAVE_EPOCH:
            raise InvalidRequest("MemberEpoch is invalid.")
        known = self._rules.assignors
        if call.assignor is not None and call.assignor not in known:
            raise UnsupportedAssignor(
                f"ServerAssignor {call.assignor} is not supported. Supported assignors:"
                f" {', '.join(known)}."
            )

    def check_upgrade(self, classic: Group) -> None:
        """Whether a classic group may become one of the newer protocol.  Raises GroupIdNotFound."""
        problem = None
        if not self._rules.upgrades:
            problem = "online upgrade is disabled"
        elif not classic.is_consumer_group:
            problem = "the group does not use the consumer embedded protocol"
        elif len(classic.members) > self._rules.max_size:
            problem = "the group size exceeds the consumer group maximum size"
        if problem is not None:
            raise GroupIdNotFound(
                f"Cannot upgrade classic group {classic.group_id} to consumer group because {problem}."
            )

    def heartbeat(self, group: ConsumerGroup, draft: Draft, call: HeartbeatCall) -> HeartbeatResult:
        """A member joins, or says that it lives, what it owns and what has changed."""
        self._steps.check_room(group, call.member_id)
        member_id = call.member_id or self._steps.new_uuid()
        joins = call.member_epoch == JOIN_EPOCH
        if call.instance_id is None:
            before = group.members.get(member_id)
            if before is None:
                if not joins:
                    group.member(member_id)
                before = ConsumerMember(member_id)
            _check_epoch(before, call.member_epoch, call.owned)
        else:
            before = self._steps.static(
                group, draft, member_id, call.instance_id, joins=joins, classic=False
            )
            if not joins:
                _check_epoch(before, call.member_epoch, call.owned)
        updated = replace(
            before,
            instance_id=call.instance_id or before.instance_id,
            rack_id=before.rack_id if call.rack_id is None else call.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if call.rebalance_timeout_ms == -1
            else call.rebalance_timeout_ms,
            assignor=before.assignor if call.assignor is None else call.assignor,
            topics=before.topics if call.topics is None else frozenset(call.topics),
            regex=before.regex if call.regex is None else call.regex,
            client_id=call.client_id,
            client_host=call.client_host,
            classic=None,
        )
        updated = self._steps.update(group, draft, before, updated, call.owned, call.may_see)
        draft.after.append(lambda: self._clocks.touch(group, member_id))
        assigned = None
        if joins or call.is_full or before.assigned != updated.assigned:
            assigned = updated.assigned
        return HeartbeatResult(
            member_id=member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._host.heartbeat_interval_ms(group.group_id),
            assigned=assigned,
        )

    def leave(self, group: ConsumerGroup, draft: Draft, call: HeartbeatCall) -> HeartbeatResult:
        """A member leaves; a static one perhaps for a short time only."""
        if call.instance_id is None:
            member = group.member(call.member_id)
        else:
            member = self._steps.known_static(group, call.member_id, call.instance_id)
        if call.instance_id is not None and call.member_epoch == STATIC_LEAVE_EPOCH:
            draft.assignment(replace(member, epoch=STATIC_LEAVE_EPOCH, revoking={}))
        else:
            self._steps.fence(group, draft, [member], "it left")
        return HeartbeatResult(member_id=call.member_id, member_epoch=call.member_epoch)

    # -- offsets -------------------------------------------------------------------------------

    def check_commit(
        self, group: ConsumerGroup, caller: Caller, *, transactional: bool, version: int
    ) -> None:
        """Whether the caller may commit.  Raises KafkaError."""
        epoch = caller.generation
        if epoch < 0 and group.is_empty:
            return
        if (
            transactional
            and epoch == -1
            and caller.member_id == NO_MEMBER
            and caller.instance_id is None
        ):
            return
        member = group.member(caller.member_id)
        if not transactional and member.classic is None and version < COMMIT_WITH_EPOCH_SINCE:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the modern group"
                " protocol"
            )
        try:
            _check_member_epoch(member, epoch)
        except StaleMemberEpoch as error:
            if transactional:
                raise IllegalGeneration() from error
            raise

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
        """Whether the caller may ask for offsets.  Raises KafkaError."""
        if member_id is None and epoch < 0:
            return
        _check_member_epoch(group.member(member_id or NO_MEMBER), epoch)

    # -- time ----------------------------------------------------------------------------------

    def loaded(self, group: ConsumerGroup) -> None:
        """A group was read from the log: its members have a whole session to be heard of."""
        for member in group.members.values():
            self._clocks.touch(group, member.member_id)
            if member.classic is None:
                self._clocks.watch_revocation(group, member)

    def end(self, group: ConsumerGroup) -> None:
        """The group is no longer this broker's, or is no more."""
        group.is_dead = True
        self._clocks.end(group)

    def _expel(self, group: ConsumerGroup, member_id: str, reason: str) -> None:
        member = group.members.get(member_id)
        if member is None or group.is_dead:
            return
        draft = Draft(group, self._host.now_ms())

        def written(code: int) -> None:
            if code != NONE and not group.is_dead and member_id in group.members:
                self._logger.warning(
                    "removal of %s from %s is not stored: %s",
                    member_id,
                    group,
                    error_name(code),
                )
                self._host.call_later(RETRY_S, self._expel, group, member_id, reason)

        self._steps.fence(group, draft, [member], reason)
        self._host.write(draft, written)


def _check_text(text: str | None, what: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(f"{what} can't be empty.")


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """A member comes with its epoch, or with the one before if its last answer may have been lost."""
    if epoch > member.epoch:
        relation = "greater"
    elif epoch < member.epoch and not (
        epoch == member.previous_epoch and _is_within(owned, member.assigned)
    ):
        relation = "smaller"
    else:
        return
    raise FencedMemberEpoch(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin."
    )


def _is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(
        numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items()
    )


def _check_member_epoch(member: ConsumerMember, epoch: int) -> None:
    if member.epoch == epoch:
        return
    if member.classic is not None:
        raise IllegalGeneration(
            f"The received generation id {epoch} does not match the expected member epoch"
            f" {member.epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
    )


def is_vacant(group: Group) -> bool:
    """Whether a classic group is nothing but committed offsets, and may give way."""
    return group.state is GroupState.EMPTY
