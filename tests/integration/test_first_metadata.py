"""What clients hear of a broker that has just started: of what there is, or nothing yet.

Where a new controller takes over, the test holds the office itself and says what a controller says, in
its order and its own time.
"""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafkalike.messages.control import UpdateMetadataRequest
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.offsets import OffsetCommitRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.zk import paths
from tests.chaos.observer import Wire, metadata_request
from tests.integration.brokers import BrokerCluster, ClusterMaker

pytestmark = pytest.mark.real_zookeeper

HELD_S = 1.0
LIMIT_S = 30.0
OTHER = 9
UPDATE_METADATA_VERSION = 8
METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 7
CREATE_TOPICS_VERSION = 7
PRODUCE_VERSION = 10
FETCH_VERSION = 12
OFFSET_COMMIT_VERSION = 8


@pytest.fixture
def zk(zookeeper_address: str, chroot: str) -> Iterator[Any]:
    client = KazooClient(zookeeper_address + chroot)
    client.start(30)
    client.ensure_path("/")
    yield client
    client.stop()
    client.close()


def take_office(zk: Any) -> None:
    zk.ensure_path(paths.BROKER_IDS)
    office = {"version": 2, "brokerid": OTHER, "timestamp": "1", "kraftControllerEpoch": -1}
    zk.create(paths.CONTROLLER, json.dumps(office).encode(), ephemeral=True)
    zk.create(paths.CONTROLLER_EPOCH, b"5")


def update(cluster: BrokerCluster, zk: Any, topics: list[Any]) -> UpdateMetadataRequest:
    _, stat = zk.get(f"{paths.BROKER_IDS}/1")
    broker = UpdateMetadataRequest.UpdateMetadataBroker(
        id=1,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint(
                port=cluster[1].port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
            )
        ],
    )
    return UpdateMetadataRequest(
        controller_id=OTHER,
        controller_epoch=5,
        broker_epoch=stat.czxid,
        topic_states=topics,
        live_brokers=[broker],
    )


def topic_state() -> UpdateMetadataRequest.UpdateMetadataTopicState:
    partition = UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=5,
        leader=1,
        leader_epoch=3,
        isr=[1],
        zk_version=3,
        replicas=[1],
    )
    return UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name="there", topic_id=b"\1" * 16, partition_states=[partition]
    )


def ends_of(topic: str) -> ListOffsetsRequest:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    partition = wanted.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[wanted(name=topic, partitions=[partition])])


def records_for(topic: str) -> ProduceRequest:
    wanted = ProduceRequest.TopicProduceData
    records = encode_batch([Record(None, b"value", 0)])
    data = wanted.PartitionProduceData(index=0, records=bytes(records))
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[wanted(name=topic, partition_data=[data])]
    )


def records_of(topic: str) -> FetchRequest:
    wanted = FetchRequest.FetchTopic
    partition = wanted.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[wanted(topic=topic, partitions=[partition])],
    )


def offset_for(topic: str) -> OffsetCommitRequest:
    wanted = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = wanted.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(group_id="g", topics=[wanted(name=topic, partitions=[partition])])


@pytest.mark.parametrize("topics", [True, False])
def test_no_topic_is_unknown_before_the_controller_has_told_of_topics(
    make_cluster: ClusterMaker, zk: Any, topics: bool
) -> None:
    take_office(zk)
    if topics:
        assignment = {"version": 3, "partitions": {"0": [1]}, "topic_id": "AQEBAQEBAQEBAQEBAQEBAQ"}
        zk.create(f"{paths.TOPICS}/there", json.dumps(assignment).encode(), makepath=True)
    cluster = make_cluster(1, known=False)
    client, controller = Wire(cluster[1].port, LIMIT_S), Wire(cluster[1].port, LIMIT_S)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask(metadata_request("there"), METADATA_VERSION))
    )
    asking.start()
    told = controller.ask(update(cluster, zk, []), UPDATE_METADATA_VERSION)
    assert told.error_code == 0
    other = Wire(cluster[1].port, LIMIT_S)
    # NOT_LEADER_OR_FOLLOWER: ask for metadata again; librdkafka takes 3 for ListOffsets' last word
    code = 6 if topics else 3
    (listed,) = other.ask(ends_of("there"), LIST_OFFSETS_VERSION).topics[0].partitions
    assert listed.error_code == code
    (produced,) = other.ask(records_for("there"), PRODUCE_VERSION).responses[0].partition_responses
    assert produced.error_code == code
    (fetched,) = other.ask(records_of("there"), FETCH_VERSION).responses[0].partitions
    assert fetched.error_code == code
    (committed,) = other.ask(offset_for("there"), OFFSET_COMMIT_VERSION).topics[0].partitions
    assert committed.error_code == (14 if topics else 3)  # COORDINATOR_LOAD_IN_PROGRESS
    other.close()
    if topics:
        asking.join(HELD_S)
        assert answers == []
        controller.ask(update(cluster, zk, [topic_state()]), UPDATE_METADATA_VERSION)
    asking.join(30)
    (topic,) = answers[0].topics
    assert (topic.error_code, len(topic.partitions)) == ((0, 1) if topics else (3, 0))
    client.close()
    controller.close()


def test_a_broker_that_stops_answers_whoever_waits_for_the_topics(
    make_cluster: ClusterMaker, zk: Any
) -> None:
    """It closes its connections only then, and stops without their whole limits."""
    take_office(zk)
    assignment = {"version": 3, "partitions": {"0": [1]}, "topic_id": "AQEBAQEBAQEBAQEBAQEBAQ"}
    zk.create(f"{paths.TOPICS}/there", json.dumps(assignment).encode(), makepath=True)
    cluster = make_cluster(1, known=False, controlled_shutdown_enable="false")
    client = Wire(cluster[1].port, LIMIT_S)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask(metadata_request("there"), METADATA_VERSION))
    )
    asking.start()
    asking.join(HELD_S)
    assert answers == []
    assert cluster[1].terminate() == 0
    asking.join(30)
    (topic,) = answers[0].topics
    assert (topic.error_code, len(topic.partitions)) == (5, 0)  # LEADER_NOT_AVAILABLE: ask again
    client.close()


def test_a_killed_broker_is_not_there_until_its_old_session_ends(
    make_cluster: ClusterMaker,
) -> None:
    """Its first answers are right: until then clients would take an empty picture for the cluster."""
    cluster = make_cluster(1, zookeeper_session_timeout_ms="12000")
    made = CreateTopicsRequest.CreatableTopic(name="there", num_partitions=2, replication_factor=1)
    wire = Wire(cluster[1].port, LIMIT_S)
    wire.ask(CreateTopicsRequest(topics=[made], timeout_ms=20_000), CREATE_TOPICS_VERSION)
    wire.close()
    cluster[1].kill()
    cluster[1].launch()
    refused, end_s = 0, time.monotonic() + 90
    while time.monotonic() < end_s:
        try:
            answer = wire.ask(metadata_request("there"), METADATA_VERSION)
            break
        except OSError:
            refused += 1
            time.sleep(0.02)
    assert refused > 0
    (topic,) = answer.topics
    assert (topic.error_code, len(topic.partitions)) == (0, 2)
    assert [broker.node_id for broker in answer.brokers] == [1]
    (listed,) = wire.ask(ends_of("there"), LIST_OFFSETS_VERSION).topics[0].partitions
    assert listed.error_code in (0, 6)
    wire.close()
    cluster[1].wait_ready()
    assert "waiting for the session of another broker" in cluster[1].log()
