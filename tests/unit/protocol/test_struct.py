"""What a declaration means on the wire, on a message made for the purpose."""

import copy
import re
import struct as packing

import pytest

from kafkalike.errors import UnsupportedVersion
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.protocol.primitives import (
    MalformedMessage,
    Records,
    UnencodableMessage,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)
from kafkalike.protocol.struct import Message, Struct, field, fields_of
from kafkalike.runtime.ports import FileRange
from kafkalike.tools.simulator.disk import MemoryDisk
from kafkalike.types import ZERO_UUID


class Sample(Message, versions=(0, 3), flexible=2):
    """Versions 0 and 1 are classic, 2 and 3 flexible."""

    class Common(Struct):
        value: int16 = -1

    class Item(Struct):
        class Detail(Struct):
            text: str = "none"
            numbers: list[int64] = []

        id: int32 = 0
        detail: Detail | None = None
        commons: "list[Sample.Common]" = []

    class Extra(Struct):
        left: int32 = -1
        right: str = ""

    flag: bool = False
    name: str = ""
    label: str | None = field(nullable_since=1, default="")
    items: list[Item] | None = []
    words: list[str] = field(since=1, default=[], ignorable=True)
    strict: int8 = field(since=1, default=7)
    old: int32 = field(until=1, default=0, ignorable=True)
    ids: list[uuid] = field(since=3, default=[])
    ratio: float64 = 0.0
    port: uint16 = 0
    blob: bytes | None = b""
    note: str | None = field(since=2, tag=0, default=None)
    extra: Extra = field(since=2, tag=1, default_factory=Extra)
    more: list[int32] = field(since=3, tag=5, default=[])


class Carrier(Message, versions=(0, 1), flexible=1):
    """Holds records in the middle."""

    before: int32 = 1
    records: Records | None = None
    after: int32 = 2


BLANK = "00 0000 0000 00000000 00000000 0000000000000000 0000 00000000"


def test_classic_layout() -> None:
    assert Sample().encode(0).hex() == BLANK.replace(" ", "")
    full = Sample(
        flag=True,
        name="ab",
        label="c",
        items=[
            Sample.Item(id=1, detail=None, commons=[Sample.Common(value=2)]),
            Sample.Item(id=2, detail=Sample.Item.Detail(text="d", numbers=[3])),
        ],
        old=4,
        ratio=1.0,
        port=65535,
        blob=b"xy",
    )
    expected = (
        "01 0002 6162 0001 63"
        "00000002"
        "00000001 ff 00000001 0002"
        "00000002 01 0001 64 00000001 0000000000000003 00000000"
        "00000004 3ff0000000000000 ffff 00000002 7879"
    )
    assert full.encode(0).hex() == expected.replace(" ", "")
    assert Sample.decode(full.encode(0), 0) == full


def test_flexible_layout() -> None:
    full = Sample(
        name="ab",
        label=None,
        items=[Sample.Item(id=1, detail=Sample.Item.Detail(text="", numbers=[3]))],
        words=["x", ""],
        ids=[b"0123456789abcdef"],
        blob=None,
        note="n",
        extra=Sample.Extra(left=5),
        more=[6],
    )
    expected = (
        "00 03 6162 00"
        "02 00000001 01 01 02 0000000000000003 00 01 00"
        "03 02 78 01 07"
        "02 30313233343536373839616263646566"
        "0000000000000000 0000 00"
        "03 00 02 02 6e 01 06 00000005 01 00 05 05 02 00000006"
    )
    assert full.encode(3).hex() == expected.replace(" ", "")
    assert Sample.decode(full.encode(3), 3) == full


