"""The one list of all APIs a broker of this kind serves: key, messages, versions, who may call.

Reference: apis 1.  The keys are those of a Kafka 3.9 broker in ZooKeeper mode.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafkalike.protocol.struct import Request, Response

from .acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from .api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from .cluster import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from .configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from .control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from .fetch import (
    FetchRequest,
    FetchResponse,
)
from .groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from .list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from .metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from .offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from .produce import (
    ProduceRequest,
    ProduceResponse,
)
from .quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from .sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from .topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from .transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class ApiKey(IntEnum):
    """Kafka's API keys by name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


@dataclass(slots=True, frozen=True)
class Api:
    """One API: a request and its response, which share key and versions.

    `cluster_action`: only brokers and the controller call it, with ClusterAction on the cluster.
    `forwardable`: a broker under a KRaft controller would wrap it in Envelope; here a broker either
    answers itself or says NOT_CONTROLLER.
    """

    key: ApiKey
    request: type[Request]
    response: type[Response]
    cluster_action: bool = False
    forwardable: bool = False

    @property
    def name(self) -> str:
        """Kafka's name of the API, as logs and metrics spell it."""
        return self.request.__name__.removesuffix("Request")

    @property
    def min_version(self) -> int:
        return self.request.min_version

    @property
    def max_version(self) -> int:
        return self.request.max_version

    @property
    def flexible_since(self) -> int | None:
        return self.request.flexible_since


APIS: Final[tuple[Api, ...]] = (
    Api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse),
    Api(ApiKey.FETCH, FetchRequest, FetchResponse),
    Api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
    Api(ApiKey.METADATA, MetadataRequest, MetadataResponse),
    Api(ApiKey.LEADER_AND_ISR, LeaderAndIsrRequest, LeaderAndIsrResponse, cluster_action=True),
    Api(ApiKey.STOP_REPLICA, StopReplicaRequest, StopReplicaResponse, cluster_action=True),
    Api(ApiKey.UPDATE_METADATA, UpdateMetadataRequest, UpdateMetadataResponse, cluster_action=True),
    Api(
        ApiKey.CONTROLLED_SHUTDOWN,
        ControlledShutdownRequest,
        ControlledShutdownResponse,
        cluster_action=True,
    ),
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
    Api(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
    Api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
    Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
    Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
    Api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
    Api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
    Api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
    Api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
    Api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
    Api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, forwardable=True),
    Api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, forwardable=True),
    Api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
    Api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse),
    Api(
        ApiKey.WRITE_TXN_MARKERS,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        cluster_action=True,
    ),
    Api(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse),
    Api(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, forwardable=True),
    Api(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, forwardable=True),
    Api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
    Api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, forwardable=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    Api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
    Api(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.CREATE_DELEGATION_TOKEN,
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.RENEW_DELEGATION_TOKEN,
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    ),
    Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
    Api(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, forwardable=True),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    ),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        forwardable=True,
    ),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    ),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        forwardable=True,
    ),
    Api(ApiKey.ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse, cluster_action=True),
    Api(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest, UpdateFeaturesResponse, forwardable=True),
    Api(ApiKey.ENVELOPE, EnvelopeRequest, EnvelopeResponse, cluster_action=True),
    Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
    Api(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse),
    Api(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
    Api(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        cluster_action=True,
    ),
    Api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    ),
    Api(
        ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
    ),
)
"""In order of their keys."""

API_KEYS: Final[tuple[ApiKey, ...]] = tuple(api.key for api in APIS)

_BY_KEY: Final = {int(api.key): api for api in APIS}


def find_api(key: int) -> Api | None:
    """The API of a key, or None when this kind of broker does not serve it."""
    return _BY_KEY.get(key)


def request_class(key: int) -> type[Request]:
    """The request of an API key.  Raises KeyError for a key that is not served."""
    return _BY_KEY[key].request


def response_class(key: int) -> type[Response]:
    """The response of an API key.  Raises KeyError for a key that is not served."""
    return _BY_KEY[key].response
