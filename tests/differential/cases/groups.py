"""FindCoordinator, membership of groups in each state, and looking at groups."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from kafkalike.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_versioned,
)

from ..case import Ask, Await, Case, Names, Step, versions_of

_Protocol = JoinGroupRequest.JoinGroupRequestProtocol
_Assigned = SyncGroupRequest.SyncGroupRequestAssignment
_Leaving = LeaveGroupRequest.MemberIdentity
Protocols = Sequence[tuple[str, bytes]]

SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["groups-read"]), 1)
OTHER_SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["groups-other"]), 1)
ASSIGNMENT = encode_versioned(
    ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic="groups-read", partitions=[0, 1])
        ]
    ),
    1,
)
RANGE: Protocols = (("range", SUBSCRIPTION),)
BOTH: Protocols = (("range", SUBSCRIPTION), ("sticky", b"\1\2"))
UNORDERED = ("members", "groups", "topics", "partitions", "results")


def found(answer: Any) -> bool:
    code: int = answer.coordinators[0].error_code
    return code == 0


def served(answer: Any) -> bool:
    return answer.groups[0].error_code not in (14, 15, 16)


def ready(group: str) -> list[Ask]:
    """The topic of the groups exists, and the broker has loaded the group's partition."""
    return [
        Ask(FindCoordinatorRequest(coordinator_keys=[group]), 4, until=found),
        Ask(DescribeGroupsRequest(groups=[group]), 5, until=served),
    ]


class Story:
    """Steps with one group; remembers which answer told which member's id."""

    def __init__(self, group: str, version: int = 9) -> None:
        self.group = group
        self.version = version
        self.steps: list[Step] = []
        self._ids: dict[str, str] = {}
        """Member ids of the present run, by the name that the story uses."""

    def do(self, message: Any, version: int, **more: Any) -> Self:
        self.steps.append(Ask(message, version, **more))
        return self

    def member_id(self, who: str | None) -> str:
        return "" if who is None else self._ids.get(who, who)

    def generation(self, names: Names) -> int:
        known = [a.generation_id for a in names.answers if getattr(a, "generation_id", -1) > 0]
        return known[-1] if known else -1

    def join(
        self,
        who: str | None = None,
        *,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        version: int | None = None,
        instance: str | None = None,
        session_ms: int = 30_000,
        rebalance_ms: int = 60_000,
        group: str | None = None,
        learn: str | None = None,
        **more: Any,
    ) -> Self:
        """`who` joins (None: without an id); `learn` names whose id the answer before told."""
        version = self.version if version is None else version

        def message(names: Names) -> JoinGroupRequest:
            if learn is not None:
                self._ids[learn] = names.last.member_id
            return JoinGroupRequest(
                group_id=self.group if group is None else group,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                member_id=self.member_id(who),
                group_instance_id=instance if version >= 5 else None,
                protocol_type=kind,
                protocols=[_Protocol(name=n, metadata=m) for n, m in protocols],
            )

        return self.do(message, version, **more)

    def enter(self, who: str, **more: Any) -> Self:
        """Join as somebody new, whatever the version asks for."""
        if self.version >= 4 and more.get("instance") is None:
            quiet = {k: v for k, v in more.items() if k not in ("answered", "via")}
            self.join(None, **quiet)
            return self.join(who, learn=who, **more)
        return self.join(None, **more)

    def learned(self, who: str) -> Self:
        """The answer before told this member's id."""

        def message(names: Names) -> HeartbeatRequest:
            self._ids[who] = names.last.member_id
            return HeartbeatRequest(group_id="groups-nobody", member_id="x")

        return self.do(message, 0)

    def sync(
        self,
        who: str,
        assignments: Sequence[str] = (),
        *,
        version: int = 5,
        generation: int | None = None,
        instance: str | None = None,
        kind: str | None = "consumer",
        name: str | None = "range",
        group: str | None = None,
        **more: Any,
    ) -> Self:
        def message(names: Names) -> SyncGroupRequest:
            return SyncGroupRequest(
                group_id=self.group if group is None else group,
                generation_id=self.generation(names) if generation is None else generation,
                member_id=self.member_id(who),
                group_instance_id=instance if version >= 3 else None,
                protocol_type=kind,
                protocol_name=name,
                assignments=[
                    _Assigned(member_id=self.member_id(one), assignment=ASSIGNMENT)
                    for one in assignments
                ],
            )

        return self.do(message, version, **more)

    def beat(
        self,
        who: str,
        *,
        version: int = 4,
        generation: int | None = None,
        instance: str | None = None,
        group: str | None = None,
        **more: Any,
    ) -> Self:
        def message(names: Names) -> HeartbeatRequest:
            return HeartbeatRequest(
                group_id=self.group if group is None else group,
                generation_id=self.generation(names) if generation is None else generation,
                member_id=self.member_id(who),
                group_instance_id=instance if version >= 3 else None,
            )

        return self.do(message, version, **more)

    def leave(
        self,
        *whom: tuple[str | None, str | None],
        version: int = 5,
        group: str | None = None,
        **more: Any,
    ) -> Self:
        """Each of (member, instance) leaves."""

        def message(names: Names) -> LeaveGroupRequest:
            request = LeaveGroupRequest(group_id=self.group if group is None else group)
            if version < 3:
                request.member_id = self.member_id(whom[0][0])
            else:
                request.members = [
                    _Leaving(member_id=self.member_id(who), group_instance_id=instance)
                    for who, instance in whom
                ]
            return request

        return self.do(message, version, **more)

    def describe(self, version: int = 5, **more: Any) -> Self:
        return self.do(DescribeGroupsRequest(groups=[self.group]), version, **more)

    def wait_for(self, state: str) -> Self:
        """Describe until the group has come to a state."""

        def there(answer: Any) -> bool:
            return bool(answer.groups[0].group_state == state)

        return self.do(DescribeGroupsRequest(groups=[self.group]), 5, until=there)

    def wait_for_members(self, count: int) -> Self:
        """Describe until the group has so many members."""

        def there(answer: Any) -> bool:
            return len(answer.groups[0].members) == count

        return self.do(DescribeGroupsRequest(groups=[self.group]), 5, until=there)

    def listed(self, *states: str, version: int = 5, **more: Any) -> Self:
        return self.do(ListGroupsRequest(states_filter=list(states)), version, **more)

    def delete(self, version: int = 2, **more: Any) -> Self:
        return self.do(DeleteGroupsRequest(groups_names=[self.group]), version, **more)

    def take(self, via: str, to: int = 1) -> Self:
        self.steps.append(Await(via, to))
        return self

    def case(self, name: str, **more: Any) -> Case:
        return Case(
            name,
            self.steps,
            setup=ready(self.group),
            unordered=UNORDERED,
            only=self.group,
            **more,
        )


def cases() -> Iterator[Case]:
    yield from finding()
    for version in versions_of(JoinGroupRequest):
        yield life(version)
        yield bad_joins(version)
        if version >= 4:
            yield pending(version)
        if version >= 5:
            yield from static(version)
    for version in versions_of(SyncGroupRequest):
        yield bad_syncs(version)
    for version in versions_of(HeartbeatRequest):
        yield bad_beats(version)
    for version in versions_of(LeaveGroupRequest):
        yield bad_leaves(version)
    yield from two_members()
    yield from described()
    yield from listing()
    yield from deleting()
    yield named_twice()
    yield from unreadable()
    yield without_client_id()
    yield static_from_elsewhere()
    yield of_all_versions()
    yield from waiting_and_gone()
    yield too_large()
    for version in (0,):
        heartbeat = ConsumerGroupHeartbeatRequest(group_id="groups-new", rebalance_timeout_ms=1000)
        yield Case(f"consumer-group-heartbeat-v{version}", [Ask(heartbeat, version)])
    for version in (0,):
        describe = ConsumerGroupDescribeRequest(group_ids=["groups-new", "groups-newer"])
        yield Case(f"consumer-group-describe-v{version}", [Ask(describe, version)])


def named_twice() -> Case:
    story = Story("groups-twice", 3)
    story.join(None, protocols=(*RANGE, *RANGE))
    return story.case("group-protocol-twice", differs="JoinGroup that names a protocol twice")


def unreadable() -> Iterator[Case]:
    """Subscriptions that are cut at each place, or of no version that there is."""
    among_topics = (6, 8, 12)
    texts = {"empty": b"", "odd": b"\0", "of-no-version": b"\xff\xff" + SUBSCRIPTION[2:]}
    for size in (2, 4, *among_topics, len(SUBSCRIPTION) - 6, len(SUBSCRIPTION) - 2):
        texts[f"cut-at-{size}"] = SUBSCRIPTION[:size]
    silent = [f"cut-at-{size}" for size in among_topics]
    for name, metadata in texts.items():
        story = Story(f"groups-{name}")
        story.enter("a", protocols=(("range", metadata),)).sync("a", ["a"]).describe().beat("a")
        differs = "JoinGroup with a subscription that is cut among its topics"
        yield story.case(f"group-subscription-{name}", differs=differs if name in silent else "")


def without_client_id() -> Case:
    story = Story("groups-no-client-id", 3)
    story.join(None, client_id=None).learned("a").describe()
    story.sync("a", ["a"]).describe()
    return story.case("group-no-client-id")


def static_from_elsewhere() -> Case:
    """The process that takes a static member's place calls itself otherwise."""
    story = Story("groups-elsewhere")
    story.join(None, instance="i").learned("a")
    story.sync("a", ["a"], instance="i").describe()
    story.join(None, instance="i", client_id="another").learned("a2").describe()
    story.join("a2", instance="i", client_id="third", session_ms=10_000).describe()
    return story.case("group-static-from-elsewhere")


def of_all_versions() -> Case:
    """Members of one group that speak JoinGroup 9, 5, 3 and 0, each with calls as old."""
    story = Story("groups-mixed")
    story.enter("a").sync("a", ["a"])
    ages = {"b": (5, 3, 3), "c": (3, 2, 2), "d": (0, 0, 0)}
    for who, (join, _, _) in ages.items():
        if join >= 4:
            story.join(None, version=join).join(
                who, learn=who, version=join, via=who, answered=False
            )
        else:
            story.join(None, version=join, via=who, answered=False)
        story.wait_for_members(2 + list(ages).index(who))
    story.beat("a").join("a")
    for who in ages:
        story.take(who).learned(who)
    story.describe()
    for who, (_, sync, _) in ages.items():
        story.sync(who, version=sync, via=who, answered=False)
    story.sync("a", ["a", "b", "c", "d"])
    for who in ages:
        story.take(who)
    story.describe()
    for who, (join, _, beat) in ages.items():
        story.beat(who, version=beat).join(who, version=join)
    for who, (_, _, leave) in ages.items():
        story.leave((who, None), version=leave)
    return story.describe().case("group-of-mixed-versions")


def waiting_and_gone() -> Iterator[Case]:
    """Calls that wait when their member is fenced or removed."""
    story = Story("groups-fenced-join")
    story.enter("a").sync("a", ["a"])
    story.join(None, instance="i", via="b", answered=False).wait_for("PreparingRebalance")
    story.join(None, instance="i", via="c", answered=False).take("b")
    story.join("a").take("c").learned("c").describe()
    yield story.case("group-fenced-while-it-joins")

    story = Story("groups-fenced-sync")
    story.enter("a").join(None, instance="i", via="b", answered=False)
    story.wait_for("PreparingRebalance").join("a").take("b").learned("b")
    story.sync("b", instance="i", via="b", answered=False).describe()
    story.join(None, instance="i", via="c", answered=False).take("b").describe()
    story.beat("a").join("a").take("c").learned("c").describe()
    yield story.case("group-fenced-while-it-syncs")

    story = Story("groups-removed-join")
    story.enter("a").sync("a", ["a"])
    story.join(None, instance="i", via="b", answered=False).wait_for("PreparingRebalance")
    story.leave((None, "i")).take("b").describe().join("a").describe()
    yield story.case("group-removed-while-it-joins")

    story = pair("removed-sync")
    story.learned("b").sync("b", via="b", answered=False)
    story.leave(("b", None)).take("b").describe()
    yield story.case(
        "group-removed-while-it-syncs", differs="SyncGroup that waits when its member leaves"
    )


def too_large() -> Case:
    """An assignment that no batch of the groups' topic can hold."""
    story = Story("groups-large")
    story.enter("a")

    def message(names: Names) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=story.group,
            generation_id=story.generation(names),
            member_id=story.member_id("a"),
            protocol_type="consumer",
            protocol_name="range",
            assignments=[_Assigned(member_id=story.member_id("a"), assignment=bytes(2 << 20))],
        )

    story.do(message, 5).describe().beat("a").join("a").sync("a", ["a"]).describe()
    return story.case("group-assignment-too-large")


