"""A cluster without sockets: brokers that obey control requests, each with a controller.

Time is a FakeClock, ZooKeeper the coordination tree in memory.  `FakeBroker` answers LeaderAndIsr,
UpdateMetadata and StopReplica as a broker does (reference: replication 2, 3; controller 17).
Everything that is written to ZooKeeper and every request that reaches a broker can be recorded.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, fail

from kafkalike.controller.api import ElectionResult
from kafkalike.controller.controller import ControllerPorts, KafkaController
from kafkalike.controller.journal import JournalRecord
from kafkalike.controller.term import ControllerSettings
from kafkalike.errors import KafkaError
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafkalike.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkalike.metrics import Metrics
from kafkalike.net.client import PeerDisconnected, PeerTimeout
from kafkalike.types import Endpoint, ReplicaAssignment, TopicPartition, uuid_to_text
from kafkalike.zk import admin, brokers, paths
from kafkalike.zk.client import SessionState, ZkError
from kafkalike.zk.server.local import LocalCoordination, LocalZkClient
from kafkalike.zk.server.model import NodeCreated, NodeDataSet, NodeDeleted, Txn
from kafkalike.zk.server.tree import CoordinationTree
from kafkalike.zk.znodes import BrokerInfo, PartitionState, TopicInfo, encode_config
from tests.fakes import FakeClock, FakeRandom

NETWORK_DELAY_S = 0.001
STALE_CONTROLLER_EPOCH = 11
UNKNOWN_TOPIC_OR_PARTITION = 3
KAFKA_STORAGE_ERROR = 56
FENCED_LEADER_EPOCH = 74
STALE_BROKER_EPOCH = 77
INCONSISTENT_TOPIC_ID = 103

Config = Mapping[str, str]


def endpoint_of(broker_id: int) -> Endpoint:
    return Endpoint("PLAINTEXT", "PLAINTEXT", f"host{broker_id}", 9000 + broker_id)


@dataclass(slots=True)
class Hosted:
    """A replica as its broker knows it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    topic_id: bytes


