"""`kafkalike-admin leaders elect`: preferred or unclean elections (KIP-183, KIP-460).

Flags and files are those of Kafka's kafka-leader-election.
"""

import argparse
from typing import Final

from kafkalike.errors import NONE, ElectionNotNeeded, error_name
from kafkalike.messages.cluster import ElectLeadersRequest
from kafkalike.types import TopicPartition

from .. import cli
from .client import AdminClient, add_connection_flags, describe_error, run_with_client
from .documents import read_partitions

_TYPES: Final = {"preferred": 0, "unclean": 1}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("leaders", help="elect leaders", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    elect_parser = verbs.add_parser("elect", help="start elections and show how they ended")
    add_connection_flags(elect_parser)
    cli.add_output_flag(elect_parser)
    elect_parser.add_argument(
        "--election-type",
        required=True,
        type=str.lower,
        choices=tuple(_TYPES),
        help="preferred: the first replica, if in sync; unclean: any live replica where no in-sync"
        " one is left, with loss of records",
    )
    elect_parser.add_argument("--topic", help="with --partition")
    elect_parser.add_argument("--partition", type=cli.whole(0), help="with --topic")
    elect_parser.add_argument(
        "--path-to-json-file",
        metavar="FILE",
        help='{"partitions":[{"topic":"foo","partition":1}]}',
    )
    elect_parser.add_argument(
        "--all-topic-partitions", action="store_true", help="all partitions that need it"
    )


def run(args: argparse.Namespace) -> int:
    partitions = chosen_partitions(args)
    return run_with_client(args, lambda client: elect(client, args, partitions))


def chosen_partitions(args: argparse.Namespace) -> list[TopicPartition] | None:
    """What the flags name, None for all.  Raises UsageError, CommandError."""
    ways = [
        args.topic is not None,
        args.path_to_json_file is not None,
        bool(args.all_topic_partitions),
    ]
    if sum(ways) != 1:
        raise cli.UsageError(
            "expected one of --topic (with --partition), --path-to-json-file"
            " and --all-topic-partitions"
        )
    if (args.topic is None) != (args.partition is None):
        raise cli.UsageError("--topic and --partition stand together")
    if args.topic is not None:
        if args.partition < 0:
            raise cli.UsageError(f"--partition: expected 0 or more, found {args.partition}")
        return [TopicPartition(args.topic, args.partition)]
    if args.path_to_json_file is not None:
        return read_partitions("--path-to-json-file", args.path_to_json_file)
    return None


async def elect(
    client: AdminClient, args: argparse.Namespace, partitions: list[TopicPartition] | None
) -> int:
    """0: done or not needed; 1: none elected; 3: some were not."""
    kind = ElectLeadersRequest.TopicPartitions
    topics: dict[str, list[int]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = ElectLeadersRequest(
        election_type=_TYPES[args.election_type],
        topic_partitions=None
        if partitions is None
        else [kind(topic=name, partitions=numbers) for name, numbers in topics.items()],
        timeout_ms=args.timeout_ms,
    )
    response = await client.controller(
        request,
        lambda r: [
            r.error_code,
            *(p.error_code for t in r.replica_election_results for p in t.partition_result),
        ],
    )
    if response.error_code != NONE:
        raise cli.CommandError(f"election: {error_name(response.error_code)}")
    results = sorted(
        (TopicPartition(t.topic, p.partition_id), p.error_code, p.error_message)
        for t in response.replica_election_results
        for p in t.partition_result
    )
    done = [tp for tp, code, _ in results if code == NONE]
    unneeded = [tp for tp, code, _ in results if code == ElectionNotNeeded.code]
    failed = [row for row in results if row[1] not in (NONE, ElectionNotNeeded.code)]
    if args.output == "json":
        cli.print_json(
            {
                "election_type": args.election_type,
                "results": [
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "error": error_name(code),
                        "message": message,
                    }
                    for tp, code, message in results
                ],
            }
        )
    else:
        if done:
            print(
                f"Successfully completed leader election ({args.election_type.upper()})"
                f" for partitions {', '.join(map(str, done))}"
            )
        if unneeded:
            print(f"Valid replica already elected for partitions {', '.join(map(str, unneeded))}")
        if not results:
            print("No partition needs an election")
    for tp, code, message in failed:
        cli.print_error(f"{tp}: {describe_error(code, message)}")
    if not failed:
        return cli.DONE
    return cli.PARTLY_DONE if done or unneeded else cli.FAILED
