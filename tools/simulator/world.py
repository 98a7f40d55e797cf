"""The simulated world: brokers, clients and the coordination service in one process, on one clock.

Everything in it comes from the seed: delays, the order of what happens at the same time, what a crash
leaves on a disk.  `trace` is the world's diary; its hash proves that two runs were the same.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from kafkalike.runtime.ports import Runtime
from kafkalike.types import TopicPartition
from kafkalike.zk.server.local import LocalCoordination
from kafkalike.zk.server.tree import CoordinationTree

from .broker import SimBroker
from .clock import SimClock
from .contract import Violation, WorldEvent
from .disk import MemoryDisk
from .network import SimInternet
from .process import Process, SimRandom, SimThreads
from .scenario import Scenario

MAX_EVENTS: Final = 100_000
"""How much of the diary is kept; all of it goes into the hash."""
CLIENT_HEADROOM_S: Final = 0.0005


class World:
    """One cluster and its surroundings.

    `clock` is simulated time (`clock.now_s` starts at 0), `network` all hosts and links, `zk` the
    coordination service, `brokers` the brokers by id.  Events go to every callable in `observers`.
    """

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.seed = seed
        self.scenario = scenario
        self.clock = SimClock(f"{seed}/ties", self._escaped)
        self.events: deque[WorldEvent] = deque(maxlen=MAX_EVENTS)
        self.observers: list[Callable[[WorldEvent], None]] = []
        self.violations: list[Violation] = []
        """What went wrong inside: errors that escaped, broken invariants of brokers."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._randoms: dict[str, SimRandom] = {}
        self._zk_random = self.random("zk")
        self.network = SimInternet(self.clock, self.random("network"), self._carried)
        self.zk = LocalCoordination(
            self.clock,
            delay_s=self._zk_delay_s,
            tree=CoordinationTree(first_session_id=0x1000000000000),
        )
        self._processes: dict[str, Process] = {}
        self.broker_ids = tuple(range(scenario.cluster.brokers))
        self.brokers: dict[int, SimBroker] = {
            broker_id: SimBroker(self, broker_id, scenario.cluster.properties)
            for broker_id in self.broker_ids
        }

    # -- chance --------------------------------------------------------------------------------

    def random(self, name: str) -> SimRandom:
        """An independent stream of chance; the same object for the same name."""
        stream = self._randoms.get(name)
        if stream is None:
            stream = self._randoms[name] = SimRandom(f"{self.seed}/{name}")
        return stream

    def _zk_delay_s(self) -> float:
        return 0.0002 + 0.001 * self._zk_random.random()

    # -- the diary -----------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Simulated milliseconds since the start."""
        return int(self.clock.now_s * 1000)

    def trace(self, kind: str, **fields: Any) -> None:
        """Write into the diary: goes to observers and into the hash.  Fields must print the same
        everywhere (no object addresses, no sets)."""
        event = WorldEvent(self.now_ms, kind, fields)
        self.events.append(event)
        self._hash.update(f"{self.clock.now_s!r} {event}\n".encode())
        for observer in self.observers:
            observer(event)

    def _carried(self, source: str, target: str, data: bytes) -> None:
        """Bytes arrived: they are in the hash, not in the diary."""
        self._hash.update(f"{self.clock.now_s!r} {source} {target} ".encode())
        self._hash.update(data)

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def broken(self, checker: str, text: str) -> None:
        """Something that must never happen did happen."""
        self.violations.append(Violation(checker, text, self.now_ms))
        self.trace("violation", checker=checker, text=text)

    def _escaped(self, process: Process | None, error: BaseException) -> None:
        where = "the simulator" if process is None else process.name
        logging.getLogger("kafkalike.simulator").error(
            "an error escaped in %s", where, exc_info=error
        )

    # -- work ----------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "Deferred[Any]":
        """Start a coroutine of the simulator's own; an error out of it is a violation."""
        result = Deferred.fromCoroutine(work)

        def failed(failure: Failure) -> None:
            if not failure.check(CancelledError):
                self.broken("simulator", f"{name} failed: {failure.getTraceback()}")

        return result.addErrback(failed)

    def client_runtime(self, host: str) -> Runtime:
        """Ports for a client on a machine of its own (or another client on the same machine)."""
        process = self._processes.get(host)
        if process is None:
            process = self._processes[host] = Process(self.clock, host)
        return Runtime(
            clock=process.clock,
            random=self.random(f"client/{host}"),
            disk=MemoryDisk(process.clock.now_ms),
            threads=SimThreads(self.clock, process),
            network=self.network.host(host, process),
        )

    def client_process(self, host: str) -> Process:
        """The process behind `client_runtime`, to freeze or kill a client."""
        self.client_runtime(host)
        return self._processes[host]

    def bootstrap(self) -> list[tuple[str, int]]:
        """Addresses of all brokers, up or not."""
        return [(broker.host, broker.port) for broker in self.brokers.values()]

    # -- time ----------------------------------------------------------------------------------

    def run_until(
        self, until: "float | Callable[[], bool] | Deferred[Any]", limit_s: float = 60.0
    ) -> bool:
        """Let time pass until a moment (`clock.now_s`), a condition or a Deferred's result.

        False when `limit_s` simulated seconds were not enough (the limit does not matter for a
        moment).  A condition is looked at after every step, a Deferred's result stays in it.
        """
        clock = self.clock
        if isinstance(until, (int, float)):
            while clock.step(until):
                pass
            return True
        end_s = clock.now_s + limit_s
        if isinstance(until, Deferred):
            waiting: Deferred[Any] = until
            while not waiting.called:
                if not clock.step(end_s):
                    return waiting.called
            return True
        while not until():
            if not clock.step(end_s):
                return until()
        return True

    def close(self) -> None:
        """End all processes and forget everything that waits."""
        for broker in self.brokers.values():
            broker.discard()
        for process in self._processes.values():
            process.kill()
        self.clock.clear()
        self.network.clear()
        self.observers.clear()

    # -- what is true --------------------------------------------------------------------------

    def running(self) -> Iterable[SimBroker]:
        """Brokers that serve."""
        return [broker for broker in self.brokers.values() if broker.is_running]

    def active_controllers(self) -> list[int]:
        """Ids of the brokers that take themselves for the controller."""
        return [broker.id for broker in self.running() if broker.is_controller]

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader that the coordination service has on record; None when there is none."""
        state = self.partition_state(partition)
        return None if state is None or state.leader < 0 else state.leader

    def isr(self, partition: TopicPartition) -> list[int]:
        state = self.partition_state(partition)
        return [] if state is None else list(state.isr)

    def partition_state(self, partition: TopicPartition) -> Any:
        """The decoded state znode, or None."""
        raise NotImplementedError

    def topics(self) -> dict[str, dict[int, list[int]]]:
        """Topic -> partition -> replicas as the coordination service has them."""
        raise NotImplementedError

    def unhealthy(self) -> list[str]:
        """Why the cluster is not whole: one line per reason; empty when it is."""
        raise NotImplementedError
