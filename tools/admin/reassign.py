"""`kafkalike-admin reassign generate|execute|verify|cancel|list`: replicas on other brokers (KIP-455).

Flags and files are those of Kafka's kafka-reassign-partitions; its texts too, where scripts read them.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.controller.assignment import BrokerRack, assign_replicas
from kafkalike.errors import (
    NONE,
    KafkaError,
    KafkaStorageError,
    NoReassignmentInProgress,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
    error_name,
)
from kafkalike.messages.cluster import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ListPartitionReassignmentsRequest,
)
from kafkalike.runtime import tasks
from kafkalike.types import ReplicaAssignment, TopicPartition

from .. import cli
from .client import (
    AdminClient,
    add_connection_flags,
    describe_error,
    run_with_client,
    run_with_runtime,
)
from .documents import ANY_DIR, Move, format_moves, moves_value, read_moves, read_topics
from .throttles import (
    DIRS_RATE,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    replica_list,
    throttle_brokers,
    throttle_topics,
)

_RETRY_S: Final = 0.2
_ALL_THROTTLES: Final = (LEADER_RATE, FOLLOWER_RATE, DIRS_RATE)

Assignments = dict[TopicPartition, tuple[int, ...]]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "reassign", help="move replicas to other brokers", description=__doc__
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_generate(verbs.add_parser("generate", help="propose where replicas could go"))
    _add_execute(verbs.add_parser("execute", help="start moving as a file says"))
    verify = verbs.add_parser(
        "verify", help="show how far it is; take throttles away once it is done"
    )
    _add_common(verify, file=True)
    _add_preserve(verify)
    cancel = verbs.add_parser("cancel", help="stop moving the partitions of a file")
    _add_common(cancel, file=True)
    _add_preserve(cancel)
    _add_common(verbs.add_parser("list", help="show all moves that are under way"), file=False)


def _add_common(parser: argparse.ArgumentParser, *, file: bool) -> None:
    add_connection_flags(parser)
    cli.add_output_flag(parser)
    if file:
        parser.add_argument(
            "--reassignment-json-file",
            required=True,
            metavar="FILE",
            help='{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
        )


def _add_preserve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preserve-throttles", action="store_true", help="leave throttles as they are"
    )


def _add_generate(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, file=False)
    parser.add_argument(
        "--topics-to-move-json-file",
        required=True,
        metavar="FILE",
        help='{"version":1,"topics":[{"topic":"foo"}]}',
    )
    parser.add_argument(
        "--broker-list", required=True, metavar="ID,ID", help="brokers that shall hold replicas"
    )
    parser.add_argument(
        "--disable-rack-aware", action="store_true", help="do not spread over racks"
    )


def _add_execute(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, file=True)
    parser.add_argument(
        "--additional",
        action="store_true",
        help="also while other moves are under way; also to change the throttle of these",
    )
    parser.add_argument(
        "--throttle",
        type=cli.whole(1, cli.MAX_LONG),
        metavar="BYTES",
        help="bytes/s between brokers, at most",
    )
    parser.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=cli.whole(1, cli.MAX_LONG),
        metavar="BYTES",
        help="bytes/s between log directories of a broker, at most",
    )
    parser.add_argument(
        "--timeout",
        type=cli.whole(1),
        default=10_000,
        metavar="MS",
        help="how long to wait for brokers to accept log directories (default: 10000)",
    )


def run(args: argparse.Namespace) -> int:
    if args.verb == "generate":
        return run_with_runtime(args, lambda client, runtime: generate(client, runtime, args))
    if args.verb == "execute":
        return run_with_runtime(args, lambda client, runtime: execute(client, runtime, args))
    verbs = {"verify": verify, "cancel": cancel, "list": list_moves}
    verb = verbs[args.verb]
    return run_with_client(args, lambda client: verb(client, args))


# -- generate ------------------------------------------------------------------------------------


async def generate(client: AdminClient, runtime: Any, args: argparse.Namespace) -> int:
    topics = read_topics("--topics-to-move-json-file", args.topics_to_move_json_file)
    wanted = _parse_ids("--broker-list", args.broker_list)
    metadata = await client.metadata(topics)
    current = _assignments(metadata, topics)
    racks = {broker.node_id: broker.rack for broker in metadata.brokers}
    unknown = [broker for broker in wanted if broker not in racks]
    if unknown:
        raise cli.CommandError(f"--broker-list: not in the cluster: {_ids(unknown)}")
    brokers = [
        BrokerRack(broker, None if args.disable_rack_aware else racks[broker])
        for broker in sorted(wanted)
    ]
    if any(b.rack is None for b in brokers) and any(b.rack is not None for b in brokers):
        raise cli.CommandError(
            "not all brokers have rack information; add --disable-rack-aware to go without racks"
        )
    proposed: Assignments = {}
    for topic in topics:
        own = {p: replicas for p, replicas in current.items() if p.topic == topic}
        factor = len(own[min(own)])
        try:
            placed = assign_replicas(brokers, len(own), factor, runtime.random)
        except KafkaError as error:
            raise cli.CommandError(f"{topic}: {error.message}") from error
        for partition, replicas in zip(sorted(own), placed.values(), strict=True):
            proposed[partition] = replicas
    before, after = _as_moves(current), _as_moves(proposed)
    if args.output == "json":
        cli.print_json({"current": moves_value(before), "proposed": moves_value(after)})
        return cli.DONE
    print(f"Current partition replica assignment\n{format_moves(before)}\n")
    print(f"Proposed partition reassignment configuration\n{format_moves(after)}")
    return cli.DONE


def _assignments(metadata: Any, topics: Iterable[str]) -> Assignments:
    """The replicas of every partition of `topics`.  Raises CommandError when one is missing."""
    found: Assignments = {}
    known = set()
    for topic in metadata.topics:
        if topic.error_code != NONE:
            raise cli.CommandError(f"{topic.name}: {error_name(topic.error_code)}")
        known.add(topic.name)
        for p in topic.partitions:
            found[TopicPartition(topic.name, p.partition_index)] = tuple(p.replica_nodes)
    for topic_name in topics:
        if topic_name not in known:
            raise cli.CommandError(f"{topic_name}: {error_name(UnknownTopicOrPartition.code)}")
    return dict(sorted(found.items()))


def _as_moves(assignments: Assignments) -> list[Move]:
    return [
        Move(partition, replicas, (ANY_DIR,) * len(replicas))
        for partition, replicas in sorted(assignments.items())
    ]


# -- what is under way ---------------------------------------------------------------------------


async def ongoing_moves(client: AdminClient) -> dict[TopicPartition, ReplicaAssignment]:
    """All reassignments of the cluster, as the controller tells them."""
    response = await client.controller(
        ListPartitionReassignmentsRequest(topics=None), lambda r: [r.error_code]
    )
    if response.error_code != NONE:
        raise cli.CommandError(
            f"reassignments: {describe_error(response.error_code, response.error_message)}"
        )
    found = {
        TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }
    return dict(sorted(found.items()))


async def list_moves(client: AdminClient, args: argparse.Namespace) -> int:
    ongoing = await ongoing_moves(client)
    if args.output == "json":
        cli.print_json(
            {
                "reassignments": [
                    {
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "replicas": list(assignment.replicas),
                        "adding": list(assignment.adding),
                        "removing": list(assignment.removing),
                    }
                    for partition, assignment in ongoing.items()
                ]
            }
        )
    elif not ongoing:
        print("No partition reassignments found.")
    else:
        print("Current partition reassignments:")
        for partition, assignment in ongoing.items():
            text = f"{partition}: replicas: {_ids(assignment.replicas)}."
            if assignment.adding:
                text += f" adding: {_ids(assignment.adding)}."
            if assignment.removing:
                text += f" removing: {_ids(assignment.removing)}."
            print(text)
    return cli.DONE


# -- execute -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Flow:
    """Which replicas of a partition send and which receive while it moves."""

    sources: list[int] = field(default_factory=list)
    destinations: list[int] = field(default_factory=list)


def plan_flows(
    moves: Iterable[Move],
    current: Assignments,
    ongoing: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, _Flow]:
    """Senders and receivers of what is under way and of `moves`, for the throttles."""
    flows = {
        partition: _Flow(list(assignment.origin), list(assignment.adding))
        for partition, assignment in ongoing.items()
    }
    for move in moves:
        running = ongoing.get(move.partition)
        sources = current[move.partition] if running is None else running.origin
        targets = [broker for broker in move.replicas if broker not in sources]
        flow = flows.setdefault(move.partition, _Flow())
        flow.sources = list(dict.fromkeys([*flow.sources, *sources]))
        flow.destinations = list(dict.fromkeys([*flow.destinations, *targets]))
    return flows


async def execute(client: AdminClient, runtime: Any, args: argparse.Namespace) -> int:
    moves = read_moves("--reassignment-json-file", args.reassignment_json_file)
    metadata = await client.metadata()
    alive = {broker.node_id for broker in metadata.brokers}
    unknown = {broker for move in moves for broker in move.replicas} - alive
    if unknown:
        raise cli.CommandError(f"unknown broker ids: {_ids(sorted(unknown))}")
    assignments = _assignments(metadata, dict.fromkeys(m.partition.topic for m in moves))
    for move in moves:
        if move.partition not in assignments:
            raise cli.CommandError(f"{move.partition} does not exist")
    current = {move.partition: assignments[move.partition] for move in moves}
    ongoing = await ongoing_moves(client)
    if ongoing and not args.additional:
        raise cli.CommandError(
            "there is an existing reassignment running; to start others or change the throttle,"
            " say --additional"
        )
    if args.output == "table":
        print(f"Current partition replica assignment\n\n{format_moves(_as_moves(current))}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
    await _set_throttles(client, moves, current, ongoing, args)
    errors = await _alter(client, {move.partition: move.replicas for move in moves}, args)
    started = [move.partition for move in moves if errors.get(move.partition) is None]
    if started and args.output == "table":
        print(_sentence("Successfully started partition reassignment", started))
    not_moved = await _place(client, runtime.clock, moves, set(started), args)
    if args.output == "json":
        cli.print_json(
            {
                "rollback": moves_value(_as_moves(current)),
                "results": [_result(move.partition, errors.get(move.partition)) for move in moves],
                "log_dirs_not_accepted": not_moved,
            }
        )
    return _report(errors, len(moves), more_failed=bool(not_moved))


async def _set_throttles(
    client: AdminClient,
    moves: list[Move],
    current: Assignments,
    ongoing: Mapping[TopicPartition, ReplicaAssignment],
    args: argparse.Namespace,
) -> None:
    quiet = args.output == "json"
    if args.throttle is not None:
        flows = plan_flows(moves, current, ongoing)
        topics = {
            topic: {
                LEADER_REPLICAS: replica_list({p: f.sources for p, f in flows.items()}, topic),
                FOLLOWER_REPLICAS: replica_list(
                    {p: f.destinations for p, f in flows.items()}, topic
                ),
            }
            for topic in sorted({partition.topic for partition in flows})
        }
        await throttle_topics(client, topics)
        brokers = {b for flow in flows.values() for b in (*flow.sources, *flow.destinations)}
        rate = str(args.throttle)
        await throttle_brokers(client, sorted(brokers), {LEADER_RATE: rate, FOLLOWER_RATE: rate})
        if not quiet:
            print(f"The inter-broker throttle limit was set to {rate} B/s")
    if args.replica_alter_log_dirs_throttle is not None:
        moving = {
            broker
            for move in moves
            for broker, path in zip(move.replicas, move.log_dirs, strict=True)
            if path != ANY_DIR
        }
        rate = str(args.replica_alter_log_dirs_throttle)
        await throttle_brokers(client, sorted(moving), {DIRS_RATE: rate})
        if not quiet:
            print(f"The replica-alter-dir throttle limit was set to {rate} B/s")
    if not quiet and (args.throttle or args.replica_alter_log_dirs_throttle):
        print("Run `reassign verify` until it is done: it takes the throttle away")


async def _alter(
    client: AdminClient, targets: Mapping[TopicPartition, Iterable[int] | None], args: Any
) -> dict[TopicPartition, tuple[int, str | None]]:
    """Start moves, or cancel those without target.  Returns (code, message) of what failed."""
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = {
        name: kind(name=name) for name in dict.fromkeys(partition.topic for partition in targets)
    }
    for partition, replicas in targets.items():
        topics[partition.topic].partitions.append(
            kind.ReassignablePartition(
                partition_index=partition.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    response = await client.controller(
        AlterPartitionReassignmentsRequest(
            timeout_ms=args.timeout_ms, topics=list(topics.values())
        ),
        lambda r: [r.error_code],
    )
    if response.error_code != NONE:
        raise cli.CommandError(
            f"reassignment: {describe_error(response.error_code, response.error_message)}"
        )
    return {
        TopicPartition(topic.name, p.partition_index): (p.error_code, p.error_message)
        for topic in response.responses
        for p in topic.partitions
        if p.error_code != NONE
    }


async def _place(
    client: AdminClient,
    clock: Any,
    moves: list[Move],
    started: set[TopicPartition],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Tell brokers which log directories to use; a replica that is not there yet is asked again.

    A broker that does not hold the replica yet refuses and keeps the wish for when it does.
    """
    waiting: dict[int, dict[TopicPartition, str]] = {}
    for move in moves:
        for broker, path in zip(move.replicas, move.log_dirs, strict=True):
            if path != ANY_DIR and move.partition in started:
                waiting.setdefault(broker, {})[move.partition] = path
    deadline = clock.monotonic() + args.timeout / 1000
    refused: list[dict[str, Any]] = []
    while waiting:
        refused = []
        for broker, wishes in sorted(waiting.items()):
            codes = await _alter_dirs(client, broker, wishes)
            for partition, code in codes.items():
                if code == NONE:
                    del wishes[partition]
                else:
                    refused.append(
                        _result(partition, (code, wishes[partition])) | {"broker": broker}
                    )
        waiting = {broker: wishes for broker, wishes in waiting.items() if wishes}
        retriable = {error_name(c) for c in (ReplicaNotAvailable.code, KafkaStorageError.code)}
        if clock.monotonic() >= deadline or any(r["error"] not in retriable for r in refused):
            break
        if waiting:
            await tasks.sleep(clock, _RETRY_S)
    for row in refused:
        cli.print_error(
            f"broker {row['broker']} did not accept a log directory for"
            f" {row['topic']}-{row['partition']}: {row['error']} ({row['message']})"
        )
    return refused


