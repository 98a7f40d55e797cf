"""One outgoing connection to a broker: frames, correlation ids, timeouts, versions."""

from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail, succeed

from kafkalike.errors import UnsupportedVersion
from kafkalike.messages.api_versions import ApiVersionsRequest
from kafkalike.messages.catalog import response_class
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.runtime.ports import Clock, ConnectionTimeout, Network, Timer, Transport

DEFAULT_MAX_FRAME_BYTES: Final = 100 << 20
MAX_IN_FLIGHT: Final = 1000
SOFTWARE_NAME: Final = "kafkalike"
SOFTWARE_VERSION: Final = "1"

_PREFIX: Final = Struct(">i")


class PeerError(Exception):
    """A request to another broker got no answer.  The text names the address."""


class PeerDisconnected(PeerError):
    """The connection ended, or could not be made, before the answer came."""


class PeerTimeout(PeerError):
    """No answer within the request's time.  Its connection is closed with it."""


class PeerProtocolError(PeerError):
    """The other side answered with bytes that are not the expected response."""


class UnsupportedByPeer(PeerError):
    """The other side serves no version of an API that we also know."""


class _Pending:
    """A request without an answer so far."""

    __slots__ = ("api_key", "borrow", "correlation_id", "deadline_s", "result", "version")

    def __init__(
        self, correlation_id: int, api_key: int, version: int, borrow: bool, deadline_s: float
    ) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version
        self.borrow = borrow
        self.deadline_s = deadline_s
        self.result: Deferred[Any] = Deferred()


