"""Keeps `DynamicConfig` equal to what ZooKeeper holds (reference: zookeeper 2.7, 3).

Order at start: listen for changes first, then read everything, so that a change between the two is
applied twice rather than lost.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import sleep
from kafkalike.zk import configs as zk_configs
from kafkalike.zk import paths
from kafkalike.zk.client import SessionExpired, ZkClient
from kafkalike.zk.notifications import NotificationListener
from kafkalike.zk.payload import CorruptZnode

from .dynamic_config import BROKERS, DEFAULT_ENTITY, TOPICS, DynamicConfig

SESSION_PAUSE_S: Final = 0.1

EntityChanged = Callable[[str], Awaitable[None]]
"""Told the path below `/config` of an entity that changed."""


class ConfigSync:
    """Reads entity configurations and follows their change notifications."""

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        config: DynamicConfig,
        broker_id: int,
        logger: logging.Logger,
    ) -> None:
        self._zk = zk
        self._clock = clock
        self._config = config
        self._broker_id = broker_id
        self._logger = logger
        self._others: dict[str, EntityChanged] = {}
        self._listener = NotificationListener(
            zk,
            clock,
            paths.CONFIG_CHANGES,
            paths.CONFIG_CHANGE_PREFIX,
            self._process,
            logger,
        )

    def on_entity(self, entity_type: str, handler: EntityChanged) -> None:
        """Let `handler` deal with changes of `clients`, `users` or `ips` entities."""
        self._others[entity_type] = handler

    async def start(self) -> None:
        """Follow notifications; returns when those that wait have been processed."""
        await self._listener.start()
        while True:
            try:
                await self.load_broker()
            except SessionExpired:
                await sleep(self._clock, SESSION_PAUSE_S)
                continue
            return

    async def stop(self) -> None:
        await self._listener.stop()

    async def load_broker(self) -> None:
        """This broker's dynamic settings: cluster defaults first, then its own."""
        found = await zk_configs.read_configs(
            self._zk, [f"{BROKERS}/{DEFAULT_ENTITY}", f"{BROKERS}/{self._broker_id}"]
        )
        default = found.get(f"{BROKERS}/{DEFAULT_ENTITY}", {})
        own = found.get(f"{BROKERS}/{self._broker_id}", {})
        self._config.set_broker_defaults(self._readable(default))
        self._config.set_broker_own(self._readable(own))

    async def load_all_topics(self) -> None:
        """Settings of all topics there are, before logs are loaded."""
        for topic, overrides in (await zk_configs.read_all_configs(self._zk, TOPICS)).items():
            self._config.set_topic(topic, self._readable(overrides))

    async def load_topics(self, topics: Collection[str]) -> None:
        """Settings of topics that get a log here; waits for ZooKeeper as long as it takes.

        A log created with other than its topic's settings could delete what must be kept.
        """
        names = [f"{TOPICS}/{topic}" for topic in topics]
        while True:
            try:
                found = await zk_configs.read_configs(self._zk, names)
            except SessionExpired:
                await sleep(self._clock, SESSION_PAUSE_S)
                continue
            break
        for topic, name in zip(topics, names, strict=True):
            self._config.set_topic(topic, self._readable(found.get(name, {})))

    async def _process(self, data: bytes | None, path: str) -> None:
        await self.refresh(zk_configs.decode_change(data, path))

    async def refresh(self, entity: str) -> None:
        """Read one entity again, named by its path below `/config`."""
        entity_type, _, name = entity.partition("/")
        if entity_type == TOPICS:
            overrides = await zk_configs.read_config(self._zk, entity)
            self._config.set_topic(name, overrides)
        elif entity_type == BROKERS:
            if name in (DEFAULT_ENTITY, str(self._broker_id)):
                await self.load_broker()
        elif entity_type in self._others:
            await self._others[entity_type](entity)

    def _readable(self, overrides: dict[str, str] | CorruptZnode) -> dict[str, str]:
        if isinstance(overrides, CorruptZnode):
            self._logger.error("configuration cannot be read and counts as empty: %s", overrides)
            return {}
        return overrides
