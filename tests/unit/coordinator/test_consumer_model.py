"""Random members of both protocols that freeze, lose answers, leave, restart, change what they read; a
coordinator that moves and loses what was not replicated; topics that come, grow and go.

Whatever happens no partition has two owners, epochs that were told only grow, commits that were
acknowledged hold, and afterwards all comes to rest.  `KAFKALIKE_RUNS` sets how many are tried.
"""

import os
import random
from dataclasses import asdict
from typing import Any

import pytest

from kafkalike.broker.coordinator.consumer_group import ConsumerGroup
from kafkalike.broker.coordinator.consumer_values import HeartbeatCall, HeartbeatResult
from kafkalike.broker.coordinator.values import NO_MEMBER, Caller, OffsetAndMetadata
from kafkalike.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from kafkalike.types import TopicPartition

from .support import GROUP, Call, World, join_call, topic_id

RUNS = int(os.environ.get("KAFKALIKE_RUNS", "100"))
BATCH = 50
STEPS = 70
SESSION_MS = 6000
REBALANCE_MS = 15_000
QUIET_S = 300.0
TOPICS = ("t-1", "t-2", "u-1")
Place = tuple[bytes, int]
RETRIED = (NotCoordinator.code, CoordinatorNotAvailable.code)
LOST = (
    UnknownMemberId.code,
    FencedMemberEpoch.code,
    GroupIdNotFound.code,
    GroupMaxSizeReached.code,
)


class Consumer:
    """A member of the newer protocol as real ones behave, one step at a time."""

    def __init__(self, model: "Model", number: int) -> None:
        chance = model.chance
        self.model = model
        self.name = f"c{number}"
        self.member_id = f"{self.name}-0"
        self.instance_id = self.name if chance.random() < 0.3 else None
        self.regex = chance.random() < 0.2
        self.topics = chance.choice((TOPICS[:1], TOPICS[:2], TOPICS))
        self.assignor = chance.choice((None, None, "range", "uniform"))
        self.alive = True
        self.frozen_until_s = 0.0
        self.starts = 0
        self.epoch = 0
        self.owned: set[Place] = set()
        self.wanted: set[Place] = set()
        self.call: Call[HeartbeatResult] | None = None
        self.must_say_all = True
        self.changed = False

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self.owned == self.wanted and self.call is None

    def restart(self) -> None:
        """The process starts anew, under a new id."""
        self.starts += 1
        self.member_id = f"{self.name}-{self.starts}"
        self.lose()

    def lose(self) -> None:
        self.epoch = 0
        self.owned, self.wanted = set(), set()
        self.call = None
        self.must_say_all = True

    def step(self) -> None:
        if self.call is not None:
            if not self.call.is_waiting:
                call, self.call = self.call, None
                self.on_answer(call.value)
            return
        gone = self.owned - self.wanted
        if gone and self.model.chance.random() < 0.8:
            self.owned -= gone
            self.changed = True
        if not gone and self.owned != self.wanted:
            self.owned = set(self.wanted)
            self.model.check_owners()
            self.changed = True
        self.beat()

    def beat(self) -> None:
        says_all = self.must_say_all or self.epoch == 0
        tells_owned = says_all or self.changed or self.model.chance.random() < 0.2
        self.must_say_all = self.changed = False
        regex = ("t-.*" if self.regex else "") if says_all else None
        self.call = Call(
            self.model.world.coordinator.consumers.heartbeat(  # type: ignore[union-attr]
                HeartbeatCall(
                    GROUP,
                    self.member_id,
                    self.epoch,
                    1,
                    self.name,
                    "/127.0.0.1",
                    lambda topic: True,
                    self.instance_id,
                    None,
                    REBALANCE_MS if says_all else -1,
                    ([] if self.regex else list(self.topics)) if says_all else None,
                    regex,
                    self.assignor if says_all else None,
                    grouped(self.owned) if tells_owned else None,
                )
            )
        )
        if not self.call.is_waiting:
            call, self.call = self.call, None
            self.on_answer(call.value)

    def on_answer(self, answer: HeartbeatResult) -> None:
        if self.model.chance.random() < self.model.losses:
            self.must_say_all = True
            return
        code = answer.error_code
        if code == NONE:
            assert answer.member_epoch >= self.epoch, (self.name, answer, self.epoch)
            self.epoch = answer.member_epoch
            if answer.assigned is not None:
                self.wanted = {(t, p) for t, ps in answer.assigned.items() for p in ps}
        elif code in LOST:
            self.lose()
        elif code == FencedInstanceId.code:
            self.alive = False
            self.lose()
        else:
            assert code in (*RETRIED, UnreleasedInstanceId.code), answer
            self.must_say_all = True

    def leave(self, epoch: int) -> None:
        self.owned, self.wanted = set(), set()
        if self.epoch > 0:
            call = HeartbeatCall(
                GROUP, self.member_id, epoch, 1, "", "", lambda topic: True, self.instance_id
            )
            consumers = self.model.world.coordinator.consumers
            assert consumers is not None
            Call(consumers.heartbeat(call))
        self.call = None

    def caller(self) -> Caller:
        return Caller(self.epoch, self.member_id, self.instance_id)


