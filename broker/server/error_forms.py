"""Each API's own way to say that a whole request failed.

Kafka has no common error answer: where a response names items, every item the request asked about is
repeated with the error; where it has an error code of its own, that is set (reference: broker-errors 2,
checked on the original).  Produce with acks=0 has no answer at all: its connection is closed.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from kafkalike.errors import KafkaError, UnknownServerError
from kafkalike.messages.acls import CreateAclsResponse, DeleteAclsResponse
from kafkalike.messages.catalog import ApiKey, response_class
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from kafkalike.messages.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from kafkalike.messages.control import LeaderAndIsrResponse, StopReplicaResponse
from kafkalike.messages.fetch import FetchResponse
from kafkalike.messages.groups import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    JoinGroupResponse,
)
from kafkalike.messages.list_offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.offsets import OffsetCommitResponse, OffsetFetchResponse
from kafkalike.messages.produce import ProduceResponse
from kafkalike.messages.quotas import AlterClientQuotasResponse
from kafkalike.messages.sasl import AlterUserScramCredentialsResponse
from kafkalike.messages.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)
from kafkalike.messages.transactions import (
    AddPartitionsToTxnResponse,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)

Form: TypeAlias = Callable[[Any, int, int, str | None], Any]
"""`(request, version, error_code, message) -> response`, None where there is no answer."""


def error_response(api_key: int, request: Any, version: int, error: BaseException) -> Any:
    """The response that says `error` for all of `request`; None where the API has none.

    Anything but a KafkaError becomes UNKNOWN_SERVER_ERROR, whose message is not shown to clients.
    """
    kafka_error = error if isinstance(error, KafkaError) else UnknownServerError()
    code = kafka_error.code
    message = None if code == UnknownServerError.code else str(kafka_error)
    form = _FORMS.get(api_key)
    if form is not None:
        return form(request, version, code, message)
    response: Any = response_class(api_key)()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = message
    return response


def _partitions(topics: Iterable[Any] | None, name: str, partitions: str) -> Iterable[Any]:
    """`(name, partitions)` of each topic struct, the field names given."""
    for topic in topics or ():
        yield getattr(topic, name), getattr(topic, partitions)


def _produce(request: Any, version: int, code: int, message: str | None) -> Any:
    if request.acks == 0:
        return None
    topic_type = ProduceResponse.TopicProduceResponse
    partition_type = topic_type.PartitionProduceResponse
    return ProduceResponse(
        responses=[
            topic_type(
                name=topic.name,
                partition_responses=[
                    partition_type(
                        index=partition.index,
                        error_code=code,
                        base_offset=-1,
                        log_append_time_ms=-1,
                        log_start_offset=-1,
                        error_message=message,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: Any, version: int, code: int, message: str | None) -> Any:
    response = FetchResponse(error_code=code, session_id=request.session_id)
    topic_type = FetchResponse.FetchableTopicResponse
    if version < 13:  # later versions name topics by id and carry the error at the top only
        response.responses = [
            topic_type(
                topic=topic.topic,
                partitions=[
                    topic_type.PartitionData(
                        partition_index=partition.partition,
                        error_code=code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def _list_offsets(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
    return ListOffsetsResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: Any, version: int, code: int, message: str | None) -> Any:
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ]
    )


def _leader_and_isr(request: Any, version: int, code: int, message: str | None) -> Any:
    response = LeaderAndIsrResponse(error_code=code)
    error_type = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    topic_type = LeaderAndIsrResponse.LeaderAndIsrTopicError
    if version < 2:
        response.partition_errors = [
            error_type(
                topic_name=state.topic_name, partition_index=state.partition_index, error_code=code
            )
            for state in request.ungrouped_partition_states
        ]
        return response
    for topic in request.topic_states:
        errors = [
            error_type(
                topic_name=topic.topic_name if version < 5 else "",
                partition_index=state.partition_index,
                error_code=code,
            )
            for state in topic.partition_states
        ]
        if version < 5:
            response.partition_errors.extend(errors)
        else:
            response.topics.append(topic_type(topic_id=topic.topic_id, partition_errors=errors))
    return response


def _stop_replica(request: Any, version: int, code: int, message: str | None) -> Any:
    named: list[tuple[str, int]] = []
    if version < 1:
        named = [(p.topic_name, p.partition_index) for p in request.ungrouped_partitions]
    elif version < 3:
        named = [(t.name, index) for t in request.topics for index in t.partition_indexes]
    else:
        named = [
            (t.topic_name, p.partition_index)
            for t in request.topic_states
            for p in t.partition_states
        ]
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=name, partition_index=index, error_code=code
            )
            for name, index in named
        ],
    )


def _offset_commit(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            topic_type(
                name=name,
                partitions=[
                    topic_type.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in partitions
                ],
            )
            for name, partitions in _partitions(request.topics, "name", "partitions")
        ]
    )


def _offset_fetch(request: Any, version: int, code: int, message: str | None) -> Any:
    if version >= 8:
        group_type = OffsetFetchResponse.OffsetFetchResponseGroup
        return OffsetFetchResponse(
            groups=[
                group_type(group_id=group.group_id, error_code=code) for group in request.groups
            ]
        )
    response = OffsetFetchResponse(error_code=code if version >= 2 else 0)
    if version < 2:
        topic_type = OffsetFetchResponse.OffsetFetchResponseTopic
        response.topics = [
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return response


def _find_coordinator(request: Any, version: int, code: int, message: str | None) -> Any:
    if version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, error_code=code, error_message=message, node_id=-1, host="", port=-1
            )
            for key in request.coordinator_keys
        ]
    )


def _join_group(request: Any, version: int, code: int, message: str | None) -> Any:
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name=None if version >= 7 else ""
    )


def _describe_groups(request: Any, version: int, code: int, message: str | None) -> Any:
    group_type = DescribeGroupsResponse.DescribedGroup
    return DescribeGroupsResponse(
        groups=[group_type(group_id=group, error_code=code) for group in request.groups]
    )


def _consumer_group_describe(request: Any, version: int, code: int, message: str | None) -> Any:
    group_type = ConsumerGroupDescribeResponse.DescribedGroup
    return ConsumerGroupDescribeResponse(
        groups=[
            group_type(group_id=group, error_code=code, error_message=message)
            for group in request.group_ids
        ]
    )


def _delete_groups(request: Any, version: int, code: int, message: str | None) -> Any:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=code)
            for group in request.groups_names
        ]
    )


def _create_topics(request: Any, version: int, code: int, message: str | None) -> Any:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, version: int, code: int, message: str | None) -> Any:
    result = DeleteTopicsResponse.DeletableTopicResult
    if version < 6:
        results = [result(name=name, error_code=code) for name in request.topic_names]
    else:
        results = [
            result(name=topic.name, topic_id=topic.topic_id, error_code=code)
            for topic in request.topics
        ]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, version: int, code: int, message: str | None) -> Any:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
            for topic in request.topics
        ]
    )


def _delete_records(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = DeleteRecordsResponse.DeleteRecordsTopicResult
    return DeleteRecordsResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _init_producer_id(request: Any, version: int, code: int, message: str | None) -> Any:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _offset_for_leader_epoch(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        topics=[
            topic_type(
                topic=topic.topic,
                partitions=[
                    topic_type.EpochEndOffset(partition=partition.partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: Any, version: int, code: int, message: str | None) -> Any:
    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    topic_type = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    partition_type = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            topic_type(
                name=topic.name,
                results_by_partition=[
                    partition_type(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _write_txn_markers(request: Any, version: int, code: int, message: str | None) -> Any:
    marker_type = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_type = marker_type.WritableTxnMarkerTopicResult
    return WriteTxnMarkersResponse(
        markers=[
            marker_type(
                producer_id=marker.producer_id,
                topics=[
                    topic_type(
                        name=topic.name,
                        partitions=[
                            topic_type.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _txn_offset_commit(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return TxnOffsetCommitResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_producers(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = DescribeProducersResponse.TopicResponse
    return DescribeProducersResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.PartitionResponse(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(request: Any, version: int, code: int, message: str | None) -> Any:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(
                transactional_id=transactional_id, error_code=code
            )
            for transactional_id in request.transactional_ids
        ]
    )


def _create_acls(request: Any, version: int, code: int, message: str | None) -> Any:
    result = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(
        results=[result(error_code=code, error_message=message) for _ in request.creations]
    )


def _delete_acls(request: Any, version: int, code: int, message: str | None) -> Any:
    result = DeleteAclsResponse.DeleteAclsFilterResult
    return DeleteAclsResponse(
        filter_results=[result(error_code=code, error_message=message) for _ in request.filters]
    )


def _describe_configs(request: Any, version: int, code: int, message: str | None) -> Any:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(response_type: Any, result: Any) -> Form:
    def form(request: Any, version: int, code: int, message: str | None) -> Any:
        return response_type(
            responses=[
                result(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )

    return form


def _alter_replica_log_dirs(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    return AlterReplicaLogDirsResponse(
        results=[
            topic_type(
                topic_name=topic.name,
                partitions=[
                    topic_type.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=code if version >= 1 else 0,
        replica_election_results=[
            topic_type(
                topic=topic.topic,
                partition_result=[
                    topic_type.PartitionResult(
                        partition_id=index, error_code=code, error_message=message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_reassignments(request: Any, version: int, code: int, message: str | None) -> Any:
    topic_type = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OngoingPartitionReassignment(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _alter_client_quotas(request: Any, version: int, code: int, message: str | None) -> Any:
    entry_type = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        entries=[
            entry_type(
                error_code=code,
                error_message=message,
                entity=[
                    entry_type.EntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_scram(request: Any, version: int, code: int, message: str | None) -> Any:
    users = dict.fromkeys(item.name for item in [*request.deletions, *request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=message
            )
            for user in users
        ]
    )


_FORMS: Final[dict[int, Form]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs(
        AlterConfigsResponse, AlterConfigsResponse.AlterConfigsResourceResponse
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs(
        IncrementalAlterConfigsResponse,
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
}
