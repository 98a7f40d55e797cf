"""Records that clients send: odd small ones for the matrix, whole files for the acceptance test."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .contract import Record

NOW_MS: Final = 1_700_000_000_000
"""Time of the first record of the matrix; those of files are a second apart from here on."""

DOCUMENTS: Final = Path("/usr/share/doc")


def noise(name: str, size: int) -> bytes:
    """Bytes that no codec makes smaller, the same for the same name."""
    return hashlib.shake_128(name.encode()).digest(size)


def _plain(count: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(count):
        line = f"{number:06d} a line that looks much like the one before it; "
        yield b"key-%d" % (number % 7), line.encode() * (1 + number % 9)


def matrix_records(codec: str, partition: int, salt: str) -> list[Record]:
    """Two partitions from `partition` on: plain lines, and everything that is easily got wrong."""
    plain = [
        Record(partition, key, value, (("codec", codec.encode()),), NOW_MS + 10 * number)
        for number, (key, value) in enumerate(_plain(150))
    ]
    names = (("one", b"1"), ("two", b"2"), ("one", b"3"), ("one", b"1"))
    odd = [
        Record(partition + 1, None, b"no key"),
        Record(partition + 1, b"", b"empty key"),
        Record(partition + 1, b"tombstone", None),
        Record(partition + 1, b"empty value", b""),
        Record(partition + 1, b"", b""),
        Record(partition + 1, b"\x00\xff\n\t,=\r\n", b"\x00" * 50 + b"\xff\xfe\n"),
        Record(
            partition + 1, "schlüssel".encode(), "значение ☃".encode(), (("größe", b"\xc3\xbc"),)
        ),
        Record(partition + 1, b"headers", b"repeated names", names),
        Record(partition + 1, b"headers", b"null and empty", (("null", None), ("empty", b""))),
        Record(partition + 1, b"headers", b"binary", (("bytes", b"\x01\xff\x7f\x80"),)),
        Record(partition + 1, b"many headers", b"", tuple((f"h{i}", b"%d" % i) for i in range(64))),
        Record(partition + 1, b"large", noise(salt, 300_000)),
        Record(partition + 1, b"large and dull", b"dull " * 60_000),
        *(Record(partition + 1, b"small", noise(f"{salt}{i}", 1 + i * 37)) for i in range(60)),
    ]
    # times that go back now and then, so that a search for one has something to get wrong
    times = (
        NOW_MS + 1000 * number - (7000 if number % 5 == 0 else 0) for number in range(len(odd))
    )
    return plain + [
        Record(it.partition, it.key, it.value, it.headers, time) for it, time in zip(odd, times)
    ]


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _documents(limit: int | None) -> Iterator[tuple[str, bytes]]:
    """The system's changelogs as they are, most of them compressed; at most `limit` bytes."""
    left = limit
    for path in sorted(DOCUMENTS.glob("*/*[Cc][Hh][Aa][Nn][Gg][Ee][Ll][Oo][Gg]*")):
        if left is not None and left <= 0:
            return
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if left is not None:
                left -= len(data)
            yield str(path.relative_to(DOCUMENTS)), data


def _generated(size: int) -> Iterator[bytes]:
    """Pieces of a file of `size` bytes, a third of it noise, in lengths from 100 bytes to 100 kB."""
    done = number = 0
    while done < size:
        length = min(
            size - done, 100 + (number * number * 7919) % (100_000 if number % 4 else 2000)
        )
        line = f"{number} every piece repeats a line of its own. ".encode()
        loud = noise(f"piece {number}", length // 3)
        yield (loud + line * (1 + length // len(line)))[:length]
        done += length
        number += 1


def file_set(codec: str, partition: int, documents: int | None, generated: int) -> Iterator[Record]:
    """Changelogs in one partition, a generated file in the next.

    Key: the name of the file; headers: codec, number of the piece and its sha256 as text.
    """
    number = 0

    def record(place: int, name: str, index: int, piece: bytes) -> Record:
        headers = (
            ("codec", codec.encode()),
            ("piece", b"%d" % index),
            ("sha256", hashlib.sha256(piece).hexdigest().encode()),
        )
        return Record(place, name.encode(), piece, headers, NOW_MS + 1000 * number)

    for name, data in _documents(documents):
        for index, piece in enumerate(_chunks(data, 16_384)):
            yield record(partition, name, index, piece)
            number += 1
    for index, piece in enumerate(_generated(generated)):
        yield record(partition + 1, "generated", index, piece)
        number += 1
