"""The two clusters that commands are sent to: three brokers of ours, three of the original."""

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.reference_kafka import ReferenceKafka

from .run import Target

ROOT: Final = Path(__file__).resolve().parents[3]
START_LIMIT_S: Final = 90.0
STOP_LIMIT_S: Final = 60.0
PR_SET_PDEATHSIG: Final = 1
SETTINGS: Final = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "30000",
}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Target]:
    """Three brokers beside the embedded coordination service."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "kafkalike.tools.main", "up", "--brokers", "3"]
    command += ["--dir", str(folder / "data"), "--port", "0", "--ready-file", str(ready)]
    for key, value in SETTINGS.items():
        command += ["--override", f"{key}={value}"]
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not (ready.exists() and ready.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no cluster: {(folder / 'out').read_text()[-2000:]}")
            time.sleep(0.02)
        facts = json.loads(ready.read_text())
        data = folder.resolve() / "data"
        dirs = {str(data / f"broker-{n}" / "data"): f"<dir {n}>" for n in (1, 2, 3)}
        yield _target(facts["bootstrap_servers"].split(","), dirs)
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def original(folder: Path) -> Iterator[Target]:
    """Three brokers of Apache Kafka.  Raises ReferenceMissing."""
    with ReferenceKafka(folder, brokers=3, settings=SETTINGS, heap="256M") as kafka:
        dirs = {str(kafka.data(n).resolve()): f"<dir {n}>" for n in kafka.ports}
        yield _target(kafka.bootstrap.split(","), dirs)


def _target(addresses: list[str], dirs: dict[str, str]) -> Target:
    names = dict(dirs)
    for number, address in enumerate(addresses, 1):
        names[address] = f"<broker {number}>"
        names[address.rpartition(":")[2]] = f"<port {number}>"
    return Target(addresses, names)
