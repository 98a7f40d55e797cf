"""Networks under test: real sockets on a reactor of its own, or pipes in memory under a fake clock.

`World` hides the difference, so that one suite of tests runs over both.
"""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

from kafkalike.runtime.network import RealNetwork
from kafkalike.runtime.ports import Clock, Network
from kafkalike.runtime.reactor import RealClock, RealThreads
from kafkalike.tools.simulator.network import SimInternet, SimSocket
from tests.fakes import FakeClock

PATIENCE_S = 30.0


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


class Client(Protocol):
    """A peer that knows nothing of frames."""

    def send(self, data: bytes) -> None: ...

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes, or fewer when the other side ends the stream first."""

    def at_end(self) -> bool:
        """Wait for the end of the stream; False when more bytes come instead."""

    def end_write(self) -> None: ...

    def close(self) -> None: ...


class World:
    """A network under test, something that makes it run, and a host name that reaches it."""

    network: Network
    clock: Clock
    host: str

    def settle(self) -> None:
        """Let everything happen that can happen by itself."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> None:
        raise NotImplementedError

    def client(self, port: int) -> Client:
        raise NotImplementedError

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class RealWorld(World):
    host = "127.0.0.1"
    tls_client: ssl.SSLContext | None = None

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.clock: Clock = RealClock(reactor)
        self.threads = RealThreads(reactor)
        self.network = RealNetwork(reactor, self.clock, self.threads)

    def settle(self) -> None:
        for _ in range(5):
            self.reactor.iterate(0.002)

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < limit, "nothing happened in time"
            self.reactor.iterate(0.01)

    def client(self, port: int) -> Client:
        sock = socket.create_connection((self.host, port))
        sock.setblocking(False)
        if self.tls_client is None:
            return RealClient(self, sock)
        wrapped = self.tls_client.wrap_socket(sock, do_handshake_on_connect=False)
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                wrapped.do_handshake()
                return RealClient(self, wrapped)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                assert time.monotonic() < limit
                self.reactor.iterate(0.002)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.clock.call_later(delay_s, callback)

    def close(self) -> None:
        self.threads.stop()
        for descriptor in self.reactor.removeAll():
            if descriptor is not self.reactor.waker and hasattr(descriptor, "stop"):
                descriptor.stop()
        for name in ("_poller",):
            poller = getattr(self.reactor, name, None)
            if isinstance(poller, select.epoll):
                poller.close()


class RealClient:
    def __init__(self, world: RealWorld, sock: socket.socket) -> None:
        self.world = world
        self.sock = sock

    def _patiently(self, attempt: Callable[..., Any], *arguments: Any) -> Any:
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt(*arguments)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                assert time.monotonic() < limit, "nothing happened in time"
                self.world.reactor.iterate(0.005)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._patiently(self.sock.send, view[:16384]) :]

    def read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            data = self._patiently(self.sock.recv, count - len(got))
            if not data:
                break
            got += data
        return got

    def at_end(self) -> bool:
        try:
            return not self._patiently(self.sock.recv, 1)
        except (ConnectionError, ssl.SSLError):
            return True

    def end_write(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()


class SimulatedWorld(World):
    host = "broker"

    def __init__(self) -> None:
        self.fake_clock = FakeClock()
        self.clock = self.fake_clock
        self.internet = SimInternet(self.clock, lambda source, target, count: 0.001)
        self.network = self.internet.host(self.host)

    def settle(self) -> None:
        self.fake_clock.advance(0.1)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            if condition():
                return
            self.fake_clock.advance(0.01)
        raise AssertionError("nothing happened in time")

    def client(self, port: int) -> Client:
        return SimulatedClient(self, self.internet.connect_raw("client", self.host, port))

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.clock.call_later(delay_s, callback)

    def close(self) -> None:
        assert not self.internet.ports, "a test left a listening port"


class SimulatedClient:
    def __init__(self, world: SimulatedWorld, sock: SimSocket) -> None:
        self.world = world
        self.sock = sock

    def send(self, data: bytes) -> None:
        while data:
            data = data[self.sock.send(data) :]
            self.world.fake_clock.advance(0.002)

    def read(self, count: int) -> bytes:
        got = b""
        for _ in range(10_000):
            got += self.sock.recv(count - len(got))
            if len(got) == count or (self.sock.ended and not self.sock.inbox):
                return got
            self.world.fake_clock.advance(0.002)
        raise AssertionError("nothing happened in time")

    def at_end(self) -> bool:
        return not self.read(1)

    def end_write(self) -> None:
        self.sock.end_write()

    def close(self) -> None:
        self.sock.close()
