"""Fetch without sessions: bounds, sizes, waiting, isolation, epochs, topic ids, old formats."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.topics import DeleteRecordsRequest
from kafkalike.types import ZERO_UUID

from ..batches import batch, sequenced
from ..case import Ask, Case, Names, Topic, versions_of
from ..run import produce

_Topic = FetchRequest.FetchTopic
_Partition = _Topic.FetchPartition
MADE_UP = b"\x11" * 16
STOCK = Topic(
    "stock",
    4,
    batches={
        0: [batch(3, size=50), batch(1, size=300), batch(5, 1, size=60), batch(2, size=10)],
        1: [batch(2, codec, size=30) for codec in (0, 1, 2, 3, 4)],
        3: [sequenced(8000, 0, 0, 2), batch(1)],
    },
)
PLAIN = Topic("stock-plain", batches={0: [batch(4, size=50), batch(2, 1), batch(3, 3)]})
ZSTD = Topic("stock-zstd", config={"compression.type": "zstd"}, batches={0: [batch(3)]})
ROLLED = Topic(
    "stock-rolled",
    config={"segment.bytes": "600"},
    batches={0: [batch(2, size=150) for _ in range(6)]},
)
END = 11
MEGA = 1 << 20


def partition(
    number: int = 0,
    offset: int = 0,
    *,
    max_bytes: int = MEGA,
    leader_epoch: int = -1,
    fetched_epoch: int = -1,
    log_start: int = -1,
) -> FetchRequest.FetchTopic.FetchPartition:
    return _Partition(
        partition=number,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=fetched_epoch,
        log_start_offset=log_start,
    )


def fetch(
    version: int,
    *topics: tuple[str, Sequence[FetchRequest.FetchTopic.FetchPartition]],
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 * MEGA,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[str, Sequence[int]]] = (),
) -> Callable[[Names], FetchRequest]:
    """A fetch by name, or by the ids of these names from version 13 on."""

    def make(names: Names) -> FetchRequest:
        session_id, epoch = session
        if session_id < 0:  # the one of the last answer
            session_id = names.last.session_id
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                _Topic(topic=name, topic_id=topic_id(names, name), partitions=list(parts))
                for name, parts in topics
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(
                    topic=name, topic_id=topic_id(names, name), partitions=list(numbers)
                )
                for name, numbers in forgotten
            ],
        )

    return make


def topic_id(names: Names, name: str) -> bytes:
    if name == "zero":
        return ZERO_UUID
    return MADE_UP if name == "no-such" else names.topic_id(name)


def cases() -> Iterator[Case]:
    for version in versions_of(FetchRequest):
        yield from of_version(version)
    for version in (0, 1, 2, 3, 4, 9, 10, 12, 17):
        yield from formats(version)
    for version in (9, 11, 12, 17):
        yield from epochs(version)
    for version in (13, 15, 17):
        yield from ids(version)
    for version in (0, 4, 11, 12, 17):
        yield from replicas(version)


def of_version(version: int) -> Iterator[Case]:
    def case(name: str, *steps: Callable[[Names], FetchRequest]) -> Case:
        return Case(
            f"fetch-{name}-v{version}",
            [Ask(step, version) for step in steps],
            uses=[STOCK, ROLLED],
            unordered=("responses",) if version >= 13 else (),
            content=version < 4,
        )

    def one(
        *parts: FetchRequest.FetchTopic.FetchPartition, **more: Any
    ) -> Callable[[Names], FetchRequest]:
        return fetch(version, ("stock", parts), **more)

    yield case("nothing", fetch(version))
    yield case("topic-without-partitions", fetch(version, ("stock", [])))
    yield case("all", one(partition(0), partition(1), partition(2), partition(3)))
    for offset in (1, 3, 4, 9, END - 1, END):
        yield case(f"from-{offset}", one(partition(0, offset)))
    for offset in (END + 1, -1, -2, 2**63 - 1, -(2**63)):
        yield case(f"outside-{offset}", one(partition(0, offset)))
    yield case("outside-and-inside", one(partition(0, 99), partition(1)))
    yield case("empty-log", one(partition(2)))
    for size in (0, 1, 60, 100, 300, 500):
        yield case(f"partition-bytes-{size}", one(partition(0, max_bytes=size)))
        yield case(
            f"partition-bytes-{size}-second",
            one(partition(1), partition(0, max_bytes=size)),
        )
    yield case("partition-bytes-minus-1", one(partition(0, max_bytes=-1)))
    for size in (0, 1, 200, 500):
        yield case(
            f"max-bytes-{size}",
            one(partition(0), partition(1), partition(3), max_bytes=size),
        )
    yield case("max-bytes-minus-1", one(partition(0), max_bytes=-1))
    yield case("waits-in-vain", one(partition(0, END), max_wait_ms=60, min_bytes=1))
    yield case("enough-at-once", one(partition(0), max_wait_ms=20_000, min_bytes=1))
    yield case("error-ends-wait", one(partition(0, 99), max_wait_ms=20_000, min_bytes=1))
    yield case("no-minimum", one(partition(0, END), max_wait_ms=20_000, min_bytes=0))
    yield case("negative-minimum", one(partition(0, END), max_wait_ms=20_000, min_bytes=-1))
    yield case("negative-wait", one(partition(0, END), max_wait_ms=-1, min_bytes=1))
    yield case(
        "minimum-above-maximum",
        one(partition(0, max_bytes=100), max_wait_ms=20_000, min_bytes=500, max_bytes=100)
        if version >= 3
        else one(partition(0)),
    )
    yield case(
        "unknown-topic", fetch(version, ("no-such", [partition(0)]), ("stock", [partition(2)]))
    )
    yield case("unknown-partition", one(partition(44), partition(-1), partition(2)))
    yield case("partition-twice", one(partition(0, 1), partition(0, 9)))
    yield case(
        "topic-twice", fetch(version, ("stock", [partition(0, 9)]), ("stock", [partition(3)]))
    )
    yield case("rolled", fetch(version, ("stock-rolled", [partition(0, 5)])))
    yield case("rolled-middle", fetch(version, ("stock-rolled", [partition(0, 3, max_bytes=600)])))
    yield case(
        "two-topics",
        fetch(
            version, ("stock-rolled", [partition(0, 9)]), ("stock", [partition(3), partition(0, 9)])
        ),
    )
    for isolation in (1, 2, -1):
        if version >= 4:
            yield case(
                f"isolation-{isolation}", one(partition(0, 9), partition(3), isolation=isolation)
            )
            yield case(f"isolation-{isolation}-error", one(partition(0, 99), isolation=isolation))
    for start in (0, 5, 99):
        yield case(f"log-start-{start}", one(partition(0, 9, log_start=start)))


def formats(version: int) -> Iterator[Case]:
    """Old clients get old messages; content is compared, since compressors differ."""
    for topic in (PLAIN, STOCK, ZSTD):
        numbers = (0, 1) if topic is STOCK else (0,)
        for number in numbers:
            for offset in (0, 1, 4):
                yield Case(
                    f"fetch-format-{topic.name}-{number}-{offset}-v{version}",
                    [Ask(fetch(version, (topic.name, [partition(number, offset)])), version)],
                    uses=[topic],
                    content=version < 4 or topic is ZSTD,
                )
    name = f"fetch-no-conversion-v{version}"
    yield Case(
        name,
        [Ask(fetch(version, (name, [partition()])), version)],
        setup=[
            Topic(name, config={"message.downconversion.enable": "false"}, batches={0: [batch(1)]})
        ],
    )
    name = f"fetch-after-deletion-v{version}"
    deletion = DeleteRecordsRequest.DeleteRecordsTopic
    delete = DeleteRecordsRequest(
        topics=[
            deletion(
                name=name,
                partitions=[deletion.DeleteRecordsPartition(partition_index=0, offset=4)],
            )
        ],
        timeout_ms=30_000,
    )
    yield Case(
        name,
        [
            Ask(fetch(version, (name, [partition(0, offset)])), version)
            for offset in (0, 3, 4, 5, 6)
        ],
        setup=[Topic(name, batches={0: [batch(3), batch(3)]}), Ask(delete, 1)],
        content=version < 4,
    )
    name = f"fetch-woken-by-produce-v{version}"
    yield Case(
        name,
        [
            Ask(produce(name, batch(1), acks=0), 9, answered=False),
            Ask(fetch(version, (name, [partition()]), max_wait_ms=10_000, min_bytes=1), version),
        ],
        setup=[Topic(name)],
        content=version < 4,
    )


def epochs(version: int) -> Iterator[Case]:
    for epoch in (-2, -1, 0, 1, 2, 99):
        yield Case(
            f"fetch-leader-epoch-{epoch}-v{version}",
            [Ask(fetch(version, ("stock", [partition(0, 9, leader_epoch=epoch)])), version)],
            uses=[STOCK],
        )
        if version >= 12:
            for offset in (9, END, END + 5):
                yield Case(
                    f"fetch-fetched-epoch-{epoch}-at-{offset}-v{version}",
                    [
                        Ask(
                            fetch(version, ("stock", [partition(0, offset, fetched_epoch=epoch)])),
                            version,
                        )
                    ],
                    uses=[STOCK],
                )


def ids(version: int) -> Iterator[Case]:
    for name in ("zero", "no-such"):
        yield Case(
            f"fetch-id-{name}-twice-v{version}",
            [Ask(fetch(version, (name, [partition(0), partition(1)])), version)],
            differs="topic id zero for two partitions in a row" if name == "zero" else "",
        )
        yield Case(
            f"fetch-id-{name}-v{version}",
            [
                Ask(fetch(version, (name, [partition(0)])), version),
                Ask(fetch(version, (name, [partition(0)]), ("stock", [partition(2)])), version),
                Ask(fetch(version, ("stock", [partition(2)]), (name, [partition(0)])), version),
            ],
            uses=[STOCK],
            unordered=("responses",),
        )


def replicas(version: int) -> Iterator[Case]:
    for replica in (-2, -3, 0, 1, 5):

        def make(names: Names, replica: int = replica) -> FetchRequest:
            message = fetch(version, ("stock", [partition(0, 9)]))(names)
            if version >= 15:
                message.replica_state = FetchRequest.ReplicaState(replica_id=replica)
            else:
                message.replica_id = replica
            return message

        yield Case(f"fetch-replica-{replica}-v{version}", [Ask(make, version)], uses=[STOCK])
    if version >= 12:

        def other_cluster(names: Names) -> FetchRequest:
            message = fetch(version, ("stock", [partition(0, 9)]))(names)
            message.cluster_id = "other"
            return message

        yield Case(f"fetch-cluster-id-v{version}", [Ask(other_cluster, version)], uses=[STOCK])
    if version >= 11:

        def rack(names: Names) -> FetchRequest:
            message = fetch(version, ("stock", [partition(0, 9)]))(names)
            message.rack_id = "r1"
            return message

        yield Case(f"fetch-rack-v{version}", [Ask(rack, version)], uses=[STOCK])
