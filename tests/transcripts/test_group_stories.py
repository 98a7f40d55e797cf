"""Stories of one consumer group as text: what members ask, what they hear and when, what is written.

The texts lie in `groups/`.  After a deliberate change of behaviour run the tests once with
KAFKALIKE_REWRITE=1 in the environment and review the difference.
"""

import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.broker.coordinator.records import read_group, read_key, read_offset
from kafkalike.broker.coordinator.values import Caller, JoinResult, OffsetAndMetadata, SyncResult
from kafkalike.errors import NotEnoughReplicas, error_name
from kafkalike.types import TopicPartition
from tests.unit.coordinator.support import GROUP, Call, World

FOLDER = pathlib.Path(__file__).parent / "groups"
UUID = re.compile("-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Story:
    """Tells what happens in a group; members go by the name of their client."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(**settings)
        self.lines: list[str] = []
        self._calls: list[tuple[str, Call[Any]]] = []
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._written = 0

    # -- telling -------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        self.lines.append(f"\n* {text}" if self.lines else f"* {text}")

    def _say(self, text: str) -> None:
        self.lines.append(self._named(text))

    def _named(self, text: str) -> str:
        for member_id, name in self._names.items():
            text = text.replace(member_id, name)
        return UUID.sub("-?", text)

    def _look(self) -> None:
        """Records that were written and answers that came."""
        records = self.world.replicas.log(0).records()
        for record in records[self._written :]:
            self._say("  writes " + _described(record))
        self._written = len(records)
        for who, call in list(self._calls):
            if not call.is_waiting:
                self._calls.remove((who, call))
                self._answered(who, call.value)

    def _answered(self, who: str, value: Any) -> None:
        if isinstance(value, JoinResult):
            self._learn(who, value)
            self._say(f"  {who} <- " + _joined(value))
        elif isinstance(value, SyncResult):
            error = error_name(value.error_code) if value.error_code else ""
            self._say(f"  {who} <- sync {error or value.assignment.decode()!r}")
        else:
            self._say(f"  {who} <- {error_name(value)}")

    def _learn(self, who: str, value: JoinResult) -> None:
        if value.member_id:
            self._ids[who] = value.member_id
            self._names.setdefault(value.member_id, self._new_name(who))
        if not value.error_code:
            self._generations[who] = value.generation

    def _new_name(self, who: str) -> str:
        used = sum(name.split("'")[0] == who for name in self._names.values())
        return who + "'" * used

    # -- what members do -----------------------------------------------------------------------

    def join(self, who: str, *, anew: bool = False, **more: Any) -> None:
        if anew:
            self._ids.pop(who, None)
        call = self.world.join(self._ids.get(who, ""), client_id=who, **more)
        self._parked("joins", who, call)

    def sync(self, who: str, instance_id: str | None = None, **parts: str) -> None:
        assignments = {self._ids[name]: text.encode() for name, text in parts.items()}
        joined = JoinResult(0, self._ids[who], self._generations[who])
        call = self.world.sync(joined, assignments, instance_id=instance_id)
        self._parked("syncs", who, call)

    def _parked(self, verb: str, who: str, call: Call[Any]) -> None:
        self._calls.append((who, call))
        waits = ", waits" if call.is_waiting else ""
        self._say(f"{who} {verb}{waits}")
        self._look()
        self._state()

    def beat(self, who: str, instance_id: str | None = None) -> None:
        caller = Caller(self._generations[who], self._ids[who], instance_id)
        code = self.world.coordinator.heartbeat(GROUP, caller)
        self._say(f"{who} sends a heartbeat: {error_name(code)}")
        self._look()

    def leave(self, who: str) -> None:
        code = self.world.leave(self._ids[who])
        self._say(f"{who} leaves: {error_name(code)}")
        self._look()
        self._state()

    def commit(self, who: str, offset: int) -> None:
        key = TopicPartition("t", 0)
        caller = Caller(self._generations[who], self._ids[who])
        value = OffsetAndMetadata(offset, commit_timestamp=self.world.clock.now_ms())
        result = self.world.coordinator.commit(GROUP, caller, {key: value})
        call = Call(
            result.addCallback(lambda codes: codes[key])
            if not isinstance(result, dict)
            else result[key]
        )
        self._calls.append((who, call))
        self._say(f"{who} commits t-0 at {offset}" + (", waits" if call.is_waiting else ""))
        self._look()

    def passes(self, seconds: float) -> None:
        self._say(f"{seconds:g} s pass")
        self.world.clock.advance(seconds)
        self._look()
        self._state()

    def held(self) -> None:
        self._say("followers fall behind")
        self.world.replicas.held = True

    def released(self, code: int = 0) -> None:
        self.world.replicas.held = False
        self._say("followers have caught up" if not code else f"writes fail: {error_name(code)}")
        self.world.replicas.release(code)
        self._look()
        self._state()

    def fail_over(self) -> None:
        self._say("another broker takes over")
        self.world.fail_over()
        self._look()
        self._state()
        self._say(f"  t-0 is committed at {self.world.fetched()}")

    def _state(self) -> None:
        group = self.world.group()
        if group is None:
            self._say("  = no group")
        else:
            members = " ".join(group.members) or "nobody"
            self._say(f"  = {group.state.value}, generation {group.generation}: {members}")


def _joined(value: JoinResult) -> str:
    if value.error_code:
        return f"join {error_name(value.error_code)}"
    told = f" members {' '.join(m.member_id for m in value.members)}" if value.members else ""
    skips = " keeps the assignment" if value.skip_assignment else ""
    return f"generation {value.generation} leader {value.leader}{told}{skips}"


def _described(record: Any) -> str:
    found = read_key(record.key)
    assert found is not None
    group_id, partition = found
    if partition is not None:
        value = "gone" if record.value is None else str(read_offset(record.value).offset)
        return f"offset of {group_id} {partition}: {value}"
    if record.value is None:
        return f"group {group_id}: gone"
    group = read_group(group_id, record.value)
    members = " ".join(f"{m.member_id}={m.assignment.decode()}" for m in group.members.values())
    return f"group {group_id}: generation {group.generation} {members or 'nobody'}"


# -- the stories -------------------------------------------------------------------------------


def three_members(story: Story) -> None:
    story.tell("the first member waits for others, with an id of its own first")
    story.join("a", needs_known_id=True)
    story.join("a")
    story.passes(2)
    story.tell("a second comes within the delay, a third too late")
    story.join("b")
    story.passes(4.1)
    story.sync("b")
    story.sync("a", a="0 1", b="2 3")
    story.join("c")
    story.beat("a")
    story.beat("b")
    story.join("a")
    story.join("b")
    story.sync("c")
    story.sync("b")
    story.sync("a", a="0", b="1", c="2 3")
    story.tell("the leader leaves")
    story.leave("a")
    story.join("c")
    story.join("b")
    story.sync("c", b="0 1", c="2 3")
    story.sync("b", b="0 1", c="2 3")


def members_vanish(story: Story) -> None:
    pair(story)
    story.tell("b says nothing any more")
    story.passes(6)
    story.beat("a")
    story.passes(4.1)
    story.beat("a")
    story.join("a")
    story.tell("a joins and then never asks for its assignment, though it sends heartbeats")
    for _ in range(4):
        story.passes(7)
        story.beat("a")
    story.passes(2.1)
    story.beat("a")


def pair(story: Story) -> None:
    """Two members at rest."""
    story.tell("two members")
    story.join("a")
    story.join("b")
    story.join("a")
    story.sync("b")
    story.sync("a", a="0 1", b="2 3")


def static_members(story: Story) -> None:
    story.tell("two members with instance ids")
    story.join("a", instance_id="1")
    story.join("b", instance_id="2")
    story.join("a", instance_id="1")
    story.sync("b", instance_id="2")
    story.sync("a", instance_id="1", a="0 1", b="2 3")
    story.tell("b restarts: the same place, no rebalance; its former self is fenced")
    former = story._ids["b"]
    story.join("b", anew=True, instance_id="2")
    story.sync("b", instance_id="2")
    code = story.world.coordinator.heartbeat(GROUP, Caller(2, former, "2"))
    story._say(f"the former b sends a heartbeat: {error_name(code)}")
    story.tell("the leader restarts")
    story.join("a", anew=True, instance_id="1")
    story.sync("a", instance_id="1")
    story.tell("b is gone for good: its session ends")
    story.passes(9)
    story.beat("a", instance_id="1")
    story.passes(2)
    story.beat("a", instance_id="1")


def replication_stalls(story: Story) -> None:
    story.join("a")
    story.tell("the assignment waits for the followers")
    story.held()
    story.sync("a", a="all")
    story.released()
    story.tell("so does a commit")
    story.held()
    story.commit("a", 5)
    story.released()
    story.tell("a commit that is not replicated does not count, an assignment neither")
    story.held()
    story.commit("a", 9)
    story.released(NotEnoughReplicas.code)
    story.join("a")
    story.held()
    story.sync("a", a="all")
    story.released(NotEnoughReplicas.code)


def coordinator_dies(story: Story) -> None:
    pair(story)
    story.commit("a", 7)
    story.tell("while stable: nobody notices")
    story.fail_over()
    story.beat("a")
    story.beat("b")
    story.tell("while a rebalance collects members: it begins again")
    story.join("c")
    story.fail_over()
    story.beat("a")
    story.join("c", anew=True)
    story.join("a")
    story.join("b")
    story.tell("while members wait for the assignment: the former one is back, generation too")
    story.sync("b")
    story.fail_over()
    story.beat("a")
    story.join("a")
    story.sync("a", a="0 1", b="2 3")
    story.tell("while empty")
    for who in "ab":
        story.leave(who)
    story.fail_over()


STORIES: dict[str, tuple[Callable[[Story], None], dict[str, str]]] = {
    "three_members": (three_members, {"group_initial_rebalance_delay_ms": "3000"}),
    "members_vanish": (members_vanish, {}),
    "static_members": (static_members, {}),
    "replication_stalls": (replication_stalls, {}),
    "coordinator_dies": (coordinator_dies, {}),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    tell, settings = STORIES[name]
    story = Story(**settings)
    tell(story)
    text = "\n".join(story.lines) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KAFKALIKE_REWRITE"):
        path.write_text(text)
    assert text == path.read_text()
