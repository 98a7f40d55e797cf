"""One run: a world is made from a seed and a scenario, disturbed, healed, and judged."""

import gc
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.defer import CancelledError

from kafkalike.errors import NONE, error_name
from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.net.client import BrokerClient, PeerError
from kafkalike.runtime.tasks import sleep
from kafkalike.types import TopicPartition

from .check import Check
from .checkers import make_checkers, make_checks
from .clock import SimulationStuck
from .contract import Checker, Violation, Workload, WorldEvent
from .faults import Trouble
from .history import History
from .scenario import Scenario, TopicSpec
from .validity import check_scenario
from .values import describe_error
from .watching import Listener
from .workloads import Factory, make_workloads
from .world import World

__all__ = ["Checker", "Result", "Violation", "Workload", "run"]

START_S: Final = 60.0
"""Bounds in simulated seconds: until all brokers serve and all topics are there..."""
HEAL_S: Final = 90.0
"""...until the cluster is whole again once faults have ended..."""
FINISH_S: Final = 60.0
"""...until workloads have read what they want to read at the end..."""
SETTLE_S: Final = 30.0
"""...and until replicas are equal after that."""
_STORY_LINES: Final = 400
_COLLECTIONS: Final = 3
"""A coroutine that is given back runs its last lines first; what it held goes the next time."""
_LOOK_S: Final = 0.25


@dataclass(slots=True)
class Result:
    """How a run went.

    `story` tells in lines what happened; `trace_hash` is the same for the same seed and scenario on
    every machine; `virtual_ms` is simulated time, `wall_s` real time.
    """

    seed: int
    ok: bool
    violations: list[Violation] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    trace_hash: str = ""
    virtual_ms: int = 0
    wall_s: float = 0.0
    steps: int = 0


@dataclass(slots=True, frozen=True)
class Extras:
    """Workloads and checks of your own: kinds by name, and classes."""

    workloads: Mapping[str, Factory] = field(default_factory=dict)
    checks: tuple[type[Check], ...] = ()


def run(
    seed: int,
    scenario: Scenario | None = None,
    *,
    extras: Extras | None = None,
    trace: Callable[[WorldEvent], None] | None = None,
) -> Result:
    """Run the general scenario of `seed`, or `scenario` with that seed's chance.

    Order: brokers start; topics are made; the workloads of `workloads.make_workloads(
    scenario)` start; faults strike; all is healed; the cluster must become whole within a bound;
    the workloads' `stop()` is awaited, that of the last reading after all others; replicas must
    become equal; the checkers, which watched from the beginning, judge.  `trace` gets every event
    of the diary.  Raises ScenarioError.
    """
    began_s = time.perf_counter()
    scenario = Scenario.generate(seed) if scenario is None else scenario
    extras = extras or Extras()
    check_scenario(scenario, extras.workloads)
    make_checks(extras.checks)
    collecting = gc.isenabled()
    gc.disable()  # what a collection sets free must not depend on the process
    gc.freeze()  # and the one at the end need not look at what was there before
    listener = Listener()
    listener.attach()
    try:
        result = _run(seed, scenario, extras, trace, listener)
    finally:
        for _ in range(_COLLECTIONS):
            gc.collect()  # nothing of the world is referred to any more
        gc.unfreeze()
        listener.detach()
        if collecting:
            gc.enable()
    result.wall_s = time.perf_counter() - began_s
    return result


def _run(
    seed: int,
    scenario: Scenario,
    extras: Extras,
    trace: Callable[[WorldEvent], None] | None,
    listener: Listener,
) -> Result:
    world = World(seed, scenario)
    listener.world = world
    try:
        course = _Course(world, scenario, extras)
        if trace is not None:
            world.observers.append(trace)
        course.run()
        return Result(
            seed,
            not world.violations,
            list(world.violations),
            [str(event) for event in list(world.events)[-_STORY_LINES:]],
            world.trace_hash,
            world.now_ms,
            steps=world.clock.steps,
        )
    finally:
        listener.mute()
        world.close()


