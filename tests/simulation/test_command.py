"""`kafkalike sim`: exit codes, the line of a failure, traces, scenario files, minimizing."""

import json
import os
import pathlib
import threading

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

RAISING = """
from kafkalike.tools.simulator.check import Check
from kafkalike.tools.simulator.workloads import BaseWorkload


class Early(BaseWorkload):
    def begin(self):
        {}["early"]


class Late(BaseWorkload):
    def begin(self):
        pass

    async def end(self):
        {}["late"]


class Raising(Check):
    name = "raising"

    def problems(self, evidence):
        yield from [1 // 0]


class Unmade(BaseWorkload):
    def __init__(self, spec, topics):
        super().__init__(spec, topics)
        spec.options["much"]


CHECKS = [Raising]
WORKLOADS = {"early": Early, "late": Late, "unmade": Unmade}
"""

OWN = """
import sys
from kafkalike.tools.simulator.workloads import BaseWorkload


class Own(BaseWorkload):
    def begin(self):
        {}

    def observe(self):
        pass


WORKLOADS = {{"own": Own}}
"""

SMALL = Scenario(topics=(TopicSpec("t"),), duration_ms=3000)


def fault(**changed: object) -> dict[str, object]:
    return {"faults": [{"at_ms": 1, "kind": "crash", "target": "", **changed}]}


def workload(kind: str, **options: object) -> dict[str, list[object]]:
    return {"workloads": [{"kind": kind, "name": "w", "options": options}]}


def plain(**options: object) -> dict[str, list[object]]:
    return workload("plain", **options)


def topic(**changed: object) -> dict[str, object]:
    return {"topics": [{"name": "t", **changed}]}


def setting(name: str, value: object) -> dict[str, object]:
    return {"cluster": {"properties": {name: value}}}


def properties(timeout: object) -> dict[str, object]:
    return setting("zookeeper.session.timeout.ms", timeout)


