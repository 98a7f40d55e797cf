"""Who waits for which partition, and when they are tried again.

Changes come in the middle of appends and fetches; the waiting requests are tried when the events of
the turn are done, producers first, so that nobody's acknowledgement waits behind a thousand
fetchers (reference: replication 15).
"""

from collections.abc import Callable, Hashable

from kafkalike.runtime.tasks import TimerWheel

from .partition import Changed, Partition
from .purgatory import Purgatory
from .values import NO_OFFSET

_COMMITTED = Changed.HIGH_WATERMARK | Changed.ROLE
_APPENDED = Changed.LOG_END | Changed.ROLE
_STARTED = Changed.LOG_START | Changed.ROLE


class Wakeups:
    """The purgatories of the replica manager.

    Keys are partitions; a fetch that belongs to a session waits under the session instead, which its
    partitions mark.  `consumers` wait for the high watermark, `followers` for the log end.  A
    follower's fetch waits under its broker id too.
    """

    def __init__(
        self, wheel: TimerWheel, call_soon: Callable[[Callable[[], object]], object]
    ) -> None:
        self.produce = Purgatory("Produce", wheel)
        self.delete_records = Purgatory("DeleteRecords", wheel)
        self.consumers = Purgatory("Fetch", wheel)
        self.followers = Purgatory("Fetch", wheel)
        # Asked at each append.
        self._producing = self.produce.keys
        self._consuming = self.consumers.keys
        self._following = self.followers.keys
        self._call_soon = call_soon
        self._scheduled = False
        self._due: dict[tuple[Purgatory, Hashable], None] = {}
        self._due_first: dict[tuple[Purgatory, Hashable], None] = {}
        self._hurried: dict[int, None] = {}

    def changed(self, partition: Partition, what: int) -> None:
        """Note that a partition changed; see `Partition`."""
        watchers = partition.watchers
        if watchers is not None:
            for entry in watchers:
                session = entry.session
                if session is None:
                    continue
                session.mark(entry)
                if session.replica_id >= 0:
                    if what & _APPENDED and self.followers.watches(session):
                        self._add(self.followers, session)
                elif what & _COMMITTED and self.consumers.watches(session):
                    self._add(self.consumers, session)
        key = partition.topic_partition
        if what & _COMMITTED:
            # Nobody waits, mostly: that is seen without a hash of the key.
            if self._producing and key in self._producing:
                self._add_first(self.produce, key)
            if self._consuming and key in self._consuming:
                self._add(self.consumers, key)
        if what & _APPENDED and self._following and key in self._following:
            self._add(self.followers, key)
        if what & _STARTED and self.delete_records.watches(key):
            self._add_first(self.delete_records, key)

    def _add(self, purgatory: Purgatory, key: Hashable) -> None:
        self._due[(purgatory, key)] = None
        self._schedule()

    def _add_first(self, purgatory: Purgatory, key: Hashable) -> None:
        self._due_first[(purgatory, key)] = None
        self._schedule()

    def await_first_fetch(self, partition: Partition) -> None:
        """Somebody waits for a partition that some follower has not fetched in this epoch.

        The fetch that the follower has waiting here is older than its order to follow; it is
        answered now, so that the next one, with the partition in it, need not wait for its time-out.
        """
        for replica in partition.remotes:
            if replica.log_end_offset == NO_OFFSET and self.followers.watches(replica.broker_id):
                self._hurried[replica.broker_id] = None
                self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self.drain)

    def drain(self) -> None:
        """Try those who wait for what changed.  Completions may change more: that comes later."""
        self._scheduled = False
        for due in (self._due_first, self._due):
            keys = list(due)
            due.clear()
            for purgatory, key in keys:
                purgatory.check(key)
        hurried, self._hurried = self._hurried, {}
        for broker_id in hurried:
            self.followers.force(broker_id)

    def expire_all(self) -> None:
        """Answer everything that waits as if its time were over."""
        for purgatory in (self.produce, self.delete_records, self.consumers, self.followers):
            purgatory.expire_all()
