"""Leader epochs, checkpoints, metadata and names as they lie on disk."""

import pytest

from kafkalike.broker.log.checkpoints import (
    CorruptCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from kafkalike.broker.log.leader_epochs import LeaderEpochs
from kafkalike.broker.log.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    UnreadableMetaProperties,
    check_meta_properties,
    format_meta_properties,
    parse_meta_properties,
)
from kafkalike.broker.log.names import (
    DirKind,
    DirName,
    dir_name,
    marked_dir_name,
    parse_dir_name,
    parse_file_name,
)
from kafkalike.types import TopicPartition

T0 = TopicPartition("t", 0)


def cache(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(lambda: None)
    found.load(list(entries))
    return found


@pytest.mark.parametrize(
    ("before", "assign", "after"),
    [
        ([], (3, 10), [(3, 10)]),
        ([(1, 0)], (2, 10), [(1, 0), (2, 10)]),
        ([(1, 0), (2, 10)], (2, 10), [(1, 0), (2, 10)]),
        ([(1, 0), (2, 10)], (2, 20), [(1, 0), (2, 10)]),
        ([(1, 0), (2, 10)], (2, 5), [(1, 0), (2, 5)]),
        ([(1, 0), (2, 10)], (3, 10), [(1, 0), (3, 10)]),
        ([(1, 0), (2, 10)], (3, 0), [(3, 0)]),
        ([(1, 0), (2, 10), (4, 20)], (3, 30), [(1, 0), (2, 10), (3, 30)]),
        ([(1, 0), (2, 10), (4, 20)], (1, 5), [(1, 5)]),
        ([(5, 7)], (2, 3), [(2, 3)]),
    ],
)
def test_assigning_epochs(
    before: list[tuple[int, int]], assign: tuple[int, int], after: list[tuple[int, int]]
) -> None:
    epochs = cache(*before)
    assert epochs.assign(*assign) == (before != after)
    assert epochs.entries == after


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (2, 20)),
        (5, (5, 99)),
        (6, (-1, -1)),
    ],
)
def test_end_offsets(epoch: int, answer: tuple[int, int]) -> None:
    assert cache((2, 10), (5, 20)).end_offset_for(epoch, 99) == answer


def test_an_empty_cache_knows_nothing() -> None:
    assert cache().end_offset_for(0, 99) == (-1, -1)
    assert cache().latest_epoch is None
    assert cache().epoch_for_offset(3) is None


def test_negative_epochs_and_offsets_are_refused() -> None:
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            cache().assign(epoch, offset)


@pytest.mark.parametrize(
    ("end", "left"),
    [(0, []), (10, []), (11, [(2, 10)]), (20, [(2, 10)]), (21, [(2, 10), (5, 20)])],
)
def test_truncating_epochs_from_the_end(end: int, left: list[tuple[int, int]]) -> None:
    epochs = cache((2, 10), (5, 20))
    assert epochs.truncate_from_end(end) == (len(left) < 2)
    assert epochs.entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(2, 10), (5, 20)]),
        (10, [(2, 10), (5, 20)]),
        (15, [(2, 15), (5, 20)]),
        (20, [(5, 20)]),
        (30, [(5, 30)]),
    ],
)
def test_truncating_epochs_from_the_start(start: int, left: list[tuple[int, int]]) -> None:
    epochs = cache((2, 10), (5, 20))
    epochs.truncate_from_start(start)
    assert epochs.entries == left


def test_epochs_of_offsets() -> None:
    epochs = cache((2, 10), (5, 20))
    assert [epochs.epoch_for_offset(o) for o in (9, 10, 19, 20, 99)] == [None, 2, 2, 5, 5]


def test_checkpoints_look_like_kafkas() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c", 12): 0}
    data = format_offsets(offsets)
    assert data == b"0\n2\na 0 5\nb-c 12 0\n"
    assert parse_offsets(data, "x") == offsets
    assert format_offsets({}) == b"0\n0\n"
    assert parse_offsets(b"", "x") == {}
    assert format_epochs([(1, 0), (4, 9)]) == b"0\n2\n1 0\n4 9\n"
    assert parse_epochs(b"0\n2\n1 0\n4 9\n", "x") == [(1, 0), (4, 9)]


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0 5\nb 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 5\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 0 1_000\n",
        b"0\n1\na 0 \xd9\xa1\n",
        b"0\n1\na 0 " + b"9" * 5000 + b"\n",
        b"0\n" + b"9" * 5000 + b"\n",
        b"\xff\xfe",
    ],
)
def test_damaged_checkpoints_are_named(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="some-file"):
        parse_offsets(data, "some-file")


