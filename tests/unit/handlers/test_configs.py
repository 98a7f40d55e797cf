"""Describing and altering configuration: resources, order of refusals, what ZooKeeper then holds."""

import logging
from typing import Any

import pytest

from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.awaiting import FirstUpdate
from kafkalike.broker.cluster.config_admin import ConfigAdmin
from kafkalike.broker.cluster.config_sync import ConfigSync
from kafkalike.broker.cluster.dynamic_config import DynamicConfig
from kafkalike.broker.cluster.loggers import Loggers
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.handlers.configs import BROKER, BROKER_LOGGER, TOPIC, ConfigsApi
from kafkalike.config import BrokerConfig
from kafkalike.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafkalike.runtime.tasks import as_deferred
from kafkalike.zk.znodes import decode_config
from tests.fakes import result_of
from tests.unit.cluster.support import update_metadata
from tests.unit.cluster.zk_world import ZkWorld
from tests.unit.handlers.support import PickyAuthorizer, context

SET, DELETE, APPEND, SUBTRACT = range(4)
_Alter = AlterConfigsRequest.AlterConfigsResource
_Change = IncrementalAlterConfigsRequest.AlterConfigsResource


class World(ZkWorld):
    def __init__(self, authorizer: Authorizer | None = None) -> None:
        super().__init__()
        self.metadata = MetadataCache(1)
        self.metadata.update(update_metadata({"t": [(0, 1, [1])]}))
        static = BrokerConfig.parse(
            {
                "zookeeper.connect": "z:1",
                "broker.id": "1",
                "log.retention.hours": "5",
                "log.segment.bytes": "1000",
            }
        )
        self.dynamic = DynamicConfig(static, 1, logging.getLogger("test"))
        self.sync = ConfigSync(self.zk, self.clock, self.dynamic, 1, logging.getLogger("test"))
        self.run(self.sync.start())
        self.api = ConfigsApi(
            ConfigAdmin(self.zk, 1, self.metadata, self.dynamic, self.sync.refresh),
            self.dynamic,
            self.metadata,
            authorizer or PermissiveAuthorizer(),
            Loggers("kafkalike.test"),
            first_update=FirstUpdate(self.metadata, self.clock, 10.0),
        )

    def describe(
        self, kind: int, name: str, keys: list[str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        for version in range(5):
            self.run(self.api.describe_configs(request, context(version))).encode(version)
        response = self.run(self.api.describe_configs(request, context(4)))
        (result,) = response.results
        return result.error_code, {entry.name: entry for entry in result.configs}

    def change(self, *resources: Any, validate_only: bool = False) -> list[int]:
        request = IncrementalAlterConfigsRequest(
            resources=[
                _Change(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        _Change.AlterableConfig(name=n, config_operation=o, value=v)
                        for n, o, v in changes
                    ],
                )
                for kind, name, changes in resources
            ],
            validate_only=validate_only,
        )
        work = as_deferred(self.api.incremental_alter_configs(request, context(1)))
        self.settle(2)
        response = result_of(work)
        response.encode(1)
        return [answer.error_code for answer in response.responses]

    def replace(self, *resources: Any) -> list[int]:
        request = AlterConfigsRequest(
            resources=[
                _Alter(
                    resource_type=kind,
                    resource_name=name,
                    configs=[_Alter.AlterableConfig(name=n, value=v) for n, v in values],
                )
                for kind, name, values in resources
            ]
        )
        work = as_deferred(self.api.alter_configs(request, context(2)))
        self.settle(2)
        response = result_of(work)
        response.encode(1)
        return [answer.error_code for answer in response.responses]

    def stored(self, entity: str) -> dict[str, str]:
        return decode_config(self.zookeeper.get(f"/config/{entity}"), entity)


def test_a_topic_change_is_stored_told_and_effective() -> None:
    world = World()
    changed: list[str] = []
    world.dynamic.on_topic_change(changed.append)
    assert world.change((TOPIC, "t", [("retention.ms", SET, "77")])) == [0]
    assert world.stored("topics/t") == {"retention.ms": "77"}
    assert changed == ["t"]
    assert world.dynamic.log_config("t").retention_ms == 77
    code, entries = world.describe(TOPIC, "t")
    assert code == 0
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("77", 1)
    assert entries["segment.bytes"].config_source == 4

    assert world.change((TOPIC, "t", [("retention.ms", DELETE, None)])) == [0]
    assert world.stored("topics/t") == {}
    assert world.dynamic.log_config("t").retention_ms == 5 * 3_600_000


def test_a_topic_is_described_once_the_topics_are_known() -> None:
    world = World()
    world.metadata.snapshot = MetadataCache(1).snapshot
    world.metadata.lacks_topics = True
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t"
    )
    request = DescribeConfigsRequest(resources=[resource])
    waiting = as_deferred(world.api.describe_configs(request, context(4)))
    world.settle(2.0)
    assert not waiting.called
    world.metadata.update(update_metadata({"t": [(0, 1, [1])]}))
    world.settle()
    (result,) = result_of(waiting).results
    assert (result.error_code, len(result.configs) > 10) == (0, True)


