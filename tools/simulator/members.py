"""Simulated group members: the classic protocol, eager or cooperative, dynamic or static."""

from collections.abc import Mapping
from typing import Any, Final

from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from kafkalike.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafkalike.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_versioned,
)
from kafkalike.net.client import PeerError
from kafkalike.types import TopicPartition

from .clients import ClientPorts, NotKnown, refusal
from .consumers import EARLIEST, Reader
from .history import (
    AskCommitted,
    Assigned,
    Commit,
    Committed,
    Heartbeat,
    Join,
    Joined,
    NoAnswer,
    Refused,
    Sync,
)

FIND_VERSION: Final = 3
JOIN_VERSION: Final = 7
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 4
COMMIT_VERSION: Final = 8
OFFSETS_VERSION: Final = 7
SUBSCRIPTION_VERSION: Final = 2
PROTOCOL_TYPE: Final = "consumer"

_LOST: Final = frozenset((UnknownMemberId.code, FencedInstanceId.code))
"""The coordinator does not know this member any more."""
_REJOIN: Final = frozenset((RebalanceInProgress.code, IllegalGeneration.code))

Owned = tuple[TopicPartition, ...]


class _Trouble(Exception):
    """The coordinator refused; `code` says why."""

    def __init__(self, code: int) -> None:
        super().__init__(refusal(code))
        self.code = code


