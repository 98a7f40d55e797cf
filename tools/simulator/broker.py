"""A broker of the simulated world: a real Node in a process that can be killed, frozen, restarted."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from kafkalike.broker.node import Node, StartupError
from kafkalike.config import BrokerConfig
from kafkalike.runtime.ports import Runtime, StorageError
from kafkalike.types import TopicPartition
from kafkalike.zk.client import SessionExpired
from kafkalike.zk.server.local import LocalZkClient

from .disk import MemoryDisk
from .orders import KeptOrders
from .process import Process, SimThreads

if TYPE_CHECKING:
    from .world import World

PORT: Final = 9092
LOG_DIR: Final = "/data"
_WRITES: Final = frozenset(("append", "pwrite", "truncate", "sync", "sync_dir", "rename", "open"))
RESTART_S: Final = 5.0
"""How long after it ended by itself a broker is started again, as a supervisor does."""

DEFAULT_PROPERTIES: Final[Mapping[str, str]] = {
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": "4000",
    "log.dirs": LOG_DIR,
    "num.partitions": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "num.replica.fetchers": "1",
    "replica.lag.time.max.ms": "4000",
    "request.timeout.ms": "6000",
    "controller.socket.timeout.ms": "6000",
    "replica.socket.timeout.ms": "6000",
    "controlled.shutdown.max.retries": "2",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "leader.imbalance.check.interval.seconds": "7",
    "group.initial.rebalance.delay.ms": "200",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "log.index.size.max.bytes": "4096",
}
"""Kafka's defaults but for times, which are shorter, so that a run sees more of what follows them."""


