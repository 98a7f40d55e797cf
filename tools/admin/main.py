"""The `kafkalike-admin` command."""

import sys
from collections.abc import Sequence
from typing import Final

from ..main import FrontPage, run_subcommands

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

GROUPS: Final = {
    "Every day": ("topics", "configs", "groups"),
    "Where replicas and leaders are": ("reassign", "leaders", "logdirs"),
    "What is wrong": ("cluster", "verify", "explain", "losses"),
}

FIRST_STEPS: Final = """\
First steps, with a cluster on port 9092 (`kafkalike up`):
  kafkalike-admin topics create --bootstrap-server 127.0.0.1:9092 --topic orders
  kafkalike-admin topics describe --bootstrap-server 127.0.0.1:9092 --topic orders
  kafkalike-admin groups list --bootstrap-server 127.0.0.1:9092
  kafkalike-admin cluster describe --bootstrap-server 127.0.0.1:9092

`kafkalike-admin COMMAND --help` tells about one of them.  They work with any
Kafka cluster; `explain` and `losses` read what only these brokers write.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    front = FrontPage("Administration of a cluster.", GROUPS, FIRST_STEPS)
    return run_subcommands("kafkalike-admin", front, SUBCOMMANDS, __package__ or "", words)


if __name__ == "__main__":
    sys.exit(main())
