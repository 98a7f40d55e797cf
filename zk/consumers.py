"""Offsets of consumers from before `__consumer_offsets` (OffsetCommit and OffsetFetch version 0).

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as decimal text.
"""

from kafkalike.types import TopicPartition

from . import paths
from .client import BadArguments, NodeExists, NoNode, ZkClient, create_recursive, retrying
from .znodes import CorruptZnode


def _path(group: str, partition: TopicPartition) -> str:
    """Raises BadArguments for a group that cannot be part of a path."""
    path = paths.consumer_offset(group, partition)
    if any(part in ("", ".", "..") for part in path.split("/")[1:]) or not path.isprintable():
        raise BadArguments(path, "the group's name cannot be part of a path")
    return path


async def read_offset(zk: ZkClient, group: str, partition: TopicPartition) -> int | None:
    """The offset, None when there is none.  Raises CorruptZnode, BadArguments."""
    path = _path(group, partition)
    try:
        data, _ = await retrying(zk, lambda: zk.get(path))
    except NoNode:
        return None
    if data is None:
        return None
    try:
        return int(data)
    except ValueError:
        raise CorruptZnode(path, f"expected a number, found {data[:40]!r}") from None


async def write_offset(zk: ZkClient, group: str, partition: TopicPartition, offset: int) -> None:
    """Set the offset, creating the node and its parents where they are missing."""
    path = _path(group, partition)
    data = str(offset).encode()
    try:
        await retrying(zk, lambda: zk.set(path, data))
    except NoNode:
        try:
            await create_recursive(zk, path, data)
        except NodeExists:
            await retrying(zk, lambda: zk.set(path, data))
