"""Compaction of `__consumer_offsets` under commits, then coordinators that move: what was committed
last is what is found, from the log and from snapshots beside it."""

import contextlib
import random
import re
import time
from pathlib import Path
from typing import Any, Final

import pytest

from kafkalike.broker.coordinator.snapshot import FILE_NAME
from kafkalike.messages.catalog import response_class
from kafkalike.messages.configs import IncrementalAlterConfigsRequest
from kafkalike.messages.groups import FindCoordinatorRequest
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.struct import Request
from tests.differential.case import frame
from tests.differential.wire import Closed, Connection, Silence
from tests.integration import clients
from tests.integration.brokers import FAST, BrokerCluster, ClusterMaker, eventually
from tests.integration.groups.watch import ask
from tests.reference_kafka import ReferenceKafka, ReferenceMissing

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

TOPIC: Final = "compacted-0"
PARTITIONS: Final = 40
GROUPS: Final = tuple(f"compacted-{number}" for number in range(6))
LOAD_S: Final = 8.0
SETTINGS: Final = {
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "2",
    "offsets_topic_segment_bytes": "65536",
    # Longer than a dead replica is waited for: a commit that is in the log is not told to have failed.
    "offsets_commit_timeout_ms": "30000",
    "min_insync_replicas": "2",
    "log_cleaner_backoff_ms": "200",
    "log_cleaner_min_cleanable_ratio": "0.05",
    "file_delete_delay_ms": "1000",
    "kafkalike_groups_snapshot_records": "2000",
}
Offsets = dict[str, dict[int, int]]


class Client:
    """Commits, deletes and fetches offsets of all groups, wherever their coordinators are."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._connections: dict[str, Connection] = {}
        self.last: Offsets = {group: {} for group in GROUPS}
        """What was acknowledged last."""

    def _ask(self, group: str, request: Request, version: int) -> Any:
        connection = self._connections.get(group) or self._connect(group)
        self._connections[group] = connection
        try:
            connection.send(frame(request, version))
            received = connection.receive(20)
        except (OSError, Closed, Silence):
            self._connections.pop(group).close()
            raise
        _, position = decode_response_header(received, request.api_key, version)
        return response_class(request.api_key).decode(received, version, position)

    def _connect(self, group: str) -> Connection:
        for broker in self._cluster.brokers:
            with contextlib.suppress(OSError, Closed, Silence):
                request = FindCoordinatorRequest(coordinator_keys=[group])
                found = ask(broker.port, request, 4).coordinators[0]
                if found.error_code == 0:
                    return Connection(self._cluster[found.node_id].port)
        raise Closed("no coordinator")

    def commit(self, group: str, offset: int, partitions: list[int]) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        place = topic.OffsetCommitRequestPartition
        places = [place(partition_index=p, committed_offset=offset) for p in partitions]
        request = OffsetCommitRequest(group_id=group, topics=[topic(name=TOPIC, partitions=places)])
        answer = self._ask(group, request, 8)
        self._check(group, [p.error_code for p in answer.topics[0].partitions])
        self.last[group].update(dict.fromkeys(partitions, offset))

    def forget(self, group: str, partitions: list[int]) -> None:
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        place = topic.OffsetDeleteRequestPartition
        places = [place(partition_index=p) for p in partitions]
        request = OffsetDeleteRequest(group_id=group, topics=[topic(name=TOPIC, partitions=places)])
        answer = self._ask(group, request, 0)
        self._check(group, [answer.error_code])
        for partition in partitions:
            self.last[group].pop(partition, None)

    def _check(self, group: str, codes: list[int]) -> None:
        """Another broker may have become coordinator: it is looked for the next time."""
        if any(codes):
            self._connections.pop(group).close()
        assert not any(codes), codes

    def found(self) -> Offsets:
        """What the coordinators say; raises while one is on its way."""
        offsets: Offsets = {}
        for group in GROUPS:
            wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            answer = self._ask(group, OffsetFetchRequest(groups=[wanted]), 8).groups[0]
            if answer.error_code:
                self._connections.pop(group).close()
                raise Closed(f"error {answer.error_code}")
            offsets[group] = {
                p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions
            }
        return offsets

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _differences(found: Offsets, last: Offsets) -> list[tuple[str, int, int | None, int | None]]:
    """(group, partition, found, acknowledged last), None for no offset."""
    return [
        (group, partition, found[group].get(partition), last[group].get(partition))
        for group in GROUPS
        for partition in range(PARTITIONS)
        if found[group].get(partition) != last[group].get(partition)
    ]


def _configure(cluster: BrokerCluster, **settings: str) -> None:
    """Settings of `__consumer_offsets`."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=2,
                resource_name="__consumer_offsets",
                configs=[
                    resource.AlterableConfig(name=name.replace("_", "."), value=value)
                    for name, value in settings.items()
                ],
            )
        ]
    )
    answer = ask(cluster.brokers[0].port, request, 1)
    assert answer.responses[0].error_code == 0, answer


def _loads(log: str) -> list[str]:
    return [line for line in log.splitlines() if "loaded partition=__consumer_offsets-" in line]


def _check_loads(log: str) -> None:
    """Where a broker that had made a snapshot did not use it, it said why."""
    made: set[str] = set()
    told: set[str] = set()
    for line in log.splitlines():
        for number in range(int(SETTINGS["offsets_topic_num_partitions"])):
            name = f"__consumer_offsets-{number}"
            if f" snapshot partition={name} " in line:
                made.add(name)
            elif name in line and "is not used" in line:
                told.add(name)
            elif f"loaded partition={name} " in line:
                if "snapshot_offset=None" in line:
                    assert name not in made or name in told, line
                told.discard(name)


