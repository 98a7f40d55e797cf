"""ListOffsets v0-9 and OffsetForLeaderEpoch v0-4.

Promises: each partition succeeds or fails alone.  KIPs: 79, 207, 320, 734, 405 (local offsets).
Reference: broker-errors 5.
"""

from typing import Final

from kafkalike.errors import (
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnsupportedVersion,
)
from kafkalike.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkalike.types import TopicPartition

from ..auth.authorizer import Authorizer, Operation, ResourceType, allows_cluster
from ..replica.manager import ReplicaManager
from ..replica.values import CONSUMER, DEBUGGING_CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from .request import RequestContext, Route, route

_SINCE: Final = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}
"""First version that knows each special timestamp."""

_ListTopic = ListOffsetsResponse.ListOffsetsTopicResponse
_ListPartition = _ListTopic.ListOffsetsPartitionResponse
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


class ListOffsetsApi:
    """Offsets by time and by leader epoch."""

    def __init__(self, replicas: ReplicaManager, authorizer: Authorizer) -> None:
        self._replicas = replicas
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            route(ListOffsetsRequest, self.list_offsets),
            route(OffsetForLeaderEpochRequest, self.offset_for_leader_epoch),
        ]

    def list_offsets(self, request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse:
        version = ctx.api_version
        twice = _listed_twice(request) if version >= 1 else frozenset()
        response = ListOffsetsResponse()
        for topic in request.topics:
            answer = _ListTopic(name=topic.name)
            response.topics.append(answer)
            allowed = self._authorizer.allows(
                ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.name
            )
            for wanted in topic.partitions:
                topic_partition = TopicPartition(topic.name, wanted.partition_index)
                result = _ListPartition(partition_index=wanted.partition_index)
                answer.partitions.append(result)
                try:
                    if not allowed:
                        raise TopicAuthorizationFailed()
                    if topic_partition in twice:
                        raise InvalidRequest(f"{topic_partition} is listed twice")
                    self._list(request, version, topic_partition, wanted, result)
                except KafkaError as error:
                    result.error_code = error.code
        return response

    def _list(
        self,
        request: ListOffsetsRequest,
        version: int,
        topic_partition: TopicPartition,
        wanted: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        result: _ListPartition,
    ) -> None:
        timestamp = wanted.timestamp
        if timestamp < 0 and version < _SINCE.get(timestamp, 1 << 15):
            raise UnsupportedVersion(f"Timestamp {timestamp} is not known in version {version}")
        if version == 0:
            result.old_style_offsets = self._segment_offsets(
                request.replica_id, topic_partition, timestamp, wanted.max_num_offsets
            )
            return
        if (
            version >= 2
            and request.replica_id == CONSUMER
            and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
        ):
            raise UnknownServerError(f"Isolation level {request.isolation_level} is unknown")
        found = self._replicas.list_offset(
            topic_partition,
            timestamp,
            version=version,
            replica_id=request.replica_id,
            isolation_level=request.isolation_level,
            current_leader_epoch=wanted.current_leader_epoch,
        )
        result.timestamp = found.timestamp
        result.offset = found.offset
        if version >= 4:
            result.leader_epoch = found.leader_epoch

    def _segment_offsets(
        self, replica_id: int, topic_partition: TopicPartition, timestamp: int, max_count: int
    ) -> list[int]:
        """What version 0 answers: where segments begin, newest first."""
        if max_count < 0:
            raise UnknownServerError(f"Cannot list {max_count} offsets")
        if replica_id == DEBUGGING_CONSUMER:  # reads from any replica
            partition = self._replicas.hosted_partition(topic_partition)
        else:
            partition = self._replicas.leader_partition(topic_partition)
        assert partition.log is not None
        offsets = partition.log.legacy_offsets_before(timestamp, max_count)
        high_watermark = partition.log.high_watermark
        if replica_id == CONSUMER and any(offset > high_watermark for offset in offsets):
            return [high_watermark, *(o for o in offsets if o <= high_watermark)]
        return offsets

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, ctx: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        is_broker = allows_cluster(self._authorizer, ctx, Operation.CLUSTER_ACTION)
        for topic in request.topics:
            answer = _EpochTopic(topic=topic.topic)
            response.topics.append(answer)
            allowed = is_broker or self._authorizer.allows(
                ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic
            )
            for wanted in topic.partitions:
                result = _EpochTopic.EpochEndOffset(partition=wanted.partition)
                answer.partitions.append(result)
                try:
                    if not allowed:
                        raise TopicAuthorizationFailed()
                    found = self._replicas.offset_for_leader_epoch(
                        TopicPartition(topic.topic, wanted.partition),
                        current_leader_epoch=wanted.current_leader_epoch,
                        leader_epoch=wanted.leader_epoch,
                        replica_id=request.replica_id,
                    )
                except KafkaError as error:
                    result.error_code = error.code
                    continue
                result.leader_epoch = found.leader_epoch
                result.end_offset = found.end_offset
        return response


def _listed_twice(request: ListOffsetsRequest) -> frozenset[TopicPartition]:
    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            (twice if topic_partition in seen else seen).add(topic_partition)
    return frozenset(twice)
