"""Stored batches as old messages: record-format 9."""

import struct

import pytest

from kafkalike.broker.handlers.down_conversion import down_convert, magic_for
from kafkalike.errors import UnsupportedCompressionType
from kafkalike.records.batch import RecordBatch, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches

T0 = 1_700_000_000_000


def stored(first: int, count: int, codec: Codec = Codec.NONE, **more: bool) -> bytes:
    records = [
        Record(b"k%d" % n, b"value %d" % n, T0 + n, ((b"h", b"x"),), offset=first + n)
        for n in range(count)
    ]
    return bytes(encode_batch(records, base_offset=first, codec=codec, **more))


def messages(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for batch in iterate_batches(data)
        for record in batch.records()
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_every_record_is_there_in_the_old_format(magic: int, codec: Codec) -> None:
    data = stored(5, 3, codec) + stored(8, 2, codec)
    converted = down_convert(data, magic, 5)
    assert len(converted) >= len(data)
    assert all(batch.magic == magic for batch in iterate_batches(converted))
    found = messages(converted)
    # What grew beyond the size that was read is cut: the client comes back for it.
    assert len(found) >= 3
    assert (
        found
        == [
            (offset, T0 + n if magic else -1, b"k%d" % n, b"value %d" % n)
            for offset, n in ((5, 0), (6, 1), (7, 2), (8, 0), (9, 1))
        ][: len(found)]
    )


def test_uncompressed_records_below_the_offset_are_left_out() -> None:
    assert [m[0] for m in messages(down_convert(stored(0, 4), 1, 2))] == [2, 3]
    assert [m[0] for m in messages(down_convert(stored(0, 4, Codec.GZIP), 1, 2))] == [0, 1, 2, 3]


def test_the_answer_is_as_long_as_what_was_read() -> None:
    data = stored(0, 4)
    converted = down_convert(data, 1, 3)
    assert len(converted) == len(data)
    end = sum(batch.size for batch in iterate_batches(converted))
    offset, declared = struct.unpack_from(">qi", converted, end)
    assert (offset, declared) == (-1, max(len(data) - end + 1, 61))


def test_a_first_batch_that_grows_comes_whole() -> None:
    data = stored(0, 100)
    converted = down_convert(data[:], 1, 0)
    assert len(converted) > len(data)
    assert len(messages(converted)) == 100


def test_a_cut_first_batch_gives_nothing() -> None:
    assert down_convert(stored(0, 4)[:-1], 1, 0) == b""
    assert down_convert(b"", 0, 0) == b""


def test_zstd_cannot_be_converted() -> None:
    with pytest.raises(UnsupportedCompressionType):
        down_convert(stored(0, 2, Codec.ZSTD), 1, 0)
    data = stored(0, 2) + stored(2, 2) + stored(4, 2, Codec.ZSTD)
    # The first batch is converted by itself; zstd spoils the chunk that follows.
    assert [m[0] for m in messages(down_convert(data, 1, 0))] == [0, 1]


def test_control_batches_are_left_out() -> None:
    data = stored(0, 1, control=True, transactional=True)
    converted = down_convert(data, 1, 0)
    assert messages(converted) == []
    assert len(converted) == len(data)


def test_append_times_stay() -> None:
    batch = encode_batch([Record(b"k", b"v", T0, offset=0)], append_time_ms=T0 + 77)
    (found,) = messages(down_convert(bytes(batch), 1, 0))
    assert found == (0, T0 + 77, b"k", b"v")


def test_old_batches_stay_as_they_are() -> None:
    old = down_convert(stored(0, 1), 0, 0)
    (message,) = list(iterate_batches(old))
    kept = bytes(message.view())
    assert down_convert(kept, 1, 0) == kept
    assert not isinstance(message, RecordBatch)


def test_formats_of_versions() -> None:
    assert [magic_for(version) for version in range(4)] == [0, 0, 1, 1]
