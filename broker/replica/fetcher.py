"""The follower side of replication (reference: replication 13).

For each leader and fetcher index one loop: build a Fetch from what changed, send it, append what
comes, again.  A partition's log follows its leader's history: where both diverge it is truncated to
the fork, found by leader epochs (KIP-101, 279, 595).

An answer is used for a partition only if the partition is still being fetched, from the same leader,
in the epoch and at the offset that the request named: everything else belongs to a past role.
"""

import logging
import math
from collections.abc import Iterable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecord,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    error_class,
    error_name,
)
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalike.net.client import PeerError
from kafkalike.runtime.ports import Clock
from kafkalike.types import ZERO_UUID, TopicPartition

from ..log.log import Log, LogAppendInfo, OffsetsOutOfOrder, UnexpectedAppendOffset
from .fetcher_session import FetcherSession, FetchSettings
from .follower import NOT_DELAYED, FollowedPartition, truncation_target
from .hosted import HostedPartitions
from .partition import Partition
from .quota import ReplicationQuota

LIST_OFFSETS_VERSION: Final = 9
LATEST: Final = -1
EARLIEST: Final = -2
FIRST_PAUSE_S: Final = 0.02
MAX_REFUSALS: Final = 16

_FLUSH_POLL_S: Final = 0.01
"""How long a fetch waits at the leader while a partition that it leaves out is being flushed."""
_RESCAN_S: Final = 5.0
"""How often log starts that retention moved are looked for."""

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class FetchPeers(Protocol):
    """Connections to leaders for one fetcher index (`kafkalike.net.peers.Peers` is one)."""

    def send(
        self,
        broker_id: int,
        request: Any,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        borrow: bool = False,
    ) -> "Deferred[Any]":
        """Fails with a PeerError."""

    def disconnect(self, broker_id: int, reason: str) -> None:
        """Drop the connection to one broker, if there is one."""


class FetcherWorld(Protocol):
    """What the loops of a broker share."""

    clock: Clock
    hosted: HostedPartitions
    settings: FetchSettings
    backoff_s: float
    request_timeout_s: float
    throttle: ReplicationQuota
    """Limits what this broker fetches for throttled replicas (KIP-73)."""
    logger: logging.Logger

    def broker_epoch(self) -> int:
        """Epoch of the present registration."""

    def failed(self, topic_partition: TopicPartition) -> None:
        """Left alone until the controller's next order."""

    def flush(self, log: Log) -> "Deferred[None]":
        """Sync a log to its device."""


