"""What the processes of a chaos run write down, and how a record says where it belongs.

One event a line, fields separated by blanks, written with one `write` each so that a killed process
leaves whole lines.  Times are seconds of the monotonic clock, which all processes of a host share.

producer   A TIME PARTITION OFFSET SEQUENCE     acknowledged
           F TIME PARTITION SEQUENCE TEXT       given up: may be in the log or not
           X TIME TEXT                          the producer itself broke
           C TIME LIMIT                         its library is told to end within LIMIT seconds
           E TIME                               it ended in order: all that was sent has an outcome
reader     R TIME PARTITION OFFSET VALUE        read; VALUE is the record's head, see `head_of`
           O TIME PARTITION TEXT                its position was refused
           P TIME PARTITION TEXT                it was by a leader of the past, and asks again
observer   M TIME BROKER PARTITION LEADER EPOCH ISR    metadata of that broker changed
           H TIME BROKER PARTITION EPOCH OFFSET ONE    high watermark, as a careful client sees it
           W TIME PARTITION OFFSET TEXT         a reader at that offset was refused
zookeeper  Z TIME PARTITION LEADER EPOCH ISR VERSION   state znode
           C TIME BROKER EPOCH                         controller
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VALUE_BYTES: Final = 120
_HEAD: Final = re.compile(rb"([a-z][a-z0-9-]*)\|(\d+)\|(\d+)\|")


def value_of(producer: str, partition: int, sequence: int) -> bytes:
    """The record that this producer sends as its `sequence`-th to the partition; from 0."""
    head = b"%s|%d|%d|" % (producer.encode(), partition, sequence)
    rest = hashlib.sha256(head).hexdigest().encode()
    return (head + rest * 3)[:VALUE_BYTES]


def parse_value(value: bytes) -> tuple[str, int, int] | None:
    """(producer, partition, sequence) of a record, None when no producer sent it like this."""
    found = _HEAD.match(value)
    if found is None:
        return None
    producer, partition, sequence = found[1].decode(), int(found[2]), int(found[3])
    return (
        (producer, partition, sequence)
        if value == value_of(producer, partition, sequence)
        else None
    )


def head_of(value: bytes) -> str:
    """`producer|partition|sequence`, or the bytes in hex when it is no record of ours."""
    found = parse_value(value)
    return "|".join(map(str, found)) if found else "?" + value.hex()


class History:
    """One process's file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, kind: str, *fields: object) -> None:
        text = " ".join(str(field).replace("\n", " ") for field in fields)
        os.write(self._file, f"{kind} {time.monotonic():.3f} {text}\n".encode())

    def close(self) -> None:
        os.close(self._file)


def lines_of(path: Path) -> Iterator[tuple[str, float, list[str]]]:
    """(kind, time, fields) of each whole line."""
    if not path.exists():
        return
    with path.open(errors="replace") as file:
        for line in file:
            if line.endswith("\n"):
                kind, at, *fields = line.split()
                yield kind, float(at), fields
