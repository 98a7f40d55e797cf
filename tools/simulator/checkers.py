"""What a run must have kept, judged from what clients saw and what disks and znodes hold.

A check is a class with a `name` and a method `problems(evidence)` that yields one sentence for each
broken promise.  `CHECKS` lists ours; `make_checkers` takes more.  Losses that a broker's ledger names
(unclean elections) are excused, offset by offset; nothing else is.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from .check import Check
from .cluster_checks import (
    IsrLeadership,
    MinIsrHolds,
    NobodyAbsentJoins,
    OneController,
    OneLeaderPerEpoch,
    TopicsAsAsked,
)
from .contract import Violation, WorldEvent
from .evidence import Evidence, ZnodeLog, collect
from .history import History
from .mark_checks import CommittedForward, GroupsExclusive, Prompt, WatermarksForward
from .record_checks import (
    LossesHaveCause,
    NoAcknowledgedLoss,
    NoDuplicates,
    NothingFromNowhere,
    OffsetsDense,
    ReadsLast,
    ReplicasAgree,
)
from .scenario import Scenario
from .values import ScenarioError, describe_error

if TYPE_CHECKING:
    from .world import World

MAX_PROBLEMS: Final = 20
"""So many sentences of one check are enough."""

CHECKS: Final[tuple[type[Check], ...]] = (
    NoAcknowledgedLoss,
    LossesHaveCause,
    NothingFromNowhere,
    ReplicasAgree,
    OffsetsDense,
    ReadsLast,
    NoDuplicates,
    WatermarksForward,
    CommittedForward,
    OneLeaderPerEpoch,
    OneController,
    IsrLeadership,
    MinIsrHolds,
    NobodyAbsentJoins,
    GroupsExclusive,
    Prompt,
    TopicsAsAsked,
)


class EndChecker:
    """Runs checks over the evidence once the world has come to rest: the runner's Checker."""

    def __init__(self, check: Check, files: "_Files") -> None:
        self.name = str(check.name)
        self._check = check
        self._files = files

    def observe(self, event: WorldEvent) -> None:
        """Power losses that may cost records are noted; else the evidence is looked at in the end."""
        self._files.observe(event)

    def finish(self, world: "World") -> list[Violation]:
        evidence = self._files.evidence(world)
        problems = []
        try:
            found = self._check.problems(evidence)
            if isinstance(found, str):
                raise TypeError(f"expected sentences, found {found!r}")
            for text in found:
                if not isinstance(text, str):
                    raise TypeError(f"expected a sentence, found {text!r}")
                problems.append(Violation(self.name, text, world.now_ms))
                if len(problems) >= MAX_PROBLEMS:
                    break
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # The check is at fault, or met what it did not expect: either way the seed has not passed.
            text = f"the check failed: {describe_error(error)}"
            problems.append(Violation(self.name, text, world.now_ms))
        return problems


class _Files:
    """Collects the evidence once for all checks."""

    def __init__(self, world: "World", history: History) -> None:
        self._history = history
        self._znode_log = ZnodeLog(world)
        self._evidence: Evidence | None = None
        self._power_losses: dict[int, None] = {}
        self._outages: dict[int, None] = {}

    def observe(self, event: WorldEvent) -> None:
        if event.kind == "unsafe power loss":
            self._power_losses[event.fields["broker"]] = None
        elif event.kind == "crashed" and event.fields["lose_unsynced"]:
            self._outages[event.fields["broker"]] = None

    def evidence(self, world: "World") -> Evidence:
        if self._evidence is None:
            harmless = [one for one in self._outages if one not in self._power_losses]
            self._evidence = collect(
                world, self._history, self._znode_log, tuple(self._power_losses), harmless
            )
        return self._evidence


def make_checkers(
    world: "World", scenario: Scenario, history: History, more: Iterable[type[Check]] = ()
) -> list[EndChecker]:
    """All checks and those of your own.  Call it before anything happens: it keeps the znode log."""
    files = _Files(world, history)
    return [EndChecker(check, files) for check in make_checks((*CHECKS, *more))]


def make_checks(classes: Iterable[type[Check]]) -> list[Check]:
    """Raises ScenarioError for a class of the user's own that cannot be made."""
    made = []
    for one in classes:
        try:
            made.append(one())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ScenarioError(f"check {one.name!r}: {describe_error(error)}") from error
    return made


def judge(evidence: Evidence, checks: Iterable[type[Check]] = CHECKS) -> list[Violation]:
    """What the checks say of some evidence."""
    return [Violation(c.name, text) for c in checks for text in c().problems(evidence)]
