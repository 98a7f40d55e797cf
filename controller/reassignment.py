"""Moving replicas between brokers: grow, catch up, shrink (KIP-455; reference: controller 12).

The topic node is the only durable record of a reassignment and is rewritten to the target last, so
that a new controller resumes from any point.  Many partitions go through each phase together.

- U: drop replicas that neither target nor origin has, write the assignment (both together).
- A: while the target is not in sync: raise the leader epoch, start the new replicas.
- B: once it is: move the leader if needed, remove the old replicas, write the target.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafkalike.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkalike.types import NO_LEADER, ReplicaAssignment, TopicPartition
from kafkalike.zk import admin, paths, topics
from kafkalike.zk.client import ANY_VERSION, Check
from kafkalike.zk.election import guarded_batch
from kafkalike.zk.znodes import CorruptZnode, PartitionState, TopicInfo

from .context import ControllerContext, Replica
from .events import ZkPartitionReassignment
from .leaders import ElectionStrategy
from .partitions import PartitionStateMachine, StateChangeFailed
from .replicas import ReplicaStateMachine, without_replica
from .status import ReplicaStatus
from .term import Term
from .topics import Rewrite, rewrite_topics

NO_REASSIGNMENT: Final = "No partition reassignment is in progress."

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
Errors = dict[TopicPartition, KafkaError | None]


def check_target(
    context: ControllerContext, partition: TopicPartition, target: tuple[int, ...]
) -> KafkaError | None:
    """Why an administrator's target replicas cannot be accepted, None when they can."""
    if not target:
        return InvalidReplicaAssignment("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        return InvalidReplicaAssignment(f"The replica list {list(target)} names a broker twice.")
    if any(broker_id < 0 for broker_id in target):
        return InvalidReplicaAssignment(f"The replica list {list(target)} has a negative id.")
    adding = context.assignment(partition).reassign_to(target).adding
    dead = [broker_id for broker_id in adding if broker_id not in context.live]
    if dead:
        return InvalidReplicaAssignment(
            f"The replica list {list(target)} adds brokers that are not alive: {dead}."
        )
    return None


def plan_assignment(
    context: ControllerContext, partition: TopicPartition, target: tuple[int, ...] | None
) -> ReplicaAssignment | None:
    """The assignment to work towards; `target` None cancels, which gives None without a move."""
    current = context.assignment(partition)
    if target is None:
        return current.reassign_to(current.origin) if current.is_reassigning else None
    return current.reassign_to(target)


def is_complete(context: ControllerContext, partition: TopicPartition, isr: Sequence[int]) -> bool:
    """Whether the old replicas may go: the target is in sync, or nothing is pending.

    One target replica must be online as well.  Kafka does not ask for that, and deletes the origin
    even when at that moment nobody of the target could lead.
    """
    assignment = context.assignment(partition)
    if not assignment.is_reassigning:
        return True
    in_sync = set(assignment.target) <= set(isr)
    return in_sync and bool(context.online_replicas(partition, assignment.target))


def loses_in_sync_copies(
    context: ControllerContext, partition: TopicPartition, after: ReplicaAssignment
) -> bool:
    """Whether the replicas that go at once, when a move is cancelled or replaced, are all that have
    the partition's records.  Kafka lets that happen, unless KRaft runs it; so it is refused."""
    stored = context.leadership.get(partition)
    if stored is None or set(context.assignment(partition).replicas) <= set(after.replicas):
        return False
    return set(after.replicas).isdisjoint(stored.leader_and_isr.isr)


class Reassigner:
    """All reassignments of a term."""

    def __init__(
        self,
        term: Term,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas

    # -- requests --------------------------------------------------------------------------------

    async def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """AlterPartitionReassignments: the latest request for a partition takes precedence."""
        targets: dict[TopicPartition, tuple[int, ...] | None] = {}
        for topic in request.topics:
            for wanted in topic.partitions:
                replicas = None if wanted.replicas is None else tuple(wanted.replicas)
                targets[TopicPartition(topic.name, wanted.partition_index)] = replicas
        errors: Errors = {}
        assignments: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in targets.items():
            error = None if target is None else check_target(self._context, partition, target)
            assignment = None if error else plan_assignment(self._context, partition, target)
            if assignment is not None:
                assignments[partition] = assignment
            else:
                errors[partition] = error or NoReassignmentInProgress(NO_REASSIGNMENT)
        await self._drop_zk_targets(lambda partition, _: partition in assignments)
        errors |= await self._trigger(assignments)
        return _alter_response(targets, errors)

    def list_ongoing(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """ListPartitionReassignments: those under way, of the partitions asked for or of all."""
        wanted: Iterable[TopicPartition] = list(self._context.reassigning)
        if request.topics is not None:
            wanted = dict.fromkeys(
                TopicPartition(topic.name, number)
                for topic in request.topics
                for number in topic.partition_indexes
            )
        grouped: dict[str, list[tuple[int, ReplicaAssignment]]] = {}
        for partition in wanted:
            assignment = self._context.assignment(partition)
            if partition in self._context.reassigning and assignment.is_reassigning:
                grouped.setdefault(partition.topic, []).append((partition.partition, assignment))
        Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        return ListPartitionReassignmentsResponse(
            error_message="",
            topics=[
                Topic(
                    name=topic,
                    partitions=[
                        Topic.OngoingPartitionReassignment(
                            partition_index=number,
                            replicas=list(assignment.replicas),
                            adding_replicas=list(assignment.adding),
                            removing_replicas=list(assignment.removing),
                        )
                        for number, assignment in of_topic
                    ],
                )
                for topic, of_topic in grouped.items()
            ],
        )

    async def zk_triggered(self) -> list[TopicPartition]:
        """`/admin/reassign_partitions` may be there; the partitions whose move was begun."""
        path = paths.REASSIGN_PARTITIONS
        try:
            wanted = await admin.read_reassignments(self._term.zk, self._term.watches.arm(path))
        except CorruptZnode as error:
            self._term.logger.error("reassignment request is removed: %s", error)
            await admin.delete_reassignments(self._term.zk, self._term.fence)
            self._term.enqueue(ZkPartitionReassignment())
            return []
        if wanted is None:
            return []
        assignments = {}
        for partition, target in wanted.items():
            current = self._context.assignment(partition)
            planned = current.reassign_to(target)
            # Our own rewriting of the node comes back as an event: what is under way goes on.
            if partition not in self._context.reassigning or planned != current:
                assignments[partition] = planned
        errors = await self._trigger(assignments)
        failed = {partition for partition, error in errors.items() if error is not None}
        if failed:
            self._term.logger.error(
                "reassignments refused %s", [f"{p}: {errors[p]}" for p in errors if p in failed]
            )
            await self._drop_zk_targets(lambda partition, _: partition in failed)
        return [partition for partition in errors if partition not in failed]

    async def drop_requests_of_deleted(self) -> None:
        """Topics are to be deleted: their entries in `/admin/reassign_partitions` mean nothing."""
        if self._context.to_delete:
            await self._drop_zk_targets(lambda tp, _: tp.topic in self._context.to_delete)

    async def start(self) -> None:
        """At failover: what ZooKeeper asks for, then what was under way."""
        begun = set(await self.zk_triggered())
        await self.resume(
            partition for partition in self._context.reassigning if partition not in begun
        )

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Take up reassignments where they stand."""
        assignments = {partition: self._context.assignment(partition) for partition in partitions}
        for partition, error in (await self._run(assignments)).items():
            if error is not None:
                self._term.logger.error(
                    "reassignment not resumed partition=%s error=%s", partition, error
                )

    async def resume_towards(self, broker_ids: Iterable[int]) -> None:
        """Brokers came back: go on with what targets them."""
        wanted = set(broker_ids)
        await self.resume(
            [
                partition
                for partition in self._context.reassigning
                if not wanted.isdisjoint(self._context.assignment(partition).target)
            ]
        )

    async def complete_caught_up(self, partitions: Iterable[TopicPartition]) -> None:
        """ISRs changed: finish those whose target is in sync now."""
        moving = [partition for partition in partitions if partition in self._context.reassigning]
        done, _ = await self._split_complete(moving)
        if done:
            await self.resume(done)

    # -- running ---------------------------------------------------------------------------------

    async def _trigger(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Errors:
        errors: Errors = {}
        runnable = {}
        for partition, assignment in assignments.items():
            if self._context.is_queued_for_deletion(partition.topic):
                errors[partition] = UnknownTopicOrPartition("The topic is being deleted.")
            elif not self._context.assignment(partition).replicas:
                errors[partition] = UnknownTopicOrPartition("The partition does not exist.")
            else:
                runnable[partition] = assignment
        return errors | await self._run(runnable)

    async def _run(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Errors:
        """Phases U, then A or B.  None per partition that was taken on, else why not."""
        if not assignments:
            return {}
        errors = await self._update_current(assignments)
        taken = [partition for partition in assignments if errors[partition] is None]
        complete, behind = await self._split_complete(taken)
        if behind:
            await self._grow(behind)
        if complete:
            await self._shrink(complete)
        return errors

    async def _update_current(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> Errors:
        """U: replicas that are in neither set go, then the topic nodes, then memory."""
        errors: Errors = dict.fromkeys(assignments)
        changed = {
            partition: assignment
            for partition, assignment in assignments.items()
            if self._context.assignment(partition) != assignment
        }
        for partition in list(changed):
            if loses_in_sync_copies(self._context, partition, changed[partition]):
                del changed[partition]
                errors[partition] = InvalidReplicaAssignment(
                    "The change would take away every replica that is in sync."
                )
        before = {partition: self._context.assignment(partition) for partition in changed}
        await self._remove_unneeded(before, changed)
        failed_topics = await self._write_assignments(changed)
        for partition, assignment in changed.items():
            failure = failed_topics.get(partition.topic)
            if failure is None:
                self._term.put_assignment(partition, assignment)
            else:
                self._term.put_assignment(partition, before[partition])
                errors[partition] = UnknownServerError(f"The topic was not written: {failure}")
        for partition, error in errors.items():
            if error is None:
                self._context.reassigning[partition] = None
        leaderless = [p for p in changed if self._context.leader(p) == NO_LEADER]
        await self._partitions.to_online(leaderless, ElectionStrategy.OFFLINE)
        return errors

    async def _remove_unneeded(
        self,
        before: Mapping[TopicPartition, ReplicaAssignment],
        after: Mapping[TopicPartition, ReplicaAssignment],
    ) -> None:
        """Replicas that an earlier move was adding and the new one does not want.

        They go before the topic is written: if this broker dies in between, its successor still
        finds the earlier move and adds them again.  Kafka writes first, and then nobody knows of
        copies that were not deleted in time.
        """
        unneeded: list[Replica] = []
        for partition, old in before.items():
            gone = [r for r in old.replicas if r not in after[partition].replicas]
            if gone:
                unneeded.extend(Replica(partition, broker_id) for broker_id in gone)
                kept = old
                for broker_id in gone:
                    kept = without_replica(kept, broker_id)
                self._term.put_assignment(partition, kept)
        if unneeded:
            # Nothing is written before brokers are told to delete: make sure of the office.
            await guarded_batch(self._term.zk, self._term.fence, [Check(paths.TOPICS, ANY_VERSION)])
            await self._remove(unneeded)

    async def _split_complete(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Those whose target is in sync in ZooKeeper at this moment, and those still behind."""
        pending = [tp for tp in partitions if self._context.assignment(tp).is_reassigning]
        states = await topics.read_partition_states(self._term.zk, pending) if pending else {}
        complete: list[TopicPartition] = []
        behind: list[TopicPartition] = []
        for partition in partitions:
            state = states.get(partition)
            isr = state.leader_and_isr.isr if isinstance(state, PartitionState) else ()
            done = is_complete(self._context, partition, isr)
            (complete if done else behind).append(partition)
        return complete, behind

    async def _grow(self, partitions: Sequence[TopicPartition]) -> None:
        """A: the leader learns of the new replicas, the new replicas of the leader."""
        await self._bump_and_tell(partitions)
        starting = [
            replica
            for partition in partitions
            for broker_id in self._context.assignment(partition).adding
            if self._context.replica_status(replica := Replica(partition, broker_id))
            is ReplicaStatus.NON_EXISTENT
        ]
        await self._replicas.move(starting, ReplicaStatus.NEW)

    async def _bump_and_tell(self, partitions: Sequence[TopicPartition]) -> None:
        """A new leader epoch, told to all replicas; new ones may be created anywhere."""
        if not partitions:
            return
        self._term.batch.begin()
        for partition, outcome in (await self._partitions.bump_epochs(partitions)).items():
            if isinstance(outcome, StateChangeFailed):
                self._term.state_change_logger.error(
                    "leader epoch not raised partition=%s reason=%s", partition, outcome
                )
                continue
            assignment = self._context.assignment(partition)
            self._term.batch.add_leader_and_isr(assignment.origin, partition, is_new=False)
            self._term.batch.add_leader_and_isr(assignment.adding, partition, is_new=True)
        await self._term.send()

    async def _shrink(self, partitions: Sequence[TopicPartition]) -> None:
        """B: hand over to the target replicas and forget the others."""
        before = {partition: self._context.assignment(partition) for partition in partitions}
        added = [Replica(tp, r) for tp, a in before.items() for r in a.adding]
        removed = [Replica(tp, r) for tp, a in before.items() for r in a.removing]
        await self._replicas.move(added, ReplicaStatus.ONLINE)
        for partition, assignment in before.items():
            self._term.put_assignment(partition, ReplicaAssignment(assignment.target))
        await self._move_leaders(partitions)
        await self._remove(removed)
        targets = {partition: self._context.assignment(partition) for partition in partitions}
        failed_topics = await self._write_assignments(targets)
        done = [partition for partition in partitions if partition.topic not in failed_topics]
        await self._drop_zk_targets(
            lambda partition, target: partition in targets and target == targets[partition].replicas
        )
        for partition in done:
            self._context.reassigning.pop(partition, None)
        await self._term.send_metadata(self._context.brokers, done)
        for topic, failure in failed_topics.items():
            self._term.logger.error("reassignment not recorded topic=%s: %s", topic, failure)
        self._term.logger.info("reassignments complete partitions=%s", [str(tp) for tp in done])

    async def _move_leaders(self, partitions: Sequence[TopicPartition]) -> None:
        staying = []
        electing = []
        for partition in partitions:
            leader = self._context.leader(partition)
            in_target = leader in self._context.assignment(partition).replicas
            if leader is not None and in_target and self._context.is_online(leader, partition):
                staying.append(partition)
            else:
                electing.append(partition)
        await self._partitions.to_online(electing, ElectionStrategy.REASSIGN)
        await self._bump_and_tell(staying)

    async def _remove(self, replicas: Sequence[Replica]) -> None:
        """Take replicas out of the ISR and delete them, without waiting for the brokers."""
        await self._replicas.move(replicas, ReplicaStatus.OFFLINE)
        stopped = [r for r in replicas if self._context.replica_status(r) is ReplicaStatus.OFFLINE]
        await self._replicas.move(stopped, ReplicaStatus.DELETION_STARTED)
        await self._replicas.move(stopped, ReplicaStatus.DELETION_SUCCESSFUL)
        await self._replicas.move(stopped, ReplicaStatus.NON_EXISTENT)
        for partition, broker_id in stopped:
            if broker_id not in self._context.brokers:
                self._context.strays.setdefault(broker_id, {})[partition] = None

    # -- ZooKeeper -------------------------------------------------------------------------------

    async def _write_assignments(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[str, object]:
        """Put assignments into their topic nodes; errors per topic.

        What the context knows of the topic's other partitions is written as well; partitions that
        a broker has added since are kept.
        """
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in assignments.items():
            of_topic = by_topic.setdefault(
                partition.topic, dict(self._context.topics.get(partition.topic, {}))
            )
            of_topic[partition.partition] = assignment
        results = await rewrite_topics(
            self._term, {topic: _overlay(of_topic) for topic, of_topic in by_topic.items()}
        )
        return {topic: r for topic, r in results.items() if not isinstance(r, TopicInfo)}

    async def _drop_zk_targets(
        self, drop: Callable[[TopicPartition, tuple[int, ...]], bool]
    ) -> None:
        """Take entries out of `/admin/reassign_partitions`; the node goes with the last one."""
        zk, fence = self._term.zk, self._term.fence
        try:
            wanted = await admin.read_reassignments(
                zk, self._term.watches.arm(paths.REASSIGN_PARTITIONS)
            )
        except CorruptZnode:
            return
        if wanted is None:
            return
        kept = {tp: target for tp, target in wanted.items() if not drop(tp, target)}
        if len(kept) == len(wanted):
            return
        await admin.set_reassignments(zk, fence, kept)
        if not kept:
            self._term.enqueue(ZkPartitionReassignment())


def _overlay(known: Mapping[int, ReplicaAssignment]) -> Rewrite:
    return lambda info: replace(info, partitions={**info.partitions, **known})


def _alter_response(targets: Targets, errors: Errors) -> AlterPartitionReassignmentsResponse:
    Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    grouped: dict[
        str,
        list[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse
        ],
    ] = {}
    for partition in targets:
        error = errors[partition]
        grouped.setdefault(partition.topic, []).append(
            Topic.ReassignablePartitionResponse(
                partition_index=partition.partition,
                error_code=error.code if error else 0,
                error_message=str(error) if error else None,
            )
        )
    return AlterPartitionReassignmentsResponse(
        error_message="",
        responses=[Topic(name=name, partitions=parts) for name, parts in grouped.items()],
    )
