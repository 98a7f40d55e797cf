"""What the command lines share: exit codes, tables, JSON, errors, progress.

Errors go to stderr, results to stdout.  Exit codes: 0 done, 1 failed, 2 wrong usage, 3 partly done.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TextIO

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
PARTLY_DONE: Final = 3
INTERRUPTED: Final = 130

MAX_PORT: Final = 65535


class CommandError(Exception):
    """The command cannot go on; the text is for the person who typed it."""


class UsageError(CommandError):
    """What was typed makes no sense; the process ends with 2."""


class Subcommand(Protocol):
    """A module behind one word of the command line."""

    def add_parser(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Declare the word and its flags."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""


def add_output_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        choices=("table", "json"),
        default="table",
        help="table for people, json for programs (default: table)",
    )


def print_json(data: Any, stream: TextIO | None = None) -> None:
    """One document, keys in the order given."""
    json.dump(data, stream or sys.stdout, indent=2, ensure_ascii=False)
    (stream or sys.stdout).write("\n")


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO | None = None
) -> None:
    """Columns as wide as their widest cell, two blanks between them."""
    text = [[str(cell) for cell in row] for row in rows]
    widths = [
        max([len(header), *(len(row[i]) for row in text)]) for i, header in enumerate(headers)
    ]
    out = stream or sys.stdout
    for row in ([*headers], *text):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out.write(line.rstrip() + "\n")


def print_error(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")


def print_note(message: str) -> None:
    """Something to know that is no error; on stderr, so that results stay clean."""
    sys.stderr.write(f"note: {message}\n")


def parse_pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """`k=v` arguments as a mapping.  Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{flag}: expected key=value, found {text!r}")
        pairs[key.strip()] = value
    return pairs


def parse_addresses(flag: str, text: str) -> list[tuple[str, int]]:
    """`host:port,host:port` with IPv6 hosts in brackets.  Raises UsageError."""
    addresses: list[tuple[str, int]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        host, colon, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise UsageError(f"{flag}: expected host:port[,host:port...], found {part!r}")
        addresses.append((host, int(port)))
    if not addresses:
        raise UsageError(f"{flag}: expected host:port[,host:port...], found nothing")
    return addresses


def guarded(run: Callable[[], int]) -> int:
    """Run a command; errors meant for people become one line and an exit code."""
    try:
        return run()
    except UsageError as error:
        print_error(str(error))
        return USAGE
    except (CommandError, OSError) as error:
        print_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


class Progress:
    """A line on the terminal that shows how far long work is; silent where there is no terminal."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = max(total, 1)
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._next_s = 0.0

    def update(self, done: int) -> None:
        """Show `done` of the total, at most ten times a second."""
        now = time.monotonic()
        if not self._shown or (now < self._next_s and done < self._total):
            return
        self._next_s = now + 0.1
        filled = min(30, done * 30 // self._total)
        bar = "#" * filled + "." * (30 - filled)
        self._stream.write(f"\r{self._what} [{bar}] {done}/{self._total}")
        self._stream.flush()

    def finish(self) -> None:
        """Leave the line behind."""
        if self._shown:
            self._stream.write("\n")
