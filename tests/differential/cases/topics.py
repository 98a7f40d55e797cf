"""CreateTopics, CreatePartitions, DeleteTopics."""

from collections.abc import Iterator, Mapping, Sequence

from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from ..case import Ask, Case, Names, Topic, versions_of

_Create = CreateTopicsRequest.CreatableTopic
_Grow = CreatePartitionsRequest.CreatePartitionsTopic
MADE_UP = b"\x11" * 16
LATEST = 7

NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "three-dots": "...",
    "blank": "a b",
    "slash": "a/b",
    "umlaut": "ü",
    "too-long": "x" * 250,
    "longest": "x" * 249,
    "colon": "a:b",
    "underscores": "__mine",
    "cluster-metadata": "__cluster_metadata",
    "star": "*",
}
CONFIGS: dict[str, Mapping[str, str | None]] = {
    "none": {},
    "one": {"retention.ms": "5000"},
    "many": {"retention.ms": "5000", "cleanup.policy": "compact", "segment.bytes": "100000"},
    "unknown-key": {"no.such.key": "1"},
    "null-value": {"retention.ms": None},
    "not-a-number": {"retention.ms": "soon"},
    "out-of-range": {"segment.bytes": "1"},
    "negative": {"max.message.bytes": "-1"},
    "bad-enum": {"cleanup.policy": "shred"},
    "empty-list": {"cleanup.policy": ""},
    "list": {"cleanup.policy": "delete,compact"},
    "bad-bool": {"preallocate": "maybe"},
    "upper-bool": {"preallocate": "TRUE"},
    "blank-number": {"retention.ms": " 5000 "},
    "empty-value": {"retention.ms": ""},
    "bad-ratio": {"min.cleanable.dirty.ratio": "2"},
    "bad-codec": {"compression.type": "rar"},
    "bad-time-type": {"message.timestamp.type": "Yesterday"},
    "min-isr-0": {"min.insync.replicas": "0"},
    "zero-segment-ms": {"segment.ms": "0"},
    "lag-order": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    "local-above-total": {"local.retention.ms": "10", "retention.ms": "5"},
    "broker-key": {"log.retention.ms": "5"},
    "throttled": {"leader.replication.throttled.replicas": "0:1,1:1"},
    "throttled-bad": {"leader.replication.throttled.replicas": "x"},
    "message-format": {"message.format.version": "0.9.0"},
    "message-format-bad": {"message.format.version": "9"},
    "gzip-level": {"compression.gzip.level": "0"},
    "lz4-level": {"compression.lz4.level": "18"},
    "zstd-level": {"compression.zstd.level": "23"},
    "remote-storage": {"remote.storage.enable": "true"},
}
ASSIGNMENTS: dict[str, Sequence[tuple[int, Sequence[int]]]] = {
    "one": [(0, [1])],
    "three": [(0, [1]), (1, [1]), (2, [1])],
    "out-of-order": [(2, [1]), (0, [1]), (1, [1])],
    "gap": [(0, [1]), (2, [1])],
    "not-from-0": [(1, [1])],
    "duplicate-replica": [(0, [1, 1])],
    "unequal": [(0, [1]), (1, [1, 2])],
    "unknown-broker": [(0, [9])],
    "negative-broker": [(0, [-1])],
    "partition-twice": [(0, [1]), (0, [1])],
    "negative-partition": [(-1, [1])],
}


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    config: Mapping[str, str | None] | None = None,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
) -> CreateTopicsRequest.CreatableTopic:
    return _Create(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            _Create.CreatableTopicConfig(name=key, value=value)
            for key, value in (config or {}).items()
        ],
        assignments=[
            _Create.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in assignments
        ],
    )


def create(
    version: int,
    *topics: CreateTopicsRequest.CreatableTopic,
    timeout_ms: int = 30_000,
    validate: bool = False,
) -> Ask:
    message = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms)
    message.validate_only = validate and version >= 1
    return Ask(message, version)


def look(*names: str) -> Ask:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return Ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)


def cases() -> Iterator[Case]:
    for version in versions_of(CreateTopicsRequest):
        yield from creation(version)
    for version in versions_of(DeleteTopicsRequest):
        yield from deletion(version)
    for version in versions_of(CreatePartitionsRequest):
        yield from growth(version)


