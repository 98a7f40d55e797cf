"""A clock that can be moved forward: real time plus what was skipped.

Timers that fall into skipped time run at once, in the order of their time, and the loop gets a chance
to carry messages between the brokers meanwhile.  Up to an hour is walked in steps that no timeout
between brokers notices; of a longer way the first part is one leap, after which brokers may have
to connect to each other anew.
"""

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import Clock, Timer

STEPS: Final = 360
SHORTEST_STEP_S: Final = 0.5
LONGEST_STEP_S: Final = 10.0
CLEAR_AT: Final = 10_000
"""So many timers make the cancelled ones go."""
TURNS_PER_STEP: Final = 8
"""How often the loop turns in each step: a request between two brokers and its answer take four."""

_log = logging.getLogger("kafkalike.clock")


class _VirtualTimer:
    __slots__ = ("args", "callback", "cancelled", "due_s", "number")

    def __init__(
        self, due_s: float, number: int, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.due_s = due_s
        self.number = number
        self.callback = callback
        self.args = args
        self.cancelled = False

    def __lt__(self, other: "_VirtualTimer") -> bool:
        return (self.due_s, self.number) < (other.due_s, other.number)

    def cancel(self) -> None:
        """It stays in the heap, without what it would have called, until its time or a clearing."""
        self.cancelled = True
        self.callback = _nothing
        self.args = ()


class VirtualClock:
    """A Clock over another one; see the module."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self._offset_s = 0.0
        self._timers: list[_VirtualTimer] = []
        self._count = 0
        self._clear_at = CLEAR_AT
        self._armed: Timer | None = None
        self._armed_s = 0.0
        self.call_soon = real.call_soon

    def now_ms(self) -> int:
        return self._real.now_ms() + int(self._offset_s * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self._offset_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        self._count += 1
        timer = _VirtualTimer(self.monotonic() + delay_s, self._count, callback, args)
        heappush(self._timers, timer)
        if len(self._timers) > self._clear_at:
            self._timers[:] = [one for one in self._timers if not one.cancelled]
            heapify(self._timers)
            self._clear_at = max(CLEAR_AT, 2 * len(self._timers))
        if self._armed is None or timer.due_s < self._armed_s:
            self._arm()
        return timer

    async def advance(self, seconds: float) -> None:
        """Move forward.  Returns when what falls into that time has happened."""
        walked_s = min(seconds, STEPS * LONGEST_STEP_S)
        step_s = max(SHORTEST_STEP_S, walked_s / STEPS)
        target_s = self.monotonic() + seconds
        self._offset_s += seconds - walked_s
        self._run()
        await self._settle()
        while (left_s := target_s - self.monotonic()) > 0:
            self._offset_s += min(step_s, left_s)
            self._run()
            await self._settle()

    async def _settle(self) -> None:
        for _ in range(TURNS_PER_STEP):
            turned: Deferred[None] = Deferred()
            self._real.call_later(0.0, turned.callback, None)
            await turned

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        timers = self._timers
        while timers and timers[0].cancelled:
            heappop(timers)
        if timers:
            self._armed_s = timers[0].due_s
            wait_s = max(0.0, self._armed_s - self.monotonic())
            self._armed = self._real.call_later(wait_s, self._run)

    def _run(self) -> None:
        """Call what is due; what is set meanwhile waits for the next turn, as on a real loop."""
        now_s = self.monotonic()
        last = self._count
        timers = self._timers
        later: list[_VirtualTimer] = []
        while timers and timers[0].due_s <= now_s:
            timer = heappop(timers)
            if timer.cancelled:
                continue
            if timer.number > last:
                later.append(timer)
                continue
            try:
                timer.callback(*timer.args)
            except Exception:
                _log.exception("a timed call failed")
        for timer in later:
            heappush(timers, timer)
        self._arm()


def _nothing(*args: object) -> None:
    """In the place of a cancelled call."""
