"""Appending as leader: acks, min ISR, the wait for the high watermark (reference: replication 5, 7)."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.values import AppendEntry
from kafkalike.errors import (
    NONE,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from kafkalike.messages.fetch import FetchResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of

from .support import T0, Broker, batch, contents, fetch_request

T1 = TopicPartition("t", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, 3)
    return broker


def set_min_isr(broker: Broker, count: int, key: TopicPartition = T0) -> None:
    log = broker.log(key)
    log.update_config(log.config.with_overrides({"min.insync.replicas": str(count)}))


def follow(broker: Broker, replica: int, offset: int, key: TopicPartition = T0) -> Any:
    """A fetch of a follower, answered at once."""
    return broker.fetch(fetch_request({key: offset}, replica_id=replica), 12)


def note(result: object, order: list[str], who: str) -> None:
    order.append(who)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_single_replica_is_answered_without_waiting(broker: Broker, acks: int) -> None:
    broker.lead()
    results = broker.replicas.append(
        [AppendEntry(T0, batch("a", "b"))], required_acks=acks, timeout_ms=0
    )
    assert isinstance(results, list)
    (result,) = results
    assert (result.error_code, result.base_offset, result.last_offset) == (NONE, 0, 1)
    assert (result.log_append_time_ms, result.log_start_offset) == (-1, 0)
    assert broker.log().high_watermark == 2


def test_leader_epoch_is_stamped_into_every_batch(broker: Broker) -> None:
    broker.lead(epoch=3)
    result_of(broker.produce("a"))
    broker.lead(epoch=9)
    result_of(broker.produce("b"))
    assert contents(broker.log()) == [(0, 3, "a"), (1, 9, "b")]


def test_acks_1_does_not_wait_for_followers_and_ignores_min_isr(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1])
    set_min_isr(broker, 2)
    for acks in (0, 1):
        assert result_of(broker.produce("a", acks=acks)).error_code == NONE
    assert broker.log().log_end_offset == 2


def test_acks_all_under_min_isr_writes_nothing(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1])
    set_min_isr(broker, 2)
    assert result_of(broker.produce("a", acks=-1)).error_code == NotEnoughReplicas.code
    assert broker.log().log_end_offset == 0


def test_min_isr_counts_at_most_the_assigned_replicas(broker: Broker) -> None:
    broker.lead(replicas=[1], isr=[1])
    set_min_isr(broker, 4)
    assert result_of(broker.produce("a", acks=-1)).error_code == NONE


def test_acks_all_waits_for_every_in_sync_replica(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2, 3])
    waiting = broker.produce("a", "b", acks=-1)
    for replica, offset in ((2, 0), (3, 0), (2, 2), (3, 1)):
        follow(broker, replica, offset)
        broker.clock.run_soon()
        assert not waiting.called
    follow(broker, 3, 2)
    broker.clock.run_soon()
    result = result_of(waiting)
    assert (result.error_code, result.base_offset, result.last_offset) == (NONE, 0, 1)
    assert broker.log().high_watermark == 2


def test_acknowledgement_comes_before_the_fetchers_are_served(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    order: list[str] = []
    for number in range(3):
        consumer = broker.fetch(fetch_request({T0: 0}, max_wait_ms=1000), 12)
        assert isinstance(consumer, Deferred)
        consumer.addCallback(note, order, f"consumer {number}")
    broker.produce("a", acks=-1).addCallback(note, order, "producer")
    follow(broker, 2, 0)
    follow(broker, 2, 1)
    assert order == []
    broker.clock.run_soon()
    assert order == ["producer", "consumer 0", "consumer 1", "consumer 2"]


def test_waiters_are_not_served_inside_the_append(broker: Broker) -> None:
    broker.lead()
    consumer = broker.fetch(fetch_request({T0: 0}, max_wait_ms=1000), 12)
    assert isinstance(consumer, Deferred)
    result_of(broker.produce("a"))
    assert not consumer.called
    broker.clock.run_soon()
    assert consumer.called


def test_timeout_answers_and_keeps_the_data(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = broker.produce("a", acks=-1, timeout_ms=500)
    broker.clock.advance(0.4)
    assert not waiting.called
    broker.clock.advance(0.2)
    assert result_of(waiting).error_code == RequestTimedOut.code
    assert broker.log().log_end_offset == 1
    assert broker.metrics.value("kafka.server", "DelayedProduceMetrics", "ExpiresPerSec") == 1


def test_whoever_waits_is_let_go_before_the_broker_stops(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = broker.produce("a", acks=-1, timeout_ms=30_000)
    broker.clock.advance(0.1)
    assert not waiting.called
    broker.replicas.release_waiting()
    broker.clock.run_soon()
    assert result_of(waiting).error_code == RequestTimedOut.code
    assert broker.log().log_end_offset == 1


def test_timeout_zero_answers_at_once(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    assert result_of(broker.produce("a", acks=-1, timeout_ms=0)).error_code == RequestTimedOut.code


def test_isr_that_shrank_after_the_append_is_told(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    set_min_isr(broker, 1)
    waiting = broker.produce("a", acks=-1)
    set_min_isr(broker, 2)
    broker.log().update_high_watermark(1)
    partition = broker.partition()
    partition.isr = (1,)
    broker.replicas._wakeups.changed(partition, 2)
    broker.clock.run_soon()
    assert result_of(waiting).error_code == NotEnoughReplicasAfterAppend.code


def test_a_pending_expansion_counts_for_the_answer_after_the_append(broker: Broker) -> None:
    """The *maximal* ISR counts after the append, the committed one before it."""
    broker.lead(replicas=[1, 2], isr=[1])
    result_of(broker.produce("a"))
    follow(broker, 2, 1)
    assert broker.partition().maximal_isr == (1, 2) and broker.partition().isr == (1,)
    waiting = broker.produce("b", acks=-1)
    broker.clock.run_soon()
    assert not waiting.called  # the follower that may be in the ISR already has not got it
    set_min_isr(broker, 2)
    partition = broker.partition()
    follow(broker, 2, 2)
    assert broker.log().high_watermark == 1  # frozen: the committed ISR is under min ISR
    set_min_isr(broker, 1)
    follow(broker, 2, 2)
    assert partition._try_advance_high_watermark()
    broker.replicas._wakeups.changed(partition, 2)
    broker.clock.run_soon()
    assert result_of(waiting).error_code == NONE


def test_each_partition_is_done_by_itself_and_all_are_answered_together(broker: Broker) -> None:
    broker.lead(T0, replicas=[1, 2], isr=[1, 2])
    broker.lead(T1, replicas=[1, 2], isr=[1, 2])
    unknown = TopicPartition("t", 7)
    waiting = broker.replicas.append(
        [AppendEntry(key, batch("a")) for key in (T0, unknown, T1)],
        required_acks=-1,
        timeout_ms=500,
    )
    assert isinstance(waiting, Deferred)
    follow(broker, 2, 1, T0)
    broker.clock.run_soon()
    assert not waiting.called
    broker.clock.advance(1)
    results = result_of(waiting)
    assert [(r.topic_partition, r.error_code) for r in results] == [
        (T0, NONE),
        (unknown, UnknownTopicOrPartition.code),
        (T1, RequestTimedOut.code),
    ]


def test_all_failed_does_not_wait(broker: Broker) -> None:
    results = broker.replicas.append(
        [AppendEntry(T0, batch("a"))], required_acks=-1, timeout_ms=500
    )
    assert isinstance(results, list)
    assert results[0].error_code == UnknownTopicOrPartition.code


def test_errors_before_the_log(broker: Broker) -> None:
    broker.lead(replicas=[1, 2])
    internal = TopicPartition("__consumer_offsets", 0)
    broker.lead(internal)
    assert result_of(broker.produce("a", acks=2)).error_code == InvalidRequiredAcks.code
    assert result_of(broker.produce("a", to=internal)).error_code == InvalidTopicException.code
    for allowed in ({"internal_topics_allowed": True}, {"origin": "coordinator"}):
        results = broker.replicas.append(
            [AppendEntry(internal, batch("a"))],
            required_acks=1,
            timeout_ms=0,
            **allowed,
        )
        assert isinstance(results, list) and results[0].error_code == NONE
    broker.order(leader=2, epoch=1, replicas=[1, 2])
    assert result_of(broker.produce("a")).error_code == NotLeaderOrFollower.code
    assert result_of(broker.produce("a", to=T1)).error_code == UnknownTopicOrPartition.code
    broker.know(1, 2, partitions=[T1])
    assert result_of(broker.produce("a", to=T1)).error_code == NotLeaderOrFollower.code


def test_error_of_the_log_carries_its_text(broker: Broker) -> None:
    broker.lead()
    result = result_of(broker.produce("x" * 2_000_000))
    assert result.error_code == MessageTooLarge.code
    assert result.error_message is not None and "max" in result.error_message
    assert (result.base_offset, result.log_start_offset) == (-1, -1)


def test_broken_disk_takes_the_directory_offline(broker: Broker) -> None:
    """KAFKA-10778: nothing is appended after an error of the disk."""
    broker.lead()
    broker.lead(T1)
    assert result_of(broker.produce("a")).error_code == NONE
    path = broker.log().parent_dir
    log = broker.log()
    log.roll()
    broker.logs.disk.broken.add(path)
    log.directory.fail(OSError("broken"))  # type: ignore[arg-type]
    for key in (T0, T1):
        assert result_of(broker.produce("b", to=key)).error_code == KafkaStorageError.code
    assert broker.failed_dirs == [path]
    assert [c.kind for c in broker.changes][-2:] == ["offline", "offline"]


def test_duplicate_of_an_idempotent_producer_waits_for_its_first_copy(broker: Broker) -> None:
    """I7: a retry is acknowledged only once the original is replicated."""
    broker.lead(replicas=[1, 2], isr=[1, 2])
    identity = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first = broker.produce("a", acks=-1, producer=identity)
    again = broker.produce("a", acks=-1, producer=identity)
    assert not again.called and broker.log().log_end_offset == 1
    follow(broker, 2, 1)
    broker.clock.run_soon()
    assert result_of(first).base_offset == result_of(again).base_offset == 0


def test_flush_messages_waits_for_the_device(broker: Broker) -> None:
    broker.lead()
    log = broker.log()
    log.update_config(log.config.with_overrides({"flush.messages": "1"}))
    flushed: Deferred[None] = Deferred()
    broker.logs.flush = lambda log: flushed  # type: ignore[method-assign]
    waiting = broker.produce("a")
    assert not waiting.called
    flushed.callback(None)
    assert result_of(waiting).error_code == NONE


def test_flush_that_fails_is_no_success(broker: Broker) -> None:
    broker.lead()
    log = broker.log()
    log.update_config(log.config.with_overrides({"flush.messages": "1"}))
    flushed: Deferred[None] = Deferred()
    broker.logs.flush = lambda log: flushed  # type: ignore[method-assign]
    waiting = broker.produce("a")
    flushed.errback(KafkaStorageError())
    assert result_of(waiting).error_code == KafkaStorageError.code


# -- the high watermark ------------------------------------------------------------------------


def test_high_watermark_is_frozen_under_min_isr(broker: Broker) -> None:
    """KAFKA-15583, KIP-966."""
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    set_min_isr(broker, 2)
    result_of(broker.produce("a"))
    follow(broker, 2, 1)
    assert broker.log().high_watermark == 1
    broker.lead(epoch=1, replicas=[1, 2, 3], isr=[1])
    result_of(broker.produce("b"))
    follow(broker, 2, 2)
    assert broker.log().high_watermark == 1


def test_high_watermark_waits_for_a_caught_up_follower_outside_the_isr(broker: Broker) -> None:
    """Otherwise a follower could chase a moving high watermark for ever."""
    broker.lead(replicas=[1, 2, 3], isr=[1])
    partition = broker.partition()
    follow(broker, 2, 0)  # at the end: caught up now
    partition.proposal = None  # the controller refused it
    result_of(broker.produce("a"))
    assert broker.log().high_watermark == 0
    broker.know(1, 3)  # it died
    assert result_of(broker.produce("b")).error_code == NONE
    assert broker.log().high_watermark == 2


def test_high_watermark_never_moves_back_on_the_leader(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a", "b"))
    follow(broker, 2, 2)
    assert broker.log().high_watermark == 2
    follow(broker, 2, 0)  # the follower lost its disk and starts over
    assert broker.log().high_watermark == 2


def test_unknown_follower_in_the_isr_holds_the_high_watermark(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    result_of(broker.produce("a"))
    assert broker.log().high_watermark == 0


def test_a_fetch_older_than_the_partition_does_not_hold_up_its_first_records(
    broker: Broker,
) -> None:
    """A follower's fetch waits at the leader; meanwhile the leader gets a partition more."""
    broker.lead(isr=(1, 2), replicas=(1, 2))
    first = follow(broker, 2, 0)
    assert not isinstance(first, Deferred)

    def fetch(offsets: dict[TopicPartition, int]) -> Any:
        request = fetch_request(offsets, replica_id=2, max_wait_ms=500, log_start_offset=0)
        return broker.fetch(request, 12)

    waiting = fetch({T0: 0})
    assert isinstance(waiting, Deferred)
    broker.lead(T1, isr=(1, 2), replicas=(1, 2))
    answer = broker.replicas.append(
        [AppendEntry(T1, batch("a"))], required_acks=-1, timeout_ms=1000
    )
    assert isinstance(answer, Deferred)
    broker.clock.advance(0.001)
    assert waiting.called, "the next fetch can have the new partition in it"
    assert not isinstance(fetch({T0: 0, T1: 0}), Deferred)
    # It has fetched in this epoch: whoever waits for it now waits for records.
    waiting = fetch({T0: 0, T1: 1})
    broker.replicas.append([AppendEntry(T1, batch("b"))], required_acks=-1, timeout_ms=1000)
    assert isinstance(waiting, Deferred)


# -- a follower that left the ISR --------------------------------------------------------------


def idle_followers(broker: Broker) -> None:
    """Both follow in sessions that have nothing to say of the partition."""
    for replica in (2, 3):
        opened = broker.fetch(fetch_request({T0: 0}, replica_id=replica, session=(0, 0)), 12)
        assert isinstance(opened, FetchResponse)
        broker.fetch(fetch_request({}, replica_id=replica, session=(opened.session_id, 1)), 12)


def test_follower_that_left_before_the_epoch_holds_nobody_up(broker: Broker) -> None:
    """Its last fetch, credited when the partition changes, belongs to the epoch before."""
    broker.lead(replicas=[1, 2, 3], isr=[1, 2, 3])
    idle_followers(broker)
    broker.clock.advance(1)
    broker.lead(replicas=[1, 2, 3], isr=[1, 2], epoch=1, partition_epoch=1)
    waiting = broker.produce("a", acks=-1, timeout_ms=30_000)
    follow(broker, 2, 0)
    follow(broker, 2, 1)
    broker.clock.advance(0)
    assert result_of(waiting).error_code == NONE
