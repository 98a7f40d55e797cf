"""Stories of leaders that change: no acknowledged record is lost, replicas end up equal.

Reference: replication 13, 14; history.  Three brokers over the in-memory wire.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalike.broker.replica.values import AppendResult
from kafkalike.errors import NONE
from kafkalike.net.client import PeerDisconnected
from tests.fakes import FakeRandom, result_of

from .support import T0, Cluster, contents


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.controller.create(T0, 1, 2, 3)
    cluster.settle()
    return cluster


def values(cluster: Cluster, broker_id: int) -> list[str]:
    return [value for _, _, value in contents(cluster[broker_id].log())]


def cut(cluster: Cluster, *pairs: tuple[int, int]) -> None:
    cluster.wire.cut = {frozenset(pair) for pair in pairs}


def epochs(cluster: Cluster, broker_id: int) -> list[tuple[int, int]]:
    """The leader epochs that have records."""
    log = cluster[broker_id].log()
    return [(epoch, start) for epoch, start in log.leader_epochs if start < log.log_end_offset]


def assert_equal(cluster: Cluster, *brokers: int) -> None:
    first, *others = brokers
    for other in others:
        assert contents(cluster[other].log()) == contents(cluster[first].log())
        assert epochs(cluster, other) == epochs(cluster, first)


def test_replicas_are_equal_byte_for_byte(cluster: Cluster) -> None:
    for number in range(5):
        assert cluster.produce(1, f"a{number}", f"b{number}").error_code == NONE
    paths = [cluster[n].log().segments[0].file.path for n in (1, 2, 3)]
    assert len({Path(path).read_bytes() for path in paths}) == 1
    cluster.advance(1)
    assert [cluster[n].log().high_watermark for n in (1, 2, 3)] == [10, 10, 10]


def test_acknowledged_records_are_on_every_later_leader(cluster: Cluster) -> None:
    """I1 through a chain of clean elections."""
    sent = []
    leader = 1
    for number, following in enumerate((2, 3, 1, 3, 2)):
        value = f"v{number}"
        assert cluster.produce(leader, value).error_code == NONE
        sent.append(value)
        cluster.controller.elect(T0, following)
        cluster.advance(1.5)
        leader = following
    assert all(values(cluster, n) == sent for n in (1, 2, 3))
    assert_equal(cluster, 1, 2, 3)


def test_kip_101_follower_restart_before_it_knows_the_high_watermark(cluster: Cluster) -> None:
    """Scenario 1 of KIP-101: truncating to the own high watermark would lose a committed record."""
    assert cluster.produce(1, "m1").error_code == NONE
    cluster.advance(1)
    assert cluster.produce(1, "m2").error_code == NONE
    assert cluster[2].log().high_watermark < 2  # the follower has not heard of it yet
    cluster.kill(2)
    cluster.start(2)
    cluster.controller.announce(T0, to=[2])
    assert cluster[2].log().log_end_offset == 2  # not truncated
    cluster.kill(1)
    cluster.controller.elect(T0, 2, isr=(2, 3))
    cluster.advance(1.5)
    assert values(cluster, 2) == ["m1", "m2"]
    assert cluster[2].log().high_watermark == 2


def test_kip_101_two_leaders_wrote_different_records_at_one_offset(cluster: Cluster) -> None:
    """Scenario 2 of KIP-101: both replicas claim offset 1; epochs tell who is right."""
    assert cluster.produce(1, "m1").error_code == NONE
    cluster.advance(1)
    cut(cluster, (1, 2), (1, 3))
    lost = cluster[1].produce("m2")
    assert result_of(lost).error_code == NONE  # acks 1
    cluster.kill(1)
    cluster.wire.cut.clear()
    cluster.controller.elect(T0, 2, isr=(2, 3))
    cluster.settle()
    assert cluster.produce(2, "m3").error_code == NONE
    cluster.start(1)
    assert contents(cluster[1].logs.get_or_create(T0, None, is_new=False))[-1][2] == "m2"
    cluster.controller.announce(T0)
    cluster.advance(2)
    assert values(cluster, 1) == ["m1", "m3"]
    assert_equal(cluster, 1, 2, 3)
    assert cluster[1].losses == []  # it was never committed


def test_kip_279_fast_double_failover(cluster: Cluster) -> None:
    """KAFKA-6361: a leader of an epoch that the next leader never heard of."""
    assert cluster.produce(1, "a").error_code == NONE
    cluster.advance(1)
    cut(cluster, (1, 2), (1, 3), (2, 3))
    result_of(cluster[1].produce("b1", "b2", "b3"))
    # Broker 2 leads epoch 1 and writes alone, broker 3 leads epoch 2 without knowing epoch 1.
    cluster.controller.elect(T0, 2)
    result_of(cluster[2].produce("c1"))
    cluster.settle()
    cluster.controller.elect(T0, 3)
    result_of(cluster[3].produce("d1", "d2"))
    cluster.wire.cut.clear()
    cluster.advance(5)
    assert values(cluster, 3) == ["a", "d1", "d2"]
    assert_equal(cluster, 1, 2, 3)
    assert cluster.produce(3, "e").error_code == NONE


def test_kip_279_chain_of_empty_epochs(cluster: Cluster) -> None:
    assert cluster.produce(1, "a").error_code == NONE
    cluster.advance(1)
    cut(cluster, (1, 2), (1, 3), (2, 3))
    for leader in (2, 3, 1, 2, 3):
        cluster.controller.elect(T0, leader)
        cluster.settle()
    result_of(cluster[3].produce("z"))
    cluster.wire.cut.clear()
    cluster.controller.elect(T0, 1)
    cluster.advance(5)
    assert cluster.produce(1, "b").error_code == NONE
    cluster.advance(1)
    assert values(cluster, 1) == ["a", "b"]
    assert [values(cluster, n) for n in (2, 3)] == [["a", "b"]] * 2
    assert_equal(cluster, 2, 3)


def test_kafka_7164_follower_that_missed_an_epoch_still_truncates(cluster: Cluster) -> None:
    """LeaderAndIsr of epoch n is lost, n + 1 names the same leader."""
    assert cluster.produce(1, "a").error_code == NONE
    cluster.advance(1)
    cut(cluster, (1, 2), (1, 3), (2, 3))
    result_of(cluster[1].produce("x1", "x2"))
    old = cluster.controller.states[T0]
    cluster.controller.states[T0] = type(old)(2, 1, (2, 3), partition_epoch=1)
    cluster.controller.announce(T0, to=[2, 3])  # broker 1 never hears of epoch 1
    result_of(cluster[2].produce("y"))
    cluster.wire.cut.clear()
    cluster.controller.states[T0] = type(old)(2, 2, (2, 3), partition_epoch=2)
    cluster.controller.announce(T0)
    cluster.advance(3)
    assert values(cluster, 1) == ["a", "y"]
    assert_equal(cluster, 1, 2, 3)


def test_unclean_election_loses_and_says_so(cluster: Cluster) -> None:
    cut(cluster, (1, 3), (2, 3))
    result_of(cluster[1].produce("x"))
    cluster.advance(46)
    assert cluster.controller.states[T0].isr == (1, 2)
    for value in ("a", "b"):
        assert cluster.produce(1, value).error_code == NONE
    cluster.advance(1)
    cluster.controller.elect(T0, 3, isr=(3,))
    cluster.wire.cut.clear()
    cluster.advance(3)
    assert cluster.produce(3, "c").error_code == NONE
    cluster.advance(3)
    assert [values(cluster, n) for n in (1, 2, 3)] == [["c"]] * 3
    for broker_id in (1, 2):
        (loss,) = cluster[broker_id].losses
        assert (loss.first_offset, loss.end_offset) == (0, 3)
        assert (loss.old_leader_epoch, loss.new_leader_epoch) == (0, 1)


def test_high_watermark_waits_for_all_of_the_isr_and_shrinks_let_it_go_on(
    cluster: Cluster,
) -> None:
    cut(cluster, (1, 3))
    waiting = cluster[1].produce("a", acks=-1, timeout_ms=60_000)
    cluster.advance(10)
    assert not waiting.called and cluster[1].log().high_watermark == 0
    cluster.advance(40)
    assert result_of(waiting).error_code == NONE
    assert cluster.controller.states[T0].isr == (1, 2)
    cluster.wire.cut.clear()
    cluster.advance(3)
    assert cluster.controller.states[T0].isr == (1, 2, 3)
    assert values(cluster, 3) == ["a"]


def test_lost_answer_to_an_isr_change_does_not_stop_the_partition(cluster: Cluster) -> None:
    """KIP-497: applied by the controller, the answer lost; the repeated request succeeds."""
    cluster.controller.silent = True
    cut(cluster, (1, 3))
    result_of(cluster[1].produce("x"))
    cluster.advance(46)
    ((source, request, result),) = cluster.controller.pending
    cluster.controller.pending.clear()
    cluster.controller.silent = False
    cluster.controller.decide(source, request, type(result)())
    assert cluster.controller.states[T0].isr == (1, 2)
    assert cluster[1].partition().isr == (1, 2, 3)
    result.errback(PeerDisconnected("lost"))
    cluster.advance(1)
    assert cluster[1].partition().isr == (1, 2)
    assert cluster[1].partition().partition_epoch == 1


def test_high_watermark_covers_a_follower_that_the_controller_may_have_added(
    cluster: Cluster,
) -> None:
    """Between the controller's decision and its answer the new member may become leader."""
    cut(cluster, (1, 3))
    result_of(cluster[1].produce("x"))
    cluster.advance(46)
    cluster.wire.cut.clear()
    cluster.controller.silent = True
    cluster.advance(2)
    assert cluster[1].partition().maximal_isr == (1, 2, 3)
    cut(cluster, (1, 3))
    waiting = cluster[1].produce("a", acks=-1, timeout_ms=60_000)
    cluster.advance(5)
    assert not waiting.called
    cluster.wire.cut.clear()
    cluster.advance(2)
    assert waiting.called
    assert values(cluster, 3) == ["x", "a"]


