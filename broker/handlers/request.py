"""What a request handler is given and what it gives back.

A handler is a plain callable `(request, context) -> answer`.  The answer is the response message
(or a `PackedAnswer`), None for "send nothing" (Produce with acks=0), or an awaitable of either; an
`async def` method fits as well as a method that returns at once, and the latter is faster.  A raised
`KafkaError` becomes the error form of the API's own response.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafkalike.errors import KafkaError, UnknownServerError
from kafkalike.protocol.headers import RequestHeader
from kafkalike.runtime.ports import Buffer, FileRange

ANONYMOUS = "User:ANONYMOUS"


class Session:
    """One client connection as handlers see it; lives as long as the connection.

    `principal`, `authenticated` and `expires_s` are changed by authentication, `client_software_name`
    and `client_software_version` by ApiVersions (KIP-511); everything else stays.  `state` is free
    for the handlers of the SASL exchange.

    While not `authenticated`, only ApiVersions, SaslHandshake and SaslAuthenticate are served; when
    `raw_tokens` is set, frames are no requests but go to it, and what it returns goes back as a
    frame (SaslHandshake v0).  After `expires_s` (monotonic) the same three are served (KIP-368).
    """

    __slots__ = (
        "authenticated",
        "client_host",
        "client_port",
        "client_software_name",
        "client_software_version",
        "closing",
        "connection_id",
        "expires_s",
        "is_inter_broker",
        "listener",
        "principal",
        "raw_tokens",
        "security_protocol",
        "state",
    )

    def __init__(
        self,
        *,
        listener: str,
        security_protocol: str,
        connection_id: str,
        client_host: str,
        client_port: int,
        principal: str = ANONYMOUS,
        authenticated: bool = True,
        is_inter_broker: bool = False,
    ) -> None:
        self.listener = listener
        self.security_protocol = security_protocol
        self.connection_id = connection_id
        self.client_host = client_host
        self.client_port = client_port
        self.principal = principal
        self.authenticated = authenticated
        self.is_inter_broker = is_inter_broker
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.expires_s = math.inf
        self.raw_tokens: Callable[[bytes, Session], Awaitable[bytes | None] | bytes | None] | None
        self.raw_tokens = None
        self.closing: str | None = None
        self.state: object = None


class RequestContext:
    """One request: its header, its connection, and when its last byte arrived (monotonic seconds).

    A handler may set `throttle_ms`: the answer is sent at once, then the connection is muted for
    that long (KIP-219).  The dispatcher writes the larger of its own and the handler's value into
    the answer's `throttle_time_ms`.
    """

    __slots__ = ("header", "received_s", "request_bytes", "session", "throttle_ms")

    def __init__(
        self, header: RequestHeader, session: Session, received_s: float, request_bytes: int = 0
    ) -> None:
        self.header = header
        self.session = session
        self.received_s = received_s
        self.request_bytes = request_bytes
        self.throttle_ms = 0

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def listener(self) -> str:
        """Name of the listener, for the addresses that this client can use."""
        return self.session.listener

    @property
    def principal(self) -> str:
        """`User:<name>`."""
        return self.session.principal

    @property
    def client_host(self) -> str:
        """The client's address without port."""
        return self.session.client_host

    @property
    def connection_id(self) -> str:
        return self.session.connection_id

    @property
    def is_inter_broker(self) -> bool:
        """Whether the listener is the one that brokers use among themselves."""
        return self.session.is_inter_broker

    def close_connection(self, reason: str) -> None:
        """Send nothing more to this client after this request's answer, if it has one, and close."""
        self.session.closing = reason


def message_of(error: KafkaError) -> str | None:
    """The text of an error as answers carry it: none for UNKNOWN_SERVER_ERROR, whose text may tell
    of the inside of this program (reference: broker-errors 2)."""
    return None if error.code == UnknownServerError.code else error.message


class PackedAnswer:
    """An answer that writes its own bytes, where making message objects first would cost too much.

    The bytes must be those of the API's response message with the same content.
    """

    __slots__ = ("throttle_time_ms",)

    def __init__(self) -> None:
        self.throttle_time_ms = 0

    def encode_parts(self, version: int) -> "list[Buffer | FileRange]":
        """What the response message's method of that name gives."""
        raise NotImplementedError


Answer: TypeAlias = Any
"""A response message, a PackedAnswer, None, or an awaitable of one of them."""

Handler: TypeAlias = Callable[[Any, RequestContext], Answer | Awaitable[Answer]]


@dataclass(slots=True, frozen=True)
class Route:
    """One API that this broker serves: versions `min_version` to `max_version`, both included."""

    api_key: int
    min_version: int
    max_version: int
    request_class: type[Any]
    handler: Handler


def route(
    request_class: type[Any], handler: Handler, *, versions: tuple[int, int] | None = None
) -> Route:
    """Serve an API in all declared versions, or in a narrower range of them.

    Raises ValueError when the range is empty or not within the declared one.
    """
    low, high = request_class.min_version, request_class.max_version
    if versions is not None:
        if not low <= versions[0] <= versions[1] <= high:
            raise ValueError(
                f"{request_class.__name__} is declared for versions {low} to {high},"
                f" cannot serve {versions[0]} to {versions[1]}"
            )
        low, high = versions
    return Route(request_class.api_key, low, high, request_class, handler)
