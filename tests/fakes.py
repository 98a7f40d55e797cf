"""Ports without an outside world: time that moves when told to, seeded chance, threads that are calls.

Shared by all unit tests.  Nothing in here touches a reactor, a socket or a file.
"""

import random as _random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

T = TypeVar("T")

START_MS = 1_700_000_000_000


class FakeTimer:
    """A pending call of a FakeClock."""

    __slots__ = ("args", "callback", "due_s")

    def __init__(
        self, due_s: float, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.due_s = due_s
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A Clock that stands still until `advance`.

    Calls run in the order of their time, equal times in the order they were made.  `call_soon` calls
    run before `advance` returns, after each timer, and in `run_soon`.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._now_s = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def now_ms(self) -> int:
        return self._start_ms + round(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> FakeTimer:
        assert delay_s >= 0, delay_s
        timer = FakeTimer(self._now_s + delay_s, callback, args)
        self._count += 1
        heappush(self._timers, (timer.due_s, self._count, timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._soon.append((callback, args))

    def run_soon(self) -> None:
        """Run what `call_soon` was given, and what that adds."""
        while self._soon:
            callback, args = self._soon.popleft()
            callback(*args)

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, running every call that falls due on the way (0: those due now)."""
        until_s = self._now_s + seconds
        self.run_soon()
        while self._timers and self._timers[0][0] <= until_s + 1e-9:
            due_s, _, timer = heappop(self._timers)
            if timer.callback is None:
                continue
            self._now_s = max(self._now_s, due_s)
            callback = timer.callback
            timer.callback = None
            callback(*timer.args)
            self.run_soon()
        self._now_s = until_s

    def pending(self) -> int:
        """How many timers wait."""
        return sum(timer.callback is not None for _, _, timer in self._timers)


class FakeRandom:
    """Chance from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = _random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class InlineThreads:
    """Threads that run the function at once; the result has already fired."""

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        return maybeDeferred(function, *args)


class ManualThreads:
    """Threads whose work happens when the test says so, in the order it was given."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        result: Deferred[T] = Deferred()
        self.waiting.append((result, function, args))
        return result

    def step(self) -> None:
        """Do the oldest piece of work."""
        result, function, args = self.waiting.popleft()
        try:
            value = function(*args)
        except Exception:
            result.errback(Failure())
        else:
            result.callback(value)

    def run_all(self) -> None:
        """Do all work, also what that adds."""
        while self.waiting:
            self.step()


def result_of(work: "Deferred[T]") -> T:
    """What a Deferred has already fired with; raises its error; AssertionError when still waiting."""
    outcome: list[Any] = []
    work.addBoth(outcome.append)
    assert outcome, "the Deferred has not fired yet"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    value: T = outcome[0]
    return value


def failure_of(work: "Deferred[Any]", kind: type[BaseException]) -> BaseException:
    """The error a Deferred has already failed with, which must be of `kind`."""
    try:
        value = result_of(work)
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {value!r}")
