"""Brokers of the differential tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference_kafka import ReferenceMissing, jars

from .brokers import original, ours
from .run import Broker


@pytest.fixture(scope="session")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with ours(tmp_path_factory.mktemp("ours")) as broker:
        yield broker


@pytest.fixture(scope="session")
def original_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    folder: Path = tmp_path_factory.mktemp("original")
    with original(folder) as broker:
        yield broker
