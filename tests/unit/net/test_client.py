"""Outgoing connections against a scripted broker over pipes in memory."""

import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest
from kafkalike.net.client import (
    MAX_IN_FLIGHT,
    BrokerClient,
    PeerDisconnected,
    PeerError,
    PeerProtocolError,
    PeerTimeout,
    UnsupportedByPeer,
)
from kafkalike.net.peers import PeerAddress, Peers
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
)
from kafkalike.runtime.ports import Transport
from kafkalike.tools.simulator.network import SimInternet
from tests.fakes import FakeClock, FakeRandom, failure_of, result_of


class Peer:
    """A broker that writes down requests and answers when the test says so."""

    def __init__(self, world: "World", host: str) -> None:
        self.world = world
        self.requests: list[RequestHeader] = []
        self.bodies: list[bytes] = []
        self.transports: list[Transport] = []
        self.ended: list[str] = []
        self.on_request: Callable[[RequestHeader, bytes], object] | None = None
        self.port = world.internet.host(host).listen(
            "", 9092, lambda _: self, max_frame_bytes=10 << 20
        )

    def connected(self, transport: Transport) -> None:
        self.transports.append(transport)

    def frame_received(self, frame: memoryview) -> None:
        header, position = decode_request_header(frame)
        self.requests.append(header)
        self.bodies.append(bytes(frame[position:]))
        if self.on_request is not None:
            self.on_request(header, self.bodies[-1])

    def disconnected(self, reason: str) -> None:
        self.ended.append(reason)

    def answer(self, header: RequestHeader, response: Any, version: int | None = None) -> None:
        start = encode_response_header(header.correlation_id, header.api_key, header.api_version)
        self.send(start + response.encode(header.api_version if version is None else version))

    def send(self, body: bytes) -> None:
        self.transports[-1].write([struct.pack(">i", len(body)), body])
        self.world.settle()


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.internet = SimInternet(self.clock, lambda source, target, count: 0.001)
        self.network = self.internet.host("us")
        self.peer = Peer(self, "them")
        self.lost: list[str] = []

    def settle(self) -> None:
        self.clock.advance(0.02)

    def client(self, **options: Any) -> BrokerClient:
        options.setdefault("client_id", "tester")
        host = options.pop("host", "them")
        return BrokerClient(
            self.network, self.clock, host, 9092, on_disconnect=self.lost.append, **options
        )

    def connected(self, **options: Any) -> BrokerClient:
        client = self.client(**options)
        done = client.connect()
        self.settle()
        result_of(done)
        return client


@pytest.fixture
def world() -> World:
    return World()


def test_a_request_gets_its_answer(world: World) -> None:
    client = world.connected()
    result = client.send(MetadataRequest(topics=[]), version=9)
    world.settle()
    (header,) = world.peer.requests
    assert (header.api_key, header.api_version, header.client_id) == (3, 9, "tester")
    assert MetadataRequest.decode(world.peer.bodies[0], 9) == MetadataRequest(topics=[])
    assert client.in_flight == 1
    world.peer.answer(header, MetadataResponse(controller_id=4))
    assert result_of(result).controller_id == 4
    assert client.in_flight == 0
    assert world.clock.pending() == 0


def test_without_negotiation_the_newest_version_goes_out(world: World) -> None:
    client = world.connected()
    client.send(MetadataRequest()).addErrback(lambda _: None)
    world.settle()
    assert world.peer.requests[0].api_version == MetadataRequest.max_version


def test_several_requests_may_be_on_their_way(world: World) -> None:
    client = world.connected()
    results = [client.send(MetadataRequest(), version=9) for _ in range(5)]
    world.settle()
    assert [header.correlation_id for header in world.peer.requests] == [0, 1, 2, 3, 4]
    for number, header in enumerate(world.peer.requests):
        world.peer.answer(header, MetadataResponse(controller_id=number))
    assert [result_of(result).controller_id for result in results] == [0, 1, 2, 3, 4]


def test_requests_on_their_way_are_bounded(world: World) -> None:
    client = world.connected()
    for _ in range(MAX_IN_FLIGHT):
        client.send(MetadataRequest()).addErrback(lambda _: None)
    failure_of(client.send(MetadataRequest()), PeerError)
    client.close()


