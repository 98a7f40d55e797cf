"""AlterReplicaLogDirs (reference: broker-errors 8)."""

from pathlib import Path

import pytest

from kafkalike.broker.auth.authorizer import (
    CLUSTER_NAME,
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.handlers.log_dirs import LogDirsApi
from kafkalike.errors import (
    ClusterAuthorizationFailed,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from kafkalike.messages.cluster import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock
from tests.unit.replica.support import Broker

from .support import PickyAuthorizer, context


def alter(
    broker: Broker, authorizer: Authorizer, version: int, **targets: str
) -> list[tuple[str, int, int]]:
    """Ask for partition 0 of each topic; (topic, partition, error code) of the answer."""
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = AlterReplicaLogDirsRequest(
        dirs=[
            wanted(path=path, topics=[wanted.AlterReplicaLogDirTopic(name=topic, partitions=[0])])
            for topic, path in targets.items()
        ]
    )
    api = LogDirsApi(broker.replicas, authorizer)
    response = api.alter_replica_log_dirs(
        AlterReplicaLogDirsRequest.decode(request.encode(version), version),
        context(version, api_key=34),
    )
    response = AlterReplicaLogDirsResponse.decode(response.encode(version), version)
    return [
        (topic.topic_name, partition.partition_index, partition.error_code)
        for topic in response.results
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", range(3))
def test_each_partition_for_itself(tmp_path: Path, version: int) -> None:
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    key = TopicPartition("here", 0)
    broker.lead(key)
    first, second = broker.logs.live_dirs
    target = second if broker.log(key).parent_dir == first else first
    broker.know(1, partitions=[TopicPartition("later", 0)])
    targets = {"here": target, "bad": "/no/dir", "later": target, "unheard": target}
    assert alter(broker, PermissiveAuthorizer(), version, **targets) == [
        ("here", 0, 0),
        ("bad", 0, LogDirNotFound.code),
        ("later", 0, ReplicaNotAvailable.code),
        ("unheard", 0, UnknownTopicOrPartition.code),
    ]
    broker.clock.advance(1)
    assert broker.log(key).parent_dir == target


def test_needs_alter_on_the_cluster(tmp_path: Path) -> None:
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    broker.lead(TopicPartition("here", 0))
    refused = PickyAuthorizer((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    found = alter(broker, refused, 2, here=broker.logs.live_dirs[1])
    assert found == [("here", 0, ClusterAuthorizationFailed.code)]
    assert len(broker.replicas._movers) == 0
