"""Compares the replicas of a partition batch by batch, over the wire or from files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kafkalike.broker.log import checkpoints
from kafkalike.broker.log.checkpoints import CorruptCheckpoint, parse_offsets
from kafkalike.broker.log.meta_properties import FILE_NAME as META_PROPERTIES
from kafkalike.broker.log.meta_properties import MetaPropertiesError, parse_meta_properties
from kafkalike.broker.log.names import DirKind, parse_dir_name, parse_file_name
from kafkalike.errors import NONE, OffsetOutOfRange, error_name
from kafkalike.messages.fetch import FetchRequest
from kafkalike.records.batch import CorruptBatch
from kafkalike.records.scan import batch_at, batch_size
from kafkalike.types import TopicPartition

from .. import cli
from .client import AdminClient
from .cluster_view import Difference

WINDOW_BYTES: Final = 1 << 20
_DIR_PATTERNS: Final = ("", "*/", "*/*/")


class Unreadable(Exception):
    """A replica cannot be read any further; the text says why."""


class Batch(NamedTuple):
    """One record batch as it lies in a log."""

    base_offset: int
    last_offset: int
    data: bytes


class Replica(Protocol):
    """One replica's batches in order, up to its high watermark."""

    @property
    def where(self) -> str: ...

    async def next(self) -> Batch | None:
        """The next batch, None at the high watermark.  Raises Unreadable."""


@dataclass(slots=True)
class Compared:
    """How a comparison went."""

    batches: int = 0
    bytes: int = 0
    differences: list[Difference] = field(default_factory=list)


def cut(data: bytes, start: int, end: int) -> Iterator[Batch]:
    """Whole batches of `data` that lie between two offsets; a partial one at the end is left out.

    Batches that end before `start` are left out, those that reach to `end` or beyond end the walk.
    Raises CorruptBatch.
    """
    position = 0
    while (size := batch_size(data, position, len(data))) and position + size <= len(data):
        batch = batch_at(data, position)
        base, last = int(batch.base_offset), int(batch.last_offset)
        if last >= end:
            return
        if last >= start:
            yield Batch(base, last, data[position : position + size])
        position += size


async def compare_replicas(
    partition: TopicPartition, reference: Replica, others: Iterable[Replica]
) -> Compared:
    """Hold each of `others` against `reference`, as far as both go.

    A log that begins later than the other is compared from there; a replica is given up at its first
    difference.
    """
    result = Compared()
    followers = [_Follower(replica) for replica in others]
    subject = str(partition)
    try:
        while (batch := await reference.next()) is not None:
            result.batches += 1
            result.bytes += len(batch.data)
            for follower in followers:
                if follower.done:
                    continue
                try:
                    problem = await follower.check(batch)
                except Unreadable as error:
                    problem = (f"offset {batch.base_offset}", "readable", str(error))
                if problem is not None:
                    follower.done = True
                    result.differences.append(Difference(follower.replica.where, subject, *problem))
            if followers and all(follower.done for follower in followers):
                return result
    except Unreadable as error:
        result.differences.append(
            Difference(reference.where, subject, "log", "readable", str(error))
        )
    return result


