"""What is written at each turn of an exchange, and what must be there at the next one.

Each `Thread` has topics of its own.  At every turn it first checks all that was there before, then
writes more, then (the broker is down) looks at the files, and may damage the tails of a killed one.
"""

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kafkalike.records.batch import RecordBatch, encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.record import Record
from kafkalike.types import TopicPartition
from tests.integration import clients
from tests.integration.brokers import eventually

from .asking import EARLIEST, LATEST, Asker, Refused, latest
from .places import Exchange

T0: Final = time.time_ns() // 1_000_000
"""Of all records: producers of a day ago would be forgotten at the next start."""

OUT_OF_RANGE: Final = 1
OUT_OF_ORDER: Final = 45
STALE_EPOCH: Final = 47
WRITE_TXN_MARKERS: Final = 27
SMALL_SEGMENTS: Final = {"segment.bytes": "16384", "index.interval.bytes": "1024"}


class Thread:
    """One thing that has to survive."""

    def __init__(self, place: Exchange) -> None:
        self.place = place
        self.turn = -1

    def create(self, asker: Asker) -> None:
        raise NotImplementedError

    def check(self, asker: Asker) -> None:
        raise NotImplementedError

    def write(self, asker: Asker) -> None:
        raise NotImplementedError

    def at_rest(self, *, clean: bool) -> None:
        """The broker is down."""


