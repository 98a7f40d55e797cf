"""A few brokers' replica managers on real log directories, a controller, and wires that tests hold.

Requests and answers travel as bytes, so that codecs are in the loop.  Nothing moves unless `settle`
or `advance` says so; answers may be held or connections cut on the way.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count as count_from
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.log.directory import LogDirectory
from kafkalike.broker.log.log import Log
from kafkalike.broker.log.manager import LogManager
from kafkalike.broker.replica.fetch_session import FetchSessions
from kafkalike.broker.replica.manager import ReplicaManager
from kafkalike.broker.replica.partition import Partition
from kafkalike.broker.replica.values import (
    AppendEntry,
    AppendResult,
    FetchParams,
    Loss,
    StateChange,
)
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    KafkaError,
    StaleBrokerEpoch,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalike.metrics import Metrics
from kafkalike.net.client import PeerDisconnected
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import FileRange, StorageError
from kafkalike.runtime.tasks import TimerWheel, as_deferred
from kafkalike.types import NO_BROKER_EPOCH, LeaderAndIsr, TopicPartition
from tests.fakes import FakeClock, FakeRandom, InlineThreads, result_of

TOPIC_ID = bytes(range(16))
T0 = TopicPartition("t", 0)
LOGGER = logging.getLogger("test")

State = LeaderAndIsrRequest.LeaderAndIsrPartitionState
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


def batch(*values: str, **fields: Any) -> bytearray:
    """One record batch as a producer sends it."""
    records = [
        Record(None, value.encode(), timestamp=1000 + number) for number, value in enumerate(values)
    ]
    return encode_batch(records, **fields)


def values_of(records: Any) -> list[str]:
    """The values of all whole batches in what a fetch returned."""
    data = records.read() if isinstance(records, FileRange) else bytes(records or b"")
    found: list[str] = []
    for one in iterate_batches(data):
        found.extend((record.value or b"").decode() for record in one.records())
    return found


def contents(log: Log) -> list[tuple[int, int, str]]:
    """(offset, leader epoch, value) of every record in a log."""
    found: list[tuple[int, int, str]] = []
    for segment in log.segments:
        for located in segment.iterate(0):
            one = located.batch
            found.extend(
                (record.offset, one.partition_leader_epoch, (record.value or b"").decode())
                for record in one.records()
            )
    return found


class SomeDisk(RealDisk):
    """A disk whose files under some paths can be made to fail."""

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> Any:
        if any(path.startswith(bad) for bad in self.broken):
            raise StorageError(f"{path}: broken")
        return super().open(path, create=create)


class Logs(LogManager):
    """A log manager whose insides tests may look at and whose settings they may change."""

    def __init__(self, root: Path, clock: FakeClock, broker_id: int, dirs: int = 1) -> None:
        self.disk = SomeDisk()
        paths = [f"{root}/d{number}" for number in range(dirs)]
        for path in paths:
            self.disk.make_dirs(path)
        config = BrokerConfig.parse(properties(broker_id) | {"log.dirs": ",".join(paths)})
        self.config = LogConfig.from_broker(config)
        self.failed: Callable[[str], None] = lambda path: None
        self.deleted: list[TopicPartition] = []
        super().__init__(
            config,
            clock=clock,
            random=FakeRandom(broker_id),
            disk=self.disk,
            threads=InlineThreads(),
            log_config=lambda topic: self.config,
            on_dir_failure=self._tell,
        )
        result_of(as_deferred(self.startup()))

    def _tell(self, path: str) -> None:
        self.failed(path)

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return self._logs

    @property
    def directories(self) -> list[LogDirectory]:
        return [home.directory for home in self._homes.values()]

    def delete(self, topic_partition: TopicPartition, *, future: bool = False) -> None:
        self.deleted.append(topic_partition)
        super().delete(topic_partition, future=future)

    def crash(self, *, checkpoint: bool) -> None:
        """The process ends; with `checkpoint` its high watermarks were just written."""
        if checkpoint:
            self.checkpoint_high_watermarks()
        self._is_stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for log in self.all_logs():
            log.discard()
        self._unlock()


def properties(broker_id: int, **settings: str) -> dict[str, str]:
    found = {
        "broker.id": str(broker_id),
        "zookeeper.connect": "none:1",
        "log.dirs": "/none",
        "log.retention.ms": "-1",  # the records of tests are from 1970
        "listeners": f"PLAINTEXT://127.0.0.1:{9000 + broker_id}",
    }
    found.update((key.replace("_", "."), value) for key, value in settings.items())
    return found


class Wire:
    """Carries requests between brokers, one delivery at a time."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        self.brokers: dict[int, Broker] = {}
        self.cut: set[frozenset[int]] = set()
        self.hold_answers: Callable[[int, Any], bool] = lambda asker, answer: False
        self.held: list[Callable[[], None]] = []
        self.seen: list[tuple[int, int, Any, int]] = []
        """Every request: from, to, request, version."""

    def send(self, source: int, target: int, request: Any, version: int) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        raw = request.encode(version)
        copy = type(request).decode(memoryview(bytearray(raw)), version)
        self.seen.append((source, target, copy, version))

        def answered(answer: Any) -> Any:
            encoded = answer.encode(version)
            life = self.brokers.get(source)

            def arrive() -> None:
                if frozenset((source, target)) in self.cut:
                    result.errback(PeerDisconnected(f"cut between {source} and {target}"))
                elif self.brokers.get(source) is life and not result.called:
                    result.callback(type(answer).decode(memoryview(bytearray(encoded)), version))

            if self.hold_answers(source, answer):
                self.held.append(arrive)
            else:
                self.queue.append(arrive)
            return answer

        def deliver() -> None:
            broker = self.brokers.get(target)
            if broker is None or frozenset((source, target)) in self.cut:
                result.errback(PeerDisconnected(f"no way from {source} to {target}"))
                return
            answer = broker.serve(copy, version)
            if isinstance(answer, Deferred):
                answer.addCallback(answered)
            else:
                answered(answer)

        self.queue.append(deliver)
        return result

    def release(self) -> None:
        """Let held answers arrive, and hold no more."""
        self.hold_answers = lambda asker, answer: False
        self.queue.extend(self.held)
        self.held.clear()


