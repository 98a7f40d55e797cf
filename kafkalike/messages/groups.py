"""Consumer groups: finding the coordinator, joining, staying, leaving, looking at them.

The last two APIs belong to the newer group protocol (KIP-848): a broker in ZooKeeper mode lists
version 0 of them and answers UNSUPPORTED_VERSION.  Their version 1 is that of Kafka 4; it is served
where that protocol is switched on.
"""

from kafkalike.protocol.primitives import int8, int16, int32, uuid
from kafkalike.protocol.struct import Request, Response, Struct, field
from kafkalike.types import ZERO_UUID


class FindCoordinatorRequest(Request, key=10, versions=(0, 6), flexible=3):
    """Ask which broker coordinates a group or a transactional id.

    v1: key type.  v4: several keys at once (KIP-699).  v6: share groups (KIP-932).
    """

    key: str = field(until=3, default="")
    # 0: group; 1: transactional id; 2: share group.
    key_type: int8 = field(since=1, default=0)
    coordinator_keys: list[str] = field(since=4, default=[])


class FindCoordinatorResponse(Response, key=10, versions=(0, 6), flexible=3):
    """Address of the coordinator.

    v1: throttle time, error message.  v4: one entry for each key.
    """

    class Coordinator(Struct):
        key: str = ""
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = field(until=3, default=0)
    error_message: str | None = field(since=1, until=3, default="", ignorable=True)
    node_id: int32 = field(until=3, default=0)
    host: str = field(until=3, default="")
    port: int32 = field(until=3, default=0)
    coordinators: list[Coordinator] = field(since=4, default=[])