async def _alter_dirs(
    client: AdminClient, broker: int, wishes: Mapping[TopicPartition, str]
) -> dict[TopicPartition, int]:
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    dirs = []
    for path in dict.fromkeys(wishes.values()):
        topics: dict[str, list[int]] = {}
        for partition, wanted in wishes.items():
            if wanted == path:
                topics.setdefault(partition.topic, []).append(partition.partition)
        dirs.append(
            kind(
                path=path,
                topics=[
                    kind.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in topics.items()
                ],
            )
        )
    response = await client.broker(broker, AlterReplicaLogDirsRequest(dirs=dirs))
    return {
        TopicPartition(topic.topic_name, p.partition_index): p.error_code
        for topic in response.results
        for p in topic.partitions
    }


# -- verify and cancel ---------------------------------------------------------------------------


async def verify(client: AdminClient, args: argparse.Namespace) -> int:
    """0: all as asked; 3: some are on their way; 1: nothing moves and it is not as asked."""
    moves = read_moves("--reassignment-json-file", args.reassignment_json_file)
    ongoing = await ongoing_moves(client)
    metadata = await client.metadata()
    present = {
        TopicPartition(str(topic.name), p.partition_index): tuple(p.replica_nodes)
        for topic in metadata.topics
        for p in topic.partitions
    }
    rows = [_progress(move, ongoing.get(move.partition), present) for move in moves]
    dirs = await _dir_progress(client, [m for m in moves if set(m.log_dirs) != {ANY_DIR}])
    moving = [row for row in (*rows, *dirs) if row["state"] == "in progress"]
    cleared = False
    if not ongoing and not any(row in dirs for row in moving) and not args.preserve_throttles:
        await _clear_throttles(client, metadata, moves)
        cleared = True
    if args.output == "json":
        cli.print_json({"partitions": rows, "log_dirs": dirs, "throttles_cleared": cleared})
    else:
        print("Status of partition reassignment:")
        for row in (*rows, *dirs):
            print(row["text"])
        if cleared:
            print("\n" + _cleared(metadata, moves))
    if any(row["state"] == "different" for row in (*rows, *dirs)):
        return cli.FAILED
    return cli.PARTLY_DONE if moving else cli.DONE


