"""ISR changes: when they are proposed and what each answer does (reference: replication 6)."""

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.values import AppendResult
from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    OperationNotAttempted,
    StaleBrokerEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import AlterPartitionRequest, AlterPartitionResponse
from kafkalike.messages.fetch import FetchResponse
from kafkalike.net.client import PeerDisconnected
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of

from .support import T0, TOPIC_ID, Broker, fetch_request

T1 = TopicPartition("t", 1)


class ScriptedController:
    """Keeps what was asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[AlterPartitionRequest, Deferred[AlterPartitionResponse]]] = []

    def alter_partition(
        self, source: int, request: AlterPartitionRequest
    ) -> "Deferred[AlterPartitionResponse]":
        assert source == 1
        result: Deferred[AlterPartitionResponse] = Deferred()
        self.asked.append((request, result))
        return result

    def answer(
        self,
        *,
        code: int = NONE,
        top: int = NONE,
        isr: tuple[int, ...] | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        only: int | None = None,
    ) -> None:
        """Answer the oldest request; by default it is accepted as asked."""
        request, result = self.asked.pop(0)
        topics = []
        for topic in request.topics:
            answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=[])
            topics.append(answer)
            for wanted in topic.partitions:
                if only is not None and wanted.partition_index != only:
                    continue
                answer.partitions.append(
                    answer.PartitionData(
                        partition_index=wanted.partition_index,
                        error_code=code,
                        leader_id=1,
                        leader_epoch=(
                            wanted.leader_epoch if leader_epoch is None else leader_epoch
                        ),
                        isr=list(wanted.new_isr if isr is None else isr),
                        partition_epoch=(
                            wanted.partition_epoch + 1
                            if partition_epoch is None
                            else partition_epoch
                        ),
                    )
                )
        result.callback(AlterPartitionResponse(error_code=top, topics=[] if top else topics))


class World:
    def __init__(self, root: Path) -> None:
        self.controller = ScriptedController()
        self.clock = FakeClock()
        self.broker = Broker(1, root, self.clock, controller=self.controller)  # type: ignore[arg-type]
        self.broker.know(1, 2, 3)

    def lead(
        self, isr: tuple[int, ...] = (1, 2, 3), key: TopicPartition = T0, epoch: int = 0
    ) -> None:
        code = self.broker.lead(key, replicas=[1, 2, 3], isr=isr, epoch=epoch, partition_epoch=4)
        assert code == NONE

    def follow(self, replica: int, offset: int, key: TopicPartition = T0) -> None:
        self.broker.fetch(fetch_request({key: offset}, replica_id=replica), 12)
        self.clock.advance(0)

    def produce(self, value: str = "a", key: TopicPartition = T0) -> None:
        assert result_of(self.broker.produce(value, to=key)).error_code == NONE

    def state(self, key: TopicPartition = T0) -> tuple[tuple[int, ...], bool, int]:
        """Committed ISR, whether a change is pending, partition epoch."""
        partition = self.broker.partition(key)
        return partition.isr, partition.proposal is not None, partition.partition_epoch


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- proposing ---------------------------------------------------------------------------------


def test_follower_at_the_high_watermark_is_proposed(world: World) -> None:
    world.lead(isr=(1,))
    world.produce()
    world.follow(2, 0)
    assert world.controller.asked == []
    world.follow(2, 1)
    ((request, _),) = world.controller.asked
    assert (request.broker_id, request.broker_epoch) == (1, 100)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 4)
    assert partition.new_isr == [1, 2] and partition.leader_recovery_state == 0
    assert [(s.broker_id, s.broker_epoch) for s in partition.new_isr_with_epochs] == [
        (1, -1),
        (2, -1),
    ]
    assert world.broker.partition().maximal_isr == (1, 2)
    assert world.state() == ((1,), True, 4)


@pytest.mark.parametrize("version", range(4))
def test_request_fits_every_version_that_a_controller_may_know(world: World, version: int) -> None:
    world.lead(isr=(1,))
    world.follow(2, 0)
    ((request, _),) = world.controller.asked
    again = AlterPartitionRequest.decode(request.encode(version), version)
    (topic,) = again.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, topic.topic_id) == (
        ("t", bytes(16)) if version < 2 else ("", TOPIC_ID)
    )
    replicas = (
        partition.new_isr
        if version < 3
        else [state.broker_id for state in partition.new_isr_with_epochs]
    )
    assert replicas == [1, 2]


def test_kafka_7128_follower_below_epoch_start_stays_out(world: World) -> None:
    """At the high watermark, but the leader's epoch began above: its tail may diverge."""
    world.lead()
    world.produce()
    world.produce()
    world.lead(isr=(1, 2), epoch=1)
    assert (world.broker.log().high_watermark, world.broker.log().log_end_offset) == (0, 2)
    world.follow(3, 1)
    assert world.controller.asked == []
    world.follow(3, 2)
    assert len(world.controller.asked) == 1


