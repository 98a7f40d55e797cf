"""Our broker and the original take turns on one log directory and one ZooKeeper tree.

What one wrote the other serves, and goes on writing: after clean stops, after kills, and with tails
torn by hand; there and back again.  Kafka's dump tool finds nothing wrong with what we left.
"""

import os
from pathlib import Path

import pytest

from tests.reference_kafka import ReferenceMissing, jars, tool

from . import story
from .asking import Asker
from .places import KAFKA, OURS, Exchange

pytestmark = [pytest.mark.java, pytest.mark.real_zookeeper, pytest.mark.slow]

CLEANED = ("compacted-", "__consumer_offsets-")
"""Kafka's cleaner writes indexes that its own dump tool complains about."""

COMPLAINTS = (
    "Mismatches",
    "Found timestamp mismatch",
    "Found out of order",
    "isvalid: false",
    "trailing",
    "failed",
    "Exception",
)


def dump(data: Path, partitions: list[Path]) -> None:
    """Kafka's own tool reads the files at rest and finds nothing to complain about."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [
        str(path.relative_to(data))
        for partition in partitions
        for path in sorted(partition.iterdir())
        if path.suffix in suffixes
    ]
    here = os.getcwd()
    os.chdir(data)
    try:
        text = tool("dump-log", "--deep-iteration", "--files", ",".join(files))
        indexes = [name for name in files if name.endswith("index") and "txn" not in name]
        sane = tool("dump-log", "--index-sanity-check", "--files", ",".join(indexes))
    finally:
        os.chdir(here)
    for complaint in COMPLAINTS:
        found = [line for line in text.splitlines() if complaint in line]
        assert not found, found[:5]
    assert text.count("Dumping ") == len(files)
    assert sane.count(" passed sanity check.") + sane.count(" is empty.") == len(indexes)


@pytest.mark.parametrize(
    "turns",
    [
        # Each turn: whose broker, and how it ends.
        [
            (OURS, "stop"),
            (KAFKA, "stop"),
            (OURS, "kill"),
            (KAFKA, "kill"),
            (OURS, "stop"),
            (KAFKA, ""),
        ],
        [
            (KAFKA, "stop"),
            (OURS, "stop"),
            (KAFKA, "kill"),
            (OURS, "kill"),
            (KAFKA, "stop"),
            (OURS, ""),
        ],
    ],
    ids=["ours first", "kafka first"],
)
def test_there_and_back_again(
    tmp_path: Path, zookeeper_address: str, chroot: str, turns: list[tuple[str, str]]
) -> None:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    place = Exchange(tmp_path, zookeeper_address + chroot)
    threads = [kind(place) for kind in story.ALL]
    kafka_was_here = False
    try:
        for turn, (whose, end) in enumerate(turns):
            place.start(whose)
            asker = Asker(place.port)
            for thread in threads:
                thread.turn = turn
                if turn == 0:
                    thread.create(asker)
                else:
                    thread.check(asker)
                if end:
                    thread.write(asker)
            asker.close()
            if end == "kill":
                place.kill()
            else:
                place.stop()
            kafka_was_here |= whose == KAFKA
            if whose == OURS and end != "kill":
                left = [path for path in place.data.iterdir() if path.is_dir()]
                if kafka_was_here:
                    left = [path for path in left if not path.name.startswith(CLEANED)]
                dump(place.data, left)
            if end:
                for thread in threads:
                    thread.at_rest(clean=end == "stop")
        assert place.complaints() == []
    finally:
        place.close()
