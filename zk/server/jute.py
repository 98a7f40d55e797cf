"""ZooKeeper's wire records: reading with every length checked, writing, and the request types.

A frame is a 4-byte length and a record; all integers are big-endian.  Strings and buffers carry a
4-byte length (-1 = null), vectors a 4-byte count (-1 = null, read as empty).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafkalike.zk.client import GetChildren, GetData, ReadOp, Stat

from .model import (
    Acl,
    CheckOp,
    Code,
    Created,
    CreateOp,
    DeleteOp,
    Id,
    SetAclOp,
    SetDataOp,
    TreeError,
    WriteOp,
    WriteResult,
)

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">ii")
_REPLY: Final = struct.Struct(">iiqi")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_CONNECT: Final = struct.Struct(">iqiq")
_EVENT: Final = struct.Struct(">iqiii")
_MINUS_ONE: Final = b"\xff\xff\xff\xff"

CONNECTED_STATE: Final = 3
"""The keeper state (SyncConnected) that every watch event carries."""
NOTIFICATION_XID: Final = -1
PASSWORD_BYTES: Final = 16


class OpCode(IntEnum):
    """Request types."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


class MalformedRecord(ValueError):
    """Bytes that are not the record expected; the message names the field and the lengths."""


class JuteReader:
    """Reads a record front to back."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._end = len(data)
        self.position = position

    def left(self) -> int:
        return self._end - self.position

    def int32(self, field: str) -> int:
        position = self._take(4, field)
        return int(_INT.unpack_from(self._data, position)[0])

    def int64(self, field: str) -> int:
        position = self._take(8, field)
        return int(_LONG.unpack_from(self._data, position)[0])

    def byte(self, field: str) -> int:
        return self._data[self._take(1, field)]

    def unpack(self, layout: struct.Struct, field: str) -> tuple[int, ...]:
        """Several numbers at once."""
        numbers: tuple[int, ...] = layout.unpack_from(self._data, self._take(layout.size, field))
        return numbers

    def boolean(self, field: str) -> bool:
        return self._data[self._take(1, field)] != 0

    def buffer(self, field: str) -> bytes | None:
        length = self.int32(field)
        if length == -1:
            return None
        if length < 0:
            raise MalformedRecord(f"{field}: length {length}, expected -1 or more")
        position = self._take(length, field)
        return self._data[position : position + length]

    def string(self, field: str) -> str | None:
        data = self.buffer(field)
        return None if data is None else data.decode("utf-8", "replace")

    def text(self, field: str) -> str:
        """A string that must not be null."""
        value = self.string(field)
        if value is None:
            raise MalformedRecord(f"{field}: null, expected a string")
        return value

    def count(self, field: str, least_bytes: int) -> int:
        """The length of a vector whose elements take at least `least_bytes` each; null is 0."""
        count = self.int32(field)
        if count < 0:
            return 0
        if count * least_bytes > self.left():
            raise MalformedRecord(
                f"{field}: {count} elements cannot be in the {self.left()} bytes that are left"
            )
        return count

    def strings(self, field: str) -> list[str]:
        return [self.text(field) for _ in range(self.count(field, 4))]

    def acl(self) -> list[Acl]:
        """An access list.  A null scheme reads as "", which is no scheme; a null id as "", which is
        what some clients mean with the scheme `auth`."""
        entries = []
        for _ in range(self.count("acl", 12)):
            perms, scheme, text = self.int32("perms"), self.string("scheme"), self.string("id")
            if text is None and scheme in ("world", "digest", "ip"):
                raise MalformedRecord(f"id: null, expected an identity of scheme {scheme}")
            entries.append(Acl(perms, Id(scheme or "", text or "")))
        return entries

    def stat(self) -> Stat:
        position = self._take(_STAT.size, "stat")
        return Stat(*_STAT.unpack_from(self._data, position))

    def _take(self, length: int, field: str) -> int:
        position = self.position
        if length > self._end - position:
            raise MalformedRecord(f"{field}: needs {length} bytes, {self._end - position} are left")
        self.position = position + length
        return position


def write_int(value: int) -> bytes:
    return _INT.pack(value)


def write_long(value: int) -> bytes:
    return _LONG.pack(value)


def write_buffer(data: bytes | None) -> bytes:
    return _MINUS_ONE if data is None else _INT.pack(len(data)) + data


def write_string(text: str | None) -> bytes:
    return _MINUS_ONE if text is None else write_buffer(text.encode("utf-8", "replace"))


def write_strings(texts: Iterable[str]) -> bytes:
    parts = [write_string(text) for text in texts]
    return _INT.pack(len(parts)) + b"".join(parts)


def write_acl(acl: Sequence[Acl]) -> bytes:
    parts = [_INT.pack(len(acl))]
    for entry in acl:
        parts.append(_INT.pack(entry.perms))
        parts.append(write_string(entry.id.scheme))
        parts.append(write_string(entry.id.id))
    return b"".join(parts)


def write_stat(stat: Stat) -> bytes:
    return _STAT.pack(
        stat.czxid,
        stat.mzxid,
        stat.ctime_ms,
        stat.mtime_ms,
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )


# -- handshake -------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class ConnectRequest:
    """The first frame of a connection.  `session_id` 0 asks for a new session."""

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None
    """None: the client is too old to send it, and must not be sent it."""


def read_connect_request(frame: bytes) -> ConnectRequest:
    reader = JuteReader(frame)
    reader.int32("protocolVersion")
    last_zxid_seen = reader.int64("lastZxidSeen")
    timeout_ms = reader.int32("timeOut")
    session_id = reader.int64("sessionId")
    password = reader.buffer("passwd")
    read_only = reader.boolean("readOnly") if reader.left() else None
    return ConnectRequest(last_zxid_seen, timeout_ms, session_id, password, read_only)


def write_connect_response(
    timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool
) -> bytes:
    """The whole frame; timeout and session id 0 say that the session is gone."""
    body = _INT.pack(0) + _INT.pack(timeout_ms) + _LONG.pack(session_id) + write_buffer(password)
    if with_read_only:
        body += b"\0"
    return _INT.pack(len(body)) + body


# -- requests and replies --------------------------------------------------------------------------


def read_header(reader: JuteReader) -> tuple[int, int]:
    """(xid, request type)"""
    return reader.int32("xid"), reader.int32("type")


def write_reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """The whole frame of a reply."""
    return _REPLY.pack(16 + len(body), xid, zxid, error) + body


def write_event(event_type: int, path: str, zxid: int) -> bytes:
    """The whole frame of a watch event."""
    body = _INT.pack(event_type) + _INT.pack(CONNECTED_STATE) + write_string(path)
    return _REPLY.pack(16 + len(body), NOTIFICATION_XID, zxid, 0) + body


def read_create(reader: JuteReader) -> CreateOp:
    path = reader.text("path")
    data = reader.buffer("data")
    acl = reader.acl()
    return CreateOp(path, data, acl, reader.int32("flags"))


def read_create_ttl(reader: JuteReader) -> CreateOp:
    op = read_create(reader)
    reader.int64("ttl")
    return op


def read_delete(reader: JuteReader) -> DeleteOp:
    return DeleteOp(reader.text("path"), reader.int32("version"))


def read_set_data(reader: JuteReader) -> SetDataOp:
    return SetDataOp(reader.text("path"), reader.buffer("data"), reader.int32("version"))


def read_check(reader: JuteReader) -> CheckOp:
    return CheckOp(reader.text("path"), reader.int32("version"))


def read_set_acl(reader: JuteReader) -> SetAclOp:
    path = reader.text("path")
    acl = reader.acl()
    return SetAclOp(path, acl, reader.int32("version"))


_LAST_CREATE_FLAG: Final = 4
"""A container; a node with a time to live has a request type of its own."""


def _read_create_in_multi(reader: JuteReader) -> CreateOp:
    """Unlike in a request of its own, wrong flags spoil the whole multi."""
    op = read_create(reader)
    if not 0 <= op.flags <= _LAST_CREATE_FLAG:
        raise MalformedRecord(f"flags: {op.flags}, expected 0 to {_LAST_CREATE_FLAG}")
    return op


_MULTI_WRITES: Final = {
    OpCode.CREATE: _read_create_in_multi,
    OpCode.CREATE2: _read_create_in_multi,
    OpCode.CREATE_CONTAINER: _read_create_in_multi,
    OpCode.CREATE_TTL: read_create_ttl,
    OpCode.DELETE: read_delete,
    OpCode.SET_DATA: read_set_data,
    OpCode.CHECK: read_check,
}


def read_multi(reader: JuteReader) -> tuple[list[int], list[WriteOp]]:
    """The types and operations of a multi."""
    types: list[int] = []
    ops: list[WriteOp] = []
    while (kind := _read_multi_header(reader)) is not None:
        read = _MULTI_WRITES.get(kind)  # type: ignore[call-overload]
        if read is None:
            raise MalformedRecord(f"multi: operation type {kind} is not a write")
        types.append(kind)
        ops.append(read(reader))
    return types, ops


def read_multi_read(reader: JuteReader) -> list[ReadOp]:
    ops: list[ReadOp] = []
    while (kind := _read_multi_header(reader)) is not None:
        path = reader.text("path")
        reader.boolean("watch")  # clients never set it here
        if kind == OpCode.GET_DATA:
            ops.append(GetData(path))
        elif kind == OpCode.GET_CHILDREN:
            ops.append(GetChildren(path))
        else:
            raise MalformedRecord(f"multiRead: operation type {kind} is not getData or getChildren")
    return ops


def _read_multi_header(reader: JuteReader) -> int | None:
    kind = reader.int32("type")
    done = reader.boolean("done")
    reader.int32("err")
    return None if done else kind


def write_multi_result(kind: int, result: WriteResult | TreeError) -> bytes:
    """One result of a multi; `kind` is the request type of its operation."""
    if isinstance(result, TreeError):
        return write_multi_error(result.code)
    header = _MULTI_HEADER.pack(kind, False, 0)
    if isinstance(result, Created):
        body = write_string(result.path)
        return header + body + (b"" if kind == OpCode.CREATE else write_stat(result.stat))
    return header + (b"" if result is None else write_stat(result))


def write_multi_error(code: Code) -> bytes:
    return _MULTI_HEADER.pack(-1, False, code) + _INT.pack(code)


def write_multi_read_data(data: bytes | None, stat: Stat) -> bytes:
    header = _MULTI_HEADER.pack(OpCode.GET_DATA, False, 0)
    return header + write_buffer(data) + write_stat(stat)


def write_multi_read_children(names: Sequence[str]) -> bytes:
    return _MULTI_HEADER.pack(OpCode.GET_CHILDREN, False, 0) + write_strings(names)


MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
