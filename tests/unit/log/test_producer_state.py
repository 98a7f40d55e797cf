"""Sequences, epochs, transactions and snapshots (reference: transactions 10; log-store 2.2, 9)."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.broker.log.log import Log
from kafkalike.broker.log.producer_state import (
    AbortedTxn,
    CorruptSnapshot,
    ProducerState,
    read_snapshot,
    write_snapshot,
)
from kafkalike.broker.log.values import AbortedTransaction, FetchIsolation
from kafkalike.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from kafkalike.records.batch import parse_batch

from .support import NOW, PATH, World, batch, config, marker, names

MAX = 2**31 - 1
COMMITTED = FetchIsolation.TXN_COMMITTED


@pytest.fixture
def log() -> Log:
    return World().load()


def produce(
    log: Log, sequence: int, *values: str, pid: int = 7, epoch: int = 0, txn: bool = False
) -> int:
    data = batch(*(values or ("v",)), producer=(pid, epoch, sequence), transactional=txn)
    return log.append_as_leader(data, 1, now_ms=NOW).first_offset


def end(log: Log, *, commit: bool, pid: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    data = marker((pid, epoch), commit=commit, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW).first_offset


# -- sequences ---------------------------------------------------------------------------------


def test_sequences_continue(log: Log) -> None:
    assert produce(log, 0, "a", "b") == 0
    assert produce(log, 2, "c") == 2
    assert produce(log, 3) == 3


def test_an_unknown_producer_may_start_anywhere(log: Log) -> None:
    assert produce(log, 42) == 0
    assert produce(log, 43) == 1


def test_duplicates_of_the_last_five_are_answered_with_their_original_offsets(log: Log) -> None:
    for sequence in range(7):
        produce(log, sequence)
    for sequence in range(2, 7):
        data = batch("v", producer=(7, 0, sequence))
        info = log.append_as_leader(data, 1, now_ms=NOW + 50)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (sequence, sequence)
        assert info.max_timestamp == NOW
    for sequence in (0, 1):
        with pytest.raises(OutOfOrderSequenceNumber):
            produce(log, sequence)
    assert log.log_end_offset == 7


def test_part_of_a_known_batch_is_no_duplicate(log: Log) -> None:
    produce(log, 0, "a", "b", "c")
    with pytest.raises(OutOfOrderSequenceNumber):
        produce(log, 0, "a", "b")
    with pytest.raises(OutOfOrderSequenceNumber):
        produce(log, 1, "b", "c")


@pytest.mark.parametrize("sequence", [0, 2, 4, 6, MAX])
def test_gaps_and_repetitions_are_refused(log: Log, sequence: int) -> None:
    produce(log, 0, "a", "b", "c")
    produce(log, 3, "d", "e")
    with pytest.raises(OutOfOrderSequenceNumber):
        produce(log, sequence, "x")
    assert produce(log, 5) == 5


def test_sequences_wrap(log: Log) -> None:
    produce(log, MAX - 1, "a", "b")
    assert produce(log, 0, "c") == 2
    second = World().load()
    produce(second, MAX - 1, "a", "b", "c", "d")
    assert second.active_producers()[0].last_sequence == 1
    assert produce(second, 2) == 4


def test_a_new_epoch_starts_at_zero_and_fences_the_old(log: Log) -> None:
    produce(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        produce(log, 1, epoch=1)
    produce(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        produce(log, 1, epoch=0)
    produce(log, 1, epoch=1)
    assert log.active_producers()[0][:3] == (7, 1, 1)


def test_producers_do_not_disturb_each_other(log: Log) -> None:
    produce(log, 0, pid=1)
    produce(log, 5, pid=2)
    produce(log, 1, pid=1)
    produce(log, 6, pid=2)


def test_followers_take_what_their_leader_took(log: Log) -> None:
    for offset, (sequence, epoch) in enumerate([(0, 1), (9, 1), (3, 0)]):
        log.append_as_follower(batch("v", producer=(7, epoch, sequence), base_offset=offset))
    assert log.active_producers()[0][:3] == (7, 0, 3)


# -- transactions ------------------------------------------------------------------------------


def test_an_open_transaction_holds_back_the_last_stable_offset(log: Log) -> None:
    produce(log, 0, pid=1)
    produce(log, 0, txn=True)
    produce(log, 1, pid=1)
    produce(log, 1, txn=True)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    assert log.has_open_transaction(7, 0) and not log.has_open_transaction(7, 1)
    end(log, commit=True)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert not log.has_open_transaction(7, 0)


def test_read_committed_gets_the_aborted_transactions_of_its_range(log: Log) -> None:
    produce(log, 0, "a", txn=True)
    produce(log, 0, "x", pid=8, txn=True)
    end(log, commit=False)
    produce(log, 1, "b", pid=8, txn=True)
    end(log, commit=True, pid=8)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    info = log.read(0, 1000, COMMITTED)
    assert info.aborted_transactions == [AbortedTransaction(7, 0)]
    assert log.read(3, 1000, COMMITTED).aborted_transactions == []
    assert log.read(0, 1000).aborted_transactions is None
    assert log.segments[0].txn_index.entries() == [AbortedTxn(7, 0, 2, 1)]


def test_read_committed_ends_at_the_last_stable_offset(log: Log) -> None:
    produce(log, 0, "a", pid=1)
    produce(log, 0, "b", txn=True)
    log.update_high_watermark(2)
    assert len(log.read(0, 1000, COMMITTED).records) == len(batch("a"))
    assert log.read(1, 1000, COMMITTED).records == b""


def test_overlapping_transactions_over_segments() -> None:
    log = World().load(config(segment_bytes=250))
    produce(log, 0, "a" * 50, pid=1, txn=True)
    produce(log, 0, "b" * 50, pid=2, txn=True)
    produce(log, 1, "c" * 50, pid=1, txn=True)
    end(log, commit=False, pid=1)
    produce(log, 1, "d" * 50, pid=2, txn=True)
    end(log, commit=False, pid=2)
    assert len(log.segments) > 1
    log.update_high_watermark(6)
    for offset in range(5):
        found = log.read(offset, 1 << 20, COMMITTED).aborted_transactions
        assert found is not None
        assert set(found) >= {AbortedTransaction(2, 1)}
        assert (AbortedTransaction(1, 0) in found) == (offset <= 3)


def act(log: Log, step: str) -> None:
    """`d0.3t` = data of epoch 0, sequence 3, transactional; `c1` / `a1` = marker of epoch 1;
    `/2` = coordinator epoch 2."""
    step, _, coordinator = step.partition("/")
    if step[0] == "d":
        epoch, _, sequence = step[1:].rstrip("t").partition(".")
        produce(log, int(sequence), epoch=int(epoch), txn=step.endswith("t"))
    else:
        end(
            log,
            commit=step[0] == "c",
            epoch=int(step[1:]),
            coordinator_epoch=int(coordinator or 0),
        )


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (["d0.0t", "d0.1"], InvalidTxnState),
        (["d1.0t", "c0"], InvalidProducerEpoch),
        (["d0.0t", "c0/5", "d0.1t", "a0/4"], TransactionCoordinatorFenced),
        (["d0.0t", "c1", "d0.1t"], InvalidProducerEpoch),
        (["d0.0t", "c1", "d1.1t"], OutOfOrderSequenceNumber),
        (["c0", "d0.3"], OutOfOrderSequenceNumber),
        (["d0.0t", "c0", "d0.2t"], OutOfOrderSequenceNumber),
        (["d0.0t", "c0", "d0.1t"], None),
        (["d0.0t", "c0", "d0.1"], None),
        (["d0.0t", "c1", "d1.0t"], None),
        (["d0.0t", "c0/5", "d0.1t", "a0/5"], None),
        (["c0", "d0.0"], None),
        (["c0", "c0"], None),
    ],
)
def test_sequences_of_events(log: Log, steps: list[str], error: type[KafkaError] | None) -> None:
    for step in steps[:-1]:
        act(log, step)
    if error is None:
        act(log, steps[-1])
        return
    before = log.log_end_offset
    with pytest.raises(error):
        act(log, steps[-1])
    assert log.log_end_offset == before


def test_a_marker_without_a_transaction_changes_nothing(log: Log) -> None:
    end(log, commit=False)
    log.update_high_watermark(1)
    assert log.last_stable_offset == 1
    assert not log.segments[0].txn_index.exists


# -- verification (KIP-890) --------------------------------------------------------------------


def test_a_transaction_needs_a_guard_where_verification_is_on(log: Log) -> None:
    log.producer_state.verification_required = True
    with pytest.raises(InvalidTxnState):
        produce(log, 0, txn=True)
    guard = log.maybe_start_transaction_verification(7, 0, 0)
    assert guard is not None
    assert log.maybe_start_transaction_verification(7, 0, 0) is guard

    def with_guard(given: object, sequence: int) -> int:
        data = batch("v", producer=(7, 0, sequence), transactional=True)
        return log.append_as_leader(
            data,
            1,
            now_ms=NOW,
            verification_guard=given,  # type: ignore[arg-type]
        ).first_offset

    other = World().load().maybe_start_transaction_verification(7, 0, 0)
    with pytest.raises(InvalidTxnState):
        with_guard(other, 0)
    assert with_guard(guard, 0) == 0
    # Now the transaction is open: no further guard is needed or given.
    assert log.maybe_start_transaction_verification(7, 1, 0) is None
    assert produce(log, 1, txn=True) == 1
    end(log, commit=True)
    # The old guard does not open the next one.
    with pytest.raises(InvalidTxnState):
        with_guard(guard, 2)


def test_a_marker_takes_the_guard_away(log: Log) -> None:
    log.producer_state.verification_required = True
    guard = log.maybe_start_transaction_verification(7, 0, 0)
    end(log, commit=False)
    data = batch("late", producer=(7, 0, 0), transactional=True)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(data, 1, now_ms=NOW, verification_guard=guard)


def test_what_was_tried_during_verification_bounds_the_first_sequence(log: Log) -> None:
    log.maybe_start_transaction_verification(7, 3, 0)
    log.maybe_start_transaction_verification(7, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        produce(log, 3)
    assert produce(log, 0) == 0


def test_coordinators_are_verified_but_not_for_sequences(log: Log) -> None:
    log.producer_state.verification_required = True
    data = batch("v", producer=(7, 0, -1), transactional=True)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW)
    guard = log.maybe_start_transaction_verification(7, -1, 0)
    log.append_as_leader(data, 1, origin="coordinator", now_ms=NOW, verification_guard=guard)
    assert log.has_open_transaction(7, 0)


def crc32c_bit_by_bit(data: bytes) -> int:
    """The definition: reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# -- expiry and snapshots ----------------------------------------------------------------------


