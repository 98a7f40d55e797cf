"""Who may do what: the question every handler asks before it acts.

`PermissiveAuthorizer` is what a broker without `authorizer.class.name` uses: everything is allowed.
Handlers ask through the `Authorizer` protocol only.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

CLUSTER_NAME: Final = "kafka-cluster"
"""The one name of the Cluster resource."""

NOT_REQUESTED: Final = -(1 << 31)
"""Authorised-operations field when the client did not ask for it."""


class Operation(IntEnum):
    """Operations by their wire codes (reference: configs 7)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Resource kinds by their wire codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class Caller(Protocol):
    """Who asks: what `RequestContext` knows of the connection."""

    @property
    def principal(self) -> str:
        """`User:name`."""

    @property
    def client_host(self) -> str: ...


class Authorizer(Protocol):
    """Decides about one operation of one caller on one resource; synchronous, from memory."""

    allows_everything: bool
    """True lets the data path skip the questions."""

    def allows(
        self, caller: Caller, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether the caller may do `operation` on the resource called `name`."""

    def allows_any(self, caller: Caller, operation: Operation, resource: ResourceType) -> bool:
        """Whether the caller may do `operation` on at least one resource of this kind."""


class PermissiveAuthorizer:
    """Allows everything: no authorizer is configured."""

    allows_everything = True

    def allows(
        self, caller: Caller, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return True

    def allows_any(self, caller: Caller, operation: Operation, resource: ResourceType) -> bool:
        return True


def allows_cluster(authorizer: Authorizer, caller: Caller, operation: Operation) -> bool:
    """`allows` for the Cluster resource."""
    return authorizer.allows(caller, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def split_topics(
    authorizer: Authorizer, caller: Caller, operation: Operation, names: Iterable[str]
) -> tuple[list[str], list[str]]:
    """`names` in order, split into those allowed and those refused."""
    allowed: list[str] = []
    refused: list[str] = []
    for name in names:
        permitted = authorizer.allows(caller, operation, ResourceType.TOPIC, name)
        (allowed if permitted else refused).append(name)
    return allowed, refused


def authorized_operations(
    authorizer: Authorizer, caller: Caller, resource: ResourceType, name: str
) -> int:
    """The bit set (1 << operation code) of what the caller may do on a resource."""
    bits = 0
    for operation in SUPPORTED_OPERATIONS[resource]:
        if authorizer.allows(caller, operation, resource, name):
            bits |= 1 << operation
    return bits
