"""Whether a scenario makes sense, judged before anything runs: nonsense is no failure of a seed."""

from collections.abc import Mapping
from typing import Final

from kafkalike.broker.cluster.topic_names import is_internal, topic_name_problem
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.settings import ConfigError

from .broker import DEFAULT_PROPERTIES
from .faults import check_faults
from .scenario import ClusterSpec, Scenario, TopicSpec, WorkloadSpec
from .values import LONGEST_MS, ScenarioError, Whole, expect, refuse_twice
from .workloads import MAX_SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS, Factory, make_workloads

_BROKERS: Final = Whole(1, 64)
_SET_BY_THE_WORLD: Final = (
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "control.plane.listener.name",
    "zookeeper.connect",
    "process.roles",
)
_PARTITIONS: Final = Whole(1, 1000)


def check_scenario(scenario: Scenario, kinds: Mapping[str, Factory]) -> None:
    """`kinds`: workloads of one's own.  Raises ScenarioError naming what is wrong."""
    expect("duration_ms", scenario.duration_ms, Whole(1, LONGEST_MS))
    config = _check_cluster(scenario.cluster)
    refuse_twice("topics", [topic.name for topic in scenario.topics])
    refuse_twice(
        "topics ('.' and '_' being one)", [t.name.replace(".", "_") for t in scenario.topics]
    )
    for number, topic in enumerate(scenario.topics):
        _check_topic(f"topics[{number}]", topic, scenario.cluster.brokers)
    refuse_twice("workloads", [workload.name for workload in scenario.workloads])
    make_workloads(scenario, kinds)
    for workload in scenario.workloads:
        _check_session(workload, config)
    check_faults(scenario.faults, scenario.cluster.brokers, scenario.duration_ms)


def _check_cluster(cluster: ClusterSpec) -> BrokerConfig:
    expect("cluster.brokers", cluster.brokers, _BROKERS)
    _check_texts("cluster.properties", cluster.properties)
    for name in cluster.properties:
        if name in _SET_BY_THE_WORLD:
            raise ScenarioError(f"cluster.properties: {name} is the simulator's own to set")
    try:
        config = BrokerConfig.parse({**DEFAULT_PROPERTIES, "broker.id": "0", **cluster.properties})
    except ConfigError as error:
        raise ScenarioError(f"cluster.properties: {error}") from error
    for warning in config.warnings():
        if warning.startswith("Unknown"):
            raise ScenarioError(f"cluster.properties: {warning}")
    if not all(path.startswith("/") for path in config.log_dirs):
        found = ",".join(config.log_dirs)
        raise ScenarioError(f"cluster.properties.log.dirs: expected paths from /, found {found}")
    return config


def _check_texts(where: str, settings: Mapping[str, object]) -> None:
    for name, text in settings.items():
        if not isinstance(text, str):
            raise ScenarioError(f"{where}.{name}: expected a text in quotes, found {text!r}")


def _check_session(workload: WorkloadSpec, config: BrokerConfig) -> None:
    """A group whose session timeout its brokers refuse never comes to be."""
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if workload.kind == "groups":
        timeout_ms = workload.options.get("session_timeout_ms", SESSION_TIMEOUT_MS)
        expect(
            f"{workload.where}.options.session_timeout_ms",
            timeout_ms,
            Whole(low, min(high, MAX_SESSION_TIMEOUT_MS)),
        )


def _check_topic(where: str, topic: TopicSpec, brokers: int) -> None:
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise ScenarioError(f"{where}.name: {problem}")
    if is_internal(topic.name):
        raise ScenarioError(f"{where}.name: {topic.name} is the brokers' own")
    expect(f"{where}.partitions", topic.partitions, _PARTITIONS)
    expect(f"{where}.replication_factor", topic.replication_factor, Whole(1, brokers))
    _check_texts(f"{where}.configs", topic.configs)
    try:
        LogConfig.validate_overrides(topic.configs)
    except ConfigError as error:
        raise ScenarioError(f"{where}.configs: {error}") from error