def refusal(flag: str, path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses a file, which it names."""
    assert main(["sim", "--seed", "1", flag, str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    return line


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
        (["--seeds", "0.." + "9" * 5000], "expected A..B"),
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
        ({"faults": [{"kind": "crash"}]}, "faults[0]: key 'at_ms' is missing"),
        ({"topics": [{"partitions": 1}]}, "topics[0]: key 'name' is missing"),
        (fault(at_ms=-1), "faults[0] (crash).at_ms: expected a whole number from 0 to 2999"),
        (fault(at_ms=3000), "faults[0] (crash).at_ms: expected a whole number from 0 to 2999"),
        (fault(duration_ms=-5), "faults[0] (crash).duration_ms: expected a whole number"),
        (fault(target="broker-0>broker-1"), "only ['cut', 'slow_link'] strike a link"),
        (fault(kind="cut", target="broker-0>broker-0"), "expected a link between two"),
        (fault(kind="cut", target="broker-0>"), "target '': expected broker-<id>"),
        (fault(kind="cut", target="broker-0>broker-1>broker-2"), "expected broker-<id>"),
        (fault(kind="slow_link", args={"delay_s": -2}), "delay_s: expected a number from 0"),
        (fault(kind="slow_link", args={"delay_s": "2"}), "delay_s: expected a number from 0"),
        (fault(kind="loss", args={"part": float("nan")}), "part: expected a number from 0 to 1"),
        (fault(kind="reset", args={"chance": 7}), "chance: expected a number from 0 to 1"),
        (fault(kind="power", args={"torn_tail": "yes"}), "torn_tail: expected true or false"),
        (
            fault(kind="disk_full", args={"room_bytes": "many"}),
            "room_bytes: expected a whole number",
        ),
        (fault(kind="bad_directory", args={"directory": "x"}), "a text that begins with '/'"),
        (plain(producers="2"), "options.producers: expected a whole number from 0 to 1000"),
        (plain(producers=-1), "options.producers: expected a whole number from 0 to 1000"),
        (plain(interval_ms=-10), "options.interval_ms: expected a whole number from 1"),
        (plain(acks=5), "options.acks: expected a list of some of [-1, 0, 1], not empty, found 5"),
        (plain(acks=[2]), "options.acks: expected a list of some of [-1, 0, 1], not empty"),
        (plain(acks=[True]), "options.acks: expected a list of some of [-1, 0, 1], not empty"),
        (plain(codec=9), "options.codec: expected a whole number from 0 to 4"),
        (plain(topics=["u"]), "options.topics: 'u' is none of ['t']"),
        ({**plain(), "topics": []}, "workload 'w' (plain): expected a topic in the scenario"),
        (workload("churn", acts=["foo"]), "options.acts: expected a list of some of ['topic',"),
        ({**workload("churn", acts=["trim"]), "topics": []}, "options.acts: 'trim' needs a topic"),
        (workload("groups", members=0), "options.members: expected a whole number from 1"),
        (workload("groups", vanish_chance=2), "vanish_chance: expected a number from 0 to 1"),
        ({"workloads": [*plain()["workloads"] * 2]}, "workloads: 'w' is there twice"),
        ({"topics": [{"name": "t"}, {"name": "t"}]}, "topics: 't' is there twice"),
        ({"topics": [{"name": "a b"}]}, "topics[0].name: Topic name 'a b' has a character"),
        ({"topics": [{"name": ""}]}, "topics[0].name: Topic name is invalid"),
        (topic(partitions=0), "topics[0].partitions: expected a whole number from 1 to 1000"),
        (topic(replication_factor=9), "replication_factor: expected a whole number from 1 to 3"),
        (topic(configs={"no.such": "1"}), "topics[0].configs: Unknown topic config name: no.such"),
        (topic(configs={"min.insync.replicas": "two"}), "Invalid value two for configuration"),
        (topic(configs={"min.insync.replicas": 2}), "expected a text in quotes, found 2"),
        ({"topics": [{"name": "a.b"}, {"name": "a_b"}]}, "topics ('.' and '_' being one): 'a_b'"),
        ({"topics": [{"name": "__consumer_offsets"}]}, "__consumer_offsets is the brokers' own"),
        (plain(interval_ms=10_001), "options.interval_ms: expected a whole number from 1 to 10000"),
        (plain(value_bytes=1_000_000), "value_bytes times batch_records: expected at most 900000"),
        (workload("groups", session_timeout_ms=1), "expected a whole number from 6000 to 20000"),
        ({"workloads": [{"kind": "churn", "name": "c/x"}]}, "name: Topic name 'churn-c/x-0' has a"),
        (setting("broker.id", "5"), "cluster.properties: broker.id is the simulator's own to set"),
        (setting("listeners", "PLAINTEXT://x:1"), "listeners is the simulator's own to set"),
        (setting("log.dirs", "/data,rel"), "log.dirs: expected paths from /, found /data,rel"),
        (fault(target="broker-" + "9" * 5000), "expected broker-<id> with an id in (0, 1, 2)"),
        (fault(target="broker-\u0661"), "expected broker-<id> with an id in (0, 1, 2)"),
        (
            {**fault(kind="between_controllers"), "cluster": {"brokers": 1}, "topics": []},
            "faults[0] (between_controllers): expected 2 brokers, found 1",
        ),
        ({"workloads": [{"kind": "plain", "name": "\ud800"}]}, "half of a character"),
        ({"cluster": {"brokers": 0}}, "cluster.brokers: expected a whole number from 1 to 64"),
        (
            {"cluster": {"brokers": 3_000_000}},
            "cluster.brokers: expected a whole number from 1 to 64",
        ),
        (properties("abc"), "cluster.properties: Invalid value abc for configuration zookeeper"),
        (properties(3000), "cluster.properties.zookeeper.session.timeout.ms: expected a text in"),
        (
            {"cluster": {"properties": {"zookeeper.sesion.timeout.ms": "1"}}},
            "Unknown configuration zookeeper.sesion.timeout.ms; did you mean",
        ),
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
    assert complaint in refusal("--scenario", path, capsys)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"duration_ms": 1, "duration_ms": 2}', "key: 'duration_ms' is there twice"),
        ("{", "not JSON: "),
        ("[]", "scenario: expected an object"),
    ],
)
def test_a_file_that_is_no_scenario(
    text: str, complaint: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(text)
    assert complaint in refusal("--scenario", path, capsys)


def test_groups_on_one_broker(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "scenario.json"
    one = {"cluster": {"brokers": 1}, "topics": [{"name": "t", "replication_factor": 1}]}
    path.write_text(json.dumps({**one, **workload("groups"), "duration_ms": 3000}))
    assert main(["sim", "--seed", "1", "--scenario", str(path)]) == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def (", "cannot be loaded: SyntaxError"),
        ("import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("raise ValueError('no\\nway')", "cannot be loaded: ValueError: no way ("),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        ("x = 1", "defines neither WORKLOADS nor CHECKS"),
        ("CHECKS = 5", "CHECKS: expected a list of classes"),
        ("CHECKS = [int]", "CHECKS: expected a list of classes"),
        ("WORKLOADS = [int]", "WORKLOADS: expected a dict"),
        ("WORKLOADS = {'a': 3}", "WORKLOADS: expected a dict"),
    ],
)
def test_extras_that_make_no_sense(
    text: str, complaint: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "extras.py"
    path.write_text(text + "\n")
    assert complaint in refusal("--with", path, capsys)


def test_a_check_or_workload_that_raises_is_a_failure_of_its_seed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extras, path = tmp_path / "extras.py", tmp_path / "with space.json"
    extras.write_text(RAISING)
    path.write_text(json.dumps({**json.loads(SMALL.to_json()), **workload("early")}))
    words = ["--scenario", str(path), "--with", str(extras)]
    assert main(["sim", "--seeds", "1..3", "--max-failures", "2", *words]) == 1
    out, err = capsys.readouterr()
    first, second, last = out.splitlines()
    assert first.startswith("seed 1 FAILED  w: the workload did not start: KeyError: 'early' (")
    assert f"again: kafkalike sim --seed 1 --scenario '{path}' --with {extras}" in first
    assert second.startswith("seed 2 FAILED")
    assert last.startswith("2 seeds, 2 failed")
    assert "stopped after 2 failures (--max-failures), with 2 of 3 seeds run" in err
    path.write_text(json.dumps({**json.loads(SMALL.to_json()), **workload("late")}))
    assert main(["sim", "--seed", "1", *words]) == 1
    out = capsys.readouterr().out
    assert "w: the workload did not end: KeyError: 'late' (" in out
    assert (
        "raising: the check failed: ZeroDivisionError: integer division or modulo by zero (" in out
    )
    path.write_text(json.dumps({**json.loads(SMALL.to_json()), **workload("unmade")}))
    assert main(["sim", "--seed", "1", *words]) == 2
    assert f"{path}: workload 'w' (unmade): KeyError: 'much' (" in capsys.readouterr().err


CHECK = "class C:\n    name = 'own'\n    def problems(self, evidence):\n        {}\nCHECKS = [C]\n"


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("raise SystemExit(3)", "own: the check failed: SystemExit: 3"),
        ("import asyncio; raise asyncio.CancelledError", "own: the check failed: CancelledError"),
        ("return 'abc'", "own: the check failed: TypeError: expected sentences, found 'abc'"),
        ("yield 5", "own: the check failed: TypeError: expected a sentence, found 5"),
        ("yield '\\ud800'", "own: \\ud800"),
    ],
)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_whatever_a_check_does_its_seed_fails(
    jobs: str,
    does: str,
    told: str,
    small: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extras = tmp_path / "extras.py"
    extras.write_text(CHECK.format(does))
    words = ["--jobs", jobs, "--scenario", small, "--with", str(extras)]
    assert main(["sim", "--seeds", "1..2", *words]) == 1
    out = capsys.readouterr().out
    assert out.count(f"FAILED  {told}") == 2


def two_seeds(tmp_path: pathlib.Path, jobs: str, text: str, kinds: dict[str, list[object]]) -> int:
    """The exit code, with these extras and workloads."""
    extras, path = tmp_path / "extras.py", tmp_path / "scenario.json"
    extras.write_text(text)
    path.write_text(json.dumps({**json.loads(SMALL.to_json()), **kinds}))
    words = ["--jobs", jobs, "--scenario", str(path), "--with", str(extras)]
    return main(["sim", "--seeds", "1..2", *words])


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "class C:\n name = 'own'\n problems = 1\n def __init__(self, x): pass\nCHECKS = [C]",
            "check 'own': TypeError: C.__init__() missing",
        ),
        ("WORKLOADS = {'w': lambda spec, topics: None}", "expected something with `name`, `start`"),
        ("WORKLOADS = {'w': lambda spec, topics: exit(4)}", "workload 'w' (w): SystemExit: 4"),
    ],
)
def test_a_check_or_workload_that_cannot_be_made(
    jobs: str,
    text: str,
    complaint: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = workload("w") if text.startswith("WORK") else {}
    assert two_seeds(tmp_path, jobs, text, kinds) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("begin", "told"),
    [
        ("self.world.clock.call_later(0.5, sys.exit, 0)", "simulator: SystemExit: 0"),
        (
            "self.world.observers.append(self.observe)",
            "simulator: an observer failed: TypeError: Own.observe() takes",
        ),
        ("self.world.broken('mine', 5)", "mine: 5"),
    ],
)
def test_what_a_workload_leaves_behind_fails_its_seed(
    jobs: str,
    begin: str,
    told: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert two_seeds(tmp_path, jobs, OWN.format(begin), workload("own")) == 1
    assert capsys.readouterr().out.count(f"FAILED  {told}") == 2


def test_a_file_that_loads_only_once_is_told_by_every_process(
    small: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extras = tmp_path / "extras.py"
    extras.write_text("import pathlib\npathlib.Path(__file__).unlink()\nWORKLOADS = {'w': int}\n")
    words = ["--jobs", "2", "--scenario", small, "--with", str(extras)]
    assert main(["sim", "--seeds", "1..2", *words]) == 1
    assert f"--with: {extras}: No such file" in capsys.readouterr().err


def test_a_scenario_that_can_be_read_once(small: str, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "\ufeff" + pathlib.Path(small).read_text()  # with the mark that some editors write
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    assert main(["sim", "--seeds", "1..2", "--jobs", "2", "--scenario", str(pipe)]) == 0
    writer.join(30)


def test_extras_may_have_dataclasses_and_neighbours(small: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a_neighbour_of_extras.py").write_text("KIND = 'w'\n")
    extras = tmp_path / "extras.py"
    extras.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from a_neighbour_of_extras import KIND\n"
        "@dataclass\nclass Seen:\n    number: int\n\nWORKLOADS = {KIND: Seen}\n"
    )
    assert main(["sim", "--seed", "1", "--scenario", small, "--with", str(extras)]) == 0


def test_there_is_nothing_to_minimize_in_a_seed_that_passes(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--seed", "1", "--scenario", small, "--minimize"]) == 0
    assert "nothing to minimize" in capsys.readouterr().err


def test_what_is_named_by_what_is_left_stays_when_a_scenario_is_made_small(
    tmp_path: pathlib.Path,
) -> None:
    extras, path, smallest = (tmp_path / name for name in ("extras.py", "a.json", "b.json"))
    extras.write_text(BROKEN_CHECK)
    names = [{"name": "t"}, {"name": "u"}]
    faults = [{"at_ms": 400, "kind": "crash", "target": "broker-1", "duration_ms": 200}]
    scenario = {"topics": names, **plain(topics=["t"]), "faults": faults, "duration_ms": 3000}
    path.write_text(json.dumps(scenario))
    words = ["--scenario", str(path), "--with", str(extras), "--minimize", "--save", str(smallest)]
    assert main(["sim", "--seed", "1", *words]) == 1
    assert len(Scenario.load(str(smallest)).topics) == 1


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
