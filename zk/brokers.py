"""Cluster id, broker ids, and the registrations of live brokers (reference: zookeeper 2.1, 2.2, 2.9).

A broker's epoch is the czxid of its registration: it tells apart the lives of one broker id.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import Deferred

from kafkalike.errors import DuplicateBrokerRegistration
from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import TimedOut, timeout
from kafkalike.types import uuid_to_text

from . import paths
from .client import (
    Create,
    Delete,
    GetData,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    RuntimeInconsistency,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    ZkClient,
    ZkError,
    create_recursive,
    ensure_path,
    retrying,
)
from .znodes import BrokerInfo, CorruptZnode, decode_cluster_id, encode_cluster_id


@dataclass(slots=True, frozen=True)
class Registration:
    """This broker's presence in the cluster."""

    epoch: int
    session_id: int


@dataclass(slots=True, frozen=True)
class RegisteredBroker:
    """A live broker as its registration describes it."""

    id: int
    epoch: int
    info: BrokerInfo


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random (version 4) id whose text does not begin with a dash, as Kafka makes them."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        made = bytes(raw)
        if not uuid_to_text(made).startswith("-"):
            return made


async def precreate(zk: ZkClient) -> None:
    """Create the parents that every broker relies on, with null data, where they are missing."""
    found = await retrying(zk, lambda: zk.multi_read([GetData(p) for p in paths.PRECREATED]))
    for path, answer in zip(paths.PRECREATED, found, strict=True):
        if isinstance(answer, NoNode):
            await ensure_path(zk, path)
        elif isinstance(answer, ZkError):
            raise answer


async def read_cluster_id(zk: ZkClient) -> str | None:
    """The cluster's id, 22 characters; None while no broker has ever started."""
    try:
        data, _ = await retrying(zk, lambda: zk.get(paths.CLUSTER_ID))
    except NoNode:
        return None
    return decode_cluster_id(data, paths.CLUSTER_ID)


async def cluster_id(zk: ZkClient, random_bytes: Callable[[int], bytes]) -> str:
    """The cluster's id; the first broker ever makes one."""
    while True:
        found = await read_cluster_id(zk)
        if found is not None:
            return found
        mine = encode_cluster_id(uuid_to_text(random_uuid(random_bytes)))
        try:
            await create_recursive(zk, paths.CLUSTER_ID, mine)
        except NodeExists:
            continue


async def generate_broker_id(zk: ZkClient, max_reserved_id: int) -> int:
    """An id that nobody has, above `reserved.broker.max.id`; a lost answer skips an id."""
    while True:
        try:
            stat = await retrying(zk, lambda: zk.set(paths.BROKER_SEQID, b""))
        except NoNode:
            await ensure_path(zk, paths.BROKER_SEQID)
            continue
        return max_reserved_id + stat.version


async def register(
    zk: ZkClient,
    clock: Clock,
    broker_id: int,
    info: BrokerInfo,
    *,
    wait_s: float,
    logger: logging.Logger,
    previous_session_id: int = 0,
) -> Registration:
    """Announce this broker; its epoch is new unless this session has registered before.

    A node left by this process's own `previous_session_id` is replaced.  A node of any other
    session belongs to an earlier life that ZooKeeper has not yet declared dead, or to a living
    broker with the same id: for up to `wait_s` seconds its end is awaited and reported (Kafka gives
    up at once; reference: observed, "Topics and metadata").

    Raises DuplicateBrokerRegistration when the foreign node is still there after `wait_s`, or when
    another live broker advertises one of our `host:port` pairs; SessionExpired when the session
    ends meanwhile.
    """
    await _refuse_shared_endpoints(zk, broker_id, info)
    path = paths.broker(broker_id)
    create: list[Op] = [
        Create(path, None, ephemeral=True),
        SetData(path, info.encode(), version=0),
    ]
    deadline = clock.monotonic() + wait_s
    session_id = zk.session_id
    stat: Stat | None = None
    while stat is None:
        stat = _created(await retrying(zk, lambda: zk.multi(create)))
        if stat is None:
            try:
                data, found = await retrying(zk, lambda: zk.get(path))
            except NoNode:
                continue
            owner = found.ephemeral_owner
            if owner == session_id:
                stat = found
                if data != info.encode():
                    stat = await retrying(zk, lambda: zk.set(path, info.encode()))
            elif owner == previous_session_id:
                logger.info(
                    "replacing the registration of our earlier session broker=%d", broker_id
                )
                replace = [Delete(path, found.version), *create]
                stat = _created(await retrying(zk, partial(zk.multi, replace)))
            else:
                await _await_end(zk, clock, path, owner, deadline, logger)
    if zk.session_id != session_id:
        raise SessionExpired(path)
    return Registration(stat.czxid, session_id)


