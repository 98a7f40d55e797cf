"""Closest replicas (KIP-392), throttles (KIP-73), former lives (KIP-903), log directories."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.quota import ReplicationQuota, parse_rate
from kafkalike.broker.replica.selector import RACK_AWARE
from kafkalike.config import BrokerConfig
from kafkalike.errors import KafkaStorageError
from kafkalike.messages.control import UpdateMetadataRequest
from kafkalike.messages.fetch import FetchResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of

from .support import (
    T0,
    TOPIC_ID,
    Broker,
    Cluster,
    contents,
    fetch_request,
    metadata,
    properties,
    values_of,
)

T1 = TopicPartition("t", 1)


# -- closest replica ---------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Leads with followers 2, 3, 4; 3 and 4 share a rack; offsets 0 to 3, all at the end."""
    broker = Broker(1, tmp_path, FakeClock(), settings={"replica_selector_class": RACK_AWARE})
    update = metadata([1, 2, 3, 4], [T0])
    for live, rack in zip(update.live_brokers, ("a", "b", "c", "c"), strict=True):
        live.rack = rack
    broker.metadata.update(update)
    broker.lead(replicas=[1, 2, 3, 4], isr=[1, 2, 3, 4])
    result_of(broker.produce("x", "y", "z"))
    for replica in (2, 3, 4):
        follow(broker, replica, 3)
    return broker


def follow(broker: Broker, replica: int, offset: int, log_start: int = 0) -> None:
    request = fetch_request({T0: offset}, replica_id=replica, log_start_offset=log_start)
    broker.fetch(request, 12)


def preferred(broker: Broker, rack: str, offset: int = 0, version: int = 12, **fields: Any) -> int:
    request = fetch_request({T0: offset}, max_wait_ms=500, **fields)
    request.rack_id = rack
    answer = broker.fetch(request, version)
    assert isinstance(answer, FetchResponse)
    partition = answer.responses[0].partitions[0]
    if partition.preferred_read_replica >= 0:
        assert partition.records == b"" and partition.error_code == 0
        assert (partition.high_watermark, partition.log_start_offset) == (3, 0)
    else:
        assert values_of(partition.records) == ["x", "y", "z"]
    return partition.preferred_read_replica


def test_consumer_is_sent_to_its_rack(broker: Broker) -> None:
    assert preferred(broker, "b") == 2
    assert preferred(broker, "a") == -1  # the leader's own
    assert preferred(broker, "") == -1
    assert preferred(broker, "nowhere") == -1


def test_ties_go_to_the_highest_id_and_progress_counts_first(broker: Broker) -> None:
    assert preferred(broker, "c") == 4
    broker.clock.advance(1)
    follow(broker, 3, 3)
    assert preferred(broker, "c") == 3  # caught up later
    follow(broker, 3, 2)
    assert preferred(broker, "c") == 4


def test_replica_must_be_in_sync_and_hold_the_offset(broker: Broker) -> None:
    follow(broker, 2, 1)
    assert preferred(broker, "b", offset=1) == 2
    assert preferred(broker, "b", offset=2) == -1
    follow(broker, 2, 3, log_start=1)
    assert preferred(broker, "b", offset=0) == -1
    broker.partition().isr = (1, 3, 4)
    assert preferred(broker, "b", offset=2) == -1


def test_only_consumers_of_versions_that_know_it(broker: Broker) -> None:
    assert preferred(broker, "b", version=11) == 2
    assert preferred(broker, "b", version=10) == -1


def test_replica_must_be_reachable_on_the_listener(broker: Broker) -> None:
    update = metadata([1, 2, 3, 4])
    update.live_brokers[1].rack = "b"
    endpoint = UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint
    update.live_brokers[1].endpoints = [endpoint(port=1, host="h", listener="INTERNAL")]
    broker.metadata.update(update)
    assert preferred(broker, "b") == -1


def test_session_is_told_the_preferred_replica_each_time(broker: Broker) -> None:
    request = fetch_request({T0: 0}, session=(0, 0))
    request.rack_id = "b"
    opened = broker.fetch(request, 12)
    assert isinstance(opened, FetchResponse)
    for epoch in (1, 2):
        request = fetch_request({}, session=(opened.session_id, epoch), max_wait_ms=500)
        request.rack_id = "b"
        answer = broker.fetch(request, 12)
        assert isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].preferred_read_replica == 2