def test_acks_0_fires_at_once(world: World) -> None:
    client = world.connected()
    assert result_of(client.send(ProduceRequest(acks=0), expect_answer=False)) is None
    assert client.in_flight == 0
    world.settle()
    assert len(world.peer.requests) == 1


def test_records_are_copied_unless_borrowed(world: World) -> None:
    client = world.connected()
    topic = FetchResponse.FetchableTopicResponse
    response = FetchResponse(
        responses=[
            topic(topic="t", partitions=[topic.PartitionData(partition_index=0, records=b"abc")])
        ]
    )
    kept: list[Any] = []
    seen: list[bytes] = []

    def take(answer: Any) -> None:
        kept.append(answer.responses[0].partitions[0].records)
        seen.append(bytes(kept[-1]))

    for borrow in (False, True):
        client.send(FetchRequest(), version=12, borrow=borrow).addCallback(take)
        world.settle()
        world.peer.answer(world.peer.requests[-1], response)
    assert seen == [b"abc", b"abc"]
    assert bytes(kept[0]) == b"abc"
    assert bytes(kept[1]) != b"abc", "memory of a borrowed answer is used again"


def test_a_lost_connection_fails_everything_pending(world: World) -> None:
    client = world.connected()
    results = [client.send(MetadataRequest()) for _ in range(3)]
    world.settle()
    world.peer.transports[0].abort()
    world.settle()
    for result in results:
        assert "them:9092" in str(failure_of(result, PeerDisconnected))
    assert not client.connected
    assert len(world.lost) == 1
    failure_of(client.send(MetadataRequest()), PeerDisconnected)
    failure_of(client.connect(), PeerDisconnected)
    assert world.clock.pending() == 0


def test_close_fails_everything_pending_and_is_no_surprise(world: World) -> None:
    client = world.connected()
    result = client.send(MetadataRequest())
    client.close("enough")
    assert "enough" in str(failure_of(result, PeerDisconnected))
    world.settle()
    client.close()
    assert world.lost == []
    assert len(world.peer.ended) == 1


def test_a_late_answer_closes_the_connection(world: World) -> None:
    client = world.connected()
    patient = client.send(MetadataRequest(), timeout_s=60.0)
    hasty = client.send(MetadataRequest(), timeout_s=5.0)
    world.clock.advance(4.9)
    assert not hasty.called
    world.clock.advance(0.2)
    assert "no answer in time" in str(failure_of(hasty, PeerTimeout))
    failure_of(patient, PeerDisconnected)
    world.settle()
    assert not client.connected
    assert len(world.peer.ended) == 1
    assert len(world.lost) == 1


def test_deadlines_are_those_of_each_request(world: World) -> None:
    client = world.connected(request_timeout_s=10.0)
    first = client.send(MetadataRequest(), version=9)
    world.clock.advance(8.0)
    second = client.send(MetadataRequest(), version=9)
    world.settle()
    world.peer.answer(world.peer.requests[0], MetadataResponse())
    result_of(first)
    world.clock.advance(8.0)
    assert client.connected
    world.peer.answer(world.peer.requests[1], MetadataResponse())
    result_of(second)


def test_a_cancelled_request_does_not_disturb_the_next(world: World) -> None:
    client = world.connected()
    given_up = client.send(MetadataRequest(), version=9)
    given_up.cancel()
    failure_of(given_up, CancelledError)
    wanted = client.send(MetadataRequest(), version=9)
    world.settle()
    for number, header in enumerate(world.peer.requests):
        world.peer.answer(header, MetadataResponse(controller_id=number))
    assert result_of(wanted).controller_id == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\0\0", "malformed"),
        (b"\0\0\0\x63\0", "correlation id 99, expected 0"),
        (b"\0\0\0\0\0\xff", "malformed"),
    ],
)
def test_a_malformed_answer_closes_the_connection(world: World, body: bytes, reason: str) -> None:
    client = world.connected()
    result = client.send(MetadataRequest(), version=9)
    world.settle()
    world.peer.send(body)
    assert reason in str(failure_of(result, PeerProtocolError))
    assert not client.connected
    assert len(world.lost) == 1


