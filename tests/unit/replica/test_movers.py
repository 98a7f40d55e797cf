"""Replicas that move to another log directory (KIP-113; reference: replication 12, log-store 10)."""

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from kafkalike.config import BrokerConfig
from kafkalike.errors import (
    NONE,
    InvalidTopicException,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of

from .support import T0, Broker, batch, contents, fetch_request, properties, values_of
from .test_roles import stop

T1 = TopicPartition("t", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Leads a partition with ten records; two directories."""
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    broker.know(1, 2, partitions=[T0])
    broker.lead(replicas=[1, 2], isr=[1])
    for number in range(10):
        assert result_of(broker.produce(f"v{number}")).error_code == NONE
    return broker


def other_dir(broker: Broker, key: TopicPartition = T0) -> str:
    current = broker.log(key).parent_dir
    return next(path for path in broker.logs.live_dirs if path != current)


def move(broker: Broker, path: str, key: TopicPartition = T0) -> int:
    return broker.replicas.alter_log_dirs({key: path})[key]


def test_replica_moves_while_it_is_written_and_read(broker: Broker) -> None:
    target, before = other_dir(broker), contents(broker.log())
    assert move(broker, target) == NONE
    (current,) = [d for d in broker.replicas.describe_log_dirs() if d.path != target]
    (future,) = [d for d in broker.replicas.describe_log_dirs() if d.path == target]
    assert [log.is_future for log in (*current.partitions, *future.partitions)] == [False, True]
    assert future.partitions[0].offset_lag == 10
    assert result_of(broker.produce("during")).error_code == NONE
    broker.clock.advance(1)
    assert broker.log().parent_dir == target and not broker.log().is_future
    assert broker.partition().future is None and len(broker.replicas._movers) == 0
    assert contents(broker.log()) == [*before, (10, 0, "during")]
    assert broker.log().high_watermark == 11
    assert broker.log().leader_epochs == [(0, 0)]
    assert result_of(broker.produce("after")).last_offset == 11
    assert values_of(broker.read(10).records) == ["during", "after"]
    assert [len(d.partitions) for d in broker.replicas.describe_log_dirs()].count(1) == 1


def test_replica_stays_moved_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    target = other_dir(broker)
    move(broker, target)
    broker.clock.advance(1)
    broker.logs.crash(checkpoint=True)
    again = Broker(1, tmp_path, broker.clock, dirs=2)
    again.lead(replicas=[1, 2], isr=[1], epoch=1, is_new=False)
    assert again.log().parent_dir == target and again.log().log_end_offset == 10


def test_interrupted_move_goes_on_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    target = other_dir(broker)
    move(broker, target)
    broker.replicas.stop()
    broker.logs.crash(checkpoint=True)
    again = Broker(1, tmp_path, broker.clock, dirs=2)
    assert again.logs.get_log(T0, future=True) is not None
    again.clock.advance(1)
    assert again.logs.get_log(T0, future=True) is not None  # no role yet
    again.know(1, 2, partitions=[T0])
    again.lead(replicas=[1, 2], isr=[1], epoch=1, is_new=False)
    again.clock.advance(1)
    assert again.log().parent_dir == target and again.log().log_end_offset == 10


def test_copy_of_records_that_are_gone_is_cut_when_the_move_goes_on(
    broker: Broker, tmp_path: Path
) -> None:
    target = other_dir(broker)
    broker.replicas._movers._stopped = True  # the copy is there, the end of the move is not
    move(broker, target)
    future = broker.logs.get_log(T0, future=True)
    assert future is not None
    for offset in range(10):
        future.append_as_follower(batch(f"v{offset}", base_offset=offset, partition_leader_epoch=0))
    future.append_as_follower(batch("x", base_offset=10, partition_leader_epoch=3))
    broker.logs.crash(checkpoint=True)
    again = Broker(1, tmp_path, broker.clock, dirs=2)
    again.know(1, 2, partitions=[T0])
    again.lead(replicas=[1, 2], isr=[1], epoch=4, is_new=False)
    result_of(again.produce("y"))
    again.clock.advance(1)
    assert again.log().parent_dir == target
    assert contents(again.log())[-2:] == [(9, 0, "v9"), (10, 4, "y")]


def test_truncation_and_log_start_reach_the_future_log(broker: Broker) -> None:
    move(broker, other_dir(broker))
    future = broker.partition().future
    assert future is not None
    for offset in range(10):
        future.append_as_follower(batch(f"v{offset}", base_offset=offset, partition_leader_epoch=0))
    broker.partition().truncate_to(7)
    assert future.log_end_offset == 7
    broker.partition().truncate_fully_and_start_at(20)
    assert (future.log_start_offset, future.log_end_offset) == (20, 20)
    broker.clock.advance(1)
    assert broker.log() is future


def test_replica_moves_whose_log_begins_inside_a_batch(broker: Broker) -> None:
    """DeleteRecords may leave the first records of a batch behind: they are copied along."""
    result_of(broker.produce("a", "b", "c", "d"))
    assert broker.log().maybe_increment_log_start_offset(12)
    target = other_dir(broker)
    assert move(broker, target) == NONE
    broker.clock.advance(1)
    assert broker.log().parent_dir == target and len(broker.replicas._movers) == 0
    assert broker.log().log_start_offset == 12
    assert values_of(broker.read(12).records)[-2:] == ["c", "d"]


def test_low_watermark_counts_the_future_log(broker: Broker) -> None:
    move(broker, other_dir(broker))
    broker.fetch(fetch_request({T0: 10}, replica_id=2, log_start_offset=5), 12)
    waiting = broker.replicas.delete_records({T0: 5}, timeout_ms=1000)
    assert isinstance(waiting, Deferred)
    broker.clock.advance(0.5)
    assert result_of(waiting) == {T0: (5, NONE)}
    assert broker.log().log_start_offset == 5


def test_move_back_cancels(broker: Broker) -> None:
    home = broker.log().parent_dir
    move(broker, other_dir(broker))
    assert move(broker, home) == NONE
    assert broker.logs.get_log(T0, future=True) is None and broker.partition().future is None
    broker.clock.advance(1)
    assert broker.log().parent_dir == home


def test_same_target_again_goes_on(broker: Broker) -> None:
    target = other_dir(broker)
    assert [move(broker, target), move(broker, target)] == [NONE, NONE]
    broker.clock.advance(1)
    assert broker.log().parent_dir == target


def test_refusals(broker: Broker) -> None:
    long_name = TopicPartition("n" * 249, 0)
    assert move(broker, "/nowhere") == LogDirNotFound.code
    assert move(broker, other_dir(broker), long_name) == InvalidTopicException.code
    assert move(broker, other_dir(broker), T1) == UnknownTopicOrPartition.code
    broker.know(1, 2, partitions=[T0, T1])
    assert move(broker, other_dir(broker), T1) == ReplicaNotAvailable.code


def test_preference_is_remembered_for_a_partition_to_come(broker: Broker) -> None:
    target = broker.log().parent_dir  # the fuller one
    assert move(broker, target, T1) == UnknownTopicOrPartition.code
    broker.lead(T1)
    assert broker.log(T1).parent_dir == target


def test_failed_target_ends_the_move_and_leaves_the_replica(broker: Broker) -> None:
    target = other_dir(broker)
    move(broker, target)
    next(d for d in broker.logs.directories if d.path == target).fail(OSError("disk"))  # type: ignore[arg-type]
    broker.clock.advance(1)
    assert len(broker.replicas._movers) == 0 and broker.partition().future is None
    assert result_of(broker.produce("a")).error_code == NONE
    assert move(broker, target) == KafkaStorageError.code


def test_failed_source_takes_the_partition_offline(broker: Broker) -> None:
    target = other_dir(broker)
    move(broker, target)
    broker.log().directory.fail(OSError("disk"))  # type: ignore[arg-type]
    broker.clock.advance(1)
    assert broker.replicas.partition(T0) is None and len(broker.replicas._movers) == 0
    assert move(broker, target) == KafkaStorageError.code


def test_deleted_partition_takes_its_future_log_along(broker: Broker) -> None:
    move(broker, other_dir(broker))
    assert stop(broker, epoch=-2, delete=True) == NONE
    broker.clock.advance(1)
    assert broker.logs.get_log(T0) is None and broker.logs.get_log(T0, future=True) is None


def test_moves_are_throttled(broker: Broker) -> None:
    broker.replicas.broker_config_changed(
        BrokerConfig.parse(properties(1) | {"replica.alter.log.dirs.io.max.bytes.per.second": "1"})
    )
    target = other_dir(broker)
    move(broker, target)
    for _ in range(3):
        broker.clock.advance(0)
    result_of(broker.produce("late"))
    broker.clock.advance(5)
    assert broker.log().parent_dir != target
    broker.clock.advance(30)
    assert broker.log().parent_dir == target
