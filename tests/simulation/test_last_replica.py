"""The last replica standing (ADR 0008) in simulated clusters: power is lost where it hurts most."""

from dataclasses import replace

from kafkalike.tools.simulator.run import run
from kafkalike.tools.simulator.scenario import Scenario

FAMILY = "last-replica"
ELECTED = "former member of the ISR elected"
LOST = "below its high watermark"


def test_nothing_acknowledged_is_lost() -> None:
    elections = 0
    for seed in (1, 3, 4):
        result = run(seed, Scenario.generate(seed, FAMILY))
        assert result.ok, (seed, result.violations)
        elections += any(ELECTED in line for line in result.story)
    assert elections == 3


def test_without_the_defence_the_same_loses_records() -> None:
    scenario = Scenario.generate(3, FAMILY)
    off = {**scenario.cluster.properties, "kafkalike.last.replica.defence": "false"}
    result = run(3, replace(scenario, cluster=replace(scenario.cluster, properties=off)))
    # The ledger names what was lost, so that the checks excuse it.
    assert any(LOST in line for line in result.story)
    assert not any(ELECTED in line for line in result.story)