def test_silent_producers_expire_but_never_inside_a_transaction(log: Log) -> None:
    log.producer_state.expiration_ms = 1000
    produce(log, 0, pid=1)
    produce(log, 0, pid=2, txn=True)
    log.remove_expired_producers(NOW + 999)
    assert len(log.active_producers()) == 2
    log.remove_expired_producers(NOW + 1000)
    assert [p.producer_id for p in log.active_producers()] == [2]
    assert produce(log, 77, pid=1) == 2


def test_a_snapshot_has_the_bytes_kafka_writes() -> None:
    state = ProducerState("t-0")
    state.update(parse_batch(batch("a", "b", producer=(1000, 3, 5), base_offset=40)))
    data = state.snapshot()
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\0\0\0\x01"
    assert data[10:] == struct.pack(">qhiqiqiq", 1000, 3, 6, 41, 1, NOW + 1, -1, -1)
    assert int.from_bytes(data[2:6], "big") == crc32c_bit_by_bit(data[6:])


def test_snapshots_round_trip_and_the_newest_batch_survives() -> None:
    log = World().load()
    for sequence in range(3):
        produce(log, sequence)
    produce(log, 0, pid=8, epoch=4, txn=True)
    end(log, commit=True, pid=9, coordinator_epoch=6)
    entries = {e.producer_id: e for e in read_snapshot(log.producer_state.snapshot())}
    assert entries[7].batches == log.producer_state.producers[7].batches[-1:]
    assert (entries[8].epoch, entries[8].current_txn_first_offset) == (4, 3)
    assert (entries[9].coordinator_epoch, entries[9].last_sequence) == (6, -1)
    loaded = ProducerState("t-0")
    loaded.load(log.producer_state.snapshot(), NOW)
    assert loaded.open_txns == {3: 8}
    assert loaded.snapshot() == log.producer_state.snapshot()


