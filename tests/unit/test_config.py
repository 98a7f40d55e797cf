"""Settings: parsing, checks, derived values, descriptions (reference: configs 1-3)."""

import pytest

from kafkalike.config import (
    BrokerConfig,
    BrokerLayers,
    ConfigError,
    ConfigSource,
    LogConfig,
    UnknownTopicConfig,
    describe_broker,
    describe_topic,
)
from kafkalike.settings import java_double
from kafkalike.types import Endpoint

MINIMAL = {"zookeeper.connect": "localhost:2181", "broker.id": "1"}


def parse(**changes: str) -> BrokerConfig:
    return BrokerConfig.parse(MINIMAL | {k.replace("_", "."): v for k, v in changes.items()})


def test_defaults_are_kafkas() -> None:
    config = parse()
    assert config.num_partitions == 1
    assert config.log_segment_bytes == 1 << 30
    assert config.zookeeper_session_timeout_ms == 18000
    assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == config.listeners
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.node_id == 1
    assert len([key for key in config.KEYS.values() if not key.internal]) >= 313


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "either true or false"),
        ("compression.type", "lzma", "must be one of"),
        ("compression.gzip.level", "10", "between 1 and 9"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("listeners", "PLAINTEXT://:70000", "0 to 65535"),
        ("listeners", "PLAINTEXT://:9092,OTHER://:9093", "no security protocol"),
        ("listeners", "PLAINTEXT://::1:9092", "brackets"),
        ("listeners", "nonsense", "NAME://host:port"),
        ("listeners", "", "at least one"),
        ("listeners", "SSL://:9092", "SSL is not served"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "no address"),
        ("advertised.listeners", "SSL://host:9092", "not among listeners"),
        ("listener.security.protocol.map", "PLAINTEXT:TELNET", "pairs with a protocol of"),
        ("zookeeper.connect", "", "host:port"),
        ("process.roles", "broker", "KRaft is not served"),
        (
            "authorizer.class.name",
            "kafka.security.authorizer.AclAuthorizer",
            "all would be allowed",
        ),
        ("create.topic.policy.class.name", "com.example.Policy", "Java policies"),
        ("alter.config.policy.class.name", "com.example.Policy", "Java policies"),
        ("client.quota.callback.class", "com.example.Quota", "client quotas"),
        ("remote.log.storage.system.enable", "true", "tiered storage"),
        ("inter.broker.protocol.version", "3.8", "only 3.9"),
        ("inter.broker.protocol.version", "5.0", "not a valid version"),
        ("replica.fetch.wait.max.ms", "40000", "replica.socket.timeout.ms"),
        ("log.dirs", "/a,/b,/a", "named twice"),
        ("broker.id", "1001", "reserved.broker.max.id"),
        ("broker.id", "-2", "0 or more"),
        ("log.retention.ms", "0", "not 0"),
        ("zookeeper.session.timeout.ms", "0", "1 or more"),
        ("default.replication.factor", "0", "1 or more"),
        ("connections.max.idle.ms", "-5", "1 or more"),
        ("max.connections.per.ip", "0", "overrides"),
        ("control.plane.listener.name", "PLAINTEXT", "another listener"),
        ("inter.broker.listener.name", "INSIDE", "one of the advertised"),
    ],
)
def test_wrong_values_are_named(key: str, value: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part) as caught:
        BrokerConfig.parse(MINIMAL | {key: value})
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_zookeeper_is_named() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        BrokerConfig.parse({"broker.id": "1"})


def test_several_listeners_with_ipv6() -> None:
    config = parse(
        listeners="IN://[::1]:9092,OUT://127.0.0.1:9092",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="IN",
    )
    assert [e.host for e in config.listeners] == ["::1", "127.0.0.1"]
    assert config.inter_broker_listener == config.control_plane_listener == "IN"
    with pytest.raises(ConfigError, match="port 9092 is used twice"):
        parse(
            listeners="IN://127.0.0.1:9092,OUT://10.0.0.1:9092",
            listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
            inter_broker_listener_name="IN",
        )


def test_unknown_key_is_warned_with_the_nearest() -> None:
    config = BrokerConfig.parse(
        MINIMAL
        | {
            "num.partitons": "3",
            "super.users": "User:x",
            "listener.name.plaintext.max.connections": "5",
            "num.io.threads": "8",
        }
    )
    assert config.warnings() == [
        "Unknown configuration num.partitons; did you mean num.partitions?",
        "Configuration num.io.threads is accepted and has no effect",
    ]


def test_topic_settings_follow_the_brokers() -> None:
    config = parse(log_retention_hours="2", log_roll_ms="5000", message_max_bytes="1000")
    topic = LogConfig.from_broker(config)
    assert topic.retention_ms == 7_200_000
    assert topic.segment_ms == 5000
    assert topic.max_message_bytes == 1000
    own = topic.with_overrides({"retention.ms": "9", "cleanup.policy": "compact", "bad": "x"})
    assert (own.retention_ms, own.is_compacted, own.is_deleted) == (9, True, False)
    assert own.max_message_bytes == 1000
    assert own.with_overrides({}).retention_ms == 7_200_000
    assert LogConfig.from_broker(parse(log_retention_minutes="3")).retention_ms == 180_000
    assert LogConfig.from_broker(parse(log_retention_hours="-1")).retention_ms == -1


