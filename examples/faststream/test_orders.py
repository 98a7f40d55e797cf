"""FastStream against a real cluster: the application under test, not its test broker."""

import asyncio

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker


def test_every_order_is_answered(kafkalike):
    asyncio.run(orders(kafkalike, kafkalike.topic(), kafkalike.topic()))


async def orders(kafkalike, incoming, outgoing):
    broker = KafkaBroker(kafkalike.bootstrap_servers.split(","), acks="all", logger=None)
    answers = asyncio.Queue()
    # An order is done when it was answered: its offset is committed after that, not by a timer.
    reading = {"auto_offset_reset": "earliest", "ack_policy": AckPolicy.ACK}

    @broker.subscriber(incoming, group_id=kafkalike.unique("app"), **reading)
    @broker.publisher(outgoing)
    async def take(order: str) -> str:
        return f"took {order}"

    @broker.subscriber(outgoing, group_id=kafkalike.unique("test"), **reading)
    async def note(answer: str) -> None:
        await answers.put(answer)

    app = FastStream(broker)
    await app.start()
    await broker.publish("1", incoming)
    assert await asyncio.wait_for(answers.get(), 30) == "took 1"

    leader = await asyncio.to_thread(kafkalike.leader, incoming)
    await asyncio.to_thread(kafkalike.kill, leader, at_once=True)
    await asyncio.to_thread(kafkalike.wait_leader, incoming, other_than=leader)
    await broker.publish("2", incoming)
    assert await asyncio.wait_for(answers.get(), 60) == "took 2"
    await app.stop()
