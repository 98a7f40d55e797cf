"""Incremental fetch sessions (KIP-227; reference: replication 11)."""

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.replica.fetch_session import FetchSessions, next_epoch
from kafkalike.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.types import TopicPartition
from tests.fakes import FakeClock, FakeRandom, result_of

from .support import T0, TOPIC_ID, Broker, fetch_request, values_of

T1 = TopicPartition("t", 1)
T2 = TopicPartition("t", 2)


class Client:
    """A consumer or follower that fetches incrementally."""

    def __init__(self, broker: Broker, version: int = 12, **fields: Any) -> None:
        self.broker = broker
        self.version = version
        self.fields = fields
        self.session = (0, 0)

    def send(
        self,
        offsets: dict[TopicPartition, int],
        forget: tuple[TopicPartition, ...] = (),
        **fields: Any,
    ) -> Any:
        request = fetch_request(
            offsets, session=self.session, by_id=self.version >= 13, **(self.fields | fields)
        )
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic=k.topic, topic_id=TOPIC_ID, partitions=[k.partition])
            for k in forget
        ]
        raw = request.encode(self.version)
        return self.broker.fetch(FetchRequest.decode(raw, self.version), self.version)

    def fetch(self, offsets: dict[TopicPartition, int] | None = None, **fields: Any) -> Any:
        """Fetch, and what it told: {partition: (values, high watermark)}."""
        answer = self.send(offsets or {}, **fields)
        assert isinstance(answer, FetchResponse)
        return self.take(answer)

    def take(self, answer: FetchResponse) -> dict[int, tuple[list[str], int]]:
        assert answer.error_code == 0
        if answer.session_id:
            self.session = (answer.session_id, next_epoch(self.session[1]))
        else:
            self.session = (0, 0)
        return {
            p.partition_index: (values_of(p.records or b""), p.error_code or p.high_watermark)
            for topic in answer.responses
            for p in topic.partitions
        }


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Leads three partitions of one replica each."""
    broker = Broker(1, tmp_path, FakeClock())
    broker.know(1, 2, 3, partitions=[T0, T1, T2])
    for key in (T0, T1, T2):
        broker.lead(key)
    return broker


def produce(broker: Broker, key: TopicPartition, value: str) -> None:
    assert result_of(broker.produce(value, to=key)).error_code == 0


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_answers_name_only_what_changed(broker: Broker, version: int) -> None:
    client = Client(broker, version)
    assert client.fetch({T0: 0, T1: 0, T2: 0}) == {0: ([], 0), 1: ([], 0), 2: ([], 0)}
    assert client.session[0] != 0 and client.session[1] == 1
    assert client.fetch() == {}
    produce(broker, T1, "a")
    assert client.fetch() == {1: (["a"], 1)}
    assert client.fetch({T1: 1}) == {}
    assert client.fetch() == {}
    produce(broker, T0, "b")
    produce(broker, T2, "c")
    assert client.fetch() == {0: (["b"], 1), 2: (["c"], 1)}


def test_records_not_taken_are_sent_again(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0})
    produce(broker, T0, "a")
    for _ in range(3):
        assert client.fetch() == {0: (["a"], 1)}


def test_partition_that_was_left_out_for_its_size_comes_next(broker: Broker) -> None:
    """Fairness: whoever got records goes to the end."""
    client = Client(broker, max_bytes=1)
    client.fetch({T0: 0, T1: 0, T2: 0})
    for key in (T0, T1, T2):
        produce(broker, key, str(key.partition))
    client.fetch()  # the full answer's order is the first order
    seen = []
    for _ in range(6):
        answer = client.fetch()
        seen.append([values for values, _ in answer.values() if values])
    assert [found[0] for found in seen if found] == [["1"], ["2"], ["0"]] * 2


def test_only_dirty_partitions_are_looked_at(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0, T1: 0, T2: 0})
    client.fetch()
    (session,) = broker.sessions._sessions.values()
    assert len(session.dirty) == 0
    produce(broker, T1, "a")
    assert [entry.topic_partition for entry in session.dirty] == [T1]


def test_log_start_is_news(broker: Broker) -> None:
    client = Client(broker)
    produce(broker, T0, "a")
    client.fetch({T0: 1})
    client.fetch()
    broker.partition(T0).delete_records(1)
    answer = client.send({})
    assert answer.responses[0].partitions[0].log_start_offset == 1


def test_error_is_told_each_time_and_the_recovery_too(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 5, T1: 0})
    for _ in range(2):
        assert client.fetch() == {0: ([], OffsetOutOfRange.code)}
    assert client.fetch({T0: 0}) == {0: ([], 0)}
    assert client.fetch() == {}


def test_partition_comes_to_a_session_when_it_comes_to_the_broker(broker: Broker) -> None:
    late = TopicPartition("t", 9)
    client = Client(broker)
    assert client.fetch({late: 0}) == {9: ([], UnknownTopicOrPartition.code)}
    broker.know(1, 2, 3, partitions=[late])
    broker.lead(late)
    assert client.fetch() == {9: ([], 0)}
    assert client.fetch() == {}
    produce(broker, late, "a")
    assert client.fetch() == {9: (["a"], 1)}


def test_deleted_partition_is_told(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0, T1: 0})
    client.fetch()
    partition = broker.replicas._hosted.remove(T0)
    assert partition is not None
    partition.stop()
    assert client.fetch() == {0: ([], 6)}
    assert partition.watchers is None


def test_forgotten_partitions_are_not_answered(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0, T1: 0})
    produce(broker, T0, "a")
    produce(broker, T1, "b")
    answer = client.send({}, forget=(T0,))
    assert client.take(answer) == {1: (["b"], 1)}
    assert broker.partition(T0).watchers is None


def test_empty_session_is_closed(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0})
    answer = client.send({}, forget=(T0,))
    assert isinstance(answer, FetchResponse) and answer.session_id == 0
    assert len(broker.sessions) == 0


def test_sessionless(broker: Broker) -> None:
    client = Client(broker)
    client.session = (0, -1)
    assert client.fetch({T0: 0}) == {0: ([], 0)}
    assert client.session == (0, 0) and len(broker.sessions) == 0


def test_full_request_closes_the_session_it_names(broker: Broker) -> None:
    for epoch, left in ((0, 1), (-1, 0)):
        client = Client(broker)
        client.fetch({T0: 0})
        old = client.session[0]
        client.session = (old, epoch)
        client.fetch({T0: 0})
        assert old not in broker.sessions._sessions
        assert len(broker.sessions) == left
        broker.sessions._sessions.clear()


def test_errors_of_the_whole_request(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0})
    good = client.session
    for session, version, expected in (
        ((good[0] + 1, 1), 12, FetchSessionIdNotFound),
        ((good[0], good[1] + 1), 12, InvalidFetchSessionEpoch),
        ((good[0], good[1]), 13, FetchSessionTopicIdError),
    ):
        client.session, client.version = session, version
        answer = client.send({T0: 0})
        assert answer.error_code == expected.code and answer.responses == []
    client.session, client.version = good, 12
    assert client.fetch() == {}  # none of it did any harm


def test_epoch_wraps_to_1() -> None:
    assert next_epoch(0x7FFFFFFF) == 1


def test_unknown_topic_id_is_looked_up_again(broker: Broker) -> None:
    broker.metadata.snapshot = type(broker.metadata.snapshot)()
    client = Client(broker, 17)
    assert client.fetch({T0: 0}) == {0: ([], UnknownTopicId.code)}
    assert client.fetch() == {0: ([], UnknownTopicId.code)}
    broker.know(1, partitions=[T0])
    assert client.fetch() == {0: ([], 0)}


def test_waiting_incremental_fetch_is_woken_by_its_partitions(broker: Broker) -> None:
    client = Client(broker, max_wait_ms=500)
    client.take(client.broker.fetch(fetch_request({T0: 0, T1: 0}, session=(0, 0)), 12))  # type: ignore[arg-type]
    client.fetch(max_wait_ms=0)
    waiting = client.send({})
    assert isinstance(waiting, Deferred)
    produce(broker, T2, "z")
    broker.clock.run_soon()
    assert not waiting.called
    produce(broker, T1, "a")
    broker.clock.run_soon()
    assert client.take(result_of(waiting)) == {1: (["a"], 1)}
    waiting = client.send({T1: 1})
    broker.clock.advance(0.6)
    assert client.take(result_of(waiting)) == {}


def test_change_seen_before_the_wait_is_told_after_it(broker: Broker) -> None:
    """A new high watermark does not end the wait, but must not be forgotten over it."""
    broker.lead(T0, epoch=1, replicas=[1, 2], isr=[1, 2])
    client = Client(broker, replica_id=2)
    produce(broker, T0, "a")
    client.fetch({T0: 0})
    waiting = client.send({T0: 1}, max_wait_ms=500)
    assert isinstance(waiting, Deferred) and broker.log(T0).high_watermark == 1
    broker.clock.advance(0.6)
    assert client.take(result_of(waiting)) == {0: ([], 1)}


def test_request_overtaken_by_the_next_of_its_session(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0})
    client.fetch()
    waiting = client.send({}, max_wait_ms=500)
    client.session = (client.session[0], client.session[1] + 1)
    client.send({}, max_wait_ms=0)
    broker.clock.advance(1)
    assert result_of(waiting).error_code == InvalidFetchSessionEpoch.code


def test_session_evicted_under_a_waiting_request(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0})
    client.fetch()
    waiting = client.send({}, max_wait_ms=500)
    broker.sessions._remove(client.session[0])
    produce(broker, T0, "a")
    broker.clock.advance(1)
    answer = result_of(waiting)
    assert answer.error_code == 0 and answer.responses == []
    assert client.send({}).error_code == FetchSessionIdNotFound.code


def test_permissions_that_change_are_noticed(broker: Broker) -> None:
    client = Client(broker)
    client.fetch({T0: 0, T1: 0})
    client.fetch()
    broker.sessions.mark_all_changed()
    (session,) = broker.sessions._sessions.values()
    assert len(session.dirty) == 2


def test_new_leader_epoch_is_told_everything_again(broker: Broker) -> None:
    """The follower dropped the last answer, which met it between two roles."""
    client = Client(broker)
    produce(broker, T0, "a")
    client.fetch({T0: 1}, epoch=0)
    assert client.fetch({T0: 1}, epoch=0) == {}
    broker.lead(T0, epoch=1)
    assert client.fetch({T0: 1}, epoch=1) == {0: ([], 1)}
    assert client.fetch() == {}


def test_high_watermark_is_told_again_after_a_divergence(broker: Broker) -> None:
    """The follower must not use the one that came with the divergence (KAFKA-14704)."""
    broker.lead(T0, epoch=1, replicas=[1, 2], isr=[1])
    produce(broker, T0, "a")
    client = Client(broker, replica_id=2, epoch=1)
    client.fetch({T0: 0})
    answer = client.send({T0: 3}, last_epoch=1)
    assert answer.responses[0].partitions[0].diverging_epoch.end_offset == 1
    client.take(answer)
    assert client.fetch({T0: 1}, last_epoch=1) == {0: ([], 1)}


# -- progress of followers over partitions that need no look ------------------------------------


def test_idle_follower_in_a_session_stays_caught_up(broker: Broker) -> None:
    """A session passes over idle partitions: that must not make its follower look slow."""
    broker.lead(T0, epoch=1, replicas=[1, 2], isr=[1, 2])
    client = Client(broker, replica_id=2)
    client.fetch({T0: 0})
    for _ in range(1000):
        broker.clock.advance(0.5)
        assert client.fetch() == {}
    broker.clock.advance(0.1)
    produce(broker, T0, "a")
    partition = broker.partition(T0)
    assert partition.lagging_replicas() == set()
    replica = partition.remote(2)
    assert replica is not None and replica.last_caught_up_s == replica.last_fetch_s == 500.0
    broker.clock.advance(29)
    assert partition.lagging_replicas() == set()
    broker.clock.advance(2)
    assert partition.lagging_replicas() == {2}


def test_slow_follower_in_a_session_gets_no_credit_for_polls(broker: Broker) -> None:
    broker.lead(T0, epoch=1, replicas=[1, 2], isr=[1, 2])
    produce(broker, T0, "a")
    client = Client(broker, replica_id=2)
    client.fetch({T0: 0})
    for _ in range(70):
        broker.clock.advance(0.5)
        client.fetch()  # asks, but never gets further
    assert broker.partition(T0).lagging_replicas() == {2}


def test_follower_out_of_the_isr_is_tried_at_each_of_its_fetches(broker: Broker) -> None:
    broker.lead(T0, epoch=1, replicas=[1, 2], isr=[1])
    broker.know(1)
    client = Client(broker, replica_id=2)
    client.fetch({T0: 0})
    client.fetch()
    assert broker.partition(T0).proposal is None
    broker.know(1, 2)
    client.fetch()
    proposal = broker.partition(T0).proposal
    assert proposal is not None and proposal.isr == (1, 2)


# -- the cache ---------------------------------------------------------------------------------


class Cache:
    def __init__(self, slots: int) -> None:
        self.clock = FakeClock()
        self.sessions = FetchSessions(self.clock, FakeRandom(1), slots=slots)

    def open(self, size: int, *, follower: bool = False) -> int:
        offsets = {TopicPartition(f"t{n}", 0): 0 for n in range(size)}
        context = self.sessions.begin(
            fetch_request(offsets, session=(0, 0), replica_id=2 if follower else -1),
            12,
            is_follower=follower,
            topic_name=lambda _: None,
        )
        return context.respond([]).session_id

    def use(self, session_id: int, epoch: int = 1) -> None:
        self.sessions.begin(
            fetch_request({}, session=(session_id, epoch)),
            12,
            is_follower=False,
            topic_name=lambda _: None,
        )

    @property
    def ids(self) -> set[int]:
        return set(self.sessions._sessions)


def test_full_cache_answers_without_session() -> None:
    cache = Cache(2)
    assert 0 not in (cache.open(1), cache.open(1))
    assert cache.open(5) == 0
    assert len(cache.sessions) == 2 and cache.sessions.evictions == 0


def test_unused_session_gives_way_after_two_minutes() -> None:
    cache = Cache(2)
    old, used = cache.open(9), cache.open(1)
    cache.clock.advance(100)
    cache.use(used)
    cache.clock.advance(21)
    new = cache.open(1)
    assert cache.ids == {used, new} and old not in cache.ids
    assert cache.sessions.evictions == 1


def test_smaller_old_session_gives_way_to_a_larger_one() -> None:
    cache = Cache(2)
    small, large = cache.open(2), cache.open(8)
    for _ in range(3):
        cache.clock.advance(60)
        for epoch, session in enumerate((small, large)):
            del epoch
            cache.use(session, cache.sessions._sessions[session].epoch)
    assert cache.open(1) == 0
    new = cache.open(3)
    assert cache.ids == {large, new}


def test_follower_pushes_out_a_consumer_at_any_age_but_not_the_other_way() -> None:
    cache = Cache(1)
    cache.open(50)
    follower = cache.open(1, follower=True)
    assert cache.ids == {follower}
    for _ in range(3):
        cache.clock.advance(60)
        cache.use(follower, cache.sessions._sessions[follower].epoch)
        assert cache.open(50) == 0
    assert cache.open(9, follower=True) != 0  # a larger one of a follower
    cache.clock.advance(121)
    assert cache.open(1) != 0  # stale now


def test_ids_are_random_and_not_zero() -> None:
    cache = Cache(100)
    ids = [cache.open(1) for _ in range(100)]
    assert len(set(ids)) == 100 and all(0 < one < 1 << 31 for one in ids)


def test_same_partition_twice_the_last_one_counts(broker: Broker) -> None:
    produce(broker, T0, "a")
    produce(broker, T0, "b")
    request = fetch_request({T0: 0})
    (wanted,) = request.topics[0].partitions
    request.topics[0].partitions.append(
        type(wanted)(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    )
    answer = broker.fetch(request, 12)
    assert isinstance(answer, FetchResponse)
    (partition,) = answer.responses[0].partitions
    assert values_of(partition.records or b"") == ["b"]
