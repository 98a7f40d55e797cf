"""What a person may type wrongly, for every verb and flag of both commands.

Numbers, choices and addresses are refused while the words are read; so each flag can be tried alone.
Paths are tried through whole commands, in processes of their own.
"""

import argparse
import importlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

import kafkalike
from kafkalike.tools import cli
from kafkalike.tools import main as kafkalike_main
from kafkalike.tools.admin import main as admin_main

PROGRAMS = {"kafkalike": kafkalike_main, "kafkalike-admin": admin_main}


class Flag(NamedTuple):
    program: str
    words: tuple[str, ...]
    name: str
    action: argparse.Action

    def __str__(self) -> str:
        return " ".join((self.program, *self.words, self.name))


def parsers() -> Iterator[tuple[str, tuple[str, ...], argparse.ArgumentParser]]:
    """Every (program, verbs, parser) there is."""
    for program, module in PROGRAMS.items():
        package = module.__package__ or ""
        for word, (name, _) in module.SUBCOMMANDS.items():
            parser = argparse.ArgumentParser(prog=program)
            importlib.import_module(f"{package}.{name}").add_parser(parser.add_subparsers())
            yield from _below(program, (), parser, word)


def _below(
    program: str, words: tuple[str, ...], parser: argparse.ArgumentParser, word: str | None = None
) -> Iterator[tuple[str, tuple[str, ...], argparse.ArgumentParser]]:
    if words:
        yield program, words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                if word is None or name == word:
                    yield from _below(program, (*words, name), child)


def flags() -> list[Flag]:
    return [
        Flag(
            program,
            words,
            action.option_strings[-1] if action.option_strings else action.dest,
            action,
        )
        for program, words, parser in parsers()
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    ]


FLAGS = flags()
NUMBERS = [
    flag
    for flag in FLAGS
    if getattr(flag.action.type, "__qualname__", "").startswith(("whole.", "decimal."))
]
CHOICES = [flag for flag in FLAGS if flag.action.choices and flag.action.type is None]
WRONG_NUMBERS = (
    "x",
    "",
    "1.5.2",
    "1e",
    "99999999999999999999999",
    "-99999999999999999999999",
    "١٢",
)


def test_the_tables_are_not_empty() -> None:
    assert len(FLAGS) > 120
    assert len(NUMBERS) > 25
    assert len(CHOICES) > 10


def test_every_number_says_what_it_may_be() -> None:
    """`int` and `float` take what no command can use."""
    assert [str(flag) for flag in FLAGS if flag.action.type in (int, float)] == []


@pytest.mark.parametrize("flag", NUMBERS, ids=str)
def test_wrong_numbers_are_wrong_usage(flag: Flag, capsys: pytest.CaptureFixture[str]) -> None:
    main = PROGRAMS[flag.program].main
    values = list(WRONG_NUMBERS)
    if not flag.name.endswith(("shift-by", "acks")):
        values.append("-1")
    for value in values:
        assert main([*flag.words, f"{flag.name}={value}"]) == cli.USAGE, value
        captured = capsys.readouterr()
        assert captured.out == ""
        last = captured.err.splitlines()[-1]
        assert flag.name in last and "expected" in last and repr(value) in last, last


