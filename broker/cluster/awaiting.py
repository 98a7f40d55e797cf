"""Requests that wait until this broker's metadata shows what they asked for.

CreateTopics, CreatePartitions, DeleteTopics and ElectLeaders answer when the metadata cache of the
broker that serves them has caught up, or after their timeout (reference: replication 15).
"""

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import Clock, Timer

from .metadata_cache import MetadataCache, MetadataSnapshot, MetadataUpdate

Done = Callable[[MetadataSnapshot], bool]


class _Waiting:
    """One request: its Deferred fires True when done, False at the timeout."""

    __slots__ = ("done", "result", "timer", "topics")

    def __init__(self, topics: tuple[str, ...], done: Done) -> None:
        self.topics = topics
        self.done = done
        self.result: Deferred[bool] = Deferred()
        self.timer: Timer | None = None


class FirstUpdate:
    """Holds back answers that would show an empty cluster only because nobody has told us yet.

    A new controller first tells everybody who is alive, and of no partition (reference: controller 3):
    to a broker that has just started that is no picture of the cluster as long as there are topics
    (`MetadataCache.lacks_topics`).

    Bounded: after `limit_s` without a word of any controller the answer shows what is known; and
    `limit_s` after a controller spoke of brokers only, topics count as known whoever waits.
    """

    def __init__(self, cache: MetadataCache, clock: Clock, limit_s: float) -> None:
        self._cache = cache
        self._clock = clock
        self._limit_s = limit_s
        self._waiting: list[Deferred[None]] = []
        self._for_topics: Timer | None = None
        cache.add_listener(self._updated)

    def wait(self) -> "Deferred[None] | None":
        """None when there is nothing to wait for."""
        if self._has_come:
            return None
        result: Deferred[None] = Deferred()
        self._waiting.append(result)
        timer = self._clock.call_later(self._limit_s, self._give_up, result)

        def stop_timer(value: None) -> None:
            timer.cancel()

        return result.addCallback(stop_timer)

    @property
    def _has_come(self) -> bool:
        return self._cache.snapshot.version > 0 and not self._cache.lacks_topics

    def _give_up(self, result: "Deferred[None]") -> None:
        self._waiting.remove(result)
        result.callback(None)

    def _updated(self, _: MetadataUpdate) -> None:
        if self._has_come:
            self._release()
        elif self._for_topics is None:
            self._for_topics = self._clock.call_later(self._limit_s, self._give_up_topics)

    def _give_up_topics(self) -> None:
        self._cache.lacks_topics = False
        self._release()

    def _release(self) -> None:
        if self._for_topics is not None:
            self._for_topics.cancel()
            self._for_topics = None
        waiting, self._waiting = self._waiting, []
        for result in waiting:
            result.callback(None)

    def stop(self) -> None:
        """Answer everybody now."""
        self._release()


class MetadataWaiter:
    """Waits on topics; woken by metadata updates that touch them.

    Bounded by the number of connections: each carries one request at a time.
    """

    def __init__(self, cache: MetadataCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._by_topic: dict[str, list[_Waiting]] = {}
        cache.add_listener(self._updated)

    def wait(self, topics: Iterable[str], done: Done, timeout_ms: int) -> "Deferred[bool]":
        """Fires True as soon as `done(snapshot)` holds, False after `timeout_ms`."""
        waiting = _Waiting(tuple(dict.fromkeys(topics)), done)
        if done(self._cache.snapshot):
            waiting.result.callback(True)
            return waiting.result
        for topic in waiting.topics:
            self._by_topic.setdefault(topic, []).append(waiting)
        waiting.timer = self._clock.call_later(timeout_ms / 1000, self._finish, waiting, False)
        return waiting.result

    def stop(self) -> None:
        """Let every waiting request go, as timed out."""
        for waiting in {id(w): w for ws in self._by_topic.values() for w in ws}.values():
            self._finish(waiting, False)

    def __len__(self) -> int:
        return len({id(w) for ws in self._by_topic.values() for w in ws})

    def _updated(self, update: MetadataUpdate) -> None:
        candidates: dict[int, _Waiting] = {}
        for topic in update.topics:
            for waiting in self._by_topic.get(topic, ()):
                candidates[id(waiting)] = waiting
        for waiting in candidates.values():
            if waiting.done(update.snapshot):
                self._finish(waiting, True)

    def _finish(self, waiting: _Waiting, outcome: bool) -> None:
        if waiting.result.called:
            return
        for topic in waiting.topics:
            left = [w for w in self._by_topic[topic] if w is not waiting]
            if left:
                self._by_topic[topic] = left
            else:
                del self._by_topic[topic]
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.result.callback(outcome)
