"""ZooKeeper requests as bytes and answers as values, for the client side.

Each function makes a `WireRequest`: its operation number, its body, and how to read its answer.
Paths are within `chroot`, which is "" or a path without slash at its end.  Integers are big-endian;
strings and buffers carry a 4-byte length, -1 for null.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, assert_never

from .client import (
    Check,
    Create,
    Delete,
    GetData,
    Op,
    OpResult,
    ReadOp,
    ReadResult,
    SetData,
    Stat,
    error_for,
)

_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_SET_WATCHES: Final = struct.Struct(">q")
_NULL: Final = _INT.pack(-1)
_FLAG: Final = (b"\0", b"\1")

CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_CHILDREN: Final = 8
GET_CHILDREN_STAT: Final = 12
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22
SET_WATCHES: Final = 101
FAILED: Final = -1

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2


class Acl(NamedTuple):
    """Who may do what with a znode; `permissions` is ZooKeeper's bit set (31 = all)."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL: Final = (Acl(31, "world", "anyone"),)

AclPolicy = Callable[[str], Sequence[Acl]]
"""The ACL of a node to be created, by its path within the chroot (reference: zookeeper 6)."""


class MalformedAnswer(ValueError):
    """Bytes that are not the answer expected."""


@dataclass(slots=True, frozen=True)
class WireRequest:
    """One request: `decode(body, position)` reads the body of its answer.

    `path` is what errors name: within the chroot.
    """

    type: int
    body: bytes = field(repr=False)
    path: str
    decode: Callable[[bytes, int], Any] = field(repr=False)

    def serialize(self) -> bytes:
        return self.body


def write_string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return _INT.pack(len(raw)) + raw


def write_buffer(data: bytes | None) -> bytes:
    return _NULL if data is None else _INT.pack(len(data)) + data


def _write_acl(acl: Sequence[Acl]) -> bytes:
    parts = [_INT.pack(len(acl))]
    for entry in acl:
        parts += (
            _INT.pack(entry.permissions),
            write_string(entry.scheme),
            write_string(entry.id),
        )
    return b"".join(parts)


def read_buffer(data: bytes, position: int) -> tuple[bytes | None, int]:
    """The buffer (None when null) and the position behind it."""
    (length,) = _INT.unpack_from(data, position)
    position += 4
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise MalformedAnswer(f"a buffer of {length} bytes ends {end - len(data)} bytes too late")
    return data[position:end], end


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """The string and the position behind it; null reads as empty."""
    raw, position = read_buffer(data, position)
    return (raw or b"").decode("utf-8", "replace"), position


def _read_strings(data: bytes, position: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, position)
    position += 4
    if count * 4 > len(data) - position:
        raise MalformedAnswer(f"{count} strings in {len(data) - position} bytes")
    found: list[str] = []
    for _ in range(count):
        text, position = read_string(data, position)
        found.append(text)
    return found, position


def _read_stat(data: bytes, position: int) -> Stat:
    return Stat(*_STAT.unpack_from(data, position))


def _nothing(data: bytes, position: int) -> None:
    return None


def full_path(chroot: str, path: str) -> str:
    """The path that the server knows."""
    return chroot if chroot and path == "/" else chroot + path


def own_path(chroot: str, path: str) -> str:
    """The reverse of `full_path`."""
    return path[len(chroot) :] or "/"


def _path_and_flag(chroot: str, path: str, watch: bool) -> bytes:
    return write_string(full_path(chroot, path)) + _FLAG[watch]


def get_data(chroot: str, path: str, watch: bool) -> WireRequest:
    return WireRequest(GET_DATA, _path_and_flag(chroot, path, watch), path, _decode_data)


def _decode_data(data: bytes, position: int) -> tuple[bytes | None, Stat]:
    payload, position = read_buffer(data, position)
    return payload, _read_stat(data, position)


def exists(chroot: str, path: str, watch: bool) -> WireRequest:
    """The answer to an absent node is the error NoNode."""
    return WireRequest(EXISTS, _path_and_flag(chroot, path, watch), path, _read_stat)


def get_children(chroot: str, path: str, watch: bool) -> WireRequest:
    body = _path_and_flag(chroot, path, watch)
    return WireRequest(GET_CHILDREN_STAT, body, path, _decode_children)


def _decode_children(data: bytes, position: int) -> tuple[list[str], Stat]:
    names, position = _read_strings(data, position)
    names.sort()
    return names, _read_stat(data, position)


def _create_body(path: str, op: Create, acl: Sequence[Acl]) -> bytes:
    flags = (_EPHEMERAL if op.ephemeral else 0) | (_SEQUENTIAL if op.sequential else 0)
    return b"".join((write_string(path), write_buffer(op.data), _write_acl(acl), _INT.pack(flags)))


