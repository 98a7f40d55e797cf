"""Records with odd insides, alone and in a batch of many, plain and compressed."""

import re
from collections.abc import Iterator
from pathlib import Path

from ..batches import T0, bend, record, with_payload
from ..case import Ask, Case, Topic
from ..run import produce
from .produce import read

VERSION = 11
UNSEEN_WORDS = "Records inside a batch are not looked at"
UNSEEN = frozenset(Path(__file__).with_name("records_unseen.txt").read_text().splitlines())
STRICT_WORDS = "Records whose declared length is wrong are refused"
STRICT = re.compile(r"record-length-(minus-1|one-less|huge|6-bytes)-(gzip|lz4)")


def wanted_difference(name: str) -> str:
    """The words of docs/differences.md for a case of malformed records, "" for most of them."""
    if STRICT.fullmatch(name):
        return STRICT_WORDS
    return UNSEEN_WORDS if name in UNSEEN else ""


I32 = 2**31 - 1

ODD = {
    "good": record(),
    "attributes-7": record(attributes=7),
    "attributes-255": record(attributes=255),
    "length-0": b"\0",
    "length-minus-1": record(length=-1),
    "length-one-less": record(length=6),
    "length-one-more": record(length=8),
    "length-huge": record(length=I32),
    "length-6-bytes": b"\x8e\x80\x80\x80\x80\x00" + record()[1:],
    "offset-1": record(offset=1),
    "offset-minus-1": record(offset=-1),
    "offset-huge": record(offset=I32),
    "time-negative": record(time=-T0 - 5),
    "time-minus-1": record(time=-T0 - 1),
    "time-huge": record(time=2**62),
    "key-null": record(key=None),
    "key-empty": record(key=b""),
    "key-minus-2": record(key=None, key_length=-2),
    "key-beyond": record(key_length=100),
    "key-shorter": record(key=b"kk", key_length=1),
    "value-null": record(value=None),
    "value-empty": record(value=b""),
    "value-minus-2": record(value=None, value_length=-2),
    "value-beyond": record(value_length=100),
    "value-huge": record(value_length=I32),
    "headers-one": record(headers=[(b"h", b"x")]),
    "headers-null-value": record(headers=[(b"h", None)]),
    "headers-empty-key": record(headers=[(b"", b"x")]),
    "headers-null-key": record(headers=[(None, b"x")]),
    "headers-same-key": record(headers=[(b"h", b"1"), (b"h", b"2")]),
    "headers-not-utf8": record(headers=[(b"\xff\xfe", b"x")]),
    "headers-many": record(headers=[(b"h%d" % n, b"x") for n in range(50)]),
    "headers-count-minus-1": record(header_count=-1),
    "headers-count-2-for-1": record(headers=[(b"h", b"x")], header_count=2),
    "headers-count-0-for-1": record(headers=[(b"h", b"x")], header_count=0),
    "headers-count-huge": record(header_count=I32),
    "headers-count-10": record(header_count=10),
    "tail": record(tail=b"abc"),
    "cut": record()[:-2],
    "only-length": record()[:1],
    "wide-varints": b"\x1a\x00\x80\x80\x00\x80\x00\x82\x00\x6b\x82\x00\x76\x00",
}


def cases() -> Iterator[Case]:
    for word, odd in ODD.items():
        yield from case(f"record-{word}", odd, 1)
        many = b"".join(record(offset=n) for n in range(12))
        last = odd if "offset" in word else _moved(word, odd)
        yield from case(f"record-{word}-last-of-13", many + last, 13)
        for codec, name in ((1, "gzip"), (3, "lz4")):
            yield from case(f"record-{word}-{name}", odd, 1, codec)
    payloads = {
        "rest-behind": (record() + b"\0\0\0", 1),
        "more-than-count": (record() + record(offset=1), 1),
        "less-than-count": (record(), 2),
        "nothing": (b"", 1),
        "descending": (record(offset=1) + record(offset=0), 2),
        "same-offsets": (record() + record(), 2),
        "gap": (record() + record(offset=5), 2),
    }
    for word, (payload, count) in payloads.items():
        for codec, name in ((0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
            yield from case(f"payload-{word}-{name}", payload, count, codec)
    for codec, name in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
        for count in (1, 30):
            payload = b"".join(record(offset=n) for n in range(count))
            good = with_payload(payload, count, codec=codec)
            damaged = {
                "cut": good[:-3],
                "empty": good[:61],
                "garbage": good[:61] + b"\x99" * 40,
                "rest": good + b"\0\0\0\0",
                "bit": good[:-6] + bytes((good[-6] ^ 1,)) + good[-5:],
                "twice": good + good[61:],
            }
            for word, data in damaged.items():
                bent = bend(data, length=len(data) - 12)
                title = f"compressed-{word}-{name}-{count}"
                yield produced(title, bent)
            wrong = bend(good, attributes=codec % 4 + 1)
            title = f"compressed-as-other-{name}-{count}"
            yield produced(title, wrong)


def _moved(word: str, odd: bytes) -> bytes:
    """The same oddity at offset delta 12, where its place can be told."""
    good = record()
    if len(odd) > 3 and odd[1:4] == good[1:4]:
        return odd[:3] + b"\x18" + odd[4:]
    return odd


def case(name: str, payload: bytes, count: int, codec: int = 0) -> Iterator[Case]:
    data = with_payload(payload, count, codec=codec)
    yield produced(name, data)


def produced(name: str, data: bytes, version: int = VERSION) -> Case:
    """Produce the bytes and look at what is stored."""
    return Case(
        name,
        [Ask(produce(name, data), version), read(name)],
        setup=[Topic(name)],
        differs=wanted_difference(name),
    )
