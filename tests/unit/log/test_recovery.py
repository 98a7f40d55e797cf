"""Loading after every kind of end (reference: log-store 5; KAFKA-10471, 12520, 3968, 9892)."""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.broker.log.checkpoints import CorruptCheckpoint
from kafkalike.broker.log.index import OFFSET_ENTRY
from kafkalike.broker.log.log import Log
from kafkalike.config import LogConfig
from kafkalike.records.compression import Codec
from kafkalike.records.legacy import encode_legacy
from kafkalike.records.record import Record
from kafkalike.runtime.ports import StorageError
from kafkalike.tools.simulator.disk import MemoryDisk

from .support import (
    NOW,
    PATH,
    Crash,
    CrashAt,
    World,
    append,
    batch,
    config,
    contents,
    marker,
    names,
    values_of,
)

STEM = f"{PATH}/{0:020d}"


def cut(world: World, path: str, size: int) -> None:
    file = world.disk.open(path)
    file.truncate(size)
    file.close()


def put(world: World, path: str, data: bytes) -> None:
    file = world.disk.open(path, create=True)
    file.truncate(0)
    file.append(data)
    file.close()


def test_recovery_at_every_byte_of_a_torn_tail() -> None:
    world = World()
    log = world.load()
    append(log, "a", "b")
    keep = log.size
    append(log, "c", timestamp=NOW + 5)
    whole = log.size
    data = world.disk.read_file(f"{STEM}.log")
    for size in range(keep, whole):
        put(world, f"{STEM}.log", data[:size])
        again = world.load()
        assert again.log_end_offset == 2
        assert values_of(again) == ["a", "b"]
        assert world.disk.size(f"{STEM}.log") == keep
        assert again.segments[-1].max_timestamp == NOW + 1
        append(again, "after")
        assert values_of(again) == ["a", "b", "after"]
    put(world, f"{STEM}.log", data)
    assert world.load().log_end_offset == 3


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"\0" * 5000])
def test_garbage_behind_the_last_batch_is_cut(garbage: bytes) -> None:
    world = World()
    log = world.load()
    append(log, "a")
    file = world.disk.open(f"{STEM}.log")
    file.append(garbage)
    file.close()
    assert values_of(world.load()) == ["a"]
    assert world.disk.size(f"{STEM}.log") == len(batch("a"))


def test_a_flipped_bit_ends_the_log_there_and_later_segments_go() -> None:
    world = World()
    log = world.load(config(segment_bytes=200))
    for n in range(6):
        append(log, f"v{n}" * 30)
    stem = f"{PATH}/{2:020d}"
    data = bytearray(world.disk.read_file(f"{stem}.log"))
    data[-1] ^= 1
    put(world, f"{stem}.log", bytes(data))
    log = world.load(config(segment_bytes=200))
    assert log.log_end_offset == 2
    assert [s.base_offset for s in log.segments] == [0, 1, 2]
    assert log.segments[-1].size == 0
    assert not [n for n in names(world, ".log") if int(n[:20]) > 2]
    append(log, "next")
    assert [o for o, _ in contents(log)] == [0, 1, 2]


def spoil_base_offset(world: World, number: int, base_offset: int) -> None:
    """Give the batch with that number another base offset, which no checksum covers."""
    data = bytearray(world.disk.read_file(f"{STEM}.log"))
    position = 0
    for _ in range(number):
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    data[position : position + 8] = base_offset.to_bytes(8, "big")
    put(world, f"{STEM}.log", bytes(data))


@pytest.mark.parametrize("wrong", [3 + (1 << 27), 4, 3 + (1 << 40), 1, 0])
@pytest.mark.parametrize("number", [3, 5])
def test_a_damaged_base_offset_ends_the_log_before_it(wrong: int, number: int) -> None:
    world = World()
    log = world.load()
    for n in range(6):
        append(log, f"v{n}")
    wrong += number - 3
    spoil_base_offset(world, number, wrong)
    again = world.load()
    assert again.log_end_offset == number
    append(again, "after")
    assert [o for o, _ in contents(again)] == list(range(number + 1))


def spoil_epoch(world: World, number: int, epoch: int) -> None:
    """Give the batch with that number another leader epoch, which no checksum covers either."""
    data = bytearray(world.disk.read_file(f"{STEM}.log"))
    position = 0
    for _ in range(number):
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    data[position + 12 : position + 16] = epoch.to_bytes(4, "big")
    put(world, f"{STEM}.log", bytes(data))


def with_epochs(*epochs: int) -> World:
    """A log of a batch for each, its leader epoch file written."""
    world = World()
    log = world.load()
    for n, epoch in enumerate(epochs):
        append(log, f"v{n}", epoch=epoch)
    log.close()
    return world


