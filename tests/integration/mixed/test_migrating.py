"""docs/migrating.md step by step, with its own commands, while producers and consumers are on."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.brokers import ROOT, eventually
from tests.reference_kafka import ReferenceMissing, jars

from .cluster import CALM_S, KAFKA, OURS, MixedCluster, Traffic, admin

pytestmark = [pytest.mark.java, pytest.mark.real_zookeeper, pytest.mark.slow]

PAGE: Final = ROOT / "docs" / "migrating.md"
TOPIC: Final = "orders"
PARTITIONS: Final = 3
LONGEST_SILENCE_S: Final = 30.0
UNIT: Final = re.compile(r"systemctl (start|stop) (kafka|kafkalike)@(\d)")


def commands(heading: str, after: str = "") -> list[str]:
    """Of a section, from the paragraph that contains these words on, up to the next bold one."""
    text = PAGE.read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    if after:
        assert after in section
        section = section.split(after, 1)[1]
    section = section.split("\n**", 1)[0]
    found = [line.strip()[2:] for line in section.splitlines() if line.startswith("    $ ")]
    if not found:  # inside a list
        found = [line.strip()[2:] for line in section.splitlines() if "    $ " in line]
    assert found, (heading, after)
    return found


class Walk:
    """Somebody who does what the page says."""

    def __init__(self, cluster: MixedCluster, traffic: Traffic, folder: Path) -> None:
        self.cluster = cluster
        self.traffic = traffic
        self.folder = folder
        self.done: list[str] = []
        shim = folder / "bin" / "kafkalike-admin"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkalike.tools.admin.main "$@"\n')
        shim.chmod(0o755)

    def do(self, line: str, broker: int = 0) -> str:
        """One line of the page; N stands for the broker."""
        self.done.append(line)
        line = line.replace("@N", f"@{broker}")
        if line.startswith("export "):
            assert re.match(r"export KAFKA=\S+ ZK=\S+$", line)
            return ""
        unit = UNIT.fullmatch(line)
        if unit is not None:
            self.unit(*unit.groups())
            return ""
        if "--under-replicated" in line:
            eventually(lambda: len(self.printed(line).splitlines()) <= 1, CALM_S, what=line)
            return ""
        if "reassign verify" in line:
            eventually(lambda: self.run(line).returncode == 0, CALM_S, what=line)
            return ""
        return self.printed(line)

    def printed(self, line: str) -> str:
        done = self.run(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KAFKA": self.cluster.bootstrap,
            "ZK": self.cluster.zookeeper,
        }
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def unit(self, verb: str, program: str, number: str) -> None:
        broker, kind = int(number), OURS if program == "kafkalike" else KAFKA
        if verb == "stop":
            assert self.cluster.kinds[broker] == kind
            self.cluster.stop(broker)
        else:
            self.cluster.kinds[broker] = kind
            self.cluster.start(broker)


@pytest.fixture
def walk(tmp_path: Path, zookeeper_address: str, chroot: str) -> Iterator[Walk]:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    kinds = dict.fromkeys((1, 2, 3), KAFKA) | dict.fromkeys((4, 5, 6), OURS)
    cluster = MixedCluster(tmp_path, zookeeper_address + chroot, kinds)
    traffic = Traffic(cluster, TOPIC, PARTITIONS, tmp_path / "traffic")
    try:
        yield Walk(cluster, traffic, tmp_path)
    finally:
        print(traffic.silences())
        traffic.close()
        cluster.close()


def test_there_and_back_as_the_page_says(walk: Walk) -> None:
    cluster, traffic = walk.cluster, walk.traffic
    cluster.start(1, 2, 3)
    admin(
        "topics", "create", "--topic", TOPIC, "--replica-assignment", "1:2:3,2:3:1,3:1:2",
        "--config", "min.insync.replicas=2", "--bootstrap-server", cluster.bootstrap,
    )  # fmt: skip
    cluster.calm(TOPIC)
    traffic.start()
    traffic.wait_flowing()
    for line in commands("Before"):
        walk.do(line)
    in_place(walk)
    beside(walk)
    traffic.wait_flowing()
    replicas = {n: part.replica_nodes for n, part in cluster.partitions(TOPIC).items()}
    assert all(set(brokers) == {4, 5, 6} for brokers in replicas.values())
    outcomes = traffic.finish(replicas)
    assert not outcomes.findings, "\n".join(map(str, outcomes.findings))
    assert outcomes.acknowledged > 1000
    assert max(traffic.silences().values()) < LONGEST_SILENCE_S
    assert cluster.complaints() == []
    text = PAGE.read_text()
    told = {line.strip()[2:] for line in text.splitlines() if line.strip().startswith("$ ")}
    assert told - set(walk.done) == {"cat topics.json"}


def in_place(walk: Walk) -> None:
    there = commands("In place", "For each broker N")
    leaders = commands("In place", "the leaders go where they were")
    back = commands("In place", "for each broker N, at any time")
    for lines in (there, back):
        for broker in sorted((1, 2, 3), key=lambda n: n == walk.cluster.controller()):
            for line in lines:
                if not line.startswith("kafkalike-admin leaders"):
                    walk.do(line, broker)
        for line in leaders:
            walk.do(line)
        walk.traffic.wait_flowing()


def beside(walk: Walk) -> None:
    for line in commands("Beside", "They start empty"):
        if line.startswith("systemctl"):
            walk.do(line)
    (describe,) = (line for line in commands("Beside") if "cluster describe" in line)
    assert "\n4 " in walk.do(describe)
    topics = {"topics": [{"topic": TOPIC}, {"topic": "__consumer_offsets"}], "version": 1}
    (walk.folder / "topics.json").write_text(json.dumps(topics))
    (generate,) = (line for line in commands("Beside") if "generate" in line)
    printed = walk.do(generate)
    before, after = (line for line in printed.splitlines() if line.startswith("{"))
    (walk.folder / "back.json").write_text(before)
    (walk.folder / "moves.json").write_text(after)
    there = commands("Beside", "and the proposed one")
    back = commands("Beside", "**Back**")
    for lines in (there, back, there):
        for line in lines:
            walk.do(line)
        walk.traffic.wait_flowing()
    for line in commands("Beside", "**The end**"):
        walk.do(line)
