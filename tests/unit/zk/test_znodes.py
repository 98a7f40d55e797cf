"""Payloads: old versions, unknown keys, and errors that say what is wrong."""

from collections.abc import Callable

import pytest

from kafkalike.types import RECOVERING, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths, security, znodes
from kafkalike.zk.payload import CorruptZnode, encode
from kafkalike.zk.znodes import (
    BrokerInfo,
    ControllerInfo,
    FeatureInfo,
    FeatureRange,
    FinalizedFeature,
    PartitionState,
    ProducerIdBlock,
    TopicInfo,
)


def test_broker_version_1_has_one_plaintext_endpoint() -> None:
    info = BrokerInfo.decode(b'{"version":1,"host":"h","port":9092,"jmx_port":9999}', "")
    assert info == BrokerInfo(
        (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), jmx_port=9999, timestamp_ms=-1
    )


@pytest.mark.parametrize("version", [2, 3])
def test_broker_versions_2_and_3_name_listeners_after_protocols(version: int) -> None:
    data = (
        b'{"version":%d,"host":"h","port":1,"timestamp":"7","jmx_port":-1,'
        b'"endpoints":["PLAINTEXT://h:1","SASL_SSL://[::1]:2"]}' % version
    )
    info = BrokerInfo.decode(data, "")
    assert info.endpoints == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1),
        Endpoint("SASL_SSL", "SASL_SSL", "::1", 2),
    )
    assert info.timestamp_ms == 7
    assert info.rack is None


def test_broker_version_5() -> None:
    info = BrokerInfo(
        (Endpoint("IN", "SSL", "::1", 1), Endpoint("OUT", "PLAINTEXT", "h", 2)),
        rack="r",
        timestamp_ms=12,
        features={"f": FeatureRange(1, 2)},
    )
    text = info.encode()
    assert text == (
        b'{"features":{"f":{"min_version":1,"max_version":2}},'
        b'"listener_security_protocol_map":{"IN":"SSL","OUT":"PLAINTEXT"},'
        b'"endpoints":["IN://[::1]:1","OUT://h:2"],"rack":"r","jmx_port":-1,"port":2,"host":"h",'
        b'"version":5,"timestamp":"12"}'
    )
    assert BrokerInfo.decode(text, "") == info
    only_tls = BrokerInfo((Endpoint("IN", "SSL", "h", 1),))
    assert b'"port":-1,"host":null' in only_tls.encode()
    assert b"rack" not in only_tls.encode()
    assert BrokerInfo.decode(only_tls.encode(), "") == only_tls


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "null data"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'version' is missing"),
        (b'{"version":true}', "whole number"),
        (b'{"version":"x"}', "whole number"),
        (b'{"version":99999999999}', "expected -2147483648 to"),
        (b'{"version":0}', "1 or more"),
        (b'{"version":1,"host":7,"port":1}', "'host' is 7"),
        (b'{"version":4}', "listener_security_protocol_map"),
        (b'{"version":4,"listener_security_protocol_map":{},"endpoints":["A://h:1"]}', "listener"),
        (
            b'{"version":4,"listener_security_protocol_map":{"A":"HTTP"},"endpoints":["A://h:1"]}',
            "HTTP",
        ),
        (b'{"version":3,"endpoints":["h:1"]}', "LISTENER://host:port"),
        (b'{"version":3,"endpoints":["SSL://h:x"]}', "LISTENER://host:port"),
        (b'{"version":3,"endpoints":["SSL://h:70000"]}', "above 65535"),
        (b'{"version":3,"endpoints":[1]}', "only strings"),
        (b'{"version":3,"endpoints":"SSL://h:1"}', "expected a list"),
    ],
)
def test_what_is_wrong_with_a_broker(data: bytes | None, message: str) -> None:
    with pytest.raises(CorruptZnode, match=message) as caught:
        BrokerInfo.decode(data, "/brokers/ids/1")
    assert str(caught.value).startswith("znode /brokers/ids/1: ")


