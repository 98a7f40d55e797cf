"""The `kafkalike` command."""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import kafkalike

from . import cli

SUBCOMMANDS: Final = {
    "up": ("up", "run a whole local cluster until Ctrl-C"),
    "broker": ("broker", "run one broker from a server.properties file"),
    "zookeeper": ("zookeeper", "run the embedded coordination service alone, or move its tree"),
    "bench": ("bench", "measure produce, fetch and round trips against any Kafka address"),
    "sim": ("sim", "run clusters in simulated time, from seeds, and check what they promise"),
    "dump-log": ("dump_log", "print segments, indexes, snapshots and checkpoints"),
    "dump-zk": ("dump_zk", "print what a cluster keeps in ZooKeeper"),
}
"""Word -> (module of this package, what it does).  Only the module asked for is imported."""

GROUPS: Final = {
    "Run": ("up", "broker", "zookeeper"),
    "Measure and test": ("bench", "sim"),
    "Look into files and ZooKeeper": ("dump-log", "dump-zk"),
}

FIRST_STEPS: Final = """\
First steps:
  kafkalike up                           three brokers on 127.0.0.1, ports 9092 to 9094
  kafkalike-admin topics create --bootstrap-server 127.0.0.1:9092 --topic orders
  echo hello | kcat -P -b 127.0.0.1:9092 -t orders
  kcat -C -b 127.0.0.1:9092 -t orders -e
  kafkalike up --brokers 1 --memory      one broker that leaves nothing behind
  kafkalike up --control-port 8099       a cluster that tests can break over HTTP

`kafkalike COMMAND --help` tells about one of them; topics, groups, settings and
the like are the business of `kafkalike-admin --help`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    front = FrontPage(
        "Replicated Kafka-compatible brokers: run, measure and look into them.", GROUPS, FIRST_STEPS
    )
    return run_subcommands("kafkalike", front, SUBCOMMANDS, __package__ or "", words)


@dataclass(slots=True, frozen=True)
class FrontPage:
    """What `--help` shows of a whole command: a line, the words by group, and how to begin."""

    description: str
    groups: Mapping[str, Sequence[str]]
    first_steps: str

    def text(self, table: Mapping[str, tuple[str, str]]) -> str:
        """Everything below the flags."""
        width = max(map(len, table))
        parts = [
            "\n".join([f"{group}:", *(f"  {word:<{width}}  {table[word][1]}" for word in words)])
            for group, words in self.groups.items()
        ]
        return "\n\n".join([*parts, self.first_steps])


def run_subcommands(
    program: str,
    front: FrontPage,
    table: dict[str, tuple[str, str]],
    package: str,
    words: list[str],
) -> int:
    """Parse `words` with the parser of the one subcommand they name, and run it."""
    parser: argparse.ArgumentParser = cli.Parser(
        prog=program,
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description=front.description,
        epilog=front.text(table),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(
        dest="subcommand", metavar="COMMAND", required=True, prog=program, help=argparse.SUPPRESS
    )
    module: cli.Subcommand | None = None
    for word, (name, _) in table.items():
        if words[:1] == [word]:
            module = cast(cli.Subcommand, importlib.import_module(f"{package}.{name}"))
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(word, add_help=False)
    try:
        args = parser.parse_args(words)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else cli.USAGE
    assert module is not None
    chosen = module
    cli.write_everything(sys.stdout)
    return cli.guarded(lambda: chosen.run(args))


class _Version(argparse.Action):
    """Looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{parser.prog} {kafkalike.__version__}, speaks Kafka 3.9")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
