"""What the comparison measures: each item runs once against one cluster and returns its figures."""

import contextlib
import json
import math
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import confluent_kafka

from tests.benchmarks.sides import Cluster, Topic, cpu_seconds, topic
from tests.reference_kafka import LOG4J, TOOLS, jars

SOURCE: Final = Path(__file__).with_name("load.c")
TOPIC_BYTES: Final = 1_000_000_000
"""More is never written into one topic: memory that a virtual machine never used before is slow."""

MAX_BURSTS: Final = 8
LIMIT_S: Final = 120.0
"""Beyond its measuring time, for one process or one wait."""


class Failed(Exception):
    """An item could not be measured; the text says why."""


@dataclass(frozen=True)
class Metric:
    """A figure: its unit, and whether more is better."""

    unit: str
    more_is_better: bool = False


METRICS: Final = {
    "rate": Metric("/s", True),
    "throughput": Metric("MB/s", True),
    "p50": Metric("us"),
    "p99": Metric("us"),
    "p99.9": Metric("us"),
    "broker CPU": Metric("us/request"),
    "broker CPU per MB": Metric("us/MB"),
    "start": Metric("s"),
    "time": Metric("s"),
    "longest answer": Metric("us"),
    "memory idle": Metric("MB"),
    "memory after load": Metric("MB"),
}

Figures = dict[str, float]


@dataclass(frozen=True)
class Context:
    """How long, with what, against whom."""

    cluster: Cluster
    seconds: float
    topic_bytes: int
    load: Path | None
    """The load generator, None where it could not be compiled."""


@dataclass(frozen=True)
class Item:
    name: str
    group: str
    title: str
    run: Callable[[Context], Figures]
    brokers: int = 1
    needs_load: bool = False
    """Our load generator, that is."""


# Our load generator.


def compile_load(folder: Path) -> tuple[Path | None, str]:
    """The program, or None and the reason."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None, "there is no C compiler (cc)"
    program = folder / "load"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        return None, f"cc failed: {done.stderr[-500:]}"
    return program, ""


def drive(context: Context, where: Topic, api: str, **numbers: int) -> dict[str, float]:
    """Run the load generator.  Raises Failed, also when a broker answered with an error."""
    if context.load is None:
        raise Failed("no load generator")
    command = [str(context.load), f"api={api}", f"topic={where.name}"]
    command += [f"target={target}" for target in where.targets]
    command += [f"{name}={number}" for name, number in numbers.items()]
    limit_s = numbers.get("seconds", 5) + LIMIT_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"the load generator ended with {done.returncode}")
    result: dict[str, float] = json.loads(done.stdout)
    if result["errors"]:
        raise Failed(f"{result['errors']} answers with errors, the first {result['first_error']}")
    return result


def fresh(
    context: Context, partitions: int, factor: int = 1
) -> contextlib.AbstractContextManager[Topic]:
    return topic(context.cluster.bootstrap, f"bench-{uuid.uuid4().hex[:12]}", partitions, factor)


def small(
    api: str, connections: int, *, partitions: int = 1, factor: int = 1, acks: int = 1
) -> Callable[[Context], Figures]:
    """Small requests, one in flight on each connection, for a time."""

    def run(context: Context) -> Figures:
        with fresh(context, partitions, factor) as where:
            before = cpu_seconds(context.cluster.pids)
            found = drive(
                context,
                where,
                api,
                connections=connections,
                seconds=max(1, round(context.seconds)),
                warmup_ms=round(min(1000.0, context.seconds * 500)),
                bytes=100,
                acks=acks,
            )
            used = cpu_seconds(context.cluster.pids) - before
        if not found["requests"]:
            raise Failed("nothing was answered in the measured time")
        return {
            "rate": found["requests"] / found["seconds"],
            "p50": found["p50_us"],
            "p99": found["p99_us"],
            "p99.9": found["p99_9_us"],
            "broker CPU": used / found["all_requests"] * 1e6,
        }

    return run


def bulk_produce(
    size: int, connections: int, factor: int, acks: int
) -> Callable[[Context], Figures]:
    """Large requests in bursts of one topic's bytes, until they have taken the time together."""

    def run(context: Context) -> Figures:
        requests = context.topic_bytes // size
        bursts: list[dict[str, float]] = []
        costs: list[float] = []
        while len(bursts) < MAX_BURSTS and sum(b["seconds"] for b in bursts) < context.seconds:
            with fresh(context, connections, factor) as where:
                before = cpu_seconds(context.cluster.pids)
                found = drive(
                    context,
                    where,
                    "produce",
                    connections=connections,
                    seconds=round(context.seconds) + 30,
                    warmup_ms=0,
                    requests=requests,
                    warm_requests=requests // 10,
                    bytes=size,
                    acks=acks,
                )
                used = cpu_seconds(context.cluster.pids) - before
            bursts.append(found)
            costs.append(used * 1e6 / (requests * size / 1e6))
        return {
            "throughput": statistics.median(b["payload_bytes"] / b["seconds"] for b in bursts)
            / 1e6,
            "p50": statistics.median(b["p50_us"] for b in bursts),
            "p99": statistics.median(b["p99_us"] for b in bursts),
            "broker CPU per MB": statistics.median(costs),
        }

    return run


