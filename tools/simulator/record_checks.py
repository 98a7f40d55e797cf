"""Promises about records: none lost, none twice, none from nowhere, the same everywhere."""

from collections.abc import Iterator

from kafkalike.types import TopicPartition

from .check import OFFSETS_TOPIC, Check, cleanup_policy, may_be_trimmed, reason_of
from .evidence import Evidence, ReplicaLog
from .history import (
    Entry,
    Fetched,
    Operation,
    OutOfRange,
    Phase,
    Produce,
    Produced,
    SequenceRefused,
    Truncated,
)


class NoAcknowledgedLoss(Check):
    """What was acknowledged with acks=all is in the last leader's log, at the offset that was told."""

    name = "acknowledged loss"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        gone = evidence.unsteady_topics
        for operation, produce in evidence.history.operations(Produce):
            partition = produce.partition
            if not operation.is_ok or produce.acks != -1 or partition.topic in gone:
                continue
            assert operation.end is not None
            base_offset = operation.end.what.base_offset
            yield from self._missing(evidence, operation, produce, base_offset)

    def _missing(
        self, evidence: Evidence, operation: Operation, produce: Produce, base_offset: int
    ) -> Iterator[str]:
        partition = produce.partition
        found = evidence.final_log(partition)
        log = found.values if found is not None else {}
        if base_offset < 0:  # a duplicate: its offset is not known
            there = set(log.values())
            if found is not None and found.start == 0:
                for value in produce.values:
                    if value not in there and not evidence.ledger_of(partition):
                        yield f"{value!r} of {partition}, a duplicate for {operation.client}, is gone"
            return
        start = found.start if found is not None else None
        for delta, value in enumerate(produce.values):
            offset = base_offset + delta
            if start is not None and offset < start and may_be_trimmed(evidence, partition):
                continue
            if log.get(offset) != value and not evidence.lost(partition, offset):
                there_now = log.get(offset)
                assert operation.end is not None
                yield (
                    f"{partition} offset {offset}: {value!r} was acknowledged to {operation.client}"
                    f" at {operation.end.time_s:.3f} s by broker {operation.end.what.broker};"
                    f" in the end there is {there_now!r}"
                )


class LossesHaveCause(Check):
    """What a broker admits to have lost was lost by an unclean election or a power loss."""

    name = "unexplained loss"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for entry in evidence.ledger:
            if not evidence.may_be_lost(entry):
                yield (
                    f"broker {entry.broker} lost {entry.partition} offsets {entry.first_offset} to"
                    f" {entry.end_offset - 1}; no election was unclean, no machine lost power"
                )


class NothingFromNowhere(Check):
    """What certainly failed is nowhere, and everything that was read had been sent."""

    name = "failed writes"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        sent: dict[bytes, tuple[TopicPartition, Operation]] = {}
        for operation, produce in evidence.history.operations(Produce):
            for value in produce.values:
                sent[value] = (produce.partition, operation)
        for (broker, partition), log in evidence.logs.items():
            if partition.topic == OFFSETS_TOPIC:
                continue
            for offset, value in log.values.items():
                where = f"{partition} offset {offset} on broker {broker}"
                yield from self._judge(sent, partition, value, where)
        for entry, fetched in evidence.history.notes(Fetched):
            for record in fetched.records:
                if fetched.partition.topic != OFFSETS_TOPIC:
                    where = f"{fetched.partition} offset {record.offset} as {entry.client} read it"
                    yield from self._judge(sent, fetched.partition, record.value, where)

    def _judge(
        self,
        sent: dict[bytes, tuple[TopicPartition, Operation]],
        partition: TopicPartition,
        value: bytes,
        where: str,
    ) -> Iterator[str]:
        origin = sent.get(value)
        if origin is None:
            yield f"{where}: {value!r} was never sent"
        elif origin[0] != partition:
            yield f"{where}: {value!r} was sent to {origin[0]}"
        elif origin[1].phase is Phase.FAIL:
            yield f"{where}: {value!r} was refused ({reason_of(origin[1])})"


class ReplicasAgree(Check):
    """In the end the logs of a partition's replicas are equal, byte for byte, where they overlap."""

    name = "replicas differ"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for partition, replicas in sorted(evidence.assignment().items()):
            logs = [
                evidence.logs.get((broker, partition))
                or ReplicaLog(broker, partition, "", topic_id=evidence.topic_id(partition.topic))
                for broker in replicas
                if broker in evidence.disks
            ]
            for log in logs:
                if log.trailing:
                    yield f"{log.path} on broker {log.broker} ends with {log.trailing} stray bytes"
                for batch in log.batches:
                    if not batch.intact:
                        yield (
                            f"{log.path} on broker {log.broker}: the batch at offset"
                            f" {batch.base_offset} does not match its checksum"
                        )
            if "compact" in cleanup_policy(evidence, partition.topic):
                yield from self._compacted(partition, logs)
                continue
            leader = next((x for x in logs if x.broker == evidence.leader(partition)), None)
            for log in logs:
                if leader is not None and log is not leader:
                    yield from self._compare(partition, leader, log)

    def _compare(
        self, partition: TopicPartition, leader: ReplicaLog, log: ReplicaLog
    ) -> Iterator[str]:
        if leader.end != log.end and leader.batches and log.batches:
            yield (
                f"{partition} ends at {leader.end} on broker {leader.broker} and at {log.end} on"
                f" broker {log.broker}"
            )
        if bool(leader.batches) != bool(log.batches):
            yield (
                f"{partition} has {len(leader.batches)} batches on broker {leader.broker} and"
                f" {len(log.batches)} on broker {log.broker}"
            )
        other = {batch.base_offset: batch for batch in log.batches}
        first = max(leader.start or 0, log.start or 0)
        for batch in leader.batches:
            twin = other.get(batch.base_offset)
            if batch.base_offset >= first and twin is not None and twin.data != batch.data:
                yield (
                    f"{partition} offset {batch.base_offset}: broker {leader.broker} holds epoch"
                    f" {batch.leader_epoch} {batch.records!r}, broker {log.broker} epoch"
                    f" {twin.leader_epoch} {twin.records!r}"
                )
                return

    def _compacted(self, partition: TopicPartition, logs: list[ReplicaLog]) -> Iterator[str]:
        """Brokers clean at different times: what both still have must be equal."""
        for log in logs[1:]:
            ours = logs[0].values
            for offset, value in log.values.items():
                if offset in ours and ours[offset] != value:
                    yield (
                        f"{partition} offset {offset} differs between brokers {logs[0].broker} and"
                        f" {log.broker}"
                    )
                    return


class OffsetsDense(Check):
    """Offsets follow each other without gap or reuse: on disk, in acknowledgements, for readers."""

    name = "offsets"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for (broker, partition), log in sorted(evidence.logs.items()):
            compacted = "compact" in cleanup_policy(evidence, partition.topic)
            yield from self._log(partition, broker, log, compacted)
        yield from self._acknowledged(evidence)
        yield from self._read(evidence)

    def _log(
        self, partition: TopicPartition, broker: int, log: ReplicaLog, compacted: bool
    ) -> Iterator[str]:
        for one, next_one in zip(log.batches, log.batches[1:]):
            expected = one.last_offset + 1
            if next_one.base_offset < expected or (
                next_one.base_offset > expected and not compacted
            ):
                yield (
                    f"{partition} on broker {broker}: offset {next_one.base_offset} follows"
                    f" {one.last_offset}"
                )
            if next_one.leader_epoch < one.leader_epoch:
                yield (
                    f"{partition} on broker {broker}: epoch {next_one.leader_epoch} at offset"
                    f" {next_one.base_offset} follows epoch {one.leader_epoch}"
                )

    def _acknowledged(self, evidence: Evidence) -> Iterator[str]:
        """No offset is given to two values, unless the first was lost, and the ledger says so."""
        taken: dict[tuple[TopicPartition, int], bytes] = {}
        gone = evidence.unsteady_topics
        for operation, produce in evidence.history.operations(Produce):
            if not operation.is_ok or produce.partition.topic in gone or produce.acks != -1:
                continue
            assert operation.end is not None
            answer: Produced = operation.end.what
            for delta, value in enumerate(produce.values if answer.base_offset >= 0 else ()):
                offset = answer.base_offset + delta
                before = taken.setdefault((produce.partition, offset), value)
                if before != value and not evidence.lost(produce.partition, offset):
                    yield (
                        f"{produce.partition} offset {offset} was acknowledged for {before!r} and"
                        f" for {value!r}"
                    )

    def _read(self, evidence: Evidence) -> Iterator[str]:
        """A fetch from one broker returns consecutive offsets and, read again, the same values."""
        seen: dict[tuple[TopicPartition, int, bytes], bytes] = {}
        for entry, fetched in evidence.history.notes(Fetched):
            compacted = "compact" in cleanup_policy(evidence, fetched.partition.topic)
            offsets = [record.offset for record in fetched.records]
            if not compacted and offsets and offsets[-1] - offsets[0] != len(offsets) - 1:
                yield f"{entry.client} read offsets {offsets} of {fetched.partition} in one answer"
            for record in fetched.records:
                key = (fetched.partition, record.offset, fetched.topic_id)
                before = seen.setdefault(key, record.value)
                if before != record.value:
                    if not evidence.lost(fetched.partition, record.offset):
                        yield (
                            f"{fetched.partition} offset {record.offset} was read as {before!r} and,"
                            f" by {entry.client}, as {record.value!r}"
                        )
                    seen[key] = record.value