@pytest.mark.parametrize(
    "data",
    [b"0\n1\n1\n", b"0\n1\n-3 5\n", b"0\n1\n3 -5\n", b"0\n1\n2147483648 5\n", b"0\n1\n1_0 5\n"],
)
def test_damaged_epochs_are_named(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="some-file"):
        parse_epochs(data, "some-file")


def test_partition_metadata() -> None:
    topic_id = bytes(range(16))
    data = format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(data, "x") == topic_id
    assert parse_partition_metadata(data + b"\n", "x") == topic_id
    for bad in (
        b"",
        b"version: 7\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: ",
        b"version: 0\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"nothing",
    ):
        with pytest.raises(CorruptCheckpoint):
            parse_partition_metadata(bad, "x")


def test_names_of_directories() -> None:
    assert dir_name(TopicPartition("a-b", 7)) == "a-b-7"
    assert parse_dir_name("a-b-7") == DirName(TopicPartition("a-b", 7), DirKind.CURRENT)
    assert parse_dir_name("__consumer_offsets-49") == DirName(
        TopicPartition("__consumer_offsets", 49), DirKind.CURRENT
    )
    for kind in (DirKind.DELETE, DirKind.STRAY, DirKind.FUTURE):
        name = marked_dir_name(TopicPartition("a.b-1", 7), kind, bytes(range(16)))
        assert name == f"a.b-1-7.000102030405060708090a0b0c0d0e0f-{kind.value}"
        assert parse_dir_name(name) == DirName(TopicPartition("a.b-1", 7), kind)
    for name in ("a", "a-", "-3", "a-b", "a-1x", ""):
        assert parse_dir_name(name) is None


def test_long_topic_names_are_cut_but_not_for_moves() -> None:
    long = TopicPartition("x" * 249, 12)
    name = marked_dir_name(long, DirKind.DELETE, bytes(16))
    assert len(name) == 255
    with pytest.raises(ValueError, match="too long"):
        marked_dir_name(long, DirKind.FUTURE, bytes(16))


def test_names_of_files() -> None:
    assert parse_file_name("00000000000000000042.log") == (42, ".log")
    assert parse_file_name("00000000000000000042.timeindex") == (42, ".timeindex")
    assert parse_file_name("00000000000000000042.log.swap") is None
    assert parse_file_name("42.log") is None
    assert parse_file_name("partition.metadata") is None


def test_meta_properties_round_trip_and_refuse_kraft() -> None:
    data = format_meta_properties("some=cluster", 3)
    assert parse_meta_properties(data, "p") == MetaProperties("some=cluster", 3)
    kafka = b"#\n#Sun Nov 29 18:00:00 UTC 2026\ncluster.id=abc\nversion=0\nbroker.id=1\n"
    assert parse_meta_properties(kafka, "p") == MetaProperties("abc", 1)
    with pytest.raises(MetaPropertiesError, match="p: version 1 is KRaft's, expected 0"):
        parse_meta_properties(b"version=1\nnode.id=1\ncluster.id=x\n", "p")


@pytest.mark.parametrize("data", [b"", b"\0garbage\xffthis is nothing\n"])
def test_meta_properties_without_a_version_are_those_of_nobody_yet(data: bytes) -> None:
    """Kafka 3.9 starts with such a file and completes it."""
    assert parse_meta_properties(data, "p") == MetaProperties(None, None)


@pytest.mark.parametrize(
    "data", [b"version=7\nbroker.id=1\n", b"version=0\nbroker.id=one\n", b"version=\n", b"\\u12\n"]
)
def test_damaged_meta_properties_are_named(data: bytes) -> None:
    with pytest.raises(UnreadableMetaProperties, match="some-file:"):
        parse_meta_properties(data, "some-file")


def test_directories_must_agree() -> None:
    one, other = MetaProperties("c", 1), MetaProperties("c", 2)
    assert (
        check_meta_properties({"/a": one, "/b": None}, configured_broker_id=1, cluster_id="c") == 1
    )
    assert check_meta_properties({"/a": None}, configured_broker_id=1, cluster_id="c") is None
    for found, broker_id, cluster_id in (
        ({"/a": one, "/b": other}, None, "c"),
        ({"/a": one}, 2, "c"),
        ({"/a": one}, 1, "d"),
    ):
        with pytest.raises(MetaPropertiesError, match="/a"):
            check_meta_properties(found, configured_broker_id=broker_id, cluster_id=cluster_id)
