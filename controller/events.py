"""Every event of the controller, a frozen value (reference: controller 4).

Events carry no state of the world: whoever handles one reads anew (KAFKA-5502).  Those of
`NOTICES` may be dropped while an equal one waits in the queue.  Requests carry the Deferred that
answers them; they are compared by identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkalike.types import TopicPartition

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from kafkalike.messages.cluster import (
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        UpdateFeaturesRequest,
    )
    from kafkalike.messages.control import (
        AlterPartitionRequest,
        ControlledShutdownRequest,
        LeaderAndIsrResponse,
        UpdateMetadataResponse,
    )
    from kafkalike.messages.transactions import AllocateProducerIdsRequest


class Work(IntEnum):
    """What kind of work an event is; the number is the ControllerState gauge (metrics 3)."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE = 16
    UPDATE_FEATURES = 17


# -- the office of controller ---------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Startup:
    """The broker has started: watch `/controller` and stand for election."""


@dataclass(slots=True, frozen=True)
class ControllerChange:
    """`/controller` was created, changed or deleted."""


@dataclass(slots=True, frozen=True)
class RegisterBrokerAndReelect:
    """A new session: register this broker, then stand for election."""


# -- watches --------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class BrokerChange:
    """Children of `/brokers/ids` changed."""


@dataclass(slots=True, frozen=True)
class BrokerModifications:
    """The registration of a broker was rewritten."""

    broker_id: int


@dataclass(slots=True, frozen=True)
class TopicChange:
    """Children of `/brokers/topics` changed."""


@dataclass(slots=True, frozen=True)
class PartitionModifications:
    """A topic's node was rewritten."""

    topic: str


@dataclass(slots=True, frozen=True)
class TopicDeletion:
    """Children of `/admin/delete_topics` changed."""


@dataclass(slots=True, frozen=True)
class IsrChangeNotification:
    """Children of `/isr_change_notification` changed."""


@dataclass(slots=True, frozen=True)
class LogDirEventNotification:
    """Children of `/log_dir_event_notification` changed."""


@dataclass(slots=True, frozen=True)
class ZkPartitionReassignment:
    """`/admin/reassign_partitions` was created, or may exist again."""


@dataclass(slots=True, frozen=True)
class ZkPreferredElection:
    """`/admin/preferred_replica_election` was created, or may exist again."""


# -- timers and settings --------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class AutoPreferredReplicaLeaderElection:
    """Time to look at the balance of leaders."""


@dataclass(slots=True, frozen=True)
class ExpireDelegationTokens:
    """Time to remove delegation tokens whose life has ended."""


@dataclass(slots=True, frozen=True)
class UncleanLeaderElectionEnable:
    """This broker's default now allows unclean elections."""


@dataclass(slots=True, frozen=True)
class TopicUncleanLeaderElectionEnable:
    """A topic now allows unclean elections."""

    topic: str


@dataclass(slots=True, frozen=True)
class RepairLeadership:
    """These partitions' stored state was not what the cache said: publish it under a new epoch."""

    partitions: tuple[TopicPartition, ...]


# -- answers of brokers ---------------------------------------------------------------------------


@dataclass(slots=True, frozen=True, eq=False)
class LeaderAndIsrResponseReceived:
    """`broker_epoch` is that of the registration the request was meant for."""

    broker_id: int
    broker_epoch: int
    response: "LeaderAndIsrResponse"


@dataclass(slots=True, frozen=True, eq=False)
class UpdateMetadataResponseReceived:
    broker_id: int
    response: "UpdateMetadataResponse"


@dataclass(slots=True, frozen=True, eq=False)
class TopicDeletionStopReplicaResponseReceived:
    """`errors`: code per partition that the request asked to delete (-1 where none was given)."""

    broker_id: int
    broker_epoch: int
    errors: Mapping[TopicPartition, int]


@dataclass(slots=True, frozen=True)
class ChannelBroken:
    """Requests for a broker cannot be queued or sent any more."""

    reason: str


