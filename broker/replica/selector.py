"""Which replica a consumer should read from (KIP-392; reference: replication 10)."""

from typing import Final

from kafkalike.runtime.ports import Clock

from ..cluster.metadata_cache import MetadataCache
from .partition import Partition
from .values import FetchParams

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"


class RackSelector:
    """Sends consumers to an in-sync replica of their rack.

    The leader is preferred where it is in that rack, and whenever no replica is.  Among several the
    one furthest on wins, then the one that was caught up last, then the highest broker id.
    """

    def __init__(self, metadata: MetadataCache, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    def select(self, partition: Partition, params: FetchParams, fetch_offset: int) -> int | None:
        """A broker other than the leader, or None: read here."""
        if not params.rack_id or not partition.is_leader:
            return None
        brokers = self._metadata.snapshot.brokers
        leader = brokers.get(partition.leader)
        if leader is not None and leader.rack == params.rack_id:
            return None
        now_s = self._clock.monotonic()
        best: tuple[int, float, int] | None = None
        for replica in partition.remotes:
            broker = brokers.get(replica.broker_id)
            if (
                broker is None
                or broker.rack != params.rack_id
                or params.listener not in broker.endpoints
                or replica.broker_id not in partition.isr
                or replica.log_end_offset < fetch_offset
                or replica.log_start_offset > fetch_offset
            ):
                continue
            lag_s = now_s - replica.last_caught_up_s
            rank = (replica.log_end_offset, -lag_s, replica.broker_id)
            if best is None or rank > best:
                best = rank
        return None if best is None else best[2]
