"""Names on disk: partition directories and the files in them (reference: log-store 1, 2)."""

import re
from enum import Enum
from typing import Final, NamedTuple

from kafkalike.types import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

MAX_NAME_BYTES: Final = 255
_UNIQUE_DIGITS: Final = 32
IGNORED_DIRS: Final = frozenset({"remote-log-index-cache", "__cluster_metadata-0"})

_PLAIN: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_MARKED: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<unique>[0-9a-f]+)-(?P<mark>delete|stray|future)"
)
_SEGMENT_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")


class DirKind(Enum):
    """What a partition directory stands for."""

    CURRENT = ""
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class DirName(NamedTuple):
    """A partition directory's name, taken apart."""

    topic_partition: TopicPartition
    kind: DirKind


def parse_dir_name(name: str) -> DirName | None:
    """What a directory name stands for, None when it is no partition directory."""
    match = _MARKED.fullmatch(name)
    kind = DirKind.CURRENT
    if match is not None:
        kind = DirKind(match["mark"])
    else:
        match = _PLAIN.fullmatch(name)
        if match is None:
            return None
    return DirName(TopicPartition(match["topic"], int(match["partition"])), kind)


def dir_name(topic_partition: TopicPartition) -> str:
    """The directory of the current log."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def marked_dir_name(topic_partition: TopicPartition, kind: DirKind, unique: bytes) -> str:
    """A `-delete`, `-stray` or `-future` name made unique by 16 bytes.

    The topic is cut where the name would not fit; a `-future` name must not be cut: ValueError.
    """
    assert kind is not DirKind.CURRENT
    suffix = f"-{topic_partition.partition}.{unique.hex()}-{kind.value}"
    room = MAX_NAME_BYTES - len(suffix)
    if kind is DirKind.FUTURE and len(topic_partition.topic) > room:
        raise ValueError(f"the topic name {topic_partition.topic!r} is too long to be moved")
    return topic_partition.topic[:room] + suffix


def file_stem(offset: int) -> str:
    """20 digits."""
    return f"{offset:020d}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file or a snapshot, None for all others."""
    match = _SEGMENT_FILE.fullmatch(name)
    return None if match is None else (int(match[1]), "." + match[2])