def test_default_tagged_fields_are_left_out_and_read_as_default() -> None:
    raw = Sample().encode(2)
    assert raw.endswith(b"\0")
    decoded = Sample.decode(raw, 2)
    assert decoded == Sample()
    assert decoded.note is None
    assert decoded.extra == Sample.Extra()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("null", "empty"), [({"items": None}, {"items": []}), ({"blob": None}, {"blob": b""})]
)
def test_null_is_not_empty(version: int, null: dict[str, None], empty: dict[str, object]) -> None:
    (name,) = null
    nothing, blank = Sample(**null), Sample(**empty)  # type: ignore[arg-type]
    assert nothing.encode(version) != blank.encode(version)
    assert getattr(Sample.decode(nothing.encode(version), version), name) is None
    assert Sample.decode(blank.encode(version), version) == blank


def test_null_where_the_version_has_none() -> None:
    assert Sample.decode(Sample(label=None).encode(1), 1).label is None
    with pytest.raises(UnencodableMessage, match=r"^Sample v0: label: "):
        Sample(label=None).encode(0)
    raw = bytes.fromhex(BLANK.replace("0000 0000 ", "0000 ffff ", 1))
    with pytest.raises(MalformedMessage, match=r"^Sample v0: label: null, expected a string$"):
        Sample.decode(raw, 0)


def test_lengths_below_minus_one_are_null_too() -> None:
    raw = bytes.fromhex(BLANK)
    assert Sample.decode(raw[:5] + b"\xff\xff\xff\xfe" + raw[9:], 0).items is None
    assert Sample.decode(raw[:-4] + b"\x80\x00\x00\x00", 0).blob is None
    metadata = MetadataRequest.decode(b"\xff\xff\xff\xfe", 1)
    assert metadata.topics is None
    with pytest.raises(MalformedMessage, match="topics: null, expected an array"):
        MetadataRequest.decode(b"\xff\xff\xff\xfe", 0)


def test_compact_lengths_that_kafka_takes_as_negative_are_null() -> None:
    raw = Sample(items=None).encode(2)
    start = raw.index(b"\x01\x01\x00") + 2
    assert Sample.decode(raw[:start] + b"\xff\xff\xff\xff\x0f" + raw[start + 1 :], 2).items is None
    with pytest.raises(MalformedMessage, match="an array of 2147483647 elements"):
        Sample.decode(raw[:start] + b"\x80\x80\x80\x80\x08" + raw[start + 1 :], 2)


@pytest.mark.parametrize("version", [0, 1])
def test_field_that_an_old_version_cannot_carry(version: int) -> None:
    with pytest.raises(
        UnsupportedVersion, match=r"Sample v\d: note = 'n' needs version 2 or later"
    ):
        Sample(note="n").encode(version)
    with pytest.raises(UnsupportedVersion, match=r"Sample v\d: extra = .*Extra.* needs version 2"):
        Sample(extra=Sample.Extra(left=0)).encode(version)
    with pytest.raises(UnsupportedVersion, match=r"ids = .* needs version 3 or later"):
        Sample(ids=[ZERO_UUID]).encode(version)


def test_strict_field_at_its_default_and_ignorable_ones_pass() -> None:
    assert Sample(strict=7, words=["gone"]).encode(0) == Sample().encode(0)
    with pytest.raises(UnsupportedVersion, match="strict = 8 needs version 1 or later"):
        Sample(strict=8).encode(0)
    assert Sample(old=9).encode(2) == Sample().encode(2)
    assert Sample.decode(Sample(old=9).encode(2), 2).old == 0


def test_gate_inside_an_array_names_the_element() -> None:
    topic = FetchRequest.FetchTopic
    request = FetchRequest(
        topics=[
            topic(partitions=[topic.FetchPartition(), topic.FetchPartition(last_fetched_epoch=3)])
        ]
    )
    with pytest.raises(UnsupportedVersion, match="last_fetched_epoch = 3 needs version 12"):
        request.encode(11)


@pytest.mark.parametrize("version", [-1, 4, 100])
def test_versions_that_do_not_exist(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"Sample has versions 0 to 3, not {version}"):
        Sample().encode(version)
    with pytest.raises(UnsupportedVersion, match=f"Sample has versions 0 to 3, not {version}"):
        Sample.decode(b"", version)


def tagged(section: str) -> bytes:
    return Sample().encode(3)[:-1] + bytes.fromhex(section)


