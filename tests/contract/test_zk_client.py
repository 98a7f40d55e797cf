"""What the ZkClient port promises, checked on a real ZooKeeper through kazoo and on the fake.

The same cases keep the fake honest.  `World` hides how time passes and how faults are made.
"""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import gatherResults

from kafkalike.runtime.tasks import as_deferred
from kafkalike.zk.client import (
    BadArguments,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    GetChildren,
    GetData,
    NodeExists,
    NoNode,
    NotEmpty,
    OperationTimeout,
    RuntimeInconsistency,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZkClient,
    ZkError,
    create_recursive,
    ensure_path,
    retrying,
)
from tests.zk_worlds import World


@pytest.fixture
def zk(world: World) -> ZkClient:
    client = world.client()
    world.run(client.connect(10.0))
    return client


def test_connect_gives_a_session_and_makes_the_chroot(world: World) -> None:
    zk = world.client()
    states: list[SessionState] = []
    zk.add_listener(states.append)
    assert states == []
    world.run(zk.connect(10.0))
    assert states == [SessionState.CONNECTED]
    assert zk.state is SessionState.CONNECTED
    assert zk.session_id != 0
    assert world.run(zk.get_children("/"))[0] == []


def test_connect_fails_clearly_when_nobody_is_there(world: World) -> None:
    world.go_away()
    zk = world.client()
    with pytest.raises(OperationTimeout):
        world.run(zk.connect(0.7))


def test_null_data_and_empty_data_are_different(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/null", None))
    world.run(zk.create("/empty", b""))
    assert world.run(zk.get("/null"))[0] is None
    assert world.run(zk.get("/empty"))[0] == b""
    world.run(zk.set("/empty", None))
    assert world.run(zk.get("/empty"))[0] is None
    (null, _), (empty, _) = world.run(zk.multi_read([GetData("/null"), GetData("/empty")]))  # type: ignore[misc]
    assert null is None
    assert empty is None


def test_versions_guard_writes(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b"0"))
    stat = world.run(zk.set("/n", b"1", 0))
    assert stat.version == 1
    with pytest.raises(BadVersion):
        world.run(zk.set("/n", b"2", 0))
    with pytest.raises(BadVersion):
        world.run(zk.delete("/n", 0))
    data, stat = world.run(zk.get("/n"))
    assert (data, stat.version, stat.data_length) == (b"1", 1, 1)
    world.run(zk.delete("/n", 1))
    assert world.run(zk.exists("/n")) is None


def test_errors_name_the_path(world: World, zk: ZkClient) -> None:
    with pytest.raises(NoNode) as caught:
        world.run(zk.get("/nowhere"))
    assert caught.value.path == "/nowhere"
    with pytest.raises(NoNode):
        world.run(zk.create("/nowhere/child", b""))
    with pytest.raises(NoNode):
        world.run(zk.set("/nowhere", b""))
    with pytest.raises(NoNode):
        world.run(zk.delete("/nowhere"))
    with pytest.raises(NoNode):
        world.run(zk.get_children("/nowhere"))
    world.run(zk.create("/there", b""))
    with pytest.raises(NodeExists) as again:
        world.run(zk.create("/there", b""))
    assert again.value.path == "/there"
    world.run(zk.create("/there/child", b""))
    with pytest.raises(NotEmpty):
        world.run(zk.delete("/there"))


