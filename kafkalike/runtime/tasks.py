"""Background work, waiting, locks and queues over a Clock.

Everything here is made for one loop: nothing is safe to touch from another thread.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from .ports import Clock, Timer

T = TypeVar("T")

TICK_S = 0.010


class TimedOut(Exception):
    """Something did not happen within the time allowed for it."""


class QueueFull(Exception):
    """A bounded queue has no room."""


class Closed(Exception):
    """The queue was closed while somebody waited for it, or before."""


def sleep(clock: Clock, delay_s: float) -> "Deferred[None]":
    """Fire after `delay_s` seconds; cancelling stops the timer."""
    timer: Timer
    done: Deferred[None] = Deferred(lambda _: timer.cancel())
    timer = clock.call_later(delay_s, done.callback, None)
    return done


def as_deferred(work: "Awaitable[T]") -> "Deferred[T]":
    """A coroutine starts at once; a Deferred is returned as it is."""
    if isinstance(work, Deferred):
        return work
    assert isinstance(work, Coroutine)
    return Deferred.fromCoroutine(work)


def timeout(clock: Clock, work: "Awaitable[T]", limit_s: float, what: str) -> "Deferred[T]":
    """The result of `work`; after `limit_s` seconds it is cancelled and this fails with TimedOut.

    `what` names the thing waited for in the error.  Work that ignores cancellation does not hold
    up the failure.
    """
    source = as_deferred(work)
    expired = False

    def cancel(_: "Deferred[T]") -> None:
        source.cancel()

    result: Deferred[T] = Deferred(cancel)

    def expire() -> None:
        nonlocal expired
        expired = True
        source.cancel()
        if not result.called:
            result.errback(TimedOut(f"{what} took longer than {limit_s:g} s"))

    timer = clock.call_later(limit_s, expire)

    def settle(value: "T | Failure") -> None:
        timer.cancel()
        if result.called:
            return
        if isinstance(value, Failure) and expired:
            result.errback(TimedOut(f"{what} took longer than {limit_s:g} s"))
        else:
            result.callback(value)  # a Failure takes the error path by itself

    source.addBoth(settle)
    return result


class _Ended(Deferred[None]):
    """Fires when a task has really ended; cancelling it cancels the task, which may take its time."""

    def __init__(self, source: "Deferred[Any]") -> None:
        super().__init__()
        self._source = source

    def cancel(self) -> None:
        self._source.cancel()


class Tasks:
    """The background work of one owner: spawned here, watched here, cancelled together.

    An error that comes out of a task is logged with its traceback, counted in `failed` and given to
    `on_error`; it never goes unnoticed and never reaches another task.
    """

    def __init__(
        self,
        logger: logging.Logger,
        on_error: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self._logger = logger
        self._on_error = on_error
        self._running: dict[int, _Ended] = {}
        self._next_id = 0
        self._closed = False
        self.failed = 0

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> "Deferred[None]":
        """Start `work` at once; the result fires with None when it has ended, however it ended.

        Cancelling the result cancels the work.  After `stop` the work is closed unstarted.
        """
        if self._closed:
            work.close()
            return succeed(None)
        task_id = self._next_id
        self._next_id += 1
        source = Deferred.fromCoroutine(work)
        ended = _Ended(source)
        self._running[task_id] = ended

        def settle(value: object) -> None:
            del self._running[task_id]
            if isinstance(value, Failure) and not value.check(CancelledError):
                self._report(name, value)
            ended.callback(None)

        source.addBoth(settle)
        return ended

    def _report(self, name: str, failure: Failure) -> None:
        self.failed += 1
        error = failure.value
        assert isinstance(error, BaseException)
        self._logger.error(
            "background task failed task=%s", name, exc_info=(type(error), error, failure.tb)
        )
        if self._on_error is not None:
            self._on_error(name, error)

    def __len__(self) -> int:
        return len(self._running)

    def cancel_all(self) -> "Deferred[None]":
        """Cancel what runs; fires when all of it has ended."""
        running = list(self._running.values())
        everything: Deferred[Any] = DeferredList([_follow(task) for task in running])
        for task in running:
            task.cancel()
        return everything.addCallback(lambda _: None)

    def stop(self) -> "Deferred[None]":
        """Like `cancel_all`, and nothing can be spawned any more."""
        self._closed = True
        return self.cancel_all()


def _follow(source: "Deferred[None]") -> "Deferred[None]":
    follower: Deferred[None] = Deferred()

    def pass_on(value: None) -> None:
        follower.callback(None)

    source.addCallback(pass_on)
    return follower


class Mutex:
    """One holder at a time, first come first served.  Use as `async with mutex:`."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Deferred[None]] = deque()

    @property
    def held(self) -> bool:
        return self._held

    async def __aenter__(self) -> None:
        if not self._held:
            self._held = True
            return
        turn: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(turn)
        await turn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._waiting:
            self._waiting.popleft().callback(None)
        else:
            self._held = False


