"""`kafkalike sim`: exit codes, the line of a failure, traces, scenario files, minimizing."""

import json
import pathlib

import pytest

from kafkalike.tools.main import main
from kafkalike.tools.simulator.run import run
from kafkalike.tools.simulator.scenario import Fault, Scenario, TopicSpec
from kafkalike.tools.simulator.shrink import fewest, shrink

BROKEN_CHECK = '''
from kafkalike.tools.simulator.check import Check
from kafkalike.zk.server.model import NodeCreated


class NeverAgain(Check):
    """A broker registers once: broken by every scenario that has a crash."""

    name = "never-again"

    def problems(self, evidence):
        changes = [change for txn in evidence.znode_log for change in txn.changes]
        made = [change.path for change in changes if isinstance(change, NodeCreated)]
        if made.count("/brokers/ids/1") > 1:
            yield "broker 1 registered twice"


CHECKS = [NeverAgain]
'''

SMALL = Scenario(topics=(TopicSpec("t"),), duration_ms=3000)


@pytest.fixture
def small(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "small.json"
    SMALL.save(str(path))
    return str(path)


def test_a_seed_that_passes(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "1", "--scenario", small]) == 0
    out = capsys.readouterr().out
    assert "seed 1 passed" in out
    assert run(1, SMALL).trace_hash in out


def test_many_seeds_in_two_processes(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "1..3", "--jobs", "2", "--scenario", small]) == 0
    assert "3 seeds, 0 failed" in capsys.readouterr().out


def test_the_trace_ends_with_its_hash(small: str, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace.txt"
    assert main(["sim", "--seed", "1", "--scenario", small, "--trace", str(trace)]) == 0
    lines = trace.read_text().splitlines()
    assert lines[-1] == f"trace {run(1, SMALL).trace_hash}"
    assert any("started broker=2" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seeds", "9..1"], "expected A..B"),
        (["--seeds", "x"], "expected A..B"),
        (["--seeds", "1..2", "--minimize"], "need --seed"),
        (["--seed", "1", "--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_usage(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--scenario", "--with"])
def test_a_file_that_is_not_there(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "1", flag, "/does/not/exist.py"]) == 1
    assert f"{flag}: /does/not/exist.py: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"faults": [{"at_ms": 1, "kind": "meteor"}]}, "fault kind 'meteor'"),
        ({"faults": [{"at_ms": 1, "kind": "crash", "target": "broker-7"}]}, "broker-7"),
        ({"workloads": [{"kind": "poetry", "name": "p"}]}, "workload kind 'poetry'"),
        ({"topics": [{"nam": "t"}]}, "unknown key 'nam'"),
        ({"topics": [{"name": 3}]}, "expected str"),
        ({"duration_ms": 0}, "expected a positive number"),
        ({"topic": []}, "unknown key 'topic'"),
        (
            {"workloads": [{"kind": "plain", "name": "w", "options": {"producer": 1}}]},
            "workload 'w' (plain).options: unknown key 'producer'",
        ),
        (
            {"workloads": [{"kind": "churn", "name": "w", "options": {"act": ["grow"]}}]},
            "'acts' is the nearest",
        ),
        (
            {"faults": [{"at_ms": 1, "kind": "power", "args": {"torn_tial": True}}]},
            "faults[0] (power).args: unknown key 'torn_tial'",
        ),
        ({"faults": [{"at_ms": 1, "kind": "crash", "args": {"x": 1}}]}, "known are []"),
    ],
)
def test_a_scenario_that_makes_no_sense(
    change: dict[str, object],
    complaint: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({**json.loads(SMALL.to_json()), **change}))
    assert main(["sim", "--seed", "1", "--scenario", str(path)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_failure_is_told_and_made_small(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extras = tmp_path / "extras.py"
    extras.write_text(BROKEN_CHECK)
    faults = (
        Fault(200, "slow_link", "broker-0|broker-1", 500),
        Fault(300, "loss", "", 500),
        Fault(400, "crash", "broker-1", 200),
        Fault(500, "reset", "broker-2"),
    )
    path, smallest = tmp_path / "scenario.json", tmp_path / "smallest.json"
    SMALL.with_faults(faults).save(str(path))
    words = ["--scenario", str(path), "--with", str(extras)]
    assert main(["sim", "--seeds", "2..2", *words]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("seed 2 FAILED  never-again: broker 1 registered twice")
    assert f"again: kafkalike sim --seed 2 --scenario {path}" in line
    assert main(["sim", "--seed", "2", *words, "--minimize", "--save", str(smallest)]) == 1
    out = capsys.readouterr().out
    assert "crashed broker=1" in out
    assert Scenario.load(str(smallest)).faults == (faults[2],)


def test_fewest_leaves_out_all_that_is_not_needed() -> None:
    needed = {3, 8}
    assert list(fewest(range(12), lambda kept: needed <= set(kept))) == [3, 8]
    assert list(fewest([1, 2], lambda kept: True)) == []


def test_shrinking_shortens_the_run() -> None:
    scenario = Scenario(faults=(Fault(500, "crash", "any", 100),), duration_ms=20_000)
    smallest = shrink(scenario, lambda candidate: bool(candidate.faults))
    assert smallest.faults == scenario.faults
    assert smallest.duration_ms == 1600
