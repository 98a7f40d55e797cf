"""The loop's half of the ZooKeeper client, with a link whose events the test makes."""

import logging
import struct
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.zk import wire
from kafkalike.zk.client import (
    AuthFailed,
    ConnectionLost,
    EventType,
    NoAuth,
    NodeExists,
    NoNode,
    OperationTimeout,
    SessionExpired,
    SessionState,
    Stat,
    WatchEvent,
)
from kafkalike.zk.link import Answer, Call, Connected, Ended, Event, Item, Lost, Over, ZkOptions
from kafkalike.zk.session_client import SessionClient
from tests.fakes import FakeClock

STAT = Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


class ScriptedLink:
    """Keeps what it is given; the test answers."""

    def __init__(self, hosts: str, take: Any) -> None:
        self.hosts = hosts
        self.take = take
        self.calls: list[Call] = []
        self.story: list[str] = []
        self.beats = 0
        self.number = 0

    def open(self) -> None:
        self.story.append("open")

    def beat(self) -> None:
        self.beats += 1

    def submit(self, call: Call) -> None:
        self.calls.append(call)

    def drop_connection(self) -> None:
        self.story.append("drop")

    def begin_close(self) -> None:
        self.story.append("close")

    def say(self, *items: Item) -> None:
        self.take(self, list(items))

    def connect(self, session_id: int = 7, zxid: int = 0) -> None:
        self.number += 1
        self.say(Connected(self.number, session_id, b"p" * 16, 6000, zxid))

    def answer(self, value: Any, zxid: int = 5) -> Call:
        call = self.calls.pop(0)
        self.say(Answer(call, value, zxid))
        return call


class Setup:
    def __init__(self, connect: str = "h:1", **options: Any) -> None:
        self.clock = FakeClock()
        self.links: list[ScriptedLink] = []
        self.states: list[SessionState] = []

        def new_link(hosts: str, take: Any) -> ScriptedLink:
            self.links.append(ScriptedLink(hosts, take))
            return self.links[-1]

        self.zk = SessionClient(
            ZkOptions(connect, session_timeout_ms=6000, **options),
            clock=self.clock,
            new_link=new_link,
            logger=logging.getLogger("test.zk"),
        )
        self.zk.add_listener(self.states.append)

    @property
    def link(self) -> ScriptedLink:
        return self.links[-1]

    def connected(self) -> "Setup":
        result(self.zk.connect(5.0))
        self.link.connect()
        return self


def result(deferred: Deferred[Any]) -> list[Any]:
    """Where the outcome will appear."""
    outcome: list[Any] = []

    def keep(value: Any) -> None:
        outcome.append(value.value if hasattr(value, "raiseException") else value)

    deferred.addBoth(keep)
    return outcome


def test_the_bound_on_outstanding_requests() -> None:
    setup = Setup(max_in_flight=3).connected()
    outcomes = [result(setup.zk.get(f"/{n}")) for n in range(5)]
    assert [call.request.path for call in setup.link.calls] == ["/0", "/1", "/2"]
    setup.link.answer((b"", STAT))
    assert [call.request.path for call in setup.link.calls] == ["/1", "/2", "/3"]
    setup.link.say(Lost())
    assert [type(outcome[0]) for outcome in outcomes[1:]] == [ConnectionLost] * 4
    setup.link.say(Answer(setup.link.calls[0], (b"late", STAT), 9))
    assert outcomes[0] == [(b"", STAT)]
    assert setup.states == [SessionState.CONNECTED, SessionState.SUSPENDED]


def test_requests_are_tied_to_their_connection() -> None:
    setup = Setup().connected()
    result(setup.zk.get("/a"))
    assert setup.link.calls[0].connection == 1
    setup.link.say(Lost())
    setup.link.connect()
    setup.link.calls.clear()
    result(setup.zk.get("/a"))
    assert setup.link.calls[0].connection == 2


def test_beats_as_long_as_there_is_a_session() -> None:
    setup = Setup().connected()
    before = setup.link.beats
    setup.clock.advance(3.0)
    assert setup.link.beats - before == 10
    setup.link.say(Over("expired"))
    before = setup.link.beats
    setup.clock.advance(3.0)
    assert setup.link.beats == before
    assert setup.clock.pending() == 0


