"""The listeners of one broker: accepting, limits, orderly stop.

Reference: configs 3 and 5.  The three ways to be over a limit: too many connections in all (or on one
listener), then the listener leaves newcomers in the kernel's backlog until there is room, except that
the inter-broker listener takes the place of another listener's least recently used connection;
too many of one address, then the newcomer is closed; too many a second, then accepting waits.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.broker.handlers.request import Session
from kafkalike.metrics import Counter, Metrics
from kafkalike.runtime.ports import Clock, FrameProtocol, ListeningPort, Network, Transport
from kafkalike.runtime.tasks import TimerWheel, WheelTimer
from kafkalike.types import Endpoint

from .connection import UNLIMITED, Connection, ConnectionLimits
from .dispatch import Dispatcher

__all__ = ["UNLIMITED", "ConnectionLimits", "Server"]

BURST_S: Final = 10.0
"""A rate limit counts over ten seconds, as Kafka's do, so a burst of ten seconds' worth passes."""

RATE_ADDRESSES: Final = 10_000
"""How many addresses a rate is kept for; the one that has been silent longest is forgotten."""


class Rate:
    """How often something may happen: a bucket that fills with `per_second`."""

    __slots__ = ("_filled_s", "_level", "per_second")

    def __init__(self, per_second: float, now_s: float) -> None:
        self.per_second = per_second
        self._level = per_second * BURST_S
        self._filled_s = now_s

    def take(self, now_s: float) -> float:
        """Count one; how many seconds too early it is (0.0: in time)."""
        full = self.per_second * BURST_S
        self._level = min(full, self._level + (now_s - self._filled_s) * self.per_second)
        self._filled_s = now_s
        self._level -= 1.0
        return 0.0 if self._level >= 0.0 else -self._level / self.per_second


class _TurnedAway:
    """The protocol of a connection over its address's rate: silent for a while, then closed."""

    def __init__(self, wheel: TimerWheel, wait_s: float, on_end: Callable[[], object]) -> None:
        self._wheel = wheel
        self._wait_s = wait_s
        self._on_end = on_end
        self._timer: WheelTimer

    def connected(self, transport: Transport) -> None:
        transport.pause()
        self._timer = self._wheel.call_later(self._wait_s, transport.abort)

    def frame_received(self, frame: memoryview) -> None:
        raise AssertionError("a paused connection delivered a frame")

    def disconnected(self, reason: str) -> None:
        self._timer.cancel()
        self._on_end()


class _Listener:
    """One bound endpoint and its connections."""

    def __init__(self, server: "Server", endpoint: Endpoint, is_inter_broker: bool) -> None:
        self.server = server
        self.endpoint = endpoint
        self.is_inter_broker = is_inter_broker
        self.connections: dict[int, Connection] = {}
        self.port: ListeningPort
        self.rate: Rate
        self.waiting_s: WheelTimer | None = None
        self.full = False

    def accept(self, host: str) -> FrameProtocol | None:
        return self.server._accept(self, host)

    def steer(self) -> None:
        """Accept exactly while neither a rate nor a count forbids it."""
        if self.full or self.waiting_s is not None or self.server.stopping:
            self.port.pause()
        else:
            self.port.resume()


