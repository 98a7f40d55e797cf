"""A broker of the simulated world: a real Node in a process that can be killed, frozen and restarted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from kafkalike.broker.node import Node
from kafkalike.types import TopicPartition

from .disk import MemoryDisk
from .process import Process

if TYPE_CHECKING:
    from .world import World

PORT = 9092
LOG_DIR = "/data"


class SimBroker:
    """One broker and its machine.  Its disk outlives its processes."""

    def __init__(self, world: "World", broker_id: int, properties: Mapping[str, str]) -> None:
        self.id = broker_id
        self.host = f"broker-{broker_id}"
        self.port = PORT
        self.disk: MemoryDisk
        self.process: Process | None = None
        self.node: Node | None = None

    @property
    def is_up(self) -> bool:
        """Whether it has a living process (perhaps frozen, perhaps still starting)."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """Whether it serves: started, not frozen, not stopping."""
        raise NotImplementedError

    @property
    def is_controller(self) -> bool:
        """Whether it takes itself for the active controller."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to start; `is_running` later.  A start that fails is tried again after a while."""
        raise NotImplementedError

    def stop(self) -> "Deferred[None]":
        """An orderly stop (controlled shutdown); fires when the process has ended."""
        raise NotImplementedError

    def crash(self, *, lose_unsynced: bool = False, torn_tail: bool = False) -> None:
        """The process ends at once.  With `lose_unsynced` the machine loses power: writes that were
        not synced are gone; with `torn_tail` some prefix of them, torn at any byte, survives."""
        raise NotImplementedError

    def freeze(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open, its session ages."""
        raise NotImplementedError

    def thaw(self) -> None:
        raise NotImplementedError

    def clock_skew(self, skew_ms: int) -> None:
        """Set this machine's wall clock off by so much, also for later processes."""
        raise NotImplementedError

    def log(self, partition: TopicPartition) -> Any:
        """The `Log` of a partition hosted here (of a running process), or None."""
        raise NotImplementedError

    def discard(self) -> None:
        """End of the world."""
        raise NotImplementedError