def test_an_overdue_answer_drops_the_connection() -> None:
    setup = Setup(request_timeout_s=2.0).connected()
    result(setup.zk.get("/a"))
    setup.clock.advance(1.9)
    assert "drop" not in setup.link.story
    setup.clock.advance(0.7)
    assert "drop" in setup.link.story


def test_a_connect_in_vain() -> None:
    setup = Setup()
    outcome = result(setup.zk.connect(2.0))
    setup.clock.advance(2.1)
    assert isinstance(outcome[0], OperationTimeout)
    assert setup.link.story == ["open", "close"]
    assert setup.clock.pending() == 0
    setup.link.connect()
    assert setup.states == []
    assert isinstance(result(setup.zk.get("/"))[0], SessionExpired)


def test_a_cancelled_connect() -> None:
    setup = Setup()
    connecting = setup.zk.connect(2.0)
    outcome = result(connecting)
    connecting.cancel()
    assert len(outcome) == 1
    assert setup.link.story == ["open", "close"]
    assert setup.clock.pending() == 0


def test_refused_credentials() -> None:
    setup = Setup()
    outcome = result(setup.zk.connect(2.0))
    setup.link.say(Over("authentication failed", auth_failed=True))
    assert isinstance(outcome[0], AuthFailed)


def test_a_session_that_cannot_be_renewed_is_tried_every_second() -> None:
    setup = Setup().connected()
    setup.link.say(Over("expired"))
    renewed = result(setup.zk.reconnect())
    assert len(setup.links) == 2
    setup.link.say(Over("authentication failed", auth_failed=True))
    assert setup.states == [SessionState.CONNECTED, SessionState.EXPIRED]
    setup.clock.advance(0.9)
    assert len(setup.links) == 2
    setup.clock.advance(0.2)
    assert len(setup.links) == 3
    assert renewed == []
    setup.link.connect(session_id=8)
    assert renewed == [None]
    assert setup.zk.session_id == 8
    assert setup.states[-1] is SessionState.CONNECTED


def test_reconnecting_when_there_is_nothing_to_renew() -> None:
    setup = Setup()
    assert isinstance(result(setup.zk.reconnect())[0], SessionExpired)
    setup.connected()
    assert result(setup.zk.reconnect()) == [None]
    setup.link.say(Lost())
    assert isinstance(result(setup.zk.reconnect())[0], SessionExpired)
    assert len(setup.links) == 1


def test_what_an_old_session_says_later_is_ignored() -> None:
    setup = Setup().connected()
    old = setup.link
    events: list[WatchEvent] = []
    result(setup.zk.get("/a", events.append))
    old.answer((b"", STAT))
    old.say(Over("expired"))
    result(setup.zk.reconnect())
    setup.link.connect(session_id=8)
    result(setup.zk.get("/a", events.append))
    setup.link.answer((b"", STAT))
    old.say(Event(3, "/a"), Lost(), Over("again"), Ended())
    assert events == []
    assert setup.states[-1] is SessionState.CONNECTED
    setup.link.say(Event(3, "/a"))
    assert events == [WatchEvent(EventType.DATA_CHANGED, "/a")]


