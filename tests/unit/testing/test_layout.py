"""What a local cluster keeps between starts, the ports it reserves, damage to logs, arguments."""

import json
import os
import pathlib
import socket
from typing import Any

import pytest

from kafkalike.runtime.disk import RealDisk
from kafkalike.tools.cli import CommandError
from kafkalike.tools.local.control_port import (
    ArgumentError,
    checked_arguments,
    query_arguments,
)
from kafkalike.tools.local.layout import (
    Layout,
    Reservations,
    last_line,
    mark_temporary,
    read_layout,
    remove_abandoned,
    write_layout,
)
from kafkalike.tools.local.links import Direction
from kafkalike.tools.local.log_tail import corrupt_log_tail
from kafkalike.tools.local.verbs import described_cuts
from kafkalike.tools.local_cluster import Ends, copy_sparse


def test_a_query_is_read_as_the_verb_takes_it() -> None:
    async def verb(
        topic: str, isr: list[int], internal: bool = False, peer: int | str | None = None
    ) -> None:
        """As verbs are declared."""

    query = {b"topic": [b"1", b"123"], b"isr": [b"[1,2]"], b"internal": [b"true"], b"peer": [b"2"]}
    assert query_arguments(verb, query) == {
        "topic": "123",
        "isr": [1, 2],
        "internal": True,
        "peer": 2,
    }
    assert query_arguments(verb, {b"topic": [b"null"]}) == {"topic": "null"}
    assert query_arguments(verb, {b"peer": [b"zookeeper"]}) == {"peer": "zookeeper"}
    assert query_arguments(verb, {b"topic": [b"\xff"]}) == {"topic": "\ufffd"}
    assert query_arguments(verb, {b"topic": [b"[" * 100_000]}) == {"topic": "[" * 100_000}
    # What is wrong stays as it can be read, for the message about it.
    assert query_arguments(verb, {b"internal": [b"7"], b"other": [b"8"]}) == {
        "internal": 7,
        "other": 8,
    }


def test_cut_links_are_told() -> None:
    cut: set[Ends] = {(1, 2), (2, 1), (3, "zookeeper"), ("zookeeper", 4), (4, "zookeeper")}
    links: list[Ends] = [*cut, (2, 3)]

    def direction(source: int | str, target: int | str) -> Direction:
        return Direction(cut=True) if (source, target) in cut else Direction(delay_s=1.0)

    assert described_cuts(links, direction) == "; cut: 1|2, 3>zookeeper, 4|zookeeper"
    assert described_cuts([(2, 3)], direction) == ""
    many: list[Ends] = [(1, other) for other in range(10, 30)]
    assert described_cuts(many, lambda *_: Direction(cut=True)).endswith(", 1>17, ...")


def test_a_layout_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    assert read_layout(tmp_path) is None
    write_layout(tmp_path, Layout(3, {"broker-1": 1234, "zookeeper": 5}))
    assert read_layout(tmp_path) == Layout(3, {"broker-1": 1234, "zookeeper": 5})


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "brokers": "x", "ports": {}}']
)
def test_a_layout_of_somebody_else_is_refused(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(CommandError, match=r"cluster\.json"):
        read_layout(tmp_path)


def test_only_what_a_dead_supervisor_left_is_removed(tmp_path: pathlib.Path) -> None:
    """Not what is in use, is kept by name, belongs to nobody that is known, or is elsewhere."""
    disk = RealDisk()
    used, left, named, young, elsewhere = (
        tmp_path / name
        for name in ("kafkalike-used", "kafkalike-left", "kafkalike-named", "kafkalike-young", "x")
    )
    for directory in (used, left, named, young, elsewhere):
        (directory / "broker-1").mkdir(parents=True)
    for directory in (used, left, named, elsewhere):
        mark_temporary(directory, temporary=True)
    mark_temporary(named, temporary=False)
    (tmp_path / "kafkalike-link").symlink_to(elsewhere)
    (tmp_path / "kafkalike-file").write_text("a file")
    lock = disk.lock(str(used / "lock"))
    assert remove_abandoned(disk, tmp_path) == [left]
    assert not left.exists()
    assert all((one / "broker-1").is_dir() for one in (used, named, young, elsewhere))
    lock.release()
    assert remove_abandoned(disk, tmp_path) == [used]
    assert remove_abandoned(disk, tmp_path / "missing") == []


def test_a_reserved_port_is_for_the_broker_alone() -> None:
    reservations = Reservations()
    port = reservations.take("broker-1", 0)
    with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
    with socket.socket() as broker:
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        broker.bind(("127.0.0.1", port))
        broker.listen()
        with pytest.raises(CommandError, match=f"port {port} for other"):
            reservations.take("other", port)
        assert reservations.take("other", port, otherwise_any=True) != port
    reservations.close()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))


