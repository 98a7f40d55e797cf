"""The controller in the metrics registry of its node (reference: metrics 3)."""

from collections.abc import Callable
from typing import Final

from kafkalike.metrics import Counter, Histogram, Metrics
from kafkalike.runtime.ports import Clock

from .api import ControllerMetrics
from .events import Work

DOMAIN: Final = "kafka.controller"
SNAPSHOT_LIFE_S: Final = 1.0

_GAUGES: Final = (
    ("KafkaController", "ActiveControllerCount", "active_controller_count"),
    ("KafkaController", "OfflinePartitionsCount", "offline_partitions_count"),
    ("KafkaController", "PreferredReplicaImbalanceCount", "preferred_replica_imbalance_count"),
    ("KafkaController", "ControllerState", "controller_state"),
    ("KafkaController", "GlobalTopicCount", "global_topic_count"),
    ("KafkaController", "GlobalPartitionCount", "global_partition_count"),
    ("KafkaController", "TopicsToDeleteCount", "topics_to_delete_count"),
    ("KafkaController", "ReplicasToDeleteCount", "replicas_to_delete_count"),
    ("KafkaController", "TopicsIneligibleToDeleteCount", "topics_ineligible_to_delete_count"),
    ("KafkaController", "ReplicasIneligibleToDeleteCount", "replicas_ineligible_to_delete_count"),
    ("KafkaController", "ActiveBrokerCount", "active_broker_count"),
    ("KafkaController", "FencedBrokerCount", "fenced_broker_count"),
    ("ControllerEventManager", "EventQueueSize", "event_queue_size"),
    ("ControllerChannelManager", "TotalQueueSize", "total_queue_size"),
)

_TIMERS: Final = {
    Work.CONTROLLER_CHANGE: "ControllerChange",
    Work.BROKER_CHANGE: "LeaderElection",
    Work.TOPIC_CHANGE: "TopicChange",
    Work.TOPIC_DELETION: "TopicDeletion",
    Work.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
    Work.AUTO_LEADER_BALANCE: "AutoLeaderBalance",
    Work.MANUAL_LEADER_BALANCE: "ManualLeaderBalance",
    Work.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    Work.ISR_CHANGE: "IsrChange",
    Work.LEADER_AND_ISR_RESPONSE: "LeaderAndIsrResponseReceived",
    Work.LOG_DIR_CHANGE: "LogDirChange",
    Work.CONTROLLER_SHUTDOWN: "ControllerShutdown",
    Work.UNCLEAN_LEADER_ELECTION_ENABLE: "UncleanLeaderElectionEnable",
    Work.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "TopicUncleanLeaderElectionEnable",
    Work.LIST_PARTITION_REASSIGNMENT: "ListPartitionReassignment",
    Work.UPDATE_FEATURES: "UpdateFeatures",
}
"""Kinds of work whose events are timed, by the name of their timer."""


class ControllerGauges:
    """Registers everything at once; `read` is asked at most once a second."""

    def __init__(
        self, metrics: Metrics, clock: Clock, read: Callable[[], ControllerMetrics]
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._read = read
        self._snapshot = ControllerMetrics()
        self._valid_until_s = float("-inf")
        for type_, name, field in _GAUGES:
            metrics.gauge(DOMAIN, type_, name, self._reader(field))
        self.queue_time_ms: Histogram = metrics.histogram(
            DOMAIN, "ControllerEventManager", "EventQueueTimeMs"
        )
        self.unclean_elections: Counter = metrics.counter(
            DOMAIN, "ControllerStats", "UncleanLeaderElectionsPerSec"
        )
        self._timers = {
            work: metrics.histogram(DOMAIN, "ControllerStats", f"{name}RateAndTimeMs")
            for work, name in _TIMERS.items()
        }

    def _reader(self, field: str) -> Callable[[], float]:
        def read() -> float:
            value: float = getattr(self._fresh(), field)
            return value

        return read

    def _fresh(self) -> ControllerMetrics:
        now_s = self._clock.monotonic()
        if now_s >= self._valid_until_s:
            self._snapshot = self._read()
            self._valid_until_s = now_s + SNAPSHOT_LIFE_S
        return self._snapshot

    def event_done(self, work: Work, seconds: float) -> None:
        """An event has been processed."""
        timer = self._timers.get(work)
        if timer is not None:
            timer.update(seconds * 1000)

    def channel_opened(self, broker_id: int, queued: Callable[[], int]) -> Histogram:
        """Gauge and timer of one broker's channel; the timer takes queue times in ms."""
        tags = {"broker-id": str(broker_id)}
        self._metrics.gauge(DOMAIN, "ControllerChannelManager", "QueueSize", queued, **tags)
        return self._metrics.histogram(
            DOMAIN, "ControllerChannelManager", "RequestRateAndQueueTimeMs", **tags
        )

    def channel_closed(self, broker_id: int) -> None:
        tags = {"broker-id": str(broker_id)}
        for name in ("QueueSize", "RequestRateAndQueueTimeMs"):
            self._metrics.remove(DOMAIN, "ControllerChannelManager", name, **tags)