def create(chroot: str, op: Create, acl: Sequence[Acl]) -> WireRequest:
    """The answer is the path created, within the chroot."""

    def decode(data: bytes, position: int) -> str:
        return own_path(chroot, read_string(data, position)[0])

    body = _create_body(full_path(chroot, op.path), op, acl)
    return WireRequest(CREATE, body, op.path, decode)


def set_data(chroot: str, path: str, data: bytes | None, version: int) -> WireRequest:
    body = write_string(full_path(chroot, path)) + write_buffer(data) + _INT.pack(version)
    return WireRequest(SET_DATA, body, path, _read_stat)


def delete(chroot: str, path: str, version: int) -> WireRequest:
    body = write_string(full_path(chroot, path)) + _INT.pack(version)
    return WireRequest(DELETE, body, path, _nothing)


def multi(chroot: str, ops: Sequence[Op], acl: AclPolicy) -> WireRequest:
    """The answer is one result per operation."""
    parts: list[bytes] = []
    for op in ops:
        path = full_path(chroot, op.path)
        match op:
            case Create():
                parts += (_header(CREATE), _create_body(path, op, acl(op.path)))
            case SetData():
                parts += (_header(SET_DATA), write_string(path), write_buffer(op.data))
                parts.append(_INT.pack(op.version))
            case Delete():
                parts += (_header(DELETE), write_string(path), _INT.pack(op.version))
            case Check():
                parts += (_header(CHECK), write_string(path), _INT.pack(op.version))
            case _:
                assert_never(op)
    parts.append(_MULTI_HEADER.pack(-1, True, -1))

    def decode(data: bytes, position: int) -> list[OpResult]:
        results: list[OpResult] = []
        for op in ops:
            kind, done, _ = _MULTI_HEADER.unpack_from(data, position)
            position += _MULTI_HEADER.size
            if done:
                raise MalformedAnswer(f"{len(results)} results for {len(ops)} operations")
            if kind == FAILED:
                (code,) = _INT.unpack_from(data, position)
                position += 4
                results.append(error_for(code, op.path) if code else None)
            elif kind == CREATE:
                path, position = read_string(data, position)
                results.append(own_path(chroot, path))
            elif kind == SET_DATA:
                results.append(_read_stat(data, position))
                position += _STAT.size
            elif kind in (DELETE, CHECK):
                results.append(None)
            else:
                raise MalformedAnswer(f"result of unknown kind {kind}")
        return results

    return WireRequest(MULTI, b"".join(parts), ops[0].path if ops else "", decode)


def _header(kind: int) -> bytes:
    return _MULTI_HEADER.pack(kind, False, -1)


def multi_read(chroot: str, ops: Sequence[ReadOp]) -> WireRequest:
    """The answer is one result per operation, and how many bytes they took."""
    parts: list[bytes] = []
    for op in ops:
        kind = GET_DATA if isinstance(op, GetData) else GET_CHILDREN
        parts += (_header(kind), _path_and_flag(chroot, op.path, False))
    parts.append(_MULTI_HEADER.pack(-1, True, -1))

    def decode(data: bytes, position: int) -> tuple[list[ReadResult], int]:
        results: list[ReadResult] = []
        for op in ops:
            kind, done, _ = _MULTI_HEADER.unpack_from(data, position)
            position += _MULTI_HEADER.size
            if done:
                raise MalformedAnswer(f"{len(results)} results for {len(ops)} reads")
            if kind == FAILED:
                (code,) = _INT.unpack_from(data, position)
                position += 4
                results.append(error_for(code, op.path))
            elif kind == GET_DATA:
                payload, position = read_buffer(data, position)
                results.append((payload, _read_stat(data, position)))
                position += _STAT.size
            elif kind == GET_CHILDREN:
                names, position = _read_strings(data, position)
                names.sort()
                results.append(names)
            else:
                raise MalformedAnswer(f"result of unknown kind {kind}")
        return results, len(data)

    return WireRequest(MULTI_READ, b"".join(parts), ops[0].path if ops else "", decode)


def set_watches(
    chroot: str,
    zxid: int,
    data: Sequence[str],
    absent: Sequence[str] = (),
    children: Sequence[str] = (),
) -> WireRequest:
    """Watch nodes again on a new connection: what changed after `zxid` is told at once."""
    parts = [_SET_WATCHES.pack(zxid)]
    for watched in (data, absent, children):
        parts.append(_INT.pack(len(watched)))
        parts.extend(write_string(full_path(chroot, path)) for path in watched)
    return WireRequest(SET_WATCHES, b"".join(parts), "", _nothing)
