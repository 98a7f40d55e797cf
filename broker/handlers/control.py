"""What brokers and the controller ask of each other.

From the controller: LeaderAndIsr v0-7, UpdateMetadata v0-8, StopReplica v0-4.  To it:
ControlledShutdown v0-3, AlterPartition v0-3, AllocateProducerIds v0.
Promises: the controller's orders are carried out one at a time in the order of arrival, stale ones
are refused.  KIPs: 380 (broker epochs), 497 (AlterPartition), 516 (topic ids), 730 (producer ids).
Reference: inter-broker 3, 9, 11; replication 2, 3; controller 17.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kafkalike.controller.api import Controller
from kafkalike.errors import (
    NONE,
    ClusterAuthorizationFailed,
    InvalidRequest,
    UnknownServerError,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkalike.messages.transactions import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalike.runtime.tasks import Mutex
from kafkalike.types import TopicPartition

from ..auth.authorizer import Authorizer, Operation, allows_cluster
from ..cluster.metadata_cache import MetadataCache
from ..cluster.topic_names import topic_name_problem
from ..replica.manager import ReplicaManager
from .request import RequestContext, Route, route

T = TypeVar("T")

LoadTopicConfigs = Callable[[Collection[str]], Awaitable[None]]
"""Reads the settings of topics that get their first log here; returns when they are effective."""


class ControlApi:
    """Orders from the controller, carried out under one lock.

    `wait_registered` is None or fires once this broker has an epoch: until then nobody can tell
    whether an order is meant for this life of the broker or for the one before, so it waits.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        authorizer: Authorizer,
        load_topic_configs: LoadTopicConfigs,
        wait_registered: "Callable[[], Awaitable[None] | None]" = lambda: None,
    ) -> None:
        self._wait_registered = wait_registered
        self._replicas = replicas
        self._metadata = metadata
        self._authorizer = authorizer
        self._load_topic_configs = load_topic_configs
        self._lock = Mutex()

    def routes(self) -> list[Route]:
        return [
            route(LeaderAndIsrRequest, self.leader_and_isr),
            route(StopReplicaRequest, self.stop_replica),
            route(UpdateMetadataRequest, self.update_metadata),
        ]

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, ctx: RequestContext
    ) -> LeaderAndIsrResponse:
        self._check(ctx, request.is_kraft_controller)
        _check_partitions(request)
        async with self._lock:
            await self._registered()
            unknown = self._topics_without_log(request)
            if unknown:
                await self._load_topic_configs(unknown)
            return self._replicas.become_leader_or_follower(request, ctx.api_version)

    async def stop_replica(
        self, request: StopReplicaRequest, ctx: RequestContext
    ) -> StopReplicaResponse:
        self._check(ctx, request.is_kraft_controller)
        async with self._lock:
            await self._registered()
            return self._replicas.stop_replicas(request, ctx.api_version)

    async def update_metadata(
        self, request: UpdateMetadataRequest, ctx: RequestContext
    ) -> UpdateMetadataResponse:
        self._check(ctx, request.is_kraft_controller)
        async with self._lock:
            await self._registered()
            code = self._replicas.check_controller_epoch(
                request.controller_epoch, request.broker_epoch
            )
            if code == NONE:
                self._metadata.update(request)
                self._replicas.metadata_updated()
            return UpdateMetadataResponse(error_code=code)

    async def _registered(self) -> None:
        wait = self._wait_registered()
        if wait is not None:
            await wait

    def _check(self, ctx: RequestContext, from_kraft: bool) -> None:
        check_cluster_action(self._authorizer, ctx)
        if from_kraft:
            raise UnknownServerError("Requests of a KRaft controller are not served")

    def _topics_without_log(self, request: LeaderAndIsrRequest) -> list[str]:
        """Topics of which a partition is not hosted here yet: its log needs their settings.

        Read afresh each time a log is created, as a topic of the same name may have existed before.
        """
        hosted = self._replicas.partition
        topics: dict[str, None] = {}
        for topic in request.topic_states:
            name = topic.topic_name
            for state in topic.partition_states:
                if hosted(TopicPartition(name, state.partition_index)) is None:
                    topics[name] = None
                    break
        for state in request.ungrouped_partition_states:
            if hosted(TopicPartition(state.topic_name, state.partition_index)) is None:
                topics[state.topic_name] = None
        return list(topics)


def _check_partitions(request: LeaderAndIsrRequest) -> None:
    """Refuse what cannot be the name of a directory here: a controller never says such a thing.

    Raises InvalidRequest; otherwise the failing disk call would be taken for a failing disk.
    """
    states = [(topic.topic_name, topic.partition_states) for topic in request.topic_states]
    states += [(state.topic_name, [state]) for state in request.ungrouped_partition_states]
    for name, partitions in states:
        problem = topic_name_problem(name)
        if problem is None and any(state.partition_index < 0 for state in partitions):
            problem = f"Topic {name} has a partition below zero"
        if problem is not None:
            raise InvalidRequest(problem)


class ControllerApi:
    """What other brokers ask of this one because it is, or may be, the controller."""

    def __init__(self, controller: Controller, authorizer: Authorizer) -> None:
        self._controller = controller
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(ControlledShutdownRequest, self.controlled_shutdown),
            route(AlterPartitionRequest, self.alter_partition),
            route(AllocateProducerIdsRequest, self.allocate_producer_ids),
        ]

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, ctx: RequestContext
    ) -> Awaitable[ControlledShutdownResponse]:
        check_cluster_action(self._authorizer, ctx)
        return self._controller.controlled_shutdown(request)

    def alter_partition(
        self, request: AlterPartitionRequest, ctx: RequestContext
    ) -> Awaitable[AlterPartitionResponse]:
        check_cluster_action(self._authorizer, ctx)
        return self._controller.alter_partition(request, ctx.api_version)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, ctx: RequestContext
    ) -> Awaitable[AllocateProducerIdsResponse]:
        check_cluster_action(self._authorizer, ctx)
        return self._controller.allocate_producer_ids(request)


def check_cluster_action(authorizer: Authorizer, ctx: RequestContext) -> None:
    """Only brokers may ask this.  Raises ClusterAuthorizationFailed."""
    if not allows_cluster(authorizer, ctx, Operation.CLUSTER_ACTION):
        raise ClusterAuthorizationFailed()