@dataclass(slots=True)
class FakeBroker:
    """A broker process: its session, its replicas, its metadata cache, its controller."""

    world: "World"
    id: int
    rack: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    up: bool = False
    zk: LocalZkClient = field(init=False)
    controller: KafkaController = field(init=False)
    epoch: int = -1
    session_id: int = 0
    controller_epoch: int = 0
    hosted: dict[TopicPartition, Hosted] = field(default_factory=dict)
    failed_dirs: set[TopicPartition] = field(default_factory=set)
    cache: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Leader and leader epoch per partition, from UpdateMetadata."""
    alive: list[int] = field(default_factory=list)
    answering: bool = True
    """False: requests reach the broker but no answer comes back."""
    unclean_default: bool = False
    deleted: list[TopicPartition] = field(default_factory=list)
    refuse_deletion: int = 0
    queue_limit: int = 10_000
    metrics: Metrics | None = None
    short_logs: dict[TopicPartition, int] = field(default_factory=dict)
    whole_logs: dict[TopicPartition, int] = field(default_factory=dict)
    """What its next registration tells of its logs."""
    stopped_in: int = -1
    """The life that ended with its last stop in order."""
    min_isr_default: int = 1

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process: new session, registration, controller."""
        if self.up:
            return
        self.up = True
        self.controller_epoch = 0
        self.cache.clear()
        self.session_id = 0
        self.zk = self.world.coordination.client(session_timeout_ms=6000)
        zk = self.zk
        self.controller = KafkaController(
            ControllerSettings(
                self.id,
                control_listener="PLAINTEXT",
                inter_broker_listener="PLAINTEXT",
                **({"auto_leader_rebalance_enable": False} | self.settings),
            ),
            ControllerPorts(
                zk=zk,
                clock=self.world.clock,
                random=self.world.random,
                connect=lambda endpoint: FakeConnection(self.world, endpoint),
                register=self.register,
                unclean_default=lambda: self.unclean_default,
                min_isr_default=lambda: self.min_isr_default,
                logger=logging.getLogger(f"test.controller.{self.id}"),
                state_change_logger=logging.getLogger(f"test.state_change.{self.id}"),
                journal=self._journal,
                metrics=self.metrics,
            ),
            channel_queue_limit=self.queue_limit,
        )

        def state_changed(state: SessionState) -> None:
            if state is SessionState.EXPIRED and self.up and self.zk is zk:
                self.controller.before_session_expired()
                zk.reconnect().addCallback(lambda _: self.controller.after_new_session())

        async def begin() -> None:
            try:
                await zk.connect(30)
                zk.add_listener(state_changed)
                await self.register()
                self.controller.start()
            except (ZkError, KafkaError):
                if self.up and self.zk is zk:  # as a supervisor would
                    self.kill()
                    self.world.clock.call_later(1.0, self.start)

        self.world.run(begin())

    def _journal(self, record: JournalRecord) -> None:
        self.world.journal.append((self.id, record))

    async def register(self) -> None:
        info = BrokerInfo(
            (endpoint_of(self.id),),
            rack=self.rack,
            timestamp_ms=0,
            short_logs=self.short_logs,
            whole_logs=self.whole_logs,
        )
        registration = await brokers.register(
            self.zk,
            self.world.clock,
            self.id,
            info,
            wait_s=30,
            logger=logging.getLogger("test"),
            previous_session_id=self.session_id,
        )
        self.epoch, self.session_id = registration.epoch, registration.session_id
        self.world.name_epoch(self.id, self.epoch)

    def kill(self) -> None:
        """The process is gone; its session ends at once."""
        self.up = False
        self.controller.stop()
        self.zk.expire_session()
        self.zk.drop_connection()

    def stop(self) -> None:
        """An orderly end: the session is closed."""
        self.up = False
        self.controller.stop()
        self.zk.close()

    # -- control requests --------------------------------------------------------------------------

    def handle(self, request: Any) -> Any:
        self.world.received(self, request)
        if -1 < request.broker_epoch < self.epoch:
            return self._refuse(request, STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            return self._refuse(request, STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        if isinstance(request, LeaderAndIsrRequest):
            return self._leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return self._stop_replica(request)
        assert isinstance(request, UpdateMetadataRequest)
        return self._update_metadata(request)

    def _refuse(self, request: Any, code: int) -> Any:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=code)
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(error_code=code)
        return UpdateMetadataResponse(error_code=code)

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                    partition_index=state.partition_index,
                    error_code=self._become(topic.topic_name, topic.topic_id, state),
                )
                for state in topic.partition_states
            ]
            topics.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id, partition_errors=errors
                )
            )
        return LeaderAndIsrResponse(topics=topics)

    def _become(
        self, topic: str, topic_id: bytes, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState
    ) -> int:
        partition = TopicPartition(topic, state.partition_index)
        if partition in self.failed_dirs:
            return KAFKA_STORAGE_ERROR
        local = self.hosted.get(partition)
        if local is not None:
            if local.topic_id != topic_id and not self.world.disturbed:
                return INCONSISTENT_TOPIC_ID
            if local.topic_id != topic_id:
                # A copy that outlived its topic: set aside, as an operator must do with Kafka.
                del self.hosted[partition]
            elif state.leader_epoch <= local.leader_epoch:
                return STALE_CONTROLLER_EPOCH
        if self.id not in state.replicas:
            return UNKNOWN_TOPIC_OR_PARTITION
        self.hosted[partition] = Hosted(
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            tuple(state.isr),
            tuple(state.replicas),
            topic_id,
        )
        return 0

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                code = self._stop(partition, state.leader_epoch, state.delete_partition)
                errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=code,
                    )
                )
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, partition: TopicPartition, leader_epoch: int, delete: bool) -> int:
        if partition in self.failed_dirs:
            return KAFKA_STORAGE_ERROR
        local = self.hosted.get(partition)
        if local is not None and leader_epoch >= 0 and leader_epoch < local.leader_epoch:
            return FENCED_LEADER_EPOCH
        if delete and self.refuse_deletion:
            return self.refuse_deletion
        if delete:
            self.hosted.pop(partition, None)
            self.deleted.append(partition)
        return 0

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.alive = sorted(broker.id for broker in request.live_brokers)
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.cache.pop(partition, None)
                else:
                    self.cache[partition] = (state.leader, state.leader_epoch)
        return UpdateMetadataResponse()