class Classic:
    """An eager member of the classic protocol: gives up everything before it joins again."""

    def __init__(self, model: "Model", number: int) -> None:
        self.model = model
        self.name = f"k{number}"
        self.instance_id = self.name if model.chance.random() < 0.3 else None
        self.topics = model.chance.choice((TOPICS[:1], TOPICS[:2]))
        self.alive = True
        self.frozen_until_s = 0.0
        self.member_id = NO_MEMBER
        self.generation = -1
        self.owned: set[Place] = set()
        self.joining: Call[Any] | None = None
        self.syncing: Call[Any] | None = None
        self.joined = False

    @property
    def is_settled(self) -> bool:
        return self.joined

    def restart(self) -> None:
        self.lose()
        self.member_id = NO_MEMBER

    def lose(self) -> None:
        self.owned = set()
        self.joined = False
        self.joining = self.syncing = None

    def step(self) -> None:
        if self.joining is not None:
            if not self.joining.is_waiting:
                call, self.joining = self.joining, None
                self.on_joined(call.value)
        elif self.syncing is not None:
            if not self.syncing.is_waiting:
                call, self.syncing = self.syncing, None
                self.on_synced(call.value)
        elif not self.joined:
            self.join()
        else:
            caller = Caller(self.generation, self.member_id, self.instance_id)
            self.on_error(self.model.world.coordinator.heartbeat(GROUP, caller))

    def join(self) -> None:
        said = ConsumerProtocolSubscription(topics=list(self.topics))
        call = join_call(
            self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocols=(("range", encode_versioned(said, 1)),),
            needs_known_id=self.instance_id is None,
        )
        self.joining = Call(self.model.world.coordinator.join(call))

    def on_joined(self, result: Any) -> None:
        code = result.error_code
        if code == NONE:
            self.member_id = result.member_id
            self.generation = result.generation
            parts: dict[str, bytes] = {}
            if result.leader == result.member_id and not result.skip_assignment:
                parts = self.assign([member.member_id for member in result.members])
            self.syncing = self.model.world.sync(result, parts, instance_id=self.instance_id)
        elif code == MemberIdRequired.code:
            self.member_id = result.member_id
        else:
            self.on_error(code)

    def assign(self, members: list[str]) -> dict[str, bytes]:
        topics = self.model.world.topics
        named = ConsumerProtocolAssignment.TopicPartition
        parts: dict[str, list[Any]] = {member: [] for member in members}
        for topic in TOPICS[:2]:
            for partition in range(topics.count(topic)):
                parts[members[partition % len(members)]].append(
                    named(topic=topic, partitions=[partition])
                )
        return {
            member: encode_versioned(ConsumerProtocolAssignment(assigned_partitions=mine), 1)
            for member, mine in parts.items()
        }

    def on_synced(self, result: Any) -> None:
        if result.error_code != NONE:
            self.on_error(result.error_code)
            return
        self.joined = True
        value = decode_versioned(ConsumerProtocolAssignment, result.assignment)
        self.owned = {
            (topic_id(part.topic), p) for part in value.assigned_partitions for p in part.partitions
        }
        self.model.check_owners()

    def on_error(self, code: int) -> None:
        if code in (UnknownMemberId.code, IllegalGeneration.code, GroupMaxSizeReached.code):
            self.lose()
            if code != IllegalGeneration.code:
                self.member_id = NO_MEMBER
        elif code == FencedInstanceId.code:
            self.alive = False
            self.lose()
        elif code == RebalanceInProgress.code:
            self.lose()
        elif code in RETRIED:
            if not self.joined:
                self.lose()
        else:
            assert code == NONE, code

    def leave(self, epoch: int) -> None:
        if self.member_id != NO_MEMBER:
            self.model.world.leave_quietly(self.member_id, self.instance_id)
        self.lose()

    def caller(self) -> Caller:
        return Caller(self.generation, self.member_id, self.instance_id)


