"""A result that comes now or later, of a rule that calls back at once or when it can."""

from typing import Generic, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


class Answer(Generic[T]):
    """Given to `put`, taken with `get`: the value itself if it is there already, else a Deferred."""

    __slots__ = ("_deferred", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._deferred: Deferred[T] | None = None

    def put(self, value: T) -> None:
        if self._deferred is None:
            self._value = value
        elif not self._deferred.called:
            self._deferred.callback(value)

    def get(self) -> "T | Deferred[T]":
        if self._value is not None:
            return self._value
        self._deferred = Deferred()
        return self._deferred
