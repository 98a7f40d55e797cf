"""Brokers that come, go, come back, or change (reference: controller 8).

A broker that came back between two looks is told from one that stayed by its epoch, the czxid of
its registration: "bounced" is failure and start in one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kafkalike.messages.control import LeaderAndIsrResponse
from kafkalike.types import TopicPartition
from kafkalike.zk import admin, paths
from kafkalike.zk.client import GetData, NoNode, ZkError, retrying
from kafkalike.zk.znodes import BrokerInfo, CorruptZnode

from .context import Broker, ControllerContext, Replica
from .deletion import TopicDeleter
from .events import BrokerModifications, LeaderAndIsrResponseReceived
from .features import FeatureKeeper, supports
from .partitions import PartitionStateMachine, StateChangeFailed
from .reassignment import Reassigner
from .replicas import ReplicaStateMachine
from .requests import endpoint_of
from .status import ReplicaStatus
from .term import Term

KAFKA_STORAGE_ERROR = 56


@dataclass(slots=True, frozen=True)
class BrokerChanges:
    """What a look at `/brokers/ids` showed, each in ascending order of id."""

    new: tuple[int, ...]
    bounced: tuple[int, ...]
    dead: tuple[int, ...]


def plan_broker_change(
    context: ControllerContext, registered: Mapping[int, Broker]
) -> BrokerChanges:
    """Compare the registrations there are with those known."""
    known = context.brokers
    return BrokerChanges(
        new=tuple(sorted(registered.keys() - known.keys())),
        bounced=tuple(
            sorted(
                broker_id
                for broker_id in registered.keys() & known.keys()
                if registered[broker_id].epoch > known[broker_id].epoch
            )
        ),
        dead=tuple(sorted(known.keys() - registered.keys())),
    )


def plan_offline_dirs(
    context: ControllerContext, broker_id: int, response: LeaderAndIsrResponse
) -> tuple[dict[TopicPartition, None], list[TopicPartition]]:
    """Partitions on failed log directories of a broker after its answer, and those newly so."""
    before = context.offline_dirs.get(broker_id, {})
    now = dict(before)
    for topic in response.topics:
        name = context.topic_names.get(topic.topic_id)
        if name is None:
            continue
        for entry in topic.partition_errors:
            partition = TopicPartition(name, entry.partition_index)
            if entry.error_code == KAFKA_STORAGE_ERROR:
                now[partition] = None
            elif entry.error_code == 0:
                now.pop(partition, None)
    return now, [partition for partition in now if partition not in before]


def restarted_unnoticed(context: ControllerContext) -> list[Replica]:
    """Members of ISRs whose brokers registered after the state was last written, beside others that
    did not: they restarted while there was no controller, and may have lost the end of their logs.

    Where all members have restarted nothing tells who is better, and nothing is changed.
    """
    found: list[Replica] = []
    for partition, state in context.leadership.items():
        if state.mzxid < 0 or context.is_queued_for_deletion(partition.topic):
            continue
        online = context.online_replicas(partition, state.leader_and_isr.isr)
        later = [b for b in online if context.broker_epoch(b) > state.mzxid]
        if later and len(later) < len(online):
            found.extend(Replica(partition, broker_id) for broker_id in later)
    return found


class BrokerWatcher:
    """Follows registrations and failed log directories."""

    def __init__(
        self,
        term: Term,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deleter: TopicDeleter,
        reassigner: Reassigner,
        features: FeatureKeeper,
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas
        self._deleter = deleter
        self._reassigner = reassigner
        self._features = features

    # -- registrations ---------------------------------------------------------------------------

    async def load(self) -> None:
        """At failover: who is there."""
        for broker in (await self._read_registrations()).values():
            self._term.put_broker(broker)

    def set_aside_restarted(self) -> list[Replica]:
        """At failover: who restarted unnoticed counts as offline, like one whose restart a controller
        has seen, until `take_back`."""
        restarted = restarted_unnoticed(self._context)
        for partition, broker_id in restarted:
            self._context.offline_dirs.setdefault(broker_id, {})[partition] = None
        if restarted:
            self._term.logger.warning(
                "replicas leave their ISRs: their brokers restarted while there was no controller"
                " brokers=%s count=%d",
                sorted({replica.broker_id for replica in restarted}),
                len(restarted),
            )
        return restarted

    async def take_back(self, replicas: Sequence[Replica]) -> None:
        """They are out of the ISRs and follow the leaders that there are now."""
        for partition, broker_id in replicas:
            failed = self._context.offline_dirs.get(broker_id, {})
            failed.pop(partition, None)
            if not failed:
                self._context.offline_dirs.pop(broker_id, None)
        await self._replicas.move(replicas, ReplicaStatus.ONLINE)

    def open_channels(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            endpoint = endpoint_of(
                self._context.brokers[broker_id], self._term.settings.control_listener
            )
            assert endpoint is not None
            self._term.channels.open(broker_id, endpoint)

    async def _read_registrations(self) -> dict[int, Broker]:
        """Usable registrations; children and each node are watched from before the read on."""
        zk, watches = self._term.zk, self._term.watches
        arm = watches.arm(paths.BROKER_IDS)
        names, _ = await retrying(zk, lambda: zk.get_children(paths.BROKER_IDS, arm))
        ids = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        found = await self._read_nodes(ids)
        return {broker_id: broker for broker_id, broker in found.items() if broker is not None}

    async def _read_nodes(self, ids: Sequence[int]) -> dict[int, Broker | None]:
        """Those that are there; None for a registration that cannot be used."""
        if not ids:
            return {}
        zk, watches = self._term.zk, self._term.watches
        reads = [GetData(paths.broker(broker_id)) for broker_id in ids]
        for broker_id, read in zip(ids, reads, strict=True):
            watches.on_change(
                read.path, partial(self._term.enqueue, BrokerModifications(broker_id))
            )
        arm = watches.arm(*(read.path for read in reads))
        answers = await retrying(zk, partial(zk.multi_read, reads, arm))
        found: dict[int, Broker | None] = {}
        for broker_id, read, answer in zip(ids, reads, answers, strict=True):
            if isinstance(answer, NoNode):
                continue
            if isinstance(answer, ZkError):
                raise answer
            assert isinstance(answer, tuple)
            data, stat = answer
            try:
                info = BrokerInfo.decode(data, read.path)
            except CorruptZnode as error:
                self._term.logger.error("broker is ignored broker=%d: %s", broker_id, error)
                found[broker_id] = None
                continue
            broker = Broker(broker_id, stat.czxid, info)
            found[broker_id] = broker if self._is_usable(broker) else None
        return found

    def _is_usable(self, broker: Broker) -> bool:
        """A broker that cannot be told anything counts as not there; Kafka's controller would fail
        (no such listener) or lead partitions to it that nobody serves (incompatible features)."""
        settings = self._term.settings
        for listener in (settings.control_listener, settings.inter_broker_listener):
            if endpoint_of(broker, listener) is None:
                self._term.logger.error(
                    "broker is ignored: no listener %s broker=%d", listener, broker.id
                )
                return False
        if not supports(broker.info, self._features.finalized):
            self._term.logger.error(
                "broker is ignored: it does not support the finalized features broker=%d", broker.id
            )
            return False
        return True

    async def broker_change(self) -> None:
        """Children of `/brokers/ids` changed."""
        registered = await self._read_registrations()
        changes = plan_broker_change(self._context, registered)
        self._term.logger.info(
            "brokers changed new=%s bounced=%s dead=%s live=%s",
            list(changes.new),
            list(changes.bounced),
            list(changes.dead),
            sorted(registered),
        )
        for broker_id in (*changes.bounced, *changes.dead):
            self._term.channels.close(broker_id)
        if changes.new:
            await self._add(registered, changes.new)
        if changes.bounced:
            await self._remove(changes.bounced)
            await self._add(registered, changes.bounced)
        if changes.dead:
            await self._remove(changes.dead)
            for broker_id in changes.dead:
                self._term.watches.forget(paths.broker(broker_id))

    async def _add(self, registered: Mapping[int, Broker], broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self._term.put_broker(registered[broker_id])
        self.open_channels(broker_ids)
        await self._on_startup(broker_ids)

    async def _remove(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self._term.remove_broker(broker_id)
        await self._on_failure(broker_ids)

    async def broker_modifications(self, broker_id: int) -> None:
        """A registration was rewritten.  Coming and going is `broker_change`'s business."""
        found = await self._read_nodes([broker_id])
        if broker_id not in found:
            return
        broker = found[broker_id]
        known = self._context.brokers.get(broker_id)
        if broker is None or known is None:
            if broker is not known:
                await self.broker_change()  # it became usable, or ceased to be
            return
        if broker.epoch != known.epoch:
            return
        if broker.info.endpoints == known.info.endpoints and (
            broker.info.features == known.info.features
        ):
            return
        self._term.put_broker(broker)
        endpoint = endpoint_of(broker, self._term.settings.control_listener)
        assert endpoint is not None
        self._term.channels.move(broker_id, endpoint)
        self._term.logger.info("broker changed its endpoints broker=%d", broker_id)
        await self._term.send_metadata(self._context.brokers)

    # -- consequences ----------------------------------------------------------------------------

    async def _on_startup(self, broker_ids: Sequence[int]) -> None:
        started = set(broker_ids)
        for broker_id in broker_ids:
            self._context.offline_dirs.pop(broker_id, None)
        await self._term.send_metadata([b for b in self._context.brokers if b not in started])
        await self._term.send_metadata(broker_ids, self._context.partitions_with_leadership())
        await self._delete_strays(broker_ids)
        replicas = self._context.replicas_on(broker_ids)
        await self._replicas.move(
            [r for r in replicas if self._context.replica_status(r) not in _DELETING],
            ReplicaStatus.ONLINE,
        )
        await self._partitions.trigger_online()
        await self._reassigner.resume_towards(broker_ids)
        await self._deleter.resume_for({replica.partition.topic: None for replica in replicas})

    async def _delete_strays(self, broker_ids: Sequence[int]) -> None:
        """Replicas that were taken from a broker while it was down.  Kafka forgets them, and the
        broker, if only its session had ended, goes on as their leader or follower."""
        self._term.batch.begin()
        for broker_id in broker_ids:
            for partition in self._context.strays.pop(broker_id, {}):
                replicas = self._context.assignment(partition).replicas
                if replicas and broker_id not in replicas:
                    self._term.batch.add_stop_replica((broker_id,), partition, delete=True)
        await self._term.send()

    async def _on_failure(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self._context.offline_dirs.pop(broker_id, None)
            self._context.shutting_down.discard(broker_id)
        await self.on_replicas_offline(self._context.replicas_on(broker_ids))

    async def on_replicas_offline(self, replicas: Sequence[Replica]) -> None:
        """Replicas ceased to be online: new leaders first, then they leave their ISRs."""
        deleting = [r for r in replicas if self._context.is_queued_for_deletion(r.partition.topic)]
        others = [
            r for r in replicas if not self._context.is_queued_for_deletion(r.partition.topic)
        ]
        self._partitions.to_offline(self._context.partitions_with_offline_leader())
        outcomes = await self._partitions.trigger_online()
        await self._replicas.move(others, ReplicaStatus.OFFLINE)
        if deleting:
            await self._deleter.fail_replicas(deleting)
        if not others and all(isinstance(o, StateChangeFailed) for o in outcomes.values()):
            # Nothing else has told the brokers who is alive now.
            await self._term.send_metadata(self._context.brokers)

    # -- log directories -------------------------------------------------------------------------

    async def log_dir_events(self) -> None:
        """Brokers lost a log directory: ask each of their replicas whether it is affected."""
        watch = self._term.watches.arm(paths.LOG_DIR_EVENT_NOTIFICATION)
        names, broker_ids = await admin.read_log_dir_events(self._term.zk, watch)
        replicas = self._context.replicas_on(broker_ids)
        await self._replicas.move(
            [r for r in replicas if self._context.replica_status(r) not in _DELETING],
            ReplicaStatus.ONLINE,
        )
        await admin.delete_log_dir_events(self._term.zk, self._term.fence, names)

    async def leader_and_isr_answered(self, event: LeaderAndIsrResponseReceived) -> None:
        """Learn from an answer which replicas are on failed log directories."""
        broker_id, response = event.broker_id, event.response
        if self._context.broker_epoch(broker_id) != event.broker_epoch:
            return
        if response.error_code != 0:
            self._term.logger.error(
                "LeaderAndIsr refused broker=%d error=%d", broker_id, response.error_code
            )
            return
        now, newly = plan_offline_dirs(self._context, broker_id, response)
        if now:
            self._context.offline_dirs[broker_id] = now
        else:
            self._context.offline_dirs.pop(broker_id, None)
        if newly:
            self._term.logger.warning(
                "replicas on failed log directories broker=%d count=%d", broker_id, len(newly)
            )
            await self.on_replicas_offline([Replica(partition, broker_id) for partition in newly])


_DELETING: Collection[ReplicaStatus] = frozenset(
    {ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL}
)
