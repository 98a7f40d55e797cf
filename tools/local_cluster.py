"""A cluster of brokers on this machine, with its own coordination service or a given one.

The supervisor runs the embedded coordination service on its own loop and has brokers run by a host:
processes (`local/processes.py`) or this process (`local/in_process.py`).  Everything a broker is told
stands in `DIR/broker-ID/server.properties`, so that each can be looked at, and started alone with
`kafkalike broker`.
"""

import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.properties import format_properties
from kafkalike.runtime.ports import DiskLock, LockHeld, Runtime, StorageError
from kafkalike.runtime.tasks import TimedOut, as_deferred, timeout
from kafkalike.zk.server.server import CoordinationServer

from . import cli
from .local.broker import BrokerHost, BrokerState, LocalBroker
from .local.layout import (
    HOST,
    LOCK,
    TEMPORARY_PREFIX,
    Layout,
    Reservations,
    close_log,
    last_line,
    mark_temporary,
    open_log,
    read_layout,
    remove_abandoned,
    write_layout,
)
from .local.links import OPEN, Direction
from .local.relay import ZooKeeperRelay

DEFAULT_BROKERS: Final = 3
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
KILL_TIMEOUT_S: Final = 10.0
ZOOKEEPER: Final = "zookeeper"
"""Purpose of the coordination service's port, and its name as the end of a link."""

Ends = tuple[int | str, int | str]
"""From and to: broker ids or "zookeeper"."""

SUPERVISOR_DEFAULTS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Where a cluster on one machine differs from Kafka's defaults: it starts, fails and stops fast."""


_log = logging.getLogger("kafkalike.up")


class Separation(IntEnum):
    """What a broker is cut off from: nothing, some others, most of them, or ZooKeeper."""

    NONE = 0
    SOME = 1
    MOST = 2
    ZOOKEEPER = 3


@dataclass(slots=True)
class ClusterOptions:
    """What to run.

    `brokers` None is as many as the directory holds, or 3.  `port` 0 takes the ports of the last start
    on the directory, or free ones; otherwise broker i listens on port + i - 1.  `faults` prepares the
    brokers for the verbs that break things.
    """

    brokers: int | None = None
    directory: pathlib.Path | None = None
    memory: bool = False
    port: int = 9092
    zookeeper: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "INFO"
    faults: bool = False


