"""One client connection: one request at a time, answers in order, then the next.

While a request waits the transport is paused, so further input stays in the kernel and the client
feels it.  A throttled connection is paused after its answer for as long as the quota says (KIP-219).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike.broker.handlers.request import RequestContext, Session
from kafkalike.runtime.ports import Buffer, FileRange, SocketBuffers, Transport
from kafkalike.runtime.tasks import TimerWheel, WheelTimer

from .dispatch import Dispatcher

UNLIMITED: Final = 2**31 - 1


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Kafka's limits on client connections (reference: configs 1.1 and 5).

    `listener_*` hold the values given with a listener's prefix, by listener name.  `max_token_bytes` is
    the limit for frames before authentication.
    """

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    max_idle_s: float = 600.0
    max_request_bytes: int = 100 << 20
    max_token_bytes: int = 512 << 10
    backlog: int = 50
    buffers: SocketBuffers | None = None


class Connection:
    """The FrameProtocol of a client connection.

    `on_end(connection)` is called once when it is gone.  `busy` tells whether a request is being worked
    on, `active_s` when the last one arrived (monotonic seconds).
    """

    __slots__ = (
        "_attention",
        "_dispatcher",
        "_idle_timer",
        "_limits",
        "_make_session",
        "_monotonic",
        "_mute_timer",
        "_on_end",
        "_on_expired",
        "_transport",
        "_wheel",
        "active_s",
        "busy",
        "ended",
        "leaving",
        "session",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        wheel: TimerWheel,
        monotonic: Callable[[], float],
        *,
        make_session: Callable[[Transport], Session],
        limits: ConnectionLimits,
        on_end: "Callable[[Connection], object]",
        on_expired: Callable[[], object],
    ) -> None:
        self._dispatcher = dispatcher
        self._wheel = wheel
        self._monotonic = monotonic
        self._make_session = make_session
        self._on_end = on_end
        self._on_expired = on_expired
        self._transport: Transport
        self._idle_timer: WheelTimer | None = None
        self._mute_timer: WheelTimer | None = None
        self.session: Session
        self.active_s = 0.0
        self._limits = limits
        # Whether `send` has more to do than to write; spares the usual request four look-ups.
        self._attention = False
        self.busy = False
        self.ended = False
        self.leaving = False

    # What the transport calls.

    def connected(self, transport: Transport) -> None:
        self._transport = transport
        self.session = self._make_session(transport)
        self.active_s = self._monotonic()
        self._idle_timer = self._wheel.call_later(self._limits.max_idle_s, self._check_idle)
        if not self.session.authenticated:
            transport.limit_frames(self._limits.max_token_bytes)
            self._attention = True

    def frame_received(self, frame: memoryview) -> None:
        self._dispatcher.serve(self, frame)

    def disconnected(self, reason: str) -> None:
        self.ended = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._on_end(self)

    # What the dispatcher calls.

    def send(self, parts: "Sequence[Buffer | FileRange]", ctx: RequestContext) -> None:
        """Send an answer at once, then mute or close as the context says."""
        self._transport.write(parts)
        if self._attention or ctx.throttle_ms or self.session.closing is not None:
            self._after(ctx)

    def skip(self, ctx: RequestContext) -> None:
        """The request is done and has no answer; mute or close as the context says."""
        if self._attention or ctx.throttle_ms or self.session.closing is not None:
            self._after(ctx)

    def wait(self) -> None:
        """Hold further requests back until `send` or `skip`."""
        self.busy = self._attention = True
        self._transport.pause()

    def fail(self, reason: str) -> None:
        """Close without an answer."""
        self.session.closing = reason
        self._transport.close()

    def _after(self, ctx: RequestContext) -> None:
        """The request is done: go on, go quiet for a while, or leave."""
        if self.ended:
            return
        if self._attention:
            self.busy = False
            self._attention = self.leaving or not self.session.authenticated
            if not self._attention:
                self._transport.limit_frames(self._limits.max_request_bytes)
        if self.leaving or self.session.closing is not None:
            self._transport.close()
        elif ctx.throttle_ms > 0:
            self._transport.pause()
            self._mute_timer = self._wheel.call_later(ctx.throttle_ms / 1000, self._unmute)
        else:
            self._transport.resume()

    def _unmute(self) -> None:
        self._mute_timer = None
        self._transport.resume()

    # What the server calls.

    def leave(self) -> None:
        """Close now, or as soon as the request in progress is answered."""
        self.leaving = self._attention = True
        if not self.busy:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close now, whatever is in progress."""
        self.session.closing = reason
        self._transport.abort()

    def _check_idle(self) -> None:
        idle_s = self._monotonic() - self.active_s
        max_idle_s = self._limits.max_idle_s
        if idle_s < max_idle_s:
            self._idle_timer = self._wheel.call_later(max_idle_s - idle_s, self._check_idle)
        else:
            # Also while a request waits: input is held back then, so a client that has gone away
            # would not be noticed for as long as it asked to wait.
            # Not `close`: a peer that has not read its answer by now will not do so.
            self._on_expired()
            self.abort("idle")
