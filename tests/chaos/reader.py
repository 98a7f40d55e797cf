"""A consumer of a chaos run as a process: librdkafka reads every partition from its beginning.

A reader's position must never be refused, and what it has read must stay: it writes down both.

One refusal passes: a leader of the past that has just woken up does not know the epoch of what was
read since (as with Kafka), and librdkafka may ask it when it has forgotten the newer metadata.  The
reader goes on from where it was, and has to get to the end all the same.

On SIGTERM it reads on to the offsets that lie beside its history by then, see `write_marks`, and ends.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.chaos.ending import Ending
from tests.chaos.histories import History, head_of
from tests.chaos.producers import STAY_WITH_KNOWN_BROKERS

UNKNOWN_EPOCH: Final = "broker end offset is -1"
END_LIMIT_S: Final = 120.0
"""For reading on to the marks.  A leader that has just moved may have to wait for a refresh of the
metadata, a request on a connection that was cut for `socket.timeout.ms`, which is 60 s."""
REFUSALS: Final = ("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE", "_BAD_MSG")


def marks_path(history: Path) -> Path:
    return history.with_suffix(".marks")


def write_marks(history: Path, marks: Mapping[int, int]) -> None:
    """Tell the reader of that history where it has to get: partition -> offset."""
    marks_path(history).write_text(json.dumps(list(marks.items())))


def read_marks(history: Path) -> dict[int, int]:
    path = marks_path(history)
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main(arguments: list[str]) -> int:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    args = parser.parse_args(arguments)
    ending = Ending()
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
    marks: dict[int, int] | None = None
    deadline_s = 0.0
    while True:
        if ending.is_set():
            if marks is None:
                marks, deadline_s = read_marks(args.history), time.monotonic() + END_LIMIT_S
            if all(position[partition] >= mark for partition, mark in marks.items()):
                break
            if time.monotonic() >= deadline_s:
                break
        for message in consumer.consume(500, timeout=0.2):
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
