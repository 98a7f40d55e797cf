"""Background work, locks, queues and the timer wheel, under a clock that moves when told to."""

import logging

import pytest
from twisted.internet.defer import CancelledError, Deferred

from kafkalike.runtime.tasks import (
    Closed,
    Mutex,
    Queue,
    QueueFull,
    Tasks,
    TimedOut,
    TimerWheel,
    sleep,
    timeout,
)
from tests.fakes import FakeClock, failure_of, result_of

LOGGER = logging.getLogger("kafkalike.test")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_sleep_ends_in_time_and_can_be_cancelled(clock: FakeClock) -> None:
    slept = sleep(clock, 2.0)
    clock.advance(1.9)
    assert not slept.called
    clock.advance(0.2)
    assert result_of(slept) is None
    given_up = sleep(clock, 2.0)
    given_up.cancel()
    failure_of(given_up, CancelledError)
    assert clock.pending() == 0


def test_timeout_passes_results_and_errors_on(clock: FakeClock) -> None:
    source: Deferred[int] = Deferred()
    outcome = timeout(clock, source, 5.0, "the answer")
    source.callback(42)
    assert result_of(outcome) == 42
    failing: Deferred[int] = Deferred()
    outcome = timeout(clock, failing, 5.0, "the answer")
    failing.errback(KeyError("x"))
    failure_of(outcome, KeyError)
    assert clock.pending() == 0


def test_timeout_cancels_what_takes_too_long(clock: FakeClock) -> None:
    cancelled: list[Deferred[int]] = []
    outcome: Deferred[int] = timeout(clock, Deferred(cancelled.append), 5.0, "the answer")
    clock.advance(5.1)
    assert len(cancelled) == 1
    assert "the answer took longer than 5 s" in str(failure_of(outcome, TimedOut))


def test_timeout_does_not_wait_for_work_that_ignores_cancellation(clock: FakeClock) -> None:
    async def stubborn() -> int:
        try:
            await sleep(clock, 100.0)
        except CancelledError:
            await sleep(clock, 100.0)
        return 1

    outcome = timeout(clock, stubborn(), 5.0, "it")
    clock.advance(5.1)
    failure_of(outcome, TimedOut)
    clock.advance(200.0)


def test_a_cancelled_timeout_cancels_the_work(clock: FakeClock) -> None:
    source: Deferred[int] = Deferred()
    outcome = timeout(clock, source, 5.0, "it")
    outcome.cancel()
    failure_of(outcome, CancelledError)
    assert clock.pending() == 0


