"""Every client reads what every client wrote, in all codecs: the same records, byte for byte."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest

from kafkalike.records.batch import RecordBatch
from kafkalike.records.scan import iterate_batches
from tests.integration.brokers import eventually

from .cluster import Cluster, Programs
from .contract import CODECS, Digest, PartitionView, Record, read_records, write_records
from .files import NOW_MS, matrix_records
from .programs import PROGRAMS, RunningProgram

PARTITIONS: Final = 2 * len(CODECS)
REPLICAS: Final = 3
SINCE_MS: Final = NOW_MS + 30_500
IN_PARALLEL: Final = 3

T = TypeVar("T")

Partitions = dict[int, list[Record]]


def topic_of(name: str) -> str:
    return f"from-{name}"


def by_partition(records: Iterator[Record] | list[Record]) -> Partitions:
    found: Partitions = {}
    for record in records:
        found.setdefault(record.partition, []).append(record)
    return found


@dataclass
class Seen:
    """What one client was told, or the error it gave instead."""

    topics: list[str] | Exception = field(default_factory=list)
    views: list[PartitionView] | Exception = field(default_factory=list)
    retention: str | Exception = ""
    produced: dict[str, Exception | None] = field(default_factory=dict)
    read: dict[str, Partitions | Exception] = field(default_factory=dict)
    since: Partitions | Exception = field(default_factory=dict)


class Matrix:
    """All programs have done all their work once; tests look at what came of it."""

    def __init__(self, cluster: Cluster, programs: Programs, folder: Path) -> None:
        self.cluster = cluster
        self.programs = programs
        self.begun_ms = int(time.time() * 1000)
        self.written: dict[str, list[Record]] = {}
        self.seen: dict[str, Seen] = {}
        self._folder = folder

    def run(self) -> None:
        self.programs.start(list(PROGRAMS))
        there = self.programs.there()
        maker = next(it for it in there if it.program.administers)
        for client in there:
            self.seen[client.name] = Seen()
        self._each(there, lambda client: self._write(client, maker))
        self._each(there, self._read)
        for client in there:
            print(f"{client.name:14} {client.library} {client.version}: {client.seconds:.1f} s")

    @staticmethod
    def _each(clients: list[RunningProgram], work: Callable[[RunningProgram], None]) -> None:
        with ThreadPoolExecutor(IN_PARALLEL) as pool:
            list(pool.map(work, clients))

    def _write(self, client: RunningProgram, maker: RunningProgram) -> None:
        topic, seen = topic_of(client.name), self.seen[client.name]
        creator = client if client.program.administers else maker
        creator.create(topic, PARTITIONS, REPLICAS, retention_ms="-1")
        eventually(lambda: all(it.leader >= 0 for it in client.describe(topic)), 60)
        self.written[client.name] = []
        for number, codec in enumerate(CODECS):
            if codec not in client.codecs:
                continue
            records = matrix_records(codec, 2 * number, client.name)
            records = [client.program.writes(record) for record in records]
            path = self._folder / f"{client.name}-{codec}.in"
            write_records(path, records)
            try:
                assert client.produce(topic, codec, path) == len(records)
            except Exception as error:
                seen.produced[codec] = error
            else:
                seen.produced[codec] = None
                self.written[client.name] += records

    def _read(self, client: RunningProgram) -> None:
        seen = self.seen[client.name]
        seen.topics = result(client.topics)
        seen.views = result(lambda: client.describe(topic_of(client.name)))
        if client.program.settings:
            seen.retention = result(lambda: client.setting(topic_of(client.name), "retention.ms"))
        path = self._folder / f"{client.name}.out"

        def consumed(topic: str, since: int | None = None) -> Partitions:
            count = client.consume(topic, path, since)
            found = list(read_records(path))
            assert len(found) == count
            return by_partition(found)

        for producer in self.written:
            seen.read[producer] = result(partial(consumed, topic_of(producer)))
        seen.since = result(lambda: consumed(topic_of("confluent"), SINCE_MS))


def result(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except Exception as error:
        return error


def value_of(found: T | Exception) -> T:
    if isinstance(found, Exception):
        raise found
    return found


def without_own_times(records: list[Record], written: list[Record]) -> list[Record]:
    """Times that the client chose itself are left out."""
    if any(it.timestamp >= 0 for it in written):
        return records
    return [replace(it, timestamp=-1) for it in records]


def compare(found: list[Record], expected: list[Record], what: str) -> None:
    """By sha256; the first difference is shown."""
    sums = []
    for records in (found, expected):
        total = Digest()
        for record in records:
            total.add(record)
        sums.append(str(total))
    if sums[0] == sums[1]:
        return
    for number, (one, other) in enumerate(zip(found, expected)):
        one = replace(one, offset=-1)
        assert one == replace(other, offset=-1), f"{what}: record {number} of {len(expected)}"
    raise AssertionError(f"{what}: {sums[0]} instead of {sums[1]}")


@pytest.fixture(scope="module")
def matrix(
    cluster: Cluster, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Matrix:
    made = Matrix(cluster, programs, tmp_path_factory.mktemp("records"))
    made.run()
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_makes_lists_and_describes_topics(matrix: Matrix, name: str) -> None:
    client = matrix.programs.get(name)
    seen = matrix.seen[name]
    assert set(value_of(seen.topics)) >= {topic_of(it) for it in matrix.written}
    views = value_of(seen.views)
    assert [it.partition for it in views] == list(range(PARTITIONS))
    brokers = {broker for it in views for broker in it.replicas}
    assert len(brokers) == REPLICAS
    for view in views:
        assert sorted(view.replicas) == sorted(view.isr) == sorted(brokers), view
        assert view.leader == view.replicas[0], view
    if client.program.settings:
        assert value_of(seen.retention) == "-1"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_record_is_acknowledged(matrix: Matrix, name: str, codec: str) -> None:
    client = matrix.programs.get(name)
    if codec not in client.codecs:
        pytest.skip(f"{name} has no {codec}")
    error = matrix.seen[name].produced[codec]
    if error is not None:
        raise error


@pytest.mark.parametrize("producer", PROGRAMS)
@pytest.mark.parametrize("consumer", PROGRAMS)
def test_reads_what_was_written(matrix: Matrix, consumer: str, producer: str) -> None:
    matrix.programs.get(producer)
    reader = matrix.programs.get(consumer).program
    found = value_of(matrix.seen[consumer].read[producer])
    written = by_partition(matrix.written[producer])
    assert set(found) == set(written)
    for partition, records in written.items():
        offsets = [it.offset for it in found[partition]]
        what = f"{consumer} reads {producer}, partition {partition}"
        assert offsets == list(range(len(offsets))), what
        expected = [reader.reads(it) for it in records]
        compare(without_own_times(found[partition], records), expected, what)


@pytest.mark.parametrize("consumer", PROGRAMS)
def test_seeks_by_time(matrix: Matrix, consumer: str) -> None:
    """From the first record at or after the time on, whatever times come later."""
    reader = matrix.programs.get(consumer).program
    found = value_of(matrix.seen[consumer].since)
    for partition, records in by_partition(matrix.written["confluent"]).items():
        later = [number for number, it in enumerate(records) if it.timestamp >= SINCE_MS]
        expected = [reader.reads(it) for it in records[later[0] :]] if later else []
        offsets = [it.offset for it in found.get(partition, [])]
        assert offsets == list(range(len(records)))[len(records) - len(expected) :]
        compare(found.get(partition, []), expected, f"{consumer}, partition {partition}")


def test_clients_agree_on_times_of_the_producer(matrix: Matrix) -> None:
    """kcat stamps records itself: every reader sees the same times, and they are of this run."""
    matrix.programs.get("kcat")
    seen = {
        name: {
            (it.partition, it.offset): it.timestamp
            for records in value_of(told.read["kcat"]).values()
            for it in records
        }
        for name, told in matrix.seen.items()
    }
    times = seen["kcat"]
    assert all(it == times for it in seen.values())
    assert matrix.begun_ms <= min(times.values()) <= max(times.values()) <= int(time.time() * 1000)


def batches(folder: Path) -> list[RecordBatch]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    found = []
    for batch in iterate_batches(data):
        assert isinstance(batch, RecordBatch)
        found.append(batch)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_are_stored_as_they_were_sent(matrix: Matrix, name: str) -> None:
    """In the codec that was asked for, with a producer id where that is the client's default."""
    client = matrix.programs.get(name)
    if not matrix.cluster.data:
        pytest.skip("the brokers' files are not to be seen")
    for number, codec in enumerate(CODECS):
        if codec not in client.codecs:
            continue
        for partition in (2 * number, 2 * number + 1):
            folders = [data / f"{topic_of(name)}-{partition}" for data in matrix.cluster.data]
            logs = [[bytes(it.view()) for it in batches(folder)] for folder in folders]
            assert all(it == logs[0] for it in logs), f"replicas differ in {folders[0].name}"
            found = batches(folders[0])
            # A library may leave a batch alone that its codec would make larger.
            assert {0, number} >= {it.codec for it in found}, f"{codec} of {name}"
            assert number in {it.codec for it in found}, f"{codec} of {name}"
            assert all(it.has_producer_id for it in found) == client.program.idempotent
