"""One group of the newer protocol: epochs, members, targets, who owns what (KIP-848, reference:
group-coordinator 13).

A `ConsumerGroup` is what its records add up to.  It changes only through a `Draft`, which makes the
records at the same time and takes everything back when they do not get into the log.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from kafkalike.errors import UnknownMemberId
from kafkalike.records.record import Record
from kafkalike.runtime.tasks import WheelTimer

from . import consumer_records as stored
from .consumer_values import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
    ResolvedRegex,
)

FREE: Final = None
NO_ASSIGNMENT_EPOCH: Final = 0
NO_VERSION: Final = -1


class ConsumerGroupState(Enum):
    """States by the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Session:
    """When a member must have been heard of again."""

    __slots__ = ("expires_s", "limit_s", "timer")

    def __init__(self) -> None:
        self.expires_s = 0.0
        self.limit_s = 0.0
        self.timer: WheelTimer | None = None


class ConsumerGroup:
    """One group.  Members keep the order in which they came."""

    __slots__ = (
        "assignment_epoch",
        "assignors",
        "classic_count",
        "classic_protocols",
        "epoch",
        "group_id",
        "has_topic_record",
        "is_dead",
        "members",
        "metadata_hash",
        "names",
        "owners",
        "regexes",
        "resolving",
        "seen_version",
        "sessions",
        "static_members",
        "subscribed_regexes",
        "targets",
        "timers",
        "written",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        """Of the topics that are read, at `epoch`."""
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_topic_record = False
        """A Kafka before 4.1 left its own record of topics in the log."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Topic id -> partition -> who owns it, or has not yet given it up."""
        self.names: dict[str, int] = {}
        """Topic -> how many subscribe to it: members by name, and regular expressions."""
        self.subscribed_regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_count = 0
        self.classic_protocols: dict[str, int] = {}

        # What is not stored.
        self.is_dead = False
        self.sessions: dict[str, Session] = {}
        self.timers: dict[tuple[str, str], WheelTimer] = {}
        """(what for, member id) -> timer."""
        self.seen_version = -1
        """Version of the metadata in which `metadata_hash` was last compared."""
        self.resolving = False
        self.written = Written()

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} {self.state.value} epoch {self.epoch}>"

    # -- questions -----------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        reconciled = all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values())
        return ConsumerGroupState.STABLE if reconciled else ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        """Raises UnknownMemberId."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has an instance id now."""
        member_id = self.static_members.get(instance_id or "")
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """Who owns a partition, None when it is free."""
        return self.owners.get(topic_id, {}).get(partition)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """What a member reads, by name and by regular expression."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for."""
        if not self.assignors:
            return None
        return max(self.assignors, key=self.assignors.__getitem__)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something that the member is to have is still with another one."""
        for topic_id, partitions in self.target(member.member_id).items():
            has = member.assigned.get(topic_id, frozenset())
            if any(self.owner(topic_id, p) is not FREE for p in partitions - has):
                return True
        return False

    def supports_classic(self, names: Iterable[str]) -> bool:
        """Whether all classic members speak one of these protocols."""
        if not self.members:
            return bool(list(names))
        return any(self.classic_protocols.get(name, 0) == self.classic_count for name in names)

    # -- changes: of a draft and of loading ----------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member or replace what is known of it."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if old is not None and (
            old.assigned is not member.assigned or old.revoking != member.revoking
        ):
            self._release(old)
        self._own(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self._release(member)
            if self.static_members.get(member.instance_id or "") == member_id:
                del self.static_members[member.instance_id or ""]

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set or forget what a regular expression matches."""
        old = self.regexes.pop(regex, None)
        for topic in old.topics if old is not None else ():
            _add(self.names, topic, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            for topic in resolved.topics:
                _add(self.names, topic, 1)

    def _count(self, member: ConsumerMember, step: int) -> None:
        for topic in member.topics:
            _add(self.names, topic, step)
        if member.regex:
            _add(self.subscribed_regexes, member.regex, step)
        if member.assignor is not None:
            _add(self.assignors, member.assignor, step)
        if member.classic is not None:
            self.classic_count += step
            for name, _ in member.classic.protocols:
                _add(self.classic_protocols, name, step)

    def _own(self, member: ConsumerMember) -> None:
        for part in (member.assigned, member.revoking):
            for topic_id, partitions in part.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for part in (member.assigned, member.revoking):
            for topic_id, partitions in part.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)


