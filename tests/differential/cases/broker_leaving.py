"""Broker 3 has asked the controller to leave and goes on running."""

import dataclasses
from collections.abc import Iterator

from kafkalike.messages.control import AlterPartitionRequest, ControlledShutdownRequest

from ..batches import batch
from ..case import Ask, Case, Names, Topic, versions_of
from .asks import SHUFFLED, elect, led_by, listed, metadata, propose, reassign
from .produce import request

STOCK = (
    Topic("leaving", replicas=[[3, 1, 2], [1, 2, 3]], batches={0: [batch(2)]}),
    Topic("leaving-one", replicas=[[3]], batches={0: [batch(2)]}),
    Topic("leaving-two", replicas=[[2, 3]]),
)
ALL = (("leaving", 0), ("leaving", 1), ("leaving-one", 0), ("leaving-two", 0))
LEADERS = (1, 1, 3, 2)


def leave(version: int) -> Ask:
    def make(names: Names) -> ControlledShutdownRequest:
        return ControlledShutdownRequest(broker_id=3, broker_epoch=names.tree.broker_epoch(3))

    return Ask(make, version)


def case(name: str, *steps: Ask) -> Case:
    gone = metadata("leaving", until=led_by(1))
    return Case(
        name,
        list(steps),
        setup=[leave(3), gone],
        uses=STOCK,
        unordered=SHUFFLED,
    )


def cases() -> Iterator[Case]:
    for version in versions_of(ControlledShutdownRequest):
        yield case(f"leaving-again-v{version}", leave(version))
    for to in (1, 2):
        yield case(f"leaving-metadata-{to}", metadata(*(topic.name for topic in STOCK), to=to))
    for (name, number), leader in zip(ALL, LEADERS):
        for to in (1, 2, 3):
            for acks in (1, -1):
                if to != leader:  # where it would be taken it would change the topic
                    write = Ask(request(acks, (name, [(number, batch(1))])), 9, to=to)
                    yield case(f"leaving-produce-{name}-{number}-{acks}-to-{to}", write)
    for version in versions_of(AlterPartitionRequest):
        yield case(
            f"leaving-isr-v{version}",
            propose(version, "leaving", [1, 2, 3], number=1),
            propose(version, "leaving-two", [2, 3], leader=2),
        )
    for kind in (0, 1):
        yield case(
            f"leaving-elect-{kind}", elect(2, kind, *((name, [number]) for name, number in ALL))
        )
    for word, before, after in (
        ("to", [1, 2, 3], [3, 1]),
        ("new", [2, 3], [2, 1, 3]),
        ("alone", [1, 2, 3], [3]),
    ):
        name = f"leaving-reassign-{word}"
        own = Topic(name, replicas=[before])
        steps = [reassign((name, 0, after)), listed(name, 0)]
        steps += [reassign((name, 0, None)), listed(name, 0)]
        yield dataclasses.replace(case(name, *steps), uses=[*STOCK, own])
