"""The ZooKeeper client when servers die, freeze, lose answers, and when its loop stands still."""

import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from twisted.internet.defer import gatherResults

from kafkalike.runtime.tasks import as_deferred
from kafkalike.zk import brokers, election, topics
from kafkalike.zk.client import (
    ANY_VERSION,
    AuthFailed,
    BadArguments,
    ConnectionLost,
    Create,
    GetData,
    MarshallingError,
    NoAuth,
    NodeExists,
    OperationTimeout,
    SessionExpired,
    SessionState,
    TooManyRequests,
    WatchEvent,
    ZkError,
    retrying,
)
from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions, ZkTls, split_connect
from kafkalike.zk.wire import OPEN_ACL, Acl
from kafkalike.zk.znodes import BrokerInfo, TopicInfo
from tests.integration.tcp_proxy import TcpProxy
from tests.integration.zookeeper import (
    ZooKeeperServer,
    chroot,
    four_letters,
    missing,
    own_zookeeper,
    zookeeper_address,
)
from tests.ports import free_port
from tests.real_loop import RealLoop

__all__ = ["chroot", "own_zookeeper", "zookeeper_address"]

pytestmark = pytest.mark.real_zookeeper

SESSION_MS: Final = 1500
SESSION_S: Final = SESSION_MS / 1000
SLACK_S: Final = 8.0
"""The machine may be busy; without the behaviour under test the wait would never end."""
ROOT: Final = Path(__file__).resolve().parents[2]


class Clients:
    """Clients on one loop, closed at the end of the test."""

    def __init__(self) -> None:
        self.loop = RealLoop()
        self._all: list[KazooZkClient] = []

    def make(self, connect: str, **options: Any) -> KazooZkClient:
        zk = KazooZkClient(
            ZkOptions(connect, **({"session_timeout_ms": SESSION_MS} | options)),
            clock=self.loop,
            call_from_thread=self.loop.call_from_thread,
            logger=logging.getLogger("test.zk"),
        )
        self._all.append(zk)
        return zk

    def connected(self, connect: str, **options: Any) -> KazooZkClient:
        zk = self.make(connect, **options)
        self.loop.run(zk.connect(20.0))
        return zk

    def close(self) -> None:
        for zk in self._all:
            self.loop.run(zk.close())


@pytest.fixture
def clients() -> Iterator[Clients]:
    made = Clients()
    yield made
    made.close()


@pytest.fixture
def proxy(zookeeper_address: str) -> Iterator[TcpProxy]:
    with TcpProxy(zookeeper_address) as made:
        yield made


@pytest.fixture
def watcher(zookeeper_address: str, chroot: str) -> Iterator[KazooClient]:
    """Somebody outside, with threads of its own: sees the tree while the loop stands still."""
    root = KazooClient(zookeeper_address)
    root.start()
    root.ensure_path(chroot)
    root.stop()
    root.close()
    outside = KazooClient(zookeeper_address + chroot)
    outside.start()
    yield outside
    outside.stop()
    outside.close()


def state_of(zk: KazooZkClient) -> SessionState:
    return zk.state


def expire(address: str, zk: KazooZkClient) -> None:
    twin = KazooClient(address, client_id=(zk.session_id, zk.session_password))
    twin.start()
    twin.stop()
    twin.close()


def gone_after(outside: KazooClient, path: str, limit_s: float) -> float:
    """Seconds until the node is gone; fails after `limit_s`."""
    begin = time.monotonic()
    while outside.exists(path) is not None:
        assert time.monotonic() - begin < limit_s, f"{path} is still there after {limit_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - begin


# --- the loop must keep the session alive, nobody else --------------------------------------------


def test_an_idle_session_lives_on(clients: Clients, zookeeper_address: str, chroot: str) -> None:
    zk = clients.connected(zookeeper_address + chroot)
    states: list[SessionState] = []
    zk.add_listener(states.append)
    clients.loop.run(zk.create("/e", b"", ephemeral=True))
    session = zk.session_id
    clients.loop.run_for(3 * SESSION_S)
    # A connection may be given up and made anew: kazoo does that when an answer takes a while.
    assert SessionState.EXPIRED not in states and zk.session_id == session
    assert clients.loop.run(zk.exists("/e")) is not None


