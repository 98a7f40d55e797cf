"""kafka-python against a real cluster, and through the loss of a broker."""

from kafka import KafkaConsumer, KafkaProducer


def test_orders_survive_their_leader(kafkalike):
    topic = kafkalike.topic(partitions=1)
    producer = KafkaProducer(
        bootstrap_servers=kafkalike.bootstrap_servers, acks="all", enable_idempotence=True
    )
    producer.send(topic, b"before").get(timeout=30)
    leader = kafkalike.leader(topic)
    kafkalike.kill(leader, at_once=True)
    kafkalike.wait_leader(topic, other_than=leader)
    producer.send(topic, b"after").get(timeout=30)
    producer.close()

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafkalike.bootstrap_servers,
        group_id=kafkalike.unique("group"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    values = [next(consumer).value for _ in range(2)]
    consumer.close()
    assert values == [b"before", b"after"]
