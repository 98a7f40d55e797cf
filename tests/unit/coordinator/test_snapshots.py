"""Snapshots of groups: whatever became of the log or the file, loading says what the log says."""

import logging
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.cluster.topic_names import GROUP_METADATA_TOPIC
from kafkalike.broker.coordinator.records import (
    group_key,
    offset_key,
    offset_value,
    tombstone,
)
from kafkalike.broker.coordinator.shard import ShardLoad
from kafkalike.broker.coordinator.snapshot import FILE_NAME, HEADER_BYTES, TEMPORARY_NAME
from kafkalike.broker.coordinator.snapshots import SnapshotKeeper
from kafkalike.broker.coordinator.values import OffsetAndMetadata
from kafkalike.broker.log.log import Log
from kafkalike.broker.replica.partition import Partition
from kafkalike.broker.replica.roles import RoleChanges, Stopped
from kafkalike.messages.stored import GroupMetadataValue, encode_versioned
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.runtime.ports import StorageError
from kafkalike.types import TopicPartition
from tests.fakes import FakeRandom, InlineThreads, result_of
from tests.unit.log.support import PATH, CrashAt, marker
from tests.unit.log.test_cleaner import Compaction

from .support import LedPartition

LOGGER = logging.getLogger("tests.snapshots")
FILE = f"{PATH}/{FILE_NAME}"
NUMBER = 0
State = dict[str, Any]


def load(log: Log, disk: Any = None) -> ShardLoad:
    """Load a partition to the end."""
    shard_load = ShardLoad(
        log,
        lambda: 0.0,
        lambda: 0,
        LOGGER,
        buffer_bytes=1 << 20,
        threads=InlineThreads(),
        disk=disk,
    )
    for _ in range(1_000_000):
        if shard_load.step() is True:
            return shard_load
    raise AssertionError("loading does not end")


def state(done: ShardLoad) -> State:
    """Everything a coordinator would know."""
    found: State = {"producers": {p: sorted(groups) for p, groups in done.producers.items()}}
    for group_id, group in done.groups.items():
        list(group.offsets)  # unpacks
        found[group_id] = (
            group.generation,
            sorted(group.members),
            group.offsets._committed,
            group.offsets._transactional,
        )
    return found


