"""One run: a world is made from a seed and a scenario, disturbed, healed, and judged."""

from dataclasses import dataclass, field

from .contract import Violation
from .scenario import Scenario

__all__ = ["Result", "run"]


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


def run(seed: int, scenario: Scenario | None = None) -> Result:
    """Run the general scenario of `seed`, or `scenario` with that seed's chance.

    Order: brokers start; topics are made; `workloads.make_workloads(world, scenario)` gives the
    workloads, each `start(world, history)`; faults strike; all is healed; the cluster must become
    whole within a bound; each workload's `stop()` is awaited; `checkers.make_checkers(world,
    scenario, history)` had been called at the beginning, and their `finish(world)` judges.
    """
    raise NotImplementedError
