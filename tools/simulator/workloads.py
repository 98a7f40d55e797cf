"""What clients do with the cluster while faults happen.

A workload is made from a `WorkloadSpec` (kind, name, options), starts clients on hosts of their own,
and ends when told to.  `make_workloads` knows the kinds and takes more.  After the cluster has healed
every workload must get on by itself within `PROGRESS_S`: what does not is reported as a broken promise
("liveness").
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.defer import Deferred

from kafkalike.broker.cluster.topic_names import topic_name_problem
from kafkalike.records.compression import Codec
from kafkalike.runtime.tasks import TimedOut, sleep, timeout
from kafkalike.types import TopicPartition

from .admins import Admin
from .clients import ClientPorts, SimClient
from .consumers import Consumer, FinalReader
from .contract import Workload
from .history import History
from .members import GroupMember
from .process import SimRandom
from .producers import Producer
from .scenario import Scenario, TopicSpec, WorkloadSpec
from .values import (
    CHANCE,
    SOME_TIME_MS,
    TIME_MS,
    YES_NO,
    ListOf,
    ScenarioError,
    Text,
    Value,
    Whole,
    check_values,
    describe_error,
)

if TYPE_CHECKING:
    from .world import World

PROGRESS_S: Final = 30.0
"""How long after healing a client may take until everything it does works again."""
END_S: Final = 25.0
"""How long a client may take to come to its end."""
MAX_ROUNDS_PER_S: Final = 12
"""How often all producers of a workload together send something in the general scenario."""
CHURN_PREFIX: Final = "churn"
"""Topics that the administrator creates and deletes begin with this."""
SESSION_TIMEOUT_MS: Final = 6000
"""Of a group's member, unless its options say otherwise."""
MAX_SESSION_TIMEOUT_MS: Final = 20_000
"""A member that is gone is noticed within `PROGRESS_S`."""
MAX_BATCH_BYTES: Final = 900_000
"""Brokers take a batch of 1 MB."""
_CLIENTS: Final = Whole(0, 1000)
_INTERVAL_MS: Final = Whole(1, 10_000)
"""Whoever does something less often makes no progress within `PROGRESS_S`."""


