"""aiokafka: the cluster's verbs are plain calls, so they run in a thread beside the event loop."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def test_orders_survive_their_leader(kafkalike):
    asyncio.run(orders(kafkalike, kafkalike.topic()))


async def orders(kafkalike, topic):
    servers = kafkalike.bootstrap_servers
    async with AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True
    ) as producer:
        await producer.send_and_wait(topic, b"before")
        leader = await asyncio.to_thread(kafkalike.leader, topic)
        await asyncio.to_thread(kafkalike.kill, leader, at_once=True)
        await asyncio.to_thread(kafkalike.wait_leader, topic, other_than=leader)
        await producer.send_and_wait(topic, b"after")
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=kafkalike.unique("group"),
        auto_offset_reset="earliest",
    ) as consumer:
        values = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)]
    assert values == [b"before", b"after"]
