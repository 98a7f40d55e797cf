"""The server path over a network in memory and over real sockets: one request at a time, in order."""

import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor

from kafkalike.broker.handlers.api_versions import ApiVersionsApi
from kafkalike.broker.handlers.request import RequestContext, Route, route
from kafkalike.broker.server.connection import ConnectionLimits
from kafkalike.broker.server.dispatch import Dispatcher
from kafkalike.broker.server.listener import Server
from kafkalike.errors import NotController, NotLeaderOrFollower
from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalike.messages.groups import HeartbeatRequest, HeartbeatResponse
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.metrics import Metrics
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from kafkalike.runtime.reactor import SlimReactor
from kafkalike.runtime.tasks import TimerWheel
from kafkalike.types import Endpoint
from tests.worlds import Client, RealWorld, SimulatedWorld, World, framed


class Handlers:
    """A few APIs whose answers the test controls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.contexts: list[RequestContext] = []
        self.waiting: list[Deferred[Any]] = []
        self.throttle_ms = 0
        self.versions = ApiVersionsApi(lambda: 7)

    def routes(self) -> list[Route]:
        routes = [
            route(ProduceRequest, self.produce),
            route(MetadataRequest, self.metadata),
            route(HeartbeatRequest, self.heartbeat, versions=(1, 3)),
            route(ControlledShutdownRequest, self.controlled_shutdown),
            *self.versions.routes(),
        ]
        self.versions.serve(routes)
        return routes

    def produce(self, request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
        self.contexts.append(ctx)
        name = request.topic_data[0].name if request.topic_data else ""
        self.seen.append(("produce", name))
        ctx.throttle_ms = self.throttle_ms
        if name == "boom":
            raise ZeroDivisionError("a mistake")
        if name == "refused":
            raise NotLeaderOrFollower("not here")
        if name == "close":
            ctx.close_connection("told to")
            return None
        return None if request.acks == 0 else ProduceResponse()

    def metadata(self, request: MetadataRequest, ctx: RequestContext) -> "Deferred[Any]":
        self.contexts.append(ctx)
        self.seen.append(("metadata", len(self.waiting)))
        pending: Deferred[Any] = Deferred()
        self.waiting.append(pending)
        return pending

    async def heartbeat(self, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        self.contexts.append(ctx)
        self.seen.append(("heartbeat", request.group_id))
        if request.group_id == "wrong":
            return "not a response"  # type: ignore[return-value]
        return HeartbeatResponse(error_code=27)

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest, ctx: RequestContext
    ) -> ControlledShutdownResponse:
        raise NotController("ask another broker")


class Broker:
    """A server with one listener in a world."""

    def __init__(self, world: World, **limits: Any) -> None:
        self.world = world
        self.handlers = Handlers()
        self.metrics = Metrics()
        self.broken: list[AssertionError] = []
        logger = logging.getLogger("kafkalike.test")
        self.wheel = TimerWheel(world.clock, logger)
        self.dispatcher = Dispatcher(
            self.handlers.routes(),
            clock=world.clock,
            metrics=self.metrics,
            logger=logger,
            on_broken_invariant=self.broken.append,
        )
        self.server = Server(
            world.network,
            world.clock,
            self.wheel,
            self.dispatcher,
            [Endpoint("PLAINTEXT", "PLAINTEXT", "", 0)],
            metrics=self.metrics,
            logger=logger,
            limits=ConnectionLimits(**limits),
        )
        self.server.start()
        self.port = self.server.bound()[0].port
        self.clients: list[Caller] = []

    def caller(self) -> "Caller":
        self.clients.append(Caller(self.world.client(self.port)))
        return self.clients[-1]

    def stop(self) -> None:
        for client in self.clients:
            client.client.close()
        done = self.server.stop(5.0)
        self.world.until(lambda: bool(done.called))
        self.wheel.stop()


class Caller:
    """A client that speaks requests."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.count = 0

    def request(self, request: Any, version: int, client_id: str = "me") -> bytes:
        self.count += 1
        header = RequestHeader(request.api_key, version, self.count, client_id)
        return framed(encode_request_header(header) + request.encode(version))

    def send(self, *requests: tuple[Any, int]) -> None:
        self.client.send(b"".join(self.request(one, version) for one, version in requests))

    def answer(self, response_class: Any, version: int) -> tuple[int, Any]:
        """Correlation id and response."""
        prefix = self.client.read(4)
        assert len(prefix) == 4, "the connection was closed"
        (size,) = struct.unpack(">i", prefix)
        body = self.client.read(size)
        correlation_id, position = decode_response_header(body, response_class.api_key, version)
        response, end = response_class.decode_prefix(body, version, position)
        assert end == len(body)
        return correlation_id, response

    def call(self, request: Any, response_class: Any, version: int) -> Any:
        self.send((request, version))
        correlation_id, response = self.answer(response_class, version)
        assert correlation_id == self.count
        return response


