"""Controlled shutdown of one broker (reference: controller 9): leadership moves away first."""

from kafkalike.errors import BrokerNotAvailable, StaleBrokerEpoch, UnknownServerError
from kafkalike.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalike.types import NO_BROKER_EPOCH, TopicPartition

from .context import ControllerContext, Replica
from .leaders import ElectionStrategy
from .partitions import PartitionStateMachine
from .replicas import ReplicaStateMachine
from .status import ReplicaStatus
from .term import Term


def check_shutdown(context: ControllerContext, broker_id: int, broker_epoch: int) -> None:
    """Raises UnknownServerError, StaleBrokerEpoch or BrokerNotAvailable."""
    broker = context.brokers.get(broker_id)
    if broker_epoch != NO_BROKER_EPOCH:
        if broker is None:
            raise UnknownServerError(f"broker {broker_id} is not registered")
        if broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(
                f"broker {broker_id} has epoch {broker.epoch}, the request says {broker_epoch}"
            )
    if broker is None:
        raise BrokerNotAvailable(f"broker {broker_id} is not registered")


def plan_shutdown(
    context: ControllerContext, broker_id: int
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Partitions the broker leads, and those it follows, that have other replicas."""
    concerned = [
        partition
        for partition in context.partitions_on(broker_id)
        if len(context.assignment(partition).replicas) > 1
        and partition in context.leadership
        and not context.is_queued_for_deletion(partition.topic)
    ]
    led = [partition for partition in concerned if context.leader(partition) == broker_id]
    followed = [partition for partition in concerned if context.leader(partition) != broker_id]
    return led, followed


def still_led(context: ControllerContext, broker_id: int) -> list[TopicPartition]:
    """Partitions with other replicas that the broker leads all the same."""
    return [
        partition
        for partition in context.partitions_with_leadership()
        if context.leader(partition) == broker_id
        and len(context.assignment(partition).replicas) > 1
    ]


class ShutdownHelper:
    """Serves ControlledShutdown."""

    def __init__(
        self, term: Term, partitions: PartitionStateMachine, replicas: ReplicaStateMachine
    ) -> None:
        self._term = term
        self._context = term.context
        self._partitions = partitions
        self._replicas = replicas

    async def shut_down(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move what the broker leads, stop what it follows; what it still leads is the answer."""
        broker_id = request.broker_id
        check_shutdown(self._context, broker_id, request.broker_epoch)
        self._term.logger.info("controlled shutdown broker=%d", broker_id)
        self._context.shutting_down.add(broker_id)
        led, followed = plan_shutdown(self._context, broker_id)
        await self._partitions.to_online(led, ElectionStrategy.CONTROLLED_SHUTDOWN)
        self._term.batch.begin()
        for partition in followed:
            self._term.batch.add_stop_replica((broker_id,), partition, delete=False)
        await self._term.send()
        await self._replicas.move(
            [Replica(partition, broker_id) for partition in followed], ReplicaStatus.OFFLINE
        )
        return ControlledShutdownResponse(
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(
                    topic_name=partition.topic, partition_index=partition.partition
                )
                for partition in still_led(self._context, broker_id)
            ]
        )