def test_reading_on_a_follower_end_to_end(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, replica_selector_class=RACK_AWARE)
    cluster.controller.create(T0, 1, 2, 3)
    for value in "abc":
        cluster.produce(1, value)
    cluster.advance(1)
    request = fetch_request({T0: 0})
    request.rack_id = "rack2"
    answer = cluster[1].fetch(request, 12)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].preferred_read_replica == 2
    answer = cluster[2].fetch(request, 12)
    assert isinstance(answer, FetchResponse)
    assert values_of(answer.responses[0].partitions[0].records) == ["a", "b", "c"]


# -- throttles ---------------------------------------------------------------------------------


class Quota:
    def __init__(self, *replicas: str) -> None:
        self.clock = FakeClock()
        self.quota = ReplicationQuota(
            1, self.clock, lambda _: replicas, sample_count=11, sample_s=1.0
        )


def test_rate_is_averaged_over_the_window() -> None:
    world = Quota()
    world.quota.limit = 100
    assert not world.quota.is_exceeded()
    world.quota.record(100)
    assert (world.quota.rate(), world.quota.is_exceeded()) == (100, False)
    world.quota.record(1)
    assert world.quota.is_exceeded()
    world.clock.advance(2)
    assert world.quota.rate() == 50.5 and not world.quota.is_exceeded()
    world.clock.advance(9)
    assert world.quota.rate() == 0


def test_no_limit_is_never_exceeded() -> None:
    world = Quota()
    world.quota.record(1 << 40)
    assert not world.quota.is_exceeded()
    world.quota.limit = 0
    assert world.quota.is_exceeded()


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ((), False),
        (("*",), True),
        (("0:1",), True),
        (("0:2", "1:1"), False),
        (("0:2", "0:1"), True),
    ],
)
def test_throttled_replicas(listed: tuple[str, ...], expected: bool) -> None:
    assert Quota(*listed).quota.is_throttled(T0) is expected


def test_rates_as_configured() -> None:
    assert [parse_rate(text) for text in (None, "5", " 7 ", "x", "-1")] == [
        None, 5.0, 7.0, None, None,
    ]  # fmt: skip


def throttle(broker: Broker, which: str, rate: int, key: TopicPartition = T0) -> None:
    log = broker.log(key)
    log.update_config(log.config.with_overrides({f"{which}.replication.throttled.replicas": "*"}))
    broker.replicas.broker_config_changed(
        BrokerConfig.parse(
            properties(broker.id) | {f"{which}.replication.throttled.rate": str(rate)}
        )
    )


def test_leader_holds_back_followers_that_lag_and_nobody_else(tmp_path: Path) -> None:
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, 3)
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    throttle(broker, "leader", 10)
    result_of(broker.produce("a" * 1000))
    result_of(broker.produce("b"))
    assert len(values_of(broker.read(0, replica_id=3).records)) == 2  # whole fetches pass
    waiting = broker.fetch(fetch_request({T0: 0}, replica_id=3, max_wait_ms=500), 12)
    assert isinstance(waiting, Deferred)
    broker.clock.advance(1)
    held = result_of(waiting).responses[0].partitions[0]
    assert held.records == b"" and held.error_code == 0
    assert len(values_of(broker.read(0, replica_id=2).records)) == 2
    broker.log().update_high_watermark(2)
    assert len(values_of(broker.read(0).records)) == 2
    broker.clock.advance(20)
    assert len(values_of(broker.read(0, replica_id=3).records)) == 2


def test_follower_leaves_out_lagging_partitions_while_over_its_rate(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, count=2)
    cluster.controller.create(T0, 1, 2)
    cluster.controller.create(T1, 1, 2)
    cluster.advance(1)
    throttle(cluster[2], "follower", 10)
    result_of(cluster[1].produce("a" * 3000))
    cluster.advance(0.6)
    assert cluster[2].log().log_end_offset == 1
    result_of(cluster[1].produce("b" * 3000))
    result_of(cluster[1].produce("c", to=T1))
    cluster.advance(0.6)
    assert cluster[2].log(T1).log_end_offset == 1
    cluster.wire.seen.clear()
    cluster.advance(5)
    assert cluster[2].log().log_end_offset in (1, 2)
    result_of(cluster[1].produce("d" * 3000))
    cluster.advance(3)
    ends = cluster[2].log().log_end_offset
    cluster.advance(40)
    assert cluster[2].log().log_end_offset == 3 >= ends
    assert contents(cluster[2].log()) == contents(cluster[1].log())


