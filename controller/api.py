"""The door of the controller: what a broker may ask of it, and what it offers in return.

Every broker owns one `Controller`; at most one in the cluster is *active* (elected).  Handlers call
the request methods whether or not this broker is active: an inactive controller answers with
NotController (code 41), so a client or broker looks for the right one.  Requests wait in the same
queue as everything else the controller does and are therefore answered in order.  No request is
left unanswered: those waiting when the controller leaves office fail at once (reference:
controller 2, "Preemption"; there some are dropped without an answer, here none is).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred

from kafkalike.errors import KafkaError
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from kafkalike.messages.transactions import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalike.types import TopicPartition

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


@dataclass(slots=True, frozen=True)
class ElectionResult:
    """What ElectLeaders did for one partition: exactly one of the two fields is set.

    `leader` is the broker that the caller's metadata cache should soon show as leader.
    """

    leader: int | None = None
    error: KafkaError | None = None


@dataclass(slots=True, frozen=True)
class ControllerMetrics:
    """A snapshot of the gauges of `kafka.controller` (reference: metrics 3); zeros when inactive."""

    active_controller_count: int = 0
    offline_partitions_count: int = 0
    preferred_replica_imbalance_count: int = 0
    controller_state: int = 0
    global_topic_count: int = 0
    global_partition_count: int = 0
    topics_to_delete_count: int = 0
    replicas_to_delete_count: int = 0
    topics_ineligible_to_delete_count: int = 0
    replicas_ineligible_to_delete_count: int = 0
    active_broker_count: int = 0
    fenced_broker_count: int = 0
    event_queue_size: int = 0
    total_queue_size: int = 0
    """Control requests waiting for all brokers together."""
    unclean_leader_elections_total: int = 0


class Controller(Protocol):
    """What handlers and the node see of the controller."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the elected controller right now."""

    @property
    def active_controller_id(self) -> int:
        """Broker id last read from `/controller`, -1 for none.  Metadata answers do not use this:
        they name the sender of the last UpdateMetadata."""

    @property
    def epoch(self) -> int:
        """Own controller epoch while active, else 0."""

    def start(self) -> None:
        """Watch `/controller` and stand for election.  The broker is registered by then."""

    def stop(self) -> "Deferred[None]":
        """Leave office, fail what waits, take no more events.  Fires once the event under way has
        ended.  Writes nothing to ZooKeeper: closing the session afterwards removes `/controller`.
        """

    def before_session_expired(self) -> None:
        """The ZooKeeper session is gone: leave office now and fail what waits (synchronous)."""

    def after_new_session(self) -> None:
        """A new session is connected: register this broker again and stand for election."""

    def on_topic_config_changed(self, topic: str, unclean_leader_election_enable: bool) -> None:
        """A topic's configuration changed; the flag is its new effective setting."""

    def on_broker_default_unclean_changed(self, enabled: bool) -> None:
        """This broker's own default of `unclean.leader.election.enable` changed to `enabled`."""

    def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> "Deferred[ControlledShutdownResponse]":
        """Move leadership off a broker; the answer lists partitions it still leads.

        Fails with StaleControllerEpoch (not active), StaleBrokerEpoch, BrokerNotAvailable (not
        registered) or UnknownServerError (not registered, but sent an epoch).
        """

    def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> "Deferred[AlterPartitionResponse]":
        """Judge ISR proposals of a leader (KIP-497).  `version` is the request's own version.

        Fails with NotController, StaleBrokerEpoch or UnknownServerError for the whole request.
        """

    def elect_leaders(
        self, election_type: int, partitions: Collection[TopicPartition]
    ) -> "Deferred[dict[TopicPartition, ElectionResult]]":
        """Preferred (0) or unclean (1) elections (KIP-460).

        The caller names the partitions (for "all" those of its metadata cache, and then leaves
        ELECTION_NOT_NEEDED out of its answer) and afterwards waits for its own metadata cache to
        show the leaders.  When not active every partition's error is NotController.
        """

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> "Deferred[AlterPartitionReassignmentsResponse]":
        """Begin, replace or cancel reassignments (KIP-455).  Fails with NotController."""

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> "Deferred[ListPartitionReassignmentsResponse]":
        """Reassignments under way.  Fails with NotController."""

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> "Deferred[AllocateProducerIdsResponse]":
        """The next block of producer ids for a broker.

        Fails with NotController, BrokerIdNotRegistered, StaleBrokerEpoch or UnknownServerError.
        """

    def update_features(
        self, request: UpdateFeaturesRequest, version: int
    ) -> "Deferred[UpdateFeaturesResponse]":
        """Change finalized features; per-feature errors are in the answer.

        Fails with NotController or FeatureUpdateFailed.
        """

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic with this id as the active controller knows it, also while it is being deleted;
        None when there is none or this broker is not controller."""

    def metrics(self) -> ControllerMetrics:
        """The gauges now; linear in the number of partitions when active."""
