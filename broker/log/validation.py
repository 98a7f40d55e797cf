"""What a produced batch must satisfy, and how it is stamped (reference: record-format 7, 8).

A leader accepts exactly one batch of format 2 per append; older messages are converted into one.  The
common path reads the 61 bytes of the header and computes the CRC, whatever the batch holds.  Records
are looked at only where a rule demands it ("deep"):

- the topic is compacted: every record needs a key,
- the topic limits timestamps (message.timestamp.before/after.max.ms),
- the topic's codec differs from the batch's, or the messages are of format 0 or 1: they are rebuilt,
- the header is implausible (timestamps in the wrong order, too few bytes for its records, unknown
  codec, an lz4 frame that Kafka's clients cannot read): a look inside finds the fitting error,
- the batch is small (`SMALL_RECORDS`, `SMALL_BYTES`): the look costs about a microsecond.

So a large batch of an ordinary topic whose CRC is right but whose records are malformed, or whose
header lies about its largest timestamp, is stored as sent.  `deep_check.deep_check` is a pure
function of bytes and settings: it may run in another process meanwhile (`needs_offload`).
"""

from dataclasses import dataclass
from typing import Final

from kafkalike.config import LogConfig
from kafkalike.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from kafkalike.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    CorruptBatch,
    RecordBatch,
)
from kafkalike.records.compression import CODEC_NAMES, Codec, is_lz4_of_kafka
from kafkalike.records.record import MIN_RECORD_BYTES, NO_TIMESTAMP
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.runtime.ports import Buffer

SMALL_RECORDS: Final = 3
SMALL_BYTES: Final = 4096
OFFLOAD_BYTES: Final = 64 << 10
"""From this size on a deep check is worth a helper process."""
MAX_LONG: Final = 0x7FFFFFFFFFFFFFFF
LOG_APPEND_TIME_TYPE: Final = "LogAppendTime"