def case(name: str, *steps: Ask, setup: Sequence[Topic] = ()) -> Case:
    return Case(
        name,
        list(steps),
        setup=list(setup),
        unordered=("topics", "results", "responses", "partitions", "configs"),
    )


def creation(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"

    def simple(word: str, partitions: int = 1, factor: int = 1, **more: bool) -> Case:
        name = f"create-{word}{suffix}"
        return case(name, create(version, topic(name, partitions, factor), **more), look(name))

    yield simple("one")
    yield simple("three-partitions", 3)
    yield simple("validate-only", 3, validate=True)
    for count in (0, -1, -2, 2**31 - 1):
        if count < 10**6:
            yield simple(f"partitions-{count}", count)
    for factor in (0, -1, -2, 2, 32767):
        yield simple(f"factor-{factor}", 1, factor)
    yield simple("defaults", -1, -1)
    yield case(f"create-nothing{suffix}", create(version))
    for word, bad in NAMES.items():
        unique = f"{version}{bad[1:]}" if word == "longest" else bad
        unique = f"{bad}-{version}" if word == "underscores" else unique
        yield case(f"create-name-{word}{suffix}", create(version, topic(unique), validate=True))
    name = f"create-exists{suffix}"
    yield case(
        name,
        create(version, topic(name)),
        create(version, topic(name), validate=True),
        setup=[Topic(name)],
    )
    name = f"create-exists-and-new{suffix}"
    yield case(
        name,
        create(version, topic(name), topic(f"{name}-b"), topic("a b")),
        look(name, f"{name}-b"),
        setup=[Topic(name)],
    )
    name = f"create-twice{suffix}"
    yield case(
        name,
        create(version, topic(name), topic(name, 2), topic(f"{name}-b")),
        look(name, f"{name}-b"),
    )
    name = f"create-collides{suffix}"
    yield case(name, create(version, topic(f"{name}_a.b")), setup=[Topic(f"{name}.a_b")])
    if version >= 5 or version in (0, 1):
        for word, config in CONFIGS.items():
            name = f"create-config-{word}{suffix}"
            yield case(name, create(version, topic(name, config=config)), look(name))
    name = f"create-config-twice{suffix}"
    double = topic(name, config={"retention.ms": "1"})
    double.configs.append(_Create.CreatableTopicConfig(name="retention.ms", value="2"))
    yield case(name, create(version, double))
    for word, assignments in ASSIGNMENTS.items():
        if word in ("unknown-broker", "negative-broker") and version % 3:
            continue
        name = f"create-assigned-{word}{suffix}"
        steps = [create(version, topic(name, -1, -1, assignments=assignments))]
        if word in ("one", "three", "out-of-order"):
            steps.append(look(name))
        if "broker" in word:  # would never be ready
            steps = [
                create(version, topic(name, -1, -1, assignments=assignments), validate=True)
                if version
                else create(version, topic(name, -1, -1, assignments=assignments), timeout_ms=100)
            ]
        yield case(name, *steps)
    name = f"create-assigned-nothing{suffix}"
    yield Case(
        name,
        [create(version, topic(name, -1, -1, assignments=[(0, [])]), timeout_ms=200)],
        differs="CreateTopics with a partition without replicas",
    )
    for partitions, factor in ((1, -1), (-1, 1), (1, 1), (0, 0)):
        name = f"create-assigned-with-counts-{partitions}-{factor}{suffix}"
        yield case(name, create(version, topic(name, partitions, factor, assignments=[(0, [1])])))
    for limit in (0, -1):
        name = f"create-timeout-{limit}{suffix}"
        yield case(name, create(version, topic(name), timeout_ms=limit))


def delete(version: int, *names: str, timeout_ms: int = 30_000) -> Ask:
    if version >= 6:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        return Ask(DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms), version)
    return Ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms), version)


