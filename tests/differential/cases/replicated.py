"""Reading and writing where partitions have three replicas: leaders, followers, strangers, epochs."""

from collections.abc import Iterator

from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.messages.metadata import DescribeClusterRequest, MetadataRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import DeleteRecordsRequest

from ..batches import batch
from ..case import NEW_EPOCH, Ask, Case, Topic, versions_of
from .asks import SHUFFLED, epoch_end, fetch_as, in_epoch, metadata, offsets_of, reassign
from .delete_records import delete
from .fetch import partition
from .produce import good_for, request

STOCK = Topic(
    "three",
    replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]],
    batches={number: [batch(3, size=50), batch(2)] for number in range(3)},
)
PAIR = Topic("pair", replicas=[[1, 2]], batches={0: [batch(3, size=50), batch(2)]})
EPOCHS = Topic(
    "three-epochs",
    replicas=[[1, 2, 3]],
    batches={0: [batch(3), NEW_EPOCH, batch(2), NEW_EPOCH, NEW_EPOCH, batch(1), NEW_EPOCH]},
)
"""Epoch 0 begins at 0, epoch 1 at 3, epoch 3 at 5; epoch 2 has no records, neither has epoch 4."""

END = 5
LEADER, FOLLOWER, STRANGER = 1, 2, 3
"""Of the pair."""


def case(name: str, *steps: Ask, setup: tuple[Topic, ...] = (), content: bool = False) -> Case:
    return Case(
        name,
        list(steps),
        setup=setup,
        uses=[STOCK, PAIR, EPOCHS],
        unordered=SHUFFLED,
        content=content,
    )


def cases() -> Iterator[Case]:
    for version in versions_of(MetadataRequest):
        for to in (1, 2, 3):
            yield case(f"three-metadata-{to}-v{version}", metadata("three", version=version, to=to))
    for version in versions_of(DescribeClusterRequest):
        for to in (1, 3):
            yield case(
                f"three-describe-cluster-{to}-v{version}",
                Ask(DescribeClusterRequest(), version, to=to),
            )
    for version in versions_of(ProduceRequest):
        yield from writes(version)
    for version in versions_of(FetchRequest):
        yield from reads(version)
        yield from followers(version)
        if version >= 7:
            yield from sessions(version)
    for version in versions_of(ListOffsetsRequest):
        yield from offsets(version)
    for version in versions_of(OffsetForLeaderEpochRequest):
        yield from epochs(version)
    for version in versions_of(DeleteRecordsRequest):
        yield from deletion(version)


