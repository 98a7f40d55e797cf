"""How members join, stay in and leave a group (reference: group-coordinator 3 to 6).

Eager and cooperative clients look alike from here: a cooperative rebalance is two in a row.  KIPs:
62 (rebalance timeout), 134 (initial delay), 345 (static members), 394 (member id required), 559, 814.

Everything happens at once and in order: calls come in, time passes, stores finish.  Calls that must
wait are parked in the group and answered through the function they brought.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kafkalike.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    error_name,
)
from kafkalike.runtime.tasks import WheelTimer

from .group import Group, GroupState, JoinAnswer, Member, SyncAnswer
from .values import (
    NO_MEMBER,
    Caller,
    JoinCall,
    JoinResult,
    MemberIdentity,
    SyncCall,
    SyncResult,
)

NEW_MEMBER_LIMIT_S: Final = 300.0
"""How long a new member may wait for its first answer: it cannot send heartbeats yet."""


class GroupHost(Protocol):
    """What groups need from the broker around them."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer: ...

    def new_id(self) -> str:
        """A random UUID as text."""

    def store_group(
        self, group: Group, assignments: Mapping[str, bytes], done: Callable[[int], None]
    ) -> None:
        """Write the group's record; `done(code)` is called once, perhaps before this returns.

        The code is what a member may be told (reference: group-coordinator 4).
        """


