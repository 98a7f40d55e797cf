"""The lean reactor, the threads and the real files: on reactors of their own, never installed."""

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone

from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import NoSuchFile, StorageError
from kafkalike.runtime.reactor import RealClock, RealThreads, SlimReactor, SystemRandom
from tests.fakes import failure_of, result_of


@pytest.fixture(params=[SlimReactor, EPollReactor])
def reactor(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made._poller.close()


def until(reactor: Any, condition: Any) -> None:
    limit = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < limit, "nothing happened in time"
        reactor.iterate(0.01)


def test_the_private_names_used_are_there() -> None:
    for name in ("_doReadOrWrite", "_disconnectSelectable"):
        assert callable(getattr(EPollReactor, name))
    plain: Any = EPollReactor()
    assert hasattr(plain, "_poller")
    assert plain._selectables is not None
    plain._poller.close()


class Descriptor:
    """One end of a socket pair that does what the test says."""

    def __init__(self, reactor: Any) -> None:
        self.socket, self.other = socket.socketpair()
        self.reactor = reactor
        self.reads = 0
        self.lost: list[Any] = []
        self.answer: Any = None
        self.socket.setblocking(False)
        reactor.addReader(self)

    def fileno(self) -> int:
        return self.socket.fileno()

    def logPrefix(self) -> str:
        return "test"

    def doRead(self) -> Any:
        self.reads += 1
        self.socket.recv(100)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def connectionLost(self, reason: Any) -> None:
        self.lost.append(reason.type)
        self.socket.close()


def test_an_error_in_one_descriptor_ends_that_one_only(reactor: Any) -> None:
    from twisted.python import log

    good, bad, done = Descriptor(reactor), Descriptor(reactor), Descriptor(reactor)
    bad.answer = ZeroDivisionError("a mistake")
    from twisted.internet.main import CONNECTION_DONE

    done.answer = CONNECTION_DONE
    seen: list[Any] = []
    log.addObserver(seen.append)
    try:
        for one in (bad, done, good):
            one.other.send(b"x")
        until(reactor, lambda: good.reads == 1 and bad.lost and done.lost)
    finally:
        log.removeObserver(seen.append)
    assert bad.lost == [ZeroDivisionError]
    assert done.lost == [ConnectionDone]
    assert any(event.get("isError") for event in seen)
    good.other.send(b"x")
    until(reactor, lambda: good.reads == 2)
    reactor.removeReader(good)


def test_a_hang_up_reaches_a_paused_descriptor_that_writes(reactor: Any) -> None:
    one = Descriptor(reactor)
    reactor.removeReader(one)
    one.doWrite = lambda: None  # type: ignore[attr-defined]
    reactor.addWriter(one)
    one.other.close()
    until(reactor, lambda: bool(one.lost))


def test_call_soon_runs_after_the_events_of_the_turn_and_before_waiting(reactor: Any) -> None:
    clock = RealClock(reactor)
    order: list[str] = []

    def timer() -> None:
        order.append("timer")
        clock.call_soon(order.append, "soon")
        clock.call_soon(clock.call_soon, order.append, "later")

    clock.call_later(0.0, timer)
    is_slim = isinstance(reactor, SlimReactor)
    started = time.monotonic()
    for _ in range(5):
        reactor.iterate(30.0 if is_slim else 0.01)  # Twisted's waits so long each time
        if len(order) == 3:
            break
    assert order == ["timer", "soon", "later"]
    if is_slim:
        assert time.monotonic() - started < 30.0, "it has waited"


def test_a_turn_with_several_events_is_crowded() -> None:
    reactor = SlimReactor()
    seen: list[bool] = []

    class Watcher(Descriptor):
        def doRead(self) -> Any:
            seen.append(self.reactor.output.crowded)
            return super().doRead()

    first, second = Watcher(reactor), Watcher(reactor)
    for count, senders in ((1, [first]), (3, [first, second]), (4, [second])):
        for each in senders:
            each.other.send(b"x")
        until(reactor, lambda count=count: len(seen) == count)
    assert seen == [False, True, True, False]
    reactor._poller.close()


def test_answers_leave_once_the_next_turn_is_known() -> None:
    reactor = SlimReactor()
    clock = RealClock(reactor)
    turns: list[str] = []

    class Named(Descriptor):
        name = ""

        def doRead(self) -> Any:
            turns.append(self.name)
            return super().doRead()

    quick, other = Named(reactor), Named(reactor)
    quick.name, other.name = "quick", "other"

    class Sender:
        """Its peer asks again as soon as it has the answer."""

        def send_small(self) -> None:
            turns.append("sent")
            quick.other.send(b"x")

    sender: Any = Sender()
    other.other.send(b"x")
    reactor.output.add(sender, clock)
    assert reactor.output.waiting
    reactor.iterate(30.0)
    assert turns == ["sent", "other"]
    reactor.iterate(30.0)
    assert turns == ["sent", "other", "quick"]
    assert not reactor.output.waiting
    turns.clear()
    reactor.output.add(sender, clock)
    reactor.iterate(None)  # with nothing to read it sends, and does not sleep
    assert turns == ["sent"]
    for each in (quick, other):
        reactor.removeReader(each)
    reactor._poller.close()


def test_answers_leave_before_the_reactor_stops() -> None:
    reactor = SlimReactor()
    sent: list[int] = []

    class Sender:
        def send_small(self) -> None:
            sent.append(1)

    sender: Any = Sender()
    reactor.output.add(sender, RealClock(reactor))
    reactor.fireSystemEvent("shutdown")
    assert sent == [1]
    reactor._poller.close()


def test_an_error_in_call_soon_does_not_lose_the_others(reactor: Any) -> None:
    from twisted.python import log

    seen: list[Any] = []
    order: list[int] = []
    clock = RealClock(reactor)
    log.addObserver(seen.append)
    try:
        clock.call_soon(lambda: 1 // 0)
        clock.call_soon(order.append, 1)
        until(reactor, lambda: bool(order))
    finally:
        log.removeObserver(seen.append)
    assert any(event.get("isError") for event in seen)


def test_timers_may_be_cancelled_at_any_time(reactor: Any) -> None:
    clock = RealClock(reactor)
    fired: list[int] = []
    cancelled = clock.call_later(0.0, fired.append, 1)
    cancelled.cancel()
    cancelled.cancel()
    kept = clock.call_later(0.0, fired.append, 2)
    until(reactor, lambda: bool(fired))
    kept.cancel()
    assert fired == [2]
    assert abs(clock.now_ms() - time.time() * 1000) < 60_000
    assert clock.monotonic() <= clock.monotonic()


def test_threads_bring_results_and_errors_back_into_the_loop(reactor: Any) -> None:
    threads = RealThreads(reactor, 2)
    here = threading.get_ident()
    arrived_in: list[int] = []
    results = [threads.run(lambda number: (number, threading.get_ident()), n) for n in range(50)]

    def note_thread(value: tuple[int, int]) -> tuple[int, int]:
        arrived_in.append(threading.get_ident())
        return value

    for one in results:
        one.addCallback(note_thread)
    failed = threads.run(int, "x")
    gone = threads.run(time.sleep, 0.01)
    gone.cancel()
    failure_of(gone, CancelledError)
    until(reactor, lambda: failed.called and all(one.called for one in results))
    values = [result_of(one) for one in results]
    assert [number for number, _ in values] == list(range(50))
    assert all(ident != here for _, ident in values)
    assert set(arrived_in) == {here}
    failure_of(failed, ValueError)
    threads.stop()
    with pytest.raises(RuntimeError):
        threads.run(int)


def test_a_burst_of_results_wakes_the_loop_once(reactor: Any) -> None:
    threads = RealThreads(reactor, 1)
    wakes: list[int] = []
    call_from_thread = reactor.callFromThread

    def counted(*arguments: Any) -> None:
        wakes.append(1)
        call_from_thread(*arguments)

    reactor.callFromThread = counted
    gate = threading.Event()
    results = [threads.run(gate.wait)] + [threads.run(int) for _ in range(100)]
    last = threads.run(int)
    gate.set()
    limit = time.monotonic() + 30.0
    while len(threads._done) < 102:
        assert time.monotonic() < limit
        time.sleep(0.001)
    until(reactor, lambda: last.called)
    assert len(wakes) == 1
    assert all(one.called for one in results)
    threads.stop()


def test_system_random_is_within_its_bounds() -> None:
    random = SystemRandom()
    assert 0.0 <= random.random() < 1.0
    assert {random.randrange(3) for _ in range(200)} == {0, 1, 2}
    assert len(random.bytes(16)) == 16
    assert random.bytes(16) != random.bytes(16)


def test_what_was_written_lately_is_cached_and_what_was_dropped_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    disk = RealDisk()
    file = disk.open(path, create=True)
    file.append(b"x" * (20 << 20))
    file.sync()
    assert file.is_cached(1 << 20, 19 << 20)
    assert file.is_cached(1 << 20, 0)
    assert file.is_cached(100, 30 << 20), "beyond the end there is nothing to wait for"
    again = disk.open(path)
    os.posix_fadvise(again.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    byte = bytearray(1)
    try:
        os.preadv(again.fileno(), [byte], 10 << 20, os.RWF_NOWAIT)
    except BlockingIOError:
        assert not again.is_cached(1 << 20, 12 << 20)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
        assert again.is_cached(1 << 20, 12 << 20)
    file.close()
    again.close()


def test_a_lock_excludes_another_holder_in_this_process_and_in_others(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = str(tmp_path / ".lock")
    held = RealDisk().lock(path)
    with pytest.raises(StorageError, match="holds this lock"):
        RealDisk().lock(path)
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n    sys.exit(7)\n"
    )
    command = [sys.executable, "-c", code, path]
    assert subprocess.run(command, check=False).returncode == 7
    held.release()
    held.release()
    assert subprocess.run(command, check=False).returncode == 0


def test_errors_name_the_path(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing" / "file")
    with pytest.raises(NoSuchFile, match="missing/file"):
        RealDisk().open(missing, create=True)
    with pytest.raises(NoSuchFile, match="missing/file"):
        RealDisk().size(missing)
    with pytest.raises(StorageError, match=str(tmp_path)):
        RealDisk().open(str(tmp_path))


def test_appends_of_more_buffers_than_the_kernel_takes_at_once(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "log"), create=True)
    assert file.append(b"start") == 0
    buffers = [b"%d," % number for number in range(3000)]
    assert file.append(*buffers) == 5
    assert file.pread(file.size(), 0) == b"start" + b"".join(buffers)
    assert file.append() == file.size()
    file.close()
