"""The follower's fetch loop: requests, every answer, truncation (reference: replication 13)."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.follower import fetcher_index, truncation_target
from kafkalike.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock

from .support import T0, TOPIC_ID, Broker, PartitionData, Wire, batch, contents

T1 = TopicPartition("t", 1)


class ScriptedLeader:
    """Broker 2: keeps every request until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, int, Deferred[Any]]] = []

    def serve(self, request: Any, version: int) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        self.asked.append((request, version, result))
        return result


class World:
    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.wire = Wire()
        self.broker = Broker(1, root, self.clock, wire=self.wire)
        self.leader = ScriptedLeader()
        self.wire.brokers[2] = self.leader  # type: ignore[assignment]
        self.broker.know(1, 2, 3)

    def follow(self, key: TopicPartition = T0, epoch: int = 1, **fields: Any) -> None:
        assert self.broker.order(key, leader=2, epoch=epoch, replicas=[1, 2], **fields) == 0
        self.settle()

    def write(self, epoch: int, *values: str) -> None:
        """Records that this replica holds already."""
        partition = self.broker.partition()
        for value in values:
            record = batch(
                value,
                base_offset=self.broker.log().log_end_offset,
                partition_leader_epoch=epoch,
            )
            partition.append_as_follower(record, 0, 0)

    def settle(self) -> None:
        self.clock.advance(0)
        while self.wire.queue:
            self.wire.queue.popleft()()
            self.clock.advance(0)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    @property
    def request(self) -> FetchRequest:
        """The Fetch that waits for an answer."""
        ((request, _, _),) = self.leader.asked
        assert isinstance(request, FetchRequest)
        return request

    @property
    def position(self) -> tuple[int, int, int, int]:
        """What it says of the one partition: offset, log start, leader epoch, last epoch."""
        ((partition,),) = [topic.partitions for topic in self.request.topics]
        return (
            partition.fetch_offset,
            partition.log_start_offset,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )

    def reply(self, message: Any) -> None:
        _, _, result = self.leader.asked.pop(0)
        result.callback(message)
        self.settle()

    def answer(self, *, session: int = 7, top: int = 0, **fields: Any) -> None:
        """Answer the Fetch for partition 0; without fields: nothing new."""
        partitions = [partition_data(**fields)] if fields or self.request.topics else []
        self.reply(
            FetchResponse(
                error_code=top,
                session_id=session,
                responses=[topic_data(partitions)] if partitions and not top else [],
            )
        )

    @property
    def failed(self) -> set[TopicPartition]:
        return self.broker.replicas.fetchers.failed_partitions


def partition_data(
    *,
    index: int = 0,
    code: int = 0,
    records: bytes | bytearray = b"",
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    data = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=bytes(records),
    )
    if diverging is not None:
        data.diverging_epoch = PartitionData.EpochEndOffset(
            epoch=diverging[0], end_offset=diverging[1]
        )
    return data


def topic_data(
    partitions: list[PartitionData], name: str = "t"
) -> FetchResponse.FetchableTopicResponse:
    return FetchResponse.FetchableTopicResponse(
        topic=name, topic_id=TOPIC_ID, partitions=partitions
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- requests ----------------------------------------------------------------------------------


def test_first_request(world: World) -> None:
    world.follow(epoch=4)
    ((request, version, _),) = world.leader.asked
    assert version == 17
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, 0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 100)
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    (partition,) = topic.partitions
    assert partition.partition_max_bytes == 1 << 20
    assert world.position == (0, 0, 4, -1)


def test_position_says_what_the_log_holds(world: World) -> None:
    world.follow(epoch=1)
    world.answer(records=batch("a", "b", partition_leader_epoch=1), high_watermark=2, log_start=1)
    assert world.position == (2, 1, 1, 1)


def test_records_are_appended_as_they_are_and_offsets_follow(world: World) -> None:
    world.follow(epoch=5)
    world.answer(
        records=batch("a", partition_leader_epoch=2)
        + batch("b", base_offset=1, partition_leader_epoch=5),
        high_watermark=1,
    )
    assert contents(world.broker.log()) == [(0, 2, "a"), (1, 5, "b")]
    assert world.broker.log().leader_epochs == [(2, 0), (5, 1)]
    assert world.broker.log().high_watermark == 1
    assert world.position == (2, 0, 5, 5)
    assert (world.request.session_id, world.request.session_epoch) == (7, 1)


