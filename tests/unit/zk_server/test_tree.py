"""The coordination tree by itself: replay, images, rollback, leases, access lists, watch tables."""

from typing import Any

import pytest

from kafkalike.zk.client import EventType
from kafkalike.zk.server.access import digest_of
from kafkalike.zk.server.export import export_tree, import_tree
from kafkalike.zk.server.model import (
    ALL,
    EPHEMERAL,
    OPEN_ACL,
    READ,
    SEQUENTIAL,
    Acl,
    CheckOp,
    Code,
    Created,
    CreateOp,
    DeleteOp,
    Id,
    SetAclOp,
    SetDataOp,
    TreeError,
    Txn,
    WriteOp,
    validate_path,
)
from kafkalike.zk.server.storage import decode_image, decode_txn, encode_image, encode_txn
from kafkalike.zk.server.tree import CoordinationTree
from kafkalike.zk.server.watches import Caller, WatchMode

NOW = 1_700_000_000_000


class Fixture:
    """A tree, its journal, and callers whose events are kept."""

    def __init__(self) -> None:
        self.journal: list[Txn] = []
        self.tree = CoordinationTree(journal=self.journal.append)

    def caller(self, timeout_ms: int = 1000) -> Caller:
        session = self.tree.create_session(timeout_ms, NOW, b"p" * 16)
        return Caller(session.session_id, "127.0.0.1", lambda *_: None)

    def watcher(self) -> tuple[Caller, list[tuple[EventType, str]]]:
        caller = self.caller()
        events: list[tuple[EventType, str]] = []
        caller.deliver = lambda type_, path, _: events.append((type_, path))
        return caller, events

    def write(self, caller: Caller, *ops: WriteOp) -> list[Any]:
        return [self.tree.write(caller, op, NOW) for op in ops]


@pytest.fixture
def world() -> Fixture:
    return Fixture()


def refused(tree: CoordinationTree, caller: Caller, op: WriteOp) -> Code:
    with pytest.raises(TreeError) as error:
        tree.write(caller, op, NOW)
    return error.value.code


def a_life(world: Fixture) -> None:
    """One of everything that a journal can hold."""
    one, two = world.caller(), world.caller(5000)
    tree = world.tree
    tree.authenticate(one, "digest", b"u:p")
    world.write(
        one,
        CreateOp("/a", b"1"),
        CreateOp("/a/null", None),
        CreateOp("/a/empty", b""),
        CreateOp("/a/s-", b"s", OPEN_ACL, SEQUENTIAL),
        CreateOp("/a/e", b"e", OPEN_ACL, EPHEMERAL),
        SetDataOp("/a", b"2", 0),
        SetDataOp("/a/empty", None),
        SetAclOp("/a", (Acl(ALL, Id("auth", "")),)),
        DeleteOp("/a/null"),
    )
    tree.multi(
        one,
        [
            CreateOp("/b", b""),
            SetDataOp("/b", b"x"),
            CheckOp("/b", 1),
            CreateOp("/b/e", b"", OPEN_ACL, EPHEMERAL),
        ],
        NOW + 5,
    )
    tree.multi(one, [CreateOp("/c", b""), CheckOp("/b", 9)], NOW + 6)
    assert refused(tree, two, CreateOp("/b", b"")) is Code.NODE_EXISTS
    world.write(two, CreateOp("/b/two", b"", OPEN_ACL, EPHEMERAL | SEQUENTIAL))
    tree.close_session(one.session_id, NOW + 7)


def test_the_journal_replays_to_the_same_state(world: Fixture) -> None:
    a_life(world)
    replayed = CoordinationTree()
    for txn in world.journal:
        replayed.apply(decode_txn(encode_txn(txn)))
    assert replayed.image() == world.tree.image()
    assert [txn.zxid for txn in world.journal] == list(range(1, world.tree.zxid + 1))


def test_an_image_restores_everything(world: Fixture) -> None:
    a_life(world)
    image = world.tree.image()
    restored = CoordinationTree()
    restored.load(decode_image(encode_image(image)))
    assert restored.image() == image
    assert restored.sessions.keys() == world.tree.sessions.keys()
    session = next(iter(restored.sessions.values()))
    assert list(session.ephemerals) == ["/b/two0000000001"]
    again = Caller(session.session_id, "127.0.0.1", lambda *_: None)
    created = restored.write(again, CreateOp("/b/n-", b"", OPEN_ACL, SEQUENTIAL), NOW)
    assert isinstance(created, Created)
    assert created.path == "/b/n-0000000002"


