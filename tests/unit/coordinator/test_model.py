"""Random members that vanish, freeze, leave, restart; a coordinator that moves; replication that
stalls: whatever happens, what was acknowledged holds, and afterwards the group comes to rest.

The model knows little: which partitions a member was given in which generation, the highest commit
that was acknowledged, who is alive.  `KAFKALIKE_RUNS` sets how many histories are tried.
"""

import os
import random
from typing import Any

import pytest

from kafkalike.broker.coordinator.values import (
    NO_MEMBER,
    Caller,
    JoinResult,
    OffsetAndMetadata,
)
from kafkalike.errors import (
    NONE,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
)
from kafkalike.types import TopicPartition

from .support import GROUP, Call, World, subscription

RUNS = int(os.environ.get("KAFKALIKE_RUNS", "400"))
BATCH = 50
PARTITIONS = 6
STEPS = 60
SESSION_MS = 10_000
REBALANCE_MS = 20_000
QUIET_S = 400.0
LONGEST_WAIT_S = 310.0
ASSIGNORS = (
    ("range", subscription("t")),
    ("sticky", subscription("t")),
)


class Client:
    """A consumer as real ones behave, one step at a time."""

    def __init__(self, model: "Model", name: str) -> None:
        self.model = model
        self.name = name
        chance = model.chance
        self.instance_id = name if chance.random() < 0.3 else None
        self.knows_ids = chance.random() < 0.7
        self.skips = chance.random() < 0.5
        self.protocols = ASSIGNORS if chance.random() < 0.5 else ASSIGNORS[:1]
        self.member_id = NO_MEMBER
        self.alive = True
        self.frozen_until_s = 0.0
        self.joining: Call[JoinResult] | None = None
        self.syncing: Any = None
        self.joined: JoinResult | None = None
        self.owned: frozenset[int] | None = None
        self.waits_since_s = 0.0

    def restart(self) -> None:
        """The process starts anew; only a static member is known again."""
        self.member_id = NO_MEMBER
        self.joining = self.syncing = self.joined = self.owned = None

    # -- one step ------------------------------------------------------------------------------

    def step(self) -> None:
        if self.joining is not None:
            if not self.joining.is_waiting:
                call, self.joining = self.joining, None
                self.on_joined(call.value)
            else:
                self.check_wait()
        elif self.syncing is not None:
            if not self.syncing.is_waiting:
                call, self.syncing = self.syncing, None
                self.on_synced(call.value)
            else:
                self.check_wait()
        elif self.owned is None:
            self.join()
        else:
            self.beat()

    def check_wait(self) -> None:
        waited_s = self.model.world.clock.monotonic() - self.waits_since_s
        assert waited_s < LONGEST_WAIT_S, f"{self.name} waits for {waited_s} s"

    def join(self) -> None:
        self.joined = None
        self.waits_since_s = self.model.world.clock.monotonic()
        self.joining = self.model.world.join(
            self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocols=self.protocols,
            needs_known_id=self.knows_ids and self.instance_id is None,
            may_skip_assignment=self.skips,
        )

    def on_joined(self, result: JoinResult) -> None:
        code = result.error_code
        if code == MemberIdRequired.code:
            self.member_id = result.member_id
        elif code == NONE:
            self.member_id = result.member_id
            self.joined = result
            self.sync(result)
        elif code == FencedInstanceId.code:
            self.alive = False
        elif code == UnknownMemberId.code:
            self.member_id = NO_MEMBER

    def sync(self, result: JoinResult) -> None:
        parts: dict[str, bytes] = {}
        if result.leader == result.member_id and not result.skip_assignment:
            members = [member.member_id for member in result.members]
            assert result.member_id in members
            for partition in range(PARTITIONS):
                who = members[partition % len(members)]
                parts[who] = parts.get(who, b"") + bytes([partition])
        self.waits_since_s = self.model.world.clock.monotonic()
        self.syncing = self.model.world.sync(result, parts, instance_id=self.instance_id)

    def on_synced(self, result: Any) -> None:
        if result.error_code == NONE:
            assert self.joined is not None
            self.owned = frozenset(result.assignment)
            self.model.given(self.joined.generation, self.member_id, self.owned)
        else:
            self.on_error(result.error_code)

    def beat(self) -> None:
        assert self.joined is not None
        self.on_error(self.model.world.beat(self.joined, self.instance_id))

    def on_error(self, code: int) -> None:
        if code == UnknownMemberId.code:
            self.member_id = NO_MEMBER
            self.owned = None
        elif code == FencedInstanceId.code:
            self.alive = False
        elif code in (RebalanceInProgress.code, IllegalGeneration.code):
            self.owned = None

    def commit(self) -> None:
        if self.owned and self.joined is not None and self.joining is None:
            caller = Caller(self.joined.generation, self.member_id, self.instance_id)
            self.model.commit(self.model.chance.choice(sorted(self.owned)), caller)


