"""Who is to own what in a group of the newer protocol: `uniform` and `range` (KIP-848, reference:
group-coordinator 15).

Both are pure: the same members, topics and previous targets give the same assignment.  Members come in
the order in which the original goes through them, so that ties fall alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from kafkalike.types import java_hash

from .consumer_values import Partitions

MAX_ROUNDS: Final = 16
"""How often topics are gone through for a better balance; each time roughly halves what is left."""
SMALLEST_TABLE: Final = 16


@dataclass(slots=True, frozen=True)
class Subject:
    """A member as an assignor sees it: the ids of topics that it reads and that exist."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Partitions
    """What it was to own until now."""


Targets = dict[str, Partitions]
"""Member id -> what it is to own."""
Assignor = Callable[[Sequence[Subject], Mapping[bytes, int]], Targets]
"""From members, and how many partitions each topic has."""


def in_java_order(member_ids: Iterable[str]) -> list[str]:
    """Ids as a hash table of the original holds them."""
    known = list(member_ids)
    size = SMALLEST_TABLE
    while len(known) > size * 3 // 4:
        size *= 2

    def place(member_id: str) -> int:
        code = java_hash(member_id)
        return (code ^ code >> 16) & size - 1

    return sorted(known, key=place)


def assign_range(members: Sequence[Subject], counts: Mapping[bytes, int]) -> Targets:
    """For each topic a run of neighbouring partitions to each subscriber, static members first."""
    ordered = sorted(
        members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id)
    )
    readers = _readers(ordered)
    targets: dict[str, dict[bytes, frozenset[int]]] = {m.member_id: {} for m in members}
    for topic_id, subscribers in readers.items():
        quota, extra = divmod(counts[topic_id], len(subscribers))
        begin = 0
        for number, member in enumerate(subscribers):
            end = begin + quota + (number < extra)
            if end > begin:
                targets[member.member_id][topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(targets)


def assign_uniform(members: Sequence[Subject], counts: Mapping[bytes, int]) -> Targets:
    """As many partitions to each as can be, moving as few as can be."""
    if not members:
        return {}
    if all(member.topics == members[0].topics for member in members):
        return _uniform_alike(members, counts)
    return _UniformMixed(members, counts).assign()


def _uniform_alike(members: Sequence[Subject], counts: Mapping[bytes, int]) -> Targets:
    """All read the same topics: each keeps what it had up to its share, the rest is dealt out."""
    topics = members[0].topics
    total = sum(counts[topic_id] for topic_id in topics)
    quota, extras = divmod(total, len(members))
    held: dict[tuple[bytes, int], None] = {}
    kept: dict[str, list[tuple[bytes, int]]] = {}
    surplus: list[tuple[bytes, int]] = []
    room: list[tuple[str, int]] = []
    for index, member in enumerate(members):
        share = quota + (extras > 0)
        takes_extra = extras > 0
        mine: list[tuple[bytes, int]] = []
        for place in _places(member.target, topics, counts):
            if place in held:
                continue  # two members were to have it: the first one keeps it
            held[place] = None
            (mine if len(mine) < share else surplus).append(place)
        left = share - len(mine)
        if left > 0 and takes_extra and len(members) - index > extras:
            left -= 1  # a later member may have more already
            takes_extra = False
        if takes_extra:
            extras -= 1
        if left > 0:
            room.append((member.member_id, left))
        kept[member.member_id] = mine
    free = [
        (topic_id, partition)
        for topic_id in sorted(topics)
        for partition in range(counts[topic_id])
        if (topic_id, partition) not in held
    ]
    free += surplus
    begin = 0
    for member_id, left in room:
        kept[member_id] += free[begin : begin + left]
        begin += left
    return {member_id: _grouped(places) for member_id, places in kept.items()}


class _UniformMixed:
    """Members read different topics: stick to what was, deal out, then even out topic by topic."""

    def __init__(self, members: Sequence[Subject], counts: Mapping[bytes, int]) -> None:
        self._counts = counts
        self._ids = [member.member_id for member in members]
        places = {member_id: index for index, member_id in enumerate(self._ids)}
        self._readers = {
            topic_id: [places[m.member_id] for m in readers]
            for topic_id, readers in _readers(members).items()
        }
        self._sizes = [0] * len(members)
        self._owners: dict[bytes, list[int]] = {
            topic_id: [-1] * counts[topic_id] for topic_id in self._readers
        }
        for index, member in enumerate(members):
            for topic_id, partition in _places(member.target, member.topics, counts):
                if self._owners[topic_id][partition] < 0:
                    self._give(topic_id, partition, index)

    def assign(self) -> Targets:
        order = sorted(self._readers, key=self._rank)
        for topic_id in order:
            self._deal(topic_id)
        shared = [topic_id for topic_id in order if len(self._readers[topic_id]) > 1]
        for _ in range(MAX_ROUNDS):
            moves = [self._even_out(topic_id) for topic_id in shared]
            if not any(moves):
                break
        given: list[list[tuple[bytes, int]]] = [[] for _ in self._ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                given[owner].append((topic_id, partition))
        return {member_id: _grouped(mine) for member_id, mine in zip(self._ids, given, strict=True)}

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        """Topics with much for few come first: others can even out after them."""
        readers = len(self._readers[topic_id])
        return -self._counts[topic_id] / readers, readers, topic_id

    def _give(self, topic_id: bytes, partition: int, index: int) -> None:
        old = self._owners[topic_id][partition]
        if old >= 0:
            self._sizes[old] -= 1
        self._owners[topic_id][partition] = index
        self._sizes[index] += 1

    def _deal(self, topic_id: bytes) -> None:
        """What nobody owns goes to who has least."""
        least = [(self._sizes[index], index) for index in self._readers[topic_id]]
        heapify(least)
        for partition, owner in enumerate(self._owners[topic_id]):
            if owner < 0:
                size, index = least[0]
                self._give(topic_id, partition, index)
                heapreplace(least, (size + 1, index))

    def _even_out(self, topic_id: bytes) -> int:
        """Move partitions from who has most to who has least; how many moved."""
        readers = self._readers[topic_id]
        mine: dict[int, list[int]] = {index: [] for index in readers}
        for partition, owner in enumerate(self._owners[topic_id]):
            mine[owner].append(partition)
        least = [(self._sizes[index], index) for index in readers]
        most = [(-self._sizes[index], index) for index in readers if mine[index]]
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            minus, giver = most[0]
            if -minus != self._sizes[giver]:
                heapreplace(most, (-self._sizes[giver], giver))
                continue
            size, taker = least[0]
            if size != self._sizes[taker]:
                heapreplace(least, (self._sizes[taker], taker))
                continue
            if -minus - size <= 1:
                break
            if not mine[giver]:
                heappop(most)
                continue
            partition = mine[giver].pop()
            mine[taker].append(partition)
            self._give(topic_id, partition, taker)
            heapreplace(least, (self._sizes[taker], taker))
            heappush(least, (self._sizes[giver], giver))
            heappush(most, (-self._sizes[taker], taker))
            moved += 1
        return moved


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _readers(members: Iterable[Subject]) -> dict[bytes, list[Subject]]:
    readers: dict[bytes, list[Subject]] = {}
    for member in members:
        for topic_id in sorted(member.topics):
            readers.setdefault(topic_id, []).append(member)
    return readers


def _places(
    target: Partitions, topics: frozenset[bytes], counts: Mapping[bytes, int]
) -> list[tuple[bytes, int]]:
    """Partitions of a former target that can be kept."""
    return [
        (topic_id, partition)
        for topic_id in sorted(target)
        if topic_id in topics
        for partition in sorted(target[topic_id])
        if partition < counts[topic_id]
    ]


def _grouped(places: Iterable[tuple[bytes, int]]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in places:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
