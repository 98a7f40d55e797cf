"""A small real-time loop for tests of code that waits for other threads and processes.

It is a Clock and the target of `call_from_thread`.  The thread of the test turns it, by `run`; while
the test does something else, the loop stands still: that is how a blocked reactor is tested.
"""

import queue
import time
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kafkalike.runtime.tasks import as_deferred

T = TypeVar("T")


class LoopTimer:
    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class RealLoop:
    """A Clock with real time, turned by `run` and `run_for`."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = (
            queue.SimpleQueue()
        )
        self._timers: list[tuple[float, int, LoopTimer]] = []
        self._count = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> LoopTimer:
        timer = LoopTimer(callback, args)
        self._count += 1
        heappush(self._timers, (time.monotonic() + delay_s, self._count, timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._calls.put((callback, args))

    call_from_thread = call_soon

    def run(self, work: Awaitable[T], limit_s: float = 30.0) -> T:
        """Turn until `work` has its result; its error is raised, TimeoutError after `limit_s`."""
        outcome: list[T | Failure] = []
        source: Deferred[T] = as_deferred(work)
        source.addBoth(outcome.append)
        if not self._turn_until(lambda: bool(outcome), limit_s):
            source.cancel()
            raise TimeoutError(f"nothing happened in {limit_s:g} s")
        (result,) = outcome
        if isinstance(result, Failure):
            result.raiseException()
        return result

    def run_until(self, condition: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Turn until `condition()`; AssertionError after `limit_s`."""
        assert self._turn_until(condition, limit_s), f"not so after {limit_s:g} s"

    def run_for(self, seconds: float) -> None:
        """Turn for that long."""
        self._turn_until(lambda: False, seconds)

    def _turn_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not condition():
            now = time.monotonic()
            if now >= deadline:
                return False
            self._run_timers(now)
            if condition():
                return True
            wait_s = min(deadline - time.monotonic(), self._next_timer_s(), 0.05)
            try:
                callback, args = self._calls.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                continue
            callback(*args)
        return True

    def _run_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, timer = heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback(*timer.args)

    def _next_timer_s(self) -> float:
        return self._timers[0][0] - time.monotonic() if self._timers else 1.0