def grouped(places: set[Place]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def picture(group: ConsumerGroup | None) -> Any:
    """All of a group that must be the same when it is read from the log."""
    if group is None:
        return None
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.metadata_hash),
        "members": {m: asdict(member) for m, member in sorted(group.members.items())},
        "static": sorted(group.static_members.items()),
        "targets": sorted((m, sorted(t.items())) for m, t in group.targets.items()),
        "regexes": sorted((r, sorted(found.topics)) for r, found in group.regexes.items()),
        "owners": sorted((t, sorted(o.items())) for t, o in group.owners.items()),
        "names": sorted(group.names.items()),
        "counts": (
            sorted(group.subscribed_regexes.items()),
            sorted(group.assignors.items()),
            group.classic_count,
            sorted(group.classic_protocols.items()),
        ),
    }


class ModelWorld(World):
    def leave_quietly(self, member_id: str, instance_id: str | None) -> None:
        """LeaveGroup, whatever comes of it."""
        from kafkalike.broker.coordinator.values import MemberIdentity

        self.coordinator.leave(GROUP, [MemberIdentity(member_id, instance_id)])


class Model:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.losses = chance.choice((0.0, 0.05, 0.2))
        self.mixes = chance.random() < 0.6
        properties: dict[str, Any] = {
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.heartbeat.interval.ms": "1000",
            "group.consumer.max.size": str(chance.choice((4, 100))),
            "group.consumer.migration.policy": chance.choice(
                ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
            ),
        }
        self.world = ModelWorld(seed=seed, **properties)
        for topic in TOPICS[: chance.randint(0, 3)]:
            self.world.topics.set(topic, chance.randint(1, 6))
        self.clients: list[Consumer | Classic] = []
        self.count = 0
        self.acknowledged: dict[TopicPartition, int] = {}
        self.attempted = 0
        self.commits: list[tuple[TopicPartition, int, Any]] = []

    @property
    def group(self) -> ConsumerGroup | None:
        consumers = self.world.coordinator.consumers
        assert consumers is not None
        return consumers.get(GROUP)

    # -- what must hold ------------------------------------------------------------------------

    def members(self) -> set[str]:
        """Ids of those whom the coordinator has not given up."""
        group = self.group
        if group is not None:
            return set(group.members)
        classic = self.world.group()
        return set() if classic is None else set(classic.members)

    def check_owners(self) -> None:
        members = self.members()
        owners: dict[Place, str] = {}
        for client in self.clients:
            if client.member_id not in members:
                continue
            for place in client.owned:
                other = owners.setdefault(place, client.name)
                assert other == client.name, (place, other, client.name, self.group)

    def commit(self, client: Consumer | Classic) -> None:
        if not client.owned:
            return
        topic, partition = self.chance.choice(sorted(client.owned))
        name = topic.rstrip(b"\0").decode()
        self.attempted += 1
        key = TopicPartition(name, partition)
        value = OffsetAndMetadata(self.attempted, commit_timestamp=self.world.clock.now_ms())
        result = self.world.coordinator.commit(GROUP, client.caller(), {key: value})
        self.commits.append((key, self.attempted, Call(result)))

    def check_offsets(self) -> None:
        waiting = []
        for key, offset, call in self.commits:
            if call.is_waiting:
                waiting.append((key, offset, call))
            elif call.value[key] == NONE:
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), offset)
        self.commits = waiting
        code, found = self.world.coordinator.fetch(GROUP, list(self.acknowledged))
        assert code == NONE, code
        for key, acknowledged in self.acknowledged.items():
            assert acknowledged <= found[key].offset <= self.attempted, key

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self.event()
            self.world.clock.advance(self.chance.choice((0.02, 0.5, 1.0, 2.0)))
            for client in list(self.clients):
                if client.alive and client.frozen_until_s <= self.world.clock.monotonic():
                    client.step()
            self.check_owners()
            self.check_offsets()
        self.calm_down()

    def event(self) -> None:
        world, chance = self.world, self.chance
        kind = chance.randrange(16)
        living = [client for client in self.clients if client.alive]
        if kind < 3 and len(living) < 6:
            self.count += 1
            kind_of = Classic if self.mixes and chance.random() < 0.5 else Consumer
            self.clients.append(kind_of(self, self.count))
        elif kind < 6 and living:
            self.commit(chance.choice(living))
        elif kind == 6 and living:
            client = chance.choice(living)
            client.alive = False
            client.lose()
        elif kind == 7 and living:
            client = chance.choice(living)
            client.frozen_until_s = world.clock.monotonic() + chance.choice((2, 5, 8, 20))
        elif kind == 8 and living:
            client = chance.choice(living)
            client.leave(-2 if client.instance_id is not None and chance.random() < 0.5 else -1)
            client.restart()
            client.alive = chance.random() < 0.5
        elif kind == 9 and living:
            chance.choice(living).restart()
        elif kind == 10:
            world.replicas.held = True
        elif kind == 11:
            world.replicas.held = False
            codes = (NONE, NONE, NONE, NotEnoughReplicas.code, RequestTimedOut.code)
            world.replicas.release(chance.choice(codes))
        elif kind == 12 and chance.random() < 0.4:
            self.fail_over()
        elif kind == 13 and chance.random() < 0.6:
            topic = chance.choice(TOPICS)
            count = world.topics.count(topic)
            world.topics.set(topic, count + chance.randint(1, 2))
        elif kind == 14 and living:
            client = chance.choice(living)
            if isinstance(client, Consumer):
                client.topics = chance.choice((TOPICS[:1], TOPICS[:2], TOPICS))
                client.must_say_all = True
        elif kind == 15 and chance.random() < 0.3:
            world.replicas.code = 0 if world.replicas.code else NotEnoughReplicas.code

    def fail_over(self) -> None:
        world = self.world
        log = world.replicas.log(0)
        whole = log.high_watermark == log.log_end_offset
        before = picture(self.group)
        world.fail_over(loses=self.chance.random() < 0.5)
        if whole:
            after = picture(self.group)
            assert after == before, (before, after)

    def calm_down(self) -> None:
        """No more faults: the group must come to rest with those who live."""
        world = self.world
        self.losses = 0.0
        world.replicas.held = False
        world.replicas.code = 0
        world.replicas.release()
        world.topics.set("t-1", world.topics.count("t-1") + 1)
        deadline_s = world.clock.monotonic() + QUIET_S
        while world.clock.monotonic() < deadline_s:
            world.clock.advance(1.0)
            living = [client for client in self.clients if client.alive]
            for client in living:
                client.step()
            self.check_owners()
            if self.is_at_rest(living):
                self.check_offsets()
                return
        said = [
            (c.name, c.member_id, sorted(c.owned), c.is_settled) for c in self.clients if c.alive
        ]
        raise AssertionError(f"no rest: {self.group!r} {world.group()!r} {said}")

    def is_at_rest(self, living: list[Consumer | Classic]) -> bool:
        group = self.group
        members = self.members()
        settled = [c for c in living if c.is_settled and c.member_id in members]
        if not living:
            return not members
        consumers = [client for client in living if isinstance(client, Consumer)]
        if group is None:
            # Only classic members may be left in a classic group; others are not let in.
            policy = self.world.config.group_consumer_migration_policy
            full = len(members) >= int(self.world.config.group_consumer_max_size)
            blocked = full or (policy in ("downgrade", "disabled") and bool(members))
            if consumers and not blocked:
                return False
            if any(not c.is_settled for c in living if isinstance(c, Classic)):
                return False
        else:
            limit = int(self.world.config.group_consumer_max_size)
            if len(settled) < min(limit, len(living)) or group.state.value != "Stable":
                return False
            if set(group.members) != {client.member_id for client in settled}:
                return False
        return self.covers(settled, group)

    def covers(self, settled: list[Consumer | Classic], group: ConsumerGroup | None) -> bool:
        owned = [place for client in settled for place in client.owned]
        topics = self.world.topics
        read = set(group.names) if group is not None else {t for c in settled for t in c.topics}
        wanted = {
            (topic_id(topic), p) for topic in read for p in range(topics.count(topic)) if settled
        }
        return len(owned) == len(set(owned)) and (group is None or set(owned) == wanted)


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_random_histories(first: int) -> None:
    for seed in range(first, min(first + BATCH, RUNS)):
        try:
            Model(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
