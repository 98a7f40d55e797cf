"""Who is controller, and writes that only the controller may make.

Election and fencing follow reference zookeeper 4: the data version of `/controller_epoch` that an
election produced is checked in the same multi as every write of that controller, so a controller
that has been replaced without knowing it changes nothing.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from kafkalike.errors import StaleControllerEpoch

from . import paths
from .client import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    GetData,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    RuntimeInconsistency,
    SetData,
    Stat,
    Watch,
    ZkClient,
    ZkError,
    retrying,
)
from .znodes import ControllerInfo, decode_number, encode_number

GROUP_OPS: Final = 500
"""Fenced operations per multi: beyond a few hundred a larger group gains nothing (measured)."""

GROUP_BYTES: Final = 512 * 1024
"""Paths and data per multi, well below the server's default packet limit of 1 MiB."""

_OP_OVERHEAD_BYTES: Final = 64


class ControllerMoved(Exception):
    """Another broker is controller now, or nobody is: the write was not made.

    `as_kafka_error` is what a client sees (code 11).
    """

    def as_kafka_error(self) -> StaleControllerEpoch:
        return StaleControllerEpoch(str(self))


@dataclass(slots=True, frozen=True)
class Elected:
    """Office: the controller epoch, and the fence for every write made in it."""

    epoch: int
    epoch_zk_version: int


async def read_controller(
    zk: ZkClient, watch: Watch | None = None
) -> tuple[ControllerInfo, Stat] | None:
    """Who holds `/controller`; None when nobody does.

    `watch` fires when the node is created, changed or deleted, whether or not it is there now.
    """
    if await retrying(zk, lambda: zk.exists(paths.CONTROLLER, watch)) is None:
        return None
    try:
        data, stat = await retrying(zk, lambda: zk.get(paths.CONTROLLER))
    except NoNode:
        return None
    return ControllerInfo.decode(data, paths.CONTROLLER), stat


async def read_controller_epoch(zk: ZkClient) -> tuple[int, int] | None:
    """The controller epoch and its data version; None before the first election ever."""
    try:
        data, stat = await retrying(zk, lambda: zk.get(paths.CONTROLLER_EPOCH))
    except NoNode:
        return None
    return decode_number(data, paths.CONTROLLER_EPOCH), stat.version


async def elect(zk: ZkClient, broker_id: int, now_ms: int) -> Elected:
    """Try once to become controller.

    Raises ControllerMoved when another broker was faster.  A lost answer is resolved by looking who
    is there (reference: zookeeper 4.2).
    """
    epoch, version = await _epoch_or_first(zk)
    info = ControllerInfo(broker_id, now_ms)
    ops: list[Op] = [
        Create(paths.CONTROLLER, info.encode(), ephemeral=True),
        SetData(paths.CONTROLLER_EPOCH, encode_number(epoch + 1), version),
    ]
    results = await retrying(zk, lambda: zk.multi(ops))
    failed_at = _failed_at(results)
    if failed_at is None:
        stat = results[1]
        assert isinstance(stat, Stat)
        return Elected(epoch + 1, stat.version)
    if not isinstance(results[failed_at], NodeExists | BadVersion):
        _value(results[failed_at])
    return await _elected_after_all(zk, info, epoch + 1)


async def _epoch_or_first(zk: ZkClient) -> tuple[int, int]:
    while True:
        found = await read_controller_epoch(zk)
        if found is not None:
            return found
        try:
            await retrying(zk, lambda: zk.create(paths.CONTROLLER_EPOCH, encode_number(0)))
        except NodeExists:
            continue
        return 0, 0


async def _elected_after_all(zk: ZkClient, mine: ControllerInfo, epoch: int) -> Elected:
    """An election multi failed: was it because an earlier sending of the same multi had won?"""
    holder = await read_controller(zk)
    if holder is None:
        raise ControllerMoved(
            "/controller vanished during the election: another broker won and left"
        )
    found = await read_controller_epoch(zk)
    info, stat = holder
    # The session is compared as well: the node of this broker's earlier life is not ours.
    ours = info == mine and stat.ephemeral_owner == zk.session_id
    if ours and found is not None and found[0] == epoch:
        return Elected(epoch, found[1])
    raise ControllerMoved(
        f"broker {info.broker_id} is controller, this broker lost the election for epoch {epoch}"
    )


async def resign(zk: ZkClient, epoch_zk_version: int) -> None:
    """Delete `/controller` if this broker still is controller (forced resignation).

    Raises ControllerMoved when it no longer is; an absent node is fine.
    """
    try:
        await guarded(zk, epoch_zk_version, Delete(paths.CONTROLLER))
    except NoNode:
        return


async def guarded(zk: ZkClient, epoch_zk_version: int, op: Op) -> OpResult:
    """One fenced write.  Raises ControllerMoved, or the operation's own error."""
    (result,) = await guarded_batch(zk, epoch_zk_version, [op])
    return _value(result)