def writes(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    content = version < 3
    for acks in (-1, 1):
        name = f"three-produce-{acks}{suffix}"
        write = Ask(request(acks, (name, [(0, good_for(version))])), version)
        end = offsets_of(5, name, 0, -1, until=lambda a: a.topics[0].partitions[0].offset >= 4)
        yield case(
            name,
            write,
            write,
            end,
            setup=(Topic(name, replicas=[[1, 2, 3]]),),
            content=content,
        )
        for to, word in ((FOLLOWER, "follower"), (STRANGER, "stranger")):
            wrong = request(
                acks, ("pair", [(0, good_for(version))]), ("three", [(0, good_for(version))])
            )
            yield case(f"three-produce-{acks}-{word}{suffix}", Ask(wrong, version, to=to))
    lost = Ask(request(0, ("pair", [(0, good_for(version))])), version, to=FOLLOWER)
    name = f"three-produce-min-isr{suffix}"
    write = Ask(request(-1, (name, [(0, good_for(version))])), version)
    yield case(
        name,
        write,
        setup=(Topic(name, replicas=[[1, 2]], config={"min.insync.replicas": "3"}),),
    )
    # Without an answer to give, the broker closes the connection.
    yield case(
        f"three-produce-0-follower{suffix}",
        Ask(lost.message, version, to=FOLLOWER, answered=False),
        metadata("three", to=FOLLOWER),
    )


def reads(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    content = version < 4
    for to, word in ((LEADER, "leader"), (FOLLOWER, "follower"), (STRANGER, "stranger")):
        for offset in (0, 3, END, END + 1):
            yield case(
                f"three-fetch-{word}-{offset}{suffix}",
                fetch_as(version, -1, "pair", partition(0, offset), to=to),
                content=content,
            )
        yield case(
            f"three-fetch-{word}-many{suffix}",
            fetch_as(version, -1, "three", *(partition(n, 3) for n in range(4)), to=to),
            content=content,
        )
        yield case(
            f"three-fetch-{word}-waits{suffix}",
            fetch_as(version, -1, "pair", partition(0, END), max_wait_ms=60, to=to),
        )
        if version >= 9:
            for epoch in range(-1, 6):
                yield case(
                    f"three-fetch-{word}-epoch-{epoch}{suffix}",
                    fetch_as(
                        version, -1, "three-epochs", partition(0, 5, leader_epoch=epoch), to=to
                    ),
                )
    if version >= 12:
        for epoch in range(-1, 6):
            for offset in (0, 2, 3, 5, 6, 7):
                part = partition(0, offset, leader_epoch=4, fetched_epoch=epoch)
                yield case(
                    f"three-fetch-after-{epoch}-at-{offset}{suffix}",
                    fetch_as(version, -1, "three-epochs", part),
                )


def followers(version: int) -> Iterator[Case]:
    """Fetches that say to be a replica's, from the leader of partition 3 and from others."""
    suffix = f"-v{version}"
    content = version < 4
    for replica in (1, 2, 3, 9, -2, -3):
        for to in (LEADER, FOLLOWER):
            yield case(
                f"three-fetch-as-{replica}-from-{to}{suffix}",
                fetch_as(version, replica, "pair", partition(0, END), to=to),
                fetch_as(version, replica, "pair", partition(0, 3), to=to),
                fetch_as(version, replica, "pair", partition(0, END), to=to),
                content=content,
            )
    if version >= 9:
        for epoch in (0, 3, 4, 5):
            for replica in (2, 9):
                part = partition(0, 6, leader_epoch=epoch)
                yield case(
                    f"three-fetch-as-{replica}-epoch-{epoch}{suffix}",
                    fetch_as(version, replica, "three-epochs", part),
                )
    if version >= 12:
        for epoch in (-1, 0, 1, 2, 3, 4):
            for offset in (2, 5, 6):
                part = partition(0, offset, leader_epoch=4, fetched_epoch=epoch)
                yield case(
                    f"three-fetch-as-2-after-{epoch}-at-{offset}{suffix}",
                    fetch_as(version, 2, "three-epochs", part),
                )
    part = partition(0, END, log_start=2)
    yield case(f"three-fetch-as-2-log-start{suffix}", fetch_as(version, 2, "pair", part))


def sessions(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for replica in (-1, 2):
        name = f"three-session-{replica}-new-epoch{suffix}"
        current = 0 if version >= 9 else -1
        yield case(
            name,
            fetch_as(version, replica, name, partition(0, 2, leader_epoch=current), session=(0, 0)),
            fetch_as(version, replica, name, session=(-1, 1)),
            reassign((name, 0, [1, 3, 2])),
            metadata(name, until=in_epoch(1)),
            fetch_as(version, replica, name, partition(0, 1), session=(0, 0)),
            fetch_as(version, replica, name, session=(-1, 1)),
            fetch_as(
                version, replica, name, partition(0, 1, leader_epoch=current), session=(-1, 2)
            ),
            fetch_as(version, replica, name, session=(-1, 3)),
            setup=(Topic(name, replicas=[[1, 2, 3]], batches={0: [batch(2)]}),),
        )
        yield case(
            f"three-session-{replica}-follower{suffix}",
            fetch_as(
                version, replica, "three", partition(0, 2), partition(2), session=(0, 0), to=2
            ),
            fetch_as(version, replica, "three", session=(-1, 1), to=2),
            fetch_as(version, replica, "three", partition(1, END), session=(-1, 2), to=2),
            fetch_as(version, replica, "three", session=(-1, 3), to=2),
        )


def offsets(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for to, word in ((LEADER, "leader"), (FOLLOWER, "follower"), (STRANGER, "stranger")):
        for replica in (-1, -2, 2, 3, 9):
            yield case(
                f"three-offsets-{word}-replica-{replica}{suffix}",
                *(
                    offsets_of(version, "pair", 0, time, replica=replica, to=to)
                    for time in (-1, -2)
                ),
            )
        if version >= 4:
            for epoch in range(-1, 6):
                yield case(
                    f"three-offsets-{word}-epoch-{epoch}{suffix}",
                    offsets_of(version, "three-epochs", 0, -1, epoch=epoch, to=to),
                    offsets_of(version, "three-epochs", 0, -1, epoch=epoch, replica=2, to=to),
                )


def epochs(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for to, word in ((LEADER, "leader"), (FOLLOWER, "follower")):
        for epoch in range(-1, 6):
            yield case(
                f"three-leader-epoch-{epoch}-{word}{suffix}",
                epoch_end(version, "three-epochs", 0, epoch, to=to),
            )
            if version >= 2:
                yield case(
                    f"three-leader-epoch-current-{epoch}-{word}{suffix}",
                    epoch_end(version, "three-epochs", 0, 1, current=epoch, to=to),
                )
        if version >= 3:
            for replica in (-1, -2, 2, 3, 9):
                yield case(
                    f"three-leader-epoch-replica-{replica}-{word}{suffix}",
                    epoch_end(version, "three-epochs", 0, 1, replica=replica, to=to),
                    epoch_end(version, "pair", 0, 0, replica=replica, to=to),
                )
    yield case(
        f"three-leader-epoch-stranger{suffix}", epoch_end(version, "pair", 0, 0, to=STRANGER)
    )


def deletion(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for offset in (2, -1, 5, 6):
        name = f"three-delete-records-to-{offset}{suffix}"
        begin = 0 if offset == 6 else offset % 6

        def there(answer: object, begin: int = begin) -> bool:
            return bool(answer.topics[0].partitions[0].offset == begin)  # type: ignore[attr-defined]

        yield case(
            name,
            Ask(delete((name, [(0, offset)])), version),
            *(offsets_of(5, name, 0, -2, replica=-2, to=to, until=there) for to in (1, 2, 3)),
            fetch_as(11, -1, name, partition(0, 1), to=2),
            setup=(Topic(name, replicas=[[1, 2, 3]], batches={0: [batch(5)]}),),
        )
    for to, word in ((FOLLOWER, "follower"), (STRANGER, "stranger")):
        yield case(
            f"three-delete-records-{word}{suffix}",
            Ask(delete(("pair", [(0, 1)])), version, to=to),
        )
