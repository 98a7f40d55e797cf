"""The replica state machine (reference: controller 6): starting, stopping and deleting copies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafkalike.types import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import topics
from kafkalike.zk.znodes import CorruptZnode, PartitionState

from .context import Replica
from .partitions import (
    Conflicts,
    Outcomes,
    PartitionStateMachine,
    StateChangeFailed,
    StateMissing,
    in_rounds,
)
from .status import REPLICA_PREDECESSORS, ReplicaStatus
from .term import CHUNK, Term, chunks


def plan_isr_removal(state: LeaderAndIsr, broker_id: int) -> LeaderAndIsr | None:
    """The state after a replica went offline; None when it is not in the ISR and nothing changes.

    The last member of an ISR stays in it: it is the only one known to have every record.
    """
    if broker_id not in state.isr:
        return None
    leader = NO_LEADER if state.leader == broker_id else state.leader
    isr = state.isr
    if len(isr) > 1:
        isr = tuple(member for member in isr if member != broker_id)
    return state.with_leader(leader, isr)


def without_replica(assignment: ReplicaAssignment, broker_id: int) -> ReplicaAssignment:
    """The assignment after a replica has ceased to exist."""
    return ReplicaAssignment(
        tuple(r for r in assignment.replicas if r != broker_id),
        tuple(r for r in assignment.adding if r != broker_id),
        tuple(r for r in assignment.removing if r != broker_id),
    )


class ReplicaStateMachine:
    """Moves replicas from state to state, many at a time.  One call is one batch of requests."""

    def __init__(self, term: Term, partitions: PartitionStateMachine) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions

    async def start(self) -> None:
        """First states: online where the broker is alive; the others may not be deleted now.

        Then every broker hears of all its replicas, and offline ones leave their ISRs.
        """
        online: list[Replica] = []
        offline: list[Replica] = []
        breaths = 0
        for partition in list(self._context.partitions()):
            for broker_id in self._context.assignment(partition).replicas:
                replica = Replica(partition, broker_id)
                if self._context.is_online(broker_id, partition):
                    online.append(replica)
                    self._term.put_replica_status(replica, ReplicaStatus.ONLINE)
                else:
                    offline.append(replica)
                    self._term.put_replica_status(replica, ReplicaStatus.DELETION_INELIGIBLE)
            if len(online) // CHUNK > breaths:
                breaths += 1
                await self._term.breathe()
        await self.move(online, ReplicaStatus.ONLINE)
        await self.move(offline, ReplicaStatus.OFFLINE)

    async def move(self, replicas: Iterable[Replica], target: ReplicaStatus) -> None:
        """Bring replicas into a state; those for which that is illegal are logged and skipped."""
        by_broker: dict[int, list[Replica]] = {}
        for replica in self._legal(replicas, target):
            by_broker.setdefault(replica.broker_id, []).append(replica)
        if not by_broker:
            return
        self._term.batch.begin()
        for broker_id, of_broker in by_broker.items():
            if len(of_broker) > CHUNK:
                await self._term.breathe()
            match target:
                case ReplicaStatus.NEW:
                    self._to_new(of_broker)
                case ReplicaStatus.ONLINE:
                    self._to_online(of_broker)
                case ReplicaStatus.OFFLINE:
                    await self._to_offline(broker_id, of_broker)
                case ReplicaStatus.DELETION_STARTED:
                    self._to_deletion_started(of_broker)
                case ReplicaStatus.NON_EXISTENT:
                    self._to_non_existent(of_broker)
                case ReplicaStatus.DELETION_SUCCESSFUL | ReplicaStatus.DELETION_INELIGIBLE:
                    for replica in of_broker:
                        self._term.put_replica_status(replica, target)
        await self._term.send()

    def _legal(self, replicas: Iterable[Replica], target: ReplicaStatus) -> list[Replica]:
        allowed = REPLICA_PREDECESSORS[target]
        legal = []
        for replica in replicas:
            status = self._context.replica_status(replica)
            if status in allowed:
                legal.append(replica)
            else:
                self._term.state_change_logger.error(
                    "illegal replica state change skipped replica=%d partition=%s from=%s to=%s"
                    " cause=%s",
                    replica.broker_id,
                    replica.partition,
                    status.name,
                    target.name,
                    self._term.cause,
                )
        return legal

    def _to_new(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            leader = self._context.leader(replica.partition)
            if leader == replica.broker_id:
                self._term.state_change_logger.error(
                    "a leader cannot be a new replica replica=%d partition=%s",
                    replica.broker_id,
                    replica.partition,
                )
                continue
            if leader is not None:
                self._term.batch.add_leader_and_isr(
                    (replica.broker_id,), replica.partition, is_new=True
                )
            self._term.put_replica_status(replica, ReplicaStatus.NEW)

    def _to_online(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            partition, broker_id = replica
            if self._context.replica_status(replica) is ReplicaStatus.NEW:
                assignment = self._context.assignment(partition)
                if broker_id not in assignment.replicas:
                    self._term.put_assignment(
                        partition,
                        replace(assignment, replicas=(*assignment.replicas, broker_id)),
                    )
            elif partition in self._context.leadership:
                self._term.batch.add_leader_and_isr((broker_id,), partition, is_new=False)
            self._term.put_replica_status(replica, ReplicaStatus.ONLINE)

    async def _to_offline(self, broker_id: int, replicas: Sequence[Replica]) -> None:
        leading: list[TopicPartition] = []
        for replica in replicas:
            self._term.batch.add_stop_replica((broker_id,), replica.partition, delete=False)
            if replica.partition in self._context.leadership:
                leading.append(replica.partition)
            else:
                self._term.put_replica_status(replica, ReplicaStatus.OFFLINE)
                self._term.batch.add_update_metadata(self._context.brokers, (replica.partition,))
        for partition, outcome in (await self._remove_from_isr(broker_id, leading)).items():
            deleting = self._context.is_queued_for_deletion(partition.topic)
            if isinstance(outcome, StateChangeFailed) and not (
                deleting and isinstance(outcome, StateMissing)
            ):
                self._term.state_change_logger.error(
                    "replica not taken offline replica=%d partition=%s cause=%s reason=%s",
                    broker_id,
                    partition,
                    self._term.cause,
                    outcome,
                )
                continue
            if not deleting:
                others = [r for r in self._context.assignment(partition).replicas if r != broker_id]
                self._term.batch.add_leader_and_isr(others, partition, is_new=False)
            self._term.put_replica_status(Replica(partition, broker_id), ReplicaStatus.OFFLINE)

    async def _remove_from_isr(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> Outcomes:
        """Take a broker out of ISRs; the state now, changed or not, is in the cache afterwards."""

        async def remove(chunk: Sequence[TopicPartition], outcomes: Outcomes) -> Conflicts:
            stored = await self._partitions.read_own_states(chunk, outcomes)
            writes: dict[TopicPartition, PartitionState] = {}
            settled: dict[TopicPartition, PartitionState] = {}
            for partition, state in stored.items():
                proposal = plan_isr_removal(state.leader_and_isr, broker_id)
                if proposal is None:
                    settled[partition] = replace(state, controller_epoch=self._term.epoch)
                else:
                    writes[partition] = PartitionState(proposal, self._term.epoch)
            conflicts, written = await self._partitions.write_states(writes, outcomes, stored)
            for partition, state in (settled | written).items():
                self._term.put_leadership(partition, state)
                outcomes[partition] = state
            return conflicts

        return await in_rounds(partitions, remove)

    def _to_deletion_started(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            self._term.put_replica_status(replica, ReplicaStatus.DELETION_STARTED)
            self._term.batch.add_stop_replica((replica.broker_id,), replica.partition, delete=True)

    def _to_non_existent(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            assignment = self._context.assignment(replica.partition)
            self._term.put_assignment(
                replica.partition, without_replica(assignment, replica.broker_id)
            )
            self._term.put_replica_status(replica, ReplicaStatus.NON_EXISTENT)


async def refresh_leadership(term: Term, partitions: Sequence[TopicPartition]) -> None:
    """Read stored states into the cache; what cannot be read is logged and left as it was."""
    for chunk in chunks(partitions):
        for partition, state in (await topics.read_partition_states(term.zk, chunk)).items():
            if isinstance(state, CorruptZnode):
                term.logger.error(
                    "partition state cannot be read partition=%s: %s", partition, state
                )
            else:
                term.put_leadership(partition, state)
