"""Settings of single groups: over the broker's, within its limits, read from ZooKeeper."""

import logging

import pytest

from kafkalike.broker.coordinator.group_settings import GroupConfigs
from kafkalike.config import BrokerConfig, ConfigSource
from kafkalike.settings import ConfigError

LOGGER = logging.getLogger("tests.groups")
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def configs(**settings: str) -> GroupConfigs:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "z", **given})
    return GroupConfigs(config, LOGGER)


def test_own_settings_stand_before_those_of_the_broker() -> None:
    found = configs(group_consumer_session_timeout_ms="50000")
    assert found.session_timeout_ms("g") == 50_000
    found.set("g", {SESSION: "60000"})
    assert (found.session_timeout_ms("g"), found.heartbeat_interval_ms("g")) == (60_000, 5000)
    assert found.session_timeout_ms("other") == 50_000
    described = {entry.name: (entry.value, entry.source) for entry in found.describe("g")}
    assert described == {
        SESSION: ("60000", ConfigSource.GROUP),
        INTERVAL: ("5000", ConfigSource.DEFAULT),
    }
    found.set("g", {})
    assert found.session_timeout_ms("g") == 50_000


@pytest.mark.parametrize(
    "values",
    [
        {SESSION: "44999"},
        {SESSION: "60001"},
        {INTERVAL: "4999"},
        {INTERVAL: "15001"},
        {SESSION: "soon"},
        {"share.session.timeout.ms": "45000"},
    ],
)
def test_what_cannot_be(values: dict[str, str]) -> None:
    found = configs()
    with pytest.raises(ConfigError):
        found.check(values)
    found.set("g", values)  # from another broker: it does not count
    assert found.session_timeout_ms("g") == 45_000


def test_interval_is_shorter_than_the_session() -> None:
    found = configs(group_consumer_min_session_timeout_ms="1000")
    found.check({SESSION: "6000"})
    with pytest.raises(ConfigError, match="must be greater than"):
        found.check({SESSION: "5000"})
