"""Directed scenarios: each is well-formed, differs from seed to seed, and passes."""

import pytest

from kafkalike.tools.simulator.families import FAMILIES
from kafkalike.tools.simulator.run import run
from kafkalike.tools.simulator.scenario import Scenario
from kafkalike.tools.simulator.validity import check_scenario
from kafkalike.tools.simulator.values import ScenarioError


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_draws_scenarios_that_can_be_written_down(family: str) -> None:
    drawn = [Scenario.generate(seed, family) for seed in range(30)]
    assert len({scenario.to_json() for scenario in drawn}) == len(drawn)
    for scenario in drawn:
        check_scenario(scenario, {})
        assert Scenario.from_json(scenario.to_json()) == scenario
    assert Scenario.generate(7, family) == drawn[7]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_passes(family: str) -> None:
    result = run(1, Scenario.generate(1, family))
    assert result.ok, result.violations


def test_an_unknown_family_is_refused_by_its_name() -> None:
    with pytest.raises(ScenarioError, match="weather"):
        Scenario.generate(1, "weather")
