"""`kafkalike-admin groups list|describe|reset-offsets|delete|delete-offsets`, as Kafka's own tool."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kafkalike.errors import NONE, error_name
from kafkalike.messages.stored import decode_assignment
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.types import TopicPartition

from .. import cli
from .client import AdminClient, add_connection_flags, describe_error, run_with_client
from .group_queries import EARLIEST, LATEST, NO_OFFSET, Coordinator, Group, GroupQueries, by_topic
from .offset_resets import (
    WAYS,
    add_ways,
    clamp,
    parse_datetime,
    parse_duration,
    parse_plan,
    parse_topics,
    print_plan,
)

NOTHING: Final = "-"
INACTIVE: Final = ("Empty", "Dead")
CONSUMER: Final = "consumer"

Json = dict[str, Any]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("groups", help="list, describe, reset and delete groups")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list groups")
    _add_common(listing)
    listing.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE[,STATE]",
        help="show states; with values only groups in one of them",
    )
    describe = verbs.add_parser("describe", help="show offsets and lag, members or state")
    _add_common(describe)
    _add_groups(describe)
    what = describe.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag (the default)")
    what.add_argument("--members", action="store_true", help="members")
    what.add_argument("--state", action="store_true", help="coordinator, assignor and state")
    describe.add_argument("--verbose", action="store_true", help="with --members: assignments")
    reset = verbs.add_parser("reset-offsets", help="move what inactive groups have committed")
    _add_common(reset)
    _add_groups(reset)
    _add_topics(reset, every=True)
    add_ways(reset)
    act = reset.add_mutually_exclusive_group()
    act.add_argument("--dry-run", action="store_true", help="only show it (the default)")
    act.add_argument("--execute", action="store_true", help="do it")
    reset.add_argument("--export", action="store_true", help="print CSV for --from-file")
    delete = verbs.add_parser("delete", help="delete groups without members")
    _add_common(delete)
    _add_groups(delete)
    delete_offsets = verbs.add_parser("delete-offsets", help="forget offsets of topics not read")
    _add_common(delete_offsets)
    delete_offsets.add_argument("--group", action="append", required=True, help="the group")
    _add_topics(delete_offsets, every=False)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_connection_flags(parser)
    cli.add_output_flag(parser)


def _add_groups(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", action="append", help="group (may be repeated)")
    which.add_argument("--all-groups", action="store_true", help="every group of the cluster")


def _add_topics(parser: argparse.ArgumentParser, *, every: bool) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        required=not every,
        metavar="TOPIC[:P1,P2]",
        help="topic, or some of its partitions (may be repeated)",
    )
    if every:
        parser.add_argument(
            "--all-topics", action="store_true", help="every topic that has a committed offset"
        )


def run(args: argparse.Namespace) -> int:
    verbs = {
        "list": list_groups,
        "describe": describe,
        "reset-offsets": reset_offsets,
        "delete": delete,
        "delete-offsets": delete_offsets,
    }
    verb = verbs[args.verb]

    async def work(client: AdminClient) -> int:
        queries = GroupQueries(client, client.clock, args.timeout_ms / 1000)
        return await verb(queries, args)

    return run_with_client(args, work)


async def _chosen(queries: GroupQueries, args: argparse.Namespace) -> list[str]:
    if args.group:
        return list(dict.fromkeys(args.group))
    return [group.group_id for group in await queries.all_groups()]


# -- list and describe -------------------------------------------------------------------------


async def list_groups(queries: GroupQueries, args: argparse.Namespace) -> int:
    states = [state.strip() for state in (args.state or "").split(",") if state.strip()]
    groups = await queries.all_groups(states)
    if args.output == "json":
        cli.print_json(
            {
                "groups": [
                    {"group": g.group_id, "protocol_type": g.protocol_type, "state": g.group_state}
                    for g in groups
                ]
            }
        )
    elif args.state is None:
        for group in groups:
            print(group.group_id)
    else:
        cli.print_table(("GROUP", "STATE"), ((g.group_id, g.group_state) for g in groups))
    return cli.DONE


async def describe(queries: GroupQueries, args: argparse.Namespace) -> int:
    if args.verbose and not args.members:
        raise cli.UsageError("--verbose: expected with --members")
    names = await _chosen(queries, args)
    described: list[Json] = []
    missing: list[str] = []
    for name in names:
        group, coordinator = await queries.describe(name)
        if group.group_state == "Dead":
            missing.append(name)
            cli.print_error(f"group {name!r} does not exist")
            continue
        view = _state_of(group, coordinator)
        if args.members:
            view["members"] = [_member_of(member) for member in group.members]
        elif not args.state:
            view["offsets"] = await _offsets_of(queries, group)
        described.append(view)
    if args.output == "json":
        cli.print_json({"groups": described})
    else:
        for view in described:
            _print_group(view, args)
    if not missing:
        return cli.DONE
    return cli.PARTLY_DONE if described else cli.FAILED


def _state_of(group: Group, coordinator: Coordinator) -> Json:
    return {
        "group": group.group_id,
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "assignment_strategy": group.protocol_data,
        "coordinator": {
            "id": coordinator.broker_id,
            "host": coordinator.host,
            "port": coordinator.port,
        },
        "member_count": len(group.members),
    }


def _assigned(member: Any) -> list[TopicPartition]:
    """Partitions of a consumer; none for members that are no consumers or have none."""
    try:
        assignment = decode_assignment(member.member_assignment)
    except MalformedMessage:
        return []
    return sorted(
        TopicPartition(part.topic, number)
        for part in assignment.assigned_partitions
        for number in part.partitions
    )


def _member_of(member: Any) -> Json:
    return {
        "consumer_id": member.member_id,
        "instance_id": member.group_instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "assignment": [
            {"topic": topic, "partitions": [key.partition for key in keys]}
            for topic, keys in by_topic(_assigned(member)).items()
        ],
    }


async def _offsets_of(queries: GroupQueries, group: Group) -> list[Json]:
    owners: dict[TopicPartition, Any] = {}
    if group.protocol_type == CONSUMER:
        for member in group.members:
            owners.update(dict.fromkeys(_assigned(member), member))
    committed = await queries.committed(group.group_id)
    keys = sorted({*committed, *owners})
    ends = await queries.log_offsets(keys, LATEST)
    rows = []
    for key in keys:
        current, end, owner = committed.get(key), ends.get(key), owners.get(key)
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "current_offset": current,
                "log_end_offset": end,
                "lag": None if current is None or end is None else end - current,
                "consumer_id": None if owner is None else owner.member_id,
                "host": None if owner is None else owner.client_host,
                "client_id": None if owner is None else owner.client_id,
            }
        )
    return rows


def _print_group(view: Json, args: argparse.Namespace) -> None:
    name = view["group"]
    if view["state"] == "Empty" and not args.state:
        print(f"\nConsumer group '{name}' has no active members.")
    elif view["state"] in ("PreparingRebalance", "CompletingRebalance"):
        print(f"\nWarning: Consumer group '{name}' is rebalancing.")
    print()
    if args.state:
        place = view["coordinator"]
        cli.print_table(
            ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
            [
                (
                    name,
                    f"{place['host']}:{place['port']} ({place['id']})",
                    view["assignment_strategy"],
                    view["state"],
                    view["member_count"],
                )
            ],
        )
    elif args.members:
        _print_members(name, view["members"], args.verbose)
    else:
        cli.print_table(
            (
                "GROUP",
                "TOPIC",
                "PARTITION",
                "CURRENT-OFFSET",
                "LOG-END-OFFSET",
                "LAG",
                "CONSUMER-ID",
                "HOST",
                "CLIENT-ID",
            ),
            ([name, *(_cell(value) for value in row.values())] for row in view["offsets"]),
        )


def _print_members(name: str, members: Sequence[Json], verbose: bool) -> None:
    headers = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    static = any(member["instance_id"] is not None for member in members)
    if static:
        headers.insert(2, "GROUP-INSTANCE-ID")
    rows = []
    for member in members:
        count = sum(len(part["partitions"]) for part in member["assignment"])
        row = [name, member["consumer_id"], member["host"], member["client_id"], count]
        if static:
            row.insert(2, member["instance_id"] or "")
        if verbose:
            row.append(
                ", ".join(
                    f"{part['topic']}({','.join(map(str, part['partitions']))})"
                    for part in member["assignment"]
                )
                or NOTHING
            )
        rows.append(row)
    cli.print_table([*headers, "ASSIGNMENT"] if verbose else headers, rows)


def _cell(value: Any) -> str:
    return NOTHING if value is None else str(value)


# -- reset -------------------------------------------------------------------------------------


async def reset_offsets(queries: GroupQueries, args: argparse.Namespace) -> int:
    if not args.from_file and not args.topic and not args.all_topics:
        raise cli.UsageError("expected --topic, --all-topics or --from-file")
    if args.topic and args.all_topics:
        raise cli.UsageError("--all-topics stands in place of --topic")
    names = await _chosen(queries, args)
    file_plan: dict[str, dict[TopicPartition, int]] | None = None
    if args.from_file:
        file_plan = parse_plan(cli.read_text("--from-file", args.from_file), names)
    plan: dict[str, dict[TopicPartition, int]] = {}
    failures: list[str] = []
    for name in names:
        group, _ = await queries.describe(name)
        if group.group_state not in INACTIVE:
            failures.append(
                f"offsets of group {name!r} can only be reset while it is inactive,"
                f" its state is {group.group_state}"
            )
            continue
        plan[name] = await _targets(queries, args, name, file_plan)
    failures.extend([] if not args.execute else await _commit_all(queries, plan))
    for failure in failures:
        cli.print_error(failure)
    _print_plan(args, plan)
    if not failures:
        return cli.DONE
    return cli.PARTLY_DONE if any(plan.values()) else cli.FAILED


async def _commit_all(
    queries: GroupQueries, plan: dict[str, dict[TopicPartition, int]]
) -> list[str]:
    """Commit the plan; what failed is taken out of it and told."""
    failures = []
    for name, targets in plan.items():
        if not targets:
            continue
        for key, code in (await queries.commit(name, targets)).items():
            if code != NONE:
                targets.pop(key, None)
                failures.append(f"group {name!r}: {key}: {error_name(code)}")
    return failures


def _print_plan(args: argparse.Namespace, plan: dict[str, dict[TopicPartition, int]]) -> None:
    rows = [
        (name, key.topic, key.partition, offset)
        for name, targets in plan.items()
        for key, offset in sorted(targets.items())
    ]
    if args.output == "json":
        columns = ("group", "topic", "partition", "new_offset")
        cli.print_json(
            {
                "executed": args.execute,
                "offsets": [dict(zip(columns, row, strict=True)) for row in rows],
            }
        )
    elif args.export:
        print(print_plan(plan), end="")
    else:
        print()
        cli.print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    if not args.execute:
        cli.print_note("nothing was changed; --execute does it")


async def _targets(
    queries: GroupQueries,
    args: argparse.Namespace,
    group: str,
    file_plan: dict[str, dict[TopicPartition, int]] | None,
) -> dict[TopicPartition, int]:
    """The new offset of each partition in scope."""
    committed = await queries.committed(group)
    if file_plan is not None:
        return await _clamped(queries, file_plan[group])
    keys = await _in_scope(queries, args, committed)
    way = next(way for way in WAYS if getattr(args, way) not in (None, False))
    if way == "to_earliest":
        return await queries.log_offsets(keys, EARLIEST)
    if way == "to_latest":
        return await queries.log_offsets(keys, LATEST)
    if way in ("to_datetime", "by_duration"):
        return await _by_time(queries, args, keys)
    if way == "to_offset":
        return await _clamped(queries, dict.fromkeys(keys, args.to_offset))
    known = {key: committed[key] for key in keys if key in committed}
    if way == "shift_by":
        for key in keys:
            if key not in known:
                raise cli.CommandError(
                    f"--shift-by: {key} has no committed offset in group {group!r}"
                )
        return await _clamped(queries, {key: at + args.shift_by for key, at in known.items()})
    ends = await queries.log_offsets([key for key in keys if key not in known], LATEST)
    return dict(sorted({**known, **ends}.items()))


async def _in_scope(
    queries: GroupQueries, args: argparse.Namespace, committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    if args.all_topics:
        return sorted(committed)
    scope = parse_topics(args.topic)
    known = await queries.partitions(scope.topics)
    keys: list[TopicPartition] = []
    for topic, numbers in scope.topics.items():
        existing = known.get(topic)
        if existing is None:
            raise cli.CommandError(f"topic {topic!r} does not exist")
        for number in existing if numbers is None else numbers:
            if number not in existing:
                raise cli.CommandError(f"topic {topic!r} has no partition {number}")
            keys.append(TopicPartition(topic, number))
    return sorted(set(keys))


async def _by_time(
    queries: GroupQueries, args: argparse.Namespace, keys: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if args.to_datetime is not None:
        since_ms = parse_datetime(args.to_datetime)
    else:
        length_ms = round(parse_duration(args.by_duration).total_seconds() * 1000)
        since_ms = queries.now_ms() - length_ms
    found = await queries.log_offsets(keys, since_ms)
    late = [key for key, offset in found.items() if offset == NO_OFFSET]
    return {**found, **await queries.log_offsets(late, LATEST)}


async def _clamped(
    queries: GroupQueries, wanted: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Offsets that the logs have; a warning where one was moved."""
    earliest = await queries.log_offsets(wanted, EARLIEST)
    latest = await queries.log_offsets(wanted, LATEST)
    found = {}
    for key, offset in sorted(wanted.items()):
        if key not in earliest or key not in latest:
            raise cli.CommandError(f"{key} does not exist or has no leader")
        found[key] = clamp(offset, earliest[key], latest[key])
        if found[key] != offset:
            _warn(f"{key}: offset {offset} is outside the log, {found[key]} is taken instead")
    return found


