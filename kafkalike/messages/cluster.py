"""Looking after a cluster: elections, reassignments, log directories, feature levels."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ElectLeadersRequest(Request, key=43, versions=(0, 2), flexible=2):
    """Start leader elections (KIP-183); null partitions mean all.

    v1: election type: 0 preferred, 1 unclean (KIP-460).
    """

    class TopicPartitions(Struct):
        topic: str = ""
        partitions: list[int32] = []

    # 0: preferred leaders; 1: unclean.
    election_type: int8 = field(since=1, default=0)
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: int32 = 60000


class ElectLeadersResponse(Response, key=43, versions=(0, 2), flexible=2):
    """One result for each partition.

    v1: an error for the whole.
    """

    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: int32 = 0
            error_code: int16 = 0
            error_message: str | None = ""

        topic: str = ""
        partition_result: list[PartitionResult] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = []


class AlterPartitionReassignmentsRequest(Request, key=45, versions=(0, 0), flexible=0):
    """Start or, with null replicas, cancel moves of replicas (KIP-455)."""

    class ReassignableTopic(Struct):
        class ReassignablePartition(Struct):
            partition_index: int32 = 0
            replicas: list[int32] | None = None

        name: str = ""
        partitions: list[ReassignablePartition] = []

    timeout_ms: int32 = 60000
    topics: list[ReassignableTopic] = []


class AlterPartitionReassignmentsResponse(Response, key=45, versions=(0, 0), flexible=0):
    """One result for each partition, and one for the whole."""

    class ReassignableTopicResponse(Struct):
        class ReassignablePartitionResponse(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0
            error_message: str | None = ""

        name: str = ""
        partitions: list[ReassignablePartitionResponse] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ListPartitionReassignmentsRequest(Request, key=46, versions=(0, 0), flexible=0):
    """Ask for running moves; null topics ask for all."""

    class ListPartitionReassignmentsTopics(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions=(0, 0), flexible=0):
    """Partitions whose replicas are moving."""

    class OngoingTopicReassignment(Struct):
        class OngoingPartitionReassignment(Struct):
            partition_index: int32 = 0
            replicas: list[int32] = []
            adding_replicas: list[int32] = []
            removing_replicas: list[int32] = []

        name: str = ""
        partitions: list[OngoingPartitionReassignment] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


class AlterReplicaLogDirsRequest(Request, key=34, versions=(0, 2), flexible=2):
    """Move replicas of this broker to other log directories (KIP-113)."""

    class AlterReplicaLogDir(Struct):
        class AlterReplicaLogDirTopic(Struct):
            name: str = ""
            partitions: list[int32] = []

        path: str = ""
        topics: list[AlterReplicaLogDirTopic] = []

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirsResponse(Response, key=34, versions=(0, 2), flexible=2):
    """One result for each partition."""

    class AlterReplicaLogDirTopicResult(Struct):
        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0

        topic_name: str = ""
        partitions: list[AlterReplicaLogDirPartitionResult] = []

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class DescribeLogDirsRequest(Request, key=35, versions=(0, 4), flexible=2):
    """Ask what lies in the log directories of this broker; null topics ask for all."""

    class DescribableLogDirTopic(Struct):
        topic: str = ""
        partitions: list[int32] = []

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsResponse(Response, key=35, versions=(0, 4), flexible=2):
    """Log directories with size and lag of each replica.

    v3: an error for the whole.  v4: size of the volume and what is usable (KIP-827).
    """

    class DescribeLogDirsResult(Struct):
        class DescribeLogDirsTopic(Struct):
            class DescribeLogDirsPartition(Struct):
                partition_index: int32 = 0
                partition_size: int64 = 0
                offset_lag: int64 = 0
                is_future_key: bool = False

            name: str = ""
            partitions: list[DescribeLogDirsPartition] = []

        error_code: int16 = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsTopic] = []
        # -1 when unknown.
        total_bytes: int64 = field(since=4, default=-1, ignorable=True)
        usable_bytes: int64 = field(since=4, default=-1, ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = []


class UpdateFeaturesRequest(Request, key=57, versions=(0, 1), flexible=0):
    """Change finalized feature levels (KIP-584).  Only the controller can.

    v1: upgrade type and validate-only replace `allow_downgrade` (KIP-778).
    """

    class FeatureUpdateKey(Struct):
        feature: str = ""
        # Below 1 deletes the feature.
        max_version_level: int16 = 0
        allow_downgrade: bool = field(until=0, default=False)
        # 1: upgrade; 2: safe downgrade; 3: unsafe downgrade.
        upgrade_type: int8 = field(since=1, default=1)

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = field(since=1, default=False)


class UpdateFeaturesResponse(Response, key=57, versions=(0, 1), flexible=0):
    """An error for the whole, and one result for each feature."""

    class UpdatableFeatureResult(Struct):
        feature: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = []
