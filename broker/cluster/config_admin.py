"""Configurations as administrators change them: validated here, written to ZooKeeper with a
notification that every broker hears (reference: broker-errors 8, configs 2, zookeeper 4.3).

Errors are the KafkaErrors of the API; trouble with ZooKeeper itself is UnknownServerError.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from kafkalike.config import (
    REPLICATION_THROTTLES,
    BrokerConfig,
    ConfigError,
    LogConfig,
    listener_base_name,
)
from kafkalike.config_keys import GroupKeys
from kafkalike.errors import (
    InvalidConfig,
    InvalidRequest,
    UnknownServerError,
)
from kafkalike.settings import ConfigType, Dynamic, Key, format_value
from kafkalike.zk import configs as zk_configs
from kafkalike.zk.client import ZkClient, ZkError
from kafkalike.zk.election import ControllerMoved
from kafkalike.zk.paths import sanitize
from kafkalike.zk.payload import CorruptZnode

from .dynamic_config import BROKERS, DEFAULT_ENTITY, GROUPS, TOPICS, DynamicConfig
from .metadata_cache import MetadataCache

T = TypeVar("T")

_THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "log.cleaner.threads",
)
"""Counts that may at most double or halve in one change."""


class AlterOperation(IntEnum):
    """Operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True, frozen=True)
class ConfigChange:
    """One key of an incremental change; `value` is None only for DELETE."""

    name: str
    operation: AlterOperation
    value: str | None


class ConfigAdmin:
    """Changes the configuration of topics and brokers."""

    def __init__(
        self,
        zk: ZkClient,
        broker_id: int,
        metadata: MetadataCache,
        config: DynamicConfig,
        refresh: Callable[[str], Awaitable[None]],
    ) -> None:
        """`refresh(entity)` makes a change effective here before it is answered; the notification
        brings it to the others."""
        self._refresh = refresh
        self._zk = zk
        self._broker_id = broker_id
        self._metadata = metadata
        self._config = config

    # -- topics --------------------------------------------------------------------------------

    async def topic_overrides(self, topic: str) -> dict[str, str]:
        """What is stored for a topic."""
        return await _guard(zk_configs.read_config(self._zk, f"{TOPICS}/{topic}"))

    async def alter_topic(
        self,
        topic: str,
        values: Mapping[str, str] | None,
        changes: Iterable[ConfigChange] = (),
        *,
        validate_only: bool,
    ) -> None:
        """Replace a topic's settings by `values`, or apply `changes` where `values` is None.

        Raises InvalidRequest (no name), UnknownTopicOrPartition (LeaderNotAvailable while topics are
        not known), InvalidConfig, StaleControllerEpoch.
        """
        if not topic:
            raise InvalidRequest("Default topic resources are not allowed.")
        if not self._metadata.has_topic(topic):
            raise self._metadata.unknown_to_admin(f"Topic '{topic}' does not exist.")
        if values is None:
            stored = await self.topic_overrides(topic)
            values = apply_changes(stored, changes, LogConfig.KEYS)
        try:
            LogConfig.validate_overrides(values)
        except ConfigError as error:
            raise InvalidConfig(
                f"Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}'):"
                f" {error}"
            ) from error
        if not validate_only:
            await self._write(f"{TOPICS}/{topic}", values)

    # -- groups --------------------------------------------------------------------------------

    async def alter_group(
        self,
        group_id: str,
        values: Mapping[str, str] | None,
        changes: Iterable[ConfigChange],
        check: Callable[[Mapping[str, str]], None],
        *,
        validate_only: bool,
    ) -> None:
        """The same for a group; `check` raises ConfigError for settings that cannot be.

        Raises InvalidRequest (no name), InvalidConfig, StaleControllerEpoch.
        """
        if not group_id:
            raise InvalidRequest("Default group resources are not allowed.")
        entity = f"{GROUPS}/{sanitize(group_id)}"
        if values is None:
            stored = await _guard(zk_configs.read_config(self._zk, entity))
            values = apply_changes(stored, changes, GroupKeys.KEYS)
        try:
            check(values)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
        if not validate_only:
            await self._write(entity, values)

    # -- brokers -------------------------------------------------------------------------------

    def check_broker_name(self, name: str, *, may_be_empty: bool) -> None:
        """The resource name of a broker must be this broker's id.  Raises InvalidRequest."""
        if not name and may_be_empty:
            return
        try:
            number = int(name)
        except ValueError:
            raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
        if number != self._broker_id:
            raise InvalidRequest(
                f"Unexpected broker id, expected {self._broker_id}, but received {name}"
            )

    async def alter_broker(
        self,
        name: str,
        values: Mapping[str, str] | None,
        changes: Iterable[ConfigChange] = (),
        *,
        validate_only: bool,
    ) -> None:
        """The same for this broker, or with an empty name for the default of all brokers.

        Raises InvalidRequest, InvalidConfig, StaleControllerEpoch.
        """
        self.check_broker_name(name, may_be_empty=True)
        entity = f"{BROKERS}/{name or DEFAULT_ENTITY}"
        if values is None:
            stored = await _guard(zk_configs.read_config(self._zk, entity))
            values = apply_changes(stored, changes, BrokerConfig.KEYS)
        self._check_broker_values(values, per_broker=bool(name))
        if not validate_only:
            await self._write(entity, values)

    def _check_broker_values(self, values: Mapping[str, str], *, per_broker: bool) -> None:
        current = self._config.broker
        read_only = [
            name
            for name in values
            if (base := name if name in BrokerConfig.KEYS else listener_base_name(name))
            and BrokerConfig.KEYS[base].dynamic is Dynamic.READ_ONLY
        ]
        if read_only:
            names = ", ".join(read_only)
            raise InvalidRequest(f"Cannot update these configs dynamically: Set({names})")
        for name, text in values.items():
            base = name if name in BrokerConfig.KEYS else listener_base_name(name)
            if base is None:
                if name in REPLICATION_THROTTLES:
                    _check_rate(name, text)
                continue
            key = BrokerConfig.KEYS[base]
            if key.dynamic is Dynamic.PER_BROKER and not per_broker:
                raise InvalidRequest(f"Cannot update {name} as a default of all brokers")
            try:
                value = key.parse(text)
            except ConfigError as error:
                raise InvalidRequest(str(error)) from error
            if name in _THREAD_COUNTS:
                _check_thread_count(name, current.values[name], value)
        try:
            layers = self._config.layers
            if per_broker:
                current = layers.static.with_dynamic(layers.dynamic_default, values)
            else:
                current = layers.static.with_dynamic(values, layers.dynamic_own)
        except ConfigError as error:
            raise InvalidRequest(str(error)) from error

    async def _write(self, entity: str, values: Mapping[str, str]) -> None:
        await _guard(zk_configs.change_config(self._zk, entity, values))
        await _guard(self._refresh(entity))