@pytest.mark.parametrize("wrong", [4, 5, 9, 1 << 30, 3 + (1 << 31), 2, 1, 0])
@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_damaged_leader_epoch_between_equal_ones_is_mended(wrong: int, number: int) -> None:
    """To cut there would cost acknowledged records where there is one replica."""
    world = with_epochs(1, 3, 3, 3, 3, 3)
    whole = world.disk.read_file(f"{STEM}.log")
    spoil_epoch(world, number, wrong)
    again = world.load()
    assert again.log_end_offset == 6
    assert again.leader_epochs == [(1, 0), (3, 1)]
    assert world.disk.read_file(f"{STEM}.log") == whole


@pytest.mark.parametrize(("number", "wrong"), [(2, 7), (3, 9), (3, 3 + (1 << 31)), (3, 1)])
def test_a_damaged_leader_epoch_between_others_is_mended_by_the_file(
    number: int, wrong: int
) -> None:
    world = with_epochs(1, 3, 3, 4, 6, 6)
    whole = world.disk.read_file(f"{STEM}.log")
    spoil_epoch(world, number, wrong)
    assert world.load().leader_epochs == [(1, 0), (3, 1), (4, 3), (6, 4)]
    assert world.disk.read_file(f"{STEM}.log") == whole
    spoil_epoch(world, number, 1 << 30)
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n0\n")
    assert world.load().log_end_offset == number, "nobody knows which it was"


@pytest.mark.parametrize("wrong", [5, 1 << 30])
def test_what_follows_a_damaged_last_epoch_is_not_lost_at_the_next_recovery(wrong: int) -> None:
    """At the end of a log it is taken for a new one; the next leader's records prove it wrong."""
    world = with_epochs(1, 3, 3)
    whole = world.disk.read_file(f"{STEM}.log")
    spoil_epoch(world, 2, wrong)
    again = world.load()
    assert again.log_end_offset == 3
    append(again, "acknowledged", epoch=4)
    again.close()
    again = world.load()
    assert [o for o, _ in contents(again)] == [0, 1, 2, 3]
    assert again.leader_epochs == [(1, 0), (3, 1), (4, 3)]
    assert world.disk.read_file(f"{STEM}.log").startswith(whole)


@pytest.mark.parametrize("wrong", [2, 1, 0, 3 + (1 << 31)])
def test_a_last_batch_of_an_older_epoch_is_damaged(wrong: int) -> None:
    world = with_epochs(1, 3, 3)
    spoil_epoch(world, 2, wrong)
    assert world.load().log_end_offset == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_epoch_is_found_where_the_file_knows_it_from_later_on(number: int) -> None:
    world = with_epochs(0, 0, 0, 0, 1, 1)
    whole = world.disk.read_file(f"{STEM}.log")
    spoil_epoch(world, number, 1)
    assert world.load().leader_epochs == [(0, 0), (1, 4)]
    assert world.disk.read_file(f"{STEM}.log") == whole


def spoil_last(world: World, how: str) -> None:
    """Damage the last batch where recovery finds it by the batch alone."""
    data = bytearray(world.disk.read_file(f"{STEM}.log"))
    position = following = 0
    while following < len(data):
        position = following
        following += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    match how:
        case "short":
            data[position + 8 : position + 12] = (3).to_bytes(4, "big")
        case "long":
            data[position + 8 : position + 12] = (30_000).to_bytes(4, "big")
        case "magic":
            data[position + 16] = 3
        case "checksum":
            data[position + 17] ^= 1
        case "epoch":
            data[position + 12] ^= 0x80
        case "far offset":
            data[position + 3] ^= 1
    put(world, f"{STEM}.log", bytes(data))


DAMAGE = ["short", "long", "magic", "checksum", "epoch", "far offset"]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_new_epoch_before_a_damaged_batch_is_kept(how: str) -> None:
    world = with_epochs(1, 3, 3, 4, 4)
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n2\n1 0\n3 1\n")
    spoil_last(world, how)
    again = world.load()
    assert again.log_end_offset == 4
    assert again.leader_epochs == [(1, 0), (3, 1), (4, 3)]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_gap_before_a_damaged_batch_of_a_compacted_log_is_kept(how: str) -> None:
    world = World()
    settings_ = config(cleanup_policy="compact")
    log = world.load(settings_)
    for offset in (0, 3, 9, 12):
        log.append_as_follower(batch("v", base_offset=offset, key=b"k", epoch=2))
    spoil_last(world, how)
    assert [o for o, _ in contents(world.load(settings_))] == [0, 3, 9]


