"""Stories of the controller as text: every znode written and every request sent, in order.

The texts lie in `controller/`.  After a deliberate change of behaviour run the tests once with
KAFKALIKE_REWRITE=1 in the environment and review the difference.
"""

import os
import pathlib

import pytest

from kafkalike.zk import paths
from tests.unit.controller.stories import WITH_TOPIC, WITHOUT_TOPIC, arranged
from tests.unit.controller.world import World

FOLDER = pathlib.Path(__file__).parent / "controller"


def compare(name: str, world: World) -> None:
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KAFKALIKE_REWRITE"):
        path.write_text(world.story())
    assert world.story() == path.read_text()


@pytest.mark.parametrize("name", [*WITHOUT_TOPIC, *WITH_TOPIC])
def test_story(name: str) -> None:
    world, story = arranged(name)
    story(world)
    world.check_agreement()
    compare(name, world)


def test_start_of_a_cluster() -> None:
    world = World(3)
    world.tell("three brokers start one after the other; the first is elected")
    world.start_all()
    world.check_agreement()
    compare("cluster_starts", world)


def test_zombie() -> None:
    """A controller stands still before a write; another is elected; it goes on, and resigns."""
    world = World(3)
    world.start_all()
    world.create_topic("t", [[1, 2, 3]])
    world.settle()
    zombie = world.active
    world.tell("broker 3 dies; the controller freezes before it writes what follows from that")
    world.brokers[3].kill()
    while not zombie.controller.metrics().controller_state:
        world.clock.advance(0.0005)
    world.clock.advance(0.002)
    zombie.zk.freeze()
    world.tell("somebody deletes /controller: broker 2 is elected and does the work")
    world.coordination.delete(paths.CONTROLLER)
    world.settle(2.0)
    assert world.brokers[2].controller.is_active
    world.tell("broker 1 thaws: its write is refused, it resigns, nothing is written or sent")
    zombie.zk.thaw()
    world.settle()
    assert not zombie.controller.is_active
    world.check_agreement()
    compare("zombie", world)


def test_session_expires() -> None:
    world = World(3)
    world.start_all()
    world.create_topic("t", [[1, 2, 3]])
    world.settle()
    world.tell("the controller's session expires: another takes over, the broker comes back as new")
    world.active.zk.expire_session()
    world.settle(5.0)
    world.check_agreement()
    compare("session_expires", world)
