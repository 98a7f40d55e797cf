"""Looking at every record of what a client sent: rules for records, conversion, recompression.

Reference: record-format 7, 8; broker-errors 3.  Pure functions of bytes and settings, so that a large
batch can be checked in a helper process (`validation.needs_offload`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalike.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
)
from kafkalike.records.batch import CorruptBatch, RecordBatch, encode_batch
from kafkalike.records.compression import Codec, DecompressionError, decompress
from kafkalike.records.legacy import LegacyBatch
from kafkalike.records.record import (
    NO_TIMESTAMP,
    MalformedRecord,
    OverlongLength,
    Record,
    iterate_raw,
    iterate_records,
)
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import Buffer

from .validation import MAX_LONG, AppendRules


class RecordError(NamedTuple):
    """One refused record: its place in the batch and what is wrong with it."""

    batch_index: int
    message: str | None


@dataclass(slots=True, frozen=True)
class DeepResult:
    """What a look at the records found.

    `replacement` is a rebuilt batch (base offset 0) to be stored instead of the one sent.
    """

    max_timestamp: int
    replacement: bytes | None = None


def deep_check(records: Buffer, rules: AppendRules, now_ms: int) -> DeepResult:
    """Look at every record of what a client sent: one batch of format 2, or old messages.

    Pure; bytes in, result out.  Raises the KafkaError that the client is to get: InvalidRecord and
    InvalidTimestamp carry `record_errors`, UnknownServerError means that records cannot be unpacked.
    """
    batches = list(iterate_batches(records))
    first = batches[0]
    if isinstance(first, LegacyBatch):
        return _convert_legacy(batches, rules, now_ms)
    target = first.codec if rules.codec is None else rules.codec
    payload = _unpack(first)
    try:
        highest, offsets_in_order = _check_records(first, payload, rules, now_ms)
        if first.codec != Codec.NONE and not offsets_in_order:
            raise UnknownServerError
        if target == first.codec:
            return DeepResult(highest)
        found = [
            record._replace(offset=-1)
            for record in iterate_records(
                payload,
                first.count,
                base_timestamp=first.base_timestamp,
                append_timestamp=first.max_timestamp if first.is_log_append_time else None,
            )
        ]
    except OverlongLength as error:
        # Kafka answers UNKNOWN_SERVER_ERROR without a text.
        raise UnknownServerError from error
    except MalformedRecord as error:
        raise InvalidRecord(f"Record batch is malformed: {error}") from error
    replacement = encode_batch(
        found,
        codec=Codec(target),
        level=rules.level,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        transactional=first.is_transactional,
        append_time_ms=now_ms if rules.log_append_time else None,
    )
    _check_rebuilt(replacement, rules)
    return DeepResult(highest, bytes(replacement))


def _unpack(batch: RecordBatch) -> Buffer:
    payload = batch.payload()
    if batch.codec == Codec.ZSTD and not payload:
        raise InvalidRecord("Record batch has an empty zstd payload")
    try:
        return decompress(batch.codec, payload)
    except DecompressionError as error:
        # Kafka answers UNKNOWN_SERVER_ERROR without a text.
        raise UnknownServerError from error


def _check_records(
    batch: RecordBatch, payload: Buffer, rules: AppendRules, now_ms: int
) -> tuple[int, bool]:
    """(largest timestamp, whether offset deltas are 0, 1, 2, ...) of records that obey the rules."""
    base = batch.base_timestamp
    marked_append_time = batch.is_log_append_time
    highest = NO_TIMESTAMP
    in_order = True
    errors: list[RecordError] = []
    bad_time = False
    for index, raw in enumerate(iterate_raw(payload, batch.count)):
        timestamp = batch.max_timestamp if marked_append_time else base + raw.timestamp_delta
        if not -MAX_LONG <= timestamp <= MAX_LONG:
            timestamp = _wrapped(timestamp)
        in_order = in_order and raw.offset_delta == index
        if rules.compacted and raw.key_length < 0:
            errors.append(
                RecordError(
                    index,
                    "Compacted topic cannot accept message without key",
                )
            )
            continue
        problem = _time_problem(timestamp, marked_append_time, rules, now_ms)
        if problem is not None:
            bad_time = True
            errors.append(RecordError(index, problem))
            continue
        highest = max(highest, timestamp)
    if errors:
        raise _rejected(errors, bad_time)
    return highest, in_order


def _wrapped(timestamp: int) -> int:
    """What the sum of a base and a delta is in 64 bits, which is how Kafka reads it."""
    return (timestamp + MAX_LONG + 1) % (2 * MAX_LONG + 2) - MAX_LONG - 1


def _time_problem(
    timestamp: int, marked_append_time: bool, rules: AppendRules, now_ms: int
) -> str | None:
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        age = now_ms - timestamp
        if not -MAX_LONG <= age <= MAX_LONG:
            age = _wrapped(age)
        if age > rules.before_max_ms or -age > rules.after_max_ms:
            return (
                f"Timestamp {timestamp} of message is out of range. The timestamp should be within "
                f"[{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]"
            )
        return None
    if marked_append_time:
        return "Producers must not set the timestamp type to LogAppendTime"
    return None


def _rejected(errors: Sequence[RecordError], bad_time: bool) -> KafkaError:
    error: KafkaError
    if bad_time:
        error = InvalidTimestamp("One or more records have been rejected due to invalid timestamp")
    else:
        error = InvalidRecord(
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: {list(errors[:3])}"
        )
    error.record_errors = tuple(errors)
    return error


def _convert_legacy(batches: list[AnyBatch], rules: AppendRules, now_ms: int) -> DeepResult:
    """Old messages become one batch of format 2."""
    source = Codec.NONE
    for batch in batches:
        if batch.codec != Codec.NONE:
            source = Codec(batch.codec) if batch.codec <= Codec.ZSTD else Codec.NONE
    if source != Codec.NONE and len(batches) > 1:
        raise InvalidRecord("Compressed outer record has more than one batch")
    found: list[Record] = []
    errors: list[RecordError] = []
    bad_time = False
    try:
        for batch in batches:
            if batch.magic != batches[0].magic:
                raise InvalidRecord("Messages of several formats in one append")
            assert isinstance(batch, LegacyBatch)
            for index, record in enumerate(batch.records()):
                if rules.compacted and record.key is None:
                    errors.append(
                        RecordError(index, "Compacted topic cannot accept message without key")
                    )
                problem = _time_problem(record.timestamp, batch.is_log_append_time, rules, now_ms)
                if problem is not None:
                    bad_time = True
                    errors.append(RecordError(index, problem))
                found.append(record._replace(offset=-1))
    except MalformedRecord as error:
        raise InvalidRecord(f"Message is malformed: {error}") from error
    except CorruptBatch as error:
        raise CorruptMessage(str(error)) from error
    except DecompressionError as error:
        raise UnknownServerError from error
    if errors:
        raise _rejected(errors, bad_time)
    replacement = encode_batch(
        found,
        codec=source if rules.codec is None else Codec(rules.codec),
        level=rules.level,
        append_time_ms=now_ms if rules.log_append_time else None,
    )
    _check_rebuilt(replacement, rules)
    return DeepResult(RecordBatch(replacement).max_timestamp, bytes(replacement))


def _check_rebuilt(batch: Buffer, rules: AppendRules) -> None:
    if len(batch) > rules.max_message_bytes:
        raise MessageTooLarge(
            f"Message batch size is {len(batch)} bytes in append which exceeds the maximum "
            f"configured size of {rules.max_message_bytes}."
        )
