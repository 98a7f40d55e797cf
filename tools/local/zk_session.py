"""ZooKeeper sessions of the tools: a small blocking client, for commands and for threads.

It does what a broker's client must not or need not do: take over and end a session by its id and
password, read access lists.  One connection, no watches, no reconnecting; ZkError says what failed.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kafkalike.zk import paths, wire
from kafkalike.zk.client import (
    ConnectionLost,
    Create,
    NoNode,
    OperationTimeout,
    SessionExpired,
    Stat,
    error_for,
)
from kafkalike.zk.link import split_connect
from kafkalike.zk.znodes import ControllerInfo, CorruptZnode, TopicInfo

from .. import cli

if TYPE_CHECKING:
    from ..local_cluster import LocalCluster

SESSION_TIMEOUT_MS: Final = 10_000
MAX_ANSWER_BYTES: Final = 64 << 20
_CONNECT: Final = struct.Struct(">iqiqi")
_CONNECTED: Final = struct.Struct(">iiq")
_REQUEST: Final = struct.Struct(">ii")
_REPLY: Final = struct.Struct(">iqi")
_GET_ACL: Final = 6
_CLOSE: Final = -11
_POLL_S: Final = 0.01
_DELETED_POLL_S: Final = 0.003
_EPOCH_LIMIT_S: Final = 5.0


class WireSession:
    """A session with the first server of a connect string that lets us in."""

    def __init__(
        self,
        connect: str,
        *,
        session_id: int = 0,
        password: bytes = bytes(16),
        timeout_s: float = 10.0,
    ) -> None:
        """Raises ConnectionLost, or SessionExpired when `session_id` is no session any more."""
        hosts, self.chroot = split_connect(connect)
        self._timeout_s = timeout_s
        self._xid = 0
        self._socket = self._dial(hosts)
        hello = _CONNECT.pack(0, 0, SESSION_TIMEOUT_MS, session_id, len(password)) + password
        self._send(hello + b"\0")
        answer = self._receive()
        if len(answer) < _CONNECTED.size:
            raise ConnectionLost("", f"a handshake of {len(answer)} bytes")
        _, granted_ms, self.session_id = _CONNECTED.unpack_from(answer)
        if granted_ms <= 0:
            self._socket.close()
            raise SessionExpired()

    def _dial(self, hosts: str) -> socket.socket:
        problems: list[str] = []
        for host, port in cli.parse_addresses("zookeeper", hosts):
            try:
                sock = socket.create_connection((host, port), self._timeout_s)
            except OSError as error:
                problems.append(f"{host}:{port}: {error.strerror or error}")
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        raise ConnectionLost("", "; ".join(problems))

    def __enter__(self) -> "WireSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; harmless when the connection is gone."""
        with contextlib.suppress(ConnectionLost):
            self._call(_CLOSE, b"", "")
        self._socket.close()

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        return self._ask(wire.get_data(self.chroot, path, False))  # type: ignore[no-any-return]

    def children(self, path: str) -> list[str]:
        """Sorted names."""
        names, _ = self._ask(wire.get_children(self.chroot, path, False))
        return list(names)

    def acl(self, path: str) -> list[wire.Acl]:
        body = wire.write_string(wire.full_path(self.chroot, path))
        answer = self._call(_GET_ACL, body, path)
        (count,) = struct.unpack_from(">i", answer)
        position = 4
        found: list[wire.Acl] = []
        for _ in range(count):
            (permissions,) = struct.unpack_from(">i", answer, position)
            scheme, position = wire.read_string(answer, position + 4)
            name, position = wire.read_string(answer, position)
            found.append(wire.Acl(permissions, scheme, name))
        return found

    def create(
        self, path: str, data: bytes | None, acl: Sequence[wire.Acl] = wire.OPEN_ACL
    ) -> None:
        self._ask(wire.create(self.chroot, Create(path, data), acl))

    def delete(self, path: str) -> None:
        self._ask(wire.delete(self.chroot, path, -1))

    def _ask(self, request: wire.WireRequest) -> Any:
        return request.decode(self._call(request.type, request.body, request.path), 0)

    def _call(self, kind: int, body: bytes, path: str) -> bytes:
        self._xid += 1
        self._send(_REQUEST.pack(self._xid, kind) + body)
        answer = self._receive()
        if len(answer) < _REPLY.size:
            raise ConnectionLost(path, f"an answer of {len(answer)} bytes")
        _, _, code = _REPLY.unpack_from(answer)
        if code:
            raise error_for(code, path)
        return answer[_REPLY.size :]

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(struct.pack(">i", len(data)) + data)
        except OSError as error:
            raise ConnectionLost("", str(error)) from error

    def _receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= length <= MAX_ANSWER_BYTES:
            raise ConnectionLost("", f"an answer of {length} bytes, limit {MAX_ANSWER_BYTES}")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            try:
                part = self._socket.recv(min(length, 1 << 20))
            except TimeoutError:
                raise OperationTimeout("", f"no answer in {self._timeout_s:g} s") from None
            except OSError as error:
                raise ConnectionLost("", str(error)) from error
            if not part:
                raise ConnectionLost("", "the server closed the connection")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class Outsider:
    """What somebody beside the brokers does to their ZooKeeper; blocking work runs in a thread."""

    def __init__(self, cluster: "LocalCluster") -> None:
        self._connect = cluster.zookeeper
        self._threads = cluster.runtime.threads

    async def end_session(self, session_id: int, password: bytes) -> None:
        """As the server does when a session's time is up."""
        await self._threads.run(_end_session, self._connect, session_id, password)

    async def wait_deleted(self, topics: Sequence[str], timeout_s: float) -> list[str]:
        """Until nothing is left of these topics; those that are when time is up."""
        return await self._threads.run(_wait_deleted, self._connect, topics, timeout_s)

    async def topics(self) -> dict[str, int]:
        """Number of partitions by topic, without topics that wait for their deletion."""
        return await self._threads.run(_topics, self._connect)

    async def move_controller(self, broker_id: int, timeout_s: float) -> None:
        """Delete the controller's znode until `broker_id` has taken it.  Raises CommandError."""
        await self._threads.run(_move_controller, self._connect, broker_id, timeout_s)


