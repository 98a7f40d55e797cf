"""AlterReplicaLogDirs v0-2: replicas of this broker move to other log directories.

Promises: each partition succeeds or fails alone; moves go on in the background and survive a restart.
KIPs: 113.  Reference: broker-errors 8, log-store 10.
"""

from kafkalike.errors import ClusterAuthorizationFailed
from kafkalike.messages.cluster import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkalike.types import TopicPartition

from ..auth.authorizer import Authorizer, Operation, allows_cluster
from ..replica.manager import ReplicaManager
from .request import RequestContext, Route, route

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


class LogDirsApi:
    """Where replicas lie on this broker's disks."""

    def __init__(self, replicas: ReplicaManager, authorizer: Authorizer) -> None:
        self._replicas = replicas
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [route(AlterReplicaLogDirsRequest, self.alter_replica_log_dirs)]

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, ctx: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        targets = {
            TopicPartition(topic.name, number): wanted.path
            for wanted in request.dirs
            for topic in wanted.topics
            for number in topic.partitions
        }
        if allows_cluster(self._authorizer, ctx, Operation.ALTER):
            codes = self._replicas.alter_log_dirs(targets)
        else:
            codes = dict.fromkeys(targets, ClusterAuthorizationFailed.code)
        topics: dict[str, _Topic] = {}
        for (name, number), code in codes.items():
            topic = topics.setdefault(name, _Topic(topic_name=name))
            topic.partitions.append(
                _Topic.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
            )
        return AlterReplicaLogDirsResponse(results=list(topics.values()))
