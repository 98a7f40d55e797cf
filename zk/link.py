"""Between the loop and the thread of a ZooKeeper session: what crosses, in either direction.

`SessionClient` runs on the loop and knows ZooKeeper's rules; a `Link` is one session over the
network and has a thread of its own.  The loop gives it `Call`s; everything that happens comes back as
`Item`s, in the order in which it happened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from . import wire

DEFAULT_MAX_REQUEST_BYTES: Final = 4 << 20


@dataclass(slots=True, frozen=True)
class ZkTls:
    """How to speak TLS to ZooKeeper; PEM files."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_certs: bool = True
    check_hostname: bool = True


@dataclass(slots=True, frozen=True)
class ZkOptions:
    """How to reach ZooKeeper (Kafka's `zookeeper.*` settings).

    `connect` is `host1:port1,host2:port2[/chroot]`.  `acl` decides what created nodes carry;
    `auth` holds (scheme, credential) pairs, `sasl` kazoo's SASL options.
    """

    connect: str
    session_timeout_ms: int = 18_000
    max_in_flight: int = 10
    request_timeout_s: float | None = None
    """How long an answer may take; None: the session timeout."""
    max_queued: int = 10_000
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    tls: ZkTls | None = None
    auth: Sequence[tuple[str, str]] = ()
    sasl: Mapping[str, str] | None = None
    acl: wire.AclPolicy = field(default=lambda path: wire.OPEN_ACL)


def split_connect(connect: str) -> tuple[str, str]:
    """Hosts and chroot ("" when there is none) of a connect string.  Raises ValueError."""
    hosts, slash, rest = connect.partition("/")
    chroot = f"/{rest.rstrip('/')}" if slash and rest.strip("/") else ""
    if not hosts.strip():
        raise ValueError(f"zookeeper.connect {connect!r} names no host")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"zookeeper.connect {connect!r}: {chroot!r} is no valid path")
    return hosts, chroot


class Call:
    """One request on its way."""

    __slots__ = ("connection", "deferred", "request", "sent_s", "then")

    def __init__(
        self, request: wire.WireRequest, then: "Callable[[Answer], Any] | None" = None
    ) -> None:
        self.request = request
        self.then = then
        """On the loop, turns the answer into the result; runs even if nobody waits any more."""
        self.connection = 0
        """Number of the only connection on which the request may be sent."""
        self.sent_s = 0.0
        self.deferred: Deferred[Any] = Deferred()


@dataclass(slots=True, frozen=True)
class Answer:
    call: Call
    value: Any
    zxid: int


@dataclass(slots=True, frozen=True)
class Event:
    type: int
    path: str


@dataclass(slots=True, frozen=True)
class Connected:
    number: int
    session_id: int
    password: bytes
    negotiated_timeout_ms: int
    last_zxid: int


@dataclass(slots=True, frozen=True)
class Lost:
    """The connection is gone, the session perhaps not; outstanding calls are answered after this."""


@dataclass(slots=True, frozen=True)
class Over:
    """The session is gone: it expired, was closed, refused (auth), or its thread failed."""

    reason: str
    auth_failed: bool = False


@dataclass(slots=True, frozen=True)
class Ended:
    """The session's thread has ended."""


Item = Answer | Event | Connected | Lost | Over | Ended


class Link(Protocol):
    """One session.  Methods are called on the loop and do not block."""

    def open(self) -> None:
        """Begin to connect; goes on trying until the session exists or `begin_close`."""

    def beat(self) -> None:
        """The loop is alive: without this the session may not be kept alive."""

    def submit(self, call: Call) -> None:
        """Send a request; exactly one `Answer` follows."""

    def drop_connection(self) -> None:
        """Break the connection; the session goes on if it can."""

    def begin_close(self) -> None:
        """Say goodbye after what was submitted; `Ended` follows."""
