"""Answers that say one error for a whole request, in the shape each API has for it.

What a broker sends when a request fails before its parts could be looked at: no authorisation on
the cluster, or an unexpected exception (reference: broker-errors 2).  The forms are Kafka's own,
compared with it in tests: some carry the code once, some on every item that was asked for, and some
can only be empty.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kafkalike.errors import KafkaError, UnknownServerError, UnsupportedVersion, error_name
from kafkalike.protocol.struct import Request, Response

from . import (
    acls,
    api_versions,
    cluster,
    configs,
    control,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    quotas,
    sasl,
    topics,
    transactions,
)


class Cause(NamedTuple):
    """The error to send, and its text where the API has room for one."""

    code: int
    message: str | None

    @property
    def text(self) -> str:
        """A text for the few APIs that never leave it out."""
        return self.message or error_name(self.code)


def error_response(
    request: Request, version: int, error: KafkaError | int, message: str | None = None
) -> Response | None:
    """The answer that gives `error` to everything `request` asked for.

    None where there is no answer: Produce with acks 0.  `message` goes where the response has a
    text; it defaults to the text of a KafkaError, and is never sent with UNKNOWN_SERVER_ERROR, lest
    it tell what is nobody's business.
    """
    code = error if isinstance(error, int) else error.code
    if message is None and isinstance(error, KafkaError):
        message = error.message
    cause = Cause(code, None if code == UnknownServerError.code else message)
    return FORMS[type(request)](request, version, cause)


def _produce(
    request: produce.ProduceRequest, version: int, cause: Cause
) -> produce.ProduceResponse | None:
    if request.acks == 0:
        return None
    topic_type = produce.ProduceResponse.TopicProduceResponse
    return produce.ProduceResponse(
        responses=[
            topic_type(
                name=topic.name,
                partition_responses=[
                    topic_type.PartitionProduceResponse(
                        index=partition.index,
                        error_code=cause.code,
                        error_message=cause.message,
                        base_offset=-1,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


def _fetch(request: fetch.FetchRequest, version: int, cause: Cause) -> fetch.FetchResponse:
    topic_type = fetch.FetchResponse.FetchableTopicResponse
    # From v13 on clients are known to look at the error of the whole.
    return fetch.FetchResponse(
        error_code=cause.code,
        session_id=request.session_id,
        responses=[]
        if version >= 13
        else [
            topic_type(
                topic=topic.topic,
                partitions=[
                    topic_type.PartitionData(
                        partition_index=partition.partition,
                        error_code=cause.code,
                        high_watermark=-1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_offsets(
    request: list_offsets.ListOffsetsRequest, version: int, cause: Cause
) -> list_offsets.ListOffsetsResponse:
    topic_type = list_offsets.ListOffsetsResponse.ListOffsetsTopicResponse
    return list_offsets.ListOffsetsResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=cause.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(
    request: list_offsets.OffsetForLeaderEpochRequest, version: int, cause: Cause
) -> list_offsets.OffsetForLeaderEpochResponse:
    topic_type = list_offsets.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return list_offsets.OffsetForLeaderEpochResponse(
        topics=[
            topic_type(
                topic=topic.topic,
                partitions=[
                    topic_type.EpochEndOffset(partition=partition.partition, error_code=cause.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(
    request: metadata.MetadataRequest, version: int, cause: Cause
) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponse.MetadataResponseTopic(
                name=topic.name or "", topic_id=topic.topic_id, error_code=cause.code
            )
            for topic in request.topics or ()
        ]
    )


def _describe_cluster(
    request: metadata.DescribeClusterRequest, version: int, cause: Cause
) -> metadata.DescribeClusterResponse:
    return metadata.DescribeClusterResponse(error_code=cause.code, error_message=cause.message)


def _find_coordinator(
    request: groups.FindCoordinatorRequest, version: int, cause: Cause
) -> groups.FindCoordinatorResponse:
    if version < 4:
        return groups.FindCoordinatorResponse(
            error_code=cause.code, error_message=cause.text, node_id=-1, port=-1
        )
    return groups.FindCoordinatorResponse(
        coordinators=[
            groups.FindCoordinatorResponse.Coordinator(
                key=key,
                error_code=cause.code,
                error_message=cause.text,
                node_id=-1,
                port=-1,
            )
            for key in request.coordinator_keys
        ]
    )


def _join_group(
    request: groups.JoinGroupRequest, version: int, cause: Cause
) -> groups.JoinGroupResponse:
    return groups.JoinGroupResponse(
        error_code=cause.code, protocol_name=None if version >= 7 else ""
    )


def _sync_group(
    request: groups.SyncGroupRequest, version: int, cause: Cause
) -> groups.SyncGroupResponse:
    return groups.SyncGroupResponse(error_code=cause.code)


def _heartbeat(
    request: groups.HeartbeatRequest, version: int, cause: Cause
) -> groups.HeartbeatResponse:
    return groups.HeartbeatResponse(error_code=cause.code)


def _leave_group(
    request: groups.LeaveGroupRequest, version: int, cause: Cause
) -> groups.LeaveGroupResponse:
    return groups.LeaveGroupResponse(error_code=cause.code)


def _describe_groups(
    request: groups.DescribeGroupsRequest, version: int, cause: Cause
) -> groups.DescribeGroupsResponse:
    return groups.DescribeGroupsResponse(
        groups=[
            groups.DescribeGroupsResponse.DescribedGroup(group_id=group, error_code=cause.code)
            for group in request.groups
        ]
    )


def _list_groups(
    request: groups.ListGroupsRequest, version: int, cause: Cause
) -> groups.ListGroupsResponse:
    return groups.ListGroupsResponse(error_code=cause.code)


def _delete_groups(
    request: groups.DeleteGroupsRequest, version: int, cause: Cause
) -> groups.DeleteGroupsResponse:
    return groups.DeleteGroupsResponse(
        results=[
            groups.DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=cause.code)
            for group in request.groups_names
        ]
    )


def _consumer_group_heartbeat(
    request: groups.ConsumerGroupHeartbeatRequest, version: int, cause: Cause
) -> groups.ConsumerGroupHeartbeatResponse:
    return groups.ConsumerGroupHeartbeatResponse(error_code=cause.code)


def _consumer_group_describe(
    request: groups.ConsumerGroupDescribeRequest, version: int, cause: Cause
) -> groups.ConsumerGroupDescribeResponse:
    return groups.ConsumerGroupDescribeResponse(
        groups=[
            groups.ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group, error_code=cause.code
            )
            for group in request.group_ids
        ]
    )


def _offset_commit(
    request: offsets.OffsetCommitRequest, version: int, cause: Cause
) -> offsets.OffsetCommitResponse:
    topic_type = offsets.OffsetCommitResponse.OffsetCommitResponseTopic
    return offsets.OffsetCommitResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=cause.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(
    request: offsets.OffsetFetchRequest, version: int, cause: Cause
) -> offsets.OffsetFetchResponse:
    response = offsets.OffsetFetchResponse
    if version >= 8:
        return response(
            groups=[
                response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=cause.code)
                for group in request.groups
            ]
        )
    if version >= 2:
        return response(error_code=cause.code)
    topic_type = response.OffsetFetchResponseTopic
    return response(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=cause.code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
            if topic.partition_indexes
        ]
    )


def _offset_delete(
    request: offsets.OffsetDeleteRequest, version: int, cause: Cause
) -> offsets.OffsetDeleteResponse:
    return offsets.OffsetDeleteResponse(error_code=cause.code)


def _init_producer_id(
    request: transactions.InitProducerIdRequest, version: int, cause: Cause
) -> transactions.InitProducerIdResponse:
    return transactions.InitProducerIdResponse(error_code=cause.code, producer_epoch=-1)


def _add_partitions_to_txn(
    request: transactions.AddPartitionsToTxnRequest, version: int, cause: Cause
) -> transactions.AddPartitionsToTxnResponse:
    response = transactions.AddPartitionsToTxnResponse
    if version >= 4:
        return response(error_code=cause.code)
    return response(
        results_by_topic_v3_and_below=[
            response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    response.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=cause.code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _add_offsets_to_txn(
    request: transactions.AddOffsetsToTxnRequest, version: int, cause: Cause
) -> transactions.AddOffsetsToTxnResponse:
    return transactions.AddOffsetsToTxnResponse(error_code=cause.code)


def _end_txn(
    request: transactions.EndTxnRequest, version: int, cause: Cause
) -> transactions.EndTxnResponse:
    return transactions.EndTxnResponse(error_code=cause.code)


def _txn_offset_commit(
    request: transactions.TxnOffsetCommitRequest, version: int, cause: Cause
) -> transactions.TxnOffsetCommitResponse:
    topic_type = transactions.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return transactions.TxnOffsetCommitResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=cause.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _write_txn_markers(
    request: transactions.WriteTxnMarkersRequest, version: int, cause: Cause
) -> transactions.WriteTxnMarkersResponse:
    marker_type = transactions.WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_type = marker_type.WritableTxnMarkerTopicResult
    return transactions.WriteTxnMarkersResponse(
        markers=[
            marker_type(
                producer_id=marker.producer_id,
                topics=[
                    topic_type(
                        name=topic.name,
                        partitions=[
                            topic_type.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=cause.code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                    if topic.partition_indexes
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_transactions(
    request: transactions.DescribeTransactionsRequest, version: int, cause: Cause
) -> transactions.DescribeTransactionsResponse:
    return transactions.DescribeTransactionsResponse(
        transaction_states=[
            transactions.DescribeTransactionsResponse.TransactionState(
                transactional_id=transactional_id, error_code=cause.code
            )
            for transactional_id in request.transactional_ids
        ]
    )


def _list_transactions(
    request: transactions.ListTransactionsRequest, version: int, cause: Cause
) -> transactions.ListTransactionsResponse:
    return transactions.ListTransactionsResponse(error_code=cause.code)


def _describe_producers(
    request: transactions.DescribeProducersRequest, version: int, cause: Cause
) -> transactions.DescribeProducersResponse:
    topic_type = transactions.DescribeProducersResponse.TopicResponse
    return transactions.DescribeProducersResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.PartitionResponse(partition_index=index, error_code=cause.code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _allocate_producer_ids(
    request: transactions.AllocateProducerIdsRequest, version: int, cause: Cause
) -> transactions.AllocateProducerIdsResponse:
    return transactions.AllocateProducerIdsResponse(error_code=cause.code)


def _create_topics(
    request: topics.CreateTopicsRequest, version: int, cause: Cause
) -> topics.CreateTopicsResponse:
    return topics.CreateTopicsResponse(
        topics=[
            topics.CreateTopicsResponse.CreatableTopicResult(
                name=topic.name, error_code=cause.code, error_message=cause.message
            )
            for topic in request.topics
        ]
    )


def _delete_topics(
    request: topics.DeleteTopicsRequest, version: int, cause: Cause
) -> topics.DeleteTopicsResponse:
    result = topics.DeleteTopicsResponse.DeletableTopicResult
    if version >= 6:
        return topics.DeleteTopicsResponse(
            responses=[
                result(name=topic.name, topic_id=topic.topic_id, error_code=cause.code)
                for topic in request.topics
            ]
        )
    return topics.DeleteTopicsResponse(
        responses=[result(name=name, error_code=cause.code) for name in request.topic_names]
    )


def _create_partitions(
    request: topics.CreatePartitionsRequest, version: int, cause: Cause
) -> topics.CreatePartitionsResponse:
    return topics.CreatePartitionsResponse(
        results=[
            topics.CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=cause.code, error_message=cause.message
            )
            for topic in request.topics
        ]
    )


def _delete_records(
    request: topics.DeleteRecordsRequest, version: int, cause: Cause
) -> topics.DeleteRecordsResponse:
    topic_type = topics.DeleteRecordsResponse.DeleteRecordsTopicResult
    return topics.DeleteRecordsResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=cause.code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(
    request: configs.DescribeConfigsRequest, version: int, cause: Cause
) -> configs.DescribeConfigsResponse:
    return configs.DescribeConfigsResponse(
        results=[
            configs.DescribeConfigsResponse.DescribeConfigsResult(
                error_code=cause.code,
                error_message=cause.text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(
    request: configs.AlterConfigsRequest, version: int, cause: Cause
) -> configs.AlterConfigsResponse:
    return configs.AlterConfigsResponse(
        responses=[
            configs.AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=cause.code,
                error_message=cause.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: configs.IncrementalAlterConfigsRequest, version: int, cause: Cause
) -> configs.IncrementalAlterConfigsResponse:
    return configs.IncrementalAlterConfigsResponse(
        responses=[
            configs.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=cause.code,
                error_message=cause.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe_acls(
    request: acls.DescribeAclsRequest, version: int, cause: Cause
) -> acls.DescribeAclsResponse:
    return acls.DescribeAclsResponse(error_code=cause.code, error_message=cause.message)


def _create_acls(
    request: acls.CreateAclsRequest, version: int, cause: Cause
) -> acls.CreateAclsResponse:
    return acls.CreateAclsResponse(
        results=[
            acls.CreateAclsResponse.AclCreationResult(
                error_code=cause.code, error_message=cause.message
            )
            for _ in request.creations
        ]
    )


def _delete_acls(
    request: acls.DeleteAclsRequest, version: int, cause: Cause
) -> acls.DeleteAclsResponse:
    return acls.DeleteAclsResponse(
        filter_results=[
            acls.DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=cause.code, error_message=cause.message
            )
            for _ in request.filters
        ]
    )


def _create_delegation_token(
    request: acls.CreateDelegationTokenRequest, version: int, cause: Cause
) -> acls.CreateDelegationTokenResponse:
    return acls.CreateDelegationTokenResponse(
        error_code=cause.code,
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User" if version >= 3 else "",
        token_requester_principal_name="ANONYMOUS" if version >= 3 else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def _renew_delegation_token(
    request: acls.RenewDelegationTokenRequest, version: int, cause: Cause
) -> acls.RenewDelegationTokenResponse:
    return acls.RenewDelegationTokenResponse(error_code=cause.code)


def _expire_delegation_token(
    request: acls.ExpireDelegationTokenRequest, version: int, cause: Cause
) -> acls.ExpireDelegationTokenResponse:
    return acls.ExpireDelegationTokenResponse(error_code=cause.code)


def _describe_delegation_token(
    request: acls.DescribeDelegationTokenRequest, version: int, cause: Cause
) -> acls.DescribeDelegationTokenResponse:
    return acls.DescribeDelegationTokenResponse(error_code=cause.code)


def _sasl_handshake(
    request: sasl.SaslHandshakeRequest, version: int, cause: Cause
) -> sasl.SaslHandshakeResponse:
    return sasl.SaslHandshakeResponse(error_code=cause.code)


def _sasl_authenticate(
    request: sasl.SaslAuthenticateRequest, version: int, cause: Cause
) -> sasl.SaslAuthenticateResponse:
    return sasl.SaslAuthenticateResponse(error_code=cause.code, error_message=cause.message)


def _describe_user_scram_credentials(
    request: sasl.DescribeUserScramCredentialsRequest, version: int, cause: Cause
) -> sasl.DescribeUserScramCredentialsResponse:
    response = sasl.DescribeUserScramCredentialsResponse
    return response(
        error_code=cause.code,
        error_message=cause.message,
        results=[
            response.DescribeUserScramCredentialsResult(
                error_code=cause.code, error_message=cause.message
            )
            for _ in request.users or ()
        ],
    )


def _alter_user_scram_credentials(
    request: sasl.AlterUserScramCredentialsRequest, version: int, cause: Cause
) -> sasl.AlterUserScramCredentialsResponse:
    users: Iterable[str] = (
        *(deletion.name for deletion in request.deletions),
        *(upsertion.name for upsertion in request.upsertions),
    )
    return sasl.AlterUserScramCredentialsResponse(
        results=[
            sasl.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=cause.code, error_message=cause.message
            )
            for user in sorted(set(users))
        ]
    )


def _elect_leaders(
    request: cluster.ElectLeadersRequest, version: int, cause: Cause
) -> cluster.ElectLeadersResponse:
    result = cluster.ElectLeadersResponse.ReplicaElectionResult
    return cluster.ElectLeadersResponse(
        error_code=cause.code if version >= 1 else 0,
        replica_election_results=[
            result(
                topic=topic.topic,
                partition_result=[
                    result.PartitionResult(
                        partition_id=partition,
                        error_code=cause.code,
                        error_message=cause.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_partition_reassignments(
    request: cluster.AlterPartitionReassignmentsRequest, version: int, cause: Cause
) -> cluster.AlterPartitionReassignmentsResponse:
    topic_type = cluster.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    return cluster.AlterPartitionReassignmentsResponse(
        error_code=cause.code,
        error_message=cause.message,
        responses=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=cause.code,
                        error_message=cause.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_partition_reassignments(
    request: cluster.ListPartitionReassignmentsRequest, version: int, cause: Cause
) -> cluster.ListPartitionReassignmentsResponse:
    topic_type = cluster.ListPartitionReassignmentsResponse.OngoingTopicReassignment
    return cluster.ListPartitionReassignmentsResponse(
        error_code=cause.code,
        error_message=cause.message,
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


def _alter_replica_log_dirs(
    request: cluster.AlterReplicaLogDirsRequest, version: int, cause: Cause
) -> cluster.AlterReplicaLogDirsResponse:
    topic_type = cluster.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    return cluster.AlterReplicaLogDirsResponse(
        results=[
            topic_type(
                topic_name=topic.name,
                partitions=[
                    topic_type.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=cause.code
                    )
                    for index in topic.partitions
                ],
            )
            for log_dir in request.dirs
            for topic in log_dir.topics
        ]
    )


def _describe_log_dirs(
    request: cluster.DescribeLogDirsRequest, version: int, cause: Cause
) -> cluster.DescribeLogDirsResponse:
    return cluster.DescribeLogDirsResponse(error_code=cause.code)


def _update_features(
    request: cluster.UpdateFeaturesRequest, version: int, cause: Cause
) -> cluster.UpdateFeaturesResponse:
    return cluster.UpdateFeaturesResponse(error_code=cause.code, error_message=cause.message)


def _describe_client_quotas(
    request: quotas.DescribeClientQuotasRequest, version: int, cause: Cause
) -> quotas.DescribeClientQuotasResponse:
    return quotas.DescribeClientQuotasResponse(
        error_code=cause.code, error_message=cause.message, entries=None
    )


def _alter_client_quotas(
    request: quotas.AlterClientQuotasRequest, version: int, cause: Cause
) -> quotas.AlterClientQuotasResponse:
    entry_type = quotas.AlterClientQuotasResponse.EntryData
    return quotas.AlterClientQuotasResponse(
        entries=[
            entry_type(
                error_code=cause.code,
                error_message=cause.text,
                entity=[
                    entry_type.EntityData(
                        entity_type=entity.entity_type, entity_name=entity.entity_name
                    )
                    for entity in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _api_versions(
    request: api_versions.ApiVersionsRequest, version: int, cause: Cause
) -> api_versions.ApiVersionsResponse:
    # A client that asked in a version unknown here learns which ones it may ask in.
    own = api_versions.ApiVersionsResponse.ApiVersion(
        api_key=request.api_key, min_version=request.min_version, max_version=request.max_version
    )
    unknown = cause.code == UnsupportedVersion.code
    return api_versions.ApiVersionsResponse(
        error_code=cause.code, api_keys=[own] if unknown else []
    )


def _leader_and_isr(
    request: control.LeaderAndIsrRequest, version: int, cause: Cause
) -> control.LeaderAndIsrResponse:
    response = control.LeaderAndIsrResponse
    if version >= 5:
        return response(
            error_code=cause.code,
            topics=[
                response.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        response.LeaderAndIsrPartitionError(
                            partition_index=partition.partition_index, error_code=cause.code
                        )
                        for partition in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ],
        )
    named = [
        *((state.topic_name, state) for state in request.ungrouped_partition_states),
        *(
            (topic.topic_name, state)
            for topic in request.topic_states
            for state in topic.partition_states
        ),
    ]
    return response(
        error_code=cause.code,
        partition_errors=[
            response.LeaderAndIsrPartitionError(
                topic_name=name, partition_index=state.partition_index, error_code=cause.code
            )
            for name, state in named
        ],
    )


def _stop_replica(
    request: control.StopReplicaRequest, version: int, cause: Cause
) -> control.StopReplicaResponse:
    named = [
        *((one.topic_name, one.partition_index) for one in request.ungrouped_partitions),
        *((topic.name, index) for topic in request.topics for index in topic.partition_indexes),
        *(
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        ),
    ]
    return control.StopReplicaResponse(
        error_code=cause.code,
        partition_errors=[
            control.StopReplicaResponse.StopReplicaPartitionError(
                topic_name=name, partition_index=index, error_code=cause.code
            )
            for name, index in named
        ],
    )


def _update_metadata(
    request: control.UpdateMetadataRequest, version: int, cause: Cause
) -> control.UpdateMetadataResponse:
    return control.UpdateMetadataResponse(error_code=cause.code)


def _controlled_shutdown(
    request: control.ControlledShutdownRequest, version: int, cause: Cause
) -> control.ControlledShutdownResponse:
    return control.ControlledShutdownResponse(error_code=cause.code)


def _alter_partition(
    request: control.AlterPartitionRequest, version: int, cause: Cause
) -> control.AlterPartitionResponse:
    return control.AlterPartitionResponse(error_code=cause.code)


def _envelope(
    request: control.EnvelopeRequest, version: int, cause: Cause
) -> control.EnvelopeResponse:
    return control.EnvelopeResponse(error_code=cause.code)


Form = Callable[[Any, int, Cause], Response | None]

FORMS: Final[dict[type[Request], Form]] = {
    produce.ProduceRequest: _produce,
    fetch.FetchRequest: _fetch,
    list_offsets.ListOffsetsRequest: _list_offsets,
    list_offsets.OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    metadata.MetadataRequest: _metadata,
    metadata.DescribeClusterRequest: _describe_cluster,
    groups.FindCoordinatorRequest: _find_coordinator,
    groups.JoinGroupRequest: _join_group,
    groups.SyncGroupRequest: _sync_group,
    groups.HeartbeatRequest: _heartbeat,
    groups.LeaveGroupRequest: _leave_group,
    groups.DescribeGroupsRequest: _describe_groups,
    groups.ListGroupsRequest: _list_groups,
    groups.DeleteGroupsRequest: _delete_groups,
    groups.ConsumerGroupHeartbeatRequest: _consumer_group_heartbeat,
    groups.ConsumerGroupDescribeRequest: _consumer_group_describe,
    offsets.OffsetCommitRequest: _offset_commit,
    offsets.OffsetFetchRequest: _offset_fetch,
    offsets.OffsetDeleteRequest: _offset_delete,
    transactions.InitProducerIdRequest: _init_producer_id,
    transactions.AddPartitionsToTxnRequest: _add_partitions_to_txn,
    transactions.AddOffsetsToTxnRequest: _add_offsets_to_txn,
    transactions.EndTxnRequest: _end_txn,
    transactions.TxnOffsetCommitRequest: _txn_offset_commit,
    transactions.WriteTxnMarkersRequest: _write_txn_markers,
    transactions.DescribeTransactionsRequest: _describe_transactions,
    transactions.ListTransactionsRequest: _list_transactions,
    transactions.DescribeProducersRequest: _describe_producers,
    transactions.AllocateProducerIdsRequest: _allocate_producer_ids,
    topics.CreateTopicsRequest: _create_topics,
    topics.DeleteTopicsRequest: _delete_topics,
    topics.CreatePartitionsRequest: _create_partitions,
    topics.DeleteRecordsRequest: _delete_records,
    configs.DescribeConfigsRequest: _describe_configs,
    configs.AlterConfigsRequest: _alter_configs,
    configs.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    acls.DescribeAclsRequest: _describe_acls,
    acls.CreateAclsRequest: _create_acls,
    acls.DeleteAclsRequest: _delete_acls,
    acls.CreateDelegationTokenRequest: _create_delegation_token,
    acls.RenewDelegationTokenRequest: _renew_delegation_token,
    acls.ExpireDelegationTokenRequest: _expire_delegation_token,
    acls.DescribeDelegationTokenRequest: _describe_delegation_token,
    sasl.SaslHandshakeRequest: _sasl_handshake,
    sasl.SaslAuthenticateRequest: _sasl_authenticate,
    sasl.DescribeUserScramCredentialsRequest: _describe_user_scram_credentials,
    sasl.AlterUserScramCredentialsRequest: _alter_user_scram_credentials,
    cluster.ElectLeadersRequest: _elect_leaders,
    cluster.AlterPartitionReassignmentsRequest: _alter_partition_reassignments,
    cluster.ListPartitionReassignmentsRequest: _list_partition_reassignments,
    cluster.AlterReplicaLogDirsRequest: _alter_replica_log_dirs,
    cluster.DescribeLogDirsRequest: _describe_log_dirs,
    cluster.UpdateFeaturesRequest: _update_features,
    quotas.DescribeClientQuotasRequest: _describe_client_quotas,
    quotas.AlterClientQuotasRequest: _alter_client_quotas,
    api_versions.ApiVersionsRequest: _api_versions,
    control.LeaderAndIsrRequest: _leader_and_isr,
    control.StopReplicaRequest: _stop_replica,
    control.UpdateMetadataRequest: _update_metadata,
    control.ControlledShutdownRequest: _controlled_shutdown,
    control.AlterPartitionRequest: _alter_partition,
    control.EnvelopeRequest: _envelope,
}
"""How each request is answered with one error."""
