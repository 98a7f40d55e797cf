"""aiokafka: asyncio."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.integration.client_matrix.contract import PartitionView, Record, serve

T = TypeVar("T")

LIMIT_S: Final = 60.0
IN_FLIGHT: Final = 2000
"""Records whose acknowledgements are waited for together."""


class AioKafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _with_admin(self, call: str, *arguments: Any) -> Any:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            return await getattr(admin, call)(*arguments)
        finally:
            await admin.close()

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(config))
        answer = self._run(self._with_admin("create_topics", [new]))
        for _, code, *text in answer.topic_errors:
            if code:
                raise RuntimeError(f"error code {code} {text}")

    def topics(self) -> Iterable[str]:
        return list(self._run(self._with_admin("list_topics")))

    def describe(self, topic: str) -> Iterable[PartitionView]:
        (found,) = self._run(self._with_admin("describe_topics", [topic]))
        for it in sorted(found["partitions"], key=lambda it: int(it["partition"])):
            yield PartitionView(
                it["partition"], it["leader"], tuple(it["replicas"]), tuple(it["isr"])
            )

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        for answer in self._run(self._with_admin("describe_configs", [resource])):
            for _, _, _, _, entries in answer.resources:
                for entry in entries:
                    if entry[0] == name:
                        return str(entry[1])
        raise KeyError(name)

    def produce(self, topic: str, codec: str, records: Iterator[Record]) -> int:
        return self._run(self._produce(topic, codec, records))

    async def _produce(self, topic: str, codec: str, records: Iterator[Record]) -> int:
        producer: Any = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        await producer.start()
        count = 0
        try:
            waiting = []
            for record in records:
                future = await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
                )
                waiting.append(future)
                count += 1
                if len(waiting) == IN_FLIGHT:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()
        return count

    def consume(self, topic: str, since: int | None) -> Iterator[Record]:
        found = self._consume(topic, since)
        while True:
            try:
                yield self._run(anext(found))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return

    async def _consume(self, topic: str, since: int | None) -> AsyncIterator[Record]:
        consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False
        )
        await consumer.start()
        try:
            admin = await self._with_admin("describe_topics", [topic])
            places = [TopicPartition(topic, it["partition"]) for it in admin[0]["partitions"]]
            consumer.assign(places)
            starts = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            if since is not None:
                asked = dict.fromkeys(places, since)
                for place, found in (await consumer.offsets_for_times(asked)).items():
                    starts[place] = ends[place] if found is None else found.offset
            open_ = {place for place in places if starts[place] < ends[place]}
            consumer.assign(sorted(open_))
            for place in open_:
                consumer.seek(place, starts[place])
            while open_:
                batches = await consumer.getmany(timeout_ms=int(LIMIT_S * 1000), max_records=1000)
                if not batches:
                    raise TimeoutError(f"nothing for {LIMIT_S} s, {open_} are not done")
                for place, messages in batches.items():
                    for it in messages:
                        if it.offset < ends[place]:
                            headers = tuple(it.headers)
                            yield Record(
                                it.partition, it.key, it.value, headers, it.timestamp, it.offset
                            )
                    if messages[-1].offset >= ends[place] - 1:
                        open_.discard(place)
        finally:
            await consumer.stop()


if __name__ == "__main__":
    serve("aiokafka", importlib.metadata.version("aiokafka"), AioKafka)
