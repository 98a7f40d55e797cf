"""What the active controller does: failover, then one event at a time (reference: controller 3, 4)."""

from collections.abc import Awaitable, Callable
from typing import Any, assert_never

from twisted.internet.defer import Deferred

from kafkalike.errors import BrokerIdNotRegistered, StaleBrokerEpoch, UnknownServerError
from kafkalike.messages.transactions import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalike.runtime.ports import Timer
from kafkalike.runtime.tasks import timeout
from kafkalike.zk import admin, paths, producer_ids, topics
from kafkalike.zk.znodes import CorruptZnode

from .balance import LeaderBalancer
from .brokers import BrokerWatcher
from .deletion import TopicDeleter
from .events import (
    AllocateProducerIds,
    AlterPartitionReceived,
    ApiPartitionReassignment,
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    ChannelBroken,
    ControlledShutdown,
    ExpireDelegationTokens,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    ListPartitionReassignments,
    LogDirEventNotification,
    PartitionModifications,
    RepairLeadership,
    ReplicaLeaderElection,
    TermEvent,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
    UpdateFeatures,
    UpdateMetadataResponseReceived,
    ZkPartitionReassignment,
    ZkPreferredElection,
)
from .features import FeatureKeeper
from .isr import IsrKeeper
from .partitions import PartitionStateMachine
from .reassignment import Reassigner
from .replicas import ReplicaStateMachine, refresh_leadership
from .shutdown import ShutdownHelper
from .term import Term
from .topics import TopicChanger

FIRST_REBALANCE_DELAY_S = 5.0


class OfficeUntenable(Exception):
    """The controller cannot go on as it is; leaving office and electing anew heals it."""


def answer(reply: "Deferred[Any]", value: object) -> None:
    """Answer a request, unless it was answered when the controller left office."""
    if not reply.called:
        reply.callback(value)