def test_dead_follower_is_not_proposed(world: World) -> None:
    """KIP-841, KAFKA-14140."""
    world.lead(isr=(1,))
    world.broker.know(1, 3)
    world.follow(2, 0)
    assert world.controller.asked == []


def test_one_change_at_a_time(world: World) -> None:
    world.lead(isr=(1,))
    world.follow(2, 0)
    world.follow(3, 0)
    assert len(world.controller.asked) == 1
    world.controller.answer()
    assert world.state() == ((1, 2), False, 5)
    world.follow(3, 0)
    ((request, _),) = world.controller.asked
    assert request.topics[0].partitions[0].new_isr == [1, 2, 3]


def test_follower_that_caught_up_while_it_was_dropped_returns_with_its_next_fetch(
    world: World,
) -> None:
    """Its session says nothing of the partition any more, and below min ISR nothing is appended."""
    world.lead()
    log = world.broker.log()
    log.update_config(log.config.with_overrides({"min.insync.replicas": "2"}))
    opened = world.broker.fetch(fetch_request({T0: 0}, replica_id=2, session=(0, 0)), 12)
    assert isinstance(opened, FetchResponse)
    world.produce()
    world.clock.advance(46)
    assert [len(request.topics) for request, _ in world.controller.asked] == [1]
    for epoch, offsets in enumerate(({T0: 1}, {}), start=1):
        again = fetch_request(offsets, replica_id=2, session=(opened.session_id, epoch))
        answer = world.broker.fetch(again, 12)
        assert isinstance(answer, FetchResponse) and answer.error_code == NONE
    world.controller.answer()
    assert world.state() == ((1,), False, 5)
    again = fetch_request({}, replica_id=2, session=(opened.session_id, 3))
    answer = world.broker.fetch(again, 12)
    assert isinstance(answer, FetchResponse) and answer.error_code == NONE
    world.clock.advance(0)
    ((request, _),) = world.controller.asked
    assert request.topics[0].partitions[0].new_isr == [1, 2]


def test_lagging_followers_are_dropped_all_at_once(world: World) -> None:
    world.lead()
    world.follow(2, 0)
    world.follow(3, 0)
    world.produce()
    world.clock.advance(29)
    assert world.controller.asked == []
    world.clock.advance(17)
    ((request, _),) = world.controller.asked
    assert request.topics[0].partitions[0].new_isr == [1]
    assert world.broker.partition().maximal_isr == (1, 2, 3)  # nobody may be forgotten yet
    assert world.broker.log().high_watermark == 0
    world.controller.answer()
    assert world.state() == ((1,), False, 5)
    assert world.broker.log().high_watermark == 1


def test_follower_at_the_end_is_never_dropped(world: World) -> None:
    world.lead(isr=(1, 2))
    world.produce()
    world.follow(2, 1)
    world.clock.advance(1000)
    assert world.controller.asked == []


def test_follower_that_was_at_the_end_lately_is_not_dropped(world: World) -> None:
    """Reading always a little behind a busy leader is being in sync."""
    world.lead(isr=(1, 2))
    for number in range(100):
        world.follow(2, number)
        world.produce()
        world.clock.advance(1)
    assert world.controller.asked == []


