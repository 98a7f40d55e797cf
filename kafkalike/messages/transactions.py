"""Idempotent and transactional producers (KIP-98, KIP-360, KIP-447, KIP-664, KIP-890)."""

from kafkalike.protocol.primitives import int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class InitProducerIdRequest(Request, key=22, versions=(0, 5), flexible=2):
    """Get a producer id, and fence earlier users of the transactional id.

    v3: current id and epoch of a producer that wants to go on (KIP-360).  v4: ready for
    PRODUCER_FENCED.  v5: ready for TRANSACTION_ABORTABLE.
    """

    # Null for a producer that is idempotent only.
    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(since=3, default=-1)
    producer_epoch: int16 = field(since=3, default=-1)


class InitProducerIdResponse(Response, key=22, versions=(0, 5), flexible=2):
    """Producer id and epoch to use from now on."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0


class AddPartitionsToTxnRequest(Request, key=24, versions=(0, 5), flexible=3):
    """Make partitions part of a transaction.

    Up to v3 from producers, one transaction.  v4: from brokers, for many transactions, also only to
    verify (KIP-890).  v5: ready for TRANSACTION_ABORTABLE.
    """

    class AddPartitionsToTxnTopic(Struct):
        name: str = ""
        partitions: list[int32] = []

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        verify_only: bool = False
        topics: "list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]" = []

    transactions: list[AddPartitionsToTxnTransaction] = field(since=4, default=[])
    v3_and_below_transactional_id: str = field(until=3, default="")
    v3_and_below_producer_id: int64 = field(until=3, default=0)
    v3_and_below_producer_epoch: int16 = field(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3, default=[])


class AddPartitionsToTxnResponse(Response, key=24, versions=(0, 5), flexible=3):
    """One result for each partition.

    v4: grouped by transaction, with an error for the whole.
    """

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int32 = 0
        partition_error_code: int16 = 0

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = ""
        results_by_partition: "list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]" = []

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = ""
        topic_results: "list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]" = []

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(until=3, default=[])


class AddOffsetsToTxnRequest(Request, key=25, versions=(0, 4), flexible=3):
    """Make a group's offsets part of a transaction.

    v2: ready for PRODUCER_FENCED.  v4: ready for TRANSACTION_ABORTABLE.
    """

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Response, key=25, versions=(0, 4), flexible=3):
    """Whether the group's offsets partition has joined the transaction."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class EndTxnRequest(Request, key=26, versions=(0, 4), flexible=3):
    """Commit or abort.

    v2: ready for PRODUCER_FENCED.  v4: ready for TRANSACTION_ABORTABLE.
    """

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    # False: abort.
    committed: bool = False


class EndTxnResponse(Response, key=26, versions=(0, 4), flexible=3):
    """Sent when the outcome is decided, before the markers are written."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class TxnOffsetCommitRequest(Request, key=28, versions=(0, 4), flexible=3):
    """Commit consumed offsets as part of a transaction.

    v2: leader epoch.  v3: member, generation and instance id (KIP-447).  v4: ready for
    TRANSACTION_ABORTABLE.
    """

    class TxnOffsetCommitRequestTopic(Struct):
        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int32 = 0
            committed_offset: int64 = 0
            committed_leader_epoch: int32 = field(since=2, default=-1, ignorable=True)
            committed_metadata: str | None = ""

        name: str = ""
        partitions: list[TxnOffsetCommitRequestPartition] = []

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: int32 = field(since=3, default=-1)
    member_id: str = field(since=3, default="")
    group_instance_id: str | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponse(Response, key=28, versions=(0, 4), flexible=3):
    """One result for each partition."""

    class TxnOffsetCommitResponseTopic(Struct):
        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int32 = 0
            error_code: int16 = 0

        name: str = ""
        partitions: list[TxnOffsetCommitResponsePartition] = []

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class WriteTxnMarkersRequest(Request, key=27, versions=(0, 1), flexible=1):
    """From a transaction coordinator to partition leaders: write the outcome into the log."""

    class WritableTxnMarker(Struct):
        class WritableTxnMarkerTopic(Struct):
            name: str = ""
            partition_indexes: list[int32] = []

        producer_id: int64 = 0
        producer_epoch: int16 = 0
        # True: commit; false: abort.
        transaction_result: bool = False
        topics: list[WritableTxnMarkerTopic] = []
        coordinator_epoch: int32 = 0

    markers: list[WritableTxnMarker] = []


class WriteTxnMarkersResponse(Response, key=27, versions=(0, 1), flexible=1):
    """One result for each partition of each marker."""

    class WritableTxnMarkerResult(Struct):
        class WritableTxnMarkerTopicResult(Struct):
            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int32 = 0
                error_code: int16 = 0

            name: str = ""
            partitions: list[WritableTxnMarkerPartitionResult] = []

        producer_id: int64 = 0
        topics: list[WritableTxnMarkerTopicResult] = []

    markers: list[WritableTxnMarkerResult] = []


class DescribeTransactionsRequest(Request, key=65, versions=(0, 0), flexible=0):
    """Ask for the state of transactions (KIP-664)."""

    transactional_ids: list[str] = []


class DescribeTransactionsResponse(Response, key=65, versions=(0, 0), flexible=0):
    """State, producer and partitions of transactions."""

    class TransactionState(Struct):
        class TopicData(Struct):
            topic: str = ""
            partitions: list[int32] = []

        error_code: int16 = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int32 = 0
        transaction_start_time_ms: int64 = 0
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        topics: list[TopicData] = []

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = []


class ListTransactionsRequest(Request, key=66, versions=(0, 1), flexible=0):
    """Ask for the transactions this broker coordinates (KIP-664).

    v1: only those running longer than a duration (KIP-994).
    """

    state_filters: list[str] = []
    producer_id_filters: list[int64] = []
    duration_filter: int64 = field(since=1, default=-1)


class ListTransactionsResponse(Response, key=66, versions=(0, 1), flexible=0):
    """Transactions that match all filters."""

    class TransactionState(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        transaction_state: str = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


class DescribeProducersRequest(Request, key=61, versions=(0, 0), flexible=0):
    """Ask which producers have state in partitions (KIP-664)."""

    class TopicRequest(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    topics: list[TopicRequest] = []


class DescribeProducersResponse(Response, key=61, versions=(0, 0), flexible=0):
    """Producer ids, epochs, sequences and open transactions of partitions."""

    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class ProducerState(Struct):
                producer_id: int64 = 0
                producer_epoch: int32 = 0
                last_sequence: int32 = -1
                last_timestamp: int64 = -1
                coordinator_epoch: int32 = 0
                current_txn_start_offset: int64 = -1

            partition_index: int32 = 0
            error_code: int16 = 0
            error_message: str | None = None
            active_producers: list[ProducerState] = []

        name: str = ""
        partitions: list[PartitionResponse] = []

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = []


class AllocateProducerIdsRequest(Request, key=67, versions=(0, 0), flexible=0):
    """From a broker to the controller: a new block of producer ids."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions=(0, 0), flexible=0):
    """The block: first id and how many."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0
