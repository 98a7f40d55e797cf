"""What only controller and brokers send, from a stranger: stale epochs, unknown brokers."""

from collections.abc import Iterator

from kafkalike.messages.control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.messages.transactions import AllocateProducerIdsRequest

from ..case import Ask, Case, Topic, versions_of

STOCK = Topic("stock-control")


def cases() -> Iterator[Case]:
    for version in versions_of(LeaderAndIsrRequest):
        for epoch in (0, -1):
            message = LeaderAndIsrRequest(
                controller_id=1, controller_epoch=epoch, broker_epoch=2**62
            )
            yield Case(f"leader-and-isr-epoch-{epoch}-v{version}", [Ask(message, version)])
        if version >= 2:
            stale = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=1)
            yield Case(f"leader-and-isr-stale-broker-epoch-v{version}", [Ask(stale, version)])
    for version in versions_of(StopReplicaRequest):
        stop = StopReplicaRequest(controller_id=1, controller_epoch=0, broker_epoch=2**62)
        yield Case(f"stop-replica-epoch-0-v{version}", [Ask(stop, version)])
        if version >= 1:
            old = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1)
            yield Case(f"stop-replica-stale-broker-epoch-v{version}", [Ask(old, version)])
    for version in versions_of(UpdateMetadataRequest):
        update = UpdateMetadataRequest(controller_id=1, controller_epoch=0, broker_epoch=2**62)
        yield Case(f"update-metadata-epoch-0-v{version}", [Ask(update, version)])
        if version >= 5:
            update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=1)
            yield Case(f"update-metadata-stale-broker-epoch-v{version}", [Ask(update, version)])
    for version in versions_of(ControlledShutdownRequest):
        for broker in (9, -1):
            leave = ControlledShutdownRequest(broker_id=broker)
            yield Case(f"controlled-shutdown-{broker}-v{version}", [Ask(leave, version)])
        if version >= 2:
            leave = ControlledShutdownRequest(broker_id=1, broker_epoch=1)
            yield Case(f"controlled-shutdown-stale-v{version}", [Ask(leave, version)])
    for broker, epoch in ((9, 5), (1, 1), (-1, -1)):
        ids = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        yield Case(f"allocate-producer-ids-{broker}-{epoch}", [Ask(ids, 0)])
    for version in versions_of(AlterPartitionRequest):
        for broker, epoch in ((9, 5), (1, 1)):
            change = AlterPartitionRequest(broker_id=broker, broker_epoch=epoch)
            yield Case(f"alter-partition-{broker}-{epoch}-v{version}", [Ask(change, version)])
