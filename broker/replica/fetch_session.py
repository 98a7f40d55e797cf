"""Incremental fetch sessions, server side (KIP-227; reference: replication 11).

A session remembers what a consumer or follower fetches and what it was told last, so that request
and answer name only what changed.  Each session also keeps the set of its *dirty* partitions: those
that may have something to say.  Partitions mark their watchers dirty when they change, so an idle
session of a thousand partitions costs a fetch next to nothing.

A partition is taken off the set when it was read without limit and answered nothing; it comes back
when it changes or the request names it.  The set is also the order of the answers: a partition that
returned records goes to the end.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafkalike.errors import (
    NONE,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    UnknownTopicId,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.runtime.ports import Clock, Random
from kafkalike.types import ZERO_UUID, TopicPartition

from .values import NO_OFFSET, FetchPartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICTION_S: Final = 120.0
"""A session unused for so long gives way to any new one."""

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
SessionKey = tuple[bytes | str, int]
"""Topic id (or name where the request version has names) and partition number."""


def next_epoch(epoch: int) -> int:
    """The epoch of the request after `epoch`; never 0 or negative again."""
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


class FetchSession:
    """What one client fetches incrementally."""

    __slots__ = (
        "created_s",
        "dirty",
        "epoch",
        "id",
        "last_fetch_s",
        "last_used_s",
        "partitions",
        "privileged",
        "replica_id",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, privileged: bool, uses_topic_ids: bool, now_s: float
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_s = now_s
        self.last_used_s = now_s
        self.epoch = 1
        """Epoch that the next request must carry."""
        self.replica_id = -1
        """The follower, as its fetches say; -1 for a consumer."""
        self.last_fetch_s = now_s
        self.partitions: dict[SessionKey, FetchPartition] = {}
        self.dirty: dict[FetchPartition, None] = {}

    def add(self, key: SessionKey, entry: FetchPartition) -> None:
        """Take in a partition; it is dirty."""
        entry.session = self
        entry.dirty = True
        self.partitions[key] = entry
        self.dirty[entry] = None

    def forget(self, key: SessionKey) -> None:
        """Leave out a partition; harmless when it is not there."""
        entry = self.partitions.pop(key, None)
        if entry is not None:
            self.dirty.pop(entry, None)
            entry.detach()
            entry.session = None

    def mark(self, entry: FetchPartition) -> None:
        """The entry's partition changed, or will: call before the change where there is one.

        Up to now the follower's fetches passed over the partition: make good for the last of them.
        """
        if not entry.dirty:
            if self.replica_id >= 0 and entry.partition is not None:
                entry.partition.follower_polled(self.replica_id, self.last_fetch_s)
            entry.dirty = True
            self.dirty[entry] = None

    def close(self) -> None:
        """Let go of all partitions."""
        for entry in self.partitions.values():
            entry.detach()
        self.dirty.clear()
        self.partitions.clear()


class FetchContext:
    """One Fetch and how its answer is put together: full or incremental, with a session or without."""

    __slots__ = (
        "_cache",
        "_entries",
        "_expected_epoch",
        "_is_follower",
        "_uses_topic_ids",
        "session",
    )

    def __init__(
        self,
        entries: dict[SessionKey, FetchPartition],
        *,
        session: FetchSession | None = None,
        cache: "FetchSessions | None" = None,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self._entries = entries
        self.session = session
        """The session of an incremental fetch."""
        self._expected_epoch = 0 if session is None else session.epoch
        self._cache = cache
        self._is_follower = is_follower
        self._uses_topic_ids = uses_topic_ids

    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions to look at now, in the order of the answer.

        In an incremental fetch those that the request named or that changed since the last answer.
        """
        if self.session is None:
            return list(self._entries.values())
        return list(self.session.dirty)

    @property
    def size(self) -> int:
        """All partitions of the fetch, also those that need no look."""
        return len(self._entries if self.session is None else self.session.partitions)

    def respond(self, results: Sequence[tuple[FetchPartition, PartitionData]]) -> FetchResponse:
        """The answer, and what the session must remember of it.

        An entry whose `dirty` flag the reader took off is not looked at again until it changes.
        """
        if self.session is not None:
            return self._respond_incremental(self.session, results)
        session_id = NO_SESSION
        if self._cache is not None:
            for entry, data in results:
                _remember(entry, data)
            session_id = self._cache.open(self._entries, self._is_follower, self._uses_topic_ids)
        return FetchResponse(session_id=session_id, responses=_group(results))

    def empty(self) -> FetchResponse:
        """The answer to a client that must wait because of its quota: nothing, session kept."""
        if self.session is None:
            return FetchResponse()
        if self.session.epoch != self._expected_epoch:
            return FetchResponse(
                error_code=InvalidFetchSessionEpoch.code, session_id=self.session.id
            )
        return FetchResponse(session_id=self.session.id)

    def _respond_incremental(
        self, session: FetchSession, results: Sequence[tuple[FetchPartition, PartitionData]]
    ) -> FetchResponse:
        if session.epoch != self._expected_epoch:
            # A newer request of this session overtook the one that waited.
            return FetchResponse(error_code=InvalidFetchSessionEpoch.code, session_id=session.id)
        told: list[tuple[FetchPartition, PartitionData]] = []
        for result in results:
            entry, data = result
            if entry.session is not session:
                continue
            if _remember(entry, data):
                told.append(result)
            if not entry.dirty:
                session.dirty.pop(entry, None)
            elif data.records:
                session.dirty.pop(entry, None)
                session.dirty[entry] = None
        return FetchResponse(session_id=session.id, responses=_group(told))


