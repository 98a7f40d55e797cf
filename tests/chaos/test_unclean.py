"""Partitions without a replica in sync: they wait, or come back short, and then the ledger is right.

What was lost is counted here from what the client was told and from the bytes in the logs, with code
of this folder; the ledger has to say the same, record for record.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tests.chaos.histories import parse_value, value_of
from tests.chaos.logs import Replica
from tests.integration import clients
from tests.integration.brokers import (
    ROOT,
    BrokerCluster,
    BrokerProcess,
    ClusterMaker,
    eventually,
    make_cluster,
)
from tests.integration.test_three_brokers import Zk, zookeeper_of
from tests.integration.zookeeper import chroot, zookeeper_address

__all__ = ["chroot", "make_cluster", "zookeeper_address"]

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

TOPIC = "short"
PARTITIONS = 4
STAYS_S = 4.0
api: Any = confluent_kafka.admin
Place = tuple[int, int]
"""(partition, offset)"""


def send(bootstrap: str, first: int, count: int) -> dict[Place, tuple[str, int, int]]:
    """Acknowledged records of each partition, `first` being their first sequence."""
    acknowledged: dict[Place, tuple[str, int, int]] = {}
    problems: list[Any] = []
    producer: Any = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "batch.num.messages": 7,
        }
    )

    def done(error: Any, message: Any) -> None:
        if error is not None:
            problems.append(error)
        else:
            sent = parse_value(message.value())
            assert sent is not None
            acknowledged[message.partition(), message.offset()] = sent

    for partition in range(PARTITIONS):
        # partition 3 gets none of the later ones: nothing of it is lost
        for sequence in range(first, first + (0 if first and partition == 3 else count)):
            value = value_of("p", partition, sequence)
            producer.produce(TOPIC, value=value, partition=partition, on_delivery=done)
    assert producer.flush(60) == 0 and not problems, problems
    return acknowledged


def stored(broker: BrokerProcess) -> dict[Place, tuple[str, int, int]]:
    found: dict[Place, tuple[str, int, int]] = {}
    for partition in range(PARTITIONS):
        replica = Replica.read(broker.data / f"{TOPIC}-{partition}")
        for batch in replica.batches():
            for offset, value in replica.values(batch):
                sent = parse_value(value)
                assert sent is not None, value
                found[partition, offset] = sent
    return found


def ledger(cluster: BrokerCluster) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "kafkalike.tools.admin.main", "losses"]
    command += ["--dir", str(cluster.folder), "--output", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True)
    yield from json.loads(done.stdout)["losses"]


def leaders(zk: Zk) -> list[int]:
    return [int(zk.state(TOPIC, p)["leader"]) for p in range(PARTITIONS)]


def checkpointed(broker: BrokerProcess, wanted: dict[int, int]) -> bool:
    text = (broker.data / "replication-offset-checkpoint").read_text()
    return all(f"{TOPIC} {p} {offset}\n" in text for p, offset in wanted.items())


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_without_unclean_elections_it_waits_and_with_them_the_ledger_names_what_was_lost(
    make_cluster: ClusterMaker, how: str
) -> None:
    cluster = make_cluster(3, start=False, replica_high_watermark_checkpoint_interval_ms="200")
    keeper, late, first = cluster[1], cluster[2], cluster[3]
    first.start()  # the controller throughout
    keeper.start()
    late.start()
    admin = clients.admin(cluster.bootstrap)

    assignment = [[1, 2], [2, 1], [1, 2], [1, 2]]
    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment)
    admin.create_topics([topic])[TOPIC].result(60)
    acknowledged = send(cluster.bootstrap, 0, 20)
    with zookeeper_of(cluster) as zk:
        late.kill()
        eventually(
            lambda: all(zk.state(TOPIC, p)["isr"] == [1] for p in range(PARTITIONS)),
            60,
            what="only broker 1 is in sync",
        )
        acknowledged |= send(cluster.bootstrap, 20, 35)
        ends = {p: 55 if p < 3 else 20 for p in range(PARTITIONS)}
        if how == "killed":
            eventually(lambda: checkpointed(keeper, ends), 30, what="high watermarks on disk")
            keeper.kill()
        else:
            keeper.freeze()
        eventually(lambda: leaders(zk) == [-1] * PARTITIONS, 60, what="offline")
        late.start()

        # off: it waits, however long the other replica is there
        deadline = time.monotonic() + STAYS_S
        while time.monotonic() < deadline:
            assert leaders(zk) == [-1] * PARTITIONS
            time.sleep(0.2)
        assert all(zk.state(TOPIC, p)["isr"] == [1] for p in range(PARTITIONS))

        # on: it comes back at once
        allow = api.ConfigEntry(
            "unclean.leader.election.enable",
            "true",
            incremental_operation=api.AlterConfigOpType.SET,
        )
        resource = api.ConfigResource(api.ResourceType.TOPIC, TOPIC, incremental_configs=[allow])
        admin.incremental_alter_configs([resource])[resource].result(60)
        eventually(lambda: leaders(zk) == [2] * PARTITIONS, 60, what="unclean leaders")
        others = f"{late.address},{first.address}"
        after = send(others, 100, 5)
        if how == "killed":
            keeper.start()
        else:
            keeper.thaw()
        eventually(
            lambda: all(sorted(zk.state(TOPIC, p)["isr"]) == [1, 2] for p in range(PARTITIONS)),
            60,
            what="both in sync",
        )
    eventually(lambda: stored(keeper) == stored(late))
    remains = stored(keeper)
    assert after.items() <= remains.items()
    lost = {place for place, sent in acknowledged.items() if remains.get(place) != sent}
    assert lost == {(p, offset) for p in range(3) for offset in range(20, 55)}

    named: list[Place] = []
    for row in ledger(cluster):
        assert (row["broker"], row["topic"], row["certain"]) == (1, TOPIC, True), row
        offsets = range(row["first_offset"], row["end_offset"])
        named += [(row["partition"], offset) for offset in offsets]
    assert len(named) == len(set(named))
    assert set(named) == lost
    assert not any("Traceback" in broker.log() for broker in cluster.brokers)


def test_a_partition_that_waits_comes_back_whole_with_its_last_replica(
    make_cluster: ClusterMaker,
) -> None:
    cluster = make_cluster(3)
    admin = clients.admin(cluster.bootstrap)

    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[1, 2]] * PARTITIONS)
    admin.create_topics([topic])[TOPIC].result(60)
    acknowledged = send(cluster.bootstrap, 0, 10)
    with zookeeper_of(cluster) as zk:
        cluster[2].kill()
        eventually(lambda: all(zk.state(TOPIC, p)["isr"] == [1] for p in range(PARTITIONS)), 60)
        acknowledged |= send(cluster.bootstrap, 10, 10)
        cluster[1].kill()
        eventually(lambda: leaders(zk) == [-1] * PARTITIONS, 60, what="offline")
        cluster[2].start()
        time.sleep(1.0)
        assert leaders(zk) == [-1] * PARTITIONS
        cluster[1].start()
        eventually(lambda: leaders(zk) == [1] * PARTITIONS, 60, what="the last one leads")
        eventually(lambda: all(len(zk.state(TOPIC, p)["isr"]) == 2 for p in range(PARTITIONS)), 60)
    assert eventually(lambda: stored(cluster[2]) == stored(cluster[1]) == acknowledged)
    assert list(ledger(cluster)) == []