def test_unknown_tags_are_skipped() -> None:
    raw = tagged("03 00 02 02 6e 63 02 abcd 8101 00")
    assert Sample.decode_prefix(raw, 3) == (Sample(note="n"), len(raw))


def test_tags_of_later_versions_are_unknown_to_earlier_ones() -> None:
    raw = Sample().encode(2)[:-1] + bytes.fromhex("01 05 05 02 00000006")
    assert Sample.decode_prefix(raw, 2) == (Sample(), len(raw))


def test_tags_may_descend_and_repeat() -> None:
    raw = tagged("03 05 05 02 00000006 00 02 02 6e 00 02 02 6d")
    assert Sample.decode(raw, 3) == Sample(note="m", more=[6])


def test_declared_size_of_a_known_tag_does_not_matter() -> None:
    assert Sample.decode(tagged("01 00 7f 02 6e"), 3).note == "n"


def test_negative_tag_count_reads_as_none() -> None:
    raw = tagged("ffffffff0f")
    assert Sample.decode_prefix(raw, 3) == (Sample(), len(raw))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("01", "tags: needs 2 bytes, but 0 are left"),
        ("01 63 05 abcd", "tags: tag 99 of 5 bytes, but 2 are left"),
        ("01 63 ffffffff0f ab", "tags: tag 99 of 4294967295 bytes, but 1 are left"),
        ("01 00 02 05 6e", "note: a string of 4 bytes, but 1 are left"),
        ("01 63 ffffffffff0f", "tags: a varint of more than five bytes"),
    ],
)
def test_bad_tags(section: str, message: str) -> None:
    with pytest.raises(MalformedMessage, match=f"^Sample v3: {re.escape(message)}"):
        Sample.decode(tagged(section), 3)


def test_what_follows_a_message_is_left() -> None:
    raw = Sample().encode(1)
    assert Sample.decode_prefix(b"xx" + raw + b"more", 1, 2) == (Sample(), 2 + len(raw))
    assert Sample.decode(raw + b"more", 1) == Sample()


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("place", "count"), [("items", 2**31 - 1), ("items", 1000), ("words", 2**24), ("ids", 2**20)]
)
def test_array_lengths_are_checked_before_memory_is_taken(
    version: int, place: str, count: int
) -> None:
    version = max(version, {"items": 0, "words": 1, "ids": 3}[place])
    raw = bytearray(Sample().encode(version))
    compact = version >= 2
    # items follow flag, name and label; words follow items; ids follow words and strict
    start = 3 if compact else 5
    start += {"items": 0, "words": 1, "ids": 3}[place] * (1 if compact else 4)
    length = varint(count + 1) if compact else packing.pack(">i", count)
    raw[start : start + (1 if compact else 4)] = length
    with pytest.raises(
        MalformedMessage, match=f"{place}: an array of {count} elements of at least"
    ):
        Sample.decode(bytes(raw), version)


def varint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded += bytes((value & 127 | 128,))
        value >>= 7
    return encoded + bytes((value,))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_prefix_is_refused_with_a_place(version: int) -> None:
    sample = Sample(name="name", items=[Sample.Item(detail=Sample.Item.Detail())], blob=b"blob")
    raw = sample.encode(version)
    for end in range(len(raw)):
        with pytest.raises(MalformedMessage, match=rf"^Sample v{version}: \w+"):
            Sample.decode(raw[:end], version)


def test_place_in_nested_arrays_is_named() -> None:
    request = ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=b"1"),
                    ProduceRequest.TopicProduceData.PartitionProduceData(index=1, records=b"234"),
                ],
            )
        ]
    )
    for version, cut in ((8, 0), (9, 3)):
        raw = request.encode(version)
        with pytest.raises(MalformedMessage) as caught:
            ProduceRequest.decode(raw[: len(raw) - 1 - cut], version)
        assert str(caught.value) == (
            f"ProduceRequest v{version}: topic_data[0].partition_data[1].records:"
            " records of 3 bytes, but 2 are left"
        )


