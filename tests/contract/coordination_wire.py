"""A raw ZooKeeper client for the contract suite: bytes on a socket, decoded without product code.

Answers become plain values that are equal on two servers when the servers behave alike: zxids
relative to the start of the case, session ids numbered in order of appearance, times and passwords
as placeholders.
"""

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN = range(1, 9)
SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2, RECONFIG = 9, 11, 12, 13, 14, 15, 16
CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 17, 18, 19, 21, 22
AUTH, SET_WATCHES, GET_EPHEMERALS, COUNT_ALL, SET_WATCHES2, ADD_WATCH, WHO_AM_I = (
    100,
    101,
    103,
    104,
    105,
    106,
    107,
)
CLOSE = -11

OPEN = [(31, "world", "anyone")]
PATIENCE_S = 20.0
STAT = struct.Struct(">qqqqiiiqiiq")
STAT_FIELDS = (
    "czxid",
    "mzxid",
    "ctime",
    "mtime",
    "version",
    "cversion",
    "aversion",
    "owner",
    "length",
    "children",
    "pzxid",
)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def buf(data: bytes | None) -> bytes:
    return i32(-1) if data is None else i32(len(data)) + data


def text(value: str | None) -> bytes:
    return buf(None if value is None else value.encode())


def texts(values: list[str] | None) -> bytes:
    return i32(-1) if values is None else i32(len(values)) + b"".join(map(text, values))


def acls(entries: Sequence[tuple[int, str | None, str | None]] | None) -> bytes:
    if entries is None:
        return i32(-1)
    return i32(len(entries)) + b"".join(i32(p) + text(s) + text(i) for p, s, i in entries)


def create(path: str | None, data: bytes | None = b"", acl: Any = OPEN, flags: int = 0) -> bytes:
    return text(path) + buf(data) + acls(acl) + i32(flags)


def multi(*ops: tuple[int, bytes]) -> bytes:
    body = b"".join(i32(kind) + b"\0" + i32(-1) + record for kind, record in ops)
    return body + i32(-1) + b"\1" + i32(-1)


class Scanner:
    """Reads a reply."""

    def __init__(self, data: bytes, world: "World") -> None:
        self.data = data
        self.world = world
        self.position = 0

    def take(self, count: int) -> bytes:
        part = self.data[self.position : self.position + count]
        assert len(part) == count, f"reply is short: {self.data.hex()}"
        self.position += count
        return part

    def i32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def i64(self) -> int:
        return int(struct.unpack(">q", self.take(8))[0])

    def buf(self) -> bytes | None:
        length = self.i32()
        return None if length == -1 else self.take(length)

    def text(self) -> str | None:
        data = self.buf()
        return None if data is None else data.decode()

    def texts(self) -> list[str | None]:
        return [self.text() for _ in range(self.i32())]

    def stat(self) -> dict[str, Any]:
        numbers = STAT.unpack(self.take(STAT.size))
        stat: dict[str, Any] = dict(zip(STAT_FIELDS, numbers, strict=True))
        for field in ("czxid", "mzxid", "pzxid"):
            stat[field] = self.world.zxid(stat[field])
        for field in ("ctime", "mtime"):
            stat[field] = "now" if abs(stat[field] / 1000 - time.time()) < 600 else stat[field]
        stat["owner"] = self.world.session(stat["owner"])
        return stat

    def acls(self) -> list[list[Any]]:
        return [[self.i32(), self.text(), self.text()] for _ in range(self.i32())]

    def rest(self) -> str:
        return self.data[self.position :].hex()


class World:
    """One case's view of one server."""

    def __init__(self, address: tuple[str, int], root: str) -> None:
        self.address = address
        self.root = root
        self.base_zxid: int | None = None
        self._sessions: dict[int, str] = {}
        self._wires: list[Wire] = []

    def zxid(self, value: int) -> int:
        """Relative to the case's start; values from before it (and -1) stay as they are."""
        assert self.base_zxid is not None
        return value - self.base_zxid if value > self.base_zxid else min(value, 0)

    def session(self, value: int) -> str:
        if value == 0:
            return "none"
        return self._sessions.setdefault(value, f"session-{len(self._sessions) + 1}")

    def wire(self) -> "Wire":
        """A connection without a session."""
        wire = Wire(self)
        self._wires.append(wire)
        return wire

    def client(self, timeout_ms: int = 10_000) -> "Wire":
        """A connection with a new session."""
        wire = self.wire()
        wire.connect(timeout_ms)
        if self.base_zxid is None:
            self.base_zxid = wire.raw_zxid()
            wire.call(CREATE, create(self.root))
            self.base_zxid = wire.raw_zxid()
        return wire

    def close(self) -> None:
        for wire in self._wires:
            wire.finish()


LAST_XID: Final = 0x7FFFFFF0


