"""Every znode payload as a value, read tolerantly and written exactly as Kafka writes it.

`decode(data, path)` accepts all versions that Kafka's own readers accept, ignores unknown keys and
raises CorruptZnode for anything else; `encode()` gives the bytes of the newest version, keys in the
order in which Kafka 3.9 prints them (reference: zookeeper 2).  ACL, SCRAM and token payloads are in
`security.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.types import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
    uuid_from_text,
    uuid_to_text,
)

from .payload import (
    CorruptZnode,
    Fields,
    decode_partitions,
    encode,
    encode_partitions,
)

__all__ = [
    "BrokerInfo",
    "ControllerInfo",
    "CorruptZnode",
    "FeatureInfo",
    "FeatureRange",
    "FinalizedFeature",
    "FormerIsr",
    "LOG_DIR_FAILURE",
    "NO_KRAFT_EPOCH",
    "PartitionState",
    "ProducerIdBlock",
    "SECURITY_PROTOCOLS",
    "TopicInfo",
    "decode_cluster_id",
    "decode_config",
    "decode_config_change",
    "decode_log_dir_event",
    "decode_number",
    "decode_partitions",
    "decode_reassignments",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_log_dir_event",
    "encode_number",
    "encode_partitions",
    "encode_reassignments",
    "format_endpoint",
    "parse_endpoint",
]

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NO_KRAFT_EPOCH: Final = -1

SHORT_LOGS: Final = "kafkalike_short_logs"
WHOLE_LOGS: Final = "kafkalike_whole_logs"
FORMER_ISR: Final = "kafkalike_former_isr"
MIN_ISR_ZXIDS: Final = "kafkalike_min_isr_zxids"
"""Keys that Kafka does not have; its readers skip them (ADR 0008)."""


def decode_number(data: bytes | None, path: str) -> int:
    """A payload that is decimal text, such as `/controller_epoch`."""
    text = (data or b"").decode("ascii", "replace")
    if not text.removeprefix("-").isdigit() or len(text) > 20:
        raise CorruptZnode(path, f"expected a decimal number, found {(data or b'')[:40]!r}")
    return int(text)


def encode_number(number: int) -> bytes:
    return str(number).encode("ascii")


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None, path: str) -> str:
    return Fields.parse(data, path).text("id")


@dataclass(slots=True, frozen=True)
class FeatureRange:
    """Levels of a feature that a broker supports."""

    min_version: int
    max_version: int


@dataclass(slots=True, frozen=True)
class BrokerInfo:
    """`/brokers/ids/<id>`, version 5 (reference: zookeeper 2.2)."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0
    features: Mapping[str, FeatureRange] = field(default_factory=dict)
    short_logs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Not Kafka's (ADR 0008): partitions of which this broker was the whole ISR at its start and whose
    log ends below the high watermark it had, each with the leader epoch then."""
    whole_logs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Not Kafka's: partitions whose former ISR names this broker, in a life that it ended in order,
    and whose log is as it was then; each with the epoch of that life."""

    def encode(self) -> bytes:
        plain = next((e for e in self.endpoints if e.security_protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            "features": {
                name: {"min_version": r.min_version, "max_version": r.max_version}
                for name, r in self.features.items()
            },
            "listener_security_protocol_map": {
                e.listener: e.security_protocol for e in self.endpoints
            },
            "endpoints": [format_endpoint(e) for e in self.endpoints],
        }
        if self.rack is not None:
            value["rack"] = self.rack
        value |= {
            "jmx_port": self.jmx_port,
            "port": plain.port if plain else -1,
            "host": plain.host if plain else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        for key, numbers in ((SHORT_LOGS, self.short_logs), (WHOLE_LOGS, self.whole_logs)):
            if numbers:
                value[key] = _by_topic(numbers)
        return encode(value)

    @staticmethod
    def decode(data: bytes | None, path: str) -> "BrokerInfo":
        fields = Fields.parse(data, path)
        version = fields.int32("version")
        if version < 1:
            raise fields.fail(f"'version' is {version}, expected 1 or more")
        if version == 1:
            plain = Endpoint("PLAINTEXT", "PLAINTEXT", fields.text("host"), fields.int32("port"))
            endpoints: tuple[Endpoint, ...] = (plain,)
        else:
            protocols = {name: name for name in SECURITY_PROTOCOLS}
            if version > 3 or fields.has("listener_security_protocol_map"):
                protocols = fields.text_map("listener_security_protocol_map")
            endpoints = tuple(
                parse_endpoint(text, protocols, fields) for text in fields.texts("endpoints")
            )
        features = fields.child("features", {})
        return BrokerInfo(
            endpoints,
            rack=fields.optional_text("rack"),
            jmx_port=fields.int32("jmx_port", -1),
            timestamp_ms=fields.int64("timestamp", -1),
            features={name: _feature_range(features.child(name)) for name in features.names()},
            short_logs=_numbers_by_partition(fields, SHORT_LOGS),
            whole_logs=_numbers_by_partition(fields, WHOLE_LOGS),
        )


def _by_topic(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in numbers.items():
        found.setdefault(topic, {})[str(partition)] = number
    return found


def _numbers_by_partition(fields: Fields, key: str) -> dict[TopicPartition, int]:
    """What stands under a key of our own; anything unexpected counts as absent, as for Kafka."""
    found: dict[TopicPartition, int] = {}
    try:
        topics = fields.child(key, {})
        for topic in topics.names():
            numbers = topics.child(topic)
            for name in numbers.names():
                found[TopicPartition(topic, int(name))] = numbers.int64(name)
    except ValueError:  # CorruptZnode is one
        return {}
    return found


def _feature_range(fields: Fields) -> FeatureRange:
    return FeatureRange(fields.int32("min_version"), fields.int32("max_version"))


def format_endpoint(endpoint: Endpoint) -> str:
    """`LISTENER://host:port`; an IPv6 address stands in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def parse_endpoint(text: str, protocols: Mapping[str, str], fields: Fields) -> Endpoint:
    """The reverse of `format_endpoint`; the listener's protocol comes from `protocols`."""
    listener, separator, address = text.partition("://")
    host, colon, port_text = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not colon or not port_text.isascii() or not port_text.isdigit():
        raise fields.fail(f"endpoint {text!r} is not LISTENER://host:port")
    port = int(port_text[:6])
    if port > 65535:
        raise fields.fail(f"endpoint {text!r}: port {port_text} is above 65535")
    if listener not in protocols:
        raise fields.fail(f"endpoint {text!r}: listener is not in listener_security_protocol_map")
    protocol = protocols[listener]
    if protocol not in SECURITY_PROTOCOLS:
        raise fields.fail(f"listener {listener!r} has unknown security protocol {protocol!r}")
    return Endpoint(listener, protocol, host, port)


@dataclass(slots=True, frozen=True)
class TopicInfo:
    """`/brokers/topics/<t>`, version 3: where a topic's partitions live (reference: zookeeper 2.3)."""

    partitions: Mapping[int, ReplicaAssignment]
    topic_id: bytes | None = None
    """16 bytes; None for a topic that nobody has given an id yet."""

    def encode(self) -> bytes:
        numbers = sorted(self.partitions)
        value: dict[str, Any] = {
            "partitions": {str(n): list(self.partitions[n].replicas) for n in numbers}
        }
        if self.topic_id is not None:
            value["topic_id"] = uuid_to_text(self.topic_id)
        value["adding_replicas"] = {
            str(n): list(self.partitions[n].adding) for n in numbers if self.partitions[n].adding
        }
        value["removing_replicas"] = {
            str(n): list(self.partitions[n].removing)
            for n in numbers
            if self.partitions[n].removing
        }
        value["version"] = 3
        return encode(value)

    @staticmethod
    def decode(data: bytes | None, path: str) -> "TopicInfo":
        fields = Fields.parse(data, path)
        replicas = fields.int_lists("partitions")
        adding = fields.int_lists("adding_replicas")
        removing = fields.int_lists("removing_replicas")
        topic_id = None
        if fields.has("topic_id"):
            try:
                topic_id = uuid_from_text(fields.text("topic_id"))
            except ValueError as error:
                raise fields.fail(str(error)) from error
        return TopicInfo(
            {
                number: ReplicaAssignment(
                    replicas[number], adding.get(number, ()), removing.get(number, ())
                )
                for number in sorted(replicas)
            },
            topic_id,
        )


@dataclass(slots=True, frozen=True)
class FormerIsr:
    """Who left when an ISR fell to one member: they have all that was acknowledged (ADR 0008)."""

    epochs: tuple[tuple[int, int], ...]
    """Broker id and the life (broker epoch) in which it left, by id."""
    min_isr_zxids: tuple[int, ...]
    """Last changes of what decides min.insync.replicas: while they stand, the one that is left cannot
    have acknowledged anything alone."""

    def epoch_of(self, broker_id: int) -> int | None:
        """The life in which the broker left; None for whom this does not name."""
        return dict(self.epochs).get(broker_id)


@dataclass(slots=True, frozen=True)
class PartitionState:
    """`/brokers/topics/<t>/partitions/<p>/state`, version 1 (reference: zookeeper 2.4)."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int
    former: FormerIsr | None = None
    """Not Kafka's; only beside an ISR of one."""
    mzxid: int = field(default=-1, compare=False)
    """When it was written, as far as it was read: not in the payload."""

    def encode(self) -> bytes:
        state = self.leader_and_isr
        value: dict[str, Any] = {
            "controller_epoch": self.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
        if state.recovery_state != RECOVERED:
            value["leader_recovery_state"] = state.recovery_state
        if self.former is not None:
            value[FORMER_ISR] = {str(b): epoch for b, epoch in self.former.epochs}
            value[MIN_ISR_ZXIDS] = list(self.former.min_isr_zxids)
        return encode(value)

    @staticmethod
    def decode(
        data: bytes | None, path: str, znode_version: int, mzxid: int = -1
    ) -> "PartitionState":
        """`znode_version` is the node's data version: the partition epoch."""
        fields = Fields.parse(data, path)
        recovery_state = fields.int32("leader_recovery_state", RECOVERED)
        if recovery_state not in (RECOVERED, RECOVERING):
            raise fields.fail(f"'leader_recovery_state' is {recovery_state}, expected 0 or 1")
        leader = fields.int32("leader")
        if leader < NO_LEADER:
            raise fields.fail(f"'leader' is {leader}, expected a broker id or -1")
        return PartitionState(
            LeaderAndIsr(
                leader,
                fields.int32("leader_epoch"),
                fields.ints("isr"),
                recovery_state,
                partition_epoch=znode_version,
            ),
            fields.int32("controller_epoch"),
            _former_isr(fields),
            mzxid,
        )


def _former_isr(fields: Fields) -> FormerIsr | None:
    """Anything unexpected counts as absent, as for Kafka."""
    if not fields.has(FORMER_ISR):
        return None
    try:
        epochs = fields.child(FORMER_ISR)
        named = sorted((int(name), epochs.int64(name)) for name in epochs.names())
        zxids = fields.int64s(MIN_ISR_ZXIDS)
    except ValueError:  # CorruptZnode is one
        return None
    return FormerIsr(tuple(named), zxids) if named else None


@dataclass(slots=True, frozen=True)
class ControllerInfo:
    """`/controller`, version 2: who is controller (reference: zookeeper 2.5)."""

    broker_id: int
    timestamp_ms: int = -1
    kraft_controller_epoch: int = NO_KRAFT_EPOCH

    def encode(self) -> bytes:
        return encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_controller_epoch,
            }
        )

    @staticmethod
    def decode(data: bytes | None, path: str) -> "ControllerInfo":
        fields = Fields.parse(data, path)
        return ControllerInfo(
            fields.int32("brokerid"),
            fields.int64("timestamp", -1),
            fields.int32("kraftControllerEpoch", NO_KRAFT_EPOCH),
        )


@dataclass(slots=True, frozen=True)
class FinalizedFeature:
    max_version_level: int
    min_version_level: int | None = None
    """Only in version 1 of `/feature`."""


@dataclass(slots=True, frozen=True)
class FeatureInfo:
    """`/feature`: finalized features; a 3.9 cluster with ZooKeeper has none (reference: 2.5)."""

    enabled: bool = True
    features: Mapping[str, FinalizedFeature] = field(default_factory=dict)
    version: int = 2

    def encode(self) -> bytes:
        features: dict[str, dict[str, int]] = {}
        for name, feature in self.features.items():
            levels = {"max_version_level": feature.max_version_level}
            if self.version == 1:
                levels = {"min_version_level": feature.min_version_level or 1} | levels
            features[name] = levels
        return encode({"features": features, "version": self.version, "status": int(self.enabled)})

    @staticmethod
    def decode(data: bytes | None, path: str) -> "FeatureInfo":
        fields = Fields.parse(data, path)
        version = fields.int32("version")
        if version not in (1, 2):
            raise fields.fail(f"'version' is {version}, expected 1 or 2")
        status = fields.int32("status")
        if status not in (0, 1):
            raise fields.fail(f"'status' is {status}, expected 0 or 1")
        features = fields.child("features")
        return FeatureInfo(
            status == 1,
            {name: _finalized(features.child(name), version) for name in features.names()},
            version,
        )


def _finalized(fields: Fields, version: int) -> FinalizedFeature:
    low = fields.int32("min_version_level") if version == 1 else None
    high = fields.int32("max_version_level")
    if high < 1 or (low is not None and not 1 <= low <= high):
        raise fields.fail(f"levels {low} to {high} are no range")
    return FinalizedFeature(high, low)


def encode_reassignments(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """`/admin/reassign_partitions`: target replicas per partition."""
    items = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in targets.items()
    ]
    return encode({"version": 1, "partitions": items})


def decode_reassignments(data: bytes | None, path: str) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(item.text("topic"), item.int32("partition")): item.ints("replicas")
        for item in Fields.parse(data, path).objects("partitions")
    }


LOG_DIR_FAILURE: Final = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    """`/log_dir_event_notification/log_dir_event_<seq>`: a log directory of the broker failed."""
    return encode({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes | None, path: str) -> int:
    """The broker whose log directory failed."""
    return Fields.parse(data, path).int32("broker")


@dataclass(slots=True, frozen=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`: the last block of producer ids given out, `end` inclusive."""

    broker_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start + 1

    def encode(self) -> bytes:
        return encode(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.start),
                "block_end": str(self.end),
            }
        )

    @staticmethod
    def decode(data: bytes | None, path: str) -> "ProducerIdBlock":
        fields = Fields.parse(data, path)
        block = ProducerIdBlock(
            fields.int32("broker"), fields.int64("block_start"), fields.int64("block_end")
        )
        if not 0 <= block.start <= block.end:
            raise fields.fail(f"block {block.start} to {block.end} is no range")
        return block


def encode_config(config: Mapping[str, str]) -> bytes:
    """`/config/<type>/<entity>`: overrides, all values text."""
    return encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None, path: str) -> dict[str, str]:
    """An absent `config` key reads as no overrides, as do null and empty data (parent nodes)."""
    if not data:
        return {}
    fields = Fields.parse(data, path)
    version = fields.int32("version", 1)
    if version != 1:
        raise fields.fail(f"'version' is {version}, expected 1")
    return fields.text_map("config") if fields.has("config") else {}


def encode_config_change(entity_path: str) -> bytes:
    """`/config/changes/config_change_<seq>`: `entity_path` such as `topics/t` (sanitised)."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None, path: str) -> str:
    """The entity path; version 1 named type and entity apart."""
    fields = Fields.parse(data, path)
    version = fields.int32("version")
    if version == 1:
        entity_type = fields.text("entity_type")
        if entity_type not in ("topics", "clients"):
            raise fields.fail(f"'entity_type' is {entity_type!r}, expected topics or clients")
        return f"{entity_type}/{fields.text('entity_name')}"
    if version != 2:
        raise fields.fail(f"'version' is {version}, expected 1 or 2")
    entity_path = fields.text("entity_path")
    if not entity_path.partition("/")[2]:
        raise fields.fail(f"'entity_path' is {entity_path!r}, expected type/entity")
    return entity_path
