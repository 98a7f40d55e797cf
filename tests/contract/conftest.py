"""Fixtures of the contract tests."""

from collections.abc import Iterator

import pytest

from tests.integration.zookeeper import chroot, zookeeper_address
from tests.zk_worlds import FakeWorld, RealWorld, World

__all__ = ["chroot", "zookeeper_address"]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real_zookeeper)])
def world(request: pytest.FixtureRequest, chroot: str) -> Iterator[World]:
    """The fake ZooKeeper, then a real one."""
    if request.param == "fake":
        yield FakeWorld()
        return
    real = RealWorld(request.getfixturevalue("zookeeper_address"), chroot)
    yield real
    real.close()