class _Follower:
    """How far a replica has been compared."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.done = False
        self._begun = False
        self._batch: Batch | None = None

    async def check(self, expected: Batch) -> tuple[str, object, object] | None:
        """(what, expected, found) where this replica differs from the batch."""
        batch = self._batch or await self.replica.next()
        while batch is not None and batch.last_offset < expected.base_offset:
            if self._begun:
                return _gap(batch, "nothing", "a batch")
            batch = await self.replica.next()
        self._batch = batch
        if batch is None:
            self.done = True
            return None
        if batch.base_offset > expected.last_offset:
            return _gap(expected, "a batch", "nothing") if self._begun else None
        self._begun = True
        self._batch = None
        if batch == expected:
            return None
        what = f"batch at offset {expected.base_offset}"
        return what, _batch_text(expected), _batch_text(batch)


def _gap(batch: Batch, expected: str, found: str) -> tuple[str, object, object]:
    return f"offsets {batch.base_offset} to {batch.last_offset}", expected, found


def _batch_text(batch: Batch) -> str:
    view = batch_at(batch.data, 0)
    state = "" if view.crc_is_valid() else " (does not match)"
    return (
        f"offsets {batch.base_offset} to {batch.last_offset}, {len(batch.data)} bytes,"
        f" leader epoch {getattr(view, 'partition_leader_epoch', -1)}, crc {view.crc}{state}"
    )


# -- over the wire -------------------------------------------------------------------------------


class RemoteReplica:
    """Reads any replica as a consumer does; `start` may lie before its log begins."""

    def __init__(
        self,
        client: AdminClient,
        broker: int,
        partition: TopicPartition,
        topic_id: bytes,
        start: int,
    ) -> None:
        self.where = f"log on broker {broker}"
        self._client = client
        self._broker = broker
        self._partition = partition
        self._topic_id = topic_id
        self._offset = start
        self._end: int | None = None
        self._batches: Iterator[Batch] = iter(())

    async def next(self) -> Batch | None:
        while True:
            try:
                batch = next(self._batches, None)
            except CorruptBatch as error:
                raise Unreadable(str(error)) from error
            if batch is not None:
                self._offset = batch.last_offset + 1
                return batch
            if self._end is not None and self._offset >= self._end:
                return None
            if not await self._fetch():
                return None

    async def _fetch(self) -> bool:
        """Read on; False where nothing more is."""
        answer = await self._ask(self._offset, WINDOW_BYTES)
        if answer.error_code == OffsetOutOfRange.code:
            return await self._find_start()
        if answer.error_code != NONE:
            raise Unreadable(error_name(answer.error_code))
        if self._end is None:
            self._end = answer.high_watermark
        before = self._offset
        data = bytes(answer.records or b"")
        found = list(cut(data, self._offset, self._end))
        self._batches = iter(found)
        return bool(found) and found[-1].last_offset >= before

    async def _find_start(self) -> bool:
        """This log begins later or has ended before: look for the first offset that it has.

        What is readable is one range; steps that double meet it if it is not small and far away, and
        halving finds its start.  False when it was not met: nothing to compare.
        """
        step, offset = 1, self._offset
        readable: int | None = None
        while step < 1 << 62:
            offset = self._offset + step
            answer = await self._ask(offset, 1)
            if answer.error_code == NONE:
                readable = offset
                break
            if answer.error_code != OffsetOutOfRange.code:
                raise Unreadable(error_name(answer.error_code))
            step *= 2
        if readable is None:
            return False
        low = self._offset
        while readable - low > 1:
            middle = (low + readable) // 2
            answer = await self._ask(middle, 1)
            if answer.error_code == NONE:
                readable = middle
            else:
                low = middle
        self._offset = readable
        return True

    async def _ask(self, offset: int, max_bytes: int) -> Any:
        topic = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[
                topic(
                    topic=self._partition.topic,
                    topic_id=self._topic_id,
                    partitions=[
                        topic.FetchPartition(
                            partition=self._partition.partition,
                            fetch_offset=offset,
                            partition_max_bytes=max_bytes,
                        )
                    ],
                )
            ],
        )
        try:
            response = await self._client.broker(self._broker, request)
        except cli.CommandError as error:
            raise Unreadable(str(error)) from error
        if response.error_code != NONE:
            raise Unreadable(error_name(response.error_code))
        for answer in response.responses:
            for partition in answer.partitions:
                return partition
        raise Unreadable("the answer does not name the partition")


# -- from files ----------------------------------------------------------------------------------


class LogOnDisk:
    """The segments of one partition directory, from `start` to the stored high watermark."""

    def __init__(self, path: Path, broker: int, start: int, high_watermark: int) -> None:
        self.where = f"log in {path} (broker {broker})"
        self.broker = broker
        self.start = start
        self.high_watermark = high_watermark
        self.path = path
        self._batches = self._read()

    async def next(self) -> Batch | None:
        try:
            return next(self._batches, None)
        except CorruptBatch as error:
            raise Unreadable(str(error)) from error
        except OSError as error:
            raise Unreadable(f"{error.filename}: {error.strerror}") from error

    def _read(self) -> Iterator[Batch]:
        names = sorted(
            parsed[0]
            for child in self.path.iterdir()
            if (parsed := parse_file_name(child.name)) is not None and parsed[1] == ".log"
        )
        for index, base in enumerate(names):
            if index + 1 < len(names) and names[index + 1] <= self.start:
                continue
            if base >= self.high_watermark:
                return
            yield from _segment(self.path / f"{base:020d}.log", self.start, self.high_watermark)


def _segment(path: Path, start: int, end: int) -> Iterator[Batch]:
    size = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            data = file.read(WINDOW_BYTES)
            whole = 0
            while (length := batch_size(data, whole, len(data))) and whole + length <= len(data):
                whole += length
            if whole == 0:
                length = batch_size(data, 0, len(data))
                if not length or position + length > size:
                    return  # a torn tail, above every high watermark
                file.seek(position)
                data = file.read(length)
                whole = length
            yield from cut(data[:whole], start, end)
            position += whole


@dataclass(slots=True)
class DataDirs:
    """What lies in log directories."""

    logs: dict[TopicPartition, list[LogOnDisk]] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)

    def held_by(self, broker: int) -> list[TopicPartition]:
        return [tp for tp, logs in self.logs.items() if any(log.broker == broker for log in logs)]


def read_dirs(directories: Iterable[str]) -> DataDirs:
    """Log directories (those with a meta.properties) in and up to two levels below `directories`.

    Of a log that was compacted only what lies behind the last compaction is compared.
    Raises CommandError.
    """
    found: dict[Path, None] = {}
    for text in directories:
        root = Path(text)
        if not root.is_dir():
            raise cli.CommandError(f"--dir: {text} is no directory")
        below = {
            path.parent.resolve()
            for pattern in _DIR_PATTERNS
            for path in root.glob(pattern + META_PROPERTIES)
        }
        if not below:
            raise cli.CommandError(f"--dir: {text}: no {META_PROPERTIES} in or below it")
        found.update(dict.fromkeys(sorted(below)))
    dirs = DataDirs()
    for path in found:
        try:
            _read_dir(dirs, path)
        except (OSError, CorruptCheckpoint, MetaPropertiesError) as error:
            raise cli.CommandError(f"--dir: {path}: {error}") from error
    return dirs


def _read_dir(dirs: DataDirs, path: Path) -> None:
    meta_path = path / META_PROPERTIES
    broker = parse_meta_properties(meta_path.read_bytes(), str(meta_path)).broker_id
    if broker is None:
        raise MetaPropertiesError(f"{meta_path} names no broker.id")
    dirs.brokers.add(broker)
    high_watermarks = _offsets(path / checkpoints.HIGH_WATERMARK_FILE)
    log_starts = _offsets(path / checkpoints.LOG_START_FILE)
    cleaned = _offsets(path / checkpoints.CLEANER_FILE)
    for child in sorted(path.iterdir()):
        parsed = parse_dir_name(child.name) if child.is_dir() else None
        if parsed is None or parsed.kind in (DirKind.DELETE, DirKind.STRAY, DirKind.FUTURE):
            continue
        partition = parsed.topic_partition
        start = max(log_starts.get(partition, 0), cleaned.get(partition, 0))
        log = LogOnDisk(child, broker, start, high_watermarks.get(partition, 0))
        dirs.logs.setdefault(partition, []).append(log)


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    return parse_offsets(path.read_bytes(), str(path)) if path.exists() else {}