def test_a_damaged_image_leaves_the_tree_as_it_was(world: Fixture) -> None:
    a_life(world)
    image = world.tree.image()
    orphaned = image.nodes[:1] + image.nodes[2:]
    tree = CoordinationTree()
    before = tree.image()
    with pytest.raises(ValueError, match=r"before its parent|nodes missing"):
        tree.load(type(image)(image.zxid, image.next_session_id, image.sessions, orphaned))
    assert tree.image() == before


def test_a_gap_in_the_journal_is_refused(world: Fixture) -> None:
    a_life(world)
    tree = CoordinationTree()
    tree.apply(world.journal[0])
    with pytest.raises(ValueError, match="does not follow"):
        tree.apply(world.journal[2])


def test_a_failed_multi_leaves_no_trace(world: Fixture) -> None:
    caller, events = world.watcher()
    world.write(
        caller,
        CreateOp("/a", b"1"),
        CreateOp("/a/e", b"", OPEN_ACL, EPHEMERAL),
        CreateOp("/a/p", b""),
    )
    world.tree.get_data(caller, "/a", watch=True)
    world.tree.get_children(caller, "/a", watch=True)
    before = world.tree.image()
    results = world.tree.multi(
        caller,
        [
            SetDataOp("/a", b"2"),
            SetAclOp("/a", (Acl(ALL, Id("ip", "127.0.0.1")),)),
            DeleteOp("/a/e"),
            DeleteOp("/a/p"),
            CreateOp("/a/e", b"", OPEN_ACL, EPHEMERAL),
            CreateOp("/a/e2", b"", OPEN_ACL, EPHEMERAL),
            CheckOp("/a", 77),
        ],
        NOW,
    )
    assert [r.code for r in results if isinstance(r, TreeError)] == [Code.OK] * 6 + [
        Code.BAD_VERSION
    ]
    after = world.tree.image()
    assert sorted(after.nodes) == sorted(before.nodes)
    assert after.zxid == before.zxid + 1
    assert events == []
    assert list(world.tree.sessions[caller.session_id].ephemerals) == ["/a/e"]


def test_leases(world: Fixture) -> None:
    short, long = world.caller(1000), world.caller(2000)
    tree = world.tree
    assert tree.expired(10**9) == []  # never touched
    tree.touch(short.session_id, 0)
    tree.touch(long.session_id, 0)
    assert tree.expired(999) == []
    assert tree.expired(1000) == [short.session_id]
    tree.touch(short.session_id, 1500)
    assert tree.expired(2400) == [long.session_id]
    tree.postpone(500)
    assert tree.expired(2400) == []
    tree.close_session(long.session_id, NOW)
    assert not tree.touch(long.session_id, 0)
    assert tree.reattach(long.session_id, b"p" * 16, 1000, 0) is None
    assert tree.reattach(short.session_id, b"q" * 16, 1000, 0) is None
    assert tree.reattach(short.session_id, b"p" * 16, 3000, 10_000) is not None
    assert tree.expired(12_999) == []
    assert tree.expired(13_000) == [short.session_id]


def test_an_expired_session_is_told_so(world: Fixture) -> None:
    caller = world.caller()
    world.tree.close_session(caller.session_id, NOW)
    assert refused(world.tree, caller, CreateOp("/a", b"")) is Code.SESSION_EXPIRED
    with pytest.raises(TreeError) as error:
        world.tree.get_data(caller, "/")
    assert error.value.code is Code.SESSION_EXPIRED


def test_counters_wrap_as_java_ints_do(world: Fixture) -> None:
    caller = world.caller()
    world.write(caller, CreateOp("/a", b""))
    node = world.tree.nodes["/a"]
    node.version = 2**31 - 1
    assert world.write(caller, SetDataOp("/a", b""))[0].version == -(2**31)
    node.version = -2
    assert world.write(caller, SetDataOp("/a", b"", -2))[0].version == 0  # -1 would mean "any"
    node.creates = 2**31 - 1
    created = world.write(caller, CreateOp("/a/n-", b"", OPEN_ACL, SEQUENTIAL))[0]
    assert created.path == "/a/n-2147483647"
    assert node.creates == -(2**31)


