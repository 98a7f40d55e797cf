"""Registration makes an epoch; departure ends in bounded time whatever is away."""

import logging
from typing import Any

from kafkalike.broker.cluster.presence import (
    LOOK_UP_S,
    START_SESSIONS,
    Departure,
    Presence,
    across_sessions,
)
from kafkalike.config import BrokerConfig
from kafkalike.runtime.tasks import TimedOut, as_deferred
from kafkalike.types import NO_BROKER_EPOCH, Endpoint
from kafkalike.zk.client import SessionExpired, retrying
from tests.fakes import failure_of, result_of
from tests.unit.cluster.zk_world import ZkWorld

LOGGER = logging.getLogger("test")
CONFIG = BrokerConfig.parse(
    {
        "zookeeper.connect": "z:1",
        "broker.id": "1",
        "controlled.shutdown.max.retries": "3",
        "controlled.shutdown.retry.backoff.ms": "1000",
    }
)


def presence(world: ZkWorld) -> Presence:
    made = Presence(world.zk, world.clock, 1, CONFIG, LOGGER)
    made.endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)]
    return made


def test_whoever_waits_for_an_epoch_gets_it_with_the_registration() -> None:
    world = ZkWorld()
    one = presence(world)
    waiting = one.wait_registered()
    assert waiting is not None and one.epoch() == NO_BROKER_EPOCH
    epoch = world.run(one.register())
    assert waiting.called
    assert one.epoch() == epoch > 0
    assert one.wait_registered() is None
    stat = world.zookeeper.stat("/brokers/ids/1")
    assert stat is not None and stat.czxid == epoch


def departure(world: ZkWorld) -> Departure:
    network: Any = None  # nobody is reached in these tests
    return Departure(world.zk, world.clock, network, 1, lambda: 5, CONFIG, LOGGER)


def test_departure_gives_up_when_zookeeper_no_longer_answers() -> None:
    """The session looks connected, but the answer never comes (a server that was just killed)."""
    world = ZkWorld()
    work = as_deferred(departure(world).run())
    world.zookeeper.stop_serving()
    world.settle(3 * LOOK_UP_S + 2 * 1.0 + 1)
    assert result_of(work) is False


def test_departure_without_a_controller_ends_after_its_tries() -> None:
    world = ZkWorld()
    world.zookeeper.delete("/controller")
    work = as_deferred(departure(world).run())
    world.settle(1.5)
    assert not work.called
    world.settle(3)
    assert result_of(work) is False


def test_a_cancelled_departure_ends_at_once() -> None:
    world = ZkWorld()
    world.zookeeper.delete("/controller")
    work = as_deferred(departure(world).run())
    world.settle(0.5)
    ended: list[object] = []
    work.addBoth(ended.append)
    work.cancel()
    assert len(ended) == 1


async def lose_the_session(world: ZkWorld) -> None:
    """What an operation of the start meets then."""
    world.zk.expire_session()
    await retrying(world.zk, lambda: world.zk.get("/brokers/ids"))


def test_a_step_of_the_start_is_done_again_in_the_next_session() -> None:
    world = ZkWorld()
    one = presence(world)
    lost: list[int] = []

    async def register() -> int:
        if len(lost) < 2:
            lost.append(len(lost))
            await lose_the_session(world)
        return await one.register()

    epoch = world.run(across_sessions(world.zk, world.clock, 30.0, LOGGER, register), 30.0)
    assert lost == [0, 1]
    stat = world.zookeeper.stat("/brokers/ids/1")
    assert stat is not None and stat.czxid == epoch == one.epoch()
    assert stat.ephemeral_owner == world.zk.session_id


def test_a_start_does_not_wait_for_ever_for_a_session() -> None:
    world = ZkWorld()

    async def step() -> None:
        try:
            await lose_the_session(world)
        finally:
            world.zookeeper.stop_serving()

    work = as_deferred(across_sessions(world.zk, world.clock, 10.0, LOGGER, step))
    world.settle(9.0)
    assert not work.called
    world.settle(60.0)
    failure_of(work, TimedOut)


def test_a_start_that_loses_every_session_gives_up() -> None:
    world = ZkWorld()
    tries: list[int] = []

    async def step() -> None:
        tries.append(0)
        await lose_the_session(world)

    work = as_deferred(across_sessions(world.zk, world.clock, 10.0, LOGGER, step))
    world.settle(300.0)
    failure_of(work, SessionExpired)
    assert len(tries) == START_SESSIONS + 1
