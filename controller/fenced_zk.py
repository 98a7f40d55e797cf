"""A ZkClient that serves one term in office and nothing after it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail

from kafkalike.zk.client import (
    ANY_VERSION,
    Op,
    OpResult,
    ReadOp,
    ReadResult,
    SessionState,
    Stat,
    Watch,
    ZkClient,
)

T = TypeVar("T")


class TermOver(Exception):
    """The term in office for which something was done has ended; its results mean nothing."""


class FencedZk:
    """Passes requests on until `close`; from then on every request, and every answer that was still
    on its way, fails with TermOver.

    This is what makes each await of the controller safe: code of a term that has ended is never
    resumed with a result, so it can neither change its context nor write again.
    """

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk
        self.closed = False

    @property
    def session_id(self) -> int:
        return self._zk.session_id

    @property
    def state(self) -> SessionState:
        return self._zk.state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._zk.add_listener(listener)

    def remove_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._zk.remove_listener(listener)

    def connect(self, timeout_s: float) -> "Deferred[None]":
        raise NotImplementedError("the session is not the controller's to open")

    def reconnect(self) -> "Deferred[None]":
        raise NotImplementedError("the session is not the controller's to open")

    def close(self) -> "Deferred[None]":
        raise NotImplementedError("the session is not the controller's to close")

    def end(self) -> None:
        """The term is over."""
        self.closed = True

    def get(self, path: str, watch: Watch | None = None) -> "Deferred[tuple[bytes | None, Stat]]":
        return self._ask(self._zk.get, path, watch)

    def exists(self, path: str, watch: Watch | None = None) -> "Deferred[Stat | None]":
        return self._ask(self._zk.exists, path, watch)

    def get_children(
        self, path: str, watch: Watch | None = None
    ) -> "Deferred[tuple[list[str], Stat]]":
        return self._ask(self._zk.get_children, path, watch)

    def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> "Deferred[str]":
        return self._ask(self._zk.create, path, data, ephemeral=ephemeral, sequential=sequential)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> "Deferred[Stat]":
        return self._ask(self._zk.set, path, data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> "Deferred[None]":
        return self._ask(self._zk.delete, path, version)

    def multi(self, ops: Sequence[Op]) -> "Deferred[list[OpResult]]":
        return self._ask(self._zk.multi, ops)

    def multi_read(
        self, ops: Sequence[ReadOp], watch: Watch | None = None
    ) -> "Deferred[list[ReadResult]]":
        return self._ask(self._zk.multi_read, ops, watch)

    def _ask(self, ask: "Callable[..., Deferred[T]]", *args: Any, **keywords: Any) -> "Deferred[T]":
        if self.closed:
            return fail(TermOver())
        return ask(*args, **keywords).addBoth(self._judge)

    def _judge(self, result: Any) -> Any:
        if self.closed:
            raise TermOver()
        return result
