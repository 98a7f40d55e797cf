"""A cluster moves from the embedded coordination service to a real ensemble and back."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import confluent_kafka
import pytest

from kafkalike.testing import Cluster
from tests.integration.testing.processes import ROOT
from tests.integration.testing.test_up import consume, produce


def command(*arguments: object) -> tuple[int, str]:
    """`kafkalike zookeeper ...`: exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.main", "zookeeper", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def same(*files: pathlib.Path) -> None:
    """The exports hold the same, but for what counts changes."""
    trees = []
    for file in files:
        nodes: list[dict[str, Any]] = json.loads(file.read_text())["nodes"]
        # The controller's epoch grows with every start.
        trees.append({n["path"]: (n["data"], n["acl"]) for n in nodes if "epoch" not in n["path"]})
    assert all(tree == trees[0] for tree in trees)
    assert "/brokers/topics/moved" in trees[0]


def group(bootstrap: str) -> Any:
    settings = {"bootstrap.servers": bootstrap, "group.id": "moving", "enable.auto.commit": False}
    return confluent_kafka.Consumer(settings)


def commit(bootstrap: str, offset: int) -> None:
    consumer = group(bootstrap)
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition("moved", 0, offset)], asynchronous=False
    )
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = group(bootstrap)
    (found,) = consumer.committed([confluent_kafka.TopicPartition("moved", 0)], timeout=30)
    consumer.close()
    return int(found.offset)


@pytest.mark.real_zookeeper
def test_there_and_back(tmp_path: pathlib.Path, zookeeper_address: str, chroot: str) -> None:
    ensemble = zookeeper_address + chroot
    home = tmp_path / "cluster"
    first, second, third = (tmp_path / f"{name}.json" for name in ("first", "second", "third"))
    with Cluster(3, directory=home) as cluster:
        cluster.create_topic("moved", partitions=1, config={"retention.bytes": 12345})
        produce(cluster.bootstrap_servers, "moved", [b"1"])
        cluster.prepare_groups()
        commit(cluster.bootstrap_servers, 1)
        code, text = command("export", first, "--dir", home / "coordination")
        assert code == 1, "a service that runs is not touched"
    code, text = command("export", first, "--dir", home / "coordination")
    assert code == 0, text
    code, text = command("import", first, "--zookeeper", ensemble)
    assert code == 0, text
    with Cluster(3, directory=home, zookeeper=ensemble) as cluster:
        cluster.wait_isr_full("moved")
        produce(cluster.bootstrap_servers, "moved", [b"2"])
        assert consume(cluster.bootstrap_servers, "moved", 2) == [b"1", b"2"]
        assert committed(cluster.bootstrap_servers) == 1
        commit(cluster.bootstrap_servers, 2)
        code, text = command("export", second, "--zookeeper", ensemble)
        assert (code, text) == (1, "error: brokers are running: 1, 2, 3; stop them first\n")
    code, text = command("export", second, "--zookeeper", ensemble)
    assert code == 0, text
    code, text = command("import", second, "--dir", home / "coordination")
    assert code == 1
    assert "not empty" in text
    (home / "coordination").rename(home / "coordination.before")
    code, text = command("import", second, "--dir", home / "coordination")
    assert code == 0, text
    with Cluster(3, directory=home) as cluster:
        cluster.wait_isr_full("moved")
        produce(cluster.bootstrap_servers, "moved", [b"3"])
        assert consume(cluster.bootstrap_servers, "moved", 3) == [b"1", b"2", b"3"]
        assert committed(cluster.bootstrap_servers) == 2
    code, text = command("export", third, "--dir", home / "coordination")
    assert code == 0, text
    code, text = command("import", third, "--zookeeper", ensemble)
    assert code == 1
    assert "the target is not empty" in text


def test_what_is_counted_is_the_same_both_ways(tmp_path: pathlib.Path) -> None:
    """The root is always there: neither written nor made."""
    file, copy = tmp_path / "tree.json", tmp_path / "copy.json"
    acl = [[31, "world", "anyone"]]
    nodes = [{"path": path, "data": None, "acl": acl} for path in ("/", "/a", "/a/b", "/c")]
    file.write_text(json.dumps({"format": 1, "nodes": nodes}))
    for number, (source, target) in enumerate([(file, copy), (copy, tmp_path / "again.json")]):
        home = tmp_path / str(number)
        assert command("import", source, "--dir", home) == (0, f"3 znodes made from {source}\n")
        assert command("export", target, "--dir", home) == (0, f"3 znodes written to {target}\n")
    with Cluster(1) as cluster:
        at = f"{cluster.zookeeper}/moved"
        assert command("import", file, "--zookeeper", at) == (0, f"3 znodes made from {file}\n")
        assert command("export", copy, "--zookeeper", at) == (0, f"3 znodes written to {copy}\n")


def test_what_is_no_export_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "some.json"
    for content, message in (
        ("nothing", "Expecting value"),
        ("{}", "no export of format 1"),
        ('{"format": 1, "nodes": [{"path": "/a", "data": "?", "acl": []}]}', "nodes[0]"),
    ):
        file.write_text(content)
        code, text = command("import", file, "--dir", tmp_path / "new")
        assert code == 1
        assert message in text
        assert len(text.splitlines()) == 1
    assert not (tmp_path / "new").exists()
    code, text = command("export", file, "--dir", tmp_path / "missing")
    assert (code, text) == (1, f"error: {tmp_path / 'missing'}: no such directory\n")
    code, text = command("export", file, "--zookeeper", "127.0.0.1:1")
    assert code == 1
    assert "Connection refused" in text
