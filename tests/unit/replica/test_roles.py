"""LeaderAndIsr and StopReplica: every check, every version (reference: replication 2, 3)."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaStorageError,
    NotLeaderOrFollower,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import LeaderAndIsrRequest, StopReplicaRequest
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of

from .support import T0, TOPIC_ID, Broker, State, leader_and_isr

OTHER_ID = bytes(reversed(range(16)))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, 3)
    return broker


def state(**fields: Any) -> State:
    values: dict[str, Any] = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 2],
        "partition_epoch": 0,
        "replicas": [1, 2],
        "is_new": True,
    }
    return State(**(values | fields))


# -- the order as a whole ----------------------------------------------------------------------


@pytest.mark.parametrize("version", range(8))
def test_every_version_is_understood_and_every_partition_answered(
    broker: Broker, version: int
) -> None:
    states = [state(partition_index=n, topic_name="t") for n in range(2)]
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
    if version < 2:
        request.ungrouped_partition_states = states
    else:
        request.topic_states = [
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name="t", topic_id=TOPIC_ID, partition_states=states
            )
        ]
    request = LeaderAndIsrRequest.decode(request.encode(version), version)
    response = broker.replicas.become_leader_or_follower(request, version)
    response = type(response).decode(response.encode(version), version)
    if version < 5:
        found = [(e.topic_name, e.partition_index, e.error_code) for e in response.partition_errors]
        assert found == [("t", 0, NONE), ("t", 1, NONE)]
    else:
        (topic,) = response.topics
        assert topic.topic_id == TOPIC_ID
        assert [(e.partition_index, e.error_code) for e in topic.partition_errors] == [
            (0, NONE),
            (1, NONE),
        ]
    assert broker.partition().is_leader
    assert broker.log().topic_id == (None if version < 5 else TOPIC_ID)


def test_broker_epoch_of_a_former_life_is_refused_and_a_newer_one_accepted(broker: Broker) -> None:
    """KIP-380, KAFKA-7235, KAFKA-9839."""
    for epoch, expected in ((99, StaleBrokerEpoch.code), (-1, NONE), (100, NONE), (101, NONE)):
        request = leader_and_isr("t", TOPIC_ID, state(leader_epoch=5 + epoch), broker_epoch=epoch)
        response = broker.replicas.become_leader_or_follower(request, 7)
        assert response.error_code == expected
        if expected:
            assert response.topics[0].partition_errors[0].error_code == expected
            assert broker.replicas.partition(T0) is None


def test_old_controller_is_refused_and_the_highest_epoch_remembered_from_all_orders(
    broker: Broker,
) -> None:
    """KAFKA-6082: what a zombie controller says changes nothing."""
    assert broker.replicas.check_controller_epoch(5, -1) == NONE
    response = broker.replicas.become_leader_or_follower(
        leader_and_isr("t", TOPIC_ID, state(), controller_epoch=4), 7
    )
    assert response.error_code == StaleControllerEpoch.code
    assert response.topics[0].partition_errors[0].error_code == StaleControllerEpoch.code
    assert broker.replicas.partition(T0) is None
    stop = StopReplicaRequest(controller_epoch=4)
    assert broker.replicas.stop_replicas(stop, 4).error_code == StaleControllerEpoch.code
    assert broker.replicas.check_controller_epoch(4, -1) == StaleControllerEpoch.code
    assert broker.replicas.check_controller_epoch(5, 99) == StaleBrokerEpoch.code
    assert broker.lead(controller_epoch=6) == NONE
    assert broker.replicas.check_controller_epoch(5, -1) == StaleControllerEpoch.code
    assert broker.replicas.stop_replicas(StopReplicaRequest(controller_epoch=7), 4).error_code == 0
    assert broker.replicas.check_controller_epoch(6, -1) == StaleControllerEpoch.code


# -- per partition -----------------------------------------------------------------------------


def test_checks_in_order(broker: Broker) -> None:
    assert broker.lead(epoch=3, replicas=[1, 2]) == NONE
    assert broker.lead(epoch=4, replicas=[1, 2], topic_id=OTHER_ID) == InconsistentTopicId.code
    assert broker.lead(epoch=4, replicas=[2, 3], isr=[2]) == UnknownTopicOrPartition.code
    assert broker.lead(epoch=2, replicas=[1, 2]) == StaleControllerEpoch.code
    assert broker.lead(epoch=3, replicas=[1, 2]) == StaleControllerEpoch.code
    assert broker.partition().leader_epoch == 3
    assert broker.lead(epoch=4, replicas=[1, 2]) == NONE
    assert broker.partition().leader_epoch == 4


def test_partition_of_others_is_not_hosted(broker: Broker) -> None:
    assert broker.order(leader=2, replicas=[2, 3]) == UnknownTopicOrPartition.code
    assert broker.replicas.partition(T0) is None
    assert broker.logs.logs == {}


def test_same_epoch_brings_the_topic_id_to_a_log_without(broker: Broker) -> None:
    """KIP-516, KAFKA-12835: the controller may add ids without a new epoch."""
    broker.lead(topic_id=bytes(16))
    assert broker.log().topic_id is None
    assert broker.lead() == NONE
    assert broker.log().topic_id == TOPIC_ID
    assert broker.lead() == StaleControllerEpoch.code


def test_same_epoch_without_id_makes_a_follower_fetch_by_name(broker: Broker) -> None:
    broker.order(leader=2, replicas=[1, 2])
    assert broker.order(leader=2, replicas=[1, 2], topic_id=bytes(16)) == NONE
    (fetcher,) = broker.replicas.fetchers._fetchers.values()
    (followed,) = fetcher.followed()
    assert followed.topic_id == bytes(16)


def test_offline_partition_answers_storage_error(broker: Broker) -> None:
    broker.lead()
    broker.replicas.log_dir_failed(broker.log().parent_dir)
    assert broker.lead(epoch=1) == KafkaStorageError.code
    assert broker.failed_dirs == [broker.logs.directories[0].path]


def test_missing_log_beside_a_failed_directory_is_not_made_anew(tmp_path: Path) -> None:
    """The data may be on the failed disk; only a new partition may go to another directory."""
    broker = Broker(1, tmp_path, FakeClock(), dirs=2)
    broker.logs.directories[0].fail(OSError("gone"))  # type: ignore[arg-type]
    assert broker.lead(is_new=False) == KafkaStorageError.code
    assert broker.replicas.partition(T0) is None
    assert broker.lead(epoch=1, is_new=True) == KafkaStorageError.code  # it is offline now
    other = TopicPartition("t", 1)
    assert broker.lead(other, is_new=True) == NONE
    assert broker.log(other).parent_dir == broker.logs.directories[1].path


# -- become leader -----------------------------------------------------------------------------


def test_older_partition_epoch_changes_nothing_and_is_no_error(broker: Broker) -> None:
    broker.lead(epoch=1, partition_epoch=5, replicas=[1, 2], isr=[1, 2])
    assert broker.lead(epoch=2, partition_epoch=4, replicas=[1, 2], isr=[1]) == NONE
    partition = broker.partition()
    assert (partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 5, (1, 2))


def test_new_epoch_starts_at_the_log_end_and_is_noted_without_a_record(broker: Broker) -> None:
    broker.lead(epoch=0)
    result_of(broker.produce("a", "b"))
    broker.lead(epoch=7)
    partition = broker.partition()
    assert partition.leader_epoch_start_offset == 2
    assert broker.log().leader_epochs == [(0, 0), (7, 2)]
    assert broker.log().log_end_offset == 2


def test_becoming_leader_never_truncates(broker: Broker) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2, 3])
    result_of(broker.produce("a", "b"))
    assert broker.log().high_watermark == 0
    broker.order(leader=2, epoch=1, replicas=[1, 2, 3])
    broker.lead(epoch=2, replicas=[1, 2, 3], isr=[1, 2, 3])
    assert (broker.log().log_end_offset, broker.log().high_watermark) == (2, 0)


def test_remote_replicas_start_unknown_on_a_new_leader_and_keep_their_offset_on_an_old_one(
    broker: Broker,
) -> None:
    broker.lead(replicas=[1, 2, 3], isr=[1, 2])
    partition = broker.partition()
    for replica in partition.remotes:
        replica.fetched(4, 1, 7.0, 4)
    broker.clock.advance(50)
    broker.lead(epoch=1, replicas=[1, 2, 3], isr=[1, 2])
    two, three = partition.remotes
    assert (two.log_end_offset, three.log_end_offset) == (4, 4)
    assert two.last_caught_up_s == two.last_fetch_s == 50
    assert three.last_caught_up_s == three.last_fetch_s == float("-inf")
    broker.order(leader=2, epoch=2, replicas=[1, 2, 3])
    assert not partition.remotes
    broker.lead(epoch=3, replicas=[1, 2, 3], isr=[1, 2])
    two, three = partition.remotes
    assert (two.log_end_offset, two.log_start_offset, two.last_caught_up_s) == (-1, -1, 50)
    assert (three.log_end_offset, three.last_caught_up_s) == (-1, float("-inf"))


def test_an_order_replaces_a_pending_isr_change(broker: Broker) -> None:
    """KIP-497: only the newer state may end a proposal whose answer is lost."""
    broker.lead(replicas=[1, 2], isr=[1, 2])
    broker.clock.advance(100)
    assert broker.partition().proposal is not None
    broker.lead(epoch=1, partition_epoch=1, replicas=[1, 2], isr=[1, 2])
    assert broker.partition().proposal is None
    assert broker.partition().isr == (1, 2)


def test_shrunk_isr_lets_the_high_watermark_jump(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = broker.produce("a", acks=-1)
    assert not waiting.called
    broker.lead(epoch=1, replicas=[1, 2], isr=[1])
    assert result_of(waiting).error_code == NONE
    assert broker.log().high_watermark == 1


def test_kafka_9672_replica_that_was_moved_away_no_longer_counts(broker: Broker) -> None:
    """KAFKA-9672, 9212: a new assignment in a new epoch, the old replica fetches on."""
    broker.lead(replicas=[1, 2, 3], isr=[1, 2, 3])
    waiting = broker.produce("a", acks=-1)
    broker.lead(epoch=1, replicas=[1, 3], isr=[1, 3], partition_epoch=1)
    assert [replica.broker_id for replica in broker.partition().remotes] == [3]
    refused = broker.read(1, replica_id=2)
    assert refused.error_code == NotLeaderOrFollower.code
    broker.read(1, replica_id=3)
    broker.clock.run_soon()
    assert result_of(waiting).error_code == NONE


# -- become follower ---------------------------------------------------------------------------


def test_follower_has_no_isr_and_no_remotes(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    broker.order(leader=2, epoch=1, replicas=[1, 2], isr=[2], partition_epoch=1)
    partition = broker.partition()
    assert (partition.leader_id, partition.isr, partition.remotes) == (2, (), ())
    assert partition.leader_epoch_start_offset == -1
    assert not partition.is_leader


def test_leader_that_is_not_in_the_metadata_is_not_followed_and_may_be_named_again(
    broker: Broker,
) -> None:
    broker.lead(epoch=0, replicas=[1, 9])
    assert broker.order(leader=9, epoch=1, replicas=[1, 9]) == NONE
    assert (broker.partition().leader_id, broker.partition().leader_epoch) == (1, 0)
    assert broker.replicas.fetchers.fetcher_count == 0
    broker.know(1, 9)
    assert broker.order(leader=9, epoch=1, replicas=[1, 9]) == NONE
    assert (broker.partition().leader_id, broker.partition().leader_epoch) == (9, 1)
    assert broker.replicas.fetchers.fetcher_count == 1


def test_leader_that_is_not_in_the_metadata_still_gets_a_log_created(broker: Broker) -> None:
    """KAFKA-1647: its high watermark must be in the checkpoint."""
    assert broker.order(leader=9, replicas=[1, 9]) == NONE
    assert T0 in broker.logs.logs
    assert broker.partition().leader_id is None


def test_waiting_requests_learn_that_leadership_is_lost(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = broker.produce("a", acks=-1)
    broker.order(leader=2, epoch=1, replicas=[1, 2])
    assert result_of(waiting).error_code == 6


def test_no_fetcher_is_started_while_shutting_down(broker: Broker) -> None:
    broker.replicas.begin_shutdown()
    assert broker.order(leader=2, replicas=[1, 2]) == NONE
    assert broker.partition().leader_id == 2
    assert broker.replicas.fetchers.fetcher_count == 0


def test_listeners_hear_of_leaders_followers_and_stops(broker: Broker) -> None:
    heard: list[tuple[list[str], list[str], list[tuple[str, int, bool]]]] = []
    broker.replicas.on_role_change(
        lambda changes: heard.append(
            (
                [str(p) for p in changes.leaders],
                [str(p) for p in changes.followers],
                [(str(s.topic_partition), s.leader_epoch, s.deleted) for s in changes.stopped],
            )
        )
    )
    broker.lead(replicas=[1, 2])
    broker.lead(epoch=1, replicas=[1, 2])  # led before: no news for a coordinator (KAFKA-15468)
    broker.order(leader=2, epoch=2, replicas=[1, 2])
    stop(broker, epoch=2, delete=True)
    assert heard == [(["t-0"], [], []), ([], ["t-0"], []), ([], [], [("t-0", 2, True)])]


# -- StopReplica -------------------------------------------------------------------------------


def stop(broker: Broker, *, epoch: int = -1, delete: bool = False, number: int = 0) -> int:
    request = StopReplicaRequest(
        controller_epoch=1,
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(
                topic_name="t",
                partition_states=[
                    StopReplicaRequest.StopReplicaTopicState.StopReplicaPartitionState(
                        partition_index=number, leader_epoch=epoch, delete_partition=delete
                    )
                ],
            )
        ],
    )
    response = broker.replicas.stop_replicas(request, 4)
    assert response.error_code == NONE
    return response.partition_errors[0].error_code


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_in_every_version(broker: Broker, version: int) -> None:
    broker.lead()
    request = StopReplicaRequest(controller_epoch=1)
    if version == 0:
        request.ungrouped_partitions = [
            StopReplicaRequest.StopReplicaPartitionV0(topic_name="t", partition_index=0)
        ]
    elif version < 3:
        request.topics = [StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=[0])]
    else:
        inner = StopReplicaRequest.StopReplicaTopicState.StopReplicaPartitionState
        request.topic_states = [
            StopReplicaRequest.StopReplicaTopicState(
                topic_name="t", partition_states=[inner(partition_index=0, delete_partition=True)]
            )
        ]
    if version < 3:
        request.delete_partitions = True
    request = StopReplicaRequest.decode(request.encode(version), version)
    response = broker.replicas.stop_replicas(request, version)
    response = type(response).decode(response.encode(version), version)
    assert [(e.topic_name, e.partition_index, e.error_code) for e in response.partition_errors] == [
        ("t", 0, NONE)
    ]
    assert broker.logs.deleted == [T0]


def test_late_stop_does_not_destroy_a_replica_assigned_again(broker: Broker) -> None:
    """KIP-570, KAFKA-9539."""
    broker.lead(epoch=5)
    assert stop(broker, epoch=4, delete=True) == FencedLeaderEpoch.code
    assert broker.partition().is_leader and broker.logs.deleted == []
    for epoch in (5, -1, -2):
        assert stop(broker, epoch=epoch) == NONE
    assert stop(broker, epoch=-2, delete=True) == NONE
    assert broker.replicas.partition(T0) is None and broker.logs.deleted == [T0]


def test_stop_without_delete_keeps_role_and_log(broker: Broker) -> None:
    broker.lead()
    assert stop(broker, epoch=0) == NONE
    assert broker.partition().is_leader
    assert result_of(broker.produce("a")).error_code == NONE


def test_stop_ends_the_fetching(broker: Broker) -> None:
    broker.order(leader=2, replicas=[1, 2])
    assert broker.replicas.fetchers.fetcher_count == 1
    stop(broker, epoch=0)
    assert broker.replicas.fetchers.fetcher_count == 0


def test_stop_of_an_unknown_partition_deletes_an_orphan_log(broker: Broker) -> None:
    assert stop(broker, delete=True) == NONE
    broker.logs.get_or_create(T0, None, is_new=True)
    assert stop(broker, delete=False) == NONE and broker.logs.deleted == []
    assert stop(broker, delete=True) == NONE and broker.logs.deleted == [T0]


def test_delete_answers_those_who_wait(broker: Broker) -> None:
    broker.know(1, 2, 3, partitions=[T0])
    broker.lead(replicas=[1, 2], isr=[1, 2])
    waiting = broker.produce("a", acks=-1)
    stop(broker, epoch=-2, delete=True)
    assert result_of(waiting).error_code == 6  # the cluster still knows the partition


def test_stop_of_an_offline_partition(broker: Broker) -> None:
    broker.lead()
    broker.replicas.log_dir_failed(broker.log().parent_dir)
    assert stop(broker, delete=True) == KafkaStorageError.code


def test_every_change_of_role_is_in_the_journal(broker: Broker) -> None:
    broker.lead(replicas=[1, 2], isr=[1, 2])
    broker.clock.advance(100)
    broker.order(leader=2, epoch=1, replicas=[1, 2], partition_epoch=1)
    stop(broker, epoch=-2, delete=False)
    stop(broker, epoch=-2, delete=True)
    kinds = [(c.kind, c.leader, c.leader_epoch, c.isr) for c in broker.changes]
    assert kinds == [
        ("leader", 1, 0, (1, 2)),
        ("isr-proposed", 1, 0, (1,)),
        ("follower", 2, 1, ()),
        ("stopped", 2, 1, ()),
        ("deleted", 2, 1, ()),
    ]


def after_a_disk_lost_its_end(root: Path) -> Broker:
    """A broker whose log of T0 had three records below its high watermark, and has one."""
    broker = Broker(1, root, FakeClock())
    broker.know(1, 2)
    broker.lead()
    for value in ("a", "b", "c"):
        result_of(broker.produce(value))
    assert broker.log().high_watermark == 3
    result_of(broker.logs.checkpoint_high_watermarks())
    path = Path(broker.log().segments[0].file.path)
    size = path.stat().st_size
    again = root / "again"
    shutil.copytree(root / "d0", again / "d0")
    copy = again / "d0" / path.relative_to(root / "d0")
    copy.write_bytes(copy.read_bytes()[: size // 3])
    back = Broker(1, again, FakeClock())
    back.know(1, 2)
    assert back.logs.shortened_logs() == {T0: 3}
    back.replicas.note_shortened_logs(back.logs.shortened_logs())
    return back


def test_a_leader_whose_log_was_cut_at_its_start_admits_the_loss(tmp_path: Path) -> None:
    broker = after_a_disk_lost_its_end(tmp_path)
    broker.lead(epoch=4)
    (loss,) = broker.losses
    assert (loss.topic_partition, loss.old_leader_epoch, loss.new_leader_epoch) == (T0, 0, 4)
    assert (loss.first_offset, loss.end_offset, loss.bytes, loss.producer_ids) == (1, 3, None, ())
    broker.lead(epoch=5)
    assert len(broker.losses) == 1


def test_a_follower_whose_log_was_cut_at_its_start_has_lost_nothing(tmp_path: Path) -> None:
    broker = after_a_disk_lost_its_end(tmp_path)
    broker.order(leader=2, epoch=4, replicas=[1, 2])
    broker.lead(epoch=5, replicas=[1, 2])
    assert broker.losses == []
