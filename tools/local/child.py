"""A broker as a child of `kafkalike up`: what its process adds to `kafkalike broker`.

It tells its supervisor what its settings need a word about, when it serves, which brokers it has heard
of, and obeys commands that switch faults.  Messages to the supervisor: `{"event": "warns", "lines"}`,
`{"event": "ready", "address"}`, `{"event": "sees", "brokers"}`, and for each command
`{"event": "done", "id", "result"}` or `{"event": "done", "id", "error"}`.
"""

import os
from typing import Any

from kafkalike.broker.handlers.request import Route
from kafkalike.broker.node import Node
from kafkalike.config import BrokerConfig, ConfigError
from kafkalike.runtime.ports import Runtime
from kafkalike.zk.kazoo_client import KazooZkClient

from .. import cli
from ..serve import run
from ..spawner import ChildChannel
from .broker import shortened
from .faults import BrokerFaults


def run_child(argument: dict[str, Any], channel: ChildChannel) -> int:
    """`argument`: `properties`, `log_level`, `commands` to begin with (None: no faults at all)."""
    try:
        config = BrokerConfig.parse(argument["properties"])
    except ConfigError as error:
        cli.print_error(str(error))
        return cli.FAILED
    lines = shortened(config.warnings())
    if lines:
        channel.send({"event": "warns", "lines": lines})
    return run(
        config,
        log_level=argument["log_level"],
        on_ready=lambda addresses: channel.send({"event": "ready", "address": addresses[0]}),
        companion=_Child(config, channel, argument["commands"]),
    )


class _Child:
    """The supervisor's end of things in the broker's process."""

    def __init__(self, config: BrokerConfig, channel: ChildChannel, commands: Any) -> None:
        self._config = config
        self._channel = channel
        self._commands: list[dict[str, Any]] | None = commands
        self._faults: BrokerFaults | None = None
        self._seen: list[int] = []

    def prepare(self, reactor: Any, runtime: Runtime, zk: KazooZkClient) -> Runtime:
        reactor.addReader(_Reader(self._channel, self._obey))
        if self._commands is None:
            return runtime
        self._faults = BrokerFaults(
            runtime, self._config.broker_id, lambda: (zk.session_id, zk.session_password)
        )
        for command in self._commands:
            self._faults.obey(command)
        return self._faults.runtime

    def wrap_route(self, route: Route) -> Route:
        return route if self._faults is None else self._faults.answers.wrap(route)

    def started(self, node: Node) -> None:
        node.metadata.add_listener(lambda update: self._saw(sorted(update.snapshot.brokers)))
        self._saw(node.metadata.alive_brokers())

    def _saw(self, brokers: list[int]) -> None:
        if brokers != self._seen:
            self._seen = brokers
            self._channel.send({"event": "sees", "brokers": brokers})

    def _obey(self, command: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"event": "done", "id": command["id"]}
        try:
            if self._faults is None:
                raise ValueError("this broker was started without faults")
            answer["result"] = self._faults.obey(command)
        except (KeyError, TypeError, ValueError) as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        self._channel.send(answer)


class _Reader:
    """The channel on the loop."""

    def __init__(self, channel: ChildChannel, obey: Any) -> None:
        self._channel = channel
        self._obey = obey

    def fileno(self) -> int:
        return self._channel.fileno()

    def logPrefix(self) -> str:
        return "supervisor"

    def doRead(self) -> Exception | None:
        try:
            for command in self._channel.receive():
                self._obey(command)
        except EOFError as error:
            return error
        return None

    def connectionLost(self, reason: Any) -> None:
        """The supervisor is gone, and with it everything that this broker belongs to."""
        os._exit(cli.FAILED)
