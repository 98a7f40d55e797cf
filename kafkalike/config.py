"""What a broker and its topics are configured to do: parsing, derived values, checks, descriptions.

`BrokerConfig.parse(properties)` reads server.properties as Kafka does and refuses what cannot work
or is not served here, in one line naming key, value and what is allowed.  `LogConfig` holds the
effective settings of one topic.  `describe_broker` and `describe_topic` give the entries that
DescribeConfigs answers (reference: configs 1-3).
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, Self

from .config_keys import MAX_LONG, BrokerKeys, TopicKeys
from .settings import (
    Bool,
    ConfigError,
    ConfigType,
    Dynamic,
    Key,
    Long,
    Settings,
    Text,
    format_value,
    nearest,
    setting,
)
from .types import Endpoint

__all__ = ["BrokerConfig", "ConfigEntry", "ConfigError", "ConfigSource", "LogConfig"]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS: Final = ("PLAINTEXT",)

LISTENER_PREFIX: Final = "listener.name."

REPLICATION_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Broker settings that exist only as dynamic ones."""

_PLUGIN_KEYS: Final = ("super.users", "allow.everyone.if.no.acl.found", *REPLICATION_THROTTLES)
_NOT_SERVED: Final = {
    "process.roles": ("", "KRaft is not served: leave it unset"),
    "zookeeper.metadata.migration.enable": ("false", "migration to KRaft is not served"),
    "remote.log.storage.system.enable": ("false", "tiered storage is not served"),
    "zookeeper.set.acl": ("false", "secured znodes are not served"),
    "zookeeper.ssl.client.enable": ("false", "TLS to ZooKeeper is not served"),
    "authorizer.class.name": ("", "ACLs are not served, all would be allowed: leave it unset"),
    "create.topic.policy.class.name": ("", "Java policies are not served: leave it unset"),
    "alter.config.policy.class.name": ("", "Java policies are not served: leave it unset"),
    "client.quota.callback.class": ("", "client quotas are not served: leave it unset"),
}
"""Settings that would change what the broker promises, with the only value that is accepted."""

_ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""How group.consumer.assignors may also name them."""
_MIGRATIONS: Final = ("bidirectional", "upgrade", "downgrade", "disabled")

_TIERED: Final = (
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
)
"""Topic settings that the original refuses to switch on without tiered storage or with ZooKeeper."""

_WITHOUT_EFFECT: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "queued.max.requests",
    "queued.max.request.bytes",
    "metric.reporters",
    "kafka.metrics.reporters",
    "auto.include.jmx.reporter",
)
"""Settings that are accepted because every server.properties has them; one loop serves all."""

_POSITIVE: Final = (
    "zookeeper.session.timeout.ms",
    "default.replication.factor",
    "connections.max.idle.ms",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
    "request.timeout.ms",
)
"""Settings that Kafka takes at any value and that nothing works with below 1."""

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^][:/@\s]+)(?::([0-9]{1,5}))?")
_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 3_600_000


class OwnSettings(Settings):
    """Settings that Kafka does not have.  To its tools they are keys of some plugin."""

    kafkalike_journal_dir: Text | None = setting(None)
    """Where the journal and the loss ledger lie; unset: in the first usable log directory."""
    kafkalike_journal_max_bytes: Long = setting(64 << 20, low=0)
    """Of the journal on disk; 0 keeps none."""
    kafkalike_last_replica_defence: Bool = setting(True)
    """Whether a former member of an ISR may lead where the last one has lost records."""
    kafkalike_groups_snapshot_records: Long = setting(50_000, low=0)
    """Records of an offsets partition behind its snapshot before a new one is made; 0: never."""


class BrokerConfig(BrokerKeys):
    """The settings of one broker.

    Attributes are Kafka's keys with underscores for dots; `listeners`, `advertised_listeners` and
    `log_dirs` are parsed further.
    """

    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    zookeeper_connect: str
    inter_broker_listener: str
    """Name of the listener that brokers use among themselves."""
    control_plane_listener: str
    """Name of the listener for controller requests; the inter-broker one unless set apart."""
    security_protocols: Mapping[str, str]
    """Security protocol by listener name."""
    own: OwnSettings

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Read, derive and check.  Raises ConfigError."""
        given = dict(properties)
        if "broker.id" not in given and "node.id" in given:
            given["broker.id"] = given["node.id"]
        elif "broker.id" in given and "node.id" not in given:
            given["node.id"] = given["broker.id"]
        config = cls(given)
        config._derive()
        config._check()
        return config

    def _derive(self) -> None:
        self.own = OwnSettings(self.originals)
        self.security_protocols = _parse_protocol_map(self.listener_security_protocol_map)
        self.listeners = parse_listeners("listeners", self.listeners_text, self.security_protocols)
        if self.advertised_listeners_text is None:
            self.advertised_listeners = self.listeners
        else:
            self.advertised_listeners = parse_listeners(
                "advertised.listeners", self.advertised_listeners_text, self.security_protocols
            )
        self.zookeeper_connect = self.zookeeper_connect_text or ""
        text = self.log_dir if self.log_dirs_text is None else self.log_dirs_text
        self.log_dirs = tuple(part.strip() for part in text.split(",") if part.strip())
        self.inter_broker_listener = (
            self.inter_broker_listener_name or self.security_inter_broker_protocol
        ).upper()
        self.control_plane_listener = (
            self.control_plane_listener_name or self.inter_broker_listener
        ).upper()

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups of the newer protocol (KIP-848) are served."""
        return "consumer" in (name.lower() for name in self.group_coordinator_rebalance_protocols)

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """What groups of the newer protocol may ask for, the default first."""
        return tuple(_ASSIGNOR_CLASSES.get(name, name) for name in self.group_consumer_assignors)

    def _check(self) -> None:
        self._check_served()
        self._check_group_protocols()
        self._check_listeners()
        if self.zookeeper_connect_text is None:
            raise ConfigError(
                "zookeeper.connect",
                "(none)",
                "it is required, as host:port[,host:port...][/chroot]",
            )
        hosts = self.zookeeper_connect_text.partition("/")[0]
        if not all(_is_host(host.strip()) for host in hosts.split(",")):
            raise ConfigError(
                "zookeeper.connect",
                self.zookeeper_connect_text,
                "expected host:port[,host:port...][/chroot]",
            )
        if not self.log_dirs:
            raise ConfigError("log.dirs", self.log_dirs_text, "expected at least one directory")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise ConfigError("log.dirs", self.log_dirs_text, "the same directory is named twice")
        if self.broker_id > self.reserved_broker_max_id and self.broker_id_generation_enable:
            raise ConfigError(
                "broker.id",
                self.broker_id,
                f"expected at most reserved.broker.max.id ({self.reserved_broker_max_id})"
                " while broker.id.generation.enable is true",
            )
        if self.broker_id < 0 and not (self.broker_id == -1 and self.broker_id_generation_enable):
            raise ConfigError(
                "broker.id", self.broker_id, "expected 0 or more, or -1 with id generation enabled"
            )
        for name in _POSITIVE:
            if (number := self.values[name]) < 1:
                raise ConfigError(name, number, "expected 1 or more")
        wait = self.replica_fetch_wait_max_ms
        if wait > self.replica_socket_timeout_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms", wait, "expected at most replica.socket.timeout.ms"
            )
        if wait > self.replica_lag_time_max_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms", wait, "expected at most replica.lag.time.max.ms"
            )
        for name in ("log.roll.ms", "log.retention.ms", "log.retention.minutes"):
            value = self.values[name]
            smallest = 1 if name == "log.roll.ms" else -1
            if value is not None and (value < smallest or value == 0):
                raise ConfigError(name, value, f"expected {smallest} or more, and not 0")
        if self.log_retention_hours == 0 or self.log_retention_hours < -1:
            raise ConfigError(
                "log.retention.hours", self.log_retention_hours, "expected -1, or 1 or more"
            )
        if self.log_cleaner_enable and self.log_cleaner_dedupe_buffer_size <= (
            self.log_cleaner_threads << 20
        ):
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size",
                self.log_cleaner_dedupe_buffer_size,
                "expected more than 1 MiB for each of log.cleaner.threads",
            )
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            raise ConfigError(
                "log.cleaner.min.compaction.lag.ms",
                self.log_cleaner_min_compaction_lag_ms,
                "expected at most log.cleaner.max.compaction.lag.ms",
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                "queued.max.request.bytes",
                self.queued_max_request_bytes,
                "expected at least socket.request.max.bytes, or none",
            )
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise ConfigError(
                "max.connections.per.ip", 0, "expected overrides when nobody else may connect"
            )

    def _check_served(self) -> None:
        for name, (accepted, problem) in _NOT_SERVED.items():
            key = self.KEYS[name]
            if (format_value(key.type, self.values[name]) or "") != accepted:
                raise ConfigError(name, self.originals.get(name), problem)
        version = self.inter_broker_protocol_version
        if version.split("-", maxsplit=1)[0].split(".")[:2] != ["3", "9"]:
            raise ConfigError(
                "inter.broker.protocol.version", version, "only 3.9 (3.9-IV0) is served"
            )

    def _check_group_protocols(self) -> None:
        key = "group.coordinator.rebalance.protocols"
        protocols = [name.lower() for name in self.group_coordinator_rebalance_protocols]
        said = ",".join(self.group_coordinator_rebalance_protocols)
        if "classic" not in protocols:
            raise ConfigError(key, said, "expected classic, alone or with consumer")
        for name in ("share", "unknown"):
            if name in protocols:
                raise ConfigError(key, said, f"{name} is not served: expected classic, consumer")
        if "consumer" in protocols:
            self._check_consumer_groups()

    def _check_consumer_groups(self) -> None:
        key, names = "group.consumer.assignors", self.consumer_assignors
        if not names or any(name not in _ASSIGNOR_CLASSES.values() for name in names):
            raise ConfigError(key, ",".join(names), "expected uniform, range or both")
        key, policy = "group.consumer.migration.policy", self.group_consumer_migration_policy
        if policy.lower() not in _MIGRATIONS:
            raise ConfigError(key, policy, f"expected one of {', '.join(_MIGRATIONS)}")
        for what in ("session.timeout.ms", "heartbeat.interval.ms"):
            low = self.values[f"group.consumer.min.{what}"]
            high = self.values[f"group.consumer.max.{what}"]
            value = self.values[f"group.consumer.{what}"]
            if low > high:
                raise ConfigError(f"group.consumer.max.{what}", high, f"expected at least {low}")
            if not low <= value <= high:
                raise ConfigError(f"group.consumer.{what}", value, f"expected {low} to {high}")
        session_ms = self.group_consumer_session_timeout_ms
        beat_ms = self.group_consumer_heartbeat_interval_ms
        if beat_ms >= session_ms:
            key = "group.consumer.heartbeat.interval.ms"
            raise ConfigError(key, beat_ms, f"expected less than the session ({session_ms})")

    def _check_listeners(self) -> None:
        names = [endpoint.listener for endpoint in self.listeners]
        for endpoint in self.listeners:
            if endpoint.security_protocol not in SERVED_PROTOCOLS:
                raise ConfigError(
                    "listeners",
                    self.listeners_text,
                    f"{endpoint.security_protocol} is not served; expected one of "
                    + ", ".join(SERVED_PROTOCOLS),
                )
        for endpoint in self.advertised_listeners:
            if endpoint.listener not in names:
                raise ConfigError(
                    "advertised.listeners",
                    self.advertised_listeners_text,
                    f"{endpoint.listener} is not among listeners ({', '.join(names)})",
                )
            if endpoint.host == "0.0.0.0":
                raise ConfigError(
                    "advertised.listeners",
                    self.advertised_listeners_text or self.listeners_text,
                    "0.0.0.0 is no address that others can connect to; name a host",
                )
        advertised = [endpoint.listener for endpoint in self.advertised_listeners]
        if self.is_set("inter.broker.listener.name") and self.is_set(
            "security.inter.broker.protocol"
        ):
            raise ConfigError(
                "inter.broker.listener.name",
                self.inter_broker_listener_name,
                "expected only one of it and security.inter.broker.protocol",
            )
        for key, listener in (
            ("inter.broker.listener.name", self.inter_broker_listener),
            ("control.plane.listener.name", self.control_plane_listener),
        ):
            if listener not in advertised:
                raise ConfigError(
                    key,
                    listener,
                    f"expected one of the advertised listeners ({', '.join(advertised)})",
                )
        if self.control_plane_listener_name and (
            self.control_plane_listener == self.inter_broker_listener
        ):
            raise ConfigError(
                "control.plane.listener.name",
                self.control_plane_listener_name,
                "expected another listener than the inter-broker one",
            )

    def warnings(self) -> list[str]:
        """One line for each given key that is unknown or has no effect here."""
        lines = []
        for name in self.originals:
            if name in _PLUGIN_KEYS or name in self.KEYS or name in OwnSettings.KEYS:
                continue
            base = listener_base_name(name)
            if base is not None and base in self.KEYS:
                continue
            guess = nearest(name, [*self.KEYS, *OwnSettings.KEYS])
            hint = f"; did you mean {guess}?" if guess else ""
            lines.append(f"Unknown configuration {name}{hint}")
        lines.extend(
            f"Configuration {name} is accepted and has no effect"
            for name in _WITHOUT_EFFECT
            if self.is_set(name)
        )
        if self.min_insync_replicas > self.default_replication_factor > 1:
            lines.append(
                f"min.insync.replicas={self.min_insync_replicas} is above"
                f" default.replication.factor={self.default_replication_factor}:"
                " counts only up to a topic's replication factor"
            )
        return lines

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> "BrokerConfig":
        """This configuration under dynamic values; own ones stand before cluster defaults.

        Values that do not parse are left out: they were refused when they were set, or come from
        a broker of another version.
        """
        merged = dict(self.originals)
        for layer in (default, own):
            for name, text in layer.items():
                key = self.KEYS.get(name)
                if name in REPLICATION_THROTTLES and layer is own:
                    merged[name] = text
                if key is None or key.dynamic is Dynamic.READ_ONLY:
                    continue
                try:
                    key.parse(text)
                except ConfigError:
                    continue
                merged[name] = text
                for coarse in BrokerLayers.FALLBACKS.get(name, ()):
                    merged.pop(coarse, None)
        return type(self).parse(merged)


def listener_base_name(name: str) -> str | None:
    """The setting behind `listener.name.<listener>.<setting>`, None when it is no such name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name[len(LISTENER_PREFIX) :].split(".")
    for start in range(1, len(rest)):
        base = ".".join(rest[start:])
        if base in BrokerConfig.KEYS:
            return base
    return None


