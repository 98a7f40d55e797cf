"""Each check must be silent about a cluster that kept its promises, and loud about one that did not."""

from collections.abc import Callable

import pytest

from kafkalike.tools.simulator.checkers import CHECKS, judge
from kafkalike.tools.simulator.history import (
    AskCommitted,
    Commit,
    Committed,
    CreateTopic,
    DeleteTopic,
    Elect,
    EpochIgnored,
    Heartbeat,
    ListedOffset,
    ListOffset,
    OutOfRange,
    SequenceRefused,
    Slow,
    Truncated,
)
from kafkalike.types import TopicPartition
from tests.simulation.by_hand import OTHER_ID, T0, TOPIC_ID, Scene, Stored, metadata


def good() -> Scene:
    """Five records, an election in between, readers, a group, a topic that came and went."""
    scene = Scene()
    scene.led(0, 0)
    scene.produced(0, b"a0", b"a1", sequence=0, client="i")
    scene.fetched(0, b"a0", b"a1", high_watermark=2)
    scene.refused(b"never")
    scene.unanswered(b"perhaps")
    scene.clock.advance(1)
    scene.state(T0, leader=1, epoch=1, isr=(1,))
    scene.led(1, 1)
    scene.produced(2, b"b0", broker=1)
    scene.produced(3, b"a2", sequence=1, client="i", broker=1)
    scene.fetched(2, b"b0", b"a2", high_watermark=4, broker=1, epoch=1)
    scene.state(T0, leader=1, epoch=1, isr=(1, 0))
    scene.store(
        Stored(0, (b"a0", b"a1")),
        Stored(2, (b"b0",), 1),
        Stored(3, (b"a2",), 1),
        Stored(4, (b"perhaps",), 1),
    )
    scene.did(ListOffset(T0, -1), ListedOffset(0, 2, 0))
    scene.did(ListOffset(T0, -1), ListedOffset(1, 4, 1))
    scene.joined("m1", 1, "m1", ("m1",))
    scene.assigned("m1", 1, T0)
    scene.did(Heartbeat("g", "m1", 1))
    scene.did(Commit("g", "m1", 1, ((T0, 2),)))
    scene.joined("m1", 2, "m1", ("m1", "m2"))
    scene.joined("m2", 2, "m1")
    scene.assigned("m2", 2, T0)
    scene.assigned("m1", 2)
    scene.did(AskCommitted("g", (T0,)), Committed(((T0, 2),)))
    scene.did(Commit("g", "m2", 2, ((T0, 4),)))
    scene.did(CreateTopic("u", 1, 2))
    scene.topic("u", OTHER_ID)
    scene.did(DeleteTopic("u"))
    scene.remove("/brokers/topics/u")
    return scene


def test_a_cluster_that_kept_its_promises_is_not_accused() -> None:
    assert judge(good().evidence) == []


def test_a_static_leader_that_comes_back_is_still_the_leader() -> None:
    scene = good()
    old, new = (f"m1-{digit * 8}-0000-4000-8000-000000000000" for digit in "ab")
    scene.joined("m1", 3, old, ("m1", "m2"))
    scene.assigned("m1", 3, T0)
    scene.joined("m2", 3, new)
    scene.assigned("m2", 3)
    assert judge(scene.evidence) == []


def test_a_leader_that_was_deposed_may_not_know_a_sequence() -> None:
    scene = good()
    scene.history.note("i", SequenceRefused(T0, 0, "OUT_OF_ORDER_SEQUENCE_NUMBER"))
    assert judge(scene.evidence) == []


@pytest.mark.parametrize("started_since", [True, False])
def test_a_broker_that_started_since_may_have_forgotten_a_batch(started_since: bool) -> None:
    scene = good()
    if not started_since:
        scene.registered(1)
    scene.clock.advance(1)
    sent_s = scene.clock.monotonic()
    scene.clock.advance(1)
    if started_since:
        scene.registered(1)
    scene.clock.advance(1)
    error = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    scene.history.note("i", SequenceRefused(T0, 1, error, behind_s=sent_s))
    assert [one.checker for one in judge(scene.evidence)] == (
        [] if started_since else ["idempotence"]
    )


