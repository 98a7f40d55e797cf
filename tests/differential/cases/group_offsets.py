"""OffsetCommit, OffsetFetch and OffsetDelete, by members of groups and by others."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from kafkalike.messages.groups import DeleteGroupsRequest
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

from ..case import Ask, Case, Names, Topic, versions_of
from .groups import BOTH, UNORDERED, Story, ready

_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_CommitPartition = _CommitTopic.OffsetCommitRequestPartition
_FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopic
_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_FetchTopics = _FetchGroup.OffsetFetchRequestTopics
_DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
_DeletePartition = _DeleteTopic.OffsetDeleteRequestPartition

READ = Topic("groups-read", 3)
OTHER = Topic("groups-other", 2)
USES = (READ, OTHER)
Where = Sequence[tuple[str, Sequence[int]]]
SOME: Where = (("groups-read", (0, 1)),)
NOWHERE: Where = (("groups-read", (0, 7, -1)), ("groups-none", (0,)), ("", (0,)))


class Offsets(Story):
    """A story about offsets; `used` are other groups that it leaves behind."""

    used: Sequence[str] = ()
    uses: Sequence[Topic] = USES

    def commit(
        self,
        version: int = 9,
        where: Where = SOME,
        *,
        who: str = "",
        generation: int | None = -1,
        instance: str | None = None,
        group: str | None = None,
        offset: int = 5,
        metadata: str | None = "m",
        retention: int = -1,
        epoch: int = -1,
        **more: Any,
    ) -> Self:
        def message(names: Names) -> OffsetCommitRequest:
            now = self.generation(names) if generation is None else generation
            return OffsetCommitRequest(
                group_id=self.group if group is None else group,
                generation_id_or_member_epoch=now if version >= 1 else -1,
                member_id=self.member_id(who) if version >= 1 else "",
                group_instance_id=instance if version >= 7 else None,
                retention_time_ms=retention,
                topics=[
                    _CommitTopic(
                        name=name,
                        partitions=[
                            _CommitPartition(
                                partition_index=index,
                                committed_offset=offset + index,
                                committed_leader_epoch=epoch,
                                committed_metadata=metadata,
                            )
                            for index in partitions
                        ],
                    )
                    for name, partitions in where
                ],
            )

        self.do(message, version, **more)
        return self

    def fetch(
        self,
        version: int = 9,
        where: Where | None = SOME,
        *,
        stable: bool = False,
        group: str | None = None,
        **more: Any,
    ) -> Self:
        asked = self.group if group is None else group
        if version >= 8:
            message = OffsetFetchRequest(groups=[_group(asked, where)])
        else:
            topics = None
            if where is not None:
                topics = [_FetchTopic(name=n, partition_indexes=list(p)) for n, p in where]
            message = OffsetFetchRequest(group_id=asked, topics=topics)
        message.require_stable = stable
        self.do(message, version, **more)
        return self

    def forget(self, where: Where = SOME, *, group: str | None = None, **more: Any) -> Self:
        self.do(
            OffsetDeleteRequest(
                group_id=self.group if group is None else group,
                topics=[
                    _DeleteTopic(
                        name=name, partitions=[_DeletePartition(partition_index=i) for i in indexes]
                    )
                    for name, indexes in where
                ],
            ),
            0,
            **more,
        )
        return self

    def case(self, name: str, **more: Any) -> Case:
        return Case(
            name,
            self.steps,
            setup=ready(self.group),
            uses=self.uses,
            cleanup=[Ask(DeleteGroupsRequest(groups_names=["", *self.used]), 2)],
            unordered=UNORDERED,
            **more,
        )


def _group(name: str, where: Where | None) -> _FetchGroup:
    topics = None
    if where is not None:
        topics = [_FetchTopics(name=n, partition_indexes=list(p)) for n, p in where]
    return _FetchGroup(group_id=name, topics=topics)


def cases() -> Iterator[Case]:
    for version in versions_of(OffsetCommitRequest):
        yield simple(version)
        if version >= 1:
            yield by_members(version)
    for version in versions_of(OffsetFetchRequest):
        yield fetched(version)
    yield by_static_members()
    yield many_groups()
    story = Offsets("offsets-no-groups").do(OffsetFetchRequest(groups=[]), 8)
    yield story.case("offset-fetch-no-groups", differs="OffsetFetch 8 and up without groups")
    yield from deleted()


def simple(version: int) -> Case:
    """Somebody outside the group protocol."""
    story = Offsets(f"offsets-simple-{version}")
    story.commit(version, NOWHERE).describe()
    story.commit(version, ()).commit(version, (("groups-read", ()),)).describe()
    story.commit(version).describe()
    story.fetch(min(version, 9)).fetch(1).fetch(5)
    story.commit(version, offset=2, metadata=None).fetch(5)
    story.commit(version, offset=-5, metadata="").fetch(5)
    story.commit(version, epoch=-1 if version < 6 else 4).fetch(9)
    for metadata in ("x" * 4096, "x" * 4097, "\u00e4" * 4096, "\U0001f600" * 2048, "\u00e4" * 4097):
        story.commit(version, metadata=metadata, offset=len(metadata))
    story.fetch(9, (("groups-read", (0, 1, 2)),))
    if 2 <= version <= 4:
        story.commit(version, retention=60_000, offset=70).fetch(5)
        story.commit(version, retention=0, offset=80).fetch(5)
        story.commit(version, retention=-2, offset=90).fetch(5)
    story.commit(version, group="").fetch(5, group="")
    if version >= 1:
        story.commit(version, who="x").commit(version, generation=3)
        story.commit(version, generation=0).commit(version, generation=-7, offset=77)
        story.commit(version, generation=3, group="offsets-unknown-a").fetch(
            5, group="offsets-unknown-a"
        )
        story.commit(version, who="x", group=f"offsets-made-{version}")
        story.fetch(5, group=f"offsets-made-{version}")
    if version >= 7:
        story.commit(version, instance="i")
    story.used = (f"offsets-made-{version}", "offsets-unknown-a")
    story.delete()
    story.fetch(5).describe()
    return story.case(f"offset-commit-simple-v{version}")


def by_members(version: int) -> Case:
    story = Offsets(f"offsets-member-{version}")

    def everybody() -> None:
        for generation in (None, -1, 0, 9):
            for who in ("a", "x", ""):
                story.commit(version, who=who, generation=generation)

    story.enter("a", protocols=BOTH)
    everybody()
    story.sync("a", ["a"])
    everybody()
    story.fetch(9)
    story.enter("b", via="b", answered=False).wait_for("PreparingRebalance")
    everybody()
    story.commit(version, who="a", generation=None, offset=300).fetch(9)
    story.join("a", protocols=BOTH).take("b")
    story.leave(("a", None), ("b", None))
    everybody()
    story.fetch(9).fetch(9, None)
    return story.case(f"offset-commit-members-v{version}")


def by_static_members() -> Case:
    story = Offsets("offsets-static")
    story.join(None, instance="i").learned("a")
    story.sync("a", ["a"], instance="i")
    for instance in ("i", "j", None):
        for who in ("a", "x", ""):
            story.commit(9, who=who, generation=None, instance=instance)
            story.commit(9, who=who, instance=instance)
    story.join(None, instance="i").learned("b")
    for who in ("a", "b"):
        story.commit(9, who=who, generation=None, instance="i")
    story.fetch()
    return story.case("offset-commit-static")


def fetched(version: int) -> Case:
    story = Offsets(f"offsets-fetched-{version}")
    everywhere: Where = (("groups-read", (0, 1, 2)), ("groups-other", (0,)))

    def ask() -> None:
        story.fetch(version, everywhere).fetch(version, NOWHERE).fetch(version, ())
        story.fetch(version, (("groups-read", ()),))
        story.fetch(version, everywhere, group="").fetch(version, SOME, group="offsets-unknown")
        if version >= 2:
            story.fetch(version, None).fetch(version, None, group="offsets-unknown")
        if version >= 7:
            story.fetch(version, everywhere, stable=True)

    ask()
    if version == 0:
        story.commit(0)
    else:
        story.commit(6, epoch=3)
    ask()
    story.commit(6, (("groups-other", (0, 1)), ("groups-read", (1,))), offset=40, metadata="")
    ask()
    story.enter("a").sync("a", ["a"])
    ask()
    return story.case(f"offset-fetch-v{version}")


def many_groups() -> Case:
    story = Offsets("offsets-many")
    story.used = ("offsets-many", "offsets-many-2")
    story.commit(9).commit(9, group="offsets-many-2", offset=9)
    for version in (8, 9):
        story.do(
            OffsetFetchRequest(
                groups=[
                    _group("offsets-many", SOME),
                    _group("offsets-many-2", None),
                    _group("offsets-many-3", None),
                    _group("", SOME),
                    _group("offsets-many", ()),
                ]
            ),
            version,
        )
    story.do(
        OffsetFetchRequest(
            groups=[
                _FetchGroup(
                    group_id="offsets-many",
                    member_id="x",
                    member_epoch=3,
                    topics=[_FetchTopics(name="groups-read", partition_indexes=[0])],
                )
            ]
        ),
        9,
    )
    return story.case("offset-fetch-many-groups")


def deleted() -> Iterator[Case]:
    story = Offsets("offsets-deleted")
    story.forget().forget(NOWHERE).forget(group="").forget(())
    story.commit(9, (("groups-read", (0, 1)), ("groups-other", (0,))))
    story.forget(NOWHERE).fetch(9, None)
    story.forget(()).forget((("groups-read", ()),))
    story.forget(SOME).fetch(9, None).forget(SOME).describe()
    story.forget((("groups-other", (0, 1)),)).fetch(9, None).describe()
    yield story.case("offset-delete-simple")

    last = Offsets("offsets-deleted-last")
    last.commit(9).listed().forget().listed()
    yield last.case("offset-delete-last", only="offsets-deleted-last")

    active = Offsets("offsets-deleted-active")
    active.enter("a")
    active.commit(9, (("groups-read", (0,)),), who="a", generation=None)
    active.forget()
    active.sync("a", ["a"])
    both: Where = (("groups-read", (0,)), ("groups-other", (0,)), ("groups-none", (0,)))
    active.commit(9, (("groups-read", (0,)), ("groups-other", (0,))), who="a", generation=None)
    active.forget(both).fetch(9, (("groups-read", (0,)), ("groups-other", (0,))))
    active.delete()
    active.leave(("a", None)).forget(both).fetch(9, (("groups-read", (0,)),)).describe()
    yield active.case("offset-delete-active")

    other = Offsets("offsets-deleted-connect")
    other.enter("a", kind="connect", protocols=(("v1", b"1"),))
    other.sync("a", ["a"], kind="connect", name="v1")
    other.commit(9, who="a", generation=None).forget().leave(("a", None)).forget().describe()
    yield other.case("offset-delete-connect")

    odd = Offsets("offsets-deleted-odd")
    odd.enter("a", protocols=(("range", b"\0"),)).sync("a", ["a"])
    odd.commit(9, who="a", generation=None).forget().fetch()
    yield odd.case("offset-delete-unreadable-subscription")
