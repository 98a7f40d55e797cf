"""Election, resignation and the event loop (reference: controller 2, 4).

One queue, one event at a time, in order.  Being controller is having an `Office`; everything else is
standing by with a watch on `/controller`.  After any doubt about being controller the office is
dropped at once, without a write, and `/controller` is read again.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, get_args

from twisted.internet.defer import Deferred, succeed

from kafkalike.errors import (
    KafkaError,
    NotController,
    RequestTimedOut,
    StaleControllerEpoch,
    UnknownServerError,
)
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kafkalike.messages.transactions import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock, Random, Timer
from kafkalike.runtime.tasks import Tasks
from kafkalike.types import TopicPartition
from kafkalike.zk import election, paths
from kafkalike.zk.client import ConnectionLost, NoNode, SessionExpired, Stat, ZkClient, ZkError
from kafkalike.zk.election import ControllerMoved, Elected
from kafkalike.zk.watches import WatchSet
from kafkalike.zk.znodes import ControllerInfo, CorruptZnode

from . import journal as journal_records
from .api import UNCLEAN_ELECTION, ControllerMetrics, ElectionResult
from .balance import imbalance_count
from .channel import QUEUE_LIMIT, Channels, Connect
from .events import (
    REQUESTS,
    WORK,
    AllocateProducerIds,
    AlterPartitionReceived,
    ApiPartitionReassignment,
    ChannelBroken,
    ControlledShutdown,
    ControllerChange,
    ControllerEvent,
    LeaderAndIsrResponseReceived,
    ListPartitionReassignments,
    Notice,
    OfficeEvent,
    RegisterBrokerAndReelect,
    ReplicaLeaderElection,
    Request,
    Startup,
    TermEvent,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
    UpdateFeatures,
    UpdateMetadataResponseReceived,
    Work,
)
from .fenced_zk import FencedZk, TermOver
from .gauges import ControllerGauges
from .office import Office, OfficeUntenable, answer
from .requests import ControlRequest
from .status import PartitionStatus, ReplicaStatus
from .term import ControllerSettings, Term, TermCounters

MAX_WAITING_REQUESTS: Final = 10_000
MAX_ELECTION_ROUNDS: Final = 5
RETRY_DELAY_S: Final = 1.0
MAX_RETRY_DELAY_S: Final = 30.0
NOT_CONTROLLER: Final = "This is not the correct controller for this cluster."

_COALESCED: Final = (*get_args(Notice), *get_args(OfficeEvent), ChannelBroken)


@dataclass(slots=True, frozen=True)
class ControllerPorts:
    """What the controller uses of its surroundings."""

    zk: ZkClient
    clock: Clock
    random: Random
    connect: Connect
    """Makes a connection to a broker for control requests."""
    register: Callable[[], Awaitable[object]]
    """Registers this broker in ZooKeeper in the present session, with a new broker epoch."""
    unclean_default: Callable[[], bool]
    """This broker's current `unclean.leader.election.enable`."""
    logger: logging.Logger
    state_change_logger: logging.Logger
    min_isr_default: Callable[[], int] = lambda: 1
    """This broker's current `min.insync.replicas`."""
    journal: journal_records.Journal | None = None
    wait_for_features: Callable[[int], Awaitable[None]] | None = None
    """Returns once this broker's own view of `/feature` has reached a data version."""
    expire_delegation_tokens: Callable[[], Awaitable[None]] | None = None
    """Removes delegation tokens that are past their time; asked for regularly while in office."""
    metrics: Metrics | None = None


