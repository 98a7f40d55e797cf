"""Requests of the exchange tests, one connection a broker, answers as plain values."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.messages.api_versions import ApiVersionsRequest
from kafkalike.messages.configs import DescribeConfigsRequest
from kafkalike.messages.fetch import FetchRequest
from kafkalike.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.topics import CreateTopicsRequest, DeleteRecordsRequest
from kafkalike.messages.transactions import InitProducerIdRequest, WriteTxnMarkersRequest
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.struct import Request
from kafkalike.records.batch import RecordBatch
from kafkalike.records.record import Record
from kafkalike.records.scan import iterate_batches
from kafkalike.types import TopicPartition
from tests.differential.case import frame, response_of
from tests.differential.wire import Connection

NOT_YET: Final = {3, 5, 6, 9, 14, 15, 16, 38, 41}
"""Errors of a broker that has just started: no leader, controller, coordinator; still loading."""

LIMIT_S: Final = 60.0
LIMIT_MS: Final = 30_000
EARLIEST: Final = -2
LATEST: Final = -1
CLEANED_OR_TOPIC: Final = 2
"""Resource type of topics."""


class Refused(Exception):
    """An answer with an error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"error {code}: {what}")
        self.code = code


@dataclass(slots=True, frozen=True)
class Read:
    """One partition of a Fetch answer."""

    batches: list[RecordBatch]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]

    def values(self) -> list[bytes | None]:
        return [r.value for batch in self.batches if not batch.is_control for r in batch.records()]


