"""A compacted log of Kafka 3.9.2 before and after its cleaner ran, cleaned here: the same decisions.

`golden/compaction-3.9.2.zip` holds the partition before, and a dump of what Kafka's cleaner made of
it, without sizes, positions and checksums (compressors differ) and without the hour of the horizon.
"""

import argparse
import io
import os
import re
import zipfile
from pathlib import Path

from twisted.internet.defer import Deferred

from kafkalike.broker.log.manager import LogManager
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.runtime.disk import RealDisk
from kafkalike.tools.dump_log import Dump, add_parser
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, InlineThreads, result_of

GOLDEN = Path(__file__).parent / "golden" / "compaction-3.9.2.zip"
WHEN_MS = 1_795_980_800_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "6000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100000000",
    "index.interval.bytes": "500",
}


def test_the_cleaner_decides_as_kafkas(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path)
    log_dir = tmp_path / "before"
    (log_dir / ".kafka_cleanshutdown").write_text("{}")
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\ncomp 0 680\n")
    config = BrokerConfig.parse(
        {
            "broker.id": "1",
            "zookeeper.connect": "z:1",
            "listeners": "PLAINTEXT://localhost:1",
            "log.dirs": str(log_dir),
        }
    )
    base = LogConfig.from_broker(config)
    clock = FakeClock(WHEN_MS)
    logs = LogManager(
        config,
        clock=clock,
        random=FakeRandom(),
        disk=RealDisk(),
        threads=InlineThreads(),
        log_config=lambda topic: base.with_overrides(SETTINGS),
        on_dir_failure=lambda path: None,
    )
    result_of(Deferred.fromCoroutine(logs.startup()))
    clock.advance(60)
    assert logs.cleaner.offsets == {TopicPartition("comp", 0): 596}
    result_of(Deferred.fromCoroutine(logs.shutdown()))
    assert dump(log_dir) == (tmp_path / "after.txt").read_text()


def dump(log_dir: Path) -> str:
    here = os.getcwd()
    os.chdir(log_dir)
    try:
        suffixes = (".log", ".timeindex", ".txnindex")
        names = [str(path) for path in sorted(Path("comp-0").iterdir()) if path.suffix in suffixes]
        parser = argparse.ArgumentParser()
        add_parser(parser.add_subparsers())
        out = io.StringIO()
        words = ["dump-log", "--print-data-log", "--files", ",".join(names)]
        assert Dump(parser.parse_args(words), out).run() == 0
    finally:
        os.chdir(here)
    text = re.sub(r"deleteHorizonMs: OptionalLong\[\d+\]", "deleteHorizonMs: set", out.getvalue())
    return re.sub(r"(position|size): \d+", "", re.sub(r"crc: \d+", "", text))
