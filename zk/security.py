"""ACLs, SCRAM credentials and delegation tokens in ZooKeeper (reference: zookeeper 2.7, 2.8).

Names of operations, permissions and resource types are Kafka's Pascal-case words (`Read`,
`ClusterAction`, `Allow`, `TransactionalId`), as they stand in the znodes.
"""

import base64
import binascii
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalike.runtime.ports import Clock, Random
from kafkalike.runtime.tasks import sleep

from . import paths
from .client import (
    BadVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    NodeExists,
    NoNode,
    Op,
    ReadResult,
    SetData,
    ZkClient,
    ZkError,
    create_recursive,
    ensure_path,
    retrying,
)
from .configs import change_config, create_notification, read_config
from .election import write_once
from .payload import CorruptZnode, Fields, encode

RESOURCE_TYPES: Final = (
    "Topic",
    "Group",
    "Cluster",
    "TransactionalId",
    "DelegationToken",
    "User",
)
OPERATIONS: Final = (
    "Any",
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
)
PERMISSIONS: Final = ("Any", "Allow", "Deny")

UPDATE_ATTEMPTS: Final = 11
UPDATE_BACKOFF_MS: Final = 100
UPDATE_JITTER_MS: Final = 50

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class AclResource(NamedTuple):
    """What a set of ACLs is about: a resource by its name, or all whose name has a prefix."""

    type: str
    name: str
    prefixed: bool = False

    @property
    def path(self) -> str:
        return paths.acl_resource(self.type, self.name, prefixed=self.prefixed)


@dataclass(slots=True, frozen=True, order=True)
class AclEntry:
    """One rule: `principal` such as `User:a` or `User:*`, `host` an address or `*`."""

    principal: str
    permission: str
    operation: str
    host: str


class TooManyAclConflicts(Exception):
    """Others kept changing the ACLs of a resource, or the update could not be made."""


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """`/kafka-acl/<Type>/<name>`, in a fixed order."""
    return encode(
        {
            "acls": [
                {
                    "principal": e.principal,
                    "permissionType": e.permission,
                    "host": e.host,
                    "operation": e.operation,
                }
                for e in sorted(entries)
            ],
            "version": 1,
        }
    )


def decode_acls(data: bytes | None, path: str) -> frozenset[AclEntry]:
    """Empty data reads as no ACLs, as in Kafka."""
    if not data:
        return frozenset()
    fields = Fields.parse(data, path)
    version = fields.int32("version")
    if version != 1:
        raise fields.fail(f"'version' is {version}, expected 1")
    return frozenset(
        AclEntry(
            item.text("principal"),
            _word(item, "permissionType", PERMISSIONS),
            _word(item, "operation", OPERATIONS),
            item.text("host"),
        )
        for item in fields.objects("acls")
    )


def _word(fields: Fields, key: str, words: tuple[str, ...]) -> str:
    """One of Kafka's words, in any case, with or without underscores."""
    text = fields.text(key)
    plain = text.replace("_", "").lower()
    for word in words:
        if word.lower() == plain:
            return word
    raise fields.fail(f"{key!r} is {text!r}, expected one of {', '.join(words)}")


async def precreate_acls(zk: ZkClient) -> None:
    """The nodes that an authorizer makes sure of when it starts."""
    await ensure_path(zk, paths.ACL_CHANGES)
    await ensure_path(zk, paths.EXTENDED_ACL_CHANGES)
    for resource_type in RESOURCE_TYPES:
        await ensure_path(zk, paths.acl_resource_type(resource_type))
        await ensure_path(zk, paths.acl_resource_type(resource_type, prefixed=True))


async def read_acls(zk: ZkClient, resource: AclResource) -> tuple[frozenset[AclEntry], int | None]:
    """ACLs of a resource and the node's version; None when there is no node.

    Raises CorruptZnode.
    """
    try:
        data, stat = await retrying(zk, lambda: zk.get(resource.path))
    except NoNode:
        return frozenset(), None
    return decode_acls(data, resource.path), stat.version


async def read_all_acls(
    zk: ZkClient,
) -> dict[AclResource, frozenset[AclEntry] | CorruptZnode]:
    """All ACLs there are."""
    kinds = [(kind, prefixed) for prefixed in (False, True) for kind in RESOURCE_TYPES]
    parents = [GetChildren(paths.acl_resource_type(k, prefixed=p)) for k, p in kinds]
    answers = await retrying(zk, lambda: zk.multi_read(parents))
    resources: list[AclResource] = []
    for (kind, prefixed), names in zip(kinds, answers, strict=True):
        if isinstance(names, list):
            resources.extend(AclResource(kind, name, prefixed) for name in names)
        else:
            _accept_absent(names)
    ops = [GetData(resource.path) for resource in resources]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: dict[AclResource, frozenset[AclEntry] | CorruptZnode] = {}
    for resource, answer in zip(resources, answers, strict=True):
        if not isinstance(answer, tuple):
            _accept_absent(answer)
            continue
        try:
            found[resource] = decode_acls(answer[0], resource.path)
        except CorruptZnode as error:
            found[resource] = error
    return found


