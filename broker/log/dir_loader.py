"""Loading one log directory: its checkpoints and every partition in it (reference: log-store 1, 3, 5).

Runs in Threads before anybody else uses the directory.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalike.config import LogConfig
from kafkalike.runtime.ports import DiskLock, File, LockHeld, StorageError
from kafkalike.types import TopicPartition

from . import checkpoints, meta_properties
from .checkpoints import CorruptCheckpoint
from .directory import FilePool, IndexCache, LogDirectory, make_lasting
from .loader import LoadRequest, load_log
from .log import Log
from .names import IGNORED_DIRS, DirKind, parse_dir_name

_logger = logging.getLogger(__name__)


class StartupError(ValueError):
    """The log directories do not allow a start; the text says what to put right."""


@dataclass(slots=True)
class LoadedDir:
    """What was found in a log directory."""

    was_clean: bool
    stopped_in: int = checkpoints.NO_BROKER_EPOCH
    """The life of the broker that closed this directory in order; -1: unknown."""
    logs: list[Log] = field(default_factory=list)
    to_delete: list[str] = field(default_factory=list)
    """Paths of `-delete` directories."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    cleaner_offsets: dict[TopicPartition, int] = field(default_factory=dict)


class _LoadingPool(FilePool):
    """Files of a directory that is being loaded: closed as soon as they are let go of."""

    def close_soon(self, file: File) -> None:
        file.close()


def open_dir(directory: LogDirectory) -> DiskLock:
    """Create the directory where missing and lock it.  Blocks.

    Raises StorageError when it does not work or is not known to be this broker's, StartupError when
    another process uses it.
    """
    disk = directory.disk
    make_lasting(disk, directory.path)
    disk.list(directory.path)
    meta_path = f"{directory.path}/{meta_properties.FILE_NAME}"
    if disk.exists(meta_path):
        try:
            meta_properties.parse_meta_properties(disk.read_file(meta_path), meta_path)
        except meta_properties.UnreadableMetaProperties as error:
            raise StorageError(str(error)) from error
    try:
        return disk.lock(f"{directory.path}/{checkpoints.LOCK_FILE}")
    except LockHeld as error:
        raise StartupError(f"log directory {directory.path} is in use: {error}") from error


def load_dir(
    directory: LogDirectory,
    log_config: Callable[[str], LogConfig],
    *,
    producer_expiration_ms: int,
    verification_required: bool,
) -> LoadedDir:
    """Load every log.  Blocks.

    The mark of a clean stop is taken away before anything else, so that a crash from now on counts as
    unclean.  Raises StorageError, CorruptCheckpoint, StartupError.
    """
    disk, path = directory.disk, directory.path
    directory.files = _LoadingPool(directory.clock, 1 << 30)
    directory.indexes = IndexCache()
    directory.is_loading = True
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    loaded = LoadedDir(was_clean=disk.exists(mark))
    if loaded.was_clean:
        loaded.stopped_in = checkpoints.parse_clean_shutdown(disk.read_file(mark))
        disk.remove(mark)
        disk.sync_dir(path)
    recovery_points = _lenient_offsets(directory, checkpoints.RECOVERY_POINT_FILE)
    log_starts = _offsets(directory, checkpoints.LOG_START_FILE)
    loaded.cleaner_offsets = _lenient_offsets(directory, checkpoints.CLEANER_FILE)
    loaded.high_watermarks = _offsets(directory, checkpoints.HIGH_WATERMARK_FILE)
    for name in disk.list(path):
        dir_path = f"{path}/{name}"
        if name in IGNORED_DIRS or not disk.is_dir(dir_path):
            continue
        parsed = parse_dir_name(name)
        if parsed is None:
            raise StartupError(
                f"{dir_path} is no partition directory (expected <topic>-<partition>, perhaps with "
                "a -delete, -stray or -future suffix); move it out of the log directory"
            )
        if parsed.kind is DirKind.DELETE:
            loaded.to_delete.append(dir_path)
            continue
        if parsed.kind is DirKind.STRAY:
            _logger.warning("stray partition directory is left alone dir=%s", dir_path)
            continue
        topic_partition = parsed.topic_partition
        is_future = parsed.kind is DirKind.FUTURE
        request = LoadRequest(
            topic_partition,
            log_config(topic_partition.topic),
            recovery_point=recovery_points.get(topic_partition, 0),
            log_start_offset=log_starts.get(topic_partition, 0),
            high_watermark=loaded.high_watermarks.get(topic_partition, 0),
            is_clean=loaded.was_clean,
            is_future=is_future,
            producer_expiration_ms=producer_expiration_ms,
            verification_required=verification_required,
            cleaned_offset=loaded.cleaner_offsets.get(topic_partition, 0),
        )
        loaded.logs.append(load_log(directory, dir_path, request))
    return loaded


def _offsets(directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
    path = f"{directory.path}/{name}"
    if not directory.disk.exists(path):
        return {}
    return checkpoints.parse_offsets(directory.disk.read_file(path), path)


def _lenient_offsets(directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
    """These only save work: without them everything is recovered, or cleaned, from the start."""
    try:
        return _offsets(directory, name)
    except CorruptCheckpoint as error:
        _logger.warning("checkpoint is not usable, going without: %s", error)
        return {}