class Model:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(
            seed=seed,
            group_initial_rebalance_delay_ms=str(self.chance.choice((0, 0, 3000))),
            group_max_size=str(self.chance.choice((4, 100))),
        )
        self.clients: list[Client] = []
        self.count = 0
        self.assigned: dict[tuple[int, int], str] = {}
        """(generation, partition) -> who was given it."""
        self.acknowledged = [-1] * PARTITIONS
        self.attempted = 0
        self.commits: list[tuple[int, int, Any]] = []

    # -- what must hold ------------------------------------------------------------------------

    def given(self, generation: int, member_id: str, partitions: frozenset[int]) -> None:
        for partition in partitions:
            owner = self.assigned.setdefault((generation, partition), member_id)
            if owner != member_id and owner.rpartition("-")[0] != member_id.rpartition("-")[0]:
                owner_prefix, own_prefix = owner[:-37], member_id[:-37]
                assert owner_prefix == own_prefix, (
                    f"partition {partition} of generation {generation}: {owner} and {member_id}"
                )

    def commit(self, partition: int, caller: Caller) -> None:
        self.attempted += 1
        key = TopicPartition("t", partition)
        value = OffsetAndMetadata(self.attempted, commit_timestamp=self.world.clock.now_ms())
        result = self.world.coordinator.commit(GROUP, caller, {key: value})
        self.commits.append((partition, self.attempted, Call(result)))
        self.look_at_commits()

    def look_at_commits(self) -> None:
        open_commits = []
        for partition, offset, call in self.commits:
            if call.is_waiting:
                open_commits.append((partition, offset, call))
            elif call.value[TopicPartition("t", partition)] == NONE:
                self.acknowledged[partition] = max(self.acknowledged[partition], offset)
        self.commits = open_commits

    def check_offsets(self) -> None:
        self.look_at_commits()
        for partition, acknowledged in enumerate(self.acknowledged):
            found = self.world.fetched(partition)
            assert acknowledged <= found <= self.attempted, (partition, acknowledged, found)

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self.event()
            self.world.clock.advance(self.chance.choice((0.02, 0.5, 1.0, 3.0)))
            for client in list(self.clients):
                if client.alive and client.frozen_until_s <= self.world.clock.monotonic():
                    client.step()
            self.check_offsets()
        self.calm_down()

    def event(self) -> None:
        world, chance = self.world, self.chance
        kind = chance.randrange(14)
        living = [client for client in self.clients if client.alive]
        if kind < 3 and len(living) < 6:
            self.count += 1
            self.clients.append(Client(self, f"c{self.count}"))
        elif kind < 6 and living:
            chance.choice(living).commit()
        elif kind == 6 and living:
            chance.choice(living).alive = False
        elif kind == 7 and living:
            client = chance.choice(living)
            client.frozen_until_s = world.clock.monotonic() + chance.choice((2, 8, 15, 40))
        elif kind == 8 and living:
            client = chance.choice(living)
            if client.member_id != NO_MEMBER:
                world.leave(client.member_id, client.instance_id)
            client.alive = False
        elif kind == 9 and living:
            chance.choice(living).restart()
        elif kind == 10:
            world.replicas.held = True
        elif kind == 11:
            world.replicas.held = False
            codes = (NONE, NONE, NONE, NotEnoughReplicas.code, RequestTimedOut.code)
            world.replicas.release(chance.choice(codes))
        elif kind == 12 and chance.random() < 0.3:
            world.fail_over()
        elif kind == 13 and living and chance.random() < 0.5:
            client = chance.choice(living)
            client.protocols = ASSIGNORS[:1]
            if client.owned is not None:
                client.owned = None  # joins again: its subscription changed

    def calm_down(self) -> None:
        """No more faults: the group must come to rest with those who live."""
        world = self.world
        world.replicas.held = False
        world.replicas.release()
        limit = int(world.config.group_max_size)
        deadline_s = world.clock.monotonic() + QUIET_S
        while world.clock.monotonic() < deadline_s:
            world.clock.advance(1.0)
            living = [client for client in self.clients if client.alive]
            for client in living:
                client.step()
            if self.is_at_rest(living, limit):
                self.check_offsets()
                return
        states = [(c.name, c.member_id, c.joined and c.joined.generation) for c in living]
        raise AssertionError(f"no rest: {world.group()!r} {states}")

    def is_at_rest(self, living: list[Client], limit: int) -> bool:
        world = self.world
        settled = [client for client in living if client.owned is not None]
        if len(settled) < min(len(living), limit):
            return False
        group = world.group()
        if not living:
            return group is None or not group.members
        if group is None or group.state.value != "Stable" or group.pending_sync:
            return False
        if sorted(group.members) != sorted(client.member_id for client in settled):
            return False
        if any(c.joined is None or c.joined.generation != group.generation for c in settled):
            return False
        owned = [partition for client in settled for partition in client.owned or ()]
        assert sorted(owned) == list(range(PARTITIONS)), owned
        return True


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_random_histories(first: int) -> None:
    for seed in range(first, min(first + BATCH, RUNS)):
        try:
            Model(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
