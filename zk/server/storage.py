"""What the coordination service keeps on disk: a transaction log and snapshots.

Directory (docs/coordination.md describes it byte by byte):

    lock                       held while a server runs
    log-<zxid>                 transactions from that zxid on (16 hex digits)
    snapshot-<zxid>            the whole state after that zxid

Every record is `length (4) | CRC-32 of the payload (4) | payload`.  A record cut short at the end of
the newest log is what a killed process leaves: it was never answered, and is cut off.  A broken
record with whole ones behind it is damage, and refused.
"""

import logging
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from kafkalike.runtime.ports import Disk, DiskLock, File, StorageError

from .jute import (
    JuteReader,
    MalformedRecord,
    write_acl,
    write_buffer,
    write_int,
    write_long,
    write_string,
)
from .model import (
    OPEN_ACL,
    Acl,
    Change,
    NodeAclSet,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeImage,
    SessionClosed,
    SessionOpened,
    TreeImage,
    Txn,
)
from .tree import CoordinationTree

LOG_MAGIC: Final = b"KLZKLOG1"
SNAPSHOT_MAGIC: Final = b"KLZKSNP1"
KEPT_SNAPSHOTS: Final = 3
_FRAME: Final = struct.Struct(">II")
_MAX_RECORD_BYTES: Final = 1 << 30

_log = logging.getLogger(__name__)


class CorruptStorage(StorageError):
    """The files do not hold an unbroken history; the message names file and position."""


# -- transactions and snapshots as bytes -----------------------------------------------------------

_NODE_CREATED: Final = 1
_NODE_DELETED: Final = 2
_NODE_DATA_SET: Final = 3
_NODE_ACL_SET: Final = 4
_SESSION_OPENED: Final = 5
_SESSION_CLOSED: Final = 6


def encode_txn(txn: Txn) -> bytes:
    """The payload of a log record."""
    parts = [write_long(txn.zxid), write_long(txn.time_ms), write_int(len(txn.changes))]
    for change in txn.changes:
        if isinstance(change, NodeCreated):
            parts.append(bytes([_NODE_CREATED]) + write_string(change.path))
            parts.append(write_buffer(change.data) + write_acl(change.acl))
            parts.append(write_long(change.owner) + write_int(change.creates))
        elif isinstance(change, NodeDeleted):
            parts.append(bytes([_NODE_DELETED]) + write_string(change.path))
        elif isinstance(change, NodeDataSet):
            parts.append(bytes([_NODE_DATA_SET]) + write_string(change.path))
            parts.append(write_buffer(change.data) + write_int(change.version))
        elif isinstance(change, NodeAclSet):
            parts.append(bytes([_NODE_ACL_SET]) + write_string(change.path))
            parts.append(write_acl(change.acl) + write_int(change.version))
        elif isinstance(change, SessionOpened):
            parts.append(bytes([_SESSION_OPENED]) + write_long(change.session_id))
            parts.append(write_int(change.timeout_ms) + write_buffer(change.password))
        else:
            parts.append(bytes([_SESSION_CLOSED]) + write_long(change.session_id))
    return b"".join(parts)


def decode_txn(payload: bytes) -> Txn:
    """Raises MalformedRecord."""
    reader = JuteReader(payload)
    zxid, time_ms = reader.int64("zxid"), reader.int64("time")
    changes = tuple(_decode_change(reader) for _ in range(reader.count("changes", 5)))
    if reader.left():
        raise MalformedRecord(f"transaction: {reader.left()} bytes too many")
    return Txn(zxid, time_ms, changes)


def _decode_change(reader: JuteReader) -> Change:
    kind = reader.byte("kind")
    if kind == _NODE_CREATED:
        path, data, acl = reader.text("path"), reader.buffer("data"), _acl(reader)
        return NodeCreated(path, data, acl, reader.int64("owner"), reader.int32("creates"))
    if kind == _NODE_DELETED:
        return NodeDeleted(reader.text("path"))
    if kind == _NODE_DATA_SET:
        return NodeDataSet(reader.text("path"), reader.buffer("data"), reader.int32("version"))
    if kind == _NODE_ACL_SET:
        return NodeAclSet(reader.text("path"), _acl(reader), reader.int32("version"))
    if kind == _SESSION_OPENED:
        session_id, timeout_ms = reader.int64("session"), reader.int32("timeout")
        return SessionOpened(session_id, timeout_ms, reader.buffer("password") or b"")
    if kind == _SESSION_CLOSED:
        return SessionClosed(reader.int64("session"))
    raise MalformedRecord(f"change: kind {kind}, expected 1 to 6")


