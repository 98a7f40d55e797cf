"""What the controller decides, one record per change of state, for whoever wants to tell the story.

`Journal` is a function given to the controller's constructor; it is called synchronously, after the
change was made (for leadership and assignments: after ZooKeeper has it) and must not raise.
Every record names its `cause`: the event being handled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafkalike.types import ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import PartitionState

from .status import PartitionStatus, ReplicaStatus


@dataclass(slots=True, frozen=True)
class Elected:
    """This broker became controller; `epoch_zk_version` fences its writes."""

    cause: str
    controller_id: int
    controller_epoch: int
    epoch_zk_version: int


@dataclass(slots=True, frozen=True)
class Resigned:
    """This broker left the office it held with `controller_epoch`."""

    cause: str
    controller_id: int
    controller_epoch: int


@dataclass(slots=True, frozen=True)
class BrokerSeen:
    """A registration came (`old_epoch` -1), went (`new_epoch` -1) or was replaced by a new life."""

    cause: str
    controller_epoch: int
    broker_id: int
    old_epoch: int
    new_epoch: int


@dataclass(slots=True, frozen=True)
class LeadershipChanged:
    """A partition's stored state; the partition epoch in it is the znode's data version.

    `old` None: first state seen by this controller.
    """

    cause: str
    controller_epoch: int
    partition: TopicPartition
    old: PartitionState | None
    new: PartitionState
    unclean: bool = False


@dataclass(slots=True, frozen=True)
class LastReplicaPassedOver:
    """A former member of the ISR leads: the log of the only member is shorter than it was (ADR 0008).

    Comes before the LeadershipChanged that it explains.
    """

    cause: str
    controller_epoch: int
    partition: TopicPartition
    leader: int
    instead_of: int


@dataclass(slots=True, frozen=True)
class PartitionMoved:
    """The partition state machine."""

    cause: str
    controller_epoch: int
    partition: TopicPartition
    old: PartitionStatus
    new: PartitionStatus


@dataclass(slots=True, frozen=True)
class ReplicaMoved:
    """The replica state machine."""

    cause: str
    controller_epoch: int
    partition: TopicPartition
    broker_id: int
    old: ReplicaStatus
    new: ReplicaStatus


@dataclass(slots=True, frozen=True)
class AssignmentChanged:
    """Which brokers hold a partition, as a reassignment goes on."""

    cause: str
    controller_epoch: int
    partition: TopicPartition
    old: ReplicaAssignment
    new: ReplicaAssignment


@dataclass(slots=True, frozen=True)
class TopicForgotten:
    """A topic is gone: deleted to the end, or removed from ZooKeeper by somebody else."""

    cause: str
    controller_epoch: int
    topic: str
    topic_id: bytes | None


JournalRecord: TypeAlias = (
    Elected
    | Resigned
    | BrokerSeen
    | LeadershipChanged
    | LastReplicaPassedOver
    | PartitionMoved
    | ReplicaMoved
    | AssignmentChanged
    | TopicForgotten
)
Journal: TypeAlias = Callable[[JournalRecord], None]