def test_a_loop_blocked_for_less_than_the_session_keeps_it(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.connected(zookeeper_address + chroot, session_timeout_ms=5000)
    states: list[SessionState] = []
    zk.add_listener(states.append)
    clients.loop.run(zk.create("/e", b"", ephemeral=True))
    session = zk.session_id
    for _ in range(2):
        time.sleep(3.6)
        clients.loop.run_for(0.3)
    assert SessionState.EXPIRED not in states and zk.session_id == session
    assert clients.loop.run(zk.exists("/e")) is not None


def test_a_blocked_loop_loses_its_session(
    clients: Clients, zookeeper_address: str, chroot: str, watcher: KazooClient
) -> None:
    """kazoo's thread goes on running, and must not speak for a loop that does not."""
    zk = clients.connected(zookeeper_address + chroot)
    states: list[SessionState] = []
    zk.add_listener(states.append)
    clients.loop.run(zk.create("/e", b"", ephemeral=True))
    clients.loop.run(zk.create("/n", b"before"))
    session = zk.session_id
    lasted_s = gone_after(watcher, "/e", 4 / 3 * SESSION_S + SLACK_S)
    assert lasted_s > 0.6 * SESSION_S
    time.sleep(0.5)
    late = zk.set("/n", b"late")
    with pytest.raises(ZkError):
        clients.loop.run(late)
    clients.loop.run_until(lambda: state_of(zk) is SessionState.EXPIRED)
    clients.loop.run_for(0.5)
    assert zk.session_id == session
    assert states[-1] is SessionState.EXPIRED
    assert watcher.get("/n")[0] == b"before"
    clients.loop.run(zk.reconnect())
    assert zk.session_id != session


def test_a_blocked_loop_does_not_reconnect(
    clients: Clients, proxy: TcpProxy, chroot: str, watcher: KazooClient
) -> None:
    """A connection that breaks while the loop stands still must not be made again for it."""
    zk = clients.connected(proxy.address + chroot)
    clients.loop.run(zk.create("/e", b"", ephemeral=True))
    deadline = time.monotonic() + 4 / 3 * SESSION_S + SLACK_S
    time.sleep(0.5 * SESSION_S)
    while watcher.exists("/e") is not None:
        assert time.monotonic() < deadline, "reconnects keep the session of a blocked loop alive"
        proxy.cut()
        time.sleep(0.1)


def test_requests_made_before_a_block_are_not_applied_after_a_new_connection(
    clients: Clients, proxy: TcpProxy, chroot: str, watcher: KazooClient
) -> None:
    """kazoo has reconnected, the loop does not know it yet and sends for the old connection."""
    zk = clients.connected(proxy.address + chroot)
    clients.loop.run(zk.create("/n", b"old"))
    proxy.cut()
    deadline = time.monotonic() + 30
    link: Any = zk._link
    while link.number < 2:
        assert time.monotonic() < deadline
        link.beat()  # or it takes the loop for blocked before it has connected
        time.sleep(0.01)
    assert state_of(zk) is SessionState.CONNECTED
    work = zk.set("/n", b"stale")
    with pytest.raises(ConnectionLost):
        clients.loop.run(work)
    clients.loop.run_until(lambda: state_of(zk) is SessionState.CONNECTED)
    assert clients.loop.run(zk.get("/n"))[0] == b"old"
    assert watcher.get("/n")[0] == b"old"


CHILD: Final = """
import json, logging, sys, time
from kafkalike.runtime.reactor import install_reactor, RealClock
reactor = install_reactor()
from twisted.internet.defer import Deferred
from kafkalike.zk.client import ZkError, SessionState
from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions

connect, session_ms, block_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
zk = KazooZkClient(
    ZkOptions(connect, session_timeout_ms=session_ms),
    clock=RealClock(reactor),
    call_from_thread=reactor.callFromThread,
    logger=logging.getLogger("child"),
)

def say(**what):
    print(json.dumps(what), flush=True)

def heard(state):
    say(state=state.value, session=zk.session_id)

async def main():
    zk.add_listener(heard)
    await zk.connect(20.0)
    await zk.create("/e", b"", ephemeral=True)
    await zk.create("/n", b"0")
    say(ready=True)
    if block_s:
        reactor.callLater(0.2, time.sleep, block_s)
    number = 0
    while zk.state is not SessionState.EXPIRED:
        number += 1
        try:
            await zk.set("/n", b"%d" % number)
        except ZkError as error:
            say(error=type(error).__name__)
        pause = Deferred()
        reactor.callLater(0.01, pause.callback, None)
        await pause
    say(expired=True, session=zk.session_id)

def failed(failure):
    say(failed=repr(failure.value))
    reactor.stop()

reactor.callWhenRunning(lambda: Deferred.fromCoroutine(main()).addErrback(failed))
reactor.run()
"""


@contextlib.contextmanager
def child(connect: str, block_s: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, connect, str(SESSION_MS), str(block_s)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.send_signal(signal.SIGCONT)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def heard_from(process: subprocess.Popen[str], key: str) -> dict[str, Any]:
    """The next line that says something about `key`."""
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        assert "failed" not in said, said
        if key in said:
            return said
    raise AssertionError(f"the child ended without saying {key}")


def test_a_process_with_a_blocked_reactor_loses_its_session(
    zookeeper_address: str, chroot: str, watcher: KazooClient
) -> None:
    with child(zookeeper_address + chroot, block_s=SESSION_S * 4 / 3 + SLACK_S) as process:
        heard_from(process, "ready")
        session = heard_session(watcher)
        gone_after(watcher, "/e", 4 / 3 * SESSION_S + SLACK_S)
        watcher.set("/n", b"marker")
        assert heard_from(process, "expired")["session"] == session
        time.sleep(0.3)
        assert watcher.get("/n")[0] == b"marker"


def test_a_stopped_process_changes_nothing_when_it_goes_on(
    zookeeper_address: str, chroot: str, watcher: KazooClient
) -> None:
    with child(zookeeper_address + chroot, block_s=0) as process:
        heard_from(process, "ready")
        session = heard_session(watcher)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGSTOP)
        gone_after(watcher, "/e", SESSION_S + SLACK_S)
        watcher.set("/n", b"marker")
        os.kill(process.pid, signal.SIGCONT)
        assert heard_from(process, "expired")["session"] == session
        time.sleep(0.3)
        assert watcher.get("/n")[0] == b"marker"


def heard_session(outside: KazooClient) -> int:
    stat = outside.exists("/e")
    assert stat is not None
    owner: int = stat.ephemeralOwner
    return owner


# --- servers that die, freeze, and lose answers ---------------------------------------------------


def test_a_killed_server_that_comes_back(clients: Clients, own_zookeeper: ZooKeeperServer) -> None:
    zk = clients.connected(own_zookeeper.address, session_timeout_ms=10_000)
    states: list[SessionState] = []
    events: list[WatchEvent] = []
    zk.add_listener(states.append)
    session = zk.session_id
    clients.loop.run(zk.create("/e", b"kept", ephemeral=True))
    clients.loop.run(zk.create("/n", b""))
    clients.loop.run(zk.get("/n", events.append))
    own_zookeeper.kill()
    clients.loop.run_until(lambda: state_of(zk) is SessionState.SUSPENDED)
    work = as_deferred(retrying(zk, lambda: zk.set("/n", b"1")))
    own_zookeeper.start()
    assert clients.loop.run(work).version == 1
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert zk.session_id == session
    assert clients.loop.run(zk.get("/e"))[0] == b"kept"
    clients.loop.run_until(lambda: len(events) == 1)


def test_a_server_that_is_away_longer_than_the_session(
    clients: Clients, own_zookeeper: ZooKeeperServer
) -> None:
    """Only a server can end a session: the client waits, then learns what became of it."""
    zk = clients.connected(own_zookeeper.address)
    clients.loop.run(zk.create("/n", b""))
    own_zookeeper.kill()
    clients.loop.run_for(2 * SESSION_S)
    assert state_of(zk) is SessionState.SUSPENDED
    own_zookeeper.start()
    clients.loop.run_until(lambda: state_of(zk) is not SessionState.SUSPENDED)
    if state_of(zk) is SessionState.EXPIRED:
        clients.loop.run(zk.reconnect())
    assert clients.loop.run(zk.get("/n"))[0] == b""


def test_a_frozen_server_is_noticed(clients: Clients, own_zookeeper: ZooKeeperServer) -> None:
    zk = clients.connected(own_zookeeper.address)
    clients.loop.run(zk.create("/n", b""))
    own_zookeeper.freeze()
    begin = time.monotonic()
    work = [zk.set("/n", b"%d" % i) for i in range(30)]
    outcomes: list[Any] = []
    for deferred in work:
        deferred.addBoth(outcomes.append)
    clients.loop.run_until(lambda: len(outcomes) == 30)
    assert time.monotonic() - begin < SESSION_S + 10
    assert {outcome.type for outcome in outcomes} == {ConnectionLost}
    own_zookeeper.thaw()
    clients.loop.run_until(lambda: state_of(zk) is not SessionState.SUSPENDED)
    if state_of(zk) is SessionState.EXPIRED:
        clients.loop.run(zk.reconnect())
    clients.loop.run(retrying(zk, lambda: zk.set("/n", b"done")))


def test_connecting_to_a_frozen_server_ends_in_time(
    clients: Clients, own_zookeeper: ZooKeeperServer
) -> None:
    own_zookeeper.freeze()
    zk = clients.make(own_zookeeper.address)
    begin = time.monotonic()
    with pytest.raises(OperationTimeout, match=own_zookeeper.address):
        clients.loop.run(zk.connect(1.0))
    assert time.monotonic() - begin < 10
    own_zookeeper.thaw()


def test_closing_with_a_frozen_server_ends_in_time(
    clients: Clients, own_zookeeper: ZooKeeperServer
) -> None:
    zk = clients.connected(own_zookeeper.address)
    own_zookeeper.freeze()
    begin = time.monotonic()
    clients.loop.run(zk.close())
    assert time.monotonic() - begin < 20
    assert state_of(zk) is SessionState.CLOSED
    own_zookeeper.thaw()


def test_an_overdue_answer_breaks_the_connection(
    clients: Clients, proxy: TcpProxy, chroot: str
) -> None:
    zk = clients.connected(proxy.address + chroot, session_timeout_ms=20_000, request_timeout_s=0.5)
    clients.loop.run(zk.create("/n", b""))
    proxy.stall()
    begin = time.monotonic()
    with pytest.raises(ConnectionLost):
        clients.loop.run(zk.get("/n"))
    assert time.monotonic() - begin < 10
    proxy.resume()
    clients.loop.run_until(lambda: state_of(zk) is SessionState.CONNECTED)
    assert clients.loop.run(zk.get("/n"))[0] == b""


def test_a_lost_answer_means_an_unknown_outcome(
    clients: Clients, proxy: TcpProxy, chroot: str, watcher: KazooClient
) -> None:
    zk = clients.connected(proxy.address + chroot)
    proxy.lose_answers()
    work = zk.create("/n", b"1")
    outcome: list[Any] = []
    work.addBoth(outcome.append)
    while watcher.exists("/n") is None:
        clients.loop.run_for(0.02)
    proxy.heal()
    clients.loop.run_until(lambda: bool(outcome))
    assert outcome[0].type is ConnectionLost
    clients.loop.run_until(lambda: state_of(zk) is SessionState.CONNECTED)
    with pytest.raises(NodeExists):
        clients.loop.run(zk.create("/n", b"1"))


def test_writes_whose_answers_are_lost_come_out_right(
    clients: Clients, proxy: TcpProxy, zookeeper_address: str, chroot: str, watcher: KazooClient
) -> None:
    """Registration, election, topic creation and fenced batches, applied but not answered."""
    loop = clients.loop
    zk = clients.connected(proxy.address + chroot)
    loop.run(brokers.precreate(zk))
    info = BrokerInfo(())
    log = logging.getLogger("test.zk")

    loop.run(zk.create("/controller_epoch", b"0"))

    elected = run_losing_after(loop, proxy, watcher, zk, election.elect(zk, 1, 5), "/controller")
    assert elected == election.Elected(1, 1)
    registration = run_losing_after(
        loop,
        proxy,
        watcher,
        zk,
        brokers.register(zk, loop, 1, info, wait_s=5, logger=log),
        "/brokers/ids/1",
    )
    assert registration.epoch == watcher.exists("/brokers/ids/1").czxid
    topic = TopicInfo({}, b"0" * 16)
    run_losing_after(
        loop, proxy, watcher, zk, topics.create_topic(zk, "t", topic, {}), "/brokers/topics/t"
    )
    results = run_losing_after(
        loop,
        proxy,
        watcher,
        zk,
        election.guarded_batch(
            zk, elected.epoch_zk_version, [Create(f"/g{i}", b"") for i in range(20)]
        ),
        "/g0",
    )
    assert results == [f"/g{i}" for i in range(20)]


def run_losing_after(
    loop: RealLoop,
    proxy: TcpProxy,
    outside: KazooClient,
    zk: KazooZkClient,
    work: Any,
    path: str,
) -> Any:
    """Run `work`; from the multi that touches `path` on, answers are lost until it is applied."""
    original = zk.multi
    armed = [True]

    def multi(ops: Any) -> Any:
        if armed and any(op.path == path for op in ops):
            armed.clear()
            proxy.lose_answers()
        return original(ops)

    zk.multi = multi  # type: ignore[method-assign]
    outcome: list[Any] = []
    as_deferred(work).addBoth(outcome.append)
    deadline = time.monotonic() + 10
    while outside.exists(path) is None:
        assert time.monotonic() < deadline
        assert not outcome, outcome
        loop.run_for(0.01)
    loop.run_for(0.05)
    assert not outcome, "the answer was not lost"
    proxy.heal()
    loop.run_until(lambda: bool(outcome))
    zk.multi = original  # type: ignore[method-assign]
    if hasattr(outcome[0], "raiseException"):
        outcome[0].raiseException()
    return outcome[0]


def note(outcomes: dict[int, Any], number: int, outcome: Any) -> None:
    outcomes[number] = outcome


def has(outcomes: dict[int, Any] | list[Any], count: int) -> bool:
    return len(outcomes) == count


def test_connection_lost_in_the_middle_of_many_requests(
    clients: Clients, proxy: TcpProxy, chroot: str
) -> None:
    """Everything that was confirmed is there; the unconfirmed is a suffix or was retried."""
    loop = clients.loop
    zk = clients.connected(proxy.address + chroot)
    loop.run(zk.create("/n", b""))
    chance = random.Random(5)
    for _ in range(15):
        version = loop.run(retrying(zk, lambda: zk.get("/n")))[1].version
        outcomes: dict[int, Any] = {}
        for number in range(60):
            zk.set("/n", b"%d" % number).addBoth(partial(note, outcomes, number))
        loop.run_for(chance.random() * 0.01)
        proxy.cut()
        loop.run_until(partial(has, outcomes, 60))
        fine = [n for n, outcome in outcomes.items() if not hasattr(outcome, "type")]
        assert fine == list(range(len(fine))), "confirmed requests are not a prefix"
        loop.run_until(lambda: state_of(zk) is SessionState.CONNECTED)
        data, stat = loop.run(retrying(zk, lambda: zk.get("/n")))
        applied = stat.version - version
        assert len(fine) <= applied <= 60
        if applied:
            assert data == b"%d" % (applied - 1), "applied requests are not a prefix"


def test_sessions_that_end_at_any_moment(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    """Every request is answered, and none of an ended session is applied later."""
    loop = clients.loop
    zk = clients.connected(zookeeper_address + chroot)
    loop.run(zk.create("/n", b""))
    chance = random.Random(3)
    for _ in range(10):
        session = zk.session_id
        answered: list[Any] = []
        made = 0
        loop.call_later(chance.random() * 0.02, expire, zookeeper_address, zk)
        while state_of(zk) is not SessionState.EXPIRED:
            zk.set("/n", b"%d" % session).addBoth(answered.append)
            made += 1
            loop.run_for(0.001 if state_of(zk) is SessionState.CONNECTED else 0.005)
        zk.set("/n", b"%d" % session).addBoth(answered.append)
        loop.run_until(partial(has, answered, made + 1))
        loop.run(zk.reconnect())
        assert zk.session_id != session
        loop.run(zk.set("/n", b"new"))
        loop.run_for(0.02)
        assert loop.run(zk.get("/n"))[0] == b"new"


def test_the_product_decides_when_a_new_session_begins(
    clients: Clients, own_zookeeper: ZooKeeperServer
) -> None:
    zk = clients.connected(own_zookeeper.address)
    expire(own_zookeeper.address, zk)
    clients.loop.run_until(lambda: state_of(zk) is SessionState.EXPIRED)
    clients.loop.run_for(1.0)
    assert state_of(zk) is SessionState.EXPIRED
    connections = four_letters(own_zookeeper.port, b"cons").decode().strip().splitlines()
    assert len(connections) == 1, "only our own question may be connected"
    first, second = zk.reconnect(), zk.reconnect()
    clients.loop.run(gatherResults([first, second]))
    assert state_of(zk) is SessionState.CONNECTED


def test_reconnect_waits_for_a_server(clients: Clients, own_zookeeper: ZooKeeperServer) -> None:
    zk = clients.connected(own_zookeeper.address)
    expire(own_zookeeper.address, zk)
    clients.loop.run_until(lambda: state_of(zk) is SessionState.EXPIRED)
    own_zookeeper.kill()
    waiting = zk.reconnect()
    clients.loop.run_for(1.5)
    assert not waiting.called
    own_zookeeper.start()
    clients.loop.run(waiting)


def test_close_while_reconnecting(clients: Clients, own_zookeeper: ZooKeeperServer) -> None:
    zk = clients.connected(own_zookeeper.address)
    expire(own_zookeeper.address, zk)
    clients.loop.run_until(lambda: state_of(zk) is SessionState.EXPIRED)
    own_zookeeper.kill()
    waiting = zk.reconnect()
    outcome: list[Any] = []
    waiting.addBoth(outcome.append)
    clients.loop.run(zk.close(), 10.0)
    assert outcome[0].type is SessionExpired


def test_a_swallowed_handshake_does_not_cost_the_session(
    clients: Clients, proxy: TcpProxy, chroot: str
) -> None:
    """A server that is just starting may accept a connection and never answer on it."""
    zk = clients.connected(proxy.address + chroot, session_timeout_ms=9000)
    session = zk.session_id
    proxy.lose_answers()
    proxy.cut()
    clients.loop.run_until(lambda: state_of(zk) is SessionState.SUSPENDED)
    clients.loop.run_for(1.0)
    proxy.losing_answers = False
    clients.loop.run_until(lambda: state_of(zk) is not SessionState.SUSPENDED)
    assert state_of(zk) is SessionState.CONNECTED
    assert zk.session_id == session


def test_another_server_takes_over(clients: Clients, zookeeper_address: str, chroot: str) -> None:
    """Two addresses of one ensemble: when one is cut off, the session goes on at the other."""
    with TcpProxy(zookeeper_address) as first, TcpProxy(zookeeper_address) as second:
        zk = clients.connected(f"{first.address},{second.address}{chroot}")
        session = zk.session_id
        for cut_off, other in ((first, second), (second, first)):
            other.accept()
            cut_off.refuse()
            clients.loop.run(retrying(zk, lambda: zk.exists("/")))
        assert zk.session_id == session


# --- bounds -------------------------------------------------------------------------------------


def test_a_full_queue_refuses(clients: Clients, zookeeper_address: str, chroot: str) -> None:
    zk = clients.connected(zookeeper_address + chroot, max_queued=50)
    outcomes: list[Any] = []
    for _ in range(100):
        zk.exists("/").addBoth(outcomes.append)
    clients.loop.run_until(lambda: len(outcomes) == 100)
    refused = [o for o in outcomes if getattr(o, "type", None) is TooManyRequests]
    assert 30 <= len(refused) <= 50
    clients.loop.run(zk.exists("/"))


def test_a_request_too_large_for_anybody_is_refused(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.connected(zookeeper_address + chroot)
    with pytest.raises(BadArguments, match="limit"):
        clients.loop.run(zk.create("/big", b"x" * (4 << 20)))
    assert state_of(zk) is SessionState.CONNECTED


def test_a_request_too_large_for_the_server_is_not_sent_for_ever(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.connected(zookeeper_address + chroot)
    with pytest.raises(MarshallingError, match=r"jute\.maxbuffer"):
        clients.loop.run(retrying(zk, lambda: zk.create("/big", b"x" * (2 << 20))))
    clients.loop.run_until(lambda: state_of(zk) is SessionState.CONNECTED)
    clients.loop.run(zk.create("/fits", b"x" * 1_000_000))
    answers = clients.loop.run(zk.multi_read([GetData("/fits")] * 20))
    assert all(isinstance(answer, tuple) for answer in answers)


def test_a_cancelled_request_harms_nobody(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.connected(zookeeper_address + chroot)
    clients.loop.run(zk.create("/n", b""))
    work = [zk.set("/n", b"%d" % i) for i in range(40)]
    for deferred in work[::2]:
        deferred.addErrback(lambda _: None)
        deferred.cancel()
    clients.loop.run(gatherResults(work[1::2]))
    assert clients.loop.run(zk.get("/n"))[0] == b"39"


def test_ten_thousand_znodes(
    clients: Clients, zookeeper_address: str, chroot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    zk = clients.connected(zookeeper_address + chroot, session_timeout_ms=10_000)
    for start in range(0, 10_000, 500):
        ops = [Create(f"/n{i}", b"x" * 76) for i in range(start, start + 500)]
        clients.loop.run(zk.multi(ops))
    reads = [GetData(f"/n{i}") for i in range(10_000)]
    begin = time.monotonic()
    answers = clients.loop.run(zk.multi_read(reads))
    plain_s = time.monotonic() - begin
    assert all(isinstance(answer, tuple) for answer in answers)
    events: list[WatchEvent] = []
    begin = time.monotonic()
    clients.loop.run(zk.multi_read(reads, events.append))
    watched_s = time.monotonic() - begin
    clients.loop.run(zk.set("/n9999", b"", ANY_VERSION))
    assert [event.path for event in events] == ["/n9999"]
    with capsys.disabled():
        print(f" [10,000 znodes: multi_read {plain_s:.3f} s, with watches {watched_s:.3f} s] ")


# --- ways in ------------------------------------------------------------------------------------


def test_chroots_of_several_parts_are_made(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.connected(f"{zookeeper_address}{chroot}/a/b/")
    clients.loop.run(zk.create("/c", b""))
    assert clients.loop.run(zk.get_children("/"))[0] == ["c"]
    outer = clients.connected(zookeeper_address + chroot)
    assert clients.loop.run(outer.get_children("/a/b"))[0] == ["c"]
    assert clients.loop.run(outer.get("/a"))[0] is None


def test_digest_credentials_reach_the_server(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    def creator_only(path: str) -> Sequence[Acl]:
        return (Acl(31, "auth", ""),) if path.startswith("/config/users") else OPEN_ACL

    known = clients.connected(
        zookeeper_address + chroot, auth=(("digest", "me:secret"),), acl=creator_only
    )
    clients.loop.run(known.create("/config", None))
    clients.loop.run(known.create("/config/users", b"hidden"))
    assert clients.loop.run(known.get("/config/users"))[0] == b"hidden"
    stranger = clients.connected(zookeeper_address + chroot)
    with pytest.raises(NoAuth):
        clients.loop.run(stranger.get("/config/users"))
    assert clients.loop.run(stranger.get("/config"))[0] is None


def test_refused_credentials_fail_the_connect(
    clients: Clients, zookeeper_address: str, chroot: str
) -> None:
    zk = clients.make(zookeeper_address + chroot, auth=(("no-such-scheme", "x"),))
    with pytest.raises(AuthFailed):
        clients.loop.run(zk.connect(10.0))
    assert state_of(zk) is SessionState.CLOSED


def test_a_failed_connect_can_be_tried_again(
    clients: Clients, own_zookeeper: ZooKeeperServer
) -> None:
    zk = clients.make(own_zookeeper.address)
    own_zookeeper.kill()
    with pytest.raises(OperationTimeout):
        clients.loop.run(zk.connect(0.5))
    own_zookeeper.start()
    clients.loop.run(zk.connect(10.0))
    clients.loop.run(zk.create("/n", b""))


def test_connect_strings() -> None:
    assert split_connect("h1:1,h2:2/a/b") == ("h1:1,h2:2", "/a/b")
    assert split_connect("h1/") == ("h1", "")
    assert split_connect("[::1]:2181/k") == ("[::1]:2181", "/k")
    for bad in ("", "/only", "h//x", "h/a/../b"):
        with pytest.raises(ValueError, match=r"zookeeper\.connect"):
            split_connect(bad)


def test_what_of_kazoo_is_relied_on(zookeeper_address: str) -> None:
    """Private names of kazoo that the client overrides or touches."""
    plain = KazooClient(zookeeper_address)
    for name in ("_queue", "_pending", "_stopped", "_state", "_session_id", "_session_passwd"):
        assert hasattr(plain, name), name
    connection = plain._connection
    for name in (
        "_connect",
        "_connect_attempt",
        "_connect_loop",
        "_invoke",
        "_read",
        "_read_socket",
        "_send_ping",
        "_send_request",
        "_submit",
        "zk_loop",
    ):
        assert callable(getattr(connection, name)), name


def test_tls(clients: Clients, tmp_path: Path, chroot: str) -> None:
    """The secure port of a server with a certificate of its own; a stranger's is refused."""
    if missing() or shutil.which("keytool") is None or shutil.which("openssl") is None:
        pytest.skip("needs a ZooKeeper of its own, keytool and openssl")
    certificate = tmp_path / "cert.pem"
    key_store = tmp_path / "store.p12"
    secret = "secret-of-a-test"

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    name = ["-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1"]
    store = ["-keystore", str(key_store), "-storepass", secret, "-storetype", "PKCS12"]
    run("keytool", "-genkeypair", "-alias", "zk", "-keyalg", "RSA", *name, *store)
    run("keytool", "-exportcert", "-rfc", "-alias", "zk", "-file", str(certificate), *store)
    stranger = tmp_path / "stranger.pem"
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"),
        *("-keyout", str(tmp_path / "key.pem"), "-out", str(stranger)),
    )
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": "none",
        "ssl.keyStore.location": str(key_store),
        "ssl.keyStore.password": secret,
        "ssl.keyStore.type": "PKCS12",
    }
    with ZooKeeperServer(settings):
        connect = f"localhost:{port}{chroot}"
        trusting = clients.connected(connect, tls=ZkTls(ca_file=str(certificate)))
        ops = [Create(f"/n{i}", b"x" * 500) for i in range(500)]
        clients.loop.run(trusting.multi(ops))
        answers = clients.loop.run(trusting.multi_read([GetData(op.path) for op in ops]))
        assert [answer[0] for answer in answers if isinstance(answer, tuple)] == [b"x" * 500] * 500
        writes = [trusting.set("/n0", b"y" * 100_000) for _ in range(30)]
        clients.loop.run(gatherResults(writes))
        clients.loop.run_for(1.2 * SESSION_S)
        assert state_of(trusting) is SessionState.CONNECTED
        distrusting = clients.make(connect, tls=ZkTls(ca_file=str(stranger)))
        with pytest.raises(OperationTimeout):
            clients.loop.run(distrusting.connect(2.0))
        clients.loop.run(trusting.close())
