"""The catalog is the list of a Kafka 3.9 broker in ZooKeeper mode (reference: apis 1)."""

import pytest

from kafkalike.messages.catalog import (
    API_KEYS,
    APIS,
    ApiKey,
    find_api,
    request_class,
    response_class,
)
from kafkalike.protocol.headers import FLEXIBLE_SINCE
from kafkalike.protocol.struct import Request, Response

# key: name, highest version, first flexible version
REFERENCE: dict[int, tuple[str, int, int | None]] = {
    0: ("Produce", 11, 9),
    1: ("Fetch", 17, 12),
    2: ("ListOffsets", 9, 6),
    3: ("Metadata", 12, 9),
    4: ("LeaderAndIsr", 7, 4),
    5: ("StopReplica", 4, 2),
    6: ("UpdateMetadata", 8, 6),
    7: ("ControlledShutdown", 3, 3),
    8: ("OffsetCommit", 9, 8),
    9: ("OffsetFetch", 9, 6),
    10: ("FindCoordinator", 6, 3),
    11: ("JoinGroup", 9, 6),
    12: ("Heartbeat", 4, 4),
    13: ("LeaveGroup", 5, 4),
    14: ("SyncGroup", 5, 4),
    15: ("DescribeGroups", 5, 5),
    16: ("ListGroups", 5, 3),
    17: ("SaslHandshake", 1, None),
    18: ("ApiVersions", 4, 3),
    19: ("CreateTopics", 7, 5),
    20: ("DeleteTopics", 6, 4),
    21: ("DeleteRecords", 2, 2),
    22: ("InitProducerId", 5, 2),
    23: ("OffsetForLeaderEpoch", 4, 4),
    24: ("AddPartitionsToTxn", 5, 3),
    25: ("AddOffsetsToTxn", 4, 3),
    26: ("EndTxn", 4, 3),
    27: ("WriteTxnMarkers", 1, 1),
    28: ("TxnOffsetCommit", 4, 3),
    29: ("DescribeAcls", 3, 2),
    30: ("CreateAcls", 3, 2),
    31: ("DeleteAcls", 3, 2),
    32: ("DescribeConfigs", 4, 4),
    33: ("AlterConfigs", 2, 2),
    34: ("AlterReplicaLogDirs", 2, 2),
    35: ("DescribeLogDirs", 4, 2),
    36: ("SaslAuthenticate", 2, 2),
    37: ("CreatePartitions", 3, 2),
    38: ("CreateDelegationToken", 3, 2),
    39: ("RenewDelegationToken", 2, 2),
    40: ("ExpireDelegationToken", 2, 2),
    41: ("DescribeDelegationToken", 3, 2),
    42: ("DeleteGroups", 2, 2),
    43: ("ElectLeaders", 2, 2),
    44: ("IncrementalAlterConfigs", 1, 1),
    45: ("AlterPartitionReassignments", 0, 0),
    46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, None),
    48: ("DescribeClientQuotas", 1, 1),
    49: ("AlterClientQuotas", 1, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    56: ("AlterPartition", 3, 0),
    57: ("UpdateFeatures", 1, 0),
    58: ("Envelope", 0, 0),
    60: ("DescribeCluster", 1, 0),
    61: ("DescribeProducers", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 1, 0),
    67: ("AllocateProducerIds", 0, 0),
    68: ("ConsumerGroupHeartbeat", 1, 0),
    69: ("ConsumerGroupDescribe", 1, 0),
}


def test_exactly_the_apis_of_the_reference() -> None:
    found = {int(api.key): (api.name, api.max_version, api.flexible_since) for api in APIS}
    assert found == REFERENCE
    assert list(API_KEYS) == sorted(REFERENCE)
    assert len(API_KEYS) == 62


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_request_and_response_belong_together(api: object) -> None:
    (found,) = [known for known in APIS if known is api]
    assert issubclass(found.request, Request)
    assert issubclass(found.response, Response)
    for message in (found.request, found.response):
        assert message.api_key == found.key
        assert message.min_version == 0
        assert message.max_version == found.max_version
        assert message.flexible_since == found.flexible_since
    assert found.response.__name__ == f"{found.name}Response"
    assert request_class(found.key) is found.request
    assert response_class(found.key) is found.response
    assert find_api(found.key) is found


def test_key_names_are_those_of_kafka() -> None:
    assert {key.name: int(key) for key in ApiKey if key in (0, 4, 23, 24, 50, 69)} == {
        "PRODUCE": 0,
        "LEADER_AND_ISR": 4,
        "OFFSET_FOR_LEADER_EPOCH": 23,
        "ADD_PARTITIONS_TO_TXN": 24,
        "DESCRIBE_USER_SCRAM_CREDENTIALS": 50,
        "CONSUMER_GROUP_DESCRIBE": 69,
    }


@pytest.mark.parametrize("key", [-1, 52, 55, 59, 62, 64, 70, 71, 32767])
def test_other_keys_are_not_served(key: int) -> None:
    assert find_api(key) is None
    with pytest.raises(KeyError):
        request_class(key)
    with pytest.raises(KeyError):
        response_class(key)


def test_who_may_call() -> None:
    names = {api.name for api in APIS if api.cluster_action}
    assert names == {
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
        "WriteTxnMarkers",
        "AlterPartition",
        "Envelope",
        "AllocateProducerIds",
    }


def test_headers_know_the_same_flexible_versions() -> None:
    assert {int(api.key): api.flexible_since for api in APIS} == FLEXIBLE_SINCE
