"""How long a coordinator is not there after a failover: loading of a million commits, beside Kafka.

    python -m tests.benchmarks.group_load [--records 1000000] [--groups 1000] [--keys 1000000]
    python -m tests.benchmarks.group_load --slices [the same]

One broker, one partition of `__consumer_offsets`. Commits of 100 offsets each are written, over so many
keys in so many groups; then the broker is killed and started again. Told are: the time from the
first answer of the broker until the last group is served, the longest ApiVersions answer meanwhile,
and what the broker itself says of the load.  kafkalike comes with a snapshot (as it is after minutes
of work) and without one.

`--slices` has no brokers: a loader by itself reads the same from memory, and told is how long its
slices were, in CPU time (others may work on the machine meanwhile).
"""

import argparse
import asyncio
import bisect
import contextlib
import gc
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kafkalike.broker.coordinator.records import offset_key, offset_value
from kafkalike.broker.coordinator.shard import ShardLoad
from kafkalike.broker.coordinator.values import OffsetAndMetadata
from kafkalike.broker.log.log import FetchDataInfo
from kafkalike.messages.api_versions import ApiVersionsRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.records.batch import RecordBatch, encode_batch
from kafkalike.records.record import Record
from kafkalike.tools.serve import GC_THRESHOLDS
from kafkalike.types import TopicPartition
from tests.integration.brokers import BrokerProcess
from tests.reference_kafka import ReferenceKafka

from .group_work import Link, coordinators

TOPIC = "bench-load"
PARTITIONS = 100
LINKS = 4
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "zookeeper.session.timeout.ms": "6000",
}
SESSION_END_S = 10.0
"""Kafka refuses to start while the session of the killed process lives."""
START_LIMIT_S = 120.0
SERVED_LIMIT_S = 300.0
SNAPSHOT_LIMIT_S = 60.0
SNAPSHOT_EVERY = 50_000
"""Records, or more, between two snapshots with default settings."""
SNAPSHOT_REST_S = 11.0
"""Without a newer one for so long, none is due."""


class Side(Protocol):
    """One broker."""

    name: str
    port: int

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def log(self) -> str: ...


class Original:
    name = "Kafka 3.9.2"

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._kafka = ReferenceKafka(folder, zookeeper=zookeeper, settings=SETTINGS, heap="1G")
        self.port = self._kafka.ports[1]
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self._kafka.launch(1)

    def kill(self) -> None:
        self._kafka.kill(1)

    def log(self) -> str:
        return "\n".join(p.read_text(errors="replace") for p in self._folder.glob("*.log"))


class Ours(BrokerProcess):
    name = "kafkalike"

    def __init__(self, folder: Path, zookeeper: str, records: int) -> None:
        settings: dict[str, Any] = {
            name.replace(".", "_"): value for name, value in SETTINGS.items()
        }
        if records < SNAPSHOT_EVERY:  # a small trial has one too
            settings["kafkalike_groups_snapshot_records"] = str(records // 2)
        super().__init__(folder, 1, zookeeper, **settings)

    def start(self) -> None:
        self.launch()


async def reach(port: int) -> Link:
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            link = await Link.open("127.0.0.1", port)
            await asyncio.wait_for(link.ask(ApiVersionsRequest()), 5)
            return link
        await asyncio.sleep(0.01)
    raise TimeoutError(f"nobody answers on port {port} within {START_LIMIT_S:g} s")


async def fill(port: int, records: int, names: list[str], keys: int) -> float:
    """Commit; the offsets of a group lie in the 100 partitions of the topic."""
    link = await reach(port)
    while True:
        metadata = await link.ask(MetadataRequest(topics=[]))
        if metadata.brokers and metadata.controller_id >= 0:
            break
        await asyncio.sleep(0.2)
    made = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1
    )
    await link.ask(CreateTopicsRequest(topics=[made], timeout_ms=20_000))
    await coordinators(link, names[:1])
    await asyncio.sleep(3)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    per_group = max(keys // len(names), 1)
    begin_s = time.perf_counter()
    done = 0
    links = [link, *[await reach(port) for _ in range(LINKS - 1)]]
    limits = [asyncio.Semaphore(2) for _ in links]
    bad: set[int] = set()

    async def commit(name: str, first: int, number: int) -> None:
        places = [
            topic.OffsetCommitRequestPartition(
                partition_index=p % PARTITIONS, committed_offset=number
            )
            for p in range(first, first + min(PARTITIONS, per_group))
        ]
        request = OffsetCommitRequest(group_id=name, topics=[topic(name=TOPIC, partitions=places)])
        place = number // PARTITIONS % LINKS
        async with limits[place]:
            answer = await links[place].ask(request)
        bad.update(p.error_code for p in answer.topics[0].partitions)

    while done < records:
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(commit(name, 0, done)))
            done += min(PARTITIONS, per_group)
            if done >= records:
                break
        await asyncio.gather(*tasks)
    assert bad <= {0}, bad
    for one in links:
        one.close()
    return time.perf_counter() - begin_s


