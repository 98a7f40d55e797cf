"""Orders of the controller: LeaderAndIsr and StopReplica (reference: replication 2, 3).

Each order is carried out wholly before the next; every partition of it is answered.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from kafkalike.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalike.types import NO_BROKER_EPOCH, NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition

from ..cluster.metadata_cache import MetadataCache
from ..log.log import Log
from ..log.manager import LogManager
from .hosted import HostedPartitions
from .partition import Changed, Partition, PartitionState, PartitionWorld

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch of a StopReplica for a topic that is being deleted: stops whatever epoch is here."""


class Fetchers(Protocol):
    """The follower side, as far as roles are concerned."""

    def add(self, partitions: Iterable[Partition]) -> None:
        """Begin to follow the leaders of these partitions."""

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow no more; harmless for partitions that are not followed."""

    def stop_idle(self) -> None:
        """End fetch loops without partitions."""

    def forget_topic_id(self, topic_partition: TopicPartition) -> None:
        """The controller no longer knows an id for this partition: fetch by name."""


class RoleChanges(NamedTuple):
    """What an order changed, for the coordinators."""

    leaders: list[Partition]
    followers: list[Partition]
    stopped: list["Stopped"]


class Stopped(NamedTuple):
    """A partition that StopReplica ended here; `leader_epoch` as the request said."""

    topic_partition: TopicPartition
    leader_epoch: int
    deleted: bool


class _Wanted(NamedTuple):
    """One partition of a LeaderAndIsr, whatever version it came in."""

    topic_partition: TopicPartition
    topic_id: bytes | None
    state: PartitionState


class Roles:
    """Carries out the controller's orders on the hosted partitions."""

    def __init__(
        self,
        broker_id: int,
        *,
        world: PartitionWorld,
        hosted: HostedPartitions,
        logs: LogManager,
        metadata: MetadataCache,
        fetchers: Fetchers,
        broker_epoch: Callable[[], int],
        logger: logging.Logger,
    ) -> None:
        self._broker_id = broker_id
        self._world = world
        self._hosted = hosted
        self._logs = logs
        self._metadata = metadata
        self._fetchers = fetchers
        self._broker_epoch = broker_epoch
        self._logger = logger
        self.controller_epoch = 0
        """The highest one seen in any order."""
        self.shutting_down = False

    # -- epochs --------------------------------------------------------------------------------

    def check_epochs(self, controller_epoch: int, broker_epoch: int) -> int:
        """Error code for an order of a past life of this broker or of a past controller, or NONE.

        A broker epoch above the own one is accepted: the answer to the registration may still be
        on its way (KIP-380).  Remembers the highest controller epoch.
        """
        if broker_epoch != NO_BROKER_EPOCH and broker_epoch < self._broker_epoch():
            return StaleBrokerEpoch.code
        if controller_epoch < self.controller_epoch:
            return StaleControllerEpoch.code
        self.controller_epoch = controller_epoch
        return NONE

    # -- LeaderAndIsr --------------------------------------------------------------------------

    def become(
        self, request: LeaderAndIsrRequest, version: int
    ) -> tuple[LeaderAndIsrResponse, RoleChanges]:
        """All leaders, then all followers."""
        wanted = list(_wanted(request))
        changes = RoleChanges([], [], [])
        code = self.check_epochs(request.controller_epoch, request.broker_epoch)
        if code != NONE:
            self._logger.warning(
                "LeaderAndIsr of controller %d epoch %d refused with %d (own controller epoch %d)",
                request.controller_id,
                request.controller_epoch,
                code,
                self.controller_epoch,
            )
            codes = {one.topic_partition: code for one in wanted}
            return _leader_and_isr_response(code, wanted, codes, version), changes
        codes = {}
        to_lead: list[_Wanted] = []
        to_follow: list[_Wanted] = []
        for one in wanted:
            codes[one.topic_partition] = self._judge(one, to_lead, to_follow)
        if to_lead:
            self._fetchers.remove([one.topic_partition for one in to_lead])
            for one in to_lead:
                self._lead(one, codes, changes)
        if to_follow:
            self._follow_all(to_follow, codes, changes)
        self._fetchers.stop_idle()
        return _leader_and_isr_response(NONE, wanted, codes, version), changes

    def _judge(self, one: _Wanted, to_lead: list[_Wanted], to_follow: list[_Wanted]) -> int:
        """Put the partition on one of the lists, or say why not."""
        key, state = one.topic_partition, one.state
        if self._hosted.is_offline(key):
            return KafkaStorageError.code
        partition = self._hosted.get(key)
        log = self._logs.get_log(key) if partition is None else partition.log
        known_id = None if log is None else log.topic_id
        if one.topic_id is not None and known_id is not None and one.topic_id != known_id:
            self._logger.error("topic id of %s differs from the one in its log", key)
            return InconsistentTopicId.code
        local_epoch = NO_EPOCH if partition is None else partition.leader_epoch
        if state.leader_epoch > local_epoch:
            if self._broker_id not in state.replicas:
                return UnknownTopicOrPartition.code
            (to_lead if state.leader == self._broker_id else to_follow).append(one)
            return NONE
        if partition is None or state.leader_epoch < local_epoch:
            return StaleControllerEpoch.code
        return self._repeat(one, partition)

    def _repeat(self, one: _Wanted, partition: Partition) -> int:
        """An epoch that is already in force: only a topic id may be news."""
        log = partition.log
        if log is not None and one.topic_id is not None and log.topic_id is None:
            try:
                self._logs.get_or_create(one.topic_partition, one.topic_id, is_new=False)
            except KafkaError as error:
                return error.code
            return NONE
        if (
            log is not None
            and one.topic_id is None
            and log.topic_id is not None
            and one.state.leader != self._broker_id
        ):
            self._fetchers.forget_topic_id(one.topic_partition)
            return NONE
        return StaleControllerEpoch.code

    def _lead(self, one: _Wanted, codes: dict[TopicPartition, int], changes: RoleChanges) -> None:
        opened = self._open(one, codes)
        if opened is None:
            return
        partition, log = opened
        if partition.make_leader(one.state, log):
            changes.leaders.append(partition)

    def _follow_all(
        self, wanted: list[_Wanted], codes: dict[TopicPartition, int], changes: RoleChanges
    ) -> None:
        moved: list[Partition] = []
        for one in wanted:
            opened = self._open(one, codes)
            if opened is None:
                continue
            partition, log = opened
            if not self._metadata.is_alive(one.state.leader):
                # Without an address there is nothing to follow.  The epoch is not taken over, so
                # that the controller can say the same again once the leader is known.
                if one.state.leader == NO_LEADER:
                    self._logger.info("%s has no leader to follow", one.topic_partition)
                else:
                    self._logger.error(
                        "cannot follow broker %d for %s: it is not in the metadata cache",
                        one.state.leader,
                        one.topic_partition,
                    )
                continue
            if partition.make_follower(one.state, log):
                moved.append(partition)
        self._fetchers.remove([partition.topic_partition for partition in moved])
        changes.followers.extend(moved)
        if not self.shutting_down:
            self._fetchers.add(moved)

    def _open(self, one: _Wanted, codes: dict[TopicPartition, int]) -> tuple[Partition, Log] | None:
        """The hosted partition and its log, created where missing; None when that failed."""
        key = one.topic_partition
        partition = self._hosted.get(key)
        try:
            log = None if partition is None else partition.log
            if log is None:
                log = self._logs.get_or_create(key, one.topic_id, is_new=one.state.is_new)
            if partition is None:
                partition = Partition(key, self._world)
                partition.log = log
                self._hosted.add(partition)
            return partition, log
        except KafkaStorageError as error:
            self._logger.error("no log for %s: %s", key, error)
            self._hosted.take_offline(key)
            codes[key] = KafkaStorageError.code
        except KafkaError as error:
            self._logger.error("no log for %s: %s", key, error)
            codes[key] = error.code
        return None

    # -- StopReplica ---------------------------------------------------------------------------

    def stop(
        self, request: StopReplicaRequest, version: int
    ) -> tuple[StopReplicaResponse, RoleChanges]:
        """Stop following or leading; delete what is to be deleted."""
        changes = RoleChanges([], [], [])
        code = self.check_epochs(request.controller_epoch, request.broker_epoch)
        if code != NONE:
            return StopReplicaResponse(error_code=code), changes
        response = StopReplicaResponse(error_code=NONE, partition_errors=[])
        for stopped in _stopped(request):
            result = self._judge_stop(stopped)
            if result == NONE:
                changes.stopped.append(stopped)
            response.partition_errors.append(
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=stopped.topic_partition.topic,
                    partition_index=stopped.topic_partition.partition,
                    error_code=result,
                )
            )
        self._fetchers.remove([stopped.topic_partition for stopped in changes.stopped])
        for stopped in changes.stopped:
            partition = self._hosted.get(stopped.topic_partition)
            if partition is not None:
                partition.record("deleted" if stopped.deleted else "stopped")
            if stopped.deleted:
                self._delete(stopped.topic_partition, response)
            elif partition is not None:
                self._world.changed(partition, Changed.ROLE)
        self._fetchers.stop_idle()
        return response, changes

    def _judge_stop(self, stopped: Stopped) -> int:
        key = stopped.topic_partition
        if self._hosted.is_offline(key):
            return KafkaStorageError.code
        partition = self._hosted.get(key)
        if (
            partition is None
            or stopped.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH)
            or stopped.leader_epoch >= partition.leader_epoch
        ):
            return NONE
        # A late order must not end a replica that was assigned again meanwhile (KIP-570).
        return FencedLeaderEpoch.code

    def _delete(self, key: TopicPartition, response: StopReplicaResponse) -> None:
        partition = self._hosted.remove(key)
        if partition is not None:
            partition.stop()
        try:
            for future in (False, True):
                if self._logs.get_log(key, future=future) is not None:
                    self._logs.delete(key, future=future)
        except KafkaError as error:
            self._logger.error("cannot delete %s: %s", key, error)
            for result in response.partition_errors:
                if (result.topic_name, result.partition_index) == key:
                    result.error_code = KafkaStorageError.code


