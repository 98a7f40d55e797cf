"""The pytest plugin: a cluster for the session, a cluster for one test, and what brokers logged.

    def test_shared(kafkalike):
        topic = kafkalike.topic(partitions=3)       # a name nobody else has
        ... kafkalike.bootstrap_servers ...

    @pytest.mark.kafkalike(brokers=5, config={"min.insync.replicas": 3})
    def test_own(kafkalike_cluster):
        kafkalike_cluster.kill(1)

The session's cluster starts with the first test that asks for it; under pytest-xdist each worker has
its own.  Faults that a test leaves behind are undone before the next one.  A test that fails gets the
last lines of the brokers' logs in its report.
"""

import inspect
import itertools
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from .cluster import Cluster

LOG_LINES: Final = 15
MARKER: Final = "kafkalike"


class SharedCluster:
    """The session's cluster as one test sees it: names of its own, faults undone at its end.

    Everything else of `Cluster` is reached through it (`kafkalike.kill(1)`).
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self._prefix = prefix
        self._count = itertools.count(1)

    def unique(self, name: str = "name") -> str:
        """A name that no other test has, for topics, groups, transactional ids."""
        return f"{self._prefix}-{name}-{next(self._count)}"

    def topic(
        self,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        """Create a topic with a unique name and return the name."""
        name = self.unique("topic")
        self.cluster.create_topic(name, partitions, replication_factor, config, assignment)
        return name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafkalike_brokers", "brokers of the session's cluster (default: 3)", default="3")
    parser.addini(
        "kafkalike_config",
        "broker settings of the session's cluster, one key=value a line",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafkalike(brokers=3, config={}, single_process=False): what the kafkalike_cluster fixture"
        " starts; arguments of kafkalike.testing.Cluster",
    )


@pytest.fixture(scope="session")
def kafkalike_session(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster that the tests of a session (of a worker, under xdist) share."""
    config = request.config
    settings = dict(line.split("=", 1) for line in config.getini("kafkalike_config"))
    with Cluster(int(config.getini("kafkalike_brokers")), config=settings) as cluster:
        cluster.prepare_groups()
        yield cluster


@pytest.fixture
def kafkalike(
    kafkalike_session: Cluster, request: pytest.FixtureRequest
) -> Iterator[SharedCluster]:
    """The session's cluster, with unique names for this test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60].strip("-")
    shared = SharedCluster(kafkalike_session, f"{name}-{os.urandom(3).hex()}")
    yield shared
    if kafkalike_session.touched:
        kafkalike_session.mend()


@pytest.fixture
def kafkalike_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for one test; `@pytest.mark.kafkalike(...)` says which."""
    marker = request.node.get_closest_marker(MARKER)
    arguments = marker.args if marker else ()
    options = dict(marker.kwargs) if marker else {}
    known = list(inspect.signature(Cluster).parameters)
    for name in options:
        if name not in known:
            pytest.fail(
                f"@pytest.mark.{MARKER}: no argument {name!r}, expected one of {', '.join(known)}",
                pytrace=False,
            )
    with Cluster(*arguments, **options) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        for cluster in _clusters_of(item):
            report.sections.append(("kafkalike broker logs", broker_logs(cluster)))
    return report


def _clusters_of(item: pytest.Item) -> list[Cluster]:
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    found = [arguments.get(name) for name in ("kafkalike_session", "kafkalike_cluster")]
    return [cluster for cluster in found if isinstance(cluster, Cluster)]


def broker_logs(cluster: Cluster, lines: int = LOG_LINES) -> str:
    """The last lines that each broker logged."""
    parts: list[str] = []
    single = cluster.directory / "cluster.log"
    for path in sorted(cluster.directory.glob("*/broker.log")) or [single]:
        text = path.read_text(errors="replace").splitlines()[-lines:]
        parts.append("\n".join([f"{path.relative_to(cluster.directory)}:", *text]))
    return "\n\n".join(parts)
