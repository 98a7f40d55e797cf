"""The nouns that every part shares: partitions, nodes, endpoints, leadership, assignments."""

import base64
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
"""Leader id that UpdateMetadata carries for a partition whose topic is being deleted."""

NO_BROKER_EPOCH: Final = -1
NO_EPOCH: Final = -1
ZERO_UUID: Final = bytes(16)

RECOVERED: Final = 0
RECOVERING: Final = 1


class TopicPartition(NamedTuple):
    """One partition of one topic; usable as a key and ordered by name, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Where a broker can be reached on one listener."""

    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(slots=True, frozen=True)
class Node:
    """A broker as its peers and clients see it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True, frozen=True)
class LeaderAndIsr:
    """Leadership of a partition as stored in ZooKeeper (reference: zookeeper 2.4).

    `partition_epoch` is the data version of the state znode and is not part of its payload.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED
    partition_epoch: int = 0

    def with_leader(self, leader: int, isr: tuple[int, ...]) -> "LeaderAndIsr":
        """The next state that the controller proposes: leader epoch one higher."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)


@dataclass(slots=True, frozen=True)
class ReplicaAssignment:
    """Which brokers hold a partition, and what a running reassignment adds and removes (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> "ReplicaAssignment":
        """Begin moving to `target`: both sets together until the new replicas have caught up."""
        replicas = tuple(dict.fromkeys(target + self.origin))
        return ReplicaAssignment(
            replicas,
            adding=tuple(r for r in replicas if r not in self.origin),
            removing=tuple(r for r in replicas if r not in target),
        )


def uuid_to_text(raw: bytes) -> str:
    """16 bytes as Kafka writes ids: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> bytes:
    """The reverse of `uuid_to_text`.  Raises ValueError when the text is no such id."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"id {text!r} is not URL-safe base64") from error
    if len(raw) != 16:
        raise ValueError(f"id {text!r} holds {len(raw)} bytes, expected 16")
    return raw


def java_hash(text: str) -> int:
    """Java's `String.hashCode` in 32 bits without sign: over the UTF-16 units of the text."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value
