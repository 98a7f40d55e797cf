"""Which partitions this broker hosts, and why one is not served (reference: replication 1, 8)."""

from collections.abc import Iterator

from kafkalike.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
)
from kafkalike.types import TopicPartition

from ..cluster.metadata_cache import MetadataCache
from .partition import Partition


class HostedPartitions:
    """Each partition is unknown here, online (a `Partition`), or offline (its directory failed)."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._online: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()
        self.get = self._online.get
        """The online partition or None; bound once, as every request asks."""

    def __iter__(self) -> Iterator[Partition]:
        """All online partitions, safe against changes meanwhile."""
        return iter(list(self._online.values()))

    def __len__(self) -> int:
        return len(self._online)

    @property
    def offline_count(self) -> int:
        return len(self._offline)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._offline

    def add(self, partition: Partition) -> None:
        """Host a partition."""
        self._online[partition.topic_partition] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        """Host it no longer."""
        return self._online.pop(topic_partition, None)

    def take_offline(self, topic_partition: TopicPartition) -> Partition | None:
        """Its directory failed; only a restart brings it back."""
        self._offline.add(topic_partition)
        return self._online.pop(topic_partition, None)

    def require(self, topic_partition: TopicPartition) -> Partition:
        """The online partition; raises what `absence` says."""
        partition = self._online.get(topic_partition)
        if partition is None:
            raise self.absence(topic_partition)
        return partition

    def absence(self, topic_partition: TopicPartition) -> KafkaError:
        """Why a partition is not online here.

        One that the cluster knows is led elsewhere: the client shall ask for metadata again.
        """
        if topic_partition in self._offline:
            return KafkaStorageError(f"the log directory of {topic_partition} is offline")
        if self._metadata.contains(topic_partition):
            return NotLeaderOrFollower(f"{topic_partition} is not hosted here")
        return self._metadata.unknown(f"{topic_partition} is not known here")