def finding() -> Iterator[Case]:
    for version in versions_of(FindCoordinatorRequest):
        keys = ["groups-a", "groups-b", "groups-a", ""]
        if version < 4:
            requests = [FindCoordinatorRequest(key=key) for key in keys]
        else:
            requests = [
                FindCoordinatorRequest(coordinator_keys=keys),
                FindCoordinatorRequest(coordinator_keys=[]),
            ]
        yield Case(
            f"find-coordinator-v{version}",
            [Ask(request, version) for request in requests],
            setup=ready("groups-a"),
        )
        if version == 0:
            continue
        steps = []
        for kind in (2, 3, -1, 127) if version == 1 else (2,):
            if version < 4:
                request = FindCoordinatorRequest(key="groups-a", key_type=kind)
            else:
                request = FindCoordinatorRequest(coordinator_keys=["groups-a"], key_type=kind)
            steps.append(Ask(request, version))
        yield Case(f"find-coordinator-kinds-v{version}", steps, setup=ready("groups-a"))


def life(version: int) -> Case:
    """One member comes, works and goes."""
    story = Story(f"groups-life-{version}", version)
    story.describe()
    story.enter("a", protocols=BOTH)
    if version < 4:
        story.learned("a")
    story.describe().listed()
    story.beat("a", version=min(version, 4))
    story.sync("a", ["a"], version=min(version, 5), kind="consumer", name="range")
    story.beat("a", version=min(version, 4)).describe().listed()
    story.sync("a", [], version=min(version, 5))
    story.join("a", protocols=BOTH)
    story.sync("a", ["a", "nobody"], version=min(version, 5))
    story.delete()
    story.leave(("a", None), version=min(version, 5))
    story.describe().listed()
    story.beat("a", version=min(version, 4))
    story.sync("a", version=min(version, 5))
    story.delete().describe().listed().delete()
    return story.case(f"group-life-v{version}")


def bad_joins(version: int) -> Case:
    story = Story(f"groups-bad-join-{version}", version)
    story.join(None, group="")
    story.join("somebody", group="groups-unknown")
    for session_ms in (0, -1, 5999, 1_800_001):
        story.join(None, session_ms=session_ms)
    story.join(None, protocols=())
    story.join(None, kind="")
    story.describe()
    story.enter("a", protocols=BOTH)
    if version < 4:
        story.learned("a")
    story.join("somebody")
    story.join(None, protocols=(("other", b""),))
    story.join(None, protocols=())
    story.join(None, kind="connect")
    story.join("a", kind="connect")
    story.join("a", protocols=(("other", b"3"),))
    story.sync("a", ["a"], version=min(version, 5))
    story.join("somebody")
    story.join("a", protocols=(("other", b"3"),))
    story.describe()
    story.leave(("a", None))
    story.join("a")
    story.join(None, kind="")
    return story.case(f"group-bad-joins-v{version}")


def pending(version: int) -> Case:
    """Ids given out and not used."""
    story = Story(f"groups-pending-{version}", version)
    story.join(None).learned("a")
    story.describe().listed()
    story.beat("a", generation=0)
    story.sync("a", generation=0)
    story.join("a", group="groups-x")
    story.leave(("a", None))
    story.join("a")
    story.describe()
    story.join(None)
    story.join("b", learn="b", kind="other")
    story.leave(("b", None), ("b", None))
    return story.case(f"group-pending-ids-v{version}")


