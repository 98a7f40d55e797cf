"""`kafkalike dump-zk` as a process against a real ZooKeeper holding what Kafka 3.9.2 wrote."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from tests.integration.zookeeper import chroot, zookeeper_address

__all__ = ["chroot", "zookeeper_address"]

pytestmark = pytest.mark.real_zookeeper

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = ROOT / "tests/unit/zk/golden/kafka39.json"


def dump(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.main", "dump-zk", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_cluster_of_kafka(zookeeper_address: str, chroot: str) -> None:
    golden: dict[str, str | None] = json.loads(GOLDEN.read_text())
    zk = KazooClient(zookeeper_address)
    zk.start()
    for path, text in golden.items():
        zk.ensure_path(chroot + path)
        zk.set(chroot + path, None if text is None else text.encode())
    zk.stop()
    zk.close()
    done = dump(["--zookeeper", zookeeper_address + chroot, "--output", "json"])
    items = {item["path"]: item for item in map(json.loads, done.stdout.splitlines())}
    assert set(golden) | {"/"} == set(items)
    for path, text in golden.items():
        if "SCRAM" not in (text or ""):
            assert items[path]["data"] == text
    assert "stored_key" not in done.stdout
    part = dump(["--zookeeper", zookeeper_address + chroot, "--path", "/config/brokers"])
    assert part.returncode == 0
    assert part.stdout.splitlines() == [
        "/config/brokers  v1 -  null",
        '/config/brokers/1  v1 -  {"version":1,"config":{"log.cleaner.threads":"2"}}',
        '/config/brokers/<default>  v1 -  {"version":1,"config":{"message.max.bytes":"2000000"}}',
    ]


def test_what_is_not_there(zookeeper_address: str, chroot: str) -> None:
    done = dump(["--zookeeper", zookeeper_address + chroot])
    assert done.returncode == 1
    assert "has no node /" in done.stderr
    zk = KazooClient(zookeeper_address)
    zk.start()
    assert zk.exists(chroot) is None
    zk.stop()
    zk.close()


def test_nobody_there() -> None:
    done = dump(["--zookeeper", "127.0.0.1:1", "--timeout-s", "0.5"])
    assert done.returncode == 1
    assert "OperationTimeout" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert dump(["--zookeeper", "/only/chroot"]).returncode == 2