def _wanted(request: LeaderAndIsrRequest) -> Iterable[_Wanted]:
    for topic in request.topic_states:
        topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
        for state in topic.partition_states:
            yield _Wanted(TopicPartition(topic.topic_name, state.partition_index), topic_id, state)
    for state in request.ungrouped_partition_states:
        yield _Wanted(TopicPartition(state.topic_name, state.partition_index), None, state)


def _leader_and_isr_response(
    code: int, wanted: Sequence[_Wanted], codes: dict[TopicPartition, int], version: int
) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=code, partition_errors=[], topics=[])
    topics: dict[bytes, LeaderAndIsrResponse.LeaderAndIsrTopicError] = {}
    for one in wanted:
        name, number = one.topic_partition
        result = LeaderAndIsrResponse.LeaderAndIsrPartitionError(
            topic_name=name if version < 5 else "",
            partition_index=number,
            error_code=codes[one.topic_partition],
        )
        if version < 5:
            response.partition_errors.append(result)
            continue
        topic_id = one.topic_id or ZERO_UUID
        topic = topics.get(topic_id)
        if topic is None:
            topic = LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic_id, partition_errors=[]
            )
            topics[topic_id] = topic
            response.topics.append(topic)
        topic.partition_errors.append(result)
    return response


def _stopped(request: StopReplicaRequest) -> Iterable[Stopped]:
    for state in request.topic_states:
        for one in state.partition_states:
            yield Stopped(
                TopicPartition(state.topic_name, one.partition_index),
                one.leader_epoch,
                one.delete_partition,
            )
    for topic in request.topics:
        for number in topic.partition_indexes:
            yield Stopped(TopicPartition(topic.name, number), NO_EPOCH, request.delete_partitions)
    for old in request.ungrouped_partitions:
        yield Stopped(
            TopicPartition(old.topic_name, old.partition_index),
            NO_EPOCH,
            request.delete_partitions,
        )
