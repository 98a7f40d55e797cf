"""DeleteRecords."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.topics import DeleteRecordsRequest

from ..batches import batch
from ..case import Ask, Case, Topic, versions_of
from .offsets import offsets
from .produce import read

_Topic = DeleteRecordsRequest.DeleteRecordsTopic


def delete(
    *topics: tuple[str, Sequence[tuple[int, int]]], timeout_ms: int = 30_000
) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            _Topic(
                name=name,
                partitions=[
                    _Topic.DeleteRecordsPartition(partition_index=number, offset=offset)
                    for number, offset in wanted
                ],
            )
            for name, wanted in topics
        ],
    )


def cases() -> Iterator[Case]:
    for version in versions_of(DeleteRecordsRequest):
        for offset in (0, 1, 3, 4, 6, -1, 7, -2, 2**63 - 1):
            name = f"delete-records-to-{offset}-v{version}"
            yield Case(
                name,
                [
                    Ask(delete((name, [(0, offset)])), version),
                    Ask(offsets(1, (name, [(0, -2)])), 1),
                    read(name),
                    read(name, 3),
                ],
                setup=[Topic(name, batches={0: [batch(3), batch(3)]})],
            )
        for policy in ("compact", "compact,delete"):
            name = f"delete-records-{policy.replace(',', '-')}-v{version}"
            yield Case(
                name,
                [Ask(delete((name, [(0, 2)])), version)],
                setup=[Topic(name, config={"cleanup.policy": policy}, batches={0: [batch(3)]})],
            )
        name = f"delete-records-backwards-v{version}"
        yield Case(
            name,
            [Ask(delete((name, [(0, offset)])), version) for offset in (4, 2, 4, -1, 0)],
            setup=[Topic(name, batches={0: [batch(6)]})],
        )
        name = f"delete-records-several-v{version}"
        wanted = delete(
            (name, [(0, 1), (5, 1), (1, 1), (-1, 1)]), ("no-such", [(0, 0)]), ("a b", [])
        )
        yield Case(
            name,
            [Ask(wanted, version)],
            setup=[Topic(name, 2, batches={0: [batch(2)], 1: [batch(2)]})],
            unordered=("topics", "partitions"),
        )
        name = f"delete-records-twice-v{version}"
        yield Case(
            name,
            [Ask(delete((name, [(0, 1), (0, 2)])), version)],
            setup=[Topic(name, batches={0: [batch(3)]})],
        )
        yield Case(f"delete-records-nothing-v{version}", [Ask(delete(), version)])
        internal = delete(("__consumer_offsets", [(0, 0)]), ("__transaction_state", [(0, 0)]))
        yield Case(
            f"delete-records-internal-v{version}", [Ask(internal, version)], unordered=("topics",)
        )
        for limit in (0, -1):
            name = f"delete-records-timeout-{limit}-v{version}"
            yield Case(
                name,
                [Ask(delete((name, [(0, 2)]), timeout_ms=limit), version)],
                setup=[Topic(name, batches={0: [batch(3)]})],
            )
