"""The stories with one ZooKeeper operation of the controller failing: the 1st, the 2nd, ... each.

Every await of the controller is a ZooKeeper operation, so this interrupts it at each of them.  An
operation fails with a lost connection, having been applied or not, or with the end of the session;
or the whole broker dies there.  Whatever happens, the story must reach its end and brokers and
ZooKeeper must agree.  A story has been covered when the fault number is beyond its last operation.
"""

from collections.abc import Callable

import pytest

from tests.unit.controller.stories import WITH_TOPIC, WITHOUT_TOPIC, arranged
from tests.unit.controller.world import FakeBroker, World

SETTLING_S = 60.0
MAX_OPERATIONS = 400


class Fault:
    """Breaks the n-th operation of one broker's session."""

    def __init__(self, world: World, broker: FakeBroker, number: int, kind: str) -> None:
        self._world = world
        self._broker = broker
        self._left = number
        self._kind = kind
        self.happened = False
        self.operation = ""
        broker.zk.fail_next(self._matches, applied="applied" in kind, reconnect=True)

    def _matches(self, kind: str, paths: tuple[str, ...]) -> bool:
        self._left -= 1
        if self._left or not self._broker.up:
            return False
        self.happened = True
        self.operation = f"{kind} {' '.join(paths)}"
        if "expired" in self._kind:
            self._world.clock.call_later(0, self._broker.zk.expire_session)
        if "killed" in self._kind:
            self._world.clock.call_later(0, self._kill)
        return True

    def _kill(self) -> None:
        if self._broker.up:
            self._broker.kill()
            self._world.clock.call_later(10.0, self._restart)

    def _restart(self) -> None:
        if not self._broker.up:
            self._broker.start()


KINDS = (
    "connection lost, applied",
    "connection lost, not done",
    "session expired, applied",
    "session expired, not done",
    "killed, applied",
    "killed, not done",
)


def tell_with_fault(name: str, number: int, kind: str) -> tuple[World, Fault]:
    world, story = arranged(name)
    world.disturbed = not kind.startswith("connection")
    # In a story about failover the successor is the one to be disturbed.
    victim = world.brokers[2] if name == "controller_fails_over" else world.active
    fault = Fault(world, victim, number, kind)
    try:
        story(world)
        world.settle(SETTLING_S)
        world.check_agreement()
    except Exception as error:
        raise AssertionError(f"{name}: {kind} at operation {number}: {fault.operation}") from error
    return world, fault


def enumerate_faults(run: Callable[[int], bool]) -> int:
    for number in range(1, MAX_OPERATIONS):
        if not run(number):
            return number - 1
    raise AssertionError("the story does not end")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*WITHOUT_TOPIC, *WITH_TOPIC])
def test_story_with_one_fault(name: str, kind: str) -> None:
    def run(number: int) -> bool:
        _, fault = tell_with_fault(name, number, kind)
        return fault.happened

    assert enumerate_faults(run) > 0
