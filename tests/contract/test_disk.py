"""One suite for the real disk and the one in memory: what the log store relies on."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike.runtime.disk import RealDisk
from kafkalike.runtime.ports import Disk, NoSuchFile, StorageError
from kafkalike.tools.simulator.disk import MemoryDisk
from kafkalike.tools.simulator.process import SimRandom

Place = tuple[Disk, str]


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        yield RealDisk(), str(tmp_path)
        return
    disk = MemoryDisk()
    disk.make_dirs("/data")
    yield disk, "/data"
    assert disk.open_files == 0, "a test left files open"


def test_appends_return_positions_and_are_read_back(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    assert file.append(b"abc", memoryview(b"defg"), bytearray(b"h")) == 0
    assert file.append(b"ij") == 8
    assert file.size() == 10
    assert file.pread(4, 2) == b"cdef"
    assert file.pread(100, 8) == b"ij"
    assert file.pread(5, 50) == b""
    file.close()
    assert disk.size(f"{root}/a") == 10
    assert disk.read_file(f"{root}/a") == b"abcdefghij"


def test_many_buffers_go_out_in_order(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    parts = [bytes([n % 256]) * (n % 7) for n in range(3000)]
    file.append(*parts)
    assert file.pread(100_000, 0) == b"".join(parts)
    file.close()


def test_pwrite_extends_with_zeros_and_overwrites(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.pwrite(b"xy", 4)
    file.pwrite(b"ab", 0)
    assert file.pread(10, 0) == b"ab\0\0xy"
    assert file.size() == 6
    assert file.append(b"!") == 6
    file.close()


def test_truncate_cuts_and_extends(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.append(b"abcdef")
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    assert file.append(b"z") == 4
    file.sync()
    file.close()


def test_a_second_descriptor_sees_the_same_bytes(place: Place) -> None:
    disk, root = place
    first = disk.open(f"{root}/a", create=True)
    first.append(b"abc")
    second = disk.open(f"{root}/a")
    assert second.size() == 3
    first.append(b"d")
    assert second.pread(10, 0) == b"abcd"
    first.close()
    second.close()


def test_an_open_file_survives_renaming_and_removal(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.append(b"abc")
    disk.rename(f"{root}/a", f"{root}/b")
    assert file.pread(3, 0) == b"abc"
    disk.remove(f"{root}/b")
    assert file.pread(3, 0) == b"abc"
    assert not disk.exists(f"{root}/b")
    file.close()


def test_close_waits_for_the_last_user(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.append(b"abc")
    file.retain()
    file.retain()
    file.close()
    assert file.pread(3, 0) == b"abc"
    file.release()
    assert file.pread(3, 0) == b"abc"
    file.release()
    with pytest.raises((AssertionError, StorageError)):
        file.pread(3, 0)


def test_missing_things_are_no_such_file(place: Place) -> None:
    disk, root = place
    missing = f"{root}/none"
    attempts: list[Callable[[], object]] = [
        lambda: disk.open(missing),
        lambda: disk.open(f"{root}/none/deeper", create=True),
        lambda: disk.list(missing),
        lambda: disk.rename(missing, f"{root}/x"),
        lambda: disk.remove(missing),
        lambda: disk.remove_tree(missing),
        lambda: disk.size(missing),
        lambda: disk.mtime_ms(missing),
        lambda: disk.set_mtime_ms(missing, 1),
        lambda: disk.read_file(missing),
        lambda: disk.write_atomic(f"{missing}/x", b""),
        lambda: disk.sync_dir(missing),
    ]
    for attempt in attempts:
        with pytest.raises(NoSuchFile, match="none"):
            attempt()
    assert not disk.exists(missing)
    assert not disk.is_dir(missing)


def test_directories_are_made_listed_renamed_and_removed(place: Place) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/x/y")
    disk.make_dirs(f"{root}/x/y")
    disk.open(f"{root}/x/y/b", create=True).close()
    disk.open(f"{root}/x/y/a", create=True).close()
    assert disk.list(f"{root}/x/y") == ["a", "b"]
    assert disk.is_dir(f"{root}/x") and not disk.is_dir(f"{root}/x/y/a")
    disk.rename(f"{root}/x", f"{root}/z")
    assert disk.exists(f"{root}/z/y/a") and not disk.exists(f"{root}/x")
    disk.sync_dir(root)
    disk.remove_tree(f"{root}/z")
    assert disk.list(root) == []
    with pytest.raises(StorageError):
        disk.list(f"{root}/z")


def test_rename_replaces_a_file(place: Place) -> None:
    disk, root = place
    disk.write_atomic(f"{root}/a", b"old")
    disk.write_atomic(f"{root}/b", b"new")
    disk.rename(f"{root}/b", f"{root}/a")
    assert disk.read_file(f"{root}/a") == b"new"
    assert disk.list(root) == ["a"]


def test_write_atomic_replaces_the_whole_content(place: Place) -> None:
    disk, root = place
    disk.write_atomic(f"{root}/a", b"a long first content")
    disk.write_atomic(f"{root}/a", b"short")
    assert disk.read_file(f"{root}/a") == b"short"
    assert disk.list(root) == ["a"]


def test_read_file_is_bounded(place: Place) -> None:
    disk, root = place
    disk.write_atomic(f"{root}/a", b"12345")
    assert disk.read_file(f"{root}/a", limit=5) == b"12345"
    with pytest.raises(StorageError, match="limit"):
        disk.read_file(f"{root}/a", limit=4)


def test_modification_times_can_be_set(place: Place) -> None:
    disk, root = place
    disk.write_atomic(f"{root}/a", b"x")
    disk.set_mtime_ms(f"{root}/a", 1_600_000_000_123)
    assert disk.mtime_ms(f"{root}/a") == 1_600_000_000_123


def test_a_lock_is_held_once(place: Place) -> None:
    disk, root = place
    held = disk.lock(f"{root}/.lock")
    with pytest.raises(StorageError, match="lock"):
        disk.lock(f"{root}/.lock")
    held.release()
    disk.lock(f"{root}/.lock").release()
    assert disk.exists(f"{root}/.lock")


def test_space_is_reported(place: Place) -> None:
    disk, root = place
    total, usable = disk.space(root)
    assert total >= usable > 0


# -- what only the disk in memory does: losing power -------------------------------------------


def test_power_loss_keeps_what_was_synced() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    file = disk.open("/d/a", create=True)
    file.append(b"kept")
    file.sync()
    disk.sync_dir("/d")
    file.append(b" lost")
    disk.open("/d/never-synced", create=True).close()
    disk.crash()
    assert disk.list("/d") == ["a"]
    assert disk.read_file("/d/a") == b"kept"
    with pytest.raises(AssertionError, match="before the crash"):
        file.append(b"x")


def test_power_loss_undoes_unsynced_renames() -> None:
    disk = MemoryDisk()
    disk.write_atomic("/a", b"old")
    file = disk.open("/b", create=True)
    file.append(b"new")
    file.sync()
    file.close()
    disk.rename("/b", "/a")
    disk.crash()
    assert disk.read_file("/a") == b"old"


def test_power_loss_with_chance_keeps_an_ordered_prefix() -> None:
    class Highest:
        def random(self) -> float:
            return 0.999

        def randrange(self, stop: int) -> int:
            return stop - 1

        def bytes(self, count: int) -> bytes:
            return bytes(count)

    disk = MemoryDisk()
    file = disk.open("/a", create=True)
    file.append(b"one")
    file.append(b"two")
    disk.crash(Highest())
    assert disk.read_file("/a") == b"onetwo"


def test_power_loss_may_flip_one_bit_of_the_last_write_that_survives() -> None:
    writes = [bytes(range(30)), bytes(range(50, 80))]
    flipped = 0
    for seed in range(60):
        disk = MemoryDisk()
        file = disk.open("/a", create=True)
        disk.sync_dir("/")
        for data in writes:
            file.append(data)
        disk.crash(SimRandom(seed), flipped=True)
        found = disk.read_file("/a")
        assert len(found) in (30, 60)
        sent = b"".join(writes)[: len(found)]
        wrong = [at for at in range(len(found)) if found[at] != sent[at]]
        assert all(at >= len(found) - 30 and at % 30 not in range(6, 17) for at in wrong)
        bits = [bin(found[at] ^ sent[at]).count("1") for at in wrong]
        assert bits in ([], [1])
        flipped += len(wrong)
    assert 20 < flipped < 60


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = MemoryDisk()
    disk.open("/a", create=True).append(b"abc")
    disk.lock("/.lock")
    disk.kill()
    assert disk.read_file("/a") == b"abc"
    disk.lock("/.lock")


def test_a_full_device_refuses_the_append_and_leaves_the_file_as_it_was() -> None:
    disk = MemoryDisk(capacity=10)
    file = disk.open("/a", create=True)
    file.append(b"12345678")
    with pytest.raises(StorageError, match="No space"):
        file.append(b"90ab")
    assert file.size() == 8
    file.append(b"90")


def test_a_full_real_device_leaves_no_torn_bytes() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    file = RealDisk().open("/dev/full")
    with pytest.raises(StorageError, match="No space"):
        file.append(b"x" * 10)
    file.close()


def test_the_hook_may_end_any_operation() -> None:
    seen: list[tuple[str, str]] = []

    def before(operation: str, path: str) -> None:
        seen.append((operation, path))
        if operation == "sync":
            raise StorageError(f"{path}: Input/output error")

    disk = MemoryDisk(before=before)
    file = disk.open("/a", create=True)
    file.append(b"x")
    with pytest.raises(StorageError):
        file.sync()
    assert [operation for operation, _ in seen] == ["open", "append", "sync"]
