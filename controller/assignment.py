"""Where the replicas of new partitions go (reference: controller 15).

The placement is Kafka's: first replicas round-robin over the brokers from a random start, further
replicas at a growing distance, and, when every broker names its rack, one rack after the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import InvalidPartitions, InvalidReplicationFactor, UnknownServerError
from kafkalike.runtime.ports import Random

MAX_PARTITIONS: Final = 100_000
"""Of one topic: ZooKeeper does not take the assignment of more in one node (1 MiB), so nothing is
gained by working it out first."""


@dataclass(slots=True, frozen=True)
class BrokerRack:
    """A broker that may get replicas, and the rack it stands in (None: not told)."""

    broker_id: int
    rack: str | None = None


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partition_count: int,
    replication_factor: int,
    random: Random,
    *,
    fixed_start: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas per partition number, `first_partition` and following; the first is preferred leader.

    `fixed_start` (an index into `brokers`, or into the rack-alternated list) makes the result
    repeatable: CreatePartitions uses it to go on where the topic's placement ended.  Callers that
    do not want racks to count leave all of them None.

    Raises InvalidPartitions, InvalidReplicationFactor, and UnknownServerError when some brokers
    have a rack and others have none.
    """
    if partition_count <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if first_partition + partition_count > MAX_PARTITIONS:
        raise InvalidPartitions(
            f"Number of partitions must not be larger than {MAX_PARTITIONS}, found"
            f" {first_partition + partition_count}."
        )
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: "
            f"{len(brokers)}."
        )
    racks = {broker.broker_id: broker.rack for broker in brokers}
    if all(rack is None for rack in racks.values()):
        ids = [broker.broker_id for broker in brokers]
        rack_count = 0
    elif any(rack is None for rack in racks.values()):
        raise UnknownServerError(
            "Not all brokers have rack information for replica rack aware assignment."
        )
    else:
        ids = rack_alternated(brokers)
        rack_count = len(set(racks.values()))

    broker_count = len(ids)
    start = random.randrange(broker_count) if fixed_start is None else fixed_start
    shift = random.randrange(broker_count) if fixed_start is None else fixed_start
    result = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % broker_count == 0:
            shift += 1
        first = (partition + start) % broker_count
        if rack_count:
            candidates = _candidates(ids, first, shift * rack_count)
            result[partition] = _spread(
                ids[first], candidates, racks, rack_count, replication_factor
            )
        else:
            candidates = _candidates(ids, first, shift)
            followers = [next(candidates) for _ in range(replication_factor - 1)]
            result[partition] = (ids[first], *followers)
    return result


def rack_alternated(brokers: Iterable[BrokerRack]) -> list[int]:
    """Broker ids taken from one rack after the other: racks by name, brokers by id in their rack."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        by_rack.setdefault(broker.rack or "", []).append(broker.broker_id)
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(rack) for rack in racks)
    return [rack[turn] for turn in range(longest) for rack in racks if turn < len(rack)]


def _candidates(ids: Sequence[int], first: int, shift: int) -> Iterator[int]:
    """Endless followers of the broker at index `first`, in the order in which they are tried."""
    count = len(ids)
    step = 0
    while True:
        yield ids[(first + 1 + (shift + step) % (count - 1)) % count]
        step += 1


def _spread(
    leader: int,
    candidates: Iterable[int],
    racks: dict[int, str | None],
    rack_count: int,
    replication_factor: int,
) -> tuple[int, ...]:
    """One replica per rack while racks without one are left, one per broker in any case."""
    chosen = [leader]
    used_racks = {racks[leader]}
    used_brokers = {leader}
    for candidate in candidates if replication_factor > 1 else ():
        rack = racks[candidate]
        if rack in used_racks and len(used_racks) < rack_count:
            continue
        if candidate in used_brokers and len(used_brokers) < len(racks):
            continue
        chosen.append(candidate)
        used_racks.add(rack)
        used_brokers.add(candidate)
        if len(chosen) == replication_factor:
            break
    return tuple(chosen)
