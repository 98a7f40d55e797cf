"""The relays of a chaos run: who is who, and what a blocked way lets through."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.links import CLIENTS, End, Network, opener_of

LIMIT_S = 20.0
SHORT_S = 0.2


def request(client_id: str | None, rest: bytes = b"") -> bytes:
    name = struct.pack(">h", -1) if client_id is None else b""
    if client_id is not None:
        name = struct.pack(">h", len(client_id)) + client_id.encode()
    body = struct.pack(">hhi", 18, 3, 1) + name + rest
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("2", 2),
        ("broker-13-fetcher-0", 13),
        ("rdkafka", CLIENTS),
        ("broker-x", CLIENTS),
        ("", CLIENTS),
        (None, CLIENTS),
    ],
)
def test_the_first_request_tells_who_opened(name: str | None, opener: End) -> None:
    data = request(name, b"more")
    assert opener_of(data) == opener
    assert opener_of(data[:13]) is None
    if name:
        assert opener_of(data[:14]) is None


class Echo:
    """Answers what it gets, in capitals behind the first request."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self.received = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                threading.Thread(target=self._echo, args=(peer,), daemon=True).start()

    def _echo(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := peer.recv(65536):
                self.received += data
                peer.sendall(data.upper())
        peer.close()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    sock.settimeout(LIMIT_S)
    return sock


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def silent(sock: socket.socket) -> bool:
    sock.settimeout(SHORT_S)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(LIMIT_S)


def test_bytes_pass_both_ways(network: Network, echo: Echo) -> None:
    with connect(network.relay(1, echo.address)) as sock:
        first = request("2")
        sock.sendall(first)
        assert receive(sock, len(first)) == first.upper()
        sock.sendall(b"x" * 1_000_000)
        assert receive(sock, 1_000_000) == b"X" * 1_000_000


def test_a_blocked_way_holds_only_its_direction(network: Network, echo: Echo) -> None:
    port = network.relay(1, echo.address, 2)
    with connect(port) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"A"
        network.block([(1, 2)])
        sock.sendall(b"b")
        assert silent(sock)
        deadline = threading.Event()
        for _ in range(100):
            if echo.received == b"ab":
                break
            deadline.wait(0.05)
        assert echo.received == b"ab"  # the other direction is open
        network.unblock([(1, 2)], reset=False)
        assert receive(sock, 1) == b"B"
        network.block([(2, 1)])
        sock.sendall(b"c")
        assert silent(sock)
        assert echo.received == b"ab"
        network.unblock([(2, 1)], reset=False)
        assert receive(sock, 1) == b"C"


def test_only_the_named_ends_are_cut(network: Network, echo: Echo) -> None:
    port = network.relay(1, echo.address)
    network.block([(2, 1), (1, 2)])
    with connect(port) as two, connect(port) as three:
        two.sendall(request("2"))
        three.sendall(request("broker-3-fetcher-0"))
        assert receive(three, 4)
        assert silent(two)
        network.unblock([(2, 1), (1, 2)], reset=False)
        assert receive(two, 4)


def test_a_reset_loses_what_waited(network: Network, echo: Echo) -> None:
    with connect(network.relay(1, echo.address, 2)) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"A"
        network.block([(2, 1)])
        sock.sendall(b"lost")
        assert silent(sock)
        network.unblock([(2, 1)], reset=True)
        with pytest.raises((EOFError, ConnectionError)):
            receive(sock, 1)
    assert echo.received == b"a"


def test_who_hangs_up_is_heard_of_on_the_other_side(network: Network, echo: Echo) -> None:
    port = network.relay(1, echo.address, 2)
    with connect(port) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"A"
        network.reset([(1, 2)])
        with pytest.raises((EOFError, ConnectionError)):
            receive(sock, 1)
    dead = socket.create_server(("127.0.0.1", 0))
    address = dead.getsockname()
    dead.close()
    with connect(network.relay(4, address, 2)) as sock, pytest.raises((EOFError, ConnectionError)):
        receive(sock, 1)


def test_a_slow_way_is_slow_but_whole(network: Network, echo: Echo) -> None:
    network.delay([(2, 1)], SHORT_S)
    with connect(network.relay(1, echo.address, 2)) as sock:
        begun = time.monotonic()
        sock.sendall(b"a")
        assert receive(sock, 1) == b"A"
        assert time.monotonic() - begun >= SHORT_S
