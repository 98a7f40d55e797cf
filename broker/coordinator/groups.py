"""The group coordinator of one broker: which groups are here, and everything that is asked of them.

It owns the shards, one for each partition of `__consumer_offsets` that this broker leads: loads them
when leadership comes, lets their groups die when it goes.  What changes a group is written to the
partition first where it must survive, and answered once it is replicated.  A method that may wait
returns its plain result when nothing waits and a Deferred of it otherwise (as `ReplicaManager` does).

Reference: group-coordinator 1, 7 to 12; broker-errors 9.  KIPs: 211, 229, 496, 518, 699, 709.
"""

import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidFetchSize,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NetworkException,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from kafkalike.metrics import Metrics
from kafkalike.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.runtime.ports import Clock, Disk, Random, Threads, Timer
from kafkalike.runtime.tasks import TimerWheel, WheelTimer
from kafkalike.types import TopicPartition, java_hash
from kafkalike.zk.client import ZkError

from ..cluster.topic_names import GROUP_METADATA_TOPIC
from ..log.log import Origin
from ..replica.partition import Partition
from ..replica.roles import RoleChanges
from ..replica.values import AppendEntry, AppendResult
from .answer import Answer
from .consumer_group import ConsumerGroup
from .consumer_groups import ConsumerGroups, GroupSettings
from .consumer_membership import COMMIT_WITH_EPOCH_SINCE
from .group import Group, GroupState
from .member_steps import ConsumerRules
from .membership import Membership
from .records import group_key, group_record, offset_key, offset_records, tombstone
from .shard import Shard, ShardLoad
from .topics import Topics
from .values import (
    NO_GENERATION,
    NO_MEMBER,
    NO_OFFSET,
    Caller,
    DeletedOffsets,
    FetchedOffset,
    GroupOverview,
    GroupSummary,
    JoinCall,
    JoinResult,
    LeaveResult,
    MemberIdentity,
    OffsetAndMetadata,
    SyncCall,
    SyncResult,
)

LOAD_RETRY_S: Final = 1.0
"""Pause before a log that could not be read is tried again."""
SWEEP_SLICE: Final = 200
"""Groups looked at in one go when offsets expire or topics are deleted."""
DISMANTLE_SLICE: Final = 10_000
"""Groups and offsets let go of in one go."""

_DOMAIN: Final = "kafka.coordinator.group"
_TYPE: Final = "GroupMetadataManager"
_KAFKA_METRICS: Final = ("kafka.server", "group-coordinator-metrics")

Codes = dict[TopicPartition, int]
"""An error code for each partition."""
Appended = Callable[[int, int], None]
"""Told how an append ended: error code of the partition, base offset."""


class Replicas(Protocol):
    """What the coordinator needs of the replica manager."""

    def partition(self, topic_partition: TopicPartition) -> Partition | None: ...

    def append(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: Origin,
        internal_topics_allowed: bool,
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]": ...


