"""Fixtures of the suite: `recording_producer` keeps its outcomes, `read_all` reads to the end."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

QUICK = {
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}


class RecordingProducer:
    """Produces and keeps (value, error) of every outcome."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        changed = {name.replace("_", "."): value for name, value in settings.items()}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **QUICK, **changed})
        self.outcomes: list[tuple[bytes, Any]] = []

    def send(self, topic: str, value: bytes) -> None:
        def done(error: Any, message: Any) -> None:
            self.outcomes.append((value, error))

        self._producer.produce(topic, value, on_delivery=done)
        self._producer.poll(0)

    def wait(self, timeout_s: float = 60) -> None:
        assert self._producer.flush(timeout_s) == 0, "not everything was answered"

    @property
    def delivered(self) -> list[bytes]:
        return [value for value, error in self.outcomes if error is None]


def _read_all(bootstrap_servers: str, topic: str, end_offset: int) -> list[bytes]:
    """The values of partition 0 up to an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"read-{time.monotonic()}",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end_offset:
        assert time.monotonic() < deadline, f"{len(values)} of {end_offset} came"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


@pytest.fixture
def recording_producer():
    return RecordingProducer


@pytest.fixture
def read_all():
    return _read_all