class FakeConnection:
    """A connection to a FakeBroker; requests and answers take time, dead brokers refuse."""

    def __init__(self, world: "World", endpoint: Endpoint) -> None:
        self._world = world
        self._broker = world.brokers[endpoint.port - 9000]
        self._incarnation: object = None
        self.connected = False

    def connect(self) -> "Deferred[None]":
        if not self._broker.up:
            return fail(PeerDisconnected("connection refused"))
        self.connected = True
        self._incarnation = self._broker.controller
        done: Deferred[None] = Deferred()
        self._world.clock.call_later(NETWORK_DELAY_S, done.callback, None)
        return done

    def send(
        self, request: Any, *, version: int | None = None, timeout_s: float | None = None
    ) -> "Deferred[Any]":
        assert version is not None
        answer: Deferred[Any] = Deferred()
        self._world.clock.call_later(NETWORK_DELAY_S, self._arrive, request, answer)
        if timeout_s is not None:
            self._world.clock.call_later(timeout_s, self._give_up, answer)
        return answer

    def _give_up(self, answer: "Deferred[Any]") -> None:
        if not answer.called:
            answer.errback(PeerTimeout("no answer"))

    def _arrive(self, request: Any, answer: "Deferred[Any]") -> None:
        if answer.called or not self.connected:
            return
        if not self._broker.up or self._broker.controller is not self._incarnation:
            self.connected = False
            answer.errback(PeerDisconnected("connection reset"))
            return
        response = self._broker.handle(request)
        if self._broker.answering:
            self._world.clock.call_later(NETWORK_DELAY_S, self._answer, answer, response)

    def _answer(self, answer: "Deferred[Any]", response: Any) -> None:
        if self.connected and not answer.called:
            answer.callback(response)

    def close(self, reason: str = "") -> None:
        self.connected = False


