"""Settings of single groups of the newer protocol, over those of the broker (`/config/groups`)."""

import logging
from collections.abc import Mapping
from typing import Final

from kafkalike.config import BrokerConfig, ConfigEntry, ConfigSource, ConfigSynonym
from kafkalike.config_keys import GroupKeys
from kafkalike.settings import ConfigError, format_value
from kafkalike.zk import configs as zk_configs
from kafkalike.zk.client import ZkClient
from kafkalike.zk.paths import desanitize
from kafkalike.zk.payload import CorruptZnode

from ..cluster.dynamic_config import GROUPS

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class GroupConfigs:
    """What is in force for a group: its own settings where it has them, else the broker's."""

    def __init__(self, config: BrokerConfig, logger: logging.Logger) -> None:
        self._config = config
        self._logger = logger
        self._own: dict[str, GroupKeys] = {}
        self._defaults = {
            SESSION_TIMEOUT: config.group_consumer_session_timeout_ms,
            HEARTBEAT_INTERVAL: config.group_consumer_heartbeat_interval_ms,
        }

    # -- what is in force ----------------------------------------------------------------------

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self._value(group_id, SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members are told to send heartbeats."""
        return self._value(group_id, HEARTBEAT_INTERVAL)

    def _value(self, group_id: str, name: str) -> int:
        own = self._own.get(group_id)
        value: int = self._defaults[name] if own is None else own.values[name]
        return value

    def describe(self, group_id: str) -> list[ConfigEntry]:
        """Every setting of a group, whether it exists or not."""
        own = self._own.get(group_id)
        entries = []
        for name, key in GroupKeys.KEYS.items():
            is_own = own is not None and own.is_set(name)
            source = ConfigSource.GROUP if is_own else ConfigSource.DEFAULT
            value = format_value(key.type, self._value(group_id, name))
            synonyms = (ConfigSynonym(name, value, source),)
            entries.append(
                ConfigEntry(
                    name,
                    value,
                    key.type,
                    source,
                    read_only=False,
                    sensitive=False,
                    synonyms=synonyms,
                )
            )
        return entries

    # -- change --------------------------------------------------------------------------------

    def check(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError for settings that a group cannot have."""
        for name in values:
            if name not in GroupKeys.KEYS:
                raise ConfigError(name, values[name], f"Unknown group config name: {name}")
        found = GroupKeys(values, self._defaults)
        for name, value in found.values.items():
            what = name.removeprefix("consumer.")
            for bound, is_wrong in (
                ("min", value < self._config.values[f"group.consumer.min.{what}"]),
                ("max", value > self._config.values[f"group.consumer.max.{what}"]),
            ):
                if is_wrong:
                    order = "greater than or equal" if bound == "min" else "less than or equal"
                    limit = f"group.consumer.{bound}.{what}"
                    raise ConfigError(name, value, f"must be {order} to {limit}")
        if found.consumer_session_timeout_ms <= found.consumer_heartbeat_interval_ms:
            raise ConfigError(
                SESSION_TIMEOUT,
                found.consumer_session_timeout_ms,
                f"must be greater than {HEARTBEAT_INTERVAL}",
            )

    def set(self, group_id: str, values: Mapping[str, str]) -> None:
        """The group's own settings from now on; none forgets it."""
        self._own.pop(group_id, None)
        if not values:
            return
        try:
            self.check(values)
        except ConfigError as error:
            self._logger.error("settings of group %s do not count: %s", group_id, error)
            return
        self._own[group_id] = GroupKeys(values, self._defaults)

    async def load(self, zk: ZkClient) -> None:
        """All that is stored."""
        for name in await zk_configs.list_entities(zk, GROUPS):
            await self.refresh(zk, f"{GROUPS}/{name}")

    async def refresh(self, zk: ZkClient, entity: str) -> None:
        """Read the settings of one group again, named by its path below `/config`."""
        group_id = desanitize(entity.partition("/")[2])
        try:
            values = await zk_configs.read_config(zk, entity)
        except CorruptZnode as error:
            self._logger.error("settings of group %s cannot be read: %s", group_id, error)
            values = {}
        self.set(group_id, values)