class FetchSessions:
    """The cache of sessions of one broker: at most `slots` of them.

    A full cache gives way to a new session if one is unused for two minutes, or if one is worth
    less: a consumer's less than a follower's, a smaller one less than a larger one; only sessions
    older than two minutes are weighed, except that followers push out consumers at any age.
    """

    def __init__(self, clock: Clock, random: Random, *, slots: int = 1000) -> None:
        self._clock = clock
        self._random = random
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions over all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self,
        request: FetchRequest,
        version: int,
        *,
        is_follower: bool,
        topic_name: Callable[[bytes], str | None],
        topic_id: Callable[[str], bytes] = lambda _: ZERO_UUID,
    ) -> FetchContext:
        """Find or open the session of a Fetch.

        Partitions with an id that `topic_name` does not know get UNKNOWN_TOPIC_ID as `error_code`.
        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the
        answer is that error at top level with no partitions.
        """
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._remove(request.session_id)
            entries = dict(_entries(request, uses_topic_ids, topic_name))
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(entries)
            return FetchContext(
                entries, cache=self, is_follower=is_follower, uses_topic_ids=uses_topic_ids
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} is not known here")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session.id} expected epoch {session.epoch},"
                f" not {request.session_epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"fetch session {session.id} was opened"
                f" {'with' if session.uses_topic_ids else 'without'} topic ids"
            )
        self._update(session, request, topic_name)
        if not session.partitions:
            self._remove(session.id)
            return FetchContext({})
        session.epoch = next_epoch(session.epoch)
        self._touch(session)
        if is_follower:
            session.replica_id = (
                request.replica_state.replica_id if version >= 15 else request.replica_id
            )
        _resolve_again(session, topic_name)
        return FetchContext(session.partitions, session=session)

    def mark_all_changed(self) -> None:
        """Look at every partition of every session again (permissions changed)."""
        for session in self._sessions.values():
            for entry in session.partitions.values():
                session.mark(entry)

    def open(
        self, entries: dict[SessionKey, FetchPartition], privileged: bool, uses_topic_ids: bool
    ) -> int:
        """A session with these partitions; NO_SESSION when there is no room."""
        now_s = self._clock.monotonic()
        if len(self._sessions) >= self._slots and not self._evict(privileged, len(entries), now_s):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1 << 31)
        session = FetchSession(
            session_id, privileged=privileged, uses_topic_ids=uses_topic_ids, now_s=now_s
        )
        for key, entry in entries.items():
            session.add(key, entry)
        self._sessions[session_id] = session
        return session_id

    # -- helpers -------------------------------------------------------------------------------

    def _touch(self, session: FetchSession) -> None:
        session.last_used_s = session.last_fetch_s = self._clock.monotonic()
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _evict(self, privileged: bool, size: int, now_s: float) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_s - oldest.last_used_s <= EVICTION_S:
            candidates = [
                session
                for session in self._sessions.values()
                if now_s - session.created_s > EVICTION_S or (privileged and not session.privileged)
            ]
            if not candidates:
                return False
            oldest = min(candidates, key=_worth)
            if (privileged, size, 0) < _worth(oldest):
                return False
        self._remove(oldest.id)
        self.evictions += 1
        return True

    def _update(
        self,
        session: FetchSession,
        request: FetchRequest,
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        for key, entry in _entries(request, session.uses_topic_ids, topic_name):
            known = session.partitions.get(key)
            if known is None:
                session.add(key, entry)
            else:
                known.update(entry)
                session.mark(known)
        for topic in request.forgotten_topics_data:
            name: bytes | str = topic.topic_id if session.uses_topic_ids else topic.topic
            for number in topic.partitions:
                session.forget((name, number))


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return (session.privileged, len(session.partitions), session.id)


def _entries(
    request: FetchRequest, uses_topic_ids: bool, topic_name: Callable[[bytes], str | None]
) -> Iterable[tuple[SessionKey, FetchPartition]]:
    for topic in request.topics:
        topic_id = topic.topic_id if uses_topic_ids else ZERO_UUID
        name = topic_name(topic_id) if uses_topic_ids else topic.topic
        key: bytes | str = topic_id if uses_topic_ids else topic.topic
        for wanted in topic.partitions:
            entry = FetchPartition(
                TopicPartition(name or "", wanted.partition),
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                topic_id=topic_id,
                log_start_offset=wanted.log_start_offset,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
            )
            if name is None:
                entry.error_code = UnknownTopicId.code
            yield (key, wanted.partition), entry


def _resolve_again(session: FetchSession, topic_name: Callable[[bytes], str | None]) -> None:
    """Errors that the handler found last time may be gone."""
    for entry in session.dirty:
        if entry.error_code == NONE:
            continue
        entry.error_code = NONE
        if not session.uses_topic_ids:
            continue
        name = topic_name(entry.topic_id)
        if name is None:
            entry.error_code = UnknownTopicId.code
        else:
            entry.topic_partition = TopicPartition(name, entry.topic_partition.partition)


def _remember(entry: FetchPartition, data: PartitionData) -> bool:
    """Note what is being told; whether an incremental answer must tell it."""
    diverges = data.diverging_epoch.end_offset >= 0
    tell = bool(data.records or data.preferred_read_replica >= 0 or diverges)
    if entry.cached_high_watermark != data.high_watermark:
        tell = True
        entry.cached_high_watermark = data.high_watermark
    if entry.cached_log_start_offset != data.log_start_offset:
        tell = True
        entry.cached_log_start_offset = data.log_start_offset
    if data.error_code != NONE or diverges:
        # When this is over the partition is told again even if nothing else has changed: who
        # truncates does not use the high watermark that came along.
        tell = True
        entry.cached_high_watermark = NO_OFFSET
    return tell


def _group(
    results: Sequence[tuple[FetchPartition, PartitionData]],
) -> list[FetchResponse.FetchableTopicResponse]:
    """Neighbours of one topic together, the order kept."""
    topics: list[FetchResponse.FetchableTopicResponse] = []
    last_name, last_id = None, b""
    for entry, data in results:
        name = entry.topic_partition.topic
        if name != last_name or entry.topic_id != last_id:
            last_name, last_id = name, entry.topic_id
            topics.append(
                FetchResponse.FetchableTopicResponse(topic=name, topic_id=last_id, partitions=[])
            )
        topics[-1].partitions.append(data)
    return topics