def produce(name: str = "t", acks: int = 1) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    data = [topic(name=name, partition_data=[topic.PartitionProduceData(index=3, records=b"xyz")])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)


@pytest.fixture(params=["simulated", "slim", "epoll"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = (
        SimulatedWorld()
        if request.param == "simulated"
        else RealWorld(SlimReactor() if request.param == "slim" else EPollReactor())
    )
    yield made
    made.close()


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    made = Broker(world)
    yield made
    made.stop()


@pytest.mark.parametrize("version", range(12))
def test_a_request_is_answered_in_its_version(broker: Broker, version: int) -> None:
    caller = broker.caller()
    assert caller.call(produce(), ProduceResponse, version) == ProduceResponse()
    ctx = broker.handlers.contexts[0]
    assert (ctx.header.client_id, ctx.header.api_version, ctx.client_id) == ("me", version, "me")
    assert ctx.listener == "PLAINTEXT"
    assert ctx.principal == "User:ANONYMOUS"
    assert ctx.client_host in ("127.0.0.1", "client")
    assert not ctx.is_inter_broker


def test_answers_come_in_the_order_of_requests_although_one_waits(broker: Broker) -> None:
    caller = broker.caller()
    handlers = broker.handlers
    caller.send(
        (produce(), 9), (MetadataRequest(), 9), (produce("second"), 3), (MetadataRequest(), 1)
    )
    assert caller.answer(ProduceResponse, 9)[0] == 1
    broker.world.until(lambda: len(handlers.waiting) == 1)
    broker.world.settle()
    assert handlers.seen == [("produce", "t"), ("metadata", 0)], "the third must wait"
    handlers.waiting[0].callback(MetadataResponse(controller_id=5))
    correlation_id, response = caller.answer(MetadataResponse, 9)
    assert (correlation_id, response.controller_id) == (2, 5)
    assert caller.answer(ProduceResponse, 3)[0] == 3
    broker.world.until(lambda: len(handlers.waiting) == 2)
    handlers.waiting[1].callback(MetadataResponse(controller_id=6))
    assert caller.answer(MetadataResponse, 1)[1].controller_id == 6


def test_connections_do_not_wait_for_each_other(broker: Broker) -> None:
    first, second = broker.caller(), broker.caller()
    first.send((MetadataRequest(), 9))
    broker.world.until(lambda: len(broker.handlers.waiting) == 1)
    assert second.call(produce(), ProduceResponse, 9) is not None
    broker.handlers.waiting[0].callback(MetadataResponse())
    first.answer(MetadataResponse, 9)


def test_an_answer_for_a_client_that_left_is_dropped(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((MetadataRequest(), 9))
    broker.world.until(lambda: len(broker.handlers.waiting) == 1)
    caller.client.close()
    broker.world.settle()
    broker.handlers.waiting[0].callback(MetadataResponse())
    broker.world.until(lambda: broker.server.connection_count() == 0)


def test_a_half_closed_client_still_gets_its_answers(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((MetadataRequest(), 9), (produce(), 9))
    caller.client.end_write()
    broker.world.until(lambda: len(broker.handlers.waiting) == 1)
    broker.world.settle()
    broker.handlers.waiting[0].callback(MetadataResponse())
    assert caller.answer(MetadataResponse, 9)[0] == 1
    assert caller.answer(ProduceResponse, 9)[0] == 2
    assert caller.client.at_end()


def test_coroutine_handlers_are_answered(broker: Broker) -> None:
    caller = broker.caller()
    answer = caller.call(HeartbeatRequest(group_id="g"), HeartbeatResponse, 3)
    assert answer.error_code == 27


def test_acks_0_has_no_answer_and_the_next_request_is_served(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((produce(acks=0), 9), (produce(acks=0), 9), (produce("last"), 9))
    assert caller.answer(ProduceResponse, 9)[0] == 3
    assert [name for _, name in broker.handlers.seen] == ["t", "t", "last"]


def test_a_handler_may_close_the_connection(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((produce(), 9), (produce("close"), 9), (produce("never"), 9))
    assert caller.answer(ProduceResponse, 9)[0] == 1
    assert caller.client.at_end()
    assert ("produce", "never") not in broker.handlers.seen


def test_a_raised_kafka_error_becomes_the_error_form_of_the_api(broker: Broker) -> None:
    caller = broker.caller()
    response = caller.call(produce("refused"), ProduceResponse, 9)
    (partition,) = response.responses[0].partition_responses
    assert response.responses[0].name == "refused"
    assert (partition.index, partition.error_code, partition.base_offset) == (3, 6, -1)
    assert partition.error_message == "not here"
    answer = caller.call(ControlledShutdownRequest(), ControlledShutdownResponse, 3)
    assert answer.error_code == 41
    counted = broker.metrics.value(
        "kafka.network",
        "RequestMetrics",
        "ErrorsPerSec",
        request="Produce",
        error="NOT_LEADER_OR_FOLLOWER",
    )
    assert counted == 1


def test_controlled_shutdown_0_has_a_header_without_client_id(broker: Broker) -> None:
    caller = broker.caller()
    answer = caller.call(ControlledShutdownRequest(broker_id=1), ControlledShutdownResponse, 0)
    assert answer.error_code == 41


def test_a_mistake_is_logged_counted_and_answered_with_minus_1(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caller = broker.caller()
    response = caller.call(produce("boom"), ProduceResponse, 9)
    (partition,) = response.responses[0].partition_responses
    assert (partition.error_code, partition.error_message) == (-1, None)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError
    assert broker.broken == []
    assert caller.call(produce(), ProduceResponse, 9) == ProduceResponse()


def test_a_mistake_without_a_form_to_say_so_closes_the_connection(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((produce("boom", acks=0), 9), (produce("never"), 9))
    assert caller.client.at_end()
    assert ("produce", "never") not in broker.handlers.seen


def test_a_handler_that_returns_nonsense_is_a_mistake_too(broker: Broker) -> None:
    caller = broker.caller()
    assert caller.call(HeartbeatRequest(group_id="wrong"), HeartbeatResponse, 3).error_code == -1


def test_a_broken_invariant_is_reported(broker: Broker) -> None:
    caller = broker.caller()
    caller.send((MetadataRequest(topics=[]), 9))
    broker.world.until(lambda: len(broker.handlers.waiting) == 1)
    broker.handlers.waiting[0].errback(AssertionError("high watermark above log end"))
    assert caller.answer(MetadataResponse, 9)[1] == MetadataResponse()
    assert [str(error) for error in broker.broken] == ["high watermark above log end"]


GOOD = encode_request_header(RequestHeader(0, 9, 1, "me")) + produce().encode(9)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\0", "malformed header"),
        (b"\0\0\0\x09\0\0\0\1", "malformed header"),
        (b"\0\0\0\x09\0\0\0\1\x7f\xff", "malformed header"),
        (struct.pack(">hhih", 0, 3, 1, 100) + b"short", "malformed header"),
        (GOOD[:-1], "malformed Produce v9"),
        (GOOD[: len(GOOD) // 2], "malformed"),
        (struct.pack(">hhihx", 0, 12, 1, 0), "served in versions 0 to 11, not 12"),
        (struct.pack(">hhihx", 0, -1, 1, 0), "served in versions 0 to 11, not -1"),
        (struct.pack(">hhihx", 12, 0, 1, 0), "served in versions 1 to 3, not 0"),
        (struct.pack(">hhihx", 12, 4, 1, 0), "served in versions 1 to 3, not 4"),
        (struct.pack(">hhihx", 52, 0, 1, 0), "api key 52 is not served"),
        (struct.pack(">hhihx", -1, 0, 1, 0), "api key -1 is not served"),
        (struct.pack(">hhihx", 1, 4, 1, 0), "api key 1 is not served"),
    ],
)
def test_what_cannot_be_read_closes_this_connection_only(
    broker: Broker, frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    bystander, caller = broker.caller(), broker.caller()
    bystander.call(produce(), ProduceResponse, 9)
    caller.client.send(framed(frame) + framed(GOOD))
    assert caller.client.at_end()
    lines = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert len(lines) == 1, lines
    assert reason in lines[0]
    assert bystander.call(produce(), ProduceResponse, 9) == ProduceResponse()
    assert len(broker.handlers.seen) == 2


def test_trailing_bytes_and_a_null_client_id_are_accepted(broker: Broker) -> None:
    caller = broker.caller()
    for length in (-1, -2):
        body = produce().encode(3)
        caller.client.send(framed(struct.pack(">hhih", 0, 3, 9, length) + body + b"trailing"))
        assert caller.answer(ProduceResponse, 3)[0] == 9
        assert broker.handlers.contexts[-1].header.client_id == ""


def test_unknown_header_tags_are_skipped(broker: Broker) -> None:
    caller = broker.caller()
    header = struct.pack(">hhih", 0, 9, 4, 2) + b"me" + b"\x02\x05\x01a\x07\x00"
    caller.client.send(framed(header + produce().encode(9)))
    assert caller.answer(ProduceResponse, 9)[0] == 4


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(broker: Broker, version: int) -> None:
    caller = broker.caller()
    request = ApiVersionsRequest(
        client_software_name="apache-kafka-java" if version >= 3 else "",
        client_software_version="3.9.1" if version >= 3 else "",
    )
    response = caller.call(request, ApiVersionsResponse, version)
    assert response.error_code == 0
    listed = [(one.api_key, one.min_version, one.max_version) for one in response.api_keys]
    assert listed == [(0, 0, 11), (3, 0, 12), (7, 0, 3), (12, 1, 3), (18, 0, 4)]
    assert response.finalized_features_epoch == (7 if version >= 3 else -1)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n", "ä", ".a"])
def test_api_versions_3_checks_the_software_name(broker: Broker, name: str) -> None:
    caller = broker.caller()
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1"),
        ApiVersionsRequest(client_software_name="ok", client_software_version=name),
    ):
        response = caller.call(request, ApiVersionsResponse, 3)
        assert (response.error_code, response.api_keys) == (42, [])


def test_api_versions_remembers_the_software(broker: Broker) -> None:
    caller = broker.caller()
    request = ApiVersionsRequest(client_software_name="l.i-b", client_software_version="2.0-rc.1")
    assert caller.call(request, ApiVersionsResponse, 4).error_code == 0
    caller.call(produce(), ProduceResponse, 9)
    session = broker.handlers.contexts[0].session
    assert session.client_software_name == "l.i-b"
    assert session.client_software_version == "2.0-rc.1"


@pytest.mark.parametrize("version", [5, 100, 32767, -1, -32768])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(
    broker: Broker, version: int
) -> None:
    caller = broker.caller()
    header = struct.pack(">hhih", 18, version, 77, 2) + b"me"
    if version >= 3:
        header += b"\0"
    caller.client.send(framed(header + b"\xff\xff what ever comes here"))
    size, correlation_id, error_code, count = struct.unpack(">iihi", caller.client.read(14))
    assert (size, correlation_id, error_code, count) == (16, 77, 35, 1)
    assert struct.unpack(">hhh", caller.client.read(6)) == (18, 0, 4)
    assert caller.call(produce(), ProduceResponse, 9) == ProduceResponse()


def test_api_versions_5_with_a_version_1_header_and_garbage_closes(broker: Broker) -> None:
    caller = broker.caller()
    caller.client.send(framed(struct.pack(">hhih", 18, 5, 77, 2) + b"me" + b"\xff\xff\xff"))
    assert caller.client.at_end()


def test_requests_are_counted_and_timed(broker: Broker) -> None:
    caller = broker.caller()
    for _ in range(3):
        caller.call(produce(), ProduceResponse, 9)
    caller.call(produce(), ProduceResponse, 3)
    group = ("kafka.network", "RequestMetrics")
    value = broker.metrics.value
    assert value(*group, "RequestsPerSec", request="Produce", version="9") == 3
    assert value(*group, "RequestsPerSec", request="Produce", version="3") == 1
    assert value(*group, "TotalTimeMs", request="Produce") == 4
    assert value(*group, "LocalTimeMs", request="Produce") == 4


def test_a_pipelining_client_with_a_slow_reader_gets_all_bytes_in_order(broker: Broker) -> None:
    caller = broker.caller()
    big = MetadataResponse(cluster_id="x" * 30_000)
    caller.send(*[(MetadataRequest(), 9)] * 100)
    for number in range(100):
        broker.world.until(lambda number=number: len(broker.handlers.waiting) == number + 1)  # type: ignore[misc]
        broker.handlers.waiting[number].callback(big)
        if number % 10 == 9:
            for _ in range(10):
                response = caller.answer(MetadataResponse, 9)[1]
                assert response.cluster_id == big.cluster_id
