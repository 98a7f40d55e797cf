"""The cluster as one source sees it, and how two views differ."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.errors import NONE
from kafkalike.types import (
    NO_LEADER,
    ZERO_UUID,
    ReplicaAssignment,
    TopicPartition,
    uuid_to_text,
)
from kafkalike.zk import admin as zk_admin
from kafkalike.zk import brokers as zk_brokers
from kafkalike.zk import election, topics
from kafkalike.zk.client import ZkClient
from kafkalike.zk.znodes import CorruptZnode

ZOOKEEPER: Final = "ZooKeeper"


@dataclass(slots=True, frozen=True)
class Difference:
    """`where` says something else of `subject` than it should."""

    where: str
    subject: str
    what: str
    expected: Any
    found: Any

    def as_json(self) -> dict[str, Any]:
        return {
            "where": self.where,
            "subject": self.subject,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
        }


@dataclass(slots=True, frozen=True)
class PartitionView:
    """`leader` None: this source does not know the leadership."""

    replicas: tuple[int, ...]
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] = ()


@dataclass(slots=True)
class ClusterView:
    """What one source knows."""

    source: str
    controller: int
    brokers: frozenset[int]
    topic_ids: dict[str, bytes | None] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionView] = field(default_factory=dict)
    moves: dict[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    """Reassignments under way; only ZooKeeper and the controller know them."""
    deleting: frozenset[str] = frozenset()
    """Topics whose deletion is under way: sources may say of them what they like."""
    problems: list[Difference] = field(default_factory=list)


async def view_zookeeper(zk: ZkClient) -> ClusterView:
    """All that ZooKeeper holds of brokers, topics and partitions."""
    controller = await election.read_controller(zk)
    brokers = await zk_brokers.read_all(zk)
    names = await topics.list_topics(zk)
    infos = await topics.read_topics(zk, names)
    view = ClusterView(
        ZOOKEEPER,
        NO_LEADER if controller is None else controller[0].broker_id,
        frozenset(brokers),
        deleting=frozenset(await zk_admin.list_topic_deletions(zk)),
    )
    assignments: dict[TopicPartition, ReplicaAssignment] = {}
    for name, info in infos.items():
        if isinstance(info, CorruptZnode):
            view.problems.append(Difference(ZOOKEEPER, name, "payload", "readable", str(info)))
            continue
        view.topic_ids[name] = info.topic_id
        for number, assignment in info.partitions.items():
            assignments[TopicPartition(name, number)] = assignment
    states = await topics.read_partition_states(zk, list(assignments))
    for partition, assignment in assignments.items():
        state = states.get(partition)
        if isinstance(state, CorruptZnode):
            view.problems.append(
                Difference(ZOOKEEPER, str(partition), "payload", "readable", str(state))
            )
            state = None
        if assignment.is_reassigning:
            view.moves[partition] = assignment
        if state is None:
            view.partitions[partition] = PartitionView(assignment.replicas)
            continue
        known = state.leader_and_isr
        view.partitions[partition] = PartitionView(
            assignment.replicas, known.leader, known.leader_epoch, known.isr
        )
    return view


def view_metadata(source: str, metadata: Any) -> ClusterView:
    """What a broker answers to Metadata for all topics."""
    view = ClusterView(
        source, metadata.controller_id, frozenset(b.node_id for b in metadata.brokers)
    )
    for topic in metadata.topics:
        if topic.error_code != NONE:
            continue
        view.topic_ids[topic.name] = None if topic.topic_id == ZERO_UUID else topic.topic_id
        for p in topic.partitions:
            view.partitions[TopicPartition(topic.name, p.partition_index)] = PartitionView(
                tuple(p.replica_nodes), p.leader_id, p.leader_epoch, tuple(p.isr_nodes)
            )
    return view


def compare(reference: ClusterView, other: ClusterView) -> list[Difference]:
    """What `other` says that `reference` does not, in the order of topics and partitions.

    A leader that is not alive counts as none; the order of an ISR does not matter.
    """
    found: list[Difference] = []

    def check(subject: str, what: str, expected: object, actual: object) -> None:
        if expected != actual:
            found.append(Difference(other.source, subject, what, expected, actual))

    check("cluster", "controller", reference.controller, other.controller)
    check("cluster", "brokers", sorted(reference.brokers), sorted(other.brokers))
    skipped = reference.deleting | other.deleting
    for topic in sorted({*reference.topic_ids, *other.topic_ids} - skipped):
        if topic not in reference.topic_ids or topic not in other.topic_ids:
            expected = topic in reference.topic_ids
            check(topic, "topic exists", expected, not expected)
        else:
            known, told = reference.topic_ids[topic], other.topic_ids[topic]
            check(topic, "topic id", _id_text(known), _id_text(told))
    for partition in sorted({*reference.partitions, *other.partitions}):
        if partition.topic in skipped:
            continue
        if partition.topic not in reference.topic_ids or partition.topic not in other.topic_ids:
            continue  # said of the topic
        mine, theirs = reference.partitions.get(partition), other.partitions.get(partition)
        if mine is None or theirs is None:
            # Never led and no replica alive: brokers are told of it with the first leader.
            if mine is not None and mine.leader is None and not _alive(mine, reference):
                continue
            check(str(partition), "partition exists", mine is not None, theirs is not None)
            continue
        check(str(partition), "replicas", list(mine.replicas), list(theirs.replicas))
        if mine.leader is None or theirs.leader is None:
            if mine.leader is None and _alive(mine, reference):
                check(str(partition), "leadership", "stored", "not stored")
            continue
        check(str(partition), "leader", _live_leader(mine, reference), _live_leader(theirs, other))
        check(str(partition), "leader epoch", mine.leader_epoch, theirs.leader_epoch)
        check(str(partition), "isr", sorted(mine.isr), sorted(theirs.isr))
    return found


def compare_moves(
    zookeeper: ClusterView, controller: int, moves: dict[TopicPartition, ReplicaAssignment]
) -> list[Difference]:
    """Reassignments as ZooKeeper has them against what the controller tells."""
    where = f"controller {controller}"
    found = []
    for partition in sorted({*zookeeper.moves, *moves}):
        if partition.topic in zookeeper.deleting:
            continue
        expected, actual = zookeeper.moves.get(partition), moves.get(partition)
        if expected != actual:
            found.append(
                Difference(
                    where, str(partition), "reassignment", _move_text(expected), _move_text(actual)
                )
            )
    return found


def compare_placement(
    reference: ClusterView,
    broker: int,
    held: Iterable[TopicPartition],
    failed: Iterable[TopicPartition] = (),
) -> list[Difference]:
    """The replicas that a broker should hold against those in its log directories.

    `failed` are on log directories that do not work: nobody can tell.
    """
    expected = {
        partition for partition, view in reference.partitions.items() if broker in view.replicas
    }
    present, unknown = set(held), set(failed)
    found = []
    for partition in sorted((expected ^ present) - unknown):
        if partition.topic in reference.deleting:
            continue
        view = reference.partitions.get(partition)
        if partition not in present and view is not None and view.leader is None:
            continue  # never led: the broker has not been told of it yet
        found.append(
            Difference(
                f"broker {broker}",
                str(partition),
                "replica exists",
                partition in expected,
                partition in present,
            )
        )
    return found


def _alive(view: PartitionView, cluster: ClusterView) -> bool:
    return any(broker in cluster.brokers for broker in view.replicas)


def _live_leader(view: PartitionView, cluster: ClusterView) -> int:
    return view.leader if view.leader in cluster.brokers and view.leader is not None else NO_LEADER


def _id_text(topic_id: bytes | None) -> str | None:
    return None if topic_id is None else uuid_to_text(topic_id)


def _move_text(assignment: ReplicaAssignment | None) -> str:
    if assignment is None:
        return "none"
    replicas, adding, removing = (
        ",".join(map(str, ids))
        for ids in (assignment.replicas, assignment.adding, assignment.removing)
    )
    return f"replicas {replicas} adding {adding or '-'} removing {removing or '-'}"
