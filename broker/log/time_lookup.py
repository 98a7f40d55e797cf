"""Offsets by time (reference: log-store 9.1)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalike.records.compression import DecompressionError
from kafkalike.records.record import MalformedRecord, Record
from kafkalike.records.scan import AnyBatch

from .segment import LogSegment


class Found(NamedTuple):
    """A record that was looked for."""

    timestamp: int
    offset: int


def find_by_timestamp(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int
) -> Found | None:
    """The first record with a timestamp of at least `timestamp`, at or above `start_offset`."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        for located in segment.iterate(segment.position_for_time(timestamp, start_offset)):
            batch = located.batch
            if batch.max_timestamp < timestamp or batch.last_offset < start_offset:
                continue
            for record in _records(batch):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return Found(record.timestamp, record.offset)
    return None


def find_max_timestamp(segments: Sequence[LogSegment]) -> Found | None:
    """The first record that carries the largest timestamp of the log."""
    holder: LogSegment | None = None
    for segment in segments:
        if segment.max_timestamp >= 0 and (
            holder is None or segment.max_timestamp > holder.max_timestamp
        ):
            holder = segment
    if holder is None:
        return None
    position = holder.position_for(holder.max_timestamp_offset)
    for located in holder.iterate(position):
        best: Found | None = None
        for record in _records(located.batch):
            if best is None or record.timestamp > best.timestamp:
                best = Found(record.timestamp, record.offset)
        return best
    return None


def _records(batch: AnyBatch) -> Iterator[Record]:
    """The records of a stored batch; one that cannot be read counts as having none."""
    try:
        yield from batch.records()
    except (MalformedRecord, DecompressionError):
        return
