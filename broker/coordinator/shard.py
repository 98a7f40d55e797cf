"""One partition of `__consumer_offsets` as the coordinator holds it, and how it is read.

A shard begins as a `ShardLoad`, which reads what a snapshot holds and the log behind it, in slices
that do not hold up the loop (reference: group-coordinator 11).  The log is read to its end, beyond the
high watermark: a leader does not lose what it holds.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kafkalike.errors import CorruptMessage, KafkaStorageError
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.records.batch import CorruptBatch
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.ports import Disk, StorageError, Threads

from ..log.log import FetchIsolation, Log
from .consumer_group import ConsumerGroup, GroupParts
from .group import Group
from .proof import SnapshotVoid, Steps, begin_with_snapshot, check_follows, read_range
from .records import read_group, read_key, read_offset
from .replay import CHECK_EVERY, Replay, Stored, is_offset_key

SLICE_S: Final = 0.010
"""How long a slice of loading may hold up the loop."""
CHUNK_BYTES: Final = 1 << 18


class Shard:
    """The groups of one partition, led here in `leader_epoch`."""

    __slots__ = ("groups", "is_loading", "leader_epoch", "partition", "producers")

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.groups: dict[str, Group] = {}
        self.producers: dict[int, dict[str, None]] = {}
        """Producer id -> groups that have offsets in its open transaction."""

    def note_producer(self, producer_id: int, group_id: str) -> None:
        """The producer's transaction holds offsets of the group."""
        self.producers.setdefault(producer_id, {})[group_id] = None


class ShardLoad:
    """Reads one partition into a shard, a slice at a time.

    When `step` says that it is done, everything is read up to the log's end of that moment and the
    groups are in `groups` and `producers`.  With a `disk` a snapshot is used where there is one that
    the log proves (see `proof`).
    """

    def __init__(
        self,
        log: Log,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        logger: logging.Logger,
        *,
        buffer_bytes: int,
        threads: Threads,
        disk: Disk | None = None,
        with_consumer_groups: bool = False,
    ) -> None:
        self._log = log
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._logger = logger
        self._threads = threads
        self._disk = disk
        self._chunk_bytes = max(min(buffer_bytes, CHUNK_BYTES), 1)
        self._steps = self._run()
        self._received: Any = None
        self._with_consumer_groups = with_consumer_groups
        self.consumer_groups: Mapping[str, ConsumerGroup] = {}
        self.groups: dict[str, Group] = {}
        self.producers: dict[int, dict[str, None]] = {}
        self.record_count = 0
        self.snapshot_offset: int | None = None
        """Where the snapshot ended that was used."""

    def step(self) -> "bool | Deferred[None]":
        """Work for about `SLICE_S`.  True: done; False: call again; a Deferred: call again when it
        has fired.  Raises KafkaError when the log cannot be read."""
        deadline_s = self._monotonic() + SLICE_S
        while True:
            received, self._received = self._received, None
            try:
                if isinstance(received, Failure):
                    assert received.value is not None
                    wanted = self._steps.throw(received.value)
                else:
                    wanted = self._steps.send(received)
            except StopIteration:
                return True
            if wanted is not None:
                return self._threads.run(wanted).addBoth(self._receive)
            if self._monotonic() >= deadline_s:
                return False

    def close(self) -> None:
        """Give it up; nothing may be being read for it."""
        self._steps.close()

    def _receive(self, result: Any) -> None:
        self._received = result

    def _run(self) -> Steps[None]:
        log = self._log
        replay = Replay(str(log.topic_partition), self._logger)
        if self._disk is not None:
            replay = yield from begin_with_snapshot(log, self._disk, self._logger)
        if replay.last is not None:
            self.snapshot_offset = replay.position
            try:
                yield from self._read(replay, strict=True)
                return
            except SnapshotVoid as error:
                self._logger.info("snapshot of %s is not used: %s", log.topic_partition, error)
                self.snapshot_offset = None
                replay = Replay(str(log.topic_partition), self._logger)
        yield from self._read(replay, strict=False)

    def _read(self, replay: Replay, *, strict: bool) -> Steps[None]:
        """To the end; what is appended meanwhile, markers above all, is read in another round."""
        while True:
            while replay.position < self._log.log_end_offset:
                yield from self._read_chunk(replay, strict)
            yield from replay.settle()
            yield from self._build(replay)
            self.record_count = replay.record_count
            if replay.position >= self._log.log_end_offset:
                return

    def _read_chunk(self, replay: Replay, strict: bool) -> Steps[None]:
        before = max(replay.position, self._log.log_start_offset)
        info = self._log.read(before, self._chunk_bytes, FetchIsolation.LOG_END, True)
        try:
            data = yield from read_range(info.records)
        except StorageError as error:
            raise KafkaStorageError(str(error)) from error
        if not data:
            if strict:
                raise SnapshotVoid(f"nothing can be read from offset {before} on")
            # Compaction left nothing up to the end.
            replay.position = self._log.log_end_offset
            return
        try:
            for batch in iterate_batches(data):
                if batch.next_offset > replay.position:
                    if strict:
                        check_follows(batch, replay.position)
                    yield from replay.apply(batch)
                yield None
        except CorruptBatch as error:
            raise CorruptMessage(f"behind offset {replay.position}: {error}") from error
        if replay.position <= before:
            raise CorruptMessage(f"no batch can be read at offset {before}")

    # -- building ------------------------------------------------------------------------------

    def _build(self, replay: Replay) -> Iterator[None]:
        self.groups = {}
        self.producers = {}
        parts = GroupParts()
        for count, (key, stored) in enumerate(replay.others.items()):
            if count % CHECK_EVERY == 0:
                yield
            self._build_other(replay, parts, key, stored)
        self.consumer_groups = parts.build()
        for count, (group_id, offsets) in enumerate(replay.offsets.items()):
            if count % CHECK_EVERY == 0:
                yield
            offsets.forget_transactions()
            self._group(group_id).offsets = offsets
        for producer_id, pending in replay.open.items():
            for count, (key, stored) in enumerate(pending.items()):
                if count % CHECK_EVERY == 0:
                    yield
                self._build_pending(replay, producer_id, key, stored)

    def _build_other(self, replay: Replay, parts: GroupParts, key: bytes, stored: Stored) -> None:
        try:
            found = read_key(key)
            if found is None and self._with_consumer_groups and parts.add(key, stored[0]):
                return
            if found is None:
                self._logger.warning("a record of an unknown kind is skipped")
            else:
                self.groups[found[0]] = read_group(found[0], stored[0])
        except MalformedMessage as error:
            replay.skip(error)

    def _build_pending(self, replay: Replay, producer_id: int, key: bytes, stored: Stored) -> None:
        if not is_offset_key(key):
            return
        try:
            found = read_key(key)
            offset = read_offset(stored[0])
        except MalformedMessage as error:
            replay.skip(error)
            return
        if found is None or found[1] is None:
            return
        group = self._group(found[0])
        group.offsets.load_transactional(producer_id, found[1], offset, stored[1])
        self.producers.setdefault(producer_id, {})[found[0]] = None

    def _group(self, group_id: str) -> Group:
        """The group, without protocol type when only offsets of it are known."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._now_ms())
        return group
