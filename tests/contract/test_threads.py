"""One suite for the Threads port: real threads on a reactor, and calls in their place."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from kafkalike.runtime.ports import Threads
from kafkalike.runtime.reactor import RealThreads, SlimReactor
from tests.fakes import InlineThreads, ManualThreads, failure_of, result_of


class Site:
    """A Threads port and what makes its results arrive."""

    def __init__(self, threads: Threads, turn: Callable[[], object]) -> None:
        self.threads = threads
        self._turn = turn

    def until_called(self, *results: "Deferred[Any]") -> None:
        limit = time.monotonic() + 30.0
        while not all(result.called for result in results):
            assert time.monotonic() < limit, "nothing happened in time"
            self._turn()


@pytest.fixture(params=["real", "inline", "manual"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "inline":
        yield Site(InlineThreads(), lambda: None)
        return
    if request.param == "manual":
        manual = ManualThreads()
        yield Site(manual, manual.run_all)
        return
    reactor: Any = SlimReactor()
    threads = RealThreads(reactor)
    yield Site(threads, lambda: reactor.iterate(0.01))
    threads.stop()
    reactor._poller.close()


def test_arguments_go_in_and_the_result_comes_back(site: Site) -> None:
    result = site.threads.run(divmod, 17, 5)
    site.until_called(result)
    assert result_of(result) == (3, 2)


def test_an_error_comes_back_as_a_failure(site: Site) -> None:
    result = site.threads.run(int, "x")
    good = site.threads.run(int, "7")
    site.until_called(result, good)
    failure_of(result, ValueError)
    assert result_of(good) == 7


def test_callbacks_may_ask_for_more_work(site: Site) -> None:
    chain: Deferred[Any] = Deferred()

    def again(value: int) -> None:
        if value < 5:
            site.threads.run(lambda: value + 1).addCallback(again)
        else:
            chain.callback(value)

    site.threads.run(int, 0).addCallback(again)
    site.until_called(chain)
    assert result_of(chain) == 5


def test_a_result_nobody_wants_any_more_is_dropped(site: Site) -> None:
    given_up = site.threads.run(int, "1")
    if not given_up.called:
        given_up.cancel()
        failure_of(given_up, CancelledError)
    kept = site.threads.run(int, "2")
    site.until_called(kept)
    assert result_of(kept) == 2


def test_a_callback_that_raises_does_not_lose_other_results(site: Site) -> None:
    def fail(value: int) -> int:
        return value // 0

    bad = site.threads.run(int, "1").addCallback(fail)
    good = [site.threads.run(int, str(number)) for number in range(20)]
    site.until_called(bad, *good)
    failure_of(bad, ZeroDivisionError)
    assert [result_of(one) for one in good] == list(range(20))
