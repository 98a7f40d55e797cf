"""A group coordinator in virtual time, on a log in memory whose replication a test can hold up."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from twisted.internet.defer import Deferred, succeed

from kafkalike.broker.cluster.topic_names import GROUP_METADATA_TOPIC
from kafkalike.broker.coordinator.group_settings import GroupConfigs
from kafkalike.broker.coordinator.groups import GroupCoordinator
from kafkalike.broker.coordinator.values import (
    Caller,
    JoinCall,
    JoinResult,
    MemberIdentity,
    OffsetAndMetadata,
    SyncCall,
    SyncResult,
)
from kafkalike.broker.log.log import FetchIsolation
from kafkalike.broker.log.values import FetchDataInfo
from kafkalike.broker.replica.partition import Partition
from kafkalike.broker.replica.roles import RoleChanges, Stopped
from kafkalike.broker.replica.values import AppendEntry, AppendResult
from kafkalike.config import BrokerConfig
from kafkalike.errors import NotLeaderOrFollower
from kafkalike.messages.stored import ConsumerProtocolSubscription, encode_versioned
from kafkalike.metrics import Metrics
from kafkalike.records.batch import RecordBatch
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.tasks import TimerWheel
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, InlineThreads, result_of

LOGGER = logging.getLogger("tests.coordinator")
GROUP = "g"


class MemoryLog:
    """What a coordinator reads of a log; every append is one batch."""

    def __init__(self, partition: int) -> None:
        self.topic_partition = TopicPartition(GROUP_METADATA_TOPIC, partition)
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.failure: Exception | None = None

    def append(self, records: bytearray) -> tuple[int, int]:
        batch = RecordBatch(records)
        batch.stamp_offsets(self.log_end_offset, 0)
        self.batches.append(bytes(records))
        self.log_end_offset = batch.next_offset
        return batch.base_offset, batch.last_offset

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_message: bool
    ) -> FetchDataInfo:
        if self.failure is not None:
            raise self.failure
        data = bytearray()
        for batch in self.batches:
            if RecordBatch(batch).next_offset > offset:
                if data and len(data) + len(batch) > max_bytes:
                    break
                data += batch
        return FetchDataInfo(offset, bytes(data))

    def lose_unreplicated(self) -> None:
        """As when a leader dies: what was not replicated is gone."""
        while self.batches and RecordBatch(self.batches[-1]).next_offset > self.high_watermark:
            self.batches.pop()
        self.log_end_offset = self.high_watermark

    def records(self) -> list[Record]:
        """All records, in order."""
        return [
            record
            for data in self.batches
            for batch in iterate_batches(data)
            for record in batch.records()
        ]


@dataclass
class LedPartition:
    """The little that a coordinator looks at in a hosted partition."""

    topic_partition: TopicPartition
    leader_epoch: int
    log: MemoryLog


@dataclass
class Replicas:
    """Partitions in memory; with `held` appends wait for `release`, `code` makes them fail."""

    logs: dict[int, MemoryLog] = field(default_factory=dict)
    held: bool = False
    code: int = 0
    waiting: "list[tuple[AppendResult, Deferred[list[AppendResult]]]]" = field(default_factory=list)
    required_acks: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def log(self, partition: int) -> MemoryLog:
        return self.logs.setdefault(partition, MemoryLog(partition))

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        if topic_partition.partition in self.gone:
            return None
        log = self.log(topic_partition.partition)
        return cast(Partition, LedPartition(topic_partition, 0, log))

    def append(
        self, entries: Sequence[AppendEntry], *, required_acks: int, **_: Any
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]":
        self.required_acks.append(required_acks)
        (entry,) = entries
        result = AppendResult(entry.topic_partition)
        if self.code:
            result.error_code = self.code
            return [result]
        assert isinstance(entry.records, bytearray)
        log = self.log(entry.topic_partition.partition)
        result.base_offset, result.last_offset = log.append(entry.records)
        if not self.held or required_acks == 0:
            if not self.held:
                # And with it all that is before it, whatever those who wait will be told.
                log.high_watermark = log.log_end_offset
            return [result]
        done: Deferred[list[AppendResult]] = Deferred()
        self.waiting.append((result, done))
        return done

    def release(self, code: int = 0) -> None:
        """Everything appended so far is replicated, or fails with a code."""
        waiting, self.waiting = self.waiting, []
        if not code:
            for log in self.logs.values():
                log.high_watermark = log.log_end_offset
        for result, done in waiting:
            result.error_code = code
            done.callback([result])


class FakeTopics:
    """Topics that a test makes; ids are made of the names."""

    def __init__(self) -> None:
        self.is_known = True
        self.version = 1
        self.newest = 1
        self.counts: dict[str, int] = {}

    def set(self, topic: str, count: int) -> None:
        """Make a topic, or change its size; 0 deletes it."""
        self.version += 1
        if topic not in self.counts:
            self.newest = self.version
        self.counts[topic] = count
        if not count:
            del self.counts[topic]

    def names(self) -> list[str]:
        return list(self.counts)

    def id_of(self, topic: str) -> bytes | None:
        return topic_id(topic) if topic in self.counts else None

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self.counts else None

    def count(self, topic: str) -> int:
        return self.counts.get(topic, 0)


def topic_id(topic: str) -> bytes:
    """The id that `FakeTopics` gives a topic."""
    return topic.encode().ljust(16, b"\0")


class World:
    """One broker with its coordinator, leading `count` partitions."""

    def __init__(
        self, count: int = 1, *, lead: bool = True, seed: int = 0, **settings: str
    ) -> None:
        properties = {
            "broker.id": "1",
            "zookeeper.connect": "nowhere",
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config = BrokerConfig.parse(properties)
        self.clock = FakeClock()
        self.random = FakeRandom(seed)
        self.replicas = Replicas()
        self.count: int | None = count
        self.epoch = 0
        self.metrics = Metrics()
        self.topics = FakeTopics()
        self.coordinator = self._make()
        if lead:
            for partition in range(count):
                self.lead(partition)

    def _make(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            self.config,
            clock=self.clock,
            wheel=TimerWheel(self.clock, LOGGER),
            random=self.random,
            replicas=self.replicas,
            read_partition_count=lambda: succeed(self.count),
            metrics=self.metrics,
            logger=LOGGER,
            threads=InlineThreads(),
            topics=self.topics,
            settings=GroupConfigs(self.config, LOGGER),
        )
        result_of(Deferred.fromCoroutine(coordinator.start()))
        return coordinator

    def lead(self, partition: int = 0, *, load: bool = True) -> None:
        """Become leader; with `load` until everything is read."""
        self.epoch += 1
        log = self.replicas.log(partition)
        led = LedPartition(log.topic_partition, self.epoch, log)
        self.coordinator.roles_changed(RoleChanges([cast(Partition, led)], [], []))
        if load:
            for _ in range(1000):
                self.clock.advance(0)
                if not self.coordinator.list_groups()[0]:
                    return
            raise AssertionError("loading does not end")

    def lose(self, partition: int = 0) -> None:
        """Another broker leads."""
        key = TopicPartition(GROUP_METADATA_TOPIC, partition)
        self.coordinator.roles_changed(RoleChanges([], [], [Stopped(key, 9, False)]))

    def fail_over(self, *, loses: bool = False) -> None:
        """Another broker takes over; it has everything that was appended, unless it `loses` what
        was not replicated."""
        numbers = range(self.count or 0)
        for number in numbers:
            self.lose(number)
        if loses:
            for log in self.replicas.logs.values():
                log.lose_unreplicated()
        self.replicas.release(NotLeaderOrFollower.code)
        for number in numbers:
            self.lead(number)

    def group(self, group_id: str = GROUP) -> Any:
        """The group itself, to look at."""
        return self.coordinator._group(group_id)

    # -- calls ---------------------------------------------------------------------------------

    def join(self, member_id: str = "", **more: Any) -> "Call[JoinResult]":
        """The first member of a group is answered at once where there is no initial delay."""
        is_first = self.state() in ("Dead", "Empty")
        call = Call(self.coordinator.join(join_call(member_id, **more)))
        if is_first and call.is_waiting and not self.config.group_initial_rebalance_delay_ms:
            self.clock.advance(0.02)
        return call

    def enter(self, client_id: str = "c", **more: Any) -> "Call[JoinResult]":
        """Join as a new member that already knows its id."""
        known = self.join(client_id=client_id, needs_known_id=True, **more).value
        return self.join(known.member_id, client_id=client_id, **more)

    def sync(
        self,
        joined: JoinResult,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        generation: int | None = None,
    ) -> "Call[SyncResult]":
        return Call(
            self.coordinator.sync(
                SyncCall(
                    group_id,
                    joined.generation if generation is None else generation,
                    joined.member_id,
                    instance_id,
                    None,
                    None,
                    assignments or {},
                )
            )
        )

    def beat(self, joined: JoinResult, instance_id: str | None = None) -> int:
        caller = Caller(joined.generation, joined.member_id, instance_id)
        return self.coordinator.heartbeat(GROUP, caller)

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        left = self.coordinator.leave(GROUP, [MemberIdentity(member_id, instance_id)])
        assert not isinstance(left, Deferred)
        code, results = left
        return code or results[0][1]

    def commit(
        self, offset: int, joined: JoinResult | None = None, *, partition: int = 0, **more: Any
    ) -> "Call[int]":
        caller = Caller() if joined is None else Caller(joined.generation, joined.member_id)
        key = TopicPartition("t", partition)
        value = OffsetAndMetadata(offset, commit_timestamp=self.clock.now_ms(), **more)
        result = self.coordinator.commit(GROUP, caller, {key: value})
        if isinstance(result, Deferred):
            return Call(result.addCallback(lambda codes: codes[key]))
        return Call(result[key])

    def fetched(self, partition: int = 0, topic: str = "t", *, stable: bool = False) -> int:
        """A committed offset, -1 without one; an error code as a negative number below that."""
        key = TopicPartition(topic, partition)
        code, found = self.coordinator.fetch(GROUP, [key], require_stable=stable)
        assert code == 0, code
        return -found[key].error_code if found[key].error_code else found[key].offset

    def state(self) -> str:
        return self.coordinator.describe(GROUP).state

    def stable(self, count: int = 1, **more: Any) -> list[JoinResult]:
        """A stable group of `count` members, the leader first."""
        calls = [self.enter(**more)]
        calls += [self.enter(**more) for _ in range(count - 1)]
        if count > 1:
            calls[0] = self.join(calls[0].value.member_id, **more)
        joined = [call.value for call in calls]
        parts = {one.member_id: b"%d" % number for number, one in enumerate(joined)}
        syncs = [self.sync(one) for one in joined[1:]]
        assert self.sync(joined[0], parts).value.assignment == b"0"
        assert [call.value.assignment for call in syncs] == list(parts.values())[1:]
        return joined


T = TypeVar("T")


class Call(Generic[T]):
    """A call to the coordinator: answered or still waiting."""

    def __init__(self, result: "T | Deferred[T]") -> None:
        self._result = result

    @property
    def is_waiting(self) -> bool:
        return isinstance(self._result, Deferred) and not self._result.called

    @property
    def value(self) -> T:
        if isinstance(self._result, Deferred):
            value: T = result_of(self._result)
            self._result = value
            return value
        return self._result


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


def join_call(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    client_id: str = "c",
    session_ms: int = 10_000,
    rebalance_ms: int = 30_000,
    protocol_type: str = "consumer",
    protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
    needs_known_id: bool = False,
    may_skip_assignment: bool = True,
) -> JoinCall:
    return JoinCall(
        group_id,
        member_id,
        instance_id,
        client_id,
        "/127.0.0.1",
        session_ms,
        rebalance_ms,
        protocol_type,
        protocols,
        needs_known_id,
        may_skip_assignment,
    )
