"""Fetch on the leader and from a follower: checks, limits, waiting (reference: replication 8, 10)."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.values import NO_OFFSET
from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, result_of

from .support import T0, TOPIC_ID, Broker, batch, fetch_request, values_of

T1 = TopicPartition("t", 1)
ONE_BATCH = len(batch("a"))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, 3)
    return broker


def now(answer: "FetchResponse | Deferred[FetchResponse]") -> FetchResponse:
    assert isinstance(answer, FetchResponse)
    return answer


def later(answer: "FetchResponse | Deferred[FetchResponse]") -> "Deferred[FetchResponse]":
    assert isinstance(answer, Deferred) and not answer.called
    return answer


def code(broker: Broker, offset: int = 0, version: int = 12, **fields: Any) -> int:
    """The error code of one partition; any error is answered at once and without offsets."""
    response = now(broker.fetch(fetch_request({T0: offset}, max_wait_ms=500, **fields), version))
    partition = response.responses[0].partitions[0]
    if partition.error_code:
        assert (partition.high_watermark, partition.last_stable_offset) == (-1, -1)
        assert partition.records == b"" and partition.aborted_transactions is None
    return partition.error_code


# -- checks ------------------------------------------------------------------------------------


def test_unknown_elsewhere_and_offline(broker: Broker) -> None:
    assert code(broker) == UnknownTopicOrPartition.code
    broker.know(1, 2, partitions=[T0])
    assert code(broker) == NotLeaderOrFollower.code
    broker.lead()
    broker.replicas.log_dir_failed(broker.log().parent_dir)
    assert code(broker) == KafkaStorageError.code


def test_topic_id_of_a_former_topic(broker: Broker) -> None:
    """KIP-516, KAFKA-14616: a topic made anew is not served from old files."""
    broker.know(1, 2, partitions=[T0])
    broker.lead()
    request = fetch_request({T0: 0}, by_id=True)
    assert now(broker.fetch(request)).responses[0].partitions[0].error_code == NONE
    broker.log().topic_id = bytes(range(1, 17))
    partition = now(broker.fetch(request)).responses[0].partitions[0]
    assert partition.error_code == InconsistentTopicId.code


def test_leader_epochs(broker: Broker) -> None:
    """KIP-320, KAFKA-7747."""
    broker.lead(epoch=5, replicas=[1, 2])
    result_of(broker.produce("a"))
    for replica in (-1, 2):
        assert code(broker, epoch=4, replica_id=replica) == FencedLeaderEpoch.code
        assert code(broker, epoch=6, replica_id=replica) == UnknownLeaderEpoch.code
    assert code(broker, epoch=5, replica_id=2) == NONE
    assert broker.read(0, epoch=-2).error_code == NONE  # counts as absent


def test_epoch_is_checked_before_the_role(broker: Broker) -> None:
    broker.order(leader=2, epoch=5, replicas=[1, 2])
    assert code(broker, epoch=4, replica_id=2) == FencedLeaderEpoch.code
    assert code(broker, epoch=5, replica_id=2) == NotLeaderOrFollower.code


def test_follower_that_is_not_assigned(broker: Broker) -> None:
    broker.lead(epoch=5, replicas=[1, 2])
    assert code(broker, replica_id=3, epoch=5) == UnknownLeaderEpoch.code
    assert code(broker, replica_id=3) == NotLeaderOrFollower.code


def test_offsets_out_of_range(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1])
    result_of(broker.produce("a"))
    result_of(broker.produce("b"))
    assert code(broker, 3) == OffsetOutOfRange.code
    assert broker.read(2).error_code == NONE
    broker.partition().delete_records(1)
    assert code(broker, 0) == OffsetOutOfRange.code
    assert broker.read(1).log_start_offset == 1


def test_consumer_below_version_11_reads_leaders_only(broker: Broker) -> None:
    broker.order(leader=2, replicas=[1, 2])
    assert code(broker, version=10) == NotLeaderOrFollower.code
    assert broker.read(0).error_code == NONE


# -- divergence --------------------------------------------------------------------------------


@pytest.fixture
def epochs(broker: Broker) -> Broker:
    """Epoch 1: offsets 0, 1; epoch 3: offset 2; epoch 5, present: no record yet."""
    broker.lead(epoch=1, replicas=[1, 2], isr=[1])
    result_of(broker.produce("a", "b"))
    broker.lead(epoch=3, replicas=[1, 2], isr=[1])
    result_of(broker.produce("c"))
    broker.lead(epoch=5, replicas=[1, 2], isr=[1])
    return broker


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (1, 1, None),
        (2, 1, None),
        (3, 1, (1, 2)),  # the reader has more of epoch 1 than we do
        (3, 3, None),
        (2, 2, (1, 2)),  # epoch 2 never was here
        (3, 4, (3, 3)),
        (3, 5, None),
        (0, 0, None),
        (1, 0, (0, 0)),  # before the first epoch: it ends where that begins
    ],
)
def test_divergence_is_told_instead_of_records(
    epochs: Broker, offset: int, last_epoch: int, expected: tuple[int, int] | None
) -> None:
    request = fetch_request(
        {T0: offset}, last_epoch=last_epoch, epoch=5, replica_id=2, max_wait_ms=500
    )
    answer = epochs.fetch(request, 12)
    if expected is None:
        if isinstance(answer, Deferred):
            epochs.clock.advance(1)
            answer = result_of(answer)
        partition = answer.responses[0].partitions[0]
        assert partition.diverging_epoch.epoch == -1
        assert epochs.partition().remote(2).log_end_offset == offset  # type: ignore[union-attr]
        return
    partition = now(answer).responses[0].partitions[0]
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == expected
    assert partition.error_code == NONE and partition.records == b""
    assert partition.high_watermark == epochs.log().high_watermark
    assert epochs.partition().remote(2).log_end_offset == NO_OFFSET  # type: ignore[union-attr]


def test_unknown_last_epoch_is_out_of_range(epochs: Broker) -> None:
    assert code(epochs, 3, last_epoch=9, epoch=5) == OffsetOutOfRange.code


def test_below_the_log_start_is_out_of_range_even_with_a_known_epoch(epochs: Broker) -> None:
    epochs.partition().delete_records(2)
    assert code(epochs, 1, last_epoch=1, epoch=5) == OffsetOutOfRange.code


def test_waiting_fetch_learns_of_a_divergence(broker: Broker) -> None:
    broker.lead(epoch=1, replicas=[1, 2], isr=[1])
    result_of(broker.produce("a"))
    waiting = later(broker.fetch(fetch_request({T0: 1}, last_epoch=1, max_wait_ms=500), 12))
    broker.log().truncate_to(0)
    broker.log().assign_epoch_start(1, 0)
    broker.replicas._wakeups.changed(broker.partition(), 8)
    broker.clock.run_soon()
    partition = result_of(waiting).responses[0].partitions[0]
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, 0)


# -- what may be read --------------------------------------------------------------------------


def test_consumers_read_to_the_high_watermark_and_followers_to_the_end(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a"))
    result_of(broker.produce("b"))
    broker.log().update_high_watermark(1)
    partition = broker.read(0)
    assert values_of(partition.records or b"") == ["a"]
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)
    assert broker.read(1).records == b""
    follower = broker.read(0, replica_id=2)
    assert values_of(follower.records or b"") == ["a", "b"]


def test_offset_inside_a_batch_returns_the_whole_batch(broker: Broker) -> None:
    broker.lead()
    result_of(broker.produce("a", "b", "c"))
    assert values_of(broker.read(2).records or b"") == ["a", "b", "c"]


def test_follower_serves_consumers_up_to_its_own_high_watermark(broker: Broker) -> None:
    """KIP-392."""
    broker.order(leader=2, replicas=[1, 2])
    partition = broker.partition()
    for offset, value in enumerate("ab"):
        partition.append_as_follower(batch(value, base_offset=offset), 1, 0)
    answer = broker.read(0)
    assert values_of(answer.records or b"") == ["a"] and answer.high_watermark == 1
    assert broker.read(1).records == b""
    assert code(broker, 3) == OffsetOutOfRange.code


@pytest.mark.parametrize("seed", range(5))
def test_kafka_9807_no_read_passes_the_bound_it_names(tmp_path: Path, seed: int) -> None:
    """KAFKA-9807, 9835, 9196: appends, rolls and high watermarks move, reads never see too much."""
    chance = FakeRandom(seed)
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2)
    broker.lead(replicas=[1, 2], isr=[1, 2])
    log = broker.log()
    written = 0
    for _ in range(300):
        what = chance.randrange(6)
        if what == 0:
            log.roll()
        elif what == 1:
            end = log.high_watermark + chance.randrange(log.log_end_offset + 1)
            broker.fetch(fetch_request({T0: min(end, log.log_end_offset)}, replica_id=2), 12)
        elif what < 4:
            count = chance.randrange(3) + 1
            result_of(broker.produce(*(f"v{written + n}" for n in range(count))))
            written += count
        else:
            start = chance.randrange(log.log_end_offset + 1)
            limit = chance.randrange(400) + 1
            partition = broker.read(start, partition_max_bytes=limit)
            seen = values_of(partition.records)
            assert all(int(value[1:]) < partition.high_watermark for value in seen)
            assert partition.high_watermark == log.high_watermark
            if start < partition.high_watermark:
                assert f"v{start}" in seen
    assert log.high_watermark > 0 and len(log.segments) > 3


# -- sizes -------------------------------------------------------------------------------------


@pytest.fixture
def two(broker: Broker) -> Broker:
    """Two partitions with three batches of equal size each."""
    for key in (T0, T1):
        broker.lead(key)
        for value in "abc":
            result_of(broker.produce(value, to=key))
    return broker


def sizes(response: FetchResponse) -> list[int]:
    return [len(p.records or b"") for topic in response.responses for p in topic.partitions]


def test_limits_of_request_and_partition(two: Broker) -> None:
    both = {T0: 0, T1: 0}
    assert sizes(now(two.fetch(fetch_request(both), 12))) == [3 * ONE_BATCH] * 2
    partition = now(two.fetch(fetch_request(both, partition_max_bytes=ONE_BATCH + 5), 12))
    assert sizes(partition) == [ONE_BATCH + 5] * 2  # cut inside a batch, as Kafka does
    total = now(two.fetch(fetch_request(both, max_bytes=4 * ONE_BATCH), 12))
    assert sizes(total) == [3 * ONE_BATCH, ONE_BATCH]


def test_first_batch_comes_whole_whatever_the_limits(two: Broker) -> None:
    both = {T0: 0, T1: 0}
    assert sizes(now(two.fetch(fetch_request(both, max_bytes=1), 12))) == [ONE_BATCH, 0]
    answer = now(two.fetch(fetch_request(both, partition_max_bytes=1), 12))
    assert sizes(answer) == [ONE_BATCH, 0]  # nothing rather than a batch nobody can use


def test_version_2_cuts_even_the_first_batch(two: Broker) -> None:
    answer = now(two.fetch(fetch_request({T0: 0}, partition_max_bytes=10), 2))
    assert sizes(answer) == [10]


def test_negative_partition_size(two: Broker) -> None:
    assert code(two, partition_max_bytes=-1) == -1


# -- waiting -----------------------------------------------------------------------------------


def test_answers_at_once(two: Broker) -> None:
    now(two.fetch(fetch_request({T0: 3}, max_wait_ms=0), 12))
    now(two.fetch(fetch_request({}, max_wait_ms=500), 12))
    now(two.fetch(fetch_request({T0: 0}, max_wait_ms=500), 12))
    now(two.fetch(fetch_request({T0: 3, T1: 9}, max_wait_ms=500), 12))  # one error
    now(two.fetch(fetch_request({T0: 3}, max_wait_ms=500, min_bytes=0), 12))


def test_waits_for_min_bytes_over_all_partitions(two: Broker) -> None:
    waiting = later(
        two.fetch(fetch_request({T0: 3, T1: 3}, max_wait_ms=500, min_bytes=2 * ONE_BATCH), 12)
    )
    result_of(two.produce("x", to=T0))
    two.clock.run_soon()
    assert not waiting.called
    result_of(two.produce("y", to=T1))
    two.clock.run_soon()
    assert sizes(result_of(waiting)) == [ONE_BATCH, ONE_BATCH]


def test_one_partition_counts_no_more_than_its_limit(two: Broker) -> None:
    waiting = later(
        two.fetch(
            fetch_request(
                {T0: 3}, max_wait_ms=500, min_bytes=ONE_BATCH + 1, partition_max_bytes=ONE_BATCH
            ),
            12,
        )
    )
    for value in "xyz":
        result_of(two.produce(value))
    two.clock.run_soon()
    assert not waiting.called
    two.clock.advance(0.6)
    assert sizes(result_of(waiting)) == [ONE_BATCH]


def test_time_is_over(two: Broker) -> None:
    waiting = later(two.fetch(fetch_request({T0: 3}, max_wait_ms=500), 12))
    two.clock.advance(0.49)
    assert not waiting.called
    two.clock.advance(0.03)
    assert sizes(result_of(waiting)) == [0]
    assert two.replicas._wakeups.consumers.watched == 0


def test_consumer_is_woken_by_the_high_watermark_and_follower_by_the_append(
    broker: Broker,
) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    consumer = later(broker.fetch(fetch_request({T0: 0}, max_wait_ms=500), 12))
    follower = later(broker.fetch(fetch_request({T0: 0}, max_wait_ms=500, replica_id=2), 12))
    result_of(broker.produce("a"))
    broker.clock.run_soon()
    assert follower.called and not consumer.called
    later(broker.fetch(fetch_request({T0: 1}, max_wait_ms=500, replica_id=2), 12))
    broker.clock.run_soon()
    assert values_of(result_of(consumer).responses[0].partitions[0].records or b"") == ["a"]


def test_follower_is_not_woken_by_the_high_watermark_alone(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2, 3])
    result_of(broker.produce("a"))
    two = later(broker.fetch(fetch_request({T0: 1}, max_wait_ms=500, replica_id=2), 12))
    three = later(broker.fetch(fetch_request({T0: 1}, max_wait_ms=500, replica_id=3), 12))
    broker.clock.run_soon()
    assert broker.log().high_watermark == 1
    assert not two.called and not three.called
    broker.clock.advance(0.6)
    assert result_of(two).responses[0].partitions[0].high_watermark == 1


def test_second_read_does_not_count_as_a_fetch(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = later(broker.fetch(fetch_request({T0: 0}, max_wait_ms=500, replica_id=2), 12))
    broker.clock.advance(0.3)
    result_of(broker.produce("a"))
    broker.clock.run_soon()
    assert waiting.called
    replica = broker.partition().remote(2)
    assert replica is not None
    assert (replica.last_fetch_s, replica.last_caught_up_s) == (0.0, 0.0)


@pytest.mark.parametrize("what", ["leadership", "stopped", "offline", "epoch"])
def test_waiting_fetch_learns_of_changes(broker: Broker, what: str) -> None:
    broker.lead(epoch=1, replicas=[1, 2], isr=[1])
    waiting = later(
        broker.fetch(fetch_request({T0: 0}, max_wait_ms=500, replica_id=2, epoch=1), 12)
    )
    if what == "leadership":
        broker.order(leader=2, epoch=2, replicas=[1, 2])
        expected: type[KafkaError] = FencedLeaderEpoch
    elif what == "stopped":
        partition = broker.replicas._hosted.remove(T0)
        assert partition is not None
        partition.stop()
        expected = UnknownTopicOrPartition
    elif what == "offline":
        broker.replicas.log_dir_failed(broker.log().parent_dir)
        expected = KafkaStorageError
    else:
        broker.lead(epoch=2, replicas=[1, 2], isr=[1])
        expected = FencedLeaderEpoch
    broker.clock.run_soon()
    assert result_of(waiting).responses[0].partitions[0].error_code == expected.code


def test_handler_refusals_are_answered_with_the_rest_and_do_not_end_the_wait(
    broker: Broker,
) -> None:
    broker.lead()
    from kafkalike.broker.replica.values import FetchParams

    def fetch(*refused: TopicPartition) -> Any:
        context = broker.sessions.begin(
            fetch_request({T0: 0, T1: 0}), 12, is_follower=False, topic_name=lambda _: None
        )
        for entry in context.partitions():
            if entry.topic_partition in refused:
                entry.error_code = 29
        return broker.replicas.fetch(FetchParams(12, max_wait_ms=500), context)

    waiting = later(fetch(T1))
    broker.clock.advance(1)
    codes = [p.error_code for p in result_of(waiting).responses[0].partitions]
    assert codes == [0, 29]
    assert [p.error_code for p in now(fetch(T0, T1)).responses[0].partitions] == [29, 29]


# -- offsets -----------------------------------------------------------------------------------


def offset(broker: Broker, timestamp: int, **fields: Any) -> tuple[int, int, int]:
    values: dict[str, Any] = {"version": 9, "replica_id": -1, "isolation_level": 0}
    return tuple(broker.replicas.list_offset(T0, timestamp, **(values | fields)))  # type: ignore[return-value]


def test_list_offsets(broker: Broker) -> None:
    broker.lead(epoch=2, replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a", "b"))
    broker.log().update_high_watermark(1)
    assert offset(broker, -1) == (-1, 1, 2)
    assert offset(broker, -1, replica_id=2) == (-1, 2, 2)
    assert offset(broker, -1, replica_id=-2) == (-1, 2, 2)
    assert offset(broker, -2) == (-1, 0, 2)
    assert offset(broker, 1000) == (1000, 0, 2)
    assert offset(broker, 1001) == (-1, -1, -1)  # above the high watermark
    assert offset(broker, 1001, replica_id=2) == (1001, 1, 2)


def test_new_leader_behind_its_epoch_start_cannot_say_the_latest_offset(broker: Broker) -> None:
    """KIP-207."""
    broker.lead(epoch=2, replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a"))
    result_of(broker.produce("b"))
    broker.log().update_high_watermark(1)
    broker.lead(epoch=3, replicas=[1, 2], isr=[1, 2])
    with pytest.raises(OffsetNotAvailable):
        offset(broker, -1)
    with pytest.raises(LeaderNotAvailable):
        offset(broker, -1, version=4)
    with pytest.raises(OffsetNotAvailable):
        offset(broker, 5000)
    assert offset(broker, 1000) == (1000, 0, 2)
    assert offset(broker, -2) == (-1, 0, 2)
    assert offset(broker, -1, replica_id=2)[1] == 2
    broker.log().update_high_watermark(2)
    assert offset(broker, -1) == (-1, 2, 3)


def test_list_offsets_checks_epoch_and_role(broker: Broker) -> None:
    broker.lead(epoch=2, replicas=[1, 2])
    with pytest.raises(FencedLeaderEpoch):
        offset(broker, -1, current_leader_epoch=1)
    with pytest.raises(FencedLeaderEpoch):
        offset(broker, -1, current_leader_epoch=-2)  # only -1 counts as absent here
    with pytest.raises(UnknownLeaderEpoch):
        offset(broker, -1, current_leader_epoch=3)
    broker.order(leader=2, epoch=3, replicas=[1, 2])
    with pytest.raises(NotLeaderOrFollower):
        offset(broker, -1)
    assert offset(broker, -1, replica_id=-2)[1] == 0  # a debugging consumer may ask any replica


def test_offset_for_leader_epoch(epochs: Broker) -> None:
    def ask(leader_epoch: int, current: int = 5) -> tuple[int, int]:
        found = epochs.replicas.offset_for_leader_epoch(
            T0, current_leader_epoch=current, leader_epoch=leader_epoch, replica_id=-1
        )
        return found.leader_epoch, found.end_offset

    assert [ask(epoch) for epoch in (1, 2, 3, 4, 5, 6, 0)] == [
        (1, 2), (1, 2), (3, 3), (3, 3), (5, 3), (-1, -1), (0, 0),
    ]  # fmt: skip
    with pytest.raises(FencedLeaderEpoch):
        ask(1, 4)
    with pytest.raises(UnknownLeaderEpoch):
        ask(1, 6)
    epochs.order(leader=2, epoch=6, replicas=[1, 2])
    with pytest.raises(NotLeaderOrFollower):
        ask(1, 6)


# -- DeleteRecords -----------------------------------------------------------------------------


def test_delete_records_moves_the_start_and_waits_for_the_followers(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    for value in "abc":
        result_of(broker.produce(value))
    for start in (0, 0):
        broker.fetch(fetch_request({T0: 3}, replica_id=2, log_start_offset=start), 12)
        broker.fetch(fetch_request({T0: 0}, replica_id=3, log_start_offset=start), 12)
    waiting = broker.replicas.delete_records({T0: 2}, timeout_ms=500)
    assert isinstance(waiting, Deferred) and broker.log().log_start_offset == 2
    broker.fetch(fetch_request({T0: 3}, replica_id=2, log_start_offset=2), 12)
    broker.clock.run_soon()
    assert not waiting.called
    broker.know(1, 2)  # the third one died
    broker.clock.run_soon()
    assert result_of(waiting) == {T0: (2, NONE)}


def test_delete_records_times_out_for_each_partition(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a"))
    broker.fetch(fetch_request({T0: 1}, replica_id=2, log_start_offset=0), 12)
    waiting = broker.replicas.delete_records({T0: -1, T1: 0}, timeout_ms=500)
    assert isinstance(waiting, Deferred)
    broker.clock.advance(1)
    assert result_of(waiting) == {
        T0: (0, RequestTimedOut.code),
        T1: (-1, UnknownTopicOrPartition.code),
    }


def test_delete_records_on_a_single_replica_is_done_at_once(broker: Broker) -> None:
    broker.lead()
    result_of(broker.produce("a", "b"))
    assert broker.replicas.delete_records({T0: -1}, timeout_ms=500) == {T0: (2, NONE)}
    assert broker.read(2).log_start_offset == 2
    for bad in (3, -2):
        result = broker.replicas.delete_records({T0: bad}, timeout_ms=500)
        assert result == {T0: (-1, OffsetOutOfRange.code)}


def test_delete_records_needs_the_policy_and_an_ordinary_topic(broker: Broker) -> None:
    internal = TopicPartition("__transaction_state", 0)
    broker.lead()
    log = broker.log()
    log.update_config(log.config.with_overrides({"cleanup.policy": "compact"}))
    answer = broker.replicas.delete_records({T0: 0, internal: 0}, timeout_ms=500)
    assert answer == {T0: (-1, PolicyViolation.code), internal: (-1, 17)}


def test_delete_records_learns_of_a_lost_leadership(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a"))
    broker.fetch(fetch_request({T0: 1}, replica_id=2, log_start_offset=0), 12)
    waiting = broker.replicas.delete_records({T0: 1}, timeout_ms=500)
    assert isinstance(waiting, Deferred)
    broker.order(leader=2, epoch=1, replicas=[1, 2])
    assert result_of(waiting) == {T0: (-1, NotLeaderOrFollower.code)}


def test_topic_id_constant_is_what_requests_carry() -> None:
    request = fetch_request({T0: 0}, by_id=True)
    raw = request.encode(17)
    assert FetchRequest.decode(raw, 17).topics[0].topic_id == TOPIC_ID
