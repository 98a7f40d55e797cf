"""What a cluster keeps in ZooKeeper, for cases that speak as one of its brokers would."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

LIMIT_S: Final = 60.0


class ClusterTree:
    """Reads the tree at `zookeeper`, each time anew."""

    def __init__(self, zookeeper: str) -> None:
        self._zookeeper = zookeeper

    def broker_epoch(self, broker_id: int) -> int:
        with self._connected() as client:
            return int(client.get(f"/brokers/ids/{broker_id}")[1].czxid)

    def controller_epoch(self) -> int:
        with self._connected() as client:
            return int(client.get("/controller_epoch")[0])

    def state(self, topic: str, partition: int = 0) -> Mapping[str, Any]:
        """Fields of the partition's state, and `version` of its znode.  Raises LookupError."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        with self._connected() as client:
            try:
                content, stat = client.get(path)
            except NoNodeError:
                raise LookupError(path) from None
        return {**json.loads(content), "version": stat.version}

    def forget_broker(self, broker_id: int) -> None:
        """As when its session ends."""
        with self._connected() as client:
            client.delete(f"/brokers/ids/{broker_id}")

    def forget_old_offsets(self) -> None:
        """Those that OffsetCommit 0 keeps here."""
        with self._connected() as client, contextlib.suppress(NoNodeError):
            for group in client.get_children("/consumers"):
                client.delete(f"/consumers/{group}", recursive=True)

    def wait_controller(self, broker_id: int) -> None:
        with self._connected() as client:
            deadline = time.monotonic() + LIMIT_S
            while json.loads(client.get("/controller")[0])["brokerid"] != broker_id:
                assert time.monotonic() < deadline, "another broker is controller"
                time.sleep(0.05)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[KazooClient]:
        client = KazooClient(self._zookeeper)
        client.start(LIMIT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()
