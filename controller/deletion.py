"""Topic deletion (reference: controller 11): stop replicas, wait for them, retry, forget.

A topic whose replica cannot be deleted now, as its broker is down or refuses, is ineligible until
that changes; the request in `/admin/delete_topics` stays and keeps the name taken.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import DeferredList

from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import TopicPartition
from kafkalike.zk import admin, configs, paths, topics
from kafkalike.zk.client import Check, Delete, Op, ZkError, retrying

from .context import ControllerContext, Replica
from .partitions import PartitionStateMachine
from .replicas import ReplicaStateMachine
from .status import ReplicaStatus
from .term import Term

TOPICS_AT_ONCE: Final = 100


def has_offline_replica(context: ControllerContext, topic: str) -> bool:
    return any(
        not context.is_online(replica.broker_id, replica.partition)
        for replica in context.replicas_of(topic)
    )


def abandon_moves(context: ControllerContext, topics: Collection[str]) -> None:
    """Forget reassignments of topics that are to be deleted: all their replicas go anyway.

    Kafka, at least after a failover, waits for them instead; but no leader is elected for a topic
    that is to be deleted, so that a move which lost its leader would never end.
    """
    for partition in [tp for tp in context.reassigning if tp.topic in topics]:
        del context.reassigning[partition]


def plan_replica_results(
    broker_id: int, errors: Mapping[TopicPartition, int]
) -> tuple[list[Replica], list[Replica]]:
    """Replicas a broker has deleted, and those it has not, from its answer's codes."""
    deleted = [Replica(partition, broker_id) for partition, code in errors.items() if code == 0]
    failed = [Replica(partition, broker_id) for partition, code in errors.items() if code != 0]
    return deleted, failed


