"""A lost acknowledgement makes a producer send again; idempotence makes the broker see that."""

import pytest

from kafkalike.testing import DISCONNECT


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_acknowledgement_is_lost(kafkalike, idempotent, recording_producer, read_all):
    topic = kafkalike.topic()
    producer = recording_producer(kafkalike.bootstrap_servers, enable_idempotence=idempotent)
    producer.send(topic, b"first")
    producer.wait()
    # The leader writes the next batch and replicates it; its answer never arrives.
    leader = kafkalike.leader(topic)
    kafkalike.push_errors("Produce", [DISCONNECT], broker=leader, applied=True, topic=topic)
    producer.send(topic, b"second")
    producer.wait()
    assert producer.delivered == [b"first", b"second"]
    assert kafkalike.pending_errors() == {}
    copies = 1 if idempotent else 2
    assert read_all(kafkalike.bootstrap_servers, topic, 1 + copies) == [
        b"first",
        *[b"second"] * copies,
    ]
