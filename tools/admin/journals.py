"""Journals and loss ledgers of several brokers, read from their directories and put into one order."""

import argparse
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kafkalike.broker.journal import Entry, file_names, parse

from .. import cli

_PATTERNS: Final = ("", "*/", "*/*/")
"""A log directory itself, the folder of a broker, the folder of a local cluster."""


@dataclass(slots=True, frozen=True)
class History:
    """Entries of all brokers by time; those of one broker keep the order in which it wrote them."""

    entries: list[Entry]
    files: list[str]
    unreadable_lines: int


def add_dir_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        action="append",
        required=True,
        metavar="DIR",
        help="a log directory, kafkalike.journal.dir, or a folder of such (may be repeated)",
    )


def read_history(directories: list[str], *stems: str) -> History:
    """All files of `stems` in and up to two levels below `directories`.

    Raises CommandError when a directory does not exist.
    """
    files: list[str] = []
    unreadable = 0
    sequences: list[list[tuple[int, Entry]]] = []
    for folder in _folders(directories, stems):
        for stem in stems:
            entries: list[tuple[int, Entry]] = []
            latest_ms = 0
            for path in (folder / name for name in file_names(stem)):
                if not path.is_file():
                    continue
                files.append(str(path))
                for entry in parse(path.read_bytes()):
                    if entry is None:
                        unreadable += 1
                        continue
                    # A clock that was set back must not turn the story of its broker around.
                    latest_ms = max(latest_ms, entry["time_ms"])
                    entries.append((latest_ms, entry))
            sequences.append(entries)
    merged = heapq.merge(*sequences, key=lambda item: item[0])
    return History([entry for _, entry in merged], files, unreadable)


def _folders(directories: list[str], stems: Iterable[str]) -> list[Path]:
    found: set[Path] = set()
    for text in directories:
        root = Path(text)
        if not root.is_dir():
            raise cli.CommandError(f"--dir: {text} is no directory")
        for pattern in _PATTERNS:
            for stem in stems:
                for name in file_names(stem):
                    found.update(path.parent.resolve() for path in root.glob(pattern + name))
    return sorted(found)


def parse_time(flag: str, text: str) -> int:
    """ISO 8601 (UTC unless it says otherwise) or ms since the epoch, as ms.  Raises UsageError."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise cli.UsageError(
            f"{flag}: expected a time like 2024-05-01T12:30:00 (UTC) or ms since 1970, found {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time_text(time_ms: int) -> str:
    """`2024-05-01 12:30:00.250`, UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"
