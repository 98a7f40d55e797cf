"""Simulated readers: a consumer of chosen partitions, and the last look at everything."""

from typing import Final

from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.list_offsets import (
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafkalike.net.client import PeerError
from kafkalike.records.scan import iterate_batches
from kafkalike.types import TopicPartition

from .clients import ClientPorts, NotKnown, SimClient, refusal, together
from .history import (
    EpochIgnored,
    Fetched,
    ListedOffset,
    ListOffset,
    NoAnswer,
    OutOfRange,
    Read,
    Refused,
    Truncated,
)

FETCH_VERSION: Final = 12
LIST_VERSION: Final = 6
EPOCH_VERSION: Final = 4
LATEST: Final = -1
EARLIEST: Final = -2
MAX_WAIT_MS: Final = 500
CONSUMER: Final = -1


class Reader(SimClient):
    """Fetches and looks up offsets.  Base of all clients that read."""

    async def fetch(
        self,
        partition: TopicPartition,
        broker: int,
        offset: int,
        *,
        last_epoch: int = -1,
        check_epoch: bool = True,
        epochs_ahead: int = 0,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> "tuple[int, Fetched, tuple[int, int]]":
        """(error code, what was read, (epoch, end offset) of a divergence or (-1, -1)).

        `epochs_ahead`: claim to know a leader epoch so much newer than the present one.  Raises
        PeerError, NotKnown.
        """
        view = self.partitions.get(partition)
        epoch = view.leader_epoch + epochs_ahead if view is not None and check_epoch else -1
        from_follower = view is not None and view.leader != broker
        topic_id = self.topic_id(partition.topic)
        asked = FetchRequest.FetchTopic.FetchPartition(
            partition=partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchRequest.FetchTopic(topic=partition.topic, partitions=[asked])],
        )
        response: FetchResponse = await self.ask(broker, request, FETCH_VERSION)
        if response.error_code != NONE or not response.responses:
            nothing = Fetched(partition, broker, epoch, -1, -1, (), from_follower, topic_id)
            return response.error_code or -1, nothing, (-1, -1)
        data = response.responses[0].partitions[0]
        records: tuple[Read, ...] = ()
        if data.error_code == NONE and data.records is not None:
            records = read_records(bytes(data.records), offset)  # type: ignore[arg-type]
        fetched = Fetched(
            partition,
            broker,
            epoch,
            data.high_watermark,
            data.log_start_offset,
            records,
            from_follower=from_follower,
            topic_id=topic_id,
        )
        diverging = data.diverging_epoch
        return data.error_code, fetched, (diverging.epoch, diverging.end_offset)

    async def list_offset(self, partition: TopicPartition, timestamp: int) -> int | None:
        """The offset for LATEST or EARLIEST, as the leader has it; None when it was not told."""
        operation = self.history.invoke(self.name, ListOffset(partition, timestamp))
        try:
            broker = self.leader_of(partition)
            asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=self.partitions[partition].leader_epoch,
                timestamp=timestamp,
            )
            topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[asked])
            request = ListOffsetsRequest(replica_id=CONSUMER, topics=[topic])
            response = await self.ask(broker, request, LIST_VERSION)
        except (PeerError, NotKnown) as error:
            self.history.fail(self.name, operation, NoAnswer(type(error).__name__))
            return None
        answer = response.topics[0].partitions[0]
        if answer.error_code != NONE:
            self.history.fail(self.name, operation, Refused(refusal(answer.error_code)))
            return None
        offset: int = answer.offset
        self.history.ok(self.name, operation, ListedOffset(broker, offset, answer.leader_epoch))
        return offset

    async def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) as the leader knows them; None when it was not told."""
        broker = self.leader_of(partition)
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
            partition=partition.partition,
            current_leader_epoch=self.partitions[partition].leader_epoch,
            leader_epoch=epoch,
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic=partition.topic, partitions=[asked]
        )
        response = await self.ask(
            broker, OffsetForLeaderEpochRequest(topics=[topic]), EPOCH_VERSION
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code != NONE:
            return None
        return answer.leader_epoch, answer.end_offset


def read_records(data: bytes, from_offset: int) -> tuple[Read, ...]:
    """The data records in fetched bytes from an offset on; a batch cut at the end is left out."""
    found: list[Read] = []
    for batch in iterate_batches(data, 0, len(data)):
        if batch.magic != 2 or batch.is_control:
            continue
        for record in batch.records():
            if record.offset >= from_offset:
                found.append(Read(record.offset, batch.partition_leader_epoch, record.value or b""))
    return tuple(found)


class Consumer(Reader):
    """Reads its partitions from their beginning, each in a loop of its own.

    Checks leader epochs as KIP-320 demands.  With `follower_chance` some fetches go to any replica
    (KIP-392).  `latest_chance`: how often it asks for the end of the log as well; `probe_chance`: how
    often it claims to know of a newer leader epoch, which must be refused.
    """

    def __init__(
        self,
        name: str,
        ports: ClientPorts,
        partitions: tuple[TopicPartition, ...],
        *,
        interval_s: float = 0.2,
        follower_chance: float = 0.0,
        latest_chance: float = 0.2,
        probe_chance: float = 0.02,
        max_bytes: int = 1 << 16,
    ) -> None:
        super().__init__(name, ports)
        self._partitions = partitions
        self._interval_s = interval_s
        self._follower_chance = follower_chance
        self._latest_chance = latest_chance
        self._probe_chance = probe_chance
        self._max_bytes = max_bytes
        self.positions: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """Leader epoch of the last record read."""
        self._told: dict[TopicPartition, tuple[int, int, int, int]] = {}

    async def run(self) -> None:
        await self.refresh()
        await together([self._follow(partition) for partition in self._partitions])

    async def _follow(self, partition: TopicPartition) -> None:
        self.positions[partition] = 0
        while not self.stopping:
            try:
                if self.chance(self._latest_chance):
                    await self.list_offset(partition, LATEST)
                if self.chance(self._probe_chance):
                    await self._probe(partition)
                await self._step(partition)
            except (PeerError, NotKnown):
                await self.refresh()
            await self.pause(self._interval_s)

    async def _step(self, partition: TopicPartition) -> None:
        broker = self.leader_of(partition)
        replicas = self.partitions[partition].replicas
        if replicas and self.chance(self._follower_chance):
            broker = replicas[self.random.randrange(len(replicas))]
        position = self.positions[partition]
        try:
            code, fetched, (epoch, end_offset) = await self.fetch(
                partition,
                broker,
                position,
                last_epoch=self._epochs.get(partition, -1),
                max_bytes=self._max_bytes,
            )
        except PeerError:
            self.forget(broker)
            raise
        if code == OffsetOutOfRange.code:
            await self._out_of_range(partition, broker, position, fetched.from_follower)
        elif code in (FencedLeaderEpoch.code, UnknownLeaderEpoch.code):
            await self.refresh()
            await self._validate(partition)
        elif code != NONE:
            await self.refresh()
        elif epoch >= 0:
            if not fetched.from_follower:  # a follower may only be behind
                self._truncated(partition, broker, end_offset)
        else:
            self._take(partition, fetched)

    async def _probe(self, partition: TopicPartition) -> None:
        broker = self.leader_of(partition)
        code, fetched, _ = await self.fetch(
            partition, broker, self.positions[partition], epochs_ahead=1000, max_wait_ms=0
        )
        if code == NONE:
            self.history.note(self.name, EpochIgnored(partition, broker, fetched.leader_epoch))

    def _take(self, partition: TopicPartition, fetched: Fetched) -> None:
        told = (
            fetched.broker,
            fetched.leader_epoch,
            fetched.high_watermark,
            fetched.log_start_offset,
        )
        if fetched.records or self._told.get(partition) != told:
            self._told[partition] = told
            self.history.note(self.name, fetched)
        if fetched.records:
            last = fetched.records[-1]
            self.positions[partition] = last.offset + 1
            self._epochs[partition] = last.leader_epoch

    def _truncated(self, partition: TopicPartition, broker: int, end_offset: int) -> None:
        position = self.positions[partition]
        self.history.note(self.name, Truncated(partition, broker, position, end_offset))
        self.positions[partition] = min(position, end_offset)
        self._epochs.pop(partition, None)

    async def _validate(self, partition: TopicPartition) -> None:
        """After a change of leader: does it have what was read?"""
        epoch = self._epochs.get(partition)
        if epoch is None:
            return
        broker = self.leader_of(partition)
        answer = await self.end_of_epoch(partition, epoch)
        if answer is not None and 0 <= answer[1] < self.positions[partition]:
            self._truncated(partition, broker, answer[1])

    async def _out_of_range(
        self, partition: TopicPartition, broker: int, position: int, follower: bool
    ) -> None:
        if follower:
            return  # a follower may be behind; the leader decides
        start = await self.list_offset(partition, EARLIEST)
        end = await self.list_offset(partition, LATEST)
        if start is None or end is None or start <= position <= end:
            return
        reset_to = start if position < start else end
        self.history.note(self.name, OutOfRange(partition, broker, position, reset_to))
        self.positions[partition] = reset_to
        self._epochs.pop(partition, None)


class FinalReader(Reader):
    """Reads partitions from start to end once, when all is quiet: what a client finds in the end."""

    def __init__(self, name: str, ports: ClientPorts, topics: tuple[str, ...]) -> None:
        super().__init__(name, ports)
        self._topics = topics
        self.found: dict[TopicPartition, tuple[int, tuple[Read, ...]]] = {}
        """(first offset, records) of each partition that was read to its end."""
        self.missing: list[TopicPartition] = []

    async def run(self) -> None:
        while not await self.refresh() and not self.stopping:
            await self.pause(0.2)
        for partition in sorted(self.partitions):
            if partition.topic in self._topics and not await self._read(partition):
                self.missing.append(partition)

    async def _read(self, partition: TopicPartition, patience: int = 50) -> bool:
        start: int | None = None
        position = 0
        records: list[Read] = []
        for _ in range(patience):
            if self.stopping:
                return False
            try:
                if start is None:
                    start = await self.list_offset(partition, EARLIEST)
                end = await self.list_offset(partition, LATEST)
                if start is None or end is None:
                    await self.refresh()
                    await self.pause(0.2)
                    continue
                position = max(position, start)
                while position < end:
                    code, fetched, _ = await self.fetch(
                        partition, self.leader_of(partition), position, max_wait_ms=0
                    )
                    if code != NONE or not fetched.records:
                        break
                    self.history.note(self.name, fetched)
                    records += fetched.records
                    position = fetched.records[-1].offset + 1
                if position >= end:
                    self.found[partition] = (start, tuple(records))
                    return True
            except (PeerError, NotKnown):
                pass
            await self.refresh()
            await self.pause(0.2)
        return False
