"""Two brokers of Apache Kafka 3.9.2 and two of ours: one cluster, under both kinds of controller.

Producers with acks=all and consumers are on all the time.  Nothing that was acknowledged is lost,
replicas are byte-equal, and Kafka's tool and ours tell the same.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import eventually
from tests.integration.kafka_tools.programs import Programs
from tests.reference_kafka import ReferenceMissing, jars

from .cluster import KAFKA, OURS, MixedCluster, Traffic, admin

pytestmark = [pytest.mark.java, pytest.mark.real_zookeeper, pytest.mark.slow]

TOPIC = "mixed"
PLACES = ((1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))
"""Replicas of each partition; 1 and 2 are ours, 3 and 4 are Kafka's."""

LONGEST_SILENCE_S = 30.0
LEADER = re.compile(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)")


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    with Programs() as started:
        yield started


class Story:
    def __init__(self, cluster: MixedCluster, traffic: Traffic, programs: Programs) -> None:
        self.cluster = cluster
        self.traffic = traffic
        self.programs = programs
        self.to = ("--bootstrap-server", cluster.bootstrap)

    def reassign(self, moves: dict[int, tuple[int, ...]], folder: Path) -> None:
        """With our tool, and until it says that all is done."""
        path = folder / "moves.json"
        content = {
            "version": 1,
            "partitions": [
                {"topic": TOPIC, "partition": number, "replicas": list(replicas)}
                for number, replicas in moves.items()
            ],
        }
        path.write_text(json.dumps(content))
        words = ("--reassignment-json-file", str(path), *self.to)
        admin("reassign", "execute", *words)
        self.cluster.calm(TOPIC, what=f"after {moves}")
        # In sync are the old and the new replicas together, before the old ones go.
        eventually(lambda: admin("reassign", "verify", *words), what="the moves are complete")
        found = self.cluster.partitions(TOPIC)
        assert {n: tuple(found[n].replica_nodes) for n in moves} == moves

    def agree(self) -> None:
        """Kafka's tool, our tool and every broker tell the same of all topics."""
        said = admin(
            "verify", *self.to, "--zookeeper", self.cluster.zookeeper, "--settle-ms", "20000"
        )
        assert "no differences" in said, said
        printed = self.programs.run("topics", ["--describe", "--topic", TOPIC, *self.to])
        assert printed.status == 0, printed
        theirs = {
            int(number): (int(leader), sorted(replicas.split(",")), sorted(isr.split(",")))
            for number, leader, replicas, isr in LEADER.findall(printed.out)
        }
        ours = {
            part["partition"]: (
                part["leader"],
                sorted(map(str, part["replicas"])),
                sorted(map(str, part["isr"])),
            )
            for part in json.loads(
                admin("topics", "describe", "--topic", TOPIC, *self.to, "--output", "json")
            )["topics"][0]["partitions"]
        }
        assert theirs == ours and len(ours) == len(PLACES)

    # -- chapters ------------------------------------------------------------------------------

    def topics_come_and_go(self, name: str) -> None:
        words = ("--topic", name, *self.to)
        admin("topics", "create", *words, "--replica-assignment", "1:3,4:2")
        self.cluster.calm(name, what=f"{name} created")
        printed = self.programs.run(
            "topics",
            ["--alter", *words, "--partitions", "4", "--replica-assignment", "1:3,4:2,3:1,2:4"],
        )
        assert printed.status == 0, printed
        self.cluster.calm(name, what=f"{name} grown")
        assert len(self.cluster.partitions(name)) == 4
        admin("topics", "delete", *words)
        self.cluster.gone(name)

    def leaders_move(self, folder: Path) -> None:
        for leader in (3, 2, 1):
            others = tuple(b for b in PLACES[0] if b != leader)
            self.reassign({0: (leader, *others)}, folder)
            admin(
                "leaders", "elect", "--election-type", "preferred", *self.to,
                "--topic", TOPIC, "--partition", "0",
            )  # fmt: skip
            self.cluster.calm(TOPIC)
            eventually(
                lambda: self.cluster.partitions(TOPIC)[0].leader_id == leader,  # noqa: B023
                what=f"{leader} leads",
            )

    def replicas_move(self, folder: Path) -> None:
        self.reassign({1: (3, 4, 1), 3: (1, 2, 3)}, folder)
        self.reassign({1: (1, 2, 3), 3: (3, 4, 2)}, folder)
        self.reassign(dict(enumerate(PLACES)), folder)

    def brokers_go(self) -> None:
        """One after the other: a leader of each kind is killed, one of each kind stops in order."""
        for leave, broker_id in (
            (self.cluster.kill, 1),
            (self.cluster.kill, 3),
            (self.cluster.stop, 2),
            (self.cluster.stop, 4),
        ):
            leave(broker_id)
            self.traffic.wait_flowing()
            self.cluster.start(broker_id)
            self.cluster.calm(TOPIC, what=f"broker {broker_id} is back")
        self.cluster.calm("__consumer_offsets", what="all replicas are back")
        admin(
            "leaders", "elect", "--election-type", "preferred", *self.to, "--all-topic-partitions"
        )
        self.cluster.calm(TOPIC, what="leaders are back")
        self.traffic.wait_flowing()


def test_one_cluster_of_both(
    tmp_path: Path, zookeeper_address: str, chroot: str, programs: Programs
) -> None:
    cluster = MixedCluster(
        tmp_path, zookeeper_address + chroot, {1: OURS, 2: OURS, 3: KAFKA, 4: KAFKA}
    )
    traffic = Traffic(cluster, TOPIC, len(PLACES), tmp_path / "traffic")
    story = Story(cluster, traffic, programs)
    try:
        cluster.start(1)
        cluster.start(2, 3, 4)
        places = ",".join(":".join(map(str, place)) for place in PLACES)
        admin(
            "topics", "create", "--topic", TOPIC, "--replica-assignment", places,
            "--config", "min.insync.replicas=2", *story.to,
        )  # fmt: skip
        cluster.calm(TOPIC, what="at the start")
        traffic.start()
        traffic.wait_flowing()
        for kind in (KAFKA, OURS):
            cluster.move_controller(kind)
            traffic.wait_flowing()
            story.topics_come_and_go(f"under-{kind}")
            story.leaders_move(tmp_path)
            story.replicas_move(tmp_path)
            story.agree()
            story.brokers_go()
            cluster.kill(cluster.controller())
            gone = ({*cluster.kinds} - cluster.running).pop()
            traffic.wait_flowing()
            cluster.start(gone)
            cluster.calm(TOPIC, what="the controller is back")
            story.agree()
        outcomes = traffic.finish(dict(enumerate(PLACES)))
        assert not outcomes.findings, "\n".join(map(str, outcomes.findings))
        assert outcomes.acknowledged > 1000
        assert max(traffic.silences().values()) < LONGEST_SILENCE_S, traffic.silences()
        assert cluster.complaints() == []
    finally:
        print(traffic.silences())
        traffic.close()
        cluster.close()