class Wire:
    """One TCP connection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.socket = socket.create_connection(world.address, timeout=PATIENCE_S)
        self.xid = 0
        self.session_id = 0
        self.password = bytes(16)
        self.events: list[Any] = []
        self._kinds: dict[int, int] = {}

    # -- bytes

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, data: bytes) -> None:
        self.send(i32(len(data)) + data)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError(data)
            data += part
        return data

    def receive_frame(self) -> bytes:
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def until_closed(self) -> bytes:
        """Everything until the server closes."""
        data = b""
        try:
            while part := self.socket.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        return data

    def is_closed(self) -> str:
        """`closed`, or what came instead."""
        rest = self.until_closed()
        return "closed" if not rest else f"closed after {len(rest)} bytes"

    # -- sessions

    def connect(
        self,
        timeout_ms: int = 10_000,
        *,
        session_id: int = 0,
        password: bytes | None = bytes(16),
        seen_zxid: int = 0,
        read_only: bytes = b"\0",
    ) -> list[Any]:
        """[protocol, timeout, session, password kind, further bytes]"""
        record = i32(0) + i64(seen_zxid) + i32(timeout_ms) + i64(session_id) + buf(password)
        self.send_frame(record + read_only)
        frame = self.receive_frame()
        version, timeout, session = struct.unpack(">iiq", frame[:16])
        length = struct.unpack(">i", frame[16:20])[0]
        given = frame[20 : 20 + length]
        self.session_id, self.password = session, given
        kind = "zeros" if given == bytes(16) else f"{length} bytes"
        return [version, timeout, self.world.session(session), kind, frame[20 + length :].hex()]

    def raw_zxid(self) -> int:
        """The server's last zxid."""
        self.xid += 1
        self.send_frame(i32(self.xid) + i32(SYNC) + text("/"))
        return int(struct.unpack(">iqi", self.receive_frame()[:16])[1])

    def finish(self) -> None:
        """End the session, if any, so that nothing happens on the server later."""
        if self.session_id and not self._end():
            # The server had closed the connection: left alone, the session would end in the midst of
            # some later case and take a zxid there.
            self.socket.close()
            self.socket = socket.create_connection(self.world.address, timeout=PATIENCE_S)
            session, password = self.session_id, self.password
            self.connect(session_id=session, password=password)
            if self.session_id == session:
                self._end()
        self.socket.close()

    def _end(self) -> bool:
        """Whether the server has heard of it."""
        try:
            self.socket.settimeout(2)  # half a frame may be open there, which this would only fill
            self.send_frame(i32(LAST_XID) + i32(CLOSE))
            while True:
                frame = self.receive_frame()
                if frame[:4] == i32(LAST_XID):
                    return True
        except (OSError, EOFError):
            return False

    # -- requests

    def request(self, kind: int, body: bytes = b"", xid: int | None = None) -> int:
        """Send without waiting."""
        if xid is None:
            self.xid += 1
            xid = self.xid
        self._kinds[xid] = kind
        self.send_frame(i32(xid) + i32(kind) + body)
        return xid

    def call(self, kind: int, body: bytes = b"") -> Any:
        """Send, and take what comes up to the answer; events before it are kept in `events`."""
        xid = self.request(kind, body)
        while True:
            answer = self.next()
            if answer[0] == "event":
                self.events.append(answer)
                continue
            assert answer[0] == xid, answer
            return answer[1:]

    def next(self) -> Any:
        """The next frame: ["event", type, state, path] or [xid, zxid, error, body]."""
        scanner = Scanner(self.receive_frame(), self.world)
        xid, zxid, error = scanner.i32(), scanner.i64(), scanner.i32()
        if xid == -1:
            event = ["event", scanner.i32(), scanner.i32(), scanner.text()]
            assert not scanner.rest()
            return event
        kind = self._kinds.get(xid, 0)
        zxid = zxid if zxid == 0 else self.world.zxid(zxid)
        body = decode(kind, scanner) if error == 0 else None
        rest = scanner.rest()
        return [xid, zxid, error, body, *([rest] if rest else [])]

    def take_events(self) -> list[Any]:
        """The events that came so far (a round trip makes sure)."""
        self.call(SYNC, text("/"))
        events, self.events = self.events, []
        return events


def decode(kind: int, scanner: Scanner) -> Any:
    """A reply's body by its request type."""
    if kind in (CREATE, SYNC):
        return scanner.text()
    if kind in (CREATE2, CREATE_CONTAINER, CREATE_TTL):
        return [scanner.text(), scanner.stat()]
    if kind in (EXISTS, SET_DATA, SET_ACL):
        return scanner.stat()
    if kind == GET_DATA:
        data = scanner.buf()
        return [None if data is None else data.decode("latin-1"), scanner.stat()]
    if kind in (GET_CHILDREN, GET_EPHEMERALS):
        return sorted(scanner.texts(), key=str)
    if kind == GET_CHILDREN2:
        return [sorted(scanner.texts(), key=str), scanner.stat()]
    if kind == GET_ACL:
        return [scanner.acls(), scanner.stat()]
    if kind in (COUNT_ALL, ADD_WATCH):
        return scanner.i32()
    if kind in (MULTI, MULTI_READ):
        return decode_multi(scanner)
    if kind == WHO_AM_I:
        return [[scanner.text(), scanner.text()] for _ in range(scanner.i32())]
    return None


def decode_multi(scanner: Scanner) -> list[Any]:
    results: list[Any] = []
    while True:
        kind, done, error = scanner.i32(), scanner.take(1), scanner.i32()
        if done == b"\1":
            return [*results, ["end", kind, error]]
        if kind == -1:
            results.append(["error", error, scanner.i32()])
        elif kind in (DELETE, CHECK):
            results.append([kind, error])
        else:
            results.append([kind, error, decode(kind, scanner)])
