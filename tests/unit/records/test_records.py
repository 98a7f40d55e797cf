"""Batches, records, markers, codecs and old messages against known bytes and each other."""

import gzip
import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.records.batch import (
    MAX_SEQUENCE,
    CorruptBatch,
    RecordBatch,
    add_sequence,
    encode_batch,
    parse_batch,
)
from kafkalike.records.compression import Codec, DecompressionError, compress, decompress
from kafkalike.records.control import (
    COMMIT,
    EndTransactionMarker,
    control_type,
    encode_marker,
    read_marker,
)
from kafkalike.records.legacy import LegacyBatch, encode_legacy, encode_message
from kafkalike.records.record import (
    MalformedRecord,
    Record,
    iterate_raw,
    read_varint,
    varint_size,
    write_varint,
)
from kafkalike.records.scan import iterate_batches

GOLDEN_BATCH = bytes.fromhex(
    "00000000000000000000003effffffff025e93538d0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000118000000026b02760202680278"
)
GOLDEN_MARKER = bytes.fromhex(
    "000000000000002a000000420000000502ad320ccb0030000000000000018bcfe568000000018bcfe56800"
    "00000000000003e80003ffffffff000000012000000008000000010c00000000000700"
)
TIMESTAMP = 1_700_000_000_000


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
    ],
)
def test_varints_are_zigzag_groups_of_seven_bits(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read_varint(out, 0) == (value, len(out))
    assert varint_size(value) == len(out)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(out, 0) == (value, len(out))


def test_a_varint_that_never_ends_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="longer than 5"):
        read_varint(b"\xff" * 9, 0, 5)
    with pytest.raises(MalformedRecord, match="runs out"):
        read_varint(b"\xff\xff", 0)


def test_the_golden_batch_is_built_and_read() -> None:
    record = Record(b"k", b"v", TIMESTAMP, ((b"h", b"x"),))
    assert bytes(encode_batch([record])) == GOLDEN_BATCH
    batch = parse_batch(GOLDEN_BATCH)
    assert batch.crc_is_valid()
    assert list(batch.records()) == [record._replace(offset=0)]
    assert (batch.size, batch.count, batch.max_timestamp) == (74, 1, TIMESTAMP)


def test_the_golden_marker_is_built_and_read() -> None:
    marker = EndTransactionMarker(commit=True, coordinator_epoch=7)
    built = encode_marker(
        marker,
        producer_id=1000,
        producer_epoch=3,
        timestamp=TIMESTAMP,
        base_offset=42,
        partition_leader_epoch=5,
    )
    assert bytes(built) == GOLDEN_MARKER
    batch = parse_batch(built)
    assert batch.is_control and batch.is_transactional and batch.crc_is_valid()
    assert read_marker(batch) == marker


def test_control_keys_tolerate_more_bytes_but_not_fewer() -> None:
    assert control_type(struct.pack(">hh", 3, COMMIT) + b"more") == COMMIT
    with pytest.raises(MalformedRecord):
        control_type(b"\0\0\0")
    with pytest.raises(MalformedRecord):
        control_type(struct.pack(">hh", -1, COMMIT))


def test_stamping_offsets_leaves_the_crc_and_stamping_time_renews_it() -> None:
    buffer = bytearray(GOLDEN_BATCH)
    batch = parse_batch(buffer)
    crc = batch.crc
    batch.stamp_offsets(1000, 7)
    again = parse_batch(buffer)
    assert (again.base_offset, again.partition_leader_epoch, again.crc) == (1000, 7, crc)
    batch.stamp_timestamp(log_append_time=True, max_timestamp=TIMESTAMP + 5)
    again = parse_batch(buffer)
    assert again.crc_is_valid() and again.crc != crc
    assert [r.timestamp for r in again.records()] == [TIMESTAMP + 5]
    batch.stamp_timestamp(log_append_time=False, max_timestamp=TIMESTAMP)
    assert parse_batch(buffer).crc == crc


def test_every_flipped_byte_behind_the_crc_is_noticed() -> None:
    for position in range(21, len(GOLDEN_BATCH)):
        broken = bytearray(GOLDEN_BATCH)
        broken[position] ^= 0x10
        assert not RecordBatch(broken).crc_is_valid()


