"""Fakes for handler tests: a caller, a replica manager with scripted answers, a picky authorizer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from kafkalike.broker.auth.authorizer import Caller, Operation, ResourceType
from kafkalike.broker.handlers.request import RequestContext, Session
from kafkalike.broker.replica.values import AppendEntry, AppendResult
from kafkalike.protocol.headers import RequestHeader
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import TopicPartition
from tests.fakes import result_of

T = TypeVar("T")


def context(version: int, *, api_key: int = 0, client_id: str = "c") -> RequestContext:
    session = Session(
        listener="PLAINTEXT",
        security_protocol="PLAINTEXT",
        connection_id="1",
        client_host="127.0.0.1",
        client_port=5,
    )
    return RequestContext(RequestHeader(api_key, version, 1, client_id), session, 0.0)


def answer(result: Any) -> Any:
    """What a handler answered, when nothing was left to wait for."""
    if hasattr(result, "__await__"):
        return result_of(as_deferred(result))
    return result


class PickyAuthorizer:
    """Refuses the listed (operation, resource, name) and allows the rest; name None means any."""

    allows_everything = False

    def __init__(self, *refused: tuple[Operation, ResourceType, str | None]) -> None:
        self._refused = refused

    def allows(
        self, caller: Caller, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return not any(
            (operation, resource) == (o, r) and n in (None, name) for o, r, n in self._refused
        )

    def allows_any(self, caller: Caller, operation: Operation, resource: ResourceType) -> bool:
        return not any((operation, resource) == (o, r) for o, r, _ in self._refused)


@dataclass
class FakePartition:
    """The little that handlers look at in a hosted partition."""

    leader: int = 1
    leader_epoch: int = 3
    log: Any = None


@dataclass
class FakeReplicas:
    """Answers appends from a table of error codes; remembers what it was asked."""

    errors: Mapping[TopicPartition, int] = field(default_factory=dict)
    hosted: dict[TopicPartition, FakePartition] = field(default_factory=dict)
    waits: bool = False
    appended: list[AppendEntry] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    waiting: "list[Callable[[], None]]" = field(default_factory=list)

    def partition(self, topic_partition: TopicPartition) -> FakePartition | None:
        return self.hosted.get(topic_partition)

    def append(
        self, entries: Sequence[AppendEntry], **arguments: Any
    ) -> "list[AppendResult] | Deferred[list[AppendResult]]":
        self.appended.extend(entries)
        self.arguments = arguments
        results = [self._result(entry.topic_partition) for entry in entries]
        if not self.waits:
            return results
        done: Deferred[list[AppendResult]] = Deferred()
        self.waiting.append(lambda: done.callback(results))
        return done

    def _result(self, topic_partition: TopicPartition) -> AppendResult:
        code = self.errors.get(topic_partition, 0)
        if code:
            return AppendResult(topic_partition, error_code=code, error_message="why")
        return AppendResult(topic_partition, base_offset=40, log_start_offset=2)
