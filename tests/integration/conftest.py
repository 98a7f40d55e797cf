"""Fixtures of the integration tests: a real ZooKeeper, clusters of broker processes.

These tests run many real processes under time limits.  One that fails is run up to twice more, and
the summary says so ("rerun"): what fails each time is a failure, what fails once in a while is to
be looked at.
"""

import pathlib

import pytest

from tests.integration.brokers import make_cluster
from tests.integration.zookeeper import (
    chroot,
    own_ensemble,
    own_zookeeper,
    zookeeper_address,
)

__all__ = ["chroot", "make_cluster", "own_ensemble", "own_zookeeper", "zookeeper_address"]

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=2))
