"""A ZooKeeper session for a command."""

import argparse
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafkalike.runtime.ports import Runtime
from kafkalike.zk.client import ZkClient, ZkError
from kafkalike.zk.payload import CorruptZnode

from .. import cli

T = TypeVar("T")


def add_zookeeper_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--zookeeper",
        type=cli.zookeeper_addresses,
        metavar="HOST:PORT[,...][/CHROOT]",
        help="as zookeeper.connect of the brokers",
    )


async def with_zookeeper(
    runtime: Runtime, connect: str, timeout_s: float, work: Callable[[ZkClient], Awaitable[T]]
) -> T:
    """Connect, run `work`, close.  Raises UsageError for the address, CommandError for the rest."""
    from twisted.internet import reactor

    from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions, split_connect

    try:
        split_connect(connect)
    except ValueError as error:
        raise cli.UsageError(f"--zookeeper: {error}") from error
    logger = logging.getLogger("kafkalike.admin.zk")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    zk = KazooZkClient(
        ZkOptions(connect),
        clock=runtime.clock,
        call_from_thread=reactor.callFromThread,
        logger=logger,
    )
    try:
        await zk.connect(timeout_s)
        return await work(zk)
    except (ZkError, CorruptZnode) as error:
        raise cli.CommandError(f"ZooKeeper at {connect}: {error}") from error
    finally:
        await zk.close()
