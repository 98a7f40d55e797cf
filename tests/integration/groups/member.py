"""One member of a consumer group as a process: what it owns, reads and commits, one line each.

    python -m tests.integration.groups.member LIBRARY BOOTSTRAP GROUP TOPIC [INSTANCE]

LIBRARY: `kafka-python`, `aiokafka`, `confluent` (range) or `confluent-cooperative`.  TOPIC is a name,
or a regular expression that begins with `^`.  Topics end in a number: a partition is told as 1000
times that, plus its own number.  Lines, times in ms:

    TIME owns 0,1,2            after each change
    TIME read PARTITION OFFSET
    TIME committed PARTITION OFFSET

It commits every quarter of a second and leaves the group in good order when its input ends.  Members
in other languages (`client_matrix/java/Member.java` and so on) do the same; `MEMBER_SESSION_MS`,
`MEMBER_HEARTBEAT_MS` and `MEMBER_REBALANCE_MS` in the environment are their settings.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

SESSION_MS: Final = 6000
"""Unless the environment says something else."""
HEARTBEAT_MS: Final = 1000
REBALANCE_MS: Final = 20_000
COMMIT_S: Final = 0.25
PARTITIONS_OF_A_TOPIC: Final = 1000
KAFKA_PYTHON_POLL_MS: Final = 10_000
"""How long a poll of kafka-python may take.  When one ends between the answers to JoinGroup and
SyncGroup, the library (3.0.12) takes no notice of the latter any more, sends no heartbeats and never
joins again; so a poll must outlast a rebalance.  It returns as soon as there are records."""
CONFLUENT: Final = {
    "confluent": "range",
    "confluent-cooperative": "cooperative-sticky",
    "confluent-consumer": "consumer",
}


def session_ms() -> int:
    return int(os.environ.get("MEMBER_SESSION_MS", SESSION_MS))


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, (time.time_ns() // 1_000_000, *words))) + "\n")
    sys.stdout.flush()


def place_of(topic: str, partition: int) -> int:
    """A partition as a number of its own among all topics."""
    return PARTITIONS_OF_A_TOPIC * int(topic.rsplit("-", 1)[1]) + partition


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


def confluent(bootstrap: str, group: str, topic: str, instance: str | None, assignor: str) -> None:
    """`assignor` is `consumer` for the newer protocol, in which the broker assigns."""
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": REBALANCE_MS,
        "topic.metadata.refresh.interval.ms": 2000,
        "reconnect.backoff.max.ms": 1000,
        "debug": "cgrp",
    }
    if assignor == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["session.timeout.ms"] = session_ms()
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        settings["partition.assignment.strategy"] = assignor
    by_parts = assignor != "range"
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    ownership = Ownership()
    ended = input_ended()

    def assigned(_: Any, partitions: Any) -> None:
        numbers = [place_of(p.topic, p.partition) for p in partitions]
        ownership.add(numbers) if by_parts else ownership.set(numbers)

    def dropped(_: Any, partitions: Any) -> None:
        ownership.drop(place_of(p.topic, p.partition) for p in partitions)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=dropped, on_lost=dropped)
    next_commit_s = 0.0
    while not ended.is_set():
        for message in consumer.consume(200, timeout=0.1):
            if message.error() is None:
                place = place_of(str(message.topic()), int(message.partition() or 0))
                tell("read", place, message.offset())
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                for done in consumer.commit(asynchronous=False) or ():
                    if done.error is None and done.offset >= 0:
                        place = place_of(str(done.topic), int(done.partition or 0))
                        tell("committed", place, done.offset)
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
            ownership.set(place_of(*tp) for tp in assigned)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms(),
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        metadata_max_age_ms=2000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    if topic.startswith("^"):
        consumer.subscribe(pattern=topic, listener=Listener())
    else:
        consumer.subscribe([topic], listener=Listener())
    next_commit_s = 0.0
    while not ended.is_set():
        for place, records in consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS).items():
            for record in records:
                tell("read", place_of(*place), record.offset)
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                places = {p: consumer.position(p) for p in consumer.assignment()}
                consumer.commit()
                for place, offset in places.items():
                    tell("committed", place_of(*place), offset)
            except KafkaError:
                pass
    ownership.set(())  # nothing is read any more; others own it before `close` comes back
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
            ownership.set(place_of(*tp) for tp in assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms(),
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        metadata_max_age_ms=2000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    if topic.startswith("^"):
        consumer.subscribe(pattern=topic, listener=Listener())
    else:
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
                tell("read", place_of(*place), record.offset)
        if time.monotonic() >= next_commit_s and ownership.owned:
            next_commit_s = time.monotonic() + COMMIT_S
            try:
                places = {p: await consumer.position(p) for p in consumer.assignment()}
                await consumer.commit(places)
                for place, offset in places.items():
                    tell("committed", place_of(*place), offset)
            except (KafkaError, AssertionError):
                pass
    ownership.set(())  # the library does not say so, and leaves the group before `stop` comes back
    await consumer.stop()


def main(words: list[str]) -> None:
    library, bootstrap, group, topic, *rest = words
    instance = rest[0] if rest else None
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    if library == "kafka-python":
        kafka_python(bootstrap, group, topic, instance)
    elif library == "aiokafka":
        asyncio.run(aio(bootstrap, group, topic, instance))
    elif library in CONFLUENT:
        confluent(bootstrap, group, topic, instance, CONFLUENT[library])
    else:
        sys.exit(f"no library {library!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
