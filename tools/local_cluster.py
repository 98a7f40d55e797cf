"""A cluster of broker processes on this machine, with its own coordination service or a given one.

The supervisor runs the embedded coordination service on its own loop and has brokers made by the
nursery.  Everything a broker is told stands in `DIR/broker-ID/server.properties`, so that each can be
looked at, and started alone with `kafkalike broker`.
"""

import os
import pathlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.properties import format_properties
from kafkalike.runtime.ports import Runtime
from kafkalike.runtime.tasks import TimedOut, as_deferred, timeout
from kafkalike.zk.server.server import CoordinationServer

from . import cli
from .spawner import Nursery

PRELOAD: Final = ["kafkalike.tools.serve", "kafkalike.zk.server.server"]
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
KILL_TIMEOUT_S: Final = 10.0
HOST: Final = "127.0.0.1"
SUPERVISOR_DEFAULTS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
"""What a cluster on one machine wants otherwise than Kafka's defaults: it fails and stops fast."""


@dataclass(slots=True)
class ClusterOptions:
    """What to run.  `port` 0 takes free ports; otherwise broker i listens on port + i - 1."""

    brokers: int = 3
    directory: pathlib.Path | None = None
    memory: bool = False
    port: int = 9092
    zookeeper: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "INFO"


@dataclass(slots=True)
class BrokerProcess:
    """One broker of the cluster as the supervisor knows it."""

    id: int
    directory: pathlib.Path
    pid: int | None = None
    address: str | None = None
    exit_code: int | None = None
    ready: "list[Deferred[None]]" = field(default_factory=list)
    gone: "list[Deferred[None]]" = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"broker-{self.id}"

    @property
    def log_path(self) -> pathlib.Path:
        """What the process prints."""
        return self.directory / "broker.log"

    @property
    def running(self) -> bool:
        return self.pid is not None


