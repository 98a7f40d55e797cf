"""Random histories: administrators, leaders, crashes and ZooKeeper's faults at once.

While they run, no stored state may break what the controller promises; when the faults stop,
everything must come to rest: all partitions led, brokers and ZooKeeper in agreement, no reassignment
or deletion left over.
"""

import contextlib
import logging
import random
from typing import Any

import pytest

from kafkalike.controller.api import PREFERRED_ELECTION, UNCLEAN_ELECTION
from kafkalike.controller.journal import LeadershipChanged
from kafkalike.errors import KafkaError
from kafkalike.messages.control import ControlledShutdownRequest, LeaderAndIsrRequest
from kafkalike.types import RECOVERING, ReplicaAssignment, TopicPartition
from kafkalike.zk import paths
from kafkalike.zk.server.model import NodeCreated, NodeDataSet, Txn
from kafkalike.zk.znodes import PartitionState, TopicInfo

from .stories import propose
from .world import FakeBroker, World, reassignment_request

BROKERS = 4
STEPS = 40
TOPICS = ("a", "b", "c")


class Watcher:
    """Checks every state that is stored against the one before it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.states: dict[tuple[int, str], PartitionState] = {}
        self.stored: set[tuple[str, int, int, tuple[int, ...], int]] = set()
        self.controllers: dict[int, int] = {}
        self.violations: list[str] = []
        world.observers.append(self.hear)

    def hear(self, broker: FakeBroker, request: Any) -> None:
        """Every controller has epochs of its own, and tells only what is stored."""
        epoch, controller_id = request.controller_epoch, request.controller_id
        if self.controllers.setdefault(epoch, controller_id) != controller_id:
            self.violations.append(f"epoch {epoch} has two controllers")
        if isinstance(request, LeaderAndIsrRequest):
            for topic in request.topic_states:
                for state in topic.partition_states:
                    path = paths.partition_state(topic.topic_name, state.partition_index)
                    told = (path, state.leader, state.leader_epoch, tuple(state.isr))
                    if (*told, state.partition_epoch) not in self.stored:
                        self.violations.append(f"{broker.id} was told what is not stored: {told}")

    def store(self, path: str, state: PartitionState) -> None:
        s = state.leader_and_isr
        self.stored.add((path, s.leader, s.leader_epoch, s.isr, s.partition_epoch))

    def check(self, txn: Txn) -> None:
        for change in txn.changes:
            if isinstance(change, NodeDataSet) and change.path.endswith("/state"):
                self.compare(change.path, change.data, change.version)
            elif isinstance(change, NodeCreated) and change.path.endswith("/state"):
                key = (self.life(change.path), change.path)
                self.states[key] = PartitionState.decode(change.data, change.path, 0)
                self.store(change.path, self.states[key])

    def life(self, path: str) -> int:
        return self.world.coordination.tree.nodes[path].czxid

    def compare(self, path: str, data: bytes | None, version: int) -> None:
        new = PartitionState.decode(data, path, version)
        key = (self.life(path), path)
        old = self.states[key]
        self.states[key] = new
        self.store(path, new)
        was, now = old.leader_and_isr, new.leader_and_isr
        if now.leader_epoch < was.leader_epoch or new.controller_epoch < old.controller_epoch:
            self.violations.append(f"{path}: epochs went back: {old} {new}")
        if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
            self.violations.append(f"{path}: two leaders in one epoch: {old} {new}")
        unclean = now.recovery_state == RECOVERING
        if now.leader not in (-1, was.leader) and now.leader not in was.isr and not unclean:
            self.violations.append(f"{path}: led from outside the ISR: {old} {new}")
        if not now.isr:
            self.violations.append(f"{path}: empty ISR: {new}")
        if now.leader != -1 and now.leader not in now.isr:
            self.violations.append(f"{path}: the leader is not in the ISR: {new}")


class Chaos:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(BROKERS)
        self.world.disturbed = True
        self.watcher = Watcher(self.world)
        tree = self.world.coordination.tree
        before = tree.journal
        assert before is not None

        def journal(txn: Txn) -> None:
            before(txn)
            self.watcher.check(txn)

        tree.journal = journal
        self.world.start_all()
        self.created = 0

    # -- what may happen -------------------------------------------------------------------------

    def create_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        if self.world.exists(paths.topic(topic)) or self.world.exists(paths.delete_topic(topic)):
            return
        self.created += 1
        replicas = [
            self.random.sample(range(1, BROKERS + 1), self.random.randint(1, 3))
            for _ in range(self.random.randint(1, 3))
        ]
        for path in (paths.topic_config(topic),):
            if self.world.exists(path):
                self.world.coordination.delete(path)
        self.world.create_topic(topic, replicas, topic_id=self.created.to_bytes(16, "big"))

    def delete_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        known = self.world.exists(paths.topic(topic))
        if known and not self.world.exists(paths.delete_topic(topic)):
            self.world.coordination.create(paths.delete_topic(topic))

    def add_partition(self) -> None:
        topic = self.random.choice(TOPICS)
        if not self.world.exists(paths.topic(topic)):
            return
        info = self.world.topic(topic)
        if len(info.partitions) < 6 and not any(a.is_reassigning for a in info.partitions.values()):
            more = dict(info.partitions)
            more[len(more)] = ReplicaAssignment((self.random.randint(1, BROKERS),))
            self.world.coordination.set(paths.topic(topic), TopicInfo(more, info.topic_id).encode())

    def reassign(self) -> None:
        partition = self.any_partition()
        if partition is not None:
            target: Any = self.random.sample(range(1, BROKERS + 1), self.random.randint(1, 3))
            if self.random.random() < 0.2:
                target = None
            self.ask("alter_partition_reassignments", reassignment_request({partition: target}))

    def change_isr(self) -> None:
        partition = self.any_partition()
        if partition is None or not self.world.has_state(*partition):
            return
        assignment = self.world.topic(partition.topic).partitions[partition.partition]
        leader = self.world.leader(*partition)
        isr = tuple(r for r in assignment.replicas if r == leader or self.random.random() < 0.8)
        if leader in isr:
            self.propose(partition, isr)

    def propose(self, partition: TopicPartition, isr: tuple[int, ...]) -> None:
        with contextlib.suppress(KafkaError, AssertionError):
            self.world.alter_isr(partition.topic, isr, partition.partition, seconds=0.05)

    def elect(self) -> None:
        partition = self.any_partition()
        if partition is not None:
            kind = self.random.choice((PREFERRED_ELECTION, UNCLEAN_ELECTION))
            self.ask("elect_leaders", kind, [partition])

    def shut_down(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        if broker.up:
            self.ask(
                "controlled_shutdown",
                ControlledShutdownRequest(broker_id=broker.id, broker_epoch=broker.epoch),
            )
            self.world.settle(0.05)
            self.restart(broker)

    def kill(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        if broker.up:
            broker.kill()
            self.world.clock.call_later(self.random.random() * 3, self.start, broker)

    def restart(self, broker: FakeBroker) -> None:
        if broker.up:
            broker.kill()
            self.start(broker)

    def start(self, broker: FakeBroker) -> None:
        if not broker.up:
            broker.start()

    def lose_connection(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        if broker.up:
            applied = self.random.random() < 0.5
            broker.zk.drop_connection(applied=applied, reconnect_after_s=self.random.random() * 2)

    def expire(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        if broker.up:
            broker.zk.expire_session()

    def depose(self) -> None:
        if self.world.exists(paths.CONTROLLER):
            self.world.coordination.delete(paths.CONTROLLER)

    def freeze(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        if broker.up:
            zk = broker.zk
            zk.freeze()
            self.world.clock.call_later(self.random.random() * 8, zk.thaw)

    # -- running ---------------------------------------------------------------------------------

    def any_partition(self) -> TopicPartition | None:
        known = [
            TopicPartition(topic, number)
            for topic in TOPICS
            if self.world.exists(paths.topic(topic))
            for number in self.world.topic(topic).partitions
        ]
        return self.random.choice(known) if known else None

    def ask(self, method: str, *args: Any) -> None:
        for broker in self.world.brokers.values():
            if broker.up and broker.controller.is_active:
                getattr(broker.controller, method)(*args).addErrback(lambda failure: None)

    def run(self) -> None:
        calm = [self.create_topic, self.add_partition, self.reassign, self.change_isr, self.elect]
        rough = [
            self.delete_topic, self.shut_down, self.kill, self.lose_connection, self.expire,
            self.depose, self.freeze,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(calm * 2 + rough)()
            self.world.clock.advance(self.random.choice((0.001, 0.003, 0.01, 0.5)))

    def heal(self) -> None:
        """Faults stop; leaders take everybody back; moves and deletions come to their end."""
        self.world.settle(30.0)
        for broker in self.world.brokers.values():
            self.start(broker)
        self.world.settle(30.0)
        for _ in range(12):
            self.catch_up()
            self.world.settle(2.0)

    def catch_up(self) -> None:
        for topic in TOPICS:
            if not self.world.exists(paths.topic(topic)):
                continue
            for number, assignment in self.world.topic(topic).partitions.items():
                if not self.world.has_state(topic, number):
                    continue
                if self.world.leader(topic, number) > 0:
                    propose(self.world, topic, assignment.replicas, number)


@pytest.mark.parametrize("seed", range(40))
def test_history_comes_to_rest(seed: int) -> None:
    logging.disable(logging.CRITICAL)
    try:
        chaos = Chaos(seed)
        chaos.run()
        chaos.heal()
    finally:
        logging.disable(logging.NOTSET)
    world = chaos.world
    assert chaos.watcher.violations == []
    for broker in world.brokers.values():
        assert broker.up and world.exists(paths.broker(broker.id))
    assert world.coordination.children(paths.DELETE_TOPICS) == []
    for topic in world.coordination.children(paths.TOPICS):
        for number, assignment in world.topic(topic).partitions.items():
            assert not assignment.is_reassigning, (topic, number, assignment)
            state = world.state(topic, number).leader_and_isr
            assert state.leader in assignment.replicas, (topic, number, state, assignment)
            assert sorted(state.isr) == sorted(assignment.replicas), (topic, number, state)
    world.check_agreement()
    assert any(isinstance(r, LeadershipChanged) for _, r in world.journal)
