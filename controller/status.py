"""The states of partitions and replicas, and which may follow which (reference: controller 5, 6)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class PartitionStatus(IntEnum):
    """Where a partition stands; the numbers are Kafka's."""

    NEW = 0
    """Assigned to brokers, never led."""
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


class ReplicaStatus(IntEnum):
    """Where one replica of a partition stands; the numbers are Kafka's."""

    NEW = 1
    """Being added: may only become a follower yet."""
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


PARTITION_PREDECESSORS: Final[Mapping[PartitionStatus, frozenset[PartitionStatus]]] = {
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
}
"""From which states a partition may go to the key."""

REPLICA_PREDECESSORS: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset(
        {ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}
    ),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
"""From which states a replica may go to the key."""
