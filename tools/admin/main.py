"""The `kafkalike-admin` command."""

import sys
from collections.abc import Sequence
from typing import Final

from ..main import run_subcommands

SUBCOMMANDS: Final = {
    "topics": ("topics", "create, list, describe, alter and delete topics"),
    "configs": ("configs", "show and change settings of topics, brokers and loggers"),
    "groups": ("groups", "list, describe, reset and delete groups and their offsets"),
    "reassign": ("reassign", "move replicas to other brokers, with Kafka's JSON files"),
    "leaders": ("leaders", "elect preferred or unclean leaders"),
    "cluster": ("cluster", "show brokers, controller and trouble of a cluster"),
    "logdirs": ("logdirs", "show log directories and the replicas in them"),
    "verify": ("verify", "compare ZooKeeper, controller, brokers and logs with each other"),
    "explain": ("explain", "tell a partition's history from the brokers' journals"),
    "losses": ("losses", "show the ledgers of lost records"),
}
"""Noun -> (module of this package, what it does)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_subcommands("kafkalike-admin", __doc__ or "", SUBCOMMANDS, __package__ or "", words)


if __name__ == "__main__":
    sys.exit(main())
