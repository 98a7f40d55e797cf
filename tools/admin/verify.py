"""`kafkalike-admin verify`: whether all parts of a cluster say the same.

Compares what ZooKeeper holds, what the controller tells, what every broker answers to clients, which
replicas lie in which log directories, and the replicas themselves, batch by batch, below their high
watermarks.  Without ZooKeeper's address the controller's own cache is the measure; with `--dir`
logs are read from files, also of a cluster that is down (then without `--bootstrap-server`).

A cluster at work is never quite still: differences count only when they stay.  Exit code 1: there are
some, each with its place, what was expected there and what was found.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.errors import NONE, error_name
from kafkalike.messages.cluster import DescribeLogDirsRequest
from kafkalike.messages.configs import DescribeConfigsRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.runtime import tasks
from kafkalike.runtime.ports import Runtime
from kafkalike.types import ZERO_UUID, TopicPartition

from .. import cli
from .client import AdminClient, run_with_runtime
from .cluster_view import (
    ClusterView,
    Difference,
    compare,
    compare_moves,
    compare_placement,
    view_metadata,
    view_zookeeper,
)
from .log_compare import DataDirs, LogOnDisk, RemoteReplica, compare_replicas, read_dirs
from .reassign import ongoing_moves
from .zookeeper import add_zookeeper_flag, with_zookeeper

_RETRY_S: Final = 0.5
_EARLIEST: Final = -2
_LATEST: Final = -1
_TOPIC_RESOURCE: Final = 2


@dataclass(slots=True)
class Report:
    """What was compared and what came out."""

    differences: list[Difference] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    topics: int = 0
    partitions: int = 0
    logs: int = 0
    log_bytes: int = 0
    not_compared: dict[TopicPartition, str] = field(default_factory=dict)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify", help="compare all parts of a cluster", description=__doc__
    )
    parser.add_argument(
        "--bootstrap-server",
        type=cli.kafka_addresses,
        metavar="HOST:PORT[,HOST:PORT]",
        help="addresses of one or more brokers; may be left out with --dir",
    )
    parser.add_argument(
        "--timeout-ms",
        type=cli.whole(1),
        default=30_000,
        help="how long one request may take (default: 30000)",
    )
    add_zookeeper_flag(parser)
    parser.add_argument(
        "--dir",
        action="append",
        default=[],
        metavar="DIR",
        help="read logs from these log directories, or folders of such, instead of from brokers",
    )
    parser.add_argument(
        "--topic", action="append", default=None, help="logs of this topic only (may be repeated)"
    )
    parser.add_argument("--no-logs", action="store_true", help="do not compare logs")
    parser.add_argument(
        "--settle-ms",
        type=cli.whole(0),
        default=10_000,
        help="how long a difference may last on a cluster at work (default: 10000)",
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    if args.settle_ms < 0:
        raise cli.UsageError(f"--settle-ms: expected 0 or more, found {args.settle_ms}")
    if args.bootstrap_server is None:
        if not args.dir or args.zookeeper is not None:
            raise cli.UsageError("expected --bootstrap-server, or --dir alone")
        return _verify_files(args)
    return run_with_runtime(args, lambda client, runtime: _verify(client, runtime, args))


def _verify_files(args: argparse.Namespace) -> int:
    report = Report()
    work = compare_files(read_dirs(args.dir), report, args.topic)
    try:
        work.send(None)  # files make nobody wait: it runs to its end without a loop
    except StopIteration:
        return print_report(args, report)
    raise AssertionError("comparing files waits for something")


async def _verify(client: AdminClient, runtime: Runtime, args: argparse.Namespace) -> int:
    clock = runtime.clock
    deadline = clock.monotonic() + args.settle_ms / 1000
    dirs = read_dirs(args.dir) if args.dir and not args.no_logs else None
    while True:
        report = Report()
        reference = await compare_views(client, runtime, args, report)
        missing = sorted(set(args.topic or ()) - set(reference.topic_ids))
        if missing:
            raise cli.CommandError(f"topic {', '.join(missing)} does not exist")
        if not report.differences or clock.monotonic() >= deadline:
            break
        await tasks.sleep(clock, _RETRY_S)
    if args.no_logs:
        pass
    elif dirs is not None:
        for broker in sorted(dirs.brokers):
            report.differences += compare_placement(reference, broker, dirs.held_by(broker))
        await _raise_high_watermarks(client, reference, dirs)
        await compare_files(dirs, report, args.topic)
    else:
        await compare_logs(client, reference, report, args.topic)
    return print_report(args, report)


# -- views ---------------------------------------------------------------------------------------


async def compare_views(
    client: AdminClient, runtime: Runtime, args: argparse.Namespace, report: Report
) -> ClusterView:
    """Fill the report with what differs between sources; returns the view that was the measure."""
    metadata = await client.metadata([])
    views: dict[int, ClusterView] = {}
    for broker in sorted(client.broker_ids):
        try:
            answer = await client.broker(broker, MetadataRequest(topics=None))
        except cli.CommandError as error:
            report.differences.append(
                Difference(f"broker {broker}", "cluster", "answers", True, str(error))
            )
            continue
        views[broker] = view_metadata(f"broker {broker}", answer)
    if args.zookeeper is not None:
        reference = await with_zookeeper(
            runtime, args.zookeeper, args.timeout_ms / 1000, view_zookeeper
        )
        report.differences += reference.problems
        report.differences += compare_moves(
            reference, reference.controller, await ongoing_moves(client)
        )
        report.sources.append(reference.source)
        for broker in sorted(reference.brokers - client.broker_ids):
            report.differences.append(
                Difference(f"broker {broker}", "cluster", "known to brokers", True, False)
            )
    elif metadata.controller_id in views:
        reference = views[metadata.controller_id]
    else:
        raise cli.CommandError(f"the controller ({metadata.controller_id}) does not answer")
    for view in views.values():
        if view is not reference:
            report.differences += compare(reference, view)
        report.sources.append(view.source)
    for broker in views:
        await _compare_placement(client, reference, broker, report)
    report.topics = len(reference.topic_ids)
    report.partitions = len(reference.partitions)
    return reference


async def _compare_placement(
    client: AdminClient, reference: ClusterView, broker: int, report: Report
) -> None:
    try:
        response = await client.broker(broker, DescribeLogDirsRequest(topics=None))
    except cli.CommandError as error:
        report.differences.append(
            Difference(f"broker {broker}", "log directories", "answers", True, str(error))
        )
        return
    held: list[TopicPartition] = []
    is_whole = True
    for result in response.results:
        if result.error_code != NONE:
            is_whole = False
            report.differences.append(
                Difference(
                    f"broker {broker}",
                    result.log_dir,
                    "log directory",
                    "online",
                    error_name(result.error_code),
                )
            )
        held += [
            TopicPartition(topic.name, p.partition_index)
            for topic in result.topics
            for p in topic.partitions
            if not p.is_future_key
        ]
    unknown: Iterable[TopicPartition] = () if is_whole else set(reference.partitions) - set(held)
    report.differences += compare_placement(reference, broker, held, unknown)


# -- logs ----------------------------------------------------------------------------------------


async def compare_logs(
    client: AdminClient, reference: ClusterView, report: Report, topics: list[str] | None
) -> None:
    """Read all replicas of every partition from their brokers and compare them with the leader's."""
    compacted = await _compacted_topics(client, sorted(reference.topic_ids))
    chosen = [
        partition
        for partition in sorted(reference.partitions)
        if partition.topic not in reference.deleting and (not topics or partition.topic in topics)
    ]
    progress = cli.Progress("logs", len(chosen))
    for done, partition in enumerate(chosen):
        progress.update(done)
        view = reference.partitions[partition]
        if partition.topic in compacted:
            report.not_compared[partition] = "compacted: replicas are cleaned each by itself"
            continue
        if view.leader not in reference.brokers or view.leader is None:
            report.not_compared[partition] = "no live leader"
            continue
        leader = view.leader
        start = await _offset(client, leader, partition, _EARLIEST)
        if isinstance(start, str):
            report.differences.append(
                Difference(f"log on broker {leader}", str(partition), "log", "readable", start)
            )
            continue
        topic_id = reference.topic_ids.get(partition.topic) or ZERO_UUID
        others = [b for b in view.replicas if b != leader and b in reference.brokers]
        result = await compare_replicas(
            partition,
            RemoteReplica(client, leader, partition, topic_id, start),
            [RemoteReplica(client, b, partition, topic_id, start) for b in others],
        )
        report.logs += 1 + len(others)
        report.log_bytes += result.bytes
        report.differences += result.differences
    progress.update(len(chosen))
    progress.finish()


