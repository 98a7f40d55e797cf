"""Metadata v0-12 (with automatic topics) and DescribeCluster v0-1.

Promises: one answer shows one state of the cluster; addresses are those of the listener the request
came through.  KIPs: 4, 78 (cluster id), 112, 320, 430 (authorised operations), 516 (topic ids), 700.
Reference: broker-errors 6, observed "Where the original surprises" 11.
"""

from collections.abc import Awaitable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    NONE,
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    ListenerNotFound,
    MismatchedEndpointType,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from kafkalike.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafkalike.types import NO_LEADER, ZERO_UUID

from ..auth.authorizer import (
    CLUSTER_NAME,
    Authorizer,
    Operation,
    ResourceType,
    allows_cluster,
    authorized_operations,
)
from ..cluster.auto_topics import AutoTopics
from ..cluster.awaiting import FirstUpdate
from ..cluster.metadata_cache import MetadataCache, MetadataSnapshot, PartitionMetadata
from ..cluster.topic_names import is_internal, topic_name_problem
from .request import RequestContext, Route, route

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition

CACHED_PARTITIONS: Final = 20_000

_BROKER_ENDPOINTS: Final = 1
_CONTROLLER_ENDPOINTS: Final = 2


@dataclass(slots=True)
class _Selection:
    """What one Metadata request is answered with: topics to show, and ready-made answers."""

    names: list[str] = field(default_factory=list)
    answers: list[_Topic] = field(default_factory=list)