@settings(deadline=None)
@given(st.data())
def test_a_damaged_snapshot_is_noticed(data: st.DataObject) -> None:
    state = ProducerState("t-0")
    state.update(parse_batch(batch("a", producer=(1, 0, 0))))
    good = state.snapshot()
    assert len(read_snapshot(good)) == 1
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(CorruptSnapshot):
        read_snapshot(good[:cut])
    flipped = bytearray(good)
    flipped[cut] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        read_snapshot(bytes(flipped))


def test_an_empty_snapshot() -> None:
    data = write_snapshot([])
    assert len(data) == 10
    assert read_snapshot(data) == []


def test_expired_producers_are_not_loaded() -> None:
    log = World().load()
    produce(log, 0, pid=1)
    produce(log, 0, pid=2, txn=True)
    state = ProducerState("t-0", expiration_ms=10)
    state.load(log.producer_state.snapshot(), NOW + 10)
    assert list(state.producers) == [2]


def test_sequences_survive_truncation_by_a_rebuild() -> None:
    world = World()
    log = world.load(config(segment_bytes=400))
    for sequence in range(12):
        produce(log, sequence)
    assert len(names(world, ".snapshot")) == 2
    log.truncate_to(5)
    assert log.active_producers()[0].last_sequence == 4
    assert [int(name[:20]) for name in names(world, ".snapshot")] == [
        s.base_offset for s in log.segments[1:]
    ]
    assert produce(log, 5) == 5