class World:
    """The cluster, its clock, and what was seen in it."""

    def __init__(self, broker_count: int = 3, **settings: Any) -> None:
        self.clock = FakeClock()
        self.random = FakeRandom(1)
        self.transactions: list[Txn] = []
        self.lines: list[str] = []
        self.recording = False
        self.journal: list[tuple[int, JournalRecord]] = []
        self.errors: list[BaseException] = []
        self.disturbed = False
        """Whether brokers may die that the story does not mention."""
        self._epoch_names: dict[int, str] = {}
        self._lives: dict[int, int] = {}
        self.observers: list[Callable[[FakeBroker, Any], None]] = []
        self.coordination = LocalCoordination(
            self.clock,
            tree=CoordinationTree(journal=self._committed, first_session_id=0x100),
        )
        for path in paths.PRECREATED:
            self.coordination.create(path)
        self.brokers = {
            broker_id: FakeBroker(self, broker_id, settings=dict(settings))
            for broker_id in range(1, broker_count + 1)
        }

    # -- time --------------------------------------------------------------------------------------

    def run(self, work: Any) -> None:
        """Start a coroutine; an error out of it fails the test at the next `settle`."""

        def failed(failure: Any) -> None:
            self.errors.append(failure.value)

        Deferred.fromCoroutine(work).addErrback(failed)

    def settle(self, seconds: float = 3.0) -> None:
        """Let happen what is under way; long enough for everything but timeouts."""
        self.clock.advance(seconds)
        assert not self.errors, self.errors

    def ask(self, work: "Deferred[Any]", seconds: float = 3.0) -> Any:
        """The answer to a request after settling; raises its error."""
        outcome: list[Any] = []
        work.addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
        self.settle(seconds)
        assert outcome, "no answer"
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    # -- arranging ---------------------------------------------------------------------------------

    def start_all(self) -> "World":
        for broker in self.brokers.values():
            broker.start()
            self.settle()
        return self

    def add_broker(self, broker_id: int, **fields: Any) -> FakeBroker:
        self.brokers[broker_id] = FakeBroker(self, broker_id, **fields)
        return self.brokers[broker_id]

    @property
    def active(self) -> FakeBroker:
        """The broker whose controller is active; exactly one must be."""
        found = [b for b in self.brokers.values() if b.up and b.controller.is_active]
        assert len(found) == 1, [b.id for b in found]
        return found[0]

    @property
    def controller(self) -> KafkaController:
        return self.active.controller

    def create_topic(
        self,
        topic: str,
        replicas: Iterable[Iterable[int]],
        config: Config | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        """As a broker creates topics: config first, then the node the controller sees."""
        assignments = {n: ReplicaAssignment(tuple(r)) for n, r in enumerate(replicas)}
        self.coordination.create(paths.topic_config(topic), encode_config(config or {}))
        topic_id = topic_id or topic.encode().ljust(16, b"\1")[:16]
        self.coordination.create(paths.topic(topic), TopicInfo(assignments, topic_id).encode())

    def delete_topic(self, topic: str) -> None:
        self.run(admin.request_topic_deletion(self.any_zk(), topic))

    def any_zk(self) -> LocalZkClient:
        return next(b.zk for b in self.brokers.values() if b.up)

    # -- looking -----------------------------------------------------------------------------------

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        path = paths.partition_state(topic, partition)
        stat = self.coordination.stat(path)
        assert stat is not None, path
        return PartitionState.decode(self.coordination.get(path), path, stat.version)

    def exists(self, path: str) -> bool:
        return self.coordination.stat(path) is not None

    def has_state(self, topic: str, partition: int = 0) -> bool:
        return self.exists(paths.partition_state(topic, partition))

    def topic(self, topic: str) -> TopicInfo:
        path = paths.topic(topic)
        return TopicInfo.decode(self.coordination.get(path), path)

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.state(topic, partition).leader_and_isr.leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        return self.state(topic, partition).leader_and_isr.isr

    def check_agreement(self) -> None:
        """With everything settled, brokers know and do what ZooKeeper says."""
        up = [broker for broker in self.brokers.values() if broker.up]
        assert self.active is not None
        registered = sorted(int(n) for n in self.coordination.children(paths.BROKER_IDS))
        for broker in up:
            assert broker.alive == registered, (broker.id, broker.alive, registered)
        assignments = {
            TopicPartition(topic, number): assignment
            for topic in self.coordination.children(paths.TOPICS)
            for number, assignment in self.topic(topic).partitions.items()
        }
        for partition, assignment in assignments.items():
            state = self.state(*partition).leader_and_isr
            assert state.leader == -1 or state.leader in assignment.replicas, (partition, state)
            assert state.leader == -1 or state.leader in state.isr, (partition, state)
            for broker in up:
                assert broker.cache.get(partition) == (state.leader, state.leader_epoch), (
                    broker.id,
                    partition,
                    broker.cache.get(partition),
                    state,
                )
                hosted = broker.hosted.get(partition)
                if broker.id in assignment.replicas and partition not in broker.failed_dirs:
                    if broker.id in state.isr or broker.id == state.leader:
                        assert hosted is not None, (broker.id, partition)
                    if hosted is not None and state.leader >= 0:
                        assert hosted.leader == state.leader, (broker.id, partition, hosted, state)
                        assert hosted.leader_epoch == state.leader_epoch, (broker.id, partition)
                elif not self.disturbed and partition not in broker.failed_dirs:
                    # Deletions of reassigned replicas are sent once: a crash may swallow them.
                    assert hosted is None, (broker.id, partition)

    # -- asking the controller ---------------------------------------------------------------------

    def alter_isr(
        self,
        topic: str,
        isr: Iterable[int],
        partition: int = 0,
        *,
        leader: int | None = None,
        seconds: float = 3.0,
    ) -> AlterPartitionResponse.TopicData.PartitionData:
        """The leader proposes an ISR, as it knows leadership."""
        state = self.state(topic, partition).leader_and_isr
        broker = self.brokers[state.leader if leader is None else leader]
        topic_id = self.topic(topic).topic_id
        assert topic_id is not None
        Data = AlterPartitionRequest.TopicData
        request = AlterPartitionRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            topics=[
                Data(
                    topic_id=topic_id,
                    partitions=[
                        Data.PartitionData(
                            partition_index=partition,
                            leader_epoch=state.leader_epoch,
                            new_isr_with_epochs=[
                                Data.PartitionData.BrokerState(broker_id=member) for member in isr
                            ],
                            partition_epoch=state.partition_epoch,
                        )
                    ],
                )
            ],
        )
        response = self.ask(self.controller.alter_partition(request, 3), seconds)
        assert isinstance(response, AlterPartitionResponse)
        return response.topics[0].partitions[0]

    def reassign(
        self, targets: Mapping[TopicPartition, Iterable[int] | None], seconds: float = 3.0
    ) -> dict[TopicPartition, int]:
        """AlterPartitionReassignments; error code per partition."""
        return reassignment_errors(
            self.ask(
                self.controller.alter_partition_reassignments(reassignment_request(targets)),
                seconds,
            )
        )

    def elect(
        self, election_type: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ElectionResult]:
        result = self.ask(self.controller.elect_leaders(election_type, list(partitions)))
        assert isinstance(result, dict)
        return result

    # -- the story ---------------------------------------------------------------------------------

    def name_epoch(self, broker_id: int, epoch: int) -> None:
        if epoch not in self._epoch_names:
            life = self._lives.get(broker_id, 0)
            self._lives[broker_id] = life + 1
            self._epoch_names[epoch] = f"{broker_id}{chr(ord('a') + life)}"

    def say(self, line: str) -> None:
        self.lines.append(line)

    def tell(self, heading: str) -> None:
        """Begin a chapter; what happens from here on is recorded."""
        self.recording = True
        if self.lines:
            self.lines.append("")
        self.lines.append(f"* {heading}")

    def _committed(self, txn: Txn) -> None:
        self.transactions.append(txn)
        if not self.recording:
            return
        for change in txn.changes:
            if isinstance(change, NodeCreated):
                self.say(f"zk create {change.path}{_payload(change.data)}")
            elif isinstance(change, NodeDataSet):
                self.say(f"zk set {change.path} v{change.version}{_payload(change.data)}")
            elif isinstance(change, NodeDeleted):
                self.say(f"zk delete {change.path}")

    def received(self, broker: FakeBroker, request: Any) -> None:
        for observer in self.observers:
            observer(broker, request)
        if self.recording:
            epoch = self._epoch_names.get(request.broker_epoch, "?")
            self.say(f"rpc -> {epoch} {describe(request)}")

    def story(self) -> str:
        return "\n".join(self.lines) + "\n"


