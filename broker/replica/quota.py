"""Replication throttles (KIP-73; reference: replication 8, 13, configs 3).

A rate in bytes per second over a sliding window of samples, for the replicas that the topic lists.
The leader holds back what followers out of the ISR fetch, the follower leaves lagging partitions out
of its requests.  Whole fetches pass, so the limit holds on average only.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kafkalike.config import LogConfig
from kafkalike.runtime.ports import Clock
from kafkalike.types import TopicPartition

EVERYTHING: Final = "*"


class ReplicationQuota:
    """One direction of replication on this broker; without a rate nothing is held back.

    `replicas(topic_partition)` gives the topic's list for this direction: `*` or
    `partition:broker` pairs.
    """

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        replicas: Callable[[TopicPartition], tuple[str, ...]],
        *,
        sample_count: int,
        sample_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._replicas = replicas
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._samples: deque[tuple[float, int]] = deque()
        """(start, bytes), oldest first."""
        self.limit: float | None = None
        """Bytes per second; None: no limit."""

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker's replica is in the topic's list."""
        listed = self._replicas(topic_partition)
        if not listed:
            return False
        return listed[0] == EVERYTHING or f"{topic_partition.partition}:{self._broker_id}" in listed

    def is_exceeded(self) -> bool:
        """Whether the rate over the window is above the limit."""
        return self.limit is not None and self.rate() > self.limit

    def record(self, size_bytes: int) -> None:
        """Count bytes of throttled replicas."""
        now_s = self._clock.monotonic()
        self._forget_old(now_s)
        if self._samples and now_s - self._samples[-1][0] < self._sample_s:
            start_s, size = self._samples[-1]
            self._samples[-1] = (start_s, size + size_bytes)
        else:
            self._samples.append((now_s, size_bytes))

    def rate(self) -> float:
        """Bytes per second; a window younger than one sample counts as one sample long."""
        now_s = self._clock.monotonic()
        self._forget_old(now_s)
        if not self._samples:
            return 0.0
        elapsed_s = max(now_s - self._samples[0][0], self._sample_s)
        return sum(size for _, size in self._samples) / elapsed_s

    def _forget_old(self, now_s: float) -> None:
        oldest_s = now_s - self._sample_count * self._sample_s
        while self._samples and self._samples[0][0] <= oldest_s:
            self._samples.popleft()


def leader_replicas(config: LogConfig) -> tuple[str, ...]:
    """Replicas whose reads from their leader are throttled."""
    return config.leader_replication_throttled_replicas


def follower_replicas(config: LogConfig) -> tuple[str, ...]:
    """Replicas whose fetching is throttled."""
    return config.follower_replication_throttled_replicas


def parse_rate(text: str | None) -> float | None:
    """A dynamic rate setting; what does not parse is no limit."""
    if text is None:
        return None
    try:
        rate = int(text.strip())
    except ValueError:
        return None
    return float(rate) if rate >= 0 else None