def _progress(
    move: Move, running: ReplicaAssignment | None, present: Assignments
) -> dict[str, Any]:
    partition = move.partition
    replicas = present.get(partition)
    if running is not None:
        if running.target == move.replicas:
            state = "in progress"
            text = f"Reassignment of partition {partition} is still in progress."
        else:
            state = "different"
            text = (
                f"Partition {partition} is being moved to {_ids(running.target)}"
                f" rather than {_ids(move.replicas)}."
            )
    elif replicas is None:
        state, text = "different", f"Partition {partition} does not exist."
    elif replicas == move.replicas:
        state, text = "completed", f"Reassignment of partition {partition} is completed."
    else:
        state = "different"
        text = (
            f"There is no active reassignment of partition {partition},"
            f" but replica set is {_ids(replicas)} rather than {_ids(move.replicas)}."
        )
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "state": state,
        "replicas": None if replicas is None else list(replicas),
        "target": list(move.replicas),
        "text": text,
    }


async def _dir_progress(client: AdminClient, moves: list[Move]) -> list[dict[str, Any]]:
    """Where the replicas of moves that name log directories lie."""
    wanted: dict[int, dict[TopicPartition, str]] = {}
    for move in moves:
        for broker, path in zip(move.replicas, move.log_dirs, strict=True):
            if path != ANY_DIR:
                wanted.setdefault(broker, {})[move.partition] = path
    rows = []
    for broker, paths in sorted(wanted.items()):
        response = await client.broker(broker, DescribeLogDirsRequest(topics=None))
        current: dict[TopicPartition, str] = {}
        future: dict[TopicPartition, str] = {}
        for result in response.results:
            for topic in result.topics:
                for p in topic.partitions:
                    table = future if p.is_future_key else current
                    table[TopicPartition(str(topic.name), p.partition_index)] = result.log_dir
        for partition, path in sorted(paths.items()):
            replica = f"{partition} on broker {broker}"
            if future.get(partition) == path:
                state, text = (
                    "in progress",
                    f"Reassignment of replica {replica} is still in progress.",
                )
            elif current.get(partition) == path:
                state, text = "completed", f"Reassignment of replica {replica} is completed."
            else:
                state = "different"
                text = f"Replica {replica} is in {current.get(partition)} rather than {path}."
            rows.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "broker": broker,
                    "state": state,
                    "log_dir": current.get(partition),
                    "target": path,
                    "text": text,
                }
            )
    return rows


