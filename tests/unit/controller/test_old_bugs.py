"""Known bugs of this design that no other file tells (`tests/history.py` names the test of each)."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from kafkalike.controller import events
from kafkalike.controller.brokers import restarted_unnoticed
from kafkalike.controller.context import Replica
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.znodes import PartitionState, TopicInfo

from .contexts import T0, context_of
from .stories import rejoin, with_topic
from .world import World

WATCHED = (
    events.ControllerChange,
    events.BrokerChange,
    events.BrokerModifications,
    events.TopicChange,
    events.PartitionModifications,
    events.TopicDeletion,
    events.IsrChangeNotification,
    events.LogDirEventNotification,
    events.ZkPartitionReassignment,
    events.ZkPreferredElection,
)


@pytest.mark.parametrize("event", WATCHED, ids=lambda event: event.__name__)
def test_kafka_5502_what_a_watch_reports_carries_no_state(event: type) -> None:
    """It says where to look: at most the name of a broker or a topic."""
    assert {field.name for field in fields(event)} <= {"broker_id", "topic"}
    assert set(get_type_hints(event).values()) <= {int, str}


def test_kafka_5502_the_controller_acts_on_what_is_there_when_it_looks() -> None:
    """While it is held up brokers come and go and a topic is created, grown, made anew."""
    world = World(4)
    with_topic(world)
    assert world.active.id == 1
    world.brokers[1].zk.freeze()
    world.brokers[3].kill()
    world.brokers[4].kill()
    world.create_topic("u", [[4]])
    world.settle(1.0)
    world.brokers[3].start()
    path = paths.topic("u")
    info = world.topic("u")
    grown = TopicInfo({n: ReplicaAssignment((2, 3)) for n in (0, 1)}, info.topic_id)
    world.coordination.set(path, grown.encode())
    world.settle(1.0)
    world.brokers[1].zk.thaw()
    world.settle(10.0)
    assert world.active.id == 1
    assert [world.leader("u", n) for n in (0, 1)] == [2, 2]
    assert world.brokers[1].alive == [1, 2, 3]
    world.check_agreement()
    world.coordination.set(
        path, TopicInfo({**grown.partitions, 2: ReplicaAssignment((3,))}, info.topic_id).encode()
    )
    world.brokers[4].start()
    world.settle(10.0)
    assert world.leader("u", 2) == 3
    assert TopicPartition("u", 2) in world.brokers[3].hosted
    world.check_agreement()


def restart_while_there_is_no_controller(world: World, broker_id: int) -> None:
    """It registers before anybody has stood for election."""
    others = [b for b in world.brokers.values() if b.up and b.id != broker_id]
    for broker in others:
        broker.zk.freeze()
    world.brokers[broker_id].kill()
    world.brokers[broker_id].start()
    world.settle()
    for broker in others:
        broker.zk.thaw()
    world.settle(10.0)


def test_kafka_7235_a_restart_between_two_controllers_is_noticed() -> None:
    """The controller's own broker loses power and is back before its successor looks.

    Its log may have lost its end: it must neither go on leading nor stay in an ISR.
    """
    world = World(3)
    with_topic(world)
    assert (world.leader("t"), world.leader("t", 1)) == (1, 2)
    restart_while_there_is_no_controller(world, 1)
    assert world.leader("t") == 2
    assert world.isr("t") == (2, 3)
    assert (world.leader("t", 1), world.isr("t", 1)) == (2, (2, 3))
    hosted = world.brokers[1].hosted[TopicPartition("t", 0)]
    assert (hosted.leader, hosted.leader_epoch) == (2, world.state("t").leader_and_isr.leader_epoch)
    world.check_agreement()
    rejoin(world, "t", 1)


def test_who_was_elected_in_its_present_life_stays() -> None:
    """An ordinary failover: states are younger than the registrations, nothing is changed."""
    world = World(3)
    with_topic(world)
    world.brokers[2].kill()
    world.settle()
    world.brokers[2].start()
    world.settle()
    rejoin(world, "t", 2)
    rejoin(world, "t", 2, 1)
    before = [world.state("t", n) for n in (0, 1)]
    world.coordination.delete(paths.CONTROLLER)
    world.settle(10.0)
    assert world.controller.epoch == 2
    assert [world.state("t", n) for n in (0, 1)] == before
    world.check_agreement()


@pytest.mark.parametrize(
    ("mzxid", "brokers", "expected"),
    [
        (200, (1, 2, 3), []),
        (102, (1, 2, 3), [3]),
        (101, (1, 2, 3), [2, 3]),
        (50, (1, 2, 3), []),
        (102, (3,), []),
        (-1, (1, 2, 3), []),
    ],
    ids=["nobody", "one", "two", "all", "nobody else is here", "not read"],
)
def test_who_restarted_unnoticed(mzxid: int, brokers: tuple[int, ...], expected: list[int]) -> None:
    """Brokers 1, 2, 3 registered at 101, 102, 103.  Where all have, nothing tells who is better."""
    state = LeaderAndIsr(1, 0, (1, 2, 3))
    context = context_of(brokers, {T0: (1, 2, 3)}, {T0: state})
    context.leadership[T0] = PartitionState(state, 1, mzxid=mzxid)
    assert restarted_unnoticed(context) == [Replica(T0, broker_id) for broker_id in expected]
    context.to_delete["t"] = None
    assert restarted_unnoticed(context) == []