def test_incremental_requests_name_only_what_moved(world: World) -> None:
    world.follow(T0)
    world.answer()
    world.follow(T1)
    assert world.request.topics == []
    world.answer()
    ((partition,),) = [topic.partitions for topic in world.request.topics]
    assert partition.partition == 1
    world.reply(FetchResponse(session_id=7, responses=[topic_data([partition_data(index=1)])]))
    assert world.request.topics == [] and world.request.session_epoch == 3


def test_partial_batch_at_the_end_is_left_for_later(world: World) -> None:
    world.follow()
    world.answer(records=batch("a") + batch("b", base_offset=1)[:-3])
    assert world.position[0] == 1


def test_high_watermark_is_bounded_by_the_own_end_and_may_go_down(world: World) -> None:
    world.follow()
    world.answer(records=batch("a", "b"), high_watermark=9)
    assert world.broker.log().high_watermark == 2
    world.answer(high_watermark=1)
    assert world.broker.log().high_watermark == 1


def test_log_start_follows_the_leader(world: World) -> None:
    world.follow()
    world.answer(records=batch("a", "b"), high_watermark=2, log_start=2)
    assert world.broker.log().log_start_offset == 2
    assert world.position[:2] == (2, 2)
    world.answer(high_watermark=2, log_start=1)
    assert world.broker.log().log_start_offset == 2


def test_empty_log_takes_a_batch_that_its_start_lies_inside(world: World) -> None:
    world.follow()
    world.broker.partition().truncate_fully_and_start_at(2)
    world.broker.replicas.fetchers.remove([T0])
    world.broker.replicas.fetchers.add([world.broker.partition()])
    world.answer()
    assert world.position[0] == 2
    world.answer(records=batch("a", "b", "c", "d"), high_watermark=4, log_start=2)
    assert contents(world.broker.log()) == [(0, -1, "a"), (1, -1, "b"), (2, -1, "c"), (3, -1, "d")]
    assert world.position[0] == 4


def test_consumers_of_this_follower_are_woken(world: World) -> None:
    from .support import fetch_request, values_of

    world.follow()
    waiting = world.broker.fetch(fetch_request({T0: 0}, max_wait_ms=500), 12)
    assert isinstance(waiting, Deferred)
    world.answer(records=batch("a"), high_watermark=1)
    found: list[FetchResponse] = []
    waiting.addCallback(found.append)
    assert values_of(found[0].responses[0].partitions[0].records or b"") == ["a"]


def test_flush_messages_holds_back_the_next_fetch(world: World) -> None:
    """What the leader may count as replicated is on this replica's device."""
    world.follow()
    log = world.broker.log()
    log.update_config(log.config.with_overrides({"flush.messages": "1"}))
    flushed: Deferred[None] = Deferred()
    world.broker.replicas.fetchers.flush = lambda log: flushed
    world.answer(records=batch("a"))
    request = world.request
    assert request.topics == [] and request.forgotten_topics_data[0].partitions == [0]
    world.answer(session=0)
    world.advance(5)
    assert world.leader.asked == []
    flushed.callback(None)
    world.settle()
    assert world.position[0] == 1


def test_a_fetch_without_those_that_flush_or_pause_comes_back_for_them(world: World) -> None:
    """It would else wait at the leader for its full time while they have something to fetch."""
    world.follow(T0)
    world.follow(T1)
    world.answer()
    log = world.broker.log(T0)
    log.update_config(log.config.with_overrides({"flush.messages": "1"}))
    flushed: Deferred[None] = Deferred()
    world.broker.replicas.fetchers.flush = lambda log: flushed
    usual_ms = world.request.max_wait_ms
    world.answer(records=batch("a"))
    assert world.request.forgotten_topics_data[0].partitions == [0]
    assert 0 < world.request.max_wait_ms <= 20 < usual_ms
    flushed.callback(None)
    world.answer()
    assert [p.fetch_offset for t in world.request.topics for p in t.partitions] == [1]
    assert world.request.max_wait_ms == usual_ms
    world.answer(code=NotLeaderOrFollower.code)
    assert world.request.forgotten_topics_data[0].partitions == [0]
    assert 0 < world.request.max_wait_ms <= 20


# -- the version without topic ids -------------------------------------------------------------


def test_partition_without_id_is_fetched_by_name(world: World) -> None:
    world.follow(T0, topic_id=bytes(16))
    ((request, version, _),) = world.leader.asked
    assert version == 12
    assert (request.replica_id, request.topics[0].topic) == (1, "t")


