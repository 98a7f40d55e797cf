"""`kafkalike-admin losses`: acknowledged records that brokers had to give up, from their ledgers.

A row is certain when the replica itself knew the records to be below its high watermark.  With the
journals of the brokers at hand it also shows what may have been lost beyond that: records that a
replica removed because of an unclean election, above the high watermark it knew after its restart.
"""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalike.broker.journal import JOURNAL, LOSSES, Entry
from kafkalike.types import TopicPartition

from .. import cli
from .journals import add_dir_flag, read_history, time_text


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "losses", help="show the ledgers of lost records", description=__doc__
    )
    add_dir_flag(parser)
    parser.add_argument(
        "--topic", action="append", default=None, help="only this topic (may be repeated)"
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    ledger = read_history(args.dir, LOSSES)
    journal = read_history(args.dir, JOURNAL)
    if not ledger.files and not journal.files:
        raise cli.CommandError(f"no ledger and no journal in or below {', '.join(args.dir)}")
    certain = [_certain(entry) for entry in ledger.entries if entry["kind"] == "Loss"]
    rows = sorted(
        [*certain, *possible_losses(journal.entries, certain)],
        key=lambda row: (row["time_ms"], row["broker"], row["topic"], row["partition"]),
    )
    if args.topic:
        rows = [row for row in rows if row["topic"] in args.topic]
    if args.output == "json":
        cli.print_json(
            {
                "losses": rows,
                "files": ledger.files,
                "unreadable_lines": ledger.unreadable_lines,
            }
        )
        return cli.DONE
    if not rows:
        print("no losses")
    else:
        cli.print_table(
            (
                "TIME",
                "BROKER",
                "TOPIC",
                "PARTITION",
                "OFFSETS",
                "COUNT",
                "BYTES",
                "OLD EPOCH",
                "NEW EPOCH",
                "PRODUCER IDS",
                "CERTAIN",
            ),
            (list(_cells(row)) for row in rows),
        )
    if ledger.unreadable_lines:
        cli.print_error(f"{ledger.unreadable_lines} lines could not be read")
    return cli.DONE


def _certain(entry: Entry) -> dict[str, Any]:
    return {
        "time_ms": entry["time_ms"],
        "broker": entry["broker"],
        "topic": entry["topic"],
        "partition": entry["partition"],
        "first_offset": entry["first_offset"],
        "end_offset": entry["end_offset"],
        "bytes": entry["bytes"],
        "old_leader_epoch": entry["old_leader_epoch"],
        "new_leader_epoch": entry["new_leader_epoch"],
        "producer_ids": entry["producer_ids"],
        "certain": True,
    }


def _cells(row: dict[str, Any]) -> Iterator[object]:
    yield time_text(row["time_ms"])
    yield from (row["broker"], row["topic"], row["partition"])
    yield f"{row['first_offset']}-{row['end_offset'] - 1}"
    yield row["end_offset"] - row["first_offset"]
    for name in ("bytes", "old_leader_epoch", "new_leader_epoch"):
        yield "-" if row[name] is None else row[name]
    yield ",".join(map(str, row["producer_ids"])) or "-"
    yield "yes" if row["certain"] else "no"


def possible_losses(
    entries: Iterable[Entry], certain: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What replicas removed for an unclean leader beyond the rows that are certain."""
    known: dict[tuple[int, TopicPartition], list[dict[str, Any]]] = {}
    for row in certain:
        partition = TopicPartition(row["topic"], row["partition"])
        known.setdefault((row["broker"], partition), []).append(row)
    unclean: dict[TopicPartition, set[int]] = {}
    ends: dict[tuple[int, TopicPartition], int] = {}
    roles: dict[tuple[int, TopicPartition], list[int]] = {}
    found: list[dict[str, Any]] = []
    for entry in entries:
        if entry["kind"] == "LeadershipChanged" and entry["unclean"]:
            partition = TopicPartition(entry["topic"], entry["partition"])
            unclean.setdefault(partition, set()).add(entry["new"]["leader_epoch"])
        if entry["kind"] != "StateChange":
            continue
        partition = TopicPartition(entry["topic"], entry["partition"])
        key = (entry["broker"], partition)
        epoch = entry["leader_epoch"]
        if entry["change"] in ("leader", "follower"):
            roles[key] = [*roles.get(key, [])[-1:], epoch]
        elif entry["change"] == "truncating":
            ends[key] = entry["log_end_offset"]
        elif entry["change"] == "truncated" and key in ends:
            before = roles.get(key, [-1])[0]
            if not any(before < u <= epoch for u in unclean.get(partition, ())):
                continue
            first, end = entry["log_end_offset"], ends.pop(key)
            for row in known.get(key, ()):
                if row["first_offset"] <= first < row["end_offset"]:
                    first = row["end_offset"]
            if first < end:
                found.append(
                    {
                        "time_ms": entry["time_ms"],
                        "broker": entry["broker"],
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "first_offset": first,
                        "end_offset": end,
                        "bytes": None,
                        "old_leader_epoch": None,
                        "new_leader_epoch": epoch,
                        "producer_ids": [],
                        "certain": False,
                    }
                )
    return found
