"""The requests of the wire protocol, carried out on the tree.

Synchronous: `execute` takes one request's bytes and returns the body of its answer, or says which
error the answer carries.  Framing, sessions' lifetimes and sending are the connection's business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafkalike.zk.client import GetData, Stat

from .jute import (
    MULTI_END,
    JuteReader,
    MalformedRecord,
    OpCode,
    read_check,
    read_create,
    read_create_ttl,
    read_delete,
    read_multi,
    read_multi_read,
    read_set_acl,
    read_set_data,
    write_acl,
    write_buffer,
    write_int,
    write_multi_error,
    write_multi_read_children,
    write_multi_read_data,
    write_multi_result,
    write_stat,
    write_string,
    write_strings,
)
from .model import Code, Created, TreeError
from .tree import CoordinationTree
from .watches import Caller, WatcherType, WatchMode

_ADD_WATCH_MODES: Final = (WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE)
_WRITE_TYPES: Final = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.DELETE_CONTAINER,
        OpCode.SET_DATA,
        OpCode.SET_ACL,
        OpCode.CHECK,
        OpCode.MULTI,
        OpCode.RECONFIG,
    }
)


@dataclass(slots=True, frozen=True)
class Answer:
    """What goes back."""

    code: Code
    body: bytes = b""
    unknown: bool = False
    """The request type does not exist: the connection ends after this answer."""


_Handler: TypeAlias = Callable[[CoordinationTree, Caller, JuteReader, int], bytes]


def execute(
    tree: CoordinationTree, caller: Caller, kind: int, reader: JuteReader, now_ms: int
) -> Answer:
    """Carry out one request of type `kind` whose record starts at the reader's position."""
    handler = _HANDLERS.get(kind)
    if handler is None:
        return Answer(Code.UNIMPLEMENTED, unknown=True)
    try:
        return Answer(Code.OK, handler(tree, caller, reader, now_ms))
    except TreeError as error:
        return Answer(error.code)
    except MalformedRecord:
        if kind in _WRITE_TYPES:
            tree.refuse_write(now_ms)
        return Answer(Code.MARSHALLING_ERROR)


