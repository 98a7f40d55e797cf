"""CreateTopics v0-7, DeleteTopics v0-6, CreatePartitions v0-3, DeleteRecords v0-2.

Promises: every topic succeeds or fails alone; only the controller's broker changes topics; an answer
without error means that this broker's metadata shows the change.  KIPs: 4, 107, 195, 464, 516, 525.
Differs from Kafka: an assignment with an empty replica list is refused (INVALID_REPLICA_ASSIGNMENT),
as such a partition could never have a leader.  Reference: broker-errors 7, observed.
"""

from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.config import describe_topic
from kafkalike.controller.api import Controller
from kafkalike.errors import (
    NONE,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    NotController,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import NO_LEADER, ZERO_UUID, TopicPartition

from ..auth.authorizer import Authorizer, Operation, ResourceType, allows_cluster
from ..cluster.awaiting import FirstUpdate, MetadataWaiter
from ..cluster.dynamic_config import DynamicConfig
from ..cluster.metadata_cache import MetadataCache, MetadataSnapshot
from ..cluster.topic_admin import CreatedTopic, NewTopic, TopicAdmin
from ..cluster.topic_names import CLUSTER_METADATA_TOPIC, is_internal
from ..replica.manager import ReplicaManager
from ..replica.values import DeleteRecordsResult
from .request import RequestContext, Route, message_of, route

_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult

_ID_DELETE_VERSION: Final = 6
_DELETIONS_AT_ONCE: Final = 100


class TopicsApi:
    """Topics are created, grown and deleted here."""

    def __init__(
        self,
        controller: Controller,
        admin: TopicAdmin,
        metadata: MetadataCache,
        waiter: MetadataWaiter,
        config: DynamicConfig,
        authorizer: Authorizer,
        first_update: FirstUpdate | None = None,
    ) -> None:
        """`first_update` holds back what is checked against the cluster until this broker knows it."""
        self._first_update = first_update
        self._controller = controller
        self._admin = admin
        self._metadata = metadata
        self._waiter = waiter
        self._config = config
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(CreateTopicsRequest, self.create_topics),
            route(DeleteTopicsRequest, self.delete_topics),
            route(CreatePartitionsRequest, self.create_partitions),
        ]

    async def _know_the_cluster(self) -> None:
        """A controller that has just started need not know of brokers and topics yet."""
        if self._first_update is not None and (wait := self._first_update.wait()) is not None:
            await wait

    # -- CreateTopics --------------------------------------------------------------------------

    async def create_topics(
        self, request: CreateTopicsRequest, ctx: RequestContext
    ) -> CreateTopicsResponse:
        response = CreateTopicsResponse(topics=[_Created(name=t.name) for t in request.topics])
        if not self._controller.is_active:
            for result in response.topics:
                result.error_code = NotController.code
            return response
        await self._know_the_cluster()
        twice = _repeated(topic.name for topic in request.topics)
        waiting: dict[str, tuple[_Created, int]] = {}
        for topic, result in zip(request.topics, response.topics, strict=True):
            try:
                self._may_create(topic.name, twice, ctx)
                created = await self._admin.create(
                    _new_topic(topic), validate_only=request.validate_only
                )
            except KafkaError as error:
                _fail(result, error)
                continue
            self._describe(result, created, ctx)
            if not request.validate_only:
                waiting[topic.name] = (result, len(created.assignment))
        counts = {name: count for name, (_, count) in waiting.items()}
        for name in await self._late(counts, request.timeout_ms, _lacks_leaders):
            _fail(waiting[name][0], RequestTimedOut())
        return response

    def _may_create(self, name: str, twice: set[str], ctx: RequestContext) -> None:
        if name in twice:
            raise InvalidRequest("Found multiple entries for this topic.")
        if name == CLUSTER_METADATA_TOPIC:
            raise InvalidRequest(f"Creation of the internal topic {name} is prohibited")
        if not allows_cluster(self._authorizer, ctx, Operation.CREATE) and (
            not self._authorizer.allows(ctx, Operation.CREATE, ResourceType.TOPIC, name)
        ):
            raise TopicAuthorizationFailed("Authorization failed.")

    def _describe(self, result: _Created, created: CreatedTopic, ctx: RequestContext) -> None:
        """What version 5 and newer say of the topic to those who may describe its configuration."""
        result.error_message = None
        if not self._authorizer.allows(
            ctx, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name
        ):
            result.topic_config_error_code = TopicAuthorizationFailed.code
            return
        result.topic_id = created.topic_id or ZERO_UUID
        result.num_partitions = len(created.assignment)
        result.replication_factor = len(created.assignment[0])
        result.configs = [
            _Created.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=int(entry.source),
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(created.configs, self._config.layers)
        ]

    async def _late(
        self,
        counts: dict[str, int],
        timeout_ms: int,
        unfinished: Callable[[MetadataSnapshot, str, int], bool],
    ) -> list[str]:
        """Wait until no topic is unfinished in the metadata; those that are when time is up.

        Without time (0 or less) all count as late, as the original answers.
        """
        if not counts:
            return []
        if timeout_ms <= 0:
            return list(counts)
        await self._waiter.wait(
            counts,
            lambda snapshot: not any(unfinished(snapshot, t, n) for t, n in counts.items()),
            timeout_ms,
        )
        snapshot = self._metadata.snapshot
        return [name for name, count in counts.items() if unfinished(snapshot, name, count)]

    # -- DeleteTopics --------------------------------------------------------------------------

    async def delete_topics(
        self, request: DeleteTopicsRequest, ctx: RequestContext
    ) -> DeleteTopicsResponse:
        if ctx.api_version >= _ID_DELETE_VERSION:
            wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        else:
            wanted = [(name, ZERO_UUID) for name in request.topic_names]
        response = DeleteTopicsResponse(
            responses=[_Deleted(name=name, topic_id=topic_id) for name, topic_id in wanted]
        )
        refusal = self._deletion_refusal(ctx.api_version)
        if refusal != NONE:
            for result in response.responses:
                result.error_code = refusal
            return response
        if any(name is not None and topic_id != ZERO_UUID for name, topic_id in wanted):
            raise InvalidRequest("Topic name and topic id cannot both be given")
        await self._know_the_cluster()
        asked: list[tuple[str, _Deleted]] = []
        for result in response.responses:
            try:
                asked.append((self._may_delete(result, ctx), result))
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = message_of(error)
        waiting: dict[str, list[_Deleted]] = {}
        for start in range(0, len(asked), _DELETIONS_AT_ONCE):
            # Many are sent before the first answer is waited for: the controller takes them together.
            some = asked[start : start + _DELETIONS_AT_ONCE]
            for (name, result), deletion in [
                (one, as_deferred(self._ask_deletion(one[0]))) for one in some
            ]:
                problem = await deletion
                if problem is not None:
                    result.error_code = problem.code
                    result.error_message = message_of(problem)
                else:
                    waiting.setdefault(name, []).append(result)
        counts = dict.fromkeys(waiting, 0)
        for name in await self._late(counts, request.timeout_ms, _still_there):
            for result in waiting[name]:
                result.error_code = RequestTimedOut.code
        return response

    async def _ask_deletion(self, topic: str) -> KafkaError | None:
        """Put the wish into ZooKeeper; what went wrong, if anything."""
        try:
            await self._admin.delete(topic)
        except KafkaError as error:
            return error
        return None

    def _deletion_refusal(self, version: int) -> int:
        if not self._controller.is_active:
            return NotController.code
        if not self._config.broker.delete_topic_enable:
            return InvalidRequest.code if version < 3 else TopicDeletionDisabled.code
        return NONE

    def _may_delete(self, result: _Deleted, ctx: RequestContext) -> str:
        """The topic's name; fills it in where an id was given."""
        by_id = result.topic_id != ZERO_UUID
        if by_id:
            # the controller still knows a topic that is being deleted
            result.name = self._controller.topic_name(result.topic_id)
            if result.name is None:
                raise UnknownTopicId()
            if not self._authorizer.allows(
                ctx, Operation.DESCRIBE, ResourceType.TOPIC, result.name
            ):
                result.name = None
                raise TopicAuthorizationFailed()
        name = result.name
        if name is None:
            raise TopicAuthorizationFailed()
        if not self._authorizer.allows(ctx, Operation.DELETE, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed()
        if not self._metadata.has_topic(name):
            raise UnknownTopicOrPartition()
        return name

    # -- CreatePartitions ----------------------------------------------------------------------

    async def create_partitions(
        self, request: CreatePartitionsRequest, ctx: RequestContext
    ) -> CreatePartitionsResponse:
        response = CreatePartitionsResponse()
        results: dict[str, _Grown] = {}
        twice = _repeated(topic.name for topic in request.topics)
        counts: dict[str, int] = {}
        for topic in request.topics:
            if topic.name in results:
                continue
            result = results[topic.name] = _Grown(name=topic.name)
            response.results.append(result)
            try:
                self._may_grow(topic.name, twice, ctx)
                assignments = None
                if topic.assignments is not None:
                    assignments = [assignment.broker_ids for assignment in topic.assignments]
                numbers = await self._admin.create_partitions(
                    topic.name, topic.count, assignments, validate_only=request.validate_only
                )
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = message_of(error)
                continue
            if not request.validate_only:
                counts[topic.name] = len(numbers)
        for name in await self._late(counts, request.timeout_ms, _lacks_leaders):
            results[name].error_code = RequestTimedOut.code
        return response

    def _may_grow(self, name: str, twice: set[str], ctx: RequestContext) -> None:
        if not self._controller.is_active:
            raise NotController()
        if name in twice:
            raise InvalidRequest("Duplicate topic in request.")
        if not self._authorizer.allows(ctx, Operation.ALTER, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed("The topic authorization is failed.")


class DeleteRecordsApi:
    """DeleteRecords: leaders move the start of their logs."""

    def __init__(
        self, replicas: ReplicaManager, metadata: MetadataCache, authorizer: Authorizer
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [route(DeleteRecordsRequest, self.delete_records)]

    async def delete_records(
        self, request: DeleteRecordsRequest, ctx: RequestContext
    ) -> DeleteRecordsResponse:
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            allowed = self._authorizer.allows(ctx, Operation.DELETE, ResourceType.TOPIC, topic.name)
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                results[topic_partition] = DeleteRecordsResult()
                code = NONE
                if not allowed:
                    code = TopicAuthorizationFailed.code
                elif not self._metadata.contains(topic_partition):
                    code = self._metadata.unknown.code
                elif is_internal(topic.name):
                    code = InvalidTopicException.code
                if code == NONE:
                    offsets[topic_partition] = partition.offset
                else:
                    results[topic_partition] = DeleteRecordsResult(error_code=code)
        if offsets:
            done = self._replicas.delete_records(offsets, timeout_ms=request.timeout_ms)
            results.update(await done if isinstance(done, Deferred) else done)
        return _delete_records_response(results)


def _delete_records_response(
    results: dict[TopicPartition, DeleteRecordsResult],
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    topics: dict[str, DeleteRecordsResponse.DeleteRecordsTopicResult] = {}
    for (name, number), result in results.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DeleteRecordsResponse.DeleteRecordsTopicResult(name=name)
            response.topics.append(topic)
        topic.partitions.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult(
                partition_index=number,
                low_watermark=result.low_watermark,
                error_code=result.error_code,
            )
        )
    return response


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    """Raises UnknownServerError for a partition number below 0, as the original answers."""
    assignment: dict[int, tuple[int, ...]] | None = None
    if topic.assignments:
        assignment = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments}
        if min(assignment) < 0:
            raise UnknownServerError(f"Partition number {min(assignment)} is below 0")
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignment,
        {config.name: config.value for config in topic.configs},
    )


def _fail(result: _Created, error: KafkaError) -> None:
    result.error_code = error.code
    result.error_message = message_of(error)
    result.configs = []
    result.num_partitions = -1
    result.replication_factor = -1
    result.topic_config_error_code = NONE


def _lacks_leaders(snapshot: MetadataSnapshot, name: str, count: int) -> bool:
    """Whether one of the partitions 0 to count-1 is not known with a leader."""
    partitions = snapshot.topics.get(name)
    if partitions is None:
        return True
    states = (partitions.get(number) for number in range(count))
    return any(state is None or state.leader == NO_LEADER for state in states)


def _still_there(snapshot: MetadataSnapshot, name: str, _count: int) -> bool:
    return name in snapshot.topics


def _repeated(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    twice: set[str] = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return twice
