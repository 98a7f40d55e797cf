"""What the two commands say of themselves: every word once, in a group, and steps that can be taken."""

import shlex

import pytest

from kafkalike.tools import main as kafkalike_main
from kafkalike.tools.admin import main as admin_main
from tests.unit.tools.test_wrong_usage import parsers

PROGRAMS = {"kafkalike": kafkalike_main, "kafkalike-admin": admin_main}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_stands_there_once(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = PROGRAMS[program]
    assert module.main(["--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: {program} [-h] [--version] COMMAND ...\n")
    commands = page.partition("First steps")[0]
    words = [word for group in module.GROUPS.values() for word in group]
    assert sorted(words) == sorted(module.SUBCOMMANDS)
    for word, (_, text) in module.SUBCOMMANDS.items():
        lines = [line for line in commands.splitlines() if line.split()[:1] == [word]]
        assert [line.split(maxsplit=1)[1] for line in lines] == [text]
    assert all(f"\n{group}:\n" in page for group in module.GROUPS)
    assert max(map(len, page.splitlines())) <= 88


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_first_steps_are_commands_that_there_are(program: str) -> None:
    known = {(name, words): parser for name, words, parser in parsers()}
    steps = [
        line.partition("   ")[0]
        for text in PROGRAMS[program].FIRST_STEPS.splitlines()
        if (line := text.strip()).startswith("kafkalike")
    ]
    assert len(steps) >= 3
    for step in steps:
        name, *rest = shlex.split(step)
        words = tuple(word for word in rest[:2] if not word.startswith("-"))
        known[name, words].parse_args(rest[len(words) :])
