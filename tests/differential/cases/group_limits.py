"""Groups with as many members as there may be, commits that fit no batch, offsets of transactions."""

from collections.abc import Iterator
from typing import Any

from kafkalike.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from kafkalike.messages.offsets import OffsetCommitRequest
from kafkalike.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from ..case import Case, Names, Topic, versions_of
from .group_offsets import OTHER, READ, Offsets, Where
from .groups import Story

WIDE = Topic("groups-wide", 100)
"""Metadata of all its partitions, each as long as it may be, fit no batch of the groups' topic."""

EVERYWHERE: Where = (("groups-wide", range(WIDE.partitions)),)
LONGEST = "\u20ac" * 4096


def cases() -> Iterator[Case]:
    for version in versions_of(JoinGroupRequest):
        yield full(version)
    yield full_while_joining()
    yield full_of_static_members()
    for version in versions_of(OffsetCommitRequest):
        if version >= 1:
            yield too_large(version)
    yield unstable()


def crowd(story: Story, *whom: str, **more: Any) -> None:
    """`whom` come into a group of `a`, which leads; all have their answers afterwards."""
    for count, who in enumerate(whom, 2):
        story.enter(who, via=who, answered=False, **more)
        story.wait_for_members(count)
    story.join("a", **more)
    for who in whom:
        story.take(who).learned(who)


def full(version: int) -> Case:
    """Four members, and others that want to come."""
    story = Story(f"groups-full-{version}", version)
    story.enter("a")
    if version < 4:
        story.learned("a")
    crowd(story, "b", "c", "d")

    def others() -> None:
        story.join(None)
        if version >= 5:
            story.join(None, instance="i")
        story.join("somebody").describe().beat("a").join("b")

    others()
    for who in "bcd":
        story.sync(who, via=who, answered=False)
    story.sync("a", ["a", "b", "c", "d"])
    for who in "bcd":
        story.take(who)
    others()
    story.leave(("d", None)).join(None, via="e", answered=version >= 4)
    if version >= 4:
        story.join("e", learn="e", via="e", answered=False)
    story.wait_for_members(4)
    story.join("b", via="b", answered=False).join("c", via="c", answered=False)
    story.join("a").take("b").take("c").take("e").describe()
    return story.case(f"group-full-v{version}")


def full_while_joining() -> Case:
    """Ids were given out while there was room; those who join last find none."""
    story = Story("groups-full-joining")
    story.enter("a")
    crowd(story, "b", "c")
    story.join(None).learned("x").join(None).learned("y").describe()
    story.join("x", via="x", answered=False).wait_for_members(4)
    story.join("y", via="y", answered=False).wait_for_members(5)
    story.join("a", via="a", answered=False).wait_for_members(5).join("z")
    story.join("b", via="b", answered=False).describe()
    story.join("c").take("a").take("b").take("x").take("y").describe()
    story.beat("c").leave(("c", None))
    return story.case("group-full-while-joining")


def full_of_static_members() -> Case:
    """A member that takes the place of its former self needs room of its own."""
    story = Story("groups-full-static")
    story.enter("a")
    crowd(story, "b", "c")
    story.join(None, instance="i", via="d", answered=False).wait_for_members(4)
    story.join("b", via="b", answered=False).join("c", via="c", answered=False)
    story.join("a").take("b").take("c").take("d").learned("d").describe()
    story.join(None, instance="i").join(None, instance="j").join("d", instance="i").describe()
    return story.case("group-full-static")


class Wide(Offsets):
    """A story that uses the wide topic too."""

    uses = (READ, OTHER, WIDE)


def too_large(version: int) -> Case:
    story = Wide(f"offsets-large-{version}")
    story.commit(version, EVERYWHERE, metadata=LONGEST)
    story.fetch(9, None).describe()
    story.commit(version, (("groups-wide", range(3)),)).fetch(9, None)
    story.commit(version, EVERYWHERE, metadata=LONGEST, offset=50).fetch(9, None)
    story.enter("a")
    story.commit(version, EVERYWHERE, metadata=LONGEST, who="a", generation=None)
    story.sync("a", ["a"])
    story.commit(version, EVERYWHERE, metadata=LONGEST, who="a", generation=None).beat("a")
    return story.case(f"offset-commit-too-large-v{version}")


def unstable() -> Case:
    """An offset in a transaction that is open, then ended."""
    story = Offsets("offsets-unstable")
    transaction = "offsets-transaction"
    story.commit(9)

    def producer(names: Names) -> tuple[int, int]:
        known = [a for a in names.answers if type(a).__name__ == "InitProducerIdResponse"]
        return (known[-1].producer_id, known[-1].producer_epoch)

    def add(names: Names) -> AddOffsetsToTxnRequest:
        producer_id, epoch = producer(names)
        return AddOffsetsToTxnRequest(
            transactional_id=transaction,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=story.group,
        )

    def commit(names: Names) -> TxnOffsetCommitRequest:
        producer_id, epoch = producer(names)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=70)
        return TxnOffsetCommitRequest(
            transactional_id=transaction,
            group_id=story.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[topic(name="groups-read", partitions=[part])],
        )

    def end(names: Names) -> EndTxnRequest:
        producer_id, epoch = producer(names)
        return EndTxnRequest(
            transactional_id=transaction,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )

    def begun(answer: Any) -> bool:
        return answer.error_code not in (14, 16, 51)

    find = FindCoordinatorRequest(coordinator_keys=[transaction], key_type=1)
    begin = InitProducerIdRequest(transactional_id=transaction, transaction_timeout_ms=60_000)
    story.do(find, 4)
    story.do(begin, 4, until=begun)
    story.do(add, 3, until=begun).do(commit, 3)
    for version in (7, 8, 9):
        story.fetch(version, stable=True).fetch(version)
    story.do(end, 3, until=begun)

    def decided(answer: Any) -> bool:
        return all(p.error_code == 0 for p in answer.groups[0].topics[0].partitions)

    story.fetch(9, stable=True, until=decided)
    return story.case("offset-fetch-unstable", differs="An offset in an open transaction")
