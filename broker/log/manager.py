"""All logs of a broker: directories, loading, checkpoints, retention, failure of a directory.

Reference: log-store 1, 3, 5, 6, 7, 10; replication 12.
"""

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.runtime.ports import Clock, Disk, Random, Threads
from kafkalike.types import TopicPartition

from .log import Log


class LogManager:
    """Every log of one broker.

    `on_dir_failure(path)` is called once, on the loop, for each log directory that failed;
    `log_config(topic)` gives the effective settings of a topic when its log is loaded or created.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        random: Random,
        disk: Disk,
        threads: Threads,
        log_config: Callable[[str], LogConfig],
        on_dir_failure: Callable[[str], None],
        max_open_files: int = 4096,
    ) -> None:
        raise NotImplementedError

    async def startup(self) -> None:
        """Lock the directories, load every log (recover after an unclean stop), start the timers.

        Raises StartupError when the directories contradict each other or the configuration.
        """

    async def shutdown(self) -> None:
        """Flush, checkpoint, close, mark clean, unlock.  Never raises for a failed directory."""

    @property
    def live_dirs(self) -> list[str]:
        raise NotImplementedError

    @property
    def offline_dirs(self) -> list[str]:
        raise NotImplementedError

    def get_log(self, topic_partition: TopicPartition, *, future: bool = False) -> Log | None:
        """The log when it exists on a working directory."""
        raise NotImplementedError

    def all_logs(self) -> Iterable[Log]:
        """Current and future logs."""
        raise NotImplementedError

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        *,
        is_new: bool,
        future: bool = False,
    ) -> Log:
        """The log, created where missing.

        Raises KafkaStorageError when it is missing while a directory is offline and `is_new` is
        false (its data may be there), InconsistentTopicId when its files carry another id.
        """
        raise NotImplementedError

    def delete(self, topic_partition: TopicPartition, *, future: bool = False) -> None:
        """Rename the directory to `-delete`; its files go after file.delete.delay.ms."""

    def mark_stray(self, topic_partition: TopicPartition) -> None:
        """Rename the directory to `-stray`: kept on disk, no longer a log."""

    def set_preferred_dir(self, topic_partition: TopicPartition, path: str) -> None:
        """Where AlterReplicaLogDirs wants this partition, now or when it is created."""

    def replace_current_with_future(self, topic_partition: TopicPartition) -> None:
        """The future log has caught up: it becomes the log, the old directory goes."""

    def topic_config_changed(self, topic: str) -> None:
        """Ask `log_config` again for the logs of a topic."""

    def flush(self, log: Log) -> "Deferred[None]":
        """Sync one log; its recovery point has moved when this fires.  Calls are coalesced."""
        raise NotImplementedError

    def checkpoint_high_watermarks(self) -> "Deferred[None]":
        """Write replication-offset-checkpoint of every directory (also done by a timer)."""
        raise NotImplementedError

    def checkpointed_high_watermark(self, topic_partition: TopicPartition) -> int:
        """What the checkpoint said at start; 0 when absent."""
        raise NotImplementedError
