"""Random histories of three clients, the same on every server for the same seed."""

import random
from typing import Any

from .coordination_cases import log_in, read, set_data, versioned
from .coordination_wire import (
    ADD_WATCH,
    CHECK,
    CLOSE,
    CREATE,
    CREATE2,
    DELETE,
    EXISTS,
    GET_ACL,
    GET_CHILDREN2,
    GET_DATA,
    GET_EPHEMERALS,
    MULTI,
    MULTI_READ,
    REMOVE_WATCHES,
    SET_ACL,
    SET_DATA,
    Wire,
    World,
    acls,
    create,
    i32,
    multi,
    text,
)

STEPS = 120
NAMES = ("a", "b", "c")
ACLS: list[list[tuple[int, str | None, str | None]]] = [
    [(31, "world", "anyone")],
    [(31, "world", "anyone")],
    [(1, "world", "anyone"), (30, "auth", "")],
    [(31, "auth", "")],
    [(31, "ip", "127.0.0.1")],
    [(29, "world", "anyone")],
]


class History:
    """Draws requests; everything random comes from the seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.clients: list[Wire] = [world.client() for _ in range(3)]
        self.seen: list[Any] = []
        log_in(self.clients[0], b"one:one")

    def path(self) -> str:
        depth = self.random.choice((1, 1, 2, 2, 3))
        return self.world.root + "".join("/" + self.random.choice(NAMES) for _ in range(depth))

    def version(self) -> int:
        return self.random.choice((-1, -1, -1, 0, 1, 2))

    def write(self) -> tuple[int, bytes]:
        path = self.path()
        kind = self.random.choice(
            (CREATE, CREATE, CREATE, CREATE2, DELETE, SET_DATA, SET_DATA, CHECK)
        )
        if kind in (CREATE, CREATE2):
            data = self.random.choice((b"", b"data", None))
            flags = self.random.choice((0, 0, 0, 1, 2, 3))
            suffix = self.random.choice(("", "-s-")) if flags >= 2 else ""
            return kind, create(path + suffix, data, self.random.choice(ACLS), flags)
        if kind == SET_DATA:
            data = self.random.choice((b"x", b"longer", b"", None))
            return kind, set_data(path, data, self.version())
        return kind, versioned(path, self.version())

    def request(self, *, stays: bool) -> tuple[int, bytes]:
        """`stays`: watches are recursive and stay, else they are one-shot.  A client keeps to one
        kind: ZooKeeper before 3.9 lets one on the same path replace the other.
        """
        kind = self.random.choice(
            (
                *("write",) * 8,
                *("multi",) * 3,
                *("get", "exists", "children") * 2,
                *("set_acl", "get_acl", "multi_read", "remove_watch", "ephemerals"),
                *(("add_watch",) if stays else ()),
            )
        )
        watch = self.random.random() < 0.5 and not stays
        if kind == "write":
            while (request := self.write())[0] == CHECK:
                pass  # outside a multi the original does not answer it
            return request
        if kind == "multi":
            return MULTI, multi(*(self.write() for _ in range(self.random.randint(1, 5))))
        if kind == "multi_read":
            reads = [(self.random.choice((GET_DATA, 8)), read(self.path())) for _ in range(3)]
            return MULTI_READ, multi(*reads)
        path = self.path()
        acl = self.random.choice(ACLS)
        return {
            "get": (GET_DATA, read(path, watch)),
            "exists": (EXISTS, read(path, watch)),
            "children": (GET_CHILDREN2, read(path, watch)),
            "set_acl": (SET_ACL, text(path) + acls(acl) + i32(self.version())),
            "get_acl": (GET_ACL, text(path)),
            "add_watch": (ADD_WATCH, text(path) + i32(1)),
            "remove_watch": (REMOVE_WATCHES, text(path) + i32(3)),
            "ephemerals": (GET_EPHEMERALS, text("/")),
        }[kind]

    def step(self) -> None:
        position = self.random.randrange(len(self.clients))
        client = self.clients[position]
        if self.random.random() < 0.04:
            answer = client.call(CLOSE)
            client.session_id = 0
            events = sorted(client.events, key=str)
            self.clients[position] = self.world.client()
            self.seen.append(["close", position, answer, events])
            # Ephemeral nodes disappear in no promised order.
            self.seen.append([sorted(c.take_events(), key=str) for c in self.clients])
            return
        kind, body = self.request(stays=position == 2)
        self.seen.append([position, kind, client.call(kind, body)])
        self.seen.append([c.take_events() for c in self.clients])


def random_history(world: World, seed: int) -> list[Any]:
    """Requests drawn from the seed, with all answers and events."""
    history = History(world, seed)
    for _ in range(STEPS):
        history.step()
    history.seen.append(history.clients[0].call(GET_CHILDREN2, read(world.root)))
    return history.seen
