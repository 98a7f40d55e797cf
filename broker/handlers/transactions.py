"""InitProducerId v0-5 without a transactional id, and DescribeProducers v0.

Promises: a producer id is given once.  With a transactional id the answer is
COORDINATOR_NOT_AVAILABLE: no transaction coordinator runs here.  KIPs: 98, 360, 664.
Reference: broker-errors 10, inter-broker 8.
"""

from kafkalike.errors import (
    NONE,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kafkalike.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafkalike.types import TopicPartition

from ..auth.authorizer import Authorizer, Operation, ResourceType, allows_cluster
from ..cluster.metadata_cache import MetadataCache
from ..cluster.producer_ids import ProducerIds
from ..cluster.topic_names import topic_name_problem
from ..replica.manager import ReplicaManager
from .request import RequestContext, Route, route

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


class ProducerIdApi:
    """Ids for idempotent producers, and who produces to a partition."""

    def __init__(
        self,
        producer_ids: ProducerIds,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        authorizer: Authorizer,
    ) -> None:
        self._producer_ids = producer_ids
        self._replicas = replicas
        self._metadata = metadata
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(InitProducerIdRequest, self.init_producer_id),
            route(DescribeProducersRequest, self.describe_producers),
        ]

    async def init_producer_id(
        self, request: InitProducerIdRequest, ctx: RequestContext
    ) -> InitProducerIdResponse:
        try:
            producer_id = await self._init(request, ctx)
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    async def _init(self, request: InitProducerIdRequest, ctx: RequestContext) -> int:
        transactional_id = request.transactional_id
        if transactional_id is not None:
            if not self._authorizer.allows(
                ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
            ):
                raise TransactionalIdAuthorizationFailed()
        elif not (
            allows_cluster(self._authorizer, ctx, Operation.IDEMPOTENT_WRITE)
            or self._authorizer.allows_any(ctx, Operation.WRITE, ResourceType.TOPIC)
        ):
            raise ClusterAuthorizationFailed()
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise InvalidRequest("Producer id and epoch are given together or not at all")
        if transactional_id == "":
            raise InvalidRequest("Transactional id is empty")
        if transactional_id is not None:
            raise CoordinatorNotAvailable()
        return await self._producer_ids.next()

    def describe_producers(
        self, request: DescribeProducersRequest, ctx: RequestContext
    ) -> DescribeProducersResponse:
        response = DescribeProducersResponse()
        for topic in request.topics:
            answer = _Topic(name=topic.name)
            response.topics.append(answer)
            refusal = self._refusal(topic.name, ctx)
            for index in topic.partition_indexes:
                partition = _Partition(partition_index=index)
                answer.partitions.append(partition)
                if refusal is not None:
                    partition.error_code = refusal.code
                    partition.error_message = str(refusal)
                    continue
                try:
                    self._describe(TopicPartition(topic.name, index), partition)
                except KafkaError as error:
                    partition.error_code = error.code
        return response

    def _refusal(self, topic: str, ctx: RequestContext) -> KafkaError | None:
        problem = topic_name_problem(topic)
        if problem is not None:
            return InvalidTopicException(problem)
        if not self._authorizer.allows(ctx, Operation.READ, ResourceType.TOPIC, topic):
            return TopicAuthorizationFailed()
        if not self._metadata.has_topic(topic):
            return UnknownTopicOrPartition()
        return None

    def _describe(self, topic_partition: TopicPartition, answer: _Partition) -> None:
        partition = self._replicas.partition(topic_partition)
        if partition is None or partition.log is None:
            partition = self._replicas.leader_partition(topic_partition)
        assert partition.log is not None
        answer.error_code = NONE
        answer.active_producers = [
            _Partition.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_start_offset,
            )
            for producer in partition.log.active_producers()
        ]
