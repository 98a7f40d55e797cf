"""Committed offsets of one group, and those on their way (reference: group-coordinator 7, 9).

An offset counts once its record is replicated.  Until then it is pending; a later record of the log
always wins, whichever is confirmed first.  Offsets of a transaction wait for its marker.

Offsets that a snapshot brought stay packed until their topic is asked for.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafkalike.types import TopicPartition

from .packed import PackedOffsets, Row, blocks, row
from .values import NO_OFFSET, NO_TIMESTAMP, OffsetAndMetadata

_MIN_PACKED: Final = 16
"""A block of fewer entries is not worth keeping packed."""


class CommittedOffset(NamedTuple):
    """An offset and the base offset of the batch that holds it (-1: not appended yet)."""

    value: OffsetAndMetadata
    log_offset: int


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_committed", "_packed", "_pending", "_transactional")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, tuple[OffsetAndMetadata, ...]] = {}
        """Commits on their way, the latest last."""
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self._packed: dict[str, list[PackedOffsets]] = {}
        """Topic -> blocks; nothing of these partitions is in `_committed`."""

    # -- questions -----------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset of a partition."""
        if partition.topic in self._packed:
            self._unpack(partition.topic)
        found = self._committed.get(partition)
        return None if found is None else found.value

    def __iter__(self) -> Iterator[TopicPartition]:
        """Partitions with a committed offset."""
        self._unpack_all()
        return iter(self._committed)

    def __len__(self) -> int:
        packed = sum(block.count for known in self._packed.values() for block in known)
        return len(self._committed) + packed

    def touched(self, topics: Container[str] | None = None) -> list[TopicPartition]:
        """Partitions (of `topics`, where given) with an offset, committed or being committed."""
        for topic in [name for name in self._packed if topics is None or name in topics]:
            self._unpack(topic)
        found = dict.fromkeys((*self._committed, *self._pending))
        return [one for one in found if topics is None or one.topic in topics]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed and nothing on its way."""
        return not (self._committed or self._packed or self._pending or self._transactional)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition, plain or in a transaction, is not decided yet."""
        return partition in self._pending or any(
            partition in offsets for offsets in self._transactional.values()
        )

    # -- plain commits -------------------------------------------------------------------------

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Their records are being appended."""
        pending = self._pending
        for partition, value in offsets.items():
            pending[partition] = (*pending.get(partition, ()), value)

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int) -> None:
        """Their records are replicated; `log_offset` is the base offset of their batch."""
        for partition, value in offsets.items():
            # One that was removed meanwhile is not there any more.
            if any(one is value for one in self._pending.get(partition, ())):
                self._put(partition, CommittedOffset(value, log_offset))
            self._settle(partition, value)

    def fail(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Their records could not be written, or nobody knows."""
        for partition, value in offsets.items():
            self._settle(partition, value)

    def _settle(self, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        # A later commit of the same partition may be on its way: it stays pending.
        rest = tuple(one for one in self._pending.get(partition, ()) if one is not value)
        if rest:
            self._pending[partition] = rest
        else:
            self._pending.pop(partition, None)

    def _put(self, partition: TopicPartition, new: CommittedOffset) -> None:
        if partition.topic in self._packed:
            self._unpack(partition.topic)
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
            if partition.topic in self._packed:
                self._unpack(partition.topic)
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
        for topic, known in list(self._packed.items()):
            oldest_ms = min(block.oldest_ms for block in known)
            oldest = OffsetAndMetadata(0, commit_timestamp=oldest_ms)
            if topic not in kept_topics and (
                now_ms - base_ms(oldest) >= retention_ms or any(block.expires for block in known)
            ):
                self._unpack(topic)
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

    def forget_transactions(self) -> None:
        """Open transactions are about to be read again."""
        self._transactional.clear()

    # -- snapshots -----------------------------------------------------------------------------

    def load_packed(self, block: PackedOffsets) -> None:
        """Offsets that a snapshot holds; each partition comes in one block only."""
        if block.count < _MIN_PACKED:
            for partition, value, log_offset in block.unpack():
                self._committed[partition] = CommittedOffset(value, log_offset)
        else:
            self._packed.setdefault(block.topic, []).append(block)

    def packed(self) -> Iterator[PackedOffsets]:
        """Everything committed, in blocks; those that are packed go out as they came in."""
        for known in self._packed.values():
            yield from known
        topics: dict[str, list[Row]] = {}
        for (topic, partition), (value, log_offset) in self._committed.items():
            topics.setdefault(topic, []).append(row(partition, value, log_offset))
        for topic, rows in topics.items():
            yield from blocks(topic, rows)

    def _unpack(self, topic: str) -> None:
        for block in self._packed.pop(topic):
            for partition, value, log_offset in block.unpack():
                self._committed[partition] = CommittedOffset(value, log_offset)

    def _unpack_all(self) -> None:
        for topic in list(self._packed):
            self._unpack(topic)
