"""One hosted partition: role, epochs, ISR, follower progress, high watermark, reads and appends.

A synchronous machine.  It decides; whoever calls it tells waiting requests (through
`PartitionWorld.changed`) and carries ISR proposals to the controller (`PartitionWorld.propose_isr`).
The rules are those of reference: replication 1, 2, 4-8, 10.  Times are monotonic seconds.

The high watermark is bounded by the *maximal* ISR: the committed one plus a follower that is being
added.  So it never passes a replica that the controller may already count as in sync (KIP-497).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kafkalike.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from kafkalike.messages.control import LeaderAndIsrRequest
from kafkalike.runtime.ports import Buffer, StorageError
from kafkalike.types import NO_BROKER_EPOCH, NO_EPOCH, NO_LEADER, TopicPartition

from ..log.log import (
    DeepResult,
    FetchDataInfo,
    FetchIsolation,
    Log,
    LogAppendInfo,
    Origin,
    VerificationGuard,
)
from .values import NO_OFFSET, EpochEndOffset, FetchPartition, ListedOffset, Loss, StateChange

PartitionState = LeaderAndIsrRequest.LeaderAndIsrPartitionState

NEVER_S: Final = float("-inf")

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
EARLIEST_LOCAL_TIMESTAMP: Final = -4


class Changed:
    """What of a partition changed: bits of a plain int, as appends pass here."""

    LOG_END: Final = 1
    HIGH_WATERMARK: Final = 2
    LOG_START: Final = 4
    ROLE: Final = 8
    """Role, epoch or existence: whoever waits must look again."""
    ISR: Final = 16
    """Somebody left the ISR: its next fetch may bring it back."""


_APPENDED: Final = Changed.LOG_END
_APPENDED_AND_COMMITTED: Final = Changed.LOG_END | Changed.HIGH_WATERMARK


class PartitionWorld(Protocol):
    """What a partition needs from its broker."""

    broker_id: int
    lag_time_max_s: float

    def monotonic(self) -> float:
        """Seconds."""

    def now_ms(self) -> int:
        """Wall clock."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether the metadata cache lists the broker."""

    def changed(self, partition: "Partition", what: int) -> None:
        """Those who wait for this partition may have their answer."""

    def propose_isr(self, partition: "Partition", proposal: "IsrProposal") -> None:
        """Send the proposal to the controller; the outcome comes by `Partition.isr_decided`."""

    def journal(self, change: StateChange) -> None:
        """A line for the history of this broker's partitions."""

    def lost(self, loss: Loss) -> None:
        """Records once below the high watermark are being truncated."""


class RemoteReplica:
    """What the leader knows of one follower (reference: replication 4)."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_s",
        "last_fetch_leader_end_offset",
        "last_fetch_s",
        "log_end_offset",
        "log_start_offset",
        "reset_s",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        """The newest life of the follower that fetched."""
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_fetch_s = NEVER_S
        self.last_caught_up_s = NEVER_S
        self.reset_s = NEVER_S
        """When the present leader epoch began here."""

    def reset(
        self, now_s: float, leader_end_offset: int, *, in_isr: bool, was_leader: bool
    ) -> None:
        """Start a new leader epoch.

        A follower out of the ISR counts as never caught up, so that it does not hold back the high
        watermark; in-sync ones get the full lag time before they can be dropped.
        """
        self.reset_s = now_s
        self.last_caught_up_s = now_s if in_isr else NEVER_S
        if was_leader:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_s = now_s if in_isr else NEVER_S
        else:
            self.log_end_offset = NO_OFFSET
            self.log_start_offset = NO_OFFSET
            self.last_fetch_leader_end_offset = NO_OFFSET
            self.last_fetch_s = NEVER_S

    def fetched(
        self, offset: int, log_start_offset: int, now_s: float, leader_end_offset: int
    ) -> None:
        """A fetch at `offset` when the leader's log ended at `leader_end_offset`."""
        if offset >= leader_end_offset:
            self.last_caught_up_s = max(self.last_caught_up_s, now_s)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_s = max(self.last_caught_up_s, self.last_fetch_s)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(
            leader_end_offset, self.last_fetch_leader_end_offset
        )
        self.last_fetch_s = now_s

    def admits(self, broker_epoch: int) -> bool:
        """Whether a fetch comes from the newest life of the follower that is known here."""
        if broker_epoch == NO_BROKER_EPOCH:
            return True
        if broker_epoch < self.broker_epoch:
            return False
        self.broker_epoch = broker_epoch
        return True

    def polled(self, now_s: float) -> None:
        """The follower's session fetched again at `now_s` while nothing here had changed.

        Its position equals what the last fetch said and the leader's end has not moved since, so
        this is the fetch that would have been recorded had the session looked at the partition.
        One from before this leader epoch says nothing in it: its follower may be out of the ISR.
        """
        if (
            now_s <= max(self.last_fetch_s, self.reset_s)
            or self.log_end_offset < self.last_fetch_leader_end_offset
        ):
            return
        self.last_caught_up_s = max(self.last_caught_up_s, now_s)
        self.last_fetch_s = now_s

    def is_caught_up(self, now_s: float, leader_end_offset: int, lag_time_max_s: float) -> bool:
        """At the leader's end, or it was there within the lag time."""
        return (
            self.log_end_offset == leader_end_offset
            or now_s - self.last_caught_up_s <= lag_time_max_s
        )