# -- former lives ------------------------------------------------------------------------------


def test_fetch_of_a_former_life_does_not_count(tmp_path: Path) -> None:
    """KIP-903, KAFKA-15221: the follower may have lost since what it had then."""
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, partitions=[T0])
    broker.lead(replicas=[1, 2], isr=[1])
    result_of(broker.produce("a"))

    def fetch(offset: int, epoch: int) -> None:
        request = fetch_request({T0: offset}, replica_id=2, by_id=True)
        request.replica_state.replica_epoch = epoch
        broker.fetch(request)

    fetch(0, 7)
    fetch(1, 6)
    replica = broker.partition().remote(2)
    assert replica is not None and replica.log_end_offset == 0
    assert broker.partition().proposal is None
    fetch(1, 7)
    assert replica.log_end_offset == 1
    assert broker.partition().proposal is not None


# -- directories -------------------------------------------------------------------------------


def test_directories_are_described(tmp_path: Path) -> None:
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    broker.lead(T0)
    broker.lead(T1)
    result_of(broker.produce("a"))
    first, second = broker.replicas.describe_log_dirs()
    assert [d.path for d in (first, second)] == broker.logs.live_dirs
    (log,) = first.partitions
    assert (log.topic_partition, log.is_future, log.offset_lag) == (T0, False, 0)
    assert log.size_bytes == broker.log().size > 0
    assert first.total_bytes > first.usable_bytes > 0
    only = broker.replicas.describe_log_dirs({T1})
    assert [[log.topic_partition for log in d.partitions] for d in only] == [[], [T1]]


def test_failed_directory_is_described_and_its_partitions_are_gone(tmp_path: Path) -> None:
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    broker.lead(T0)
    broker.lead(T1)
    broker.logs.directories[0].fail(OSError("disk"))  # type: ignore[arg-type]
    good, bad = broker.replicas.describe_log_dirs()
    assert (good.error_code, bad.error_code) == (0, KafkaStorageError.code)
    assert bad.path == broker.logs.offline_dirs[0] and bad.partitions == []
    assert broker.replicas.partition(T0) is None
    assert result_of(broker.produce("a", to=T1)).error_code == 0
    assert broker.failed_dirs == [bad.path]
    assert broker.metrics.value("kafka.server", "ReplicaManager", "OfflineReplicaCount") == 1


def test_follower_on_a_failed_directory_stops_fetching(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.controller.create(T0, 1, 2, 3)
    cluster.settle()
    cluster[2].logs.directories[0].fail(OSError("disk"))  # type: ignore[arg-type]
    result_of(cluster[1].produce("a"))
    cluster.advance(50)
    assert cluster.controller.states[T0].isr == (1, 3)
    assert cluster[2].order(T0, leader=1, epoch=1, replicas=[1, 2, 3]) == KafkaStorageError.code


def test_metrics_count_partitions_by_state(tmp_path: Path) -> None:
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2)
    broker.lead(T0, replicas=[1, 2], isr=[1])
    broker.order(T1, leader=2, replicas=[1, 2])

    def gauge(name: str) -> float:
        return broker.metrics.value("kafka.server", "ReplicaManager", name)

    assert [gauge(n) for n in ("LeaderCount", "PartitionCount")] == [1, 2]
    assert gauge("UnderReplicatedPartitions") == 1
    assert (gauge("UnderMinIsrPartitionCount"), gauge("AtMinIsrPartitionCount")) == (0, 1)
    broker.log().update_config(broker.log().config.with_overrides({"min.insync.replicas": "2"}))
    assert gauge("UnderMinIsrPartitionCount") == 1
    assert gauge("ReassigningPartitions") == 0
    broker.lead(T0, epoch=1, replicas=[1, 2, 3], isr=[1, 2], adding_replicas=[3])
    assert gauge("ReassigningPartitions") == 1
    assert gauge("UnderReplicatedPartitions") == 0  # counted against the original set
    assert broker.log().topic_id == TOPIC_ID
