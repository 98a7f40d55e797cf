"""The language of the cases: what is sent, in which order, and what to compare of the answers.

A case is data.  Its `setup` makes topics and fills them; its `steps` are sent one after the other on
one connection (opened again where a broker closed it) and every answer is compared.  A message may
be a function of the `Names` known by then, for what only the broker knows: topic ids, session ids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from kafkalike.protocol.struct import Message, Request, Response
from kafkalike.types import ZERO_UUID

CLIENT_ID = "differential"
NEW_EPOCH = b""


class Tree(Protocol):
    """What the cluster keeps in ZooKeeper."""

    def broker_epoch(self, broker_id: int) -> int: ...

    def controller_epoch(self) -> int: ...

    def state(self, topic: str, partition: int = 0) -> Mapping[str, Any]:
        """`leader`, `leader_epoch`, `isr`, `controller_epoch` and `version` of the znode.

        Raises LookupError.
        """


class Names:
    """What was learned from the broker while a case runs."""

    def __init__(self, ports: Mapping[int, int], tree: Tree, dirs: Mapping[int, list[str]]) -> None:
        self.ports = ports
        self.tree = tree
        self.dirs = dirs
        """Log directories of each broker."""
        self.topic_ids: dict[str, bytes] = {}
        self.answers: list[Any] = []

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids.get(name, ZERO_UUID)

    @property
    def last(self) -> Any:
        """The last decoded answer of this case."""
        return self.answers[-1]


Sendable: TypeAlias = Message | Callable[[Names], Message]


@dataclass(slots=True, frozen=True)
class Ask:
    """One request.  `answered=False` sends it without waiting for anything.

    `until` asks again, at most for some seconds, until it holds for the answer.  `via` names another
    connection than the usual one; an answer that is not waited for is taken by a later `Await`.
    `to` is the broker, of several; broker 1 is the controller.
    """

    message: Sendable
    version: int
    client_id: str | None = CLIENT_ID
    answered: bool = True
    until: Callable[[Any], bool] | None = None
    via: str = ""
    to: int = 1


@dataclass(slots=True, frozen=True)
class Await:
    """The answer to what was last sent through `via` without waiting."""

    via: str
    to: int = 1


@dataclass(slots=True, frozen=True)
class Raw:
    """Bytes as they are.

    `answers` are the messages expected back, each with its version (None: the frame as it is).
    Then `after` finds out whether the connection lives: "probe" asks ApiVersions 0 on it,
    "finish" closes the sending half and reads to the end.
    """

    data: bytes | Callable[[Names], bytes]
    answers: Sequence[tuple[type[Response], int] | None] = ()
    after: str = "probe"


@dataclass(slots=True, frozen=True)
class Together:
    """Sent at once on one connection, and only then their answers are taken, one for each.

    For what has to be asked before something else has happened in the broker, however slow we are.
    """

    asks: Sequence[Ask]


Step: TypeAlias = Ask | Await | Raw | Together


@dataclass(slots=True, frozen=True)
class Topic:
    """A topic with records: for each partition what is appended, one request a batch.

    `replicas` of each partition, where there are several brokers; it is made once all are in sync.
    `NEW_EPOCH` among the batches: here the leader epoch grows.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    batches: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    replicas: Sequence[Sequence[int]] = ()

    @property
    def count(self) -> int:
        return len(self.replicas) or self.partitions


@dataclass(slots=True, frozen=True)
class Case:
    """`uses` are topics shared by many cases, which none of them changes.

    `unordered`: names of arrays whose order is left open by Kafka.  `content`: records are compared by
    what they say, as the bytes of a compressor differ.  `only`: names a prefix that topics
    of an answer must have to be compared, where an answer tells of all topics.  `whole_list`: the
    list of served APIs is compared, which elsewhere only has to be there.
    `differs`: the words of docs/differences.md that tell of a wanted difference.
    """

    name: str
    steps: Sequence[Step]
    setup: Sequence[Topic | Ask] = ()
    uses: Sequence[Topic] = ()
    cleanup: Sequence[Ask] = ()
    unordered: Sequence[str] = ()
    content: bool = False
    only: str = ""
    whole_list: bool = False
    differs: str = ""


def versions_of(message: type[Message]) -> range:
    return range(message.min_version, message.max_version + 1)


def response_of(request: type[Message]) -> type[Response]:
    from kafkalike.messages.catalog import response_class

    return response_class(request.api_key)


def frame(
    message: Request, version: int, client_id: str | None = CLIENT_ID, correlation_id: int = 1
) -> bytes:
    """A whole frame with its size, for `Raw`."""
    return sized(
        head(message.api_key, version, correlation_id, client_id) + message.encode(version)
    )


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def head(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request header; a null client id cannot be said with `encode_request_header`."""
    from kafkalike.protocol.headers import request_header_version

    kind = request_header_version(key, version)
    fixed = (
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + correlation_id.to_bytes(4, "big", signed=True)
    )
    if kind == 0:
        return fixed
    if client_id is None:
        fixed += b"\xff\xff"
    else:
        text = client_id.encode()
        fixed += len(text).to_bytes(2, "big") + text
    return fixed + b"\0" if kind == 2 else fixed