class GroupCoordinator:
    """All groups whose partition this broker leads.

    `read_partition_count()` answers how many partitions `__consumer_offsets` has in ZooKeeper, None
    when it does not exist; nothing is served before that is known, as groups would be looked for in
    the wrong place.  Logs are read through `threads`; snapshots beside them are used and written where
    there is a `disk`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        wheel: TimerWheel,
        random: Random,
        replicas: Replicas,
        read_partition_count: "Callable[[], Awaitable[int | None]]",
        metrics: Metrics,
        logger: logging.Logger,
        threads: Threads,
        disk: Disk | None = None,
        topics: Topics | None = None,
        settings: GroupSettings | None = None,
    ) -> None:
        """`topics` and `settings` serve the groups of the newer protocol, which there are where
        group.coordinator.rebalance.protocols names it and both are given."""
        self._config = config
        self._clock = clock
        self._wheel = wheel
        self._threads = threads
        self._disk = disk
        self._random = random
        self._replicas = replicas
        self._read_partition_count = read_partition_count
        self._logger = logger
        self._shards: dict[int, Shard] = {}
        self._loads: deque[tuple[Shard, ShardLoad, float]] = deque()
        self._load_timer: Timer | None = None
        self._load_waits = False
        """Something is being read elsewhere for the load at the head."""
        self._sweeps: deque[Iterator[None]] = deque()
        self._sweep_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        self._partition_count: int | None = None
        self._counting = False
        self._active = False
        self._retention_ms = config.offsets_retention_minutes * 60_000
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._membership = Membership(
            self,
            logger,
            max_size=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        )
        self.consumers: ConsumerGroups | None = None
        """Groups of the newer protocol, where it is switched on."""
        if config.serves_consumer_protocol and topics is not None and settings is not None:
            rules = ConsumerRules(
                config.consumer_assignors,
                config.group_consumer_max_size,
                config.group_max_size,
                config.group_consumer_migration_policy.lower(),
            )
            self.consumers = ConsumerGroups(self, topics, settings, rules, logger)
        self._commits = metrics.counter(*_KAFKA_METRICS, "offset-commit-count")
        self._expirations = metrics.counter(*_KAFKA_METRICS, "offset-expiration-count")
        self._deletions = metrics.counter(*_KAFKA_METRICS, "offset-deletion-count")
        self._rebalances = metrics.counter(*_KAFKA_METRICS, "group-completed-rebalance-count")
        self._load_times = metrics.histogram(*_KAFKA_METRICS, "partition-load-time")
        self._register_gauges(metrics)

    def _register_gauges(self, metrics: Metrics) -> None:
        def count(state: GroupState | None) -> Callable[[], float]:
            return lambda: sum(state in (None, group.state) for group in self._groups())

        metrics.gauge(_DOMAIN, _TYPE, "NumGroups", count(None))
        for name, state in {
            "NumGroupsPreparingRebalance": GroupState.PREPARING_REBALANCE,
            "NumGroupsCompletingRebalance": GroupState.COMPLETING_REBALANCE,
            "NumGroupsStable": GroupState.STABLE,
            "NumGroupsEmpty": GroupState.EMPTY,
            "NumGroupsDead": GroupState.DEAD,
        }.items():
            metrics.gauge(_DOMAIN, _TYPE, name, count(state))
        metrics.gauge(
            _DOMAIN, _TYPE, "NumOffsets", lambda: sum(len(g.offsets) for g in self._groups())
        )

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve from now on; returns once the partition count is known or there is none."""
        self._active = True
        await self.learn_partition_count()
        self._expiry_timer = self._clock.call_later(self._check_interval_s, self._expire_offsets)

    async def learn_partition_count(self) -> None:
        """Ask ZooKeeper how many partitions the topic has, unless that is known."""
        if self._partition_count is not None or self._counting:
            return
        self._counting = True
        try:
            self._partition_count = await self._read_partition_count()
        except ZkError as error:
            self._logger.warning("cannot read the partitions of the offsets topic: %s", error)
        finally:
            self._counting = False

    def _learn_soon(self) -> None:
        """What a coordinator must know that was made known to others."""
        if self._partition_count is None and self._shards:
            Deferred.fromCoroutine(self.learn_partition_count())

    def stop(self) -> None:
        """Answer what waits and do nothing more; later calls hear COORDINATOR_NOT_AVAILABLE."""
        self._active = False
        for timer in (self._load_timer, self._sweep_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._load_timer = self._sweep_timer = self._expiry_timer = None
        self._loads.clear()
        self._sweeps.clear()
        for partition in list(self._shards):
            self._unload(partition, "the broker stops")

    @property
    def partition_count(self) -> int | None:
        """Partitions of `__consumer_offsets`; None while unknown."""
        return self._partition_count

    def partition_for(self, group_id: str) -> int | None:
        """The partition that holds a group; None while the partition count is unknown."""
        count = self._partition_count
        return None if count is None else abs_java_hash(group_id) % count

    def _groups(self) -> Iterator[Group]:
        for shard in self._shards.values():
            yield from shard.groups.values()

    # -- what groups need (GroupHost) ----------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer:
        return self._wheel.call_later(delay_s, callback, *args)

    def new_id(self) -> str:
        """A random UUID (version 4)."""
        raw = bytearray(self._random.bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def new_uuid(self) -> str:
        """A random UUID as the newer protocol writes it; none begins with a dash."""
        while True:
            text = urlsafe_b64encode(self._random.bytes(16)).decode().rstrip("=")
            if not text.startswith("-"):
                return text

    def store_group(
        self, group: Group, assignments: Mapping[str, bytes], done: Callable[[int], None]
    ) -> None:
        shard = self._shard_of(group.group_id)
        if shard is None:
            done(NotCoordinator.code)
            return
        self._rebalances.mark(group.state is GroupState.COMPLETING_REBALANCE)
        record = group_record(group, assignments, self._clock.now_ms())
        self._append(shard, [record], lambda code, _: done(_store_error(code)))

    # -- leadership ----------------------------------------------------------------------------

    def roles_changed(self, changes: RoleChanges) -> None:
        """Partitions of the topic that came, went or were stopped."""
        for key in [
            *(p.topic_partition for p in changes.followers),
            *(s.topic_partition for s in changes.stopped),
        ]:
            if key.topic == GROUP_METADATA_TOPIC:
                self._unload(key.partition, "leadership moved")
        for partition in changes.leaders:
            if partition.topic_partition.topic == GROUP_METADATA_TOPIC:
                self._begin_load(partition)

    def drop_offline(self) -> None:
        """A log directory failed: what lay there is no longer served from here."""
        for number in list(self._shards):
            if self._replicas.partition(TopicPartition(GROUP_METADATA_TOPIC, number)) is None:
                self._unload(number, "the log directory failed")

    def _begin_load(self, partition: Partition) -> None:
        number = partition.topic_partition.partition
        if not self._active or number in self._shards or partition.log is None:
            return
        shard = Shard(number, partition.leader_epoch)
        self._shards[number] = shard
        self._learn_soon()
        self._enqueue_load(shard, partition)

    def _enqueue_load(self, shard: Shard, partition: Partition) -> None:
        assert partition.log is not None
        load = ShardLoad(
            partition.log,
            self._clock.monotonic,
            self._clock.now_ms,
            self._logger,
            buffer_bytes=self._config.offsets_load_buffer_size,
            threads=self._threads,
            disk=self._disk,
            with_consumer_groups=self.consumers is not None,
        )
        self._loads.append((shard, load, self._clock.monotonic()))
        self._schedule_load()

    def _load_slice(self) -> None:
        """A little of the oldest load, then the loop's turn."""
        self._load_timer = None
        if not self._loads:
            return  # stopped while something was being read
        shard, load, began_s = self._loads[0]
        if self._shards.get(shard.partition) is not shard:
            self._loads.popleft()
            load.close()
        else:
            try:
                outcome = load.step()
                if isinstance(outcome, Deferred):
                    self._load_waits = True
                    outcome.addCallback(self._load_on)
                    return
                if outcome:
                    self._loads.popleft()
                    self._loaded(shard, load, began_s)
            except KafkaError as error:
                self._loads.popleft()
                self._logger.error(
                    "cannot load %s-%d, trying again: %s",
                    GROUP_METADATA_TOPIC,
                    shard.partition,
                    error,
                )
                self._wheel.call_later(LOAD_RETRY_S, self._load_again, shard)
        self._schedule_load()

    def _load_on(self, _: None) -> None:
        self._load_waits = False
        self._schedule_load()

    def _schedule_load(self) -> None:
        if self._loads and self._load_timer is None and not self._load_waits:
            self._load_timer = self._clock.call_later(0, self._load_slice)

    def _load_again(self, shard: Shard) -> None:
        if self._shards.get(shard.partition) is not shard:
            return
        key = TopicPartition(GROUP_METADATA_TOPIC, shard.partition)
        partition = self._replicas.partition(key)
        if partition is None or partition.log is None:
            self._unload(shard.partition, "the partition is gone")
        else:
            self._enqueue_load(shard, partition)

    def _loaded(self, shard: Shard, load: ShardLoad, began_s: float) -> None:
        shard.groups = load.groups
        shard.producers = load.producers
        shard.is_loading = False
        for group in list(shard.groups.values()):
            self._membership.loaded(group)
        if self.consumers is not None:
            self.consumers.loaded(shard.partition, load.consumer_groups)
        took_s = self._clock.monotonic() - began_s
        self._load_times.update(took_s * 1000)
        self._logger.info(
            "loaded partition=%s-%d leader_epoch=%d groups=%d snapshot_offset=%s records=%d "
            "seconds=%.3f",
            GROUP_METADATA_TOPIC,
            shard.partition,
            shard.leader_epoch,
            len(shard.groups),
            load.snapshot_offset,
            load.record_count,
            took_s,
        )

    def _unload(self, number: int, reason: str) -> None:
        shard = self._shards.pop(number, None)
        if shard is None:
            return
        self._logger.info(
            "unloaded partition=%s-%d groups=%d reason=%s",
            GROUP_METADATA_TOPIC,
            number,
            len(shard.groups),
            reason,
        )
        if self.consumers is not None:
            self.consumers.unloaded(number)
        for group in shard.groups.values():
            if group.is_active:
                self._membership.end(group)
        # Millions of offsets are not let go of in one turn.
        self._start_sweep(_dismantle(shard.groups))

    # -- finding a group -----------------------------------------------------------------------

    def _shard_of(self, group_id: str) -> Shard | None:
        """The loaded shard of a group, if this broker has it."""
        count = self._partition_count
        if count is None:
            return None
        shard = self._shards.get(abs_java_hash(group_id) % count)
        return None if shard is None or shard.is_loading else shard

    def check(self, group_id: str, *, empty_allowed: bool = False) -> int:
        """What every group API asks first: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR or NONE."""
        if not group_id and not empty_allowed:
            return InvalidGroupId.code
        if not self._active:
            return CoordinatorNotAvailable.code
        count = self._partition_count
        if count is None:
            self._learn_soon()
            return NotCoordinator.code
        shard = self._shards.get(abs_java_hash(group_id) % count)
        if shard is None:
            return NotCoordinator.code
        return CoordinatorLoadInProgress.code if shard.is_loading else NONE

    def _group(self, group_id: str) -> Group | None:
        shard = self._shard_of(group_id)
        return None if shard is None else shard.groups.get(group_id)

    def _new_group(self, group_id: str) -> Group:
        shard = self._shard_of(group_id)
        assert shard is not None
        group = shard.groups[group_id] = Group(group_id, self._clock.now_ms())
        return group

    # -- what groups of the newer protocol need (Store) ----------------------------------------

    def _consumer(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is one of the newer protocol."""
        return None if self.consumers is None else self.consumers.get(group_id)

    def loaded_partition(self, group_id: str) -> int | None:
        shard = self._shard_of(group_id)
        return None if shard is None else shard.partition

    def classic_group(self, group_id: str) -> Group | None:
        group = self._group(group_id)
        return None if group is None or group.is_dead else group

    def put_classic_group(self, group: Group, *, rebalances: bool) -> None:
        shard = self._shard_of(group.group_id)
        assert shard is not None
        former = shard.groups.get(group.group_id)
        if former is not None:
            group.offsets = former.offsets
        shard.groups[group.group_id] = group
        self._membership.loaded(group)
        if rebalances:
            self._membership.rebalance(group, "the group speaks the classic protocol again")

    def dissolve_classic_group(self, group: Group) -> None:
        self._membership.end(group, RebalanceInProgress.code)
        self._new_group(group.group_id).offsets = group.offsets

    def append_records(self, partition: int, records: list[Record], done: Appended) -> None:
        self._append(self._shards[partition], records, done)

    def end_offset(self, partition: int) -> int:
        found = self._replicas.partition(TopicPartition(GROUP_METADATA_TOPIC, partition))
        return NO_OFFSET if found is None or found.log is None else found.log.log_end_offset

    def is_replicated(self, partition: int, end_offset: int) -> bool:
        found = self._replicas.partition(TopicPartition(GROUP_METADATA_TOPIC, partition))
        return (
            found is not None and found.log is not None and found.log.high_watermark >= end_offset
        )

    # -- membership ----------------------------------------------------------------------------

    def join(self, call: JoinCall) -> "JoinResult | Deferred[JoinResult]":
        """JoinGroup."""
        code = self.check(call.group_id)
        if code != NONE:
            return JoinResult(code, call.member_id)
        config = self._config
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= call.session_timeout_ms <= high:
            return JoinResult(InvalidSessionTimeout.code, call.member_id)
        consumer = self._consumer(call.group_id)
        if consumer is not None and self.consumers is not None:
            if not consumer.is_empty:
                return self.consumers.join(consumer, call)
            code = self.consumers.give_way(consumer)
            if code != NONE:
                return JoinResult(code, call.member_id)
        group = self._group(call.group_id)
        if group is None:
            if call.member_id != NO_MEMBER:
                return JoinResult(UnknownMemberId.code, call.member_id)
            group = self._new_group(call.group_id)
        answer: Answer[JoinResult] = Answer()
        self._membership.join(group, call, answer.put)
        return answer.get()

    def sync(self, call: SyncCall) -> "SyncResult | Deferred[SyncResult]":
        """SyncGroup."""
        code = self.check(call.group_id)
        if code == CoordinatorLoadInProgress.code:
            # Old clients do not know that code here; this one makes them join again.
            return SyncResult(RebalanceInProgress.code)
        if code != NONE:
            return SyncResult(code)
        consumer = self._consumer(call.group_id)
        if consumer is not None and self.consumers is not None:
            return self.consumers.sync(consumer, call)
        group = self._group(call.group_id)
        if group is None:
            return SyncResult(UnknownMemberId.code)
        answer: Answer[SyncResult] = Answer()
        self._membership.sync(group, call, answer.put)
        return answer.get()

    def heartbeat(self, group_id: str, caller: Caller) -> int:
        """Heartbeat; while the group loads every member may believe that all is well."""
        code = self.check(group_id)
        if code != NONE:
            return NONE if code == CoordinatorLoadInProgress.code else code
        consumer = self._consumer(group_id)
        if consumer is not None and self.consumers is not None:
            return self.consumers.heartbeat_classic(consumer, caller)
        group = self._group(group_id)
        return UnknownMemberId.code if group is None else self._membership.heartbeat(group, caller)

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity]
    ) -> "LeaveResult | Deferred[LeaveResult]":
        """LeaveGroup: the code for the request, and one for each member."""
        code = self.check(group_id)
        if code != NONE:
            return code, []
        consumer = self._consumer(group_id)
        if consumer is not None and self.consumers is not None:
            return self.consumers.leave(consumer, members)
        group = self._group(group_id)
        if group is None:
            return NONE, [(member, UnknownMemberId.code) for member in members]
        if group.is_dead:
            return CoordinatorNotAvailable.code, []
        return NONE, [(member, self._membership.leave(group, member)) for member in members]

    # -- offsets -------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        caller: Caller,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        version: int = COMMIT_WITH_EPOCH_SINCE,
    ) -> "Codes | Deferred[Codes]":
        """OffsetCommit of some version; answered when the records are replicated."""
        code = self.check(group_id, empty_allowed=True)
        if code != NONE:
            return dict.fromkeys(offsets, code)
        found = self._open_for_commit(group_id, caller, transactional=False, version=version)
        if not isinstance(found, Group):
            return dict.fromkeys(offsets, found)
        return self._store_offsets(found, offsets)

    def _open_for_commit(
        self, group_id: str, caller: Caller, *, transactional: bool, version: int
    ) -> Group | int:
        """The group that holds the offsets, made where there is none; a code where the caller may not
        commit."""
        group = self._group(group_id)
        consumer = self._consumer(group_id)
        if consumer is not None and self.consumers is not None:
            code = self.consumers.check_commit(
                consumer, caller, transactional=transactional, version=version
            )
            return code or group or self._new_group(group_id)
        if group is None:
            if caller.generation >= 0:
                tells = self.consumers is not None and version >= COMMIT_WITH_EPOCH_SINCE
                if tells and not transactional:
                    return GroupIdNotFound.code
                return IllegalGeneration.code
            return self._new_group(group_id)
        return self._membership.check_commit(group, caller, transactional=transactional) or group

    def commit_transactional(
        self,
        group_id: str,
        caller: Caller,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        producer_id: int,
        producer_epoch: int,
        verification: Any = None,
    ) -> "Codes | Deferred[Codes]":
        """TxnOffsetCommit; the offsets count once `end_transaction` says so.

        `verification` is what the log's verify call gave (KIP-890).
        """
        code = self.check(group_id)
        if code != NONE:
            return dict.fromkeys(offsets, code)
        found = self._open_for_commit(
            group_id, caller, transactional=True, version=COMMIT_WITH_EPOCH_SINCE
        )
        if not isinstance(found, Group):
            return dict.fromkeys(offsets, found)
        return self._store_offsets(
            found,
            offsets,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verification=verification,
        )

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A transaction marker was written to a partition of the topic and is replicated."""
        shard = self._shards.get(partition)
        if shard is None or shard.is_loading:
            return  # a load in progress reads the marker itself
        for group_id in shard.producers.pop(producer_id, ()):
            group = shard.groups.get(group_id)
            if group is not None and not group.is_dead:
                group.offsets.end_transaction(producer_id, commit=commit)

    def _store_offsets(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        verification: Any = None,
    ) -> "Codes | Deferred[Codes]":
        limit = self._config.offset_metadata_max_bytes
        fitting = {tp: v for tp, v in offsets.items() if java_length(v.metadata) <= limit}
        codes = {tp: NONE if tp in fitting else OffsetMetadataTooLarge.code for tp in offsets}
        if not fitting:
            return codes
        shard = self._shard_of(group.group_id)
        assert shard is not None
        transactional = producer_id != NO_PRODUCER_ID
        if transactional:
            group.offsets.begin_transactional(producer_id, fitting)
            shard.note_producer(producer_id, group.group_id)
        else:
            group.offsets.begin(fitting)
        answer: Answer[Codes] = Answer()

        def stored(code: int, base_offset: int) -> None:
            if code == NONE:
                self._commits.mark(len(fitting))
                # Of what was removed meanwhile it takes no notice.  The group may have become one of
                # another protocol: its offsets are the same.
                self._confirm(group, fitting, base_offset, producer_id)
            else:
                self._fail(group, fitting, producer_id)
                codes.update(dict.fromkeys(fitting, _commit_error(code)))
            answer.put(codes)

        self._append(
            shard,
            offset_records(group.group_id, fitting, self._clock.now_ms()),
            stored,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verification=verification,
        )
        return answer.get()

    @staticmethod
    def _confirm(
        group: Group,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        base_offset: int,
        producer_id: int,
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            group.offsets.confirm(offsets, base_offset)
        else:
            group.offsets.confirm_transactional(producer_id, offsets, base_offset)

    @staticmethod
    def _fail(
        group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            group.offsets.fail(offsets)
        else:
            group.offsets.fail_transactional(producer_id, offsets)

    def fetch(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = NO_GENERATION,
    ) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
        """OffsetFetch of the given or (None) all committed partitions; an error for the group."""
        code = self.check(group_id, empty_allowed=True)
        if code != NONE:
            return code, {}
        consumer = self._consumer(group_id)
        if consumer is not None and self.consumers is not None:
            code = self.consumers.check_fetch(consumer, member_id, member_epoch)
            if code != NONE:
                return code, {}
        group = self._group(group_id)
        if group is None or group.is_dead:
            return NONE, dict.fromkeys(partitions or (), FetchedOffset())
        wanted: Iterable[TopicPartition] = group.offsets if partitions is None else partitions
        return NONE, {tp: _fetched(group, tp, require_stable) for tp in wanted}

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> "DeletedOffsets":
        """OffsetDelete."""
        code = self.check(group_id)
        if code != NONE:
            return DeletedOffsets(code)
        shard = self._shard_of(group_id)
        group = self._group(group_id)
        consumer = self._consumer(group_id)
        if group is None and consumer is not None:
            group = self._new_group(group_id)
        if shard is None or group is None or group.is_dead:
            return DeletedOffsets(GroupIdNotFound.code)
        if consumer is not None:
            used = [tp for tp in partitions if consumer.is_subscribed_to(tp.topic)]
        elif group.state is GroupState.EMPTY:
            used = []
        elif group.is_consumer_group:
            used = [tp for tp in partitions if group.is_subscribed_to(tp.topic)]
        else:
            return DeletedOffsets(NonEmptyGroup.code)
        codes = dict.fromkeys(partitions, NONE)
        codes.update(dict.fromkeys(used, GroupSubscribedToTopic.code))
        removed = group.offsets.remove([tp for tp, code in codes.items() if code == NONE])
        self._deletions.mark(len(removed))
        self._write_removals(shard, group, removed)
        return DeletedOffsets(NONE, codes)

    # -- administration ------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupSummary:
        """DescribeGroups: one group."""
        code = self.check(group_id, empty_allowed=True)
        if code != NONE:
            return GroupSummary(code)
        group = self._group(group_id)
        if group is None or self._consumer(group_id) is not None:
            return GroupSummary(state=GroupState.DEAD.value)
        return group.summary()

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[int, list[GroupOverview]]:
        """ListGroups; what could be listed comes also with COORDINATOR_LOAD_IN_PROGRESS."""
        if not self._active:
            return CoordinatorNotAvailable.code, []
        loading = any(shard.is_loading for shard in self._shards.values())
        code = CoordinatorLoadInProgress.code if loading else NONE
        wanted = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return code, [
            overview
            for overview in self._overviews()
            if (not wanted or overview.state.lower() in wanted)
            and (not wanted_types or overview.group_type in wanted_types)
        ]

    def _overviews(self) -> Iterator[GroupOverview]:
        if self.consumers is None:
            yield from (group.overview() for group in self._groups())
            return
        for group in self._groups():
            if self.consumers.get(group.group_id) is None:
                yield group.overview()
        yield from self.consumers.overviews()

    def delete_group(self, group_id: str) -> int:
        """DeleteGroups: one group."""
        code = self.check(group_id, empty_allowed=True)
        if code != NONE:
            return code
        shard = self._shard_of(group_id)
        group = self._group(group_id)
        consumer = self._consumer(group_id)
        if consumer is not None and self.consumers is not None:
            code = self.consumers.delete(consumer)
            if code != NONE or group is None:
                return code
        if shard is None or group is None or group.is_dead:
            return GroupIdNotFound.code
        if group.state is not GroupState.EMPTY:
            return NonEmptyGroup.code
        self._membership.end(group, CoordinatorNotAvailable.code)
        removed = group.offsets.remove(group.offsets.touched())
        self._write_removals(shard, group, removed)
        return NONE

    # -- what goes by itself -------------------------------------------------------------------

    @property
    def _check_interval_s(self) -> float:
        return self._config.offsets_retention_check_interval_ms / 1000

    def _expire_offsets(self) -> None:
        self._expiry_timer = self._clock.call_later(self._check_interval_s, self._expire_offsets)
        self._sweep(self._expired, self._expirations.mark)
        if self.consumers is not None:
            self._start_sweep(self._end_vacant())

    def _end_vacant(self) -> Iterator[None]:
        """Groups of the newer protocol without members and offsets end."""
        assert self.consumers is not None
        self.consumers.end_vacant(lambda group_id: self._group(group_id) is not None)
        yield

    def _expired(self, group: Group) -> list[TopicPartition]:
        consumer = self._consumer(group.group_id)
        topics = () if consumer is None else consumer.names
        return expired_offsets(group, self._clock.now_ms(), self._retention_ms, topics)

    def partitions_removed(self, partitions: Sequence[TopicPartition]) -> None:
        """Topics were deleted: their offsets go too."""
        if any(tp.topic == GROUP_METADATA_TOPIC for tp in partitions):
            self._partition_count = None
        if partitions:
            gone = dict.fromkeys(partitions)
            topics = frozenset(tp.topic for tp in partitions)
            self._sweep(
                lambda group: [tp for tp in group.offsets.touched(topics) if tp in gone],
                self._deletions.mark,
            )

    def _sweep(
        self,
        select: Callable[[Group], list[TopicPartition]],
        count: Callable[[int], object],
    ) -> None:
        """Remove offsets from all groups, a slice of the groups at a time."""

        def work() -> Iterator[None]:
            for shard in list(self._shards.values()):
                for number, group in enumerate(list(shard.groups.values()), 1):
                    if self._shards.get(shard.partition) is not shard:
                        break
                    if not group.is_dead:
                        removed = group.offsets.remove(select(group))
                        count(len(removed))
                        self._write_removals(shard, group, removed)
                    if number % SWEEP_SLICE == 0:
                        yield
                yield

        self._start_sweep(work())

    def _start_sweep(self, work: Iterator[None]) -> None:
        """Do the work in slices, after what was begun before."""
        if not self._active:
            return
        self._sweeps.append(work)
        if self._sweep_timer is None:
            self._sweep_timer = self._clock.call_later(0, self._sweep_slice)

    def _sweep_slice(self) -> None:
        self._sweep_timer = None
        try:
            next(self._sweeps[0])
        except StopIteration:
            self._sweeps.popleft()
        if self._sweeps:
            self._sweep_timer = self._clock.call_later(0, self._sweep_slice)

    def _write_removals(
        self, shard: Shard, group: Group, removed: Sequence[TopicPartition]
    ) -> None:
        """Tombstones for offsets that went; a group that has nothing left goes with them.

        Not waited for: a tombstone that gets lost is written again in the next round.
        """
        now_ms = self._clock.now_ms()
        records = [tombstone(offset_key(group.group_id, tp), now_ms) for tp in removed]
        if group.state is GroupState.EMPTY and group.offsets.is_empty:
            self._membership.end(group)
        if group.is_dead and shard.groups.get(group.group_id) is group:
            del shard.groups[group.group_id]
            # A group that never had a generation was never stored.
            if group.generation > 0:
                records.append(tombstone(group_key(group.group_id), now_ms))
        if records:
            self._append(shard, records, self._removed, required_acks=0)

    def _removed(self, code: int, base_offset: int) -> None:
        if code != NONE:
            self._logger.warning("tombstones could not be written, code %d", code)

    # -- writing -------------------------------------------------------------------------------

    def _append(
        self,
        shard: Shard,
        records: list[Record],
        done: Appended,
        *,
        required_acks: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        verification: Any = None,
    ) -> None:
        """One batch; `done` is told when it is replicated or will not be."""
        transactional = producer_id != NO_PRODUCER_ID
        batch = encode_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0 if transactional else NO_SEQUENCE,
            transactional=transactional,
        )
        key = TopicPartition(GROUP_METADATA_TOPIC, shard.partition)
        config = self._config
        outcome = self._replicas.append(
            [AppendEntry(key, batch, verification)],
            required_acks=config.offsets_commit_required_acks
            if required_acks is None
            else required_acks,
            timeout_ms=config.offsets_commit_timeout_ms,
            origin="coordinator",
            internal_topics_allowed=True,
        )

        def settle(results: list[AppendResult]) -> None:
            done(results[0].error_code, results[0].base_offset)

        if isinstance(outcome, Deferred):
            outcome.addCallback(settle)
            outcome.addErrback(self._append_failed, done)
        else:
            settle(outcome)

    def _append_failed(self, failure: Any, done: Appended) -> None:
        self._logger.error("append failed: %s", failure.getTraceback())
        done(UnknownServerError.code, NO_OFFSET)


def _dismantle(groups: dict[str, Group]) -> Iterator[None]:
    """Let go of groups that nobody can reach any more, a slice at a time."""
    while groups:
        size = 0
        while groups and size < DISMANTLE_SLICE:
            size += 1 + len(groups.popitem()[1].offsets)
        if groups:
            yield


def abs_java_hash(text: str) -> int:
    """Absolute value of Java's `String.hashCode`, 0 for the one that has none."""
    value = java_hash(text)
    if value == 0x80000000:
        return 0
    return value if value < 0x80000000 else 0x100000000 - value


def expired_offsets(
    group: Group, now_ms: int, retention_ms: int, consumed: Container[str] = ()
) -> list[TopicPartition]:
    """What may go of a group's offsets (KIP-211, reference: group-coordinator 9); `consumed` are
    topics that a group of the newer protocol reads."""

    def committed_ms(value: OffsetAndMetadata) -> int:
        return value.commit_timestamp

    offsets = group.offsets
    if group.protocol_type is None:
        return offsets.expired(now_ms, retention_ms, committed_ms, consumed)
    if group.state is GroupState.EMPTY:
        since_ms = group.state_timestamp_ms
        if since_ms is None:
            return offsets.expired(now_ms, retention_ms, committed_ms)
        empty_ms = since_ms
        return offsets.expired(now_ms, retention_ms, lambda value: empty_ms)
    topics = group.subscribed_topics
    if group.is_consumer_group and group.state is GroupState.STABLE and topics is not None:
        return offsets.expired(now_ms, retention_ms, committed_ms, topics)
    return []


def _fetched(group: Group, partition: TopicPartition, require_stable: bool) -> FetchedOffset:
    if require_stable and group.offsets.is_unstable(partition):
        return FetchedOffset(error_code=UnstableOffsetCommit.code)
    value = group.offsets.get(partition)
    if value is None:
        return FetchedOffset()
    return FetchedOffset(value.offset, value.leader_epoch, value.metadata)


def java_length(text: str) -> int:
    """Length as Java counts it, in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


_STORE_ERRORS: Final = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable.code,
    NotEnoughReplicas.code: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable.code,
    NotLeaderOrFollower.code: NotCoordinator.code,
    KafkaStorageError.code: NotCoordinator.code,
    RequestTimedOut.code: RebalanceInProgress.code,
    MessageTooLarge.code: UnknownServerError.code,
    RecordListTooLarge.code: UnknownServerError.code,
    InvalidFetchSize.code: UnknownServerError.code,
}
_COMMIT_ERRORS: Final = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable.code,
    NotEnoughReplicas.code: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable.code,
    NotLeaderOrFollower.code: NotCoordinator.code,
    KafkaStorageError.code: NotCoordinator.code,
    MessageTooLarge.code: InvalidCommitOffsetSize.code,
    RecordListTooLarge.code: InvalidCommitOffsetSize.code,
    InvalidFetchSize.code: InvalidCommitOffsetSize.code,
    NetworkException.code: CoordinatorLoadInProgress.code,
}


def _store_error(code: int) -> int:
    return _STORE_ERRORS.get(code, code)


def _commit_error(code: int) -> int:
    return _COMMIT_ERRORS.get(code, code)