class Codecs(Thread):
    """Batches of librdkafka in all codecs, over several segments, read back with CRCs checked."""

    TOPIC: Final = "codecs"

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._values: list[bytes] = []

    def create(self, asker: Asker) -> None:
        asker.create(self.TOPIC, 1, SMALL_SEGMENTS)

    def check(self, asker: Asker) -> None:
        found = clients.consume(self.place.bootstrap, self.TOPIC, len(self._values))
        assert clients.digest(found) == clients.digest(self._values)
        place = TopicPartition(self.TOPIC, 0)
        batches = asker.batches(place)
        assert {batch.codec for batch in batches} == set(range(5))
        assert [b.base_offset for b in batches[1:]] == [b.next_offset for b in batches[:-1]]
        for batch in (batches[0], batches[len(batches) // 2], batches[-1]):
            found_offset = asker.offset(place, batch.max_timestamp)
            times = [
                (b.max_timestamp, b) for b in batches if b.max_timestamp >= batch.max_timestamp
            ]
            first = min((b.base_offset for _, b in times))
            assert first <= found_offset <= batch.last_offset

    def write(self, asker: Asker) -> None:
        for codec in clients.CODECS:
            values = [b"%d %s " % (self.turn, codec.encode()) + v for v in clients.payloads(100)]
            offsets = clients.produce(
                self.place.bootstrap,
                self.TOPIC,
                values,
                compression_type=codec,
                enable_idempotence=True,
                batch_size=6000,
            )
            start = len(self._values)
            assert offsets == list(range(start, start + len(values)))
            self._values += values

    def at_rest(self, *, clean: bool) -> None:
        assert len(self.place.segments(self.TOPIC)) > 2 * self.turn + 2


@dataclass(slots=True, frozen=True)
class Sent:
    """The last batch of a producer."""

    epoch: int
    sequence: int
    count: int
    offset: int


class Sequences(Thread):
    """Idempotent producers of every turn go on: a duplicate is known; gaps, old epochs refused."""

    PLACE: Final = TopicPartition("sequences", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._last: dict[int, Sent] = {}

    def create(self, asker: Asker) -> None:
        asker.create("sequences", 1, {"segment.bytes": "2000"})

    @staticmethod
    def batch(producer_id: int, epoch: int, sequence: int, count: int) -> bytes:
        content = [Record(None, b"%d.%d" % (producer_id, sequence), T0) for _ in range(count)]
        return bytes(
            encode_batch(
                content, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
            )
        )

    def check(self, asker: Asker) -> None:
        end = asker.offset(self.PLACE, LATEST)
        for producer_id, last in self._last.items():
            # sent again by a producer that has not heard of its success
            again = self.batch(producer_id, last.epoch, last.sequence, last.count)
            found = asker.produce(self.PLACE, again)
            assert found == last.offset, (self.turn, producer_id, last)
            after = last.sequence + last.count
            refusals = {
                self.batch(producer_id, last.epoch, after + 3, 1): OUT_OF_ORDER,
                self.batch(producer_id, last.epoch + 1, after, 1): OUT_OF_ORDER,
                self.batch(producer_id, last.epoch - 1, after, 1): STALE_EPOCH,
            }
            for refused, code in refusals.items():
                with pytest.raises(Refused) as error:
                    asker.produce(self.PLACE, refused)
                assert error.value.code == code, (self.turn, producer_id, last)
        assert asker.offset(self.PLACE, LATEST) == end

    def write(self, asker: Asker) -> None:
        fresh = asker.producer_id()
        assert fresh not in self._last
        self._last[fresh] = Sent(1, 0, 0, -1)
        for producer_id, last in list(self._last.items()):
            epoch, sequence = last.epoch, last.sequence + last.count
            if self.turn % 2:
                epoch, sequence = epoch + 1, 0
            for count in (3, 1, 7):
                batch = self.batch(producer_id, epoch, sequence, count)
                offset = asker.produce(self.PLACE, batch)
                self._last[producer_id] = Sent(epoch, sequence, count, offset)
                sequence += count


class Compacted(Thread):
    """A compacted topic that both clean: every key keeps its last value."""

    PLACE: Final = TopicPartition("compacted", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._values: dict[bytes, bytes | None] = {}

    def create(self, asker: Asker) -> None:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": "4000",
            "min.cleanable.dirty.ratio": "0.01",
        }
        asker.create("compacted", 1, config)

    def check(self, asker: Asker) -> None:
        found = latest(asker.records(self.PLACE))
        assert {k: v for k, v in found.items() if v is not None} == {
            k: v for k, v in self._values.items() if v is not None
        }

    def write(self, asker: Asker) -> None:
        for n in range(60):
            codec = Codec(n % 5)
            key = b"key %d" % (n % 11)
            value = None if n == 59 else b"turn %d value %d " % (self.turn, n) * 10
            records = [Record(key, value, T0 + n), Record(b"%s %d" % (key, self.turn), value, T0)]
            asker.produce(self.PLACE, bytes(encode_batch(records, codec=codec)))
            self._values.update({record.key: value for record in records if record.key})
        active = int(self.place.segments("compacted")[-1].stem)

        def cleaned() -> bool:
            done = self.place.checkpoint("cleaner-offset-checkpoint")
            return done.get(("compacted", 0), 0) >= active

        eventually(cleaned, 60, what="compacted up to the active segment")


class Trimmed(Thread):
    """The log start offset after DeleteRecords, in the middle of a segment and past segments."""

    PLACE: Final = TopicPartition("trimmed", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._start = 0
        self._end = 0

    def create(self, asker: Asker) -> None:
        asker.create("trimmed", 1, {"segment.bytes": "1000"})

    def check(self, asker: Asker) -> None:
        assert asker.offset(self.PLACE, EARLIEST) == self._start
        assert asker.offset(self.PLACE, LATEST) == self._end
        with pytest.raises(Refused) as error:
            asker.fetch(self.PLACE, self._start - 1)
        assert error.value.code == OUT_OF_RANGE
        read = asker.fetch(self.PLACE, self._start)
        assert read.log_start_offset == self._start
        values = [b"%d" % n for n in range(self._start, self._end)]
        found = [r.value for r in asker.records(self.PLACE) if r.offset >= self._start]
        assert found == values

    def write(self, asker: Asker) -> None:
        for _ in range(24):
            records = [Record(None, b"%d" % (self._end + n), T0) for n in range(3)]
            assert asker.produce(self.PLACE, bytes(encode_batch(records))) == self._end
            self._end += 3
        self._start = self._end - 10
        assert asker.delete_records(self.PLACE, self._start) == self._start

    def at_rest(self, *, clean: bool) -> None:
        if clean:
            assert self.place.checkpoint("log-start-offset-checkpoint")["trimmed", 0] == self._start
        else:
            # Moves to the checkpoint once a minute: a crash may bring the old start back.
            known = self.place.checkpoint("log-start-offset-checkpoint")
            first = int(self.place.segments("trimmed")[0].stem)
            self._start = max(first, known.get(("trimmed", 0), 0))


class Epochs(Thread):
    """Leader epochs: each turn has a higher one, and where each ended stays known."""

    PLACE: Final = TopicPartition("epochs", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._ends: dict[int, int] = {}
        self._id = ""

    def create(self, asker: Asker) -> None:
        asker.create("epochs", 1, {"segment.bytes": "1000", "retention.ms": "86400000000"})
        self._id = self.place.topic_id("epochs")

    def check(self, asker: Asker) -> None:
        for epoch, end in self._ends.items():
            assert asker.epoch_end(self.PLACE, epoch) == (epoch, end)
        assert self.place.topic_id("epochs") == self._id
        expected = {"segment.bytes": "1000", "retention.ms": "86400000000"}
        assert asker.config("epochs") == expected

    def write(self, asker: Asker) -> None:
        epoch = asker.topic("epochs").partitions[0].leader_epoch
        assert epoch > max(self._ends, default=-1)
        for n in range(10):
            asker.produce(self.PLACE, bytes(encode_batch([Record(None, b"%d" % n, T0)])))
        self._ends[epoch] = asker.offset(self.PLACE, LATEST)
        assert {batch.partition_leader_epoch for batch in asker.batches(self.PLACE)} == set(
            self._ends
        )

    def at_rest(self, *, clean: bool) -> None:
        starts = [0, *self._ends.values()][:-1]
        assert self.place.epochs("epochs") == list(zip(self._ends, starts, strict=True))
        metadata = self.place.data / "epochs-0" / "partition.metadata"
        assert metadata.read_text().split() == ["version:", "0", "topic_id:", self._id]
        if clean:
            end = list(self._ends.values())[-1]
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                assert self.place.checkpoint(name)["epochs", 0] == end, name
        # As a controller that lives longer than its broker leaves it.
        self.place.leave_without_leader("epochs")


class Groups(Thread):
    """Committed offsets of groups."""

    PLACE: Final = TopicPartition("codecs", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._committed: dict[str, tuple[int, str]] = {}

    def create(self, asker: Asker) -> None:
        pass

    def check(self, asker: Asker) -> None:
        for group, committed in self._committed.items():
            assert asker.committed(group, self.PLACE) == committed

    def write(self, asker: Asker) -> None:
        for group in ("constant", f"group {self.turn}"):
            offset, metadata = 10 + self.turn, f"metadata {self.turn}"
            asker.commit(group, self.PLACE, offset, metadata)
            self._committed[group] = offset, metadata


class Transactions(Thread):
    """Transactional batches: the last stable offset and the list of aborted ones.

    Written in turns of brokers that serve WriteTxnMarkers; a transaction begun in one turn ends in
    another.
    """

    PLACE: Final = TopicPartition("transactions", 0)

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._open: dict[int, int] = {}
        self._aborted: list[tuple[int, int]] = []

    def create(self, asker: Asker) -> None:
        asker.create("transactions", 1, {"segment.bytes": "1500"})

    def check(self, asker: Asker) -> None:
        read = asker.fetch(self.PLACE, 0, committed=True)
        assert read.high_watermark == asker.offset(self.PLACE, LATEST)
        assert read.last_stable_offset == min(self._open.values(), default=read.high_watermark)
        aborted: list[tuple[int, int]] = []
        offset = 0
        while read.batches:
            aborted += [a for a in read.aborted if a not in aborted]
            offset = read.batches[-1].next_offset
            read = asker.fetch(self.PLACE, offset, committed=True)
        stable = read.last_stable_offset
        assert offset == stable
        assert sorted(aborted) == sorted(a for a in self._aborted if a[1] < stable)

    def write(self, asker: Asker) -> None:
        if WRITE_TXN_MARKERS not in asker.served():
            return
        for n in range(4):
            producer_id = asker.producer_id()
            batch = encode_batch(
                [Record(b"k", b"v" * 100, T0)] * 3,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            self._open[producer_id] = asker.produce(self.PLACE, bytes(batch), f"id {self.turn} {n}")
        # The last one stays open until a later turn.
        for n, producer_id in enumerate(list(self._open)[:-1]):
            asker.end_transaction(self.PLACE, producer_id, commit=n % 2 == 0)
            first = self._open.pop(producer_id)
            if n % 2:
                self._aborted.append((producer_id, first))


class Tails(Thread):
    """Tails that a crash left torn: whole batches stay, the rest is cut, writing goes on behind."""

    TOPIC: Final = "tails"
    DAMAGES: Final = ("nothing", "garbage", "half a header", "half a batch", "cut", "flip", "deep")

    def __init__(self, place: Exchange) -> None:
        super().__init__(place)
        self._values: list[list[bytes]] = [[] for _ in self.DAMAGES]
        self._lost: dict[int, tuple[int, bytes]] = {}
        """Partition -> base offset and bytes of its producer's last batch, when it was torn."""
        self._producers: dict[int, tuple[int, int]] = {}

    def create(self, asker: Asker) -> None:
        asker.create(self.TOPIC, len(self.DAMAGES), {"segment.bytes": "1200"})

    def check(self, asker: Asker) -> None:
        for partition, values in enumerate(self._values):
            place = TopicPartition(self.TOPIC, partition)
            what = f"{self.DAMAGES[partition]} in turn {self.turn}"
            found = [record.value for record in asker.records(place)]
            assert found == values, (what, len(found), len(values))
            assert asker.offset(place, LATEST) == len(values), what
            if partition in self._lost:
                # not known any more: its producer may send it again
                offset, batch = self._lost.pop(partition)
                assert asker.produce(place, batch) == offset == len(values), what
                again = RecordBatch(batch)
                values += [record.value or b"" for record in again.records()]

    def write(self, asker: Asker) -> None:
        for partition, values in enumerate(self._values):
            place = TopicPartition(self.TOPIC, partition)
            producer_id = asker.producer_id()
            for n in range(12):
                content = [b"%d %d %d %d" % (self.turn, partition, n, m) * 8 for m in range(2)]
                records = [Record(None, value, T0) for value in content]
                batch = encode_batch(
                    records, producer_id=producer_id, producer_epoch=0, base_sequence=2 * n
                )
                assert asker.produce(place, bytes(batch)) == len(values)
                values += content

    def at_rest(self, *, clean: bool) -> None:
        if clean:
            return
        for partition, damage in enumerate(self.DAMAGES):
            self._damage(partition, damage)

    def _damage(self, partition: int, damage: str) -> None:
        segments = self.place.segments(self.TOPIC, partition)
        path = segments[-1]
        assert path.stat().st_size > 0 and len(segments) > 2
        content = path.read_bytes()
        if damage == "garbage":
            path.write_bytes(content + b"\xff\x00garbage" * 9)
        elif damage == "half a header":
            path.write_bytes(content + struct.pack(">qi", len(self._values[partition]), 100)[:9])
        elif damage == "half a batch":
            batch = encode_batch([Record(None, b"v" * 300, T0)], base_offset=10**6)
            path.write_bytes(content + bytes(batch)[:200])
        elif damage == "cut":
            self._lose(partition, path)
            path.write_bytes(content[:-5])
        elif damage == "flip":
            self._lose(partition, path)
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        elif damage == "deep":
            # In an older segment, above the recovery point: all that follows goes.
            path = segments[-2]
            content = path.read_bytes()
            *_, last = _batches(path)
            del self._values[partition][last.base_offset :]
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])

    def _lose(self, partition: int, path: Path) -> None:
        *_, last = _batches(path)
        del self._values[partition][last.base_offset :]
        self._lost[partition] = last.base_offset, bytes(8) + bytes(last.view()[8:])


def _batches(path: Path) -> list[RecordBatch]:
    content, found = path.read_bytes(), []
    position = 0
    while position < len(content):
        found.append(RecordBatch(content, position))
        position += found[-1].size
    return found


ALL: Final = (Codecs, Sequences, Compacted, Trimmed, Epochs, Groups, Transactions, Tails)
