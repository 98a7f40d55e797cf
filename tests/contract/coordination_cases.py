"""What a ZooKeeper does, as cases: each takes a `World` and returns observations.

Run against a real ZooKeeper and against the embedded service by `test_coordination.py`.
"""

import struct
import time
from collections.abc import Callable
from typing import Any

from .coordination_wire import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CHECK_WATCHES,
    CLOSE,
    COUNT_ALL,
    CREATE,
    CREATE2,
    CREATE_TTL,
    DELETE,
    EXISTS,
    GET_ACL,
    GET_CHILDREN,
    GET_CHILDREN2,
    GET_DATA,
    GET_EPHEMERALS,
    MULTI,
    MULTI_READ,
    OPEN,
    PING,
    RECONFIG,
    REMOVE_WATCHES,
    SET_ACL,
    SET_DATA,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    WHO_AM_I,
    Wire,
    World,
    acls,
    boolean,
    buf,
    create,
    i32,
    i64,
    multi,
    text,
    texts,
)

CASES: dict[str, Callable[[World], Any]] = {}
MAX_BUFFER = 0xFFFFF
"""jute.maxbuffer of the servers under test (ZooKeeper's default)."""
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
"""super:test"""


def case(function: Callable[[World], Any]) -> Callable[[World], Any]:
    CASES[function.__name__] = function
    return function


def read(path: str, watch: bool = False) -> bytes:
    return text(path) + boolean(watch)


def set_data(path: str, data: bytes | None, version: int = -1) -> bytes:
    return text(path) + buf(data) + i32(version)


def versioned(path: str, version: int = -1) -> bytes:
    return text(path) + i32(version)


def log_in(client: Wire, credentials: bytes, scheme: str = "digest") -> Any:
    return client.call(AUTH, i32(0) + text(scheme) + buf(credentials))


# -- nodes


@case
def fresh_system_nodes(world: World) -> Any:
    client = world.client()
    return [
        client.call(GET_CHILDREN, read("/zookeeper")),
        client.call(GET_DATA, read("/zookeeper")),
        client.call(GET_DATA, read("/zookeeper/quota")),
        client.call(GET_DATA, read("/zookeeper/config"))[:2],
        client.call(GET_ACL, text("/zookeeper/config"))[2][0],
        client.call(GET_ACL, text("/"))[2][0],
        client.call(EXISTS, read(""))[1],
    ]


@case
def create_kinds(world: World) -> Any:
    client, root = world.client(), world.root
    seen = [
        client.call(CREATE, create(f"{root}/plain", b"data")),
        client.call(CREATE2, create(f"{root}/with-stat", b"data")),
        client.call(CREATE2, create(f"{root}/ephemeral", b"x", flags=1)),
        client.call(CREATE, create(f"{root}/seq-", b"x", flags=2)),
        client.call(CREATE2, create(f"{root}/both-", b"x", flags=3)),
        client.call(CREATE, create(f"{root}/", b"x", flags=2)),
        client.call(CREATE, create(f"{root}/null", None)),
        client.call(CREATE, create(f"{root}/empty", b"")),
    ]
    for name in ("plain", "null", "empty", "ephemeral"):
        seen.append(client.call(GET_DATA, read(f"{root}/{name}")))
    seen.append(client.call(GET_CHILDREN2, read(root)))
    return seen


