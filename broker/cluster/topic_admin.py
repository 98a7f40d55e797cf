"""Topics as administrators change them: validated here, written to ZooKeeper, noticed by the
controller (reference: broker-errors 7, controller 10, 11, 15; zookeeper 2.3).

Errors are the KafkaErrors of the API; trouble with ZooKeeper itself is UnknownServerError.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafkalike.config import ConfigError, LogConfig
from kafkalike.controller.assignment import BrokerRack, assign_replicas
from kafkalike.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicException,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from kafkalike.runtime.ports import Random
from kafkalike.types import ReplicaAssignment
from kafkalike.zk import admin as zk_admin
from kafkalike.zk import brokers as zk_brokers
from kafkalike.zk import topics as zk_topics
from kafkalike.zk.client import ZkClient, ZkError
from kafkalike.zk.election import ControllerMoved
from kafkalike.zk.payload import CorruptZnode
from kafkalike.zk.znodes import TopicInfo

from .dynamic_config import DynamicConfig
from .metadata_cache import MetadataCache
from .topic_names import check_topic_name, collides, has_collision_characters

T = TypeVar("T")

DEFAULT: int = -1
"""Number of partitions or replicas left to the broker."""

Assignment = Mapping[int, tuple[int, ...]]


@dataclass(slots=True, frozen=True)
class NewTopic:
    """A topic to create.  A manual assignment replaces the two counts."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Assignment | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class CreatedTopic:
    """What was, or with validate-only would have been, created."""

    assignment: Assignment
    configs: Mapping[str, str]
    topic_id: bytes | None


