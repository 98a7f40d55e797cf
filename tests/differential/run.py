"""Runs cases against a broker and gives their answers as plain data."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.protocol.struct import Response

from .case import Ask, Await, Case, Names, Raw, Step, Topic, frame, head, response_of, sized
from .normal import Json, Normaliser
from .wire import PATIENCE_S, SILENCE_S, Closed, Connection, Silence

CREATE_VERSION: Final = 7
SETUP_LIMIT_S: Final = 20.0
TOPIC_EXISTS: Final = 36
NO_BROKER_YET: Final = (38, 41)
NOT_YET: Final = (3, 5, 6, 72, 100)

Tamper = Callable[[Response, int], Response]
"""Changes a decoded answer on its way to the comparison, to see whether that is found."""


@dataclass(slots=True)
class Broker:
    """A running broker.  `replaced`: texts of this run and what stands for them in facts."""

    port: int
    replaced: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, bytes] = field(default_factory=dict)
    """Shared topics that exist, with their ids."""


@dataclass(slots=True)
class Outcome:
    """`answers` one for each step; `texts` the error messages in them."""

    answers: list[Json]
    texts: list[str]


class SetupFailed(Exception):
    """What a case stands on could not be made."""


class Runner:
    """Runs one case."""

    def __init__(self, broker: Broker, case: Case, tamper: Tamper | None = None) -> None:
        self._broker = broker
        self._case = case
        self._tamper = tamper
        self._names = Names()
        self._normal = Normaliser(case, broker.replaced)
        self._connections: dict[str, Connection] = {}
        self._parked: dict[str, tuple[type[Response], int, int]] = {}
        self._correlation_id = 0

    def run(self) -> Outcome:
        """Raises SetupFailed."""
        case, answers = self._case, []
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
                    self._ask(before)
            try:
                for step in case.steps:
                    answers.append(self._take(step))
            finally:
                for after in case.cleanup:
                    self._ask(after)
        except (Closed, Silence) as error:
            raise SetupFailed(f"{case.name}: {error!r}") from error
        finally:
            for via in list(self._connections):
                self._drop(via)
        return Outcome(answers, self._normal.texts)

    def _take(self, step: Step) -> Json:
        if isinstance(step, Raw):
            return self._raw(step)
        return self._step(step)

    # -- the connection ------------------------------------------------------------------------

    def _connected(self, via: str = "") -> Connection:
        connection = self._connections.get(via)
        if connection is None:
            connection = self._connections[via] = Connection(self._broker.port)
        return connection

    def _drop(self, via: str = "") -> None:
        connection = self._connections.pop(via, None)
        if connection is not None:
            connection.close()

    # -- steps ---------------------------------------------------------------------------------

    def _step(self, step: Ask | Await) -> Json:
        try:
            if isinstance(step, Await):
                answer, version, body = self._awaited(step.via)
            else:
                answer, version, body = self._patiently(step)
        except Closed:
            self._drop(step.via)
            return "closed"
        except Silence:
            self._drop(step.via)
            return "silence"
        if answer is None:
            return "sent"
        if isinstance(answer, str):
            return answer
        return self._normalised(answer, version, body)

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

    def _normalised(self, answer: Response, version: int, body: bytes | memoryview) -> Json:
        if self._tamper is not None:
            answer = self._tamper(answer, version)
            body = answer.encode(version)
        return self._normal.message(answer, version, body)

    def _ask(self, step: Ask) -> Any:
        answer, _, _ = self._patiently(step)
        return answer

    def _exchange(self, step: Ask) -> tuple[Any, int, bytes | memoryview]:
        message = step.message(self._names) if callable(step.message) else step.message
        version = step.version
        self._correlation_id += 1
        content = head(message.api_key, version, self._correlation_id, step.client_id)
        connection = self._connected(step.via)
        connection.send(sized(content + message.encode(version)))
        if not step.answered:
            expected = (response_of(type(message)), version, self._correlation_id)
            self._parked[step.via] = expected
            return None, version, b""
        received = connection.receive(SILENCE_S if self._case.differs else PATIENCE_S)
        return self._decode(received, response_of(type(message)), version, self._correlation_id)

    def _awaited(self, via: str) -> tuple[Any, int, bytes | memoryview]:
        response, version, correlation_id = self._parked.pop(via)
        received = self._connected(via).receive(PATIENCE_S)
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
                received = connection.receive(SILENCE_S)
                is_probe = received[:4] == b"\0\0\0\x4d"
                results.append("open" if is_probe else received.hex())
            else:
                results.append(connection.receive(SILENCE_S).hex())
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
        message = CreateTopicsRequest(
            topics=[
                create(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=1,
                    configs=[
                        create.CreatableTopicConfig(name=key, value=value)
                        for key, value in topic.config.items()
                    ],
                )
            ],
            timeout_ms=30_000,
        )
        deadline = time.monotonic() + SETUP_LIMIT_S
        while True:
            answer = self._ask(Ask(message, CREATE_VERSION))
            code = answer.topics[0].error_code
            if code == TOPIC_EXISTS:  # from an earlier run
                self._ask(Ask(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=30_000), 5))
            elif code not in NO_BROKER_YET or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if answer.topics[0].error_code:
            raise SetupFailed(f"{topic.name}: {answer.topics[0]}")
        for partition in range(topic.partitions):
            for batch in topic.batches.get(partition, ()):
                self._append(topic.name, partition, batch)

    def _append(self, topic: str, partition: int, records: bytes) -> None:
        deadline = time.monotonic() + SETUP_LIMIT_S
        message = produce(topic, records, partition=partition)
        version = 11 if records[16] == 2 else 2
        while True:
            answer = self._ask(Ask(message, version))
            code = answer.responses[0].partition_responses[0].error_code
            if code == 0:
                return
            if code not in NOT_YET or time.monotonic() > deadline:
                raise SetupFailed(f"{self._case.name}: produce gave {code}")
            time.sleep(0.01)


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


def run(broker: Broker, case: Case, tamper: Tamper | None = None) -> Outcome:
    """All answers of a case.  Raises SetupFailed."""
    return Runner(broker, case, tamper).run()


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
