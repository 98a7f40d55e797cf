"""`kafkalike sim`: whole clusters in simulated time, seed after seed.

One line for each seed that fails, with how to run it again.  docs/simulation.md tells what happens
in a run and how to write scenarios, workloads and checks.
"""

import argparse
import importlib.util
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import cli

if TYPE_CHECKING:
    from .simulator.run import Extras, Result
    from .simulator.scenario import Scenario

_STORY_LINES: Final = 60
_CHUNK: Final = 4
"""Seeds that a process is given at once."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "sim",
        help="run clusters in simulated time, from seeds",
        description=__doc__,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--seed",
        type=cli.whole(0, cli.MAX_LONG),
        metavar="N",
        help="one seed, with its story when it fails",
    )
    which.add_argument("--seeds", metavar="A..B", help="all seeds from A to B")
    parser.add_argument(
        "--jobs", type=cli.whole(1, 1024), default=1, metavar="N", help="processes (default: 1)"
    )
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="a scenario (JSON) in place of the one drawn by each seed",
    )
    parser.add_argument(
        "--with",
        dest="extras",
        metavar="FILE",
        help="a Python file with workloads and checks of your own",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="write the whole diary there (with --seed): faults, processes, znodes, partition states,"
        " warnings; not single requests",
    )
    parser.add_argument(
        "--minimize",
        action="store_true",
        help="leave out of a failing scenario what the failure does not need",
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write the scenario there, minimized or not (with --seed)"
    )
    parser.add_argument(
        "--max-failures",
        type=cli.whole(1),
        default=10,
        metavar="N",
        help="stop after N (default: 10)",
    )


@dataclass(slots=True, frozen=True)
class _Job:
    """What a process needs to run seeds."""

    scenario: "Scenario | None"
    """None: each seed draws its own."""
    extras_path: str | None


def run(args: argparse.Namespace) -> int:
    """0: all seeds passed; 1: some did not; 2: wrong usage."""
    from .simulator.values import ScenarioError

    seeds = parse_seeds(args.seeds) if args.seed is None else range(args.seed, args.seed + 1)
    if args.seed is None and (args.trace or args.save or args.minimize):
        raise cli.UsageError("--trace, --save and --minimize need --seed")
    extras = load_extras(args.extras)  # trouble with the files shows before anything runs
    job = _Job(load_scenario(args.scenario, extras), args.extras)
    try:
        if args.seed is not None:
            return _run_one(args, job.scenario, extras)
        return _run_many(seeds, args, job, extras)
    except ScenarioError as error:
        raise cli.UsageError(f"scenario: {error}") from error


def parse_seeds(text: str) -> range:
    """`A..B`, both included.  Raises UsageError."""
    first, dots, last = text.partition("..")
    is_range = dots and all(re.fullmatch("[0-9]{1,18}", number) for number in (first, last))
    if not is_range or int(last) < int(first):
        raise cli.UsageError(
            f"--seeds: expected A..B with A <= B, of at most 18 digits, found {text[:100]!r}"
        )
    return range(int(first), int(last) + 1)


def load_scenario(path: "str | None", extras: "Extras") -> "Scenario | None":
    """Raises UsageError, CommandError."""
    from .simulator.scenario import Scenario
    from .simulator.validity import check_scenario
    from .simulator.values import ScenarioError

    if path is None:
        return None
    text = cli.read_text("--scenario", path, "utf-8-sig")
    try:
        scenario = Scenario.from_json(text)
        check_scenario(scenario, extras.workloads)
    except ScenarioError as error:
        raise cli.UsageError(f"--scenario: {path}: {error}") from error
    return scenario


def load_extras(path: "str | None") -> "Extras":
    """`WORKLOADS` and `CHECKS` of a Python file.  Raises UsageError, CommandError."""
    from .simulator.run import Extras
    from .simulator.values import describe_error

    if path is None:
        return Extras()
    cli.read_text("--with", path)
    spec = importlib.util.spec_from_file_location("kafkalike_sim_extras", path)
    if spec is None or spec.loader is None:
        raise cli.UsageError(f"--with: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module by its name
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.append(folder)  # as `python FILE` would find its neighbours
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise cli.UsageError(f"--with: {path} cannot be loaded: {describe_error(error)}") from error
    workloads: Any = getattr(module, "WORKLOADS", {})
    checks: Any = getattr(module, "CHECKS", ())
    if not workloads and not checks:
        raise cli.UsageError(f"--with: {path} defines neither WORKLOADS nor CHECKS")
    if not isinstance(workloads, Mapping) or not all(
        isinstance(kind, str) and callable(factory) for kind, factory in workloads.items()
    ):
        raise cli.UsageError(
            f"--with: {path}: WORKLOADS: expected a dict of classes by kind, found {workloads!r}"
        )
    if not isinstance(checks, list | tuple) or not all(map(_is_check, checks)):
        raise cli.UsageError(
            f"--with: {path}: CHECKS: expected a list of classes with `name` and `problems`,"
            f" found {checks!r}"
        )
    return Extras(workloads, tuple(checks))


def _is_check(given: Any) -> bool:
    name = getattr(given, "name", None)
    return isinstance(given, type) and type(name) is str and hasattr(given, "problems")


# -- one seed ----------------------------------------------------------------------------------


def _run_one(args: argparse.Namespace, given: "Scenario | None", extras: "Extras") -> int:
    from .simulator.run import run as run_seed
    from .simulator.scenario import Scenario

    seed = args.seed
    scenario = given or Scenario.generate(seed)
    if args.trace:
        try:
            with open(args.trace, "w", encoding="utf-8") as file:
                result = run_seed(
                    seed, scenario, extras=extras, trace=lambda event: print(event, file=file)
                )
                print(f"trace {result.trace_hash}", file=file)
        except OSError as error:
            raise cli.CommandError(f"--trace: {args.trace}: {error.strerror}") from error
    else:
        result = run_seed(seed, scenario, extras=extras)
    if args.minimize and result.ok:
        cli.print_note("nothing to minimize: the seed passed")
    elif args.minimize:
        scenario, result = _minimize(seed, scenario, result, extras)
    if args.save:
        scenario.save(args.save)
    _tell(scenario, result)
    return cli.DONE if result.ok else cli.FAILED


def _minimize(
    seed: int, scenario: "Scenario", result: "Result", extras: "Extras"
) -> "tuple[Scenario, Result]":
    from .simulator.run import run as run_seed
    from .simulator.shrink import shrink
    from .simulator.values import ScenarioError

    checker = result.violations[0].checker
    runs = 0

    def fails(candidate: "Scenario") -> bool:
        nonlocal runs
        runs += 1
        try:
            found = run_seed(seed, candidate, extras=extras).violations
        except ScenarioError:  # what is left out is named by what is left
            return False
        return any(violation.checker == checker for violation in found)

    smallest = shrink(scenario, fails)
    cli.print_note(
        f"{len(scenario.faults)} faults became {len(smallest.faults)},"
        f" {len(scenario.workloads)} workloads {len(smallest.workloads)}, in {runs} runs"
    )
    return smallest, run_seed(seed, smallest, extras=extras)


def _tell(scenario: "Scenario", result: "Result") -> None:
    print(f"{scenario.cluster.brokers} brokers, {scenario.duration_ms} ms", end="")
    for topic in scenario.topics:
        print(f"; {topic.name}: {topic.partitions} x {topic.replication_factor}", end="")
    print()
    for workload in scenario.workloads:
        print(f"workload {workload.kind} {workload.options}")
    for fault in scenario.faults:
        print(f"fault {fault}")
    if not result.ok:
        print("\nWhat happened last:")
        for line in result.story[-_STORY_LINES:]:
            print(f"  {line}")
        print("\nBroken:")
        for violation in result.violations:
            print(f"  {violation.at_ms / 1000:.3f} s  {violation.checker}: {violation.text}")
    print(
        f"\nseed {result.seed} {'passed' if result.ok else 'FAILED'}"
        f"  {result.virtual_ms / 1000:.1f} s in {result.wall_s:.2f} s  trace {result.trace_hash}"
    )


# -- many seeds --------------------------------------------------------------------------------


def _run_many(seeds: range, args: argparse.Namespace, job: _Job, extras: "Extras") -> int:
    began_s = time.perf_counter()
    progress = cli.Progress("seeds", len(seeds))
    done = failures = virtual_ms = 0
    for result in _results(seeds, args.jobs, job, extras):
        done += 1
        virtual_ms += result.virtual_ms
        if not result.ok:
            failures += 1
            print(_line(result, args), flush=True)
            if failures >= args.max_failures:
                break
        progress.update(done)
    progress.finish()
    wall_s = time.perf_counter() - began_s
    print(
        f"{done} seeds, {failures} failed, {virtual_ms / 1000:.0f} s simulated in {wall_s:.1f} s"
        f" ({virtual_ms / 1000 / wall_s:.0f} times real time, {args.jobs} jobs)"
    )
    if done < len(seeds):
        cli.print_note(
            f"stopped after {failures} failures (--max-failures), with {done} of {len(seeds)} seeds run"
        )
    return cli.FAILED if failures else cli.DONE


def _line(result: "Result", args: argparse.Namespace) -> str:
    first = result.violations[0]
    words = ["kafkalike sim", f"--seed {result.seed}"]
    words += [f"--scenario {shlex.quote(args.scenario)}"] if args.scenario else []
    words += [f"--with {shlex.quote(args.extras)}"] if args.extras else []
    text = first.text.strip().splitlines()
    return (
        f"seed {result.seed} FAILED  {first.checker}: {text[0][:200] if text else ''}"
        f"{' ... ' + text[-1][:200] if len(text) > 1 else ''}"
        f"  trace {result.trace_hash}  again: {' '.join(words)}"
    )


def _results(seeds: range, jobs: int, job: _Job, extras: "Extras") -> "Iterator[Result]":
    if jobs == 1:
        yield from map(_seed_runner(job.scenario, extras), seeds)
        return
    import multiprocessing

    # Fresh interpreters: a simulation must not inherit what this process has loaded or logged.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _begin_process, (job,)) as pool:
        yield from pool.imap_unordered(_run_in_process, seeds, _CHUNK)


def _seed_runner(scenario: "Scenario | None", extras: "Extras") -> "Callable[[int], Result]":
    from .simulator.run import run as run_seed

    def run_one(seed: int) -> "Result":
        result = run_seed(seed, scenario, extras=extras)
        if result.ok:
            result.story.clear()
        return result

    return run_one


_process: "dict[str, Callable[[int], Result]]" = {}
"""The runner of a pool's process."""


def _begin_process(job: _Job) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _process["run"] = _seed_runner(job.scenario, load_extras(job.extras_path))
    except cli.CommandError as error:
        # A pool would start processes for ever where one cannot begin: each seed tells instead.
        problem = error

        def refuse(seed: int) -> "Result":
            raise problem

        _process["run"] = refuse


def _run_in_process(seed: int) -> "Result":
    return _process["run"](seed)


if __name__ == "__main__":
    sys.exit("run it as: kafkalike sim")
