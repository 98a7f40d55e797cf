"""Metadata and DescribeCluster."""

import dataclasses
from collections.abc import Callable, Iterator

from kafkalike.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataResponse
from kafkalike.types import ZERO_UUID

from ..case import Ask, Case, Names, Topic, versions_of

_Wanted = MetadataRequest.MetadataRequestTopic
NAMES = ("known-a", "known-b")
KNOWN = (Topic("known-a", 3), Topic("known-b"))
MADE_UP = b"\x11" * 16


def ask(
    version: int, *names: str | None, create: bool = False, operations: bool = False
) -> MetadataRequest:
    return MetadataRequest(
        topics=[_Wanted(name=name) for name in names],
        allow_auto_topic_creation=create or version < 4,
        include_topic_authorized_operations=operations and version >= 8,
        include_cluster_authorized_operations=operations and 8 <= version <= 10,
    )


def settled(answer: MetadataResponse) -> bool:
    return all(
        topic.error_code == 0 and all(p.error_code == 0 for p in topic.partitions)
        for topic in answer.topics
    )


def by_id(name: str) -> Callable[[Names], MetadataRequest]:
    return lambda names: MetadataRequest(topics=[_Wanted(name=None, topic_id=names.topic_id(name))])


def cases() -> Iterator[Case]:
    for version in versions_of(MetadataRequest):
        yield from of_version(version)
    for version in (10, 11, 12):
        yield from with_ids(version)
    create = Ask(ask(7, "__cluster_metadata", create=True), 7)
    again = dataclasses.replace(create, until=settled)
    yield Case("metadata-creates-cluster-metadata", [create, again])
    for version in versions_of(DescribeClusterRequest):
        for operations in (False, True):
            message = DescribeClusterRequest(include_cluster_authorized_operations=operations)
            yield Case(f"describe-cluster-{operations}-v{version}".lower(), [Ask(message, version)])
    for kind in (0, 1, 2, 3, -1, 127, -128):
        yield Case(
            f"describe-cluster-endpoint-{kind}",
            [Ask(DescribeClusterRequest(endpoint_type=kind), 1)],
        )


def of_version(version: int) -> Iterator[Case]:
    def case(name: str, *names: str | None, **more: bool) -> Case:
        return Case(
            f"metadata-{name}-v{version}",
            [Ask(ask(version, *names, **more), version)],
            uses=KNOWN,
            unordered=("topics", "partitions"),
            only="known" if name in ("empty", "null") else "",
        )

    yield case("empty")
    yield case("one", "known-a")
    yield case("two", "known-b", "known-a")
    yield case("twice", "known-a", "known-a")
    yield case("with-operations", "known-a", operations=True)
    bad = ("", ".", "..", "a b", "a/b", "ü", "x" * 250, "a:b", "a\0b")
    yield case("bad-names", *bad, create=True)
    if version >= 4:
        yield case("unknown", "no-such", "known-a")
        yield case("bad-names-no-creation", *bad)
        yield case("unknown-with-operations", "no-such", operations=True)
    if version >= 1:
        everything = ask(version)
        everything.topics = None
        yield Case(
            f"metadata-null-v{version}",
            [Ask(everything, version)],
            uses=KNOWN,
            only="known",
            unordered=("topics", "partitions"),
        )
    name = f"metadata-creates-v{version}"
    create = ask(version, name, create=True)
    yield Case(
        name,
        [Ask(create, version), Ask(create, version, until=settled)],
        unordered=("partitions",),
    )
    name = f"metadata-collides-v{version}"
    yield Case(
        name,
        [Ask(ask(version, name.replace("-", "_") + "_x", create=True), version)],
        setup=[Topic(name.replace("-", "_") + ".x")],
    )
    names = (f"__consumer_offsets_x{version}", f"__cluster_metadata_{version}")
    internal = ask(version, *names, create=True)
    yield Case(
        f"metadata-almost-internal-v{version}", [Ask(internal, version)], unordered=("topics",)
    )


def with_ids(version: int) -> Iterator[Case]:
    def case(name: str, *topics: MetadataRequest.MetadataRequestTopic) -> Case:
        return Case(
            f"metadata-id-{name}-v{version}",
            [Ask(MetadataRequest(topics=list(topics)), version)],
            uses=KNOWN,
            unordered=("topics", "partitions"),
        )

    yield Case(
        f"metadata-id-known-v{version}",
        [Ask(by_id("known-a"), version)],
        uses=KNOWN,
        unordered=("topics", "partitions"),
    )
    yield case("unknown", _Wanted(name=None, topic_id=MADE_UP))
    yield case("zero-and-null", _Wanted(name=None, topic_id=ZERO_UUID))
    yield case("name-and-unknown", _Wanted(name="known-a", topic_id=MADE_UP))
    yield case("null-among-good", _Wanted(name="known-a"), _Wanted(name=None))
    yield case("name-beside-id", _Wanted(name="known-a"), _Wanted(name=None, topic_id=MADE_UP))
    yield case(
        "unknown-twice",
        _Wanted(name=None, topic_id=MADE_UP),
        _Wanted(name=None, topic_id=MADE_UP),
    )
