"""Consumers of the classic protocol in a group of the newer one (KIP-848).

They are told to join again by their heartbeats, their generation is their epoch, and SyncGroup tells
them what they own.  Methods work as those of `consumer_membership`.
"""

from collections.abc import Sequence
from dataclasses import replace

from kafkalike.errors import (
    NONE,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from kafkalike.messages.stored import decode_subscription
from kafkalike.protocol.primitives import MalformedMessage

from . import migration
from .consumer_clocks import JOIN, SYNC
from .consumer_group import ConsumerGroup, Draft
from .consumer_values import ClassicSide, ConsumerMember, MemberState
from .member_steps import MemberSteps
from .topics import Topics
from .values import (
    CONSUMER_PROTOCOL,
    NO_MEMBER,
    Caller,
    JoinCall,
    JoinResult,
    MemberIdentity,
    SyncCall,
    SyncResult,
)


class ClassicMembers:
    """The rules for them, in all groups of one broker."""

    def __init__(self, steps: MemberSteps, topics: Topics) -> None:
        self._steps = steps
        self._clocks = steps.clocks
        self._topics = topics

    def join(
        self,
        group: ConsumerGroup,
        draft: Draft,
        call: JoinCall,
    ) -> JoinResult:
        """JoinGroup of a consumer in a group of the newer protocol."""
        is_new = call.member_id == NO_MEMBER
        member_id = call.member_id or self._steps.new_uuid()
        self._steps.check_room(group, member_id)
        names = [name for name, _ in call.protocols]
        if call.protocol_type != CONSUMER_PROTOCOL or not group.supports_classic(names):
            raise InconsistentGroupProtocol(f"Member {member_id}'s protocols are not supported.")
        if call.needs_known_id and is_new:
            return JoinResult(MemberIdRequired.code, member_id)
        try:
            said = decode_subscription(call.protocols[0][1])
        except MalformedMessage as error:
            raise InconsistentGroupProtocol(f"subscription of {member_id}: {error}") from error
        falls_back = False
        if call.instance_id is None:
            before = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            former = group.static_member(call.instance_id)
            before = self._steps.static(
                group, draft, member_id, call.instance_id, joins=is_new, classic=True
            )
            falls_back = (
                former is not None
                and former.classic is None
                and self._steps.falls_back(group, [before.member_id], joining=1)
            )
        updated = replace(
            before,
            instance_id=call.instance_id or before.instance_id,
            rack_id=said.rack_id or before.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if call.rebalance_timeout_ms == -1
            else call.rebalance_timeout_ms,
            topics=frozenset(said.topics),
            regex="",
            client_id=call.client_id,
            client_host=call.client_host,
            classic=ClassicSide(call.session_timeout_ms, call.protocols),
        )
        owned = migration.by_id(said.owned_partitions, self._topics)
        if falls_back:
            bumped = self._steps.note(group, draft, before, updated, call.may_see)
            if not bumped:
                updated = self._steps.reconcile_member(group, draft, updated, owned)
            self._steps.downgrade(group, draft, rebalances=bumped)
        else:
            updated = self._steps.update(group, draft, before, updated, owned, call.may_see)
            draft.after.append(lambda: self._joined(group, updated))
        return JoinResult(
            NONE,
            updated.member_id,
            updated.epoch,
            CONSUMER_PROTOCOL,
            call.protocols[0][0],
        )

    def _joined(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._clocks.stop(group, JOIN, member.member_id)
        self._clocks.touch(group, member.member_id)
        self._clocks.start(
            group,
            SYNC,
            member.member_id,
            member.rebalance_timeout_ms,
            "it did not ask for its assignment",
        )

    def sync(self, group: ConsumerGroup, draft: Draft, call: SyncCall) -> SyncResult:
        """SyncGroup: the member is told what it owns."""
        member = self._member(group, call.member_id, call.instance_id)
        classic = member.classic
        assert classic is not None
        _check_generation(member, call.generation)
        if call.protocol_type not in (None, CONSUMER_PROTOCOL):
            raise InconsistentGroupProtocol(f"protocol type {call.protocol_type}")
        if call.protocol_name not in (None, classic.protocols[0][0]):
            raise InconsistentGroupProtocol(f"protocol {call.protocol_name}")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._expect_join(group, member)
            raise RebalanceInProgress()
        draft.after.append(lambda: self._synced(group, member.member_id))
        return SyncResult(
            NONE,
            call.protocol_type,
            call.protocol_name,
            migration.assignment_bytes(member.assigned, classic, self._topics),
        )

    def _synced(self, group: ConsumerGroup, member_id: str) -> None:
        self._clocks.stop(group, SYNC, member_id)
        self._clocks.touch(group, member_id)

    def heartbeat(self, group: ConsumerGroup, caller: Caller) -> int:
        """Heartbeat; the code tells a classic member to join again when there is something for it."""
        member = self._member(group, caller.member_id, caller.instance_id)
        _check_generation(member, caller.generation)
        self._clocks.touch(group, member.member_id)
        state = member.state
        if (
            member.epoch < group.epoch
            or state is MemberState.UNREVOKED
            or (state is MemberState.UNRELEASED and not group.waits_for_others(member))
        ):
            self._expect_join(group, member)
            return RebalanceInProgress.code
        return NONE

    def leave(
        self, group: ConsumerGroup, draft: Draft, identities: Sequence[MemberIdentity]
    ) -> list[tuple[MemberIdentity, int]]:
        """LeaveGroup of members, or by an administrator with an instance id alone."""
        leaving: dict[str, ConsumerMember] = {}
        results = []
        for identity in identities:
            code = NONE
            try:
                if identity.instance_id is None:
                    member = group.member(identity.member_id)
                else:
                    known = group.static_member(identity.instance_id)
                    member_id = identity.member_id
                    if member_id == NO_MEMBER and known is not None:
                        member_id = known.member_id
                    member = self._steps.known_static(group, member_id, identity.instance_id)
                leaving[member.member_id] = member
            except KafkaError as error:
                code = error.code
            results.append((identity, code))
        self._steps.fence(group, draft, list(leaving.values()), "it left")
        return results

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = self._steps.known_static(group, member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        return member

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if (JOIN, member.member_id) not in group.timers:
            self._clocks.start(
                group, JOIN, member.member_id, member.rebalance_timeout_ms, "it did not join again"
            )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise IllegalGeneration(
            f"The request generation id {generation} is not equal to the member epoch"
            f" {member.epoch} of member {member.member_id}."
        )