def test_change_of_mode_opens_the_session_anew(world: World) -> None:
    world.follow(T0)
    world.answer()
    world.answer()
    world.broker.order(T0, leader=2, epoch=1, replicas=[1, 2], topic_id=bytes(16))
    world.answer()
    ((request, version, _),) = world.leader.asked
    assert (version, request.session_id, request.session_epoch) == (12, 7, 0)
    assert request.topics[0].topic == "t"


def test_id_that_came_later_replaces_the_partition_in_the_session(world: World) -> None:
    world.follow(T0, topic_id=bytes(16))
    world.answer()
    world.broker.log().topic_id = TOPIC_ID
    world.follow(T0, epoch=2)
    world.answer()
    ((request, version, _),) = world.leader.asked
    assert (version, request.session_epoch) == (17, 0)


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        UnknownLeaderEpoch,
        NotLeaderOrFollower,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InconsistentTopicId,
        KafkaStorageError,
        UnknownServerError,
    ],
)
def test_passing_errors_back_off(world: World, error: type[Exception]) -> None:
    world.follow()
    world.answer(code=error.code)  # type: ignore[attr-defined]
    request = world.request
    assert request.topics == []
    assert [f.partitions for f in request.forgotten_topics_data] == [[0]]
    world.answer(session=0)
    # A leader that is about to learn of its role is asked again soon, one that is not less and less.
    for pause in (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0):
        assert world.leader.asked == []
        world.advance(pause * 0.9)
        assert world.leader.asked == []
        world.advance(pause * 0.2)
        assert world.position == (0, 0, 1, -1)
        world.answer(code=error.code)  # type: ignore[attr-defined]
        world.answer(session=0)
    assert world.failed == set()


def test_corrupt_records_back_off_and_nothing_is_written(world: World) -> None:
    world.follow()
    bad = batch("a")
    bad[-1] ^= 1
    world.answer(records=bad, high_watermark=1)
    assert world.broker.log().log_end_offset == 0
    assert world.failed == set()
    world.answer(session=0)
    world.advance(1.1)
    world.answer(records=batch("a"))
    assert world.broker.log().log_end_offset == 1


def test_fenced_in_the_epoch_asked_with_fails_until_the_next_order(world: World) -> None:
    world.follow(epoch=1)
    world.answer(code=FencedLeaderEpoch.code)
    assert world.failed == {T0}
    world.answer(session=0)
    world.advance(10)
    assert world.leader.asked == []
    world.follow(epoch=2)
    assert world.failed == set()
    assert world.position == (0, 0, 2, -1)


def test_records_that_do_not_follow_the_log_fail(world: World) -> None:
    world.follow()
    world.answer(records=batch("a"))
    world.answer(records=batch("x"))  # the leader starts again at 0
    assert world.failed == {T0}
    assert contents(world.broker.log()) == [(0, -1, "a")]


def test_log_that_moved_under_the_fetch_fails(world: World) -> None:
    world.follow()
    world.write(1, "a")
    world.answer(records=batch("b"))
    assert world.failed == {T0}
    assert contents(world.broker.log()) == [(0, 1, "a")]


def test_broken_directory_ends_the_following(world: World) -> None:
    world.follow()
    world.broker.log().directory.fail(OSError("disk"))  # type: ignore[arg-type]
    world.answer(records=batch("a"))
    assert world.broker.replicas.partition(T0) is None
    assert world.broker.failed_dirs != []
    assert world.failed == set()


def test_lost_connection_backs_off_everything_and_opens_the_session_anew(world: World) -> None:
    world.follow(T0)
    world.answer()
    world.answer()
    world.wire.cut.add(frozenset((1, 2)))
    world.answer()
    assert world.leader.asked == []
    world.wire.cut.clear()
    world.advance(0.5)
    assert world.leader.asked == []
    world.advance(0.6)
    assert (world.request.session_id, world.request.session_epoch) == (7, 0)
    assert world.position[0] == 0


@pytest.mark.parametrize(
    ("error", "session"),
    [
        (FetchSessionIdNotFound, (0, 0)),
        (InvalidFetchSessionEpoch, (7, 0)),
        (FetchSessionTopicIdError, (7, 0)),
        (UnknownServerError, (7, 0)),
    ],
)
def test_session_errors_open_it_anew(
    world: World, error: type[Exception], session: tuple[int, int]
) -> None:
    world.follow()
    world.answer()
    world.answer(top=error.code)  # type: ignore[attr-defined]
    assert (world.request.session_id, world.request.session_epoch) == session
    assert world.position[0] == 0
    world.answer(top=error.code)  # type: ignore[attr-defined]
    assert world.leader.asked == []  # again: not without a pause
    world.advance(1.1)
    assert world.position[0] == 0


