"""The real ports: reactor, clock, chance, threads; and `make_runtime`, which puts them together.

`install_reactor` makes a leaner epoll reactor the one of this process.  Everything also runs on any
stock Twisted reactor that has `addReader`; only the figures differ (performance: 12 instead of 27 us
for a small request).
"""

import logging
import os
import random
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.python import log
from twisted.python.failure import Failure

from .disk import RealDisk
from .network import RealNetwork
from .ports import Runtime, Worker
from .transport import SharedOutput

T = TypeVar("T")

THREAD_COUNT: Final = 4

_EPOLLIN: Final = select.EPOLLIN
_EPOLLOUT: Final = select.EPOLLOUT


class SlimReactor(EPollReactor):
    """An epoll reactor without a logging context around each plain event, and with an end of turn.

    Private names of Twisted used here: `_poller`, `_selectables`, `_doReadOrWrite`,
    `_disconnectSelectable`; a test checks that they are there.
    """

    def __init__(self) -> None:
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.output = SharedOutput(polled=True)
        super().__init__()  # type: ignore[no-untyped-call]
        self.addSystemEventTrigger("before", "shutdown", self.output.flush)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call when the events of this turn are done, before waiting for more."""
        self._soon.append((callback, args))

    def doPoll(self, timeout: float | None) -> None:
        soon = self._soon
        if soon:
            # Timed calls, which run before this, may have left work for the end of their turn.
            self._run_soon()
            if soon:
                timeout = 0
        if timeout is None:
            timeout = -1
        selectables = self._selectables
        flushing = self.output.waiting
        if flushing:
            timeout = 0
        try:
            events = self._poller.poll(timeout, len(selectables))
        except InterruptedError:
            return
        if flushing:
            self.output.flush()
        self.output.crowded = len(events) > 1
        for fd, event in events:
            selectable = selectables.get(fd)
            if selectable is None:
                continue
            try:
                if event == _EPOLLIN:
                    why = selectable.doRead()
                elif event == _EPOLLOUT:
                    why = selectable.doWrite()
                else:
                    log.callWithLogger(selectable, self._doReadOrWrite, selectable, fd, event)
                    continue
            except Exception as error:
                log.err()
                why = error
            if why:
                self._disconnectSelectable(selectable, why, event == _EPOLLIN)  # type: ignore[no-untyped-call]
        if soon:
            self._run_soon()

    doIteration = doPoll

    def _run_soon(self) -> None:
        soon = self._soon
        for _ in range(len(soon)):
            callback, args = soon.popleft()
            try:
                callback(*args)
            except Exception:
                log.err()


def install_reactor() -> Any:
    """Make a SlimReactor the reactor of this process and return it.

    Raises ReactorAlreadyInstalledError when another one is there already.
    """
    from twisted.internet.main import installReactor

    reactor = SlimReactor()
    installReactor(reactor)
    return reactor


class RealTimer:
    """A `callLater` whose cancellation never raises."""

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def cancel(self) -> None:
        if self._call.active():
            self._call.cancel()


class RealClock:
    """The machine's clocks and a reactor's timers."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._soon: Callable[..., object] = getattr(reactor, "call_soon", None) or partial(
            reactor.callLater, 0
        )

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> RealTimer:
        return RealTimer(self._reactor.callLater(delay_s, callback, *args))

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._soon(callback, *args)


class SystemRandom:
    """Chance from the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)


class RealThreads:
    """A few daemon threads for calls that block; results come back in batches.

    Threads start with the first work.  Finished work is collected while one wake-up of the loop
    is on its way, so a burst of results costs one.
    """

    def __init__(self, reactor: Any, count: int = THREAD_COUNT) -> None:
        self._reactor = reactor
        self._count = count
        self._started = 0
        self._idle = 0
        self._jobs: SimpleQueue[
            tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]] | None
        ] = SimpleQueue()
        self._done: deque[tuple[Deferred[Any], Any]] = deque()
        self._waking = False
        self._lock = threading.Lock()
        self._outstanding = 0
        self._stopped = False

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        if self._stopped:
            raise RuntimeError("the threads of this runtime are stopped")
        result: Deferred[T] = Deferred()
        self._outstanding += 1
        if self._started < self._count and self._outstanding > self._started:
            self._started += 1
            threading.Thread(
                target=self._work, name=f"kafkalike-{self._started}", daemon=True
            ).start()
        self._jobs.put((result, function, args))
        return result

    def stop(self) -> None:
        """End the threads once they have done what they were given; results still arrive."""
        self._stopped = True
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, function, args = job
            value: Any
            try:
                value = function(*args)
            except BaseException:
                value = Failure()
            with self._lock:
                self._done.append((result, value))
                wake = not self._waking
                self._waking = True
            if wake:
                self._reactor.callFromThread(self._deliver)
            del job, result, function, args, value

    def _deliver(self) -> None:
        with self._lock:
            self._waking = False
            done, self._done = self._done, deque()
        for result, value in done:
            self._outstanding -= 1
            try:
                # A Failure takes the error path by itself; a cancelled result swallows it.
                result.callback(value)
            except Exception:
                logging.getLogger("kafkalike").exception("result of a thread was not wanted")


def make_runtime(reactor: Any, *, worker: Worker | None = None) -> Runtime:
    """The real world, on the given reactor."""
    clock = RealClock(reactor)
    threads = RealThreads(reactor)
    return Runtime(
        clock=clock,
        random=SystemRandom(),
        disk=RealDisk(),
        threads=threads,
        network=RealNetwork(reactor, clock, threads),
        worker=worker,
    )
