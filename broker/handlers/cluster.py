"""ElectLeaders v0-2, Alter-/ListPartitionReassignments v0, DescribeLogDirs v0-4, UpdateFeatures v0-1.

Promises: what needs the controller is answered NOT_CONTROLLER by every other broker; ElectLeaders
answers when this broker's metadata shows the leaders, or after its timeout.
KIPs: 113, 455, 460, 584, 827.  Reference: broker-errors 7, 8; controller 12, 13.
"""

from collections.abc import Awaitable
from typing import Final

from kafkalike.controller.api import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    Controller,
    ElectionResult,
)
from kafkalike.errors import (
    NONE,
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    NotController,
    RequestTimedOut,
    UnknownServerError,
)
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkalike.types import TopicPartition

from ..auth.authorizer import Authorizer, Operation, allows_cluster
from ..cluster.awaiting import MetadataWaiter
from ..cluster.metadata_cache import MetadataCache, MetadataSnapshot
from ..replica.manager import ReplicaManager
from .request import RequestContext, Route, message_of, route

_ELECTIONS: Final = (PREFERRED_ELECTION, UNCLEAN_ELECTION)
_Election = ElectLeadersResponse.ReplicaElectionResult
_Dir = DescribeLogDirsResponse.DescribeLogDirsResult


class ClusterApi:
    """Requests about the cluster as a whole; most of them are the controller's business."""

    def __init__(
        self,
        controller: Controller,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        waiter: MetadataWaiter,
        authorizer: Authorizer,
    ) -> None:
        self._controller = controller
        self._replicas = replicas
        self._metadata = metadata
        self._waiter = waiter
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(ElectLeadersRequest, self.elect_leaders),
            route(AlterPartitionReassignmentsRequest, self.alter_partition_reassignments),
            route(ListPartitionReassignmentsRequest, self.list_partition_reassignments),
            route(DescribeLogDirsRequest, self.describe_log_dirs),
            route(UpdateFeaturesRequest, self.update_features),
        ]

    # -- elections -----------------------------------------------------------------------------

    async def elect_leaders(
        self, request: ElectLeadersRequest, ctx: RequestContext
    ) -> ElectLeadersResponse:
        self._require(ctx, Operation.ALTER)
        if request.election_type not in _ELECTIONS:
            raise UnknownServerError(
                f"Election type {request.election_type} is unknown, expected 0 or 1"
            )
        wanted: list[TopicPartition]
        if request.topic_partitions is None:
            wanted = [partition for partition, _ in self._metadata.snapshot.partitions()]
        else:
            wanted = [
                TopicPartition(topic.topic, number)
                for topic in request.topic_partitions
                for number in topic.partitions
            ]
        results = await self._controller.elect_leaders(request.election_type, wanted)
        expected = {tp: r.leader for tp, r in results.items() if r.leader is not None}
        if expected:
            await self._waiter.wait(
                [topic_partition.topic for topic_partition in expected],
                lambda snapshot: not _unfinished(snapshot, expected),
                max(request.timeout_ms, 0),
            )
        late = _unfinished(self._metadata.snapshot, expected)
        return _elections(results, late, omit_not_needed=request.topic_partitions is None)

    # -- reassignments -------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, ctx: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        self._require(ctx, Operation.ALTER)
        try:
            return await self._controller.alter_partition_reassignments(request)
        except NotController as error:  # said once, not for each partition
            return AlterPartitionReassignmentsResponse(
                error_code=error.code, error_message=message_of(error)
            )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, ctx: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        self._require(ctx, Operation.DESCRIBE)
        try:
            return await self._controller.list_partition_reassignments(request)
        except NotController as error:
            return ListPartitionReassignmentsResponse(
                error_code=error.code, error_message=message_of(error)
            )

    def update_features(
        self, request: UpdateFeaturesRequest, ctx: RequestContext
    ) -> Awaitable[UpdateFeaturesResponse]:
        self._require(ctx, Operation.ALTER)
        # a feature named twice counts once, as the original reads the request
        first = {update.feature: update for update in reversed(request.feature_updates)}
        request.feature_updates = [
            update for update in request.feature_updates if first[update.feature] is update
        ]
        return self._controller.update_features(request, ctx.api_version)

    # -- log directories -----------------------------------------------------------------------

    def describe_log_dirs(
        self, request: DescribeLogDirsRequest, ctx: RequestContext
    ) -> DescribeLogDirsResponse:
        if not allows_cluster(self._authorizer, ctx, Operation.DESCRIBE):
            return DescribeLogDirsResponse(error_code=ClusterAuthorizationFailed.code)
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = {
                TopicPartition(topic.topic, number)
                for topic in request.topics
                for number in topic.partitions
            }
        response = DescribeLogDirsResponse()
        for found in self._replicas.describe_log_dirs(wanted):
            result = _Dir(
                error_code=found.error_code,
                log_dir=found.path,
                total_bytes=found.total_bytes,
                usable_bytes=found.usable_bytes,
            )
            response.results.append(result)
            topics: dict[str, _Dir.DescribeLogDirsTopic] = {}
            for log in found.partitions:
                name, number = log.topic_partition
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = _Dir.DescribeLogDirsTopic(name=name)
                    result.topics.append(topic)
                topic.partitions.append(
                    _Dir.DescribeLogDirsTopic.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=log.size_bytes,
                        offset_lag=log.offset_lag,
                        is_future_key=log.is_future,
                    )
                )
        return response

    def _require(self, ctx: RequestContext, operation: Operation) -> None:
        if not allows_cluster(self._authorizer, ctx, operation):
            raise ClusterAuthorizationFailed()


def _unfinished(
    snapshot: MetadataSnapshot, expected: dict[TopicPartition, int]
) -> set[TopicPartition]:
    """Partitions whose elected leader the snapshot does not show."""
    late: set[TopicPartition] = set()
    for topic_partition, leader in expected.items():
        state = snapshot.topics.get(topic_partition.topic, {}).get(topic_partition.partition)
        if state is None or state.leader != leader:
            late.add(topic_partition)
    return late


def _elections(
    results: dict[TopicPartition, ElectionResult],
    late: set[TopicPartition],
    *,
    omit_not_needed: bool,
) -> ElectLeadersResponse:
    response = ElectLeadersResponse()
    topics: dict[str, _Election] = {}
    for topic_partition, result in results.items():
        error = result.error
        if error is None and topic_partition in late:
            error = RequestTimedOut()
        if omit_not_needed and isinstance(error, ElectionNotNeeded):
            continue
        topic = topics.get(topic_partition.topic)
        if topic is None:
            topic = topics[topic_partition.topic] = _Election(topic=topic_partition.topic)
            response.replica_election_results.append(topic)
        topic.partition_result.append(
            _Election.PartitionResult(
                partition_id=topic_partition.partition,
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else message_of(error),
            )
        )
    return response
