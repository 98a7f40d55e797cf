"""Every znode path of a Kafka cluster (reference: zookeeper 2).

Paths are absolute within the chroot.  Topic names and broker ids stand in paths as they are; entity
names below `/config/{clients,users,ips}` and principals are sanitised first (`sanitize`).
"""

import urllib.parse
from typing import Final

from kafkalike.types import TopicPartition

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURE: Final = "/feature"
MIGRATION: Final = "/migration"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "isr_change_"
LOG_DIR_EVENT_NOTIFICATION: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "config_change_"
ACL: Final = "/kafka-acl"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL: Final = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX: Final = "acl_changes_"
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX: Final = "token_change_"

ENTITY_TYPES: Final = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY: Final = "<default>"
"""Stands for "all others" below `/config/<type>`; never sanitised."""

PRECREATED: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQID,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    *(f"{CONFIG}/{entity_type}" for entity_type in ENTITY_TYPES),
)
"""What every broker makes sure of when it starts (reference: zookeeper 2.9)."""


def sanitize(name: str) -> str:
    """An entity name as Kafka spells it in paths: URL form encoding with `*` and space as %XX."""
    return urllib.parse.quote(name, safe="").replace("~", "%7E")


def desanitize(text: str) -> str:
    """The reverse of `sanitize`."""
    return urllib.parse.unquote_plus(text)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}"


def partition_state(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def entity_config(entity_path: str) -> str:
    """Config of an entity, named as in change notifications: `topics/t`, `users/u/clients/c`."""
    return f"{CONFIG}/{entity_path}"


def topic_config(name: str) -> str:
    return f"{CONFIG}/topics/{name}"


def acl_resource(resource_type: str, name: str, *, prefixed: bool = False) -> str:
    """`resource_type` in Kafka's Pascal case: `Topic`, `TransactionalId`."""
    return (
        f"{EXTENDED_ACL}/prefixed/{resource_type}/{name}"
        if prefixed
        else (f"{ACL}/{resource_type}/{name}")
    )


def acl_resource_type(resource_type: str, *, prefixed: bool = False) -> str:
    return f"{EXTENDED_ACL}/prefixed/{resource_type}" if prefixed else f"{ACL}/{resource_type}"


def consumer_offset(group: str, partition: TopicPartition) -> str:
    """Where consumers from before `__consumer_offsets` keep how far they are."""
    return f"/consumers/{group}/offsets/{partition.topic}/{partition.partition}"


def delegation_token(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def sequence_number(name: str, prefix: str) -> int:
    """The counter at the end of a sequential node's name; ValueError when the name has another form."""
    digits = name.removeprefix(prefix)
    if digits == name or not digits.lstrip("-").isdigit():
        raise ValueError(f"znode {name!r} is not {prefix!r} followed by a number")
    return int(digits)
