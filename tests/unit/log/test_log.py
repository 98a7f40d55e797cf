"""Appending, reading, rolling, truncating, retention of one log."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.broker.log.log import Log, OffsetsOutOfOrder, UnexpectedAppendOffset
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.errors import (
    CorruptMessage,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from kafkalike.records.batch import encode_batch, parse_batch
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.ports import FileRange, StorageError
from kafkalike.tools.simulator.disk import MemoryDisk

from .support import (
    NOW,
    PATH,
    World,
    append,
    batch,
    config,
    contents,
    names,
    values_of,
)

END = FetchIsolation.LOG_END
HW = FetchIsolation.HIGH_WATERMARK


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> Log:
    return world.load()


def test_a_leader_gives_offsets_and_stamps_its_epoch(log: Log) -> None:
    data = batch("a", "b", "c")
    info = log.append_as_leader(memoryview(data), 5, now_ms=NOW)
    assert (info.first_offset, info.last_offset, info.max_timestamp) == (0, 2, NOW + 2)
    assert append(log, "d", epoch=6) == 3
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    stamped = parse_batch(data)
    assert (stamped.base_offset, stamped.partition_leader_epoch) == (0, 5)
    assert log.leader_epochs == [(5, 0), (6, 3)]


def test_read_only_buffers_are_not_touched(log: Log) -> None:
    sent = bytes(batch("a"))
    append(log, "first")
    info = log.append_as_leader(sent, 1, now_ms=NOW)
    assert info.first_offset == 1
    assert parse_batch(sent).base_offset == 0
    assert values_of(log) == ["first", "a"]


def test_nothing_to_append_is_no_error(log: Log) -> None:
    info = log.append_as_leader(b"", 1, now_ms=NOW)
    assert info.first_offset == -1
    info = log.append_as_leader(bytes(batch("a")[:40]), 1, now_ms=NOW)
    assert info.first_offset == -1
    assert log.log_end_offset == 0


def test_a_trailing_partial_batch_is_dropped(log: Log) -> None:
    append(log, "a")
    log.append_as_leader(bytes(batch("b")) + b"\0\0\0", 1, now_ms=NOW)
    log.append_as_leader(bytes(batch("c") + batch("d")[:30]), 1, now_ms=NOW)
    assert values_of(log) == ["a", "b", "c"]


def test_append_time_topics_carry_the_brokers_time(world: World) -> None:
    log = world.load(config(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(batch("a", "b", timestamp=5), 1, now_ms=NOW + 7)
    assert (info.max_timestamp, info.log_append_time_ms) == (NOW + 7, NOW + 7)
    data = log.read(0, 1000, END).records
    assert isinstance(data, FileRange)
    (stored,) = iterate_batches(data.read())
    assert stored.crc_is_valid()
    assert [r.timestamp for r in stored.records()] == [NOW + 7] * 2


def test_reads_are_bounded_by_the_high_watermark(log: Log) -> None:
    append(log, "a", "b")
    append(log, "c")
    assert log.read(0, 1000, HW).records == b""
    log.update_high_watermark(2)
    data = log.read(0, 1000, HW).records
    assert isinstance(data, FileRange)
    assert [b.last_offset for b in iterate_batches(data.read())] == [1]
    assert log.read(2, 1000, HW).records == b""
    log.update_high_watermark(99)
    assert log.high_watermark == 3
    data = log.read(2, 1000, HW).records
    assert isinstance(data, FileRange)
    assert [b.last_offset for b in iterate_batches(data.read())] == [2]


def test_a_high_watermark_inside_a_batch_hides_that_batch(log: Log) -> None:
    append(log, "a")
    append(log, "b", "c")
    log.update_high_watermark(2)
    data = log.read(0, 1000, HW).records
    assert isinstance(data, FileRange)
    assert [b.last_offset for b in iterate_batches(data.read())] == [0]


def test_reads_start_at_the_batch_that_holds_the_offset(log: Log) -> None:
    append(log, "a", "b", "c")
    append(log, "d")
    for offset in (0, 1, 2):
        data = log.read(offset, 1000, END).records
        assert isinstance(data, FileRange)
        assert data.position == 0
    data = log.read(3, 1000, END).records
    assert isinstance(data, FileRange)
    assert data.position > 0
    assert log.read(4, 1000, END).records == b""


def test_offsets_outside_the_log_are_out_of_range(log: Log) -> None:
    append(log, "a", "b", "c", "d")
    log.update_high_watermark(4)
    log.maybe_increment_log_start_offset(2)
    for offset in (-1, 0, 1, 5):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1000, END)


def test_sizes_at_most_max_bytes_but_one_batch_where_demanded(log: Log) -> None:
    append(log, "a" * 100)
    append(log, "b" * 100)
    first = parse_batch(batch("a" * 100)).size
    data = log.read(0, 50, END)
    assert isinstance(data.records, FileRange)
    assert len(data.records) == 50 and data.first_batch_is_cut
    data = log.read(0, 50, END, min_one_message=True)
    assert isinstance(data.records, FileRange)
    assert len(data.records) == first and not data.first_batch_is_cut
    data = log.read(0, first + 10, END, min_one_message=True)
    assert isinstance(data.records, FileRange)
    assert len(data.records) == first + 10
    assert log.read(0, 0, END).records == b""


def test_one_read_never_crosses_a_segment(world: World) -> None:
    log = world.load(config(segment_bytes=300))
    for n in range(6):
        append(log, "x" * 100, timestamp=NOW + n)
    assert len(log.segments) == 6
    data = log.read(0, 1 << 20, END).records
    assert isinstance(data, FileRange)
    assert data.length == log.segments[0].size
    assert [offset for offset, _ in contents(log)] == list(range(6))


def test_readable_bytes_count_over_segments(world: World) -> None:
    log = world.load(config(segment_bytes=300))
    for n in range(6):
        append(log, "x" * 100, timestamp=NOW + n)
    one = parse_batch(batch("x" * 100)).size
    assert log.readable_bytes(0, END) == 6 * one
    assert log.readable_bytes(4, END) == 2 * one
    log.update_high_watermark(3)
    assert log.readable_bytes(1, HW) == 2 * one
    assert log.readable_bytes(3, HW) == 0
    assert log.readable_bytes(99, END) == 0


# -- followers ---------------------------------------------------------------------------------


def block(*sizes: int, start: int = 0, epoch: int = 3) -> bytes:
    """Batches of so many records, as they come from a leader."""
    out = bytearray()
    offset = start
    for size in sizes:
        out += batch(*(f"v{offset + n}" for n in range(size)), base_offset=offset, epoch=epoch)
        offset += size
    return bytes(out)


def test_a_follower_stores_the_leaders_bytes(log: Log) -> None:
    sent = block(2, 1, 3)
    info = log.append_as_follower(sent + sent[:20])
    assert (info.first_offset, info.last_offset) == (0, 5)
    assert log.log_end_offset == 6
    data = log.read(0, 1 << 20, END).records
    assert isinstance(data, FileRange)
    assert data.read() == sent
    assert log.leader_epochs == [(3, 0)]


def test_a_follower_may_skip_offsets_but_not_go_back(log: Log) -> None:
    log.append_as_follower(block(2))
    log.append_as_follower(block(1, start=10))
    assert log.log_end_offset == 11
    with pytest.raises(UnexpectedAppendOffset) as caught:
        log.append_as_follower(block(1, start=5))
    assert (caught.value.first_offset, caught.value.last_offset) == (5, 5)
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(block(1, start=20) + block(1, start=15))
    assert log.log_end_offset == 11


def test_a_follower_appends_all_or_nothing_of_a_corrupt_block(log: Log) -> None:
    broken = bytearray(block(1, 1))
    broken[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(broken)
    assert log.log_end_offset == 0 and log.size == 0


def test_a_gap_is_read_past(log: Log) -> None:
    log.append_as_follower(block(2))
    log.append_as_follower(block(1, start=10))
    for offset in (2, 5, 10):
        data = log.read(offset, 1000, END).records
        assert isinstance(data, FileRange)
        assert [b.base_offset for b in iterate_batches(data.read())] == [10]


def test_a_follower_rolls_inside_a_block(world: World) -> None:
    log = world.load(config(segment_bytes=200))
    log.append_as_follower(block(*[1] * 10))
    assert [offset for offset, _ in contents(log)] == list(range(10))
    assert len(log.segments) == 5
    assert all(segment.size <= 200 for segment in log.segments)


def test_epochs_of_a_block_are_noted(log: Log) -> None:
    log.append_as_follower(
        block(2, epoch=1) + block(1, start=2, epoch=4) + block(1, start=3, epoch=4)
    )
    assert log.leader_epochs == [(1, 0), (4, 2)]
    assert log.end_offset_for_epoch(2) == (1, 2)
    assert log.end_offset_for_epoch(4) == (4, 4)
    assert log.end_offset_for_epoch(5) == (-1, -1)
    assert log.latest_epoch == 4


# -- rolling -----------------------------------------------------------------------------------


def test_rolling_by_size_trims_indexes_and_snapshots_producers(world: World) -> None:
    log = world.load(config(segment_bytes=300, segment_index_bytes=800))
    append(log, "x" * 100)
    assert world.disk.size(f"{PATH}/{0:020d}.index") == 800
    assert world.disk.size(f"{PATH}/{0:020d}.timeindex") == 792
    append(log, "x" * 100, timestamp=NOW + 5)
    append(log, "x" * 100)
    assert [s.base_offset for s in log.segments] == [0, 1, 2]
    assert world.disk.size(f"{PATH}/{0:020d}.index") == 0
    # The closing entry: largest timestamp and the last offset of its batch.
    assert log.segments[1].time_index.entries() == [(NOW + 5, 1)]
    assert names(world, ".snapshot") == [f"{1:020d}.snapshot", f"{2:020d}.snapshot"]


def test_rolling_by_time_goes_by_the_records(world: World) -> None:
    log = world.load(config(segment_ms=1000))
    append(log, "a", timestamp=NOW)
    append(log, "b", timestamp=NOW + 1000)
    assert len(log.segments) == 1
    append(log, "c", timestamp=NOW + 1001)
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_rolling_without_timestamps_goes_by_the_segments_age(world: World) -> None:
    log = world.load(config(segment_ms=1000))
    append(log, "a", timestamp=-1)
    log.append_as_leader(batch("b", timestamp=-1), 1, now_ms=world.clock.now_ms() + 1000)
    assert len(log.segments) == 1
    log.append_as_leader(batch("c", timestamp=-1), 1, now_ms=world.clock.now_ms() + 1001)
    assert len(log.segments) == 2


def test_rolling_when_an_index_is_full(world: World) -> None:
    log = world.load(config(segment_index_bytes=24, index_interval_bytes=0))
    for n in range(8):
        append(log, "x", timestamp=NOW + n)
    # Two time entries fit 24 bytes, one of them for closing.
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert len(segment.time_index.entries()) <= 2
    assert len(contents(log)) == 8


def test_rolling_when_offsets_overflow(world: World) -> None:
    log = world.load()
    log.append_as_follower(block(1))
    log.append_as_follower(block(1, start=2**31 - 1))
    assert len(log.segments) == 1
    log.append_as_follower(block(1, start=2**31))
    assert [s.base_offset for s in log.segments] == [0, 2**31]
    assert [offset for offset, _ in contents(log)] == [0, 2**31 - 1, 2**31]


def test_jitter_shortens_the_time(world: World) -> None:
    log = world.load(config(segment_ms=1000, segment_jitter_ms=900))
    append(log, "a")
    log.roll()
    jitter = log.segments[-1].jitter_ms
    assert 0 < jitter < 900
    append(log, "b", timestamp=NOW)
    append(log, "c", timestamp=NOW + 1000 - jitter)
    assert len(log.segments) == 2
    append(log, "d", timestamp=NOW + 1001 - jitter)
    assert len(log.segments) == 3


def test_a_roll_flushes_the_old_segment(world: World) -> None:
    log = world.load(config(segment_bytes=300))
    append(log, "x" * 200)
    assert log.recovery_point == 0
    append(log, "x" * 200)
    assert log.recovery_point == 1


def test_a_batch_above_segment_bytes_is_refused(world: World) -> None:
    log = world.load(config(segment_bytes=100))
    with pytest.raises(RecordListTooLarge):
        append(log, "x" * 200)
    assert log.log_end_offset == 0


# -- indexes -----------------------------------------------------------------------------------


def test_index_entries_come_after_the_interval_and_never_first(world: World) -> None:
    log = world.load(config(index_interval_bytes=200))
    positions = []
    position = 0
    for n in range(10):
        append(log, "x" * 50, timestamp=NOW + n)
        positions.append(position)
        position = log.size
    entries = log.segments[0].index.entries()
    size = positions[1]
    expected, since = [], 0
    for offset, start in enumerate(positions):
        if since > 200:
            expected.append((offset, start))
            since = 0
        since += size
    assert entries == expected
    assert log.segments[0].time_index.entries() == [(NOW + o, o) for o, _ in expected]


def test_time_entries_only_rise(world: World) -> None:
    log = world.load(config(index_interval_bytes=0))
    for timestamp in (NOW, NOW + 9, NOW + 3, NOW + 9, NOW + 12):
        append(log, "x", timestamp=timestamp)
    assert log.segments[0].time_index.entries() == [(NOW + 9, 1), (NOW + 12, 4)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 3)), max_size=40),
    st.integers(0, 500),
    st.integers(200, 3000),
)
def test_every_offset_is_found_whatever_the_batches(
    shapes: list[tuple[int, int, int]], interval: int, segment_bytes: int
) -> None:
    world = World()
    settings_ = config(
        index_interval_bytes=interval,
        segment_bytes=max(segment_bytes, 1600),
        cleanup_policy="compact",  # else a gap before the last batch is not believed
    )
    log = world.load(settings_)
    expected: dict[int, int] = {}
    offset = 0
    for count, size, gap in shapes:
        offset += gap
        data = batch(*["x" * size] * count, base_offset=offset, epoch=1)
        for n in range(count):
            expected[offset + n] = offset
        log.append_as_follower(data)
        offset += count
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log = world.load(settings_, clean=clean, log_start_offset=0)
        assert [o for o, _ in contents(log)] == sorted(expected)
        for wanted in range(offset):
            info = log.read(wanted, 1 << 20, END)
            at_or_above = [o for o in sorted(expected) if o >= wanted]
            assert isinstance(info.records, FileRange)
            first = next(iter(iterate_batches(info.records.read())))
            assert first.base_offset == expected[at_or_above[0]]


# -- truncation --------------------------------------------------------------------------------


def test_truncation_removes_whole_batches(world: World) -> None:
    log = world.load(config(segment_bytes=300))
    for n in range(8):
        append(log, f"v{n}" * 20, "second", epoch=n // 2)
    log.flush()
    assert log.recovery_point == 16
    log.update_high_watermark(16)
    assert log.truncate_to(9)
    # Offset 8 went with its batch: the next leader sends it again.
    assert log.log_end_offset == 8
    assert log.high_watermark == 8
    assert log.recovery_point == 8
    assert [offset for offset, _ in contents(log)] == list(range(8))
    assert log.leader_epochs == [(0, 0), (1, 4)]
    assert names(world, ".deleted") == []


def test_truncation_leaves_no_hole_behind_a_damaged_base_offset(world: World) -> None:
    """A power cut flipped a bit there: the batch looks like a much later one, and none follows."""
    log = world.load()
    for n in range(5):
        append(log, f"v{n}", epoch=3)
    log.append_as_follower(batch("v5", base_offset=5 + (1 << 27), epoch=3))
    assert log.log_end_offset == 6 + (1 << 27)
    assert log.truncate_to(400)  # where the leader's epoch 3 ends
    assert log.log_end_offset == 5
    assert [offset for offset, _ in contents(log)] == list(range(5))


def test_truncation_at_or_above_the_end_only_drops_empty_epochs(log: Log) -> None:
    append(log, "a", epoch=1)
    log.assign_epoch_start(7, 1)
    assert not log.truncate_to(1)
    assert log.leader_epochs == [(1, 0)]
    assert log.log_end_offset == 1


def test_truncation_and_appending_again(world: World) -> None:
    log = world.load(config(segment_bytes=300, index_interval_bytes=0))
    for n in range(10):
        append(log, f"old{n}", timestamp=NOW + n)
    log.truncate_to(4)
    for n in range(4, 8):
        append(log, f"new{n}", timestamp=NOW - n, epoch=2)
    assert values_of(log) == [f"old{n}" for n in range(4)] + [f"new{n}" for n in range(4, 8)]
    log.close()
    assert values_of(world.load(clean=True)) == values_of(log)


def test_full_truncation_starts_anew(world: World) -> None:
    log = world.load(config(segment_bytes=300))
    for _ in range(6):
        append(log, "x" * 60)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert log.leader_epochs == [] and log.latest_epoch is None
    assert names(world) == [
        f"{100:020d}.index",
        f"{100:020d}.log",
        f"{100:020d}.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert append(log, "y") == 100
    assert contents(log) == [(100, b"y")]


def test_truncation_below_the_first_segment_is_a_full_one(log: Log) -> None:
    log.truncate_fully_and_start_at(100)
    append(log, "a")
    assert log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=25), st.data())
def test_truncating_anywhere_leaves_a_prefix_of_batches(
    sizes: list[int], data: st.DataObject
) -> None:
    world = World()
    log = world.load(config(segment_bytes=400, index_interval_bytes=100))
    ends = [0]
    for size in sizes:
        append(log, *["v" * 20] * size)
        ends.append(ends[-1] + size)
    target = data.draw(st.integers(0, ends[-1]))
    log.truncate_to(target)
    whole = max(end for end in ends if end <= target)
    assert [o for o, _ in contents(log)] == list(range(whole))
    assert log.log_end_offset == whole
    follow = batch("next", base_offset=whole, epoch=1)
    log.append_as_follower(follow)
    assert contents(log)[-1] == (whole, b"next")


# -- log start and retention -------------------------------------------------------------------


def test_the_log_start_only_rises_and_not_above_the_high_watermark(log: Log) -> None:
    append(log, "a", "b", "c", epoch=1)
    append(log, "d", epoch=4)
    log.update_high_watermark(3)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start_offset(4)
    assert log.maybe_increment_log_start_offset(2)
    assert not log.maybe_increment_log_start_offset(1)
    assert log.log_start_offset == 2
    assert log.leader_epochs == [(1, 2), (4, 3)]


def filled(world: World, **overrides: object) -> Log:
    """Six segments of one batch each, of ages 60, 50, ... seconds."""
    log = world.load(config(segment_bytes=200, **overrides))
    for n in range(6):
        append(log, "x" * 100, timestamp=NOW - 60_000 + n * 10_000)
    log.update_high_watermark(6)
    return log


def test_retention_by_time(world: World) -> None:
    log = filled(world, retention_ms=35_000)
    assert log.delete_old_segments(NOW) == 3
    assert log.log_start_offset == 3
    assert contents(log)[0][0] == 3
    assert len(names(world, ".log.deleted")) == 3
    assert f"{1:020d}.snapshot" not in names(world) and f"{3:020d}.snapshot" in names(world)
    world.clock.advance(61)
    assert names(world, ".deleted") == []


def test_retention_by_size_keeps_at_least_what_is_configured(world: World) -> None:
    log = filled(world, retention_bytes=400, retention_ms=-1)
    one = log.segments[0].size
    assert log.delete_old_segments(NOW) == 6 - (400 // one + 1)
    assert log.size >= 400


def test_retention_keeps_what_is_above_the_high_watermark(world: World) -> None:
    log = filled(world, retention_ms=0)
    log.high_watermark = 2
    assert log.delete_old_segments(NOW + 1) == 2
    assert log.log_start_offset == 2


def test_retention_of_everything_rolls_first(world: World) -> None:
    log = filled(world, retention_ms=1)
    assert log.delete_old_segments(NOW) == 6
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert append(log, "after") == 6
    assert log.delete_old_segments(NOW) == 0


def test_a_record_from_the_future_keeps_later_segments(world: World) -> None:
    log = world.load(config(segment_bytes=200, retention_ms=1000))
    append(log, "x" * 100, timestamp=NOW - 9000)
    append(log, "x" * 100, timestamp=NOW + 10**9)
    append(log, "x" * 100, timestamp=NOW - 9000)
    log.update_high_watermark(3)
    assert log.delete_old_segments(NOW) == 1


def test_without_delete_only_the_log_start_counts(world: World) -> None:
    log = world.load(
        config(segment_bytes=200, retention_ms=1, retention_bytes=1, cleanup_policy="compact")
    )
    for _ in range(4):
        append(log, "x" * 100, key=b"k", timestamp=NOW - 60_000)
    log.update_high_watermark(4)
    assert log.delete_old_segments(NOW) == 0
    log.maybe_increment_log_start_offset(2)
    assert log.delete_old_segments(NOW) == 2


# -- time --------------------------------------------------------------------------------------


def test_offsets_by_time(world: World) -> None:
    log = world.load(config(segment_bytes=250, index_interval_bytes=0))
    for n in range(9):
        append(log, "x" * 30, "y" * 30, timestamp=NOW + n * 100, epoch=n // 3)
    log.update_high_watermark(17)
    assert log.offset_for_timestamp(NOW)[:2] == (NOW, 0)
    assert log.offset_for_timestamp(0)[:2] == (NOW, 0)
    assert log.offset_for_timestamp(NOW + 401) == (NOW + 401, 9, 1)
    assert log.offset_for_timestamp(NOW + 402)[:2] == (NOW + 500, 10)
    # The last record is above the high watermark.
    assert log.offset_for_timestamp(NOW + 801) == (-1, -1, -1)
    assert log.offset_for_timestamp(NOW + 801, END) == (NOW + 801, 17, 2)
    assert log.offset_for_timestamp(NOW + 900, END) == (-1, -1, -1)
    assert log.offset_for_timestamp(-1) == (-1, 17, 2)
    assert log.offset_for_timestamp(-1, END) == (-1, 18, 2)
    assert log.offset_for_timestamp(-2) == (-1, 0, 0)
    assert log.offset_for_timestamp(-4) == (-1, 0, 0)
    assert log.offset_for_timestamp(-5) == (-1, -1, -1)
    assert log.offset_for_timestamp(-3) == (-1, -1, -1)
    assert log.offset_for_timestamp(-3, END) == (NOW + 801, 17, 2)
    log.maybe_increment_log_start_offset(9)
    assert log.offset_for_timestamp(NOW)[:2] == (NOW + 401, 9)
    assert log.offset_for_timestamp(-2) == (-1, 9, 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=20))
def test_time_lookups_agree_with_a_search_through_everything(times: list[list[int]]) -> None:
    world = World()
    log = world.load(config(segment_bytes=300, index_interval_bytes=100, segment_ms=10**12))
    everything: list[tuple[int, int]] = []
    for group in times:
        data = encode_batch([Record(b"k", b"v" * 20, NOW + t) for t in group])
        first = log.append_as_leader(data, 1, now_ms=NOW).first_offset
        everything.extend((NOW + t, first + n) for n, t in enumerate(group))
    for _ in range(2):
        for wanted in range(NOW - 1, NOW + 52):
            expected = next(((t, o) for t, o in everything if t >= wanted), (-1, -1))
            assert log.offset_for_timestamp(wanted, END)[:2] == expected
        top = max(t for t, _ in everything)
        expected = next((t, o) for t, o in everything if t == top)
        assert log.offset_for_timestamp(-3, END)[:2] == expected
        log.close()
        log = world.load(clean=True)


def test_offsets_by_file_age_for_the_oldest_clients(world: World) -> None:
    log = world.load(config(segment_bytes=200))
    for _ in range(3):
        append(log, "x" * 100)
        world.clock.advance(10)
    assert log.legacy_offsets_before(-1, 10) == [3, 2, 1, 0]
    assert log.legacy_offsets_before(-1, 2) == [3, 2]
    assert log.legacy_offsets_before(-2, 10) == [0]
    assert log.legacy_offsets_before(NOW + 15_000, 10) == [1, 0]
    assert log.legacy_offsets_before(NOW - 1, 10) == []


# -- failure -----------------------------------------------------------------------------------


def test_after_an_error_of_the_disk_every_append_fails() -> None:
    broken = False

    def before(operation: str, path: str) -> None:
        if broken and operation == "append" and path.endswith(".log"):
            raise StorageError(f"{path}: Input/output error")

    world = World(MemoryDisk(before=before))
    log = world.load()
    append(log, "a")
    broken = True
    with pytest.raises(KafkaStorageError):
        append(log, "b")
    broken = False
    assert len(world.failures) == 1
    for attempt in (
        lambda: append(log, "c"),
        lambda: log.append_as_follower(block(1, start=1)),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(5),
        lambda: log.delete_old_segments(NOW),
    ):
        with pytest.raises(KafkaStorageError):
            attempt()
    assert log.log_end_offset == 1
    assert len(world.failures) == 1
    assert log.close() is None


def test_a_summary_of_a_range(log: Log) -> None:
    append(log, "a", producer=(7, 0, 0))
    append(log, "b")
    append(log, "c", "d", producer=(9, 0, 0))
    assert log.summarize(0, 4).producer_ids == (7, 9)
    assert log.summarize(1, 4).producer_ids == (9,)
    assert log.summarize(1, 2) == (parse_batch(batch("b")).size, ())
