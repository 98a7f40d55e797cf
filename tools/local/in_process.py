"""All brokers of a local cluster in this process, on one loop, over the coordination service's tree.

The same broker code on the same network, files and records.  What differs: sessions with the
coordination service are objects instead of connections, brokers share one core, and the clock is a
`VirtualClock`.  A broker is frozen and killed by a gate around its surroundings (`gate.py`).
"""

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed

from kafkalike.broker.node import Node, StartupError
from kafkalike.config import BrokerConfig, ConfigError
from kafkalike.runtime.ports import Runtime
from kafkalike.zk.link import split_connect
from kafkalike.zk.server.local import LocalCoordination, LocalZkClient
from kafkalike.zk.server.server import CoordinationServer

from .. import cli
from .broker import BrokerHostError, Events, LocalBroker, shortened
from .faults import BrokerFaults
from .gate import Gate
from .layout import CLUSTER_LOG
from .links import Direction
from .virtual_clock import VirtualClock

KILLED: Final = -9


class InProcessHost:
    """Runs brokers as objects; a `BrokerHost`."""

    needs_relays = False

    def __init__(self, runtime: Runtime, reactor: Any) -> None:
        self.clock = VirtualClock(runtime.clock)
        self._runtime = replace(
            runtime, clock=self.clock, network=_with_clock(runtime.network, self.clock)
        )
        self._reactor = reactor
        self._events: Events
        self._coordination: LocalCoordination | None = None
        self._waiting: list[Callable[[], None]] = []
        self._nodes: dict[int, _Hosted] = {}
        self._dead: dict[int, LocalZkClient] = {}

    def start(self, events: Events) -> None:
        self._events = events

    def use_coordination(self, server: CoordinationServer) -> None:
        """Brokers live on this service's tree from now on; those launched already start now."""
        tree = server.tree
        self._coordination = LocalCoordination(self.clock, delay_s=0.0, tree=tree)
        write = tree.journal

        def journal(txn: Any) -> None:
            if write is not None:
                write(txn)
            # Watch events for clients that are connected from outside.
            self.clock.call_soon(server.flush)

        tree.journal = journal
        waiting, self._waiting = self._waiting, []
        for launch in waiting:
            launch()

    def launch(self, broker: LocalBroker, argument: dict[str, Any]) -> None:
        broker.log_path = broker.directory.parent / CLUSTER_LOG
        if self._coordination is None:
            self._waiting.append(lambda: self._launch(broker, argument))
        else:
            self._launch(broker, argument)

    def _launch(self, broker: LocalBroker, argument: dict[str, Any]) -> None:
        assert self._coordination is not None
        try:
            config = BrokerConfig.parse(argument["properties"])
        except ConfigError as error:
            logging.getLogger("kafkalike").error("error: %s", error)
            self._reactor.callLater(0.0, self._exited, broker, cli.FAILED)
            return
        lines = shortened(config.warnings())
        if lines:
            self._events.warns(lines)
        chroot = split_connect(config.zookeeper_connect)[1]
        zk = self._coordination.client(
            session_timeout_ms=config.zookeeper_session_timeout_ms, chroot=chroot
        )
        hosted = _Hosted(broker, config, Gate(self._runtime), zk, self._exited)
        self._nodes[broker.id] = hosted
        for command in argument["commands"] or ():
            hosted.obey(command)
        hosted.start(self._events)

    def _exited(self, broker: LocalBroker, code: int) -> None:
        self._nodes.pop(broker.id, None)
        self._events.exited(broker, code)

    def _hosted(self, broker: LocalBroker) -> "_Hosted | None":
        return self._nodes.get(broker.id)

    def stop(self, broker: LocalBroker) -> None:
        hosted = self._hosted(broker)
        if hosted is not None:
            hosted.resume()
            hosted.stop(cli.DONE)

    def kill(self, broker: LocalBroker) -> None:
        hosted = self._hosted(broker)
        if hosted is not None:
            hosted.kill()
            self._dead[broker.id] = hosted.zk
            self._reactor.callLater(0.0, self._exited, broker, KILLED)

    def pause(self, broker: LocalBroker) -> None:
        self._nodes[broker.id].pause()

    def resume(self, broker: LocalBroker) -> None:
        self._nodes[broker.id].resume()

    def command(self, broker: LocalBroker, command: dict[str, Any]) -> "Deferred[dict[str, Any]]":
        hosted = self._hosted(broker)
        if hosted is None:
            return fail(BrokerHostError(f"{broker.name} is not running"))
        try:
            return succeed(hosted.obey(command))
        except (KeyError, TypeError, ValueError) as error:
            return fail(BrokerHostError(f"{broker.name}: {error}"))

    def set_zookeeper_link(
        self, broker: LocalBroker, *, send: Direction, receive: Direction
    ) -> None:
        """Cut when either way is; a delay has no meaning for a session inside the process."""
        hosted = self._hosted(broker)
        if hosted is not None:
            hosted.set_zookeeper_link(cut=send.cut or receive.cut)

    def expire_session(self, broker: LocalBroker) -> bool:
        hosted = self._hosted(broker)
        if hosted is not None:
            hosted.zk.expire_session()
        return True

    def end_session_of_dead(self, broker: LocalBroker) -> None:
        zk = self._dead.pop(broker.id, None)
        if zk is not None:
            zk.expire_session()

    async def advance(self, seconds: float) -> float:
        await self.clock.advance(seconds)
        return self.clock.now_ms() / 1000

    def remove_at_end(self, directory: str) -> None:
        """Nothing outlives this process that could remove it."""

    def close(self) -> None:
        for hosted in list(self._nodes.values()):
            hosted.kill()
        self._nodes.clear()


