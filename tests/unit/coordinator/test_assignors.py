"""What the assignors promise, for random groups; and the examples of the original."""

import random
from collections.abc import Mapping

import pytest

from kafkalike.broker.coordinator.assignors import (
    ASSIGNORS,
    Subject,
    Targets,
    assign_range,
    assign_uniform,
    in_java_order,
)

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def subject(name: str, *topics: bytes, instance: str | None = None, **target: list[int]) -> Subject:
    former = {{"a": A, "b": B, "c": C}[t]: frozenset(ps) for t, ps in target.items()}
    return Subject(name, instance, frozenset(topics), former)


def shown(targets: Targets) -> dict[str, dict[str, list[int]]]:
    return {
        member: {topic.decode()[0]: sorted(numbers) for topic, numbers in sorted(parts.items())}
        for member, parts in targets.items()
    }


def check_complete(members: list[Subject], counts: Mapping[bytes, int], targets: Targets) -> None:
    """Each partition that somebody reads has exactly one owner, who reads it."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in members:
        for topic, numbers in targets.get(member.member_id, {}).items():
            assert numbers, "an empty set is left out"
            assert topic in member.topics
            for number in numbers:
                assert 0 <= number < counts[topic]
                assert (topic, number) not in owners
                owners[topic, number] = member.member_id
    read = {topic for member in members for topic in member.topics}
    assert set(owners) == {(topic, n) for topic in read for n in range(counts[topic])}


def random_group(chance: random.Random, *, alike: bool) -> tuple[list[Subject], dict[bytes, int]]:
    topics = [bytes([65 + number]) * 16 for number in range(chance.randint(1, 5))]
    counts = {topic: chance.randint(1, 12) for topic in topics}
    shared = frozenset(chance.sample(topics, chance.randint(1, len(topics))))
    free = {(topic, n): None for topic in topics for n in range(counts[topic] + 2)}
    members = []
    for number in range(chance.randint(1, 9)):
        mine = shared if alike else frozenset(chance.sample(topics, chance.randint(0, len(topics))))
        former: dict[bytes, frozenset[int]] = {}
        for topic, partition in chance.sample(list(free), min(len(free), chance.randint(0, 6))):
            del free[topic, partition]
            former[topic] = former.get(topic, frozenset()) | {partition}
        instance = f"i{number}" if chance.random() < 0.3 else None
        members.append(Subject(f"m{number}", instance, mine, former))
    return members, counts


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_partition_has_one_owner(name: str, alike: bool) -> None:
    for seed in range(300):
        members, counts = random_group(random.Random(seed), alike=alike)
        targets = ASSIGNORS[name](members, counts)
        check_complete(members, counts, targets)
        assert ASSIGNORS[name](members, counts) == targets


def test_uniform_evens_out_and_moves_as_little_as_it_can() -> None:
    for seed in range(300):
        members, counts = random_group(random.Random(seed), alike=True)
        targets = assign_uniform(members, counts)
        sizes = [sum(map(len, targets[m.member_id].values())) for m in members]
        assert max(sizes) - min(sizes) <= 1
        total = sum(sizes)
        quota = -(-total // len(members))
        for member in members:
            had = {
                (topic, n)
                for topic, numbers in member.target.items()
                if topic in member.topics
                for n in numbers
                if n < counts[topic]
            }
            has = {(t, n) for t, ns in targets[member.member_id].items() for n in ns}
            assert len(had & has) >= min(len(had), quota - 1)


def test_uniform_is_stable() -> None:
    """Without a change nothing moves."""
    for alike in (True, False):
        for seed in range(200):
            members, counts = random_group(random.Random(seed), alike=alike)
            first = assign_uniform(members, counts)
            again = [
                Subject(m.member_id, m.instance_id, m.topics, first[m.member_id]) for m in members
            ]
            second = assign_uniform(again, counts)
            if alike:
                assert second == first
            else:
                moved = sum(
                    len(numbers - first[member].get(topic, frozenset()))
                    for member, parts in second.items()
                    for topic, numbers in parts.items()
                )
                assert moved <= 2


def test_uniform_of_mixed_subscriptions_evens_out_each_topic() -> None:
    for seed in range(300):
        members, counts = random_group(random.Random(seed), alike=False)
        targets = assign_uniform(members, counts)
        sizes = {m.member_id: sum(map(len, targets[m.member_id].values())) for m in members}
        for topic in {topic for member in members for topic in member.topics}:
            readers = [m.member_id for m in members if topic in m.topics]
            least = min(sizes[reader] for reader in readers)
            for reader in readers:
                assert not (sizes[reader] - least > 1 and topic in targets[reader]), (seed, topic)


def test_range_gives_neighbours_and_what_is_left_to_the_first() -> None:
    members = [subject("b", A, B), subject("a", A, B), subject("c", A)]
    assert shown(assign_range(members, {A: 7, B: 3})) == {
        "b": {"a": [3, 4], "b": [2]},
        "a": {"a": [0, 1, 2], "b": [0, 1]},
        "c": {"a": [5, 6]},
    }


def test_range_puts_static_members_first() -> None:
    members = [subject("a", A), subject("z", A, instance="y"), subject("y", A, instance="x")]
    assert shown(assign_range(members, {A: 3})) == {
        "a": {"a": [2]},
        "z": {"a": [1]},
        "y": {"a": [0]},
    }


def test_range_with_more_members_than_partitions() -> None:
    members = [subject(name, A) for name in "abc"]
    assert shown(assign_range(members, {A: 2})) == {"a": {"a": [0]}, "b": {"a": [1]}, "c": {}}


def test_uniform_takes_from_who_has_most() -> None:
    members = [subject("a", A, a=[0, 1, 2, 3]), subject("b", A)]
    targets = assign_uniform(members, {A: 4})
    assert shown(targets) == {"a": {"a": [0, 1]}, "b": {"a": [2, 3]}}


def test_uniform_leaves_an_extra_partition_where_it_is() -> None:
    """The member that has three of five keeps them, although it does not come first."""
    members = [subject("a", A, a=[0, 1]), subject("b", A, a=[2, 3, 4])]
    assert shown(assign_uniform(members, {A: 5})) == {"a": {"a": [0, 1]}, "b": {"a": [2, 3, 4]}}


def test_uniform_drops_topics_that_are_not_read_any_more() -> None:
    members = [subject("a", B, a=[0], b=[0]), subject("b", B)]
    assert shown(assign_uniform(members, {B: 2})) == {"a": {"b": [0]}, "b": {"b": [1]}}


def test_nobody_and_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign([], {}) == {}
        assert shown(assign([subject("a")], {})) == {"a": {}}


def test_java_order_is_that_of_a_hash_table() -> None:
    # String.hashCode of one-letter names is their code; the table has 16 places, then 32.
    assert in_java_order("qabp") == ["p", "q", "a", "b"]
    many = [chr(number) for number in range(65, 65 + 13)]
    assert in_java_order(["a", "A"]) == ["a", "A"]
    assert in_java_order([*many, "a"])[0] == "A"
