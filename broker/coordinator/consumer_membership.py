"""How members join, stay in and leave a group of the newer protocol (KIP-848, reference:
group-coordinator 14): those that speak it, and consumers of the classic protocol beside them.

Each method works out one call completely: it changes the group through the `Draft` it is given and
returns the answer, or raises KafkaError, whereupon the caller takes the draft back.  Nothing waits in
here; the caller writes the draft, and answers once it is replicated.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from kafkalike.errors import (
    NONE,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
    error_class,
)
from kafkalike.messages.stored import decode_subscription
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.runtime.tasks import WheelTimer

from . import migration, targets
from .consumer_group import ConsumerGroup, Draft, Session
from .consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ClassicSide,
    ConsumerMember,
    HeartbeatCall,
    HeartbeatResult,
    MemberState,
    Partitions,
    ResolvedRegex,
)
from .group import Group, GroupState
from .reconciliation import reconcile
from .topic_regex import TopicRegex
from .topics import Topics, hash_of
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

REGEX_PAUSE_MS: Final = 10_000
"""The topics that expressions match are not looked for more often than this."""
REGEX_REFRESH_MS: Final = 600_000
"""And not less often, while a member is heard of."""
RESOLVE_SLICE_S: Final = 0.010
RETRY_S: Final = 0.5
"""Before a member whose time is over is removed again, where that could not be written."""
MEMBER_BRINGS_ID_SINCE: Final = 1
COMMIT_WITH_EPOCH_SINCE: Final = 9

_REBALANCE: Final = "rebalance"
_JOIN: Final = "join"
_SYNC: Final = "sync"


@dataclass(slots=True, frozen=True)
class ConsumerRules:
    """Settings.  `migration` is group.consumer.migration.policy in lower case."""

    assignors: Sequence[str]
    max_size: int
    classic_max_size: int
    migration: str

    @property
    def upgrades(self) -> bool:
        return self.migration in {"upgrade", "bidirectional"}

    @property
    def downgrades(self) -> bool:
        return self.migration in {"downgrade", "bidirectional"}


class ConsumerHost(Protocol):
    """What the rules need of the broker around them."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer: ...

    def new_uuid(self) -> str:
        """A random UUID as this protocol writes it."""

    def session_timeout_ms(self, group_id: str) -> int: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...

    def write(self, draft: Draft, done: Callable[[int], None]) -> None:
        """Write a draft; `done(code)` is told once.  A draft that did not get into the log has been
        taken back by then."""

    def become_classic(self, group: ConsumerGroup, classic: Group, *, rebalances: bool) -> None:
        """The group speaks the classic protocol from now on."""


