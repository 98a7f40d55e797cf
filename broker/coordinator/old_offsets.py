"""Offsets kept in ZooKeeper by consumers of the first kind (OffsetCommit and OffsetFetch version 0)."""

from collections.abc import Awaitable

from kafkalike.errors import UnknownServerError
from kafkalike.types import TopicPartition
from kafkalike.zk import consumers
from kafkalike.zk.client import ZkClient, ZkError
from kafkalike.zk.znodes import CorruptZnode


class OldOffsets:
    """Reads and writes them; what goes wrong in ZooKeeper is UNKNOWN_SERVER_ERROR to the client."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    async def read(self, group_id: str, partition: TopicPartition) -> int | None:
        """The offset, None when there is none.  Raises KafkaError."""
        return await _told(consumers.read_offset(self._zk, group_id, partition))

    async def write(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Raises KafkaError."""
        await _told(consumers.write_offset(self._zk, group_id, partition, offset))


async def _told(work: "Awaitable[int | None]") -> int | None:
    try:
        return await work
    except (ZkError, CorruptZnode) as error:
        raise UnknownServerError(str(error)) from error
