"""The answers of Apache Kafka 4.1.2, kept beside the cases in facts.json, one line a case."""

import json
from pathlib import Path
from typing import Any, Final

from .cases import CASES
from .talk import Talk

PATH: Final = Path(__file__).with_name("facts.json")
SETTINGS: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


def run(port: int, name: str, pause_s: float = 0.0) -> list[Any]:
    """What a broker says in one case, as it comes back from JSON."""
    talk = Talk(port, pause_s)
    try:
        CASES[name](talk, name)
    finally:
        talk.close()
    said: list[Any] = json.loads(json.dumps(talk.said))
    return said


def load() -> dict[str, list[Any]]:
    facts: dict[str, list[Any]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return facts


def store(facts: dict[str, list[Any]]) -> None:
    lines = [
        f"{json.dumps(name)}: [\n "
        + ",\n ".join(json.dumps(answer, separators=(",", ":")) for answer in facts[name])
        + "\n]"
        for name in CASES
        if name in facts
    ]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
