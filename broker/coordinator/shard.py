"""One partition of `__consumer_offsets` as the coordinator holds it, and how it is read.

A shard begins as a `ShardLoad`, which reads the partition's log in slices that do not hold up the
loop: the last record of a key wins, a tombstone removes it, offsets of transactions wait for the
marker (reference: group-coordinator 11).  The log is read to its end, beyond the high watermark: a
leader does not lose what it holds.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafkalike.errors import CorruptMessage, KafkaStorageError
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.records.batch import NO_PRODUCER_ID, CorruptBatch, RecordBatch
from kafkalike.records.compression import DecompressionError, decompress
from kafkalike.records.control import EndTransactionMarker, read_marker
from kafkalike.records.record import MalformedRecord
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import StorageError
from kafkalike.types import TopicPartition

from ..log.log import FetchIsolation, Log
from .group import Group
from .records import key_values, read_group, read_key, read_offset

SLICE_S: Final = 0.010
"""How long a slice of loading may hold up the loop."""
CHUNK_BYTES: Final = 1 << 18
_CHECK_EVERY: Final = 64
"""Keys between two looks at the clock."""


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

    `step` returns True when everything is read up to the log's end of that moment and the groups
    are in `groups` and `producers`.  Raises KafkaError when the log cannot be read.
    """

    def __init__(
        self,
        log: Log,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        logger: logging.Logger,
        *,
        buffer_bytes: int,
    ) -> None:
        self._log = log
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._logger = logger
        self._chunk_bytes = max(min(buffer_bytes, CHUNK_BYTES), 1)
        self._position = log.log_start_offset
        self._latest: dict[bytes, tuple[bytes, int]] = {}
        """Key -> value and base offset of its batch."""
        self._open: dict[int, dict[bytes, tuple[bytes, int]]] = {}
        """The same for each open transaction."""
        self._work: Iterator[None] | None = None
        self.groups: dict[str, Group] = {}
        self.producers: dict[int, dict[str, None]] = {}
        self.record_count = 0

    def step(self) -> bool:
        """Work for about `SLICE_S`; True when loading is done."""
        deadline_s = self._monotonic() + SLICE_S
        while True:
            if self._work is None:
                self._work = self._run()
            for _ in self._work:
                if self._monotonic() >= deadline_s:
                    return False
            if self._position >= self._log.log_end_offset:
                return True
            self._work = None  # something was appended meanwhile: a marker

    def _run(self) -> Iterator[None]:
        while self._position < self._log.log_end_offset:
            yield from self._read_chunk()
        yield from self._build()

    # -- reading -------------------------------------------------------------------------------

    def _read_chunk(self) -> Iterator[None]:
        self._position = max(self._position, self._log.log_start_offset)
        info = self._log.read(self._position, self._chunk_bytes, FetchIsolation.LOG_END, True)
        records = info.records
        try:
            data = records if isinstance(records, bytes) else records.read()
        except StorageError as error:
            raise KafkaStorageError(str(error)) from error
        if not data:
            # Compaction left nothing up to the end.
            self._position = self._log.log_end_offset
            return
        before = self._position
        try:
            for batch in iterate_batches(data):
                if batch.next_offset > self._position:
                    self._position = batch.next_offset
                    self._read_batch(batch)
                yield
        except CorruptBatch as error:
            raise CorruptMessage(f"behind offset {self._position}: {error}") from error
        if self._position == before:
            raise CorruptMessage(f"no batch can be read at offset {before}")

    def _read_batch(self, batch: AnyBatch) -> None:
        try:
            self._apply(batch)
        except (MalformedRecord, DecompressionError) as error:
            self._logger.error("batch at offset %d is skipped: %s", batch.base_offset, error)

    def _apply(self, batch: AnyBatch) -> None:
        base_offset = batch.base_offset
        target = self._latest
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                marker = read_marker(batch)
                if marker is not None:
                    self._end_transaction(batch.producer_id, marker)
                return
            if batch.is_transactional and batch.producer_id != NO_PRODUCER_ID:
                target = self._open.setdefault(batch.producer_id, {})
        for key, value in _key_values(batch):
            self.record_count += 1
            if key is None:
                self._logger.warning("a record without key at offset %d is skipped", base_offset)
            elif value is None:
                target.pop(key, None)
            else:
                target[key] = (value, base_offset)

    def _end_transaction(self, producer_id: int, marker: EndTransactionMarker) -> None:
        offsets = self._open.pop(producer_id, None)
        if offsets is None or not marker.commit:
            return
        for key, (value, base_offset) in offsets.items():
            known = self._latest.get(key)
            if known is None or known[1] < base_offset:
                self._latest[key] = (value, base_offset)

    # -- building ------------------------------------------------------------------------------

    def _build(self) -> Iterator[None]:
        self.groups = {}
        self.producers = {}
        offsets: list[tuple[str, TopicPartition, bytes, int]] = []
        for count, (key, (value, base_offset)) in enumerate(self._latest.items()):
            if count % _CHECK_EVERY == 0:
                yield
            self._build_one(key, value, base_offset, offsets)
        for count, (group_id, partition, value, base_offset) in enumerate(offsets):
            if count % _CHECK_EVERY == 0:
                yield
            try:
                offset = read_offset(value)
            except MalformedMessage as error:
                self._skip(error)
                continue
            self._group(group_id).offsets.load(partition, offset, base_offset)
        for producer_id, pending in self._open.items():
            yield
            for key, (value, base_offset) in pending.items():
                self._build_pending(producer_id, key, value, base_offset)

    def _build_one(
        self,
        key: bytes,
        value: bytes,
        base_offset: int,
        offsets: list[tuple[str, TopicPartition, bytes, int]],
    ) -> None:
        try:
            found = read_key(key)
            if found is None:
                self._logger.warning("a record of an unknown kind is skipped")
            elif found[1] is None:
                self.groups[found[0]] = read_group(found[0], value)
            else:
                offsets.append((found[0], found[1], value, base_offset))
        except MalformedMessage as error:
            self._skip(error)

    def _build_pending(self, producer_id: int, key: bytes, value: bytes, base_offset: int) -> None:
        try:
            found = read_key(key)
            if found is None:
                return
            group_id, partition = found
            if partition is None:
                return
            offset = read_offset(value)
        except MalformedMessage as error:
            self._skip(error)
            return
        group = self._group(group_id)
        group.offsets.load_transactional(producer_id, partition, offset, base_offset)
        self.producers.setdefault(producer_id, {})[group_id] = None

    def _group(self, group_id: str) -> Group:
        """The group, without protocol type when only offsets of it are known."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._now_ms())
        return group

    def _skip(self, error: MalformedMessage) -> None:
        self._logger.error("a record of %s is skipped: %s", self._log.topic_partition, error)


def _key_values(batch: AnyBatch) -> Iterable[tuple[bytes | None, bytes | None]]:
    if isinstance(batch, RecordBatch):
        return key_values(decompress(batch.codec, batch.payload()), batch.count)
    return ((record.key, record.value) for record in batch.records())
