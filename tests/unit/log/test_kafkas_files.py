"""Files written by Kafka 3.9.2, loaded, recovered and dumped.

`golden/kafka-3.9.2.zip` holds one log directory twice: `crashed` was copied while the broker ran,
`clean` after its orderly stop; nothing was written in between.  `dump.txt` is what Kafka's own
dump tool printed for `clean`.  The data: all codecs, keys, headers, null values, idempotent and
transactional producers, commits, aborts and one transaction left open.
"""

import argparse
import io
import os
import zipfile
from pathlib import Path

import pytest

from kafkalike.broker.log.dir_loader import LoadedDir, load_dir
from kafkalike.broker.log.directory import FilePool, IndexCache, LogDirectory
from kafkalike.broker.log.producer_state import read_snapshot, write_snapshot
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.config import LogConfig
from kafkalike.runtime.disk import RealDisk
from kafkalike.tools import cli
from kafkalike.tools.dump_log import Dump, add_parser
from tests.fakes import FakeClock, FakeRandom, InlineThreads

from .support import config, contents

GOLDEN = Path(__file__).parent / "golden" / "kafka-3.9.2.zip"
WHEN_MS = 1_795_978_800_000
"""Shortly after the files were written; their records claim to be years old."""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def settings(topic: str) -> LogConfig:
    if topic == "gold":
        return config(segment_bytes=8000, index_interval_bytes=500, segment_index_bytes=4000)
    return config(message_timestamp_type="LogAppendTime")


def load(path: Path) -> LoadedDir:
    clock = FakeClock(WHEN_MS)
    directory = LogDirectory(
        str(path),
        disk=RealDisk(),
        clock=clock,
        random=FakeRandom(),
        threads=InlineThreads(),
        files=FilePool(clock, 100),
        indexes=IndexCache(),
        on_failure=lambda directory, error: pytest.fail(str(error)),
    )
    return load_dir(directory, settings, producer_expiration_ms=1 << 50, verification_required=True)


def files_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


def test_a_clean_directory_is_taken_as_it_is(golden: Path) -> None:
    before = files_of(golden / "clean" / "gold-0")
    loaded = load(golden / "clean")
    assert loaded.was_clean
    gold, stamped = loaded.logs
    assert (gold.log_start_offset, gold.log_end_offset, gold.high_watermark) == (0, 373, 373)
    assert [s.base_offset for s in gold.segments] == [0, 115, 217, 300]
    assert gold.leader_epochs == [(0, 0)]
    assert gold.topic_id is not None and len(gold.topic_id) == 16
    assert len(gold.active_producers()) == 9
    assert list(gold.producer_state.open_txns) == [gold.last_stable_offset]
    assert stamped.log_end_offset == 1
    for log in loaded.logs:
        log.close()
    assert files_of(golden / "clean" / "gold-0") == before
    assert not (golden / "clean" / ".kafka_cleanshutdown").exists()


def test_recovery_makes_the_very_files_of_an_orderly_stop(golden: Path) -> None:
    loaded = load(golden / "crashed")
    assert not loaded.was_clean
    for log in loaded.logs:
        log.close()
    recovered = files_of(golden / "crashed" / "gold-0")
    expected = files_of(golden / "clean" / "gold-0")
    for name in expected:
        if name.endswith(".snapshot"):
            # The order of the entries is that of a hash map in Kafka.
            assert normal(recovered[name]) == normal(expected[name])
        else:
            assert recovered[name] == expected[name], name
    assert sorted(recovered) == sorted(expected)


def normal(snapshot: bytes) -> list[bytes]:
    entries = sorted(read_snapshot(snapshot), key=lambda entry: entry.producer_id)
    return [write_snapshot([entry]) for entry in entries]


def test_both_give_the_same_records_and_transactions(golden: Path) -> None:
    clean, crashed = load(golden / "clean").logs[0], load(golden / "crashed").logs[0]
    assert contents(clean) == contents(crashed)
    assert [offset for offset, _ in contents(clean)] == list(range(373))
    clean.update_high_watermark(373)
    crashed.update_high_watermark(373)
    for offset in range(0, 372, 7):
        one = clean.read(offset, 1 << 20, FetchIsolation.TXN_COMMITTED)
        other = crashed.read(offset, 1 << 20, FetchIsolation.TXN_COMMITTED)
        assert one.aborted_transactions == other.aborted_transactions
    aborted = clean.read(300, 1 << 20, FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert aborted is not None and len(aborted) == 6


def test_the_dump_is_kafkas(golden: Path) -> None:
    here = os.getcwd()
    os.chdir(golden / "clean")
    try:
        suffixes = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
        names = [str(path) for path in sorted(Path("gold-0").iterdir()) if path.suffix in suffixes]
        names.append("stamped-0/00000000000000000000.log")
        assert dump("--files", ",".join(names), "--print-data-log") == (
            0,
            (golden / "dump.txt").read_text(),
        )
    finally:
        os.chdir(here)


def dump(*words: str) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    out = io.StringIO()
    code = Dump(parser.parse_args(["dump-log", *words]), out).run()
    return code, out.getvalue()


def test_the_dump_names_what_is_wrong(golden: Path) -> None:
    log = golden / "clean" / "gold-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(bytes(data) + b"\0" * 5)
    code, text = dump("--files", str(log))
    assert code == 1
    assert "isvalid: false" in text and "checksum" in text and "5 bytes behind" in text
    index = log.with_suffix(".index")
    index.write_bytes(index.read_bytes()[:8] + b"\0\0\0\x50\0\0\0\x05" + b"x")
    assert dump("--files", str(index))[0] == 1
    assert dump("--files", str(index), "--index-sanity-check")[0] == 1
    snapshot = golden / "clean" / "gold-0" / f"{373:020d}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    code, text = dump("--files", str(snapshot))
    assert code == 1 and "PROBLEM" in text
    with pytest.raises(cli.CommandError, match=r"nothing\.log: no such file"):
        dump("--files", str(golden / "nothing.log"))
    assert dump("--files", str(golden / "dump.txt"))[0] == 1


def test_a_directory_is_dumped_as_json(golden: Path) -> None:
    import json

    code, text = dump("--files", str(golden / "clean" / "gold-0"), "--deep", "--output", "json")
    assert code == 0
    items = [json.loads(line) for line in text.splitlines()]
    kinds = {item["kind"] for item in items}
    assert kinds == {
        "batch",
        "record",
        "index",
        "timeindex",
        "aborted_transaction",
        "producer",
        "leader_epoch",
        "metadata",
    }
    assert sum(item["kind"] == "record" for item in items) == 373
    assert sum(item["kind"] == "aborted_transaction" for item in items) == 6
    code, text = dump("--files", str(golden / "clean" / "replication-offset-checkpoint"))
    assert code == 0 and "gold-0 offset: 373" in text