class ConsumerMembership:
    """The rules, for all groups of one broker; what they change is in the `ConsumerGroup`."""

    def __init__(
        self, host: ConsumerHost, topics: Topics, rules: ConsumerRules, logger: logging.Logger
    ) -> None:
        self._host = host
        self._topics = topics
        self._rules = rules
        self._logger = logger
        self.rebalances = 0
        """Group epochs begun."""

    @property
    def default_assignor(self) -> str:
        return self._rules.assignors[0]

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
        self._check_room(group, call.member_id)
        member_id = call.member_id or self._host.new_uuid()
        joins = call.member_epoch == JOIN_EPOCH
        if call.instance_id is None:
            before = group.members.get(member_id)
            if before is None:
                if not joins:
                    group.member(member_id)
                before = ConsumerMember(member_id)
            _check_epoch(before, call.member_epoch, call.owned)
        else:
            before = self._static(
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
        updated = self._update(group, draft, before, updated, call.owned, call.may_see)
        draft.after.append(lambda: self._touch(group, member_id))
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
            member = self._known_static(group, call.member_id, call.instance_id)
        if call.instance_id is not None and call.member_epoch == STATIC_LEAVE_EPOCH:
            draft.assignment(replace(member, epoch=STATIC_LEAVE_EPOCH, revoking={}))
        else:
            self.fence(group, draft, [member], "it left")
        return HeartbeatResult(member_id=call.member_id, member_epoch=call.member_epoch)

    # -- one step of a member ------------------------------------------------------------------

    def _check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._rules.max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {limit} members."
            )

    def _static(
        self,
        group: ConsumerGroup,
        draft: Draft,
        member_id: str,
        instance_id: str,
        *,
        joins: bool,
        classic: bool,
    ) -> ConsumerMember:
        """The static member as it is before the call; one that comes back takes its former place."""
        if not joins:
            return self._known_static(group, member_id, instance_id)
        former = group.static_member(instance_id)
        if former is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not classic and former.classic is None and former.epoch != STATIC_LEAVE_EPOCH:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {former.member_id} member."
            )
        target = group.target(former.member_id)
        draft.remove_member(former.member_id)
        member = replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=0)
        draft.member_data(member)
        draft.target(member_id, target)
        draft.assignment(member)
        if former.member_id != member_id:
            draft.after.append(lambda: self._forget(group, former.member_id))
        return member

    @staticmethod
    def _known_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
        member = group.static_member(instance_id)
        if member is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member"
                f" {member.member_id}."
            )
        return member

    def _update(
        self,
        group: ConsumerGroup,
        draft: Draft,
        before: ConsumerMember,
        updated: ConsumerMember,
        owned: Partitions | None,
        may_see: Callable[[str], bool],
    ) -> ConsumerMember:
        """What the member said, a new epoch and target where that changes them, then its next step."""
        self._note(group, draft, before, updated, may_see)
        if group.epoch > group.assignment_epoch:
            self._assign(group, draft)
        return self._reconcile(group, draft, updated, owned)

    def _note(
        self,
        group: ConsumerGroup,
        draft: Draft,
        before: ConsumerMember,
        updated: ConsumerMember,
        may_see: Callable[[str], bool],
    ) -> bool:
        """What the member said, and a new group epoch (True) where that is called for."""
        bump = group.epoch == 0 or updated.topics != before.topics
        regex_readers = dict(group.subscribed_regexes)
        if updated != before:
            draft.member_data(updated)
        if self._note_regex(group, draft, before.regex, updated.regex, regex_readers, may_see):
            bump = True
        version = self._topics.version
        if bump or group.seen_version != version:
            now_hash = hash_of(self._topics, group.names)
            bump = bump or now_hash != group.metadata_hash
            if bump:
                self._bump(group, draft, now_hash)
            draft.drop_topic_record()
            draft.after.append(lambda: setattr(group, "seen_version", version))
        return bump

    def _bump(self, group: ConsumerGroup, draft: Draft, metadata_hash: int) -> None:
        draft.epoch(group.epoch + 1, metadata_hash)
        self.rebalances += 1
        self._logger.info("group epoch begins group=%s epoch=%d", group.group_id, group.epoch)

    def _assign(self, group: ConsumerGroup, draft: Draft) -> None:
        """A new target assignment for the group's epoch."""
        assignor = group.preferred_assignor() or self.default_assignor
        if assignor not in self._rules.assignors:
            assignor = self.default_assignor  # a former coordinator knew it
        for member_id, partitions in targets.compute(group, assignor, self._topics).items():
            if group.targets.get(member_id) != partitions:
                draft.target(member_id, partitions)
        draft.assignment_epoch(group.epoch)

    def _reconcile(
        self, group: ConsumerGroup, draft: Draft, member: ConsumerMember, owned: Partitions | None
    ) -> ConsumerMember:
        updated = reconcile(
            member,
            group.assignment_epoch,
            group.target(member.member_id),
            owned,
            lambda topic_id, partition: group.owner(topic_id, partition) is None,
        )
        if updated == member:
            return member
        draft.assignment(updated)
        if updated.classic is None:
            draft.after.append(lambda: self._watch_revocation(group, updated))
        return updated

    # -- regular expressions -------------------------------------------------------------------

    def _note_regex(
        self,
        group: ConsumerGroup,
        draft: Draft,
        old: str,
        new: str,
        readers: dict[str, int],
        may_see: Callable[[str], bool],
    ) -> bool:
        """A member's expression may have changed, topics may have come; whether that alone calls for
        a new epoch.  `readers` counts members by expression before the change."""
        bump = must_resolve = False
        if old != new:
            if old and readers.get(old, 0) == 1:
                draft.regex(old, None)
            if new:
                if readers.get(new, 0) == 0:
                    TopicRegex(new)
                    must_resolve = True
                else:
                    bump = new in group.regexes
            else:
                bump = True
        wanted = list(group.subscribed_regexes)
        if group.resolving or not wanted:
            return bump
        now_ms = self._host.now_ms()
        last = next(iter(group.regexes.values()), None)
        if last is not None:
            if now_ms <= last.timestamp_ms + REGEX_PAUSE_MS:
                return bump
            must_resolve = (
                must_resolve
                or last.version < self._topics.newest
                or now_ms > last.timestamp_ms + REGEX_REFRESH_MS
            )
        if must_resolve or len(wanted) != len(group.regexes):
            draft.after.append(lambda: self._begin_resolving(group, wanted, may_see))
        return bump

    def _begin_resolving(
        self, group: ConsumerGroup, regexes: list[str], may_see: Callable[[str], bool]
    ) -> None:
        """Look through all topics, a slice at a time."""
        group.resolving = True
        compiled: list[tuple[str, TopicRegex]] = []
        for regex in regexes:
            try:
                compiled.append((regex, TopicRegex(regex)))
            except KafkaError as error:  # another broker took it
                self._logger.warning("ignored in group %s: %s", group.group_id, error)
        found: dict[str, set[str]] = {regex: set() for regex in regexes}
        version, names = self._topics.version, self._topics.names()
        began_ms = self._host.now_ms()

        def go_on() -> None:
            if group.is_dead:
                return
            deadline_s = self._host.monotonic() + RESOLVE_SLICE_S
            while names:
                name = names.pop()
                for regex, pattern in compiled:
                    if pattern.matches(name) and may_see(name):
                        found[regex].add(name)
                if self._host.monotonic() >= deadline_s:
                    self._host.call_later(0, go_on)
                    return
            group.resolving = False
            self._resolved(
                group,
                {
                    regex: ResolvedRegex(frozenset(topics), version, began_ms)
                    for regex, topics in found.items()
                },
            )

        self._host.call_later(0, go_on)

    def _resolved(self, group: ConsumerGroup, resolved: dict[str, ResolvedRegex]) -> None:
        draft = Draft(group, self._host.now_ms())
        bump = False
        for regex, result in resolved.items():
            if regex in group.subscribed_regexes:
                known = group.regexes.get(regex)
                bump = bump or (frozenset() if known is None else known.topics) != result.topics
                draft.regex(regex, result)
        version = self._topics.version
        now_hash = hash_of(self._topics, group.names)
        if bump or now_hash != group.metadata_hash:
            self._bump(group, draft, now_hash)
            draft.after.append(lambda: setattr(group, "seen_version", version))
        self._host.write(draft, lambda code: None)

    # -- removal -------------------------------------------------------------------------------

    def fence(
        self, group: ConsumerGroup, draft: Draft, members: Sequence[ConsumerMember], reason: str
    ) -> None:
        """Take members out; what they owned is free.  If only classic members remain, the group
        becomes a classic one."""
        if not members:
            return
        leaving = {member.member_id: member for member in members}
        for member_id in leaving:
            self._logger.info(
                "member is removed group=%s member=%s reason=%s", group.group_id, member_id, reason
            )
        if self._falls_back(group, leaving):
            self._downgrade(group, draft, leaving=leaving)
            return
        for member_id in leaving:
            draft.remove_member(member_id)
            draft.after.append(partial(self._forget, group, member_id))
        for regex in dict.fromkeys(m.regex for m in leaving.values() if m.regex):
            if regex not in group.subscribed_regexes:
                draft.regex(regex, None)
        self._bump(group, draft, hash_of(self._topics, group.names))

    def _falls_back(
        self, group: ConsumerGroup, leaving: Iterable[str], *, joining: int = 0
    ) -> bool:
        """Whether without `leaving`, but with `joining` others of the classic protocol, somebody is
        left, all speak that protocol, and the group may too."""
        gone = set(leaving)
        remaining = [m for m in group.members.values() if m.member_id not in gone]
        size = len(remaining) + joining
        return (
            0 < size <= self._rules.classic_max_size
            and self._rules.downgrades
            and all(member.classic is not None for member in remaining)
        )

    def _downgrade(
        self,
        group: ConsumerGroup,
        draft: Draft,
        *,
        leaving: Iterable[str] = (),
        rebalances: bool = True,
    ) -> None:
        classic = migration.to_classic(group, set(leaving), self._topics, self._host.now_ms())
        draft.tombstones()
        migration.record_classic(draft, classic)
        draft.after.append(lambda: self._host.become_classic(group, classic, rebalances=rebalances))

    # -- members of the classic protocol -------------------------------------------------------

    def join_classic(
        self,
        group: ConsumerGroup,
        draft: Draft,
        call: JoinCall,
    ) -> JoinResult:
        """JoinGroup of a consumer in a group of the newer protocol."""
        is_new = call.member_id == NO_MEMBER
        member_id = call.member_id or self._host.new_uuid()
        self._check_room(group, member_id)
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
            before = self._static(
                group, draft, member_id, call.instance_id, joins=is_new, classic=True
            )
            falls_back = (
                former is not None
                and former.classic is None
                and self._falls_back(group, [before.member_id], joining=1)
            )
        updated = replace(
            before,
            instance_id=call.instance_id or before.instance_id,
            rack_id=said.rack_id if said.rack_id is not None else before.rack_id,
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
            bumped = self._note(group, draft, before, updated, call.may_see)
            if not bumped:
                updated = self._reconcile(group, draft, updated, owned)
            self._downgrade(group, draft, rebalances=bumped)
        else:
            updated = self._update(group, draft, before, updated, owned, call.may_see)
            draft.after.append(lambda: self._joined_classic(group, updated))
        return JoinResult(
            NONE,
            updated.member_id,
            updated.epoch,
            CONSUMER_PROTOCOL,
            call.protocols[0][0],
        )

    def _joined_classic(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._stop(group, _JOIN, member.member_id)
        self._touch(group, member.member_id)
        self._start(
            group,
            _SYNC,
            member.member_id,
            member.rebalance_timeout_ms,
            "it did not ask for its assignment",
        )

    def sync_classic(self, group: ConsumerGroup, draft: Draft, call: SyncCall) -> SyncResult:
        """SyncGroup: the member is told what it owns."""
        member = self._classic_member(group, call.member_id, call.instance_id)
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
        draft.after.append(lambda: self._synced_classic(group, member.member_id))
        return SyncResult(
            NONE,
            call.protocol_type,
            call.protocol_name,
            migration.assignment_bytes(member.assigned, classic, self._topics),
        )

    def _synced_classic(self, group: ConsumerGroup, member_id: str) -> None:
        self._stop(group, _SYNC, member_id)
        self._touch(group, member_id)

    def heartbeat_classic(self, group: ConsumerGroup, caller: Caller) -> int:
        """Heartbeat; the code tells a classic member to join again when there is something for it."""
        member = self._classic_member(group, caller.member_id, caller.instance_id)
        _check_generation(member, caller.generation)
        self._touch(group, member.member_id)
        state = member.state
        if (
            member.epoch < group.epoch
            or state is MemberState.UNREVOKED
            or (state is MemberState.UNRELEASED and not group.waits_for_others(member))
        ):
            self._expect_join(group, member)
            return RebalanceInProgress.code
        return NONE

    def leave_classic(
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
                    member = self._known_static(group, member_id, identity.instance_id)
                leaving[member.member_id] = member
            except KafkaError as error:
                code = error.code
            results.append((identity, code))
        self.fence(group, draft, list(leaving.values()), "it left")
        return results

    @staticmethod
    def _classic_member(
        group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = ConsumerMembership._known_static(group, member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        return member

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if (_JOIN, member.member_id) not in group.timers:
            self._start(
                group, _JOIN, member.member_id, member.rebalance_timeout_ms, "it did not join again"
            )

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
            self._touch(group, member.member_id)
            if member.classic is None:
                self._watch_revocation(group, member)

    def end(self, group: ConsumerGroup) -> None:
        """The group is no longer this broker's, or is no more."""
        group.is_dead = True
        for timer in (*group.timers.values(), *(s.timer for s in group.sessions.values())):
            if timer is not None:
                timer.cancel()
        group.timers.clear()
        group.sessions.clear()

    def _touch(self, group: ConsumerGroup, member_id: str) -> None:
        """The member is alive: its session begins anew."""
        member = group.members.get(member_id)
        if member is None or group.is_dead:
            return
        limit_ms = (
            self._host.session_timeout_ms(group.group_id)
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = Session()
        # One timer a member: it is only set anew when it fires, or must fire earlier.
        limit_s = limit_ms / 1000
        expires_s = self._host.monotonic() + limit_s
        earlier = expires_s < session.expires_s
        session.expires_s = expires_s
        if session.timer is None or earlier:
            if session.timer is not None:
                session.timer.cancel()
            session.timer = self._host.call_later(limit_s, self._session_over, group, member_id)

    def _session_over(self, group: ConsumerGroup, member_id: str) -> None:
        session = group.sessions.get(member_id)
        if session is None or group.is_dead:
            return
        left_s = session.expires_s - self._host.monotonic()
        if left_s > 0:
            session.timer = self._host.call_later(left_s, self._session_over, group, member_id)
            return
        session.timer = None
        self._expel(group, member_id, "its session ended")

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member that is to give up partitions has its rebalance timeout to do so."""
        if member.state is MemberState.UNREVOKED:
            self._start(
                group,
                _REBALANCE,
                member.member_id,
                member.rebalance_timeout_ms,
                "it did not give up its partitions in time",
                member.epoch,
            )
        else:
            self._stop(group, _REBALANCE, member.member_id)

    def _start(
        self,
        group: ConsumerGroup,
        kind: str,
        member_id: str,
        delay_ms: int,
        reason: str,
        epoch: int | None = None,
    ) -> None:
        self._stop(group, kind, member_id)

        def over() -> None:
            group.timers.pop((kind, member_id), None)
            member = group.members.get(member_id)
            if member is not None and epoch in (None, member.epoch):
                self._expel(group, member_id, reason)

        group.timers[kind, member_id] = self._host.call_later(max(delay_ms, 0) / 1000, over)

    @staticmethod
    def _stop(group: ConsumerGroup, kind: str, member_id: str) -> None:
        timer = group.timers.pop((kind, member_id), None)
        if timer is not None:
            timer.cancel()

    def _forget(self, group: ConsumerGroup, member_id: str) -> None:
        """No more timers for somebody who is no member any more."""
        if member_id in group.members:
            return
        for kind in (_REBALANCE, _JOIN, _SYNC):
            self._stop(group, kind, member_id)
        session = group.sessions.pop(member_id, None)
        if session is not None and session.timer is not None:
            session.timer.cancel()

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
                    error_class(code).error_name,
                )
                self._host.call_later(RETRY_S, self._expel, group, member_id, reason)

        self.fence(group, draft, [member], reason)
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


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise IllegalGeneration(
            f"The request generation id {generation} is not equal to the member epoch"
            f" {member.epoch} of member {member.member_id}."
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