def test_changes_of_many_partitions_travel_together(world: World) -> None:
    world.lead(isr=(1,))
    world.lead(isr=(1,), key=T1)
    request = fetch_request({T0: 0, T1: 0}, replica_id=2)
    world.broker.fetch(request, 12)
    world.clock.advance(0)
    ((sent, _),) = world.controller.asked
    assert [p.partition_index for topic in sent.topics for p in topic.partitions] == [0, 1]


# -- answers -----------------------------------------------------------------------------------


def pending(world: World) -> None:
    world.lead(isr=(1,))
    world.follow(2, 0)
    assert world.state() == ((1,), True, 4)


def test_accepted(world: World) -> None:
    pending(world)
    world.controller.answer()
    assert world.state() == ((1, 2), False, 5)
    value = world.broker.metrics.value("kafka.server", "ReplicaManager", "IsrExpandsPerSec")
    assert value == 1


def test_accepted_without_a_change_keeps_the_epoch(world: World) -> None:
    """A request repeated because its first answer was lost (KAFKA-12686)."""
    pending(world)
    world.controller.answer(partition_epoch=4)
    assert world.state() == ((1, 2), False, 4)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 5), (-1, 5), (0, 3)], ids=str)
def test_answer_for_another_state_leaves_the_change_pending(
    world: World, leader_epoch: int, partition_epoch: int
) -> None:
    pending(world)
    world.controller.answer(leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert world.state() == ((1,), True, 4)
    world.clock.advance(1)
    assert world.controller.asked == []


@pytest.mark.parametrize("error", [IneligibleReplica, OperationNotAttempted])
def test_refused_goes_back_and_a_later_fetch_tries_again(
    world: World, error: type[Exception]
) -> None:
    pending(world)
    world.controller.answer(code=error.code)  # type: ignore[attr-defined]
    assert world.state() == ((1,), False, 4)
    assert world.controller.asked == []
    world.follow(2, 0)
    assert len(world.controller.asked) == 1


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopicOrPartition,
        UnknownTopicId,
        FencedLeaderEpoch,
        InvalidUpdateVersion,
        InvalidRequest,
        NewLeaderElected,
    ],
)
def test_controller_knows_better_so_wait_for_its_order(
    world: World, error: type[Exception]
) -> None:
    pending(world)
    world.controller.answer(code=error.code)  # type: ignore[attr-defined]
    assert world.state() == ((1,), True, 4)
    assert world.broker.partition().maximal_isr == (1, 2)
    world.clock.advance(100)
    world.follow(2, 0)
    assert world.controller.asked == []
    world.lead(isr=(1, 2), epoch=1)
    assert world.state() == ((1, 2), False, 4)


def test_other_errors_are_sent_again_at_once(world: World) -> None:
    pending(world)
    world.controller.answer(code=UnknownServerError.code)
    world.clock.advance(0)
    assert len(world.controller.asked) == 1
    world.controller.answer()
    assert world.state() == ((1, 2), False, 5)
    failures = world.broker.metrics.value(
        "kafka.server", "ReplicaManager", "FailedIsrUpdatesPerSec"
    )
    assert failures == 1


def test_top_level_error_is_sent_again_with_the_present_broker_epoch(world: World) -> None:
    """KAFKA-13254, KAFKA-14144: a lost or useless answer must not end the matter."""
    pending(world)
    world.controller.answer(top=StaleBrokerEpoch.code)
    world.broker.epoch = 120
    assert world.controller.asked == []
    world.clock.advance(0.06)
    ((request, _),) = world.controller.asked
    assert request.broker_epoch == 120
    world.controller.answer()
    assert world.state() == ((1, 2), False, 5)


def test_no_answer_at_all_is_sent_again(world: World) -> None:
    pending(world)
    _, result = world.controller.asked.pop()
    result.errback(PeerDisconnected("lost"))
    world.clock.advance(0.06)
    assert len(world.controller.asked) == 1


