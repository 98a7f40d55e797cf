"""Requests to the controller: found, asked again, given up; and the producer ids got that way."""

import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from kafkalike import errors
from kafkalike.broker.cluster.controller_channel import ControllerChannel
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.cluster.producer_ids import ProducerIds
from kafkalike.messages.control import AlterPartitionRequest, AlterPartitionResponse
from kafkalike.messages.transactions import AllocateProducerIdsResponse
from kafkalike.net.client import PeerDisconnected, PeerTimeout, UnsupportedByPeer
from kafkalike.runtime.tasks import Tasks
from kafkalike.types import ZERO_UUID
from tests.fakes import FakeClock, failure_of, result_of
from tests.unit.cluster.support import update_metadata

LOGGER = logging.getLogger("test")
_Topic = AlterPartitionResponse.TopicData


class FakePeers:
    """Answers from a script; remembers whom it was asked to reach."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[int] = []
        self.dropped: list[int] = []
        self.versions: list[int | None] = []

    def send(
        self, broker_id: int, request: Any, *, version: int | None = None, **_: Any
    ) -> "Deferred[Any]":
        self.asked.append(broker_id)
        self.versions.append(version)
        step = self.script.pop(0)
        if isinstance(step, Deferred):
            return step
        return fail(step) if isinstance(step, Exception) else succeed(step)

    def disconnect(self, broker_id: int, reason: str) -> None:
        self.dropped.append(broker_id)


class World:
    def __init__(self, *script: Any, controller: int = 2) -> None:
        self.clock = FakeClock()
        self.cache = MetadataCache(1)
        if controller >= 0:
            self.cache.update(update_metadata({}, controller=controller))
        self.peers = FakePeers(*script)
        peers: Any = self.peers
        self.channel = ControllerChannel(
            peers, self.cache, self.clock, LOGGER, request_timeout_s=30.0
        )


def partition_answer(code: int) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[_Topic(partitions=[_Topic.PartitionData(partition_index=0, error_code=code)])]
    )


@pytest.mark.parametrize(
    ("topic_ids", "version"),
    [([b"1" * 16], None), ([b"1" * 16, ZERO_UUID], 1), ([ZERO_UUID], 1), ([], None)],
)
def test_topics_without_id_are_told_by_name(topic_ids: list[bytes], version: int | None) -> None:
    world = World(partition_answer(0))
    topics = [AlterPartitionRequest.TopicData(topic_id=topic_id) for topic_id in topic_ids]
    world.channel.send(AlterPartitionRequest(topics=topics))
    assert world.peers.versions == [version]


def test_an_answer_comes_back() -> None:
    good = partition_answer(errors.FencedLeaderEpoch.code)
    world = World(good)
    assert result_of(world.channel.send(AlterPartitionRequest())) is good
    assert world.peers.asked == [2]


@pytest.mark.parametrize(
    "trouble",
    [
        AlterPartitionResponse(error_code=errors.NotController.code),
        partition_answer(errors.NotController.code),
        PeerDisconnected("gone"),
        PeerTimeout("late"),
    ],
)
def test_not_controller_and_lost_connections_are_asked_again_of_whoever_it_is_then(
    trouble: Any,
) -> None:
    good = AlterPartitionResponse()
    world = World(trouble, good)
    work = world.channel.send(AlterPartitionRequest())
    assert not work.called
    world.cache.update(update_metadata({}, controller=3))
    world.clock.advance(0.1)
    assert result_of(work) is good
    assert world.peers.asked == [2, 3]


def test_without_a_controller_it_waits() -> None:
    good = AlterPartitionResponse()
    world = World(good, controller=-1)
    work = world.channel.send(AlterPartitionRequest())
    world.clock.advance(5)
    assert world.peers.asked == []
    world.cache.update(update_metadata({}, controller=3))
    world.clock.advance(0.1)
    assert result_of(work) is good


def test_time_limit_and_hopeless_errors_end_it() -> None:
    world = World(controller=-1)
    work = world.channel.send(AlterPartitionRequest(), timeout_s=2)
    world.clock.advance(2.2)
    failure_of(work, PeerTimeout)
    failure_of(World(UnsupportedByPeer("v")).channel.send(None), UnsupportedByPeer)


def test_stop_ends_what_waits() -> None:
    world = World(controller=-1)
    work = world.channel.send(AlterPartitionRequest())
    world.channel.stop()
    failure_of(work, Exception)
    assert world.clock.pending() == 0
    failure_of(world.channel.send(AlterPartitionRequest()), PeerDisconnected)


# -- producer ids ------------------------------------------------------------------------------


class Ids:
    def __init__(self, *script: Any) -> None:
        self.clock = FakeClock()
        self.script = list(script)
        self.requests: list[Any] = []
        self.epoch = 5
        self.ids = ProducerIds(
            1,
            lambda: self.epoch,
            self.send,
            self.clock,
            Tasks(LOGGER),
            LOGGER,
            request_timeout_s=30,
        )

    def send(self, request: Any, *, timeout_s: float) -> "Deferred[Any]":
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Deferred):
            return step
        return fail(step) if isinstance(step, Exception) else succeed(step)


def block(start: int, length: int, code: int = 0) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        error_code=code, producer_id_start=start, producer_id_len=length
    )


def test_ids_come_from_blocks_and_none_is_given_twice() -> None:
    second: Deferred[Any] = Deferred()
    world = Ids(block(100, 10), second, block(500, 10))
    with pytest.raises(errors.CoordinatorLoadInProgress):
        world.ids.generate()
    assert [world.ids.generate() for _ in range(10)] == list(range(100, 110))
    assert len(world.requests) == 2  # asked after the ninth
    with pytest.raises(errors.CoordinatorLoadInProgress):
        world.ids.generate()
    second.callback(block(200, 1000))
    assert world.ids.generate() == 200
    assert len(world.requests) == 2


def test_a_refused_block_is_asked_for_again_with_the_present_epoch() -> None:
    world = Ids(
        block(0, 0, errors.StaleBrokerEpoch.code), PeerTimeout("late"), block(-1, 5), block(7, 5)
    )
    with pytest.raises(errors.CoordinatorLoadInProgress):
        world.ids.generate()
    world.epoch = 6
    world.clock.advance(0.2)
    assert [request.broker_epoch for request in world.requests] == [5, 6, 6, 6]
    assert world.ids.generate() == 7


def test_who_asks_while_a_block_is_on_its_way_waits_a_moment() -> None:
    coming: Deferred[Any] = Deferred()
    world = Ids(coming)
    answers = [Deferred.fromCoroutine(world.ids.next()) for _ in range(2)]
    world.clock.advance(0.4)
    assert not any(answer.called for answer in answers)
    coming.callback(block(30, 10))
    assert [answer.result for answer in answers] == [30, 31]


def test_a_block_that_does_not_come_is_not_waited_for_long() -> None:
    world = Ids(Deferred())
    refused: list[Any] = []
    Deferred.fromCoroutine(world.ids.next()).addErrback(refused.append)
    world.clock.advance(0.6)
    assert refused[0].check(errors.CoordinatorLoadInProgress)
