"""The `kafkalike-admin` command."""

import sys
from collections.abc import Sequence
from typing import Final

from ..main import run_subcommands

SUBCOMMANDS: Final = {
    "topics": ("topics", "create, list, describe, alter and delete topics"),
}
"""Noun -> (module of this package, what it does)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_subcommands("kafkalike-admin", __doc__ or "", SUBCOMMANDS, __package__ or "", words)


if __name__ == "__main__":
    sys.exit(main())
