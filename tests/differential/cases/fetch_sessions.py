"""Fetch sessions (KIP-227)."""

from collections.abc import Iterator

from ..batches import batch
from ..case import Ask, Case, Topic
from ..run import produce
from .fetch import END, STOCK, fetch, partition

MINE = -1
"""Stands for the session of the last answer."""


def cases() -> Iterator[Case]:
    for version in (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17):
        yield from of_version(version)


def of_version(version: int) -> Iterator[Case]:
    def case(name: str, *asks: Ask, setup: tuple[Topic, ...] = ()) -> Case:
        return Case(
            f"session-{name}-v{version}",
            list(asks),
            setup=setup,
            uses=[STOCK],
            unordered=("responses", "partitions"),
        )

    def ask(*topics: tuple[str, list[object]], **more: object) -> Ask:
        return Ask(fetch(version, *topics, **more), version)  # type: ignore[arg-type]

    def stock(*parts: object) -> tuple[str, list[object]]:
        return ("stock", list(parts))

    begin = ask(stock(partition(0, 9), partition(2)), session=(0, 0))
    yield case("begins", begin)
    yield case("begins-and-goes-on", begin, ask(session=(MINE, 1)), ask(session=(MINE, 2)))
    yield case("ends", begin, ask(session=(MINE, -1)), ask(session=(MINE, 1)))
    yield case("restarts", begin, ask(stock(partition(1)), session=(MINE, 0)))
    yield case("unknown-id", ask(stock(partition(0)), session=(12345, 1)))
    yield case("unknown-id-epoch-0", ask(stock(partition(2)), session=(12345, 0)))
    yield case("unknown-id-final", ask(stock(partition(2)), session=(12345, -1)))
    yield case("id-0-epoch-1", ask(stock(partition(2)), session=(0, 1)))
    for epoch in (2, 3, -2):
        yield case(f"wrong-epoch-{epoch}", begin, ask(session=(MINE, epoch)))
    yield case("same-epoch-twice", begin, ask(session=(MINE, 1)), ask(session=(MINE, 1)))
    yield case("adds", begin, ask(stock(partition(3)), session=(MINE, 1)), ask(session=(MINE, 2)))
    yield case(
        "moves-offset",
        begin,
        ask(stock(partition(0, END)), session=(MINE, 1)),
        ask(session=(MINE, 2)),
        ask(stock(partition(0, 4)), session=(MINE, 3)),
    )
    yield case(
        "forgets",
        begin,
        ask(session=(MINE, 1), forgotten=[("stock", [0])]),
        ask(session=(MINE, 2)),
    )
    yield case(
        "forgets-unknown",
        begin,
        ask(session=(MINE, 1), forgotten=[("stock", [77]), ("no-such", [0])]),
    )
    yield case(
        "forgets-and-adds",
        begin,
        ask(stock(partition(1)), session=(MINE, 1), forgotten=[("stock", [1, 0])]),
        ask(session=(MINE, 2)),
    )
    yield case("forgets-all", begin, ask(session=(MINE, 1), forgotten=[("stock", [0, 2])]))
    yield case("begins-empty", ask(session=(0, 0)))
    yield case(
        "begins-with-errors",
        ask(stock(partition(0, 99), partition(55)), ("no-such", [partition(0)]), session=(0, 0)),
        ask(session=(MINE, 1)),
    )
    yield case(
        "error-comes-each-time",
        ask(stock(partition(0, 99), partition(2)), session=(0, 0)),
        ask(session=(MINE, 1)),
        ask(session=(MINE, 2)),
    )
    yield case(
        "error-ends",
        ask(stock(partition(0, 99)), session=(0, 0)),
        ask(stock(partition(0, END)), session=(MINE, 1)),
        ask(session=(MINE, 2)),
    )
    yield case("waits", begin, ask(session=(MINE, 1), max_wait_ms=50, min_bytes=100_000))
    if version >= 13:
        yield case("begins-with-zero-id", ask(("zero", [partition(0)]), session=(0, 0)))
        yield case("adds-zero-id", begin, ask(("zero", [partition(0)]), session=(MINE, 1)))
        yield case("adds-unknown-id", begin, ask(("no-such", [partition(0)]), session=(MINE, 1)))
        other = Ask(fetch(12, ("stock", [partition(1)]), session=(MINE, 1)), 12)
        yield case("names-after-ids", begin, other)
    if version == 12:
        other = Ask(fetch(13, ("stock", [partition(1)]), session=(MINE, 1)), 13)
        yield case("ids-after-names", begin, other)
    name = f"session-new-data-v{version}"
    yield Case(
        name,
        [
            ask((name, [partition(0), partition(1)]), session=(0, 0)),
            ask(session=(MINE, 1)),
            Ask(produce(name, batch(2), acks=0, partition=1), 9, answered=False),
            Ask(
                fetch(version, session=(-1, 2), max_wait_ms=10_000, min_bytes=1),
                version,
            ),
            ask((name, [partition(1, 2)]), session=(MINE, 3)),
        ],
        setup=[Topic(name, 2)],
        unordered=("responses", "partitions"),
    )
