"""`kafkalike broker server.properties`: one broker process."""

import argparse
import pathlib

from kafkalike.config import BrokerConfig, ConfigError
from kafkalike.properties import PropertiesError, parse_properties

from . import cli


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("broker", help="run one broker from a server.properties file")
    parser.add_argument(
        "file", type=pathlib.Path, help="settings in Kafka's server.properties form"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one setting in place of the file's (may be repeated)",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="how much goes to stderr (default: INFO)",
    )
    parser.add_argument(
        "--ready-file",
        type=pathlib.Path,
        help="file to create, holding the bound listeners, once the broker serves",
    )


def run(args: argparse.Namespace) -> int:
    config = load_config(args.file, args.override)
    from .serve import run as serve

    for line in config.warnings():
        cli.print_warning(line)
    return serve(config, log_level=args.log_level, ready_file=args.ready_file)


def load_config(path: pathlib.Path, overrides: list[str]) -> BrokerConfig:
    """Read, override and check.  Raises CommandError with one line."""
    text = cli.read_text("server.properties", path, "iso-8859-1")
    try:
        properties = parse_properties(text)
    except PropertiesError as error:
        raise cli.CommandError(f"{path}: {error}") from error
    properties.update(cli.parse_pairs("--override", overrides))
    try:
        return BrokerConfig.parse(properties)
    except ConfigError as error:
        raise cli.CommandError(f"{path}: {error}") from error