class WirePeers:
    """`FetchPeers` over the wire."""

    def __init__(self, source: int, wire: Wire) -> None:
        self._source = source
        self._wire = wire

    def send(
        self,
        broker_id: int,
        request: Any,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        borrow: bool = False,
    ) -> "Deferred[Any]":
        assert version is not None
        return self._wire.send(self._source, broker_id, request, version)

    def disconnect(self, broker_id: int, reason: str) -> None:
        pass


class Broker:
    """One life of a broker."""

    def __init__(
        self,
        broker_id: int,
        root: Path,
        clock: FakeClock,
        *,
        wire: Wire | None = None,
        controller: "Controller | None" = None,
        dirs: int = 1,
        epoch: int = 100,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.id = broker_id
        self.clock = clock
        self.config = BrokerConfig.parse(properties(broker_id, **settings or {}))
        self.logs = Logs(root, clock, broker_id, dirs)
        self.metadata = MetadataCache(broker_id)
        self.epoch = epoch
        self.changes: list[StateChange] = []
        self.losses: list[Loss] = []
        self.failed_dirs: list[str] = []
        self.sent_isr: list[AlterPartitionRequest] = []
        self.controller = controller
        self.metrics = Metrics()
        wire = wire or Wire()
        wire.brokers[broker_id] = self
        self.wheel = TimerWheel(clock, LOGGER)
        self.sessions = FetchSessions(clock, FakeRandom(broker_id), slots=100)
        self.replicas = ReplicaManager(
            self.config,
            clock=clock,
            wheel=self.wheel,
            logs=self.logs,
            disk=self.logs.disk,
            metadata=self.metadata,
            metrics=self.metrics,
            logger=LOGGER,
            state_change_logger=LOGGER,
            broker_epoch=lambda: self.epoch,
            send_to_controller=self._send_to_controller,
            fetch_peers=lambda index: WirePeers(broker_id, wire),
            dir_failed=self.failed_dirs.append,
            journal=self.changes.append,
            loss_ledger=self.losses.append,
        )
        self.logs.failed = self.replicas.log_dir_failed
        self.replicas.start()

    def _send_to_controller(
        self, request: AlterPartitionRequest
    ) -> "Deferred[AlterPartitionResponse]":
        self.sent_isr.append(request)
        if self.controller is None:
            return Deferred()
        return self.controller.alter_partition(self.id, request)

    # -- orders --------------------------------------------------------------------------------

    def lead(self, topic_partition: TopicPartition = T0, **fields: Any) -> int:
        """A LeaderAndIsr for one partition; returns the partition's error code."""
        return self.order(topic_partition, leader=self.id, **fields)

    def order(
        self,
        topic_partition: TopicPartition = T0,
        *,
        leader: int,
        epoch: int = 0,
        isr: Iterable[int] | None = None,
        replicas: Iterable[int] | None = None,
        partition_epoch: int = 0,
        controller_epoch: int = 1,
        topic_id: bytes = TOPIC_ID,
        is_new: bool = True,
        **fields: Any,
    ) -> int:
        replicas = [self.id] if replicas is None else list(replicas)
        state = State(
            partition_index=topic_partition.partition,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=replicas if isr is None else list(isr),
            partition_epoch=partition_epoch,
            replicas=replicas,
            is_new=is_new,
            **fields,
        )
        response = self.replicas.become_leader_or_follower(
            leader_and_isr(topic_partition.topic, topic_id, state, controller_epoch), 7
        )
        assert response.error_code == NONE
        return response.topics[0].partition_errors[0].error_code

    def know(self, *brokers: int, partitions: Iterable[TopicPartition] = ()) -> None:
        """An UpdateMetadata: these brokers live, these partitions exist."""
        self.metadata.update(metadata(brokers, partitions))
        self.replicas.metadata_updated()

    # -- clients -------------------------------------------------------------------------------

    def produce(
        self,
        *values: str,
        to: TopicPartition = T0,
        acks: int = 1,
        timeout_ms: int = 1000,
        producer: dict[str, int] | None = None,
    ) -> "Deferred[AppendResult]":
        """Append one batch; fires with its result."""
        results = self.replicas.append(
            [AppendEntry(to, batch(*values, **producer or {}))],
            required_acks=acks,
            timeout_ms=timeout_ms,
        )
        if isinstance(results, Deferred):
            return results.addCallback(lambda waited: waited[0])
        return succeed(results[0])

    def partition(self, topic_partition: TopicPartition = T0) -> Partition:
        found = self.replicas.partition(topic_partition)
        assert found is not None
        return found

    def log(self, topic_partition: TopicPartition = T0) -> Log:
        log = self.partition(topic_partition).log
        assert log is not None
        return log

    def fetch(
        self,
        request: FetchRequest,
        version: int = 17,
    ) -> "FetchResponse | Deferred[FetchResponse]":
        state = request.replica_state
        replica_id = state.replica_id if version >= 15 else request.replica_id
        try:
            context = self.sessions.begin(
                request,
                version,
                is_follower=replica_id >= 0,
                topic_name=self.metadata.topic_name,
                topic_id=self.metadata.topic_id,
            )
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        return self.replicas.fetch(
            FetchParams(
                version=version,
                replica_id=replica_id,
                max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes,
                max_bytes=request.max_bytes,
                isolation_level=request.isolation_level,
                rack_id=request.rack_id,
                listener="PLAINTEXT",
                replica_epoch=state.replica_epoch,
            ),
            context,
        )

    def read(self, offset: int = 0, at: TopicPartition = T0, **fields: Any) -> PartitionData:
        """What a consumer's sessionless fetch of one partition answers at once."""
        answer = self.fetch(fetch_request({at: offset}, **fields), 12)
        assert isinstance(answer, FetchResponse)
        return answer.responses[0].partitions[0]

    def serve(self, request: Any, version: int) -> Any:
        """What the handlers would do for the requests of followers."""
        if isinstance(request, FetchRequest):
            return self.fetch(request, version)
        assert isinstance(request, ListOffsetsRequest)
        wanted = request.topics[0].partitions[0]
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name=request.topics[0].name)
        answer = topic.ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
        try:
            found = self.replicas.list_offset(
                TopicPartition(topic.name, wanted.partition_index),
                wanted.timestamp,
                version=version,
                replica_id=request.replica_id,
                isolation_level=request.isolation_level,
                current_leader_epoch=wanted.current_leader_epoch,
            )
            answer.offset, answer.timestamp = found.offset, found.timestamp
            answer.leader_epoch = found.leader_epoch
        except KafkaError as error:
            answer.error_code = error.code
        topic.partitions.append(answer)
        return ListOffsetsResponse(topics=[topic])


