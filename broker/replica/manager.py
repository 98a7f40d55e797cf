"""All partitions hosted by this broker (reference: replication 2-12, 15).

`ReplicaManager` takes what the controller orders (LeaderAndIsr, StopReplica), what clients send
(Produce, Fetch, ListOffsets, ...) and what followers fetch, finds the partition, and lets requests
wait where they must.  A method that may wait returns its plain result when nothing waits and a
Deferred of the same result otherwise: callers ask `isinstance(result, Deferred)`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.errors import (
    NONE,
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalike.messages.fetch import FetchResponse
from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock, Disk, StorageError, Timer
from kafkalike.runtime.tasks import TimerWheel
from kafkalike.types import NO_EPOCH, TopicPartition

from ..cluster.metadata_cache import MetadataCache
from ..log.log import FetchIsolation, Log, Origin
from ..log.manager import LogManager
from .delayed import DelayedDelete, DelayedFetch, DelayedProduce, DeleteTarget
from .fetch_session import FetchContext
from .fetcher import FetchPeers
from .fetchers import FetcherManager
from .hosted import HostedPartitions
from .isr import IsrManager
from .movers import LogDirMovers
from .partition import Changed, IsrProposal, Partition
from .purgatory import Purgatory
from .quota import ReplicationQuota, follower_replicas, leader_replicas, parse_rate
from .reading import Reader
from .roles import RoleChanges, Roles
from .selector import LEADER, RACK_AWARE, RackSelector
from .values import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    READ_COMMITTED,
    AppendEntry,
    AppendResult,
    DeleteRecordsResult,
    EpochEndOffset,
    FetchParams,
    ListedOffset,
    LogDirDescription,
    LogDirPartition,
    Loss,
    StateChange,
)
from .wakeups import Wakeups

TELL_NO_LOG_START: Final = (
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
"""Errors of Produce that come without the log's start offset, as in Kafka."""
INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))
_DOMAIN: Final = "kafka.server"
_TYPE: Final = "ReplicaManager"

RoleListener = Callable[[RoleChanges], object]


class World:
    """What the partitions of this broker share; see `PartitionWorld`."""

    def __init__(
        self,
        broker_id: int,
        lag_time_max_s: float,
        *,
        clock: Clock,
        metadata: MetadataCache,
        changed: Callable[[Partition, int], None],
        propose_isr: Callable[[Partition, IsrProposal], None],
        journal: Callable[[StateChange], None],
        lost: Callable[[Loss], None],
    ) -> None:
        self.broker_id = broker_id
        self.lag_time_max_s = lag_time_max_s
        self.monotonic = clock.monotonic
        self.now_ms = clock.now_ms
        self.is_alive = metadata.is_alive
        self.changed = changed
        self.propose_isr = propose_isr
        self.journal = journal
        self.lost = lost


