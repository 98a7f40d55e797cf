"""Produce: everything but the insides of batches."""

from collections.abc import Iterator
from typing import Any

from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.records.batch import encode_batch
from kafkalike.records.compression import Codec
from kafkalike.records.legacy import encode_legacy
from kafkalike.records.record import Record

from ..batches import T0, batch, bend, records, sequenced
from ..case import Ask, Case, Topic, versions_of
from ..run import produce

_Data = ProduceRequest.TopicProduceData
_Fetch = FetchRequest.FetchTopic
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
LAST = 11


def read(topic: str, offset: int = 0, partition: int = 0, version: int = 11) -> Ask:
    """What is stored."""
    return Ask(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=50_000_000,
            topics=[
                _Fetch(
                    topic=topic,
                    partitions=[
                        _Fetch.FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=50_000_000
                        )
                    ],
                )
            ],
        ),
        version,
    )


def request(acks: int, *topics: tuple[str, list[tuple[int, bytes | None]]]) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            _Data(
                name=name,
                partition_data=[
                    _Data.PartitionProduceData(index=index, records=data) for index, data in parts
                ],
            )
            for name, parts in topics
        ],
    )


def old(magic: int, count: int = 2, codec: int = 0, key: bool = True) -> bytes:
    return bytes(encode_legacy(records(count, key=key), magic=magic, codec=Codec(codec)))


def good_for(version: int) -> bytes:
    return batch(2) if version >= 3 else old(1 if version == 2 else 0)


def cases() -> Iterator[Case]:
    for version in versions_of(ProduceRequest):
        yield from nominal(version)
        yield from refused(version)
        yield from formats(version)
    yield from transactional_ids()
    yield from topics_with_rules()
    yield from recompressed()
    yield from sizes()


def nominal(version: int) -> Iterator[Case]:
    for acks in (-1, 0, 1):
        name = f"produce-acks-{acks}-v{version}"
        steps = [
            Ask(produce(name, good_for(version), acks=acks), version, answered=acks != 0),
            Ask(produce(name, good_for(version), acks=1), version),
            read(name),
        ]
        yield Case(name, steps, setup=[Topic(name)])
    name = f"produce-many-partitions-v{version}"
    data = good_for(version)
    wanted = request(-1, (name, [(1, data), (0, data), (2, data)]), (f"{name}-b", [(0, data)]))
    yield Case(
        name,
        [Ask(wanted, version), Ask(wanted, version)],
        setup=[Topic(name, 3), Topic(f"{name}-b")],
        unordered=("responses", "partition_responses"),
    )


def refused(version: int) -> Iterator[Case]:
    data = good_for(version)
    stock = Topic("refuses", 2)

    def case(name: str, message: ProduceRequest, **more: Any) -> Case:
        return Case(
            f"produce-{name}-v{version}",
            [
                Ask(message, version, answered=message.acks != 0),
                Ask(ProduceRequest(acks=1), version),
            ],
            uses=[stock],
            unordered=("responses", "partition_responses"),
            **more,
        )

    yield case("nothing", ProduceRequest(acks=1))
    yield case("nothing-acks-0", ProduceRequest(acks=0))
    yield case("nothing-acks-2", ProduceRequest(acks=2))
    yield case("topic-without-partitions", request(1, ("refuses", [])))
    for acks in (2, -2, 32767):
        yield case(f"acks-{acks}", request(acks, ("refuses", [(0, data), (1, data)])))
    for acks in (1, 0, -1):
        yield case(f"unknown-topic-acks-{acks}", request(acks, ("no-such", [(0, data)])))
        yield case(f"unknown-partition-acks-{acks}", request(acks, ("refuses", [(7, data)])))
    yield case("acks-2-unknown-topic", request(2, ("no-such", [(0, data)])))
    yield case("negative-partition", request(1, ("refuses", [(-1, data)])))
    yield case("bad-topic-name", request(1, ("a b", [(0, data)]), ("", [(0, data)])))
    yield case("mixed", request(1, ("no-such", [(0, data)]), ("refuses", [(9, data), (0, b"")])))
    yield case(
        "null-records",
        request(1, ("refuses", [(0, None)])),
        differs="Produce with null records",
    )
    for acks in (1, 0):
        yield case(f"empty-records-acks-{acks}", request(acks, ("refuses", [(0, b"")])))
        yield case(f"cut-records-acks-{acks}", request(acks, ("refuses", [(0, data[:-1])])))
    for cut in (1, 11, 16, 17, 20, 60, 61):
        yield case(f"cut-at-{cut}", request(1, ("refuses", [(0, data[:cut])])))
    yield case("garbage", request(1, ("refuses", [(0, b"\x7f" * 100)])))
    yield case("zeros", request(1, ("refuses", [(0, bytes(100))])))
    for name, timeout_ms in (("zero", 0), ("negative", -1)):
        topic = f"produce-timeout-{name}-v{version}"
        yield Case(
            topic,
            [
                Ask(produce(topic, data, acks=acks, timeout_ms=timeout_ms), version)
                for acks in (-1, 1)
            ],
            setup=[Topic(topic)],
        )


