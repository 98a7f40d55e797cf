"""Small text files of a log directory: offset checkpoints, leader epochs, partition metadata.

Reference: log-store 2.3, 2.4, 3.  All share the form "version, count, lines"; they are replaced as a
whole.  Reading never trusts the file: what is wrong is named in a CorruptCheckpoint.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kafkalike.types import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1
LOCK_FILE: Final = ".lock"
PARTITION_METADATA_FILE: Final = "partition.metadata"
_VERSION: Final = 0
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")


class CorruptCheckpoint(ValueError):
    """A checkpoint file does not have the expected form."""


def _lines(text: str, what: str) -> list[str]:
    """The lines behind version and count, checked against both; an empty file has none."""
    lines = text.splitlines()
    if not lines:
        return []
    if lines[0].strip() != str(_VERSION):
        raise CorruptCheckpoint(f"{what}: version {lines[0]!r}, expected {_VERSION}")
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1].strip()):
        raise CorruptCheckpoint(f"{what}: the second line must be the number of entries")
    body = lines[2:]
    if len(body) != int(lines[1]):
        raise CorruptCheckpoint(f"{what}: {len(body)} entries where {lines[1]} were announced")
    return body


def _number(text: str, bits: int) -> int:
    """A decimal number of Java's int (31 bits and a sign) or long.  Raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError(f"{text} does not fit {bits + 1} bits")
    return value


def _text(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([str(_VERSION), str(len(body)), *body, ""]).encode()


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """The mark of a clean stop; -1: it does not say in which life of the broker."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The life that ended with this mark, -1 when it does not say; never fails, as in Kafka."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return NO_BROKER_EPOCH
    return epoch if type(epoch) is int and epoch >= 0 else NO_BROKER_EPOCH


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint."""
    return _text(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(data: bytes, what: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file.  Raises CorruptCheckpoint."""
    offsets = {}
    for line in _lines(data.decode("utf-8", "replace"), what):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, _number(partition, 31))] = _number(offset, 63)
        except ValueError:
            raise CorruptCheckpoint(
                f"{what}: {line!r} where 'topic partition offset' was expected"
            ) from None
    return offsets


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint."""
    return _text(f"{epoch} {offset}" for epoch, offset in entries)


def parse_epochs(data: bytes, what: str) -> list[tuple[int, int]]:
    """(epoch, start offset) as they stand in the file.  Raises CorruptCheckpoint."""
    entries: list[tuple[int, int]] = []
    for line in _lines(data.decode("utf-8", "replace"), what):
        fields = line.split()
        try:
            epoch, offset = fields
            entries.append((_number(epoch, 31), _number(offset, 63)))
        except ValueError:
            raise CorruptCheckpoint(f"{what}: {line!r} where 'epoch offset' was expected") from None
        if min(entries[-1]) < 0:
            raise CorruptCheckpoint(f"{what}: {line!r}: neither epoch nor offset may be negative")
    return entries


def format_partition_metadata(topic_id: bytes) -> bytes:
    """`partition.metadata` with the id of the topic (KIP-516)."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes, what: str) -> bytes:
    """The topic id, never the zero id.  Raises CorruptCheckpoint."""
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition(":")
        if not separator:
            raise CorruptCheckpoint(f"{what}: {line!r} where 'name: value' was expected")
        fields[name.strip()] = value.strip()
    if fields.get("version") not in ("0", "1"):
        raise CorruptCheckpoint(f"{what}: version {fields.get('version')!r}, expected 0")
    try:
        topic_id = uuid_from_text(fields["topic_id"])
    except KeyError:
        raise CorruptCheckpoint(f"{what}: topic_id is missing") from None
    except ValueError as error:
        raise CorruptCheckpoint(f"{what}: {error}") from error
    if not any(topic_id):
        raise CorruptCheckpoint(f"{what}: the zero id is not allowed")
    return topic_id
