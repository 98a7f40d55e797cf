"""Which of the oldest segments may go: log start, size, time (reference: log-store 7)."""

from bisect import bisect_right
from collections.abc import Sequence

from kafkalike.config import LogConfig

from .segment import LogSegment


def deletable_segments(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[LogSegment]:
    """The oldest segments that the rules let go, oldest first.

    Without `delete` in cleanup.policy only the log start counts.  A segment stays while any of it is
    at or above the high watermark, and so does the active one while it is empty.
    """
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(log_end_offset)
    limit = bisect_right(ends, high_watermark)
    if limit == len(segments) and segments[-1].size == 0:
        limit -= 1
    gone = 0
    while gone < limit and ends[gone] <= log_start_offset:
        gone += 1
    if config.is_deleted:
        if config.retention_bytes >= 0:
            excess = sum(segment.size for segment in segments[gone:]) - config.retention_bytes
            while gone < limit and excess - segments[gone].size >= 0:
                excess -= segments[gone].size
                gone += 1
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            while gone < limit and segments[gone].largest_timestamp < oldest_ms:
                gone += 1
    return list(segments[:gone])
