"""A consumer of a chaos run as a process: librdkafka reads every partition from its beginning.

A reader's position must never be refused, and what it has read must stay: it writes down both.

One refusal passes: a leader of the past that has just woken up does not know the epoch of what was
read since (as with Kafka), and librdkafka may ask it when it has forgotten the newer metadata.  The
reader goes on from where it was, and has to get to the end all the same.
"""

import argparse
import ctypes
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tests.chaos.histories import History, head_of
from tests.chaos.producers import STAY_WITH_KNOWN_BROKERS

PR_SET_PDEATHSIG: Final = 1
UNKNOWN_EPOCH: Final = "broker end offset is -1"
IDLE_ROUNDS: Final = 60
"""Of 0.2 s: longer than two refreshes of the metadata, which a partition whose leader has just moved
may have to wait for."""
REFUSALS: Final = ("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE", "_BAD_MSG")


def main(arguments: list[str]) -> int:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    args = parser.parse_args(arguments)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    refusals = {getattr(KafkaError, name) for name in REFUSALS if hasattr(KafkaError, name)}
    history = History(args.history)
    consumer: Any = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 5000,
            **STAY_WITH_KNOWN_BROKERS,
        }
    )
    consumer.assign([TopicPartition(args.topic, p, 0) for p in range(args.partitions)])
    position = [0] * args.partitions
    idle = 0
    while not ending.is_set() or idle < IDLE_ROUNDS:
        messages = consumer.consume(500, timeout=0.2)
        idle = 0 if messages else idle + 1
        for message in messages:
            error = message.error()
            if error is None:
                value = head_of(message.value() or b"")
                history.add("R", message.partition(), message.offset(), value)
                position[message.partition()] = message.offset() + 1
            elif error.code() in refusals and UNKNOWN_EPOCH in str(error):
                partition = message.partition()
                history.add("P", partition, str(error))
                consumer.seek(TopicPartition(args.topic, partition, position[partition]))
            elif error.code() in refusals:
                history.add("O", message.partition(), str(error))
    consumer.close()
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