class Asker:
    """Asks the broker on `port`."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._correlation_id = 0

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Request, version: int) -> Any:
        self._correlation_id += 1
        self._connection.send(frame(request, version, "exchange", self._correlation_id))
        received = self._connection.receive()
        found, position = decode_response_header(received, request.api_key, version)
        assert found == self._correlation_id
        return response_of(type(request)).decode(received, version, position)

    def _patiently(self, request: Request, version: int, pick: Any) -> Any:
        """The picked part of the answer, asked for again while the broker is not ready."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            part = pick(self.ask(request, version))
            code = part.error_code
            if code in NOT_YET and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if code:
                raise Refused(code, f"{type(request).__name__} {request!r:.300}")
            return part

    def served(self) -> set[int]:
        """Keys of the APIs this broker has."""
        return {api.api_key for api in self.ask(ApiVersionsRequest(), 0).api_keys}

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        topic = CreateTopicsRequest.CreatableTopic
        entries = [topic.CreatableTopicConfig(name=k, value=v) for k, v in config.items()]
        wanted = topic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=LIMIT_MS)
        self._patiently(request, 5, lambda answer: answer.topics[0])

    def topic(self, name: str) -> Any:
        """Its part of a Metadata answer, when every partition has a leader."""
        asked = [MetadataRequest.MetadataRequestTopic(name=name)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        found = None

        def pick(answer: Any) -> Any:
            nonlocal found
            (found,) = answer.topics
            waiting = [p for p in found.partitions if p.error_code]
            return waiting[0] if waiting else found

        self._patiently(request, 12, pick)
        return found

    def config(self, topic: str) -> dict[str, str]:
        """What is set on the topic itself."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=CLEANED_OR_TOPIC, resource_name=topic
        )
        request = DescribeConfigsRequest(resources=[resource])
        part = self._patiently(request, 4, lambda answer: answer.results[0])
        own_source = 1
        return {c.name: c.value for c in part.configs if c.config_source == own_source}

    def produce(
        self, place: TopicPartition, batch: bytes, transactional_id: str | None = None
    ) -> int:
        """The base offset.  Raises Refused."""
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=LIMIT_MS,
            topic_data=[data(name=place.topic, partition_data=[part])],
        )
        answer = self._patiently(request, 9, lambda a: a.responses[0].partition_responses[0])
        return int(answer.base_offset)

    def fetch(self, place: TopicPartition, offset: int, *, committed: bool = False) -> Read:
        """One answer.  Raises Refused."""
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(
            partition=place.partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[topic(topic=place.topic, partitions=[part])],
        )
        found = self._patiently(request, 11, lambda answer: answer.responses[0].partitions[0])
        batches = list(iterate_batches(found.records or b""))
        for batch in batches:
            assert isinstance(batch, RecordBatch) and batch.crc_is_valid()
        return Read(
            [batch for batch in batches if isinstance(batch, RecordBatch)],
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            [(a.producer_id, a.first_offset) for a in found.aborted_transactions or ()],
        )

    def batches(self, place: TopicPartition) -> list[RecordBatch]:
        """All of the partition."""
        offset, found = self.offset(place, EARLIEST), list[RecordBatch]()
        end = self.offset(place, LATEST)
        while offset < end:
            read = self.fetch(place, offset)
            if not read.batches:
                break
            fresh = [batch for batch in read.batches if batch.last_offset >= offset]
            found += fresh
            offset = fresh[-1].next_offset
        return found

    def records(self, place: TopicPartition) -> list[Record]:
        """All records of the partition that are no markers."""
        return [r for batch in self.batches(place) if not batch.is_control for r in batch.records()]

    def offset(self, place: TopicPartition, timestamp: int) -> int:
        topic = ListOffsetsRequest.ListOffsetsTopic
        part = topic.ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[topic(name=place.topic, partitions=[part])]
        )
        return int(self._patiently(request, 5, lambda a: a.topics[0].partitions[0]).offset)

    def epoch_end(self, place: TopicPartition, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to the one asked for."""
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = topic.OffsetForLeaderPartition(partition=place.partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[topic(topic=place.topic, partitions=[part])])
        found = self._patiently(request, 3, lambda answer: answer.topics[0].partitions[0])
        return found.leader_epoch, found.end_offset

    def delete_records(self, place: TopicPartition, offset: int) -> int:
        """The new log start offset."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[topic(name=place.topic, partitions=[part])], timeout_ms=LIMIT_MS
        )
        return int(self._patiently(request, 2, lambda a: a.topics[0].partitions[0]).low_watermark)

    def producer_id(self) -> int:
        """A new one of an idempotent producer."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        return int(self._patiently(request, 4, lambda answer: answer).producer_id)

    def end_transaction(self, place: TopicPartition, producer_id: int, *, commit: bool) -> None:
        """A marker from a coordinator."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])
        wanted = marker(
            producer_id=producer_id, producer_epoch=0, transaction_result=commit, topics=[topic]
        )
        request = WriteTxnMarkersRequest(markers=[wanted])
        self._patiently(request, 1, lambda a: a.markers[0].topics[0].partitions[0])

    def commit(self, group: str, place: TopicPartition, offset: int, metadata: str) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
        )
        wanted = [topic(name=place.topic, partitions=[part])]
        request = OffsetCommitRequest(group_id=group, topics=wanted)
        self._coordinator(group)
        self._patiently(request, 8, lambda answer: answer.topics[0].partitions[0])

    def committed(self, group: str, place: TopicPartition) -> tuple[int, str]:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        wanted = [topic(name=place.topic, partition_indexes=[place.partition])]
        request = OffsetFetchRequest(group_id=group, topics=wanted)
        self._patiently(request, 7, lambda answer: answer)
        part = self._patiently(request, 7, lambda answer: answer.topics[0].partitions[0])
        return part.committed_offset, part.metadata

    def _coordinator(self, group: str) -> None:
        """Return when the broker knows the group's coordinator, which makes the offsets topic."""
        from kafkalike.messages.groups import FindCoordinatorRequest

        self._patiently(FindCoordinatorRequest(key=group), 2, lambda answer: answer)


def latest(records: Iterable[Record]) -> dict[bytes, bytes | None]:
    """The last value of each key."""
    return {record.key: record.value for record in records if record.key is not None}