class MetadataApi:
    """What clients ask first: brokers, controller, topics, leaders."""

    def __init__(
        self,
        metadata: MetadataCache,
        authorizer: Authorizer,
        auto_topics: AutoTopics,
        cluster_id: str,
        config: BrokerConfig,
        first_update: FirstUpdate | None = None,
    ) -> None:
        """`first_update` holds back answers until this broker knows the cluster."""
        self._first_update = first_update
        self._recent = _RecentAnswers()
        self._may_share = authorizer.allows_everything
        self._metadata = metadata
        self._authorizer = authorizer
        self._auto_topics = auto_topics
        self._cluster_id = cluster_id
        self._creates = config.auto_create_topics_enable

    def routes(self) -> list[Route]:
        return [
            route(MetadataRequest, self.metadata),
            route(DescribeClusterRequest, self.describe_cluster),
        ]

    # -- Metadata ------------------------------------------------------------------------------

    def metadata(
        self, request: MetadataRequest, ctx: RequestContext
    ) -> "MetadataResponse | Awaitable[MetadataResponse]":
        """Answer at once unless topics have to be created first."""
        _check_topics(request, ctx.api_version)
        if self._first_update is not None:
            wait = self._first_update.wait()
            if wait is not None:
                return self._metadata_later(request, ctx, wait)
        return self._metadata_now(request, ctx)

    async def _metadata_later(
        self, request: MetadataRequest, ctx: RequestContext, wait: Awaitable[None]
    ) -> MetadataResponse:
        await wait
        answer = self._metadata_now(request, ctx)
        return answer if isinstance(answer, MetadataResponse) else await answer

    def _metadata_now(
        self, request: MetadataRequest, ctx: RequestContext
    ) -> "MetadataResponse | Awaitable[MetadataResponse]":
        version = ctx.api_version
        snapshot = self._metadata.snapshot
        wants_all = request.topics is None or (version == 0 and not request.topics)
        key = self._recent.key(request, version, ctx.listener) if self._may_share else None
        if key is not None:
            known = self._recent.get(key, snapshot)
            if known is not None:
                return known
        selection = self._select(request, ctx, snapshot, wants_all)
        missing = [name for name in selection.names if name not in snapshot.topics]
        if not missing:
            response = self._respond(request, ctx, snapshot, selection)
            if key is not None:
                self._recent.put(key, response)
            return response
        if self._metadata.lacks_topics:
            selection.answers.extend(_missing(name, LeaderNotAvailable.code) for name in missing)
            return self._respond(request, ctx, snapshot, selection)
        if not (self._creates and request.allow_auto_topic_creation):
            selection.answers.extend(_missing(name) for name in missing)
            return self._respond(request, ctx, snapshot, selection)
        return self._create(request, ctx, selection, missing)

    def _select(
        self,
        request: MetadataRequest,
        ctx: RequestContext,
        snapshot: MetadataSnapshot,
        wants_all: bool,
    ) -> _Selection:
        """Which topics the request means and the caller may see."""
        selection = _Selection()
        by_id = False
        names: Iterable[str]
        if wants_all:
            names = snapshot.topics
        else:
            ids = [t.topic_id for t in request.topics or () if t.topic_id != ZERO_UUID]
            by_id = bool(ids)
            if by_id:
                found = []
                for topic_id in dict.fromkeys(ids):
                    name = snapshot.topic_names.get(topic_id)
                    if name is None:
                        selection.answers.append(
                            _Topic(error_code=UnknownTopicId.code, name=None, topic_id=topic_id)
                        )
                    else:
                        found.append(name)
                names = found
            else:
                names = dict.fromkeys(t.name or "" for t in request.topics or ())
        if self._authorizer.allows_everything:
            selection.names = list(names)
            return selection
        for name in names:
            if self._authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name):
                selection.names.append(name)
            elif not wants_all:
                selection.answers.append(
                    _Topic(
                        error_code=TopicAuthorizationFailed.code,
                        name=None if by_id else name,
                        topic_id=snapshot.topic_id(name) if by_id else ZERO_UUID,
                    )
                )
        return selection

    async def _create(
        self,
        request: MetadataRequest,
        ctx: RequestContext,
        selection: _Selection,
        missing: list[str],
    ) -> MetadataResponse:
        may_create = missing
        if not allows_cluster(self._authorizer, ctx, Operation.CREATE):
            may_create = []
            for name in missing:
                if self._authorizer.allows(ctx, Operation.CREATE, ResourceType.TOPIC, name):
                    may_create.append(name)
                else:
                    selection.answers.append(
                        _Topic(
                            error_code=TopicAuthorizationFailed.code,
                            name=name,
                            is_internal=is_internal(name),
                        )
                    )
        outcomes = await self._auto_topics.create(may_create)
        selection.answers.extend(
            _Topic(error_code=code, name=name, is_internal=is_internal(name))
            for name, code in outcomes.items()
        )
        # brokers and leaders as they are after the wait
        return self._respond(request, ctx, self._metadata.snapshot, selection, frozenset(missing))

    def _respond(
        self,
        request: MetadataRequest,
        ctx: RequestContext,
        snapshot: MetadataSnapshot,
        selection: _Selection,
        created: frozenset[str] = frozenset(),
    ) -> MetadataResponse:
        version = ctx.api_version
        view = _View(snapshot, ctx.listener, version)
        topics = selection.answers
        for name in selection.names:
            partitions = snapshot.topics.get(name)
            if partitions is not None and name not in created:
                topics.append(view.topic(name, partitions))
        response = MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
                for node in snapshot.nodes(ctx.listener)
            ],
            cluster_id=self._cluster_id,
            controller_id=snapshot.controller_id,
            topics=topics,
        )
        if version >= 8:
            self._add_operations(request, ctx, response)
        return response

    def _add_operations(
        self, request: MetadataRequest, ctx: RequestContext, response: MetadataResponse
    ) -> None:
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = self._cluster_operations(ctx)
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.name is not None and topic.error_code != TopicAuthorizationFailed.code:
                    topic.topic_authorized_operations = authorized_operations(
                        self._authorizer, ctx, ResourceType.TOPIC, topic.name
                    )

    def _cluster_operations(self, ctx: RequestContext) -> int:
        if not allows_cluster(self._authorizer, ctx, Operation.DESCRIBE):
            return 0
        return authorized_operations(self._authorizer, ctx, ResourceType.CLUSTER, CLUSTER_NAME)

    # -- DescribeCluster -----------------------------------------------------------------------

    async def describe_cluster(
        self, request: DescribeClusterRequest, ctx: RequestContext
    ) -> DescribeClusterResponse:
        if self._first_update is not None and (wait := self._first_update.wait()) is not None:
            await wait
        if request.endpoint_type != _BROKER_ENDPOINTS:
            return self._wrong_endpoints(request, ctx.api_version)
        snapshot = self._metadata.snapshot
        response = DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=snapshot.controller_id,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
                for node in snapshot.nodes(ctx.listener)
            ],
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = self._cluster_operations(ctx)
        return response

    def _wrong_endpoints(
        self, request: DescribeClusterRequest, version: int
    ) -> DescribeClusterResponse:
        kind = request.endpoint_type
        code = UnsupportedEndpointType.code
        if kind == _CONTROLLER_ENDPOINTS:
            code = MismatchedEndpointType.code
        if version == 0:
            code = InvalidRequest.code
        return DescribeClusterResponse(
            error_code=code,
            error_message=f"Endpoint type {kind} is not served here, expected {_BROKER_ENDPOINTS}",
        )


