"""Simulated time: one heap of timers for the whole world, equal times ordered by the seed.

A timer may belong to a `Process`: it then runs only while that process runs, waits while the process
is frozen, and is dropped with it.  Everything that happens between two timers takes no time.
"""

import random
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .process import Process

START_MS: Final = 1_700_000_000_000
MAX_CALLS_PER_INSTANT: Final = 100_000
"""So many calls without time going on are taken for a loop that never ends."""
_CLEAR_AT: Final = 20_000

Callback = Callable[..., object]


class SimulationStuck(Exception):
    """Time stands still: something calls itself again and again without waiting."""


class SimTimer:
    """A pending call."""

    __slots__ = ("args", "callback", "process")

    def __init__(
        self, callback: Callback, args: tuple[object, ...], process: "Process | None"
    ) -> None:
        self.callback: Callback | None = callback
        self.args = args
        self.process = process

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class SimClock:
    """The world's Clock.  Processes have clocks of their own on top of it (`Process.clock`).

    `on_error(process, error)` is told of whatever escapes from a callback; the run goes on, as a
    real loop does.
    """

    def __init__(
        self,
        seed: str,
        on_error: "Callable[[Process | None, BaseException], object]",
        start_ms: int = START_MS,
    ) -> None:
        self._tie = random.Random(seed).getrandbits
        self._on_error = on_error
        self._start_ms = start_ms
        self.now_s = 0.0
        self._heap: list[tuple[float, int, SimTimer]] = []
        self._soon: deque[tuple[Process | None, Callback, tuple[object, ...]]] = deque()
        self._count = 0
        self._clear_at = _CLEAR_AT
        self._calls_this_instant = 0
        self.current: Process | None = None
        """Whose code runs just now."""
        self.steps = 0

    def now_ms(self) -> int:
        return self._start_ms + int(self.now_s * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callback, *args: object) -> SimTimer:
        return self.call_for(None, delay_s, callback, args)

    def call_soon(self, callback: Callback, *args: object) -> None:
        self._soon.append((None, callback, args))

    def call_for(
        self,
        process: "Process | None",
        delay_s: float,
        callback: Callback,
        args: tuple[object, ...],
    ) -> SimTimer:
        """`call_later` of one process."""
        timer = SimTimer(callback, args, process)
        self._count += 1
        tie = (self._tie(32) << 32) | self._count
        heappush(self._heap, (self.now_s + (delay_s if delay_s > 0 else 0.0), tie, timer))
        if len(self._heap) > self._clear_at:
            # In place: `run` holds on to the list.
            self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._clear_at = max(_CLEAR_AT, 2 * len(self._heap))
        return timer

    def soon_for(self, process: "Process", callback: Callback, args: tuple[object, ...]) -> None:
        """`call_soon` of one process."""
        self._soon.append((process, callback, args))

    def step(self, until_s: float) -> bool:
        """Run the next timer that is due by `until_s` and all it leads to at once.

        False, with the time set to `until_s`, when there is none.  Raises SimulationStuck.
        """
        if self._soon:
            self._run_soon()
        heap = self._heap
        while heap:
            due_s, _, timer = heap[0]
            if due_s > until_s:
                break
            heappop(heap)
            callback = timer.callback
            if callback is None:
                continue
            if due_s > self.now_s:
                self.now_s = due_s
                self._calls_this_instant = 0
            self.steps += 1
            timer.callback = None
            self._call(timer.process, callback, timer.args)
            if self._soon:
                self._run_soon()
            return True
        self.now_s = max(self.now_s, until_s)
        return False

    def run(self, until_s: float) -> None:
        """`step` until there is nothing more to run by `until_s`, with less ado.  Raises
        SimulationStuck."""
        heap, soon = self._heap, self._soon
        if soon:
            self._run_soon()
        while heap:
            due_s, _, timer = heap[0]
            if due_s > until_s:
                break
            heappop(heap)
            callback = timer.callback
            if callback is None:
                continue
            if due_s > self.now_s:
                self.now_s = due_s
                self._calls_this_instant = 0
            self.steps += 1
            timer.callback = None
            process = timer.process
            if process is None or process.is_running:
                self._calls_this_instant += 1
                self.current = process
                try:
                    callback(*timer.args)
                except Exception as error:
                    self._on_error(process, error)
                finally:
                    self.current = None
            else:
                process.park(callback, timer.args)
            if soon:
                self._run_soon()
        self.now_s = max(self.now_s, until_s)

    def _run_soon(self) -> None:
        soon = self._soon
        while soon:
            process, callback, args = soon.popleft()
            self._call(process, callback, args)

    def _call(
        self, process: "Process | None", callback: Callback, args: tuple[object, ...]
    ) -> None:
        if process is not None and not process.is_running:
            process.park(callback, args)
            return
        self._calls_this_instant += 1
        if self._calls_this_instant > MAX_CALLS_PER_INSTANT:
            raise SimulationStuck(
                f"{MAX_CALLS_PER_INSTANT} calls at {self.now_s:.3f} s, the last one {callback!r}"
            )
        before = self.current
        self.current = process
        try:
            callback(*args)
        except Exception as error:
            self._on_error(process, error)
        finally:
            self.current = before

    def clear(self) -> None:
        """Forget all calls."""
        self._heap.clear()
        self._soon.clear()