def test_timestamp_difference_counts_while_the_others_are_unset() -> None:
    topic = LogConfig({"message.timestamp.difference.max.ms": "7"})
    assert topic.message_timestamp_before_max_ms == topic.message_timestamp_after_max_ms == 7
    topic = LogConfig(
        {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "8"}
    )
    assert (topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms) == (7, 8)


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"nope": "1"}, UnknownTopicConfig),
        ({"cleanup.policy": "shred"}, ConfigError),
        ({"segment.bytes": "13"}, ConfigError),
        ({"retention.ms": "-2"}, ConfigError),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, ConfigError),
        ({"leader.replication.throttled.replicas": "0-1"}, ConfigError),
    ],
)
def test_topic_settings_are_checked(
    overrides: dict[str, str | None], error: type[ConfigError]
) -> None:
    with pytest.raises(error):
        LogConfig.validate_overrides(overrides)


def test_topic_settings_that_pass() -> None:
    LogConfig.validate_overrides(
        {
            "cleanup.policy": "",
            "retention.ms": "-1",
            "leader.replication.throttled.replicas": "0:1,1:2",
            "follower.replication.throttled.replicas": "*",
        }
    )


def test_replication_throttles_of_a_broker_take_effect() -> None:
    """They are declared nowhere and exist only as a broker's own dynamic settings."""
    rate = {"leader.replication.throttled.rate": "1000"}
    own = BrokerLayers(parse(), {}, rate)
    assert own.effective.originals["leader.replication.throttled.rate"] == "1000"
    default = BrokerLayers(parse(), rate, {})
    assert "leader.replication.throttled.rate" not in default.effective.originals


def test_own_settings_are_checked_and_known() -> None:
    config = parse(kafkalike_journal_dir="/j", kafkalike_journal_max_bytes="0")
    assert (config.own.kafkalike_journal_dir, config.own.kafkalike_journal_max_bytes) == ("/j", 0)
    assert config.warnings() == []
    assert parse().own.kafkalike_journal_max_bytes == 64 << 20
    with pytest.raises(ConfigError, match=r"kafkalike\.journal\.max\.bytes"):
        parse(kafkalike_journal_max_bytes="-1")
    (line,) = parse(kafkalike_journal_max_byte="1").warnings()
    assert "did you mean kafkalike.journal.max.bytes?" in line


def test_dynamic_values_stand_before_static_ones() -> None:
    static = parse(log_retention_hours="100")
    layers = BrokerLayers(
        static,
        {"log.retention.ms": "999", "broker.id": "7", "log.segment.bytes": "junk"},
        {"log.retention.ms": "777"},
    )
    assert layers.effective.log_retention_ms == 777
    assert layers.effective.broker_id == 1
    assert layers.effective.log_segment_bytes == 1 << 30
    entries = {entry.name: entry for entry in describe_broker(layers)}
    entry = entries["log.retention.ms"]
    assert (entry.value, entry.source, entry.read_only) == (
        "777",
        ConfigSource.DYNAMIC_BROKER,
        False,
    )
    assert [(s.name, s.value, int(s.source)) for s in entry.synonyms] == [
        ("log.retention.ms", "777", 2),
        ("log.retention.ms", "999", 3),
        ("log.retention.hours", "100", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert entries["log.retention.hours"].value == "168"
    assert entries["advertised.listeners"].synonyms == ()
    assert entries["ssl.key.password"].sensitive


def test_describe_topic() -> None:
    layers = BrokerLayers(parse(message_max_bytes="5000"), {}, {})
    entries = {e.name: e for e in describe_topic({"retention.ms": "5"}, layers)}
    assert len(entries) == 36
    assert [(s.name, int(s.source)) for s in entries["retention.ms"].synonyms] == [
        ("retention.ms", 1)
    ]
    assert entries["max.message.bytes"].source is ConfigSource.STATIC_BROKER
    assert entries["remote.storage.enable"].synonyms == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
        (123456789.5, "1.234567895E8"),
        (9999999.0, "9999999.0"),
    ],
)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize("text", ["", ",", "[::1", "z:0", "z:65536", "z:x", "a,,b", "http://z:1"])
def test_malformed_zookeeper_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect: expected host:port"):
        BrokerConfig.parse({**MINIMAL, "zookeeper.connect": text})


@pytest.mark.parametrize("text", ["z", "z:1", "[::1]:2181,z", "a:1, b:2/chroot/x", "10.0.0.1:2181"])
def test_zookeeper_addresses(text: str) -> None:
    config = BrokerConfig.parse({**MINIMAL, "zookeeper.connect": text})
    assert config.zookeeper_connect == text


def test_what_is_required_is_named_as_missing() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect: it is required"):
        BrokerConfig.parse({"broker.id": "1", "log.dirs": "/d"})