def fetch_request(
    offsets: dict[TopicPartition, int],
    *,
    replica_id: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    last_epoch: int = -1,
    log_start_offset: int = -1,
    by_id: bool = False,
) -> FetchRequest:
    """A Fetch in version 12 (or 17 with `by_id`)."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequest.FetchTopic(
                topic=key.topic,
                topic_id=TOPIC_ID if by_id else bytes(16),
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=key.partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=log_start_offset,
                    )
                ],
            )
            for key, offset in offsets.items()
        ],
    )
    if by_id:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id)
    else:
        request.replica_id = replica_id
    return request


def leader_and_isr(
    topic: str, topic_id: bytes, state: State, controller_epoch: int = 1, **fields: Any
) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=topic, topic_id=topic_id, partition_states=[state]
            )
        ],
        **fields,
    )


def metadata(
    brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()
) -> UpdateMetadataRequest:
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for key in partitions:
        topic = topics.setdefault(
            key.topic,
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=key.topic, topic_id=TOPIC_ID, partition_states=[]
            ),
        )
        topic.partition_states.append(
            UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=key.partition)
        )
    endpoint = UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=list(topics.values()),
        live_brokers=[
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=broker,
                endpoints=[endpoint(port=9000 + broker, host="h", listener="PLAINTEXT")],
                rack=f"rack{broker}",
            )
            for broker in brokers
        ],
    )


class Controller:
    """Decides ISR changes as Kafka's controller does; tests move leaders through it."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.epoch = 1
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.assignments: dict[TopicPartition, tuple[int, ...]] = {}
        self.refuse_with: list[int] = []
        """Error codes for the partitions of the next requests, one a request."""
        self.silent = False
        """Keep requests undecided."""
        self.late = False
        """Decide at once, keep the answers."""
        self.pending: list[tuple[int, AlterPartitionRequest, Deferred[AlterPartitionResponse]]] = []

    def create(self, key: TopicPartition, *replicas: int) -> None:
        self.assignments[key] = replicas
        self.states[key] = LeaderAndIsr(replicas[0], 0, replicas)
        self.announce(key, is_new=True)

    def elect(self, key: TopicPartition, leader: int, isr: Iterable[int] | None = None) -> None:
        """A new leader epoch."""
        old = self.states[key]
        self.states[key] = LeaderAndIsr(
            leader,
            old.leader_epoch + 1,
            old.isr if isr is None else tuple(isr),
            partition_epoch=old.partition_epoch + 1,
        )
        self.announce(key)

    def announce(
        self, key: TopicPartition, *, to: Iterable[int] | None = None, is_new: bool = False
    ) -> None:
        state = self.states[key]
        live = sorted(self.cluster.wire.brokers)
        for broker_id in live:
            self.cluster.broker(broker_id).know(*live, partitions=self.states)
        for broker_id in self.assignments[key] if to is None else to:
            if broker_id in self.cluster.wire.brokers:
                self.cluster.broker(broker_id).order(
                    key,
                    leader=state.leader,
                    epoch=state.leader_epoch,
                    isr=state.isr,
                    replicas=self.assignments[key],
                    partition_epoch=state.partition_epoch,
                    controller_epoch=self.epoch,
                    is_new=is_new,
                )

    def alter_partition(
        self, source: int, request: AlterPartitionRequest
    ) -> "Deferred[AlterPartitionResponse]":
        result: Deferred[AlterPartitionResponse] = Deferred()
        if self.silent:
            self.pending.append((source, request, result))
        elif self.late:
            self.cluster.wire.queue.append(lambda: self.decide(source, request, Deferred()))
            self.pending.append((source, request, result))
        else:
            self.cluster.wire.queue.append(lambda: self.decide(source, request, result))
        return result

    def answer_pending(self) -> None:
        self.silent = self.late = False
        for source, request, result in self.pending:
            self.decide(source, request, result)
        self.pending.clear()

    def decide(
        self,
        source: int,
        request: AlterPartitionRequest,
        result: "Deferred[AlterPartitionResponse]",
    ) -> None:
        response = AlterPartitionResponse(topics=[])
        asker = self.cluster.wire.brokers.get(source)
        if asker is None or asker.epoch != request.broker_epoch:
            response.error_code = StaleBrokerEpoch.code
            request.topics = []
        refusal = self.refuse_with.pop(0) if self.refuse_with else NONE
        for topic in request.topics:
            answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=[])
            response.topics.append(answer)
            for wanted in topic.partitions:
                key = TopicPartition(topic.topic_name, wanted.partition_index)
                answer.partitions.append(self._judge(source, key, wanted, refusal))
        if not result.called:
            result.callback(response)

    def _judge(
        self,
        source: int,
        key: TopicPartition,
        wanted: AlterPartitionRequest.TopicData.PartitionData,
        refusal: int,
    ) -> AlterPartitionResponse.TopicData.PartitionData:
        answer = AlterPartitionResponse.TopicData.PartitionData(
            partition_index=key.partition, error_code=refusal
        )
        if refusal != NONE:
            return answer
        state = self.states[key]
        isr = tuple(wanted.new_isr)
        if wanted.leader_epoch != state.leader_epoch or state.leader != source:
            answer.error_code = FencedLeaderEpoch.code
        elif isr == state.isr and wanted.partition_epoch < state.partition_epoch:
            pass  # the same request again: it has been applied
        elif wanted.partition_epoch != state.partition_epoch:
            answer.error_code = InvalidUpdateVersion.code
        elif any(not self._is_eligible(member) for member in wanted.new_isr_with_epochs):
            answer.error_code = IneligibleReplica.code
        elif isr != state.isr:
            self.states[key] = state = LeaderAndIsr(
                state.leader, state.leader_epoch, isr, partition_epoch=state.partition_epoch + 1
            )
        if answer.error_code == NONE:
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = list(state.isr), state.partition_epoch
        return answer

    def _is_eligible(
        self, member: AlterPartitionRequest.TopicData.PartitionData.BrokerState
    ) -> bool:
        """Alive, in the life that the leader counts on."""
        broker = self.cluster.wire.brokers.get(member.broker_id)
        return broker is not None and member.broker_epoch in (NO_BROKER_EPOCH, broker.epoch)


