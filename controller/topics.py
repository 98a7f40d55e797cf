"""Topics that appear, grow, or vanish from ZooKeeper (reference: controller 10).

Any broker creates topics and adds partitions by writing to ZooKeeper; the controller discovers it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafkalike.types import ReplicaAssignment, TopicPartition
from kafkalike.zk import paths, topics
from kafkalike.zk.brokers import random_uuid
from kafkalike.zk.client import (
    BadVersion,
    GetChildren,
    GetData,
    NoNode,
    Op,
    SetData,
    ZkError,
    retrying,
)
from kafkalike.zk.election import guarded_batch
from kafkalike.zk.znodes import CorruptZnode, TopicInfo

from .context import ControllerContext, Replica
from .events import PartitionModifications
from .leaders import ElectionStrategy
from .partitions import MAX_WRITE_ROUNDS, PartitionStateMachine
from .replicas import ReplicaStateMachine
from .status import ReplicaStatus
from .term import Term

READ_CHUNK = 1000
"""Topic nodes per read: each may be large."""

Rewrite = Callable[[TopicInfo], TopicInfo]


@dataclass(slots=True, frozen=True)
class TopicChanges:
    """What a look at `/brokers/topics` showed."""

    added: tuple[str, ...]
    vanished: tuple[str, ...]


def plan_topic_change(context: ControllerContext, names: Sequence[str]) -> TopicChanges:
    """Compare the topics there are with those known."""
    present = set(names)
    return TopicChanges(
        tuple(name for name in names if name not in context.topics),
        tuple(topic for topic in context.topics if topic not in present),
    )


def plan_partition_change(
    context: ControllerContext, topic: str, info: TopicInfo
) -> dict[int, ReplicaAssignment]:
    """Partitions of a topic node that are new; changes of known ones are not taken from there."""
    known = context.topics.get(topic, {})
    return {number: a for number, a in info.partitions.items() if number not in known}


class TopicChanger:
    """Discovers topics and partitions and brings them online."""

    def __init__(
        self, term: Term, partitions: PartitionStateMachine, replicas: ReplicaStateMachine
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas

    async def load(self, names: Sequence[str]) -> list[str]:
        """Read topics into the context, watching each; give ids to those without.

        The topics that were there; those that cannot be read are logged and left out.
        """
        loaded = []
        for start in range(0, len(names), READ_CHUNK):
            chunk = names[start : start + READ_CHUNK]
            for name in chunk:
                self._watch(name)
            watch = self._term.watches.arm(*(paths.topic(name) for name in chunk))
            for name, info in (await topics.read_topics(self._term.zk, chunk, watch)).items():
                if isinstance(info, CorruptZnode):
                    self._term.logger.error("topic cannot be read topic=%s: %s", name, info)
                    continue
                self._context.add_topic(name, info.partitions, info.topic_id)
                loaded.append(name)
        nameless = [name for name in loaded if name not in self._context.topic_ids]
        if nameless:
            await self._give_ids(nameless)
        return loaded

    def _watch(self, topic: str) -> None:
        self._term.watches.on_change(
            paths.topic(topic), partial(self._term.enqueue, PartitionModifications(topic))
        )

    async def _give_ids(self, names: Sequence[str]) -> None:
        ids = {name: random_uuid(self._term.random.bytes) for name in names}

        def with_id(topic_id: bytes) -> Rewrite:
            return lambda info: info if info.topic_id else replace(info, topic_id=topic_id)

        results = await rewrite_topics(
            self._term, {name: with_id(topic_id) for name, topic_id in ids.items()}
        )
        for name, info in results.items():
            if isinstance(info, TopicInfo):
                assert info.topic_id is not None
                self._context.set_topic_id(name, info.topic_id)
            else:
                self._term.logger.error("topic got no id topic=%s: %s", name, info)

    async def topic_change(self) -> None:
        """Children of `/brokers/topics` changed."""
        watch = self._term.watches.arm(paths.TOPICS)
        names = await topics.list_topics(self._term.zk, watch)
        changes = plan_topic_change(self._context, names)
        for topic in changes.vanished:
            self._term.logger.warning("topic vanished from ZooKeeper topic=%s", topic)
            self._term.watches.forget(paths.topic(topic))
            self._term.remove_topic(topic)
        if not changes.added:
            return
        created = [
            partition
            for topic in await self.load(changes.added)
            for partition in self._context.partitions_of(topic)
        ]
        await self.bring_up(created)

    async def partition_modifications(self, topic: str) -> None:
        """A topic's node was rewritten: perhaps by CreatePartitions."""
        if topic not in self._context.topics:
            await self.topic_change()  # it could not be read before, perhaps it can now
            return
        watch = self._term.watches.arm(paths.topic(topic))
        found = (await topics.read_topics(self._term.zk, [topic], watch)).get(topic)
        if not isinstance(found, TopicInfo):
            if found is not None:
                self._term.logger.error("topic cannot be read topic=%s: %s", topic, found)
            return
        added = plan_partition_change(self._context, topic, found)
        if not added:
            return
        if self._context.is_queued_for_deletion(topic):
            self._term.logger.warning(
                "partitions added to a topic that is being deleted are taken away topic=%s", topic
            )
            await self._restore(topic)
            return
        for number, assignment in added.items():
            self._term.put_assignment(TopicPartition(topic, number), assignment)
        await self.bring_up([TopicPartition(topic, number) for number in added])

    async def _restore(self, topic: str) -> None:
        """Rewrite a topic under deletion to the partitions that ever had a state."""
        parent = paths.partitions(topic)
        (answer,) = await retrying(
            self._term.zk, lambda: self._term.zk.multi_read([GetChildren(parent)])
        )
        started = set(answer) if isinstance(answer, list) else set()

        def keep(info: TopicInfo) -> TopicInfo:
            kept = {n: a for n, a in info.partitions.items() if str(n) in started}
            return replace(info, partitions=kept)

        await rewrite_topics(self._term, {topic: keep})

    async def bring_up(self, partitions: Sequence[TopicPartition]) -> None:
        """New partitions: new, their replicas new, then both online; one batch each."""
        if not partitions:
            return
        replicas = [
            Replica(partition, broker_id)
            for partition in partitions
            for broker_id in self._context.assignment(partition).replicas
        ]
        self._term.logger.info("new partitions count=%d first=%s", len(partitions), partitions[0])
        self._partitions.to_new(partitions)
        await self._replicas.move(replicas, ReplicaStatus.NEW)
        await self._partitions.to_online(partitions, ElectionStrategy.OFFLINE)
        await self._replicas.move(replicas, ReplicaStatus.ONLINE)