class BaseWorkload:
    """Clients that are started together and end together.

    Subclasses make clients in `begin` with `add`, and may say in `stalled` what does not work yet.
    `known_options` names the options there are, and, as a mapping to `values`, what they may be; None
    takes any.  `needs_topics`: whether there must be something to write to.  The constructor raises
    ScenarioError.
    """

    known_options: ClassVar[Collection[str] | None] = None
    needs_topics: ClassVar[bool] = False

    def __init__(self, spec: WorkloadSpec, topics: tuple[TopicSpec, ...]) -> None:
        if self.known_options is not None:
            check_values(f"{spec.where}.options", spec.options, self.known_options)
        self.name = spec.name
        self.options: Mapping[str, Any] = spec.options
        self.topics = topics
        there = [topic.name for topic in topics]
        if isinstance(self.known_options, Mapping):
            for name in self.option("topics", ()):
                if name not in there:
                    raise ScenarioError(f"{spec.where}.options.topics: {name!r} is none of {there}")
        if self.needs_topics and not self.chosen():
            raise ScenarioError(f"{spec.where}: expected a topic in the scenario, found none")
        self.world: World
        self.history: History
        self._running: list[tuple[SimClient, Deferred[Any]]] = []

    def start(self, world: "World", history: History) -> None:
        self.world = world
        self.history = history
        self.begin()

    def begin(self) -> None:
        """Make the clients."""
        raise NotImplementedError

    def stalled(self, since_s: float) -> str | None:
        """What has not worked since virtual second `since_s`, in one sentence; None when all has."""
        return None

    async def stop(self) -> None:
        clock = self.world.clock
        since_s = clock.monotonic()
        problem = self.stalled(since_s)
        while problem is not None and clock.monotonic() < since_s + PROGRESS_S:
            await sleep(clock, 0.5)
            problem = self.stalled(since_s)
        if problem is not None:
            self.world.broken(
                "liveness", f"{self.name}: {PROGRESS_S:g} s after the cluster healed {problem}"
            )
        await self.end()

    async def end(self) -> None:
        """Let every client finish; what does not is cut off and reported."""
        for client, _ in self._running:
            client.stop()
        for client, ended in self._running:
            try:
                await timeout(self.world.clock, _follow(ended), END_S, f"the end of {client.name}")
            except TimedOut as error:
                self.world.broken("liveness", str(error))
                ended.cancel()
            client.close()

    def ports(self, client: str) -> ClientPorts:
        """Ports for a client on a machine of its own, named like the client."""
        runtime = self.world.client_runtime(client)
        return ClientPorts(
            runtime.clock,
            runtime.random,
            runtime.network,
            tuple(self.world.bootstrap()),
            self.history,
        )

    def add(self, client: SimClient) -> None:
        """Start a client."""
        ended = self.world.spawn(client.run(), client.name)
        self._running.append((client, ended))

    @property
    def clients(self) -> list[SimClient]:
        return [client for client, _ in self._running]

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions of the topics named by option `topics` (default: all of the scenario)."""
        return tuple(
            TopicPartition(topic.name, number)
            for topic in self.chosen()
            for number in range(topic.partitions)
        )

    def chosen(self) -> tuple[TopicSpec, ...]:
        names = self.options.get("topics")
        return tuple(topic for topic in self.topics if names is None or topic.name in names)

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)


def _follow(source: "Deferred[Any]") -> "Deferred[None]":
    follower: Deferred[None] = Deferred()

    def pass_on(value: Any) -> Any:
        if not follower.called:
            follower.callback(None)
        return value

    source.addBoth(pass_on)
    return follower


class ProduceAndConsume(BaseWorkload):
    """Producers and consumers of all partitions.

    Options: `producers`, `consumers` (counts), `idempotent` (bool), `acks` (list: one is taken by each
    producer in turn), `interval_ms`, `batch_records`, `window`, `value_bytes`, `codec`,
    `follower_chance`, `patience_ms`, `topics`.
    """

    needs_topics = True
    known_options: ClassVar[Mapping[str, Value]] = {
        "acks": ListOf((-1, 0, 1)),
        "producers": _CLIENTS,
        "idempotent": YES_NO,
        "interval_ms": _INTERVAL_MS,
        "batch_records": Whole(1, 1000),
        "window": Whole(1, 100),
        "value_bytes": Whole(0, 1_000_000),
        "codec": Whole(0, 4),
        "patience_ms": TIME_MS,
        "consumers": _CLIENTS,
        "follower_chance": CHANCE,
        "topics": ListOf(),
    }

    def __init__(self, spec: WorkloadSpec, topics: tuple[TopicSpec, ...]) -> None:
        super().__init__(spec, topics)
        batch_bytes = self.option("value_bytes", 0) * self.option("batch_records", 3)
        if batch_bytes > MAX_BATCH_BYTES:
            raise ScenarioError(
                f"{spec.where}.options: value_bytes times batch_records:"
                f" expected at most {MAX_BATCH_BYTES}, found {batch_bytes}"
            )

    def begin(self) -> None:
        partitions = self.partitions()
        acks = self.option("acks", [-1])
        for number in range(self.option("producers", 2)):
            self.add(
                Producer(
                    f"{self.name}-producer-{number}",
                    self.ports(f"{self.name}-producer-{number}"),
                    partitions,
                    idempotent=self.option("idempotent", False),
                    acks=acks[number % len(acks)],
                    interval_s=self.option("interval_ms", 300) / 1000,
                    batch_records=self.option("batch_records", 3),
                    window=self.option("window", 3),
                    value_bytes=self.option("value_bytes", 0),
                    codec=Codec(self.option("codec", 0)),
                    patience_s=self.option("patience_ms", 0) / 1000,
                )
            )
        for number in range(self.option("consumers", 1)):
            self.add(
                Consumer(
                    f"{self.name}-consumer-{number}",
                    self.ports(f"{self.name}-consumer-{number}"),
                    partitions,
                    interval_s=self.option("interval_ms", 300) / 1000,
                    follower_chance=self.option("follower_chance", 0.0),
                )
            )

    def stalled(self, since_s: float) -> str | None:
        for client in self.clients:
            if isinstance(client, Producer) and client.acks != 0:
                for partition in self.partitions():
                    if client.last_acknowledged.get(partition, -1.0) < since_s:
                        return f"{client.name} has nothing acknowledged on {partition}"
        return None


class GroupsWorkload(BaseWorkload):
    """One group of members that read, commit, and now and then leave or vanish; its own producer.

    Options: `members`, `cooperative`, `static`, `group`, `leave_chance`, `vanish_chance`, `vanish_ms`,
    `forgetful`, `death_chance` (the first one stays), `session_timeout_ms`, `rebalance_timeout_ms`,
    `interval_ms`, `topics`.
    """

    needs_topics = True
    known_options: ClassVar[Mapping[str, Value]] = {
        "group": Text(),
        "members": Whole(1, 1000),
        "cooperative": YES_NO,
        "static": YES_NO,
        "session_timeout_ms": SOME_TIME_MS,
        "interval_ms": _INTERVAL_MS,
        "leave_chance": CHANCE,
        "vanish_chance": CHANCE,
        "vanish_ms": Whole(0, 10_000),
        "forgetful": YES_NO,
        "death_chance": CHANCE,
        "rebalance_timeout_ms": SOME_TIME_MS,
        "topics": ListOf(),
    }

    def begin(self) -> None:
        topics = tuple(topic.name for topic in self.chosen())
        group = self.option("group", self.name)
        for number in range(self.option("members", 3)):
            name = f"{self.name}-member-{number}"
            self.add(
                GroupMember(
                    name,
                    self.ports(name),
                    group,
                    topics,
                    cooperative=self.option("cooperative", False),
                    instance_id=name if self.option("static", False) else None,
                    session_timeout_ms=self.option("session_timeout_ms", SESSION_TIMEOUT_MS),
                    interval_s=self.option("interval_ms", 400) / 1000,
                    leave_chance=self.option("leave_chance", 0.01),
                    vanish_chance=self.option("vanish_chance", 0.005),
                    vanish_s=self.option("vanish_ms", 0) / 1000,
                    forgetful=self.option("forgetful", False),
                    death_chance=self.option("death_chance", 0.0) if number else 0.0,
                    rebalance_timeout_ms=self.option("rebalance_timeout_ms", 8000),
                )
            )
        name = f"{self.name}-producer"
        self.add(Producer(name, self.ports(name), self.partitions(), interval_s=0.5))

    def stalled(self, since_s: float) -> str | None:
        members = [client for client in self.clients if isinstance(client, GroupMember)]
        for member in members:
            member.calm = True
        members = [member for member in members if not member.is_dead]
        for member in members:
            if member.last_stable_s < since_s:
                return f"{member.name} is not in its group"
        if len({member.generation for member in members}) > 1:
            return "the members are in different generations"
        owned = sorted(one for member in members for one in member.owned)
        if owned != sorted(self.partitions()):
            return f"the members own {[str(one) for one in owned]}"
        return None


class Churn(BaseWorkload):
    """An administrator: creates, deletes, grows and writes to topics of its own; moves replicas of the
    scenario's topics and asks for elections there.

    Options: `interval_ms`, `topics_at_once`, `topics` (whose replicas move); `acts`, a list of
    "topic" (create or delete), "write", "grow", "elect", "move", "move-own" (a topic of its own),
    "trim" (DeleteRecords), of which each time one is drawn; or instead of it `reassign`, `unclean`
    and `delete_records` (bool).
    """

    known_options: ClassVar[Mapping[str, Value]] = {
        "interval_ms": _INTERVAL_MS,
        "topics_at_once": Whole(1, 1000),
        "reassign": YES_NO,
        "unclean": YES_NO,
        "delete_records": YES_NO,
        "acts": ListOf(("topic", "write", "grow", "elect", "move", "move-own", "trim"), low=0),
        "topics": ListOf(low=0),
    }

    def __init__(self, spec: WorkloadSpec, topics: tuple[TopicSpec, ...]) -> None:
        super().__init__(spec, topics)
        problem = topic_name_problem(f"{CHURN_PREFIX}-{spec.name}-0")
        if problem is not None:
            raise ScenarioError(f"{spec.where}.name: {problem}")
        acts = [one for one in self.option("acts", ()) if one in ("elect", "move", "trim")]
        if acts and not self.chosen():
            raise ScenarioError(f"{spec.where}.options.acts: {acts[0]!r} needs a topic")

    def begin(self) -> None:
        name = f"{self.name}-admin"
        self.add(
            ChurningAdmin(
                name,
                self.ports(name),
                self.partitions(),
                tuple(self.world.broker_ids),
                prefix=f"{CHURN_PREFIX}-{self.name}",
                interval_s=self.option("interval_ms", 1500) / 1000,
                topics_at_once=self.option("topics_at_once", 2),
                reassign=self.option("reassign", True),
                unclean=self.option("unclean", False),
                delete_records=self.option("delete_records", False),
                acts=tuple(self.option("acts", ())),
            )
        )

    def stalled(self, since_s: float) -> str | None:
        admin = self.clients[0]
        assert isinstance(admin, ChurningAdmin)
        admin.must_show = True
        if admin.last_yes_s < since_s:
            return f"{admin.name} gets nothing done"
        return None


class ChurningAdmin(Admin):
    """Draws one administrative act after another."""

    def __init__(
        self,
        name: str,
        ports: ClientPorts,
        partitions: tuple[TopicPartition, ...],
        brokers: tuple[int, ...],
        *,
        prefix: str,
        interval_s: float,
        topics_at_once: int,
        reassign: bool,
        unclean: bool,
        delete_records: bool,
        acts: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, ports)
        self._partitions = partitions
        self._broker_ids = brokers
        self._names = [f"{prefix}-{number}" for number in range(topics_at_once)]
        self._counts: dict[str, int] = {}
        """Partitions of the topics that are there, as far as the administrator knows."""
        self._interval_s = interval_s
        self._unclean = unclean
        self._acts = acts or _default_acts(bool(partitions), reassign, delete_records)
        self._writers: dict[str, Producer] = {}
        self._ports = ports
        self.last_yes_s = -1.0
        self.must_show = False
        """Whether chance may no more draw acts that cannot succeed."""

    async def run(self) -> None:
        await self.refresh()
        while not self.stopping:
            if await self._act():
                self.last_yes_s = self.clock.monotonic()
            await self.pause(self._interval_s)
            await self.refresh()

    async def _act(self) -> bool:
        acts: dict[str, Callable[[], Any]] = {
            "topic": self._create_or_delete,
            "write": self._write,
            "grow": self._grow,
            "elect": self._elect,
            "move": self._move,
            "move-own": self._move_own,
            "trim": self._trim,
        }
        name = self._acts[self.random.randrange(len(self._acts))]
        if self.must_show and "topic" in self._acts:
            name = "topic"
        return bool(await acts[name]())

    async def _create_or_delete(self) -> bool:
        name = self._names[self.random.randrange(len(self._names))]
        if name in self.topic_ids:
            return await self.delete_topic(name)
        count = 1 + self.random.randrange(3)
        factor = 1 + self.random.randrange(len(self._broker_ids))
        return await self.create_topic(name, count, factor)

    async def _grow(self) -> bool:
        name = self._names[self.random.randrange(len(self._names))]
        count = sum(partition.topic == name for partition in self.partitions)
        return count > 0 and await self.add_partitions(name, count + 1)

    async def _write(self) -> bool:
        """A few records into a topic that comes and goes: what is in it must go with it."""
        there = sorted(one for one in self.partitions if one.topic in self._names)
        if not there:
            return False
        partition = there[self.random.randrange(len(there))]
        writer = self._writers.get(str(partition))
        if writer is None:
            writer = Producer(f"{self.name}-writer", self._ports, (partition,))
            writer.name = f"{self.name}-writer-{partition}"
            self._writers[str(partition)] = writer
        return await writer.produce_once(partition)

    async def _elect(self) -> bool:
        partition = self._some_partition()
        return await self.elect(partition, unclean=self._unclean and self.chance(0.5))

    async def _move_own(self) -> bool:
        there = sorted(one for one in self.partitions if one.topic in self._names)
        return bool(there) and await self._move(there[self.random.randrange(len(there))])

    async def _move(self, partition: TopicPartition | None = None) -> bool:
        partition = partition or self._some_partition()
        if self.chance(0.2):
            return await self.reassign(partition, ())
        view = self.partitions.get(partition)
        count = len(view.replicas) if view is not None and view.replicas else 1
        ids = list(self._broker_ids)
        chosen: list[int] = []
        while len(chosen) < min(count, len(self._broker_ids)):
            chosen.append(ids.pop(self.random.randrange(len(ids))))
        return await self.reassign(partition, tuple(chosen))

    async def _trim(self) -> bool:
        low = await self.delete_records(self._some_partition(), -1)
        return low is not None

    def _some_partition(self) -> TopicPartition:
        return self._partitions[self.random.randrange(len(self._partitions))]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        super().close()


def _default_acts(has_topics: bool, reassign: bool, delete_records: bool) -> tuple[str, ...]:
    acts = ["topic", "topic", "write", "grow"]
    if has_topics:
        acts.append("elect")
        acts += ["move", "move"] if reassign else []
        acts += ["trim"] if delete_records else []
    return tuple(acts)


class FinalRead(BaseWorkload):
    """Does nothing until the end; then reads every partition of the scenario's topics from its start.

    Make it the last workload: `make_workloads` does.
    """

    def begin(self) -> None:
        return

    async def end(self) -> None:
        reader = FinalReader(
            self.name, self.ports(self.name), tuple(topic.name for topic in self.topics)
        )
        ended = self.world.spawn(reader.run(), self.name)
        try:
            await timeout(self.world.clock, _follow(ended), END_S, "the last reading")
        except TimedOut as error:
            self.world.broken("liveness", str(error))
            ended.cancel()
        for partition in reader.missing:
            self.world.broken("liveness", f"{partition} cannot be read to its end")
        reader.close()


Factory = Callable[[WorkloadSpec, tuple[TopicSpec, ...]], Workload]

_KINDS: Final[Mapping[str, Factory]] = {
    "plain": ProduceAndConsume,
    "idempotent": ProduceAndConsume,
    "groups": GroupsWorkload,
    "churn": Churn,
}
_IDEMPOTENT: Final = "idempotent"


def make_workloads(scenario: Scenario, more: Mapping[str, Factory] | None = None) -> list[Workload]:
    """The scenario's workloads, and the last reading behind them.

    `more`: kinds of your own by name.  Raises ScenarioError for a kind that nobody knows, and for
    options that make no sense.
    """
    kinds = {**_KINDS, **(more or {})}
    made: list[Workload] = []
    for spec in scenario.workloads:
        factory = kinds.get(spec.kind)
        if factory is None:
            raise ScenarioError(
                f"workload kind {spec.kind!r}, known are {sorted(kinds)}; kinds of your own come with"
                " --with FILE or `extras`"
            )
        if spec.kind == _IDEMPOTENT:
            spec = WorkloadSpec(spec.kind, spec.name, {"idempotent": True, **spec.options})
        try:
            workload = factory(spec, scenario.topics)
        except (KeyboardInterrupt, ScenarioError):
            raise
        except BaseException as error:
            raise ScenarioError(f"{spec.where}: {describe_error(error)}") from error
        if not all(hasattr(workload, name) for name in ("name", "start", "stop")):
            raise ScenarioError(
                f"{spec.where}: expected something with `name`, `start` and `stop`, found {workload!r}"
            )
        made.append(workload)
    made.append(FinalRead(WorkloadSpec("final", "final-read"), scenario.topics))
    return made


def draw_workloads(random: SimRandom, topics: Iterable[TopicSpec]) -> tuple[WorkloadSpec, ...]:
    """What clients do in the general scenario: always producers of both kinds, often more."""
    lanes = sum(topic.partitions for topic in topics)
    plain, idempotent = random.randint(1, 2), random.randint(1, 2)
    specs = [
        WorkloadSpec(
            "plain",
            "plain",
            {
                "producers": plain,
                "acks": random.choice(([-1], [-1, 1], [-1, 1], [1, -1])),
                "consumers": 1,
                "interval_ms": _calm(random.choice((200, 500, 1000)), plain * lanes),
                "follower_chance": random.choice((0.0, 0.0, 0.3)),
                "codec": random.choice((0, 0, 0, 1)),
            },
        ),
        WorkloadSpec(
            "idempotent",
            "idempotent",
            {
                "producers": idempotent,
                "consumers": random.randint(0, 1),
                "interval_ms": _calm(random.choice((150, 400, 800)), idempotent * lanes),
                "window": random.randint(1, 5),
            },
        ),
    ]
    if random.random() < 0.6:
        specs.append(
            WorkloadSpec(
                "groups",
                "group",
                {
                    "members": random.randint(2, 4),
                    "cooperative": random.random() < 0.5,
                    "static": random.random() < 0.3,
                    "leave_chance": random.choice((0.0, 0.02)),
                    "vanish_chance": random.choice((0.0, 0.01)),
                },
            )
        )
    if random.random() < 0.6:
        specs.append(
            WorkloadSpec(
                "churn",
                "churn",
                {
                    "interval_ms": random.choice((500, 1500, 3000)),
                    "reassign": random.random() < 0.7,
                    "topics_at_once": random.randint(1, 3),
                },
            )
        )
    return tuple(specs)


def _calm(interval_ms: int, lanes: int) -> int:
    """No more than `MAX_ROUNDS_PER_S` of a workload: a quicker one finds no more, and takes longer."""
    return max(interval_ms, lanes * 1000 // MAX_ROUNDS_PER_S)
