"""AlterPartition: accepts or fences the ISR proposals of leaders (KIP-497, KIP-841; reference:
controller 14).  Also the notification nodes by which older brokers tell ISR changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafkalike.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    OperationNotAttempted,
    StaleBrokerEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import AlterPartitionRequest, AlterPartitionResponse
from kafkalike.types import RECOVERED, RECOVERING, LeaderAndIsr, TopicPartition
from kafkalike.zk import admin, paths, topics
from kafkalike.zk.client import BadVersion, ZkError
from kafkalike.zk.znodes import PartitionState

from .context import ControllerContext
from .events import RepairLeadership
from .partitions import PartitionStateMachine, StateChangeFailed
from .reassignment import Reassigner
from .replicas import refresh_leadership
from .term import Term, chunks

TOPIC_ID_VERSION: Final = 2
ISR_WITH_EPOCHS_VERSION: Final = 3


@dataclass(slots=True, frozen=True)
class Proposal:
    """What a leader asks for one partition; `state.leader` is the broker that asks."""

    partition: TopicPartition
    state: LeaderAndIsr
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The lives of members that the leader counts on, where it says so (KIP-903)."""


@dataclass(slots=True, frozen=True)
class Accepted:
    """To be written."""

    state: LeaderAndIsr


@dataclass(slots=True, frozen=True)
class AlreadyDone:
    """The stored state is what was asked for: the answer to an earlier try was lost."""

    state: LeaderAndIsr


Judgement = Accepted | AlreadyDone | KafkaError


def judge(context: ControllerContext, proposal: Proposal, version: int) -> Judgement:
    """The first rule that fits decides.  `version` is that of the request."""
    stored = context.leadership.get(proposal.partition)
    if stored is None:
        return UnknownTopicOrPartition()
    current, new = stored.leader_and_isr, proposal.state
    if new.partition_epoch > current.partition_epoch or new.leader_epoch > current.leader_epoch:
        # The leader knows of changes that this controller does not: it has been replaced.
        return NotController()
    if new.leader_epoch < current.leader_epoch:
        return FencedLeaderEpoch()
    if _same_but_for_partition_epoch(new, current):
        return AlreadyDone(current)
    if new.partition_epoch < current.partition_epoch:
        return InvalidUpdateVersion()
    if new.leader != current.leader:
        return InvalidRequest(
            f"broker {new.leader} is not the leader of {proposal.partition}, "
            f"broker {current.leader} is"
        )
    if new.leader not in new.isr:
        # Kafka stores it, and what the leader acknowledges is then on nobody who may be elected.
        return InvalidRequest(f"the leader, broker {new.leader}, is not in the ISR {new.isr}")
    if new.recovery_state == RECOVERING and len(new.isr) > 1:
        return InvalidRequest("a partition that is recovering has an ISR of one")
    if current.recovery_state == RECOVERED and new.recovery_state == RECOVERING:
        return InvalidRequest("a recovered partition cannot go back to recovering")
    live = context.live
    ineligible = [broker_id for broker_id in new.isr if broker_id not in live]
    # Kafka does not look at the assignment here; a stray member would count as a copy (KAFKA-9672).
    replicas = context.assignment(proposal.partition).replicas
    ineligible += [b for b in new.isr if b not in replicas and b not in current.isr]
    # What a broker had before it restarted it may have lost since: the leader must see it fetch in
    # its present life first.  Kafka checks this in KRaft only.
    ineligible += [
        b
        for b, epoch in proposal.epochs.items()
        if b not in current.isr and epoch != context.broker_epoch(b)
    ]
    if ineligible:
        message = (
            f"brokers {ineligible} are not alive, are shutting down, hold no replica, or have"
            " restarted"
        )
        if version >= TOPIC_ID_VERSION:
            return IneligibleReplica(message)
        return OperationNotAttempted(message)
    return Accepted(new)


def _same_but_for_partition_epoch(new: LeaderAndIsr, current: LeaderAndIsr) -> bool:
    return (
        new.leader == current.leader
        and new.leader_epoch == current.leader_epoch
        and new.isr == current.isr
        and new.recovery_state == current.recovery_state
        and new.partition_epoch <= current.partition_epoch
    )


Results = dict[TopicPartition, LeaderAndIsr | KafkaError]