class Server:
    """All listeners of one broker and the connections that came through them."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        wheel: TimerWheel,
        dispatcher: Dispatcher,
        endpoints: Sequence[Endpoint],
        *,
        metrics: Metrics,
        logger: logging.Logger,
        inter_broker_listener: str | None = None,
        limits: ConnectionLimits | None = None,
        tls: Mapping[str, object] | None = None,
        ip_creation_rate: Callable[[str], float | None] | None = None,
    ) -> None:
        """`endpoints` are the addresses to bind (empty host: all, port 0: any); `tls` holds a
        context of the runtime for each listener that uses TLS; `ip_creation_rate` gives the connection
        rate allowed for an address (dynamic quotas), None for no limit."""
        self._network = network
        self._clock = clock
        self._wheel = wheel
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._logger = logger
        self._limits = limits or ConnectionLimits()
        self._tls = tls or {}
        self._ip_creation_rate = ip_creation_rate
        self._listeners = [
            _Listener(self, endpoint, endpoint.listener == inter_broker_listener)
            for endpoint in endpoints
        ]
        self._started: list[_Listener] = []
        self._per_host: dict[str, int] = {}
        self._host_rates: dict[str, Rate] = {}
        self._count = 0
        self._next_number = 0
        self._rate: Rate
        self._drained: Deferred[None] | None = None
        self.stopping = False
        self._created: dict[str, Counter] = {}
        self._closed: dict[str, Counter] = {}
        self._expired = metrics.counter(
            "kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"
        )
        self._register_metrics()

    def start(self) -> None:
        """Bind and accept.  Raises OSError naming the endpoint; what was bound is closed again."""
        now_s = self._clock.monotonic()
        self._rate = Rate(self._limits.max_connection_creation_rate, now_s)
        for listener in self._listeners:
            name, _, host, port = listener.endpoint
            try:
                listener.port = self._network.listen(
                    host,
                    port,
                    listener.accept,
                    max_frame_bytes=self._limits.max_request_bytes,
                    backlog=self._limits.backlog,
                    tls=self._tls.get(name),
                    buffers=self._limits.buffers,
                )
            except OSError as error:
                for bound in self._started:
                    bound.port.stop()
                self._started.clear()
                raise OSError(error.errno, f"listener {name}: {error.strerror or error}") from error
            listener.endpoint = listener.endpoint._replace(port=listener.port.port)
            listener.rate = Rate(self._listener_rate(name), now_s)
            self._started.append(listener)
            self._logger.info(
                "listening listener=%s host=%s port=%d", name, host or "*", listener.port.port
            )

    def bound(self) -> list[Endpoint]:
        """The endpoints with the ports that were really bound."""
        return [listener.endpoint for listener in self._started]

    def set_limits(self, limits: ConnectionLimits) -> None:
        """New limits for further connections (dynamic configuration)."""
        now_s = self._clock.monotonic()
        if limits.max_connection_creation_rate != self._limits.max_connection_creation_rate:
            self._rate = Rate(limits.max_connection_creation_rate, now_s)
        self._limits = limits
        for listener in self._started:
            rate = self._listener_rate(listener.endpoint.listener)
            if rate != listener.rate.per_second:
                listener.rate = Rate(rate, now_s)
        self._steer_all()

    def connection_count(self, listener: str | None = None) -> int:
        """Connections through one listener, or through all."""
        if listener is None:
            return self._count
        return sum(
            len(one.connections) for one in self._listeners if one.endpoint.listener == listener
        )

    def stop(self, timeout_s: float) -> "Deferred[None]":
        """Accept no more, let requests in progress be answered, close all within `timeout_s`."""
        self.stopping = True
        done: Deferred[None] = Deferred()
        self._drained = done
        for listener in self._started:
            if listener.waiting_s is not None:
                listener.waiting_s.cancel()
            listener.port.stop()
        connections = self._all_connections()
        for connection in connections:
            connection.leave()
        timer = self._clock.call_later(timeout_s, self._abort_all)
        done.addCallback(lambda _: timer.cancel())
        if self._count == 0:
            done.callback(None)
        return done

    def _abort_all(self) -> None:
        for connection in self._all_connections():
            self._logger.warning(
                "closing connection: its request was not done in time connection=%s",
                connection.session.connection_id,
            )
            connection.abort("the broker stops")

    def _all_connections(self) -> list[Connection]:
        return [c for listener in self._started for c in listener.connections.values()]

    # Accepting.

    def _accept(self, listener: _Listener, host: str) -> FrameProtocol | None:
        limits = self._limits
        per_host = self._per_host.get(host, 0)
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        if per_host >= allowed:
            self._logger.info(
                "refusing connection: its address has %d already listener=%s peer=%s",
                per_host,
                listener.endpoint.listener,
                host,
            )
            return None
        self._per_host[host] = per_host + 1
        self._count += 1
        self._count_creation(listener)
        wait_s = self._host_wait_s(host)
        if wait_s > 0:
            return _TurnedAway(self._wheel, wait_s, lambda: self._gone(listener, host))
        number = self._next_number
        self._next_number += 1

        def make_session(transport: Transport) -> Session:
            return self._make_session(listener, transport, number)

        def ended(connection: Connection) -> None:
            del listener.connections[number]
            self._gone(listener, host)

        connection = Connection(
            self._dispatcher,
            self._wheel,
            self._clock.monotonic,
            make_session=make_session,
            limits=limits,
            on_end=ended,
            on_expired=self._expired.mark,
        )
        listener.connections[number] = connection
        if listener.is_inter_broker and self._count > limits.max_connections:
            self._make_room(listener)
        self._steer_all()
        return connection

    def _make_session(self, listener: _Listener, transport: Transport, number: int) -> Session:
        name, security_protocol, _, _ = listener.endpoint
        local = f"{transport.local_host}:{transport.local_port}"
        return Session(
            listener=name,
            security_protocol=security_protocol,
            connection_id=f"{local}-{transport.peer_host}:{transport.peer_port}-{number}",
            client_host=transport.peer_host,
            client_port=transport.peer_port,
            authenticated=not security_protocol.startswith("SASL"),
            is_inter_broker=listener.is_inter_broker,
        )

    def _gone(self, listener: _Listener, host: str) -> None:
        self._count -= 1
        self._closed[listener.endpoint.listener].count += 1
        left = self._per_host[host] - 1
        if left:
            self._per_host[host] = left
        else:
            del self._per_host[host]
        if self.stopping:
            if self._count == 0 and self._drained is not None and not self._drained.called:
                self._drained.callback(None)
        elif listener.full or self._count + 1 >= self._limits.max_connections:
            self._steer_all()

    def _make_room(self, newcomer: _Listener) -> None:
        """Close the least recently used connection of another listener."""
        others = [
            connection
            for listener in self._started
            if listener is not newcomer
            for connection in listener.connections.values()
            if not connection.leaving
        ]
        if others:
            oldest = min(others, key=lambda connection: connection.active_s)
            self._logger.info(
                "closing connection: the inter-broker listener needs its place connection=%s",
                oldest.session.connection_id,
            )
            oldest.leaving = True
            oldest.abort("displaced")

    def _steer_all(self) -> None:
        limits = self._limits
        for listener in self._started:
            name = listener.endpoint.listener
            most = limits.listener_max_connections.get(name, UNLIMITED)
            protected = listener.is_inter_broker and len(self._started) > 1
            listener.full = len(listener.connections) >= most or (
                self._count >= limits.max_connections and not protected
            )
            listener.steer()

    # Rates.

    def _listener_rate(self, name: str) -> int:
        return self._limits.listener_max_connection_creation_rate.get(name, UNLIMITED)

    def _count_creation(self, listener: _Listener) -> None:
        self._created[listener.endpoint.listener].count += 1
        now_s = self._clock.monotonic()
        broker_wait_s = self._rate.take(now_s)
        wait_s = listener.rate.take(now_s)
        if not listener.is_inter_broker:
            wait_s = max(wait_s, broker_wait_s)
        if wait_s > 0 and listener.waiting_s is None:
            listener.waiting_s = self._wheel.call_later(wait_s, self._waited, listener)
            listener.steer()

    def _waited(self, listener: _Listener) -> None:
        listener.waiting_s = None
        listener.steer()

    def _host_wait_s(self, host: str) -> float:
        """How long a connection over its address's rate is held before it is closed; at most 1 s."""
        if self._ip_creation_rate is None:
            return 0.0
        per_second = self._ip_creation_rate(host)
        rate = self._host_rates.pop(host, None)
        if per_second is None:
            return 0.0
        now_s = self._clock.monotonic()
        if rate is None or rate.per_second != per_second:
            rate = Rate(per_second, now_s)
        self._host_rates[host] = rate
        if len(self._host_rates) > RATE_ADDRESSES:
            del self._host_rates[next(iter(self._host_rates))]
        return min(1.0, rate.take(now_s))

    def _register_metrics(self) -> None:
        names = dict.fromkeys(listener.endpoint.listener for listener in self._listeners)
        for name in names:
            tags = {"listener": name, "networkProcessor": "0"}
            group = ("kafka.server", "socket-server-metrics")
            self._created[name] = self._metrics.counter(*group, "connection-creation-total", **tags)
            self._closed[name] = self._metrics.counter(*group, "connection-close-total", **tags)

            def count(name: str = name) -> float:
                return self.connection_count(name)

            self._metrics.gauge(*group, "connection-count", count, **tags)
