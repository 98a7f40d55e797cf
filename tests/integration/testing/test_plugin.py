"""The pytest plugin as a user sees it: in a pytest of its own, and under xdist."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.integration.testing.processes import ROOT, is_alive, until

SUITE = """
import pytest

def test_topics_have_names_of_their_own(kafkalike):
    first, second = kafkalike.topic(), kafkalike.topic(partitions=2)
    assert first != second
    assert kafkalike.unique("group") != kafkalike.unique("group")
    assert set(kafkalike.topics()) >= {first, second}

def test_break(kafkalike):
    kafkalike.pause(2)
    kafkalike.push_errors("Produce", [7])

def test_is_mended(kafkalike):
    assert {one.state for one in kafkalike.brokers.values()} == {"running"}
    assert kafkalike.pending_errors() == {}
    assert len(kafkalike.brokers) == 2

@pytest.mark.kafkalike(brokers=1, config={"num.partitions": 7})
def test_own(kafkalike_cluster):
    text = (kafkalike_cluster.directory / "broker-1" / "server.properties").read_text()
    assert "num.partitions=7" in text

@pytest.mark.kafkalike(1)
def test_fails(kafkalike_cluster):
    assert kafkalike_cluster.bootstrap_servers == "", kafkalike_cluster.pid

@pytest.mark.kafkalike(borkers=1)
def test_misspelt(kafkalike_cluster):
    pass
"""

INI = "[pytest]\nkafkalike_brokers = 2\nkafkalike_config =\n    auto.create.topics.enable=false\n"


def run(folder: pathlib.Path, *arguments: str) -> str:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text(INI)
    plugin = "" if _installed() else "-pkafkalike.testing.plugin"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments]
    done = subprocess.run(
        [*command, *filter(None, [plugin])],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout + done.stderr


def _installed() -> bool:
    """Whether pytest finds the plugin by itself."""
    from importlib.metadata import entry_points

    return any(point.name == "kafkalike" for point in entry_points(group="pytest11"))


@pytest.mark.parametrize("workers", ["0", "3"])
def test_the_suite_of_a_user(tmp_path: pathlib.Path, workers: str) -> None:
    arguments = () if workers == "0" else ("-n", workers)
    text = run(tmp_path, *arguments)
    assert "4 passed" in text, text
    assert "1 failed" in text and "1 error" in text, text
    assert "no argument 'borkers', expected one of brokers, config" in text
    assert "kafkalike broker logs" in text
    assert "broker-1/broker.log:" in text
    lines = [one for one in text.splitlines() if one.startswith("E") and "AssertionError" in one]
    pid = int(lines[0].split()[2])
    until(lambda: not is_alive(pid), "the failed test's cluster is left")


def test_the_markers_and_fixtures_explain_themselves(tmp_path: pathlib.Path) -> None:
    text = run(tmp_path, "--fixtures", "--markers")
    assert "@pytest.mark.kafkalike(brokers=3" in text
