"""`kafkalike-admin topics create|list|describe|alter|delete`, with the flags of Kafka's own tool."""

import argparse
import re
from collections.abc import Iterable
from typing import Any, Final

from kafkalike.errors import NONE, TopicAlreadyExists, UnknownTopicOrPartition, error_name
from kafkalike.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kafkalike.types import TopicPartition, uuid_to_text

from .. import cli
from .client import AdminClient, add_connection_flags, describe_error, run_with_client
from .reassign import ongoing_moves

TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
BROKER_DEFAULT: Final = -1

Topic = MetadataResponse.MetadataResponseTopic


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("topics", help="create, list, describe, alter, delete topics")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    add_create(verbs.add_parser("create", help="create topics"))
    add_list(verbs.add_parser("list", help="list topic names"))
    add_describe(verbs.add_parser("describe", help="show partitions, replicas and settings"))
    add_alter(verbs.add_parser("alter", help="add partitions, change settings"))
    add_delete(verbs.add_parser("delete", help="delete topics and all their records"))


def add_create(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_topic(parser, required=True)
    parser.add_argument(
        "--partitions", type=cli.whole(1), help="default: the broker's num.partitions"
    )
    parser.add_argument(
        "--replication-factor",
        type=cli.whole(1, 32767),
        help="default: the broker's default.replication.factor",
    )
    _add_assignment(parser)
    _add_config(parser)
    parser.add_argument(
        "--if-not-exists", action="store_true", help="an existing topic is no error"
    )


def add_list(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_topic(parser, required=False, text="only names that match this regular expression")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out internal topics")


def add_describe(parser: argparse.ArgumentParser) -> None:
    add_list(parser)
    parser.add_argument(
        "--if-exists", action="store_true", help="no error when nothing matches --topic"
    )
    for flags, dest, text in (
        (
            ("--under-replicated", "--under-replicated-partitions"),
            "under_replicated",
            "only partitions with replicas out of sync",
        ),
        (
            ("--unavailable", "--unavailable-partitions"),
            "unavailable",
            "only partitions without a live leader",
        ),
        (
            ("--under-min-isr", "--under-min-isr-partitions"),
            "under_min_isr",
            "only partitions with fewer in-sync replicas than min.insync.replicas",
        ),
        (
            ("--at-min-isr", "--at-min-isr-partitions"),
            "at_min_isr",
            "only partitions with exactly min.insync.replicas in-sync replicas",
        ),
    ):
        parser.add_argument(*flags, dest=dest, action="store_true", help=text)


def add_alter(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_topic(parser, required=True)
    parser.add_argument("--partitions", type=cli.whole(1), help="the new total")
    _add_assignment(parser)
    _add_config(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY",
        help="return a setting to its default (may be repeated)",
    )
    parser.add_argument("--if-exists", action="store_true", help="a missing topic is no error")


def add_delete(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_topic(parser, required=True)
    parser.add_argument("--if-exists", action="store_true", help="a missing topic is no error")


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_connection_flags(parser)
    cli.add_output_flag(parser)


def _add_topic(
    parser: argparse.ArgumentParser, *, required: bool, text: str = "topic (may be repeated)"
) -> None:
    parser.add_argument("--topic", action="append", required=required, default=None, help=text)


def _add_assignment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replica-assignment",
        metavar="A1:A2,B1:B2",
        help="broker ids of each partition's replicas, leader first",
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic (may be repeated)",
    )


def run(args: argparse.Namespace) -> int:
    verbs = {
        "create": create,
        "list": list_topics,
        "describe": describe,
        "alter": alter,
        "delete": delete,
    }
    verb = verbs[args.verb]
    return run_with_client(args, lambda client: verb(client, args))


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` as broker ids per partition.  Raises UsageError."""
    partitions: list[list[int]] = []
    for part in text.split(","):
        ids = part.strip().split(":")
        if not all(broker.isdecimal() for broker in ids):
            raise cli.UsageError(
                f"--replica-assignment: expected id:id,id:id of broker ids, found {part!r}"
            )
        replicas = [int(broker) for broker in ids]
        if len(set(replicas)) != len(replicas):
            raise cli.UsageError(
                f"--replica-assignment: partition {len(partitions)} names a broker twice: {part}"
            )
        partitions.append(replicas)
    if len({len(replicas) for replicas in partitions}) > 1:
        raise cli.UsageError("--replica-assignment: partitions differ in their number of replicas")
    return partitions


async def create(client: AdminClient, args: argparse.Namespace) -> int:
    settings = cli.parse_pairs("--config", args.config)
    assignment = parse_assignment(args.replica_assignment) if args.replica_assignment else []
    if assignment and (args.partitions is not None or args.replication_factor is not None):
        raise cli.UsageError(
            "--replica-assignment stands in place of --partitions and --replication-factor"
        )
    creatable = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            creatable(
                name=name,
                num_partitions=BROKER_DEFAULT if args.partitions is None else args.partitions,
                replication_factor=BROKER_DEFAULT
                if args.replication_factor is None
                else args.replication_factor,
                assignments=[
                    creatable.CreatableReplicaAssignment(partition_index=i, broker_ids=ids)
                    for i, ids in enumerate(assignment)
                ],
                configs=[
                    creatable.CreatableTopicConfig(name=k, value=v) for k, v in settings.items()
                ],
            )
            for name in args.topic
        ],
        timeout_ms=args.timeout_ms,
    )
    response = await client.controller(request, lambda r: [t.error_code for t in r.topics])
    tolerated = {TopicAlreadyExists.code} if args.if_not_exists else set()
    return _report(
        args,
        "created",
        ((t.name, t.error_code, t.error_message) for t in response.topics),
        tolerated,
    )


async def list_topics(client: AdminClient, args: argparse.Namespace) -> int:
    names = [topic.name for topic in await _matching(client, args)]
    if args.output == "json":
        cli.print_json({"topics": names})
    else:
        print("\n".join(str(name) for name in names)) if names else None
    return cli.DONE


async def describe(client: AdminClient, args: argparse.Namespace) -> int:
    topics = await _matching(client, args)
    if args.topic and not topics:
        if args.if_exists:
            return cli.DONE
        raise cli.CommandError(f"no topic matches {', '.join(args.topic)}")
    settings = await _settings(client, [str(topic.name) for topic in topics])
    described = [_describe_topic(topic, settings.get(str(topic.name), {})) for topic in topics]
    filtered = args.under_replicated or args.unavailable or args.under_min_isr or args.at_min_isr
    if filtered:
        described = await _in_trouble(client, args, described)
    if args.output == "json":
        cli.print_json({"topics": described})
        return cli.DONE
    if filtered:
        _print_partitions(described)
        return cli.DONE
    cli.print_table(
        ("TOPIC", "TOPIC ID", "PARTITIONS", "REPLICATION", "CONFIGS"),
        (
            (
                t["name"],
                t["topic_id"],
                len(t["partitions"]),
                t["replication_factor"],
                ",".join(f"{k}={v}" for k, v in t["configs"].items()),
            )
            for t in described
        ),
    )
    print()
    _print_partitions(described)
    return cli.DONE


def _print_partitions(described: list[dict[str, Any]]) -> None:
    cli.print_table(
        ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "ERROR"),
        (
            (
                t["name"],
                p["partition"],
                "none" if p["leader"] < 0 else p["leader"],
                ",".join(map(str, p["replicas"])),
                ",".join(map(str, p["isr"])),
                "" if p["error"] == "NONE" else p["error"],
            )
            for t in described
            for p in t["partitions"]
        ),
    )


async def _in_trouble(
    client: AdminClient, args: argparse.Namespace, described: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Of each topic the partitions that the flags ask for; topics without any are left out.

    Replicas that a reassignment is adding do not count as missing.
    """
    adding: dict[TopicPartition, int] = {}
    if args.under_replicated:
        moves = await ongoing_moves(client)
        adding = {partition: len(move.adding) for partition, move in moves.items()}
    limits: dict[str, int] = {}
    if args.under_min_isr or args.at_min_isr:
        limits = await _min_isr(client, [t["name"] for t in described])
    alive = client.broker_ids

    def is_in_trouble(topic: str, p: dict[str, Any]) -> bool:
        in_sync = len(p["isr"])
        expected = len(p["replicas"]) - adding.get(TopicPartition(topic, p["partition"]), 0)
        return (
            (args.under_replicated and in_sync < expected)
            or (args.unavailable and p["leader"] not in alive)
            or (args.under_min_isr and in_sync < limits[topic])
            or (args.at_min_isr and in_sync == limits[topic])
        )

    chosen = []
    for topic in described:
        partitions = [p for p in topic["partitions"] if is_in_trouble(topic["name"], p)]
        if partitions:
            chosen.append(topic | {"partitions": partitions})
    return chosen


async def _min_isr(client: AdminClient, names: list[str]) -> dict[str, int]:
    """The effective min.insync.replicas of topics."""
    if not names:
        return {}
    resource = DescribeConfigsRequest.DescribeConfigsResource
    response = await client.any_broker(
        DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=name,
                    configuration_keys=["min.insync.replicas"],
                )
                for name in names
            ]
        )
    )
    found: dict[str, int] = {}
    for result in response.results:
        if result.error_code != NONE:
            raise cli.CommandError(
                f"{result.resource_name}: {describe_error(result.error_code, result.error_message)}"
            )
        for config in result.configs:
            found[result.resource_name] = int(config.value or 1)
    return found


async def alter(client: AdminClient, args: argparse.Namespace) -> int:
    settings = cli.parse_pairs("--config", args.config)
    if args.partitions is None and not settings and not args.delete_config:
        raise cli.UsageError("expected --partitions, --config or --delete-config")
    assignment = parse_assignment(args.replica_assignment) if args.replica_assignment else None
    if assignment is not None and args.partitions is None:
        raise cli.UsageError("--replica-assignment: expected --partitions, the new total, with it")
    tolerated = {UnknownTopicOrPartition.code} if args.if_exists else set()
    codes: list[int] = []
    if args.partitions is not None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic
        response = await client.controller(
            CreatePartitionsRequest(
                topics=[
                    topic(
                        name=name,
                        count=args.partitions,
                        assignments=None
                        if assignment is None
                        else [
                            topic.CreatePartitionsAssignment(broker_ids=ids) for ids in assignment
                        ],
                    )
                    for name in args.topic
                ],
                timeout_ms=args.timeout_ms,
            ),
            lambda r: [t.error_code for t in r.results],
        )
        codes.append(
            _report(
                args,
                "expanded",
                ((t.name, t.error_code, t.error_message) for t in response.results),
                tolerated,
            )
        )
    if settings or args.delete_config:
        response = await client.any_broker(_alter_settings(args, settings))
        codes.append(
            _report(
                args,
                "configured",
                ((r.resource_name, r.error_code, r.error_message) for r in response.responses),
                tolerated,
            )
        )
    return codes[0] if len(set(codes)) == 1 else cli.PARTLY_DONE


def _alter_settings(
    args: argparse.Namespace, settings: dict[str, str]
) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [(k, SET, v) for k, v in settings.items()]
    changes.extend((k, DELETE, None) for k in args.delete_config)  # type: ignore[misc]
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=k, config_operation=operation, value=v)
                    for k, operation, v in changes
                ],
            )
            for name in args.topic
        ]
    )


async def delete(client: AdminClient, args: argparse.Namespace) -> int:
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[state(name=name) for name in args.topic],
        topic_names=list(args.topic),
        timeout_ms=args.timeout_ms,
    )
    response = await client.controller(request, lambda r: [t.error_code for t in r.responses])
    tolerated = {UnknownTopicOrPartition.code} if args.if_exists else set()
    return _report(
        args,
        "deleted",
        ((t.name, t.error_code, t.error_message) for t in response.responses),
        tolerated,
    )


async def _matching(client: AdminClient, args: argparse.Namespace) -> list[Topic]:
    try:
        patterns = [re.compile(text) for text in args.topic or ()]
    except re.error as error:
        raise cli.UsageError(f"--topic: {error}") from error
    response = await client.metadata()
    found = [
        topic
        for topic in response.topics
        if not (args.exclude_internal and topic.is_internal)
        and (not patterns or any(p.fullmatch(str(topic.name)) for p in patterns))
    ]
    return sorted(found, key=lambda topic: str(topic.name))


async def _settings(client: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """What each topic itself sets."""
    if not names:
        return {}
    resource = DescribeConfigsRequest.DescribeConfigsResource
    response = await client.any_broker(
        DescribeConfigsRequest(
            resources=[resource(resource_type=TOPIC_RESOURCE, resource_name=n) for n in names]
        )
    )
    topic_source = 1
    return {
        result.resource_name: {
            c.name: c.value or ""
            for c in sorted(result.configs, key=lambda c: str(c.name))
            if c.config_source == topic_source
        }
        for result in response.results
    }


def _describe_topic(topic: Topic, settings: dict[str, str]) -> dict[str, Any]:
    partitions = sorted(topic.partitions, key=lambda p: int(p.partition_index))
    return {
        "name": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "replication_factor": max((len(p.replica_nodes) for p in partitions), default=0),
        "configs": settings,
        "partitions": [
            {
                "partition": p.partition_index,
                "leader": p.leader_id,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replica_nodes),
                "isr": list(p.isr_nodes),
                "offline_replicas": list(p.offline_replicas),
                "error": error_name(p.error_code),
            }
            for p in partitions
        ],
    }


def _report(
    args: argparse.Namespace,
    done: str,
    results: Iterable[tuple[str | None, int, str | None]],
    tolerated: set[int],
) -> int:
    """Print one line a topic; 0 when all succeeded, 1 when none did, 3 in between."""
    rows = list(results)
    failed = [row for row in rows if row[1] != NONE and row[1] not in tolerated]
    if args.output == "json":
        cli.print_json(
            {
                "results": [
                    {"topic": name, "error": error_name(code), "message": message}
                    for name, code, message in rows
                ]
            }
        )
    for name, code, message in rows:
        if code == NONE and args.output == "table":
            print(f"{name}: {done}")
        elif code in tolerated and args.output == "table":
            print(f"{name}: nothing to do ({error_name(code)})")
        elif code != NONE and code not in tolerated:
            cli.print_error(f"{name}: {describe_error(code, message)}")
    if not failed:
        return cli.DONE
    return cli.FAILED if len(failed) == len(rows) else cli.PARTLY_DONE
