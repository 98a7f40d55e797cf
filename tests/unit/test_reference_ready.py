"""The wait for the original to be ready, against a broker that is told of itself late."""

import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

from tests.reference_kafka import STARTED, ReferenceKafka

HOST = b"127.0.0.1"


def answer(broker_ids: list[int]) -> bytes:
    brokers = b"".join(
        struct.pack(f">ih{len(HOST)}sih", broker_id, len(HOST), HOST, 9092, -1)
        for broker_id in broker_ids
    )
    body = struct.pack(">ii", 1, len(broker_ids)) + brokers + struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


class Process:
    def said(self) -> bytes:
        return STARTED

    def check(self, deadline: float) -> None:
        assert time.monotonic() < deadline


def test_ready_is_one_that_knows_itself_and_those_asked_for(tmp_path: Path) -> None:
    told: list[list[int]] = [[], [], [2], [1], [1, 2]]
    asked: list[list[int]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for broker_ids in told:
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    asked.append(broker_ids)
                    connection.sendall(answer(broker_ids))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        kafka: Any = ReferenceKafka(tmp_path)
        kafka.ports = {1: server.getsockname()[1]}
        kafka._brokers = {1: Process()}
        kafka.wait_ready(1)
        assert asked == told[:4]
        kafka.wait_ready(1, known={2})
        assert asked == told
        thread.join(10)