def test_watches_are_set_again_before_anybody_else_is_served() -> None:
    setup = Setup("h:1/root", max_in_flight=1)
    result(setup.zk.connect(5.0))
    setup.link.connect()
    setup.link.answer(STAT)
    events: list[WatchEvent] = []
    result(setup.zk.get("/data", events.append))
    setup.link.answer((b"", STAT))
    result(setup.zk.exists("/absent", events.append))
    setup.link.answer(NoNode("/absent"))
    result(setup.zk.get_children("/", events.append))
    setup.link.answer(([], STAT))
    setup.link.say(Lost())

    def eager(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            result(setup.zk.get("/eager"))

    setup.zk.add_listener(eager)
    setup.link.connect(zxid=99)
    rearm = setup.link.calls[0].request
    assert rearm.body == wire.set_watches("/root", 99, ["/data"], ["/absent"], ["/"]).body
    assert struct.unpack_from(">q", rearm.body)[0] == 99
    setup.link.answer(None)
    assert [call.request.path for call in setup.link.calls] == ["/eager"]


def test_watches_that_cannot_be_set_again_are_all_called() -> None:
    setup = Setup().connected()
    events: list[WatchEvent] = []
    result(setup.zk.get("/a", events.append))
    setup.link.answer((b"", STAT))
    result(setup.zk.get_children("/b", events.append))
    setup.link.answer(([], STAT))
    setup.link.say(Lost())
    setup.link.connect()
    setup.link.answer(NoAuth())
    assert sorted(event.path for event in events) == ["/a", "/b"]


def test_very_many_watches_are_set_again_in_parts() -> None:
    setup = Setup().connected()
    for number in range(3000):
        result(setup.zk.get(f"/{'x' * 200}{number}", lambda _: None))
        setup.link.answer((b"", STAT))
    setup.link.say(Lost())
    setup.link.connect()
    sizes = [len(call.request.body) for call in setup.link.calls]
    assert len(sizes) == 3
    assert max(sizes) < 300_000


def test_a_chroot_that_others_make_at_the_same_time() -> None:
    setup = Setup("h:1/a/b")
    outcome = result(setup.zk.connect(5.0))
    setup.link.connect()
    setup.link.answer(NoNode("/a/b"))
    setup.link.answer(NodeExists("/a"))
    assert outcome == []
    setup.link.say(Lost())
    setup.link.calls.clear()
    assert setup.states == []
    setup.link.connect()
    setup.link.answer(NoNode("/a/b"))
    setup.link.answer(NodeExists("/a"))
    setup.link.answer("/a/b")
    assert outcome == [None]
    assert setup.states == [SessionState.CONNECTED]


def test_a_chroot_that_may_not_be_made() -> None:
    setup = Setup("h:1/a")
    outcome = result(setup.zk.connect(5.0))
    setup.link.connect()
    setup.link.answer(NoNode("/a"))
    setup.link.answer(NoAuth("/a"))
    assert isinstance(outcome[0], NoAuth)
    assert setup.link.story[-1] == "close"


def test_close_waits_for_the_goodbye_but_not_for_ever() -> None:
    for polite in (True, False):
        setup = Setup().connected()
        waiting = result(setup.zk.get("/a"))
        closed = result(setup.zk.close())
        assert isinstance(result(setup.zk.get("/b"))[0], SessionExpired)
        assert setup.link.story[-1] == "close"
        if polite:
            setup.link.answer((b"", STAT))
            assert waiting == [(b"", STAT)]
            setup.link.say(Over("its thread ended"), Ended())
        else:
            setup.clock.advance(4.9)
            assert closed == []
            setup.clock.advance(0.2)
            assert isinstance(waiting[0], SessionExpired)
        assert closed == [None]
        assert setup.states[-1] is SessionState.CLOSED
        assert setup.clock.pending() == 0


def test_a_listener_or_watch_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()

    def bad(_: object) -> None:
        raise ValueError("boom")

    setup.zk.remove_listener(setup.states.append)
    setup.zk.add_listener(bad)
    setup.zk.add_listener(setup.states.append)
    events: list[WatchEvent] = []
    setup.connected()
    for watch in (bad, events.append):
        result(setup.zk.get("/a", watch))
        setup.link.answer((b"", STAT))
    setup.link.say(Event(3, "/a"), Event(99, "/a"), Lost())
    assert len(events) == 1
    assert setup.states == [SessionState.CONNECTED, SessionState.SUSPENDED]
    assert caplog.text.count("boom") >= 2


def test_large_reads_are_made_in_chunks_that_fit() -> None:
    setup = Setup().connected()
    from kafkalike.zk.client import GetData

    ops = [GetData(f"/{n}") for n in range(150)]
    outcome = result(setup.zk.multi_read(ops))
    sizes: list[int] = []
    while not outcome:
        count = setup.link.calls[0].request.body.count(b"/")
        sizes.append(count)
        setup.link.answer(([(b"", STAT)] * count, count * 100_000))
    assert sizes[0] == 100
    assert set(sizes[1:]) == {2}
    assert len(outcome[0]) == 150
