"""Faults in a broker's ports: links that are cut or slow, a full disk, wrong and late answers."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from kafkalike.broker.handlers.request import RequestContext, Route, Session, route
from kafkalike.errors import NotLeaderOrFollower, RequestTimedOut
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.protocol.headers import RequestHeader
from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import ConnectionTimeout, StorageError
from kafkalike.runtime.tasks import as_deferred
from kafkalike.tools.local.faults import AnswerFaults, FaultDisk, FaultNetwork, topics_of
from kafkalike.tools.local.lane import Lane
from kafkalike.tools.local.links import OPEN, SUPERVISOR_CLIENT_ID, Direction
from tests.fakes import FakeClock

CUT = Direction(cut=True)


# -- one direction -------------------------------------------------------------------------------


def test_an_open_lane_passes_at_once() -> None:
    out: list[int] = []
    lane = Lane(FakeClock(), out.append)
    lane.put(1)
    assert out == [1]
    assert lane.is_clear


def test_a_cut_lane_holds_back_and_delivers_in_order_when_healed() -> None:
    out: list[int] = []
    lane = Lane(FakeClock(), out.append)
    lane.set(CUT)
    for item in (1, 2, 3):
        lane.put(item)
    assert out == []
    lane.set(OPEN)
    assert out == [1, 2, 3]


def test_a_slow_lane_delivers_late_and_in_order() -> None:
    clock = FakeClock()
    out: list[tuple[float, int]] = []
    lane = Lane(clock, lambda item: out.append((round(clock.monotonic(), 3), item)))
    lane.set(Direction(delay_s=0.5))
    lane.put(1)
    clock.advance(0.2)
    lane.put(2)
    assert not lane.is_clear
    clock.advance(1.0)
    assert out == [(0.5, 1), (0.7, 2)]
    lane.put(3)
    lane.set(OPEN)
    assert out[-1] == (1.2, 3), "what is no longer slow does not wait"


def test_what_a_lane_holds_can_be_taken_out() -> None:
    out: list[int] = []
    lane = Lane(FakeClock(), out.append)
    lane.set(CUT)
    lane.put(1)
    assert lane.drain() == [1]
    lane.set(OPEN)
    assert out == []


# -- connections between brokers -----------------------------------------------------------------


class Wire:
    """The transport of a connection, and the network that makes it."""

    peer_host, peer_port, local_host, local_port = "127.0.0.1", 9093, "127.0.0.1", 50000

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.protocol: Any = None
        self.paused = False
        self.ended = ""
        self.connects = 0

    def connect(self, host: str, port: int, protocol: Any, **_: Any) -> "Deferred[None]":
        self.connects += 1
        self.protocol = protocol
        protocol.connected(self)
        return succeed(None)

    def write(self, parts: Any) -> None:
        self.sent.extend(bytes(part) for part in parts)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.ended = "close"

    def abort(self) -> None:
        self.ended = "abort"


class Peer:
    """The broker's own protocol."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.ends: list[str] = []
        self.transport: Any = None

    def connected(self, transport: Any) -> None:
        self.transport = transport

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def disconnected(self, reason: str) -> None:
        self.ends.append(reason)


