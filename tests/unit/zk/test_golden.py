"""Payloads of a Kafka 3.9.2 cluster: read, and written again to the same bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike.tools.dump_zk import check
from kafkalike.types import ReplicaAssignment
from kafkalike.zk import paths, security, znodes

GOLDEN: dict[str, str | None] = json.loads(
    (Path(__file__).parent / "golden" / "kafka39.json").read_text()
)


def payload(path: str) -> bytes:
    text = GOLDEN[path]
    assert text is not None, path
    return text.encode()


def matching(prefix: str, suffix: str = "") -> list[str]:
    return [
        path
        for path, text in GOLDEN.items()
        if path.startswith(prefix) and path.endswith(suffix) and text
    ]


def same_state(data: bytes, path: str) -> bytes:
    return znodes.PartitionState.decode(data, path, 3).encode()


def same_token(decode: Any) -> Callable[[bytes, str], bytes]:
    def again(data: bytes, path: str) -> bytes:
        encoded = decode(data, path).encode()
        assert isinstance(encoded, bytes)
        return encoded

    return again


CASES: list[tuple[str, str, Callable[[bytes, str], bytes]]] = [
    ("/brokers/ids/", "", same_token(znodes.BrokerInfo.decode)),
    ("/brokers/topics/plain", "plain", same_token(znodes.TopicInfo.decode)),
    ("/brokers/topics/with", "config_x", same_token(znodes.TopicInfo.decode)),
    ("/brokers/topics/", "/state", same_state),
    ("/cluster/id", "", lambda d, p: znodes.encode_cluster_id(znodes.decode_cluster_id(d, p))),
    ("/controller", "controller", same_token(znodes.ControllerInfo.decode)),
    ("/controller_epoch", "", lambda d, p: znodes.encode_number(znodes.decode_number(d, p))),
    ("/feature", "", same_token(znodes.FeatureInfo.decode)),
    ("/latest_producer_id_block", "", same_token(znodes.ProducerIdBlock.decode)),
    ("/config/topics/", "", lambda d, p: znodes.encode_config(znodes.decode_config(d, p))),
    ("/config/brokers/", "", lambda d, p: znodes.encode_config(znodes.decode_config(d, p))),
    ("/config/clients/", "", lambda d, p: znodes.encode_config(znodes.decode_config(d, p))),
    ("/config/users/", "", lambda d, p: znodes.encode_config(znodes.decode_config(d, p))),
    ("/config/ips/", "", lambda d, p: znodes.encode_config(znodes.decode_config(d, p))),
    (
        "/config/changes/",
        "",
        lambda d, p: znodes.encode_config_change(znodes.decode_config_change(d, p)),
    ),
]


@pytest.mark.parametrize(
    ("path", "again"),
    [(path, again) for prefix, suffix, again in CASES for path in matching(prefix, suffix)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_written_again_it_is_the_same(path: str, again: Callable[[bytes, str], bytes]) -> None:
    assert again(payload(path), path) == payload(path)


def test_every_case_has_a_payload() -> None:
    for prefix, suffix, _ in CASES:
        assert matching(prefix, suffix), prefix


def test_topics_with_many_partitions_differ_in_order_only() -> None:
    """Kafka prints partitions in the order of a hash map."""
    for path in ("/brokers/topics/many", "/brokers/topics/__consumer_offsets"):
        info = znodes.TopicInfo.decode(payload(path), path)
        assert json.loads(info.encode()) == json.loads(payload(path))
    many = znodes.TopicInfo.decode(payload("/brokers/topics/many"), "")
    assert many.partitions[1] == ReplicaAssignment((2, 1), adding=(1,))
    assert many.partitions[11] == ReplicaAssignment((2,))


def test_acls_differ_in_order_only() -> None:
    for path in matching("/kafka-acl/") + matching("/kafka-acl-extended/"):
        again = security.encode_acls(security.decode_acls(payload(path), path))
        ours, theirs = json.loads(again), json.loads(payload(path))
        assert list(ours) == list(theirs)
        assert [list(entry) for entry in ours["acls"]] == [list(e) for e in theirs["acls"]]
        assert sorted(map(str, ours["acls"])) == sorted(map(str, theirs["acls"]))


def test_acl_changes() -> None:
    decoded = [
        security.decode_acl_change(payload(path), path) for path in matching("/kafka-acl-changes/")
    ]
    assert decoded == [
        security.AclResource("Topic", "t1"),
        security.AclResource("Cluster", "kafka-cluster"),
        security.AclResource("TransactionalId", "tx1"),
    ]
    (path,) = matching("/kafka-acl-extended-changes/")
    assert security.decode_extended_acl_change(payload(path), path) == security.AclResource(
        "Topic", "pre", True
    )


def test_scram_credentials_are_read_and_written_again() -> None:
    config = znodes.decode_config(payload("/config/users/alice"), "")
    found = security.scram_credentials(config)
    assert sorted(found) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    for mechanism, credential in found.items():
        assert credential.encode() == config[mechanism]
        assert credential.iterations == 4096
        assert len(credential.stored_key) == (32 if mechanism.endswith("256") else 64)


def test_entity_names_are_sanitised_as_kafka_does() -> None:
    (name,) = [path.rpartition("/")[2] for path in matching("/config/clients/") if "<" not in path]
    assert paths.sanitize("c l*i+e~n/t é") == name
    assert paths.desanitize(name) == "c l*i+e~n/t é"


def test_all_that_every_broker_needs_was_made_with_null_data() -> None:
    for path in paths.PRECREATED:
        if path != paths.PRODUCER_ID_BLOCK:
            assert path in GOLDEN, path
            assert GOLDEN[path] is None, path


def test_the_dump_tool_finds_nothing_wrong() -> None:
    for path, text in GOLDEN.items():
        data = None if text is None else text.encode()
        if data is None and path.startswith("/brokers/topics/"):
            continue
        assert check(path, data, 0) is None, path
