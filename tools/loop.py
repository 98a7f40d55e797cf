"""Run one coroutine on a real loop of its own, for commands that talk to brokers."""

from collections.abc import Awaitable, Callable
from typing import Any

from kafkalike.runtime.ports import Runtime

from . import cli


def run_main(main: Callable[[Runtime], Awaitable[int]]) -> int:
    """Install a reactor, run `main(runtime)` on it, stop it, return what `main` returned.

    Exceptions come out of this call.  Only one call per process: a reactor cannot start twice.
    """
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from kafkalike.runtime.reactor import install_reactor, make_runtime

    reactor = install_reactor()
    runtime = make_runtime(reactor)
    outcome: list[int | Failure] = []

    async def guarded() -> None:
        try:
            outcome.append(await main(runtime))
        except BaseException:
            outcome.append(Failure())
        reactor.stop()

    def start() -> None:
        coroutine: Any = guarded()
        Deferred.fromCoroutine(coroutine)

    reactor.callWhenRunning(start)
    reactor.run()
    if not outcome:
        return cli.INTERRUPTED
    result = outcome[0]
    if isinstance(result, Failure):
        result.raiseException()
        raise AssertionError("unreachable")
    return result
