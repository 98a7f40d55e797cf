"""Waiting operations: exactly one completion, whatever races (reference: replication 15)."""

import itertools
from collections.abc import Iterable

import pytest

from kafkalike.broker.replica.purgatory import DelayedOperation, Purgatory
from kafkalike.runtime.tasks import TimerWheel
from tests.fakes import FakeClock

from .support import LOGGER


class Operation(DelayedOperation):
    def __init__(self, ready: bool = False) -> None:
        super().__init__()
        self.ready = ready
        self.tries = 0
        self.log: list[str] = []

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.log.append("complete")

    def on_expire(self) -> None:
        self.log.append("expire")


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.purgatory = Purgatory("Test", TimerWheel(self.clock, LOGGER))

    def wait(self, operation: Operation, keys: Iterable[str] = "ab", timeout_s: float = 1) -> bool:
        return self.purgatory.try_complete_else_watch(operation, keys, timeout_s)


def test_complete_at_once_is_never_registered() -> None:
    world = World()
    operation = Operation(ready=True)
    assert world.wait(operation)
    assert operation.log == ["complete"]
    assert (world.purgatory.delayed, world.purgatory.watched, world.clock.pending()) == (0, 0, 0)


def test_a_change_between_first_try_and_registration_is_not_missed() -> None:
    world = World()

    class Racy(Operation):
        def try_complete(self) -> bool:
            done = super().try_complete()
            self.ready = True  # what happened right after the first look
            return done

    operation = Racy()
    assert world.wait(operation)
    assert (operation.tries, operation.log) == (2, ["complete"])
    assert world.purgatory.watched == 0


def test_any_of_the_keys_wakes_and_all_are_cleaned_up() -> None:
    for key in "ab":
        world = World()
        operation = Operation()
        assert not world.wait(operation)
        assert world.purgatory.check(key) == 0
        operation.ready = True
        assert world.purgatory.check(key) == 1
        assert operation.log == ["complete"]
        assert not world.purgatory.watches("a") and not world.purgatory.watches("b")
        world.clock.advance(5)
        assert operation.log == ["complete"]


def test_timeout_completes_once_and_later_triggers_find_it_done() -> None:
    world = World()
    operation = Operation()
    world.wait(operation, timeout_s=0.5)
    world.clock.advance(0.4)
    assert operation.log == []
    world.clock.advance(0.2)
    assert operation.log == ["expire", "complete"]
    operation.ready = True
    assert world.purgatory.check("a") == 0
    assert not operation.force_complete()
    assert operation.log == ["expire", "complete"]


def test_no_time_at_all_expires_in_the_call() -> None:
    world = World()
    operation = Operation()
    assert world.wait(operation, timeout_s=0)
    assert operation.log == ["expire", "complete"]
    assert world.purgatory.delayed == 0


@pytest.mark.parametrize("order", list(itertools.permutations(("check", "force", "expire"))))
def test_whatever_comes_first_is_the_only_completion(order: tuple[str, ...]) -> None:
    world = World()
    operation = Operation()
    world.wait(operation, timeout_s=0.1)
    operation.ready = True
    for event in order:
        if event == "check":
            world.purgatory.check("a")
            world.purgatory.check("b")
        elif event == "force":
            operation.force_complete()
        else:
            world.clock.advance(1)
    assert operation.log.count("complete") == 1
    assert operation.log[0] == ("expire" if order[0] == "expire" else "complete")


def test_completion_that_wakes_the_same_key_does_not_complete_twice() -> None:
    world = World()

    class Again(Operation):
        def on_complete(self) -> None:
            super().on_complete()
            world.purgatory.check("a")

    operations = [Again() for _ in range(3)]
    for operation in operations:
        world.wait(operation, "a")
    for operation in operations:
        operation.ready = True
    world.purgatory.check("a")
    assert [operation.log for operation in operations] == [["complete"]] * 3
    assert world.purgatory.delayed == 0


def test_operations_of_one_key_are_tried_oldest_first() -> None:
    world = World()
    order: list[int] = []

    class Numbered(Operation):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_complete(self) -> None:
            order.append(self.number)

    for number in range(4):
        world.wait(Numbered(number), "a")
    for operation in list(world.purgatory._watched["a"]):
        assert isinstance(operation, Operation)
        operation.ready = True
    assert world.purgatory.check("a") == 4
    assert order == [0, 1, 2, 3]


def test_expire_all_answers_everything_that_waits() -> None:
    world = World()
    operations = [Operation() for _ in range(3)]
    for number, operation in enumerate(operations):
        world.wait(operation, ["shared", str(number)])
    world.purgatory.expire_all()
    assert [operation.log for operation in operations] == [["expire", "complete"]] * 3
    assert world.purgatory.watched == world.purgatory.delayed == 0
