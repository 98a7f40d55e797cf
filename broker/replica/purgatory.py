"""Requests that wait: keyed, completed exactly once, bounded in time (reference: replication 15).

An operation is tried, registered under all its keys and tried once more, so that a change between
the first try and the registration is not missed.  Whoever changes something names the key; the
operations waiting there are tried again.  Time-outs share one timer wheel.
"""

from collections.abc import Hashable, Iterable

from kafkalike.runtime.tasks import TimerWheel, WheelTimer


class DelayedOperation:
    """A request that waits for something.  Subclasses say what, and what happens then.

    Exactly one of the ways to completion (condition met, time-out, `force_complete` by anybody)
    runs `on_complete`; all later ones find it done.
    """

    __slots__ = ("_home", "_keys", "_timer", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._home: Purgatory | None = None
        self._keys: tuple[Hashable, ...] = ()
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
        if self._home is not None:
            self._home._forget(self)
        self.on_complete()
        return True

    def expire(self) -> None:
        """The time is over."""
        if not self.completed:
            self.on_expire()
            self.force_complete()


class Purgatory:
    """Waiting operations of one kind by key.

    Nothing is left behind by a completed operation.  Bounded by the connections of the broker (one
    request each) and by the time-outs.
    """

    def __init__(self, name: str, wheel: TimerWheel) -> None:
        self.name = name
        self._wheel = wheel
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._delayed = 0
        self.keys = self._watched.keys()
        """What is waited for; always the present state."""

    @property
    def delayed(self) -> int:
        """Operations that wait."""
        return self._delayed

    @property
    def watched(self) -> int:
        """Registrations: an operation counts once for each of its keys."""
        return sum(len(operations) for operations in self._watched.values())

    def watches(self, key: Hashable) -> bool:
        """Whether anything waits for `key`."""
        return key in self._watched

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_s: float
    ) -> bool:
        """Complete at once if possible, else wait for the keys.  True when completed."""
        return operation.try_complete() or self.watch(operation, keys, timeout_s)

    def watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_s: float
    ) -> bool:
        """Register an operation that its caller has just tried, and try again.

        True when that completed it.  Without time left it expires at once.
        """
        assert operation._home is None and not operation.completed
        operation._home = self
        operation._keys = tuple(dict.fromkeys(keys))
        self._delayed += 1
        for key in operation._keys:
            waiting = self._watched.get(key)
            if waiting is None:
                self._watched[key] = {operation: None}
            else:
                waiting[operation] = None
        if operation.try_complete():
            return True
        if timeout_s <= 0:
            operation.expire()
            return True
        operation._timer = self._wheel.call_later(timeout_s, operation.expire)
        return False

    def check(self, key: Hashable) -> int:
        """Try the operations that wait for `key`, oldest first; how many were completed."""
        waiting = self._watched.get(key)
        if waiting is None:
            return 0
        completed = 0
        for operation in list(waiting):
            if not operation.completed and operation.try_complete():
                completed += 1
        return completed

    def force(self, key: Hashable) -> None:
        """Complete what waits for `key` as it is now."""
        for operation in list(self._watched.get(key, ())):
            operation.force_complete()

    def expire_all(self) -> None:
        """Let every operation run into its time-out now (the broker stops)."""
        for waiting in list(self._watched.values()):
            for operation in list(waiting):
                operation.expire()

    def _forget(self, operation: DelayedOperation) -> None:
        self._delayed -= 1
        if operation._timer is not None:
            operation._timer.cancel()
            operation._timer = None
        for key in operation._keys:
            waiting = self._watched[key]
            del waiting[operation]
            if not waiting:
                del self._watched[key]
