"""`kafkalike-admin logdirs describe`: log directories of brokers and the replicas in them.

Flags and the JSON form are those of Kafka's kafka-log-dirs.
"""

import argparse
from typing import Any

from kafkalike.errors import NONE, error_name
from kafkalike.messages.cluster import DescribeLogDirsRequest

from .. import cli
from .client import AdminClient, add_connection_flags, run_with_client


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("logdirs", help="show log directories", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    describe_parser = verbs.add_parser("describe", help="directories, their room, their replicas")
    add_connection_flags(describe_parser)
    cli.add_output_flag(describe_parser)
    describe_parser.add_argument(
        "--broker-list", metavar="ID,ID", help="only these brokers (default: all)"
    )
    describe_parser.add_argument(
        "--topic-list", metavar="TOPIC,TOPIC", help="only replicas of these topics"
    )


def run(args: argparse.Namespace) -> int:
    brokers = None
    if args.broker_list is not None:
        parts = [part.strip() for part in args.broker_list.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise cli.UsageError(
                f"--broker-list: expected broker ids such as 1,2,3, found {args.broker_list!r}"
            )
        brokers = sorted({int(part) for part in parts})
    topics = None
    if args.topic_list is not None:
        topics = {part.strip() for part in args.topic_list.split(",") if part.strip()}
    return run_with_client(args, lambda client: describe(client, args, brokers, topics))


async def describe(
    client: AdminClient,
    args: argparse.Namespace,
    chosen: list[int] | None,
    topics: set[str] | None,
) -> int:
    """0: all is well; 1: no broker answered as asked; 3: some brokers or directories have failed."""
    metadata = await client.metadata([])
    present = sorted(broker.node_id for broker in metadata.brokers)
    brokers = []
    failed = 0
    for broker in present if chosen is None else chosen:
        try:
            value = await describe_broker(client, broker, topics)
        except cli.CommandError as error:
            cli.print_error(str(error))
            failed += 1
            continue
        brokers.append(value)
        for directory in value["logDirs"]:
            if directory["error"] is not None:
                cli.print_error(f"broker {broker}: {directory['logDir']}: {directory['error']}")
    if args.output == "json":
        cli.print_json({"version": 1, "brokers": brokers})
    elif brokers:
        _print(brokers)
    if failed and not brokers:
        return cli.FAILED
    bad = any(directory["error"] is not None for b in brokers for directory in b["logDirs"])
    return cli.PARTLY_DONE if failed or bad else cli.DONE


async def describe_broker(
    client: AdminClient, broker: int, topics: set[str] | None = None
) -> dict[str, Any]:
    """One broker's directories in the form of Kafka's tool, with room added.  Raises CommandError."""
    response = await client.broker(broker, DescribeLogDirsRequest(topics=None))
    if response.error_code != NONE:
        raise cli.CommandError(f"broker {broker}: {error_name(response.error_code)}")
    return {
        "broker": broker,
        "logDirs": [
            {
                "logDir": result.log_dir,
                "error": None if result.error_code == NONE else error_name(result.error_code),
                "totalBytes": result.total_bytes,
                "usableBytes": result.usable_bytes,
                "partitions": sorted(
                    (
                        {
                            "partition": f"{topic.name}-{p.partition_index}",
                            "size": p.partition_size,
                            "offsetLag": p.offset_lag,
                            "isFuture": p.is_future_key,
                        }
                        for topic in result.topics
                        if topics is None or topic.name in topics
                        for p in topic.partitions
                    ),
                    key=lambda row: str(row["partition"]),
                ),
            }
            for result in sorted(response.results, key=lambda r: str(r.log_dir))
        ],
    }


def _print(brokers: list[dict[str, Any]]) -> None:
    cli.print_table(
        ("BROKER", "LOG DIR", "STATE", "TOTAL", "USABLE", "REPLICAS", "BYTES"),
        (
            (
                b["broker"],
                d["logDir"],
                d["error"] or "online",
                _size(d["totalBytes"]),
                _size(d["usableBytes"]),
                len(d["partitions"]),
                sum(p["size"] for p in d["partitions"]),
            )
            for b in brokers
            for d in b["logDirs"]
        ),
    )
    print()
    cli.print_table(
        ("BROKER", "LOG DIR", "PARTITION", "BYTES", "OFFSET LAG", "FUTURE"),
        (
            (
                b["broker"],
                d["logDir"],
                p["partition"],
                p["size"],
                p["offsetLag"],
                "yes" if p["isFuture"] else "",
            )
            for b in brokers
            for d in b["logDirs"]
            for p in d["partitions"]
        ),
    )


def _size(count: int) -> object:
    return "unknown" if count < 0 else count