async def guarded_batch(
    zk: ZkClient,
    epoch_zk_version: int,
    ops: Sequence[Op],
    *,
    group_ops: int = GROUP_OPS,
    group_bytes: int = GROUP_BYTES,
) -> list[OpResult]:
    """Many fenced writes, in order; each succeeds or fails alone, the result tells which.

    The outcomes are those of one multi per operation.  To be faster, up to `group_ops` travel in
    one multi; as that is all or nothing, a group with a failing operation is sent again without it,
    and groups shrink while failures are dense.  Raises ControllerMoved: operations of groups before
    that moment were applied, and the caller must forget everything and resign anyway.

    After a lost connection a group is sent again; a group that then fails only because its earlier
    sending was applied counts as a success (reference: zookeeper 5.2, "a write that may have
    succeeded"; there some of these are left unresolved).
    """
    results: list[OpResult] = [None] * len(ops)
    size = group_ops
    start = 0
    while start < len(ops):
        end = _group_end(ops, start, size, group_bytes)
        failed_at = await _write_group(zk, epoch_zk_version, ops, start, end, results)
        if failed_at is None:
            size = min(group_ops, max(size, 1) * 2)
            start = end
            continue
        if failed_at > start:
            await _write_prefix(zk, epoch_zk_version, ops, start, failed_at, results)
        size = max(1, (end - start) // 2)
        start = failed_at + 1
    return results


async def _write_prefix(
    zk: ZkClient,
    epoch_zk_version: int,
    ops: Sequence[Op],
    start: int,
    end: int,
    results: list[OpResult],
) -> None:
    """Write operations that were fine in a group which failed later; the world may have moved on."""
    while start < end:
        failed_at = await _write_group(zk, epoch_zk_version, ops, start, end, results)
        if failed_at is None:
            return
        if failed_at > start:
            await _write_prefix(zk, epoch_zk_version, ops, start, failed_at, results)
        start = failed_at + 1


def _group_end(ops: Sequence[Op], start: int, size: int, group_bytes: int) -> int:
    total = 0
    for index in range(start, min(start + size, len(ops))):
        op = ops[index]
        data = op.data if isinstance(op, Create | SetData) else None
        total += len(op.path) + len(data or b"") + _OP_OVERHEAD_BYTES
        if total > group_bytes and index > start:
            return index
    return min(start + size, len(ops))


async def _write_group(
    zk: ZkClient,
    epoch_zk_version: int,
    ops: Sequence[Op],
    start: int,
    end: int,
    results: list[OpResult],
) -> int | None:
    """Send `ops[start:end]` as one multi; None when applied, else the index of the one that failed.

    Only the failing operation's result is recorded then.
    """
    fence: list[Op] = [Check(paths.CONTROLLER_EPOCH, epoch_zk_version)]
    group = list(ops[start:end])
    sent = 0

    def send() -> Awaitable[list[OpResult]]:
        nonlocal sent
        sent += 1
        return zk.multi(fence + group)

    check, *outcomes = await retrying(zk, send)
    if isinstance(check, BadVersion):
        raise ControllerMoved(
            f"/controller_epoch is no longer at version {epoch_zk_version}: controller moved"
        )
    if isinstance(check, ZkError) and not isinstance(check, RuntimeInconsistency):
        raise check
    failed_at = _failed_at(outcomes)
    if failed_at is not None:
        applied = await applied_before(zk, group) if sent > 1 else None
        if applied is None:
            results[start + failed_at] = outcomes[failed_at]
            return start + failed_at
        outcomes = applied
    results[start:end] = outcomes
    return None


def _failed_at(outcomes: Sequence[OpResult]) -> int | None:
    """Which operation a multi failed for; the others only say that they were not made."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ZkError) and not isinstance(outcome, RuntimeInconsistency):
            return index
    return None


async def applied_before(zk: ZkClient, ops: Sequence[Op]) -> list[OpResult] | None:
    """What `ops`, one multi sent more than once, did: their results if an earlier sending was
    applied, None if the world does not look like it.

    Each node must be exactly as the write would have left it: same data, the version that follows
    the expected one, or gone.  Payloads of conditional writes name their writer (controller epoch,
    broker and range, topic id), so nobody else's write looks like ours.
    """
    found = await retrying(zk, lambda: zk.multi_read([GetData(op.path) for op in ops]))
    results: list[OpResult] = []
    for op, answer in zip(ops, found, strict=True):
        if isinstance(answer, ZkError):
            if not (isinstance(answer, NoNode) and isinstance(op, Delete)):
                return None
            results.append(None)
            continue
        assert isinstance(answer, tuple)
        data, stat = answer
        match op:
            case Create(path, wanted, ephemeral, sequential):
                owner = zk.session_id if ephemeral else 0
                same = (data, stat.version, stat.ephemeral_owner) == (wanted, 0, owner)
                if sequential or not same:
                    return None
                results.append(path)
            case SetData(_, wanted, version):
                if data != wanted or version not in (ANY_VERSION, stat.version - 1):
                    return None
                results.append(stat)
            case Check():
                results.append(None)
            case Delete():
                return None
            case _:
                assert_never(op)
    return results


async def write_once(zk: ZkClient, ops: Sequence[Op]) -> list[OpResult]:
    """One multi without fence, sent until its outcome is known; raises the first error."""
    sent = 0

    def send() -> Awaitable[list[OpResult]]:
        nonlocal sent
        sent += 1
        return zk.multi(ops)

    results = await retrying(zk, send)
    failed_at = _failed_at(results)
    if failed_at is None:
        return results
    applied = await applied_before(zk, ops) if sent > 1 else None
    if applied is None:
        _value(results[failed_at])
        raise AssertionError("a failed operation has an error")
    return applied


def _value(result: OpResult) -> OpResult:
    if isinstance(result, ZkError):
        raise result
    return result
