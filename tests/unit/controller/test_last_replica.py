"""The last replica standing (ADR 0008): who is named, who is short, who is whole, who leads."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.controller.api import UNCLEAN_ELECTION
from kafkalike.controller.context import Broker, ControllerContext
from kafkalike.controller.journal import LastReplicaPassedOver, LeadershipChanged
from kafkalike.controller.last_replica import (
    effective_min_isr,
    former_after,
    is_short,
    safer_member,
)
from kafkalike.tools.local.tree_copy import without_zxids
from kafkalike.types import RECOVERING, LeaderAndIsr, ReplicaAssignment
from kafkalike.zk import paths
from kafkalike.zk.znodes import BrokerInfo, CorruptZnode, FormerIsr, PartitionState, encode_config

from .contexts import T0, context_of
from .stories import S0, alter_isr, come_back, leave_in_order, rejoin, shut_down, with_topic
from .world import World

# -- the rules ------------------------------------------------------------------------------------


def state_of(
    isr: tuple[int, ...],
    leader: int = -1,
    epoch: int = 5,
    former: dict[int, int] | None = None,
    recovery: int = 0,
) -> PartitionState:
    named = FormerIsr(tuple((former or {}).items()), (7, -1, -1)) if former else None
    return PartitionState(LeaderAndIsr(leader, epoch, isr, recovery), 1, named)


def known(
    *brokers: int,
    short: dict[int, int] | None = None,
    whole: dict[int, int] | None = None,
    assignment: ReplicaAssignment | None = None,
) -> ControllerContext:
    """Brokers in their lives 101, 102, ...; what some of them tell of T0."""
    context = context_of(brokers, {T0: assignment or (1, 2, 3)})
    for broker_id, broker in list(context.brokers.items()):
        info = replace(
            broker.info,
            short_logs={T0: short[broker_id]} if short and broker_id in short else {},
            whole_logs={T0: whole[broker_id]} if whole and broker_id in whole else {},
        )
        context.brokers[broker_id] = Broker(broker_id, broker.epoch, info)
    context.last_epochs.update({1: 101, 2: 102, 3: 103})
    return context


FORMER_ROWS: list[tuple[str, PartitionState, PartitionState, dict[int, int]]] = [
    ("the ISR falls to one", state_of((1, 2), 1), state_of((1,), 1), {2: 102}),
    ("two leave together", state_of((1, 2, 3), 1), state_of((2,)), {1: 101, 3: 103}),
    ("two remain", state_of((1, 2, 3), 1), state_of((1, 2), 1), {}),
    ("the same one remains", state_of((1,), 1, former={2: 90}), state_of((1,)), {2: 90}),
    ("nobody was named", state_of((1,), 1), state_of((1,)), {}),
    ("another leads alone", state_of((1,), former={2: 102}), state_of((2,), 2), {}),
    ("unclean", state_of((1,), former={2: 102}), state_of((2,), 2, recovery=RECOVERING), {}),
    ("the ISR grows", state_of((1,), 1, former={2: 102}), state_of((1, 2), 1), {}),
    ("who is not assigned", state_of((1, 9), 1), state_of((1,), 1), {}),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), FORMER_ROWS, ids=lambda v: str(v)[:30])
def test_who_is_named(
    name: str, old: PartitionState, new: PartitionState, expected: dict[int, int]
) -> None:
    assert dict(former_after(known(1, 2, 3), T0, old, new.leader_and_isr)) == expected


def test_whose_life_is_not_known_is_not_named() -> None:
    context = known(1, 2, 3)
    del context.last_epochs[2]
    new = state_of((1,), 1).leader_and_isr
    assert former_after(context, T0, state_of((1, 2, 3), 1), new) == ((3, 103),)


def test_a_copy_that_begins_anew_is_not_named() -> None:
    """It was taken away and comes back empty, in the same life of its broker."""
    assignment = ReplicaAssignment((1, 2), adding=(2,))
    context = known(1, 2, assignment=assignment)
    old = state_of((1,), 1, former={2: 102})
    assert former_after(context, T0, old, state_of((1,), 1).leader_and_isr) == ()
    context = known(1, 2, assignment=assignment, short={1: 5})
    assert safer_member(context, T0, state_of((1,), former={2: 102})) is None


def test_the_election_of_a_shorter_log_makes_the_others_nothing_special() -> None:
    context = known(1, 2, short={1: 4})
    old = state_of((1,), -1, 5, former={2: 102})
    assert former_after(context, T0, old, LeaderAndIsr(1, 6, (1,))) == ()
    assert former_after(context, T0, old, LeaderAndIsr(-1, 6, (1,))) == ((2, 102),)


SHORT_ROWS: list[tuple[str, PartitionState, dict[int, int], bool]] = [
    ("as it found it", state_of((1,), -1, 5), {1: 5}, True),
    ("one step to no leader since", state_of((1,), -1, 5), {1: 4}, True),
    ("more has happened since", state_of((1,), -1, 5), {1: 3}, False),
    ("told of the future", state_of((1,), -1, 5), {1: 6}, False),
    ("nothing told", state_of((1,), -1, 5), {}, False),
    ("somebody else told", state_of((1,), -1, 5), {2: 5}, False),
    ("two in sync", state_of((1, 2), -1, 5), {1: 5}, False),
    ("leads, not elected since", state_of((1,), 1, 5), {1: 5}, True),
    ("leads, elected since", state_of((1,), 1, 6), {1: 5}, False),
    ("another leads", state_of((1,), 2, 5), {1: 5}, False),
]


@pytest.mark.parametrize(
    ("name", "state", "told", "expected"), SHORT_ROWS, ids=lambda v: str(v)[:30]
)
def test_who_is_short(
    name: str, state: PartitionState, told: dict[int, int], expected: bool
) -> None:
    assert is_short(known(1, 2, short=told), T0, state) is expected


WHOLE_ROWS: list[tuple[str, dict[int, int], dict[int, int], tuple[int, ...], int | None]] = [
    ("in the life in which it left", {2: 102}, {}, (1, 2), 2),
    ("restarted, and nothing told", {2: 99}, {}, (1, 2), None),
    ("restarted in order from that life", {2: 99}, {2: 99}, (1, 2), 2),
    ("restarted in order from another", {2: 99}, {2: 98}, (1, 2), None),
    ("not here", {2: 102}, {}, (1, 3), None),
    ("the first assigned", {2: 102, 3: 103}, {}, (1, 2, 3), 2),
    ("the first that is whole", {2: 99, 3: 103}, {}, (1, 2, 3), 3),
    ("nobody named", {}, {2: 102}, (1, 2), None),
]


@pytest.mark.parametrize(
    ("name", "former", "whole", "brokers", "expected"), WHOLE_ROWS, ids=lambda v: str(v)[:30]
)
def test_who_is_safer(
    name: str,
    former: dict[int, int],
    whole: dict[int, int],
    brokers: tuple[int, ...],
    expected: int | None,
) -> None:
    context = known(*brokers, short={1: 5}, whole=whole)
    assert safer_member(context, T0, state_of((1,), former=former)) == expected
    context = known(*brokers, whole=whole)
    assert safer_member(context, T0, state_of((1,), former=former)) is None


def test_who_is_leaving_does_not_lead() -> None:
    context = known(1, 2, short={1: 5})
    context.shutting_down.add(2)
    assert safer_member(context, T0, state_of((1,), former={2: 102})) is None


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{}, {}, {}], 3),
        ([{"min.insync.replicas": "2"}, {}, {"min.insync.replicas": "1"}], 2),
        ([{}, {"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}], 1),
        ([{}, {}, {"min.insync.replicas": " 2 "}], 2),
        ([{"min.insync.replicas": "two"}, {}, {}], 1),
        ([CorruptZnode("p", "d"), {}, {}], 1),
    ],
)
def test_min_isr_of_a_topic(layers: list[Any], expected: int) -> None:
    assert effective_min_isr(layers, 3) == expected


# -- a cluster ------------------------------------------------------------------------------------


def cluster(min_isr: str | None = "2", count: int = 3, **settings: Any) -> World:
    """s-0 on brokers 2 and 3, both in sync; broker 1 is controller."""
    world = World(count, **settings)
    with_topic(world)
    config = {} if min_isr is None else {"min.insync.replicas": min_isr}
    world.create_topic("s", [[2, 3]], config)
    world.settle()
    assert world.isr("s") == (2, 3)
    return world


def data_of(world: World, path: str) -> bytes:
    data = world.coordination.get(path)
    assert data is not None
    return data


def payload(world: World, topic: str = "s") -> dict[str, Any]:
    value = json.loads(data_of(world, paths.partition_state(topic, 0)))
    assert isinstance(value, dict)
    return value


def broker_3_leaves(world: World) -> int:
    """In order; the epoch of the life that it ends."""
    epoch = world.brokers[3].epoch
    shut_down(world, 3)
    leave_in_order(world, 3)
    return epoch


def broker_2_loses_records(world: World) -> None:
    world.brokers[2].kill()
    world.settle()
    come_back(world, 2, short=[S0])
    world.settle()


def test_the_payload_is_kafkas_where_nothing_is_to_say() -> None:
    for world in (cluster(None), cluster("1"), cluster("2", last_replica_defence=False)):
        broker_3_leaves(world)
        assert list(payload(world)) == [
            "controller_epoch",
            "leader",
            "version",
            "leader_epoch",
            "isr",
        ]
    world = cluster("2")
    rejoin(world, "s", 3)
    assert b"kafkalike" not in data_of(world, paths.partition_state("s", 0))
    assert b"kafkalike" not in data_of(world, paths.broker(2))


def test_the_state_names_who_left_until_somebody_joins() -> None:
    world = cluster()
    epoch = broker_3_leaves(world)
    zxid = world.coordination.stat(paths.topic_config("s"))
    assert zxid is not None
    assert payload(world)["kafkalike_former_isr"] == {"3": epoch}
    assert payload(world)["kafkalike_min_isr_zxids"] == [zxid.mzxid, -1, -1]
    world.brokers[2].kill()
    world.settle()
    assert payload(world)["kafkalike_former_isr"] == {"3": epoch}
    assert payload(world)["leader"] == -1
    come_back(world, 2)
    world.settle()
    assert payload(world)["kafkalike_former_isr"] == {"3": epoch}
    world.brokers[3].start()
    world.settle()
    rejoin(world, "s", 3)
    assert "kafkalike_former_isr" not in payload(world)


def test_a_follower_that_fell_behind_leads_in_the_same_life() -> None:
    world = cluster()
    alter_isr(world, "s", (2,))
    assert payload(world)["kafkalike_former_isr"] == {"3": world.brokers[3].epoch}
    broker_2_loses_records(world)
    assert (world.leader("s"), world.isr("s")) == (3, (3,))
    assert world.state("s").leader_and_isr.recovery_state == 0
    records = [r for _, r in world.journal if isinstance(r, LastReplicaPassedOver)]
    assert [(r.partition, r.leader, r.instead_of) for r in records] == [(S0, 3, 2)]
    index = world.journal.index((1, records[0]))
    following = world.journal[index + 1][1]
    assert isinstance(following, LeadershipChanged) and not following.unclean
    world.check_agreement()


def test_a_broker_that_stopped_in_order_leads_after_its_restart() -> None:
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    broker_2_loses_records(world)
    assert (world.leader("s"), world.isr("s")) == (3, (3,))
    world.check_agreement()


def test_who_restarted_otherwise_is_not_whole() -> None:
    """An empty disk, a power cut: the log that lost its last second is better."""
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3)
    broker_2_loses_records(world)
    assert (world.leader("s"), world.isr("s")) == (2, (2,))
    assert "kafkalike_former_isr" not in payload(world), "3 follows the shorter log now"


def test_a_log_that_is_not_short_leads_as_ever() -> None:
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    world.brokers[2].kill()
    world.settle()
    come_back(world, 2)
    world.settle()
    assert world.leader("s") == 2


def test_while_nobody_whole_is_here_the_partition_does_not_wait() -> None:
    world = cluster()
    broker_3_leaves(world)
    broker_2_loses_records(world)
    assert world.leader("s") == 2


def test_switched_off() -> None:
    world = cluster(last_replica_defence=False)
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    broker_2_loses_records(world)
    assert (world.leader("s"), world.isr("s")) == (2, (2,))


def test_switched_off_where_the_states_name_somebody() -> None:
    """The next controller does not know of it: what the last one wrote is carried no further."""
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    for broker in world.brokers.values():
        broker.controller._settings = replace(
            broker.controller._settings, last_replica_defence=False
        )
    world.brokers[1].kill()
    world.settle()
    broker_2_loses_records(world)
    assert world.leader("s") == 2
    assert "kafkalike_former_isr" not in payload(world)


@pytest.mark.parametrize("entity", ["topics/s", "brokers/2", "brokers/<default>"])
def test_while_min_isr_was_1_the_last_one_may_have_acknowledged_alone(entity: str) -> None:
    """It was lowered for a while: nobody knows what was written then."""
    world = cluster(None)
    for broker in world.brokers.values():
        broker.min_isr_default = 2
    broker_3_leaves(world)
    assert "kafkalike_former_isr" in payload(world)
    come_back(world, 3, whole=[S0])
    path = paths.entity_config(entity)
    for value in ("1", "2"):
        data = encode_config({"min.insync.replicas": value})
        if world.exists(path):
            world.coordination.set(path, data)
        else:
            world.coordination.create(path, data)
    broker_2_loses_records(world)
    assert (world.leader("s"), world.isr("s")) == (2, (2,))


def test_min_isr_that_is_1_now() -> None:
    """By a default in files, which leaves no trace in ZooKeeper."""
    world = cluster(None)
    for broker in world.brokers.values():
        broker.min_isr_default = 2
    broker_3_leaves(world)
    assert "kafkalike_former_isr" in payload(world)
    come_back(world, 3, whole=[S0])
    for broker in world.brokers.values():
        broker.min_isr_default = 1
    broker_2_loses_records(world)
    assert world.leader("s") == 2


def test_a_controller_that_does_not_know_the_key_leaves_it_out() -> None:
    """Kafka's: then nothing is known, and its rules hold."""
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    state = world.state("s")
    rewritten = PartitionState(state.leader_and_isr, state.controller_epoch)
    world.coordination.set(paths.partition_state("s", 0), rewritten.encode())
    broker_2_loses_records(world)
    assert world.leader("s") == 2


def test_keys_that_hold_something_else_count_as_absent() -> None:
    world = cluster()
    broker_3_leaves(world)
    path = paths.partition_state("s", 0)
    good = payload(world)
    for key, value in (
        ("kafkalike_former_isr", {"three": 5}),
        ("kafkalike_former_isr", [3]),
        ("kafkalike_former_isr", {"3": "x"}),
        ("kafkalike_min_isr_zxids", None),
        ("kafkalike_min_isr_zxids", [{}]),
    ):
        state = PartitionState.decode(json.dumps(good | {key: value}).encode(), path, 3)
        assert state.former is None
        assert state.leader_and_isr.isr == (2,)


def test_what_a_registration_tells() -> None:
    info = replace(known(1).brokers[1].info, short_logs={S0: 5, T0: 7}, whole_logs={T0: 1 << 40})
    value = json.loads(info.encode())
    assert list(value)[-2:] == ["kafkalike_short_logs", "kafkalike_whole_logs"]
    assert value["kafkalike_short_logs"] == {"s": {"0": 5}, "t": {"0": 7}}
    assert BrokerInfo.decode(info.encode(), "") == info
    for nonsense in (5, {"s": 5}, {"s": {"zero": 5}}, {"s": {"0": "x"}}):
        found = BrokerInfo.decode(
            json.dumps(value | {"kafkalike_short_logs": nonsense}).encode(), ""
        )
        assert found == replace(info, short_logs={})


def test_an_unclean_election_names_nobody() -> None:
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3)
    world.brokers[2].kill()
    world.settle()
    world.elect(UNCLEAN_ELECTION, [S0])
    assert world.leader("s") == 3
    assert "kafkalike_former_isr" not in payload(world)


def test_an_election_on_request_takes_the_safer_one_too() -> None:
    """Both come back while the controller is away: whoever asks next finds the better leader."""
    world = cluster()
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    world.brokers[2].kill()
    world.settle()
    come_back(world, 2, short=[S0])
    world.settle()
    assert world.leader("s") == 3
    world.elect(UNCLEAN_ELECTION, [S0])
    assert world.leader("s") == 3


def test_the_leader_restarts_while_there_is_no_controller() -> None:
    """The state says that it leads; the next controller must not take its word for it."""
    world = cluster(count=4)
    broker_3_leaves(world)
    come_back(world, 3, whole=[S0])
    for broker_id in (1, 4):
        world.brokers[broker_id].kill()
    world.settle()
    holder = world.active
    assert holder.id in (2, 3)
    epoch = world.state("s").leader_and_isr.leader_epoch
    zombies = [b for b in world.brokers.values() if b.up]
    for broker in zombies:
        broker.zk.freeze()  # no controller does anything from here on
    world.coordination.delete(paths.CONTROLLER)
    world.brokers[2].kill()
    world.brokers[2].short_logs = {S0: epoch}
    assert world.state("s").leader_and_isr == LeaderAndIsr(
        2, epoch, (2,), partition_epoch=world.state("s").leader_and_isr.partition_epoch
    )
    world.brokers[2].start()
    world.settle()
    for broker in zombies:
        if broker.up and broker.id != 2:
            broker.zk.thaw()
    world.settle(10.0)
    assert (world.leader("s"), world.isr("s")) == (3, (3,))