def test_the_last_line_is_what_a_process_said_last(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "broker.log"
    assert last_line(log) == f"see {log}"
    log.write_text("first\nlast\n\n")
    assert last_line(log) == "last"


def test_a_tail_is_cut_or_flipped(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"older")
    newest = folder / f"{5:020}.log"
    newest.write_bytes(b"abcdef")
    (folder / f"{9:020}.log").write_bytes(b"")
    mark = tmp_path / ".kafka_cleanshutdown"
    mark.write_text("")
    done = corrupt_log_tail(tmp_path, "t", 0, 2, "flip")
    assert newest.read_bytes() == b"abcd" + bytes(0xFF ^ c for c in b"ef")
    assert done == {"file": str(newest), "size_before": 6, "size_after": 6}
    assert not mark.exists()
    assert corrupt_log_tail(tmp_path, "t", 0, 4, "truncate")["size_after"] == 2
    with pytest.raises(CommandError, match="no records to damage"):
        corrupt_log_tail(tmp_path, "t", 1, 4, "truncate")
    with pytest.raises(CommandError, match="bytes: expected 1 or more"):
        corrupt_log_tail(tmp_path, "t", 0, 0, "truncate")


def test_a_copy_keeps_holes(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(4 << 20)
        file.write(b"middle")
        file.truncate(10 << 20)
    copy_sparse(str(source), str(target))
    assert target.read_bytes() == source.read_bytes()
    assert os.stat(target).st_blocks * 512 < 1 << 20
    source.write_bytes(b"")
    copy_sparse(str(source), str(target))
    assert target.read_bytes() == b""


async def verb(
    broker: int,
    name: str = "x",
    ms: float = 0.0,
    codes: list[int] | None = None,
    config: dict[str, str] | None = None,
    end: int | str = 1,
    flag: bool = False,
) -> None:
    """In the place of a verb."""


@pytest.mark.parametrize(
    "arguments",
    [
        {"broker": 1},
        {"broker": 1, "ms": 5, "codes": [1, 2], "config": {"a": "b"}, "end": "zookeeper"},
        {"broker": 1, "ms": 0.5, "codes": None, "flag": True, "end": 2},
    ],
)
def test_arguments_that_fit(arguments: dict[str, Any]) -> None:
    assert checked_arguments(verb, arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "broker: missing"),
        ({"broker": "1"}, 'broker: expected an integer, found "1"'),
        ({"broker": True}, "broker: expected an integer, found true"),
        ({"broker": 1, "ms": "5"}, 'ms: expected a number, found "5"'),
        ({"broker": 1, "codes": [1, "x"]}, "codes: expected a list of an integer or null"),
        ({"broker": 1, "config": []}, "config: expected an object or null"),
        ({"broker": 1, "end": None}, "end: expected an integer or a string, found null"),
        ({"broker": 1, "brocker": 2}, "brocker: not an argument; expected broker, name, ms"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        checked_arguments(verb, json.loads(json.dumps(arguments)))
    assert message in str(caught.value)
