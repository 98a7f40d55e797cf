"""The partition state machine (reference: controller 5, 7): first leaders and elections.

`plan_first_state` and `leaders.elect` decide; `PartitionStateMachine` reads what they need, writes
what they decide and tells the brokers.  One call is one batch of requests.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafkalike.types import LeaderAndIsr, TopicPartition
from kafkalike.zk import configs, topics
from kafkalike.zk.client import BadVersion, NodeExists, ZkError
from kafkalike.zk.znodes import CorruptZnode, PartitionState

from . import journal
from .context import ControllerContext
from .last_replica import LastReplica, is_short
from .leaders import Election, ElectionStrategy, elect, needs_unclean
from .status import PARTITION_PREDECESSORS, PartitionStatus
from .term import Term, chunks

MAX_WRITE_ROUNDS: Final = 20
"""How often a state is read and written anew when somebody else keeps changing it."""

UNCLEAN_KEY: Final = "unclean.leader.election.enable"


class StateChangeFailed(Exception):
    """A partition could not be brought into the state wanted; nothing was changed for it."""


class StateMissing(StateChangeFailed):
    """A partition has no stored state, or one that cannot be read."""


Outcome = PartitionState | StateChangeFailed
Outcomes = dict[TopicPartition, Outcome]
Conflicts = list[TopicPartition]


def plan_first_state(context: ControllerContext, partition: TopicPartition) -> LeaderAndIsr | None:
    """The state of a partition that never had one: led by the first replica online, all online
    replicas in sync.  None when no replica is online."""
    online = context.online_replicas(partition, context.assignment(partition).replicas)
    return LeaderAndIsr(online[0], 0, online) if online else None


class PartitionStateMachine:
    """Moves partitions from state to state, many at a time."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context
        self._last_replica = LastReplica(term)

    def start(self) -> None:
        """Give every known partition the state that its stored leadership implies."""
        for partition in self._context.partitions():
            leader = self._context.leader(partition)
            if leader is None:
                status = PartitionStatus.NEW
            elif self._is_led(leader, partition):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            self._term.put_partition_status(partition, status)

    def _is_led(self, leader: int, partition: TopicPartition) -> bool:
        """A leader that restarted while there was no controller, and lost records over it, has not
        been elected in its present life: it must be, like any other that was gone."""
        state = self._context.leadership[partition]
        return self._context.is_online(leader, partition) and not (
            self._term.settings.last_replica_defence and is_short(self._context, partition, state)
        )

    async def trigger_online(self, topic: str | None = None) -> Outcomes:
        """Try to find leaders for all partitions (of one topic) that have none."""
        waiting = [
            partition
            for partition, status in self._context.partition_statuses.items()
            if status in (PartitionStatus.OFFLINE, PartitionStatus.NEW)
            and not self._context.is_queued_for_deletion(partition.topic)
            and topic in (None, partition.topic)
        ]
        return await self.to_online(waiting, ElectionStrategy.OFFLINE)

    def to_new(self, partitions: Sequence[TopicPartition]) -> None:
        self._mark(partitions, PartitionStatus.NEW)

    def to_offline(self, partitions: Sequence[TopicPartition]) -> None:
        self._mark(partitions, PartitionStatus.OFFLINE)

    def to_non_existent(self, partitions: Sequence[TopicPartition]) -> None:
        self._mark(partitions, PartitionStatus.NON_EXISTENT)

    async def to_online(
        self, partitions: Sequence[TopicPartition], strategy: ElectionStrategy
    ) -> Outcomes:
        """Give new partitions their first leader and elect one for the others.

        The outcome per partition that could legally go online.
        """
        legal = self._legal(partitions, PartitionStatus.ONLINE)
        if not legal:
            return {}
        self._term.batch.begin()
        status = self._context.partition_status
        fresh = [tp for tp in legal if status(tp) is PartitionStatus.NEW]
        known = [tp for tp in legal if status(tp) is not PartitionStatus.NEW]
        outcomes = await self._initialise(fresh) if fresh else {}
        if known:
            outcomes |= await self._elect(known, strategy)
        for partition, outcome in outcomes.items():
            if not isinstance(outcome, StateChangeFailed):
                self._term.put_partition_status(partition, PartitionStatus.ONLINE)
        self._report_failures(outcomes)
        await self._term.send()
        return outcomes

    # -- helpers ---------------------------------------------------------------------------------

    def _legal(
        self, partitions: Sequence[TopicPartition], target: PartitionStatus
    ) -> list[TopicPartition]:
        allowed = PARTITION_PREDECESSORS[target]
        legal = []
        for partition in partitions:
            if self._context.partition_status(partition) in allowed:
                legal.append(partition)
            else:
                self._term.state_change_logger.error(
                    "illegal partition state change skipped partition=%s from=%s to=%s cause=%s",
                    partition,
                    self._context.partition_status(partition).name,
                    target.name,
                    self._term.cause,
                )
        return legal

    def _report_failures(self, outcomes: Outcomes) -> None:
        failed = [(p, o) for p, o in outcomes.items() if isinstance(o, StateChangeFailed)]
        for partition, reason in failed:
            self._term.state_change_logger.debug(
                "no leader partition=%s cause=%s reason=%s", partition, self._term.cause, reason
            )
        if failed:
            partition, reason = failed[0]
            self._term.state_change_logger.error(
                "partitions got no leader count=%d cause=%s first=%s reason=%s",
                len(failed),
                self._term.cause,
                partition,
                reason,
            )

    def _mark(self, partitions: Sequence[TopicPartition], target: PartitionStatus) -> None:
        for partition in self._legal(partitions, target):
            self._term.put_partition_status(partition, target)

    # -- first states ----------------------------------------------------------------------------

    async def _initialise(self, partitions: Sequence[TopicPartition]) -> Outcomes:
        outcomes: Outcomes = {}
        wanted: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            first = plan_first_state(self._context, partition)
            if first is None:
                outcomes[partition] = StateChangeFailed("no replica is online")
            else:
                wanted[partition] = PartitionState(first, self._term.epoch)
        existing = []
        for chunk in chunks(list(wanted)):
            part = {partition: wanted[partition] for partition in chunk}
            created = await topics.create_partition_states(self._term.zk, self._term.fence, part)
            for partition, result in created.items():
                if isinstance(result, NodeExists):
                    existing.append(partition)
                elif isinstance(result, ZkError):
                    outcomes[partition] = StateChangeFailed(f"state not created: {result}")
                else:
                    outcomes[partition] = self._begin_leading(partition, result)
        if existing:
            outcomes |= await self._adopt(existing, wanted)
        return outcomes

    def _begin_leading(self, partition: TopicPartition, first: LeaderAndIsr) -> PartitionState:
        state = PartitionState(first, self._term.epoch)
        self._term.put_leadership(partition, state)
        self._term.batch.add_leader_and_isr(first.isr, partition, is_new=True)
        self._term.counters.leader_elections += 1
        return state

    async def _adopt(
        self,
        partitions: Sequence[TopicPartition],
        wanted: dict[TopicPartition, PartitionState],
    ) -> Outcomes:
        """States that were there already: our own creation whose answer was lost, or a leftover.

        Kafka leaves such partitions without a leader until the next failover (reference:
        controller 18, "known gaps"); here the stored state is taken over and a leader elected.
        """
        outcomes: Outcomes = {}
        found = await topics.read_partition_states(self._term.zk, partitions)
        leftover = []
        for partition in partitions:
            state = found.get(partition)
            if state == wanted[partition]:
                outcomes[partition] = self._begin_leading(
                    partition, wanted[partition].leader_and_isr
                )
            elif isinstance(state, PartitionState):
                leftover.append(partition)
            else:
                outcomes[partition] = StateChangeFailed(f"state cannot be read: {state}")
        if leftover:
            outcomes |= await self._elect(leftover, ElectionStrategy.OFFLINE)
        return outcomes

    # -- elections -------------------------------------------------------------------------------

    async def _elect(
        self, partitions: Sequence[TopicPartition], strategy: ElectionStrategy
    ) -> Outcomes:
        """Read states, elect, write; again for those that somebody else changed in between."""

        async def elect_once(chunk: Sequence[TopicPartition], outcomes: Outcomes) -> Conflicts:
            return await self._elect_once(chunk, strategy, outcomes)

        return await in_rounds(partitions, elect_once)

    async def _elect_once(
        self,
        partitions: Sequence[TopicPartition],
        strategy: ElectionStrategy,
        outcomes: Outcomes,
    ) -> Conflicts:
        stored = await self.read_own_states(partitions, outcomes)
        unclean_allowed = await self._unclean_allowed(stored, strategy)
        safer = await self._safer(stored, strategy)
        elections: dict[TopicPartition, Election] = {}
        writes: dict[TopicPartition, PartitionState] = {}
        for partition, state in stored.items():
            election = elect(
                strategy,
                self._context,
                partition,
                state.leader_and_isr,
                unclean_allowed=unclean_allowed.get(partition.topic, False),
                safer=safer.get(partition),
            )
            if election.proposal is None:
                outcomes[partition] = StateChangeFailed(
                    f"no replica can lead strategy={strategy.value} isr="
                    f"{list(state.leader_and_isr.isr)} online={list(election.recipients)}"
                )
            else:
                elections[partition] = election
                writes[partition] = PartitionState(election.proposal, self._term.epoch)
        conflicts, written = await self.write_states(writes, outcomes, stored)
        for partition, new in written.items():
            self._apply_election(partition, new, elections[partition], strategy)
            outcomes[partition] = new
        return conflicts

    def _apply_election(
        self,
        partition: TopicPartition,
        state: PartitionState,
        election: Election,
        strategy: ElectionStrategy,
    ) -> None:
        new = state.leader_and_isr
        if election.instead_of is not None:
            self._term.note(
                journal.LastReplicaPassedOver(
                    self._term.cause, self._term.epoch, partition, new.leader, election.instead_of
                )
            )
            self._term.state_change_logger.warning(
                "former member of the ISR elected: the log of the last one is shorter than it was"
                " partition=%s leader=%d epoch=%d instead_of=%d",
                partition,
                new.leader,
                new.leader_epoch,
                election.instead_of,
            )
        self._term.put_leadership(partition, state, unclean=election.unclean)
        self._term.batch.add_leader_and_isr(election.recipients, partition, is_new=False)
        self._term.counters.leader_elections += 1
        if election.unclean:
            self._term.counters.unclean_elections += 1
            self._term.state_change_logger.warning(
                "unclean leader election: records may be lost partition=%s leader=%d epoch=%d",
                partition,
                new.leader,
                new.leader_epoch,
            )
        self._term.state_change_logger.info(
            "leader elected partition=%s leader=%d epoch=%d isr=%s strategy=%s cause=%s",
            partition,
            new.leader,
            new.leader_epoch,
            list(new.isr),
            strategy.value,
            self._term.cause,
        )

    async def _safer(
        self, stored: dict[TopicPartition, PartitionState], strategy: ElectionStrategy
    ) -> dict[TopicPartition, int]:
        if strategy not in (ElectionStrategy.OFFLINE, ElectionStrategy.OFFLINE_UNCLEAN):
            return {}
        return await self._last_replica.safer(stored)

    async def _unclean_allowed(
        self, stored: dict[TopicPartition, PartitionState], strategy: ElectionStrategy
    ) -> dict[str, bool]:
        """Per topic that would need it, whether its configuration of this moment allows an unclean
        election.  A configuration that cannot be read allows none."""
        if strategy is not ElectionStrategy.OFFLINE:
            return {}
        names = list(
            dict.fromkeys(
                partition.topic
                for partition, state in stored.items()
                if needs_unclean(self._context, partition, state.leader_and_isr.isr)
            )
        )
        if not names:
            return {}
        entities = [f"topics/{name}" for name in names]
        found = await configs.read_configs(self._term.zk, entities)
        default = self._term.unclean_default()
        return {
            name: allows_unclean(found.get(entity, {}), default)
            for name, entity in zip(names, entities, strict=True)
        }

    # -- shared with the replica state machine and reassignment ----------------------------------

    async def read_own_states(
        self, partitions: Sequence[TopicPartition], outcomes: Outcomes
    ) -> dict[TopicPartition, PartitionState]:
        """Stored states that this controller may change; what is wrong with others goes into
        `outcomes`."""
        if not partitions:
            return {}
        found = await topics.read_partition_states(self._term.zk, partitions)
        usable = {}
        for partition in partitions:
            state = found.get(partition)
            if state is None:
                outcomes[partition] = StateMissing("it has no stored state")
            elif isinstance(state, CorruptZnode):
                outcomes[partition] = StateMissing(str(state))
            elif state.controller_epoch > self._term.epoch:
                outcomes[partition] = StateChangeFailed(
                    f"its state was written by a controller with epoch {state.controller_epoch}, "
                    f"above our {self._term.epoch}"
                )
            else:
                usable[partition] = state
        return usable

    async def with_former(
        self,
        states: Mapping[TopicPartition, PartitionState],
        before: Mapping[TopicPartition, PartitionState],
    ) -> dict[TopicPartition, PartitionState]:
        """`states`, about to be written over `before`, with who left an ISR of one (ADR 0008)."""
        return await self._last_replica.remember(states, before)

    async def write_states(
        self,
        states: Mapping[TopicPartition, PartitionState],
        outcomes: Outcomes,
        before: Mapping[TopicPartition, PartitionState],
    ) -> tuple[list[TopicPartition], dict[TopicPartition, PartitionState]]:
        """Conditional writes over `before`: partitions whose state had changed, and what is stored
        now."""
        conflicts: list[TopicPartition] = []
        written: dict[TopicPartition, PartitionState] = {}
        if not states:
            return conflicts, written
        states = await self.with_former(states, before)
        results = await topics.set_partition_states(self._term.zk, self._term.fence, states)
        for partition, result in results.items():
            if isinstance(result, BadVersion):
                conflicts.append(partition)
            elif isinstance(result, ZkError):
                outcomes[partition] = StateChangeFailed(f"state not written: {result}")
            else:
                written[partition] = replace(states[partition], leader_and_isr=result)
        return conflicts, written

    async def bump_epochs(self, partitions: Sequence[TopicPartition]) -> Outcomes:
        """Raise leader epochs without changing anything else, so that brokers take notice.

        Sends nothing: the caller says who must hear of it.
        """

        async def bump(chunk: Sequence[TopicPartition], outcomes: Outcomes) -> Conflicts:
            stored = await self.read_own_states(chunk, outcomes)
            writes = {
                partition: PartitionState(
                    replace(
                        state.leader_and_isr, leader_epoch=state.leader_and_isr.leader_epoch + 1
                    ),
                    self._term.epoch,
                )
                for partition, state in stored.items()
            }
            conflicts, written = await self.write_states(writes, outcomes, stored)
            for partition, state in written.items():
                self._term.put_leadership(partition, state)
                outcomes[partition] = state
            return conflicts

        return await in_rounds(partitions, bump)


async def in_rounds(
    partitions: Sequence[TopicPartition],
    attempt: Callable[[Sequence[TopicPartition], Outcomes], Awaitable[Conflicts]],
) -> Outcomes:
    """Read-change-write many partitions, a chunk at a time, again for those that somebody else
    changed in between (`attempt` returns them), a bounded number of times."""
    outcomes: Outcomes = {}
    remaining = list(partitions)
    for _ in range(MAX_WRITE_ROUNDS):
        again: Conflicts = []
        for chunk in chunks(remaining):
            again += await attempt(chunk, outcomes)
        remaining = again
        if not remaining:
            return outcomes
    for partition in remaining:
        outcomes[partition] = StateChangeFailed("the stored state kept changing")
    return outcomes


def allows_unclean(overrides: dict[str, str] | CorruptZnode, default: bool) -> bool:
    """A topic's effective `unclean.leader.election.enable`; a value that is no boolean means no."""
    if isinstance(overrides, CorruptZnode):
        return False
    text = overrides.get(UNCLEAN_KEY)
    return default if text is None else text.strip().lower() == "true"
