"""The client that all `kafkalike-admin` subcommands share.

It asks any bootstrap address for Metadata, keeps one connection per broker, chooses versions by
ApiVersions, and asks again when the controller has moved.
"""

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafkalike.errors import NONE, NotController, error_name
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.net.client import BrokerClient, PeerError
from kafkalike.protocol.primitives import UnencodableMessage
from kafkalike.runtime import tasks
from kafkalike.runtime.ports import Clock, Network, Runtime

from .. import cli

CLIENT_ID: Final = "kafkalike-admin"
CONTROLLER_RETRY_S: Final = 0.1


class AdminClient:
    """Requests to a cluster from the command line.

    `timeout_s` bounds every request and every search for a controller.
    """

    def __init__(
        self, network: Network, clock: Clock, bootstrap: list[tuple[str, int]], timeout_s: float
    ) -> None:
        self._network = network
        self._clock = clock
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._clients: dict[tuple[str, int], BrokerClient] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._controller_id = -1

    @property
    def broker_ids(self) -> frozenset[int]:
        """Brokers of the cluster as of the last `metadata`."""
        return frozenset(self._brokers)

    @property
    def clock(self) -> Clock:
        """The clock of its loop, for commands that wait or reckon with time."""
        return self._clock

    async def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Metadata of all topics (None) or of the named ones, never creating any."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = await self.any_broker(request)
        self._brokers = {b.node_id: (b.host, b.port) for b in response.brokers}
        self._controller_id = response.controller_id
        return response

    async def any_broker(self, request: Any) -> Any:
        """Ask the first address that answers.  Raises CommandError when none does."""
        problems: list[str] = []
        for address in [*self._brokers.values(), *self._bootstrap]:
            try:
                return await self._send(address, request)
            except PeerError as error:
                problems.append(str(error))
        raise cli.CommandError("no broker answers: " + "; ".join(dict.fromkeys(problems)))

    async def broker(self, broker_id: int, request: Any) -> Any:
        """Ask one broker by id.  Raises CommandError."""
        if broker_id not in self._brokers:
            await self.metadata([])
        if broker_id not in self._brokers:
            raise cli.CommandError(f"broker {broker_id} is not in the cluster")
        try:
            return await self._send(self._brokers[broker_id], request)
        except PeerError as error:
            raise cli.CommandError(f"broker {broker_id}: {error}") from error

    async def controller(self, request: Any, codes: Callable[[Any], list[int]]) -> Any:
        """Ask the controller; `codes` lists the error codes of a response.

        Looks for the controller again while it is unknown, unreachable or says NOT_CONTROLLER.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        problem = "no controller is known"
        while True:
            await self.metadata([])
            if self._controller_id in self._brokers:
                try:
                    response = await self._send(self._brokers[self._controller_id], request)
                except PeerError as error:
                    problem = f"controller {self._controller_id}: {error}"
                else:
                    if NotController.code not in codes(response):
                        return response
                    problem = f"broker {self._controller_id} is not controller"
            if self._clock.monotonic() >= deadline:
                raise cli.CommandError(problem)
            await tasks.sleep(self._clock, CONTROLLER_RETRY_S)

    async def _send(self, address: tuple[str, int], request: Any) -> Any:
        client = self._clients.get(address)
        if client is None or not client.connected:
            client = BrokerClient(
                self._network,
                self._clock,
                *address,
                client_id=CLIENT_ID,
                connect_timeout_s=min(10.0, self._timeout_s),
                request_timeout_s=self._timeout_s,
                negotiate=True,
            )
            await client.connect()
            self._clients[address] = client
        try:
            return await client.send(request)
        except UnencodableMessage as error:
            raise cli.UsageError(f"a value does not fit the request: {error}") from error

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def add_connection_flags(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--bootstrap-server",
        type=cli.kafka_addresses,
        required=required,
        metavar="HOST:PORT[,HOST:PORT]",
        help="addresses of one or more brokers",
    )
    parser.add_argument(
        "--timeout-ms",
        type=cli.whole(1),
        default=30_000,
        help="how long one request may take (default: 30000)",
    )


def run_with_client(args: argparse.Namespace, work: Callable[[AdminClient], Awaitable[int]]) -> int:
    """Run `work` with a client on a loop of its own; returns its exit code."""
    return run_with_runtime(args, lambda client, _: work(client))


def run_with_runtime(
    args: argparse.Namespace, work: Callable[[AdminClient, Runtime], Awaitable[int]]
) -> int:
    """Like `run_with_client` for work that needs the ports of the loop too."""
    bootstrap = cli.parse_addresses("--bootstrap-server", args.bootstrap_server)
    from ..loop import run_main

    async def main(runtime: Runtime) -> int:
        client = AdminClient(runtime.network, runtime.clock, bootstrap, args.timeout_ms / 1000)
        try:
            return await work(client, runtime)
        finally:
            client.close()

    return run_main(main)


def describe_error(code: int, message: str | None) -> str:
    """An error of a response for people: its name and what the broker said."""
    assert code != NONE
    return f"{error_name(code)}: {message}" if message else error_name(code)
