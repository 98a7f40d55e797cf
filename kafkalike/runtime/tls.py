"""A connection of frames over TLS: the same transport with the standard library's engine in between.

There is no sendfile under TLS: a file range is read and encrypted one TLS record at a time, so it
never sits in memory as a whole.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .transport import FrameTransport, _Range

RECORD_BYTES: Final = 16 << 10
"""A write that could not be finished must be repeated with the same bytes; one record at a time keeps
that simple."""

_WAIT = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport(FrameTransport):
    """See the module.  What the protocol writes before the handshake is done waits for it."""

    __slots__ = ("_handshaking", "_tls")

    def __init__(
        self,
        context: ssl.SSLContext,
        server: bool,
        server_name: str | None,
        sock: socket.socket,
        *arguments: Any,
        **options: Any,
    ) -> None:
        self._tls = context.wrap_socket(
            sock,
            server_side=server,
            server_hostname=None if server else server_name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
        )
        self._handshaking = True
        super().__init__(self._tls, *arguments, **options)

    def start(self) -> None:
        self._introduce()
        self._start_reading()
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._stop_writing()
        except ssl.SSLWantWriteError:
            self._start_writing()
        except OSError as error:
            self._logger.info(
                "TLS handshake failed peer=%s:%d error=%s", self.peer_host, self.peer_port, error
            )
            self._give_up(f"TLS handshake failed: {error}")
        else:
            self._handshaking = False
            self._stop_writing()
            self._ready(None)
            self.doWrite()
            if self._hold:
                self._stop_reading()
            self._announce_buffered()

    def doRead(self) -> None:
        if self._handshaking:
            self._shake_hands()
        else:
            super().doRead()
            self._announce_buffered()

    def doWrite(self) -> None:
        if self._handshaking:
            self._shake_hands()
        else:
            super().doWrite()

    def _pump(self) -> None:
        if not self._handshaking:
            super()._pump()

    def _announce_buffered(self) -> None:
        """The engine may hold decrypted bytes that no readiness of the socket will announce."""
        if self._reading and not self._hold and self._fd >= 0 and self._tls.pending():
            self._clock.call_soon(self._read_buffered)

    def _read_buffered(self) -> None:
        if self._reading and self._fd >= 0:
            self.doRead()

    def _start_reading(self) -> None:
        super()._start_reading()
        if not self._handshaking:
            self._announce_buffered()

    def _receive_into(self, buffer: "bytearray | memoryview") -> int:
        try:
            return self._tls.recv_into(buffer)
        except _WAIT:
            return -1
        except ssl.SSLZeroReturnError:
            return 0

    def _send_one(self, data: bytes) -> None:
        self._enqueue((data,))
        self._pump()

    def _send_buffer(self, data: memoryview, more: bool) -> int:
        def piece(done: int) -> memoryview:
            return data[done : done + RECORD_BYTES]

        return self._send_pieces(piece, len(data))

    def _send_range(self, part: _Range, wanted: int) -> int:
        def piece(done: int) -> bytes:
            position = part.position + done
            return part.file.pread(min(RECORD_BYTES, part.end - position), position)

        return self._send_pieces(piece, wanted)

    def _send_pieces(self, piece: "Callable[[int], bytes | memoryview]", wanted: int) -> int:
        """Send records until `wanted` bytes are gone (the last may go beyond) or nothing is taken."""
        done = 0
        while done < wanted:
            data = piece(done)
            if not data:
                return 0
            try:
                done += self._tls.send(data)
            except _WAIT:
                return done or -1
        return done

    def _close_socket(self) -> None:
        # The farewell is a courtesy: the peer may be gone or not answer it.
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
