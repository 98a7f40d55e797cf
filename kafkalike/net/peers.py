"""One client per broker id, connected on demand, with bounded exponential backoff."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import Clock, Network, Random


class PeerAddress(NamedTuple):
    """Where one broker listens for its peers."""

    host: str
    port: int


class Peers:
    """Connections to the other brokers (and to this one) for one purpose, such as fetching.

    `address_of(broker_id)` is asked before every attempt to connect; None or a changed address drops
    the old connection.  After a failed attempt further requests fail at once until the backoff
    is over: 50 ms, doubling up to 1 s, with 20 % of chance in it (reconnect.backoff.ms).
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        address_of: Callable[[int], PeerAddress | None],
        *,
        client_id: str,
        logger: logging.Logger,
        connect_timeout_s: float = 10.0,
        request_timeout_s: float = 30.0,
        negotiate: bool = False,
        backoff_s: float = 0.05,
        backoff_max_s: float = 1.0,
        tls: object | None = None,
        authenticate: Any = None,
        on_disconnect: Callable[[int, str], object] | None = None,
    ) -> None:
        raise NotImplementedError

    def send(
        self,
        broker_id: int,
        request: Any,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        borrow: bool = False,
    ) -> "Deferred[Any]":
        """Send over the broker's connection, connecting first where needed (see BrokerClient.send).

        Fails with a PeerError; PeerDisconnected also for an unknown broker and during backoff.
        """
        raise NotImplementedError

    def wait_s(self, broker_id: int) -> float:
        """Seconds until the next attempt to connect is allowed; 0 when connected or never tried."""
        raise NotImplementedError

    def disconnect(self, broker_id: int, reason: str) -> None:
        """Close the connection to one broker, if there is one; the next request makes a new one."""
        raise NotImplementedError

    def stop(self) -> "Deferred[None]":
        """Close everything; later requests fail with PeerDisconnected."""
        raise NotImplementedError
