"""What the directories tell of the life before: which logs lost their end, which were closed in order.

ADR 0008 and KIP-966.
"""

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.log.checkpoints import format_clean_shutdown, parse_clean_shutdown
from tests.fakes import result_of

from .support import append
from .test_manager import A0, B0, DIRS, Broker

MARK = "/d1/.kafka_cleanshutdown"


def stop(broker: Broker, epoch: int) -> None:
    result_of(Deferred.fromCoroutine(broker.logs.shutdown(epoch)))


def cut(broker: Broker, path: str, size: int) -> None:
    file = broker.disk.open(path)
    file.truncate(file.size() - size)
    file.close()


def test_the_mark_of_a_clean_stop_names_the_life_that_ends() -> None:
    broker = Broker().start()
    append(broker.create(), "a")
    stop(broker, 77)
    assert broker.read(MARK) == b'{"version":0,"brokerEpoch":77}'
    broker.start()
    assert broker.logs.closed_in_order() == {A0: 77}
    assert broker.logs.shortened_logs() == {}
    assert not broker.disk.exists(MARK)


def test_a_life_counts_once() -> None:
    """Killed in the next one, without a word: nothing is known any more."""
    broker = Broker().start()
    append(broker.create(), "a")
    stop(broker, 77)
    broker.start()
    broker.kill()
    broker.start()
    assert broker.logs.closed_in_order() == {}


@pytest.mark.parametrize(
    "mark", [b"", b"{}", b"[]", b"null", b'{"version":0,"brokerEpoch":-1}', b'{"brokerEpoch":"7"}']
)
def test_marks_that_name_no_life(mark: bytes) -> None:
    """Kafka's own in ZooKeeper mode, or anything else: clean, but of an unknown life."""
    assert parse_clean_shutdown(mark) == -1
    broker = Broker().start()
    append(broker.create(), "a")
    stop(broker, 77)
    broker.disk.write_atomic(MARK, mark)
    broker.start()
    assert broker.logs.was_stopped_cleanly
    assert broker.logs.closed_in_order() == {}


def test_marks_come_back() -> None:
    for epoch in (-1, 0, 1 << 40):
        assert parse_clean_shutdown(format_clean_shutdown(epoch)) == epoch


def two_of_one_record() -> Broker:
    """A broker with two logs of one record each, all of it below their high watermarks."""
    broker = Broker().start()
    for tp in (A0, B0):
        log = broker.create(tp)
        append(log, "a")
        log.update_high_watermark(1)
    return broker


def test_a_log_that_ends_below_its_high_watermark_is_shorter() -> None:
    broker = Broker().start()
    for tp in (A0, B0):
        log = broker.create(tp)
        append(log, "a")
        append(log, "b")
        log.update_high_watermark(2)
    broker.logs.checkpoint_high_watermarks()
    broker.kill()
    cut(broker, f"/d1/a-0/{0:020d}.log", 1)
    broker.start()
    assert broker.log().log_end_offset == 1
    assert broker.logs.shortened_logs() == {A0: 2}


def test_a_log_of_which_nothing_is_left_is_shorter() -> None:
    """Its directory was never synced, unlike the file of the high watermarks."""
    broker = two_of_one_record()
    broker.logs.checkpoint_high_watermarks()
    broker.kill()
    broker.disk.remove_tree("/d1/a-0")
    broker.start()
    assert broker.logs.shortened_logs() == {A0: 1}
    assert broker.logs.topic_config("a").min_insync_replicas == 1


def test_a_log_that_was_deleted_is_not_shorter() -> None:
    broker = Broker().start()
    log = broker.create()
    append(log, "a")
    log.update_high_watermark(1)
    broker.logs.checkpoint_high_watermarks()
    broker.logs.delete(A0)
    stop(broker, 77)
    broker.start()
    assert broker.logs.shortened_logs() == {}


def test_whoever_cuts_a_log_that_was_closed_in_order_makes_it_shorter() -> None:
    broker = two_of_one_record()
    stop(broker, 77)
    cut(broker, f"/d1/a-0/{0:020d}.log", 1)
    broker.start()
    assert broker.logs.shortened_logs() == {A0: 1}
    assert broker.logs.closed_in_order() == {B0: 77}


def test_a_new_log_under_an_old_name_is_not_shorter() -> None:
    broker = Broker().start()
    log = broker.create()
    append(log, "a")
    log.update_high_watermark(1)
    broker.logs.checkpoint_high_watermarks()
    broker.logs.delete(A0)
    broker.create()
    broker.kill()
    broker.start()
    assert broker.logs.shortened_logs() == {}


def test_an_empty_disk_in_the_place_of_another_says_nothing_of_its_logs() -> None:
    """One of two directories was replaced while the broker was down: its partition is not whole."""
    broker = Broker(*DIRS).start()
    for tp in (A0, B0):
        append(broker.create(tp), "a")
    assert {broker.log(tp).parent_dir for tp in (A0, B0)} == set(DIRS)
    stop(broker, 77)
    gone = broker.log(B0).parent_dir
    for name in broker.disk.list(gone):
        path = f"{gone}/{name}"
        broker.disk.remove_tree(path) if broker.disk.is_dir(path) else broker.disk.remove(path)
    broker.start()
    broker.create(B0)
    assert broker.logs.closed_in_order() == {A0: 77}
