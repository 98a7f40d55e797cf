"""One period in office: everything that exists only while this broker is controller.

A new election makes a new Term with an empty context; when it ends, its ZooKeeper access fails, its
channels are closed and its watches are dropped.  Nothing of it is used again, so an event that was
interrupted by the end of the term can do no harm however it is resumed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kafkalike.runtime.ports import Clock, Random
from kafkalike.runtime.tasks import sleep
from kafkalike.types import ReplicaAssignment, TopicPartition
from kafkalike.zk.watches import WatchSet
from kafkalike.zk.znodes import PartitionState

from . import journal as journal_records
from .channel import Channels
from .context import Broker, ControllerContext, Replica
from .events import ControllerEvent
from .fenced_zk import FencedZk, TermOver
from .requests import RequestBatch
from .status import PartitionStatus, ReplicaStatus

CHUNK: Final = 1000
"""Partitions that are read, decided or written in one go: some tens of milliseconds of work."""

T = TypeVar("T")


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """`items` in pieces of at most CHUNK."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


@dataclass(slots=True, frozen=True)
class ControllerSettings:
    """What the controller takes from the broker's configuration."""

    broker_id: int
    control_listener: str
    """Name of the listener for control requests: control-plane if set, else inter-broker."""
    inter_broker_listener: str
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_s: float = 300.0
    leader_imbalance_per_broker_percentage: int = 10
    request_timeout_s: float = 30.0
    zookeeper_connection_timeout_s: float = 18.0
    delegation_token_expiry_check_interval_s: float = 3600.0
    last_replica_defence: bool = True


@dataclass(slots=True)
class TermCounters:
    """Counts that outlive a term."""

    unclean_elections: int = 0
    leader_elections: int = 0
    failed_events: int = 0


@dataclass(slots=True)
class Term:
    """Office with a controller epoch; handed to every concern of the controller."""

    epoch: int
    fence: int
    """Data version of `/controller_epoch`: every write checks it."""
    settings: ControllerSettings
    zk: FencedZk
    watches: WatchSet
    channels: Channels
    clock: Clock
    random: Random
    logger: logging.Logger
    state_change_logger: logging.Logger
    enqueue: Callable[[ControllerEvent], None]
    unclean_default: Callable[[], bool]
    """This broker's own current `unclean.leader.election.enable`."""
    min_isr_default: Callable[[], int]
    """This broker's own current `min.insync.replicas`."""
    journal: journal_records.Journal | None
    counters: TermCounters
    context: ControllerContext = field(default_factory=ControllerContext)
    batch: RequestBatch = field(init=False)
    cause: str = "failover"
    """The event under way, for logs and journal."""

    def __post_init__(self) -> None:
        self.batch = RequestBatch(
            self.settings.broker_id,
            self.epoch,
            self.context,
            self.settings.inter_broker_listener,
        )

    @property
    def broker_id(self) -> int:
        return self.settings.broker_id

    def end(self) -> None:
        """Leave office: no more writes, no more requests to brokers, no more watch events."""
        self.zk.end()
        self.watches.close()
        self.channels.close_all()
        self.batch.clear()

    # -- telling brokers -------------------------------------------------------------------------

    async def breathe(self) -> None:
        """Let the rest of the broker run for a turn: large pieces of work come in steps.

        Raises TermOver when the office was lost meanwhile.
        """
        await sleep(self.clock, 0)
        if self.zk.closed:
            raise TermOver()

    async def send(self) -> None:
        """Queue what the batch holds."""
        for request in self.batch.take_in_steps():
            if request is None:
                await self.breathe()
            else:
                self.channels.send(request)

    async def send_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """One UpdateMetadata by itself: who is alive, and these partitions."""
        self.batch.begin()
        self.batch.add_update_metadata(broker_ids, partitions)
        await self.send()

    def note(self, record: journal_records.JournalRecord) -> None:
        """Tell the journal, if there is one."""
        if self.journal is not None:
            self.journal(record)

    # -- changes of the context ------------------------------------------------------------------

    def put_leadership(
        self, partition: TopicPartition, state: PartitionState, *, unclean: bool = False
    ) -> None:
        """A state that ZooKeeper holds now."""
        old = self.context.leadership.get(partition)
        self.context.leadership[partition] = state
        if self.journal is not None and old != state:
            self.journal(
                journal_records.LeadershipChanged(
                    self.cause, self.epoch, partition, old, state, unclean
                )
            )

    def put_partition_status(self, partition: TopicPartition, status: PartitionStatus) -> None:
        old = self.context.partition_status(partition)
        self.context.partition_statuses[partition] = status
        if self.journal is not None and old is not status:
            self.journal(
                journal_records.PartitionMoved(self.cause, self.epoch, partition, old, status)
            )

    def put_replica_status(self, replica: Replica, status: ReplicaStatus) -> None:
        old = self.context.replica_status(replica)
        self.context.set_replica_status(replica, status)
        if self.journal is not None and old is not status:
            self.journal(
                journal_records.ReplicaMoved(
                    self.cause, self.epoch, replica.partition, replica.broker_id, old, status
                )
            )

    def put_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        old = self.context.assignment(partition)
        self.context.set_assignment(partition, assignment)
        if self.journal is not None and old != assignment:
            self.journal(
                journal_records.AssignmentChanged(
                    self.cause, self.epoch, partition, old, assignment
                )
            )

    def put_broker(self, broker: Broker) -> None:
        old_epoch = self.context.broker_epoch(broker.id)
        self.context.brokers[broker.id] = broker
        self.context.last_epochs[broker.id] = broker.epoch
        if self.journal is not None and old_epoch != broker.epoch:
            self.journal(
                journal_records.BrokerSeen(
                    self.cause, self.epoch, broker.id, old_epoch, broker.epoch
                )
            )

    def remove_broker(self, broker_id: int) -> None:
        old_epoch = self.context.broker_epoch(broker_id)
        self.context.remove_broker(broker_id)
        if self.journal is not None:
            self.journal(
                journal_records.BrokerSeen(self.cause, self.epoch, broker_id, old_epoch, -1)
            )

    def remove_topic(self, topic: str) -> None:
        topic_id = self.context.topic_ids.get(topic)
        self.context.remove_topic(topic)
        if self.journal is not None:
            self.journal(journal_records.TopicForgotten(self.cause, self.epoch, topic, topic_id))
