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
            found = self._consumer.poll(timeout_ms=100)
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
    """librdkafka: an error that says so, where it may not choose another offset by itself."""

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
        message = self._consumer.poll(0.1)
        if message is None:
            return
        if message.error() is None:
            yield "record", message.offset()
        elif "truncation" in message.error().str():
            yield "lost", -1

    def close(self) -> None:
        self._consumer.close()


class FranzGo:
    """franz-go: ErrDataLoss among the errors of a poll."""

    def __init__(self, servers: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [*truncation_program(), servers, topic],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def told(self) -> Iterator[tuple[str, int]]:
        try:
            kind, *words = self._lines.get(timeout=0.1).split()
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


Heard = list[tuple[str, int]]
BEFORE: Heard = [("record", offset) for offset in range(10)]
AFTER: Heard = [("lost", 5), ("record", 5), ("record", 6), ("record", 7)]


def listen(
    readers: dict[str, Reader], lasts: dict[str, tuple[str, int] | None]
) -> dict[str, Heard]:
    """What each reader says from now on, up to what it is to say last; None: up to a loss."""
    heard: dict[str, Heard] = {name: [] for name in readers}
    waiting = list(readers)
    deadline = time.monotonic() + LIMIT_S
    while waiting and time.monotonic() < deadline:
        for name in list(waiting):
            for said in readers[name].told():
                heard[name].append(said)
                last = lasts[name]
                if name in waiting and (said == last or (last is None and said[0] == "lost")):
                    waiting.remove(name)
    return heard


@pytest.fixture(scope="module")
def story() -> Iterator[dict[str, tuple[Heard, Heard] | str]]:
    """What each reader heard before and after an election that took five of ten records away and put
    three others in their place; or why there is no such reader."""
    found: dict[str, tuple[Heard, Heard] | str] = {}
    readers: dict[str, Reader] = {}
    with Cluster(3, config=FAST) as cluster:
        cluster.create_topic("cut", assignment=[[1, 2]], config={"min.insync.replicas": 1})
        cluster.wait_isr_full("cut")
        write(cluster, "cut", 5)
        cluster.kill(2, at_once=True)
        cluster.wait_isr("cut", [1])
        write(cluster, "cut", 5)
        for name, make in READERS.items():
            try:
                readers[name] = make(cluster.bootstrap_servers, "cut")
            except ClientMissing as error:
                found[name] = str(error)
        try:
            before = listen(readers, dict.fromkeys(readers, BEFORE[-1]))
            cluster.kill(1, at_once=True)
            cluster.start_broker(2)
            assert cluster.elect("cut", unclean=True) == 2
            write(cluster, "cut", 3)
            cluster.start_broker(1)
            # librdkafka does not go on by itself, and does not say where histories part.
            lasts = {name: None if name == "librdkafka" else AFTER[-1] for name in readers}
            after = listen(readers, lasts)
        finally:
            for reader in readers.values():
                reader.close()
    yield found | {name: (before[name], after[name]) for name in readers}


@pytest.mark.parametrize("name", READERS)
def test_a_consumer_hears_of_a_truncation(
    name: str, story: dict[str, tuple[Heard, Heard] | str]
) -> None:
    heard = story[name]
    if isinstance(heard, str):
        pytest.skip(heard)
    before, after = heard
    assert before == BEFORE
    if name == "librdkafka":
        assert after[-1][0] == "lost"
    else:
        assert after == AFTER