class _RecentAnswers:
    """Answers for the present snapshot that are the same for everybody who asks the same.

    Bound: `CACHED_PARTITIONS` partitions over all answers.
    """

    def __init__(self) -> None:
        self._version = -1
        self._answers: dict[Hashable, MetadataResponse] = {}
        self._partitions = 0

    @staticmethod
    def key(request: MetadataRequest, version: int, listener: str) -> Hashable | None:
        """None for what is not kept."""
        if (
            request.include_cluster_authorized_operations
            or request.include_topic_authorized_operations
        ):
            return None
        if request.topics is None:
            return version, listener, None
        return version, listener, tuple([(t.name, t.topic_id) for t in request.topics])

    def get(self, key: Hashable, snapshot: MetadataSnapshot) -> MetadataResponse | None:
        if self._version != snapshot.version:
            self._version = snapshot.version
            self._answers.clear()
            self._partitions = 0
            return None
        answer = self._answers.get(key)
        if answer is not None:
            answer.throttle_time_ms = 0  # what the dispatcher wrote for somebody else
        return answer

    def put(self, key: Hashable, answer: MetadataResponse) -> None:
        weight = 1 + sum(1 + len(topic.partitions) for topic in answer.topics)
        if self._partitions + weight > CACHED_PARTITIONS:
            self._answers.clear()
            self._partitions = 0
            if weight > CACHED_PARTITIONS:
                return
        self._answers[key] = answer
        self._partitions += weight


class _View:
    """One snapshot as a client on one listener may see it."""

    def __init__(self, snapshot: MetadataSnapshot, listener: str, version: int) -> None:
        self._snapshot = snapshot
        self._reachable = {
            broker_id
            for broker_id, broker in snapshot.brokers.items()
            if listener in broker.endpoints
        }
        self._strict_replicas = version == 0
        self._no_listener = ListenerNotFound.code if version >= 6 else LeaderNotAvailable.code

    def topic(self, name: str, partitions: Mapping[int, PartitionMetadata]) -> _Topic:
        return _Topic(
            name=name,
            topic_id=self._snapshot.topic_id(name),
            is_internal=is_internal(name),
            partitions=[
                self._partition(number, state) for number, state in sorted(partitions.items())
            ],
        )

    def _partition(self, number: int, state: PartitionMetadata) -> _Partition:
        leader = state.leader
        replicas: Iterable[int] = state.replicas
        isr: Iterable[int] = state.isr
        code = NONE
        if self._strict_replicas:
            replicas = [r for r in replicas if r in self._reachable]
            isr = [r for r in isr if r in self._reachable]
            if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
                code = ReplicaNotAvailable.code
        if leader not in self._reachable:
            known = leader in self._snapshot.brokers
            code = self._no_listener if known else LeaderNotAvailable.code
            leader = NO_LEADER
        return _Partition(
            error_code=code,
            partition_index=number,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(replicas),
            isr_nodes=list(isr),
            offline_replicas=list(state.offline_replicas),
        )


def _check_topics(request: MetadataRequest, version: int) -> None:
    """What versions 10 and 11 could carry but not mean, and what version 12 must not.

    Raises InvalidRequest, UnknownServerError.
    """
    for topic in request.topics or ():
        if version < 12 and topic.name is None:
            raise InvalidRequest(f"Topic name is null, version {version} needs a name")
        if version < 12 and topic.topic_id != ZERO_UUID:
            raise InvalidRequest(f"Topic ids are served from version 12, not in {version}")
        if version >= 12 and topic.name is None and topic.topic_id == ZERO_UUID:
            raise UnknownServerError("Topic has neither name nor id")


def _missing(name: str, code: int = UnknownTopicOrPartition.code) -> _Topic:
    if topic_name_problem(name) is not None:
        code = InvalidTopicException.code
    return _Topic(error_code=code, name=name, is_internal=is_internal(name))
