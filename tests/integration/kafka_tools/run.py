"""Runs the commands on a cluster and gives what they print in a form that two clusters share."""

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.clusters import Cluster
from tests.differential.normal import replaced_in
from tests.differential.tree import ClusterTree

from .commands import Command
from .programs import Programs

PATIENCE_S: Final = 30.0
LOG_LINE: Final = re.compile(r"\[\d{4}-\d\d-\d\d .*|(Tools\$Ended: )?ended$")
TOPIC_ID: Final = re.compile(r"(TopicId: |topic_id=)[\w-]{22}")
CLIENT: Final = re.compile(
    r"\b[\w.-]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:,.]\d+|\b1\d{12}\b")
PLACE: Final = re.compile(r"<broker \d>  \(\d\)")
SIZE: Final = re.compile(r'"size":\d+')
NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more).*")
SENTENCE_WORDS: Final = 8
WORD: Final = re.compile(r"[a-z]{2,}")

Text: TypeAlias = dict[str, Any]
"""`status`, and lines of `out` and `err`; of a sentence only a digest."""


@dataclass(slots=True, frozen=True)
class Target:
    """A running cluster.  `replaced`: what is particular to this run, longest first."""

    cluster: Cluster
    addresses: Sequence[str]
    replaced: dict[str, str] = field(default_factory=dict)


def run(target: Target, commands: Sequence[Command]) -> Iterator[tuple[Command, Text]]:
    with Programs() as programs, tempfile.TemporaryDirectory() as folder:
        for command in commands:
            yield command, _run(programs, target, command, Path(folder))


def _run(programs: Programs, target: Target, command: Command, folder: Path) -> Text:
    name, *arguments = [_filled(w, target, command, folder) for w in command.line.split()]
    if name == "kill":
        broker_id = int(arguments[0])
        target.cluster.kill(broker_id)
        ClusterTree(target.cluster.zookeeper).forget_broker(broker_id)
        return {"status": 0, "out": [], "err": []}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        start = programs.run_alone if command.alone else programs.run
        printed = start(name, arguments, command.given)
        done = command.until is None or command.until(printed.out)
        if done or printed.status or time.monotonic() > deadline:
            break
    return {
        "status": printed.status,
        "out": _normal(printed.out, target, command),
        "err": _normal(printed.err, target, command),
    }


def _filled(word: str, target: Target, command: Command, folder: Path) -> str:
    for number, content in enumerate(command.files, 1):
        if word == f"{{{number}}}":
            path = folder / f"{number}.json"
            for real, name in target.replaced.items():
                content = content.replace(name, real)
            path.write_text(content)
            return str(path)
    word = word.replace("{bootstrap}", ",".join(target.addresses))
    return word.replace("{one}", target.addresses[0])


def _normal(text: str, target: Target, command: Command) -> list[str]:
    text = replaced_in(text, target.replaced)
    lines = []
    for line in text.replace("\r", "\n").splitlines():
        if LOG_LINE.match(line) or FRAME.match(line) or any(w in line for w in command.without):
            continue
        if '"logDirs"' in line:
            line = json.dumps(_sorted(json.loads(line)), separators=(",", ":"))
        line = TOPIC_ID.sub(r"\1<id>", line)
        line = CLIENT.sub("<member>", line)
        line = TIME.sub("<time>", line)
        if command.numbers:
            line = NUMBER.sub("0", line)
        line = re.sub(r" {2,}", "  ", line).rstrip()
        line = PLACE.sub("<coordinator>", line)
        line = SIZE.sub('"size":0', line)
        if line:
            if _is_sentence(line):
                line = f"{line[:20]}..." if command.own_words else _digest(line)
            lines.append(line)
    if command.last:
        lines = lines[-1:]
    return sorted(lines) if command.unordered else lines


def _sorted(value: Any) -> Any:
    """Directories and replicas come in the order of a hash table."""
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=repr)
    return {k: _sorted(v) for k, v in value.items()} if isinstance(value, dict) else value


def _is_sentence(line: str) -> bool:
    return sum(bool(WORD.fullmatch(word)) for word in line.split()) >= SENTENCE_WORDS


def _digest(line: str) -> str:
    return f"{line[:20]}... {hashlib.sha256(line.encode()).hexdigest()[:16]}"
