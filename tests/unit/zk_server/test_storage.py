"""Log and snapshots on disk: what comes back after every kind of ending."""

import pathlib
import struct
from collections.abc import Iterator

import pytest

from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import StorageError
from kafkalike.zk.server.model import CreateOp, SetDataOp
from kafkalike.zk.server.storage import CorruptStorage, Storage
from kafkalike.zk.server.tree import CoordinationTree
from kafkalike.zk.server.watches import Caller

NOW = 1_700_000_000_000


class Life:
    """A tree with a storage behind it, from one start to its end."""

    def __init__(self, directory: pathlib.Path, *, fsync: bool = True) -> None:
        self.storage = Storage(RealDisk(), str(directory), fsync=fsync)
        self.tree = CoordinationTree()
        self.storage.recover(self.tree)
        self.tree.journal = self.storage.append
        session = self.tree.create_session(1000, NOW, b"p")
        self.caller = Caller(session.session_id, "h", lambda *_: None)

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.tree.write(self.caller, CreateOp("/n-", b"data", flags=2), NOW)

    def snapshot(self) -> None:
        image = self.tree.image()
        self.storage.roll(image.zxid + 1)
        self.storage.syncer()()
        self.storage.write_snapshot(image)


@pytest.fixture
def lives(tmp_path: pathlib.Path) -> Iterator["Lives"]:
    keeper = Lives(tmp_path / "data")
    yield keeper
    keeper.end()


class Lives:
    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.now: Life | None = None

    def next(self) -> Life:
        self.end()
        self.now = Life(self.directory)
        return self.now

    def end(self) -> None:
        if self.now is not None:
            self.now.storage.close()
            self.now = None

    def names(self) -> list[str]:
        return sorted(p.name for p in self.directory.iterdir() if p.name != "lock")

    def last_log(self) -> pathlib.Path:
        return max(p for p in self.directory.iterdir() if p.name.startswith("log-"))


def recovered(directory: pathlib.Path) -> CoordinationTree:
    storage = Storage(RealDisk(), str(directory), fsync=True)
    tree = CoordinationTree()
    try:
        storage.recover(tree)
    finally:
        storage.close()
    return tree


def test_everything_appended_comes_back(lives: Lives) -> None:
    life = lives.next()
    life.write(10)
    image = life.tree.image()
    again = lives.next()
    assert again.tree.zxid == image.zxid + 1  # its own session
    again.write(5)
    image = again.tree.image()
    lives.end()
    assert recovered(lives.directory).image() == image


def test_snapshots_shorten_the_past(lives: Lives) -> None:
    life = lives.next()
    for _ in range(5):
        life.write(10)
        life.snapshot()
    life.write(3)
    image = life.tree.image()
    assert [n for n in lives.names() if n.startswith("snapshot-")] == [
        f"snapshot-{zxid:016x}" for zxid in (31, 41, 51)
    ]
    assert [n for n in lives.names() if n.startswith("log-")] == [
        f"log-{zxid:016x}" for zxid in (32, 42, 52)
    ]
    lives.end()
    assert recovered(lives.directory).image() == image


def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_logs(lives: Lives) -> None:
    life = lives.next()
    for _ in range(3):
        life.write(10)
        life.snapshot()
    life.write(3)
    image = life.tree.image()
    lives.end()
    newest = max(p for p in lives.directory.iterdir() if p.name.startswith("snapshot-"))
    data = bytearray(newest.read_bytes())
    data[-5] ^= 1
    newest.write_bytes(data)
    assert recovered(lives.directory).image() == image


def test_no_readable_snapshot_is_an_error(lives: Lives) -> None:
    life = lives.next()
    for _ in range(4):
        life.write(10)
        life.snapshot()
    lives.end()
    for path in lives.directory.iterdir():
        if path.name.startswith("snapshot-"):
            path.write_bytes(b"nonsense")
    with pytest.raises(CorruptStorage, match="no snapshot can be read"):
        recovered(lives.directory)


def test_every_way_to_cut_the_last_record(lives: Lives) -> None:
    life = lives.next()
    life.write(3)
    lives.end()
    log = lives.last_log()
    whole = log.read_bytes()
    before = recovered(lives.directory)
    last = whole.rindex(struct.pack(">q", before.zxid)) - 8
    for length in range(last, len(whole)):
        log.write_bytes(whole[:length])
        tree = recovered(lives.directory)
        assert tree.zxid == before.zxid - 1
        assert log.stat().st_size == last
    for garbage in (b"\0" * 100, b"\xff" * 100, whole[last : last + 4] + b"rubbish"):
        log.write_bytes(whole + garbage)
        assert recovered(lives.directory).zxid == before.zxid
        assert log.stat().st_size == len(whole)


def test_a_log_cut_within_its_first_bytes(lives: Lives) -> None:
    life = lives.next()
    life.write(3)
    life.snapshot()
    zxid = life.tree.zxid
    lives.end()
    log = lives.last_log()
    for length in range(8):
        log.write_bytes(b"KLZKLOG1"[:length])
        again = lives.next()
        assert again.tree.zxid == zxid + 1
        again.write(2)
        lives.end()
        assert recovered(lives.directory).zxid == zxid + 3


def test_damage_in_the_middle_is_refused_and_named(lives: Lives) -> None:
    life = lives.next()
    life.write(10)
    lives.end()
    log = lives.last_log()
    data = bytearray(log.read_bytes())
    data[60] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptStorage, match=r"log-0+1: position \d+: wrong checksum"):
        recovered(lives.directory)


def test_a_missing_log_is_noticed(lives: Lives) -> None:
    life = lives.next()
    for _ in range(2):
        life.write(5)
        life.snapshot()
    life.write(5)
    lives.end()
    (lives.directory / f"log-{7:016x}").unlink()
    newest = max(p for p in lives.directory.iterdir() if p.name.startswith("snapshot-"))
    newest.unlink()
    with pytest.raises(CorruptStorage, match="does not follow"):
        recovered(lives.directory)


def test_a_strange_file_is_refused(lives: Lives) -> None:
    lives.next()
    lives.end()
    lives.last_log().write_bytes(b"something else entirely")
    with pytest.raises(CorruptStorage, match="does not begin with KLZKLOG1"):
        recovered(lives.directory)


def test_one_server_per_directory(lives: Lives) -> None:
    lives.next()
    with pytest.raises(StorageError):
        Life(lives.directory)


def test_a_sync_reaches_the_logs_finished_before(lives: Lives) -> None:
    """After a roll the end of the old log is still to be synced."""
    life = lives.next()
    life.write(2)
    image = life.tree.image()
    life.storage.roll(image.zxid + 1)
    life.tree.write(life.caller, SetDataOp("/", b"x"), NOW)
    life.storage.syncer()()
    lives.end()
    assert recovered(lives.directory).zxid == image.zxid + 1
