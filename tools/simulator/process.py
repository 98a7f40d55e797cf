"""A process of the simulated world: what runs, stands still and dies as one.

Everything that makes a node do something passes its process: timers, results of threads, bytes that
arrive.  While it is frozen they wait; once it is dead they are dropped, its disk refuses, and what its
code still does (while an error unwinds, while memory is given back) reaches nobody.
"""

import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from .clock import Callback, SimClock, SimTimer

T = TypeVar("T")

_DROPPED: Final = SimTimer(lambda: None, (), None)


class ProcessState(Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class SimRandom(random.Random):
    """The Random port, and the rest of Python's `Random` for workloads."""

    def randrange(self, *args: Any) -> int:  # the port knows one argument only
        return super().randrange(*args)

    def bytes(self, count: int) -> bytes:
        return self.randbytes(count)


class Process:
    """One life of one process."""

    def __init__(self, world_clock: SimClock, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self.is_running = True
        self.skew_ms = 0
        self.clock = ProcessClock(world_clock, self)
        self._world_clock = world_clock
        self._parked: deque[tuple[Callback, tuple[object, ...]]] = deque()

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state.value}>"

    @property
    def is_dead(self) -> bool:
        return self.state is ProcessState.DEAD

    def park(self, callback: Callback, args: tuple[object, ...]) -> None:
        """Keep for later what falls due while the process is frozen."""
        if self.state is ProcessState.FROZEN:
            self._parked.append((callback, args))

    def enter(self, callback: Callback, *args: object) -> None:
        """Let something from outside happen inside the process: now, when it is thawed, or never."""
        clock = self._world_clock
        if self.is_running:
            clock._call(self, callback, args)
        else:
            self.park(callback, args)

    def freeze(self) -> None:
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.FROZEN
            self.is_running = False

    def thaw(self) -> None:
        """Go on: what waited happens at once, in its order."""
        if self.state is ProcessState.FROZEN:
            self.state = ProcessState.RUNNING
            self.is_running = True
            parked, self._parked = self._parked, deque()
            for callback, args in parked:
                self._world_clock.soon_for(self, callback, args)

    def kill(self) -> None:
        self.state = ProcessState.DEAD
        self.is_running = False
        self._parked.clear()


class ProcessClock:
    """The Clock port of one process: the world's time, its own wall clock."""

    __slots__ = ("_process", "_world", "monotonic")

    def __init__(self, world: SimClock, process: Process) -> None:
        self._world = world
        self._process = process
        self.monotonic = world.monotonic

    def now_ms(self) -> int:
        return self._world.now_ms() + self._process.skew_ms

    def call_later(self, delay_s: float, callback: Callback, *args: object) -> SimTimer:
        process = self._process
        if process.state is ProcessState.DEAD:
            return _DROPPED
        return self._world.call_for(process, delay_s, callback, args)

    def call_soon(self, callback: Callback, *args: object) -> None:
        process = self._process
        if process.state is not ProcessState.DEAD:
            self._world.soon_for(process, callback, args)


class SimThreads:
    """The Threads port: work is done at one instant after a drawn delay, in any order."""

    def __init__(
        self, world: SimClock, process: Process, delay_s: Callable[[], float] = lambda: 0.001
    ) -> None:
        self._world = world
        self._process = process
        self.delay_s = delay_s

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        result: Deferred[T] = Deferred()
        process = self._process

        def work() -> None:
            try:
                value: Any = function(*args)
            except Exception:
                value = Failure()
            if not result.called:
                result.callback(value)  # a Failure takes the error path by itself

        if process.state is not ProcessState.DEAD:
            self._world.call_for(process, self.delay_s(), work, ())
        return result
