"""Runs the commands against Apache Kafka 3.9.2 and keeps what they print as facts.

    python -m tests.integration.kafka_tools.record [--ours]

`--ours` runs them against our brokers instead, keeps nothing, and prints where they differ.
"""

import argparse
import difflib
import json
import tempfile
from pathlib import Path
from typing import Final

from .clusters import original, ours
from .commands import COMMANDS
from .run import Text, run

FACTS: Final = Path(__file__).with_name("facts.json")


def load() -> dict[str, Text]:
    facts: dict[str, Text] = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    return facts


def difference(fact: Text, found: Text) -> str:
    """Empty when there is none."""
    if fact == found:
        return ""
    one, other = (
        json.dumps(text, indent=1, ensure_ascii=False).splitlines() for text in (fact, found)
    )
    return "\n".join(difflib.unified_diff(one, other, "original", "ours", lineterm="", n=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.kafka_tools.record")
    parser.add_argument("--ours", action="store_true")
    args = parser.parse_args()
    facts = load()
    with (
        tempfile.TemporaryDirectory(prefix="kafkalike-tools-") as folder,
        (ours if args.ours else original)(Path(folder)) as target,
    ):
        if args.ours:
            for command, text in run(target, COMMANDS):
                said = difference(facts[command.name], text)
                if said:
                    print(f"--- {command.name}\n{said}", flush=True)
            return
        found = {command.name: text for command, text in run(target, COMMANDS)}
    FACTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
