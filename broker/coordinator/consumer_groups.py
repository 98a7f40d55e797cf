"""The groups of the newer protocol that one broker coordinates (KIP-848).

They live beside the classic ones in the same partitions of `__consumer_offsets`.  Offsets are kept
where those of classic groups are: a `Group` without members holds them.  A call changes a group and
writes its records in one turn; it is answered once they are replicated, and so is a call that changes
nothing while earlier records are on their way: nobody is told what another coordinator would not know.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidFetchSize,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RebalanceInProgress,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_class,
)
from kafkalike.records.record import Record
from kafkalike.runtime.tasks import WheelTimer

from . import migration
from .answer import Answer
from .consumer_group import ConsumerGroup, Draft
from .consumer_membership import ConsumerMembership, is_vacant
from .consumer_records import in_order
from .consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupSummary,
    ConsumerMemberSummary,
    HeartbeatCall,
    HeartbeatResult,
    NamedPartitions,
    Partitions,
)
from .group import Group
from .member_steps import ConsumerRules
from .topics import Topics
from .values import (
    CONSUMER_PROTOCOL,
    CONSUMER_TYPE,
    Caller,
    GroupOverview,
    JoinCall,
    JoinResult,
    LeaveResult,
    MemberIdentity,
    SyncCall,
    SyncResult,
)

REPLICATION_LIMIT_S: Final = 5.0
"""How long an answer may wait for records that nobody else waits for."""
LOOK_AGAIN_S: Final = 0.05

T = TypeVar("T")


class GroupSettings(Protocol):
    """What may be set for single groups."""

    def session_timeout_ms(self, group_id: str) -> int: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...


class Store(Protocol):
    """What these groups need of the coordinator around them."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer: ...

    def new_uuid(self) -> str: ...

    def check(self, group_id: str, *, empty_allowed: bool = False) -> int:
        """Whether the group's partition is here; a code."""

    def loaded_partition(self, group_id: str) -> int | None:
        """The partition of a group, if it is here and loaded."""

    def classic_group(self, group_id: str) -> Group | None:
        """The classic group of that name, which may only hold offsets."""

    def put_classic_group(self, group: Group, *, rebalances: bool) -> None:
        """Take a group in, with the offsets of the one of the same name."""

    def dissolve_classic_group(self, group: Group) -> None:
        """It is no group any more, only offsets; who waits in it hears REBALANCE_IN_PROGRESS."""

    def append_records(
        self, partition: int, records: list[Record], done: Callable[[int, int], None]
    ) -> None:
        """Write one batch; `done` is told code and base offset when it is replicated or will not
        be."""

    def end_offset(self, partition: int) -> int:
        """Where the partition's log ends."""

    def is_replicated(self, partition: int, end_offset: int) -> bool:
        """Whether the partition's high watermark has come that far."""


