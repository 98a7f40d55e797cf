"""Replicas held against each other: from lists, from files."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalike.broker.log.checkpoints import CLEANER_FILE, HIGH_WATERMARK_FILE, format_offsets
from kafkalike.broker.log.meta_properties import format_meta_properties
from kafkalike.runtime.tasks import as_deferred
from kafkalike.tools import cli
from kafkalike.tools.admin import log_compare, main
from kafkalike.tools.admin.log_compare import (
    Batch,
    Compared,
    Unreadable,
    compare_replicas,
    cut,
    read_dirs,
)
from kafkalike.types import TopicPartition
from tests.fakes import result_of
from tests.unit.log.support import batch

TP = TopicPartition("t", 0)


def made(base: int, *values: str, epoch: int = 1) -> Batch:
    data = bytes(batch(*values, base_offset=base, epoch=epoch))
    return Batch(base, base + len(values) - 1, data)


LOG = [made(0, "a", "b"), made(2, "c"), made(3, "d", "e", "f"), made(6, "g")]


class Scripted:
    """A replica out of a list; an exception in it is raised in its place."""

    def __init__(self, where: str, batches: Sequence[Batch | Unreadable]) -> None:
        self.where = where
        self._left = list(batches)

    async def next(self) -> Batch | None:
        item = self._left.pop(0) if self._left else None
        if isinstance(item, Unreadable):
            raise item
        return item


def compared(
    reference: Sequence[Batch | Unreadable], *others: Sequence[Batch | Unreadable]
) -> Compared:
    replicas = [Scripted(f"other {number}", batches) for number, batches in enumerate(others)]
    work = compare_replicas(TP, Scripted("reference", reference), replicas)
    return result_of(as_deferred(work))


def test_equal_logs() -> None:
    result = compared(LOG, LOG, LOG)
    assert result.differences == []
    assert (result.batches, result.bytes) == (4, sum(len(b.data) for b in LOG))


def test_a_replica_that_is_behind_or_ahead_is_compared_as_far_as_it_goes() -> None:
    assert compared(LOG, LOG[:2], []).differences == []
    assert compared(LOG[:2], LOG).differences == []
    assert compared(LOG).differences == [], "nobody to compare with"


def test_a_log_that_begins_later_or_earlier_is_compared_from_there() -> None:
    assert compared(LOG, LOG[2:]).differences == []
    assert compared(LOG[2:], LOG).differences == []
    assert compared(LOG[:1], LOG[2:]).differences == []


def test_one_bit_matters() -> None:
    data = bytearray(LOG[2].data)
    data[-1] ^= 1
    wrong = [*LOG[:2], Batch(3, 5, bytes(data)), LOG[3]]
    (difference,) = compared(LOG, LOG, wrong).differences
    assert (difference.where, difference.subject) == ("other 1", "t-0")
    assert difference.what == "batch at offset 3"
    assert difference.found == f"{difference.expected} (does not match)"


def test_another_leader_epoch_matters() -> None:
    wrong = [*LOG[:3], made(6, "g", epoch=2)]
    (difference,) = compared(LOG, wrong).differences
    assert "leader epoch 1" in difference.expected and "leader epoch 2" in difference.found


def test_gaps_on_either_side() -> None:
    (difference,) = compared(LOG, [*LOG[:2], LOG[3]]).differences
    assert (difference.what, difference.expected, difference.found) == (
        "offsets 3 to 5",
        "a batch",
        "nothing",
    )
    (difference,) = compared([*LOG[:2], LOG[3]], LOG).differences
    assert (difference.what, difference.expected, difference.found) == (
        "offsets 3 to 5",
        "nothing",
        "a batch",
    )


def test_another_cut_of_the_same_records_is_a_difference() -> None:
    assert len(compared(LOG, [made(0, "a"), made(1, "b"), *LOG[1:]]).differences) == 1


def test_replicas_that_cannot_be_read() -> None:
    result = compared(LOG, [LOG[0], Unreadable("broken")], LOG)
    assert [(d.where, d.found) for d in result.differences] == [("other 0", "broken")]
    assert result.batches == 4, "the rest goes on"
    result = compared([LOG[0], Unreadable("gone")], LOG)
    assert [(d.where, d.what, d.found) for d in result.differences] == [
        ("reference", "log", "gone")
    ]


def test_batches_are_cut_out_of_a_buffer_between_two_offsets() -> None:
    data = b"".join(b.data for b in LOG)
    assert list(cut(data, 0, 7)) == LOG
    assert list(cut(data, 1, 7)) == LOG, "a batch that reaches over the start is whole"
    assert list(cut(data, 2, 6)) == LOG[1:3]
    assert list(cut(data[:-1], 0, 7)) == LOG[:3]


# -- files -----------------------------------------------------------------------------------------


def write_dir(
    folder: Path,
    broker: int,
    segments: dict[int, bytes],
    high_watermark: int,
    cleaned: int | None = None,
) -> Path:
    """The log directory of a broker with one partition."""
    path = folder / f"broker-{broker}" / "data"
    log = path / "t-0"
    log.mkdir(parents=True)
    (path / "meta.properties").write_bytes(format_meta_properties("c", broker))
    (path / HIGH_WATERMARK_FILE).write_bytes(format_offsets({TP: high_watermark}))
    if cleaned is not None:
        (path / CLEANER_FILE).write_bytes(format_offsets({TP: cleaned}))
    (path / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    (path / "kafkalike-journal.jsonl").write_bytes(b"")
    for base, data in segments.items():
        (log / f"{base:020d}.log").write_bytes(data)
        (log / f"{base:020d}.index").write_bytes(b"")
    return path


WHOLE = b"".join(b.data for b in LOG)


def test_directories_with_segments_cut_differently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dir(tmp_path, 1, {0: WHOLE + b"torn"}, 7)
    write_dir(tmp_path, 2, {0: LOG[0].data, 2: WHOLE[len(LOG[0].data) :]}, 6)
    assert main.main(["verify", "--dir", str(tmp_path)]) == cli.DONE
    out = capsys.readouterr().out
    assert "no differences" in out and "2 logs" in out


def test_what_lies_above_a_high_watermark_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dir(tmp_path, 1, {0: WHOLE}, 7)
    write_dir(tmp_path, 2, {0: WHOLE[: -len(LOG[3].data)] + made(6, "other").data}, 6)
    assert main.main(["verify", "--dir", str(tmp_path)]) == cli.DONE


def test_a_difference_on_disk_is_found_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dir(tmp_path, 1, {0: WHOLE}, 7)
    path = write_dir(tmp_path, 2, {0: WHOLE[: -len(LOG[3].data)] + made(6, "other").data}, 7)
    assert main.main(["verify", "--dir", str(tmp_path)]) == cli.FAILED
    out, err = capsys.readouterr()
    assert f"log in {path}/t-0 (broker 2)  t-0" in out and "batch at offset 6" in out
    assert "1 differences" in err


def test_compacted_logs_are_compared_behind_the_compaction(tmp_path: Path) -> None:
    write_dir(tmp_path, 1, {0: WHOLE}, 7)
    write_dir(tmp_path, 2, {0: made(0, "z").data + LOG[2].data + LOG[3].data}, 7, cleaned=3)
    assert main.main(["verify", "--dir", str(tmp_path)]) == cli.DONE


def test_batches_larger_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_compare, "WINDOW_BYTES", 100)
    write_dir(tmp_path, 1, {0: WHOLE}, 7)
    write_dir(tmp_path, 2, {0: WHOLE}, 7)
    dirs = read_dirs([str(tmp_path)])
    first, second = dirs.logs[TP]
    result = result_of(as_deferred(compare_replicas(TP, first, [second])))
    assert (result.batches, result.differences) == (4, [])
    assert dirs.held_by(2) == [TP] and dirs.brokers == {1, 2}


def test_directories_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(cli.CommandError, match="is no directory"):
        read_dirs([str(tmp_path / "none")])
    with pytest.raises(cli.CommandError, match=r"no meta\.properties"):
        read_dirs([str(tmp_path)])
    path = write_dir(tmp_path, 1, {}, 0)
    (path / HIGH_WATERMARK_FILE).write_text("what?")
    with pytest.raises(cli.CommandError, match="replication-offset-checkpoint"):
        read_dirs([str(path)])