def _add(counts: dict[str, int], key: str, step: int) -> None:
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


class Written:
    """What of a group's records is not yet replicated, and who waits for that."""

    __slots__ = ("end_offset", "sequence", "settled", "waiters")

    def __init__(self) -> None:
        self.sequence = 0
        """Writes so far."""
        self.settled = 0
        """The last of them of which it is known how it ended."""
        self.end_offset = 0
        """Behind the last record of the group."""
        self.waiters: deque[tuple[int, Callable[[int], None]]] = deque()
        """(write, whom to tell how it ended), in order."""

    @property
    def is_open(self) -> bool:
        return self.sequence > self.settled

    def settle(self, sequence: int, code: int) -> None:
        """A write ended, and with it those before it."""
        self.settled = max(self.settled, sequence)
        while self.waiters and self.waiters[0][0] <= self.settled:
            self.waiters.popleft()[1](code)


class Draft:
    """Changes of one group on their way into the log.

    Every change is made at once and its record noted; `undo` takes all of it back.  `after` holds
    what is to be done once the records are in the log.
    """

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        self.group = group
        self.records: list[Record] = []
        self.after: list[Callable[[], object]] = []
        self._now_ms = now_ms
        self._undo: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Take everything back, last change first."""
        while self._undo:
            self._undo.pop()()
        self.records.clear()
        self.after.clear()

    def record(self, key: bytes, value: bytes | None) -> None:
        """Note a record; None is a tombstone."""
        self.records.append(Record(key, value, self._now_ms))

    # -- members -------------------------------------------------------------------------------

    def member_data(self, member: ConsumerMember) -> None:
        """What a member says of itself."""
        group = self.group
        self._put(member)
        self.record(
            stored.member_key(group.group_id, member.member_id), stored.member_value(member)
        )

    def assignment(self, member: ConsumerMember) -> None:
        """What a member owns, and its epochs."""
        self._put(member)
        self.record(
            stored.current_key(self.group.group_id, member.member_id), stored.current_value(member)
        )

    def remove_member(self, member_id: str) -> None:
        group = self.group
        self.record(stored.current_key(group.group_id, member_id), None)
        self.target(member_id, None)
        self.record(stored.member_key(group.group_id, member_id), None)
        order = dict(group.members)
        old = order.get(member_id)
        group.drop_member(member_id)
        if old is not None:
            self._undo.append(lambda: self._restore(old, list(order)))

    def _put(self, member: ConsumerMember) -> None:
        group = self.group
        old = group.members.get(member.member_id)
        old_holder = group.static_members.get(member.instance_id or "")
        group.put_member(member)

        def take_back() -> None:
            group.drop_member(member.member_id)
            if old is not None:
                self._restore(old, None)
            if old_holder is not None and member.instance_id is not None:
                group.static_members[member.instance_id] = old_holder

        if old is None:
            self._undo.append(take_back)
        else:
            self._undo.append(lambda: group.put_member(old))

    def _restore(self, member: ConsumerMember, order: list[str] | None) -> None:
        group = self.group
        group.put_member(member)
        if order is not None:
            group.members = {
                **{known: group.members[known] for known in order if known in group.members},
                **group.members,
            }

    # -- the group -----------------------------------------------------------------------------

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        group = self.group
        self._attribute("epoch", epoch)
        self._attribute("metadata_hash", metadata_hash)
        self.record(stored.group_key(group.group_id), stored.group_value(epoch, metadata_hash))

    def assignment_epoch(self, epoch: int) -> None:
        self._attribute("assignment_epoch", epoch)
        self.record(stored.target_epoch_key(self.group.group_id), stored.target_epoch_value(epoch))

    def target(self, member_id: str, partitions: Partitions | None) -> None:
        """What a member is to own; None forgets it."""
        targets = self.group.targets
        old = targets.get(member_id)
        if partitions is None:
            targets.pop(member_id, None)
        else:
            targets[member_id] = partitions

        def take_back() -> None:
            if old is None:
                targets.pop(member_id, None)
            else:
                targets[member_id] = old

        self._undo.append(take_back)
        value = None if partitions is None else stored.target_value(partitions)
        self.record(stored.target_key(self.group.group_id, member_id), value)

    def regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """What a regular expression matches; None forgets it."""
        group = self.group
        old = group.regexes.get(regex)
        group.put_regex(regex, resolved)
        self._undo.append(lambda: group.put_regex(regex, old))
        value = None if resolved is None else stored.regex_value(resolved)
        self.record(stored.regex_key(group.group_id, regex), value)

    def drop_topic_record(self) -> None:
        """The record that a Kafka before 4.1 left is not needed."""
        if self.group.has_topic_record:
            self._attribute("has_topic_record", False)
            self.record(stored.topics_key(self.group.group_id), None)

    def create(self) -> None:
        """Write the whole group as it is."""
        group = self.group
        group_id, members = group.group_id, group.members
        for member in members.values():
            self.record(stored.member_key(group_id, member.member_id), stored.member_value(member))
        self.record(
            stored.group_key(group_id), stored.group_value(group.epoch, group.metadata_hash)
        )
        for member_id in members:
            value = stored.target_value(group.target(member_id))
            self.record(stored.target_key(group_id, member_id), value)
        self.record(
            stored.target_epoch_key(group_id), stored.target_epoch_value(group.assignment_epoch)
        )
        for member in members.values():
            value = stored.current_value(member)
            self.record(stored.current_key(group_id, member.member_id), value)

    def tombstones(self) -> None:
        """End every record of the group; the group itself is the caller's business."""
        group = self.group
        group_id = group.group_id
        for member_id in group.members:
            self.record(stored.current_key(group_id, member_id), None)
        for member_id in group.members:
            self.record(stored.target_key(group_id, member_id), None)
        self.record(stored.target_epoch_key(group_id), None)
        for member_id in group.members:
            self.record(stored.member_key(group_id, member_id), None)
        for regex in group.regexes:
            self.record(stored.regex_key(group_id, regex), None)
        self.record(stored.topics_key(group_id), None)
        self.record(stored.group_key(group_id), None)

    def _attribute(self, name: str, value: object) -> None:
        group, old = self.group, getattr(self.group, name)
        setattr(group, name, value)
        self._undo.append(lambda: setattr(group, name, old))


