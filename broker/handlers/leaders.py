"""Where a client should turn instead: current leaders for NOT_LEADER_OR_FOLLOWER answers (KIP-951)."""

from kafkalike.types import NO_EPOCH, NO_LEADER, Node, TopicPartition

from ..cluster.metadata_cache import MetadataCache
from ..replica.manager import ReplicaManager


class CurrentLeaders:
    """Finds the leader of a partition as this broker knows it, and its address on a listener."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata

    def find(self, topic_partition: TopicPartition, listener: str) -> tuple[int, int, Node | None]:
        """(leader id, leader epoch, address); -1, -1, None where unknown."""
        hosted = self._replicas.partition(topic_partition)
        if hosted is not None and hosted.leader != NO_LEADER:
            leader, epoch = hosted.leader, hosted.leader_epoch
        else:
            known = self._metadata.partition(topic_partition)
            if known is None:
                return NO_LEADER, NO_EPOCH, None
            leader, epoch = known.leader, known.leader_epoch
        return leader, epoch, self._metadata.node(leader, listener)
