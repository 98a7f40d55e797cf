"""OffsetCommit v0-9, OffsetFetch v0-9, OffsetDelete v0.

Promises: each partition succeeds or fails alone; a commit is answered once it is replicated.  Version
0 of commit and fetch keeps offsets in ZooKeeper, on whichever broker is asked.
KIPs: 211, 320 (leader epoch), 345, 447 (require stable), 496, 709.  Reference: broker-errors 9,
group-coordinator 7 and 8.
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    NONE,
    GroupAuthorizationFailed,
    KafkaError,
    OffsetMetadataTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafkalike.runtime.ports import Clock
from kafkalike.types import NO_EPOCH, TopicPartition

from ..auth.authorizer import Authorizer, Operation, ResourceType
from ..cluster.metadata_cache import MetadataCache
from ..coordinator.groups import GroupCoordinator, java_length
from ..coordinator.values import (
    NO_OFFSET,
    NO_TIMESTAMP,
    Caller,
    FetchedOffset,
    OffsetAndMetadata,
)
from .request import RequestContext, Route, route

DEFAULT_RETENTION: Final = -1

_CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_CommitPartition = _CommitTopic.OffsetCommitResponsePartition
_CommitRequestPartition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
_FetchTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_FetchPartition = _FetchTopic.OffsetFetchResponsePartition
_FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_RequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_DeleteTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


class OldOffsets(Protocol):
    """Offsets in ZooKeeper, as consumers of version 0 keep them."""

    def read(self, group_id: str, partition: TopicPartition) -> Awaitable[int | None]:
        """The offset, None when there is none.  Raises KafkaError."""

    def write(self, group_id: str, partition: TopicPartition, offset: int) -> Awaitable[None]:
        """Raises KafkaError."""


class OffsetsApi:
    """How far groups have come."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        old_offsets: OldOffsets,
        metadata: MetadataCache,
        authorizer: Authorizer,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._coordinator = coordinator
        self._old_offsets = old_offsets
        self._metadata = metadata
        self._authorizer = authorizer
        self._clock = clock
        self._metadata_limit = config.offset_metadata_max_bytes

    def routes(self) -> list[Route]:
        return [
            route(OffsetCommitRequest, self.offset_commit),
            route(OffsetFetchRequest, self.offset_fetch),
            route(OffsetDeleteRequest, self.offset_delete),
        ]

    def _allows_group(self, ctx: RequestContext, operation: Operation, group_id: str) -> bool:
        return self._authorizer.allows(ctx, operation, ResourceType.GROUP, group_id)

    def _refusal(self, ctx: RequestContext, operation: Operation, topic: str) -> int:
        if not self._authorizer.allows(ctx, operation, ResourceType.TOPIC, topic):
            return TopicAuthorizationFailed.code
        return (
            NONE if self._metadata.has_topic(topic) else self._metadata.unknown_to_coordinator.code
        )

    # -- OffsetCommit --------------------------------------------------------------------------

    def offset_commit(
        self, request: OffsetCommitRequest, ctx: RequestContext
    ) -> "OffsetCommitResponse | Awaitable[OffsetCommitResponse]":
        if not self._allows_group(ctx, Operation.READ, request.group_id):
            raise GroupAuthorizationFailed()
        refused: dict[TopicPartition, int] = {}
        valid: dict[TopicPartition, _CommitRequestPartition] = {}
        for topic in request.topics:
            code = self._refusal(ctx, Operation.READ, topic.name)
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                if code != NONE:
                    refused[key] = code
                elif not self._metadata.contains(key):
                    refused[key] = self._metadata.unknown_to_coordinator.code
                else:
                    valid[key] = partition
        if not valid:
            return _commit_response(refused, {})
        if ctx.api_version == 0:
            return self._commit_old(request.group_id, refused, valid)
        codes = self._coordinator.commit(
            request.group_id,
            Caller(
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
            ),
            self._offsets(request, valid),
            version=ctx.api_version,
        )
        if isinstance(codes, Deferred):
            return _commit_later(refused, codes)
        return _commit_response(refused, codes)

    def _offsets(
        self, request: OffsetCommitRequest, valid: Mapping[TopicPartition, _CommitRequestPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        now_ms = self._clock.now_ms()
        expires_ms = NO_TIMESTAMP
        if request.retention_time_ms != DEFAULT_RETENTION:
            expires_ms = now_ms + request.retention_time_ms
        return {
            key: OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms
                if partition.commit_timestamp == NO_TIMESTAMP
                else partition.commit_timestamp,
                expires_ms,
            )
            for key, partition in valid.items()
        }

    async def _commit_old(
        self,
        group_id: str,
        refused: dict[TopicPartition, int],
        valid: Mapping[TopicPartition, _CommitRequestPartition],
    ) -> OffsetCommitResponse:
        codes = {}
        for key, partition in valid.items():
            codes[key] = NONE
            if java_length(partition.committed_metadata or "") > self._metadata_limit:
                codes[key] = OffsetMetadataTooLarge.code
                continue
            try:
                await self._old_offsets.write(group_id, key, partition.committed_offset)
            except KafkaError as error:
                codes[key] = error.code
        return _commit_response(refused, codes)

    # -- OffsetFetch ---------------------------------------------------------------------------

    def offset_fetch(
        self, request: OffsetFetchRequest, ctx: RequestContext
    ) -> "OffsetFetchResponse | Awaitable[OffsetFetchResponse]":
        version = ctx.api_version
        if version >= 8:
            stable = request.require_stable
            return OffsetFetchResponse(
                groups=[self._fetch_group(group, stable, ctx) for group in request.groups]
            )
        if not self._allows_group(ctx, Operation.DESCRIBE, request.group_id):
            return _fetch_error(request, GroupAuthorizationFailed.code, version)
        if version == 0:
            return self._fetch_old(request, ctx)
        group = _RequestGroup(
            group_id=request.group_id,
            topics=None
            if request.topics is None
            else [
                _RequestGroup.OffsetFetchRequestTopics(
                    name=topic.name, partition_indexes=topic.partition_indexes
                )
                for topic in request.topics
            ],
        )
        code, found = self._fetch(group, request.require_stable, ctx)
        if code != NONE:
            return _fetch_error(request, code, version)
        return OffsetFetchResponse(topics=_fetch_topics(found))

    def _fetch_group(
        self, group: _RequestGroup, require_stable: bool, ctx: RequestContext
    ) -> _FetchGroup:
        code = GroupAuthorizationFailed.code
        found: dict[TopicPartition, FetchedOffset] = {}
        if self._allows_group(ctx, Operation.DESCRIBE, group.group_id):
            code, found = self._fetch(group, require_stable, ctx)
        topic_class = _FetchGroup.OffsetFetchResponseTopics
        topics: dict[str, _FetchGroup.OffsetFetchResponseTopics] = {}
        for key, offset in found.items():
            topic = topics.get(key.topic)
            if topic is None:
                topic = topics[key.topic] = topic_class(name=key.topic)
            topic.partitions.append(
                topic_class.OffsetFetchResponsePartitions(
                    partition_index=key.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                    error_code=offset.error_code,
                )
            )
        return _FetchGroup(group_id=group.group_id, topics=list(topics.values()), error_code=code)

    def _fetch(
        self, group: _RequestGroup, require_stable: bool, ctx: RequestContext
    ) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
        """Offsets of what may be seen; topics that may not be seen stand at the end."""

        def shown(topic: str) -> bool:
            return self._authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)

        def fetch(
            partitions: list[TopicPartition] | None,
        ) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
            return self._coordinator.fetch(
                group.group_id,
                partitions,
                require_stable=require_stable,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )

        if group.topics is None:
            code, found = fetch(None)
            return code, {key: offset for key, offset in found.items() if shown(key.topic)}
        allowed: list[TopicPartition] = []
        refused: list[TopicPartition] = []
        for topic in group.topics:
            keys = [TopicPartition(topic.name, index) for index in topic.partition_indexes]
            (allowed if shown(topic.name) else refused).extend(keys)
        code, found = fetch(allowed)
        if code == NONE:
            refusal = FetchedOffset(error_code=TopicAuthorizationFailed.code)
            found.update(dict.fromkeys(refused, refusal))
        return code, found

    async def _fetch_old(
        self, request: OffsetFetchRequest, ctx: RequestContext
    ) -> OffsetFetchResponse:
        found: dict[TopicPartition, FetchedOffset] = {}
        for topic in request.topics or ():
            code = self._refusal(ctx, Operation.DESCRIBE, topic.name)
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                if code == NONE:
                    found[key] = await self._read_old(request.group_id, key)
                else:
                    found[key] = FetchedOffset(error_code=code)
        return OffsetFetchResponse(topics=_fetch_topics(found))

    async def _read_old(self, group_id: str, key: TopicPartition) -> FetchedOffset:
        if not self._metadata.contains(key):
            return FetchedOffset(error_code=self._metadata.unknown_to_coordinator.code)
        try:
            offset = await self._old_offsets.read(group_id, key)
        except KafkaError as error:
            return FetchedOffset(error_code=error.code)
        if offset is None:
            return FetchedOffset(error_code=UnknownTopicOrPartition.code)
        return FetchedOffset(offset)

    # -- OffsetDelete --------------------------------------------------------------------------

    def offset_delete(
        self, request: OffsetDeleteRequest, ctx: RequestContext
    ) -> OffsetDeleteResponse:
        if not self._allows_group(ctx, Operation.DELETE, request.group_id):
            raise GroupAuthorizationFailed()
        codes: dict[TopicPartition, int] = {}
        valid: list[TopicPartition] = []
        for topic in request.topics:
            code = self._refusal(ctx, Operation.READ, topic.name)
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                if code != NONE:
                    codes[key] = code
                elif not self._metadata.contains(key):
                    codes[key] = self._metadata.unknown_to_coordinator.code
                else:
                    valid.append(key)
        deleted = self._coordinator.delete_offsets(request.group_id, valid)
        if deleted.error_code != NONE:
            return OffsetDeleteResponse(error_code=deleted.error_code)
        codes.update(deleted.codes)
        topics: dict[str, _DeleteTopic] = {}
        for key, code in codes.items():
            answer = topics.get(key.topic)
            if answer is None:
                answer = topics[key.topic] = _DeleteTopic(name=key.topic)
            answer.partitions.append(
                _DeleteTopic.OffsetDeleteResponsePartition(
                    partition_index=key.partition, error_code=code
                )
            )
        return OffsetDeleteResponse(topics=list(topics.values()))


