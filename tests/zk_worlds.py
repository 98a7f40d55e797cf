"""A ZooKeeper and the time in which its clients live: real, or the fake of `zk/server/local.py`.

Tests written against `World` run on both and so keep the fake honest.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient

from kafkalike.runtime.ports import Clock
from kafkalike.runtime.tasks import as_deferred
from kafkalike.zk.client import SessionState, ZkClient
from kafkalike.zk.kazoo_client import KazooZkClient, ZkOptions
from kafkalike.zk.server.local import LocalCoordination, LocalZkClient
from tests.fakes import FakeClock
from tests.integration.tcp_proxy import TcpProxy
from tests.real_loop import RealLoop

T = TypeVar("T")
SESSION_MS = 6000


class World(Protocol):
    """A ZooKeeper and the time in which its clients live."""

    @property
    def clock(self) -> Clock: ...

    def client(self) -> ZkClient:
        """A new, unconnected client in the world's chroot."""

    def run(self, work: Awaitable[T]) -> T: ...

    def run_until(self, condition: Callable[[], bool]) -> None: ...

    def lose_connection(self, zk: ZkClient) -> None:
        """Break the connection of `zk`; it cannot be made again until `restore_connection`."""

    def restore_connection(self, zk: ZkClient) -> None: ...

    def expire(self, zk: ZkClient) -> None:
        """End the session of `zk` on the server."""

    def go_away(self) -> None:
        """The server is not there any more."""


class FakeWorld:
    def __init__(self) -> None:
        self.fake_clock = FakeClock()
        self.service = LocalCoordination(self.fake_clock)

    @property
    def clock(self) -> Clock:
        return self.fake_clock

    def client(self) -> ZkClient:
        return self.service.client(session_timeout_ms=SESSION_MS, chroot="/fake")

    def run(self, work: Awaitable[T]) -> T:
        outcome: list[Any] = []
        as_deferred(work).addBoth(outcome.append)
        self.run_until(lambda: bool(outcome))
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        return outcome[0]  # type: ignore[no-any-return]

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(60_000):
            if condition():
                return
            self.fake_clock.advance(0.001)
        raise AssertionError("not so after 60 s")

    def lose_connection(self, zk: ZkClient) -> None:
        assert isinstance(zk, LocalZkClient)
        zk.drop_connection()

    def restore_connection(self, zk: ZkClient) -> None:
        assert isinstance(zk, LocalZkClient)
        zk.restore_connection()

    def expire(self, zk: ZkClient) -> None:
        assert isinstance(zk, LocalZkClient)
        zk.expire_session()

    def go_away(self) -> None:
        self.service.stop_serving()


class RealWorld:
    def __init__(self, address: str, chroot: str) -> None:
        self.loop = RealLoop()
        self._address = address
        self._chroot = chroot
        self._proxies: dict[int, TcpProxy] = {}
        self._clients: list[KazooZkClient] = []
        self._away = False

    @property
    def clock(self) -> Clock:
        return self.loop

    def client(self) -> ZkClient:
        proxy = TcpProxy(self._address)
        if self._away:
            proxy.refuse()
        options = ZkOptions(proxy.address + self._chroot, session_timeout_ms=SESSION_MS)
        zk = KazooZkClient(
            options,
            clock=self.loop,
            call_from_thread=self.loop.call_from_thread,
            logger=logging.getLogger("test.zk"),
        )
        self._proxies[id(zk)] = proxy
        self._clients.append(zk)
        return zk

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run(work)

    def run_until(self, condition: Callable[[], bool]) -> None:
        self.loop.run_until(condition)

    def lose_connection(self, zk: ZkClient) -> None:
        self._proxies[id(zk)].refuse()
        self.loop.run_until(lambda: zk.state is not SessionState.CONNECTED)

    def restore_connection(self, zk: ZkClient) -> None:
        self._proxies[id(zk)].accept()

    def expire(self, zk: ZkClient) -> None:
        assert isinstance(zk, KazooZkClient)
        twin = KazooClient(self._address, client_id=(zk.session_id, zk.session_password))
        # The server keeps the newest connection of a session: the client must not come back and take it
        # from the twin before that has ended it.
        proxy = self._proxies[id(zk)]
        refusing = proxy.refusing
        proxy.refuse()
        twin.start()
        twin.stop()
        twin.close()
        if not refusing:
            proxy.accept()

    def go_away(self) -> None:
        self._away = True
        for proxy in self._proxies.values():
            proxy.refuse()

    def close(self) -> None:
        for zk in self._clients:
            self.loop.run(zk.close())
        for proxy in self._proxies.values():
            proxy.close()