def test_an_answer_nobody_asked_for_closes_the_connection(world: World) -> None:
    client = world.connected()
    world.peer.send(b"\0\0\0\0")
    assert not client.connected
    assert "nothing asked for" in world.lost[0]


def test_connecting_to_nobody_fails(world: World) -> None:
    world.peer.port.stop()
    done = world.client().connect()
    world.settle()
    failure_of(done, PeerDisconnected)
    done = world.client(host="stranger").connect()
    world.settle()
    assert "stranger" in str(failure_of(done, PeerDisconnected))


def test_connecting_takes_no_longer_than_allowed(world: World) -> None:
    world.internet.delay = lambda source, target, count: None
    client = world.client(connect_timeout_s=3.0)
    done = client.connect()
    world.clock.advance(2.9)
    assert not done.called
    world.clock.advance(0.2)
    failure_of(done, PeerTimeout)


def test_close_while_connecting(world: World) -> None:
    client = world.client()
    done = client.connect()
    client.close("changed our mind")
    world.settle()
    failure_of(done, PeerDisconnected)


def versions(*ranges: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=k, min_version=low, max_version=high)
            for k, low, high in ranges
        ],
    )


def test_negotiation_chooses_the_highest_common_version(world: World) -> None:
    world.peer.on_request = lambda header, body: world.peer.answer(
        header, versions((18, 0, 4), (3, 0, 7), (0, 50, 60))
    )
    client = world.connected(negotiate=True)
    request = ApiVersionsRequest.decode(world.peer.bodies[0], 4)
    assert request.client_software_name == "kafkalike"
    world.peer.on_request = None
    client.send(MetadataRequest()).addErrback(lambda _: None)
    world.settle()
    assert world.peer.requests[-1].api_version == 7
    assert "ProduceRequest" in str(failure_of(client.send(ProduceRequest()), UnsupportedByPeer))
    failure_of(client.send(FetchRequest()), UnsupportedByPeer)
    assert client.connected
    client.close()


def test_a_peer_that_knows_only_old_api_versions(world: World) -> None:
    def old(header: RequestHeader, body: bytes) -> None:
        if header.api_version > 2:
            world.peer.answer(header, versions((18, 0, 2), error_code=35), version=0)
        else:
            world.peer.answer(header, versions((18, 0, 2), (3, 0, 5)))

    world.peer.on_request = old
    client = world.connected(negotiate=True)
    assert [header.api_version for header in world.peer.requests] == [4, 2]
    assert client.version_for(MetadataRequest) == 5


def test_failed_negotiation_fails_the_connection(world: World) -> None:
    world.peer.on_request = lambda header, body: world.peer.answer(header, versions(error_code=42))
    client = world.client(negotiate=True)
    done = client.connect()
    world.settle()
    failure_of(done, PeerProtocolError)
    world.settle()
    assert not client.connected
    assert len(world.peer.ended) == 1


def test_authentication_comes_first(world: World) -> None:
    steps: list[str] = []

    async def authenticate(client: BrokerClient) -> None:
        reply = await client.send_raw(b"\0\0\0\0\0\0\0\0\0\0token")
        steps.append(reply.decode())

    world.peer.on_request = lambda header, body: world.peer.send(b"welcome")
    client = world.connected(authenticate=authenticate)
    assert steps == ["welcome"]
    assert client.connected

    async def refuse(client: BrokerClient) -> None:
        raise PeerError("bad password")

    done = world.client(authenticate=refuse).connect()
    world.settle()
    failure_of(done, PeerError)


class Site:
    """Peers over the scripted broker, whose address the test may change."""

    def __init__(self) -> None:
        self.world = World()
        self.addresses: dict[int, PeerAddress] = {7: PeerAddress("them", 9092)}
        self.lost: list[tuple[int, str]] = []
        self.peers = Peers(
            self.world.network,
            self.world.clock,
            FakeRandom(1),
            self.addresses.get,
            client_id="tester",
            logger=logging.getLogger("kafkalike.test"),
            on_disconnect=lambda broker, reason: self.lost.append((broker, reason)),
        )

    def send(self) -> "Deferred[Any]":
        return self.peers.send(7, MetadataRequest(), version=9)

    def serve(self) -> None:
        peer = self.world.peer
        peer.on_request = lambda header, body: peer.answer(header, MetadataResponse())


