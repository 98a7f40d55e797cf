"""Stories about the controller: what happens, and how the cluster must stand afterwards.

Each story arranges a cluster, then goes through chapters.  `tests/transcripts` compares what is
written and sent with a text; `test_faults.py` runs the same stories again and again with one
ZooKeeper operation of the controller failing.  So a story asks as real brokers and clients do: again
and again until it has an answer.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from kafkalike.controller.api import PREFERRED_ELECTION, UNCLEAN_ELECTION
from kafkalike.errors import KafkaError
from kafkalike.messages.control import ControlledShutdownRequest
from kafkalike.types import TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.znodes import (
    TopicInfo,
    encode_log_dir_event,
    encode_partitions,
    encode_reassignments,
)

from .world import World, reassignment_errors, reassignment_request

T = TypeVar("T")
Story = Callable[[World], None]

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
S0 = TopicPartition("s", 0)
TRIES = 30
SEQUENTIAL = 2


def persist(world: World, ask: "Callable[[], Deferred[T]]") -> T:
    """Ask the controller there is until one answers, as a broker's channel does."""
    for _ in range(TRIES):
        try:
            active = [b for b in world.brokers.values() if b.up and b.controller.is_active]
            if active:
                result: T = world.ask(ask(), 1.0)
                return result
        except (KafkaError, AssertionError):
            pass
        world.settle(1.0)
    raise AssertionError("no controller answered")


def alter_isr(world: World, topic: str, isr: Iterable[int], partition: int = 0) -> None:
    """The leader proposes an ISR until it stands in ZooKeeper, following epochs as they change."""
    wanted = tuple(isr)
    propose_until(world, lambda: world.isr(topic, partition) == wanted, topic, wanted, partition)


def catch_up(world: World, topic: str, broker_id: int, partition: int = 0) -> None:
    """The leader proposes the ISR with one broker more until the reassignment is complete."""
    isr = world.isr(topic, partition)
    wanted = isr if broker_id in isr else (*isr, broker_id)

    def complete() -> bool:
        return not world.topic(topic).partitions[partition].is_reassigning

    propose_until(world, complete, topic, wanted, partition)


def rejoin(world: World, topic: str, broker_id: int, partition: int = 0) -> None:
    """The leader proposes the ISR with one broker more until it is in it."""

    def wanted() -> tuple[int, ...]:
        isr = world.isr(topic, partition)
        return isr if broker_id in isr else (*isr, broker_id)

    for _ in range(TRIES):
        if broker_id in world.isr(topic, partition):
            return
        propose(world, topic, wanted(), partition)
    raise AssertionError(f"{broker_id} is not in the ISR {world.isr(topic, partition)}")


def propose_until(
    world: World,
    done: Callable[[], bool],
    topic: str,
    wanted: tuple[int, ...],
    partition: int,
) -> None:
    for _ in range(TRIES):
        if done():
            return
        propose(world, topic, wanted, partition)
    raise AssertionError(f"ISR of {topic}-{partition} is {world.isr(topic, partition)}")


def propose(world: World, topic: str, wanted: tuple[int, ...], partition: int) -> None:
    """One proposal of the leader there is, if there is one and a controller to hear it."""
    active = [b for b in world.brokers.values() if b.up and b.controller.is_active]
    leader = world.brokers.get(world.leader(topic, partition))
    registered = leader is not None and world.coordination.stat(paths.broker(leader.id)) is not None
    if active and registered:
        with contextlib.suppress(KafkaError, AssertionError):
            world.alter_isr(topic, wanted, partition, seconds=1.0)
    world.settle(1.0)


def reassign(world: World, targets: Mapping[TopicPartition, Iterable[int] | None]) -> None:
    def ask() -> "Deferred[Any]":
        return world.controller.alter_partition_reassignments(reassignment_request(targets))

    errors = reassignment_errors(persist(world, ask))
    # 85: an earlier try, whose answer was lost, has cancelled it already.
    assert set(errors.values()) <= {0, 85}, errors


def shut_down(world: World, broker_id: int) -> None:
    """The controlled shutdown of a broker, as the broker itself asks for it."""
    broker = world.brokers[broker_id]
    for _ in range(TRIES):
        answer = persist(
            world,
            lambda: world.controller.controlled_shutdown(
                ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker.epoch)
            ),
        )
        if not answer.remaining_partitions:
            return
        world.settle(1.0)
    raise AssertionError(f"broker {broker_id} still leads {answer.remaining_partitions}")


def until(world: World, condition: Callable[[], bool], what: str) -> None:
    """Wait for something that must come true whatever goes wrong on the way."""
    for _ in range(TRIES):
        if condition():
            return
        world.settle(1.0)
    raise AssertionError(what)


def expect(world: World, condition: Callable[[], bool], what: str) -> None:
    """What is so at once, as long as nothing happens that the story does not mention."""
    assert world.disturbed or condition(), what


# -- the stories ----------------------------------------------------------------------------------


def three_brokers(world: World) -> None:
    world.start_all()


def with_topic(world: World) -> None:
    """Three brokers and a topic of two partitions on all of them."""
    three_brokers(world)
    world.create_topic("t", [[1, 2, 3], [2, 3, 1]])
    world.settle()


def topic_created(world: World) -> None:
    world.tell("a topic is created")
    world.create_topic("t", [[1, 2, 3], [2, 3, 1]])
    world.settle()


def topic_created_while_a_replica_is_down(world: World) -> None:
    world.tell("a topic is created on a dead broker and a live one, another on dead brokers only")
    world.brokers[3].kill()
    world.settle()
    world.create_topic("t", [[3, 1]])
    world.create_topic("u", [[3]])
    world.settle()
    world.tell("the dead broker comes back: the first leader at last, no change of the other")
    world.brokers[3].start()
    world.settle()
    until(world, lambda: world.leader("u") == 3, "u is not led by 3")
    expect(world, lambda: world.leader("t") == 1, "t is not led by 1")


def partitions_added(world: World) -> None:
    world.tell("CreatePartitions rewrites the topic node")
    info = world.topic("t")
    more = dict(info.partitions) | {2: info.partitions[0], 3: info.partitions[1]}
    world.coordination.set(paths.topic("t"), TopicInfo(more, info.topic_id).encode())
    world.settle()
    until(world, lambda: world.has_state("t", 2) and world.leader("t", 2) > 0, "t-2 is not led")


def broker_dies(world: World) -> None:
    world.tell("broker 2 dies: it led t-1")
    world.brokers[2].kill()
    world.settle()
    expect(world, lambda: 2 not in world.isr("t", 0), "2 is in the ISR of t-0")
    expect(world, lambda: world.leader("t", 1) == 3, "t-1 is not led by 3")
    world.tell("broker 2 comes back: told everything, leads nothing yet")
    world.brokers[2].start()
    world.settle()
    world.tell("it has caught up: the leaders take it into the ISRs")
    rejoin(world, "t", 2)
    rejoin(world, "t", 2, 1)


def broker_bounces(world: World) -> None:
    world.tell("broker 2 restarts between two looks of the controller")
    broker = world.brokers[2]
    broker.kill()
    broker.start()
    world.settle()


def controller_fails_over(world: World) -> None:
    world.tell("the controller's broker dies: another is elected, reads all, repairs leadership")
    world.active.kill()
    world.settle()


def isr_changes(world: World) -> None:
    world.tell("the leader of t-0 drops broker 3 from the ISR")
    alter_isr(world, "t", (1, 2))
    world.tell("and takes it back")
    alter_isr(world, "t", (1, 2, 3))


def reassigned(world: World) -> None:
    world.tell("t-0 moves from 1,2,3 to 2,3,4: broker 4 starts to copy")
    reassign(world, {T0: (2, 3, 4)})
    world.tell("broker 4 has caught up: the leader proposes it, which completes the move")
    catch_up(world, "t", 4)
    world.settle(5.0)
    assert world.topic("t").partitions[0].replicas == (2, 3, 4)
    expect(world, lambda: world.isr("t") == (2, 3, 4), "the ISR is not the target")


def reassignment_cancelled(world: World) -> None:
    world.tell("t-0 moves from 1,2,3 to 2,3,4")
    reassign(world, {T0: (2, 3, 4)})
    world.tell("the move is cancelled")
    reassign(world, {T0: None})
    world.settle()
    until(world, lambda: set(world.topic("t").partitions[0].replicas) == {1, 2, 3}, "not undone")
    expect(world, lambda: T0 not in world.brokers[4].hosted, "the copy on 4 was not deleted")


def reassigned_by_znode(world: World) -> None:
    world.tell("a tool writes /admin/reassign_partitions: t-0 to 1,2 and t-1 to 2,4")
    world.coordination.create(
        paths.REASSIGN_PARTITIONS, encode_reassignments({T0: (1, 2), T1: (2, 4)})
    )
    world.settle()
    if world.disturbed:
        rejoin(world, "t", 1)
        rejoin(world, "t", 2)
    until(world, lambda: world.topic("t").partitions[0].replicas == (1, 2), "t-0 has not moved")
    world.tell("broker 4 has caught up")
    catch_up(world, "t", 4, 1)
    world.settle(5.0)
    assert world.topic("t").partitions[1].replicas == (2, 4)
    expect(world, lambda: world.isr("t", 1) == (2, 4), "the ISR is not the target")
    until(world, lambda: not world.exists(paths.REASSIGN_PARTITIONS), "the request is still there")


