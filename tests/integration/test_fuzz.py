"""A live broker under damaged requests: it must go on serving others, and keep its memory small.

`KAFKALIKE_FUZZ_FRAMES` sets how many streams are sent (each holds one to five frames),
`KAFKALIKE_FUZZ_SEED` which ones.
"""

import os
import selectors
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkalike.messages.catalog import APIS
from kafkalike.protocol.struct import Request
from tests.fuzzing import FrameMutator
from tests.integration import clients
from tests.integration.brokers import (
    BrokerCluster,
    BrokerProcess,
    ClusterMaker,
    eventually,
)

pytestmark = pytest.mark.real_zookeeper

PARALLEL = 24
SILENT_S = 1.0
QUIET_S = 0.03
PROBE_LIMIT_S = 10.0
GROWTH_BYTES = 50 << 20
PROBE = struct.pack(">ihhih", 15, 18, 0, 1, 5) + b"probe"

CONTROL = frozenset((4, 5, 6, 7, 27, 56, 57, 58, 67))
"""Requests of controller and brokers: one that can be read may rightly ruin what this broker knows."""


@dataclass
class Tally:
    """What became of the connections."""

    answered: int = 0
    closed: int = 0
    silent_keys: Counter[int] = field(default_factory=Counter)
    slowest_probe_s: float = 0.0


class Shot:
    """One connection: a stream goes out, what comes back is counted."""

    def __init__(self, address: tuple[str, int], stream: bytes) -> None:
        self.stream = stream
        self.api_key = int.from_bytes(stream[4:6], "big", signed=True)
        self.sock = socket.create_connection(address)
        self.sock.setblocking(False)
        self.started_s = self.heard_s = time.monotonic()
        self.received = 0
        self.closed = False

    def pump(self) -> None:
        try:
            if self.stream:
                self.stream = self.stream[self.sock.send(self.stream) :]
            data = self.sock.recv(1 << 20)
            self.closed = not data
            self.received += len(data)
            self.heard_s = time.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def over(self, now_s: float) -> bool:
        if self.closed:
            return True
        if self.received and now_s - self.heard_s > QUIET_S:
            return True
        return now_s - self.started_s > SILENT_S


def probe(address: tuple[str, int]) -> float:
    """Seconds that a new client waits for ApiVersions."""
    started_s = time.monotonic()
    with socket.create_connection(address, timeout=PROBE_LIMIT_S) as sock:
        sock.sendall(PROBE)
        head = sock.recv(8)
    assert len(head) == 8, "a bystander's connection was closed"
    return time.monotonic() - started_s


def gives_orders(stream: bytes) -> bool:
    """Whether damage turned a client's request into one of a controller: those may be obeyed."""
    position = 0
    while position + 6 <= len(stream):
        length, api_key = struct.unpack_from(">ih", stream, position)
        if api_key in CONTROL:
            return True
        position += 4 + max(length, 0)
    return False


def bombard(
    broker: BrokerProcess, mutator: FrameMutator, count: int, *, orders_allowed: bool
) -> Tally:
    """Send `count` streams, `PARALLEL` at a time, with a bystander asking between."""
    try:
        return _bombard(("127.0.0.1", broker.port), mutator, count, orders_allowed)
    except ConnectionRefusedError:
        raise AssertionError(f"the broker has died: {broker.tail()}") from None


def _bombard(
    address: tuple[str, int], mutator: FrameMutator, count: int, orders_allowed: bool
) -> Tally:
    tally = Tally()
    shots: list[Shot] = []
    sent = 0
    selector = selectors.DefaultSelector()
    while sent < count or shots:
        while sent < count and len(shots) < PARALLEL:
            stream = mutator.stream()
            while not orders_allowed and gives_orders(stream):
                stream = mutator.stream()
            shot = Shot(address, stream)
            shots.append(shot)
            selector.register(shot.sock, selectors.EVENT_READ, shot)
            sent += 1
            if sent % 500 == 0:
                tally.slowest_probe_s = max(tally.slowest_probe_s, probe(address))
            shot.pump()
        selector.select(0.005)
        now_s = time.monotonic()
        for shot in shots:
            shot.pump()
        for shot in [one for one in shots if one.over(now_s)]:
            shots.remove(shot)
            selector.unregister(shot.sock)
            shot.sock.close()
            tally.answered += shot.received > 0
            tally.closed += shot.closed
            if not shot.closed and not shot.received:
                tally.silent_keys[shot.api_key] += 1
    selector.close()
    return tally


def frames() -> int:
    return int(os.environ.get("KAFKALIKE_FUZZ_FRAMES", "3000"))


def seed(name: str) -> str:
    return name + os.environ.get("KAFKALIKE_FUZZ_SEED", "")


def only(keys: object) -> tuple[type[Request], ...]:
    return tuple(api.request for api in APIS if (api.key in CONTROL) is bool(keys))


def survives(broker: BrokerProcess, tally: Tally, before_bytes: int) -> None:
    """`before_bytes`: its memory before all this."""
    assert tally.answered > 0 and tally.closed > 0
    assert tally.slowest_probe_s < PROBE_LIMIT_S
    grown_bytes = broker.rss_bytes() - before_bytes
    print(f"memory grew by {grown_bytes >> 20} MiB, slowest probe {tally.slowest_probe_s:.3f} s")
    assert grown_bytes < GROWTH_BYTES


def create_afterwards(cluster: BrokerCluster) -> None:
    """A broker that lost its session on a busy machine says NOT_CONTROLLER for a moment, which the
    client passes on; anything else is a failure, told with what the broker logged last."""
    problems: list[str] = []

    def attempt() -> bool:
        try:
            clients.create_topic(cluster.bootstrap, "afterwards")
        except KafkaException as error:
            problems.append(str(error))
            return bool(error.args[0].code() != KafkaError.NOT_CONTROLLER)
        return True

    assert eventually(attempt, 60)
    unexplained = [text for text in problems if "NOT_CONTROLLER" not in text]
    assert not unexplained, f"{problems}\n{cluster[1].tail()}"


def test_clients_are_served_while_others_send_damaged_requests(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    broker = cluster[1]
    clients.create_topic(cluster.bootstrap, "topic-1")
    values = clients.payloads(500)
    clients.produce(cluster.bootstrap, "topic-1", values)
    before_bytes = broker.rss_bytes()
    tally = bombard(
        broker, FrameMutator(seed("clients"), only(False)), frames(), orders_allowed=False
    )
    survives(broker, tally, before_bytes)
    create_afterwards(cluster)
    clients.produce(cluster.bootstrap, "afterwards", values)
    assert clients.consume(cluster.bootstrap, "afterwards", 500) == values
    assert cluster.errors() == []
    assert broker.terminate() == 0


def test_damaged_control_requests_leave_the_process_alive(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    broker = cluster[1]
    before_bytes = broker.rss_bytes()
    tally = bombard(
        broker, FrameMutator(seed("control"), only(True)), frames(), orders_allowed=True
    )
    survives(broker, tally, before_bytes)
