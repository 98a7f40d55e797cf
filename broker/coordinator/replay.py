"""What the records of one partition of `__consumer_offsets` add up to, in the order of the log.

The last record of a key wins, a tombstone removes it, offsets of transactions wait for the marker
(reference: group-coordinator 11).  A replay begins with nothing at the start of the log, or with what
a snapshot holds at the offset where that ends.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.records.batch import NO_PRODUCER_ID, RecordBatch
from kafkalike.records.compression import DecompressionError, decompress
from kafkalike.records.control import EndTransactionMarker, read_marker
from kafkalike.records.record import MalformedRecord
from kafkalike.records.scan import AnyBatch
from kafkalike.types import TopicPartition

from .offsets import GroupOffsets
from .packed import Row, blocks, row
from .records import OFFSET_KEY_VERSION, key_values, read_key, read_offset
from .values import OffsetAndMetadata

CHECK_EVERY: Final = 64
"""Keys between two chances to pause."""
PAUSE_EVERY: Final = 1024
"""Records of one batch between two chances to pause."""
BUCKETS: Final = 256
"""Tables of offsets by key.  A single one for a million keys would hold up the loop for a tenth of a
second when it grows, and for twice as long when it is let go of."""


Stored = tuple[bytes, int]
"""Value of a key and base offset of the batch that holds it.  No class of its own: the garbage
collector passes over plain tuples of plain things, of which there may be a million."""


class BatchMark(NamedTuple):
    """What tells one batch from another that might take its place."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, batch: RecordBatch) -> "BatchMark":
        return cls(batch.base_offset, batch.next_offset, batch.partition_leader_epoch, batch.crc)


