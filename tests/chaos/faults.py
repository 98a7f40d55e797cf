"""What can go wrong: each fault begins, lasts, and ends.

A fault names the brokers it troubles, so that a schedule keeps most of the cluster alive, and whether
it troubles ZooKeeper.  `end` leaves the cluster to heal by itself.
"""

import random
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, Final

from kafkalike.messages.cluster import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from tests.chaos.field import STOP_LIMIT_S, TOPIC, ChaosBroker, Field, Way, tear
from tests.chaos.links import CLIENTS, ZOOKEEPER, End
from tests.chaos.observer import Wire

OUT_OF_ISR_LIMIT_S: Final = 12.0
ADMIN_TIMEOUT_MS: Final = 2000


@dataclass(slots=True)
class Fault:
    """One thing that is broken now."""

    name: str
    brokers: frozenset[int]
    zookeeper: bool
    until_s: float
    end: Callable[[], str]
    """Mends it; what there is to tell."""


@dataclass(slots=True)
class Chooser:
    """Draws faults from a seeded source."""

    field: Field
    random: random.Random
    long_s: float
    """Longer than a session lasts."""
    notes: list[str] = member(default_factory=list)
    findings: list[str] = member(default_factory=list)

    def duration(self) -> float:
        """Short, middling, or longer than a session."""
        kind = self.random.random()
        if kind < 0.35:
            return self.random.uniform(0.05, 0.8)
        if kind < 0.7:
            return self.random.uniform(0.8, 3.0)
        return self.random.uniform(self.long_s, self.long_s + 3.0)

    def draw(self, free: list[int], *, zookeeper: bool) -> Fault | None:
        """A fault that touches none but these brokers, and ZooKeeper only if allowed; it has begun.

        None when what was drawn cannot be done now.
        """
        names = [name for name, kind in KINDS.items() if zookeeper or not kind.zookeeper]
        weights = [KINDS[name].weight for name in names]
        name = self.random.choices(names, weights)[0]
        return KINDS[name].begin(self, name, free)

    def pick(self, free: list[int]) -> ChaosBroker | None:
        return self.field.brokers[self.random.choice(free)] if free else None

    def lasting(
        self,
        name: str,
        brokers: Iterable[int],
        end: Callable[[], str],
        *,
        zookeeper: bool = False,
        duration_s: float | None = None,
    ) -> Fault:
        until_s = time.monotonic() + (self.duration() if duration_s is None else duration_s)
        return Fault(name, frozenset(brokers), zookeeper, until_s, end)

    def instant(self, name: str) -> Fault:
        return Fault(name, frozenset(), False, time.monotonic(), lambda: "")


# -- processes ---------------------------------------------------------------------------------------


def _start(broker: ChaosBroker) -> Callable[[], str]:
    def end() -> str:
        broker.launch()
        return ""

    return end