def test_a_replica_that_was_taken_away_is_forgotten() -> None:
    """Its copy is deleted; when it is assigned again, in the same life, it begins empty."""
    world = cluster()
    alter_isr(world, "s", (2,))
    assert "kafkalike_former_isr" in payload(world)
    world.reassign({S0: (2,)})
    world.settle(5.0)
    assert world.topic("s").partitions[0].replicas == (2,)
    assert "kafkalike_former_isr" not in payload(world)
    world.reassign({S0: (2, 3)})
    world.settle()
    broker_2_loses_records(world)
    assert world.leader("s") == 2


def test_many_partitions_cost_one_read() -> None:
    """A broker dies that was the other half of a hundred partitions."""
    world = World(3)
    with_topic(world)
    world.create_topic("s", [[2, 3]] * 100, {"min.insync.replicas": "2"})
    world.settle()
    reads: list[tuple[str, ...]] = []
    zk = world.active.zk
    original = zk.multi_read

    def counted(ops: Any, watch: Any = None) -> Any:
        reads.append(tuple(op.path for op in ops))
        return original(ops, watch)

    zk.multi_read = counted  # type: ignore[method-assign]
    world.brokers[3].kill()
    world.settle()
    of_configs = [r for r in reads if any(p.startswith(paths.CONFIG) for p in r)]
    assert len(of_configs) == 1
    assert all(world.state("s", n).former is not None for n in range(100))


def test_a_copy_of_the_znodes_elsewhere_names_nobody() -> None:
    """Lives are zxids of the service: those of another one mean nothing."""
    state = state_of((2,), 2, former={3: 103})
    bare = PartitionState(state.leader_and_isr, state.controller_epoch)
    assert without_zxids(state.encode()) == bare.encode()
    for data in (bare.encode(), None, b"", b"kafkalike_former_isr", b'["kafkalike_former_isr"]'):
        assert without_zxids(data) == data