def test_partition_left_out_of_the_answer_is_asked_for_again(world: World) -> None:
    world.lead(isr=(1,))
    world.lead(isr=(1,), key=T1)
    world.broker.fetch(fetch_request({T0: 0, T1: 0}, replica_id=2), 12)
    world.clock.advance(0)
    world.controller.answer(only=1)
    assert (world.state(T0)[1], world.state(T1)[1]) == (True, False)
    world.clock.advance(0.06)
    ((request, _),) = world.controller.asked
    assert [p.partition_index for p in request.topics[0].partitions] == [0]


def test_one_request_in_flight_the_rest_gathers(world: World) -> None:
    """KAFKA-12751."""
    pending(world)
    world.lead(isr=(1,), key=T1)
    world.follow(2, 0, T1)
    assert len(world.controller.asked) == 1
    world.controller.answer()
    world.clock.advance(0)
    ((request, _),) = world.controller.asked
    assert [p.partition_index for p in request.topics[0].partitions] == [1]


def test_late_answer_to_a_replaced_proposal_changes_nothing(world: World) -> None:
    """KAFKA-13091: the answer belongs to an earlier state, even if it looks alike."""
    pending(world)
    world.lead(isr=(1, 3), epoch=1)
    world.controller.answer(isr=(1, 2), leader_epoch=1, partition_epoch=9)
    assert world.state() == ((1, 3), False, 4)


def test_second_proposal_while_the_first_is_out_is_refused_and_made_later(world: World) -> None:
    pending(world)
    world.lead(isr=(1,), epoch=1)
    world.follow(2, 0)
    assert world.state() == ((1,), False, 4)
    world.controller.answer(code=FencedLeaderEpoch.code)
    world.follow(2, 0)
    ((request, _),) = world.controller.asked
    assert request.topics[0].partitions[0].leader_epoch == 1


def test_proposal_replaced_before_it_was_sent_is_not_sent(world: World) -> None:
    world.lead(isr=(1,))
    world.broker.fetch(fetch_request({T0: 0}, replica_id=2), 12)
    world.lead(isr=(1, 2), epoch=1)
    world.clock.advance(1)
    assert world.controller.asked == []


def test_isr_commit_checks_the_high_watermark_again(world: World) -> None:
    """KAFKA-8836."""
    world.lead(isr=(1, 2))
    world.follow(2, 0)
    world.produce()
    waiting = world.broker.produce("b", acks=-1, timeout_ms=1_000_000)
    world.clock.advance(46)
    assert not waiting.called
    world.controller.answer()
    world.clock.run_soon()
    assert result_of(waiting).error_code == NONE


def test_nothing_is_sent_after_stop(world: World) -> None:
    pending(world)
    world.broker.replicas.stop()
    world.controller.answer(top=StaleBrokerEpoch.code)
    world.clock.advance(100)
    assert world.controller.asked == []


# -- who is out of the ISR and caught up -------------------------------------------------------


@pytest.fixture
def leaving(world: World) -> "Deferred[AppendResult]":
    """A produce that waits for a live follower whom the controller does not let in: it leaves."""
    world.lead(isr=(1, 2))
    world.follow(2, 0)
    world.follow(3, 0)
    world.controller.answer(code=IneligibleReplica.code)
    waiting = world.broker.produce("a", acks=-1, timeout_ms=60_000)
    world.follow(2, 0)
    world.follow(2, 1)
    assert world.state() == ((1, 2), False, 4) and not waiting.called
    return waiting


def test_its_death_sets_the_high_watermark_free(
    world: World, leaving: "Deferred[AppendResult]"
) -> None:
    world.broker.know(1, 2)
    world.clock.advance(0)
    assert result_of(leaving).error_code == NONE


def test_it_is_waited_for_no_longer_than_the_lag_time_and_a_period(
    world: World, leaving: "Deferred[AppendResult]"
) -> None:
    for _ in range(46):  # nothing else happens: the producer waits
        world.clock.advance(1)
        if world.clock.monotonic() < 25:
            world.follow(2, 1)
    assert result_of(leaving).error_code == NONE