@case
def create_refused(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/e", flags=1))
    attempts = [
        create(root),
        create(f"{root}/a/b"),
        create("/"),
        create(""),
        create("relative"),
        create(f"{root}/trailing/"),
        create(f"{root}//double"),
        create(f"{root}/."),
        create(f"{root}/.."),
        create(f"{root}/./x"),
        create(f"{root}/nul\0"),
        create(f"{root}/control\x01"),
        create(f"{root}/high\x85"),
        create(f"{root}/private\ue000"),
        create(f"{root}/special\ufff5"),
        create(f"{root}/fine\u20ac"),
        create(f"{root}/...three"),
        create(f"{root}/acl", acl=[]),
        create(f"{root}/acl", acl=None),
        create(f"{root}/acl", acl=[(31, "nothing", "x")]),
        create(f"{root}/acl", acl=[(31, None, "x")]),
        create(f"{root}/acl", acl=[(31, "nothing", None)]),
        create(f"{root}/acl", acl=[(31, "auth", None)]),
        create(f"{root}/acl", acl=[(31, "world", None)]),
        create(f"{root}/acl", acl=[(31, "digest", None)]),
        create(f"{root}/acl", acl=[(31, "ip", None)]),
        create(f"{root}/acl", acl=[(31, "digest", "no-colon")]),
        create(f"{root}/acl", acl=[(31, "digest", "a:b:c")]),
        create(f"{root}/acl", acl=[(31, "ip", "not-an-address")]),
        create(f"{root}/acl", acl=[(31, "ip", "10.0.0.0/33")]),
        create(f"{root}/acl", acl=[(31, "auth", "")]),
        create(f"{root}/acl", acl=[(31, "world", "nobody")]),
        create(f"{root}/e/child"),
        create(f"{root}/flags", flags=-1),
        create(f"{root}/flags", flags=7),
        create(f"{root}/flags", flags=99),
    ]
    return [client.call(CREATE, attempt) for attempt in attempts]


@case
def sequence_numbers(world: World) -> Any:
    client, root = world.client(), world.root
    parent = f"{root}/parent"
    client.call(CREATE, create(parent))
    seen: list[Any] = []
    for _ in range(2):
        seen.append(client.call(CREATE, create(f"{parent}/n-", flags=2)))
    client.call(DELETE, versioned(f"{parent}/n-0000000001"))
    seen.append(client.call(CREATE, create(f"{parent}/other-", flags=2)))
    seen.append(client.call(CREATE, create(f"{parent}/plain")))
    seen.append(client.call(CREATE, create(f"{parent}/n-", flags=2)))
    seen.append(client.call(EXISTS, read(parent)))
    for name in ("n-0000000000", "other-0000000002", "plain", "n-0000000004"):
        client.call(DELETE, versioned(f"{parent}/{name}"))
    seen.append(client.call(EXISTS, read(parent)))
    client.call(DELETE, versioned(parent))
    client.call(CREATE, create(parent))
    seen.append(client.call(CREATE, create(f"{parent}/n-", flags=2)))
    seen.append(client.call(CREATE, create(f"{parent}/n-0000000001")))
    seen.append(client.call(CREATE, create(f"{parent}/n-", flags=2)))
    return seen


@case
def sequential_name_taken(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/n-0000000001"))
    return [
        client.call(CREATE, create(f"{root}/n-", flags=2)),
        client.call(CREATE, create(f"{root}/n-", flags=2)),
        client.call(GET_CHILDREN, read(root)),
    ]


@case
def set_data_versions(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a", b"0"))
    return [
        client.call(SET_DATA, set_data(f"{root}/a", b"one", 0)),
        client.call(SET_DATA, set_data(f"{root}/a", b"no", 0)),
        client.call(SET_DATA, set_data(f"{root}/a", b"two")),
        client.call(SET_DATA, set_data(f"{root}/a", b"no", 7)),
        client.call(SET_DATA, set_data(f"{root}/a", b"no", -2)),
        client.call(SET_DATA, set_data(f"{root}/a", None, 2)),
        client.call(GET_DATA, read(f"{root}/a")),
        client.call(SET_DATA, set_data(f"{root}/a", b"")),
        client.call(GET_DATA, read(f"{root}/a")),
        client.call(SET_DATA, set_data(f"{root}/missing", b"")),
        client.call(SET_DATA, set_data("", b"")),
        client.call(SET_DATA, set_data("relative", b"")),
        client.call(SET_DATA, set_data(f"{root}/a/", b"")),
        client.call(SET_DATA, set_data("/zookeeper/quota", b"")),
    ]


@case
def delete_rules(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    client.call(CREATE, create(f"{root}/a/b"))
    client.call(SET_DATA, set_data(f"{root}/a/b", b"x"))
    return [
        client.call(DELETE, versioned(f"{root}/a")),
        client.call(DELETE, versioned(f"{root}/a", 5)),
        client.call(DELETE, versioned(f"{root}/a/b", 0)),
        client.call(DELETE, versioned(f"{root}/a/b", 1)),
        client.call(DELETE, versioned(f"{root}/a/b", 1)),
        client.call(EXISTS, read(f"{root}/a")),
        client.call(DELETE, versioned(f"{root}/a")),
        client.call(DELETE, versioned(f"{root}/x/y")),
        client.call(DELETE, versioned("/")),
        client.call(DELETE, versioned("")),
        client.call(DELETE, versioned("relative")),
        client.call(DELETE, versioned("/zookeeper")),
        client.call(DELETE, versioned("/zookeeper/quota")),
        client.call(DELETE, versioned("/zookeeper/config")),
        client.call(DELETE, versioned(f"{root}/")),
    ]


@case
def reads_of_missing_nodes(world: World) -> Any:
    client, root = world.client(), world.root
    missing = f"{root}/missing"
    return [
        client.call(EXISTS, read(missing)),
        client.call(GET_DATA, read(missing)),
        client.call(GET_CHILDREN, read(missing)),
        client.call(GET_CHILDREN2, read(missing)),
        client.call(GET_ACL, text(missing)),
        client.call(COUNT_ALL, text(missing)),
        client.call(SYNC, text(missing)),
        client.call(GET_DATA, read(f"{root}/")),
        client.call(GET_DATA, read("no-slash")),
        client.call(EXISTS, read(f"{root}/nul\0")),
        client.call(CHECK, versioned(missing)),
    ]


@case
def stat_of_a_busy_parent(world: World) -> Any:
    client, root = world.client(), world.root
    seen: list[Any] = []
    client.call(CREATE, create(f"{root}/a"))
    seen.append(client.call(EXISTS, read(root)))
    client.call(CREATE, create(f"{root}/a/child"))
    client.call(SET_DATA, set_data(f"{root}/a", b"12345"))
    seen.append(client.call(EXISTS, read(f"{root}/a")))
    seen.append(client.call(EXISTS, read(root)))
    client.call(DELETE, versioned(f"{root}/a/child"))
    seen.append(client.call(EXISTS, read(f"{root}/a")))
    client.call(SET_ACL, text(f"{root}/a") + acls(OPEN) + i32(0))
    seen.append(client.call(EXISTS, read(f"{root}/a")))
    return seen


@case
def zxids(world: World) -> Any:
    """Which requests take one; a refused write does, reads do not."""
    client, root = world.client(), world.root
    return [
        client.call(EXISTS, read(root))[0],
        client.call(CREATE, create(f"{root}/a"))[0],
        client.call(CREATE, create(f"{root}/a"))[0],
        client.call(GET_DATA, read(f"{root}/a"))[0],
        client.call(SET_DATA, set_data(f"{root}/a", b"", 9))[0],
        client.call(SYNC, text("/"))[0],
        client.call(MULTI, multi((CREATE, create(f"{root}/b")), (CREATE, create(f"{root}/c"))))[0],
        client.call(MULTI, multi((CREATE, create(f"{root}/d")), (CREATE, create(f"{root}/d"))))[0],
        client.call(MULTI, multi())[0],
        client.call(DELETE, versioned("/"))[0],
        client.call(SET_ACL, text(f"{root}/a") + acls([]) + i32(0))[0],
        client.call(GET_CHILDREN2, read(root))[0],
        world.client().call(SYNC, text("/"))[0],
    ]


@case
def all_descendants_and_ephemerals(world: World) -> Any:
    client, root = world.client(), world.root
    other = world.client()
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        client.call(CREATE, create(root + path))
    client.call(CREATE, create(f"{root}/a/e1", flags=1))
    client.call(CREATE, create(f"{root}/ab/e2", flags=1))
    other.call(CREATE, create(f"{root}/other", flags=1))
    return [
        client.call(COUNT_ALL, text(root)),
        client.call(COUNT_ALL, text(f"{root}/a")),
        client.call(COUNT_ALL, text(f"{root}/a/b/c")),
        client.call(GET_EPHEMERALS, text("/")),
        client.call(GET_EPHEMERALS, text("")),
        client.call(GET_EPHEMERALS, text(None)),
        client.call(GET_EPHEMERALS, text(f"{root}/a")),
        client.call(GET_EPHEMERALS, text(f"{root}/a/")),
        client.call(GET_EPHEMERALS, text("/nothing")),
        other.call(GET_EPHEMERALS, text("/")),
    ]


@case
def unsupported_requests(world: World) -> Any:
    client, root = world.client(), world.root
    return [
        client.call(CREATE_TTL, create(f"{root}/ttl", flags=5) + i64(1000)),
        client.call(CREATE, create(f"{root}/ttl", flags=5)),
        client.call(CREATE, create(f"{root}/ttl", flags=6)),
        client.call(RECONFIG, text("server.2=a:1:2") + text(None) + text(None) + i64(-1)),
        client.call(SYNC, text("/")),
    ]


@case
def who_am_i(world: World) -> Any:
    client = world.client()
    seen = [sorted(client.call(WHO_AM_I)[2])]
    log_in(client, b"user:password")
    log_in(client, b"user:password")
    log_in(client, b"other")
    seen.append(sorted(client.call(WHO_AM_I)[2]))
    return seen


# -- multi


@case
def multi_succeeds(world: World) -> Any:
    client, root = world.client(), world.root
    return [
        client.call(
            MULTI,
            multi(
                (CREATE, create(f"{root}/a", b"1")),
                (CREATE2, create(f"{root}/a/b", None)),
                (CREATE, create(f"{root}/a/s-", flags=2)),
                (CREATE2, create(f"{root}/a/s-", flags=3)),
                (CHECK, versioned(f"{root}/a", 0)),
                (SET_DATA, set_data(f"{root}/a", b"22", 0)),
                (CHECK, versioned(f"{root}/a", 1)),
                (CHECK, versioned(f"{root}/a")),
                (DELETE, versioned(f"{root}/a/b", 0)),
                (CREATE, create(f"{root}/a/b", b"again")),
            ),
        ),
        client.call(GET_CHILDREN2, read(f"{root}/a")),
        client.call(GET_DATA, read(f"{root}/a/b")),
        client.call(MULTI, multi()),
    ]


@case
def multi_fails(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/kept", b"kept"))
    client.call(CREATE, create(f"{root}/kept/child"))
    before = client.call(EXISTS, read(root))[2]
    attempts = [
        multi(
            (CREATE, create(f"{root}/a")), (CREATE, create(f"{root}/a")), (CHECK, versioned("/"))
        ),
        multi((CHECK, versioned(f"{root}/kept", 3)), (CREATE, create(f"{root}/a"))),
        multi((CHECK, versioned(f"{root}/missing", 0))),
        multi(
            (SET_DATA, set_data(f"{root}/kept", b"changed")),
            (DELETE, versioned(f"{root}/kept/child")),
            (CREATE, create(f"{root}/kept/e", flags=1)),
            (CREATE, create(f"{root}/kept/s-", flags=2)),
            (DELETE, versioned(f"{root}/missing")),
        ),
        multi((DELETE, versioned(f"{root}/kept"))),
        multi((CREATE, create(f"{root}/e", flags=1)), (CREATE, create(f"{root}/e/child"))),
        multi((CREATE, create("bad path"))),
        multi((CREATE, create(f"{root}/x", acl=[]))),
        multi((CREATE, create(f"{root}/x", flags=9))),
        multi((CREATE, create(f"{root}/x", flags=5))),
        multi((CREATE2, create(f"{root}/x", flags=6))),
        multi((CREATE_TTL, create(f"{root}/x", flags=5) + i64(5000))),
    ]
    seen = [client.call(MULTI, attempt) for attempt in attempts]
    after = client.call(EXISTS, read(root))[2]
    seen.append([field for field in before if before[field] != after[field]])
    seen.append(client.call(GET_DATA, read(f"{root}/kept")))
    seen.append(client.call(GET_CHILDREN, read(f"{root}/kept")))
    seen.append(client.call(CREATE, create(f"{root}/kept/s-", flags=2)))
    seen.append(client.call(GET_EPHEMERALS, text("/")))
    return seen


@case
def multi_read_results(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a", b"data"))
    client.call(CREATE, create(f"{root}/null", None))
    return [
        client.call(
            MULTI_READ,
            multi(
                (GET_DATA, read(f"{root}/a")),
                (GET_CHILDREN, read(root)),
                (GET_DATA, read(f"{root}/missing")),
                (GET_CHILDREN, read(f"{root}/missing")),
                (GET_DATA, read(f"{root}/null")),
                (GET_CHILDREN, read(f"{root}/a")),
            ),
        ),
        client.call(MULTI_READ, multi()),
    ]


@case
def multi_malformed(world: World) -> Any:
    client, root = world.client(), world.root
    return [
        client.call(MULTI, i32(77) + b"\0" + i32(-1)),
        client.call(MULTI, i32(CREATE) + b"\0" + i32(-1) + create(f"{root}/a")),
        client.call(MULTI, multi((CREATE, create(f"{root}/a")), (GET_DATA, read(root)))),
        client.call(MULTI_READ, multi((GET_DATA, read(root)), (CREATE, create(f"{root}/a")))),
        client.call(EXISTS, read(f"{root}/a"))[1],
    ]


# -- watches


@case
def one_shot_watches(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    seen: list[Any] = []
    for path in ("/data", "/list", "/list/gone"):
        client.call(CREATE, create(root + path))
    client.call(GET_DATA, read(f"{root}/data", True))
    client.call(EXISTS, read(f"{root}/absent", True))
    client.call(GET_DATA, read(f"{root}/absent2", True))
    client.call(GET_CHILDREN, read(f"{root}/list", True))
    client.call(GET_CHILDREN2, read(f"{root}/list/gone", True))
    client.call(GET_DATA, read(f"{root}/list/gone", True))
    other.call(SET_DATA, set_data(f"{root}/data", b"1"))
    seen.append(client.take_events())
    other.call(SET_DATA, set_data(f"{root}/data", b"2"))
    other.call(CREATE, create(f"{root}/absent"))
    other.call(CREATE, create(f"{root}/absent2"))
    seen.append(client.take_events())
    other.call(DELETE, versioned(f"{root}/list/gone"))
    seen.append(client.take_events())
    other.call(CREATE, create(f"{root}/list/new"))
    seen.append(client.take_events())
    return seen


@case
def watch_on_own_change(world: World) -> Any:
    """The event goes out before the answer of the request that caused it."""
    client, root = world.client(), world.root
    client.call(EXISTS, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(root, True))
    client.request(CREATE, create(f"{root}/a"))
    seen = [client.next() for _ in range(3)]
    client.call(GET_DATA, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(root, True))
    client.request(DELETE, versioned(f"{root}/a"))
    seen += [client.next() for _ in range(3)]
    seen.append(client.take_events())
    return seen


@case
def watches_do_not_fire(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    client.call(GET_DATA, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(root, True))
    client.call(SET_ACL, text(f"{root}/a") + acls(OPEN) + i32(-1))
    client.call(SET_DATA, set_data(f"{root}/a", b"", 9))
    client.call(CREATE, create(f"{root}/a"))
    client.call(CREATE, create(f"{root}/a/child"))
    client.call(MULTI, multi((CREATE, create(f"{root}/b")), (CHECK, versioned(f"{root}/a", 9))))
    client.call(GET_DATA, read(f"{root}/a", False))
    return client.take_events()


@case
def multi_fires_watches_in_order(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    for path in (f"{root}/b", f"{root}/c"):
        client.call(EXISTS, read(path, True))
    client.call(GET_DATA, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(root, True))
    client.request(
        MULTI,
        multi(
            (SET_DATA, set_data(f"{root}/a", b"x")),
            (CREATE, create(f"{root}/c")),
            (CREATE, create(f"{root}/b")),
            (DELETE, versioned(f"{root}/c")),
        ),
    )
    return [client.next() for _ in range(5)] + client.take_events()


@case
def persistent_watches(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    client.call(CREATE, create(f"{root}/p"))
    client.call(CREATE, create(f"{root}/r"))
    seen = [
        client.call(ADD_WATCH, text(f"{root}/p") + i32(0)),
        client.call(ADD_WATCH, text(f"{root}/r") + i32(1)),
        client.call(ADD_WATCH, text(f"{root}/later") + i32(0)),
        client.call(ADD_WATCH, text(root) + i32(5)),
    ]
    for _ in range(2):
        other.call(SET_DATA, set_data(f"{root}/p", b"x"))
        other.call(CREATE, create(f"{root}/p/c"))
        other.call(SET_DATA, set_data(f"{root}/p/c", b"x"))
        other.call(DELETE, versioned(f"{root}/p/c"))
        seen.append(client.take_events())
        other.call(SET_DATA, set_data(f"{root}/r", b"x"))
        other.call(CREATE, create(f"{root}/r/c"))
        other.call(CREATE, create(f"{root}/r/c/d"))
        other.call(SET_DATA, set_data(f"{root}/r/c/d", b"x"))
        other.call(DELETE, versioned(f"{root}/r/c/d"))
        other.call(DELETE, versioned(f"{root}/r/c"))
        seen.append(client.take_events())
    other.call(CREATE, create(f"{root}/later"))
    other.call(DELETE, versioned(f"{root}/p"))
    other.call(CREATE, create(f"{root}/p"))
    seen.append(client.take_events())
    return seen


@case
def recursive_watch_on_the_root(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(ADD_WATCH, text("/") + i32(1))
    client.call(CREATE, create(f"{root}/a"))
    client.call(SET_DATA, set_data("/", b""))
    return client.take_events()


@case
def removing_watches(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    seen = [
        client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(3)),
        client.call(CHECK_WATCHES, text(f"{root}/a") + i32(3)),
    ]
    client.call(GET_DATA, read(f"{root}/a", True))
    seen += [
        client.call(CHECK_WATCHES, text(f"{root}/a") + i32(1)),
        client.call(CHECK_WATCHES, text(f"{root}/a") + i32(2)),
        client.call(CHECK_WATCHES, text(f"{root}/a") + i32(3)),
        client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(1)),
        client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(2)),
        client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(2)),
    ]
    client.call(GET_DATA, read(f"{root}/a", True))
    client.call(GET_CHILDREN, read(f"{root}/a", True))
    seen.append(client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(3)))
    client.call(ADD_WATCH, text(f"{root}/a") + i32(0))
    seen.append(client.call(CHECK_WATCHES, text(f"{root}/a") + i32(3)))
    seen.append(client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(3)))
    client.call(ADD_WATCH, text(f"{root}/a") + i32(1))
    seen.append(client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(3)))
    seen.append(client.call(REMOVE_WATCHES, text(f"{root}/a") + i32(9)))
    client.call(SET_DATA, set_data(f"{root}/a", b"x"))
    client.call(CREATE, create(f"{root}/a/b"))
    seen.append(client.take_events())
    return seen


@case
def setting_watches_again(world: World) -> Any:
    client, root = world.client(), world.root
    for name in ("same", "changed", "gone", "list-same", "list-changed", "list-gone", "born0"):
        client.call(CREATE, create(f"{root}/{name}"))
    seen_zxid = client.raw_zxid()
    client.call(SET_DATA, set_data(f"{root}/changed", b""))
    client.call(DELETE, versioned(f"{root}/gone"))
    client.call(CREATE, create(f"{root}/list-changed/c"))
    client.call(DELETE, versioned(f"{root}/list-gone"))
    client.call(CREATE, create(f"{root}/born"))
    body = (
        i64(seen_zxid)
        + texts([f"{root}/same", f"{root}/changed", f"{root}/gone"])
        + texts([f"{root}/born", f"{root}/unborn"])
        + texts([f"{root}/list-same", f"{root}/list-changed", f"{root}/list-gone"])
    )
    client.request(SET_WATCHES, body, xid=-8)
    seen = [client.next() for _ in range(6)]
    client.call(SET_DATA, set_data(f"{root}/same", b""))
    client.call(SET_DATA, set_data(f"{root}/changed", b""))
    client.call(CREATE, create(f"{root}/unborn"))
    client.call(CREATE, create(f"{root}/list-same/c"))
    seen.append(client.take_events())
    persistent = texts([]) * 3 + texts([f"{root}/p"]) + texts([f"{root}/r"])
    client.request(SET_WATCHES2, i64(seen_zxid) + persistent, xid=-9)
    seen.append(client.next())
    for name in ("p", "p/c", "r", "r/c"):
        client.call(CREATE, create(f"{root}/{name}"))
    seen.append(client.take_events())
    return seen


@case
def watches_belong_to_the_connection(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    client.call(GET_DATA, read(f"{root}/a", True))
    again = world.wire()
    seen: list[Any] = [again.connect(session_id=client.session_id, password=client.password)]
    seen.append(client.is_closed())
    client.session_id = 0
    other.call(SET_DATA, set_data(f"{root}/a", b"x"))
    seen.append(again.take_events())
    return seen


# -- sessions


@case
def timeout_negotiation(world: World) -> Any:
    world.client()
    answers = []
    for wanted in (-5, 0, 1, 3999, 4000, 12_345, 40_000, 40_001, 2**31 - 1):
        answers.append(world.wire().connect(wanted))
    return answers


@case
def old_clients_are_not_told_of_read_only(world: World) -> Any:
    world.client()
    return [world.wire().connect(read_only=b""), world.wire().connect(read_only=b"\1")]


@case
def reattaching(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/e", flags=1))
    client.socket.close()
    seen: list[Any] = []
    for password in (b"wrong wrong wron", b"short", b"", None):
        wire = world.wire()
        seen.append(wire.connect(session_id=client.session_id, password=password))
        seen.append(wire.is_closed())
    wire = world.wire()
    seen.append(wire.connect(session_id=0x123456, password=client.password))
    seen.append(wire.is_closed())
    again = world.wire()
    seen.append(again.connect(5000, session_id=client.session_id, password=client.password))
    seen.append(again.call(EXISTS, read(f"{root}/e")))
    seen.append(again.call(CLOSE))
    seen.append(again.is_closed())
    gone = world.wire()
    seen.append(gone.connect(session_id=again.session_id, password=again.password))
    seen.append(gone.is_closed())
    client.session_id = again.session_id = 0
    return seen


@case
def a_client_from_the_future(world: World) -> Any:
    client = world.client()
    wire = world.wire()
    record = i32(0) + i64(client.raw_zxid() + 1000) + i32(10_000) + i64(0) + buf(bytes(16)) + b"\0"
    wire.send_frame(record)
    return wire.is_closed()


@case
def closing_removes_ephemerals(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    client.call(CREATE, create(f"{root}/p"))
    client.call(CREATE, create(f"{root}/p/e", flags=1))
    other.call(GET_DATA, read(f"{root}/p/e", True))
    other.call(GET_CHILDREN, read(f"{root}/p/e", True))
    other.call(GET_CHILDREN, read(f"{root}/p", True))
    seen: list[Any] = [client.call(CLOSE), client.is_closed()]
    client.session_id = 0
    seen.append(other.take_events())
    seen.append(other.call(EXISTS, read(f"{root}/p")))
    return seen


@case
def closing_with_own_watches(world: World) -> Any:
    """Whoever closes still hears of its own nodes' end, then the answer."""
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/e", flags=1))
    client.call(GET_DATA, read(f"{root}/e", True))
    client.request(CLOSE)
    seen = [client.next(), client.next(), client.is_closed()]
    client.session_id = 0
    return seen


@case
def expiry_removes_ephemerals(world: World) -> Any:
    client, other, root = world.client(4000), world.client(30_000), world.root
    client.call(CREATE, create(f"{root}/p"))
    client.call(CREATE, create(f"{root}/p/e", flags=1))
    other.call(GET_DATA, read(f"{root}/p/e", True))
    other.call(GET_CHILDREN, read(f"{root}/p", True))
    events = [other.next(), other.next()]
    seen: list[Any] = [events, client.is_closed()]
    late = world.wire()
    seen.append(late.connect(session_id=client.session_id, password=client.password))
    seen.append(late.is_closed())
    seen.append(other.call(EXISTS, read(f"{root}/p")))
    client.session_id = 0
    return seen


@case
def pings_keep_a_session(world: World) -> Any:
    client, root = world.client(4000), world.root
    client.call(CREATE, create(f"{root}/e", flags=1))
    seen: list[Any] = []
    for number in range(15):
        time.sleep(0.5)
        client.request(PING, xid=-2)
        answer = client.next()
        if number % 3 == 2:
            seen.append(answer)
    seen.append(client.call(EXISTS, read(f"{root}/e"))[1])
    return seen


@case
def closing_removes_many_ephemerals(world: World) -> Any:
    """In no promised order, but each node's events together, under one zxid."""
    client, other, root = world.client(), world.client(), world.root
    for parent in ("a", "b"):
        client.call(CREATE, create(f"{root}/{parent}"))
        for name in ("e1", "e2"):
            client.call(CREATE, create(f"{root}/{parent}/{name}", flags=1))
            other.call(EXISTS, read(f"{root}/{parent}/{name}", True))
        other.call(GET_CHILDREN, read(f"{root}/{parent}", True))
    client.call(CLOSE)
    client.session_id = 0
    seen = [sorted(other.take_events())]
    seen.append(other.call(EXISTS, read(f"{root}/a"))[2])
    seen.append(other.call(EXISTS, read(f"{root}/b"))[2])
    return seen


@case
def requests_behind_a_close(world: World) -> Any:
    client, root = world.client(), world.root
    client.request(CREATE, create(f"{root}/before"))
    client.request(CLOSE)
    client.session_id = 0
    seen = [client.next(), client.next(), client.is_closed()]
    seen.append(world.client().call(EXISTS, read(f"{root}/before"))[1])
    return seen


@case
def watchers_are_told_each_once(world: World) -> Any:
    """A watcher of both kinds on a deleted node hears of the deletion once."""
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/a"))
    client.call(ADD_WATCH, text(f"{root}/a") + i32(0))
    client.call(GET_CHILDREN, read(root, True))
    client.call(DELETE, versioned(f"{root}/a"))
    seen = [client.take_events()]
    other = world.client()
    other.call(ADD_WATCH, text(root) + i32(1))
    other.call(EXISTS, read(f"{root}/b", True))
    client.call(CREATE, create(f"{root}/b"))
    seen.append(other.take_events())
    return seen


@case
def data_of_all_sizes(world: World) -> Any:
    client, root = world.client(), world.root
    seen: list[Any] = []
    for size in (0, 1, 1000, 100_000):
        client.call(CREATE, create(f"{root}/n{size}", b"d" * size))
        answer = client.call(GET_DATA, read(f"{root}/n{size}"))
        seen.append([len(answer[2][0]), answer[2][1]["length"]])
    return seen


@case
def names_in_many_alphabets(world: World) -> Any:
    client, root = world.client(), world.root
    names = ["über", "日本", "a b", "x:y;z", "😀", "%2F", "..x", "-"]
    seen = [client.call(CREATE, create(f"{root}/{name}")) for name in names]
    seen.append(client.call(GET_CHILDREN, read(root)))
    return seen


@case
def ephemerals_of_others(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    client.call(CREATE, create(f"{root}/e", b"1", flags=1))
    seen = [
        other.call(GET_DATA, read(f"{root}/e")),
        other.call(SET_DATA, set_data(f"{root}/e", b"2", 0)),
        other.call(CREATE, create(f"{root}/e", flags=1)),
        other.call(DELETE, versioned(f"{root}/e")),
        other.call(CREATE, create(f"{root}/e", flags=1)),
    ]
    client.call(CLOSE)
    client.session_id = 0
    seen.append(other.call(EXISTS, read(f"{root}/e")))
    return seen


# -- access control


@case
def acl_versions(world: World) -> Any:
    client, root = world.client(), world.root
    path = f"{root}/a"
    client.call(CREATE, create(path))
    return [
        client.call(SET_ACL, text(path) + acls([(31, "world", "anyone")]) + i32(0)),
        client.call(SET_ACL, text(path) + acls([(31, "world", "anyone")]) + i32(0)),
        client.call(SET_ACL, text(path) + acls([(31, "world", "anyone")]) + i32(-1)),
        client.call(SET_ACL, text(path) + acls([]) + i32(-1)),
        client.call(SET_ACL, text(path) + acls([(1, "digest", "bad")]) + i32(-1)),
        client.call(SET_ACL, text(f"{root}/missing") + acls(OPEN) + i32(-1)),
        client.call(SET_ACL, text(f"{root}/missing") + acls([]) + i32(-1)),
        client.call(
            SET_ACL,
            text(path) + acls([(1, "world", "anyone"), (16, "ip", "127.0.0.0/8")] * 2) + i32(-1),
        ),
        client.call(GET_ACL, text(path)),
        client.call(SET_ACL, text(path) + acls([(0, "world", "anyone")]) + i32(-1)),
        client.call(GET_ACL, text(path)),
        client.call(SET_ACL, text(path) + acls(OPEN) + i32(-1)),
    ]


@case
def acl_permissions(world: World) -> Any:
    client, root = world.client(), world.root
    seen: list[Any] = []
    for name, perms in (("read", 1), ("write", 2), ("create", 4), ("delete", 8), ("admin", 16)):
        path = f"{root}/{name}"
        client.call(CREATE, create(path))
        client.call(CREATE, create(f"{path}/child"))
        client.call(SET_ACL, text(path) + acls([(perms, "world", "anyone")]) + i32(-1))
        codes = [
            client.call(GET_DATA, read(path))[1],
            client.call(GET_CHILDREN, read(path))[1],
            client.call(GET_CHILDREN2, read(path))[1],
            client.call(EXISTS, read(path))[1],
            client.call(GET_ACL, text(path))[1],
            client.call(COUNT_ALL, text(path))[1],
            client.call(SET_DATA, set_data(path, b""))[1],
            client.call(SET_DATA, set_data(path, b"", 77))[1],
            client.call(CREATE, create(f"{path}/new"))[1],
            client.call(CREATE, create(f"{path}/child"))[1],
            client.call(DELETE, versioned(f"{path}/child"))[1],
            client.call(DELETE, versioned(f"{path}/missing"))[1],
            client.call(MULTI, multi((CHECK, versioned(path, 0)))),
            client.call(MULTI_READ, multi((GET_DATA, read(path)), (GET_CHILDREN, read(path)))),
            client.call(SET_ACL, text(path) + acls([(perms, "world", "anyone")]) + i32(-1))[1],
        ]
        seen.append([name, codes])
    return seen


@case
def digest_identities(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    seen = [log_in(client, b"user:password")]
    seen.append(client.call(CREATE, create(f"{root}/auth", b"secret", acl=[(31, "auth", "")])))
    seen.append(client.call(GET_ACL, text(f"{root}/auth")))
    seen.append(other.call(GET_DATA, read(f"{root}/auth")))
    seen.append(other.call(GET_ACL, text(f"{root}/auth")))
    seen.append(log_in(other, b"user:wrong"))
    seen.append(other.call(GET_DATA, read(f"{root}/auth")))
    seen.append(log_in(other, b"user:password"))
    seen.append(other.call(GET_DATA, read(f"{root}/auth")))
    seen.append(client.call(CREATE, create(f"{root}/null-id", acl=[(31, "auth", None)])))
    seen.append(client.call(GET_ACL, text(f"{root}/null-id")))
    log_in(client, b"second:p:w")
    seen.append(
        client.call(
            CREATE,
            create(f"{root}/two", acl=[(1, "auth", "ignored"), (2, "world", "anyone")]),
        )
    )
    seen.append(client.call(GET_ACL, text(f"{root}/two")))
    visible = [(1, "world", "anyone"), (31, "digest", "user:abc=")]
    seen.append(client.call(CREATE, create(f"{root}/masked", acl=visible)))
    seen.append(other.call(GET_ACL, text(f"{root}/masked")))
    return seen


@case
def ip_identities(world: World) -> Any:
    client, root = world.client(), world.root
    seen = [log_in(client, b"", "ip")]
    for position, pattern in enumerate(
        ("127.0.0.1", "127.0.0.0/8", "127.0.0.2", "10.0.0.0/8", "0.0.0.0/0")
    ):
        path = f"{root}/{position}"
        client.call(CREATE, create(path, acl=[(1, "ip", pattern)]))
        seen.append(client.call(GET_DATA, read(path))[1])
    return seen


@case
def super_user(world: World) -> Any:
    client, root = world.client(), world.root
    client.call(CREATE, create(f"{root}/closed", b"x", acl=[(31, "digest", "a:b")]))
    seen = [client.call(GET_DATA, read(f"{root}/closed"))]
    seen.append(log_in(client, b"super:test"))
    seen.append(client.call(GET_DATA, read(f"{root}/closed")))
    seen.append(client.call(GET_ACL, text(f"{root}/closed")))
    seen.append(sorted(client.call(WHO_AM_I)[2]))
    return seen


@case
def authentication_fails(world: World) -> Any:
    seen: list[Any] = []
    for scheme in ("unknown", "world", "auth", "super", None):
        client = world.client()
        client.request(AUTH, i32(0) + text(scheme) + buf(b"x:y"), xid=-4)
        seen.append([client.next(), client.is_closed()])
    return seen


@case
def events_respect_acl(world: World) -> Any:
    client, other, root = world.client(), world.client(), world.root
    log_in(other, b"o:o")
    other.call(EXISTS, read(f"{root}/secret", True))
    client.call(EXISTS, read(f"{root}/secret", True))
    other.call(CREATE, create(f"{root}/secret", acl=[(31, "auth", "")]))
    return [client.take_events(), other.take_events()]


# -- the wire


@case
def pipelined_requests(world: World) -> Any:
    client, root = world.client(), world.root
    for number in range(20):
        client.request(CREATE, create(f"{root}/n-", flags=2))
        client.request(GET_DATA, read(f"{root}/n-{number:010d}"))
        client.request(EXISTS, read(f"{root}/n-{number + 1:010d}"))
    return [client.next()[:3] for _ in range(60)]


@case
def fragments(world: World) -> Any:
    client, root = world.client(), world.root
    frame = i32(900) + i32(CREATE) + create(f"{root}/a", b"slow")
    client._kinds[900] = CREATE
    for byte in i32(len(frame)) + frame:
        client.send(bytes([byte]))
    return client.next()


@case
def odd_xids(world: World) -> Any:
    client, root = world.client(), world.root
    seen: list[Any] = []
    for xid in (0, -5, 2**31 - 1, -(2**31), 5, 5):
        client.request(EXISTS, read(root), xid=xid)
        seen.append(client.next()[:3])
    client.request(PING, xid=77)
    seen.append(client.next()[:3])
    return seen


@case
def unknown_request_type(world: World) -> Any:
    seen: list[Any] = []
    for kind in (0, 10, 23, 99, 999, -1, -12):
        client = world.client()
        client.request(kind, text("/"))
        seen.append([client.next(), client.is_closed()])
    return seen


@case
def malformed_requests(world: World) -> Any:
    client, root = world.client(), world.root
    attempts = [
        (GET_DATA, b""),
        (GET_DATA, text(root)),
        (GET_DATA, i32(1000) + b"short"),
        (GET_DATA, i32(-2) + b"\0"),
        (GET_DATA, text(None) + b"\0"),
        (CREATE, b""),
        (CREATE, text(f"{root}/a") + buf(b"") + i32(1)),
        (CREATE, text(f"{root}/a") + buf(b"") + i32(1 << 30)),
        (CREATE, create(None)),
        (SET_DATA, text(root)),
        (DELETE, i32(5)),
        (SET_WATCHES, i64(0) + i32(1000)),
        (EXISTS, text(root) + b"\1" + b"trailing bytes"),
        (SYNC, b""),
    ]
    seen = [client.call(kind, body) for kind, body in attempts]
    seen.append(client.call(EXISTS, read(root))[1])
    return seen


@case
def header_cut_short(world: World) -> Any:
    seen: list[Any] = []
    for frame in (b"", b"\0\0", i32(1), i32(1) + b"\0\0"):
        client = world.client()
        client.send_frame(frame)
        seen.append(client.is_closed())
    return seen


@case
def frame_sizes(world: World) -> Any:
    client, root = world.client(), world.root
    overhead = 8 + len(set_data(root, b""))
    fits = b"x" * (MAX_BUFFER - overhead)
    seen = [
        client.call(SET_DATA, set_data(root, fits))[1],
        client.call(GET_DATA, read(root))[2][1]["length"],
    ]
    client.send(i32(MAX_BUFFER + 1) + b"x" * 100)
    seen.append(client.is_closed())
    negative = world.client()
    negative.send(i32(-5))
    seen.append(negative.is_closed())
    unconnected = world.wire()
    unconnected.send(i32(MAX_BUFFER + 1))
    seen.append(unconnected.is_closed())
    return seen


@case
def garbage_instead_of_a_handshake(world: World) -> Any:
    world.client()
    seen: list[Any] = []
    for data in (b"GET / HTTP/1.1\r\n\r\n", i32(3) + b"abc", i32(16) + bytes(16)):
        wire = world.wire()
        wire.send(data)
        seen.append(wire.is_closed())
    return seen


@case
def four_letter_words(world: World) -> Any:
    client = world.client()
    client.call(GET_DATA, read("/", True))
    answers: dict[str, Any] = {}
    for word in (b"ruok", b"isro", b"srvr", b"stat", b"mntr", b"wchs", b"cons", b"envi", b"ruok\n"):
        wire = world.wire()
        wire.send(word)
        answers[repr(word)] = wire.until_closed().decode()
    monitored = dict(line.split("\t") for line in answers["b'mntr'"].strip().split("\n"))
    version = answers["b'srvr'"].split("\n")[0]
    return [
        answers["b'ruok'"],
        answers["b'ruok\\n'"],
        answers["b'isro'"],
        [line.split(":")[0] for line in answers["b'srvr'"].split("\n")],
        version.split(" ")[2].split("-")[0].rsplit(".", 1)[0],
        [line.split(":")[0] for line in answers["b'stat'"].split("\n") if "/" not in line[:2]],
        answers["b'envi'"].split("\n")[0],
        [monitored[key] for key in ("zk_server_state", "zk_watch_count", "zk_ephemerals_count")],
        answers["b'wchs'"],
        f"sid=0x{client.session_id:x}" in answers["b'cons'"],
    ]


@case
def a_word_after_the_handshake_is_a_length(world: World) -> Any:
    client = world.client()
    client.send(b"ruok")
    return client.is_closed()


@case
def chroot_is_only_a_prefix(world: World) -> Any:
    """What kazoo asks for: the server knows no chroot, a missing one is a missing parent."""
    client, root = world.client(), world.root
    return [
        client.call(CREATE, create(f"{root}/chroot/a")),
        client.call(CREATE, create(f"{root}/chroot")),
        client.call(CREATE, create(f"{root}/chroot/a")),
        client.call(GET_CHILDREN, read(f"{root}/chroot")),
    ]


@case
def reply_header_is_all_of_an_error(world: World) -> Any:
    client, root = world.client(), world.root
    client.request(GET_DATA, read(f"{root}/missing"), xid=5)
    frame = client.receive_frame()
    return [len(frame), struct.unpack(">i", frame[:4])[0], struct.unpack(">i", frame[12:])[0]]