def test_a_snapshot_of_a_truncated_end_is_not_taken_for_the_new_one() -> None:
    world = World()
    log = world.load()
    for _ in range(2):
        log.append_as_leader(batch("v"), 1, now_ms=NOW)
    log.roll()
    log.append_as_leader(batch("v"), 1, now_ms=NOW)
    log.truncate_to(1)
    produce(log, 0)
    log.roll()
    assert names(world, ".snapshot") == [f"{2:020d}.snapshot"]
    data = world.disk.read_file(f"{PATH}/{2:020d}.snapshot")
    assert [entry.producer_id for entry in read_snapshot(data)] == [7]


def test_transactions_survive_truncation() -> None:
    log = World().load()
    produce(log, 0, pid=1, txn=True)
    end(log, commit=False, pid=1)
    produce(log, 1, pid=1, txn=True)
    end(log, commit=False, pid=1)
    log.update_high_watermark(2)
    log.truncate_to(3)
    assert log.segments[0].txn_index.entries() == [AbortedTxn(1, 0, 1, 2)]
    assert log.producer_state.open_txns == {2: 1}
    log.update_high_watermark(3)
    assert log.last_stable_offset == 2
    log.truncate_to(2)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    assert log.producer_state.open_txns == {}


def test_producers_are_read_back_from_snapshot_and_log() -> None:
    world = World()
    log = world.load(config(segment_bytes=400))
    for sequence in range(12):
        produce(log, sequence, txn=True)
    expected = log.active_producers()
    log.close()
    for clean in (True, False):
        log = world.load(config(segment_bytes=400), clean=clean)
        assert log.active_producers() == expected
        log.close()
    for name in names(world, ".snapshot"):
        world.disk.remove(f"{PATH}/{name}")
    log = world.load(config(segment_bytes=400), recovery_point=12)
    assert log.active_producers() == expected
    assert log.producer_state.open_txns == {0: 7}


def test_a_damaged_snapshot_is_replaced_by_an_older_one() -> None:
    world = World()
    log = world.load(config(segment_bytes=400))
    for sequence in range(12):
        produce(log, sequence)
    expected = log.active_producers()
    log.close()
    newest = names(world, ".snapshot")[-1]
    file = world.disk.open(f"{PATH}/{newest}")
    file.pwrite(b"\xff", 12)
    file.close()
    log = world.load(config(segment_bytes=400), clean=True)
    assert log.active_producers() == expected
