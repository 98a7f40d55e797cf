"""Every case answered by our broker as Apache Kafka 4.1.2 answered it."""

from collections.abc import Iterator

import pytest

from tests import clusters

from .cases import CASES
from .facts import SETTINGS, load, run

FACTS = load()


@pytest.fixture(scope="module")
def our_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with clusters.ours(tmp_path_factory.mktemp("ours"), settings=SETTINGS) as cluster:
        yield cluster.ports[1]


@pytest.mark.parametrize("name", CASES)
def test_answers(our_port: int, name: str) -> None:
    found = run(our_port, name)
    for number, (expected, answer) in enumerate(zip(FACTS[name], found, strict=True)):
        assert answer == expected, f"answer {number} of {name}"


def test_every_fact_has_a_case() -> None:
    assert list(FACTS) == list(CASES)