def static(version: int) -> Iterator[Case]:
    story = Story(f"groups-static-{version}", version)
    story.join(None, instance="i")
    story.learned("a")
    story.sync("a", ["a"], instance="i").describe()
    story.beat("a", instance="i").beat("a").beat("a", instance="j").beat("b", instance="i")
    story.join(None, instance="i")
    story.learned("a2")
    story.describe()
    for old in ("a", "b"):
        story.beat(old, instance="i").beat(old)
        story.sync(old, instance="i")
        story.join(old, instance="i")
        story.leave((old, "i"), (old, None))
    story.beat("a2", instance="i")
    story.sync("a2", instance="i").describe()
    story.join("a2", instance="i")
    story.describe()
    story.join(None, instance="i")
    story.learned("a3")
    story.describe()
    story.sync("a3", ["a3"], instance="i").describe()
    story.join(None, instance="i", protocols=(("other", b"9"),))
    story.learned("a4")
    story.describe()
    story.sync("a4", ["a4"], instance="i", name="other")
    story.leave((None, "j"), (None, None), (None, "i"), (None, "i"))
    story.describe()
    yield story.case(f"group-static-v{version}")

    follower = Story(f"groups-static-follower-{version}", version)
    follower.enter("a")
    follower.join(None, instance="i", via="b", answered=False)
    follower.wait_for("PreparingRebalance")
    follower.join("a").take("b").learned("b")
    follower.sync("b", instance="i", via="b", answered=False)
    follower.sync("a", ["a", "b"]).take("b").describe()
    follower.join(None, instance="i").learned("b2").describe()
    follower.sync("b2", instance="i").beat("a").beat("b2").beat("b", instance="i")
    follower.join(None, instance="i", protocols=(("range", OTHER_SUBSCRIPTION),))
    follower.learned("b3").describe().beat("a")
    follower.leave((None, "i")).describe().beat("a")
    yield follower.case(f"group-static-follower-v{version}")


def bad_syncs(version: int) -> Case:
    story = Story(f"groups-bad-sync-{version}")

    def sync(who: str, **more: Any) -> None:
        story.sync(who, version=version, **more)

    sync("x", group="")
    sync("x", group="groups-unknown", generation=1)
    story.enter("a")
    sync("x")
    sync("a", generation=0)
    sync("a", generation=9)
    sync("a", kind="other")
    sync("a", name="other")
    sync("a", kind=None, name=None)
    sync("a", kind=None)
    sync("a", name=None)
    sync("a", instance="i")
    story.describe()
    sync("a", assignments=["a"])
    sync("a", kind="other")
    sync("a", generation=9)
    sync("x")
    sync("a")
    story.leave(("a", None))
    sync("a")
    sync("a", generation=-1)
    return story.case(f"group-bad-syncs-v{version}")


def bad_beats(version: int) -> Case:
    story = Story(f"groups-bad-beat-{version}")

    def beat(who: str, **more: Any) -> None:
        story.beat(who, version=version, **more)

    beat("x", group="", generation=1)
    beat("x", group="groups-unknown", generation=1)
    story.enter("a")
    for generation in (None, 0, 2, -1):
        beat("a", generation=generation)
        beat("", generation=generation)
        beat("x", generation=generation)
        beat("a", generation=generation, instance="i")
    story.sync("a", ["a"])
    for generation in (None, 0, 2, -1):
        beat("a", generation=generation)
        beat("x", generation=generation)
    story.leave(("a", None))
    for generation in (None, 0, 2, -1):
        beat("a", generation=generation)
    return story.case(f"group-bad-heartbeats-v{version}")


def bad_leaves(version: int) -> Case:
    story = Story(f"groups-bad-leave-{version}")

    def leave(*whom: tuple[str | None, str | None], group: str | None = None) -> None:
        story.leave(*whom, version=version, group=group)

    leave(("x", None), group="")
    leave(("x", None), ("", "i"), group="groups-unknown")
    story.enter("a")
    leave(("x", None), (None, None), (None, "i"), ("a", "i"))
    story.describe()
    if version >= 3:
        leave()
    leave(("a", None), ("a", None))
    story.describe()
    leave(("a", None))
    return story.case(f"group-bad-leaves-v{version}")


def pair(name: str, version: int = 9, **more: Any) -> Story:
    """A story of two members, `a` (leading) and `b`, in a join phase that is over."""
    story = Story(f"groups-{name}", version)
    story.enter("a", **more)
    if version < 4:
        story.learned("a")
    story.enter("b", via="b", answered=False, **more)
    story.wait_for("PreparingRebalance")
    story.join("a", **more).take("b")
    return story