class ConsumerGroups:
    """All groups of the newer protocol whose partition this broker leads."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        settings: GroupSettings,
        rules: ConsumerRules,
        logger: logging.Logger,
    ) -> None:
        self._store = store
        self._topics = topics
        self._settings = settings
        self._logger = logger
        self._rules = ConsumerMembership(self, topics, rules, logger)
        self._partitions: dict[int, dict[str, ConsumerGroup]] = {}

    # -- what the rules need (ConsumerHost) ----------------------------------------------------

    def now_ms(self) -> int:
        return self._store.now_ms()

    def monotonic(self) -> float:
        return self._store.monotonic()

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer:
        return self._store.call_later(delay_s, callback, *args)

    def new_uuid(self) -> str:
        return self._store.new_uuid()

    def session_timeout_ms(self, group_id: str) -> int:
        return self._settings.session_timeout_ms(group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._settings.heartbeat_interval_ms(group_id)

    def become_classic(self, group: ConsumerGroup, classic: Group, *, rebalances: bool) -> None:
        self._drop(group)
        self._store.put_classic_group(classic, rebalances=rebalances)
        self._logger.info("group %s speaks the classic protocol from now on", group.group_id)

    def write(self, draft: Draft, done: Callable[[int], None]) -> None:
        group, store = draft.group, self._store
        partition = store.loaded_partition(group.group_id)
        if partition is None:
            draft.undo()
            done(NotCoordinator.code)
            return
        if not draft.records:
            _run(draft.after)
            deadline_s = self.monotonic() + REPLICATION_LIMIT_S
            self._when_replicated(group, partition, deadline_s, done)
            return
        written = group.written
        sequence = written.sequence + 1
        at_once: list[int] = []
        returned = False

        def settled(code: int, base_offset: int) -> None:
            if returned:
                done(_told(code))
                written.settle(sequence, _told(code))
            else:
                at_once.append(_told(code))

        before = store.end_offset(partition)
        store.append_records(partition, draft.records, settled)
        returned = True
        after = store.end_offset(partition)
        if after <= before:
            # It is not in the log, not even in this broker's.
            code = at_once[0] if at_once else NotCoordinator.code
            draft.undo()
            done(code)
            return
        written.end_offset = after
        _run(draft.after)
        if at_once:
            done(at_once[0])
        else:
            written.sequence = sequence

    def _when_replicated(
        self,
        group: ConsumerGroup,
        partition: int,
        deadline_s: float,
        done: Callable[[int], None],
    ) -> None:
        """Tell `done` once the group's records are replicated, those too that nobody waits for: of a
        write that took too long, or of a former coordinator."""
        written = group.written
        if group.is_dead:
            done(NotCoordinator.code)
        elif written.is_open:
            written.waiters.append((written.sequence, done))
        elif self._store.is_replicated(partition, written.end_offset):
            done(NONE)
        elif self.monotonic() >= deadline_s:
            done(CoordinatorNotAvailable.code)
        else:
            self.call_later(LOOK_AGAIN_S, self._when_replicated, group, partition, deadline_s, done)

    def _run(
        self,
        draft: Draft,
        work: Callable[[Draft], T],
        refused: Callable[[KafkaError], T],
    ) -> "T | Deferred[T]":
        """Do some work on a group, write what it changed, answer when that is replicated."""
        try:
            result = work(draft)
        except KafkaError as error:
            draft.undo()
            return refused(error)
        except Exception:
            draft.undo()
            raise
        answer: Answer[T] = Answer()
        self.write(
            draft,
            lambda code: answer.put(result if code == NONE else refused(error_class(code)())),
        )
        return answer.get()

    # -- leadership ----------------------------------------------------------------------------

    def loaded(self, partition: int, groups: Mapping[str, ConsumerGroup]) -> None:
        """A partition was read: its groups are served from now on."""
        self._partitions[partition] = dict(groups)
        end_offset = self._store.end_offset(partition)
        for group in groups.values():
            group.written.end_offset = end_offset
            self._rules.loaded(group)

    def unloaded(self, partition: int) -> None:
        """Another broker serves a partition from now on."""
        for group in self._partitions.pop(partition, {}).values():
            self._rules.end(group)

    # -- finding a group -----------------------------------------------------------------------

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is one of the newer protocol."""
        partition = self._store.loaded_partition(group_id)
        if partition is None:
            return None
        return self._partitions.get(partition, {}).get(group_id)

    def groups(self) -> Iterator[ConsumerGroup]:
        for groups in self._partitions.values():
            yield from groups.values()

    def _adopt(self, group: ConsumerGroup) -> None:
        partition = self._store.loaded_partition(group.group_id)
        assert partition is not None
        self._partitions.setdefault(partition, {})[group.group_id] = group

    def _drop(self, group: ConsumerGroup) -> None:
        for groups in self._partitions.values():
            if groups.get(group.group_id) is group:
                del groups[group.group_id]
        self._rules.end(group)

    # -- ConsumerGroupHeartbeat ----------------------------------------------------------------

    def heartbeat(self, call: HeartbeatCall) -> "HeartbeatResult | Deferred[HeartbeatResult]":
        try:
            self._rules.check(call)
            code = self._store.check(call.group_id)
            if code == NONE and not self._topics.is_known:
                code = CoordinatorLoadInProgress.code
            if code != NONE:
                return HeartbeatResult(code)
            if call.member_epoch <= LEAVE_EPOCH:
                draft = self._draft(self._existing(call.group_id))
                return self._run(
                    draft,
                    lambda draft: self._rules.leave(draft.group, draft, call),
                    _refused_heartbeat,
                )
            draft = self._open(call.group_id, creates=call.member_epoch == JOIN_EPOCH)
        except KafkaError as error:
            return _refused_heartbeat(error)
        return self._run(
            draft,
            lambda draft: self._rules.heartbeat(draft.group, draft, call),
            _refused_heartbeat,
        )

    def _draft(self, group: ConsumerGroup) -> Draft:
        return Draft(group, self.now_ms())

    def _existing(self, group_id: str) -> ConsumerGroup:
        """Raises GroupIdNotFound."""
        group = self.get(group_id)
        if group is None:
            if self._store.classic_group(group_id) is None:
                raise GroupIdNotFound(f"Group {group_id} not found.")
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _open(self, group_id: str, *, creates: bool) -> Draft:
        """A draft of the group, which with `creates` is made, or made out of a classic one.

        Raises GroupIdNotFound.
        """
        group = self.get(group_id)
        if group is not None:
            return self._draft(group)
        classic = self._store.classic_group(group_id)
        if not creates:
            if classic is None:
                raise GroupIdNotFound(f"Consumer group {group_id} not found.")
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        if classic is None or is_vacant(classic):
            draft = self._draft(ConsumerGroup(group_id))
            if classic is not None:
                migration.end_classic(draft, classic)
        else:
            self._rules.check_upgrade(classic)
            draft = self._draft(migration.to_consumer(classic, self._topics))
            migration.end_classic(draft, classic)
            draft.create()
        group = draft.group
        draft.after.append(lambda: self._begin(group, classic))
        return draft

    def _begin(self, group: ConsumerGroup, classic: Group | None) -> None:
        """A new group is in the log."""
        if classic is not None:
            self._store.dissolve_classic_group(classic)
            if group.classic_count:
                self._logger.info("group %s speaks the newer protocol now", group.group_id)
        self._adopt(group)
        self._rules.loaded(group)

    # -- members of the classic protocol -------------------------------------------------------

    def join(self, group: ConsumerGroup, call: JoinCall) -> "JoinResult | Deferred[JoinResult]":
        """JoinGroup to a group that has members."""
        if not self._topics.is_known:
            return JoinResult(CoordinatorLoadInProgress.code, call.member_id)
        return self._run(
            self._draft(group),
            lambda draft: self._rules.classic.join(group, draft, call),
            lambda error: JoinResult(error.code),
        )

    def give_way(self, group: ConsumerGroup) -> int:
        """A classic member comes to a group without members, which ends; a code."""
        draft = self._draft(group)
        draft.tombstones()
        draft.after.append(lambda: self._drop(group))
        codes: list[int] = []
        self.write(draft, codes.append)
        return codes[0] if codes and self.get(group.group_id) is group else NONE

    def sync(self, group: ConsumerGroup, call: SyncCall) -> "SyncResult | Deferred[SyncResult]":
        """SyncGroup."""
        if not self._topics.is_known:
            # Old clients do not know the code of a coordinator that is not ready here.
            return SyncResult(RebalanceInProgress.code)
        return self._run(
            self._draft(group),
            lambda draft: self._rules.classic.sync(group, draft, call),
            lambda error: SyncResult(error.code),
        )

    def heartbeat_classic(self, group: ConsumerGroup, caller: Caller) -> int:
        """Heartbeat."""
        try:
            return self._rules.classic.heartbeat(group, caller)
        except KafkaError as error:
            return error.code

    def leave(
        self, group: ConsumerGroup, members: Sequence[MemberIdentity]
    ) -> "LeaveResult | Deferred[LeaveResult]":
        """LeaveGroup: the code for the request, and one for each member."""
        return self._run(
            self._draft(group),
            lambda draft: (NONE, self._rules.classic.leave(group, draft, members)),
            lambda error: (error.code, []),
        )

    # -- offsets -------------------------------------------------------------------------------

    def check_commit(
        self, group: ConsumerGroup, caller: Caller, *, transactional: bool, version: int
    ) -> int:
        """Whether the caller may commit; a code."""
        try:
            self._rules.check_commit(group, caller, transactional=transactional, version=version)
        except KafkaError as error:
            return error.code
        return NONE

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> int:
        """Whether the caller may ask for offsets; a code."""
        try:
            self._rules.check_fetch(group, member_id, epoch)
        except KafkaError as error:
            return error.code
        return NONE

    # -- administration ------------------------------------------------------------------------

    def overviews(self) -> Iterator[GroupOverview]:
        for group in self.groups():
            yield GroupOverview(group.group_id, CONSUMER_PROTOCOL, group.state.value, CONSUMER_TYPE)

    def describe(self, group_id: str) -> ConsumerGroupSummary:
        """ConsumerGroupDescribe: one group."""
        code = self._store.check(group_id)
        if code != NONE:
            return ConsumerGroupSummary(group_id, code)
        try:
            group = self._existing(group_id)
        except GroupIdNotFound as error:
            return ConsumerGroupSummary(group_id, error.code, error.message)
        return ConsumerGroupSummary(
            group_id,
            state=group.state.value,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=group.preferred_assignor() or self._rules.default_assignor,
            members=[
                ConsumerMemberSummary(
                    member,
                    self._named(member.assigned),
                    self._named(group.target(member.member_id)),
                )
                for member in group.members.values()
            ],
        )

    def _named(self, partitions: Partitions) -> list[NamedPartitions]:
        return [
            NamedPartitions(topic_id, name, numbers)
            for topic_id, numbers in in_order(partitions)
            if (name := self._topics.name_of(topic_id)) is not None
        ]

    def delete(self, group: ConsumerGroup) -> int:
        """DeleteGroups: one group, without its offsets; a code."""
        if not group.is_empty:
            return NonEmptyGroup.code
        return self.give_way(group)

    def end_vacant(self, has_offsets: Callable[[str], bool]) -> None:
        """Groups without members and offsets end."""
        for group in list(self.groups()):
            if group.is_empty and not has_offsets(group.group_id):
                self.give_way(group)


def _run(hooks: Sequence[Callable[[], object]]) -> None:
    for hook in hooks:
        hook()


def _refused_heartbeat(error: KafkaError) -> HeartbeatResult:
    message = None if error.code == UnknownServerError.code else error.message
    return HeartbeatResult(error.code, message)


_WRITE_ERRORS: Final = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable.code,
    NotEnoughReplicas.code: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable.code,
    RequestTimedOut.code: CoordinatorNotAvailable.code,
    NotLeaderOrFollower.code: NotCoordinator.code,
    KafkaStorageError.code: NotCoordinator.code,
    MessageTooLarge.code: UnknownServerError.code,
    RecordListTooLarge.code: UnknownServerError.code,
    InvalidFetchSize.code: UnknownServerError.code,
}


def _told(code: int) -> int:
    """What is told to clients of the code of an append."""
    return _WRITE_ERRORS.get(code, code)
