"""Makes a failing scenario smaller: what is left is what the failure needs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from .scenario import Scenario

T = TypeVar("T")

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """A scenario that still fails, with as few faults, workloads and topics as can be found by leaving
    things out, and no longer than it must be.

    `fails(scenario)` runs one; `scenario` itself must fail.
    """
    faults = fewest(scenario.faults, lambda kept: fails(replace(scenario, faults=tuple(kept))))
    scenario = replace(scenario, faults=tuple(faults))
    workloads = fewest(
        scenario.workloads, lambda kept: fails(replace(scenario, workloads=tuple(kept)))
    )
    scenario = replace(scenario, workloads=tuple(workloads))
    topics = fewest(
        scenario.topics, lambda kept: bool(kept) and fails(replace(scenario, topics=tuple(kept)))
    )
    return _shorter(replace(scenario, topics=tuple(topics)), fails)


def fewest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Leave out ever smaller pieces of `items` as long as what is left still fails."""
    size = len(items)
    while items and size > 0:
        position = 0
        while position < len(items):
            kept = [*items[:position], *items[position + size :]]
            if fails(kept):
                items = kept
            else:
                position += size
        size //= 2
    return items


def _shorter(scenario: Scenario, fails: Fails) -> Scenario:
    """End soon after the last fault where that fails too."""
    last_ms = max((fault.at_ms + fault.duration_ms for fault in scenario.faults), default=0)
    for duration_ms in (last_ms + 1000, last_ms + 5000):
        if duration_ms < scenario.duration_ms:
            candidate = replace(scenario, duration_ms=duration_ms)
            if fails(candidate):
                return candidate
    return scenario
