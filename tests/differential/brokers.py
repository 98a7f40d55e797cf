"""The two brokers that cases are sent to: ours and the original, with the same settings."""

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

from tests.reference_kafka import ReferenceKafka, free_port

from .run import Broker

ROOT: Final = Path(__file__).resolve().parents[2]
START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
PR_SET_PDEATHSIG: Final = 1
SETTINGS: Final = {
    # Records of cases have times of years ago, and both brokers are to say the same of themselves.
    "log.retention.ms": "-1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "replica.fetch.backoff.ms": "1000",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "30000",
    "controlled.shutdown.retry.backoff.ms": "100",
}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Broker]:
    """One broker of ours beside the embedded coordination service."""
    folder.mkdir(parents=True, exist_ok=True)
    port, ready = free_port(), folder / "ready.json"
    command = [sys.executable, "-m", "kafkalike.tools.main", "up", "--brokers", "1"]
    command += ["--dir", str(folder / "data"), "--port", str(port), "--ready-file", str(ready)]
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
                raise RuntimeError(f"no broker: {(folder / 'out').read_text()[-2000:]}")
            time.sleep(0.02)
        facts = json.loads(ready.read_text())
        data = folder.resolve() / "data" / "broker-1" / "data"
        yield Broker(port, _replaced(port, facts["zookeeper"], data))
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def original(folder: Path) -> Iterator[Broker]:
    """One broker of Apache Kafka.  Raises ReferenceMissing."""
    with ReferenceKafka(folder, settings=SETTINGS) as kafka:
        port = kafka.ports[1]
        yield Broker(port, _replaced(port, kafka.zookeeper, kafka.data(1).resolve()))


def _replaced(port: int, zookeeper: str, data: Path) -> dict[str, str]:
    return {str(data): "<log dir>", zookeeper: "<zookeeper>", str(port): "<port>"}
