"""What a leader refuses, changes or lets pass (reference: record-format 7, 8; broker-errors 3)."""

import struct

import lz4.frame
import pytest
from crc32c import crc32c

from kafkalike.broker.log.deep_check import deep_check
from kafkalike.broker.log.log import Log
from kafkalike.broker.log.validation import AppendRules, needs_offload
from kafkalike.broker.log.values import FetchIsolation
from kafkalike.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
)
from kafkalike.records.batch import RecordBatch, encode_batch, parse_batch
from kafkalike.records.compression import Codec, compress
from kafkalike.records.legacy import encode_legacy, encode_message
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.runtime.ports import FileRange

from .support import NOW, World, batch, config, marker, values_of

ALL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def renewed(data: bytearray, *, at: int, fmt: str, value: int) -> bytearray:
    """The batch with one header field changed and its CRC right again."""
    struct.pack_into(fmt, data, at, value)
    found = RecordBatch(data)
    changed = bytearray(data)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21 : found.size]))
    return changed


def with_payload(payload: bytes, *, count: int, codec: int = 0) -> bytearray:
    """A batch of arbitrary payload with a right CRC."""
    data = encode_batch([Record(None, b"x", NOW)] * count)[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    return renewed(data, at=21, fmt=">H", value=codec)


def big(data: bytearray) -> bytearray:
    """Not small: more records than are looked at without being asked."""
    assert RecordBatch(data).count > 3
    return data


def sent(log: Log, data: bytes | bytearray) -> RecordBatch:
    """Append as a client; returns the batch that was stored."""
    log.append_as_leader(bytearray(data), 1, now_ms=NOW)
    return stored(log)


def stored(log: Log) -> RecordBatch:
    records = log.read(log.log_start_offset, 1 << 30, FetchIsolation.LOG_END).records
    assert isinstance(records, FileRange)
    found = list(iterate_batches(records.read()))[-1]
    assert isinstance(found, RecordBatch)
    assert found.crc_is_valid()
    return found


def refused(log: Log, data: bytes | bytearray, error: type[KafkaError]) -> KafkaError:
    before = log.log_end_offset
    with pytest.raises(error) as caught:
        log.append_as_leader(bytearray(data), 1, now_ms=NOW)
    assert type(caught.value) is error
    assert log.log_end_offset == before and log.size == 0
    return caught.value


def log_of(**settings: object) -> Log:
    return World().load(config(**settings))


# -- the batch as a whole ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch("a", base_offset=5), InvalidRecord),
        (batch("x" * 2000), MessageTooLarge),
        (batch("a")[:-1] + b"!", CorruptMessage),
        (batch("a") + batch("b"), InvalidRecord),
        (renewed(batch("a"), at=57, fmt=">i", value=2), InvalidRecord),
        (renewed(batch("a", "b"), at=23, fmt=">i", value=0), InvalidRecord),
        (renewed(batch("a"), at=23, fmt=">i", value=-1), InvalidRecord),
        (
            renewed(renewed(batch("a"), at=57, fmt=">i", value=0), at=23, fmt=">i", value=-1),
            InvalidRecord,
        ),
        (marker((1, 0), commit=True), InvalidRecord),
        (batch("a", producer=(5, 0, -1)), InvalidRecord),
    ],
)
def test_batches_that_are_refused(data: bytearray, error: type[KafkaError]) -> None:
    refused(log_of(max_message_bytes=1000), data, error)


def test_size_is_looked_at_before_the_checksum() -> None:
    broken = batch("x" * 2000)
    broken[-1] ^= 1
    refused(log_of(max_message_bytes=1000), broken, MessageTooLarge)


def test_impossible_sizes_and_formats_are_corrupt() -> None:
    log = log_of()
    for at, fmt, value in ((8, ">i", 0), (8, ">i", -5), (8, ">i", 20), (16, ">b", 3)):
        data = batch("a")
        struct.pack_into(fmt, data, at, value)
        refused(log, data, CorruptMessage)


def test_fields_that_nobody_looks_at_are_stored_as_sent() -> None:
    log = log_of()
    for data in (
        renewed(batch("a"), at=21, fmt=">H", value=0x8180),
        renewed(batch("a"), at=21, fmt=">H", value=0x40),
        renewed(batch("a", producer=(-2, -1, -1)), at=21, fmt=">H", value=0),
    ):
        attributes = RecordBatch(data).attributes
        found = sent(log, data)
        assert found.attributes == attributes


def test_coordinators_may_write_markers() -> None:
    log = log_of()
    info = log.append_as_leader(marker((1, 0), commit=True), 1, origin="coordinator", now_ms=NOW)
    assert info.first_offset == 0
    assert stored(log).is_control


# -- the records -------------------------------------------------------------------------------


@pytest.mark.parametrize("always", [False, True])
def test_small_batches_are_looked_into(always: bool) -> None:
    log = log_of()
    log._rules = AppendRules.of(log.config, always_deep=always)
    refused(log, with_payload(b"\x10garbage", count=1), InvalidRecord)
    refused(log, with_payload(b"\x00" * 20, count=1), InvalidRecord)
    refused(
        log, with_payload(parse_batch(batch("a", "b")).payload().tobytes(), count=1), InvalidRecord
    )


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_payloads_that_do_not_unpack_are_an_unknown_error_without_text(codec: Codec) -> None:
    log = log_of()
    payload = compress(codec, parse_batch(batch("a" * 100)).payload())
    error = refused(log, with_payload(payload[:-5], count=1, codec=codec), UnknownServerError)
    assert error.message is None
    refused(log, with_payload(b"\xff" * 30, count=1, codec=codec), UnknownServerError)


def test_an_empty_zstd_payload_and_unknown_codecs_have_their_own_errors() -> None:
    log = log_of()
    refused(log, with_payload(b"", count=1, codec=4), InvalidRecord)
    refused(log, with_payload(b"", count=1, codec=1), UnknownServerError)
    for codec in (5, 6, 7):
        refused(log, with_payload(b"x" * 100, count=9, codec=codec), UnknownServerError)


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_offsets_of_compressed_records_must_count_from_zero(codec: Codec) -> None:
    log = log_of()
    plain = batch("a", "b")
    payload = bytearray(parse_batch(plain).payload())
    payload[3] = 2  # the first record says offset delta 1
    refused(log, with_payload(compress(codec, payload), count=2, codec=codec), UnknownServerError)
    # Uncompressed ones are not looked at.
    sent(log, with_payload(bytes(payload), count=2))


def test_a_header_that_lies_about_a_small_batch_is_corrected() -> None:
    log = log_of()
    found = sent(log, renewed(batch("a", "b"), at=35, fmt=">q", value=NOW + 99))
    assert found.max_timestamp == NOW + 1
    found = sent(log, renewed(batch("a"), at=35, fmt=">q", value=NOW - 1))
    assert found.max_timestamp == NOW


def test_an_implausible_header_of_a_large_batch_is_corrected() -> None:
    log = log_of()
    data = big(renewed(batch(*"abcdef"), at=35, fmt=">q", value=5))
    assert sent(log, data).max_timestamp == NOW + 5
    too_short = with_payload(b"\x0c" + b"\0" * 6 + b"\x0c" * 20, count=9)
    with pytest.raises(InvalidRecord):
        log.append_as_leader(too_short, 1, now_ms=NOW)


def test_large_batches_pass_by_their_header() -> None:
    """The decision of this log: what only records tell is not looked at."""
    log = log_of()
    data = big(with_payload(b"\x03" * 100, count=9))
    assert sent(log, data).count == 9
    strict = log_of()
    strict._rules = AppendRules.of(strict.config, always_deep=True)
    refused(strict, data, InvalidRecord)


def test_lz4_that_kafkas_clients_cannot_read_is_refused_in_large_batches_too() -> None:
    payload = b"".join(b"\x0c" + b"\0" * 6 for _ in range(90_000))
    linked = lz4.frame.compress(payload, block_linked=True)
    refused(log_of(), with_payload(linked, count=90_000, codec=Codec.LZ4), UnknownServerError)
    separate = lz4.frame.compress(payload, block_linked=False)
    assert sent(log_of(), with_payload(separate, count=90_000, codec=Codec.LZ4)).count == 90_000


def test_compacted_topics_demand_keys() -> None:
    log = log_of(cleanup_policy="compact")
    data = encode_batch(
        [
            Record(b"k", b"v", NOW),
            Record(None, b"v", NOW),
            Record(b"", b"v", NOW),
            Record(None, None, NOW),
        ]
    )
    error = refused(log, data, InvalidRecord)
    assert [index for index, _ in error.record_errors] == [1, 3]
    sent(log, batch("a", "b", key=b"k"))
    for codec in ALL_CODECS:
        with pytest.raises(InvalidRecord):
            log.append_as_leader(batch(*"abcdefg", codec=codec), 1, now_ms=NOW)
    # What coordinators write is known to have keys.
    log.append_as_leader(batch("a"), 1, origin="coordinator", now_ms=NOW)


