"""What a partition remembers of its producers: sequences, epochs, open transactions, snapshots.

Reference: transactions 10, 11; log-store 2.2, 9.  A leader checks every batch that carries a producer
id; followers and recovery only replay.  The last five batches of each producer are kept, so that a
retried batch is answered with its original offsets.
"""

import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from kafkalike.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from kafkalike.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    RecordBatch,
    add_sequence,
)
from kafkalike.records.control import read_marker
from kafkalike.records.record import MalformedRecord

_logger = logging.getLogger(__name__)

CACHED_BATCHES: Final = 5
DEFAULT_EXPIRATION_MS: Final = 24 * 3600 * 1000
"""producer.id.expiration.ms."""
NO_OFFSET: Final = -1
SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_END: Final = 6


class CorruptSnapshot(ValueError):
    """The bytes are no producer snapshot of a version and checksum known here."""


class BatchMetadata(NamedTuple):
    """One remembered batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class AbortedTxn(NamedTuple):
    """An entry of the transaction index: offsets of the first record and of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CompletedTxn(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class VerificationGuard:
    """Identity that ties a transaction check with the coordinator to one append (KIP-890)."""

    __slots__ = ()


@dataclass(slots=True)
class Verification:
    """A transaction check under way: what was tried meanwhile, so that late data is told apart."""

    guard: VerificationGuard
    lowest_sequence: int
    epoch: int
    started_ms: int


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = -1
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last record written, -1 when only markers are known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def raise_epoch(self, epoch: int) -> None:
        """Another epoch begins with no batches."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add(self, batch: BatchMetadata) -> None:
        """Remember a batch, forgetting the oldest of six."""
        batches = self.batches
        batches.append(batch)
        if len(batches) > CACHED_BATCHES:
            del batches[0]
        self.last_timestamp = batch.timestamp


class ProducerState:
    """All producers of one partition.

    `open_txns` maps the first offset of each open transaction to its producer id, oldest first;
    `unreplicated` holds completed transactions whose marker is not yet below the high watermark,
    by first offset.
    """

    __slots__ = (
        "_verifications",
        "expiration_ms",
        "map_end_offset",
        "open_txns",
        "partition",
        "producers",
        "unreplicated",
        "verification_required",
    )

    def __init__(
        self,
        partition: str,
        *,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        verification_required: bool = False,
    ) -> None:
        self.partition = partition
        self.expiration_ms = expiration_ms
        self.verification_required = verification_required
        self.producers: dict[int, ProducerEntry] = {}
        self.open_txns: dict[int, int] = {}
        self.unreplicated: dict[int, CompletedTxn] = {}
        self._verifications: dict[int, Verification] = {}
        self.map_end_offset = 0
        """Up to where the log has been fed into this state."""

    # -- checking and taking up batches --------------------------------------------------------

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The original of a batch that a client sent again, among the last five of its producer."""
        entry = self.producers.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch or not entry.batches:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for known in reversed(entry.batches):
            if known.first_sequence == first and known.last_sequence == last:
                return known
        return None

    def check(
        self,
        batch: RecordBatch,
        *,
        from_client: bool,
        guard: VerificationGuard | None,
    ) -> None:
        """Whether a leader may append the batch; the caller has looked for duplicates before.

        Raises InvalidTxnState, InvalidProducerEpoch, OutOfOrderSequenceNumber or
        TransactionCoordinatorFenced.
        """
        entry = self.producers.get(batch.producer_id)
        if batch.is_control:
            self._check_marker(batch, entry)
            return
        if (
            batch.is_transactional
            and (entry is None or entry.current_txn_first_offset == NO_OFFSET)
            and self.verification_required
            and not self._is_verified(batch.producer_id, guard)
        ):
            raise InvalidTxnState("Record was not part of an ongoing transaction")
        seen = NO_PRODUCER_EPOCH if entry is None else entry.epoch
        if batch.producer_epoch < seen:
            raise InvalidProducerEpoch(
                f"Epoch of producer {batch.producer_id} at offset {batch.base_offset} in "
                f"{self.partition} is {batch.producer_epoch}, which is smaller than the last seen "
                f"epoch {seen}"
            )
        if from_client:
            self._check_sequence(batch, entry)
        if (
            entry is not None
            and entry.current_txn_first_offset != NO_OFFSET
            and not batch.is_transactional
        ):
            raise InvalidTxnState(
                f"Expected transactional write from producer {batch.producer_id} at offset "
                f"{batch.base_offset} in partition {self.partition}"
            )

    def _is_verified(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        known = self._verifications.get(producer_id)
        return known is not None and known.guard is guard

    def _check_sequence(self, batch: RecordBatch, entry: ProducerEntry | None) -> None:
        sequence = batch.base_sequence
        tried = self._verifications.get(batch.producer_id)
        if tried is not None and sequence > tried.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {batch.producer_id} at offset "
                f"{batch.base_offset} in partition {self.partition}: {sequence} (incoming seq. "
                f"number), {tried.lowest_sequence} (earliest seen sequence)"
            )
        if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
            return
        if batch.producer_epoch != entry.epoch:
            if sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"Invalid sequence number for new epoch of producer {batch.producer_id} at "
                    f"offset {batch.base_offset} in partition {self.partition}: "
                    f"{batch.producer_epoch} (request epoch), {sequence} (seq. number), "
                    f"{entry.epoch} (current producer epoch)"
                )
            return
        last = entry.last_sequence
        if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {batch.producer_id} at offset "
                f"{batch.base_offset} in partition {self.partition}: {sequence} (incoming seq. "
                f"number), {last} (current end sequence number)"
            )

    def _check_marker(self, batch: RecordBatch, entry: ProducerEntry | None) -> None:
        if entry is None:
            return
        if batch.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {batch.producer_id} at offset {batch.base_offset} in "
                f"{self.partition} is {batch.producer_epoch}, which is smaller than the last seen "
                f"epoch {entry.epoch}"
            )
        marker = read_marker(batch)
        if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Invalid coordinator epoch for producerId {batch.producer_id} at offset "
                f"{batch.base_offset} in partition {self.partition}: {marker.coordinator_epoch} "
                f"(zombie), {entry.coordinator_epoch} (current)"
            )

    def update(self, batch: RecordBatch) -> CompletedTxn | None:
        """Take up an appended or replayed batch with a producer id; offsets must be final.

        Returns the transaction that a marker completed.  Never rejects.
        """
        producer_id = batch.producer_id
        if batch.is_control:
            return self._update_marker(batch)
        if self._verifications:
            self._verifications.pop(producer_id, None)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, batch.producer_epoch)
        else:
            entry.raise_epoch(batch.producer_epoch)
        entry.add(
            BatchMetadata(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
            )
        )
        if batch.is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = batch.base_offset
            self.open_txns[batch.base_offset] = producer_id
        return None

    def _update_marker(self, batch: RecordBatch) -> CompletedTxn | None:
        try:
            marker = read_marker(batch)
        except MalformedRecord as error:
            _logger.warning(
                "unreadable control batch ignored partition=%s offset=%d problem=%s",
                self.partition,
                batch.base_offset,
                error,
            )
            return None
        if marker is None:
            return None
        producer_id = batch.producer_id
        self._verifications.pop(producer_id, None)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, batch.producer_epoch)
        entry.raise_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = batch.max_timestamp
        first_offset = entry.current_txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_txn_first_offset = NO_OFFSET
        self.open_txns.pop(first_offset, None)
        completed = CompletedTxn(producer_id, first_offset, batch.base_offset, not marker.commit)
        self.unreplicated[first_offset] = completed
        return completed

    def aborted_entry(self, completed: CompletedTxn) -> AbortedTxn:
        """What the transaction index keeps of a completed, aborted transaction."""
        still_open = next(iter(self.open_txns), None)
        stable = completed.last_offset + 1 if still_open is None else still_open
        return AbortedTxn(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    # -- stability -----------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or completed but not replicated."""
        oldest_open = next(iter(self.open_txns), None)
        if not self.unreplicated:
            return oldest_open
        oldest = min(self.unreplicated)
        return oldest if oldest_open is None else min(oldest, oldest_open)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Completed transactions whose marker is below the high watermark are stable now."""
        done = [
            first for first, txn in self.unreplicated.items() if txn.last_offset < high_watermark
        ]
        for first in done:
            del self.unreplicated[first]

    # -- verification (KIP-890) ----------------------------------------------------------------

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int
    ) -> VerificationGuard | None:
        """The guard of the check for this producer; None when its transaction is open already."""
        entry = self.producers.get(producer_id)
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET:
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = Verification(VerificationGuard(), sequence, epoch, now_ms)
            self._verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch and sequence < known.lowest_sequence:
            known.lowest_sequence = sequence
        return known.guard

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers silent for `expiration_ms`, never those in a transaction."""
        expiration_ms = self.expiration_ms
        for producer_id in [
            entry.producer_id
            for entry in self.producers.values()
            if entry.current_txn_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]:
            del self.producers[producer_id]
        for producer_id in [
            producer_id
            for producer_id, known in self._verifications.items()
            if now_ms - known.started_ms >= expiration_ms
        ]:
            del self._verifications[producer_id]

    # -- truncation and snapshots --------------------------------------------------------------

    def clear(self, map_end_offset: int) -> None:
        """Forget everything; the state then stands for a log fed up to `map_end_offset`."""
        self.producers.clear()
        self.open_txns.clear()
        self.unreplicated.clear()
        self._verifications.clear()
        self.map_end_offset = map_end_offset

    def drop_below(self, log_start_offset: int) -> None:
        """The log start moved: open and unreplicated transactions that ended below it are gone."""
        for first in [
            first for first, txn in self.unreplicated.items() if txn.last_offset < log_start_offset
        ]:
            del self.unreplicated[first]

    def load(self, data: bytes, now_ms: int) -> None:
        """Replace the state by a snapshot, without producers that have expired.

        Raises CorruptSnapshot.
        """
        entries = read_snapshot(data)
        self.clear(self.map_end_offset)
        for entry in entries:
            in_transaction = entry.current_txn_first_offset != NO_OFFSET
            if not in_transaction and now_ms - entry.last_timestamp >= self.expiration_ms:
                continue
            self.producers[entry.producer_id] = entry
        for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset):
            if entry.current_txn_first_offset != NO_OFFSET:
                self.open_txns[entry.current_txn_first_offset] = entry.producer_id

    def snapshot(self) -> bytes:
        """The state as a `.snapshot` file."""
        return write_snapshot(self.producers.values())


def write_snapshot(producers: Iterable[ProducerEntry]) -> bytes:
    """Entries as a `.snapshot` file: version, CRC-32C of what follows, count, entries."""
    parts = [b""]
    for entry in producers:
        newest = entry.batches[-1] if entry.batches else None
        parts.append(
            _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                NO_SEQUENCE if newest is None else newest.last_sequence,
                NO_OFFSET if newest is None else newest.last_offset,
                0 if newest is None else newest.last_offset - newest.first_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    parts[0] = _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, 0, len(parts) - 1)
    data = bytearray(b"".join(parts))
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_END:]))
    return bytes(data)


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a `.snapshot` file.  Raises CorruptSnapshot."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no producer snapshot")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version} where {SNAPSHOT_VERSION} was expected")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise CorruptSnapshot("the checksum does not match")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes do not hold {count} producers")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
        entry = ProducerEntry(producer_id, epoch)
        if offset >= 0:
            first = NO_SEQUENCE
            if sequence >= 0:
                first = add_sequence(sequence, -delta)
            entry.batches.append(BatchMetadata(first, sequence, offset - delta, offset, timestamp))
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.current_txn_first_offset = txn
        entries.append(entry)
    return entries