def apply_changes(
    stored: Mapping[str, str], changes: Iterable[ConfigChange], keys: Mapping[str, Key]
) -> dict[str, str]:
    """The stored settings after incremental changes.  Raises InvalidConfig."""
    values = dict(stored)
    for change in changes:
        if change.operation is AlterOperation.DELETE:
            values.pop(change.name, None)
            continue
        assert change.value is not None
        if change.operation is AlterOperation.SET:
            values[change.name] = change.value
            continue
        key = keys.get(change.name)
        if key is None:
            raise InvalidConfig(f"Unknown config name: {change.name}")
        if key.type is not ConfigType.LIST:
            verb = change.operation.name.lower()
            raise InvalidConfig(f"Config value {verb} is not allowed for config key: {change.name}")
        old = values.get(change.name)
        if old is None:
            old = format_value(key.type, key.default) or ""
        values[change.name] = _change_list(old, change)
    return values


def _change_list(old: str, change: ConfigChange) -> str:
    items = [item for item in old.split(",") if item]
    given = (change.value or "").split(",")
    if change.operation is AlterOperation.APPEND:
        items.extend(item for item in dict.fromkeys(given) if item not in items)
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _check_rate(name: str, text: str) -> None:
    try:
        rate = int(text)
    except ValueError:
        raise InvalidRequest(f"Invalid value {text} for configuration {name}") from None
    if rate < 0:
        raise InvalidRequest(f"Invalid value {text} for configuration {name}: at least 0")


def _check_thread_count(name: str, current: int, value: int) -> None:
    if value == current:
        return
    if value <= 0:
        raise InvalidRequest(f"{name} is {value}, expected at least 1")
    if value < current // 2:
        raise InvalidRequest(f"{name} is {value}, expected at least half of {current}")
    if value > current * 2:
        raise InvalidRequest(f"{name} is {value}, expected at most the double of {current}")


async def _guard(work: Awaitable[T]) -> T:
    try:
        return await work
    except ControllerMoved as error:
        raise error.as_kafka_error() from error
    except (ZkError, CorruptZnode) as error:
        raise UnknownServerError(f"ZooKeeper did not do it: {error}") from error
