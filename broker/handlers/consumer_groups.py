"""ConsumerGroupHeartbeat v0-1, ConsumerGroupDescribe v0-1 where group.coordinator.rebalance.protocols
names `consumer`; elsewhere v0, answered with UNSUPPORTED_VERSION as by brokers beside ZooKeeper.

Promises: members are told what is replicated.  KIPs: 848, 1082, 1099.  Reference: group-coordinator
14; as Kafka 4.1 serves them.
"""

from collections.abc import Awaitable
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from kafkalike.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from ..auth.authorizer import Authorizer, Operation, ResourceType, authorized_operations
from ..coordinator.consumer_records import in_order, partitions_of
from ..coordinator.consumer_values import (
    ConsumerGroupSummary,
    ConsumerMemberSummary,
    HeartbeatCall,
    HeartbeatResult,
    NamedPartitions,
)
from ..coordinator.groups import GroupCoordinator
from .request import RequestContext, Route, route

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Kinds of members by their wire codes."""

_Beaten = ConsumerGroupHeartbeatResponse
_Described = ConsumerGroupDescribeResponse.DescribedGroup
_Assignment = ConsumerGroupDescribeResponse.Assignment


class ConsumerGroupsApi:
    """What members of the newer protocol ask, and administrators about them."""

    def __init__(self, coordinator: GroupCoordinator, authorizer: Authorizer) -> None:
        self._coordinator = coordinator
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        versions = (0, 0) if self._coordinator.consumers is None else None
        return [
            route(ConsumerGroupHeartbeatRequest, self.heartbeat, versions=versions),
            route(ConsumerGroupDescribeRequest, self.describe, versions=versions),
        ]

    def _may_see(self, ctx: RequestContext, topic: str) -> bool:
        return self._authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    # -- heartbeat -----------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, ctx: RequestContext
    ) -> "ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]":
        groups = self._coordinator.consumers
        if groups is None:
            raise UnsupportedVersion()
        if not self._authorizer.allows(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed()
        if not all(self._may_see(ctx, topic) for topic in request.subscribed_topic_names or ()):
            raise TopicAuthorizationFailed()
        result = groups.heartbeat(
            HeartbeatCall(
                request.group_id,
                request.member_id,
                request.member_epoch,
                ctx.api_version,
                ctx.client_id or "",
                f"/{ctx.client_host}",
                lambda topic: self._may_see(ctx, topic),
                request.instance_id,
                request.rack_id,
                request.rebalance_timeout_ms,
                request.subscribed_topic_names,
                request.subscribed_topic_regex,
                request.server_assignor,
                None
                if request.topic_partitions is None
                else partitions_of(request.topic_partitions),
            )
        )
        if isinstance(result, Deferred):
            return _beaten_later(result)
        return _beaten(result)

    # -- describe ------------------------------------------------------------------------------

    def describe(
        self, request: ConsumerGroupDescribeRequest, ctx: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        groups = self._coordinator.consumers
        if groups is None:
            raise UnsupportedVersion()
        refused: list[_Described] = []
        described: list[_Described] = []
        for group_id in request.group_ids:
            if not self._authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id):
                refused.append(
                    _Described(group_id=group_id, error_code=GroupAuthorizationFailed.code)
                )
                continue
            summary = groups.describe(group_id)
            if self._shows_unseen(summary, ctx):
                refusal = TopicAuthorizationFailed(
                    "The group has described topic(s) that the client is not authorized to describe."
                )
                answer = _Described(
                    group_id=group_id, error_code=refusal.code, error_message=refusal.message
                )
            else:
                answer = _described(summary)
            if request.include_authorized_operations and answer.error_code == NONE:
                answer.authorized_operations = authorized_operations(
                    self._authorizer, ctx, ResourceType.GROUP, group_id
                )
            described.append(answer)
        return ConsumerGroupDescribeResponse(groups=refused + described)

    def _shows_unseen(self, summary: ConsumerGroupSummary, ctx: RequestContext) -> bool:
        """Whether the group owns topics that the caller may not know of."""
        return any(
            not self._may_see(ctx, topic)
            for topic in dict.fromkeys(
                part.topic
                for member in summary.members
                for part in (*member.assigned, *member.target)
            )
        )


async def _beaten_later(work: "Deferred[HeartbeatResult]") -> ConsumerGroupHeartbeatResponse:
    return _beaten(await work)


def _beaten(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assigned is not None:
        assignment = _Beaten.Assignment(
            topic_partitions=[
                _Beaten.TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in in_order(result.assigned)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _described(summary: ConsumerGroupSummary) -> _Described:
    return _Described(
        error_code=summary.error_code,
        error_message=summary.error_message,
        group_id=summary.group_id,
        group_state=summary.state,
        group_epoch=summary.epoch,
        assignment_epoch=summary.assignment_epoch,
        assignor_name=summary.assignor,
        members=[_member(member) for member in summary.members],
    )


def _member(summary: ConsumerMemberSummary) -> _Described.Member:
    member = summary.member
    return _Described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(summary.assigned),
        target_assignment=_assignment(summary.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(parts: list[NamedPartitions]) -> _Assignment:
    return _Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=part.topic_id, topic_name=part.topic, partitions=part.partitions
            )
            for part in parts
        ]
    )
