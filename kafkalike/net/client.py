"""One outgoing connection to a broker: frames, correlation ids, timeouts, versions."""

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import Clock, Network, Transport

DEFAULT_MAX_FRAME_BYTES = 100 << 20
MAX_IN_FLIGHT = 1000


class PeerError(Exception):
    """A request to another broker got no answer."""


class PeerDisconnected(PeerError):
    """The connection ended, or could not be made, before the answer came."""


class PeerTimeout(PeerError):
    """No answer within the request's time.  Its connection is closed with it."""


class PeerProtocolError(PeerError):
    """The other side answered with bytes that are not the expected response."""


class UnsupportedByPeer(PeerError):
    """The other side serves no version of an API that we also know."""


class BrokerClient:
    """A connection to one broker address, used once: after it is lost, make another.

    Requests may be sent without waiting for earlier answers; Kafka answers in order.  All methods
    belong to the loop that owns `network`.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_s: float = 10.0,
        request_timeout_s: float = 30.0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        negotiate: bool = False,
        tls: object | None = None,
        authenticate: "Callable[[BrokerClient], Awaitable[None]] | None" = None,
        on_disconnect: Callable[[str], object] | None = None,
    ) -> None:
        """`negotiate`: ask for ApiVersions first and choose versions by it; otherwise a request
        goes out in the version given, or the newest one we know.  `authenticate` runs after the
        connection is made and before `connect` returns."""
        raise NotImplementedError

    def connect(self) -> "Deferred[None]":
        """Connect, authenticate and negotiate.  Fails with PeerDisconnected or PeerTimeout."""
        raise NotImplementedError

    @property
    def connected(self) -> bool:
        raise NotImplementedError

    def send(
        self,
        request: Any,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        borrow: bool = False,
        expect_answer: bool = True,
    ) -> "Deferred[Any]":
        """Send a request message; fires with its response message.

        `borrow`: record bytes of the answer are views of the receive buffer, valid only until the
        receiver of the result first returns to the loop (for fetchers that append at once);
        otherwise they are copied.  `expect_answer=False` (Produce with acks=0) fires at once with
        None.  Fails with a PeerError; a request that times out closes the connection, as later
        answers could not be told apart from lost ones.
        """
        raise NotImplementedError

    def close(self, reason: str = "closed by us") -> None:
        """Close; all pending requests fail with PeerDisconnected."""
        raise NotImplementedError
