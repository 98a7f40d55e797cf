"""Every case answered by our broker as Apache Kafka 3.9.2 answered it.

`pending.txt` names the cases that do not agree yet; a case that agrees must leave the list.  Texts for
people may differ in so many cases as `texts_bound.txt` says, which may only become fewer.
"""

from pathlib import Path
from typing import Final

import pytest

from . import facts
from .case import Case
from .cases import FAMILIES, ON_ONE, ON_THREE, cases_of
from .run import Broker, first_difference, run
from .states import prepared

HERE: Final = Path(__file__).parent
DIFFERENCES: Final = HERE.parents[1] / "docs" / "differences.md"
PENDING: Final = frozenset(
    line for line in (HERE / "pending.txt").read_text().splitlines() if not line.startswith("#")
)
TEXTS_BOUND: Final = int((HERE / "texts_bound.txt").read_text())


@pytest.fixture(scope="session")
def other_texts() -> list[str]:
    """Cases whose texts for people are not the original's."""
    return []


@pytest.mark.parametrize("family", ON_ONE)
def test_answers_of_family(family: str, our_broker: Broker, other_texts: list[str]) -> None:
    check(family, our_broker, other_texts)


@pytest.mark.parametrize("family", ON_THREE)
def test_answers_of_family_on_three(
    family: str, our_brokers: Broker, other_texts: list[str]
) -> None:
    with prepared(our_brokers, family, cases_of(family)):
        check(family, our_brokers, other_texts)


def check(family: str, broker: Broker, other_texts: list[str]) -> None:
    known = facts.load(family)
    wrong, right = [], []
    for case in cases_of(family):
        fact = known[case.name]
        found = facts.fact_of(run(broker, case, expected=fact.answers))
        if fact.texts != found.texts:
            other_texts.append(case.name)
        if case.differs:
            assert fact.answers != found.answers, f"{case.name} does not differ any more"
            continue
        difference = first_difference(fact.answers, found.answers)
        if difference and case.name not in PENDING:
            wrong.append(f"{case.name}: {difference}")
        elif not difference and case.name in PENDING:
            right.append(case.name)
    assert not wrong, f"{len(wrong)} cases differ:\n" + "\n".join(wrong[:50])
    assert not right, f"these agree now, take them out of pending.txt: {right}"


def test_texts_differ_less_and_less(other_texts: list[str]) -> None:
    """Runs after the families and counts what they saw."""
    assert len(other_texts) <= TEXTS_BOUND, f"{len(other_texts)} texts differ: {other_texts[:40]}"


def test_every_case_has_a_fact_and_every_fact_a_case() -> None:
    for family in FAMILIES:
        assert [case.name for case in cases_of(family)] == list(facts.load(family)), family


def test_pending_names_cases() -> None:
    names = {case.name for family in FAMILIES for case in cases_of(family)}
    assert names >= PENDING


def test_there_are_many_cases() -> None:
    assert sum(len(cases_of(family)) for family in FAMILIES) > 5000


def test_wanted_differences_are_documented() -> None:
    text = " ".join(DIFFERENCES.read_text().split())
    wanted: dict[str, Case] = {}
    for family in FAMILIES:
        for case in cases_of(family):
            if case.differs:
                wanted.setdefault(case.differs, case)
    assert wanted
    for words, case in wanted.items():
        assert words in text, f"{case.name}: docs/differences.md does not say {words!r}"
