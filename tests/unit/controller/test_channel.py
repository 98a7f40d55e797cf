"""Channels: order, retries, closing."""

import logging
from typing import Any

from twisted.internet.defer import Deferred, succeed

from kafkalike.controller.channel import BrokerChannel, Channels
from kafkalike.controller.requests import ControlRequest
from kafkalike.messages.control import UpdateMetadataRequest, UpdateMetadataResponse
from kafkalike.net.client import PeerDisconnected, PeerTimeout
from kafkalike.types import Endpoint
from tests.fakes import FakeClock

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)
LOGGER = logging.getLogger("test.channel")


def request(number: int) -> ControlRequest:
    return ControlRequest(7, 1, UpdateMetadataRequest(controller_id=number), 8)


class Line:
    """A connection whose answers the test gives."""

    def __init__(self, log: list[Any], endpoint: Endpoint) -> None:
        self.log = log
        self.endpoint = endpoint
        self.connected = False
        self.closed = False
        self.pending: list[Deferred[Any]] = []

    def connect(self) -> "Deferred[None]":
        self.connected = True
        self.log.append(("connect", self.endpoint.port))
        return succeed(None)

    def send(
        self, request: Any, *, version: int | None = None, timeout_s: float | None = None
    ) -> "Deferred[Any]":
        self.log.append((request.controller_id, version, timeout_s))
        answer: Deferred[Any] = Deferred()
        self.pending.append(answer)
        return answer

    def close(self, reason: str = "") -> None:
        self.connected = False
        self.closed = True


class Setup:
    def __init__(self, limit: int = 3) -> None:
        self.clock = FakeClock()
        self.log: list[Any] = []
        self.lines: list[Line] = []
        self.answers: list[tuple[int, Any]] = []
        self.failures: list[BaseException] = []
        self.channel = BrokerChannel(
            7,
            ENDPOINT,
            self.connect,
            self.clock,
            LOGGER,
            lambda r, a: self.answers.append((r.message.controller_id, a)),
            lambda what, error: self.failures.append(error),
            request_timeout_s=30.0,
            queue_limit=limit,
        )

    def connect(self, endpoint: Endpoint) -> Line:
        self.lines.append(Line(self.log, endpoint))
        return self.lines[-1]


def test_one_request_at_a_time_in_order() -> None:
    setup = Setup()
    for number in (1, 2, 3):
        assert setup.channel.send(request(number))
    assert setup.log == [("connect", 1), (1, 8, 30.0)]
    answer = UpdateMetadataResponse()
    for expected in (2, 3):
        setup.lines[0].pending.pop().callback(answer)
        assert setup.log[-1][0] == expected
    setup.lines[0].pending.pop().callback(answer)
    assert setup.answers == [(1, answer), (2, answer), (3, answer)]
    assert len(setup.channel) == 0
    assert setup.clock.pending() == 0


def test_lost_request_is_sent_again_on_a_new_connection() -> None:
    setup = Setup()
    setup.channel.send(request(1))
    setup.channel.send(request(2))
    for number, error in enumerate((PeerTimeout("late"), PeerDisconnected("gone"), OSError("x"))):
        setup.lines[number].pending.pop().errback(error)
        assert setup.lines[number].closed
        assert len(setup.lines) == number + 1
        setup.clock.advance(0.1)
        assert len(setup.lines) == number + 2
        assert setup.log[-1][0] == 1
    setup.lines[-1].pending.pop().callback("answer")
    assert setup.answers == [(1, "answer")]
    assert setup.log[-1][0] == 2


def test_closed_channel_forgets_everything() -> None:
    setup = Setup()
    setup.channel.send(request(1))
    setup.channel.send(request(2))
    answer = setup.lines[0].pending.pop()
    setup.channel.close()
    assert setup.lines[0].closed
    if not answer.called:
        answer.callback("late")
    setup.clock.advance(1.0)
    assert setup.answers == []
    assert setup.clock.pending() == 0
    assert setup.channel.send(request(3))
    assert len(setup.channel) == 0


def test_closing_while_waiting_to_try_again() -> None:
    setup = Setup()
    setup.channel.send(request(1))
    setup.lines[0].pending.pop().errback(PeerDisconnected("gone"))
    setup.channel.close()
    setup.clock.advance(1.0)
    assert len(setup.lines) == 1


def test_queue_has_a_bound() -> None:
    setup = Setup(limit=2)
    assert setup.channel.send(request(1))
    assert setup.channel.send(request(2))
    assert not setup.channel.send(request(3))


def test_request_that_cannot_be_sent_is_reported() -> None:
    setup = Setup()
    LOGGER.setLevel(logging.CRITICAL)
    setup.channel.send(request(1))
    setup.lines[0].pending.pop().errback(ValueError("does not fit"))
    assert [type(error) for error in setup.failures] == [ValueError]


def test_channels_follow_addresses_and_brokers() -> None:
    setup = Setup()
    overflown: list[int] = []
    channels = Channels(
        setup.connect,
        setup.clock,
        LOGGER,
        request_timeout_s=30.0,
        on_answer=lambda r, a: None,
        on_overflow=overflown.append,
        on_failure=lambda what, error: None,
        queue_limit=1,
    )
    LOGGER.setLevel(logging.CRITICAL)
    channels.send(request(0))  # no such channel: dropped
    channels.open(7, ENDPOINT)
    channels.send(request(1))
    assert channels.queued == 1
    channels.send(request(2))
    assert overflown == [7]
    channels.move(7, ENDPOINT._replace(port=2))
    setup.lines[0].pending.pop().errback(PeerDisconnected("moved"))
    setup.clock.advance(0.1)
    assert setup.lines[1].endpoint.port == 2
    channels.open(7, ENDPOINT)
    assert setup.lines[1].closed
    assert channels.queued == 0
    channels.send(request(3))
    channels.close_all()
    assert channels.queued == 0
