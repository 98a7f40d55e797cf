"""A coordination service in memory with a connected client, and coroutines run to their end."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from kafkalike.runtime.tasks import as_deferred
from kafkalike.zk import brokers as zk_brokers
from kafkalike.zk.client import SessionState
from kafkalike.zk.server.local import LocalCoordination
from kafkalike.zk.znodes import ControllerInfo
from tests.fakes import FakeClock, FakeRandom, result_of

T = TypeVar("T")


class ZkWorld:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.random = FakeRandom(7)
        self.zookeeper = LocalCoordination(self.clock)
        self.zk = self.zookeeper.client()
        connected = self.zk.connect(10)
        self.settle()
        result_of(connected)
        assert self.zk.state is SessionState.CONNECTED
        self.run(zk_brokers.precreate(self.zk))
        self.zookeeper.create("/controller", ControllerInfo(1, 0).encode())

    def settle(self, seconds: float = 1.0) -> None:
        for _ in range(20):
            self.clock.advance(seconds / 20)

    def run(self, work: Awaitable[T], seconds: float = 1.0) -> T:
        """The result of work that needs only ZooKeeper and less than `seconds`."""
        result: Any = as_deferred(work)
        self.settle(seconds)
        value: T = result_of(result)
        return value
