"""Requests and notifications left for the controller in ZooKeeper (reference: zookeeper 2.6).

Topic deletions, reassignments and preferred elections asked for by tools, ISR changes told by old
brokers, failed log directories.  `fence` is the data version of `/controller_epoch`: those functions
are the controller's and raise ControllerMoved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkalike.types import TopicPartition

from . import paths
from .client import (
    Create,
    Delete,
    GetData,
    NodeExists,
    NoNode,
    SetData,
    Watch,
    ZkClient,
    ZkError,
    create_recursive,
    retrying,
)
from .configs import create_notification
from .election import guarded
from .payload import decode_partitions
from .topics import delete_all
from .znodes import (
    CorruptZnode,
    decode_log_dir_event,
    decode_reassignments,
    encode_log_dir_event,
    encode_reassignments,
)


@dataclass(slots=True, frozen=True)
class Notification:
    """A sequential node: its name, and its data (None when it is already gone)."""

    name: str
    data: bytes | None


async def list_topic_deletions(zk: ZkClient, watch: Watch | None = None) -> list[str]:
    """Topics asked to be deleted, sorted."""
    names, _ = await retrying(zk, lambda: zk.get_children(paths.DELETE_TOPICS, watch))
    return names


async def request_topic_deletion(zk: ZkClient, topic: str) -> bool:
    """Ask for a topic's deletion (any broker); False when that had been asked for already."""
    try:
        await create_recursive(zk, paths.delete_topic(topic), None)
    except NodeExists:
        return False
    return True


async def delete_topic_deletions(zk: ZkClient, fence: int, topics: Iterable[str]) -> None:
    """Take deletion requests away; absent ones are fine."""
    await delete_all(zk, fence, [Delete(paths.delete_topic(topic)) for topic in topics])


async def read_reassignments(
    zk: ZkClient, watch: Watch | None = None
) -> dict[TopicPartition, tuple[int, ...]] | None:
    """Target replicas that a tool asked for in `/admin/reassign_partitions`; None without the node.

    `watch` also fires when the node is created later.  Raises CorruptZnode.
    """
    path = paths.REASSIGN_PARTITIONS
    data = await _read_optional(zk, path, watch)
    return None if data is None else decode_reassignments(data, path)


async def set_reassignments(
    zk: ZkClient, fence: int, targets: Mapping[TopicPartition, tuple[int, ...]]
) -> None:
    """Rewrite what is still to be done, creating the node when needed; empty deletes it."""
    path = paths.REASSIGN_PARTITIONS
    if not targets:
        await delete_reassignments(zk, fence)
        return
    data = encode_reassignments(targets)
    while True:
        try:
            await guarded(zk, fence, SetData(path, data))
        except NoNode:
            try:
                await guarded(zk, fence, Create(path, data))
            except NodeExists:
                continue
        return


async def delete_reassignments(zk: ZkClient, fence: int) -> None:
    await delete_all(zk, fence, [Delete(paths.REASSIGN_PARTITIONS)])


async def read_preferred_election(
    zk: ZkClient, watch: Watch | None = None
) -> tuple[TopicPartition, ...] | None:
    """Partitions that a tool wants led by their preferred replica; None without the node.

    `watch` also fires when the node is created later.  Raises CorruptZnode.
    """
    path = paths.PREFERRED_REPLICA_ELECTION
    data = await _read_optional(zk, path, watch)
    return None if data is None else decode_partitions(data, path)


async def delete_preferred_election(zk: ZkClient, fence: int) -> None:
    await delete_all(zk, fence, [Delete(paths.PREFERRED_REPLICA_ELECTION)])


async def read_isr_changes(
    zk: ZkClient, watch: Watch | None = None
) -> tuple[list[str], list[TopicPartition]]:
    """Names of the notifications there are, and the partitions they name (old brokers only).

    Notifications that cannot be read count as naming none: they are still to be deleted.
    """
    parent = paths.ISR_CHANGE_NOTIFICATION
    partitions: dict[TopicPartition, None] = {}
    notifications = await _read_notifications(zk, parent, watch)
    for notification in notifications:
        try:
            named = decode_partitions(notification.data, f"{parent}/{notification.name}")
        except CorruptZnode:
            continue
        partitions |= dict.fromkeys(named)
    return [n.name for n in notifications], list(partitions)


async def delete_isr_changes(zk: ZkClient, fence: int, names: Iterable[str]) -> None:
    parent = paths.ISR_CHANGE_NOTIFICATION
    await delete_all(zk, fence, [Delete(f"{parent}/{name}") for name in names])


async def read_log_dir_events(
    zk: ZkClient, watch: Watch | None = None
) -> tuple[list[str], list[int]]:
    """Names of the notifications there are, and the brokers with a failed log directory."""
    parent = paths.LOG_DIR_EVENT_NOTIFICATION
    brokers: dict[int, None] = {}
    notifications = await _read_notifications(zk, parent, watch)
    for notification in notifications:
        try:
            brokers[decode_log_dir_event(notification.data, f"{parent}/{notification.name}")] = None
        except CorruptZnode:
            continue
    return [n.name for n in notifications], list(brokers)


async def delete_log_dir_events(zk: ZkClient, fence: int, names: Iterable[str]) -> None:
    parent = paths.LOG_DIR_EVENT_NOTIFICATION
    await delete_all(zk, fence, [Delete(f"{parent}/{name}") for name in names])


async def notify_log_dir_failure(zk: ZkClient, broker_id: int) -> None:
    """Tell the controller that a log directory of this broker failed."""
    prefix = f"{paths.LOG_DIR_EVENT_NOTIFICATION}/{paths.LOG_DIR_EVENT_PREFIX}"
    await create_notification(zk, prefix, encode_log_dir_event(broker_id))


async def _read_optional(zk: ZkClient, path: str, watch: Watch | None) -> bytes | None:
    """Data of a node that is usually absent; an existing node without data reads as empty."""
    if await retrying(zk, lambda: zk.exists(path, watch)) is None:
        return None
    try:
        data, _ = await retrying(zk, lambda: zk.get(path))
    except NoNode:
        return None
    return data or b""


async def _read_notifications(zk: ZkClient, parent: str, watch: Watch | None) -> list[Notification]:
    names, _ = await retrying(zk, lambda: zk.get_children(parent, watch))
    ops = [GetData(f"{parent}/{name}") for name in names]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: list[Notification] = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, ZkError):
            if not isinstance(answer, NoNode):
                raise answer
            found.append(Notification(name, None))
            continue
        assert isinstance(answer, tuple)
        found.append(Notification(name, answer[0]))
    return found
