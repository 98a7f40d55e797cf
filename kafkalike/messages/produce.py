"""Appending record batches."""

from kafkalike.protocol.primitives import Records, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ProduceRequest(Request, key=0, versions=(0, 11), flexible=9):
    """Append record batches to partitions; with `acks` 0 there is no answer.

    v2: message format 1 (timestamps).  v3: format 2 and the transactional id (KIP-98).  v7: zstd
    (KIP-110).  v10: ready for leader hints in the answer (KIP-951).  v11: ready for
    TRANSACTION_ABORTABLE (KIP-890).
    """

    class TopicProduceData(Struct):
        class PartitionProduceData(Struct):
            index: int32 = 0
            records: Records | None = None

        name: str = ""
        partition_data: list[PartitionProduceData] = []

    transactional_id: str | None = field(since=3, default=None)
    # 0: no answer; 1: when the leader has it; -1: when all in-sync replicas have it.
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = []


class ProduceResponse(Response, key=0, versions=(0, 11), flexible=9):
    """Where each batch went, or why not.

    v1: throttle time.  v2: append time.  v5: log start offset.  v8: which records were bad
    (KIP-467).  v10: current leader and its address, as tagged fields (KIP-951).
    """

    class TopicProduceResponse(Struct):
        class PartitionProduceResponse(Struct):
            class BatchIndexAndErrorMessage(Struct):
                batch_index: int32 = 0
                batch_index_error_message: str | None = None

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            index: int32 = 0
            error_code: int16 = 0
            base_offset: int64 = 0
            # -1 when records keep the times of their producer.
            log_append_time_ms: int64 = field(since=2, default=-1, ignorable=True)
            log_start_offset: int64 = field(since=5, default=-1, ignorable=True)
            record_errors: list[BatchIndexAndErrorMessage] = field(
                since=8, default=[], ignorable=True
            )
            error_message: str | None = field(since=8, default=None, ignorable=True)
            current_leader: LeaderIdAndEpoch = field(
                since=10, tag=0, default_factory=LeaderIdAndEpoch
            )

        name: str = ""
        partition_responses: list[PartitionProduceResponse] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(since=10, tag=0, default=[])