# -- requests -------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True, eq=False)
class ControlledShutdown:
    request: "ControlledShutdownRequest"
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class AlterPartitionReceived:
    request: "AlterPartitionRequest"
    version: int
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class ReplicaLeaderElection:
    partitions: tuple[TopicPartition, ...]
    unclean: bool
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class ApiPartitionReassignment:
    request: "AlterPartitionReassignmentsRequest"
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class ListPartitionReassignments:
    request: "ListPartitionReassignmentsRequest"
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class AllocateProducerIds:
    request: "AllocateProducerIdsRequest"
    reply: "Deferred[Any]" = field(repr=False)


@dataclass(slots=True, frozen=True, eq=False)
class UpdateFeatures:
    request: "UpdateFeaturesRequest"
    version: int
    reply: "Deferred[Any]" = field(repr=False)


OfficeEvent: TypeAlias = Startup | ControllerChange | RegisterBrokerAndReelect
Notice: TypeAlias = (
    BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | IsrChangeNotification
    | LogDirEventNotification
    | ZkPartitionReassignment
    | ZkPreferredElection
    | AutoPreferredReplicaLeaderElection
    | ExpireDelegationTokens
    | UncleanLeaderElectionEnable
    | TopicUncleanLeaderElectionEnable
    | RepairLeadership
)
Answer: TypeAlias = (
    LeaderAndIsrResponseReceived
    | UpdateMetadataResponseReceived
    | TopicDeletionStopReplicaResponseReceived
    | ChannelBroken
)
Request: TypeAlias = (
    ControlledShutdown
    | AlterPartitionReceived
    | ReplicaLeaderElection
    | ApiPartitionReassignment
    | ListPartitionReassignments
    | AllocateProducerIds
    | UpdateFeatures
)
TermEvent: TypeAlias = Notice | Answer | Request
"""What only an active controller handles."""

ControllerEvent: TypeAlias = OfficeEvent | TermEvent

REQUESTS: Final = (
    ControlledShutdown,
    AlterPartitionReceived,
    ReplicaLeaderElection,
    ApiPartitionReassignment,
    ListPartitionReassignments,
    AllocateProducerIds,
    UpdateFeatures,
)

WORK: Final[Mapping[type, Work]] = {
    Startup: Work.CONTROLLER_CHANGE,
    ControllerChange: Work.CONTROLLER_CHANGE,
    RegisterBrokerAndReelect: Work.CONTROLLER_CHANGE,
    BrokerChange: Work.BROKER_CHANGE,
    BrokerModifications: Work.BROKER_CHANGE,
    TopicChange: Work.TOPIC_CHANGE,
    PartitionModifications: Work.TOPIC_CHANGE,
    TopicDeletion: Work.TOPIC_DELETION,
    IsrChangeNotification: Work.ISR_CHANGE,
    LogDirEventNotification: Work.LOG_DIR_CHANGE,
    ZkPartitionReassignment: Work.ALTER_PARTITION_REASSIGNMENT,
    ZkPreferredElection: Work.MANUAL_LEADER_BALANCE,
    AutoPreferredReplicaLeaderElection: Work.AUTO_LEADER_BALANCE,
    ExpireDelegationTokens: Work.IDLE,
    UncleanLeaderElectionEnable: Work.UNCLEAN_LEADER_ELECTION_ENABLE,
    TopicUncleanLeaderElectionEnable: Work.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    RepairLeadership: Work.ISR_CHANGE,
    LeaderAndIsrResponseReceived: Work.LEADER_AND_ISR_RESPONSE,
    UpdateMetadataResponseReceived: Work.UPDATE_METADATA_RESPONSE,
    TopicDeletionStopReplicaResponseReceived: Work.TOPIC_DELETION,
    ChannelBroken: Work.CONTROLLER_CHANGE,
    ControlledShutdown: Work.CONTROLLED_SHUTDOWN,
    AlterPartitionReceived: Work.ISR_CHANGE,
    ReplicaLeaderElection: Work.MANUAL_LEADER_BALANCE,
    ApiPartitionReassignment: Work.ALTER_PARTITION_REASSIGNMENT,
    ListPartitionReassignments: Work.LIST_PARTITION_REASSIGNMENT,
    AllocateProducerIds: Work.IDLE,
    UpdateFeatures: Work.UPDATE_FEATURES,
}
