"""A Kafka 3.9.2 broker and ours coordinate the same groups in turns, and tell the same of them."""

from pathlib import Path
from typing import Any

import pytest

from kafkalike.errors import FencedInstanceId
from kafkalike.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from kafkalike.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.integration import clients
from tests.integration.brokers import FAST, ClusterMaker, eventually
from tests.integration.groups.watch import ask
from tests.reference_kafka import ReferenceKafka, ReferenceMissing

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.java, pytest.mark.slow]

SESSION_MS = 1_800_000
OURS, KAFKA = 1, 2


class Asker:
    """Asks the coordinator of a group, whichever broker that is."""

    def __init__(self, ports: dict[int, int], group: str) -> None:
        self.ports = ports
        self.group = group

    def coordinator(self) -> int:
        for port in self.ports.values():
            try:
                request = FindCoordinatorRequest(coordinator_keys=[self.group])
                found = ask(port, request, 4).coordinators[0]
            except OSError:
                continue
            if not found.error_code:
                return int(found.node_id)
        return -1

    def ask(self, request: Any, version: int) -> Any:
        return ask(self.ports[self.coordinator()], request, version)

    def join(self, instance_id: str) -> Any:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=b"m\xff")],
        )
        return self.ask(request, 9)

    def sync(self, joined: Any, instance_id: str) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="p",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=joined.member_id, assignment=b"\0\1mine"
                )
            ],
        )
        return self.ask(request, 5)

    def beat(self, joined: Any, instance_id: str) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
        )
        code: int = self.ask(request, 4).error_code
        return code

    def commit(self, joined: Any, offset: int, instance_id: str) -> int:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata=f"at {offset} \u00e4",
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            topics=[topic(name="t", partitions=[partition])],
        )
        code: int = self.ask(request, 9).topics[0].partitions[0].error_code
        return code

    def seen(self) -> tuple[Any, Any]:
        """What the coordinator tells of the group and its offsets, once it tells."""

        def probe() -> Any:
            described = self.ask(DescribeGroupsRequest(groups=[self.group]), 5)
            wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=None)
            fetched = self.ask(OffsetFetchRequest(groups=[wanted]), 9)
            codes = (described.groups[0].error_code, fetched.groups[0].error_code)
            return (described.groups[0], fetched.groups[0]) if codes == (0, 0) else None

        found: tuple[Any, Any] = eventually(probe, 60, what="the coordinator tells")
        return found


def test_groups_move_between_kafka_and_ours(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    settings = {
        **FAST,
        "offsets.topic.replication.factor": "2",
        "controlled.shutdown.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "inter.broker.protocol.version": "3.9",
    }
    cluster = make_cluster(
        1,
        offsets_topic_replication_factor="2",
        controlled_shutdown_enable="false",
        auto_leader_rebalance_enable="false",
    )
    kafka = ReferenceKafka(
        tmp_path / "kafka",
        first_id=KAFKA,
        zookeeper=cluster.zookeeper,
        settings=settings,
    )
    try:
        kafka.start()
    except ReferenceMissing as reason:
        pytest.skip(str(reason))
    try:
        clients.create_topic(cluster.bootstrap, "t", 1, 2)
        ports = {OURS: cluster[OURS].port, **kafka.ports}
        groups = [Asker(ports, f"moves-{number}") for number in range(8)]
        eventually(lambda: all(g.coordinator() > 0 for g in groups), 60, what="coordinators")
        eventually(lambda: all(g.seen() for g in groups), 60, what="coordinators that serve")
        assert {g.coordinator() for g in groups} == {OURS, KAFKA}
        joined = {}
        for group in groups:
            joined[group.group] = group.join("i")
            assert group.sync(joined[group.group], "i").assignment == b"\0\1mine"
            assert group.commit(joined[group.group], 7, "i") == 0
        before = {group.group: group.seen() for group in groups}

        def check(offset: int) -> None:
            for group in groups:
                described, fetched = group.seen()
                assert described == before[group.group][0]
                partition = fetched.topics[0].partitions[0]
                assert partition.committed_offset == offset
                assert partition.committed_leader_epoch == 3
                assert partition.metadata == f"at {offset} \u00e4"
                assert group.beat(joined[group.group], "i") == 0
                assert group.commit(joined[group.group], offset + 1, "i") == 0

        for round_number, (gone, left) in enumerate(((OURS, KAFKA), (KAFKA, OURS))):
            if gone == OURS:
                cluster[OURS].kill()
            else:
                kafka.kill(KAFKA)
            eventually(lambda: all(g.coordinator() == left for g in groups), 60, what="failover")  # noqa: B023
            check(7 + round_number)
            if gone == OURS:
                cluster[OURS].start()
            else:
                kafka.launch(KAFKA)
                kafka.wait_ready(KAFKA)
            _in_sync(cluster.bootstrap)
        for group in groups:
            # Whichever broker has the group now, the member that the other one let in is known.
            old, again = joined[group.group], group.join("i")
            assert (again.error_code, again.generation_id) == (0, 1)
            assert group.sync(again, "i").assignment == b"\0\1mine"
            assert group.beat(old, "i") == FencedInstanceId.code
            assert group.commit(old, 99, "i") == FencedInstanceId.code
            assert group.beat(again, "i") == 0
            (member,) = group.seen()[0].members
            assert (member.member_id, member.group_instance_id) == (again.member_id, "i")
        assert cluster.errors() == []
    finally:
        kafka.close()


def _in_sync(bootstrap: str) -> None:
    def probe() -> bool:
        topics = clients.admin(bootstrap).list_topics(timeout=10).topics
        return all(
            len(part.isrs) == 2
            for name in ("__consumer_offsets", "t")
            for part in topics[name].partitions.values()
        )

    eventually(probe, 60, what="both in sync")