async def until_served(port: int, name: str) -> tuple[float, float]:
    """Seconds from the broker's first answer until the group is served; the longest ApiVersions."""
    link = await reach(port)
    other = await reach(port)
    begin_s = time.perf_counter()
    longest_s = 0.0
    served = asyncio.Event()

    async def watch() -> None:
        nonlocal longest_s
        while not served.is_set():
            asked_s = time.perf_counter()
            await other.ask(ApiVersionsRequest())
            longest_s = max(longest_s, time.perf_counter() - asked_s)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(watch())
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    async with asyncio.timeout(SERVED_LIMIT_S):
        while True:
            group = (await link.ask(OffsetFetchRequest(groups=[wanted]))).groups[0]
            if not group.error_code and group.topics:
                break
            await asyncio.sleep(0.002)
    took_s = time.perf_counter() - begin_s
    served.set()
    await task
    link.close()
    other.close()
    return took_s, longest_s


def told(log: str) -> str:
    words = ("loaded partition=__consumer_offsets", "Finished loading offsets")
    lines = [line for line in log.splitlines() if any(word in line for word in words)]
    return lines[-1][:230] if lines else "-"


@contextlib.contextmanager
def running(side: Side) -> Iterator[Side]:
    side.start()
    try:
        yield side
    finally:
        with contextlib.suppress(KeyError):
            side.kill()


class Load(NamedTuple):
    """One load: seconds until the last group was served, the longest ApiVersions answer meanwhile."""

    what: str
    served_s: float
    longest_s: float


WITH_SNAPSHOT: Final = "with a snapshot"
WITHOUT_SNAPSHOT: Final = "without a snapshot"


def measure(side: Side, records: int, group_count: int, keys: int) -> list[Load]:
    """Fill a broker, kill it and start it again; ours with a snapshot and without."""
    names = [f"load-{number}" for number in range(group_count)]
    found = []
    with running(side):
        took_s = asyncio.run(fill(side.port, records, names, keys))
        print(f"{side.name}: {records} records committed in {took_s:.1f} s", flush=True)
        if isinstance(side, Ours):
            snapshot = Path(side.data / "__consumer_offsets-0" / "group-state")
            end_s = time.monotonic() + SNAPSHOT_LIMIT_S
            while time.monotonic() < end_s and not rests(snapshot):
                time.sleep(0.5)
            if snapshot.exists():
                found.append(restart(side, names[-1], WITH_SNAPSHOT, lambda: None))
            found.append(
                restart(side, names[-1], WITHOUT_SNAPSHOT, lambda: snapshot.unlink(missing_ok=True))
            )
        else:
            found.append(restart(side, names[-1], WITHOUT_SNAPSHOT, lambda: None))
    return found


def rests(snapshot: Path) -> bool:
    """Whether there is one, and no other is being made."""
    return snapshot.exists() and time.time() - snapshot.stat().st_mtime > SNAPSHOT_REST_S