def formats(version: int) -> Iterator[Case]:
    """Each format and codec in each version, and several batches at once."""
    for codec, word in CODECS.items():
        name = f"produce-{word}-v{version}"
        data = batch(5, codec, size=50)
        yield Case(name, [Ask(produce(name, data), version), read(name)], setup=[Topic(name)])
        if codec == 4:
            continue
        for magic in (0, 1):
            name = f"produce-magic-{magic}-{word}-v{version}"
            data = old(magic, 3, codec)
            steps = [Ask(produce(name, data), version), read(name)]
            yield Case(name, steps, setup=[Topic(name)], content=True)
    pairs = {
        "two-batches": batch(2) + batch(1),
        "two-old": old(1, 2) + old(1, 1),
        "two-old-compressed": old(1, 2, 1) + old(1, 2, 1),
        "old-and-new": old(1, 1) + batch(1),
        "new-and-old": batch(1) + old(1, 1),
        "magic-0-and-1": old(0, 1) + old(1, 1),
        "good-and-garbage": batch(2) + b"\xfe\xed",
        "good-and-long-garbage": batch(2) + b"\xfe" * 70,
        "good-and-cut": batch(2) + batch(2)[:40],
        "good-and-zeros": batch(2) + bytes(70),
    }
    for word, data in pairs.items():
        name = f"produce-{word}-v{version}"
        yield Case(
            name,
            [Ask(produce(name, data), version), read(name)],
            setup=[Topic(name)],
            content=True,
        )
    name = f"produce-partition-twice-v{version}"
    data = good_for(version)
    yield Case(
        name,
        [Ask(request(1, (name, [(0, data), (0, data)])), version), read(name)],
        setup=[Topic(name)],
    )
    name = f"produce-topic-twice-v{version}"
    wanted = request(1, (name, [(0, data)]), (name, [(1, data)]))
    yield Case(
        name,
        [Ask(wanted, version), read(name)],
        setup=[Topic(name, 2)],
        unordered=("partition_responses",),
    )


def transactional_ids() -> Iterator[Case]:
    for version in (3, 8, 10, 11):
        for word, identity in (("null", None), ("empty", ""), ("set", "t")):
            name = f"produce-plain-with-transactional-id-{word}-v{version}"
            message = produce(name, batch(1), transactional_id=identity)
            yield Case(name, [Ask(message, version), read(name)], setup=[Topic(name)])
        name = f"produce-transactional-without-id-v{version}"
        data = sequenced(4000, 0, 0, transactional=True)
        yield Case(name, [Ask(produce(name, data), version), read(name)], setup=[Topic(name)])
    for client in ("__admin_client", "x", ""):
        message = request(1, ("__consumer_offsets", [(0, batch(1))]))
        yield Case(f"produce-offsets-topic-unknown-{client}", [Ask(message, 9, client)])


