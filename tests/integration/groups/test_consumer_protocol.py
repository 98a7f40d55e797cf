"""Groups of the newer protocol through the consumers of Kafka 4.1 and of librdkafka: they grow, shrink
in every way, lose their coordinator, change from the classic protocol and back, one member at a time.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalike.errors import GroupIdNotFound
from kafkalike.messages.groups import ConsumerGroupDescribeRequest
from tests.integration import clients
from tests.integration.brokers import ClusterMaker, eventually
from tests.integration.client_matrix.programs import FULL
from tests.integration.groups.member import SESSION_MS
from tests.integration.groups.watch import STEADY_S, Member, NoAnswer, Party
from tests.reference_kafka import ReferenceMissing
from tests.reference_kafka41 import jars

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.java, pytest.mark.slow]

more_of_the_same = pytest.mark.skipif(
    not FULL, reason="the other direction of the same; KAFKALIKE_FULL=1 runs it"
)
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
        killed = eventually(crowd.coordinator, what="a coordinator")
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


def whole(crowd: Party) -> None:
    """Until every replica of the groups' topic is in sync: another broker may go."""
    admin = clients.admin(crowd.cluster.bootstrap)

    def in_sync() -> bool:
        topics = admin.list_topics("__consumer_offsets", timeout=10).topics
        parts = topics["__consumer_offsets"].partitions.values()
        return bool(parts) and all(len(part.isrs) == 3 for part in parts)

    eventually(in_sync, STEADY_S, what="all replicas of the groups' topic in sync")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("classic", "consumer"),
        pytest.param("consumer", "classic", marks=more_of_the_same),
    ],
)
def test_coordinator_is_killed_while_members_change_protocol(
    make_cluster: ClusterMaker, classes: Path, before: str, after: str
) -> None:
    libraries = {
        "classic": {"a": "java-classic", "b": "confluent", "c": "java-classic"},
        "consumer": {"a": "java-consumer", "b": "confluent-consumer", "c": "java-consumer"},
    }
    with party(make_cluster, classes) as crowd:
        for name, library in libraries[before].items():
            crowd.start(name, library=library)
        crowd.settle()
        crowd.progress()
        crowd.speaks(before)
        for name, library in libraries[after].items():
            whole(crowd)
            killed = eventually(crowd.coordinator, what="a coordinator")
            described = eventually(crowd.describe, what="a description")
            known = {member.member_id for member in described.members}
            crowd.replace(name, library)
            # The group has just taken in a member of the other protocol, or is about to give up the
            # former one; nobody has come to rest with that.
            eventually(
                lambda: {m.member_id for m in crowd.describe().members} - known,  # noqa: B023
                pause_s=0.01,
                what=f"{name} joins as {library}",
            )
            crowd.cluster[killed].kill()
            crowd.settle()
            crowd.cluster[killed].start()
            crowd.progress()
        crowd.settle()
        crowd.speaks(after)
        changes = {name: member.changes for name, member in crowd.members.items()}
        epoch = epoch_of(crowd.describe())
        crowd.progress()
        time.sleep(2 * SESSION_MS / 1000)
        assert {name: member.changes for name, member in crowd.members.items()} == changes
        assert epoch_of(crowd.describe()) == epoch
        crowd.finish()


def epoch_of(described: Any) -> Any:
    """What grows with each rebalance, as far as a description tells."""
    return getattr(described, "group_epoch", None)