def restart(side: Side, name: str, what: str, between: Callable[[], object]) -> Load:
    side.kill()
    between()
    time.sleep(SESSION_END_S)
    side.start()
    took_s, longest_s = asyncio.run(until_served(side.port, name))
    print(
        f"{side.name} {what}: served after {took_s:.2f} s, longest answer {longest_s * 1000:.0f} ms"
    )
    print("   ", told(side.log()), flush=True)
    return Load(what, took_s, longest_s)


def measure_both(records: int, group_count: int, keys: int) -> dict[str, list[Load]]:
    """By name of the side, one after the other."""
    with tempfile.TemporaryDirectory(prefix="kafkalike-load-") as name:
        folder = Path(name)
        with ReferenceKafka(folder / "zookeeper", brokers=0) as zookeeper:
            ours = Ours(folder / "ours", f"{zookeeper.zookeeper}/ours", records)
            loads = {ours.name: measure(ours, records, group_count, keys)}
            original = Original(folder / "kafka", f"{zookeeper.zookeeper}/kafka")
            loads[original.name] = measure(original, records, group_count, keys)
    return loads


# -- slices ------------------------------------------------------------------------------------


class MemoryLog:
    """What a loader reads of a log."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("__consumer_offsets", 0)
        self.log_start_offset = 0
        self.log_end_offset = 0
        self._batches: list[bytes] = []
        self._bases: list[int] = []

    def append(self, data: bytearray) -> None:
        batch = RecordBatch(data)
        batch.stamp_offsets(self.log_end_offset, 0)
        self._bases.append(self.log_end_offset)
        self._batches.append(bytes(data))
        self.log_end_offset = batch.next_offset

    def read(
        self, offset: int, max_bytes: int, isolation: Any, at_least_one: bool
    ) -> FetchDataInfo:
        number = bisect.bisect_right(self._bases, offset) - 1
        chosen: list[bytes] = []
        size = 0
        for batch in self._batches[number : number + 1000]:
            size += len(batch)
            if chosen and size > max_bytes:
                break
            chosen.append(batch)
        return FetchDataInfo(offset, b"".join(chosen))


def commits(records: int, names: list[str], keys: int) -> MemoryLog:
    """As `fill` writes them, though all partitions of a group are of one topic."""
    log = MemoryLog()
    per_group = max(keys // len(names), 1)
    while log.log_end_offset < records:
        for name in names:
            for first in range(0, per_group, PARTITIONS):
                value = offset_value(OffsetAndMetadata(log.log_end_offset, -1, "", 1))
                places = range(first, min(first + PARTITIONS, per_group))
                batch = [
                    Record(offset_key(name, TopicPartition(TOPIC, p)), value, 1) for p in places
                ]
                log.append(encode_batch(batch))
            if log.log_end_offset >= records:
                break
    return log


def measure_slices(args: argparse.Namespace) -> None:
    log: Any = commits(args.records, [f"load-{n}" for n in range(args.groups)], args.keys)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    no_threads: Any = None
    load = ShardLoad(
        log,
        time.monotonic,
        lambda: 1,
        logging.getLogger("load"),
        buffer_bytes=5 << 20,
        threads=no_threads,
    )
    slices: list[float] = []
    done: Any = False
    while not done:
        begin_s = time.thread_time()
        done = load.step()
        slices.append(time.thread_time() - begin_s)
    slices.sort()
    print(
        f"{load.record_count} records, {args.keys} keys in {len(load.groups)} groups: "
        f"{sum(slices):.2f} s of CPU in {len(slices)} slices, "
        f"the longest {', '.join(f'{s * 1000:.1f}' for s in slices[:-6:-1])} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.group_load")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--slices", action="store_true", help="of a loader by itself")
    args = parser.parse_args()
    if args.slices:
        measure_slices(args)
        return
    measure_both(args.records, args.groups, args.keys)


if __name__ == "__main__":
    main()
