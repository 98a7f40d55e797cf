"""Wrong answers are found: twenty mutations between broker and comparison, each seen by its case."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.protocol.struct import Response

from . import facts
from .case import Case
from .cases import FAMILIES, cases_of
from .run import Broker, Tamper, run
from .test_cases import PENDING


def only(name: str, change: Callable[[Any], object]) -> Tamper:
    """Change the answers of one kind that have what is to be changed."""

    def tamper(answer: Response, version: int) -> Response:
        if type(answer).__name__ == name:
            with contextlib.suppress(IndexError):
                change(answer)
        return answer

    return tamper


def produced(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def change(path: Callable[[Any], Any], name: str, value: Any) -> Callable[[Any], None]:
    def apply(answer: Any) -> None:
        target = path(answer)
        before = getattr(target, name)
        after = value(before) if callable(value) else value
        assert after != before or (after is None) != (before is None), (name, before)
        setattr(target, name, after)

    return apply


def itself(answer: Any) -> Any:
    return answer


def flip(data: Any) -> bytes:
    raw = bytearray(data)
    raw[-1] ^= 1
    return bytes(raw)


def swap_epoch(data: Any) -> bytes:
    raw = bytearray(data)
    raw[15] += 1
    return bytes(raw)


MUTATIONS: list[tuple[str, str, Tamper]] = [
    (
        "wrong code",
        "produce-unknown-topic-acks-1-v11",
        only("ProduceResponse", change(produced, "error_code", 5)),
    ),
    (
        "base offset off by one",
        "produce-acks-1-v9",
        only("ProduceResponse", change(produced, "base_offset", lambda n: n + 1)),
    ),
    (
        "log start offset missing",
        "produce-acks-1-v9",
        only("ProduceResponse", change(produced, "log_start_offset", -1)),
    ),
    (
        "text where there is none",
        "produce-unknown-topic-acks-1-v11",
        only("ProduceResponse", change(produced, "error_message", "oh")),
    ),
    (
        "partition missing",
        "produce-many-partitions-v8",
        only("ProduceResponse", lambda answer: answer.responses[0].partition_responses.pop()),
    ),
    (
        "high watermark off by one",
        "fetch-from-1-v11",
        only("FetchResponse", change(fetched, "high_watermark", lambda n: n - 1)),
    ),
    (
        "records null for empty",
        "fetch-from-11-v11",
        only("FetchResponse", change(fetched, "records", None)),
    ),
    (
        "aborted transactions empty for null",
        "fetch-from-1-v11",
        only("FetchResponse", change(fetched, "aborted_transactions", [])),
    ),
    (
        "one bit of a record",
        "fetch-from-1-v11",
        only("FetchResponse", change(fetched, "records", flip)),
    ),
    (
        "leader epoch in a batch",
        "fetch-from-1-v11",
        only("FetchResponse", change(fetched, "records", swap_epoch)),
    ),
    (
        "last batch missing",
        "fetch-from-1-v11",
        only("FetchResponse", change(fetched, "records", lambda data: bytes(data)[:130])),
    ),
    (
        "partitions in wrong order",
        "fetch-all-v11",
        only("FetchResponse", lambda answer: answer.responses[0].partitions.reverse()),
    ),
    (
        "session of nobody",
        "session-begins-v11",
        only("FetchResponse", change(itself, "session_id", 0)),
    ),
    (
        "offset off by one",
        "list-offsets-special--1-v7",
        only(
            "ListOffsetsResponse",
            change(lambda a: a.topics[0].partitions[0], "offset", lambda n: n + 1),
        ),
    ),
    (
        "leader epoch default",
        "list-offsets-special--1-v7",
        only(
            "ListOffsetsResponse",
            change(lambda a: a.topics[0].partitions[0], "leader_epoch", -1),
        ),
    ),
    (
        "replica missing",
        "metadata-one-v9",
        only(
            "MetadataResponse",
            lambda answer: answer.topics[0].partitions[0].replica_nodes.pop(),
        ),
    ),
    (
        "internal topic",
        "metadata-one-v9",
        only("MetadataResponse", change(lambda a: a.topics[0], "is_internal", True)),
    ),
    (
        "default of a setting",
        "describe-configs-keys-v4",
        only(
            "DescribeConfigsResponse",
            change(lambda a: a.results[0].configs[0], "value", "1"),
        ),
    ),
    (
        "origin of a setting",
        "describe-configs-keys-v4",
        only(
            "DescribeConfigsResponse",
            change(lambda a: a.results[0].configs[0], "config_source", 4),
        ),
    ),
    (
        "highest version of an API",
        "api-versions-v3",
        only("ApiVersionsResponse", change(lambda a: a.api_keys[0], "max_version", 10)),
    ),
    (
        "throttled without reason",
        "delete-unknown-v3",
        only("DeleteTopicsResponse", change(itself, "throttle_time_ms", 7)),
    ),
    (
        "null for an empty list",
        "create-name-empty-v7",
        only("CreateTopicsResponse", change(lambda a: a.topics[0], "configs", None)),
    ),
]


@pytest.mark.parametrize(
    ("case_name", "tamper"), [m[1:] for m in MUTATIONS], ids=[m[0] for m in MUTATIONS]
)
def test_wrong_answer_is_found(case_name: str, tamper: Tamper, our_broker: Broker) -> None:
    family, case = find(case_name)
    expected = facts.load(family)[case_name].answers
    found = facts.fact_of(run(our_broker, case, tamper)).answers
    assert found != expected


def test_nothing_is_found_without_a_change(our_broker: Broker) -> None:
    """The control: the same cases, run a second time on a broker that has seen them, are equal."""
    unchanged = 0
    for _, name, _ in MUTATIONS:
        family, case = find(name)
        if name not in PENDING:
            expected = facts.load(family)[name].answers
            assert facts.fact_of(run(our_broker, case)).answers == expected, name
            unchanged += 1
    assert unchanged > 15


def find(name: str) -> tuple[str, Case]:
    for family in FAMILIES:
        for case in cases_of(family):
            if case.name == name:
                return family, case
    raise LookupError(name)