@pytest.mark.parametrize(
    ("sample", "version", "message"),
    [
        (Sample(name=None), 0, "name: "),  # type: ignore[arg-type]
        (Sample(port=70000), 0, "port: "),
        (Sample(port=-1), 2, "port: "),
        (Sample(items=[Sample.Item(), Sample.Item(id=2**31)]), 2, "items[1].id: "),
        (
            Sample(items=[Sample.Item(commons=[Sample.Common(value=2**15)])]),
            0,
            "items[0].commons[0].value: ",
        ),
        (Sample(items=[Sample.Item(commons=[3])]), 0, "items[0].commons[0].value: "),  # type: ignore[list-item]
        (Sample(words=["a", None]), 1, "words[1]: "),  # type: ignore[list-item]
        (Sample(ids=[b"short"]), 3, "ids[0]: an id of 5 bytes, expected 16"),
        (Sample(name="x" * 32768), 2, "name: a string of 32768 bytes, expected at most 32767"),
        (Sample(name="x" * 32768), 0, "name: "),
        (Sample(note="x" * 32768), 2, "note: a string of 32768 bytes"),
        (Sample(blob=5), 0, "blob: "),  # type: ignore[arg-type]
        (Sample(more=[2**31]), 3, "more: "),
    ],
)
def test_values_that_do_not_fit_are_named(sample: Sample, version: int, message: str) -> None:
    with pytest.raises(UnencodableMessage, match=f"^Sample v{version}: {re.escape(message)}"):
        sample.encode(version)


@pytest.mark.parametrize("version", [1, 2])
def test_longest_string(version: int) -> None:
    sample = Sample(name="x" * 32767, label="é" * 16383)
    assert Sample.decode(sample.encode(version), version) == sample


def test_lone_surrogates_become_question_marks() -> None:
    assert Sample.decode(Sample(name="a\ud800b").encode(0), 0).name == "a?b"


@pytest.mark.parametrize("count", [0, 1, 32, 33, 126, 127, 128, 5000])
@pytest.mark.parametrize("version", [0, 2])
def test_integer_arrays_of_any_length(count: int, version: int) -> None:
    numbers = [(-1) ** number * number for number in range(count)]
    sample = Sample(items=[Sample.Item(detail=Sample.Item.Detail(numbers=numbers))])
    assert Sample.decode(sample.encode(version), version) == sample


