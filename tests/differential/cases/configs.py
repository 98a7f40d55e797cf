"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

import dataclasses
from collections.abc import Iterator, Sequence

from kafkalike.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)

from ..case import Ask, Case, Topic, versions_of

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CHANGED = ("log.cleaner.threads", "log.retention.ms", "max.connections", "no.such.broker.key")
_Wanted = DescribeConfigsRequest.DescribeConfigsResource
_Alter = AlterConfigsRequest.AlterConfigsResource
_Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
SOME = Topic("configured", config={"retention.ms": "123456", "cleanup.policy": "compact,delete"})


def describe(
    version: int,
    *resources: tuple[int, str, Sequence[str] | None],
    synonyms: bool = False,
    documentation: bool = False,
) -> Ask:
    return Ask(
        DescribeConfigsRequest(
            resources=[
                _Wanted(
                    resource_type=kind,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for kind, name, keys in resources
            ],
            include_synonyms=synonyms and version >= 1,
            include_documentation=documentation and version >= 3,
        ),
        version,
    )


def alter(
    version: int,
    *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
    validate: bool = False,
) -> Ask:
    return Ask(
        AlterConfigsRequest(
            resources=[
                _Alter(
                    resource_type=kind,
                    resource_name=name,
                    configs=[_Alter.AlterableConfig(name=k, value=v) for k, v in values],
                )
                for kind, name, values in resources
            ],
            validate_only=validate,
        ),
        version,
    )


def change(
    version: int,
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    validate: bool = False,
) -> Ask:
    return Ask(
        IncrementalAlterConfigsRequest(
            resources=[
                _Incremental(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        _Incremental.AlterableConfig(name=k, config_operation=op, value=v)
                        for k, op, v in values
                    ],
                )
                for kind, name, values in resources
            ],
            validate_only=validate,
        ),
        version,
    )


def eventually(changes: bool, ask: Ask) -> Ask:
    """Ask until a change of a broker's settings is in the answer: the original applies it later."""
    return dataclasses.replace(ask, until=is_changed) if changes else ask


def unchanged() -> Ask:
    """Wait until no change of a broker's settings is left."""
    ask = describe(4, (BROKER, "1", list(CHANGED)), (BROKER, "", list(CHANGED)), synonyms=True)
    return dataclasses.replace(
        ask, until=lambda answer: is_applied(answer) and not is_dynamic(answer)
    )


def is_changed(answer: DescribeConfigsResponse) -> bool:
    return is_applied(answer) and is_dynamic(answer)


def is_dynamic(answer: DescribeConfigsResponse) -> bool:
    return any(synonym.source in (2, 3) for entry in _entries(answer) for synonym in entry.synonyms)


def is_applied(answer: DescribeConfigsResponse) -> bool:
    """The original lists a change as a synonym a little before it is the value."""
    return all(
        entry.value is None or not entry.synonyms or entry.value == entry.synonyms[0].value
        for entry in _entries(answer)
    )


def _entries(
    answer: DescribeConfigsResponse,
) -> list[DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult]:
    return [entry for result in answer.results for entry in result.configs]


def cases() -> Iterator[Case]:
    for version in versions_of(DescribeConfigsRequest):
        yield from description(version)
    for version in versions_of(AlterConfigsRequest):
        yield from replacement(version)
    for version in versions_of(IncrementalAlterConfigsRequest):
        yield from changes(version)
    for word, key, value in VALUES:
        name = f"config-value-{word}"
        yield Case(
            name,
            [
                change(1, (TOPIC, name, [(key, SET, value)])),
                describe(4, (TOPIC, name, [key]), synonyms=True),
            ],
            setup=[Topic(name)],
        )