class Link:
    """Broker 1 with a connection to broker 2."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.wire = Wire()
        self.network = FaultNetwork(self.wire, self.clock, 1)  # type: ignore[arg-type]
        self.network.set_peers({("127.0.0.1", 9092): 1, ("127.0.0.1", 9093): 2})
        self.peer = Peer()
        self.outcome: list[Any] = []

    def connect(self, port: int = 9093) -> "Link":
        done = self.network.connect("127.0.0.1", port, self.peer, timeout_s=5, max_frame_bytes=1000)
        done.addBoth(self.outcome.append)
        return self

    def arrive(self, frame: bytes) -> None:
        buffer = bytearray(frame)
        self.wire.protocol.frame_received(memoryview(buffer))
        buffer[:] = b"?" * len(buffer)  # the network uses it again

    def set(self, send: Direction = OPEN, receive: Direction = OPEN) -> None:
        self.network.set_link(2, send=send, receive=receive)


def test_each_direction_of_a_connection_is_cut_alone() -> None:
    link = Link().connect()
    link.set(send=CUT)
    link.peer.transport.write([b"a"])
    link.arrive(b"1")
    assert (link.wire.sent, link.peer.frames) == ([], [b"1"])
    link.set(receive=CUT)
    link.peer.transport.write([b"b"])
    link.arrive(b"2")
    assert (link.wire.sent, link.peer.frames) == ([b"a", b"b"], [b"1"])
    link.set()
    link.arrive(b"3")
    assert link.peer.frames == [b"1", b"2", b"3"]


def test_a_slow_link_keeps_the_order_of_frames() -> None:
    link = Link().connect()
    link.set(receive=Direction(delay_s=0.1))
    link.arrive(b"1")
    link.set(receive=OPEN)
    link.arrive(b"2")
    link.clock.advance(1)
    assert link.peer.frames == [b"1", b"2"]


def test_a_connection_to_oneself_is_left_alone() -> None:
    link = Link().connect(9092)
    assert link.wire.protocol is link.peer


def test_nobody_learns_of_an_end_behind_a_cut_link() -> None:
    link = Link().connect()
    link.set(receive=CUT)
    link.wire.protocol.disconnected("the peer died")
    assert link.peer.ends == []
    link.set()
    assert link.peer.ends == ["the peer died"]


def test_one_who_gives_up_behind_a_cut_link_is_done_at_once() -> None:
    link = Link().connect()
    link.set(send=CUT, receive=CUT)
    link.peer.transport.write([b"a"])
    link.peer.transport.abort()
    assert (link.wire.ended, link.wire.sent) == ("abort", [b"a"]), "files behind it are let go"
    link.wire.protocol.disconnected("aborted")
    assert link.peer.ends == ["aborted"]
    link.set()
    assert link.peer.ends == ["aborted"]


def test_an_abort_after_the_unseen_end_still_ends_the_protocol() -> None:
    link = Link().connect()
    link.set(receive=CUT)
    link.wire.protocol.disconnected("the peer died")
    link.peer.transport.abort()
    link.clock.run_soon()
    assert link.peer.ends == ["the peer died"]


def test_a_connection_waits_for_the_link_to_heal() -> None:
    link = Link()
    link.set(send=CUT)
    link.connect()
    assert link.wire.connects == 0
    link.clock.advance(4)
    link.set()
    assert (link.wire.connects, link.outcome) == (1, [None])


def test_a_connection_over_a_cut_link_times_out() -> None:
    link = Link()
    link.set(receive=CUT)
    link.connect()
    link.clock.advance(5)
    assert link.outcome[0].check(ConnectionTimeout)
    link.set()
    assert link.wire.connects == 0


# -- disk ------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_what_needs_space(tmp_path: pathlib.Path) -> None:
    disk = FaultDisk(RealDisk())
    path = str(tmp_path / "file")
    file = disk.open(path, create=True)
    file.append(b"abc")
    disk.full = True
    writes: list[Callable[[], object]] = [
        lambda: file.append(b"d"),
        lambda: file.pwrite(b"d", 0),
        lambda: file.truncate(10),
        lambda: disk.open(str(tmp_path / "new"), create=True),
        lambda: disk.write_atomic(str(tmp_path / "atomic"), b""),
        lambda: disk.make_dirs(str(tmp_path / "dir")),
    ]
    for write in writes:
        with pytest.raises(StorageError, match="No space left on device"):
            write()
    assert file.pread(10, 0) == b"abc"
    file.truncate(2)
    assert disk.space(path)[1] == 0
    disk.full = False
    file.append(b"d")
    assert file.pread(10, 0) == b"abd"
    file.close()


# -- answers ---------------------------------------------------------------------------------------


class Served:
    """A route around a handler that counts its calls."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.faults = AnswerFaults(self.clock)
        self.calls = 0
        self.answer: Any = ProduceResponse()
        self.route: Route = self.faults.wrap(route(ProduceRequest, self.handle))

    def handle(self, request: Any, ctx: RequestContext) -> Any:
        self.calls += 1
        return self.answer

    def ask(self, client_id: str = "app", topic: str = "t") -> tuple[Any, RequestContext]:
        session = Session(
            listener="PLAINTEXT",
            security_protocol="PLAINTEXT",
            connection_id="1",
            client_host="127.0.0.1",
            client_port=1,
        )
        ctx = RequestContext(RequestHeader(0, 9, 1, client_id), session, 0.0)
        request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name=topic)])
        answer = self.route.handler(request, ctx)
        if hasattr(answer, "__await__"):
            found: list[Any] = []
            as_deferred(answer).addBoth(found.append)
            answer = found
        return answer, ctx

    def push(self, *codes: int | None, applied: bool = False, topic: str | None = None) -> None:
        self.faults.push(0, list(codes), applied=applied, topic=topic)


def test_without_faults_the_handler_answers_itself() -> None:
    served = Served()
    assert served.ask()[0] is served.answer


def test_pushed_errors_come_in_order_once_each() -> None:
    served = Served()
    served.push(6, 7)
    assert served.faults.pending() == {0: 2}
    assert served.ask()[0][0].check(NotLeaderOrFollower)
    assert served.ask()[0][0].check(RequestTimedOut)
    assert served.calls == 0
    assert served.ask()[0] is served.answer
    assert served.faults.pending() == {}


def test_an_applied_request_gets_a_wrong_answer() -> None:
    served = Served()
    served.push(7, applied=True)
    assert served.ask()[0][0].check(RequestTimedOut)
    assert served.calls == 1


def test_an_applied_request_is_answered_when_it_is_done() -> None:
    served = Served()
    served.answer = Deferred()
    served.push(7, applied=True)
    found, _ = served.ask()
    assert found == []
    served.answer.callback(ProduceResponse())
    assert found[0].check(RequestTimedOut)


def test_a_connection_is_closed_instead_of_an_answer() -> None:
    served = Served()
    served.push(None)
    found, ctx = served.ask()
    assert found == [None]
    assert ctx.session.closing is not None


def test_errors_for_one_topic_wait_for_it() -> None:
    served = Served()
    served.push(6, topic="mine")
    assert served.ask(topic="other")[0] is served.answer
    assert served.ask(topic="mine")[0][0].check(NotLeaderOrFollower)


@pytest.mark.parametrize("client_id", ["broker-1-fetcher-0", SUPERVISOR_CLIENT_ID])
def test_replication_and_the_supervisor_are_spared(client_id: str) -> None:
    served = Served()
    served.push(6)
    served.faults.delay(0, 10)
    assert served.ask(client_id)[0] is served.answer
    assert served.faults.pending() == {0: 1}


def test_latency_holds_the_answer_back_and_not_the_work() -> None:
    served = Served()
    served.faults.delay(0, 0.5)
    found, _ = served.ask()
    assert (served.calls, found) == (1, [])
    served.clock.advance(0.4)
    assert found == []
    served.clock.advance(0.2)
    assert found == [served.answer]
    served.faults.delay(0, 0)
    assert served.ask()[0] is served.answer


def test_clear_forgets_everything() -> None:
    served = Served()
    served.push(6)
    served.faults.delay(0, 1)
    served.faults.clear()
    assert served.ask()[0] is served.answer


def test_topics_are_found_in_requests_of_any_form() -> None:
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="a")])
    assert topics_of(request) == {"a"}
    assert topics_of(object()) == set()