class Replay:
    """The state of a partition up to `position`.

    `offsets` (group -> offsets) is complete after `settle`; `others` holds all keys that are not of
    offsets, in the order in which they were last written; `open` the records of each transaction
    without a marker.  `last` is the batch before `position`.
    """

    def __init__(self, name: str, logger: logging.Logger) -> None:
        self._name = name
        self._logger = logger
        self.position = 0
        self.last: BatchMark | None = None
        self.record_count = 0
        self.offsets: dict[str, GroupOffsets] = {}
        self.others: dict[bytes, Stored] = {}
        self.open: dict[int, dict[bytes, Stored]] = {}
        self._latest: tuple[dict[bytes, Stored], ...] = tuple({} for _ in range(BUCKETS))
        """Offsets since the last `settle`; those of one group and topic are in one of the tables."""
        self._gone: dict[bytes, None] = {}
        """Keys that had a tombstone since then, where `offsets` may know them."""
        self._is_settled = False

    def begin_at(self, mark: BatchMark) -> None:
        """Go on behind a snapshot, whose content was put into `offsets`, `others` and `open`."""
        self.position = mark.next_offset
        self.last = mark
        self._is_settled = True

    # -- reading -------------------------------------------------------------------------------

    def apply(self, batch: AnyBatch) -> Iterator[None]:
        """The next batch, to be paused now and then in a large one; what cannot be read of it is
        logged and skipped."""
        self.position = batch.next_offset
        self.last = BatchMark.of(batch) if isinstance(batch, RecordBatch) else None
        try:
            yield from self._apply(batch)
        except (MalformedRecord, DecompressionError) as error:
            self._logger.error("batch at offset %d is skipped: %s", batch.base_offset, error)

    def _apply(self, batch: AnyBatch) -> Iterator[None]:
        base_offset = batch.base_offset
        transaction: dict[bytes, Stored] | None = None
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                marker = read_marker(batch)
                if marker is not None:
                    self._end_transaction(batch.producer_id, marker)
                return
            if batch.is_transactional and batch.producer_id != NO_PRODUCER_ID:
                transaction = self.open.setdefault(batch.producer_id, {})
        buckets, gone = self._latest, self._gone
        count = 0
        for key, value in _key_values(batch):
            count += 1
            if count % PAUSE_EVERY == 0:
                yield
            if key is None:
                self._logger.warning("a record without key at offset %d is skipped", base_offset)
            elif transaction is not None:
                if value is None:
                    transaction.pop(key, None)
                else:
                    transaction[key] = (value, base_offset)
            elif not is_offset_key(key):
                self.others.pop(key, None)
                if value is not None:
                    self.others[key] = (value, base_offset)
            elif value is not None:
                buckets[crc32(key[2:-4]) % BUCKETS][key] = (value, base_offset)
            else:
                self._bucket(key).pop(key, None)
                if self._is_settled:
                    gone[key] = None
                # As when it was removed: what a transaction had for it before goes too.
                for records in self.open.values():
                    records.pop(key, None)
        self.record_count += count

    def _end_transaction(self, producer_id: int, marker: EndTransactionMarker) -> None:
        records = self.open.pop(producer_id, None)
        if records is None or not marker.commit:
            return
        for key, stored in records.items():
            target = self._bucket(key) if is_offset_key(key) else self.others
            known = target.get(key)
            if known is None or known[1] < stored[1]:
                target[key] = stored

    def _bucket(self, key: bytes) -> dict[bytes, Stored]:
        """By group and topic: in an offset key they stand between version and partition."""
        return self._latest[crc32(key[2:-4]) % BUCKETS]

    # -- adding up -----------------------------------------------------------------------------

    def settle(self) -> Iterator[None]:
        """Bring `offsets` up to `position`; may be paused at each step."""
        for count, key in enumerate(self._gone):
            if count % CHECK_EVERY == 0:
                yield
            self._remove(key)
        for bucket in self._latest:
            if self._is_settled:
                for count, (key, stored) in enumerate(bucket.items()):
                    if count % CHECK_EVERY == 0:
                        yield
                    self._put(key, stored)
            else:
                yield from self._pack(bucket)
            bucket.clear()
            yield
        self._gone.clear()
        self._is_settled = True

    def _remove(self, key: bytes) -> None:
        try:
            found = read_key(key)
        except MalformedMessage:
            return
        if found is None or found[1] is None:
            return
        offsets = self.offsets.get(found[0])
        if offsets is not None:
            offsets.remove([found[1]])
            if offsets.is_empty:
                del self.offsets[found[0]]

    def _pack(self, bucket: dict[bytes, Stored]) -> Iterator[None]:
        """The same for the first time, without an object for each offset."""
        topics: dict[tuple[str, str], dict[int, tuple[Row, int]]] = {}
        for count, (key, stored) in enumerate(bucket.items()):
            if count % CHECK_EVERY == 0:
                yield
            read = self._read(key, stored)
            if read is None:
                continue
            group_id, (topic, partition), value = read
            rows = topics.setdefault((group_id, topic), {})
            known = rows.get(partition)  # there are two versions of keys
            if known is None or known[1] < stored[1]:
                rows[partition] = (row(partition, value, stored[1]), stored[1])
        for (group_id, topic), found in topics.items():
            offsets = self._offsets_of(group_id)
            for block in blocks(topic, [one for one, _ in found.values()]):
                offsets.load_packed(block)
                yield

    def _put(self, key: bytes, stored: Stored) -> None:
        read = self._read(key, stored)
        if read is not None:
            group_id, partition, value = read
            self._offsets_of(group_id).load(partition, value, stored[1])

    def _read(
        self, key: bytes, stored: Stored
    ) -> tuple[str, TopicPartition, OffsetAndMetadata] | None:
        try:
            found = read_key(key)
            value = read_offset(stored[0])
        except MalformedMessage as error:
            self.skip(error)
            return None
        if found is None or found[1] is None:
            return None
        return found[0], found[1], value

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = GroupOffsets()
        return offsets

    def skip(self, error: MalformedMessage) -> None:
        """Say that a record cannot be understood."""
        self._logger.error("a record of %s is skipped: %s", self._name, error)


def is_offset_key(key: bytes) -> bool:
    """Whether a key is one of committed offsets, by its version."""
    return len(key) > 1 and key[0] == 0 and key[1] <= OFFSET_KEY_VERSION


def _key_values(batch: AnyBatch) -> Iterable[tuple[bytes | None, bytes | None]]:
    if isinstance(batch, RecordBatch):
        return key_values(decompress(batch.codec, batch.payload()), batch.count)
    return ((record.key, record.value) for record in batch.records())
