"""A broker of a local cluster as its supervisor knows it, and what hosts brokers."""

import pathlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.zk.server.server import CoordinationServer

from .links import Direction

MAX_WARNINGS: Final = 20
MAX_WARNING_CHARS: Final = 400
"""Together they fit into one message to the supervisor, whatever the characters are."""


def shortened(lines: list[str]) -> list[str]:
    """What `Events.warns` is told of many or long lines."""
    return [line[:MAX_WARNING_CHARS] for line in lines[:MAX_WARNINGS]]


class BrokerHostError(Exception):
    """A broker could not be told something: it is not there, or refuses."""


class BrokerState(Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


@dataclass(slots=True)
class LocalBroker:
    """One broker.  `sees` are the brokers that the controller has told it of."""

    id: int
    directory: pathlib.Path
    port: int
    address: str
    log_path: pathlib.Path
    """What it logs."""
    state: BrokerState = BrokerState.STOPPED
    pid: int | None = None
    sees: list[int] = field(default_factory=list)
    exit_code: int | None = None
    waiting: "list[Deferred[None]]" = field(default_factory=list)
    """Fired at every change of the above."""

    @property
    def name(self) -> str:
        return f"broker-{self.id}"

    @property
    def is_up(self) -> bool:
        """There is something that could be signalled."""
        return self.state is not BrokerState.STOPPED

    def changed(self) -> None:
        waiting, self.waiting = self.waiting, []
        for deferred in waiting:
            if not deferred.called:
                deferred.callback(None)

    def next_change(self) -> "Deferred[None]":
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        return waiting


class Events(Protocol):
    """What a host tells the cluster."""

    def spawned(self, broker: LocalBroker) -> None:
        """Its pid is known."""

    def warns(self, lines: list[str]) -> None:
        """What there is to say about its settings; told before it starts."""

    def ready(self, broker: LocalBroker, address: str) -> None:
        """It serves."""

    def sees(self, broker: LocalBroker, brokers: list[int]) -> None:
        """The controller has told it of these."""

    def exited(self, broker: LocalBroker, code: int) -> None:
        """It is gone; negative: by that signal."""


class BrokerHost(Protocol):
    """Where brokers run: processes of their own, or this one."""

    needs_relays: bool
    """Brokers reach ZooKeeper over sockets, so that faults on that way need a relay."""

    def start(self, events: Events) -> None: ...

    def use_coordination(self, server: CoordinationServer) -> None:
        """This embedded service runs now."""

    def set_zookeeper_link(
        self, broker: LocalBroker, *, send: Direction, receive: Direction
    ) -> None:
        """Where there are no relays."""

    def expire_session(self, broker: LocalBroker) -> bool:
        """Have the broker's ZooKeeper session end; False: only somebody outside can do that."""

    def end_session_of_dead(self, broker: LocalBroker) -> None:
        """Where sessions are objects: end the one that a killed broker left behind."""

    async def advance(self, seconds: float) -> float:
        """Move the brokers' clock forward; what it shows then (epoch seconds).  CommandError."""

    def launch(self, broker: LocalBroker, argument: dict[str, Any]) -> None:
        """Start it; `argument` holds `properties`, `log_level` and `commands`."""

    def stop(self, broker: LocalBroker) -> None:
        """Ask it to stop in order; `exited` follows."""

    def kill(self, broker: LocalBroker) -> None:
        """End it at once; `exited` follows."""

    def pause(self, broker: LocalBroker) -> None: ...

    def resume(self, broker: LocalBroker) -> None: ...

    def command(self, broker: LocalBroker, command: dict[str, Any]) -> "Deferred[dict[str, Any]]":
        """See `BrokerFaults.obey`; fails with BrokerHostError."""

    def remove_at_end(self, directory: str) -> None:
        """Remove the directory when everything has ended."""

    def close(self) -> None:
        """End everything that still runs."""