# -- one damage each ---------------------------------------------------------------------------


def lost_record(scene: Scene) -> None:
    scene.produced(5, b"acknowledged and gone", broker=1)


def replaced_record(scene: Scene) -> None:
    scene.produced(4, b"not what is there", broker=1)


def loss_without_cause(scene: Scene) -> None:
    scene.ledger(T0, 5, 6)


def refused_record_is_there(scene: Scene) -> None:
    scene.store(Stored(5, (b"never",), 1))


def record_of_nobody(scene: Scene) -> None:
    scene.fetched(4, b"invented", high_watermark=5, broker=1, epoch=1)


def follower_is_short(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.store(Stored(5, (b"x",), 1), brokers=(1,))


def follower_differs(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.unanswered(b"y")
    scene.store(Stored(5, (b"x",), 1), brokers=(0,))
    scene.store(Stored(5, (b"y",), 1), brokers=(1,))


def follower_is_empty(scene: Scene) -> None:
    del scene.disks[0]["/data/t-0/00000000000000000000.log"]


def torn_log(scene: Scene) -> None:
    scene.disks[0]["/data/t-0/00000000000000000000.log"] += b"half a batch"


def gap_on_disk(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.store(Stored(7, (b"x",), 1))


def epoch_goes_back_on_disk(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.store(Stored(5, (b"x",), 0))


def offset_acknowledged_twice(scene: Scene) -> None:
    scene.produced(3, b"another", broker=1)


def read_again_differs(scene: Scene) -> None:
    scene.fetched(3, b"perhaps", high_watermark=4, broker=1, epoch=1)


def read_and_gone(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.fetched(5, b"x", high_watermark=6, broker=1, epoch=1)


def consumer_truncated(scene: Scene) -> None:
    scene.history.note("c", Truncated(T0, 1, 5, 3))


def consumer_out_of_range(scene: Scene) -> None:
    scene.history.note("c", OutOfRange(T0, 1, 5, 3))


def twice_from_an_idempotent_producer(scene: Scene) -> None:
    scene.store(Stored(5, (b"a2",), 1))


def out_of_order(scene: Scene) -> None:
    scene.produced(5, b"late", sequence=3, client="i", broker=1)
    scene.produced(6, b"early", sequence=2, client="i", broker=1)
    scene.store(Stored(5, (b"late",), 1), Stored(6, (b"early",), 1))


def sequence_refused(scene: Scene) -> None:
    scene.history.note("i", SequenceRefused(T0, 1, "OUT_OF_ORDER_SEQUENCE_NUMBER"))


def high_watermark_back(scene: Scene) -> None:
    scene.fetched(4, high_watermark=3, broker=1, epoch=1)


def beyond_the_high_watermark(scene: Scene) -> None:
    scene.fetched(4, b"perhaps", high_watermark=4, broker=1, epoch=1)


def log_start_back(scene: Scene) -> None:
    scene.fetched(4, high_watermark=5, log_start=2, broker=1, epoch=1)
    scene.fetched(4, high_watermark=5, log_start=1, broker=1, epoch=1)


def end_goes_back(scene: Scene) -> None:
    scene.did(ListOffset(T0, -1), ListedOffset(1, 3, 1))


def slow_answer(scene: Scene) -> None:
    scene.history.note("p", Slow(T0, 1, 3.0, 2.0))


def committed_goes_back(scene: Scene) -> None:
    scene.did(AskCommitted("g", (T0,)), Committed(((T0, 2),)))


def committed_is_gone(scene: Scene) -> None:
    scene.did(AskCommitted("g", (T0,)), Committed(((T0, -1),)))


def two_leaders_in_one_epoch(scene: Scene) -> None:
    scene.state(T0, leader=0, epoch=1, isr=(1, 0))


def epoch_goes_back(scene: Scene) -> None:
    scene.state(T0, leader=0, epoch=0, isr=(1, 0))


def other_leader_in_metadata(scene: Scene) -> None:
    scene.led(0, 1)


def an_epoch_nobody_has_heard_of_is_served(scene: Scene) -> None:
    scene.history.note("c", EpochIgnored(T0, 1, 1001))


def acknowledged_by_no_leader(scene: Scene) -> None:
    scene.produced(4, b"x", broker=0)
    for broker in (0, 1):
        path = "/data/t-0/00000000000000000000.log"
        scene.disks[broker][path] = b""
    scene.store(
        Stored(0, (b"a0", b"a1")),
        Stored(2, (b"b0",), 1),
        Stored(3, (b"a2",), 1),
        Stored(4, (b"x",), 1),
    )


def zombie_controller(scene: Scene) -> None:
    scene.elect_controller(1, 2)
    scene.state(T0, leader=1, epoch=1, isr=(1,), controller_epoch=1)


def two_controllers_in_one_epoch(scene: Scene) -> None:
    scene.put("/controller", b'{"brokerid": 0}')
    scene.put("/controller", b'{"brokerid": 1}')


def controller_epoch_again(scene: Scene) -> None:
    scene.elect_controller(0, 1)


def leader_from_outside_the_isr(scene: Scene) -> None:
    scene.state(T0, leader=1, epoch=1, isr=(1,))
    scene.state(T0, leader=0, epoch=2, isr=(0,))


def unclean_without_permission(scene: Scene) -> None:
    scene.state(T0, leader=1, epoch=1, isr=(1,))
    scene.state(T0, leader=0, epoch=2, isr=(0,), recovery=1)


def visible_under_min_isr(scene: Scene) -> None:
    scene.put("/config/topics/t", b'{"version": 1, "config": {"min.insync.replicas": "2"}}')
    scene.state(T0, leader=1, epoch=1, isr=(1,))
    scene.clock.advance(10)
    scene.fetched(4, high_watermark=4, broker=1, epoch=1)
    scene.fetched(4, b"perhaps", high_watermark=5, broker=1, epoch=1)
    scene.clock.advance(1)
    scene.state(T0, leader=1, epoch=1, isr=(1, 0))


def partition_given_twice(scene: Scene) -> None:
    scene.assigned("m1", 2, T0)


def two_leaders_of_a_generation(scene: Scene) -> None:
    scene.joined("m2", 2, "m2")
    scene.assigned("m2", 2)


def unknown_member(scene: Scene) -> None:
    scene.joined("m3", 2, "m1")
    scene.assigned("m3", 2)


def commit_of_an_old_generation(scene: Scene) -> None:
    scene.did(Commit("g", "m1", 1, ((T0, 4),)))


def created_topic_is_missing(scene: Scene) -> None:
    scene.did(CreateTopic("v", 1, 2))


def deleted_topic_is_there(scene: Scene) -> None:
    scene.topic("u", OTHER_ID)


def deletion_hangs(scene: Scene) -> None:
    scene.put("/admin/delete_topics/w", None)


def reassignment_hangs(scene: Scene) -> None:
    scene.topic("t", TOPIC_ID, adding_replicas={"0": [2]})


def directory_left_behind(scene: Scene) -> None:
    scene.unanswered(b"x")
    scene.disks[0]["/data/u-0/00000000000000000000.log"] = b""


def absent_member_joins(scene: Scene) -> None:
    scene.put("/brokers/ids/1", b"{}")
    scene.remove("/brokers/ids/1")
    scene.state(T0, leader=0, epoch=1, isr=(0,))
    scene.clock.advance(2.0)
    scene.state(T0, leader=0, epoch=1, isr=(0, 1))


def directory_on_the_wrong_broker(scene: Scene) -> None:
    scene.disks[2] = {"/data/t-0/00000000000000000000.log": b""}


def directory_of_an_earlier_topic(scene: Scene) -> None:
    scene.disks[0]["/data/t-0/partition.metadata"] = metadata(OTHER_ID)


def records_of_an_earlier_topic(scene: Scene) -> None:
    scene.remove("/brokers/topics/t")
    scene.clock.advance(1)
    scene.topic("t", TOPIC_ID)


DAMAGES: list[tuple[str, Callable[[Scene], None]]] = [
    ("acknowledged loss", lost_record),
    ("acknowledged loss", replaced_record),
    ("unexplained loss", loss_without_cause),
    ("failed writes", refused_record_is_there),
    ("failed writes", record_of_nobody),
    ("replicas differ", follower_is_short),
    ("replicas differ", follower_differs),
    ("replicas differ", follower_is_empty),
    ("replicas differ", torn_log),
    ("offsets", gap_on_disk),
    ("offsets", epoch_goes_back_on_disk),
    ("offsets", offset_acknowledged_twice),
    ("offsets", read_again_differs),
    ("reads lost", read_and_gone),
    ("reads lost", consumer_truncated),
    ("reads lost", consumer_out_of_range),
    ("idempotence", twice_from_an_idempotent_producer),
    ("idempotence", out_of_order),
    ("idempotence", sequence_refused),
    ("watermarks", high_watermark_back),
    ("watermarks", beyond_the_high_watermark),
    ("watermarks", log_start_back),
    ("watermarks", end_goes_back),
    ("promptness", slow_answer),
    ("committed offsets", committed_goes_back),
    ("committed offsets", committed_is_gone),
    ("leaders", two_leaders_in_one_epoch),
    ("leaders", epoch_goes_back),
    ("leaders", other_leader_in_metadata),
    ("leaders", an_epoch_nobody_has_heard_of_is_served),
    ("leaders", acknowledged_by_no_leader),
    ("controllers", zombie_controller),
    ("controllers", two_controllers_in_one_epoch),
    ("controllers", controller_epoch_again),
    ("elections", leader_from_outside_the_isr),
    ("elections", unclean_without_permission),
    ("high watermark under min ISR", visible_under_min_isr),
    ("groups", partition_given_twice),
    ("groups", two_leaders_of_a_generation),
    ("groups", unknown_member),
    ("groups", commit_of_an_old_generation),
    ("absent members", absent_member_joins),
    ("topics", created_topic_is_missing),
    ("topics", deleted_topic_is_there),
    ("topics", deletion_hangs),
    ("topics", reassignment_hangs),
    ("topics", directory_left_behind),
    ("topics", directory_on_the_wrong_broker),
    ("topics", directory_of_an_earlier_topic),
    ("topics", records_of_an_earlier_topic),
]


@pytest.mark.parametrize(("check", "damage"), DAMAGES, ids=[f.__name__ for _, f in DAMAGES])
def test_a_broken_promise_is_reported_by_its_check(
    check: str, damage: Callable[[Scene], None]
) -> None:
    scene = good()
    damage(scene)
    assert check in {violation.checker for violation in judge(scene.evidence)}


def test_every_check_has_been_shown_to_fire() -> None:
    assert {check.name for check in CHECKS} == {name for name, _ in DAMAGES}


def test_a_loss_that_the_ledger_names_is_excused() -> None:
    scene = good()
    scene.power_losses.append(1)
    scene.produced(5, b"x", broker=1)
    scene.fetched(5, b"x", high_watermark=6, broker=1, epoch=1)
    scene.ledger(T0, 5, 6)
    assert judge(scene.evidence) == []


def test_a_ledger_excuses_only_the_offsets_it_names() -> None:
    scene = good()
    scene.produced(5, b"x", broker=1)
    scene.ledger(T0, 6, 9)
    scene.power_losses.append(0)
    assert [v.checker for v in judge(scene.evidence)] == ["acknowledged loss"]


def test_what_a_broker_tells_of_its_own_outage_is_neither_a_fault_nor_an_excuse() -> None:
    scene = good()
    scene.outages.append(0)
    scene.ledger(T0, 5, 6)
    assert judge(scene.evidence) == []
    scene = good()
    scene.outages.append(0)
    scene.ledger(T0, 5, 6)
    scene.produced(5, b"x", broker=1)
    assert [v.checker for v in judge(scene.evidence)] == ["acknowledged loss"]


def test_records_of_a_topic_that_was_deleted_are_not_missed() -> None:
    scene = good()
    scene.produced(5, b"x", broker=1)
    scene.did(DeleteTopic(T0.topic))
    assert "acknowledged loss" not in {v.checker for v in judge(scene.evidence)}


def test_a_generation_without_assignments_may_be_forgotten() -> None:
    scene = good()
    scene.joined("m1", 3, "m1", ("m1", "m2"))
    scene.joined("m3", 3, "m1")
    scene.joined("m1", 3, "m1", ("m1", "m3"))
    scene.assigned("m1", 3)
    scene.assigned("m3", 3, T0)
    assert judge(scene.evidence) == []


def test_an_unclean_election_that_was_asked_for_is_no_broken_promise() -> None:
    scene = good()
    scene.did(Elect(T0, unclean=True))
    scene.state(T0, leader=1, epoch=1, isr=(1,))
    scene.state(T0, leader=0, epoch=2, isr=(0,), recovery=1)
    assert "elections" not in {v.checker for v in judge(scene.evidence)}


def test_an_order_to_delete_may_be_lost_with_its_controller() -> None:
    def verdict(elected_after_s: float) -> list[str]:
        scene = good()
        scene.topic("t", TOPIC_ID, replicas=(0, 1, 2))
        scene.topic("t", TOPIC_ID)
        directory_on_the_wrong_broker(scene)
        scene.clock.advance(elected_after_s)
        scene.elect_controller(0, 2)
        return [v.text for v in judge(scene.evidence) if v.checker == "topics"]

    assert verdict(5.0) == []
    assert verdict(20.0) == ["/data/t-0 is on broker 2, the replicas are [0, 1]"]


def test_a_replica_that_an_absent_broker_lost_may_outlive_its_topic() -> None:
    def verdict(*, lost_before: bool) -> list[str]:
        scene = good()
        scene.topic("u", OTHER_ID, replicas=(0, 1))
        if lost_before:
            scene.topic("u", OTHER_ID, replicas=(0, 2))
        scene.remove("/brokers/topics/u")
        for _ in range(2):
            scene.put("/brokers/ids/1", b"{}")
            scene.remove("/brokers/ids/1")
        scene.disks[1]["/data/u-0/00000000000000000000.log"] = b""
        scene.disks[1]["/data/u-0/partition.metadata"] = metadata(OTHER_ID)
        return [v.text for v in judge(scene.evidence) if v.checker == "topics"]

    assert verdict(lost_before=True) == []
    assert verdict(lost_before=False) == ["/data/u-0 is on broker 1, the partition does not exist"]


@pytest.mark.parametrize("power_lost", [True, False])
def test_a_deleted_directory_may_be_back_after_a_power_loss(power_lost: bool) -> None:
    scene = good()
    directory_left_behind(scene)
    if power_lost:
        scene.outages.append(0)
    found = [v.text for v in judge(scene.evidence) if v.checker == "topics"]
    assert bool(found) is not power_lost


def test_directories_on_their_way_out_are_not_looked_at() -> None:
    scene = good()
    scene.disks[0]["/data/u-0.0123456789abcdef-delete/00000000000000000000.log"] = b"anything"
    assert judge(scene.evidence) == []
    assert TopicPartition("u", 0) not in {partition for _, partition in scene.evidence.logs}
