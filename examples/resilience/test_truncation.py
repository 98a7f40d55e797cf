"""An unclean election loses records that a consumer has read already; the consumer is told."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition


@pytest.mark.kafkalike(brokers=3)
def test_a_consumer_that_is_ahead_hears_of_it(kafkalike_cluster, recording_producer):
    cluster = kafkalike_cluster
    cluster.create_topic("t", assignment=[[1, 2]], config={"min.insync.replicas": 1})
    producer = recording_producer(cluster.bootstrap_servers)
    for number in range(10):
        producer.send("t", b"kept-%d" % number)
    producer.wait()

    # Broker 2 is away while ten more records are written, so only broker 1 has them.
    cluster.kill(2, at_once=True)
    cluster.wait_isr("t", [1])
    for number in range(10):
        producer.send("t", b"lost-%d" % number)
    producer.wait()

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 300,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    read = []
    deadline = time.monotonic() + 30
    while len(read) < 20:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.append(message.value())

    # Broker 1 dies, and broker 2 is made leader although it lacks records.
    cluster.kill(1, at_once=True)
    cluster.start_broker(2)
    assert cluster.elect("t", unclean=True) == 2
    assert cluster.end_offset("t") == 10
    for number in range(15):
        producer.send("t", b"new-%d" % number)
    producer.wait()

    error = None
    while error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
        assert time.monotonic() < deadline, f"the consumer was not told: {error}"
        message = consumer.poll(0.2)
        assert message is None or message.error() is not None, (
            "it went on as if nothing had happened"
        )
        error = message.error() if message is not None else error
    assert "truncation detected at offset 20" in error.str()
    consumer.close()

    # Broker 1 comes back, drops what it alone had, and both replicas agree.
    cluster.start_broker(1)
    cluster.wait_isr_full("t")
    cluster.move_leader("t", 1)
    assert cluster.end_offset("t") == 25
