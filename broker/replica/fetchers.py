"""All fetch loops of a broker: which partition is followed by which (reference: replication 13)."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig
from kafkalike.errors import KafkaStorageError
from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import Tasks
from kafkalike.types import NO_LEADER, TopicPartition

from ..log.log import Log
from .fetcher import Fetcher, FetchPeers
from .fetcher_session import FetchSettings
from .follower import UNKNOWN_LAG, fetcher_index, initial_offset
from .hosted import HostedPartitions
from .partition import Partition
from .quota import ReplicationQuota

_METRICS: Final = ("kafka.server", "ReplicaFetcherManager")


class FetcherManager:
    """One loop for each leader and index; at most `num.replica.fetchers` to one leader.

    A loop that ends by an unforeseen error is started again after the backoff.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        hosted: HostedPartitions,
        peers: Callable[[int], FetchPeers],
        broker_epoch: Callable[[], int],
        logger: logging.Logger,
        metrics: Metrics,
        throttle: ReplicationQuota,
        flush: "Callable[[Log], Deferred[None]]",
    ) -> None:
        self.clock = clock
        self.hosted = hosted
        self.settings = FetchSettings(
            config.broker_id,
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
        )
        self.backoff_s = config.replica_fetch_backoff_ms / 1000
        self.request_timeout_s = config.request_timeout_ms / 1000
        self.throttle = throttle
        self.flush = flush
        self.logger = logger
        self.broker_epoch = broker_epoch
        self.failed_partitions: set[TopicPartition] = set()
        self._count = config.num_replica_fetchers
        self._make_peers = peers
        self._peers: dict[int, FetchPeers] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._home: dict[TopicPartition, Fetcher] = {}
        self._tasks = Tasks(logger)
        self._stopped = False
        for name, read in {
            "MaxLag": self._max_lag,
            "FailedPartitionsCount": lambda: len(self.failed_partitions),
            "DeadThreadCount": lambda: 0,
        }.items():
            metrics.gauge(*_METRICS, name, read, clientId="Replica")

    # -- what roles ask ------------------------------------------------------------------------

    def add(self, partitions: Iterable[Partition]) -> None:
        """Begin to follow the leaders of these partitions.

        A log that knows no leader epoch cannot be compared with the leader's: what is not committed
        is cut off.
        """
        if self._stopped:
            return
        for partition in partitions:
            key, log = partition.topic_partition, partition.log
            if log is None or partition.leader == NO_LEADER:
                continue
            self.failed_partitions.discard(key)
            fetcher = self._fetcher(partition)
            home = self._home.get(key)
            if home is not None and home is not fetcher:
                home.remove(key)
            try:
                if log.latest_epoch is None:
                    partition.truncate_to(log.high_watermark)
            except KafkaStorageError:
                continue  # its directory has just gone offline, and the partition with it
            self._home[key] = fetcher
            fetcher.add(partition, initial_offset(log))

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow no more; harmless for partitions that are not followed."""
        for key in partitions:
            fetcher = self._home.pop(key, None)
            if fetcher is not None:
                fetcher.remove(key)
            self.failed_partitions.discard(key)

    def stop_idle(self) -> None:
        """End fetch loops without partitions."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.stop()
                del self._fetchers[key]

    def forget_topic_id(self, topic_partition: TopicPartition) -> None:
        """The controller no longer knows an id for this partition: fetch by name."""
        fetcher = self._home.get(topic_partition)
        if fetcher is not None:
            fetcher.forget_topic_id(topic_partition)

    # -- what the loops ask --------------------------------------------------------------------

    def failed(self, topic_partition: TopicPartition) -> None:
        """Left alone until the controller's next order."""
        self._home.pop(topic_partition, None)
        self.failed_partitions.add(topic_partition)

    # -- life ----------------------------------------------------------------------------------

    def resize(self, count: int) -> None:
        """num.replica.fetchers changed: spread the partitions anew."""
        if count == self._count:
            return
        self._count = count
        partitions = [
            one.partition for fetcher in self._fetchers.values() for one in fetcher.followed()
        ]
        self.remove([partition.topic_partition for partition in partitions])
        self.stop_idle()
        self.add(partitions)

    def stop(self) -> None:
        """End all loops."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._home.clear()
        self._tasks.stop()

    @property
    def fetcher_count(self) -> int:
        return len(self._fetchers)

    def _fetcher(self, partition: Partition) -> Fetcher:
        index = fetcher_index(partition.topic_partition, self._count)
        key = (partition.leader, index)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            peers = self._peers.get(index)
            if peers is None:
                peers = self._peers[index] = self._make_peers(index)
            fetcher = self._fetchers[key] = Fetcher(partition.leader, peers, self)
            # Started at the end of the turn, when all partitions of the order are there.
            self.clock.call_soon(self._start, fetcher, f"fetcher-{index}-{partition.leader}")
        return fetcher

    def _start(self, fetcher: Fetcher, name: str) -> None:
        if fetcher not in self._fetchers.values():
            return
        ended = self._tasks.spawn(fetcher.run(), name)
        ended.addCallback(lambda _: self._ended(fetcher, name))

    def _ended(self, fetcher: Fetcher, name: str) -> None:
        if not self._stopped and fetcher in self._fetchers.values():
            fetcher.restart()
            self.clock.call_later(self.backoff_s, self._start, fetcher, name)

    def _max_lag(self) -> float:
        lags = [
            one.lag
            for fetcher in self._fetchers.values()
            for one in fetcher.followed()
            if one.lag != UNKNOWN_LAG
        ]
        return max(lags, default=0)
