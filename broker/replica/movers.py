"""Moving a replica to another log directory of this broker (KIP-113).

Reference: replication 12, log-store 10.

A *future* log beside the current one is filled from it, piece by piece on the loop, and takes its
place when both end at the same offset and the copy is on the device.  What happens to the current
log meanwhile (truncation, a new log start) happens to the future one too.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from kafkalike.errors import (
    NONE,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from kafkalike.runtime.ports import Buffer, Clock, FileRange, StorageError, Timer
from kafkalike.types import TopicPartition

from ..log.log import FetchIsolation, Log, OffsetsOutOfOrder, UnexpectedAppendOffset
from ..log.manager import LogManager
from .follower import truncation_target
from .hosted import HostedPartitions
from .partition import Changed, Partition, PartitionWorld
from .quota import ReplicationQuota

PIECE_BYTES: Final = 256 << 10
"""Copied in one go, between which the loop serves others."""
MAX_NAME_BYTES: Final = 255
_FUTURE_NAME_EXTRA: Final = len(".") + 32 + len("-future")


class _Move:
    """One replica on its way."""

    __slots__ = ("future", "is_flushed", "partition")

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.is_flushed = False


class LogDirMovers:
    """All moves of a broker: one piece of one move a turn, in rotation.

    `throttle` limits the bytes a second (replica.alter.log.dirs.io.max.bytes.per.second).
    """

    def __init__(
        self,
        *,
        clock: Clock,
        logs: LogManager,
        hosted: HostedPartitions,
        world: PartitionWorld,
        throttle: ReplicationQuota,
        logger: logging.Logger,
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._hosted = hosted
        self._world = world
        self.throttle = throttle
        self._logger = logger
        self._moves: dict[TopicPartition, _Move] = {}
        self._queue: deque[_Move] = deque()
        self._unclaimed: set[TopicPartition] = set()
        self._timer: Timer | None = None
        self._stopped = False

    def __len__(self) -> int:
        """Replicas on their way."""
        return len(self._moves)

    # -- orders --------------------------------------------------------------------------------

    def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
        """AlterReplicaLogDirs: error code by partition.

        A partition that is not here yet is made in that directory later (REPLICA_NOT_AVAILABLE, or
        UNKNOWN_TOPIC_OR_PARTITION when this broker has not heard of it); naming the directory
        where a replica lies cancels a running move.
        """
        codes: dict[TopicPartition, int] = {}
        for key, path in targets.items():
            try:
                self._alter_one(key, path)
                codes[key] = NONE
            except KafkaError as error:
                codes[key] = error.code
        return codes

    def _alter_one(self, key: TopicPartition, path: str) -> None:
        if len(str(key).encode()) + _FUTURE_NAME_EXTRA > MAX_NAME_BYTES:
            raise InvalidTopicException(f"the name of {key} is too long for a directory in motion")
        if path in self._logs.offline_dirs or self._hosted.is_offline(key):
            raise KafkaStorageError(f"{path} or the directory of {key} is offline")
        if path not in self._logs.live_dirs:
            raise LogDirNotFound(f"{path} is none of log.dirs")
        move = self._moves.get(key)
        if move is not None and move.future.parent_dir != path:
            self._cancel(move)
        partition = self._hosted.get(key)
        log = None if partition is None else partition.log
        if log is None or log.parent_dir != path:
            self._logs.set_preferred_dir(key, path)
        if partition is None or log is None:
            absence = self._hosted.absence(key)
            if isinstance(absence, UnknownTopicOrPartition):
                raise absence
            raise ReplicaNotAvailable(f"{key} is not here yet and will be made in {path}")
        if log.parent_dir == path or key in self._moves:
            return
        if self._logs.offline_dirs:
            raise KafkaStorageError("no replica is moved while a log directory is offline")
        future = self._logs.get_or_create(key, log.topic_id, is_new=False, future=True)
        self._begin(partition, future)

    def adopt(self, keys: Iterable[TopicPartition]) -> None:
        """Future logs that were there at start: they go on when their partition has a role."""
        self._unclaimed.update(keys)

    def resume(self) -> None:
        """Call after a LeaderAndIsr: go on with moves that a restart or a StopReplica interrupted."""
        for key in sorted(self._unclaimed):
            partition = self._hosted.get(key)
            if partition is None:
                continue
            self._unclaimed.discard(key)
            future = self._logs.get_log(key, future=True)
            if future is not None and partition.log is not None:
                self._begin(partition, future)

    def stopped(self, key: TopicPartition, *, deleted: bool) -> None:
        """StopReplica: the move pauses, or ends with the replica."""
        move = self._moves.pop(key, None)
        if move is not None:
            move.partition.future = None
        if deleted:
            self._unclaimed.discard(key)
        elif move is not None:
            self._unclaimed.add(key)

    def dir_failed(self, path: str) -> None:
        """Moves from and to a broken directory end."""
        for key, move in list(self._moves.items()):
            log = move.partition.log
            if move.future.parent_dir == path or log is None or log.parent_dir == path:
                del self._moves[key]
                move.partition.future = None

    def stop(self) -> None:
        """Copy no more; the future logs stay for the next start."""
        self._stopped = True
        self._moves.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, partition: Partition, future: Log) -> None:
        assert partition.log is not None
        self._logger.info(
            "moving %s from %s to %s", partition, partition.log.parent_dir, future.parent_dir
        )
        move = _Move(partition, future)
        self._moves[partition.topic_partition] = move
        partition.future = future
        self._align(partition.log, future)
        self._queue.append(move)
        self._run_soon()

    def _cancel(self, move: _Move) -> None:
        key = move.partition.topic_partition
        del self._moves[key]
        move.partition.future = None
        self._logs.delete(key, future=True)

    # -- copying -------------------------------------------------------------------------------

    def _run_soon(self, delay_s: float = 0.0) -> None:
        if self._timer is None and self._queue and not self._stopped:
            self._timer = self._clock.call_later(delay_s, self._run)

    def _run(self) -> None:
        self._timer = None
        if self.throttle.is_exceeded():
            self._run_soon(0.1)
            return
        move = self._queue.popleft()
        if self._is_running(move):
            try:
                if self._step(move):
                    self._queue.append(move)
            except (
                KafkaError,
                StorageError,
                UnexpectedAppendOffset,
                OffsetsOutOfOrder,
            ) as error:
                self._logger.error("moving %s ends: %s", move.partition, error)
                self._moves.pop(move.partition.topic_partition, None)
                move.partition.future = None
        self._run_soon()

    def _is_running(self, move: _Move) -> bool:
        return (
            not self._stopped
            and self._moves.get(move.partition.topic_partition) is move
            and move.partition.log is not None
        )

    def _align(self, current: Log, future: Log) -> None:
        """Cut what a former run copied and the current log no longer has."""
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
            return
        while future.log_end_offset > future.log_start_offset:
            last_epoch = future.latest_epoch
            if last_epoch is None:
                future.truncate_to(min(future.high_watermark, current.log_end_offset))
                return
            epoch, end_offset = current.end_offset_for_epoch(last_epoch)
            if epoch == last_epoch and end_offset >= future.log_end_offset:
                return
            target = truncation_target(future, future.high_watermark, epoch, end_offset)
            future.truncate_to(target.offset)
            if target.is_final:
                return

    def _step(self, move: _Move) -> bool:
        """Copy one piece, or finish.  False when something else will go on with it."""
        current, future = move.partition.log, move.future
        assert current is not None
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        found = current.read(
            future.log_end_offset, PIECE_BYTES, FetchIsolation.LOG_END, min_one_message=True
        )
        if found.records:
            piece = found.records
            data = piece.read() if isinstance(piece, FileRange) else piece
            _append(future, data)
            self.throttle.record(len(data))
        future.update_high_watermark(current.high_watermark)
        start = min(current.log_start_offset, future.high_watermark)
        if start > future.log_start_offset and future.maybe_increment_log_start_offset(start):
            self._world.changed(move.partition, Changed.LOG_START)
        if future.log_end_offset < current.log_end_offset:
            return True
        if not move.is_flushed:
            self._flush(move)
            return False
        self._replace(move)
        return False

    def _flush(self, move: _Move) -> None:
        """The copy must be on the device before it replaces what it was copied from."""
        self._logs.flush(move.future).addCallbacks(
            lambda _: self._flushed(move), lambda _: None
        )  # a failed flush takes the directory offline, and the move with it

    def _flushed(self, move: _Move) -> None:
        move.is_flushed = True
        if self._is_running(move):
            self._queue.append(move)
            self._run_soon()

    def _replace(self, move: _Move) -> None:
        key = move.partition.topic_partition
        self._logger.info("moved %s to %s", key, move.future.parent_dir)
        self._logs.replace_current_with_future(key)
        del self._moves[key]
        move.partition.replace_log(move.future)


def _append(future: Log, data: Buffer) -> None:
    """Append what the current log holds.

    An empty log whose start lies inside the first batch takes the batch whole: DeleteRecords made
    the current log begin there.
    """
    try:
        future.append_as_follower(data)
    except UnexpectedAppendOffset as error:
        if not (
            future.log_end_offset == future.log_start_offset
            and error.first_offset < future.log_end_offset <= error.last_offset
        ):
            raise
        future.truncate_fully_and_start_at(error.first_offset)
        future.append_as_follower(data)
