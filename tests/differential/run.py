"""Runs cases against a broker and gives their answers as plain data."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.cluster import AlterPartitionReassignmentsRequest
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.protocol.struct import Response
from tests.clusters import Cluster

from .case import (
    NEW_EPOCH,
    Ask,
    Await,
    Case,
    Names,
    Raw,
    Step,
    Together,
    Topic,
    frame,
    head,
    response_of,
    sized,
)
from .normal import Json, Normaliser
from .tree import ClusterTree
from .wire import PATIENCE_S, SILENCE_S, Closed, Connection, Silence

CREATE_VERSION: Final = 7
SETUP_LIMIT_S: Final = 20.0
CLOCK_S: Final = 0.001
"""The time of records has no finer unit."""
PARKED_S: Final = 0.05
"""A parked request has surely been received after this; no answer would tell."""
TOPIC_EXISTS: Final = 36
NO_BROKER_YET: Final = (38, 41)
NOT_YET: Final = (3, 5, 6, 72, 100)

Place = tuple[int, str]
"""Of a connection: broker, and a name."""

FIRST: Final = (1, "")

Tamper = Callable[[Response, int], Response]
"""Changes a decoded answer on its way to the comparison, to see whether that is found."""


@dataclass(slots=True)
class Broker:
    """A running broker, or several.  `replaced`: texts of this run and what facts say for them."""

    cluster: Cluster
    replaced: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, bytes] = field(default_factory=dict)
    """Shared topics that exist, with their ids."""
    absent: set[int] = field(default_factory=set)
    """Brokers that do not serve at the moment."""


@dataclass(slots=True)
class Outcome:
    """`answers` one for each step; `texts` the error messages in them."""

    answers: list[Json]
    texts: list[str]


class SetupFailed(Exception):
    """What a case stands on could not be made."""


class Runner:
    """Runs one case."""

    def __init__(
        self,
        broker: Broker,
        case: Case,
        tamper: Tamper | None = None,
        expected: Sequence[Json] = (),
    ) -> None:
        self._broker = broker
        self._case = case
        self._tamper = tamper
        self._expected = expected
        self._answers: list[Json] = []
        cluster = broker.cluster
        dirs = {number: [str(path) for path in cluster.dirs(number)] for number in cluster.ports}
        self._names = Names(cluster.ports, ClusterTree(cluster.zookeeper), dirs)
        self._normal = Normaliser(case, broker.replaced)
        self._connections: dict[Place, Connection] = {}
        self._parked: dict[Place, tuple[type[Response], int, int]] = {}
        self._correlation_id = 0

    def run(self) -> Outcome:
        """Raises SetupFailed."""
        case, answers = self._case, self._answers
        try:
            for topic in case.uses:
                if topic.name not in self._broker.made:
                    self._make(topic)
                    self._broker.made[topic.name] = self._names.topic_ids[topic.name]
                self._names.topic_ids[topic.name] = self._broker.made[topic.name]
            for before in case.setup:
                if isinstance(before, Topic):
                    self._make(before)
                else:
                    self.ask(before)
            try:
                for step in case.steps:
                    self._take(step)
            finally:
                for after in case.cleanup:
                    self.ask(after)
        except (Closed, Silence) as error:
            raise SetupFailed(f"{case.name}: {error!r}") from error
        finally:
            self.close()
        return Outcome(answers, self._normal.texts)

    def close(self) -> None:
        for place in list(self._connections):
            self._drop(place)

    def _take(self, step: Step) -> None:
        if isinstance(step, Together):
            self._answers += self._together(step.asks)
        elif isinstance(step, Raw):
            self._answers.append(self._raw(step))
        else:
            self._answers.append(self._step(step))

    def _limit_s(self, usual_s: float) -> float:
        """How long to wait for the answer of this step.

        Only where nothing should come is a short while enough: elsewhere a broker that stands still
        for it would pass for a silent one.
        """
        if len(self._answers) >= len(self._expected):
            return SILENCE_S if self._case.differs else usual_s
        expected = self._expected[len(self._answers)]
        if isinstance(expected, list) and expected:
            expected = expected[-1]
        return SILENCE_S if (expected == "silence") != bool(self._case.differs) else PATIENCE_S

    # -- the connection ------------------------------------------------------------------------

    def _connected(self, place: Place = FIRST) -> Connection:
        connection = self._connections.get(place)
        if connection is None:
            port = self._broker.cluster.ports[place[0]]
            connection = self._connections[place] = Connection(port)
        return connection

    def _drop(self, place: Place = FIRST) -> None:
        connection = self._connections.pop(place, None)
        if connection is not None:
            connection.close()

    # -- steps ---------------------------------------------------------------------------------

    def _step(self, step: Ask | Await) -> Json:
        try:
            if isinstance(step, Await):
                answer, version, body = self._awaited((step.to, step.via))
            else:
                answer, version, body = self._patiently(step)
        except Closed:
            self._drop((step.to, step.via))
            return "closed"
        except Silence:
            self._drop((step.to, step.via))
            return "silence"
        if answer is None:
            return "sent"
        return self._normalised(answer, version, body)

    def _together(self, asks: Sequence[Ask]) -> list[Json]:
        """One for each; what a broker that closes does not answer is "closed"."""
        (place,) = {(ask.to, ask.via) for ask in asks}
        frames: list[bytes] = []
        expected: list[tuple[type[Response], int, int]] = []
        for ask in asks:
            content, wanted = self._request(ask)
            frames.append(sized(content))
            expected.append(wanted)
        answers: list[Json] = []
        try:
            connection = self._connected(place)
            connection.send(b"".join(frames))
            for wanted in expected:
                answer, version, body = self._decode(connection.receive(PATIENCE_S), *wanted)
                answers.append(self._normalised(answer, version, body))
        except (Closed, Silence) as error:
            self._drop(place)
            word = "closed" if isinstance(error, Closed) else "silence"
            answers += [word] * (len(asks) - len(answers))
        return answers

    def _patiently(self, step: Ask) -> tuple[Any, int, bytes | memoryview]:
        deadline = time.monotonic() + SETUP_LIMIT_S
        while True:
            answer, version, body = self._exchange(step)
            if step.until is None or isinstance(answer, str) or step.until(answer):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return answer, version, body

    def _normalised(self, answer: Response | str, version: int, body: bytes | memoryview) -> Json:
        """A text is what `_decode` says of what is no answer."""
        if isinstance(answer, str):
            return answer
        if self._tamper is not None:
            answer = self._tamper(answer, version)
            body = answer.encode(version)
        return self._normal.message(answer, version, body)

    def ask(self, step: Ask) -> Any:
        """Outside of a case."""
        answer, _, _ = self._patiently(step)
        return answer

    def _request(self, step: Ask) -> tuple[bytes, tuple[type[Response], int, int]]:
        """What is sent, and what `_decode` has to know of its answer."""
        message = step.message(self._names) if callable(step.message) else step.message
        self._correlation_id += 1
        content = head(message.api_key, step.version, self._correlation_id, step.client_id)
        expected = (response_of(type(message)), step.version, self._correlation_id)
        return content + message.encode(step.version), expected

    def _exchange(self, step: Ask) -> tuple[Any, int, bytes | memoryview]:
        content, expected = self._request(step)
        place = (step.to, step.via)
        connection = self._connected(place)
        connection.send(sized(content))
        if not step.answered:
            self._parked[place] = expected
            if place != FIRST:
                time.sleep(PARKED_S)
            return None, step.version, b""
        return self._decode(connection.receive(self._limit_s(PATIENCE_S)), *expected)

    def _awaited(self, place: Place) -> tuple[Any, int, bytes | memoryview]:
        response, version, correlation_id = self._parked.pop(place)
        received = self._connected(place).receive(PATIENCE_S)
        return self._decode(received, response, version, correlation_id)

    def _decode(
        self, received: bytes, response: type[Response], version: int, correlation_id: int
    ) -> tuple[Any, int, bytes | memoryview]:
        found, position = decode_response_header(received, response.api_key, version)
        if found != correlation_id:
            return f"correlation id {found}, expected {correlation_id}", version, b""
        if response is ApiVersionsResponse and received[position : position + 2] == b"\0\x23":
            version = 0  # the answer to a version that is not served
        try:
            answer, _ = response.decode_prefix(received, version, position)
        except MalformedMessage as error:
            return f"not a {response.__name__}: {error}", version, b""
        self._learn(answer)
        return answer, version, memoryview(received)[position:]

    def _learn(self, answer: Response) -> None:
        self._names.answers.append(answer)
        if isinstance(answer, CreateTopicsResponse | MetadataResponse):
            for topic in answer.topics:
                if topic.name and any(topic.topic_id):
                    self._names.topic_ids[topic.name] = topic.topic_id

    def _raw(self, step: Raw) -> Json:
        results: list[Json] = []
        data = step.data(self._names) if callable(step.data) else step.data
        try:
            connection = self._connected()
            connection.send(data)
            if step.after == "finish":
                connection.finish()
            for expected in step.answers:
                received = connection.receive()
                results.append(self._raw_answer(received, expected))
            if step.after == "probe":
                connection.send(frame(ApiVersionsRequest(), 0, correlation_id=77))
                received = connection.receive(self._limit_s(SILENCE_S))
                is_probe = received[:4] == b"\0\0\0\x4d"
                results.append("open" if is_probe else received.hex())
            else:
                results.append(connection.receive(self._limit_s(SILENCE_S)).hex())
        except Closed:
            results.append("closed")
        except Silence:
            results.append("silence")
        if results[-1] != "open":
            self._drop()
        return results

    def _raw_answer(self, received: bytes, expected: tuple[type[Response], int] | None) -> Json:
        if expected is None:
            return received.hex()
        response, version = expected
        correlation_id = int.from_bytes(received[:4], "big", signed=True)
        answer, version, body = self._decode(received, response, version, correlation_id)
        if isinstance(answer, str):
            return answer
        return [correlation_id, self._normalised(answer, version, body)]

    # -- setup ---------------------------------------------------------------------------------

    def _make(self, topic: Topic) -> None:
        create = CreateTopicsRequest.CreatableTopic
        wanted = create(
            name=topic.name,
            num_partitions=-1 if topic.replicas else topic.partitions,
            replication_factor=-1 if topic.replicas else 1,
            assignments=[
                create.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                for number, replicas in enumerate(topic.replicas)
            ],
            configs=[
                create.CreatableTopicConfig(name=key, value=value)
                for key, value in topic.config.items()
            ],
        )
        message = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        deadline = time.monotonic() + SETUP_LIMIT_S
        while True:
            answer = self.ask(Ask(message, CREATE_VERSION))
            code = answer.topics[0].error_code
            if code == TOPIC_EXISTS:  # from an earlier run
                self.ask(Ask(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=30_000), 5))
            elif code not in NO_BROKER_YET or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if answer.topics[0].error_code:
            raise SetupFailed(f"{topic.name}: {answer.topics[0]}")
        if topic.replicas:
            self._settle(topic)
        for partition in range(topic.count):
            for batch in topic.batches.get(partition, ()):
                if batch == NEW_EPOCH:
                    self._new_epoch(topic, partition)
                else:
                    self._append(topic, partition, batch)
        if topic.batches and topic.replicas:
            self._read_by_all(topic)

    def _new_epoch(self, topic: Topic, partition: int) -> None:
        """The leader stays, its followers change their order.

        They know the high watermark before: the original would not tell them in the new epoch.
        """
        self._read_by_all(topic)
        look = Ask(look_at(topic.name), 12)

        def found(answer: Any) -> Any:
            (part,) = (p for p in answer.topics[0].partitions if p.partition_index == partition)
            return part

        before = found(self.ask(look))
        leader, *others = before.replica_nodes
        wanted = [leader, *reversed(others)]
        move = AlterPartitionReassignmentsRequest.ReassignableTopic
        part = move.ReassignablePartition(partition_index=partition, replicas=wanted)
        request = AlterPartitionReassignmentsRequest(
            topics=[move(name=topic.name, partitions=[part])], timeout_ms=30_000
        )
        self.ask(Ask(request, 0))

        def moved(answer: Any) -> bool:
            after = found(answer)
            return bool(after.replica_nodes == wanted and after.leader_epoch > before.leader_epoch)

        for broker_id in self._present():
            self.ask(dataclasses.replace(look, until=moved, to=broker_id))

    def _present(self) -> list[int]:
        return [n for n in self._broker.cluster.ports if n not in self._broker.absent]

    def _settle(self, topic: Topic) -> None:
        """Until every broker says that all replicas are in sync."""
        wanted = [list(replicas) for replicas in topic.replicas]
        message = look_at(topic.name)

        def settled(answer: MetadataResponse) -> bool:
            partitions = sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)
            return [p.replica_nodes for p in partitions] == wanted and not any(
                p.error_code or set(p.isr_nodes) != set(p.replica_nodes) for p in partitions
            )

        for broker_id in self._present():
            answer = self.ask(Ask(message, 12, until=settled, to=broker_id))
            if not settled(answer):
                raise SetupFailed(f"{topic.name} on broker {broker_id}: {answer.topics}")

    def _read_by_all(self, topic: Topic) -> None:
        """Until every replica lets consumers read all of its partition."""
        _Wanted = FetchRequest.FetchTopic
        for number, replicas in enumerate(topic.replicas):
            part = _Wanted.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
            message = FetchRequest(topics=[_Wanted(topic=topic.name, partitions=[part])])
            end = 0

            def reached(answer: Any) -> bool:
                return bool(answer.responses[0].partitions[0].high_watermark >= end)  # noqa: B023

            for broker_id in replicas:
                if broker_id in self._broker.absent:
                    continue
                ask = Ask(message, 11, until=reached, to=broker_id)
                answer = self.ask(ask)
                end = answer.responses[0].partitions[0].high_watermark
                if not reached(answer):
                    raise SetupFailed(f"{topic.name}: broker {broker_id} lags: {answer}")

    def _append(self, topic: Topic, partition: int, records: bytes) -> None:
        deadline = time.monotonic() + SETUP_LIMIT_S
        message = produce(topic.name, records, partition=partition)
        leader = topic.replicas[partition][0] if topic.replicas else 1
        version = 11 if records[16] == 2 else 2
        while True:
            answer = self.ask(Ask(message, version, to=leader))
            code = answer.responses[0].partition_responses[0].error_code
            if code == 0:
                if topic.config.get("message.timestamp.type") == "LogAppendTime":
                    time.sleep(2 * CLOCK_S)  # or two batches come to have the same time
                return
            if code not in NOT_YET or time.monotonic() > deadline:
                raise SetupFailed(f"{self._case.name}: produce gave {code}")
            time.sleep(0.01)


def look_at(*topics: str) -> MetadataRequest:
    """Metadata of these topics."""
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )


def produce(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request with one batch."""
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            data(
                name=topic,
                partition_data=[data.PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


def run(
    broker: Broker, case: Case, tamper: Tamper | None = None, expected: Sequence[Json] = ()
) -> Outcome:
    """All answers of a case; `expected` only tells how long to wait for each.  Raises SetupFailed."""
    return Runner(broker, case, tamper, expected).run()


def first_difference(expected: Json, found: Json, where: str = "") -> str | None:
    """Where two answers part, or None."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            missing = "<default>"
            there = first_difference(
                expected.get(key, missing), found.get(key, missing), f"{where}.{key}"
            )
            if there:
                return there
        return None
    if isinstance(expected, list) and isinstance(found, list):
        for number, (one, two) in enumerate(zip(expected, found)):
            there = first_difference(one, two, f"{where}[{number}]")
            if there:
                return there
        if len(expected) != len(found):
            return f"{where}: expected {len(expected)} items, found {len(found)}: {found}"
        return None
    if expected == found and type(expected) is type(found):
        return None
    return f"{where or 'answer'}: expected {expected!r}, found {found!r}"
