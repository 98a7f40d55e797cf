"""Blocks of producer ids (reference: zookeeper 2.6): each id is given out once in a cluster's life."""

from typing import Final

from . import paths
from .client import BadVersion, Create, NodeExists, NoNode, SetData, ZkClient, retrying
from .election import write_once
from .znodes import CorruptZnode, ProducerIdBlock

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = (1 << 63) - 1


async def allocate_block(zk: ZkClient, broker_id: int) -> ProducerIdBlock:
    """The next block, for `broker_id` alone.

    Loops until its own conditional write wins.  Raises CorruptZnode when the node cannot be read
    or all 2**63 ids are used up.
    """
    path = paths.PRODUCER_ID_BLOCK
    while True:
        try:
            data, stat = await retrying(zk, lambda: zk.get(path))
        except NoNode:
            version, last = None, None
        else:
            version = stat.version
            last = None if data is None else ProducerIdBlock.decode(data, path)
        start = last.end + 1 if last else 0
        if start > _LAST_ID - BLOCK_SIZE:
            raise CorruptZnode(path, f"all producer ids are used up, the last block is {last}")
        block = ProducerIdBlock(broker_id, start, start + BLOCK_SIZE - 1)
        write = (
            Create(path, block.encode())
            if version is None
            else SetData(path, block.encode(), version)
        )
        try:
            await write_once(zk, [write])
        except (BadVersion, NodeExists, NoNode):
            continue
        return block
