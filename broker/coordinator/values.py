"""What handlers ask of the group coordinator and get back: joins, syncs, commits, descriptions.

Small objects without behaviour.  Codes are those of the protocol, 0 = no error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalike.errors import NONE
from kafkalike.types import NO_EPOCH, TopicPartition

NO_MEMBER: Final = ""
"""Member id of somebody who is not a member yet."""
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type whose subscriptions the broker can read."""

CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
"""Which protocol a group speaks, as ListGroups names it."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member speaks, the one it likes best first."""


@dataclass(slots=True)
class JoinCall:
    """One JoinGroup."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool = False
    """A new dynamic member is first told its id (KIP-394)."""
    may_skip_assignment: bool = False
    """The leader understands that it need not assign anew (KIP-814)."""
    reason: str = ""
    may_see: Callable[[str], bool] = lambda topic: True
    """Whether the caller may know of a topic."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinResult:
    """Answer to a JoinGroup; after an error only code and member id mean something."""

    error_code: int
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


@dataclass(slots=True)
class SyncCall:
    """One SyncGroup; protocol type and name are None where the version does not carry them."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


@dataclass(slots=True, frozen=True)
class SyncResult:
    """Answer to a SyncGroup."""

    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """Who leaves: a member id, or an instance id alone."""

    member_id: str
    instance_id: str | None


LeaveResult = tuple[int, list[tuple[MemberIdentity, int]]]
"""Answer to a LeaveGroup: the code for the request, and one for each member."""


class Caller(NamedTuple):
    """Who commits: generation -1 without member for a consumer outside the group protocol."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER
    instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A committed offset; times in milliseconds, `expire_timestamp` -1 for the broker's own rule."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP


class FetchedOffset(NamedTuple):
    """What OffsetFetch says of one partition."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error_code: int = NONE


@dataclass(slots=True)
class MemberSummary:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class GroupSummary:
    """A group as DescribeGroups shows it."""

    error_code: int = NONE
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: list[MemberSummary] = field(default_factory=list)


class GroupOverview(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_TYPE


@dataclass(slots=True)
class DeletedOffsets:
    """Answer to an OffsetDelete: an error for the group, or a code for each partition."""

    error_code: int = NONE
    codes: dict[TopicPartition, int] = field(default_factory=dict)