@pytest.mark.parametrize("flag", CHOICES, ids=str)
def test_unknown_choices_are_wrong_usage(flag: Flag, capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAMS[flag.program].main([*flag.words, f"{flag.name}=nonsense"]) == cli.USAGE
    captured = capsys.readouterr()
    assert "nonsense" in captured.err.splitlines()[-1] and captured.out == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_unknown_words_and_flags_are_wrong_usage(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = PROGRAMS[program].main
    assert main([]) == main(["nonsense"]) == main(["--nonsense"]) == cli.USAGE
    for _, words, _ in [one for one in parsers() if one[0] == program]:
        capsys.readouterr()
        assert main([*words, "--no-such-flag"]) == cli.USAGE
        assert capsys.readouterr().err.startswith(f"usage: {' '.join((program, *words))} ")
    capsys.readouterr()
    assert main(["--version"]) == cli.DONE
    assert capsys.readouterr().out == f"{program} {kafkalike.__version__}, speaks Kafka 3.9\n"


def test_verbs_with_dashes_as_kafka_has_them_are_told_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = 0
    for program, words, parser in parsers():
        for action in parser._actions:
            for verb in action.choices if isinstance(action, argparse._SubParsersAction) else ():
                found += 1
                assert PROGRAMS[program].main([*words, f"--{verb}", *B]) == cli.USAGE
                last = capsys.readouterr().err.splitlines()[-1]
                assert last.endswith(
                    f"{verb} is a word of its own: {' '.join((program, *words, verb))}"
                )
    assert found >= 20


def test_help_speaks_to_people() -> None:
    """No names of things inside, and every flag says what it is for."""
    for program, words, parser in parsers():
        text = parser.format_help()
        for inside in ("eference:", "log-store", "reference/", "Raises"):
            assert inside not in text, (program, words, inside)
    unexplained = [str(f) for f in FLAGS if not f.action.help and f.name.startswith("--")]
    assert unexplained == []


# -- paths and addresses ---------------------------------------------------------------------------

B = ("--bootstrap-server", "127.0.0.1:9")
ELECT = ("kafkalike-admin", "leaders", "elect", *B, "--election-type", "preferred")
GENERATE = ("kafkalike-admin", "reassign", "generate", *B, "--broker-list", "1")
MISSING, FOLDER, EMPTY, GARBAGE = "MISSING", "FOLDER", "EMPTY", "GARBAGE"

PATHS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("kafkalike", "broker", "PATH"), (MISSING, FOLDER, EMPTY)),
    (("kafkalike", "up", "--config", "PATH"), (MISSING, FOLDER)),
    (("kafkalike", "up", "--dir", "PATH"), (GARBAGE, "/dev/null/x")),
    (("kafkalike", "zookeeper", "--port", "0", "--dir", "PATH"), (GARBAGE, "/dev/null/x")),
    (("kafkalike", "zookeeper", "export", "PATH", "--dir", "/nonexistent"), ("x",)),
    (("kafkalike", "zookeeper", "export", "x", "--dir", "PATH"), (MISSING, GARBAGE)),
    (("kafkalike", "zookeeper", "import", "PATH", "--dir", "x"), (MISSING, FOLDER, EMPTY, GARBAGE)),
    (("kafkalike", "dump-log", "--files", "PATH"), (MISSING, GARBAGE)),
    (("kafkalike", "sim", "--seed", "1", "--scenario", "PATH"), (MISSING, FOLDER, EMPTY, GARBAGE)),
    (("kafkalike", "sim", "--seed", "1", "--with", "PATH"), (MISSING, FOLDER, EMPTY)),
    (("kafkalike", "sim", "--seed", "1", "--trace", "PATH"), (FOLDER, "/nonexistent/x")),
    (
        (*ELECT, "--path-to-json-file", "PATH"),
        (MISSING, FOLDER, EMPTY, GARBAGE),
    ),
    (
        (*GENERATE, "--topics-to-move-json-file", "PATH"),
        (MISSING, FOLDER, EMPTY, GARBAGE),
    ),
    (
        ("kafkalike-admin", "reassign", "execute", *B, "--reassignment-json-file", "PATH"),
        (MISSING, FOLDER, EMPTY, GARBAGE),
    ),
    (
        ("kafkalike-admin", "groups", "reset-offsets", *B, "--group", "g", "--from-file", "PATH"),
        (MISSING, FOLDER),
    ),
    (("kafkalike-admin", "explain", "t-0", "--dir", "PATH"), (MISSING, FOLDER, GARBAGE)),
    (("kafkalike-admin", "losses", "--dir", "PATH"), (MISSING, GARBAGE)),
    (("kafkalike-admin", "verify", "--dir", "PATH"), (MISSING, FOLDER, GARBAGE)),
]

ADDRESSES: list[tuple[str, ...]] = [
    ("kafkalike", "up", "--zookeeper", "ADDRESS"),
    ("kafkalike", "dump-zk", "--zookeeper", "ADDRESS"),
    ("kafkalike", "zookeeper", "export", "x", "--zookeeper", "ADDRESS"),
    ("kafkalike", "bench", "--bootstrap-server", "ADDRESS"),
    ("kafkalike-admin", "verify", *B, "--zookeeper", "ADDRESS"),
    ("kafkalike-admin", "cluster", "describe", "--bootstrap-server", "ADDRESS"),
]
WRONG_ADDRESSES = (
    "",
    "x",
    "x:",
    ":9",
    "x:y",
    "x:0",
    "x:-1",
    "x:65536",
    "x:9,y",
    "[::1",
    "http://x:9",
)


def run(words: tuple[str, ...], folder: pathlib.Path) -> tuple[tuple[str, ...], int, str, str]:
    module = "kafkalike.tools.main" if words[0] == "kafkalike" else "kafkalike.tools.admin.main"
    root = pathlib.Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-m", module, *words[1:]],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    return words, done.returncode, done.stdout, done.stderr


def test_paths_that_cannot_be_used_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / EMPTY).write_bytes(b"")
    (tmp_path / GARBAGE).write_bytes(b"\0\xff{[garbage\n")
    cases = [
        tuple(kind if word == "PATH" else word for word in words)
        for words, kinds in PATHS
        for kind in kinds
    ]
    bad = []
    with ThreadPoolExecutor(4) as pool:
        for words, code, _, err in pool.map(lambda words: run(words, tmp_path), cases):
            lines = [line for line in err.splitlines() if "error: " in line]
            kinds = (MISSING, FOLDER, EMPTY, GARBAGE)
            path = next((word for word in words if word in kinds or word.startswith("/")), "")
            if (
                code not in (cli.FAILED, cli.USAGE)
                or "Traceback" in err
                or "Errno" in err
                or not lines
                or lines != err.splitlines()[-1:]
                or path not in "".join(lines)
            ):
                bad.append(f"{' '.join(words)}: {code}\n{err}")
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("words", ADDRESSES, ids=" ".join)
def test_malformed_addresses_are_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in WRONG_ADDRESSES:
        typed = [wrong if word == "ADDRESS" else word for word in words[1:]]
        assert PROGRAMS[words[0]].main(typed) == cli.USAGE, wrong
        last = capsys.readouterr().err.splitlines()[-1]
        assert words[-2] in last and "expected host:port" in last
