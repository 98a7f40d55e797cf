"""The topics of the cluster as groups of the newer protocol see them: ids, sizes, what changed."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol

from kafkalike.types import ZERO_UUID

from ..cluster.metadata_cache import MetadataCache, MetadataSnapshot, MetadataUpdate


class Topics(Protocol):
    """What is known of topics.  `version` grows with every change, `newest` is the version in which
    a topic was last added; `is_known` is False until the controller has told of the cluster."""

    @property
    def is_known(self) -> bool: ...

    @property
    def version(self) -> int: ...

    @property
    def newest(self) -> int: ...

    def names(self) -> list[str]:
        """All topics."""

    def id_of(self, topic: str) -> bytes | None:
        """None when there is none of that name."""

    def name_of(self, topic_id: bytes) -> str | None:
        """None when it is gone."""

    def count(self, topic: str) -> int:
        """How many partitions it has, 0 when it does not exist."""


class CachedTopics:
    """`Topics` out of the metadata that this broker has."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._newest = metadata.snapshot.version
        self._before: Mapping[str, Any] = metadata.snapshot.topics
        metadata.add_listener(self._updated)

    def _updated(self, update: MetadataUpdate) -> None:
        if any(topic not in self._before for topic in update.topics):
            self._newest = update.snapshot.version
        self._before = update.snapshot.topics

    @property
    def _snapshot(self) -> MetadataSnapshot:
        return self._metadata.snapshot

    @property
    def is_known(self) -> bool:
        return bool(self._snapshot.brokers) and not self._metadata.lacks_topics

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def newest(self) -> int:
        return self._newest

    def names(self) -> list[str]:
        return list(self._snapshot.topics)

    def id_of(self, topic: str) -> bytes | None:
        found = self._snapshot.topic_ids.get(topic, ZERO_UUID)
        return None if found == ZERO_UUID or topic not in self._snapshot.topics else found

    def name_of(self, topic_id: bytes) -> str | None:
        return self._snapshot.topic_names.get(topic_id)

    def count(self, topic: str) -> int:
        return len(self._snapshot.topics.get(topic, ()))


def hash_of(topics: Topics, names: Iterable[str]) -> int:
    """A number of 64 bits with sign that changes when one of the topics is made, grows or goes; 0 for
    none that exist.  The same on every broker."""
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id = topics.id_of(name)
        if topic_id is not None:
            found = True
            digest.update(topic_id + topics.count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
