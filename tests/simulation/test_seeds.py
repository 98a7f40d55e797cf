"""Whole clusters in simulated time: seeds of the general scenario, and seeds that once failed."""

import os
import pathlib
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kafkalike.tools.simulator.run import Result, run
from kafkalike.tools.simulator.scenario import Scenario

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
SEEDS_FILE = HERE / "seeds.txt"
KEPT = HERE / "kept"
"""Their scenarios."""
GENERAL_SEEDS = range(200)


def run_seed(seed: int) -> Result:
    return run(seed)


def kept_seeds() -> list[int]:
    """Seeds that failed once, from `<seed>  <what it found>` lines."""
    lines = SEEDS_FILE.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def complaint(result: Result) -> str:
    """The seed, how it went wrong, and how to see it again."""
    broken = "\n".join(f"{v.at_ms} ms {v.checker}: {v.text}" for v in result.violations)
    return f"kafkalike sim --seed {result.seed}\n{broken}"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_general_seeds_pass() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(run_seed, GENERAL_SEEDS, chunksize=10))
    assert len(results) == len(GENERAL_SEEDS)
    failed = [complaint(result) for result in results if not result.ok]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_seeds_that_failed_once_pass(seed: int) -> None:
    result = run(seed, Scenario.load(str(KEPT / f"{seed}.json")))
    assert result.ok, complaint(result)


def test_a_seed_repeats_to_the_byte() -> None:
    first, second = run(3), run(3)
    assert first.trace_hash == second.trace_hash
    assert first.story == second.story


def test_another_seed_is_another_story() -> None:
    assert run(3).trace_hash != run(4).trace_hash


@pytest.mark.parametrize("seed", [1, 6])
def test_a_seed_repeats_in_another_process_with_other_hashes(seed: int) -> None:
    code = f"from kafkalike.tools.simulator.run import run;print(run({seed}).trace_hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert hashes == {run(seed).trace_hash}


def test_a_scenario_survives_its_file(tmp_path: pathlib.Path) -> None:
    scenario = Scenario.generate(8)
    scenario.save(str(tmp_path / "scenario.json"))
    loaded = Scenario.load(str(tmp_path / "scenario.json"))
    assert loaded == scenario
    assert run(8, loaded).trace_hash == run(8).trace_hash