class JoinGroupRequest(Request, key=11, versions=(0, 9), flexible=6):
    """Become a member, or stay one when a rebalance begins.

    v1: rebalance timeout.  v4: a new member is first told its id and joins again with it (KIP-394).
    v5: static membership (KIP-345).  v8: the reason, for logs (KIP-800).
    """

    class JoinGroupRequestProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = field(since=1, default=-1, ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = field(since=5, default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = field(since=8, default=None, ignorable=True)


class JoinGroupResponse(Response, key=11, versions=(0, 9), flexible=6):
    """Sent to all members at once when the join phase ends; the leader gets the member list.

    v2: throttle time.  v5: static members.  v7: protocol type (KIP-559).  v9: the leader may be told
    to keep the assignment (KIP-814).
    """

    class JoinGroupResponseMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(since=5, default=None, ignorable=True)
        metadata: bytes = b""

    throttle_time_ms: int32 = field(since=2, default=0, ignorable=True)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field(since=7, default=None, ignorable=True)
    protocol_name: str | None = field(nullable_since=7, default="")
    leader: str = ""
    skip_assignment: bool = field(since=9, default=False)
    member_id: str = ""
    # Empty for all but the leader.
    members: list[JoinGroupResponseMember] = []


class SyncGroupRequest(Request, key=14, versions=(0, 5), flexible=4):
    """The leader hands in the assignment; the others wait for theirs.

    v3: static membership.  v5: protocol type and name, to be checked (KIP-559).
    """

    class SyncGroupRequestAssignment(Struct):
        member_id: str = ""
        assignment: bytes = b""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(since=3, default=None)
    protocol_type: str | None = field(since=5, default=None, ignorable=True)
    protocol_name: str | None = field(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Response, key=14, versions=(0, 5), flexible=4):
    """The assignment of one member.

    v1: throttle time.  v5: protocol type and name.
    """

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = 0
    protocol_type: str | None = field(since=5, default=None, ignorable=True)
    protocol_name: str | None = field(since=5, default=None, ignorable=True)
    assignment: bytes = b""


class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
    """A member is alive and in which generation.

    v3: static membership.
    """

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(since=3, default=None)


class HeartbeatResponse(Response, key=12, versions=(0, 4), flexible=4):
    """All well, or: rejoin.

    v1: throttle time.
    """

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = 0


class LeaveGroupRequest(Request, key=13, versions=(0, 5), flexible=4):
    """Give up membership.

    v3: several members at once, also by instance id (KIP-345).  v5: the reason (KIP-800).
    """

    class MemberIdentity(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = field(since=5, default=None, ignorable=True)

    group_id: str = ""
    member_id: str = field(until=2, default="")
    members: list[MemberIdentity] = field(since=3, default=[])


class LeaveGroupResponse(Response, key=13, versions=(0, 5), flexible=4):
    """Whether the member, or each of the members, is gone.

    v1: throttle time.  v3: one result for each member.
    """

    class MemberResponse(Struct):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int16 = 0

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = 0
    members: list[MemberResponse] = field(since=3, default=[])


class DescribeGroupsRequest(Request, key=15, versions=(0, 5), flexible=5):
    """Ask for state and members of groups.

    v3: authorised operations (KIP-430).
    """

    groups: list[str] = []
    include_authorized_operations: bool = field(since=3, default=False)


class DescribeGroupsResponse(Response, key=15, versions=(0, 5), flexible=5):
    """State and members; a group nobody knows has state `Dead`.

    v1: throttle time.  v3: authorised operations.  v4: instance ids.
    """

    class DescribedGroup(Struct):
        class DescribedGroupMember(Struct):
            member_id: str = ""
            group_instance_id: str | None = field(since=4, default=None, ignorable=True)
            client_id: str = ""
            client_host: str = ""
            member_metadata: bytes = b""
            member_assignment: bytes = b""

        error_code: int16 = 0
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribedGroupMember] = []
        authorized_operations: int32 = field(since=3, default=-2147483648)

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    groups: list[DescribedGroup] = []


class ListGroupsRequest(Request, key=16, versions=(0, 5), flexible=3):
    """Ask for the groups that this broker coordinates.

    v4: only those in given states (KIP-518).  v5: only those of given types (KIP-848).
    """

    states_filter: list[str] = field(since=4, default=[])
    types_filter: list[str] = field(since=5, default=[])


class ListGroupsResponse(Response, key=16, versions=(0, 5), flexible=3):
    """Groups that match all filters.

    v1: throttle time.  v4: state of each group.  v5: type of each group.
    """

    class ListedGroup(Struct):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = field(since=4, default="", ignorable=True)
        group_type: str = field(since=5, default="", ignorable=True)

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    error_code: int16 = 0
    groups: list[ListedGroup] = []


class DeleteGroupsRequest(Request, key=42, versions=(0, 2), flexible=2):
    """Forget groups that have no members (KIP-229)."""

    groups_names: list[str] = []


class DeleteGroupsResponse(Response, key=42, versions=(0, 2), flexible=2):
    """One result for each group."""

    class DeletableGroupResult(Struct):
        group_id: str = ""
        error_code: int16 = 0

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = []


class ConsumerGroupHeartbeatRequest(Request, key=68, versions=(0, 1), flexible=0):
    """Join, stay in, or leave a group of the newer protocol (KIP-848).

    Null means "as before" for what may change.  v1: topics by regular expression; the member brings
    its own id (KIP-1082).
    """

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(since=1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions=(0, 1), flexible=0):
    """The member's epoch and, when it changed, its assignment."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: "list[ConsumerGroupHeartbeatResponse.TopicPartitions]" = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Request, key=69, versions=(0, 1), flexible=0):
    """Ask for groups of the newer protocol (KIP-848)."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ConsumerGroupDescribeResponse(Response, key=69, versions=(0, 1), flexible=0):
    """State and members of groups of the newer protocol.

    v1: which protocol a member speaks, 0 the classic, 1 the newer one (KIP-1099).
    """

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: "list[ConsumerGroupDescribeResponse.TopicPartitions]" = []

    class DescribedGroup(Struct):
        class Member(Struct):
            member_id: str = ""
            instance_id: str | None = None
            rack_id: str | None = None
            member_epoch: int32 = 0
            client_id: str = ""
            client_host: str = ""
            subscribed_topic_names: list[str] = []
            subscribed_topic_regex: str | None = None
            assignment: "ConsumerGroupDescribeResponse.Assignment" = field(
                default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()  # noqa: PLW0108
            )
            target_assignment: "ConsumerGroupDescribeResponse.Assignment" = field(
                default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()  # noqa: PLW0108
            )
            member_type: int8 = field(since=1, default=-1, ignorable=True)

        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        assignor_name: str = ""
        members: list[Member] = []
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = []
