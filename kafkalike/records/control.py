"""Transaction markers: the control records that end a transaction (reference: record-format 2)."""

import struct
from dataclasses import dataclass
from typing import Final

from .batch import RecordBatch, encode_batch
from .record import MalformedRecord, Record

ABORT: Final = 0
COMMIT: Final = 1
LEADER_CHANGE: Final = 2

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@dataclass(slots=True, frozen=True)
class EndTransactionMarker:
    """The end of one producer's transaction on one partition."""

    commit: bool
    coordinator_epoch: int


def encode_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """A control batch of 78 bytes with one marker."""
    record = Record(
        _KEY.pack(0, COMMIT if marker.commit else ABORT),
        _VALUE.pack(0, marker.coordinator_epoch),
        timestamp,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        transactional=True,
        control=True,
    )


def control_type(key: bytes | None) -> int:
    """The type of a control record; other than ABORT and COMMIT are to be ignored.

    Raises MalformedRecord when the key is shorter than 4 bytes or of a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise MalformedRecord("the key of a control record needs at least 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedRecord(f"a control record has version {version}")
    return int(kind)


def read_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """The marker in a control batch; None when the batch is empty (compacted) or of another type.

    Raises MalformedRecord.
    """
    for record in batch.records():
        kind = control_type(record.key)
        if kind not in (ABORT, COMMIT):
            return None
        if record.value is None or len(record.value) < _VALUE.size:
            raise MalformedRecord("the value of a transaction marker needs at least 6 bytes")
        version, coordinator_epoch = _VALUE.unpack_from(record.value)
        if version < 0:
            raise MalformedRecord(f"a transaction marker has version {version}")
        return EndTransactionMarker(kind == COMMIT, coordinator_epoch)
    return None
