"""The general scenario: what is drawn from a seed.

`workloads.draw_workloads(random, topics) -> tuple[WorkloadSpec, ...]` draws what clients do.
"""

from .process import SimRandom
from .scenario import Scenario


def draw_scenario(random: SimRandom) -> Scenario:
    raise NotImplementedError