@pytest.mark.parametrize(
    "method", ["describe_configs", "alter_configs", "incremental_alter_configs"]
)
def test_topics_of_which_nobody_tells_are_waited_for_once_a_request(method: str) -> None:
    world = World()
    world.metadata.snapshot = MetadataCache(1).snapshot
    world.metadata.lacks_topics = True
    names = ["t", "u", "v"]
    request: Any
    if method == "describe_configs":
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name=name
                )
                for name in names
            ]
        )
    elif method == "alter_configs":
        request = AlterConfigsRequest(
            resources=[_Alter(resource_type=TOPIC, resource_name=name) for name in names]
        )
    else:
        request = IncrementalAlterConfigsRequest(
            resources=[_Change(resource_type=TOPIC, resource_name=name) for name in names]
        )
    waiting = as_deferred(getattr(world.api, method)(request, context(1)))
    world.settle(9.0)
    assert not waiting.called
    world.settle(2.0)
    response: Any = result_of(waiting)
    results = response.results if method == "describe_configs" else response.responses
    assert [result.error_code for result in results] == [5] * 3  # LEADER_NOT_AVAILABLE


def test_lists_grow_and_shrink() -> None:
    world = World()
    assert world.change((TOPIC, "t", [("cleanup.policy", APPEND, "compact")])) == [0]
    assert world.stored("topics/t") == {"cleanup.policy": "delete,compact"}
    assert world.change((TOPIC, "t", [("cleanup.policy", APPEND, "compact")])) == [0]
    assert world.stored("topics/t") == {"cleanup.policy": "delete,compact"}
    assert world.change((TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")])) == [0]
    assert world.stored("topics/t") == {"cleanup.policy": "compact"}


def test_alter_configs_replaces_everything() -> None:
    world = World()
    world.replace((TOPIC, "t", [("retention.ms", "1"), ("segment.bytes", "2000")]))
    assert world.replace((TOPIC, "t", [("retention.ms", "3")])) == [0]
    assert world.stored("topics/t") == {"retention.ms": "3"}


CHANGE_REFUSALS = [
    ((TOPIC, "t", [("a", SET, "1"), ("a", SET, "2")]), 42),
    ((TOPIC, "t", [("retention.ms", SET, None)]), 42),
    ((TOPIC, "t", [("retention.ms", 4, "1")]), -1),
    ((TOPIC, "", [("retention.ms", SET, "1")]), 42),
    ((TOPIC, "nowhere", [("bad", SET, "1")]), 3),
    ((TOPIC, "..", [("retention.ms", SET, "1")]), 3),
    ((TOPIC, "t", [("bad", SET, "1")]), 40),
    ((TOPIC, "t", [("bad", APPEND, "1")]), 40),
    ((TOPIC, "t", [("retention.ms", APPEND, "1")]), 40),
    ((TOPIC, "t", [("retention.ms", SET, "x")]), 40),
    ((3, "t", []), 42),
    ((BROKER, "2", []), 42),
    ((BROKER, "x", []), 42),
    ((BROKER, "1", [("broker.id", SET, "1")]), 42),
    ((BROKER, "1", [("log.segment.bytes", SET, "x")]), 42),
    ((BROKER, "", [("ssl.protocol", SET, "TLSv1.2")]), 42),
    ((BROKER, "1", [("num.io.threads", SET, "17")]), 42),
    ((BROKER, "1", [("num.io.threads", SET, "3")]), 42),
    ((BROKER, "1", [("leader.replication.throttled.rate", SET, "fast")]), 42),
    ((BROKER_LOGGER, "2", []), 42),
    ((BROKER_LOGGER, "", []), 42),
    ((BROKER_LOGGER, "1", [("no.such", SET, "INFO")]), 40),
    ((BROKER_LOGGER, "1", [("root", SET, "LOUD")]), 40),
    ((BROKER_LOGGER, "1", [("root", DELETE, None)]), 42),
    ((BROKER_LOGGER, "1", [("root", APPEND, "INFO")]), 42),
]


@pytest.mark.parametrize(("resource", "code"), CHANGE_REFUSALS)
def test_incremental_changes_are_refused(resource: Any, code: int) -> None:
    world = World()
    assert world.change(resource) == [code]
    assert world.zookeeper.children("/config/topics") == []
    assert world.zookeeper.children("/config/brokers") == []


def test_a_resource_twice_is_refused_twice_and_others_are_done() -> None:
    world = World()
    one = (TOPIC, "t", [("retention.ms", SET, "1")])
    assert world.change(one, one, (BROKER, "1", [])) == [42, 42, 0]
    two = (TOPIC, "t", [("retention.ms", "1")])
    assert world.replace(two, two) == [42, 42]


def test_validate_only_changes_nothing() -> None:
    world = World()
    assert world.change((TOPIC, "t", [("retention.ms", SET, "1")]), validate_only=True) == [0]
    assert world.zookeeper.children("/config/topics") == []


def test_broker_defaults_and_own_settings() -> None:
    world = World()
    assert world.change(
        (BROKER, "", [("log.segment.bytes", SET, "2000"), ("min.insync.replicas", SET, "2")]),
        (BROKER, "1", [("log.segment.bytes", SET, "3000"), ("my.own.key", SET, "x")]),
    ) == [0, 0]
    assert world.dynamic.broker.log_segment_bytes == 3000
    assert world.dynamic.broker.min_insync_replicas == 2
    assert world.dynamic.log_config("t").segment_bytes == 3000
    code, entries = world.describe(BROKER, "1", ["log.segment.bytes"])
    assert code == 0 and list(entries) == ["log.segment.bytes"]
    sources = [s.source for s in entries["log.segment.bytes"].synonyms]
    assert sources == [2, 3, 4, 5]
    code, entries = world.describe(BROKER, "")
    assert sorted(entries) == ["log.segment.bytes", "min.insync.replicas"]
    assert entries["log.segment.bytes"].value == "2000"
    assert world.describe(BROKER, "2")[0] == 42


def test_loggers() -> None:
    logger = logging.getLogger("kafkalike.test.room")
    world = World()
    name = "kafkalike.test.room"
    assert world.change((BROKER_LOGGER, "1", [(name, SET, "DEBUG")])) == [0]
    assert logger.level == logging.DEBUG
    _, entries = world.describe(BROKER_LOGGER, "1")
    assert (entries[name].value, entries[name].config_source) == ("DEBUG", 6)
    assert world.change((BROKER_LOGGER, "1", [(name, DELETE, None)])) == [0]
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(TOPIC, "", 17), (TOPIC, "a b", 17), (TOPIC, "nowhere", 3), (9, "x", 42), (BROKER, "x", 42)],
)
def test_what_cannot_be_described(kind: int, name: str, code: int) -> None:
    assert World().describe(kind, name)[0] == code


