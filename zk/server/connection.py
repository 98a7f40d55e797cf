"""One client connection of the embedded coordination service.

Bytes in, frames out: the connect request, then requests, answered in order; or one of the
four-letter words as the first four bytes.  Output is collected and handed to the service, which
holds it back while what it shows is not on disk yet.
"""

import logging
from typing import Final, Protocol, cast

from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from kafkalike.zk.client import EventType

from .jute import (
    PASSWORD_BYTES,
    ConnectRequest,
    JuteReader,
    MalformedRecord,
    OpCode,
    read_connect_request,
    read_header,
    write_connect_response,
    write_event,
    write_reply,
)
from .model import Code
from .requests import execute
from .tree import CoordinationTree
from .watches import Caller

AUTH_XID: Final = -4
PING_XID: Final = -2
_MAX_HELD_BYTES: Final = 4 << 20
"""Input stops while that much output of the connection waits for disk or socket."""
_MAX_UNSENT_BYTES: Final = 256 << 20
"""A client that reads nothing while watch events pile up is cut off here."""

_log = logging.getLogger(__name__)


class Socket(Protocol):
    """What is used of Twisted's TCP transport."""

    connected: int

    def write(self, data: bytes) -> None: ...

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...


class Service(Protocol):
    """What a connection needs of the server behind it."""

    tree: CoordinationTree
    max_buffer_bytes: int
    packets_received: int
    packets_sent: int

    def now_ms(self) -> int: ...

    def mono_ms(self) -> int: ...

    def new_password(self) -> bytes: ...

    def session_timeout_ms(self, wanted_ms: int) -> int:
        """What a client gets that asks for `wanted_ms`."""

    def four_letter_answer(self, word: bytes) -> str | None:
        """The text to send for one of the four-letter words, None for anything else."""

    def own_session(self, connection: "ClientConnection") -> None:
        """The connection has a session now; another connection of that session is closed."""

    def has_output(self, connection: "ClientConnection") -> None:
        """The connection has something to send."""

    def flush(self) -> None:
        """Send, or queue behind the disk, what connections have to say."""

    def gone(self, connection: "ClientConnection") -> None:
        """The connection is closed."""


