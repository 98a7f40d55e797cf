"""Groups whose coordinator is elsewhere, loads, or cannot store what it is told.

`__consumer_offsets` is made by hand: partition 0 on brokers 1 and 3, partition 1 on 1 and 2, partition
2 on 2 and 1.  Broker 3 stands still; where it is dead (`refused`), partition 0 is below
min.insync.replicas.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kafkalike.broker.coordinator.groups import abs_java_hash
from kafkalike.broker.coordinator.records import offset_key, offset_value
from kafkalike.broker.coordinator.values import OffsetAndMetadata
from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafkalike.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.protocol.struct import Message
from kafkalike.records.batch import encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.types import TopicPartition

from ..case import Ask, Case, Names, Together, Topic, versions_of
from .asks import done, elect, listed, reassign
from .group_offsets import Offsets
from .groups import UNORDERED, ready

HOMES: Final = Topic(
    "__consumer_offsets",
    replicas=[[1, 3], [1, 2], [2, 1], [2, 1]],
    config={"cleanup.policy": "compact", "min.insync.replicas": "2"},
)
READ: Final = Topic("groups-read", replicas=[[1], [1]])
STALLED, MOVED, AWAY = range(3)
"""Partitions of the groups' topic."""

BATCHES: Final = 40
RECORDS: Final = 12_500
"""So that a load takes long enough to be seen; the records of a batch are alike and pack well."""


def at(partition: int, name: str) -> str:
    """A group of that name which lives in the partition."""
    number = 0
    while abs_java_hash(group := f"homes-{name}-{number}") % len(HOMES.replicas) != partition:
        number += 1
    return group


class Homes(Offsets):
    """A story on three brokers; `home` is the coordinator that it begins with."""

    def __init__(self, group: str, home: int = 1) -> None:
        super().__init__(group)
        self.home = home

    def case(self, name: str, **more: Any) -> Case:
        setup = [
            Ask(ask.message, ask.version, until=ask.until, to=self.home)
            for ask in ready(self.group)
        ]
        return Case(
            name,
            self.steps,
            setup=setup,
            uses=(HOMES, READ),
            unordered=UNORDERED,
            **more,
        )


def cases() -> Iterator[Case]:
    yield elsewhere()
    for version in (1, OffsetCommitRequest.max_version):
        yield stalled_commit(version)
    for version in versions_of(OffsetFetchRequest):
        if version >= 7:
            yield unstable(version)
    for version in (0, SyncGroupRequest.max_version):
        yield stalled_sync(version)
    yield loading()


def everything(
    story: Homes, to: int, of: Callable[[type[Message]], Iterable[int]] = versions_of
) -> None:
    """Every request about a group, in versions from 1 where 0 knows no coordinator."""
    more: dict[str, Any] = {"to": to}
    for version in of(JoinGroupRequest):
        story.join(None, version=version, **more)
        story.join("somebody", version=version, **more)
    for version in of(SyncGroupRequest):
        story.sync("a", version=version, generation=1, **more)
    for version in of(HeartbeatRequest):
        story.beat("a", version=version, generation=1, **more)
    for version in of(LeaveGroupRequest):
        story.leave(("somebody", None), version=version, **more)
    for version in of(OffsetCommitRequest):
        story.commit(max(version, 1), **more)
    for version in of(OffsetFetchRequest):
        story.fetch(max(version, 1), **more)
        story.fetch(max(version, 2), None, **more)
    story.forget(**more)
    for version in of(DescribeGroupsRequest):
        story.describe(version, **more)
    for version in of(DeleteGroupsRequest):
        story.delete(version, **more)


def at_once(story: Homes, first: int) -> None:
    """The steps from this one on are sent together: what they ask about does not wait."""
    asks = [step for step in story.steps[first:] if isinstance(step, Ask)]
    story.steps[first:] = [Together(asks)]


def ends_of(message: type[Message]) -> tuple[int, int]:
    """The oldest and the newest version: a load does not take long."""
    return message.min_version, message.max_version


def elsewhere() -> Case:
    story = Homes(at(AWAY, "elsewhere"), home=2)
    for version in versions_of(FindCoordinatorRequest):
        request = FindCoordinatorRequest(key=story.group)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[story.group])
        story.do(request, version)
    everything(story, to=1)
    story.describe(to=2)
    return story.case("group-elsewhere")