class KafkaController:
    """The controller of one broker; see `api.Controller` for what its public methods promise."""

    def __init__(
        self,
        settings: ControllerSettings,
        ports: ControllerPorts,
        *,
        channel_queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._zk = ports.zk
        self._clock = ports.clock
        self._logger = ports.logger
        self._channel_queue_limit = channel_queue_limit
        self._queue: deque[tuple[ControllerEvent, float]] = deque()
        self._queued_notices: set[ControllerEvent] = set()
        self._waiting_requests = 0
        self._tasks = Tasks(ports.logger)
        self._running = False
        self._idle: list[Deferred[None]] = []
        self._stopped = False
        self._office: Office | None = None
        self._active_id = -1
        self._work = Work.IDLE
        self._counters = TermCounters()
        self._watches = WatchSet(ports.zk, ports.logger)
        self._watches.on_change(paths.CONTROLLER, lambda: self._enqueue(ControllerChange()))
        self._failures = 0
        self._stand_after_s = 0.0
        self._timers: dict[type, Timer] = {}
        self._gauges = (
            None
            if ports.metrics is None
            else ControllerGauges(ports.metrics, ports.clock, self.metrics)
        )

    # -- the door --------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._office is not None

    @property
    def active_controller_id(self) -> int:
        return self._active_id

    @property
    def epoch(self) -> int:
        return self._office.term.epoch if self._office is not None else 0

    def start(self) -> None:
        self._enqueue(Startup())

    def stop(self) -> "Deferred[None]":
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._watches.close()
        self._resign("stop")
        self._preempt()
        if not self._running:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._idle.append(done)
        return done

    def before_session_expired(self) -> None:
        self._preempt()
        self._resign("session expired")
        self._active_id = -1

    def after_new_session(self) -> None:
        self._enqueue(RegisterBrokerAndReelect())

    def on_topic_config_changed(self, topic: str, unclean_leader_election_enable: bool) -> None:
        if unclean_leader_election_enable and self._office is not None:
            self._enqueue(TopicUncleanLeaderElectionEnable(topic))

    def on_broker_default_unclean_changed(self, enabled: bool) -> None:
        if enabled and self._office is not None:
            self._enqueue(UncleanLeaderElectionEnable())

    def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> "Deferred[ControlledShutdownResponse]":
        reply: Deferred[ControlledShutdownResponse] = Deferred()
        self._enqueue(ControlledShutdown(request, reply))
        return reply

    def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> "Deferred[AlterPartitionResponse]":
        reply: Deferred[AlterPartitionResponse] = Deferred()
        self._enqueue(AlterPartitionReceived(request, version, reply))
        return reply

    def elect_leaders(
        self, election_type: int, partitions: Collection[TopicPartition]
    ) -> "Deferred[dict[TopicPartition, ElectionResult]]":
        reply: Deferred[dict[TopicPartition, ElectionResult]] = Deferred()
        unclean = election_type == UNCLEAN_ELECTION
        self._enqueue(ReplicaLeaderElection(tuple(partitions), unclean, reply))
        return reply

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> "Deferred[AlterPartitionReassignmentsResponse]":
        reply: Deferred[AlterPartitionReassignmentsResponse] = Deferred()
        self._enqueue(ApiPartitionReassignment(request, reply))
        return reply

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> "Deferred[ListPartitionReassignmentsResponse]":
        reply: Deferred[ListPartitionReassignmentsResponse] = Deferred()
        self._enqueue(ListPartitionReassignments(request, reply))
        return reply

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> "Deferred[AllocateProducerIdsResponse]":
        reply: Deferred[AllocateProducerIdsResponse] = Deferred()
        self._enqueue(AllocateProducerIds(request, reply))
        return reply

    def update_features(
        self, request: UpdateFeaturesRequest, version: int
    ) -> "Deferred[UpdateFeaturesResponse]":
        reply: Deferred[UpdateFeaturesResponse] = Deferred()
        self._enqueue(UpdateFeatures(request, version, reply))
        return reply

    def topic_name(self, topic_id: bytes) -> str | None:
        return None if self._office is None else self._office.context.topic_names.get(topic_id)

    def metrics(self) -> ControllerMetrics:
        unclean = self._counters.unclean_elections
        if self._office is None:
            return ControllerMetrics(
                controller_state=self._work,
                event_queue_size=len(self._queue),
                unclean_leader_elections_total=unclean,
            )
        context = self._office.context
        deleting = [r for topic in context.to_delete for r in context.replicas_of(topic)]
        return ControllerMetrics(
            active_controller_count=1,
            offline_partitions_count=sum(
                status is PartitionStatus.OFFLINE and partition.topic not in context.to_delete
                for partition, status in context.partition_statuses.items()
            ),
            preferred_replica_imbalance_count=imbalance_count(context),
            controller_state=self._work,
            global_topic_count=len(context.topics),
            global_partition_count=sum(len(of_topic) for of_topic in context.topics.values()),
            topics_to_delete_count=len(context.to_delete),
            replicas_to_delete_count=len(deleting),
            topics_ineligible_to_delete_count=len(context.ineligible),
            replicas_ineligible_to_delete_count=sum(
                context.replica_status(r) is ReplicaStatus.DELETION_INELIGIBLE for r in deleting
            ),
            active_broker_count=len(context.live),
            event_queue_size=len(self._queue),
            total_queue_size=self._office.term.channels.queued,
            unclean_leader_elections_total=unclean,
        )

    # -- the queue -------------------------------------------------------------------------------

    def _enqueue(self, event: ControllerEvent) -> None:
        if isinstance(event, REQUESTS):
            if self._stopped:
                _refuse(event)
                return
            if self._waiting_requests >= MAX_WAITING_REQUESTS:
                _fail(event.reply, RequestTimedOut("Too many requests wait for the controller."))
                return
            self._waiting_requests += 1
        elif self._stopped:
            return
        elif isinstance(event, _COALESCED):
            if event in self._queued_notices:
                return
            self._queued_notices.add(event)
        self._queue.append((event, self._clock.monotonic()))
        if not self._running:
            self._running = True
            # On its own turn: whoever enqueues is not interrupted by what that sets off.
            self._clock.call_soon(self._start_running)

    def _start_running(self) -> None:
        self._tasks.spawn(self._run(), "controller-events")

    async def _run(self) -> None:
        while self._queue:
            event, queued_s = self._queue.popleft()
            if isinstance(event, REQUESTS):
                self._waiting_requests -= 1
            else:
                self._queued_notices.discard(event)
            begun_s = self._clock.monotonic()
            self._work = work = WORK[type(event)]
            await self._process(event)
            self._work = Work.IDLE
            if self._gauges is not None:
                self._gauges.queue_time_ms.update((begun_s - queued_s) * 1000)
                self._gauges.event_done(work, self._clock.monotonic() - begun_s)
                self._gauges.unclean_elections.count = self._counters.unclean_elections
        self._running = False
        idle, self._idle = self._idle, []
        for waiter in idle:
            waiter.callback(None)

    def _preempt(self) -> None:
        """Empty the queue; requests in it fail at once."""
        waiting, self._queue = self._queue, deque()
        self._queued_notices.clear()
        self._waiting_requests = 0
        for event, _ in waiting:
            if isinstance(event, REQUESTS):
                _refuse(event)

    async def _process(self, event: ControllerEvent) -> None:
        if isinstance(event, Startup | ControllerChange | RegisterBrokerAndReelect):
            await self._process_office_event(event)
        else:
            await self._process_term_event(event)

    # -- the office ------------------------------------------------------------------------------

    async def _process_office_event(self, event: OfficeEvent) -> None:
        try:
            if isinstance(event, RegisterBrokerAndReelect):
                await self._ports.register()
            await self._look()
        except SessionExpired:
            self._logger.info("session expired during %s", type(event).__name__)
        except (ZkError, KafkaError, CorruptZnode, ControllerMoved) as error:
            self._logger.error("%s failed, trying again error=%s", type(event).__name__, error)
            self._try_again(event)
        except Exception:
            self._counters.failed_events += 1
            self._logger.exception("%s failed, trying again", type(event).__name__)
            self._try_again(event)

    async def _look(self) -> None:
        """Read who is controller; resign if it is no longer this broker, stand if it is nobody."""
        for _ in range(MAX_ELECTION_ROUNDS):
            holder = await election.read_controller(self._zk, self._watches.arm(paths.CONTROLLER))
            ours = holder is not None and self._is_ours(*holder)
            if self._office is not None and not ours:
                self._resign("another controller or none in /controller")
            self._active_id = holder[0].broker_id if holder is not None else -1
            if holder is not None:
                if self._office is not None or not ours:
                    return
                # Ours, but without an office: left by an election or resignation whose answer was
                # lost.  Nobody else can be elected while it is there.
                await self._delete_leftover(holder[1])
                continue
            if self._stopped or not self._may_stand():
                return
            try:
                elected = await election.elect(
                    self._zk, self._settings.broker_id, self._clock.now_ms()
                )
            except ControllerMoved as error:
                self._logger.info("not elected: %s", error)
                continue
            await self._take_office(elected)
            return
        self._try_again(ControllerChange())

    def _is_ours(self, info: ControllerInfo, stat: Stat) -> bool:
        return (
            info.broker_id == self._settings.broker_id
            and stat.ephemeral_owner == self._zk.session_id
        )

    async def _delete_leftover(self, stat: Stat) -> None:
        try:
            await self._zk.delete(paths.CONTROLLER, stat.version)
        except (NoNode, ConnectionLost):
            return

    def _may_stand(self) -> bool:
        """After a failure others get their chance first."""
        wait_s = self._stand_after_s - self._clock.monotonic()
        if wait_s > 0:
            self._schedule(wait_s, ControllerChange())
        return wait_s <= 0

    async def _take_office(self, elected: Elected) -> None:
        if self._stopped:
            return
        office = self._make_office(elected)
        self._office = office
        self._active_id = self._settings.broker_id
        self._logger.info(
            "elected controller broker=%d epoch=%d", self._settings.broker_id, elected.epoch
        )
        self._record(
            journal_records.Elected(
                "election", self._settings.broker_id, elected.epoch, elected.epoch_zk_version
            )
        )
        try:
            await office.fail_over()
        except Exception as error:
            await self._term_failed(office, error, "failover")
        else:
            self._failures = 0
            self._logger.info("controller is ready epoch=%d", elected.epoch)

    def _make_office(self, elected: Elected) -> Office:
        ports = self._ports
        zk = FencedZk(self._zk)
        watches = WatchSet(zk, self._logger)
        term_epoch = elected.epoch

        def on_answer(request: ControlRequest, response: Any) -> None:
            if self._office is not None and self._office.term.epoch == term_epoch:
                self._on_answer(request, response)

        def on_failure(what: str, error: BaseException) -> None:
            self._enqueue(ChannelBroken(f"{what}: {error}"))

        channels = Channels(
            ports.connect,
            ports.clock,
            ports.logger,
            request_timeout_s=self._settings.request_timeout_s,
            on_answer=on_answer,
            on_overflow=lambda broker_id: self._enqueue(
                ChannelBroken(f"too many requests wait for broker {broker_id}")
            ),
            on_failure=on_failure,
            queue_limit=self._channel_queue_limit,
            gauges=self._gauges,
        )
        term = Term(
            epoch=elected.epoch,
            fence=elected.epoch_zk_version,
            settings=self._settings,
            zk=zk,
            watches=watches,
            channels=channels,
            clock=ports.clock,
            random=ports.random,
            logger=ports.logger,
            state_change_logger=ports.state_change_logger,
            enqueue=self._enqueue,
            unclean_default=ports.unclean_default,
            min_isr_default=ports.min_isr_default,
            journal=ports.journal,
            counters=self._counters,
        )
        return Office(
            term,
            wait_for_features=ports.wait_for_features,
            expire_delegation_tokens=ports.expire_delegation_tokens,
        )

    def _resign(self, cause: str) -> None:
        """Leave office here and now, without a word to ZooKeeper."""
        office, self._office = self._office, None
        if office is None:
            return
        office.close()
        self._active_id = -1
        self._logger.info("resigned epoch=%d cause=%s", office.term.epoch, cause)
        self._record(journal_records.Resigned(cause, self._settings.broker_id, office.term.epoch))

    async def _move(self, office: Office, cause: str) -> None:
        """Leave office and let an election find a controller anew, perhaps this one."""
        self._resign(cause)
        self._failures += 1
        delay_s = min(RETRY_DELAY_S * 2 ** (self._failures - 1), MAX_RETRY_DELAY_S)
        self._stand_after_s = self._clock.monotonic() + delay_s
        try:
            await election.resign(self._zk, office.term.fence)
        except ControllerMoved:
            self._logger.info("somebody else is controller already")
        except ZkError as error:
            self._logger.error("/controller was not deleted: %s", error)
        self._enqueue(ControllerChange())

    def _try_again(self, event: OfficeEvent) -> None:
        self._schedule(RETRY_DELAY_S, event)

    def _schedule(self, delay_s: float, event: OfficeEvent) -> None:
        old = self._timers.pop(type(event), None)
        if old is not None:
            old.cancel()
        if not self._stopped:
            self._timers[type(event)] = self._clock.call_later(delay_s, self._enqueue, event)

    def _record(self, record: journal_records.JournalRecord) -> None:
        if self._ports.journal is not None:
            self._ports.journal(record)

    # -- events of the term ----------------------------------------------------------------------

    async def _process_term_event(self, event: TermEvent) -> None:
        office = self._office
        if office is None:
            if isinstance(event, REQUESTS):
                _refuse(event)
            return
        office.term.cause = type(event).__name__
        try:
            await office.handle(event)
        except KafkaError as error:
            if isinstance(event, REQUESTS) and not office.term.batch:
                _fail(event.reply, error)
            else:
                await self._term_failed(office, error, office.term.cause)
        except Exception as error:
            await self._term_failed(office, error, office.term.cause)
        if isinstance(event, REQUESTS):
            _refuse(event)  # unless it has been answered

    async def _term_failed(self, office: Office, error: Exception, cause: str) -> None:
        """An event or the failover ended with an error: is this broker controller still?"""
        if office is not self._office:
            return  # the term had ended, the error is only its echo
        if isinstance(error, ControllerMoved):
            self._logger.warning("no longer controller cause=%s: %s", cause, error)
            self._resign(f"moved, noticed by {cause}")
            self._enqueue(ControllerChange())
        elif isinstance(error, SessionExpired | TermOver):
            self._resign(f"session expired, noticed by {cause}")
        else:
            # What was applied may not have been told to the brokers: only a fresh start is sure
            # to tell them.
            self._counters.failed_events += 1
            if isinstance(error, OfficeUntenable):
                self._logger.error("controller leaves office: %s", error)
            else:
                self._logger.error("controller event failed cause=%s", cause, exc_info=error)
            await self._move(office, f"{type(error).__name__} in {cause}")

    def _on_answer(self, request: ControlRequest, response: Any) -> None:
        """A broker answered; answers come back as events."""
        broker_id, epoch = request.broker_id, request.broker_epoch
        if isinstance(response, LeaderAndIsrResponse):
            self._enqueue(LeaderAndIsrResponseReceived(broker_id, epoch, response))
        elif isinstance(response, UpdateMetadataResponse):
            if response.error_code != 0:
                self._enqueue(UpdateMetadataResponseReceived(broker_id, response))
        elif isinstance(response, StopReplicaResponse) and request.deleting:
            self._enqueue(
                TopicDeletionStopReplicaResponseReceived(
                    broker_id, epoch, deletion_errors(request, response)
                )
            )


def deletion_errors(
    request: ControlRequest, response: StopReplicaResponse
) -> dict[TopicPartition, int]:
    """Code per partition that was asked to be deleted.  A broker that refuses the whole request may
    list none of them; Kafka then waits for ever, here that counts as refused one by one."""
    unknown = response.error_code or UnknownServerError.code
    listed = {
        TopicPartition(entry.topic_name, entry.partition_index): entry.error_code
        for entry in response.partition_errors
    }
    return {
        partition: response.error_code or listed.get(partition, unknown)
        for partition in request.deleting
    }


def _fail(reply: "Deferred[Any]", error: KafkaError) -> None:
    if not reply.called:
        reply.errback(error)


def _refuse(event: Request) -> None:
    """Answer a request that this broker does not serve, as it is not controller."""
    match event:
        case ControlledShutdown(_, reply):
            _fail(reply, StaleControllerEpoch(NOT_CONTROLLER))
        case ReplicaLeaderElection(partitions, _, reply):
            error = NotController()  # the original says nothing here
            answer(reply, {partition: ElectionResult(error=error) for partition in partitions})
        case _:
            _fail(event.reply, NotController(NOT_CONTROLLER))