VALUES = (
    ("retention-minus-1", "retention.ms", "-1"),
    ("retention-minus-2", "retention.ms", "-2"),
    ("retention-text", "retention.ms", "x"),
    ("retention-float", "retention.ms", "1.0"),
    ("retention-huge", "retention.ms", "9223372036854775808"),
    ("retention-plus", "retention.ms", "+5"),
    ("retention-blank", "retention.ms", " 7 "),
    ("retention-underscore", "retention.ms", "1_000"),
    ("retention-bytes", "retention.bytes", "-5"),
    ("segment-13", "segment.bytes", "13"),
    ("segment-14", "segment.bytes", "14"),
    ("segment-2g", "segment.bytes", "2147483648"),
    ("segment-index", "segment.index.bytes", "3"),
    ("segment-ms", "segment.ms", "0"),
    ("jitter", "segment.jitter.ms", "-1"),
    ("flush", "flush.messages", "0"),
    ("policy-none", "cleanup.policy", "none"),
    ("policy-spaces", "cleanup.policy", " compact , delete "),
    ("policy-twice", "cleanup.policy", "compact,compact"),
    ("ratio", "min.cleanable.dirty.ratio", "0.25"),
    ("ratio-e", "min.cleanable.dirty.ratio", "1e-1"),
    ("ratio-over", "min.cleanable.dirty.ratio", "1.1"),
    ("ratio-nan", "min.cleanable.dirty.ratio", "NaN"),
    ("bool-yes", "unclean.leader.election.enable", "yes"),
    ("bool-upper", "unclean.leader.election.enable", "True"),
    ("bool-empty", "unclean.leader.election.enable", ""),
    ("codec-upper", "compression.type", "GZIP"),
    ("codec", "compression.type", "lz4"),
    ("gzip-level", "compression.gzip.level", "10"),
    ("gzip-level-0", "compression.gzip.level", "0"),
    ("gzip-level-default", "compression.gzip.level", "-1"),
    ("lz4-level", "compression.lz4.level", "17"),
    ("zstd-level", "compression.zstd.level", "-131072"),
    ("zstd-level-low", "compression.zstd.level", "-131073"),
    ("time-type", "message.timestamp.type", "LogAppendTime"),
    ("time-type-lower", "message.timestamp.type", "logappendtime"),
    ("difference-max", "message.timestamp.difference.max.ms", "5"),
    ("before", "message.timestamp.before.max.ms", "-1"),
    ("after", "message.timestamp.after.max.ms", "5"),
    ("isr-0", "min.insync.replicas", "0"),
    ("isr-5", "min.insync.replicas", "5"),
    ("max-message", "max.message.bytes", "0"),
    ("index-interval", "index.interval.bytes", "-1"),
    ("delete-retention", "delete.retention.ms", "-1"),
    ("delete-delay", "file.delete.delay.ms", "-1"),
    ("compaction-lag", "max.compaction.lag.ms", "0"),
    ("throttle-all", "follower.replication.throttled.replicas", "*"),
    ("throttle-bad", "follower.replication.throttled.replicas", "1-2"),
    ("remote", "remote.storage.enable", "true"),
    ("remote-copy", "remote.log.copy.disable", "true"),
    ("local", "local.retention.ms", "-2"),
    ("local-5", "local.retention.bytes", "5"),
    ("format", "message.format.version", "2.0"),
    ("downconversion", "message.downconversion.enable", "false"),
    ("preallocate", "preallocate", "true"),
)


def description(version: int) -> Iterator[Case]:
    def case(name: str, *steps: Ask) -> Case:
        return Case(
            f"describe-configs-{name}-v{version}", list(steps), uses=[SOME], unordered=("results",)
        )

    for synonyms in (False, True):
        for documentation in (False, True):
            word = f"{'synonyms' if synonyms else 'plain'}{'-documented' if documentation else ''}"
            for kind, name in ((TOPIC, "configured"), (BROKER, "1"), (BROKER, "")):
                yield case(
                    f"{word}-{kind}-{name or 'default'}",
                    describe(
                        version,
                        (kind, name, None),
                        synonyms=synonyms,
                        documentation=documentation,
                    ),
                )
    yield case("keys", describe(version, (TOPIC, "configured", ["retention.ms", "segment.bytes"])))
    yield case("no-keys", describe(version, (TOPIC, "configured", [])))
    yield case("unknown-key", describe(version, (TOPIC, "configured", ["no.such", "retention.ms"])))
    yield case("key-twice", describe(version, (TOPIC, "configured", ["retention.ms"] * 2)))
    yield case(
        "broker-keys", describe(version, (BROKER, "1", ["log.retention.ms", "zookeeper.connect"]))
    )
    yield case("nothing", describe(version))
    yield case("unknown-topic", describe(version, (TOPIC, "no-such", None)))
    yield case("bad-topic", describe(version, (TOPIC, "a b", None), (TOPIC, "", None)))
    yield case(
        "other-broker",
        describe(version, (BROKER, "2", None), (BROKER, "x", None), (BROKER, "-1", None)),
    )
    for kind in (0, 1, 3, 5, 16, 32, 99, -1):
        yield case(f"type-{kind}", describe(version, (kind, "configured", None)))
    yield case("logger-unknown-broker", describe(version, (LOGGER, "7", None), (LOGGER, "", None)))
    yield case("loggers-root", describe(version, (LOGGER, "1", ["root"])))
    yield case(
        "twice",
        describe(
            version, (TOPIC, "configured", ["retention.ms"]), (TOPIC, "configured", ["segment.ms"])
        ),
    )
    yield case(
        "mixed",
        describe(
            version,
            (TOPIC, "configured", ["retention.ms"]),
            (TOPIC, "no-such", None),
            (BROKER, "1", ["num.io.threads"]),
        ),
    )