def test_a_new_epoch_is_believed_without_the_file() -> None:
    """A process that is killed may not have written it."""
    world = with_epochs(1, 3, 3, 4)
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n2\n1 0\n3 1\n")
    again = world.load()
    assert again.leader_epochs == [(1, 0), (3, 1), (4, 3)]
    assert again.log_end_offset == 4
    append(again, "more", epoch=6)
    append(again, "more", epoch=6)
    again.close()
    world.disk.remove(f"{PATH}/leader-epoch-checkpoint")
    assert world.load().leader_epochs == [(1, 0), (3, 1), (4, 3), (6, 4)]


def test_epochs_that_fall_for_good_are_kept() -> None:
    """Somebody set ZooKeeper back: no bit flips in one batch after the other."""
    world = with_epochs(5, 5, 2, 2, 2)
    again = world.load()
    assert again.log_end_offset == 5


def test_a_damaged_leader_epoch_at_the_end_of_a_segment() -> None:
    world = World()
    settings_ = config(segment_bytes=200)
    log = world.load(settings_)
    for n in range(4):
        append(log, f"v{n}" * 30, epoch=3)
    log.close()
    assert len(log.segments) == 4
    whole = world.disk.read_file(f"{STEM}.log")
    spoil_epoch(world, 0, 9)
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n0\n")
    assert world.load(settings_).log_end_offset == 0, "nobody knows which it was"
    world = World()
    log = world.load(settings_)
    for n in range(4):
        append(log, f"v{n}" * 30, epoch=3)
    log.close()
    spoil_epoch(world, 0, 9)
    assert world.load(settings_).log_end_offset == 4
    assert world.disk.read_file(f"{STEM}.log") == whole


def test_gaps_of_compaction_are_kept_to_the_end() -> None:
    world = World()
    settings_ = config(cleanup_policy="compact")
    log = world.load(settings_)
    for offset in (0, 7, 8, 30):
        log.append_as_follower(batch("v", base_offset=offset, key=b"k"))
    assert [o for o, _ in contents(world.load(settings_))] == [0, 7, 8, 30]
    # Of a log that is not compacted the last one is not believed, and fetched again.
    assert [o for o, _ in contents(world.load())] == [0, 7, 8]


def segmented(policy: str = "delete") -> tuple[World, LogConfig]:
    """Six segments of one record each, the last of them active."""
    world = World()
    settings_ = config(segment_bytes=200, cleanup_policy=policy)
    log = world.load(settings_)
    for n in range(6):
        append(log, f"v{n}" * 30, key=b"k%d" % n)
    log.close()
    assert len(log.segments) == 6
    return world, settings_


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("missing", [False, True])
def test_segments_whose_records_a_power_loss_took_leave_no_hole(policy: str, missing: bool) -> None:
    """The names of files may be on the disk before what is in them."""
    world, settings_ = segmented(policy)
    for n in range(2, 6):
        put(world, f"{PATH}/{n:020d}.log", b"")
    if missing:
        world.disk.remove(f"{PATH}/{3:020d}.log")
    log = world.load(settings_, recovery_point=1)
    assert log.log_end_offset == 2
    append(log, "next", key=b"k")
    assert [o for o, _ in contents(log)] == [0, 1, 2]
    assert [o for o, _ in contents(world.load(settings_))] == [0, 1, 2]


