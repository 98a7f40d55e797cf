"""Dynamic configuration of topics, brokers, clients, users and addresses (reference: zookeeper 2.7).

An entity is named by its path below `/config`, as in change notifications: `topics/t`, `brokers/1`,
`brokers/<default>`, `clients/c`, `users/u`, `users/u/clients/c`, `ips/x`; client, user and address
names are sanitised (`paths.sanitize`).  Values are strings; the last writer wins.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from . import paths
from .client import (
    Check,
    Delete,
    GetChildren,
    GetData,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
    ZkClient,
    ZkError,
    create_recursive,
    retrying,
)
from .election import ControllerMoved, guarded_batch, read_controller
from .znodes import (
    CorruptZnode,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)


async def list_entities(zk: ZkClient, entity_type: str) -> list[str]:
    """Names below `/config/<entity_type>` as they stand in paths, sorted."""
    try:
        names, _ = await retrying(zk, lambda: zk.get_children(f"{paths.CONFIG}/{entity_type}"))
    except NoNode:
        return []
    return names


async def list_user_clients(zk: ZkClient) -> list[str]:
    """All entity paths `users/<u>/clients/<c>`."""
    users = await list_entities(zk, "users")
    ops = [GetChildren(f"{paths.CONFIG}/users/{user}/clients") for user in users]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: list[str] = []
    for user, answer in zip(users, answers, strict=True):
        if isinstance(answer, list):
            found.extend(f"users/{user}/clients/{client}" for client in answer)
        elif not isinstance(answer, NoNode):
            assert isinstance(answer, ZkError)
            raise answer
    return found


async def read_dated_configs(
    zk: ZkClient, entity_paths: Sequence[str]
) -> dict[str, tuple[dict[str, str] | CorruptZnode, int]]:
    """Overrides of those entities that have a node, with the zxid of its last change."""
    ops = [GetData(paths.entity_config(entity)) for entity in entity_paths]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: dict[str, tuple[dict[str, str] | CorruptZnode, int]] = {}
    for entity, op, answer in zip(entity_paths, ops, answers, strict=True):
        if isinstance(answer, NoNode):
            continue
        if isinstance(answer, ZkError):
            raise answer
        assert isinstance(answer, tuple)
        data, stat = answer
        try:
            found[entity] = decode_config(data, op.path), stat.mzxid
        except CorruptZnode as error:
            found[entity] = error, stat.mzxid
    return found


async def read_configs(
    zk: ZkClient, entity_paths: Sequence[str]
) -> dict[str, dict[str, str] | CorruptZnode]:
    """Overrides of those entities that have a node."""
    dated = await read_dated_configs(zk, entity_paths)
    return {entity: config for entity, (config, _) in dated.items()}


async def read_config(zk: ZkClient, entity_path: str) -> dict[str, str]:
    """One entity's overrides, empty when it has none.  Raises CorruptZnode."""
    found = (await read_configs(zk, [entity_path])).get(entity_path, {})
    if isinstance(found, CorruptZnode):
        raise found
    return found


async def read_all_configs(
    zk: ZkClient, entity_type: str
) -> dict[str, dict[str, str] | CorruptZnode]:
    """Overrides of all entities of one type, by the name in the path."""
    names = await list_entities(zk, entity_type)
    found = await read_configs(zk, [f"{entity_type}/{name}" for name in names])
    return {entity.partition("/")[2]: config for entity, config in found.items()}


async def set_config(zk: ZkClient, entity_path: str, config: Mapping[str, str]) -> None:
    """Replace an entity's overrides, on condition that the controller is the one there is now.

    Raises ControllerMoved when there is no controller, a KRaft controller has taken over, or it
    changed meanwhile (reference: zookeeper 4.3).
    """
    path = paths.entity_config(entity_path)
    data = encode_config(config)
    while True:
        holder = await read_controller(zk)
        if holder is None or holder[0].kraft_controller_epoch > 0:
            raise ControllerMoved("no ZooKeeper controller is active: configs cannot be changed")
        ops: list[Op] = [Check(paths.CONTROLLER, holder[1].version), SetData(path, data)]
        check, result = await retrying(zk, partial(zk.multi, ops))
        if isinstance(check, ZkError):
            raise ControllerMoved("the controller changed while a config was written")
        if not isinstance(result, ZkError):
            return
        if not isinstance(result, NoNode):
            raise result
        try:
            await create_recursive(zk, path, data)
        except NodeExists:
            continue
        return


async def change_config(zk: ZkClient, entity_path: str, config: Mapping[str, str]) -> None:
    """Replace an entity's overrides and tell all brokers: entity node first, then notification.

    An empty client, user or address entity is removed instead, with its empty parents, unless it
    still has children.  Raises ControllerMoved.
    """
    removable = entity_path.split("/", 1)[0] in ("clients", "users", "ips")
    if config or not removable or not await _remove_entity(zk, entity_path):
        await set_config(zk, entity_path, config)
    await notify_change(zk, entity_path)


async def _remove_entity(zk: ZkClient, entity_path: str) -> bool:
    """Delete the node and its parents below `/config/<type>` as far as they are empty."""
    parts = entity_path.split("/")
    if not await _delete_leaf(zk, entity_path):
        return False
    while len(parts) > 2:
        # users/u/clients/c: first the folder `clients`, then the user if it holds nothing itself.
        parts.pop()
        parent = "/".join(parts)
        if len(parts) == 2 and await read_config(zk, parent):
            break
        if not await _delete_leaf(zk, parent):
            break
    return True


async def _delete_leaf(zk: ZkClient, entity_path: str) -> bool:
    try:
        await retrying(zk, lambda: zk.delete(paths.entity_config(entity_path)))
    except NotEmpty:
        return False
    except NoNode:
        return True
    return True


async def notify_change(zk: ZkClient, entity_path: str) -> None:
    """Tell every broker to read an entity again; may be sent twice after a lost connection."""
    await create_notification(
        zk,
        f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}",
        encode_config_change(entity_path),
    )


async def create_notification(zk: ZkClient, prefix: str, data: bytes) -> str:
    """A sequential node; its parent is made when missing.  Returns the path created."""
    while True:
        try:
            return await retrying(zk, lambda: zk.create(prefix, data, sequential=True))
        except NoNode:
            parent = prefix.rpartition("/")[0]
            try:
                await create_recursive(zk, parent, None)
            except NodeExists:
                continue


async def delete_topic_configs(zk: ZkClient, fence: int, topics: Iterable[str]) -> None:
    """Delete `/config/topics/<t>` of deleted topics; for the controller, absent ones are fine."""
    ops: list[Op] = [Delete(paths.topic_config(topic)) for topic in topics]
    for result in await guarded_batch(zk, fence, ops):
        if isinstance(result, ZkError) and not isinstance(result, NoNode):
            raise result


def decode_change(data: bytes | None, path: str) -> str:
    """The entity path that a notification of `/config/changes` names.  Raises CorruptZnode."""
    return decode_config_change(data, path)
