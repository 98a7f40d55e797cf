"""DescribeConfigs v0-4, AlterConfigs v0-2, IncrementalAlterConfigs v0-1.

Resources are topics, brokers and loggers; groups too where the newer group protocol is switched on.

Promises: each resource succeeds or fails alone; a change is effective on every broker as soon as its
notification has been read there.  KIPs: 133, 226 (dynamic brokers), 339, 412 (loggers), 569.
Differs from Kafka: one resource twice in AlterConfigs is answered with INVALID_REQUEST for both
instead of never; documentation names the type only; loggers are those of this program.
Reference: broker-errors 8, configs 2, observed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from kafkalike.config import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_topic,
)
from kafkalike.errors import (
    NONE,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from kafkalike.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalike.types import java_hash

from ..auth.authorizer import Authorizer, Operation, ResourceType, allows_cluster
from ..cluster.awaiting import FirstUpdate
from ..cluster.config_admin import AlterOperation, ConfigAdmin, ConfigChange
from ..cluster.dynamic_config import DynamicConfig
from ..cluster.loggers import Loggers
from ..cluster.metadata_cache import MetadataCache
from ..cluster.topic_names import topic_name_problem
from ..coordinator.group_settings import GroupConfigs
from .request import RequestContext, Route, message_of, route

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
GROUP: Final = 32
"""Resource types by their wire codes."""

SMALLEST_TABLE: Final = 16
"""Buckets of an empty hash table of the original; they double at three quarters full."""

_Described = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Described.DescribeConfigsResourceResult


class _Named(Protocol):
    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", bound=_Named)
_Result = TypeVar("_Result")


class ConfigsApi:
    """Shows and changes the configuration of topics, brokers and loggers."""

    def __init__(
        self,
        admin: ConfigAdmin,
        config: DynamicConfig,
        metadata: MetadataCache,
        authorizer: Authorizer,
        loggers: Loggers,
        groups: GroupConfigs | None = None,
        first_update: FirstUpdate | None = None,
    ) -> None:
        """`groups` where settings of groups are served; `first_update` holds back what is said of
        topics until this broker knows them."""
        self._admin = admin
        self._config = config
        self._metadata = metadata
        self._authorizer = authorizer
        self._loggers = loggers
        self._groups = groups
        self._first_update = first_update

    def routes(self) -> list[Route]:
        return [
            route(DescribeConfigsRequest, self.describe_configs),
            route(AlterConfigsRequest, self.alter_configs),
            route(IncrementalAlterConfigsRequest, self.incremental_alter_configs),
        ]

    async def _know_topics(self, resources: Sequence[_Named]) -> None:
        """A broker that has just started need not know of the topics yet."""
        if self._first_update is not None and any(
            each.resource_type == TOPIC and not self._metadata.has_topic(each.resource_name)
            for each in resources
        ):
            wait = self._first_update.wait()
            if wait is not None:
                await wait

    # -- describe ------------------------------------------------------------------------------

    async def describe_configs(
        self, request: DescribeConfigsRequest, ctx: RequestContext
    ) -> DescribeConfigsResponse:
        response = DescribeConfigsResponse()
        await self._know_topics(request.resources)
        for resource in request.resources:
            result = _Described(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            response.results.append(result)
            try:
                self._authorize(ctx, Operation.DESCRIBE_CONFIGS, resource)
                entries = await self._describe(resource.resource_type, resource.resource_name)
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message or ""
                continue
            wanted = resource.configuration_keys
            result.configs = [
                _entry(
                    entry,
                    with_synonyms=request.include_synonyms,
                    with_documentation=request.include_documentation,
                )
                for entry in in_hash_order([e for e in entries if not wanted or e.name in wanted])
            ]
        return response

    async def _describe(self, resource_type: int, name: str) -> Iterable[ConfigEntry]:
        if resource_type == TOPIC:
            problem = topic_name_problem(name)
            if problem is not None:
                raise InvalidTopicException(problem)
            if not self._metadata.has_topic(name):
                raise self._metadata.unknown_to_admin()
            return describe_topic(await self._admin.topic_overrides(name), self._config.layers)
        if resource_type == BROKER:
            self._admin.check_broker_name(name, may_be_empty=True)
            if name:
                return describe_broker(self._config.layers)
            return self._dynamic_defaults()
        if resource_type == BROKER_LOGGER:
            self._admin.check_broker_name(name, may_be_empty=False)
            return self._loggers.describe()
        if resource_type == GROUP and self._groups is not None:
            if not name:
                raise InvalidRequest("Group name must not be empty")
            return self._groups.describe(name)
        raise InvalidRequest(f"Unsupported resource type: {resource_type}")

    def _dynamic_defaults(self) -> list[ConfigEntry]:
        """What brokers share: the dynamic defaults and nothing else."""
        layers = self._config.layers
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            replace(
                entry,
                value=None if entry.sensitive else layers.dynamic_default[entry.name],
                source=source,
                synonyms=tuple(s for s in entry.synonyms if s.source is source),
            )
            for entry in describe_broker(layers)
            if entry.name in layers.dynamic_default
        ]

    # -- alter ---------------------------------------------------------------------------------

    async def alter_configs(
        self, request: AlterConfigsRequest, ctx: RequestContext
    ) -> AlterConfigsResponse:
        response = AlterConfigsResponse()
        await self._know_topics(request.resources)
        response.responses = await _each(
            request.resources,
            AlterConfigsResponse.AlterConfigsResourceResponse,
            lambda resource: self._replace(resource, ctx, request.validate_only),
        )
        return response

    async def _replace(
        self,
        resource: AlterConfigsRequest.AlterConfigsResource,
        ctx: RequestContext,
        validate_only: bool,
    ) -> None:
        _check_keys(resource.configs)
        values = {config.name: _present(config.name, config.value) for config in resource.configs}
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_topic(name, values, validate_only=validate_only)
        elif resource.resource_type == BROKER:
            self._admin.check_broker_name(name, may_be_empty=True)
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_broker(name, values, validate_only=validate_only)
        elif resource.resource_type == GROUP and self._groups is not None:
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_group(
                name, values, (), self._groups.check, validate_only=validate_only
            )
        else:
            raise InvalidRequest(f"Unknown resource type {resource.resource_type}")

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, ctx: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        response = IncrementalAlterConfigsResponse()
        await self._know_topics(request.resources)
        response.responses = await _each(
            request.resources,
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
            lambda resource: self._change(resource, ctx, request.validate_only),
        )
        return response

    async def _change(
        self,
        resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
        ctx: RequestContext,
        validate_only: bool,
    ) -> None:
        _check_keys(resource.configs)
        changes = [_change(config) for config in resource.configs]
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_topic(name, None, changes, validate_only=validate_only)
        elif resource.resource_type == BROKER:
            self._admin.check_broker_name(name, may_be_empty=True)
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_broker(name, None, changes, validate_only=validate_only)
        elif resource.resource_type == BROKER_LOGGER:
            self._admin.check_broker_name(name, may_be_empty=False)
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            self._loggers.alter(changes, validate_only=validate_only)
        elif resource.resource_type == GROUP and self._groups is not None:
            self._authorize(ctx, Operation.ALTER_CONFIGS, resource)
            await self._admin.alter_group(
                name, None, changes, self._groups.check, validate_only=validate_only
            )
        else:
            raise InvalidRequest(f"Unknown resource type {resource.resource_type}")

    def _authorize(self, ctx: RequestContext, operation: Operation, resource: Any) -> None:
        if resource.resource_type == TOPIC:
            if not self._authorizer.allows(
                ctx, operation, ResourceType.TOPIC, resource.resource_name
            ):
                raise TopicAuthorizationFailed()
        elif resource.resource_type == GROUP and self._groups is not None:
            if not self._authorizer.allows(
                ctx, operation, ResourceType.GROUP, resource.resource_name
            ):
                raise GroupAuthorizationFailed()
        elif not allows_cluster(self._authorizer, ctx, operation):
            raise ClusterAuthorizationFailed()


async def _each(
    resources: Sequence[_Resource],
    result_class: Callable[..., _Result],
    work: Callable[[_Resource], Awaitable[None]],
) -> list[_Result]:
    """Change one resource after the other; each succeeds or fails alone, and none twice."""
    counts = Counter((r.resource_type, r.resource_name) for r in resources)
    results = []
    for resource in resources:
        code, message = NONE, None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            await work(resource)
        except KafkaError as error:
            code, message = error.code, message_of(error)
        results.append(
            result_class(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return results


def _entry(entry: ConfigEntry, *, with_synonyms: bool, with_documentation: bool) -> _Entry:
    documentation = None
    if entry.source is ConfigSource.DYNAMIC_BROKER_LOGGER:
        documentation = ""
    elif with_documentation and entry.type is not None:
        documentation = f"Setting of type {entry.type.name.lower()}."
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[
            _Entry.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=int(synonym.source)
            )
            for synonym in (entry.synonyms if with_synonyms else ())
        ],
        config_type=0 if entry.type is None else entry.type.value,
        documentation=documentation,
    )


def in_hash_order(entries: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """The entries as a hash table of the original holds them.

    Its tools keep answers in such tables too, so what they print in full repeats this order.
    """
    size = SMALLEST_TABLE
    while len(entries) >= size * 3 // 4:
        size *= 2

    def place(entry: ConfigEntry) -> tuple[int, int]:
        code = java_hash(entry.name)
        code ^= code >> 16
        return code & size - 1, (code ^ 1 << 31) - (1 << 31)

    return sorted(entries, key=place)


def _change(
    config: IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig,
) -> ConfigChange:
    try:
        operation = AlterOperation(config.config_operation)
    except ValueError:
        raise UnknownServerError(
            f"Config operation {config.config_operation} is unknown, expected 0 to 3"
        ) from None
    value = config.value
    if operation is not AlterOperation.DELETE:
        value = _present(config.name, value)
    return ConfigChange(config.name, operation, value)


def _present(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    return value


def _check_keys(configs: Sequence[Any]) -> None:
    if len({config.name for config in configs}) != len(configs):
        raise InvalidRequest("Error due to duplicate config keys")
