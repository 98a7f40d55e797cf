"""Requests and answers as bytes, against kazoo's own codec."""

import struct
from typing import Any

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from kafkalike.zk import wire
from kafkalike.zk.client import (
    BadVersion,
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    NoNode,
    ReadOp,
    RuntimeInconsistency,
    SetData,
    Stat,
    UnknownZkError,
    error_for,
)

CHROOT = "/root/sub"
STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def open_acl(path: str) -> tuple[wire.Acl, ...]:
    return wire.OPEN_ACL


CASES: list[tuple[wire.WireRequest, Any]] = [
    (wire.get_data(CHROOT, "/ü", True), kazoo.GetData(CHROOT + "/ü", True)),
    (wire.get_data("", "/", False), kazoo.GetData("/", None)),
    (wire.get_data(CHROOT, "/", False), kazoo.GetData(CHROOT, None)),
    (wire.exists(CHROOT, "/a", False), kazoo.Exists(CHROOT + "/a", None)),
    (wire.get_children(CHROOT, "/a", True), kazoo.GetChildren2(CHROOT + "/a", True)),
    (wire.set_data("", "/a", b"x", 3), kazoo.SetData("/a", b"x", 3)),
    (wire.set_data("", "/a", None, -1), kazoo.SetData("/a", None, -1)),
    (wire.delete(CHROOT, "/a", 7), kazoo.Delete(CHROOT + "/a", 7)),
    (
        wire.create(CHROOT, Create("/a", b"x", True, True), wire.OPEN_ACL),
        kazoo.Create(CHROOT + "/a", b"x", OPEN_ACL_UNSAFE, 3),
    ),
    (
        wire.create("", Create("/a", None), wire.OPEN_ACL),
        kazoo.Create("/a", None, OPEN_ACL_UNSAFE, 0),
    ),
    (
        wire.multi(
            CHROOT,
            [
                Create("/a", b"1", ephemeral=True),
                SetData("/a", b"", 0),
                Check("/c", 9),
                Delete("/a"),
            ],
            open_acl,
        ),
        kazoo.Transaction(
            [
                kazoo.Create(CHROOT + "/a", b"1", OPEN_ACL_UNSAFE, 1),
                kazoo.SetData(CHROOT + "/a", b"", 0),
                kazoo.CheckVersion(CHROOT + "/c", 9),
                kazoo.Delete(CHROOT + "/a", -1),
            ]
        ),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_requests_are_the_same_bytes(ours: wire.WireRequest, theirs: Any) -> None:
    assert ours.type == theirs.type
    assert ours.serialize() == bytes(theirs.serialize())


def test_requests_do_not_show_their_payload() -> None:
    request = wire.set_data("", "/config/users/u", b"stored_key=secret", -1)
    assert "secret" not in repr(request)


def test_null_is_not_empty() -> None:
    assert wire.write_buffer(None) == b"\xff\xff\xff\xff"
    assert wire.write_buffer(b"") == b"\0\0\0\0"
    assert wire.read_buffer(b"\xff\xff\xff\xff", 0) == (None, 4)
    assert wire.read_buffer(b"\0\0\0\0", 0) == (b"", 4)


def header(kind: int, done: bool = False, code: int = -1) -> bytes:
    return struct.pack(">i?i", kind, done, code)


def test_answers_of_a_multi() -> None:
    request = wire.multi(CHROOT, [Create("/a", b""), SetData("/a", b""), Delete("/b")], open_acl)
    body = (
        header(1)
        + wire.write_string(CHROOT + "/a")
        + header(5)
        + STAT_BYTES
        + header(2)
        + header(-1, True)
    )
    assert request.decode(b"xx" + body, 2) == ["/a", STAT, None]
    failed = b"".join(header(-1, False, code) + struct.pack(">i", code) for code in (0, -103, -2))
    first, second, third = request.decode(failed + header(-1, True), 0)
    assert first is None
    assert isinstance(second, BadVersion)
    assert second.path == "/a"
    assert isinstance(third, RuntimeInconsistency)


def test_answers_of_a_multi_read() -> None:
    ops: list[ReadOp] = [GetData("/a"), GetData("/b"), GetChildren("/c"), GetData("/d")]
    request = wire.multi_read("", ops)
    body = (
        header(4)
        + wire.write_buffer(b"data")
        + STAT_BYTES
        + header(4)
        + wire.write_buffer(None)
        + STAT_BYTES
        + header(8)
        + struct.pack(">i", 2)
        + wire.write_string("z")
        + wire.write_string("y")
        + header(-1)
        + struct.pack(">i", -101)
        + header(-1, True)
    )
    (data, null, names, missing), size = request.decode(body, 0)
    assert data == (b"data", STAT)
    assert null == (None, STAT)
    assert names == ["y", "z"]
    assert isinstance(missing, NoNode)
    assert size == len(body)


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (wire.get_data("", "/a", False), b""),
        (wire.get_data("", "/a", False), b"\x7f\xff\xff\xff"),
        (wire.get_data("", "/a", False), b"\0\0\0\1xshort"),
        (wire.get_children("", "/a", False), b"\x7f\xff\xff\xff"),
        (wire.multi("", [Delete("/a")], open_acl), header(-1, True)),
        (wire.multi("", [Delete("/a")], open_acl), header(77)),
        (wire.multi_read("", [GetData("/a")]), header(-1, True)),
        (wire.multi_read("", [GetData("/a")]), header(77)),
    ],
)
def test_unreadable_answers(request_: wire.WireRequest, body: bytes) -> None:
    with pytest.raises((wire.MalformedAnswer, struct.error)):
        request_.decode(body, 0)


def test_setting_watches_again() -> None:
    request = wire.set_watches(CHROOT, 77, ["/a"], ["/b", "/"], [])
    assert request.type == 101
    assert request.body == (
        struct.pack(">qi", 77, 1)
        + wire.write_string(CHROOT + "/a")
        + struct.pack(">i", 2)
        + wire.write_string(CHROOT + "/b")
        + wire.write_string(CHROOT)
        + struct.pack(">i", 0)
    )


def test_every_error_has_a_class() -> None:
    assert type(error_for(-101, "/p")) is NoNode
    unknown = error_for(-125, "/p")
    assert type(unknown) is UnknownZkError
    assert "-125" in str(unknown)
    assert unknown.path == "/p"
