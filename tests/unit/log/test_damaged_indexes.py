"""Index entries that are wrong: no read answers by them (beyond reference: log-store 5.1).

Kafka looks at the last entry only.  Here whatever an entry leads to is held against the log, and the
first contradiction has both indexes made anew.
"""

import random
from collections.abc import Callable

import pytest

from kafkalike.broker.log.index import OFFSET_ENTRY, TIME_ENTRY
from kafkalike.broker.log.log import Log
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.config import LogConfig
from kafkalike.errors import CorruptMessage
from kafkalike.runtime.ports import FileRange

from .support import NOW, PATH, World, append, config, contents, marker

STEM = f"{PATH}/{0:020d}"


def settings(**more: object) -> LogConfig:
    return config(index_interval_bytes=150, segment_bytes=20_000, segment_index_bytes=4000, **more)


def written(world: World, count: int = 40, seed: int = 1) -> Log:
    """A log in one segment, timestamps out of order, stopped in order."""
    chance = random.Random(seed)
    log = world.load(settings())
    for n in range(count):
        values = ["x" * chance.randrange(60) for _ in range(chance.randrange(1, 4))]
        append(log, *values, timestamp=NOW + n * 10 + chance.randrange(-40, 40))
    log.close()
    return log


def put(world: World, path: str, data: bytes) -> None:
    file = world.disk.open(path, create=True)
    file.truncate(0)
    file.append(data)
    file.close()


def first_batch_read(log: Log, offset: int) -> int:
    """Base offset of the first batch that a fetch at `offset` brings."""
    info = log.read(offset, 1, FetchIsolation.LOG_END, min_one_message=True)
    assert isinstance(info.records, FileRange), f"nothing at {offset}"
    return int.from_bytes(info.records.read()[:8], "big")


class Answers:
    """What a log says to every question about offsets and times."""

    def __init__(self, log: Log) -> None:
        self.batches = [first_batch_read(log, offset) for offset in range(log.log_end_offset)]
        times = range(NOW - 60, NOW + 500, 9)
        self.times = [log.offset_for_timestamp(t, FetchIsolation.LOG_END) for t in times]
        self.newest = log.offset_for_timestamp(-3, FetchIsolation.LOG_END)
        self.max_timestamp = log.segments[0].max_timestamp

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Answers)
        assert self.batches == other.batches
        assert self.times == other.times
        assert self.newest == other.newest
        assert self.max_timestamp == other.max_timestamp
        return True

    __hash__ = None  # type: ignore[assignment]


def damaged_entries(data: bytes, size: int, entry: int, chance: random.Random) -> list[bytes]:
    """Index files with the given entry's two numbers wrong, the last entry as it was."""
    form = OFFSET_ENTRY if entry == OFFSET_ENTRY.size else TIME_ENTRY
    count = len(data) // entry
    wrong = []
    for number in range(0, count - 1, 2):
        key, value = form.unpack_from(data, number * entry)
        keys = [key + 1, key - 1, key + 50, 0, -1, 0x7FFFFFFF, key ^ (1 << chance.randrange(31))]
        values = [value + 1, value - 1, value + 700, size, size + 9, -5, 0x7FFFFFFF]
        values.append(value ^ (1 << chance.randrange(31)))
        other = form.unpack_from(data, chance.randrange(count) * entry)
        for pair in [
            *((k, value) for k in keys),
            *((key, v) for v in values),
            (key, other[1]),
            (other[0], value),
            (chance.randrange(1 << 31), chance.randrange(1 << 31)),
        ]:
            at = number * entry
            wrong.append(data[:at] + form.pack(*pair) + data[at + entry :])
    return wrong


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_entry_in_the_middle_changes_no_answer(suffix: str) -> None:
    world = World()
    size = written(world).size
    truth = Answers(world.load(settings(), clean=True))
    good = world.disk.read_file(STEM + suffix)
    entry = OFFSET_ENTRY.size if suffix == ".index" else TIME_ENTRY.size
    assert len(good) // entry > 10
    for bad in damaged_entries(good, size, entry, random.Random(7)):
        put(world, STEM + suffix, bad)
        assert Answers(world.load(settings(), clean=True)) == truth
        assert not world.failures


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("seed", range(8))
def test_an_index_of_garbage_changes_no_answer(suffix: str, seed: int) -> None:
    world = World()
    written(world, seed=seed)
    truth = Answers(world.load(settings(), clean=True))
    entry = OFFSET_ENTRY.size if suffix == ".index" else TIME_ENTRY.size
    good = world.disk.read_file(STEM + suffix)
    put(world, STEM + suffix, random.Random(seed).randbytes(len(good) - entry) + good[-entry:])
    assert Answers(world.load(settings(), clean=True)) == truth


