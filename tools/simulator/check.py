"""The form of a check, and what checks have in common."""

import bisect
from collections.abc import Iterator
from typing import Any, Final

from kafkalike.types import TopicPartition

from .evidence import Evidence
from .history import Operation, Refused

OFFSETS_TOPIC: Final = "__consumer_offsets"


class Check:
    """One promise."""

    name = ""

    def problems(self, evidence: Evidence) -> Iterator[str]:
        """One sentence for each time the promise was broken."""
        raise NotImplementedError


class Running:
    """The largest value of points up to a moment."""

    def __init__(self, points: list[tuple[int, int]]) -> None:
        """`points`: (moment, value)."""
        self._moments: list[int] = []
        self._best: list[int] = []
        for moment, value in sorted(points):
            self._moments.append(moment)
            self._best.append(max(value, self._best[-1]) if self._best else value)

    def before(self, moment: int) -> int:
        """The largest value earlier than `moment`; -1 when there is none."""
        index = bisect.bisect_left(self._moments, moment)
        return self._best[index - 1] if index else -1


def answer_of(operation: Operation) -> Any:
    """What an operation that ended was told."""
    assert operation.end is not None
    return operation.end.what


def reason_of(operation: Operation) -> str:
    what = operation.end.what if operation.end is not None else None
    return what.error if isinstance(what, Refused) else str(what)


def cleanup_policy(evidence: Evidence, topic: str) -> str:
    default = "compact" if topic.startswith("__") else "delete"
    return evidence.topic_config(topic).get("cleanup.policy", default)


def may_be_trimmed(evidence: Evidence, partition: TopicPartition) -> bool:
    """Whether the start of the log may have moved: retention, or DeleteRecords."""
    config = evidence.topic_config(partition.topic)
    if "retention.ms" in config or "retention.bytes" in config:
        return True
    return partition in evidence.trimmed