class _Frames:
    """The FrameProtocol of a client."""

    __slots__ = ("_client", "disconnected", "frame_received")

    def __init__(self, client: "BrokerClient") -> None:
        self._client = client
        self.frame_received = client._frame_received
        self.disconnected = client._disconnected

    def connected(self, transport: Transport) -> None:
        self._client._transport = transport
        if self._client._ended is not None:
            transport.abort()


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
        self._network = network
        self._clock = clock
        self.host = host
        self.port = port
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._negotiate = negotiate
        self._tls = tls
        self._authenticate = authenticate
        self._on_disconnect = on_disconnect
        self._transport: Transport | None = None
        self._ended: str | None = None
        self._opening: Deferred[None] | None = None
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._timer: Timer | None = None
        self._timer_s = 0.0
        self._raw: Deferred[bytes] | None = None
        self.versions: dict[int, tuple[int, int]] | None = None

    def __repr__(self) -> str:
        return f"<BrokerClient {self._client_id} to {self.host}:{self.port}>"

    @property
    def _peer(self) -> str:
        return f"{self.host}:{self.port}"

    def _named(self, text: str) -> str:
        """The text of an error, with the address once."""
        return text if self.host in text else f"{self._peer}: {text}"

    def connect(self) -> "Deferred[None]":
        """Connect, authenticate and negotiate.  Fails with PeerDisconnected or PeerTimeout."""
        return Deferred.fromCoroutine(self._connect())

    async def _connect(self) -> None:
        if self._ended is not None:
            raise PeerDisconnected(self._named(self._ended))
        self._opening = self._network.connect(
            self.host,
            self.port,
            _Frames(self),
            timeout_s=self._connect_timeout_s,
            max_frame_bytes=self._max_frame_bytes,
            tls=self._tls,
        )
        try:
            await self._opening
        except ConnectionTimeout as error:
            self._ended = str(error)
            raise PeerTimeout(self._named(self._ended)) from error
        except (ConnectionError, CancelledError) as error:
            self._ended = self._ended or str(error)
            raise PeerDisconnected(self._named(self._ended)) from error
        finally:
            self._opening = None
        try:
            if self._authenticate is not None:
                await self._authenticate(self)
            if self._negotiate:
                await self._ask_versions()
        except BaseException:
            self.close("could not be set up")
            raise

    @property
    def connected(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._ended is None

    @property
    def in_flight(self) -> int:
        """Requests without an answer so far."""
        return len(self._pending)

    def version_for(self, request_class: Any) -> int:
        """The newest version that both sides know; ours when nothing was negotiated.

        Raises UnsupportedByPeer when there is none.
        """
        newest: int = request_class.max_version
        if self.versions is None:
            return newest
        low, high = self.versions.get(request_class.api_key, (0, -1))
        version = min(newest, high)
        if version < max(low, request_class.min_version):
            raise UnsupportedByPeer(
                f"{self.host}:{self.port} serves {request_class.__name__} in versions {low} to"
                f" {high}, we know {request_class.min_version} to {newest}"
            )
        return version

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
        transport = self._transport
        if transport is None or self._ended is not None:
            return fail(PeerDisconnected(self._named(self._ended or "not connected")))
        if len(self._pending) >= MAX_IN_FLIGHT:
            return fail(PeerError(f"{self._peer}: {MAX_IN_FLIGHT} requests wait for answers"))
        try:
            if version is None:
                version = self.version_for(type(request))
            parts = request.encode_parts(version)
        except (PeerError, UnsupportedVersion, ValueError) as error:
            return fail(error)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(
            RequestHeader(request.api_key, version, correlation_id, self._client_id)
        )
        size = len(header) + sum(map(len, parts))
        start = _PREFIX.pack(size) + header
        if len(parts) == 1 and isinstance(parts[0], bytes):
            transport.write((start + parts[0],))
        else:
            transport.write([start, *parts])
        if not expect_answer:
            return succeed(None)
        limit_s = self._request_timeout_s if timeout_s is None else timeout_s
        deadline_s = self._clock.monotonic() + limit_s
        pending = _Pending(correlation_id, request.api_key, version, borrow, deadline_s)
        self._pending.append(pending)
        if self._timer is None or deadline_s < self._timer_s:
            self._arm(deadline_s)
        return pending.result

    def send_raw(self, frame: bytes) -> "Deferred[bytes]":
        """Send a frame that is no request and fire with the frame that answers it.

        For SASL exchanges opened by SaslHandshake v0; nothing else may be in flight.
        """
        if self._transport is None or self._ended is not None:
            return fail(PeerDisconnected(self._named(self._ended or "not connected")))
        assert not self._pending and self._raw is None
        self._raw = Deferred()
        self._transport.write((_PREFIX.pack(len(frame)) + frame,))
        self._arm(self._clock.monotonic() + self._request_timeout_s)
        return self._raw

    def close(self, reason: str = "closed by us") -> None:
        """Close; all pending requests fail with PeerDisconnected."""
        if self._ended is not None:
            return
        self._ended = reason
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail_all(PeerDisconnected(f"{self._peer}: {reason}"))

    # What the transport calls, through _Frames.

    def _frame_received(self, frame: memoryview) -> None:
        if self._raw is not None:
            raw, self._raw = self._raw, None
            raw.callback(bytes(frame))
            return
        if not self._pending:
            self._broken("an answer came that nothing asked for")
            return
        pending = self._pending.popleft()
        data: bytes | memoryview = frame if pending.borrow else bytes(frame)
        try:
            correlation_id, position = decode_response_header(
                data, pending.api_key, pending.version
            )
            if correlation_id != pending.correlation_id:
                raise MalformedMessage(
                    f"correlation id {correlation_id}, expected {pending.correlation_id}"
                )
            response = response_class(pending.api_key).decode(
                data, _answer_version(pending, data, position), position
            )
        except MalformedMessage as error:
            self._pending.appendleft(pending)
            self._broken(f"malformed answer: {error}")
            return
        if not self._pending and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending.result.callback(response)

    def _disconnected(self, reason: str) -> None:
        ended_by_us = self._ended is not None
        self._ended = self._ended or reason
        self._fail_all(PeerDisconnected(f"{self._peer}: {reason}"))
        if self._on_disconnect is not None and not ended_by_us:
            self._on_disconnect(reason)

    # Inside.

    def _broken(self, reason: str) -> None:
        assert self._transport is not None
        self._ended = reason
        self._transport.abort()
        self._fail_all(PeerProtocolError(f"{self._peer}: {reason}"))
        if self._on_disconnect is not None:
            self._on_disconnect(reason)

    def _fail_all(self, error: PeerError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, deque()
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.errback(error)
        for one in pending:
            if not one.result.called:
                one.result.errback(error)

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        wait_s = max(0.0, deadline_s - self._clock.monotonic())
        self._timer = self._clock.call_later(wait_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        earliest_s = min((one.deadline_s for one in self._pending), default=None)
        if earliest_s is not None and earliest_s > now_s:
            self._arm(earliest_s)
            return
        if earliest_s is None and self._raw is None:
            return
        late = [one for one in self._pending if one.deadline_s <= now_s]
        reason = "no answer in time"
        self._ended = reason
        for one in late:
            self._pending.remove(one)
        if self._transport is not None:
            self._transport.abort()
        rest = PeerDisconnected(f"{self._peer}: {reason}")
        self._fail_all(rest)
        for one in late:
            name = response_class(one.api_key).__name__.removesuffix("Response")
            what = f"{name} v{one.version}"
            one.result.errback(PeerTimeout(f"{self._peer}: {reason} ({what})"))
        if self._on_disconnect is not None:
            self._on_disconnect(reason)

    async def _ask_versions(self) -> None:
        """Ask in the newest version; who does not know it answers in version 0 what he knows."""
        version: int = ApiVersionsRequest.max_version
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        response = await self.send(request, version=version)
        if response.error_code == UnsupportedVersion.code:
            offered = [v for v in response.api_keys if v.api_key == ApiVersionsRequest.api_key]
            version = min(version, max((v.max_version for v in offered), default=0))
            response = await self.send(request, version=version)
        if response.error_code:
            raise PeerProtocolError(
                f"{self._peer}: ApiVersions failed, error {response.error_code}"
            )
        self.versions = {v.api_key: (v.min_version, v.max_version) for v in response.api_keys}


def _answer_version(pending: _Pending, data: "bytes | memoryview", position: int) -> int:
    """ApiVersions in a version that the peer does not know is answered in version 0 (KIP-511)."""
    if pending.api_key == ApiVersionsRequest.api_key:
        code = int.from_bytes(data[position : position + 2], "big")
        if code == UnsupportedVersion.code:
            return 0
    return pending.version
