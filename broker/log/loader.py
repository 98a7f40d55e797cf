"""Loading one partition directory: leftovers, segments, recovery, producers (reference: log-store 5).

Runs in Threads before the log is anybody's.  After a clean stop what is on disk is trusted, except
that the last segment must not contradict its index or itself.  After any other end the segments from
the recovery point on are read batch by batch: what is whole and consistent stays, the first thing
that is not ends the log, and indexes, leader epochs, producers and aborted transactions are made anew
from what was read.
"""

import logging
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafkalike.config import LogConfig
from kafkalike.records.batch import CorruptBatch, RecordBatch
from kafkalike.records.scan import AnyBatch
from kafkalike.runtime.ports import Disk, NoSuchFile
from kafkalike.types import TopicPartition

from . import checkpoints, leader_epochs
from .directory import LogDirectory
from .index import MAX_RELATIVE_OFFSET, CorruptIndex
from .log import Log
from .names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    file_stem,
    parse_file_name,
)
from .producer_state import CorruptSnapshot, ProducerState
from .segment import BatchFacts, Located, LogSegment, read_facts

_logger = logging.getLogger(__name__)

_TMP: Final = ".tmp"
_EPOCH_POSITION: Final = 12
"""Of the leader epoch inside a batch of format 2."""


@dataclass(slots=True, frozen=True)
class LoadRequest:
    """What is known of a log before its directory is read."""

    topic_partition: TopicPartition
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    is_clean: bool
    """The directory was shut down in order: trust everything."""
    is_future: bool = False
    producer_expiration_ms: int = 24 * 3600 * 1000
    verification_required: bool = False
    cleaned_offset: int = 0
    """Compaction has been here up to this offset, at least."""


def load_log(directory: LogDirectory, path: str, request: LoadRequest) -> Log:
    """Read, repair and open the log in `path`.  Blocks.

    Raises StorageError when the disk fails, CorruptCheckpoint when leader epochs or metadata cannot
    be read after a clean stop.
    """
    return _Loader(directory, path, request).load()


