"""Every setting of a Kafka 3.9 broker and topic: name, type, default, range, dynamic or not.

The names, types and defaults are the wire contract of DescribeConfigs (reference: configs 1), so the
table also holds keys that have no effect here; `config.py` says which of those are refused.
"""

import sys
from typing import Final

from .settings import (
    Bool,
    ClassName,
    Double,
    Dynamic,
    Int,
    Long,
    Password,
    Settings,
    Short,
    Text,
    TextList,
    setting,
)

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
CLUSTER_WIDE: Final = Dynamic.CLUSTER_WIDE
PER_BROKER: Final = Dynamic.PER_BROKER

KAFKA_VERSIONS: Final = frozenset(
    [
        "0.8.0",
        "0.8.1",
        "0.8.2",
        "0.9.0",
        "0.10.0-IV0",
        "0.10.0-IV1",
        "0.10.1-IV0",
        "0.10.1-IV1",
        "0.10.1-IV2",
        "0.10.2-IV0",
        "0.11.0-IV0",
        "0.11.0-IV1",
        "0.11.0-IV2",
        "1.0-IV0",
        "1.1-IV0",
        "2.0-IV0",
        "2.0-IV1",
        "2.1-IV0",
        "2.1-IV1",
        "2.1-IV2",
        "2.2-IV0",
        "2.2-IV1",
        "2.3-IV0",
        "2.3-IV1",
        "2.4-IV0",
        "2.4-IV1",
        "2.5-IV0",
        "2.6-IV0",
        "2.7-IV0",
        "2.7-IV1",
        "2.7-IV2",
        "2.8-IV0",
        "2.8-IV1",
        "3.0-IV0",
        "3.0-IV1",
        "3.1-IV0",
        "3.2-IV0",
        "3.3-IV0",
        "3.3-IV1",
        "3.3-IV2",
        "3.3-IV3",
        "3.4-IV0",
        "3.5-IV0",
        "3.5-IV1",
        "3.5-IV2",
        "3.6-IV0",
        "3.6-IV1",
        "3.6-IV2",
        "3.7-IV0",
        "3.7-IV1",
        "3.7-IV2",
        "3.7-IV3",
        "3.7-IV4",
        "3.8-IV0",
        "3.9-IV0",
        "4.0-IV0",
        "4.0-IV1",
    ]
)
_SHORT_VERSIONS: Final = frozenset(v.split("-")[0] for v in KAFKA_VERSIONS)


def known_version(value: str) -> str | None:
    """A release (`3.9`) or one of its steps (`3.9-IV0`)."""
    numbers = value.split("-", maxsplit=1)[0].split(".")
    short = ".".join(numbers[:3] if numbers[0] == "0" else numbers[:2])
    if value in KAFKA_VERSIONS or ("-" not in value and short in _SHORT_VERSIONS):
        return None
    return f"Version {value} is not a valid version"


def gzip_level(value: int) -> str | None:
    """1 to 9, or -1 for the library's own default."""
    return (
        None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"
    )


def not_empty(value: str) -> str | None:
    return None if value else "String must be non-empty"


def throttled_replicas(value: tuple[str, ...]) -> str | None:
    """`*`, or partition:broker pairs."""
    if value in ((), ("*",)):
        return None
    for item in value:
        partition, colon, broker = item.partition(":")
        if not (colon and partition.isdecimal() and broker.isdecimal()):
            return "expected * or a comma list of partition:broker pairs"
    return None


