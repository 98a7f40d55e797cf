"""Brokers of the differential tests."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.reference_kafka import ReferenceMissing, jars

from .brokers import Starter, original, original_three, our_three, ours
from .run import Broker


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with ours(tmp_path_factory.mktemp("ours")) as broker:
        yield broker


@pytest.fixture(scope="module")
def our_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three of them."""
    with our_three(tmp_path_factory.mktemp("ours")) as broker:
        yield broker


@pytest.fixture(scope="module")
def original_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with _original(original, tmp_path_factory) as broker:
        yield broker


@pytest.fixture(scope="module")
def original_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three of them."""
    with _original(original_three, tmp_path_factory) as broker:
        yield broker


@contextlib.contextmanager
def _original(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    with start(tmp_path_factory.mktemp("original")) as broker:
        yield broker