def two_members() -> Iterator[Case]:
    story = Story("groups-two")
    story.enter("a").sync("a", ["a"])
    story.enter("b", via="b", answered=False)
    story.wait_for("PreparingRebalance").listed("preparingrebalance")
    story.beat("a").beat("b").sync("a", ["a"]).delete()
    story.join("a").take("b").describe().listed("CompletingRebalance", "stable")
    story.beat("a").beat("b").delete()
    story.sync("b", via="b", answered=False)
    story.sync("a", ["a"]).take("b").describe().listed("STABLE")
    story.beat("a").beat("b").sync("b", ["a", "b"])
    story.join("b").describe()
    story.leave(("b", None)).beat("a").beat("b").describe()
    story.join("a").describe().leave(("a", None)).describe().listed("empty")
    yield story.case("group-two-members")

    story = pair("leader-leaves")
    story.sync("b", via="b", answered=False)
    story.leave(("a", None)).take("b").describe()
    story.join("b").sync("b", ["b"]).describe()
    yield story.case("group-leader-leaves-before-its-sync")

    story = pair("follower-leaves")
    story.sync("b", via="b", answered=False)
    story.leave(("b", None)).describe().beat("a")
    story.join("a").sync("a", ["a"]).describe()
    yield story.case("group-follower-leaves")

    story = pair("changed")
    story.sync("b", via="b", answered=False).sync("a", ["a", "b"]).take("b")
    story.join("b", protocols=(("range", OTHER_SUBSCRIPTION),), via="b", answered=False)
    story.wait_for("PreparingRebalance").beat("a")
    story.join("a").take("b").describe()
    story.join("a").join("b", protocols=(("range", OTHER_SUBSCRIPTION),))
    story.join("a", protocols=(("range", OTHER_SUBSCRIPTION),), via="a", answered=False)
    story.wait_for("PreparingRebalance")
    story.join("b").take("a").describe()
    yield story.case("group-subscription-changes")

    votes: Protocols = (("one", b"1"), ("two", b"2"), ("three", b"3"))
    other: Protocols = (("three", b"3"), ("two", b"2"))
    story = Story("groups-votes")
    story.enter("a", protocols=votes)
    story.enter("b", protocols=other, via="b", answered=False)
    story.wait_for("PreparingRebalance")
    story.enter("c", protocols=other, via="c", answered=False)
    story.join("a", protocols=votes).take("b").take("c").describe()
    story.join(None, protocols=(("one", b"1"),)).join("a", protocols=(("one", b"1"),))
    yield story.case("group-votes")

    for version in (0, 2, 3):
        story = pair(f"old-{version}", version).learned("b")
        story.sync("b", via="b", answered=False, version=0)
        story.sync("a", ["a", "b"], version=0).take("b").describe()
        yield story.case(f"group-of-old-members-v{version}")


def described() -> Iterator[Case]:
    for version in versions_of(DescribeGroupsRequest):
        story = Story(f"groups-described-{version}")
        story.enter("a", protocols=BOTH)

        def ask(*groups: str, operations: bool = False) -> DescribeGroupsRequest:
            return DescribeGroupsRequest(
                groups=list(groups), include_authorized_operations=operations
            )

        story.do(ask(story.group, "groups-unknown", "", story.group), version)
        story.sync("a", ["a"])
        story.do(ask(story.group), version).do(ask(), version)
        if version >= 3:
            story.do(ask(story.group, "groups-unknown", operations=True), version)
        yield Case(
            f"group-described-v{version}", story.steps, ready(story.group), unordered=("members",)
        )


def listing() -> Iterator[Case]:
    for version in versions_of(ListGroupsRequest):
        story = Story(f"groups-listed-{version}")
        story.enter("a")
        story.do(ListGroupsRequest(), version)
        if version >= 4:
            for state in ("Stable", "completingrebalance", "nonsense", "", "Dead"):
                story.do(ListGroupsRequest(states_filter=[state]), version)
            story.do(ListGroupsRequest(states_filter=["Empty", "CompletingRebalance"]), version)
        if version >= 5:
            for kind in ("classic", "CLASSIC", "consumer", "nonsense", ""):
                story.do(ListGroupsRequest(types_filter=[kind]), version)
        story.leave(("a", None))
        story.do(ListGroupsRequest(), version)
        yield story.case(f"group-listed-v{version}")


def deleting() -> Iterator[Case]:
    for version in versions_of(DeleteGroupsRequest):
        story = Story(f"groups-deleted-{version}")
        names = [story.group, "groups-unknown", "", story.group]
        message = DeleteGroupsRequest(groups_names=names)
        story.do(message, version)
        story.enter("a").do(message, version)
        story.sync("a", ["a"]).do(message, version)
        story.leave(("a", None)).do(message, version).describe().do(message, version)
        story.do(DeleteGroupsRequest(), version)
        yield story.case(f"group-deleted-v{version}")
