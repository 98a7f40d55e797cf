"""Groups of the newer protocol through the consumers of Kafka 4.1 and of librdkafka: they grow, shrink
in every way, lose their coordinator, change from the classic protocol and back, one member at a time.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalike.errors import GroupIdNotFound
from kafkalike.messages.groups import ConsumerGroupDescribeRequest
from tests.integration.brokers import ClusterMaker, eventually
from tests.integration.groups.member import SESSION_MS
from tests.integration.groups.watch import Member, NoAnswer, Party
from tests.reference_kafka import ReferenceMissing
from tests.reference_kafka41 import jars

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.java, pytest.mark.slow]

SOURCE = Path(__file__).with_name("ConsumerMember.java")
SETTINGS = {
    "group_coordinator_rebalance_protocols": "classic,consumer",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "500",
}


class ConsumerParty(Party):
    """A party whose members may also be consumers of Kafka 4.1: `java-consumer`, `java-classic`."""

    classes: Path

    def command(self, library: str) -> list[str]:
        if not library.startswith("java-"):
            return super().command(library)
        memory = ["-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        path = f"{self.classes}:{jars()}/*"
        return ["java", *memory, "-cp", path, "ConsumerMember", library.removeprefix("java-")]

    def describe(self) -> Any:
        found = self.described_as_consumer()
        return super().describe() if found.error_code == GroupIdNotFound.code else found

    def described_as_consumer(self) -> Any:
        """ConsumerGroupDescribe.  Raises NoAnswer."""
        request = ConsumerGroupDescribeRequest(group_ids=[self.group])
        found = self._ask_coordinator(request, 1).groups[0]
        if found.error_code not in (0, GroupIdNotFound.code):
            raise NoAnswer(f"error {found.error_code}")
        return found

    def speaks(self, protocol: str) -> None:
        """Until the group is one of the newer protocol, or not any more."""
        eventually(
            lambda: (self.described_as_consumer().error_code == 0) == (protocol == "consumer"),
            what=f"the group speaks the {protocol} protocol",
        )

    def replace(self, name: str, library: str) -> Member:
        """A member leaves and comes back as another kind of client."""
        self.leave(name)
        return self.start(name, library=library)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        found = jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    folder: Path = tmp_path_factory.mktemp("classes")
    command = ["javac", "-d", str(folder), "-cp", f"{found}/*", str(SOURCE)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return folder


@contextlib.contextmanager
def party(make: ClusterMaker, classes: Path, **more: Any) -> Iterator[ConsumerParty]:
    settings = {"offsets_topic_replication_factor": "3", "min_insync_replicas": "2", **SETTINGS}
    crowd = ConsumerParty(make(3, **settings), "confluent-consumer", partitions=8, **more)
    crowd.classes = classes
    try:
        yield crowd
    finally:
        crowd.close()


def test_story(make_cluster: ClusterMaker, classes: Path) -> None:
    with party(make_cluster, classes) as crowd:
        crowd.start("a", library="java-consumer")
        crowd.settle()
        crowd.start("b")
        crowd.start("c", library="java-consumer")
        crowd.settle()
        crowd.start("d", instance="i")
        crowd.settle()
        crowd.progress()
        crowd.leave("b")
        crowd.settle()
        crowd.kill("c")
        crowd.settle()
        killed = crowd.coordinator()
        crowd.cluster[killed].kill()
        crowd.start("e")
        crowd.settle()
        crowd.progress()
        crowd.finish()


def test_members_change_protocol_one_by_one(make_cluster: ClusterMaker, classes: Path) -> None:
    with party(make_cluster, classes) as crowd:
        crowd.start("a", library="java-classic")
        crowd.start("b", library="confluent")
        crowd.settle()
        crowd.progress()
        crowd.speaks("classic")
        crowd.replace("a", "java-consumer")
        crowd.settle()
        crowd.speaks("consumer")
        crowd.replace("b", "confluent-consumer")
        crowd.settle()
        crowd.replace("b", "java-classic")
        crowd.settle()
        crowd.speaks("consumer")
        crowd.replace("a", "java-classic")
        crowd.settle()
        crowd.speaks("classic")
        crowd.finish()