class _Hosted:
    """One broker, its gate and its faults."""

    def __init__(
        self,
        broker: LocalBroker,
        config: BrokerConfig,
        gate: Gate,
        zk: LocalZkClient,
        exited: Callable[[LocalBroker, int], None],
    ) -> None:
        self.broker = broker
        self.zk = zk
        self._gate = gate
        self._exited = exited
        self._faults = BrokerFaults(gate.runtime, broker.id, lambda: (zk.session_id, b""))
        self._stopping = False
        self._seen: list[int] = []
        self._node = Node(
            config,
            self._faults.runtime,
            zk,
            on_fatal=lambda text: gate.runtime.clock.call_soon(self.stop, cli.FAILED),
            wrap_route=self._faults.answers.wrap,
        )

    def start(self, events: Events) -> None:
        def started(_: None) -> None:
            metadata = self._node.metadata
            metadata.add_listener(lambda update: saw(sorted(update.snapshot.brokers)))
            endpoint = self._node.advertised[0]
            events.ready(self.broker, f"{endpoint.host}:{endpoint.port}")
            saw(metadata.alive_brokers())

        def saw(brokers: list[int]) -> None:
            if brokers != self._seen:
                self._seen = brokers
                events.sees(self.broker, brokers)

        def failed(failure: Any) -> None:
            if self._gate.is_dead or self._stopping:
                return
            expected = failure.check(StartupError)
            logging.getLogger("kafkalike").error(
                "error: %s", failure.getErrorMessage() if expected else failure.getTraceback()
            )
            self.stop(cli.FAILED)

        work: Deferred[None] = Deferred.fromCoroutine(self._node.start())
        work.addCallbacks(started, failed)

    def stop(self, code: int) -> None:
        if self._stopping or self._gate.is_dead:
            return
        self._stopping = True

        def stopped(_: object) -> None:
            if not self._gate.is_dead:
                self._gate.kill()
                self._exited(self.broker, code)

        self._node.stop(controlled=code == cli.DONE).addBoth(stopped)

    def kill(self) -> None:
        if not self._gate.is_dead:
            self._gate.kill()
            self.zk.freeze()

    def pause(self) -> None:
        self._gate.shut()
        self.zk.freeze()

    def resume(self) -> None:
        if not self._gate.is_open and not self._gate.is_dead:
            self._gate.open()
            self.zk.thaw()

    def set_zookeeper_link(self, *, cut: bool) -> None:
        if cut:
            self.zk.isolate()
        else:
            self.zk.heal()

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        return self._faults.obey(command)


def _with_clock(network: Any, clock: VirtualClock) -> Any:
    """The same network with timeouts on another clock."""
    changed = copy.copy(network)
    changed.clock = clock
    return changed
