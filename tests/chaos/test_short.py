"""A short chaos run as part of the suite; `make chaos` is the long one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.brokers import ROOT
from tests.integration.zookeeper import missing

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

LIMIT_S = 540.0


def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(f"needs a ZooKeeper process of its own: {reason}")
    command = [sys.executable, "-m", "tests.chaos.run", "--seed", "20", "--events", "25"]
    command += ["--pace-s", "1.6", "--heal-limit-s", "120"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "findings: 0" in done.stdout
    acknowledged = done.stdout.split(" acknowledged", 1)[0].rsplit(" ", 1)[-1]
    assert int(acknowledged) > 1000, done.stdout
