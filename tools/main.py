"""The `kafkalike` command."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final, cast

import kafkalike

from . import cli

SUBCOMMANDS: Final = {
    "broker": ("broker", "run one broker from a server.properties file"),
    "up": ("up", "run a whole local cluster until Ctrl-C"),
    "zookeeper": ("zookeeper", "run the embedded coordination service alone"),
    "bench": ("bench", "measure produce, fetch and round trips against any Kafka address"),
    "sim": ("sim", "run clusters in simulated time, from seeds, and check what they promise"),
    "dump-log": ("dump_log", "print segments, indexes, snapshots and checkpoints"),
    "dump-zk": ("dump_zk", "print what a cluster keeps in ZooKeeper"),
}
"""Word -> (module of this package, what it does).  Only the module asked for is imported."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_subcommands("kafkalike", __doc__ or "", SUBCOMMANDS, __package__ or "", words)


def run_subcommands(
    program: str,
    description: str,
    table: dict[str, tuple[str, str]],
    package: str,
    words: list[str],
) -> int:
    """Parse `words` with the parser of the one subcommand they name, and run it."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    module: cli.Subcommand | None = None
    for word, (name, text) in table.items():
        if words[:1] == [word]:
            module = cast(cli.Subcommand, importlib.import_module(f"{package}.{name}"))
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(word, help=text, add_help=False)
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
