"""Everything that can go wrong, by name, and the end of it.

A fault names its target when it is written and finds it when it strikes: `broker-1`, `controller`,
`leader` (of some partition), `any`; for links `broker-0>broker-2` (one way) or `broker-0|broker-2`.

Only power loss can lose acknowledged records: Kafka keeps them safe by replication, not by syncing.
So `power` and `power_at_operation` strike where another in-sync replica of everything runs, and until
the broker has caught up again no other broker is taken away.  What Kafka itself would lose is so left
out; `args: {"always": true}` strikes regardless.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kafkalike.runtime.ports import StorageError

from .broker import SimBroker
from .process import SimRandom
from .scenario import Fault
from .values import (
    CHANCE,
    TIME_MS,
    YES_NO,
    Number,
    ScenarioError,
    Text,
    Value,
    Whole,
    check_values,
    expect,
)
from .world import World

_POLL_S: Final = 0.25
_LONGEST_ABSENCE_S: Final = 60.0

ROLES: Final = ("leader", "controller", "follower")
"""Targets that are looked up when a fault strikes."""

Undo: TypeAlias = Callable[[], object]


class Trouble:
    """Makes faults happen and undoes them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("faults")
        self._healed = False
        self._shorter: SimBroker | None = None
        """A broker that has lost records and not yet caught up."""
        self._registrations: dict[int, int] = {}
        """Of all brokers, when the power went."""

    def strike(self, fault: Fault) -> None:
        """Let one fault happen now."""
        world = self._world
        kind = FAULTS[fault.kind]
        if self._healed:
            return
        if kind.takes_away and self._shorter is not None:
            world.trace("fault left out", kind=fault.kind, why="a broker has yet to catch up")
            return
        world.trace("fault", what=str(fault))
        undo = kind.strike(self, fault)
        if undo is not None and fault.duration_ms:
            world.clock.call_later(fault.duration_ms / 1000, self._undo, fault, undo)

    def _undo(self, fault: Fault, undo: Undo) -> None:
        if not self._healed:
            self._world.trace("fault ends", kind=fault.kind, target=fault.target)
            undo()

    def heal(self) -> None:
        """End all faults: links are whole, brokers run, disks have room, clocks are right."""
        self._healed = True
        world = self._world
        world.links.heal_all()
        if not world.zk.serving:
            world.zk.start_serving()
        for client in world.client_processes():
            client.thaw()
        for broker in world.brokers.values():
            broker.free_disk()
            broker.failing_dir = None
            broker.sync_delay_s = 0.0
            broker.bad_directory = ""
            broker.on_operation = None
            if broker.skew_ms:
                broker.clock_skew(0)
            broker.thaw()
            if broker.zk is not None:
                broker.zk.heal()
                broker.zk.restore_connection()
            if broker is not self._shorter:
                broker.start()
            self._give_back_dirs(broker)

    def _give_back_dirs(self, broker: SimBroker) -> None:
        """A directory that failed stays away for this life of its broker, which may be starting."""
        if broker.has_offline_dir:
            broker.restart()
        elif not broker.is_running:
            self._world.clock.call_later(_POLL_S, self._give_back_dirs, broker)

    # -- targets -------------------------------------------------------------------------------

    def broker(self, fault: Fault) -> SimBroker:
        """The broker a fault strikes."""
        world, target = self._world, fault.target
        if target == "controller":
            controller = world.controller()
            return self._any() if controller is None else world.brokers[controller]
        if target == "leader":
            leaders = sorted({world.leader(tp) for tp in world.partitions()} - {None}, key=str)
            chosen = self._random.choice(leaders) if leaders else None
            return self._any() if chosen is None else world.brokers[chosen]
        if target == "follower":
            busy = {world.leader(tp) for tp in world.partitions() if not tp.topic.startswith("__")}
            busy.add(world.controller())
            idle = [one for one in world.broker_ids if one not in busy]
            return world.brokers[self._random.choice(idle)] if idle else self._any()
        if target in ("any", ""):
            return self._any()
        return world.brokers[broker_of(target, world.broker_ids)]

    def _any(self) -> SimBroker:
        return self._world.brokers[self._random.choice(self._world.broker_ids)]

    def links(self, fault: Fault) -> list[tuple[str, str]]:
        """Directions: of the two hosts named, or between a broker and all other brokers."""
        target = fault.target
        for mark in (">", "|"):
            source, found, other = target.partition(mark)
            if found:
                one, two = self._host(source), self._host(other)
                both = [(one, two), (two, one)]
                return [] if one == two else both if mark == "|" else both[:1]
        broker = self.broker(fault)
        others = [one.host for one in self._world.brokers.values() if one is not broker]
        return [pair for host in others for pair in ((broker.host, host), (host, broker.host))]

    def _host(self, name: str) -> str:
        """`leader>controller`: whoever that is when the fault strikes."""
        return self.broker(Fault(0, "", name)).host if name in ROLES else name

    # -- the end of processes ------------------------------------------------------------------

    def crash(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.crash()
        return broker.start

    def stop(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.stop()

        def start() -> None:
            broker.wanted = True
            if not broker.is_up:
                broker.start()

        return start

    def between_controllers(self, fault: Fault) -> Undo:
        """The controller is killed and another broker with it, which is back before there is another
        controller: nobody saw it go.  The first is away for `away_ms`."""
        world = self._world
        broker = self.broker(fault)
        controller = world.controller()
        if controller is not None and controller != broker.id:
            first = world.brokers[controller]
        else:
            first = broker
            others = [one for one in world.broker_ids if one != first.id]
            broker = world.brokers[self._random.choice(others)]
        first.crash()
        broker.crash()
        away_s = int(fault.args.get("away_ms", 6000)) / 1000
        world.clock.call_later(away_s, self._start_again, first, first.lives)
        return broker.start

    def _start_again(self, broker: SimBroker, life: int) -> None:
        if not self._healed and broker.lives == life and broker is not self._shorter:
            broker.start()

    def expire_at_start(self, fault: Fault) -> Undo:
        """A broker is killed; its next session ends `after_ms` after it has begun to start."""
        world, broker = self._world, self.broker(fault)
        broker.crash()

        def start() -> None:
            broker.start()
            after_s = int(fault.args.get("after_ms", 20)) / 1000
            world.clock.call_later(after_s, expire, broker.lives)

        def expire(life: int) -> None:
            if not self._healed and broker.lives == life and broker.zk is not None:
                world.trace("session ends", broker=broker.id)
                broker.zk.expire_session()

        return start

    def power(self, fault: Fault) -> None:
        self._lose_power(self.broker(fault), fault)

    def power_at_operation(self, fault: Fault) -> Undo:
        """The machine loses power in the middle of its work on the disk, `after` operations on."""
        broker = self.broker(fault)
        left = int(fault.args.get("after", 0))

        def operation(name: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                broker.on_operation = None
                if self._shorter is None and self._lose_power(broker, fault):
                    raise StorageError(f"{path}: the machine lost power during {name}")

        broker.on_operation = operation

        def forget() -> None:
            if broker.on_operation is operation:
                broker.on_operation = None

        return forget

    def _lose_power(self, broker: SimBroker, fault: Fault) -> bool:
        world = self._world
        always = bool(fault.args.get("always", False))
        if not broker.is_up or not (always or self._can_lose(broker)):
            self._world.trace("power stays on", broker=broker.id)
            return False
        if always and any(broker.id in world.isr(partition) for partition in world.partitions()):
            world.trace("unsafe power loss", broker=broker.id)
        broker.crash(
            lose_unsynced=True,
            torn_tail=bool(fault.args.get("torn_tail", True)),
            flipped=bool(fault.args.get("flipped", False)),
        )
        if not always:
            self._shorter = broker
            self._registrations = {one: world.registration(one) for one in world.broker_ids}
        now_s = self._world.clock.now_s
        earliest_s = now_s + fault.duration_ms / 1000
        self._world.clock.call_later(_POLL_S, self._watch_return, broker, now_s, earliest_s)
        return True

    def _can_lose(self, broker: SimBroker) -> bool:
        """Whether another running in-sync replica has all that this broker has."""
        world = self._world
        for partition in world.partitions():
            isr = world.isr(partition)
            if broker.id in isr and not any(
                other != broker.id and world.brokers[other].is_running for other in isr
            ):
                return False
        return True

    def _is_left_alone(self, broker: SimBroker) -> bool:
        """Whether it is an ISR by itself since another replica's session has ended."""
        world = self._world
        return any(
            world.isr(partition) == [broker.id]
            and any(
                world.registration(other) != self._registrations.get(other)
                for other in assignment.replicas
                if other != broker.id
            )
            for partition, assignment in world.partitions().items()
        )

    def _watch_return(self, broker: SimBroker, lost_s: float, earliest_s: float) -> None:
        """Start the broker once nobody takes it for in sync; then wait until it is."""
        world = self._world
        now_s = world.clock.now_s
        too_long = now_s > lost_s + _LONGEST_ABSENCE_S
        if self._shorter is broker and not broker.is_up and self._is_left_alone(broker):
            # A second failure: those who had all that it had lost their sessions before anybody saw
            # that it was gone, so that its empty disk is all that counts.
            world.trace("unsafe power loss", broker=broker.id)
        if not broker.is_up:
            counted = self._shorter is broker and any(
                broker.id in isr and len(isr) > 1 for isr in map(world.isr, world.partitions())
            )
            if (not counted and now_s >= earliest_s) or too_long:
                broker.start()
        elif self._shorter is not broker:
            return
        elif broker.is_running and all(
            broker.id in world.isr(partition)
            for partition, assignment in world.partitions().items()
            if broker.id in assignment.replicas
        ):
            self._shorter = None
            return
        if not too_long or not broker.is_up:
            world.clock.call_later(_POLL_S, self._watch_return, broker, lost_s, earliest_s)
        else:
            self._shorter = None

    def freeze(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.freeze()
        return broker.thaw

    def freeze_client(self, fault: Fault) -> Undo | None:
        """A client stands still, for instance a group's member, which is then taken for dead."""
        clients = self._world.client_processes()
        if not clients:
            return None
        client = self._random.choice(clients)
        self._world.trace("client frozen", name=client.name)
        client.freeze()
        return client.thaw

    # -- links ---------------------------------------------------------------------------------

    def cut(self, fault: Fault) -> Undo:
        pairs, links = self.links(fault), self._world.links
        for source, target in pairs:
            links.cut(source, target)

        def heal() -> None:
            for source, target in pairs:
                links.heal(source, target)

        return heal

    def mute(self, fault: Fault) -> Undo:
        host, links = self.broker(fault).host, self._world.links
        links.mute(host, True)
        return lambda: links.mute(host, False)

    def deaf(self, fault: Fault) -> Undo:
        host, links = self.broker(fault).host, self._world.links
        links.deafen(host, True)
        return lambda: links.deafen(host, False)

    def reset(self, fault: Fault) -> None:
        """Reset connections of a broker, each with a chance, some in the middle of a frame."""
        chance = float(fault.args.get("chance", 1.0))
        for end in self._world.network.sockets_of(self.broker(fault).host):
            if not end.closed and self._random.random() < chance:
                end.cut(self._random)

    def slow_link(self, fault: Fault) -> Undo:
        pairs, links = self.links(fault), self._world.links
        for source, target in pairs:
            links.slow(source, target, float(fault.args.get("delay_s", 0.2)))

        def heal() -> None:
            for source, target in pairs:
                links.slow(source, target, 0.0)

        return heal

    def loss(self, fault: Fault) -> Undo:
        links = self._world.links
        links.loss = float(fault.args.get("part", 0.05))

        def heal() -> None:
            links.loss = 0.0

        return heal

    def slow_reader(self, fault: Fault) -> Undo:
        host, links = self.broker(fault).host, self._world.links
        links.read_slowly(host, float(fault.args.get("bytes_per_s", 20_000)))
        return lambda: links.read_slowly(host, 0.0)

    # -- disks and clocks ----------------------------------------------------------------------

    def disk_full(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.fill_disk(int(fault.args.get("room_bytes", 0)))
        return broker.free_disk

    def failed_sync(self, fault: Fault) -> Undo:
        """The device behind one log directory, or all, fails to sync: `dir` counts from 0."""
        broker = self.broker(fault)
        number = fault.args.get("dir")
        dirs = broker.log_dirs
        broker.failing_dir = "" if number is None else dirs[int(number) % len(dirs)]

        def heal() -> None:
            broker.failing_dir = None

        return heal

    def bad_directory(self, fault: Fault) -> Undo:
        """Nothing can be written below one path any more, `/data` unless args say otherwise."""
        broker = self.broker(fault)
        broker.bad_directory = str(fault.args.get("directory", "/data"))

        def heal() -> None:
            broker.bad_directory = ""

        return heal

    def late_order(self, fault: Fault) -> None:
        """An order of some controller arrives once more, when it is out of date (orders.py)."""
        self.broker(fault).orders.repeat(
            self._random,
            stops=bool(fault.args.get("stops", False)),
            former_life=bool(fault.args.get("former_life", False)),
        )

    def late_sync(self, fault: Fault) -> None:
        """What a group's leader assigned in an earlier generation arrives once more (orders.py)."""
        self.broker(fault).orders.repeat_sync()

    def slow_sync(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.sync_delay_s = float(fault.args.get("delay_s", 0.5))

        def heal() -> None:
            broker.sync_delay_s = 0.0

        return heal

    def clock_skew(self, fault: Fault) -> Undo:
        broker = self.broker(fault)
        broker.clock_skew(int(fault.args.get("skew_ms", 60_000)))
        return lambda: broker.clock_skew(0)

    # -- coordination --------------------------------------------------------------------------

    def zk_isolate(self, fault: Fault) -> Undo | None:
        zk = self.broker(fault).zk
        if zk is None:
            return None
        zk.isolate()
        return zk.heal

    def zk_drop(self, fault: Fault) -> None:
        """The connection breaks; what was under way may or may not have been applied."""
        zk = self.broker(fault).zk
        if zk is not None:
            zk.drop_connection(
                applied=bool(fault.args.get("applied", False)),
                reconnect_after_s=max(fault.duration_ms, 1) / 1000,
            )

    def zk_lose_answer(self, fault: Fault) -> None:
        """The answer to one of the next requests is lost with the connection, wherever in its work
        the broker waits for it; `skip` requests come through before."""
        zk = self.broker(fault).zk
        if zk is None:
            return
        left = int(fault.args.get("skip", 0))

        def match(kind: str, paths: tuple[str, ...]) -> bool:
            nonlocal left
            left -= 1
            return left < 0

        zk.fail_next(match, applied=bool(fault.args.get("applied", True)))

    def depose(self, fault: Fault) -> None:
        """Somebody deletes `/controller`, as operators do to have another one elected."""
        if self._world.zk.stat("/controller") is not None:
            self._world.zk.delete("/controller")

    def zk_expire(self, fault: Fault) -> None:
        zk = self.broker(fault).zk
        if zk is not None:
            zk.expire_session()

    def zk_down(self, fault: Fault) -> Undo | None:
        zk = self._world.zk
        if not zk.serving:
            return None
        zk.stop_serving(applied=bool(fault.args.get("applied", False)))

        def start() -> None:
            if not zk.serving:
                zk.start_serving()

        return start


@dataclass(slots=True, frozen=True)
class FaultKind:
    """What a fault does, which args it takes, whether it can take a replica away, how it is drawn."""

    strike: Callable[[Trouble, Fault], Undo | None]
    args: Mapping[str, Value] = field(default_factory=dict)
    takes_away: bool = True
    lasts_ms: tuple[int, int] = (0, 0)
    draw: Callable[[SimRandom], "dict[str, object]"] = lambda random: {}
    weight: int = 2
    targets: tuple[str, ...] = ("any", "leader", "controller")
    brokers: int = 1
    """How many there must be."""

    @property
    def links(self) -> bool:
        """Whether links are among its targets."""
        return ">" in self.targets


_COUNT: Final = Whole(0, 1_000_000)
_SECONDS: Final = Number(0, 3600)
_MAX_BYTES: Final = 1 << 40
_MAX_SKEW_MS: Final = 10 * 365 * 86_400_000

FAULTS: Final[dict[str, FaultKind]] = {
    "crash": FaultKind(Trouble.crash, lasts_ms=(50, 9000), weight=4),
    "stop": FaultKind(Trouble.stop, lasts_ms=(200, 8000), weight=2),
    "between_controllers": FaultKind(
        Trouble.between_controllers,
        args={"away_ms": TIME_MS},
        lasts_ms=(50, 3000),
        draw=lambda random: {"away_ms": random.randrange(3000, 9000)},
        weight=2,
        targets=("any", "leader"),
        brokers=2,
    ),
    "expire_at_start": FaultKind(
        Trouble.expire_at_start,
        args={"after_ms": TIME_MS},
        lasts_ms=(50, 6000),
        draw=lambda random: {"after_ms": int(1000 ** random.random())},
        weight=2,
    ),
    "power": FaultKind(
        Trouble.power,
        args={"torn_tail": YES_NO, "flipped": YES_NO, "always": YES_NO},
        lasts_ms=(500, 9000),
        draw=lambda random: {
            "torn_tail": random.random() < 0.7,
            "flipped": random.random() < 0.3,
        },
        weight=2,
    ),
    "power_at_operation": FaultKind(
        Trouble.power_at_operation,
        args={"after": _COUNT, "torn_tail": YES_NO, "flipped": YES_NO, "always": YES_NO},
        lasts_ms=(500, 9000),
        draw=lambda random: {
            "after": random.randrange(200),
            "torn_tail": random.random() < 0.7,
            "flipped": random.random() < 0.3,
        },
        weight=2,
    ),
    "freeze": FaultKind(Trouble.freeze, lasts_ms=(300, 9000), weight=4),
    "freeze_client": FaultKind(
        Trouble.freeze_client, takes_away=False, lasts_ms=(300, 9000), weight=2, targets=("",)
    ),
    "cut": FaultKind(
        Trouble.cut, lasts_ms=(300, 9000), weight=4, targets=("any", "controller", ">", ">", "|")
    ),
    "mute": FaultKind(Trouble.mute, lasts_ms=(300, 10_000), weight=1),
    "deaf": FaultKind(Trouble.deaf, lasts_ms=(300, 10_000), weight=1),
    "reset": FaultKind(
        Trouble.reset,
        args={"chance": CHANCE},
        takes_away=False,
        draw=lambda random: {"chance": random.choice((0.2, 0.5, 1.0))},
        weight=3,
    ),
    "slow_link": FaultKind(
        Trouble.slow_link,
        args={"delay_s": _SECONDS},
        takes_away=False,
        lasts_ms=(500, 8000),
        draw=lambda random: {"delay_s": random.choice((0.05, 0.3, 1.0))},
        targets=("any", ">", "|"),
    ),
    "loss": FaultKind(
        Trouble.loss,
        args={"part": CHANCE},
        takes_away=False,
        lasts_ms=(500, 8000),
        draw=lambda random: {"part": random.choice((0.01, 0.1, 0.3))},
        targets=("",),
    ),
    "slow_reader": FaultKind(
        Trouble.slow_reader,
        args={"bytes_per_s": Whole(1, _MAX_BYTES)},
        lasts_ms=(500, 6000),
        draw=lambda random: {"bytes_per_s": random.choice((2000, 20_000))},
        weight=1,
    ),
    "disk_full": FaultKind(
        Trouble.disk_full,
        args={"room_bytes": Whole(0, _MAX_BYTES)},
        lasts_ms=(500, 8000),
        draw=lambda random: {"room_bytes": random.randrange(4000)},
        weight=1,
    ),
    "failed_sync": FaultKind(
        Trouble.failed_sync,
        args={"dir": _COUNT},
        lasts_ms=(500, 8000),
        draw=lambda random: {"dir": random.randrange(2)} if random.random() < 0.7 else {},
        weight=2,
    ),
    "slow_sync": FaultKind(
        Trouble.slow_sync,
        args={"delay_s": _SECONDS},
        takes_away=False,
        lasts_ms=(500, 8000),
        draw=lambda random: {"delay_s": random.choice((0.1, 1.0))},
        weight=1,
    ),
    "clock_skew": FaultKind(
        Trouble.clock_skew,
        args={"skew_ms": Whole(-_MAX_SKEW_MS, _MAX_SKEW_MS)},
        takes_away=False,
        lasts_ms=(500, 20_000),
        draw=lambda random: {"skew_ms": random.choice((-3_600_000, -5000, 5000, 3_600_000))},
        weight=1,
    ),
    "zk_isolate": FaultKind(Trouble.zk_isolate, lasts_ms=(500, 9000), weight=3),
    "zk_drop": FaultKind(
        Trouble.zk_drop,
        args={"applied": YES_NO},
        lasts_ms=(1, 8000),
        draw=lambda random: {"applied": random.random() < 0.5},
        weight=2,
    ),
    "zk_lose_answer": FaultKind(
        Trouble.zk_lose_answer,
        args={"skip": _COUNT, "applied": YES_NO},
        draw=lambda random: {"skip": random.randrange(30), "applied": random.random() < 0.5},
        weight=4,
        targets=("any", "controller", "controller"),
    ),
    "zk_expire": FaultKind(Trouble.zk_expire, weight=3),
    "zk_down": FaultKind(
        Trouble.zk_down,
        args={"applied": YES_NO},
        lasts_ms=(500, 10_000),
        draw=lambda random: {"applied": random.random() < 0.5},
        weight=1,
        targets=("",),
    ),
    "depose": FaultKind(Trouble.depose, takes_away=False, weight=1, targets=("",)),
    "bad_directory": FaultKind(
        Trouble.bad_directory,
        args={"directory": Text("/")},
        lasts_ms=(500, 8000),
        draw=lambda random: {"directory": random.choice(("/data", "/more"))},
        weight=1,
    ),
    "late_order": FaultKind(
        Trouble.late_order,
        args={"stops": YES_NO, "former_life": YES_NO},
        takes_away=False,
        draw=lambda random: {
            "stops": random.random() < 0.4,
            "former_life": random.random() < 0.4,
        },
        weight=2,
    ),
    "late_sync": FaultKind(Trouble.late_sync, takes_away=False, weight=0),
}


def broker_of(target: str, broker_ids: "tuple[int, ...]") -> int:
    """The id in `broker-<id>`.  Raises ScenarioError."""
    number = target.removeprefix("broker-")
    if number == target or number not in [str(one) for one in broker_ids]:
        raise ScenarioError(f"target {target!r}: expected broker-<id> with an id in {broker_ids}")
    return int(number)


def check_faults(faults: "tuple[Fault, ...]", brokers: int, duration_ms: int) -> None:
    """Raises ScenarioError for a fault, time, target or arg that makes no sense."""
    ids = tuple(range(brokers))
    for number, fault in enumerate(faults):
        where = f"faults[{number}] ({fault.kind})"
        kind = FAULTS.get(fault.kind)
        if kind is None:
            raise ScenarioError(
                f"faults[{number}]: fault kind {fault.kind!r}, known are {sorted(FAULTS)}"
            )
        if brokers < kind.brokers:
            raise ScenarioError(f"{where}: expected {kind.brokers} brokers, found {brokers}")
        expect(f"{where}.at_ms", fault.at_ms, Whole(0, duration_ms - 1))
        expect(f"{where}.duration_ms", fault.duration_ms, TIME_MS)
        check_values(f"{where}.args", fault.args, kind.args)
        try:
            _check_target(fault.target, ids, kind.links)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from error


def _check_target(target: str, ids: tuple[int, ...], links: bool) -> None:
    mark = next((mark for mark in ">|" if mark in target), "")
    if not mark:
        if target not in (*ROLES, "any", ""):
            broker_of(target, ids)
        return
    if not links:
        able = [name for name, kind in FAULTS.items() if kind.links]
        raise ScenarioError(f"target {target!r}: only {able} strike a link; expected a broker")
    source, _, other = target.partition(mark)
    for name in (source, other):
        if name not in ROLES:
            broker_of(name, ids)
    if source == other:
        raise ScenarioError(f"target {target!r}: expected a link between two")
