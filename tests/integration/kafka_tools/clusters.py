"""The two clusters that commands are sent to: three brokers of ours, three of the original."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests import clusters
from tests.clusters import Cluster

from .run import Target

SETTINGS: Final = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "30000",
}


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Target]:
    """Three brokers of ours with two log directories each."""
    with clusters.ours(folder, brokers=3, settings=SETTINGS, dirs=2) as cluster:
        yield _target(cluster)


@contextlib.contextmanager
def original(folder: Path) -> Iterator[Target]:
    """Three brokers of Apache Kafka.  Raises ReferenceMissing."""
    with clusters.original(folder, brokers=3, settings=SETTINGS, dirs=2, heap="256M") as cluster:
        yield _target(cluster)


def _target(cluster: Cluster) -> Target:
    names = {}
    for broker_id in cluster.ports:
        first, second = cluster.dirs(broker_id)
        names[str(second)] = f"<dir {broker_id}-2>"
        names[str(first)] = f"<dir {broker_id}>"
    for broker_id, port in cluster.ports.items():
        names[f"127.0.0.1:{port}"] = f"<broker {broker_id}>"
        names[str(port)] = f"<port {broker_id}>"
    return Target(cluster, [f"127.0.0.1:{port}" for port in cluster.ports.values()], names)
