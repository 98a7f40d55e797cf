"""One member of a consumer group as a process: what it owns, reads and commits, one line each.

    python -m tests.integration.groups.member LIBRARY BOOTSTRAP GROUP TOPIC [INSTANCE]

LIBRARY: `kafka-python`, `aiokafka`, `confluent` (range) or `confluent-cooperative`.
Lines, times in ms:

    TIME owns 0,1,2            after each change
    TIME read PARTITION OFFSET
    TIME committed PARTITION OFFSET

It commits every quarter of a second and leaves the group in good order when its input ends.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

SESSION_MS: Final = 6000
HEARTBEAT_MS: Final = 1000
REBALANCE_MS: Final = 20_000
COMMIT_S: Final = 0.25


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, (time.time_ns() // 1_000_000, *words))) + "\n")
    sys.stdout.flush()


class Ownership:
    """Partitions owned now; told after each change."""

    def __init__(self) -> None:
        self.owned: set[int] = set()

    def set(self, partitions: Iterable[int]) -> None:
        self.owned = set(partitions)
        tell("owns", ",".join(map(str, sorted(self.owned))) or "-")

    def add(self, partitions: Iterable[int]) -> None:
        self.set(self.owned | set(partitions))

    def drop(self, partitions: Iterable[int]) -> None:
        self.set(self.owned - set(partitions))


def input_ended() -> threading.Event:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def confluent(
    bootstrap: str, group: str, topic: str, instance: str | None, cooperative: bool
) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "max.poll.interval.ms": REBALANCE_MS,
        "topic.metadata.refresh.interval.ms": 2000,
        "reconnect.backoff.max.ms": 1000,
        "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range",
        "debug": "cgrp",
    }
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    ownership = Ownership()
    ended = input_ended()

    def assigned(_: Any, partitions: Any) -> None:
        numbers = [p.partition for p in partitions]
        ownership.add(numbers) if cooperative else ownership.set(numbers)

    def dropped(_: Any, partitions: Any) -> None:
        ownership.drop(p.partition for p in partitions)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=dropped, on_lost=dropped)
    next_commit_s = 0.0
    while not ended.is_set():
        for message in consumer.consume(200, timeout=0.1):
            if message.error() is None:
                tell("read", message.partition(), message.offset())
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                for place in consumer.commit(asynchronous=False) or ():
                    if place.error is None and place.offset >= 0:
                        tell("committed", place.partition, place.offset)
            except KafkaException:
                pass  # nothing new, or another generation
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, instance: str | None) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    ownership = Ownership()
    ended = input_ended()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            ownership.set(())

        def on_partitions_assigned(self, assigned: Any) -> None:
            ownership.set(tp.partition for tp in assigned)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        metadata_max_age_ms=2000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([topic], listener=Listener())
    next_commit_s = 0.0
    while not ended.is_set():
        for place, records in consumer.poll(timeout_ms=100).items():
            for record in records:
                tell("read", place.partition, record.offset)
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                places = {p: consumer.position(p) for p in consumer.assignment()}
                consumer.commit()
                for place, offset in places.items():
                    tell("committed", place.partition, offset)
            except KafkaError:
                pass
    consumer.close()


async def aio(bootstrap: str, group: str, topic: str, instance: str | None) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    ownership = Ownership()
    ended = input_ended()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            ownership.set(())

        async def on_partitions_assigned(self, assigned: Any) -> None:
            ownership.set(tp.partition for tp in assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        metadata_max_age_ms=2000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([topic], listener=Listener())
    while True:
        try:
            await consumer.start()
            break
        except KafkaError:
            await asyncio.sleep(0.5)
    next_commit_s = 0.0
    while not ended.is_set():
        try:
            batches = await consumer.getmany(timeout_ms=100)
        except KafkaError:
            continue
        for place, records in batches.items():
            for record in records:
                tell("read", place.partition, record.offset)
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                places = {p: await consumer.position(p) for p in consumer.assignment()}
                await consumer.commit(places)
                for place, offset in places.items():
                    tell("committed", place.partition, offset)
            except (KafkaError, AssertionError):
                pass
    await consumer.stop()


def main(words: list[str]) -> None:
    library, bootstrap, group, topic, *rest = words
    instance = rest[0] if rest else None
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO
    )
    if library == "kafka-python":
        kafka_python(bootstrap, group, topic, instance)
    elif library == "aiokafka":
        asyncio.run(aio(bootstrap, group, topic, instance))
    elif library in ("confluent", "confluent-cooperative"):
        confluent(bootstrap, group, topic, instance, library != "confluent")
    else:
        sys.exit(f"no library {library!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