def test_kafka_15021_shutting_down_replica_does_not_hold_up_acknowledgements(
    cluster: Cluster,
) -> None:
    """StopReplica ends its fetching; it leaves the ISR by the controller and nobody waits for it."""
    cluster.controller.states[T0] = type(cluster.controller.states[T0])(
        1, 1, (1, 2), partition_epoch=1
    )
    cluster[3].replicas.begin_shutdown()
    cluster.controller.announce(T0)
    cut(cluster, (1, 3))
    cluster[1].know(1, 2)  # it is gone from the metadata
    waiting = cluster[1].produce("a", acks=-1)
    cluster.advance(0.5)
    assert result_of(waiting).error_code == NONE


@pytest.mark.parametrize("gone_from_metadata", [True, False])
def test_kafka_15021_shutting_down_replica_does_not_count_for_what_it_fetched_before(
    cluster: Cluster, gone_from_metadata: bool
) -> None:
    """A producer asks in between: the controller has taken the replica from the ISR, the metadata
    still has its broker.  The last fetch of its session, from before, must not be credited to it in
    the new epoch: nobody would look at the high watermark again when the broker is gone."""
    cluster.produce(1, "a")
    cluster.advance(1)
    cluster[3].replicas.begin_shutdown()
    cut(cluster, (1, 3))
    cluster.controller.states[T0] = type(cluster.controller.states[T0])(
        1, 1, (1, 2), partition_epoch=1
    )
    cluster.controller.announce(T0)
    waiting = cluster[1].produce("b", acks=-1)
    cluster.advance(0.1)
    if gone_from_metadata:
        cluster[1].know(1, 2)
    cluster.advance(1)
    assert result_of(waiting).error_code == NONE