def reassignment_request(
    targets: Mapping[TopicPartition, Iterable[int] | None],
) -> AlterPartitionReassignmentsRequest:
    Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    return AlterPartitionReassignmentsRequest(
        topics=[
            Topic(
                name=partition.topic,
                partitions=[
                    Topic.ReassignablePartition(
                        partition_index=partition.partition,
                        replicas=None if target is None else list(target),
                    )
                ],
            )
            for partition, target in targets.items()
        ]
    )


def reassignment_errors(
    response: AlterPartitionReassignmentsResponse,
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, entry.partition_index): entry.error_code
        for topic in response.responses
        for entry in topic.partitions
    }


def _payload(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        value = json.loads(data)
    except ValueError:
        return f" {data!r}"
    if isinstance(value, dict):
        for key in ("timestamp", "version", "kraftControllerEpoch", "jmx_port", "topic_id"):
            value.pop(key, None)
        if "listener_security_protocol_map" in value:
            return " registration"
    return " " + json.dumps(value, separators=(",", ":"))


def describe(request: Any) -> str:
    """A control request in one line."""
    if isinstance(request, LeaderAndIsrRequest):
        parts = []
        for topic in request.topic_states:
            for s in topic.partition_states:
                text = f"{topic.topic_name}-{s.partition_index}[leader={s.leader}/{s.leader_epoch}"
                text += f" isr={_ids(s.isr)}/{s.partition_epoch} replicas={_ids(s.replicas)}"
                if s.adding_replicas:
                    text += f" adding={_ids(s.adding_replicas)}"
                if s.removing_replicas:
                    text += f" removing={_ids(s.removing_replicas)}"
                text += " new" if s.is_new else ""
                text += " recovering" if s.leader_recovery_state else ""
                parts.append(text + "]")
        leaders = ",".join(str(leader.broker_id) for leader in request.live_leaders)
        return f"LeaderAndIsr({request.controller_epoch}) {' '.join(parts)} leaders={leaders}"
    if isinstance(request, UpdateMetadataRequest):
        parts = []
        for described in request.topic_states:
            for m in described.partition_states:
                text = (
                    f"{described.topic_name}-{m.partition_index}[leader={m.leader}/{m.leader_epoch}"
                )
                text += f" isr={_ids(m.isr)}/{m.zk_version}"
                text += f" offline={_ids(m.offline_replicas)}" if m.offline_replicas else ""
                parts.append(text + "]")
        live = ",".join(str(broker.id) for broker in request.live_brokers)
        return " ".join([f"UpdateMetadata({request.controller_epoch}) live={live}", *parts])
    assert isinstance(request, StopReplicaRequest)
    parts = [
        f"{topic.topic_name}-{s.partition_index}/{s.leader_epoch}"
        f"{' delete' if s.delete_partition else ''}"
        for topic in request.topic_states
        for s in topic.partition_states
    ]
    return f"StopReplica({request.controller_epoch}) {' '.join(parts)}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def topic_id_text(topic: str) -> str:
    return uuid_to_text(topic.encode().ljust(16, b"\1")[:16])