def test_topics_of_old_versions() -> None:
    v1 = TopicInfo.decode(b'{"version":1,"partitions":{"1":[3],"0":[1,2]},"later":[]}', "")
    assert list(v1.partitions.items()) == [
        (0, ReplicaAssignment((1, 2))),
        (1, ReplicaAssignment((3,))),
    ]
    assert v1.topic_id is None
    assert b"topic_id" not in v1.encode()
    v2 = TopicInfo.decode(
        b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
        "",
    )
    assert v2.partitions[0] == ReplicaAssignment((1, 2), adding=(2,))


def test_a_topic_under_reassignment() -> None:
    info = TopicInfo(
        {
            10: ReplicaAssignment((1,)),
            2: ReplicaAssignment((3, 1), adding=(3,), removing=(1,)),
        },
        bytes(range(16)),
    )
    assert info.encode() == (
        b'{"partitions":{"2":[3,1],"10":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{"2":[3]},"removing_replicas":{"2":[1]},"version":3}'
    )
    assert TopicInfo.decode(info.encode(), "").partitions == dict(sorted(info.partitions.items()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"partitions":{"x":[1]}}', "partition is 'x'"),
        (b'{"partitions":{"0":1}}', "expected a list"),
        (b'{"partitions":{"0":["a"]}}', "expected a whole number"),
        (b'{"partitions":[]}', "expected an object"),
        (b'{"partitions":{},"topic_id":"short"}', "topic_id|id 'short'"),
    ],
)
def test_what_is_wrong_with_a_topic(data: bytes, message: str) -> None:
    with pytest.raises(CorruptZnode, match=message):
        TopicInfo.decode(data, "/brokers/topics/t")


def test_partition_states() -> None:
    recovering = PartitionState(LeaderAndIsr(-1, 4, (2, 1), RECOVERING, 9), 7)
    assert recovering.encode() == (
        b'{"controller_epoch":7,"leader":-1,"version":1,"leader_epoch":4,"isr":[2,1],'
        b'"leader_recovery_state":1}'
    )
    assert PartitionState.decode(recovering.encode(), "", 9) == recovering
    for bad, message in (
        (b'{"leader":-2,"leader_epoch":0,"isr":[],"controller_epoch":0}', "broker id or -1"),
        (b'{"leader":1,"leader_epoch":0,"isr":[],"controller_epoch":null}', "controller_epoch"),
        (
            b'{"leader":1,"leader_epoch":0,"isr":[],"controller_epoch":0,"leader_recovery_state":2}',
            "expected 0 or 1",
        ),
    ):
        with pytest.raises(CorruptZnode, match=message):
            PartitionState.decode(bad, "p", 0)


def test_controllers_of_all_ages() -> None:
    assert ControllerInfo.decode(b'{"version":1,"brokerid":4,"timestamp":"9"}', "") == (
        ControllerInfo(4, 9, -1)
    )
    migrating = b'{"version":2,"brokerid":3000,"timestamp":"9","kraftControllerEpoch":12}'
    assert ControllerInfo.decode(migrating, "").kraft_controller_epoch == 12
    assert ControllerInfo.decode(migrating, "").encode() == migrating


def test_features() -> None:
    v1 = FeatureInfo(True, {"f": FinalizedFeature(3, 1)}, version=1)
    assert v1.encode() == (
        b'{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}'
    )
    assert FeatureInfo.decode(v1.encode(), "") == v1
    v2 = FeatureInfo(False, {"f": FinalizedFeature(3)})
    assert FeatureInfo.decode(v2.encode(), "") == v2
    for bad, message in (
        (b'{"version":3,"status":1,"features":{}}', "expected 1 or 2"),
        (b'{"version":2,"status":5,"features":{}}', "expected 0 or 1"),
        (b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}', "no range"),
        (b'{"version":2,"status":1,"features":{"f":1}}', "expected an object"),
    ):
        with pytest.raises(CorruptZnode, match=message):
            FeatureInfo.decode(bad, "/feature")