def test_log_start_reaches_the_followers_and_the_request_that_waits_for_it(
    cluster: Cluster,
) -> None:
    for value in "abc":
        cluster.produce(1, value)
    cluster.advance(1)
    waiting = cluster[1].replicas.delete_records({T0: 2}, timeout_ms=5000)
    cluster.advance(2)
    assert result_of(waiting) == {T0: (2, NONE)}  # type: ignore[arg-type]
    assert [cluster[n].log().log_start_offset for n in (1, 2, 3)] == [2, 2, 2]


def test_new_replica_copies_what_is_there(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.controller.create(T0, 1, 2)
    for number in range(20):
        assert cluster.produce(1, f"v{number}").error_code == NONE
    cluster.controller.assignments[T0] = (1, 2, 3)
    cluster.controller.elect(T0, 1)
    cluster.advance(2)
    assert_equal(cluster, 1, 2, 3)
    assert cluster.controller.states[T0].isr == (1, 2, 3)


def test_follower_far_behind_a_moved_log_start_begins_there(cluster: Cluster) -> None:
    cut(cluster, (1, 3))
    for number in range(5):
        result_of(cluster[1].produce(f"v{number}"))
    cluster.advance(50)
    cluster[1].partition().delete_records(4)
    cluster.wire.cut.clear()
    cluster.advance(4)
    assert [value for _, _, value in contents(cluster[3].log())] == ["v4"]
    assert cluster.controller.states[T0].isr == (1, 2, 3)


class History:
    """A random history of one partition: writes, cuts, elections, crashes, slow controllers.

    Followers count as slow after two seconds, so the ISR changes all the time.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = FakeRandom(seed)
        self.cluster = Cluster(root, replica_lag_time_max_ms="2000")
        self.controller = self.cluster.controller
        self.acknowledged: list[str] = []
        self.written = 0
        for broker_id in (1, 2, 3):
            self.set_min_isr(broker_id)
        self.controller.create(T0, 1, 2, 3)
        self.cluster.settle()

    def set_min_isr(self, broker_id: int) -> None:
        logs = self.cluster[broker_id].logs
        logs.config = logs.config.with_overrides({"min.insync.replicas": "2"})
        logs.topic_config_changed("t")

    def pick(self, choices: Sequence[int]) -> int:
        return choices[self.chance.randrange(len(choices))]

    @property
    def alive(self) -> list[int]:
        return sorted(self.cluster.wire.brokers)

    @property
    def dead(self) -> list[int]:
        return sorted({1, 2, 3} - set(self.alive))

    def step(self) -> None:
        what = self.chance.randrange(16)
        if what < 6:
            self.write()
        elif what == 6:
            pairs = [(1, 2), (1, 3), (2, 3)]
            cut(self.cluster, *[pair for pair in pairs if self.chance.randrange(3) == 0])
        elif what == 7:
            self.cluster.wire.cut.clear()
        elif what == 8:
            self.elect()
        elif what == 9 and not self.dead:
            self.crash()
        elif what == 10:
            self.restart()
        elif what == 11:
            self.controller.silent = True
        elif what == 12:
            self.controller.answer_pending()
            self.controller.late = self.chance.randrange(2) == 0
        elif what == 13:
            self.lose_answers()
        elif what == 14:
            self.cluster.settle()
        else:
            self.cluster.advance(self.chance.random() * 4, step=0.25)
        self.check()

    def write(self) -> None:
        """To the leader, or to somebody who may still take itself for it."""
        target = self.pick(self.alive)
        if self.chance.randrange(2):
            target = self.controller.states[T0].leader
        if target in self.alive and self.cluster[target].replicas.partition(T0) is not None:
            value = f"v{self.written}"
            self.written += 1
            answer = self.cluster[target].produce(value, acks=-1, timeout_ms=30_000)
            answer.addCallback(self.answered, value)

    def answered(self, result: AppendResult, value: str) -> None:
        if result.error_code == NONE:
            self.acknowledged.append(value)

    def elect(self) -> None:
        candidates = [b for b in self.controller.states[T0].isr if b in self.alive]
        if candidates:
            self.controller.elect(T0, self.pick(candidates))

    def crash(self) -> None:
        """One broker ends; the controller takes it out of the ISR where it may."""
        victim = self.pick(self.alive)
        self.cluster.kill(victim, checkpoint=self.chance.randrange(2) == 0)
        state = self.controller.states[T0]
        isr = tuple(b for b in state.isr if b != victim)
        if isr and victim in (state.leader, *state.isr):
            leader = isr[0] if state.leader == victim else state.leader
            self.controller.elect(T0, leader, isr=isr)

    def restart(self) -> None:
        leader = self.controller.states[T0].leader
        for broker_id in self.dead:
            self.cluster.start(broker_id)
            self.set_min_isr(broker_id)
            if broker_id == leader:
                self.controller.elect(T0, leader)
            else:
                self.controller.announce(T0)

    def lose_answers(self) -> None:
        """What waits at the controller is decided, and the brokers never hear of it."""
        for source, request, result in self.controller.pending:
            self.controller.decide(source, request, type(result)())
            result.errback(PeerDisconnected("lost"))
        self.controller.pending.clear()
        self.controller.silent = False

    def check(self) -> None:
        """The leader's high watermark is on every replica that could be elected."""
        state = self.controller.states[T0]
        if state.leader not in self.alive:
            return
        partition = self.cluster[state.leader].replicas.partition(T0)
        if partition is None or not partition.is_leader or partition.log is None:
            return
        for member in state.isr:
            if member in self.alive and T0 in self.cluster[member].logs.logs:
                end = self.cluster[member].logs.logs[T0].log_end_offset
                assert partition.log.high_watermark <= end, member

    def heal(self) -> None:
        self.cluster.wire.cut.clear()
        self.controller.answer_pending()
        self.restart()
        self.controller.elect(T0, self.controller.states[T0].isr[0])
        self.cluster.advance(30, step=0.5)


@pytest.mark.parametrize("seed", range(40))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """Acknowledged records stay, in order and once; in the end all replicas are equal."""
    history = History(tmp_path, seed)
    for _ in range(80):
        history.step()
    history.heal()
    state = history.controller.states[T0]
    assert sorted(state.isr) == [1, 2, 3]
    final = values(history.cluster, state.leader)
    assert [value for value in history.acknowledged if value not in final] == []
    assert len(final) == len(set(final))
    for broker_id in (1, 2, 3):
        assert values(history.cluster, broker_id) == final
        assert history.cluster[broker_id].losses == []
        assert history.cluster[broker_id].log().high_watermark == len(final)
