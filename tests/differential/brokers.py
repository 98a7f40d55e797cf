"""The clusters that cases are sent to, ours and the original, with the same settings.

One broker alone for most families; for some three brokers with two log directories each.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests import clusters
from tests.clusters import Cluster

from .run import Broker

SETTINGS: Final = {
    # Records of cases have times of years ago, and both brokers are to say the same of themselves.
    "log.retention.ms": "-1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "replica.fetch.backoff.ms": "1000",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "30000",
    "controlled.shutdown.retry.backoff.ms": "100",
}
THREE: Final = {
    **SETTINGS,
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    # Nothing happens by itself: a frozen broker stays where it is, and no ISR shrinks.
    "zookeeper.session.timeout.ms": "120000",
    "replica.lag.time.max.ms": "120000",
    "replica.fetch.wait.max.ms": "100",
    # How long a commit waits for a frozen broker.
    "offsets.commit.timeout.ms": "1500",
}
THREE_TICK_MS: Final = 6000

Starter = Callable[[Path], AbstractContextManager[Broker]]


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Broker]:
    """One broker of ours."""
    with clusters.ours(folder, settings=SETTINGS) as cluster:
        yield _broker(cluster)


@contextlib.contextmanager
def original(folder: Path) -> Iterator[Broker]:
    """One broker of Apache Kafka.  Raises ReferenceMissing."""
    with clusters.original(folder, settings=SETTINGS) as cluster:
        yield _broker(cluster)


@contextlib.contextmanager
def our_three(folder: Path) -> Iterator[Broker]:
    """Three brokers of ours."""
    with clusters.ours(folder, brokers=3, settings=THREE, dirs=2, tick_ms=THREE_TICK_MS) as cluster:
        yield _broker(cluster)


@contextlib.contextmanager
def original_three(folder: Path) -> Iterator[Broker]:
    """Three brokers of Apache Kafka.  Raises ReferenceMissing."""
    with clusters.original(
        folder, brokers=3, settings=THREE, dirs=2, tick_ms=THREE_TICK_MS, heap="320M"
    ) as cluster:
        yield _broker(cluster)


def _broker(cluster: Cluster) -> Broker:
    replaced = {}
    for broker_id, port in cluster.ports.items():
        mark = f" {broker_id}" if len(cluster.ports) > 1 else ""
        for number, path in reversed(list(enumerate(cluster.dirs(broker_id), 1))):
            replaced[str(path)] = f"<log dir{mark}{f'-{number}' if mark else ''}>"
        replaced[str(port)] = f"<port{mark}>"
    return Broker(cluster, {cluster.zookeeper: "<zookeeper>", **replaced})
