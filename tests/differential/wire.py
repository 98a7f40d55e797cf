"""One blocking connection to a broker, in frames."""

import contextlib
import socket
import struct
from typing import Final

PATIENCE_S: Final = 30.0
SILENCE_S: Final = 3.0
MAX_FRAME: Final = 200 << 20


class Closed(Exception):
    """The broker closed the connection."""


class Silence(Exception):
    """Nothing came for a long time."""


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Raises Closed."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self, limit_s: float = PATIENCE_S) -> bytes:
        """One frame without its size.  Raises Closed, Silence."""
        self._socket.settimeout(limit_s)
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            assert 0 < size < MAX_FRAME, size
            return self._exactly(size)
        except TimeoutError:
            raise Silence from None
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def finish(self) -> None:
        """Close the sending half."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                raise Closed
            parts.append(chunk)
            size -= len(chunk)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()