def test_offsets_survive_compaction_under_commits(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3, **SETTINGS)
    clients.create_topic(cluster.bootstrap, TOPIC, PARTITIONS, 3, {})
    client = Client(cluster)
    chance = random.Random(7)
    eventually(lambda: client.found() is not None, what="coordinators")
    _configure(cluster, delete_retention_ms="0", min_cleanable_dirty_ratio="0.05")

    def load(limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        number = max((o for group in client.last.values() for o in group.values()), default=0)
        while time.monotonic() < end_s:
            number += 1
            group = GROUPS[number % len(GROUPS)]
            chosen = chance.sample(range(PARTITIONS), chance.randrange(1, PARTITIONS))
            client.commit(group, number, chosen)
            if number % 5 == 0:
                client.forget(group, chance.sample(range(PARTITIONS), 3))
        # An OffsetDelete is answered before it is replicated, as with Kafka; a commit behind it is not.
        for group in GROUPS:
            number += 1
            client.commit(group, number, [0])

    def cleaned() -> int:
        return sum(b.log().count("cleaned partition=__consumer_offsets") for b in cluster.brokers)

    def snapshots() -> dict[tuple[int, str], int]:
        """How many each broker made of each partition."""
        found: dict[tuple[int, str], int] = {}
        for broker in cluster.brokers:
            for made in re.findall(r" snapshot partition=(__consumer_offsets-\d+) ", broker.log()):
                found[broker.id, made] = found.get((broker.id, made), 0) + 1
        return found

    try:
        load(LOAD_S)
        eventually(lambda: cleaned() >= 6, what="compaction")
        load(LOAD_S / 2)
        assert client.found() == client.last
        # A replica that is away must not miss a tombstone, as with Kafka: what was deleted would come
        # back with it.
        _configure(cluster, delete_retention_ms="120000")
        for killed in cluster.brokers:
            killed.kill()
            found = eventually(client.found, 60, what="offsets on another broker")
            assert _differences(found, client.last) == [], f"after broker {killed.id} was killed"
            load(1.0)
            killed.start()
            eventually(client.found, 60, what="offsets")
            load(1.0)
        # Nothing newer is compacted: what lies behind the next snapshots can be proven.
        _configure(cluster, min_compaction_lag_ms="3600000")
        count = -1
        while count != (count := cleaned()):
            time.sleep(1.0)
        before = snapshots()

        def all_made_one() -> bool:
            load(0.5)
            now = snapshots()
            return len(now) == 6 and all(now[key] > before.get(key, 0) for key in now)

        eventually(all_made_one, 60, what="a snapshot of each replica")
        for broker in cluster.brokers:
            broker.terminate()
        known = {broker.id: len(_loads(broker.log())) for broker in cluster.brokers}
        for broker in cluster.brokers:
            broker.launch()
        for broker in cluster.brokers:
            broker.wait_ready()
        assert eventually(client.found, 60, what="offsets after a restart") == client.last
        loads = [x for broker in cluster.brokers for x in _loads(broker.log())[known[broker.id] :]]
        assert len(loads) >= 2, loads
        assert not [line for line in loads if "snapshot_offset=None" in line], loads
        for broker in cluster.brokers:
            _check_loads(broker.log())
        assert not [error for error in cluster.errors() if "cannot load" in error]
    finally:
        client.close()


def test_kafka_works_on_a_directory_with_a_snapshot(
    make_cluster: ClusterMaker, tmp_path: Path
) -> None:
    """Kafka's broker lets the file be; what it wrote meanwhile is read behind the snapshot."""
    settings = {
        "offsets_topic_num_partitions": "1",
        "kafkalike_groups_snapshot_records": "200",
        "inter_broker_protocol_version": "3.9",
    }
    cluster = make_cluster(1, **settings)
    broker = cluster.brokers[0]
    clients.create_topic(cluster.bootstrap, TOPIC, PARTITIONS, 1, {})
    snapshot = broker.data / "__consumer_offsets-0" / FILE_NAME
    client = Client(cluster)
    eventually(lambda: client.found() is not None, what="the coordinator")
    for number in range(60):
        client.commit(GROUPS[number % len(GROUPS)], number, list(range(number % 7, PARTITIONS, 5)))
    eventually(snapshot.exists, 40, what="a snapshot")
    content = snapshot.read_bytes()
    client.commit(GROUPS[0], 1000, [1])
    client.close()
    assert broker.terminate() == 0
    kafka = ReferenceKafka(
        tmp_path / "kafka",
        zookeeper=cluster.zookeeper,
        settings={**FAST, "offsets.topic.num.partitions": "1"},
    )
    kafka.folder.mkdir()
    kafka.data(1).symlink_to(broker.data)
    own_port = broker.port
    try:
        kafka.start()
    except ReferenceMissing as reason:
        pytest.skip(str(reason))
    try:
        broker.port = kafka.ports[1]
        theirs = Client(cluster)
        theirs.last = client.last
        assert eventually(theirs.found, 60, what="offsets through Kafka") == client.last
        theirs.commit(GROUPS[1], 2000, [1, 2, 3])
        theirs.forget(GROUPS[2], [4])
        theirs.close()
    finally:
        kafka.close()
        broker.port = own_port
    assert snapshot.read_bytes() == content
    broker.start()
    again = Client(cluster)
    assert eventually(again.found, 60, what="offsets") == client.last
    again.close()
    (loaded,) = [x for x in broker.log().splitlines() if "loaded partition=__consumer_off" in x][
        -1:
    ]
    assert "snapshot_offset=None" not in loaded, loaded
