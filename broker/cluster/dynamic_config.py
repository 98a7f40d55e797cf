"""Configuration that changes while the broker runs: its own, the cluster's default, the topics'.

ZooKeeper holds it; this object holds what was last read of it and says what is effective now
(reference: configs 2, zookeeper 2.7, 3).  Values of a topic are read when its first log is about to
be created here and whenever a notification names it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkalike.config import BrokerConfig, BrokerLayers, ConfigError, LogConfig

BROKERS: Final = "brokers"
GROUPS: Final = "groups"
TOPICS: Final = "topics"
DEFAULT_ENTITY: Final = "<default>"


class DynamicConfig:
    """The effective configuration of this broker and of the topics it hosts.

    `on_topic_change(topic)` and `on_broker_change(config)` listeners run synchronously after the
    new values are in place.
    """

    def __init__(self, static: BrokerConfig, broker_id: int, logger: logging.Logger) -> None:
        self._static = static
        self._broker_id = broker_id
        self._logger = logger
        self._default: Mapping[str, str] = {}
        self._own: Mapping[str, str] = {}
        self._topics: dict[str, Mapping[str, str]] = {}
        self._log_configs: dict[str, LogConfig] = {}
        self._broker = static
        self.layers = BrokerLayers(static, {}, {})
        """The layers behind `broker`, for DescribeConfigs."""
        self._log_defaults = LogConfig.from_broker(static)
        self._topic_listeners: list[Callable[[str], None]] = []
        self._broker_listeners: list[Callable[[BrokerConfig], None]] = []

    # -- what is effective ---------------------------------------------------------------------

    @property
    def broker(self) -> BrokerConfig:
        """The broker's settings under its dynamic ones."""
        return self._broker

    @property
    def log_defaults(self) -> LogConfig:
        """What a topic without own settings gets."""
        return self._log_defaults

    def log_config(self, topic: str) -> LogConfig:
        """The effective settings of a topic; defaults while its own are not known here."""
        config = self._log_configs.get(topic)
        if config is None:
            overrides = self._topics.get(topic)
            if not overrides:
                return self._log_defaults
            config = self._log_defaults.with_overrides(overrides)
            self._log_configs[topic] = config
        return config

    # -- listeners -----------------------------------------------------------------------------

    def on_topic_change(self, listener: Callable[[str], None]) -> None:
        self._topic_listeners.append(listener)

    def on_broker_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        self._broker_listeners.append(listener)

    # -- change --------------------------------------------------------------------------------

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's own settings as just read."""
        if self._topics.get(topic, {}) == overrides:
            return
        if overrides:
            self._topics[topic] = dict(overrides)
        else:
            self._topics.pop(topic, None)
        self._log_configs.pop(topic, None)
        for listener in self._topic_listeners:
            listener(topic)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """No log of these topics is left here: a topic of the same name starts afresh."""
        for topic in topics:
            self._topics.pop(topic, None)
            self._log_configs.pop(topic, None)

    def set_broker_defaults(self, values: Mapping[str, str]) -> None:
        """`/config/brokers/<default>` as just read."""
        self._set_broker(values, self._own)

    def set_broker_own(self, values: Mapping[str, str]) -> None:
        """`/config/brokers/<id>` as just read."""
        self._set_broker(self._default, values)

    def _set_broker(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        if default == self._default and own == self._own:
            return
        try:
            layers = BrokerLayers(self._static, dict(default), dict(own))
        except ConfigError as error:
            self._logger.error("dynamic configuration is not usable and was not applied: %s", error)
            return
        self._default = dict(default)
        self._own = dict(own)
        self.layers = layers
        self._broker = layers.effective
        self._log_defaults = LogConfig.from_broker(self._broker)
        self._log_configs.clear()
        for listener in self._broker_listeners:
            listener(self._broker)
