"""All logs of a broker: directories, loading, checkpoints, retention, failure of a directory.

Reference: log-store 1, 3, 5, 6, 7, 10; replication 12.  Loading runs in Threads, one directory beside
the other; afterwards everything here belongs to the loop, and what waits for the device is handed to
the directory's jobs.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.errors import InconsistentTopicId, InvalidTopicException, KafkaStorageError
from kafkalike.runtime.ports import (
    Clock,
    Disk,
    DiskLock,
    NoSuchFile,
    Random,
    StorageError,
    Threads,
    Timer,
)
from kafkalike.types import TopicPartition

from . import checkpoints
from .checkpoints import CorruptCheckpoint
from .cleaner import LogCleaner
from .dir_loader import LoadedDir, StartupError, load_dir, open_dir
from .directory import FilePool, IndexCache, LogDirectory
from .log import FlushPlan, Log
from .names import INDEX, LOG, TIME_INDEX, DirKind, dir_name, marked_dir_name
from .producer_state import ProducerState
from .segment import LogSegment

__all__ = ["LogManager", "StartupError"]

_logger = logging.getLogger(__name__)

_LOGS_PER_TURN: Final = 200
"""How many logs a periodic pass visits before it lets the loop go on."""
_MAX_WAIT_MS: Final = 1 << 40

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Home:
    """One log directory and what the manager keeps for it."""

    directory: LogDirectory
    lock: DiskLock | None = None
    was_clean: bool = False
    stopped_in: int = checkpoints.NO_BROKER_EPOCH
    is_loaded: bool = False
    log_count: int = 0


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
        self._config = config
        self._clock = clock
        self._random = random
        self._disk = disk
        self._threads = threads
        self._log_config = log_config
        self._on_dir_failure = on_dir_failure
        self._files = FilePool(clock, max_open_files)
        self._indexes = IndexCache()
        self._homes: dict[str, _Home] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._future_logs: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        """Last content of each checkpoint file, by path."""
        self._stored_high_watermarks: dict[TopicPartition, int] = {}
        self._deleted: set[TopicPartition] = set()
        """Deleted logs that checkpoint files may still mention."""
        self._unsynced: set[LogDirectory] = set()
        self._flushes: dict[Log, _Flush] = {}
        self._timers: dict[str, Timer] = {}
        self.cleaner = LogCleaner(config, clock=clock, disk=disk, logs=self._logs.values)
        self._is_stopping = False
        self._writes_recovery_points = self._recovery_points_wait = False

    # -- start ---------------------------------------------------------------------------------

    async def startup(self) -> None:
        """Lock the directories, load every log (recover after an unclean stop), start the timers.

        Raises StartupError when the directories contradict each other or the configuration, or when
        none of them works.
        """
        for path in self._config.log_dirs:
            self._homes[path] = _Home(
                LogDirectory(
                    path,
                    disk=self._disk,
                    clock=self._clock,
                    random=self._random,
                    threads=self._threads,
                    files=self._files,
                    indexes=self._indexes,
                    on_failure=self._dir_failed,
                )
            )
        try:
            for home in self._homes.values():
                home.lock = await self._attempt(home, partial(open_dir, home.directory))
            waiting = [
                (home, self._load(home))
                for home in self._homes.values()
                if home.directory.is_online
            ]
            # All directories load beside each other; each result is waited for.
            for home, loading in waiting:
                loaded = await loading
                if loaded is not None:
                    self._take_over(home, loaded)
            if not self.live_dirs:
                raise StartupError(
                    "no log directory works: "
                    + "; ".join(
                        f"{path} ({home.directory.failure})" for path, home in self._homes.items()
                    )
                )
        except StartupError:
            self._unlock()
            raise
        if not self.was_stopped_cleanly:
            self._recovery_point_lowered()  # perhaps: recovery may have cut what had been synced
        self._start_timers()

    def _load(self, home: _Home) -> "Deferred[LoadedDir | None]":
        config = self._config
        return Deferred.fromCoroutine(
            self._attempt(
                home,
                partial(
                    load_dir,
                    home.directory,
                    self._log_config,
                    producer_expiration_ms=config.producer_id_expiration_ms,
                    verification_required=config.transaction_partition_verification_enable,
                ),
            )
        )

    async def _attempt(self, home: _Home, job: "Callable[[], _Result]") -> "_Result | None":
        """Run a job of starting up; None when the directory failed over it."""
        try:
            return await self._threads.run(job)
        except StorageError as error:
            home.directory.fail(error)
        except CorruptCheckpoint as error:
            home.directory.fail(StorageError(str(error)))
        return None

    def _take_over(self, home: _Home, loaded: LoadedDir) -> None:
        home.directory.files = self._files
        home.directory.indexes = self._indexes
        home.directory.is_loading = False
        home.directory.on_recovery_point_lowered = self._recovery_point_lowered
        home.was_clean = loaded.was_clean
        home.stopped_in = loaded.stopped_in
        home.is_loaded = True
        self._stored_high_watermarks.update(loaded.high_watermarks)
        self.cleaner.offsets.update(loaded.cleaner_offsets)
        for log in loaded.logs:
            table = self._future_logs if log.is_future else self._logs
            other = table.get(log.topic_partition)
            if other is not None:
                raise StartupError(
                    f"{log.topic_partition} is in two log directories: {other.dir} and {log.dir}"
                )
            table[log.topic_partition] = log
        home.log_count = len(loaded.logs)
        for path in loaded.to_delete:
            self._remove_dir_later(home.directory, path, self._log_delete_delay_s())
        _logger.info(
            "loaded log directory dir=%s logs=%d clean=%s",
            home.directory.path,
            len(loaded.logs),
            loaded.was_clean,
        )

    def _log_delete_delay_s(self) -> float:
        return self._config.log_segment_delete_delay_ms / 1000

    def _start_timers(self) -> None:
        config = self._config
        delay_ms = config.log_initial_task_delay_ms
        self._every("retention", delay_ms, config.log_retention_check_interval_ms, self._retention)
        self._every(
            "flush", delay_ms, config.log_flush_scheduler_interval_ms, self._flush_dirty_logs
        )
        self._every(
            "recovery points",
            delay_ms,
            config.log_flush_offset_checkpoint_interval_ms,
            self.checkpoint_recovery_points,
        )
        self._every(
            "log starts",
            delay_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.checkpoint_log_starts,
        )
        period_ms = config.replica_high_watermark_checkpoint_interval_ms
        self._every("high watermarks", period_ms, period_ms, self.checkpoint_high_watermarks)
        period_ms = config.producer_id_expiration_check_interval_ms
        self._every("producers", period_ms, period_ms, self._expire_producers)
        if config.log_cleaner_enable:
            self.cleaner.start()

    def _every(
        self, name: str, delay_ms: int, period_ms: int, action: Callable[[], object]
    ) -> None:
        """Call `action` after `delay_ms` and then each `period_ms`, at the earliest every 10 ms."""
        if period_ms > _MAX_WAIT_MS:
            return

        def run() -> None:
            if self._is_stopping:
                return
            self._timers[name] = self._clock.call_later(max(period_ms, 10) / 1000, run)
            action()

        self._timers[name] = self._clock.call_later(delay_ms / 1000, run)

    # -- directories ---------------------------------------------------------------------------

    @property
    def live_dirs(self) -> list[str]:
        """Paths of the working log directories, in the order of the configuration."""
        return [path for path, home in self._homes.items() if home.directory.is_online]

    @property
    def was_stopped_cleanly(self) -> bool:
        """Whether the broker, as it was started, had no log that was not closed in order."""
        return all(home.was_clean or not home.log_count for home in self._homes.values())

    def shortened_logs(self) -> dict[TopicPartition, int]:
        """Logs that end below the high watermark they had before this start, with that mark: the
        checkpoint is synced and the records were not.  Of a log whose directory was not synced either
        nothing is left at all.  To be asked for before anybody appends."""
        ends = {topic_partition: log.log_end_offset for topic_partition, log in self._logs.items()}
        return {
            topic_partition: mark
            for topic_partition, mark in self._stored_high_watermarks.items()
            if ends.get(topic_partition, 0) < mark
        }

    def topic_config(self, topic: str) -> LogConfig:
        """The settings a log of this topic has."""
        return self._log_config(topic)

    def closed_in_order(self) -> dict[TopicPartition, int]:
        """Logs that have their end and lie in a directory that was closed in order, with the broker
        epoch of the life that closed it, where that is known."""
        shorter = self.shortened_logs()
        return {
            topic_partition: stopped_in
            for topic_partition, log in self._logs.items()
            if topic_partition not in shorter
            and (stopped_in := self._homes[log.parent_dir].stopped_in) >= 0
        }

    @property
    def offline_dirs(self) -> list[str]:
        """Paths of the log directories that have failed."""
        return [path for path, home in self._homes.items() if not home.directory.is_online]

    def fail_dir(self, path: str, problem: str) -> None:
        """Somebody else found that this directory does not work."""
        self._homes[path].directory.fail(StorageError(problem))

    def _dir_failed(self, directory: LogDirectory, error: StorageError) -> None:
        for table in (self._logs, self._future_logs):
            for topic_partition in [tp for tp, log in table.items() if log.directory is directory]:
                table.pop(topic_partition).discard()
        self._homes[directory.path].log_count = 0
        self._on_dir_failure(directory.path)

    # -- lookup --------------------------------------------------------------------------------

    def get_log(self, topic_partition: TopicPartition, *, future: bool = False) -> Log | None:
        """The log when it exists on a working directory."""
        return (self._future_logs if future else self._logs).get(topic_partition)

    def all_logs(self) -> Iterable[Log]:
        """Current and future logs on working directories; a copy."""
        return [*self._logs.values(), *self._future_logs.values()]

    def checkpointed_high_watermark(self, topic_partition: TopicPartition) -> int:
        """What the checkpoint said at start; 0 when absent."""
        return self._stored_high_watermarks.get(topic_partition, 0)

    # -- creating and deleting -----------------------------------------------------------------

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
        false (its data may be there), InconsistentTopicId when its files carry another id,
        InvalidTopicException when the topic's name is too long for a future log.
        """
        log = self.get_log(topic_partition, future=future)
        if topic_id is not None and not any(topic_id):
            topic_id = None
        if log is not None:
            if topic_id is not None:
                if log.topic_id is None:
                    self._set_topic_id(log, topic_id)
                elif log.topic_id != topic_id:
                    raise InconsistentTopicId(
                        f"{topic_partition} in {log.dir} belongs to another topic of that name"
                    )
            return log
        if not is_new and not future and self.offline_dirs:
            raise KafkaStorageError(
                f"Can't create log for {topic_partition}: log directories "
                f"{', '.join(self.offline_dirs)} are offline"
            )
        return self._create(topic_partition, topic_id, future)

    def _create(self, topic_partition: TopicPartition, topic_id: bytes | None, future: bool) -> Log:
        directory = self._directory_for_new(topic_partition, future)
        self._forget_checkpointed(topic_partition)
        name = dir_name(topic_partition)
        if future:
            unique = self._random.bytes(16)
            try:
                name = marked_dir_name(topic_partition, DirKind.FUTURE, unique)
            except ValueError as error:
                raise InvalidTopicException(str(error)) from error
        path = f"{directory.path}/{name}"
        config = self._log_config(topic_partition.topic)
        try:
            self._disk.make_dirs(path)
        except StorageError as error:
            raise directory.fail(error) from error
        jitter = config.segment_jitter_ms
        segment = LogSegment(
            directory,
            path,
            0,
            size=0,
            created_ms=self._clock.now_ms(),
            jitter_ms=self._random.randrange(jitter) if jitter > 0 else 0,
        )
        log = Log(
            directory,
            path,
            topic_partition,
            config,
            [segment],
            log_end_offset=0,
            log_start_offset=0,
            recovery_point=0,
            is_future=future,
            producers=ProducerState(
                str(topic_partition),
                expiration_ms=self._config.producer_id_expiration_ms,
                verification_required=self._config.transaction_partition_verification_enable,
            ),
        )
        (self._future_logs if future else self._logs)[topic_partition] = log
        self._homes[directory.path].log_count += 1
        if topic_id is not None:
            log.topic_id = topic_id
            log.is_metadata_pending = True
        directory.later(
            partial(_create_files, self._disk, segment.stem, log.metadata_file()),
            f"files of {path}",
            lambda _: log.metadata_written(),
        )
        self._sync_names_soon(directory)
        _logger.info("created log partition=%s dir=%s", topic_partition, path)
        return log

    def _sync_names_soon(self, directory: LogDirectory) -> None:
        """Make creations and renames durable; those of one turn of the loop share a sync."""
        if directory in self._unsynced:
            return
        self._unsynced.add(directory)

        def sync() -> None:
            self._unsynced.discard(directory)
            directory.later(partial(self._disk.sync_dir, directory.path), "names of partitions")

        self._clock.call_soon(sync)

    def _directory_for_new(self, topic_partition: TopicPartition, future: bool) -> LogDirectory:
        """The preferred directory, else the one with the fewest logs; never the current one's for a
        future log."""
        preferred = self._preferred.get(topic_partition)
        if preferred is not None and preferred in self.live_dirs:
            return self._homes[preferred].directory
        counts = {path: self._homes[path].log_count for path in self.live_dirs}
        if not counts:
            raise KafkaStorageError("all log directories are offline")
        current = self._logs.get(topic_partition)
        if future and current is not None and len(counts) > 1:
            del counts[current.parent_dir]
        return self._homes[min(counts, key=lambda path: counts[path])].directory

    def _set_topic_id(self, log: Log, topic_id: bytes) -> None:
        """A log from before topic ids: write `partition.metadata` at once, durably soon."""
        log.topic_id = topic_id
        log.is_metadata_pending = True
        try:
            log.write_metadata()
        except StorageError as error:
            raise log.directory.fail(error) from error
        log.directory.later(
            partial(_sync_if_there, self._disk, log.metadata_file()),
            f"metadata of {log.topic_partition}",
        )

    def set_preferred_dir(self, topic_partition: TopicPartition, path: str) -> None:
        """Where AlterReplicaLogDirs wants this partition, now or when it is created."""
        self._preferred[topic_partition] = path

    def delete(self, topic_partition: TopicPartition, *, future: bool = False) -> None:
        """Rename the directory to `-delete`; its files go after file.delete.delay.ms."""
        log = (self._future_logs if future else self._logs).pop(topic_partition, None)
        if log is None:
            return
        if not future:
            self._note_deleted(topic_partition)
        self._retire(log, DirKind.DELETE)

    def _note_deleted(self, topic_partition: TopicPartition) -> None:
        self.cleaner.forget(topic_partition)
        if not self._deleted:
            self._clock.call_later(0, self._write_all_checkpoints)
        self._deleted.add(topic_partition)

    def _retire(self, log: Log, kind: DirKind) -> None:
        """The log is no more; its directory gets a name that says so."""
        log.discard()
        directory = log.directory
        self._homes[directory.path].log_count -= 1
        name = marked_dir_name(log.topic_partition, kind, self._random.bytes(16))
        path = f"{directory.path}/{name}"
        try:
            self._disk.rename(log.dir, path)
        except StorageError as error:
            raise directory.fail(error) from error
        log.renamed(path)
        self._sync_names_soon(directory)
        if kind is DirKind.DELETE:
            self._remove_dir_later(directory, path, log.config.file_delete_delay_ms / 1000)
        _logger.info("retired log partition=%s dir=%s", log.topic_partition, path)

    def _remove_dir_later(self, directory: LogDirectory, path: str, delay_s: float) -> None:
        def remove() -> None:
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)

        self._clock.call_later(delay_s, directory.later, remove, f"removal of {path}")

    def mark_stray(self, topic_partition: TopicPartition) -> None:
        """Rename the directory to `-stray`: kept on disk, no longer a log."""
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            self._note_deleted(topic_partition)
            self._retire(log, DirKind.STRAY)

    def replace_current_with_future(self, topic_partition: TopicPartition) -> None:
        """The future log has caught up: it becomes the log, the old directory goes.

        The high watermark of the current log is kept.  Raises KafkaStorageError.
        """
        future = self._future_logs.pop(topic_partition)
        current = self._logs.pop(topic_partition, None)
        path = f"{future.parent_dir}/{dir_name(topic_partition)}"
        try:
            self._disk.rename(future.dir, path)
        except StorageError as error:
            raise future.directory.fail(error) from error
        future.renamed(path)
        future.is_future = False
        self._logs[topic_partition] = future
        self._sync_names_soon(future.directory)
        if current is not None:
            future.update_high_watermark(current.high_watermark)
            self.cleaner.checkpoint(future)
            self._retire(current, DirKind.DELETE)
        self._preferred.pop(topic_partition, None)
        self._write_all_checkpoints()

    # -- settings ------------------------------------------------------------------------------

    def topic_config_changed(self, topic: str) -> None:
        """Ask `log_config` again for the logs of a topic."""
        config: LogConfig | None = None
        for log in self.all_logs():
            if log.topic_partition.topic == topic:
                config = config or self._log_config(topic)
                log.update_config(config)

    def broker_config_changed(self, config: BrokerConfig) -> None:
        """Dynamic broker settings: defaults of topics, producer expiration, verification, cleaner.

        Intervals count from the next time a timer is set.
        """
        self._config = self.cleaner.config = config
        of_topics: dict[str, LogConfig] = {}
        for log in self.all_logs():
            topic = log.topic_partition.topic
            topic_config = of_topics.get(topic)
            if topic_config is None:
                topic_config = of_topics[topic] = self._log_config(topic)
            log.update_config(topic_config)
            log.producer_state.expiration_ms = config.producer_id_expiration_ms
            log.producer_state.verification_required = (
                config.transaction_partition_verification_enable
            )

    # -- flushing ------------------------------------------------------------------------------

    def flush(self, log: Log) -> "Deferred[None]":
        """Sync one log; its recovery point has moved when this fires.

        Calls that come while a sync runs share the next one.  Fails with KafkaStorageError.
        """
        if log.recovery_point >= log.log_end_offset:
            return succeed(None)
        flush = self._flushes.get(log)
        if flush is None:
            flush = self._flushes[log] = _Flush(log, self._disk, self._flush_ended)
        return flush.join()

    def _flush_ended(self, log: Log) -> None:
        del self._flushes[log]

    def _flush_dirty_logs(self) -> None:
        """flush.ms: sync the logs whose last sync is that long ago."""
        now_ms = self._clock.now_ms()
        for log in self.all_logs():
            is_dirty = log.recovery_point < log.log_end_offset
            if is_dirty and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flush(log).addErrback(_ignore_storage_error)

    # -- checkpoints ---------------------------------------------------------------------------

    def checkpoint_high_watermarks(self) -> "Deferred[None]":
        """Write replication-offset-checkpoint of every directory (also done by a timer)."""
        return self._checkpoint(checkpoints.HIGH_WATERMARK_FILE, lambda log: log.high_watermark)

    def checkpoint_recovery_points(self) -> "Deferred[None]":
        """Write recovery-point-offset-checkpoint of every directory (also done by a timer)."""
        return self._checkpoint(checkpoints.RECOVERY_POINT_FILE, lambda log: log.recovery_point)

    def _recovery_point_lowered(self) -> None:
        """Write the recovery points soon: cuts of one turn, or of the time of a write, share one."""
        if not self._recovery_points_wait:
            self._recovery_points_wait = True
            if not self._writes_recovery_points:
                self._clock.call_soon(self._write_recovery_points)

    def _write_recovery_points(self, _: None = None) -> None:
        self._writes_recovery_points = self._recovery_points_wait and not self._is_stopping
        self._recovery_points_wait = False
        if self._writes_recovery_points:
            self.checkpoint_recovery_points().addCallback(self._write_recovery_points)

    def checkpoint_log_starts(self) -> "Deferred[None]":
        """Write log-start-offset-checkpoint of every directory (also done by a timer).

        High watermarks first: a log start above the high watermark is how loading tells a damaged
        file from a log that lost its end.
        """
        self.checkpoint_high_watermarks()
        return self._checkpoint(checkpoints.LOG_START_FILE, _log_start_to_keep)

    def _checkpoint(self, name: str, value: Callable[[Log], int | None]) -> "Deferred[None]":
        waiting = []
        for path, offsets in self._offsets_by_dir(value):
            file_path = f"{path}/{name}"
            if self._written.get(file_path) == offsets:
                continue
            self._written[file_path] = offsets
            waiting.append(
                self._homes[path].directory.run(
                    partial(_write_offsets, self._disk, file_path, offsets), name
                )
            )
        for work in waiting:
            work.addErrback(_ignore_storage_error)
        return DeferredList(waiting).addCallback(lambda _: None)

    def _offsets_by_dir(
        self, value: Callable[[Log], int | None]
    ) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
        by_dir: dict[str, dict[TopicPartition, int]] = {path: {} for path in self.live_dirs}
        for log in self._logs.values():
            offset = value(log)
            if offset is not None:
                by_dir[log.parent_dir][log.topic_partition] = offset
        yield from by_dir.items()

    def _write_all_checkpoints(self) -> "Deferred[None]":
        """Write every checkpoint: nothing on disk speaks of deleted logs any more."""
        gone = self._deleted
        self._deleted = set()
        self._stored_high_watermarks = {
            tp: offset for tp, offset in self._stored_high_watermarks.items() if tp not in gone
        }
        everything: Deferred[Any] = DeferredList(
            [
                self.checkpoint_recovery_points(),
                self.checkpoint_log_starts(),
                self.checkpoint_high_watermarks(),
            ]
        )
        return everything.addCallback(lambda _: None)

    def _forget_checkpointed(self, topic_partition: TopicPartition) -> None:
        """A log is created where one was deleted just now: the files must not give it the old
        one's offsets after a crash, so they are written without waiting for their turn."""
        if topic_partition not in self._deleted:
            return
        self._deleted.discard(topic_partition)
        self._stored_high_watermarks.pop(topic_partition, None)
        for file_path, offsets in list(self._written.items()):
            directory = self._homes[file_path.rpartition("/")[0]].directory
            if topic_partition not in offsets or not directory.is_online:
                continue
            left = {tp: offset for tp, offset in offsets.items() if tp != topic_partition}
            self._written[file_path] = left
            try:
                file = self._disk.open(file_path + ".now", create=True)
                try:
                    file.truncate(0)
                    file.append(checkpoints.format_offsets(left))
                finally:
                    file.close()
                self._disk.rename(file_path + ".now", file_path)
            except StorageError as error:
                raise directory.fail(error) from error

    # -- periodic work -------------------------------------------------------------------------

    def _retention(self) -> None:
        """Delete old segments of logs without `compact`; the cleaner sees to the others."""
        now_ms = self._clock.now_ms()
        self._visit(
            lambda log: None if log.config.is_compacted else log.delete_old_segments(now_ms)
        )

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        self._visit(lambda log: log.remove_expired_producers(now_ms))

    def _visit(self, action: Callable[[Log], object], logs: list[Log] | None = None) -> None:
        """Apply `action` to every log, a slice per turn of the loop."""
        if self._is_stopping:
            return
        if logs is None:
            logs = list(self.all_logs())
        for log in logs[:_LOGS_PER_TURN]:
            if not log.is_closed:
                try:
                    action(log)
                except KafkaStorageError:
                    continue  # its directory has just gone offline
        if len(logs) > _LOGS_PER_TURN:
            self._clock.call_later(0, self._visit, action, logs[_LOGS_PER_TURN:])

    # -- stop ----------------------------------------------------------------------------------

    async def shutdown(self, broker_epoch: int = checkpoints.NO_BROKER_EPOCH) -> None:
        """Flush, checkpoint, close, mark clean, unlock.  Never raises for a failed directory.

        The mark of a clean stop is the last thing written, and only for a directory that was loaded
        completely (KAFKA-10471).  It names the life that ends, if the caller does (KIP-966).
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        for timer in self._timers.values():
            timer.cancel()
        await self.cleaner.stop()
        waiting = [
            home.directory.run(partial(_sync_all, self._disk, self._close_logs(home)), "closing")
            .addCallback(_note_flushed)
            .addErrback(_ignore_storage_error)
            for home in self._homes.values()
            if home.directory.is_online
        ]
        for work in waiting:
            await work
        await self._write_all_checkpoints()
        for home in self._homes.values():
            if home.directory.is_online and home.is_loaded:
                path = f"{home.directory.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
                mark = partial(
                    self._disk.write_atomic, path, checkpoints.format_clean_shutdown(broker_epoch)
                )
                await home.directory.run(mark, "clean shutdown").addErrback(_ignore_storage_error)
        self._unlock()

    def _close_logs(self, home: _Home) -> list[tuple[Log, FlushPlan]]:
        plans = []
        for log in self.all_logs():
            if log.directory is home.directory:
                plan = log.close()
                if plan is not None:
                    plans.append((log, plan))
        return plans

    def _unlock(self) -> None:
        for home in self._homes.values():
            if home.lock is not None:
                home.lock.release()
                home.lock = None


class _Flush:
    """The syncs of one log: one runs, all who come meanwhile wait for the next."""

    def __init__(self, log: Log, disk: Disk, on_end: Callable[[Log], None]) -> None:
        self._log = log
        self._disk = disk
        self._on_end = on_end
        self._waiting: list[Deferred[None]] = []
        self._runs = False

    def join(self) -> "Deferred[None]":
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        if not self._runs:
            self._start()
        return done

    def _start(self) -> None:
        self._runs = True
        served, self._waiting = self._waiting, []
        plan = self._log.flush_plan()
        if plan is None:
            self._ended(None, served)
            return
        work = self._log.directory.run(
            partial(plan.run, self._disk), f"flush of {self._log.topic_partition}"
        )
        work.addCallback(self._log.flushed)
        work.addBoth(self._ended, served)

    def _ended(self, result: Failure | None, served: "list[Deferred[None]]") -> None:
        self._runs = False
        if self._waiting:
            self._start()
        else:
            self._on_end(self._log)
        for done in served:
            if result is None:
                done.callback(None)
            else:
                done.errback(result)


def _ignore_storage_error(failure: Failure) -> None:
    """The directory has failed and everybody was told."""
    failure.trap(KafkaStorageError)


def _log_start_to_keep(log: Log) -> int | None:
    """Only starts that the names of the segments do not tell."""
    if log.log_start_offset > log.segments[0].base_offset:
        return log.log_start_offset
    return None


def _write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    disk.write_atomic(path, checkpoints.format_offsets(offsets))


def _create_files(disk: Disk, stem: str, metadata: tuple[str, bytes] | None) -> None:
    """The files of a new, empty log; its directory may have been renamed or deleted meanwhile."""
    try:
        for suffix in (LOG, INDEX, TIME_INDEX):
            disk.open(stem + suffix, create=True).close()
        if metadata is not None:
            disk.write_atomic(*metadata)
    except NoSuchFile:
        if disk.is_dir(stem.rpartition("/")[0]):
            raise


def _sync_if_there(disk: Disk, metadata: tuple[str, bytes] | None) -> None:
    if metadata is not None:
        path = metadata[0]
        FlushPlan(0, [path], path.rpartition("/")[0], None, 0).run(disk)


def _sync_all(disk: Disk, plans: list[tuple[Log, FlushPlan]]) -> list[tuple[Log, FlushPlan]]:
    for _, plan in plans:
        plan.run(disk)
    return plans


def _note_flushed(plans: list[tuple[Log, FlushPlan]]) -> None:
    for log, plan in plans:
        log.flushed(plan)
