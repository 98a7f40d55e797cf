"""Time that is skipped: order, cancellation, what is set on the way, leaps."""

from twisted.internet.defer import Deferred

from kafkalike.tools.local.virtual_clock import CLEAR_AT, LONGEST_STEP_S, STEPS, VirtualClock
from tests.fakes import FakeClock


class World:
    def __init__(self) -> None:
        self.real = FakeClock()
        self.clock = VirtualClock(self.real)
        self.calls: list[tuple[str, float]] = []

    def note(self, name: str) -> None:
        self.calls.append((name, round(self.clock.monotonic(), 1)))

    def advance(self, seconds: float) -> None:
        done = Deferred.fromCoroutine(self.clock.advance(seconds))
        for _ in range(100_000):
            if done.called:
                return
            self.real.advance(0)
        raise AssertionError("the clock did not arrive")


def test_without_skipping_it_is_the_real_time() -> None:
    world = World()
    world.clock.call_later(1, world.note, "a")
    world.real.advance(0.9)
    assert world.calls == []
    world.real.advance(0.1)
    assert world.calls == [("a", 1.0)]
    assert world.clock.now_ms() == world.real.now_ms()


def test_skipped_timers_run_in_the_order_of_their_time() -> None:
    world = World()
    for name, delay in (("c", 30), ("a", 10), ("b", 20), ("later", 99)):
        world.clock.call_later(delay, world.note, name)
    world.advance(50)
    assert [name for name, _ in world.calls] == ["a", "b", "c"]
    assert world.clock.now_ms() - world.real.now_ms() == 50_000
    assert world.real.monotonic() == 0


def test_a_timer_set_by_a_timer_runs_on_the_way() -> None:
    world = World()

    def again() -> None:
        world.note("tick")
        world.clock.call_later(10, again)

    world.clock.call_later(10, again)
    world.advance(60)
    assert len(world.calls) in (5, 6)


def test_cancelled_timers_do_not_run() -> None:
    world = World()
    first = world.clock.call_later(1, world.note, "a")
    world.clock.call_later(2, world.note, "b")
    first.cancel()
    first.cancel()
    world.real.advance(3)
    assert [name for name, _ in world.calls] == ["b"]


def test_a_failing_timer_does_not_stop_the_others() -> None:
    world = World()

    def fail() -> None:
        raise ValueError("a test")

    world.clock.call_later(1, fail)
    world.clock.call_later(1, world.note, "a")
    world.advance(2)
    assert [name for name, _ in world.calls] == ["a"]


def test_a_long_way_begins_with_a_leap() -> None:
    world = World()
    walked_s = STEPS * LONGEST_STEP_S
    world.clock.call_later(1, world.note, "early")
    world.clock.call_later(86_400 - walked_s / 2, world.note, "late")
    world.advance(86_400)
    (_, early), (_, late) = world.calls
    assert early == 86_400 - walked_s, "it ran at the end of the leap"
    assert 86_400 - walked_s / 2 <= late <= 86_400 - walked_s / 2 + LONGEST_STEP_S


def test_an_earlier_timer_wakes_earlier() -> None:
    world = World()
    world.clock.call_later(10, world.note, "b")
    world.clock.call_later(1, world.note, "a")
    world.real.advance(1)
    assert world.calls == [("a", 1.0)]


def test_cancelled_timers_do_not_pile_up() -> None:
    world = World()
    world.clock.call_later(5, world.note, "kept")
    for _ in range(3 * CLEAR_AT):
        world.clock.call_later(30, world.note, "never").cancel()
    assert len(world.clock._timers) <= CLEAR_AT
    world.real.advance(60)
    assert [name for name, _ in world.calls] == ["kept"]
