"""The last replica standing: who is safer than the one member that an ISR has left (ADR 0008).

When an ISR falls to one member, the stored state names the others and the life in which each left.
With min.insync.replicas of 2 and more nothing is acknowledged from then on, so each of them has all
that was.  If the one that is left comes back from an unclean stop and tells that its log ends below
the high watermark that it had, a former member takes its place, provided that it is still whole: in
the life in which it left, or after a stop in order of that life.  In any other case Kafka's rules
hold.

The rules are pure; `LastReplica` reads what decides min.insync.replicas.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafkalike.types import NO_BROKER_EPOCH, NO_LEADER, RECOVERING, LeaderAndIsr, TopicPartition
from kafkalike.zk import configs, paths
from kafkalike.zk.znodes import CorruptZnode, FormerIsr, PartitionState

from .context import ControllerContext
from .term import Term

MIN_ISR_KEY: Final = "min.insync.replicas"
NEVER: Final = -1
"""The zxid of a znode that is not there."""
_DEFAULTS: Final = f"brokers/{paths.DEFAULT_ENTITY}"

Epochs = tuple[tuple[int, int], ...]


@dataclass(slots=True, frozen=True)
class MinIsr:
    """What decides how many in-sync replicas a leader needs to acknowledge."""

    value: int
    zxids: tuple[int, ...]
    """Last changes of the settings of the topic, of all brokers, of the leader."""


def former_after(
    context: ControllerContext, partition: TopicPartition, old: PartitionState, new: LeaderAndIsr
) -> Epochs:
    """Who is to be named beside `new`, with their lives; whether that counts `LastReplica` says.

    Only replicas that are assigned count: what another one has may be deleted at any time.
    """
    if len(new.isr) != 1 or new.recovery_state == RECOVERING:
        return ()
    before = old.leader_and_isr.isr
    if before == new.isr:
        if old.former is None or (new.leader in new.isr and is_short(context, partition, old)):
            return ()  # with an election of the shorter log the others follow it
        found = old.former.epochs
    elif new.isr[0] in before:
        found = tuple((b, context.last_epochs.get(b, NO_BROKER_EPOCH)) for b in sorted(before))
    else:
        return ()
    assignment = context.assignment(partition)
    return tuple(
        (broker_id, epoch)
        for broker_id, epoch in found
        if epoch != NO_BROKER_EPOCH
        and broker_id not in new.isr
        and broker_id in assignment.replicas
        and broker_id not in assignment.adding
    )


def is_short(context: ControllerContext, partition: TopicPartition, state: PartitionState) -> bool:
    """Whether the whole ISR is one broker that has told of a log shorter than it was.

    What it told counts while that ISR stands and nobody was elected since: the state is the one that
    it found at its start, or that with the step to "no leader".
    """
    current = state.leader_and_isr
    if len(current.isr) != 1:
        return False
    broker = context.brokers.get(current.isr[0])
    told = None if broker is None else broker.info.short_logs.get(partition)
    if told is None:
        return False
    if current.leader == NO_LEADER:
        return current.leader_epoch - told in (0, 1)
    return current.leader in current.isr and current.leader_epoch == told


def safer_member(
    context: ControllerContext, partition: TopicPartition, state: PartitionState
) -> int | None:
    """The first assigned former member that is online and still whole, where one is needed."""
    if state.former is None or not is_short(context, partition, state):
        return None
    assignment = context.assignment(partition)
    for broker_id in context.online_replicas(partition, assignment.replicas):
        left_in = state.former.epoch_of(broker_id)
        if left_in is None or broker_id in assignment.adding:
            continue
        broker = context.brokers[broker_id]
        if left_in in (broker.epoch, broker.info.whole_logs.get(partition)):
            return broker_id
    return None


class LastReplica:
    """Names former members in states, and finds who leads instead of a shorter log."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context
        self._enabled = term.settings.last_replica_defence

    async def remember(
        self,
        states: Mapping[TopicPartition, PartitionState],
        before: Mapping[TopicPartition, PartitionState],
    ) -> dict[TopicPartition, PartitionState]:
        """`states`, about to be written over `before`, with the former members beside them."""
        done = dict(states)
        if not self._enabled:
            return done
        named: dict[TopicPartition, Epochs] = {}
        falling: dict[TopicPartition, int] = {}
        for partition, state in states.items():
            old, new = before[partition], state.leader_and_isr
            epochs = former_after(self._context, partition, old, new)
            if not epochs:
                continue
            if old.former is not None and old.leader_and_isr.isr == new.isr:
                former = replace(old.former, epochs=epochs)
                done[partition] = replace(state, former=former)
            else:
                named[partition] = epochs
                falling[partition] = new.isr[0]
        for partition, min_isr in (await self._min_isrs(falling)).items():
            if min_isr.value > 1:
                former = FormerIsr(named[partition], min_isr.zxids)
                done[partition] = replace(done[partition], former=former)
        return done

    async def safer(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, int]:
        """Who is to lead where the one that is left in the ISR has lost records."""
        found: dict[TopicPartition, int] = {}
        if not self._enabled:
            return found
        for partition, state in states.items():
            broker_id = safer_member(self._context, partition, state)
            if broker_id is not None:
                found[partition] = broker_id
        alone = {partition: states[partition].leader_and_isr.isr[0] for partition in found}
        for partition, min_isr in (await self._min_isrs(alone)).items():
            former = states[partition].former
            if min_isr.value < 2 or former is None or min_isr.zxids != former.min_isr_zxids:
                del found[partition]
        return found

    async def _min_isrs(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, MinIsr]:
        """What holds for each partition on the broker that is left in its ISR.

        Settings that cannot be read count as 1.
        """
        if not partitions:
            return {}
        entities = dict.fromkeys(
            [
                _DEFAULTS,
                *(f"brokers/{broker_id}" for broker_id in partitions.values()),
                *(f"topics/{partition.topic}" for partition in partitions),
            ]
        )
        found = await configs.read_dated_configs(self._term.zk, list(entities))
        default = self._term.min_isr_default()
        answers: dict[TopicPartition, MinIsr] = {}
        for partition, broker_id in partitions.items():
            layers = [
                found.get(entity, ({}, NEVER))
                for entity in (f"topics/{partition.topic}", f"brokers/{broker_id}", _DEFAULTS)
            ]
            value = effective_min_isr([overrides for overrides, _ in layers], default)
            replicas = len(self._context.assignment(partition).replicas)
            answers[partition] = MinIsr(min(value, replicas), tuple(zxid for _, zxid in layers))
        return answers


def effective_min_isr(layers: Collection[dict[str, str] | CorruptZnode], default: int) -> int:
    """The first layer that says something; 1 where a layer cannot be read or says nonsense."""
    for overrides in layers:
        if isinstance(overrides, CorruptZnode):
            return 1
        text = overrides.get(MIN_ISR_KEY)
        if text is not None:
            text = text.strip()
            return int(text) if text.isascii() and text.isdigit() else 1
    return default
