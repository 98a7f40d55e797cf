"""Frames, headers and connections that are not as they should be."""

import struct
from collections.abc import Iterator

from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.catalog import APIS, ApiKey
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.protocol.struct import Response

from ..batches import batch
from ..case import Ask, Case, Raw, Topic, frame, head, sized
from ..run import produce

NEWER_GROUPS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
NOTHING = MetadataRequest(topics=[])
METADATA = (MetadataResponse, 1)


def cases() -> Iterator[Case]:
    yield from frames()
    yield from headers()
    yield from bodies()
    yield from pipelines()


def frames() -> Iterator[Case]:
    good = frame(NOTHING, 1)
    sizes = {
        "zero": 0,
        "one": 1,
        "seven": 7,
        "minus-1": -1,
        "minus-big": -(2**31),
        "over-limit": 104857601,
        "max": 2**31 - 1,
    }
    for name, size in sizes.items():
        yield Case(f"frame-size-{name}", [Raw(struct.pack(">i", size) + good[4:], after="finish")])
    for cut in (1, 3, 4, 5, 8, len(good) - 1):
        yield Case(f"frame-cut-at-{cut}", [Raw(good[:cut], after="finish")])
    yield Case("frame-nothing", [Raw(b"", after="finish")])
    yield Case("half-close-after-request", [Raw(good, [METADATA], after="finish")])
    yield Case("half-close-after-three", [Raw(good * 3, [METADATA] * 3, after="finish")])
    yield Case("half-close-with-cut-second", [Raw(good + good[:9], [METADATA], after="finish")])
    yield Case("frame-http", [Raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", after="finish")])
    yield Case("frame-tls-hello", [Raw(bytes.fromhex("1603010200010001fc0303") + bytes(500))])


def headers() -> Iterator[Case]:
    served = {api.key for api in APIS}
    for key in (*range(93), 100, 1000, 32767, -1, -32768):
        if key in served:
            continue
        content = struct.pack(">hhih", key, 0, 5, 1) + b"x"
        yield Case(f"header-key-{key}", [Raw(sized(content), after="finish")])
    for api in APIS:
        if api.key == 18:
            continue
        # Kafka 3.9 has version 0 only of what a later Kafka added to.
        newest = 0 if api.key in NEWER_GROUPS else api.max_version
        for version in (newest + 1, -1):
            content = struct.pack(">hhih", api.key, version, 5, 1) + b"x\0" + bytes(40)
            yield Case(
                f"header-version-{api.name}-{version}", [Raw(sized(content), after="finish")]
            )
    body = NOTHING.encode(1)
    flexible = NOTHING.encode(9)
    for correlation_id in (0, -1, 2**31 - 1, -(2**31)):
        yield Case(
            f"header-correlation-{correlation_id}",
            [Raw(sized(head(3, 1, correlation_id, "x") + body), [METADATA])],
        )
    for name, client in {"null": None, "empty": "", "long": "c" * 30000, "utf8": "ü€😀"}.items():
        yield Case(
            f"header-client-id-{name}", [Raw(sized(head(3, 1, 5, client) + body), [METADATA])]
        )
        yield Case(
            f"header-client-id-{name}-flexible",
            [Raw(sized(head(3, 9, 5, client) + flexible), [(MetadataResponse, 9)])],
        )
    odd = {
        "invalid-utf8": struct.pack(">hhih", 3, 1, 5, 2) + b"\xff\xfe" + body,
        "length-minus-2": struct.pack(">hhih", 3, 1, 5, -2) + body,
        "length-beyond": struct.pack(">hhih", 3, 1, 5, 500) + body,
        "cut-in-correlation": struct.pack(">hhh", 3, 1, 0),
        "cut-in-client": struct.pack(">hhih", 3, 1, 5, 6) + b"abc",
        "no-client": struct.pack(">hhi", 3, 1, 5),
        "no-body": struct.pack(">hhih", 3, 1, 5, 0),
    }
    for name, content in odd.items():
        yield Case(f"header-odd-{name}", [Raw(sized(content), [METADATA], after="finish")])
    tags = {
        "one": b"\x01\x00\x01a",
        "big-number": b"\x01\xff\xff\xff\xff\x0f\x01a",
        "twice": b"\x02\x00\x01a\x00\x01b",
        "descending": b"\x02\x05\x01a\x02\x01b",
        "empty": b"\x01\x07\x00",
        "cut": b"\x01\x07\x7fabc",
        "negative": b"\xff\xff\xff\xff\x0f",
        "many": b"\x05" + b"\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00",
    }
    for name, tag in tags.items():
        content = head(3, 9, 5, "x")[:-1] + tag + flexible
        yield Case(
            f"header-tags-{name}", [Raw(sized(content), [(MetadataResponse, 9)], after="finish")]
        )


def bodies() -> Iterator[Case]:
    """Bodies that do not parse, or do in an unusual way."""
    v1, v9 = head(3, 1, 5, "x"), head(3, 9, 5, "x")
    plain = {
        "array-minus-2": b"\xff\xff\xff\xfe",
        "array-huge": b"\x7f\xff\xff\xff",
        "array-beyond": b"\0\0\0\x05\0\1a",
        "string-minus-2": b"\0\0\0\1\xff\xfe",
        "string-null": b"\0\0\0\1\xff\xff",
        "string-beyond": b"\0\0\0\1\0\x09a",
        "string-invalid-utf8": b"\0\0\0\1\0\2\xc3\x28",
        "string-with-nul": b"\0\0\0\1\0\3a\0b",
        "trailing": b"\0\0\0\0abcdef",
        "cut": b"\0\0",
    }
    for name, body in plain.items():
        yield Case(f"body-{name}", [Raw(sized(v1 + body), [METADATA], after="finish")])
    compact = {
        "array-null": b"\0\0\0\0\0",
        "array-huge": b"\xff\xff\xff\xff\x07\0\0\0\0",
        "array-negative": b"\xff\xff\xff\xff\x0f\0\0\0\0",
        "string-null": b"\x02\0\0\0\0\0\0",
        "string-beyond": b"\x02\x20a\0\0\0\0\0",
        "bool-2": b"\x01\x02\0\0\0",
        "bool-255": b"\x01\xff\xff\xff\0",
        "tags-unknown": b"\x01\0\0\0\x01\x20\x02ab",
        "tags-inner": b"\x02\x02q\x01\x20\x02ab\0\0\0\0",
        "tags-cut": b"\x01\0\0\0\x01\x20\x09ab",
    }
    for name, body in compact.items():
        yield Case(
            f"body-compact-{name}",
            [Raw(sized(v9 + body), [(MetadataResponse, 9)], after="finish")],
        )
    for api in APIS:
        if api.key in (18, 3, 7, 16, 58):
            continue
        content = head(api.key, api.max_version, 5, "x") + b"\x7f"
        yield Case(f"body-one-byte-{api.name}", [Raw(sized(content), after="finish")])
    short = ProduceRequest(acks=1, topic_data=[]).encode(3)
    for length in range(len(short)):
        yield Case(
            f"body-produce-cut-{length}",
            [Raw(sized(head(0, 3, 5, "x") + short[:length]), [(ProduceResponse, 3)], "finish")],
        )


def pipelines() -> Iterator[Case]:
    first = frame(NOTHING, 1, correlation_id=11)
    second = frame(ApiVersionsRequest(), 0, correlation_id=12)
    third = frame(NOTHING, 9, correlation_id=13)
    answers: list[tuple[type[Response], int]] = [
        METADATA,
        (ApiVersionsResponse, 0),
        (MetadataResponse, 9),
    ]
    yield Case("pipeline-three", [Raw(first + second + third, answers)])
    yield Case("pipeline-hundred", [Raw(first * 100, [METADATA] * 100)])
    yield Case("pipeline-same-correlation", [Raw(first + first, [METADATA] * 2)])
    bad = sized(struct.pack(">hhih", 3, 99, 5, 0))
    yield Case("pipeline-good-bad-good", [Raw(first + bad + first, [METADATA], after="finish")])
    wait = ListOffsetsRequest(replica_id=-1)
    yield Case(
        "pipeline-behind-produce",
        [
            Raw(
                frame(produce("pipeline-behind-produce", batch(3)), 3, correlation_id=1)
                + frame(wait, 1, correlation_id=2)
                + frame(produce("pipeline-behind-produce", batch(3)), 11, correlation_id=3),
                [(ProduceResponse, 3), None, (ProduceResponse, 11)],
            )
        ],
        setup=[Topic("pipeline-behind-produce")],
    )
    yield Case(
        "pipeline-acks-0-then-acks-1",
        [
            Raw(
                frame(produce("pipeline-acks-0-then-acks-1", batch(2), acks=0), 7)
                + frame(produce("pipeline-acks-0-then-acks-1", batch(2), acks=1), 7),
                [(ProduceResponse, 7)],
            )
        ],
        setup=[Topic("pipeline-acks-0-then-acks-1")],
    )
    yield Case("ask-twice-after-error", [Ask(produce("no-such", batch()), 7), Ask(NOTHING, 1)])
