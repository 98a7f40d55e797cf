"""Known bugs of this design that no other file tells (`tests/history.py` names the test of each)."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from kafkalike.controller import events
from kafkalike.types import ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.znodes import TopicInfo

from .stories import with_topic
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
    assert {field.name for field in fields(event)} <= {"broker_id", "topic"}  # type: ignore[arg-type]
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
        path, TopicInfo(grown.partitions | {2: ReplicaAssignment((3,))}, info.topic_id).encode()
    )
    world.brokers[4].start()
    world.settle(10.0)
    assert world.leader("u", 2) == 3
    assert TopicPartition("u", 2) in world.brokers[3].hosted
    world.check_agreement()
