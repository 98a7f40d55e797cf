"""The requests that wait for partitions: Produce with acks -1, Fetch, DeleteRecords.

Reference: replication 7, 8, 15.
"""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    KafkaError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from kafkalike.messages.fetch import FetchResponse
from kafkalike.types import TopicPartition

from .fetch_session import FetchContext
from .hosted import HostedPartitions
from .partition import Partition
from .purgatory import DelayedOperation
from .reading import Reader
from .values import AppendResult, DeleteRecordsResult, FetchParams


class DelayedProduce(DelayedOperation):
    """Waits until every partition's high watermark covers what was appended.

    Partitions that fail are done with their error; at the time-out the others get REQUEST_TIMED_OUT.
    """

    __slots__ = ("_count_expired", "_hosted", "_open", "_results", "answer")

    def __init__(
        self,
        results: list[AppendResult],
        hosted: HostedPartitions,
        count_expired: Callable[[int], object],
    ) -> None:
        super().__init__()
        self.answer: Deferred[list[AppendResult]] = Deferred()
        self._results = results
        self._open = [result for result in results if result.error_code == 0]
        self._hosted = hosted
        self._count_expired = count_expired

    def try_complete(self) -> bool:
        self._open = [result for result in self._open if not self._is_done(result)]
        return not self._open and self.force_complete()

    def _is_done(self, result: AppendResult) -> bool:
        partition = self._hosted.get(result.topic_partition)
        if partition is None:
            _fail(result, self._hosted.absence(result.topic_partition))
            return True
        log = partition.log
        if log is None or not partition.is_leader:
            _fail(result, NotLeaderOrFollower(f"{partition} is no longer led here"))
            return True
        if log.high_watermark <= result.last_offset:
            return False
        if len(partition.maximal_isr) < partition.effective_min_isr:
            _fail(
                result,
                NotEnoughReplicasAfterAppend(
                    f"the in-sync replicas of {partition} shrank below min.insync.replicas"
                ),
            )
        return True

    def on_expire(self) -> None:
        for result in self._open:
            _fail(result, RequestTimedOut(f"{result.topic_partition} was not replicated in time"))
        self._count_expired(len(self._open))

    def on_complete(self) -> None:
        self.answer.callback(self._results)


def _fail(result: AppendResult, error: KafkaError) -> None:
    """Turn a success into an error; as in Kafka the offsets stay, though they promise nothing."""
    result.error_code = error.code


class DelayedFetch(DelayedOperation):
    """Waits until enough bytes are there or something must be told at once; then reads again."""

    __slots__ = ("_context", "_params", "_reader", "answer")

    def __init__(self, reader: Reader, params: FetchParams, context: FetchContext) -> None:
        super().__init__()
        self.answer: Deferred[FetchResponse] = Deferred()
        self._reader = reader
        self._params = params
        self._context = context

    def try_complete(self) -> bool:
        enough = self._reader.has_enough(self._params, self._context.partitions())
        return enough and self.force_complete()

    def on_complete(self) -> None:
        found = self._reader.read(self._params, self._context, record_progress=False)
        self._reader.count_sent(self._params, found.results)
        self.answer.callback(self._context.respond(found.results))


class DeleteTarget(NamedTuple):
    """Where the low watermark of a partition must get."""

    topic_partition: TopicPartition
    offset: int


class DelayedDelete(DelayedOperation):
    """Waits until all live replicas of the partitions have moved their log start."""

    __slots__ = ("_hosted", "_low_watermark", "_open", "_results", "answer")

    def __init__(
        self,
        results: dict[TopicPartition, DeleteRecordsResult],
        targets: list[DeleteTarget],
        hosted: HostedPartitions,
        low_watermark: Callable[[Partition], int],
    ) -> None:
        super().__init__()
        self.answer: Deferred[dict[TopicPartition, DeleteRecordsResult]] = Deferred()
        self._results = results
        self._open = targets
        self._hosted = hosted
        self._low_watermark = low_watermark

    def try_complete(self) -> bool:
        self._open = [target for target in self._open if not self._is_done(target)]
        return not self._open and self.force_complete()

    def _is_done(self, target: DeleteTarget) -> bool:
        key = target.topic_partition
        partition = self._hosted.get(key)
        if partition is None:
            self._results[key] = DeleteRecordsResult(error_code=self._hosted.absence(key).code)
            return True
        if partition.log is None or not partition.is_leader:
            self._results[key] = DeleteRecordsResult(error_code=NotLeaderOrFollower.code)
            return True
        low_watermark = self._low_watermark(partition)
        if low_watermark < target.offset:
            return False
        self._results[key] = DeleteRecordsResult(low_watermark)
        return True

    def on_expire(self) -> None:
        for target in self._open:
            key = target.topic_partition
            # with the low watermark as it was at the request
            self._results[key] = self._results[key]._replace(error_code=RequestTimedOut.code)

    def on_complete(self) -> None:
        self.answer.callback(self._results)
