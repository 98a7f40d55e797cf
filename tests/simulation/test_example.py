"""The workload and the check that docs/simulation.md shows work as it says."""

import importlib.util
import pathlib
import sys
from types import ModuleType

import pytest

from kafkalike.tools.main import main
from kafkalike.tools.simulator.checkers import judge
from tests.simulation.by_hand import T0, Scene

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "simulation"


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("counter_example", EXAMPLE / "counter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", str(EXAMPLE / "counter.json"), "--with", str(EXAMPLE / "counter.py")]
    assert main(["sim", "--seed", "1", *arguments]) == 0
    assert "seed 1 passed" in capsys.readouterr().out


def test_its_check_speaks_when_the_number_goes_back(counter: ModuleType) -> None:
    scene = Scene()
    for number in (1, 2, 2, 1, 3):
        scene.history.note("counter", counter.Counted(T0, number))
    assert [v.checker for v in judge(scene.evidence, [counter.NeverBack])] == ["counting"]


def test_the_manual_shows_the_example_as_it_is() -> None:
    manual = (EXAMPLE.parents[1] / "docs" / "simulation.md").read_text(encoding="utf-8")
    check = (EXAMPLE / "counter.py").read_text(encoding="utf-8")
    shown = check[check.index("class NeverBack") : check.index("WORKLOADS =")].strip()
    assert "\n".join(f"    {line}".rstrip() for line in shown.splitlines()) in manual