class Queue(Generic[T]):
    """First in, first out, at most `limit` items; any number of getters."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._items: deque[T] = deque()
        self._getters: deque[Deferred[T]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Raises QueueFull when `limit` items wait already, Closed after `close`."""
        if self._closed:
            raise Closed("queue is closed")
        if self._getters:
            self._getters.popleft().callback(item)
        elif len(self._items) >= self._limit:
            raise QueueFull(f"queue holds its limit of {self._limit} items")
        else:
            self._items.append(item)

    def get(self) -> "Deferred[T]":
        """The oldest item, now or when one comes; fails with Closed.  May be cancelled."""
        if self._items:
            return succeed(self._items.popleft())
        waiter: Deferred[T] = Deferred(self._getters.remove)
        if self._closed:
            waiter.errback(Closed("queue is closed"))
        else:
            self._getters.append(waiter)
        return waiter

    def close(self) -> None:
        """Drop all items and fail all getters with Closed."""
        self._closed = True
        self._items.clear()
        while self._getters:
            self._getters.popleft().errback(Closed("queue is closed"))


class WheelTimer:
    """A pending call of a TimerWheel; `cancel` only marks it, so it costs nothing."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    @property
    def pending(self) -> bool:
        return self.callback is not None

    def cancel(self) -> None:
        """Forget the call; harmless when it already ran or was cancelled."""
        self.callback = None
        self.args = ()


class TimerWheel:
    """Many timers that need no precision: calls come up to one tick late, never early.

    One `call_later` of the clock serves all timers; none is pending while there are no timers.  Made
    for long polls, request timeouts and idle connections (performance: a timer here costs 0.4 us
    and 200 bytes, a `call_later` five times as much).  An error out of a callback is logged and
    does not disturb the other timers.
    """

    def __init__(self, clock: Clock, logger: logging.Logger, tick_s: float = TICK_S) -> None:
        self._clock = clock
        self._logger = logger
        self._tick_s = tick_s
        self._buckets: dict[int, list[WheelTimer]] = {}
        self._ticks: list[int] = []
        self._armed: Timer | None = None
        self._armed_tick = 0
        self._last_tick = 0

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer:
        """Call once, `delay_s` to `delay_s` plus one tick from now."""
        timer = WheelTimer(callback, args)
        # Never the tick that is being run: a callback that sets its timer again must not keep it going.
        tick = max(int((self._clock.monotonic() + delay_s) / self._tick_s), self._last_tick) + 1
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.append(timer)
            return timer
        self._buckets[tick] = [timer]
        heappush(self._ticks, tick)
        if self._armed is None or tick < self._armed_tick:
            self._arm()
        return timer

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        if self._ticks:
            self._armed_tick = self._ticks[0]
            wait_s = self._armed_tick * self._tick_s - self._clock.monotonic()
            self._armed = self._clock.call_later(max(0.0, wait_s), self._turn)

    def _turn(self) -> None:
        self._armed = None
        # The clock may read a hair less than the time it was asked to wait for.
        now_tick = max(int(self._clock.monotonic() / self._tick_s), self._armed_tick)
        self._last_tick = now_tick
        while self._ticks and self._ticks[0] <= now_tick:
            for timer in self._buckets.pop(heappop(self._ticks)):
                callback, args = timer.callback, timer.args
                if callback is None:
                    continue
                timer.cancel()
                try:
                    callback(*args)
                except Exception:
                    self._logger.exception("timer callback failed")
        if self._armed is None:
            self._arm()

    def stop(self) -> None:
        """Forget all timers."""
        self._buckets.clear()
        self._ticks.clear()
        self._arm()
