"""Where `kafkalike-admin groups reset-offsets` moves a group to: parsing of what was asked for."""

import argparse
import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kafkalike.types import TopicPartition

from .. import cli

WAYS: Final = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_ONE_GROUP_COLUMNS: Final = 3
_MANY_GROUPS_COLUMNS: Final = 4


@dataclass(slots=True, frozen=True)
class Scope:
    """Topics a command is about; None partitions mean all of them."""

    topics: Mapping[str, tuple[int, ...] | None]


def parse_topics(texts: Iterable[str]) -> Scope:
    """`topic` or `topic:0,1`.  Raises UsageError."""
    topics: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        name, colon, numbers = text.rpartition(":")
        if not colon:
            topics[text] = None
            continue
        try:
            parsed = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            parsed = ()
        if not name or not parsed or min(parsed) < 0:
            raise cli.UsageError(f"--topic: expected TOPIC or TOPIC:P1,P2, found {text!r}")
        known = topics.get(name, ())
        topics[name] = None if known is None else (*known, *parsed)
    return Scope(topics)


def parse_datetime(text: str) -> int:
    """Milliseconds of `2026-01-31T12:00:00.000`, in UTC unless a zone is given.  Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or "T" not in text:
        raise cli.UsageError(
            f"--to-datetime: expected YYYY-MM-DDTHH:mm:SS.sss with or without zone, found {text!r}"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> timedelta:
    """`P1DT2H3M4S`, ISO 8601 with days as the largest unit.  Raises UsageError."""
    found = _DURATION.fullmatch(text)
    parts = found.groupdict() if found else {}
    numbers = {name: value for name, value in parts.items() if name != "sign" and value}
    if not numbers:
        raise cli.UsageError(f"--by-duration: expected a form like P7DT3H30M, found {text!r}")
    length = timedelta(**{name: float(value) for name, value in numbers.items()})
    return -length if parts["sign"] == "-" else length


def parse_plan(text: str, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """A file of rows `topic,partition,offset`, or `group,topic,partition,offset` for many groups.

    Raises UsageError naming the line.
    """
    plan: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            if len(row) == _ONE_GROUP_COLUMNS and len(groups) == 1:
                group, (topic, partition, offset) = groups[0], row
            elif len(row) == _MANY_GROUPS_COLUMNS:
                group, topic, partition, offset = row
            else:
                raise ValueError
            if group in plan:
                plan[group][TopicPartition(topic.strip(), int(partition))] = int(offset)
        except ValueError:
            raise cli.UsageError(
                f"--from-file: line {number}: expected topic,partition,offset"
                f" or group,topic,partition,offset, found {','.join(row)!r}"
            ) from None
    return plan


def print_plan(plan: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """What `parse_plan` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in plan.items():
        for key, offset in sorted(offsets.items()):
            row = [key.topic, key.partition, offset]
            writer.writerow(row if len(plan) == 1 else [group, *row])
    return out.getvalue()


def add_ways(parser: argparse.ArgumentParser) -> None:
    """The flags of which one must be given."""
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--to-earliest", action="store_true", help="to the beginning of the log")
    ways.add_argument("--to-latest", action="store_true", help="to the end of the log")
    ways.add_argument("--to-current", action="store_true", help="to what is committed now")
    ways.add_argument(
        "--to-offset", type=cli.whole(0, cli.MAX_LONG), metavar="N", help="to this offset"
    )
    ways.add_argument(
        "--shift-by",
        type=cli.whole(-cli.MAX_LONG, cli.MAX_LONG),
        metavar="N",
        help="N on, or back when negative",
    )
    ways.add_argument("--to-datetime", metavar="TIME", help="to the first record from this time")
    ways.add_argument(
        "--by-duration", metavar="P1DT2H", help="to the first record from so long ago"
    )
    ways.add_argument("--from-file", metavar="CSV", help="to the offsets in a file")


def clamp(wanted: int, earliest: int, latest: int) -> int:
    """The nearest offset that the log has."""
    return max(earliest, min(wanted, latest))