class BrokerKeys(Settings):
    """Settings of server.properties, in alphabetical order."""

    advertised_listeners_text: Text | None = setting(
        None, name="advertised.listeners", dynamic=PER_BROKER
    )
    alter_config_policy_class_name: ClassName | None = setting(None)
    alter_config_policy_kraft_compatibility_enable: Bool = setting(False)
    alter_log_dirs_replication_quota_window_num: Int = setting(11, low=1)
    alter_log_dirs_replication_quota_window_size_seconds: Int = setting(1, low=1)
    authorizer_class_name: Text = setting("")
    auto_create_topics_enable: Bool = setting(True)
    auto_include_jmx_reporter: Bool = setting(True)
    auto_leader_rebalance_enable: Bool = setting(True)
    background_threads: Int = setting(10, low=1, dynamic=CLUSTER_WIDE)
    broker_heartbeat_interval_ms: Int = setting(2000)
    broker_id: Int = setting(-1)
    broker_id_generation_enable: Bool = setting(True)
    broker_rack: Text | None = setting(None)
    broker_session_timeout_ms: Int = setting(9000)
    client_quota_callback_class: ClassName | None = setting(None)
    compression_gzip_level: Int = setting(-1, check=gzip_level, dynamic=CLUSTER_WIDE)
    compression_lz4_level: Int = setting(9, low=1, high=17, dynamic=CLUSTER_WIDE)
    compression_type: Text = setting(
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=CLUSTER_WIDE,
    )
    compression_zstd_level: Int = setting(3, low=-131072, high=22, dynamic=CLUSTER_WIDE)
    connection_failed_authentication_delay_ms: Int = setting(100, low=0)
    connections_max_idle_ms: Long = setting(600_000)
    connections_max_reauth_ms: Long = setting(0)
    control_plane_listener_name: Text | None = setting(None)
    controlled_shutdown_enable: Bool = setting(True)
    controlled_shutdown_max_retries: Int = setting(3)
    controlled_shutdown_retry_backoff_ms: Long = setting(5000)
    controller_listener_names: Text | None = setting(None)
    controller_quorum_append_linger_ms: Int = setting(25)
    controller_quorum_bootstrap_servers: TextList = setting(())
    controller_quorum_election_backoff_max_ms: Int = setting(1000)
    controller_quorum_election_timeout_ms: Int = setting(1000)
    controller_quorum_fetch_timeout_ms: Int = setting(2000)
    controller_quorum_request_timeout_ms: Int = setting(2000)
    controller_quorum_retry_backoff_ms: Int = setting(20)
    controller_quorum_voters: TextList = setting(())
    controller_quota_window_num: Int = setting(11, low=1)
    controller_quota_window_size_seconds: Int = setting(1, low=1)
    controller_socket_timeout_ms: Int = setting(30_000)
    create_topic_policy_class_name: ClassName | None = setting(None)
    default_replication_factor: Int = setting(1)
    delegation_token_expiry_check_interval_ms: Long = setting(3_600_000, low=1)
    delegation_token_expiry_time_ms: Long = setting(86_400_000, low=1)
    delegation_token_master_key: Password | None = setting(None)
    delegation_token_max_lifetime_ms: Long = setting(604_800_000, low=1)
    delegation_token_secret_key: Password | None = setting(None)
    delete_records_purgatory_purge_interval_requests: Int = setting(1)
    delete_topic_enable: Bool = setting(True)
    early_start_listeners: Text | None = setting(None)
    eligible_leader_replicas_enable: Bool = setting(False)
    fetch_max_bytes: Int = setting(57_671_680, low=1024)
    fetch_purgatory_purge_interval_requests: Int = setting(1000)
    group_consumer_assignors: TextList = setting(
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        )
    )
    group_consumer_heartbeat_interval_ms: Int = setting(5000, low=1)
    group_consumer_max_heartbeat_interval_ms: Int = setting(15_000, low=1)
    group_consumer_max_session_timeout_ms: Int = setting(60_000, low=1)
    group_consumer_max_size: Int = setting(MAX_INT, low=1)
    # Kafka 4's default: 3.9 keeps it disabled, but never serves that protocol beside ZooKeeper.
    group_consumer_migration_policy: Text = setting("bidirectional", internal=True)
    group_consumer_min_heartbeat_interval_ms: Int = setting(5000, low=1)
    group_consumer_min_session_timeout_ms: Int = setting(45_000, low=1)
    group_consumer_session_timeout_ms: Int = setting(45_000, low=1)
    group_coordinator_append_linger_ms: Int = setting(10, low=0)
    group_coordinator_new_enable: Bool = setting(False, internal=True)
    group_coordinator_rebalance_protocols: TextList = setting(
        ("classic",), choices=("consumer", "classic", "share", "unknown")
    )
    group_coordinator_threads: Int = setting(1, low=1)
    group_initial_rebalance_delay_ms: Int = setting(3000)
    group_max_session_timeout_ms: Int = setting(1_800_000)
    group_max_size: Int = setting(MAX_INT, low=1)
    group_min_session_timeout_ms: Int = setting(6000)
    group_share_delivery_count_limit: Int = setting(5, low=2, high=10)
    group_share_enable: Bool = setting(False, internal=True)
    group_share_heartbeat_interval_ms: Int = setting(5000, low=1)
    group_share_max_groups: Short = setting(10, low=1, high=100)
    group_share_max_heartbeat_interval_ms: Int = setting(15_000, low=1)
    group_share_max_record_lock_duration_ms: Int = setting(60_000, low=30000, high=3600000)
    group_share_max_session_timeout_ms: Int = setting(60_000, low=1)
    group_share_max_size: Short = setting(200, low=10, high=1000)
    group_share_min_heartbeat_interval_ms: Int = setting(5000, low=1)
    group_share_min_record_lock_duration_ms: Int = setting(15_000, low=1000, high=30000)
    group_share_min_session_timeout_ms: Int = setting(45_000, low=1)
    group_share_partition_max_record_locks: Int = setting(200, low=100, high=10000)
    group_share_record_lock_duration_ms: Int = setting(30_000, low=1000, high=60000)
    group_share_session_timeout_ms: Int = setting(45_000, low=1)
    initial_broker_registration_timeout_ms: Int = setting(60_000)
    inter_broker_listener_name: Text | None = setting(None)
    inter_broker_protocol_version: Text = setting("3.9-IV0", check=known_version)
    kafka_metrics_polling_interval_secs: Int = setting(10, low=1)
    kafka_metrics_reporters: TextList = setting(())
    leader_imbalance_check_interval_seconds: Long = setting(300, low=1)
    leader_imbalance_per_broker_percentage: Int = setting(10)
    listener_security_protocol_map: Text = setting(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=PER_BROKER,
    )
    listeners_text: Text = setting("PLAINTEXT://:9092", name="listeners", dynamic=PER_BROKER)
    log_cleaner_backoff_ms: Long = setting(15_000, low=0, dynamic=CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size: Long = setting(134_217_728, dynamic=CLUSTER_WIDE)
    log_cleaner_delete_retention_ms: Long = setting(86_400_000, low=0, dynamic=CLUSTER_WIDE)
    log_cleaner_enable: Bool = setting(True)
    log_cleaner_io_buffer_load_factor: Double = setting(0.9, dynamic=CLUSTER_WIDE)
    log_cleaner_io_buffer_size: Int = setting(524_288, low=0, dynamic=CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: Double = setting(sys.float_info.max, dynamic=CLUSTER_WIDE)
    log_cleaner_max_compaction_lag_ms: Long = setting(MAX_LONG, low=1, dynamic=CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio: Double = setting(0.5, low=0, high=1, dynamic=CLUSTER_WIDE)
    log_cleaner_min_compaction_lag_ms: Long = setting(0, low=0, dynamic=CLUSTER_WIDE)
    log_cleaner_threads: Int = setting(1, low=0, dynamic=CLUSTER_WIDE)
    log_cleanup_policy: TextList = setting(
        ("delete",), choices=("compact", "delete"), dynamic=CLUSTER_WIDE
    )
    log_dir: Text = setting("/tmp/kafka-logs")
    log_dir_failure_timeout_ms: Long = setting(30_000, low=1)
    log_dirs_text: Text | None = setting(None, name="log.dirs")
    log_flush_interval_messages: Long = setting(MAX_LONG, low=1, dynamic=CLUSTER_WIDE)
    log_flush_interval_ms: Long | None = setting(None, dynamic=CLUSTER_WIDE)
    log_flush_offset_checkpoint_interval_ms: Int = setting(60_000, low=0)
    log_flush_scheduler_interval_ms: Long = setting(MAX_LONG)
    log_flush_start_offset_checkpoint_interval_ms: Int = setting(60_000, low=0)
    log_index_interval_bytes: Int = setting(4096, low=0, dynamic=CLUSTER_WIDE)
    log_index_size_max_bytes: Int = setting(10_485_760, low=4, dynamic=CLUSTER_WIDE)
    log_initial_task_delay_ms: Long = setting(30_000, low=0, internal=True)
    log_local_retention_bytes: Long = setting(-2, low=-2, dynamic=CLUSTER_WIDE)
    log_local_retention_ms: Long = setting(-2, low=-2, dynamic=CLUSTER_WIDE)
    log_message_downconversion_enable: Bool = setting(True, dynamic=CLUSTER_WIDE)
    log_message_format_version: Text = setting("3.0-IV1", check=known_version)
    log_message_timestamp_after_max_ms: Long = setting(MAX_LONG, low=0, dynamic=CLUSTER_WIDE)
    log_message_timestamp_before_max_ms: Long = setting(MAX_LONG, low=0, dynamic=CLUSTER_WIDE)
    log_message_timestamp_difference_max_ms: Long = setting(MAX_LONG, low=0, dynamic=CLUSTER_WIDE)
    log_message_timestamp_type: Text = setting(
        "CreateTime", choices=("CreateTime", "LogAppendTime"), dynamic=CLUSTER_WIDE
    )
    log_preallocate: Bool = setting(False, dynamic=CLUSTER_WIDE)
    log_retention_bytes: Long = setting(-1, dynamic=CLUSTER_WIDE)
    log_retention_check_interval_ms: Long = setting(300_000, low=1)
    log_retention_hours: Int = setting(168)
    log_retention_minutes: Int | None = setting(None)
    log_retention_ms: Long | None = setting(None, dynamic=CLUSTER_WIDE)
    log_roll_hours: Int = setting(168, low=1)
    log_roll_jitter_hours: Int = setting(0, low=0)
    log_roll_jitter_ms: Long | None = setting(None, dynamic=CLUSTER_WIDE)
    log_roll_ms: Long | None = setting(None, dynamic=CLUSTER_WIDE)
    log_segment_bytes: Int = setting(1_073_741_824, low=14, dynamic=CLUSTER_WIDE)
    log_segment_delete_delay_ms: Long = setting(60_000, low=0, dynamic=CLUSTER_WIDE)
    max_connection_creation_rate: Int = setting(MAX_INT, low=0, dynamic=CLUSTER_WIDE)
    max_connections: Int = setting(MAX_INT, low=0, dynamic=CLUSTER_WIDE)
    max_connections_per_ip: Int = setting(MAX_INT, low=0, dynamic=CLUSTER_WIDE)
    max_connections_per_ip_overrides: Text = setting("", dynamic=CLUSTER_WIDE)
    max_incremental_fetch_session_cache_slots: Int = setting(1000, low=0)
    max_request_partition_size_limit: Int = setting(2000, low=1)
    message_max_bytes: Int = setting(1_048_588, low=0, dynamic=CLUSTER_WIDE)
    metadata_log_dir: Text | None = setting(None)
    metadata_log_max_record_bytes_between_snapshots: Long = setting(20_971_520, low=1)
    metadata_log_max_snapshot_interval_ms: Long = setting(3_600_000, low=0)
    metadata_log_segment_bytes: Int = setting(1_073_741_824, low=12)
    metadata_log_segment_min_bytes: Int = setting(8_388_608, low=12, internal=True)
    metadata_log_segment_ms: Long = setting(604_800_000)
    metadata_max_idle_interval_ms: Int = setting(500, low=0)
    metadata_max_retention_bytes: Long = setting(104_857_600)
    metadata_max_retention_ms: Long = setting(604_800_000)
    metric_reporters: TextList = setting((), dynamic=CLUSTER_WIDE)
    metrics_num_samples: Int = setting(2, low=1)
    metrics_recording_level: Text = setting("INFO")
    metrics_sample_window_ms: Long = setting(30_000, low=1)
    min_insync_replicas: Int = setting(1, low=1, dynamic=CLUSTER_WIDE)
    node_id: Int = setting(-1)
    num_io_threads: Int = setting(8, low=1, dynamic=CLUSTER_WIDE)
    num_network_threads: Int = setting(3, low=1, dynamic=CLUSTER_WIDE)
    num_partitions: Int = setting(1, low=1)
    num_recovery_threads_per_data_dir: Int = setting(1, low=1, dynamic=CLUSTER_WIDE)
    num_replica_alter_log_dirs_threads: Int | None = setting(None)
    num_replica_fetchers: Int = setting(1, dynamic=CLUSTER_WIDE)
    offset_metadata_max_bytes: Int = setting(4096)
    offsets_commit_required_acks: Short = setting(-1)
    offsets_commit_timeout_ms: Int = setting(5000, low=1)
    offsets_load_buffer_size: Int = setting(5_242_880, low=1)
    offsets_retention_check_interval_ms: Long = setting(600_000, low=1)
    offsets_retention_minutes: Int = setting(10_080, low=1)
    offsets_topic_compression_codec: Int = setting(0)
    offsets_topic_num_partitions: Int = setting(50, low=1)
    offsets_topic_replication_factor: Short = setting(3, low=1)
    offsets_topic_segment_bytes: Int = setting(104_857_600, low=1)
    password_encoder_cipher_algorithm: Text = setting("AES/CBC/PKCS5Padding")
    password_encoder_iterations: Int = setting(4096, low=1024)
    password_encoder_key_length: Int = setting(128, low=8)
    password_encoder_keyfactory_algorithm: Text | None = setting(None)
    password_encoder_old_secret: Password | None = setting(None)
    password_encoder_secret: Password | None = setting(None)
    principal_builder_class: ClassName = setting(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        dynamic=PER_BROKER,
    )
    process_roles: TextList = setting((), choices=("broker", "controller"))
    producer_id_expiration_check_interval_ms: Int = setting(600_000, low=1, internal=True)
    producer_id_expiration_ms: Int = setting(86_400_000, low=1, dynamic=CLUSTER_WIDE)
    producer_purgatory_purge_interval_requests: Int = setting(1000)
    queued_max_request_bytes: Long = setting(-1)
    queued_max_requests: Int = setting(500, low=1)
    quota_window_num: Int = setting(11, low=1)
    quota_window_size_seconds: Int = setting(1, low=1)
    remote_fetch_max_wait_ms: Int = setting(500, low=1, dynamic=CLUSTER_WIDE)
    remote_log_index_file_cache_total_size_bytes: Long = setting(
        1_073_741_824, low=1, dynamic=CLUSTER_WIDE
    )
    remote_log_manager_copier_thread_pool_size: Int = setting(-1)
    remote_log_manager_copy_max_bytes_per_second: Long = setting(
        MAX_LONG, low=1, dynamic=CLUSTER_WIDE
    )
    remote_log_manager_copy_quota_window_num: Int = setting(11, low=1)
    remote_log_manager_copy_quota_window_size_seconds: Int = setting(1, low=1)
    remote_log_manager_expiration_thread_pool_size: Int = setting(-1)
    remote_log_manager_fetch_max_bytes_per_second: Long = setting(
        MAX_LONG, low=1, dynamic=CLUSTER_WIDE
    )
    remote_log_manager_fetch_quota_window_num: Int = setting(11, low=1)
    remote_log_manager_fetch_quota_window_size_seconds: Int = setting(1, low=1)
    remote_log_manager_task_interval_ms: Long = setting(30_000, low=1)
    remote_log_manager_task_retry_backoff_max_ms: Long = setting(30_000, low=1, internal=True)
    remote_log_manager_task_retry_backoff_ms: Long = setting(500, low=1, internal=True)
    remote_log_manager_task_retry_jitter: Double = setting(0.2, low=0, high=0.5, internal=True)
    remote_log_manager_thread_pool_size: Int = setting(10, low=1)
    remote_log_metadata_custom_metadata_max_bytes: Int = setting(128, low=0)
    remote_log_metadata_manager_class_name: Text = setting(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        check=not_empty,
    )
    remote_log_metadata_manager_class_path: Text | None = setting(None)
    remote_log_metadata_manager_impl_prefix: Text = setting("rlmm.config.", check=not_empty)
    remote_log_metadata_manager_listener_name: Text | None = setting(None, check=not_empty)
    remote_log_reader_max_pending_tasks: Int = setting(100, low=1)
    remote_log_reader_threads: Int = setting(10, low=1)
    remote_log_storage_manager_class_name: Text | None = setting(None, check=not_empty)
    remote_log_storage_manager_class_path: Text | None = setting(None)
    remote_log_storage_manager_impl_prefix: Text = setting("rsm.config.", check=not_empty)
    remote_log_storage_system_enable: Bool = setting(False)
    replica_fetch_backoff_ms: Int = setting(1000, low=0)
    replica_fetch_max_bytes: Int = setting(1_048_576, low=0)
    replica_fetch_min_bytes: Int = setting(1)
    replica_fetch_response_max_bytes: Int = setting(10_485_760, low=0)
    replica_fetch_wait_max_ms: Int = setting(500)
    replica_high_watermark_checkpoint_interval_ms: Long = setting(5000)
    replica_lag_time_max_ms: Long = setting(30_000)
    replica_selector_class: Text | None = setting(None)
    replica_socket_receive_buffer_bytes: Int = setting(65_536)
    replica_socket_timeout_ms: Int = setting(30_000)
    replication_quota_window_num: Int = setting(11, low=1)
    replication_quota_window_size_seconds: Int = setting(1, low=1)
    request_timeout_ms: Int = setting(30_000)
    reserved_broker_max_id: Int = setting(1000, low=0)
    sasl_client_callback_handler_class: ClassName | None = setting(None)
    sasl_enabled_mechanisms: TextList = setting(("GSSAPI",), dynamic=PER_BROKER)
    sasl_jaas_config: Password | None = setting(None, dynamic=PER_BROKER)
    sasl_kerberos_kinit_cmd: Text = setting("/usr/bin/kinit", dynamic=PER_BROKER)
    sasl_kerberos_min_time_before_relogin: Long = setting(60_000, dynamic=PER_BROKER)
    sasl_kerberos_principal_to_local_rules: TextList = setting(("DEFAULT",), dynamic=PER_BROKER)
    sasl_kerberos_service_name: Text | None = setting(None, dynamic=PER_BROKER)
    sasl_kerberos_ticket_renew_jitter: Double = setting(0.05, dynamic=PER_BROKER)
    sasl_kerberos_ticket_renew_window_factor: Double = setting(0.8, dynamic=PER_BROKER)
    sasl_login_callback_handler_class: ClassName | None = setting(None)
    sasl_login_class: ClassName | None = setting(None)
    sasl_login_connect_timeout_ms: Int | None = setting(None)
    sasl_login_read_timeout_ms: Int | None = setting(None)
    sasl_login_refresh_buffer_seconds: Short = setting(300, dynamic=PER_BROKER)
    sasl_login_refresh_min_period_seconds: Short = setting(60, dynamic=PER_BROKER)
    sasl_login_refresh_window_factor: Double = setting(0.8, dynamic=PER_BROKER)
    sasl_login_refresh_window_jitter: Double = setting(0.05, dynamic=PER_BROKER)
    sasl_login_retry_backoff_max_ms: Long = setting(10_000)
    sasl_login_retry_backoff_ms: Long = setting(100)
    sasl_mechanism_controller_protocol: Text = setting("GSSAPI")
    sasl_mechanism_inter_broker_protocol: Text = setting("GSSAPI", dynamic=PER_BROKER)
    sasl_oauthbearer_clock_skew_seconds: Int = setting(30)
    sasl_oauthbearer_expected_audience: TextList | None = setting(None)
    sasl_oauthbearer_expected_issuer: Text | None = setting(None)
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = setting(3_600_000)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: Long = setting(10_000)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: Long = setting(100)
    sasl_oauthbearer_jwks_endpoint_url: Text | None = setting(None)
    sasl_oauthbearer_scope_claim_name: Text = setting("scope")
    sasl_oauthbearer_sub_claim_name: Text = setting("sub")
    sasl_oauthbearer_token_endpoint_url: Text | None = setting(None)
    sasl_server_callback_handler_class: ClassName | None = setting(None)
    sasl_server_max_receive_size: Int = setting(524_288)
    security_inter_broker_protocol: Text = setting(
        "PLAINTEXT", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    security_providers: Text | None = setting(None)
    server_max_startup_time_ms: Long = setting(MAX_LONG, low=0, internal=True)
    socket_connection_setup_timeout_max_ms: Long = setting(30_000)
    socket_connection_setup_timeout_ms: Long = setting(10_000)
    socket_listen_backlog_size: Int = setting(50, low=1)
    socket_receive_buffer_bytes: Int = setting(102_400)
    socket_request_max_bytes: Int = setting(104_857_600, low=1)
    socket_send_buffer_bytes: Int = setting(102_400)
    ssl_allow_dn_changes: Bool = setting(False)
    ssl_allow_san_changes: Bool = setting(False)
    ssl_cipher_suites: TextList = setting((), dynamic=PER_BROKER)
    ssl_client_auth: Text = setting(
        "none", choices=("required", "requested", "none"), dynamic=PER_BROKER
    )
    ssl_enabled_protocols: TextList = setting(
        (
            "TLSv1.2",
            "TLSv1.3",
        ),
        dynamic=PER_BROKER,
    )
    ssl_endpoint_identification_algorithm: Text = setting("https", dynamic=PER_BROKER)
    ssl_engine_factory_class: ClassName | None = setting(None, dynamic=PER_BROKER)
    ssl_key_password: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_keymanager_algorithm: Text = setting("SunX509", dynamic=PER_BROKER)
    ssl_keystore_certificate_chain: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_keystore_key: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_keystore_location: Text | None = setting(None, dynamic=PER_BROKER)
    ssl_keystore_password: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_keystore_type: Text = setting("JKS", dynamic=PER_BROKER)
    ssl_principal_mapping_rules: Text = setting("DEFAULT")
    ssl_protocol: Text = setting("TLSv1.3", dynamic=PER_BROKER)
    ssl_provider: Text | None = setting(None, dynamic=PER_BROKER)
    ssl_secure_random_implementation: Text | None = setting(None, dynamic=PER_BROKER)
    ssl_trustmanager_algorithm: Text = setting("PKIX", dynamic=PER_BROKER)
    ssl_truststore_certificates: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_truststore_location: Text | None = setting(None, dynamic=PER_BROKER)
    ssl_truststore_password: Password | None = setting(None, dynamic=PER_BROKER)
    ssl_truststore_type: Text = setting("JKS", dynamic=PER_BROKER)
    telemetry_max_bytes: Int = setting(1_048_576, low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = setting(10_000, low=1)
    transaction_max_timeout_ms: Int = setting(900_000, low=1)
    transaction_partition_verification_enable: Bool = setting(True, dynamic=CLUSTER_WIDE)
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = setting(3_600_000, low=1)
    transaction_state_log_load_buffer_size: Int = setting(5_242_880, low=1)
    transaction_state_log_min_isr: Int = setting(2, low=1)
    transaction_state_log_num_partitions: Int = setting(50, low=1)
    transaction_state_log_replication_factor: Short = setting(3, low=1)
    transaction_state_log_segment_bytes: Int = setting(104_857_600, low=1)
    transactional_id_expiration_ms: Int = setting(604_800_000, low=1)
    unclean_leader_election_enable: Bool = setting(False, dynamic=CLUSTER_WIDE)
    unclean_leader_election_interval_ms: Long = setting(300_000, low=1, internal=True)
    unstable_api_versions_enable: Bool = setting(False, internal=True)
    unstable_feature_versions_enable: Bool = setting(False, internal=True)
    zookeeper_client_cnxn_socket: Text | None = setting(None, name="zookeeper.clientCnxnSocket")
    zookeeper_connect_text: Text | None = setting(None, name="zookeeper.connect")
    zookeeper_connection_timeout_ms: Int | None = setting(None)
    zookeeper_max_in_flight_requests: Int = setting(10, low=1)
    zookeeper_metadata_migration_enable: Bool = setting(False)
    zookeeper_metadata_migration_min_batch_size: Int = setting(200, low=1, internal=True)
    zookeeper_session_timeout_ms: Int = setting(18_000)
    zookeeper_set_acl: Bool = setting(False)
    zookeeper_ssl_cipher_suites: TextList | None = setting(None)
    zookeeper_ssl_client_enable: Bool = setting(False)
    zookeeper_ssl_crl_enable: Bool = setting(False)
    zookeeper_ssl_enabled_protocols: TextList | None = setting(None)
    zookeeper_ssl_endpoint_identification_algorithm: Text = setting("HTTPS")
    zookeeper_ssl_keystore_location: Text | None = setting(None)
    zookeeper_ssl_keystore_password: Password | None = setting(None)
    zookeeper_ssl_keystore_type: Text | None = setting(None)
    zookeeper_ssl_ocsp_enable: Bool = setting(False)
    zookeeper_ssl_protocol: Text = setting("TLSv1.2")
    zookeeper_ssl_truststore_location: Text | None = setting(None)
    zookeeper_ssl_truststore_password: Password | None = setting(None)
    zookeeper_ssl_truststore_type: Text | None = setting(None)


class GroupKeys(Settings):
    """Settings of one group of the newer protocol."""

    consumer_heartbeat_interval_ms: Int = setting(5000, low=1)
    consumer_session_timeout_ms: Int = setting(45_000, low=1)


class TopicKeys(Settings):
    """Settings of one topic; `broker_names` give the broker settings behind each default."""

    cleanup_policy: TextList = setting(
        ("delete",), choices=("compact", "delete"), broker_names=("log.cleanup.policy",)
    )
    compression_gzip_level: Int = setting(
        -1, check=gzip_level, broker_names=("compression.gzip.level",)
    )
    compression_lz4_level: Int = setting(9, low=1, high=17, broker_names=("compression.lz4.level",))
    compression_type: Text = setting(
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_names=("compression.type",),
    )
    compression_zstd_level: Int = setting(
        3, low=-131072, high=22, broker_names=("compression.zstd.level",)
    )
    delete_retention_ms: Long = setting(
        86_400_000, low=0, broker_names=("log.cleaner.delete.retention.ms",)
    )
    file_delete_delay_ms: Long = setting(
        60_000, low=0, broker_names=("log.segment.delete.delay.ms",)
    )
    flush_messages: Long = setting(MAX_LONG, low=1, broker_names=("log.flush.interval.messages",))
    flush_ms: Long = setting(
        MAX_LONG,
        low=0,
        broker_names=(
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
        ),
    )
    follower_replication_throttled_replicas: TextList = setting((), check=throttled_replicas)
    index_interval_bytes: Int = setting(4096, low=0, broker_names=("log.index.interval.bytes",))
    leader_replication_throttled_replicas: TextList = setting((), check=throttled_replicas)
    local_retention_bytes: Long = setting(-2, low=-2, broker_names=("log.local.retention.bytes",))
    local_retention_ms: Long = setting(-2, low=-2, broker_names=("log.local.retention.ms",))
    max_compaction_lag_ms: Long = setting(
        MAX_LONG, low=1, broker_names=("log.cleaner.max.compaction.lag.ms",)
    )
    max_message_bytes: Int = setting(1_048_588, low=0, broker_names=("message.max.bytes",))
    message_downconversion_enable: Bool = setting(
        True, broker_names=("log.message.downconversion.enable",)
    )
    message_format_version: Text = setting(
        "3.0-IV1", check=known_version, broker_names=("log.message.format.version",)
    )
    message_timestamp_after_max_ms: Long = setting(
        MAX_LONG, low=0, broker_names=("log.message.timestamp.after.max.ms",)
    )
    message_timestamp_before_max_ms: Long = setting(
        MAX_LONG, low=0, broker_names=("log.message.timestamp.before.max.ms",)
    )
    message_timestamp_difference_max_ms: Long = setting(
        MAX_LONG, low=0, broker_names=("log.message.timestamp.difference.max.ms",)
    )
    message_timestamp_type: Text = setting(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker_names=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: Double = setting(
        0.5, low=0, high=1, broker_names=("log.cleaner.min.cleanable.ratio",)
    )
    min_compaction_lag_ms: Long = setting(
        0, low=0, broker_names=("log.cleaner.min.compaction.lag.ms",)
    )
    min_insync_replicas: Int = setting(1, low=1, broker_names=("min.insync.replicas",))
    preallocate: Bool = setting(False, broker_names=("log.preallocate",))
    remote_log_copy_disable: Bool = setting(False)
    remote_log_delete_on_disable: Bool = setting(False)
    remote_storage_enable: Bool = setting(False)
    retention_bytes: Long = setting(-1, broker_names=("log.retention.bytes",))
    retention_ms: Long = setting(
        604_800_000,
        low=-1,
        broker_names=(
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ),
    )
    segment_bytes: Int = setting(1_073_741_824, low=14, broker_names=("log.segment.bytes",))
    segment_index_bytes: Int = setting(
        10_485_760, low=4, broker_names=("log.index.size.max.bytes",)
    )
    segment_jitter_ms: Long = setting(
        0,
        low=0,
        broker_names=(
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
        ),
    )
    segment_ms: Long = setting(
        604_800_000,
        low=1,
        broker_names=(
            "log.roll.ms",
            "log.roll.hours",
        ),
    )
    unclean_leader_election_enable: Bool = setting(
        False, broker_names=("unclean.leader.election.enable",)
    )
