"""Requests that wait: keyed, completed exactly once, bounded in time (reference: replication 15).

An operation is tried, registered under all its keys and tried once more, so that a change between
the first try and the registration is not missed.  Whoever changes something names the key; the
operations waiting there are tried again.  Time-outs run on one timer wheel for all operations, so a
waiting request costs no timer of its own.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from kafkalike.runtime.ports import Clock, Timer

TICK_S: Final = 0.01
"""Resolution of the wheel."""


class WheelTimer:
    """One pending call of a `TimerWheel`."""

    __slots__ = ("callback", "tick")

    def __init__(self, callback: Callable[[], object], tick: int) -> None:
        self.callback: Callable[[], object] | None = callback
        self.tick = tick

    def cancel(self) -> None:
        """Forget the call; harmless when it already ran or was cancelled."""
        self.callback = None


class TimerWheel:
    """Many coarse timers over one `Clock.call_later`.

    A call runs at the first tick (10 ms) at or after its time.  While nothing is pending no timer of
    the clock is held.
    """

    __slots__ = ("_clock", "_slots", "_timer", "_next_tick", "_origin_s", "_running")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin_s = clock.monotonic()
        self._slots: dict[int, list[WheelTimer]] = {}
        self._timer: Timer | None = None
        self._next_tick = 0
        self._running = False

    def __len__(self) -> int:
        """Calls that are still to run."""
        return sum(1 for slot in self._slots.values() for timer in slot if timer.callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> WheelTimer:
        """Call once after `delay_s` seconds, rounded up to a tick."""
        elapsed_s = self._clock.monotonic() - self._origin_s
        tick = int((elapsed_s + max(delay_s, 0.0)) / TICK_S) + 1
        timer = WheelTimer(callback, tick)
        slot = self._slots.get(tick)
        if slot is None:
            self._slots[tick] = [timer]
            self._arm(tick)
        else:
            slot.append(timer)
        return timer

    def stop(self) -> None:
        """Forget all calls."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, tick: int) -> None:
        if self._running or (self._timer is not None and self._next_tick <= tick):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        due_s = self._origin_s + tick * TICK_S
        self._timer = self._clock.call_later(max(due_s - self._clock.monotonic(), 0.0), self._run)

    def _run(self) -> None:
        self._timer = None
        self._running = True
        try:
            now_tick = int((self._clock.monotonic() - self._origin_s) / TICK_S + 1e-6)
            for tick in sorted(tick for tick in self._slots if tick <= now_tick):
                for timer in self._slots.pop(tick):
                    callback, timer.callback = timer.callback, None
                    if callback is not None:
                        callback()
        finally:
            self._running = False
            if self._slots:
                self._arm(min(self._slots))


class DelayedOperation:
    """A request that waits for something.  Subclasses say what, and what happens then.

    Exactly one of the ways to completion (condition met, time-out, `force_complete` by anybody)
    runs `on_complete`; all later ones find it done.
    """

    __slots__ = ("completed", "_timer")

    def __init__(self) -> None:
        self.completed = False
        self._timer: WheelTimer | None = None

    def try_complete(self) -> bool:
        """Check the condition; when it holds return `force_complete()`, else False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Give the answer.  Called exactly once."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Called before `on_complete` when the time ran out."""

    def force_complete(self) -> bool:
        """Complete now.  False when somebody else already did."""
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.on_complete()
        return True


class Purgatory:
    """Waiting operations of one kind by key.

    Bound: completed operations are swept out of the lists of other keys when `purge_interval` have
    gathered, and a list loses its completed members whenever its key is checked.
    """

    def __init__(self, name: str, wheel: TimerWheel, *, purge_interval: int = 1000) -> None:
        self.name = name
        self._wheel = wheel
        self._purge_interval = purge_interval
        self._watched: dict[Hashable, list[DelayedOperation]] = {}
        self._delayed = 0
        self._stale = 0
        self._multi = 0

    @property
    def delayed(self) -> int:
        """Operations that wait."""
        return self._delayed

    def watches(self, key: Hashable) -> bool:
        """Whether anything may wait for `key`."""
        return key in self._watched

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_s: float
    ) -> bool:
        """Complete at once if possible, else wait for the keys.  True when completed."""
        raise NotImplementedError

    def check(self, key: Hashable) -> int:
        """Try the operations that wait for `key`; how many were completed."""
        raise NotImplementedError
