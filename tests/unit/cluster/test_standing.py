"""What a broker tells of its logs when it registers (ADR 0008): nearly always nothing."""

import json
import logging
from typing import Any

import pytest

from kafkalike.broker.cluster import standing
from kafkalike.broker.cluster.presence import Presence
from kafkalike.broker.cluster.standing import NOTHING_TO_SAY, Standing, read_standing
from kafkalike.config import BrokerConfig
from kafkalike.types import Endpoint, LeaderAndIsr, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.znodes import FormerIsr, PartitionState
from tests.unit.cluster.zk_world import ZkWorld

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ME, LIFE = 1, 70


def put(
    world: ZkWorld,
    partition: TopicPartition,
    isr: tuple[int, ...],
    leader: int = -1,
    former: dict[int, int] | None = None,
) -> None:
    named = FormerIsr(tuple(former.items()), (7, -1, -1)) if former else None
    state = PartitionState(LeaderAndIsr(leader, 5, isr), 1, named)
    topic, number = partition
    for path in (paths.topic(topic), paths.partitions(topic), paths.partition(topic, number)):
        if world.zookeeper.stat(path) is None:
            world.zookeeper.create(path)
    world.zookeeper.create(paths.partition_state(topic, number), state.encode())


ROWS: list[tuple[str, dict[str, Any], set[TopicPartition], dict[TopicPartition, int], Standing]] = [
    ("short, the whole ISR, nobody leads", {"isr": (1,)}, {T0}, {}, Standing({T0: 5})),
    ("short, it led alone", {"isr": (1,), "leader": 1}, {T0}, {}, Standing({T0: 5})),
    ("short, others are in sync", {"isr": (1, 2), "leader": 2}, {T0}, {}, NOTHING_TO_SAY),
    ("short, another is alone", {"isr": (2,), "leader": 2}, {T0}, {}, NOTHING_TO_SAY),
    ("whole", {"isr": (2,), "former": {1: LIFE}}, set(), {T0: LIFE}, Standing({}, {T0: LIFE})),
    (
        "it left in another life",
        {"isr": (2,), "former": {1: 60}},
        set(),
        {T0: LIFE},
        NOTHING_TO_SAY,
    ),
    ("another left", {"isr": (2,), "former": {3: LIFE}}, set(), {T0: LIFE}, NOTHING_TO_SAY),
    ("nobody left", {"isr": (2,)}, set(), {T0: LIFE}, NOTHING_TO_SAY),
    ("not closed in order", {"isr": (2,), "former": {1: LIFE}}, set(), {}, NOTHING_TO_SAY),
    ("whole and short", {"isr": (2,), "former": {1: LIFE}}, {T0}, {T0: LIFE}, NOTHING_TO_SAY),
]


@pytest.mark.parametrize(
    ("name", "state", "short", "stopped_in", "expected"), ROWS, ids=[row[0] for row in ROWS]
)
def test_remark(
    name: str,
    state: dict[str, Any],
    short: set[TopicPartition],
    stopped_in: dict[TopicPartition, int],
    expected: Standing,
) -> None:
    world = ZkWorld()
    put(world, T0, **state)
    found = world.run(read_standing(world.zk, ME, short=short, stopped_in=stopped_in))
    assert found == expected


def test_without_a_state_there_is_no_remark() -> None:
    world = ZkWorld()
    assert world.run(read_standing(world.zk, ME, short=[T0], stopped_in={T1: 5})) == NOTHING_TO_SAY
    put(world, T0, (1,))
    world.zookeeper.set(paths.partition_state("t", 0), b"not JSON")
    assert world.run(read_standing(world.zk, ME, short=[T0], stopped_in={})) == NOTHING_TO_SAY


def test_remarks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MAX_REMARKS", 2)
    monkeypatch.setattr(standing, "CHUNK", 2)
    world = ZkWorld()
    partitions = [TopicPartition("t", number) for number in range(5)]
    for partition in partitions:
        put(world, partition, (1,))
    found = world.run(read_standing(world.zk, ME, short=partitions, stopped_in={}))
    assert found.short_logs == {T0: 5, T1: 5}


def test_the_registration_carries_them_once() -> None:
    """In the next session the logs need not be as they were; what is lost stays lost."""
    world = ZkWorld()
    config = BrokerConfig.parse({"zookeeper.connect": "z:1", "broker.id": "1"})
    presence = Presence(world.zk, world.clock, ME, config, logging.getLogger("test"))
    presence.endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)]

    def registered() -> dict[str, Any]:
        world.run(presence.register())
        value = json.loads(world.zookeeper.get(paths.broker(ME)) or b"")
        return {key: value[key] for key in value if key.startswith("kafkalike")}

    assert registered() == {}
    presence.standing = Standing({T0: 5}, {T1: LIFE})
    world.zookeeper.delete(paths.broker(ME))
    assert registered() == {
        "kafkalike_short_logs": {"t": {"0": 5}},
        "kafkalike_whole_logs": {"t": {"1": LIFE}},
    }
    world.zookeeper.delete(paths.broker(ME))
    assert registered() == {"kafkalike_short_logs": {"t": {"0": 5}}}