@pytest.mark.parametrize(
    "bad", [b"", TIME_ENTRY.pack(NOW - 999, 3), TIME_ENTRY.pack(NOW + 9999, 5)]
)
def test_the_largest_timestamp_is_not_taken_from_a_wrong_closing_entry(bad: bytes) -> None:
    """Retention would delete what is not old yet, or keep what is; lookups would skip the segment."""
    world = World()
    written(world)
    truth = Answers(world.load(settings(), clean=True))
    good = world.disk.read_file(f"{STEM}.timeindex")
    put(world, f"{STEM}.timeindex", good[: -TIME_ENTRY.size] + bad if bad else b"")
    log = world.load(settings(), clean=True)
    assert log.segments[0].max_timestamp == truth.max_timestamp
    assert Answers(log) == truth


def test_retention_does_not_believe_a_closing_entry_from_long_ago() -> None:
    world = World()
    rules = settings(retention_ms=1000)
    log = world.load(rules)
    append(log, "old enough soon", timestamp=NOW)
    log.roll()
    append(log, "new", timestamp=NOW + 800)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    put(world, f"{STEM}.timeindex", TIME_ENTRY.pack(NOW - 500_000, 0))
    log = world.load(rules, clean=True, high_watermark=2)
    assert log.delete_old_segments(NOW + 900) == 0
    assert log.delete_old_segments(NOW + 1100) == 1


def spoil_position(world: World) -> bytes:
    good = world.disk.read_file(f"{STEM}.index")
    key, position = OFFSET_ENTRY.unpack_from(good, 24)
    bad = good[:24] + OFFSET_ENTRY.pack(key, position + 3) + good[32:]
    put(world, f"{STEM}.index", bad)
    return bad


def test_a_wrong_entry_has_both_indexes_made_anew_on_disk_and_in_memory() -> None:
    world = World()
    written(world)
    bad = spoil_position(world)
    log = world.load(settings(), clean=True)
    key, _ = OFFSET_ENTRY.unpack_from(bad, 24)
    first_batch_read(log, key)
    assert world.disk.read_file(f"{STEM}.index") != bad
    segment = log.segments[0]
    for offset, position in segment.index.entries():
        assert next(iter(segment.iterate(position))).batch.base_offset <= offset
    timestamps = segment.time_index.entries()
    assert timestamps == sorted(timestamps)
    assert timestamps[-1] == (segment.max_timestamp, segment.max_timestamp_offset)
    log.close()
    truth = contents(log := world.load(settings(), clean=True))
    assert [offset for offset, _ in truth] == list(range(log.log_end_offset))


