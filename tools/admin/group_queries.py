"""Questions about consumer groups, as `kafkalike-admin groups` asks them.

Everything about one group goes to its coordinator; while that moves or loads, it is asked again until
the client's time is over.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    error_name,
)
from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafkalike.runtime import tasks
from kafkalike.runtime.ports import Clock
from kafkalike.types import TopicPartition

from .. import cli
from .client import AdminClient

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
RETRY_S: Final = 0.1
_TRY_AGAIN: Final = {
    CoordinatorLoadInProgress.code,
    CoordinatorNotAvailable.code,
    NotCoordinator.code,
}

Group = DescribeGroupsResponse.DescribedGroup
Listed = ListGroupsResponse.ListedGroup


@dataclass(slots=True)
class Coordinator:
    """Where a group is coordinated."""

    broker_id: int
    host: str
    port: int


class GroupQueries:
    """Asks coordinators and leaders; `timeout_s` bounds every search for one that answers."""

    def __init__(self, client: AdminClient, clock: Clock, timeout_s: float) -> None:
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s

    def now_ms(self) -> int:
        """The time here, for durations."""
        return self._clock.now_ms()

    # -- groups --------------------------------------------------------------------------------

    async def all_groups(self, states: Sequence[str] = ()) -> list[Listed]:
        """What every broker lists, by name.  Raises CommandError."""
        metadata = await self._client.metadata([])
        found: dict[str, Listed] = {}
        for broker in metadata.brokers:
            request = ListGroupsRequest(states_filter=list(states))
            response = await self._again(
                partial(self._client.broker, broker.node_id, request),
                lambda answer: answer.error_code,
                f"groups of broker {broker.node_id}",
            )
            found.update({group.group_id: group for group in response.groups})
        return [found[name] for name in sorted(found)]

    async def coordinator(self, group: str) -> Coordinator:
        """Raises CommandError."""
        response = await self._again(
            lambda: self._client.any_broker(FindCoordinatorRequest(coordinator_keys=[group])),
            lambda answer: answer.coordinators[0].error_code,
            f"coordinator of group {group}",
        )
        found = response.coordinators[0]
        return Coordinator(found.node_id, found.host, found.port)

    async def describe(self, group: str) -> tuple[Group, Coordinator]:
        """State and members.  Raises CommandError."""
        response, coordinator = await self._ask(
            group, DescribeGroupsRequest(groups=[group]), lambda a: a.groups[0].error_code
        )
        return response.groups[0], coordinator

    async def delete(self, group: str) -> int:
        """The error code.  Raises CommandError when no coordinator answers."""
        response, _ = await self._ask(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            lambda a: a.results[0].error_code,
            final=False,
        )
        code: int = response.results[0].error_code
        return code

    # -- offsets -------------------------------------------------------------------------------

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """All committed offsets, by topic and partition."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        response, _ = await self._ask(
            group, OffsetFetchRequest(groups=[asked]), lambda a: a.groups[0].error_code
        )
        found = {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in response.groups[0].topics
            for partition in topic.partitions
            if partition.error_code == NONE and partition.committed_offset != NO_OFFSET
        }
        return dict(sorted(found.items()))

    async def commit(
        self, group: str, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The error code of each partition."""
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                topic_class(
                    name=topic,
                    partitions=[
                        topic_class.OffsetCommitRequestPartition(
                            partition_index=key.partition, committed_offset=offsets[key]
                        )
                        for key in keys
                    ],
                )
                for topic, keys in by_topic(offsets).items()
            ],
        )
        response, _ = await self._ask(group, request, _first_retriable, final=False)
        return _codes(response)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> tuple[int, dict[TopicPartition, int]]:
        """The group's error code, and that of each partition."""
        topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                topic_class(
                    name=topic,
                    partitions=[
                        topic_class.OffsetDeleteRequestPartition(partition_index=key.partition)
                        for key in keys
                    ],
                )
                for topic, keys in by_topic(partitions).items()
            ],
        )
        response, _ = await self._ask(group, request, lambda a: a.error_code, final=False)
        return response.error_code, _codes(response)

    async def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Partitions of topics that exist."""
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        metadata = await self._client.metadata(names)
        return {
            str(topic.name): sorted(p.partition_index for p in topic.partitions)
            for topic in metadata.topics
            if topic.error_code == NONE
        }

    async def log_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ends of logs (EARLIEST, LATEST) or the first offsets not older than `timestamp`.

        Partitions without an answer are left out; -1 where no record is that young.
        """
        wanted = sorted(set(partitions))
        if not wanted:
            return {}
        metadata = await self._client.metadata(sorted({key.topic for key in wanted}))
        leaders = _leaders(metadata)
        found: dict[TopicPartition, int] = {}
        for leader in sorted({leaders.get(key, -1) for key in wanted} - {-1}):
            keys = [key for key in wanted if leaders.get(key) == leader]
            response = await self._client.broker(leader, _list_offsets(keys, timestamp))
            for topic in response.topics:
                for partition in topic.partitions:
                    if partition.error_code == NONE:
                        key = TopicPartition(topic.name, partition.partition_index)
                        found[key] = partition.offset
        return found

    # -- asking --------------------------------------------------------------------------------

    async def _ask(
        self, group: str, request: Any, code_of: Callable[[Any], int], *, final: bool = True
    ) -> tuple[Any, Coordinator]:
        """Ask the group's coordinator, also a new one; with `final` an error ends the command."""
        found: list[Coordinator] = []

        async def attempt() -> Any:
            found.append(await self.coordinator(group))
            return await self._client.broker(found[-1].broker_id, request)

        answer = await self._again(attempt, code_of, f"group {group!r}", final=final)
        return answer, found[-1]

    async def _again(
        self,
        attempt: Callable[[], Awaitable[Any]],
        code_of: Callable[[Any], int],
        what: str,
        *,
        final: bool = True,
    ) -> Any:
        deadline_s = self._clock.monotonic() + self._timeout_s
        while True:
            answer = await attempt()
            code = code_of(answer)
            if code not in _TRY_AGAIN:
                break
            if self._clock.monotonic() >= deadline_s:
                break
            await tasks.sleep(self._clock, RETRY_S)
        if code != NONE and (final or code in _TRY_AGAIN):
            raise cli.CommandError(f"{what}: {error_name(code)}")
        return answer


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions grouped by topic, sorted."""
    grouped: dict[str, list[TopicPartition]] = {}
    for key in sorted(partitions):
        grouped.setdefault(key.topic, []).append(key)
    return grouped


def _codes(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def _first_retriable(response: Any) -> int:
    return next((code for code in _codes(response).values() if code in _TRY_AGAIN), NONE)


def _leaders(metadata: MetadataResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(str(topic.name), partition.partition_index): partition.leader_id
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }


def _list_offsets(partitions: Sequence[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    topic_class.ListOffsetsPartition(
                        partition_index=key.partition, timestamp=timestamp
                    )
                    for key in keys
                ],
            )
            for topic, keys in by_topic(partitions).items()
        ],
    )