@pytest.fixture
def site() -> Site:
    return Site()


def test_one_connection_serves_all_requests_to_a_broker(site: Site) -> None:
    site.serve()
    results = [site.send() for _ in range(3)]
    site.world.settle()
    results.append(site.send())
    site.world.settle()
    for result in results:
        result_of(result)
    assert len(site.world.peer.transports) == 1
    assert site.peers.wait_s(7) == 0.0


def test_an_unknown_broker_fails_at_once(site: Site) -> None:
    assert "not known" in str(failure_of(site.peers.send(9, MetadataRequest()), PeerDisconnected))


def test_failed_attempts_are_followed_by_growing_pauses(site: Site) -> None:
    site.world.peer.port.stop()
    pauses = []
    for _ in range(8):
        waiting = [site.send(), site.send()]
        site.world.settle()
        for one in waiting:
            failure_of(one, PeerError)
        failure_of(site.send(), PeerDisconnected)
        pause = site.peers.wait_s(7)
        pauses.append(pause)
        site.world.clock.advance(pause + 0.001)
        assert site.peers.wait_s(7) == 0.0
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    for pause, want in zip(pauses, expected, strict=True):
        assert want * 0.8 - 0.03 <= pause <= want * 1.2
    site.world.peer = Peer(site.world, "them")
    site.serve()
    again = site.send()
    site.world.settle()
    result_of(again)


def test_a_lost_connection_is_made_again(site: Site) -> None:
    site.serve()
    first = site.send()
    site.world.settle()
    result_of(first)
    site.world.peer.transports[0].abort()
    site.world.settle()
    assert [broker for broker, _ in site.lost] == [7]
    failure_of(site.send(), PeerDisconnected)
    site.world.clock.advance(0.1)
    second = site.send()
    site.world.settle()
    result_of(second)
    assert len(site.world.peer.transports) == 2


def test_a_changed_address_drops_the_old_connection(site: Site) -> None:
    site.serve()
    first = site.send()
    site.world.settle()
    result_of(first)
    other = Peer(site.world, "elsewhere")
    other.on_request = lambda header, body: other.answer(header, MetadataResponse())
    site.addresses[7] = PeerAddress("elsewhere", 9092)
    second = site.send()
    site.world.settle()
    result_of(second)
    assert len(site.world.peer.ended) == 1
    assert len(other.transports) == 1
    del site.addresses[7]
    failure_of(site.send(), PeerDisconnected)
    site.world.settle()
    assert len(other.ended) == 1


def test_disconnect_and_stop_fail_what_waits(site: Site) -> None:
    opening = site.send()
    site.peers.disconnect(7, "not needed")
    assert "not needed" in str(failure_of(opening, PeerDisconnected))
    pending = site.send()
    site.world.settle()
    assert len(site.world.peer.requests) == 1
    site.peers.stop()
    failure_of(pending, PeerDisconnected)
    failure_of(site.send(), PeerDisconnected)
    site.world.settle()
    assert all(site.world.peer.ended)


def test_errors_name_the_address_once_and_nothing_of_the_inside(world: World) -> None:
    """What a person reads: neither a repr nor the same address twice."""
    client = world.connected()
    waiting = client.send(MetadataRequest(topics=[]), timeout_s=1.0)
    world.clock.advance(2.0)
    refused = world.client(host="nobody").connect()
    world.settle()
    texts = [
        str(failure_of(waiting, PeerTimeout)),
        str(failure_of(client.send(MetadataRequest(topics=[])), PeerDisconnected)),
        str(failure_of(refused, PeerDisconnected)),
    ]
    for text in texts:
        assert "BrokerClient" not in text
        assert text.count("them") + text.count("nobody") == 1, text
    assert texts[0] == "them:9092: no answer in time (Metadata v12)"