def test_full_answer_that_leaves_out_a_partition_is_not_used(world: World) -> None:
    world.broker.order(T0, leader=2, epoch=1, replicas=[1, 2])
    world.follow(T1)
    world.answer(records=batch("a"))
    assert world.broker.log(T0).log_end_offset == 0
    assert world.request.session_epoch == 0


def test_leader_without_room_for_a_session_is_asked_for_everything_each_time(
    world: World,
) -> None:
    world.follow()
    for end in range(3):
        assert world.position[0] == end
        assert (world.request.session_id, world.request.session_epoch) == (0, 0)
        world.answer(session=0, records=batch("a", base_offset=end))


# -- answers that come too late ----------------------------------------------------------------


@pytest.mark.parametrize("in_session", [False, True])
def test_kafka_7786_answer_for_an_older_epoch_changes_nothing(
    world: World, in_session: bool
) -> None:
    world.follow(epoch=1)
    if in_session:
        world.answer()
    world.broker.order(leader=2, epoch=2, replicas=[1, 2])
    world.answer(records=batch("a"), high_watermark=1)
    assert world.broker.log().log_end_offset == 0
    assert world.position == (0, 0, 2, -1)


def test_kafka_13141_answer_with_diverging_epoch_for_an_older_epoch_changes_nothing(
    world: World,
) -> None:
    world.follow(epoch=1)
    world.write(1, "a")
    world.broker.replicas.fetchers.remove([T0])
    world.broker.replicas.fetchers.add([world.broker.partition()])
    world.answer()
    world.answer()  # now in a session, whose answers need not be complete
    world.broker.order(leader=2, epoch=2, replicas=[1, 2])
    world.answer(diverging=(0, 0))
    assert world.broker.log().log_end_offset == 1


def test_answer_after_becoming_leader_changes_nothing(world: World) -> None:
    """KAFKA-13207."""
    world.follow(epoch=1)
    world.broker.lead(epoch=2, replicas=[1, 2], isr=[1])
    world.answer(records=batch("a"), high_watermark=1)
    assert world.broker.log().log_end_offset == 0
    assert world.broker.partition().is_leader


def test_answer_after_the_stop_changes_nothing(world: World) -> None:
    world.follow()
    world.broker.replicas.stop()
    world.answer(records=batch("a"))
    assert world.broker.log().log_end_offset == 0
    world.advance(10)
    assert world.leader.asked == []


def test_same_epoch_again_keeps_the_position(world: World) -> None:
    world.follow()
    world.answer(records=batch("a"))
    world.broker.replicas.fetchers.add([world.broker.partition()])
    world.settle()
    assert world.position[0] == 1
    assert len(world.leader.asked) == 1


# -- truncation --------------------------------------------------------------------------------


