"""Topics that appear because somebody asked for them: on Metadata, and the broker's internal ones.

The broker that was asked writes them to ZooKeeper itself (reference: broker-errors 6, inter-broker
6); the controller notices.  The answer to the client is always "try again".
"""

from collections.abc import Iterable

from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

from .topic_admin import NewTopic, TopicAdmin
from .topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, topic_name_problem


class AutoTopics:
    """Creates missing topics with the broker's defaults, each at most once at a time."""

    def __init__(self, admin: TopicAdmin, config: BrokerConfig) -> None:
        self._admin = admin
        self._config = config
        self._in_flight: set[str] = set()

    async def create(self, names: Iterable[str]) -> dict[str, int]:
        """Create topics and say for each what the client is told.

        LEADER_NOT_AVAILABLE when it was created or exists already, UNKNOWN_TOPIC_OR_PARTITION while
        another request creates it, else the error of the creation.
        """
        outcomes: dict[str, int] = {}
        mine: list[str] = []
        for name in names:
            if topic_name_problem(name) is not None:
                outcomes[name] = InvalidTopicException.code
            elif name in self._in_flight:
                outcomes[name] = UnknownTopicOrPartition.code
            else:
                mine.append(name)
        self._in_flight.update(mine)
        try:
            for name in mine:
                outcomes[name] = await self._create(name)
        finally:
            self._in_flight.difference_update(mine)
        return outcomes

    async def _create(self, name: str) -> int:
        try:
            await self._admin.create(self.describe(name))
        except TopicAlreadyExists:
            pass
        except KafkaError as error:
            return error.code
        return LeaderNotAvailable.code

    def describe(self, name: str) -> NewTopic:
        """The shape of an automatic topic (reference: observed, internal topics)."""
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            return NewTopic(
                name,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                configs={
                    "compression.type": "producer",
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return NewTopic(
                name,
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                configs={
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.transaction_state_log_min_isr),
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return NewTopic(name, -1, -1)
