"""A cluster of three brokers and the client programs beside it, shared by the tests of this folder.

`KAFKALIKE_CLIENTS_AGAINST=original` runs the same tests against Apache Kafka 3.9.2, which tells whether
a program is to blame; an address runs them against whatever listens there.
"""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.brokers import BrokerCluster
from tests.reference_kafka import ReferenceKafka, ReferenceMissing

from .programs import PROGRAMS, ClientFailed, ClientMissing, RunningProgram, running

SETTINGS = {
    "default_replication_factor": "3",
    "auto_create_topics_enable": "false",
    "replica_lag_time_max_ms": "30000",
    "zookeeper_session_timeout_ms": "18000",
}
"""The machine is busy, and nothing is to fail over."""


@dataclass
class Cluster:
    """What clients talk to; `data` are the log directories of its brokers, if they can be seen."""

    bootstrap: str
    data: list[Path] = field(default_factory=list)


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    against = os.environ.get("KAFKALIKE_CLIENTS_AGAINST", "")
    if against == "original":
        settings = {name.replace("_", "."): value for name, value in SETTINGS.items()}
        kafka = ReferenceKafka(tmp_path_factory.mktemp("original"), brokers=3, settings=settings)
        try:
            kafka.start()
        except ReferenceMissing as error:
            pytest.skip(str(error))
        try:
            yield Cluster(kafka.bootstrap, [kafka.data(broker_id) for broker_id in kafka.ports])
        finally:
            kafka.close()
    elif against:
        yield Cluster(against)
    else:
        zookeeper = request.getfixturevalue("zookeeper_address")
        name = f"/clients-{os.getpid()}-{request.module.__name__}"
        ours = BrokerCluster(f"{zookeeper}{name}", 3, **SETTINGS)
        try:
            ours.start()
            ours.wait_known()
            yield Cluster(ours.bootstrap, [broker.data for broker in ours.brokers])
            assert ours.errors() == []
        finally:
            ours.close()


class Programs:
    """The started programs by name."""

    def __init__(self, bootstrap: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self._found: dict[str, RunningProgram | ClientMissing | ClientFailed] = {}
        self._bootstrap, self._folder, self._stack = bootstrap, folder, stack

    def start(self, names: list[str]) -> None:
        """Build what has to be built, two at a time, and start all."""

        def build(name: str) -> list[str] | ClientMissing:
            try:
                return PROGRAMS[name].command()
            except ClientMissing as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            commands = dict(zip(names, pool.map(build, names)))
        for name, command in commands.items():
            if isinstance(command, ClientMissing):
                self._found[name] = command
                continue
            started = running(PROGRAMS[name], command, self._bootstrap, self._folder)
            self._found[name] = self._stack.enter_context(started)
        for client in self.there():
            try:
                client.greet()
            except ClientFailed as error:
                self._found[client.name] = error

    def get(self, name: str) -> RunningProgram:
        """Skips the test when the program cannot be had here."""
        found = self._found[name]
        if isinstance(found, ClientMissing):
            pytest.skip(f"{name}: {found}")
        if isinstance(found, ClientFailed):
            raise found
        return found

    def there(self) -> list[RunningProgram]:
        return [it for it in self._found.values() if isinstance(it, RunningProgram)]


@pytest.fixture(scope="module")
def programs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with contextlib.ExitStack() as stack:
        yield Programs(cluster.bootstrap, tmp_path_factory.mktemp("programs"), stack)
