"""Creating, growing and deleting topics; deleting the oldest records."""

from kafkalike.protocol.primitives import int8, int16, int32, int64, uuid
from kafkalike.protocol.struct import Request, Response, Struct, field
from kafkalike.types import ZERO_UUID


class CreateTopicsRequest(Request, key=19, versions=(0, 7), flexible=5):
    """Create topics.  Only the controller can.

    v1: only validate.  v4: partitions and replication may be left to the broker's defaults (KIP-464).
    v5: ready for settings in the answer (KIP-525).  v6: ready for THROTTLING_QUOTA_EXCEEDED (KIP-599).
    v7: ready for topic ids.
    """

    class CreatableTopic(Struct):
        class CreatableReplicaAssignment(Struct):
            partition_index: int32 = 0
            broker_ids: list[int32] = []

        class CreatableTopicConfig(Struct):
            name: str = ""
            value: str | None = ""

        name: str = ""
        # -1 with assignments, or for the default of the broker.
        num_partitions: int32 = 0
        # -1 with assignments, or for the default of the broker.
        replication_factor: int16 = 0
        assignments: list[CreatableReplicaAssignment] = []
        configs: list[CreatableTopicConfig] = []

    topics: list[CreatableTopic] = []
    timeout_ms: int32 = 60000
    validate_only: bool = field(since=1, default=False)


class CreateTopicsResponse(Response, key=19, versions=(0, 7), flexible=5):
    """One result for each topic.

    v1: error message.  v2: throttle time.  v5: partitions, replication and settings.  v7: topic id.
    """

    class CreatableTopicResult(Struct):
        class CreatableTopicConfigs(Struct):
            name: str = ""
            value: str | None = ""
            read_only: bool = False
            config_source: int8 = -1
            is_sensitive: bool = False

        name: str = ""
        topic_id: uuid = field(since=7, default=ZERO_UUID, ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field(since=1, default="", ignorable=True)
        topic_config_error_code: int16 = field(since=5, tag=0, default=0, ignorable=True)
        num_partitions: int32 = field(since=5, default=-1, ignorable=True)
        replication_factor: int16 = field(since=5, default=-1, ignorable=True)
        configs: list[CreatableTopicConfigs] | None = field(since=5, default=[], ignorable=True)

    throttle_time_ms: int32 = field(since=2, default=0, ignorable=True)
    topics: list[CreatableTopicResult] = []


class DeleteTopicsRequest(Request, key=20, versions=(0, 6), flexible=4):
    """Delete topics.  Only the controller can.

    v5: ready for THROTTLING_QUOTA_EXCEEDED.  v6: by name or id (KIP-516).
    """

    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: uuid = ZERO_UUID

    topics: list[DeleteTopicState] = field(since=6, default=[])
    topic_names: list[str] = field(until=5, default=[], ignorable=True)
    timeout_ms: int32 = 0


class DeleteTopicsResponse(Response, key=20, versions=(0, 6), flexible=4):
    """One result for each topic.

    v1: throttle time.  v5: error message.  v6: topic id.
    """

    class DeletableTopicResult(Struct):
        name: str | None = field(nullable_since=6, default="")
        topic_id: uuid = field(since=6, default=ZERO_UUID, ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field(since=5, default=None, ignorable=True)

    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    responses: list[DeletableTopicResult] = []


class CreatePartitionsRequest(Request, key=37, versions=(0, 3), flexible=2):
    """Add partitions to topics (KIP-195).  Only the controller can.

    v3: ready for THROTTLING_QUOTA_EXCEEDED.
    """

    class CreatePartitionsTopic(Struct):
        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int32] = []

        name: str = ""
        # How many there shall be afterwards.
        count: int32 = 0
        # For the new partitions only; null leaves them to the broker.
        assignments: list[CreatePartitionsAssignment] | None = []

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: int32 = 0
    validate_only: bool = False


class CreatePartitionsResponse(Response, key=37, versions=(0, 3), flexible=2):
    """One result for each topic."""

    class CreatePartitionsTopicResult(Struct):
        name: str = ""
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class DeleteRecordsRequest(Request, key=21, versions=(0, 2), flexible=2):
    """Delete records below an offset (KIP-107).  Goes to the partition leaders."""

    class DeleteRecordsTopic(Struct):
        class DeleteRecordsPartition(Struct):
            partition_index: int32 = 0
            # -1: the high watermark.
            offset: int64 = 0

        name: str = ""
        partitions: list[DeleteRecordsPartition] = []

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: int32 = 0


class DeleteRecordsResponse(Response, key=21, versions=(0, 2), flexible=2):
    """The new log start offset of each partition, over all replicas."""

    class DeleteRecordsTopicResult(Struct):
        class DeleteRecordsPartitionResult(Struct):
            partition_index: int32 = 0
            low_watermark: int64 = 0
            error_code: int16 = 0

        name: str = ""
        partitions: list[DeleteRecordsPartitionResult] = []

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