@dataclass(slots=True, frozen=True)
class AppendRules:
    """The settings of a topic that decide over its records; computed once per configuration."""

    max_message_bytes: int
    log_append_time: bool
    compacted: bool
    before_max_ms: int
    after_max_ms: int
    codec: int | None
    """Codec that the topic stores, None = as the producer sent it."""
    level: int | None
    always_deep: bool
    demands_records: bool
    """Whether the topic has a rule about single records."""

    @classmethod
    def of(cls, config: LogConfig, *, always_deep: bool = False) -> "AppendRules":
        """The rules of a topic.  `always_deep` looks into every batch, as Kafka does."""
        codec = CODEC_NAMES.get(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        log_append_time = config.message_timestamp_type == LOG_APPEND_TIME_TYPE
        before_max_ms = config.message_timestamp_before_max_ms
        after_max_ms = config.message_timestamp_after_max_ms
        limits_timestamps = before_max_ms != MAX_LONG or after_max_ms != MAX_LONG
        return cls(
            max_message_bytes=config.max_message_bytes,
            log_append_time=log_append_time,
            compacted=config.is_compacted,
            before_max_ms=before_max_ms,
            after_max_ms=after_max_ms,
            codec=codec,
            level=None if codec is None else levels.get(codec),
            always_deep=always_deep,
            demands_records=(
                config.is_compacted or always_deep or (limits_timestamps and not log_append_time)
            ),
        )


def analyse(records: Buffer, max_message_bytes: int | None, *, from_client: bool) -> list[AnyBatch]:
    """The whole batches in `records`, each checked for size and CRC; partial bytes are left out.

    `max_message_bytes` None checks no size.  Raises InvalidRecord, MessageTooLarge, CorruptMessage.
    """
    if len(records) >= HEADER_BYTES and records[16] == 2:
        # Nearly always all there is is one batch: no walk then.
        batch = RecordBatch(records)
        if batch.size == len(records):
            _check_sent(batch, max_message_bytes, from_client)
            return [batch]
    batches: list[AnyBatch] = []
    try:
        for each in iterate_batches(records):
            _check_sent(each, max_message_bytes, from_client)
            batches.append(each)
    except CorruptBatch as error:
        raise CorruptMessage(str(error)) from error
    return batches


def _check_sent(batch: AnyBatch, max_message_bytes: int | None, from_client: bool) -> None:
    if from_client and batch.magic == 2 and batch.base_offset != 0:
        raise InvalidRecord(
            f"The baseOffset of the record batch in the append should be 0, but it is "
            f"{batch.base_offset}"
        )
    if max_message_bytes is not None and batch.size > max_message_bytes:
        raise MessageTooLarge(
            f"The record batch size in the append is {batch.size} bytes which exceeds the "
            f"maximum configured value of {max_message_bytes}."
        )
    if not batch.crc_is_valid():
        raise CorruptMessage("Record is corrupt (stored crc does not match)")


def check_batch(batch: RecordBatch) -> None:
    """The rules for the header of a client's batch.  Raises InvalidRecord."""
    count, delta = batch.count, batch.last_offset_delta
    if delta + 1 <= 0 or count <= 0 or count != delta + 1:
        raise InvalidRecord(
            f"Inconsistent batch: {count} records but offsets up to base offset + {delta}"
        )
    if batch.attributes & CONTROL:
        raise InvalidRecord("Clients are not allowed to write control records")
    if batch.producer_id > -1 and batch.base_sequence < 0:
        raise InvalidRecord(
            f"Invalid sequence number {batch.base_sequence} in record batch with producerId "
            f"{batch.producer_id}"
        )


def needs_deep_check(batch: RecordBatch, rules: AppendRules) -> bool:
    """Whether the records of a batch from a client must be looked at."""
    if rules.demands_records:
        return True
    count, size = batch.count, batch.size
    attributes = batch.attributes
    if count <= SMALL_RECORDS and size <= SMALL_BYTES:
        # A plain batch has no codec, enough bytes and timestamps in order.
        return not (is_plain(batch) and not rules.codec and not attributes & LOG_APPEND_TIME)
    codec = attributes & CODEC_MASK
    return (
        batch.base_timestamp > batch.max_timestamp
        or codec > Codec.ZSTD
        or (codec == Codec.NONE and size - HEADER_BYTES < count * MIN_RECORD_BYTES)
        or (codec != Codec.NONE and size == HEADER_BYTES)
        or (rules.codec is not None and rules.codec != codec)
        or (codec == Codec.LZ4 and not is_lz4_of_kafka(batch.payload()))
        or (
            attributes & LOG_APPEND_TIME != 0
            and (rules.log_append_time or batch.max_timestamp == NO_TIMESTAMP)
        )
    )


def is_plain(batch: RecordBatch) -> bool:
    """Whether a small batch is of the commonest form and surely right.

    Uncompressed, no headers, lengths below 8 KB, and a header that tells the largest timestamp.
    Anything else only means that a full look is needed.
    """
    if batch.attributes & CODEC_MASK:
        return False
    data = batch.buffer
    position = batch.position + HEADER_BYTES
    end = batch.position + batch.size
    highest = NO_TIMESTAMP - batch.base_timestamp
    try:
        for _ in range(batch.count):
            stop = data[position]
            position += 1
            if stop > 0x7F:
                stop = stop & 0x7F | data[position] << 7
                position += 1
            if stop & 1 or stop > 0x3FFF:
                return False
            stop = position + (stop >> 1)
            delta = data[position + 1]
            if delta > 0x7F or delta & 1 or data[position + 2] > 0x7F or stop > end:
                return False
            delta >>= 1
            highest = delta if delta > highest else highest
            length = data[position + 3]  # of the key
            position += 4
            if length > 0x7F:
                length = length & 0x7F | data[position] << 7
                position += 1
            if not length & 1:
                if length > 0x3FFF:
                    return False
                position += length >> 1
            elif length != 1:
                return False
            length = data[position]  # of the value
            position += 1
            if length > 0x7F:
                length = length & 0x7F | data[position] << 7
                position += 1
            if not length & 1:
                if length > 0x3FFF:
                    return False
                position += length >> 1
            elif length != 1:
                return False
            if data[position] != 0 or position + 1 != stop:
                return False
            position += 1
    except IndexError:
        return False
    return position == end and batch.base_timestamp + highest == batch.max_timestamp


def needs_offload(records: Buffer, rules: AppendRules) -> bool:
    """Whether appending these bytes takes a deep check long enough to do it off the loop."""
    if len(records) < OFFLOAD_BYTES:
        return False
    if records[16] != 2:
        return True
    return needs_deep_check(RecordBatch(records), rules)
