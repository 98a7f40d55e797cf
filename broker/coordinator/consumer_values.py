"""What groups of the newer protocol are made of, and what is asked of them and answered (KIP-848).

Small objects without behaviour.  An assignment is topic id -> partitions, without empty sets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from kafkalike.errors import NONE

from .values import Protocols

LEAVE_EPOCH: Final = -1
"""Member epoch of somebody who leaves."""
STATIC_LEAVE_EPOCH: Final = -2
"""Member epoch of a static member that leaves and means to come back."""
JOIN_EPOCH: Final = 0

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions of it."""
NO_PARTITIONS: Final[Partitions] = {}


class MemberState(IntEnum):
    """How far a member is on the way to its target assignment; numbers as they are stored."""

    STABLE = 0
    UNREVOKED = 1
    """It has been told to give up partitions, and has not said that it did."""
    UNRELEASED = 2
    """Partitions that it is to have are still with others."""
    UNKNOWN = 127
    """A state of a later Kafka."""


@dataclass(slots=True, frozen=True)
class ClassicSide:
    """What is needed to serve a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(slots=True, frozen=True)
class ConsumerMember:
    """One member.  `revoking` are partitions that it still owns and must give up."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)
    classic: ClassicSide | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch


@dataclass(slots=True, frozen=True)
class ResolvedRegex:
    """What a regular expression matched: in which version of the metadata, at which time (ms)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class HeartbeatCall:
    """One ConsumerGroupHeartbeat; None means "as before".

    `may_see` tells whether the caller may know of a topic.
    """

    group_id: str
    member_id: str
    member_epoch: int
    version: int
    client_id: str
    client_host: str
    may_see: Callable[[str], bool]
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """Whether all is said anew, as after an error: then the assignment is told anew too."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


@dataclass(slots=True)
class HeartbeatResult:
    """Answer to a ConsumerGroupHeartbeat; `assigned` is None where it did not change."""

    error_code: int = NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


@dataclass(slots=True)
class NamedPartitions:
    """Partitions of a topic that still exists."""

    topic_id: bytes
    topic: str
    partitions: list[int]


@dataclass(slots=True)
class ConsumerMemberSummary:
    """A member as ConsumerGroupDescribe shows it."""

    member: ConsumerMember
    assigned: list[NamedPartitions]
    target: list[NamedPartitions]


@dataclass(slots=True)
class ConsumerGroupSummary:
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    error_code: int = NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: list[ConsumerMemberSummary] = field(default_factory=list)