def test_a_segment_that_lost_its_end_at_a_batch_ends_the_log() -> None:
    world = World()
    settings_ = config(segment_bytes=300)
    log = world.load(settings_)
    for n in range(6):
        append(log, f"v{n}" * 30)
    log.close()
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    whole = world.disk.read_file(f"{PATH}/{2:020d}.log")
    put(world, f"{PATH}/{2:020d}.log", whole[: len(whole) // 2])
    put(world, f"{PATH}/{4:020d}.log", b"")
    assert world.load(settings_, recovery_point=1).log_end_offset == 3


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_segment_that_a_power_loss_took_leaves_no_hole_before_later_ones(
    policy: str, missing: bool
) -> None:
    """The system may have written a later segment and not yet an earlier one (seed 12472)."""
    world, settings_ = segmented(policy)
    if missing:
        world.disk.remove(f"{PATH}/{2:020d}.log")
    else:
        put(world, f"{PATH}/{2:020d}.log", b"")
    log = world.load(settings_, recovery_point=1)
    if policy == "compact":  # as compaction would leave it
        assert [o for o, _ in contents(log)] == [0, 1, 3, 4, 5]
        return
    assert log.log_end_offset == 2
    append(log, "next", key=b"k")
    assert [o for o, _ in contents(log)] == [0, 1, 2]
    assert [o for o, _ in contents(world.load(settings_))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "recovery_point"), [("compact", 0), ("compact", 31), ("delete", 31)]
)
def test_gaps_from_a_leader_that_compacted_cost_nothing_after_a_kill(
    policy: str, recovery_point: int
) -> None:
    """Segments of a follower begin behind such gaps; what was synced is kept when the topic is not
    compacted any more."""
    world = World()
    log = world.load(config(segment_bytes=200, cleanup_policy="compact"))
    for offset in (0, 7, 12, 30):
        log.append_as_follower(batch("v" * 60, base_offset=offset, key=b"k"))
    assert [segment.base_offset for segment in log.segments] == [0, 7, 12, 30]
    append(log, "led", key=b"k")
    log.close()
    later = world.load(
        config(segment_bytes=200, cleanup_policy=policy), recovery_point=recovery_point
    )
    assert [o for o, _ in contents(later)] == [0, 7, 12, 30, 31]


def test_a_gap_below_the_recovery_point_is_believed_at_the_end_too() -> None:
    world = World()
    log = world.load(config(cleanup_policy="compact"))
    for offset in (0, 7):
        log.append_as_follower(batch("v", base_offset=offset, key=b"k"))
    log.close()
    assert world.load(recovery_point=7).log_end_offset == 1
    world = World()
    log = world.load(config(cleanup_policy="compact"))
    for offset in (0, 7):
        log.append_as_follower(batch("v", base_offset=offset, key=b"k"))
    log.close()
    assert world.load(recovery_point=8).log_end_offset == 8


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_old_messages_at_the_end_is_no_gap(magic: int) -> None:
    """It is named after its last message."""
    world = World()
    log = world.load()
    for start in (0, 3, 6):
        messages = [Record(b"k", b"v", NOW, (), start + n) for n in range(3)]
        log.append_as_follower(encode_legacy(messages, magic, Codec.GZIP))
    log.close()
    assert world.load().log_end_offset == log.log_end_offset == 9


def test_a_kill_in_the_middle_of_a_truncation_leaves_no_hole() -> None:
    world, settings_ = segmented()
    log = world.load(settings_, clean=True)
    renamed: list[str] = []

    def stop(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".log"):
            renamed.append(path)
            if len(renamed) == 3:
                raise Crash

    world.disk.before = stop
    with pytest.raises(Crash):
        log.truncate_to(1)
    world.disk.before = None
    world.disk.kill()
    assert [o for o, _ in contents(world.load(settings_, recovery_point=6))] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("there", "recovery_point", "cleaned_offset"),
    [((3, 4, 5), 0, 0), ((3,), 5, 0), ((3,), 0, 5), ((), 0, 5)],
    ids=str,
)
def test_what_compaction_left_between_segments_is_no_loss(
    there: tuple[int, ...], recovery_point: int, cleaned_offset: int
) -> None:
    world, settings_ = segmented("compact")
    for n in {2, 3, 4, 5}.difference(there):
        put(world, f"{PATH}/{n:020d}.log", b"")
    log = world.load(settings_, recovery_point=recovery_point, cleaned_offset=cleaned_offset)
    assert [o for o, _ in contents(log)] == [0, 1, *there]
    assert log.log_end_offset == (6 if 5 in there else 5)


def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    world = World()
    log = world.load(config(segment_bytes=200))
    for n in range(6):
        append(log, f"v{n}" * 30)
    data = bytearray(world.disk.read_file(f"{STEM}.log"))
    data[-1] ^= 1
    put(world, f"{STEM}.log", bytes(data))
    assert world.load(config(segment_bytes=200), recovery_point=3).log_end_offset == 6
    assert world.load(config(segment_bytes=200), clean=True).log_end_offset == 6
    assert world.load(config(segment_bytes=200), recovery_point=0).log_end_offset == 0


def test_recovery_rebuilds_the_indexes_byte_for_byte() -> None:
    world = World()
    settings_ = config(index_interval_bytes=150, segment_bytes=2000)
    log = world.load(settings_)
    for n in range(40):
        append(log, "x" * (n % 7 * 10), timestamp=NOW + n * 37 % 23)
    log.close()
    before = {p: d for p, d in world.disk.dump().items() if p.endswith("index")}
    for path in before:
        put(world, path, b"\x01" * 40)
    world.load(settings_, recovery_point=0).close()
    after = {p: d for p, d in world.disk.dump().items() if p.endswith("index")}
    assert after == before


def test_the_zero_tail_of_an_index_is_no_entry_after_a_crash() -> None:
    world = World()
    log = world.load(config(index_interval_bytes=100, segment_index_bytes=1200))
    for n in range(10):
        append(log, "x" * 50, timestamp=NOW + n)
    entries = log.segments[0].index.entries()
    assert world.disk.size(f"{STEM}.index") == 1200
    log = world.load(config(index_interval_bytes=100, segment_index_bytes=1200))
    assert log.segments[0].index.entries() == entries
    for n in range(10):
        append(log, "x" * 50, timestamp=NOW + n)
    assert [o for o, _ in contents(log)] == list(range(20))


