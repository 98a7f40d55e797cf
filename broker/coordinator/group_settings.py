"""Settings of single groups of the newer protocol, over those of the broker."""

from collections.abc import Mapping
from typing import Final

from kafkalike.config import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class GroupConfigs:
    """What is in force for a group: its own settings where it has them, else the broker's."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._own: dict[str, Mapping[str, int]] = {}

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        own = self._own.get(group_id, {})
        return own.get(SESSION_TIMEOUT, self._config.group_consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members are told to send heartbeats."""
        own = self._own.get(group_id, {})
        return own.get(HEARTBEAT_INTERVAL, self._config.group_consumer_heartbeat_interval_ms)

    def set(self, group_id: str, settings: Mapping[str, int]) -> None:
        """The group's own settings from now on; none forgets it."""
        if settings:
            self._own[group_id] = dict(settings)
        else:
            self._own.pop(group_id, None)