async def wait_for_place(
    zk: ZkClient, clock: Clock, broker_id: int, *, wait_s: float, logger: logging.Logger
) -> None:
    """Wait until no node of another session stands where `register` puts this broker's.

    Raises DuplicateBrokerRegistration when one is still there after `wait_s`.
    """
    path = paths.broker(broker_id)
    deadline = clock.monotonic() + wait_s
    while True:
        stat = await retrying(zk, lambda: zk.exists(path))
        if stat is None or stat.ephemeral_owner == zk.session_id:
            return
        await _await_end(zk, clock, path, stat.ephemeral_owner, deadline, logger)


def _created(results: list[OpResult]) -> Stat | None:
    """The registration's stat, or None when something about the node was not as expected."""
    for result in results:
        if isinstance(result, ZkError) and not isinstance(
            result, NodeExists | NoNode | RuntimeInconsistency
        ):
            raise result
    last = results[-1]
    return last if isinstance(last, Stat) else None


async def _await_end(
    zk: ZkClient, clock: Clock, path: str, owner: int, deadline: float, logger: logging.Logger
) -> None:
    """Wait until the node is gone or changed; DuplicateBrokerRegistration at the deadline."""
    remaining = deadline - clock.monotonic()
    if remaining <= 0:
        raise DuplicateBrokerRegistration(
            f"{path} is held by session 0x{owner:x}: another broker with this id is running, or"
            " the session of an earlier one has not expired in the time allowed"
        )
    logger.warning(
        "waiting for the session of another broker with this id to end path=%s session=0x%x"
        " at_most_s=%.1f",
        path,
        owner,
        remaining,
    )
    changed: Deferred[None] = Deferred()

    def settle() -> None:
        if not changed.called:
            changed.callback(None)

    def fired(_: WatchEvent) -> None:
        settle()

    def state_changed(state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            settle()

    zk.add_listener(state_changed)
    try:
        stat = await retrying(zk, lambda: zk.exists(path, fired))
        if stat is not None and stat.ephemeral_owner == owner:
            await timeout(clock, changed, remaining, f"waiting for {path} to disappear")
    except TimedOut:
        return
    finally:
        zk.remove_listener(state_changed)


async def _refuse_shared_endpoints(zk: ZkClient, broker_id: int, info: BrokerInfo) -> None:
    ours = {(endpoint.host, endpoint.port) for endpoint in info.endpoints}
    for other in (await read_all(zk)).values():
        if other.id == broker_id:
            continue
        shared = [e for e in other.info.endpoints if (e.host, e.port) in ours]
        if shared:
            raise DuplicateBrokerRegistration(
                f"advertised address {shared[0].host}:{shared[0].port} is already registered by"
                f" broker {other.id}"
            )


async def update(zk: ZkClient, broker_id: int, info: BrokerInfo) -> None:
    """Change what is advertised; the epoch stays.  Raises NoNode when not registered."""
    await retrying(zk, lambda: zk.set(paths.broker(broker_id), info.encode()))


async def read_all(
    zk: ZkClient, children_watch: Watch | None = None, data_watch: Watch | None = None
) -> dict[int, RegisteredBroker]:
    """All live brokers by id; those whose payload cannot be read raise CorruptZnode."""
    names, _ = await retrying(zk, lambda: zk.get_children(paths.BROKER_IDS, children_watch))
    ids = [_broker_id(name) for name in names]
    return await read_some(zk, ids, data_watch)


async def read_some(
    zk: ZkClient, broker_ids: list[int], watch: Watch | None = None
) -> dict[int, RegisteredBroker]:
    """Those of `broker_ids` that are alive, in ascending order."""
    ids = sorted(broker_ids)
    ops = [GetData(paths.broker(broker_id)) for broker_id in ids]
    found: dict[int, RegisteredBroker] = {}
    answers = await retrying(zk, lambda: zk.multi_read(ops, watch))
    for broker_id, answer in zip(ids, answers, strict=True):
        if isinstance(answer, NoNode):
            continue
        if isinstance(answer, ZkError):
            raise answer
        assert isinstance(answer, tuple)
        data, stat = answer
        info = BrokerInfo.decode(data, paths.broker(broker_id))
        found[broker_id] = RegisteredBroker(broker_id, stat.czxid, info)
    return found


def _broker_id(name: str) -> int:
    if not name.isascii() or not name.isdigit():
        raise CorruptZnode(f"{paths.BROKER_IDS}/{name}", "the name is no broker id")
    return int(name)
