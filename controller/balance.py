"""Leader elections on request and on a timer (KIP-460; reference: controller 13)."""

from collections.abc import Iterable
from typing import Final

from kafkalike.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopicException,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from kafkalike.types import NO_LEADER, TopicPartition
from kafkalike.zk import admin, paths
from kafkalike.zk.znodes import CorruptZnode

from .api import ElectionResult
from .context import ControllerContext
from .events import ZkPreferredElection
from .leaders import ElectionStrategy, elect_preferred
from .partitions import PartitionStateMachine, StateChangeFailed
from .term import Term

_PREFERRED_RULE: Final = "PreferredReplicaPartitionLeaderElectionStrategy"
_UNCLEAN_RULE: Final = "OfflinePartitionLeaderElectionStrategy(true)"


def refuse_election(
    context: ControllerContext, partition: TopicPartition, *, unclean: bool
) -> KafkaError | None:
    """Why no election is held for a partition, None when one is."""
    if not context.knows(partition):
        return UnknownTopicOrPartition("The partition does not exist.")
    if context.is_queued_for_deletion(partition.topic):
        return InvalidTopicException("The topic is being deleted.")
    leader = context.leader(partition)
    if unclean:
        fine = leader not in (None, NO_LEADER) and leader in context.live
    else:
        fine = leader in context.assignment(partition).replicas[:1]
    return ElectionNotNeeded("Leader election not needed for topic partition.") if fine else None


def plan_rebalance(context: ControllerContext, percentage: int) -> list[TopicPartition]:
    """Partitions to be given back to their preferred leaders.

    Only of brokers that should lead more than `percentage` % of their partitions and do not; only
    where the preferred leader is online and in the ISR.
    """
    by_preferred: dict[int, list[TopicPartition]] = {}
    for partition in context.partitions():
        replicas = context.assignment(partition).replicas
        if replicas and not context.is_queued_for_deletion(partition.topic):
            by_preferred.setdefault(replicas[0], []).append(partition)
    wanted: list[TopicPartition] = []
    for preferred, partitions in by_preferred.items():
        elsewhere = [tp for tp in partitions if context.leader(tp) not in (None, preferred)]
        if len(elsewhere) / len(partitions) > percentage / 100:
            wanted.extend(tp for tp in elsewhere if can_be_given_back(context, tp))
    return wanted


def can_be_given_back(context: ControllerContext, partition: TopicPartition) -> bool:
    state = context.leadership[partition].leader_and_isr
    return elect_preferred(context, partition, state).proposal is not None


def imbalance_count(context: ControllerContext) -> int:
    """Partitions that are led by another than their preferred replica."""
    return sum(
        context.leader(partition) not in context.assignment(partition).replicas[:1]
        for partition in context.partitions()
        if not context.is_queued_for_deletion(partition.topic)
    )


class LeaderBalancer:
    """Holds elections that nobody's failure made necessary."""

    def __init__(self, term: Term, partitions: PartitionStateMachine) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions

    async def elect(
        self, wanted: Iterable[TopicPartition], *, unclean: bool
    ) -> dict[TopicPartition, ElectionResult]:
        """ElectLeaders: a result for every partition asked for."""
        results: dict[TopicPartition, ElectionResult] = {}
        electable = []
        for partition in dict.fromkeys(wanted):
            error = refuse_election(self._context, partition, unclean=unclean)
            if error is None:
                electable.append(partition)
            else:
                results[partition] = ElectionResult(error=error)
        strategy = ElectionStrategy.OFFLINE_UNCLEAN if unclean else ElectionStrategy.PREFERRED
        outcomes = await self._partitions.to_online(electable, strategy)
        for partition in electable:
            outcome = outcomes.get(partition)
            if outcome is None or isinstance(outcome, StateChangeFailed):
                # As the original words it; the reason is in the log.
                rule = _UNCLEAN_RULE if unclean else _PREFERRED_RULE
                message = f"Failed to elect leader for partition {partition} under strategy {rule}"
                results[partition] = ElectionResult(
                    error=EligibleLeadersNotAvailable(message)
                    if unclean
                    else PreferredLeaderNotAvailable(message)
                )
            else:
                results[partition] = ElectionResult(leader=outcome.leader_and_isr.leader)
        return results

    async def zk_triggered(self) -> None:
        """`/admin/preferred_replica_election` may be there: always preferred elections."""
        zk, path = self._term.zk, paths.PREFERRED_REPLICA_ELECTION
        try:
            wanted = await admin.read_preferred_election(zk, self._term.watches.arm(path))
        except CorruptZnode as error:
            self._term.logger.error("election request is removed: %s", error)
            wanted = ()
        if wanted is None:
            return
        for partition, result in (await self.elect(wanted, unclean=False)).items():
            if result.error is not None and not isinstance(result.error, ElectionNotNeeded):
                self._term.logger.error(
                    "preferred leader not elected partition=%s: %s", partition, result.error
                )
        await admin.delete_preferred_election(zk, self._term.fence)
        # A request made before the deletion was not told by a watch: look once more.
        self._term.enqueue(ZkPreferredElection())

    async def rebalance(self) -> None:
        """The timer: give leadership back where too much of it is elsewhere."""
        percentage = self._term.settings.leader_imbalance_per_broker_percentage
        wanted = plan_rebalance(self._context, percentage)
        if wanted:
            self._term.logger.info("rebalancing leaders partitions=%d", len(wanted))
            await self._partitions.to_online(wanted, ElectionStrategy.PREFERRED)
