"""The in-process ZooKeeper: order of replies and watches, lost connections, expiry, freezing."""

from typing import Any

import pytest

from kafkalike.zk.client import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    EventType,
    GetChildren,
    GetData,
    NodeExists,
    NoNode,
    OperationTimeout,
    RuntimeInconsistency,
    SessionExpired,
    SessionState,
    SetData,
    WatchEvent,
)
from kafkalike.zk.server.local import LocalCoordination, LocalZkClient
from tests.fakes import FakeClock, failure_of, result_of


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.zk = LocalCoordination(self.clock, delay_s=0.001)

    def client(self, **options: Any) -> LocalZkClient:
        client = self.zk.client(**options)
        connected = client.connect(5.0)
        self.clock.advance(0.01)
        result_of(connected)
        return client

    def do(self, deferred: Any) -> Any:
        self.clock.advance(0.01)
        return result_of(deferred)


def state_of(client: LocalZkClient) -> SessionState:
    """Read anew (a type checker believes that a property stays)."""
    return client.state


@pytest.fixture
def world() -> World:
    return World()


def test_a_reply_takes_one_round_trip(world: World) -> None:
    client = world.client()
    created = client.create("/a", b"x")
    world.clock.advance(0.0015)
    assert world.zk.get("/a") == b"x"
    assert not created.called
    world.clock.advance(0.001)
    assert result_of(created) == "/a"


def test_every_method_of_the_port(world: World) -> None:
    client = world.client()
    do = world.do
    assert do(client.create("/a", None)) == "/a"
    assert do(client.create("/a/n-", b"1", sequential=True)) == "/a/n-0000000000"
    assert do(client.create("/a/e", b"2", ephemeral=True)) == "/a/e"
    assert do(client.exists("/nothing")) is None
    assert do(client.exists("/a/e")).ephemeral_owner == client.session_id
    data, stat = do(client.get("/a"))
    assert (data, stat.num_children, stat.version) == (None, 2, 0)
    assert do(client.set("/a", b"now", 0)).version == 1
    assert do(client.get_children("/a"))[0] == ["e", "n-0000000000"]
    assert do(client.delete("/a/e")) is None
    reads = do(client.multi_read([GetData("/a"), GetChildren("/a"), GetData("/b")]))
    assert reads[0][0] == b"now"
    assert reads[1] == ["n-0000000000"]
    assert isinstance(reads[2], NoNode)
    refused: list[tuple[Any, type[Exception]]] = [
        (client.set("/a", b"", 7), BadVersion),
        (client.create("/a", b""), NodeExists),
        (client.get("/b"), NoNode),
    ]
    for wrong, error in refused:
        world.clock.advance(0.01)
        failure_of(wrong, error)


def test_multi_reports_each_operation(world: World) -> None:
    client = world.client()
    fine = world.do(client.multi([Create("/a", b""), SetData("/a", b"x", 0), Check("/a", 1)]))
    assert fine[0] == "/a"
    assert fine[1].version == 1
    assert fine[2] is None
    bad = world.do(client.multi([Create("/b", b""), Check("/a", 9), Create("/c", b"")]))
    assert bad[0] is None
    assert isinstance(bad[1], BadVersion)
    assert isinstance(bad[2], RuntimeInconsistency)
    assert world.zk.stat("/b") is None


def test_a_watch_event_comes_before_the_reply_that_shows_the_change(world: World) -> None:
    client = world.client()
    seen: list[object] = []
    world.do(client.exists("/a", seen.append))
    client.create("/a", b"").addCallback(seen.append)
    world.clock.advance(0.01)
    assert seen == [WatchEvent(EventType.CREATED, "/a"), "/a"]
    world.do(client.set("/a", b"again"))
    assert len(seen) == 2  # used up


def test_the_same_watch_set_twice_fires_once(world: World) -> None:
    client = world.client()
    seen: list[WatchEvent] = []
    world.zk.create("/a")
    watch = seen.append
    world.do(client.get("/a", watch))
    world.do(client.get("/a", watch))
    world.zk.delete("/a")
    world.clock.advance(0.01)
    assert seen == [WatchEvent(EventType.DELETED, "/a")]


def test_a_chroot_is_created_and_hidden(world: World) -> None:
    client = world.client(chroot="/kafka/one")
    seen: list[WatchEvent] = []
    world.do(client.get_children("/", seen.append))
    assert world.do(client.create("/a", b"")) == "/a"
    assert world.zk.children("/kafka/one") == ["a"]
    assert seen == [WatchEvent(EventType.CHILDREN_CHANGED, "/")]
    missing = client.get("/b")
    world.clock.advance(0.01)
    assert failure_of(missing, NoNode).args == ("NoNode /b",)


