"""Files go through the brokers and come back: C clients write and others read, then the other way.

The set is the system's own changelogs and a generated file, once in every codec.  `make test` takes a
little of both; `KAFKALIKE_FULL=1` takes all changelogs and 200 MB.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.integration import clients

from .cluster import Cluster, Programs
from .contract import CODECS, Digest, Record, read_records, write_records
from .files import file_set
from .programs import FULL, PROGRAMS, RunningProgram

DOCUMENTS: Final = None if FULL else 300_000
GENERATED: Final = 200_000_000 if FULL else 500_000
C_CLIENTS: Final = ("kcat", "confluent")
OTHERS: Final = ("kafka-python", "aiokafka", "kafkajs", "java-3.9.2")
READERS: Final = {
    **dict.fromkeys(C_CLIENTS, OTHERS),
    **dict.fromkeys(OTHERS, C_CLIENTS),
}

View = Callable[[Record], Record]
Sums = dict[int, Digest]


def add(sums: Sums, record: Record, *, timed: bool) -> None:
    """`timed`: times are the test's, not the client's own."""
    if not timed:
        record = replace(record, timestamp=-1)
    sums.setdefault(record.partition, Digest()).add(record)


def texts(sums: Sums) -> dict[int, str]:
    return {partition: str(total) for partition, total in sorted(sums.items())}


class Job:
    """One producer's topic: what was written, as each of its readers ought to see it."""

    def __init__(self, cluster: Cluster, client: RunningProgram, folder: Path) -> None:
        self.topic = f"files-from-{client.name}"
        self.bytes = 0
        self._client = client
        self._folder = folder
        self._expected: dict[View, Sums] = {PROGRAMS[it].reads: {} for it in READERS[client.name]}
        clients.create_topic(
            cluster.bootstrap, self.topic, 2 * len(CODECS), 3, {"retention.ms": "-1"}
        )

    def write(self) -> None:
        program = self._client.program
        path = self._folder / "in"

        def written(codec: str, partition: int) -> Iterator[Record]:
            for record in file_set(codec, partition, DOCUMENTS, GENERATED):
                given = program.writes(record)
                self.bytes += len(given.value or b"")
                for reads, sums in self._expected.items():
                    add(sums, reads(given), timed=given.timestamp >= 0)
                yield given

        for number, codec in enumerate(CODECS):
            before = self.bytes
            count = write_records(path, written(codec, 2 * number))
            begun = time.monotonic()
            assert self._client.produce(self.topic, codec, path) == count
            self._tell(f"writes {codec}", self._client, self.bytes - before, begun)
        path.unlink()

    def read(self, reader: RunningProgram) -> None:
        path = self._folder / f"out-{reader.name}"
        begun = time.monotonic()
        reader.consume(self.topic, path)
        self._tell(f"is read by {reader.name}", self._client, self.bytes, begun)
        timed = self._client.program.writes(Record(0, b"", b"", (), 0)).timestamp >= 0
        found: Sums = {}
        following: dict[int, int] = {}
        for record in read_records(path):
            assert record.offset == following.get(record.partition, 0), record.partition
            following[record.partition] = record.offset + 1
            add(found, record, timed=timed)
        path.unlink()
        expected = self._expected[reader.program.reads]
        assert texts(found) == texts(expected), f"{reader.name} reads {self.topic}"

    @staticmethod
    def _tell(what: str, client: RunningProgram, size: int, begun: float) -> None:
        seconds = time.monotonic() - begun
        rate = size / 1e6 / seconds
        print(f"{client.name} {what}: {size / 1e6:.1f} MB in {seconds:.1f} s, {rate:.1f} MB/s")


@pytest.fixture(scope="module")
def started(programs: Programs) -> Programs:
    programs.start([*C_CLIENTS, *OTHERS])
    return programs


@pytest.mark.parametrize("producer", READERS)
def test_files_come_back_as_they_went(
    cluster: Cluster, started: Programs, tmp_path: Path, producer: str
) -> None:
    job = Job(cluster, started.get(producer), tmp_path)
    job.write()
    readers = [started.get(name) for name in READERS[producer]]
    for reader in readers:
        job.read(reader)
    admin = clients.admin(cluster.bootstrap)  # its futures fail when it is collected
    done = admin.delete_topics([job.topic])
    done[job.topic].result(clients.LIMIT_S)
