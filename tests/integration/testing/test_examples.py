"""The examples are green as they are, each with the client that it shows."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.integration.testing.processes import ROOT

CLIENTS = {
    "resilience": "confluent_kafka",
    "kafka-python": "kafka",
    "aiokafka": "aiokafka",
    "faststream": "faststream",
}


@pytest.mark.slow
@pytest.mark.parametrize("example", CLIENTS)
def test_example(example: str) -> None:
    if importlib.util.find_spec(CLIENTS[example]) is None:
        pytest.skip(f"{CLIENTS[example]} is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:twisted", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"examples/{example}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