class LocalCluster:
    """Starts, watches and stops the brokers.  All methods belong to the supervisor's loop."""

    def __init__(
        self,
        options: ClusterOptions,
        host: BrokerHost,
        runtime: Runtime,
        reactor: Any,
        *,
        on_unexpected_exit: Callable[[LocalBroker], None] = lambda broker: None,
        on_warning: Callable[[str], None] = lambda line: None,
        on_coordination_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`on_unexpected_exit` hears of every broker that ends without having been told to.

        `on_warning` hears once what brokers say about their settings, which are those of all.
        """
        self.options = options
        self.host = host
        self.runtime = runtime
        self.reactor = reactor
        self._on_unexpected_exit = on_unexpected_exit
        self._on_warning = on_warning
        self._on_coordination_failure = on_coordination_failure
        self._reservations = Reservations()
        self._lock: DiskLock | None = None
        self._log: logging.Handler | None = None
        self._layout = Layout(0)
        self._relays: dict[int, ZooKeeperRelay] = {}
        self._temporary = False
        self._host_started = False
        self._stopping: Deferred[None] | None = None
        self._links: dict[Ends, Direction] = {}
        self.coordination: CoordinationServer | None = None
        self.directory = pathlib.Path()
        self.zookeeper = options.zookeeper or ""
        self.brokers: dict[int, LocalBroker] = {}
        self.is_ready = False
        self.warnings: list[str] = []
        """What brokers said about their settings."""

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, comma separated."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def _has_relays(self) -> bool:
        return self.options.faults and self.host.needs_relays

    def broker(self, broker_id: int) -> LocalBroker:
        """Raises CommandError for an unknown id."""
        try:
            return self.brokers[broker_id]
        except KeyError:
            known = ", ".join(map(str, self.brokers))
            raise cli.CommandError(f"no broker {broker_id}; there are {known}") from None

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and wait until every broker serves and knows the others.

        Raises CommandError (and OSError); `stop` is to be called all the same.
        """
        self._settle_directory()
        self.host.start(self)
        self._host_started = True
        if self._temporary:
            self.host.remove_at_end(str(self.directory))
        for broker in self.brokers.values():
            self._launch(broker)
        await self.start_coordination()
        deadline_s = self.runtime.clock.monotonic() + READY_TIMEOUT_S
        for broker in self.brokers.values():
            await self._until_ready(broker, deadline_s)
        for broker in self.brokers.values():
            await self._until_sees_all(broker, deadline_s)
        self.is_ready = True

    def _settle_directory(self) -> None:
        """Decide where everything is and which ports it has."""
        options = self.options
        if options.directory is None:
            in_memory = options.memory and os.path.isdir("/dev/shm")
            parent = "/dev/shm" if in_memory else tempfile.gettempdir()
            self.directory = pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent))
            self._temporary = True
            self._clean_up(pathlib.Path(parent))
        else:
            options.directory.mkdir(parents=True, exist_ok=True)
            self.directory = options.directory.resolve()
        try:
            self._lock = self.runtime.disk.lock(str(self.directory / LOCK))
        except LockHeld as error:
            raise cli.CommandError(f"another kafkalike up runs on {self.directory}") from error
        except StorageError as error:
            raise cli.CommandError(f"--dir: {error}") from error
        mark_temporary(self.directory, temporary=self._temporary)
        self._log = open_log(self.directory, options.log_level)
        before = read_layout(self.directory)
        count = options.brokers or (before.brokers if before else DEFAULT_BROKERS)
        if before is not None and count < before.brokers:
            raise cli.CommandError(
                f"--brokers {count}: {self.directory} holds a cluster of {before.brokers}"
            )
        self._layout = Layout(count, dict(before.ports) if before else {})
        for broker_id in range(1, count + 1):
            folder = self.directory / f"broker-{broker_id}"
            folder.mkdir(exist_ok=True)
            port = self._port(f"broker-{broker_id}", options.port and options.port + broker_id - 1)
            self.brokers[broker_id] = LocalBroker(
                broker_id, folder, port, f"{HOST}:{port}", folder / "broker.log"
            )
        if not options.zookeeper:
            self.zookeeper = f"{HOST}:{self._port(ZOOKEEPER, 0)}"
        if self._has_relays:
            for broker_id in self.brokers:
                self._port(f"relay-{broker_id}", 0)
        write_layout(self.directory, self._layout)

    def _clean_up(self, parent: pathlib.Path) -> None:
        """Remove, beside everything else, what killed clusters have left in the same place."""

        def told(removed: list[pathlib.Path]) -> None:
            for directory in removed:
                _log.info("removed %s, which a killed cluster had left", directory)

        work = self.runtime.threads.run(remove_abandoned, self.runtime.disk, parent)
        work.addCallbacks(told, lambda failure: _log.warning("%s: %s", parent, failure.value))

    def _port(self, purpose: str, wanted: int) -> int:
        before = 0 if wanted else self._layout.ports.get(purpose, 0)
        port = self._reservations.take(purpose, wanted or before, otherwise_any=not wanted)
        self._layout.ports[purpose] = port
        return port

    async def start_coordination(self) -> None:
        """The embedded service, unless an ensemble was given, and the relays in front of it."""
        hosts = self.zookeeper.partition("/")[0]
        if not self.options.zookeeper:
            self.coordination = self._make_coordination()
            try:
                await self.coordination.start()
            except StorageError as error:
                raise cli.CommandError(str(error)) from error
            self.host.use_coordination(self.coordination)
        if self._has_relays:
            targets = cli.parse_addresses("--zookeeper", hosts)
            for broker_id in self.brokers:
                port = self._layout.ports[f"relay-{broker_id}"]
                relay = ZooKeeperRelay(self.reactor, self.runtime.clock, HOST, port, targets)
                self._relays[broker_id] = relay
                relay.start()

    def _make_coordination(self) -> CoordinationServer:
        durable = not self._temporary
        folder = self.directory / "coordination"
        if durable:
            folder.mkdir(exist_ok=True)
        return CoordinationServer(
            listen=self.reactor.listenTCP,
            clock=self.runtime.clock,
            random=self.runtime.random,
            threads=self.runtime.threads,
            disk=self.runtime.disk if durable else None,
            data_dir=str(folder) if durable else None,
            host=HOST,
            port=self._layout.ports[ZOOKEEPER],
            fsync=durable,
            tick_time_ms=500,
            max_session_timeout_ms=60_000,
            on_failure=self._on_coordination_failure,
        )

    def properties(self, broker_id: int) -> dict[str, str]:
        """server.properties of one broker: defaults for its place, then the overrides."""
        count = len(self.brokers)
        broker = self.brokers[broker_id]
        zookeeper = self.zookeeper
        if self._has_relays:
            _, slash, chroot = zookeeper.partition("/")
            zookeeper = f"{HOST}:{self._layout.ports[f'relay-{broker_id}']}{slash}{chroot}"
        factor = str(min(3, count))
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{broker.address}",
            "zookeeper.connect": zookeeper,
            "log.dirs": str(broker.directory / "data"),
            "default.replication.factor": factor,
            "min.insync.replicas": str(min(2, count)),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": str(min(2, count)),
            **SUPERVISOR_DEFAULTS,
            **self.options.overrides,
        }

    # -- one broker ----------------------------------------------------------------------------

    def _launch(self, broker: LocalBroker) -> None:
        properties = self.properties(broker.id)
        path = broker.directory / "server.properties"
        path.write_text(format_properties(properties), encoding="iso-8859-1")
        commands = None
        if self.options.faults:
            addresses = [[HOST, other.port, other.id] for other in self.brokers.values()]
            commands = [{"do": "peers", "addresses": addresses}, *self._link_commands(broker.id)]
        broker.state = BrokerState.STARTING
        broker.exit_code = None
        broker.sees = []
        argument = {"properties": properties, "log_level": self.options.log_level}
        self.host.launch(broker, argument | {"commands": commands})

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker that is stopped, on its old directory and port; wait until it serves.

        Raises CommandError when it ends, or is not ready in time.
        """
        broker = self.broker(broker_id)
        if broker.is_up:
            raise cli.CommandError(f"{broker.name} is {broker.state.value} already")
        self._launch(broker)
        await self._until_ready(broker, self.runtime.clock.monotonic() + READY_TIMEOUT_S)

    async def _until_ready(self, broker: LocalBroker, deadline_s: float) -> None:
        while broker.state is BrokerState.STARTING:
            await self._change(broker, deadline_s, "ready")
        if broker.state is not BrokerState.RUNNING:
            raise cli.CommandError(
                f"{broker.name} ended with {broker.exit_code}: {last_line(broker.log_path)}"
            )

    async def _until_sees_all(self, broker: LocalBroker, deadline_s: float) -> None:
        while broker.state is BrokerState.RUNNING and broker.sees != list(self.brokers):
            await self._change(broker, deadline_s, "told of all the others")
        if broker.state is not BrokerState.RUNNING:
            raise cli.CommandError(
                f"{broker.name} ended with {broker.exit_code}: {last_line(broker.log_path)}"
            )

    async def _change(self, broker: LocalBroker, deadline_s: float, what: str) -> None:
        left_s = deadline_s - self.runtime.clock.monotonic()
        try:
            await timeout(self.runtime.clock, broker.next_change(), max(left_s, 0.0), what)
        except TimedOut as error:
            raise cli.CommandError(
                f"{broker.name} was not {what} in {READY_TIMEOUT_S:g} s; see {broker.log_path}"
            ) from error

    async def stop_broker(self, broker_id: int, limit_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM and wait; SIGKILL when it does not end in time."""
        broker = self.broker(broker_id)
        if not broker.is_up:
            return
        if broker.state is BrokerState.STARTING:  # it has nothing to hand over
            await self.kill_broker(broker_id)
            return
        broker.state = BrokerState.STOPPING
        self.host.stop(broker)
        timer = self.runtime.clock.call_later(limit_s, self.host.kill, broker)
        while broker.is_up:
            await broker.next_change()
        timer.cancel()

    async def kill_broker(self, broker_id: int) -> None:
        """SIGKILL and wait for the end."""
        broker = self.broker(broker_id)
        if not broker.is_up:
            return
        broker.state = BrokerState.STOPPING
        self.host.kill(broker)
        deadline_s = self.runtime.clock.monotonic() + KILL_TIMEOUT_S
        while broker.is_up:
            await self._change(broker, deadline_s, "gone")

    def pause_broker(self, broker_id: int) -> None:
        """SIGSTOP: it keeps its connections and does nothing.  Raises CommandError."""
        broker = self.broker(broker_id)
        if broker.state is not BrokerState.RUNNING:
            raise cli.CommandError(f"{broker.name} is {broker.state.value}, expected running")
        broker.state = BrokerState.PAUSED
        self.host.pause(broker)

    def resume_broker(self, broker_id: int) -> None:
        """SIGCONT.  Raises CommandError."""
        broker = self.broker(broker_id)
        if broker.state is not BrokerState.PAUSED:
            raise cli.CommandError(f"{broker.name} is {broker.state.value}, expected paused")
        self.host.resume(broker)
        broker.state = BrokerState.RUNNING

    # -- links ---------------------------------------------------------------------------------

    def direction(self, source: int | str, target: int | str) -> Direction:
        """The state of a link; ends are broker ids or "zookeeper"."""
        return self._links.get((source, target), OPEN)

    def touched_links(self) -> list[Ends]:
        """Links that are not as they were at the start."""
        return [ends for ends, direction in self._links.items() if direction != OPEN]

    def cut_off(self) -> set[int]:
        """Brokers at either end of a link that is cut."""
        found: set[int] = set()
        for ends, direction in self._links.items():
            if direction.cut:
                found.update(end for end in ends if isinstance(end, int))
        return found

    def witnesses(self) -> list[LocalBroker]:
        """Running brokers that know best how the cluster is: those that are the least cut off.

        A broker that is cut off from all the others, or from ZooKeeper, is none while a better
        connected one runs: isolating one broker leaves the others.
        """
        running = list(self.running())
        best = min((self.separation(b.id) for b in running), default=Separation.NONE)
        return [b for b in running if self.separation(b.id) == best]

    def separation(self, broker_id: int) -> "Separation":
        """How far a broker is cut off, by links cut in either direction."""

        def is_cut(end: int | str) -> bool:
            ends = ((broker_id, end), (end, broker_id))
            return any(self.direction(*one).cut for one in ends)

        if is_cut(ZOOKEEPER):
            return Separation.ZOOKEEPER
        others = [other for other in self.brokers if other != broker_id]
        lost = sum(map(is_cut, others))
        if lost * 2 > len(others):
            return Separation.MOST
        return Separation.SOME if lost else Separation.NONE

    async def set_links(self, changes: Mapping[Ends, Direction]) -> None:
        """Change directions, each (from, to).  Applies to brokers that are down when they start."""
        self._links.update(changes)
        touched = dict.fromkeys(end for ends in changes for end in ends if isinstance(end, int))
        waiting = [as_deferred(self._apply_links(self.broker(end))) for end in touched]
        for one in waiting:
            await one

    async def _apply_links(self, broker: LocalBroker) -> None:
        send, receive = self.direction(broker.id, ZOOKEEPER), self.direction(ZOOKEEPER, broker.id)
        relay = self._relays.get(broker.id)
        if relay is not None:
            relay.set_link(send=send, receive=receive)
        else:
            self.host.set_zookeeper_link(broker, send=send, receive=receive)
        if broker.state in (BrokerState.RUNNING, BrokerState.STARTING):
            for command in self._link_commands(broker.id):
                await self.command(broker, command)

    def _link_commands(self, broker_id: int) -> list[dict[str, Any]]:
        """How the links of one broker to the others are, as far as they were ever touched."""
        commands: list[dict[str, Any]] = []
        for other in self.brokers:
            if (broker_id, other) in self._links or (other, broker_id) in self._links:
                send, receive = self.direction(broker_id, other), self.direction(other, broker_id)
                commands.append(
                    {
                        "do": "link",
                        "peer": other,
                        "send": [send.cut, send.delay_s],
                        "receive": [receive.cut, receive.delay_s],
                    }
                )
        return commands

    async def command(self, broker: LocalBroker, command: dict[str, Any]) -> dict[str, Any]:
        """Tell a broker to switch a fault (`BrokerFaults.obey`)."""
        return await timeout(
            self.runtime.clock, self.host.command(broker, command), KILL_TIMEOUT_S, broker.name
        )

    # -- copies --------------------------------------------------------------------------------

    def require_embedded(self) -> CoordinationServer:
        """The embedded coordination service.  Raises CommandError where an ensemble is used."""
        if self.coordination is None:
            raise cli.CommandError("a copy needs the embedded coordination service")
        return self.coordination

    async def save(self, target: pathlib.Path) -> None:
        """Copy the tree and every broker's data; the brokers are stopped.  Raises CommandError."""
        tree = self.require_embedded().export_tree()
        folders = {b.id: b.directory / "data" for b in self.brokers.values()}
        await self.runtime.threads.run(_copy_out, target, tree, folders)

    async def load(self, source: pathlib.Path) -> None:
        """Bring a copy back; the brokers are stopped.  Raises CommandError."""
        await self.require_embedded().stop()
        folders = {b.id: b.directory / "data" for b in self.brokers.values()}
        tree = await self.runtime.threads.run(
            _copy_in, source, folders, self.directory / "coordination"
        )
        self.coordination = self._make_coordination()
        await self.coordination.start()
        await self.coordination.import_tree(tree)
        self.host.use_coordination(self.coordination)

    async def start_again(self) -> None:
        """Start all brokers that are stopped."""
        stopped = [b.id for b in self.brokers.values() if not b.is_up]
        for waiting in [as_deferred(self.start_broker(broker_id)) for broker_id in stopped]:
            await waiting

    # -- stop ----------------------------------------------------------------------------------

    async def stop_brokers(self, *, kill: bool = False) -> None:
        """All together."""
        for broker in self.brokers.values():
            if broker.state is BrokerState.PAUSED:
                self.resume_broker(broker.id)
        end = self.kill_broker if kill else self.stop_broker
        for waiting in [as_deferred(end(broker_id)) for broker_id in self.brokers]:
            await waiting

    async def stop_coordination(self) -> None:
        for relay in self._relays.values():
            closing = relay.stop()
            if closing is not None:
                await closing
        self._relays.clear()
        if self.coordination is not None:
            await self.coordination.stop()
            self.coordination = None

    def stop(self, *, kill: bool = False) -> "Deferred[None]":
        """Stop everything, and remove what was temporary; with `kill` without waiting for anybody.

        A second call with `kill` cuts the first one short.
        """
        if self._stopping is None:
            self._stopping = as_deferred(self._stop(kill))
        elif kill:
            for broker in self.brokers.values():
                if broker.is_up:
                    self.host.kill(broker)
        done: Deferred[None] = Deferred()

        def pass_on(result: Any) -> Any:
            done.callback(None)
            return result

        self._stopping.addBoth(pass_on)
        return done

    async def _stop(self, kill: bool) -> None:
        self.is_ready = False
        try:
            await self.stop_brokers(kill=kill)
            await self.stop_coordination()
        finally:
            if self._host_started:
                self.host.close()
            if self._log is not None:
                close_log(self._log)
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)
            self._reservations.close()
            if self._lock is not None:
                self._lock.release()

    # -- what the host tells -------------------------------------------------------------------

    def spawned(self, broker: LocalBroker) -> None:
        broker.changed()

    def ready(self, broker: LocalBroker, address: str) -> None:
        if broker.state is BrokerState.STARTING:
            broker.state = BrokerState.RUNNING
            broker.address = address
        broker.changed()

    def warns(self, lines: list[str]) -> None:
        for line in lines:
            if line not in self.warnings:
                self.warnings.append(line)
                self._on_warning(line)

    def sees(self, broker: LocalBroker, brokers: list[int]) -> None:
        broker.sees = brokers
        broker.changed()

    def exited(self, broker: LocalBroker, code: int) -> None:
        expected = broker.state is BrokerState.STOPPING
        broker.state = BrokerState.STOPPED
        broker.exit_code = code
        broker.changed()
        if not expected and self.is_ready:
            self._on_unexpected_exit(broker)

    def running(self) -> Iterable[LocalBroker]:
        """Brokers that serve."""
        return [b for b in self.brokers.values() if b.state is BrokerState.RUNNING]


def _copy_out(target: pathlib.Path, tree: Any, folders: Mapping[int, pathlib.Path]) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "tree.json").write_text(json.dumps(tree))
    for broker_id, folder in folders.items():
        shutil.copytree(folder, partial / f"broker-{broker_id}", copy_function=copy_sparse)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _copy_in(
    source: pathlib.Path, folders: Mapping[int, pathlib.Path], coordination: pathlib.Path
) -> Any:
    for broker_id, folder in folders.items():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source / f"broker-{broker_id}", folder, copy_function=copy_sparse)
    shutil.rmtree(coordination, ignore_errors=True)
    return json.loads((source / "tree.json").read_text())


def copy_sparse(source: str, target: str) -> str:
    """Copy a file and leave its holes: index files are mostly that."""
    with open(source, "rb") as read, open(target, "wb") as write:
        size = os.fstat(read.fileno()).st_size
        position = 0
        while position < size:
            try:
                start = os.lseek(read.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            position = start
            while position < end:
                read.seek(position)
                data = read.read(min(end - position, 1 << 20))
                write.seek(position)
                write.write(data)
                position += len(data)
        write.truncate(size)
    shutil.copystat(source, target)
    return target
