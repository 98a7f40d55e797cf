"""The simulated world: brokers, clients and the coordination service in one process, on one clock.

Everything in it comes from the seed: delays, the order of what happens at the same time, what a crash
leaves on a disk.  `trace` is the world's diary; its hash proves that two runs were the same.
"""

import hashlib
import json
import logging
import re
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from kafkalike.runtime.ports import Runtime
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.server.local import LocalCoordination
from kafkalike.zk.server.model import NodeCreated, NodeDataSet, NodeDeleted, Txn
from kafkalike.zk.server.tree import CoordinationTree
from kafkalike.zk.znodes import ControllerInfo, PartitionState, TopicInfo

from .broker import SimBroker
from .clock import SimClock
from .contract import Violation, WorldEvent
from .disk import MemoryDisk
from .links import Links
from .network import SimInternet
from .process import Process, SimRandom, SimThreads
from .scenario import Scenario
from .values import describe_error, writable

MAX_EVENTS: Final = 100_000
"""How much of the diary is kept; all of it goes into the hash."""

_STATE: Final = re.compile(r"^/brokers/topics/([^/]+)/partitions/(\d+)/state$")
_TOLD: Final = re.compile(
    r"^/(controller|controller_epoch|brokers/ids/\d+|brokers/topics/[^/]+|admin/.+)$"
)
"""Znodes whose changes are in the diary."""
_STAMP: Final = struct.Struct(">dI")
"""When bytes arrived, and how many."""


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
        self._ways: dict[tuple[str, str], bytes] = {}
        self._randoms: dict[str, SimRandom] = {}
        self._zk_random = self.random("zk")
        self.links = Links(self.random("network"))
        self.links.now_s = self.clock.monotonic
        self.network = SimInternet(self.clock, self.links.delay, self._carried)
        self.links.changed = self.network.resume
        self.graveyard: list[Any] = []
        """What belonged to dead processes: given back at the end only, when nobody listens."""
        self.zk = LocalCoordination(
            self.clock,
            delay_s=self._zk_delay_s,
            tree=CoordinationTree(journal=self._committed, first_session_id=0x1000000000000),
        )
        self._processes: dict[str, Process] = {}
        self.broker_ids = tuple(range(scenario.cluster.brokers))
        self.brokers: dict[int, SimBroker] = {
            broker_id: SimBroker(self, broker_id, scenario.cluster.own_properties())
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

    def trace(self, kind: str, /, **fields: Any) -> None:
        """Write into the diary: goes to observers and into the hash.  Fields must print the same
        everywhere (no object addresses, no sets)."""
        event = WorldEvent(self.now_ms, kind, fields)
        self.events.append(event)
        line = f"{self.clock.now_s!r} {event}\n"
        self._hash.update(line.encode("utf-8", "backslashreplace"))
        for observer in list(self.observers):
            try:
                observer(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # the user's own: told once, then it watches no more
                self.observers.remove(observer)
                self.broken("simulator", f"an observer failed: {describe_error(error)}")

    def _carried(self, source: str, target: str, data: bytes) -> None:
        """Bytes arrived: they are in the hash, not in the diary."""
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = f"{source} {target} ".encode()
        self._hash.update(_STAMP.pack(self.clock.now_s, len(data)) + way + data)

    def _committed(self, txn: Txn) -> None:
        """The coordination service changed: who leads, who is in sync, who is there."""
        for change in txn.changes:
            if isinstance(change, (NodeCreated, NodeDataSet)):
                state = _STATE.match(change.path)
                if state is not None:
                    value = json.loads(change.data or b"{}")
                    self.trace(
                        "state",
                        of="-".join(state.groups()),
                        leader=value.get("leader"),
                        epoch=value.get("leader_epoch"),
                        isr=value.get("isr"),
                        controller_epoch=value.get("controller_epoch"),
                    )
                elif _TOLD.match(change.path):
                    text = (change.data or b"").decode(errors="replace")
                    self.trace("znode", path=change.path, data=text)
            elif isinstance(change, NodeDeleted) and _TOLD.match(change.path):
                self.trace("znode gone", path=change.path)

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def broken(self, checker: str, text: str) -> None:
        """Something that must never happen did happen."""
        checker, text = writable(str(checker)), writable(str(text))
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

    def client_processes(self) -> list[Process]:
        """All clients so far, in the order of their coming."""
        return list(self._processes.values())

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
            clock.run(until)
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
        self.graveyard.clear()

    # -- what is true --------------------------------------------------------------------------

    def running(self) -> list[SimBroker]:
        """Brokers that serve."""
        return [broker for broker in self.brokers.values() if broker.is_running]

    def active_controllers(self) -> list[int]:
        """Ids of the brokers that take themselves for the controller."""
        return [broker.id for broker in self.brokers.values() if broker.is_controller]

    def registered(self) -> list[int]:
        """Ids of the brokers that the coordination service has as alive."""
        return sorted(map(int, self._children(paths.BROKER_IDS)))

    def registration(self, broker_id: int) -> int:
        """Epoch of a broker's registration as the coordination service has it, -1 without one."""
        node = self.zk.tree.nodes.get(paths.broker(broker_id))
        return -1 if node is None else node.stat().czxid

    def controller(self) -> int | None:
        """The controller that the coordination service has on record."""
        data = self._data(paths.CONTROLLER)
        return None if data is None else ControllerInfo.decode(data, paths.CONTROLLER).broker_id

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader that the coordination service has on record; None when there is none."""
        state = self.partition_state(partition)
        return None if state is None or state.leader < 0 else state.leader

    def isr(self, partition: TopicPartition) -> list[int]:
        """The in-sync replicas that the coordination service has on record."""
        state = self.partition_state(partition)
        return [] if state is None else list(state.isr)

    def partition_state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        """Leadership as the coordination service has it, or None."""
        path = paths.partition_state(partition.topic, partition.partition)
        node = self.zk.tree.nodes.get(path)
        if node is None:
            return None
        return PartitionState.decode(node.data, path, node.stat().version).leader_and_isr

    def topics(self) -> dict[str, TopicInfo]:
        """All topics as the coordination service has them."""
        found: dict[str, TopicInfo] = {}
        for topic in self._children(paths.TOPICS):
            found[topic] = TopicInfo.decode(self._data(paths.topic(topic)), paths.topic(topic))
        return found

    def partitions(self) -> dict[TopicPartition, ReplicaAssignment]:
        """All partitions and where their replicas are."""
        return {
            TopicPartition(topic, number): assignment
            for topic, info in self.topics().items()
            for number, assignment in info.partitions.items()
        }

    def _children(self, path: str) -> list[str]:
        node = self.zk.tree.nodes.get(path)
        return [] if node is None else sorted(node.children)

    def _data(self, path: str) -> bytes | None:
        node = self.zk.tree.nodes.get(path)
        return None if node is None else node.data

    def unhealthy(self) -> list[str]:
        """Why the cluster is not whole: one line per reason; empty when it is.

        Whole: all brokers serve and are registered, one controller, every partition led with all
        replicas in sync, every broker knows so, nothing asked of the controller waits.
        """
        reasons = [
            f"broker {broker.id} does not serve"
            for broker in self.brokers.values()
            if not broker.is_running
        ]
        if reasons:
            return reasons
        if self.registered() != list(self.broker_ids):
            reasons.append(f"registered are {self.registered()}")
        if self.active_controllers() != [self.controller()]:
            reasons.append(
                f"controllers are {self.active_controllers()}, on record is {self.controller()}"
            )
        for path in (paths.DELETE_TOPICS, paths.PREFERRED_REPLICA_ELECTION):
            node = self.zk.tree.nodes.get(path)
            if node is not None and (node.children or path == paths.PREFERRED_REPLICA_ELECTION):
                reasons.append(f"{path} waits: {sorted(node.children)}")
        if paths.REASSIGN_PARTITIONS in self.zk.tree.nodes:
            reasons.append("a reassignment is under way")
        for partition, assignment in self.partitions().items():
            reasons += self._partition_troubles(partition, assignment)
        return reasons

    def _partition_troubles(
        self, partition: TopicPartition, assignment: ReplicaAssignment
    ) -> list[str]:
        name = f"{partition.topic}-{partition.partition}"
        state = self.partition_state(partition)
        if state is None:
            return [f"{name} has no state"]
        if state.leader < 0:
            return [f"{name} has no leader, isr {list(state.isr)}"]
        if assignment.adding or assignment.removing:
            return [f"{name} is being reassigned: {assignment}"]
        if sorted(state.isr) != sorted(assignment.replicas):
            return [f"{name} has isr {list(state.isr)} of replicas {list(assignment.replicas)}"]
        troubles: list[str] = []
        for broker in self.brokers.values():
            assert broker.node is not None
            known = broker.node.metadata.partition(partition)
            if known is None or (known.leader, known.leader_epoch) != (
                state.leader,
                state.leader_epoch,
            ):
                troubles.append(f"broker {broker.id} does not know the leader of {name}")
        troubles += [
            f"broker {broker_id} has no log of {name}"
            for broker_id in assignment.replicas
            if self.brokers[broker_id].log(partition) is None
        ]
        return troubles

    def restless(self) -> list[str]:
        """Why the cluster has not come to rest: `unhealthy`, and replicas that are not equal up to
        their ends.  Comes true only while nobody produces."""
        reasons = self.unhealthy()
        if reasons:
            return reasons
        for partition, assignment in self.partitions().items():
            logs = [(broker, self.brokers[broker].log(partition)) for broker in assignment.replicas]
            ends = [(broker, log.log_end_offset, log.high_watermark) for broker, log in logs]
            if len({end[1:] for end in ends}) > 1 or any(end != mark for _, end, mark in ends):
                reasons.append(
                    f"{partition.topic}-{partition.partition} (broker, end, high watermark): {ends}"
                )
        return reasons