class ReplicaManager:
    """The hosted partitions of one broker.

    `broker_epoch` gives the epoch of the present registration; `send_to_controller` see
    `IsrManager`; `fetch_peers(index)` makes the connections of one fetcher index.  `journal` is
    given every change of role or ISR, `loss_ledger` every truncation below a high watermark.
    `dir_failed(path)` is called once per failed log directory after its partitions went offline.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        wheel: TimerWheel,
        logs: LogManager,
        disk: Disk,
        metadata: MetadataCache,
        metrics: Metrics,
        logger: logging.Logger,
        state_change_logger: logging.Logger,
        broker_epoch: Callable[[], int],
        send_to_controller: "Callable[[AlterPartitionRequest], Deferred[AlterPartitionResponse]]",
        fetch_peers: Callable[[int], FetchPeers],
        dir_failed: Callable[[str], object] = lambda path: None,
        journal: Callable[[StateChange], object] = lambda change: None,
        loss_ledger: Callable[[Loss], object] = lambda loss: None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._logs = logs
        self._disk = disk
        self._metadata = metadata
        self._logger = logger
        self._state_change_logger = state_change_logger
        self._dir_failed = dir_failed
        self._journal = journal
        self._loss_ledger = loss_ledger
        self._listeners: list[RoleListener] = []
        self._failed_dirs: set[str] = set()
        self._shortened: dict[TopicPartition, tuple[Log | None, int, int]] = {}
        """Logs too short since the start (None: gone), until they have a role; with the high watermark
        they had and their latest epoch then."""
        self._alive: frozenset[int] = frozenset()
        """The brokers of the last UpdateMetadata."""
        self._shrink_timer: Timer | None = None
        self._shrink_period_s = config.replica_lag_time_max_ms / 2000
        self._hosted = HostedPartitions(metadata)
        self._wakeups = Wakeups(wheel, clock.call_soon)
        self._isr = IsrManager(
            config.broker_id,
            clock=clock,
            send_to_controller=send_to_controller,
            broker_epoch=broker_epoch,
            logger=logger,
            decided=self._isr_decided,
        )
        self._world = World(
            config.broker_id,
            config.replica_lag_time_max_ms / 1000,
            clock=clock,
            metadata=metadata,
            changed=self._wakeups.changed,
            propose_isr=self._isr.submit,
            journal=self._record_change,
            lost=self._record_loss,
        )
        self._reader = Reader(
            self._hosted,
            throttle=self._make_quota(leader_replicas),
            selector=_make_selector(config, metadata, clock, logger),
        )
        self._fetchers = FetcherManager(
            config,
            clock=clock,
            hosted=self._hosted,
            peers=fetch_peers,
            broker_epoch=broker_epoch,
            logger=logger,
            metrics=metrics,
            throttle=self._make_quota(follower_replicas),
            flush=logs.flush,
        )
        self._roles = Roles(
            config.broker_id,
            world=self._world,
            hosted=self._hosted,
            logs=logs,
            metadata=metadata,
            fetchers=self._fetchers,
            broker_epoch=broker_epoch,
            logger=state_change_logger,
        )
        self._movers = LogDirMovers(
            clock=clock,
            logs=logs,
            hosted=self._hosted,
            world=self._world,
            throttle=self._make_quota(lambda _: ()),
            logger=logger,
        )
        self._expired_produce = metrics.counter(_DOMAIN, "DelayedProduceMetrics", "ExpiresPerSec")
        self._isr_shrinks = metrics.counter(_DOMAIN, _TYPE, "IsrShrinksPerSec")
        self._isr_expands = metrics.counter(_DOMAIN, _TYPE, "IsrExpandsPerSec")
        self._isr_failures = metrics.counter(_DOMAIN, _TYPE, "FailedIsrUpdatesPerSec")
        self._register_gauges(metrics)

        self.broker_config_changed(config)

    def _make_quota(self, replicas: Callable[[LogConfig], tuple[str, ...]]) -> ReplicationQuota:
        def listed(topic_partition: TopicPartition) -> tuple[str, ...]:
            partition = self._hosted.get(topic_partition)
            log = None if partition is None else partition.log
            return () if log is None else replicas(log.config)

        return ReplicationQuota(
            self._config.broker_id,
            self._clock,
            listed,
            sample_count=self._config.replication_quota_window_num,
            sample_s=self._config.replication_quota_window_size_seconds,
        )

    def broker_config_changed(self, config: BrokerConfig) -> None:
        """Dynamic broker settings: throttle rates, num.replica.fetchers."""
        self._reader.throttle.limit = parse_rate(
            config.originals.get("leader.replication.throttled.rate")
        )
        self._fetchers.throttle.limit = parse_rate(
            config.originals.get("follower.replication.throttled.rate")
        )
        self._movers.throttle.limit = parse_rate(
            config.originals.get("replica.alter.log.dirs.io.max.bytes.per.second")
        )
        self._fetchers.resize(config.num_replica_fetchers)

    # -- lookup --------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The hosted partition when it is online, else None."""
        return self._hosted.get(topic_partition)

    def hosted_partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition, whatever its role here.  Raises as `leader_partition`."""
        return self._hosted.require(topic_partition)

    def leader_partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition led by this broker.

        Raises KafkaStorageError (offline), NotLeaderOrFollower (known to the cluster, not led here)
        or UnknownTopicOrPartition.
        """
        partition = self._hosted.require(topic_partition)
        if not partition.is_leader:
            raise NotLeaderOrFollower(f"{topic_partition} is not led here")
        return partition

    def online_partitions(self) -> Iterable[Partition]:
        """All hosted partitions whose log directory works."""
        return self._hosted

    @property
    def fetchers(self) -> FetcherManager:
        """The follower side."""
        return self._fetchers

    # -- orders of the controller --------------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        """Take on the roles of a LeaderAndIsr, any version 0-7; answers every partition."""
        response, changes = self._roles.become(request, version)
        self._movers.resume()
        self._after_order(changes)
        return response

    def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Stop and perhaps delete replicas, any version 0-4; answers every partition."""
        response, changes = self._roles.stop(request, version)
        for stopped in changes.stopped:
            self._movers.stopped(stopped.topic_partition, deleted=stopped.deleted)
        self._after_order(changes)
        return response

    def check_controller_epoch(self, controller_epoch: int, broker_epoch: int) -> int:
        """For UpdateMetadata: the error code (STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH) or NONE.

        Remembers the highest controller epoch.
        """
        return self._roles.check_epochs(controller_epoch, broker_epoch)

    def metadata_updated(self) -> None:
        """Call after the metadata cache took an UpdateMetadata.

        A follower that died no longer holds up DeleteRecords and the high watermark.
        """
        before, self._alive = self._alive, frozenset(self._metadata.alive_brokers())
        if before - self._alive:
            for partition in self._hosted:
                partition.reconsider_high_watermark()
        if self._wakeups.delete_records.delayed:
            for partition in self._hosted:
                if self._wakeups.delete_records.watches(partition.topic_partition):
                    self._wakeups.changed(partition, Changed.LOG_START)

    def note_shortened_logs(self, marks: Mapping[TopicPartition, int]) -> None:
        """Logs that end below the high watermark they had before this start.

        Whoever follows fetches the rest again; whoever leads has lost it, and that is recorded.
        """
        for topic_partition, mark in marks.items():
            log = self._logs.get_log(topic_partition)
            epoch = None if log is None else log.latest_epoch
            self._shortened[topic_partition] = log, mark, NO_EPOCH if epoch is None else epoch

    def on_role_change(self, listener: RoleListener) -> None:
        """Be told after each order: new leaders, new followers, stopped replicas."""
        self._listeners.append(listener)

    def begin_shutdown(self) -> None:
        """Start no more fetchers: the controller is moving leaders away from here."""
        self._roles.shutting_down = True

    def release_waiting(self) -> None:
        """Answer every request that waits, as if its time were up: nothing will happen here any more.

        Else producers would wait for replicas, on a broker that has closed its doors.
        """
        self._wakeups.expire_all()

    def _after_order(self, changes: RoleChanges) -> None:
        # Those who wait for a lost leadership are answered before a later order may give it back.
        self._wakeups.drain()
        if self._shortened:
            self._settle_shortened(changes)
        if changes.leaders or changes.followers or changes.stopped:
            for listener in self._listeners:
                listener(changes)

    def _settle_shortened(self, changes: RoleChanges) -> None:
        for stopped in changes.stopped:
            self._shortened.pop(stopped.topic_partition, None)
        for partition in changes.followers:
            self._shortened.pop(partition.topic_partition, None)
        for partition in changes.leaders:
            before, mark, epoch = self._shortened.pop(
                partition.topic_partition, (None, 0, NO_EPOCH)
            )
            log = partition.log
            if log is None or log is not (before or log) or log.log_end_offset >= mark:
                continue
            self._record_loss(
                Loss(
                    topic_partition=partition.topic_partition,
                    old_leader_epoch=epoch,
                    new_leader_epoch=partition.leader_epoch,
                    first_offset=log.log_end_offset,
                    end_offset=mark,
                    bytes=None,
                    producer_ids=(),
                    time_ms=self._clock.now_ms(),
                    log_end_offset=log.log_end_offset,
                )
            )

    # -- produce -------------------------------------------------------------------------------

    def append(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: Origin = "client",
        internal_topics_allowed: bool = False,
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]":
        """Append records as leader; one result an entry, in order.  Never raises KafkaError.

        acks -1 waits until the high watermark covers the records or `timeout_ms` passed (then
        REQUEST_TIMED_OUT, data stays).  Record buffers may be changed in place (offsets, epochs)
        and are not kept.
        """
        results: list[AppendResult] = []
        must_wait = False
        flushes: list[Log] | None = None
        hosted = self._hosted.get
        for entry in entries:
            topic_partition = entry.topic_partition
            partition = hosted(topic_partition)
            try:
                if required_acks not in (-1, 0, 1):
                    raise InvalidRequiredAcks(f"acks {required_acks} is none of -1, 0, 1")
                if topic_partition[0] in INTERNAL_TOPICS and not (
                    internal_topics_allowed or origin != "client"
                ):
                    raise InvalidTopicException(f"{topic_partition.topic} is an internal topic")
                if partition is None:
                    raise self._hosted.absence(topic_partition)
                info = partition.append_as_leader(
                    entry.records,
                    required_acks=required_acks,
                    origin=origin,
                    verification=entry.verification,
                    deep=entry.deep,
                )
            except KafkaError as error:
                result = AppendResult(topic_partition)
                results.append(result)
                _refuse(result, error)
                if (
                    partition is not None
                    and partition.log is not None
                    and not isinstance(error, TELL_NO_LOG_START)
                ):
                    result.log_start_offset = partition.log.log_start_offset
                continue
            last_offset = info.last_offset
            results.append(
                AppendResult(
                    topic_partition,
                    NONE,
                    info.first_offset,
                    last_offset,
                    info.max_timestamp if info.duplicate else info.log_append_time_ms,
                    info.log_start_offset,
                    None,
                    (),
                    partition.leader_epoch,
                )
            )
            log = partition.log
            assert log is not None
            if required_acks == -1 and log.high_watermark <= last_offset:
                must_wait = True
            if info.needs_flush:
                flushes = [log] if flushes is None else [*flushes, log]
        if flushes is not None and required_acks != 0:
            return self._flush_then(flushes, results, must_wait, timeout_ms)
        if must_wait:
            return self._await_replication(results, timeout_ms)
        return results

    def _await_replication(
        self, results: list[AppendResult], timeout_ms: int
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]":
        operation = DelayedProduce(results, self._hosted, self._expired_produce.mark)
        keys = [result.topic_partition for result in results if result.error_code == NONE]
        if self._wakeups.produce.watch(operation, keys, timeout_ms / 1000):
            return results
        for result in results:
            partition = self._hosted.get(result.topic_partition)
            if partition is not None:
                self._wakeups.await_first_fetch(partition)
        return operation.answer

    def _flush_then(
        self, logs: list[Log], results: list[AppendResult], must_wait: bool, timeout_ms: int
    ) -> "Deferred[list[AppendResult]]":
        """flush.messages asks for the device before the acknowledgement."""
        flushed: Deferred[Any] = DeferredList(
            [self._logs.flush(log) for log in logs], fireOnOneErrback=False, consumeErrors=True
        )

        def go_on(outcomes: "list[tuple[bool, Any]]") -> Any:
            for log, (succeeded, _) in zip(logs, outcomes, strict=True):
                if not succeeded:
                    for result in results:
                        if result.topic_partition == log.topic_partition:
                            _refuse(result, KafkaStorageError("the log could not be flushed"))
            if must_wait:
                return self._await_replication(results, timeout_ms)
            return results

        return flushed.addCallback(go_on)

    # -- fetch ---------------------------------------------------------------------------------

    def fetch(
        self, params: FetchParams, context: FetchContext
    ) -> "FetchResponse | Deferred[FetchResponse]":
        """Read for a consumer or a follower; waits up to `max_wait_ms` for `min_bytes`.

        `context` comes from `FetchSessions.begin`.  Partitions whose `error_code` the handler set
        are answered with it and not read.
        """
        found = self._reader.read(params, context, record_progress=True)
        if (
            params.max_wait_ms <= 0
            or found.answer_now
            or found.size_bytes >= params.min_bytes
            or found.refused == context.size
        ):
            self._reader.count_sent(params, found.results)
            return context.respond(found.results)
        operation = DelayedFetch(self._reader, params, context)
        purgatory = self._wakeups.consumers if params.reads_committed else self._wakeups.followers
        keys: Iterable[object]
        if context.session is not None:
            keys = (context.session,)
        else:
            keys = [entry.topic_partition for entry in context.partitions()]
        if params.replica_id >= 0:
            keys = (*keys, params.replica_id)
        purgatory.watch(operation, keys, params.max_wait_ms / 1000)
        return operation.answer

    # -- offsets -------------------------------------------------------------------------------

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        version: int,
        replica_id: int,
        isolation_level: int,
        current_leader_epoch: int = NO_EPOCH,
    ) -> ListedOffset:
        """ListOffsets for one partition.  Raises KafkaError (reference: broker-errors 5)."""
        partition = self._hosted.require(topic_partition)
        if replica_id != CONSUMER:
            isolation = FetchIsolation.LOG_END
        elif isolation_level == READ_COMMITTED:
            isolation = FetchIsolation.TXN_COMMITTED
        else:
            isolation = FetchIsolation.HIGH_WATERMARK
        try:
            return partition.list_offset(
                timestamp,
                isolation,
                None if current_leader_epoch == NO_EPOCH else current_leader_epoch,
                only_leader=replica_id != DEBUGGING_CONSUMER,
            )
        except OffsetNotAvailable as error:
            if version >= 5:
                raise
            raise LeaderNotAvailable(error.message) from error

    def offset_for_leader_epoch(
        self,
        topic_partition: TopicPartition,
        *,
        current_leader_epoch: int,
        leader_epoch: int,
        replica_id: int,
    ) -> EpochEndOffset:
        """OffsetForLeaderEpoch for one partition.  Raises KafkaError."""
        partition = self._hosted.require(topic_partition)
        return partition.offset_for_leader_epoch(
            None if current_leader_epoch == NO_EPOCH else current_leader_epoch,
            leader_epoch,
            only_leader=True,
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> "dict[TopicPartition, DeleteRecordsResult] | Deferred[dict[TopicPartition, DeleteRecordsResult]]":  # noqa: E501
        """Move log starts; waits until all live replicas have followed or `timeout_ms` passed."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        targets: list[DeleteTarget] = []
        for topic_partition, offset in offsets.items():
            try:
                if topic_partition.topic in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"{topic_partition.topic} is an internal topic")
                partition = self._hosted.require(topic_partition)
                target = partition.delete_records(offset)
                results[topic_partition] = DeleteRecordsResult(partition.low_watermark)
                targets.append(DeleteTarget(topic_partition, target))
            except KafkaError as error:
                results[topic_partition] = DeleteRecordsResult(error_code=error.code)
        operation = DelayedDelete(results, targets, self._hosted, lambda one: one.low_watermark)
        keys = [target.topic_partition for target in targets]
        if not targets or self._wakeups.delete_records.try_complete_else_watch(
            operation, keys, timeout_ms / 1000
        ):
            return results
        return operation.answer

    # -- log directories -----------------------------------------------------------------------

    def log_dir_failed(self, path: str) -> None:
        """A log directory is no longer usable: its partitions go offline until a restart."""
        if path in self._failed_dirs:
            return
        self._failed_dirs.add(path)
        gone = [
            partition
            for partition in self._hosted
            if partition.log is not None and partition.log.parent_dir == path
        ]
        self._logger.error("log directory %s failed, %d partitions go offline", path, len(gone))
        self._fetchers.remove([partition.topic_partition for partition in gone])
        self._movers.dir_failed(path)
        for partition in gone:
            self._hosted.take_offline(partition.topic_partition)
            partition.record("offline")
            partition.stop()
        self._dir_failed(path)

    def alter_log_dirs(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
        """AlterReplicaLogDirs: where each replica should lie; error code by partition.

        Moves run in the background (reference: log-store 10).
        """
        return self._movers.alter(targets)

    def describe_log_dirs(
        self, partitions: set[TopicPartition] | None = None
    ) -> list[LogDirDescription]:
        """Every log directory with its logs (all, or only those asked for)."""
        by_dir: dict[str, list[LogDirPartition]] = {path: [] for path in self._logs.live_dirs}
        for log in self._logs.all_logs():
            key = log.topic_partition
            if log.parent_dir in by_dir and (partitions is None or key in partitions):
                by_dir[log.parent_dir].append(
                    LogDirPartition(key, log.size, self._offset_lag(log), log.is_future)
                )
        described = []
        for path, logs in by_dir.items():
            total, usable = -1, -1
            try:
                total, usable = self._disk.space(path)
            except StorageError as error:
                self._logger.warning("cannot ask for the space of %s: %s", path, error)
            described.append(LogDirDescription(path, NONE, logs, total, usable))
        described.extend(
            LogDirDescription(path, KafkaStorageError.code, []) for path in self._logs.offline_dirs
        )
        return described

    def _offset_lag(self, log: Log) -> int:
        if not log.is_future:
            return max(log.high_watermark - log.log_end_offset, 0)
        current = self._logs.get_log(log.topic_partition)
        return -1 if current is None else current.log_end_offset - log.log_end_offset

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the ISR timer.  The logs are loaded."""
        self._movers.adopt(log.topic_partition for log in self._logs.all_logs() if log.is_future)
        self._shrink_timer = self._clock.call_later(self._shrink_period_s, self._shrink_isrs)

    def stop(self) -> "Deferred[None]":
        """Stop fetchers and timers, complete what waits, write high watermarks."""
        self.begin_shutdown()
        if self._shrink_timer is not None:
            self._shrink_timer.cancel()
            self._shrink_timer = None
        self._fetchers.stop()
        self._movers.stop()
        self._isr.stop()
        self._wakeups.expire_all()
        for partition in self._hosted:
            if partition.log is not None:
                partition.record("closed")
        return self._logs.checkpoint_high_watermarks()

    def _shrink_isrs(self) -> None:
        self._shrink_timer = self._clock.call_later(self._shrink_period_s, self._shrink_isrs)
        for partition in self._hosted:
            partition.maybe_shrink_isr()
            partition.reconsider_high_watermark()

    def _isr_decided(self, partition: Partition, proposal: IsrProposal, code: int) -> None:
        if code != NONE:
            self._isr_failures.mark()
        elif proposal.expands:
            self._isr_expands.mark()
        else:
            self._isr_shrinks.mark()

    def _record_change(self, change: StateChange) -> None:
        self._state_change_logger.info(
            "%s %s: leader=%d leader_epoch=%d isr=%s partition_epoch=%d controller_epoch=%d"
            " high_watermark=%d log_end_offset=%d",
            change.topic_partition,
            change.kind,
            change.leader,
            change.leader_epoch,
            change.isr,
            change.partition_epoch,
            change.controller_epoch,
            change.high_watermark,
            change.log_end_offset,
        )
        self._journal(change)

    def _record_loss(self, loss: Loss) -> None:
        self._state_change_logger.warning(
            "%s loses offsets %d to %d below its high watermark: leader epoch %d gives way to %d",
            loss.topic_partition,
            loss.first_offset,
            loss.end_offset - 1,
            loss.old_leader_epoch,
            loss.new_leader_epoch,
        )
        self._loss_ledger(loss)

    def _register_gauges(self, metrics: Metrics) -> None:
        def count(test: Callable[[Partition], bool]) -> Callable[[], float]:
            return lambda: sum(1 for partition in self._hosted if test(partition))

        for name, read in {
            "LeaderCount": count(lambda p: p.is_leader),
            "PartitionCount": lambda: len(self._hosted),
            "OfflineReplicaCount": lambda: self._hosted.offline_count,
            "UnderReplicatedPartitions": count(lambda p: p.is_under_replicated),
            "UnderMinIsrPartitionCount": count(lambda p: p.is_under_min_isr),
            "AtMinIsrPartitionCount": count(lambda p: p.is_at_min_isr),
            "ReassigningPartitions": count(lambda p: p.is_leader and p.is_reassigning),
        }.items():
            metrics.gauge(_DOMAIN, _TYPE, name, read)
        wakeups = self._wakeups
        for kind, purgatories in {
            "Produce": [wakeups.produce],
            "Fetch": [wakeups.consumers, wakeups.followers],
            "DeleteRecords": [wakeups.delete_records],
        }.items():
            _register_purgatory(metrics, kind, purgatories)


def _register_purgatory(metrics: Metrics, kind: str, purgatories: list[Purgatory]) -> None:
    name = (_DOMAIN, "DelayedOperationPurgatory")
    metrics.gauge(
        *name, "PurgatorySize", lambda: sum(p.watched for p in purgatories), delayedOperation=kind
    )
    metrics.gauge(
        *name,
        "NumDelayedOperations",
        lambda: sum(p.delayed for p in purgatories),
        delayedOperation=kind,
    )


def _make_selector(
    config: BrokerConfig, metadata: MetadataCache, clock: Clock, logger: logging.Logger
) -> RackSelector | None:
    """What replica.selector.class asks for; Kafka's own classes only."""
    name = config.replica_selector_class
    if name == RACK_AWARE:
        return RackSelector(metadata, clock)
    if name and name != LEADER:
        logger.error("replica.selector.class=%s is not known here: consumers read leaders", name)
    return None


def _refuse(result: AppendResult, error: KafkaError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.record_errors = error.record_errors
    result.base_offset = result.last_offset = result.log_append_time_ms = -1
