"""A producer of a chaos run as a process: `python -m tests.chaos.producers KIND NAME ...`.

It sends numbered records to each partition with acks=all and the retries its library has by default, a
few at a time, writes down what became of each, and ends on SIGTERM once nothing is open any more.

confluent          librdkafka, idempotent
kafka-python       kafka-python, idempotent
kafka-python-plain the same without, one request in flight (so it may duplicate, but not reorder)
"""

import argparse
import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.chaos.ending import Ending
from tests.chaos.histories import History, value_of

KINDS: Final = ("confluent", "kafka-python", "kafka-python-plain")
OPEN_LIMIT: Final = 200
"""Records of a partition without an outcome."""

END_LIMIT_S: Final = 150.0
STANDS_STILL_S: Final = 10.0
"""A library that has not come back so long after the time limit of the call waits for no broker.  (Seen
once with librdkafka 2.16: one record open, which the broker had, and `flush(150)` for good.)"""
DELIVERY_TIMEOUT_MS: Final = 120_000

STAY_WITH_KNOWN_BROKERS: Final = {"metadata.recovery.strategy": "none"}
"""For librdkafka: when its last broker is gone it throws away all it knows and starts from bootstrap
addresses.  In 2.16 its main thread may stand still for good at that, and asks nobody any more."""

Report = Callable[[int, int, int, str | None], None]
"""(partition, sequence, offset, problem)"""


class Confluent:
    def __init__(self, bootstrap: str, topic: str, report: Report) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._report = report
        self._fatal: list[str] = []
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "topic.metadata.refresh.interval.ms": 5000,
                **STAY_WITH_KNOWN_BROKERS,
                "error_cb": self._error,
            }
        )

    def _error(self, error: Any) -> None:
        if error.fatal():
            self._fatal.append(str(error))

    def send(self, partition: int, sequence: int, value: bytes) -> None:
        def done(error: Any, message: Any) -> None:
            # None: a duplicate, of which the broker no longer knows where it is
            offset = None if error is not None else message.offset()
            offset = -1 if offset is None else offset
            self._report(partition, sequence, offset, None if error is None else str(error))

        self._producer.produce(self._topic, value=value, partition=partition, on_delivery=done)

    def poll(self) -> None:
        self._producer.poll(0)

    def problem(self) -> str | None:
        return self._fatal[0] if self._fatal else None

    def close(self, limit_s: float) -> None:
        self._producer.flush(limit_s)


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str, report: Report, *, idempotent: bool) -> None:
        from kafka import KafkaProducer

        more = {} if idempotent else {"max_in_flight_requests_per_connection": 1}
        self._topic = topic
        self._report = report
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=idempotent,
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            metadata_max_age_ms=5000,
            reconnect_backoff_max_ms=2000,
            **more,
        )

    def send(self, partition: int, sequence: int, value: bytes) -> None:
        future = self._producer.send(self._topic, value=value, partition=partition)
        future.add_callback(lambda sent: self._report(partition, sequence, sent.offset, None))
        future.add_errback(lambda error: self._report(partition, sequence, -1, repr(error)))

    def poll(self) -> None:
        """Its thread does that."""

    def problem(self) -> str | None:
        return None

    def close(self, limit_s: float) -> None:
        self._producer.close(timeout=limit_s)


def make(kind: str, bootstrap: str, topic: str, report: Report) -> Any:
    if kind == "confluent":
        return Confluent(bootstrap, topic, report)
    return KafkaPython(bootstrap, topic, report, idempotent=kind == "kafka-python")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="records per second in all")
    parser.add_argument("--history", type=Path, required=True)
    args = parser.parse_args(arguments)
    ending = Ending()
    history = History(args.history)
    lock = threading.Lock()
    open_now = [0] * args.partitions

    def report(partition: int, sequence: int, offset: int, problem: str | None) -> None:
        with lock:
            open_now[partition] -= 1
        if problem is None:
            history.add("A", partition, offset, sequence)
        else:
            history.add("F", partition, sequence, problem)

    producer = make(args.kind, args.bootstrap, args.topic, report)
    next_sequence = [0] * args.partitions
    partition = 0
    due_s = time.monotonic()
    while not ending.is_set():
        producer.poll()
        problem = producer.problem()
        if problem is not None:
            history.add("X", problem)
            break
        now_s = time.monotonic()
        if now_s < due_s:
            time.sleep(min(0.02, due_s - now_s))
            continue
        due_s = max(due_s + 1 / args.rate, now_s - 0.5)
        partition = (partition + 1) % args.partitions
        with lock:
            if open_now[partition] >= OPEN_LIMIT:
                continue
            open_now[partition] += 1
        sequence = next_sequence[partition]
        next_sequence[partition] += 1
        try:
            producer.send(partition, sequence, value_of(args.name, partition, sequence))
        except Exception as error:  # what a library raises before it took the record
            report(partition, sequence, -1, f"not sent: {error!r}")
    history.add("C", f"{END_LIMIT_S:g}")
    faulthandler.dump_traceback_later(END_LIMIT_S + STANDS_STILL_S, exit=True)
    deadline_s = time.monotonic() + END_LIMIT_S
    producer.close(END_LIMIT_S)
    faulthandler.cancel_dump_traceback_later()
    while sum(open_now) and time.monotonic() < deadline_s:
        producer.poll()
        time.sleep(0.02)
    left = sum(open_now)
    if left:
        history.add("X", f"{left} records without an outcome at the end")
    else:
        history.add("E")
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
