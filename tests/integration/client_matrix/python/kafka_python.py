"""kafka-python: pure Python, a codec of its own for every message."""

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.integration.client_matrix.contract import PartitionView, Record, serve

LIMIT_S: Final = 60.0
FLUSH_LIMIT_S: Final = 600.0


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap.split(",")
        self._admin: Any = KafkaAdminClient(bootstrap_servers=self._servers)

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        new = {"num_partitions": partitions, "replication_factor": replicas, "configs": config}
        self._admin.create_topics({topic: new})

    def topics(self) -> Iterable[str]:
        return list(self._admin.list_topics())

    def describe(self, topic: str) -> Iterable[PartitionView]:
        (found,) = self._admin.describe_topics([topic])
        for it in sorted(found["partitions"], key=lambda it: int(it["partition_index"])):
            replicas, isr = tuple(it["replica_nodes"]), tuple(it["isr_nodes"])
            yield PartitionView(it["partition_index"], it["leader_id"], replicas, isr)

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource], config_filter="all")
        return str(found["topic"][topic][name]["value"])

    def produce(self, topic: str, codec: str, records: Iterator[Record]) -> int:
        producer: Any = KafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        try:
            futures = []
            for record in records:
                future = producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
                )
                futures.append(future)
            producer.flush(FLUSH_LIMIT_S)
            for future in futures:
                future.get(LIMIT_S)
            return len(futures)
        finally:
            producer.close(LIMIT_S)

    def consume(self, topic: str, since: int | None) -> Iterator[Record]:
        consumer: Any = KafkaConsumer(bootstrap_servers=self._servers, enable_auto_commit=False)
        try:
            places = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
            starts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
            if since is not None:
                for place, found in consumer.offsets_for_times(
                    dict.fromkeys(places, since)
                ).items():
                    starts[place] = ends[place] if found is None else found.offset
            open_ = {place for place in places if starts[place] < ends[place]}
            consumer.assign(sorted(open_))
            for place in open_:
                consumer.seek(place, starts[place])
            while open_:
                batches = consumer.poll(timeout_ms=int(LIMIT_S * 1000), max_records=1000)
                if not batches:
                    raise TimeoutError(f"nothing for {LIMIT_S} s, {open_} are not done")
                for place, messages in batches.items():
                    for it in messages:
                        if it.offset < ends[place]:
                            headers = tuple(it.headers)
                            yield Record(
                                it.partition, it.key, it.value, headers, it.timestamp, it.offset
                            )
                    if consumer.position(place) >= ends[place]:
                        open_.discard(place)
        finally:
            consumer.close()


if __name__ == "__main__":
    serve("kafka-python", importlib.metadata.version("kafka-python"), KafkaPython)