class GroupMember(Reader):
    """Joins, reads what it is given, commits how far it is, and stays until stopped.

    Eager: nothing is owned from before a Join until its Sync.  Cooperative (KIP-429): a member keeps
    what it owns over the rebalance, gives up what it is no longer assigned, and then joins again.
    """

    def __init__(
        self,
        name: str,
        ports: ClientPorts,
        group: str,
        topics: tuple[str, ...],
        *,
        cooperative: bool = False,
        instance_id: str | None = None,
        session_timeout_ms: int = 6000,
        rebalance_timeout_ms: int = 8000,
        interval_s: float = 0.3,
        leave_chance: float = 0.0,
        vanish_chance: float = 0.0,
        vanish_s: float = 0.0,
        forgetful: bool = False,
        death_chance: float = 0.0,
    ) -> None:
        """Each round (about `interval_s`) it may leave and join anew, or vanish without a word for
        about `vanish_s` (0: longer than its session), or die.  A forgetful one does not know that it
        was away: it commits before it sends a heartbeat again, or sends the Sync of its last Join."""
        super().__init__(name, ports)
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = ()
        self._topics = topics
        self._cooperative = cooperative
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._interval_s = interval_s
        self._leave_chance = leave_chance
        self._vanish_chance = vanish_chance
        self._vanish_s = vanish_s or session_timeout_ms / 1000 * 2.5
        self._forgetful = forgetful
        self._death_chance = death_chance
        self.is_dead = False
        self.calm = False
        """Set from outside: leave and vanish no more."""
        self._coordinator = -1
        self._positions: dict[TopicPartition, int] = {}
        self.last_stable_s = -1.0
        """When a heartbeat was last answered well."""

    async def run(self) -> None:
        await self.refresh()
        while not self.stopping:
            try:
                await self._join()
                await self._stay()
            except _Trouble as trouble:
                self._note_trouble(trouble.code)
            except (PeerError, NotKnown):
                self._lose_coordinator()
            if self.is_dead:
                return
            await self.pause(self._interval_s)
        await self._leave()

    def _note_trouble(self, code: int) -> None:
        if code in _LOST:
            self._forget_membership()
        elif code not in _REJOIN and code != CoordinatorLoadInProgress.code:
            self._lose_coordinator()

    def _lose_coordinator(self) -> None:
        if self._coordinator >= 0:
            self.forget(self._coordinator)
        self._coordinator = -1

    def _forget_membership(self) -> None:
        self.member_id = ""
        self.generation = -1
        self._give_up(self.owned)

    def _give_up(self, partitions: Owned) -> None:
        self.owned = tuple(one for one in self.owned if one not in partitions)
        for one in partitions:
            self._positions.pop(one, None)

    # -- coordinator -------------------------------------------------------------------------------

    async def _ask_coordinator(self, request: Any, version: int, timeout_s: float = 4.0) -> Any:
        if self._coordinator < 0:
            await self._find_coordinator()
        return await self.ask(self._coordinator, request, version, timeout_s=timeout_s)

    async def _find_coordinator(self) -> None:
        if not await self.refresh(self._topics):
            raise NotKnown("no metadata")
        brokers = sorted(self.brokers)
        request = FindCoordinatorRequest(key=self.group, key_type=0)
        response = await self.ask(
            brokers[self.random.randrange(len(brokers))], request, FIND_VERSION
        )
        if response.error_code != NONE or response.node_id < 0:
            raise NotKnown(f"no coordinator of {self.group}")
        self._coordinator = response.node_id

    # -- joining -------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """One rebalance: Join, Sync, and for cooperative members another one when needed."""
        while not self.stopping:
            if not self._cooperative:
                self._give_up(self.owned)
            joined = await self._ask_join()
            if self._forgetful and not self.calm and self.chance(self._vanish_chance):
                await self.pause(self._vanish_s)
            assigned = await self._ask_sync(joined)
            mine = self._decode(assigned)
            revoked = tuple(one for one in self.owned if one not in mine)
            self._give_up(revoked)
            self.owned = mine
            await self._load_positions()
            if not revoked or not self._cooperative:
                return

    async def _ask_join(self) -> JoinGroupResponse:
        operation = self.history.invoke(self.name, Join(self.group, self.member_id))
        subscription = ConsumerProtocolSubscription(
            topics=list(self._topics),
            owned_partitions=_grouped(self.owned, ConsumerProtocolSubscription.TopicPartition),
            generation_id=self.generation,
        )
        name = "cooperative" if self._cooperative else "eager"
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=name, metadata=encode_versioned(subscription, SUBSCRIPTION_VERSION)
                )
            ],
        )
        limit_s = self._rebalance_timeout_ms / 1000 + 4.0
        response: JoinGroupResponse = await self._asked(
            operation, self._ask_coordinator(request, JOIN_VERSION, limit_s)
        )
        if response.error_code == MemberIdRequired.code:
            self.history.fail(self.name, operation, Refused(refusal(response.error_code)))
            self.member_id = response.member_id
            return await self._ask_join()
        self._check(operation, response.error_code)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.history.ok(
            self.name,
            operation,
            Joined(
                self.group,
                self.member_id,
                self.generation,
                response.leader,
                response.protocol_name or "",
                tuple(sorted(member.member_id for member in response.members)),
            ),
        )
        return response

    async def _ask_sync(self, joined: JoinGroupResponse) -> bytes:
        if joined.leader == self.member_id:
            await self._learn_topics()
        operation = self.history.invoke(
            self.name, Sync(self.group, self.member_id, self.generation)
        )
        assignments = []
        if joined.leader == self.member_id:
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member, assignment=encode_versioned(assignment, 1)
                )
                for member, assignment in self._assign(joined).items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        limit_s = self._rebalance_timeout_ms / 1000 + 4.0
        response = await self._asked(
            operation, self._ask_coordinator(request, SYNC_VERSION, limit_s)
        )
        self._check(operation, response.error_code)
        assignment = bytes(response.assignment)
        self.history.ok(
            self.name,
            operation,
            Assigned(self.group, self.member_id, self.generation, self._decode(assignment)),
        )
        return assignment

    async def _learn_topics(self) -> None:
        """Who assigns must know what there is.  A broker that has just started has heard of brokers
        first, and of partitions a moment later."""
        await self.refresh(self._topics)
        known = {one.topic for one in self.partitions}
        if not known.issuperset(self._topics):
            raise NotKnown(f"partitions of {self._topics}")

    async def _asked(self, operation: int, work: Any) -> Any:
        try:
            return await work
        except (PeerError, NotKnown) as error:
            self.history.unknown(self.name, operation, NoAnswer(type(error).__name__))
            raise

    def _check(self, operation: int, code: int) -> None:
        if code != NONE:
            self.history.fail(self.name, operation, Refused(refusal(code)))
            raise _Trouble(code)

    def _decode(self, assignment: bytes) -> Owned:
        if not assignment:
            return ()
        topics = decode_assignment(assignment).assigned_partitions
        return tuple(sorted(TopicPartition(t.topic, p) for t in topics for p in t.partitions))

    def _assign(self, joined: JoinGroupResponse) -> Mapping[str, ConsumerProtocolAssignment]:
        """Everything to somebody, evenly; owners keep theirs while that is even.

        Cooperative: what has to move is given to nobody this time.
        """
        members = sorted(joined.members, key=lambda member: member.member_id)
        wanted = sorted(one for one in self.partitions if one.topic in self._topics)
        owners: dict[TopicPartition, str] = {}
        newest: dict[TopicPartition, int] = {}
        for member in members:
            subscription = decode_subscription(bytes(member.metadata))
            for topic in subscription.owned_partitions:
                for number in topic.partitions:
                    one = TopicPartition(topic.topic, number)
                    if subscription.generation_id > newest.get(one, -2):
                        newest[one] = subscription.generation_id
                        owners[one] = member.member_id
        share = -(-len(wanted) // len(members))
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        rest = []
        for one in wanted:
            owner = owners.get(one)
            if owner is not None and len(given[owner]) < share:
                given[owner].append(one)
            else:
                rest.append(one)
        for one in rest:
            least = min(given, key=lambda member: (len(given[member]), member))
            if not self._cooperative or one not in owners:
                given[least].append(one)
        return {
            member: ConsumerProtocolAssignment(
                assigned_partitions=_grouped(
                    tuple(sorted(partitions)), ConsumerProtocolAssignment.TopicPartition
                )
            )
            for member, partitions in given.items()
        }

    # -- staying -------------------------------------------------------------------------------------

    async def _stay(self) -> None:
        """Heartbeats, reading and committing, until a rebalance or an end."""
        while not self.stopping:
            await self.pause(self._interval_s)
            if not self.calm and self.chance(self._vanish_chance):
                await self.pause(self._vanish_s)
                if self._forgetful:
                    await self._commit()
            if not self.calm and self.chance(self._death_chance):
                self.is_dead = True
                self._give_up(self.owned)
                return
            if not self.calm and self.chance(self._leave_chance):
                await self._leave()
                return
            await self._beat()
            await self._read()
            await self._commit()

    async def _beat(self) -> None:
        operation = self.history.invoke(
            self.name, Heartbeat(self.group, self.member_id, self.generation)
        )
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = await self._asked(operation, self._ask_coordinator(request, HEARTBEAT_VERSION))
        self._check(operation, response.error_code)
        self.history.ok(self.name, operation)
        self.last_stable_s = self.clock.monotonic()

    async def _read(self) -> None:
        for partition in self.owned:
            position = self._positions.get(partition)
            if position is None:
                continue
            try:
                code, fetched, (epoch, _) = await self.fetch(
                    partition, self.leader_of(partition), position, max_wait_ms=50
                )
            except (PeerError, NotKnown):
                await self.refresh(self._topics)
                continue
            if code != NONE or epoch >= 0:
                await self.refresh(self._topics)
            elif fetched.records:
                self.history.note(self.name, fetched)
                self._positions[partition] = fetched.records[-1].offset + 1

    async def _load_positions(self) -> None:
        wanted = tuple(one for one in self.owned if one not in self._positions)
        if not wanted:
            return
        offsets = await self.ask_committed(wanted)
        for partition, offset in offsets.items():
            if offset < 0:
                offset = await self.list_offset(partition, EARLIEST) or 0
            self._positions[partition] = offset

    async def ask_committed(self, partitions: Owned) -> dict[TopicPartition, int]:
        """Committed offsets from the coordinator.  Raises PeerError, NotKnown, _Trouble."""
        operation = self.history.invoke(self.name, AskCommitted(self.group, partitions))
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(partitions).items()
            ],
        )
        response = await self._asked(operation, self._ask_coordinator(request, OFFSETS_VERSION))
        answers = {
            TopicPartition(topic.name, one.partition_index): one
            for topic in response.topics
            for one in topic.partitions
        }
        codes = [one.error_code for one in answers.values() if one.error_code]
        self._check(operation, response.error_code or (codes[0] if codes else NONE))
        offsets = {partition: answers[partition].committed_offset for partition in partitions}
        self.history.ok(self.name, operation, Committed(tuple(sorted(offsets.items()))))
        return offsets

    async def _commit(self) -> None:
        offsets = tuple(sorted(self._positions.items()))
        if not offsets:
            return
        operation = self.history.invoke(
            self.name, Commit(self.group, self.member_id, self.generation, offsets)
        )
        topics = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                topics(
                    name=name,
                    partitions=[
                        topics.OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=self._positions[TopicPartition(name, number)],
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in _by_topic(tuple(self._positions)).items()
            ],
        )
        response = await self._asked(operation, self._ask_coordinator(request, COMMIT_VERSION))
        codes = [one.error_code for topic in response.topics for one in topic.partitions]
        wrong = [code for code in codes if code != NONE]
        if wrong and len(wrong) < len(codes):
            self.history.unknown(self.name, operation, Refused(refusal(wrong[0])))
            raise _Trouble(wrong[0])
        if wrong and wrong[0] not in (*_LOST, *_REJOIN):
            self.history.unknown(self.name, operation, Refused(refusal(wrong[0])))
            raise _Trouble(wrong[0])
        self._check(operation, wrong[0] if wrong else NONE)
        self.history.ok(self.name, operation)

    async def _leave(self) -> None:
        if not self.member_id:
            return
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance_id
        )
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        try:
            await self._ask_coordinator(request, LEAVE_VERSION)
        except (PeerError, NotKnown):
            self._lose_coordinator()
        self._forget_membership()


def _by_topic(partitions: Owned) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _grouped(partitions: Owned, kind: Any) -> "list[Any]":
    return [kind(topic=t, partitions=numbers) for t, numbers in _by_topic(partitions).items()]
