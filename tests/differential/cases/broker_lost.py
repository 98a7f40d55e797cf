"""Broker 3 is dead: partitions without leader, under replicated, below min.insync.replicas."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.cluster import DescribeLogDirsRequest, ElectLeadersRequest
from kafkalike.messages.control import AlterPartitionRequest, ControlledShutdownRequest
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.messages.metadata import DescribeClusterRequest, MetadataRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)

from ..batches import batch
from ..case import Ask, Case, Topic, versions_of
from . import group_homes
from .asks import (
    SHUFFLED,
    done,
    elect,
    epoch_end,
    fetch_as,
    listed,
    metadata,
    offsets_of,
    on,
    propose,
    reassign,
    seen,
)
from .delete_records import delete
from .fetch import partition
from .produce import good_for, request
from .topics import topic

_MIN = {"min.insync.replicas": "2"}
_FULL = [batch(3), batch(2)]
STOCK = (
    Topic("lost", replicas=[[3, 1, 2], [1, 2, 3]], config=_MIN, batches={0: _FULL, 1: _FULL}),
    Topic("lost-two", replicas=[[1, 3], [3, 2]], config=_MIN, batches={0: _FULL, 1: _FULL}),
    Topic("lost-one", replicas=[[3]], batches={0: _FULL}),
)
WAS_LED = ("lost", 0)
"""By the dead one."""

LED = ("lost", 1)
OFFLINE = ("lost-one", 0)
BELOW = ("lost-two", 0)
"""min.insync.replicas; led by broker 1."""

BELOW_AT_2 = ("lost-two", 1)
ALL = (WAS_LED, LED, OFFLINE, BELOW, BELOW_AT_2)
NAMES = tuple(topic.name for topic in STOCK)
END = 5


def case(name: str, *steps: Ask, setup: Sequence[Topic | Ask] = (), content: bool = False) -> Case:
    return Case(
        name,
        list(steps),
        setup=setup,
        uses=STOCK,
        content=content,
        unordered=SHUFFLED,
    )


def cases() -> Iterator[Case]:
    yield group_homes.refused()
    for version in versions_of(MetadataRequest):
        for to in (1, 2):
            yield case(f"lost-metadata-{to}-v{version}", metadata(*NAMES, version=version, to=to))
    for version in versions_of(DescribeClusterRequest):
        yield case(f"lost-cluster-v{version}", Ask(DescribeClusterRequest(), version))
    for version in versions_of(ProduceRequest):
        for acks in (-1, 1):
            yield case(
                f"lost-produce-{acks}-v{version}",
                *(
                    Ask(request(acks, (name, [(number, good_for(version))])), version)
                    for name, number in (
                        (OFFLINE, BELOW, BELOW_AT_2) if acks < 0 else (OFFLINE, BELOW_AT_2)
                    )
                ),
            )
        name = f"lost-produce-own-v{version}"
        yield case(
            name,
            Ask(request(-1, (name, [(0, good_for(version)), (1, good_for(version))])), version),
            setup=[
                Topic(name, replicas=[[1, 2], [2, 1]], config=_MIN),
            ],
        )
    for version in versions_of(FetchRequest):
        yield case(
            f"lost-fetch-v{version}",
            *(
                fetch_as(version, -1, name, partition(number, 2), to=to)
                for name, number in (WAS_LED, LED, OFFLINE, BELOW)
                for to in (1, 2)
            ),
            content=version < 4,
        )
        if version >= 9:
            yield case(
                f"lost-fetch-old-epoch-v{version}",
                fetch_as(version, -1, "lost", partition(0, 2, leader_epoch=0)),
                fetch_as(version, -1, "lost-one", partition(0, 2, leader_epoch=0)),
                fetch_as(version, 3, "lost", partition(0, END, leader_epoch=0)),
                fetch_as(version, 3, "lost", partition(0, END)),
            )
    for version in versions_of(ListOffsetsRequest):
        yield case(
            f"lost-offsets-v{version}",
            *(
                offsets_of(version, name, number, time, to=to)
                for name, number in ALL[:4]
                for time in (-1, -2)
                for to in (1, 2)
            ),
        )
    for version in versions_of(OffsetForLeaderEpochRequest):
        yield case(
            f"lost-leader-epoch-v{version}",
            *(
                epoch_end(version, name, number, epoch)
                for name, number in ALL[:4]
                for epoch in (0, 1, 2)
            ),
        )
    for version in versions_of(DeleteRecordsRequest):
        yield case(
            f"lost-delete-records-v{version}",
            *(
                Ask(delete((name, [(number, offset)])), version)
                for (name, number), offset in ((OFFLINE, 1), (BELOW, 99), (LED, 99))
            ),
        )
        name = f"lost-delete-records-own-v{version}"
        yield case(
            name,
            Ask(delete((name, [(0, 2)])), version),
            Ask(delete((name, [(0, -1)])), version),
            setup=[Topic(name, replicas=[[1, 2]], batches={0: [batch(5)]})],
        )
    yield from decisions()
    yield from topics()


def decisions() -> Iterator[Case]:
    for version in versions_of(ElectLeadersRequest):
        for kind in (0,) if version == 0 else (0, 1):
            yield case(
                f"lost-elect-{kind}-v{version}",
                elect(version, kind, *((name, [number]) for name, number in ALL)),
            )
    for version in versions_of(AlterPartitionRequest):
        yield case(
            f"lost-isr-v{version}",
            propose(version, "lost", [1, 2, 3], number=1),
            propose(version, "lost-two", [1, 3]),
            propose(version, "lost", [1, 2], number=1, leader=3, broker_epoch=5),
            propose(version, "lost", [1, 2], number=1, epoch=-1),
        )
    for version in versions_of(ControlledShutdownRequest):
        leave = ControlledShutdownRequest(broker_id=3, broker_epoch=-1)
        yield case(f"lost-leave-v{version}", Ask(leave, version))
    for version in versions_of(DescribeLogDirsRequest):
        absent = DescribeLogDirsRequest.DescribableLogDirTopic(topic="lost-one", partitions=[0])
        message = DescribeLogDirsRequest(topics=[absent])
        yield case(f"lost-log-dirs-v{version}", Ask(message, version))
    for word, replicas in {
        "to-dead": [1, 2, 3],
        "order-with-dead": [2, 1, 3],
        "to-dead-alone": [3],
    }.items():
        yield case(
            f"lost-reassign-{word}", reassign(("lost-two", 0, replicas)), listed("lost-two", 0)
        )
    yield case("lost-reassign-cancel", reassign(("lost-two", 0, None)))
    for word, before, after in (
        ("away", [1, 3], [1, 2]),
        ("without", [1, 2, 3], [2, 1]),
    ):
        name = f"lost-reassign-{word}"
        extra = Topic(name, replicas=[before], batches={0: [batch(2)]})
        yield Case(
            name,
            [
                reassign((name, 0, after)),
                listed(name, 0, until=done),
                *(metadata(name, to=to, until=on(after)) for to in (1, 2)),
            ],
            uses=[*STOCK, extra],
            unordered=SHUFFLED,
        )
    # A move that cannot end, as the only replica in sync is gone.
    stuck = Topic("lost-stuck", replicas=[[3]], batches={0: [batch(2)]})
    yield Case(
        "lost-reassign-stuck",
        [
            reassign(("lost-stuck", 0, [1, 2])),
            listed("lost-stuck", 0),
            *(metadata("lost-stuck", to=to, until=seen(replicas=[1, 2, 3])) for to in (1, 2)),
            reassign(("lost-stuck", 0, [2])),
            listed("lost-stuck", 0),
            reassign(("lost-stuck", 0, None)),
            listed("lost-stuck", 0, until=done),
            reassign(("lost-stuck", 0, None)),
        ],
        uses=[stuck],
        unordered=SHUFFLED,
    )


def topics() -> Iterator[Case]:
    for version in versions_of(CreateTopicsRequest):
        for word, wanted in {
            "factor": topic("lost-no", 1, 3),
            "dead": topic("lost-no", -1, -1, assignments=[(0, [1, 2, 9])]),
        }.items():
            message = CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
            if version >= 1:
                message.validate_only = True
            elif word == "dead":
                continue
            yield case(f"lost-create-{word}-v{version}", Ask(message, version))
    name = "lost-create-on-dead"
    mixed = topic(name, -1, -1, assignments=[(0, [3, 1]), (1, [1, 3])])
    yield case(
        name,
        Ask(CreateTopicsRequest(topics=[mixed], timeout_ms=5000), 7),
        metadata(name),
        metadata(name, to=2),
    )
    for version in versions_of(CreatePartitionsRequest):
        grow = CreatePartitionsRequest.CreatePartitionsTopic
        message_ = CreatePartitionsRequest(
            topics=[
                grow(
                    name="lost",
                    count=3,
                    assignments=[grow.CreatePartitionsAssignment(broker_ids=[1, 2, 3])],
                )
            ],
            timeout_ms=5000,
            validate_only=True,
        )
        yield case(f"lost-grow-v{version}", Ask(message_, version))
    for version in versions_of(DeleteTopicsRequest):
        extra = Topic(f"lost-delete-v{version}", replicas=[[1, 3]])
        drop = DeleteTopicsRequest(timeout_ms=300)
        if version >= 6:
            drop.topics = [DeleteTopicsRequest.DeleteTopicState(name=extra.name)]
        else:
            drop.topic_names = [extra.name]
        again = topic(extra.name, 1, 1)
        yield Case(
            extra.name,
            [
                Ask(drop, version),
                Ask(CreateTopicsRequest(topics=[again], timeout_ms=5000), 7),
                Ask(request(-1, (extra.name, [(0, batch(1))])), 9),
            ],
            uses=[extra],
            unordered=SHUFFLED,
        )