def topic_deleted(world: World) -> None:
    world.tell("a topic is deleted")
    world.coordination.create(paths.delete_topic("t"))
    world.settle(10.0)
    assert_deleted(world, "t")


def assert_deleted(world: World, topic: str) -> None:
    until(world, lambda: not world.exists(paths.delete_topic(topic)), "the topic is not deleted")
    for path in (paths.topic(topic), paths.topic_config(topic)):
        assert not world.exists(path), path
    for broker in world.brokers.values():
        if broker.up:
            assert not [tp for tp in broker.hosted if tp.topic == topic], broker.id
            assert not [tp for tp in broker.cache if tp.topic == topic], broker.id


def topic_deleted_while_a_replica_is_down(world: World) -> None:
    world.tell("broker 3 dies")
    world.brokers[3].kill()
    world.settle()
    world.tell("the topic is deleted: not to the end, a replica cannot be reached")
    world.coordination.create(paths.delete_topic("t"))
    world.settle()
    assert world.exists(paths.delete_topic("t"))
    world.tell("broker 3 comes back: its replicas are deleted, then the topic")
    world.brokers[3].start()
    world.settle(10.0)
    assert_deleted(world, "t")


def unclean_election(world: World) -> None:
    world.tell("only broker 1 is in the ISR of t-0, then it dies: nobody may lead")
    alter_isr(world, "t", (1,))
    world.brokers[1].kill()
    world.settle()
    until(world, lambda: world.leader("t") == -1, "somebody leads t-0")
    assert world.isr("t") == (1,)
    world.tell("an administrator asks for an unclean election")
    for _ in range(TRIES):
        persist(world, lambda: world.controller.elect_leaders(UNCLEAN_ELECTION, [T0]))
        if world.leader("t") != -1:
            break
    assert world.leader("t") == 2
    assert world.state("t").leader_and_isr.recovery_state == 1
    world.tell("the new leader proposes its first ISR, which ends the recovery")
    alter_isr(world, "t", (2, 3))
    assert world.state("t").leader_and_isr.recovery_state == 0


def unclean_election_by_config(world: World) -> None:
    world.tell("t allows unclean elections; the last member of the ISR dies")
    world.coordination.set(
        paths.topic_config("t"),
        b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}',
    )
    alter_isr(world, "t", (1,))
    world.brokers[1].kill()
    until(world, lambda: world.leader("t") == 2, "t-0 is not led by 2")


def preferred_elections(world: World) -> None:
    world.tell("broker 2 dies and comes back; it is in the ISR again but does not lead t-1")
    world.brokers[2].kill()
    world.settle()
    world.brokers[2].start()
    world.settle()
    rejoin(world, "t", 2, 1)
    expect(world, lambda: world.leader("t", 1) == 3, "t-1 is not led by 3")
    world.tell("ElectLeaders, preferred")
    for _ in range(TRIES):
        persist(world, lambda: world.controller.elect_leaders(PREFERRED_ELECTION, [T0, T1]))
        if world.leader("t", 1) == 2:
            break
    assert world.leader("t", 1) == 2


def preferred_elections_by_znode(world: World) -> None:
    world.tell("broker 2 dies and comes back; it is in the ISR again but does not lead t-1")
    world.brokers[2].kill()
    world.settle()
    world.brokers[2].start()
    world.settle()
    rejoin(world, "t", 2, 1)
    world.tell("a tool writes /admin/preferred_replica_election")
    world.coordination.create(paths.PREFERRED_REPLICA_ELECTION, encode_partitions([T0, T1]))
    world.settle(10.0)
    until(world, lambda: world.leader("t", 1) == 2, "t-1 is not led by 2")
    assert not world.exists(paths.PREFERRED_REPLICA_ELECTION)


def controlled_shutdown(world: World) -> None:
    world.tell("broker 2 asks for a controlled shutdown: t-1 gets another leader, it leaves ISRs")
    shut_down(world, 2)
    world.settle()
    expect(world, lambda: world.leader("t", 1) == 3, "t-1 is not led by 3")
    expect(world, lambda: 2 not in world.isr("t", 0), "2 is in the ISR of t-0")
    world.tell("then it is gone: nothing is left to do but to say so")
    world.brokers[2].stop()
    world.settle()


