"""The metadata cache follows UpdateMetadata and nothing else."""

import pytest

from kafkalike.broker.cluster.awaiting import MetadataWaiter
from kafkalike.broker.cluster.metadata_cache import NO_CONTROLLER, MetadataCache, MetadataUpdate
from kafkalike.messages.control import UpdateMetadataRequest
from kafkalike.types import LEADER_DURING_DELETE, ZERO_UUID, Endpoint, Node, TopicPartition
from tests.fakes import FakeClock, result_of
from tests.unit.cluster.support import update_metadata

ID_A = b"a" * 16
ID_B = b"b" * 16


def test_brokers_and_controller_are_replaced_partitions_merged() -> None:
    cache = MetadataCache(1)
    assert cache.controller_id == NO_CONTROLLER
    cache.update(update_metadata({"t": [(0, 1, [1, 2]), (1, 2, [2, 1])]}, brokers=[1, 2]))
    cache.update(update_metadata({"t": [(1, 1, [1])]}, brokers=[1], controller=1))

    assert cache.alive_brokers() == [1]
    assert cache.controller_id == 1
    zero, one = (cache.partition(TopicPartition("t", n)) for n in (0, 1))
    assert zero is not None and zero.leader == 1 and zero.isr == (1, 2)
    assert one is not None and one.leader == 1 and one.isr == (1,)


def test_a_snapshot_never_changes() -> None:
    cache = MetadataCache(1)
    cache.update(update_metadata({"t": [(0, 1, [1])]}))
    before = cache.snapshot
    cache.update(update_metadata({"t": [(0, 2, [2])], "u": [(0, 1, [1])]}))
    assert before.topics["t"][0].leader == 1
    assert "u" not in before.topics
    assert cache.snapshot.version == before.version + 1


def test_leader_minus_two_removes_partition_topic_and_id() -> None:
    cache = MetadataCache(1)
    seen: list[MetadataUpdate] = []
    cache.add_listener(seen.append)
    cache.update(update_metadata({"t": [(0, 1, [1]), (1, 1, [1])]}, ids={"t": ID_A}))
    cache.update(update_metadata({"t": [(0, LEADER_DURING_DELETE, [1])]}, ids={"t": ID_A}))
    assert cache.has_topic("t")
    assert cache.topic_name(ID_A) == "t"
    cache.update(update_metadata({"t": [(1, LEADER_DURING_DELETE, [1])]}, ids={"t": ID_A}))
    assert not cache.has_topic("t")
    assert cache.topic_name(ID_A) is None
    assert cache.topic_id("t") == ZERO_UUID
    assert [update.removed for update in seen] == [
        (),
        (TopicPartition("t", 0),),
        (TopicPartition("t", 1),),
    ]


def test_a_recreated_topic_has_its_new_id_only() -> None:
    cache = MetadataCache(1)
    cache.update(update_metadata({"t": [(0, 1, [1])]}, ids={"t": ID_A}))
    cache.update(update_metadata({"t": [(0, 1, [1])]}, ids={"t": ID_B}))
    assert cache.topic_name(ID_A) is None
    assert cache.topic_name(ID_B) == "t"
    cache.update(update_metadata({"t": [(0, 1, [1])]}, ids={"t": ZERO_UUID}))
    assert cache.topic_name(ID_B) is None


def test_a_topic_made_anew_has_no_partition_of_the_old_one() -> None:
    """Its deletion may have been missed (seed 18337)."""
    cache = MetadataCache(1)
    cache.update(update_metadata({"t": [(0, 1, [1]), (1, 2, [2])]}, ids={"t": ID_A}))
    cache.update(update_metadata({"t": [(0, LEADER_DURING_DELETE, [2])]}, ids={"t": ID_B}))
    assert list(cache.snapshot.topics["t"]) == [1], "a late deletion takes nothing else along"
    cache.update(update_metadata({"t": [(0, 1, [1]), (1, 2, [2])]}, ids={"t": ID_A}))
    cache.update(update_metadata({"t": [(0, 2, [2])]}, ids={"t": ID_B}))
    assert list(cache.snapshot.topics["t"]) == [0]
    cache.update(update_metadata({"t": [(0, LEADER_DURING_DELETE, [2])]}, ids={"t": ID_B}))
    assert not cache.has_topic("t")


def test_old_layout_without_topic_groups_keeps_known_ids() -> None:
    cache = MetadataCache(1)
    cache.update(update_metadata({"t": [(0, 1, [1])]}, ids={"t": ID_A}))
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name="t", partition_index=0, leader=2, isr=[2], replicas=[2], zk_version=7
    )
    cache.update(UpdateMetadataRequest(controller_id=2, ungrouped_partition_states=[state]))
    found = cache.partition(TopicPartition("t", 0))
    assert found is not None
    assert (found.leader, found.partition_epoch) == (2, 7)
    assert cache.topic_id("t") == ID_A


def test_addresses_belong_to_a_listener() -> None:
    cache = MetadataCache(1)
    request = update_metadata({}, brokers=[])
    request.live_brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=5,
            rack="r1",
            endpoints=[
                UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint(
                    port=9092, host="out", listener="PUBLIC", security_protocol=0
                ),
                UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint(
                    port=9093, host="in", listener="INTERNAL", security_protocol=3
                ),
            ],
        )
    ]
    cache.update(request)
    assert cache.node(5, "PUBLIC") == Node(5, "out", 9092, "r1")
    assert cache.snapshot.brokers[5].endpoints["INTERNAL"] == Endpoint(
        "INTERNAL", "SASL_SSL", "in", 9093
    )
    assert cache.node(5, "OTHER") is None
    assert cache.snapshot.nodes("OTHER") == []


@pytest.mark.parametrize("timeout_ms", [1, 5000])
def test_a_wait_ends_with_its_condition_or_its_time(timeout_ms: int) -> None:
    clock = FakeClock()
    cache = MetadataCache(1)
    waiter = MetadataWaiter(cache, clock)
    wait = waiter.wait(["t", "t"], lambda s: "t" in s.topics, timeout_ms)
    cache.update(update_metadata({"other": [(0, 1, [1])]}))
    assert not wait.called
    if timeout_ms == 1:
        clock.advance(0.001)
        assert result_of(wait) is False
    else:
        cache.update(update_metadata({"t": [(0, 1, [1])]}))
        assert result_of(wait) is True
    assert len(waiter) == 0
    assert clock.pending() == 0


def test_a_condition_that_holds_needs_no_wait() -> None:
    clock = FakeClock()
    cache = MetadataCache(1)
    waiter = MetadataWaiter(cache, clock)
    assert result_of(waiter.wait(["t"], lambda _: True, 1000)) is True
    open_wait = waiter.wait(["t"], lambda _: False, 1000)
    waiter.stop()
    assert result_of(open_wait) is False
