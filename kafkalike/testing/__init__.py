"""Real clusters for tests; see docs/testing-with-kafkalike.md."""

from .cluster import DISCONNECT, ZOOKEEPER, BrokerInfo, Cluster, ClusterError, WaitTimeout

__all__ = ["DISCONNECT", "ZOOKEEPER", "BrokerInfo", "Cluster", "ClusterError", "WaitTimeout"]