class _Loader:
    def __init__(self, directory: LogDirectory, path: str, request: LoadRequest) -> None:
        self._directory = directory
        self._disk: Disk = directory.disk
        self._path = path
        self._request = request
        self._now_ms = directory.clock.now_ms()
        self._producers = ProducerState(
            str(request.topic_partition),
            expiration_ms=request.producer_expiration_ms,
            verification_required=request.verification_required,
        )
        self._snapshots: list[int] = []
        self._epochs: list[tuple[int, int]] = []
        self._epochs_changed = False
        self._recovered_index = -2
        self._ran_recovery = False

    def load(self) -> Log:
        request = self._request
        names = self._settle_leftovers(self._disk.list(self._path))
        topic_id = self._read_topic_id(names)
        self._read_epochs(names)
        segments = self._open_segments(names)
        self._snapshots = sorted(
            parsed[0]
            for name in names
            if (parsed := parse_file_name(name)) and parsed[1] == SNAPSHOT
        )
        damaged = [segment for segment in segments if self._is_damaged(segment, names)]
        if segments and (not request.is_clean or damaged):
            end_offset = self._recover(segments, damaged)
        elif segments:
            end_offset = self._clean_end(segments)
        else:
            end_offset = 0
        log_start_offset = self._believed_log_start(segments, end_offset)
        if end_offset < log_start_offset:
            self._remove_segments(segments)
            segments, end_offset = [], log_start_offset
        if not segments:
            segments = [self._first_segment(end_offset)]
        start_offset = max(log_start_offset, segments[0].base_offset)
        self._cut_epochs(start_offset, end_offset)
        self._load_producers(segments, start_offset, end_offset)
        recovery_point = end_offset if request.is_clean else min(request.recovery_point, end_offset)
        log = Log(
            self._directory,
            self._path,
            request.topic_partition,
            request.config,
            segments,
            log_end_offset=end_offset,
            log_start_offset=start_offset,
            recovery_point=recovery_point,
            topic_id=topic_id,
            is_future=request.is_future,
            epochs=self._epochs,
            producers=self._producers,
            snapshots=self._snapshots,
            high_watermark=request.high_watermark,
        )
        if self._producers.map_end_offset < end_offset:
            log.replay_producers(self._producers.map_end_offset, end_offset)
        if not request.is_clean and end_offset > start_offset:
            log.take_snapshot()
        for segment in segments:
            segment.release_files()
        if self._epochs_changed:
            self._disk.write_atomic(*log.epochs_file())
        return log

    def _believed_log_start(self, segments: list[LogSegment], end_offset: int) -> int:
        """The checkpointed log start offset, unless it must be wrong.

        The high watermark is written before it and never lies below it.  So where both lie beyond
        the end of the log, the log has lost its end and everything in it had been deleted.  Where
        only the log start does, the file is wrong: the records stay.
        """
        request = self._request
        start_offset = request.log_start_offset
        if start_offset <= end_offset:
            return start_offset
        path = f"{self._directory.path}/{checkpoints.LOG_START_FILE}"
        if start_offset > request.high_watermark:
            _logger.error(
                "%s says that %s starts at %d, but its log ends at %d and its high watermark was %d: "
                "the file is not believed and the records stay",
                path,
                request.topic_partition,
                start_offset,
                end_offset,
                request.high_watermark,
            )
            return 0
        if segments:
            _logger.warning(
                "%s says that everything below %d was deleted from %s, and its high watermark was %d: "
                "what is left of its log ends at %d and goes",
                path,
                start_offset,
                request.topic_partition,
                request.high_watermark,
                end_offset,
            )
        return start_offset

    # -- leftovers of an interrupted compaction or deletion ------------------------------------

    def _settle_leftovers(self, names: list[str]) -> set[str]:
        """Finish or undo what a crash interrupted; returns the names that are left.

        `.cleaned` files mean that the swap never began: they go, and with them the `.swap` files at
        or above the lowest of them.  The other `.swap` files replace the segments they cover.
        """
        left = set(names)
        cleaned = [offset for name in names if (offset := _offset(name, CLEANED)) is not None]
        lowest_cleaned = min(cleaned, default=None)
        for name in names:
            swap_offset = _offset(name, SWAP)
            incomplete = (
                swap_offset is not None
                and lowest_cleaned is not None
                and swap_offset >= lowest_cleaned
            )
            if name.endswith((DELETED, CLEANED, _TMP)) or incomplete:
                self._disk.remove(f"{self._path}/{name}")
                left.remove(name)
        swap_logs = sorted(name for name in left if name.endswith(LOG + SWAP))
        if swap_logs:
            self._remove_swapped(swap_logs, left)
        for name in sorted(name for name in left if name.endswith(SWAP)):
            plain = name.removesuffix(SWAP)
            self._disk.rename(f"{self._path}/{name}", f"{self._path}/{plain}")
            left.remove(name)
            left.add(plain)
        return left

    def _remove_swapped(self, swap_logs: list[str], left: set[str]) -> None:
        start = min(offset for name in swap_logs if (offset := _offset(name, SWAP)) is not None)
        end = max(self._end_of(name) for name in swap_logs)
        for name in sorted(left):
            parsed = parse_file_name(name)
            if parsed is not None and parsed[1] != SNAPSHOT and start <= parsed[0] < end:
                self._disk.remove(f"{self._path}/{name}")
                left.remove(name)

    def _end_of(self, swap_name: str) -> int:
        """The next offset of a `.log.swap` file."""
        base_offset = _offset(swap_name, SWAP)
        assert base_offset is not None
        path = f"{self._path}/{swap_name}"
        segment = LogSegment(
            self._directory,
            self._path,
            base_offset,
            size=self._disk.size(path),
            created_ms=self._now_ms,
            log_suffix=SWAP,
        )
        end = base_offset
        for located in segment.iterate(headers_only=True):
            end = located.batch.next_offset
        segment.release_files()
        return end

    # -- files beside the segments -------------------------------------------------------------

    def _read_topic_id(self, names: set[str]) -> bytes | None:
        if checkpoints.PARTITION_METADATA_FILE not in names:
            return None
        path = f"{self._path}/{checkpoints.PARTITION_METADATA_FILE}"
        data = self._disk.read_file(path)
        if not data and not self._request.is_clean:
            # Created, not yet synced, and then the machine stopped.
            self._disk.remove(path)
            return None
        return checkpoints.parse_partition_metadata(data, path)

    def _read_epochs(self, names: set[str]) -> None:
        if leader_epochs.FILE_NAME not in names:
            return
        path = f"{self._path}/{leader_epochs.FILE_NAME}"
        found = checkpoints.parse_epochs(self._disk.read_file(path), path)
        cache = leader_epochs.LeaderEpochs(lambda: None)
        for epoch, start_offset in found:
            cache.assign(epoch, start_offset)
        self._epochs = cache.entries
        if self._epochs != found:
            self._epochs_changed = True
            _logger.warning(
                "%s is not in ascending order, of contradicting lines the later counts: %s",
                path,
                self._epochs,
            )

    def _cut_epochs(self, start_offset: int, end_offset: int) -> None:
        def changed() -> None:
            self._epochs_changed = True

        cache = leader_epochs.LeaderEpochs(changed)
        cache.load(self._epochs)
        cache.truncate_from_end(end_offset)
        cache.truncate_from_start(start_offset)
        self._epochs = cache.entries

    # -- segments ------------------------------------------------------------------------------

    def _open_segments(self, names: set[str]) -> list[LogSegment]:
        bases = sorted(
            parsed[0] for name in names if (parsed := parse_file_name(name)) and parsed[1] == LOG
        )
        known = set(bases)
        for name in sorted(names):
            parsed = parse_file_name(name)
            if parsed and parsed[1] in (INDEX, TIME_INDEX, TXN_INDEX) and parsed[0] not in known:
                self._disk.remove(f"{self._path}/{name}")
                names.remove(name)
        return [
            LogSegment(
                self._directory,
                self._path,
                base,
                size=self._disk.size(f"{self._path}/{file_stem(base)}{LOG}"),
                created_ms=self._now_ms,
                has_txn_index=f"{file_stem(base)}{TXN_INDEX}" in names,
            )
            for base in bases
        ]

    def _first_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment(
            self._directory, self._path, base_offset, size=0, created_ms=self._now_ms
        )
        segment.create_files(self._request.config.segment_index_bytes)
        segment.become_inactive()
        return segment

    def _is_damaged(self, segment: LogSegment, names: set[str]) -> bool:
        """Whether even a cleanly stopped segment must be recovered: index gone or impossible."""
        if file_stem(segment.base_offset) + INDEX not in names:
            _logger.warning("offset index is missing, recovering segment=%s", segment.path)
            return True
        try:
            segment.sanity_check()
        except CorruptIndex as error:
            _logger.warning(
                "index is corrupt, recovering segment=%s problem=%s", segment.path, error
            )
            return True
        return False

    def _remove_segments(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            for path in segment.rename_to_deleted():
                self._disk.remove(path)

    # -- recovery ------------------------------------------------------------------------------

    def _clean_end(self, segments: list[LogSegment]) -> int:
        """The end of a log that was stopped in order; a last segment in disorder is recovered."""
        try:
            return segments[-1].checked_next_offset()
        except (CorruptIndex, CorruptBatch) as error:
            _logger.warning(
                "the last segment is in disorder, recovering segment=%s problem=%s",
                segments[-1].path,
                error,
            )
            return self._recover(segments, segments[-1:])

    def _recover(self, segments: list[LogSegment], damaged: list[LogSegment]) -> int:
        """Check and re-index segments; drops what follows a cut.  Returns the log's end."""
        request = self._request
        self._ran_recovery = True
        first = len(segments)
        if not request.is_clean:
            first = 0
            for index, segment in enumerate(segments):
                if segment.base_offset <= request.recovery_point:
                    first = index
        for index in range(len(segments)):
            if index < first and segments[index] not in damaged:
                continue
            segment = segments[index]
            self._prepare_producers(segments, index)
            recovery = _SegmentRecovery(
                segment,
                request.config,
                self._producers,
                self._assign_epoch,
                epochs=self._epochs,
                following=segments[index + 1] if index + 1 < len(segments) else None,
                recovery_point=request.recovery_point,
                before_cut=partial(self._drop_segments, segments, index + 1),
            )
            cut_bytes = recovery.run()
            if cut_bytes:
                _logger.warning(
                    "cut a damaged tail partition=%s segment=%s bytes=%d end_offset=%d",
                    request.topic_partition,
                    segment.path,
                    cut_bytes,
                    recovery.end_offset,
                )
            lost = not cut_bytes and self._has_lost_records(segments, index, recovery.end_offset)
            if lost:
                _logger.warning(
                    "records are gone at the end of a segment partition=%s segment=%s end_offset=%d "
                    "next_segment=%d",
                    request.topic_partition,
                    segment.path,
                    recovery.end_offset,
                    segments[index + 1].base_offset,
                )
                self._drop_segments(segments, index + 1)
            if cut_bytes or lost:
                self._drop_snapshots_above(recovery.end_offset)
                return recovery.end_offset
            self._recovered_index = index
            if index == len(segments) - 1:
                return recovery.end_offset
        return self._clean_end(segments)

    def _drop_segments(self, segments: list[LogSegment], first: int) -> None:
        """Remove what is behind a cut before the cut is made: a crash in between leaves no hole."""
        removed = segments[first:]
        if removed:
            del segments[first:]
            self._remove_segments(removed[::-1])
            self._disk.sync_dir(self._path)

    def _has_lost_records(self, segments: list[LogSegment], index: int, end_offset: int) -> bool:
        """Whether the power went before the end of this segment was on the disk.

        The names of the next segments were there before what was in them, and a later one may be on
        the disk before an earlier one.  Only compaction leaves such gaps, also as empty segments, and
        followers of compacted logs copy them: there a gap before records is believed.
        """
        request, following = self._request, segments[index + 1 :]
        if request.is_clean or not following or following[0].base_offset <= end_offset:
            return False
        if following[0].base_offset <= max(request.recovery_point, request.cleaned_offset):
            return False
        return not request.config.is_compacted or all(later.size == 0 for later in following)

    def _assign_epoch(self, batch: AnyBatch) -> None:
        epoch = batch.partition_leader_epoch
        if batch.magic < 2 or epoch < 0:
            return
        newer = bisect_left(self._epochs, (epoch + 1, 0))
        if newer < len(self._epochs) and self._epochs[newer][1] <= batch.base_offset:
            # Cut once, and back: the cut never came to the disk, unlike the epochs that came after.
            # With those this log would pass for the leader's (KIP-101).
            self._epochs = self._epochs[:newer]
            self._epochs_changed = True
        if not self._epochs or epoch > self._epochs[-1][0]:
            cache = leader_epochs.LeaderEpochs(lambda: None)
            cache.load(self._epochs)
            cache.assign(epoch, batch.base_offset)
            self._epochs = cache.entries
            self._epochs_changed = True

    def _prepare_producers(self, segments: list[LogSegment], index: int) -> None:
        """Have the producer state at the segment's base, as recovery finds it."""
        base_offset = segments[index].base_offset
        if index > 0 and self._recovered_index == index - 1:
            return  # fed by the segment before
        log = self._temporary_log(segments[:index], base_offset)
        if log is None:
            self._producers.clear(base_offset)
            return
        log.rebuild_producers(base_offset)
        above = [offset for offset in self._snapshots if offset > base_offset]
        self._snapshots = log.snapshot_offsets + above

    def _temporary_log(self, segments: list[LogSegment], end_offset: int) -> Log | None:
        if not segments:
            return None
        return Log(
            self._directory,
            self._path,
            self._request.topic_partition,
            self._request.config,
            list(segments),
            log_end_offset=end_offset,
            log_start_offset=max(self._request.log_start_offset, segments[0].base_offset),
            recovery_point=end_offset,
            producers=self._producers,
            snapshots=[offset for offset in self._snapshots if offset <= end_offset],
            high_watermark=0,
        )

    # -- producers -----------------------------------------------------------------------------

    def _drop_snapshots_above(self, offset: int) -> None:
        self._drop_snapshots([o for o in self._snapshots if o > offset])

    def _drop_snapshots(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._snapshots.remove(offset)
            self._disk.remove(f"{self._path}/{file_stem(offset)}{SNAPSHOT}")

    def _load_producers(
        self, segments: list[LogSegment], start_offset: int, end_offset: int
    ) -> None:
        """The newest usable snapshot; the rest is replayed once the log exists.

        A log that was never seen without snapshots needs none: then nothing is replayed.
        """
        bases = {segment.base_offset for segment in segments}
        beyond = [o for o in self._snapshots if o > segments[-1].base_offset]
        strays = [o for o in self._snapshots if o not in bases and o not in beyond[-1:]]
        self._drop_snapshots(strays)
        self._drop_snapshots_above(end_offset)
        if self._ran_recovery and self._producers.map_end_offset == end_offset > 0:
            return
        if not self._snapshots and not self._ran_recovery:
            self._producers.clear(end_offset)
            return
        self._producers.clear(start_offset)
        for offset in sorted(self._snapshots, reverse=True):
            if offset <= start_offset and start_offset > 0:
                break
            path = f"{self._path}/{file_stem(offset)}{SNAPSHOT}"
            try:
                self._producers.load(self._disk.read_file(path), self._now_ms)
            except (CorruptSnapshot, NoSuchFile) as error:
                _logger.warning("unusable producer snapshot path=%s problem=%s", path, error)
                self._drop_snapshots([offset])
                continue
            self._producers.map_end_offset = offset
            return


def epoch_of(batch: AnyBatch) -> int:
    """The leader epoch a batch claims, -1 for none."""
    return batch.partition_leader_epoch if batch.magic >= 2 else -1


@dataclass(slots=True, frozen=True)
class _Doubt:
    """A batch that may be damaged where no checksum covers it; the next one tells.

    A gap in the offsets, as compaction leaves, is right when the next batch lies behind it; a leader
    epoch that nobody knew, or only from later on, when the next one does not fall below it.  One that
    falls below its predecessor's is right when the next one stays there, as after ZooKeeper was set
    back.
    """

    located: Located
    facts: BatchFacts
    epoch: int
    believed_epoch: int
    """Of the batch before."""
    leaves_gap: bool
    raises_epoch: bool

    @property
    def lowers_epoch(self) -> bool:
        return self.epoch != -1 and self.epoch < self.believed_epoch

    def has_wrong_offset(self, base_offset: int) -> bool:
        """Whether the next batch, with this base offset, contradicts its offsets."""
        return self.leaves_gap and base_offset <= self.facts.last_offset

    def has_wrong_epoch(self, epoch: int) -> bool:
        """Whether the next batch, of this leader epoch, contradicts its epoch."""
        if epoch < 0:
            return False
        return (self.raises_epoch and epoch < self.epoch) or (
            self.lowers_epoch and epoch >= self.believed_epoch
        )


class _SegmentRecovery:
    """One segment read batch by batch: indexes, epochs and producers made anew, the tail cut."""

    def __init__(
        self,
        segment: LogSegment,
        config: LogConfig,
        producers: ProducerState,
        assign_epoch: Callable[[AnyBatch], None],
        *,
        epochs: list[tuple[int, int]],
        following: LogSegment | None,
        recovery_point: int,
        before_cut: Callable[[], None],
    ) -> None:
        """`epochs` are those known so far; the file may lack the newest.

        What ends at or below `recovery_point` was synced and is not doubted.
        """
        self._recovery_point = recovery_point
        self._before_cut = before_cut
        self._segment = segment
        self._config = config
        self._epoch_starts = dict(epochs)
        self._epoch = max((e for e, start in epochs if start <= segment.base_offset), default=-1)
        self._following = following
        self._producers = producers
        self._assign_epoch = assign_epoch
        self.end_offset = segment.base_offset

    def run(self) -> int:
        """Returns the bytes that were cut."""
        segment, config = self._segment, self._config
        segment.index.create(config.segment_index_bytes)
        segment.time_index.create(config.segment_index_bytes)
        segment.txn_index.rewrite([])
        valid = 0
        since_index = 0
        highest, highest_offset = -1, segment.base_offset
        file_size = segment.size
        for located, facts in self._credible():
            batch = located.batch
            if facts.max_timestamp > highest:
                highest, highest_offset = facts.max_timestamp, facts.last_offset
            if since_index > config.index_interval_bytes:
                segment.index.append(facts.last_offset, located.position)
                segment.time_index.maybe_append(highest, highest_offset)
                since_index = 0
            since_index += facts.size
            self._assign_epoch(batch)
            if batch.producer_id > -1 and isinstance(batch, RecordBatch):
                completed = self._producers.update(batch)
                if completed is not None and completed.aborted:
                    segment.txn_index.append(self._producers.aborted_entry(completed))
            valid = located.position + facts.size
            self.end_offset = facts.last_offset + 1
        segment.set_max_timestamp(highest, highest_offset)
        if valid < file_size:
            self._before_cut()
            segment.cut_file(valid)
        segment.become_inactive()
        self._producers.map_end_offset = self.end_offset
        return file_size - valid

    def _sound(self) -> Iterator[tuple[Located, BatchFacts]]:
        """The batches up to the first that is damaged whatever is around it."""
        try:
            for located in self._segment.iterate():
                facts = read_facts(located.batch)
                problem = self._problem(located.batch, facts)
                if problem is not None:
                    _logger.warning(
                        "segment=%s is damaged: a batch at byte %d %s",
                        self._segment.path,
                        located.position,
                        problem,
                    )
                    break
                yield located, facts
            else:
                return
        except CorruptBatch as error:
            _logger.warning("segment=%s is damaged: %s", self._segment.path, error)
        self._following = None  # the log ends here

    def _problem(self, batch: AnyBatch, facts: BatchFacts) -> str | None:
        first, last = facts.base_offset, facts.last_offset
        if not batch.crc_is_valid():
            return "has another checksum"
        if last < first or last - self._segment.base_offset > MAX_RELATIVE_OFFSET:
            return f"claims offsets {first} to {last}"
        return None

    def _credible(self) -> Iterator[tuple[Located, BatchFacts]]:
        """The batches up to the first that is damaged.

        No checksum covers a batch's base offset and leader epoch.  What they claim is held against
        the batches around it, and in doubt the next one decides (see `_Doubt`).
        """
        end_offset = self._segment.base_offset
        doubt: _Doubt | None = None
        for located, facts in self._sound():
            epoch = epoch_of(located.batch)
            if doubt is not None:
                settled = self._settle(doubt, facts.base_offset, epoch)
                if settled is None:
                    return
                yield settled, doubt.facts
                self._believe(epoch_of(settled.batch))
                doubt = None
            if facts.base_offset < end_offset:
                return
            # An old wrapper is named after its last message: where it begins is not known here.
            leaves_gap = facts.base_offset > end_offset and located.batch.magic >= 2
            begun = self._epoch_starts.get(epoch, sys.maxsize) <= facts.base_offset
            raises_epoch = epoch > self._epoch and not begun
            synced = facts.last_offset < self._recovery_point
            doubtful = leaves_gap or raises_epoch or (epoch != -1 and epoch < self._epoch)
            if doubtful and not synced:
                doubt = _Doubt(located, facts, epoch, self._epoch, leaves_gap, raises_epoch)
            else:
                yield located, facts
                self._believe(epoch)
            end_offset = facts.last_offset + 1
        if doubt is not None:
            settled = self._settle_last(doubt)
            if settled is not None:
                yield settled, doubt.facts

    def _settle(self, doubt: _Doubt, base_offset: int, epoch: int) -> Located | None:
        """The batch as the next one, with these claims, proves it; None where it is damaged."""
        if not doubt.has_wrong_offset(base_offset):
            if not doubt.has_wrong_epoch(epoch):
                return doubt.located
            mended = self._mend_epoch(doubt, epoch)
            if mended is not None:
                return mended
        self._tell_of(doubt)
        return None

    def _mend_epoch(self, doubt: _Doubt, next_epoch: int) -> Located | None:
        """Write the right leader epoch into a batch that is whole but for it; None when it is unknown.

        It lies between those of its neighbours.  Where these differ the epoch file tells.  To cut
        the log here would cost all that follows, and a partition may have no other replica.
        """
        believed, base_offset = doubt.believed_epoch, doubt.facts.base_offset
        told = max((e for e, at in self._epoch_starts.items() if at <= base_offset), default=-1)
        epoch = believed if believed == next_epoch else told
        if not max(believed, 0) <= epoch <= next_epoch:
            return None
        segment, position = self._segment, doubt.located.position
        _logger.warning(
            "a batch at offset %d claimed leader epoch %d, it has %d segment=%s",
            base_offset,
            doubt.epoch,
            epoch,
            segment.path,
        )
        segment.file.pwrite(epoch.to_bytes(4, "big"), position + _EPOCH_POSITION)
        return next(segment.iterate(position, position + doubt.facts.size))

    def _believe(self, epoch: int) -> None:
        if epoch >= 0:
            self._epoch = epoch

    def _settle_last(self, doubt: _Doubt) -> Located | None:
        """As `_settle`, of the last batch of its segment.

        At the end of a log that is not compacted no gap is believed: the log would seem to go on far
        beyond its records.  A new epoch is: a leader that is killed may not have written it down.
        """
        if self._following is not None:
            with suppress(CorruptBatch):
                located = next(self._following.iterate(), None)
                if located is not None and located.batch.crc_is_valid():
                    batch = located.batch
                    return self._settle(doubt, batch.base_offset, epoch_of(batch))
        if doubt.lowers_epoch or (doubt.leaves_gap and not self._config.is_compacted):
            self._tell_of(doubt)
            return None
        return doubt.located

    def _tell_of(self, doubt: "_Doubt") -> None:
        _logger.warning(
            "a batch that claims offset %d and leader epoch %d is damaged segment=%s",
            doubt.facts.base_offset,
            doubt.epoch,
            self._segment.path,
        )


def _offset(name: str, suffix: str) -> int | None:
    """The offset in a segment file's name that carries a transient suffix."""
    if not name.endswith(suffix):
        return None
    parsed = parse_file_name(name.removesuffix(suffix))
    return None if parsed is None else parsed[0]