class GroupParts:
    """Puts groups together from the records that are left of them, in any order."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._data: dict[tuple[str, str], ConsumerMember] = {}
        self._current: dict[tuple[str, str], stored.Current] = {}

    def add(self, key: bytes, value: bytes) -> bool:
        """One record; False when it is of another kind.  Raises MalformedMessage."""
        found = stored.read_key(key)
        if found is None:
            return False
        kind, group_id, name = found
        group = self._group(group_id)
        if kind == stored.GROUP:
            group.epoch, group.metadata_hash = stored.read_group(value)
        elif kind == stored.TOPICS:
            group.has_topic_record = True
        elif kind == stored.MEMBER:
            self._data[group_id, name] = stored.read_member(name, value)
        elif kind == stored.TARGET_EPOCH:
            group.assignment_epoch = stored.read_target_epoch(value)
        elif kind == stored.TARGET:
            group.targets[name] = stored.read_target(value)
        elif kind == stored.CURRENT:
            self._current[group_id, name] = stored.read_current(value)
        else:
            # Versions are those of the broker that wrote them: it is looked for anew.
            group.put_regex(name, replace(stored.read_regex(value), version=NO_VERSION))
        return True

    def build(self) -> Mapping[str, ConsumerGroup]:
        """The groups, when all records are in."""
        for (group_id, member_id), member in self._data.items():
            current = self._current.get((group_id, member_id))
            self.groups[group_id].put_member(
                member if current is None else _with_current(member, current)
            )
        return self.groups

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ConsumerGroup(group_id)
        return group


def _with_current(member: ConsumerMember, current: stored.Current) -> ConsumerMember:
    try:
        state = MemberState(current.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return replace(
        member,
        epoch=current.epoch,
        previous_epoch=current.previous_epoch,
        state=state,
        assigned=current.assigned,
        revoking=current.revoking,
    )
