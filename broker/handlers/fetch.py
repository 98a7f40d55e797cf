"""Fetch v0-17: record batches to consumers and followers.

Promises: whole batches from the requested offset on (an incomplete last one may be cut), isolation
bound respected, incremental sessions, waits for min_bytes in the purgatory.
KIPs: 74, 227 (sessions), 320 (epochs), 392 (follower reads), 516 (topic ids), 595, 903, 951.
Reference: broker-errors 4, replication 8, 10, 11.
"""

import struct
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnsupportedCompressionType,
    UnsupportedVersion,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.records.batch import LOG_OVERHEAD
from kafkalike.runtime.ports import FileRange
from kafkalike.types import ZERO_UUID, TopicPartition

from ..auth.authorizer import Authorizer, Operation, ResourceType, allows_cluster
from ..cluster.metadata_cache import MetadataCache
from ..replica.fetch_session import FINAL_EPOCH, FetchContext, FetchSessions
from ..replica.manager import ReplicaManager
from ..replica.values import READ_COMMITTED, READ_UNCOMMITTED, FetchParams
from .down_conversion import CONVERTED_BYTES, NEWEST_CONVERTED_VERSION, down_convert, magic_for
from .leaders import CurrentLeaders
from .request import RequestContext, Route, route

_Topic = FetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData
_FIRST_ZSTD_VERSION: Final = 10
_PREFIX: Final = struct.Struct(">qi")