def _warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


# -- delete ------------------------------------------------------------------------------------


async def delete(queries: GroupQueries, args: argparse.Namespace) -> int:
    results = [(name, await queries.delete(name)) for name in await _chosen(queries, args)]
    return _report(args, "group", [(name, code, None) for name, code in results], "deleted")


async def delete_offsets(queries: GroupQueries, args: argparse.Namespace) -> int:
    if len(args.group) != 1:
        raise cli.UsageError(f"--group: expected one group, found {len(args.group)}")
    (group,) = args.group
    scope = parse_topics(args.topic)
    known = await queries.partitions(scope.topics)
    keys = [
        TopicPartition(topic, number)
        for topic, numbers in scope.topics.items()
        for number in (known.get(topic, [0]) if numbers is None else numbers)
    ]
    code, codes = await queries.delete_offsets(group, keys)
    if code != NONE:
        raise cli.CommandError(f"group {group!r}: {error_name(code)}")
    rows = [(str(key), partition_code, None) for key, partition_code in sorted(codes.items())]
    return _report(args, "partition", rows, "deleted")


def _report(
    args: argparse.Namespace,
    noun: str,
    rows: Sequence[tuple[str, int, str | None]],
    done: str,
) -> int:
    """One line each; 0 when all succeeded, 1 when none did, 3 in between."""
    failed = [row for row in rows if row[1] != NONE]
    if args.output == "json":
        cli.print_json(
            {"results": [{noun: name, "error": error_name(code)} for name, code, _ in rows]}
        )
    for name, code, message in rows:
        if code != NONE:
            cli.print_error(f"{name}: {describe_error(code, message)}")
        elif args.output == "table":
            print(f"{name}: {done}")
    if not failed:
        return cli.DONE
    return cli.FAILED if len(failed) == len(rows) else cli.PARTLY_DONE