def test_missing_indexes_are_made_anew_even_after_a_clean_stop() -> None:
    world = World()
    log = world.load(config(index_interval_bytes=100))
    for n in range(10):
        append(log, "x" * 50, timestamp=NOW + n)
    log.close()
    index = world.disk.read_file(f"{STEM}.index")
    world.disk.remove(f"{STEM}.index")
    log = world.load(clean=True)
    assert len(contents(log)) == 10
    log.close()
    world.disk.remove(f"{STEM}.timeindex")
    log = world.load(clean=True)
    assert len(contents(log)) == 10
    assert append(log, "more", timestamp=NOW + 100) == 10
    assert len(index) > 0


def test_orphans_are_removed() -> None:
    world = World()
    log = world.load()
    append(log, "a")
    log.close()
    for name in (
        f"{9:020d}.index",
        f"{9:020d}.timeindex",
        f"{9:020d}.txnindex",
        f"{0:020d}.log.deleted",
        f"{5:020d}.log.cleaned",
        f"{5:020d}.index.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        put(world, f"{PATH}/{name}", b"x" * 34)
    log = world.load(clean=True)
    assert values_of(log) == ["a"]
    assert names(world) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{1:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]


@pytest.mark.parametrize("wrong", [5 + (1 << 31), 5 + (1 << 40), 5 + (1 << 62)])
def test_a_last_batch_far_outside_its_segment_costs_nothing_before_it(wrong: int) -> None:
    """Even where gaps are believed: everything in the segment was given up for it once."""
    world = World()
    settings_ = config(cleanup_policy="compact")
    log = world.load(settings_)
    for offset in range(6):
        log.append_as_follower(batch("v", base_offset=offset, key=b"k"))
    spoil_base_offset(world, 5, wrong)
    assert [o for o, _ in contents(world.load(settings_))] == [0, 1, 2, 3, 4]


def test_a_first_batch_outside_its_segment_is_cut() -> None:
    world = World()
    log = world.load()
    append(log, "a")
    stem = f"{PATH}/{1:020d}"
    put(world, f"{stem}.log", bytes(batch("x", base_offset=0)))
    log = world.load()
    assert log.log_end_offset == 1
    assert log.segments[-1].size == 0


def test_a_log_that_lost_its_end_starts_where_its_high_watermark_confirms_the_start() -> None:
    world = World()
    log = world.load()
    append(log, "a", "b")
    log.close()
    log = world.load(log_start_offset=10, high_watermark=12)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log, "c") == 10
    assert log.leader_epochs == [(1, 10)]