def _parse_protocol_map(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for part in text.split(","):
        name, colon, protocol = part.strip().partition(":")
        if not colon or not name or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map",
                text,
                f"expected NAME:PROTOCOL pairs with a protocol of {', '.join(PROTOCOLS)}",
            )
        name = name.strip().upper()
        if name in protocols:
            raise ConfigError("listener.security.protocol.map", text, f"{name} is named twice")
        protocols[name] = protocol.strip().upper()
    return protocols


def parse_listeners(key: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """`NAME://host:port,...` as endpoints; IPv6 hosts in brackets, an empty host stays empty."""
    endpoints: list[Endpoint] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        endpoint = _parse_listener(key, text, part, protocols)
        for other in endpoints:
            if other.listener == endpoint.listener:
                raise ConfigError(key, text, f"listener {endpoint.listener} is named twice")
            same_port = other.port == endpoint.port != 0 and key == "listeners"
            if same_port and (":" in other.host) == (":" in endpoint.host):
                raise ConfigError(key, text, f"port {endpoint.port} is used twice")
        endpoints.append(endpoint)
    if not endpoints:
        raise ConfigError(key, text, "expected at least one NAME://host:port")
    return tuple(endpoints)


def _parse_listener(key: str, text: str, part: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = part.partition("://")
    host, colon, port_text = address.rpartition(":")
    name = name.upper()
    if not separator or not colon or not name:
        raise ConfigError(key, text, f"expected NAME://host:port, found {part}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(key, text, f"an IPv6 host stands in brackets, found {part}")
    if not (port_text.isdecimal() and int(port_text) < 65536):
        raise ConfigError(key, text, f"expected a port from 0 to 65535, found {port_text or part}")
    if name not in protocols:
        raise ConfigError(
            key,
            text,
            f"no security protocol is defined for listener {name}"
            " in listener.security.protocol.map",
        )
    return Endpoint(name, protocols[name], host, int(port_text))


class LogConfig(TopicKeys):
    """The effective settings of one topic: its own values over the broker's defaults."""

    overrides: Mapping[str, str]
    """What the topic itself sets."""
    is_compacted: bool
    is_deleted: bool

    def __init__(
        self, given: Mapping[str, str] | None = None, defaults: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(given or {}, defaults)
        self._defaults: Mapping[str, Any] = defaults or {}
        self.overrides = self.originals
        self.is_compacted = "compact" in self.cleanup_policy
        self.is_deleted = "delete" in self.cleanup_policy
        difference = self.message_timestamp_difference_max_ms
        if difference != MAX_LONG:
            if self.message_timestamp_before_max_ms == MAX_LONG:
                self.message_timestamp_before_max_ms = difference
            if self.message_timestamp_after_max_ms == MAX_LONG:
                self.message_timestamp_after_max_ms = difference

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> "LogConfig":
        """Defaults that topics of this broker start from."""
        return cls({}, topic_defaults(config))

    def with_overrides(self, overrides: Mapping[str, str]) -> "LogConfig":
        """The same defaults under another topic's values.

        Values that do not parse are left out: they come from another version's broker.
        """
        if not overrides:
            return self if not self.overrides else LogConfig({}, self._defaults)
        usable = {}
        for name, text in overrides.items():
            key = self.KEYS.get(name)
            try:
                if key is not None:
                    key.parse(text)
                    usable[name] = text
            except ConfigError:
                continue
        return LogConfig(usable, self._defaults)

    @classmethod
    def validate_overrides(cls, overrides: Mapping[str, str | None]) -> None:
        """Check what somebody wants to set on a topic.  Raises ConfigError."""
        for name in overrides:
            if name not in cls.KEYS:
                raise UnknownTopicConfig(name)
        parsed = {name: cls.KEYS[name].parse(text) for name, text in overrides.items()}
        for name in _TIERED:
            if parsed.get(name):
                raise ConfigError(name, overrides[name], "tiered storage is not served")
        low = parsed.get("min.compaction.lag.ms", 0)
        high = parsed.get("max.compaction.lag.ms", MAX_LONG)
        if low > high:
            raise ConfigError(
                "min.compaction.lag.ms",
                low,
                f"expected at most max.compaction.lag.ms ({high})",
            )


class UnknownTopicConfig(ConfigError):
    """No topic setting has this name."""

    def __init__(self, name: str) -> None:
        ValueError.__init__(self, f"Unknown topic config name: {name}")
        self.key = name
        self.value = None
        self.problem = "unknown name"


def topic_defaults(config: BrokerConfig) -> dict[str, Any]:
    """Parsed topic settings as the broker's own settings imply them (reference: configs 1.3)."""
    defaults: dict[str, Any] = {}
    for name, key in LogConfig.KEYS.items():
        if len(key.broker_names) == 1:
            defaults[name] = config.values[key.broker_names[0]]
    defaults["segment.ms"] = _first(config.log_roll_ms, config.log_roll_hours * _MS_PER_HOUR)
    defaults["segment.jitter.ms"] = _first(
        config.log_roll_jitter_ms, config.log_roll_jitter_hours * _MS_PER_HOUR
    )
    defaults["flush.ms"] = _first(
        config.log_flush_interval_ms, config.log_flush_scheduler_interval_ms
    )
    minutes = config.log_retention_minutes
    retention = _first(
        config.log_retention_ms,
        None if minutes is None else minutes * _MS_PER_MINUTE,
        config.log_retention_hours * _MS_PER_HOUR,
    )
    defaults["retention.ms"] = -1 if retention < 0 else retention
    return defaults


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


class ConfigSource(IntEnum):
    """Where an effective value comes from, as DescribeConfigs numbers it."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


@dataclass(slots=True, frozen=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class ConfigEntry:
    """One described setting; `synonyms` are in order of precedence."""

    name: str
    value: str | None
    type: ConfigType | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]


class BrokerLayers:
    """The three layers of a broker's settings, as text, and what they amount to."""

    FALLBACKS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "log.roll.ms": ("log.roll.hours",),
        "log.roll.jitter.ms": ("log.roll.jitter.hours",),
        "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
        "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    }
    """Coarser settings that count while the fine one is unset.  A fine one that is set dynamically
    also hides what the file says of the coarse ones."""

    def __init__(
        self,
        static: BrokerConfig,
        dynamic_default: Mapping[str, str],
        dynamic_own: Mapping[str, str],
    ) -> None:
        self.static = static
        self.dynamic_default = dynamic_default
        self.dynamic_own = dynamic_own
        self.effective = static.with_dynamic(dynamic_default, dynamic_own)

    def synonyms(self, names: Iterable[str], sensitive: bool) -> tuple[ConfigSynonym, ...]:
        names = tuple(names)
        static = self.static.originals
        if names and names[0] in BrokerConfig.KEYS and self.effective.values[names[0]] is None:
            return ()
        layers = (
            (self.dynamic_own, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (static, ConfigSource.STATIC_BROKER),
            (_default_texts(), ConfigSource.DEFAULT),
        )
        return tuple(
            ConfigSynonym(name, None if sensitive else layer[name], source)
            for layer, source in layers
            for name in names
            if name in layer
        )


@functools.cache
def _default_texts() -> Mapping[str, str]:
    return {
        name: text
        for name, key in BrokerConfig.KEYS.items()
        if (text := format_value(key.type, key.default)) is not None
    }


def describe_broker(layers: BrokerLayers) -> list[ConfigEntry]:
    """Every setting of a broker, sorted by name; unknown given keys are sensitive and untyped."""
    effective = layers.effective
    names = {name for name, key in BrokerConfig.KEYS.items() if not key.internal}
    names.update(layers.static.originals, layers.dynamic_default, layers.dynamic_own)
    return [_describe_broker_key(name, layers, effective) for name in sorted(names)]


def _describe_broker_key(name: str, layers: BrokerLayers, effective: BrokerConfig) -> ConfigEntry:
    base = name if name in BrokerConfig.KEYS else listener_base_name(name)
    key = BrokerConfig.KEYS.get(base or name)
    sensitive = key is None or key.type is ConfigType.PASSWORD
    names = (name, *layers.FALLBACKS.get(name, ()))
    if base is not None and base != name:
        names = (name, base)
    synonyms = layers.synonyms(names, sensitive)
    value = None
    if key is not None and not sensitive:
        if name in BrokerConfig.KEYS:
            value = format_value(key.type, effective.values[name])
        elif synonyms:
            value = synonyms[0].value
    return ConfigEntry(
        name,
        value,
        None if key is None else key.type,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        key is None or key.dynamic is Dynamic.READ_ONLY,
        sensitive,
        synonyms,
    )


def describe_topic(overrides: Mapping[str, str], layers: BrokerLayers) -> list[ConfigEntry]:
    """Every setting of a topic, sorted by name."""
    config = LogConfig.from_broker(layers.effective).with_overrides(overrides)
    return [
        _describe_topic_key(key, overrides.get(name), config, layers)
        for name, key in LogConfig.KEYS.items()
        if not key.internal
    ]


def _describe_topic_key(
    key: Key, override: str | None, config: LogConfig, layers: BrokerLayers
) -> ConfigEntry:
    synonyms = layers.synonyms(key.broker_names, sensitive=False)
    if override is not None:
        shown = format_value(key.type, config.values[key.name])
        synonyms = (ConfigSynonym(key.name, shown, ConfigSource.TOPIC), *synonyms)
    return ConfigEntry(
        key.name,
        format_value(key.type, config.values[key.name]),
        key.type,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        synonyms=synonyms,
    )


def _is_host(text: str) -> bool:
    """A host with or without a port, IPv6 in brackets."""
    found = _HOST.fullmatch(text)
    return found is not None and (found[2] is None or 0 < int(found[2]) < 1 << 16)