def refused() -> Case:
    """There are too few replicas for what is to be stored."""
    story = Homes(at(STALLED, "refused"))
    for version in versions_of(OffsetCommitRequest):
        if version >= 1:
            story.commit(version)
    story.fetch(9, stable=True).describe().enter("a").sync("a", ["a"]).describe().beat("a")
    story.join("a").sync("a", ["a"], version=3).beat("a").commit(9, who="a", generation=None)
    story.leave(("a", None)).describe().fetch(9)
    return story.case("group-refused")


def stalled_commit(version: int) -> Case:
    """A replica in sync does not take it: nobody knows whether it counts."""
    story = Homes(at(STALLED, f"commit-{version}"))
    return story.commit(version).fetch(9).describe().case(f"offset-commit-stalled-v{version}")


def unstable(version: int) -> Case:
    """A commit is on its way while the offset is asked for."""
    story = Homes(at(STALLED, f"unstable-{version}"))
    story.commit(9, via="b", answered=False)

    def on_its_way(answer: Any) -> bool:
        topics = answer.topics if version < 8 else answer.groups[0].topics
        return all(part.error_code for part in topics[0].partitions)

    story.fetch(version, stable=True, until=on_its_way)
    first = len(story.steps)
    story.fetch(version).fetch(version, None).fetch(version, None, stable=True)
    story.fetch(version, (("groups-read", (1,)), ("groups-none", (0,))), stable=True)
    at_once(story, first)
    story.take("b").fetch(version, stable=True)
    return story.case(f"offset-fetch-on-its-way-v{version}")


def stalled_sync(version: int) -> Case:
    """The assignments are not replicated in time."""
    story = Homes(at(STALLED, f"sync-{version}"))
    story.enter("a").sync("a", ["a"], version=version).describe().beat("a")
    return story.case(f"group-stalled-v{version}")


# -- loading -----------------------------------------------------------------------------------


def flood(group: str, index: int) -> Ask:
    """Commits of a group, written past its coordinator."""

    def message(names: Names) -> ProduceRequest:
        now_ms = 1_700_000_000_000
        key = offset_key(group, TopicPartition("groups-read", 1))
        record = Record(key, offset_value(OffsetAndMetadata(index, 0, "", now_ms)), now_ms)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(
            index=MOVED, records=encode_batch([record] * RECORDS, codec=Codec.GZIP)
        )
        return ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[data(name=HOMES.name, partition_data=[part])]
        )

    return Ask(message, 9, client_id="__admin_client")


def move(group: str, replicas: Sequence[int]) -> list[Ask]:
    """The first of the replicas leads the partition from now on."""
    return [
        reassign((HOMES.name, MOVED, replicas)),
        listed(HOMES.name, MOVED, until=done),
        elect(2, 0, (HOMES.name, [MOVED])),
    ]


def loading() -> Case:
    """A partition with many records moves to broker 2, back, and away while it loads."""
    story = Homes(at(MOVED, "loading"))
    other = at(MOVED, "flood")
    story.enter("a").sync("a", ["a"]).commit(9, who="a", generation=None, offset=40)
    story.steps += [flood(other, index) for index in range(BATCHES)]

    def says(code: int) -> Any:
        return lambda answer: answer.groups[0].error_code == code

    story.steps += move(story.group, [2, 1])
    story.describe(to=2, until=says(14))
    first = len(story.steps)
    everything(story, to=2, of=ends_of)
    for version in ends_of(ListGroupsRequest):
        story.do(ListGroupsRequest(), version, to=2)  # it has no other groups
    story.describe(to=2)
    at_once(story, first)
    story.describe(until=says(16)).fetch(9)
    story.describe(to=2, until=says(0)).fetch(9, to=2)
    story.beat("a", generation=1, to=2)
    story.fetch(9, group=other, to=2)

    story.steps += move(story.group, [1, 2])
    story.describe(until=says(14))
    story.steps += move(story.group, [2, 1])
    story.describe(until=says(16)).beat("a", generation=1).fetch(9)
    story.describe(to=2, until=says(0)).beat("a", generation=1, to=2).fetch(9, to=2)
    story.commit(9, who="a", generation=1, offset=50, to=2).fetch(9, to=2)
    story.fetch(9, group=other, to=2).leave(("a", None), to=2).describe(to=2)
    return story.case("group-while-loading")