async def _compacted_topics(client: AdminClient, names: list[str]) -> set[str]:
    if not names:
        return set()
    resource = DescribeConfigsRequest.DescribeConfigsResource
    response = await client.any_broker(
        DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=name,
                    configuration_keys=["cleanup.policy"],
                )
                for name in names
            ]
        )
    )
    return {
        result.resource_name
        for result in response.results
        for config in result.configs
        if "compact" in (config.value or "").split(",")
    }


async def _raise_high_watermarks(
    client: AdminClient, reference: ClusterView, dirs: DataDirs
) -> None:
    """Those in files are some seconds old; what a leader has committed all of the ISR has."""
    for partition, logs in dirs.logs.items():
        view = reference.partitions.get(partition)
        if view is None or view.leader is None or view.leader not in reference.brokers:
            continue
        end = await _offset(client, view.leader, partition, _LATEST)
        for log in logs:
            if isinstance(end, int) and log.broker in view.isr:
                log.high_watermark = max(log.high_watermark, end)


async def _offset(
    client: AdminClient, leader: int, partition: TopicPartition, which: int
) -> int | str:
    """The first offset of the leader's log or its high watermark, or why it is not known."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            topic(
                name=partition.topic,
                partitions=[
                    topic.ListOffsetsPartition(partition_index=partition.partition, timestamp=which)
                ],
            )
        ],
    )
    try:
        response = await client.broker(leader, request)
    except cli.CommandError as error:
        return str(error)
    answer = response.topics[0].partitions[0]
    return int(answer.offset) if answer.error_code == NONE else error_name(answer.error_code)


async def compare_files(dirs: DataDirs, report: Report, topics: list[str] | None) -> None:
    """Compare the logs of each partition that lie in several directories."""
    report.sources += [f"log directories of broker {broker}" for broker in sorted(dirs.brokers)]
    for partition in sorted(dirs.logs):
        if topics and partition.topic not in topics:
            continue
        logs = dirs.logs[partition]
        if len(logs) < 2:
            report.not_compared[partition] = "one replica only"
            continue
        start = max(log.start for log in logs)
        end = max(log.high_watermark for log in logs)
        begun = [LogOnDisk(log.path, log.broker, start, log.high_watermark) for log in logs]
        longest = next(log for log in begun if log.high_watermark == end)
        result = await compare_replicas(
            partition, longest, [log for log in begun if log is not longest]
        )
        report.logs += len(logs)
        report.log_bytes += result.bytes
        report.differences += result.differences
    if not report.partitions:
        report.partitions = len(dirs.logs)
        report.topics = len({partition.topic for partition in dirs.logs})


# -- output --------------------------------------------------------------------------------------


def print_report(args: argparse.Namespace, report: Report) -> int:
    """1 when anything differs."""
    code = cli.FAILED if report.differences else cli.DONE
    if args.output == "json":
        cli.print_json(
            {
                "differences": [difference.as_json() for difference in report.differences],
                "compared": {
                    "sources": report.sources,
                    "topics": report.topics,
                    "partitions": report.partitions,
                    "logs": report.logs,
                    "log_bytes": report.log_bytes,
                },
                "not_compared": [
                    {"topic": p.topic, "partition": p.partition, "reason": reason}
                    for p, reason in report.not_compared.items()
                ],
            }
        )
        return code
    print(f"compared: {', '.join(report.sources) or 'nothing'}")
    print(
        f"{report.topics} topics with {report.partitions} partitions;"
        f" {report.logs} logs, {report.log_bytes} bytes each way"
    )
    reasons: dict[str, int] = {}
    for reason in report.not_compared.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        print(f"logs of {count} partitions not compared: {reason}")
    if not report.differences:
        print("no differences")
        return code
    cli.print_table(
        ("WHERE", "SUBJECT", "WHAT", "EXPECTED", "FOUND"),
        (
            (d.where, d.subject, d.what, _text(d.expected), _text(d.found))
            for d in report.differences
        ),
    )
    cli.print_error(f"{len(report.differences)} differences")
    return code


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value)