def replacement(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    keys = ["retention.ms", "segment.bytes", "cleanup.policy"]

    def case(
        word: str, values: Sequence[tuple[str, str | None]], *, validate: bool = False
    ) -> Case:
        name = f"alter-configs-{word}{suffix}"
        return Case(
            name,
            [
                alter(version, (TOPIC, name, values), validate=validate),
                describe(4, (TOPIC, name, keys), synonyms=True),
            ],
            setup=[Topic(name, config={"retention.ms": "111"})],
        )

    yield case("replaces", [("segment.bytes", "2000")])
    yield case("empties", [])
    yield case("validates", [("segment.bytes", "2000")], validate=True)
    yield case("same-key-twice", [("retention.ms", "1"), ("retention.ms", "2")])
    yield case("null-value", [("retention.ms", None)])
    yield case("unknown-key", [("no.such", "1")])
    yield case("bad-value", [("retention.ms", "x"), ("segment.bytes", "2000")])
    yield case("bad-value-validated", [("retention.ms", "x")], validate=True)
    yield from resources(
        "alter-configs",
        version,
        lambda *r: alter(version, *((k, n, [("retention.ms", "5")]) for k, n in r)),
    )
    name = f"alter-configs-resource-twice{suffix}"
    yield Case(
        name,
        [alter(version, (TOPIC, name, [("retention.ms", "1")]), (TOPIC, name, []))],
        setup=[Topic(name)],
        differs="AlterConfigs with one resource twice",
    )
    name = f"alter-configs-two{suffix}"
    yield Case(
        name,
        [alter(version, (TOPIC, name, [("retention.ms", "1")]), (TOPIC, "no-such", []))],
        setup=[Topic(name)],
        unordered=("responses",),
    )
    yield Case(f"alter-configs-nothing{suffix}", [alter(version)])
    for word, values in {
        "static": [("zookeeper.connect", "x")],
        "unknown": [("no.such.broker.key", "1")],
        "bad": [("log.cleaner.threads", "x")],
        "dynamic": [("log.cleaner.threads", "1")],
        "nothing": [],
    }.items():
        for broker in ("1", ""):
            yield Case(
                f"alter-configs-broker-{broker or 'default'}-{word}{suffix}",
                [
                    alter(version, (BROKER, broker, values)),
                    eventually(
                        word == "dynamic",
                        describe(4, (BROKER, "1", ["log.cleaner.threads"]), synonyms=True),
                    ),
                ],
                cleanup=[alter(version, (BROKER, broker, [])), unchanged()],
            )


def resources(word: str, version: int, make: object) -> Iterator[Case]:
    wanted = {
        "unknown-topic": (TOPIC, "no-such"),
        "bad-topic": (TOPIC, "a b"),
        "empty-topic": (TOPIC, ""),
        "other-broker": (BROKER, "2"),
        "broker-no-number": (BROKER, "x"),
        "broker-negative": (BROKER, "-1"),
        "type-0": (0, "x"),
        "type-1": (1, "x"),
        "type-3": (3, "x"),
        "type-16": (16, "x"),
        "type-32": (32, "x"),
        "type-99": (99, "x"),
        "type-minus-1": (-1, "x"),
        "logger": (LOGGER, "1"),
    }
    for kind, resource in wanted.items():
        yield Case(f"{word}-{kind}-v{version}", [make(resource)])  # type: ignore[operator]


def changes(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    keys = ["retention.ms", "segment.bytes", "cleanup.policy"]

    def case(
        word: str, values: Sequence[tuple[str, int, str | None]], *, validate: bool = False
    ) -> Case:
        name = f"change-configs-{word}{suffix}"
        return Case(
            name,
            [
                change(version, (TOPIC, name, values), validate=validate),
                describe(4, (TOPIC, name, keys), synonyms=True),
            ],
            setup=[Topic(name, config={"retention.ms": "111"})],
        )

    yield case("set", [("segment.bytes", SET, "2000")])
    yield case("set-validated", [("segment.bytes", SET, "2000")], validate=True)
    yield case("delete", [("retention.ms", DELETE, None)])
    yield case("delete-with-value", [("retention.ms", DELETE, "7")])
    yield case("delete-unset", [("segment.bytes", DELETE, None)])
    yield case("delete-unknown", [("no.such", DELETE, None)])
    yield case("append", [("cleanup.policy", APPEND, "compact")])
    yield case("append-same", [("cleanup.policy", APPEND, "delete")])
    yield case("append-two", [("cleanup.policy", APPEND, "compact,delete")])
    yield case("append-to-number", [("retention.ms", APPEND, "5")])
    yield case("append-null", [("cleanup.policy", APPEND, None)])
    yield case("append-bad", [("cleanup.policy", APPEND, "shred")])
    yield case("subtract", [("cleanup.policy", SUBTRACT, "delete")])
    yield case("subtract-absent", [("cleanup.policy", SUBTRACT, "compact")])
    yield case("subtract-from-number", [("retention.ms", SUBTRACT, "5")])
    yield case("set-null", [("retention.ms", SET, None)])
    yield case("set-bad", [("retention.ms", SET, "x")])
    yield case("set-unknown", [("no.such", SET, "x")])
    yield case("operation-4", [("retention.ms", 4, "5")])
    yield case("operation-minus-1", [("retention.ms", -1, "5")])
    yield case("same-key-twice", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)])
    yield case("nothing", [])
    yield case("two", [("retention.ms", SET, "5"), ("segment.bytes", SET, "2000")])
    yield case("one-good-one-bad", [("retention.ms", SET, "x"), ("segment.bytes", SET, "2000")])
    yield from resources(
        "change-configs",
        version,
        lambda *r: change(version, *((k, n, [("retention.ms", SET, "5")]) for k, n in r)),
    )
    name = f"change-configs-resource-twice{suffix}"
    yield Case(
        name,
        [
            change(
                version,
                (TOPIC, name, [("retention.ms", SET, "1")]),
                (TOPIC, name, [("segment.bytes", SET, "2000")]),
                (TOPIC, "no-such", []),
            )
        ],
        setup=[Topic(name)],
        unordered=("responses",),
    )
    yield Case(f"change-configs-none{suffix}", [change(version)])
    tries: dict[str, list[tuple[str, int, str | None]]] = {
        "static": [("zookeeper.connect", SET, "x")],
        "unknown": [("no.such.broker.key", SET, "1")],
        "bad": [("log.cleaner.threads", SET, "x")],
        "dynamic": [("log.cleaner.threads", SET, "1")],
        "retention": [("log.retention.ms", SET, "600000")],
        "listeners": [("listeners", SET, "PLAINTEXT://:1")],
        "connections": [("max.connections", SET, "1000")],
        "append": [("log.cleanup.policy", APPEND, "compact")],
        "delete": [("log.cleaner.threads", DELETE, None)],
        "delete-static": [("zookeeper.connect", DELETE, None)],
    }
    for word, values in tries.items():
        for broker in ("1", ""):
            yield Case(
                f"change-configs-broker-{broker or 'default'}-{word}{suffix}",
                [
                    change(version, (BROKER, broker, values)),
                    eventually(
                        word in ("unknown", "dynamic", "retention", "connections"),
                        describe(
                            4,
                            (
                                BROKER,
                                broker,
                                list(CHANGED),
                            ),
                            synonyms=True,
                        ),
                    ),
                ],
                cleanup=[alter(1, (BROKER, broker, [])), unchanged()],
            )
    for word, logger in {
        "unknown": ("no.such.logger", SET, "DEBUG"),
        "bad-level": ("root", SET, "LOUD"),
        "append": ("root", APPEND, "DEBUG"),
        "delete-root": ("root", DELETE, None),
    }.items():
        yield Case(
            f"change-configs-logger-{word}{suffix}", [change(version, (LOGGER, "1", [logger]))]
        )