def encode_image(image: TreeImage) -> bytes:
    """A whole snapshot file."""
    parts = [write_long(image.zxid), write_long(image.next_session_id)]
    parts.append(write_int(len(image.sessions)))
    for session_id, timeout_ms, password in image.sessions:
        parts.append(write_long(session_id) + write_int(timeout_ms) + write_buffer(password))
    parts.append(write_int(len(image.nodes)))
    for node in image.nodes:
        parts.append(write_string(node.path) + write_buffer(node.data) + write_acl(node.acl))
        parts.append(_NODE_NUMBERS.pack(*node[3:]))
    payload = b"".join(parts)
    return SNAPSHOT_MAGIC + _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def decode_image(data: bytes) -> TreeImage:
    """Raises MalformedRecord, also for a wrong checksum."""
    start = len(SNAPSHOT_MAGIC) + _FRAME.size
    if len(data) < start or not data.startswith(SNAPSHOT_MAGIC):
        raise MalformedRecord("snapshot: does not begin with its magic number")
    length, crc = _FRAME.unpack_from(data, len(SNAPSHOT_MAGIC))
    payload = data[start:]
    if len(payload) != length or zlib.crc32(payload) != crc:
        raise MalformedRecord(f"snapshot: {len(payload)} bytes of {length}, or a wrong checksum")
    reader = JuteReader(payload)
    zxid, next_session_id = reader.int64("zxid"), reader.int64("next session")
    sessions = tuple(
        (reader.int64("session"), reader.int32("timeout"), reader.buffer("password") or b"")
        for _ in range(reader.count("sessions", 16))
    )
    nodes = tuple(_decode_node(reader) for _ in range(reader.count("nodes", 64)))
    return TreeImage(zxid, next_session_id, sessions, nodes)


_NODE_NUMBERS: Final = struct.Struct(">qqqqqiiiq")


def _decode_node(reader: JuteReader) -> NodeImage:
    path, data, acl = reader.text("path"), reader.buffer("data"), _acl(reader)
    return NodeImage(path, data, acl, *reader.unpack(_NODE_NUMBERS, "node"))


def _acl(reader: JuteReader) -> tuple[Acl, ...]:
    acl = tuple(reader.acl())
    return OPEN_ACL if acl == OPEN_ACL else acl


# -- the directory ----------------------------------------------------------------------------------