def test_lists_of_partitions() -> None:
    partitions = (TopicPartition("b", 1), TopicPartition("a", 0))
    text = znodes.encode_partitions(partitions)
    assert text == (
        b'{"version":1,"partitions":[{"topic":"b","partition":1},{"topic":"a","partition":0}]}'
    )
    assert znodes.decode_partitions(text, "") == partitions
    targets = {TopicPartition("t", 0): (1, 2)}
    text = znodes.encode_reassignments(targets)
    assert text == (b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}')
    assert znodes.decode_reassignments(text, "") == targets
    with pytest.raises(CorruptZnode, match="item 0 is 5"):
        znodes.decode_partitions(b'{"partitions":[5]}', "")


def test_small_payloads() -> None:
    assert znodes.encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    assert znodes.decode_log_dir_event(b'{"version":1,"broker":3,"event":1}', "") == 3
    block = ProducerIdBlock(1, 1000, 1999)
    assert len(block) == 1000
    assert ProducerIdBlock.decode(block.encode(), "") == block
    assert ProducerIdBlock.decode(b'{"broker":1,"block_start":0,"block_end":9}', "").end == 9
    with pytest.raises(CorruptZnode, match="no range"):
        ProducerIdBlock.decode(b'{"broker":1,"block_start":"5","block_end":"4"}', "")
    assert znodes.decode_number(b"12", "") == 12
    for bad in (b"", b"1.5", b"x", b"9" * 30, "\u0661".encode()):
        with pytest.raises(CorruptZnode, match="decimal number"):
            znodes.decode_number(bad, "/controller_epoch")


def test_configs() -> None:
    assert znodes.decode_config(None, "") == {}
    assert znodes.decode_config(b"", "") == {}
    assert znodes.decode_config(b'{"version":1}', "") == {}
    assert znodes.decode_config(b'{"version":1,"config":{"a":1,"b":true,"c":"x"}}', "") == {
        "a": "1",
        "b": "true",
        "c": "x",
    }
    assert znodes.encode_config({"k": 'ü"\\\n'}) == (
        '{"version":1,"config":{"k":"ü\\"\\\\\\n"}}'.encode()
    )
    with pytest.raises(CorruptZnode, match="expected 1"):
        znodes.decode_config(b'{"version":2,"config":{}}', "")
    with pytest.raises(CorruptZnode, match="'a' is"):
        znodes.decode_config(b'{"version":1,"config":{"a":[]}}', "")


def test_config_changes() -> None:
    decode = znodes.decode_config_change
    assert decode(b'{"version":1,"entity_type":"topics","entity_name":"t"}', "") == "topics/t"
    assert decode(b'{"version":2,"entity_path":"users/u/clients/c"}', "") == "users/u/clients/c"
    for bad, message in (
        (b'{"version":1,"entity_type":"brokers","entity_name":"t"}', "topics or clients"),
        (b'{"version":2,"entity_path":"topics"}', "type/entity"),
        (b'{"version":3}', "expected 1 or 2"),
    ):
        with pytest.raises(CorruptZnode, match=message):
            decode(bad, "")


def test_acls_in_any_spelling() -> None:
    data = (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"ALLOW",'
        b'"operation":"CLUSTER_ACTION","host":"*"}]}'
    )
    assert security.decode_acls(data, "") == {
        security.AclEntry("User:a", "Allow", "ClusterAction", "*")
    }
    assert security.decode_acls(b"", "") == frozenset()
    for bad, message in (
        (b'{"version":2,"acls":[]}', "expected 1"),
        (data.replace(b"CLUSTER_ACTION", b"Fly"), "'Fly', expected one of"),
    ):
        with pytest.raises(CorruptZnode, match=message):
            security.decode_acls(bad, "/kafka-acl/Topic/t")


