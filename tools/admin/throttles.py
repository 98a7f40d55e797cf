"""Replication throttles of a reassignment: settings of brokers and topics (KIP-73)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkalike.errors import NONE
from kafkalike.messages.configs import IncrementalAlterConfigsRequest
from kafkalike.types import TopicPartition

from .. import cli
from .client import AdminClient, describe_error

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
SET: Final = 0
DELETE: Final = 1

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def throttle_brokers(
    client: AdminClient, brokers: Iterable[int], settings: Mapping[str, str | None]
) -> None:
    """Set (None: remove) settings of each broker, which is asked itself.  Raises CommandError."""
    for broker in brokers:
        request = _request(BROKER_RESOURCE, str(broker), settings)
        _check(await client.broker(broker, request))


async def throttle_topics(
    client: AdminClient, topics: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Set (None: remove) settings of each topic.  Raises CommandError."""
    for topic, settings in topics.items():
        _check(await client.any_broker(_request(TOPIC_RESOURCE, topic, settings)))


def replica_list(replicas: Mapping[TopicPartition, Iterable[int]], topic: str) -> str:
    """`0:101,0:102,1:101`: the value of the two settings of a topic."""
    pairs = [
        (partition.partition, broker)
        for partition, brokers in replicas.items()
        if partition.topic == topic
        for broker in brokers
    ]
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(pairs))


def _request(
    resource_type: int, name: str, settings: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            Resource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    Resource.AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in settings.items()
                ],
            )
        ]
    )


def _check(response: Any) -> None:
    for result in response.responses:
        if result.error_code != NONE:
            raise cli.CommandError(
                f"settings of {result.resource_name}:"
                f" {describe_error(result.error_code, result.error_message)}"
            )
