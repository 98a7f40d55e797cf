"""What the command lines share: exit codes, tables, JSON, errors, progress.

Errors go to stderr, results to stdout.  Exit codes: 0 done, 1 failed, 2 wrong usage, 3 partly done.
"""

import argparse
import contextlib
import io
import json
import os
import re
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
MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^][:/@\s]+):([0-9]{1,5})")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")


class CommandError(Exception):
    """The command cannot go on; the text is for the person who typed it."""


class UsageError(CommandError):
    """What was typed makes no sense; the process ends with 2."""


class Parser(argparse.ArgumentParser):
    """Wrong flags are an error of the command that does not know them, so that its usage is shown."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else list(args)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and words:
                word = words[0].removeprefix("--")
                if word != words[0] and word in action.choices:
                    self.error(f"{word} is a word of its own: {self.prog} {word}")
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class Subcommand(Protocol):
    """A module behind one word of the command line."""

    def add_parser(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Declare the word and its flags."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""


def whole(minimum: int, maximum: int = MAX_INT) -> Callable[[str], int]:
    """The type of a flag that takes a whole number in a range; others are wrong usage."""

    def parse(text: str) -> int:
        wrong = argparse.ArgumentTypeError(
            f"expected a whole number from {minimum} to {maximum}, found {text!r}"
        )
        if not _WHOLE.fullmatch(text):
            raise wrong
        number = int(text)
        if not minimum <= number <= maximum:
            raise wrong
        return number

    return parse


def decimal(minimum: float, maximum: float, unit: str) -> Callable[[str], float]:
    """The type of a flag that takes a number with a fraction; others are wrong usage."""

    def parse(text: str) -> float:
        number = float(text) if _DECIMAL.fullmatch(text) else float("nan")
        if not minimum <= number <= maximum:
            raise argparse.ArgumentTypeError(
                f"expected {minimum:g} to {maximum:g} {unit}, found {text!r}"
            )
        return number

    return parse


port = whole(0, MAX_PORT)
"""The type of a flag that takes a port; 0 means any that is free."""


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


def print_warning(message: str) -> None:
    """Something that was probably meant otherwise."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"warning: {message}\n")


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
        found = _ADDRESS.fullmatch(part)
        if found is None or not 0 < int(found[2]) <= MAX_PORT:
            raise UsageError(f"{flag}: expected host:port[,host:port...], found {part!r}")
        addresses.append((found[1].strip("[]"), int(found[2])))
    if not addresses:
        raise UsageError(f"{flag}: expected host:port[,host:port...], found nothing")
    return addresses


def describe_os_error(error: OSError) -> str:
    """`path: what the system says`, without its number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


def read_text(flag: str, path: "str | os.PathLike[str]", encoding: str = "utf-8") -> str:
    """The text of a file that was named on the command line.  Raises CommandError."""
    try:
        with open(path, encoding=encoding) as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"{flag}: {describe_os_error(error)}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{flag}: {os.fspath(path)} is no text: {error.reason}") from error


def write_everything(stream: TextIO) -> None:
    """Have what the terminal's encoding lacks written as escapes; keys and values are anything."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def kafka_addresses(text: str) -> str:
    """The type of a flag that takes addresses of brokers: the text as it is, if it can be used."""
    return _checked(text, text)


def zookeeper_addresses(text: str) -> str:
    """The type of a flag that takes what zookeeper.connect takes, with every port."""
    return _checked(text, text.partition("/")[0])


def _checked(text: str, addresses: str) -> str:
    try:
        parse_addresses("", addresses)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None
    return text


def guarded(run: Callable[[], int]) -> int:
    """Run a command; errors meant for people become one line and an exit code."""
    try:
        return run()
    except UsageError as error:
        print_error(str(error))
        return USAGE
    except CommandError as error:
        print_error(str(error))
        return FAILED
    except BrokenPipeError:
        # Whoever read has seen enough; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        print_error(describe_os_error(error))
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