async def rewrite_topics(
    term: Term, rewrites: Mapping[str, Rewrite]
) -> dict[str, TopicInfo | ZkError | CorruptZnode]:
    """Read topics, change them, write them back if nobody wrote in between; else once more.

    What stands in ZooKeeper now, or why a topic was not written.  Kafka overwrites whatever stands
    there, and so loses partitions that a broker adds at the same moment.
    """
    results: dict[str, TopicInfo | ZkError | CorruptZnode] = {}
    remaining = list(rewrites)
    for _ in range(MAX_WRITE_ROUNDS):
        if not remaining:
            break
        reads = [GetData(paths.topic(topic)) for topic in remaining]
        answers = await retrying(term.zk, partial(term.zk.multi_read, reads))
        writes: dict[str, tuple[TopicInfo, Op]] = {}
        for topic, read, answer in zip(remaining, reads, answers, strict=True):
            if not isinstance(answer, tuple):
                results[topic] = answer if isinstance(answer, ZkError) else NoNode(read.path)
                continue
            data, stat = answer
            try:
                old = TopicInfo.decode(data, read.path)
            except CorruptZnode as error:
                results[topic] = error
                continue
            new = rewrites[topic](old)
            results[topic] = new
            if new != old:
                writes[topic] = (new, SetData(read.path, new.encode(), stat.version))
        remaining = []
        outcomes = await guarded_batch(term.zk, term.fence, [op for _, op in writes.values()])
        for topic, outcome in zip(writes, outcomes, strict=True):
            if isinstance(outcome, BadVersion):
                remaining.append(topic)
            elif isinstance(outcome, ZkError):
                results[topic] = outcome
    for topic in remaining:
        results[topic] = BadVersion(paths.topic(topic), "somebody else kept writing it")
    return results
