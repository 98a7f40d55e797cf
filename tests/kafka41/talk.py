"""Talking to a broker about groups of the newer protocol, and what was said as plain data.

A case is a function of a `Talk`.  Every answer to `ask` is kept in `said`, without what differs from
one broker or run to the next: topic ids, ids that a broker made up, the order of sets.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafkalike.messages.catalog import response_class
from kafkalike.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
)
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kafkalike.protocol.declaration import fields_of
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.primitives import UUID
from kafkalike.protocol.struct import Request, Struct
from kafkalike.types import ZERO_UUID
from tests.differential.case import frame
from tests.differential.wire import Connection

LIMIT_S: Final = 30.0
PAUSE_S: Final = 0.05
UNSERVED: Final = (14, 15, 16)
KAFKA_UUID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}")
DASHED_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNORDERED: Final = (
    "members",
    "topic_partitions",
    "topics",
    "groups",
    "results",
    "partitions",
    "subscribed_topic_names",
)
IDS: Final = ("member_id", "leader", "error_message")
"""Where an id that a broker made up may stand."""
Parts = Mapping[str, Iterable[int]]
_HeartbeatTopic = ConsumerGroupHeartbeatRequest.TopicPartitions


class Talk:
    """One case with one broker.

    `pause_s` is for what cannot be seen from outside: that the original's coordinator has heard of a
    new topic.
    """

    def __init__(self, port: int, pause_s: float = 0.0) -> None:
        self._port = port
        self._pause_s = pause_s
        self._connections: dict[str, Connection] = {}
        self._topics: dict[bytes, str] = {}
        self._ids: dict[str, str] = {}
        self.said: list[Any] = []
        self._tellers: dict[str, list[Any]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- asking --------------------------------------------------------------------------------

    def ask(self, request: Request, version: int, *, client_id: str = "talk") -> Any:
        """One request; its answer is kept."""
        answer = self.quietly(request, version, client_id=client_id)
        self.said.append(self._plain(answer, version))
        return answer

    def quietly(
        self, request: Request, version: int, *, client_id: str = "talk", via: str = ""
    ) -> Any:
        """One request whose answer is nobody's business."""
        self.send(request, version, client_id=client_id, via=via)
        return self.receive(request, version, via=via)

    def send(
        self, request: Request, version: int, *, client_id: str = "talk", via: str = ""
    ) -> None:
        """Without waiting for the answer; `via` names a connection."""
        connection = self._connections.get(via)
        if connection is None:
            connection = self._connections[via] = Connection(self._port)
        connection.send(frame(request, version, client_id))

    def receive(self, request: Request, version: int, *, via: str, keep: bool = False) -> Any:
        """The answer to what was sent."""
        received = self._connections[via].receive(LIMIT_S)
        _, position = decode_response_header(received, request.api_key, version)
        answer = response_class(request.api_key).decode(received, version, position)
        if keep:
            self.said.append(self._plain(answer, version))
        return answer

    def until(self, ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
        """Ask quietly until something holds, at most for some seconds; the last answer."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            answer = ask()
            if holds(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_S)

    # -- groups --------------------------------------------------------------------------------

    def ready(self, group: str) -> None:
        """The group's partition is served."""
        find = FindCoordinatorRequest(coordinator_keys=[group])
        self.until(
            lambda: self.quietly(find, 4), lambda found: found.coordinators[0].error_code == 0
        )
        describe = ConsumerGroupDescribeRequest(group_ids=[group])
        self.until(
            lambda: self.quietly(describe, 0),
            lambda found: found.groups[0].error_code not in UNSERVED,
        )

    def heartbeat(
        self,
        group: str,
        member: str,
        epoch: int,
        *,
        version: int = 1,
        topics: list[str] | None = None,
        owned: Parts | None = None,
        timeout_ms: int = -1,
        keep: bool = True,
        **more: Any,
    ) -> Any:
        """ConsumerGroupHeartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=timeout_ms,
            subscribed_topic_names=topics,
            topic_partitions=None
            if owned is None
            else [
                _HeartbeatTopic(topic_id=self.topic_id(topic), partitions=list(partitions))
                for topic, partitions in owned.items()
            ],
            **more,
        )
        return (self.ask if keep else self.quietly)(request, version)

    def join(self, group: str, member: str, *topics: str, **more: Any) -> Any:
        """A member's first heartbeat."""
        more = {"timeout_ms": 60_000, "owned": {}, "topics": list(topics), **more}
        return self.heartbeat(group, member, 0, **more)

    def describe(self, *groups: str, version: int = 1) -> Any:
        return self.ask(ConsumerGroupDescribeRequest(group_ids=list(groups)), version)

    def outline(self, group: str) -> None:
        """State, epochs and subscriptions of a group, not who owns what: where several topics are
        dealt out, that depends on their ids."""
        answer = self.quietly(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]
        epochs = [answer.group_state, answer.group_epoch, answer.assignment_epoch]
        members = sorted(
            [m.member_id, m.member_epoch, m.subscribed_topic_names, m.subscribed_topic_regex]
            for m in answer.members
        )
        self.said.append([*epochs, members])

    # -- topics --------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes:
        return next((i for i, known in self._topics.items() if known == name), b"\7" * 16)

    def topic(self, name: str, partitions: int = 1) -> None:
        create = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[create(name=name, num_partitions=partitions, replication_factor=1)],
            timeout_ms=30_000,
        )
        answer = self.until(
            lambda: self.quietly(request, 7), lambda a: a.topics[0].error_code not in (38, 41)
        )
        assert answer.topics[0].error_code == 0, answer
        self._topics[bytes(answer.topics[0].topic_id)] = name
        asked = [MetadataRequest.MetadataRequestTopic(name=name)]
        self.until(
            lambda: self.quietly(MetadataRequest(topics=asked), 12),
            lambda a: (
                len(a.topics[0].partitions) == partitions
                and all(p.leader_id >= 0 for p in a.topics[0].partitions)
            ),
        )
        time.sleep(self._pause_s)

    def grow(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=partitions, assignments=None
        )
        answer = self.quietly(CreatePartitionsRequest(topics=[topic], timeout_ms=30_000), 3)
        assert answer.results[0].error_code == 0, answer

    def delete_topic(self, name: str) -> None:
        self.quietly(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)

    # -- as plain data -------------------------------------------------------------------------

    def _plain(self, struct: Struct, version: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in fields_of(type(struct)) or fields_of(type(struct).__bases__[0]):
            value = getattr(struct, field.name)
            if not field.present(version) or value == field.default or field.name.startswith("thr"):
                continue
            found[field.name] = self._value(field.name, field.wire, value, version)
        return found

    def _value(self, name: str, wire: Any, value: Any, version: int) -> Any:
        if isinstance(value, list):
            items = [self._value(name, wire, item, version) for item in value]
            return sorted(items, key=repr) if name in UNORDERED else items
        if isinstance(value, Struct):
            return self._plain(value, version)
        if wire is UUID:
            return self._topics.get(bytes(value), "zero" if value == ZERO_UUID else "unknown")
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex()
        if isinstance(value, str) and name in IDS:
            if KAFKA_UUID.fullmatch(value):
                return self._ids.setdefault(value, f"uuid-{len(self._ids) + 1}")
            if name == "error_message":
                value = KAFKA_UUID.sub(lambda found: self._ids.get(found[0], found[0]), value)
            return DASHED_UUID.sub(
                lambda found: self._ids.setdefault(found[0], f"uuid-{len(self._ids) + 1}"), value
            )
        return value