def test_timestamps_outside_the_limits_are_refused() -> None:
    log = log_of(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    times = (NOW - 1001, NOW - 1000, NOW + 500, NOW + 501, -1)
    data = encode_batch([Record(b"k", b"v", t) for t in times])
    error = refused(log, data, InvalidTimestamp)
    assert [index for index, _ in error.record_errors] == [0, 3]
    sent(log, encode_batch([Record(b"k", b"v", t) for t in times[1:3]]))


def test_a_bad_time_outweighs_a_missing_key() -> None:
    log = log_of(cleanup_policy="compact", message_timestamp_before_max_ms=1000)
    data = encode_batch([Record(None, b"v", NOW), Record(b"k", b"v", NOW - 2000)])
    error = refused(log, data, InvalidTimestamp)
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_producers_must_not_claim_append_time() -> None:
    claimed = encode_batch([Record(None, b"v", NOW)] * 5, append_time_ms=NOW)
    error = refused(log_of(message_timestamp_type="LogAppendTime"), claimed, InvalidTimestamp)
    assert len(error.record_errors) == 5
    refused(
        log_of(), encode_batch([Record(None, b"v", -1)] * 5, append_time_ms=-1), InvalidTimestamp
    )
    # With real times the bit is only taken away.
    found = sent(log_of(), claimed)
    assert not found.is_log_append_time and found.max_timestamp == NOW


# -- other codecs and formats ------------------------------------------------------------------


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_replaces_the_producers(source: Codec, target: str) -> None:
    log = log_of(compression_type=target)
    found = sent(log, batch("a", "b", "c", codec=source, producer=(7, 2, 10), transactional=True))
    assert found.codec == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[target]
    assert [r.value for r in found.records()] == [b"a", b"b", b"c"]
    assert [r.timestamp for r in found.records()] == [NOW, NOW + 1, NOW + 2]
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 2, 10)
    assert found.is_transactional and found.partition_leader_epoch == 1
    assert log.log_end_offset == 3


def test_a_rebuilt_batch_must_fit_too() -> None:
    data = batch("x" * 5000, codec=Codec.GZIP)
    assert len(data) < 1000
    refused(log_of(compression_type="uncompressed", max_message_bytes=1000), data, MessageTooLarge)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_become_one_batch(magic: int, codec: Codec) -> None:
    log = log_of()
    old = [Record(b"k", str(n).encode(), NOW + n, (), n) for n in range(4)]
    found = sent(log, encode_legacy(old, magic, codec))
    assert (found.magic, found.codec, found.count) == (2, codec, 4)
    assert [r.value for r in found.records()] == [b"0", b"1", b"2", b"3"]
    assert [r.timestamp for r in found.records()] == (
        [NOW, NOW + 1, NOW + 2, NOW + 3] if magic else [-1] * 4
    )
    assert found.max_timestamp == (NOW + 3 if magic else -1)


def test_old_messages_obey_the_topic_too() -> None:
    log = log_of(cleanup_policy="compact")
    error = refused(log, encode_message(1, None, b"v", offset=0, timestamp=NOW), InvalidRecord)
    assert [index for index, _ in error.record_errors] == [0]
    broken = bytearray(encode_message(1, b"k", b"v", offset=0, timestamp=NOW))
    broken[-1] ^= 1
    refused(log, broken, CorruptMessage)
    two = encode_legacy([Record(b"k", b"v", NOW, (), 0)], 1, Codec.GZIP) * 2
    refused(log_of(), two, InvalidRecord)


# -- off the loop ------------------------------------------------------------------------------


def test_long_checks_can_be_made_beforehand() -> None:
    log = log_of(compression_type="gzip")
    data = bytes(batch(*["x" * 1000] * 100))
    assert log.needs_offload(data)
    assert not log.needs_offload(bytes(batch("a")))
    assert not needs_offload(data, AppendRules.of(config()))
    deep = deep_check(data, log.append_rules, NOW)
    assert deep.replacement is not None
    info = log.append_as_leader(data, 3, now_ms=NOW, deep=deep)
    assert info.last_offset == 99
    assert stored(log).codec == Codec.GZIP
    assert len(values_of(log)) == 100
