"""Damaged requests of every API against the server path: each is answered or closes its connection.

The handlers here answer with the error form of the API, so every request that can be read goes all the
way through encoding.
"""

import logging
import struct
import tracemalloc
from typing import Any

import pytest

from kafkalike.broker.handlers.request import RequestContext, Route, Session, route
from kafkalike.broker.server.connection import Connection, ConnectionLimits
from kafkalike.broker.server.dispatch import Dispatcher
from kafkalike.errors import NotController
from kafkalike.messages.catalog import APIS
from kafkalike.metrics import Metrics
from kafkalike.runtime.tasks import TimerWheel
from tests.fakes import FakeClock
from tests.fuzzing import FrameMutator

LOGGER = logging.getLogger("kafkalike.test.fuzz")


class Wire:
    """A transport that keeps what is written."""

    peer_host, peer_port, local_host, local_port = "client", 1, "broker", 2

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, parts: Any) -> None:
        self.sent.append(b"".join(bytes(part) for part in parts))

    def pause(self) -> None:
        raise AssertionError("nothing waits here")

    def resume(self) -> None:
        raise AssertionError("nothing waits here")

    def limit_frames(self, max_frame_bytes: int) -> None:
        raise AssertionError("there is no authentication here")

    def unsent_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def refuse(request: Any, ctx: RequestContext) -> Any:
    raise NotController("not here")


class Target:
    """The server path without a network."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.wheel = TimerWheel(clock, LOGGER)
        self.clock = clock
        routes: list[Route] = [route(api.request, refuse) for api in APIS]
        self.dispatcher = Dispatcher(routes, clock=clock, metrics=Metrics(), logger=LOGGER)

    def connection(self) -> tuple[Connection, Wire]:
        wire = Wire()
        connection = Connection(
            self.dispatcher,
            self.wheel,
            self.clock.monotonic,
            make_session=lambda transport: Session(
                listener="PLAINTEXT",
                security_protocol="PLAINTEXT",
                connection_id="x",
                client_host="client",
                client_port=1,
            ),
            limits=ConnectionLimits(),
            on_end=lambda connection: None,
            on_expired=lambda: None,
        )
        connection.connected(wire)
        return connection, wire

    def send(self, frame: bytes) -> Wire:
        connection, wire = self.connection()
        connection.frame_received(memoryview(bytearray(frame)))
        connection.disconnected("done")
        return wire


@pytest.fixture
def target(caplog: pytest.LogCaptureFixture) -> Target:
    caplog.set_level(logging.ERROR, LOGGER.name)
    return Target()


def test_the_same_seed_gives_the_same_frames() -> None:
    assert list(FrameMutator("x").frames(200)) == list(FrameMutator("x").frames(200))
    assert list(FrameMutator("x").frames(50)) != list(FrameMutator("y").frames(50))


def test_valid_frames_of_all_versions_are_answered(target: Target) -> None:
    mutator = FrameMutator("valid")
    for _ in range(1500):
        request_class, version, frame = mutator.valid()
        wire = target.send(frame)
        if request_class.__name__ == "ProduceRequest" and not wire.sent:
            assert wire.closed  # acks 0
            continue
        assert len(wire.sent) == 1, (request_class.__name__, version)
        size, correlation_id = struct.unpack_from(">ii", wire.sent[0])
        assert size == len(wire.sent[0]) - 4
        assert struct.pack(">i", correlation_id) == frame[4:8]


@pytest.mark.parametrize("part", range(4))
def test_damaged_frames_are_answered_or_close_their_connection(
    target: Target, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    mutator = FrameMutator(("damaged", part))
    answered = closed = 0
    for frame in mutator.frames(2500):
        wire = target.send(frame)
        answered += bool(wire.sent)
        closed += wire.closed
        assert wire.closed or wire.sent, frame.hex()
        for sent in wire.sent:
            assert struct.unpack_from(">i", sent)[0] == len(sent) - 4
    assert answered > 300 and closed > 300, (answered, closed)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == []


def test_a_short_frame_never_takes_much_memory(target: Target) -> None:
    mutator = FrameMutator("memory")
    frames = [frame for frame in mutator.frames(3000) if len(frame) < 4000]
    for frame in frames[:200]:
        target.send(frame)  # codecs are made on first use
    tracemalloc.start()
    try:
        worst = 0
        for frame in frames:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            target.send(frame)
            worst = max(worst, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert worst < 4 << 20
