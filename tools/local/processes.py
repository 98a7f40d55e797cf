"""Brokers of a local cluster as processes of their own, made by the nursery."""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail

from kafkalike.zk.server.server import CoordinationServer

from .. import cli
from ..spawner import ChildChannel, Nursery
from .broker import BrokerHostError, Events, LocalBroker
from .links import Direction


class ProcessHost:
    """Starts and signals processes; tells `events` what becomes of them."""

    needs_relays = True

    def __init__(self, nursery: Nursery, reactor: Any, on_nursery_lost: Callable[[], None]) -> None:
        self._nursery = nursery
        self._reactor = reactor
        self._on_nursery_lost = on_nursery_lost
        self._events: Events
        self._children: dict[str, _Child] = {}
        self._reader = _Reader(nursery.fileno(), nursery.events, self._heard, self._lost)

    def use_coordination(self, server: CoordinationServer) -> None:
        """They reach it over sockets."""

    def set_zookeeper_link(
        self, broker: LocalBroker, *, send: Direction, receive: Direction
    ) -> None:
        """The relays do that."""

    def expire_session(self, broker: LocalBroker) -> bool:
        return False

    def end_session_of_dead(self, broker: LocalBroker) -> None:
        """There are none: sessions are ended from outside."""

    async def advance(self, seconds: float) -> float:
        raise cli.CommandError("only a cluster in a single process has a clock of its own")

    def start(self, events: Events) -> None:
        self._events = events
        self._reactor.addReader(self._reader)

    def remove_at_end(self, directory: str) -> None:
        """Also when the supervisor is killed."""
        self._nursery.remove_at_end(directory)

    def launch(self, broker: LocalBroker, argument: dict[str, Any]) -> None:
        channel = self._nursery.spawn(
            broker.name, "kafkalike.tools.local.child:run_child", argument, str(broker.log_path)
        )
        self._children[broker.name] = _Child(broker, channel, self._reactor, self._events)

    def stop(self, broker: LocalBroker) -> None:
        self._signal(broker, signal.SIGTERM)
        self._signal(broker, signal.SIGCONT)

    def kill(self, broker: LocalBroker) -> None:
        self._signal(broker, signal.SIGKILL)

    def pause(self, broker: LocalBroker) -> None:
        self._signal(broker, signal.SIGSTOP)

    def resume(self, broker: LocalBroker) -> None:
        self._signal(broker, signal.SIGCONT)

    def _signal(self, broker: LocalBroker, number: int) -> None:
        # The pid is the broker's own until the nursery has reaped it, which it says a moment later.
        if broker.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(broker.pid, number)

    def command(self, broker: LocalBroker, command: dict[str, Any]) -> "Deferred[dict[str, Any]]":
        child = self._children.get(broker.name)
        if child is None:
            return fail(BrokerHostError(f"{broker.name} is not running"))
        return child.command(command)

    def close(self) -> None:
        """End everything that still runs, at once."""
        self._reactor.removeReader(self._reader)
        for child in self._children.values():
            child.close()
        self._children.clear()
        self._nursery.close()

    def _lost(self) -> None:
        """The kernel has ended the children with the nursery."""
        self._on_nursery_lost()
        for child in list(self._children.values()):
            self._ended(child, -signal.SIGKILL)

    def _ended(self, child: "_Child", code: int) -> None:
        del self._children[child.broker.name]
        child.close()
        child.broker.pid = None
        self._events.exited(child.broker, code)

    def _heard(self, event: dict[str, Any]) -> None:
        child = self._children.get(event["name"])
        if child is None:
            return
        broker = child.broker
        if event["event"] == "spawned":
            broker.pid = event["pid"]
            self._events.spawned(broker)
        else:
            self._ended(child, event["code"])


class _Child:
    """The channel to one process."""

    def __init__(
        self, broker: LocalBroker, channel: ChildChannel, reactor: Any, events: Events
    ) -> None:
        self.broker = broker
        self._channel = channel
        self._reactor = reactor
        self._events = events
        self._waiting: dict[int, Deferred[dict[str, Any]]] = {}
        self._next_id = 0
        self._reader = _Reader(channel.fileno(), channel.receive, self._heard, lambda: None)
        reactor.addReader(self._reader)

    def command(self, command: dict[str, Any]) -> "Deferred[dict[str, Any]]":
        self._next_id += 1
        done: Deferred[dict[str, Any]] = Deferred()
        self._waiting[self._next_id] = done
        self._channel.send(command | {"id": self._next_id})
        return done

    def close(self) -> None:
        self._reactor.removeReader(self._reader)
        self._channel.close()
        waiting, self._waiting = self._waiting, {}
        for deferred in waiting.values():
            deferred.errback(BrokerHostError(f"{self.broker.name} has ended"))

    def _heard(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self._events.ready(self.broker, event["address"])
        elif event["event"] == "warns":
            self._events.warns(event["lines"])
        elif event["event"] == "sees":
            self._events.sees(self.broker, event["brokers"])
        else:
            done = self._waiting.pop(event["id"])
            if "error" in event:
                done.errback(BrokerHostError(f"{self.broker.name}: {event['error']}"))
            else:
                done.callback(event["result"])


class _Reader:
    """A socket of JSON messages on the loop."""

    def __init__(
        self,
        fd: int,
        receive: Callable[[], list[dict[str, Any]]],
        take: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._receive = receive
        self._take = take
        self._on_end = on_end

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "kafkalike up"

    def doRead(self) -> Exception | None:
        try:
            for message in self._receive():
                self._take(message)
        except EOFError as error:
            return error
        return None

    def connectionLost(self, reason: Any) -> None:
        self._on_end()
