"""FindCoordinator v0-6, JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5,
DescribeGroups v0-5, ListGroups v0-5, DeleteGroups v0-2.

ConsumerGroupHeartbeat and ConsumerGroupDescribe (`consumer_groups`) are v0 and answer
UNSUPPORTED_VERSION, as brokers beside ZooKeeper do, unless the newer protocol is switched on.

Promises: members are answered when their generation is complete, assignments when they are stored.
Differs from Kafka: a protocol named twice in one JoinGroup is INVALID_REQUEST, not silence.
KIPs: 62, 134, 345, 394, 430, 518, 559, 699, 800, 814.  Reference: broker-errors 9,
group-coordinator 1 to 6 and 12.
"""

from collections.abc import Awaitable
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InconsistentGroupProtocol,
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
)
from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkalike.types import Node, TopicPartition

from ..auth.authorizer import (
    NOT_REQUESTED,
    Authorizer,
    Operation,
    ResourceType,
    allows_cluster,
    authorized_operations,
)
from ..cluster.auto_topics import AutoTopics
from ..cluster.metadata_cache import MetadataCache
from ..cluster.topic_names import GROUP_METADATA_TOPIC
from ..coordinator.groups import GroupCoordinator
from ..coordinator.values import (
    Caller,
    GroupSummary,
    JoinCall,
    JoinResult,
    LeaveResult,
    MemberIdentity,
    SyncCall,
    SyncResult,
)
from .consumer_groups import ConsumerGroupsApi
from .request import RequestContext, Route, route

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2
_KINDS: Final = (_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY)
_SHARE_SINCE: Final = 6

_Coordinator = FindCoordinatorResponse.Coordinator
_Described = DescribeGroupsResponse.DescribedGroup
_NOWHERE: Final = Node(-1, "", -1)