def deletion(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    name = f"delete-one{suffix}"
    yield case(
        name, delete(version, name), look(name), delete(version, name), setup=[Topic(name, 3)]
    )
    name = f"delete-several{suffix}"
    yield case(
        name,
        delete(version, f"{name}-b", "no-such", name),
        look(name, f"{name}-b"),
        setup=[Topic(name), Topic(f"{name}-b", 2)],
    )
    name = f"delete-and-create{suffix}"
    yield case(
        name, delete(version, name), create(LATEST, topic(name, 2)), look(name), setup=[Topic(name)]
    )
    yield case(f"delete-nothing{suffix}", delete(version))
    yield case(f"delete-unknown{suffix}", delete(version, "no-such", "a b", "", ".."))
    name = f"delete-twice-in-one{suffix}"
    yield case(name, delete(version, name, name), look(name), setup=[Topic(name)])
    for limit in (0, -1):
        name = f"delete-timeout-{limit}{suffix}"
        yield case(name, delete(version, name, timeout_ms=limit), setup=[Topic(name)])
    if version >= 6:
        yield from deletion_by_id(version)


def deletion_by_id(version: int) -> Iterator[Case]:
    state = DeleteTopicsRequest.DeleteTopicState

    def ask(*wanted: tuple[str | None, str | bytes | None]) -> Ask:
        def make(names: Names) -> DeleteTopicsRequest:
            topics = []
            for name, identity in wanted:
                if isinstance(identity, str):
                    identity = names.topic_id(identity)
                topics.append(state(name=name, topic_id=identity or bytes(16)))
            return DeleteTopicsRequest(topics=topics, timeout_ms=30_000)

        return Ask(make, version)

    name = "delete-id"
    yield case(name, ask((None, name)), look(name), ask((None, name)), setup=[Topic(name)])
    name = "delete-id-and-name"
    yield case(name, ask((name, name)), look(name), setup=[Topic(name)])
    name = "delete-id-and-other-name"
    yield case(name, ask((name, None), (None, name)), setup=[Topic(name)])
    yield case("delete-id-unknown", ask((None, MADE_UP)))
    yield case("delete-id-nothing", ask((None, None)))
    yield case("delete-id-unknown-twice", ask((None, MADE_UP), (None, MADE_UP)))
    name = "delete-id-twice"
    yield case(name, ask((None, name), (None, name)), setup=[Topic(name)])
    name = "delete-id-mixed"
    yield case(name, ask((None, name), ("no-such", None), (None, MADE_UP)), setup=[Topic(name)])


def growth(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"

    def grow(
        *topics: tuple[str, int, Sequence[Sequence[int]] | None],
        timeout_ms: int = 30_000,
        validate: bool = False,
    ) -> Ask:
        return Ask(
            CreatePartitionsRequest(
                topics=[
                    _Grow(
                        name=name,
                        count=count,
                        assignments=None
                        if wanted is None
                        else [
                            _Grow.CreatePartitionsAssignment(broker_ids=list(brokers))
                            for brokers in wanted
                        ],
                    )
                    for name, count, wanted in topics
                ],
                timeout_ms=timeout_ms,
                validate_only=validate,
            ),
            version,
        )

    name = f"grow-one{suffix}"
    yield case(name, grow((name, 3, None)), look(name), setup=[Topic(name)])
    name = f"grow-validate{suffix}"
    yield case(name, grow((name, 3, None), validate=True), look(name), setup=[Topic(name)])
    for count in (0, 1, 2, -1, -(2**30)):  # -2**31 costs the original all its memory
        name = f"grow-to-{count}{suffix}"
        yield case(name, grow((name, count, None)), setup=[Topic(name, 2)])
    assigned: dict[str, tuple[int, list[list[int]]]] = {
        "good": (3, [[1], [1]]),
        "empty": (3, []),
        "too-few": (3, [[1]]),
        "too-many": (2, [[1], [1]]),
        "unknown-broker": (2, [[9]]),
        "duplicate": (2, [[1, 1]]),
        "no-replicas": (2, [[]]),
        "unequal": (3, [[1], [1, 2]]),
        "negative": (2, [[-1]]),
        "other-factor": (2, [[1, 2]]),
        "count-not-above": (1, [[1]]),
    }
    for word, (count, assignments) in assigned.items():
        name = f"grow-assigned-{word}{suffix}"
        yield case(name, grow((name, count, assignments)), look(name), setup=[Topic(name)])
    yield case(f"grow-nothing{suffix}", grow())
    yield case(f"grow-unknown{suffix}", grow(("no-such", 3, None), ("a b", 3, None)))
    name = f"grow-twice-in-one{suffix}"
    yield case(name, grow((name, 3, None), (name, 4, None)), look(name), setup=[Topic(name)])
    for limit in (0, -1):
        name = f"grow-timeout-{limit}{suffix}"
        yield case(name, grow((name, 2, None), timeout_ms=limit), setup=[Topic(name)])
