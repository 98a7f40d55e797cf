"""A consumer that has read what an unclean election took away hears of it (KIP-320, KAFKA-7747)."""

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from kafkalike.testing import Cluster
from tests.integration.client_matrix.programs import ClientMissing, truncation_program

pytestmark = pytest.mark.slow

FAST = {"zookeeper.session.timeout.ms": 2000, "replica.lag.time.max.ms": 1500}
LIMIT_S = 60.0


class Reader(Protocol):
    """Reads partition 0 from its start: `("record", offset)` and `("lost", offset to go on from)`."""

    def told(self) -> Iterator[tuple[str, int]]: ...

    def close(self) -> None: ...


class KafkaPython:
    """kafka-python 3: LogTruncationError out of `poll`, with the offset where histories part."""

    def __init__(self, servers: str, topic: str) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._place = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","),
            auto_offset_reset="none",
            metadata_max_age_ms=500,
            enable_auto_commit=False,
        )
        self._consumer.assign([self._place])
        self._consumer.seek(self._place, 0)

    def told(self) -> Iterator[tuple[str, int]]:
        from kafka.errors import LogTruncationError

        try:
            found = self._consumer.poll(timeout_ms=200)
        except LogTruncationError as error:
            divergent = error.divergent_offsets[self._place]
            yield "lost", divergent.offset
            self._consumer.seek(self._place, divergent.offset)
            return
        for records in found.values():
            yield from (("record", record.offset) for record in records)

    def close(self) -> None:
        self._consumer.close()


class Librdkafka:
    """librdkafka: the error _LOG_TRUNCATION where no reset is allowed."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def told(self) -> Iterator[tuple[str, int]]:
        from confluent_kafka import KafkaError, KafkaException

        try:
            message = self._consumer.poll(0.2)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError._LOG_TRUNCATION, error
            yield "lost", -1
            return
        if message is None:
            return
        if message.error() is None:
            yield "record", message.offset()
        elif message.error().code() == KafkaError._LOG_TRUNCATION:
            yield "lost", message.offset()

    def close(self) -> None:
        self._consumer.close()


class FranzGo:
    """franz-go: ErrDataLoss among the errors of a poll."""

    def __init__(self, servers: str, topic: str) -> None:
        try:
            command = truncation_program()
        except ClientMissing as error:
            pytest.skip(str(error))
        self._process = subprocess.Popen(
            [*command, servers, topic], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def told(self) -> Iterator[tuple[str, int]]:
        try:
            kind, *words = self._lines.get(timeout=0.2).split()
        except queue.Empty:
            return
        assert kind in ("record", "lost"), words
        yield kind, int(words[-1] if kind == "lost" else words[0])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


READERS: dict[str, Callable[[str, str], Reader]] = {
    "kafka-python": KafkaPython,
    "librdkafka": Librdkafka,
    "franz-go": FranzGo,
}


def write(cluster: Cluster, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    errors: list[Any] = []
    producer: Any = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
    )
    for number in range(count):
        producer.produce(topic, b"%d" % number, callback=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert errors == [None] * count


@pytest.mark.parametrize("name", READERS)
def test_a_consumer_hears_of_a_truncation(name: str) -> None:
    """It has read ten records; five of them are gone, and three others stand in their place."""
    with Cluster(3, config=FAST) as cluster:
        cluster.create_topic("cut", assignment=[[1, 2]], config={"min.insync.replicas": 1})
        cluster.wait_isr_full("cut")
        write(cluster, "cut", 5)
        cluster.kill(2, at_once=True)
        cluster.wait_isr("cut", [1])
        write(cluster, "cut", 5)
        reader = READERS[name](cluster.bootstrap_servers, "cut")
        try:
            seen: list[tuple[str, int]] = []
            assert hear(reader, seen, ("record", 9)) == [("record", n) for n in range(10)]
            cluster.kill(1, at_once=True)
            cluster.start_broker(2)
            assert cluster.elect("cut", unclean=True) == 2
            write(cluster, "cut", 3)
            cluster.start_broker(1)
            if name == "librdkafka":  # it does not say where histories part
                assert hear(reader, seen, None)[-1][0] == "lost"
                return
            assert hear(reader, seen, ("record", 7)) == [
                ("lost", 5),
                ("record", 5),
                ("record", 6),
                ("record", 7),
            ]
        finally:
            reader.close()


def hear(
    reader: Reader, seen: list[tuple[str, int]], last: tuple[str, int] | None
) -> list[tuple[str, int]]:
    """What the reader says from now on, up to `last`, or up to a loss."""
    deadline = time.monotonic() + LIMIT_S
    start = len(seen)
    while time.monotonic() < deadline:
        for said in reader.told():
            seen.append(said)
            if said == last or (last is None and said[0] == "lost"):
                return seen[start:]
    raise AssertionError(f"not heard: {last or 'a loss'}; only {seen[start:]}")