def two_epochs(world: World) -> None:
    """A log with epoch 1: a, b; epoch 3: c, d; the leader's epoch is 5."""
    world.follow(epoch=1)
    world.write(1, "a", "b")
    world.write(3, "c", "d")
    world.answer()
    world.leader.asked.clear()
    world.broker.order(leader=2, epoch=5, replicas=[1, 2])
    fetchers = world.broker.replicas.fetchers
    fetchers.remove([T0])
    fetchers.stop_idle()
    fetchers.add([world.broker.partition()])
    world.settle()
    assert world.position == (4, 0, 5, 3)


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [
        ((3, 3), (3, 0, 5, 3)),  # the same epoch, shorter there
        ((2, 2), (2, 0, 5, 1)),  # an epoch we do not know: cut to the end of the one before
        ((2, 3), (2, 0, 5, 1)),  # although it is longer: what we have there is of another one
        ((1, 1), (1, 0, 5, 1)),
        ((1, 9), (2, 0, 5, 1)),  # longer there than here
        ((0, 0), (0, 0, 5, -1)),
    ],
    ids=str,
)
def test_diverging_epoch_truncates_to_the_fork(
    world: World, diverging: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    """KIP-101, KIP-279, KIP-595."""
    two_epochs(world)
    world.answer(diverging=diverging)
    assert world.position == expected
    assert world.broker.log().log_end_offset == expected[0]


def test_kafka_14704_diverging_answer_does_not_move_high_watermark_or_log_start(
    world: World,
) -> None:
    two_epochs(world)
    world.answer(diverging=(3, 3), high_watermark=3, log_start=2)
    assert world.broker.log().high_watermark == 0
    assert world.broker.log().log_start_offset == 0


def test_truncation_below_the_high_watermark_is_reported_as_a_loss(world: World) -> None:
    two_epochs(world)
    world.answer(high_watermark=4)
    assert world.broker.log().high_watermark == 4
    world.answer(diverging=(1, 1))
    assert world.broker.log().high_watermark == 1
    (loss,) = world.broker.losses
    assert (loss.topic_partition, loss.first_offset, loss.end_offset) == (T0, 1, 4)
    assert (loss.old_leader_epoch, loss.new_leader_epoch) == (3, 5)
    assert loss.bytes == 3 * len(batch("b")) and loss.producer_ids == ()
    assert loss.log_end_offset == 4
    ends = [(c.kind, c.high_watermark, c.log_end_offset) for c in world.broker.changes[-2:]]
    assert ends == [("truncating", 4, 4), ("truncated", 1, 1)]


def test_records_that_the_leaders_retention_removed_are_no_loss(world: World) -> None:
    two_epochs(world)
    world.answer(high_watermark=4)
    partition = world.broker.partition()
    partition.truncate_fully_and_start_at(100)
    assert world.broker.losses == []
    ends = [(c.kind, c.log_end_offset) for c in world.broker.changes[-2:]]
    assert ends == [("truncating", 4), ("truncated", 100)]


def test_truncation_above_the_high_watermark_is_no_loss(world: World) -> None:
    two_epochs(world)
    world.answer(diverging=(3, 3))
    assert world.broker.losses == []


def test_epoch_without_records_is_cut_although_the_log_is_not_longer(world: World) -> None:
    """It led for a moment and wrote nothing; the leader never heard of that epoch."""
    world.broker.lead(epoch=4, replicas=[1, 2], isr=[1])
    assert world.broker.log().latest_epoch == 4
    world.follow(epoch=5)
    assert world.position == (0, 0, 5, 4)
    world.answer(diverging=(3, 0))
    assert world.position == (0, 0, 5, -1)


def test_leader_that_objects_without_a_cut_does_not_make_us_spin(world: World) -> None:
    two_epochs(world)
    world.answer(diverging=(3, 9))
    world.answer(session=0)
    assert world.leader.asked == []
    world.advance(1.1)
    assert world.position[0] == 4


def test_log_without_epochs_is_cut_to_the_high_watermark(world: World) -> None:
    """Nothing says what of it the leader has."""
    world.follow(epoch=1)
    world.write(-1, "a", "b", "c")
    world.broker.log().update_high_watermark(1)
    assert world.broker.log().latest_epoch is None
    world.broker.order(leader=2, epoch=2, replicas=[1, 2])
    assert world.broker.log().log_end_offset == 1
    world.answer()
    assert world.position == (1, 0, 2, -1)


def test_undefined_answers(world: World) -> None:
    two_epochs(world)
    log = world.broker.log()
    assert truncation_target(log, 3, -1, -1) == (3, True)
    assert truncation_target(log, 3, -1, 2) == (2, True)
    assert truncation_target(log, 3, -1, 9) == (4, True)
    assert truncation_target(log, 3, 2, 2) == (2, False)


# -- offsets out of range ----------------------------------------------------------------------


def list_offsets(world: World, offset: int, *, timestamp: int, code: int = 0) -> None:
    ((request, version, _),) = world.leader.asked
    assert isinstance(request, ListOffsetsRequest) and version == 9
    partition = request.topics[0].partitions[0]
    assert (request.replica_id, partition.timestamp) == (1, timestamp)
    answer = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[])
    answer.partitions.append(
        answer.ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=code)
    )
    world.reply(ListOffsetsResponse(topics=[answer]))


def test_leader_that_ends_before_us_truncates_us(world: World) -> None:
    two_epochs(world)
    world.answer(code=OffsetOutOfRange.code)
    list_offsets(world, 3, timestamp=-1)
    assert world.broker.log().log_end_offset == 3
    assert world.position == (3, 0, 5, 3)


