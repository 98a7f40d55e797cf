"""Takes out one guard after the other and counts the seeds until the simulator notices.

    python -m tests.simulation.mutate [--only NAME]... [--seeds 2000] [--budget-s 400] [--again]

Each mutation of `mutations/catalogue.py` is applied to a copy of the package in a temporary
directory, never to the checkout.  Seeds run there one after the other until one fails that does not
fail without the mutation.  `mutations/found.txt` keeps for each name how many seeds it took, which
seed of which family it was and which check spoke; with a budget the hunt goes on next time where it
stopped.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from .mutations.catalogue import MUTATIONS, Mutation

ROOT = pathlib.Path(__file__).parents[2]
TABLE = pathlib.Path(__file__).parent / "mutations" / "found.txt"
PARTS = ("kafkalike", "broker", "controller", "zk", "tools")
SEED_LIMIT_S = 300
"""Real seconds for one seed on a busy machine."""

_HUNT = """
import json, sys
from kafkalike.tools.simulator.run import run
from kafkalike.tools.simulator.scenario import Scenario
family, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, end):
    result = run(seed, Scenario.generate(seed, family))
    found = sorted({violation.checker for violation in result.violations})
    text = result.violations[0].text if found else ""
    print(json.dumps([seed, found, text]), flush=True)
    if found:
        break
"""


class OutOfDate(Exception):
    """A mutation's text is not in the code as it stands."""


class Outcome(NamedTuple):
    """How one seed went: which checks spoke, and what the first one said."""

    seed: int
    checks: list[str]
    text: str


@dataclass(slots=True, frozen=True)
class Line:
    """A row of the table.  `seed` -1: not found in `tried` seeds."""

    name: str
    tried: int
    family: str = "general"
    seed: int = -1
    checks: str = ""

    def __str__(self) -> str:
        found = f"seed {self.seed}: {self.checks}" if self.seed >= 0 else "not found yet"
        return f"{self.name:44} {self.tried:5}  {self.family:12} {found}"

    @classmethod
    def parse(cls, text: str) -> "Line":
        name, tried, family, rest = text.split(maxsplit=3)
        if not rest.startswith("seed "):
            return cls(name, int(tried), family)
        seed, _, checks = rest.removeprefix("seed ").partition(": ")
        return cls(name, int(tried), family, int(seed), checks.strip())


HEADER = """\
# Guards taken out, and how many seeds the simulator needed to notice it.
# Made by python -m tests.simulation.mutate
# name                                        seeds  family       found by
"""


def read_table() -> dict[str, Line]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [Line.parse(line) for line in lines if line.strip() and not line.startswith("#")]
    return {row.name: row for row in rows}


def write_table(rows: dict[str, Line]) -> None:
    """In the order of the catalogue; rows of names that are gone go too."""
    known = [rows[mutation.name] for mutation in MUTATIONS if mutation.name in rows]
    fresh = TABLE.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(HEADER + "".join(f"{row}\n" for row in known), encoding="utf-8")
    fresh.replace(TABLE)


def apply(mutation: Mutation, root: pathlib.Path) -> None:
    """Edit the files below `root`.  Raises OutOfDate."""
    for edit in mutation.edits:
        path = root / edit.file
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise OutOfDate(
                f"{mutation.name}: {edit.file} has {text.count(edit.old)} times {edit.old!r}"
            )
        changed = text.replace(edit.old, edit.new)
        compile(changed, edit.file, "exec")
        path.write_text(changed, encoding="utf-8")


@contextmanager
def copied(mutation: Mutation | None, source: pathlib.Path = ROOT) -> Iterator[pathlib.Path]:
    """A copy of the package below `source`, with the mutation."""
    with tempfile.TemporaryDirectory(prefix="kafkalike-mutant-") as name:
        root = pathlib.Path(name)
        for part in PARTS:
            shutil.copytree(
                source / part,
                root / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        if mutation is not None:
            apply(mutation, root)
        yield root


def hunt(
    root: pathlib.Path, family: str, first: int, end: int, budget_s: float
) -> Iterator[Outcome]:
    """One seed after the other, until one fails."""
    deadline_s = time.monotonic() + budget_s
    process = subprocess.Popen(
        [sys.executable, "-c", _HUNT, family, str(first), str(end)],
        cwd=root,
        env={"PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield Outcome(*json.loads(line))
            if time.monotonic() > deadline_s:
                return
        if process.wait() != 0:
            yield Outcome(first, ["crash"], "the simulator itself ended with an error")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def try_mutation(
    mutation: Mutation,
    row: Line | None,
    seeds: int,
    budget_s: float,
    plain: pathlib.Path,
    source: pathlib.Path = ROOT,
) -> Line:
    """Go on from where `row` stopped; the new row."""
    family = mutation.family or "general"
    row = row or Line(mutation.name, 0, family)
    deadline_s = time.monotonic() + budget_s
    with copied(mutation, source) as root:
        while row.tried < seeds and time.monotonic() < deadline_s:
            left_s = deadline_s - time.monotonic()
            found: Outcome | None = None
            for outcome in hunt(root, mutation.family, row.tried + 1, seeds + 1, left_s):
                row = replace(row, tried=outcome.seed)
                if outcome.checks:
                    found = outcome
                    break
            if found is None:
                return row
            seed, checks = found.seed, found.checks
            usual = next(iter(hunt(plain, mutation.family, seed, seed + 1, SEED_LIMIT_S))).checks
            new = [check for check in checks if check not in usual]
            if new:
                print(f"  {found.text[:300]}", flush=True)
                return replace(row, seed=seed, checks=", ".join(new))
            print(f"  seed {seed} of {family} fails without the mutation too: {usual}", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("--only", action="append", help="this mutation; may be repeated")
    parser.add_argument("--seeds", type=int, default=2000, help="seeds to try for each")
    parser.add_argument("--each-s", type=float, default=1e9, help="real seconds for each")
    parser.add_argument("--budget-s", type=float, default=1e9, help="real seconds altogether")
    parser.add_argument(
        "--source", type=pathlib.Path, default=ROOT, help="another checkout to take guards out of"
    )
    parser.add_argument("--again", action="store_true", help="forget what the table says")
    options = parser.parse_args(arguments)
    known = {mutation.name for mutation in MUTATIONS}
    for name in options.only or ():
        if name not in known:
            parser.error(f"no mutation is called {name!r}")
    deadline_s = time.monotonic() + options.budget_s
    with copied(None, options.source) as plain:
        for mutation in MUTATIONS:
            if options.only and mutation.name not in options.only:
                continue
            row = None if options.again else read_table().get(mutation.name)
            if row is not None and (row.seed >= 0 or row.tried >= options.seeds):
                continue
            left_s = min(options.each_s, deadline_s - time.monotonic())
            if left_s <= 0:
                break
            try:
                row = try_mutation(mutation, row, options.seeds, left_s, plain, options.source)
            except OutOfDate as error:
                print(error)
                continue
            print(row, flush=True)
            write_table(read_table() | {row.name: row})
    return 0


if __name__ == "__main__":
    sys.exit(main())
