"""`kafkalike dump-zk`: what a cluster, ours or Kafka's, keeps in ZooKeeper.

Reads and changes nothing.  Text is one line a znode: path, data version, `E` for ephemeral, payload;
`--output json` gives one object a line.  Payloads are checked against what their path promises:
problems are printed and make the exit code 1.  Password hashes and encrypted passwords are not shown.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TextIO

from kafkalike.runtime.ports import Runtime
from kafkalike.zk import paths, security, znodes
from kafkalike.zk.client import GetChildren, GetData, ReadResult, Stat, ZkClient, ZkError
from kafkalike.zk.payload import CorruptZnode, Fields

from . import cli

_HIDDEN: Final = "[hidden]"
_SECRET: Final = re.compile(
    r'"([^"]*(?:SCRAM-SHA-|password|secret|sasl\.jaas)[^"]*)":"(?:[^"\\]|\\.)*"'
)
_LEVEL_LIMIT: Final = 5000
"""Nodes read at once."""

Check = Callable[[bytes | None, str, int], object]


def _plain(decode: Callable[[bytes | None, str], object]) -> Check:
    return lambda data, path, version: decode(data, path)


def _any_json(data: bytes | None, path: str) -> object:
    return None if not data else Fields.parse(data, path)


_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    (r"/brokers/ids/[^/]+", _plain(znodes.BrokerInfo.decode)),
    (r"/brokers/topics/[^/]+", _plain(znodes.TopicInfo.decode)),
    (r"/brokers/topics/[^/]+/partitions/[^/]+/state", znodes.PartitionState.decode),
    (r"/controller", _plain(znodes.ControllerInfo.decode)),
    (r"/controller_epoch", _plain(znodes.decode_number)),
    (r"/cluster/id", _plain(znodes.decode_cluster_id)),
    (r"/feature", _plain(znodes.FeatureInfo.decode)),
    (r"/admin/reassign_partitions", _plain(znodes.decode_reassignments)),
    (r"/admin/preferred_replica_election", _plain(znodes.decode_partitions)),
    (r"/isr_change_notification/isr_change_.*", _plain(znodes.decode_partitions)),
    (r"/log_dir_event_notification/log_dir_event_.*", _plain(znodes.decode_log_dir_event)),
    (r"/config/(?!changes/)[^/]+/.*", _plain(znodes.decode_config)),
    (r"/config/changes/config_change_.*", _plain(znodes.decode_config_change)),
    (r"/kafka-acl/[^/]+/.*", _plain(security.decode_acls)),
    (r"/kafka-acl-extended/[^/]+/[^/]+/.*", _plain(security.decode_acls)),
    (r"/kafka-acl-changes/acl_changes_.*", _plain(security.decode_acl_change)),
    (r"/kafka-acl-extended-changes/acl_changes_.*", _plain(security.decode_extended_acl_change)),
    (r"/delegation_token/tokens/.*", _plain(security.DelegationToken.decode)),
    (r"/migration", _plain(_any_json)),
)


@dataclass(slots=True, frozen=True)
class Znode:
    """One node as it was read; `problem` says why its payload is not what the path promises."""

    path: str
    data: bytes | None
    stat: Stat
    problem: str | None


def check(path: str, data: bytes | None, version: int) -> str | None:
    """What is wrong with a payload, None when it is fine or the path promises nothing."""
    if path == paths.PRODUCER_ID_BLOCK:
        if data is None:
            return None
        checks: Iterator[Check] = iter([_plain(znodes.ProducerIdBlock.decode)])
    else:
        checks = (decode for pattern, decode in _CHECKS if re.fullmatch(pattern, path))
    try:
        for decode in checks:
            decode(data, path, version)
    except CorruptZnode as error:
        return error.detail
    return None


async def read_tree(zk: ZkClient, chroot: str, root: str) -> list[Znode]:
    """The node `root` and all below it, sorted by path; nodes that vanish meanwhile are left out.

    `zk` is connected without chroot so that a missing one is not made.
    """
    found: dict[str, Znode] = {}
    level = [root]
    while level:
        batch, level = level[:_LEVEL_LIMIT], level[_LEVEL_LIMIT:]
        full = [(chroot + path).rstrip("/") or "/" for path in batch]
        answers = await zk.multi_read([op for p in full for op in (GetData(p), GetChildren(p))])
        for index, path in enumerate(batch):
            level += _take(found, path, answers[2 * index], answers[2 * index + 1])
    return [found[path] for path in sorted(found, key=lambda path: path.split("/"))]


def _take(found: dict[str, Znode], path: str, payload: ReadResult, names: ReadResult) -> list[str]:
    """Keep one node; the paths of its children."""
    if isinstance(payload, tuple):
        data, stat = payload
        found[path] = Znode(path, data, stat, check(path, data, stat.version))
    if not isinstance(names, list):
        return []
    above = path.rstrip("/")
    return [f"{above}/{name}" for name in names if f"{above}/{name}" != "/zookeeper"]


def _shown(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data.decode("utf-8", "backslashreplace")
    return _SECRET.sub(lambda match: f'"{match[1]}":"{_HIDDEN}"', text)


def print_text(nodes: list[Znode], out: TextIO) -> None:
    """One line a znode."""
    for node in nodes:
        kind = "E" if node.stat.ephemeral_owner else "-"
        payload = _shown(node.data)
        text = "null" if payload is None else payload or '""'
        out.write(f"{node.path}  v{node.stat.version} {kind}  {text}\n")
        if node.problem is not None:
            out.write(f"  !! {node.problem}\n")


def print_json(nodes: list[Znode], out: TextIO) -> None:
    """One object a line."""
    for node in nodes:
        item: dict[str, Any] = {
            "path": node.path,
            "data": _shown(node.data),
            "version": node.stat.version,
            "czxid": node.stat.czxid,
            "mzxid": node.stat.mzxid,
            "ctime_ms": node.stat.ctime_ms,
            "mtime_ms": node.stat.mtime_ms,
            "ephemeral_owner": node.stat.ephemeral_owner,
        }
        if node.problem is not None:
            item["problem"] = node.problem
        out.write(json.dumps(item, ensure_ascii=False) + "\n")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the `dump-zk` subcommand."""
    parser = subparsers.add_parser(
        "dump-zk", help="print what a cluster keeps in ZooKeeper", description=__doc__
    )
    parser.add_argument(
        "--zookeeper",
        type=cli.zookeeper_addresses,
        required=True,
        metavar="HOST:PORT[,...][/CHROOT]",
        help="as zookeeper.connect of the brokers",
    )
    parser.add_argument("--path", default="/", help="only this node and what is below it")
    parser.add_argument(
        "--timeout-s",
        type=cli.decimal(0.001, 86400, "seconds"),
        default=10.0,
        help="how long to try to connect (default: 10)",
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the tree; 1 when a payload is not what it should be."""
    from .loop import run_main

    if not args.path.startswith("/"):
        raise cli.UsageError(f"--path: expected an absolute path, found {args.path!r}")
    return run_main(lambda runtime: _dump(runtime, args))


async def _dump(runtime: Runtime, args: argparse.Namespace) -> int:
    import logging

    from twisted.internet import reactor

    from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions, split_connect

    try:
        hosts, chroot = split_connect(args.zookeeper)
    except ValueError as error:
        raise cli.UsageError(f"--zookeeper: {error}") from error
    logger = logging.getLogger("kafkalike.dump_zk")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    zk = KazooZkClient(
        ZkOptions(hosts),
        clock=runtime.clock,
        call_from_thread=reactor.callFromThread,
        logger=logger,
    )
    try:
        await zk.connect(args.timeout_s)
        root = args.path.rstrip("/") or "/"
        nodes = await read_tree(zk, chroot, root)
    except ZkError as error:
        raise cli.CommandError(f"ZooKeeper at {args.zookeeper}: {error}") from error
    finally:
        await zk.close()
    if not nodes:
        raise cli.CommandError(f"ZooKeeper at {args.zookeeper} has no node {root}")
    (print_json if args.output == "json" else print_text)(nodes, sys.stdout)
    return cli.FAILED if any(node.problem for node in nodes) else cli.DONE
