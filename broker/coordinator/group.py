"""One consumer group in the classic protocol: members, generation, state (reference: group-coordinator
2, 3).

A `Group` holds facts and keeps them consistent; what happens when is decided in `membership.py`.
Nothing in here waits, and time and ids come from outside.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from kafkalike.messages.stored import decode_subscription
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.runtime.tasks import WheelTimer

from .offsets import GroupOffsets
from .values import (
    CONSUMER_PROTOCOL,
    NO_MEMBER,
    NO_TIMESTAMP,
    GroupOverview,
    GroupSummary,
    JoinedMember,
    JoinResult,
    MemberSummary,
    Protocols,
    SyncResult,
)

JoinAnswer = Callable[[JoinResult], object]
SyncAnswer = Callable[[SyncResult], object]


class GroupState(Enum):
    """States by the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_ENTERED_FROM: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class Member:
    """One member.  `answer_join` and `answer_sync` are set while a call of it is parked."""

    __slots__ = (
        "answer_join",
        "answer_sync",
        "assignment",
        "client_host",
        "client_id",
        "expires_s",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """It waits for its first answer and cannot send heartbeats yet."""
        self.answer_join: JoinAnswer | None = None
        self.answer_sync: SyncAnswer | None = None
        self.expires_s = 0.0
        """When its session ends (monotonic)."""
        self.timer: WheelTimer | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it said about itself in `protocol`."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that is a candidate."""
        allowed = set(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


class Group:
    """One group: who is in it, which generation, and what it committed.

    Members keep the order in which they came.  `leader` is a member id or None.
    """

    __slots__ = (
        "_awaiting_join",
        "_supported",
        "generation",
        "group_id",
        "join_timer",
        "joins_early",
        "leader",
        "members",
        "new_member_added",
        "offsets",
        "pending",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "sync_timer",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        """When the state was entered; None when the stored record did not say."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending: dict[str, WheelTimer] = {}
        """Ids given out to members that have not come back with them."""
        self.pending_sync: dict[str, None] = {}
        """Members of this generation that have not sent their SyncGroup yet."""
        self.subscribed_topics: frozenset[str] | None = None
        """What the members read; None when it cannot be known."""
        self.new_member_added = False
        """Since the initial delay began or was last prolonged."""
        self.joins_early = True
        """The join phase may end before its time, as soon as all members are here."""
        self.offsets = GroupOffsets()
        self.join_timer: WheelTimer | None = None
        self.sync_timer: WheelTimer | None = None
        self._supported: dict[str, int] = {}
        self._awaiting_join = 0

    def __repr__(self) -> str:
        return f"<Group {self.group_id} {self.state.value} generation {self.generation}>"

    # -- state ---------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state; an impossible transition is a broken invariant."""
        assert self.state in _ENTERED_FROM[state], f"{self} cannot become {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    @property
    def is_active(self) -> bool:
        """Whether somebody is in it, or about to be: time passes for it, and calls may wait."""
        return bool(
            self.members
            or self.pending
            or self.join_timer is not None
            or self.sync_timer is not None
        )

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin: none is collecting members already."""
        return self.state in _ENTERED_FROM[GroupState.PREPARING_REBALANCE]

    def begin_generation(self, now_ms: int) -> None:
        """The join phase is over: next generation, protocol chosen, state entered."""
        self.generation += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    # -- members -------------------------------------------------------------------------------

    @property
    def awaiting_join(self) -> int:
        """How many members have a parked JoinGroup."""
        return self._awaiting_join

    @property
    def all_joined(self) -> bool:
        """Whether nobody is missing: no member, no id given out."""
        return len(self.members) == self._awaiting_join and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members', at least 0."""
        return max((0, *(m.rebalance_timeout_ms for m in self.members.values())))

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def add(self, member: Member, protocol_type: str, answer: JoinAnswer | None) -> None:
        """Take a member in; the first one brings the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        self._count_protocols(member, 1)
        self.park_join(member, answer)
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Let a member go; its parked calls are the caller's business."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.answer_join is not None:
                self._awaiting_join -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
            if member.timer is not None:
                member.timer.cancel()
                member.timer = None
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_sync.pop(member_id, None)
        return member

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """What a member says of itself when it joins again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """A static member came back: the same member under a new id."""
        old_id = self.static_members[instance_id]
        member = self.members[old_id]
        # The order of the members stays: it decides who leads when the leader leaves.
        self.members = {
            (new_id if known == old_id else known): one for known, one in self.members.items()
        }
        member.member_id = new_id
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def forget_pending(self, member_id: str) -> bool:
        """An id given out is used or given up; False when it was not known."""
        timer = self.pending.pop(member_id, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; False when no member has."""
        if self.leader is None:
            return False
        if self.members[self.leader].answer_join is not None:
            return True
        for member_id, member in self.members.items():
            if member.answer_join is not None:
                self.leader = member_id
                return True
        return False

    def not_joined(self) -> list[Member]:
        """Members without a parked JoinGroup."""
        return [member for member in self.members.values() if member.answer_join is None]

    # -- parked calls --------------------------------------------------------------------------

    def park_join(self, member: Member, answer: JoinAnswer | None) -> None:
        """Keep the call of a member until the join phase is over (None: forget it)."""
        self._awaiting_join += (answer is not None) - (member.answer_join is not None)
        member.answer_join = answer

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer a parked JoinGroup, if there is one."""
        answer = member.answer_join
        if answer is not None:
            member.answer_join = None
            self._awaiting_join -= 1
            answer(result)

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer a parked SyncGroup; False when there is none."""
        answer = member.answer_sync
        if answer is None:
            return False
        member.answer_sync = None
        answer(result)
        return True

    # -- protocols -----------------------------------------------------------------------------

    def _count_protocols(self, member: Member, step: int) -> None:
        for name, _ in member.protocols:
            self._supported[name] = self._supported.get(name, 0) + step
            if not self._supported[name]:
                del self._supported[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody who speaks these may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self._supported.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Every member votes for the first of its protocols that all speak; most votes win."""
        candidates = [n for n, count in self._supported.items() if count == len(self.members)]
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    # -- subscriptions -------------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def compute_subscribed_topics(self) -> None:
        """Read the topics out of the subscriptions, where they are those of consumers."""
        self.subscribed_topics = None
        if not self.is_consumer_group:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
        elif self.protocol_name is not None:
            topics: set[str] = set()
            try:
                for member in self.members.values():
                    topics.update(decode_subscription(member.metadata(self.protocol_name)).topics)
            except MalformedMessage:
                return
            self.subscribed_topics = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, or it cannot be known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # -- views ---------------------------------------------------------------------------------

    def member_list(self) -> list[JoinedMember]:
        """What the leader is given to assign partitions with."""
        return [
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        ]

    def summary(self) -> GroupSummary:
        """Subscriptions and assignments are shown only while they are in force."""
        stable = self.state is GroupState.STABLE
        return GroupSummary(
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=(self.protocol_name or "") if stable else "",
            members=[
                MemberSummary(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.metadata(self.protocol_name) if stable else b"",
                    m.assignment if stable else b"",
                )
                for m in self.members.values()
            ],
        )

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, self.protocol_type or "", self.state.value)

    @property
    def leader_or_none(self) -> str:
        """The leader's id as answers carry it."""
        return NO_MEMBER if self.leader is None else self.leader

    @property
    def stored_state_timestamp(self) -> int:
        """The state's time as records carry it."""
        return NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms
