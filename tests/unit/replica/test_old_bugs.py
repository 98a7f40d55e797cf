"""Known bugs of this design that no other file tells (`tests/history.py` names the test of each)."""

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.values import AppendEntry, AppendResult
from kafkalike.errors import NONE
from kafkalike.records.control import EndTransactionMarker, encode_marker
from kafkalike.runtime.ports import Buffer
from tests.fakes import result_of

from .support import T0, Cluster, batch

PRODUCER = 7


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.controller.create(T0, 1, 2, 3)
    cluster.settle()
    return cluster


def write(cluster: Cluster, broker_id: int, records: Buffer) -> None:
    """As the coordinator of a transaction and its producer write: acknowledged by all in sync."""
    guard = cluster[broker_id].log().maybe_start_transaction_verification(PRODUCER, 0, 0)
    entry = AppendEntry(T0, records, verification=guard)
    answer = cluster[broker_id].replicas.append(
        [entry], required_acks=-1, timeout_ms=1000, origin="coordinator"
    )
    cluster.advance(1)
    results: list[AppendResult] = result_of(answer) if isinstance(answer, Deferred) else answer
    assert results[0].error_code == NONE


def end_of_transaction(*, commit: bool) -> bytearray:
    marker = EndTransactionMarker(commit, 0)
    return encode_marker(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=1000)


def test_kip_903_a_fetch_of_a_former_life_brings_nobody_into_the_isr(cluster: Cluster) -> None:
    """Broker 3 caught up, the proposal is on its way; broker 3 restarts without the end of its log."""
    cluster.wire.cut = {frozenset((1, 3))}
    result_of(cluster[1].produce("a"))
    cluster.advance(46)
    assert cluster.controller.states[T0].isr == (1, 2)
    cluster.controller.silent = True
    cluster.wire.cut.clear()
    cluster.advance(2)
    assert cluster[1].partition().maximal_isr == (1, 2, 3)
    cluster.kill(3)
    (file,) = (cluster.root / "3").rglob("*0.log")
    file.write_bytes(b"")
    cluster.wire.cut = {frozenset((1, 3))}
    cluster.start(3)
    cluster.controller.answer_pending()
    cluster.settle()
    assert cluster.controller.states[T0].isr == (1, 2)
    assert cluster[1].partition().maximal_isr == (1, 2)
    cluster.wire.cut.clear()
    cluster.controller.announce(T0)
    cluster.advance(3)
    assert cluster.controller.states[T0].isr == (1, 2, 3)
    assert cluster[3].log().log_end_offset == 1


def test_kafka_20716_an_unclean_election_that_takes_a_marker_away(cluster: Cluster) -> None:
    """The transaction is open again for ever: the loss names its producer, and an abort ends it."""
    data = batch("a", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    write(cluster, 1, data)
    cluster.wire.cut = {frozenset((1, 3)), frozenset((2, 3))}
    result_of(cluster[1].produce("x"))
    cluster.advance(46)
    assert cluster.controller.states[T0].isr == (1, 2)
    write(cluster, 1, end_of_transaction(commit=True))
    assert cluster[1].log().last_stable_offset == cluster[1].log().high_watermark == 3
    cluster.controller.elect(T0, 3, isr=(3,))
    cluster.wire.cut.clear()
    cluster.advance(3)
    assert cluster.produce(3, "y").error_code == NONE
    cluster.advance(1)
    for broker_id in (1, 2):
        (loss,) = cluster[broker_id].losses
        assert (loss.first_offset, loss.end_offset) == (1, 3)
        assert loss.producer_ids == (PRODUCER,)
    for broker_id in (1, 2, 3):
        log = cluster[broker_id].log()
        assert (log.last_stable_offset, log.high_watermark) == (0, 2), broker_id
        assert [p.current_txn_start_offset for p in log.active_producers()] == [0]
    write(cluster, 3, end_of_transaction(commit=False))
    for broker_id in (1, 2, 3):
        assert cluster[broker_id].log().last_stable_offset == 3, broker_id
