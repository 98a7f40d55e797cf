"""Connection limits, idle connections, throttling, orderly stop: what needs time to pass."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.broker.handlers.request import RequestContext, Session
from kafkalike.broker.server.connection import ConnectionLimits
from kafkalike.broker.server.listener import Server
from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceResponse
from kafkalike.metrics import Metrics
from kafkalike.types import Endpoint
from tests.unit.server.test_serving import Broker, Caller, produce
from tests.worlds import SimulatedWorld, framed

EXTERNAL = Endpoint("EXTERNAL", "PLAINTEXT", "", 0)
INTERNAL = Endpoint("INTERNAL", "PLAINTEXT", "", 0)


class Site:
    """A simulated server whose time the test moves; clients come from hosts by name."""

    def __init__(
        self,
        *endpoints: Endpoint,
        ip_creation_rate: Callable[[str], float | None] | None = None,
        **limits: Any,
    ) -> None:
        self.world = SimulatedWorld()
        self.broker = Broker(self.world)
        self.metrics = Metrics()
        self.server = Server(
            self.world.network,
            self.world.clock,
            self.broker.wheel,
            self.broker.dispatcher,
            endpoints or [EXTERNAL],
            metrics=self.metrics,
            logger=logging.getLogger("kafkalike.test"),
            inter_broker_listener="INTERNAL",
            limits=ConnectionLimits(**limits),
            ip_creation_rate=ip_creation_rate,
        )
        self.server.start()

    def client(self, host: str = "client", listener: str = "EXTERNAL") -> Caller:
        (port,) = [e.port for e in self.server.bound() if e.listener == listener]
        sock = self.world.internet.connect_raw(host, self.world.host, port)
        from tests.worlds import SimulatedClient

        self.world.fake_clock.advance(0.01)
        return Caller(SimulatedClient(self.world, sock))

    def advance(self, seconds: float) -> None:
        self.world.fake_clock.advance(seconds)

    def counts(self) -> tuple[int, int]:
        return self.server.connection_count("EXTERNAL"), self.server.connection_count("INTERNAL")


def closed(caller: Caller) -> bool:
    sock: Any = caller.client
    return bool(sock.sock.ended)


def works(caller: Caller) -> bool:
    return bool(caller.call(produce(), ProduceResponse, 9) == ProduceResponse())


def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    site = Site(max_idle_s=10.0)
    idle, active = site.client(), site.client()
    for _ in range(4):
        site.advance(3.0)
        assert works(active)
    assert closed(idle)
    assert not closed(active)
    site.advance(10.1)
    assert closed(active)
    assert site.counts() == (0, 0)
    assert site.metrics.value("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount") == 2


def test_a_client_that_left_while_its_request_waits_is_noticed_by_idleness() -> None:
    """As the original: input is held back meanwhile, so nothing else would tell."""
    site = Site(max_idle_s=10.0)
    caller = site.client()
    caller.send((MetadataRequest(), 9))
    site.advance(9.0)
    assert not closed(caller)
    site.advance(3.0)
    assert closed(caller)


def test_idle_connections_cost_one_timer_in_all() -> None:
    site = Site(max_idle_s=10.0)
    before = site.world.fake_clock.pending()
    clients = [site.client() for _ in range(50)]
    site.advance(0.1)
    assert site.world.fake_clock.pending() <= before + 1
    site.advance(10.2)
    assert all(map(closed, clients))


def test_the_limit_per_address_closes_the_newcomer() -> None:
    site = Site(max_connections_per_ip=2, max_connections_per_ip_overrides={"friend": 3, "foe": 0})
    kept = [site.client("one"), site.client("one"), site.client("two")]
    assert closed(site.client("one"))
    assert closed(site.client("foe"))
    friends = [site.client("friend") for _ in range(4)]
    assert [closed(friend) for friend in friends] == [False, False, False, True]
    assert all(map(works, kept))
    kept[0].client.close()
    site.advance(0.1)
    assert works(site.client("one"))


def test_over_the_limit_of_the_broker_newcomers_wait_for_a_place() -> None:
    site = Site(max_connections=2)
    first, second, third = site.client(), site.client(), site.client()
    third.send((produce(), 9))
    site.advance(5.0)
    assert site.counts() == (2, 0)
    assert not closed(third)
    assert works(first) and works(second)
    first.client.close()
    site.advance(0.1)
    assert third.answer(ProduceResponse, 9)[0] == 1
    assert site.counts() == (2, 0)


def test_over_the_limit_of_a_listener_only_that_listener_waits() -> None:
    site = Site(EXTERNAL, INTERNAL, listener_max_connections={"EXTERNAL": 1})
    site.client()
    site.client()
    site.client(listener="INTERNAL")
    site.client(listener="INTERNAL")
    assert site.counts() == (1, 2)


def test_the_inter_broker_listener_takes_the_least_recently_used_place() -> None:
    site = Site(EXTERNAL, INTERNAL, max_connections=2)
    old, recent = site.client(), site.client()
    site.advance(1.0)
    assert works(old)
    site.advance(1.0)
    assert works(recent)
    peer = site.client(listener="INTERNAL")
    site.advance(0.1)
    assert closed(old)
    assert works(recent) and works(peer)
    assert site.counts() == (1, 1)


def test_raised_limits_let_waiting_clients_in() -> None:
    site = Site(max_connections=1)
    site.client()
    waiting = site.client()
    assert site.counts() == (1, 0)
    site.server.set_limits(ConnectionLimits(max_connections=5))
    site.advance(0.1)
    assert works(waiting)


def test_a_creation_rate_delays_accepting() -> None:
    site = Site(max_connection_creation_rate=2)
    clients = [site.client() for _ in range(25)]  # 20 pass at once: ten seconds' worth
    assert site.counts()[0] in (21, 22)
    site.advance(1.0)
    assert 22 <= site.counts()[0] <= 24
    site.advance(5.0)
    assert site.counts() == (25, 0)
    assert not any(map(closed, clients))


def test_a_listener_rate_leaves_other_listeners_alone() -> None:
    site = Site(EXTERNAL, INTERNAL, listener_max_connection_creation_rate={"EXTERNAL": 1})
    for _ in range(15):
        site.client()
        site.client(listener="INTERNAL")
    external, internal = site.counts()
    assert external < 15
    assert internal == 15


def test_an_address_over_its_rate_is_held_then_closed() -> None:
    site = Site(ip_creation_rate=lambda host: 1.0 if host == "busy" else None)
    clients = [site.client("busy") for _ in range(12)]
    held = clients[-1]
    held.send((produce(), 9))
    site.advance(0.3)
    assert not closed(held)
    site.advance(2.0)
    assert closed(held)
    assert works(clients[0])
    assert works(site.client("other"))


def test_a_throttled_answer_is_sent_at_once_then_the_connection_is_mute() -> None:
    site = Site()
    caller = site.client()
    site.broker.handlers.throttle_ms = 500
    caller.send((produce(), 9), (produce("later"), 9))
    response = caller.answer(ProduceResponse, 9)[1]
    assert response.throttle_time_ms == 500
    site.advance(0.4)
    assert site.broker.handlers.seen == [("produce", "t")]
    site.advance(0.2)
    assert site.broker.handlers.seen == [("produce", "t"), ("produce", "later")]
    caller.answer(ProduceResponse, 9)


def test_acks_0_is_muted_too() -> None:
    site = Site()
    caller = site.client()
    site.broker.handlers.throttle_ms = 500
    caller.send((produce(acks=0), 9), (produce("later"), 9))
    site.advance(0.4)
    assert len(site.broker.handlers.seen) == 1
    site.advance(0.2)
    assert len(site.broker.handlers.seen) == 2


def test_request_quotas_decide_with_the_handler() -> None:
    site = Site()

    class Quotas:
        def request_done(self, ctx: RequestContext, handler_s: float) -> int:
            assert handler_s >= 0
            return 300

    site.broker.dispatcher._quotas = Quotas()
    caller = site.client()
    assert caller.call(produce(), ProduceResponse, 9).throttle_time_ms == 300
    site.broker.handlers.throttle_ms = 400
    site.advance(1.0)
    assert caller.call(produce(), ProduceResponse, 9).throttle_time_ms == 400


def test_stop_lets_requests_in_progress_be_answered() -> None:
    site = Site()
    busy, idle = site.client(), site.client()
    busy.send((MetadataRequest(), 9), (produce("never"), 9))
    site.advance(0.1)
    done = site.server.stop(5.0)
    site.advance(0.1)
    assert closed(idle)
    assert not done.called
    site.broker.handlers.waiting[0].callback(MetadataResponse())
    assert busy.answer(MetadataResponse, 9)[0] == 1
    assert busy.client.at_end()
    assert done.called
    assert ("produce", "never") not in site.broker.handlers.seen
    with pytest.raises(ConnectionError):
        site.client()


def test_stop_ends_in_time_although_a_request_never_ends() -> None:
    site = Site()
    busy = site.client()
    busy.send((MetadataRequest(), 9))
    site.advance(0.1)
    done = site.server.stop(5.0)
    site.advance(4.9)
    assert not done.called
    site.advance(0.2)
    assert done.called
    assert closed(busy)
    site.broker.handlers.waiting[0].callback(MetadataResponse())


def test_a_listener_that_cannot_be_bound_is_named_and_nothing_stays_open() -> None:
    site = Site()
    port = site.server.bound()[0].port
    world = site.world
    before = set(world.internet.ports)
    server = Server(
        world.network,
        world.clock,
        site.broker.wheel,
        site.broker.dispatcher,
        [INTERNAL, EXTERNAL._replace(port=port)],
        metrics=Metrics(),
        logger=logging.getLogger("kafkalike.test"),
    )
    with pytest.raises(OSError, match=f"EXTERNAL.*{port}"):
        server.start()
    assert set(world.internet.ports) == before


SASL = Endpoint("EXTERNAL", "SASL_PLAINTEXT", "", 0)


def sessions(site: Site) -> list[Session]:
    return [c.session for c in site.server._all_connections()]


def test_before_authentication_only_its_own_apis_are_served() -> None:
    site = Site(SASL)
    caller = site.client()
    request = ApiVersionsRequest()
    assert caller.call(request, ApiVersionsResponse, 0).error_code == 0
    caller.send((produce(), 9))
    assert caller.client.at_end()
    assert site.broker.handlers.seen == []


def test_after_authentication_everything_is_served_and_frames_may_be_big() -> None:
    site = Site(SASL, max_token_bytes=1000)
    early = site.client()
    early.client.send(framed(b"\0" * 1001))
    assert early.client.at_end()
    caller = site.client()
    caller.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    (session,) = sessions(site)
    assert not session.authenticated
    session.authenticated = True
    session.principal = "User:alice"
    caller.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert caller.call(produce("x" * 5000), ProduceResponse, 9) == ProduceResponse()
    assert site.broker.handlers.contexts[0].principal == "User:alice"


def test_an_expired_session_may_only_authenticate_again() -> None:
    site = Site()
    caller = site.client()
    assert works(caller)
    sessions(site)[0].expires_s = site.world.clock.monotonic() + 5.0
    assert works(caller)
    site.advance(6.0)
    assert caller.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
    caller.send((produce(), 9))
    assert caller.client.at_end()


def test_raw_tokens_go_to_the_exchange_and_back() -> None:
    site = Site(SASL)
    caller = site.client()
    caller.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    (session,) = sessions(site)
    tokens: list[bytes] = []

    async def exchange(token: bytes, session: Session) -> bytes | None:
        tokens.append(token)
        if token == b"bad":
            raise PermissionError("no")
        session.authenticated = token == b"last"
        if session.authenticated:
            session.raw_tokens = None
        return b"re:" + token

    session.raw_tokens = exchange
    caller.client.send(framed(b"first") + framed(b"last"))
    assert caller.client.read(19) == framed(b"re:first", b"re:last")[:19]
    caller.client.read(4)
    assert works(caller)
    session.raw_tokens = exchange
    caller.client.send(framed(b"bad"))
    assert caller.client.at_end()