def bulk_fetch(connections: int) -> Callable[[Context], Figures]:
    """Fetches of 1 MB of what was just written: two whole batches and a part of a third."""
    size = 490_000

    def run(context: Context) -> Figures:
        each = max(4, min(context.topic_bytes, TOPIC_BYTES // 2) // size // connections)
        with fresh(context, connections) as where:
            for target in where.targets:
                leader = Topic(where.name, [target])
                drive(
                    context, leader, "produce", seconds=60, warmup_ms=0, requests=each, bytes=size
                )
            before = cpu_seconds(context.cluster.pids)
            found = drive(
                context,
                where,
                "fetch",
                connections=connections,
                seconds=max(1, round(context.seconds)),
                warmup_ms=round(min(1000.0, context.seconds * 200)),
                bytes=1_000_000,
                span=each - each % 2,
                step=2,
            )
            used = cpu_seconds(context.cluster.pids) - before
        mb = found["payload_bytes"] / 1e6
        return {
            "throughput": mb / found["seconds"],
            "p50": found["p50_us"],
            "p99": found["p99_us"],
            "broker CPU per MB": used * 1e6 / (found["all_requests"] * mb / found["requests"]),
        }

    return run


# librdkafka through its Python client.


def librdkafka(size: int, factor: int = 1, acks: str = "1") -> Callable[[Context], Figures]:
    """Produce for the time, or until the topic is full; then read all of it back."""
    partitions = 1 if factor == 1 else 6

    def run(context: Context) -> Figures:
        with fresh(context, partitions, factor) as where:
            count, took_s = _produce(context, where.name, size, acks)
            read_s = _consume(context, where.name, partitions, count)
        return {
            "produce rate": count / took_s,
            "produce throughput": count * size / took_s / 1e6,
            "consume rate": count / read_s,
            "consume throughput": count * size / read_s / 1e6,
        }

    return run


def _produce(context: Context, name: str, size: int, acks: str) -> tuple[int, float]:
    problems: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            problems.append(str(error))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": context.cluster.bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
            "message.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    most = context.topic_bytes // (size + 12)
    begin = time.monotonic()
    end = begin + context.seconds
    count = 0
    while count < most:
        try:
            producer.produce(name, value, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
            if time.monotonic() > end + LIMIT_S:
                raise Failed("the producer's queue stays full") from None
            continue
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
            if problems or time.monotonic() > end:
                break
    left = producer.flush(LIMIT_S)
    took_s = time.monotonic() - begin
    if left or problems:
        raise Failed(f"{left} messages not delivered; {problems[:1]}")
    return count, took_s


def _consume(context: Context, name: str, partitions: int, count: int) -> float:
    """Seconds from the first call to the last of `count` messages."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": context.cluster.bootstrap,
            "group.id": f"bench-{name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 262_144,
            "log_level": 0,
        }
    )
    try:
        begin = time.monotonic()
        consumer.assign(
            [
                confluent_kafka.TopicPartition(name, number, confluent_kafka.OFFSET_BEGINNING)
                for number in range(partitions)
            ]
        )
        seen = 0
        while seen < count:
            for message in consumer.consume(10_000, timeout=0.05):
                if message.error() is not None:
                    raise Failed(f"consume: {message.error()}")
                seen += 1
            if time.monotonic() > begin + LIMIT_S:
                raise Failed(f"{seen} of {count} messages came back")
        if seen != count:
            raise Failed(f"{seen} messages came back, {count} were written")
        return time.monotonic() - begin
    finally:
        consumer.close()


# Kafka's own programs.


def java_perf(size: int, acks: str, factor: int = 1) -> Callable[[Context], Figures]:
    partitions = 1 if factor == 1 else 6

    def run(context: Context) -> Figures:
        count = max(10_000, min(round(80_000 * context.seconds), context.topic_bytes // size))
        with fresh(context, partitions, factor) as where:
            produced = _java(
                "producer-perf",
                *("--topic", where.name, "--num-records", str(count)),
                *("--record-size", str(size), "--throughput", "-1", "--producer-props"),
                *(f"bootstrap.servers={context.cluster.bootstrap}", f"acks={acks}"),
            )
            consumed = _java(
                "consumer-perf",
                *("--topic", where.name, "--messages", str(count)),
                *("--bootstrap-server", context.cluster.bootstrap, "--timeout", "30000"),
            )
        summary = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", produced)
        fields = consumed.strip().splitlines()[-1].split(",")
        if not summary or int(summary[-1][0]) != count:
            raise Failed(f"producer-perf said: {produced[-300:]}")
        # start, end, MB, MB/s, messages, messages/s, joining ms, fetching ms, ...
        if len(fields) != 10 or int(fields[4]) < count:
            raise Failed(f"consumer-perf said: {consumed[-300:]}")
        rate = float(summary[-1][1])
        read = int(fields[4]) / (int(fields[7]) / 1000)
        return {
            "produce rate": rate,
            "produce throughput": rate * size / 1e6,
            "consume rate": read,
            "consume throughput": read * size / 1e6,
        }

    return run


def _java(name: str, *arguments: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as log4j:
        log4j.write(LOG4J.format(level="WARN", target="System.err"))
        log4j.flush()
        command = ["java", "-Xmx512M", "-XX:+UseG1GC", f"-Dlog4j.configuration=file:{log4j.name}"]
        command += ["-cp", f"{jars()}/*", TOOLS[name], *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False
        )
    if done.returncode != 0:
        raise Failed(f"{name}: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


def metric(name: str) -> Metric:
    """`produce rate` is a rate."""
    found = METRICS.get(name) or METRICS.get(name.partition(" ")[2])
    if found is None:
        raise KeyError(name)
    return found


def advantage(name: str, ours: float, theirs: float) -> float:
    """How many times better ours is: above 1 for a higher rate or a shorter time."""
    if ours <= 0 or theirs <= 0:
        return math.nan
    return ours / theirs if metric(name).more_is_better else theirs / ours


ITEMS: Final = (
    Item(
        "produce-100B-1",
        "wire",
        "Produce 100 B, acks=1, 1 connection",
        small("produce", 1),
        needs_load=True,
    ),
    Item(
        "produce-100B-16",
        "wire",
        "Produce 100 B, acks=1, 16 connections, 4 partitions",
        small("produce", 16, partitions=4),
        needs_load=True,
    ),
    Item(
        "produce-500KB-4",
        "wire",
        "Produce 500 KB, acks=1, 4 connections",
        bulk_produce(500_000, 4, factor=1, acks=1),
        needs_load=True,
    ),
    Item("fetch-1MB-4", "wire", "Fetch 1 MB, 4 connections", bulk_fetch(4), needs_load=True),
    Item(
        "versions-16",
        "wire",
        "ApiVersions, 16 connections",
        small("versions", 16),
        needs_load=True,
    ),
    Item(
        "metadata-16",
        "wire",
        "Metadata of one topic, 16 connections",
        small("metadata", 16),
        needs_load=True,
    ),
    Item("librdkafka-1KB", "librdkafka", "librdkafka, 1 KB messages, acks=1", librdkafka(1000)),
    Item("librdkafka-100B", "librdkafka", "librdkafka, 100 B messages, acks=1", librdkafka(100)),
    Item("java-1KB", "java", "Kafka's perf tools, 1 KB messages, acks=1", java_perf(1000, "1")),
    Item("java-100B", "java", "Kafka's perf tools, 100 B messages, acks=1", java_perf(100, "1")),
    Item(
        "three-100B-1",
        "three",
        "Produce 100 B, acks=all, factor 3, 1 connection",
        small("produce", 1, factor=3, acks=-1),
        brokers=3,
        needs_load=True,
    ),
    Item(
        "three-100B-64",
        "three",
        "Produce 100 B, acks=all, factor 3, 64 connections, 6 partitions",
        small("produce", 64, partitions=6, factor=3, acks=-1),
        brokers=3,
        needs_load=True,
    ),
    Item(
        "three-500KB-4",
        "three",
        "Produce 500 KB, acks=all, factor 3, 4 connections",
        bulk_produce(500_000, 4, factor=3, acks=-1),
        brokers=3,
        needs_load=True,
    ),
    Item(
        "three-librdkafka-1KB",
        "three",
        "librdkafka, 1 KB messages, acks=all, factor 3, 6 partitions",
        librdkafka(1000, 3, "all"),
        brokers=3,
    ),
    Item(
        "three-java-1KB",
        "three",
        "Kafka's perf tools, 1 KB messages, acks=all, factor 3, 6 partitions",
        java_perf(1000, "all", 3),
        brokers=3,
    ),
)
