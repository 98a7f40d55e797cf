"""Committed offsets of one group, and those on their way (reference: group-coordinator 7, 9).

An offset counts once its record is replicated.  Until then it is pending; a later record of the log
always wins, whichever is confirmed first.  Offsets of a transaction wait for its marker.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkalike.types import TopicPartition

from .values import NO_OFFSET, NO_TIMESTAMP, OffsetAndMetadata


class CommittedOffset(NamedTuple):
    """An offset and the base offset of the batch that holds it (-1: not appended yet)."""

    value: OffsetAndMetadata
    log_offset: int


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_committed", "_pending", "_transactional")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    # -- questions -----------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset of a partition."""
        found = self._committed.get(partition)
        return None if found is None else found.value

    def __iter__(self) -> Iterator[TopicPartition]:
        """Partitions with a committed offset."""
        return iter(self._committed)

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def touched(self) -> list[TopicPartition]:
        """Partitions with an offset, committed or being committed."""
        return list(dict.fromkeys((*self._committed, *self._pending)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed and nothing on its way."""
        return not (self._committed or self._pending or self._transactional)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition, plain or in a transaction, is not decided yet."""
        return partition in self._pending or any(
            partition in offsets for offsets in self._transactional.values()
        )

    # -- plain commits -------------------------------------------------------------------------

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Their records are being appended."""
        self._pending.update(offsets)

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int) -> None:
        """Their records are replicated; `log_offset` is the base offset of their batch."""
        for partition, value in offsets.items():
            if partition in self._pending:
                self._put(partition, CommittedOffset(value, log_offset))
            self._settle(partition, value)

    def fail(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Their records could not be written, or nobody knows."""
        for partition, value in offsets.items():
            self._settle(partition, value)

    def _settle(self, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        # A later commit of the same partition may be on its way: it stays pending.
        if self._pending.get(partition) is value:
            del self._pending[partition]

    def _put(self, partition: TopicPartition, new: CommittedOffset) -> None:
        old = self._committed.get(partition)
        if old is None or old.log_offset < new.log_offset:
            self._committed[partition] = new

    # -- transactions --------------------------------------------------------------------------

    def begin_transactional(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Their records are being appended within a transaction."""
        open_offsets = self._transactional.setdefault(producer_id, {})
        for partition, value in offsets.items():
            open_offsets[partition] = CommittedOffset(value, NO_OFFSET)

    def confirm_transactional(
        self,
        producer_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        log_offset: int,
    ) -> None:
        """Their records are replicated and wait for the transaction to end."""
        open_offsets = self._transactional.get(producer_id)
        if open_offsets is None:
            return
        for partition, value in offsets.items():
            found = open_offsets.get(partition)
            if found is not None and found.value is value:
                open_offsets[partition] = CommittedOffset(value, log_offset)

    def fail_transactional(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Their records could not be written."""
        open_offsets = self._transactional.get(producer_id)
        if open_offsets is None:
            return
        for partition, value in offsets.items():
            found = open_offsets.get(partition)
            if found is not None and found.value is value:
                del open_offsets[partition]
        if not open_offsets:
            del self._transactional[producer_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker of the producer's transaction is in the log."""
        open_offsets = self._transactional.pop(producer_id, None)
        if commit and open_offsets is not None:
            for partition, offset in open_offsets.items():
                if offset.log_offset != NO_OFFSET:
                    self._put(partition, offset)

    # -- removal -------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget partitions; those that had an offset or one on its way, whose record may survive."""
        removed = []
        for partition in partitions:
            known = self._pending.pop(partition, None) is not None
            for producer_id in [p for p, o in self._transactional.items() if partition in o]:
                open_offsets = self._transactional[producer_id]
                del open_offsets[partition]
                if not open_offsets:
                    del self._transactional[producer_id]
            if self._committed.pop(partition, None) is not None or known:
                removed.append(partition)
        return removed

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_ms: Callable[[OffsetAndMetadata], int],
        kept_topics: Container[str] = (),
    ) -> list[TopicPartition]:
        """Offsets that may go, topics in `kept_topics` excepted (KIP-211).

        An offset with its own expiry time goes by that, others `retention_ms` after `base_ms`.
        """
        found = []
        for partition, (value, _) in self._committed.items():
            if partition.topic in kept_topics or partition in self._pending:
                continue
            if value.expire_timestamp != NO_TIMESTAMP:
                gone = now_ms >= value.expire_timestamp
            else:
                gone = now_ms - base_ms(value) >= retention_ms
            if gone:
                found.append(partition)
        return found

    # -- loading -------------------------------------------------------------------------------

    def load(self, partition: TopicPartition, value: OffsetAndMetadata, log_offset: int) -> None:
        """A committed offset read from the log."""
        self._put(partition, CommittedOffset(value, log_offset))

    def load_transactional(
        self,
        producer_id: int,
        partition: TopicPartition,
        value: OffsetAndMetadata,
        log_offset: int,
    ) -> None:
        """An offset read from the log whose transaction has no marker yet."""
        open_offsets = self._transactional.setdefault(producer_id, {})
        open_offsets[partition] = CommittedOffset(value, log_offset)
