"""Asks Apache Kafka 3.9.2 every case and keeps its answers as facts.

    python -m tests.differential.record [--only WORD] [--ours] [--texts FILE] [FAMILY ...]

`--only` takes the cases whose name contains the word.  `--ours` asks our broker instead, keeps
nothing, and prints where the answers differ.  `--texts` writes all message texts of the answers in
full, to look at while working on them.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from . import facts
from .brokers import original, original_three, our_three, ours
from .case import Case
from .cases import FAMILIES, ON_ONE, ON_THREE, cases_of
from .run import Broker, SetupFailed, first_difference, run
from .states import prepared


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.record")
    parser.add_argument("--only", default="")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--new", action="store_true", help="only cases without a fact")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    args = parser.parse_args()
    chosen = args.families or list(FAMILIES)
    texts: dict[str, list[str]] = {}
    for families, starters in ((ON_ONE, (ours, original)), (ON_THREE, (our_three, original_three))):
        wanted = [family for family in chosen if family in families]
        if not wanted:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="kafkalike-differential-") as folder,
            starters[0 if args.ours else 1](Path(folder) / "broker") as broker,
        ):
            for family in wanted:
                ask_family(broker, family, args, texts)
    if args.texts:
        args.texts.write_text(json.dumps(texts, indent=1))
    return 0


def ask_family(
    broker: Broker, family: str, args: argparse.Namespace, texts: dict[str, list[str]]
) -> None:
    wanted = [case for case in cases_of(family) if args.only in case.name]
    if args.new:
        known = facts.load(family)
        wanted = [case for case in wanted if case.name not in known]
    begin = time.monotonic()
    with prepared(broker, family, wanted):
        (compare if args.ours else keep)(broker, family, wanted, texts)
    print(f"{family}: {len(wanted)} cases, {time.monotonic() - begin:.1f} s", flush=True)


def keep(broker: Broker, family: str, cases: list[Case], texts: dict[str, list[str]]) -> None:
    known = facts.load(family)
    for case in cases:
        try:
            outcome = run(broker, case)
        except SetupFailed as error:
            print(f"  {case.name}: setup: {error}", flush=True)
            continue
        known[case.name] = facts.fact_of(outcome)
        texts[case.name] = outcome.texts
    names = [case.name for case in cases_of(family)]
    facts.store(family, {name: known[name] for name in names if name in known})


def compare(broker: Broker, family: str, cases: list[Case], texts: dict[str, list[str]]) -> None:
    known = facts.load(family)
    for case in cases:
        fact = known.get(case.name)
        try:
            outcome = run(broker, case)
        except SetupFailed as error:
            print(f"  {case.name}: setup: {error}", flush=True)
            continue
        found = facts.fact_of(outcome)
        texts[case.name] = outcome.texts
        if fact is None:
            print(f"  {case.name}: no fact; {found.answers}")
            continue
        difference = first_difference(fact.answers, found.answers)
        if difference and not case.differs:
            print(f"  {case.name}: {difference}", flush=True)
        elif fact.texts != found.texts:
            print(f"  ({case.name}: texts {fact.texts} {found.texts})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