class LocalCluster:
    """Starts, watches and stops the processes.  All methods belong to the supervisor's loop."""

    def __init__(
        self,
        options: ClusterOptions,
        nursery: Nursery,
        runtime: Runtime,
        reactor: Any,
        on_exit: Callable[[BrokerProcess], None] | None = None,
    ) -> None:
        """`on_exit` hears of every broker process that ends."""
        self._options = options
        self._nursery = nursery
        self._runtime = runtime
        self._reactor = reactor
        self._on_exit = on_exit
        self._coordination: CoordinationServer | None = None
        self._temporary: str | None = None
        self._stopped = False
        self._zookeeper = options.zookeeper or ""
        self.directory = options.directory or pathlib.Path()
        self.brokers: dict[int, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers that have been ready, comma separated."""
        return ",".join(b.address for b in self.brokers.values() if b.address)

    @property
    def zookeeper(self) -> str:
        """The connection string that brokers were given."""
        return self._zookeeper

    async def start(self) -> None:
        """Start everything and wait until every broker serves.  Raises CommandError."""
        options = self._options
        if options.directory is None:
            parent = "/dev/shm" if options.memory and os.path.isdir("/dev/shm") else None
            self._temporary = tempfile.mkdtemp(prefix="kafkalike-", dir=parent)
            self.directory = pathlib.Path(self._temporary)
        self.directory = self.directory.resolve()
        self._reader = _NurseryReader(self._nursery, self._on_event)
        self._reactor.addReader(self._reader)
        if not options.zookeeper:
            await self._start_coordination()
        for broker_id in range(1, options.brokers + 1):
            folder = self.directory / f"broker-{broker_id}"
            folder.mkdir(parents=True, exist_ok=True)
            self.brokers[broker_id] = BrokerProcess(broker_id, folder)
        started = [as_deferred(self.start_broker(i)) for i in self.brokers]
        for waiting in started:
            await waiting

    async def _start_coordination(self) -> None:
        durable = self._options.directory is not None
        folder = self.directory / "coordination"
        if durable:
            folder.mkdir(parents=True, exist_ok=True)
        self._coordination = CoordinationServer(
            listen=self._reactor.listenTCP,
            clock=self._runtime.clock,
            random=self._runtime.random,
            threads=self._runtime.threads,
            disk=self._runtime.disk if durable else None,
            data_dir=str(folder) if durable else None,
            host=HOST,
            port=0,
            fsync=durable,
            tick_time_ms=500,
            max_session_timeout_ms=60_000,
        )
        await self._coordination.start()
        self._zookeeper = f"{HOST}:{self._coordination.port}"

    def properties(self, broker_id: int) -> dict[str, str]:
        """server.properties of one broker: defaults for its place, then the overrides."""
        count = self._options.brokers
        port = self._options.port
        broker = self.brokers[broker_id]
        if port:
            listen = port + broker_id - 1
        else:
            listen = int(broker.address.rpartition(":")[2]) if broker.address else 0
        factor = str(min(3, count))
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{listen}",
            "zookeeper.connect": self._zookeeper,
            "log.dirs": str(broker.directory / "data"),
            "default.replication.factor": factor,
            "min.insync.replicas": str(min(2, count)),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": str(min(2, count)),
            **SUPERVISOR_DEFAULTS,
            **self._options.overrides,
        }

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker, on its old directory and port if it had any, and wait until it serves.

        Raises CommandError when it ends, or is not ready in time.
        """
        broker = self.brokers[broker_id]
        if broker.running:
            raise cli.CommandError(f"{broker.name} is running already")
        properties = self.properties(broker_id)
        path = broker.directory / "server.properties"
        path.write_text(format_properties(properties), encoding="iso-8859-1")
        broker.exit_code = None
        ready: Deferred[None] = Deferred()
        broker.ready.append(ready)
        self._nursery.spawn(
            broker.name,
            "kafkalike.tools.serve:run_child",
            {"properties": properties, "log_level": self._options.log_level},
            str(broker.log_path),
        )
        try:
            await timeout(self._runtime.clock, ready, READY_TIMEOUT_S, broker.name)
        except TimedOut as error:
            raise cli.CommandError(
                f"{broker.name} was not ready in {READY_TIMEOUT_S:.0f} s; see {broker.log_path}"
            ) from error

    async def stop_broker(self, broker_id: int) -> None:
        """SIGTERM and wait; SIGKILL when it does not end in time."""
        broker = self.brokers[broker_id]
        gone = self._end(broker, signal.SIGTERM)
        timer = self._runtime.clock.call_later(STOP_TIMEOUT_S, self._end, broker, signal.SIGKILL)
        await gone
        timer.cancel()

    async def kill_broker(self, broker_id: int) -> None:
        """SIGKILL and wait for the end."""
        await self._end(self.brokers[broker_id], signal.SIGKILL)

    def _end(self, broker: BrokerProcess, number: int) -> "Deferred[None]":
        gone: Deferred[None] = Deferred()
        if broker.pid is None:
            gone.callback(None)
        else:
            broker.gone.append(gone)
            os.kill(broker.pid, number)
            os.kill(broker.pid, signal.SIGCONT)
        return gone

    async def stop(self) -> None:
        """Stop all brokers together, then the coordination service; remove what was temporary."""
        for waiting in [as_deferred(self.stop_broker(i)) for i in self.brokers]:
            await waiting
        if self._coordination is not None:
            await self._coordination.stop()
        self._stopped = True
        self._reactor.removeReader(self._reader)
        self._nursery.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _on_event(self, event: dict[str, Any]) -> None:
        broker = next(b for b in self.brokers.values() if b.name == event["name"])
        if event["event"] == "spawned":
            broker.pid = event["pid"]
        elif event["event"] == "ready":
            broker.address = event["listeners"][0]
            _fire(broker.ready, None)
        elif event["event"] == "exited":
            broker.pid = None
            broker.exit_code = event["code"]
            _fire(
                broker.ready,
                cli.CommandError(
                    f"{broker.name} ended with {event['code']}: {_last_line(broker.log_path)}"
                ),
            )
            _fire(broker.gone, None)
            if self._on_exit is not None and not self._stopped:
                self._on_exit(broker)


def _fire(waiting: "list[Deferred[None]]", error: Exception | None) -> None:
    fired, waiting[:] = list(waiting), []
    for deferred in fired:
        if error is None:
            deferred.callback(None)
        else:
            deferred.errback(error)


def _last_line(path: pathlib.Path) -> str:
    """The last thing a process printed, for the message about its end."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else f"see {path}"


class _NurseryReader:
    """The nursery's socket on the loop."""

    def __init__(self, nursery: Nursery, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._nursery = nursery
        self._on_event = on_event

    def fileno(self) -> int:
        return self._nursery.socket.fileno()

    def doRead(self) -> Exception | None:
        try:
            for event in self._nursery.events():
                self._on_event(event)
        except EOFError as error:
            return error
        return None

    def connectionLost(self, reason: Any) -> None:
        """Nothing to do: the children have ended with the nursery."""

    def logPrefix(self) -> str:
        return "nursery"
