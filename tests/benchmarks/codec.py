"""Microseconds per message for the codecs that carry the traffic.

Run by hand: `python tests/benchmarks/codec.py`.  Nothing is asserted; figures that matter are
ratios within one run.
"""

import sys
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from kafkalike.messages.control import LeaderAndIsrRequest
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.protocol.headers import RequestHeader, decode_request_header, encode_request_header
from kafkalike.protocol.struct import Message


def produce_request(partitions: int) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            topic(
                name="benchmark-topic",
                partition_data=[
                    topic.PartitionProduceData(index=index, records=bytes(100))
                    for index in range(partitions)
                ],
            )
        ],
    )


def produce_response(partitions: int) -> ProduceResponse:
    topic = ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            topic(
                name="benchmark-topic",
                partition_responses=[
                    topic.PartitionProduceResponse(index=index, base_offset=10**6)
                    for index in range(partitions)
                ],
            )
        ]
    )


def fetch_request(partitions: int) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            topic(
                topic="benchmark-topic",
                topic_id=b"i" * 16,
                partitions=[
                    topic.FetchPartition(partition=index, fetch_offset=10**6)
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetch_response(partitions: int, records: bytes = b"") -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    return FetchResponse(
        responses=[
            topic(
                topic="benchmark-topic",
                topic_id=b"i" * 16,
                partitions=[
                    topic.PartitionData(
                        partition_index=index,
                        high_watermark=10**6,
                        aborted_transactions=None,
                        records=records,
                    )
                    for index in range(partitions)
                ],
            )
        ]
    )


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=n, host="broker", port=9092)
            for n in range(3)
        ],
        cluster_id="cluster",
        topics=[
            topic(
                name=f"benchmark-topic-{number}",
                partitions=[
                    topic.MetadataResponsePartition(
                        partition_index=index,
                        leader_id=1,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


def leader_and_isr(topics: int, partitions: int) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=f"benchmark-topic-{number}",
                partition_states=[
                    LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                        partition_index=index, isr=[1, 2, 3], replicas=[1, 2, 3]
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ]
    )


CASES: list[tuple[str, Message, int]] = [
    ("Produce request, 1 partition", produce_request(1), 9),
    ("Produce request, 10 partitions", produce_request(10), 9),
    ("Produce response, 1 partition", produce_response(1), 9),
    ("Fetch request, 1 partition", fetch_request(1), 12),
    ("Fetch request, 1000 partitions", fetch_request(1000), 12),
    ("Fetch request, 1000 partitions", fetch_request(1000), 17),
    ("Fetch response, 1 partition of 1 MB", fetch_response(1, bytes(1_000_000)), 17),
    ("Fetch response, 1000 empty", fetch_response(1000), 12),
    ("Fetch response, 1000 empty", fetch_response(1000), 17),
    ("Metadata response, 100 x 10", metadata_response(100, 10), 9),
    ("LeaderAndIsr request, 100 x 10", leader_and_isr(100, 10), 4),
]


def best_us(statement: Callable[[], object]) -> float:
    timer = timeit.Timer(statement)
    number, _ = timer.autorange(lambda *_: None)
    number = max(number // 10, 1)
    return min(timer.repeat(7, number)) / number * 1e6


def main() -> None:
    print(f"{'message':40} version   decode us  encode us")
    for name, message, version in CASES:
        frame = memoryview(message.encode(version))
        cls = type(message)
        decode = best_us(partial(cls.decode, frame, version))
        encode = best_us(partial(message.encode_parts, version))
        print(f"{name:40} {version:7} {decode:11.2f} {encode:10.2f}")
    header = RequestHeader(0, 9, 12345, "benchmark-client")
    raw = memoryview(encode_request_header(header))
    decode = best_us(partial(decode_request_header, raw))
    encode = best_us(partial(encode_request_header, header))
    print(f"{'request header':40} {2:7} {decode:11.2f} {encode:10.2f}")


if __name__ == "__main__":
    main()