async def _clear_throttles(client: AdminClient, metadata: Any, moves: list[Move]) -> None:
    brokers = sorted(broker.node_id for broker in metadata.brokers)
    await throttle_brokers(client, brokers, dict.fromkeys(_ALL_THROTTLES))
    existing = {topic.name for topic in metadata.topics}
    await throttle_topics(
        client,
        {
            topic: {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None}
            for topic in sorted({move.partition.topic for move in moves} & existing)
        },
    )


def _cleared(metadata: Any, moves: list[Move]) -> str:
    brokers = sorted(broker.node_id for broker in metadata.brokers)
    topics = sorted({move.partition.topic for move in moves})
    return (
        f"Clearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''}"
        f" {_ids(brokers)}\nClearing topic-level throttles on topic"
        f"{'s' if len(topics) > 1 else ''} {','.join(topics)}"
    )


async def cancel(client: AdminClient, args: argparse.Namespace) -> int:
    moves = read_moves("--reassignment-json-file", args.reassignment_json_file)
    ongoing = await ongoing_moves(client)
    active = [move.partition for move in moves if move.partition in ongoing]
    errors: dict[TopicPartition, tuple[int, str | None]] = {}
    if active:
        errors = await _alter(client, dict.fromkeys(active), args)
        # Done by itself meanwhile: then there is nothing left to cancel.
        errors = {
            partition: error
            for partition, error in errors.items()
            if error[0] != NoReassignmentInProgress.code
        }
    cancelled = [partition for partition in active if partition not in errors]
    others = [partition for partition in ongoing if partition not in cancelled]
    if not args.preserve_throttles and not others and not errors:
        await _clear_throttles(client, await client.metadata(), moves)
    if args.output == "json":
        cli.print_json({"results": [_result(p, errors.get(p)) for p in active]})
    elif not active:
        print("None of the specified partition reassignments are active.")
    elif cancelled:
        print(_sentence("Successfully cancelled partition reassignment", cancelled))
    return _report(errors, max(len(active), 1))


# -- helpers -------------------------------------------------------------------------------------


def _sentence(text: str, partitions: list[TopicPartition]) -> str:
    plural = "s" if len(partitions) > 1 else ""
    return f"{text}{plural} for {','.join(map(str, sorted(partitions)))}"


def _result(partition: TopicPartition, error: tuple[int, str | None] | None) -> dict[str, Any]:
    code, message = error or (NONE, None)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "error": error_name(code),
        "message": message,
    }


def _report(
    errors: Mapping[TopicPartition, tuple[int, str | None]],
    total: int,
    *,
    more_failed: bool = False,
) -> int:
    for partition, (code, message) in sorted(errors.items()):
        cli.print_error(f"{partition}: {describe_error(code, message)}")
    if not errors:
        return cli.PARTLY_DONE if more_failed else cli.DONE
    return cli.FAILED if len(errors) == total else cli.PARTLY_DONE


def _parse_ids(flag: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise cli.UsageError(f"{flag}: expected broker ids such as 1,2,3, found {text!r}")
    ids = [int(part) for part in parts]
    if len(set(ids)) != len(ids):
        raise cli.UsageError(f"{flag}: a broker is named twice: {text}")
    return ids


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
