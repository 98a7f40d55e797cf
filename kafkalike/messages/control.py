"""What controller and brokers say to each other.

Only callers with ClusterAction on the cluster may use these.
"""

from kafkalike.protocol.primitives import int8, int16, int32, int64, uuid
from kafkalike.protocol.struct import Request, Response, Struct, field
from kafkalike.types import ZERO_UUID


class LeaderAndIsrRequest(Request, key=4, versions=(0, 7), flexible=4):
    """From the controller: lead or follow these partitions.

    v1: new replicas are marked.  v2: broker epoch, grouped by topic (KIP-380).  v3: adding and removing
    replicas (KIP-455).  v5: topic ids, and whether this is everything (KIP-516).  v6: leader recovery
    state (KIP-704).  v7: whether a KRaft controller sends (KIP-866).
    """

    class LeaderAndIsrPartitionState(Struct):
        """State of one partition, as the controller decided it."""

        topic_name: str = field(until=1, default="", ignorable=True)
        partition_index: int32 = 0
        controller_epoch: int32 = 0
        leader: int32 = 0
        leader_epoch: int32 = 0
        isr: list[int32] = []
        partition_epoch: int32 = 0
        replicas: list[int32] = []
        adding_replicas: list[int32] = field(since=3, default=[], ignorable=True)
        removing_replicas: list[int32] = field(since=3, default=[], ignorable=True)
        is_new: bool = field(since=1, default=False, ignorable=True)
        # 1: recovering from an unclean election.
        leader_recovery_state: int8 = field(since=6, default=0)

    class LeaderAndIsrTopicState(Struct):
        topic_name: str = ""
        topic_id: uuid = field(since=5, default=ZERO_UUID, ignorable=True)
        partition_states: "list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]" = []

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: int32 = 0
        host_name: str = ""
        port: int32 = 0

    controller_id: int32 = 0
    is_kraft_controller: bool = field(since=7, default=False)
    controller_epoch: int32 = 0
    broker_epoch: int64 = field(since=2, default=-1, ignorable=True)
    # 0: unknown; 1: some partitions; 2: all (migration to KRaft only).
    type: int8 = field(since=5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(until=1, default=[])
    topic_states: list[LeaderAndIsrTopicState] = field(since=2, default=[])
    live_leaders: list[LeaderAndIsrLiveLeader] = []


class LeaderAndIsrResponse(Response, key=4, versions=(0, 7), flexible=4):
    """One result for each partition.

    v5: grouped by topic id.
    """

    class LeaderAndIsrPartitionError(Struct):
        topic_name: str = field(until=4, default="", ignorable=True)
        partition_index: int32 = 0
        error_code: int16 = 0

    class LeaderAndIsrTopicError(Struct):
        topic_id: uuid = ZERO_UUID
        partition_errors: "list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]" = []

    error_code: int16 = 0
    partition_errors: list[LeaderAndIsrPartitionError] = field(until=4, default=[])
    topics: list[LeaderAndIsrTopicError] = field(since=5, default=[])


class StopReplicaRequest(Request, key=5, versions=(0, 4), flexible=2):
    """From the controller: stop, and maybe delete, replicas.

    v1: broker epoch, grouped by topic.  v3: leader epoch of each partition (KIP-570).  v4: whether a
    KRaft controller sends.
    """

    class StopReplicaPartitionV0(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    class StopReplicaTopicV1(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    class StopReplicaTopicState(Struct):
        class StopReplicaPartitionState(Struct):
            partition_index: int32 = 0
            # -2 when the topic is being deleted: overrides any epoch.
            leader_epoch: int32 = -1
            delete_partition: bool = False

        topic_name: str = ""
        partition_states: list[StopReplicaPartitionState] = []

    controller_id: int32 = 0
    is_kraft_controller: bool = field(since=4, default=False)
    controller_epoch: int32 = 0
    broker_epoch: int64 = field(since=1, default=-1, ignorable=True)
    delete_partitions: bool = field(until=2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(until=0, default=[])
    topics: list[StopReplicaTopicV1] = field(since=1, until=2, default=[])
    topic_states: list[StopReplicaTopicState] = field(since=3, default=[])


class StopReplicaResponse(Response, key=5, versions=(0, 4), flexible=2):
    """One result for each partition."""

    class StopReplicaPartitionError(Struct):
        topic_name: str = ""
        partition_index: int32 = 0
        error_code: int16 = 0

    error_code: int16 = 0
    partition_errors: list[StopReplicaPartitionError] = []


class UpdateMetadataRequest(Request, key=6, versions=(0, 8), flexible=6):
    """From the controller: the state of partitions and live brokers, for every broker's cache.

    v1: several endpoints.  v2: racks.  v3: listener names.  v4: offline replicas.  v5: broker epoch,
    grouped by topic (KIP-380).  v7: topic ids (KIP-516).  v8: whether a KRaft controller sends, and
    whether this is everything (KIP-866).
    """

    class UpdateMetadataPartitionState(Struct):
        """State of one partition."""

        topic_name: str = field(until=4, default="", ignorable=True)
        partition_index: int32 = 0
        controller_epoch: int32 = 0
        # -1: none; -2: the topic is being deleted.
        leader: int32 = 0
        leader_epoch: int32 = 0
        isr: list[int32] = []
        zk_version: int32 = 0
        replicas: list[int32] = []
        offline_replicas: list[int32] = field(since=4, default=[], ignorable=True)

    class UpdateMetadataTopicState(Struct):
        topic_name: str = ""
        topic_id: uuid = field(since=7, default=ZERO_UUID, ignorable=True)
        partition_states: "list[UpdateMetadataRequest.UpdateMetadataPartitionState]" = []

    class UpdateMetadataBroker(Struct):
        class UpdateMetadataEndpoint(Struct):
            port: int32 = 0
            host: str = ""
            listener: str = field(since=3, default="", ignorable=True)
            # 0: PLAINTEXT; 1: SSL; 2: SASL_PLAINTEXT; 3: SASL_SSL.
            security_protocol: int16 = 0

        id: int32 = 0
        v0_host: str = field(until=0, default="", ignorable=True)
        v0_port: int32 = field(until=0, default=0, ignorable=True)
        endpoints: list[UpdateMetadataEndpoint] = field(since=1, default=[], ignorable=True)
        rack: str | None = field(since=2, default="", ignorable=True)

    controller_id: int32 = 0
    is_kraft_controller: bool = field(since=8, default=False)
    # 0: unknown; 1: some partitions; 2: all (migration to KRaft only).
    type: int8 = field(since=8, tag=0, default=0)
    controller_epoch: int32 = 0
    broker_epoch: int64 = field(since=5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(until=4, default=[])
    topic_states: list[UpdateMetadataTopicState] = field(since=5, default=[])
    live_brokers: list[UpdateMetadataBroker] = []


class UpdateMetadataResponse(Response, key=6, versions=(0, 8), flexible=6):
    """Accepted, or from a stale controller."""

    error_code: int16 = 0


class ControlledShutdownRequest(Request, key=7, versions=(0, 3), flexible=3):
    """A broker asks the controller to move leaders away before it stops.

    v0: its header has no client id.  v2: broker epoch (KIP-380).
    """

    broker_id: int32 = 0
    broker_epoch: int64 = field(since=2, default=-1, ignorable=True)


class ControlledShutdownResponse(Response, key=7, versions=(0, 3), flexible=3):
    """The partitions that the broker still leads."""

    class RemainingPartition(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    error_code: int16 = 0
    remaining_partitions: list[RemainingPartition] = []


class AlterPartitionRequest(Request, key=56, versions=(0, 3), flexible=0):
    """A leader proposes a new in-sync set to the controller (KIP-497).

    v1: leader recovery state (KIP-704).  v2: topic ids (KIP-841).  v3: in-sync replicas with their
    broker epochs (KIP-903).
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            class BrokerState(Struct):
                broker_id: int32 = 0
                broker_epoch: int64 = -1

            partition_index: int32 = 0
            leader_epoch: int32 = 0
            # The sender fills both: which one travels is decided by the version found to be common.
            new_isr: list[int32] = field(until=2, default=[], ignorable=True)
            new_isr_with_epochs: list[BrokerState] = field(since=3, default=[], ignorable=True)
            leader_recovery_state: int8 = field(since=1, default=0)
            partition_epoch: int32 = 0

        topic_name: str = field(until=1, default="", ignorable=True)
        topic_id: uuid = field(since=2, default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData] = []

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[TopicData] = []


class AlterPartitionResponse(Response, key=56, versions=(0, 3), flexible=0):
    """The state that now holds.

    v1: leader recovery state.  v2: topic ids.
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0
            leader_id: int32 = 0
            leader_epoch: int32 = 0
            isr: list[int32] = []
            leader_recovery_state: int8 = field(since=1, default=0, ignorable=True)
            partition_epoch: int32 = 0

        topic_name: str = field(until=1, default="", ignorable=True)
        topic_id: uuid = field(since=2, default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicData] = []


class EnvelopeRequest(Request, key=58, versions=(0, 0), flexible=0):
    """A client's request wrapped by a broker for a KRaft controller (KIP-590)."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Response, key=58, versions=(0, 0), flexible=0):
    """The wrapped answer."""

    response_data: bytes | None = None
    error_code: int16 = 0