def _accept_absent(answer: ReadResult) -> None:
    if isinstance(answer, ZkError) and not isinstance(answer, NoNode):
        raise answer


async def update_acls(
    zk: ZkClient,
    clock: Clock,
    random: Random,
    resource: AclResource,
    change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
) -> frozenset[AclEntry]:
    """Apply `change` to the ACLs of a resource and, if it changed them, tell all brokers.

    `change` may be called several times.  An empty outcome deletes the node.  Returns the outcome.
    Raises TooManyAclConflicts after 11 attempts.
    """
    path = resource.path
    for attempt in range(UPDATE_ATTEMPTS):
        if attempt:
            delay_ms = UPDATE_BACKOFF_MS + random.randrange(UPDATE_JITTER_MS)
            await sleep(clock, delay_ms / 1000)
        before, version = await read_acls(zk, resource)
        after = change(before)
        if after == before:
            return after
        op: Op
        if version is None:
            op = Create(path, encode_acls(after))
        elif after:
            op = SetData(path, encode_acls(after), version)
        else:
            op = Delete(path, version)
        try:
            await write_once(zk, [op])
        except NoNode:
            if version is None:
                await ensure_path(zk, path.rpartition("/")[0])
            continue
        except (BadVersion, NodeExists):
            continue
        await notify_acl_change(zk, resource)
        return after
    raise TooManyAclConflicts(f"ACLs of {path} changed under {UPDATE_ATTEMPTS} attempts to write")


async def notify_acl_change(zk: ZkClient, resource: AclResource) -> None:
    """Tell every broker to read the ACLs of a resource again."""
    kind = _enum_name(resource.type)
    if resource.prefixed:
        prefix = f"{paths.EXTENDED_ACL_CHANGES}/{paths.ACL_CHANGE_PREFIX}"
        data = encode(
            {
                "version": 1,
                "resourceType": kind,
                "name": resource.name,
                "patternType": "PREFIXED",
            }
        )
    else:
        prefix = f"{paths.ACL_CHANGES}/{paths.ACL_CHANGE_PREFIX}"
        data = f"{kind}:{resource.name}".encode()
    await create_notification(zk, prefix, data)


def decode_acl_change(data: bytes | None, path: str) -> AclResource:
    """The resource named by a notification of `/kafka-acl-changes` (literal patterns)."""
    text = (data or b"").decode("utf-8", "replace")
    kind, separator, name = text.partition(":")
    if not separator:
        raise CorruptZnode(path, f"expected TYPE:name, found {text[:80]!r}")
    return AclResource(_resource_type(kind, path), name)


def decode_extended_acl_change(data: bytes | None, path: str) -> AclResource:
    """The resource named by a notification of `/kafka-acl-extended-changes` (prefixed patterns)."""
    fields = Fields.parse(data, path)
    pattern = fields.text("patternType")
    if pattern.upper() not in ("PREFIXED", "LITERAL"):
        raise fields.fail(f"'patternType' is {pattern!r}, expected PREFIXED")
    kind = _resource_type(fields.text("resourceType"), path)
    return AclResource(kind, fields.text("name"), pattern.upper() == "PREFIXED")


def _enum_name(resource_type: str) -> str:
    """`TransactionalId` as `TRANSACTIONAL_ID`."""
    return "".join(
        f"_{c}" if c.isupper() and index else c.upper() for index, c in enumerate(resource_type)
    )


def _resource_type(text: str, path: str) -> str:
    plain = text.replace("_", "").lower()
    for kind in RESOURCE_TYPES:
        if kind.lower() == plain:
            return kind
    raise CorruptZnode(path, f"unknown resource type {text!r}")


@dataclass(slots=True, frozen=True)
class ScramCredential:
    """What a broker keeps of a password for one mechanism (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def encode(self) -> str:
        """The config value of a user entity."""

        def b64(raw: bytes) -> str:
            return base64.b64encode(raw).decode("ascii")

        return (
            f"salt={b64(self.salt)},stored_key={b64(self.stored_key)},"
            f"server_key={b64(self.server_key)},iterations={self.iterations}"
        )

    @staticmethod
    def decode(text: str) -> "ScramCredential":
        """Raises ValueError, which does not show the credential."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if set(parts) != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("SCRAM credential: expected salt, stored_key, server_key, iterations")
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[key], validate=True)
                for key in ("salt", "stored_key", "server_key")
            )
        except binascii.Error as error:
            raise ValueError("SCRAM credential: a field is not base64") from error
        if not parts["iterations"].isascii() or not parts["iterations"].isdigit():
            raise ValueError("SCRAM credential: iterations is no number")
        return ScramCredential(salt, stored_key, server_key, int(parts["iterations"][:10]))


