"""The listeners of one broker: accepting, limits, orderly stop."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock, Network
from kafkalike.runtime.tasks import TimerWheel
from kafkalike.types import Endpoint

from .dispatch import Dispatcher

UNLIMITED = 2**31 - 1


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Kafka's limits on client connections (reference: configs 1.1 and 5).

    `listener_*` hold the values given with a listener's prefix, by listener name.
    """

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    max_idle_s: float = 600.0
    max_request_bytes: int = 100 << 20
    max_unsent_bytes: int = 8 << 20
    backlog: int = 50


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
        limits: ConnectionLimits = ConnectionLimits(),
        tls: Mapping[str, object] = {},
    ) -> None:
        """`endpoints` are the addresses to bind (empty host: all, port 0: any); `tls` holds a
        context of the runtime for each listener that uses TLS."""
        raise NotImplementedError

    def start(self) -> None:
        """Bind and accept.  Raises OSError naming the endpoint; what was bound is closed again."""
        raise NotImplementedError

    def bound(self) -> list[Endpoint]:
        """The endpoints with the ports that were really bound."""
        raise NotImplementedError

    def set_limits(self, limits: ConnectionLimits) -> None:
        """New limits for further connections (dynamic configuration)."""
        raise NotImplementedError

    def stop(self, timeout_s: float) -> "Deferred[None]":
        """Accept no more, let requests in progress be answered, close all within `timeout_s`."""
        raise NotImplementedError
