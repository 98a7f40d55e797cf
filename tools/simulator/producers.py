"""The simulated producer: plain or idempotent."""

from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from kafkalike.errors import (
    NONE,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.transactions import InitProducerIdRequest
from kafkalike.net.client import PeerError
from kafkalike.records.batch import add_sequence, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.types import TopicPartition

from .clients import ClientPorts, NotKnown, SimClient, refusal, together
from .history import NoAnswer, Produce, Produced, Refused, SequenceRefused, Slow

PRODUCE_VERSION: Final = 9
INIT_VERSION: Final = 4
WAIT_MS: Final = 3000
"""How long a broker may wait for followers."""
DELIVERY_S: Final = 20.0
"""How long an idempotent producer tries."""

_SEQUENCE_ERRORS: Final = frozenset(
    (OutOfOrderSequenceNumber.code, UnknownProducerId.code, InvalidProducerEpoch.code)
)


@dataclass(slots=True)
class _Batch:
    """Values on their way: one operation of an idempotent producer."""

    operation: int
    values: tuple[bytes, ...]
    base_sequence: int
    begun_s: float
    doubtful: bool = False
    """Whether some attempt got no clear answer."""


class Producer(SimClient):
    """Appends to its partitions, each in a loop of its own.

    Plain: every attempt is an operation with new values.  Idempotent (KIP-98, 360): up to
    `window` batches at once; what fails is sent again with the same sequences until `DELIVERY_S` have
    passed.  When a sequence is refused, or a batch is given up, the producer counts its epoch up and
    starts anew with new values, so that what is in doubt is never sent under another sequence.
    """

    def __init__(
        self,
        name: str,
        ports: ClientPorts,
        partitions: tuple[TopicPartition, ...],
        *,
        idempotent: bool = False,
        acks: int = -1,
        interval_s: float = 0.2,
        batch_records: int = 3,
        window: int = 3,
        value_bytes: int = 0,
        codec: Codec = Codec.NONE,
        patience_s: float = 0.0,
    ) -> None:
        """`interval_s`: pause between rounds; `batch_records`: at most so many values a batch;
        `value_bytes`: values are padded to this length; `patience_s`: a plain attempt that takes
        longer goes into the history as `Slow` (0: whatever it takes)."""
        super().__init__(name, ports)
        self.partitions_to_write = partitions
        self._idempotent = idempotent
        self.acks = -1 if idempotent else acks
        self._interval_s = interval_s
        self._batch_records = batch_records
        self._window = window
        self._value_bytes = value_bytes
        self._codec = codec
        self._patience_s = patience_s
        self._counts: dict[TopicPartition, int] = {}
        self._operations: dict[TopicPartition, int] = {}
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        self._newest_acked: dict[TopicPartition, int] = {}
        self.acknowledged = 0
        """Operations that ended OK."""
        self.last_acknowledged: dict[TopicPartition, float] = {}
        """When each partition last took something, in virtual seconds."""

    async def run(self) -> None:
        await self.refresh()
        lane = self._idempotent_lane if self._idempotent else self._plain_lane
        if self._idempotent:
            await self._init_producer_id()
        await together([lane(partition) for partition in self.partitions_to_write])

    # -- both ------------------------------------------------------------------------------------

    def _new_values(self, partition: TopicPartition) -> tuple[bytes, ...]:
        count = 1 + self.random.randrange(self._batch_records)
        start = self._counts.get(partition, 0)
        self._counts[partition] = start + count
        return tuple(
            f"{self.name}/{partition}/{number}".encode().ljust(self._value_bytes, b".")
            for number in range(start, start + count)
        )

    def _request(
        self, partition: TopicPartition, values: tuple[bytes, ...], sequence: int = -1
    ) -> ProduceRequest:
        now_ms = self.clock.now_ms()
        epoch = self._epochs.get(partition, self._epoch)
        records = encode_batch(
            [Record(value.split(b".")[0], value, now_ms) for value in values],
            codec=self._codec,
            producer_id=self._producer_id if sequence >= 0 else -1,
            producer_epoch=epoch if sequence >= 0 else -1,
            base_sequence=sequence,
        )
        data = ProduceRequest.TopicProduceData(
            name=partition.topic,
            partition_data=[
                ProduceRequest.TopicProduceData.PartitionProduceData(
                    index=partition.partition, records=bytes(records)
                )
            ],
        )
        return ProduceRequest(acks=self.acks, timeout_ms=WAIT_MS, topic_data=[data])

    async def produce_once(self, partition: TopicPartition) -> bool:
        """One plain attempt; whether it was acknowledged."""
        before = self.acknowledged
        try:
            await self.refresh((partition.topic,))
            broker = self.leader_of(partition)
        except NotKnown:
            return False
        values = self._new_values(partition)
        operation = self.history.invoke(self.name, Produce(partition, values, self.acks))
        await self.attempt(partition, broker, operation, values)
        return self.acknowledged > before

    # -- plain -----------------------------------------------------------------------------------

    async def _plain_lane(self, partition: TopicPartition) -> None:
        while not self.stopping:
            values = self._new_values(partition)
            try:
                broker = self.leader_of(partition)
            except NotKnown:
                await self.refresh()
                await self.pause(self._interval_s)
                continue
            operation = self.history.invoke(self.name, Produce(partition, values, self.acks))
            begun_s = self.clock.monotonic()
            await self.attempt(partition, broker, operation, values)
            seconds = self.clock.monotonic() - begun_s
            if 0 < self._patience_s < seconds:
                self.history.note(self.name, Slow(partition, broker, seconds, self._patience_s))
            await self.pause(self._interval_s)

    async def attempt(
        self, partition: TopicPartition, broker: int, operation: int, values: tuple[bytes, ...]
    ) -> None:
        """One plain Produce and its outcome in the history; nothing is sent a second time."""
        try:
            response = await self.ask_at(
                self.brokers[broker],
                self._request(partition, values),
                PRODUCE_VERSION,
                expect_answer=self.acks != 0,
            )
        except PeerError as error:
            self.history.unknown(self.name, operation, NoAnswer(type(error).__name__))
            self.forget(broker)
            await self.refresh()
            return
        if response is None:
            self.history.unknown(self.name, operation, NoAnswer("acks=0"))
            return
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == NONE:
            self.acknowledged += 1
            self.last_acknowledged[partition] = self.clock.monotonic()
            self.history.ok(
                self.name, operation, Produced(broker, answer.base_offset, answer.log_start_offset)
            )
            return
        what = Refused(refusal(answer.error_code))
        if answer.error_code == NotEnoughReplicas.code:
            self.history.fail(self.name, operation, what)
        else:
            self.history.unknown(self.name, operation, what)
        await self.refresh()

    # -- idempotent --------------------------------------------------------------------------------

    async def _init_producer_id(self) -> None:
        while not self.stopping:
            try:
                brokers = sorted(self.brokers)
                if not brokers:
                    raise NotKnown("no broker is known")
                response = await self.ask(
                    brokers[self.random.randrange(len(brokers))],
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                    INIT_VERSION,
                )
                if response.error_code == NONE:
                    self._producer_id = response.producer_id
                    self._epoch = response.producer_epoch
                    return
            except (PeerError, NotKnown):
                pass
            await self.refresh()
            await self.pause(0.2)

    async def _idempotent_lane(self, partition: TopicPartition) -> None:
        unacked: list[_Batch] = []
        retrying = False
        while self._producer_id >= 0 and (unacked or not self.stopping):
            while not self.stopping and len(unacked) < 1 + self.random.randrange(self._window):
                unacked.append(self._new_batch(partition))
            if not unacked:
                break
            # Alone go the first batch of an epoch, without which the broker would take any sequence,
            # and the first one after trouble (as Kafka's client does).
            alone = retrying or partition not in self._begun
            retrying = not await self._round(partition, unacked, 1 if alone else len(unacked))
            now_s = self.clock.monotonic()
            if unacked and now_s - unacked[0].begun_s > DELIVERY_S:
                self._give_up(partition, unacked, NoAnswer("delivery took too long"))
            await self.pause(self._interval_s)

    def _new_batch(self, partition: TopicPartition) -> _Batch:
        values = self._new_values(partition)
        number = self._operations.get(partition, 0)
        self._operations[partition] = number + 1
        operation = self.history.invoke(self.name, Produce(partition, values, -1, sequence=number))
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = add_sequence(sequence, len(values))
        return _Batch(operation, values, sequence, self.clock.monotonic())

    async def _round(self, partition: TopicPartition, unacked: list[_Batch], count: int) -> bool:
        """Send the first `count` batches in their order; drop those that were acknowledged.

        Whether all were.
        """
        try:
            broker = self.leader_of(partition)
            connection = await self.send_now(broker)
        except (NotKnown, PeerError):
            await self.refresh()
            return False
        sent: list[Deferred[Any]] = [
            connection.send(
                self._request(partition, batch.values, batch.base_sequence), version=PRODUCE_VERSION
            )
            for batch in unacked[:count]
        ]
        answers = await DeferredList(sent, consumeErrors=True)
        trouble: Refused | None = None
        clean = True
        expected = False
        behind_s: float | None = None
        for batch, (answered, value) in zip(unacked[:count], answers, strict=True):
            if not answered:
                batch.doubtful = True
                clean = False
                continue
            answer = value.responses[0].partition_responses[0]
            code = answer.error_code
            if code in (NONE, DuplicateSequenceNumber.code):
                unacked.remove(batch)
                self._begun.add(partition)
                self._newest_acked[partition] = max(
                    batch.operation, self._newest_acked.get(partition, -1)
                )
                self.acknowledged += 1
                self.last_acknowledged[partition] = self.clock.monotonic()
                offset = answer.base_offset if code == NONE else -1
                self.history.ok(
                    self.name, batch.operation, Produced(broker, offset, answer.log_start_offset)
                )
                continue
            if code in _SEQUENCE_ERRORS and clean:
                # Nothing before this batch is missing, as far as the producer was told.
                trouble = trouble or Refused(refusal(code))
                newer = unacked[unacked.index(batch) + 1 :]
                behind_s = next((one.begun_s for one in newer if one.doubtful), None)
                # A broker that has started since remembers the newest batch of each producer only
                # (the snapshot's format): one that a newer one overtook is no duplicate to it.
                overtaken = batch.operation < self._newest_acked.get(partition, -1)
                batch.doubtful |= overtaken
                expected |= overtaken
            elif code not in (NotEnoughReplicas.code, *_SEQUENCE_ERRORS):
                batch.doubtful = True
            clean = False
        if trouble is not None:
            if not expected:
                self.history.note(
                    self.name, SequenceRefused(partition, broker, trouble.error, behind_s)
                )
            self._give_up(partition, unacked, trouble)
        if not clean:
            if any(not answered for answered, _ in answers):
                self.forget(broker)
            await self.refresh()
        return clean

    def _give_up(
        self, partition: TopicPartition, unacked: list[_Batch], why: Refused | NoAnswer
    ) -> None:
        """End what is under way and go on in a new epoch, for this partition only."""
        for batch in unacked:
            if batch.doubtful:
                self.history.unknown(self.name, batch.operation, why)
            else:
                self.history.fail(self.name, batch.operation, why)
        unacked.clear()
        self._epochs[partition] = self._epochs.get(partition, self._epoch) + 1
        self._sequences[partition] = 0
        self._begun.discard(partition)