def test_permissions() -> None:
    world = World(
        PickyAuthorizer(
            (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t"),
            (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "t"),
            (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, None),
            (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None),
        )
    )
    assert world.describe(TOPIC, "t")[0] == 29
    assert world.describe(BROKER, "1")[0] == 31
    assert world.change((TOPIC, "t", []), (BROKER, "1", []), (BROKER_LOGGER, "1", [])) == [
        29,
        31,
        31,
    ]


def test_without_a_controller_nothing_is_written() -> None:
    world = World()
    world.zookeeper.delete("/controller")
    assert world.change((TOPIC, "t", [("retention.ms", SET, "1")])) == [11]


TOPIC_ORDER = """
    compression.type remote.log.delete.on.disable leader.replication.throttled.replicas
    remote.storage.enable message.downconversion.enable min.insync.replicas segment.jitter.ms
    remote.log.copy.disable local.retention.ms cleanup.policy flush.ms
    follower.replication.throttled.replicas compression.lz4.level segment.bytes retention.ms
    compression.gzip.level flush.messages compression.zstd.level message.format.version
    max.compaction.lag.ms file.delete.delay.ms max.message.bytes min.compaction.lag.ms
    message.timestamp.type local.retention.bytes preallocate min.cleanable.dirty.ratio
    index.interval.bytes unclean.leader.election.enable retention.bytes delete.retention.ms
    message.timestamp.after.max.ms message.timestamp.before.max.ms segment.ms
    message.timestamp.difference.max.ms segment.index.bytes
"""
"""Names in an answer of Kafka 3.9.2."""


def test_topic_settings_come_in_the_order_of_the_originals_table() -> None:
    world = World()
    _, entries = world.describe(TOPIC, "t")
    assert list(entries) == TOPIC_ORDER.split()
    _, entries = world.describe(BROKER, "1")
    first = ["log.cleaner.min.compaction.lag.ms", "offsets.topic.num.partitions"]
    assert list(entries)[:2] == first


def test_all_read_only_names_are_told() -> None:
    world = World()
    configs = [
        _Change.AlterableConfig(name=name, config_operation=SET, value="7")
        for name in ("num.partitions", "broker.rack", "background.threads", "zookeeper.connect")
    ]
    resource = _Change(resource_type=BROKER, resource_name="1", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = world.run(world.api.incremental_alter_configs(request, context(1)))
    names = "num.partitions, broker.rack, zookeeper.connect"
    text = f"Cannot update these configs dynamically: Set({names})"
    assert response.responses[0].error_message == text