class Membership:
    """The rules, for all groups of one broker; what they change is in the `Group`."""

    def __init__(
        self,
        host: GroupHost,
        logger: logging.Logger,
        *,
        max_size: int,
        initial_rebalance_delay_ms: int,
    ) -> None:
        self._host = host
        self._logger = logger
        self._max_size = max_size
        self._initial_delay_ms = initial_rebalance_delay_ms
        self.rebalances = 0
        """Rebalances begun."""
        self.expired_members = 0

    # -- join ----------------------------------------------------------------------------------

    def join(self, group: Group, call: JoinCall, answer: JoinAnswer) -> None:
        """A JoinGroup; it is parked until the join phase is over, where there is one."""
        if not self._has_room(group, call.member_id):
            removed = group.members.get(call.member_id)
            if removed is not None:
                self._dismiss(group, removed)
            else:
                group.forget_pending(call.member_id)
            answer(JoinResult(GroupMaxSizeReached.code))
        elif group.is_dead:
            answer(JoinResult(CoordinatorNotAvailable.code, call.member_id))
        elif not group.supports(call.protocol_type, call.protocols):
            answer(JoinResult(InconsistentGroupProtocol.code, call.member_id))
        elif call.member_id == NO_MEMBER:
            self._join_new(group, call, answer)
        else:
            self._join_again(group, call, answer)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(group)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """group.max.size; in the join phase those who have joined count, so that the last ones go."""
        member = group.members.get(member_id)
        if group.state in {GroupState.EMPTY, GroupState.DEAD}:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.answer_join is not None
            return waits or group.awaiting_join < self._max_size
        return member is not None or len(group.members) < self._max_size

    def _join_new(self, group: Group, call: JoinCall, answer: JoinAnswer) -> None:
        prefix = call.client_id if call.instance_id is None else call.instance_id
        member_id = f"{prefix}-{self._host.new_id()}"
        if call.instance_id is not None:
            if call.instance_id in group.static_members:
                self._replace_static(group, call, member_id, answer)
            else:
                self._add(group, call, member_id, answer)
        elif call.needs_known_id:
            group.pending[member_id] = self._host.call_later(
                call.session_timeout_ms / 1000, self._pending_expired, group, member_id
            )
            answer(JoinResult(MemberIdRequired.code, member_id))
        else:
            self._add(group, call, member_id, answer)

    def _join_again(self, group: Group, call: JoinCall, answer: JoinAnswer) -> None:
        if call.member_id in group.pending and call.instance_id is None:
            self._add(group, call, call.member_id, answer)
            return
        code = check_member(group, call.member_id, call.instance_id)
        if code != NONE:
            answer(JoinResult(code, call.member_id))
            return
        member = group.members[call.member_id]
        unchanged = member.protocols == call.protocols
        state = group.state
        if state is GroupState.COMPLETING_REBALANCE and unchanged:
            # Its answer was lost: it gets the same once more.
            answer(self._joined(group, member))
        elif state is GroupState.STABLE and unchanged and not group.is_leader(member.member_id):
            answer(self._joined(group, member))
        elif state is GroupState.EMPTY:
            answer(JoinResult(UnknownMemberId.code, call.member_id))
        else:
            self._park(group, member, call, answer)
            self._maybe_rebalance(group, f"member {member.member_id} joins again")

    def _add(self, group: Group, call: JoinCall, member_id: str, answer: JoinAnswer) -> None:
        member = Member(
            member_id,
            call.instance_id,
            call.client_id,
            call.client_host,
            call.rebalance_timeout_ms,
            call.session_timeout_ms,
            call.protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
            group.new_member_added = True
        group.add(member, call.protocol_type, answer)
        self._expect(group, member, NEW_MEMBER_LIMIT_S)
        self._maybe_rebalance(group, f"member {member_id} is new")

    def _park(self, group: Group, member: Member, call: JoinCall, answer: JoinAnswer) -> None:
        """The latest call counts; one that it replaces came through another connection."""
        group.answer_join(member, JoinResult(RebalanceInProgress.code, member.member_id))
        group.update(member, call.protocols, call.rebalance_timeout_ms, call.session_timeout_ms)
        group.park_join(member, answer)

    def _joined(self, group: Group, member: Member) -> JoinResult:
        leads = group.is_leader(member.member_id)
        return JoinResult(
            NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader_or_none,
            members=group.member_list() if leads else (),
        )

    # -- static members ------------------------------------------------------------------------

    def _replace_static(
        self, group: Group, call: JoinCall, member_id: str, answer: JoinAnswer
    ) -> None:
        """A static member restarted: it takes the place of its former self (KIP-345)."""
        assert call.instance_id is not None
        old_leader = group.leader_or_none
        old_id = group.static_members[call.instance_id]
        member = group.members[old_id]
        # Whoever still waits under the old id is fenced at once.
        group.answer_join(member, JoinResult(FencedInstanceId.code, old_id))
        group.answer_sync(member, SyncResult(FencedInstanceId.code))
        group.replace_static(call.instance_id, member_id)
        self._touch(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._park(group, member, call, answer)
        if group.state is GroupState.STABLE:
            if group.select_protocol() == group.protocol_name:
                self._store_replacement(group, call, member, old_id, old_leader, before)
            else:
                self._maybe_rebalance(group, f"static member {member_id} speaks other protocols")
        elif group.state is GroupState.COMPLETING_REBALANCE:
            self._prepare_rebalance(group, f"static member {member_id} joins again")

    def _store_replacement(
        self,
        group: Group,
        call: JoinCall,
        member: Member,
        old_id: str,
        old_leader: str,
        before: tuple[tuple[tuple[str, bytes], ...], int, int],
    ) -> None:
        new_id = member.member_id
        instance_id = member.instance_id
        assert instance_id is not None

        def stored(code: int) -> None:
            if group.members.get(new_id) is not member:
                return  # replaced or removed meanwhile, and answered then
            if code != NONE:
                self._logger.warning(
                    "static member %s of %s is not stored: %s", new_id, group, error_name(code)
                )
                waiting = member.answer_join
                group.park_join(member, None)
                group.update(member, *before)
                group.replace_static(instance_id, old_id)
                self._touch(group, member)
                if waiting is not None:
                    waiting(
                        JoinResult(
                            code,
                            NO_MEMBER,
                            group.generation,
                            group.protocol_type,
                            group.protocol_name,
                            old_leader,
                        )
                    )
                return
            leads = call.may_skip_assignment and group.is_leader(new_id)
            # Before version 9 the leader is told the id of its former self: it must not assign, as
            # nobody would hear of it.
            group.answer_join(
                member,
                JoinResult(
                    NONE,
                    new_id,
                    group.generation,
                    group.protocol_type,
                    group.protocol_name,
                    group.leader_or_none if call.may_skip_assignment else old_leader,
                    skip_assignment=leads,
                    members=group.member_list() if leads else (),
                ),
            )
            self._touch(group, member)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self._host.store_group(group, assignments, stored)

    # -- the join phase ------------------------------------------------------------------------

    def _maybe_rebalance(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, reason)

    def _prepare_rebalance(self, group: Group, reason: str) -> None:
        """Collect the members again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, RebalanceInProgress.code)
        _cancel(group.sync_timer)
        group.sync_timer = None
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, self._host.now_ms())
        self.rebalances += 1
        self._logger.info(
            "rebalance begins group=%s generation=%d reason=%s",
            group.group_id,
            group.generation,
            reason,
        )
        if was_empty:
            # The first members wait for the others that are just starting (KIP-134).
            delay_ms = self._initial_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.joins_early = False
            group.join_timer = self._later(
                delay_ms, self._initial_join_over, group, delay_ms, remaining_ms
            )
        else:
            self._await_members(group)

    def _await_members(self, group: Group) -> None:
        group.joins_early = True
        group.join_timer = self._later(group.rebalance_timeout_ms, self._join_over, group)
        self._maybe_complete_join(group)

    def _initial_join_over(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        if group.is_dead:
            return
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._initial_delay_ms, remaining_ms)
            group.join_timer = self._later(
                next_delay_ms,
                self._initial_join_over,
                group,
                next_delay_ms,
                max(remaining_ms - delay_ms, 0),
            )
        else:
            self._join_over(group)

    def _maybe_complete_join(self, group: Group) -> None:
        """Everybody is here: no need to wait longer (except for the first ones of a group)."""
        if group.joins_early and group.join_timer is not None and group.all_joined:
            self._join_over(group)

    def _join_over(self, group: Group) -> None:
        """The join phase ends with those who are here."""
        _cancel(group.join_timer)
        group.join_timer = None
        if group.is_dead:
            return
        for member in group.not_joined():
            if not member.is_static:
                group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only silent static members are left: their sessions decide.
            self._await_members(group)
            return
        group.begin_generation(self._host.now_ms())
        if group.state is GroupState.EMPTY:
            self._logger.info(
                "group is empty group=%s generation=%d", group.group_id, group.generation
            )
            self._host.store_group(group, {}, lambda code: self._empty_stored(group, code))
            return
        self._logger.info(
            "generation begins group=%s generation=%d members=%d",
            group.group_id,
            group.generation,
            len(group.members),
        )
        for member in list(group.members.values()):
            group.answer_join(member, self._joined(group, member))
            self._touch(group, member)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        group.sync_timer = self._later(
            group.rebalance_timeout_ms, self._sync_expired, group, group.generation
        )

    def _empty_stored(self, group: Group, code: int) -> None:
        if code != NONE:
            # The stored generation then still has members; their sessions will end again.
            self._logger.warning("empty %s is not stored: %s", group, error_name(code))

    # -- sync ----------------------------------------------------------------------------------

    def sync(self, group: Group, call: SyncCall, answer: SyncAnswer) -> None:
        """A SyncGroup; it is parked until the leader's assignment is stored."""
        code = _check_sync(group, call)
        if code != NONE:
            answer(SyncResult(code))
        elif group.state is GroupState.EMPTY:
            answer(SyncResult(UnknownMemberId.code))
        elif group.state is GroupState.PREPARING_REBALANCE:
            answer(SyncResult(RebalanceInProgress.code))
        elif group.state is GroupState.COMPLETING_REBALANCE:
            member = group.members[call.member_id]
            group.answer_sync(member, SyncResult(RebalanceInProgress.code))
            member.answer_sync = answer
            group.pending_sync.pop(call.member_id, None)
            if group.is_leader(call.member_id):
                self._store_assignment(group, call)
        else:
            member = group.members[call.member_id]
            group.pending_sync.pop(call.member_id, None)
            answer(self._synced(group, member))
            self._touch(group, member)

    def _synced(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(NONE, group.protocol_type, group.protocol_name, member.assignment)

    def _store_assignment(self, group: Group, call: SyncCall) -> None:
        generation = group.generation
        assignments = {
            member_id: call.assignments.get(member_id, b"") for member_id in group.members
        }

        def stored(code: int) -> None:
            # Another member may have joined meanwhile: then this assignment is of the past.
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if code != NONE:
                self._logger.warning("assignment of %s is not stored: %s", group, error_name(code))
                self._fail_syncs(group, code)
                self._maybe_rebalance(group, "the assignment could not be stored")
                return
            group.transition_to(GroupState.STABLE, self._host.now_ms())
            for member in list(group.members.values()):
                member.assignment = assignments.get(member.member_id, b"")
            for member in list(group.members.values()):
                if group.answer_sync(member, self._synced(group, member)):
                    self._touch(group, member)

        self._host.store_group(group, assignments, stored)

    def _fail_syncs(self, group: Group, code: int) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            if group.answer_sync(member, SyncResult(code)):
                self._touch(group, member)

    def _sync_expired(self, group: Group, generation: int) -> None:
        """Members that joined and never asked for their assignment leave (KAFKA-12890)."""
        group.sync_timer = None
        settled = group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        if not settled or group.generation != generation or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self._logger.info("member did not sync group=%s member=%s", group.group_id, member_id)
            group.remove(member_id)
        self._maybe_rebalance(group, "members did not sync in time")

    # -- heartbeat, commit, leave --------------------------------------------------------------

    def heartbeat(self, group: Group, caller: Caller) -> int:
        """A sign of life; the code tells the member whether to join again."""
        member_id = caller.member_id
        code = self._check(group, caller)
        if code != NONE:
            return code
        if group.state is GroupState.EMPTY:
            return UnknownMemberId.code
        self._touch(group, group.members[member_id])
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return RebalanceInProgress.code if preparing else NONE

    def check_commit(self, group: Group, caller: Caller, *, transactional: bool) -> int:
        """Whether the caller may commit offsets now; a valid member has thereby shown that it lives."""
        if group.is_dead:
            return CoordinatorNotAvailable.code
        if caller.generation < 0 and group.state is GroupState.EMPTY:
            return NONE
        if (
            caller.generation >= 0
            or caller.member_id != NO_MEMBER
            or caller.instance_id is not None
        ):
            code = self._check(group, caller)
            if code != NONE:
                return code
        elif transactional:
            return NONE
        else:
            return UnknownMemberId.code
        if transactional:
            return NONE
        if group.state is GroupState.COMPLETING_REBALANCE:
            return RebalanceInProgress.code
        member = group.members.get(caller.member_id)
        if member is not None:
            self._touch(group, member)
        return NONE

    def _check(self, group: Group, caller: Caller) -> int:
        if group.is_dead:
            return CoordinatorNotAvailable.code
        code = check_member(group, caller.member_id, caller.instance_id)
        if code == NONE and caller.generation != group.generation:
            return IllegalGeneration.code
        return code

    def leave(self, group: Group, identity: MemberIdentity) -> int:
        """One member leaves, or an administrator removes it by its instance id alone."""
        if identity.member_id == NO_MEMBER:
            known = group.static_members.get(identity.instance_id or "")
            if identity.instance_id is None or known is None:
                return UnknownMemberId.code
            self._remove(group, group.members[known], "an administrator removed it")
            return NONE
        if identity.member_id in group.pending:
            group.forget_pending(identity.member_id)
            self._pending_gone(group)
            return NONE
        code = check_member(group, identity.member_id, identity.instance_id)
        if code == NONE:
            self._remove(group, group.members[identity.member_id], "it left")
        return code

    # -- time ----------------------------------------------------------------------------------

    def _touch(self, group: Group, member: Member) -> None:
        """The member is alive: its session begins anew."""
        self._expect(group, member, member.session_timeout_ms / 1000)

    def _expect(self, group: Group, member: Member, limit_s: float) -> None:
        # One timer a member: it is only set anew when it fires, or must fire earlier.
        expires_s = self._host.monotonic() + limit_s
        earlier = expires_s < member.expires_s
        member.expires_s = expires_s
        if member.timer is None or earlier:
            _cancel(member.timer)
            member.timer = self._host.call_later(limit_s, self._session_over, group, member)

    def _session_over(self, group: Group, member: Member) -> None:
        member.timer = None
        if group.is_dead or group.members.get(member.member_id) is not member:
            return
        left_s = member.expires_s - self._host.monotonic()
        if left_s > 0:
            member.timer = self._host.call_later(left_s, self._session_over, group, member)
            return
        # Who waits here for an answer is alive as far as we can tell; the answer starts the session
        # anew.  New members may be gone: they cannot send heartbeats while they wait.
        waits = member.answer_join is not None or member.answer_sync is not None
        if waits and not member.is_new:
            return
        self.expired_members += 1
        self._remove(group, member, "its session ended")

    def _pending_expired(self, group: Group, member_id: str) -> None:
        if group.pending.pop(member_id, None) is not None:
            self._pending_gone(group)

    def _pending_gone(self, group: Group) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(group)

    def _dismiss(self, group: Group, member: Member) -> None:
        """Take a member out; what it has parked is answered."""
        group.answer_join(member, JoinResult(UnknownMemberId.code))
        group.answer_sync(member, SyncResult(UnknownMemberId.code))
        group.remove(member.member_id)

    def _remove(self, group: Group, member: Member, reason: str) -> None:
        self._logger.info(
            "member is removed group=%s member=%s reason=%s",
            group.group_id,
            member.member_id,
            reason,
        )
        self._dismiss(group, member)
        if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            self._maybe_rebalance(group, f"member {member.member_id} is gone: {reason}")
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(group)

    def _later(self, delay_ms: int, callback: Callable[..., object], *args: object) -> WheelTimer:
        return self._host.call_later(delay_ms / 1000, callback, *args)

    # -- life of a group -----------------------------------------------------------------------

    def loaded(self, group: Group) -> None:
        """A group was read from the log: its members have a whole session to be heard of."""
        if group.members and len(group.members) > self._max_size:
            self._prepare_rebalance(group, "more members than group.max.size")
        for member in group.members.values():
            self._touch(group, member)

    def rebalance(self, group: Group, reason: str) -> None:
        """Collect the members anew, unless that is under way."""
        self._maybe_rebalance(group, reason)

    def end(self, group: Group, code: int = NotCoordinator.code) -> None:
        """The group is no longer this broker's, or deleted: it dies, those who wait hear `code`."""
        if not group.is_dead:
            group.transition_to(GroupState.DEAD, self._host.now_ms())
        for timer in (group.join_timer, group.sync_timer, *group.pending.values()):
            _cancel(timer)
        group.join_timer = group.sync_timer = None
        group.pending.clear()
        for member in list(group.members.values()):
            _cancel(member.timer)
            member.timer = None
            group.answer_join(member, JoinResult(code, member.member_id))
            group.answer_sync(member, SyncResult(code))


def check_member(group: Group, member_id: str, instance_id: str | None) -> int:
    """Whether the ids name a member; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or NONE."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return UnknownMemberId.code
        if current != member_id:
            return FencedInstanceId.code
    return NONE if member_id in group.members else UnknownMemberId.code


def _check_sync(group: Group, call: SyncCall) -> int:
    if group.is_dead:
        return CoordinatorNotAvailable.code
    code = check_member(group, call.member_id, call.instance_id)
    if code != NONE:
        return code
    if call.generation != group.generation:
        return IllegalGeneration.code
    for said, known in (
        (call.protocol_type, group.protocol_type),
        (call.protocol_name, group.protocol_name),
    ):
        if said is not None and said != known:
            return InconsistentGroupProtocol.code
    return NONE


def _cancel(timer: WheelTimer | None) -> None:
    if timer is not None:
        timer.cancel()
