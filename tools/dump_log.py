"""`kafkalike dump-log`: segments, indexes, snapshots and checkpoints as text or JSON.

Reads the files of a stopped or running broker, ours or Kafka's, and changes nothing.  The text is that
of Kafka's own tool, so that what reads the one reads the other; `--output json` gives one object a
line.  Problems found (bad checksums, bytes behind the last batch, indexes that contradict the log)
are printed and make the exit code 1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from kafkalike.broker.log import checkpoints
from kafkalike.broker.log.index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, parse_txn_index
from kafkalike.broker.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from kafkalike.broker.log.producer_state import CorruptSnapshot, read_snapshot
from kafkalike.records.batch import CorruptBatch, RecordBatch
from kafkalike.records.compression import Codec, DecompressionError
from kafkalike.records.control import ABORT, COMMIT, control_type, read_marker
from kafkalike.records.record import MalformedRecord, Record
from kafkalike.records.scan import AnyBatch, batch_at, batch_size

from . import cli

Item = dict[str, Any]

_CODEC_NAMES: Final = {codec.value: codec.name.lower() for codec in Codec}
_WINDOW_BYTES: Final = 1 << 20
_LARGEST_BATCH_BYTES: Final = 1 << 30
_OFFSET_FILES: Final = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.CLEANER_FILE,
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the `dump-log` subcommand."""
    parser = subparsers.add_parser(
        "dump-log", help="print segments, indexes, snapshots and checkpoints", description=__doc__
    )
    parser.add_argument(
        "--files",
        required=True,
        metavar="FILE[,FILE]",
        help="comma separated files, or partition directories, to be dumped",
    )
    parser.add_argument(
        "--deep",
        "--deep-iteration",
        action="store_true",
        help="print every record, not only every batch",
    )
    parser.add_argument(
        "--print-data-log",
        action="store_true",
        help="print keys and values too (implies --deep)",
    )
    parser.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="print of records only keys and values",
    )
    parser.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="only check indexes: whole entries, in order",
    )
    parser.add_argument(
        "--verify-index-only",
        action="store_true",
        help="check indexes against their log without printing entries",
    )
    parser.add_argument(
        "--max-bytes",
        type=cli.whole(1),
        default=cli.MAX_INT,
        metavar="N",
        help="read at most so many bytes of each log",
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="text as Kafka's own tool prints it, or one JSON object a line (default: text)",
    )


def run(args: argparse.Namespace) -> int:
    """Dump; 0 when everything was in order."""
    return Dump(args, sys.stdout).run()