class _Course:
    """The phases of a run."""

    def __init__(self, world: World, scenario: Scenario, extras: Extras) -> None:
        self.world = world
        self.scenario = scenario
        self.history = History(world.clock)
        self.workloads: Sequence[Workload] = make_workloads(scenario, extras.workloads)
        self.checkers: Sequence[Checker] = make_checkers(
            world, scenario, self.history, extras.checks
        )
        self.trouble = Trouble(world)
        world.observers += [checker.observe for checker in self.checkers]

    def run(self) -> None:
        try:
            if self._start():
                self._disturb()
                self._heal()
        except SimulationStuck as error:
            self.world.broken("stuck", str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # From a callback or an observer: it must not end other seeds.
            trace = traceback.format_exc()
            self.world.broken("simulator", f"{describe_error(error)}\n{trace}")

    def _start(self) -> bool:
        world = self.world
        world.trace("run", seed=world.seed)
        for broker in world.brokers.values():
            broker.start()
        if not self._wait_whole(START_S, "the brokers did not start"):
            return False
        if self.scenario.topics:
            work = world.spawn(create_topics(world, self.scenario.topics), "creating topics")
            if not world.run_until(work, START_S):
                world.broken("liveness", "topics were not created")
                return False
        return self._wait_whole(START_S, "the topics' partitions did not come up")

    def _disturb(self) -> None:
        world, scenario = self.world, self.scenario
        world.trace("begin")
        begin_s = world.clock.now_s
        for workload in self.workloads:
            try:
                workload.start(world, self.history)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # the user's own: the others need not suffer for it
                world.broken(workload.name, f"the workload did not start: {describe_error(error)}")
        for fault in scenario.faults:
            world.clock.call_later(fault.at_ms / 1000, self.trouble.strike, fault)
        world.run_until(begin_s + scenario.duration_ms / 1000)

    def _heal(self) -> None:
        world = self.world
        world.trace("heal")
        self.trouble.heal()
        self._wait_whole(HEAL_S, "the cluster did not become whole after faults ended")
        world.trace("finish")
        *others, last = self.workloads  # the last one reads what the others have left
        for workloads in (others, [last]):
            ended = [(w, world.spawn(_finish(world, w), f"ending {w.name}")) for w in workloads]
            limit_s = world.clock.now_s + FINISH_S
            for workload, end in ended:
                if not world.run_until(end, limit_s - world.clock.now_s):
                    world.broken("liveness", f"workload {workload.name} did not end")
        self._wait(world.restless, SETTLE_S, "the cluster did not come to rest")
        world.trace("judge")
        for checker in self.checkers:
            for violation in checker.finish(world):
                world.broken(violation.checker, violation.text)

    def _wait_whole(self, limit_s: float, what: str) -> bool:
        return self._wait(self.world.unhealthy, limit_s, what)

    def _wait(self, look: Callable[[], list[str]], limit_s: float, what: str) -> bool:
        world = self.world
        end_s = world.clock.now_s + limit_s
        troubles = look()
        while troubles and world.clock.now_s < end_s:
            world.run_until(world.clock.now_s + _LOOK_S)
            troubles = look()
        if troubles:
            world.broken("liveness", f"{what}: " + "; ".join(troubles))
        return not troubles


async def _finish(world: World, workload: Workload) -> None:
    try:
        await workload.stop()
    except (CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        world.broken(workload.name, f"the workload did not end: {describe_error(error)}")


async def create_topics(world: World, topics: Sequence[TopicSpec]) -> None:
    """Ask brokers until all topics are there."""
    runtime = world.client_runtime("setup")
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=10_000,
    )
    while True:
        controller = world.controller()
        broker = world.brokers[0 if controller is None else controller]
        client = BrokerClient(
            runtime.network, runtime.clock, broker.host, broker.port, client_id="setup"
        )
        try:
            await client.connect()
            response = await client.send(request)
        except PeerError:
            await sleep(runtime.clock, 0.5)
            continue
        finally:
            client.close()
        codes = {topic.name: topic.error_code for topic in response.topics}
        if all(code == NONE for code in codes.values()):
            return
        world.trace("create topics", errors=[error_name(code) for code in codes.values()])
        await sleep(runtime.clock, 0.5)
        known = world.topics()
        if all(topic.name in known for topic in topics):
            return


def partitions_of(scenario: Scenario) -> list[TopicPartition]:
    """All partitions that exist when workloads start."""
    return [
        TopicPartition(topic.name, number)
        for topic in scenario.topics
        for number in range(topic.partitions)
    ]
