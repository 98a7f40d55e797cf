"""Which cluster and which broker this is: ZooKeeper, configuration and log directories must agree.

Reference: zookeeper 8 (steps 1), log-store 3.1.
"""

from dataclasses import dataclass
from typing import Final

from kafkalike.config import BrokerConfig
from kafkalike.runtime.ports import Disk, Random, StorageError, Threads
from kafkalike.zk import brokers as zk_brokers
from kafkalike.zk.client import ZkClient

from ..log.directory import make_lasting
from ..log.meta_properties import (
    FILE_NAME,
    MetaProperties,
    UnreadableMetaProperties,
    check_meta_properties,
    format_meta_properties,
    parse_meta_properties,
)

GENERATE: Final = -1
"""Configured broker id that asks for a generated one."""


@dataclass(slots=True, frozen=True)
class Identity:
    """Settled for the life of the process."""

    broker_id: int
    cluster_id: str


async def settle_identity(
    zk: ZkClient, disk: Disk, threads: Threads, random: Random, config: BrokerConfig
) -> Identity:
    """Find or make cluster id and broker id and note them in every log directory.

    Raises MetaPropertiesError (a ValueError with one line) when directories, configuration and
    cluster contradict each other.  A directory whose file cannot be read is left as it is; the log
    manager takes it offline.
    """
    await zk_brokers.precreate(zk)
    cluster_id = await zk_brokers.cluster_id(zk, random.bytes)
    found = await threads.run(_read_all, disk, config.log_dirs)
    broker_id = check_meta_properties(
        found, configured_broker_id=config.broker_id, cluster_id=cluster_id
    )
    if broker_id is None:
        broker_id = config.broker_id
        if broker_id == GENERATE:
            broker_id = await zk_brokers.generate_broker_id(zk, config.reserved_broker_max_id)
    missing = [
        path
        for path, meta in found.items()
        if meta is None or meta.cluster_id is None or meta.broker_id is None
    ]
    await threads.run(_write_all, disk, missing, format_meta_properties(cluster_id, broker_id))
    return Identity(broker_id, cluster_id)


def _read_all(disk: Disk, paths: tuple[str, ...]) -> dict[str, MetaProperties | None]:
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        file_path = f"{path}/{FILE_NAME}"
        try:
            exists = disk.exists(file_path)
            found[path] = (
                parse_meta_properties(disk.read_file(file_path), file_path) if exists else None
            )
        except (StorageError, UnreadableMetaProperties):
            continue
    return found


def _write_all(disk: Disk, paths: list[str], data: bytes) -> None:
    for path in paths:
        try:
            make_lasting(disk, path)
            disk.write_atomic(f"{path}/{FILE_NAME}", data)
        except StorageError:
            continue
