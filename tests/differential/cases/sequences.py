"""Idempotent producers: duplicates, gaps, epochs, the end of the number range."""

from collections.abc import Iterator

from kafkalike.messages.transactions import DescribeProducersRequest

from ..batches import sequenced
from ..case import Ask, Case, Topic
from ..run import produce
from .produce import read

LAST = 11
MAX = 2**31 - 1
P = 7000

STORIES: dict[str, list[tuple[int, int, int, int]]] = {
    # (producer id, epoch, first sequence, records)
    "in-order": [(P, 0, 0, 3), (P, 0, 3, 2), (P, 0, 5, 1)],
    "starts-anywhere": [(P, 0, 100, 3), (P, 0, 103, 1)],
    "starts-anywhere-epoch-5": [(P, 5, 100, 1), (P, 5, 101, 1)],
    "duplicate": [(P, 0, 0, 3), (P, 0, 0, 3), (P, 0, 3, 1)],
    "duplicate-of-fifth": [*((P, 0, n, 1) for n in range(5)), (P, 0, 0, 1)],
    "duplicate-of-sixth": [*((P, 0, n, 1) for n in range(6)), (P, 0, 0, 1), (P, 0, 1, 1)],
    "duplicate-other-count": [(P, 0, 0, 3), (P, 0, 0, 2), (P, 0, 0, 4), (P, 0, 1, 2)],
    "gap": [(P, 0, 0, 1), (P, 0, 2, 1), (P, 0, 1, 1)],
    "backwards": [(P, 0, 10, 2), (P, 0, 5, 2)],
    "overlap": [(P, 0, 0, 5), (P, 0, 3, 5)],
    "new-epoch-from-0": [(P, 0, 0, 2), (P, 1, 0, 2), (P, 1, 2, 1)],
    "new-epoch-not-from-0": [(P, 0, 0, 2), (P, 1, 2, 2), (P, 1, 0, 1)],
    "new-epoch-not-from-0-then-old": [(P, 0, 0, 2), (P, 1, 2, 2), (P, 0, 2, 1)],
    "old-epoch": [(P, 3, 0, 2), (P, 2, 2, 1), (P, 2, 0, 1), (P, 3, 2, 1)],
    "old-epoch-duplicate": [(P, 0, 0, 2), (P, 1, 0, 2), (P, 0, 0, 2)],
    "epoch-jump": [(P, 0, 0, 1), (P, 900, 0, 1), (P, 32767, 0, 1), (P, 0, 1, 1)],
    "wrap": [(P, 0, MAX - 1, 2), (P, 0, 0, 1), (P, 0, 1, 1)],
    "wrap-inside": [(P, 0, MAX - 1, 4), (P, 0, 2, 1), (P, 0, MAX - 1, 4)],
    "wrap-wrong": [(P, 0, MAX, 1), (P, 0, 1, 1), (P, 0, 0, 1)],
    "wrap-duplicate": [(P, 0, MAX, 1), (P, 0, 0, 1), (P, 0, MAX, 1)],
    "two-producers": [(P, 0, 0, 1), (P + 1, 0, 0, 1), (P, 0, 1, 1), (P + 1, 0, 1, 1)],
    "two-producers-duplicates": [(P, 0, 0, 1), (P + 1, 0, 0, 1), (P, 0, 0, 1), (P + 1, 0, 0, 1)],
    "plain-between": [(P, 0, 0, 1), (-1, -1, -1, 2), (P, 0, 1, 1), (P, 0, 0, 1)],
    "no-epoch": [(P, -1, 0, 1), (P, -1, 1, 1), (P, 0, 0, 1)],
    "no-epoch-after-epoch": [(P, 0, 0, 1), (P, -1, 1, 1)],
    "zero-id": [(0, 0, 0, 1), (0, 0, 0, 1)],
    "max-id": [(2**63 - 1, 0, 0, 1), (2**63 - 1, 0, 1, 1)],
    "no-sequence": [(P, 0, -1, 1)],
    "sequence-minus-2": [(P, 0, -2, 1)],
}


def cases() -> Iterator[Case]:
    for version in (3, 5, 8, 10, 11):
        for word, story in STORIES.items():
            name = f"sequence-{word}-v{version}"
            asks = [Ask(produce(name, sequenced(*step)), version) for step in story]
            yield Case(
                name,
                [*asks, read(name), describe(name)],
                setup=[Topic(name)],
                unordered=("active_producers",),
            )
    for acks in (1, 0):
        name = f"sequence-duplicate-acks-{acks}"
        data = sequenced(P, 0, 0, 2)
        asks = [Ask(produce(name, data, acks=acks), LAST, answered=acks != 0)] * 2
        yield Case(name, [*asks, read(name)], setup=[Topic(name)])
    name = "sequence-gap-acks-0"
    gap = Ask(produce(name, sequenced(P, 0, 5), acks=0), LAST, answered=False)
    yield Case(
        name,
        [Ask(produce(name, sequenced(P, 0, 0)), LAST), gap, read(name), read(name)],
        setup=[Topic(name)],
    )
    for kind, config in (
        ("append-time", {"message.timestamp.type": "LogAppendTime"}),
        ("compact", {"cleanup.policy": "compact"}),
        ("gzip", {"compression.type": "gzip"}),
        ("min-isr", {"min.insync.replicas": "2"}),
    ):
        name = f"sequence-on-{kind}"
        story = [(P, 0, 0, 2), (P, 0, 0, 2), (P, 0, 2, 1), (P, 0, 9, 1)]
        yield Case(
            name,
            [Ask(produce(name, sequenced(*step)), LAST) for step in story] + [read(name)],
            setup=[Topic(name, config=config)],
            content=True,
        )
    name = "sequence-two-partitions"
    steps = [
        Ask(produce(name, sequenced(P, 0, 0), partition=number), LAST) for number in (0, 1, 0, 1)
    ]
    yield Case(name, steps, setup=[Topic(name, 2)])
    for version in (3, 8, 11):
        name = f"sequence-transactional-unverified-v{version}"
        data = sequenced(P, 0, 0, transactional=True)
        message = produce(name, data, transactional_id=None)
        yield Case(name, [Ask(message, version)], setup=[Topic(name)])


def describe(topic: str, *partitions: int) -> Ask:
    wanted = DescribeProducersRequest.TopicRequest(
        name=topic, partition_indexes=list(partitions) or [0]
    )
    return Ask(DescribeProducersRequest(topics=[wanted]), 0)
