"""A member of a consumer group is killed; the survivor takes over from the last commit."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer

MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": sys.argv[3], "session.timeout.ms": 1500,
    "heartbeat.interval.ms": 300, "auto.offset.reset": "earliest", "log_level": 0,
})
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.2)
"""


@pytest.mark.kafkalike(brokers=3, config={"group.min.session.timeout.ms": 500})
def test_a_member_dies(kafkalike_cluster, recording_producer):
    cluster = kafkalike_cluster
    cluster.create_topic("work", partitions=4)
    producer = recording_producer(cluster.bootstrap_servers, enable_idempotence=True)
    values = {b"%03d" % number for number in range(200)}
    for value in sorted(values):
        producer.send("work", value)
    producer.wait()

    dying = subprocess.Popen([sys.executable, "-c", MEMBER, cluster.bootstrap_servers, "work", "g"])
    cluster.wait_group("g", members=1)
    survivor = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 1500,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    assigned = []
    survivor.subscribe(["work"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    deadline = time.monotonic() + 30
    while assigned[-1:] != [2]:
        assert time.monotonic() < deadline, "the group was not shared"
        survivor.poll(0.1)

    dying.kill()
    dying.wait()
    produced = {b"after-%03d" % number for number in range(50)}
    for value in sorted(produced):
        producer.send("work", value)
    producer.wait()
    seen = set()
    while not produced <= seen:
        assert time.monotonic() < deadline, f"{len(produced - seen)} did not arrive"
        message = survivor.poll(0.1)
        if message is not None and message.error() is None:
            seen.add(message.value())
    assert assigned[-1] == 4
    assert cluster.wait_group("g", members=1)["state"] == "Stable"
    survivor.close()
