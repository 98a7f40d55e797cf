"""`meta.properties`: which cluster and which broker a log directory belongs to (log-store 3.1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkalike.properties import PropertiesError, format_properties, parse_properties

FILE_NAME: Final = "meta.properties"
_INT: Final = re.compile(r"-?[0-9]{1,10}")


class MetaPropertiesError(ValueError):
    """The file is unreadable, or contradicts another directory or the configuration."""


class UnreadableMetaProperties(MetaPropertiesError):
    """The file is damaged: its directory cannot be used, others can."""


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """Version 0, as brokers on ZooKeeper keep it.

    Both values may be absent, in very old files and in a file that is empty: they are then written.
    """

    cluster_id: str | None
    broker_id: int | None


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read the file.  A version that is not there counts as 0, as in Kafka.

    Raises UnreadableMetaProperties, or MetaPropertiesError for version 1: it belongs to KRaft.
    """
    try:
        values = parse_properties(data.decode("iso-8859-1"))
    except PropertiesError as error:
        raise UnreadableMetaProperties(f"{path}: {error}") from error
    version = values.get("version", "0")
    if version == "1":
        raise MetaPropertiesError(f"{path}: version 1 is KRaft's, expected 0 (ZooKeeper mode)")
    if version != "0":
        raise UnreadableMetaProperties(f"{path}: version {version!r}, expected 0 (ZooKeeper mode)")
    broker_id = values.get("broker.id")
    if broker_id is not None and not _INT.fullmatch(broker_id):
        raise UnreadableMetaProperties(f"{path}: broker.id {broker_id!r}, expected a number")
    return MetaProperties(values.get("cluster.id"), None if broker_id is None else int(broker_id))


def format_meta_properties(cluster_id: str, broker_id: int) -> bytes:
    """The file's content."""
    values = {"broker.id": str(broker_id), "cluster.id": cluster_id, "version": "0"}
    return format_properties(values).encode("iso-8859-1")


def check_meta_properties(
    found: Mapping[str, MetaProperties | None],
    *,
    configured_broker_id: int | None,
    cluster_id: str | None,
) -> int | None:
    """Hold the files of all directories against each other, the configuration and ZooKeeper.

    `found` is by directory, None where the file is missing.  Returns the broker id they name.
    Raises MetaPropertiesError.
    """
    broker_ids = {
        meta.broker_id: path
        for path, meta in found.items()
        if meta is not None and meta.broker_id is not None
    }
    if len(broker_ids) > 1:
        listed = ", ".join(f"{path}: {broker_id}" for broker_id, path in sorted(broker_ids.items()))
        raise MetaPropertiesError(f"log directories name different brokers ({listed})")
    broker_id = next(iter(broker_ids), None)
    if (
        broker_id is not None
        and configured_broker_id is not None
        and configured_broker_id >= 0
        and broker_id != configured_broker_id
    ):
        raise MetaPropertiesError(
            f"configured broker.id {configured_broker_id} does not match {broker_id} stored in "
            f"{broker_ids[broker_id]}/{FILE_NAME}"
        )
    for path, meta in sorted(found.items()):
        if meta is None or meta.cluster_id is None or cluster_id is None:
            continue
        if meta.cluster_id != cluster_id:
            raise MetaPropertiesError(
                f"cluster id {cluster_id} does not match {meta.cluster_id} stored in "
                f"{path}/{FILE_NAME}: the broker is joining another cluster"
            )
    return broker_id