@pytest.mark.parametrize("applied", [True, False])
def test_the_outcome_of_a_request_in_flight_is_unknown(world: World, applied: bool) -> None:
    client = world.client()
    created = client.create("/a", b"")
    client.drop_connection(applied=applied, reconnect_after_s=1.0)
    failure_of(created, ConnectionLost)
    assert state_of(client) is SessionState.SUSPENDED
    assert (world.zk.stat("/a") is not None) is applied
    refused = client.get("/a")
    world.clock.advance(0.5)
    failure_of(refused, ConnectionLost)
    world.clock.advance(1.0)
    assert state_of(client) is SessionState.CONNECTED


def test_an_answered_request_whose_reply_is_lost(world: World) -> None:
    client = world.client()
    created = client.create("/a", b"")
    world.clock.advance(0.0015)
    client.drop_connection()
    failure_of(created, ConnectionLost)
    assert world.zk.stat("/a") is not None


def test_watches_survive_a_lost_connection_and_catch_up(world: World) -> None:
    client = world.client()
    seen: list[WatchEvent] = []
    world.zk.create("/data/x", b"")
    world.do(client.get("/data/x", seen.append))
    world.do(client.exists("/absent", seen.append))
    world.do(client.get_children("/data", seen.append))
    client.drop_connection()
    world.zk.set("/data/x", b"missed")
    world.clock.advance(1.0)
    client.restore_connection()
    world.clock.advance(0.01)
    assert seen == [WatchEvent(EventType.DATA_CHANGED, "/data/x")]
    world.zk.create("/absent")
    world.zk.create("/data/y")
    world.clock.advance(0.01)
    assert seen[1:] == [
        WatchEvent(EventType.CREATED, "/absent"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/data"),
    ]


def test_expiry_takes_ephemerals_and_watches_and_a_new_session_follows(world: World) -> None:
    client, other = world.client(), world.client()
    states: list[SessionState] = []
    client.add_listener(states.append)
    own: list[WatchEvent] = []
    others: list[WatchEvent] = []
    world.do(client.create("/e", b"", ephemeral=True))
    world.do(client.get("/e", own.append))
    world.do(other.get("/e", others.append))
    first = client.session_id
    client.expire_session()
    world.clock.advance(0.01)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
    assert others == [WatchEvent(EventType.DELETED, "/e")]
    assert own == []
    refused = client.get("/")
    world.clock.advance(0.01)
    failure_of(refused, SessionExpired)
    world.do(client.reconnect())
    assert states[-1] is SessionState.CONNECTED
    assert client.session_id not in (0, first)


def test_a_session_expires_only_after_its_timeout(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    world.clock.advance(60.0)
    client.drop_connection()
    world.clock.advance(5.9)
    assert world.zk.stat("/e") is not None
    client.restore_connection()
    world.clock.advance(60.0)
    assert state_of(client) is SessionState.CONNECTED
    client.drop_connection()
    world.clock.advance(6.1)
    assert world.zk.stat("/e") is None
    assert state_of(client) is SessionState.SUSPENDED  # it cannot know yet
    client.restore_connection()
    world.clock.advance(0.01)
    assert state_of(client) is SessionState.EXPIRED


def test_a_frozen_client_wakes_up_to_what_waited_and_then_to_its_expiry(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    states: list[SessionState] = []
    client.add_listener(states.append)
    reading = client.get("/")
    world.clock.advance(0.0015)
    client.freeze()
    unsent = client.create("/late", b"")
    world.clock.advance(7.0)
    assert not reading.called
    assert states == []
    client.thaw()
    world.clock.advance(0.01)
    assert result_of(reading)[0] == b""
    failure_of(unsent, ConnectionLost)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
    assert world.zk.stat("/late") is None


def test_a_short_freeze_goes_unnoticed(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    client.freeze()
    created = client.create("/a", b"")
    world.clock.advance(3.0)
    client.thaw()
    world.clock.advance(0.01)
    assert result_of(created) == "/a"
    world.clock.advance(60.0)
    assert state_of(client) is SessionState.CONNECTED


def test_an_isolated_client_notices_before_the_service_expires_it(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    states: list[SessionState] = []
    client.add_listener(states.append)
    client.isolate()
    stuck = client.get("/")
    world.clock.advance(3.9)
    assert not stuck.called
    world.clock.advance(0.2)
    failure_of(stuck, ConnectionLost)
    assert states == [SessionState.SUSPENDED]
    client.heal()
    world.clock.advance(0.01)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    client.isolate()
    world.clock.advance(10.0)
    client.heal()
    world.clock.advance(0.01)
    assert states[2:] == [SessionState.SUSPENDED, SessionState.EXPIRED]


@pytest.mark.parametrize("applied", [True, False])
def test_fail_next_picks_one_request(world: World, applied: bool) -> None:
    client = world.client()
    client.fail_next(lambda kind, paths: kind == "multi" and "/b" in paths, applied=applied)
    world.do(client.multi([Create("/a", b"")]))
    lost = client.multi([Create("/b", b"")])
    behind = client.get("/a")
    world.clock.advance(0.01)
    failure_of(lost, ConnectionLost)
    failure_of(behind, ConnectionLost)
    assert (world.zk.stat("/b") is not None) is applied
    assert state_of(client) is SessionState.CONNECTED
    world.do(client.multi([Create("/b2", b"")]))


def test_connecting_to_an_absent_service_times_out(world: World) -> None:
    world.zk.stop_serving()
    client = world.zk.client()
    connecting = client.connect(5.0)
    world.clock.advance(4.9)
    assert not connecting.called
    world.clock.advance(0.2)
    failure_of(connecting, OperationTimeout)


def test_sessions_outlive_an_outage_of_the_service(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    world.zk.stop_serving()
    world.clock.advance(600.0)
    assert state_of(client) is SessionState.SUSPENDED
    world.zk.start_serving()
    world.clock.advance(0.01)
    assert state_of(client) is SessionState.CONNECTED
    assert world.zk.stat("/e") is not None


def test_the_dead_and_the_frozen_expire_after_an_outage(world: World) -> None:
    clients = [world.client(session_timeout_ms=6000) for _ in range(4)]
    for number, client in enumerate(clients):
        world.do(client.create(f"/e{number}", b"", ephemeral=True))
    clients[0].freeze()
    world.zk.stop_serving()
    clients[1].freeze()
    clients[2].abandon()
    world.do(clients[3].close())
    world.clock.advance(600.0)
    world.zk.start_serving()
    world.clock.advance(5.9)
    assert all(world.zk.stat(f"/e{number}") is not None for number in range(4))
    world.clock.advance(0.2)
    assert all(world.zk.stat(f"/e{number}") is None for number in range(4))


@pytest.mark.parametrize("applied", [True, False])
def test_a_session_whose_close_was_lost_ends_in_time(world: World, applied: bool) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    client.fail_next(lambda kind, paths: kind == "close", applied=applied)
    world.do(client.close())
    assert state_of(client) is SessionState.CLOSED
    client.abandon()
    world.clock.advance(5.9)
    assert (world.zk.stat("/e") is None) is applied
    world.clock.advance(0.2)
    assert world.zk.stat("/e") is None


@pytest.mark.parametrize("served_again_s", [0.0, 1.0])
def test_a_client_that_closes_at_the_end_of_an_outage_leaves_no_session(
    world: World, served_again_s: float
) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    world.zk.stop_serving()
    world.clock.advance(1)
    if not served_again_s:
        world.zk.start_serving()
    world.do(client.close())
    client.abandon()
    if served_again_s:
        world.clock.advance(served_again_s)
        world.zk.start_serving()
    world.clock.advance(5.5)
    assert world.zk.stat("/e") is not None
    world.clock.advance(1)
    assert world.zk.stat("/e") is None


def test_an_abandoned_client_is_not_heard_of_again(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    asked = client.get("/e")
    client.abandon()
    world.clock.advance(5.9)
    assert world.zk.stat("/e") is not None
    assert not asked.called
    assert not client.get("/e").called
    world.clock.advance(0.2)
    assert world.zk.stat("/e") is None
    assert world.clock.pending() == 0


def test_close_ends_the_session(world: World) -> None:
    client = world.client()
    world.do(client.create("/e", b"", ephemeral=True))
    last = client.create("/p", b"")
    world.do(client.close())
    assert result_of(last) == "/p"
    assert world.zk.stat("/e") is None
    assert state_of(client) is SessionState.CLOSED
    assert client.session_id == 0
    assert world.clock.pending() == 0


def test_closing_while_cut_off_leaves_the_session_to_expire(world: World) -> None:
    client = world.client(session_timeout_ms=6000)
    world.do(client.create("/e", b"", ephemeral=True))
    client.drop_connection()
    world.do(client.close())
    assert world.zk.stat("/e") is not None
    world.clock.advance(6.1)
    assert world.zk.stat("/e") is None


def test_an_idle_world_has_no_timers(world: World) -> None:
    world.client()
    assert world.clock.pending() == 0
