"""`kafkalike dump-zk`: what it prints and what it finds wrong."""

import io
import json
from collections.abc import Awaitable
from typing import Any

from kafkalike.runtime.tasks import as_deferred
from kafkalike.tools import dump_zk
from kafkalike.zk.server.local import LocalCoordination
from tests.fakes import FakeClock


def tree(nodes: dict[str, bytes | None], chroot: str = "", root: str = "/") -> list[dump_zk.Znode]:
    clock = FakeClock()
    service = LocalCoordination(clock)
    for path, data in nodes.items():
        service.create(chroot + path, data)
    zk = service.client()

    def run(work: Awaitable[Any]) -> Any:
        outcome: list[Any] = []
        as_deferred(work).addBoth(outcome.append)
        clock.advance(1.0)
        return outcome[0]

    run(zk.connect(1.0))
    found: list[dump_zk.Znode] = run(dump_zk.read_tree(zk, chroot, root))
    return found


def test_text_has_one_line_a_node() -> None:
    nodes = tree(
        {
            "/controller_epoch": b"3",
            "/brokers/topics/t": b'{"version":1,"partitions":{}}',
            "/empty": b"",
        },
        chroot="/kafka",
    )
    out = io.StringIO()
    dump_zk.print_text(nodes, out)
    assert out.getvalue().splitlines() == [
        "/  v0 -  null",
        "/brokers  v0 -  null",
        "/brokers/topics  v0 -  null",
        '/brokers/topics/t  v0 -  {"version":1,"partitions":{}}',
        "/controller_epoch  v0 -  3",
        '/empty  v0 -  ""',
    ]


def test_only_a_part_of_the_tree() -> None:
    nodes = tree({"/a/b/c": b"1", "/a/x": b"2", "/ab": b"3"}, root="/a")
    assert [node.path for node in nodes] == ["/a", "/a/b", "/a/b/c", "/a/x"]
    assert tree({"/a": b""}, root="/nothing") == []


def test_problems_are_named() -> None:
    nodes = tree(
        {
            "/controller": b'{"version":2}',
            "/brokers/topics/t/partitions/0/state": b"{",
            "/config/topics/t": b'{"version":9}',
            "/latest_producer_id_block": None,
            "/unknown": b"anything",
        }
    )
    problems = {node.path: node.problem for node in nodes if node.problem}
    assert sorted(problems) == [
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/0/state",
        "/config/topics/t",
        "/controller",
    ]
    out = io.StringIO()
    dump_zk.print_text(nodes, out)
    assert "  !! 'brokerid' is missing, expected a number\n" in out.getvalue()


def test_secrets_are_hidden() -> None:
    config = (
        b'{"version":1,"config":{"SCRAM-SHA-256":"salt=abc,stored_key=def",'
        b'"listener.name.x.ssl.keystore.password":"enc\\"rypted","a":"shown"}}'
    )
    nodes = tree({"/config/users/u": config})
    for print_nodes in (dump_zk.print_text, dump_zk.print_json):
        out = io.StringIO()
        print_nodes(nodes, out)
        text = out.getvalue()
        assert "stored_key" not in text
        assert "rypted" not in text
        assert "[hidden]" in text
        assert "shown" in text


def test_json_has_one_object_a_line() -> None:
    out = io.StringIO()
    dump_zk.print_json(tree({"/cluster/id": b"x"}), out)
    items = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [item["path"] for item in items] == ["/", "/cluster", "/cluster/id"]
    assert items[1]["data"] is None
    assert items[2]["data"] == "x"
    assert "not JSON" in items[2]["problem"]