class SimBroker:
    """One broker and its machine.  Its disk outlives its processes."""

    def __init__(self, world: "World", broker_id: int, properties: Mapping[str, str]) -> None:
        self.id = broker_id
        self.host = f"broker-{broker_id}"
        self.port = PORT
        self.disk = MemoryDisk(self._now_ms, before=self._before)
        self.process: Process | None = None
        self.node: Node | None = None
        self.zk: LocalZkClient | None = None
        self.wanted = False
        """Whether it is meant to be up: a supervisor starts it again when it ends by itself."""
        self.lives = 0
        self.failing_dir: str | None = None
        """Beginning of the paths where `sync` fails."""
        self.sync_delay_s = 0.0
        """Added to what a device takes for each `sync`."""
        self.bad_directory = ""
        """Writes and syncs below this path fail."""
        self.orders = KeptOrders(world, self.host)
        self.on_operation: Callable[[str, str], None] | None = None
        """Called before each operation of the disk that changes or syncs something."""
        self._world = world
        self._properties = {
            **DEFAULT_PROPERTIES,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            **properties,
        }
        self.skew_ms = 0
        self._stopping: Deferred[None] | None = None
        self._random = world.random(f"{self.host}/machine")

    def __repr__(self) -> str:
        return f"<SimBroker {self.id}>"

    def _now_ms(self) -> int:
        return self._world.clock.now_ms() + self.skew_ms

    @property
    def log_dirs(self) -> list[str]:
        return self._properties["log.dirs"].split(",")

    # -- state ---------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether it has a living process (perhaps frozen, perhaps still starting)."""
        return self.process is not None

    @property
    def is_running(self) -> bool:
        """Whether it serves: started, not frozen, not stopping."""
        process, node = self.process, self.node
        return process is not None and process.is_running and node is not None and node.is_running

    @property
    def is_frozen(self) -> bool:
        return self.process is not None and not self.process.is_running

    @property
    def is_controller(self) -> bool:
        """Whether it takes itself for the active controller."""
        return self.is_running and self.node is not None and self.node._controller.is_active

    @property
    def has_offline_dir(self) -> bool:
        """Whether a log directory failed in this life of the broker."""
        node = self.node
        return node is not None and node.is_running and bool(node._parts.logs.offline_dirs)

    def log(self, partition: TopicPartition) -> Any:
        """The `Log` of a partition hosted here (of a running process), or None."""
        if not self.is_running:
            return None
        assert self.node is not None
        return self.node._parts.logs.get_log(partition)

    def partition(self, partition: TopicPartition) -> Any:
        """The `Partition` machine of a replica hosted here (of a running process), or None."""
        if not self.is_running:
            return None
        assert self.node is not None
        return self.node._replicas.partition(partition)

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start; `is_running` later.  A start that fails is tried again after a while."""
        self.wanted = True
        if self.is_up:
            return
        world = self._world
        self.lives += 1
        world.links.machine_up(self.host)
        world.network.reset_orphans(self.host)
        process = self.process = Process(world.clock, self.host)
        process.skew_ms = self.skew_ms
        config = BrokerConfig.parse(self._properties)
        self.zk = world.zk.client(
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            host=self.host,
            enter=process.enter,
        )
        runtime = Runtime(
            clock=process.clock,
            random=world.random(f"{self.host}/{self.lives}"),
            disk=self.disk,
            threads=SimThreads(world.clock, process, self._thread_delay_s),
            network=world.network.host(self.host, process),
        )
        node = self.node = Node(
            config,
            runtime,
            self.zk,
            host_name=self.host,
            on_fatal=lambda text: self._fatal(process, text),
            wrap_route=self.orders.wrapper(self.lives, process),
        )
        world.trace("starting", broker=self.id)
        process.enter(self._begin, process, node)

    def _begin(self, process: Process, node: Node) -> None:
        def started(_: None) -> None:
            self._world.trace("started", broker=self.id)

        def failed(failure: Failure) -> None:
            if self.process is not process or failure.check(CancelledError):
                return
            if isinstance(getattr(failure.value, "__cause__", None), SessionExpired):
                why = failure.getErrorMessage()
                self._world.broken("start", f"{self.host} gave up when its session ended: {why}")
            elif not failure.check(StartupError, StorageError):
                self._world.broken("start", f"{self.host}: {failure.getTraceback()}")
            self._world.trace("start failed", broker=self.id, why=failure.getErrorMessage())
            process.clock.call_soon(self._give_up, process)

        Deferred.fromCoroutine(node.start()).addCallbacks(started, failed)

    def _fatal(self, process: Process, text: str) -> None:
        if self.process is not process:
            return
        self._world.trace("fatal", broker=self.id, why=text)
        if "invariant" in text:
            self._world.broken("invariant", f"{self.host}: {text}")
        process.clock.call_soon(self._give_up, process)

    def _give_up(self, process: Process) -> None:
        """The process ends by itself, without asking anybody."""
        if self.process is process and self.node is not None:
            ended = self.node.stop(controlled=False)
            ended.addBoth(lambda _: self._ended(process))

    def _ended(self, process: Process) -> None:
        if self.process is not process:
            return
        self._world.trace("ended", broker=self.id)
        self._bury(process, silently=False)
        self.disk.kill()
        if self.wanted:
            self._world.clock.call_later(RESTART_S, self._restart, self.lives)

    def _restart(self, life: int) -> None:
        if self.wanted and self.lives == life:
            self.start()

    def stop(self) -> "Deferred[None]":
        """An orderly stop (controlled shutdown); fires when the process has ended."""
        self.wanted = False
        process, node = self.process, self.node
        if process is None or node is None:
            return succeed(None)
        if self._stopping is None:
            self._world.trace("stopping", broker=self.id)
            self._stopping = Deferred()
            process.enter(self._stop, process, node)
        follower: Deferred[None] = Deferred()

        def pass_on(value: Any) -> Any:
            follower.callback(None)
            return value

        self._stopping.addBoth(pass_on)
        return follower

    def _stop(self, process: Process, node: Node) -> None:
        node.stop(controlled=True).addBoth(lambda _: self._ended(process))

    def restart(self) -> None:
        """Stop in order, start again."""

        def start(_: None) -> None:
            if not self.is_up:
                self.start()

        self.stop().addCallback(start)
        self.wanted = True

    def crash(
        self, *, lose_unsynced: bool = False, torn_tail: bool = False, flipped: bool = False
    ) -> None:
        """The process ends at once.  With `lose_unsynced` the machine loses power: writes that were
        not synced are gone; with `torn_tail` some prefix of them, torn at any byte, survives; with
        `flipped` too the last of that is whole but for one bit.

        A machine without power says nothing more: its peers notice when it is back, or in time.
        """
        self.wanted = False
        process = self.process
        if process is None:
            return
        power_lost = lose_unsynced or torn_tail
        self._world.trace(
            "crashed", broker=self.id, lose_unsynced=lose_unsynced, torn_tail=torn_tail
        )
        self._bury(process, silently=power_lost)
        if power_lost:
            self.disk.crash(self._random if torn_tail else None, flipped=flipped)
            self._world.links.machine_down(self.host)
        else:
            self.disk.kill()

    def _bury(self, process: Process, *, silently: bool) -> None:
        process.kill()
        self._world.network.close_host(self.host, silently=silently)
        if self.zk is not None:
            self.zk.abandon()
        node, self.node, self.zk, self.process = self.node, None, None, None
        # What its code still does while memory is given back reaches nobody and is no news.
        self._world.graveyard.append(node)
        stopping, self._stopping = self._stopping, None
        if stopping is not None:
            self._world.clock.call_soon(stopping.callback, None)

    def freeze(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open, its session ages."""
        process = self.process
        if process is not None and process.is_running:
            self._world.trace("frozen", broker=self.id)
            process.freeze()
            assert self.zk is not None
            self.zk.freeze()

    def thaw(self) -> None:
        process = self.process
        if process is not None and not process.is_running:
            self._world.trace("thawed", broker=self.id)
            process.thaw()
            assert self.zk is not None
            self.zk.thaw()

    def clock_skew(self, skew_ms: int) -> None:
        """Set this machine's wall clock off by so much, also for later processes."""
        self._world.trace("clock skew", broker=self.id, skew_ms=skew_ms)
        self.skew_ms = skew_ms
        if self.process is not None:
            self.process.skew_ms = skew_ms

    def discard(self) -> None:
        """End of the world."""
        self.wanted = False
        if self.process is not None:
            self._bury(self.process, silently=True)

    # -- disk ----------------------------------------------------------------------------------

    def fill_disk(self, room_bytes: int = 0) -> None:
        """Only so many more bytes fit."""
        self._world.trace("disk full", broker=self.id, room_bytes=room_bytes)
        self.disk.capacity = 0  # so that `used` counts
        self.disk.capacity = self.disk.used() + room_bytes

    def free_disk(self) -> None:
        self.disk.capacity = 1 << 62

    def _thread_delay_s(self) -> float:
        return 0.0002 + 0.002 * self._random.random() + self.sync_delay_s

    def _before(self, operation: str, path: str) -> None:
        if operation == "pread":
            return
        if self.process is None:
            raise StorageError(f"{path}: the process has ended")
        failing = self.failing_dir
        if (
            failing is not None
            and operation in ("sync", "sync_dir")
            and (path + "/").startswith(failing + "/")
        ):
            raise StorageError(f"{path}: Input/output error")
        if self.bad_directory and path.startswith(self.bad_directory) and operation in _WRITES:
            raise StorageError(f"{path}: Input/output error")
        if self.on_operation is not None and self.process is not None:
            self.on_operation(operation, path)