def test_a_dropped_caller_leaves_no_watches(world: Fixture) -> None:
    caller, events = world.watcher()
    tree = world.tree
    tree.add_watch(caller, "/", WatchMode.PERSISTENT_RECURSIVE)
    tree.add_watch(caller, "/", WatchMode.PERSISTENT)
    tree.get_children(caller, "/", watch=True)
    with pytest.raises(TreeError):
        tree.exists(caller, "/a", watch=True)
    tree.detach(caller)
    world.write(world.caller(), CreateOp("/a", b""))
    assert events == []
    for table in (tree.data_watches, tree.child_watches):
        assert not table.by_path
        assert not table.by_caller


def test_one_shot_and_persistent_watches_on_one_path_live_side_by_side(world: Fixture) -> None:
    caller, events = world.watcher()
    other = world.caller()
    world.write(other, CreateOp("/a", b""))
    world.tree.add_watch(caller, "/a", WatchMode.PERSISTENT)
    world.tree.get_data(caller, "/a", watch=True)
    world.write(other, SetDataOp("/a", b"1"), SetDataOp("/a", b"2"))
    assert events == [(EventType.DATA_CHANGED, "/a")] * 2


def test_access_lists(world: Fixture) -> None:
    owner, other = world.caller(), world.caller()
    tree = world.tree
    assert tree.authenticate(owner, "digest", b"o:o")
    assert not tree.authenticate(owner, "sasl", b"x")
    world.write(owner, CreateOp("/mine", b"", (Acl(ALL, Id("auth", "")),)))
    assert refused(tree, other, SetDataOp("/mine", b"")) is Code.NO_AUTH
    assert refused(tree, other, CreateOp("/mine/x", b"")) is Code.NO_AUTH
    v6 = Caller(other.session_id, "fd00::1", other.deliver)
    world.write(owner, CreateOp("/net", b"", (Acl(READ, Id("ip", "fd00::/8")),)))
    assert tree.get_data(v6, "/net")[0] == b""
    with pytest.raises(TreeError):
        tree.get_data(other, "/net")


def test_who_knows_the_super_password_may_do_everything() -> None:
    tree = CoordinationTree(super_digest=digest_of("super:secret"))
    session = tree.create_session(1000, NOW, b"")
    caller = Caller(session.session_id, "127.0.0.1", lambda *_: None)
    tree.write(caller, CreateOp("/a", b"", (Acl(READ, Id("ip", "10.0.0.1")),)), NOW)
    assert refused(tree, caller, SetDataOp("/a", b"")) is Code.NO_AUTH
    tree.authenticate(caller, "digest", b"super:secret")
    tree.write(caller, SetDataOp("/a", b""), NOW)


def test_digest_of_a_known_pair() -> None:
    assert digest_of("super:test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/\x00", "/\x7f", "/\U0001f600"]
)
def test_paths_refused(path: str) -> None:
    with pytest.raises(TreeError) as error:
        validate_path(path)
    assert error.value.code is Code.BAD_ARGUMENTS


@pytest.mark.parametrize("path", ["/", "/a", "/a.b", "/...", "/a b", "/\u00e4"])
def test_paths_accepted(path: str) -> None:
    validate_path(path)


def test_export_and_import_carry_persistent_nodes(world: Fixture) -> None:
    a_life(world)
    dump = export_tree(world.tree)
    assert [n["path"] for n in dump["nodes"]] == ["/", "/a", "/a/empty", "/a/s-0000000002", "/b"]
    fresh = CoordinationTree()
    image, count = import_tree(dump, fresh)
    fresh.load(image)
    assert count == 4
    assert export_tree(fresh) == dump
    assert fresh.nodes["/a"].version == world.tree.nodes["/a"].version
    assert fresh.nodes["/a/empty"].data is None
    assert fresh.zxid == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format: 2, expected 1"),
        ({"nodes": [{"path": "/a/b", "data": None, "acl": []}]}, "before its parent"),
        ({"nodes": [{"path": "a", "data": None, "acl": []}]}, "BAD_ARGUMENTS"),
        ({"nodes": [{"path": "/a", "data": "!", "acl": []}]}, "not base64"),
        ({"nodes": [{"path": "/a", "acl": []}]}, "data"),
    ],
)
def test_a_malformed_export_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        import_tree({"format": 1, "nodes": [], **change}, CoordinationTree())


def test_an_import_needs_an_empty_service(world: Fixture) -> None:
    a_life(world)
    with pytest.raises(ValueError, match="not empty"):
        import_tree({"format": 1, "nodes": []}, world.tree)