class Storage:
    """The files of one server.  `recover`, `sync` and `write_snapshot` block: call them through
    Threads; `append` and `roll` do not wait for the device.
    """

    def __init__(self, disk: Disk, directory: str, *, fsync: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._fsync = fsync
        self._finished: list[File] = []
        """Full logs whose end is not on the device yet."""
        self._lock: DiskLock | None = None
        self._file: File | None = None
        self._new_names = False
        self.log_bytes = 0
        """Bytes in the current log."""
        self.log_txns = 0
        """Transactions in the current log."""

    def recover(self, tree: CoordinationTree) -> None:
        """Take the directory, bring `tree` (fresh) to the last complete state, open the log.

        StorageError when another server holds it; CorruptStorage when history is broken.
        """
        self._disk.make_dirs(self._directory)
        self._lock = self._disk.lock(self._path("lock"))
        try:
            self._recover(tree)
        except BaseException:
            self.close()
            raise

    def append(self, txn: Txn) -> None:
        """Put a transaction at the end of the log (in the page cache)."""
        assert self._file is not None, "the storage is not open"
        payload = encode_txn(txn)
        self._file.append(_FRAME.pack(len(payload), zlib.crc32(payload)), payload)
        self.log_bytes += _FRAME.size + len(payload)
        self.log_txns += 1

    def syncer(self) -> Callable[[], None]:
        """What to run elsewhere so that everything appended so far is on the device."""
        assert self._file is not None, "the storage is not open"
        current, new_names = self._file, self._new_names
        finished, self._finished = self._finished, []
        self._new_names = False
        current.retain()

        def sync() -> None:
            try:
                for file in finished:
                    file.sync()
                current.sync()
                if new_names:
                    self._disk.sync_dir(self._directory)
            finally:
                current.release()
                for file in finished:
                    file.close()

        return sync

    def roll(self, next_zxid: int) -> None:
        """Go on in a new log, which begins with `next_zxid`."""
        finished = self._file
        assert finished is not None, "the storage is not open"
        self._open_log(next_zxid)
        if self._fsync:
            self._finished.append(finished)
        else:
            finished.close()

    def write_snapshot(self, image: TreeImage) -> None:
        """Make a snapshot durable, then forget what only older snapshots need."""
        self._disk.write_atomic(self._path(f"snapshot-{image.zxid:016x}"), encode_image(image))
        kept = self._names("snapshot-")[-KEPT_SNAPSHOTS:]
        logs = self._names("log-")
        # A log may be needed up to the zxid before the next one's first.
        needed = [z for z in logs if z <= kept[0] + 1][-1:] or logs[:1]
        for zxid in self._names("snapshot-"):
            if zxid < kept[0]:
                self._disk.remove(self._path(f"snapshot-{zxid:016x}"))
        for zxid in logs:
            if zxid < needed[0]:
                self._disk.remove(self._path(f"log-{zxid:016x}"))

    def close(self) -> None:
        """Let go of the files and of the directory."""
        for file in [*self._finished, self._file]:
            if file is not None:
                file.close()
        self._finished = []
        self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- inside --------------------------------------------------------------------------------------

    def _recover(self, tree: CoordinationTree) -> None:
        self._load_snapshot(tree)
        logs = self._names("log-")
        for position, first in enumerate(logs):
            following = logs[position + 1] if position + 1 < len(logs) else None
            if following is not None and following <= tree.zxid + 1:
                continue  # wholly in the snapshot
            self._replay(tree, f"log-{first:016x}", last=following is None)
        replayed = self.log_txns
        self._open_log(logs[-1] if logs else tree.zxid + 1)
        self.log_txns = replayed

    def _load_snapshot(self, tree: CoordinationTree) -> None:
        zxids = self._names("snapshot-")
        for zxid in reversed(zxids):
            path = self._path(f"snapshot-{zxid:016x}")
            try:
                tree.load(decode_image(self._disk.read_file(path, self._disk.size(path))))
            except (MalformedRecord, ValueError) as error:
                _log.error("snapshot is damaged, trying an older one path=%s error=%s", path, error)
                continue
            return
        if zxids and not any(z <= 1 for z in self._names("log-")):
            raise CorruptStorage(f"{self._directory}: no snapshot can be read")

    def _replay(self, tree: CoordinationTree, name: str, *, last: bool) -> None:
        path = self._path(name)
        data = self._disk.read_file(path, self._disk.size(path))
        end = 0
        for position, payload in _records(data, path):
            try:
                txn = decode_txn(payload)
                if txn.zxid > tree.zxid:
                    tree.apply(txn)
                    self.log_txns += 1
            except ValueError as error:
                raise CorruptStorage(f"{path}: position {position}: {error}") from None
            end = position + _FRAME.size + len(payload)
        if end == 0:
            end = len(LOG_MAGIC) if data.startswith(LOG_MAGIC) else 0
        if end == len(data):
            return
        if not last:
            raise CorruptStorage(
                f"{path}: position {end}: the log is cut short, yet another follows"
            )
        _log.warning("cut an unfinished transaction off path=%s position=%d", path, end)
        file = self._disk.open(path)
        file.truncate(end)
        file.close()

    def _open_log(self, first_zxid: int) -> None:
        self._file = self._disk.open(self._path(f"log-{first_zxid:016x}"), create=True)
        if self._file.size() == 0:
            self._file.append(LOG_MAGIC)
        self._new_names = True
        self.log_bytes = self._file.size()
        self.log_txns = 0

    def _names(self, prefix: str) -> list[int]:
        """The zxids of the files of one kind, ascending."""
        found = []
        for name in self._disk.list(self._directory):
            digits = name.removeprefix(prefix)
            if name.startswith(prefix) and len(digits) == 16:
                found.append(int(digits, 16))
        return sorted(found)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _records(data: bytes, path: str) -> Iterator[tuple[int, bytes]]:
    """Positions and payloads of the whole records of a log, up to the first broken one.

    CorruptStorage when whole records follow the broken one: that is no interrupted write.
    """
    if not data.startswith(LOG_MAGIC):
        if len(data) < len(LOG_MAGIC) and LOG_MAGIC.startswith(data):
            return
        raise CorruptStorage(f"{path}: does not begin with {LOG_MAGIC.decode()}")
    position = len(LOG_MAGIC)
    while (payload := _whole_record(data, position)) is not None:
        yield position, payload
        position += _FRAME.size + len(payload)
    if position + _FRAME.size <= len(data):
        length = _FRAME.unpack_from(data, position)[0]
        behind = position + _FRAME.size + length
        if _whole_record(data, behind):
            raise CorruptStorage(f"{path}: position {position}: wrong checksum, not at the end")


def _whole_record(data: bytes, position: int) -> bytes | None:
    start = position + _FRAME.size
    if start > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, position)
    if not 0 < length <= min(len(data) - start, _MAX_RECORD_BYTES):
        return None
    payload = data[start : start + length]
    return payload if zlib.crc32(payload) == crc else None
