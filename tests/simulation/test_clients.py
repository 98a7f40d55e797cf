"""What the simulated clients put into the history, on a cluster where nothing goes wrong."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from kafkalike.errors import NONE, OutOfOrderSequenceNumber, RequestTimedOut
from kafkalike.messages.produce import ProduceResponse
from kafkalike.tools.simulator.check import Check
from kafkalike.tools.simulator.evidence import Evidence
from kafkalike.tools.simulator.history import (
    AddPartitions,
    AskCommitted,
    Assigned,
    Commit,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    Elect,
    Fetched,
    Heartbeat,
    History,
    Join,
    LeaderSeen,
    ListOffset,
    Phase,
    Produce,
    Reassign,
    SequenceRefused,
    Sync,
    Tally,
)
from kafkalike.tools.simulator.producers import Producer
from kafkalike.tools.simulator.run import Extras, run
from kafkalike.tools.simulator.scenario import Scenario, TopicSpec, WorkloadSpec
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, result_of


def calm(kind: str, options: dict[str, Any], seconds: int = 8) -> History:
    """The history of a run without faults, which must pass."""
    histories: list[History] = []

    class Keep(Check):
        name = "keep"

        def problems(self, evidence: Evidence) -> Any:
            histories.append(evidence.history)
            return iter(())

    scenario = Scenario(
        topics=(TopicSpec("t", 2),),
        workloads=(WorkloadSpec(kind, "work", options),),
        duration_ms=seconds * 1000,
    )
    result = run(1, scenario, extras=Extras(checks=(Keep,)))
    assert result.ok, result.violations
    return histories[0]


def test_plain_producers_and_consumers() -> None:
    history = calm("plain", {"acks": [-1, 1, 0], "producers": 3, "follower_chance": 0.5})
    sent = [(operation, what) for operation, what in history.operations(Produce)]
    assert {what.acks for _, what in sent} == {-1, 0, 1}
    # Without an acknowledgement nothing is known.
    assert {op.phase for op, what in sent if what.acks == 0} == {Phase.UNKNOWN}
    assert {op.phase for op, what in sent if what.acks != 0} == {Phase.OK}
    assert len({value for _, what in sent for value in what.values}) == sum(
        len(what.values) for _, what in sent
    )
    fetched = [what for _, what in history.notes(Fetched)]
    assert any(what.from_follower for what in fetched)
    read = {record.value for what in fetched for record in what.records}
    assert {value for _, what in sent for value in what.values} <= read
    assert Tally.of(history).ok(ListOffset) > 0
    assert list(history.notes(LeaderSeen))


def test_idempotent_producers_number_their_operations() -> None:
    history = calm("idempotent", {"producers": 1, "window": 5, "interval_ms": 50})
    numbers = [what.sequence for _, what in history.operations(Produce) if what.partition[1] == 0]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 50


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("static", [False, True])
def test_group_members(cooperative: bool, static: bool) -> None:
    options = {"members": 3, "cooperative": cooperative, "static": static, "leave_chance": 0.05}
    history = calm("groups", options)
    tally = Tally.of(history)
    for kind in (Join, Sync, Heartbeat, Commit, AskCommitted):
        assert tally.ok(kind) > 0, kind
    assigned = [e.what for e in history.entries if isinstance(e.what, Assigned)]
    newest = max(what.generation for what in assigned)
    assert newest > 1
    everything = [one for what in assigned if what.generation == newest for one in what.partitions]
    assert len(everything) == len(set(everything)) == 2


def test_an_administrator() -> None:
    acts = ["topic", "write", "grow", "elect", "move", "move-own", "trim"]
    tally = Tally.of(calm("churn", {"acts": acts, "interval_ms": 50}, seconds=15))
    for kind in (CreateTopic, DeleteTopic, AddPartitions, Reassign, DeleteRecords):
        assert tally.ok(kind) > 0, kind
    assert any(name == Elect.__name__ for name, _ in tally.counts)


def test_operations_pair_a_beginning_with_its_end() -> None:
    clock = FakeClock()
    history = History(clock)
    first = history.invoke("a", Heartbeat("g", "a", 1))
    second = history.invoke("b", Heartbeat("g", "b", 1))
    clock.advance(2.0)
    history.ok("b", second, "answer")
    history.note("a", "seen")
    (one, _), (other, what) = history.operations(Heartbeat)
    assert (one.client, one.phase, one.is_ok) == ("a", Phase.UNKNOWN, False)
    assert one.ended > other.ended > other.begun > one.begun
    assert (other.is_ok, what.member_id) == (True, "b")
    history.fail("a", first)
    assert next(iter(history.operations(Heartbeat)))[0].phase is Phase.FAIL
    assert [what for _, what in history.notes(str)] == ["seen"]


class Refusing:
    """A connection to a broker that answers as told: an error code for each Produce."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = codes

    def send(self, request: Any, *, version: int) -> "Deferred[Any]":
        partition = ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
            error_code=self._codes.pop(0)
        )
        topic = ProduceResponse.TopicProduceResponse(partition_responses=[partition])
        return succeed(ProduceResponse(responses=[topic]))


@pytest.mark.parametrize("overtaken", [True, False])
def test_a_batch_that_a_newer_one_overtook_may_be_forgotten(overtaken: bool) -> None:
    """The first of two gets no clear answer, the second is taken; then the broker starts anew."""
    partition = TopicPartition("t", 0)
    clock = FakeClock()
    history = History(clock)
    ports: Any = SimpleNamespace(
        clock=clock, random=Random(1), history=history, network=None, bootstrap=()
    )
    codes = [RequestTimedOut.code, NONE if overtaken else RequestTimedOut.code]
    connection = Refusing([*codes, OutOfOrderSequenceNumber.code])

    class Alone(Producer):
        def leader_of(self, partition: TopicPartition) -> int:
            return 1

        async def send_now(self, broker_id: int) -> Any:
            return connection

        async def refresh(self, topics: Any = ()) -> bool:
            return True

    producer = Alone("p", ports, (partition,), idempotent=True)
    unacked = [producer._new_batch(partition) for _ in range(2)]
    for count in (2, 1):
        result_of(Deferred.fromCoroutine(producer._round(partition, unacked, count)))
    assert unacked == [], "given up"
    notes = [note for _, note in history.notes(SequenceRefused)]
    assert [note.behind_s for note in notes] == ([] if overtaken else [0.0])