def test_an_empty_directory_starts_at_the_checkpointed_start() -> None:
    world = World()
    log = world.load(log_start_offset=7, high_watermark=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.segments[0].base_offset == 7


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("log_start_offset", [3, 10, 999_999_999, (1 << 63) - 1])
def test_a_log_start_beyond_all_that_is_known_empties_nothing(
    clean: bool, log_start_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka deletes every segment then."""
    world = World()
    log = world.load(config(segment_bytes=80))
    append(log, "a")
    append(log, "b")
    log.close()
    log = world.load(clean=clean, log_start_offset=log_start_offset, high_watermark=2)
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    assert values_of(log) == ["a", "b"]
    assert "/data/log-start-offset-checkpoint" in caplog.text
    assert append(log, "c") == 2


def test_a_negative_offset_in_a_checkpoint_changes_nothing() -> None:
    world = World()
    log = world.load()
    append(log, "a")
    log = world.load(log_start_offset=-7, high_watermark=-7, recovery_point=-7)
    assert (log.log_start_offset, log.high_watermark, values_of(log)) == (0, 0, ["a"])


def test_recovery_of_many_segments_reads_each_of_them_once() -> None:
    """Producers of one segment are those the recovery of the segment before it left."""
    world = World()
    log = world.load(config(segment_bytes=200))
    for n in range(40):
        append(log, "v" * 100, producer=(7, 0, n))
    size = log.size
    assert len(log.segments) == 40
    for name in names(world, ".snapshot"):
        world.disk.remove(f"{PATH}/{name}")
    reads: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "pread":
            reads.append(path)

    world.disk.before = note
    log = world.load(config(segment_bytes=200))
    world.disk.before = None
    assert log.size == size
    assert log.producer_state.producers[7].last_sequence == 39
    assert len(reads) <= 3 * 40, f"{len(reads)} reads of 40 segments"


def test_leader_epochs_out_of_order_are_taken_as_kafka_takes_them() -> None:
    world = World()
    log = world.load()
    for epoch in (1, 2, 3):
        append(log, "x", epoch=epoch)
    log.close()
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n3\n3 0\n1 1\n2 2\n")
    log = world.load(clean=True)
    assert log.leader_epochs == [(1, 1), (2, 2)]
    assert world.disk.read_file(f"{PATH}/leader-epoch-checkpoint") == b"0\n2\n1 1\n2 2\n"


def test_epochs_are_bounded_by_what_the_log_holds() -> None:
    world = World()
    log = world.load()
    append(log, "a", epoch=1)
    append(log, "b", epoch=3)
    log.close()
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n3\n1 0\n3 1\n9 2\n")
    assert world.load(clean=True).leader_epochs == [(1, 0), (3, 1)]
    put(world, f"{PATH}/leader-epoch-checkpoint", b"0\n1\n1 0\n")
    assert world.load().leader_epochs == [(1, 0), (3, 1)]
    world.disk.remove(f"{PATH}/leader-epoch-checkpoint")
    log = world.load()
    assert log.leader_epochs == [(1, 0), (3, 1)]
    assert world.disk.read_file(f"{PATH}/leader-epoch-checkpoint") == b"0\n2\n1 0\n3 1\n"


def test_damaged_epochs_stop_the_load() -> None:
    world = World()
    append(world.load(), "a")
    put(world, f"{PATH}/leader-epoch-checkpoint", b"nonsense")
    with pytest.raises(CorruptCheckpoint, match="leader-epoch"):
        world.load()


def test_the_recovery_point_moves_only_with_a_flush() -> None:
    world = World()
    log = world.load()
    append(log, "a", "b")
    log = world.load(recovery_point=99)
    assert log.recovery_point == 2
    log = world.load(recovery_point=1)
    assert log.recovery_point == 1
    log.flush()
    assert log.recovery_point == 2
    log.close()
    assert world.load(clean=True).recovery_point == 2


def test_the_high_watermark_stays_inside_the_log() -> None:
    world = World()
    append(world.load(), "a", "b")
    assert world.load(high_watermark=1).high_watermark == 1
    assert world.load(high_watermark=9).high_watermark == 2
    assert world.load(high_watermark=0, log_start_offset=1).high_watermark == 1


def test_aborted_transactions_are_found_again() -> None:
    world = World()
    log = world.load()
    log.append_as_leader(batch("a", producer=(7, 0, 0), transactional=True), 1, now_ms=NOW)
    log.append_as_leader(marker((7, 0), commit=False), 1, origin="coordinator", now_ms=NOW)
    entries = log.segments[0].txn_index.entries()
    data = world.disk.read_file(f"{STEM}.txnindex")
    assert len(data) == 34
    put(world, f"{STEM}.txnindex", b"junk")
    log = world.load()
    assert log.segments[0].txn_index.entries() == entries
    assert world.disk.read_file(f"{STEM}.txnindex") == data
    log.close()
    put(world, f"{STEM}.txnindex", b"\x00\x09" + data[2:])
    log = world.load(clean=True)
    assert log.segments[0].txn_index.entries() == entries


# -- the swap of a compaction ------------------------------------------------------------------


def swapped_world() -> tuple[World, dict[str, bytes]]:
    world = World()
    log = world.load(config(segment_bytes=200))
    for n in range(4):
        append(log, f"v{n}" * 30)
    log.close()
    files = {
        f"{n:020d}{suffix}": world.disk.read_file(f"{PATH}/{n:020d}{suffix}")
        for n in range(4)
        for suffix in (".log", ".index", ".timeindex")
    }
    return world, files


def test_a_complete_swap_is_adopted() -> None:
    world, files = swapped_world()
    stem = f"{0:020d}"
    joined = files[f"{0:020d}.log"] + files[f"{1:020d}.log"]
    put(world, f"{PATH}/{stem}.log.swap", joined)
    put(world, f"{PATH}/{stem}.index.swap", b"")
    put(world, f"{PATH}/{stem}.timeindex.swap", b"")
    log = world.load(config(segment_bytes=200), recovery_point=4)
    assert [s.base_offset for s in log.segments] == [0, 2, 3]
    assert [o for o, _ in contents(log)] == [0, 1, 2, 3]


def test_an_unfinished_clean_is_undone() -> None:
    world, files = swapped_world()
    put(world, f"{PATH}/{0:020d}.log.cleaned", files[f"{0:020d}.log"])
    put(world, f"{PATH}/{2:020d}.log.swap", files[f"{2:020d}.log"])
    log = world.load(config(segment_bytes=200), recovery_point=4)
    assert [s.base_offset for s in log.segments] == [0, 1, 2, 3]
    assert len(contents(log)) == 4
    assert not [n for n in names(world) if n.endswith((".cleaned", ".swap"))]


# -- crashes everywhere ------------------------------------------------------------------------


@dataclass
class Oracle:
    """What a log must hold, kept apart from it."""

    started: list[str] = field(default_factory=list)
    """Every value whose append began, by offset."""
    done: int = 0
    flushed: int = 0
    truncated_to: list[int] = field(default_factory=list)


Step = Callable[[Log, Oracle], None]


def do_append(count: int) -> Step:
    def step(log: Log, oracle: Oracle) -> None:
        first = log.log_end_offset
        values = [f"{first + n}-{len(oracle.truncated_to)}" for n in range(count)]
        del oracle.started[first:]
        oracle.started.extend(values)
        append(log, *values, producer=(5, 0, first), timestamp=NOW + first)
        oracle.done = log.log_end_offset

    return step


def do_flush(log: Log, oracle: Oracle) -> None:
    log.flush()
    oracle.flushed = log.recovery_point


def do_roll(log: Log, oracle: Oracle) -> None:
    log.roll()


def do_truncate(back: int) -> Step:
    def step(log: Log, oracle: Oracle) -> None:
        target = max(0, log.log_end_offset - back)
        oracle.flushed = min(oracle.flushed, target)
        oracle.truncated_to.append(target)
        oracle.done = min(oracle.done, target)
        log.truncate_to(target)

    return step


SCRIPT: list[Step] = [
    do_append(1),
    do_append(2),
    do_flush,
    do_append(1),
    do_roll,
    do_append(1),
    do_append(1),
    do_truncate(1),
    do_append(2),
    do_flush,
    do_roll,
    do_append(1),
    do_truncate(3),
    do_append(1),
]
SETTINGS = config(segment_bytes=4000, index_interval_bytes=60, segment_index_bytes=480)


def run_script(world: World, oracle: Oracle) -> Log:
    log = world.load(SETTINGS)
    for step in SCRIPT:
        step(log, oracle)
        oracle.flushed = max(oracle.flushed, log.recovery_point)
    return log


def count_operations() -> int:
    count = 0

    def before(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    run_script(World(MemoryDisk(before=before)), Oracle())
    return count


def check_against(oracle: Oracle, log: Log, *, power_lost: bool) -> None:
    """The log is a prefix of what was sent, holds what it must, and goes on working."""
    found = values_of(log)
    must = oracle.flushed if power_lost else oracle.done
    allowed = {tuple(oracle.started[: len(found)])}
    assert len(found) >= must, f"{found} lacks what was there: {must}"
    if not oracle.truncated_to:
        assert tuple(found) in allowed
    # A truncation may come undone when power is lost, but never partly.
    for offset, value in enumerate(found[: min([*oracle.truncated_to, len(found)])]):
        assert value == oracle.started[offset]
    sequence = log.active_producers()
    if found:
        assert sequence[0].last_sequence == len(found) - 1
    append(log, "after", producer=(5, 0, len(found)))
    assert values_of(log) == [*found, "after"]
    log.close()


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_operation_loses_nothing_that_was_safe(power_lost: bool) -> None:
    total = count_operations()
    assert total > 100
    for at in range(total):
        oracle = Oracle()
        count = 0

        def before(operation: str, path: str) -> None:
            nonlocal count
            if count == at:  # noqa: B023
                count += 1
                raise Crash
            count += 1

        disk = MemoryDisk()
        world = World(disk)
        disk.before = before
        try:
            run_script(world, oracle)
        except Crash:
            pass
        else:
            count = -1
        disk.before = None
        recovery_point = oracle.flushed
        chance = None if at % 2 else random.Random(at)
        if power_lost:
            disk.crash(None if chance is None else Chance(at))
        else:
            disk.kill()
        if not disk.is_dir(PATH):
            continue
        log = world.load(SETTINGS, recovery_point=recovery_point)
        check_against(oracle, log, power_lost=power_lost)
        log = world.load(SETTINGS, clean=True)
        assert values_of(log)[-1] == "after"


class Chance:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


def test_a_crash_at_any_operation_of_a_recovery_is_recovered_from() -> None:
    def broken_world() -> World:
        world = World()
        log = world.load(SETTINGS)
        for n in range(6):
            append(log, f"v{n}", producer=(5, 0, n), timestamp=NOW + n)
            if n == 2:
                log.roll()
        file = world.disk.open(f"{PATH}/{3:020d}.log")
        file.append(b"torn" * 10)
        file.close()
        world.disk.kill()
        return world

    at = 0
    while True:
        world = broken_world()
        world.disk.before = CrashAt(at)
        try:
            world.load(SETTINGS, recovery_point=0)
        except Crash:
            finished = False
        else:
            finished = True
        world.disk.before = None
        world.disk.kill()
        log = world.load(SETTINGS, recovery_point=0)
        assert values_of(log) == [f"v{n}" for n in range(6)]
        assert log.active_producers()[0].last_sequence == 5
        if finished:
            break
        at += 1
    assert at > 20


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_operation_of_a_cut_leaves_no_hole(power_lost: bool) -> None:
    """Damage in the middle: what follows goes first, or it would stand behind a hole."""

    def broken_world() -> tuple[World, LogConfig]:
        world, settings_ = segmented()
        data = bytearray(world.disk.read_file(f"{PATH}/{2:020d}.log"))
        data[-1] ^= 1
        put(world, f"{PATH}/{2:020d}.log", bytes(data))
        for name in names(world):
            with closing(world.disk.open(f"{PATH}/{name}")) as file:
                file.sync()
        world.disk.sync_dir(PATH)
        return world, settings_

    finished, at = False, 0
    while not finished:
        world, settings_ = broken_world()
        world.disk.before = CrashAt(at)
        try:
            world.load(settings_)
            finished = True
        except Crash:
            pass
        world.disk.before = None
        if power_lost:
            world.disk.crash()
        else:
            world.disk.kill()
        log = world.load(settings_)
        assert [o for o, _ in contents(log)] == [0, 1]
        assert log.log_end_offset == 2
        at += 1
    assert at > 20


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_damage_never_does_worse_than_losing_the_tail(data: st.DataObject) -> None:
    world = World()
    log = world.load(SETTINGS)
    count = data.draw(st.integers(1, 12))
    for n in range(count):
        append(log, f"value-{n}", timestamp=NOW + n)
        if data.draw(st.booleans()):
            log.roll()
    files = [n for n in names(world) if n.endswith((".log", ".index", ".timeindex"))]
    name = data.draw(st.sampled_from(files))
    content = bytearray(world.disk.read_file(f"{PATH}/{name}"))
    if content:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        put(world, f"{PATH}/{name}", bytes(content))
    log = world.load(SETTINGS)
    found = values_of(log)
    assert found == [f"value-{n}" for n in range(len(found))] or name.endswith(".log")
    if not name.endswith(".log"):
        assert len(found) == count


def test_an_error_while_loading_is_a_storage_error() -> None:
    def before(operation: str, path: str) -> None:
        if operation == "pread":
            raise StorageError(f"{path}: Input/output error")

    world = World()
    append(world.load(), "a")
    world.disk.before = before
    with pytest.raises(StorageError):
        world.load()


@pytest.mark.parametrize(
    "entry",
    [(5, -1), (5, 7), (5, 1 << 30), (500, 0), (-1, 0), (3, -(1 << 31))],
    ids=["before the file", "inside a batch", "behind the file", "offset", "negative", "far"],
)
def test_a_wrong_last_entry_of_the_last_index_costs_nothing_after_a_clean_stop(
    entry: tuple[int, int],
) -> None:
    world = World()
    settings_ = config(index_interval_bytes=100)
    log = world.load(settings_)
    for n in range(10):
        append(log, f"v{n}" * 20, timestamp=NOW + n)
    log.close()
    path = f"{STEM}.index"
    index = world.disk.read_file(path)
    put(world, path, index[:-8] + OFFSET_ENTRY.pack(*entry))
    log = world.load(settings_, clean=True)
    assert [offset for offset, _ in contents(log)] == list(range(10))
    append(log, "after")
    assert log.log_end_offset == 11
    log.close()
    assert world.disk.read_file(path) == index


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"\0" * 5])
def test_garbage_behind_the_last_batch_is_cut_after_a_clean_stop_too(garbage: bytes) -> None:
    world = World()
    log = world.load()
    append(log, "a", "b")
    log.close()
    file = world.disk.open(f"{STEM}.log")
    file.append(garbage)
    file.close()
    log = world.load(clean=True)
    assert values_of(log) == ["a", "b"]
    append(log, "c")
    log.close()
    assert values_of(world.load(clean=True)) == ["a", "b", "c"]


def test_a_torn_batch_is_cut_after_a_clean_stop_too() -> None:
    world = World()
    log = world.load()
    append(log, "a", "b")
    keep = log.size
    append(log, "c")
    log.close()
    cut(world, f"{STEM}.log", log.size - 3)
    log = world.load(clean=True)
    assert world.disk.size(f"{STEM}.log") == keep
    append(log, "after")
    log.close()
    assert values_of(world.load(clean=True)) == ["a", "b", "after"]