class ReadsLast(Check):
    """What any reader was given stays in the log: nothing is shown that can still be lost."""

    name = "reads lost"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        gone = evidence.unsteady_topics
        told: set[tuple[TopicPartition, int]] = set()
        values: dict[TopicPartition, dict[int, bytes]] = {}
        for entry, fetched in evidence.history.notes(Fetched):
            partition = fetched.partition
            if partition.topic in gone or "compact" in cleanup_policy(evidence, partition.topic):
                continue
            log = evidence.final_log(partition)
            if partition not in values:
                values[partition] = log.values if log is not None else {}
            start = log.start if log is not None else None
            for record in fetched.records:
                if (partition, record.offset) in told or evidence.lost(partition, record.offset):
                    continue
                if values[partition].get(record.offset) == record.value:
                    continue
                if (
                    start is not None
                    and record.offset < start
                    and may_be_trimmed(evidence, partition)
                ):
                    continue
                told.add((partition, record.offset))
                yield (
                    f"{partition} offset {record.offset}: {entry.client} read {record.value!r} from"
                    f" broker {fetched.broker} at {entry.time_s:.3f} s, in the end there is"
                    f" {values[partition].get(record.offset)!r}"
                )
        for entry, cut in evidence.history.notes(Truncated):
            if cut.partition.topic not in gone and not evidence.ledger_of(cut.partition):
                yield (
                    f"{entry.client} had read {cut.partition} up to {cut.position}, broker"
                    f" {cut.broker} says its log forks at {cut.end_offset}"
                )
        for entry, out in evidence.history.notes(OutOfRange):
            if out.partition.topic in gone or evidence.ledger_of(out.partition):
                continue
            if out.reset_to < out.position or not may_be_trimmed(evidence, out.partition):
                yield (
                    f"{entry.client} stood at {out.position} of {out.partition}; broker {out.broker}"
                    f" refused that and offers {out.reset_to}"
                )


def _has_been_deposed(evidence: Evidence, entry: Entry, refused: SequenceRefused) -> bool:
    """Whether another leads by then: a leader that nobody could tell knows less than the new one.

    Produce carries no leader epoch, and it looks at sequences before it needs the ISR, as in Kafka.
    """
    leader = -1
    for write in evidence.state_writes():
        if write.time_ms - evidence.start_ms > entry.time_s * 1000:
            break
        if write.partition == refused.partition:
            leader = write.leader
    return leader != refused.broker


def _has_forgotten(evidence: Evidence, entry: Entry, refused: SequenceRefused) -> bool:
    """Whether the broker has started since the producer sent several batches without an answer: it
    need remember the newest of them only."""
    begun_s = refused.behind_s
    return begun_s is not None and any(
        begun_s * 1000 < at_ms <= entry.time_s * 1000
        for at_ms in evidence.registrations.get(refused.broker, ())
    )


class NoDuplicates(Check):
    """What an idempotent producer sent is in the log once, in its order, and never refused."""

    name = "idempotence"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        gone = evidence.unsteady_topics
        sequences: dict[bytes, tuple[str, int, int]] = {}
        for operation, produce in evidence.history.operations(Produce):
            if produce.idempotent:
                for position, value in enumerate(produce.values):
                    sequences[value] = (operation.client, produce.sequence, position)
        for (broker, partition), log in sorted(evidence.logs.items()):
            if partition.topic in gone:
                continue
            at: dict[bytes, int] = {}
            last: dict[str, tuple[int, int, int]] = {}
            for offset, value in sorted(log.values.items()):
                known = sequences.get(value)
                if known is None:
                    continue
                if value in at:
                    yield (
                        f"{partition} on broker {broker}: {value!r} is at offsets {at[value]} and"
                        f" {offset}"
                    )
                    continue
                at[value] = offset
                client, sequence, position = known
                before = last.get(client, (-1, -1, -1))
                if (sequence, position) < before[:2]:
                    yield (
                        f"{partition} on broker {broker}: {value!r} at offset {offset} comes after"
                        f" a later value of {client} at offset {before[2]}"
                    )
                last[client] = (sequence, position, offset)
        for entry, refused in evidence.history.notes(SequenceRefused):
            partition = refused.partition
            if _has_been_deposed(evidence, entry, refused):
                continue
            if _has_forgotten(evidence, entry, refused):
                continue
            if partition.topic not in gone and not (
                evidence.ledger_of(partition) or may_be_trimmed(evidence, partition)
            ):
                yield (
                    f"{entry.client} was told {refused.error} on {partition} at {entry.time_s:.3f} s"
                    f" by broker {refused.broker}, though nothing was lost"
                )