def test_acl_changes_with_colons_and_in_any_case() -> None:
    change = security.decode_acl_change(b"topic:a:b", "")
    assert change == security.AclResource("Topic", "a:b")
    for bad in (b"", b"Topic", b"Cat:x"):
        with pytest.raises(CorruptZnode):
            security.decode_acl_change(bad, "")
    with pytest.raises(CorruptZnode, match="PREFIXED"):
        security.decode_extended_acl_change(
            b'{"version":1,"resourceType":"TOPIC","name":"n","patternType":"MATCH"}', ""
        )


def test_scram_credentials_that_are_none() -> None:
    for bad in (
        "",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==",
        "salt=YQ==,stored_key=!,server_key=YQ==,iterations=1",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=x",
    ):
        with pytest.raises(ValueError, match="SCRAM credential"):
            security.ScramCredential.decode(bad)


def test_tokens_of_old_versions_belong_to_their_owner() -> None:
    old = encode(
        {
            "version": 1,
            "owner": "User:a%20b",
            "renewers": [],
            "issueTimestamp": 1,
            "maxTimestamp": 2,
            "expiryTimestamp": 3,
            "tokenId": "t",
        }
    )
    token = security.DelegationToken.decode(old, "")
    assert token.owner == token.requester == "User:a b"
    assert b'"tokenRequester":"User:a%20b"' in token.encode()
    with pytest.raises(CorruptZnode, match="1 to 3"):
        security.DelegationToken.decode(old.replace(b'"version":1', b'"version":4'), "")


def test_sequence_numbers() -> None:
    assert paths.sequence_number("config_change_0000000012", "config_change_") == 12
    for bad in ("config_change_", "other_0000000001", "config_change_1x", "0000000001"):
        with pytest.raises(ValueError, match="followed by a number"):
            paths.sequence_number(bad, "config_change_")


@pytest.mark.parametrize(
    "name", ["", "a b", "100%", "*", "a+b", "~", "ü/ö", "<default>", "a.b-c_d"]
)
def test_sanitised_names_come_back(name: str) -> None:
    assert paths.desanitize(paths.sanitize(name)) == name
    assert "/" not in paths.sanitize(name)


DECODERS: list[Callable[[bytes, str], object]] = [
    BrokerInfo.decode,
    TopicInfo.decode,
    ControllerInfo.decode,
    FeatureInfo.decode,
    ProducerIdBlock.decode,
    znodes.decode_config,
    znodes.decode_config_change,
    znodes.decode_partitions,
    znodes.decode_reassignments,
    znodes.decode_cluster_id,
    znodes.decode_log_dir_event,
    security.decode_acls,
    security.decode_extended_acl_change,
    security.DelegationToken.decode,
    lambda data, path: PartitionState.decode(data, path, 0),
]


@pytest.mark.parametrize("decode", DECODERS)
def test_mutilated_payloads_only_ever_raise_corrupt(
    decode: Callable[[bytes, str], object],
) -> None:
    samples = [
        BrokerInfo((Endpoint("A", "SSL", "h", 1),), features={"f": FeatureRange(1, 2)}).encode(),
        TopicInfo({0: ReplicaAssignment((1,), (1,))}, bytes(16)).encode(),
        PartitionState(LeaderAndIsr(1, 0, (1,)), 0).encode(),
        FeatureInfo(True, {"f": FinalizedFeature(1)}).encode(),
        ProducerIdBlock(1, 0, 9).encode(),
        znodes.encode_partitions([TopicPartition("t", 0)]),
        security.encode_acls([security.AclEntry("User:a", "Allow", "Read", "*")]),
    ]
    for sample in samples:
        variants = [sample[:cut] for cut in range(len(sample))]
        for wrong in (
            b"null",
            b"-1",
            b'"x"',
            b"[]",
            b"{}",
            b"1.5",
            b"true",
            b"99999999999999999999",
        ):
            variants += [sample.replace(part, wrong) for part in (b"1", b'"h"', b"[1]", b'"A"')]
        for variant in variants:
            try:
                decode(variant, "/p")
            except CorruptZnode as error:
                assert "/p" in str(error)
