"""The server's modules are about ports: importing them must not choose a reactor for the process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "module",
    [
        "kafkalike.broker.server.connection",
        "kafkalike.broker.server.dispatch",
        "kafkalike.broker.server.listener",
        "kafkalike.broker.server.metrics_page",
        "kafkalike.net.peers",
        "kafkalike.runtime.tasks",
        "kafkalike.runtime.reactor",
        "kafkalike.tools.simulator.network",
    ],
)
def test_no_reactor_is_loaded(module: str) -> None:
    code = f"import sys, {module}\nassert 'twisted.internet.reactor' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