async def _commit_later(
    refused: dict[TopicPartition, int], codes: "Deferred[dict[TopicPartition, int]]"
) -> OffsetCommitResponse:
    return _commit_response(refused, await codes)


def _commit_response(
    refused: Mapping[TopicPartition, int], codes: Mapping[TopicPartition, int]
) -> OffsetCommitResponse:
    topics: dict[str, _CommitTopic] = {}
    for results in (refused, codes):
        for key, code in results.items():
            topic = topics.get(key.topic)
            if topic is None:
                topic = topics[key.topic] = _CommitTopic(name=key.topic)
            topic.partitions.append(
                _CommitPartition(partition_index=key.partition, error_code=code)
            )
    return OffsetCommitResponse(topics=list(topics.values()))


def _fetch_topics(found: Mapping[TopicPartition, FetchedOffset]) -> list[_FetchTopic]:
    topics: dict[str, _FetchTopic] = {}
    for key, offset in found.items():
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = _FetchTopic(name=key.topic)
        topic.partitions.append(
            _FetchPartition(
                partition_index=key.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=offset.error_code,
            )
        )
    return list(topics.values())


def _fetch_error(request: OffsetFetchRequest, code: int, version: int) -> OffsetFetchResponse:
    """An error for the group; versions 0 and 1 can only say it of each partition."""
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(topics=_fetch_topics(dict(_all_failed(request, code))))


def _all_failed(
    request: OffsetFetchRequest, code: int
) -> Iterable[tuple[TopicPartition, FetchedOffset]]:
    for topic in request.topics or ():
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), FetchedOffset(NO_OFFSET, NO_EPOCH, "", code)
