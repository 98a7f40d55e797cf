"""Compaction: what stays, what goes, when, and what a crash leaves (reference: log-store 8)."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from kafkalike.broker.log.clean_job import CleaningError, CleanResult, run_job
from kafkalike.broker.log.cleaner import LogCleaner
from kafkalike.broker.log.log import Log
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.records.batch import RecordBatch, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.ports import FileRange, StorageError
from tests.fakes import result_of

from .support import NOW, PATH, T0, Crash, CrashAt, World, config, contents, marker, names

DAY_MS = 86_400_000


def compacted(**overrides: object) -> LogConfig:
    return config(
        **{
            "cleanup_policy": "compact",
            "segment_bytes": 100_000,
            "min_cleanable_dirty_ratio": 0.0,
            "index_interval_bytes": 100,
            "segment_ms": 10**12,
            **overrides,
        }
    )


class Compaction(World):
    """A world with one compacted log and its cleaner."""

    def __init__(self, **overrides: object) -> None:
        super().__init__()
        self.settings = compacted(**overrides)
        self.log = self.load(self.settings)
        self.sequence = 0
        self.cleaner = self.new_cleaner()

    def new_cleaner(self, **broker: str) -> LogCleaner:
        broker_config = BrokerConfig.parse(
            {"broker.id": "1", "zookeeper.connect": "z:1", "listeners": "PLAINTEXT://h:1", **broker}
        )
        return LogCleaner(broker_config, clock=self.clock, disk=self.disk, logs=lambda: [self.log])

    def put(self, key: str, value: str | None, **fields: Any) -> int:
        return self.put_all([(key, value)], **fields)

    def put_all(
        self, pairs: list[tuple[str, str | None]], *, timestamp: int = NOW, **fields: Any
    ) -> int:
        data = encode_batch(
            [Record(k.encode(), None if v is None else v.encode(), timestamp) for k, v in pairs],
            **fields,
        )
        return self.log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW).first_offset

    def end(self, pid: int, *, commit: bool, epoch: int = 0) -> int:
        data = marker((pid, epoch), commit=commit)
        return self.log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW).first_offset

    def roll(self) -> None:
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)

    def clean(self) -> bool:
        """Roll, then clean to the end."""
        self.roll()
        work = Deferred.fromCoroutine(self.cleaner.clean_one())
        outcome: list[Any] = []
        work.addBoth(outcome.append)
        while not outcome:
            self.clock.advance(0.01)
        assert isinstance(outcome[0], bool), outcome[0]
        return outcome[0]

    def batches(self) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        for segment in self.log.segments:
            for located in segment.iterate():
                assert isinstance(located.batch, RecordBatch)
                assert located.batch.crc_is_valid()
                found.append(located.batch)
        return found

    def pairs(self) -> list[tuple[int, str, str | None]]:
        return [
            (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
            for b in self.batches()
            if not b.is_control
            for r in b.records()
        ]


def test_the_newest_value_of_each_key_stays_at_its_offset() -> None:
    world = Compaction()
    for n in range(10):
        world.put(f"k{n % 3}", f"v{n}")
    assert world.clean()
    assert world.pairs() == [(7, "k1", "v7"), (8, "k2", "v8"), (9, "k0", "v9")]
    assert [s.base_offset for s in world.log.segments] == [0, 10]
    assert world.cleaner.offsets[T0] == 10
    assert not world.clean()


def test_inside_a_batch_records_go_and_the_rest_is_rebuilt() -> None:
    world = Compaction()
    pairs: list[tuple[str, str | None]] = [("a", "1"), ("b", "1"), ("c", "1")]
    world.put_all(pairs, codec=Codec.GZIP, timestamp=NOW + 5)
    world.put("b", "2")
    before = world.batches()[0]
    assert world.clean()
    batch = world.batches()[0]
    assert [(r.offset, r.key) for r in batch.records()] == [(0, b"a"), (2, b"c")]
    assert (batch.base_offset, batch.last_offset, batch.count) == (0, 2, 2)
    assert (batch.codec, batch.max_timestamp) == (Codec.GZIP, NOW + 5)
    assert batch.partition_leader_epoch == before.partition_leader_epoch


def test_untouched_batches_are_copied_byte_for_byte() -> None:
    world = Compaction()
    world.put_all([("a", "1"), ("b", "1")], codec=Codec.LZ4)
    world.put("x", "1")
    world.put("x", "2")
    before = bytes(world.batches()[0].view())
    assert world.clean()
    assert bytes(world.batches()[0].view()) == before


def test_the_active_segment_is_never_cleaned() -> None:
    world = Compaction()
    world.put("a", "1")
    assert world.clean()
    world.put("a", "2")
    world.log.update_high_watermark(2)
    assert world.cleaner.dirty_range(world.log) == (1, 1)
    assert [v for _, _, v in world.pairs()] == ["1", "2"]


def test_nothing_above_the_high_watermark_is_cleaned() -> None:
    """KAFKA-5634, 13194."""
    world = Compaction()
    for n in range(4):
        world.put("k", f"v{n}")
        world.log.roll()
    world.log.update_high_watermark(2)
    assert world.cleaner.dirty_range(world.log) == (0, 2)
    work = Deferred.fromCoroutine(world.cleaner.clean_one())
    while not work.called:
        world.clock.advance(0.01)
    assert [v for _, _, v in world.pairs()] == ["v1", "v2", "v3"]


def test_tombstones_stay_until_their_horizon() -> None:
    world = Compaction(delete_retention_ms=1000)
    world.put("a", "1")
    world.put("a", None, timestamp=NOW + 3)
    assert world.clean()
    (batch,) = world.batches()
    assert world.pairs() == [(1, "a", None)]
    assert [r.timestamp for r in batch.records()] == [NOW + 3]
    horizon = batch.delete_horizon_ms
    assert horizon is not None and 0 <= world.clock.now_ms() + 1000 - horizon < 100
    world.put("b", "1")
    assert world.clean()
    assert world.pairs()[0] == (1, "a", None), "the horizon has not passed"
    assert world.batches()[0].delete_horizon_ms == horizon
    world.clock.advance(2)
    world.put("c", "1")
    assert world.clean()
    assert world.pairs() == [(2, "b", "1"), (3, "c", "1")]


def test_records_without_key_go() -> None:
    world = Compaction()
    data = encode_batch([Record(None, b"x", NOW), Record(b"k", b"v", NOW)])
    world.log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW)
    assert world.clean()
    assert world.pairs() == [(1, "k", "v")]


def test_aborted_records_go_and_do_not_hide_others() -> None:
    world = Compaction()
    world.put("a", "good")
    world.put("a", "bad", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.end(7, commit=False)
    world.put("b", "1")
    assert world.clean()
    assert world.pairs() == [(0, "a", "good"), (3, "b", "1")]


def test_an_abort_above_the_stable_part_counts_for_what_is_below_it() -> None:
    world = Compaction()
    world.put("a", "good")
    world.put("a", "bad", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.roll()
    world.put("b", "open", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    world.end(7, commit=False)
    world.roll()
    assert world.log.last_stable_offset == 2
    assert world.clean()
    assert (0, "a", "good") in world.pairs()
    assert (1, "a", "bad") not in world.pairs()


def test_an_abort_of_long_ago_says_nothing_of_later_transactions() -> None:
    world = Compaction()
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    world.put("a", "bad", base_sequence=0, **transactional)
    world.end(7, commit=False)
    world.put("k", "old")
    assert world.clean()
    assert world.log.segments[0].txn_index.entries()
    world.put("k", "new", base_sequence=1, **transactional)
    world.end(7, commit=True)
    assert world.clean()
    assert [v for _, k, v in world.pairs() if k == "k"] == ["new"]


def test_markers_stay_while_they_have_data_and_then_until_their_horizon() -> None:
    world = Compaction(delete_retention_ms=1000)
    world.put("a", "1", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.end(7, commit=True)
    world.put("x", "1", producer_id=7, producer_epoch=1, base_sequence=0)
    assert world.clean()
    assert [b.is_control for b in world.batches()] == [False, True, False]
    assert world.batches()[1].delete_horizon_ms is None
    world.put("a", "2")
    assert world.clean()
    assert world.batches()[0].delete_horizon_ms is None, "this pass still met its data"
    world.put("z", "1")
    assert world.clean()
    control = [b for b in world.batches() if b.is_control]
    assert len(control) == 1 and control[0].delete_horizon_ms is not None
    world.clock.advance(2)
    world.put("y", "1")
    assert world.clean()
    assert not [b for b in world.batches() if b.is_control]


def test_the_txn_index_follows_the_data() -> None:
    world = Compaction(delete_retention_ms=1000)
    world.put("a", "bad", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.end(7, commit=False)
    world.put("b", "1", producer_id=7, producer_epoch=1, base_sequence=0)
    world.roll()
    entries = world.log.segments[0].txn_index.entries()
    assert len(entries) == 1
    assert world.clean()
    assert world.log.segments[0].txn_index.entries() == entries
    assert world.log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED).aborted_transactions
    world.put("c", "1")
    assert world.clean()
    assert world.log.segments[0].txn_index.entries() == []


def test_the_last_sequence_of_a_producer_survives() -> None:
    world = Compaction()
    for sequence in range(3):
        world.put("k", f"v{sequence}", producer_id=7, producer_epoch=2, base_sequence=sequence)
    world.put("k", "newest")
    assert world.clean()
    first = world.batches()[0]
    assert (first.count, first.size, first.base_sequence, first.last_offset) == (0, 61, 2, 2)
    assert (first.producer_id, first.producer_epoch, first.base_timestamp) == (7, 2, -1)
    for name in names(world, ".snapshot"):
        world.disk.remove(f"{PATH}/{name}")
    world.log = world.load(world.settings)
    assert world.log.active_producers()[0][:3] == (7, 2, 2)
    world.put("k", "next", producer_id=7, producer_epoch=2, base_sequence=3)


def test_segments_are_put_together_within_the_limits() -> None:
    world = Compaction(segment_bytes=1000)
    for n in range(40):
        world.put(f"k{n % 4}", f"{n}" * 20)
    assert len(world.log.segments) > 4
    assert world.clean()
    sizes = [s.size for s in world.log.segments]
    assert all(size <= 1000 for size in sizes)
    assert [k for _, k, _ in world.pairs()] == ["k0", "k1", "k2", "k3"]
    assert names(world, ".deleted")
    world.clock.advance(61)
    assert not [n for n in names(world) if n.endswith((".deleted", ".swap", ".cleaned"))]
    # What was cleaned is read by offset, by time, and after a restart of either kind.
    for clean in (None, True, False):
        if clean is not None:
            world.log.close()
            world.log = world.load(world.settings, clean=clean)
        for offset in range(40):
            info = world.log.read(offset, 1 << 20, FetchIsolation.LOG_END)
            assert isinstance(info.records, FileRange)
            assert next(iter(iterate_batches(info.records.read()))).last_offset >= offset
        found = world.log.offset_for_timestamp(NOW, FetchIsolation.LOG_END)
        assert found.offset == world.pairs()[0][0]


def test_a_small_map_cleans_in_steps() -> None:
    world = Compaction()
    world.cleaner = world.new_cleaner(**{"log.cleaner.dedupe.buffer.size": str(2 << 20)})
    for n in range(40):
        world.put(f"k{n}", "old")
    for n in range(40):
        world.put(f"k{n}", "new")
    world.roll()
    job = world.cleaner._job(world.cleaner._candidate(world.log))
    assert job.map_bytes == int((2 << 20) * 0.9)

    result = CleanResult()
    for _ in run_job(world.disk, replace(job, map_bytes=155 * 20), result):
        pass
    assert 15 < result.end_offset < 30
    with pytest.raises(CleaningError, match="not one key"):
        for _ in run_job(world.disk, replace(job, map_bytes=10), CleanResult()):
            pass


def test_the_dirtiest_log_comes_first_and_clean_ones_rest() -> None:
    world = Compaction(min_cleanable_dirty_ratio=0.5)
    for n in range(10):
        world.put(f"k{n}", "x" * 50)
    assert world.clean()
    world.put("k1", "y" * 50)
    assert not world.clean(), "only a tenth is dirty"
    for n in range(12):
        world.put(f"k{n}", "z" * 50)
    assert world.clean()


def test_overdue_records_are_cleaned_whatever_the_ratio() -> None:
    world = Compaction(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY_MS)
    world.put("a", "1")
    world.put("a", "2")
    assert not world.clean()
    world.clock.advance(86_401)
    assert world.clean()
    assert world.pairs() == [(1, "a", "2")]


def test_young_records_wait() -> None:
    world = Compaction(min_compaction_lag_ms=DAY_MS)
    world.put("a", "1")
    world.put("a", "2")
    assert not world.clean()
    world.clock.advance(86_401)
    assert world.clean()


def test_a_damaged_log_is_left_alone() -> None:
    world = Compaction()
    world.put("a", "1")
    world.put("a", "2")
    world.roll()
    file = world.disk.open(world.log.segments[0].path)
    file.pwrite(b"\xff", 65)
    file.close()
    assert world.clean()
    assert world.cleaner.uncleanable == {T0}
    assert not world.clean()
    assert not [n for n in names(world) if n.endswith(".cleaned")]


@pytest.mark.parametrize("when", ["reading", "swap"])
@pytest.mark.parametrize("event", ["truncate", "close"])
def test_what_happens_to_the_log_meanwhile_voids_the_work(when: str, event: str) -> None:
    world = Compaction()
    for n in range(6):
        world.put("k", f"v{n}")
    world.roll()
    happened = False

    def before(operation: str, path: str) -> None:
        nonlocal happened
        if when == "reading":
            at = operation == "open" and path.endswith(".cleaned")
        else:
            at = operation == "sync_dir" and f"{0:020d}.log.swap" in world.disk.names(PATH)
        if at and not happened:
            happened = True
            world.disk.before = None
            if event == "truncate":
                world.log.truncate_to(3)
            else:
                world.log.discard()

    world.disk.before = before
    work = Deferred.fromCoroutine(world.cleaner.clean_one())
    while not work.called:
        world.clock.advance(0.01)
    assert happened
    assert result_of(work)
    assert not [n for n in names(world) if n.endswith((".cleaned", ".swap"))]
    if event == "truncate":
        assert [v for _, _, v in world.pairs()] == ["v0", "v1", "v2"]


def test_truncation_makes_the_cleaned_part_dirty_again() -> None:
    world = Compaction()
    for n in range(6):
        world.put(f"k{n}", "v")
    assert world.clean()
    world.log.truncate_to(3)
    assert world.cleaner.dirty_range(world.log)[0] == 3


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_operation_keeps_the_newest_values(power_lost: bool) -> None:
    class Chance:
        def __init__(self, seed: int) -> None:
            self._random = random.Random(seed)

        def random(self) -> float:
            return self._random.random()

        def randrange(self, stop: int) -> int:
            return self._random.randrange(stop)

        def bytes(self, count: int) -> bytes:
            return self._random.randbytes(count)

    def filled() -> Compaction:
        world = Compaction(segment_bytes=400)
        for n in range(14):
            world.put(f"k{n % 5}", f"v{n}" * 5)
        world.roll()
        world.log.flush()
        return world

    newest = {f"k{n % 5}": f"v{n}" * 5 for n in range(14)}
    at = 0
    while True:
        world = filled()
        recovery_point = world.log.recovery_point
        world.disk.before = CrashAt(at)
        work = Deferred.fromCoroutine(world.cleaner.clean_one())
        crashed: list[Any] = []
        work.addErrback(crashed.append)
        for _ in range(100):
            if not work.called:
                try:
                    world.clock.advance(0.01)
                except Crash:
                    crashed.append("in a timer")
                    break
        world.disk.before = None
        if power_lost:
            world.disk.crash(Chance(at) if at % 2 else None)
        else:
            world.disk.kill()
        world.log = world.load(world.settings, recovery_point=recovery_point)
        found = {key: value for _, key, value in world.pairs()}
        assert found == newest, at
        offsets = [offset for offset, _, _ in world.pairs()]
        assert offsets == sorted(set(offsets))
        world.put("k0", "after")
        if not crashed:
            break
        at += 1
    assert at > 30


def view(log: Log) -> dict[bytes, bytes]:
    """What a reader with read_committed ends up with."""
    state: dict[bytes, bytes] = {}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        info = log.read(offset, 1 << 20, FetchIsolation.TXN_COMMITTED, min_one_message=True)
        if not isinstance(info.records, FileRange):
            break
        aborted = sorted(info.aborted_transactions or [], key=lambda t: t.first_offset)
        open_aborted: set[int] = set()
        for batch in iterate_batches(info.records.read()):
            offset = max(offset, batch.next_offset)
            while aborted and aborted[0].first_offset <= batch.last_offset:
                open_aborted.add(aborted.pop(0).producer_id)
            if batch.is_control:
                open_aborted.discard(batch.producer_id)
                continue
            if batch.is_transactional and batch.producer_id in open_aborted:
                continue
            for record in batch.records():
                assert record.key is not None
                if record.value is None:
                    state.pop(record.key, None)
                else:
                    state[record.key] = record.value
    return state


KEYS = [b"a", b"b", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01", b"\x00\x01\x00\x01", b""]
"""Some as long as the key of a marker, and equal to it (KAFKA-13727)."""


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_readers_see_the_same_before_and_after(data: st.DataObject) -> None:
    """KAFKA-8351, 13727, 14055: compaction never changes what read_committed adds up to."""
    world = Compaction(
        segment_bytes=data.draw(st.sampled_from([300, 1000, 100_000])), delete_retention_ms=1000
    )
    log = world.log
    sequences = {1: 0, 2: 0, 3: 0}
    is_open = dict.fromkeys(sequences, False)
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 15))):
            pid = data.draw(st.sampled_from([0, 1, 2, 3]))
            if pid and is_open[pid] and data.draw(st.integers(0, 2)) == 0:
                world.end(pid, commit=data.draw(st.booleans()))
                is_open[pid] = False
                continue
            pairs = data.draw(
                st.lists(
                    st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 99)),
                    min_size=1,
                    max_size=3,
                )
            )
            records = [Record(k, None if v is None else b"v%d" % v, NOW) for k, v in pairs]
            fields: dict[str, Any] = {}
            if pid:
                fields = {
                    "producer_id": pid,
                    "producer_epoch": 0,
                    "base_sequence": sequences[pid],
                    "transactional": True,
                }
                sequences[pid] += len(records)
                is_open[pid] = True
            codec = data.draw(st.sampled_from(list(Codec)))
            log.append_as_leader(
                encode_batch(records, codec=codec, **fields), 1, origin="coordinator", now_ms=NOW
            )
        world.roll()
        before = view(log)
        world.clean()
        after = view(log)
        # A tombstone may be dropped with everything it hides: the sums are the same.
        assert after == before
        if data.draw(st.booleans()):
            world.clock.advance(2)
    producers = sorted(log.active_producers())
    for name in names(world, ".snapshot"):
        world.disk.remove(f"{PATH}/{name}")
    log.close()
    again = world.load(world.settings, recovery_point=log.log_end_offset)
    again.update_high_watermark(again.log_end_offset)
    assert view(again) == before
    for old, new in zip(producers, sorted(again.active_producers())):
        assert (old.producer_id, old.producer_epoch, old.last_sequence) == (
            new.producer_id,
            new.producer_epoch,
            new.last_sequence,
        )


def test_an_error_of_the_disk_takes_the_directory_offline() -> None:
    world = Compaction()
    world.put("a", "1")
    world.put("a", "2")
    world.roll()

    def before(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".cleaned"):
            raise StorageError(f"{path}: No space left on device")

    world.disk.before = before
    assert world.clean()
    assert len(world.failures) == 1


def test_it_runs_by_itself_and_stops() -> None:
    world = Compaction(segment_bytes=300)
    for n in range(20):
        world.put(f"k{n % 3}", f"v{n}" * 5)
    world.roll()
    world.cleaner.start()
    world.clock.advance(14)
    assert len(world.pairs()) == 20
    world.clock.advance(2)
    assert len(world.pairs()) == 3
    ended = world.cleaner.stop()
    assert ended.called
    assert contents(world.log)[-1][0] == 19
