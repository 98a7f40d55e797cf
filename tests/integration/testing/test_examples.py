"""The examples are green as they are, each with the client that it shows."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from tests.integration.testing.processes import ROOT

CLIENTS = {
    "resilience": "confluent_kafka",
    "kafka-python": "kafka",
    "aiokafka": "aiokafka",
    "faststream": "faststream",
}


def run_tests(where: pathlib.Path, tests: str) -> None:
    """As a user would, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:twisted", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, tests],
        cwd=where,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("example", CLIENTS)
def test_example(example: str) -> None:
    if importlib.util.find_spec(CLIENTS[example]) is None:
        pytest.skip(f"{CLIENTS[example]} is not installed")
    run_tests(ROOT, f"examples/{example}")


def test_the_first_test_of_the_guide(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("confluent_kafka")
    guide = (ROOT / "docs/testing-with-kafkalike.md").read_text()
    shown = guide.partition("    # test_orders.py\n")[2].partition("\nNo Java")[0]
    assert "def test_" in shown
    (tmp_path / "test_orders.py").write_text(textwrap.dedent(shown))
    run_tests(tmp_path, "test_orders.py")
