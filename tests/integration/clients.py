"""Unmodified Kafka clients as a test uses them: kcat, librdkafka, kafka-python, aiokafka."""

import asyncio
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_S: Final = 60.0


def payloads(count: int, size: int = 200) -> list[bytes]:
    """Values that differ, compress, and can be told apart."""
    return [
        (b"%08d " % number + hashlib.sha256(b"%d" % number).hexdigest().encode() * 8)[:size]
        for number in range(count)
    ]


def digest(values: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for value in values:
        total.update(len(value).to_bytes(4, "big") + value)
    return total.hexdigest()


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    topic = NewTopic(name, partitions, replicas, config=config or {})
    client = admin(bootstrap)  # its futures fail when it is collected
    client.create_topics([topic], request_timeout=LIMIT_S)[name].result(LIMIT_S)


def kcat(*arguments: str, given: bytes | None = None) -> bytes:
    done = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def kcat_produce(bootstrap: str, topic: str, values: Sequence[bytes], codec: str = "none") -> None:
    arguments = ["-P", "-b", bootstrap, "-t", topic, "-z", codec, "-X", "acks=all"]
    kcat(*arguments, given=b"\n".join(values) + b"\n")


def kcat_consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    out = kcat("-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-c", str(count), "-q")
    return out.splitlines()


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int | None = None,
    **config: Any,
) -> list[int]:
    """Offsets in the order of the values; raises when one was not acknowledged.

    None is there twice: a leader that gives way tells of a record that is there, too, that it is not.
    """
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", "batch.size": 50_000}
    settings.update({key.replace("_", "."): value for key, value in config.items()})
    settings.setdefault("enable.idempotence", str(settings["acks"]) in ("all", "-1"))
    producer: Any = Producer(settings)
    offsets: dict[int, int] = {}
    failures: list[Any] = []

    def report(number: int) -> Any:
        def done(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets[number] = message.offset()

        return done

    for number, value in enumerate(values):
        place = {} if partition is None else {"partition": partition}
        while True:
            try:
                producer.produce(topic, value=value, on_delivery=report(number), **place)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(LIMIT_S)
    assert left == 0 and not failures, (left, failures[:3])
    return [offsets[number] for number in range(len(values))]


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes]:
    """The first `count` values of a partition."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        idle = 0
        while len(values) < count and idle < LIMIT_S:
            messages = consumer.consume(count - len(values), timeout=1.0)
            idle = 0 if messages else idle + 1
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value())
        return values
    finally:
        consumer.close()


def python_round_trip(
    bootstrap: str, topic: str, values: Sequence[bytes], codec: str
) -> list[bytes]:
    """kafka-python: create nothing, produce all, read all back without a group."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Place

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    try:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(LIMIT_S)
        for future in futures:
            future.get(LIMIT_S)
    finally:
        producer.close(LIMIT_S)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), consumer_timeout_ms=int(LIMIT_S * 1000)
    )
    found: list[bytes] = []
    try:
        place = Place(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        for message in consumer:
            found.append(message.value)
            if len(found) == len(values):
                break
    finally:
        consumer.close()
    return found


def aiokafka_round_trip(
    bootstrap: str, topic: str, values: Sequence[bytes], codec: str
) -> list[bytes]:
    """aiokafka: the same."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Place

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [await producer.send(topic, value) for value in values]
            await asyncio.gather(*futures)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            place = Place(topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            found: list[bytes] = []
            while len(found) < len(values):
                message = await consumer.getone()
                found.append(message.value)
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(run(), LIMIT_S))