# -- records


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_passed_on_and_not_copied(version: int) -> None:
    batch = memoryview(bytearray(b"a record batch"))
    start, middle, end = Carrier(records=batch).encode_parts(version)
    assert middle is batch
    assert isinstance(start, bytes)
    assert isinstance(end, bytes)
    assert start + bytes(batch) + end == Carrier(records=bytes(batch)).encode(version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", [list, tuple])
def test_records_in_pieces_and_from_files(version: int, kind: type) -> None:
    disk = MemoryDisk()
    file = disk.open("/log", create=True)
    file.append(b"0123456789")
    file_range = FileRange(file, 2, 5)
    pieces = kind([b"ab", file_range, memoryview(b"cd")])
    carrier = Carrier(records=pieces)
    _, first, second, third, _ = carrier.encode_parts(version)
    assert (first, second, third) == (b"ab", file_range, memoryview(b"cd"))
    assert second is file_range
    assert carrier.encode(version) == Carrier(records=b"ab23456cd").encode(version)
    alone = Carrier(records=file_range)
    assert alone.encode(version) == Carrier(records=b"23456").encode(version)


@pytest.mark.parametrize("version", [0, 1])
def test_no_records_and_empty_records(version: int) -> None:
    (nothing,) = Carrier(records=None).encode_parts(version)
    (empty,) = Carrier(records=b"").encode_parts(version)
    assert nothing != empty
    assert (Carrier(records=[]).encode(version)) == empty
    assert Carrier.decode(nothing, version).records is None  # type: ignore[arg-type]
    read = Carrier.decode(empty, version).records
    assert read is not None
    assert len(read) == 0


def test_decoded_records_are_views_of_the_buffer() -> None:
    buffer = bytearray(Carrier(records=b"batch").encode(0))
    decoded = Carrier.decode(buffer, 0)
    assert isinstance(decoded.records, memoryview)
    buffer[8:13] = b"BATCH"
    assert bytes(decoded.records) == b"BATCH"


def test_other_bytes_are_copies() -> None:
    buffer = bytearray(Sample(blob=b"blob", name="name").encode(0))
    decoded = Sample.decode(memoryview(buffer), 0)
    buffer[:] = bytes(len(buffer))
    assert type(decoded.blob) is bytes
    assert (decoded.blob, decoded.name) == (b"blob", "name")


# -- objects


def test_constructor_takes_any_subset_and_makes_fresh_lists() -> None:
    one, other = Sample(), Sample(name="x")
    assert one.items == []
    assert one.items is not other.items
    assert other.strict == 7
    with pytest.raises(TypeError, match="nothing"):
        Sample(nothing=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Sample(True)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        one.nothing = 1  # type: ignore[attr-defined]


def test_equality_is_by_value_and_class() -> None:
    assert Sample(name="a") == Sample(name="a")
    assert Sample(name="a") != Sample(name="b")
    others: list[object] = [Carrier(), 3, None, Sample.Common()]
    assert Sample() not in others
    with pytest.raises(TypeError, match="unhashable"):
        hash(Sample())


def test_text_form_shows_all_fields() -> None:
    assert repr(Sample.Extra(left=1)) == "Sample.Extra(left=1, right='')"
    assert repr(Sample().extra) == "Sample.Extra(left=-1, right='')"


def test_shared_default_cannot_be_changed_but_replaced() -> None:
    partition = FetchResponse.FetchableTopicResponse.PartitionData()
    with pytest.raises(AttributeError, match="assign a new LeaderIdAndEpoch"):
        partition.current_leader.leader_id = 1
    assert FetchResponse.FetchableTopicResponse.PartitionData().current_leader.leader_id == -1
    partition.current_leader = partition.LeaderIdAndEpoch(leader_id=1)
    partition.current_leader.leader_epoch = 2
    assert partition.current_leader == partition.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_can_be_changed(duplicate: object) -> None:
    assert callable(duplicate)
    original = Sample(items=[Sample.Item(id=1)])
    twin = duplicate(original)
    twin.name = "twin"
    assert original.name == ""
    leader = duplicate(FetchResponse.FetchableTopicResponse.PartitionData().current_leader)
    leader.leader_id = 4
    assert leader == FetchResponse.FetchableTopicResponse.PartitionData.LeaderIdAndEpoch(
        leader_id=4
    )


def test_deep_copy_of_a_message_with_shared_defaults() -> None:
    twin = copy.deepcopy(Sample(items=[Sample.Item(id=1)]))
    assert twin == Sample(items=[Sample.Item(id=1)])
    twin.extra.left = 3
    assert Sample().extra.left == -1


# -- mistakes in a declaration


def test_field_without_default() -> None:
    with pytest.raises(TypeError, match=r"Wrong.name: a field needs a default"):

        class Wrong(Struct):
            name: str

    with pytest.raises(TypeError, match=r"Unset.name: a field needs a default"):

        class Unset(Struct):
            name: str = field(since=1)


def test_field_named_like_an_attribute_of_messages() -> None:
    with pytest.raises(TypeError, match="max_version: the name is taken"):

        class Wrong(Message, versions=(0, 0)):
            max_version: int16 = 0  # type: ignore[misc]


def test_field_without_wire_type() -> None:
    class Wrong(Struct):
        number: int = 0

    with pytest.raises(TypeError, match="is no wire type"):
        fields_of(Wrong)


def test_shared_default_with_a_list() -> None:
    class Inner(Struct):
        numbers: list[int32] = []

    with pytest.raises(TypeError, match="lists cannot be shared"):

        class Wrong(Message, versions=(0, 0), flexible=0):
            inner: Inner = field(tag=0, default_factory=Inner)
