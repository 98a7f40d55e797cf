"""The leader dies in the middle of producing; nothing acknowledged is lost, nothing is doubled."""

import pytest


def test_the_leader_is_killed_while_producing(kafkalike, recording_producer, read_all):
    topic = kafkalike.topic()
    producer = recording_producer(kafkalike.bootstrap_servers, enable_idempotence=True)
    values = [b"%04d" % number for number in range(600)]
    for number, value in enumerate(values):
        if number == 200:
            kafkalike.kill(kafkalike.leader(topic), at_once=True)
        producer.send(topic, value)
    producer.wait()
    assert producer.delivered == values
    assert read_all(kafkalike.bootstrap_servers, topic, len(values)) == values


@pytest.mark.kafkalike(brokers=3, config={"zookeeper.session.timeout.ms": 2000})
def test_the_leader_is_frozen_while_producing(kafkalike_cluster, recording_producer, read_all):
    """As a long garbage collection or a stuck disk would: it comes back and thinks it still leads."""
    cluster, topic = kafkalike_cluster, "orders"
    cluster.create_topic(topic)
    producer = recording_producer(
        cluster.bootstrap_servers, enable_idempotence=True, socket_timeout_ms=2000
    )
    producer.send(topic, b"before")
    producer.wait()
    leader = cluster.leader(topic)
    cluster.pause(leader)
    producer.send(topic, b"meanwhile")
    assert cluster.wait_leader(topic, other_than=leader) != leader
    producer.wait()
    cluster.resume(leader)
    producer.send(topic, b"after")
    producer.wait()
    cluster.wait_isr_full(topic)
    assert producer.delivered == [b"before", b"meanwhile", b"after"]
    assert read_all(cluster.bootstrap_servers, topic, 3) == producer.delivered
