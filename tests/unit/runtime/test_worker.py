"""The helper process: jobs, their errors, its death and its end."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalike.runtime.ports import StorageError
from kafkalike.runtime.reactor import RealClock, RealThreads, SlimReactor
from kafkalike.runtime.worker import JobFailed, WorkerDied, WorkerProcess, find_job
from tests.fakes import failure_of, result_of

ECHO = "kafkalike.runtime.worker:describe"


class Site:
    def __init__(self) -> None:
        self.reactor: Any = SlimReactor()
        clock = RealClock(self.reactor)
        self.worker = WorkerProcess(self.reactor, clock, RealThreads(self.reactor))

    def until(self, condition: Any) -> None:
        limit = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < limit, "nothing happened in time"
            self.reactor.iterate(0.02)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    pid = made.worker.pid
    made.worker.stop()
    made.until(lambda: made.worker.pid is None)
    if pid is not None:
        made.until(lambda: not _alive(pid))
    made.reactor._poller.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_jobs_are_named_by_module_and_function() -> None:
    assert find_job("kafkalike.runtime.worker:find_job") is find_job  # type: ignore[comparison-overlap]
    for name in ("os:system", "kafkalike.runtime.worker", "posix:_exit", ""):
        with pytest.raises(ValueError, match="not of the form"):
            find_job(name)


def test_results_come_back_in_order_from_another_process(site: Site) -> None:
    jobs = [site.worker.run(ECHO, {"number": number}) for number in range(20)]
    site.until(lambda: all(job.called for job in jobs))
    answers = [result_of(job) for job in jobs]
    assert [answer["argument"]["number"] for answer in answers] == list(range(20))
    assert {answer["pid"] for answer in answers} == {site.worker.pid}
    assert site.worker.pid != os.getpid()


def test_errors_of_a_job_come_back_and_the_helper_lives(site: Site) -> None:
    unknown = site.worker.run("kafkalike.runtime.worker:no_such_job", {})
    foreign = site.worker.run("os:system", {})
    storage = site.worker.run(ECHO, {"path": "/no/such/file"})
    good = site.worker.run(ECHO, {})
    site.until(lambda: good.called)
    assert "no_such_job" in str(failure_of(unknown, JobFailed))
    assert "not of the form" in str(failure_of(foreign, JobFailed))
    failure_of(storage, StorageError)
    result_of(good)


def test_a_helper_that_dies_fails_its_jobs_and_is_replaced(site: Site) -> None:
    first = site.worker.run(ECHO, {})
    site.until(lambda: first.called)
    old = result_of(first)["pid"]
    os.kill(old, signal.SIGSTOP)
    lost = [site.worker.run(ECHO, {}) for _ in range(2)]
    os.kill(old, signal.SIGKILL)
    site.until(lambda: all(job.called for job in lost))
    for job in lost:
        failure_of(job, WorkerDied)
    again = site.worker.run(ECHO, {})
    site.until(lambda: again.called)
    assert result_of(again)["pid"] != old


def test_nothing_runs_after_stop(site: Site) -> None:
    first = site.worker.run(ECHO, {})
    site.until(lambda: first.called)
    result_of(first)
    waiting = site.worker.run(ECHO, {})
    site.worker.stop()
    site.until(lambda: waiting.called)
    failure_of(waiting, WorkerDied)
    failure_of(site.worker.run(ECHO, {}), RuntimeError)