class Office:
    """The concerns of one term, wired together."""

    def __init__(
        self,
        term: Term,
        *,
        wait_for_features: Callable[[int], Awaitable[None]] | None = None,
        expire_delegation_tokens: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`wait_for_features(version)` returns once this broker's own view of `/feature` is at that
        data version.  `expire_delegation_tokens` removes tokens that are past their time."""
        self.term = term
        self.context = term.context
        self._wait_for_features = wait_for_features
        self._expire_delegation_tokens = expire_delegation_tokens
        self._timers: dict[type, Timer] = {}
        self.partitions = PartitionStateMachine(term)
        self.replicas = ReplicaStateMachine(term, self.partitions)
        self.features = FeatureKeeper(term)
        self.deleter = TopicDeleter(term, self.partitions, self.replicas)
        self.reassigner = Reassigner(term, self.partitions, self.replicas)
        self.topics = TopicChanger(term, self.partitions, self.replicas)
        self.brokers = BrokerWatcher(
            term, self.partitions, self.replicas, self.deleter, self.reassigner, self.features
        )
        self.isr = IsrKeeper(term, self.partitions, self.reassigner)
        self.balancer = LeaderBalancer(term, self.partitions)
        self.shutdown = ShutdownHelper(term, self.partitions, self.replicas)

    def close(self) -> None:
        """The term is over."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.term.end()

    # -- failover --------------------------------------------------------------------------------

    async def fail_over(self) -> None:
        """Take over: read everything, tell everybody, repair what is broken, go on with what was
        under way.  Handlers are registered before anything is read, so no change is missed."""
        await self._set_up_features()
        self._watch()
        await self._drop_notifications()
        await self._load()
        await self.deleter.load()
        await self.term.send_metadata(self.context.brokers)
        restarted = self.brokers.set_aside_restarted()
        await self.replicas.start()
        self.partitions.start()
        await self.partitions.trigger_online()
        await self.brokers.take_back(restarted)
        await self.reassigner.start()
        await self.deleter.resume()
        await self.balancer.zk_triggered()
        self._start_timers()

    async def _set_up_features(self) -> None:
        version = await self.features.set_up()
        if self._wait_for_features is not None:
            limit_s = self.term.settings.zookeeper_connection_timeout_s
            what = f"own view of {paths.FEATURE} at version {version}"
            await timeout(self.term.clock, self._wait_for_features(version), limit_s, what)

    def _watch(self) -> None:
        watches, enqueue = self.term.watches, self.term.enqueue
        watches.on_children(paths.BROKER_IDS, lambda: enqueue(BrokerChange()))
        watches.on_children(paths.TOPICS, lambda: enqueue(TopicChange()))
        watches.on_children(paths.DELETE_TOPICS, lambda: enqueue(TopicDeletion()))
        watches.on_children(
            paths.LOG_DIR_EVENT_NOTIFICATION, lambda: enqueue(LogDirEventNotification())
        )
        watches.on_children(paths.ISR_CHANGE_NOTIFICATION, lambda: enqueue(IsrChangeNotification()))
        watches.on_change(paths.REASSIGN_PARTITIONS, lambda: enqueue(ZkPartitionReassignment()))
        watches.on_change(paths.PREFERRED_REPLICA_ELECTION, lambda: enqueue(ZkPreferredElection()))

    async def _drop_notifications(self) -> None:
        """All state is about to be read anew: what these say is known then."""
        zk, fence, watches = self.term.zk, self.term.fence, self.term.watches
        arm = watches.arm(paths.LOG_DIR_EVENT_NOTIFICATION)
        names, _ = await admin.read_log_dir_events(zk, arm)
        await admin.delete_log_dir_events(zk, fence, names)
        arm = watches.arm(paths.ISR_CHANGE_NOTIFICATION)
        names, _ = await admin.read_isr_changes(zk, arm)
        await admin.delete_isr_changes(zk, fence, names)

    async def _load(self) -> None:
        await self.brokers.load()
        arm = self.term.watches.arm(paths.TOPICS)
        await self.topics.load(await topics.list_topics(self.term.zk, arm))
        partitions = list(self.context.partitions())
        for partition in partitions:
            if self.context.assignment(partition).is_reassigning:
                self.context.reassigning[partition] = None
        await refresh_leadership(self.term, partitions)
        self.brokers.open_channels(self.context.brokers)
        self.term.logger.info(
            "controller context loaded epoch=%d brokers=%s topics=%d partitions=%d reassigning=%d",
            self.term.epoch,
            sorted(self.context.brokers),
            len(self.context.topics),
            len(partitions),
            len(self.context.reassigning),
        )

    # -- timers ----------------------------------------------------------------------------------

    def _start_timers(self) -> None:
        if self.term.settings.auto_leader_rebalance_enable:
            self._later(FIRST_REBALANCE_DELAY_S, AutoPreferredReplicaLeaderElection())
        if self._expire_delegation_tokens is not None:
            self._later(
                self.term.settings.delegation_token_expiry_check_interval_s,
                ExpireDelegationTokens(),
            )

    def _later(self, delay_s: float, event: TermEvent) -> None:
        timer = self.term.clock.call_later(delay_s, self.term.enqueue, event)
        self._timers[type(event)] = timer

    # -- events ----------------------------------------------------------------------------------

    async def handle(self, event: TermEvent) -> None:
        """Process one event to its end.

        Raises ControllerMoved or TermOver when this broker is controller no more, KafkaError as
        the answer to a request, OfficeUntenable.
        """
        match event:
            case BrokerChange():
                await self.brokers.broker_change()
            case BrokerModifications(broker_id):
                await self.brokers.broker_modifications(broker_id)
            case TopicChange():
                await self.topics.topic_change()
            case PartitionModifications(topic):
                await self.topics.partition_modifications(topic)
            case TopicDeletion():
                await self.deleter.requests_changed()
                await self.reassigner.drop_requests_of_deleted()
            case IsrChangeNotification():
                await self.isr.notifications()
            case LogDirEventNotification():
                await self.brokers.log_dir_events()
            case ZkPartitionReassignment():
                await self.reassigner.zk_triggered()
            case ZkPreferredElection():
                await self.balancer.zk_triggered()
            case UncleanLeaderElectionEnable():
                await self.partitions.trigger_online()
            case TopicUncleanLeaderElectionEnable(topic):
                await self.partitions.trigger_online(topic)
            case RepairLeadership(partitions):
                await self.isr.repair(partitions)
            case AutoPreferredReplicaLeaderElection() | ExpireDelegationTokens():
                await self._on_timer(event)
            case (
                LeaderAndIsrResponseReceived()
                | UpdateMetadataResponseReceived()
                | TopicDeletionStopReplicaResponseReceived()
                | ChannelBroken()
            ):
                await self._on_answer(event)
            case _:
                await self._on_request(event)

    async def _on_timer(
        self, event: AutoPreferredReplicaLeaderElection | ExpireDelegationTokens
    ) -> None:
        settings = self.term.settings
        if isinstance(event, AutoPreferredReplicaLeaderElection):
            self._later(settings.leader_imbalance_check_interval_s, event)
            await self.balancer.rebalance()
        elif self._expire_delegation_tokens is not None:
            self._later(settings.delegation_token_expiry_check_interval_s, event)
            await self._expire_delegation_tokens()

    async def _on_answer(
        self,
        event: LeaderAndIsrResponseReceived
        | UpdateMetadataResponseReceived
        | TopicDeletionStopReplicaResponseReceived
        | ChannelBroken,
    ) -> None:
        match event:
            case LeaderAndIsrResponseReceived():
                await self.brokers.leader_and_isr_answered(event)
            case UpdateMetadataResponseReceived(broker_id, response):
                if response.error_code != 0:
                    self.term.logger.error(
                        "UpdateMetadata refused broker=%d error=%d", broker_id, response.error_code
                    )
            case TopicDeletionStopReplicaResponseReceived(broker_id, broker_epoch, errors):
                if self.context.broker_epoch(broker_id) == broker_epoch:
                    await self.deleter.stop_replica_answered(broker_id, errors)
            case ChannelBroken(reason):
                raise OfficeUntenable(reason)
            case _:
                assert_never(event)

    async def _on_request(
        self,
        event: ControlledShutdown
        | AlterPartitionReceived
        | ReplicaLeaderElection
        | ApiPartitionReassignment
        | ListPartitionReassignments
        | AllocateProducerIds
        | UpdateFeatures,
    ) -> None:
        match event:
            case ControlledShutdown(request, reply):
                answer(reply, await self.shutdown.shut_down(request))
            case AlterPartitionReceived(alteration, version, reply):
                await self.isr.alter(alteration, version, lambda r: answer(reply, r))
            case ReplicaLeaderElection(wanted, unclean, reply):
                answer(reply, await self.balancer.elect(wanted, unclean=unclean))
            case ApiPartitionReassignment(reassignment, reply):
                answer(reply, await self.reassigner.alter(reassignment))
            case ListPartitionReassignments(listing, reply):
                answer(reply, self.reassigner.list_ongoing(listing))
            case AllocateProducerIds(allocation, reply):
                answer(reply, await self._allocate_producer_ids(allocation))
            case UpdateFeatures(update, version, reply):
                answer(reply, await self.features.update(update, version))
            case _:
                assert_never(event)

    async def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        if request.broker_id not in self.context.brokers:
            raise BrokerIdNotRegistered(f"broker {request.broker_id} is not registered")
        if self.context.broker_epoch(request.broker_id) != request.broker_epoch:
            raise StaleBrokerEpoch(f"broker {request.broker_id} has another epoch")
        try:
            block = await producer_ids.allocate_block(self.term.zk, request.broker_id)
        except CorruptZnode as error:
            raise UnknownServerError(str(error)) from error
        return AllocateProducerIdsResponse(
            producer_id_start=block.start, producer_id_len=len(block)
        )