def kill(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    broker.kill()
    return chooser.lasting(f"{name} {broker.id}", [broker.id], _start(broker))


def kill_controller(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    found = chooser.field.controller()
    if found is None or found not in free:
        return None
    return kill(chooser, name, [found])


def kill_leader(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    leader = chooser.field.state(chooser.random.randrange(chooser.field.partitions))["leader"]
    return kill(chooser, name, [leader]) if leader in free else None


def kill_all(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    if free != chooser.field.ids:
        return None
    brokers = list(chooser.field.brokers.values())
    for broker in brokers:
        broker.kill()

    def end() -> str:
        for broker in brokers:
            broker.launch()
        return ""

    return chooser.lasting(name, free, end)


def freeze(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    broker.freeze()

    def end() -> str:
        broker.thaw()
        return ""

    return chooser.lasting(f"{name} {broker.id}", [broker.id], end)


def stop(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None or not broker.is_ready:
        return None
    broker.wanted = False
    broker.signal(signal.SIGTERM)

    def end() -> str:
        took = _wait_end(chooser, broker)
        broker.launch()
        return took

    return chooser.lasting(f"{name} {broker.id}", [broker.id], end)


def _wait_end(chooser: Chooser, broker: ChaosBroker) -> str:
    begun = time.monotonic()
    try:
        code = broker.wait(STOP_LIMIT_S)
    except AssertionError as error:
        chooser.findings.append(f"SIGTERM: {error}")
        broker.kill()
        return "killed"
    if code:
        chooser.findings.append(f"SIGTERM: broker {broker.id} ended with {code}")
    return f"ended {time.monotonic() - begun:.1f} s later with {code}"


def roll(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """Each broker in turn stops in order and starts again, as an operator does it."""
    if free != chooser.field.ids or chooser.field.trouble() is not None:
        return None
    for broker in chooser.field.brokers.values():
        broker.wanted = False
        broker.signal(signal.SIGTERM)
        _wait_end(chooser, broker)
        broker.launch()
        broker.wait_ready()
        deadline = time.monotonic() + 20
        while chooser.field.trouble() is not None and time.monotonic() < deadline:
            time.sleep(0.1)
    return chooser.instant(name)


# -- network -----------------------------------------------------------------------------------------


def _cut(chooser: Chooser, name: str, brokers: Iterable[int], ways: list[Way]) -> Fault:
    network = chooser.field.network
    network.block(ways)

    def end() -> str:
        reset = chooser.random.random() < 0.5
        network.unblock(ways, reset=reset)
        return "connections reset" if reset else "bytes arrive late"

    return chooser.lasting(name, brokers, end)


def _ways(chooser: Chooser, one: End, others: Iterable[End]) -> tuple[str, list[Way]]:
    """Both ways, or one of them."""
    there: list[Way] = [(one, other) for other in others]
    back: list[Way] = [(other, one) for _, other in there]
    kind = chooser.random.randrange(4)
    if kind < 2:
        return "<->", there + back
    return ("->", there) if kind == 2 else ("<-", back)


def isolate(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """From all other brokers, but not from ZooKeeper and clients."""
    broker = chooser.pick(free)
    if broker is None:
        return None
    others = [other for other in chooser.field.ids if other != broker.id]
    arrow, ways = _ways(chooser, broker.id, others)
    return _cut(chooser, f"{name} {broker.id}{arrow}brokers", [broker.id], ways)


def cut_pair(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    other = chooser.random.choice([b for b in chooser.field.ids if b != broker.id])
    arrow, ways = _ways(chooser, broker.id, [other])
    return _cut(chooser, f"{name} {broker.id}{arrow}{other}", [broker.id], ways)


def cut_zookeeper(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    arrow, ways = _ways(chooser, broker.id, [ZOOKEEPER])
    return _cut(chooser, f"{name} {broker.id}{arrow}zookeeper", [broker.id], ways)


def cut_clients(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    arrow, ways = _ways(chooser, broker.id, [CLIENTS])
    return _cut(chooser, f"{name} {broker.id}{arrow}clients", [broker.id], ways)


def cut_off(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """From everybody."""
    broker = chooser.pick(free)
    if broker is None:
        return None
    arrow, ways = _ways(chooser, broker.id, [e for e in chooser.field.ends if e != broker.id])
    return _cut(chooser, f"{name} {broker.id}{arrow}all", [broker.id], ways)


def slow(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None:
        return None
    network = chooser.field.network
    _, ways = _ways(chooser, broker.id, [e for e in chooser.field.ends if e != broker.id])
    delay_s = chooser.random.uniform(0.02, 0.4)
    network.delay(ways, delay_s)

    def end() -> str:
        network.delay(ways, 0.0)
        return ""

    return chooser.lasting(f"{name} {broker.id} by {delay_s:.2f} s", [broker.id], end)


def reset(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """All connections of a broker break, once."""
    broker = chooser.pick(free)
    if broker is None:
        return None
    ends = [e for e in chooser.field.ends if e != broker.id]
    chooser.field.network.reset([(broker.id, end) for end in ends])
    return chooser.instant(f"{name} {broker.id}")


# -- ZooKeeper ---------------------------------------------------------------------------------------


def freeze_zookeeper(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    zookeeper = chooser.field.zookeeper
    zookeeper.freeze()

    def end() -> str:
        zookeeper.thaw()
        return ""

    return chooser.lasting(name, (), end, zookeeper=True)


def kill_zookeeper(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    zookeeper = chooser.field.zookeeper
    zookeeper.kill()

    def end() -> str:
        zookeeper.start()
        return ""

    duration_s = chooser.random.uniform(0.0, 3.0)
    return chooser.lasting(name, (), end, zookeeper=True, duration_s=duration_s)


# -- disks -------------------------------------------------------------------------------------------


def full_disk(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    broker = chooser.pick(free)
    if broker is None or not broker.is_ready:
        return None
    disks = (
        broker.disks if chooser.random.random() < 0.25 else [chooser.random.choice(broker.disks)]
    )
    left = chooser.random.choice((0, 20_000, 100_000))
    for disk in disks:
        disk.fill(left)
    if len(disks) == len(broker.disks):
        broker.wanted = False  # it has to give up
    what = ",".join(disk.path.name for disk in disks)

    def end() -> str:
        for disk in disks:
            disk.free()
        by_itself = not broker.runs
        if by_itself:
            broker.kill()
            said = "had ended"
        elif chooser.random.random() < 0.5:
            broker.kill()
            said = "killed"
        else:
            broker.wanted = False
            broker.signal(signal.SIGTERM)
            said = _wait_end(chooser, broker)
        broker.launch()
        return said

    duration_s = chooser.random.uniform(1.0, 4.0)
    return chooser.lasting(
        f"{name} {broker.id} {what} {left} bytes left", [broker.id], end, duration_s=duration_s
    )


def torn_tail(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """Killed, and what had not been synced is damaged.

    Kafka's rules bear that as long as the replica is in no ISR when it comes back (it could be the
    only one left there, and everything it lost would be gone): it is waited for.
    """
    broker = chooser.pick(free)
    if broker is None or chooser.field.trouble() is not None:
        return None
    broker.kill()

    def end() -> str:
        deadline = time.monotonic() + OUT_OF_ISR_LIMIT_S
        out = False
        while not out and time.monotonic() < deadline:
            try:
                out = not chooser.field.in_an_isr(broker.id)
            except Exception:
                out = False
            time.sleep(0.1)
        said = tear(broker, chooser.random) if out else "still in an ISR: left alone"
        broker.launch()
        return said

    return chooser.lasting(f"{name} {broker.id}", [broker.id], end)


# -- administration ----------------------------------------------------------------------------------


def _ask(chooser: Chooser, broker_id: int, request: Any, version: int) -> str:
    wire = Wire(chooser.field.brokers[broker_id].port)
    try:
        wire.ask(request, version)
        return "answered"
    except OSError as error:
        return f"no answer: {error}"
    finally:
        wire.close()


def elect(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """Preferred leaders everywhere."""
    controller = chooser.field.controller()
    if controller is None or controller not in free:
        return None
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=ADMIN_TIMEOUT_MS)
    said = _ask(chooser, controller, request, 2)
    return chooser.instant(f"{name} {said}")


def reassign(chooser: Chooser, name: str, free: list[int]) -> Fault | None:
    """A partition's replicas move to other brokers, or change their order."""
    controller = chooser.field.controller()
    if controller is None or controller not in free:
        return None
    partition = chooser.random.randrange(chooser.field.partitions)
    replicas = chooser.random.sample(chooser.field.ids, 3)
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = kind.ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=ADMIN_TIMEOUT_MS, topics=[kind(name=TOPIC, partitions=[wanted])]
    )
    said = _ask(chooser, controller, request, 0)
    return chooser.instant(f"{name} {partition} to {replicas} {said}")


@dataclass(slots=True, frozen=True)
class Kind:
    begin: Callable[[Chooser, str, list[int]], Fault | None]
    weight: int
    zookeeper: bool = False
    """It needs ZooKeeper to be well, or makes it unwell."""


KINDS: Final = {
    "kill": Kind(kill, 10),
    "kill-controller": Kind(kill_controller, 5, zookeeper=True),
    "kill-leader": Kind(kill_leader, 5, zookeeper=True),
    "kill-all": Kind(kill_all, 1),
    "freeze": Kind(freeze, 9),
    "stop": Kind(stop, 7),
    "roll": Kind(roll, 2, zookeeper=True),
    "isolate": Kind(isolate, 8),
    "cut": Kind(cut_pair, 9),
    "cut-zookeeper": Kind(cut_zookeeper, 8),
    "cut-clients": Kind(cut_clients, 5),
    "cut-off": Kind(cut_off, 5),
    "slow": Kind(slow, 4),
    "reset": Kind(reset, 4),
    "freeze-zookeeper": Kind(freeze_zookeeper, 5, zookeeper=True),
    "kill-zookeeper": Kind(kill_zookeeper, 3, zookeeper=True),
    "full-disk": Kind(full_disk, 6),
    "torn-tail": Kind(torn_tail, 7, zookeeper=True),
    "elect": Kind(elect, 3, zookeeper=True),
    "reassign": Kind(reassign, 4, zookeeper=True),
}