class GroupsApi:
    """What consumers ask to share partitions, and administrators to see it."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        auto_topics: AutoTopics,
        authorizer: Authorizer,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._auto_topics = auto_topics
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(FindCoordinatorRequest, self.find_coordinator),
            route(JoinGroupRequest, self.join_group),
            route(SyncGroupRequest, self.sync_group),
            route(HeartbeatRequest, self.heartbeat),
            route(LeaveGroupRequest, self.leave_group),
            route(DescribeGroupsRequest, self.describe_groups),
            route(ListGroupsRequest, self.list_groups),
            route(DeleteGroupsRequest, self.delete_groups),
            *ConsumerGroupsApi(self._coordinator, self._authorizer).routes(),
        ]

    def _may_see(self, ctx: RequestContext, topic: str) -> bool:
        return self._authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def _allows(self, ctx: RequestContext, operation: Operation, group_id: str) -> bool:
        return self._authorizer.allows(ctx, operation, ResourceType.GROUP, group_id)

    # -- FindCoordinator -----------------------------------------------------------------------

    def find_coordinator(
        self, request: FindCoordinatorRequest, ctx: RequestContext
    ) -> "FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]":
        """Answer at once unless the topic of the groups does not exist yet."""
        kind = request.key_type
        if kind not in _KINDS or (kind == _SHARE_KEY and ctx.api_version < 4):
            raise InvalidRequest(f"Coordinator type {kind} is not served here, expected 0 or 1")
        if kind == _GROUP_KEY:
            if not self._metadata.has_topic(GROUP_METADATA_TOPIC):
                return self._create_then_find(request, ctx)
            if self._coordinator.partition_count is None:
                return self._learn_then_find(request, ctx)
        return self._find_all(request, ctx)

    async def _create_then_find(
        self, request: FindCoordinatorRequest, ctx: RequestContext
    ) -> FindCoordinatorResponse:
        keys = _keys(request, ctx.api_version)
        if any(self._allows(ctx, Operation.DESCRIBE, key) for key in keys):
            await self._auto_topics.create([GROUP_METADATA_TOPIC])
        return self._find_all(request, ctx)

    async def _learn_then_find(
        self, request: FindCoordinatorRequest, ctx: RequestContext
    ) -> FindCoordinatorResponse:
        await self._coordinator.learn_partition_count()
        return self._find_all(request, ctx)

    def _find_all(
        self, request: FindCoordinatorRequest, ctx: RequestContext
    ) -> FindCoordinatorResponse:
        version = ctx.api_version
        found = [self._find(request.key_type, key, ctx) for key in _keys(request, version)]
        if version >= 4:
            # Only the older versions say in words what is wrong.
            for one in found:
                one.error_message = ""
            return FindCoordinatorResponse(coordinators=found)
        (only,) = found
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message="NONE" if only.error_code == NONE else only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def _find(self, kind: int, key: str, ctx: RequestContext) -> _Coordinator:
        node = _NOWHERE
        error: KafkaError | None = None
        if kind == _GROUP_KEY:
            if self._allows(ctx, Operation.DESCRIBE, key):
                node = self._leader(key, ctx.listener)
            else:
                error = GroupAuthorizationFailed("The group may not be described")
        elif kind == _SHARE_KEY:
            if ctx.api_version < _SHARE_SINCE:
                error = InvalidRequest()
        elif not self._authorizer.allows(
            ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key
        ):
            error = TransactionalIdAuthorizationFailed("Not authorized to access transactional id.")
        if error is None and node.id < 0:
            error = CoordinatorNotAvailable("No coordinator is available now")
        return _Coordinator(
            key=key,
            node_id=node.id,
            host=node.host,
            port=node.port,
            error_code=NONE if error is None else error.code,
            error_message="" if error is None else error.message,
        )

    def _leader(self, group_id: str, listener: str) -> Node:
        number = self._coordinator.partition_for(group_id)
        if number is None:
            return _NOWHERE
        state = self._metadata.partition(TopicPartition(GROUP_METADATA_TOPIC, number))
        node = None if state is None else self._metadata.node(state.leader, listener)
        return node or _NOWHERE

    # -- membership ----------------------------------------------------------------------------

    def join_group(
        self, request: JoinGroupRequest, ctx: RequestContext
    ) -> "JoinGroupResponse | Awaitable[JoinGroupResponse]":
        version = ctx.api_version
        if not self._allows(ctx, Operation.READ, request.group_id):
            raise GroupAuthorizationFailed()
        names = [protocol.name for protocol in request.protocols]
        if len(set(names)) != len(names):
            raise InvalidRequest("A protocol is named twice")
        timeout_ms = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
        result = self._coordinator.join(
            JoinCall(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                ctx.client_id or "",
                f"/{ctx.client_host}",
                request.session_timeout_ms,
                timeout_ms,
                request.protocol_type,
                tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
                needs_known_id=version >= 4 and request.group_instance_id is None,
                may_skip_assignment=version >= 9,
                reason=request.reason or "",
                may_see=lambda topic: self._may_see(ctx, topic),
            )
        )
        if isinstance(result, Deferred):
            return _joined_later(result, version)
        return _joined(result, version)

    def sync_group(
        self, request: SyncGroupRequest, ctx: RequestContext
    ) -> "SyncGroupResponse | Awaitable[SyncGroupResponse]":
        if ctx.api_version >= 5 and None in (request.protocol_type, request.protocol_name):
            raise InconsistentGroupProtocol()
        if not self._allows(ctx, Operation.READ, request.group_id):
            raise GroupAuthorizationFailed()
        result = self._coordinator.sync(
            SyncCall(
                request.group_id,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                request.protocol_type,
                request.protocol_name,
                {one.member_id: bytes(one.assignment) for one in request.assignments},
            )
        )
        if isinstance(result, Deferred):
            return _synced_later(result)
        return _synced(result)

    def heartbeat(self, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        if not self._allows(ctx, Operation.READ, request.group_id):
            raise GroupAuthorizationFailed()
        caller = Caller(request.generation_id, request.member_id, request.group_instance_id)
        return HeartbeatResponse(error_code=self._coordinator.heartbeat(request.group_id, caller))

    def leave_group(
        self, request: LeaveGroupRequest, ctx: RequestContext
    ) -> "LeaveGroupResponse | Awaitable[LeaveGroupResponse]":
        if not self._allows(ctx, Operation.READ, request.group_id):
            raise GroupAuthorizationFailed()
        if ctx.api_version < 3:
            leaving = [MemberIdentity(request.member_id, None)]
        else:
            leaving = [
                MemberIdentity(one.member_id, one.group_instance_id) for one in request.members
            ]
        result = self._coordinator.leave(request.group_id, leaving)
        if isinstance(result, Deferred):
            return _left_later(result, ctx.api_version)
        return _left(result, ctx.api_version)

    # -- administration ------------------------------------------------------------------------

    def describe_groups(
        self, request: DescribeGroupsRequest, ctx: RequestContext
    ) -> DescribeGroupsResponse:
        refused: list[_Described] = []
        described: list[_Described] = []
        for group_id in request.groups:
            if not self._allows(ctx, Operation.DESCRIBE, group_id):
                refused.append(
                    _Described(group_id=group_id, error_code=GroupAuthorizationFailed.code)
                )
                continue
            answer = _described(group_id, self._coordinator.describe(group_id))
            if request.include_authorized_operations and answer.error_code == NONE:
                answer.authorized_operations = authorized_operations(
                    self._authorizer, ctx, ResourceType.GROUP, group_id
                )
            described.append(answer)
        return DescribeGroupsResponse(groups=refused + described)

    def list_groups(self, request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
        code, groups = self._coordinator.list_groups(request.states_filter, request.types_filter)
        shows_all = allows_cluster(self._authorizer, ctx, Operation.DESCRIBE)
        return ListGroupsResponse(
            error_code=code,
            groups=[
                ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for group in groups
                if shows_all or self._allows(ctx, Operation.DESCRIBE, group.group_id)
            ],
        )

    def delete_groups(
        self, request: DeleteGroupsRequest, ctx: RequestContext
    ) -> DeleteGroupsResponse:
        result = DeleteGroupsResponse.DeletableGroupResult
        deleted = []
        refused = []
        for group_id in dict.fromkeys(request.groups_names):
            if self._allows(ctx, Operation.DELETE, group_id):
                code = self._coordinator.delete_group(group_id)
                deleted.append(result(group_id=group_id, error_code=code))
            else:
                code = GroupAuthorizationFailed.code
                refused.append(result(group_id=group_id, error_code=code))
        return DeleteGroupsResponse(results=deleted + refused)


def _keys(request: FindCoordinatorRequest, version: int) -> list[str]:
    return request.coordinator_keys if version >= 4 else [request.key]


async def _left_later(work: "Deferred[LeaveResult]", version: int) -> LeaveGroupResponse:
    return _left(await work, version)


def _left(result: LeaveResult, version: int) -> LeaveGroupResponse:
    code, results = result
    if version < 3:
        if code == NONE and results:
            code = results[0][1]
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        error_code=code,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                error_code=member_code,
            )
            for member, member_code in results
        ],
    )


async def _joined_later(work: "Deferred[JoinResult]", version: int) -> JoinGroupResponse:
    return _joined(await work, version)


async def _synced_later(work: "Deferred[SyncResult]") -> SyncGroupResponse:
    return _synced(await work)


def _joined(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < 7 else name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )


def _synced(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def _described(group_id: str, summary: GroupSummary) -> _Described:
    return _Described(
        error_code=summary.error_code,
        group_id=group_id,
        group_state=summary.state,
        protocol_type=summary.protocol_type,
        protocol_data=summary.protocol_name,
        members=[
            _Described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in summary.members
        ],
        authorized_operations=NOT_REQUESTED,
    )
