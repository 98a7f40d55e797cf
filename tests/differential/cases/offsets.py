"""ListOffsets and OffsetForLeaderEpoch."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.messages.topics import DeleteRecordsRequest
from kafkalike.records.batch import encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record

from ..batches import T0, batch
from ..case import Ask, Case, Topic, versions_of

_Topic = ListOffsetsRequest.ListOffsetsTopic
_Epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


def timed(*times: int, codec: int = 0) -> bytes:
    found = [Record(b"k", b"v", T0 + time if time >= 0 else -1) for time in times]
    return bytes(encode_batch(found, codec=Codec(codec)))


STOCK = Topic(
    "stock-times",
    4,
    batches={
        0: [timed(0, 10, 20), timed(15, 5, 90), timed(90, 30), timed(100, codec=1)],
        1: [timed(7, 3, 7, 1, codec=1), timed(7, codec=3)],
        2: [timed(-1, -1), timed(50)],
    },
)
APPEND = Topic(
    "stock-append-time",
    config={"message.timestamp.type": "LogAppendTime"},
    batches={0: [batch(3), batch(2, 1)]},
)
ROLLED = Topic(
    "stock-times-rolled",
    config={"segment.bytes": "400"},
    batches={0: [timed(*(n * 10 + i for i in range(10))) for n in range(6)]},
)
SPECIAL = (-1, -2, -3, -4, -5, -6, -100, -(2**63))
TIMES = (
    0,
    T0 - 1,
    T0,
    T0 + 1,
    T0 + 5,
    T0 + 6,
    T0 + 15,
    T0 + 21,
    T0 + 90,
    T0 + 91,
    T0 + 100,
    T0 + 101,
)


def offsets(
    version: int,
    *topics: tuple[str, Sequence[tuple[int, int]]],
    replica_id: int = -1,
    isolation: int = 0,
    epoch: int = -1,
    count: int = 1,
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation if version >= 2 else 0,
        topics=[
            _Topic(
                name=name,
                partitions=[
                    _Topic.ListOffsetsPartition(
                        partition_index=number,
                        timestamp=time,
                        current_leader_epoch=epoch,
                        max_num_offsets=count if version == 0 else 1,
                    )
                    for number, time in wanted
                ],
            )
            for name, wanted in topics
        ],
    )


def cases() -> Iterator[Case]:
    for version in versions_of(ListOffsetsRequest):
        yield from of_version(version)
    for version in versions_of(OffsetForLeaderEpochRequest):
        yield from epochs(version)


def of_version(version: int) -> Iterator[Case]:
    def case(name: str, *messages: ListOffsetsRequest) -> Case:
        return Case(
            f"list-offsets-{name}-v{version}",
            [Ask(message, version) for message in messages],
            uses=[STOCK, APPEND, ROLLED],
            unordered=("topics", "partitions"),
        )

    for time in SPECIAL:
        yield case(
            f"special-{time}",
            *(offsets(version, ("stock-times", [(number, time)])) for number in range(4)),
        )
        yield case(f"append-time-{time}", offsets(version, ("stock-append-time", [(0, time)])))
    for number in range(3):
        yield case(
            f"times-{number}",
            *(offsets(version, ("stock-times", [(number, time)])) for time in TIMES),
        )
    rolled = [
        offsets(version, ("stock-times-rolled", [(0, T0 + time)])) for time in range(-5, 70, 7)
    ]
    yield case("rolled", *rolled)
    for time in (-1, -2, -3, 2**62):
        yield case(f"rolled-special-{time}", offsets(version, ("stock-times-rolled", [(0, time)])))
    yield case("nothing", offsets(version))
    yield case("no-partitions", offsets(version, ("stock-times", [])))
    yield case("unknown-topic", offsets(version, ("no-such", [(0, -1)]), ("a b", [(0, -1)])))
    yield case("unknown-partition", offsets(version, ("stock-times", [(9, -1), (-1, -1), (0, -1)])))
    yield case("twice", offsets(version, ("stock-times", [(0, -1), (0, -2), (1, -1)])))
    yield case(
        "topic-twice", offsets(version, ("stock-times", [(0, -1)]), ("stock-times", [(1, -2)]))
    )
    for replica in (-2, -3, 0, 1, 7):
        yield case(
            f"replica-{replica}",
            offsets(version, ("stock-times", [(0, -1), (1, -2)]), replica_id=replica),
        )
    if version == 0:
        for count in (-1, 0, 1, 2, 100):
            yield case(f"count-{count}", offsets(0, ("stock-times-rolled", [(0, -1)]), count=count))
            yield case(
                f"count-{count}-by-time", offsets(0, ("stock-times-rolled", [(0, T0)]), count=count)
            )
            yield case(
                f"count-{count}-earliest",
                offsets(0, ("stock-times-rolled", [(0, -2)]), count=count),
            )
    if version >= 2:
        for isolation in (1, 2, -1, 5):
            yield case(
                f"isolation-{isolation}",
                offsets(version, ("stock-times", [(0, -1), (1, T0)]), isolation=isolation),
            )
    if version >= 4:
        for epoch in (-2, 0, 1, 99):
            yield case(
                f"leader-epoch-{epoch}", offsets(version, ("stock-times", [(0, -1)]), epoch=epoch)
            )
    name = f"list-offsets-after-deletion-v{version}"
    yield Case(
        name,
        [
            Ask(offsets(version, (name, [(0, time)])), version)
            for time in (-2, -1, T0, T0 + 2, T0 + 30)
        ],
        setup=[
            Topic(name, batches={0: [timed(0, 1, 2), timed(3, 4)]}),
            Ask(_delete(name, 2), 1),
        ],
    )


def _delete(name: str, offset: int) -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    return DeleteRecordsRequest(
        timeout_ms=30_000,
        topics=[
            topic(
                name=name,
                partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=offset)],
            )
        ],
    )


def epochs(version: int) -> Iterator[Case]:
    def ask(
        *topics: tuple[str, Sequence[tuple[int, int]]], current: int = -1, replica_id: int = -2
    ) -> Ask:
        return Ask(
            OffsetForLeaderEpochRequest(
                replica_id=replica_id,
                topics=[
                    _Epoch(
                        topic=name,
                        partitions=[
                            _Epoch.OffsetForLeaderPartition(
                                partition=number, leader_epoch=epoch, current_leader_epoch=current
                            )
                            for number, epoch in wanted
                        ],
                    )
                    for name, wanted in topics
                ],
            ),
            version,
        )

    def case(name: str, *asks: Ask) -> Case:
        return Case(
            f"leader-epoch-{name}-v{version}",
            list(asks),
            uses=[STOCK],
            unordered=("topics", "partitions"),
        )

    for epoch in (-2, -1, 0, 1, 2, 2**31 - 1, -(2**31)):
        yield case(
            f"of-{epoch}", ask(("stock-times", [(0, epoch)])), ask(("stock-times", [(3, epoch)]))
        )
    yield case("nothing", ask())
    yield case("no-partitions", ask(("stock-times", [])))
    yield case("unknown-topic", ask(("no-such", [(0, 0)])))
    yield case("unknown-partition", ask(("stock-times", [(9, 0), (0, 0), (-1, 0)])))
    yield case("twice", ask(("stock-times", [(0, 0), (0, 1)])))
    yield case("two-topics", ask(("stock-times", [(0, 0)]), ("no-such", [(0, 0)])))
    if version >= 2:
        for current in (-2, -1, 0, 1, 99):
            yield case(f"current-{current}", ask(("stock-times", [(0, 0)]), current=current))
    if version >= 3:
        for replica in (-1, 0, 1, 7):
            yield case(f"replica-{replica}", ask(("stock-times", [(0, 0)]), replica_id=replica))
