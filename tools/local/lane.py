"""One direction of one connection, as its link allows."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kafkalike.runtime.ports import Clock, Timer

from .links import OPEN, Direction


class Lane:
    """One direction of one connection: passes things on in order, as its direction allows."""

    def __init__(self, clock: Clock, deliver: Callable[[Any], object]) -> None:
        self._clock = clock
        self._deliver = deliver
        self._waiting: deque[tuple[float, Any]] = deque()
        self._direction = OPEN
        self._timer: Timer | None = None

    @property
    def is_clear(self) -> bool:
        """Nothing waits and nothing would have to: what comes now may pass at once."""
        return not self._waiting and self._direction == OPEN

    def set(self, direction: Direction) -> None:
        self._direction = direction
        self._flow()

    def put(self, item: Any) -> None:
        self._waiting.append((self._clock.monotonic() + self._direction.delay_s, item))
        self._flow()

    def drain(self) -> list[Any]:
        """Everything that waits, taken out."""
        found = [item for _, item in self._waiting]
        self._waiting.clear()
        self._stop_timer()
        return found

    def _flow(self) -> None:
        self._stop_timer()
        while self._waiting and not self._direction.cut:
            due_s = self._waiting[0][0] if self._direction.delay_s else 0.0
            wait_s = due_s - self._clock.monotonic()
            if wait_s > 0:
                self._timer = self._clock.call_later(wait_s, self._flow)
                return
            self._deliver(self._waiting.popleft()[1])

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
