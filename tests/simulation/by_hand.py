"""Evidence made by hand: a small cluster that kept its promises, to be damaged one way at a time."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.tools.simulator.evidence import Evidence
from kafkalike.tools.simulator.history import (
    Assigned,
    Fetched,
    History,
    Joined,
    LeaderSeen,
    Produce,
    Produced,
    Read,
)
from kafkalike.types import TopicPartition
from kafkalike.zk.server.model import OPEN_ACL, NodeCreated, NodeDataSet, NodeDeleted, Txn
from tests.fakes import START_MS, FakeClock

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(16)


@dataclass(slots=True, frozen=True)
class Stored:
    """A batch to be put on a disk."""

    offset: int
    values: tuple[bytes, ...]
    epoch: int = 0


class Scene:
    """Two brokers, topic `t` with partition 0 on both, led by broker 0 in epoch 0."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.history = History(self.clock)
        self.disks: dict[int, dict[str, bytes]] = {0: {}, 1: {}}
        self.znodes: dict[str, bytes | None] = {}
        self.txns: list[Txn] = []
        self.power_losses: list[int] = []
        self.outages: list[int] = []
        """Power losses while others had all that the broker had."""
        self.put("/brokers/topics", None)
        self.put("/admin/delete_topics", None)
        self.elect_controller(0, 1)
        self.topic("t", TOPIC_ID)
        self.state(T0, leader=0, epoch=0, isr=(0, 1))
        for broker in (0, 1):
            self.disks[broker]["/data/t-0/partition.metadata"] = metadata(TOPIC_ID)

    # -- znodes ------------------------------------------------------------------------------

    def put(self, path: str, data: bytes | None) -> None:
        change = (
            NodeDataSet(path, data, 1)
            if path in self.znodes
            else NodeCreated(path, data, OPEN_ACL, 0, 1)
        )
        self.znodes[path] = data
        self._txn(change)

    def registered(self, broker: int) -> None:
        """The broker is there, in a new life."""
        path = f"/brokers/ids/{broker}"
        if path in self.znodes:
            self.remove(path)
        self.put(path, b"{}")

    def remove(self, path: str) -> None:
        del self.znodes[path]
        self._txn(NodeDeleted(path))

    def _txn(self, change: NodeCreated | NodeDataSet | NodeDeleted) -> None:
        self.txns.append(Txn(len(self.txns) + 1, self.clock.now_ms(), (change,)))

    def elect_controller(self, broker: int, epoch: int) -> None:
        changes = (
            NodeCreated("/controller", json.dumps({"brokerid": broker}).encode(), OPEN_ACL, 7, 1),
            NodeDataSet("/controller_epoch", str(epoch).encode(), epoch),
        )
        self.txns.append(Txn(len(self.txns) + 1, self.clock.now_ms(), changes))

    def topic(
        self, name: str, topic_id: bytes, replicas: Sequence[int] = (0, 1), **more: object
    ) -> None:
        text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        payload = {"version": 3, "topic_id": text, "partitions": {"0": list(replicas)}, **more}
        self.put(f"/brokers/topics/{name}", json.dumps(payload).encode())

    def state(
        self,
        partition: TopicPartition,
        *,
        leader: int,
        epoch: int,
        isr: Sequence[int],
        controller_epoch: int = 1,
        recovery: int = 0,
    ) -> None:
        payload = {
            "version": 1,
            "controller_epoch": controller_epoch,
            "leader": leader,
            "leader_epoch": epoch,
            "isr": list(isr),
            "leader_recovery_state": recovery,
        }
        path = f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"
        self.put(path, json.dumps(payload).encode())

    # -- disks -------------------------------------------------------------------------------

    def store(
        self, *batches: Stored, brokers: Sequence[int] = (0, 1), directory: str = "t-0"
    ) -> None:
        for broker in brokers:
            path = f"/data/{directory}/00000000000000000000.log"
            files = self.disks[broker]
            files[path] = files.get(path, b"") + b"".join(map(batch_bytes, batches))

    def ledger(self, partition: TopicPartition, first: int, end: int) -> None:
        line = {
            "kind": "Loss",
            "topic": partition.topic,
            "partition": partition.partition,
            "first_offset": first,
            "end_offset": end,
            "log_end_offset": end,
            "time_ms": START_MS,
        }
        self.disks[0]["/data/kafkalike-losses.jsonl"] = json.dumps(line).encode() + b"\n"

    # -- clients -----------------------------------------------------------------------------

    def produced(
        self,
        offset: int,
        *values: bytes,
        acks: int = -1,
        sequence: int = -1,
        broker: int = 0,
        client: str = "p",
    ) -> None:
        """An acknowledged write."""
        self.clock.advance(0.1)
        operation = self.history.invoke(client, Produce(T0, values, acks, sequence))
        self.history.ok(client, operation, Produced(broker, offset))

    def refused(self, *values: bytes) -> None:
        operation = self.history.invoke("p", Produce(T0, values))
        self.history.fail("p", operation)

    def unanswered(self, *values: bytes) -> None:
        operation = self.history.invoke("p", Produce(T0, values))
        self.history.unknown("p", operation)

    def fetched(
        self,
        offset: int,
        *values: bytes,
        high_watermark: int,
        log_start: int = 0,
        client: str = "c",
        broker: int = 0,
        epoch: int = 0,
    ) -> None:
        self.clock.advance(0.1)
        records = tuple(Read(offset + i, epoch, value) for i, value in enumerate(values))
        self.history.note(
            client,
            Fetched(T0, broker, epoch, high_watermark, log_start, records, topic_id=TOPIC_ID),
        )

    def led(self, leader: int, epoch: int) -> None:
        self.history.note("c", LeaderSeen(T0, TOPIC_ID, leader, epoch))

    def did(self, what: object, answer: object = None, client: str = "m") -> None:
        """An operation that ended OK."""
        operation = self.history.invoke(client, what)
        self.clock.advance(0.1)
        self.history.ok(client, operation, answer)

    def joined(
        self, member: str, generation: int, leader: str, members: tuple[str, ...] = ()
    ) -> None:
        from kafkalike.tools.simulator.history import Join

        answer = Joined("g", member, generation, leader, "eager", members)
        self.did(Join("g", member), answer, client=member)

    def assigned(self, member: str, generation: int, *partitions: TopicPartition) -> None:
        from kafkalike.tools.simulator.history import Sync

        answer = Assigned("g", member, generation, partitions)
        self.did(Sync("g", member, generation), answer, client=member)

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            self.history,
            self.disks,
            self.znodes,
            self.txns,
            self.power_losses,
            self.outages,
            START_MS,
        )


def batch_bytes(batch: Stored) -> bytes:
    return bytes(
        encode_batch(
            [Record(None, value, START_MS) for value in batch.values],
            base_offset=batch.offset,
            partition_leader_epoch=batch.epoch,
        )
    )


def metadata(topic_id: bytes) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}\n".encode()
