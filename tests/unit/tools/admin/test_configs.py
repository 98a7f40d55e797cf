"""`kafkalike-admin configs`: what its words mean."""

import argparse

import pytest

from kafkalike.tools import cli
from kafkalike.tools.admin import configs, main


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configs.add_parser(parser.add_subparsers())
    return parser.parse_args(["configs", *words, "--bootstrap-server", "h:1"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" a = 1 , b=[x,y] ,c=", {"a": "1", "b": "x,y", "c": ""}),
        ("a=[1:0,1:1]", {"a": "1:0,1:1"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_settings_to_add(text: str, found: dict[str, str]) -> None:
    assert configs.parse_settings(text) == found


@pytest.mark.parametrize("text", ["", "a", "=1", "a=1,b", "a=[1,2", ",a=1", "a=1,,b=2"])
def test_settings_that_are_none(text: str) -> None:
    with pytest.raises(cli.UsageError, match="KEY=VALUE"):
        configs.parse_settings(text)


@pytest.mark.parametrize(
    ("words", "entity"),
    [
        (("--entity-type", "topics"), ("topics", None)),
        (("--entity-type", "topics", "--entity-name", "t"), ("topics", "t")),
        (("--topic", "t"), ("topics", "t")),
        (("--entity-type", "brokers"), ("brokers", None)),
        (("--entity-type", "brokers", "--entity-default"), ("brokers", "")),
        (("--broker-defaults",), ("brokers", "")),
        (("--broker", "3"), ("brokers", "3")),
        (("--broker-logger", "3"), ("broker-loggers", "3")),
    ],
)
def test_what_is_meant(words: tuple[str, ...], entity: tuple[str, str | None]) -> None:
    assert configs.parse_entity(parsed("describe", *words)) == entity


@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("describe", "--entity-type", "topics", "--topic", "t"),
        ("describe", "--entity-type", "topics", "--entity-default"),
        ("describe", "--entity-type", "broker-loggers"),
        ("describe", "--broker", "x"),
        ("describe", "--topic", "t", "--add-config", "a=1"),
        ("describe", "--alter", "--topic", "t"),
        ("alter", "--topic", "t"),
        ("alter", "--topic", "t", "--add-config", "a"),
        ("alter", "--topic", "t", "--add-config", "a=1", "--all"),
        ("alter", "--topic", "t", "--add-config", "a=1", "--delete-config", "a"),
        ("alter", "--entity-type", "topics", "--add-config", "a=1"),
        ("--topic", "t"),
        ("nonsense", "--topic", "t"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["configs", *words, "--bootstrap-server", "127.0.0.1:9"]) == cli.USAGE
    assert "error: " in capsys.readouterr().err
