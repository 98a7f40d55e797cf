"""Files written here, read by Kafka's own dump tool: no complaint, and the same text as ours."""

import argparse
import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.log.log import Log
from kafkalike.broker.log.manager import LogManager
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.records.batch import encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.control import EndTransactionMarker, encode_marker
from kafkalike.records.record import Record
from kafkalike.runtime.disk import RealDisk
from kafkalike.tools.dump_log import Dump, add_parser
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, InlineThreads, result_of
from tests.integration.coordination.servers import kafka_libs

pytestmark = pytest.mark.java

NOW = 1_700_000_000_000
SETTINGS = {"segment.bytes": "6000", "index.interval.bytes": "400", "segment.index.bytes": "2400"}
COMPLAINTS = (
    "Mismatches",
    "Non-consecutive",
    "Found timestamp mismatch",
    "Found out of order",
    "isvalid: false",
    "trailing",
    "failed",
    "Exception",
)


def kafkas_dump(*words: str) -> str:
    if shutil.which("java") is None:
        pytest.skip("needs Java for Kafka's dump tool")
    libs = kafka_libs()
    if libs is None or not list(libs.glob("kafka_2*.jar")):
        pytest.skip("needs Kafka's jars below KAFKA39_HOME")
    done = subprocess.run(
        ["java", "-cp", f"{libs}/*", "kafka.tools.DumpLogSegments", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def our_dump(*words: str) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    out = io.StringIO()
    return Dump(parser.parse_args(["dump-log", *words]), out).run(), out.getvalue()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A partition directory with everything a log may hold, orderly closed."""
    clock = FakeClock(NOW)
    config = BrokerConfig.parse(
        {
            "broker.id": "1",
            "zookeeper.connect": "z:1",
            "listeners": "PLAINTEXT://localhost:1",
            "log.dirs": str(tmp_path),
            "transaction.partition.verification.enable": "false",
        }
    )
    base = LogConfig.from_broker(config)
    logs = LogManager(
        config,
        clock=clock,
        random=FakeRandom(),
        disk=RealDisk(),
        threads=InlineThreads(),
        log_config=lambda topic: base.with_overrides(SETTINGS),
        on_dir_failure=pytest.fail,
    )
    result_of(Deferred.fromCoroutine(logs.startup()))
    log = logs.get_or_create(TopicPartition("t", 0), bytes(range(16)), is_new=True)
    fill(log)
    result_of(Deferred.fromCoroutine(logs.shutdown()))
    return tmp_path / "t-0"


def fill(log: Log) -> None:
    sequence = 0
    for n in range(60):
        records = [
            Record(
                None if n % 3 == 0 else f"k{n}".encode(),
                None if n % 7 == 0 else f"value {n} ".encode() * (n % 20 + 1),
                NOW + n * 53 % 1000 + m,
                ((b"h", b"x"), (b"n", None)) if n % 4 == 0 else (),
            )
            for m in range(n % 4 + 1)
        ]
        log.append_as_leader(
            encode_batch(
                records,
                codec=Codec(n % 5),
                producer_id=7,
                producer_epoch=n // 30,
                base_sequence=sequence,
                transactional=n % 10 < 5,
            ),
            n // 20,
            now_ms=NOW,
        )
        sequence += len(records)
        if n % 10 == 4:
            marker = EndTransactionMarker(commit=n % 20 == 4, coordinator_epoch=3)
            log.append_as_leader(
                encode_marker(marker, producer_id=7, producer_epoch=n // 30, timestamp=NOW + n),
                n // 20,
                origin="coordinator",
                now_ms=NOW,
            )
        if n == 29:
            sequence = 0
    # A block of several batches, as a follower appends it.
    start = log.log_end_offset
    block = b"".join(
        bytes(
            encode_batch(
                [Record(b"k", b"v" * 300, NOW + 2000 + m)],
                base_offset=start + m,
                partition_leader_epoch=9,
            )
        )
        for m in range(12)
    )
    log.append_as_follower(block)
    log.update_high_watermark(log.log_end_offset)


def test_kafkas_dump_tool_finds_nothing_wrong(written: Path) -> None:
    here = os.getcwd()
    os.chdir(written)
    try:
        suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        names = ",".join(str(p) for p in sorted(Path().iterdir()) if p.suffix in suffixes)
        assert names.count(".log") > 2 and ".txnindex" in names
        text = kafkas_dump("--print-data-log", "--files", names)
        for complaint in COMPLAINTS:
            assert complaint not in text
        assert our_dump("--print-data-log", "--files", names) == (0, text)
        indexes = ",".join(n for n in names.split(",") if n.endswith("index") and "txn" not in n)
        text = kafkas_dump("--index-sanity-check", "--files", indexes)
        assert text.count("passed sanity check") == len(indexes.split(","))
    finally:
        os.chdir(here)
