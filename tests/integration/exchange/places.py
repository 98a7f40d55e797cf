"""One log directory and one ZooKeeper tree, run by our broker or by the original, never by both."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.integration.brokers import FAST, BrokerProcess
from tests.reference_kafka import ReferenceKafka

OURS: Final = "ours"
KAFKA: Final = "kafka"
SETTINGS: Final = {
    **FAST,
    "zookeeper.session.timeout.ms": "6000",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    # What a killed broker left is recovered from where loading began, not from a later checkpoint.
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "transaction.partition.verification.enable": "false",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
}
TORN: Final = ("Corruption found in segment", "Found invalid messages in log segment")
"""What the original says when it cuts a torn tail."""


class Exchange:
    """Broker 1 on one directory; `start` says whose program runs."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        data = folder / "data"
        self._zookeeper = zookeeper
        settings = {**SETTINGS, "log.dirs": str(data.resolve())}
        self._kafka = ReferenceKafka(
            folder / "kafka", zookeeper=zookeeper, settings=settings, heap="256M"
        )
        self._kafka.folder.mkdir(parents=True)
        self._ours = BrokerProcess(folder / "ours", 1, zookeeper)
        self.port = self._ours.port = self._kafka.ports[1]
        self._ours.settings.update(settings, listeners=f"PLAINTEXT://127.0.0.1:{self.port}")
        self.data = data
        self.running = ""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, whose: str) -> None:
        assert not self.running
        self._wait_forgotten()
        self.running = whose
        if whose == OURS:
            self._ours.start()
        else:
            self._kafka.launch(1)
            self._kafka.wait_ready(1)

    def stop(self) -> None:
        """An orderly stop."""
        whose, self.running = self.running, ""
        if whose == OURS:
            assert self._ours.terminate() == 0
        else:
            self._kafka.terminate(1)
        assert (self.data / ".kafka_cleanshutdown").exists()

    def kill(self) -> None:
        whose, self.running = self.running, ""
        if whose == OURS:
            self._ours.kill()
        else:
            self._kafka.kill(1)
        assert not (self.data / ".kafka_cleanshutdown").exists()

    def close(self) -> None:
        self._ours.kill()
        self._kafka.close()

    def complaints(self) -> list[str]:
        """What our broker called an error, and what the original found wrong with files.

        Torn tails are cut with a warning.
        """
        found = []
        if self._ours.log_path.exists():
            for line in self._ours.log().splitlines():
                if "] ERROR" in line or "] CRITICAL" in line:
                    found.append(line)
        for output in self._kafka.folder.glob("broker-1.out"):
            for line in output.read_text(errors="replace").splitlines():
                if (
                    ("] WARN" in line or "] ERROR" in line)
                    and ("(kafka.log." in line or ".storage." in line)
                    and not any(text in line for text in TORN)
                ):
                    found.append(line)
        return found

    def topic_id(self, topic: str) -> str:
        """As ZooKeeper has it."""
        with self._tree() as tree:
            content, _ = tree.get(f"/brokers/topics/{topic}")
        return str(json.loads(content)["topic_id"])

    def leave_without_leader(self, topic: str) -> None:
        """Partition 0 as it is in the tree after its leader died: the next one needs an election."""
        path = f"/brokers/topics/{topic}/partitions/0/state"
        with self._tree() as tree:
            state = json.loads(tree.get(path)[0])
            state.update(leader=-1, leader_epoch=state["leader_epoch"] + 1)
            tree.set(path, json.dumps(state, separators=(",", ":")).encode())

    def _wait_forgotten(self) -> None:
        """Until the session of the last broker is over."""
        with self._tree() as tree:
            deadline = time.monotonic() + 60
            while tree.exists("/brokers/ids/1"):
                assert time.monotonic() < deadline, "the last broker is still registered"
                time.sleep(0.1)

    @contextlib.contextmanager
    def _tree(self) -> Iterator[KazooClient]:
        address, _, chroot = self._zookeeper.partition("/")
        client = KazooClient(address)
        client.start(30)
        try:
            client.ensure_path(f"/{chroot}")
            client.chroot = f"/{chroot}" if chroot else ""
            yield client
        finally:
            client.stop()
            client.close()

    # -- files ---------------------------------------------------------------------------------

    def segments(self, topic: str, partition: int = 0) -> list[Path]:
        return sorted((self.data / f"{topic}-{partition}").glob("*.log"))

    def checkpoint(self, name: str) -> dict[tuple[str, int], int]:
        """An offset checkpoint of the log directory."""
        path = self.data / name
        if not path.exists():
            return {}
        version, count, *lines = path.read_text().splitlines()
        assert (version, int(count)) == ("0", len(lines))
        split = (line.rsplit(" ", 2) for line in lines)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in split}

    def epochs(self, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        """(epoch, start offset) of a partition's checkpoint of leader epochs."""
        path = self.data / f"{topic}-{partition}" / "leader-epoch-checkpoint"
        version, count, *lines = path.read_text().splitlines()
        assert (version, int(count)) == ("0", len(lines))
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
