"""One client per broker id, connected on demand, with bounded exponential backoff."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, fail, succeed

from kafkalike.runtime.ports import Clock, Network, Random

from .client import BrokerClient, PeerDisconnected

JITTER: Final = 0.2


class PeerAddress(NamedTuple):
    """Where one broker listens for its peers."""

    host: str
    port: int


class _Peer:
    """The connection to one broker and the history of attempts to make it."""

    __slots__ = ("address", "client", "failures", "not_before_s", "opening")

    def __init__(self, address: PeerAddress) -> None:
        self.address = address
        self.client: BrokerClient | None = None
        self.opening: list[Deferred[BrokerClient]] | None = None
        self.failures = 0
        self.not_before_s = 0.0


class Peers:
    """Connections to the other brokers (and to this one) for one purpose, such as fetching.

    `address_of(broker_id)` is asked before every request; None or a changed address drops the old
    connection.  After a failed attempt further requests fail at once until the backoff is over:
    50 ms, doubling up to 1 s, with 20 % of chance in it (reconnect.backoff.ms).
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
        authenticate: Callable[[BrokerClient], Awaitable[None]] | None = None,
        on_disconnect: Callable[[int, str], object] | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._random = random
        self._address_of = address_of
        self._client_id = client_id
        self._logger = logger
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._negotiate = negotiate
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._tls = tls
        self._authenticate = authenticate
        self._on_disconnect = on_disconnect
        self._peers: dict[int, _Peer] = {}
        self._stopped = False

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
        client = self.connected_client(broker_id)
        if client is not None:
            return client.send(request, version=version, timeout_s=timeout_s, borrow=borrow)
        opening = self._open(broker_id)
        return opening.addCallback(
            lambda client: client.send(request, version=version, timeout_s=timeout_s, borrow=borrow)
        )

    def connected_client(self, broker_id: int) -> BrokerClient | None:
        """The connection to a broker at its present address, if it can be used right now."""
        peer = self._peers.get(broker_id)
        if peer is None or peer.client is None or not peer.client.connected:
            return None
        if self._address_of(broker_id) != peer.address:
            self.disconnect(broker_id, "the address of the broker has changed")
            return None
        return peer.client if peer.opening is None else None

    def wait_s(self, broker_id: int) -> float:
        """Seconds until the next attempt to connect is allowed; 0 when connected or never tried."""
        peer = self._peers.get(broker_id)
        if peer is None or self._address_of(broker_id) != peer.address:
            return 0.0
        return max(0.0, peer.not_before_s - self._clock.monotonic())

    def disconnect(self, broker_id: int, reason: str) -> None:
        """Close the connection to one broker, if there is one; the next request makes a new one."""
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            if peer.client is not None:
                peer.client.close(reason)
            self._settle(peer, PeerDisconnected(f"broker {broker_id}: {reason}"))

    def stop(self) -> "Deferred[None]":
        """Close everything; later requests fail with PeerDisconnected."""
        self._stopped = True
        for broker_id in list(self._peers):
            self.disconnect(broker_id, "stopped")
        return succeed(None)

    def _open(self, broker_id: int) -> "Deferred[BrokerClient]":
        if self._stopped:
            return fail(PeerDisconnected(f"broker {broker_id}: stopped"))
        address = self._address_of(broker_id)
        peer = self._peers.get(broker_id)
        if peer is not None and peer.address != address:
            self.disconnect(broker_id, "the address of the broker has changed")
            peer = None
        if address is None:
            return fail(PeerDisconnected(f"broker {broker_id}: its address is not known"))
        if peer is None:
            peer = self._peers[broker_id] = _Peer(address)
        if peer.opening is None:
            wait_s = peer.not_before_s - self._clock.monotonic()
            if wait_s > 0:
                return fail(
                    PeerDisconnected(
                        f"broker {broker_id} at {address.host}:{address.port}:"
                        f" next attempt to connect in {wait_s:.3f} s"
                    )
                )
            self._connect(broker_id, peer)
        if peer.opening is None:  # done within the call, one way or the other
            if peer.client is not None and peer.client.connected:
                return succeed(peer.client)
            return fail(PeerDisconnected(f"broker {broker_id}: connecting failed"))
        waiting: Deferred[BrokerClient] = Deferred()
        peer.opening.append(waiting)
        return waiting

    def _connect(self, broker_id: int, peer: _Peer) -> None:
        peer.opening = []

        def lost(reason: str) -> None:
            self._lost(broker_id, peer, reason)

        client = peer.client = BrokerClient(
            self._network,
            self._clock,
            peer.address.host,
            peer.address.port,
            client_id=self._client_id,
            connect_timeout_s=self._connect_timeout_s,
            request_timeout_s=self._request_timeout_s,
            negotiate=self._negotiate,
            tls=self._tls,
            authenticate=self._authenticate,
            on_disconnect=lost,
        )

        def opened(_: None) -> None:
            peer.failures = 0
            self._settle(peer, None)

        def failed(failure: Any) -> None:
            if self._peers.get(broker_id) is not peer:
                return
            self._back_off(peer)
            self._logger.info(
                "connecting failed broker=%d host=%s port=%d error=%s",
                broker_id,
                *peer.address,
                failure.getErrorMessage(),
            )
            self._settle(peer, failure.value)

        client.connect().addCallbacks(opened, failed)

    def _settle(self, peer: _Peer, error: BaseException | None) -> None:
        """Tell everybody who waits for the connection."""
        opening, peer.opening = peer.opening, None
        for waiting in opening or ():
            if error is not None:
                waiting.errback(error)
            elif peer.client is not None:
                waiting.callback(peer.client)

    def _back_off(self, peer: _Peer) -> None:
        wait_s = min(self._backoff_max_s, self._backoff_s * 2**peer.failures)
        peer.failures = min(peer.failures + 1, 30)
        jitter = 1.0 - JITTER + 2 * JITTER * self._random.random()
        peer.not_before_s = self._clock.monotonic() + wait_s * jitter

    def _lost(self, broker_id: int, peer: _Peer, reason: str) -> None:
        """An established connection ended: connect again soon, but not in a tight loop."""
        self._back_off(peer)
        if self._on_disconnect is not None:
            self._on_disconnect(broker_id, reason)