def test_entries_written_while_the_indexes_are_made_anew_are_kept() -> None:
    world = World()
    written(world)
    bad = spoil_position(world)
    log = world.load(settings(), clean=True)
    jobs: list[Callable[[], None]] = []
    later = log.directory.later

    def hold(*arguments: object) -> None:
        jobs.append(lambda: later(*arguments))  # type: ignore[arg-type]

    log.directory.later = hold  # type: ignore[method-assign,assignment]
    key, _ = OFFSET_ENTRY.unpack_from(bad, 24)
    append(log, "before the lookup", timestamp=NOW + 5000)
    first_batch_read(log, key)
    assert len(jobs) == 1
    for n in range(20):
        append(log, "y" * 60, timestamp=NOW + 6000 + n)
    written_meanwhile = log.segments[0].index.entries()[-3:]
    first_batch_read(log, key)
    assert len(jobs) == 1, "once is enough"
    log.directory.later = later  # type: ignore[method-assign]
    jobs[0]()
    segment = log.segments[0]
    assert segment.index.entries()[-3:] == written_meanwhile
    assert segment.index.is_writable
    for n in range(5):
        append(log, "z" * 60, timestamp=NOW + 7000 + n)
    truth = Answers(log)
    log.close()
    assert Answers(world.load(settings(), clean=True)) == truth
    world.disk.remove(f"{STEM}.index")
    assert Answers(world.load(settings(), clean=True)) == truth  # recovered from the log alone


@pytest.mark.parametrize("how", ["truncated", "deleted"])
def test_indexes_made_anew_too_late_are_thrown_away(how: str) -> None:
    world = World()
    written(world)
    bad = spoil_position(world)
    log = world.load(settings(), clean=True)
    jobs: list[Callable[[], None]] = []
    later = log.directory.later
    log.directory.later = lambda *a: jobs.append(lambda: later(*a))  # type: ignore
    key, _ = OFFSET_ENTRY.unpack_from(bad, 24)
    first_batch_read(log, key)
    if how == "truncated":
        log.truncate_to(key)
    else:
        log.discard()
        world.disk.remove_tree(PATH)
    log.directory.later = later  # type: ignore[method-assign]
    for job in jobs:
        job()
    assert not world.failures
    if how == "truncated":
        append(log, "after", timestamp=NOW)
        assert Answers(log).batches[-1] == log.log_end_offset - 1
    else:
        assert not world.disk.exists(f"{STEM}.index")


def test_aborted_transactions_are_told_although_an_entry_is_wrong() -> None:
    """A reader of committed records finds out by them what to leave out."""
    world = World()
    log = world.load(settings())
    for n in range(12):
        append(log, "t" * 80, producer=(7, 0, n), transactional=True)
    log.append_as_leader(marker((7, 0), commit=False), 1, origin="coordinator", now_ms=NOW)
    for _ in range(12):
        append(log, "p" * 80)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    good = world.disk.read_file(f"{STEM}.index")
    for at in range(0, len(good) - OFFSET_ENTRY.size, OFFSET_ENTRY.size):
        _, position = OFFSET_ENTRY.unpack_from(good, at)
        put(world, f"{STEM}.index", good[:at] + OFFSET_ENTRY.pack(-1, position) + good[at + 8 :])
        log = world.load(settings(), clean=True, high_watermark=25)
        for offset in range(12):
            for size in range(1, 3000, 150):
                info = log.read(offset, size, FetchIsolation.TXN_COMMITTED, min_one_message=True)
                assert [tuple(txn) for txn in info.aborted_transactions or []] == [(7, 0)]


def test_a_batch_whose_size_reaches_beyond_the_file_is_an_error_and_not_the_end() -> None:
    """Kafka takes such a file for ended there and goes on with the next: records are left out."""
    world = World()
    log = world.load(settings())
    for _ in range(6):
        append(log, "x" * 40)  # index entries at 2 and 4
    at = log.segments[0].position_for(2)
    log.roll()
    append(log, "in the next segment")
    log.close()
    data = bytearray(world.disk.read_file(f"{STEM}.log"))
    data[at + 8 : at + 12] = (1 << 24).to_bytes(4, "big")
    put(world, f"{STEM}.log", bytes(data))
    log = world.load(settings(), clean=True)
    assert first_batch_read(log, 1) == 1
    with pytest.raises(CorruptMessage, match="no whole batch"):
        log.read(3, 1000, FetchIsolation.LOG_END)
    assert first_batch_read(log, 5) == 5, "an index entry leads behind the damage"
