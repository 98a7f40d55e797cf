"""How fast controllers work: a topic of 1,000 partitions, a new controller, a killed leader.

    python -m tests.benchmarks.controllers [--only kafka|kafkalike] [--rounds N]
    python -m tests.benchmarks.controllers --failover [--rounds N]

Three brokers of each kind beside a ZooKeeper of their own, one kind after the other, both from outside:

create     from the request until every broker names a leader for each of the 1,000 partitions
ready      from the deletion of /controller until a broker answers ListPartitionReassignments as
           controller (which waits in its queue behind everything that taking office means) and all
           brokers name it in their metadata
failover   from the kill -9 of a partition's leader until another broker acknowledges an acks=all
           produce
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from kafkalike.messages.cluster import ListPartitionReassignmentsRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from tests.benchmarks.sides import (
    Cluster,
    KafkalikeSide,
    KafkaSide,
    Side,
    cpu_seconds,
    stop_on_signals,
)
from tests.chaos.observer import METADATA_VERSION, Wire

LIMIT_S: Final = 120.0
PAUSE_S: Final = 0.005
PER_TOPIC: Final = 1000
PRODUCE_VERSION: Final = 9


class Watcher:
    """Asks every broker of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.wires = [Wire(int(a.rpartition(":")[2])) for a in cluster.bootstrap.split(",")]

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def has_leaders(self, topic: str, partitions: int) -> bool:
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        for wire in self.wires:
            found = wire.ask(request, METADATA_VERSION).topics[0].partitions
            if len(found) != partitions or any(p.leader_id < 0 for p in found):
                return False
        return True

    def all_name(self, controller: int) -> bool:
        request = MetadataRequest(topics=[])
        answers = [wire.ask(request, METADATA_VERSION) for wire in self.wires]
        return all(answer.controller_id == controller for answer in answers)

    def works(self, controller: int) -> bool:
        """This broker answers as controller; ids are 1, 2, 3 in the order of the addresses."""
        request = ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None)
        answer = self.wires[controller - 1].ask(request, 0)
        return bool(answer.error_code == 0)


def wait(probe: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(OSError):
            if probe():
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{probe} is not true after {LIMIT_S:g} s")
        time.sleep(PAUSE_S)


def create(cluster: Cluster, watcher: Watcher, name: str, partitions: int) -> float:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
    admin.list_topics(timeout=30)
    begun = time.monotonic()
    admin.create_topics([topic], request_timeout=LIMIT_S)[name].result(LIMIT_S)
    wait(lambda: watcher.has_leaders(name, partitions))
    return time.monotonic() - begun


def delete(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([name], request_timeout=60)[name].result(60)
    time.sleep(2.0)


def take_office(zk: Any, watcher: Watcher) -> float:
    """Seconds from the controller's znode's end until there is a new one who works."""
    epoch = int(zk.get("/controller_epoch")[0])
    begun = time.monotonic()
    zk.delete("/controller")
    # The one before may not have noticed yet: only the new one's word counts.
    wait(lambda: int(zk.get("/controller_epoch")[0]) > epoch)
    elected = int(json.loads(zk.get("/controller")[0])["brokerid"])
    wait(lambda: watcher.works(elected))
    wait(lambda: watcher.all_name(elected))
    return time.monotonic() - begun


def settle(cluster: Cluster) -> None:
    """Until the brokers have nothing to do any more."""
    before = cpu_seconds(cluster.pids)
    for _ in range(60):
        time.sleep(1.0)
        now = cpu_seconds(cluster.pids)
        if now - before < 0.15 * len(cluster.pids):
            return
        before = now


def measure(side: Side, sizes: list[int], rounds: int) -> None:
    with side, side.cluster(3) as (cluster, _):
        watcher = Watcher(cluster)
        zk = KazooClient(hosts=side.present_zookeeper)
        zk.start(timeout=30)
        try:
            for number in range(rounds):  # the first ones warm up
                took = create(cluster, watcher, f"warm-{number}", PER_TOPIC)
                show(side, f"create {PER_TOPIC} partitions, round {number}", took)
                delete(cluster, f"warm-{number}")
                settle(cluster)
            there = 0
            for size in sizes:
                while there < size:
                    create(cluster, watcher, f"t-{there}", PER_TOPIC)
                    there += PER_TOPIC
                settle(cluster)
                take_office(zk, watcher)
                times = []
                for _ in range(rounds):
                    settle(cluster)
                    times.append(take_office(zk, watcher))
                show(side, f"new controller, {size} partitions", *times)
        finally:
            zk.stop()
            zk.close()
            watcher.close()


def failover(side: Side, rounds: int) -> None:
    times = []
    with side:
        for _ in range(rounds):
            with side.cluster(3) as (cluster, _):
                times.append(kill_leader(cluster))
    show(side, "killed leader, session timeout 10 s", *times)


def kill_leader(cluster: Cluster) -> float:
    """Asked by hand: a client's own timers (a second, in librdkafka) would be half the figure."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic], request_timeout=30)["t"].result(30)
    watcher = Watcher(cluster)
    try:
        wait(lambda: watcher.has_leaders("t", 1))
        wait(lambda: produced(watcher.wires))
        time.sleep(random.uniform(2.0, 6.0))  # anywhere between two heartbeats
        leader = leader_of(watcher.wires[0])
        survivors = [wire for wire in watcher.wires if wire is not watcher.wires[leader - 1]]
        begun = time.monotonic()
        os.kill(cluster.pids[leader - 1], signal.SIGKILL)
        wait(lambda: produced(survivors))
        return time.monotonic() - begun
    finally:
        watcher.close()


def leader_of(wire: Wire) -> int:
    wanted = MetadataRequest.MetadataRequestTopic(name="t")
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    leader: int = wire.ask(request, METADATA_VERSION).topics[0].partitions[0].leader_id
    return leader


def produced(wires: list[Wire]) -> bool:
    """A record was acknowledged with acks=all by one of these brokers."""
    batch = encode_batch([Record(None, b"x", timestamp=1)])
    data = ProduceRequest.TopicProduceData
    for wire in wires:
        partition = data.PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[data(name="t", partition_data=[partition])]
        )
        answer = wire.ask(request, PRODUCE_VERSION)
        if answer.responses[0].partition_responses[0].error_code == 0:
            return True
    return False


def show(side: Side, what: str, *times: float) -> None:
    text = f"{statistics.median(times):.2f} s"
    if len(times) > 1:
        text += f" ({min(times):.2f} - {max(times):.2f})"
    sys.stdout.write(f"{side.name:10} {what}: {text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("kafka", "kafkalike"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", default="1000,10000")
    parser.add_argument("--failover", action="store_true")
    args = parser.parse_args()
    stop_on_signals()
    sys.stdout.write(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    folder = Path(tempfile.mkdtemp(prefix="kafkalike-controllers-"))
    try:
        for kind in (KafkalikeSide, KafkaSide):
            if args.only in (None, kind.name.lower()):
                side = kind(folder / kind.name)
                if args.failover:
                    failover(side, args.rounds)
                else:
                    measure(side, [int(n) for n in args.partitions.split(",")], args.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
