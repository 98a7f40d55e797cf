"""Broker 3 stands still and is not missed yet: nothing that needs it comes to an end."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.cluster import ElectLeadersRequest
from kafkalike.messages.control import AlterPartitionRequest
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import CreatePartitionsRequest, DeleteRecordsRequest

from ..batches import batch
from ..case import Ask, Case, Topic, versions_of
from .asks import (
    SHUFFLED,
    done,
    elect,
    fetch_as,
    listed,
    metadata,
    offsets_of,
    propose,
    reassign,
    seen,
)
from .delete_records import delete
from .fetch import partition
from .produce import good_for

_Data = ProduceRequest.TopicProduceData
SHORT_MS = 150


def case(name: str, *steps: Ask, uses: Sequence[Topic] = (), content: bool = False) -> Case:
    return Case(
        name,
        list(steps),
        uses=uses,
        content=content,
        unordered=SHUFFLED,
    )


def write(version: int, name: str, acks: int = -1, timeout_ms: int = SHORT_MS) -> Ask:
    part = _Data.PartitionProduceData(index=0, records=good_for(version))
    message = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[_Data(name=name, partition_data=[part])]
    )
    return Ask(message, version)


def cases() -> Iterator[Case]:
    for version in versions_of(ProduceRequest):
        name = f"frozen-produce-v{version}"
        content = version < 3
        yield case(
            name,
            write(version, name),
            write(version, name, acks=1),
            *(fetch_as(11, -1, name, partition(0, offset)) for offset in (0, 2, 4)),
            *(offsets_of(5, name, 0, time) for time in (-1, -2)),
            uses=[Topic(name, replicas=[[1, 2, 3]])],
            content=content,
        )
    for version in versions_of(FetchRequest):
        name = f"frozen-fetch-v{version}"
        yield case(
            name,
            write(11, name, acks=1),
            fetch_as(version, -1, name, partition(0, 0)),
            fetch_as(version, -1, name, partition(0, 2)),
            fetch_as(version, -1, name, partition(0, 4)),
            fetch_as(version, -1, name, partition(0, 5)),
            fetch_as(version, 3, name, partition(0, 2)),
            uses=[Topic(name, replicas=[[1, 3]], batches={0: [batch(2)]})],
            content=version < 4,
        )
    for version in versions_of(ListOffsetsRequest):
        yield case(
            f"frozen-offsets-v{version}",
            *(
                offsets_of(version, "frozen-offsets", 0, time, replica=replica)
                for time in (-1, -2)
                for replica in (-1, 3)
            ),
            uses=[Topic("frozen-offsets", replicas=[[1, 3]], batches={0: [batch(2)]})],
        )
    for version in versions_of(DeleteRecordsRequest):
        name = f"frozen-delete-records-v{version}"
        yield case(
            name,
            Ask(delete((name, [(0, 1)]), timeout_ms=SHORT_MS), version),
            Ask(delete((name, [(0, 1)]), timeout_ms=0), version),
            Ask(delete((name, [(0, 3)]), timeout_ms=SHORT_MS), version),
            offsets_of(5, name, 0, -2),
            uses=[Topic(name, replicas=[[1, 2, 3]], batches={0: [batch(2)]})],
        )
    yield from moves()


def moves() -> Iterator[Case]:
    name = "frozen-grow"
    yield case(
        name,
        reassign((name, 0, [1, 2, 3])),
        listed(name, 0),
        *(metadata(name, to=to, until=seen(replicas=[1, 2, 3], epoch=1)) for to in (1, 2)),
        reassign((name, 0, [3, 1])),
        listed(name, 0),
        metadata(name, until=seen(epoch=2)),
        write(11, name, timeout_ms=30_000),
        elect(2, 0, (name, [0])),
        reassign((name, 0, None)),
        listed(name, 0, until=done),
        reassign((name, 0, None)),
        uses=[Topic(name, replicas=[[1, 2]], batches={0: [batch(2)]})],
    )
    for version in versions_of(MetadataRequest):
        name = f"frozen-moving-metadata-v{version}"
        yield case(
            name,
            reassign((name, 0, [2, 3])),
            *(metadata(name, to=to, until=seen(replicas=[1, 2, 3], epoch=1)) for to in (1, 2)),
            *(metadata(name, version=version, to=to) for to in (1, 2)),
            uses=[Topic(name, replicas=[[1, 2]])],
        )
    name = "frozen-move-leader"
    yield case(
        name,
        reassign((name, 0, [3])),
        listed(name, 0),
        metadata(name, until=seen(replicas=[1, 3])),
        reassign((name, 0, [2])),
        listed(name, 0, until=done),
        metadata(name, until=seen(replicas=[2], isr=[2])),
        uses=[Topic(name, replicas=[[1]], batches={0: [batch(2)]})],
    )
    for version in versions_of(CreatePartitionsRequest):
        grow = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name="frozen-moving", count=3, assignments=None
                )
            ],
            timeout_ms=5000,
        )
        yield case(
            f"frozen-moving-grow-v{version}",
            reassign(("frozen-moving", 0, [2, 3])),
            Ask(grow, version),
            uses=[Topic("frozen-moving", replicas=[[1, 2]], batches={0: [batch(2)]})],
        )
    for version in versions_of(ElectLeadersRequest):
        for kind in (0,) if version == 0 else (0, 1):
            yield case(
                f"frozen-elect-{kind}-v{version}",
                elect(version, kind, ("frozen-elect", [0, 1])),
                uses=[Topic("frozen-elect", replicas=[[3, 1], [1, 3]])],
            )
    for version in versions_of(AlterPartitionRequest):
        name = f"frozen-isr-v{version}"
        yield case(
            name,
            reassign((name, 0, [1, 2, 3])),
            propose(version, name, [1]),
            listed(name, 0),
            propose(version, name, [1, 2]),
            metadata(name, until=seen(isr=[1, 2])),
            propose(version, name, [1, 2, 3]),
            listed(name, 0, until=done),
            metadata(name, until=seen(isr=[1, 2, 3], epoch=2)),
            uses=[Topic(name, replicas=[[1, 2]])],
        )
