"""What a member's call does to its group of the newer protocol: what it said, a new epoch, a new target
assignment, its next step; and how members go (KIP-848, reference: group-coordinator 14).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from kafkalike.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from kafkalike.runtime.tasks import WheelTimer

from . import migration, targets
from .consumer_clocks import MemberClocks
from .consumer_group import ConsumerGroup, Draft
from .consumer_values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
    ResolvedRegex,
)
from .group import Group
from .reconciliation import reconcile
from .topic_regex import TopicRegex
from .topics import Topics, hash_of

REGEX_PAUSE_MS: Final = 10_000
"""The topics that expressions match are not looked for more often than this."""
REGEX_REFRESH_MS: Final = 600_000
"""And not less often, while a member is heard of."""
RESOLVE_SLICE_S: Final = 0.010


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


class MemberSteps:
    """The steps, for all groups of one broker; what they change is in the `ConsumerGroup`."""

    def __init__(
        self,
        host: ConsumerHost,
        topics: Topics,
        rules: ConsumerRules,
        clocks: MemberClocks,
        logger: logging.Logger,
    ) -> None:
        self._host = host
        self._topics = topics
        self._rules = rules
        self.clocks = clocks
        self._logger = logger
        self.rebalances = 0
        """Group epochs begun."""

    @property
    def default_assignor(self) -> str:
        return self._rules.assignors[0]

    def new_uuid(self) -> str:
        """An id for a member that brought none."""
        return self._host.new_uuid()

    # -- one step of a member ------------------------------------------------------------------

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._rules.max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {limit} members."
            )

    def static(
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
            return self.known_static(group, member_id, instance_id)
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
            draft.after.append(lambda: self.clocks.forget(group, former.member_id))
        return member

    @staticmethod
    def known_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
        member = group.static_member(instance_id)
        if member is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member"
                f" {member.member_id}."
            )
        return member

    def update(
        self,
        group: ConsumerGroup,
        draft: Draft,
        before: ConsumerMember,
        updated: ConsumerMember,
        owned: Partitions | None,
        may_see: Callable[[str], bool],
    ) -> ConsumerMember:
        """What the member said, a new epoch and target where that changes them, then its next step."""
        self.note(group, draft, before, updated, may_see)
        if group.epoch > group.assignment_epoch:
            self._assign(group, draft)
        return self.reconcile_member(group, draft, updated, owned)

    def note(
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

    def reconcile_member(
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
            draft.after.append(lambda: self.clocks.watch_revocation(group, updated))
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
        if self.falls_back(group, leaving):
            self.downgrade(group, draft, leaving=leaving)
            return
        for member_id in leaving:
            draft.remove_member(member_id)
            draft.after.append(partial(self.clocks.forget, group, member_id))
        for regex in dict.fromkeys(m.regex for m in leaving.values() if m.regex):
            if regex not in group.subscribed_regexes:
                draft.regex(regex, None)
        self._bump(group, draft, hash_of(self._topics, group.names))

    def falls_back(self, group: ConsumerGroup, leaving: Iterable[str], *, joining: int = 0) -> bool:
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

    def downgrade(
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
