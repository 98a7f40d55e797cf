"""Producer ids, producers, elections, reassignments, log directories, features."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from kafkalike.messages.transactions import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from ..batches import batch, sequenced
from ..case import Ask, Case, Topic, versions_of

STOCK = Topic("stock-cluster", 2, batches={0: [batch(3), sequenced(9000, 2, 0, 2)], 1: [batch(1)]})
_Elect = ElectLeadersRequest.TopicPartitions
_Move = AlterPartitionReassignmentsRequest.ReassignableTopic
_Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
_Dirs = DescribeLogDirsRequest.DescribableLogDirTopic
_Feature = UpdateFeaturesRequest.FeatureUpdateKey


def case(name: str, *steps: Ask) -> Case:
    return Case(
        name,
        list(steps),
        uses=[STOCK],
        only="stock-cluster" if "-all-" in name else "",
        unordered=(
            "partition_result",
            "topics",
            "results",
            "responses",
            "partitions",
            "replica_election_results",
        ),
    )


def cases() -> Iterator[Case]:
    yield from producer_ids()
    yield from producers()
    yield from elections()
    yield from reassignments()
    yield from log_dirs()
    yield from features()


def has_block(answer: InitProducerIdResponse) -> bool:
    """While a broker waits for its next block of ids, it says COORDINATOR_LOAD_IN_PROGRESS."""
    return answer.error_code != 14


def producer_ids() -> Iterator[Case]:
    for version in versions_of(InitProducerIdRequest):
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        yield case(
            f"init-producer-id-v{version}",
            Ask(plain, version, until=has_block),
            Ask(plain, version, until=has_block),
        )
        for limit in (0, -1, 2**31 - 1):
            message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=limit)
            yield case(
                f"init-producer-id-timeout-{limit}-v{version}",
                Ask(message, version, until=has_block),
            )
        yield case(
            f"init-producer-id-empty-transactional-id-v{version}",
            Ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version),
        )
        if version >= 3:
            for producer_id, epoch in ((5, -1), (-1, 5), (5, 5), (-2, -2), (2**63 - 1, 32767)):
                message = InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=1000,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                )
                yield case(
                    f"init-producer-id-{producer_id}-{epoch}-v{version}", Ask(message, version)
                )


def producers() -> Iterator[Case]:
    def ask(*topics: tuple[str, Sequence[int]]) -> Ask:
        return Ask(
            DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.TopicRequest(
                        name=name, partition_indexes=list(numbers)
                    )
                    for name, numbers in topics
                ]
            ),
            0,
        )

    yield case("describe-producers", ask(("stock-cluster", [0, 1])))
    yield case("describe-producers-nothing", ask())
    yield case("describe-producers-no-partitions", ask(("stock-cluster", [])))
    yield case("describe-producers-unknown", ask(("no-such", [0]), ("stock-cluster", [9, -1])))
    yield case("describe-producers-bad-name", ask(("a b", [0]), ("", [0])))
    yield case("describe-producers-twice", ask(("stock-cluster", [0, 0])))


def elections() -> Iterator[Case]:
    for version in versions_of(ElectLeadersRequest):
        kinds = (0,) if version == 0 else (0, 1, 2, -1)
        for kind in kinds:

            def ask(
                *topics: tuple[str, Sequence[int]] | None,
                kind: int = kind,
                version: int = version,
                timeout_ms: int = 30_000,
            ) -> Ask:
                wanted = [_Elect(topic=t[0], partitions=list(t[1])) for t in topics if t]
                return Ask(
                    ElectLeadersRequest(
                        election_type=kind,
                        topic_partitions=None if None in topics else wanted,
                        timeout_ms=timeout_ms,
                    ),
                    version,
                )

            suffix = f"{kind}-v{version}"
            yield case(f"elect-{suffix}", ask(("stock-cluster", [0, 1])))
            yield case(f"elect-null-{suffix}", ask(None))
            yield case(f"elect-nothing-{suffix}", ask())
            yield case(f"elect-no-partitions-{suffix}", ask(("stock-cluster", [])))
            yield case(f"elect-unknown-{suffix}", ask(("no-such", [0]), ("stock-cluster", [7, -1])))
            yield case(f"elect-twice-{suffix}", ask(("stock-cluster", [0, 0])))
            yield case(f"elect-timeout-{suffix}", ask(("stock-cluster", [0]), timeout_ms=0))


def reassignments() -> Iterator[Case]:
    def move(*wanted: tuple[str, int, Sequence[int] | None], timeout_ms: int = 30_000) -> Ask:
        return Ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=timeout_ms,
                topics=[
                    _Move(
                        name=name,
                        partitions=[
                            _Move.ReassignablePartition(
                                partition_index=number,
                                replicas=None if replicas is None else list(replicas),
                            )
                        ],
                    )
                    for name, number, replicas in wanted
                ],
            ),
            0,
        )

    tries: dict[str, tuple[str, int, Sequence[int] | None]] = {
        "to-itself": ("stock-cluster", 0, [1]),
        "cancel-nothing": ("stock-cluster", 0, None),
        "to-unknown-broker": ("stock-cluster", 0, [9]),
        "to-negative": ("stock-cluster", 0, [-1]),
        "to-nobody": ("stock-cluster", 0, []),
        "duplicate": ("stock-cluster", 0, [1, 1]),
        "unknown-topic": ("no-such", 0, [1]),
        "unknown-topic-cancel": ("no-such", 0, None),
        "unknown-partition": ("stock-cluster", 8, [1]),
        "negative-partition": ("stock-cluster", -1, [1]),
        "bad-name": ("a b", 0, [1]),
    }
    for word, wanted in tries.items():
        yield case(f"reassign-{word}", move(wanted))
    yield case("reassign-nothing", move())
    yield case("reassign-timeout", move(tries["to-itself"], timeout_ms=0))
    yield case(
        "reassign-several",
        move(tries["to-itself"], tries["unknown-topic"], ("stock-cluster", 1, [9])),
    )

    def listed(*topics: tuple[str, Sequence[int]], everything: bool = False) -> Ask:
        wanted = [_Listed(name=name, partition_indexes=list(numbers)) for name, numbers in topics]
        return Ask(ListPartitionReassignmentsRequest(topics=None if everything else wanted), 0)

    yield case("list-reassignments-all-null", listed(everything=True))
    yield case("list-reassignments-nothing", listed())
    yield case("list-reassignments-one", listed(("stock-cluster", [0, 1])))
    yield case("list-reassignments-unknown", listed(("no-such", [0]), ("stock-cluster", [9])))


def log_dirs() -> Iterator[Case]:
    for version in versions_of(DescribeLogDirsRequest):

        def ask(
            *topics: tuple[str, Sequence[int]], everything: bool = False, version: int = version
        ) -> Ask:
            wanted = [_Dirs(topic=name, partitions=list(numbers)) for name, numbers in topics]
            return Ask(DescribeLogDirsRequest(topics=None if everything else wanted), version)

        yield case(f"log-dirs-one-v{version}", ask(("stock-cluster", [0])))
        yield case(f"log-dirs-two-v{version}", ask(("stock-cluster", [0, 1])))
        yield case(f"log-dirs-nothing-v{version}", ask())
        yield case(
            f"log-dirs-unknown-v{version}", ask(("no-such", [0]), ("stock-cluster", [9, -1]))
        )
        yield case(f"log-dirs-twice-v{version}", ask(("stock-cluster", [1, 1])))
        yield case(f"log-dirs-all-v{version}", ask(everything=True))
        yield case(f"log-dirs-no-partitions-v{version}", ask(("stock-cluster", [])))


def features() -> Iterator[Case]:
    for version in versions_of(UpdateFeaturesRequest):

        def ask(*updates: tuple[str, int], timeout_ms: int = 30_000, version: int = version) -> Ask:
            return Ask(
                UpdateFeaturesRequest(
                    timeout_ms=timeout_ms,
                    feature_updates=[
                        _Feature(feature=name, max_version_level=level) for name, level in updates
                    ],
                ),
                version,
            )

        yield case(f"features-nothing-v{version}", ask())
        yield case(f"features-unknown-v{version}", ask(("no.such", 1)))
        yield case(f"features-metadata-version-v{version}", ask(("metadata.version", 10)))
        yield case(f"features-delete-v{version}", ask(("no.such", 0)))
        yield case(f"features-negative-v{version}", ask(("no.such", -1)))
        yield case(f"features-twice-v{version}", ask(("no.such", 1), ("no.such", 2)))
        yield case(f"features-empty-name-v{version}", ask(("", 1)))
        if version >= 1:
            for kind in (0, 2, 3, 9):
                message = UpdateFeaturesRequest(
                    feature_updates=[
                        _Feature(feature="no.such", max_version_level=1, upgrade_type=kind)
                    ]
                )
                yield case(f"features-type-{kind}-v{version}", Ask(message, version))
            only = UpdateFeaturesRequest(
                feature_updates=[_Feature(feature="no.such", max_version_level=1)],
                validate_only=True,
            )
            yield case(f"features-validate-v{version}", Ask(only, version))
