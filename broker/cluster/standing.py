"""What this broker tells of its logs when it registers, for the last replica standing (ADR 0008).

Nearly always nothing: only a state in ZooKeeper that names this broker as the whole ISR, or as one
that left an ISR of one, makes a remark.  The states are read before the broker registers, so that they
are those that its earlier life left behind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalike.types import NO_LEADER, TopicPartition
from kafkalike.zk import topics
from kafkalike.zk.client import ZkClient
from kafkalike.zk.znodes import PartitionState

CHUNK: Final = 1000
MAX_REMARKS: Final = 5000
"""Of either kind: a registration must fit into one packet of ZooKeeper.  For the rest Kafka's rules
hold."""


@dataclass(slots=True, frozen=True)
class Standing:
    """The remarks of one start."""

    short_logs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Shorter than they were, and this broker is the whole ISR: with the leader epoch of the state."""
    whole_logs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """As they were when this broker left the ISR: with the epoch of that life."""


NOTHING_TO_SAY: Final = Standing()


async def read_standing(
    zk: ZkClient,
    broker_id: int,
    *,
    short: Iterable[TopicPartition],
    stopped_in: Mapping[TopicPartition, int],
) -> Standing:
    """Compare what was loaded with the states in ZooKeeper.

    `short` are the logs that end below the high watermark they had; `stopped_in` names for each log
    that was closed in order, and has its end, the broker epoch of that life.
    """
    shorter = set(short)
    wanted = sorted(shorter | stopped_in.keys())
    short_logs: dict[TopicPartition, int] = {}
    whole_logs: dict[TopicPartition, int] = {}
    for start in range(0, len(wanted), CHUNK):
        found = await topics.read_partition_states(zk, wanted[start : start + CHUNK])
        for partition, state in found.items():
            if not isinstance(state, PartitionState):
                continue
            current = state.leader_and_isr
            if partition in shorter:
                if current.isr == (broker_id,) and current.leader in (broker_id, NO_LEADER):
                    short_logs[partition] = current.leader_epoch
            elif state.former is not None:
                left_in = state.former.epoch_of(broker_id)
                if left_in is not None and left_in == stopped_in[partition]:
                    whole_logs[partition] = left_in
    return Standing(_bounded(short_logs), _bounded(whole_logs))


def _bounded(remarks: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return dict(list(remarks.items())[:MAX_REMARKS])
