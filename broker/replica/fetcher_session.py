"""The follower's side of incremental fetch sessions (KIP-227; reference: replication 11, 13).

Knows what the leader's session knows, and so what the next request must say: everything (a full
request) or only what changed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import NONE, FetchSessionIdNotFound
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.types import ZERO_UUID, TopicPartition

from .fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from .follower import FetchPosition, FollowedPartition

FETCH_VERSION: Final = 17
FETCH_VERSION_BY_NAME: Final = 12
"""Used while any partition has no topic id."""


@dataclass(slots=True, frozen=True)
class FetchSettings:
    """What every Fetch of a follower says."""

    broker_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class FetcherSession:
    """One fetch session with one leader."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = True
        self._members: dict[TopicPartition, FollowedPartition] = {}
        self._forgotten: dict[TopicPartition, bytes] = {}
        self._names: dict[bytes, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self._epoch == INITIAL_EPOCH

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic that a request of this session named by this id."""
        return self._names.get(topic_id)

    def forget(self, followed: FollowedPartition) -> None:
        """The partition shall no longer be in the session."""
        if followed.told is not None:
            self._forgotten[followed.topic_partition] = followed.told.topic_id
            self._members.pop(followed.topic_partition, None)
            followed.told = None

    def reset(self) -> None:
        """The request got no answer: open the session anew, closing the old one."""
        self._epoch = INITIAL_EPOCH

    def build(
        self,
        changed: Iterable[FollowedPartition],
        everything: Iterable[FollowedPartition],
        is_ready: Callable[[FollowedPartition], bool],
        broker_epoch: int,
        *,
        uses_topic_ids: bool,
    ) -> tuple[FetchRequest, int] | None:
        """The next request and its version, None when there is nothing to ask for.

        `changed`: those whose position or readiness may differ from what the session knows;
        `everything`: all that are followed, looked at only when the request must be full.
        """
        if uses_topic_ids != self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self._epoch = INITIAL_EPOCH
        topics: dict[str, FetchRequest.FetchTopic] = {}
        if self.is_full:
            for one in self._members.values():
                one.told = None
            self._members.clear()
            self._forgotten.clear()
            self._names.clear()
        for one in everything if self.is_full else changed:
            if not is_ready(one):
                self.forget(one)
                continue
            position = one.position()
            if position != one.told:
                if one.told is not None and one.told.topic_id != position.topic_id:
                    self._forgotten[one.topic_partition] = one.told.topic_id
                self._add(topics, one, position)
        if not self._members and not self._forgotten:
            return None
        return self._request(topics, broker_epoch)

    def _request(
        self, topics: dict[str, FetchRequest.FetchTopic], broker_epoch: int
    ) -> tuple[FetchRequest, int]:
        version = FETCH_VERSION if self._uses_topic_ids else FETCH_VERSION_BY_NAME
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._take_forgotten(),
        )
        if version >= 15:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=settings.broker_id, replica_epoch=broker_epoch
            )
        else:
            request.replica_id = settings.broker_id
        return request, version

    def _add(
        self,
        topics: dict[str, FetchRequest.FetchTopic],
        one: FollowedPartition,
        position: FetchPosition,
    ) -> None:
        key = one.topic_partition
        one.told = position
        self._members[key] = one
        if not self._uses_topic_ids or self._forgotten.get(key) == position.topic_id:
            # Named again before the leader was told to forget it.
            self._forgotten.pop(key, None)
        topic_id = position.topic_id if self._uses_topic_ids else ZERO_UUID
        self._names[topic_id] = key.topic
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = FetchRequest.FetchTopic(
                topic=key.topic, topic_id=topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=key.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=self._settings.partition_max_bytes,
            )
        )

    def _take_forgotten(self) -> list[FetchRequest.ForgottenTopic]:
        topics: dict[tuple[str, bytes], FetchRequest.ForgottenTopic] = {}
        for (name, number), topic_id in self._forgotten.items():
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[(name, topic_id)] = FetchRequest.ForgottenTopic(
                    topic=name,
                    topic_id=topic_id if self._uses_topic_ids else ZERO_UUID,
                    partitions=[],
                )
            topic.partitions.append(number)
        self._forgotten.clear()
        return list(topics.values())

    def accept(self, response: FetchResponse, answered: set[TopicPartition]) -> bool:
        """Note what an answer means for the session.  False: its partitions are not to be used.

        `answered` are the partitions in it; a full answer must hold exactly those asked for.
        """
        if response.error_code != NONE:
            if response.error_code == FetchSessionIdNotFound.code:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return False
        if self.is_full:
            complete = answered == self._members.keys()
            if not complete or response.session_id == NO_SESSION:
                self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
            else:
                self._id, self._epoch = response.session_id, next_epoch(INITIAL_EPOCH)
            return complete
        if response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._epoch = next_epoch(self._epoch)
        return True
