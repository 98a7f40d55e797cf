"""Many clusters one after another and at once leave nothing: no process, port, file or thread."""

import gc
import os
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalike.testing import Cluster
from tests.integration.testing.processes import descendants, listens


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def live_and_die(number: int) -> tuple[str, list[int], pathlib.Path]:
    """(addresses, processes, directory) of a cluster that has been there."""
    with Cluster(1 + number % 3, single_process=number % 5 == 4) as cluster:
        cluster.create_topic("t", partitions=2)
        pids = descendants(cluster.pid)
        if number % 2:
            cluster.kill(1)
        return f"{cluster.bootstrap_servers},{cluster.zookeeper}", pids, cluster.directory


@pytest.mark.slow
def test_twenty_in_turn_and_four_at_once() -> None:
    live_and_die(0)
    gc.collect()  # what earlier tests left
    files, threads = open_files(), threading.active_count()
    done = [live_and_die(number) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        done += pool.map(live_and_die, range(4))
    gc.collect()
    assert open_files() <= files
    assert threading.active_count() <= threads
    for addresses, pids, directory in done:
        assert not directory.exists()
        assert not any(listens(address) for address in addresses.split(","))
        assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)
