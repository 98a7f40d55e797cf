"""ISR proposals on their way to the controller (KIP-497; reference: replication 6).

At most one request is in flight, everything that gathers meanwhile goes with the next one; each
partition has at most one item.  An item leaves the queue only with an answer for its partition, so
nothing is lost with a connection or a controller.
"""

import logging
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from kafkalike.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    OperationNotAttempted,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_name,
)
from kafkalike.messages.control import AlterPartitionRequest, AlterPartitionResponse
from kafkalike.net.client import PeerError
from kafkalike.runtime.ports import Clock, Timer
from kafkalike.runtime.tasks import Tasks
from kafkalike.types import RECOVERED, ZERO_UUID, TopicPartition

from .partition import IsrDecision, IsrProposal, Partition

RESEND_S: Final = 0.05
"""Pause after an answer that decided nothing."""

_Topic = AlterPartitionRequest.TopicData
_Partition = _Topic.PartitionData

_BACK_TO_COMMITTED: Final = frozenset((IneligibleReplica.code, OperationNotAttempted.code))
_WAIT_FOR_CONTROLLER: Final = frozenset(
    (
        UnknownTopicOrPartition.code,
        UnknownTopicId.code,
        FencedLeaderEpoch.code,
        InvalidUpdateVersion.code,
        InvalidRequest.code,
        NewLeaderElected.code,
    )
)
"""The controller knows something newer: only its next LeaderAndIsr may replace the proposal."""

Send = Callable[[AlterPartitionRequest], "Deferred[AlterPartitionResponse]"]


class _Item:
    __slots__ = ("partition", "proposal")

    def __init__(self, partition: Partition, proposal: IsrProposal) -> None:
        self.partition = partition
        self.proposal = proposal


class IsrManager:
    """Sends the proposals of all partitions of this broker.

    `send_to_controller` finds the controller and tries again by itself on NOT_CONTROLLER and lost
    connections; a failure of it means "no answer".  `broker_epoch` is asked for every request.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        clock: Clock,
        send_to_controller: Send,
        broker_epoch: Callable[[], int],
        logger: logging.Logger,
        decided: Callable[[Partition, IsrProposal, int], object] = lambda *_: None,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._send = send_to_controller
        self._broker_epoch = broker_epoch
        self._logger = logger
        self._decided = decided
        """Told of every answer: partition, proposal, error code."""
        self._items: dict[TopicPartition, _Item] = {}
        self._in_flight = False
        self._tasks = Tasks(logger)
        self._timer: Timer | None = None
        self._stopped = False

    def __len__(self) -> int:
        """Proposals that wait for their answer."""
        return len(self._items)

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller; the answer reaches `partition.isr_decided` or `isr_refused`.

        While an earlier item of the partition has no answer yet the proposal is refused at once: a
        later fetch or the timer proposes again.
        """
        key = partition.topic_partition
        if self._stopped or key in self._items:
            partition.isr_refused(proposal)
            return
        self._items[key] = _Item(partition, proposal)
        self._send_soon()

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True
        self._items.clear()
        self._tasks.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- sending -------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """At the end of the turn, so that changes found together travel together."""
        if self._in_flight or self._timer is not None or not self._items or self._stopped:
            return
        self._timer = self._clock.call_later(0, self._send_all)

    def _send_later(self) -> None:
        if self._timer is None and self._items and not self._stopped:
            self._timer = self._clock.call_later(RESEND_S, self._send_all)

    def _send_all(self) -> None:
        self._timer = None
        if self._stopped or self._in_flight:
            return
        for key, item in list(self._items.items()):
            if item.partition.proposal is not item.proposal:
                del self._items[key]  # a LeaderAndIsr or a deletion came in between
        if not self._items:
            return
        self._in_flight = True
        self._tasks.spawn(self._exchange(list(self._items.values())), "ISR changes")

    async def _exchange(self, items: list[_Item]) -> None:
        """One request and its answer.  Whatever happens, what got no answer is sent again."""
        try:
            response = await self._send(self._request(items, self._broker_epoch()))
            if not self._stopped:
                self._answered(response, items)
        except PeerError as error:
            self._logger.warning("no answer to ISR changes: %s", error)
        finally:
            self._in_flight = False
            if any(self._items.get(item.partition.topic_partition) is item for item in items):
                self._send_later()
            else:
                self._send_soon()

    def _request(self, items: list[_Item], broker_epoch: int) -> AlterPartitionRequest:
        topics: dict[tuple[str, bytes], _Topic] = {}
        for item in items:
            partition, proposal = item.partition, item.proposal
            name, number = partition.topic_partition
            topic_id = partition.topic_id or ZERO_UUID
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[(name, topic_id)] = _Topic(
                    topic_name=name, topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(
                _Partition(
                    partition_index=number,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        _Partition.BrokerState(
                            broker_id=replica, broker_epoch=proposal.epoch_of(replica)
                        )
                        for replica in proposal.isr
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )

    # -- answers -------------------------------------------------------------------------------

    def _answered(self, response: AlterPartitionResponse, items: list[_Item]) -> None:
        if response.error_code != NONE:
            self._logger.warning("ISR changes refused: %s", error_name(response.error_code))
            return
        answers = _by_partition(response, items)
        for item in items:
            key = item.partition.topic_partition
            answer = answers.get(key)
            if answer is not None and self._items.get(key) is item:
                del self._items[key]
                self._settle(item, answer)

    def _settle(self, item: _Item, answer: AlterPartitionResponse.TopicData.PartitionData) -> None:
        partition, proposal, code = item.partition, item.proposal, answer.error_code
        self._decided(partition, proposal, code)
        if code == NONE:
            decision = IsrDecision(tuple(answer.isr), answer.leader_epoch, answer.partition_epoch)
            if not partition.isr_decided(proposal, decision):
                self._logger.info("ISR answer for another state of %s ignored", partition)
        elif code in _BACK_TO_COMMITTED:
            self._logger.info("ISR of %s not changed: %s", partition, error_name(code))
            partition.isr_refused(proposal)
        elif code in _WAIT_FOR_CONTROLLER:
            self._logger.info(
                "ISR of %s not changed: %s; waiting for the controller", partition, error_name(code)
            )
        elif partition.proposal is proposal:
            self._logger.warning("ISR of %s to be tried again: %s", partition, error_name(code))
            self._items[partition.topic_partition] = _Item(partition, proposal)


def _by_partition(
    response: AlterPartitionResponse, items: list[_Item]
) -> dict[TopicPartition, AlterPartitionResponse.TopicData.PartitionData]:
    """Answers by partition, whether the version names topics or carries their ids."""
    names = {
        item.partition.topic_id: item.partition.topic_partition.topic
        for item in items
        if item.partition.topic_id is not None
    }
    found: dict[TopicPartition, AlterPartitionResponse.TopicData.PartitionData] = {}
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id)
        if name is not None:
            for partition in topic.partitions:
                found[TopicPartition(name, partition.partition_index)] = partition
    return found