def topics_with_rules() -> Iterator[Case]:
    compact = {"cleanup.policy": "compact"}
    both = {"cleanup.policy": "compact,delete"}
    append_time = {"message.timestamp.type": "LogAppendTime"}
    narrow = {
        "message.timestamp.before.max.ms": "3600000",
        "message.timestamp.after.max.ms": "3600000",
    }
    no_key = batch(3, key=False)
    mixed = bytes(
        encode_batch([Record(b"k", b"v", T0), Record(None, b"v", T0), Record(b"", None, T0)])
    )
    no_time = bytes(encode_batch([Record(b"k", b"v", -1), Record(b"k", b"w", -1)]))
    marked = bend(batch(2), attributes=8)
    late = bend(batch(2), max_timestamp=T0 + 999)
    old_marked = bytes(encode_legacy(records(2), magic=1, codec=Codec.GZIP, append_time_ms=T0))
    tries = {
        "compact": (compact, {"no-key": no_key, "mixed": mixed, "good": batch(2)}),
        "compact-delete": (both, {"no-key": no_key, "mixed": mixed}),
        "append-time": (
            append_time,
            {
                "good": batch(3),
                "gzip": batch(3, 1),
                "marked": marked,
                "no-time": no_time,
                "no-key": no_key,
                "many": batch(20),
            },
        ),
        "create-time": ({}, {"marked": marked, "no-time": no_time, "late": late}),
        "narrow-times": (narrow, {"old": batch(2), "no-time": no_time, "marked": marked}),
        "compact-narrow": ({**narrow, **compact}, {"both-wrong": no_key}),
        "min-isr": ({"min.insync.replicas": "2"}, {"good": batch(1)}),
        "zstd": ({"compression.type": "zstd"}, {"none": batch(3), "zstd": batch(3, 4)}),
    }
    for word, (config, batches) in tries.items():
        for kind, data in batches.items():
            for version in (3, 7, 8, 11):
                name = f"produce-on-{word}-{kind}-v{version}"
                yield Case(
                    name,
                    [
                        Ask(produce(name, data), version),
                        Ask(produce(name, data, acks=1), version),
                        read(name),
                    ],
                    setup=[Topic(name, config=config)],
                    content="zstd" in name,
                )
    for version in (0, 2):
        for word, config in (
            ("compact", compact),
            ("append-time", append_time),
            ("narrow", narrow),
        ):
            for kind, data in {
                "no-key": old(1, 2, key=False),
                "no-key-gzip": old(1, 2, 1, key=False),
                "good": old(1, 2),
                "gzip": old(1, 2, 1),
                "marked": old_marked,
            }.items():
                name = f"produce-old-on-{word}-{kind}-v{version}"
                yield Case(
                    name,
                    [Ask(produce(name, data), version), read(name)],
                    setup=[Topic(name, config=config)],
                    content=True,
                )


def recompressed() -> Iterator[Case]:
    for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        for codec, word in CODECS.items():
            name = f"produce-{word}-to-{target}"
            yield Case(
                name,
                [Ask(produce(name, batch(6, codec, size=40)), LAST), read(name)],
                setup=[Topic(name, config={"compression.type": target})],
                content=True,
            )
        name = f"produce-sequenced-to-{target}"
        yield Case(
            name,
            [
                Ask(produce(name, sequenced(5000, 1, 7, 3)), LAST),
                Ask(produce(name, sequenced(5000, 1, 7, 3)), LAST),
                read(name),
            ],
            setup=[Topic(name, config={"compression.type": target})],
            content=True,
        )
        append = {"compression.type": target, "message.timestamp.type": "LogAppendTime"}
        name = f"produce-append-time-to-{target}"
        yield Case(
            name,
            [Ask(produce(name, batch(3, 1)), LAST), read(name)],
            setup=[Topic(name, config=append)],
            content=True,
        )


def sizes() -> Iterator[Case]:
    data = batch(1, size=100)
    for slack in (0, -1, 1):
        for version in (2, 8, 11):
            name = f"produce-max-message-bytes-{slack}-v{version}"
            config = {"max.message.bytes": str(len(data) + slack)}
            yield Case(
                name, [Ask(produce(name, data), version)], setup=[Topic(name, config=config)]
            )
    name = "produce-too-large-and-corrupt"
    yield Case(
        name,
        [Ask(produce(name, bend(data, crc=1)), LAST)],
        setup=[Topic(name, config={"max.message.bytes": "100"})],
    )
    name = "produce-too-large-after-recompression"
    config = {"max.message.bytes": "1000", "compression.type": "uncompressed"}
    yield Case(
        name,
        [Ask(produce(name, batch(1, 1, size=5000)), LAST)],
        setup=[Topic(name, config=config)],
    )
    name = "produce-old-too-large-after-conversion"
    yield Case(
        name,
        [Ask(produce(name, old(0, 3)), 0)],
        setup=[Topic(name, config={"max.message.bytes": "60"})],
    )
    name = "produce-larger-than-segment"
    config = {"segment.bytes": "1000", "max.message.bytes": "100000"}
    steps = [Ask(produce(name, batch(1, size=2000)), version) for version in (7, 8)]
    yield Case(name, steps, setup=[Topic(name, config=config)])
    name = "produce-default-limit"
    steps = [Ask(produce(name, batch(1, size=size)), LAST) for size in (1048500, 1048588, 1048700)]
    yield Case(name, steps, setup=[Topic(name)])
    name = "produce-rolls-segments"
    steps = [Ask(produce(name, batch(1, size=400)), LAST) for _ in range(6)]
    yield Case(name, [*steps, read(name)], setup=[Topic(name, config={"segment.bytes": "1000"})])
