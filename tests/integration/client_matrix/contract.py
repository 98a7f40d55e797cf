"""What every client program of the matrix understands, in its own language: commands and records.

A program is started with one argument, the bootstrap address.  Its first line of output is

    ready TAB library TAB version TAB codecs, separated by commas

Then it reads commands, one a line, fields separated by tabs, and answers each with one line: `ok` and
fields, or `error` and a text.  It ends when its input ends.

    create TOPIC PARTITIONS REPLICAS [KEY=VALUE ...]
    list                       -> the names of all topics
    describe TOPIC             -> PARTITION:LEADER:REPLICAS:ISR for each partition, ids with commas
    setting TOPIC NAME         -> the value of one topic setting
    produce TOPIC CODEC FILE   -> how many were acknowledged by all replicas
    consume TOPIC SINCE FILE   -> how many; from the beginning if SINCE is `-`, else from the first
                                  record at or after that time (ms), in each partition to the end that
                                  it had when the command came

FILE holds records one after another, integers big endian: partition i32, offset i64, timestamp i64
(ms), key, value, number of headers i32, and for each header name and value.  Keys, values, names are
a length i32 (-1: null) and so many bytes.  Records to produce have offset -1; timestamp -1 leaves it
to the client.
"""

import hashlib
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_HEAD: Final = struct.Struct(">iqq")
_I32: Final = struct.Struct(">i")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True, frozen=True)
class Record:
    """One record as clients give and get it.  `timestamp` in ms, -1 for none; `offset` -1 for none."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = -1
    offset: int = -1


class PartitionView(NamedTuple):
    """One partition as `describe` tells it."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def text(self) -> str:
        lists = (",".join(map(str, ids)) for ids in (self.replicas, self.isr))
        return ":".join([str(self.partition), str(self.leader), *lists])

    @classmethod
    def parse(cls, text: str) -> "PartitionView":
        partition, leader, replicas, isr = text.split(":")
        lists = [tuple(int(i) for i in ids.split(",") if i) for ids in (replicas, isr)]
        return cls(int(partition), int(leader), *lists)


def _bytes(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def encode(record: Record) -> bytes:
    parts = [_HEAD.pack(record.partition, record.offset, record.timestamp)]
    parts += [_bytes(record.key), _bytes(record.value), _I32.pack(len(record.headers))]
    for name, value in record.headers:
        parts += [_bytes(name.encode()), _bytes(value)]
    return b"".join(parts)


def write_records(path: Path, records: Iterable[Record]) -> int:
    count = 0
    with path.open("wb") as file:
        for record in records:
            file.write(encode(record))
            count += 1
    return count


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"the file ends inside a record: {len(data)} bytes of {size}")
    return data


def _read_bytes(file: BinaryIO) -> bytes | None:
    (size,) = _I32.unpack(_exactly(file, 4))
    return None if size < 0 else _exactly(file, size)


def read_records(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            partition, offset, timestamp = _HEAD.unpack(head)
            key, value = _read_bytes(file), _read_bytes(file)
            headers = []
            for _ in range(_I32.unpack(_exactly(file, 4))[0]):
                name = _read_bytes(file)
                assert name is not None, "a header without a name"
                headers.append((name.decode(), _read_bytes(file)))
            yield Record(partition, key, value, tuple(headers), timestamp, offset)


class Digest:
    """sha256 over the records of one partition: keys, values, headers, timestamps."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = hashlib.sha256()

    def add(self, record: Record) -> None:
        self.count += 1
        data = encode(record)
        self._sum.update(data[:4])
        self._sum.update(data[12:])  # without the offset

    def __str__(self) -> str:
        return f"{self.count} records {self._sum.hexdigest()}"


class Client(Protocol):
    """What a program in Python implements; `serve` does the rest."""

    def create(
        self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None: ...
    def topics(self) -> Iterable[str]: ...
    def describe(self, topic: str) -> Iterable[PartitionView]: ...
    def setting(self, topic: str, name: str) -> str: ...
    def produce(self, topic: str, codec: str, records: Iterator[Record]) -> int: ...
    def consume(self, topic: str, since: int | None) -> Iterator[Record]: ...


def _answer(client: Client, words: list[str]) -> list[str]:
    match words:
        case ["create", topic, partitions, replicas, *pairs]:
            config = dict(pair.split("=", 1) for pair in pairs)
            client.create(topic, int(partitions), int(replicas), config)
            return []
        case ["list"]:
            return list(client.topics())
        case ["describe", topic]:
            return [view.text() for view in client.describe(topic)]
        case ["setting", topic, name]:
            return [client.setting(topic, name)]
        case ["produce", topic, codec, path]:
            return [str(client.produce(topic, codec, read_records(Path(path))))]
        case ["consume", topic, since, path]:
            found = client.consume(topic, None if since == "-" else int(since))
            return [str(write_records(Path(path), found))]
    raise ValueError(f"no such command: {words}")


def serve(
    library: str, version: str, make: Callable[[str], Client], codecs: Iterable[str] = CODECS
) -> None:
    """The whole life of a program in Python."""
    client = make(sys.argv[1])
    print("ready", library, version, ",".join(codecs), sep="\t", flush=True)
    for line in sys.stdin:
        try:
            answer = ["ok", *_answer(client, line.rstrip("\n").split("\t"))]
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            answer = ["error", text.replace("\t", " ").replace("\n", " ")]
        print(*answer, sep="\t", flush=True)
