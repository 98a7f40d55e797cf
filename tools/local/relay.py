"""A relay between one broker and ZooKeeper, whose two directions can be cut or slowed down.

The broker is given the relay's address as `zookeeper.connect`.  A cut link is what a network partition
is: connections stay open and nothing arrives; what was on its way is delivered when it heals.
"""

from typing import Any, Final

from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from kafkalike.runtime.ports import Clock

from .lane import Lane
from .links import OPEN, Direction

_CONNECT_TIMEOUT_S: Final = 5.0


class ZooKeeperRelay:
    """Listens for one broker and passes everything on to the first server that accepts."""

    def __init__(
        self, reactor: Any, clock: Clock, host: str, port: int, targets: list[tuple[str, int]]
    ) -> None:
        self.reactor = reactor
        self.clock = clock
        self.send = OPEN
        self.receive = OPEN
        self._host = host
        self._port = port
        self._targets = targets
        self._next_target = 0
        self._listening: Any = None
        self._pairs: dict[_BrokerSide, None] = {}

    @property
    def is_cut(self) -> bool:
        return self.send.cut or self.receive.cut

    def start(self) -> None:
        """Raises OSError (CannotListenError) for an address that is taken."""
        factory = Factory.forProtocol(lambda: _BrokerSide(self))
        factory.noisy = False
        self._listening = self.reactor.listenTCP(self._port, factory, interface=self._host)

    def stop(self) -> Any:
        """A Deferred when there is something to wait for."""
        for pair in list(self._pairs):
            pair.drop()
        return None if self._listening is None else self._listening.stopListening()

    def set_link(self, *, send: Direction, receive: Direction) -> None:
        """`send` is the way from the broker to ZooKeeper."""
        self.send, self.receive = send, receive
        for pair in list(self._pairs):
            pair.apply()

    def add(self, pair: "_BrokerSide") -> None:
        self._pairs[pair] = None

    def remove(self, pair: "_BrokerSide") -> None:
        self._pairs.pop(pair, None)

    def dial(self, factory: Any) -> None:
        """Connect to the next server in turn."""
        host, port = self._targets[self._next_target]
        self._next_target = (self._next_target + 1) % len(self._targets)
        self.reactor.connectTCP(host, port, factory, timeout=_CONNECT_TIMEOUT_S)


class _BrokerSide(Protocol):
    """A connection that the broker made, and the one to ZooKeeper that belongs to it.

    Nothing bounds what waits here but the broker itself, which has few requests under way.
    """

    def __init__(self, relay: ZooKeeperRelay) -> None:
        self._relay = relay
        self._server: _ServerSide | None = None
        self._dialled = False
        self.transport: Any
        self._out = Lane(relay.clock, self._to_server)
        self.back = Lane(relay.clock, self._to_broker)

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self._relay.add(self)
        self.transport.pauseProducing()
        self.apply()

    def apply(self) -> None:
        """Take over the state of the link."""
        relay = self._relay
        if not self._dialled and not relay.is_cut:
            self._dialled = True
            relay.dial(_ServerFactory(self))
        self._out.set(relay.send)
        self.back.set(relay.receive)
        if self._server is not None:
            # What a cut direction carries stays in the kernel, an end of connection too.
            _flow(self.transport, not relay.send.cut)
            _flow(self._server.transport, not relay.receive.cut)

    def server_connected(self, server: "_ServerSide") -> None:
        self._server = server
        if not self.transport.connected:
            server.transport.abortConnection()
        else:
            self.apply()

    def drop(self) -> None:
        self.transport.abortConnection()
        if self._server is not None:
            self._server.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self._out.put(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._relay.remove(self)
        self._out.put(None)

    def _to_server(self, data: bytes | None) -> None:
        if self._server is None:
            return
        if data is None:
            self._server.transport.loseConnection()
        else:
            self._server.transport.write(data)

    def _to_broker(self, data: bytes | None) -> None:
        if data is None:
            self.transport.loseConnection()
        else:
            self.transport.write(data)


class _ServerSide(Protocol):
    """The connection to ZooKeeper."""

    def __init__(self, pair: _BrokerSide) -> None:
        self.transport: Any
        self._pair = pair

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self._pair.server_connected(self)

    def dataReceived(self, data: bytes) -> None:
        self._pair.back.put(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._pair.back.put(None)


class _ServerFactory(Factory):
    """Makes the one connection to ZooKeeper; when it fails the broker's is closed."""

    noisy = False

    def __init__(self, pair: _BrokerSide) -> None:
        self._pair = pair

    def doStart(self) -> None:
        """Called by the connector."""

    def doStop(self) -> None:
        """Called by the connector."""

    def startedConnecting(self, connector: Any) -> None:
        """Called by the connector."""

    def buildProtocol(self, address: Any) -> _ServerSide:
        return _ServerSide(self._pair)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self._pair.back.put(None)

    def clientConnectionLost(self, connector: Any, reason: Failure) -> None:
        """The protocol has heard of it."""


def _flow(transport: Any, flowing: bool) -> None:
    if flowing:
        transport.resumeProducing()
    else:
        transport.pauseProducing()