class World(Compaction):
    """One partition of the topic with its keeper; "today" is one batch after the other."""

    def __init__(self, **overrides: object) -> None:
        super().__init__(**overrides)
        self.epoch = 1
        self.keeper = self.new_keeper()

    def new_keeper(self, min_records: int = 1, growth: float = 0.0) -> SnapshotKeeper:
        return SnapshotKeeper(
            clock=self.clock,
            disk=self.disk,
            threads=InlineThreads(),
            partition=self._partition,
            min_records=min_records,
            growth=growth,
        )

    def _partition(self, key: TopicPartition) -> Partition | None:
        assert key == TopicPartition(GROUP_METADATA_TOPIC, NUMBER)
        return cast(Partition, LedPartition(key, 0, cast(Any, self.log)))

    def append(self, records: list[Record], **fields: Any) -> None:
        data = encode_batch(records, **fields)
        self.log.append_as_leader(data, self.epoch, origin="coordinator", now_ms=1)
        self.log.update_high_watermark(self.log.log_end_offset)

    def commit(self, offset: int, *partitions: int, group: str = "g", **fields: Any) -> None:
        value = OffsetAndMetadata(offset, 1, f"note {offset}" if offset % 3 else "", offset)
        keys = [offset_key(group, TopicPartition("t", p)) for p in partitions or (0,)]
        self.append([Record(key, offset_value(value), 1) for key in keys], **fields)

    def forget(self, *partitions: int, group: str = "g") -> None:
        keys = [offset_key(group, TopicPartition("t", p)) for p in partitions or (0,)]
        self.append([tombstone(key, 1) for key in keys])

    def store_group(self, group: str, generation: int, *members: str) -> None:
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range",
            leader=members[0] if members else None,
            members=[GroupMetadataValue.MemberMetadata(member_id=m) for m in members],
        )
        self.append([Record(group_key(group), encode_versioned(value, 3), 1)])

    def transaction(self, pid: int, offset: int, group: str = "g", partition: int = 0) -> None:
        self.commit(
            offset,
            partition,
            group=group,
            producer_id=pid,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    def finish(self, pid: int, *, commit: bool) -> None:
        data = marker((pid, 0), commit=commit)
        self.log.append_as_leader(data, self.epoch, origin="coordinator", now_ms=1)
        self.log.update_high_watermark(self.log.log_end_offset)

    def snapshot(self, keeper: SnapshotKeeper | None = None) -> bool:
        outcome: list[Any] = []
        Deferred.fromCoroutine((keeper or self.keeper).look(NUMBER)).addBoth(outcome.append)
        for _ in range(100_000):
            if outcome:
                break
            self.clock.advance(0.01)
        assert isinstance(outcome[0], bool), outcome[0]
        return outcome[0]

    def check(self) -> ShardLoad:
        """Loading with the snapshot says what loading without says."""
        done = load(self.log, self.disk)
        assert state(done) == state(load(self.log))
        return done

    def restart(self, **more: Any) -> None:
        self.log = self.load(self.settings, **more)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.keeper = self.new_keeper()


def filled() -> World:
    """A bit of everything, a snapshot, and a bit more of everything."""
    world = World()
    world.store_group("g", 3, "m1", "m2")
    world.commit(5, *range(40))
    world.commit(7, group="h")
    world.transaction(77, 9, partition=1)
    world.transaction(78, 10, "open")
    world.forget(2, 3)
    assert world.snapshot()
    world.commit(8, 2, 4)
    world.finish(77, commit=True)
    world.forget(5, group="g")
    world.forget(group="h")
    return world


def test_loading_uses_the_snapshot_and_reads_only_what_follows() -> None:
    world = filled()
    end = world.log.log_end_offset
    done = world.check()
    assert done.snapshot_offset is not None and done.snapshot_offset < end
    assert done.record_count == 4 < load(world.log).record_count
    assert "h" not in done.groups
    group = done.groups["g"]
    assert [group.offsets.get(TopicPartition("t", p)) for p in (5,)] == [None]
    committed = {p: group.offsets.get(TopicPartition("t", p)) for p in (0, 1, 2, 3, 4)}
    assert {p: v and v.offset for p, v in committed.items()} == {0: 5, 1: 9, 2: 8, 3: None, 4: 8}
    assert done.groups["open"].offsets.is_unstable(TopicPartition("t", 0))


def test_a_second_snapshot_begins_where_the_first_ended() -> None:
    world = filled()
    opened: list[str] = []
    world.disk.before = lambda operation, path: opened.append(path)
    assert world.snapshot()
    world.disk.before = None
    assert world.check().snapshot_offset == world.log.log_end_offset
    assert FILE in opened
    assert not world.disk.exists(f"{PATH}/{TEMPORARY_NAME}")


@pytest.mark.parametrize("seed", range(40))
def test_any_history_loads_alike_with_snapshots_and_without(seed: int) -> None:
    chance = random.Random(seed)
    world = World(segment_bytes=chance.choice([2000, 4000, 100_000]), delete_retention_ms=0)
    open_pids: set[int] = set()
    for step in range(chance.randrange(20, 90)):
        group = f"g{chance.randrange(3)}"
        partitions = [chance.randrange(30) for _ in range(chance.randrange(1, 25))]
        kind = chance.randrange(12)
        if kind < 4:
            world.commit(step, *dict.fromkeys(partitions), group=group)
        elif kind < 6:
            world.forget(*dict.fromkeys(partitions), group=group)
        elif kind == 6:
            world.store_group(group, step, *(f"m{n}" for n in range(chance.randrange(3))))
        elif kind == 7:
            pid = chance.randrange(3)
            open_pids.add(pid)
            world.transaction(pid, step, group, partitions[0])
        elif kind == 8 and open_pids:
            world.finish(open_pids.pop(), commit=chance.random() < 0.7)
        elif kind == 9:
            world.append([tombstone(group_key(group), 1)])
        elif kind == 10:
            world.snapshot()
        elif chance.random() < 0.3:
            world.clean()
        else:
            world.epoch += 1
    world.check()
    world.snapshot()
    world.check()


def test_a_tombstone_ends_what_a_transaction_had_before_it() -> None:
    world = World(delete_retention_ms=0)
    world.transaction(7, 1)
    world.forget(0)
    world.finish(7, commit=True)
    world.commit(2, 1)
    assert [p.partition for p in load(world.log).groups["g"].offsets] == [1]
    assert world.clean()
    assert [p.partition for p in load(world.log).groups["g"].offsets] == [1]


# -- the file ------------------------------------------------------------------------------------


def replace(world: World, data: bytes) -> None:
    world.disk.remove(FILE)
    file = world.disk.open(FILE, create=True)
    file.append(data)
    file.close()


def test_damage_of_any_byte_is_noticed() -> None:
    world = filled()
    expected = state(load(world.log))
    whole = world.disk.read_file(FILE)
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[at] ^= flip
            replace(world, bytes(damaged))
            done = load(world.log, world.disk)
            assert done.snapshot_offset is None, (at, flip)
            assert state(done) == expected
    replace(world, whole)
    assert load(world.log, world.disk).snapshot_offset is not None


def test_a_file_of_another_length_is_noticed() -> None:
    world = filled()
    expected = state(load(world.log))
    whole = world.disk.read_file(FILE)
    others = [whole[:length] for length in range(len(whole))]
    for data in [*others, whole + b"\0", whole + whole, bytes(len(whole))]:
        replace(world, data)
        done = load(world.log, world.disk)
        assert done.snapshot_offset is None, len(data)
        assert state(done) == expected


def test_lengths_in_the_file_are_checked_before_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = filled()
    whole = bytearray(world.disk.read_file(FILE))
    at = HEADER_BYTES  # the head of the first section: kind and length
    whole[at + 1 : at + 5] = b"\xff\xff\xff\xff"
    replace(world, bytes(whole))
    asked: list[int] = []

    def pread(self: Any, length: int, position: int) -> Any:
        asked.append(length)
        return original(self, length, position)

    kind = type(world.disk.open(FILE))
    original = kind.pread
    monkeypatch.setattr(kind, "pread", pread)
    assert load(world.log, world.disk).snapshot_offset is None
    assert max(asked) <= 1 << 20


def test_a_disk_that_fails_costs_the_snapshot_only() -> None:
    world = filled()
    expected = state(load(world.log))

    def refuse(operation: str, path: str) -> None:
        if path == FILE:
            raise StorageError(f"{path}: Input/output error")

    world.disk.before = refuse
    assert state(load(world.log, world.disk)) == expected
    world.commit(99)
    assert not world.snapshot() or load(world.log, world.disk).snapshot_offset is None
    assert not world.failures


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_epoch", [True, False])
def test_a_log_that_was_cut_and_grew_again_does_not_believe_it(same_epoch: bool) -> None:
    world = World()
    for offset in range(20):
        world.commit(offset, 0)
    assert world.snapshot()
    for cut in range(19, 0, -1):
        world.log.truncate_to(cut)
        if not same_epoch:
            world.epoch += 1
        done = world.check()
        assert done.snapshot_offset is None
        while world.log.log_end_offset < 25:
            world.commit(1000 + cut, 0)
            world.check()
        assert load(world.log, world.disk).snapshot_offset is None


def test_a_snapshot_longer_than_the_log_is_made_anew() -> None:
    world = filled()
    world.log.truncate_to(1)
    world.epoch += 1
    assert world.snapshot()
    assert world.check().snapshot_offset == 1


def test_a_tombstone_that_compaction_took_is_not_missed() -> None:
    world = World(delete_retention_ms=0)
    world.commit(1, *range(5))
    assert world.snapshot()
    world.forget(*range(5))
    world.commit(2, 9)
    for _ in range(3):
        assert world.clean()
        world.commit(3, 8)
    done = world.check()
    assert done.snapshot_offset is None
    assert [p.partition for p in done.groups["g"].offsets] == [9, 8]
    assert world.snapshot()
    assert world.check().snapshot_offset == world.log.log_end_offset


def test_compaction_of_what_the_snapshot_holds_leaves_it_in_force() -> None:
    world = World()
    for offset in range(30):
        world.commit(offset, 0)
    world.log.roll()
    world.commit(30, 1)
    assert world.snapshot()
    assert world.clean() or True
    world.commit(31, 1)
    world.check()


def test_delete_records_makes_it_void() -> None:
    world = filled()
    world.log.maybe_increment_log_start_offset(2)
    assert world.check().snapshot_offset is None


def test_another_topic_of_the_same_name_does_not_believe_it() -> None:
    world = filled()
    world.log.topic_id = b"another id of 16"
    assert world.check().snapshot_offset is None


def test_what_happens_while_it_is_made_is_noticed() -> None:
    def compact(world: World) -> None:
        world.log.replace_segments([world.log.segments[0]], [world.log.segments[0]])

    def cut(world: World) -> None:
        world.log.truncate_to(10)

    def forget(world: World) -> None:
        world.log.maybe_increment_log_start_offset(2)

    def close(world: World) -> None:
        world.log.close()

    def end(world: World) -> None:
        world.keeper.stop()

    events: list[Callable[[World], None]] = [cut, forget, close, end]
    for event in events:
        world = World()
        for offset in range(500):
            world.commit(offset, offset % 7)
        work = Deferred.fromCoroutine(world.keeper.look(NUMBER))
        assert not work.called
        event(world)
        outcome: list[Any] = []
        work.addBoth(outcome.append)
        for _ in range(1000):
            if not outcome:
                world.clock.advance(0.01)
        assert outcome and outcome[0] is not True, event
        assert not world.disk.exists(FILE) and not world.disk.exists(f"{PATH}/{TEMPORARY_NAME}")


# -- when -----------------------------------------------------------------------------------------


def test_it_is_made_when_enough_has_come() -> None:
    world = World()
    keeper = world.new_keeper(min_records=10)
    for _ in range(9):
        world.commit(1)
    assert not world.snapshot(keeper)
    world.commit(1)
    assert world.snapshot(keeper)
    for _ in range(9):
        world.commit(1)
    assert not world.snapshot(keeper)
    # another process finds what this one left
    keeper = world.new_keeper(min_records=10)
    assert not world.snapshot(keeper)
    world.commit(1)
    assert world.snapshot(keeper)
    # a large one is worth waiting for more
    world.commit(1, *range(200))
    keeper = world.new_keeper(min_records=10, growth=0.5)
    assert world.snapshot(keeper)
    for _ in range(99):
        world.commit(1)
    assert not world.snapshot(keeper)
    world.commit(2)
    world.commit(2)
    assert world.snapshot(keeper)


def test_only_what_is_replicated_goes_into_it() -> None:
    world = World()
    world.commit(1)
    world.log.append_as_leader(
        encode_batch([Record(offset_key("x", TopicPartition("t", 0)), b"", 1)]),
        1,
        origin="coordinator",
        now_ms=1,
    )
    assert world.snapshot()
    assert load(world.log, world.disk).snapshot_offset == 1


def test_leaders_and_followers_have_one_and_the_stopped_do_not() -> None:
    world = World()
    for _ in range(3):
        world.commit(1)
    key = TopicPartition(GROUP_METADATA_TOPIC, NUMBER)
    led = world._partition(key)
    assert led is not None
    world.keeper.start()
    world.keeper.roles_changed(RoleChanges([], [led], []))
    for _ in range(2000):
        world.clock.advance(0.01)
    assert world.check().snapshot_offset == 3
    world.keeper.roles_changed(RoleChanges([], [], [Stopped(key, 1, True)]))
    world.commit(2)
    for _ in range(3000):
        world.clock.advance(0.01)
    assert world.check().snapshot_offset == 3
    ended = world.keeper.stop()
    result_of(ended)


def test_none_is_made_where_the_setting_says_so() -> None:
    world = World()
    world.commit(1)
    keeper = world.new_keeper(min_records=0)
    keeper.start()
    assert world.clock.pending() == 0


# -- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_operation_leaves_a_log_that_loads(power_lost: bool) -> None:
    at = used = 0
    while True:
        world = filled()
        world.log.flush()
        recovery_point = world.log.recovery_point
        expected = state(load(world.log))
        world.disk.before = CrashAt(at)
        outcome: list[Any] = []
        Deferred.fromCoroutine(world.keeper.look(NUMBER)).addBoth(outcome.append)
        for _ in range(100):
            if not outcome:
                world.clock.advance(0.01)
        world.disk.before = None
        if power_lost:
            world.disk.crash(FakeRandom(at) if at % 2 else None)
        else:
            world.disk.kill()
        world.restart(recovery_point=recovery_point)
        done = world.check()
        assert state(done) == expected
        used += done.snapshot_offset is not None
        world.commit(50)
        assert world.snapshot()
        assert world.check().snapshot_offset == world.log.log_end_offset
        if outcome[0] is True:
            break
        at += 1
    assert at > 8 and used