class Dump:
    """One run over some files."""

    def __init__(self, args: argparse.Namespace, out: TextIO) -> None:
        self._args = args
        self._out = out
        self._deep = args.deep or args.print_data_log
        self._problems = 0

    def run(self) -> int:
        """Dump every file that was named; 1 when a problem was found."""
        for name in self._args.files.split(","):
            path = Path(name.strip())
            if not name.strip():
                raise cli.UsageError("--files: expected FILE[,FILE...], found an empty name")
            if not path.exists():
                raise cli.CommandError(f"{path}: no such file or directory")
            for found in self._expand(path):
                self._dump(found)
        return 1 if self._problems else 0

    def _expand(self, path: Path) -> list[Path]:
        if path.is_dir():
            return sorted(child for child in path.iterdir() if self._dumper(child) is not None)
        return [path]

    def _dumper(self, path: Path) -> "Callable[[Path], None] | None":
        by_suffix: dict[str, Callable[[Path], None]] = {
            ".log": self._log,
            ".index": self._offset_index,
            ".timeindex": self._time_index,
            ".txnindex": self._txn_index,
            ".snapshot": self._snapshot,
        }
        suffixes = [suffix for suffix in path.suffixes if suffix in by_suffix]
        if suffixes:
            return by_suffix[suffixes[-1]]
        if path.name == EPOCHS_FILE:
            return self._epochs
        if path.name in _OFFSET_FILES:
            return self._offsets
        if path.name == checkpoints.PARTITION_METADATA_FILE:
            return self._metadata
        return None

    def _dump(self, path: Path) -> None:
        dumper = self._dumper(path)
        if dumper is None:
            cli.print_error(
                f"{path}: expected a segment (.log), an index (.index, .timeindex, .txnindex), a"
                " .snapshot, a checkpoint, partition.metadata, or a directory of such"
            )
            self._problems += 1
            return
        if self._args.output == "text":
            self._line(f"Dumping {path}")
        try:
            dumper(path)
        except (CorruptIndex, CorruptSnapshot, checkpoints.CorruptCheckpoint) as error:
            self._problem(path, str(error))

    # -- output --------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        print(text, file=self._out)

    def _emit(self, kind: str, path: Path, item: Item, text: str) -> None:
        if self._args.output == "json":
            self._line(json.dumps({"kind": kind, "file": str(path), **item}))
        else:
            self._line(text)

    def _problem(self, path: Path, text: str) -> None:
        self._problems += 1
        self._emit("problem", path, {"problem": text}, f"PROBLEM in {path}: {text}")

    # -- logs ----------------------------------------------------------------------------------

    def _log(self, path: Path) -> None:
        base = path.name[:20]
        if self._args.output == "text" and base.isdigit():
            self._line(f"Log starting offset: {int(base)}")
        end = 0
        for position, batch in _batches(path, self._args.max_bytes, self._problem_of(path)):
            valid = batch.crc_is_valid()
            if not valid:
                self._problem(path, f"the checksum of the batch at {position} does not match")
            item = _batch_item(position, batch, valid)
            if not (self._args.skip_record_metadata and self._deep):
                self._emit("batch", path, item, _batch_text(item))
            if self._deep:
                self._records(path, batch)
            end = position + batch.size
        size = min(path.stat().st_size, self._args.max_bytes)
        if end < size and size == path.stat().st_size:
            self._problem(path, f"{size - end} bytes behind the last whole batch")

    def _problem_of(self, path: Path) -> Callable[[str], None]:
        return lambda text: self._problem(path, text)

    def _records(self, path: Path, batch: AnyBatch) -> None:
        sequence = batch.base_sequence
        try:
            for record in batch.records():
                item = _record_item(record, batch, sequence, with_data=self._args.print_data_log)
                text = _record_text(item, skip_metadata=self._args.skip_record_metadata)
                self._emit("record", path, item, text)
                if sequence >= 0:
                    sequence = sequence + 1 & 0x7FFFFFFF
        except (MalformedRecord, DecompressionError) as error:
            self._problem(path, f"the records from {batch.last_offset} cannot be read: {error}")

    # -- indexes -------------------------------------------------------------------------------

    def _offset_index(self, path: Path) -> None:
        base = int(path.name[:20])
        data = path.read_bytes()
        entries = [
            (base + offset, position)
            for offset, position in OFFSET_ENTRY.iter_unpack(data[: len(data) // 8 * 8])
        ]
        if self._args.index_sanity_check:
            wrong = len(data) % 8 != 0 or (bool(entries) and entries[-1][0] < base)
            self._sanity(path, wrong)
            return
        log = path.with_suffix(".log")
        for number, (offset, position) in enumerate(entries):
            if offset == base and (position == 0 or number > 0):
                break  # the tail of zeros that a running broker's file has
            self._check_offset_entry(path, log, offset, position)
            if not self._args.verify_index_only:
                item = {"offset": offset, "position": position}
                self._emit("index", path, item, f"offset: {offset} position: {position}")

    def _check_offset_entry(self, path: Path, log: Path, offset: int, position: int) -> None:
        if not log.exists():
            return
        batch = _batch_in(log, position)
        if batch is None or batch.last_offset != offset:
            found = "nothing" if batch is None else f"a batch that ends at {batch.last_offset}"
            self._problem(path, f"offset {offset} points to {position}, where {found} was found")

    def _time_index(self, path: Path) -> None:
        base = int(path.name[:20])
        data = path.read_bytes()
        size = TIME_ENTRY.size
        entries = list(TIME_ENTRY.iter_unpack(data[: len(data) // size * size]))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        if self._args.index_sanity_check:
            wrong = len(data) % size != 0 or (bool(entries) and entries[-1][0] < entries[0][0])
            self._sanity(path, wrong)
            return
        log = path.with_suffix(".log")
        ends = _largest_timestamps(log) if log.exists() else None
        previous = -1
        for timestamp, relative in entries:
            offset = base + relative
            if timestamp <= previous:
                self._problem(path, f"timestamp {timestamp} follows {previous}")
            previous = timestamp
            if ends is not None and ends.get(offset) != timestamp:
                found = ends.get(offset)
                self._problem(
                    path,
                    f"offset {offset} has timestamp {timestamp}, the log says "
                    f"{'that no batch ends there' if found is None else found}",
                )
            if not self._args.verify_index_only:
                item = {"timestamp": timestamp, "offset": offset}
                self._emit("timeindex", path, item, f"timestamp: {timestamp} offset: {offset}")

    def _sanity(self, path: Path, wrong: bool) -> None:
        if wrong:
            self._problem(path, "the index does not pass the sanity check")
        else:
            self._emit("sanity", path, {"passed": True}, f"{path} passed sanity check.")

    def _txn_index(self, path: Path) -> None:
        for txn in parse_txn_index(path.read_bytes(), str(path)):
            text = (
                f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
                f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
            )
            self._emit("aborted_transaction", path, txn._asdict(), text)

    # -- other files ---------------------------------------------------------------------------

    def _snapshot(self, path: Path) -> None:
        for entry in read_snapshot(path.read_bytes()):
            txn = entry.current_txn_first_offset
            item: Item = {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_first_offset": None if txn < 0 else txn,
                "last_timestamp": entry.last_timestamp,
            }
            text = (
                f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: "
                f"{entry.coordinator_epoch} currentTxnFirstOffset: {_optional(txn)} lastTimestamp: "
                f"{entry.last_timestamp} "
            )
            if entry.batches:
                batch = entry.batches[-1]
                item.update(batch._asdict())
                text += (
                    f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                    f"lastOffset: {batch.last_offset} offsetDelta: "
                    f"{batch.last_offset - batch.first_offset} timestamp: {batch.timestamp}"
                )
            self._emit("producer", path, item, text)

    def _epochs(self, path: Path) -> None:
        for epoch, offset in checkpoints.parse_epochs(path.read_bytes(), str(path)):
            item = {"epoch": epoch, "start_offset": offset}
            self._emit("leader_epoch", path, item, f"epoch: {epoch} startOffset: {offset}")

    def _offsets(self, path: Path) -> None:
        for (topic, partition), offset in checkpoints.parse_offsets(
            path.read_bytes(), str(path)
        ).items():
            item = {"topic": topic, "partition": partition, "offset": offset}
            self._emit("checkpoint", path, item, f"{topic}-{partition} offset: {offset}")

    def _metadata(self, path: Path) -> None:
        text = path.read_bytes()
        topic_id = checkpoints.parse_partition_metadata(text, str(path))
        self._emit("metadata", path, {"topic_id": topic_id.hex()}, text.decode())


def _batches(
    path: Path, max_bytes: int, problem: Callable[[str], None]
) -> Iterator[tuple[int, AnyBatch]]:
    """(position, batch) of a log file, up to the first thing that is no whole batch."""
    with path.open("rb") as file:
        size = min(path.stat().st_size, max_bytes)
        position = 0
        while position < size:
            file.seek(position)
            chunk = file.read(min(_WINDOW_BYTES, size - position))
            at = 0
            try:
                while (length := batch_size(chunk, at, len(chunk))) and at + length <= len(chunk):
                    yield position + at, batch_at(chunk, at)
                    at += length
                if at == 0:
                    if not length or length > min(size - position, _LARGEST_BATCH_BYTES):
                        return
                    file.seek(position)
                    chunk = file.read(length)
                    yield position, batch_at(chunk, 0)
                    at = length
            except CorruptBatch as error:
                problem(f"at {position + at}: {error}")
                return
            position += at


def _batch_in(log: Path, position: int) -> AnyBatch | None:
    """The batch at a position, its header at least."""
    with log.open("rb") as file:
        file.seek(position)
        head = file.read(61)
        try:
            if not batch_size(head, 0, len(head)) or (head[16] == 2 and len(head) < 61):
                return None
            return batch_at(head, 0)
        except CorruptBatch:
            return None


def _largest_timestamps(log: Path) -> dict[int, int]:
    """Last offset of each batch -> its largest record timestamp."""
    found: dict[int, int] = {}
    for _, batch in _batches(log, 2**62, lambda _: None):
        try:
            found[batch.last_offset] = max(record.timestamp for record in batch.records())
        except (MalformedRecord, DecompressionError, ValueError):
            found[batch.last_offset] = batch.max_timestamp
    return found


def _optional(value: int) -> str:
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"


def _batch_item(position: int, batch: AnyBatch, valid: bool) -> Item:
    item: Item = {}
    if isinstance(batch, RecordBatch):
        horizon = batch.delete_horizon_ms
        item = {
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.count,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "leader_epoch": batch.partition_leader_epoch,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "delete_horizon_ms": horizon,
        }
    else:
        item = {"last_offset": batch.last_offset}
    item.update(
        position=position,
        timestamp_type="LogAppendTime" if batch.is_log_append_time else "CreateTime",
        timestamp=batch.max_timestamp,
        size=batch.size,
        magic=batch.magic,
        codec=_CODEC_NAMES.get(batch.codec, str(batch.codec)),
        crc=batch.crc,
        valid=valid,
    )
    return item


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _batch_text(item: Item) -> str:
    if item["magic"] < 2:
        head = f"offset: {item['last_offset']}"
    else:
        horizon = item["delete_horizon_ms"]
        head = (
            f"baseOffset: {item['base_offset']} lastOffset: {item['last_offset']} "
            f"count: {item['count']} baseSequence: {item['base_sequence']} "
            f"lastSequence: {item['last_sequence']} producerId: {item['producer_id']} "
            f"producerEpoch: {item['producer_epoch']} "
            f"partitionLeaderEpoch: {item['leader_epoch']} "
            f"isTransactional: {_flag(item['transactional'])} "
            f"isControl: {_flag(item['control'])} "
            f"deleteHorizonMs: {_optional(-1 if horizon is None else horizon)}"
        )
    return (
        f"{head} position: {item['position']} {item['timestamp_type']}: {item['timestamp']} "
        f"size: {item['size']} magic: {item['magic']} compresscodec: {item['codec']} "
        f"crc: {item['crc']} isvalid: {_flag(item['valid'])}"
    )


def _record_item(record: Record, batch: AnyBatch, sequence: int, *, with_data: bool) -> Item:
    item: Item = {
        "offset": record.offset,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
    }
    if batch.magic == 2:
        item["sequence"] = sequence
        item["headers"] = [key.decode("utf-8", "replace") for key, _ in record.headers]
    if batch.is_control and isinstance(batch, RecordBatch):
        kind = control_type(record.key)
        item["control"] = {ABORT: "ABORT", COMMIT: "COMMIT"}.get(kind, str(kind))
        marker = read_marker(batch)
        item["coordinator_epoch"] = None if marker is None else marker.coordinator_epoch
    elif with_data:
        item["key"] = _text(record.key)
        item["value"] = _text(record.value)
    return item


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _record_text(item: Item, *, skip_metadata: bool) -> str:
    text = "|"
    if not skip_metadata:
        text += (
            f" offset: {item['offset']} {item['timestamp_type']}: {item['timestamp']} "
            f"keySize: {item['key_size']} valueSize: {item['value_size']}"
        )
        if "sequence" in item:
            headers = ",".join(item["headers"])
            text += f" sequence: {item['sequence']} headerKeys: [{headers}]"
    if "control" in item:
        text += f" endTxnMarker: {item['control']} coordinatorEpoch: {item['coordinator_epoch']}"
    if item.get("key") is not None:
        text += f" key: {item['key']}"
    if item.get("value") is not None:
        text += f" payload: {item['value']}"
    return text
