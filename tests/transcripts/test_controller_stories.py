"""Stories of the controller as text: every znode written and every request sent, in order.

The texts lie in `controller/`.  After a deliberate change of behaviour run the tests once with
KAFKALIKE_REWRITE=1 in the environment and review the difference.
"""

import os
import pathlib

import pytest

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