def test_leader_that_starts_after_our_end_makes_us_start_over(world: World) -> None:
    two_epochs(world)
    world.answer(code=OffsetOutOfRange.code)
    list_offsets(world, 20, timestamp=-1)
    list_offsets(world, 10, timestamp=-2)
    log = world.broker.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (10, 10, 10)
    assert world.position == (10, 10, 5, -1)


def test_leader_that_holds_our_end_is_asked_again_after_a_pause(world: World) -> None:
    two_epochs(world)
    world.answer(code=OffsetOutOfRange.code)
    list_offsets(world, 20, timestamp=-1)
    list_offsets(world, 1, timestamp=-2)
    world.answer(session=0)
    assert world.leader.asked == []
    world.advance(1.1)
    assert world.position[0] == 4
    assert world.broker.log().log_end_offset == 4


def test_an_epoch_that_no_leader_ever_had_is_cut(world: World) -> None:
    """The leader does not know it, so offsets alone lead nowhere: damage that recovery cannot see."""
    two_epochs(world)
    log = world.broker.log()
    end_offset = log.log_end_offset
    log.append_as_follower(batch("x", base_offset=end_offset, partition_leader_epoch=1 << 30))
    world.answer(code=OffsetOutOfRange.code)
    list_offsets(world, 20, timestamp=-1)
    list_offsets(world, 1, timestamp=-2)
    assert log.log_end_offset == end_offset
    world.answer(session=0)
    world.advance(1.1)
    assert world.position[0] == end_offset


def test_role_that_changes_while_asking_for_offsets(world: World) -> None:
    two_epochs(world)
    world.answer(code=OffsetOutOfRange.code)
    world.broker.lead(epoch=6, replicas=[1, 2], isr=[1])
    list_offsets(world, 0, timestamp=-1)
    assert world.broker.log().log_end_offset == 4


@pytest.mark.parametrize(
    ("error", "fails"), [(FencedLeaderEpoch, True), (NotLeaderOrFollower, False)]
)
def test_errors_while_asking_for_offsets(world: World, error: type[Exception], fails: bool) -> None:
    two_epochs(world)
    world.answer(code=OffsetOutOfRange.code)
    list_offsets(world, -1, timestamp=-1, code=error.code)  # type: ignore[attr-defined]
    assert (world.failed == {T0}) == fails
    assert world.broker.log().log_end_offset == 4


# -- loops -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", [1, 0, 3, 2, 1, 0]),
        ("t", [0, 1, 2, 3, 0, 1]),
        ("__consumer_offsets", [3, 2, 1, 0, 3, 2]),
    ],
)
def test_partitions_are_spread_over_the_loops_as_kafka_does(
    topic: str, expected: list[int]
) -> None:
    """abs(31 * topic.hashCode() + partition) % 4, as a JVM computes it."""
    assert [fetcher_index(TopicPartition(topic, n), 4) for n in range(6)] == expected


def test_idle_loop_ends_and_a_new_leader_gets_a_new_one(world: World) -> None:
    world.follow(epoch=1)
    assert world.broker.replicas.fetchers.fetcher_count == 1
    world.broker.order(leader=3, epoch=2, replicas=[1, 2, 3])
    assert world.broker.replicas.fetchers.fetcher_count == 1
    world.broker.lead(epoch=3, replicas=[1, 2], isr=[1])
    assert world.broker.replicas.fetchers.fetcher_count == 0


def test_number_of_loops_can_change(world: World) -> None:
    keys = [TopicPartition("t", number) for number in range(6)]
    for key in keys:
        world.broker.order(key, leader=2, epoch=1, replicas=[1, 2])
    fetchers = world.broker.replicas.fetchers
    assert fetchers.fetcher_count == 1
    fetchers.resize(3)
    assert fetchers.fetcher_count == 3
    followed = [one.topic_partition for f in fetchers._fetchers.values() for one in f.followed()]
    assert sorted(followed) == keys


def test_loop_that_ends_by_a_bug_starts_again(world: World) -> None:
    world.follow()
    _, _, result = world.leader.asked.pop()
    # A bug, as nobody foresees one.
    world.broker.replicas.fetchers._fetchers[(2, 0)]._process = None  # type: ignore[method-assign,assignment]
    result.callback(FetchResponse(session_id=7, responses=[topic_data([partition_data()])]))
    world.settle()
    assert world.leader.asked == []
    del world.broker.replicas.fetchers._fetchers[(2, 0)]._process
    world.advance(1.1)
    world.advance(1.1)
    assert (world.request.session_id, world.request.session_epoch) == (0, 0)
    assert world.position[0] == 0