def scram_credentials(config: Mapping[str, str]) -> dict[str, ScramCredential]:
    """The credentials in a user entity's config, by mechanism.  Raises ValueError."""
    return {
        mechanism: ScramCredential.decode(config[mechanism])
        for mechanism in SCRAM_MECHANISMS
        if mechanism in config
    }


async def alter_scram(
    zk: ZkClient, user: str, changes: Mapping[str, ScramCredential | None]
) -> None:
    """Set (or, with None, remove) credentials of a user by mechanism and tell all brokers.

    `user` is the plain name.  Other settings of the user stay.  Raises ControllerMoved.
    """
    entity_path = f"users/{paths.sanitize(user)}"
    config = await read_config(zk, entity_path)
    for mechanism, credential in changes.items():
        if credential is None:
            config.pop(mechanism, None)
        else:
            config[mechanism] = credential.encode()
    await change_config(zk, entity_path, config)


@dataclass(slots=True, frozen=True)
class DelegationToken:
    """`/delegation_token/tokens/<id>`, version 3; the HMAC follows from id and master key."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def encode(self) -> bytes:
        return encode(
            {
                "version": 3,
                "owner": _sanitize_principal(self.owner),
                "tokenRequester": _sanitize_principal(self.requester),
                "renewers": [_sanitize_principal(renewer) for renewer in self.renewers],
                "issueTimestamp": self.issue_ms,
                "maxTimestamp": self.max_ms,
                "expiryTimestamp": self.expiry_ms,
                "tokenId": self.token_id,
            }
        )

    @staticmethod
    def decode(data: bytes | None, path: str) -> "DelegationToken":
        fields = Fields.parse(data, path)
        version = fields.int32("version")
        if not 1 <= version <= 3:
            raise fields.fail(f"'version' is {version}, expected 1 to 3")
        owner = fields.text("owner")
        return DelegationToken(
            fields.text("tokenId"),
            paths.desanitize(owner),
            paths.desanitize(fields.text("tokenRequester", owner)),
            tuple(paths.desanitize(renewer) for renewer in fields.texts("renewers")),
            fields.int64("issueTimestamp"),
            fields.int64("maxTimestamp"),
            fields.int64("expiryTimestamp"),
        )


def _sanitize_principal(principal: str) -> str:
    kind, separator, name = principal.partition(":")
    return f"{kind}{separator}{paths.sanitize(name)}"


async def precreate_tokens(zk: ZkClient) -> None:
    """The parents that a broker with delegation tokens enabled makes sure of."""
    await ensure_path(zk, paths.DELEGATION_TOKENS)
    await ensure_path(zk, paths.DELEGATION_TOKEN_CHANGES)


async def read_tokens(zk: ZkClient) -> dict[str, DelegationToken | CorruptZnode]:
    """All delegation tokens by id."""
    try:
        names, _ = await retrying(zk, lambda: zk.get_children(paths.DELEGATION_TOKENS))
    except NoNode:
        return {}
    ops = [GetData(paths.delegation_token(name)) for name in names]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: dict[str, DelegationToken | CorruptZnode] = {}
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, tuple):
            _accept_absent(answer)
            continue
        try:
            found[name] = DelegationToken.decode(answer[0], paths.delegation_token(name))
        except CorruptZnode as error:
            found[name] = error
    return found


async def read_token(zk: ZkClient, token_id: str) -> DelegationToken | None:
    """One token, None when it is gone.  Raises CorruptZnode."""
    path = paths.delegation_token(token_id)
    try:
        data, _ = await retrying(zk, lambda: zk.get(path))
    except NoNode:
        return None
    return DelegationToken.decode(data, path)


async def write_token(zk: ZkClient, token: DelegationToken) -> None:
    """Create or replace a token and tell all brokers; the last writer wins."""
    path = paths.delegation_token(token.token_id)
    data = token.encode()
    while True:
        try:
            await retrying(zk, lambda: zk.set(path, data))
        except NoNode:
            try:
                await create_recursive(zk, path, data)
            except NodeExists:
                continue
        break
    await notify_token_change(zk, token.token_id)


async def delete_token(zk: ZkClient, token_id: str) -> None:
    """Remove a token and tell all brokers; an absent one is fine."""
    with contextlib.suppress(NoNode):
        await retrying(zk, lambda: zk.delete(paths.delegation_token(token_id)))
    await notify_token_change(zk, token_id)


async def notify_token_change(zk: ZkClient, token_id: str) -> None:
    """Tell every broker to read a token again; the payload is the bare id."""
    prefix = f"{paths.DELEGATION_TOKEN_CHANGES}/{paths.TOKEN_CHANGE_PREFIX}"
    await create_notification(zk, prefix, token_id.encode())