class IsrKeeper:
    """Judges and stores ISR changes."""

    def __init__(
        self, term: Term, partitions: PartitionStateMachine, reassigner: Reassigner
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._reassigner = reassigner

    async def alter(
        self,
        request: AlterPartitionRequest,
        version: int,
        answer: Callable[[AlterPartitionResponse], None],
    ) -> None:
        """AlterPartition.  Answers before it looks whether a reassignment is complete now.

        Raises StaleBrokerEpoch for the whole request.
        """
        if (
            request.broker_id not in self._context.brokers
            or self._context.broker_epoch(request.broker_id) != request.broker_epoch
        ):
            raise StaleBrokerEpoch(f"broker {request.broker_id} has another epoch")
        proposals = _proposals(request, version, self._context.topic_names)
        results: Results = {}
        writes: dict[TopicPartition, PartitionState] = {}
        for proposal in proposals:
            judgement = judge(self._context, proposal, version)
            if isinstance(judgement, Accepted):
                writes[proposal.partition] = PartitionState(judgement.state, self._term.epoch)
            elif isinstance(judgement, AlreadyDone):
                results[proposal.partition] = judgement.state
            else:
                results[proposal.partition] = judgement
        conflicts = await self._write(writes, results)
        await self._term.send_metadata(self._context.brokers, [p.partition for p in proposals])
        answer(_response(request, version, self._context.topic_names, results))
        if conflicts:
            await refresh_leadership(self._term, conflicts)
            self._term.enqueue(RepairLeadership(tuple(conflicts)))
        await self._reassigner.complete_caught_up(
            partition for partition, result in results.items() if isinstance(result, LeaderAndIsr)
        )

    async def _write(
        self, writes: dict[TopicPartition, PartitionState], results: Results
    ) -> list[TopicPartition]:
        """Store accepted states; those whose stored state was not the cached one."""
        conflicts: list[TopicPartition] = []
        outcomes: dict[TopicPartition, LeaderAndIsr | ZkError] = {}
        for chunk in chunks(list(writes)):
            part = await self._partitions.with_former(
                {partition: writes[partition] for partition in chunk}, self._context.leadership
            )
            writes |= part
            outcomes |= await topics.set_partition_states(self._term.zk, self._term.fence, part)
        for partition, outcome in outcomes.items():
            if isinstance(outcome, BadVersion):
                conflicts.append(partition)
                results[partition] = InvalidUpdateVersion()
            elif isinstance(outcome, ZkError):
                results[partition] = UnknownServerError(f"the state was not written: {outcome}")
            else:
                written = replace(writes[partition], leader_and_isr=outcome)
                self._term.put_leadership(partition, written)
                results[partition] = outcome
                self._term.state_change_logger.info(
                    "isr changed partition=%s isr=%s leader=%d epoch=%d partition_epoch=%d",
                    partition,
                    list(outcome.isr),
                    outcome.leader,
                    outcome.leader_epoch,
                    outcome.partition_epoch,
                )
        return conflicts

    async def repair(self, partitions: Sequence[TopicPartition]) -> None:
        """Publish states that the cache did not know, under a new leader epoch.

        A leader that was told INVALID_UPDATE_VERSION waits for a newer LeaderAndIsr; Kafka sends
        none until something else happens to the partition (reference: controller 18).
        """
        known = [p for p in partitions if p in self._context.leadership]
        if not known:
            return
        self._term.batch.begin()
        for partition, outcome in (await self._partitions.bump_epochs(known)).items():
            if not isinstance(outcome, StateChangeFailed):
                replicas = self._context.assignment(partition).replicas
                self._term.batch.add_leader_and_isr(replicas, partition, is_new=False)
        await self._term.send()

    async def notifications(self) -> None:
        """`/isr_change_notification`: old leaders have written states themselves."""
        watch = self._term.watches.arm(paths.ISR_CHANGE_NOTIFICATION)
        names, changed = await admin.read_isr_changes(self._term.zk, watch)
        partitions = [partition for partition in changed if self._context.knows(partition)]
        if partitions:
            await refresh_leadership(self._term, partitions)
            await self._term.send_metadata(self._context.brokers, partitions)
            await self._reassigner.complete_caught_up(partitions)
        await admin.delete_isr_changes(self._term.zk, self._term.fence, names)


def _proposals(
    request: AlterPartitionRequest, version: int, topic_names: dict[bytes, str]
) -> list[Proposal]:
    """The request's partitions by name; those of unknown topic ids are answered elsewhere."""
    proposals = []
    for topic in request.topics:
        name = topic.topic_name
        if version >= TOPIC_ID_VERSION:
            known = topic_names.get(topic.topic_id)
            if known is None:
                continue
            name = known
        for wanted in topic.partitions:
            isr = tuple(wanted.new_isr)
            epochs: dict[int, int] = {}
            if version >= ISR_WITH_EPOCHS_VERSION:
                members = wanted.new_isr_with_epochs
                isr = tuple(member.broker_id for member in members)
                epochs = {m.broker_id: m.broker_epoch for m in members if m.broker_epoch >= 0}
            state = LeaderAndIsr(
                request.broker_id,
                wanted.leader_epoch,
                isr,
                wanted.leader_recovery_state,
                wanted.partition_epoch,
            )
            partition = TopicPartition(name, wanted.partition_index)
            proposals.append(Proposal(partition, state, epochs))
    return proposals


def _response(
    request: AlterPartitionRequest,
    version: int,
    topic_names: dict[bytes, str],
    results: Results,
) -> AlterPartitionResponse:
    """Answers in the order of the request, topics named as they were asked for."""
    by_id = version >= TOPIC_ID_VERSION
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponse.TopicData(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _answer(
                        wanted.partition_index,
                        results.get(
                            TopicPartition(
                                topic_names.get(topic.topic_id, "") if by_id else topic.topic_name,
                                wanted.partition_index,
                            ),
                            UnknownTopicId(),
                        ),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    number: int, result: LeaderAndIsr | KafkaError
) -> AlterPartitionResponse.TopicData.PartitionData:
    Partition = AlterPartitionResponse.TopicData.PartitionData
    if isinstance(result, KafkaError):
        return Partition(partition_index=number, error_code=result.code)
    return Partition(
        partition_index=number,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=result.recovery_state,
        partition_epoch=result.partition_epoch,
    )