class TopicAdmin:
    """Creates, grows and deletes topics."""

    def __init__(
        self, zk: ZkClient, metadata: MetadataCache, config: DynamicConfig, random: Random
    ) -> None:
        self._zk = zk
        self._metadata = metadata
        self._config = config
        self._random = random

    # -- create --------------------------------------------------------------------------------

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        """Validate and write a topic.

        Raises, in this order: TopicAlreadyExists (known here), InvalidConfig (null value),
        InvalidRequest (counts and assignment), InvalidPartitions, InvalidReplicationFactor,
        InvalidTopicException, TopicAlreadyExists (in ZooKeeper), InvalidTopicException (collision),
        InvalidReplicaAssignment, InvalidConfig.
        """
        name = new.name
        # Who was cut off when a topic was deleted may not have heard of it: ZooKeeper decides.
        if self._metadata.has_topic(name) and await _guard(zk_topics.topic_exists(self._zk, name)):
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        configs = _without_nulls(new.configs)
        assignment = self._place(new)
        check_topic_name(name)
        await _guard(self._check_absent(name))
        _check_assignment(assignment)
        try:
            LogConfig.validate_overrides(configs)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
        if validate_only:
            return CreatedTopic(assignment, configs, None)
        topic_id = zk_brokers.random_uuid(self._random.bytes)
        info = TopicInfo(
            {number: ReplicaAssignment(replicas) for number, replicas in assignment.items()},
            topic_id,
        )
        await _guard(zk_topics.create_topic(self._zk, name, info, configs))
        return CreatedTopic(assignment, configs, topic_id)

    def _place(self, new: NewTopic) -> Assignment:
        if new.assignment is not None:
            if new.partition_count != DEFAULT or new.replication_factor != DEFAULT:
                raise InvalidRequest(
                    "A manual replica assignment excludes a number of partitions or replicas"
                )
            return new.assignment
        broker = self._config.broker
        count = broker.num_partitions if new.partition_count == DEFAULT else new.partition_count
        factor = new.replication_factor
        if factor == DEFAULT:
            factor = broker.default_replication_factor
        snapshot = self._metadata.snapshot
        brokers = [BrokerRack(i, snapshot.brokers[i].rack) for i in sorted(snapshot.brokers)]
        return assign_replicas(brokers, count, factor, self._random)

    async def _check_absent(self, name: str) -> None:
        if name in await zk_admin.list_topic_deletions(self._zk):
            raise TopicAlreadyExists(f"Topic '{name}' is marked for deletion.")
        if await zk_topics.topic_exists(self._zk, name):
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        if not has_collision_characters(name):
            return
        for other in await zk_topics.list_topics(self._zk):
            if other == name:
                raise TopicAlreadyExists(f"Topic '{name}' already exists.")
            if collides(name, other):
                raise InvalidTopicException(
                    f"Topic '{name}' collides with existing topics: {other}"
                )

    # -- grow ----------------------------------------------------------------------------------

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
    ) -> list[int]:
        """Grow a topic to `count` partitions; returns the numbers of all its partitions.

        Raises InvalidTopicException (queued for deletion), ReassignmentInProgress,
        UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment,
        InvalidReplicationFactor.
        """
        if name in await _guard(zk_admin.list_topic_deletions(self._zk)):
            raise InvalidTopicException("The topic is queued for deletion.")
        info = await _guard(zk_topics.read_topic(self._zk, name))
        if info is None or not info.partitions:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        existing = info.partitions
        if any(assignment.is_reassigning for assignment in existing.values()):
            raise ReassignmentInProgress(f"Partitions of topic '{name}' are being reassigned")
        increase = count - len(existing)
        if increase == 0:
            raise InvalidPartitions(f"Topic already has {count} partitions.")
        if increase < 0:
            raise InvalidPartitions(
                f"Topic currently has {len(existing)} partitions, which is higher than the"
                f" requested {count}."
            )
        if 0 not in existing:
            raise UnknownServerError(f"Topic '{name}' has no partition 0")
        registered = await _guard(zk_brokers.read_all(self._zk))
        brokers = [BrokerRack(i, registered[i].info.rack) for i in sorted(registered)]
        first = existing[0].replicas
        if assignments is None:
            start = next((i for i, b in enumerate(brokers) if b.broker_id >= first[0]), -1)
            added: Assignment = assign_replicas(
                brokers,
                increase,
                len(first),
                self._random,
                fixed_start=max(0, start),
                first_partition=len(existing),
            )
        else:
            added = _manual_growth(assignments, increase, len(existing), len(first), registered)
        numbers = sorted({*existing, *added})
        if validate_only:
            return numbers
        grown = dict(existing)
        grown.update((number, ReplicaAssignment(replicas)) for number, replicas in added.items())
        await _guard(zk_topics.add_partitions(self._zk, name, TopicInfo(grown, info.topic_id)))
        return numbers

    # -- delete --------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        """Ask for the deletion of a topic; asking twice is no error.

        Raises UnknownTopicOrPartition.
        """
        if not await _guard(zk_topics.topic_exists(self._zk, name)):
            raise UnknownTopicOrPartition(f"Topic '{name}' does not exist.")
        await _guard(zk_admin.request_topic_deletion(self._zk, name))


async def _guard(work: Awaitable[T]) -> T:
    """Trouble with ZooKeeper as the client may see it."""
    try:
        return await work
    except ControllerMoved as error:
        raise error.as_kafka_error() from error
    except (ZkError, CorruptZnode) as error:
        raise UnknownServerError(f"ZooKeeper did not do it: {error}") from error


def _without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    found = {name: value for name, value in configs.items() if value is not None}
    if len(found) != len(configs):
        missing = ", ".join(name for name, value in configs.items() if value is None)
        raise InvalidConfig(f"Value is null for topic config(s) {missing}")
    return found


def _check_assignment(assignment: Assignment) -> None:
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise InvalidReplicaAssignment("All partitions should have the same number of replicas")
    for number, replicas in assignment.items():
        if not replicas:
            raise InvalidReplicaAssignment(f"Partition {number} has no replicas")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"Partition {number} names a replica twice: {list(replicas)}"
            )
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignment(
            f"Partitions are numbered from 0 without gaps, found {sorted(assignment)}"
        )


def _manual_growth(
    assignments: Sequence[Sequence[int]],
    increase: int,
    first_number: int,
    replication_factor: int,
    registered: Mapping[int, object],
) -> Assignment:
    unknown = sorted({b for replicas in assignments for b in replicas if b not in registered})
    if unknown:
        listed = ", ".join(map(str, unknown))
        raise InvalidReplicaAssignment(f"Unknown broker(s) in replica assignment: {listed}.")
    if len(assignments) != increase:
        raise InvalidReplicaAssignment(
            f"Increasing the number of partitions by {increase} but {len(assignments)}"
            " assignments provided."
        )
    added: dict[int, tuple[int, ...]] = {}
    for number, replicas in enumerate(assignments, first_number):
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"Partition {number} names a replica twice")
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignment(
                f"Partition {number} has {len(replicas)} replica(s), the topic {replication_factor}"
            )
        added[number] = tuple(replicas)
    return added