@dataclass(slots=True, frozen=True, eq=False)
class IsrProposal:
    """An ISR that the controller has been asked for; compared by identity."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    expands: bool
    added_epoch: int = NO_BROKER_EPOCH
    """The life in which the follower that is added caught up; -1 for an older broker."""

    def epoch_of(self, broker_id: int) -> int:
        """The life that the proposal counts on, for the one that is added; -1: any (KIP-903)."""
        is_added = self.expands and broker_id == self.isr[-1]
        return self.added_epoch if is_added else NO_BROKER_EPOCH


@dataclass(slots=True, frozen=True)
class IsrDecision:
    """What the controller answered to a proposal it accepted."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Partition:
    """One replica on this broker whose log directory works."""

    __slots__ = (
        "__weakref__",
        "_world",
        "adding",
        "controller_epoch",
        "future",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "partition_epoch",
        "proposal",
        "remotes",
        "removing",
        "replicas",
        "topic_partition",
        "watchers",
    )

    def __init__(self, topic_partition: TopicPartition, world: PartitionWorld) -> None:
        self.topic_partition = topic_partition
        self.log: Log | None = None
        self.future: Log | None = None
        """The log that is to take the place of `log`, while the replica moves."""
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.leader_epoch_start_offset = NO_OFFSET
        """Log end when this broker became leader in the present epoch; -1 on a follower."""
        self.isr: tuple[int, ...] = ()
        """The committed in-sync replicas; empty on a follower."""
        self.proposal: IsrProposal | None = None
        """What the controller has been asked for and not yet decided."""
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.remotes: tuple[RemoteReplica, ...] = ()
        self.watchers: dict[FetchPartition, None] | None = None
        """Entries of fetch sessions that look at this partition."""
        self._world = world

    # -- what it is ----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leader == self._world.broker_id

    @property
    def leader_id(self) -> int | None:
        """The leader, None before the first order of the controller."""
        return None if self.leader == NO_LEADER else self.leader

    @property
    def topic_id(self) -> bytes | None:
        return None if self.log is None else self.log.topic_id

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """All replicas that the controller may count as in sync now."""
        proposal = self.proposal
        return proposal.isr if proposal is not None and proposal.expands else self.isr

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_under_min_isr(self) -> bool:
        """Led here with fewer in-sync replicas than min.insync.replicas asks for."""
        return self.is_leader and len(self.isr) < self.effective_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) == self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Led here with fewer in-sync replicas than assigned, counting a move's origin only."""
        if not self.is_leader:
            return False
        wanted = len(self.replicas) - len(self.adding) if self.adding else len(self.replicas)
        return len(self.isr) < wanted

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, at most the number of assigned replicas."""
        assert self.log is not None
        wanted, assigned = self.log.config.min_insync_replicas, len(self.replicas)
        return wanted if wanted < assigned else assigned

    def remote(self, broker_id: int) -> RemoteReplica | None:
        """The follower's progress, when this broker leads and the follower is assigned."""
        for replica in self.remotes:
            if replica.broker_id == broker_id:
                return replica
        return None

    # -- orders of the controller --------------------------------------------------------------

    def make_leader(self, state: PartitionState, log: Log) -> bool:
        """Lead in the epoch that `state` names.  True when this broker did not lead before.

        A state of an older partition epoch changes nothing.  Never truncates.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        was_leader = self.is_leader
        self.log = log
        self.controller_epoch = state.controller_epoch
        self._assign(state)
        self._follow_up_remotes()
        self.isr = tuple(state.isr)
        self.proposal = None
        if state.leader_epoch > self.leader_epoch:
            self._begin_epoch(state.leader_epoch, log, was_leader)
        self.partition_epoch = state.partition_epoch
        self.leader = self._world.broker_id
        self.record("leader")
        what = Changed.ROLE
        if self._try_advance_high_watermark():
            what |= Changed.HIGH_WATERMARK
        self._world.changed(self, what)
        return not was_leader

    def make_follower(self, state: PartitionState, log: Log) -> bool:
        """Follow the leader that `state` names.  True when the leader epoch grew.

        A state of an older partition epoch changes nothing.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        self.log = log
        self.controller_epoch = state.controller_epoch
        self._assign(state)
        self.isr = ()
        self.proposal = None
        self.remotes = ()
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.leader_epoch_start_offset = NO_OFFSET
        self.partition_epoch = state.partition_epoch
        self.record("follower")
        self._world.changed(self, Changed.ROLE)
        return is_new_epoch

    def stop(self) -> None:
        """Be nobody's replica any more: deleted, or the log directory failed."""
        self.log = None
        self.future = None
        self.leader = NO_LEADER
        self.isr = ()
        self.proposal = None
        self.remotes = ()
        self._world.changed(self, Changed.ROLE)
        for entry in list(self.watchers or ()):
            entry.detach()

    def _assign(self, state: PartitionState) -> None:
        self.replicas = tuple(state.replicas)
        self.adding = tuple(state.adding_replicas or ())
        self.removing = tuple(state.removing_replicas or ())

    def _follow_up_remotes(self) -> None:
        """One RemoteReplica for each other assigned replica; known ones keep their state."""
        known = {replica.broker_id: replica for replica in self.remotes}
        self.remotes = tuple(
            known.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in self.replicas
            if broker_id != self._world.broker_id
        )

    def _begin_epoch(self, leader_epoch: int, log: Log, was_leader: bool) -> None:
        # The epoch is noted before it has a record: followers may ask where it starts, and an epoch
        # newer than anything in the log must truncate those that hold records of skipped epochs.
        end_offset = log.log_end_offset
        log.assign_epoch_start(leader_epoch, end_offset)
        now_s = self._world.monotonic()
        for replica in self.remotes:
            replica.reset(
                now_s, end_offset, in_isr=replica.broker_id in self.isr, was_leader=was_leader
            )
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = end_offset

    # -- appending -----------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        required_acks: int,
        origin: Origin = "client",
        verification: VerificationGuard | None = None,
        deep: DeepResult | None = None,
    ) -> LogAppendInfo:
        """Append in the present epoch and move the high watermark where that is enough.

        Raises NotLeaderOrFollower, NotEnoughReplicas (acks -1 under min ISR: nothing is written), or
        what the log raises.
        """
        log = self.log
        if log is None or self.leader != self._world.broker_id:
            raise NotLeaderOrFollower(f"broker {self._world.broker_id} does not lead {self}")
        if required_acks == -1 and len(self.isr) < self.effective_min_isr:
            raise NotEnoughReplicas(
                f"the in-sync replicas {list(self.isr)} of {self} are fewer than"
                f" min.insync.replicas = {self.effective_min_isr}"
            )
        world = self._world
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            origin=origin,
            now_ms=world.now_ms(),
            verification_guard=verification,
            deep=deep,
        )
        if info.last_offset < 0 or info.duplicate:
            return info
        if self._try_advance_high_watermark():
            world.changed(self, _APPENDED_AND_COMMITTED)
        else:
            world.changed(self, _APPENDED)
        return info

    def append_as_follower(
        self, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int
    ) -> LogAppendInfo:
        """Append what the leader sent and take over its high watermark and log start.

        The high watermark may go down: the leader of a new epoch may not know yet what was
        committed.
        """
        log = self._replica_log()
        what = 0
        info = LogAppendInfo(-1, -1, -1, -1, log.log_start_offset)
        if records:
            info = log.append_as_follower(records)
            what = Changed.LOG_END
        old_high_watermark = log.high_watermark
        if log.update_high_watermark(leader_high_watermark) != old_high_watermark:
            what |= Changed.HIGH_WATERMARK
        if leader_log_start_offset > log.log_start_offset:
            # The leader may delete what this replica has not seen committed yet.
            start = min(leader_log_start_offset, log.high_watermark)
            if start > log.log_start_offset and log.maybe_increment_log_start_offset(start):
                what |= Changed.LOG_START
        if what:
            self._world.changed(self, what)
        return info

    # -- reading -------------------------------------------------------------------------------

    def _refuse_epoch(self, current_leader_epoch: int) -> None:
        """Raise FencedLeaderEpoch or UnknownLeaderEpoch: the asker's epoch is another one."""
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"epoch {current_leader_epoch} of {self} is over, the present one is"
                f" {self.leader_epoch}"
            )
        raise UnknownLeaderEpoch(
            f"epoch {current_leader_epoch} of {self} is not known here, only {self.leader_epoch}"
        )

    def local_log(self, current_leader_epoch: int | None, *, only_leader: bool) -> Log:
        """The log after the epoch and role checks.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower.
        """
        if current_leader_epoch is not None and current_leader_epoch != self.leader_epoch:
            self._refuse_epoch(current_leader_epoch)
        log = self.log
        if log is None or (only_leader and self.leader != self._world.broker_id):
            raise NotLeaderOrFollower(f"broker {self._world.broker_id} does not lead {self}")
        return log

    def read(
        self,
        request: FetchPartition,
        max_bytes: int,
        isolation: FetchIsolation,
        *,
        min_one_message: bool,
        only_leader: bool,
        follower_id: int = -1,
        follower_epoch: int = NO_BROKER_EPOCH,
        update_follower: bool = False,
    ) -> FetchDataInfo | EpochEndOffset:
        """Read for a consumer, or for the follower `follower_id`, whose progress is recorded.

        An EpochEndOffset says where the reader's history forks from this log.  The high watermark is
        the one after the follower's progress.  What a former life of the follower asked for (a
        broker epoch below one seen) is not recorded: it may have lost since what it had then
        (KIP-903).

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower, OffsetOutOfRange.
        """
        epoch = request.current_leader_epoch
        log = self.local_log(epoch if epoch >= 0 else None, only_leader=only_leader)
        replica: RemoteReplica | None = None
        if follower_id >= 0:
            replica = self.remote(follower_id)
            if replica is None:
                if epoch >= 0:
                    raise UnknownLeaderEpoch(
                        f"broker {follower_id} is no replica of {self} in epoch {epoch}"
                    )
                raise NotLeaderOrFollower(f"broker {follower_id} is no replica of {self}")
        if request.last_fetched_epoch >= 0:
            fork = self._divergence(log, request)
            if fork is not None:
                return fork
        data = log.read(request.fetch_offset, max_bytes, isolation, min_one_message)
        if replica is not None and update_follower and replica.admits(follower_epoch):
            self._follower_fetched(replica, request, data.log_end_offset)
            data.high_watermark = log.high_watermark
            data.last_stable_offset = log.last_stable_offset
        return data

    def _divergence(self, log: Log, request: FetchPartition) -> EpochEndOffset | None:
        """Where the reader's history forks from this log (KIP-595), None where it does not."""
        last_epoch = request.last_fetched_epoch
        found_epoch, end_offset = log.end_offset_for_epoch(last_epoch)
        if found_epoch < 0 or end_offset < 0:
            raise OffsetOutOfRange(
                f"epoch {last_epoch} of the last fetched record of {self} is not known here"
            )
        if request.fetch_offset < log.log_start_offset:
            raise OffsetOutOfRange(
                f"offset {request.fetch_offset} of {self} is below the log start"
                f" {log.log_start_offset}"
            )
        if found_epoch < last_epoch or end_offset < request.fetch_offset:
            return EpochEndOffset(found_epoch, end_offset)
        return None

    def divergence(self, request: FetchPartition) -> EpochEndOffset | None:
        """As for a read; for requests that wait.  Raises OffsetOutOfRange."""
        if request.last_fetched_epoch < 0:
            return None
        return self._divergence(self._replica_log(), request)

    def offset_for_leader_epoch(
        self, current_leader_epoch: int | None, leader_epoch: int, *, only_leader: bool
    ) -> EpochEndOffset:
        """The end of `leader_epoch` here.  Raises what `local_log` raises."""
        log = self.local_log(current_leader_epoch, only_leader=only_leader)
        return EpochEndOffset(*log.end_offset_for_epoch(leader_epoch))

    def list_offset(
        self,
        timestamp: int,
        isolation: FetchIsolation,
        current_leader_epoch: int | None,
        *,
        only_leader: bool,
    ) -> ListedOffset:
        """ListOffsets; isolation LOG_END for replicas and tools.

        Raises OffsetNotAvailable while a new leader's high watermark is below the start of its
        epoch and the answer would be wrong for it (KIP-207), and what `local_log` raises.
        """
        log = self.local_log(current_leader_epoch, only_leader=only_leader)
        lags = (
            isolation is not FetchIsolation.LOG_END
            and self.leader_epoch_start_offset > log.high_watermark
        )
        if timestamp == LATEST_TIMESTAMP:
            if lags:
                raise self._offset_not_available(log)
            offset = log.bound_of(isolation)
            return ListedOffset(-1, offset, self.leader_epoch)
        found = ListedOffset(*log.offset_for_timestamp(timestamp, isolation))
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return found
        if found.offset < 0 and lags:
            raise self._offset_not_available(log)
        return found

    def _offset_not_available(self, log: Log) -> OffsetNotAvailable:
        return OffsetNotAvailable(
            f"the high watermark {log.high_watermark} of {self} has not reached the start"
            f" {self.leader_epoch_start_offset} of leader epoch {self.leader_epoch}"
        )

    # -- followers and the high watermark ------------------------------------------------------

    def _follower_fetched(
        self, replica: RemoteReplica, request: FetchPartition, leader_end_offset: int
    ) -> None:
        old_end, old_start = replica.log_end_offset, replica.log_start_offset
        replica.fetched(
            request.fetch_offset,
            request.log_start_offset,
            self._world.monotonic(),
            leader_end_offset,
        )
        what = 0
        if replica.log_start_offset != old_start:
            what |= Changed.LOG_START
        if self.proposal is None and replica.broker_id not in self.isr:
            self._maybe_expand_isr(replica)
        if replica.log_end_offset != old_end and self._try_advance_high_watermark():
            what |= Changed.HIGH_WATERMARK
        if what:
            self._world.changed(self, what)

    def follower_polled(self, broker_id: int, now_s: float) -> None:
        """The follower's session fetched at `now_s` without a word on this partition."""
        replica = self.remote(broker_id)
        if replica is not None:
            replica.polled(now_s)

    def reconsider_high_watermark(self) -> None:
        """Who held the high watermark back may be dead, or have stayed away for too long by now.

        While producers wait for their acknowledgements nothing else would move it.
        """
        if self.is_leader and self._try_advance_high_watermark():
            self._world.changed(self, Changed.HIGH_WATERMARK)

    def _try_advance_high_watermark(self) -> bool:
        """Move the high watermark to what all of the maximal ISR hold; never under min ISR."""
        log = self.log
        assert log is not None
        candidate = log.log_end_offset
        if candidate <= log.high_watermark or len(self.isr) < self.effective_min_isr:
            return False
        if not self.remotes:
            log.update_high_watermark(candidate)
            return True
        maximal_isr = self.maximal_isr
        for replica in self.remotes:
            if replica.log_end_offset < candidate and (
                replica.broker_id in maximal_isr or self._may_join_soon(replica, log)
            ):
                candidate = replica.log_end_offset
        if candidate <= log.high_watermark:
            return False
        log.update_high_watermark(candidate)
        return True

    def _may_join_soon(self, replica: RemoteReplica, log: Log) -> bool:
        """A live follower that is caught up but not in the ISR holds the high watermark back.

        Otherwise it could chase a moving high watermark for ever.
        """
        return replica.is_caught_up(
            self._world.monotonic(), log.log_end_offset, self._world.lag_time_max_s
        ) and self._world.is_alive(replica.broker_id)

    @property
    def low_watermark(self) -> int:
        """The lowest log start over this log, its future one and the live followers (DeleteRecords)."""
        log = self._replica_log()
        lowest = log.log_start_offset
        for replica in self.remotes:
            if replica.log_start_offset < lowest and self._world.is_alive(replica.broker_id):
                lowest = replica.log_start_offset
        return lowest if self.future is None else min(lowest, self.future.log_start_offset)

    # -- ISR -----------------------------------------------------------------------------------

    def _maybe_expand_isr(self, replica: RemoteReplica) -> None:
        """Propose a follower that reached the high watermark and the start of this epoch.

        The second bound keeps out a follower that has not seen the first record of the epoch yet:
        it may hold a diverging tail (KAFKA-7128).
        """
        log = self.log
        assert log is not None
        if (
            replica.log_end_offset >= log.high_watermark
            and replica.log_end_offset >= self.leader_epoch_start_offset
            and self._world.is_alive(replica.broker_id)
        ):
            self._propose(
                (*self.isr, replica.broker_id), expands=True, added_epoch=replica.broker_epoch
            )

    def maybe_shrink_isr(self) -> bool:
        """Propose an ISR without the followers that lag.  True when there were any."""
        if self.proposal is not None or not self.is_leader or self.log is None:
            return False
        lagging = self.lagging_replicas()
        if not lagging:
            return False
        self._propose(tuple(r for r in self.isr if r not in lagging), expands=False)
        return True

    def lagging_replicas(self) -> set[int]:
        """Members of the committed ISR that were not caught up within replica.lag.time.max.ms."""
        log = self._replica_log()
        now_s, lag_s = self._world.monotonic(), self._world.lag_time_max_s
        lagging: set[int] = set()
        for broker_id in self.isr:
            if broker_id == self._world.broker_id:
                continue
            replica = self.remote(broker_id)
            if replica is None or not replica.is_caught_up(now_s, log.log_end_offset, lag_s):
                lagging.add(broker_id)
        return lagging

    def _propose(
        self, isr: tuple[int, ...], *, expands: bool, added_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        proposal = IsrProposal(isr, self.leader_epoch, self.partition_epoch, expands, added_epoch)
        self.proposal = proposal
        self.record("isr-proposed", isr)
        self._world.propose_isr(self, proposal)

    def isr_decided(self, proposal: IsrProposal, decision: IsrDecision) -> bool:
        """The controller accepted.  False when the answer is not for the present state.

        An answer of another leader epoch, or older than what a LeaderAndIsr already said, leaves the
        proposal pending: only a newer state may replace it.
        """
        if self.proposal is not proposal:
            return False
        if (
            decision.leader_epoch != self.leader_epoch
            or decision.partition_epoch < self.partition_epoch
        ):
            return False
        # Who caught up while it was being dropped has nothing to fetch here, so its session would
        # pass over the partition from now on: it must be looked at again.
        what = Changed.ISR if any(member not in decision.isr for member in self.isr) else 0
        self.isr = decision.isr
        self.partition_epoch = decision.partition_epoch
        self.proposal = None
        self.record("isr")
        if self._try_advance_high_watermark():
            what |= Changed.HIGH_WATERMARK
        if what:
            self._world.changed(self, what)
        return True

    def isr_refused(self, proposal: IsrProposal) -> None:
        """The controller did not take it up: back to the committed ISR, a later fetch tries again."""
        if self.proposal is proposal:
            self.proposal = None
            self.record("isr-refused", proposal.isr)

    # -- moving the ends -----------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset` (-1: the high watermark); returns the offset meant.

        Raises NotLeaderOrFollower, PolicyViolation (cleanup.policy without delete) or
        OffsetOutOfRange.
        """
        log = self.local_log(None, only_leader=True)
        if "delete" not in log.config.cleanup_policy:
            raise PolicyViolation(f"cleanup.policy of {self} does not contain delete")
        target = log.high_watermark if offset == -1 else offset
        if target < 0 or target > log.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete records of {self} before {offset}: expected an offset from 0 to the"
                f" high watermark {log.high_watermark}"
            )
        if log.maybe_increment_log_start_offset(target):
            self._world.changed(self, Changed.LOG_START)
        return target

    def truncate_to(self, offset: int, new_leader_epoch: int | None = None) -> None:
        """Cut the log at `offset`, reporting what was below the high watermark."""
        log = self._replica_log()
        self._report_loss(log, offset, new_leader_epoch)
        old_high_watermark = log.high_watermark
        loses_records = offset < log.log_end_offset
        if loses_records:
            self.record("truncating")
        log.truncate_to(offset)
        if self.future is not None:
            self.future.truncate_to(offset)
        if loses_records:
            self.record("truncated")
        what = Changed.LOG_END
        if log.high_watermark != old_high_watermark:
            what |= Changed.HIGH_WATERMARK
        self._world.changed(self, what)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records: the leader's log starts above the end of this one.

        No loss: the leader had all of them, and its retention has removed them.
        """
        log = self._replica_log()
        self.record("truncating")
        log.truncate_fully_and_start_at(offset)
        if self.future is not None:
            self.future.truncate_fully_and_start_at(offset)
        self.record("truncated")
        self._world.changed(self, Changed.LOG_END | Changed.HIGH_WATERMARK | Changed.LOG_START)

    def replace_log(self, future: Log) -> None:
        """The future log, equal to the current one, is the log from now on."""
        self.log = future
        self.future = None
        self._world.changed(self, Changed.LOG_START)

    def _report_loss(self, log: Log, offset: int, new_leader_epoch: int | None) -> None:
        if offset >= log.high_watermark:
            return
        first = max(offset, log.log_start_offset)
        try:
            summary = log.summarize(first, log.high_watermark)
        except StorageError as error:
            raise log.directory.fail(error) from error
        latest = log.latest_epoch
        self._world.lost(
            Loss(
                topic_partition=self.topic_partition,
                old_leader_epoch=NO_EPOCH if latest is None else latest,
                new_leader_epoch=(
                    self.leader_epoch if new_leader_epoch is None else new_leader_epoch
                ),
                first_offset=first,
                end_offset=log.high_watermark,
                bytes=summary.size_bytes,
                producer_ids=summary.producer_ids,
                time_ms=self._world.now_ms(),
                log_end_offset=log.log_end_offset,
            )
        )

    # -- helpers -------------------------------------------------------------------------------

    def _replica_log(self) -> Log:
        log = self.log
        if log is None:
            raise NotLeaderOrFollower(f"{self} has no log on broker {self._world.broker_id}")
        return log

    def record(self, kind: str, isr: Sequence[int] | None = None) -> None:
        """Write the present state to the journal."""
        log = self.log
        self._world.journal(
            StateChange(
                kind=kind,
                topic_partition=self.topic_partition,
                controller_epoch=self.controller_epoch,
                leader=self.leader,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
                isr=self.isr if isr is None else tuple(isr),
                high_watermark=NO_OFFSET if log is None else log.high_watermark,
                log_end_offset=NO_OFFSET if log is None else log.log_end_offset,
                time_ms=self._world.now_ms(),
            )
        )

    def __str__(self) -> str:
        return str(self.topic_partition)
