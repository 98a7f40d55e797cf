"""What controller and brokers tell each other, with the right epochs but for what a case is about."""

from collections.abc import Iterator, Sequence

from kafkalike.messages.control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kafkalike.messages.transactions import AllocateProducerIdsRequest

from ..batches import batch
from ..case import NEW_EPOCH, Ask, Case, Names, Topic, versions_of
from .asks import SHUFFLED, epoch_end, fetch_as, inform, lead, metadata, propose, seen, stop
from .fetch import partition

STOCK = Topic("orders", replicas=[[1, 2, 3]], batches={0: [batch(2), NEW_EPOCH, NEW_EPOCH]})
"""In leader epoch 2."""

OTHER = Topic("orders-other", replicas=[[1, 2, 3]])
BY_ID = 2
"""AlterPartition names topics by id from here on."""


def case(name: str, *steps: Ask, setup: Sequence[Topic | Ask] = (), differs: str = "") -> Case:
    return Case(
        name,
        list(steps),
        setup=setup,
        uses=[STOCK, OTHER],
        unordered=SHUFFLED,
        differs=differs,
    )


def cases() -> Iterator[Case]:
    for version in versions_of(LeaderAndIsrRequest):
        yield from roles(version)
    for version in versions_of(StopReplicaRequest):
        yield from stops(version)
    for version in versions_of(UpdateMetadataRequest):
        yield from updates(version)
    for version in versions_of(AlterPartitionRequest):
        yield from proposals(version)
    for version in versions_of(ControlledShutdownRequest):
        for broker, word in ((3, "stale"), (9, "unknown")):
            leave = ControlledShutdownRequest(broker_id=broker, broker_epoch=1)
            yield (
                case(f"orders-leave-{word}-v{version}", Ask(leave, version))
                if (version >= 2 or broker == 9)
                else case(f"orders-leave-nothing-v{version}", metadata("orders"))
            )

    def ids(names: Names) -> AllocateProducerIdsRequest:
        return AllocateProducerIdsRequest(broker_id=3, broker_epoch=names.tree.broker_epoch(3))

    yield case("orders-producer-ids", Ask(ids, 0), Ask(ids, 0))