class FetchApi:
    """Fetch; `max_bytes` is fetch.max.bytes."""

    def __init__(
        self,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        metadata: MetadataCache,
        authorizer: Authorizer,
        leaders: CurrentLeaders,
        *,
        max_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._metadata = metadata
        self._authorizer = authorizer
        self._leaders = leaders
        self._max_bytes = max_bytes

    def routes(self) -> list[Route]:
        return [route(FetchRequest, self.fetch)]

    def fetch(
        self, request: FetchRequest, ctx: RequestContext
    ) -> "FetchResponse | Deferred[FetchResponse]":
        """Read now, or wait up to max_wait_ms."""
        version = ctx.header.api_version
        if (
            version >= 13
            and request.session_epoch != FINAL_EPOCH
            and any(topic.topic_id == ZERO_UUID for topic in request.topics)
        ):
            raise UnknownServerError("A topic without an id cannot be part of a fetch session")
        state = request.replica_state
        replica_id = state.replica_id if version >= 15 else request.replica_id
        try:
            context = self._sessions.begin(
                request,
                version,
                is_follower=replica_id >= 0,
                topic_name=self._metadata.topic_name,
                topic_id=self._metadata.topic_id,
            )
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        self._refuse(context, replica_id >= 0, ctx)
        if not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED and any(
            partition.error_code == NONE for partition in context.partitions()
        ):
            raise UnknownServerError(f"Isolation level {request.isolation_level} is unknown")
        max_bytes = min(request.max_bytes, self._max_bytes)
        answer = self._replicas.fetch(
            FetchParams(
                version=version,
                replica_id=replica_id,
                max_wait_ms=request.max_wait_ms,
                min_bytes=min(request.min_bytes, max_bytes),
                max_bytes=max_bytes,
                isolation_level=request.isolation_level,
                client_id=ctx.header.client_id or "",
                rack_id=request.rack_id,
                listener=ctx.listener,
                replica_epoch=state.replica_epoch,
            ),
            context,
        )
        if version < _FIRST_ZSTD_VERSION:
            if isinstance(answer, Deferred):
                answer.addCallback(self._for_old_client, request, version)
            else:
                answer = self._for_old_client(answer, request, version)
        if isinstance(answer, Deferred):
            return answer.addCallback(self._finish, ctx)
        return self._finish(answer, ctx)

    def _refuse(self, context: FetchContext, is_follower: bool, ctx: RequestContext) -> None:
        """Mark the partitions that are answered with an error and not read."""
        authorizer = None if self._authorizer.allows_everything else self._authorizer
        if is_follower:
            if authorizer is not None and not allows_cluster(
                authorizer, ctx, Operation.CLUSTER_ACTION
            ):
                for partition in context.partitions():
                    partition.error_code = TopicAuthorizationFailed.code
            return
        topics = self._metadata.snapshot.topics
        unknown = self._metadata.unknown
        for partition in context.partitions():
            if partition.error_code != NONE:
                continue
            name, number = partition.topic_partition
            if authorizer is not None and not authorizer.allows(
                ctx, Operation.READ, ResourceType.TOPIC, name
            ):
                partition.error_code = TopicAuthorizationFailed.code
                continue
            known = topics.get(name)
            if known is None or number not in known:
                partition.error_code = unknown.code

    def _for_old_client(
        self, response: FetchResponse, request: FetchRequest, version: int
    ) -> FetchResponse:
        """Records in a form that this version may carry, or the error that says they have none."""
        offsets = {
            (topic.topic, wanted.partition): wanted.fetch_offset
            for topic in request.topics
            for wanted in topic.partitions
        }
        count = sum(len(topic.partitions) for topic in response.responses)
        for topic in response.responses:
            for index, partition in enumerate(topic.partitions):
                number = partition.partition_index
                hosted = self._replicas.partition(TopicPartition(topic.topic, number))
                if hosted is None or hosted.log is None:
                    continue
                config = hosted.log.config
                code = NONE
                if config.compression_type == "zstd":
                    code = UnsupportedCompressionType.code
                elif version <= NEWEST_CONVERTED_VERSION:
                    if not config.message_downconversion_enable and request.replica_id < 0:
                        code = UnsupportedVersion.code
                    elif partition.records:
                        code = _convert(partition, offsets[topic.topic, number], version, count)
                if code != NONE:
                    topic.partitions[index] = _Partition(
                        partition_index=number, error_code=code, high_watermark=-1, records=None
                    )
        return response

    def _finish(self, response: FetchResponse, ctx: RequestContext) -> FetchResponse:
        """What depends on the version: hidden error codes, addresses of new leaders."""
        version = ctx.header.api_version
        if 5 < version < 16:
            return response
        for topic in response.responses:
            for partition in topic.partitions:
                code = partition.error_code
                if code == NONE:
                    continue
                if version <= 5 and code == KafkaStorageError.code:
                    partition.error_code = NotLeaderOrFollower.code
                elif version >= 16 and code in (NotLeaderOrFollower.code, FencedLeaderEpoch.code):
                    self._add_leader(topic, partition, response, ctx)
        return response

    def _add_leader(
        self, topic: _Topic, partition: _Partition, response: FetchResponse, ctx: RequestContext
    ) -> None:
        name = self._metadata.topic_name(topic.topic_id)
        if name is None:
            return
        leader, epoch, node = self._leaders.find(
            TopicPartition(name, partition.partition_index), ctx.listener
        )
        partition.current_leader = _Partition.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if node is not None and all(n.node_id != node.id for n in response.node_endpoints):
            response.node_endpoints.append(
                FetchResponse.NodeEndpoint(
                    node_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
            )


def _convert(partition: _Partition, fetch_offset: int, version: int, count: int) -> int:
    """Records of one of `count` partitions for a client of Fetch v0-3; an error code."""
    stored: Any = partition.records
    room = CONVERTED_BYTES // count
    if isinstance(stored, FileRange):
        if stored.length > room:
            head = stored.file.pread(_PREFIX.size, stored.position)
            room = max(room, _PREFIX.unpack(head)[1] + LOG_OVERHEAD)
        data = stored.file.pread(min(stored.length, room), stored.position)
    else:
        data = stored
    try:
        partition.records = down_convert(data, magic_for(version), fetch_offset)
    except UnsupportedCompressionType as error:
        return error.code
    return NONE