def _end_session(connect: str, session_id: int, password: bytes) -> None:
    with (
        contextlib.suppress(SessionExpired),
        WireSession(connect, session_id=session_id, password=password),
    ):
        pass


def _topics(connect: str) -> dict[str, int]:
    found: dict[str, int] = {}
    with WireSession(connect) as session:
        going = set(session.children(paths.DELETE_TOPICS))
        for name in session.children(paths.TOPICS):
            if name in going:
                continue
            path = paths.topic(name)
            with contextlib.suppress(NoNode, CorruptZnode):
                found[name] = len(TopicInfo.decode(session.get(path)[0], path).partitions)
    return found


def _wait_deleted(connect: str, topics: Sequence[str], timeout_s: float) -> list[str]:
    deadline_s = time.monotonic() + timeout_s
    with WireSession(connect) as session:
        while True:
            there = {*session.children(paths.TOPICS), *session.children(paths.DELETE_TOPICS)}
            left = [topic for topic in topics if topic in there]
            if not left or time.monotonic() > deadline_s:
                return left
            time.sleep(_DELETED_POLL_S)


def _move_controller(connect: str, broker_id: int, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    with WireSession(connect) as session:
        while time.monotonic() < deadline_s:
            with contextlib.suppress(NoNode):
                session.delete(paths.CONTROLLER)
            tried_s = time.monotonic()
            while time.monotonic() < min(tried_s + _EPOCH_LIMIT_S, deadline_s):
                holder = _controller(session)
                if holder == broker_id:
                    return
                if holder is not None:
                    break
                time.sleep(_POLL_S)
    raise cli.CommandError(f"broker {broker_id} did not become controller in {timeout_s:g} s")


def _controller(session: WireSession) -> int | None:
    try:
        data, _ = session.get(paths.CONTROLLER)
        return ControllerInfo.decode(data, paths.CONTROLLER).broker_id
    except (NoNode, CorruptZnode):
        return None