def _create(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    result = tree.write(caller, read_create(reader), now_ms)
    assert isinstance(result, Created)
    return write_string(result.path)


def _create2(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    result = tree.write(caller, read_create(reader), now_ms)
    assert isinstance(result, Created)
    return write_string(result.path) + write_stat(result.stat)


def _create_unsupported(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    """Containers and nodes with a time to live."""
    read_create(reader)
    tree.refuse_write(now_ms)
    raise TreeError(Code.UNIMPLEMENTED)


def _create_ttl(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    read_create_ttl(reader)
    tree.refuse_write(now_ms)
    raise TreeError(Code.UNIMPLEMENTED)


def _delete(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    tree.write(caller, read_delete(reader), now_ms)
    return b""


def _set_data(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    return _new_stat(tree.write(caller, read_set_data(reader), now_ms))


def _set_acl(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    return _new_stat(tree.write(caller, read_set_acl(reader), now_ms))


def _check(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    tree.write(caller, read_check(reader), now_ms)
    return b""


def _multi(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    types, ops = read_multi(reader)
    results = tree.multi(caller, ops, now_ms)
    parts = [write_multi_result(kind, result) for kind, result in zip(types, results, strict=True)]
    return b"".join(parts) + MULTI_END


def _reconfig(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    tree.refuse_write(now_ms)
    raise TreeError(Code.RECONFIG_DISABLED)


def _exists(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    path = reader.text("path")
    return write_stat(tree.exists(caller, path, reader.boolean("watch")))


def _get_data(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    path = reader.text("path")
    data, stat = tree.get_data(caller, path, reader.boolean("watch"))
    return write_buffer(data) + write_stat(stat)


def _get_children(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    path = reader.text("path")
    names, _ = tree.get_children(caller, path, reader.boolean("watch"))
    return write_strings(names)


def _get_children2(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    path = reader.text("path")
    names, stat = tree.get_children(caller, path, reader.boolean("watch"))
    return write_strings(names) + write_stat(stat)


def _multi_read(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    parts = []
    for op in read_multi_read(reader):
        try:
            if isinstance(op, GetData):
                parts.append(write_multi_read_data(*tree.get_data(caller, op.path)))
            else:
                parts.append(write_multi_read_children(tree.get_children(caller, op.path)[0]))
        except TreeError as error:
            parts.append(write_multi_error(error.code))
    return b"".join(parts) + MULTI_END


def _get_acl(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    acl, stat = tree.get_acl(caller, reader.text("path"))
    return write_acl(acl) + write_stat(stat)


def _sync(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    return write_string(reader.string("path"))


def _ping(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    return b""


def _get_ephemerals(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    return write_strings(tree.get_ephemerals(caller, reader.string("prefixPath")))


def _count_descendants(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    return write_int(tree.count_descendants(caller, reader.text("path")))


def _set_watches(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    tree.set_watches(
        caller,
        reader.int64("relativeZxid"),
        data=reader.strings("dataWatches"),
        exist=reader.strings("existWatches"),
        child=reader.strings("childWatches"),
    )
    return b""


def _set_watches2(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    tree.set_watches(
        caller,
        reader.int64("relativeZxid"),
        data=reader.strings("dataWatches"),
        exist=reader.strings("existWatches"),
        child=reader.strings("childWatches"),
        persistent=reader.strings("persistentWatches"),
        persistent_recursive=reader.strings("persistentRecursiveWatches"),
    )
    return b""


def _add_watch(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    path = reader.text("path")
    mode = reader.int32("mode")
    if not 0 <= mode < len(_ADD_WATCH_MODES):
        raise MalformedRecord(f"mode: {mode}, expected 0 (persistent) or 1 (recursive)")
    tree.add_watch(caller, path, _ADD_WATCH_MODES[mode])
    return write_int(0)


def _check_watches(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    path = reader.text("path")
    tree.check_watches(caller, path, _watcher_type(reader))
    return b""


def _remove_watches(
    tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int
) -> bytes:
    path = reader.text("path")
    tree.remove_watches(caller, path, _watcher_type(reader))
    return b""


def _who_am_i(tree: CoordinationTree, caller: Caller, reader: JuteReader, now_ms: int) -> bytes:
    parts = [write_int(len(caller.identities))]
    for scheme, text in caller.identities:
        name = text.partition(":")[0] if scheme == "digest" else text
        parts.append(write_string(scheme) + write_string(name))
    return b"".join(parts)


def _new_stat(result: object) -> bytes:
    assert isinstance(result, Stat)
    return write_stat(result)


def _watcher_type(reader: JuteReader) -> WatcherType:
    kind = reader.int32("type")
    try:
        return WatcherType(kind)
    except ValueError:
        raise MalformedRecord(f"type: {kind}, expected 1 to 5") from None


_HANDLERS: Final[dict[int, _Handler]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create2,
    OpCode.CREATE_CONTAINER: _create_unsupported,
    OpCode.CREATE_TTL: _create_ttl,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.SET_ACL: _set_acl,
    OpCode.CHECK: _check,
    OpCode.MULTI: _multi,
    OpCode.RECONFIG: _reconfig,
    OpCode.EXISTS: _exists,
    OpCode.GET_DATA: _get_data,
    OpCode.GET_CHILDREN: _get_children,
    OpCode.GET_CHILDREN2: _get_children2,
    OpCode.MULTI_READ: _multi_read,
    OpCode.GET_ACL: _get_acl,
    OpCode.SYNC: _sync,
    OpCode.PING: _ping,
    OpCode.GET_EPHEMERALS: _get_ephemerals,
    OpCode.GET_ALL_CHILDREN_NUMBER: _count_descendants,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.SET_WATCHES2: _set_watches2,
    OpCode.ADD_WATCH: _add_watch,
    OpCode.CHECK_WATCHES: _check_watches,
    OpCode.REMOVE_WATCHES: _remove_watches,
    OpCode.WHO_AM_I: _who_am_i,
}
