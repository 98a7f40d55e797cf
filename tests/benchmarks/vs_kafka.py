"""kafkalike and Apache Kafka on the same machine, in one run, by turns.

    python -m tests.benchmarks.vs_kafka [--three] [--rounds N] [--seconds S] [--only a,b] [--quick]

Both clusters stand side by side, each beside a ZooKeeper of its own, and every item of work is done
against one and then against the other, never both at once; who is first changes with every round (A B,
B A), and a first round that does not count warms both up.  The medians, their spread and the ratio go
into the generated section of docs/benchmarks.md, a drawing and all figures (JSON) beside it.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks import report
from tests.benchmarks.sides import (
    ROOT,
    KafkalikeSide,
    KafkaSide,
    Side,
    client_version,
    resident_mb,
    stop_on_signals,
)
from tests.benchmarks.work import (
    ITEMS,
    LIMIT_S,
    TOPIC_BYTES,
    Context,
    Figures,
    Item,
    compile_load,
)
from tests.reference_kafka import jars

DOCUMENT: Final = ROOT / "docs" / "benchmarks.md"
TRIAL: Final = ROOT / ".data" / "benchmarks"
GROUPS: Final = ("wire", "librdkafka", "java", "start", "three")
TOUCHED_BYTES: Final = 8_000_000_000
FRESH_BYTES: Final = 2_000_000_000
QUICK_TOPIC_BYTES: Final = 100_000_000
SETTLED_S: Final = 3.0
BUSY_SHARE: Final = 0.1
"""More of the machine than this in the hands of others makes figures worthless."""
LOOK_S: Final = 3.0
START_TITLE: Final = "One broker"
MEMORY_TITLES: Final = {1: "One broker, after these rounds", 3: "Three brokers, after these rounds"}

Results = dict[str, dict[str, list[Figures]]]
"""Title -> side -> figures of each round."""


class Comparison:
    """What was found so far."""

    def __init__(self, rounds: int, seconds: float, topic_bytes: int, load: Path | None) -> None:
        self.results: Results = {}
        self.problems: list[str] = []
        self._rounds = rounds
        self._seconds = seconds
        self._topic_bytes = topic_bytes
        self._load = load

    def note(self, title: str, side: Side, figures: Figures) -> None:
        self.results.setdefault(title, {}).setdefault(side.name, []).append(figures)

    def trouble(self, text: str) -> None:
        say(f"  {text}")
        if text not in self.problems:
            self.problems.append(text)

    def starts(self, sides: Sequence[Side]) -> None:
        """One broker of each on an empty folder, alone, as often as there are rounds."""
        for number in range(self._rounds + 1):
            for side in sides:
                try:
                    with side.cluster(1) as (cluster, took_s):
                        time.sleep(SETTLED_S)
                        memory = resident_mb(cluster.pids)
                except Exception as error:
                    self.trouble(f"start of {side.name}: {error}")
                    continue
                say(f"round {number}: start of {side.name}: {took_s:.2f} s, {memory:.0f} MB")
                if number > 0:  # the first reads the programs from the disk
                    self.note(START_TITLE, side, {"start": took_s, "memory idle": memory})

    def rounds(self, sides: Sequence[Side], items: Sequence[Item], brokers: int) -> None:
        """Clusters of `brokers` each, all items against both, as often as there are rounds."""
        with contextlib.ExitStack() as stack:
            clusters = [(side, stack.enter_context(side.cluster(brokers))[0]) for side in sides]
            for number in range(self._rounds + 1):
                touch_memory(TOUCHED_BYTES)
                for item in items:
                    # Whoever is second gets the memory that the first has just used and given back.
                    for side, cluster in clusters if number % 2 else clusters[::-1]:
                        touch_memory(FRESH_BYTES)
                        context = Context(cluster, self._seconds, self._topic_bytes, self._load)
                        self._measure(number, item, side, context)
            for side, cluster in clusters:
                memory = resident_mb(cluster.pids)
                self.note(MEMORY_TITLES[brokers], side, {"memory after load": memory})

    def _measure(self, number: int, item: Item, side: Side, context: Context) -> None:
        try:
            figures = item.run(context)
        except Exception as error:
            self.trouble(f"{item.name}, {side.name}: {type(error).__name__}: {error}")
            return
        told = ", ".join(f"{name} {report.figure(value)}" for name, value in figures.items())
        say(f"round {number}: {item.name}, {side.name}: {told}")
        if number > 0:
            self.note(item.title, side, figures)


def say(text: str) -> None:
    print(text, flush=True)


def touch_memory(most_bytes: int) -> None:
    """Have a child take and give back memory: pages that a virtual machine does not have are slow.

    One that it has given back to its host is slow again.
    """
    size = min(most_bytes, available_bytes() // 2)
    code = f"import mmap; m = mmap.mmap(-1, {size})\nfor i in range(0, {size}, 4096): m[i] = 1"
    subprocess.run([sys.executable, "-c", code], timeout=LIMIT_S, check=True)


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


# Machine and software.


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=20,
            check=False,
            cwd=ROOT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip().partition("\n")[0] or "unknown"


def facts(folder: Path) -> dict[str, str]:
    import twisted

    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=ROOT,
    ).stdout.strip()
    commit = first_line("git", "rev-parse", "--short=12", "HEAD")
    names = " ".join(path.name for path in jars().iterdir())
    kafka = re.search(r"kafka-clients-([\d.]+)\.jar", names)
    zookeeper = re.search(r"zookeeper-([\d.]+)\.jar", names)
    return {
        "processor": f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GB",
        "kernel": platform.release(),
        "file system of the logs": first_line("stat", "-f", "-c", "%T", str(folder)),
        "kafkalike": f"commit {commit}{' with changes' if changed else ''}",
        "Python": f"{platform.python_version()}, Twisted {twisted.__version__}",
        "Kafka": f"{kafka[1] if kafka else 'unknown'}, {first_line('java', '-version')}",
        "ZooKeeper": f"{zookeeper[1] if zookeeper else 'unknown'}, one for each side",
        "clients": f"{client_version()}; {first_line('cc', '--version')}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def busy_share() -> float:
    """How much of all cores' time others take now, looked at for a moment in which we do nothing.

    A load average would do less well: it remembers what ended a minute ago.
    """

    def times() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    before = times()
    time.sleep(LOOK_S)
    spent = [after - at_first for after, at_first in zip(times(), before, strict=True)]
    waited = spent[3] + spent[4]  # idle, and idle for the disk
    return 1 - waited / max(sum(spent), 1)


def quietness(busy: tuple[float, float]) -> str:
    """A line on what others did on this machine before and after."""
    line = (
        f"Others took {busy[0]:.0%} of the machine before the start and {busy[1]:.0%} after the end"
    )
    if max(busy) > BUSY_SHARE:
        return line + ": **the machine was busy, do not trust these figures.**"
    return line + "."


def conditions(args: argparse.Namespace, topic_bytes: int, busy: tuple[float, float]) -> list[str]:
    lines = [
        f"Rounds that count: {args.rounds}, by turns, after one that does not;"
        f" {args.seconds:g} s for each item; given is the median (least - most)."
        f" A topic never holds more than {topic_bytes / 1e9:g} GB.",
        "Brokers, ZooKeeper and clients share all cores; nothing is pinned."
        " One side works while the other stands idle beside it.",
        "Broker settings are the defaults but for addresses, replication factors of internal topics"
        " and no first wait of groups; kafkalike with the environment of deploy/kafkalike@.service,"
        " Kafka with 1 GB of heap and G1. Topics with file.delete.delay.ms=1000.",
        f"Up to {TOUCHED_BYTES / 1e9:g} GB of memory were touched before every round,"
        f" {FRESH_BYTES / 1e9:g} GB before every measurement; who is first changes with every round.",
        quietness(busy),
    ]
    if args.quick:
        lines.insert(0, "**A quick trial: the figures mean nothing.**")
    return lines


# The program.


def chosen_items(only: Sequence[str], three: bool) -> tuple[list[Item], bool]:
    """The items, and whether starts are measured.  `only` has names and groups; empty is all."""
    items = [
        item
        for item in ITEMS
        if (item.name in only or item.group in only)
        or (not only and (three or item.group != "three"))
    ]
    return items, not only or "start" in only


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    names = [item.name for item in ITEMS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.vs_kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"groups: {', '.join(GROUPS)}\nitems: {', '.join(names)}",
    )
    parser.add_argument("--three", action="store_true", help="three brokers each as well")
    parser.add_argument("--rounds", type=int, help="that count (default: 3)")
    parser.add_argument("--seconds", type=float, help="for each item (default: 5)")
    parser.add_argument("--only", default="", metavar="A,B", help="groups or items")
    parser.add_argument("--quick", action="store_true", help="see whether it runs: 1 round of 1 s")
    parser.add_argument(
        "--document",
        type=Path,
        help="file with the two markers; .json and .svg go beside it (default: docs/benchmarks.md,"
        " with --quick or --only one in .data)",
    )
    parser.add_argument("--dir", type=Path, help="where brokers keep their data (default: TMPDIR)")
    args = parser.parse_args(arguments)
    args.only = [name for name in args.only.split(",") if name]
    unknown = set(args.only) - set(names) - set(GROUPS)
    if unknown:
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}")
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (1.0 if args.quick else 5.0)
    if args.rounds < 1 or args.seconds < 1:
        parser.error("--rounds and --seconds: expected at least 1")
    if args.document is None:
        args.document = trial_document() if args.quick or args.only else DOCUMENT
    return args


def trial_document() -> Path:
    TRIAL.mkdir(parents=True, exist_ok=True)
    path = TRIAL / "benchmarks.md"
    path.write_text(f"{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    return path


def compare(args: argparse.Namespace, folder: Path) -> Comparison:
    load, reason = compile_load(folder)
    items, with_starts = chosen_items(args.only, args.three)
    topic_bytes = QUICK_TOPIC_BYTES if args.quick else TOPIC_BYTES
    comparison = Comparison(args.rounds, args.seconds, topic_bytes, load)
    if load is None:
        without = [item.name for item in items if item.needs_load]
        comparison.trouble(f"{', '.join(without)}: skipped, {reason}")
        items = [item for item in items if not item.needs_load]
    with contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(make(folder / make.name)) for make in (KafkalikeSide, KafkaSide)
        ]
        touch_memory(TOUCHED_BYTES)
        if with_starts:
            comparison.starts(sides)
        for brokers in (1, 3):
            of_this_size = [item for item in items if item.brokers == brokers]
            if of_this_size:
                try:
                    comparison.rounds(sides, of_this_size, brokers)
                except Exception as error:  # what the other size came to is kept
                    comparison.trouble(f"clusters of {brokers}: {type(error).__name__}: {error}")
    return comparison


@contextlib.contextmanager
def working_folder(parent: Path | None) -> Iterator[Path]:
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="kafkalike-vs-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    args = parse()
    stop_on_signals()
    jars()  # fetched before anything is measured
    before = busy_share()
    with working_folder(args.dir) as folder:
        described = facts(folder)
        comparison = compare(args, folder)
    topic_bytes = QUICK_TOPIC_BYTES if args.quick else TOPIC_BYTES
    told = conditions(args, topic_bytes, (before, busy_share()))
    found = report.rows(comparison.results)
    drawing = args.document.with_suffix(".svg")
    section = report.markdown(found, described, told, comparison.problems, drawing.name)
    report.insert(args.document, section)
    drawing.write_text(report.plot(found), encoding="utf-8")
    data = {
        "facts": described,
        "conditions": told,
        "problems": comparison.problems,
        "results": comparison.results,
    }
    args.document.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    say(f"\n{section}\nwritten: {args.document} and .json, .svg beside it")
    return 1 if comparison.problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