def roles(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for epoch in (-1, 0, 1, 2):
        yield case(f"orders-lead-epoch-{epoch}{suffix}", lead(version, "orders", epoch=epoch))
    yield case(
        f"orders-lead-no-replica{suffix}",
        lead(version, "orders", epoch=9, isr=[1, 3], replicas=[1, 3]),
    )
    yield case(
        f"orders-lead-controller-epoch{suffix}",
        lead(version, "orders", epoch=9, controller_epoch=-1),
    )
    if version >= 2:
        yield case(
            f"orders-lead-broker-epoch{suffix}", lead(version, "orders", epoch=9, broker_epoch=-1)
        )
    if version >= 5:
        for epoch in (1, 2, 9):
            yield case(
                f"orders-lead-other-id-{epoch}{suffix}",
                lead(version, "orders", epoch=epoch, id_of="orders-other"),
            )
        yield case(f"orders-lead-kind-2{suffix}", lead(version, "orders", epoch=1, kind=2))
        name = f"orders-lead-no-id{suffix}"
        yield case(
            name,
            lead(version, name, epoch=0, id_of="zero"),
            lead(version, name, epoch=0),
            setup=[Topic(name, replicas=[[1, 2, 3]])],
        )
    if version >= 7:
        yield case(f"orders-lead-kraft{suffix}", lead(version, "orders", epoch=1, kraft=True))
    name = f"orders-lead-new{suffix}"
    alone = {"leader": 2, "isr": [2], "replicas": [2], "is_new": True, "id_of": "no-such"}
    yield case(
        name,
        lead(version, name, **alone),  # type: ignore[arg-type]
        lead(version, name, **alone),  # type: ignore[arg-type]
        fetch_as(11, -1, name, partition(0), to=2),
        epoch_end(4, name, 0, 0, to=2),
        lead(version, name, **{**alone, "epoch": 3}),  # type: ignore[arg-type]
        epoch_end(4, name, 0, 3, to=2),
        epoch_end(4, name, 0, 0, to=2),
        stop(4, (name, 0, 2, True)),
        stop(4, (name, 0, 3, True)),
        fetch_as(11, -1, name, partition(0), to=2),
        stop(4, (name, 0, -1, True)),
    )
    name = f"orders-follow-nobody{suffix}"
    follow = {"leader": 9, "isr": [9, 2], "replicas": [9, 2], "is_new": True, "id_of": "no-such"}
    yield case(
        name,
        lead(version, name, **follow),  # type: ignore[arg-type]
        lead(version, name, **follow),  # type: ignore[arg-type]
        fetch_as(11, -1, name, partition(0), to=2),
        stop(4, (name, 0, 0, True)),
    )


def stops(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    for delete in (False, True):
        yield case(
            f"orders-stop-unknown-{delete}{suffix}".lower(),
            stop(version, ("no-such", 0, -1, delete), ("no-such", 1, 5, delete)),
        )
    if version >= 3:
        for epoch in (0, 1):
            yield case(
                f"orders-stop-epoch-{epoch}{suffix}", stop(version, ("orders", 0, epoch, False))
            )
    for epoch in (-1, -2, 0, 7):
        name = f"orders-stop-{epoch}{suffix}"
        yield case(
            name,
            stop(version, (name, 0, epoch, False)),
            fetch_as(11, -1, name, partition(0), to=2),
            stop(version, (name, 0, epoch, True)),
            stop(version, (name, 0, epoch, True)),
            setup=[Topic(name, replicas=[[1, 2, 3]])],
        )
    yield case(
        f"orders-stop-controller-epoch{suffix}",
        stop(version, ("orders", 0, 2, True), controller_epoch=-1),
    )
    if version >= 1:
        yield case(
            f"orders-stop-broker-epoch{suffix}",
            stop(version, ("orders", 0, 2, True), ("no-such", 0, 2, True), broker_epoch=-1),
        )


def updates(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    name = f"orders-update{suffix}"
    yield case(
        name,
        inform(version, name),
        metadata(name, to=2),
        inform(version, name, leader=2, epoch=4, replicas=[2, 1]),
        metadata(name, to=2),
        inform(version, name, epoch=1),
        metadata(name, to=2),
        inform(version, name, leader=-1, epoch=5),
        metadata(name, to=2),
        inform(version, name, leader=-2),
        metadata(name, to=2),
        inform(version, name, leader=-2),
    )
    yield case(
        f"orders-update-controller-epoch{suffix}",
        inform(version, "orders-nowhere", controller_epoch=-1),
        metadata("orders-nowhere", to=2),
    )
    if version >= 5:
        yield case(
            f"orders-update-broker-epoch{suffix}",
            inform(version, "orders-nowhere", broker_epoch=-1),
            metadata("orders-nowhere", to=2),
        )


def proposals(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"
    name = f"orders-isr{suffix}"
    yield case(
        name,
        propose(version, name, [1, 2]),
        metadata(name, until=seen(isr=[1, 2])),
        propose(version, name, [1, 2]),
        propose(version, name, [1, 2], partition_epoch=-1),
        propose(version, name, [1, 2, 3], partition_epoch=-1),
        propose(version, name, [2, 1], partition_epoch=-1),
        propose(version, name, [1], epoch=-1),
        propose(version, name, [1], epoch=-1, partition_epoch=-1),
        propose(version, name, [1, 2, 9]),
        propose(version, name, [1, 2, 3]),
        metadata(name, until=seen(isr=[1, 2, 3])),
        setup=[Topic(name, replicas=[[1, 2, 3]])],
    )
    for word, more in {
        "future-epoch": {"epoch": 1},
        "future-partition-epoch": {"partition_epoch": 1},
        "future-both": {"epoch": 1, "partition_epoch": 1},
        "unknown-partition": {"number": 7},
        "stale-broker": {"broker_epoch": 1},
        "unknown-broker": {"leader": 9, "broker_epoch": 1},
    }.items():
        yield case(f"orders-isr-{word}{suffix}", propose(version, "orders", [1, 2], **more))
    yield case(f"orders-isr-unknown-topic{suffix}", propose(version, "no-such", [1, 2]))
    if version >= BY_ID:
        yield case(f"orders-isr-zero-id{suffix}", propose(version, "zero", [1, 2]))
    if version >= 1:
        name = f"orders-isr-recovering{suffix}"
        yield case(
            name,
            propose(version, name, [1, 2], recovery=1),
            propose(version, name, [1], recovery=1),
            metadata(name),
            setup=[Topic(name, replicas=[[1, 2, 3]])],
        )
    for word, isr, more in (
        ("empty", [], {}),
        ("without-leader", [2, 3], {}),
        ("stranger", [1, 2, 3], {}),
        ("not-leader", [1, 2], {"leader": 2}),
    ):
        name = f"orders-isr-{word}{suffix}"
        replicas = [1, 2] if word == "stranger" else [1, 2, 3]
        yield case(
            name,
            propose(version, name, isr, **more),
            setup=[Topic(name, replicas=[replicas])],
            differs="AlterPartition that does not come from the leader",
        )

    def nothing(names: Names) -> AlterPartitionRequest:
        return AlterPartitionRequest(broker_id=1, broker_epoch=names.tree.broker_epoch(1))

    yield case(f"orders-isr-nothing{suffix}", Ask(nothing, version))