class ClientConnection(TwistedProtocol):
    """Speaks the server's side of the protocol to one client."""

    def __init__(self, service: Service, host: str, port: int) -> None:
        self._service = service
        self.host = host
        self.port = port
        self.caller: Caller | None = None
        self._socket: Socket | None = None
        self.opened_ms = service.mono_ms()
        self.established_ms = service.now_ms()
        self.timeout_ms = 0
        self.received = 0
        self.sent = 0
        self.last_op = "NA"
        self.last_xid = 0
        self.last_zxid = 0
        self._input = bytearray()
        self._output: list[bytes] = []
        self._output_bytes = 0
        """Ever put out."""
        self._pumping = False
        self._held_bytes = 0
        """Output of this connection that waits for the disk."""
        self._closing = False
        self._first_bytes = True
        self._input_paused = False
        self._socket_full = False
        self._unsent_bytes = 0
        """Written since the socket was full."""

    # -- Twisted -------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        self._socket = cast(Socket, self.transport)
        self._socket.setTcpNoDelay(True)
        self._socket.registerProducer(self, True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._closing = True
        self._socket = None
        self._input.clear()
        self._service.gone(self)

    def dataReceived(self, data: bytes) -> None:
        self._input += data
        self._pump()

    def pauseProducing(self) -> None:
        """The socket takes no more: stop serving this client."""
        self._socket_full = True
        self._consider_input()

    def resumeProducing(self) -> None:
        self._socket_full = False
        self._unsent_bytes = 0
        self._consider_input()

    def stopProducing(self) -> None:
        self._closing = True

    # -- output, for the service ---------------------------------------------------------------

    def take_output(self) -> bytes:
        """What there is to send, now the service's."""
        data = b"".join(self._output)
        self._output.clear()
        self._held_bytes += len(data)
        self._consider_input()
        return data

    def release(self, data: bytes) -> None:
        """Send what `take_output` gave; an empty `data` of a closing connection just closes it."""
        self._held_bytes -= len(data)
        socket = self._socket
        if socket is None or not socket.connected:
            return
        if data:
            socket.write(data)
            if self._socket_full:
                self._unsent_bytes += len(data)
                if self._unsent_bytes > _MAX_UNSENT_BYTES:
                    _log.warning("client does not read, closing client=%s:%d", self.host, self.port)
                    self.abort()
                    return
        if self._closing and not self._held_bytes and not self._output:
            # With a producer Twisted would wait for it to have said everything.
            socket.unregisterProducer()
            socket.loseConnection()
            return
        self._consider_input()

    def deliver(self, event_type: EventType, path: str, zxid: int) -> None:
        """A watch of this connection fired."""
        self._send(write_event(event_type.value, path, zxid))

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._socket is not None and self._socket.connected:
            self._socket.abortConnection()

    def close_when_sent(self) -> None:
        """Take no more requests; close once all answers are out."""
        self._closing = True
        self._service.has_output(self)

    def _send(self, frame: bytes) -> None:
        if self._socket is None:
            return
        self._output.append(frame)
        self._output_bytes += len(frame)
        self.sent += 1
        self._service.packets_sent += 1
        self._service.has_output(self)

    # -- input ---------------------------------------------------------------------------------

    def _consider_input(self) -> None:
        """Stop reading while this client's answers pile up, go on when they are out."""
        pause = self._socket_full or self._held_bytes > _MAX_HELD_BYTES
        if pause == self._input_paused or self._closing or self._socket is None:
            return
        self._input_paused = pause
        if pause:
            self._socket.pauseProducing()
        else:
            self._socket.resumeProducing()
            self._pump()

    def _pump(self) -> None:
        """Serve what has arrived, as long as the answers find their way out."""
        if self._pumping:
            return
        self._pumping = True
        try:
            more = bool(self._input)
            while more and not self._input_paused and not self._closing:
                more = self._read_frames()
                self._service.flush()
        finally:
            self._pumping = False

    def _read_frames(self) -> bool:
        """Serve whole frames; True when stopped by the amount of output, False when out of input."""
        position = 0
        data = self._input
        output_limit = self._output_bytes + _MAX_HELD_BYTES
        more = False
        while not self._closing and len(data) - position >= 4:
            if self._output_bytes > output_limit:
                more = True
                break
            length = int.from_bytes(data[position : position + 4], "big", signed=True)
            if self._first_bytes:
                self._first_bytes = False
                answer = self._service.four_letter_answer(bytes(data[:4]))
                if answer is not None:
                    self._service.packets_received += 1
                    self._output.append(answer.encode())
                    self.close_when_sent()
                    return False
            if not 0 <= length <= self._service.max_buffer_bytes:
                _log.warning(
                    "frame refused, closing client=%s:%d length=%d limit=%d",
                    self.host,
                    self.port,
                    length,
                    self._service.max_buffer_bytes,
                )
                self.close_when_sent()
                return False
            if len(data) - position - 4 < length:
                break
            frame = bytes(data[position + 4 : position + 4 + length])
            position += 4 + length
            self.received += 1
            self._service.packets_received += 1
            try:
                self._frame(frame)
            except MalformedRecord as error:
                _log.warning(
                    "malformed frame, closing client=%s:%d error=%s", self.host, self.port, error
                )
                self.close_when_sent()
        del data[:position]
        return more

    def _frame(self, frame: bytes) -> None:
        if self.caller is None:
            self._connect(read_connect_request(frame))
            return
        caller = self.caller
        service = self._service
        reader = JuteReader(frame)
        xid, kind = read_header(reader)
        self.last_op = _NAMES.get(kind, "NA")
        self.last_xid = xid
        if not service.tree.touch(caller.session_id, service.mono_ms()):
            self._send(write_reply(xid, service.tree.zxid, Code.SESSION_EXPIRED))
            self.close_when_sent()
        elif kind == OpCode.AUTH:
            self._authenticate(caller, xid, reader)
        elif kind == OpCode.CLOSE_SESSION:
            service.tree.close_session(caller.session_id, service.now_ms())
            self._send(write_reply(xid, service.tree.zxid, Code.OK))
            self.close_when_sent()
        else:
            answer = execute(service.tree, caller, kind, reader, service.now_ms())
            if kind == OpCode.PING:
                xid = PING_XID
            self.last_zxid = -1 if answer.unknown else service.tree.zxid
            self._send(write_reply(xid, self.last_zxid, answer.code, answer.body))
            if answer.unknown:
                self.close_when_sent()

    def _authenticate(self, caller: Caller, xid: int, reader: JuteReader) -> None:
        reader.int32("type")
        scheme = reader.string("scheme")
        credentials = reader.buffer("auth")
        if self._service.tree.authenticate(caller, scheme or "", credentials or b""):
            self._send(write_reply(xid, 0, Code.OK))
            return
        _log.warning("authentication refused client=%s:%d scheme=%s", self.host, self.port, scheme)
        self._send(write_reply(xid, 0, Code.AUTH_FAILED))
        self.close_when_sent()

    def _connect(self, request: ConnectRequest) -> None:
        service = self._service
        tree = service.tree
        if request.last_zxid_seen > tree.zxid:
            _log.warning(
                "client has seen a later state than this server has, closing"
                " client=%s:%d its_zxid=%#x zxid=%#x",
                self.host,
                self.port,
                request.last_zxid_seen,
                tree.zxid,
            )
            self.close_when_sent()
            return
        timeout_ms = service.session_timeout_ms(request.timeout_ms)
        if request.session_id == 0:
            session = tree.create_session(timeout_ms, service.now_ms(), service.new_password())
            tree.touch(session.session_id, service.mono_ms())
        else:
            found = tree.reattach(
                request.session_id, request.password, timeout_ms, service.mono_ms()
            )
            if found is None:
                self._send_handshake(request, 0, 0, bytes(PASSWORD_BYTES))
                self.close_when_sent()
                return
            session = found
        self.caller = Caller(session.session_id, self.host, self.deliver)
        self.timeout_ms = timeout_ms
        service.own_session(self)
        self._send_handshake(request, timeout_ms, session.session_id, session.password)

    def _send_handshake(
        self, request: ConnectRequest, timeout_ms: int, session_id: int, password: bytes
    ) -> None:
        self._send(
            write_connect_response(
                timeout_ms, session_id, password, with_read_only=request.read_only is not None
            )
        )


_NAMES: Final[dict[int, str]] = {
    OpCode.CREATE: "CREA",
    OpCode.CREATE2: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA",
    OpCode.SET_ACL: "SETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.SYNC: "SYNC",
    OpCode.PING: "PING",
    OpCode.CHECK: "CHEC",
    OpCode.MULTI: "MULT",
    OpCode.MULTI_READ: "MLTR",
    OpCode.SET_WATCHES: "SETW",
    OpCode.SET_WATCHES2: "STW2",
    OpCode.ADD_WATCH: "ADDW",
    OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW",
    OpCode.GET_EPHEMERALS: "GETE",
    OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN",
    OpCode.WHO_AM_I: "HOMI",
    OpCode.CLOSE_SESSION: "CLOS",
}
"""Request types as the four-letter word `cons` names them."""