@pytest.mark.parametrize("cut", range(len(GOLDEN_BATCH)))
def test_a_cut_batch_is_no_batch(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        parse_batch(GOLDEN_BATCH[:cut])
    assert list(iterate_batches(GOLDEN_BATCH[:cut])) == []


def test_sequences_wrap_after_the_largest_int() -> None:
    assert add_sequence(MAX_SEQUENCE, 1) == 0
    assert add_sequence(MAX_SEQUENCE - 1, 3) == 1
    batch = parse_batch(
        encode_batch(
            [Record(None, b"x", 1)] * 4, producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE
        )
    )
    assert batch.last_sequence == 2


nullable = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    key=nullable,
    value=nullable,
    timestamp=st.integers(0, 2**50),
    headers=st.lists(st.tuples(st.binary(max_size=5), nullable), max_size=3).map(tuple),
    offset=st.just(-1),
)


@settings(max_examples=60)
@given(
    st.lists(records, min_size=1, max_size=20), st.sampled_from(list(Codec)), st.integers(0, 2**40)
)
def test_batches_of_any_records_and_codec_round_trip(
    given_records: list[Record], codec: Codec, base_offset: int
) -> None:
    batch = parse_batch(encode_batch(given_records, codec=codec, base_offset=base_offset))
    assert batch.crc_is_valid()
    assert batch.codec == codec
    assert batch.last_offset == base_offset + len(given_records) - 1
    assert batch.max_timestamp == max(r.timestamp for r in given_records)
    expected = [r._replace(offset=base_offset + n) for n, r in enumerate(given_records)]
    assert list(batch.records()) == expected


@settings(max_examples=60)
@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_damaged_payloads_are_refused_or_read_but_never_worse(
    given_records: list[Record], data: st.DataObject
) -> None:
    payload = bytearray(parse_batch(encode_batch(given_records)).payload())
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] = data.draw(st.integers(0, 255))
    try:
        found = list(iterate_raw(payload, len(given_records)))
    except MalformedRecord:
        return
    assert found[-1].end == len(payload)


@pytest.mark.parametrize(
    ("payload", "count", "problem"),
    [
        (bytes.fromhex("18000000026b02760202680278"), 2, "runs out"),
        (bytes.fromhex("18000000026b02760202680278ff"), 1, "are left behind"),
        (bytes.fromhex("16000000026b02760202680278"), 1, "beyond its end|declares to end"),
        (bytes.fromhex("1a000000026b02760202680278"), 1, "declares 13 bytes"),
        (bytes.fromhex("18000000026b02760201680278"), 1, "header key"),
        (bytes.fromhex("18000000026b02760102680278"), 1, "declares -1 headers"),
        (bytes.fromhex("18000000026b02764002680278"), 1, "declares 32 headers"),
        (bytes.fromhex("01000000026b02760202680278"), 1, "declares -1 bytes"),
    ],
)
def test_malformed_records_are_named(payload: bytes, count: int, problem: str) -> None:
    with pytest.raises(MalformedRecord, match=problem):
        list(iterate_raw(payload, count))


# -- codecs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
def test_codecs_round_trip(codec: Codec, size: int) -> None:
    data = bytes(n * 7 % 251 for n in range(size))
    assert bytes(decompress(codec, compress(codec, data))) == data


def test_lz4_frames_have_the_header_kafka_demands() -> None:
    assert compress(Codec.LZ4, b"abc")[:7].hex() == "04224d18604082"


def test_snappy_is_framed_as_xerial_and_read_raw_too() -> None:
    packed = compress(Codec.SNAPPY, b"a" * 100_000)
    assert packed[:16].hex() == "82534e41505059000000000100000001"
    assert decompress(Codec.SNAPPY, packed + packed) == b"a" * 200_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc"))) == b"abc"


def test_zstd_without_a_declared_size_grows_its_room() -> None:
    # Four run-length blocks of 100,000 bytes each, in a frame whose header declares no size.
    block = (100_000 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (100_000 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * 3 + last
    assert bytes(decompress(Codec.ZSTD, frame)) == b"x" * 400_000
    with pytest.raises(DecompressionError, match="more than"):
        decompress(Codec.ZSTD, frame, limit=399_999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_are_bounded(codec: Codec) -> None:
    packed = compress(codec, bytes(5_000_000))
    with pytest.raises(DecompressionError, match="more than"):
        decompress(codec, packed, limit=1_000_000)
    assert len(decompress(codec, packed, limit=5_000_000)) == 5_000_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_cut_and_foreign_payloads_are_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(n * n % 253 for n in range(70_000)))
    for cut in (0, 1, 5, 17, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:cut])
    with pytest.raises(DecompressionError):
        decompress(codec, b"\xff\xff\xff\xff\xff\xff\xff\xffnot a payload")


def test_lz4_frames_that_kafkas_reader_refuses_are_refused() -> None:
    """Kafka answers them with an error; stored, they could not be read by its own clients."""
    data = b"a line " * 30_000
    linked = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
    with pytest.raises(DecompressionError, match="linked blocks"):
        decompress(Codec.LZ4, linked)
    separate = lz4.frame.compress(data, block_linked=False, content_checksum=True, store_size=True)
    assert decompress(Codec.LZ4, separate) == data
    with pytest.raises(DecompressionError, match="dictionary"):
        decompress(Codec.LZ4, separate[:4] + bytes([separate[4] | 1]) + separate[5:])
    with pytest.raises(DecompressionError):
        decompress(Codec.LZ4, separate[:4])


def test_bytes_behind_the_end_are_ignored_for_gzip_and_lz4_only() -> None:
    for codec in (Codec.GZIP, Codec.LZ4):
        assert decompress(codec, compress(codec, b"abc") + b"zzz") == b"abc"
    for codec in (Codec.SNAPPY, Codec.ZSTD):
        with pytest.raises(DecompressionError):
            decompress(codec, compress(codec, b"abc") + b"zzz")


def test_codecs_five_to_seven_do_not_exist() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(DecompressionError, match="does not exist"):
            decompress(codec, b"")


def test_our_streams_are_read_by_the_plain_libraries() -> None:
    data = b"xyz" * 50_000
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, data))) == data


# -- old formats -------------------------------------------------------------------------------

OLD = [Record(b"k", b"v", 100, (), 7), Record(None, b"w", 90, (), 8), Record(b"z", None, 95, (), 9)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_round_trip(magic: int, codec: Codec) -> None:
    data = encode_legacy(OLD, magic, codec)
    batches = list(iterate_batches(data))
    assert len(batches) == (3 if codec == Codec.NONE else 1)
    assert all(isinstance(b, LegacyBatch) and b.crc_is_valid() for b in batches)
    assert batches[0].base_offset == 7
    assert batches[-1].last_offset == 9
    found = [record for batch in batches for record in batch.records()]
    assert found == [r._replace(timestamp=r.timestamp if magic else -1) for r in OLD]


def test_a_wrapper_with_append_time_overrides_its_messages() -> None:
    data = encode_legacy(OLD, 1, Codec.GZIP, append_time_ms=5000)
    (batch,) = iterate_batches(data)
    assert [r.timestamp for r in batch.records()] == [5000] * 3


def test_a_wrapper_of_offset_zero_numbers_from_zero() -> None:
    inner = b"".join(encode_message(1, None, b"x", offset=n, timestamp=1) for n in range(3))
    data = encode_message(1, None, compress(Codec.GZIP, inner), offset=0, attributes=Codec.GZIP)
    (batch,) = iterate_batches(data)
    assert [r.offset for r in batch.records()] == [0, 1, 2]


@pytest.mark.parametrize(
    "wrapper",
    [
        encode_message(1, None, None, offset=0, attributes=Codec.GZIP),
        encode_message(1, None, compress(Codec.GZIP, b""), offset=0, attributes=Codec.GZIP),
        encode_message(
            1,
            None,
            compress(Codec.GZIP, encode_message(0, None, b"x", offset=0)),
            offset=0,
            attributes=Codec.GZIP,
        ),
        encode_message(
            1,
            None,
            compress(Codec.GZIP, encode_message(1, None, b"x", offset=0, attributes=Codec.LZ4)),
            offset=0,
            attributes=Codec.GZIP,
        ),
        encode_message(
            1,
            None,
            compress(Codec.GZIP, encode_message(1, None, b"x", offset=0)[:-1]),
            offset=0,
            attributes=Codec.GZIP,
        ),
    ],
)
def test_impossible_wrappers_are_malformed(wrapper: bytes) -> None:
    (batch,) = iterate_batches(wrapper)
    with pytest.raises(MalformedRecord):
        list(batch.records())


def test_the_scan_names_impossible_sizes_and_formats() -> None:
    wrong_format = bytearray(GOLDEN_BATCH)
    wrong_format[16] = 9
    with pytest.raises(CorruptBatch, match="format 9"):
        list(iterate_batches(wrong_format))
    for size in (0, -1, 13, 40):
        wrong_size = bytearray(GOLDEN_BATCH)
        struct.pack_into(">i", wrong_size, 8, size)
        with pytest.raises(CorruptBatch, match="declares"):
            list(iterate_batches(wrong_size))
    assert len(list(iterate_batches(GOLDEN_BATCH + GOLDEN_MARKER + GOLDEN_BATCH[:30]))) == 2
