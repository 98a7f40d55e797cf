"""Following `/feature` ends with its broker, whatever it waits for."""

import logging

import pytest

from kafkalike.broker.cluster.features import Features
from kafkalike.runtime.tasks import Tasks
from tests.unit.cluster.zk_world import ZkWorld

LOGGER = logging.getLogger("test.features")


def test_a_stop_while_zookeeper_is_asked_is_at_once_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ZkWorld()
    tasks = Tasks(LOGGER)
    complaints: list[str] = []
    features = Features(world.zk, world.clock, tasks, LOGGER, complaints.append)
    world.zookeeper.stop_serving()
    features.start()
    features.stop()
    stopped = tasks.stop()
    assert stopped.called, "it still sleeps before another try"
    assert not caplog.records
    assert not complaints
