"""The Network port over TCP: listening sockets and outgoing connections on a Twisted reactor.

`tls` arguments are `ssl.SSLContext` objects of the standard library.
"""

import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from .ports import (
    Clock,
    ConnectionTimeout,
    FrameProtocol,
    ListeningPort,
    SocketBuffers,
    Threads,
    Timer,
    UnknownHost,
)
from .tls import TlsTransport
from .transport import FrameTransport, RawTransport, SharedInput, SharedOutput

ACCEPTS_PER_TURN: Final = 64
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_TRANSIENT: Final = (
    errno.ECONNABORTED,
    errno.EPERM,
    errno.EPROTO,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.ENETDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
)

Address = tuple[str, int] | tuple[str, int, int, int]
Accept = Callable[[str], FrameProtocol | None]


class RealListeningPort:
    """A listening socket.  Accepts up to `ACCEPTS_PER_TURN` connections a turn."""

    def __init__(
        self, sock: socket.socket, accept: Accept, network: "RealNetwork", **options: Any
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._accept = accept
        self._network = network
        self._options = options
        self._reading = False
        # Given up for a moment when descriptors run out, so that waiting clients can be turned away.
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        host, port = sock.getsockname()[:2]
        self.host = plain_host(host)
        self.port = int(port)

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "kafkalike"

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._network.reactor.removeReader(self)

    def resume(self) -> None:
        if not self._reading and self._fd >= 0:
            self._reading = True
            self._network.reactor.addReader(self)

    def stop(self) -> "Deferred[None]":
        if self._fd >= 0:
            self.pause()
            self._fd = -1
            self._socket.close()
            os.close(self._spare)
        return succeed(None)

    def connectionLost(self, failure: Any) -> None:
        self._network.logger.error(
            "listening socket failed port=%d error=%s", self.port, failure.getErrorMessage()
        )
        self._reading = False
        self.stop()

    def doRead(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._reading:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._turn_away()
                    return
                if error.errno in _TRANSIENT:
                    continue
                raise
            self._connected(sock, address)

    def _connected(self, sock: socket.socket, address: Address) -> None:
        host = plain_host(address[0])
        try:
            protocol = self._accept(host)
        except Exception:
            self._network.logger.exception("accepting a connection failed peer=%s", host)
            protocol = None
        if protocol is None:
            sock.close()
            return
        self._network.attach(
            sock, protocol, (host, address[1]), server=True, **self._options
        ).start()

    def _turn_away(self) -> None:
        """Close one waiting connection: otherwise it would keep the loop busy for ever."""
        self._network.logger.error("out of file descriptors, refusing a client port=%d", self.port)
        os.close(self._spare)
        # It may be gone already, or another part of the process may have taken the descriptor.
        with suppress(OSError):
            self._socket.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class _Attempt:
    """One non-blocking connect to one address; reports None or the error."""

    def __init__(
        self, network: "RealNetwork", address: Address, done: Callable[[OSError | None], object]
    ) -> None:
        self._network = network
        self._done: Callable[[OSError | None], object] | None = done
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self._fd = self.socket.fileno()
        code = self.socket.connect_ex(address)
        if code in (0, errno.EINPROGRESS):
            network.reactor.addWriter(self)
        else:
            network.clock.call_soon(self._finish, OSError(code, os.strerror(code)))

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "kafkalike"

    def doWrite(self) -> None:
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._finish(OSError(code, os.strerror(code)) if code else None)

    def connectionLost(self, _: Any) -> None:
        if self._done is not None:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._finish(OSError(code or errno.ECONNREFUSED, os.strerror(code)))

    def _finish(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._network.reactor.removeWriter(self)
        if error is not None:
            self._fd = -1
            self.socket.close()
        done(error)

    def cancel(self) -> None:
        self._done = None
        if self._fd >= 0:
            self._network.reactor.removeWriter(self)
            self._fd = -1
            self.socket.close()


class _Connecting:
    """Resolve a name, then try its addresses one after another until the time is up."""

    def __init__(
        self,
        network: "RealNetwork",
        host: str,
        port: int,
        timeout_s: float,
        connected: "Callable[[socket.socket, Address, _Connecting], FrameTransport]",
    ) -> None:
        self._network = network
        self._host = host
        self._port = port
        self._connected = connected
        self._addresses: deque[Address] = deque()
        self._address: Address | None = None
        self._attempt: _Attempt | None = None
        self._transport: FrameTransport | None = None
        self._last_error: OSError | None = None
        self._ended = False
        self.result: Deferred[None] = Deferred(lambda _: self._stop())
        self._timer: Timer = network.clock.call_later(timeout_s, self._expire, timeout_s)
        numeric = numeric_address(host, port)
        if numeric is not None:
            self._addresses.append(numeric)
            self._next()
        else:
            network.threads.run(resolve, host, port).addCallbacks(self._resolved, self._unknown)

    def _resolved(self, addresses: list[Address]) -> None:
        if not self._ended:
            self._addresses.extend(addresses)
            self._next()

    def _unknown(self, failure: Failure) -> None:
        if not self._ended:
            self._fail(UnknownHost(f"{self._host}: {_reason(failure.value)}"))

    def _next(self) -> None:
        if not self._addresses:
            error = self._last_error
            text = error.strerror if error is not None else "no address"
            self._fail(ConnectionError(f"cannot connect to {self._host}:{self._port}: {text}"))
            return
        self._address = self._addresses.popleft()
        try:
            self._attempt = _Attempt(self._network, self._address, self._tried)
        except OSError as error:  # no descriptors, or an address family the machine lacks
            self._last_error = error
            self._network.clock.call_soon(self._next_later)

    def _next_later(self) -> None:
        if not self._ended:
            self._next()

    def _tried(self, error: OSError | None) -> None:
        attempt, self._attempt = self._attempt, None
        if error is not None:
            self._last_error = error
            self._next()
            return
        assert attempt is not None and self._address is not None
        self._transport = self._connected(attempt.socket, self._address, self)
        self._transport.start()

    def ready(self, error: ConnectionError | None) -> None:
        """The transport is of use now (after the TLS handshake, where there is one), or never."""
        if self._ended:
            return
        if error is not None:
            self._fail(error)
            return
        self._ended = True
        self._timer.cancel()
        self.result.callback(None)

    def _expire(self, timeout_s: float) -> None:
        self._fail(
            ConnectionTimeout(f"no connection to {self._host}:{self._port} within {timeout_s:g} s")
        )

    def _stop(self) -> None:
        self._ended = True
        self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ConnectionError) -> None:
        self._stop()
        self.result.errback(error)


class RealNetwork:
    """TCP on the given reactor.  One buffer for receiving is shared by all its connections."""

    def __init__(
        self, reactor: Any, clock: Clock, threads: Threads, logger: logging.Logger | None = None
    ) -> None:
        self.reactor = reactor
        self.clock = clock
        self.threads = threads
        self.logger = logger or logging.getLogger("kafkalike.network")
        self._shared = SharedInput()
        self._output = getattr(reactor, "output", None) or SharedOutput()

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        max_frame_bytes: int,
        backlog: int = 50,
        tls: object | None = None,
        raw: bool = False,
        buffers: SocketBuffers | None = None,
    ) -> ListeningPort:
        sock = _bound_socket(host, port)
        try:
            # Accepted sockets have what this one has, from their handshake on.
            if buffers is not None and buffers.send_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers.send_bytes)
            if buffers is not None and buffers.receive_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        listening = RealListeningPort(
            sock, accept, self, max_frame_bytes=max_frame_bytes, tls=tls, raw=raw
        )
        listening.resume()
        return listening

    def connect(
        self,
        host: str,
        port: int,
        protocol: FrameProtocol,
        *,
        timeout_s: float,
        max_frame_bytes: int,
        tls: object | None = None,
    ) -> "Deferred[None]":
        def connected(
            sock: socket.socket, address: Address, connecting: _Connecting
        ) -> FrameTransport:
            return self.attach(
                sock,
                protocol,
                (plain_host(address[0]), address[1]),
                server=False,
                max_frame_bytes=max_frame_bytes,
                tls=tls,
                server_name=host,
                on_ready=connecting.ready,
            )

        return _Connecting(self, host, port, timeout_s, connected).result

    def attach(
        self,
        sock: socket.socket,
        protocol: FrameProtocol,
        peer: tuple[str, int],
        *,
        server: bool,
        max_frame_bytes: int,
        tls: object | None,
        raw: bool = False,
        server_name: str | None = None,
        on_ready: Callable[[ConnectionError | None], object] | None = None,
    ) -> FrameTransport:
        """Make a connected socket the transport of a protocol; it is to be started."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        make: Callable[..., FrameTransport] = RawTransport if raw else FrameTransport
        if tls is not None:
            if raw:
                raise ValueError("connections without frames are not served over TLS")
            if not isinstance(tls, ssl.SSLContext):
                raise TypeError(f"tls must be an ssl.SSLContext, not {type(tls).__name__}")
            make = partial(TlsTransport, tls, server, server_name)
        return make(
            sock,
            protocol,
            reactor=self.reactor,
            clock=self.clock,
            threads=self.threads,
            shared=self._shared,
            output=self._output,
            max_frame_bytes=max_frame_bytes,
            peer=peer,
            logger=self.logger,
            on_ready=on_ready,
        )


def plain_host(host: str) -> str:
    """An address as people write it: IPv4 inside IPv6 is taken out, a scope is cut off."""
    host = host.partition("%")[0]
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def numeric_address(host: str, port: int) -> Address | None:
    """The address of a host given in numbers, None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (host, port, 0, 0) if address.version == 6 else (host, port)


def resolve(host: str, port: int) -> list[Address]:
    """All TCP addresses of a name in the resolver's order.  Blocks; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses: list[Address] = []
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            addresses.append(address)  # type: ignore[arg-type]
    return addresses


def _bound_socket(host: str, port: int) -> socket.socket:
    """A bound, non-blocking socket; an empty host means both families where the machine has both.

    A name is resolved on the spot: listeners are bound at start, when nothing else runs.
    """
    if not host:
        if socket.has_ipv6 and socket.has_dualstack_ipv6():
            return _bind(socket.AF_INET6, ("::", port, 0, 0), both=True)
        return _bind(socket.AF_INET, ("0.0.0.0", port))
    address = numeric_address(host, port) or resolve(host, port)[0]
    family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
    return _bind(family, address)


def _bind(family: int, address: Address, *, both: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno, f"cannot bind {address[0]}:{address[1]}: {error.strerror}"
        ) from error
    return sock


def _reason(error: BaseException | None) -> str:
    """What the system says, without its number."""
    return getattr(error, "strerror", None) or str(error)
