"""What workloads, checkers and the runner tell each other.

`docs/simulation.md` shows how to write a workload or a checker of one's own.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .history import History
    from .world import World


@dataclass(slots=True, frozen=True)
class WorldEvent:
    """Something that happened in the world: a fault, a broker's start, an election, an operation.

    `at_ms` is simulated time since the start of the run.
    """

    at_ms: int
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.at_ms / 1000:8.3f} s  {self.kind} {words}".rstrip()


@dataclass(slots=True, frozen=True)
class Violation:
    """A promise that was broken: which one, and in one sentence how."""

    checker: str
    text: str
    at_ms: int = 0


class Checker(Protocol):
    """Watches a run from outside."""

    name: str

    def observe(self, event: WorldEvent) -> None:
        """Called for every event of the world as it happens."""

    def finish(self, world: "World") -> list[Violation]:
        """Called once, when the world has healed, the workloads have ended and nothing moves."""


class Workload(Protocol):
    """Something that clients do with the cluster while faults happen."""

    name: str

    def start(self, world: "World", history: "History") -> None:
        """Begin.  Work is spawned with `world.spawn` on hosts from `world.client_runtime`."""

    def stop(self) -> "Awaitable[None]":
        """Called after faults have ended and the cluster has healed: start nothing new, let what is
        under way end, read what has to be read at the end (the cluster still runs), return."""
