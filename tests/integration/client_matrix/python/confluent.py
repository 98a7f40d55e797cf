"""confluent-kafka (librdkafka)."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.integration.client_matrix.contract import PartitionView, Record, serve

LIMIT_S: Final = 60.0
FLUSH_LIMIT_S: Final = 600.0


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap}
        self._admin: Any = AdminClient(dict(self._common))

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, replicas, config=dict(config))
        self._admin.create_topics([new], request_timeout=LIMIT_S)[topic].result(LIMIT_S)

    def topics(self) -> Iterable[str]:
        return list(self._admin.list_topics(timeout=LIMIT_S).topics)

    def describe(self, topic: str) -> Iterable[PartitionView]:
        found = self._admin.list_topics(topic, timeout=LIMIT_S).topics[topic]
        for number, partition in sorted(found.partitions.items()):
            yield PartitionView(
                number, partition.leader, tuple(partition.replicas), tuple(partition.isrs)
            )

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(LIMIT_S)
        return str(found[name].value)

    def produce(self, topic: str, codec: str, records: Iterator[Record]) -> int:
        producer: Any = Producer(
            {**self._common, "compression.type": codec, "linger.ms": 5, "acks": "all"}
        )
        failures: deque[Any] = deque(maxlen=3)
        done = 0

        def delivered(error: Any, message: Any) -> None:
            nonlocal done
            if error is not None:
                failures.append(error)
            done += 1

        sent = 0
        for record in records:
            place = {"timestamp": record.timestamp} if record.timestamp >= 0 else {}
            while True:
                try:
                    producer.produce(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        headers=list(record.headers),
                        on_delivery=delivered,
                        **place,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            sent += 1
        producer.flush(FLUSH_LIMIT_S)
        if failures or done != sent:
            raise RuntimeError(f"{done} of {sent} reported, errors {list(failures)}")
        return sent

    def consume(self, topic: str, since: int | None) -> Iterator[Record]:
        consumer: Any = Consumer({**self._common, "group.id": "none", "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions
            starts, ends = {}, {}
            for number in partitions:
                place = TopicPartition(topic, number)
                starts[number], ends[number] = consumer.get_watermark_offsets(place, LIMIT_S)
            if since is not None:
                asked = [TopicPartition(topic, number, since) for number in partitions]
                for found in consumer.offsets_for_times(asked, timeout=LIMIT_S):
                    if found.error is not None:
                        raise RuntimeError(found.error)
                    end = ends[found.partition]
                    starts[found.partition] = found.offset if found.offset >= 0 else end
            open_ = {number for number in partitions if starts[number] < ends[number]}
            consumer.assign([TopicPartition(topic, number, starts[number]) for number in open_])
            last = time.monotonic()
            while open_:
                messages = consumer.consume(1000, timeout=0.1)
                if messages:
                    last = time.monotonic()
                elif time.monotonic() - last > LIMIT_S:
                    raise TimeoutError(f"nothing for {LIMIT_S} s, partitions {open_} are not done")
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(message.error())
                    number, offset = message.partition(), message.offset()
                    if offset >= ends[number]:
                        continue
                    kind, timestamp = message.timestamp()
                    yield Record(
                        number,
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                        offset,
                    )
                    if offset == ends[number] - 1:
                        open_.discard(number)
        finally:
            consumer.close()


if __name__ == "__main__":
    version = f"{confluent_kafka.version()} with librdkafka {confluent_kafka.libversion()[0]}"
    serve("confluent-kafka", version, Confluent)
