"""A broker as a process: the real world, ZooKeeper through kazoo, one node, signals.

SIGTERM or SIGINT stops it in order (leadership moves away, everything is flushed); a second one skips
the controlled shutdown.  Exit codes: 0 stopped as asked, 1 could not start or had to give up.
"""

import contextlib
import gc
import logging
import os
import pathlib
import re
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.broker.handlers.request import Route
from kafkalike.broker.node import Node, StartupError
from kafkalike.config import BrokerConfig
from kafkalike.runtime.ports import Runtime
from kafkalike.runtime.reactor import install_reactor, make_runtime
from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions

from . import cli
from .listeners import who_listens

GC_THRESHOLDS: Final = (50_000, 50, 100)
"""Fewer, later collections: what lives long is frozen, what is short-lived has no cycles."""

LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"

Ready = Callable[[list[str]], None]
"""Told the advertised addresses, `host:port` each, once the broker serves."""


class Companion(Protocol):
    """What a supervisor puts beside the broker into its process."""

    def prepare(self, reactor: Any, runtime: Runtime, zk: KazooZkClient) -> Runtime:
        """Before the broker is made; it will live on the runtime returned."""

    def wrap_route(self, route: Route) -> Route:
        """Put something around a handler, or not."""

    def started(self, node: Node) -> None:
        """The broker serves."""


def run(
    config: BrokerConfig,
    *,
    log_level: str = "INFO",
    ready_file: pathlib.Path | None = None,
    on_ready: Ready | None = None,
    companion: Companion | None = None,
) -> int:
    """Serve until a signal; returns the exit code.  One call per process."""
    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("kazoo").setLevel(logging.WARNING)

    def ready(addresses: list[str]) -> None:
        if ready_file is not None:
            _write_ready_file(ready_file, addresses)
        if on_ready is not None:
            on_ready(addresses)

    process = _Process(config, ready, companion)
    try:
        return process.run()
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


class _Process:
    """The reactor, the node in it, and what signals do to them."""

    def __init__(self, config: BrokerConfig, ready: Ready, companion: Companion | None) -> None:
        self._ready = ready
        self._companion = companion
        self._reactor = install_reactor()
        self._exit_code = cli.DONE
        self._problem: str | None = None
        self._signals = 0
        self._stopping = False
        gc.set_threshold(*GC_THRESHOLDS)
        runtime = make_runtime(self._reactor)
        zk = KazooZkClient(
            ZkOptions(
                config.zookeeper_connect,
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                max_in_flight=config.zookeeper_max_in_flight_requests,
            ),
            clock=runtime.clock,
            call_from_thread=self._reactor.callFromThread,
            logger=logging.getLogger("kafkalike.zk"),
        )
        more: dict[str, Any] = {}
        if companion is not None:
            runtime = companion.prepare(self._reactor, runtime, zk)
            more["wrap_route"] = companion.wrap_route
        self._node = Node(
            config, runtime, zk, host_name=_host_name(config), on_fatal=self._give_up, **more
        )

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        self._reactor.callWhenRunning(self._start)
        self._reactor.run(installSignalHandlers=False)
        if self._problem is not None:
            cli.print_error(self._problem)  # last, where it is looked for
        return self._exit_code

    def _start(self) -> None:
        work: Deferred[None] = Deferred.fromCoroutine(self._node.start())
        work.addCallbacks(self._started, self._not_started)

    def _started(self, _: None) -> None:
        gc.collect()
        gc.freeze()
        if self._companion is not None:
            self._companion.started(self._node)
        self._ready([f"{e.host}:{e.port}" for e in self._node.advertised])

    def _not_started(self, failure: Any) -> None:
        if self._stopping:
            return
        self._exit_code = cli.FAILED
        if failure.check(StartupError):
            self._problem = str(failure.value) + _taken_by(str(failure.value))
        else:
            logging.getLogger("kafkalike").critical(
                "the broker could not start",
                exc_info=(failure.type, failure.value, failure.getTracebackObject()),
            )
        self._stop(controlled=False)

    def _signalled(self, number: int, _frame: object) -> None:
        self._signals += 1
        self._reactor.callFromThread(self._stop, controlled=self._signals == 1)

    def _give_up(self, text: str) -> None:
        self._problem = text
        self._exit_code = cli.FAILED
        self._reactor.callLater(0, self._stop, controlled=False)

    def _stop(self, *, controlled: bool) -> None:
        self._stopping = True
        self._node.stop(controlled=controlled).addBoth(self._stopped)

    def _stopped(self, _: object) -> None:
        with contextlib.suppress(Exception):
            self._reactor.stop()


def _taken_by(problem: str) -> str:
    """Who listens where the broker wanted to."""
    found = re.search(r":(\d+): .*Address already in use", problem)
    return "" if found is None else who_listens(int(found[1]))


def _host_name(config: BrokerConfig) -> str:
    """This host's full name where a listener is advertised without one; looking it up takes time."""
    if all(endpoint.host for endpoint in config.advertised_listeners):
        return "localhost"
    return socket.getfqdn()


def _write_ready_file(path: pathlib.Path, addresses: list[str]) -> None:
    """Appear complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("\n".join(addresses) + "\n")
    os.replace(temporary, path)