def test_a_malformed_path_is_refused(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/a", b""))
    for path in ("/.", "/a/..", "/nul\0"):
        with pytest.raises(BadArguments):
            world.run(zk.create(path, b""))


def test_children_are_sorted_names(world: World, zk: ZkClient) -> None:
    for name in ("b", "a", "c10", "c9"):
        world.run(zk.create(f"/{name}", None))
    names, stat = world.run(zk.get_children("/"))
    assert names == ["a", "b", "c10", "c9"]
    assert stat.num_children == 4


def test_sequential_nodes_count_up(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/p", None))
    first = world.run(zk.create("/p/change_", b"x", sequential=True))
    second = world.run(zk.create("/p/change_", b"x", sequential=True))
    assert first == "/p/change_0000000000"
    assert second == "/p/change_0000000001"


def test_ephemeral_nodes_end_with_their_session(world: World, zk: ZkClient) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    world.run(other.create("/e", b"", ephemeral=True))
    stat = world.run(zk.exists("/e"))
    assert stat is not None
    assert stat.ephemeral_owner == other.session_id
    world.run(other.close())
    assert world.run(zk.exists("/e")) is None
    assert other.state is SessionState.CLOSED
    with pytest.raises(SessionExpired):
        world.run(other.get("/"))


def test_multi_does_all_of_it(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/c", b""))
    results = world.run(
        zk.multi(
            [
                Create("/e", None, ephemeral=True),
                SetData("/e", b"json", 0),
                Check("/c", 0),
                Create("/c/s_", b"", sequential=True),
                Delete("/c/s_0000000000"),
            ]
        )
    )
    created, stat, checked, sequential, deleted = results
    assert (created, checked, sequential, deleted) == ("/e", None, "/c/s_0000000000", None)
    assert isinstance(stat, Stat)
    now = world.run(zk.exists("/e"))
    assert now is not None
    assert stat.version == now.version == 1
    assert stat.czxid == now.czxid
    assert stat.mzxid == stat.czxid


def test_multi_does_nothing_of_it_when_one_fails(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/c", b""))
    results = world.run(
        zk.multi([Create("/a", b""), Check("/c", 7), Delete("/c"), SetData("/missing", b"")])
    )
    assert results[0] is None
    assert isinstance(results[1], BadVersion)
    assert isinstance(results[2], RuntimeInconsistency)
    assert isinstance(results[3], RuntimeInconsistency)
    assert world.run(zk.exists("/a")) is None
    assert world.run(zk.multi([])) == []


def test_multi_read_answers_each_for_itself(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/a", b"1"))
    world.run(zk.create("/a/y", None))
    world.run(zk.create("/a/x", None))
    data, names, missing, no_children = world.run(
        zk.multi_read([GetData("/a"), GetChildren("/a"), GetData("/b"), GetChildren("/b")])
    )
    assert isinstance(data, tuple)
    assert data[0] == b"1"
    assert data[1].num_children == 2
    assert names == ["x", "y"]
    assert isinstance(missing, NoNode)
    assert missing.path == "/b"
    assert isinstance(no_children, NoNode)
    assert world.run(zk.multi_read([])) == []


def test_multi_read_of_very_many_nodes(world: World, zk: ZkClient) -> None:
    count = 2500
    for start in range(0, count, 500):
        world.run(zk.multi([Create(f"/n{i}", b"%d" % i * 20) for i in range(start, start + 500)]))
    answers = world.run(zk.multi_read([GetData(f"/n{i}") for i in range(count)]))
    for number, answer in enumerate(answers):
        assert isinstance(answer, tuple)
        assert answer[0] == b"%d" % number * 20


def test_requests_are_executed_in_order(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b""))
    order: list[int] = []
    versions: list[int] = []

    def note(number: int) -> Callable[[Stat], None]:
        def noted(stat: Stat) -> None:
            order.append(number)
            versions.append(stat.version)

        return noted

    writes = [zk.set("/n", b"%d" % i).addCallback(note(i)) for i in range(200)]
    world.run(gatherResults(writes))
    assert order == list(range(200))
    assert versions == list(range(1, 201))
    assert world.run(zk.get("/n"))[0] == b"199"


def test_a_watch_fires_once_with_its_event(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    world.run(zk.create("/n", b""))
    world.run(zk.get("/n", events.append))
    world.run(zk.set("/n", b"1"))
    world.run(zk.set("/n", b"2"))
    assert events == [WatchEvent(EventType.DATA_CHANGED, "/n")]
    world.run(zk.exists("/n", events.append))
    world.run(zk.delete("/n"))
    world.run(zk.exists("/n", events.append))
    world.run(zk.create("/n", b""))
    assert events[1:] == [
        WatchEvent(EventType.DELETED, "/n"),
        WatchEvent(EventType.CREATED, "/n"),
    ]


def test_child_watches(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    world.run(zk.create("/p", b""))
    world.run(zk.get_children("/p", events.append))
    world.run(zk.set("/p", b"data does not matter"))
    world.run(zk.create("/p/a", b""))
    world.run(zk.create("/p/b", b""))
    assert events == [WatchEvent(EventType.CHILDREN_CHANGED, "/p")]
    world.run(zk.get_children("/p", events.append))
    world.run(zk.delete("/p/a"))
    assert events[1:] == [WatchEvent(EventType.CHILDREN_CHANGED, "/p")]


def test_a_failed_read_leaves_no_watch(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    with pytest.raises(NoNode):
        world.run(zk.get("/n", events.append))
    with pytest.raises(NoNode):
        world.run(zk.get_children("/n", events.append))
    world.run(zk.create("/n", b""))
    world.run(zk.create("/n/c", b""))
    assert events == []


def test_one_watcher_on_data_and_children_hears_of_the_end_once(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    hear = events.append
    world.run(zk.create("/n", b""))
    world.run(zk.get("/n", hear))
    world.run(zk.get("/n", hear))
    world.run(zk.get_children("/n", hear))
    world.run(zk.delete("/n"))
    assert events == [WatchEvent(EventType.DELETED, "/n")]


def test_a_watch_is_called_before_an_answer_that_shows_the_change(
    world: World, zk: ZkClient
) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    world.run(zk.create("/n", b"old"))
    seen: list[str] = []
    for round_number in range(30):
        new = b"%d" % round_number
        world.run(zk.get("/n", lambda _: seen.append("event")))
        write = other.set("/n", new)
        data: bytes | None = None
        while data != new:
            data, _stat = world.run(zk.get("/n"))
        seen.append("data")
        world.run(write)
        assert seen == ["event", "data"]
        seen.clear()


def test_multi_read_with_a_watch(world: World, zk: ZkClient) -> None:
    events: list[WatchEvent] = []
    for path in ("/a", "/b", "/p"):
        world.run(zk.create(path, b""))
    world.run(
        zk.multi_read(
            [GetData("/a"), GetData("/b"), GetData("/missing"), GetChildren("/p")], events.append
        )
    )
    world.run(zk.set("/a", b"1"))
    world.run(zk.create("/missing", b""))
    world.run(zk.create("/p/c", b""))
    world.run(zk.delete("/b"))
    world.run(zk.set("/a", b"2"))
    assert events == [
        WatchEvent(EventType.DATA_CHANGED, "/a"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/p"),
        WatchEvent(EventType.DELETED, "/b"),
    ]


def test_a_lost_connection_fails_requests_and_keeps_the_session(world: World, zk: ZkClient) -> None:
    states: list[SessionState] = []
    zk.add_listener(states.append)
    session = zk.session_id
    world.run(zk.create("/e", b"", ephemeral=True))
    world.lose_connection(zk)
    assert states == [SessionState.SUSPENDED]
    with pytest.raises(ConnectionLost):
        world.run(zk.get("/e"))
    world.restore_connection(zk)
    world.run_until(lambda: zk.state is SessionState.CONNECTED)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert zk.session_id == session
    assert world.run(zk.exists("/e")) is not None


def test_a_listener_hears_of_the_loss_before_the_requests_fail(world: World, zk: ZkClient) -> None:
    story: list[object] = []
    zk.add_listener(story.append)
    world.run(zk.create("/n", b""))
    work = [zk.set("/n", b"x").addErrback(lambda f: story.append(f.type)) for _ in range(40)]
    world.lose_connection(zk)
    world.run(gatherResults(work))
    assert story[0] is SessionState.SUSPENDED
    assert set(story[1:]) <= {ConnectionLost}


def test_watches_survive_a_lost_connection(world: World, zk: ZkClient) -> None:
    other = world.client()
    world.run(other.connect(10.0))
    for path in ("/same", "/changed", "/gone", "/parent", "/quiet"):
        world.run(zk.create(path, b""))
    events: list[WatchEvent] = []
    for path in ("/same", "/changed", "/gone"):
        world.run(zk.get(path, events.append))
    for path in ("/new", "/later"):
        world.run(zk.exists(path, events.append))
    for path in ("/parent", "/quiet"):
        world.run(zk.get_children(path, events.append))
    world.lose_connection(zk)
    world.run(other.set("/changed", b"1"))
    world.run(other.delete("/gone"))
    world.run(other.create("/new", b""))
    world.run(other.create("/parent/child", b""))
    assert events == []
    world.restore_connection(zk)
    world.run_until(lambda: zk.state is SessionState.CONNECTED)
    world.run(zk.exists("/"))
    assert set(events) == {
        WatchEvent(EventType.DATA_CHANGED, "/changed"),
        WatchEvent(EventType.DELETED, "/gone"),
        WatchEvent(EventType.CREATED, "/new"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/parent"),
    }
    assert len(events) == 4
    world.run(other.set("/same", b"1"))
    world.run(other.create("/later", b""))
    world.run(other.create("/quiet/child", b""))
    world.run(zk.exists("/"))
    assert events[4:] == [
        WatchEvent(EventType.DATA_CHANGED, "/same"),
        WatchEvent(EventType.CREATED, "/later"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/quiet"),
    ]


def test_expiry_ends_everything_until_reconnect(world: World, zk: ZkClient) -> None:
    states: list[SessionState] = []
    zk.add_listener(states.append)
    events: list[WatchEvent] = []
    session = zk.session_id
    world.run(zk.create("/e", b"", ephemeral=True))
    world.run(zk.create("/n", b""))
    world.run(zk.get("/n", events.append))
    world.expire(zk)
    world.run_until(lambda: zk.state is SessionState.EXPIRED)
    assert SessionState.EXPIRED in states
    with pytest.raises(SessionExpired):
        world.run(zk.get("/n"))
    with pytest.raises(SessionExpired):
        world.run(zk.create("/made-by-nobody", b""))
    world.run(zk.reconnect())
    assert states[-1] is SessionState.CONNECTED
    assert zk.session_id not in (0, session)
    assert world.run(zk.exists("/e")) is None
    assert world.run(zk.exists("/made-by-nobody")) is None
    world.run(zk.set("/n", b"1"))
    world.run(zk.exists("/"))
    assert events == []


def test_requests_under_way_when_the_session_ends(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b""))
    outcomes: list[object] = []

    def ended(failure: Any) -> None:
        failure.trap(ZkError)
        outcomes.append(failure.type)

    world.lose_connection(zk)
    world.expire(zk)
    world.restore_connection(zk)
    work = [zk.set("/n", b"%d" % i).addErrback(ended) for i in range(30)]
    world.run(gatherResults(work))
    world.run_until(lambda: zk.state is SessionState.EXPIRED)
    assert set(outcomes) <= {ConnectionLost, SessionExpired}
    assert len(outcomes) == 30
    world.run(zk.reconnect())
    assert world.run(zk.get("/n"))[0] == b""


def test_retrying_waits_for_the_connection_and_sends_again(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b""))
    world.lose_connection(zk)
    outcome: list[object] = []
    as_deferred(retrying(zk, lambda: zk.set("/n", b"1"))).addBoth(outcome.append)
    assert outcome == []
    world.restore_connection(zk)
    world.run_until(lambda: bool(outcome))
    assert isinstance(outcome[0], Stat)


def test_retrying_gives_up_with_the_session(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b""))
    world.lose_connection(zk)
    work = as_deferred(retrying(zk, lambda: zk.set("/n", b"1")))
    world.expire(zk)
    world.restore_connection(zk)
    with pytest.raises(SessionExpired):
        world.run(work)
    world.run(zk.reconnect())
    assert world.run(zk.get("/n"))[0] == b""


def test_retrying_stops_listening_when_cancelled(world: World, zk: ZkClient) -> None:
    world.run(zk.create("/n", b""))
    world.lose_connection(zk)
    work = as_deferred(retrying(zk, lambda: zk.set("/n", b"1")))
    ended: list[object] = []
    work.addBoth(ended.append)
    work.cancel()
    assert len(ended) == 1
    world.restore_connection(zk)
    world.run_until(lambda: zk.state is SessionState.CONNECTED)
    assert world.run(zk.get("/n"))[0] == b""


def test_paths_are_made_with_their_parents(world: World, zk: ZkClient) -> None:
    world.run(ensure_path(zk, "/a/b/c"))
    world.run(ensure_path(zk, "/a/b/c"))
    assert world.run(zk.get("/a/b"))[0] is None
    world.run(create_recursive(zk, "/a/x/y", b"payload"))
    assert world.run(zk.get("/a/x/y"))[0] == b"payload"
    assert world.run(zk.get("/a/x"))[0] is None
    with pytest.raises(NodeExists):
        world.run(create_recursive(zk, "/a/x/y", b"other"))


def test_close_twice_and_before_connect(world: World, zk: ZkClient) -> None:
    world.run(zk.close())
    world.run(zk.close())
    idle = world.client()
    world.run(idle.close())
    assert idle.state is SessionState.CLOSED
