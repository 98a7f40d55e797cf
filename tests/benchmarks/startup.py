"""How long until the first record is safe, and how much memory that takes.

    python -m tests.benchmarks.startup [--runs N]

Each run starts `kafkalike up` on an empty directory and measures, from the start of the process:
ready (the JSON line), and the first Produce with acks=all acknowledged, whose topic is created by it.
Memory is PSS (pages that processes share count once) of all processes of the cluster after that.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import confluent_kafka

from tests.integration.testing.processes import descendants

MODES = {"processes": [], "single process": ["--single-process"]}
FAST_RETRIES = {
    "acks": "all",
    "linger.ms": 0,
    "log_level": 0,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "retry.backoff.ms": 10,
}


def measure(brokers: int, flags: list[str]) -> tuple[float, float, float]:
    """(ready, produced) in seconds and MB."""
    directory = tempfile.mkdtemp(prefix="kafkalike-startup-")
    command = [shutil.which("kafkalike", path=str(pathlib.Path(sys.executable).parent)), "up"]
    command += ["--brokers", str(brokers), "--port", "0", "--dir", f"{directory}/data"]
    begin = time.monotonic()
    process = subprocess.Popen(
        [*map(str, command), "--output", "json", *flags], stdout=subprocess.PIPE
    )
    try:
        outcomes: list[Any] = []
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        ready_s = time.monotonic() - begin
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": facts["bootstrap_servers"], **FAST_RETRIES}
        )
        producer.produce("first", b"1", callback=lambda error, _: outcomes.append(error))
        while not outcomes:
            producer.poll(0.005)
        produced_s = time.monotonic() - begin
        assert outcomes == [None], outcomes
        return ready_s, produced_s, sum(map(pss_mb, descendants(process.pid)))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
        shutil.rmtree(directory)


def pss_mb(pid: int) -> float:
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel tells no PSS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, median of {runs} runs")
    for mode, flags in MODES.items():
        for brokers in (1, 3):
            measure(brokers, flags)
            found = [measure(brokers, flags) for _ in range(runs)]
            ready, produced, memory = (statistics.median(column) for column in zip(*found))
            print(
                f"{brokers} broker(s), {mode}: ready {ready:.3f} s, first acks=all produce"
                f" {produced:.3f} s, {memory:.0f} MB"
            )


if __name__ == "__main__":
    main()