def test_a_task_that_fails_is_logged_counted_and_reported(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[tuple[str, BaseException]] = []
    tasks = Tasks(LOGGER, lambda name, error: reported.append((name, error)))

    async def fail() -> None:
        await sleep(clock, 1.0)
        raise ZeroDivisionError("a mistake")

    ended = tasks.spawn(fail(), "failing")
    assert len(tasks) == 1
    clock.advance(1.0)
    assert result_of(ended) is None
    assert (len(tasks), tasks.failed) == (0, 1)
    assert [(name, type(error)) for name, error in reported] == [("failing", ZeroDivisionError)]
    (record,) = caplog.records
    assert "failing" in record.getMessage()
    assert record.exc_info is not None


def test_a_cancelled_task_is_no_error(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks(LOGGER)
    steps: list[str] = []

    async def work() -> None:
        try:
            await sleep(clock, 10.0)
        finally:
            steps.append("cleaned up")

    ended = tasks.spawn(work(), "work")
    ended.cancel()
    assert result_of(ended) is None
    assert steps == ["cleaned up"]
    assert (len(tasks), tasks.failed, caplog.records) == (0, 0, [])


def test_stop_waits_for_what_cleans_up_slowly_and_starts_nothing_more(clock: FakeClock) -> None:
    tasks = Tasks(LOGGER)
    steps: list[str] = []

    async def work(name: str) -> None:
        try:
            await sleep(clock, 10.0)
        finally:
            await sleep(clock, 1.0)
            steps.append(name)

    tasks.spawn(work("a"), "a")
    tasks.spawn(work("b"), "b")
    stopped = tasks.stop()
    assert not stopped.called
    tasks.spawn(work("never"), "never")
    clock.advance(1.1)
    assert result_of(stopped) is None
    assert sorted(steps) == ["a", "b"]


def test_a_mutex_is_held_by_one_in_the_order_of_asking(clock: FakeClock) -> None:
    mutex = Mutex()
    steps: list[str] = []

    async def hold(name: str) -> None:
        async with mutex:
            steps.append(f"{name} in")
            await sleep(clock, 1.0)
            steps.append(f"{name} out")

    tasks = Tasks(LOGGER)
    tasks.spawn(hold("a"), "a")
    impatient = tasks.spawn(hold("b"), "b")
    tasks.spawn(hold("c"), "c")
    impatient.cancel()
    assert mutex.held
    clock.advance(3.0)
    assert steps == ["a in", "a out", "c in", "c out"]
    assert not mutex.held


def test_a_mutex_is_freed_by_an_error(clock: FakeClock) -> None:
    mutex = Mutex()

    async def fail() -> None:
        async with mutex:
            raise KeyError("x")

    failure_of(Deferred.fromCoroutine(fail()), KeyError)
    assert not mutex.held


def test_a_queue_keeps_order_and_bound() -> None:
    queue: Queue[int] = Queue(2)
    waiting = queue.get()
    gone = queue.get()
    gone.cancel()
    failure_of(gone, CancelledError)
    queue.put(1)
    assert result_of(waiting) == 1
    queue.put(2)
    queue.put(3)
    assert len(queue) == 2
    with pytest.raises(QueueFull, match="limit of 2"):
        queue.put(4)
    assert [result_of(queue.get()) for _ in range(2)] == [2, 3]


def test_a_closed_queue_says_so() -> None:
    queue: Queue[int] = Queue(2)
    waiting = queue.get()
    queue.close()
    failure_of(waiting, Closed)
    failure_of(queue.get(), Closed)
    with pytest.raises(Closed):
        queue.put(1)


def test_wheel_timers_are_at_most_a_tick_late_and_never_early(clock: FakeClock) -> None:
    wheel = TimerWheel(clock, LOGGER)
    fired: list[tuple[float, float]] = []
    clock.advance(0.0037)
    start = clock.monotonic()
    for number in range(500):
        delay = number * 0.00731
        wheel.call_later(
            delay, lambda delay: fired.append((delay, clock.monotonic() - start)), delay
        )
    clock.advance(10.0)
    assert [delay for delay, _ in fired] == sorted(delay for delay, _ in fired)
    assert len(fired) == 500
    for delay, after in fired:
        assert delay - 1e-9 <= after <= delay + 0.0101
    assert clock.pending() == 0


def test_a_wheel_uses_one_timer_and_none_when_there_is_nothing_to_do(clock: FakeClock) -> None:
    wheel = TimerWheel(clock, LOGGER)
    timers = [wheel.call_later(1.0 + number / 100, int) for number in range(100)]
    assert clock.pending() == 1
    wheel.call_later(0.5, int)
    assert clock.pending() == 1
    for timer in timers:
        timer.cancel()
        timer.cancel()
        assert not timer.pending
    clock.advance(5.0)
    assert clock.pending() == 0


def test_a_cancelled_wheel_timer_is_not_called(clock: FakeClock) -> None:
    wheel = TimerWheel(clock, LOGGER)
    fired: list[str] = []
    timers = [wheel.call_later(1.0, fired.append, "a"), wheel.call_later(1.0, fired.append, "b")]
    timers[0].cancel()
    # One timer of a tick may cancel another of the same tick.
    wheel.call_later(0.5, timers[1].cancel)
    wheel.call_later(1.0, fired.append, "c")
    clock.advance(2.0)
    assert fired == ["c"]


def test_a_wheel_timer_may_set_itself_again_without_end(clock: FakeClock) -> None:
    wheel = TimerWheel(clock, LOGGER)
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic())
        wheel.call_later(0.0, again)

    wheel.call_later(0.0, again)
    clock.advance(1.0)
    assert 95 <= len(fired) <= 101


def test_an_error_in_one_wheel_timer_is_logged_and_the_others_run(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    wheel = TimerWheel(clock, LOGGER)
    fired: list[int] = []
    wheel.call_later(1.0, lambda: 1 // 0)
    wheel.call_later(1.0, fired.append, 1)
    clock.advance(2.0)
    assert fired == [1]
    assert len(caplog.records) == 1


def test_a_stopped_wheel_forgets_everything(clock: FakeClock) -> None:
    wheel = TimerWheel(clock, LOGGER)
    wheel.call_later(1.0, pytest.fail)
    wheel.stop()
    clock.advance(5.0)
    assert clock.pending() == 0
