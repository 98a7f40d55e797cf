"""Replica placement: the same answers as Kafka, and what must hold for every placement."""

import pathlib
from collections import Counter

import pytest

from kafkalike.controller.assignment import BrokerRack, assign_replicas, rack_alternated
from kafkalike.errors import InvalidPartitions, InvalidReplicationFactor, UnknownServerError
from tests.fakes import FakeRandom

GOLDEN = pathlib.Path(__file__).parent / "golden" / "placement.txt"


def brokers_of(text: str) -> list[BrokerRack]:
    found = []
    for item in text.split(","):
        broker_id, _, rack = item.strip().partition("/")
        found.append(BrokerRack(int(broker_id), rack or None))
    return found


def golden_cases() -> list[str]:
    return [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("case", golden_cases())
def test_same_placement_as_kafka(case: str) -> None:
    brokers, numbers, expected = (part.strip() for part in case.split("|"))
    count, factor, start, first = map(int, numbers.split())
    placed = assign_replicas(
        brokers_of(brokers),
        count,
        factor,
        FakeRandom(),
        fixed_start=start,
        first_partition=first,
    )
    text = " ".join(f"{p}:{','.join(map(str, replicas))}" for p, replicas in placed.items())
    assert text == expected


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("racks", ["", "aabbcc", "abcabc", "aaabbc"])
def test_random_placement_is_even_and_spread(seed: int, racks: str) -> None:
    brokers = [BrokerRack(i, racks[i] if racks else None) for i in range(6)]
    placed = assign_replicas(brokers, 12, 3, FakeRandom(seed))
    assert list(placed) == list(range(12))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert set(leaders.values()) == {2}
    for replicas in placed.values():
        assert len(set(replicas)) == 3
        if racks:
            assert len({racks[r] for r in replicas}) == 3


def test_starts_differ_by_chance() -> None:
    brokers = [BrokerRack(i) for i in range(6)]
    assert len({assign_replicas(brokers, 1, 1, FakeRandom(s))[0] for s in range(50)}) == 6


def test_racks_alternate() -> None:
    brokers = brokers_of("0/rack1,1/rack3,2/rack3,3/rack2,4/rack2,5/rack1")
    assert rack_alternated(brokers) == [0, 3, 1, 5, 4, 2]


@pytest.mark.parametrize(
    ("count", "factor", "error"),
    [
        (0, 1, InvalidPartitions),
        (-1, 1, InvalidPartitions),
        (1, 0, InvalidReplicationFactor),
        (1, 3, InvalidReplicationFactor),
    ],
)
def test_impossible_wishes(count: int, factor: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        assign_replicas([BrokerRack(0), BrokerRack(1)], count, factor, FakeRandom())


def test_racks_on_some_brokers_only() -> None:
    with pytest.raises(UnknownServerError, match="rack"):
        assign_replicas([BrokerRack(0, "a"), BrokerRack(1)], 1, 1, FakeRandom())