def log_dir_fails(world: World) -> None:
    world.tell("the directory of t-1 fails on its leader, broker 2, which says so")
    world.brokers[2].failed_dirs.add(T1)
    path = f"{paths.LOG_DIR_EVENT_NOTIFICATION}/{paths.LOG_DIR_EVENT_PREFIX}"
    world.coordination.create(path, encode_log_dir_event(2), SEQUENTIAL)
    world.settle(5.0)
    until(world, lambda: world.leader("t", 1) in (1, 3), "t-1 is led from a failed directory")
    assert 2 not in world.isr("t", 1)
    assert world.coordination.children(paths.LOG_DIR_EVENT_NOTIFICATION) == []


def last_replica_loses_records(world: World) -> None:
    """ADR 0008.  Broker 1 is controller; the partition lives on 2 and 3 and wants both in sync."""
    world.create_topic("s", [[2, 3]], {"min.insync.replicas": "2"})
    world.settle()
    until(world, lambda: world.has_state("s") and world.leader("s") > 0, "s is not led")
    rejoin(world, "s", 3)
    world.tell("broker 3 leaves in order: the state names it beside the one that is left")
    shut_down(world, 3)
    world.settle()
    leave_in_order(world, 3)
    assert world.isr("s") == (2,)
    world.tell("broker 2 loses power: nobody leads")
    world.brokers[2].kill()
    world.settle()
    world.tell("broker 3 comes back with the log that it had: Kafka's rules give it nothing")
    come_back(world, 3, whole=[S0])
    world.settle()
    until(world, lambda: world.leader("s") == -1, "somebody leads s-0")
    world.tell("broker 2 comes back without the end of its log: broker 3 is elected")
    come_back(world, 2, short=[S0])
    world.settle()
    until(world, lambda: world.leader("s") == 3, "s-0 is not led by 3")
    assert world.isr("s") == (3,)
    world.tell("broker 2 has caught up")
    rejoin(world, "s", 2)


def leave_in_order(world: World, broker_id: int) -> None:
    """After its controlled shutdown; the mark that it leaves names the life that ends."""
    broker = world.brokers[broker_id]
    broker.stopped_in = broker.epoch
    broker.stop()
    world.settle()


def come_back(
    world: World,
    broker_id: int,
    *,
    short: Iterable[TopicPartition] = (),
    whole: Iterable[TopicPartition] = (),
) -> None:
    """Start a broker; it tells what it finds of its logs, as a broker of ours does."""
    broker = world.brokers[broker_id]
    broker.short_logs.clear()
    broker.whole_logs.clear()
    for partition in short:
        state = world.state(*partition).leader_and_isr
        if state.isr == (broker_id,) and state.leader in (broker_id, -1):
            broker.short_logs[partition] = state.leader_epoch
    for partition in whole:
        former = world.state(*partition).former
        if former is not None and former.epoch_of(broker_id) == broker.stopped_in:
            broker.whole_logs[partition] = broker.stopped_in
    broker.start()


WITHOUT_TOPIC: dict[str, tuple[int, Story]] = {
    "topic_created": (3, topic_created),
    "topic_created_while_a_replica_is_down": (3, topic_created_while_a_replica_is_down),
}
WITH_TOPIC: dict[str, tuple[int, Story]] = {
    "partitions_added": (3, partitions_added),
    "broker_dies": (3, broker_dies),
    "broker_bounces": (3, broker_bounces),
    "controller_fails_over": (3, controller_fails_over),
    "isr_changes": (3, isr_changes),
    "reassigned": (4, reassigned),
    "reassignment_cancelled": (4, reassignment_cancelled),
    "reassigned_by_znode": (4, reassigned_by_znode),
    "topic_deleted": (3, topic_deleted),
    "topic_deleted_while_a_replica_is_down": (3, topic_deleted_while_a_replica_is_down),
    "unclean_election": (4, unclean_election),
    "unclean_election_by_config": (4, unclean_election_by_config),
    "preferred_elections": (3, preferred_elections),
    "preferred_elections_by_znode": (3, preferred_elections_by_znode),
    "controlled_shutdown": (3, controlled_shutdown),
    "log_dir_fails": (3, log_dir_fails),
    "last_replica_loses_records": (3, last_replica_loses_records),
}


def arranged(name: str) -> tuple[World, Story]:
    """A cluster at the beginning of a story, and the rest of it.

    Where broker 1 dies in a story broker 4 is controller, so that its death is not a failover too.
    """
    if name in WITHOUT_TOPIC:
        count, story = WITHOUT_TOPIC[name]
        world = World(count)
        three_brokers(world)
        return world, story
    count, story = WITH_TOPIC[name]
    world = World(count)
    if name.startswith("unclean"):
        for broker_id in (4, 1, 2, 3):
            world.brokers[broker_id].start()
            world.settle()
        world.create_topic("t", [[1, 2, 3], [2, 3, 1]])
        world.settle()
    else:
        with_topic(world)
    return world, story
