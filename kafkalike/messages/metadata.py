"""Who is in the cluster and who leads what."""

from kafkalike.protocol.primitives import int8, int16, int32, uuid
from kafkalike.protocol.struct import Request, Response, Struct, field
from kafkalike.types import ZERO_UUID


class MetadataRequest(Request, key=3, versions=(0, 12), flexible=9):
    """Ask for brokers, controller, topics and leaders.

    v1: null asks for all topics, empty for none (v0: empty means all).  v4: whether a missing topic
    may be created.  v8: authorised operations (KIP-430).  v10: topic ids in the answer.  v11: no
    more authorised operations of the cluster (KIP-700).  v12: topics by id (KIP-516).
    """

    class MetadataRequestTopic(Struct):
        topic_id: uuid = field(since=10, default=ZERO_UUID, ignorable=True)
        name: str | None = field(nullable_since=10, default="")

    topics: list[MetadataRequestTopic] | None = field(nullable_since=1, default=[])
    allow_auto_topic_creation: bool = field(since=4, default=True)
    include_cluster_authorized_operations: bool = field(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(since=8, default=False)


class MetadataResponse(Response, key=3, versions=(0, 12), flexible=9):
    """The cluster as this broker sees it.

    v1: racks, controller, internal topics.  v2: cluster id.  v3: throttle time.  v5: offline
    replicas.  v7: leader epochs.  v8: authorised operations.  v10: topic ids.  v11: no more
    authorised operations of the cluster.  v12: name may be null when asked by id.
    """

    class MetadataResponseBroker(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = field(since=1, default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        class MetadataResponsePartition(Struct):
            error_code: int16 = 0
            partition_index: int32 = 0
            leader_id: int32 = 0
            leader_epoch: int32 = field(since=7, default=-1, ignorable=True)
            replica_nodes: list[int32] = []
            isr_nodes: list[int32] = []
            offline_replicas: list[int32] = field(since=5, default=[], ignorable=True)

        error_code: int16 = 0
        name: str | None = field(nullable_since=12, default="")
        topic_id: uuid = field(since=10, default=ZERO_UUID, ignorable=True)
        is_internal: bool = field(since=1, default=False, ignorable=True)
        partitions: list[MetadataResponsePartition] = []
        topic_authorized_operations: int32 = field(since=8, default=-2147483648)

    throttle_time_ms: int32 = field(since=3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = field(since=2, default=None, ignorable=True)
    controller_id: int32 = field(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = []
    # A bit for each operation; the default means "not asked for".
    cluster_authorized_operations: int32 = field(since=8, until=10, default=-2147483648)


class DescribeClusterRequest(Request, key=60, versions=(0, 1), flexible=0):
    """Ask for brokers and controller only (KIP-700).

    v1: whether brokers or controllers are meant (KIP-919).
    """

    include_cluster_authorized_operations: bool = False
    # 1: brokers; 2: controllers.
    endpoint_type: int8 = field(since=1, default=1)


class DescribeClusterResponse(Response, key=60, versions=(0, 1), flexible=0):
    """Brokers, controller, cluster id.

    v1: echoes which kind of server is listed.
    """

    class DescribeClusterBroker(Struct):
        broker_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field(since=1, default=1)
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: int32 = -2147483648