class Cluster:
    """Brokers 1 to n on one clock."""

    def __init__(self, root: Path, count: int = 3, **settings: str) -> None:
        self.root = root
        self.settings = settings
        self.clock = FakeClock()
        self.wire = Wire()
        self.broker_epochs = count_from(100)
        self.controller = Controller(self)
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    def start(self, broker_id: int) -> Broker:
        """A new life of a broker, on the files of the last one."""
        return Broker(
            broker_id,
            self.root / str(broker_id),
            self.clock,
            wire=self.wire,
            controller=self.controller,
            epoch=next(self.broker_epochs),
            settings=self.settings,
        )

    def broker(self, broker_id: int) -> Broker:
        return self.wire.brokers[broker_id]

    def __getitem__(self, broker_id: int) -> Broker:
        return self.wire.brokers[broker_id]

    def kill(self, broker_id: int, *, checkpoint: bool = True) -> None:
        """End a life without warning; files stay."""
        broker = self.wire.brokers.pop(broker_id)
        broker.logs.checkpoint_high_watermarks = lambda: succeed(None)  # type: ignore[method-assign]
        broker.replicas.stop()
        del broker.logs.checkpoint_high_watermarks
        broker.logs.crash(checkpoint=checkpoint)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        self.clock.advance(0)
        while self.wire.queue:
            self.wire.queue.popleft()()
            self.clock.advance(0)

    def advance(self, seconds: float, step: float = 0.1) -> None:
        """Let time pass in steps, with everything that happens meanwhile."""
        self.settle()
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until_s - 1e-9:
            self.clock.advance(min(step, until_s - self.clock.monotonic()))
            self.settle()

    def produce(
        self, broker_id: int, *values: str, acks: int = -1, to: TopicPartition = T0
    ) -> AppendResult:
        """Append and let the followers fetch until the answer is there."""
        answer = self[broker_id].produce(*values, acks=acks, to=to)
        self.settle()
        return result_of(answer)


__all__ = [
    "TOPIC_ID",
    "Broker",
    "Cluster",
    "LeaderAndIsrResponse",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "batch",
    "contents",
    "fail",
    "fetch_request",
    "leader_and_isr",
    "values_of",
]
