"""Promises about leaders, controllers and topics."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kafkalike.types import TopicPartition
from kafkalike.zk.server.model import NodeCreated, NodeDataSet, NodeDeleted

from .check import Check, answer_of
from .evidence import (
    BROKER,
    CONTROLLER_EPOCH,
    Evidence,
    ReplicaLog,
    StateWrite,
    decode_id,
)
from .history import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Elect,
    EpochIgnored,
    Fetched,
    LeaderSeen,
    Operation,
    Phase,
    Produce,
    Produced,
)

MIN_ISR_GRACE_MS: Final = 4000
"""How long a leader may take to learn that its ISR has become too small."""
ORDER_MS: Final = 15_000
"""How long an order may wait for a broker that cannot be reached."""
NOTICE_MS: Final = 1500
"""How long a controller may take to learn that a broker is gone."""


class OneLeaderPerEpoch(Check):
    """An epoch of a partition belongs to one leader: in znodes, in metadata, in acknowledgements."""

    name = "leaders"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        deleted = evidence.deleted_topics
        leaders: dict[tuple[TopicPartition, int], int] = {}
        last: dict[TopicPartition, int] = {}
        for write in evidence.state_writes():
            if write.partition.topic in deleted:
                continue
            if write.leader_epoch < last.get(write.partition, -1):
                yield (
                    f"{write.partition}: epoch {write.leader_epoch} was written after epoch"
                    f" {last[write.partition]}"
                )
            last[write.partition] = write.leader_epoch
            if write.leader < 0:
                continue
            before = leaders.setdefault((write.partition, write.leader_epoch), write.leader)
            if before != write.leader:
                yield (
                    f"{write.partition}: epoch {write.leader_epoch} has leaders {before} and"
                    f" {write.leader}"
                )
        for entry, seen in evidence.history.notes(LeaderSeen):
            known = leaders.get((seen.partition, seen.leader_epoch))
            if known is not None and known != seen.leader:
                yield (
                    f"{entry.client} was told that {seen.leader} leads {seen.partition} in epoch"
                    f" {seen.leader_epoch}; it is {known}"
                )
        for entry, ignored in evidence.history.notes(EpochIgnored):
            yield (
                f"{entry.client} asked broker {ignored.broker} for {ignored.partition} in epoch"
                f" {ignored.leader_epoch}, which there is not yet, and was served"
            )
        yield from self._writers(evidence, leaders, deleted)

    def _writers(
        self,
        evidence: Evidence,
        leaders: dict[tuple[TopicPartition, int], int],
        deleted: set[str],
    ) -> Iterator[str]:
        """Who acknowledged a record at an offset led in the epoch that the log has there."""
        epochs: dict[TopicPartition, dict[int, int]] = {}
        for operation, produce in evidence.history.operations(Produce):
            partition = produce.partition
            if not operation.is_ok or partition.topic in deleted or produce.acks != -1:
                continue
            answer: Produced = answer_of(operation)
            if answer.base_offset < 0 or evidence.lost(partition, answer.base_offset):
                continue
            if partition not in epochs:
                log = evidence.final_log(partition)
                batches = log.batches if log is not None else []
                epochs[partition] = {b.base_offset: b.leader_epoch for b in batches}
            found = epochs[partition].get(answer.base_offset)
            leader = None if found is None else leaders.get((partition, found))
            # A retry may be answered by a later leader: it finds the batch of the earlier one.
            if leader is not None and leader != answer.broker and not produce.idempotent:
                yield (
                    f"{partition} offset {answer.base_offset} was acknowledged by broker"
                    f" {answer.broker}, its epoch {found} belongs to {leader}"
                )


class OneController(Check):
    """A controller epoch has one controller, and nothing is written in the name of an older one."""

    name = "controllers"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for write in evidence.state_writes():
            if write.epoch_then >= 0 and write.controller_epoch != write.epoch_then:
                yield (
                    f"{write.partition}: written in controller epoch {write.controller_epoch}, the"
                    f" controller's was {write.epoch_then}"
                )
        epoch = -1
        elected: dict[int, int] = {}
        for txn in evidence.znode_log:
            controllers = []
            for change in txn.changes:
                if not isinstance(change, (NodeCreated, NodeDataSet)) or not change.data:
                    continue
                if change.path == CONTROLLER_EPOCH:
                    if int(change.data) <= epoch:
                        yield f"controller epoch {int(change.data)} was written after {epoch}"
                    epoch = int(change.data)
                elif change.path == "/controller":
                    controllers.append(int(json.loads(change.data)["brokerid"]))
            for controller in controllers:
                before = elected.setdefault(epoch, controller)
                if before != controller:
                    yield f"controller epoch {epoch} has controllers {before} and {controller}"


class IsrLeadership(Check):
    """A leader comes from the ISR before it, or unclean elections are allowed or were asked for, or it
    is one of those who left last, in the place of the one that has lost records (ADR 0008)."""

    name = "elections"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        deleted = evidence.deleted_topics
        asked = {what.partition for _, what in evidence.history.operations(Elect) if what.unclean}
        last: dict[TopicPartition, StateWrite] = {}
        for write in evidence.state_writes():
            if write.partition.topic in deleted:
                continue
            before = last.get(write.partition)
            last[write.partition] = write
            if before is None or write.leader < 0 or write.leader in before.isr:
                continue
            if before.leader == write.leader or write.partition in asked:
                continue
            if self._unclean(evidence, write.partition.topic):
                continue
            if write.leader in before.former and write.isr == (write.leader,):
                continue
            yield (
                f"{write.partition}: broker {write.leader} became leader in epoch"
                f" {write.leader_epoch}, the ISR was {list(before.isr)}"
            )

    def _unclean(self, evidence: Evidence, topic: str) -> bool:
        config = evidence.topic_config(topic)
        return config.get("unclean.leader.election.enable") == "true"


class MinIsrHolds(Check):
    """While the ISR is smaller than min.insync.replicas nothing new becomes visible (KIP-966)."""

    name = "high watermark under min ISR"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        spans = self._small(evidence)
        seen: dict[tuple[str, TopicPartition, int, int], tuple[float, int]] = {}
        for entry, fetched in evidence.history.notes(Fetched):
            if fetched.from_follower or fetched.leader_epoch < 0:
                continue
            key = (entry.client, fetched.partition, fetched.broker, fetched.leader_epoch)
            at_ms = evidence.start_ms + entry.time_s * 1000
            before = seen.get(key)
            seen[key] = (at_ms, fetched.high_watermark)
            if before is None or fetched.high_watermark <= before[1]:
                continue
            for begin_ms, end_ms in spans.get(fetched.partition, ()):
                if begin_ms + MIN_ISR_GRACE_MS < before[0] and at_ms < end_ms:
                    yield (
                        f"{entry.client} saw the high watermark of {fetched.partition} go from"
                        f" {before[1]} to {fetched.high_watermark} at {entry.time_s:.3f} s while"
                        " the ISR was too small"
                    )

    def _small(self, evidence: Evidence) -> dict[TopicPartition, list[tuple[float, float]]]:
        """When the ISR on record was too small, in wall-clock ms."""
        assignment = evidence.assignment()
        spans: dict[TopicPartition, list[tuple[float, float]]] = defaultdict(list)
        begun: dict[TopicPartition, float] = {}
        for write in evidence.state_writes():
            text = evidence.topic_config(write.partition.topic).get("min.insync.replicas", "1")
            minimum = min(int(text), len(assignment.get(write.partition, ())))
            small = len(write.isr) < minimum
            if small:
                begun.setdefault(write.partition, write.time_ms)
            elif write.partition in begun:
                spans[write.partition].append((begun.pop(write.partition), write.time_ms))
        for partition, begin_ms in begun.items():
            spans[partition].append((begin_ms, float("inf")))
        return spans


class NobodyAbsentJoins(Check):
    """Nobody is taken into an ISR whose registration has been gone for a while (KIP-841)."""

    name = "absent members"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        gone_ms: dict[int, int] = {}
        members: dict[TopicPartition, tuple[int, ...]] = {}
        writes = evidence.state_writes()
        write = next(writes, None)
        for txn in evidence.znode_log:
            for change in txn.changes:
                if not isinstance(change, (NodeCreated, NodeDeleted)):
                    continue
                broker = change.path.removeprefix(BROKER)
                if broker == change.path:
                    continue
                if isinstance(change, NodeDeleted):
                    gone_ms[int(broker)] = txn.time_ms
                else:
                    gone_ms.pop(int(broker), None)
            while write is not None and write.time_ms <= txn.time_ms:
                for joined in write.isr:
                    since_ms = gone_ms.get(joined)
                    if since_ms is None or joined in members.get(write.partition, (joined,)):
                        continue
                    if write.time_ms - since_ms > NOTICE_MS:
                        yield (
                            f"{write.partition}: broker {joined} entered the ISR"
                            f" {write.time_ms - since_ms} ms after its registration was gone"
                        )
                members[write.partition] = write.isr
                write = next(writes, None)


class TopicsAsAsked(Check):
    """In the end the cluster is what the administrator was promised: topics are there or gone, with
    all their directories, nothing is half done, no topic holds records of an earlier one."""

    name = "topics"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for path in ("/admin/delete_topics",):
            for name in evidence.children(path):
                yield f"the deletion of {name} never ends"
        if evidence.znodes.get("/admin/reassign_partitions"):
            yield "/admin/reassign_partitions is still there"
        yield from self._existence(evidence)
        yield from self._states(evidence)
        yield from self._directories(evidence)
        yield from self._ghosts(evidence)

    def _existence(self, evidence: Evidence) -> Iterator[str]:
        """By the last acts on each topic, when their outcomes are known."""
        present = set(evidence.children("/brokers/topics"))
        acts: dict[str, list[tuple[Operation, object]]] = defaultdict(list)
        for operation, what in evidence.history.operations(object):
            if isinstance(what, (CreateTopic, DeleteTopic)) and operation.phase is not Phase.FAIL:
                acts[what.topic].append((operation, what))
        for topic, done in sorted(acts.items()):
            operation, what = done[-1]
            if any(other.phase is Phase.UNKNOWN for other, _ in done):
                continue  # it may still have taken effect after the last one
            if isinstance(what, CreateTopic) and topic not in present:
                yield f"{topic} was created at {operation.invoke.time_s:.3f} s and is not there"
            if isinstance(what, DeleteTopic) and topic in present:
                yield f"{topic} was deleted at {operation.invoke.time_s:.3f} s and is still there"
        counts: dict[str, int] = defaultdict(int)
        for partition in evidence.assignment():
            counts[partition.topic] += 1
        for operation, grown in evidence.history.operations(AddPartitions):
            if not operation.is_ok or grown.topic not in counts:
                continue
            if grown.topic not in acts and counts[grown.topic] < grown.count:
                yield f"{grown.topic} has {counts[grown.topic]} partitions, promised {grown.count}"

    def _states(self, evidence: Evidence) -> Iterator[str]:
        for topic in evidence.children("/brokers/topics"):
            payload = evidence.json(f"/brokers/topics/{topic}") or {}
            for kind in ("adding_replicas", "removing_replicas"):
                for number, replicas in (payload.get(kind) or {}).items():
                    if replicas:
                        yield f"{topic}-{number}: {kind} {replicas} never end"

    def _directories(self, evidence: Evidence) -> Iterator[str]:
        assignment = evidence.assignment()
        for (broker, partition), log in sorted(evidence.logs.items()):
            replicas = assignment.get(partition)
            if replicas is None:
                # A deletion is answered before the directory's new name is synced.
                if broker in evidence.all_power_losses:
                    continue
                had_lost_it = broker not in self._last_replicas(evidence, log)
                if not had_lost_it or not self._may_not_know(evidence, broker, partition):
                    yield f"{log.path} is on broker {broker}, the partition does not exist"
            elif broker not in replicas and not self._may_not_know(evidence, broker, partition):
                yield f"{log.path} is on broker {broker}, the replicas are {list(replicas)}"
            elif log.topic_id not in (None, evidence.topic_id(partition.topic)):
                yield f"{log.path} on broker {broker} belongs to an earlier {partition.topic}"

    def _last_replicas(self, evidence: Evidence, log: ReplicaLog) -> list[int]:
        """Of a partition that is gone, as they were written last."""
        found: list[int] = []
        for txn in evidence.znode_log:
            for change in txn.changes:
                if not isinstance(change, (NodeCreated, NodeDataSet)) or not change.data:
                    continue
                if change.path == f"/brokers/topics/{log.partition.topic}":
                    payload = json.loads(change.data)
                    if log.topic_id in (None, decode_id(payload.get("topic_id", ""))):
                        found = payload["partitions"].get(str(log.partition.partition), found)
        return found

    def _may_not_know(self, evidence: Evidence, broker: int, partition: TopicPartition) -> bool:
        """Whether a broker may keep a replica it lost, as in Kafka: the order to delete went to its
        former life, or its controller fell before it could be delivered.  Neither gives it again."""
        if len(evidence.registrations[broker]) > 1:
            return True
        never_ms = 1 << 62
        taken_ms, there = never_ms, False
        for txn in evidence.znode_log:
            for change in txn.changes:
                if not isinstance(change, (NodeCreated, NodeDataSet)) or not change.data:
                    continue
                if change.path == CONTROLLER_EPOCH and 0 <= txn.time_ms - taken_ms <= ORDER_MS:
                    return True
                if change.path == f"/brokers/topics/{partition.topic}":
                    replicas = json.loads(change.data)["partitions"].get(str(partition.partition))
                    was_there, there = there, broker in (replicas or ())
                    if there or was_there:
                        taken_ms = never_ms if there else txn.time_ms
        return False

    def _ghosts(self, evidence: Evidence) -> Iterator[str]:
        """No record that was acknowledged before a topic was made anew is in it."""
        born: dict[str, float] = {}
        for txn in evidence.znode_log:
            for change in txn.changes:
                path = change.path if isinstance(change, (NodeCreated, NodeDeleted)) else ""
                topic = path.removeprefix("/brokers/topics/")
                if topic != path and "/" not in topic and isinstance(change, NodeCreated):
                    born[topic] = (txn.time_ms - evidence.start_ms) / 1000
        values = {
            value: operation
            for operation, produce in evidence.history.operations(Produce)
            for value in produce.values
            if operation.is_ok
        }
        for (broker, partition), log in sorted(evidence.logs.items()):
            for offset, value in log.values.items():
                operation = values.get(value)
                if operation is None or operation.end is None:
                    continue
                if operation.end.time_s < born.get(partition.topic, 0.0) - 0.001:
                    yield (
                        f"{partition} offset {offset} on broker {broker}: {value!r} was acknowledged"
                        f" at {operation.end.time_s:.3f} s, the topic was made at"
                        f" {born[partition.topic]:.3f} s"
                    )
