"""One Metadata request to one broker, with nothing but the standard library."""

import contextlib
import io
import socket
import struct
from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """Metadata as one broker tells it."""

    brokers: dict[int, str]
    """Id -> HOST:PORT."""
    controller: int
    """-1 while it is unknown."""
    partitions: dict[int, tuple[int, int]]
    """Of the topic asked for: leader, and how many replicas are in sync; none while it is unknown."""


def ask_metadata(address: str, topic_name: str | None = None) -> Seen:
    """Metadata v1 of one topic or none, from this very broker.  Raises OSError, struct.error."""
    body = struct.pack(">hhih", 3, 1, 1, -1)
    if topic_name is None:
        body += struct.pack(">i", 0)
    else:
        body += struct.pack(f">ih{len(topic_name)}s", 1, len(topic_name), topic_name.encode())
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answer:
            data = io.BytesIO(answer.read(*struct.unpack(">i", answer.read(4))))

    def number(form: str) -> int:
        return int(struct.unpack(form, data.read(struct.calcsize(form)))[0])

    def text() -> str:
        return data.read(max(0, number(">h"))).decode()

    number(">i")  # correlation id
    brokers: dict[int, str] = {}
    for _ in range(number(">i")):
        broker_id, host, port_number = number(">i"), text(), number(">i")
        text()  # rack
        brokers[broker_id] = f"{host}:{port_number}"
    controller = number(">i")
    partitions: dict[int, tuple[int, int]] = {}
    for _ in range(number(">i")):
        number(">h")
        text()
        number(">b")
        for _ in range(number(">i")):
            error, index, leader = number(">h"), number(">i"), number(">i")
            data.read(4 * number(">i"))  # replicas
            in_sync = number(">i")
            data.read(4 * in_sync)
            if error == 0:
                partitions[index] = (leader, in_sync)
    return Seen(brokers, controller, partitions)


def knows(address: str, brokers: Set[int], controller: int | None = None) -> bool:
    """Whether the broker there answers and has been told of all these, and of that controller.

    A client of librdkafka that is told of no broker at all does not ask again for minutes; topics are
    made with the replicas that the controller's own metadata allows for.
    """
    with contextlib.suppress(OSError, struct.error):
        seen = ask_metadata(address)
        return brokers <= seen.brokers.keys() and controller in (None, seen.controller)
    return False
