"""Fixtures of the integration tests: a real ZooKeeper, clusters of broker processes."""

from tests.integration.brokers import make_cluster
from tests.integration.zookeeper import chroot, own_zookeeper, zookeeper_address

__all__ = ["chroot", "make_cluster", "own_zookeeper", "zookeeper_address"]