class TopicDeleter:
    """The queue of topics to be deleted and its progress."""

    def __init__(
        self, term: Term, partitions: PartitionStateMachine, replicas: ReplicaStateMachine
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas
        self._enabled = term.settings.delete_topic_enable

    async def load(self) -> None:
        """At failover: queue what ZooKeeper asks for; `resume` comes later."""
        wanted = await self._read_wanted()
        for topic in wanted:
            self._context.to_delete[topic] = None
            if has_offline_replica(self._context, topic):
                self._context.ineligible[topic] = None
        abandon_moves(self._context, wanted)

    async def requests_changed(self) -> None:
        """Children of `/admin/delete_topics` changed."""
        wanted = await self._read_wanted()
        if not wanted:
            return
        self._context.to_delete.update(dict.fromkeys(wanted))
        abandon_moves(self._context, wanted)
        await self.resume()

    async def _read_wanted(self) -> list[str]:
        """Topics to delete; requests that make no sense are taken away."""
        watch = self._term.watches.arm(paths.DELETE_TOPICS)
        names = await admin.list_topic_deletions(self._term.zk, watch)
        unknown = [name for name in names if name not in self._context.topics]
        wanted = [name for name in names if name in self._context.topics]
        if not self._enabled:
            unknown, wanted = names, []
        if unknown:
            self._term.logger.warning("deletion requests are removed topics=%s", unknown)
            await admin.delete_topic_deletions(self._term.zk, self._term.fence, unknown)
        return wanted

    def mark_ineligible(self, names: Iterable[str]) -> None:
        """Deletion of these cannot go on for now; topics not queued do not matter."""
        for topic in names:
            if topic in self._context.to_delete:
                self._context.ineligible[topic] = None

    async def resume_for(self, names: Collection[str]) -> None:
        """What held these topics up may be over."""
        queued = [topic for topic in dict.fromkeys(names) if topic in self._context.to_delete]
        if not queued:
            return
        for topic in queued:
            self._context.ineligible.pop(topic, None)
        await self.resume()

    async def fail_replicas(self, replicas: Sequence[Replica]) -> None:
        """Replicas that could not be deleted."""
        failed = [r for r in replicas if r.partition.topic in self._context.to_delete]
        if not failed:
            return
        self.mark_ineligible({replica.partition.topic: None for replica in failed})
        await self._replicas.move(
            [r for r in failed if self._context.replica_status(r) in _MAY_FAIL],
            ReplicaStatus.DELETION_INELIGIBLE,
        )
        await self.resume()

    async def stop_replica_answered(
        self, broker_id: int, errors: Mapping[TopicPartition, int]
    ) -> None:
        """A broker's answer to StopReplica with deletion, per partition that was asked for."""
        started = {
            partition: code
            for partition, code in errors.items()
            if partition.topic in self._context.deletion_started
            and self._context.replica_status(Replica(partition, broker_id))
            is ReplicaStatus.DELETION_STARTED
        }
        deleted, failed = plan_replica_results(broker_id, started)
        if failed:
            self._term.logger.warning(
                "replicas not deleted broker=%d partitions=%s",
                broker_id,
                [f"{r.partition}:{started[r.partition]}" for r in failed],
            )
            await self.fail_replicas(failed)
        if deleted:
            await self._replicas.move(deleted, ReplicaStatus.DELETION_SUCCESSFUL)
            await self.resume()

    async def resume(self) -> None:
        """Bring every queued topic as far as it can go."""
        retry: list[Replica] = []
        startable: list[str] = []
        gone: list[str] = []
        for topic in list(self._context.to_delete):
            statuses = [
                self._context.replica_status(replica)
                for replica in self._context.replicas_of(topic)
            ]
            if all(status is ReplicaStatus.DELETION_SUCCESSFUL for status in statuses):
                gone.append(topic)
                continue
            if ReplicaStatus.DELETION_STARTED in statuses:
                continue
            retry.extend(self._context.replicas_in_status(topic, ReplicaStatus.DELETION_INELIGIBLE))
            if topic not in self._context.ineligible:
                startable.append(topic)
        if gone:
            await self._complete(gone)
        await self._replicas.move(retry, ReplicaStatus.OFFLINE)
        if startable:
            await self._start(startable)

    async def _start(self, names: Sequence[str]) -> None:
        fresh = [
            partition
            for topic in names
            if topic not in self._context.deletion_started
            for partition in self._context.partitions_of(topic)
        ]
        self._partitions.to_offline(fresh)
        self._partitions.to_non_existent(fresh)
        self._context.deletion_started.update(dict.fromkeys(names))
        await self._term.send_metadata(
            self._context.brokers,
            [partition for topic in names for partition in self._context.partitions_of(topic)],
        )
        dead: list[Replica] = []
        alive: list[Replica] = []
        for topic in names:
            for replica in self._context.replicas_of(topic):
                if not self._context.is_online(replica.broker_id, replica.partition):
                    dead.append(replica)
                elif self._context.replica_status(replica) is not ReplicaStatus.DELETION_SUCCESSFUL:
                    alive.append(replica)
        self._term.logger.info(
            "deleting topics=%s replicas=%d on_dead_brokers=%d", list(names), len(alive), len(dead)
        )
        self.mark_ineligible({replica.partition.topic: None for replica in dead})
        await self._replicas.move(
            [r for r in dead if self._context.replica_status(r) in _MAY_FAIL],
            ReplicaStatus.DELETION_INELIGIBLE,
        )
        await self._replicas.move(alive, ReplicaStatus.OFFLINE)
        await self._replicas.move(
            [r for r in alive if self._context.replica_status(r) is ReplicaStatus.OFFLINE],
            ReplicaStatus.DELETION_STARTED,
        )

    async def _complete(self, names: Sequence[str]) -> None:
        """All replicas of these topics are gone: remove their znodes."""
        for topic in names:
            self._term.watches.forget(paths.topic(topic))
        await self._replicas.move(
            [
                replica
                for topic in names
                for replica in self._context.replicas_in_status(
                    topic, ReplicaStatus.DELETION_SUCCESSFUL
                )
            ],
            ReplicaStatus.NON_EXISTENT,
        )
        await self._delete_znodes(names)
        for topic in names:
            self._term.remove_topic(topic)
            self._term.logger.info("topic deleted topic=%s", topic)

    async def _delete_znodes(self, names: Sequence[str]) -> None:
        """Partition states, then the configs, then each topic and its request together.

        Kafka deletes topic, config and request one after the other.  A crash in between leaves a
        config behind, or a request that takes the next topic of that name away; not here.
        """
        zk, fence = self._term.zk, self._term.fence
        await topics.delete_trees(zk, fence, [paths.partitions(topic) for topic in names])
        await configs.delete_topic_configs(zk, fence, names)
        # Many are sent before the first answer is waited for.
        for start in range(0, len(names), TOPICS_AT_ONCE):
            deletions = [
                as_deferred(self._delete_topic(topic))
                for topic in names[start : start + TOPICS_AT_ONCE]
            ]
            outcomes: Any = await DeferredList(deletions, consumeErrors=True)
            for succeeded, result in outcomes:
                if not succeeded:
                    result.raiseException()

    async def _delete_topic(self, topic: str) -> None:
        zk, fence = self._term.zk, self._term.fence
        last: list[Op] = [
            Check(paths.CONTROLLER_EPOCH, fence),
            Delete(paths.topic(topic)),
            Delete(paths.delete_topic(topic)),
        ]
        results = await retrying(zk, lambda: zk.multi(last))
        if any(isinstance(result, ZkError) for result in results):
            # Something is missing already, or this broker is controller no more.
            await topics.delete_topic_tree(zk, fence, topic)
            await admin.delete_topic_deletions(zk, fence, [topic])


_MAY_FAIL = frozenset(
    {
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_STARTED,
    }
)