class Fetcher:
    """The loop that fetches from one leader, one request at a time.

    Requests with no answer, and partitions with an error that may pass, are tried again after
    replica.fetch.backoff.ms (a partition that the leader refuses sooner at first: it may be about to
    learn of it).  A partition with an error that cannot pass is *failed*: left alone
    until the controller's next LeaderAndIsr.
    """

    def __init__(self, leader: int, peers: FetchPeers, world: FetcherWorld) -> None:
        self.leader = leader
        self._peers = peers
        self._world = world
        self._logger = world.logger
        self._session = FetcherSession(world.settings)
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}
        """Those that the next request must look at."""
        self._without_id: set[TopicPartition] = set()
        self._next_rescan_s = 0.0
        self._refusals = 0
        self._idle: Deferred[None] | None = None
        self._stopped = False

    # -- what is followed ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def followed(self) -> Iterable[FollowedPartition]:
        """The partitions that this loop fetches."""
        return self._followed.values()

    def add(self, partition: Partition, fetch_offset: int) -> None:
        """Fetch a partition from `fetch_offset`; in an unchanged epoch it stays where it is."""
        key = partition.topic_partition
        known = self._followed.get(key)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                return
            self.remove(key)
        one = FollowedPartition(partition, fetch_offset)
        self._followed[key] = one
        self._changed[one] = None
        self._wake()

    def remove(self, topic_partition: TopicPartition) -> bool:
        """Fetch it no more; an answer under way is not used for it.  False when unknown."""
        one = self._followed.pop(topic_partition, None)
        if one is None:
            return False
        self._session.forget(one)
        self._changed.pop(one, None)
        self._without_id.discard(topic_partition)
        return True

    def forget_topic_id(self, topic_partition: TopicPartition) -> None:
        """Fetch this partition by name from now on."""
        one = self._followed.get(topic_partition)
        if one is not None:
            one.uses_topic_id = False
            self._changed[one] = None

    def stop(self) -> None:
        """End the loop; what is under way is not used."""
        self._stopped = True
        self._followed.clear()
        self._changed.clear()
        self._wake()

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until stopped."""
        while not self._stopped:
            built = self._build()
            if built is None:
                await self._wait_for_work()
                continue
            request, version = built
            try:
                response = await self._peers.send(
                    self.leader,
                    request,
                    version=version,
                    timeout_s=self._world.request_timeout_s,
                    borrow=True,
                )
            except PeerError as error:
                self._logger.info("fetch from broker %d failed: %s", self.leader, error)
                self._session.reset()
                self._delay_all()
                continue
            for one in self._process(response):
                await self._find_offset(one)

    def restart(self) -> None:
        """Forget the session after a loop ended by an unforeseen error; `run` may follow."""
        self._session.reset()
        self._delay_all()

    def _build(self) -> tuple[FetchRequest, int] | None:
        now_s = self._world.clock.monotonic()
        if now_s >= self._next_rescan_s:
            self._next_rescan_s = now_s + _RESCAN_S
            for one in self._followed.values():
                self._changed[one] = None
        changed = list(self._changed)
        self._changed.clear()
        for one in changed:
            if one.topic_id == ZERO_UUID:
                self._without_id.add(one.topic_partition)
            elif self._without_id:
                self._without_id.discard(one.topic_partition)
        throttle = self._world.throttle
        holding = throttle if throttle.is_exceeded() else None
        soonest_s = math.inf

        def is_ready(one: FollowedPartition) -> bool:
            nonlocal soonest_s
            if one.delayed_until_s > now_s:
                flushes = one.delayed_until_s == math.inf
                until_s = now_s + _FLUSH_POLL_S if flushes else one.delayed_until_s
                soonest_s = min(soonest_s, until_s)
            if one.delayed_until_s > now_s or (
                holding is not None and one.lag != 0 and holding.is_throttled(one.topic_partition)
            ):
                self._changed[one] = None
                return False
            one.delayed_until_s = NOT_DELAYED
            return one.partition.log is not None

        built = self._session.build(
            changed,
            self._followed.values(),
            is_ready,
            self._world.broker_epoch(),
            uses_topic_ids=not self._without_id,
        )
        if built is not None and soonest_s < math.inf:
            # Those that are left out must not wait until the others have something to fetch.
            wait_ms = math.ceil((soonest_s - now_s) * 1000)
            built[0].max_wait_ms = min(built[0].max_wait_ms, wait_ms)
        return built

    async def _wait_for_work(self) -> None:
        """Until a partition is added or the earliest delayed one is due; never long."""
        clock = self._world.clock
        now_s = clock.monotonic()
        pause_s = self._world.backoff_s
        for one in self._changed:
            if one.delayed_until_s > now_s:
                pause_s = min(pause_s, one.delayed_until_s - now_s)
        timer = clock.call_later(pause_s, self._wake)
        idle: Deferred[None] = Deferred()
        self._idle = idle
        await idle
        timer.cancel()

    def _wake(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.callback(None)

    def _delay_all(self) -> None:
        for one in list(self._followed.values()):
            self._delay(one)

    def _delay(self, one: FollowedPartition, pause_s: float = math.inf) -> None:
        """Leave a partition alone for a while, at most the backoff."""
        until_s = self._world.clock.monotonic() + min(pause_s, self._world.backoff_s)
        one.delayed_until_s = max(one.delayed_until_s, until_s)  # a flush may take longer
        self._changed[one] = None

    def _fail(self, one: FollowedPartition, reason: object, level: int = logging.ERROR) -> None:
        self._logger.log(
            level,
            "replication of %s from broker %d stops until the next order of the controller: %s",
            one.partition,
            self.leader,
            reason,
        )
        if self.remove(one.topic_partition):
            self._world.failed(one.topic_partition)

    # -- answers -------------------------------------------------------------------------------

    def _process(self, response: FetchResponse) -> list[FollowedPartition]:
        """Use an answer; returns the partitions whose offset is out of range."""
        rows: list[tuple[TopicPartition, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic or self._session.topic_name(topic.topic_id)
            if name is not None:
                rows.extend(
                    (TopicPartition(name, data.partition_index), data) for data in topic.partitions
                )
        out_of_range: list[FollowedPartition] = []
        if not self._session.accept(response, {key for key, _ in rows}):
            self._refused(response)
            return out_of_range
        self._refusals = 0
        received = 0
        for key, data in rows:
            one = self._followed.get(key)
            if one is None or not self._is_current(one):
                continue
            if data.records:
                received += self._throttled_size(key, len(data.records))
            self._use(one, data, out_of_range)
        if received:
            self._world.throttle.record(received)
        return out_of_range

    def _refused(self, response: FetchResponse) -> None:
        """The session is of no use: the first time ask anew at once, then with a pause."""
        self._refusals += 1
        self._logger.info(
            "fetch session with broker %d to be opened anew: %s",
            self.leader,
            error_name(response.error_code),
        )
        if self._refusals > 1:
            self._delay_all()

    def _is_current(self, one: FollowedPartition) -> bool:
        """Whether an answer to the last request still fits the partition."""
        told, partition = one.told, one.partition
        return (
            told is not None
            and told.fetch_offset == one.fetch_offset
            and told.leader_epoch == one.leader_epoch
            and one.delayed_until_s == NOT_DELAYED
            and self._is_followed(one)
            and partition.leader_epoch == one.leader_epoch
        )

    def _is_followed(self, one: FollowedPartition) -> bool:
        """Whether the partition still follows this leader in the epoch that `one` stands for."""
        partition = one.partition
        key = partition.topic_partition
        return (
            not self._stopped
            and self._followed.get(key) is one
            and self._world.hosted.get(key) is partition
            and partition.leader == self.leader
            and partition.leader_epoch == one.leader_epoch
            and partition.log is not None
        )

    def _throttled_size(self, key: TopicPartition, size: int) -> int:
        throttle = self._world.throttle
        return size if throttle.limit is not None and throttle.is_throttled(key) else 0

    def _use(
        self, one: FollowedPartition, data: PartitionData, out_of_range: list[FollowedPartition]
    ) -> None:
        code = data.error_code
        if code == NONE:
            one.refusals = 0
            try:
                if data.diverging_epoch.epoch >= 0:
                    # Its high watermark and log start belong to a history this log does not share
                    # yet (KAFKA-14704).
                    self._truncate(one, data)
                else:
                    self._append(one, data)
            except (CorruptMessage, InvalidRecord) as error:
                self._logger.error("bad records of %s from its leader: %s", one.partition, error)
                self._delay(one)
            except (KafkaError, UnexpectedAppendOffset, OffsetsOutOfOrder) as error:
                self._fail(one, error)
        elif code == OffsetOutOfRange.code:
            out_of_range.append(one)
        elif code == FencedLeaderEpoch.code:
            # the order that names the newer epoch is on its way
            self._fail(one, "the leader is in a newer epoch", logging.INFO)
        else:
            self._logger.info(
                "%s cannot be fetched from broker %d now: %s",
                one.partition,
                self.leader,
                error_name(code),
            )
            self._delay(one, FIRST_PAUSE_S * 2**one.refusals)
            one.refusals = min(one.refusals + 1, MAX_REFUSALS)

    def _append(self, one: FollowedPartition, data: PartitionData) -> None:
        log = one.log()
        if one.fetch_offset != log.log_end_offset:
            self._fail(one, f"fetched at {one.fetch_offset}, log ends at {log.log_end_offset}")
            return
        records = data.records or b""
        assert not isinstance(records, list)
        info = self._append_records(one, bytes_of(records), data)
        if info.last_offset >= 0:
            one.fetch_offset = info.last_offset + 1
            # Fair shares in full requests: who got records goes to the end.
            self._followed[one.topic_partition] = self._followed.pop(one.topic_partition)
        one.lag = max(0, data.high_watermark - one.fetch_offset)
        if one.told is None or (
            one.fetch_offset != one.told.fetch_offset
            or log.log_start_offset != one.told.log_start_offset
        ):
            self._changed[one] = None
        if info.needs_flush:
            self._flush(one, log)

    def _flush(self, one: FollowedPartition, log: Log) -> None:
        """flush.messages is reached: the leader hears of these records when they are on the device."""
        flushing = self._world.flush(log)
        if flushing.called:
            flushing.addErrback(lambda _: None)  # the directory has gone offline over it
            return
        one.delayed_until_s = math.inf
        self._changed[one] = None
        flushing.addBoth(self._flushed, one)

    def _flushed(self, _: object, one: FollowedPartition) -> None:
        if self._followed.get(one.topic_partition) is one:
            one.delayed_until_s = NOT_DELAYED
            self._wake()

    def _append_records(
        self, one: FollowedPartition, records: bytes | memoryview, data: PartitionData
    ) -> LogAppendInfo:
        """Append what came with one answer.

        An empty log whose start lies inside the first batch takes the batch whole: the leader's log
        start fell into it.
        """
        partition = one.partition
        high_watermark, start = data.high_watermark, data.log_start_offset
        try:
            return partition.append_as_follower(records, high_watermark, start)
        except UnexpectedAppendOffset as error:
            log = one.log()
            if not (
                log.log_end_offset == log.log_start_offset
                and error.first_offset < log.log_end_offset <= error.last_offset
            ):
                raise
            partition.truncate_fully_and_start_at(error.first_offset)
            return partition.append_as_follower(records, high_watermark, start)

    def _truncate(self, one: FollowedPartition, data: PartitionData) -> None:
        """Cut what the leader does not have and fetch on from there."""
        log = one.log()
        fork = data.diverging_epoch
        before = (one.fetch_offset, log.latest_epoch)
        target = truncation_target(log, one.fetch_offset, fork.epoch, fork.end_offset)
        self._logger.info(
            "%s diverges from broker %d: its epoch %d ends at %d; cutting at %d",
            one.partition,
            self.leader,
            fork.epoch,
            fork.end_offset,
            target.offset,
        )
        one.partition.truncate_to(target.offset)
        one.fetch_offset = min(target.offset, log.log_end_offset)
        self._changed[one] = None
        if before == (one.fetch_offset, log.latest_epoch):
            self._delay(one)  # nothing to cut, and yet the leader objects: do not spin

    # -- offsets out of range ------------------------------------------------------------------

    async def _find_offset(self, one: FollowedPartition) -> None:
        """The leader does not have the offset: find one that it has (reference: replication 13.2)."""
        if not self._is_followed(one):
            return
        try:
            leader_end = await self._ask_offset(one, LATEST)
            if not self._is_followed(one):
                return
            log = one.log()
            if leader_end < log.log_end_offset:
                one.partition.truncate_to(leader_end)
                self._move(one, log.log_end_offset)
                return
            leader_start = await self._ask_offset(one, EARLIEST)
            if not self._is_followed(one):
                return
            log = one.log()
            if leader_start > log.log_end_offset:
                one.partition.truncate_fully_and_start_at(leader_start)
            else:
                self._cut_unknown_epochs(one, log)
            self._move(one, log.log_end_offset)
        except PeerError as error:
            self._logger.info("cannot ask broker %d for offsets: %s", self.leader, error)
            if self._is_followed(one):
                self._delay(one)
        except KafkaError as error:
            if not self._is_followed(one):
                return
            if error.code in (FencedLeaderEpoch.code, KafkaStorageError.code):
                self._fail(one, error)
            else:
                self._delay(one)

    def _cut_unknown_epochs(self, one: FollowedPartition, log: Log) -> None:
        """The leader has the offset: it refuses the epoch of the record before it.

        No leader ever had an epoch above the present one.  It comes from a batch whose epoch was
        damaged, which no checksum covers, and would be refused for ever (Kafka's followers are).
        """
        start = next((at for epoch, at in log.leader_epochs if epoch > one.leader_epoch), None)
        if start is not None:
            self._logger.warning(
                "%s holds an epoch from offset %d on that its leader does not know; cutting it there",
                one.partition,
                start,
            )
            one.partition.truncate_to(start)

    def _move(self, one: FollowedPartition, offset: int) -> None:
        self._logger.info(
            "offset %d of %s is out of range at broker %d, going on at %d",
            one.fetch_offset,
            one.partition,
            self.leader,
            offset,
        )
        if offset == one.fetch_offset:
            self._delay(one)
        one.fetch_offset = offset
        self._changed[one] = None

    async def _ask_offset(self, one: FollowedPartition, timestamp: int) -> int:
        """The leader's log end (LATEST) or start (EARLIEST).  Raises KafkaError, PeerError."""
        name, number = one.topic_partition
        partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=number,
            current_leader_epoch=one.leader_epoch,
            timestamp=timestamp,
        )
        response: ListOffsetsResponse = await self._peers.send(
            self.leader,
            ListOffsetsRequest(
                replica_id=self._world.settings.broker_id,
                topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])],
            ),
            version=LIST_OFFSETS_VERSION,
            timeout_s=self._world.request_timeout_s,
        )
        for topic in response.topics:
            for answer in topic.partitions:
                if (topic.name, answer.partition_index) == (name, number):
                    if answer.error_code != NONE:
                        raise error_class(answer.error_code)()
                    return answer.offset
        raise PeerError(f"broker {self.leader} left {one.partition} out of its answer")


def bytes_of(records: object) -> bytes | memoryview:
    """Record bytes of an answer: a decoded message holds nothing else."""
    assert isinstance(records, bytes | memoryview | bytearray)
    return memoryview(records) if isinstance(records, bytearray) else records
